//! Words of revocation: the status of a certificate, and why nobody knows it.

use crate::fault::ChainFault;
use crate::time::Time;

/// Why a certificate was revoked (`CRLReason`, RFC 5280 section 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reason(pub u8);

impl Reason {
    /// No reason is said.
    pub const NONE: Self = Self(0);
    /// The certificate may become valid again.
    pub(crate) const ON_HOLD: Self = Self(6);
    /// The certificate is valid again: an entry in a list of differences.
    pub(crate) const REMOVED: Self = Self(8);
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            1 => "the key was compromised",
            2 => "the key of the CA was compromised",
            3 => "the affiliation changed",
            4 => "superseded",
            5 => "no longer used",
            6 => "on hold",
            8 => "removed from the list",
            9 => "a privilege was withdrawn",
            10 => "the key of the attribute authority was compromised",
            _ => "without a reason",
        })
    }
}

/// Status of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The certificate was not revoked.
    Good {
        /// Last second at which this is known.
        until: Time,
    },
    /// The certificate was revoked.
    Revoked {
        /// When.
        at: Time,
        /// Why.
        reason: Reason,
    },
}

/// Why a list or a response says nothing about a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoStatus {
    /// There is no list and no response.
    Nothing,
    /// The list or response is malformed.
    Unreadable,
    /// The response is about another certificate.
    OtherCertificate,
    /// The response is not an answer to this request: its nonce differs.
    OtherNonce,
    /// The list is of another issuer, or does not cover this certificate.
    OtherScope,
    /// The lists do not cover all reasons.
    SomeReasons,
    /// A critical extension is not known.
    UnknownCritical,
    /// The list or response is from the future.
    NotYetValid {
        /// Time of issue.
        from: Time,
    },
    /// A newer list or response should exist.
    Old {
        /// Time at which it was to be issued.
        since: Time,
    },
    /// The signature is wrong, or by an algorithm that is not accepted.
    Signature,
    /// Nobody with the name of the signer has a certificate.
    Responder,
    /// The signer's certificate is not valid for this.
    Signer(Box<ChainFault>),
    /// The responder says that it does not know the certificate.
    SaidUnknown,
}

impl std::fmt::Display for NoStatus {
    /// A sentence without its full stop.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("there is no CRL and no response of OCSP"),
            Self::Unreadable => f.write_str("the answer is malformed"),
            Self::OtherCertificate => f.write_str("the response of OCSP is about another certificate"),
            Self::OtherNonce => f.write_str("the response of OCSP answers another request"),
            Self::OtherScope => f.write_str("the CRL does not cover this certificate"),
            Self::SomeReasons => f.write_str("the CRLs do not cover all reasons"),
            Self::UnknownCritical => f.write_str("the answer has a critical extension that is not known"),
            Self::NotYetValid { from } => write!(f, "the answer is not valid before {from}"),
            Self::Old { since } => write!(f, "the answer is too old: the next one was due by {since}"),
            Self::Signature => f.write_str("the signature of the answer is wrong or not accepted"),
            Self::Responder => f.write_str("the signer of the answer has no certificate"),
            Self::Signer(fault) => write!(f, "the signer of the answer cannot be trusted: {fault}"),
            Self::SaidUnknown => f.write_str("the responder does not know the certificate"),
        }
    }
}
