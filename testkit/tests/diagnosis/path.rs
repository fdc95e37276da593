//! Cases of the area path.

use ironswan_ike::event::Undelivered;
use ironswan_keying::diagnosis::{Icmp, PathEntry as E};
use ironswan_keying::{AddrSpec, Diagnosis, Unique};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Notify;

use crate::story::{Pair, S, a, b, failures};

/// A road warrior at 192.0.2.1, which knows its addresses, and a hub that takes anyone.
fn roaming(unique: Unique) -> World {
    let mut w = World::pair(1, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
        c[1].unique = unique;
    });
    w.network_changed(0);
    w
}

/// The same pair with MOBIKE, and with an IKE_SA.
fn mobile(w: &mut World) {
    let now = w.now();
    for node in &mut w.nodes {
        let mut conn = node.connection("gw");
        conn.mobike = true;
        node.endpoint.load_connection(now, conn);
    }
    w.establish(0).expect("an IKE_SA");
}

/// Nobody answers node 0, and a box says this by ICMP.
fn told(kind: u8, code: u8) -> Vec<Diagnosis> {
    let mut w = roaming(Unique::No);
    w.net.mute.insert(1);
    w.initiate(0);
    w.run(S);
    let now = w.now();
    let sa = w.nodes[0].sas(now).remove(0);
    let icmp = Icmp { kind, code, from: config::ip("198.51.100.9"), certain: true, times: 1 };
    let error = Undelivered { spi: sa.spi_i, remote: sa.remote, icmp };
    w.nodes[0].endpoint.call(now, |e| e.handle_icmp(now, &error));
    w.run(200 * S);
    failures(&w)
}

