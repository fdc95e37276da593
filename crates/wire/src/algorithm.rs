//! Lengths of every algorithm of the registries, in one place: keys, IVs, ICVs and blocks.
//!
//! ```text
//! keying material of a direction (RFC 7296 section 2.17):  encryption key | salt | integrity key
//! an ESP packet (RFC 4303):  SPI | sequence number | IV | text in whole blocks | ICV
//! ```
//!
//! Pure data: that a row is here does not say that any engine has the algorithm. How each is judged
//! by the RFCs is in [`crate::requirement`].

use crate::iana::{EncrId, IntegId};

/// An encryption algorithm from outside. Lengths in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncrShape {
    /// Key lengths in bits, without salt.
    pub key_bits: &'static [u16],
    /// Behind the key in the keying material: salt (AEADs) or nonce (AES-CTR).
    pub salt_len: usize,
    /// In each packet; 0 for NULL, and with implicit IVs (RFC 8750).
    pub iv_len: usize,
    /// Of the algorithm itself; 0 for those that need an integrity algorithm beside them.
    pub icv_len: usize,
    /// The text of an ESP packet with its trailer is a multiple of this: the cipher's block, at
    /// least 4 (RFC 4303 section 2.4).
    pub block_len: usize,
}

const AES: &[u16] = &[128, 192, 256];

/// The shape of an encryption algorithm. `None` for numbers that have no name in [`EncrId`].
pub fn encr(id: EncrId) -> Option<EncrShape> {
    let shape = |key_bits, salt_len, iv_len, icv_len, block_len| {
        Some(EncrShape { key_bits, salt_len, iv_len, icv_len, block_len })
    };
    match id {
        // RFC 2451 section 2.2: 168 bits with 24 of parity.
        EncrId::DES3 => shape(&[192], 0, 8, 0, 8),
        EncrId::NULL => shape(&[0], 0, 0, 0, 4),
        EncrId::AES_CBC => shape(AES, 0, 16, 0, 16),
        // RFC 3686 section 5.1: the nonce is 4 bytes.
        EncrId::AES_CTR => shape(AES, 4, 8, 0, 4),
        // RFC 4309 section 7.1: the salt is 3 bytes.
        EncrId::AES_CCM_8 => shape(AES, 3, 8, 8, 4),
        EncrId::AES_CCM_12 => shape(AES, 3, 8, 12, 4),
        EncrId::AES_CCM_16 => shape(AES, 3, 8, 16, 4),
        EncrId::AES_GCM_8 => shape(AES, 4, 8, 8, 4),
        EncrId::AES_GCM_12 => shape(AES, 4, 8, 12, 4),
        EncrId::AES_GCM_16 | EncrId::NULL_AES_GMAC => shape(AES, 4, 8, 16, 4),
        EncrId::CHACHA20_POLY1305 => shape(&[256], 4, 8, 16, 4),
        EncrId::AES_CCM_8_IIV => shape(AES, 3, 0, 8, 4),
        EncrId::AES_GCM_16_IIV => shape(AES, 4, 0, 16, 4),
        EncrId::CHACHA20_POLY1305_IIV => shape(&[256], 4, 0, 16, 4),
        _ => None,
    }
}

/// Length of an encryption algorithm's keying material in bytes: key and salt. Algorithms with a
/// single key length negotiate none, so 0 names it too. `None` for lengths that the algorithm has
/// not.
pub fn encr_keymat_len(id: EncrId, key_bits: u16) -> Option<usize> {
    let shape = encr(id)?;
    let bits = match shape.key_bits {
        [only] if key_bits == 0 => *only,
        some => *some.iter().find(|bits| **bits == key_bits)?,
    };
    Some(usize::from(bits / 8) + shape.salt_len)
}

/// An integrity algorithm from outside. Lengths in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntegShape {
    /// Of the keying material, with the salt of AES-GMAC.
    pub key_len: usize,
    /// Bytes that AH carries in front of the ICV: AES-GMAC's IV (RFC 4543 section 4), else 0.
    pub iv_len: usize,
    /// Of the ICV.
    pub icv_len: usize,
}

/// The shape of an integrity algorithm. `None` for NONE and for numbers that have no name in
/// [`IntegId`].
pub fn integ(id: IntegId) -> Option<IntegShape> {
    let shape = |key_len, iv_len, icv_len| Some(IntegShape { key_len, iv_len, icv_len });
    match id {
        IntegId::HMAC_MD5_96 => shape(16, 0, 12),
        IntegId::HMAC_SHA1_96 => shape(20, 0, 12),
        IntegId::AES_XCBC_96 | IntegId::AES_CMAC_96 => shape(16, 0, 12),
        // RFC 4868 section 2.1.1: the key is as long as the hash, the ICV half of it.
        IntegId::HMAC_SHA2_256_128 => shape(32, 0, 16),
        IntegId::HMAC_SHA2_384_192 => shape(48, 0, 24),
        IntegId::HMAC_SHA2_512_256 => shape(64, 0, 32),
        IntegId::AES_128_GMAC => shape(20, 8, 16),
        IntegId::AES_192_GMAC => shape(28, 8, 16),
        IntegId::AES_256_GMAC => shape(36, 8, 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_algorithm_has_a_shape() {
        for id in EncrId::ALL {
            let shape = encr(*id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!(shape.icv_len > 0, id.is_aead(), "{id}");
            assert_eq!(shape.key_bits.len() > 1, id.has_key_length(), "{id}");
            assert!(shape.block_len >= 4 && shape.block_len.is_power_of_two(), "{id}");
        }
        for id in IntegId::ALL {
            assert_eq!(integ(*id).is_some(), *id != IntegId::NONE, "{id}");
        }
        assert_eq!((encr(EncrId(2)), integ(IntegId(3))), (None, None));
    }

    #[test]
    fn keying_material_is_key_and_salt() {
        for (id, bits, len) in [
            (EncrId::DES3, 0, Some(24)),
            (EncrId::DES3, 192, Some(24)),
            (EncrId::DES3, 168, None),
            (EncrId::NULL, 0, Some(0)),
            (EncrId::NULL, 128, None),
            (EncrId::AES_CBC, 192, Some(24)),
            (EncrId::AES_CBC, 0, None),
            (EncrId::AES_CTR, 128, Some(20)),
            (EncrId::AES_CCM_12, 256, Some(35)),
            (EncrId::AES_GCM_8, 128, Some(20)),
            (EncrId::AES_GCM_16, 129, None),
            (EncrId::CHACHA20_POLY1305, 0, Some(36)),
            (EncrId::CHACHA20_POLY1305, 256, Some(36)),
            (EncrId::CHACHA20_POLY1305, 128, None),
            (EncrId(99), 128, None),
        ] {
            assert_eq!(encr_keymat_len(id, bits), len, "{id} {bits}");
        }
    }
}
