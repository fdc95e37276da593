use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Config, Engine, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;

use super::*;

fn everything() -> Option<Arc<Wanted>> {
    let (everything, only_dropped) = (true, false);
    Some(Arc::new(Wanted { everything, reqids: Vec::new(), only_dropped, snaplen: 65_535, clock: || 1 }))
}

/// The copies of a batch of so many frames, all dropped, since there is no policy.
fn batch(rings: &Rings, frames: usize) -> Option<Box<Tap>> {
    let mut worker = Worker::new(Engine::new(Box::new(Seeded::new(1)), Config::default()));
    let mut tx = TxBatch::new(TxConfig::default());
    tx.tap(rings.wanted()?);
    let mut frame = [0; 60_000];
    frame[..20].copy_from_slice(&[0x45, 0, 0xea, 0x60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
    for _ in 0..frames {
        assert!(worker.outbound(&mut frame, &Offload::NONE, &mut tx));
    }
    tx.take_tap()
}

#[test]
fn nothing_is_copied_while_nobody_captures() {
    let rings = Rings::default();
    assert!(rings.wanted().is_none());
    rings.want(everything());
    let late = batch(&rings, 1);
    assert_eq!(late.as_ref().unwrap().packets().len(), 1);
    rings.want(None);
    assert!(rings.wanted().is_none());
    // A batch that was under way is let go of.
    rings.put(late);
    assert!(rings.take().taps.is_empty());
    assert_eq!(rings.bytes.load(Relaxed), 0);
}

#[test]
fn what_nobody_takes_is_counted_and_takes_no_more_memory() {
    let rings = Rings::default();
    rings.want(everything());
    for _ in 0..50 {
        rings.put(batch(&rings, 20));
    }
    assert!(rings.bytes.load(Relaxed) <= MAX_BYTES);
    let taken = rings.take();
    let copies: usize = taken.taps.iter().map(|tap| tap.packets().len()).sum();
    assert!(copies > 100, "{copies}");
    assert_eq!(copies as u64 + taken.missed[0], 1_000);
    assert!(taken.missed[0] > 0 && taken.missed[1] == 0);
    // There is room again, and nothing is counted twice.
    rings.put(batch(&rings, 20));
    let taken = rings.take();
    assert_eq!((taken.taps.len(), taken.missed), (1, [0; 2]));
    assert_eq!(rings.bytes.load(Relaxed), 0);
}

#[test]
fn workers_never_wait_for_a_ring() {
    let rings = Rings::default();
    rings.want(everything());
    let held: Vec<_> = rings.rings.iter().map(|ring| ring.lock().unwrap()).collect();
    rings.put(batch(&rings, 2));
    drop(held);
    let taken = rings.take();
    assert_eq!((taken.taps.len(), taken.missed), (0, [2, 0]));
    assert_eq!(rings.bytes.load(Relaxed), 0);
    // One ring is enough.
    let mut held: Vec<_> = rings.rings.iter().map(|ring| ring.lock().unwrap()).collect();
    held.pop();
    rings.put(batch(&rings, 2));
    drop(held);
    assert_eq!(rings.take().taps.len(), 1);
}
