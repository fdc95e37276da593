//! What the options of an SA do to the packets that leave: compression, padding, DSCP, ECN,
//! fragmentation; and how long they may be.

use ironswan_ipsec::DropReason;
use ironswan_ipsec::mtu::Encapsulation;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Dscp, Mode, SaAdd, SaOptions, Tfc};

use crate::common::*;
use crate::out_common::*;

fn inflate(ipcomp: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let n = libdeflater::Decompressor::new().deflate_decompress(&ipcomp[4..], &mut out).unwrap();
    assert_eq!(n, len);
    out
}

#[test]
fn what_compresses_is_compressed_inside_of_esp_and_ah() {
    let options = SaOptions { ipcomp: Some(0xbeef), ..SaOptions::default() };
    for v6 in [false, true] {
        let kept = if v6 { 40 } else { 20 };
        let text = between(Spec { payload: b"to be or not to be ".repeat(50), ..Spec::udp(0) });
        let noise = between(Spec::udp(950));
        let family = |spec: &Spec| if v6 { between(spec.clone().over_v6()) } else { spec.clone() };
        for (mode, protocol, udp_encap) in [
            (TUNNEL, ProtocolId::ESP, false),
            (TUNNEL, ProtocolId::ESP, true),
            (TRANSPORT, ProtocolId::ESP, false),
            (TRANSPORT, ProtocolId::ESP, true),
            (TUNNEL, ProtocolId::AH, false),
            (TRANSPORT, ProtocolId::AH, false),
        ] {
            let base = if protocol == ProtocolId::AH { ah(v6) } else { outbound(v6) };
            let mut s = Sender::new(SaAdd { mode, options, udp_encap, ..base });
            for (i, (spec, shrinks)) in
                [(&text, true), (&noise, false), (&text, true)].into_iter().enumerate()
            {
                let packet = family(spec).build();
                let sent = s.one(&packet);
                let at = if is_whole(&sent) { kept } else { 0 };
                let inside = match protocol {
                    ProtocolId::AH => open_ah(&s.sa, &sent.bytes, at, 1 + i as u64),
                    _ => open_esp(&s.sa, &sent.bytes[at..], 1 + i as u64),
                };
                let (payload, next) = match mode {
                    Mode::Tunnel => (&packet[..], inner_protocol(v6)),
                    Mode::Transport => (&packet[kept..], UDP),
                };
                if shrinks {
                    assert_eq!(inside.next_header, IPCOMP);
                    assert_eq!(inside.body[..4], [next, 0, 0xbe, 0xef]);
                    assert_eq!(inflate(&inside.body, payload.len()), payload);
                    assert!(sent.bytes.len() < packet.len() / 2);
                } else {
                    assert_eq!(inside, Inside { next_header: next, body: payload.to_vec() });
                }
                if at != 0 {
                    assert_eq!(said_len(&sent.bytes), sent.bytes.len());
                }
            }
        }
    }
}

#[test]
fn padding_hides_lengths_up_to_what_fits_the_path() {
    let esp = |tfc| SaAdd { options: SaOptions { tfc, ..SaOptions::default() }, ..outbound(false) };
    let lens = [28, 100, 576, 1_000];
    let mut s = Sender::new(esp(Tfc::To(576)));
    for (i, len) in lens.into_iter().enumerate() {
        let packet = inner(false, len - 28);
        let inside = s.one_esp(&packet, 1 + i as u64);
        assert_eq!(inside.body.len(), len.max(576));
        assert_eq!((inside.next_header, &inside.body[..len]), (IPV4, &packet[..]));
        assert!(inside.body[len..].iter().all(|b| *b == 0));
    }
    // Nothing is known of the path: nothing is padded.
    let mut s = Sender::new(esp(Tfc::Mtu));
    assert_eq!(s.one_esp(&inner(false, 72), 1).body.len(), 100);
    for path in [1_400, 700] {
        s.path_mtu(path);
        let fits = Encapsulation::of(&s.sa).inner_max(path) as usize;
        let sent = s.one(&inner(false, 72));
        let seq = s.engine.counters().traffic.out_sent;
        assert_eq!(open_esp(&s.sa, &sent.bytes, seq).body.len(), fits);
        let outer = sent.bytes.len() + 20;
        assert!(outer <= path as usize && outer + 4 > path as usize, "{outer} of {path}");
    }
    // A number that does not fit is brought down.
    let mut s = Sender::new(esp(Tfc::To(9_000)));
    assert_eq!(s.one_esp(&inner(false, 72), 1).body.len(), 9_000);
    s.path_mtu(1_500);
    assert!(s.one(&inner(false, 72)).bytes.len() <= 1_480);
    // Compression would undo it.
    let options = SaOptions { tfc: Tfc::To(1_000), ipcomp: Some(9), ..SaOptions::default() };
    let mut s = Sender::new(SaAdd { options, ..outbound(false) });
    let text = Spec { payload: b"again and ".repeat(50), ..Spec::udp(0) }.build();
    let inside = s.one_esp(&text, 1);
    assert_eq!((inside.next_header, inside.body.len()), (IPV4, 1_000));
}

