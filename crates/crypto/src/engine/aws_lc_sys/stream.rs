//! The ChaCha20 keystream (RFC 8439 section 2.4), for the seeded generator.

use aws_lc_sys as sys;

/// Length of a keystream block.
pub(crate) const BLOCK_LEN: usize = 64;

/// The keystream block number `counter` of `key`. The counter's upper half goes into the nonce, so
/// it never wraps.
pub(crate) fn keystream(key: &[u8; 32], counter: u64) -> [u8; BLOCK_LEN] {
    let mut block = [0; BLOCK_LEN];
    let mut nonce = [0; 12];
    nonce[4..8].copy_from_slice(&((counter >> 32) as u32).to_le_bytes());
    let p = block.as_mut_ptr();
    // SAFETY: in and out are the same 64 bytes, which is allowed; key and nonce have the 32 and 12
    // bytes it reads.
    unsafe { sys::CRYPTO_chacha_20(p, p, BLOCK_LEN, key.as_ptr(), nonce.as_ptr(), counter as u32) };
    block
}
