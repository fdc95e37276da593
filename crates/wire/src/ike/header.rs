//! The IKE header (RFC 7296 section 3.1).
//!
//! ```text
//!  0                   8                   16    17      18       19     20           24       28
//!  | initiator's SPI   | responder's SPI   | next| ver   | exch   | flags| message id | length |
//! ```
//!
//! Not here: whether the SPIs, the message id or the exchange fit any IKE_SA.

use super::error::{Fault, ParseError};
use crate::iana::{ExchangeType, PayloadType};
use crate::read::{EmitError, LenError, Reader, Writer};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 28;
/// Offset of the Next Payload field.
pub(super) const NEXT_PAYLOAD: usize = 16;

/// Protocol version: major in the high half.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u8);

impl Version {
    /// "Implementations based on this version of IKE MUST set the major version to 2" and "the
    /// minor version to 0".
    pub const V2: Self = Self(0x20);

    /// Major version.
    pub fn major(self) -> u8 {
        self.0 >> 4
    }

    /// Minor version: "They MUST ignore the minor version number of received messages."
    pub fn minor(self) -> u8 {
        self.0 & 0xf
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

/// Header flags. Bits that have no name here "MUST be cleared when sending and MUST be ignored on
/// receipt".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Set by the original initiator of the IKE_SA, in requests and responses.
    pub const INITIATOR: u8 = 0x08;
    /// The sender could speak a higher major version. "Implementations of IKEv2 MUST clear this bit
    /// when sending and MUST ignore it in incoming messages."
    pub const VERSION: u8 = 0x10;
    /// Set in responses.
    pub const RESPONSE: u8 = 0x20;

    /// The two flags that an IKEv2 sender sets.
    pub fn new(initiator: bool, response: bool) -> Self {
        Self(if initiator { Self::INITIATOR } else { 0 } | if response { Self::RESPONSE } else { 0 })
    }

    /// The sender is the original initiator of the IKE_SA.
    pub fn initiator(self) -> bool {
        self.0 & Self::INITIATOR != 0
    }

    /// The message is a response.
    pub fn response(self) -> bool {
        self.0 & Self::RESPONSE != 0
    }

    /// The sender could speak a higher major version.
    pub fn version(self) -> bool {
        self.0 & Self::VERSION != 0
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |set, l| if set { l } else { '-' };
        let (i, v, r) = (self.initiator(), self.version(), self.response());
        write!(f, "{}{}{}", letter(i, 'I'), letter(v, 'V'), letter(r, 'R'))
    }
}

/// The header as it stands in the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// SPI of the original initiator. Never 0 in a valid message.
    pub initiator_spi: u64,
    /// SPI of the original responder; 0 in the first message.
    pub responder_spi: u64,
    /// Type of the first payload. Emitting sets it from the payloads.
    pub next_payload: PayloadType,
    /// Version.
    pub version: Version,
    /// Exchange.
    pub exchange: ExchangeType,
    /// Flags.
    pub flags: Flags,
    /// Message id.
    pub message_id: u32,
    /// Length of the whole message in bytes. Emitting sets it.
    pub length: u32,
}

impl Header {
    /// A header to send. Next payload and length are filled in when the message is emitted.
    pub fn new(
        initiator_spi: u64,
        responder_spi: u64,
        exchange: ExchangeType,
        flags: Flags,
        message_id: u32,
    ) -> Self {
        let (next_payload, version) = (PayloadType::NONE, Version::V2);
        Self { initiator_spi, responder_spi, next_payload, version, exchange, flags, message_id, length: 0 }
    }

    /// The fields, unjudged: for demultiplexing, and for answering messages of other versions.
    pub fn read(datagram: &[u8]) -> Result<Self, LenError> {
        if datagram.len() < HEADER_LEN {
            return Err(LenError { needed: HEADER_LEN, available: datagram.len(), what: "IKE header" });
        }
        let mut r = Reader::new(datagram);
        Ok(Self {
            initiator_spi: r.u64("initiator SPI")?,
            responder_spi: r.u64("responder SPI")?,
            next_payload: PayloadType(r.u8("next payload")?),
            version: Version(r.u8("version")?),
            exchange: ExchangeType(r.u8("exchange type")?),
            flags: Flags(r.u8("flags")?),
            message_id: r.u32("message id")?,
            length: r.u32("length")?,
        })
    }

    /// The fields of a datagram that holds one IKEv2 message and nothing else.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let header = Self::read(datagram).map_err(ParseError::header)?;
        if header.version.major() != 2 {
            return Err(ParseError::MajorVersion(header.version.major()));
        }
        if usize::try_from(header.length) != Ok(datagram.len()) {
            return Err(ParseError::header(Fault::Invalid("the length field is not the datagram's length")));
        }
        // "This value MUST NOT be zero" (RFC 7296 section 3.1, initiator's SPI).
        if header.initiator_spi == 0 {
            return Err(ParseError::header(Fault::Invalid("the initiator's SPI is 0")));
        }
        Ok(header)
    }

    /// The first payload is SK or SKF: the message belongs to an IKE_SA that has keys. Payloads in
    /// clear may stand in front of them ([`ends_sealed`](super::ends_sealed)).
    pub fn is_sealed(&self) -> bool {
        matches!(self.next_payload, PayloadType::SK | PayloadType::SKF)
    }

    /// True for a request.
    pub fn is_request(&self) -> bool {
        !self.flags.response()
    }

    /// True for a response.
    pub fn is_response(&self) -> bool {
        self.flags.response()
    }

    /// True for what a new initiator sends first: an IKE_SA_INIT request with message id 0 and no
    /// responder SPI.
    pub fn opens_ike_sa(&self) -> bool {
        self.exchange == ExchangeType::IKE_SA_INIT
            && self.is_request()
            && self.flags.initiator()
            && self.message_id == 0
            && self.responder_spi == 0
    }

    /// The SPI that the receiver of this message chose: what to look an IKE_SA up by.
    pub fn receiver_spi(&self) -> u64 {
        if self.flags.initiator() { self.responder_spi } else { self.initiator_spi }
    }

    /// Appends the 28 bytes as they stand, length included.
    pub fn emit(&self, w: &mut Writer<'_>) {
        w.u64(self.initiator_spi);
        w.u64(self.responder_spi);
        w.u8(self.next_payload.0);
        w.u8(self.version.0);
        w.u8(self.exchange.0);
        w.u8(self.flags.0);
        w.u32(self.message_id);
        w.u32(self.length);
    }

    /// Begins a message whose first payload is of type `first`.
    pub(super) fn emit_before(&self, first: PayloadType, w: &mut Writer<'_>) {
        Self { next_payload: first, length: 0, ..*self }.emit(w);
    }

    /// Ends the message that is all of `w`.
    pub(super) fn patch_length(w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.patch32(24, 0, "message")
    }
}
