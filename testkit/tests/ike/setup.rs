//! The first two exchanges: cookies, key exchange methods, NAT, selectors, identities, and every
//! way to be refused.

use std::time::Duration;

use ironswan_ike::event::{Event, IkeState};
use ironswan_keying::{AddrSpec, ChildAction, Limits, TsSpec, Unique};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Node, Verdict, World, config};
use ironswan_wire::iana::{EncrId, ExchangeType, KeId};
use ironswan_wire::id::IdPattern;
use ironswan_wire::proposal::Transform;
use ironswan_wire::sadb::{Action, Command, Up};
use ironswan_wire::selector::PacketSelector;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn two_copies_of_a_request_may_be_answered_differently() {
    // The first copy meets a busy responder, which asks for a cookie; the second one that is not
    // busy any more and answers. The cookie arrives first: the initiator signs the request with the
    // cookie, the responder has begun with the one without.
    let limits = Limits { cookie_threshold: 0, ..Limits::default() };
    let mut w = World::pair_at(12, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |_| {});
    let mut answers = 0;
    w.net.rules.push(Box::new(move |s| {
        if s.exchange != ExchangeType::IKE_SA_INIT || !s.response {
            return Verdict::Pass;
        }
        answers += 1;
        match answers {
            1 => Verdict::Delay(6 * S),
            2 => Verdict::Delay(8 * S),
            _ => Verdict::Pass,
        }
    }));
    w.initiate(0);
    w.run(S);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().cookies_sent, 1);
    let now = w.now();
    w.nodes[1].endpoint.set_limits(now, Limits::default());
    w.run(30 * S);
    w.assert_one();
    assert!(w.nodes[0].logged("received COOKIE notify"));
    assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 0);
    assert_eq!(w.nodes[1].kex, 2, "one key pair, one shared secret");
}

#[test]
fn a_cookie_is_brought_back() {
    let limits = Limits { cookie_threshold: 0, ..Limits::default() };
    let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    let mut w = World::pair_at(1, a, b, limits, |_| {});
    w.establish(0).unwrap();
    w.assert_one();
    assert_eq!(w.net.count, 6);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().cookies_sent, 1);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().cookies_invalid, 0);
    assert!(w.nodes[0].logged("received COOKIE notify"));
}

#[test]
fn another_key_exchange_method_is_tried_when_asked_for() {
    for cookie_threshold in [30, 0] {
        let limits = Limits { cookie_threshold, ..Limits::default() };
        let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
        let mut w = World::pair_at(2, a, b, limits, |c| {
            c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
            for c in c.iter_mut() {
                c.children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
            }
            c[0].children[0].proposals = vec![config::esp_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
        });
        w.establish(0).unwrap();
        w.assert_one();
        assert_eq!(w.up(0)[0].suite.unwrap().ke, KeId::CURVE_25519);
        assert!(
            w.nodes[0].logged("peer didn't accept key exchange method ECP_256, it requested CURVE_25519")
        );
        // COOKIE and INVALID_KE_PAYLOAD, each at most once: the cookie is kept for the second try.
        let sent = if cookie_threshold == 0 { 8 } else { 6 };
        assert_eq!(w.net.count, sent);
        // CREATE_CHILD_SA has its own INVALID_KE_PAYLOAD; later rekeyings lead with the method in
        // use.
        w.rekey_child(0);
        w.run(20 * S);
        w.assert_one();
        assert_eq!(w.child(0).suite.ke, Some(KeId::CURVE_25519));
        let before = w.net.count;
        w.rekey_child(0);
        w.run(20 * S);
        w.rekey_ike(0);
        w.run(20 * S);
        w.assert_one();
        assert_eq!(w.net.count - before, 8, "two exchanges each");
    }
}

#[test]
fn a_method_that_was_not_offered_is_not_asked_for() {
    let mut w = World::pair(3, |c| c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_384])]);
    let err = w.establish(0).unwrap_err();
    assert_eq!(err, "received NO_PROPOSAL_CHOSEN notify error (not authenticated)");
    assert!(w.nodes[1].logged("no acceptable proposal found"));
    assert!(
        w.nodes[1].logged("differ in KEY_EXCHANGE_METHOD: received ECP_384, configured CURVE_25519"),
        "{:?}",
        w.nodes[1].log
    );
    w.assert_empty();
}

