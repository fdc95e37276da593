//! Random weather: outages, loss, addresses that come and go, NATs that forget, restarts and
//! rekeyings in any order, many times over. Then it is calm, and there must be one tunnel that
//! works, without an operator, and nothing left of the rest.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_keying::{AddrSpec, ChildAction, Connection};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{World, config};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// What the child is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tunnel,
    Ah,
    Transport,
    IpcompTransport,
}

/// Gateways that want the tunnel up: the first starts it, the second is known by name and may be
/// anyone's responder.
fn connections(kind: Kind) -> [Connection; 2] {
    let mut conns = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    for (n, c) in conns.iter_mut().enumerate() {
        c.local_addrs = vec![AddrSpec::Any];
        c.dpd_delay = 20 * S;
        c.rekey_time = 300 * S;
        c.over_time = 60 * S;
        c.rand_time = 60 * S;
        if matches!(kind, Kind::Transport | Kind::IpcompTransport) {
            config::transport(c);
        }
        let child = &mut c.children[0];
        child.ipcomp = kind == Kind::IpcompTransport;
        if kind == Kind::Ah {
            child.proposals = vec![config::ah_proposal(&[])];
        }
        (child.rekey_time, child.life_time, child.rand_time) = (120 * S, 180 * S, 30 * S);
        if n == 0 {
            (child.start_action, child.dpd_action) = (ChildAction::Start, ChildAction::Start);
            child.close_action = ChildAction::Start;
        }
    }
    conns[0].remote_addrs = vec![AddrSpec::Name("hub.example".to_owned())];
    conns[1].remote_addrs = vec![AddrSpec::Any];
    conns
}

fn weather(seed: u64, nat: bool, kind: Kind) -> World {
    let mut w = World::pair(seed, |_| {});
    let mut rng = Seeded::new(seed ^ 0x5eed);
    let mut below = move |n: u64| rng.u64() % n;
    let name = |w: &mut World| {
        let hub = w.nodes[1].addrs.clone();
        w.nodes[0].names.insert("hub.example".to_owned(), hub);
    };
    if nat {
        let mut translator = Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1"));
        translator.inside = (0..=255).map(|n| IpAddr::from([198, 51, 100, n])).collect();
        translator.inside.push(config::ip("192.0.2.1"));
        w.net.nat = Some(translator);
    }
    let now = w.now();
    for (node, conn) in connections(kind).into_iter().enumerate() {
        w.nodes[node].endpoint.unload_connection(now, "gw");
        name(&mut w);
        w.network_changed(node);
        w.nodes[node].endpoint.load_connection(now, conn);
    }
    w.traffic = Some(500 * MS);
    w.net.jitter = 8 * MS;
    for step in 0..25u64 {
        match below(11) {
            0 => drop(w.net.mute.insert(below(2) as usize)),
            1 | 2 => w.net.mute.clear(),
            3 => w.net.loss = below(400) as u32,
            4 => w.readdress(0, vec![IpAddr::from([198, 51, 100, below(256) as u8])]),
            5 => w.readdress(0, Vec::new()),
            6 => {
                w.nodes[1].addrs = vec![IpAddr::from([192, 0, 2, 2 + below(3) as u8])];
                name(&mut w);
                w.network_changed(1);
            }
            7 => {
                if let Some(nat) = &mut w.net.nat {
                    nat.rebind();
                }
            }
            8 => {
                let node = below(2) as usize;
                w.restart(node, seed * 1_000 + step, connections(kind)[node].clone());
                name(&mut w);
                w.network_changed(node);
            }
            9 => w.network_changed(0),
            _ => {
                let node = below(2) as usize;
                if !w.up(node).is_empty() {
                    if below(2) == 0 {
                        w.rekey_ike(node);
                    } else {
                        w.rekey_child_if_any(node);
                    }
                }
            }
        }
        let pause = [5, 40, 700, 9_000, 70_000, 400_000][below(6) as usize];
        w.run(Duration::from_millis(below(pause)));
    }
    w.net.mute.clear();
    w.net.loss = 0;
    w.net.jitter = Duration::ZERO;
    if w.nodes[0].addrs.is_empty() {
        w.readdress(0, vec![config::ip("192.0.2.1")]);
    }
    name(&mut w);
    w
}

fn clears(seed: u64, nat: bool, kind: Kind) {
    let mut w = weather(seed, nat, kind);
    // The longest pause and two rounds of retransmissions: one to find out that the other side has
    // moved, another for an attempt to where it is not.
    let works = (0..80).any(|_| {
        let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
        w.run(10 * S);
        w.fault().is_none() && w.nodes[0].esp.0 >= got.0 + 15 && w.nodes[1].esp.0 >= got.1 + 15
    });
    if !works {
        w.dump();
        panic!("seed {seed} {kind:?}: {:?}", w.fault());
    }
    w.audit();
}

#[test]
fn after_any_weather_there_is_one_tunnel_and_nothing_else() {
    for seed in 0..300u64 {
        clears(seed, seed % 3 == 0, Kind::Tunnel);
    }
}

#[test]
fn ah_transport_mode_and_ipcomp_stand_the_weather_too() {
    for seed in 0..60u64 {
        clears(seed, false, Kind::Ah);
        clears(seed, seed % 2 == 0, Kind::Transport);
        clears(seed, seed % 2 == 1, Kind::IpcompTransport);
    }
}
