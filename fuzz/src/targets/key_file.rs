//! A file of a key, public or private, in PEM or DER.

use ironswan_config::keyfiles::{private_key, public_key};
use ironswan_crypto::sign::{self, public_to_der};
use ironswan_keying::PublicKey;

use super::signature;

/// Elements of DER, object identifiers, and lines of PEM that mean something.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00",
    b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20",
    b"\x06\x03\x2b\x65\x70",
    b"\x06\x03\x2b\x65\x71",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d",
    b"\x30\x82\x01\x00",
    b"\x30\x81\x80",
    b"\x30\x80",
    b"\xa0\x1f",
    b"\x81\x21\x00",
    b"\x05\x00",
    b"-----BEGIN PRIVATE KEY-----\n",
    b"-----END PRIVATE KEY-----\n",
    b"-----BEGIN PUBLIC KEY-----\n",
    b"-----END PUBLIC KEY-----\n",
    b"Proc-Type: 4,ENCRYPTED\n",
    b"MCowBQYDK2VwAyEA",
    b"MC4CAQAwBQYDK2VwBCIEI",
    b"==",
];

/// Reads the bytes as a public and as a private key. No bytes are both. A key that was read signs
/// and verifies, and is the same after another way through DER.
pub fn run(data: &[u8]) -> u64 {
    let (public, private) = (public_key(data), private_key(data));
    assert!(public.is_err() || private.is_err(), "both a public and a private key");
    let read = public.ok().or(private.as_ref().ok().map(|key| key.public));
    if let Some(key) = read {
        let PublicKey::Ed25519(point) = key;
        assert_eq!(public_key(&public_to_der(&point)), Ok(key));
        assert!(!sign::verify(&point, b"message", &[0; 64]), "a key for which everybody can sign");
    }
    if let Ok(key) = &private {
        let PublicKey::Ed25519(point) = key.public;
        let signed = sign::sign(&key.secret, b"message").expect("a seed of its length");
        assert!(sign::verify(&point, b"message", &signed));
    }
    let text = data.windows(11).any(|w| w == b"-----BEGIN ");
    let said = [public.err(), private.err()].map(|why| why.map(|why| why.to_string()));
    signature((said, text, data.len().checked_ilog2()))
}
