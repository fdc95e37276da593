//! Our own addresses and routes change: the tunnel moves, waits or stays, without an operator and
//! without leftovers.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::{AddrSpec, ChildAction, Limits, Unique};
use ironswan_testkit::{World, config};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ip(text: &str) -> IpAddr {
    config::ip(text)
}

/// A road warrior at 192.0.2.1 with two children to a hub that takes anyone; up, with traffic.
fn roaming(seed: u64, unique: Unique) -> World {
    let mut w = World::pair(seed, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
        c[1].unique = unique;
        for c in c.iter_mut() {
            let (l, r) = (c.children[0].local_ts.clone(), c.children[0].remote_ts.clone());
            let mut more = config::child("more", "10.11.0.0/24", "10.12.0.0/24");
            if l == vec![config::net("10.2.0.0/24")] {
                more = config::child("more", "10.12.0.0/24", "10.11.0.0/24");
            }
            c.children[0].local_ts = l;
            c.children[0].remote_ts = r;
            c.children.push(more);
        }
    });
    w.network_changed(0);
    w.establish(0).unwrap();
    let now = w.now();
    w.nodes[0].endpoint.initiate(now, Some("gw"), Some("more")).unwrap();
    w.traffic = Some(100 * MS);
    w.run(S);
    assert_eq!(w.up(0)[0].children.len(), 2);
    w
}

fn assert_one_with_two(w: &World, at: &str) {
    for node in 0..2 {
        let up = w.nodes[node].sas(w.now());
        assert_eq!(up.len(), 1, "node {node}: {up:?}");
        let mut names: Vec<_> = up[0].children.iter().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["more", "net"], "node {node}");
        let e = &w.nodes[node].engine;
        assert_eq!((e.inbound.len(), e.outbound.len(), e.policies.len()), (2, 2, 2), "node {node}");
    }
    assert_eq!(w.up(0)[0].local.ip(), ip(at));
    assert_eq!(w.up(1)[0].remote.ip(), ip(at));
    assert!(w.nodes[0].engine.outbound.iter().all(|s| s.local.ip() == ip(at)));
    assert!(w.nodes[1].engine.outbound.iter().all(|s| s.remote.ip() == ip(at)));
}

fn flows(w: &mut World) -> bool {
    let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
    w.run(S);
    w.nodes[0].esp.0 >= got.0 + 8 && w.nodes[1].esp.0 >= got.1 + 8
}

#[test]
fn an_address_that_is_replaced_takes_the_tunnel_along_at_once() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep, Unique::Never] {
        let mut w = roaming(1, unique);
        w.readdress(0, vec![ip("198.51.100.20")]);
        w.run(500 * MS);
        if unique == Unique::Keep {
            // The peer refuses a second one as long as it has the first: that is what it is
            // configured for.
            continue;
        }
        assert!(flows(&mut w), "{unique:?}: traffic is back within a second");
        w.run(200 * S);
        assert_one_with_two(&w, "198.51.100.20");
        assert_eq!(w.nodes[0].unsendable, 0, "nothing is sent from an address that is gone");
        w.audit();
    }
}

#[test]
fn a_better_source_takes_the_tunnel_along_without_a_gap() {
    let mut w = roaming(2, Unique::No);
    let lost = (w.nodes[0].esp.1, w.nodes[1].esp.1);
    let got = w.nodes[1].esp.0;
    // The old address stays, and the route prefers another.
    w.readdress(0, vec![ip("198.51.100.20"), ip("192.0.2.1")]);
    w.run(10 * S);
    assert_one_with_two(&w, "198.51.100.20");
    assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.1), lost, "not one packet met no SA");
    assert!(w.nodes[1].esp.0 >= got + 99, "{}", w.nodes[1].esp.0 - got);
}

