//! What one authenticated identity may have: IKE_SAs and children, on all connections together.
//! What is over the limit is refused, told to the peer, written about within bounds, and never in
//! the way of a rekeying.

use std::time::Duration;

use ironswan_ike::event::ChildSaInfo;
use ironswan_keying::{ChildConfig, Childless, Connection, Limits, Target, Unique};
use ironswan_testkit::{Node, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::id::{IdPattern, Identity};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Node 1 is a hub with these limits; `n` gateways at addresses of their own, all of them
/// `g1.example`, are its peers.
fn crowd(n: u8, limits: Limits, tweak: impl Fn(&mut Connection)) -> World {
    let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    let mut w = World::pair_at(1, a, b, limits, |c| {
        c[1].remote_addrs = vec![];
        c[1].unique = Unique::Never;
        tweak(&mut c[1]);
    });
    let conn = w.nodes[0].connection("gw");
    let now = w.now();
    for i in 0..n {
        let at = config::ip(&format!("198.51.100.{i}"));
        let mut node = Node::seeded(vec![at], 100 + u64::from(i), Limits::default());
        node.endpoint.load_shared(config::psk("ike-gw", "a secret of both", &["g1.example", "g2.example"]));
        let mut conn = conn.clone();
        conn.local_addrs = vec![];
        node.endpoint.load_connection(now, conn);
        w.nodes.push(node);
    }
    w
}

fn up(w: &World) -> usize {
    w.up(1).len()
}

#[test]
fn one_identity_gets_so_many_ike_sas_and_others_are_not_touched() {
    let limits = Limits { ike_sa_max_per_id: 5, half_open_per_addr: 1_000, ..Limits::default() };
    let mut w = crowd(60, limits, |_| {});
    let results: Vec<_> = (2..62).map(|node| w.establish(node)).collect();
    assert!(results[..5].iter().all(Result::is_ok), "{results:?}");
    let refused = "received AUTHENTICATION_FAILED notify error";
    assert!(results[5..].iter().all(|r| r.as_ref().is_err_and(|e| e == refused)), "{results:?}");
    assert_eq!(up(&w), 5);
    let hub = &w.nodes[1];
    assert_eq!(hub.endpoint.protocol().counters().id_refused, 55);
    let lines = hub.count_logged("'g1.example' has 5 IKE_SAs already (ike_sa_max_per_id)");
    assert!((1..=55).contains(&lines), "{lines} lines");
    assert_eq!(hub.count_logged("authentication of 'g1.example' with pre-shared key successful"), 5);
    // Somebody else is let in.
    let mut other = w.nodes[0].connection("gw");
    other.local_id = Identity::parse("g9.example");
    let mut theirs = w.nodes[1].connection("gw");
    theirs.name = "other".to_owned();
    theirs.remote_id = IdPattern::parse("g9.example").unwrap();
    let now = w.now();
    for n in &mut w.nodes[..2] {
        n.endpoint.load_shared(config::psk("g9", "another", &["g9.example", "g2.example"]));
    }
    w.nodes[0].endpoint.load_connection(now, other);
    w.nodes[1].endpoint.load_connection(now, theirs);
    w.establish(0).unwrap();
    assert_eq!(up(&w), 6);
    // A place that is given back can be taken.
    w.terminate(2, false);
    w.run(S);
    w.establish(10).unwrap();
    assert!(w.establish(11).is_err());
    w.audit();
}

#[test]
fn a_limit_of_one_refuses_no_rekeying_and_no_replacement() {
    let limits = Limits {
        ike_sa_max: 2,
        ike_sa_max_per_id: 1,
        child_sa_max: 1,
        child_sa_max_per_id: 1,
        ..Limits::default()
    };
    let mut w = World::pair_at(2, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |_| {});
    w.establish(0).unwrap();
    for round in 0..6 {
        let node = round % 2;
        let before = (w.child(0).spi_in, w.up(0)[0].spi_i);
        w.rekey_child(node);
        w.run(20 * S);
        w.rekey_ike(node);
        w.run(20 * S);
        w.assert_one();
        let after = (w.child(0).spi_in, w.up(0)[0].spi_i);
        assert!(before.0 != after.0 && before.1 != after.1, "round {round}: {before:?} {after:?}");
    }
    for unique in [Unique::No, Unique::Replace] {
        // The peer has forgotten us (INITIAL_CONTACT), or is replaced as configured.
        let now = w.now();
        let mut hub = w.nodes[1].connection("gw");
        hub.unique = unique;
        w.nodes[1].endpoint.load_connection(now, hub);
        let conn = w.nodes[0].connection("gw");
        w.restart(0, 1_000 + up(&w) as u64, Connection { unique: Unique::No, ..conn });
        w.establish(0).unwrap();
        w.run(200 * S);
        w.assert_one();
    }
}

#[test]
fn one_identity_has_so_many_key_exchanges_computed_at_a_time_and_the_others_come_later() {
    let mut w = crowd(40, Limits::default(), |_| {});
    (2..42).for_each(|node| w.establish(node).unwrap());
    w.nodes[1].held = Some(Vec::new());
    (2..42).for_each(|node| _ = w.rekey_ike(node));
    w.run(S);
    let held = w.nodes[1].held.as_ref().unwrap().len();
    let put_off = w.nodes[1].endpoint.protocol().counters().kex_put_off;
    println!("{held} wait, {put_off} were put off");
    assert_eq!((held, put_off), (32, 8));
    // An IKE_SA that ends gives its place back, and one of those that were put off has it within
    // their pause of 15 s.
    let id = w.up(1).iter().find(|sa| !sa.tasks_passive.is_empty()).map(|sa| sa.id.0);
    let now = w.now();
    w.nodes[1].endpoint.terminate(now, &Target { ike_id: id, ..Target::default() }, true).unwrap();
    w.run(MS);
    assert_eq!(w.nodes[1].held.as_ref().unwrap().len(), 31);
    w.run(20 * S);
    assert_eq!(w.nodes[1].held.as_ref().unwrap().len(), 32);
    // All come to their turn.
    let now = w.now();
    w.nodes[1].release(now);
    w.run(60 * S);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().ike_rekey_resp, 39);
    assert_eq!((2..42).filter(|node| w.up(*node).len() == 1).count(), 39);
    w.audit();
}

