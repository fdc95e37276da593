//! Every reason for which a packet is dropped: one packet that is dropped for it, counted once and
//! under nothing else, while packets before and after it pass on the same engine.

use std::time::Duration;

use ironswan_ipsec::DropReason::{self, *};
use ironswan_ipsec::{Counters, Datagram, Engine, Send};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::sadb::{Action, Command, Direction, Entry, Lifetime, PolicyAdd, ReqId, SaAdd, SaRef};

use crate::common::*;
use crate::in_common::{self, Arriving, Make, Receiver, text};
use crate::out_common;

/// The reqid of the SA that a case has beside the one of the good packets.
const OTHER: u32 = 7;
const OTHER_SPI: u32 = SPI + 1;
const ONE_PACKET: Lifetime = Lifetime { soft_bytes: 0, hard_bytes: 0, soft_packets: 0, hard_packets: 1 };

/// Whether it comes from the device or from the network. A reason without an arm does not compile:
/// it needs its packet first.
fn case(reason: DropReason) {
    match reason {
        OutHdrError => leaving(reason, None, |_| (vec![0x45; 10], Offload::NONE)),
        OutOffloadError => leaving(reason, None, |_| {
            let offload = Offload { gso: Gso::TcpV4, segment_size: 500, ..Offload::NONE };
            (Spec::udp(1_000).build(), offload)
        }),
        OutNoPolicy => leaving(reason, None, |_| to("10.3.0.1", 100)),
        OutPolBlock => leaving(reason, None, |pair| covered(pair, Action::Discard)),
        OutPolBypass => leaving(reason, None, |pair| covered(pair, Action::Bypass)),
        // It waits for an SA first.
        OutNoStates => leaving(reason, None, |pair| covered(pair, PROTECT)),
        OutStateMismatch => {
            let sa = |sa: SaAdd| SaAdd { remote_ts: vec![ts("10.3.0.2/32")], ..sa };
            leaving(reason, Some(&sa), |pair| covered(pair, PROTECT));
        }
        OutStateSeqError => leaving(reason, Some(&|sa| sa), |pair| {
            pair.a.advance_sequence(other_out(pair), u64::from(u32::MAX)).unwrap();
            covered(pair, PROTECT)
        }),
        OutStateExpired => leaving(reason, Some(&|sa| SaAdd { lifetime: ONE_PACKET, ..sa }), |pair| {
            let (frame, offload) = covered(pair, PROTECT);
            assert_eq!(pair.seal(&[(frame.clone(), offload)]).len(), 1, "the last that it carries");
            (frame, offload)
        }),
        OutTooBig => leaving(reason, None, |_| to("10.2.0.1", 65_507)),
        OutTransport => leaving(reason, Some(&transport), |pair| covered(pair, PROTECT)),
        // It waits for the rest of its packet first.
        OutReassembly => leaving(reason, Some(&transport), |pair| {
            let (a, b) = pair.options.outer();
            covered_from(pair, &format!("{}/32", a.ip()), &format!("{}/32", b.ip()), PROTECT);
            let whole = out_common::udp_between(false, 1_000).build();
            (out_common::fragments(&whole, 400, 9).remove(0), Offload::NONE)
        }),
        OutStateProtoError => unsealed(),

        InBufferError => arriving(reason, Make::default(), |r| Arriving {
            // That it is not in the buffer is what `arrive` says.
            bytes: Vec::new(),
            ..r.esp(2, &Spec::udp(10).build(), 4)
        }),
        InHdrError => arriving(reason, Make::default(), |r| r.arriving(carrier(true), vec![1, 2, 3])),
        InReservedSpi => arriving(reason, Make::default(), |r| spi(r, 255)),
        InNoStates => arriving(reason, Make::default(), |r| spi(r, 0x1_0000)),
        InFragment => arriving(reason, in_common::ah(), |r| {
            let mut bad = r.ah_of(1, 1, &Spec::udp(10).build(), 4);
            bad.bytes[6] |= 0x20;
            v4::set_checksum(&mut bad.bytes[..20]);
            bad
        }),
        InStateProtocol => arriving(reason, in_common::ah(), |r| spi(r, OTHER_SPI)),
        InStateSeqOld => arriving(reason, Make::default(), |r| {
            let _ = r.delivers(&r.esp_of(1, 9_000, &good_text()));
            r.esp_of(1, 9_000 - 4_096, &good_text())
        }),
        InStateSeqDuplicate => arriving(reason, Make::default(), |r| {
            let first = r.esp_of(1, 1, &good_text());
            let _ = r.delivers(&first);
            first
        }),
        InStateProtoError => arriving(reason, Make::default(), |r| {
            let mut bad = r.esp_of(1, 1, &good_text());
            *bad.bytes.last_mut().unwrap() ^= 0x80;
            bad
        }),
        InStateExpired => {
            let make =
                Make { options: Options { lifetime: ONE_PACKET, ..Options::default() }, ..Make::default() };
            arriving(reason, make, |r| {
                let _ = r.delivers(&r.esp_of(1, 1, &good_text()));
                r.esp_of(1, 2, &good_text())
            });
        }
        InTrailerError => inside(reason, |mut packet| {
            packet.extend_from_slice(&[255, 4]);
            packet
        }),
        InStateModeError => inside(reason, |packet| text(&packet, out_common::UDP, 16)),
        InIpcompError => inside(reason, |packet| text(&packet, in_common::IPCOMP, 16)),
        InInnerVersion => inside(reason, |packet| text(&packet, out_common::IPV6, 16)),
        InInnerHdrError => inside(reason, |packet| text(&packet[..30], 4, 16)),
        InInnerChecksum => inside(reason, |mut packet| {
            packet[10] ^= 1;
            text(&packet, 4, 16)
        }),
        InInnerMartian => {
            inside(reason, |_| text(&Spec { src: ip("127.0.0.1"), ..Spec::udp(10) }.build(), 4, 16))
        }
        InStateMismatch => {
            inside(reason, |_| text(&Spec { src: ip("10.3.0.1"), ..Spec::udp(10) }.build(), 4, 16))
        }
        InPolBlock => arriving(reason, Make::default(), |r| {
            r.engine.apply(SECOND, &policy("10.2.0.0/16", "10.1.0.9/32", Action::Discard)).unwrap();
            r.worker.begin(SECOND);
            let packet = Spec { src: ip("10.1.0.9"), ..Spec::udp(10) }.build();
            r.esp_of(1, 1, &text(&packet, 4, 16))
        }),
        InTmplMismatch => arriving(reason, Make::default(), |r| {
            r.engine.apply(SECOND, &policy("10.2.0.0/16", "10.1.0.9/32", PROTECT)).unwrap();
            r.worker.begin(SECOND);
            let packet = Spec { src: ip("10.1.0.9"), ..Spec::udp(10) }.build();
            r.esp_of(1, 1, &text(&packet, 4, 16))
        }),
        InEcnError => {
            arriving(reason, Make::default(), |r| Arriving { tos: 3, ..r.esp_of(1, 1, &good_text()) })
        }
    }
}

