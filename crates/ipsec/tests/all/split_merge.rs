//! Cutting and merging: cut packets are the ones that the definition gives, and merging then
//! cutting again is the identity on bytes, so on ECN, TTL, identifications (where they mean
//! something) and options.

use ironswan_wire::ip::tcp::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Gso;
use proptest::prelude::*;

use crate::common::*;

#[test]
fn superpackets_are_cut_as_the_definition_says() {
    let flags = [ACK, ACK | PSH, ACK | PSH | FIN, ACK | CWR, ACK | CWR | ECE | PSH, ACK | ECE];
    for flags in flags {
        for (len, size) in
            [(64_704, 1_348), (64_705, 1_348), (3_000, 1), (3_001, 3_000), (5_000, 536), (9_001, 1_000)]
        {
            for spec in [Spec::tcp(len), Spec::udp(len)] {
                for spec in [spec.clone(), spec.over_v6()] {
                    let size = if spec.tcp { size } else { size.max(100) };
                    let spec = Spec { flags, tos: 2, id: 0xfffe, seq: u32::MAX - 2_000, ..spec };
                    let mut options = Options::default();
                    options.tx.capacity = 4 << 20;
                    let mut pair = Pair::new(options);
                    let esp = pair.seal(&[spec.superpacket(size)]);
                    let got = pair.open_each(&esp);
                    assert_eq!(got.len(), len.div_ceil(size));
                    assert!(got == spec.segments(size), "{flags:02x} {len} {size}");
                }
            }
        }
    }
}

/// Merges `packets`, checks that cutting gives them back in order, and returns the writes' packet
/// counts.
fn merged(packets: &[Vec<u8>]) -> Vec<usize> {
    let (all, sizes) = merged_and_cut(packets);
    assert!(all == packets, "not the identity");
    sizes
}

/// What merging and cutting makes of `packets`, and the writes' packet counts.
fn merged_and_cut(packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<usize>) {
    let mut pair = Pair::new(Options::default());
    let esp: Vec<_> = packets.iter().map(|p| pair.seal_one(p)).collect();
    let writes = pair.open(&esp);
    assert_eq!(pair.dropped(), None);
    let cut: Vec<_> = writes.iter().map(|(o, p)| device(o, p)).collect();
    (cut.iter().flatten().cloned().collect(), cut.iter().map(Vec::len).collect())
}

#[test]
fn a_stream_becomes_one_write() {
    for spec in [Spec::tcp(20_000), Spec::udp(20_000)] {
        for spec in [spec.clone(), spec.over_v6()] {
            assert_eq!(merged(&spec.segments(1_000)), [20]);
            assert_eq!(merged(&spec.segments(999)), [21], "a shorter one at the end belongs to it");
        }
    }
}

#[test]
fn psh_and_fin_end_a_run_and_belong_to_it() {
    let a = Spec { flags: ACK | PSH, ..Spec::tcp(3_000) };
    let b = Spec { flags: ACK | PSH | FIN, seq: a.seq + 3_000, id: a.id + 3, ..Spec::tcp(3_000) };
    let packets = [a.segments(1_000), b.segments(1_000)].concat();
    assert_eq!(merged(&packets), [3, 3]);
}