/// Node `n` of a crowd loses all that it knows.
fn forgets(w: &mut World, n: usize, seed: u64) {
    let conn = w.nodes[n].connection("gw");
    w.restart(n, seed, Connection { unique: Unique::Never, ..conn });
}

#[test]
fn dead_ones_keep_nobody_out_for_longer_than_it_takes_to_find_out() {
    let limits = Limits { ike_sa_max_per_id: 5, half_open_per_addr: 1_000, ..Limits::default() };
    let mut w = crowd(3, limits, |_| {});
    for node in 2..5 {
        w.establish(node).unwrap();
    }
    w.run(60 * S);
    for node in 2..5 {
        forgets(&mut w, node, 500 + node as u64);
    }
    w.establish(2).unwrap();
    w.establish(3).unwrap();
    assert!(w.establish(4).is_err());
    let start = w.now();
    let mut tries = 1;
    while w.establish(4).is_err() {
        tries += 1;
        assert!(w.now() - start < 200 * S, "still refused after {tries} tries");
        w.run(10 * S);
    }
    // One at its own address that does not answer gives way before the retransmissions are over.
    let took = w.now() - start;
    println!("let in after {took:?} and {tries} tries");
    assert!(took < 60 * S, "{took:?}");
    assert!(w.nodes[1].logged("'g1.example' does not answer, and has come back from the same address"));
    w.run(200 * S);
    // Those that live have not been touched.
    assert_eq!(up(&w), 3);
    assert!((2..5).all(|n| w.up(n).len() == 1));
    w.audit();
}

