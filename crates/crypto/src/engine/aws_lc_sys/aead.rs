//! AES-GCM (RFC 4106, 5282) and ChaCha20-Poly1305 (RFC 7634) by `EVP_AEAD_CTX_seal_scatter` and
//! `_open_gather`.
//!
//! The context holds the expanded AES key and the powers of H, inline: preparing costs once per SA,
//! a packet allocates nothing and touches one contiguous block of memory.

use aws_lc_sys as sys;

/// Length of nonce: salt and explicit IV.
pub(crate) const NONCE_LEN: usize = 12;
/// The longest ICV. GCM's may be shorter (RFC 4106 section 6: 8, 12 or 16 bytes), which is a
/// property of the key.
pub(crate) const MAX_TAG_LEN: usize = 16;

/// The algorithms here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aead {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Aead {
    /// Length of the key, without salt.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes192Gcm => 24,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// A key ready for use.
pub(crate) struct AeadKey {
    ctx: sys::EVP_AEAD_CTX,
}

// SAFETY: an EVP_AEAD_CTX of these algorithms is plain data after initialisation (e_aes.c: key
// schedule, H powers, function pointers; e_chacha20poly1305.c: the key). Seal and open take it as
// const and write nothing to it, as the header says: "may be called concurrently with itself or any
// other seal/open function on the same EVP_AEAD_CTX".
unsafe impl Send for AeadKey {}
// SAFETY: see above.
unsafe impl Sync for AeadKey {}

impl AeadKey {
    /// Without a key so far: it seals and opens nothing.
    pub(crate) fn blank() -> Self {
        // SAFETY: all-zero is the state that EVP_AEAD_CTX_zero makes: null pointers and bytes,
        // valid for every field.
        Self { ctx: unsafe { std::mem::zeroed() } }
    }

    /// Prepares a key in place, once. `None` when its length is wrong, or the ICV's is none of the
    /// RFCs'.
    pub(crate) fn set(&mut self, aead: Aead, key: &[u8], tag_len: usize) -> Option<()> {
        let tag_fits = match aead {
            Aead::ChaCha20Poly1305 => tag_len == MAX_TAG_LEN,
            _ => matches!(tag_len, 8 | 12 | MAX_TAG_LEN),
        };
        if key.len() != aead.key_len() || !tag_fits || !self.ctx.aead.is_null() {
            return None;
        }
        // SAFETY: these functions take nothing and return a pointer to a static table.
        let evp = unsafe {
            match aead {
                Aead::Aes128Gcm => sys::EVP_aead_aes_128_gcm(),
                Aead::Aes192Gcm => sys::EVP_aead_aes_192_gcm(),
                Aead::Aes256Gcm => sys::EVP_aead_aes_256_gcm(),
                Aead::ChaCha20Poly1305 => sys::EVP_aead_chacha20_poly1305(),
            }
        };
        // SAFETY: `ctx` is zeroed, as the last condition above says, `evp` is static, `key` is
        // valid for its length, no engine (null is allowed).
        let ok = unsafe {
            sys::EVP_AEAD_CTX_init(
                &raw mut self.ctx,
                evp,
                key.as_ptr(),
                key.len(),
                tag_len,
                std::ptr::null_mut(),
            )
        };
        // The context might be moved from here on, since these algorithms keep no pointer into
        // themselves; but what is moved leaves a copy.
        (ok == 1).then_some(())
    }

    /// Encrypts `text` in place and writes the ICV. Panics unless `tag` is as long as `set` was
    /// told.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        let mut tag_len = 0;
        let text_ptr = text.as_mut_ptr();
        assert!(!self.ctx.aead.is_null(), "a key that was not set");
        // SAFETY: `ctx` was initialised by `set`: it names an algorithm. Pointers and lengths come
        // from live slices; `text` is both input and output at the same address, which is allowed;
        // `tag` cannot overlap it, being another exclusive borrow.
        let ok = unsafe {
            sys::EVP_AEAD_CTX_seal_scatter(
                &raw const self.ctx,
                text_ptr,
                tag.as_mut_ptr(),
                &raw mut tag_len,
                tag.len(),
                nonce.as_ptr(),
                NONCE_LEN,
                text_ptr,
                text.len(),
                std::ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        // Fails only above 2^36 - 32 bytes (GCM) or 2^38 - 64 (ChaCha20), which no packet reaches.
        // The library has wiped `text` then, so nothing could leak, but going on would send
        // garbage.
        assert!(ok == 1 && tag_len == tag.len(), "AEAD seal of {} bytes failed", text.len());
    }

    /// Verifies and decrypts `text` in place. On `false` the text is wiped. A tag of another length
    /// than `set` was told is wrong.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        let text_ptr = text.as_mut_ptr();
        assert!(!self.ctx.aead.is_null(), "a key that was not set");
        // SAFETY: as in `seal`; `tag` is only read.
        let ok = unsafe {
            sys::EVP_AEAD_CTX_open_gather(
                &raw const self.ctx,
                text_ptr,
                nonce.as_ptr(),
                NONCE_LEN,
                text_ptr,
                text.len(),
                tag.as_ptr(),
                tag.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        ok == 1
    }
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        // SAFETY: initialised by `set` or still zero (cleanup of a zero context does nothing); not
        // used afterwards.
        unsafe { sys::EVP_AEAD_CTX_cleanup(&raw mut self.ctx) };
        // SAFETY: overwrites exactly the memory of `ctx`, which needs no further drop. (cleanup
        // leaves GCM keys there.)
        unsafe { sys::OPENSSL_cleanse((&raw mut self.ctx).cast(), size_of::<sys::EVP_AEAD_CTX>()) };
    }
}
