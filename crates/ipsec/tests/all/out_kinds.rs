//! Every kind of packet that leaves, taken apart field by field: protocol, mode, families,
//! encapsulation, options.

use ironswan_ipsec::mtu::{MIN_MTU_V4, MIN_MTU_V6};
use ironswan_ipsec::{Carrier, DropReason};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Action, Command, Entry, PolicyAdd, ReqId, SaAdd, SaOptions, Spi};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::common::*;
use crate::out_common::*;

#[test]
fn ah_in_tunnel_mode_has_a_header_of_our_own() {
    for suite in ah_suites() {
        for (outer_v6, inner_v6, esn) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
            let mut s = Sender::new(SaAdd { suite: EspSuite { esn, ..suite }, ..ah(outer_v6) });
            let first = if esn { 0x3_ffff_fffe } else { 7 };
            s.engine.advance_sequence(s.name(), first).unwrap();
            let mut idents = Vec::new();
            for (i, len) in [0, 1, 2, 3, 100, 548, 549, 1_300, 9_000].into_iter().enumerate() {
                let packet = inner(inner_v6, len);
                let sent = s.one(&packet);
                let p = &sent.bytes;
                assert_eq!(said_len(p), p.len());
                let seq = first + 1 + i as u64;
                let inside = open_ah(&s.sa, p, if outer_v6 { 40 } else { 20 }, seq);
                assert_eq!((inside.next_header, &inside.body), (inner_protocol(inner_v6), &packet));
                let may = packet.len() <= if inner_v6 { MIN_MTU_V6 } else { MIN_MTU_V4 };
                if outer_v6 {
                    // Version, class, no flow label; AH; hop limit.
                    assert_eq!((&p[..4], p[6], p[7]), (&[0x6b, 0x90, 0, 0][..], AH, 64));
                } else {
                    assert_eq!((p[0], p[1], p[8], p[9]), (0x45, 0xb9, 64, AH));
                    assert_eq!(p[6..8], (if may { 0 } else { v4::DF }).to_be_bytes());
                    idents.push([p[4], p[5]]);
                }
                let ends: Vec<u8> = match (s.sa.local.ip(), s.sa.remote.ip()) {
                    (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
                    (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
                    _ => unreachable!(),
                };
                assert_eq!(addresses(p), ends);
                let send = sent.send;
                assert_eq!((send.carrier, send.local, send.remote), (Carrier::Ip, s.sa.local, s.sa.remote));
                assert_eq!(usize::from(send.fragmentable), if may { p.len() } else { 0 });
            }
            // Never zero, which the kernel would replace under the ICV, and never twice in a row.
            assert!(!idents.contains(&[0, 0]));
            assert!(idents.windows(2).all(|w| w[0] != w[1]));
        }
    }
}

#[test]
fn tunnel_esp_carries_any_packet_with_every_suite() {
    let mut judged = 0;
    for suite in esp_suites() {
        // An option that changes nothing here but takes the general path.
        let options = SaOptions { ipcomp: Some(7), ..SaOptions::default() };
        for (outer_v6, udp_encap, esn) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
            let suite = EspSuite { esn, ..suite };
            let mut s = Sender::new(SaAdd { suite, udp_encap, options, ..outbound(outer_v6) });
            for (i, v6) in [false, true, false, true].into_iter().enumerate() {
                let packet = inner(v6, 20 + i);
                let sent = s.one(&packet);
                let inside = open_esp(&s.sa, &sent.bytes, 1 + i as u64);
                assert_eq!(inside, Inside { next_header: inner_protocol(v6), body: packet });
                assert_eq!(sent.send.carrier, carrier(udp_encap));
                assert_eq!(sent.send.tos, 0xb9);
                judged += 1;
            }
        }
    }
    assert!(judged > 32 * 50, "{judged}");
}

