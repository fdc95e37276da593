//! Cases of the area selectors.

use ironswan_keying::diagnosis::SelectorsEntry as E;
use ironswan_keying::{AddrSpec, ChildAction, ChildConfig, Diagnosis, Unique};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, ProtocolId};
use ironswan_wire::id::IdPattern;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::sadb::Mode;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::story::{Pair, S, a, b, failures, third, tried};

/// Two hosts behind one NAT ask one host for transport mode.
fn two_hosts_behind_one_nat() -> Vec<Diagnosis> {
    let mut w = World::pair(1, |c| {
        c.iter_mut().for_each(config::transport);
        c[1].remote_addrs = vec![AddrSpec::Any];
        c[1].remote_id = IdPattern::Any;
    });
    let mut nat = Nat::new(a().ip(), config::ip("198.51.100.1"));
    nat.inside.push(config::ip("192.0.2.3"));
    w.net.nat = Some(nat);
    third(&mut w, "192.0.2.3", "g3.example");
    w.establish(0).expect("the first host");
    let _ = w.establish(2);
    failures(&w)
}

/// One identity has its children cut into pieces on many IKE_SAs at once.
fn many_pieces() -> Vec<Diagnosis> {
    let ke = |child: ChildConfig| ChildConfig {
        proposals: vec![config::esp_proposal(&[KeId::CURVE_25519])],
        ..child
    };
    let mut w = World::pair(1, |c| {
        (c[1].remote_addrs, c[1].unique) = (vec![], Unique::Never);
        c[1].children.push(ke(config::child("cut", "10.8.0.0/16", "10.9.0.0/16")));
    });
    for node in 2..20 {
        third(&mut w, &format!("198.51.100.{node}"), "g1.example");
        let now = w.now();
        let mut child = ke(config::child("cut", "10.9.0.0/32", "10.8.0.0/18"));
        child.local_ts = (0..250).map(|i| config::net(&format!("10.9.{i}.{node}/32"))).collect();
        child.remote_ts = (0..4).map(|i| config::net(&format!("10.8.{}.0/18", 64 * i))).collect();
        let mut conn = w.nodes[node].connection("gw");
        conn.children.push(child);
        w.nodes[node].endpoint.load_connection(now, conn);
        w.establish(node).expect("an IKE_SA");
    }
    w.nodes[1].held = Some(Vec::new());
    let now = w.now();
    for node in 2..20 {
        w.nodes[node].endpoint.initiate(now, Some("gw"), Some("cut")).expect("a child");
    }
    w.run(S);
    let now = w.now();
    w.nodes[1].release(now);
    w.run(2 * S);
    failures(&w)
}

/// Makes the entry happen, and returns every failure.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    match entry {
        E::Unacceptable => tried(|c| c[0].children[0].remote_ts = vec![config::net("172.16.0.0/16")]),
        E::Narrows => {
            let mut pair = Pair::up(|_| {});
            let old = pair.w.child(0);
            let rekey = Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, old.spi_in.0);
            pair.ask_child(|p| {
                p[2] = Payload::TsI(vec![TrafficSelector { protocol: 17, ..old.local_ts[0] }]);
                p.insert(0, Payload::Notify(rekey));
            })
        }
        E::Narrowed => tried(|c| {
            c[1].children[0].local_ts = vec![config::net("10.2.0.0/25")];
        }),
        E::BadAnswer => {
            let mut pair = Pair::up(|_| {});
            let mut answer = pair.child(0xc222_2222);
            let everywhere = AddrRange::prefix(config::ip("0.0.0.0"), 0).expect("a prefix");
            answer[2] = Payload::TsI(vec![TrafficSelector::addresses(everywhere)]);
            pair.answer(ExchangeType::CREATE_CHILD_SA, |w| _ = w.rekey_child(0), &answer)
        }
        E::SameHost => two_hosts_behind_one_nat(),
        E::TooManyPieces => many_pieces(),
        E::NoTransport => tried(|c| c[0].children[0].mode = Mode::Transport),
        E::NoTrap => {
            let w = World::pair(1, |c| {
                (c[0].children[0].policies, c[0].children[0].start_action) = (false, ChildAction::Trap);
            });
            failures(&w)
        }
    }
}

#[test]
fn the_notification_of_a_refusal_is_the_one_that_the_peer_receives() {
    let mut pair = Pair::up(|_| {});
    let elsewhere = TrafficSelector::addresses(AddrRange::host(config::ip("2001:db8::1")));
    let found = pair.ask_child(|p| p[2] = Payload::TsI(vec![elsewhere]));
    let sent = pair.w.net.log.iter().rev().find_map(|(s, p)| {
        let answer = (s.node == 1 && s.response && p.to == a() && p.from == b()).then_some(&p.payload)?;
        pair.f.open(answer).map(|(_, payloads)| payloads)
    });
    let why = found.last().expect("a refusal");
    assert_eq!(sent, Some(vec![Payload::Notify(why.notify().expect("a notification"))]), "{why}");
}
