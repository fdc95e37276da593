//! ESP that no honest peer sends (reliability checklist, items 32 and 33): each is dropped under
//! its reason, nothing of the SA changes before the ICV was right.

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::Carrier;
use ironswan_ipsec::DropReason::{self, *};
use ironswan_wire::ip::{tcp, v4};
use ironswan_wire::sadb::{Action, Command, Entry, PolicyAdd};
use proptest::prelude::*;

use crate::common::*;
use crate::in_common::{Make, Receiver};

/// Seals any text with the pair's key, so that what is behind the ICV can be wrong in any way.
fn forge(pair: &Pair, seq: u64, text: &[u8]) -> Vec<u8> {
    let sa = pair.options.sa(ironswan_wire::sadb::Direction::Out, SPI, REQID, 42);
    let key =
        EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(9)).unwrap();
    let mut p = SPI.to_be_bytes().to_vec();
    p.extend_from_slice(&(seq as u32).to_be_bytes());
    p.resize(8 + key.iv_len(), 0);
    p.extend_from_slice(text);
    p.resize(p.len() + key.icv_len(), 0);
    let mut jobs = [Job { start: 0, len: p.len() as u32, seq, key: 0, ok: false }];
    batch::seal(&mut p, &mut jobs, &[&key]);
    assert!(jobs[0].ok);
    p
}

/// A text with padding to a multiple of `block` and a next header.
fn text(inner: &[u8], next_header: u8, block: usize) -> Vec<u8> {
    let mut t = inner.to_vec();
    let mut pad = 0u8;
    while !(t.len() + 2).is_multiple_of(block) {
        pad += 1;
        t.push(pad);
    }
    t.extend_from_slice(&[pad, next_header]);
    t
}

/// Opens one forged text in a fresh pair and returns what became of it.
fn fate(text: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
    let mut pair = Pair::new(Options::default());
    let esp = forge(&pair, 1, text);
    let out = pair.open_each(&[esp]);
    match pair.dropped() {
        Some((reason, 1)) => {
            assert!(out.is_empty());
            // It is authentic: the peer has used a number of the SA for it.
            assert_eq!(pair.in_stats().packets, 1);
            Err(reason)
        }
        None => Ok(out),
        other => panic!("{other:?}"),
    }
}

fn inner_fate(packet: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
    fate(&text(packet, if packet.first().is_some_and(|b| b >> 4 == 6) { 41 } else { 4 }, 4))
}

/// SPI, sequence number, pad length, next header.
const ESP_MIN: usize = 10;

/// The bytes of the IV and the ICV.
fn algorithm_overhead(pair: &Pair) -> usize {
    let sa = pair.options.sa(ironswan_wire::sadb::Direction::In, SPI, REQID, 42);
    let key =
        EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(9)).unwrap();
    key.iv_len() + key.icv_len()
}

#[test]
fn esp_of_0_to_40_bytes() {
    for algorithm in ALGORITHMS {
        for len in 0..=40 {
            let mut pair = Pair::new(Options { algorithm, ..Options::default() });
            let mut p = SPI.to_be_bytes().to_vec();
            p.extend_from_slice(&1u32.to_be_bytes());
            p.resize(len.max(8), 0x55);
            p.truncate(len);
            assert!(pair.open(&[p]).is_empty());
            let (reason, n) = pair.dropped().unwrap();
            let least = ESP_MIN + algorithm_overhead(&pair);
            assert_eq!(reason, if len < least { InHdrError } else { InStateProtoError }, "{len} of {least}");
            assert_eq!(n, 1);
            assert_eq!(pair.b.sas()[0].sequence, 0, "the window has not moved");
        }
    }
}

#[test]
fn reserved_and_unknown_spis() {
    for (spi, reason) in [
        (0, InReservedSpi),
        (1, InReservedSpi),
        (255, InReservedSpi),
        (256, InNoStates),
        (SPI + 1, InNoStates),
        (u32::MAX, InNoStates),
    ] {
        let mut pair = Pair::new(Options::default());
        let mut p = pair.seal_one(&Spec::udp(100).build());
        p[..4].copy_from_slice(&u32::to_be_bytes(spi));
        assert!(pair.open(&[p]).is_empty());
        assert_eq!(pair.dropped(), Some((reason, 1)));
    }
}

