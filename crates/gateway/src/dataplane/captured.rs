//! Copies of packets on their way from the workers to captures: bounded, and given up when nobody
//! takes them.
//!
//! ```text
//! worker ─ a batch's copies ─▶ ring ┐
//! worker ─ a batch's copies ─▶ ring ┼─ every 10 ms ─▶ control thread ─▶ captures
//! ```
//! A worker asks once for each batch whether somebody captures, which is one relaxed load, and
//! waits for nobody: it puts the copies into the first ring that nobody else has locked. What finds
//! no ring or no room is counted.

use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::UNIX_EPOCH;

use ironswan_ike::event::IkeId;
use ironswan_io::clock;
use ironswan_ipsec::{Layer, Tap, Wanted};
use ironswan_wire::sadb::Direction;

/// Bytes of copies that wait.
const MAX_BYTES: usize = 16 << 20;
/// Rings: with as many as there may be workers, one that nobody has locked is always there.
const RINGS: usize = 16;

/// A copy of an IKE message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeCopy {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time: u64,
    /// Its way.
    pub direction: Direction,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The UDP payload, with the non-ESP marker where one is due.
    pub payload: Vec<u8>,
    /// The IKE_SA; `None`: it is not known by its SPIs, perhaps not yet.
    pub ike: Option<IkeId>,
}

/// Nanoseconds since 1970-01-01 UTC.
pub(crate) fn wall_nanos() -> u64 {
    let since = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Copies that were taken.
#[derive(Default)]
pub struct Captured {
    /// Those of each batch.
    pub taps: Vec<Tap>,
    /// Inner and outer packets that were wanted and have no copy.
    pub missed: [u64; 2],
}

/// The rings.
#[derive(Default)]
pub(crate) struct Rings {
    on: AtomicBool,
    wanted: Mutex<Option<Arc<Wanted>>>,
    rings: [Mutex<Vec<Tap>>; RINGS],
    bytes: AtomicUsize,
    missed: [AtomicU64; 2],
}

impl Rings {
    /// What is to be copied of a batch that begins; `None` when nobody captures.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<Arc<Wanted>> {
        if !self.on.load(Relaxed) {
            return None;
        }
        // Locked only while it changes.
        match self.wanted.try_lock() {
            Ok(wanted) => wanted.clone(),
            Err(TryLockError::Poisoned(wanted)) => wanted.into_inner().clone(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the copies of a batch that is done.
    #[inline]
    pub(crate) fn put(&self, tap: Option<Box<Tap>>) {
        if let Some(tap) = tap {
            self.put_copies(*tap);
        }
    }

    #[cold]
    fn put_copies(&self, mut tap: Tap) {
        tap.finish();
        let size = tap.size();
        if tap.is_empty() || !self.on.load(Relaxed) {
            return;
        }
        if self.bytes.fetch_add(size, AcqRel) + size <= MAX_BYTES {
            for ring in &self.rings {
                if let Ok(mut ring) = ring.try_lock() {
                    ring.push(tap);
                    return;
                }
            }
        }
        self.bytes.fetch_sub(size, AcqRel);
        let [mut inner, mut outer] = tap.missed();
        for packet in tap.packets() {
            match packet.layer {
                Layer::Inner => inner += 1,
                Layer::Outer => outer += 1,
            }
        }
        self.missed[0].fetch_add(inner, Relaxed);
        self.missed[1].fetch_add(outer, Relaxed);
    }

    /// Begins, changes or ends what is copied.
    pub(crate) fn want(&self, wanted: Option<Arc<Wanted>>) {
        let on = wanted.is_some();
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        self.on.store(on, Relaxed);
        if !on {
            self.take();
        }
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> Captured {
        let mut taken = Captured::default();
        for ring in &self.rings {
            taken.taps.append(&mut std::mem::take(&mut *ring.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        self.bytes.fetch_sub(taken.taps.iter().map(Tap::size).sum(), AcqRel);
        for (taken, missed) in taken.missed.iter_mut().zip(&self.missed) {
            *taken = missed.swap(0, Relaxed);
        }
        for tap in &taken.taps {
            taken.missed.iter_mut().zip(tap.missed()).for_each(|(sum, n)| *sum += n);
        }
        taken
    }
}

#[cfg(test)]
#[path = "captured_tests.rs"]
mod tests;
