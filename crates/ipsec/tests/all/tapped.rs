//! Copies of packets for captures: what is in the tunnel and around it, what became of it, and
//! nothing of what nobody wants.

use std::sync::Arc;

use ironswan_ipsec::DropReason::{self, *};
use ironswan_ipsec::{Carrier, Fate, Layer, Tap, TapPacket, Wanted};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Command, Direction, ReqId};

use crate::common::*;
use crate::in_common::{Receiver, ah};

fn all() -> Arc<Wanted> {
    wanted(true, &[])
}

fn wanted(everything: bool, reqids: &[u32]) -> Arc<Wanted> {
    let reqids = reqids.iter().copied().map(ReqId).collect();
    Arc::new(Wanted { everything, reqids, only_dropped: false, snaplen: 65_535, clock: || 1 })
}

/// The copies of one layer, with their bytes.
fn of(tap: &Tap, layer: Layer) -> Vec<(TapPacket, Vec<u8>)> {
    let wanted = tap.packets().iter().filter(|p| p.layer == layer);
    wanted.map(|p| (p.clone(), tap.bytes(p).to_vec())).collect()
}

fn fates(copies: &[(TapPacket, Vec<u8>)]) -> Vec<Fate> {
    copies.iter().map(|(p, _)| p.fate).collect()
}

fn send(pair: &mut Pair, frames: &[(Vec<u8>, Offload)], wanted: Arc<Wanted>) -> (Vec<Vec<u8>>, Box<Tap>) {
    pair.tx.tap(wanted);
    let esp = pair.seal(frames);
    (esp, pair.tx.take_tap().unwrap())
}

fn receive(pair: &mut Pair, esp: &[Vec<u8>], wanted: Arc<Wanted>) -> Box<Tap> {
    pair.rx.tap(wanted);
    pair.open(esp);
    pair.rx.take_tap().unwrap()
}

#[test]
fn both_ends_copy_the_same_inner_and_outer_packets() {
    for algorithm in [AES128GCM, CBC_SHA256] {
        for udp_encap in [false, true] {
            let mut pair = Pair::new(Options { algorithm, udp_encap, ..Options::default() });
            let superpacket = Spec::tcp(4_500);
            let frames = vec![superpacket.superpacket(1_000), (Spec::udp(77).build(), Offload::NONE)];
            let mut clear = superpacket.segments(1_000);
            clear.push(Spec::udp(77).build());
            let (esp, out) = send(&mut pair, &frames, all());
            let tap = receive(&mut pair, &esp, all());
            for (tap, direction) in [(&out, Direction::Out), (&tap, Direction::In)] {
                let (inner, outer) = (of(tap, Layer::Inner), of(tap, Layer::Outer));
                assert_eq!(inner.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>(), clear);
                assert_eq!(outer.iter().map(|(_, b)| b.clone()).collect::<Vec<_>>(), esp);
                for (n, (p, _)) in inner.iter().enumerate().chain(outer.iter().enumerate()) {
                    assert_eq!((p.direction, p.spi.0, p.reqid), (direction, SPI, Some(ReqId(REQID))));
                    assert_eq!((p.sequence, p.fate), (n as u64 + 1, Fate::Passed));
                }
                let (a, b) = pair.options.outer();
                let ends = if direction == Direction::Out { (a, b) } else { (b, a) };
                let at = outer[0].0.outer.unwrap();
                assert_eq!((at.local, at.remote), ends);
                assert_eq!(at.carrier, if udp_encap { Carrier::Udp } else { Carrier::Esp });
                assert!(inner.iter().all(|(p, _)| p.outer.is_none()));
                assert_eq!(tap.missed(), [0; 2]);
            }
        }
    }
}

#[test]
fn packets_of_other_policies_are_not_copied() {
    let mut pair = Pair::new(Options::default());
    let frames = [(Spec::udp(10).build(), Offload::NONE)];
    let (esp, out) = send(&mut pair, &frames, wanted(false, &[REQID + 1]));
    assert!(out.packets().is_empty());
    assert!(receive(&mut pair, &esp, wanted(false, &[REQID + 1])).packets().is_empty());
    let (esp, out) = send(&mut pair, &frames, wanted(false, &[REQID]));
    assert_eq!(out.packets().len(), 2);
    assert_eq!(receive(&mut pair, &esp, wanted(false, &[REQID])).packets().len(), 2);
    // Nobody watches any more.
    assert!(pair.tx.take_tap().is_none() && pair.rx.take_tap().is_none());
}

