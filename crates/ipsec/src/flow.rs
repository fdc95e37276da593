//! What a worker remembers about the flows that leave, so that the SPD is asked once for each and
//! not for each packet.
//!
//! Of bounded size, valid for one snapshot. A sender who makes flows collide makes them slow,
//! nothing else.

use std::net::IpAddr;

use ironswan_crypto::prefetch;
use ironswan_wire::ip::{Fragment, IpInfo};
use ironswan_wire::sadb::ReqId;
use ironswan_wire::selector::PacketSelector;

use crate::counters::DropReason;
use crate::engine::Snapshot;
use crate::pipeline::decide;

/// A power of two. 64 bytes each, twice: half a MiB for each worker in the beginning.
const SLOTS: usize = 4096;

/// In [`FlowKey::rest`]: ports are to be seen.
const SHOWN: u64 = 1 << 1;
/// In [`FlowKey::rest`]: a later fragment.
const HIDDEN: u64 = 1 << 2;

/// The selectors of a packet, packed for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlowKey {
    pub(crate) src: u128,
    pub(crate) dst: u128,
    /// Ports, protocol, whether ports are to be seen, family.
    pub(crate) rest: u64,
}

#[inline]
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

impl FlowKey {
    /// The key of a packet that was parsed.
    #[inline]
    pub(crate) fn new(info: &IpInfo, packet: &[u8]) -> Option<Self> {
        let (src, dst) = Self::addresses(info, packet)?;
        let ports = info.ports(packet);
        let (s, d) = ports.unwrap_or_default();
        let rest = u64::from(s) << 48
            | u64::from(d) << 32
            | u64::from(info.protocol) << 8
            | if ports.is_some() { SHOWN } else { 0 }
            | u64::from(info.ipv6)
            | if info.fragment == Fragment::Later { HIDDEN } else { 0 };
        Some(Self { src, dst, rest })
    }

    /// Source and destination of a packet.
    #[inline]
    pub(crate) fn addresses(info: &IpInfo, packet: &[u8]) -> Option<(u128, u128)> {
        info.addresses(packet).map(|(src, dst)| (bits(src), bits(dst)))
    }

    /// A key that is no packet's, for its [`Self::slot`].
    pub(crate) fn of((src, dst): (u128, u128), rest: u64) -> Self {
        Self { src, dst, rest }
    }

    /// The key of all later fragments between its addresses, of its protocol.
    pub(crate) fn hidden(self) -> Self {
        Self { rest: self.rest & 0xffff_ffff & !SHOWN | HIDDEN, ..self }
    }

    /// True for IPv6.
    #[inline(always)]
    pub(crate) fn is_ipv6(&self) -> bool {
        self.rest & 1 != 0
    }

    /// True for later fragments.
    #[inline]
    pub(crate) fn is_hidden(&self) -> bool {
        self.rest & HIDDEN != 0
    }

    /// What the SPD sees of it.
    #[inline]
    pub(crate) fn selector(&self) -> PacketSelector {
        let addr = |v: u128| match self.rest & 1 {
            0 => IpAddr::V4((v as u32).into()),
            _ => IpAddr::V6(v.into()),
        };
        let shown = self.rest & SHOWN != 0;
        PacketSelector {
            src: addr(self.src),
            dst: addr(self.dst),
            protocol: (self.rest >> 8) as u8,
            src_port: shown.then_some((self.rest >> 48) as u16),
            dst_port: shown.then_some((self.rest >> 32) as u16),
        }
    }

    /// Itself and a generation, as an entry of the cache has them.
    #[inline]
    fn words(&self, generation: u64) -> [u64; 6] {
        let halves = |v: u128| (v as u64, (v >> 64) as u64);
        let ((s0, s1), (d0, d1)) = (halves(self.src), halves(self.dst));
        [s0, s1, d0, d1, self.rest, generation]
    }

    /// A hash of 16 bits.
    #[inline]
    pub(crate) fn short(&self) -> u16 {
        // The upper bits of a product depend on all bits of its factors.
        (self.hash() >> 48) as u16
    }