const PROTECT: Action = Action::Protect(ReqId(OTHER));

fn policy(local: &str, remote: &str, action: Action) -> Command {
    let (local, remote) = (ts(local), ts(remote));
    Command::PolicyAdd(PolicyAdd {
        name: "case".into(),
        action,
        local,
        remote,
        priority: 0,
        entry: Entry::default(),
    })
}

fn to(dst: &str, len: usize) -> (Vec<u8>, Offload) {
    (Spec { dst: ip(dst), ..Spec::udp(len) }.build(), Offload::NONE)
}

/// Adds a policy to A, and returns a packet that it covers.
fn covered(pair: &mut Pair, action: Action) -> (Vec<u8>, Offload) {
    covered_from(pair, "10.1.0.0/16", "10.3.0.0/16", action);
    to("10.3.0.1", 100)
}

fn covered_from(pair: &mut Pair, local: &str, remote: &str, action: Action) {
    pair.a.apply(SECOND, &policy(local, remote, action)).unwrap();
    pair.wa.begin(SECOND);
}

fn other_out(pair: &Pair) -> SaRef {
    SaRef { spi: ironswan_wire::sadb::Spi(OTHER_SPI), reqid: ReqId(OTHER), ..pair.out_ref() }
}

/// An SA between the hosts themselves, that would cover the packets of the case.
fn transport(sa: SaAdd) -> SaAdd {
    SaAdd { mode: out_common::TRANSPORT, ..sa }
}

