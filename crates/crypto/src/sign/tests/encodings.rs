//! `AlgorithmIdentifier`s against RFC 7427 appendix A and RFC 8420 appendix A.

use crate::sign::{Hash, Scheme};
use crate::testing::hex;

const PSS256: Scheme = Scheme::RsaPss { hash: Hash::Sha256, salt_len: 32 };

#[test]
fn algorithms_are_encoded_as_in_the_appendix_of_the_rfc() {
    for (scheme, der) in [
        // A.1.1 to A.1.4: sha1WithRSAEncryption, sha256.., sha384.., sha512..
        (Scheme::RsaPkcs1(Hash::Sha1), "300d 0609 2a86 4886 f70d 0101 0505 00"),
        (Scheme::RsaPkcs1(Hash::Sha256), "300d 0609 2a86 4886 f70d 0101 0b05 00"),
        (Scheme::RsaPkcs1(Hash::Sha384), "300d 0609 2a86 4886 f70d 0101 0c05 00"),
        (Scheme::RsaPkcs1(Hash::Sha512), "300d 0609 2a86 4886 f70d 0101 0d05 00"),
        // A.3.1 to A.3.4: ecdsa-with-SHA1, -SHA256, -SHA384, -SHA512.
        (Scheme::Ecdsa(Hash::Sha1), "3009 0607 2a86 48ce 3d04 01"),
        (Scheme::Ecdsa(Hash::Sha256), "300a 0608 2a86 48ce 3d04 0302"),
        (Scheme::Ecdsa(Hash::Sha384), "300a 0608 2a86 48ce 3d04 0303"),
        (Scheme::Ecdsa(Hash::Sha512), "300a 0608 2a86 48ce 3d04 0304"),
        // A.4.1: RSASSA-PSS with empty parameters, which mean SHA-1 and a salt of 20 bytes.
        (Scheme::RsaPss { hash: Hash::Sha1, salt_len: 20 }, "300d 0609 2a86 4886 f70d 0101 0a30 00"),
        // RFC 8420 appendix A.
        (Scheme::Ed25519, "3005 0603 2b65 70"),
    ] {
        assert_eq!(scheme.to_der(), Some(hex(der)), "{scheme:?}");
        assert_eq!(Scheme::from_der(&hex(der)), Some(scheme), "{scheme:?}");
    }
    assert_eq!(Scheme::EcdsaFixed(Hash::Sha256).to_der(), None);
    assert_eq!(Scheme::Ecdsa(Hash::Identity).to_der(), None);
    assert_eq!(Scheme::pss(Hash::Identity), None);
}

#[test]
fn pss_with_sha2_is_read_with_and_without_what_has_its_default() {
    let short = "3041 0609 2a86 4886 f70d 0101 0a30 34a0
                 0f30 0d06 0960 8648 0165 0304 0201 0500 a11c 301a 0609 2a86 4886 f70d 0101 0830
                 0d06 0960 8648 0165 0304 0201 0500 a203 0201 20";
    // The example of A.4.3 has the trailer field, which DER leaves out.
    let long = "3046 0609 2a86 4886 f70d 0101 0a30 39a0
                0f30 0d06 0960 8648 0165 0304 0201 0500 a11c 301a 0609 2a86 4886 f70d 0101 0830
                0d06 0960 8648 0165 0304 0201 0500 a203 0201 20a3 0302 0101";
    // RFC 4055 section 2.1: the NULL of the hashes may be absent.
    let without_null = "303d 0609 2a86 4886 f70d 0101 0a30 30a0
                        0d30 0b06 0960 8648 0165 0304 0201 a11a 3018 0609 2a86 4886 f70d 0101 0830
                        0b06 0960 8648 0165 0304 0201 a203 0201 20";
    for der in [short, long, without_null] {
        assert_eq!(Scheme::from_der(&hex(der)), Some(PSS256), "{der}");
    }
    assert_eq!(PSS256.to_der(), Some(hex(short)));
    // SHA2-384 and SHA2-512 differ in the last byte of the hash and in the salt.
    for (hash, last, salt) in [(Hash::Sha384, 2, 48), (Hash::Sha512, 3, 64)] {
        let mut der = hex(short);
        (der[0x1d], der[0x3b], der[0x42]) = (last, last, salt);
        assert_eq!(Scheme::pss(hash).and_then(Scheme::to_der), Some(der.clone()));
        assert_eq!(Scheme::from_der(&der), Scheme::pss(hash));
    }
}

#[test]
fn every_algorithm_is_read_as_it_is_written() {
    for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        for salt_len in [0, 1, 20, 32, 127, 128, 222, 255, 256, 0x7fff, 0x8000, 0xffff] {
            let scheme = Scheme::RsaPss { hash, salt_len };
            let der = scheme.to_der().expect("an encoding");
            assert_eq!(Scheme::from_der(&der), Some(scheme), "{scheme:?}");
            for n in 0..der.len() {
                assert_eq!(Scheme::from_der(&der[..n]), None);
            }
            assert_eq!(Scheme::from_der(&[&der[..], &[0]].concat()), None);
        }
    }
}

#[test]
fn other_algorithms_are_not_taken_for_ours() {
    for der in [
        "",
        "3000",
        // DSA with SHA-1 (A.2.1), ecdsa-with-SHA224, Ed448.
        "3009 0607 2a86 48ce 3804 03",
        "300a 0608 2a86 48ce 3d04 0301",
        "3005 0603 2b65 71",
        // Parameters that must not be there: NULL behind Ed25519 and ecdsa-with-SHA256.
        "3007 0603 2b65 70 0500",
        "300c 0608 2a86 48ce 3d04 0302 0500",
        // PKCS#1 v1.5 without the NULL; RSASSA-PSS without any parameters.
        "300b 0609 2a86 4886 f70d 0101 0b",
        "300b 0609 2a86 4886 f70d 0101 0a",
        // Trailer field 2; a negative salt; a salt of 17 bits; fields in another order.
        "3012 0609 2a86 4886 f70d 0101 0a30 05a3 0302 0102",
        "3012 0609 2a86 4886 f70d 0101 0a30 05a2 0302 01ff",
        "3014 0609 2a86 4886 f70d 0101 0a30 07a2 0502 0301 0000",
        "3017 0609 2a86 4886 f70d 0101 0a30 0aa3 0302 0101 a203 0201 20",
        // SHA2-256 with MGF1 of SHA-1.
        "3020 0609 2a86 4886 f70d 0101 0a30 13a0 0f30 0d06 0960 8648 0165 0304 0201 0500",
    ] {
        assert_eq!(Scheme::from_der(&hex(der)), None, "{der}");
    }
}

#[test]
fn hashes_have_the_numbers_of_the_registry() {
    // RFC 7427 section 7 and RFC 8420 section 4.
    for (number, hash) in
        [(1, Hash::Sha1), (2, Hash::Sha256), (3, Hash::Sha384), (4, Hash::Sha512), (5, Hash::Identity)]
    {
        assert_eq!((hash.number(), Hash::from_number(number)), (number, Some(hash)));
    }
    for number in [0, 6, 7, 0xffff] {
        assert_eq!(Hash::from_number(number), None);
    }
}