#[test]
fn transport_esp_keeps_the_packets_own_header() {
    for (v6, esn) in [(false, false), (true, false), (false, true), (true, true)] {
        for suite in [GCM, CBC_SHA256.suite] {
            let suite = EspSuite { esn, ..suite };
            let mut s = Sender::new(SaAdd { mode: TRANSPORT, suite, ..outbound(v6) });
            for (i, df) in [false, true].into_iter().enumerate() {
                let spec =
                    Spec { df, tos: 0x2e, ttl: 17, id: 0xabcd, flow_label: 0x54321, ..udp_between(v6, 333) };
                let packet = spec.build();
                let sent = s.one(&packet);
                let p = &sent.bytes;
                let kept = if v6 { 40 } else { 20 };
                assert_eq!(said_len(p), p.len());
                let mut want = packet[..kept].to_vec();
                if v6 {
                    want[6] = ESP;
                    want[4..6].copy_from_slice(&p[4..6]);
                } else {
                    want[9] = ESP;
                    want[2..4].copy_from_slice(&p[2..4]);
                    v4::set_checksum(&mut want);
                }
                assert_eq!(p[..kept], want);
                let inside = open_esp(&s.sa, &p[kept..], 1 + i as u64);
                assert_eq!(inside, Inside { next_header: UDP, body: packet[kept..].to_vec() });
                assert_eq!((sent.send.carrier, sent.send.segments), (Carrier::Ip, 1));
                // What its own header allows; an IPv6 host is told of a narrow path and cuts by
                // itself.
                let may = if v6 { packet.len() <= MIN_MTU_V6 } else { !df };
                assert_eq!(usize::from(sent.send.fragmentable), if may { p.len() } else { 0 });
            }
        }
    }
}

#[test]
fn transport_esp_in_udp_leaves_the_header_to_the_kernel() {
    for v6 in [false, true] {
        let mut s = Sender::new(SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(v6) });
        let packet = Spec { tos: 0x48, ..udp_between(v6, 500) }.build();
        let kept = if v6 { 40 } else { 20 };
        let sent = s.one(&packet);
        assert_eq!((sent.send.carrier, sent.send.tos), (Carrier::Udp, 0x48));
        assert_eq!((sent.send.local, sent.send.remote), (s.sa.local, s.sa.remote));
        let inside = open_esp(&s.sa, &sent.bytes, 1);
        assert_eq!(inside, Inside { next_header: UDP, body: packet[kept..].to_vec() });
        // Options and extensions could not be kept.
        assert_eq!(s.refused(&with_options(v6)), DropReason::OutTransport);
        if v6 {
            // Those of the last destination are payload.
            let packet = with_extensions(&[DEST_OPTIONS]);
            let inside = s.one_esp(&packet, 2);
            assert_eq!(inside, Inside { next_header: DEST_OPTIONS, body: packet[40..].to_vec() });
        }
    }
}

#[test]
fn transport_ah_covers_the_packets_own_header() {
    for v6 in [false, true] {
        for suite in ah_suites() {
            let mut s = Sender::new(SaAdd { mode: TRANSPORT, suite, ..ah(v6) });
            for (i, id) in [0x1234, 0].into_iter().enumerate() {
                let packet =
                    Spec { tos: 0xff, ttl: 3, df: false, id, flow_label: 9, ..udp_between(v6, 77) }.build();
                let kept = if v6 { 40 } else { 20 };
                let sent = s.one(&packet);
                let p = &sent.bytes;
                assert_eq!(said_len(p), p.len());
                let inside = open_ah(&s.sa, p, kept, 1 + i as u64);
                assert_eq!(inside, Inside { next_header: UDP, body: packet[kept..].to_vec() });
                assert_eq!(sent.send.carrier, Carrier::Ip);
                let mut back = p[..kept].to_vec();
                if v6 {
                    (back[4], back[5], back[6]) = (packet[4], packet[5], UDP);
                } else {
                    // An identification of zero would be replaced by the kernel, under the ICV.
                    assert_ne!(p[4..6], [0, 0]);
                    (back[2], back[3], back[9]) = (packet[2], packet[3], UDP);
                    back[4..6].copy_from_slice(&packet[4..6]);
                    v4::set_checksum(&mut back);
                }
                assert_eq!(back, packet[..kept]);
                assert!(id == 0 || v6 || p[4..6] == packet[4..6]);
            }
        }
    }
}

/// An IPv4 packet with options, or an IPv6 packet with hop-by-hop options.
fn with_options(v6: bool) -> Vec<u8> {
    if v6 {
        return with_extensions(&[0]);
    }
    let packet = udp_between(false, 10).build();
    // Router alert, which stays as it is under AH.
    let mut p = [&packet[..20], &[148, 4, 0, 0], &packet[20..]].concat();
    p[0] = 0x46;
    p[3] += 4;
    v4::set_checksum(&mut p[..24]);
    p
}

/// A UDP packet behind IPv6 extension headers of eight bytes, a routing header of no addresses
/// among them.
fn with_extensions(kinds: &[u8]) -> Vec<u8> {
    let packet = udp_between(true, 10).build();
    let mut p = packet[..40].to_vec();
    let mut next_at = 6;
    for kind in kinds {
        p[next_at] = *kind;
        next_at = p.len();
        // PadN; of a routing header: type 0, no segments left.
        p.extend_from_slice(&if *kind == 43 {
            [UDP, 0, 0, 0, 0, 0, 0, 0]
        } else {
            [UDP, 0, 1, 4, 0, 0, 0, 0]
        });
    }
    p.extend_from_slice(&packet[40..]);
    let len = p.len() as u16 - 40;
    p[4..6].copy_from_slice(&len.to_be_bytes());
    p
}

