//! Many peers on one gateway: nothing may grow faster than their number.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::{AddrSpec, Limits};
use ironswan_testkit::{Node, World, config};
use ironswan_wire::id::{IdPattern, Identity};

const S: Duration = Duration::from_secs(1);

/// Node 0 has `n` connections to addresses of node 1, which has as many.
fn many(n: u32) -> World {
    let hub: IpAddr = config::ip("192.0.2.1");
    let all = n as usize;
    let limits =
        || Limits { cookie_threshold: all, half_open_max: all, half_open_per_addr: all, ..Limits::default() };
    let addr = |i: u32| IpAddr::from((0xc633_6400 + i).to_be_bytes());
    let addrs: Vec<_> = (0..n).map(addr).collect();
    let nodes = vec![Node::seeded(vec![hub], 1, limits()), Node::seeded(addrs, 2, limits())];
    let mut w = World::new(1, nodes);
    let now = w.now();
    for i in 0..n {
        let (third, fourth) = (i / 250, i % 250);
        let nets = ("10.1.0.0/24".to_owned(), format!("10.{}.{fourth}.0/24", 100 + third));
        let id = format!("spoke{i}.example");
        let mut conns = config::pair(hub, addr(i));
        for (c, flip) in conns.iter_mut().zip([false, true]) {
            c.name = format!("c{i}");
            let (l, r) = if flip { (&nets.1, &nets.0) } else { (&nets.0, &nets.1) };
            c.children = vec![config::child("net", l, r)];
        }
        conns[0].remote_id = IdPattern::parse(&id).unwrap();
        conns[1].local_id = Identity::parse(&id);
        conns[1].local_addrs = vec![AddrSpec::Host(addr(i))];
        for (node, conn) in conns.into_iter().enumerate() {
            let e = &mut w.nodes[node].endpoint;
            e.load_shared(config::psk(&format!("ike-{i}"), &format!("secret {i}"), &["g1.example", &id]));
            e.load_connection(now, conn);
        }
    }
    w
}

#[test]
fn every_one_of_many_comes_up_with_its_own_key() {
    const N: u32 = 300;
    let mut w = many(N);
    for i in 0..N {
        let now = w.now();
        w.nodes[0].endpoint.initiate(now, Some(&format!("c{i}")), Some("net")).unwrap();
    }
    w.run(5 * S);
    for node in 0..2 {
        let up = w.up(node);
        assert_eq!(up.len(), N as usize);
        assert!(up.iter().all(|s| s.children.len() == 1));
        let e = &w.nodes[node].engine;
        assert_eq!((e.inbound.len(), e.outbound.len(), e.policies.len()), (300, 300, 300));
        let mut reqids: Vec<_> = up.iter().map(|s| s.children[0].reqid).collect();
        reqids.sort_unstable();
        reqids.dedup();
        assert_eq!(reqids.len(), N as usize, "a reqid for each pair of networks");
    }
    // Two exchanges each, and a cookie for most: they come from one address.
    assert!((1_200..=1_800).contains(&w.net.count), "{}", w.net.count);
    let now = w.now();
    w.nodes[1].endpoint.shutdown(now);
    w.run(5 * S);
    w.assert_empty();
}

/// Node 0 has `n` connections, each with an identity of its own, all of them to the one connection
/// of node 1.
fn road_warriors(n: u32) -> World {
    let all = n as usize;
    let limits =
        Limits { cookie_threshold: all, half_open_max: all, half_open_per_addr: all, ..Limits::default() };
    let mut w = World::pair_at(3, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        c[1].remote_addrs = vec![];
        c[1].remote_id = IdPattern::Any;
        c[1].children = vec![config::child("net", "10.2.0.0/16", "10.0.0.0/8")];
    });
    let now = w.now();
    for node in &mut w.nodes {
        node.endpoint.load_shared(config::psk("any", "a secret of all", &[]));
    }
    let base = w.nodes[0].connection("gw");
    for i in 0..n {
        let mut c = base.clone();
        c.name = format!("c{i}");
        c.local_id = Identity::parse(&format!("spoke{i}.example"));
        c.children =
            vec![config::child("net", &format!("10.{}.{}.0/24", 100 + i / 250, i % 250), "10.2.0.0/16")];
        let e = &mut w.nodes[0].endpoint;
        e.load_connection(now, c);
        e.initiate(now, Some(&format!("c{i}")), Some("net")).unwrap();
    }
    w.run(5 * S);
    w
}

/// The time for which this thread has been on a processor: what else runs on the machine does not
/// count.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Were each end to look at all the others, the end of each of eight times as many would cost eight
/// times as much. Caches and a busy machine take a part: the bound is five times, and of three
/// rounds the cheapest counts.
#[test]
fn the_end_of_each_of_many_on_one_connection_costs_the_same() {
    let [few, many] = [150, 1_200].map(|n| {
        let one_round = || {
            let mut w = road_warriors(n);
            assert_eq!(w.up(1).len(), n as usize);
            let (now, start) = (w.now(), thread_time());
            w.nodes[1].endpoint.shutdown(now);
            (thread_time() - start) / n
        };
        let each = (0..3).map(|_| one_round()).min().unwrap();
        println!("{n} on one connection: {each:?} for the end of each");
        each
    });
    assert!(many < 5 * few, "{many:?} is more than five times {few:?}");
}

/// A measurement, for whoever looks: `cargo test --release -- --ignored --nocapture`. With the
/// model engine's own lists out of the way (it is linear in its SAs), the time per tunnel must not
/// grow with their number.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "it measures")]
fn time_for_a_tunnel_among_many() {
    for n in [500, 1_000, 2_000] {
        let mut w = many(n);
        let start = std::time::Instant::now();
        for i in 0..n {
            let now = w.now();
            w.nodes[0].endpoint.initiate(now, Some(&format!("c{i}")), Some("net")).unwrap();
        }
        let asked = start.elapsed();
        w.run(5 * S);
        assert_eq!(w.up(0).len(), n as usize);
        println!("{n} tunnels: {asked:?} to ask, {:?} in all", start.elapsed());
    }
}