#[test]
fn sequence_number_zero() {
    let mut pair = Pair::new(Options::default());
    let p = forge(&pair, 0, &text(&Spec::udp(10).build(), 4, 4));
    assert!(pair.open(&[p]).is_empty());
    assert_eq!(pair.dropped(), Some((InStateSeqOld, 1)));
}

#[test]
fn one_bit_off_anywhere() {
    for algorithm in ALGORITHMS {
        for esn in [false, true] {
            let mut pair = Pair::new(Options { algorithm, esn, ..Options::default() });
            let good = pair.seal_one(&Spec::udp(40).build());
            // Not the SPI: that is another SA.
            let bad: Vec<_> = (32..good.len() * 8)
                .map(|bit| {
                    let mut p = good.clone();
                    p[bit / 8] ^= 1 << (bit % 8);
                    p
                })
                .collect();
            assert!(pair.open(&bad).is_empty());
            let c = pair.b.counters();
            assert_eq!(c.dropped_in(), bad.len() as u64);
            assert!(
                c.dropped(InStateProtoError) >= bad.len() as u64 - 1,
                "a number of zero is dropped before"
            );
            assert_eq!(pair.b.sas()[0].sequence, 0, "the window has not moved");
            assert_eq!(pair.open_each(&[good]).len(), 1, "and the good one still comes through");
        }
    }
}

#[test]
fn every_length_of_a_cut_packet() {
    for algorithm in ALGORITHMS {
        let mut pair = Pair::new(Options { algorithm, ..Options::default() });
        let good = pair.seal_one(&Spec::udp(40).build());
        let bad: Vec<_> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
        assert!(pair.open(&bad).is_empty());
        assert_eq!(pair.b.counters().dropped_in(), bad.len() as u64);
        assert_eq!(pair.b.sas()[0].sequence, 0);
    }
}

#[test]
fn pad_length_beyond_the_text() {
    let packet = Spec::udp(10).build();
    for pad in [packet.len() as u8 + 1, 200, 255] {
        let mut t = packet.clone();
        t.extend_from_slice(&[pad, 4]);
        assert_eq!(fate(&t), Err(InTrailerError));
    }
}

#[test]
fn padding_that_is_not_1_2_3() {
    let packet = Spec::udp(9).build();
    for wrong in [[0, 0, 0], [1, 2, 4], [2, 2, 3], [3, 2, 1], [1, 1, 1]] {
        let t = [&packet[..], &wrong, &[3, 4]].concat();
        assert_eq!(fate(&t), Err(InTrailerError));
    }
}

#[test]
fn pad_length_255_is_legal() {
    let packet = Spec::udp(10).build();
    let padding: Vec<u8> = (1..=255).collect();
    assert_eq!(fate(&[&packet[..], &padding, &[255, 4]].concat()), Ok(vec![packet]));
}

#[test]
fn a_dummy_is_absorbed_and_moves_the_window() {
    let mut pair = Pair::new(Options::default());
    let p = forge(&pair, 7, &text(&[0; 50], 59, 4));
    assert!(pair.open(std::slice::from_ref(&p)).is_empty());
    assert_eq!(pair.dropped(), None);
    assert_eq!(pair.b.counters().traffic.in_dummies, 1);
    assert_eq!(pair.b.sas()[0].sequence, 7);
    assert!(pair.open(&[p]).is_empty());
    assert_eq!(pair.dropped(), Some((InStateSeqDuplicate, 1)));
}

#[test]
fn next_headers_that_tunnel_mode_does_not_have() {
    let packet = Spec::udp(10).build();
    for next in [0, 1, 6, 17, 50, 51, 58, 94, 255] {
        assert_eq!(fate(&text(&packet, next, 4)), Err(InStateModeError), "{next}");
    }
}

