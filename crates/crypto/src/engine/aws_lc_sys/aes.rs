//! AES: CBC in place (RFC 3602), and the forward direction alone (single blocks, counter mode, the
//! chain of a CBC-MAC), with AES-NI or the library's constant-time fallback.

use aws_lc_sys as sys;
use zeroize::Zeroize;

/// The AES block, and the length of a CBC IV.
pub(crate) const BLOCK_LEN: usize = 16;

/// A schedule for one direction.
struct Schedule(sys::AES_KEY);

impl Schedule {
    /// Of a key of zeros, as it were: the number of rounds is one that the library's code can work
    /// with.
    fn blank() -> Self {
        Self(sys::AES_KEY { rd_key: [0; 60], rounds: 9 })
    }

    /// Expands a key in place.
    fn set(&mut self, key: &[u8], decrypt: bool) -> Option<()> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        let bits = key.len() as u32 * 8;
        // SAFETY: `key` holds `bits / 8` bytes, checked above; the schedule is written in full.
        let rc = unsafe {
            if decrypt {
                sys::AES_set_decrypt_key(key.as_ptr(), bits, &raw mut self.0)
            } else {
                sys::AES_set_encrypt_key(key.as_ptr(), bits, &raw mut self.0)
            }
        };
        (rc == 0).then_some(())
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.0.rd_key.zeroize();
    }
}

/// AES in CBC mode, both directions.
pub(crate) struct CbcKey {
    encrypt: Schedule,
    decrypt: Schedule,
}

impl CbcKey {
    /// Without a key so far.
    pub(crate) fn blank() -> Self {
        Self { encrypt: Schedule::blank(), decrypt: Schedule::blank() }
    }

    /// Expands a key of 16, 24 or 32 bytes in place. `None` for other lengths.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        self.encrypt.set(key, false)?;
        self.decrypt.set(key, true)
    }

    /// Encrypts whole blocks in place. Panics unless `text` is a multiple of the block.
    #[inline]
    pub(crate) fn encrypt(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8]) {
        cbc(&self.encrypt, iv, text, sys::AES_ENCRYPT);
    }

    /// Decrypts whole blocks in place. Panics unless `text` is a multiple of the block.
    #[inline]
    pub(crate) fn decrypt(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8]) {
        cbc(&self.decrypt, iv, text, sys::AES_DECRYPT);
    }
}

#[inline]
fn cbc(schedule: &Schedule, iv: &[u8; BLOCK_LEN], text: &mut [u8], direction: i32) {
    assert!(text.len().is_multiple_of(BLOCK_LEN), "CBC text of {} bytes", text.len());
    let mut chain = *iv;
    let text_ptr = text.as_mut_ptr();
    // SAFETY: `text` is input and output at the same address, which the function allows, and whole
    // blocks long (it would write past the end otherwise); `chain` is a 16-byte scratch that it
    // overwrites; the schedule is only read.
    unsafe {
        sys::AES_cbc_encrypt(
            text_ptr,
            text_ptr,
            text.len(),
            &raw const schedule.0,
            chain.as_mut_ptr(),
            direction,
        );
    }
}

/// How much ciphertext [`BlockKey::chain`] throws away at a time.
const SCRATCH_LEN: usize = 32 * BLOCK_LEN;

/// AES in its forward direction, for the modes that are made of it.
pub(crate) struct BlockKey(Schedule);

impl BlockKey {
    /// Without a key so far.
    pub(crate) fn blank() -> Self {
        Self(Schedule::blank())
    }

    /// Expands a key of 16, 24 or 32 bytes in place. `None` for other lengths.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        self.0.set(key, false)
    }

    /// Encrypts one block that becomes a key, or part of one: nothing of it is copied.
    pub(crate) fn derive(&self, block: &mut [u8; BLOCK_LEN]) {
        let block = block.as_mut_ptr();
        // SAFETY: one block is read and then written in place, which the function allows; the
        // schedule is only read.
        unsafe { sys::AES_encrypt(block, block, &raw const self.0.0) };
    }

    /// Encrypts one block.
    #[inline]
    pub(crate) fn encrypt(&self, block: &[u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
        let mut out = [0; BLOCK_LEN];
        // SAFETY: one block is read and one written, both exactly 16 bytes; the schedule is only
        // read.
        unsafe { sys::AES_encrypt(block.as_ptr(), out.as_mut_ptr(), &raw const self.0.0) };
        out
    }

    /// Adds the keystream to `text`: the encryption of `counter`, `counter + 1`, ... as 128-bit
    /// numbers.
    #[inline]
    pub(crate) fn counter_mode(&self, counter: &[u8; BLOCK_LEN], text: &mut [u8]) {
        let (mut counter, mut keystream, mut used) = (*counter, [0; BLOCK_LEN], 0);
        let text_ptr = text.as_mut_ptr();
        // SAFETY: `text` is input and output at the same address, which the function allows, of any
        // length; `counter` and
        // `keystream` are 16-byte scratch that it overwrites, `used` a number that it wants below
        // 16 and keeps there; the schedule is only read.
        unsafe {
            sys::AES_ctr128_encrypt(
                text_ptr,
                text_ptr,
                text.len(),
                &raw const self.0.0,
                counter.as_mut_ptr(),
                keystream.as_mut_ptr(),
                &raw mut used,
            );
        }
    }

    /// Carries a CBC-MAC's chaining value over whole blocks: each is added to it, and the sum
    /// encrypted.
    #[inline]
    pub(crate) fn chain(&self, value: &mut [u8; BLOCK_LEN], blocks: &[[u8; BLOCK_LEN]]) {
        // The library has no CBC-MAC that leaves the key alone and allocates nothing; CBC whose
        // ciphertext is not looked at is one, as fast as the processor allows.
        let mut scratch = [0; SCRATCH_LEN];
        for part in blocks.chunks(SCRATCH_LEN / BLOCK_LEN) {
            let part = part.as_flattened();
            // SAFETY: reads `part`, whole blocks, and writes as much to `scratch`, which is at
            // least as long; `value` is the 16-byte IV, replaced by the last block of the
            // ciphertext; the schedule is only read.
            unsafe {
                sys::AES_cbc_encrypt(
                    part.as_ptr(),
                    scratch.as_mut_ptr(),
                    part.len(),
                    &raw const self.0.0,
                    value.as_mut_ptr(),
                    sys::AES_ENCRYPT,
                );
            }
        }
    }
}