#[test]
fn options_and_extension_headers_stay_where_they_belong() {
    let kinds: &[(&[u8], usize)] = &[
        (&[0], 1),
        (&[43], 1),
        (&[0, DEST_OPTIONS, 43, DEST_OPTIONS], 3),
        (&[DEST_OPTIONS], 0),
        (&[0, DEST_OPTIONS], 1),
    ];
    for protocol in [ProtocolId::ESP, ProtocolId::AH] {
        let make =
            |v6| SaAdd { mode: TRANSPORT, ..if protocol == ProtocolId::AH { ah(v6) } else { outbound(v6) } };
        let open = |s: &Sender, p: &[u8], kept: usize, seq| match s.sa.protocol {
            ProtocolId::AH => open_ah(&s.sa, p, kept, seq),
            _ => open_esp(&s.sa, &p[kept..], seq),
        };
        let mut s = Sender::new(make(false));
        let packet = with_options(false);
        let sent = s.one(&packet);
        assert_eq!((sent.bytes[0], &sent.bytes[20..24]), (0x46, &packet[20..24]));
        let inside = open(&s, &sent.bytes, 24, 1);
        assert_eq!(inside, Inside { next_header: UDP, body: packet[24..].to_vec() });
        let mut s = Sender::new(make(true));
        for (i, (kinds, stay)) in kinds.iter().enumerate() {
            let packet = with_extensions(kinds);
            let kept = 40 + stay * 8;
            let sent = s.one(&packet);
            let p = &sent.bytes;
            assert_eq!(said_len(p), p.len());
            let inside = open(&s, p, kept, 1 + i as u64);
            let next = kinds.get(*stay).copied().unwrap_or(UDP);
            assert_eq!(inside, Inside { next_header: next, body: packet[kept..].to_vec() }, "{kinds:?}");
            // The chain of what stays ends in ESP or AH.
            let (mut at, mut next) = (40, p[6]);
            for kind in &kinds[..*stay] {
                assert_eq!(next, *kind);
                (next, at) = (p[at], at + 8);
            }
            assert_eq!((next, at), (if protocol == ProtocolId::AH { AH } else { ESP }, kept));
        }
    }
}

#[test]
fn transport_mode_is_for_its_two_ends_only() {
    for v6 in [false, true] {
        for sa in [SaAdd { mode: TRANSPORT, ..outbound(v6) }, SaAdd { mode: TRANSPORT, ..ah(v6) }] {
            let mut s = Sender::new(sa);
            let good = udp_between(v6, 9);
            for wrong in [
                Spec { src: if v6 { ip("2001:db8::9") } else { ip("192.0.2.9") }, ..good.clone() },
                Spec { dst: if v6 { ip("2001:db8::9") } else { ip("192.0.2.9") }, ..good.clone() },
                Spec { src: good.dst, dst: good.src, ..good.clone() },
                udp_between(!v6, 9),
            ] {
                assert_eq!(s.refused(&wrong.build()), DropReason::OutTransport);
            }
            s.one(&good.build());
        }
    }
}

#[test]
fn an_ipv4_header_that_no_icv_can_cover_is_refused() {
    let mut s = Sender::new(SaAdd { mode: TRANSPORT, ..ah(false) });
    let mut packet = with_options(false);
    packet[21] = 9;
    v4::set_checksum(&mut packet[..24]);
    assert_eq!(s.refused(&packet), DropReason::OutTransport);
    // ESP does not care.
    Sender::new(SaAdd { mode: TRANSPORT, ..outbound(false) }).one(&packet);
}

