//! IPComp on its way in (RFC 3173; reliability checklist, item 36).

use ironswan_ipsec::DropReason::*;
use ironswan_ipsec::RxBatch;
use ironswan_wire::sadb::Mode;

use crate::common::*;
use crate::in_common::*;

const CPI: u16 = 0x4321;

fn all() -> Vec<Make> {
    let mut all =
        vec![Make::default(), transport(), ah(), Make { mode: Mode::Transport, ..ah() }.between_hosts()];
    all.extend(all.clone().into_iter().map(Make::over_v6));
    all.into_iter().map(|m| m.with_ipcomp(CPI)).collect()
}

fn seal(r: &Receiver, seq: u64, payload: &[u8], next: u8) -> Arriving {
    if r.makes[0].ah.is_some() { r.ah(seq, payload, next) } else { r.esp(seq, payload, next) }
}

/// What is inside of SAs of this mode: payload and its next header.
fn inside(make: &Make, spec: Spec) -> (Vec<u8>, u8) {
    if make.mode == Mode::Tunnel {
        return (spec.build(), 4);
    }
    let packet = host_packet(make, spec);
    let (protocol, payload) = upper(&packet);
    (payload.to_vec(), protocol)
}

#[test]
fn what_is_compressed_comes_out_and_what_is_not_too() {
    for make in all() {
        let mut r = Receiver::new(make.clone());
        let (payload, next) = inside(&make, Spec::tcp(500));
        let plain = seal(&r, 1, &payload, next);
        let plain = r.delivers(&plain);
        assert!(plain.ends_with(&payload));
        let a = seal(&r, 2, &ipcomp(CPI, next, &payload), IPCOMP);
        assert_eq!(r.delivers(&a), plain);
        // "the receiving node MUST ignore" the flags (RFC 3173 section 3.3).
        let mut flags = ipcomp(CPI, next, &payload);
        flags[1] = 0xff;
        let a = seal(&r, 3, &flags, IPCOMP);
        assert_eq!(r.delivers(&a), plain);
        assert_eq!(r.engine.sas()[0].stats.bytes, 3 * plain.len() as u64);
        assert_eq!(r.top(), 3);
    }
}

#[test]
fn several_in_one_batch_with_others_between() {
    for make in all() {
        let mut r = Receiver::new(make.clone());
        let spec = |n: u16| Spec { id: n, ports: (n, 80), ..Spec::udp(300 + usize::from(n)) };
        let batch: Vec<_> = (0..20u16)
            .map(|n| {
                let (payload, next) = inside(&make, spec(n));
                let seq = u64::from(n) + 1;
                match n % 4 {
                    0 => seal(&r, seq, &payload, next),
                    // Corrupt: nothing of it stays in the way of the next.
                    3 => seal(&r, seq, &ipcomp(CPI, next, &payload)[..100], IPCOMP),
                    _ => seal(&r, seq, &ipcomp(CPI, next, &payload), IPCOMP),
                }
            })
            .collect();
        let out = r.take(&batch);
        let want: Vec<_> = (0..20u16).filter(|n| n % 4 != 3).map(|n| inside(&make, spec(n)).0).collect();
        assert_eq!(out.len(), want.len());
        for ((_, got), want) in out.iter().zip(&want) {
            assert!(got.ends_with(want));
        }
        assert_eq!(r.engine.counters().dropped(InIpcompError), 5);
    }
}

#[test]
fn a_flow_that_is_compressed_now_and_then_keeps_its_order_and_merges() {
    let make = Make::default().with_ipcomp(CPI);
    let mut r = Receiver::new(make);
    let packets = Spec::tcp(20_000).segments(1_000);
    let batch: Vec<_> = packets
        .iter()
        .enumerate()
        .map(|(n, p)| {
            let seq = n as u64 + 1;
            if n % 3 == 0 { r.esp(seq, p, 4) } else { r.esp(seq, &ipcomp(CPI, 4, p), IPCOMP) }
        })
        .collect();
    let out = r.take(&batch);
    assert_eq!(out.len(), 1);
    assert_eq!(device(&out[0].0, &out[0].1), packets);
}

#[test]
fn cpis_that_are_not_the_sas() {
    for make in all() {
        for cpi in [0, 1, 2, 3, 63, 64, 255, 256, CPI - 1, CPI + 1, u16::MAX] {
            let mut r = Receiver::new(make.clone());
            let (payload, next) = inside(&make, Spec::udp(100));
            let a = seal(&r, 1, &ipcomp(cpi, next, &payload), IPCOMP);
            r.refuses(&a, InIpcompError);
        }
    }
}

#[test]
fn ipcomp_on_an_sa_without_it() {
    for mut make in all() {
        make.sa.ipcomp = None;
        let mut r = Receiver::new(make.clone());
        let (payload, next) = inside(&make, Spec::udp(100));
        let a = seal(&r, 1, &ipcomp(CPI, next, &payload), IPCOMP);
        r.refuses(&a, InIpcompError);
    }
}