#[test]
fn whatever_differs_is_not_merged() {
    let first = Spec { tos: 2, ..Spec::tcp(500) };
    let next = Spec { seq: first.seq + 500, id: first.id + 1, ..first.clone() };
    assert_eq!(merged(&[first.build(), next.build()]), [2]);
    let different: Vec<(&str, Spec)> = vec![
        ("sequence", Spec { seq: next.seq + 1, ..next.clone() }),
        ("acknowledgment", Spec { ack: 78, ..next.clone() }),
        ("window", Spec { window: 502, ..next.clone() }),
        ("timestamp", Spec { options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 2], ..next.clone() }),
        ("options length", Spec { options: vec![], ..next.clone() }),
        ("TTL", Spec { ttl: 62, ..next.clone() }),
        ("ECN", Spec { tos: 3, ..next.clone() }),
        ("DSCP", Spec { tos: 0xb8 | 2, ..next.clone() }),
        ("DF", Spec { df: false, ..next.clone() }),
        ("longer", Spec { payload: bytes(501, 5), ..next.clone() }),
        ("no payload", Spec { payload: vec![], ..next.clone() }),
        ("SYN", Spec { flags: ACK | SYN, ..next.clone() }),
        ("RST", Spec { flags: ACK | RST, ..next.clone() }),
        ("URG", Spec { flags: ACK | URG, ..next.clone() }),
        ("CWR", Spec { flags: ACK | CWR, ..next.clone() }),
        ("ECE", Spec { flags: ACK | ECE, ..next.clone() }),
        ("no ACK", Spec { flags: 0, ..next.clone() }),
        ("port", Spec { ports: (40_001, 5_201), ..next.clone() }),
        ("source", Spec { src: ip("10.1.0.2"), ..next.clone() }),
        ("destination", Spec { dst: ip("10.2.0.2"), ..next.clone() }),
        ("protocol", Spec { tcp: false, options: vec![], ..next.clone() }),
    ];
    for (what, spec) in different {
        let n = merged(&[first.build(), spec.build()]);
        assert_eq!(n, [1, 1], "{what}");
    }
    let first = first.over_v6();
    let next = next.over_v6();
    assert_eq!(merged(&[first.build(), next.build()]), [2]);
    assert_eq!(merged(&[first.build(), Spec { flow_label: 5, ..next.clone() }.build()]), [1, 1]);
    assert_eq!(merged(&[first.build(), Spec { ttl: 3, ..next.clone() }.build()]), [1, 1]);
    assert_eq!(merged(&[first.build(), Spec { tos: 3, ..next }.build()]), [1, 1]);
}

#[test]
fn identifications_must_count_up_where_they_mean_something() {
    for first in [Spec { df: false, ..Spec::tcp(500) }, Spec { df: false, ..Spec::udp(500) }] {
        let next = |id| Spec { seq: first.seq + 500, id, ..first.clone() };
        assert_eq!(merged(&[first.build(), next(first.id + 1).build()]), [2]);
        assert_eq!(merged(&[first.build(), next(first.id + 2).build()]), [1, 1]);
        assert_eq!(merged(&[first.build(), next(first.id).build()]), [1, 1]);
    }
}

/// RFC 6864 section 4.1: of a packet that is no fragment and cannot become one, "all devices that
/// examine IPv4 headers MUST ignore" it.
#[test]
fn identifications_of_packets_with_df_say_nothing() {
    for first in [Spec { df: true, ..Spec::tcp(500) }, Spec { df: true, ..Spec::udp(500) }] {
        for id in [first.id, first.id + 2, 0, 0xffff] {
            let packets = [first.build(), Spec { seq: first.seq + 500, id, ..first.clone() }.build()];
            let (cut, sizes) = merged_and_cut(&packets);
            assert_eq!(sizes, [2], "{id}");
            assert_eq!(cut[0], packets[0]);
            let mut again = packets[1].clone();
            again[4..6].copy_from_slice(&(first.id + 1).to_be_bytes());
            v4::set_checksum(&mut again[..20]);
            assert_eq!(cut[1], again, "nothing else changes");
        }
    }
}

#[test]
fn ip_options_and_extension_headers_are_left_alone() {
    let spec = Spec::tcp(2_000);
    let with_options: Vec<_> = spec
        .segments(1_000)
        .into_iter()
        .map(|p| {
            let mut o = p[..20].to_vec();
            o[0] = 0x46;
            o.extend_from_slice(&[1, 1, 1, 0]);
            let len = (p.len() + 4) as u16;
            o[2..4].copy_from_slice(&len.to_be_bytes());
            v4::set_checksum(&mut o);
            o.extend_from_slice(&p[20..]);
            o
        })
        .collect();
    assert_eq!(merged(&with_options), [1, 1]);
    let with_extension: Vec<_> = spec
        .over_v6()
        .segments(1_000)
        .into_iter()
        .map(|p| {
            let mut o = p[..40].to_vec();
            let len = (p.len() - 40 + 8) as u16;
            o[4..6].copy_from_slice(&len.to_be_bytes());
            o[6] = 60;
            o.extend_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
            o.extend_from_slice(&p[40..]);
            o
        })
        .collect();
    assert_eq!(merged(&with_extension), [1, 1]);
}