#[test]
fn fragments_are_put_together_before_transport_mode() {
    for v6 in [false, true] {
        let kept = if v6 { 40 } else { 20 };
        for (sa, encap) in [
            (SaAdd { mode: TRANSPORT, ..outbound(v6) }, false),
            (SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(v6) }, true),
            (SaAdd { mode: TRANSPORT, ..ah(v6) }, false),
        ] {
            let mut s = Sender::new(sa);
            let packet = Spec { df: false, id: 0x77, ..udp_between(v6, 4_000) }.build();
            let pieces = fragments(&packet, 1_400, 0x77);
            let frames: Vec<_> = pieces.iter().map(|p| (p.clone(), Offload::NONE)).collect();
            // Two wait, the third completes; in another order too.
            assert_eq!(s.send(&frames[..2]), []);
            assert_eq!(s.engine.counters().held, 2);
            let sent = s.send(&frames[2..]);
            assert_eq!(sent.len(), 1);
            let (p, at) = (&sent[0].bytes, if encap { 0 } else { kept });
            let inside = match s.sa.protocol {
                ProtocolId::AH => open_ah(&s.sa, p, at, 1),
                _ => open_esp(&s.sa, &p[at..], 1),
            };
            assert_eq!(inside, Inside { next_header: UDP, body: packet[kept..].to_vec() });
            // It came in fragments, so it may leave in fragments.
            assert!(usize::from(sent[0].send.fragmentable) >= p.len());
            let sent = s.send(&[frames[2].clone(), frames[0].clone(), frames[1].clone()]);
            assert_eq!(sent.len(), 1);
            let t = s.engine.counters();
            assert_eq!((t.held, t.traffic.out_absorbed, t.traffic.out_sent), (0, 4, 2));
            // What is missing is given up, and counted once for each fragment.
            assert_eq!(s.send(&frames[1..]), []);
            s.worker.begin(SECOND * 100);
            let t = s.engine.counters();
            assert_eq!((t.held, t.dropped(DropReason::OutReassembly)), (0, 2));
            s.balance();
        }
    }
}

#[test]
fn a_fragment_that_says_another_protocol_does_not_choose_its_packets_sa() {
    let mut s = Sender::new(SaAdd { mode: TRANSPORT, ..outbound(true) });
    let other = SaAdd { spi: Spi(SPI + 1), reqid: ReqId(REQID + 1), ..s.sa.clone() };
    let any = TrafficSelector::addresses(AddrRange::any(true));
    let (action, local) = (Action::Protect(other.reqid), TrafficSelector { protocol: 6, ..any });
    let remote = TrafficSelector { protocol: 6, ..any };
    let policy =
        PolicyAdd { name: "tcp".into(), action, local, remote, priority: 0, entry: Entry::default() };
    s.engine.apply(SECOND, &Command::SaAdd(Box::new(other))).unwrap();
    s.engine.apply(SECOND, &Command::PolicyAdd(policy)).unwrap();
    s.worker.begin(SECOND);
    let packet = udp_between(true, 2_000).build();
    let mut pieces = fragments(&packet, 1_400, 0x77);
    assert_eq!(pieces[1][40], UDP);
    pieces[1][40] = 6;
    let frames: Vec<_> = pieces.into_iter().map(|p| (p, Offload::NONE)).collect();
    assert_eq!(s.send(&frames), []);
    let t = s.engine.counters();
    assert_eq!((t.held, t.dropped(DropReason::OutStateMismatch)), (0, 1));
}

#[test]
fn a_fragment_header_of_a_whole_packet_goes() {
    let packet = udp_between(true, 50).build();
    let atomic = &fragments(&packet, 1_000, 5)[0];
    assert_eq!(atomic.len(), packet.len() + 8);
    let mut s = Sender::new(SaAdd { mode: TRANSPORT, ..outbound(true) });
    let sent = s.one(atomic);
    assert_eq!((sent.bytes[6], said_len(&sent.bytes)), (ESP, sent.bytes.len()));
    let inside = open_esp(&s.sa, &sent.bytes[40..], 1);
    assert_eq!(inside, Inside { next_header: UDP, body: packet[40..].to_vec() });
}

#[test]
fn superpackets_are_cut_before_everything_else() {
    for v6 in [false, true] {
        let kept = if v6 { 40 } else { 20 };
        for tcp in [false, true] {
            let spec = if tcp { Spec::tcp(20_000) } else { Spec::udp(20_000) };
            let spec = between(if v6 { spec.over_v6() } else { spec });
            for sa in [
                SaAdd { mode: TRANSPORT, ..outbound(v6) },
                SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(v6) },
                SaAdd { mode: TRANSPORT, ..ah(v6) },
                ah(v6),
                SaAdd { options: SaOptions { copy_df: false, ..SaOptions::default() }, ..outbound(v6) },
            ] {
                let mut s = Sender::new(sa);
                let sent = s.send(&[spec.superpacket(1_300)]);
                let want = spec.segments(1_300);
                assert_eq!(sent.len(), want.len());
                for (i, (sent, want)) in sent.iter().zip(&want).enumerate() {
                    let at = if is_whole(sent) { kept } else { 0 };
                    let inside = match s.sa.protocol {
                        ProtocolId::AH => open_ah(&s.sa, &sent.bytes, at, 1 + i as u64),
                        _ => open_esp(&s.sa, &sent.bytes[at..], 1 + i as u64),
                    };
                    let from = if s.sa.mode == TRANSPORT { kept } else { 0 };
                    assert_eq!(inside.body, want[from..]);
                    if at != 0 && s.sa.mode == TRANSPORT && !v6 {
                        assert_eq!(sent.bytes[4..6], want[4..6], "the identification of the segment");
                    }
                }
                if s.sa.udp_encap {
                    assert_eq!(s.tx.sends.len(), 1, "one send");
                }
                let t = s.engine.counters().traffic;
                assert_eq!((t.out_frames, t.out_made), (1, want.len() as u64 - 1));
            }
        }
    }
}

