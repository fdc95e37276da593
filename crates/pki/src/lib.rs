//! X.509 chains, revocation and key files. Pure: no sockets, no clock (`now` is an argument), no
//! `unsafe`, and bounded work for hostile input.
//!
//! ```text
//! peer's certificates ─▶ Certificate ─▶ chain::validate ─▶ Chain
//! CAs of the configuration ───────────────┘      │
//!                                                └─▶ ChainFault: the rule and the certificate
//! ```
//! Validation follows RFC 5280 section 6.1, with the policy graph of RFC 9618. The code is our own.
//! Libraries were weighed by the cases of NIST PKITS: rustls-webpki 0.103 disagrees in 72 of 203
//! and accepts CAs without keyCertSign. `certval` claims nearly all, but 0.2 is a release candidate
//! on top of other release candidates, and links P-256, P-384 and P-521 of its own beside those of
//! AWS-LC, CMS and CBOR. `der` refuses dates before 1970, which PKITS has. This crate agrees in 221
//! of the 224 cases that the suite has by its document: `docs/rfc/pkits.md` counts them.
//!
//! Keys and signatures are those of `ironswan_crypto::sign`; DER and distinguished names those of
//! `ironswan_wire`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `oid` | object identifiers |
//! | `time` | times of certificates |
//! | `identity` | which certificates speak for an identity of IKE |
//! | `testing` | certificates for the tests |
//! | `general_name` | names of the nine forms |
//! | `extensions` | extensions of a certificate |
//! | `certificate` | one certificate |
//! | `rules` | purpose, policies, and limits of one validation |
//! | `chain` | search for a path to a CA |
//! | `path` | validation of one path |
//! | `constraints` | name constraints |
//! | `policies` | certificate policies along a path |
//! | `fault` | reasons why a chain is refused |
//! | `revocation` | what lists and responses say about a chain, and what follows |
//! | `status` | words of revocation |
//! | `crl` | revocation lists |
//! | `by_list` | the status of one certificate by lists |
//! | `ocsp` | requests and responses of OCSP |
//! | `key_file` | files of keys, certificates and lists |
//! | `pem` | PEM |
//! | `fetch` | places to ask for a status, and which of them may be asked |
#![forbid(unsafe_code)]

mod by_list;
pub mod certificate;
pub mod chain;
mod constraints;
pub mod crl;
mod extensions;
pub mod fault;
pub mod fetch;
mod general_name;
pub mod identity;
pub mod key_file;
pub mod ocsp;
mod oid;
mod path;
pub mod pem;
mod policies;
pub mod revocation;
pub mod rules;
pub mod status;
#[cfg(test)]
mod testing;
mod time;

use ironswan_wire::{der, name};

pub use certificate::{Certificate, CertificateFault};
pub use chain::{Chain, validate, validate_alone, validate_each};
pub use crl::Crl;
pub use fault::{At, ChainFault, Rule};
pub use general_name::GeneralName;
pub use ironswan_wire::name::Name;
pub use ironswan_wire::oid::Oid;
pub use rules::{Purpose, Rules};
pub use time::Time;
