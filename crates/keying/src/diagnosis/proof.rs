//! Reasons of the entries about proofs by public key: a key, certificate, CA or status that is
//! missing.

use ironswan_pki::fetch::Refused;

use super::entry::{Words, say};
use super::shown::in_the_sentence;

/// The part of a proof by public key that no file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProofLack {
    /// A key or certificate of ours.
    Ours,
    /// A CA, or a certificate or key of the peer.
    Peers,
    /// The CA at the top: there are CAs, and none of them has issued its own certificate.
    Root {
        /// Subject of a CA below.
        subject: String,
        /// Name of the CA that has issued its certificate.
        issuer: String,
    },
}

impl ProofLack {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::Ours => say(
                "auth = pubkey, which is also the default, needs a certificate or public key of ours, with its \
                 private key",
                "write local { certs = FILE } or local { pubkeys = FILE }, or auth = psk",
            ),
            Self::Peers => say(
                "auth = pubkey, which is also the default, needs a CA, or the peer's certificate or public key",
                "put the CA's certificate into the folder x509ca, write remote { certs = FILE } or \
                 remote { pubkeys = FILE }, or auth = psk",
            ),
            Self::Root { subject, issuer } => say(
                format!(
                    "the CA \"{subject}\" was issued by \"{issuer}\", whose certificate is not loaded: no chain of a peer \
                     ends at a CA that is trusted"
                ),
                "put the certificate of the CA at the top, which has issued itself, into the folder x509ca",
            ),
        }
    }
}

/// Why none of our private keys fits a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyLack {
    /// No key belongs to the certificates or public keys that the connection names.
    Named,
    /// No key has the fingerprint that is our identity.
    Fingerprint,
    /// A certificate speaks for our identity, and its key is not there.
    OfCertificate {
        /// Subject of the certificate.
        subject: String,
    },
    /// No certificate with a key speaks for our identity.
    OtherNames {
        /// Subject of a certificate whose key is there.
        subject: String,
        /// Its other names.
        names: Vec<String>,
    },
}

impl KeyLack {
    pub(super) fn words(&self, local: &str) -> Words {
        let lack = format!("no private key found for '{local}'");
        let put = "put it into the folder private";
        match self {
            Self::Named => say(format!("{lack}, none belongs to a key of local.pubkeys or local.certs"), put),
            Self::Fingerprint => say(
                format!("{lack}, no key has this fingerprint"),
                "put it into the folder private, or name its public key in local.pubkeys",
            ),
            Self::OfCertificate { subject } => {
                say(format!("{lack}, the key of the certificate of \"{subject}\" is not loaded"), put)
            }
            Self::OtherNames { subject, names } => {
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                say(
                    format!(
                        "{lack}, the certificate whose key is loaded is for \"{subject}\" (other names: {names})"
                    ),
                    "let local.id be one of its names, or write local { certs = FILE }",
                )
            }
        }
    }
}

/// A status of certificates that nobody can learn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatusLack {
    /// `revocation = strict`, and for these CAs there is no list and no place of the configuration.
    OfAuthorities {
        /// Subjects of the CAs.
        subjects: Vec<String>,
    },
    /// Of the places that a certificate names, none can be asked.
    Places {
        /// Subject of the certificate.
        subject: String,
        /// The first place.
        uri: String,
        /// Reason why it is not asked.
        why: Refused,
    },
}

impl StatusLack {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::OfAuthorities { subjects } => say(
                format!(
                    "revocation = strict, and neither a list nor a place of one is loaded for certificates by {}: those that \
                     name no place themselves are refused",
                    subjects.iter().map(|subject| format!("\"{subject}\"")).collect::<Vec<_>>().join(", ")
                ),
                "put its list into the folder x509crl, or write authorities { ca { cacert = FILE ... } } with crl_uris or \
                 ocsp_uris",
            ),
            Self::Places { subject, uri, why } => say(
                format!(
                    "no place that the certificate of \"{subject}\" names for its status is asked: {uri} {why}"
                ),
                "put the list of its CA into the folder x509crl, or name a place that begins with http:// in authorities \
                 (crl_uris, ocsp_uris)",
            ),
        }
    }
}

in_the_sentence!(KeyLack, ProofLack, StatusLack);
