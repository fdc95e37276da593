//! The decision for a flow that leaves: the SPD's answer and the SA of its policy (RFC 4301 section
//! 5.1), and the cache that remembers it, so that the SPD is asked once for each flow and not for
//! each packet.
//!
//! The cache is of bounded size. A sender who makes flows collide makes them slow, nothing else.

use ironswan_crypto::prefetch;
use ironswan_wire::sadb::{Action, ReqId};

use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::snapshot::Snapshot;

/// Entries of a new cache: a power of two. 64 bytes each: a quarter of a MiB for each worker.
const SLOTS: usize = 4096;

/// The decision for a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Send through the SA of this [`crate::sa::OutSa::place`].
    Sa(u32),
    /// There is no SA for this reqid.
    Acquire(ReqId),
    /// As the first fragment of the packet; under this reason if that is not known. Only for keys
    /// that are hidden.
    AsFirstFragment(DropReason),
    /// Drop for this reason.
    Drop(DropReason),
}

impl Verdict {
    fn pack(self) -> u64 {
        let (kind, value) = match self {
            Self::Sa(place) => (0, place),
            Self::Acquire(reqid) => (1, reqid.0),
            Self::AsFirstFragment(reason) => (2, reason as u32),
            Self::Drop(reason) => (3, reason as u32),
        };
        u64::from(value) << 2 | kind
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        let value = (word >> 2) as u32;
        let reason = || DropReason::ALL.get(value as usize).copied().unwrap_or(DropReason::OutNoPolicy);
        match word & 3 {
            0 => Self::Sa(value),
            1 => Self::Acquire(ReqId(value)),
            2 => Self::AsFirstFragment(reason()),
            _ => Self::Drop(reason()),
        }
    }
}

/// Asks the SPD, and the SAD for the policy's SA.
#[inline(never)]
pub(crate) fn decide(snap: &Snapshot, key: &FlowKey) -> Verdict {
    let packet = key.selector();
    let action = match key.is_later_fragment() {
        false => snap.spd.lookup_out(&packet),
        true => match snap.spd.lookup_out_hidden(&packet) {
            Ok(action) => action,
            Err(_) => return Verdict::AsFirstFragment(DropReason::OutNoPolicy),
        },
    };
    match action {
        None => Verdict::Drop(DropReason::OutNoPolicy),
        Some(Action::Bypass) => Verdict::Drop(DropReason::OutPolBypass),
        Some(Action::Discard) => Verdict::Drop(DropReason::OutPolBlock),
        Some(Action::Protect(reqid)) => match snap.outbound.get(reqid.0) {
            None => Verdict::Acquire(reqid),
            // The newest first: an older one is left only until its DELETE.
            Some(list) => {
                match list.iter().rev().find(|sa| sa.state.parameters.selectors.covers_out(&packet)) {
                    Some(sa) => Verdict::Sa(sa.place),
                    // Narrowed to ports: then its first fragment says.
                    None if key.is_later_fragment() => Verdict::AsFirstFragment(DropReason::OutStateMismatch),
                    None => Verdict::Drop(DropReason::OutStateMismatch),
                }
            }
        },
    }
}

/// Words of an entry, a cache line: source, destination, rest, generation, verdict.
const WORDS: usize = 8;
/// Limits the entries of a cache: 32 MiB, of which pages become resident as flows come.
const MAX_SLOTS: usize = 1 << 19;
/// Factor by which the cache grows at once.
const GROWTH: usize = 8;
/// Number of policies from which asking the SPD takes longer than a flow cache that exceeds the
/// processor's caches.
const MANY_POLICIES: usize = 256;

/// The cache: two-way, of plain numbers, so that memory that was never used is never resident. An
/// entry is of one generation of SAD and SPD, and nothing has to be emptied for the next; an SA is
/// there by its [`crate::sa::OutSa::place`].
///
/// The cache grows when the flows do not fit and looking them up is not cheap.
pub(crate) struct FlowCache {
    words: Vec<u64>,
    /// Index of the first entry's first word: the entry begins at a cache line.
    first: usize,
    slots: usize,
    /// Live entries that others took the place of since it grew last.
    evicted: usize,
}