    /// A slot of `slots`, a power of two of at most 65,536.
    #[inline]
    pub(crate) fn slot(&self, slots: usize) -> usize {
        usize::from(self.short()) & (slots - 1)
    }

    #[inline]
    fn hash(&self) -> u64 {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut x = (self.src as u64 ^ (self.src >> 64) as u64).wrapping_mul(K);
        x = (x.rotate_left(29) ^ self.dst as u64 ^ (self.dst >> 64) as u64).wrapping_mul(K);
        // With the ports below, since a product's lower bits do not depend on its factors' upper
        // ones.
        (x.rotate_left(29) ^ self.rest.rotate_left(32)).wrapping_mul(K)
    }
}

/// What is done with a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Through the SA of this [`crate::sa::OutSa::place`].
    Sa(u32),
    /// There is no SA for this reqid.
    Acquire(ReqId),
    /// As the first fragment of the packet; under this reason if that is not known. Only for keys
    /// that are hidden.
    AsFirst(DropReason),
    /// Dropped.
    Drop(DropReason),
}

impl Verdict {
    fn pack(self) -> u64 {
        let (kind, value) = match self {
            Self::Sa(place) => (0, place),
            Self::Acquire(reqid) => (1, reqid.0),
            Self::AsFirst(reason) => (2, reason as u32),
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
            2 => Self::AsFirst(reason()),
            _ => Self::Drop(reason()),
        }
    }
}

/// Inner flows that were accepted on an inbound SA: martian, selector and policy checks give the
/// same answer for all packets of one flow, so they are made once for each.
pub(crate) struct Accepted {
    entries: Box<[(FlowKey, u32)]>,
    /// Something was entered since the last [`Self::clear`].
    dirty: bool,
}

impl Accepted {
    pub(crate) fn new() -> Self {
        // SPI 0 is no SA's.
        Self { entries: vec![(FlowKey::default(), 0); SLOTS].into_boxed_slice(), dirty: false }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.entries.fill((FlowKey::default(), 0));
        }
    }

    /// True when this flow was accepted on the SA of this SPI.
    #[inline(always)]
    pub(crate) fn has(&self, key: &FlowKey, spi: u32) -> bool {
        let (known, of) = &self.entries[key.slot(SLOTS)];
        // In one go: no branch that depends on which part differs.
        (known.src ^ key.src | known.dst ^ key.dst | u128::from(known.rest ^ key.rest | u64::from(of ^ spi)))
            == 0
    }

    pub(crate) fn insert(&mut self, key: &FlowKey, spi: u32) {
        self.entries[key.slot(SLOTS)] = (*key, spi);
        self.dirty = true;
    }
}

/// Words of an entry, a cache line: source, destination, rest, generation, verdict.
const WORDS: usize = 8;
/// Most entries of a cache: 32 MiB, taken page by page as flows come.
const MOST: usize = 1 << 19;
/// How many times larger it becomes at once.
const GROWTH: usize = 8;
/// From so many policies on, asking the SPD takes longer than a cache that is larger than the
/// processor's.
const MANY_POLICIES: usize = 256;

/// The cache: two-way, of plain numbers, so that memory that was never used is never resident. An
/// entry is of one generation of SAD and SPD, and nothing has to be emptied for the next; an SA is
/// there by its [`crate::sa::OutSa::place`].
///
/// It grows when the flows do not fit and looking them up is not cheap.
pub(crate) struct FlowCache {
    words: Vec<u64>,
    /// Where the first entry begins, at a cache line.
    first: usize,
    slots: usize,
    /// Live entries that others took the place of since it grew last.
    evicted: usize,
}

impl FlowCache {
    pub(crate) fn new() -> Self {
        Self::of(SLOTS)
    }

    fn of(slots: usize) -> Self {
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
            if self.evicted > self.slots / 4 && self.slots < MOST && snap.spd.len() >= MANY_POLICIES {
                *self = Self::of((self.slots * GROWTH).min(MOST));
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
            all.extend([Verdict::Drop(*reason), Verdict::AsFirst(*reason)]);
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
