//! A map and a list that are cheap to copy with one change: what the SAD's snapshots are made of. Adding one of 10,000 SAs
//! copies one shard of 64, not all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use ironswan_crypto::prefetch;

const SHARDS: usize = 64;

/// Multiplicative hashing. Keys are ours or the configuration's (SPIs we chose, reqids, prefixes), never a sender's, so
/// there is nobody to choose colliding ones.
#[derive(Default, Clone, Copy)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    #[inline]
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }

    #[inline]
    fn write_u64(&mut self, v: u64) {
        let x = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ x >> 32;
    }

    #[inline]
    fn write_u128(&mut self, v: u128) {
        self.write_u64(v as u64);
        self.write_u64((v >> 64) as u64);
    }
}

type Shard<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// The map.
pub(crate) struct CowMap<K, V> {
    shards: Vec<Arc<Shard<K, V>>>,
}

impl<K, V> Clone for CowMap<K, V> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.clone() }
    }
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(Shard::default());
        Self { shards: vec![empty; SHARDS] }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> CowMap<K, V> {
    #[inline]
    fn shard(key: &K) -> usize {
        let mut h = FastHasher(0x5bd1_e995);
        key.hash(&mut h);
        h.finish() as usize % SHARDS
    }

    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.shards[Self::shard(key)].get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        Arc::make_mut(&mut self.shards[Self::shard(&key)]).insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        Arc::make_mut(&mut self.shards[Self::shard(key)]).remove(key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.shards.iter().flat_map(|s| s.values())
    }
}

/// Items of a chunk of [`CowVec`].
const CHUNK: usize = 256;

/// A list with gaps, cheap to copy with one change as [`CowMap`] is, and found by number without a hash.
pub(crate) struct CowVec<V> {
    chunks: Vec<Arc<Vec<Option<V>>>>,
    len: u32,
}

impl<V> Clone for CowVec<V> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<V> Default for CowVec<V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<V: Clone> CowVec<V> {
    /// The first number that was never set.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&V> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)?.as_ref()
    }

    /// Starts to load a place.
    pub(crate) fn prefetch(&self, at: u32) {
        if let Some(place) = self.chunks.get(at as usize / CHUNK).and_then(|c| c.get(at as usize % CHUNK)) {
            prefetch(place, size_of::<V>());
        }
    }

    /// Fills or empties a place that was there before, or the next.
    pub(crate) fn set(&mut self, at: u32, value: Option<V>) {
        let (chunk, at_in) = (at as usize / CHUNK, at as usize % CHUNK);
        if chunk == self.chunks.len() {
            self.chunks.push(Arc::new(Vec::new()));
        }
        let Some(chunk) = self.chunks.get_mut(chunk).map(Arc::make_mut) else { return };
        if at_in == chunk.len() {
            chunk.push(None);
        }
        if let Some(place) = chunk.get_mut(at_in) {
            *place = value;
            self.len = self.len.max(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut a = CowMap::<u32, u32>::default();
        for i in 0..1000 {
            a.insert(i, i * 2);
        }
        let b = a.clone();
        a.remove(&500);
        a.insert(1, 99);
        assert_eq!((a.get(&500), b.get(&500)), (None, Some(&1000)));
        assert_eq!((a.get(&1), b.get(&1)), (Some(&99), Some(&2)));
        assert_eq!((a.values().count(), b.values().count()), (999, 1000));
    }

    #[test]
    fn a_list_keeps_its_numbers_and_its_copies() {
        let mut a = CowVec::<u32>::default();
        for i in 0..600 {
            assert_eq!(a.len(), i);
            a.set(i, Some(i * 2));
        }
        let b = a.clone();
        a.set(300, None);
        a.set(5, Some(99));
        assert_eq!((a.get(300), b.get(300), a.get(5), b.get(5)), (None, Some(&600), Some(&99), Some(&10)));
        assert_eq!((a.len(), a.get(599), a.get(600), a.get(9_000)), (600, Some(&1198), None, None));
    }

    #[test]
    fn consecutive_keys_spread_over_the_shards() {
        let mut a = CowMap::<u32, ()>::default();
        for i in 0..6400 {
            a.insert(i, ());
        }
        let fullest = a.shards.iter().map(|s| s.len()).max().unwrap();
        assert!(fullest < 200, "{fullest}");
    }
}
