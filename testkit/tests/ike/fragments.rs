//! IKE messages in fragments (RFC 7383): lost, doubled, late, forged, in both roles.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_keying::limits::FRAGMENTS_KEPT;
use ironswan_keying::{Connection, Fragmentation, Limits};
use ironswan_testkit::{Forger, Packet, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType};
use ironswan_wire::ike::payload::{Notify, find_notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits, any redundant SA stays, any retry waits.
const REST: Duration = Duration::from_secs(1_000);
/// An IKE_AUTH message of these worlds needs two fragments of this many bytes or more.
const SIZE: usize = 200;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn a() -> SocketAddr {
    addr("192.0.2.1:500")
}

fn b() -> SocketAddr {
    addr("192.0.2.2:500")
}

fn world(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let limits = Limits { fragment_size: SIZE, ..Limits::default() };
    World::pair_at(seed, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, tweak)
}

/// Number and total of a message that is a fragment.
fn fragment(packet: &Packet) -> Option<(u16, u16)> {
    match Message::parse(&packet.payload).ok()?.payloads.last()? {
        Payload::Skf(skf) => Some((skf.fragment.number, skf.fragment.total)),
        _ => None,
    }
}

/// The fragments that this node has sent.
fn fragments(w: &World, node: usize) -> Vec<&(Seen, Packet)> {
    w.net.log.iter().filter(|(s, p)| s.node == node && fragment(p).is_some()).collect()
}

/// A life: set up by 0, child and IKE_SA rekeyed by both, all closed by 0.
fn life(w: &mut World, mut check: impl FnMut(&World, &str, bool)) {
    let _ = w.establish(0);
    w.run(REST);
    check(w, "establish", true);
    for node in 0..2 {
        w.rekey_child(node);
        w.run(REST);
        check(w, "rekey child", true);
        w.rekey_ike(node);
        w.run(REST);
        check(w, "rekey IKE_SA", true);
    }
    w.terminate(0, false);
    w.run(REST);
    check(w, "terminate", false);
}

fn good(w: &World, step: &str, up: bool, what: &str) {
    let fault = if up { w.fault() } else { w.remains() };
    if let Some(fault) = fault {
        w.dump();
        panic!("{what}, after {step}: {fault}");
    }
}

#[test]
fn long_messages_are_cut_also_after_a_rekeying_and_no_ip_packet_is_longer_than_the_limit() {
    let mut w = world(1, |_| {});
    life(&mut w, |w, step, up| good(w, step, up, "without loss"));
    for node in 0..2 {
        let sent = fragments(&w, node);
        let of = |exchange| sent.iter().filter(|(s, _)| s.exchange == exchange).count();
        assert!(of(ExchangeType::IKE_AUTH) >= 2, "{node}");
        assert!(of(ExchangeType::CREATE_CHILD_SA) >= 8, "{node}");
    }
    for (seen, p) in &w.net.log {
        let cut = seen.exchange != ExchangeType::IKE_SA_INIT;
        assert!(!cut || 20 + 8 + p.payload.len() <= SIZE, "{seen:?}: {} bytes", p.payload.len());
        assert!(cut || fragment(p).is_none());
    }
}

/// RFC 7383 section 2.5.1, where nothing is known of the path.
#[test]
fn without_a_size_an_ip_packet_is_as_long_as_every_path_takes_it() {
    for (ours, theirs, headers, most) in
        [("192.0.2.1", "192.0.2.2", 20 + 8, 576), ("2001:db8::1", "2001:db8::2", 40 + 8, 1_280)]
    {
        let limits = Limits { fragment_size: 0, ..Limits::default() };
        let mut w = World::pair_at(14, config::ip(ours), config::ip(theirs), limits, |c| {
            let kex = config::ike_proposal_with(&[KeId::CURVE_25519], &[(1, KeId::ML_KEM_1024)]);
            c.iter_mut().for_each(|c| c.proposals = vec![kex.clone()]);
        });
        w.establish(0).unwrap();
        w.assert_one();
        for node in 0..2 {
            let longest = fragments(&w, node).iter().map(|(_, p)| headers + p.payload.len()).max().unwrap();
            assert!((most - 32..=most).contains(&longest), "{theirs}: {longest} bytes");
        }
    }
}

#[test]
fn every_fragment_may_be_lost_once() {
    let mut w = world(2, |_| {});
    life(&mut w, |w, step, up| good(w, step, up, "without loss"));
    let total = w.net.count;
    assert!(total > 30, "{total}");
    for k in 0..total {
        let mut w = world(2, |_| {});
        w.net.rules.push(Box::new(move |s| if s.index == k { Verdict::Drop } else { Verdict::Pass }));
        life(&mut w, |w, step, up| good(w, step, up, &format!("datagram {k} lost")));
        assert_eq!(w.net.lost, 1);
        assert!(w.net.count > total, "datagram {k} was sent again");
    }
}

#[test]
fn every_fragment_may_come_late() {
    let mut w = world(3, |_| {});
    life(&mut w, |_, _, _| {});
    for k in 0..w.net.count {
        for delay in [20 * MS, 6 * S] {
            let mut w = world(3, |_| {});
            w.net.rules.push(Box::new(
                move |s| {
                    if s.index == k { Verdict::Delay(delay) } else { Verdict::Pass }
                },
            ));
            life(&mut w, |w, step, up| good(w, step, up, &format!("datagram {k} late by {delay:?}")));
        }
    }
}

#[test]
fn doubled_reordered_and_lost_fragments_leave_one_sa() {
    for seed in 0..40 {
        let mut w = world(seed, |_| {});
        (w.net.loss, w.net.duplicate, w.net.jitter) = (50, 300, 40 * MS);
        life(&mut w, |w, step, up| {
            // With so much loss an attempt may fail; nothing half may be left of it.
            if !w.nodes.iter().any(|n| n.logged("giving up")) {
                good(w, step, up, &format!("seed {seed}"));
            }
        });
    }
}

#[test]
fn the_setting_of_either_side_decides_who_sends_fragments() {
    use Fragmentation::{Accept, No, Yes};
    for (ours, theirs, sends) in [
        (Yes, Yes, [true, true]),
        (Yes, Accept, [true, false]),
        (Accept, Yes, [false, true]),
        (Accept, Accept, [false, false]),
        (Yes, No, [false, false]),
        (No, Yes, [false, false]),
    ] {
        let mut w = world(4, |c| (c[0].fragmentation, c[1].fragmentation) = (ours, theirs));
        w.establish(0).unwrap();
        w.assert_one();
        assert_eq!([0, 1].map(|n| !fragments(&w, n).is_empty()), sends, "{ours:?} {theirs:?}");
        let announced = |node: usize| {
            let (_, p) = w.net.log.iter().find(|(s, _)| s.node == node).unwrap();
            let message = Message::parse(&p.payload).unwrap();
            find_notify(&message.payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).is_some()
        };
        assert_eq!(announced(0), ours != No);
        assert_eq!(announced(1), ours != No && theirs != No, "an answer to an announcement only");
    }
}

#[test]
fn only_the_first_fragment_of_an_answered_request_is_answered_again() {
    let mut w = world(5, |_| {});
    w.establish(0).unwrap();
    let request: Vec<_> = fragments(&w, 0).into_iter().map(|(_, p)| p.payload.clone()).collect();
    let answers = fragments(&w, 1).len();
    assert!(request.len() >= 2 && answers >= 2);
    for (n, bytes) in request.into_iter().enumerate() {
        let before = fragments(&w, 1).len();
        w.inject(a(), b(), bytes);
        w.run(S);
        assert_eq!(fragments(&w, 1).len() - before, if n == 0 { answers } else { 0 }, "fragment {}", n + 1);
    }
    w.assert_one();
}

/// A world at rest with the forger of both its ends, and an INFORMATIONAL request's payloads.
fn up(seed: u64) -> (World, Forger, PayloadType, Vec<u8>) {
    let mut w = world(seed, |_| {});
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    let notify = Payload::Notify(Notify::new(NotifyType(40_000), vec![7; 60]));
    let (first, plain) = ironswan_wire::ike::emit_chain(&[notify]).unwrap();
    (w, f, first, plain)
}

const MID: u32 = 2;

/// Gives node 1 one fragment of a request of node 0, and tells whether an answer came.
fn give(w: &mut World, f: &mut Forger, place: (u16, u16), first: PayloadType, part: &[u8]) -> bool {
    let bytes = f.fragment(true, ExchangeType::INFORMATIONAL, MID, place, first, part);
    let before = w.net.log.len();
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    w.net.log[before..].iter().any(|(s, _)| s.node == 1 && s.response)
}

#[test]
fn a_request_that_comes_again_in_smaller_fragments_is_answered_again() {
    let (mut w, mut f, first, plain) = up(6);
    assert!(!give(&mut w, &mut f, (1, 2), first, &plain[..30]));
    // Smaller ones while the larger ones are incomplete: only these count now.
    assert!(!give(&mut w, &mut f, (3, 3), PayloadType::NONE, &plain[40..]));
    assert!(!give(&mut w, &mut f, (2, 2), PayloadType::NONE, &plain[30..]));
    assert!(!give(&mut w, &mut f, (1, 3), first, &plain[..20]));
    assert!(give(&mut w, &mut f, (2, 3), PayloadType::NONE, &plain[20..40]));
    // Once it is answered, number 1 of any total brings the answer, and no other number does.
    assert!(give(&mut w, &mut f, (1, 4), first, &plain[..16]));
    assert!(!give(&mut w, &mut f, (2, 4), PayloadType::NONE, &plain[16..32]));
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn fragments_that_are_forged_or_nonsense_change_nothing() {
    let (mut w, mut f, first, plain) = up(7);
    assert!(!give(&mut w, &mut f, (1, 2), first, &plain[..30]));
    for place in [(0, 2), (3, 2), (0, 0), (2, 1), (1, 1_000), (2, u16::MAX), (1, 1)] {
        assert!(!give(&mut w, &mut f, place, first, &plain), "{place:?}");
    }
    // Wrong ICV: with a larger total it must not throw away what is there.
    for place in [(2, 2), (1, 3)] {
        let mut bytes = f.fragment(true, ExchangeType::INFORMATIONAL, MID, place, first, &plain);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        w.inject(a(), b(), bytes);
    }
    // Of the message before, and of one that cannot be expected yet.
    for mid in [MID - 1, MID + 1] {
        let bytes = f.fragment(true, ExchangeType::INFORMATIONAL, mid, (2, 2), first, &plain);
        w.inject(a(), b(), bytes);
    }
    w.run(S);
    assert!(give(&mut w, &mut f, (2, 2), PayloadType::NONE, &plain[30..]));
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn a_whole_message_may_take_the_place_of_fragments() {
    let (mut w, mut f, first, plain) = up(8);
    assert!(!give(&mut w, &mut f, (2, 2), PayloadType::NONE, &plain[30..]));
    let whole = f.raw(true, ExchangeType::INFORMATIONAL, false, MID, first, &plain);
    let before = w.net.log.len();
    w.inject(a(), b(), whole);
    w.run(100 * MS);
    assert!(w.net.log[before..].iter().any(|(s, _)| s.node == 1 && s.response));
    // Number 1 of what was answered whole is the same request once more.
    assert!(give(&mut w, &mut f, (1, 2), first, &plain[..30]));
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn fragments_are_forgotten_after_a_while() {
    let (mut w, mut f, first, plain) = up(9);
    assert!(!give(&mut w, &mut f, (1, 2), first, &plain[..30]));
    w.run(FRAGMENTS_KEPT);
    assert!(!give(&mut w, &mut f, (2, 2), PayloadType::NONE, &plain[30..]), "number 1 is gone");
    assert!(give(&mut w, &mut f, (1, 2), first, &plain[..30]));
}

#[test]
fn the_time_of_one_message_is_not_that_of_the_next() {
    let (mut w, mut f, first, plain) = up(12);
    assert!(!give(&mut w, &mut f, (1, 2), first, &plain[..30]));
    let whole = f.raw(true, ExchangeType::INFORMATIONAL, false, MID, first, &plain);
    w.inject(a(), b(), whole);
    w.run(FRAGMENTS_KEPT - S);
    let mut next = |w: &mut World, place, first, part: &[u8]| {
        let bytes = f.fragment(true, ExchangeType::INFORMATIONAL, MID + 1, place, first, part);
        let before = w.net.log.len();
        w.inject(a(), b(), bytes);
        w.run(2 * S);
        w.net.log[before..].iter().any(|(s, _)| s.node == 1 && s.response)
    };
    assert!(!next(&mut w, (1, 2), first, &plain[..30]));
    assert!(next(&mut w, (2, 2), PayloadType::NONE, &plain[30..]), "number 1 has waited 2 s only");
}

/// The peer sends all fragments of IKE_AUTH at once, and the first of them has the secret computed.
#[test]
fn many_fragments_that_come_while_the_secret_is_computed_are_kept() {
    let limits = Limits { fragment_size: 104, ..Limits::default() };
    let mut w = World::pair_at(13, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |_| {});
    w.initiate(0);
    assert!(w.run_until(S, |w| w.net.log.iter().any(|(s, _)| s.node == 1)));
    w.nodes[1].held = Some(Vec::new());
    w.run(S);
    let request = fragments(&w, 0).len();
    assert!(request > 12, "{request} fragments");
    let now = w.now();
    w.nodes[1].release(now);
    w.run(S);
    w.assert_one();
    assert_eq!(fragments(&w, 0).len(), request, "none was sent again");
}

#[test]
fn a_message_of_fragments_that_cannot_be_read_ends_the_ike_sa() {
    let (mut w, mut f, first, plain) = up(10);
    assert!(!give(&mut w, &mut f, (2, 2), PayloadType::NONE, &[0; 7]));
    assert!(give(&mut w, &mut f, (1, 2), first, &plain));
    assert!(w.up(1).is_empty());
}

#[test]
fn strangers_fragments_before_there_are_keys_are_not_kept() {
    let mut w = world(11, |_| {});
    let skf = |mid, number, spi_i, spi_r| {
        let mut bytes = Vec::new();
        let header = Header::new(spi_i, spi_r, ExchangeType::IKE_AUTH, Flags::new(true, false), mid);
        let fragment = ironswan_wire::ike::Fragment { number, total: 9 };
        let payload =
            ironswan_wire::ike::payload::Skf { inner: PayloadType::IDI, fragment, body: vec![0; 100] };
        bytes.extend(Message { header, payloads: vec![Payload::Skf(payload)] }.emit().unwrap());
        bytes
    };
    // Everything of node 0 after IKE_SA_INIT is lost.
    w.net.rules.push(Box::new(|s| {
        if s.node == 0 && s.exchange == ExchangeType::IKE_AUTH { Verdict::Drop } else { Verdict::Pass }
    }));
    w.initiate(0);
    w.run(S);
    let sa = w.nodes[1].sas(w.now()).pop().expect("half open");
    for n in 1..=9 {
        w.inject(a(), b(), skf(1, n, sa.spi_i, sa.spi_r));
        w.inject(a(), b(), skf(5, n, sa.spi_i, sa.spi_r));
        w.inject(a(), b(), skf(1, n, sa.spi_i, sa.spi_r ^ 1));
    }
    w.run(S);
    // The real one still gets in.
    w.net.rules.clear();
    w.run(30 * S);
    w.assert_one();
}
