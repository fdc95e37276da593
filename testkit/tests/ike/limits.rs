//! The limits of an SA in packets, bytes and time: it is rekeyed at the soft one and closed at the
//! hard one, whichever end counts and in whichever direction; ends with the same limits do not
//! rekey twice; ciphers with small blocks have a limit in bytes when none is configured.

use std::time::Duration;

use ironswan_ike::event::Event;
use ironswan_keying::{ChildAction, ChildConfig};
use ironswan_testkit::engine::PACKET;
use ironswan_testkit::{Verdict, World};
use ironswan_wire::iana::{EncrId, EsnId, ExchangeType, IntegId, ProtocolId};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::Lifetime;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

type Change = fn(&mut ChildConfig);

const GIB: u64 = 1 << 30;

fn packets(soft: u64, hard: u64) -> Lifetime {
    Lifetime { soft_packets: soft, hard_packets: hard, ..Lifetime::default() }
}

fn bytes(soft: u64, hard: u64) -> Lifetime {
    Lifetime { soft_bytes: soft * PACKET, hard_bytes: hard * PACKET, ..Lifetime::default() }
}

/// One packet each way every 10 ms, and a child whose limits `tweak` sets on the nodes that it is
/// called for.
fn world(seed: u64, nodes: &[usize], tweak: impl Fn(&mut ChildConfig)) -> World {
    let mut w = World::pair(seed, |c| {
        for n in nodes {
            tweak(&mut c[*n].children[0]);
        }
    });
    w.traffic = Some(10 * MS);
    w.establish(0).unwrap();
    w
}

fn rekeyed(w: &World, node: usize) -> u64 {
    w.nodes[node].endpoint.protocol().counters().child_rekey
}

fn collisions(w: &World) -> usize {
    w.nodes.iter().map(|n| n.count_logged("CHILD_SA rekey collision detected")).sum()
}

#[test]
fn a_soft_limit_rekeys_without_the_loss_of_a_packet() {
    // 20,000 packets each way. Limits of 500 less up to 250 at random: 40 to 80 rekeyings.
    for limit in [packets(500, 1_000), bytes(500, 1_000)] {
        for nodes in [&[0][..], &[1], &[0, 1]] {
            let mut w = world(1, nodes, |c| c.lifetime = limit);
            w.run(200 * S);
            w.traffic = None;
            w.run(20 * S);
            w.assert_one();
            let n = rekeyed(&w, 0);
            assert!((40..=82).contains(&n), "{n} rekeyings for {limit:?} of {nodes:?}");
            assert_eq!(n, rekeyed(&w, 1));
            assert!(w.nodes.iter().all(|n| n.esp.0 > 19_900 && n.esp.1 == 0));
            // Ends that count the same packets do not begin at the same moment, but for an
            // accident.
            assert!(collisions(&w) <= 4, "{} collisions", collisions(&w));
            assert!(nodes.len() == 2 || collisions(&w) == 0);
            w.audit();
        }
    }
}

#[test]
fn without_room_between_the_limits_both_begin_at_once_and_one_sa_stays() {
    let mut w = world(2, &[0, 1], |c| c.lifetime = packets(500, 0));
    w.run(60 * S);
    w.traffic = None;
    w.run(30 * S);
    w.assert_one();
    assert!(collisions(&w) > 0, "the case that this is about");
    assert!((10..=13).contains(&rekeyed(&w, 0)), "{}", rekeyed(&w, 0));
    assert!(w.nodes.iter().all(|n| n.esp.1 == 0));
    w.audit();
}

#[test]
fn a_soft_limit_in_time_rekeys_without_the_loss_of_a_packet() {
    for nodes in [&[0][..], &[1], &[0, 1]] {
        let mut w = world(3, nodes, |c| (c.rekey_time, c.rand_time, c.life_time) = (60 * S, 20 * S, 90 * S));
        w.run(600 * S);
        w.traffic = None;
        assert!(w.run_until(60 * S, |w| w.fault().is_none()), "{:?}", w.fault());
        let n = rekeyed(&w, 0);
        assert!((10..=15).contains(&n), "{n} rekeyings by {nodes:?}");
        assert!(w.nodes.iter().all(|n| n.esp.1 == 0) && collisions(&w) <= 2);
    }
}

