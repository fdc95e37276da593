//! AES-GCM (RFC 4106), one packet a call.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use ironswan_wire::secret::ct_eq;
use zeroize::Zeroize;

use super::{GcmFn, abilities, isw_gcm, with_managers};
use crate::engine::aws_lc_sys::aead::{MAX_TAG_LEN, NONCE_LEN};

/// Room for the library's `struct gcm_key_data`.
pub(crate) const DATA_LEN: usize = 1024;
/// Room for the library's `struct gcm_context_data`.
pub(crate) const CONTEXT_LEN: usize = 128;

/// `struct gcm_key_data`: round keys and powers of H.
#[repr(C, align(64))]
struct Data([u8; DATA_LEN]);

/// `struct gcm_context_data`: scratch of one call.
#[repr(C, align(64))]
struct Context(MaybeUninit<[u8; CONTEXT_LEN]>);

/// A key ready for use.
pub(crate) struct GcmKey {
    data: Data,
    seal: GcmFn,
    open: GcmFn,
    tag_len: usize,
}

impl GcmKey {
    /// For keys of 16, 24 or 32 bytes and ICVs of 8, 12 or 16, with a key of zeros so far. `None`
    /// for others, and without the library.
    pub(crate) fn blank(key_len: usize, tag_len: usize) -> Option<Self> {
        if !matches!(key_len, 16 | 24 | 32) || !matches!(tag_len, 8 | 12 | MAX_TAG_LEN) {
            return None;
        }
        abilities()?;
        let mut data = Data([0; DATA_LEN]);
        let (seal, open) = prepare(&[0; 32][..key_len], &mut data)?;
        Some(Self { data, seal, open, tag_len })
    }

    /// Prepares a key in place. `None` when it has another length than 16, 24 or 32 bytes.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        matches!(key.len(), 16 | 24 | 32).then_some(())?;
        (self.seal, self.open) = prepare(key, &mut self.data)?;
        Some(())
    }

    /// Address and length of round keys and powers in memory.
    #[cfg(test)]
    pub(crate) fn place(&self) -> crate::testing::Place {
        crate::testing::place(&self.data)
    }

    /// Runs `work` over `text` in place and writes a tag of `tag.len()` bytes.
    #[inline]
    fn run(&self, work: GcmFn, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        let mut context = Context(MaybeUninit::uninit());
        let text_ptr = text.as_mut_ptr();
        // SAFETY: the key data was written by the library and is only read; the context is scratch
        // that it initialises, at least as long as its structure; `text` is input and output at the
        // same address, which the library allows; nonce, aad and tag are live slices of the lengths
        // given (the library reads 12 bytes of nonce).
        unsafe {
            work(
                (&raw const self.data).cast::<c_void>(),
                (&raw mut context).cast(),
                text_ptr,
                text_ptr,
                text.len() as u64,
                nonce.as_ptr(),
                aad.as_ptr(),
                aad.len() as u64,
                tag.as_mut_ptr(),
                tag.len() as u64,
            );
        }
    }

    /// Encrypts `text` in place and writes the ICV. Panics unless `tag` is as long as `blank` was
    /// told.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        assert_eq!(tag.len(), self.tag_len, "an ICV of another length");
        // The function says nothing of success, and a call that came back early would leave the
        // text in clear. No arguments that could make it do so are given; should it do so, the tag
        // shows it (or chance does, once in 2^64 packets).
        tag.fill(0);
        self.run(self.seal, nonce, aad, text, tag);
        let sealed = tag.iter().any(|b| *b != 0);
        if !sealed {
            text.fill(0);
        }
        assert!(sealed, "AEAD seal of {} bytes failed", text.len());
    }

    /// Decrypts `text` in place and verifies. On `false` the text is wiped. A tag of another length
    /// than `blank` was told is wrong.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        if tag.len() != self.tag_len {
            text.fill(0);
            return false;
        }
        // The complement of what came: a call that came back early leaves nothing that could be
        // taken for it.
        let mut expected = [0; MAX_TAG_LEN];
        let expected = &mut expected[..tag.len()];
        expected.iter_mut().zip(tag).for_each(|(expected, tag)| *expected = !tag);
        self.run(self.open, nonce, aad, text, expected);
        let authentic = ct_eq(expected, tag);
        if !authentic {
            text.fill(0);
        }
        authentic
    }
}

/// Expands a key, and gives the functions for keys of its length.
fn prepare(key: &[u8], data: &mut Data) -> Option<(GcmFn, GcmFn)> {
    let (mut seal, mut open) = (None, None);
    let done = with_managers(|managers| {
        // SAFETY: `key` holds 16, 24 or 32 bytes, as both callers saw (the shim refuses others);
        // `data` has at least the size (`abilities`) and the alignment of the library's structure;
        // the functions that come back are the library's own and live as long as the program.
        unsafe {
            isw_gcm(
                managers.wide.0.as_ptr(),
                key.as_ptr(),
                key.len() as u32,
                std::ptr::from_mut(data).cast(),
                &raw mut seal,
                &raw mut open,
            )
        }
    })?;
    if done == 1 { Some((seal?, open?)) } else { None }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.data.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::count;

    /// Does as the library's functions do when they reject an argument: nothing, without an error.
    unsafe extern "C" fn returns_early(
        _: *const c_void,
        _: *mut c_void,
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: *const u8,
        _: *const u8,
        _: u64,
        _: *mut u8,
        _: u64,
    ) {
    }

    fn early(tag_len: usize) -> GcmKey {
        let mut key = GcmKey::blank(16, tag_len).expect("a processor with AES instructions");
        (key.seal, key.open) = (returns_early, returns_early);
        key
    }

    #[test]
    fn a_call_that_returns_early_opens_nothing_whatever_the_icv() {
        for tag_len in [8, 12, 16] {
            let key = early(tag_len);
            for byte in 0..=255 {
                let mut text = count(7, 40);
                assert!(!key.open(&[0; NONCE_LEN], &[1; 8], &mut text, &vec![byte; tag_len]), "{byte}");
                assert_eq!(text, [0; 40]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "AEAD seal of 40 bytes failed")]
    fn a_call_that_returns_early_seals_nothing() {
        early(16).seal(&[0; NONCE_LEN], &[1; 8], &mut count(7, 40), &mut [0xee; 16]);
    }
}