#[test]
fn an_address_that_is_configured_is_kept_while_it_is_there() {
    let mut w = World::pair(3, |_| {});
    w.establish(0).unwrap();
    let before = w.up(0)[0].id;
    w.readdress(0, vec![ip("198.51.100.20"), ip("192.0.2.1")]);
    w.run(10 * S);
    w.assert_one();
    assert_eq!(w.up(0)[0].id, before);
    // It goes, and no other is allowed: the IKE_SA waits, and does not wear itself out.
    w.readdress(0, vec![ip("198.51.100.20")]);
    w.rekey_child(0);
    let sent = w.net.count;
    w.run(3_600 * S);
    assert_eq!(w.net.count, sent);
    assert_eq!(w.up(0)[0].id, before);
    w.readdress(0, vec![ip("192.0.2.1")]);
    w.run(10 * S);
    w.assert_one();
    assert_eq!(w.up(0)[0].id, before);
}

#[test]
fn nothing_is_done_when_nothing_that_matters_has_changed() {
    let mut w = roaming(4, Unique::No);
    let before = w.up(0)[0].id;
    let (sent, calls) = (w.net.count, w.nodes[0].calls);
    for _ in 0..100 {
        w.nodes[0].addrs.push(ip("10.200.0.1"));
        w.network_changed(0);
        w.run(50 * MS);
        w.nodes[0].addrs.pop();
        w.network_changed(0);
        w.run(50 * MS);
    }
    assert_eq!((w.net.count, w.up(0)[0].id), (sent, before), "the peer talks: it is not asked");
    assert!(w.nodes[0].calls - calls <= 210);
    // A silent one is, once, and not for each change.
    w.traffic = None;
    w.run(60 * S);
    for _ in 0..100 {
        w.network_changed(0);
        w.run(100 * MS);
    }
    assert_eq!(w.net.count - sent, 2, "one question, one answer");
}

#[test]
fn without_any_address_the_tunnel_waits_and_goes_on_where_it_was() {
    for busy in [false, true] {
        let mut w = roaming(5, Unique::No);
        let before = w.up(0)[0].id;
        if busy {
            w.rekey_ike(0);
        }
        let away = std::mem::take(&mut w.nodes[0].addrs);
        w.network_changed(0);
        w.run(600 * S);
        assert_eq!((w.nodes[0].unsendable, w.up(0).len()), (0, 1), "nothing sent, nothing given up");
        w.readdress(0, away);
        w.run(100 * MS);
        let at = w.net.log.last().unwrap().0;
        assert!(w.net.count > 0 && at.index + 3 > w.net.count, "the peer is asked at once");
        assert!(flows(&mut w));
        w.run(20 * S);
        assert_one_with_two(&w, "192.0.2.1");
        assert!(busy || w.up(0)[0].id == before);
    }
}

/// Both ends have an IPv4 and an IPv6 address, and we know both of the peer's.
fn two_ways(seed: u64) -> World {
    let mut w = World::pair(seed, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[0].remote_addrs = ["192.0.2.2", "2001:db8::2"].map(|a| AddrSpec::Host(ip(a))).to_vec();
        c[1].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
    });
    w.nodes[0].addrs.push(ip("2001:db8::1"));
    w.nodes[1].addrs.push(ip("2001:db8::2"));
    w.network_changed(0);
    w.network_changed(1);
    w.establish(0).unwrap();
    w.traffic = Some(100 * MS);
    w.run(S);
    w
}

#[test]
fn where_no_way_leads_to_the_peer_any_more_its_other_address_is_tried() {
    let mut w = two_ways(11);
    for (ours, theirs) in
        [("2001:db8::1", "2001:db8::2"), ("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")]
    {
        w.readdress(0, vec![ip(ours)]);
        w.run(500 * MS);
        assert!(flows(&mut w), "by {ours} within a second");
        // The peer has been told of the old one's end, at the address that can be reached.
        w.run(5 * S);
        w.assert_one();
        let up = &w.up(0)[0];
        assert_eq!((up.local.ip(), up.remote.ip()), (ip(ours), ip(theirs)));
        assert_eq!(w.nodes[0].unsendable, 0);
    }
    w.audit();
}

