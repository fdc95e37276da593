//! What one worker seals, another opens, for every suite, family and encapsulation; and the sends
//! are as the kernel wants them.

use ironswan_ipsec::{Carrier, DropReason, TxConfig};
use ironswan_wire::offload::{Gso, Offload};

use crate::common::*;

#[test]
fn every_suite_and_family_there_and_back() {
    for algorithm in ALGORITHMS {
        for esn in [false, true] {
            for (outer_v6, udp_encap) in [(false, true), (false, false), (true, true), (true, false)] {
                let mut pair =
                    Pair::new(Options { algorithm, esn, outer_v6, udp_encap, ..Options::default() });
                let mut sent = Vec::new();
                for len in (0..40).chain([1000, 1348, 1372]) {
                    for spec in [Spec::tcp(len), Spec::udp(len)] {
                        sent.push(spec.clone().over_v6().build());
                        sent.push(spec.build());
                    }
                }
                let frames: Vec<_> = sent.iter().map(|p| (p.clone(), Offload::NONE)).collect();
                let esp = pair.seal(&frames);
                assert_eq!(esp.len(), sent.len());
                assert_eq!(pair.open_each(&esp), sent, "{}", algorithm.name);
                assert_eq!(pair.dropped(), None);
                let s = pair.in_stats();
                assert_eq!(s.packets, sent.len() as u64);
                assert_eq!(s.bytes, sent.iter().map(|p| p.len() as u64).sum::<u64>());
                assert_eq!(s.last_use, 1);
                assert_eq!(pair.a.sa_stats(pair.out_ref()), Some(s));
                for p in &esp {
                    assert_eq!(p[..4], SPI.to_be_bytes());
                }
                let numbers: Vec<u32> =
                    esp.iter().map(|p| u32::from_be_bytes(p[4..8].try_into().unwrap())).collect();
                assert!(numbers.iter().copied().eq(1..=esp.len() as u32), "the first packet has number 1");
            }
        }
    }
}

#[test]
fn sends_have_equal_strides_and_only_the_last_is_shorter() {
    for (max_segments, max_bytes) in [(64, 65_400), (128, 65_400), (1, 65_400), (16, 9_000)] {
        let tx = TxConfig { capacity: 1 << 20, max_segments, max_bytes };
        let mut pair = Pair::new(Options { tx, ..Options::default() });
        let sizes = [64_704, 64_704, 30_000, 1_348, 1_348, 5, 64_704, 100, 100, 100, 99, 100];
        let frames: Vec<_> = sizes.iter().map(|n| Spec::tcp(*n).superpacket(1_348)).collect();
        let esp = pair.seal(&frames);
        let mut end = 0;
        for s in &pair.tx.sends {
            assert_eq!(s.offset, end, "without gaps");
            end = s.offset + s.len;
            assert!(s.segments <= max_segments && s.len as usize <= max_bytes);
            let (n, stride) = (u32::from(s.segments), u32::from(s.segment_size));
            assert!((n - 1) * stride < s.len && s.len <= n * stride, "{s:?}");
        }
        assert_eq!(end as usize, pair.tx.used());
        let want: Vec<_> = sizes.iter().flat_map(|n| Spec::tcp(*n).segments(1_348)).collect();
        assert_eq!(pair.open_each(&esp), want);
        // A later read's packets join the send of an earlier one.
        if max_segments == 64 {
            assert_eq!(pair.tx.sends[0].segments, 45, "filled to 65,400 bytes");
            assert_eq!(pair.tx.sends[1].segments, 45, "across the reads");
        }
    }
}

#[test]
fn raw_esp_is_one_send_a_packet() {
    let mut pair = Pair::new(Options { udp_encap: false, ..Options::default() });
    let esp = pair.seal(&[Spec::tcp(64_704).superpacket(1_348)]);
    assert_eq!(esp.len(), 48);
    assert_eq!(pair.tx.sends.len(), 48);
    assert!(pair.tx.sends.iter().all(|s| s.carrier == Carrier::Esp && s.segments == 1));
}

#[test]
fn packets_of_another_tos_go_into_a_send_of_their_own() {
    let mut pair = Pair::new(Options::default());
    let tos = [0, 0, 3, 0xb8, 0xb8];
    let frames: Vec<_> =
        tos.iter().map(|t| (Spec { tos: *t, ..Spec::udp(100) }.build(), Offload::NONE)).collect();
    pair.seal(&frames);
    let got: Vec<_> = pair.tx.sends.iter().map(|s| (s.tos, s.segments)).collect();
    assert_eq!(got, [(0, 2), (3, 1), (0xb8, 2)]);
}

