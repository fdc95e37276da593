//! Signatures: Ed25519 (RFC 8032), and the files that hold its keys (RFC 8410).
//!
//! A private key is its seed of 32 bytes. Not here: what is signed (RFC 7427), and PEM around the
//! bytes of a file.

use ironswan_wire::secret::Secret;

use super::der::element;
use super::fault::KeyFault;
use crate::engine::aws_lc::{ed25519_public, ed25519_sign, ed25519_verify};
use crate::wipe;

/// Length of a public key in bytes.
pub(super) const PUBLIC_LEN: usize = 32;
/// Length of the seed that is a private key, in bytes.
pub(super) const SEED_LEN: usize = 32;
/// Length of a signature in bytes.
pub(super) const SIGNATURE_LEN: usize = 64;
/// Bytes of the stack that are overwritten after work with a private key.
const SIGN_STACK: usize = 16 * 1024;

/// `AlgorithmIdentifier` of Ed25519 in DER: an object identifier without parameters (RFC 8410
/// section 3).
pub(super) const ED25519_ALGORITHM: [u8; 7] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];

/// Encodings of the points of small order, with the sign bit cleared: orders 4, 1, 8, 8, 2, and 4
/// and 1 again in encodings that are not reduced. Everybody can make a signature that such a key
/// verifies.
const SMALL_ORDER: [[u8; PUBLIC_LEN]; 7] = {
    let mut points = [[0; PUBLIC_LEN]; 7];
    points[1][0] = 1;
    points[2] = [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ];
    points[3] = [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ];
    let mut n = 4;
    while n < 7 {
        points[n] = [0xff; PUBLIC_LEN];
        points[n][0] = 0xec + n as u8 - 4;
        points[n][PUBLIC_LEN - 1] = 0x7f;
        n += 1;
    }
    points
};

/// The public key of a private key. `None` when `seed` has not [`SEED_LEN`] bytes.
pub(super) fn public(seed: &Secret) -> Option<[u8; PUBLIC_LEN]> {
    wipe::after::<SIGN_STACK, _>(|| ed25519_public(seed))
}

/// Signs a message. `None` when `seed` has not [`SEED_LEN`] bytes.
pub(super) fn sign(seed: &Secret, message: &[u8]) -> Option<Vec<u8>> {
    wipe::after::<SIGN_STACK, _>(|| ed25519_sign(seed, message))
}

/// True when `signature` is one of this message by the owner of this public key. A key of small
/// order has no owner.
pub(super) fn verify(public: &[u8; PUBLIC_LEN], message: &[u8], signature: &[u8]) -> bool {
    !is_weak(public) && ed25519_verify(public, message, signature)
}

/// True for a point of small order.
pub(super) fn is_weak(public: &[u8; PUBLIC_LEN]) -> bool {
    let mut point = *public;
    point[PUBLIC_LEN - 1] &= 0x7f;
    SMALL_ORDER.contains(&point)
}

/// Reads an unencrypted `OneAsymmetricKey` in DER, also of the older form without public key
/// (RFC 8410 section 7). Gives the seed and the public key.
///
/// # Errors
/// The bytes hold something else, or more.
pub(super) fn private_from_der(der: &[u8]) -> Result<(Secret, [u8; PUBLIC_LEN]), KeyFault> {
    let (seed, written) = read_private(der).ok_or(KeyFault::Malformed)?;
    let public = public(&seed).ok_or(KeyFault::Malformed)?;
    match written {
        Some(written) if written != public => Err(KeyFault::Mismatch),
        _ => Ok((seed, public)),
    }
}

