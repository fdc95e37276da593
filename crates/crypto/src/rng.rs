//! Random bytes from a provider, so that simulations replay (ARCHITECTURE.md, invariant 7).

use zeroize::Zeroize;

use crate::engine::{aws_lc, aws_lc_sys::stream};

/// A source of random bytes.
pub trait Rng: Send {
    /// Fills `out`. Never fails: a system without randomness cannot go on.
    fn fill(&mut self, out: &mut [u8]);

    /// A random number.
    fn u32(&mut self) -> u32 {
        let mut b = [0; 4];
        self.fill(&mut b);
        u32::from_be_bytes(b)
    }

    /// A random number.
    fn u64(&mut self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_be_bytes(b)
    }
}

impl<R: Rng + ?Sized> Rng for Box<R> {
    fn fill(&mut self, out: &mut [u8]) {
        (**self).fill(out);
    }
}

impl<R: Rng + ?Sized> Rng for &mut R {
    fn fill(&mut self, out: &mut [u8]) {
        (**self).fill(out);
    }
}

/// The generator for everything real: AWS-LC's, seeded from the system.
#[derive(Clone, Copy, Default, Debug)]
pub struct System;

impl Rng for System {
    fn fill(&mut self, out: &mut [u8]) {
        aws_lc::random(out);
    }
}

/// A deterministic generator for tests and simulations: **not secret**, since whoever knows the
/// 64-bit seed knows every byte. The ChaCha20 keystream of the seed; how the bytes are asked for
/// does not change them.
pub struct Seeded {
    key: [u8; 32],
    next: u64,
    block: [u8; stream::BLOCK_LEN],
    /// How much of `block` is spent.
    used: usize,
}

impl Seeded {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self { key, next: 0, block: [0; stream::BLOCK_LEN], used: stream::BLOCK_LEN }
    }
}

impl Rng for Seeded {
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            if self.used == self.block.len() {
                self.block = stream::keystream(&self.key, self.next);
                self.next += 1;
                self.used = 0;
            }
            let n = out.len().min(self.block.len() - self.used);
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.block[self.used..self.used + n]);
            self.used += n;
            out = later;
        }
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        self.block.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_however_they_are_asked_for() {
        let mut whole = [0; 200];
        Seeded::new(7).fill(&mut whole);
        let mut parts = [0; 200];
        let mut rng = Seeded::new(7);
        for chunk in parts.chunks_mut(23) {
            rng.fill(chunk);
        }
        assert_eq!(whole, parts);
        let mut other = [0; 200];
        Seeded::new(8).fill(&mut other);
        assert_ne!(whole, other);
        assert_ne!(whole[..64], whole[64..128], "the counter moves");
    }

    #[test]
    fn the_keystream_is_that_of_rfc_8439() {
        // RFC 8439 appendix A.1, test vector 1: key, nonce and counter zero.
        let mut out = [0; 8];
        Seeded::new(0).fill(&mut out);
        assert_eq!(out, [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }

    #[test]
    fn the_keystream_goes_on_past_32_bits_of_counter() {
        let (a, b) = (stream::keystream(&[1; 32], 5), stream::keystream(&[1; 32], 5 + (1 << 32)));
        assert_ne!(a, b);
    }

    #[test]
    fn the_system_generator_does_not_repeat() {
        assert_ne!((System.u64(), System.u64()), (System.u64(), System.u64()));
    }
}
