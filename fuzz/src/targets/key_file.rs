//! A file of a key, public or private, in PEM or DER.

use ironswan_config::keyfiles::{private_key, public_key};
use ironswan_crypto::sign::Legacy;

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

/// Reads the bytes as a public and as a private key. No DER is both; PEM may have a block of each.
/// A key that was read signs and verifies, and is the same after another way through DER.
pub fn run(data: &[u8]) -> u64 {
    let (public, private) = (public_key(data), private_key(data));
    let text = data.windows(11).any(|w| w == b"-----BEGIN ");
    assert!(text || public.is_err() || private.is_err(), "both a public and a private key");
    for key in public.iter().chain(private.as_ref().ok().map(|key| key.public())) {
        assert_eq!(public_key(key.spki()).as_ref(), Ok(key));
        let scheme = key.scheme(key.hashes()[0], false).expect("an algorithm of each key");
        let forged = key.verify(scheme, Legacy::default(), b"message", &[0; 64]);
        assert!(forged.is_err(), "a key for which everybody can sign");
    }
    if let Ok(key) = &private {
        let scheme = key.public().scheme(key.public().hashes()[0], false).expect("an algorithm");
        let signed = key.sign(scheme, Legacy::default(), b"message").expect("a key that signs");
        assert_eq!(key.public().verify(scheme, Legacy::default(), b"message", &signed), Ok(()));
    }
    let said = [public.err(), private.err()].map(|why| why.map(|why| why.to_string()));
    signature((said, text, data.len().checked_ilog2()))
}