/// The seed, and the public key if it is written beside.
fn read_private(der: &[u8]) -> Option<(Secret, Option<&[u8]>)> {
    let (info, end) = element(0x30, der)?;
    let (version, info) = element(0x02, info)?;
    let (_, info) = info.split_first_chunk().filter(|(a, _)| *a == &ED25519_ALGORITHM)?;
    let (wrapped, mut info) = element(0x04, info)?;
    let (seed, rest) = element(0x04, wrapped)?;
    if !end.is_empty() || !rest.is_empty() || !matches!(version, [0 | 1]) || seed.len() != SEED_LEN {
        return None;
    }
    // Attributes say nothing about the key.
    if let Some((_, after)) = element(0xa0, info) {
        info = after;
    }
    let mut public = None;
    if let Some((bits, after)) = element(0x81, info) {
        let [0, key @ ..] = bits else { return None };
        (public, info) = (Some(key), after);
    }
    info.is_empty().then(|| (Secret::from(seed), public))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::{Legacy, PrivateKey, PublicKey};

    const LEGACY: Legacy = Legacy { sha1: false, short_rsa: false };

    fn public_from_der(der: &[u8]) -> Result<PublicKey, KeyFault> {
        PublicKey::from_spki(der, LEGACY)
    }
    use crate::testing::hex;

    /// RFC 8032 section 7.1: seed, public key, message, signature.
    const VECTORS: [[&str; 4]; 3] = [
        [
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
             d25bf5f0595bbe24655141438e7a100b",
        ],
        [
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c\
             387b2eaeb4302aeeb00d291612bb0c00",
        ],
        [
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659\
             4a7c15e9716ed28dc027beceea1ec40a",
        ],
    ];

    #[test]
    fn signatures_are_those_of_the_rfc() {
        for [seed, key, message, signature] in VECTORS {
            let (seed, key) = (Secret::new(hex(seed)), hex(key));
            let (message, signature) = (hex(message), hex(signature));
            let public = public(&seed).unwrap();
            assert_eq!(public.as_slice(), key);
            assert_eq!(sign(&seed, &message).unwrap(), signature);
            assert!(verify(&public, &message, &signature));
            for n in 0..SIGNATURE_LEN {
                let mut wrong = signature.clone();
                wrong[n] ^= 1;
                assert!(!verify(&public, &message, &wrong), "byte {n}");
                assert!(!verify(&public, &message, &signature[..n]), "cut at {n}");
            }
            assert!(!verify(&public, &[&message[..], b"!"].concat(), &signature));
            assert!(!verify(&public, &message, &[&signature[..], &[0]].concat()));
        }
        assert!(public(&Secret::new(vec![1; 31])).is_none() && sign(&Secret::default(), b"").is_none());
    }

    #[test]
    fn a_signature_whose_second_half_is_not_reduced_is_refused() {
        // The group's order is added to S: the equation holds as before, and RFC 8032 section 5.1.7
        // has 0 <= S < L checked.
        let order = hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
        let [_, key, message, signature] = VECTORS[1];
        let mut wrong = hex(signature);
        let mut carry = 0;
        for (byte, add) in wrong[32..].iter_mut().zip(order) {
            let sum = u16::from(*byte) + u16::from(add) + carry;
            (*byte, carry) = (sum as u8, sum >> 8);
        }
        assert!(!verify(&hex(key).try_into().unwrap(), &hex(message), &wrong));
    }

    #[test]
    fn a_key_of_small_order_is_no_key() {
        // With the neutral point as key, R = [S]B holds for S = 0 and R neutral, for any message.
        let mut neutral = [0; PUBLIC_LEN];
        neutral[0] = 1;
        let forged = [&neutral[..], &[0; 32]].concat();
        let taken = ed25519_verify(&neutral, b"anything", &forged);
        assert!(taken, "the library refuses such a key itself");
        assert!(!verify(&neutral, b"anything", &forged));
        for sign in [0, 0x80] {
            for mut point in SMALL_ORDER {
                point[31] |= sign;
                assert_eq!(PublicKey::ed25519(&point), Err(KeyFault::Weak), "{point:02x?}");
            }
        }
    }

    /// RFC 8410 section 10.3: a private key in the older form, and with attributes and public key.
    const OLD: &str =
        "302e020100300506032b657004220420d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842";
    const PUBLIC: &str = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";

    fn new_form() -> Vec<u8> {
        hex(&format!(
            "3072020101300506032b657004220420d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842\
             a01f301d060a2a864886f70d01090914310f0c0d437572646c6520436861697273812100{PUBLIC}"
        ))
    }

    #[test]
    fn keys_are_read_as_the_rfc_writes_them() {
        for der in [hex(OLD), new_form()] {
            let (seed, public) = private_from_der(&der).unwrap();
            assert_eq!((seed.len(), public.to_vec()), (SEED_LEN, hex(PUBLIC)));
        }
        let der = hex(&format!("302a300506032b6570032100{PUBLIC}"));
        let public = public_from_der(&der).unwrap();
        assert_eq!((public.key_bits().to_vec(), public.spki().to_vec()), (hex(PUBLIC), der));
    }

    #[test]
    fn bytes_that_are_no_key_are_refused() {
        let public = hex(&format!("302a300506032b6570032100{PUBLIC}"));
        for der in [hex(OLD), new_form(), public.clone()] {
            for n in 0..der.len() {
                assert!(public_from_der(&der[..n]).is_err() && private_from_der(&der[..n]).is_err());
            }
            let long = [&der[..], &[0]].concat();
            assert!(public_from_der(&long).is_err() && private_from_der(&long).is_err());
        }
        assert_eq!(private_from_der(&public).unwrap_err(), KeyFault::Malformed);
        assert_eq!(public_from_der(&hex(OLD)).unwrap_err(), KeyFault::Malformed);
        let mut other = new_form();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(private_from_der(&other).unwrap_err(), KeyFault::Mismatch);
        let x25519 = hex(&OLD.replace("2b6570", "2b656e"));
        assert_eq!(private_from_der(&x25519).unwrap_err(), KeyFault::Malformed);
        assert_eq!(PrivateKey::from_der(&x25519, LEGACY).unwrap_err(), KeyFault::Algorithm("X25519"));
        // Beginnings of what `openssl pkcs8 -topk8` writes: PBES2, and with `-v1 PBE-SHA1-3DES`.
        for encrypted in ["30819b305706092a864886f70d01050d304a", "3050301c060a2a864886f70d010c0103300e"] {
            assert_eq!(PrivateKey::from_der(&hex(encrypted), LEGACY).unwrap_err(), KeyFault::Encrypted);
        }
    }
}