#[test]
fn a_damaged_packet_is_never_laundered_by_merging() {
    for spec in [Spec::tcp(5_000), Spec::udp(5_000)] {
        for spec in [spec.clone(), spec.over_v6()] {
            for damaged in 0..5 {
                let mut packets = spec.segments(1_000);
                let at = packets[damaged].len() - 10;
                packets[damaged][at] ^= 0x40;
                let writes = merged(&packets);
                // It is delivered as it came, alone, for its receiver to refuse; order is kept.
                let before = if damaged == 0 { 0 } else { 1 };
                assert_eq!(
                    writes.len(),
                    before + 1 + if damaged == 4 { 0 } else { 1 },
                    "{damaged}: {writes:?}"
                );
                assert_eq!(writes[before], 1);
            }
        }
    }
}

#[test]
fn a_udp_datagram_without_checksum_is_not_merged() {
    let mut packets = Spec::udp(3_000).segments(1_000);
    for p in &mut packets {
        p[26..28].fill(0);
    }
    assert_eq!(merged(&packets), [1, 1, 1]);
}

#[test]
fn interleaved_flows_merge_each_and_keep_their_order() {
    let specs: Vec<_> = (0..10)
        .map(|i| Spec { ports: (i, 80), payload: bytes(8_000, u64::from(i)), ..Spec::tcp(0) })
        .collect();
    let cut: Vec<_> = specs.iter().map(|s| s.segments(1_000)).collect();
    let mut pair = Pair::new(Options::default());
    let esp: Vec<_> =
        (0..8).flat_map(|i| cut.iter().map(move |c| c[i].clone())).map(|p| pair.seal_one(&p)).collect();
    let writes = pair.open(&esp);
    assert_eq!(writes.len(), 10);
    for (i, (offload, packet)) in writes.iter().enumerate() {
        assert!(device(offload, packet) == cut[i]);
    }
}

#[test]
fn an_acknowledgment_in_the_middle_is_not_overtaken() {
    let s = Spec::tcp(4_000).segments(1_000);
    let pure = Spec { seq: 1_002_000, payload: vec![], id: 0x5555, ..Spec::tcp(0) }.build();
    let packets = [s[0].clone(), s[1].clone(), pure, s[2].clone(), s[3].clone()];
    assert_eq!(merged(&packets), [2, 1, 2]);
}

#[test]
fn merged_packets_stay_below_64_kilobytes_and_the_segment_limits() {
    for spec in [Spec::tcp(200_000), Spec::udp(200_000)] {
        let packets: Vec<_> = spec
            .payload
            .chunks(1_400)
            .enumerate()
            .map(|(i, c)| {
                Spec {
                    seq: spec.seq + (i * 1_400) as u32,
                    id: spec.id.wrapping_add(i as u16),
                    payload: c.to_vec(),
                    ..spec.clone()
                }
                .build()
            })
            .collect();
        let n = merged(&packets);
        assert!(n.iter().all(|n| *n <= 46), "{n:?}");
        assert_eq!(n[0], 46);
    }
    let small: Vec<_> = (0..300u16)
        .map(|i| Spec { id: i, payload: bytes(20, u64::from(i)), ..Spec::udp(0) }.build())
        .collect();
    assert_eq!(merged(&small), [64, 64, 64, 64, 44]);
}

#[test]
fn merging_can_be_switched_off_by_protocol() {
    for (tcp, udp) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pair = Pair::new(Options::default());
        pair.wb.set_merging(tcp, udp);
        let packets = [Spec::tcp(3_000).segments(1_000), Spec::udp(3_000).segments(1_000)].concat();
        let esp: Vec<_> = packets.iter().map(|p| pair.seal_one(p)).collect();
        let writes = pair.open(&esp).len();
        assert_eq!(writes, if tcp { 1 } else { 3 } + if udp { 1 } else { 3 });
    }
}