impl FlowCache {
    pub(crate) fn new() -> Self {
        Self::with_slots(SLOTS)
    }

    fn with_slots(slots: usize) -> Self {
        let words = vec![0u64; (slots + 1) * WORDS];
        let first = words.as_ptr().align_offset(WORDS * size_of::<u64>()).min(WORDS);
        Self { words, first, slots, evicted: 0 }
    }

    #[inline(always)]
    fn slot(&self, key: &FlowKey) -> usize {
        (key.hash() >> 40) as usize & (self.slots - 1)
    }

    #[inline(always)]
    fn entry(&mut self, slot: usize) -> Option<&mut [u64; WORDS]> {
        self.words.get_mut(self.first + slot * WORDS..)?.first_chunk_mut()
    }

    /// True since it has grown.
    pub(crate) fn is_large(&self) -> bool {
        self.slots > SLOTS
    }

    /// Starts to load where a flow's verdict may be.
    pub(crate) fn prefetch(&mut self, key: &FlowKey) {
        let slot = self.slot(key);
        for slot in [slot, slot ^ 1] {
            if let Some(entry) = self.entry(slot) {
                prefetch(entry, 0..1);
            }
        }
    }

    /// The verdict of a flow, asked for when it is not known.
    #[inline(always)]
    pub(crate) fn get(&mut self, snap: &Snapshot, key: &FlowKey) -> Verdict {
        // No entry is of the generation 0, which empty ones seem to be of.
        let name = key.words(snap.generation + 1);
        let slot = self.slot(key);
        for slot in [slot, slot ^ 1] {
            // Not `==`: that is a comparison in memory, which waits for the name to be there.
            if let Some(entry) = self.entry(slot)
                && name.iter().zip(&*entry).fold(0, |differ, (a, b)| differ | a ^ b) == 0
            {
                return Verdict::unpack(entry[6]);
            }
        }
        self.ask(snap, *key)
    }

    #[inline(never)]
    fn ask(&mut self, snap: &Snapshot, key: FlowKey) -> Verdict {
        let verdict = decide(snap, &key);
        let (name, slot) = (key.words(snap.generation + 1), self.slot(&key));
        let mut new = [0; WORDS];
        new[..6].copy_from_slice(&name);
        new[6] = verdict.pack();
        // The one that was there moves over, and what was there is forgotten.
        let Some(entry) = self.entry(slot) else { return verdict };
        let old = std::mem::replace(entry, new);
        let live = |entry: &[u64; WORDS]| entry[5] == name[5];
        if live(&old)
            && let Some(other) = self.entry(slot ^ 1)
        {
            let evicted = live(other);
            *other = old;
            self.evicted += usize::from(evicted);
            if self.evicted > self.slots / 4 && self.slots < MAX_SLOTS && snap.spd.len() >= MANY_POLICIES {
                *self = Self::with_slots((self.slots * GROWTH).min(MAX_SLOTS));
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_its_packing() {
        let mut all = vec![Verdict::Sa(0), Verdict::Sa(u32::MAX), Verdict::Acquire(ReqId(u32::MAX))];
        for reason in DropReason::ALL {
            all.extend([Verdict::Drop(*reason), Verdict::AsFirstFragment(*reason)]);
        }
        for verdict in all {
            assert_eq!(Verdict::unpack(verdict.pack()), verdict);
        }
    }

    #[test]
    fn entries_begin_at_cache_lines_and_all_slots_are_there() {
        let mut cache = FlowCache::new();
        let last = cache.entry(SLOTS - 1).unwrap().as_ptr() as usize;
        assert_eq!(last % 64, 0);
        assert!(cache.entry(SLOTS + 1).is_none());
    }
}