#[test]
fn a_way_that_is_back_before_another_was_found_is_taken_on() {
    let mut w = two_ways(12);
    let before = w.up(0)[0].id;
    for pause in [100 * MS, 3 * S, 60 * S] {
        let away = std::mem::take(&mut w.nodes[0].addrs);
        w.network_changed(0);
        w.run(pause);
        w.readdress(0, away);
        w.run(500 * MS);
        assert!(flows(&mut w), "after {pause:?}");
        w.run(60 * S);
        w.assert_one();
        assert_eq!(w.up(0)[0].id, before, "after {pause:?}");
    }
    w.audit();
}

#[test]
fn a_peer_that_has_forgotten_us_meanwhile_is_found_out_and_the_tunnel_made_anew() {
    let mut w = World::pair(6, |c| {
        c[0].children[0].dpd_action = ChildAction::Start;
        c[0].dpd_delay = 30 * S;
        c[1].dpd_delay = 30 * S;
    });
    w.network_changed(0);
    w.establish(0).unwrap();
    let away = std::mem::take(&mut w.nodes[0].addrs);
    w.network_changed(0);
    w.run(900 * S);
    assert!(w.up(1).is_empty(), "the peer has given us up");
    w.readdress(0, away);
    // One round of retransmissions, and the new IKE_SA.
    assert!(w.run_until(200 * S, |w| w.up(1).len() == 1));
    w.run(10 * S);
    w.assert_one();
    w.audit();
}

#[test]
fn addresses_that_change_faster_than_a_tunnel_is_made_end_in_one_tunnel() {
    for step in [1u64, 3, 7, 12, 18, 27, 40, 400, 2_500] {
        let mut w = roaming(7, Unique::No);
        for n in 0..12u8 {
            let addrs = if n % 4 == 3 { vec![] } else { vec![IpAddr::from([198, 51, 100, 20 + n])] };
            w.readdress(0, addrs);
            w.run(Duration::from_millis(step));
        }
        w.readdress(0, vec![ip("198.51.100.99")]);
        // What was begun at addresses that are gone has to run out at the peer.
        w.run(500 * S);
        assert_one_with_two(&w, "198.51.100.99");
        assert!(flows(&mut w), "{step} ms");
        w.audit();
    }
}

#[test]
fn an_attempt_follows_the_addresses_and_waits_for_a_route() {
    // While it waits for an answer.
    let mut w = World::pair(8, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
    });
    w.network_changed(0);
    w.net.mute.insert(0);
    w.initiate(0);
    w.run(2 * S);
    w.net.mute.clear();
    w.readdress(0, vec![ip("198.51.100.20")]);
    w.run(S);
    w.assert_one();
    assert_eq!(w.nodes[0].endpoint.protocol().counters().kex_generated, 1, "with the key pair that it had");
    // At start there is no route at all; `start_action = start` does not need to be told again.
    let mut w = World::pair(9, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
    });
    w.nodes[0].no_routes = true;
    w.network_changed(0);
    let mut conn = w.nodes[0].connection("gw");
    conn.children[0].start_action = ChildAction::Start;
    let now = w.now();
    w.nodes[0].endpoint.load_connection(now, conn);
    w.run(100 * S);
    assert!(w.nodes[0].logged("no route to 192.0.2.2"));
    w.nodes[0].no_routes = false;
    w.network_changed(0);
    w.run(2 * S);
    w.assert_one();
    // On command it is said at once.
    let mut w = World::pair(10, |c| c[0].local_addrs = vec![AddrSpec::Any]);
    w.nodes[0].no_routes = true;
    let error = w.establish(0).unwrap_err();
    assert!(error.contains("no route to 192.0.2.2"), "{error}");
    w.audit();
}

