//! Writing and reading messages of an IKE_SA as either of its ends, with the keys from the key log:
//! the peer that does what no honest one would.

use ironswan_crypto::message::MessageKey;
use ironswan_ike::event::KeyLog;
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::ike::{
    Flags, Fragment, Geometry, Header, Message, Payload, SealedDraft, Within, parse_chain, sealed,
};

use crate::Node;

/// Both ends' keys of one IKE_SA.
pub struct Forger {
    spi_i: u64,
    spi_r: u64,
    initiator: MessageKey,
    responder: MessageKey,
    geometry: Geometry,
    iv: u64,
}

impl Forger {
    /// Of the newest IKE_SA in a node's key log.
    pub fn newest(node: &Node) -> Self {
        Self::of(node, None)
    }

    /// Of the IKE_SA with this initiator's SPI, or the newest.
    pub fn of(node: &Node, spi: Option<u64>) -> Self {
        let keys = node.keys.iter().rev().find(|k| match k {
            KeyLog::Ike { spi_i, .. } => spi.is_none_or(|s| s == *spi_i),
            KeyLog::Child { .. } => false,
        });
        keys.and_then(Self::with).expect("an IKE_SA in the key log")
    }

    /// With these keys, which need not be the last ones of their IKE_SA.
    pub fn with(keys: &KeyLog) -> Option<Self> {
        let KeyLog::Ike { spi_i, spi_r, suite, keys, .. } = keys else { return None };
        let [_, ai, ar, ei, er, ..] = &**keys;
        let key = |e: &ironswan_wire::secret::Secret, a: &ironswan_wire::secret::Secret| {
            MessageKey::new(suite.encr, suite.key_bits, suite.integ, e.expose(), a.expose())
                .expect("keys of a supported suite")
        };
        let (initiator, responder) = (key(ei, ai), key(er, ar));
        let geometry =
            Geometry { iv: initiator.iv_len(), icv: initiator.icv_len(), block: initiator.block_len() };
        // IVs that no honest message has.
        let iv = 1 << 63;
        Some(Self { spi_i: *spi_i, spi_r: *spi_r, initiator, responder, geometry, iv })
    }

    /// A message from the initiator (or the responder) of the IKE_SA.
    pub fn message(
        &mut self,
        by_initiator: bool,
        exchange: ExchangeType,
        response: bool,
        mid: u32,
        payloads: &[Payload],
    ) -> Vec<u8> {
        let (first, plain) = ironswan_wire::ike::emit_chain(payloads).expect("payloads that fit");
        self.raw(by_initiator, exchange, response, mid, first, &plain)
    }

    /// The same around bytes that need not be payloads.
    pub fn raw(
        &mut self,
        by_initiator: bool,
        exchange: ExchangeType,
        response: bool,
        mid: u32,
        first: ironswan_wire::iana::PayloadType,
        plain: &[u8],
    ) -> Vec<u8> {
        let header = Header::new(self.spi_i, self.spi_r, exchange, Flags::new(by_initiator, response), mid);
        self.seal(&header, first, plain, None)
    }

    /// One fragment of a request from the initiator (or the responder).
    pub fn fragment(
        &mut self,
        by_initiator: bool,
        exchange: ExchangeType,
        mid: u32,
        (number, total): (u16, u16),
        first: ironswan_wire::iana::PayloadType,
        plain: &[u8],
    ) -> Vec<u8> {
        let header = Header::new(self.spi_i, self.spi_r, exchange, Flags::new(by_initiator, false), mid);
        self.seal(&header, first, plain, Some(Fragment { number, total }))
    }

    /// A request of the initiator with payloads in clear, and with these bits in the critical and
    /// RESERVED bits of the encrypted payload; whole, or cut into two fragments. The first has what
    /// is in clear.
    pub fn odd(
        &mut self,
        exchange: ExchangeType,
        mid: u32,
        (clear, bits): (&[Payload], u8),
        (first, plain): (ironswan_wire::iana::PayloadType, &[u8]),
        cut: bool,
    ) -> Vec<Vec<u8>> {
        let header = Header::new(self.spi_i, self.spi_r, exchange, Flags::new(true, false), mid);
        if !cut {
            return vec![self.seal_odd(&header, (clear, bits), first, plain, None)];
        }
        let (one, two) = plain.split_at(plain.len() / 2);
        let part = |number| Some(Fragment { number, total: 2 });
        vec![
            self.seal_odd(&header, (clear, bits), first, one, part(1)),
            self.seal_odd(&header, (&[], 0), ironswan_wire::iana::PayloadType::NONE, two, part(2)),
        ]
    }

    fn seal(
        &mut self,
        header: &Header,
        first: ironswan_wire::iana::PayloadType,
        plain: &[u8],
        fragment: Option<Fragment>,
    ) -> Vec<u8> {
        self.seal_odd(header, (&[], 0), first, plain, fragment)
    }

    fn seal_odd(
        &mut self,
        header: &Header,
        (clear, bits): (&[Payload], u8),
        first: ironswan_wire::iana::PayloadType,
        plain: &[u8],
        fragment: Option<Fragment>,
    ) -> Vec<u8> {
        let draft = SealedDraft::emit_plain(header, clear, first, plain, fragment, self.geometry);
        let SealedDraft { mut bytes, ranges } = draft.expect("a message that fits");
        // Behind the type of the first payload: length, and of a fragment number and total.
        bytes[ranges.iv.start - if fragment.is_some() { 7 } else { 3 }] = bits;
        let (aad, rest) = bytes.split_at_mut(ranges.iv.start);
        let (iv, rest) = rest.split_at_mut(ranges.iv.len());
        let (text, icv) = rest.split_at_mut(ranges.text.len());
        self.iv += 1;
        let n = iv.len();
        iv[n - 8..].copy_from_slice(&self.iv.to_be_bytes());
        let key = if header.flags.initiator() { &self.initiator } else { &self.responder };
        key.seal(aad, iv, text, icv);
        bytes
    }

    /// What a message of either end says; `None` when it is not of this IKE_SA.
    pub fn open(&self, bytes: &[u8]) -> Option<(Header, Vec<Payload>)> {
        let (header, first, plain) = self.plain(bytes)?;
        Some((header, parse_chain(first, &plain, Within::Sk).ok()?))
    }

    /// The same in bytes: the type of the first payload, and the payloads without padding; of a
    /// fragment its part.
    pub fn plain(&self, bytes: &[u8]) -> Option<(Header, ironswan_wire::iana::PayloadType, Vec<u8>)> {
        let message = Message::parse(bytes).ok()?;
        let first = match message.payloads.last() {
            Some(Payload::Sk(sk)) => sk.inner,
            Some(Payload::Skf(skf)) => skf.inner,
            _ => return None,
        };
        let ranges = message.sealed(self.geometry).ok()?;
        let mut text = bytes[ranges.text.clone()].to_vec();
        let key = if message.header.flags.initiator() { &self.initiator } else { &self.responder };
        key.open(&bytes[ranges.aad], &bytes[ranges.iv], &mut text, &bytes[ranges.icv]).ok()?;
        Some((message.header, first, sealed::unpad(&text).ok()?.to_vec()))
    }
}
