//! MACs made of AES block after block: CMAC (RFC 4493, 4494) and XCBC (RFC 3566).
//!
//! ```text
//! m1 -(+)-AES-(+)-AES- ... -(+)-AES- MAC
//!             m2            mn + tweak   the last block; an incomplete one is padded 10..0
//!
//! tweak:         CMAC  L = AES(0), doubled in GF(2^128) once (complete) or twice (padded)
//!                XCBC  K2 = AES(02 02 ..) (complete) or K3 = AES(03 03 ..) (padded)
//! chain's key:   CMAC  the key
//!                XCBC  K1 = AES(01 01 ..)
//! ```

use zeroize::{Zeroize, Zeroizing};

use crate::engine::aws_lc_sys::aes::{BLOCK_LEN, BlockKey};

type Block = [u8; BLOCK_LEN];

/// The MACs here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockMac {
    Cmac,
    Xcbc,
}

/// A key ready for use.
pub(crate) struct BlockMacKey {
    chain: BlockKey,
    /// Added to the last block when it is complete.
    complete: Block,
    /// Added to the last block when it was padded.
    padded: Block,
}

impl BlockMacKey {
    /// Without a key so far.
    pub(crate) fn blank() -> Self {
        Self { chain: BlockKey::blank(), complete: [0; BLOCK_LEN], padded: [0; BLOCK_LEN] }
    }

    /// Prepares a key in place: 16 bytes for XCBC, 16, 24 or 32 for CMAC. `None` for other lengths.
    pub(crate) fn set(&mut self, mac: BlockMac, key: &[u8]) -> Option<()> {
        match mac {
            BlockMac::Cmac => {
                self.chain.set(key)?;
                self.complete = [0; BLOCK_LEN];
                self.chain.derive(&mut self.complete);
                double(&mut self.complete);
                self.padded.copy_from_slice(&self.complete);
                double(&mut self.padded);
                Some(())
            }
            BlockMac::Xcbc => {
                // RFC 3566 section 4: keys of 128 bits only.
                (key.len() == BLOCK_LEN).then_some(())?;
                let mut aes = BlockKey::blank();
                aes.set(key)?;
                let mut k1 = Zeroizing::new([1; BLOCK_LEN]);
                aes.derive(&mut k1);
                (self.complete, self.padded) = ([2; BLOCK_LEN], [3; BLOCK_LEN]);
                aes.derive(&mut self.complete);
                aes.derive(&mut self.padded);
                self.chain.set(&*k1)
            }
        }
    }

    /// The MAC of the parts one after another.
    #[inline]
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> Block {
        let mut chain = Chain::new(&self.chain);
        for part in parts {
            chain.update(part);
        }
        let Chain { mut value, mut last, filled, .. } = chain;
        let tweak = if filled == BLOCK_LEN {
            &self.complete
        } else {
            last[filled..].fill(0);
            last[filled] = 0x80;
            &self.padded
        };
        for (v, (l, t)) in value.iter_mut().zip(last.iter().zip(tweak)) {
            *v ^= l ^ t;
        }
        self.chain.encrypt(&value)
    }
}

impl Drop for BlockMacKey {
    fn drop(&mut self) {
        self.complete.zeroize();
        self.padded.zeroize();
    }
}

/// A chain that has taken everything but the last block, whole or in part. Empty only before the
/// first byte.
struct Chain<'a> {
    key: &'a BlockKey,
    value: Block,
    last: Block,
    filled: usize,
}

impl<'a> Chain<'a> {
    fn new(key: &'a BlockKey) -> Self {
        Self { key, value: [0; BLOCK_LEN], last: [0; BLOCK_LEN], filled: 0 }
    }

    #[inline]
    fn update(&mut self, mut data: &[u8]) {
        if self.filled > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK_LEN - self.filled));
            self.last[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            data = rest;
            if data.is_empty() {
                return;
            }
            self.key.chain(&mut self.value, &[self.last]);
        }
        if data.is_empty() {
            return;
        }
        // The last block stays back, complete or not.
        let whole = (data.len() - 1) / BLOCK_LEN * BLOCK_LEN;
        let (blocks, rest) = data.split_at(whole);
        self.key.chain(&mut self.value, blocks.as_chunks().0);
        self.last[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }
}

/// Times x in GF(2^128) (RFC 4493 section 2.3), without a branch on the key's bits.
fn double(block: &mut Block) {
    let value = u128::from_be_bytes(*block);
    let carry = value >> 127;
    *block = ((value << 1) ^ (carry * 0x87)).to_be_bytes();
}

#[cfg(test)]
mod tests;