/// A packet from the device is dropped, while those of another SA pass. With another SA, changed as
/// the case wants it.
fn leaving(
    reason: DropReason,
    change: Option<&dyn Fn(SaAdd) -> SaAdd>,
    prepare: impl FnOnce(&mut Pair) -> (Vec<u8>, Offload),
) {
    let mut pair = Pair::new(Options::default());
    if let Some(change) = change {
        let any = vec![ts("0.0.0.0/0")];
        let sa = pair.options.sa(Direction::Out, OTHER_SPI, OTHER, 43);
        let sa = change(SaAdd { local_ts: any.clone(), remote_ts: any, ..sa });
        pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    }
    let (bad, offload) = prepare(&mut pair);
    let passes = |pair: &mut Pair| {
        let packet = Spec::tcp(700).build();
        let esp = pair.seal_one(&packet);
        assert_eq!(pair.open(&[esp]), [(Offload::NONE, packet)]);
    };
    passes(&mut pair);
    let before = pair.a.counters();
    assert_eq!(pair.seal(&[(bad, offload)]), Vec::<Vec<u8>>::new(), "{reason}");
    let waits = u64::from(matches!(reason, OutNoStates | OutReassembly));
    assert_eq!(pair.a.counters().held, waits, "{reason}");
    // What waits, waits in vain.
    pair.wa.begin(SECOND + Duration::from_secs(3_600));
    pair.tx.clear();
    assert!(!pair.wa.release(&mut pair.tx));
    assert!(pair.tx.sends.is_empty(), "{reason}: nothing of it is sent");
    pair.wa.seal(&mut pair.tx);
    only(reason, &before, &pair.a);
    assert_eq!(pair.a.counters().traffic.out_sent, before.traffic.out_sent);
    assert_eq!(pair.a.counters().traffic.out_bytes, before.traffic.out_bytes);
    passes(&mut pair);
    only(reason, &before, &pair.a);
}

fn good_text() -> Vec<u8> {
    text(&Spec::udp(10).build(), 4, 16)
}

/// A good packet with another SPI.
fn spi(r: &Receiver, spi: u32) -> Arriving {
    let mut bad = r.esp(5, &Spec::udp(10).build(), 4);
    bad.bytes[..4].copy_from_slice(&spi.to_be_bytes());
    bad
}

/// An authentic packet with this text, made of a good packet's bytes, is dropped.
fn inside(reason: DropReason, text: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    arriving(reason, Make::default(), |r| r.esp_of(1, 1, &text(Spec::udp(10).build())));
}