#[test]
fn padding_that_finds_no_room_waits_for_the_next_batch() {
    let options = SaOptions { tfc: Tfc::To(60_000), ..SaOptions::default() };
    let mut s = Sender::new(SaAdd { options, ..outbound(false) });
    let packet = inner(false, 10);
    let mut taken = 0;
    while s.worker.outbound(&mut packet.clone(), &Offload::NONE, &mut s.tx) {
        taken += 1;
        assert!(taken < 100);
    }
    assert_eq!(taken, 512 * 1024 / 60_040);
    s.worker.seal(&mut s.tx);
    s.balance();
    assert_eq!(s.engine.counters().traffic.out_frames, taken);
    s.one(&packet);
}

#[test]
fn the_outer_header_says_what_the_options_say() {
    for (copy_ecn, dscp_out, want) in [
        (true, Dscp::Copy, 0xb9),
        (false, Dscp::Copy, 0xb8),
        (true, Dscp::Set(0), 0x01),
        (false, Dscp::Set(63), 0xfc),
        (true, Dscp::Set(10), 0x29),
    ] {
        let options = SaOptions { copy_ecn, dscp_out, ..SaOptions::default() };
        for v6 in [false, true] {
            for udp_encap in [false, true] {
                let mut s = Sender::new(SaAdd { options, udp_encap, ..outbound(v6) });
                assert_eq!(s.one(&inner(v6, 9)).send.tos, want);
            }
            let mut s = Sender::new(SaAdd { options, ..ah(v6) });
            let p = s.one(&inner(!v6, 9)).bytes;
            assert_eq!(if v6 { p[0] << 4 | p[1] >> 4 } else { p[1] }, want);
            // In transport mode the header is the packet's own.
            let mut s = Sender::new(SaAdd { options, mode: TRANSPORT, ..outbound(v6) });
            let p = s.one(&Spec { tos: 0xb9, ..udp_between(v6, 9) }.build()).bytes;
            assert_eq!(if v6 { p[0] << 4 | p[1] >> 4 } else { p[1] }, 0xb9);
        }
    }
}

#[test]
fn packets_that_may_be_fragmented_outside_say_so() {
    let options = SaOptions { copy_df: false, ..SaOptions::default() };
    for v6 in [false, true] {
        for udp_encap in [false, true] {
            let mut s = Sender::new(SaAdd { options, udp_encap, ..outbound(v6) });
            assert_eq!(s.one(&inner(false, 9_000)).send.fragmentable, u16::MAX);
        }
        let mut s = Sender::new(SaAdd { options, ..ah(v6) });
        let sent = s.one(&inner(true, 9_000));
        assert_eq!(usize::from(sent.send.fragmentable), sent.bytes.len());
        assert!(v6 || sent.bytes[6] & 0x40 == 0, "no DF");
    }
}

#[test]
fn the_longest_packets_and_one_byte_more() {
    // IPv4 in AH: header 20, AH 28. The bytes that remain are the longest inner packet.
    let mut s = Sender::new(ah(false));
    let longest = 65_535 - 20 - 28;
    let sent = s.one(&inner(false, longest - 28));
    assert_eq!((sent.bytes.len(), said_len(&sent.bytes)), (65_535, 65_535));
    assert_eq!(s.refused(&inner(false, longest - 27)), DropReason::OutTooBig);
    // Transport mode: the kept header counts.
    let mut s = Sender::new(SaAdd { mode: TRANSPORT, ..ah(false) });
    let sent = s.one(&udp_between(false, 65_535 - 28 - 28).build());
    assert_eq!((sent.bytes.len(), said_len(&sent.bytes)), (65_535, 65_535));
    assert_eq!(s.refused(&udp_between(false, 65_535 - 28 - 27).build()), DropReason::OutTooBig);
}

#[test]
fn limits_hold_for_every_kind() {
    use ironswan_wire::sadb::{Lifetime, Up};
    for sa in [
        SaAdd { mode: TRANSPORT, ..outbound(false) },
        ah(false),
        SaAdd { mode: TRANSPORT, ..ah(false) },
        SaAdd { options: SaOptions { ipcomp: Some(3), ..SaOptions::default() }, ..outbound(false) },
    ] {
        let packet = udp_between(false, 72).build();
        let lifetime = Lifetime { soft_bytes: 200, hard_bytes: 300, ..Lifetime::default() };
        let mut s = Sender::new(SaAdd { lifetime, ..sa });
        for _ in 0..3 {
            s.one(&packet);
        }
        assert_eq!(s.refused(&packet), DropReason::OutStateExpired);
        let name = s.name();
        assert_eq!(
            s.engine.take_up(),
            [Up::Expire { sa: name, hard: false }, Up::Expire { sa: name, hard: true }]
        );
        let stats = s.engine.sa_stats(name).unwrap();
        assert_eq!((stats.packets, stats.bytes), (3, 300));
    }
}
