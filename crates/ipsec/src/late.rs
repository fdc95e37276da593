//! Packets that the replay check refuses: how far behind the window they were, and the window that
//! would have kept them.
//!
//! ```text
//!   seq                left edge of the window      top
//!    |-------- behind -------|------- window --------|
//!    |------------------- needed --------------------|
//! ```
//! Nobody but the peer can fill the histograms, because only packets with a right ICV count in
//! them. The check refuses a packet before its ICV is looked at, so a few of those that it refuses
//! are copied and opened all the same, at most [`MAX_OPENED`] of a batch: enough to count every
//! packet of a path that reorders, and nothing that a flood could use, since packets with new
//! numbers make more work. All others are counted as not verified. A packet of the peer that
//! somebody has recorded and sends again is authentic, and counts.
//!
//! With extended sequence numbers a packet left of the window is taken for one of the next
//! subspace (RFC 4303 appendix A2.2), and its ICV is wrong: it is dropped as such. After such a
//! drop, the next [`SUSPICIOUS`] batches open a few packets a second time, with the number that
//! they have if they are late. So no packet pays for this where nothing is dropped.

use ironswan_crypto::batch::Job;

use crate::replay::Replay;

/// Number of buckets: powers of two to the largest window, 2^20, and one for all beyond.
pub const BUCKETS: usize = 22;
/// Packets of a batch that are opened although the replay check has refused them.
pub(crate) const MAX_OPENED: usize = 8;

/// Batches after a drop of a packet that may have been late with an extended sequence number.
pub(crate) const SUSPICIOUS: u16 = 1_024;

/// Counts by powers of two: the first bucket is for 1, the next for 2, for 3 and 4, for 5 to 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// Counts a number; 0 counts as 1.
    pub fn add(&mut self, n: u64) {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        self.0[(bits as usize).min(BUCKETS - 1)] += 1;
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, n)| *sum += n);
    }

    /// All counts together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts of numbers that are certainly at most `most`.
    pub fn up_to(&self, most: u64) -> u64 {
        self.buckets().take_while(|(bound, _)| bound.is_some_and(|bound| bound <= most)).map(|(_, n)| n).sum()
    }

    /// Each bucket: the largest number that it counts, `None` for the last, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        self.0.iter().enumerate().map(|(i, n)| ((i < BUCKETS - 1).then(|| 1 << i), *n))
    }
}

/// Drops of the replay check, of all SAs since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayDrops {
    /// Authentic packets, by the distance between the window's left edge and their number.
    pub late: Histogram,
    /// Authentic packets whose number had been received before.
    pub duplicates: u64,
    /// Packets with a wrong ICV.
    pub forged: u64,
    /// Packets left of the window that nobody has opened.
    pub late_unverified: u64,
    /// Packets with a number that had been received before, which nobody has opened.
    pub duplicates_unverified: u64,
}

/// Authentic packets that the replay check of one policy's SAs has dropped, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowNeeds {
    /// The window of the SA that is there, in packets, the widest of several; when all have gone,
    /// of the one that dropped a packet last.
    pub window: u32,
    /// Late packets, by the window that would have kept them.
    pub needed: Histogram,
    /// Packets whose number had been received before: no window keeps them.
    pub duplicates: u64,
}

impl WindowNeeds {
    /// Late packets that a window of this size would have kept, of all late packets.
    pub fn kept_by(&self, window: u32) -> (u64, u64) {
        (self.needed.up_to(window.into()), self.needed.total())
    }

    /// The least window, a power of two up to `most`, that would have kept nearly as many as one of
    /// `most` (98 %); `None` when that had kept less than half of the late packets.
    pub fn advice(&self, most: u32) -> Option<u32> {
        let (best, total) = self.kept_by(most);
        if best == 0 || best < total.div_ceil(2) {
            return None;
        }
        let enough = |window: &u32| self.kept_by(*window).0 * 100 >= best * 98;
        (0..u32::BITS).map(|bit| 1 << bit).take_while(|window| *window <= most).find(enough)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.window = other.window;
        self.needed.merge(&other.needed);
        self.duplicates += other.duplicates;
    }

    pub(crate) fn count(&mut self, window: u32, refused: Refused) {
        self.window = window;
        match refused {
            Refused::Late { needed, .. } => self.needed.add(needed),
            Refused::Duplicate => self.duplicates += 1,
        }
    }
}

/// The place of a refused number in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Left of the window.
    Late {
        /// Distance to the left edge, 1 or more.
        behind: u64,
        /// The least window that contains it.
        needed: u64,
    },
    /// Received before.
    Duplicate,
}

impl Refused {
    /// The place of a number up to the top; `None` for others, and for 0, which nobody sends.
    pub(crate) fn of(window: &Replay, seq: u64) -> Option<Self> {
        if seq == 0 {
            return None;
        }
        let needed = window.top().checked_sub(seq)? + 1;
        Some(match needed.checked_sub(window.window().into()) {
            Some(behind) if behind > 0 => Self::Late { behind, needed },
            _ => Self::Duplicate,
        })
    }
}

