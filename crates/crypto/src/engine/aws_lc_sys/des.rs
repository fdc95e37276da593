//! 3DES in CBC mode, in place (RFC 2451), for peers that have nothing else.
//!
//! Old and slow; by tables, so that who shares the processor's caches may learn something of the
//! key; and with a block of 64 bits: after some 2^32 of them under one key (32 GB) two are likely
//! the same, which gives away the sum of two texts. An SA should be rekeyed long before.

use aws_lc_sys as sys;
use zeroize::Zeroize;

/// The DES block, and the length of a CBC IV.
pub(crate) const BLOCK_LEN: usize = 8;
/// Three DES keys with their parity bits.
pub(crate) const KEY_LEN: usize = 24;

/// The schedules of K1, K2 and K3.
pub(crate) struct TripleDesKey([sys::DES_key_schedule; 3]);

impl TripleDesKey {
    /// Without a key so far.
    pub(crate) fn blank() -> Self {
        Self([sys::DES_key_schedule { subkeys: [[0; 2]; 16] }; 3])
    }

    /// Expands a key in place; its parity bits are not looked at. `None` for another length, and
    /// when the first two or the last two keys are the same, which makes it single DES:
    /// "Implementers MUST reject keys that exhibit this property" (RFC 2451 section 2.3).
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        let key: &[u8; KEY_LEN] = key.try_into().ok()?;
        let (keys, _) = key.as_chunks::<BLOCK_LEN>();
        let same = |a: &[u8; BLOCK_LEN], b: &[u8; BLOCK_LEN]| {
            // The lowest bit of each byte is parity. All bytes are looked at, whatever they are.
            a.iter().zip(b).fold(0, |d, (a, b)| d | (a ^ b) >> 1) == 0
        };
        if same(&keys[0], &keys[1]) || same(&keys[1], &keys[2]) {
            return None;
        }
        for (key, schedule) in keys.iter().zip(&mut self.0) {
            let mut block = sys::DES_cblock { bytes: *key };
            // SAFETY: reads the 8 bytes of `block` and writes the whole schedule; it takes any key.
            unsafe { sys::DES_set_key_unchecked(&raw const block, schedule) };
            block.bytes.zeroize();
        }
        Some(())
    }

    /// Encrypts whole blocks in place. Panics unless `text` is a multiple of the block.
    #[inline]
    pub(crate) fn encrypt(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8]) {
        self.cbc(iv, text, sys::DES_ENCRYPT);
    }

    /// Decrypts whole blocks in place. Panics unless `text` is a multiple of the block.
    #[inline]
    pub(crate) fn decrypt(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8]) {
        self.cbc(iv, text, sys::DES_DECRYPT);
    }

    #[inline]
    fn cbc(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8], direction: i32) {
        assert!(text.len().is_multiple_of(BLOCK_LEN), "CBC text of {} bytes", text.len());
        let [k1, k2, k3] = &self.0;
        let mut chain = sys::DES_cblock { bytes: *iv };
        let text_ptr = text.as_mut_ptr();
        // SAFETY: `text` is input and output at the same address, which the function allows (it
        // reads each block before it writes it), and whole blocks long; `chain` is a scratch that
        // it overwrites; the schedules are only read.
        unsafe {
            sys::DES_ede3_cbc_encrypt(text_ptr, text_ptr, text.len(), k1, k2, k3, &raw mut chain, direction);
        }
    }
}

impl Drop for TripleDesKey {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|schedule| schedule.subkeys.zeroize());
    }
}
