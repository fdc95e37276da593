//! The anti-replay window (RFC 4303 section 3.4.3) with extended sequence numbers (appendix A2),
//! any size.
//!
//! A ring of 64-bit words as in RFC 6479: bit `seq % 64` of word `seq / 64 % words`. The ring is
//! one word longer than the window, so that moving the top clears whole words only. The word of the
//! top is kept beside it, and goes to the ring when the top leaves it: with many SAs a packet in
//! order changes one cache line of its SA's window, not two.
//!
//! ```text
//!            top - window          top
//!   too old  |   seen or not seen  |   new: moves the window, after the ICV
//! ```

use ironswan_crypto::prefetch;

/// Why a sequence number was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// Left of the window, or zero, which is never sent.
    Old,
    /// Received before.
    Duplicate,
}

/// One SA's window.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The highest number accepted; 0 in the beginning.
    top: u64,
    /// The word of the top; its place in the ring is filled when the top leaves it.
    last: u64,
    /// Packets; 0 accepts everything.
    window: u32,
    esn: bool,
    /// A power of two of words, so that positions are masked.
    ring: Box<[u64]>,
}

impl Replay {
    /// The largest window: 1,048,576 packets, 256 KiB of memory.
    pub const MAX_WINDOW: u32 = 1 << 20;

    /// A window of this many packets, at most [`Self::MAX_WINDOW`]; 0 switches the check off.
    pub fn new(window: u32, esn: bool) -> Self {
        let window = window.min(Self::MAX_WINDOW);
        let words = if window == 0 { 1 } else { (window.div_ceil(64) as usize + 1).next_power_of_two() };
        Self { top: 0, last: 0, window, esn, ring: vec![0; words].into_boxed_slice() }
    }

    /// The highest number accepted so far.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The window's size in packets.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Moves the top forward to `top` without a packet (RFC 6311 section 5, and tests). Never moves
    /// it back.
    pub fn advance(&mut self, top: u64) {
        if top > self.top {
            self.slide(top);
        }
    }

    /// The whole sequence number of a packet that carries the low half `low`, checked against the
    /// window. The window does not move: that is for [`Self::commit`], after the ICV.
    #[inline]
    pub fn check(&self, low: u32) -> Result<u64, ReplayError> {
        let seq = self.infer(low).ok_or(ReplayError::Old)?;
        // Ask ahead for the word that `commit` will write: with many SAs it is in no cache.
        if !self.is_last(seq) {
            prefetch(&self.ring[self.word(seq)], 0..1);
        }
        self.test(seq)?;
        Ok(seq)
    }

    /// Marks an authenticated packet as received. Checks again, since the same number may come
    /// twice in one batch, or the window may have moved meanwhile.
    #[inline]
    pub fn commit(&mut self, seq: u64) -> Result<(), ReplayError> {
        self.test(seq)?;
        if seq > self.top {
            self.slide(seq);
        }
        if self.is_last(seq) {
            self.last |= 1 << (seq % 64);
        } else if self.window != 0 {
            let at = self.word(seq);
            self.ring[at] |= 1 << (seq % 64);
        }
        Ok(())
    }

    /// The whole sequence number of a packet that [`Self::check`] has refused; `None` when there is
    /// none.
    pub(crate) fn refused(&self, low: u32) -> Option<u64> {
        self.infer(low)
    }

    /// The number of a packet whose extended number is far ahead, read as one left of the window;
    /// `None` when it cannot be that.
    pub(crate) fn as_late(&self, seq: u64) -> Option<u64> {
        if !self.esn || self.window == 0 || seq.saturating_sub(self.top) <= 1 << 31 {
            return None;
        }
        seq.checked_sub(1 << 32).filter(|seq| *seq != 0 && self.test(*seq) == Err(ReplayError::Old))
    }

    #[inline]
    fn test(&self, seq: u64) -> Result<(), ReplayError> {
        if self.window == 0 {
            return Ok(());
        }
        // "The first packet sent using a given SA will contain a sequence number of 1" (RFC 4303
        // section 2.2).
        if seq == 0 {
            return Err(ReplayError::Old);
        }
        if seq > self.top {
            return Ok(());
        }
        if self.top - seq >= u64::from(self.window) {
            return Err(ReplayError::Old);
        }
        let word = if self.is_last(seq) { self.last } else { self.ring[self.word(seq)] };
        if word >> (seq % 64) & 1 != 0 {
            return Err(ReplayError::Duplicate);
        }
        Ok(())
    }

    /// True when it belongs to the word of the top.
    #[inline]
    fn is_last(&self, seq: u64) -> bool {
        seq / 64 == self.top / 64
    }

    #[inline]
    fn word(&self, seq: u64) -> usize {
        (seq / 64) as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn slide(&mut self, top: u64) {
        let (old, new) = (self.top / 64, top / 64);
        self.top = top;
        if new == old {
            return;
        }
        let mask = self.ring.len() - 1;
        self.ring[old as usize & mask] = std::mem::take(&mut self.last);
        // The word of the new top is cleared when the top leaves it. After a jump over the whole
        // ring the one just written is as old as the others.
        let fresh = (new - old).min(self.ring.len() as u64 + 1);
        for i in 1..fresh {
            self.ring[(old + i) as usize & mask] = 0;
        }
    }

    /// RFC 4303 appendix A2.2: the high half that puts `low` into, or closest in front of, the
    /// window.
    #[inline]
    fn infer(&self, low: u32) -> Option<u64> {
        if !self.esn {
            return Some(u64::from(low));
        }
        // Without a window the nearest number is meant.
        let window = if self.window == 0 { 1 << 31 } else { self.window };
        let (high, top_low) = ((self.top >> 32) as u32, self.top as u32);
        let bottom = top_low.wrapping_sub(window - 1);
        let high = if top_low >= window - 1 {
            // Case A: the window lies within one subspace.
            if low >= bottom { Some(high) } else { high.checked_add(1) }
        } else {
            // Case B: the window spans two subspaces; there is none before the first.
            if low >= bottom { high.checked_sub(1) } else { Some(high) }
        };
        high.map(|h| u64::from(h) << 32 | u64::from(low))
    }
}

#[cfg(test)]
mod tests;