#[test]
fn ipcomp_in_ipcomp() {
    for make in all() {
        let mut r = Receiver::new(make.clone());
        let (payload, next) = inside(&make, Spec::udp(100));
        let twice = ipcomp(CPI, IPCOMP, &ipcomp(CPI, next, &payload));
        let a = seal(&r, 1, &twice, IPCOMP);
        r.refuses(&a, InIpcompError);
    }
}

#[test]
fn what_does_not_inflate() {
    for make in all() {
        let mut r = Receiver::new(make.clone());
        let (payload, next) = inside(&make, Spec::udp(100));
        let good = ipcomp(CPI, next, &payload);
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
        // A reserved block type, lengths that contradict each other.
        bad.extend([6u8, 7].map(|b| [&good[..4], &[b], &good[5..]].concat()));
        bad.push([&good[..7], &[0, 0], &good[9..]].concat());
        for (seq, bad) in bad.iter().enumerate() {
            let a = seal(&r, seq as u64 + 1, bad, IPCOMP);
            r.refuses(&a, InIpcompError);
        }
        // Bytes behind the end are passed over, as Linux does.
        let a = seal(&r, 500, &[&good[..], &[0; 40]].concat(), IPCOMP);
        assert!(r.delivers(&a).ends_with(&payload));
    }
}

#[test]
fn what_inflates_beyond_a_packet() {
    for make in all() {
        let mut r = Receiver::new(make.clone());
        let (_, next) = inside(&make, Spec::udp(100));
        let a = seal(&r, 1, &bomb(CPI, next, &[0], 300), IPCOMP);
        r.refuses(&a, InIpcompError);
    }
    // As long as a packet can be, and one byte longer: 254 times 258 and the rest by hand.
    let make = Make::default().with_ipcomp(CPI);
    for (total, fits) in [(65_535usize, true), (65_536, false)] {
        let mut first = vec![0x45, 0, 0xff, 0xff, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        ironswan_wire::ip::v4::set_checksum(&mut first);
        first.extend_from_slice(&[0, 1, 0, 1]);
        first.resize(total - 253 * 258, 0);
        let mut r = Receiver::new(make.clone());
        let a = r.esp(1, &bomb(CPI, 4, &first, 253), IPCOMP);
        if fits {
            assert_eq!(r.delivers(&a).len(), 65_535);
        } else {
            r.refuses(&a, InIpcompError);
        }
    }
    // In transport mode there is the header, too.
    let mut r = Receiver::new(transport().with_ipcomp(CPI));
    let a = r.esp(1, &bomb(CPI, 17, &[0; 241], 253), IPCOMP);
    r.delivers(&a);
    let a = r.esp(2, &bomb(CPI, 17, &vec![0; 65_516 - 253 * 258], 253), IPCOMP);
    r.refuses(&a, InInnerHdrError);
}

#[test]
fn what_a_batch_inflates_to_is_bounded() {
    let mut r = Receiver::new(Make::default().with_ipcomp(CPI));
    let mut first = vec![0x45, 0, 0xff, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    ironswan_wire::ip::v4::set_checksum(&mut first);
    let batch: Vec<_> = (1..=300).map(|seq| r.esp(seq, &bomb(CPI, 4, &first, 253), IPCOMP)).collect();
    let out = r.take(&batch);
    let refused = r.engine.counters().dropped(InBufferError);
    assert_eq!((out.len() as u64 + refused, r.engine.counters().dropped_in()), (300, refused));
    assert!(refused > 0 && r.rx.extra.len() <= RxBatch::MAX_EXTRA + 65_535);
    // And the next batch begins anew.
    let a = r.esp(301, &bomb(CPI, 4, &first, 253), IPCOMP);
    r.delivers(&a);
}

#[test]
fn inner_packets_are_judged_when_they_have_been_inflated() {
    let make = Make::default().with_ipcomp(CPI);
    let outside = Spec { dst: ip("10.9.9.9"), ..Spec::udp(10) }.build();
    let mut wrong = Spec::udp(10).build();
    wrong[10] ^= 1;
    for (packet, next, reason) in [
        (outside, 4, InStateMismatch),
        (wrong, 4, InInnerChecksum),
        (Spec::udp(10).build(), 41, InInnerVersion),
        (Spec::udp(10).build(), 6, InStateModeError),
        (Spec::udp(10).build()[..30].to_vec(), 4, InInnerHdrError),
        (Vec::new(), 4, InInnerVersion),
    ] {
        let mut r = Receiver::new(make.clone());
        let a = r.esp(1, &ipcomp(CPI, next, &packet), IPCOMP);
        r.refuses(&a, reason);
        assert!(r.rx.extra.is_empty(), "what is dropped leaves nothing behind");
    }
}