#[test]
fn a_full_batch_takes_nothing_and_loses_nothing() {
    let tx = TxConfig { capacity: 80_000, ..TxConfig::default() };
    let mut pair = Pair::new(Options { tx, ..Options::default() });
    let (frame, offload) = Spec::tcp(30_000).superpacket(1_348);
    assert!(pair.wa.outbound(&mut frame.clone(), &offload, &mut pair.tx));
    assert!(pair.tx.has_room(frame.len(), &offload));
    assert!(pair.wa.outbound(&mut frame.clone(), &offload, &mut pair.tx));
    assert!(!pair.tx.has_room(frame.len(), &offload));
    assert!(!pair.wa.outbound(&mut frame.clone(), &offload, &mut pair.tx));
    pair.wa.seal(&mut pair.tx);
    let c = pair.a.counters();
    assert_eq!((c.traffic.out_frames, c.traffic.out_made, c.traffic.out_sent), (2, 44, 46));
    assert!(c.balance() && c.dropped_out() == 0);
    pair.tx.clear();
    assert!(pair.wa.outbound(&mut frame.clone(), &offload, &mut pair.tx));
    // Only the rough bound says that this does not fit.
    pair.tx.clear();
    let (frame, offload) = Spec::tcp(30_000).superpacket(100);
    assert!(!pair.tx.has_room(frame.len(), &offload));
    assert_eq!(pair.seal(&[(frame, offload)]).len(), 300);
    // What does not fit an empty batch is dropped under its reason.
    pair.tx.clear();
    let (big, offload) = Spec::tcp(64_000).superpacket(50);
    assert!(pair.wa.outbound(&mut big.clone(), &offload, &mut pair.tx));
    pair.wa.seal(&mut pair.tx);
    assert_eq!(pair.a.counters().dropped(DropReason::OutTooBig), 1);
    assert!(pair.a.counters().balance());
}

#[test]
fn the_longest_packets() {
    let mut pair = Pair::new(Options::default());
    // 65,507 less SPI, number, IV and ICV is 65,475; the text is a multiple of 4 and ends in a
    // trailer of 2.
    let longest = 65_472 - 2 - 20 - 8;
    for len in [longest - 1, longest] {
        let spec = Spec::udp(len);
        let esp = pair.seal_one(&spec.build());
        assert!(esp.len() <= 65_507);
        assert_eq!(pair.open_each(&[esp]), [spec.build()]);
    }
    assert!(pair.wa.outbound(&mut Spec::udp(longest + 1).build(), &Offload::NONE, &mut pair.tx));
    pair.wa.begin(SECOND);
    assert_eq!(pair.a.counters().dropped(DropReason::OutTooBig), 1);
}

#[test]
fn an_unfinished_checksum_is_finished() {
    for spec in [Spec::tcp(101), Spec::udp(101), Spec::tcp(0), Spec::udp(0)] {
        for spec in [spec.clone(), spec.over_v6()] {
            let mut pair = Pair::new(Options::default());
            let (frame, offload) = spec.superpacket(1_348);
            assert_eq!(offload.gso, Gso::None);
            assert_ne!(frame, spec.build());
            let esp = pair.seal(&[(frame, offload)]);
            assert_eq!(pair.open_each(&esp), [spec.build()]);
        }
    }
}

#[test]
fn offload_headers_that_contradict_the_packet_are_dropped() {
    let mut pair = Pair::new(Options::default());
    let (tcp, good) = Spec::tcp(4_000).superpacket(1_000);
    let (udp, _) = Spec::udp(4_000).superpacket(1_000);
    let mut fragment = tcp.clone();
    fragment[6] |= 0x20;
    let mut doff = tcp.clone();
    doff[32] = 0xf0;
    doff.truncate(70);
    doff[2..4].copy_from_slice(&70u16.to_be_bytes());
    let whole = Offload { gso: Gso::None, segment_size: 0, ..good };
    let cases = [
        (tcp.clone(), Offload { gso: Gso::TcpV6, ..good }),
        (tcp.clone(), Offload { gso: Gso::UdpL4, ..good }),
        (udp, good),
        (fragment, good),
        (doff, good),
        (tcp[..3_000].to_vec(), good),
        ([tcp.clone(), vec![0]].concat(), good),
        (tcp.clone(), Offload { csum: Some((20, 65_000)), ..whole }),
        (tcp.clone(), Offload { csum: Some((65_000, 16)), ..whole }),
        (tcp.clone(), Offload { csum: Some((65_535, 65_535)), ..whole }),
        (tcp.clone(), Offload { csum: Some((0, 2)), ..whole }),
        // Into the addresses, which policy has been asked about.
        (Spec::tcp(100).over_v6().build(), Offload { csum: Some((20, 4)), ..whole }),
        (Spec::tcp(100).over_v6().build(), Offload { csum: Some((39, 1)), ..whole }),
    ];
    let n = cases.len() as u64;
    assert_eq!(pair.seal(&cases).len(), 0);
    let c = pair.a.counters();
    assert_eq!(c.dropped(DropReason::OutOffloadError) + c.dropped(DropReason::OutHdrError), n);
    assert!(c.balance());
}
