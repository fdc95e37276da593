//! In the steady state the packet path allocates nothing, and what SAs, flows and floods take is
//! bounded and given back: counted by an allocator that is this test program's own.
#![allow(unsafe_code, reason = "an allocator is unsafe by nature; this is a test program of its own")]

#[path = "../all/common.rs"]
mod common;
mod memory;
#[path = "../all/out_common.rs"]
mod out_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use ironswan_ipsec::TxConfig;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{SaAdd, SaOptions, Tfc};
use out_common::{Receiver, Sender, TRANSPORT, ah, between, fragments, outbound, udp_between};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has taken and not given back.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        LIVE.with(|l| l.set(l.get() + layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.with(|l| l.set(l.get() - layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        LIVE.with(|l| l.set(l.get() + size as i64 - layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() -> u64 {
    COUNT.with(Cell::get)
}

/// Bytes in use by this thread.
fn live() -> i64 {
    LIVE.with(Cell::get)
}

#[test]
fn the_counter_counts() {
    let before = count();
    let v = std::hint::black_box(vec![0u8; 100]);
    assert_eq!(count(), before + 1);
    drop(v);
    let (before, v) = (live(), std::hint::black_box(vec![0u8; 100]));
    assert_eq!(live(), before + 100);
    drop(v);
    assert_eq!(live(), before);
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

/// Every kind of SA that the fast path is not for.
fn kinds() -> Vec<SaAdd> {
    let compressed = SaOptions { ipcomp: Some(5), ..SaOptions::default() };
    let padded = SaOptions { tfc: Tfc::To(1_400), ..SaOptions::default() };
    vec![
        ah(false),
        SaAdd { mode: TRANSPORT, ..ah(false) },
        SaAdd { mode: TRANSPORT, ..outbound(false) },
        SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(false) },
        SaAdd { options: compressed, ..outbound(false) },
        SaAdd { options: compressed, mode: TRANSPORT, ..ah(false) },
        SaAdd { options: padded, udp_encap: true, ..outbound(false) },
    ]
}

#[test]
fn nothing_is_allocated_per_packet_of_any_kind() {
    for kind in kinds() {
        let what = format!("{} {:?} {:?}", kind.protocol, kind.mode, kind.options);
        let transport = kind.mode == TRANSPORT;
        let mut s = Sender::new(kind);
        let mut r = Receiver::of(&s.sa, 4_096);
        let text = Spec { payload: b"the same again, ".repeat(4_000), ..Spec::tcp(0) };
        let mut frames =
            vec![between(text).superpacket(1_348), between(Spec::tcp(40_000)).superpacket(1_348)];
        for i in 0..200 {
            frames.push((Spec { ports: (i, 53), ..udp_between(false, 200) }.build(), Offload::NONE));
        }
        // Fragments, which transport mode puts together.
        let long = Spec { df: false, ports: (999, 53), ..udp_between(false, 3_000) }.build();
        frames.extend(fragments(&long, 1_400, 9).into_iter().map(|f| (f, Offload::NONE)));
        let mut copies = frames.clone();
        let mut wire = vec![0; 1 << 20];
        let mut received = Vec::with_capacity(1024);
        let (mut counts, mut writes) = (Vec::new(), 0);
        for _ in 0..6 {
            for (copy, frame) in copies.iter_mut().zip(&frames) {
                copy.0.copy_from_slice(&frame.0);
            }
            s.tx.clear();
            r.rx.clear();
            received.clear();
            let before = count();
            s.worker.begin(SECOND);
            for (frame, offload) in &mut copies {
                assert!(s.worker.outbound(frame, offload, &mut s.tx));
            }
            s.worker.seal(&mut s.tx);
            wire[..s.tx.used()].copy_from_slice(&s.tx.buf[..s.tx.used()]);
            received.extend(s.tx.sends.iter().map(|send| {
                let mut d = datagram(send);
                if send.carrier == ironswan_ipsec::Carrier::Ip && s.sa.protocol == ProtocolId::ESP {
                    // A raw socket hands over what is behind the IP header.
                    (d.offset, d.len, d.carrier) = (d.offset + 20, d.len - 20, carrier(false));
                }
                d
            }));
            r.worker.begin(SECOND);
            r.worker.inbound(&mut wire, &received, &mut r.rx);
            counts.push(count() - before);
            writes += r.rx.writes.len() as u64;
        }
        s.balance();
        let c = r.engine.counters();
        assert!(c.balance() && c.dropped_in() == 0, "{what}: {c:?}");
        assert_eq!(s.engine.counters().dropped_out(), 0, "{what}");
        assert_eq!(c.traffic.in_writes, writes);
        let fragments = if transport { 1 } else { 3 };
        assert_eq!(s.engine.counters().traffic.out_sent, 6 * (48 + 30 + 200 + fragments), "{what}");
        assert_eq!(counts[3..], [0, 0, 0], "{what}: {counts:?}");
    }
}