#[test]
fn a_nat_in_front_of_either_is_found_and_esp_goes_in_udp() {
    for inside in 0..2 {
        let addrs = [config::ip("192.168.7.1"), config::ip("192.0.2.2")];
        let outside = config::ip("198.51.100.9");
        let nodes = vec![
            Node::seeded(vec![addrs[0]], 41, Limits::default()),
            Node::seeded(vec![addrs[1]], 42, Limits::default()),
        ];
        let mut w = World::new(4, nodes);
        let mut conns = config::pair(addrs[0], addrs[1]);
        conns[1].remote_addrs = vec![AddrSpec::Any];
        w.net.nat = Some(Nat::new(addrs[0], outside));
        w.load(conns);
        w.establish(0).unwrap();
        w.assert_one();
        let (a, b) = (w.up(0)[0].clone(), w.up(1)[0].clone());
        assert_eq!((a.nat_local, a.nat_remote, b.nat_local, b.nat_remote), (true, false, false, true));
        assert_eq!((a.local.port(), a.remote.port(), b.local.port()), (4500, 4500, 4500));
        assert_eq!(b.remote.ip(), outside);
        for n in &w.nodes {
            assert!(n.engine.outbound[0].udp_encap && n.engine.inbound.values().all(|s| s.udp_encap));
        }
        assert_eq!(w.nodes[1].engine.outbound[0].remote, b.remote);
        // The mapping is kept alive by whoever is behind it, and only by that one.
        let alive = |n: usize| w.nodes[n].keepalives;
        assert_eq!((alive(0), alive(1)), (0, 0));
        w.run(61 * S);
        assert_eq!((w.nodes[0].keepalives, w.nodes[1].keepalives), (3, 0));
        // The translator forgets: the next authenticated message moves the mapping, and the SAs
        // with it.
        w.net.nat.as_mut().unwrap().rebind();
        match inside {
            0 => drop(w.rekey_child(0)),
            _ => drop(w.rekey_ike(0)),
        }
        w.run(20 * S);
        w.assert_one();
        let moved = w.up(1)[0].remote;
        assert_ne!(moved, b.remote);
        assert_eq!(w.nodes[1].engine.outbound[0].remote, moved);
    }
}

#[test]
fn encap_pretends_a_nat() {
    for side in 0..2 {
        let mut w = World::pair(5, |c| c[side].encap = true);
        w.establish(0).unwrap();
        w.assert_one();
        for i in 0..2 {
            let sa = &w.up(i)[0];
            assert_eq!((sa.nat_fake, sa.nat_remote), (i == side, i != side));
            assert_eq!((sa.local.port(), sa.remote.port()), (4500, 4500));
            assert!(w.child(i).udp_encap);
        }
    }
}

#[test]
fn selectors_are_narrowed_to_what_both_allow_and_stay_so() {
    let mut w = World::pair(6, |c| {
        c[0].children[0].local_ts = vec![config::net("10.1.0.0/16")];
        c[0].children[0].remote_ts = vec![config::net("10.0.0.0/8")];
    });
    w.establish(0).unwrap();
    w.assert_one();
    let show = |w: &World| {
        let c = w.child(0);
        format!("{:?} {:?}", c.local_ts, c.remote_ts)
    };
    assert_eq!(show(&w), "[10.1.0.0/24] [10.2.0.0/24]");
    // The side with the wider configuration rekeys, and then the other.
    for node in [0, 1, 0] {
        w.rekey_child(node);
        w.run(20 * S);
        w.assert_one();
        assert_eq!(show(&w), "[10.1.0.0/24] [10.2.0.0/24]");
    }
}