/// Drops requests of this exchange that node 0 sends.
fn drop_requests(w: &mut World, exchange: ExchangeType) {
    w.net.rules.push(Box::new(move |s| match s.node == 0 && s.exchange == exchange {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
}

/// Makes the entry happen, and returns every failure.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    let mut w = match entry {
        E::NoName => World::pair(1, |c| c[0].remote_addrs = vec![AddrSpec::Name("hub.example".to_owned())]),
        E::AddressGone => roaming(Unique::Keep),
        E::PeerDead => Pair::up(|_| {}).w,
        E::NotSent => World::pair(1, |_| {}),
        E::Narrow | E::ProbeRefused => World::pair(1, |c| c[0].path_probe = true),
        E::NoLocalAddress => World::pair(1, |c| {
            c[0].local_addrs = vec![AddrSpec::Host(config::ip("203.0.113.77"))];
        }),
        _ => roaming(Unique::No),
    };
    match entry {
        E::NoAnswer => {
            w.net.mute.insert(1);
            w.initiate(0);
            w.run(200 * S);
        }
        E::PortClosed => return told(3, 3),
        E::PeerUnreachable => return told(3, 1),
        E::Filtered => return told(3, 13),
        E::SilenceOnNatt => {
            // With `encap = yes` IKE_AUTH goes to UDP 4500.
            w = World::pair(1, |c| c[0].encap = true);
            drop_requests(&mut w, ExchangeType::IKE_AUTH);
            w.initiate(0);
            w.run(200 * S);
        }
        E::SilenceOnIke => {
            mobile(&mut w);
            w.terminate(0, false);
            w.run(S);
            drop_requests(&mut w, ExchangeType::IKE_SA_INIT);
            w.initiate(0);
            w.run(200 * S);
        }
        E::OneWay => {
            w.establish(0).expect("an IKE_SA");
            w.traffic = Some(S);
            w.quiet.insert(1);
            w.run(70 * S);
        }
        E::PeerDead => {
            w.net.mute.insert(1);
            w.rekey_child(0);
            w.run(200 * S);
        }
        E::NotSent => {
            // The interface has lost its address, and nobody has told the gateway yet.
            w.nodes[0].addrs = vec![config::ip("198.51.100.20")];
            w.initiate(0);
            w.run(200 * S);
        }
        E::NoLocalAddress => {
            w.network_changed(0);
            let _ = w.establish(0);
        }
        E::NoWay => {
            w.establish(0).expect("an IKE_SA");
            w.nodes[0].no_routes = true;
            w.network_changed(0);
            w.run(S);
        }
        E::NoRoute => {
            w.nodes[0].no_routes = true;
            let _ = w.establish(0);
        }
        E::RouteUnknown => {
            w.nodes[0].routes_unknown = true;
            let _ = w.establish(0);
        }
        E::NoName => {
            let _ = w.establish(0);
        }
        E::AddressChanged => {
            w.net.mute.insert(1);
            w.initiate(0);
            w.run(S);
            w.readdress(0, vec![config::ip("198.51.100.20")]);
            w.run(S);
        }
        E::AddressesRefused | E::BadAddresses => {
            mobile(&mut w);
            // The new address is one of the hub's own.
            let now = w.now();
            w.nodes[1].endpoint.network_changed(now, &[config::ip("192.0.2.2"), config::ip("198.51.100.20")]);
            w.readdress(0, vec![config::ip("198.51.100.20")]);
            w.run(S);
        }
        E::NotRoutable => {
            mobile(&mut w);
            w.net
                .rules
                .push(Box::new(|s| if s.node == 0 && s.response { Verdict::Drop } else { Verdict::Pass }));
            w.readdress(0, vec![config::ip("198.51.100.20")]);
            w.run(S);
            let (to, from) = (w.up(1)[0].local, w.up(1)[0].remote);
            let bytes = Forger::newest(&w.nodes[0]).message(true, ExchangeType::INFORMATIONAL, true, 0, &[]);
            w.inject(from, to, [&[0; 4], &bytes[..]].concat());
            w.run(S);
        }
        E::Narrow => {
            w.net.mtu.insert(0, 1_300);
            w.establish(0).expect("an IKE_SA");
            w.run(60 * S);
        }
        E::ProbeRefused => {
            w.establish(0).expect("an IKE_SA");
            // The peer answers by an error.
            w.net.mute.insert(0);
            w.run(S);
            let mut forger = Forger::newest(&w.nodes[0]);
            let no = Payload::Notify(Notify::new(NotifyType::INVALID_SELECTORS, []));
            let bytes = forger.message(false, ExchangeType::INFORMATIONAL, true, 2, &[no]);
            w.inject(b(), a(), bytes);
            w.run(S);
        }
        E::AddressGone => {
            // The hub keeps the IKE_SA from the old address, and takes none from the new one.
            w.establish(0).expect("an IKE_SA");
            w.readdress(0, vec![config::ip("198.51.100.20")]);
            w.run(60 * S);
        }
    }
    failures(&w)
}

#[test]
fn a_peer_that_does_not_answer_is_named_with_addresses_and_ports() {
    let found = happens(E::NoAnswer);
    let told = "no answer to IKE_SA_INIT from 192.0.2.1:500 to 192.0.2.2:500, sent 6 times, no ICMP";
    // The log says so, the command, and the list of tunnels that are down.
    assert_eq!(found.iter().filter(|d| d.sentence().ends_with(told)).count(), 3, "{found:?}");
}

#[test]
fn an_answer_on_500_and_silence_on_4500_says_what_to_let_through() {
    let found = happens(E::SilenceOnNatt);
    let told: Vec<_> = found.iter().filter(|d| d.entry().name() == "silence-on-natt").collect();
    // The log says so, the command, and the list of tunnels that are down.
    assert_eq!(told.len(), 3, "{found:?}");
    assert_eq!(told[0].sentence(), "192.0.2.2 answers on UDP 500, silence on UDP 4500");
    assert_eq!(told[0].remedy(), "let UDP 4500 through to and from 192.0.2.2, then: ironswan prove gw");
    let seen = &told[0].details()[0];
    assert!(
        seen.starts_with("IKE_SA_INIT answered in ") && seen.ends_with("sent 6 times, no ICMP"),
        "{seen}"
    );
}

#[test]
fn a_dead_peer_is_told_with_the_time_of_its_silence_and_what_was_sent() {
    let found = happens(E::PeerDead);
    let told = found.iter().find(|d| d.entry().name() == "peer-dead").expect("a dead peer").sentence();
    assert!(told.contains("no answer to CREATE_CHILD_SA from 192.0.2.1:500"), "{told}");
    assert!(told.contains("sent 6 times; nothing came from it for 165 s, no ICMP"), "{told}");
}