/// Of three packets that would leave in one send the second cannot be sealed: it is wiped and not
/// in a send, the others are.
fn unsealed() {
    let mut pair = Pair::new(Options::default());
    let frame = |i| (Spec { id: i, ..Spec::udp(100) }.build(), Offload::NONE);
    let sealed = pair.seal(&[frame(1)]);
    assert_eq!(sealed.len(), 1);
    let before = pair.a.counters();
    pair.tx.clear();
    for i in 2..=4 {
        let (mut bytes, offload) = frame(i);
        assert!(pair.wa.outbound(&mut bytes, &offload, &mut pair.tx));
    }
    let [send] = pair.tx.sends[..] else { panic!("{:?}", pair.tx.sends) };
    let len = u32::from(send.segment_size);
    assert_eq!((send.segments, send.len), (3, 3 * len));
    // The third lies outside the buffer.
    let whole = pair.tx.buf.len();
    let inner = pair.tx.buf[(2 * len) as usize..(3 * len - 1) as usize].to_vec();
    pair.tx.buf.truncate((3 * len - 1) as usize);
    pair.wa.seal(&mut pair.tx);
    assert_eq!(pair.tx.sends, [Send { len: 2 * len, segments: 2, ..send }]);
    let rest = &pair.tx.buf[(2 * len) as usize..];
    assert!(rest.len() == inner.len() && rest.iter().all(|b| *b == 0xff), "nothing in clear is left");
    only(OutStateProtoError, &before, &pair.a);
    let traffic = pair.a.counters().traffic;
    assert_eq!(traffic.out_sent, before.traffic.out_sent + 2);
    // Its number is used, and the others and those after it arrive.
    let arrived = pair.open(&packets(&pair.tx));
    assert_eq!(arrived.iter().map(|(_, p)| p.len()).sum::<usize>(), 2 * frame(1).0.len() - 28);
    pair.tx.buf.resize(whole, 0);
    let next = pair.seal(&[frame(5)]);
    assert_eq!(next[0][4..8], 5u32.to_be_bytes());
    assert_eq!(pair.open(&next).len(), 1);
    assert_eq!(pair.dropped(), None);
    only(OutStateProtoError, &before, &pair.a);
}

/// A packet from the network is dropped, while those of another SA pass.
fn arriving(reason: DropReason, other: Make, prepare: impl FnOnce(&mut Receiver) -> Arriving) {
    let mut r = Receiver::with(vec![Make::default(), Make { spi: OTHER_SPI, ..other }]);
    let bad = prepare(&mut r);
    let passes = |r: &mut Receiver, seq: u64| {
        let packet = Spec::tcp(700).build();
        assert_eq!(r.delivers(&r.esp_of(0, seq, &text(&packet, 4, 16))), packet);
    };
    passes(&mut r, 10);
    let (before, top) = (r.engine.counters(), r.top());
    arrive(&mut r, &bad);
    only(reason, &before, &r.engine);
    let traffic = r.engine.counters().traffic;
    assert_eq!(traffic.in_packets, before.traffic.in_packets + 1, "{reason}");
    assert_eq!((traffic.in_writes, traffic.in_merged), (before.traffic.in_writes, before.traffic.in_merged));
    assert_eq!((traffic.in_dummies, traffic.in_bytes), (before.traffic.in_dummies, before.traffic.in_bytes));
    assert_eq!(r.top(), top, "{reason}: the window of the other SA stays");
    passes(&mut r, 11);
    only(reason, &before, &r.engine);
}

/// Nothing of it is delivered. A packet without bytes is one that lies behind the buffer.
fn arrive(r: &mut Receiver, bad: &Arriving) {
    if !bad.bytes.is_empty() {
        assert!(r.take(std::slice::from_ref(bad)).is_empty());
        return;
    }
    let datagram = Datagram {
        offset: 0,
        len: 101,
        segment_size: 0,
        local: bad.local,
        remote: bad.remote,
        carrier: bad.carrier,
        tos: 0,
    };
    r.rx.clear();
    r.worker.inbound(&mut [0; 100], &[datagram], &mut r.rx);
    assert!(r.rx.writes.is_empty());
}

/// One packet more is dropped for this reason, none for another, and the books balance.
fn only(reason: DropReason, before: &Counters, engine: &Engine) {
    let after = engine.counters();
    assert!(after.balance(), "{reason}: {after:?}");
    assert_eq!(after.held, 0, "{reason}");
    for (each, count) in after.drops() {
        assert_eq!(count - before.dropped(each), u64::from(each == reason), "{reason}: {each}");
    }
}

#[test]
fn each_has_a_packet_that_is_dropped_for_it_alone() {
    for reason in DropReason::ALL {
        case(*reason);
    }
}