#[test]
fn several_selectors_and_dynamic_ones() {
    let dynamic = TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65535 };
    let mut w = World::pair(7, |c| {
        for c in c.iter_mut() {
            c.children[0].local_ts.push(dynamic.clone());
            c.children[0].remote_ts.push(dynamic.clone());
        }
    });
    w.establish(1).unwrap();
    let c = w.child(0);
    assert_eq!(format!("{:?}", c.local_ts), "[10.1.0.0/24, 192.0.2.1/32]");
    assert_eq!(format!("{:?}", c.remote_ts), "[10.2.0.0/24, 192.0.2.2/32]");
    assert_eq!(w.nodes[0].engine.policies.len(), 4, "each pair");
}

#[test]
fn the_first_child_may_fail_without_the_ike_sa() {
    type Tweak = fn(&mut ironswan_keying::Connection);
    let cases: [(Tweak, &str, &str); 2] = [
        (
            |c| c.children[0].remote_ts = vec![config::net("172.16.0.0/16")],
            "received TS_UNACCEPTABLE notify error",
            "traffic selectors 172.16.0.0/16 === 10.1.0.0/24 unacceptable",
        ),
        (
            |c| c.children[0].proposals[0].transforms[0] = Transform::Encr(EncrId::CHACHA20_POLY1305, None),
            "received NO_PROPOSAL_CHOSEN notify error",
            "differ in ENCRYPTION_ALGORITHM: received CHACHA20_POLY1305, configured AES_GCM_16_128",
        ),
    ];
    for (tweak, error, line) in cases {
        let mut w = World::pair(8, |c| tweak(&mut c[0]));
        assert_eq!(w.establish(0).unwrap_err(), error);
        for i in 0..2 {
            assert_eq!(w.up(i).len(), 1);
            assert_eq!(w.up(i)[0].state, IkeState::Established);
            assert!(w.up(i)[0].children.is_empty());
            assert!(w.nodes[i].logged("failed to establish CHILD_SA, keeping IKE_SA"));
            assert!(w.nodes[i].engine.inbound.is_empty() && w.nodes[i].engine.policies.is_empty());
        }
        assert!(w.nodes[1].logged(line), "{:?}", w.nodes[1].log);
        // The IKE_SA is good for another try, which goes the same way by CREATE_CHILD_SA.
        assert_eq!(w.establish(0).unwrap_err(), error);
        assert_eq!((w.up(0).len(), w.up(1).len()), (1, 1));
        // The other side knows what fits neither: nothing half-made is left.
        w.terminate(1, false);
        w.run(S);
        w.assert_empty();
    }
}

#[test]
fn an_ike_sa_can_stand_without_child() {
    let mut w = World::pair(9, |_| {});
    let now = w.now();
    let ticket = w.nodes[0].endpoint.initiate(now, Some("gw"), None).unwrap();
    w.run(S);
    assert_eq!(w.nodes[0].done[&ticket], Ok(()));
    assert!(w.up(1)[0].children.is_empty());
    w.establish(1).unwrap();
    w.assert_one();
}

#[test]
fn a_wrong_key_is_refused_and_named() {
    let mut w = World::pair(10, |_| {});
    let key = config::psk("ike-gw", "another secret", &["g1.example", "g2.example"]);
    w.nodes[0].endpoint.load_shared(key);
    assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
    w.assert_empty();
    assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 1);
    assert!(w.nodes[1].logged(
        "authentication of 'g1.example' with pre-shared key failed: the MAC does not match shared key 'ike-gw' \
         (for 'g2.example')"
    ));
    assert!(w.nodes[0].logged("shared key 'ike-gw'"));
}

#[test]
fn a_missing_key_is_named() {
    let mut w = World::pair(11, |_| {});
    w.nodes[1].endpoint.unload_shared("ike-gw");
    assert!(w.establish(0).is_err());
    assert!(w.nodes[1].logged("no shared key found for 'g2.example' - 'g1.example'"));
    w.assert_empty();
    let mut w = World::pair(11, |_| {});
    w.nodes[0].endpoint.unload_shared("ike-gw");
    assert_eq!(w.establish(0).unwrap_err(), "no shared key found for 'g1.example' - 'g2.example'");
    w.run(40 * S);
    w.assert_empty();
}

