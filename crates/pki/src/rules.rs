//! Rules for one validation: purpose, policies, weak algorithms, and limits of the work.

use ironswan_crypto::sign::Legacy;

use crate::extensions::{CRL_SIGN, DIGITAL_SIGNATURE, NON_REPUDIATION};
use crate::oid::{self, Oid};

/// Use of the key in the first certificate of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Purpose {
    /// AUTH of IKE (RFC 4945 section 5.1.3).
    #[default]
    Ike,
    /// Signs CRLs.
    Crl,
    /// Signs responses of OCSP for the CA that issued the certificate.
    Ocsp,
    /// Any use: RFC 5280 alone.
    Any,
}

impl Purpose {
    /// Bits of `keyUsage`, one of which has to be set; and their name.
    pub(crate) fn key_usage(self) -> Option<(u16, &'static str)> {
        match self {
            // "If a KeyUsage extension is present [...] at least one of digitalSignature or
            // nonRepudiation" (RFC 4945 section 5.1.3.2).
            Self::Ike => Some((DIGITAL_SIGNATURE | NON_REPUDIATION, "signatures of IKE")),
            Self::Crl => Some((CRL_SIGN, "signatures of CRLs")),
            Self::Ocsp => Some((DIGITAL_SIGNATURE | NON_REPUDIATION, "signatures of OCSP")),
            Self::Any => None,
        }
    }

    /// True when `extKeyUsage` allows this purpose.
    pub(crate) fn allowed(self, purpose: &[u8]) -> bool {
        match self {
            Self::Ike => match purpose {
                oid::ANY_PURPOSE | oid::IKE_INTERMEDIATE => true,
                // serverAuth, clientAuth, the three of old IPsec, and ipsecIKE (RFC 4945 section
                // 5.1.3.12). Gateways have the first two because people have no other template.
                [front @ .., last] => front == oid::PURPOSES && matches!(last, 1 | 2 | 5 | 6 | 7 | 17),
                [] => false,
            },
            Self::Ocsp => purpose == oid::OCSP_SIGNING,
            Self::Crl | Self::Any => true,
        }
    }

    /// The purpose as a message names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ike => "IKE",
            Self::Crl => "CRLs",
            Self::Ocsp => "OCSP",
            Self::Any => "anything",
        }
    }
}

/// Certificate policies that are asked for: the inputs of RFC 5280 section 6.1.1 (c) and (e) to
/// (g).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policies {
    /// Acceptable policies; empty for any.
    pub acceptable: Vec<Oid>,
    /// One of them has to be valid along the whole chain.
    pub required: bool,
    /// No policy may be mapped to another one.
    pub inhibit_mapping: bool,
    /// anyPolicy stands for no policy.
    pub inhibit_any: bool,
}

/// Limits of the work for one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Certificates beside the peer's own one.
    pub certificates: usize,
    /// Bytes of all certificates of the peer.
    pub bytes: usize,
    /// Certificates from the peer's own to the CA's, both included.
    pub depth: usize,
    /// Certificates that the search tries to set above another one.
    pub steps: usize,
    /// Signatures that are verified.
    pub signatures: usize,
    /// Bytes of names that are compared with name constraints.
    pub comparisons: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            certificates: 100,
            bytes: 512 << 10,
            depth: 10,
            steps: 2_000,
            signatures: 32,
            comparisons: 4 << 20,
        }
    }
}

/// Rules for one validation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Use of the key.
    pub purpose: Purpose,
    /// Certificate policies.
    pub policies: Policies,
    /// Weak algorithms that somebody asked for by name: SHA-1, and RSA below 2,048 bits.
    pub legacy: Legacy,
    /// Limits of the work.
    pub limits: Limits,
}

impl Rules {
    /// Rules for the certificate of somebody who signs CRLs or responses, where `self` are the
    /// rules for the certificate whose status is asked for.
    #[must_use]
    pub(crate) fn for_signer(&self, purpose: Purpose) -> Self {
        Self { purpose, policies: Policies::default(), ..self.clone() }
    }
}
