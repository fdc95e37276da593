//! SPIs and keys of one IKE_SA: seals and opens its messages.

use ironswan_crypto::rng::Rng;
use ironswan_wire::iana::{ExchangeType, PayloadType};
use ironswan_wire::ike::{Flags, Fragment, HEADER_LEN, Header, Message, Payload, SealedDraft, emit_chain};
use ironswan_wire::proposal::IkeSuite;
use ironswan_wire::secret::Secret;

use crate::keymat::{IkeKeys, Mixed};
use crate::window::Sealed;

/// SPIs, suite and keys of one IKE_SA.
pub(crate) struct Crypt {
    spi_i: u64,
    /// 0 until the responder has answered.
    spi_r: u64,
    suite: Option<IkeSuite>,
    keys: Option<IkeKeys>,
    /// Counter for the IVs of AEADs and AES-CTR: unique under these keys.
    iv: u64,
}

impl Crypt {
    pub(super) fn new(spi_i: u64, spi_r: u64) -> Self {
        Self { spi_i, spi_r, suite: None, keys: None, iv: 0 }
    }

    pub(super) fn spi_i(&self) -> u64 {
        self.spi_i
    }

    pub(super) fn spi_r(&self) -> u64 {
        self.spi_r
    }

    pub(super) fn suite(&self) -> Option<IkeSuite> {
        self.suite
    }

    pub(super) fn keys(&self) -> Option<&IkeKeys> {
        self.keys.as_ref()
    }

    /// The responder has answered with its SPI and this suite.
    pub(crate) fn agree(&mut self, spi_r: u64, suite: IkeSuite) {
        (self.spi_r, self.suite) = (spi_r, Some(suite));
    }

    /// Takes over the keys; `None` when there are none.
    pub(crate) fn set_keys(&mut self, keys: Option<IkeKeys>) {
        self.keys = keys;
    }

    /// Takes over keys with a post-quantum preshared key, see [`IkeKeys::take_mixed`].
    pub(super) fn take_mixed(&mut self, mixed: Mixed, logged: Option<Box<[Secret; 7]>>, initiator: bool) {
        if let Some(keys) = &mut self.keys {
            keys.take_mixed(mixed, logged, initiator);
        }
    }

    /// Takes the copy of the keys for the key log.
    pub(crate) fn take_key_log(&mut self) -> Option<Box<[Secret; 7]>> {
        self.keys.as_mut().and_then(|keys| keys.log.take())
    }

    /// The header of a message that we send. `initiator`: we are the initiator of the IKE_SA.
    pub(super) fn header(&self, initiator: bool, exchange: ExchangeType, response: bool, mid: u32) -> Header {
        Header::new(self.spi_i, self.spi_r, exchange, Flags::new(initiator, response), mid)
    }

    /// Seals payloads into a message, which is cut into fragments when it would be longer than
    /// `most` bytes. `None` only when something does not fit its field on the wire, or without
    /// keys.
    pub(super) fn seal(
        &mut self,
        rng: &mut dyn Rng,
        header: &Header,
        inner: &[Payload],
        most: Option<usize>,
    ) -> Option<Sealed> {
        let geometry = self.keys.as_ref()?.geometry;
        let (first, plain) = emit_chain(inner).ok()?;
        let len = HEADER_LEN + 4 + geometry.iv + geometry.text_len(plain.len()) + geometry.icv;
        let most = most.filter(|most| len > *most).and_then(|most| geometry.fragment_capacity(most));
        let Some(capacity) = most else {
            return Some(vec![self.seal_one(rng, header, first, &plain, None)?]);
        };
        let total = u16::try_from(plain.len().div_ceil(capacity)).ok()?;
        let parts = (1..=total).zip(plain.chunks(capacity));
        parts
            .map(|(number, part)| {
                // "this field MUST be set to the Next Payload of the original message" in the first
                // fragment, and "to zero" in the others (RFC 7383 section 2.5).
                let first = if number == 1 { first } else { PayloadType::NONE };
                self.seal_one(rng, header, first, part, Some(Fragment { number, total }))
            })
            .collect()
    }

    /// Room for payloads in a message that is as long as it can be within `most` bytes, and its
    /// length: the cipher may leave steps. `None` when nothing fits, or without keys.
    pub(super) fn room(&self, most: usize) -> Option<(usize, usize)> {
        let geometry = self.keys.as_ref()?.geometry;
        let around = HEADER_LEN + 4 + geometry.iv + geometry.icv;
        let block = geometry.block.max(1);
        let text = most.checked_sub(around)? / block * block;
        Some((text.checked_sub(1)?, around + text))
    }

    fn seal_one(
        &mut self,
        rng: &mut dyn Rng,
        header: &Header,
        first: PayloadType,
        plain: &[u8],
        fragment: Option<Fragment>,
    ) -> Option<Vec<u8>> {
        let keys = self.keys.as_ref()?;
        let draft = SealedDraft::emit_plain(header, &[], first, plain, fragment, keys.geometry);
        let SealedDraft { mut bytes, ranges } = draft.ok()?;
        let (aad, rest) = bytes.split_at_mut(ranges.iv.start);
        let (iv, rest) = rest.split_at_mut(ranges.iv.len());
        let (text, icv) = rest.split_at_mut(ranges.text.len());
        match <&mut [u8; 8]>::try_from(&mut *iv) {
            // "The IV MUST be unique" is all that AEADs (RFC 5282 section 3.1) and AES-CTR (RFC
            // 5930 section 2.1) ask for.
            Ok(counter) if keys.geometry.block == 1 => {
                *counter = self.iv.to_be_bytes();
                self.iv += 1;
            }
            // CBC, with 16 bytes or the 8 of 3DES: "Senders MUST select a new unpredictable IV for
            // every message" (RFC 7296 section 3.14).
            _ => rng.fill(iv),
        }
        keys.seal.seal(aad, iv, text, icv);
        Some(bytes)
    }

    /// Opens the encrypted payload of a message: the text with its padding. `None`: not authentic.
    pub(super) fn open(&self, bytes: &[u8], message: &Message) -> Option<Vec<u8>> {
        let keys = self.keys.as_ref()?;
        let ranges = message.sealed(keys.geometry).ok()?;
        let mut text = bytes[ranges.text.clone()].to_vec();
        keys.open.open(&bytes[ranges.aad], &bytes[ranges.iv], &mut text, &bytes[ranges.icv]).ok()?;
        Some(text)
    }
}
