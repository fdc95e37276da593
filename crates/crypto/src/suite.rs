//! From transform ids to algorithms: what [`crate::message`] and [`crate::batch`] have in common.

use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::secret::ct_eq;

use crate::engine::aws_lc_sys::aead::{Aead, AeadKey, NONCE_LEN, TAG_LEN};
use crate::engine::aws_lc_sys::hmac::{Hash, HmacKey, MAX_LEN};

/// Length of the salt at the end of an AEAD's keying material (RFC 4106 section 8.1, RFC 5282 section 7.1, RFC 7634
/// section 2).
pub(crate) const SALT_LEN: usize = 4;
/// Length of an AEAD's explicit IV (RFC 4106 section 3.1, RFC 5282 section 3.1, RFC 7634 section 2).
pub(crate) const AEAD_IV_LEN: usize = 8;
/// Length of an AEAD's ICV.
pub(crate) const AEAD_ICV_LEN: usize = TAG_LEN;

/// The AEAD of a transform. ChaCha20-Poly1305 negotiates no key length: 256 and 0 both name it.
pub(crate) fn aead(encr: EncrId, key_bits: u16) -> Option<Aead> {
    Some(match (encr, key_bits) {
        (EncrId::AES_GCM_16, 128) => Aead::Aes128Gcm,
        (EncrId::AES_GCM_16, 192) => Aead::Aes192Gcm,
        (EncrId::AES_GCM_16, 256) => Aead::Aes256Gcm,
        (EncrId::CHACHA20_POLY1305, 256 | 0) => Aead::ChaCha20Poly1305,
        _ => return None,
    })
}

/// The key length in bytes of AES-CBC with this many bits.
pub(crate) fn cbc_key_len(encr: EncrId, key_bits: u16) -> Option<usize> {
    (encr == EncrId::AES_CBC && matches!(key_bits, 128 | 192 | 256)).then(|| usize::from(key_bits / 8))
}

/// An AEAD key with its salt.
pub(crate) struct SaltedKey {
    key: AeadKey,
    salt: [u8; SALT_LEN],
}

impl SaltedKey {
    /// Prepares `key | salt`. `None` when the length is wrong.
    pub(crate) fn new(aead: Aead, key_and_salt: &[u8]) -> Option<Self> {
        let (key, salt) = key_and_salt.split_last_chunk::<SALT_LEN>()?;
        Some(Self { key: AeadKey::new(aead, key)?, salt: *salt })
    }

    #[inline]
    fn nonce(&self, iv: &[u8; AEAD_IV_LEN]) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..SALT_LEN].copy_from_slice(&self.salt);
        nonce[SALT_LEN..].copy_from_slice(iv);
        nonce
    }

    #[inline]
    pub(crate) fn seal(
        &self,
        aad: &[u8],
        iv: &[u8; AEAD_IV_LEN],
        text: &mut [u8],
        icv: &mut [u8; AEAD_ICV_LEN],
    ) {
        self.key.seal(&self.nonce(iv), aad, text, icv);
    }

    #[inline]
    #[must_use]
    pub(crate) fn open(
        &self,
        aad: &[u8],
        iv: &[u8; AEAD_IV_LEN],
        text: &mut [u8],
        icv: &[u8; AEAD_ICV_LEN],
    ) -> bool {
        self.key.open(&self.nonce(iv), aad, text, icv)
    }
}

/// Hash and ICV length of an integrity algorithm (RFC 4868 section 2.6, RFC 2404).
pub(crate) fn integ(id: IntegId) -> Option<(Hash, usize)> {
    Some(match id {
        IntegId::HMAC_SHA1_96 => (Hash::Sha1, 12),
        IntegId::HMAC_SHA2_256_128 => (Hash::Sha256, 16),
        IntegId::HMAC_SHA2_384_192 => (Hash::Sha384, 24),
        IntegId::HMAC_SHA2_512_256 => (Hash::Sha512, 32),
        _ => return None,
    })
}

/// An integrity key, and how much of the MAC is sent.
pub(crate) struct IntegKey {
    key: HmacKey,
    icv_len: usize,
}

impl IntegKey {
    /// Prepares a key, whose length is that of the hash (RFC 4868 section 2.1.1). `None` for other lengths.
    pub(crate) fn new(id: IntegId, key: &[u8]) -> Option<Self> {
        let (hash, icv_len) = integ(id)?;
        (key.len() == hash.output_len()).then(|| Self { key: HmacKey::new(hash, key), icv_len })
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub(crate) fn icv_len(&self) -> usize {
        self.icv_len
    }

    /// Writes the ICV of the parts. `icv` is as long as [`Self::icv_len`].
    #[inline]
    pub(crate) fn sign(&self, parts: &[&[u8]], icv: &mut [u8]) {
        let mac: [u8; MAX_LEN] = self.key.mac(parts);
        icv.copy_from_slice(&mac[..self.icv_len]);
    }

    /// True when this is the ICV of the parts, in time that does not depend on where they differ.
    #[inline]
    #[must_use]
    pub(crate) fn verify(&self, parts: &[&[u8]], icv: &[u8]) -> bool {
        let mac: [u8; MAX_LEN] = self.key.mac(parts);
        ct_eq(&mac[..self.icv_len], icv)
    }
}
