//! Order, books and stages, with one to eight workers on each side of one tunnel, both directions
//! at once.

use std::collections::HashMap;

use ironswan_ipsec::Stage;
use ironswan_wire::offload::Gso;

use super::*;
use crate::dataplane::userspace::crew;
use ironswan_config::tuning::Tuning;

/// A pause of up to some microseconds now and then, from a seed.
fn delays(seed: u64) -> Box<dyn Fn() + Send + Sync> {
    let state = AtomicU64::new(seed);
    Box::new(move || {
        let n = state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let n = (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56;
        match n {
            0..2 => std::thread::sleep(Duration::from_micros(n * 200 + 50)),
            2..60 => std::thread::yield_now(),
            _ => {}
        }
    })
}

/// Looks at what arrives: each flow's packets in their order, none missing.
#[derive(Default)]
struct Arrivals {
    next: Mutex<HashMap<u16, u32>>,
    packets: AtomicU64,
    merged: AtomicU64,
}

impl Arrivals {
    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) {
        let packet: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        let flow = u16::from_be_bytes([packet[20], packet[21]]);
        let payload = &packet[HEADERS..];
        let size = match offload.gso {
            Gso::None => payload.len(),
            _ => usize::from(offload.segment_size),
        };
        let mut next = lock(&self.next);
        let next = next.entry(flow).or_insert(0);
        for segment in payload.chunks(size) {
            let counter = u32::from_be_bytes(segment[..4].try_into().unwrap());
            assert_eq!(counter, *next, "flow {flow}");
            *next += 1;
            self.packets.fetch_add(1, Relaxed);
        }
        self.merged.fetch_add(u64::from(offload.gso != Gso::None), Relaxed);
    }
}

/// Gateway 1 sends numbered packets to gateway 2 over a wire, which changes its SA meanwhile.
fn tunnel(workers: usize, packets: u64, rekeys: u32) {
    const FLOWS: u64 = 8;
    let wire = Arc::new(Wire::default());
    let numbers: Mutex<HashMap<u32, u32>> = Mutex::default();
    let mut io = MemoryIo { outgoing: Some(wire.clone()), ..MemoryIo::new() };
    io.pause = Some(delays(1));
    io.sent = Some(Box::new(move |packet| {
        let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let mut numbers = lock(&numbers);
        let last = numbers.entry(word(0)).or_insert(0);
        *last += 1;
        assert_eq!(word(4), *last, "SPI {:x}", word(0));
    }));
    let frames = (0..FLOWS).map(|f| frame(f as u16, if f < 6 { 60 } else { 1_000 })).collect();
    let a = MemoryDevice { numbered: true, wire: Some(wire.clone()), ..device(frames, packets) };
    let a = lanes(io, a, engine(1), workers, stopwatch());
    let arrivals = Arc::new(Arrivals::default());
    let seen = arrivals.clone();
    let mut b = device(vec![vec![0; 20]], 0);
    b.written = Some(Box::new(move |offload, parts| seen.write(offload, parts)));
    let io = MemoryIo { incoming: Some(wire), pause: Some(delays(2)), ..MemoryIo::new() };
    let b = lanes(io, b, engine(2), workers, stopwatch());
    let stage = Mutex::new(0);
    drive(&[&a, &b], workers, || {
        let arrived = arrivals.packets.load(Relaxed);
        let mut stage = lock(&stage);
        if *stage < rekeys && arrived > packets * u64::from(*stage + 1) / u64::from(rekeys + 2) {
            // As a rekey does: the new one first where it is received; the old one is deleted where
            // it is sent, and where it is received when the next one comes.
            let spi = 0x1001 + *stage;
            apply(&b.engine, &sa(2, spi, 1 << 16));
            apply(&a.engine, &sa(1, spi, 0));
            delete(&a.engine, 1, spi - 1);
            if *stage > 0 {
                delete(&b.engine, 2, spi - 2);
            }
            *stage += 1;
        }
        arrived >= packets
    });
    assert_eq!(arrivals.packets.load(Relaxed), packets);
    assert!(arrivals.merged.load(Relaxed) > 0, "some were merged");
    assert_eq!(*lock(&stage), rekeys);
    for (engine, sent) in [(&a.engine, true), (&b.engine, false)] {
        let c = engine.counters();
        assert!(c.balance(), "{c:?}");
        assert_eq!(c.dropped_in() + c.dropped_out(), 0);
        assert_eq!(if sent { c.traffic.out_sent } else { c.traffic.in_packets }, packets);
    }
    let (a, b) = (a.stats(), b.stats());
    assert_eq!((a.tun_reads, b.tun_write_errors), (packets, 0));
    assert!(b.tun_writes <= packets && b.receives > 0);
}

