//! A map and a list that are cheap to copy with one change: the parts of the SAD's snapshots. Both
//! are trees of two levels, of which a change copies one branch: adding one of 100,000 SAs copies
//! two nodes of 64 pointers and a table of some 25 entries.

use std::array::from_fn;
use std::sync::Arc;

use ironswan_crypto::prefetch;

/// Branches of a node. With 100,000 entries a change copies about as much of a node as of a leaf.
const FAN: usize = 64;
/// Slots of the smallest table with entries.
const MIN_SLOTS: usize = 8;

/// Numbers to values, by open addressing: where an entry is follows from its number, so that it can
/// be asked for before it is read. Multiplicative hashing: numbers are ours (SPIs that we chose,
/// reqids), never a sender's, so there is nobody to choose colliding ones.
pub(crate) struct CowMap<V> {
    nodes: [Arc<Shards<V>>; FAN],
    len: usize,
}

type Shards<V> = [Arc<Shard<V>>; FAN];

#[derive(Clone)]
struct Shard<V> {
    /// None, or a power of two of which at most half are taken. An entry is in its slot or behind
    /// it, with no gap between.
    slots: Vec<Option<(u32, V)>>,
    len: usize,
}

impl<V> Clone for CowMap<V> {
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), len: self.len }
    }
}

impl<V> Default for CowMap<V> {
    fn default() -> Self {
        let empty = Arc::new(Shard { slots: Vec::new(), len: 0 });
        let node = Arc::new(from_fn(|_| empty.clone()));
        Self { nodes: from_fn(|_| node.clone()), len: 0 }
    }
}

#[inline]
fn hash(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<V: Clone> Shard<V> {
    /// The slot where a number is looked for first.
    #[inline]
    fn slot(&self, key: u32) -> usize {
        (hash(key) >> 32) as usize & self.slots.len().wrapping_sub(1)
    }

    /// The slot that has a number, or the free slot where it would be; `None` in an empty table.
    #[inline]
    fn find(&self, key: u32) -> Option<usize> {
        let mut at = self.slot(key);
        while self.slots.get(at)?.as_ref().is_some_and(|(k, _)| *k != key) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        Some(at)
    }

    fn insert(&mut self, key: u32, value: V) -> Option<V> {
        if 2 * (self.len + 1) > self.slots.len() {
            let larger = (2 * self.slots.len()).max(MIN_SLOTS);
            let old = std::mem::replace(&mut self.slots, vec![None; larger]);
            self.len = 0;
            for (key, value) in old.into_iter().flatten() {
                self.insert(key, value);
            }
        }
        let old = self.find(key).and_then(|at| self.slots[at].replace((key, value)));
        self.len += usize::from(old.is_none());
        old.map(|(_, value)| value)
    }

    fn remove(&mut self, key: u32) -> Option<V> {
        let mut gap = self.find(key)?;
        let (_, old) = self.slots[gap].take()?;
        self.len -= 1;
        // Close the gap: move an entry behind it into it, unless its first slot is behind the gap.
        let mask = self.slots.len() - 1;
        let mut at = (gap + 1) & mask;
        while let Some((key, _)) = self.slots[at] {
            let home = self.slot(key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = (at + 1) & mask;
        }
        Some(old)
    }
}

impl<V: Clone> CowMap<V> {
    /// The node where a number belongs, and the shard of it.
    #[inline]
    fn place(key: u32) -> (usize, usize) {
        let high = (hash(key) >> 52) as usize;
        (high / FAN % FAN, high % FAN)
    }

    #[inline]
    fn shard(&self, key: u32) -> &Shard<V> {
        let (node, shard) = Self::place(key);
        &self.nodes[node][shard]
    }

    /// The shard of a number, as our own copy.
    fn shard_mut(&mut self, key: u32) -> &mut Shard<V> {
        let (node, shard) = Self::place(key);
        Arc::make_mut(&mut Arc::make_mut(&mut self.nodes[node])[shard])
    }

    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&V> {
        let shard = self.shard(key);
        shard.slots.get(shard.find(key)?)?.as_ref().map(|(_, value)| value)
    }

    /// Starts to load the slot where a number is looked for first.
    #[inline]
    pub(crate) fn prefetch(&self, key: u32) {
        let shard = self.shard(key);
        if let Some(slot) = shard.slots.get(shard.slot(key)) {
            prefetch(slot, 0..1);
        }
    }

    pub(crate) fn insert(&mut self, key: u32, value: V) {
        let old = self.shard_mut(key).insert(key, value);
        self.len += usize::from(old.is_none());
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<V> {
        let old = self.shard_mut(key).remove(key);
        self.len -= usize::from(old.is_some());
        old
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let shards = self.nodes.iter().flat_map(|node| node.iter());
        shards.flat_map(|s| s.slots.iter().flatten().map(|(_, value)| value))
    }
}

/// A list with gaps, cheap to copy with one change as [`CowMap`] is, and found by number without a
/// hash.
pub(crate) struct CowVec<V> {
    nodes: Vec<Arc<Chunks<V>>>,
    len: u32,
}

type Chunks<V> = [Option<Arc<Chunk<V>>>; FAN];
type Chunk<V> = [Option<V>; FAN];

impl<V> Clone for CowVec<V> {
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), len: self.len }
    }
}

