//! In the steady state the packet path allocates nothing: counted by an allocator that is this test program's own.
#![allow(unsafe_code, reason = "an allocator is unsafe by nature; this is a test program of its own")]

#[path = "../all/common.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use ironswan_ipsec::TxConfig;
use ironswan_wire::offload::Offload;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() -> u64 {
    COUNT.with(Cell::get)
}

#[test]
fn the_counter_counts() {
    let before = count();
    let v = std::hint::black_box(vec![0u8; 100]);
    assert_eq!(count(), before + 1);
    drop(v);
}

#[test]
fn nothing_is_allocated_per_packet() {
    for algorithm in ALGORITHMS {
        let mut options = Options { algorithm, ..Options::default() };
        options.tx = TxConfig { capacity: 1 << 20, ..TxConfig::default() };
        let mut pair = Pair::new(options);
        // Bulk TCP, small packets of many flows, and a few that are dropped.
        let mut frames: Vec<_> = (0..4).map(|_| Spec::tcp(64_704).superpacket(1_348)).collect();
        for i in 0..300 {
            frames.push((Spec { ports: (i, 53), ..Spec::udp(22) }.build(), Offload::NONE));
            frames.push((Spec { ports: (i, 53), ..Spec::udp(22).over_v6() }.build(), Offload::NONE));
        }
        frames.push((Spec { dst: ip("10.9.9.9"), ..Spec::udp(22) }.build(), Offload::NONE));
        let mut copies = frames.clone();
        let mut wire = vec![0; 1 << 20];
        let mut received = Vec::with_capacity(1024);
        let mut counts = Vec::new();
        for _ in 0..5 {
            for (copy, frame) in copies.iter_mut().zip(&frames) {
                copy.0.copy_from_slice(&frame.0);
            }
            pair.tx.clear();
            pair.rx.clear();
            received.clear();
            let before = count();
            pair.wa.begin(SECOND);
            for (frame, offload) in &mut copies {
                assert!(pair.wa.outbound(frame, offload, &mut pair.tx));
            }
            pair.wa.seal(&mut pair.tx);
            wire[..pair.tx.used()].copy_from_slice(&pair.tx.buf[..pair.tx.used()]);
            received.extend(pair.tx.sends.iter().map(datagram));
            pair.wb.begin(SECOND);
            pair.wb.inbound(&mut wire, &received, &mut pair.rx);
            counts.push(count() - before);
        }
        assert_eq!(pair.b.counters().traffic.in_packets, 5 * (4 * 48 + 600));
        assert_eq!(pair.dropped(), None);
        assert_eq!(pair.rx.writes.len(), 604);
        assert_eq!(counts[2..], [0, 0, 0], "{}: {counts:?}", algorithm.name);
    }
}