#[test]
fn a_next_header_that_contradicts_the_inner_version() {
    assert_eq!(fate(&text(&Spec::udp(10).build(), 41, 4)), Err(InInnerVersion));
    assert_eq!(fate(&text(&Spec::udp(10).over_v6().build(), 4, 4)), Err(InInnerVersion));
    assert_eq!(fate(&text(&[], 4, 4)), Err(InInnerVersion));
    for nibble in [0, 5, 7, 15] {
        let mut p = Spec::udp(10).build();
        p[0] = nibble << 4 | 5;
        assert_eq!(fate(&text(&p, 4, 4)), Err(InInnerVersion));
        assert_eq!(fate(&text(&p, 41, 4)), Err(InInnerVersion));
    }
}

#[test]
fn an_ipv4_packet_on_an_ipv6_only_sa() {
    let mut options =
        Options { left: vec![ts("fd01::/32")], right: vec![ts("fd02::/32")], ..Options::default() };
    options.window = 64;
    let mut pair = Pair::new(options);
    let p = forge(&pair, 1, &text(&Spec::udp(10).build(), 4, 4));
    assert!(pair.open(&[p]).is_empty());
    assert_eq!(pair.dropped(), Some((InStateMismatch, 1)));
}

#[test]
fn traffic_flow_confidentiality_padding_is_cut_off() {
    for packet in [Spec::udp(100).build(), Spec::udp(100).over_v6().build(), Spec::tcp(0).build()] {
        let padded = [&packet[..], &bytes(1_000, 3)].concat();
        assert_eq!(inner_fate(&padded), Ok(vec![packet]));
    }
}

#[test]
fn inner_lengths_that_cannot_be() {
    let good = Spec::udp(100).build();
    let with_total = |total: u16| {
        let mut p = good.clone();
        p[2..4].copy_from_slice(&total.to_be_bytes());
        v4::set_checksum(&mut p[..20]);
        p
    };
    for total in [0, 1, 19, good.len() as u16 + 4, 65_535] {
        assert_eq!(inner_fate(&with_total(total)), Err(InInnerHdrError), "{total}");
    }
    for ihl in (0..5).chain([15]) {
        let mut p = Spec::udp(10).build();
        p[0] = 0x40 | ihl;
        assert_eq!(inner_fate(&p), Err(InInnerHdrError), "{ihl}");
    }
    for len in 1..20 {
        assert_eq!(inner_fate(&good[..len]), Err(InInnerHdrError));
    }
    let v6 = Spec::udp(100).over_v6().build();
    for len in 1..v6.len() - 3 {
        // The padding is not part of the packet, whatever its header says.
        assert_eq!(inner_fate(&v6[..len]), Err(InInnerHdrError), "{len}");
    }
}

#[test]
fn a_wrong_inner_header_checksum() {
    let mut p = Spec::udp(10).build();
    p[10] ^= 1;
    assert_eq!(inner_fate(&p), Err(InInnerChecksum));
}

#[test]
fn addresses_outside_the_selectors() {
    let cases = [
        ("10.1.0.1", "10.3.0.1"),
        ("10.3.0.1", "10.2.0.1"),
        ("10.2.0.1", "10.1.0.1"),
        ("10.0.255.255", "10.2.0.0"),
        ("10.2.0.0", "10.2.0.0"),
        ("10.1.0.1", "240.0.0.1"),
        ("10.1.0.1", "224.0.0.1"),
        ("10.1.0.1", "255.255.255.255"),
    ];
    for (src, dst) in cases {
        let p = Spec { src: ip(src), dst: ip(dst), ..Spec::udp(10) }.build();
        assert_eq!(inner_fate(&p), Err(InStateMismatch), "{src} > {dst}");
    }
    let p = Spec { src: ip("fd01::1"), dst: ip("fd03::1"), ..Spec::udp(10).over_v6() }.build();
    assert_eq!(inner_fate(&p), Err(InStateMismatch));
    for (src, dst) in [("10.1.0.0", "10.2.255.255"), ("10.1.255.255", "10.2.0.0")] {
        let p = Spec { src: ip(src), dst: ip(dst), ..Spec::udp(10) }.build();
        assert_eq!(inner_fate(&p), Ok(vec![p]), "the edges are inside");
    }
}

