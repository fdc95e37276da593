//! A map that is cheap to copy with one change: what the SAD and SPD snapshots are made of. Adding one of 10,000 SAs
//! copies one shard of 64, not all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

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
    fn consecutive_keys_spread_over_the_shards() {
        let mut a = CowMap::<u32, ()>::default();
        for i in 0..6400 {
            a.insert(i, ());
        }
        let fullest = a.shards.iter().map(|s| s.len()).max().unwrap();
        assert!(fullest < 200, "{fullest}");
    }
}