/// The only copy is one of this layer with this reason.
fn only(tap: &Tap, layer: Layer, reason: DropReason) -> TapPacket {
    assert_eq!(tap.packets().len(), 1, "{:?}", tap.packets());
    let p = tap.packets()[0].clone();
    assert_eq!((p.layer, p.fate), (layer, Fate::Dropped(reason)));
    p
}

#[test]
fn packets_that_are_dropped_are_copied_with_the_reason() {
    let mut pair = Pair::new(Options::default());
    let (esp, _) = send(&mut pair, &[(Spec::udp(10).build(), Offload::NONE)], all());
    receive(&mut pair, &esp, all());
    // Known by its number, and belongs to the policy.
    let p = only(&receive(&mut pair, &esp, wanted(false, &[REQID])), Layer::Outer, InStateSeqDuplicate);
    assert_eq!((p.spi.0, p.sequence), (SPI, 1));
    // A wrong ICV.
    let mut forged = pair.seal_one(&Spec::udp(10).build());
    *forged.last_mut().unwrap() ^= 1;
    only(&receive(&mut pair, &[forged], wanted(false, &[REQID])), Layer::Outer, InStateProtoError);
    // An SPI that nobody has is nobody's.
    let mut stranger = pair.seal_one(&Spec::udp(10).build());
    stranger[3] ^= 1;
    assert!(receive(&mut pair, &[stranger.clone()], wanted(false, &[REQID])).packets().is_empty());
    let p = only(&receive(&mut pair, &[stranger], all()), Layer::Outer, InNoStates);
    assert_eq!((p.reqid, p.spi.0), (None, SPI ^ 1));
    // No policy covers it.
    let elsewhere = Spec { dst: ip("10.9.0.1"), ..Spec::udp(10) }.build();
    let (esp, tap) = send(&mut pair, &[(elsewhere.clone(), Offload::NONE)], all());
    assert!(esp.is_empty());
    let p = only(&tap, Layer::Inner, OutNoPolicy);
    assert_eq!((tap.bytes(&p), p.reqid), (&elsewhere[..], None));
    let (_, tap) = send(&mut pair, &[(elsewhere, Offload::NONE)], wanted(false, &[REQID]));
    assert!(tap.packets().is_empty());
}

#[test]
fn an_inner_packet_that_is_not_of_its_sa_is_copied_with_its_outer_one() {
    let narrow = Options { left: vec![ts("10.1.0.0/24")], ..Options::default() };
    let mut pair = Pair::new(Options::default());
    let sa = pair.in_ref();
    pair.b.apply(SECOND, &Command::SaDelete(sa)).unwrap();
    let add = Command::SaAdd(Box::new(narrow.sa(Direction::In, SPI, REQID, 42)));
    pair.b.apply(SECOND, &add).unwrap();
    pair.wb.begin(SECOND);
    let frames = [
        (Spec::udp(10).build(), Offload::NONE),
        (Spec { src: ip("10.1.9.1"), ..Spec::udp(10) }.build(), Offload::NONE),
    ];
    let esp = pair.seal(&frames);
    let tap = receive(&mut pair, &esp, wanted(false, &[REQID]));
    let dropped = Fate::Dropped(InStateMismatch);
    assert_eq!(fates(&of(&tap, Layer::Outer)), [Fate::Passed, dropped]);
    let inner = of(&tap, Layer::Inner);
    assert_eq!(fates(&inner), [Fate::Passed, dropped]);
    assert_eq!(inner[1].1, frames[1].0);
}

#[test]
fn packets_of_the_general_path_are_copied_too() {
    let mut r = Receiver::new(ah());
    let clear = Spec::udp(20).build();
    let arriving = r.ah(1, &clear, 4);
    r.rx.tap(all());
    r.take(std::slice::from_ref(&arriving));
    let tap = r.rx.take_tap().unwrap();
    let (inner, outer) = (of(&tap, Layer::Inner), of(&tap, Layer::Outer));
    assert_eq!((inner.len(), outer.len()), (1, 1));
    assert_eq!((&inner[0].1, &outer[0].1), (&clear, &arriving.bytes));
    assert_eq!(outer[0].0.outer.unwrap().carrier, Carrier::Ip);
}