/// The packets of a batch that the replay check has refused and that are opened all the same.
#[derive(Default)]
pub(crate) struct LateJobs {
    /// One for each packet; places are in `copies`.
    pub(crate) jobs: Vec<Job>,
    pub(crate) copies: Vec<u8>,
    refused: Vec<Refused>,
    late_unverified: u64,
    duplicates_unverified: u64,
    /// Batches in which packets with extended sequence numbers far ahead are opened a second time.
    pub(crate) suspicion: u16,
}

impl LateJobs {
    /// True when there is nothing to count.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.late_unverified == 0 && self.duplicates_unverified == 0
    }

    /// Takes a refused packet with this number, of the SA with this index in the batch; `esp`: it
    /// can be opened.
    #[cold]
    pub(crate) fn push(&mut self, window: &Replay, seq: u64, sa: usize, packet: &[u8], esp: bool) {
        let Some(refused) = Refused::of(window, seq) else {
            self.late_unverified += 1;
            return;
        };
        let (Ok(key), true, true) = (u16::try_from(sa), self.jobs.len() < MAX_OPENED, esp) else {
            match refused {
                Refused::Late { .. } => self.late_unverified += 1,
                Refused::Duplicate => self.duplicates_unverified += 1,
            }
            return;
        };
        let start = self.copies.len() as u32;
        self.copies.extend_from_slice(packet);
        self.jobs.push(Job { start, len: packet.len() as u32, seq, key, ok: false });
        self.refused.push(refused);
    }

    /// True when there is room for another packet to open.
    pub(crate) fn has_room(&self) -> bool {
        self.jobs.len() < MAX_OPENED
    }

    /// The opened packets, and where they stood.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (&Job, Refused)> + '_ {
        self.jobs.iter().zip(self.refused.iter().copied())
    }

    /// Adds those that nobody has opened, and resets their counts.
    pub(crate) fn take_unverified(&mut self, drops: &mut ReplayDrops) {
        drops.late_unverified += std::mem::take(&mut self.late_unverified);
        drops.duplicates_unverified += std::mem::take(&mut self.duplicates_unverified);
    }

    /// Forgets the packets.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
        self.copies.clear();
        self.refused.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_up_to_a_power_of_two() {
        let mut h = Histogram::default();
        for n in [1, 2, 3, 4, 5, 8, 9, 1 << 20, (1 << 20) + 1, u64::MAX] {
            h.add(n);
        }
        let counts: Vec<(Option<u64>, u64)> = h.buckets().filter(|(_, n)| *n != 0).collect();
        assert_eq!(
            counts,
            [
                (Some(1), 1),
                (Some(2), 1),
                (Some(4), 2),
                (Some(8), 2),
                (Some(16), 1),
                (Some(1 << 20), 1),
                (None, 2)
            ]
        );
        assert_eq!(h.total(), 10);
        assert_eq!([h.up_to(0), h.up_to(1), h.up_to(7), h.up_to(8), h.up_to(u64::MAX)], [0, 1, 4, 6, 8]);
    }

    #[test]
    fn the_window_that_would_have_kept_a_packet_reaches_from_it_to_the_top() {
        let mut window = Replay::new(64, false);
        window.advance(1_000);
        assert_eq!(Refused::of(&window, 0), None);
        assert_eq!(Refused::of(&window, 1_001), None);
        // 937 to 1000 are in the window.
        assert_eq!(Refused::of(&window, 937), Some(Refused::Duplicate));
        assert_eq!(Refused::of(&window, 936), Some(Refused::Late { behind: 1, needed: 65 }));
        let mut wider = Replay::new(65, false);
        wider.advance(1_000);
        assert_eq!(wider.check(936), Ok(936));
        let mut needs = WindowNeeds::default();
        for seq in [936, 900, 800, 937] {
            needs.count(64, Refused::of(&window, seq).unwrap());
        }
        assert_eq!((needs.window, needs.duplicates), (64, 1));
        assert_eq!([needs.kept_by(64), needs.kept_by(128), needs.kept_by(256)], [(0, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn advice_is_the_least_window_that_keeps_nearly_as_many_as_the_largest() {
        let of = |needed: &[(u64, u64)]| {
            let mut needs = WindowNeeds::default();
            needed.iter().for_each(|(n, times)| (0..*times).for_each(|_| needs.needed.add(*n)));
            needs.advice(65_536)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(200, 98), (300, 2)]), Some(256));
        assert_eq!(of(&[(200, 97), (300, 3)]), Some(512));
        // Recorded long ago and sent again: no window helps, and half of them are all the same.
        assert_eq!(of(&[(200, 49), (1 << 30, 51)]), None);
        assert_eq!(of(&[(200, 50), (1 << 30, 50)]), Some(256));
        assert_eq!(of(&[(60_000, 1)]), Some(65_536));
        assert_eq!(of(&[(70_000, 1)]), None);
    }
}
