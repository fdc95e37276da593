//! Faults in the bytes of an IKEv2 message, by the notification that answers each.

use crate::iana::{NotifyType, PayloadType};
use crate::read::LenError;

/// Fault inside one payload, or in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The bytes end inside a field.
    Short(LenError),
    /// This number of bytes is left over.
    Trailing(usize),
    /// A value that the RFC forbids.
    Invalid(&'static str),
}

impl From<LenError> for Fault {
    fn from(e: LenError) -> Self {
        Self::Short(e)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short(e) => write!(f, "{e}"),
            Self::Trailing(n) => write!(f, "{n} bytes too many"),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

/// Why a message was not understood. The peer's fault, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// "Indicates the IKE message that was received was invalid because some type, length, or value
    /// was out of range" (RFC 7296 section 3.10.1, INVALID_SYNTAX).
    Syntax {
        /// The payload, or [`PayloadType::NONE`] for the header and the chain itself.
        payload: PayloadType,
        /// Offset of the payload: in the message, or in the decrypted text for a payload inside SK.
        offset: usize,
        /// Fault of the payload.
        fault: Fault,
    },
    /// An unknown payload type came with the critical bit. The type is the notification's data.
    UnsupportedCritical(PayloadType),
    /// Not version 2. "If an endpoint receives a message with a higher major version number, it
    /// MUST drop the message" (RFC 7296 section 2.5); whether to say so is the endpoint's to judge.
    MajorVersion(u8),
}

impl ParseError {
    pub(crate) fn header(fault: impl Into<Fault>) -> Self {
        Self::Syntax { payload: PayloadType::NONE, offset: 0, fault: fault.into() }
    }

    /// The notification that says this to the peer. Its data: [`ParseError::notify_data`].
    pub fn notify(&self) -> NotifyType {
        match self {
            Self::Syntax { .. } => NotifyType::INVALID_SYNTAX,
            Self::UnsupportedCritical(_) => NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
            Self::MajorVersion(_) => NotifyType::INVALID_MAJOR_VERSION,
        }
    }

    /// Notification data: the payload type for UNSUPPORTED_CRITICAL_PAYLOAD, our major version for
    /// INVALID_MAJOR_VERSION, nothing for INVALID_SYNTAX (RFC 7296 section 3.10.1).
    pub fn notify_data(&self) -> Vec<u8> {
        match self {
            Self::Syntax { .. } => Vec::new(),
            Self::UnsupportedCritical(kind) => vec![kind.0],
            Self::MajorVersion(_) => vec![2],
        }
    }
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax { payload: PayloadType::NONE, offset, fault } => {
                write!(f, "message, byte {offset}: {fault}")
            }
            Self::Syntax { payload, offset, fault } => {
                write!(f, "{payload} payload at byte {offset}: {fault}")
            }
            Self::UnsupportedCritical(kind) => write!(f, "critical payload of unknown type {}", kind.0),
            Self::MajorVersion(v) => write!(f, "IKE major version {v}"),
        }
    }
}

impl std::error::Error for ParseError {}
