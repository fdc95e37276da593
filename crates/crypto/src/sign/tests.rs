//! Tests of keys and signatures.

use std::sync::LazyLock;

use super::*;

mod encodings;
mod hostile;
mod keys;
mod vectors;
mod wycheproof;

/// No weak algorithm.
const STRICT: Legacy = Legacy { sha1: false, short_rsa: false };
/// SHA-1 and short keys.
const WEAK: Legacy = Legacy { sha1: true, short_rsa: true };

/// A key of RSA with 2,048 bits, made once: that takes long.
static RSA: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::generate(KeyKind::Rsa(2048)).expect("a new key"));

/// One key of each kind.
fn one_of_each() -> Vec<PrivateKey> {
    let kinds = Curve::ALL.map(KeyKind::Ecdsa).into_iter().chain([KeyKind::Ed25519]);
    let others = kinds.map(|kind| PrivateKey::generate(kind).expect("a new key"));
    std::iter::once(RSA.clone()).chain(others).collect()
}

/// Every algorithm that a key can sign by.
fn schemes(key: &PublicKey) -> Vec<Scheme> {
    let all = Hash::ALL.into_iter().flat_map(|hash| [(hash, false), (hash, true)]);
    let mut schemes: Vec<_> = all.filter_map(|(hash, pss)| key.scheme(hash, pss)).collect();
    if let KeyKind::Ecdsa(_) = key.kind() {
        let sha = [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512];
        schemes.extend(sha.map(Scheme::EcdsaFixed));
    }
    schemes.dedup();
    schemes
}
