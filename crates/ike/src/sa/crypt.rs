//! SPIs and keys of one IKE_SA: seals and opens its messages.

use ironswan_crypto::rng::Rng;
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::ike::{
    Flags, Header, Message, ParseError, Payload, SealedDraft, Within, parse_chain, sealed,
};
use ironswan_wire::proposal::IkeSuite;
use ironswan_wire::secret::Secret;

use crate::keymat::IkeKeys;

/// Why a message could not be read.
pub(crate) enum OpenError {
    /// Not authentic, or not even that: nothing may change because of it.
    Junk,
    /// Authentic, and not understood.
    Syntax(ParseError),
}

/// SPIs, suite and keys of one IKE_SA.
pub(crate) struct Crypt {
    spi_i: u64,
    /// 0 until the responder has answered.
    spi_r: u64,
    suite: Option<IkeSuite>,
    keys: Option<IkeKeys>,
    /// Counter for AEAD IVs: unique under these keys.
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

    /// Takes the copy of the keys for the key log.
    pub(crate) fn take_key_log(&mut self) -> Option<Box<[Secret; 7]>> {
        self.keys.as_mut().and_then(|keys| keys.log.take())
    }

    /// The header of a message that we send. `initiator`: we are the initiator of the IKE_SA.
    pub(super) fn header(&self, initiator: bool, exchange: ExchangeType, response: bool, mid: u32) -> Header {
        Header::new(self.spi_i, self.spi_r, exchange, Flags::new(initiator, response), mid)
    }

    /// Seals payloads into a message. `None` only when something does not fit its field on the
    /// wire, or without keys.
    pub(super) fn seal(&mut self, rng: &mut dyn Rng, header: &Header, inner: &[Payload]) -> Option<Vec<u8>> {
        let keys = self.keys.as_ref()?;
        let SealedDraft { mut bytes, ranges } = SealedDraft::emit(header, &[], inner, keys.geometry).ok()?;
        let (aad, rest) = bytes.split_at_mut(ranges.iv.start);
        let (iv, rest) = rest.split_at_mut(ranges.iv.len());
        let (text, icv) = rest.split_at_mut(ranges.text.len());
        match <&mut [u8; 8]>::try_from(&mut *iv) {
            Ok(counter) => {
                *counter = self.iv.to_be_bytes();
                self.iv += 1;
            }
            Err(_) => rng.fill(iv),
        }
        keys.seal.seal(aad, iv, text, icv);
        Some(bytes)
    }

    /// Opens a message: authenticates it first, and reads the payloads inside then.
    pub(super) fn open(&self, bytes: &[u8]) -> Result<Vec<Payload>, OpenError> {
        let keys = self.keys.as_ref().ok_or(OpenError::Junk)?;
        let message = Message::parse(bytes).map_err(|_| OpenError::Junk)?;
        // Fragments are not announced; clear payloads before SK carry no meaning in any exchange
        // here.
        let Some(Payload::Sk(sk)) = message.payloads.last() else { return Err(OpenError::Junk) };
        let ranges = message.sealed(keys.geometry).map_err(|_| OpenError::Junk)?;
        let mut text = bytes[ranges.text.clone()].to_vec();
        keys.open
            .open(&bytes[ranges.aad], &bytes[ranges.iv], &mut text, &bytes[ranges.icv])
            .map_err(|_| OpenError::Junk)?;
        let plain = sealed::unpad(&text).map_err(OpenError::Syntax)?;
        parse_chain(sk.inner, plain, Within::Sk).map_err(OpenError::Syntax)
    }
}
