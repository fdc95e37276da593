//! What the device says of a frame is believed only where it is true: a checksum is completed where
//! the frame's protocol has it, and nowhere else. Otherwise the packet that leaves would not be the
//! one that policy was asked about.

use ironswan_ipsec::DropReason::OutOffloadError;
use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::{protocol, v4};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::sadb::SaAdd;

use crate::common::*;
use crate::out_common::{Sender, TRANSPORT, ah, between, open_esp, outbound};

/// The packets in the batch of a tunnel mode ESP SA.
fn opened(s: &Sender) -> Vec<Vec<u8>> {
    let open = |bytes: &[u8]| {
        let seq = u32::from_be_bytes(*bytes[4..].first_chunk().unwrap());
        open_esp(&s.sa, bytes, seq.into()).body
    };
    s.sent().iter().map(|sent| open(&sent.bytes)).collect()
}

/// An IP packet of this protocol around these bytes, whose checksum field (at `field`, if it has
/// one) holds what a kernel leaves there: the sum of the pseudo-header.
fn unfinished(v6: bool, number: u8, upper: &[u8], field: Option<usize>) -> Vec<u8> {
    let whole = between(if v6 { Spec::udp(0).over_v6() } else { Spec::udp(0) }).build();
    let at = if v6 { 40 } else { 20 };
    let mut p = [&whole[..at], upper].concat();
    let addresses = if v6 {
        p[6] = number;
        p[4..6].copy_from_slice(&(upper.len() as u16).to_be_bytes());
        p[8..40].to_vec()
    } else {
        p[9] = number;
        let len = p.len() as u16;
        p[2..4].copy_from_slice(&len.to_be_bytes());
        v4::set_checksum(&mut p[..20]);
        p[12..20].to_vec()
    };
    if let Some(field) = field {
        let partial = fold(pseudo(&addresses, number) + be16(upper.len() as u16));
        p[at + field..at + field + 2].copy_from_slice(&partial.to_ne_bytes());
    }
    p
}

/// Where the checksum of a protocol is.
fn field_of(number: u8) -> Option<usize> {
    match number {
        protocol::TCP => Some(16),
        protocol::UDP => Some(6),
        _ => None,
    }
}

/// The first bytes of a message of any of these protocols, and some more: ports 53 and 22, a data
/// offset of five words.
fn message(number: u8) -> Vec<u8> {
    let mut m = bytes(100, 7);
    m[..4].copy_from_slice(&[0, 53, 0, 22]);
    m[12] = 0x50;
    if let Some(field) = field_of(number) {
        m[field..field + 2].fill(0);
    }
    m
}

/// Completed, the plain way.
fn finished(v6: bool, number: u8, field: usize) -> Vec<u8> {
    let mut p = unfinished(v6, number, &message(number), Some(field));
    let at = if v6 { 40 } else { 20 };
    let value = match !fold(sum(&p[at..])) {
        0 => 0xffff,
        value => value,
    };
    p[at + field..at + field + 2].copy_from_slice(&value.to_ne_bytes());
    p
}

const PROTOCOLS: [u8; 7] = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ICMPV6, 47, 132, 253];