#[test]
fn packets_of_two_sas_are_not_merged() {
    use ironswan_wire::sadb::{Command, Direction};
    let mut pair = Pair::new(Options::default());
    let s = Spec::tcp(2_000).segments(1_000);
    let first = pair.seal_one(&s[0]);
    for (engine, direction) in [(&pair.a, Direction::Out), (&pair.b, Direction::In)] {
        let sa = pair.options.sa(direction, SPI + 1, REQID, 43);
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    }
    pair.wa.begin(SECOND);
    pair.wb.begin(SECOND);
    let second = pair.seal_one(&s[1]);
    assert_eq!(second[..4], (SPI + 1).to_be_bytes());
    let writes = pair.open(&[first, second]);
    assert_eq!(writes.len(), 2);
    assert!(writes.iter().all(|(o, _)| o.gso == Gso::None));
}

fn any_spec() -> impl Strategy<Value = (Spec, usize)> {
    let flags = prop_oneof![4 => Just(ACK), 1 => Just(ACK | PSH), 1 => Just(ACK | FIN | PSH),
                            1 => Just(ACK | CWR), 1 => Just(ACK | ECE), 1 => Just(SYN)];
    let options =
        prop_oneof![Just(vec![]), Just(vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]), Just(vec![1; 40])];
    (
        any::<(bool, bool, u8, u8, u16, bool)>(),
        any::<(u32, u32, u16)>(),
        flags,
        options,
        1usize..6_000,
        1usize..3_000,
        0u16..3,
    )
        .prop_map(
            |((v6, tcp, tos, ttl, id, df), (seq, ack, window), flags, options, len, size, port)| {
                let spec = Spec {
                    tos,
                    ttl,
                    id,
                    df,
                    seq,
                    ack,
                    window,
                    flags,
                    ports: (port, 443),
                    options: if tcp { options } else { vec![] },
                    payload: bytes(len, u64::from(seq)),
                    tcp,
                    ..Spec::tcp(0)
                };
                // UDP super-packets have at most 64 segments.
                let size = size.max(len / 60 + 1);
                (
                    if v6 {
                        Spec { id: 0, df: false, flow_label: ack & 0xf_ffff, ..spec.over_v6() }
                    } else {
                        spec
                    },
                    size,
                )
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn cutting_then_merging_then_cutting_is_the_identity(list in proptest::collection::vec(any_spec(), 1..12)) {
        let mut options = Options::default();
        options.tx.capacity = 4 << 20;
        let mut pair = Pair::new(options);
        let frames: Vec<_> = list.iter().map(|(s, size)| s.superpacket(*size)).collect();
        let esp = pair.seal(&frames);
        let writes = pair.open(&esp);
        let got: Vec<_> = writes.iter().flat_map(|(o, p)| device(o, p)).collect();
        let want: Vec<_> = list.iter().flat_map(|(s, size)| s.segments(*size)).collect();
        prop_assert_eq!(got.len(), want.len());
        // Flows may overtake each other, the packets of one may not.
        let flow = |p: &Vec<u8>| { let s = read(p); (s.v6, s.tcp, s.ports) };
        let mut flows: Vec<_> = want.iter().map(flow).collect();
        flows.sort_unstable();
        flows.dedup();
        for f in flows {
            let got: Vec<_> = got.iter().filter(|p| flow(p) == f).collect();
            let want: Vec<_> = want.iter().filter(|p| flow(p) == f).collect();
            prop_assert!(got == want);
        }
        prop_assert_eq!(pair.dropped(), None);
        let (a, b) = (pair.a.counters(), pair.b.counters());
        prop_assert!(a.balance() && b.balance());
        prop_assert_eq!(a.traffic.out_sent, b.traffic.in_packets);
        prop_assert_eq!(a.traffic.out_bytes, b.traffic.in_bytes);
    }
}