#[test]
fn addresses_that_no_packet_has_even_when_the_selectors_are_everything() {
    let any = |options: Options| Options {
        left: vec![ts("0.0.0.0/0"), ts("::/0")],
        right: vec![ts("0.0.0.0/0"), ts("::/0")],
        ..options
    };
    let v4 = [
        ("127.0.0.1", "10.2.0.1"),
        ("10.1.0.1", "127.0.0.1"),
        ("224.0.0.1", "10.2.0.1"),
        ("255.255.255.255", "10.2.0.1"),
        ("10.1.0.1", "0.0.0.0"),
        ("239.255.255.255", "10.2.0.1"),
        ("0.0.0.0", "255.255.255.255"),
    ];
    let v6 = [
        ("::1", "fd02::1"),
        ("::", "ff02::1"),
        ("fd01::1", "::1"),
        ("ff02::1", "fd02::1"),
        ("fd01::1", "::"),
    ];
    for (src, dst) in v4.into_iter().chain(v6) {
        let base = if src.contains(':') { Spec::udp(10).over_v6() } else { Spec::udp(10) };
        let p = Spec { src: ip(src), dst: ip(dst), ..base }.build();
        let mut pair = Pair::new(any(Options::default()));
        let esp = forge(&pair, 1, &text(&p, if p[0] >> 4 == 6 { 41 } else { 4 }, 4));
        assert!(pair.open(&[esp]).is_empty());
        assert_eq!(pair.dropped(), Some((InInnerMartian, 1)), "{src} > {dst}");
    }
    for (src, dst) in [("10.1.0.1", "255.255.255.255"), ("10.1.0.1", "224.0.0.9"), ("fd01::1", "ff02::1")] {
        let base = if src.contains(':') { Spec::udp(10).over_v6() } else { Spec::udp(10) };
        let p = Spec { src: ip(src), dst: ip(dst), ..base }.build();
        let mut pair = Pair::new(any(Options::default()));
        let esp = forge(&pair, 1, &text(&p, if p[0] >> 4 == 6 { 41 } else { 4 }, 4));
        assert_eq!(pair.open_each(&[esp]), [p], "{src} > {dst}");
    }
}

#[test]
fn a_flow_of_one_sa_opens_no_other() {
    let narrow = Options { left: vec![ts("10.1.0.9/32")], ..Options::default() };
    let narrow = Make { options: narrow, spi: SPI + 1, ..Make::default() };
    let mut r = Receiver::with(vec![Make::default(), narrow]);
    for seq in 1..3 {
        let _ = r.delivers(&r.esp_of(0, seq, &text(&Spec::udp(10).build(), 4, 16)));
        r.refuses(&r.esp_of(1, seq, &text(&Spec::udp(10).build(), 4, 16)), InStateMismatch);
    }
}

#[test]
fn ports_outside_the_selectors_and_fragments() {
    let port = |side: &str, from: u16, to: u16| {
        let mut t = ts(side);
        (t.protocol, t.start_port, t.end_port) = (17, from, to);
        t
    };
    let options = Options {
        left: vec![port("10.1.0.0/16", 1000, 2000)],
        right: vec![port("10.2.0.0/16", 53, 53)],
        ..Options::default()
    };
    let fate = |spec: Spec, fragment: u16| {
        let mut p = spec.build();
        p[6..8].copy_from_slice(&fragment.to_be_bytes());
        v4::set_checksum(&mut p[..20]);
        let mut pair = Pair::new(options.clone());
        let esp = forge(&pair, 1, &text(&p, 4, 4));
        let n = pair.open_each(&[esp]).len();
        (n, pair.dropped().map(|d| d.0))
    };
    let spec = |src, dst| Spec { ports: (src, dst), ..Spec::udp(100) };
    for src in [1000, 1500, 2000] {
        assert_eq!(fate(spec(src, 53), 0), (1, None));
    }
    for (src, dst) in [(999, 53), (2001, 53), (1000, 52), (1000, 54), (53, 1000)] {
        assert_eq!(fate(spec(src, dst), 0), (0, Some(InStateMismatch)));
    }
    assert_eq!(fate(Spec { tcp: true, ..spec(1000, 53) }, 0), (0, Some(InStateMismatch)));
    // RFC 4301 section 7: ports of a later fragment cannot be seen, so an SA with ports does not
    // carry it.
    assert_eq!(fate(spec(1000, 53), v4::MF), (1, None));
    assert_eq!(fate(spec(1000, 53), 100), (0, Some(InStateMismatch)));
    // An SA for all ports does.
    let mut p = Spec::udp(100).build();
    p[6..8].copy_from_slice(&100u16.to_be_bytes());
    v4::set_checksum(&mut p[..20]);
    assert_eq!(inner_fate(&p), Ok(vec![p]));
}