#[test]
fn one_that_is_on_its_way_out_behind_a_liveness_check_does_not_count() {
    let limits = Limits { ike_sa_max_per_id: 1, ..Limits::default() };
    let mut w = World::pair_at(4, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        c[1].unique = Unique::Replace;
        c[1].dpd_delay = 30 * S;
    });
    w.establish(0).unwrap();
    w.net.mute.insert(0);
    let asked = w.run_until(100 * S, |w| w.nodes[1].logged("sending DPD request"));
    assert!(asked);
    forgets(&mut w, 0, 77);
    w.net.mute.clear();
    w.establish(0).unwrap();
    w.run(200 * S);
    w.assert_one();
    w.audit();
}

#[test]
fn who_answers_no_delete_has_no_more_for_it() {
    let limits = Limits { ike_sa_max_per_id: 1, ..Limits::default() };
    let mut w = World::pair_at(7, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        c[1].unique = Unique::Replace;
    });
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::INFORMATIONAL && s.node == 1 {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let mut most = 0;
    for n in 0..100 {
        forgets(&mut w, 0, 1_000 + n);
        w.establish(0).unwrap();
        w.run(100 * MS);
        most = most.max(w.nodes[1].sas(w.now()).len());
    }
    println!("at most {most} IKE_SAs of a peer whose limit is 1");
    assert!((20..=36).contains(&most), "{most}");
    w.net.rules.clear();
    w.run(200 * S);
    w.assert_one();
    w.audit();
}

/// Those whose DELETE waits behind a liveness check that is not answered.
#[test]
fn one_that_ends_at_the_limit_has_sent_its_delete() {
    let limits = Limits { ike_sa_max_per_id: 1, ..Limits::default() };
    let mut w = World::pair_at(8, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        c[1].unique = Unique::Replace;
        c[1].dpd_delay = S;
    });
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::INFORMATIONAL && s.node == 1 {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let mut all = Vec::new();
    for n in 0..40 {
        forgets(&mut w, 0, 1_000 + n);
        w.establish(0).unwrap();
        all.extend(w.up(1).iter().map(|sa| sa.spi_i).max_by_key(|spi| !all.contains(spi)));
        w.run(1_500 * MS);
    }
    let left: Vec<u64> = w.nodes[1].sas(w.now()).iter().map(|sa| sa.spi_i).collect();
    let gone: Vec<u64> = all.into_iter().filter(|spi| !left.contains(spi)).collect();
    println!("{} have ended", gone.len());
    assert!(gone.len() > 3, "{} have ended", gone.len());
    for spi in gone {
        let of_it = w.net.log.iter().filter(|(s, _)| s.node == 1 && !s.response && s.spi_i == spi);
        let mut mids: Vec<u32> =
            of_it.filter(|(s, _)| s.exchange == ExchangeType::INFORMATIONAL).map(|(s, _)| s.mid).collect();
        mids.dedup();
        assert_eq!(mids, [0, 1], "the liveness check, and then the DELETE");
    }
}

#[test]
fn one_that_answers_does_not_give_way_to_another_of_the_same_identity_and_address() {
    let limits = Limits { ike_sa_max_per_id: 1, ..Limits::default() };
    let mut w = crowd(1, limits, |_| {});
    w.establish(2).unwrap();
    let first = w.up(1)[0].id;
    let now = w.now();
    let mut beside = w.nodes[2].connection("gw");
    "beside".clone_into(&mut beside.name);
    w.nodes[2].endpoint.load_connection(now, beside);
    for _ in 0..20 {
        w.run(40 * S);
        let now = w.now();
        let t = w.nodes[2].endpoint.initiate(now, Some("beside"), Some("net")).unwrap();
        w.run(2 * S);
        assert_eq!(w.nodes[2].done[&t], Err("received AUTHENTICATION_FAILED notify error".to_owned()));
    }
    assert!(
        w.nodes[1].logged("sending DPD request") && w.nodes[2].endpoint.protocol().counters().info.in_req > 0
    );
    assert_eq!(w.up(1).iter().map(|sa| sa.id).collect::<Vec<_>>(), [first]);
    w.audit();
}