#[test]
fn a_checksum_is_completed_only_where_the_protocol_has_it() {
    let mut left = 0;
    for v6 in [false, true] {
        let hosts = |sa: SaAdd| SaAdd { mode: TRANSPORT, ..sa };
        let kinds = [
            outbound(v6),
            SaAdd { udp_encap: true, ..outbound(v6) },
            ah(v6),
            hosts(outbound(v6)),
            hosts(ah(v6)),
        ];
        for (kind, sa) in kinds.into_iter().enumerate() {
            let mut s = Sender::new(sa);
            for number in PROTOCOLS {
                let packet = unfinished(v6, number, &message(number), field_of(number));
                let upper = if v6 { 40 } else { 20 };
                for start in upper - 20..=upper + 24 {
                    for offset in 0..=40u16 {
                        let right = start == upper && Some(usize::from(offset)) == field_of(number);
                        // What plain SAs do is tried with all starts; the general path with some.
                        if kind > 1 && !right && (start % 5, offset % 3) != (0, 0) {
                            continue;
                        }
                        let offload = Offload { csum: Some((start as u16, offset)), ..Offload::NONE };
                        let dropped = s.engine.counters().dropped(OutOffloadError);
                        s.tx.clear();
                        assert!(s.worker.outbound(&mut packet.clone(), &offload, &mut s.tx));
                        s.worker.seal(&mut s.tx);
                        let case = format!("v6 {v6}, SA {kind}, protocol {number}, {start} + {offset}");
                        let drops = s.engine.counters().dropped(OutOffloadError) - dropped;
                        assert_eq!((s.tx.sends.len(), drops), if right { (1, 0) } else { (0, 1) }, "{case}");
                        if right {
                            left += 1;
                            let field = field_of(number).unwrap();
                            let want = finished(v6, number, field);
                            if kind < 2 {
                                assert_eq!(opened(&s), [want], "{case}");
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(left, 2 * 5 * 2);
}

/// A super-packet that lies about its kind, its family, its protocol, or where its checksum is.
#[test]
fn a_super_packet_is_what_its_header_says() {
    for v6 in [false, true] {
        for tcp in [false, true] {
            let spec = if tcp { Spec::tcp(3_000) } else { Spec::udp(3_000) };
            let spec = between(if v6 { spec.over_v6() } else { spec });
            let (frame, good) = spec.superpacket(1_000);
            let mut s = Sender::new(SaAdd { udp_encap: true, ..outbound(v6) });
            let mut leaves = |offload: &Offload| {
                s.tx.clear();
                assert!(s.worker.outbound(&mut frame.clone(), offload, &mut s.tx));
                s.worker.seal(&mut s.tx);
                s.balance();
                opened(&s)
            };
            let want = spec.segments(1_000);
            assert_eq!(leaves(&good), want);
            // A hint that nobody reads, and a checksum that has been verified.
            for hdr_len in [0, 1, 39, 1_000, u16::MAX] {
                assert_eq!(leaves(&Offload { hdr_len, ..good }), want, "{hdr_len}");
            }
            assert_eq!(leaves(&Offload { csum: None, data_valid: true, ..good }), want);
            for gso in [Gso::TcpV4, Gso::TcpV6, Gso::UdpL4] {
                if gso != good.gso {
                    assert!(leaves(&Offload { gso, ..good }).is_empty(), "{gso:?} for {:?}", good.gso);
                }
            }
            let (upper, field) = good.csum.unwrap();
            for start in 0..=80 {
                for offset in 0..=40 {
                    if (start, offset) != (upper, field) {
                        assert!(
                            leaves(&Offload { csum: Some((start, offset)), ..good }).is_empty(),
                            "{start} + {offset}"
                        );
                    }
                }
            }
            assert!(leaves(&Offload { segment_size: 0, ..good }).is_empty());
        }
    }
}

/// A later or first fragment has nothing to complete: who fragments has done it.
#[test]
fn a_fragment_with_an_unfinished_checksum_is_refused() {
    let mut s = Sender::new(SaAdd { udp_encap: true, ..outbound(false) });
    let whole = between(Spec { df: false, ..Spec::udp(1_000) }).build();
    for fragment in crate::out_common::fragments(&whole, 400, 9) {
        let offload = Offload { csum: Some((20, 6)), ..Offload::NONE };
        assert!(s.worker.outbound(&mut fragment.clone(), &offload, &mut s.tx));
        assert!(s.tx.sends.is_empty());
    }
    assert_eq!(s.engine.counters().dropped(OutOffloadError), 0);
    s.worker.seal(&mut s.tx);
    assert_eq!(s.engine.counters().dropped(OutOffloadError), 3);
}

/// Linux leaves the checksum of what a VXLAN or GRE device carries to ours: it is completed in
/// there, where an IP header says so.
#[test]
fn the_checksum_of_a_packet_that_is_carried_is_completed() {
    let mut s = Sender::new(SaAdd { udp_encap: true, ..outbound(false) });
    for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let spec = if tcp { Spec::tcp(100) } else { Spec::udp(100) };
        let spec = if v6 { spec.over_v6() } else { spec };
        let (inner, whole) = (spec.superpacket(1_000), spec.build());
        let (start, field) = inner.1.csum.unwrap();
        let vxlan =
            [vec![0, 53, 0x12, 0xb5, 0, 150, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0], vec![2; 12], vec![8, 0]].concat();
        let gre = vec![0, 0, if v6 { 0x86 } else { 8 }, if v6 { 0xdd } else { 0 }];
        let kinds = [(protocol::UDP, vxlan), (47, gre), (if v6 { 41 } else { 4 }, vec![])];
        for (number, between) in kinds {
            let carry = |packet: &[u8]| unfinished(false, number, &[&between[..], packet].concat(), None);
            let (frame, want) = (carry(&inner.0), carry(&whole));
            let from = 20 + between.len() as u16 + start;
            let mut try_at = |start: u16, offset: u16| {
                s.tx.clear();
                let offload = Offload { csum: Some((start, offset)), ..Offload::NONE };
                assert!(s.worker.outbound(&mut frame.clone(), &offload, &mut s.tx));
                s.worker.seal(&mut s.tx);
                opened(&s)
            };
            assert_eq!(try_at(from, field), [want], "{number}");
            for (start, offset) in
                [(from, 0), (from, 22 - field), (from - 1, field), (from + 1, field), (from - 20, 36)]
            {
                assert!(try_at(start, offset).is_empty(), "{number}: {start} + {offset}");
            }
        }
    }
}
