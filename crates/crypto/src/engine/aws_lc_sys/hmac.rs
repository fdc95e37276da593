//! HMAC (RFC 2104) over MD5, SHA-1 and SHA-2, with the key absorbed once.
//!
//! ```text
//! HMAC(K, m) = H(K ^ opad | H(K ^ ipad | m))
//!                `--- outer ---'  `- inner -'    both states are kept; a message copies them
//! ```
//! A message so costs its own blocks and two more compressions, instead of four, and no allocation.

use aws_lc_sys as sys;
use zeroize::Zeroize;

/// The longest output (SHA-512).
pub(crate) const MAX_LEN: usize = 64;
/// The longest input block (SHA-384, SHA-512).
const MAX_BLOCK: usize = 128;

/// The hash functions here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hash {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// Output length.
    pub(crate) fn output_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn block_len(self) -> usize {
        match self {
            Self::Md5 | Self::Sha1 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
        }
    }
}

/// A running hash.
#[derive(Clone, Copy)]
enum State {
    Md5(sys::MD5_CTX),
    Sha1(sys::SHA_CTX),
    Sha256(sys::SHA256_CTX),
    Sha384(sys::SHA512_CTX),
    Sha512(sys::SHA512_CTX),
}

impl State {
    fn new(hash: Hash) -> Self {
        // SAFETY: the contexts are arrays of integers, for which all-zero is valid; the Init
        // functions then write every field and cannot fail.
        unsafe {
            match hash {
                Hash::Md5 => {
                    let mut c: sys::MD5_CTX = std::mem::zeroed();
                    sys::MD5_Init(&raw mut c);
                    Self::Md5(c)
                }
                Hash::Sha1 => {
                    let mut c: sys::SHA_CTX = std::mem::zeroed();
                    sys::SHA1_Init(&raw mut c);
                    Self::Sha1(c)
                }
                Hash::Sha256 => {
                    let mut c: sys::SHA256_CTX = std::mem::zeroed();
                    sys::SHA256_Init(&raw mut c);
                    Self::Sha256(c)
                }
                Hash::Sha384 => {
                    let mut c: sys::SHA512_CTX = std::mem::zeroed();
                    sys::SHA384_Init(&raw mut c);
                    Self::Sha384(c)
                }
                Hash::Sha512 => {
                    let mut c: sys::SHA512_CTX = std::mem::zeroed();
                    sys::SHA512_Init(&raw mut c);
                    Self::Sha512(c)
                }
            }
        }
    }

    #[inline]
    fn update(&mut self, data: &[u8]) {
        let (p, n) = (data.as_ptr().cast(), data.len());
        // SAFETY: the context was initialised by `new`; `data` is read only, for its length.
        unsafe {
            match self {
                Self::Md5(c) => sys::MD5_Update(c, p, n),
                Self::Sha1(c) => sys::SHA1_Update(c, p, n),
                Self::Sha256(c) => sys::SHA256_Update(c, p, n),
                Self::Sha384(c) => sys::SHA384_Update(c, p, n),
                Self::Sha512(c) => sys::SHA512_Update(c, p, n),
            }
        };
    }

    /// Writes the digest to the front of `out`.
    #[inline]
    fn finish(&mut self, out: &mut [u8; MAX_LEN]) {
        let p = out.as_mut_ptr();
        // SAFETY: the context was initialised by `new`; each function writes its digest length, at
        // most MAX_LEN bytes.
        let done = unsafe {
            match self {
                Self::Md5(c) => sys::MD5_Final(p, c),
                Self::Sha1(c) => sys::SHA1_Final(p, c),
                Self::Sha256(c) => sys::SHA256_Final(p, c),
                Self::Sha384(c) => sys::SHA384_Final(p, c),
                Self::Sha512(c) => sys::SHA512_Final(p, c),
            }
        };
        // Says 1 of every context of ours. What it had not written would be an ICV that anybody
        // knows.
        assert_eq!(done, 1, "a hash failed");
    }

    fn wipe(&mut self) {
        match self {
            Self::Md5(c) => {
                c.h.zeroize();
                c.data.zeroize();
            }
            Self::Sha1(c) => {
                c.h.zeroize();
                c.data.zeroize();
            }
            Self::Sha256(c) => {
                c.h.zeroize();
                c.data.zeroize();
            }
            Self::Sha384(c) | Self::Sha512(c) => {
                c.h.zeroize();
                c.p.zeroize();
            }
        }
    }
}

/// A key ready for use.
pub(crate) struct HmacKey {
    inner: State,
    outer: State,
    hash: Hash,
}

impl HmacKey {
    /// Without a key so far.
    pub(crate) fn blank(hash: Hash) -> Self {
        Self { inner: State::new(hash), outer: State::new(hash), hash }
    }

    /// Absorbs a key of any length (longer than a block: hashed first, RFC 2104 section 2). Once.
    pub(crate) fn set(&mut self, key: &[u8]) {
        let hash = self.hash;
        let mut block = [0u8; MAX_BLOCK];
        if key.len() > hash.block_len() {
            let mut state = State::new(hash);
            state.update(key);
            let mut digest = [0; MAX_LEN];
            state.finish(&mut digest);
            block[..hash.output_len()].copy_from_slice(&digest[..hash.output_len()]);
            digest.zeroize();
            state.wipe();
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let pad = &mut block[..hash.block_len()];
        pad.iter_mut().for_each(|b| *b ^= 0x36);
        self.inner.update(pad);
        pad.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
        self.outer.update(pad);
        block.zeroize();
    }

    /// Addresses and lengths of the two states in memory.
    #[cfg(test)]
    pub(crate) fn places(&self) -> [crate::testing::Place; 2] {
        use crate::testing::place;

        [&self.inner, &self.outer].map(|state| match state {
            State::Md5(c) => place(&c.h),
            State::Sha1(c) => place(&c.h),
            State::Sha256(c) => place(&c.h),
            State::Sha384(c) | State::Sha512(c) => place(&c.h),
        })
    }

    /// The MAC of the parts one after another; its first [`Hash::output_len`] bytes count, the rest
    /// is zero.
    #[inline]
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAX_LEN] {
        let mut digest = [0; MAX_LEN];
        self.mac_into(parts, &mut digest);
        digest
    }

    /// The same in place, for a MAC that is a secret.
    #[inline]
    pub(crate) fn mac_into(&self, parts: &[&[u8]], digest: &mut [u8; MAX_LEN]) {
        // The copies hold nothing of the key when this returns: every compression overwrites the
        // chaining value.
        let mut state = self.inner;
        for part in parts {
            state.update(part);
        }
        state.finish(digest);
        let mut state = self.outer;
        state.update(&digest[..self.hash.output_len()]);
        state.finish(digest);
    }
}

impl Drop for HmacKey {
    fn drop(&mut self) {
        self.inner.wipe();
        self.outer.wipe();
    }
}