#[test]
fn a_limit_that_is_lowered_ends_nothing_and_who_comes_anew_takes_the_place_of_its_own() {
    for unique in [Unique::No, Unique::Keep, Unique::Replace, Unique::Never] {
        let mut w = World::pair(6, |c| c.iter_mut().for_each(|c| c.unique = unique));
        // The same two, to our other identity.
        let now = w.now();
        for n in 0..2 {
            let mut other = w.nodes[n].connection("gw");
            "other".clone_into(&mut other.name);
            if n == 0 {
                other.remote_id = IdPattern::parse("g3.example").unwrap();
                other.children = vec![config::child("net", "10.1.0.0/24", "10.3.0.0/24")];
            } else {
                other.local_id = Identity::parse("g3.example");
                other.children = vec![config::child("net", "10.3.0.0/24", "10.1.0.0/24")];
            }
            let key = config::psk("other", "another secret", &["g1.example", "g3.example"]);
            w.nodes[n].endpoint.load_shared(key);
            w.nodes[n].endpoint.load_connection(now, other);
        }
        w.establish(0).unwrap();
        let t = w.nodes[0].endpoint.initiate(now, Some("other"), Some("net")).unwrap();
        w.run(5 * S);
        assert_eq!((w.nodes[0].done.get(&t), up(&w)), (Some(&Ok(())), 2), "{unique:?}");
        w.nodes[1].endpoint.set_limits(now, Limits { ike_sa_max_per_id: 1, ..Limits::default() });
        w.run(60 * S);
        assert_eq!(up(&w), 2);
        w.rekey_ike(0);
        w.run(30 * S);
        assert_eq!(up(&w), 2);
        let tunnels = |w: &World| -> Vec<String> {
            let mut names: Vec<_> = w.up(1).into_iter().map(|sa| sa.conn).collect();
            names.sort();
            names
        };
        // The peer loses all that it knows and comes back with one of the two.
        let conn = w.nodes[0].connection("gw");
        w.restart(0, 66, conn);
        let came = w.establish(0);
        w.run(5 * S);
        println!("{unique:?}: {came:?}, {:?}", tunnels(&w));
        // With `never` its old ones are taken for others', which still live as far as anyone knows.
        assert_eq!(came.is_ok(), unique != Unique::Never, "{unique:?}: {came:?}");
        assert_eq!(tunnels(&w), ["gw", "other"], "{unique:?}");
        w.audit();
    }
}

#[test]
fn who_is_refused_for_what_it_asks_keeps_what_it_had() {
    for unique in [Unique::No, Unique::Replace] {
        let mut w = World::pair(5, |c| {
            c[1].unique = unique;
            c.iter_mut().for_each(|c| c.childless = Childless::Force);
        });
        w.establish(0).unwrap();
        let old = w.up(1)[0].id;
        let conn = w.nodes[0].connection("gw");
        w.restart(0, 55, Connection { childless: Childless::Never, unique: Unique::No, ..conn });
        w.establish(0).unwrap_err();
        assert!(w.nodes[1].logged("which `childless` does not allow"));
        w.run(10 * S);
        let left: Vec<_> = w.up(1).into_iter().map(|sa| sa.id).collect();
        assert_eq!(left, [old], "{unique:?}");
        w.audit();
    }
}