#[test]
fn a_discard_policy_holds_inbound_too() {
    let mut pair = Pair::new(Options::default());
    let discard = PolicyAdd {
        name: "hole".into(),
        action: Action::Discard,
        local: ts("10.2.0.0/16"),
        remote: ts("10.1.0.7/32"),
        priority: 0,
        entry: Entry::default(),
    };
    pair.b.apply(SECOND, &Command::PolicyAdd(discard.clone())).unwrap();
    pair.wb.begin(SECOND);
    let bad = pair.seal_one(&Spec { src: ip("10.1.0.7"), ..Spec::udp(10) }.build());
    let good = pair.seal_one(&Spec::udp(10).build());
    assert_eq!(pair.open_each(&[bad, good]).len(), 1);
    assert_eq!(pair.dropped(), Some((InPolBlock, 1)));
    pair.b.apply(SECOND, &Command::PolicyDelete(discard)).unwrap();
    pair.wb.begin(SECOND);
    let again = pair.seal_one(&Spec { src: ip("10.1.0.7"), ..Spec::udp(10) }.build());
    assert_eq!(pair.open_each(&[again]).len(), 1);
}

#[test]
fn congestion_experienced_outside_a_packet_that_cannot_say_so() {
    for (inner, outer, want) in
        [(0, 3, None), (0, 1, Some(0)), (2, 3, Some(3)), (1, 3, Some(3)), (2, 1, Some(1)), (3, 0, Some(3))]
    {
        for spec in [Spec::udp(10), Spec::udp(10).over_v6()] {
            let mut pair = Pair::new(Options::default());
            let spec = Spec { tos: 0xb8 | inner, ..spec };
            let esp = pair.seal_one(&spec.build());
            let out = pair.open_tos(&[esp], 0x20 | outer);
            let got: Vec<_> = out.into_iter().map(|(_, p)| p).collect();
            match want {
                Some(ecn) => assert_eq!(got, [Spec { tos: 0xb8 | ecn, ..spec }.build()]),
                None => {
                    assert!(got.is_empty());
                    assert_eq!(pair.dropped(), Some((InEcnError, 1)));
                }
            }
        }
    }
}

#[test]
fn what_the_kernel_judges_is_passed_on() {
    // A wrong TCP checksum, a source route, RH0, overlapping fragments: the packet is authentic and
    // inside the selectors.
    let mut wrong = Spec::tcp(100).build();
    wrong[36] ^= 1;
    let mut fragment = Spec::udp(100).build();
    fragment[6] = 0x20;
    v4::set_checksum(&mut fragment[..20]);
    let mut rh0 = Spec::udp(0).over_v6().build();
    rh0[6] = 43;
    rh0[4..6].copy_from_slice(&32u16.to_be_bytes());
    let mut chain = vec![17, 2, 0, 1, 0, 0, 0, 0];
    chain.extend_from_slice(&[0xfd; 16]);
    rh0.splice(40..40, chain);
    for p in [wrong, fragment, rh0] {
        assert_eq!(inner_fate(&p), Ok(vec![p]));
    }
}