impl<V> Default for CowVec<V> {
    fn default() -> Self {
        Self { nodes: Vec::new(), len: 0 }
    }
}

impl<V: Clone> CowVec<V> {
    /// The first number that was never set.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn place(&self, at: u32) -> Option<&Option<V>> {
        let at = at as usize;
        let chunk = self.nodes.get(at / (FAN * FAN))?[at / FAN % FAN].as_ref()?;
        Some(&chunk[at % FAN])
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&V> {
        self.place(at)?.as_ref()
    }

    /// Starts to load a place.
    pub(crate) fn prefetch(&self, at: u32) {
        if let Some(place) = self.place(at) {
            prefetch(place, 0..size_of::<V>());
        }
    }

    /// Fills or empties a place that was there before, or the next.
    pub(crate) fn set(&mut self, at: u32, value: Option<V>) {
        if at > self.len {
            return;
        }
        let index = at as usize;
        if index == self.nodes.len() * FAN * FAN {
            self.nodes.push(Arc::new(from_fn(|_| None)));
        }
        let node = Arc::make_mut(&mut self.nodes[index / (FAN * FAN)]);
        let chunk = node[index / FAN % FAN].get_or_insert_with(|| Arc::new(from_fn(|_| None)));
        Arc::make_mut(chunk)[index % FAN] = value;
        self.len = self.len.max(at + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut a = CowMap::<u32>::default();
        for i in 0..1000 {
            a.insert(i, i * 2);
        }
        let b = a.clone();
        a.remove(500);
        a.insert(1, 99);
        assert_eq!((a.len(), b.len()), (999, 1000));
        assert_eq!((a.get(500), b.get(500)), (None, Some(&1000)));
        assert_eq!((a.get(1), b.get(1)), (Some(&99), Some(&2)));
        assert_eq!((a.values().count(), b.values().count()), (999, 1000));
    }

    /// Against a map of another kind: numbers that share slots, that wrap around the end of a
    /// table, that come back.
    #[test]
    fn whatever_is_added_and_removed_is_found_and_nothing_else() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as u32
        };
        // Numbers of one shard, so that its table is crowded.
        let keys: Vec<u32> =
            (0..1_300_000).filter(|k| CowMap::<u32>::place(*k) == (7, 7)).take(200).collect();
        let (mut ours, mut theirs) = (CowMap::<u32>::default(), std::collections::HashMap::new());
        for step in 0..20_000 {
            let (key, value) = (keys[random() as usize % keys.len()], random());
            // Fuller and emptier in turns.
            if random() % 100 < if step / 2_000 % 2 == 0 { 70 } else { 30 } {
                ours.insert(key, value);
                theirs.insert(key, value);
            } else {
                assert_eq!(ours.remove(key), theirs.remove(&key));
            }
            assert_eq!(ours.len(), theirs.len());
            let probe = keys[random() as usize % keys.len()];
            assert_eq!(ours.get(probe), theirs.get(&probe));
        }
        keys.iter().for_each(|key| assert_eq!(ours.get(*key), theirs.get(key)));
        assert_eq!(ours.values().count(), theirs.len());
        let shard = &ours.nodes[7][7];
        assert!(2 * shard.len <= shard.slots.len() && shard.slots.len() <= 512);
    }

    #[test]
    fn a_list_keeps_its_numbers_and_its_copies() {
        let mut a = CowVec::<u32>::default();
        for i in 0..9_000 {
            assert_eq!(a.len(), i);
            a.set(i, Some(i * 2));
        }
        let b = a.clone();
        a.set(300, None);
        a.set(5, Some(99));
        assert_eq!((a.get(300), b.get(300), a.get(5), b.get(5)), (None, Some(&600), Some(&99), Some(&10)));
        assert_eq!((a.len(), a.get(8_999), a.get(9_000), a.get(90_000)), (9_000, Some(&17_998), None, None));
    }

    #[test]
    fn consecutive_keys_spread_over_the_shards() {
        let mut a = CowMap::<()>::default();
        for i in 0..102_400 {
            a.insert(i, ());
        }
        let fullest = a.nodes.iter().flat_map(|n| n.iter()).map(|s| s.len).max().unwrap();
        assert!(fullest < 50, "{fullest}");
    }
}