#[test]
fn a_responder_that_moves_and_can_initiate_does_so() {
    let mut w = World::pair(11, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any, AddrSpec::Host(config::ip("192.0.2.1"))];
    });
    w.network_changed(0);
    // Node 1 initiates; node 0 is the responder, and moves.
    w.establish(1).unwrap();
    w.traffic = Some(100 * MS);
    w.readdress(0, vec![ip("198.51.100.20")]);
    w.run(2 * S);
    assert!(flows(&mut w));
    w.run(200 * S);
    w.assert_one();
    w.audit();
}

/// Numbers of the IKE_SAs of a node.
fn ids(w: &World, node: usize) -> Vec<u64> {
    w.nodes[node].sas(w.now()).iter().map(|sa| sa.id.0).collect()
}

#[test]
fn an_ike_sa_that_was_to_move_does_not_stay_at_an_address_that_is_gone_when_nobody_moves_it() {
    for (end, there) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false), (3, false)] {
        let story = format!("end {end}, old address there: {there}");
        let mut w = roaming(12, Unique::No);
        let mut conn = w.nodes[0].connection("gw");
        conn.keyingtries = 0;
        let now = w.now();
        w.nodes[0].endpoint.load_connection(now, conn.clone());
        w.traffic = None;
        w.net.mute.insert(1);
        let mut addrs = vec![ip("198.51.100.20")];
        addrs.extend(there.then(|| ip("192.0.2.1")));
        w.readdress(0, addrs);
        // An attempt to move has failed, and the next one is to come.
        assert!(w.run_until(400 * S, |w| w.nodes[0].logged("trying again in")), "{story}");
        w.net.mute.clear();
        let now = w.now();
        let old = w.up(0)[0].id.0;
        match end {
            0 => _ = w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).unwrap(),
            1 => assert!(w.nodes[0].endpoint.unload_connection(now, "gw")),
            2 => {
                conn.children.clear();
                w.nodes[0].endpoint.load_connection(now, conn);
            }
            // The attempt cannot begin.
            _ => w.nodes[0].endpoint.set_limits(now, Limits { ike_sa_max: 1, ..Limits::default() }),
        }
        w.run(600 * S);
        assert_eq!(ids(&w, 0).contains(&old), there, "{story}");
        if end == 0 {
            assert!(w.up(0).iter().any(|sa| sa.id.0 != old), "{story}");
        }
        // One that stays is as good as any: a rekeying finds nothing in its way.
        if there {
            w.rekey_ike(0);
            w.run(S);
            assert!(!ids(&w, 0).contains(&old), "{story}");
        }
        w.audit();
    }
}

#[test]
fn down_while_a_tunnel_moves_or_waits_for_a_way_takes_it_down() {
    for (way, answers) in [(false, true), (true, true), (true, false)] {
        let story = format!("there is a way: {way}, the peer answers: {answers}");
        let mut w = roaming(13, Unique::No);
        let mut conn = w.nodes[0].connection("gw");
        for child in &mut conn.children {
            (child.start_action, child.dpd_action) = (ChildAction::Start, ChildAction::Start);
        }
        let now = w.now();
        w.nodes[0].endpoint.load_connection(now, conn);
        w.run(S);
        w.traffic = None;
        if !answers {
            w.net.mute.insert(1);
        }
        if way {
            w.nodes[0].held = Some(Vec::new());
            w.readdress(0, vec![ip("198.51.100.20")]);
        } else {
            w.nodes[0].no_routes = true;
            w.readdress(0, vec![]);
        }
        w.run(S);
        let ticket = w.terminate(0, false);
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())), "{story}");
        let now = w.now();
        w.nodes[0].release(now);
        w.run(600 * S);
        assert!(ids(&w, 0).is_empty(), "{story}: the tunnel does not come back");
        assert!(w.nodes[0].endpoint.down(w.now()).is_empty(), "{story}");
        assert_eq!(w.nodes[0].unsendable, 0, "{story}");
        w.audit();
    }
}