#[test]
fn datagrams_outside_the_buffer() {
    let mut pair = Pair::new(Options::default());
    let esp = pair.seal_one(&Spec::udp(10).build());
    let (remote, local) = pair.options.outer();
    let d = |offset: u32, len: u32, segment_size: u16| ironswan_ipsec::Datagram {
        offset,
        len,
        segment_size,
        local,
        remote,
        carrier: Carrier::Udp,
        tos: 0,
    };
    let n = esp.len() as u32;
    let mut buf = esp;
    let all = [
        d(n, 1, 0),
        d(0, n + 1, 0),
        d(u32::MAX, 10, 0),
        d(1, n, 0),
        d(n, 0, 0),
        d(u32::MAX, u32::MAX, 65_535),
    ];
    pair.wb.inbound(&mut buf, &all, &mut pair.rx);
    assert!(pair.rx.writes.is_empty());
    let c = pair.b.counters();
    assert!(c.balance());
    // One each, whatever segments they claim; the empty one at the end is inside.
    assert_eq!((c.traffic.in_packets, c.dropped(InBufferError), c.dropped(InHdrError)), (6, 5, 1));
    pair.wb.inbound(&mut buf, &[d(0, n, 0)], &mut pair.rx);
    assert_eq!(pair.rx.writes.len(), 1);
}

#[test]
fn a_batch_that_changes_its_sa_too_often_is_cut_off() {
    let mut r = Receiver::with(vec![Make::default(), Make { spi: SPI + 1, ..Make::default() }]);
    let (first, second) = (r.esp_of(0, 1, &[0; 14]).bytes, r.esp_of(1, 1, &[0; 14]).bytes);
    let len = first.len() as u32;
    let mut buf = [first, second].concat();
    let (local, remote) = r.addresses();
    let datagram = |i: u32| ironswan_ipsec::Datagram {
        offset: i % 2 * len,
        len,
        segment_size: 0,
        local,
        remote,
        carrier: Carrier::Udp,
        tos: 0,
    };
    let batch: Vec<_> = (0..(1 << 16) + 9).map(datagram).collect();
    r.worker.inbound(&mut buf, &batch, &mut r.rx);
    let c = r.engine.counters();
    assert!(c.balance());
    // The last of the 2^16 runs may go on; whatever needs one more is dropped.
    assert_eq!(c.dropped(InBufferError), 5, "{c:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is inside a well-sealed packet: dropped under a reason or delivered as it is, and
    /// the books balance.
    #[test]
    fn any_text_behind_a_right_icv(inner: Vec<u8>, next in prop_oneof![Just(4u8), Just(41), Just(59), any::<u8>()], first in any::<u8>()) {
        let mut inner = inner;
        if let Some(b) = inner.first_mut() { *b = first & 0x2f | 0x40; }
        let mut pair = Pair::new(Options::default());
        let esp = forge(&pair, 1, &text(&inner, next, 4));
        for p in pair.open_each(&[esp]) {
            prop_assert_eq!(&inner[..p.len()], &p[..]);
        }
        prop_assert!(pair.b.counters().balance());
    }

    #[test]
    fn any_frame_from_the_device(frame: Vec<u8>, first in any::<u8>(), header: [u8; 10]) {
        let mut frame = frame;
        if let Some(b) = frame.first_mut() { *b = first & 0x2f | 0x40; }
        let mut pair = Pair::new(Options::default());
        if let Ok(offload) = ironswan_wire::offload::Offload::parse(&header) {
            let taken = pair.wa.outbound(&mut frame, &offload, &mut pair.tx);
            prop_assert!(taken);
            pair.wa.seal(&mut pair.tx);
            prop_assert!(pair.a.counters().balance());
        }
    }

    /// A real packet under any offload header.
    #[test]
    fn any_offload_header(header: [u8; 10], gso in 0u8..6, tcp: bool, v6: bool, len in 0usize..5_000) {
        let mut header = header;
        header[1] = gso;
        let spec = if tcp { Spec::tcp(len) } else { Spec::udp(len) };
        let mut frame = if v6 { spec.over_v6() } else { spec }.build();
        let mut options = Options::default();
        options.tx.capacity = 4 << 20;
        let mut pair = Pair::new(options);
        if let Ok(offload) = ironswan_wire::offload::Offload::parse(&header) {
            let taken = pair.wa.outbound(&mut frame, &offload, &mut pair.tx);
            prop_assert!(taken);
            pair.wa.seal(&mut pair.tx);
            let esp = packets(&pair.tx);
            for p in pair.open_each(&esp) {
                prop_assert!(p.len() >= 20 && tcp::MIN_HEADER == 20);
            }
            prop_assert!(pair.a.counters().balance() && pair.b.counters().balance());
        }
    }
}
