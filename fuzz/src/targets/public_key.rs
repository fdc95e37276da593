//! A key in DER, public or private, of any kind that signs; an `AlgorithmIdentifier`; a signature.

use ironswan_crypto::sign::{Hash, Legacy, PrivateKey, PublicKey, Scheme};

use super::signature;

/// Elements of DER, and object identifiers.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00",
    b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08",
    b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01",
    b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
    b"\x06\x05\x2b\x81\x04\x00\x22",
    b"\x06\x05\x2b\x81\x04\x00\x23",
    b"\x06\x03\x2b\x65\x70",
    b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01",
    b"\x02\x03\x01\x00\x01",
    b"\x02\x01\x00",
    b"\x02\x01\x01",
    b"\x03\x42\x00\x04",
    b"\x30\x82\x01\x22",
    b"\x30\x81\x9b",
    b"\x30\x80",
    b"\xa0\x0a",
    b"\xa1\x44",
    b"\xa2\x03\x02\x01\x20",
    b"\x05\x00",
];

const LEGACY: Legacy = Legacy { sha1: true, short_rsa: true };

/// Algorithms that the bytes are tried as a signature of.
const SCHEMES: [Scheme; 5] = [
    Scheme::RsaPkcs1(Hash::Sha256),
    Scheme::RsaPss { hash: Hash::Sha256, salt_len: 32 },
    Scheme::Ecdsa(Hash::Sha256),
    Scheme::EcdsaFixed(Hash::Sha256),
    Scheme::Ed25519,
];

/// Reads the bytes as a public key, a private key and an algorithm. No bytes are two of them. A key
/// has one encoding, and verifies nothing that nobody signed; a private key signs, and is the same
/// after another way through its file.
pub fn run(data: &[u8]) -> u64 {
    let (public, private) = (PublicKey::from_spki(data, LEGACY), PrivateKey::from_der(data, LEGACY));
    let scheme = Scheme::from_der(data);
    let read = usize::from(public.is_ok()) + usize::from(private.is_ok()) + usize::from(scheme.is_some());
    assert!(read < 2, "{public:?}, {private:?} and {scheme:?}");
    if let Some(scheme) = scheme {
        let der = scheme.to_der().expect("an algorithm that was read has an encoding");
        assert_eq!(Scheme::from_der(&der), Some(scheme));
    }
    if let Ok(key) = &public {
        assert_eq!(key.spki(), data, "a key has one encoding");
        for scheme in SCHEMES {
            let tail = &data[data.len().saturating_sub(256)..];
            for bytes in [data, tail, &[0; 64], &[0; 256]] {
                assert!(key.verify(scheme, LEGACY, b"message", bytes).is_err(), "{scheme:?}");
            }
        }
    }
    if let Ok(key) = &private {
        let hash = key.public().hashes()[0];
        let scheme = key.public().scheme(hash, false).expect("an algorithm of the key");
        // A modulus need not be a product of primes: then the library finds its own signature
        // wrong.
        if let Ok(signed) = key.sign(scheme, LEGACY, b"message") {
            assert_eq!(key.public().verify(scheme, LEGACY, b"message", &signed), Ok(()));
        }
        let file = key.to_pkcs8().expect("a file");
        assert_eq!(PrivateKey::from_der(file.expose(), LEGACY).as_ref(), Ok(key));
    }
    let kind = public.as_ref().ok().map(PublicKey::kind);
    let said = [public.as_ref().err(), private.as_ref().err()].map(|why| why.map(ToString::to_string));
    signature((kind, said, scheme.is_some(), data.len().checked_ilog2()))
}
