//! Establishing, rekeying, deleting: without faults.

use std::time::Duration;

use ironswan_keying::{AddrSpec, Limits};
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};

const S: Duration = Duration::from_secs(1);

#[test]
fn two_gateways_establish_over_ipv4() {
    let mut w = World::pair(1, |_| {});
    w.establish(0).unwrap();
    w.assert_one();
    assert!(w.nodes[0].logged("initiating IKE_SA gw[1] to 192.0.2.2"));
    let line = "IKE_SA gw[1] established between 192.0.2.1[g1.example]...192.0.2.2[g2.example]";
    assert!(w.nodes[0].logged(line), "{:?}", w.nodes[0].log);
    assert!(w.nodes[0].logged("and TS 10.1.0.0/24 === 10.2.0.0/24"));
    assert!(w.nodes[1].logged("and TS 10.2.0.0/24 === 10.1.0.0/24"));
    assert_eq!(w.net.count, 4, "two exchanges");
    assert_eq!(w.nodes[0].keys.len(), 3, "one IKE_SA and two directions");
}

#[test]
fn two_gateways_establish_over_ipv6() {
    let (a, b) = (config::ip("2001:db8::1"), config::ip("2001:db8::2"));
    let mut w = World::pair_at(2, a, b, Limits::default(), |_| {});
    w.establish(1).unwrap();
    w.assert_one();
}

#[test]
fn an_initiator_without_an_address_of_its_own_asks_for_one() {
    let mut w = World::pair(3, |c| c[0].local_addrs = vec![AddrSpec::Any]);
    w.establish(0).unwrap();
    w.assert_one();
    assert_eq!(w.up(0)[0].local.to_string(), "192.0.2.1:500");
}

#[test]
fn a_block_cipher_with_integrity_works_as_well() {
    for ke in [KeId::ECP_256, KeId::ECP_384, KeId::MODP_2048, KeId::MODP_3072] {
        let mut w = World::pair(4, |c| {
            c.iter_mut().for_each(|c| c.proposals = vec![config::ike_proposal_cbc(&[ke])])
        });
        w.establish(0).unwrap();
        w.assert_one();
        assert_eq!(w.up(0)[0].suite.unwrap().ke, ke);
    }
}

#[test]
fn children_are_rekeyed_by_either_side_without_loss() {
    for pfs in [&[][..], &[KeId::CURVE_25519]] {
        for node in 0..2 {
            let mut w = World::pair(5, |c| {
                c.iter_mut().for_each(|c| c.children[0].proposals = vec![config::esp_proposal(pfs)]);
            });
            w.establish(0).unwrap();
            w.traffic = Some(Duration::from_millis(1));
            w.run(S);
            for round in 0..3 {
                let before = w.child(node);
                let ticket = w.rekey_child(node);
                w.run(20 * S);
                assert_eq!(w.nodes[node].done[&ticket], Ok(()));
                w.assert_one();
                let after = w.child(node);
                assert_ne!((before.spi_in, before.id), (after.spi_in, after.id), "round {round}");
                assert_eq!(before.reqid, after.reqid);
                assert_eq!(after.suite.ke, pfs.first().copied());
            }
            for n in &w.nodes {
                assert!(n.esp.0 > 60_000, "{:?}", n.esp);
                assert_eq!(n.esp.1, 0, "packets without SA");
            }
        }
    }
}

#[test]
fn ike_sas_are_rekeyed_by_either_side_and_children_go_along() {
    for node in 0..2 {
        let mut w = World::pair(6, |_| {});
        w.establish(0).unwrap();
        w.traffic = Some(Duration::from_millis(10));
        for _ in 0..3 {
            let (before, child) = (w.up(node)[0].clone(), w.child(node));
            let ticket = w.rekey_ike(node);
            w.run(5 * S);
            assert_eq!(w.nodes[node].done[&ticket], Ok(()));
            w.assert_one();
            let after = w.up(node)[0].clone();
            assert_ne!((before.spi_i, before.id), (after.spi_i, after.id));
            assert!(after.initiator);
            assert_eq!((child.id, child.spi_in), (w.child(node).id, w.child(node).spi_in));
        }
        let ticket = w.rekey_child(1 - node);
        w.run(10 * S);
        assert_eq!(w.nodes[1 - node].done[&ticket], Ok(()));
        w.assert_one();
        assert_eq!(w.nodes[0].esp.1 + w.nodes[1].esp.1, 0);
    }
}

#[test]
fn deletion_by_either_side_leaves_nothing() {
    for node in 0..2 {
        let mut w = World::pair(7, |_| {});
        w.establish(0).unwrap();
        let ticket = w.terminate(node, true);
        w.run(S);
        assert_eq!(w.nodes[node].done[&ticket], Ok(()));
        for i in 0..2 {
            assert_eq!((w.up(i).len(), w.up(i)[0].children.len()), (1, 0));
            assert!(w.nodes[i].engine.inbound.is_empty() && w.nodes[i].engine.policies.is_empty());
        }
        w.establish(node).unwrap();
        w.assert_one();
        let ticket = w.terminate(node, false);
        w.run(S);
        assert_eq!(w.nodes[node].done[&ticket], Ok(()));
        w.assert_empty();
        w.establish(1 - node).unwrap();
        w.assert_one();
    }
}

#[test]
fn shutdown_tells_the_peer() {
    let mut w = World::pair(8, |_| {});
    w.establish(0).unwrap();
    let now = w.now();
    w.nodes[0].endpoint.shutdown(now);
    w.run(S);
    w.assert_empty();
}

#[test]
fn the_responder_of_a_rekeying_sends_on_the_new_sa_once_it_is_used_or_the_old_one_deleted() {
    for traffic in [true, false] {
        let mut w = World::pair(9, |_| {});
        w.establish(0).unwrap();
        // The DELETE is held up.
        w.net.rules.push(Box::new(|s| match s.exchange {
            ExchangeType::INFORMATIONAL if !s.response => Verdict::Delay(2 * S),
            _ => Verdict::Pass,
        }));
        w.traffic = traffic.then_some(Duration::from_millis(10));
        let old = w.nodes[1].engine.sending().unwrap().spi;
        w.rekey_child(0);
        w.run(S);
        assert_eq!(w.nodes[1].engine.sending().unwrap().spi == old, !traffic);
        w.run(3 * S);
        assert_ne!(w.nodes[1].engine.sending().unwrap().spi, old);
        // Both keep the old inbound SA for what is still under way, but send on the new one only.
        for n in &w.nodes {
            assert_eq!((n.engine.inbound.len(), n.engine.outbound.len()), (2, 1));
        }
        w.run(5 * S);
        w.assert_one();
    }
}

#[test]
fn the_old_inbound_sas_of_a_rekeyed_child_go_with_its_successor() {
    for child_only in [true, false] {
        for rekeyings in [1, 2] {
            let mut w = World::pair(10, |_| {});
            w.establish(0).unwrap();
            for by in 0..rekeyings {
                w.rekey_child(by);
                w.run(S);
            }
            let inbound = |w: &World| w.nodes.iter().map(|n| n.engine.inbound.len()).collect::<Vec<_>>();
            assert_eq!(inbound(&w), [rekeyings + 1; 2], "they are kept for five seconds");
            w.terminate(0, child_only);
            w.run(S);
            for n in &w.nodes {
                assert!(n.engine.policies.is_empty());
            }
            assert_eq!(inbound(&w), [0; 2], "child only: {child_only}, {rekeyings} rekeyings");
            w.audit();
        }
    }
}
