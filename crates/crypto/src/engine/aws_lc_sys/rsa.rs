//! RSA signatures: PKCS#1 v1.5 and PSS with MGF1 of the same hash (RFC 8017 sections 8.1, 8.2).
//!
//! The library blinds its private operations, and checks each result with the public exponent
//! before it gives it out. Not here: which sizes and exponents are taken (`sign::public`).

use std::ffi::c_uint;
use std::ptr::NonNull;

use aws_lc_sys as sys;
use ironswan_wire::secret::Secret;

use super::bn::{self, Bn};

/// A hash function that RSA signatures name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Digest {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Digest {
    fn nid(self) -> i32 {
        match self {
            Self::Sha1 => sys::NID_sha1,
            Self::Sha256 => sys::NID_sha256,
            Self::Sha384 => sys::NID_sha384,
            Self::Sha512 => sys::NID_sha512,
        }
    }

    fn md(self) -> *const sys::EVP_MD {
        // SAFETY: the functions take nothing and return a pointer to a table that is never freed.
        unsafe {
            match self {
                Self::Sha1 => sys::EVP_sha1(),
                Self::Sha256 => sys::EVP_sha256(),
                Self::Sha384 => sys::EVP_sha384(),
                Self::Sha512 => sys::EVP_sha512(),
            }
        }
    }
}

/// A public or private key. The library wipes it when it frees it.
pub(crate) struct RsaKey(NonNull<sys::RSA>);

// SAFETY: the library lets a key be used by several threads at once as long as no thread calls a
// function that changes it, and none below does; what it caches in a key has a lock of its own.
unsafe impl Send for RsaKey {}
// SAFETY: the same.
unsafe impl Sync for RsaKey {}

impl RsaKey {
    /// The public key of a modulus and an exponent in network order. `None` when the library
    /// refuses them.
    pub(crate) fn from_public(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (n, e) = (Bn::from_bytes(modulus)?, Bn::from_bytes(exponent)?);
        // SAFETY: both numbers are live; the library copies them, and we own the result.
        NonNull::new(unsafe { sys::RSA_new_public_key(n.as_ptr(), e.as_ptr()) }).map(Self)
    }

    /// The private key of an `RSAPrivateKey` in DER (RFC 8017 appendix A.1.2). `None` when its
    /// parts do not belong together, or are not in DER.
    pub(crate) fn from_private(der: &[u8]) -> Option<Self> {
        // SAFETY: reads `der` for its length; we own the result.
        NonNull::new(unsafe { sys::RSA_private_key_from_bytes(der.as_ptr(), der.len()) }).map(Self)
    }

    /// A new private key with the exponent 65,537. `None` for a length that the library does not
    /// make.
    pub(crate) fn generate(bits: usize) -> Option<Self> {
        let exponent = Bn::from_bytes(&[1, 0, 1])?;
        // SAFETY: takes nothing; we own the result.
        let key = Self(NonNull::new(unsafe { sys::RSA_new() })?);
        // SAFETY: the key is live, empty and nobody else's; a null callback is none.
        let ok = unsafe {
            sys::RSA_generate_key_ex(
                key.0.as_ptr(),
                i32::try_from(bits).ok()?,
                exponent.as_ptr(),
                std::ptr::null_mut(),
            )
        };
        (ok == 1).then_some(key)
    }

    /// The modulus and the exponent in network order, without leading zeros.
    pub(crate) fn public_parts(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        // SAFETY: the key is live, and its numbers stay its own as long.
        let [n, e] = unsafe { [sys::RSA_get0_n(self.0.as_ptr()), sys::RSA_get0_e(self.0.as_ptr())] };
        let read = |number: *const sys::BIGNUM| {
            if number.is_null() {
                return None;
            }
            // SAFETY: the number is live, see above.
            let mut out = vec![0; unsafe { sys::BN_num_bytes(number) } as usize];
            // SAFETY: the same.
            unsafe { bn::write(number, &mut out) }?;
            Some(out)
        };
        Some((read(n)?, read(e)?))
    }

    /// `RSAPrivateKey` in DER of a private key.
    pub(crate) fn private_to_der(&self) -> Option<Secret> {
        let (mut bytes, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the key is live; on success the function allocates `len` bytes for us.
        let ok = unsafe { sys::RSA_private_key_to_bytes(&raw mut bytes, &raw mut len, self.0.as_ptr()) };
        if ok != 1 || bytes.is_null() {
            return None;
        }
        // SAFETY: the call above allocated `len` bytes at `bytes`, which nobody else uses.
        Some(unsafe { super::take_secret(bytes, len) })
    }

    /// Length of the modulus and so of every signature, in bytes.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the key is live.
        unsafe { sys::RSA_size(self.0.as_ptr()) as usize }
    }

    /// True when `signature` is one of this digest by PKCS#1 v1.5.
    pub(crate) fn verify_pkcs1(&self, hash: Digest, digest: &[u8], signature: &[u8]) -> bool {
        // SAFETY: the key is live; both slices are read for their lengths. The key has a type that
        // is not const because the library caches the Montgomery form in it, under a lock.
        let ok = unsafe {
            sys::RSA_verify(
                hash.nid(),
                digest.as_ptr(),
                digest.len(),
                signature.as_ptr(),
                signature.len(),
                self.0.as_ptr(),
            )
        };
        ok == 1
    }

    /// True when `signature` is one of this digest by PSS with a salt of this many bytes.
    pub(crate) fn verify_pss(&self, hash: Digest, salt_len: u16, digest: &[u8], signature: &[u8]) -> bool {
        // SAFETY: as in `verify_pkcs1`; the tables of the hash live for ever.
        let ok = unsafe {
            sys::RSA_verify_pss_mgf1(
                self.0.as_ptr(),
                digest.as_ptr(),
                digest.len(),
                hash.md(),
                hash.md(),
                i32::from(salt_len),
                signature.as_ptr(),
                signature.len(),
            )
        };
        ok == 1
    }

    /// Signs a digest by PKCS#1 v1.5. `None` when the key is too short for it, or is public.
    pub(crate) fn sign_pkcs1(&self, hash: Digest, digest: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; self.len()];
        let mut len: c_uint = 0;
        // SAFETY: as in `verify_pkcs1`; the function writes at most `RSA_size` bytes, which `out`
        // has.
        let ok = unsafe {
            sys::RSA_sign(
                hash.nid(),
                digest.as_ptr(),
                digest.len(),
                out.as_mut_ptr(),
                &raw mut len,
                self.0.as_ptr(),
            )
        };
        (ok == 1 && len as usize == out.len()).then_some(out)
    }

    /// Signs a digest by PSS with a salt of this many random bytes. `None` when the key is too
    /// short for hash and salt, or is public.
    pub(crate) fn sign_pss(&self, hash: Digest, salt_len: u16, digest: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; self.len()];
        let mut len = 0;
        // SAFETY: as in `verify_pss`; the function writes at most `out.len()` bytes.
        let ok = unsafe {
            sys::RSA_sign_pss_mgf1(
                self.0.as_ptr(),
                &raw mut len,
                out.as_mut_ptr(),
                out.len(),
                digest.as_ptr(),
                digest.len(),
                hash.md(),
                hash.md(),
                i32::from(salt_len),
            )
        };
        (ok == 1 && len == out.len()).then_some(out)
    }
}

impl Drop for RsaKey {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards. The library overwrites each part of the
        // key before it frees it.
        unsafe { sys::RSA_free(self.0.as_ptr()) };
    }
}