#[test]
fn packets_of_one_sa_leave_and_arrive_in_order_with_any_number_of_workers() {
    for workers in 1..=4 {
        tunnel(workers, 60_000, 3);
    }
}

/// The defaults of machines that are larger than the one that this runs on: as many workers as they
/// would have, on one tunnel.
#[test]
fn the_defaults_for_one_two_eight_and_64_processors_keep_the_order() {
    for (processors, expected) in [(1, 1), (2, 1), (8, 4), (64, 8)] {
        let workers = crew::workers(&Tuning::default(), processors);
        assert_eq!(workers, expected, "{processors} processors");
        tunnel(workers, 60_000, 3);
    }
}

#[test]
fn workers_that_are_stopped_while_they_are_busy_leave_the_books_balanced() {
    for workers in [1, 3] {
        let sent = Arc::new(AtomicU64::new(0));
        let seen = sent.clone();
        let mut io = MemoryIo { pause: Some(delays(3)), ..MemoryIo::new() };
        io.sent = Some(Box::new(move |_| _ = seen.fetch_add(1, Relaxed)));
        let frames = (0..8).map(|f| frame(f, 300)).collect();
        let lanes = lanes(io, device(frames, u64::MAX), engine(1), workers, stopwatch());
        drive(&[&lanes], workers, || sent.load(Relaxed) > 20_000);
        let counters = lanes.engine.counters();
        assert!(counters.balance());
        assert_eq!(counters.traffic.out_sent, sent.load(Relaxed), "what was numbered has left");
    }
}

#[test]
fn the_stages_of_a_measured_batch_add_up_to_its_time() {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    static BUSY: AtomicU64 = AtomicU64::new(0);
    // Every reading is 10 ns after the last; what the stages have is what was read between the
    // first and the last.
    let fake = Stopwatch {
        read: || {
            BUSY.fetch_add(10, Relaxed);
            TICKS.fetch_add(10, Relaxed)
        },
        cost: 0,
    };
    let wire = Arc::new(Wire::default());
    let io = MemoryIo { outgoing: Some(wire.clone()), ..MemoryIo::new() };
    let frames = (0..8).map(|f| frame(f, 300)).collect();
    let a = MemoryDevice { numbered: true, ..device(frames, 64) };
    let a = lanes(io, a, engine(1), 1, fake);
    a.turn_out(Duration::from_secs(1));
    let out = a.stats().stages.outbound;
    let total = BUSY.swap(0, Relaxed);
    assert_eq!((out.packets, out.bytes), (64, 64 * 328));
    let check = |times: &ironswan_ipsec::StageTimes, total: u64, missing: &[Stage]| {
        for stage in Stage::ALL {
            assert_eq!(times.of(stage) == 0, missing.contains(&stage), "{}", stage.name());
        }
        let sum: u64 = times.ns.iter().sum();
        assert!(sum <= total && sum * 10 >= total * 8, "{sum} of {total}");
    };
    check(&out, total, &[]);
    let io = MemoryIo { incoming: Some(wire), ..MemoryIo::new() };
    let b = lanes(io, device(vec![vec![0; 20]], 0), engine(2), 1, fake);
    b.turn_in(token::NATT, Duration::from_secs(1));
    let inb = b.stats().stages.inbound;
    assert_eq!((inb.packets, inb.bytes), (64, 64 * 328));
    check(&inb, BUSY.swap(0, Relaxed), &[]);
}

/// Frames of one turn, the last of which does not fit its batch: small ones, and one that is cut
/// into many packets.
fn crowded() -> (Vec<Vec<u8>>, u64) {
    const SEGMENT: usize = 100;
    const SEGMENTS: usize = 600;
    let mut frames: Vec<Vec<u8>> = (0..255).map(|i| frame(i, 36)).collect();
    let mut large = frame(999, SEGMENT * SEGMENTS);
    let csum = Some((20, 6));
    let offload = Offload { gso: Gso::UdpL4, segment_size: SEGMENT as u16, csum, ..Offload::NONE };
    large[..10].copy_from_slice(&offload.emit());
    frames.push(large);
    (frames, 255 + SEGMENTS as u64)
}

