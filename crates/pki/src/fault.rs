//! Reasons why a chain is refused: a closed list, each with the certificate at which a rule failed.
//!
//! Every text in a fault is escaped and of limited length, so a fault can be written to a log as it
//! stands. Not here: what a person should do about it (the Diagnosis that is made from a fault).

use ironswan_crypto::sign::KeyFault;

use crate::certificate::{Certificate, CertificateFault, serial_shown};
use crate::status::{NoStatus, Reason};
use crate::time::Time;

/// A certificate of a chain, as a message names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Subject.
    pub subject: String,
    /// Serial number in hexadecimal digits.
    pub serial: String,
    /// Position in the chain: 0 is the peer's own certificate, 1 its issuer's, and so on.
    pub position: usize,
}

impl At {
    /// Names a certificate.
    pub(crate) fn new(certificate: &Certificate, position: usize) -> Self {
        let (subject, serial) = (certificate.subject().to_string(), serial_shown(certificate.serial()));
        Self { subject, serial, position }
    }
}

/// A limit on the work that one peer causes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// Certificates of one peer.
    Certificates,
    /// Bytes of all certificates of one peer.
    Bytes,
    /// Certificates from the peer's own to the CA's.
    Depth,
    /// Steps of the search for a path.
    Steps,
    /// Signatures that are verified.
    Signatures,
    /// Bytes of names that are compared with name constraints.
    Comparisons,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Certificates => "certificates",
            Self::Bytes => "bytes of certificates",
            Self::Depth => "certificates from the peer's to a CA's",
            Self::Steps => "steps in search of a CA",
            Self::Signatures => "verified signatures",
            Self::Comparisons => "bytes of names compared with name constraints",
        })
    }
}

/// Rule that a certificate breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The bytes are no certificate.
    Unreadable(CertificateFault),
    /// The certificate has expired.
    Expired {
        /// Last second at which it was valid.
        since: Time,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// First second at which it will be valid.
        from: Time,
    },
    /// The certificate issues another one, and is not that of a CA.
    NotCa,
    /// A CA above allows fewer CAs below itself.
    PathLength {
        /// The number of CAs that it allows.
        limit: u32,
    },
    /// `keyUsage` does not allow this use.
    KeyUsage {
        /// The use that is not allowed.
        needed: &'static str,
    },
    /// `extKeyUsage` allows no purpose that fits.
    Purpose {
        /// The purpose that was asked for.
        needed: &'static str,
    },
    /// A CA above permits only other names.
    NameNotPermitted {
        /// The name.
        name: String,
    },
    /// A CA above excludes this name.
    NameExcluded {
        /// The name.
        name: String,
    },
    /// A policy is required, and no policy is valid along the whole chain.
    NoPolicy,
    /// A CA maps from or to anyPolicy.
    MappedAnyPolicy,
    /// The key is weak, or of a kind that is not built.
    Key(KeyFault),
    /// The signature is over SHA-1.
    WeakDigest,
    /// The signature is by an algorithm that is not built, or does not fit the issuer's key.
    UnknownAlgorithm {
        /// Object identifier.
        algorithm: String,
    },
    /// The certificate has a critical extension that is not known.
    UnknownCritical {
        /// Object identifier.
        extension: String,
    },
    /// The signature is not by the issuer's key.
    Signature,
    /// No CA of the configuration, and no other certificate of the peer, has the issuer's name.
    UnknownIssuer {
        /// The issuer's name.
        issuer: String,
    },
    /// The certificate was revoked.
    Revoked {
        /// When.
        at: Time,
        /// Why, as the CA says.
        reason: Reason,
    },
    /// The status of the certificate is unknown, and it has to be known.
    NoStatus(NoStatus),
    /// A limit was reached before a chain was found.
    Limit {
        /// What is limited.
        of: Limit,
        /// The limit.
        max: usize,
    },
}

/// Why there is no valid chain from the peer's certificate to a CA of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainFault {
    /// The certificate at which the rule failed. `None` when the fault lies in all together.
    pub at: Option<At>,
    /// The rule.
    pub rule: Rule,
}

impl ChainFault {
    /// A fault of one certificate.
    pub(crate) fn new(certificate: &Certificate, position: usize, rule: Rule) -> Self {
        Self { at: Some(At::new(certificate, position)), rule }
    }

    /// A limit on the whole work.
    pub(crate) fn limit(of: Limit, max: usize) -> Self {
        Self { at: None, rule: Rule::Limit { of, max } }
    }
}

impl std::fmt::Display for ChainFault {
    /// One sentence, without its full stop.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Some(At { subject, serial, position: 0 }) => {
                write!(f, "the certificate of {subject:?} (serial {serial}) ")?;
            }
            Some(At { subject, serial, position }) => {
                write!(
                    f,
                    "the certificate of {subject:?} (serial {serial}, number {position} above the peer's) "
                )?;
            }
            None => f.write_str("the peer's chain ")?,
        }
        write!(f, "{}", self.rule)
    }
}

impl std::error::Error for ChainFault {}

impl std::fmt::Display for Rule {
    /// The part of a sentence behind its subject, the certificate.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(fault) => write!(f, "{fault}"),
            Self::Expired { since } => write!(f, "has expired: it was valid until {since}"),
            Self::NotYetValid { from } => write!(f, "is not valid before {from}"),
            Self::NotCa => f.write_str("is not that of a CA, and issues another certificate"),
            Self::PathLength { limit } => {
                write!(f, "has a CA above itself that allows {limit} CAs below itself, and there are more")
            }
            Self::KeyUsage { needed } => write!(f, "may not be used for {needed} (keyUsage)"),
            Self::Purpose { needed } => write!(f, "may not be used for {needed} (extKeyUsage)"),
            Self::NameNotPermitted { name } => {
                write!(f, "has the name {name:?}, which a CA above does not permit (nameConstraints)")
            }
            Self::NameExcluded { name } => {
                write!(f, "has the name {name:?}, which a CA above excludes (nameConstraints)")
            }
            Self::NoPolicy => {
                f.write_str("has no certificate policy that is required and valid up to the CA")
            }
            Self::MappedAnyPolicy => f.write_str("maps a policy from or to anyPolicy"),
            Self::Key(fault) => write!(f, "has a key that cannot be used: {fault}"),
            Self::WeakDigest => f.write_str("has a signature over SHA-1, which is not accepted"),
            Self::UnknownAlgorithm { algorithm } => {
                write!(
                    f,
                    "has a signature by an algorithm that is not built, or is no match for the issuer's key: {algorithm}"
                )
            }
            Self::UnknownCritical { extension } => {
                write!(f, "has a critical extension that is not known: {extension}")
            }
            Self::Signature => f.write_str("has a signature that is not by its issuer's key"),
            Self::UnknownIssuer { issuer } => {
                write!(
                    f,
                    "was issued by {issuer:?}, which is no CA of the configuration and sent no certificate"
                )
            }
            Self::Revoked { at, reason } => write!(f, "was revoked at {at} ({reason})"),
            Self::NoStatus(why) => write!(f, "has no known revocation status: {why}"),
            Self::Limit { of, max } => write!(f, "exceeds a limit: {max} {of}"),
        }
    }
}
