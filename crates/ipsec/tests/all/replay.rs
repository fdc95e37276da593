//! The replay window of RFC 4303 at the engine's edge: the sequence that VPP tests its engine with,
//! for every window size, with and without extended sequence numbers.

use ironswan_ipsec::Carrier;
use ironswan_ipsec::DropReason::{self, *};
use ironswan_wire::sadb::Up;

use crate::common::*;

const WINDOWS: [u32; 8] = [32, 33, 64, 128, 1024, 4096, 65_536, 131_072];

struct Run {
    pair: Pair,
    dropped: u64,
}

impl Run {
    fn new(window: u32, esn: bool) -> Self {
        Self { pair: Pair::new(Options { window, esn, ..Options::default() }), dropped: 0 }
    }

    /// The packet with this sequence number: a fresh sender that has jumped there.
    fn packet(&self, seq: u64) -> Vec<u8> {
        let mut sender = Pair::new(self.pair.options.clone());
        sender.a.advance_sequence(sender.out_ref(), seq - 1).unwrap();
        sender.seal_one(&Spec::udp(20).build())
    }

    fn open(&mut self, esp: &[Vec<u8>]) -> usize {
        let n = self.pair.open_each(esp).len();
        let c = self.pair.b.counters();
        assert!(c.balance());
        self.dropped += (esp.len() - n) as u64;
        assert_eq!(c.dropped_in(), self.dropped);
        n
    }

    fn accept(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            let p = self.packet(seq);
            assert_eq!(self.open(&[p]), 1, "{seq:#x} is accepted ({:?})", self.pair.options.window);
        }
    }

    /// Refused, for this reason.
    fn refuse(&mut self, seqs: impl IntoIterator<Item = u64>, reason: DropReason) {
        for seq in seqs {
            let p = self.packet(seq);
            let before = self.pair.b.counters().dropped(reason);
            assert_eq!(self.open(&[p]), 0, "{seq:#x} is refused");
            assert_eq!(
                self.pair.b.counters().dropped(reason),
                before + 1,
                "{seq:#x} {:?}",
                self.pair.b.counters()
            );
        }
    }
}

#[test]
fn the_sequence_of_vpp() {
    for window in WINDOWS {
        for esn in [false, true] {
            let mut run = Run::new(window, esn);
            let w = u64::from(window);
            run.accept(1..=34);
            // Again: what is still inside is a duplicate; with a window of 32 or 33 the oldest have
            // left it.
            for seq in 1..=34 {
                let inside = seq + w > 34;
                // Left of the window, an extended number is taken for the next subspace, and its
                // ICV is wrong.
                let reason = match (inside, esn) {
                    (true, _) => InStateSeqDuplicate,
                    (false, false) => InStateSeqOld,
                    (false, true) => InStateProtoError,
                };
                run.refuse([seq], reason);
            }
            // Eight copies in one batch: one comes through.
            let p = run.packet(35);
            let out = run.pair.open(&vec![p; 8]);
            assert_eq!(out.len(), 1);
            run.dropped += 7;
            assert!(run.pair.b.counters().dropped(InStateSeqDuplicate) >= 7);
            run.accept([257]);
            run.refuse([257; 3], InStateSeqDuplicate);
            if w > 57 {
                run.accept([200]);
                run.refuse([200], InStateSeqDuplicate);
            }
            // A wrong ICV does not move the window, even far ahead.
            let mut bad = run.packet(350);
            *bad.last_mut().unwrap() ^= 1;
            assert_eq!(run.open(&vec![bad; 17]), 0);
            assert_eq!(run.pair.b.sas()[0].sequence, 257);
            run.accept([234]);
            // A runt.
            let runt = run.packet(300)[..12].to_vec();
            assert_eq!(run.open(&[runt]), 0);
            // 17 again: outside a small window.
            let reason = match (17 + w > 257, esn) {
                (true, _) => InStateSeqDuplicate,
                (false, false) => InStateSeqOld,
                (false, true) => InStateProtoError,
            };
            run.refuse([17], reason);
            run.accept([258]);
        }
    }
}

#[test]
fn extended_numbers_around_the_wrap_of_the_low_half() {
    for window in WINDOWS {
        let w = u64::from(window);
        let mut run = Run::new(window, true);
        run.pair.b.advance_sequence(run.pair.in_ref(), 0xffff_fff0).unwrap();
        run.accept([0xffff_fffe]);
        run.accept([0x1_0000_0005]);
        run.accept([0xffff_fffd]);
        run.refuse([0xffff_fffd, 0xffff_fffe, 0x1_0000_0005], InStateSeqDuplicate);
        // More than half a number space ahead: taken for an older subspace, and the ICV says no.
        run.refuse([0x2_0000_0999], InStateProtoError);
        run.accept([0x1_0000_0555]);
        // From low half 0x555 to 0x444 of the next subspace: less than 2^32 ahead, but only if the
        // window does not reach it.
        let inside = 0x555 - 0x444 < w;
        if inside {
            run.refuse([0x2_0000_0444], InStateProtoError);
        } else {
            run.accept([0x2_0000_0444]);
        }
        // The left edge, exactly.
        let mut run = Run::new(window, true);
        run.pair.b.advance_sequence(run.pair.in_ref(), 0x5_0000_0003).unwrap();
        run.accept([0x5_0000_0003 + 1 - w, 0x5_0000_0003]);
        run.refuse([0x5_0000_0003 - w], InStateProtoError);
    }
}