#[test]
fn frames_that_did_not_fit_their_batch_leave_in_the_same_round_after_those_before_them() {
    let (frames, packets) = crowded();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let mut io = MemoryIo::new();
    io.sent =
        Some(Box::new(move |packet| lock(&seen).push(u32::from_be_bytes(packet[4..8].try_into().unwrap()))));
    let count = frames.len() as u64;
    let lanes = lanes(io, device(frames, count), engine(1), 1, stopwatch());
    let now = Duration::from_secs(1);
    assert!(lanes.turn_out(now));
    assert_eq!(lock(&sent).len(), 255, "the turn is over, and one frame is left");
    assert!(lock(&lanes.out).is_owed());
    lanes.end_round(now, &mut 0);
    assert!(!lock(&lanes.out).is_owed());
    assert!(lock(&sent).iter().copied().eq(1..=packets as u32), "all, in their order");
    let counters = lanes.engine.counters();
    assert!(counters.balance() && counters.traffic.out_sent == packets, "{counters:?}");
}

#[test]
fn while_others_have_all_batches_nothing_is_read_and_afterwards_everything_is() {
    const WORKERS: usize = 3;
    let now = Duration::from_secs(1);
    let sent = Arc::new(AtomicU64::new(0));
    let seen = sent.clone();
    let datagrams = sealed(36, 200);
    let mut io = MemoryIo { limit: datagrams.len() as u64, sealed: datagrams, ..MemoryIo::new() };
    io.sent = Some(Box::new(move |_| _ = seen.fetch_add(1, Relaxed)));
    let frames = (0..8).map(|f| frame(f, 36)).collect();
    let lanes = lanes(io, device(frames, 100), engine(1), WORKERS, stopwatch());
    let (mut out, mut input) = (Vec::new(), Vec::new());
    out.extend(std::iter::from_fn(|| lanes.out_pool.take()));
    input.extend(std::iter::from_fn(|| lanes.in_pool.take()));
    assert_eq!((out.len(), input.len()), (lanes.batches, lanes.batches), "as many as there are, and no more");
    for round in 1..=2u64 {
        assert!(lanes.turn_out(now));
        for source in [token::NATT, token::IKE, token::RAW, token::AH] {
            lanes.turn_in(source, now);
        }
        assert!(lanes.waited.load(Relaxed), "once in the round, whatever is ready");
        assert!(lanes.end_round(now, &mut 0).is_some(), "there is another one soon");
        assert!(!lanes.waited.load(Relaxed));
        let stats = lanes.stats();
        // The device's turn, four sources, and what would leave by itself.
        assert_eq!((stats.exhausted, stats.tun_reads, stats.receives), (6 * round, 0, 0));
    }
    assert_eq!(sent.load(Relaxed), 0);
    // One comes back on each side: it is the first worker's, not the others'.
    lanes.out_pool.put(out.pop().unwrap());
    lanes.in_pool.put(input.pop().unwrap());
    assert!(!lanes.assist_out(now) && !lanes.assist_in(token::NATT, now));
    assert_eq!((lanes.stats().tun_reads, lanes.stats().receives), (0, 0));
    lanes.turn_in(token::NATT, now);
    assert_eq!(lanes.stats().receives, 1);
    out.into_iter().for_each(|b| lanes.out_pool.put(b));
    input.into_iter().for_each(|b| lanes.in_pool.put(b));
    while lanes.stats().tun_reads < 100 || lanes.io.received.load(Relaxed) < lanes.io.limit {
        lanes.turn_out(now);
        lanes.turn_in(token::NATT, now);
        lanes.end_round(now, &mut 0);
    }
    let counters = lanes.engine.counters();
    assert!(counters.balance(), "{counters:?}");
    assert_eq!((counters.traffic.out_sent, sent.load(Relaxed)), (100, 100));
    // There is no SA here for what arrived: it was looked up, packet for packet.
    assert_eq!(counters.traffic.in_packets, 200);
    assert_eq!(lanes.stats().exhausted, 12);
    assert!(std::iter::from_fn(|| lanes.in_pool.take()).count() == lanes.batches, "all are back");
}

/// A flood that keeps other workers busy all the time takes neither of its turns from a second
/// source: the batches that it can fill are bounded, and one is always left.
#[test]
fn a_flood_on_one_source_leaves_a_batch_for_all_others() {
    let now = Duration::from_secs(1);
    let datagrams = sealed(36, 50);
    let io = MemoryIo { limit: u64::MAX, sealed: datagrams, ..MemoryIo::new() };
    let lanes = lanes(io, device(vec![vec![0; 20]], 0), engine(2), 4, stopwatch());
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 1..4 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    lanes.assist_in(token::NATT, now);
                }
            });
        }
        // A batch may be missing for as long as one of the first worker's own waits for another's
        // turn: that is counted.
        let mut turns = 0;
        while turns < 200 {
            let before = lanes.stats().exhausted;
            lanes.turn_in(token::RAW, now);
            turns += u64::from(lanes.stats().exhausted == before);
            lanes.end_round(now, &mut 0);
        }
        stop.store(true, Relaxed);
    });
    assert!(lanes.stats().receives >= 200);
}