#[test]
fn a_peer_with_another_identity_is_refused_by_both() {
    let mut w = World::pair(12, |c| c[1].remote_id = IdPattern::parse("g9.example").unwrap());
    assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
    assert!(w.nodes[1].logged("no matching peer config found"));
    w.assert_empty();
    // The responder proves to be someone else than the initiator wants (it sends no IDr, for that
    // would settle it).
    let mut w = World::pair(12, |c| {
        c[0].remote_id = IdPattern::parse("*.elsewhere").unwrap();
    });
    for n in &mut w.nodes {
        n.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
    }
    let err = w.establish(0).unwrap_err();
    assert_eq!(err, "the peer says it is 'g2.example', '*.elsewhere' is required");
    w.run(S);
    w.assert_empty();
}

#[test]
fn an_address_without_connection_is_told_so() {
    let mut w = World::pair(13, |c| c[1].remote_addrs = vec![AddrSpec::Host(config::ip("192.0.2.77"))]);
    assert_eq!(w.establish(0).unwrap_err(), "received NO_PROPOSAL_CHOSEN notify error (not authenticated)");
    assert!(w.nodes[1].logged("no IKE config found for 192.0.2.2...192.0.2.1, sending NO_PROPOSAL_CHOSEN"));
    w.assert_empty();
}

#[test]
fn the_connection_is_chosen_by_identity() {
    let mut w = World::pair(14, |c| {
        c[1].name = "a-first-by-name".to_owned();
        c[1].remote_id = IdPattern::parse("other.example").unwrap();
    });
    let mut right = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[1].clone();
    right.name = "z-right".to_owned();
    right.local_id = ironswan_wire::id::Identity::parse("g2.example");
    let now = w.now();
    w.nodes[1].endpoint.load_connection(now, right);
    w.establish(0).unwrap();
    w.assert_one();
    assert_eq!(w.up(1)[0].conn, "z-right");
}

#[test]
fn a_peer_that_has_restarted_replaces_its_old_ike_sa() {
    let mut w = World::pair(15, |_| {});
    w.establish(0).unwrap();
    let conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
    w.restart(0, 999, conn);
    w.run(S);
    w.establish(0).unwrap();
    w.assert_one();
    assert!(w.nodes[1].logged("destroying duplicate IKE_SA for peer 'g1.example', received INITIAL_CONTACT"));
    let downs = w.nodes[1].events.iter().filter(|e| matches!(e, Event::IkeDown(_))).count();
    assert_eq!(downs, 1);
}

#[test]
fn uniqueness_policies() {
    for (unique, up) in [(Unique::Never, 2), (Unique::No, 1), (Unique::Keep, 1), (Unique::Replace, 1)] {
        let mut w = World::pair(16, |c| c[1].unique = unique);
        w.establish(0).unwrap();
        let old = w.up(1)[0].id;
        let conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
        w.restart(0, 998, conn);
        w.establish(0).unwrap();
        w.run(400 * S);
        assert_eq!(w.up(1).len(), up, "{unique:?}");
        assert_eq!(w.up(1).iter().any(|s| s.id == old), unique == Unique::Never);
    }
    // Without INITIAL_CONTACT: the initiator has another IKE_SA with this peer, on another
    // connection.
    for (unique, first, second) in
        [(Unique::No, true, true), (Unique::Keep, true, false), (Unique::Replace, false, true)]
    {
        let mut w = World::pair(17, |c| c[1].unique = unique);
        w.establish(0).unwrap();
        let mut conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
        conn.name = "again".to_owned();
        let now = w.now();
        w.nodes[0].endpoint.load_connection(now, conn);
        let ticket = w.nodes[0].endpoint.initiate(now, Some("again"), Some("net")).unwrap();
        w.run(30 * S);
        assert_eq!(w.nodes[0].done[&ticket].is_ok(), second, "{unique:?}");
        let names: Vec<_> = w.up(0).iter().map(|s| s.conn.clone()).collect();
        assert_eq!((names.contains(&"gw".to_owned()), names.contains(&"again".to_owned())), (first, second));
        assert_eq!(w.up(1).len(), w.up(0).len());
    }
}