#[test]
fn an_unfinished_checksum_is_finished_in_every_kind() {
    for v6 in [false, true] {
        let kept = if v6 { 40 } else { 20 };
        for sa in [SaAdd { mode: TRANSPORT, ..outbound(v6) }, SaAdd { mode: TRANSPORT, ..ah(v6) }] {
            let mut s = Sender::new(sa);
            for spec in [Spec::tcp(101), Spec::udp(101)] {
                let spec = between(if v6 { spec.over_v6() } else { spec });
                let sent = s.send(&[spec.superpacket(1_300)]);
                assert!(sent[0].bytes.ends_with(&spec.build()[kept..]) || s.sa.protocol == ProtocolId::ESP);
                if s.sa.protocol == ProtocolId::ESP {
                    let seq = s.engine.counters().traffic.out_sent;
                    assert_eq!(open_esp(&s.sa, &sent[0].bytes[kept..], seq).body, spec.build()[kept..]);
                }
            }
            // An offset beyond the packet, and one inside the header.
            for csum in [(kept as u16, 2_000), (3, 6)] {
                let offload = Offload { csum: Some(csum), ..Offload::NONE };
                assert_eq!(s.send(&[(udp_between(v6, 9).build(), offload)]), []);
            }
            assert_eq!(s.engine.counters().dropped(DropReason::OutOffloadError), 2);
        }
    }
}

#[test]
fn esp_and_ah_of_many_sas_are_sealed_in_one_batch() {
    use ironswan_wire::sadb::{Action, Command, PolicyAdd, ReqId};
    let mut s = Sender::new(outbound(false));
    // Three more SAs, each for a destination of its own.
    let others = [
        SaAdd { mode: TUNNEL, ..ah(false) },
        SaAdd { udp_encap: true, ..outbound(false) },
        SaAdd { suite: ah_suites()[9], ..ah(true) },
    ];
    let mut sas = vec![s.sa.clone()];
    for (i, sa) in others.into_iter().enumerate() {
        let reqid = ReqId(10 + i as u32);
        let sa = with_keys(SaAdd { reqid, spi: ironswan_wire::sadb::Spi(0x5000 + i as u32), ..sa });
        s.engine.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).unwrap();
        let policy = PolicyAdd {
            name: "other".into(),
            action: Action::Protect(reqid),
            local: ts("10.1.0.0/16"),
            remote: ts(&format!("10.2.{i}.0/24")),
            priority: 1,
            entry: Entry::default(),
        };
        s.engine.apply(SECOND, &Command::PolicyAdd(policy)).unwrap();
        sas.push(sa);
    }
    s.worker.begin(SECOND);
    let destinations = ["10.9.0.1", "10.2.0.1", "10.2.1.1", "10.2.2.1"];
    let order = [0usize, 1, 1, 2, 3, 0, 1, 2, 2, 3, 1, 0];
    let frames: Vec<_> = order
        .iter()
        .enumerate()
        .map(|(i, n)| (Spec { dst: ip(destinations[*n]), ..Spec::udp(40 + i) }.build(), Offload::NONE))
        .collect();
    for round in 0..2 {
        let sent = s.send(&frames);
        let mut seqs = [round * 3; 4];
        seqs[1] = round * 4;
        (seqs[3], seqs[0]) = (round * 2, round * 3);
        assert_eq!(sent.len(), order.len());
        for ((n, sent), (frame, _)) in order.iter().zip(&sent).zip(&frames) {
            let sa = &sas[*n];
            seqs[*n] += 1;
            let inside = match sa.protocol {
                ProtocolId::AH => {
                    open_ah(sa, &sent.bytes, if sa.remote.is_ipv6() { 40 } else { 20 }, seqs[*n])
                }
                _ => open_esp(sa, &sent.bytes, seqs[*n]),
            };
            assert_eq!(&inside.body, frame);
        }
    }
}
