//! The targets' bodies: no libFuzzer, no nightly.

pub mod certificate;
pub mod chain;
pub mod crl;
pub mod engine_pair;
pub mod esp_inbound;
pub mod helper;
pub mod ike_message;
pub mod ike_payloads;
pub mod key_file;
pub mod ocsp;
pub mod pkcs12;
pub mod planted;
pub mod public_key;
pub mod swanctl_conf;
pub mod vici;

/// A number for how far an input came: equal for equal words.
pub(crate) fn signature(what: impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    // Fixed keys: the same in every run.
    let mut hasher = std::hash::DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