/// The peer cannot be reached for rekeying.
fn no_rekeying(w: &mut World) {
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::CREATE_CHILD_SA {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
}

#[test]
fn a_hard_limit_closes_what_could_not_be_rekeyed() {
    let limits: [(&str, Change); 3] = [
        ("packets", |c| c.lifetime = packets(500, 800)),
        ("bytes", |c| c.lifetime = bytes(500, 800)),
        ("time", |c| (c.rekey_time, c.life_time) = (30 * S, 40 * S)),
    ];
    for (what, limit) in limits {
        for node in 0..2 {
            for action in [ChildAction::None, ChildAction::Start] {
                let mut w = World::pair(4, |c| {
                    limit(&mut c[node].children[0]);
                    c[node].children[0].start_action = action;
                });
                w.traffic = Some(10 * MS);
                w.run(S);
                if action == ChildAction::None {
                    w.establish(node).unwrap();
                }
                w.assert_one();
                let first = w.child(node);
                no_rekeying(&mut w);
                // The peer has not been given up by then: its answer to the rekeying is still
                // waited for.
                w.run(if what == "time" { 41 * S } else { 9 * S });
                assert!(!w.up(node).is_empty());
                assert!(!w.nodes[node].engine.inbound.contains_key(&first.spi_in), "{what}");
                let carried = w.nodes[node].engine.counts[&(false, first.spi_out)];
                if what != "time" {
                    assert!((800..1_000).contains(&carried), "{what}: {carried} counted by {node}");
                }
                assert!(w.nodes[node].logged("expired, closing it"), "{what}");
                w.net.rules.clear();
                w.run(100 * S);
                assert!(
                    !w.nodes.iter().any(|n| n.engine.inbound.contains_key(&first.spi_in)),
                    "{what} {node}"
                );
                let down = |n: &ironswan_testkit::Node| {
                    n.events.iter().any(|e| matches!(e, Event::ChildDown { .. } | Event::ChildRekeyed { .. }))
                };
                assert!(down(&w.nodes[0]) && down(&w.nodes[1]));
                if action == ChildAction::Start {
                    w.traffic = None;
                    assert!(w.run_until(60 * S, |w| w.fault().is_none()), "{what}: {:?}", w.fault());
                }
                w.audit();
            }
        }
    }
}

fn lifetimes(encr: EncrId, bits: Option<u16>, integ: Option<IntegId>, configured: Lifetime) -> [Lifetime; 2] {
    let mut transforms = vec![Transform::Encr(encr, bits)];
    transforms.extend(integ.map(Transform::Integ));
    transforms.push(Transform::Esn(EsnId::NO_ESN));
    let p = Proposal { number: 1, protocol: ProtocolId::ESP, spi: Vec::new(), transforms };
    let mut w = World::pair(5, |c| {
        for c in c {
            (c.children[0].proposals, c.children[0].lifetime) = (vec![p.clone()], configured);
        }
    });
    w.establish(0).unwrap();
    let e = &w.nodes[0].engine;
    [e.inbound.values().next().unwrap().lifetime, e.outbound[0].lifetime]
}

#[test]
fn a_cipher_with_small_blocks_is_rekeyed_long_before_32_gib() {
    let sha = Some(IntegId::HMAC_SHA2_256_128);
    for l in lifetimes(EncrId::DES3, None, sha, Lifetime::default()) {
        assert!((GIB / 2..=GIB).contains(&l.soft_bytes), "{l:?}");
        assert_eq!((l.hard_bytes, l.soft_packets, l.hard_packets), (2 * GIB, 0, 0));
    }
    // Limits in packets say nothing about bytes.
    for l in lifetimes(EncrId::DES3, None, sha, packets(7, 7)) {
        assert_eq!((l.soft_packets, l.hard_bytes), (7, 2 * GIB));
    }
    // What is configured counts, whatever it is.
    let own = Lifetime { soft_bytes: 50 * GIB, hard_bytes: 50 * GIB, ..Lifetime::default() };
    assert_eq!(lifetimes(EncrId::DES3, None, sha, own), [own, own]);
    for (encr, bits, integ) in [
        (EncrId::AES_CBC, Some(128), sha),
        (EncrId::AES_CTR, Some(128), sha),
        (EncrId::NULL, None, sha),
        (EncrId::AES_GCM_16, Some(128), None),
        (EncrId::NULL_AES_GMAC, Some(128), None),
        (EncrId::CHACHA20_POLY1305, None, None),
    ] {
        assert_eq!(lifetimes(encr, bits, integ, Lifetime::default()), [Lifetime::default(); 2], "{encr}");
    }
}

#[test]
fn both_ends_draw_limits_of_their_own() {
    let configured =
        Lifetime { soft_bytes: 1_000_000, hard_bytes: 1_200_000, soft_packets: 1_000, hard_packets: 1_500 };
    let mut w = World::pair(6, |c| c.iter_mut().for_each(|c| c.children[0].lifetime = configured));
    w.establish(0).unwrap();
    let all: Vec<Lifetime> = w
        .nodes
        .iter()
        .flat_map(|n| n.engine.inbound.values().chain(&n.engine.outbound))
        .map(|sa| sa.lifetime)
        .collect();
    assert_eq!(all.len(), 4);
    for (i, l) in all.iter().enumerate() {
        assert!(
            (800_000..=1_000_000).contains(&l.soft_bytes) && (500..=1_000).contains(&l.soft_packets),
            "{l:?}"
        );
        assert_eq!((l.hard_bytes, l.hard_packets), (1_200_000, 1_500));
        assert!(all[..i].iter().all(|m| m.soft_bytes != l.soft_bytes), "{all:?}");
    }
}