#[test]
fn initial_contact_does_not_hit_what_the_other_side_has_just_begun() {
    // Both initiate at once; each says INITIAL_CONTACT before it knows of the other's.
    for seed in 0..200 {
        let gap = seed % 40;
        let mut w = World::pair(18 + seed, |_| {});
        w.net.jitter = 12 * MS;
        w.initiate(0);
        w.run(Duration::from_micros(500 * gap));
        if w.up(1).is_empty() {
            w.initiate(1);
        }
        w.run(30 * S);
        let spis = |n: usize| {
            let mut v: Vec<_> = w.up(n).iter().map(|s| (s.spi_i, s.spi_r)).collect();
            v.sort_unstable();
            v
        };
        assert_eq!(spis(0), spis(1), "seed {seed}");
        assert!(!spis(0).is_empty());
    }
}

#[test]
fn the_inbound_sa_stands_before_the_peer_hears_of_it() {
    // The response of a rekeying is held up: what the engine has at that moment must already hold
    // the new inbound SA.
    let mut w = World::pair(61, |_| {});
    w.establish(0).unwrap();
    let added = w.nodes[1].engine.added;
    w.net.rules.push(Box::new(|s| {
        if s.exchange == ExchangeType::CREATE_CHILD_SA && s.response {
            Verdict::Delay(2 * S)
        } else {
            Verdict::Pass
        }
    }));
    w.rekey_child(0);
    w.run(100 * MS);
    assert_eq!(w.nodes[1].engine.added, added + 1, "inbound only");
    assert_eq!(w.nodes[1].engine.inbound.len(), 2);
    assert_eq!(w.nodes[1].engine.outbound.len(), 1, "it still sends on the old one");
    w.run(20 * S);
    w.assert_one();
}

#[test]
fn every_policy_has_the_reqid_of_its_sas() {
    let mut w = World::pair(62, |c| c[0].children[0].reqid = 4711);
    w.establish(0).unwrap();
    let e = &w.nodes[0].engine;
    assert_eq!(e.policies[0].action, Action::Protect(e.outbound[0].reqid));
    assert_eq!(e.outbound[0].reqid.0, 4711);
    // The commands can be applied again to an empty engine: nothing refers to what was before.
    let mut fresh = ironswan_testkit::Engine::default();
    for sa in e.inbound.values().chain(&e.outbound) {
        fresh.apply(&Command::SaAdd(Box::new(sa.clone())));
    }
    assert_eq!(fresh.inbound.len() + fresh.outbound.len(), 2);
}

#[test]
fn as_many_selectors_as_a_message_holds_and_a_packet_that_asks_for_them() {
    let many = || -> Vec<_> {
        let nets = (0..255).map(|n| config::child("x", "10.1.0.0/24", &format!("10.2.{n}.0/24")));
        nets.flat_map(|c| c.remote_ts).collect()
    };
    let mut w = World::pair(91, |c| {
        c[0].children[0].remote_ts = many();
        c[0].children[0].start_action = ChildAction::Trap;
        c[1].children[0].local_ts = many();
    });
    let reqid = w.nodes[0].engine.policies.iter().find_map(|p| match p.action {
        Action::Protect(r) => Some(r),
        _ => None,
    });
    let packet = PacketSelector {
        src: config::ip("10.1.0.1"),
        dst: config::ip("10.2.7.1"),
        protocol: 1,
        src_port: None,
        dst_port: None,
    };
    let now = w.now();
    w.nodes[0]
        .endpoint
        .call(now, |e| e.handle_engine(now, Up::Acquire { reqid: reqid.expect("a trap"), packet }));
    w.run(S);
    assert_eq!(w.child(0).remote_ts.len(), 255);
    w.audit();
}