#[test]
fn children_are_counted_over_all_ike_sas_of_an_identity_and_given_back() {
    let limits = Limits { child_sa_max_per_id: 3, ..Limits::default() };
    let two = |c: &mut Connection| {
        let c1 = config::child("other", "10.2.0.0/24", "10.9.0.0/24");
        c.children.push(c1);
    };
    let mut w = crowd(4, limits, two);
    let other = config::child("other", "10.9.0.0/24", "10.2.0.0/24");
    for node in 2..6 {
        let now = w.now();
        let mut conn = w.nodes[node].connection("gw");
        conn.children.push(other.clone());
        w.nodes[node].endpoint.load_connection(now, conn);
    }
    let ask = |w: &mut World, node: usize, child: &str| {
        let now = w.now();
        let t = w.nodes[node].endpoint.initiate(now, Some("gw"), Some(child)).unwrap();
        w.run(2 * S);
        w.nodes[node].done[&t].clone()
    };
    assert!(
        ask(&mut w, 2, "net").is_ok() && ask(&mut w, 3, "net").is_ok() && ask(&mut w, 2, "other").is_ok()
    );
    for _ in 0..5 {
        let refused = ask(&mut w, 3, "other").unwrap_err();
        assert_eq!(refused, "received NO_ADDITIONAL_SAS notify error");
    }
    assert_eq!(w.nodes[1].count_logged("'g1.example' has 3 CHILD_SAs already (child_sa_max_per_id)"), 1);
    // Rekeying goes on, and one that ends makes room.
    for node in [2, 3] {
        w.rekey_child(node);
        w.run(20 * S);
    }
    assert!(ask(&mut w, 3, "other").is_err());
    let target = Target { child: Some("other".to_owned()), ..Target::default() };
    let now = w.now();
    w.nodes[2].endpoint.terminate(now, &target, false).unwrap();
    w.run(20 * S);
    assert!(ask(&mut w, 3, "other").is_ok());
    w.audit();
}

#[test]
fn children_whose_key_exchanges_are_computed_at_once_are_counted_when_they_are_there() {
    let limits = Limits { child_sa_max_per_id: 8, ..Limits::default() };
    let with_ke = |local: &str, remote: &str| ChildConfig {
        proposals: vec![config::esp_proposal(&[KeId::CURVE_25519])],
        ..config::child("other", local, remote)
    };
    let mut w = crowd(6, limits, |c| c.children.push(with_ke("10.2.0.0/24", "10.9.0.0/24")));
    for node in 2..8 {
        let now = w.now();
        let mut conn = w.nodes[node].connection("gw");
        conn.children.push(with_ke("10.9.0.0/24", "10.2.0.0/24"));
        w.nodes[node].endpoint.load_connection(now, conn);
        w.establish(node).unwrap();
    }
    w.nodes[1].held = Some(Vec::new());
    let now = w.now();
    let tickets: Vec<_> =
        (2..8).map(|node| w.nodes[node].endpoint.initiate(now, Some("gw"), Some("other")).unwrap()).collect();
    w.run(S);
    assert_eq!(w.nodes[1].held.as_ref().unwrap().len(), 6);
    let now = w.now();
    w.nodes[1].release(now);
    w.run(2 * S);
    let children: usize = w.up(1).iter().map(|sa| sa.children.len()).sum();
    let done: Vec<_> = (2..8).map(|node| w.nodes[node].done[&tickets[node - 2]].clone()).collect();
    println!("{children} children: {done:?}");
    assert_eq!(children, 8);
    assert_eq!(done.iter().filter(|d| d.is_ok()).count(), 2);
    let refused = Err("received NO_ADDITIONAL_SAS notify error".to_owned());
    assert_eq!(done.iter().filter(|d| **d == refused).count(), 4);
    w.run(60 * S);
    w.audit();
}

#[test]
fn pieces_of_children_whose_key_exchanges_are_computed_at_once_are_counted_when_they_are_there() {
    let ke = |child: ChildConfig| ChildConfig {
        proposals: vec![config::esp_proposal(&[KeId::CURVE_25519])],
        ..child
    };
    let mut w = crowd(20, Limits::default(), |c| {
        c.children.push(ke(config::child("cut", "10.8.0.0/16", "10.9.0.0/16")));
    });
    for node in 2..22 {
        let now = w.now();
        let mut child = ke(config::child("cut", "10.9.0.0/32", "10.8.0.0/18"));
        child.local_ts = (0..250).map(|i| config::net(&format!("10.9.{i}.{node}/32"))).collect();
        child.remote_ts = (0..4).map(|i| config::net(&format!("10.8.{}.0/18", 64 * i))).collect();
        let mut conn = w.nodes[node].connection("gw");
        conn.children.push(child);
        w.nodes[node].endpoint.load_connection(now, conn);
        w.establish(node).unwrap();
    }
    w.nodes[1].held = Some(Vec::new());
    let now = w.now();
    for node in 2..22 {
        w.nodes[node].endpoint.initiate(now, Some("gw"), Some("cut")).unwrap();
    }
    w.run(S);
    assert_eq!(w.nodes[1].held.as_ref().unwrap().len(), 20);
    let now = w.now();
    w.nodes[1].release(now);
    w.run(2 * S);
    let policies = w.nodes[1].engine.policies.len();
    println!("{policies} policies");
    assert!((16_000..=16_384 + 21).contains(&policies), "{policies}");
    // Those that had to come again have what is left, and at least what is configured.
    w.run(60 * S);
    let policies = w.nodes[1].engine.policies.len();
    println!("{policies} policies in the end");
    assert!((16_000..=16_384 + 21).contains(&policies), "{policies}");
    assert!(w.up(1).iter().all(|sa| sa.children.len() == 2));
    w.audit();
}