#[test]
fn the_sender_never_wraps_without_extended_numbers() {
    let mut pair = Pair::new(Options::default());
    pair.a.advance_sequence(pair.out_ref(), 0xffff_fff0).unwrap();
    let frame = Spec::udp(20).build();
    for n in 0xffff_fff1u32..=0xffff_ffff {
        assert_eq!(pair.seal_one(&frame)[4..8], n.to_be_bytes());
    }
    for _ in 0..5 {
        assert!(pair.seal(&[(frame.clone(), ironswan_wire::offload::Offload::NONE)]).is_empty());
    }
    let c = pair.a.counters();
    assert_eq!(c.dropped(OutStateSeqError), 5);
    assert!(c.balance());
    let sa = pair.out_ref();
    assert_eq!(
        pair.a.take_up(),
        [Up::Expire { sa, hard: false }, Up::Expire { sa, hard: true }],
        "each once"
    );
}

#[test]
fn a_superpacket_takes_all_its_numbers_or_none() {
    let mut pair = Pair::new(Options::default());
    pair.a.advance_sequence(pair.out_ref(), 0xffff_ffff - 10).unwrap();
    assert!(pair.seal(&[Spec::tcp(11_000).superpacket(1_000)]).is_empty());
    assert_eq!(pair.seal(&[Spec::tcp(10_000).superpacket(1_000)]).len(), 10);
    assert!(pair.a.counters().balance());
}

#[test]
fn the_sender_wraps_the_low_half_with_extended_numbers() {
    for algorithm in ALGORITHMS {
        let mut pair = Pair::new(Options { algorithm, esn: true, ..Options::default() });
        pair.a.advance_sequence(pair.out_ref(), 0xffff_fff0).unwrap();
        pair.b.advance_sequence(pair.in_ref(), 0xffff_fff0).unwrap();
        let frame = Spec::udp(20).build();
        let esp: Vec<_> = (0..40).map(|_| pair.seal_one(&frame)).collect();
        assert_eq!(esp[15][4..8], [0; 4]);
        assert_eq!(pair.open_each(&esp).len(), 40);
        assert_eq!(pair.b.sas()[0].sequence, 0x1_0000_0018);
        assert!(pair.a.take_up().is_empty(), "nothing expires");
        pair.a.advance_sequence(pair.out_ref(), u64::MAX).unwrap();
        assert!(pair.seal(&[(frame, ironswan_wire::offload::Offload::NONE)]).is_empty());
        assert_eq!(pair.a.counters().dropped(OutStateSeqError), 1);
    }
}

#[test]
fn a_rekey_is_asked_for_in_time() {
    let mut pair = Pair::new(Options::default());
    pair.a.advance_sequence(pair.out_ref(), 0xf000_0000 - 3).unwrap();
    let frame = Spec::udp(20).build();
    pair.seal_one(&frame);
    assert!(pair.a.take_up().is_empty());
    for _ in 0..5 {
        pair.seal_one(&frame);
    }
    assert_eq!(pair.a.take_up(), [Up::Expire { sa: pair.out_ref(), hard: false }]);
}

#[test]
fn without_a_window_duplicates_are_delivered() {
    for esn in [false, true] {
        let mut run = Run::new(0, esn);
        run.accept([5, 5, 3, 100_000, 3, 5]);
    }
}

#[test]
fn any_order_within_the_window_is_accepted_once() {
    for window in WINDOWS {
        let mut pair = Pair::new(Options { window, ..Options::default() });
        let frame = Spec::udp(20).build();
        let window = window.min(4_096);
        let mut esp: Vec<_> = (0..window).map(|_| pair.seal_one(&frame)).collect();
        esp.reverse();
        let twice = [&esp[..], &esp[..]].concat();
        let n: u64 = pair.open(&twice).len() as u64;
        let c = pair.b.counters();
        assert_eq!(n + c.traffic.in_merged, u64::from(window));
        assert_eq!(pair.dropped(), Some((InStateSeqDuplicate, u64::from(window))));
    }
}

#[test]
fn several_threads_deliver_each_number_once() {
    let mut pair = Pair::new(Options { window: 4096, ..Options::default() });
    let frame = Spec::udp(20).build();
    let esp: Vec<_> = (0..2_000).map(|_| pair.seal_one(&frame)).collect();
    let (remote, local) = pair.options.outer();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (engine, esp) = (pair.b.clone(), &esp);
            scope.spawn(move || {
                let mut worker = ironswan_ipsec::Worker::new(engine);
                let mut rx = ironswan_ipsec::RxBatch::new();
                for chunk in esp.chunks(32) {
                    worker.begin(SECOND);
                    let mut buf = chunk.concat();
                    let d = ironswan_ipsec::Datagram {
                        offset: 0,
                        len: buf.len() as u32,
                        segment_size: chunk[0].len() as u16,
                        local,
                        remote,
                        carrier: Carrier::Udp,
                        tos: 0,
                    };
                    rx.clear();
                    worker.inbound(&mut buf, &[d], &mut rx);
                }
            });
        }
    });
    let c = pair.b.counters();
    assert!(c.balance(), "{c:?}");
    assert_eq!(c.traffic.in_packets, 8_000);
    assert_eq!(c.traffic.in_writes + c.traffic.in_merged, 2_000);
    assert_eq!(c.dropped(InStateSeqDuplicate) + c.dropped(InStateSeqOld), 6_000);
}