/// Each pair of selectors is a policy of the packet engine.
#[test]
fn all_children_of_an_identity_are_cut_into_a_bounded_number_of_pieces() {
    let mut w = crowd(2, Limits::default(), |c| {
        c.children[0] = config::child("net", "10.2.0.0/16", "10.1.0.0/16");
    });
    // 250 by 4, each time at other places.
    let cut = |name: &str, host: usize| {
        let mut child = config::child(name, "10.1.0.0/32", "10.2.0.0/18");
        child.local_ts = (0..250).map(|i| config::net(&format!("10.1.{i}.{host}/32"))).collect();
        child.remote_ts = (0..4).map(|i| config::net(&format!("10.2.{}.0/18", 64 * i))).collect();
        child
    };
    let names: Vec<String> = (0..18).map(|n| format!("n{n}")).collect();
    for node in [2, 3] {
        let now = w.now();
        let mut conn = w.nodes[node].connection("gw");
        conn.children = names.iter().enumerate().map(|(n, name)| cut(name, 20 * (node - 2) + n)).collect();
        w.nodes[node].endpoint.load_connection(now, conn);
    }
    let ask = |w: &mut World, node: usize, child: &str| {
        let now = w.now();
        let t = w.nodes[node].endpoint.initiate(now, Some("gw"), Some(child)).unwrap();
        w.run(S);
        w.nodes[node].done[&t].clone()
    };
    let policies = |w: &World| w.nodes[1].engine.policies.len();
    for (n, name) in names.iter().enumerate() {
        assert_eq!(ask(&mut w, 2 + n % 2, name), Ok(()), "{name}");
    }
    println!("{} children have {} policies", names.len(), policies(&w));
    assert!((16_000..=16_384 + 18).contains(&policies(&w)));
    // One more has what is configured and no more; one that was cut is rekeyed, with what it has,
    // and stays so.
    let before = policies(&w);
    assert_eq!(ask(&mut w, 2, "n17"), Ok(()));
    assert_eq!(policies(&w), before + 1);
    for node in [2, 1] {
        let now = w.now();
        let sas = w.nodes[node].sas(now);
        let cut = |c: &&ChildSaInfo| c.local_ts.len() * c.remote_ts.len() == 1_000;
        let child_id = sas.iter().flat_map(|sa| &sa.children).find(cut).map(|c| c.id.0);
        let target = Target { child_id, ..Target::default() };
        w.nodes[node].endpoint.rekey(now, &target, false).unwrap();
        w.run(20 * S);
        assert_eq!(policies(&w), before + 1, "{target:?}");
    }
    // What is given back can be had again.
    let target = Target { child: Some("n0".to_owned()), ..Target::default() };
    let now = w.now();
    w.nodes[2].endpoint.terminate(now, &target, false).unwrap();
    w.run(20 * S);
    assert_eq!(policies(&w), before + 1 - 1_000);
    assert_eq!(ask(&mut w, 3, "n16"), Ok(()));
    assert!(policies(&w) > before - 1_000 + 900);
    w.audit();
}
