//! ICMP errors about requests: they are said, and nothing changes by them, whoever has sent them.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::Undelivered;
use ironswan_keying::diagnosis::Icmp;
use ironswan_keying::{ChildAction, Connection};
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::ExchangeType;

const S: Duration = Duration::from_secs(1);

/// Types and codes of both families, known ones and others.
fn kinds() -> Vec<(&'static str, u8, u8)> {
    let codes = |from: &'static str, kind: u8| (0..16).map(move |code| (from, kind, code));
    let v4 = codes("198.51.100.66", 3).chain(codes("198.51.100.66", 11)).chain(codes("198.51.100.66", 5));
    v4.chain(codes("2001:db8::66", 1)).chain(codes("2001:db8::66", 3)).collect()
}

/// A box tells node 0 this about the request in flight of its newest IKE_SA.
fn tell(w: &mut World, (from, kind, code): (&str, u8, u8), certain: bool) {
    let now = w.now();
    let Some(sa) = w.nodes[0].sas(now).pop() else { return };
    let icmp = Icmp { kind, code, from: config::ip(from), certain, times: 1 };
    let spi = if sa.initiator { sa.spi_i } else { sa.spi_r };
    let error = Undelivered { spi, remote: sa.remote, icmp };
    w.nodes[0].endpoint.call(now, |e| e.handle_icmp(now, &error));
    w.run(Duration::ZERO);
}

/// Everything that was sent, and when.
fn sent(w: &World) -> Vec<(Duration, SocketAddr, SocketAddr, Vec<u8>)> {
    let began = w.now() - w.clock.elapsed();
    let packets = w.net.log.iter().map(|(_, p)| (p.from, p.to, p.payload.clone()));
    let times = w.net.sent.iter().map(|at| at.saturating_duration_since(began));
    times.zip(packets).map(|(at, (from, to, payload))| (at, from, to, payload)).collect()
}

/// Runs a story twice, once with errors of every kind. All that is sent is the same.
fn same_with_errors(
    name: &str,
    tweak: impl Fn(&mut [Connection; 2]),
    story: impl Fn(&mut World, &mut dyn FnMut(&mut World)),
) {
    let run = |errors: bool| {
        let mut w = World::pair(9, |c| tweak(c));
        let kinds = kinds();
        let mut hostile = |w: &mut World| {
            if errors {
                for kind in &kinds {
                    tell(w, *kind, false);
                    tell(w, *kind, true);
                }
            }
        };
        story(&mut w, &mut hostile);
        let noted = w.nodes[0].endpoint.protocol().counters().icmp_noted;
        assert_eq!(noted > 0, errors, "{name}: the errors have been about something");
        let states: Vec<_> = w.nodes.iter().map(|n| n.sas(w.now())).collect();
        (sent(&w), format!("{states:?}"), w.nodes[0].endpoint.down(w.now()).len())
    };
    assert_eq!(run(true), run(false), "{name}");
}

#[test]
fn an_attempt_goes_on_as_if_no_error_had_come() {
    same_with_errors(
        "silence",
        |c| {
            c[0].keyingtries = 0;
            c[0].children[0].start_action = ChildAction::Start;
        },
        |w, hostile| {
            w.net.mute.insert(1);
            for _ in 0..100 {
                w.run(4 * S);
                hostile(w);
            }
            w.net.mute.clear();
            w.run(300 * S);
            w.assert_one();
        },
    );
}

#[test]
fn an_ike_sa_that_stands_goes_on_as_if_no_error_had_come() {
    same_with_errors(
        "rekeying while nothing gets through",
        |c| c[0].dpd_delay = 30 * S,
        |w, hostile| {
            w.establish(0).expect("an IKE_SA");
            w.net.mute.insert(1);
            w.rekey_child(0);
            w.run(S);
            hostile(w);
            w.run(20 * S);
            hostile(w);
            w.net.mute.clear();
            w.run(60 * S);
            w.assert_one();
        },
    );
}

#[test]
fn an_error_is_said_once_and_a_certain_one_once_more_however_many_come() {
    let mut w = World::pair(3, |_| {});
    w.net.mute.insert(1);
    w.initiate(0);
    w.run(S);
    for _ in 0..1_000 {
        tell(&mut w, ("198.51.100.66", 3, 13), false);
    }
    assert_eq!(w.nodes[0].count_logged("no answer yet"), 1);
    assert!(w.nodes[0].logged("a filter at 198.51.100.66 refuses UDP 500 to 192.0.2.2 (likely"));
    for _ in 0..1_000 {
        tell(&mut w, ("192.0.2.2", 3, 3), true);
        tell(&mut w, ("198.51.100.66", 3, 13), false);
    }
    assert_eq!(w.nodes[0].count_logged("no answer yet"), 2);
    assert!(w.nodes[0].logged("UDP 500 is closed at 192.0.2.2, says 192.0.2.2 (certain"));
    // The attempt ends as any other, and with that reason.
    w.run(200 * S);
    let why = w.nodes[0].endpoint.down(w.now()).remove(0).why.expect("a reason");
    assert_eq!(why.entry().name(), "port-closed");
    assert!(
        why.details()[0].contains("sent 6 times, ICMP type 3 code 3 from 192.0.2.2, 1000 times"),
        "{why:?}"
    );
}

#[test]
fn an_error_about_nothing_that_is_in_flight_is_not_noted() {
    let mut w = World::pair(4, |_| {});
    w.establish(0).expect("an IKE_SA");
    let now = w.now();
    let sa = w.up(0).remove(0);
    let icmp = Icmp { kind: 3, code: 3, from: config::ip("192.0.2.2"), certain: true, times: 1 };
    let mut told = |spi: u64, remote: SocketAddr| {
        let error = Undelivered { spi, remote, icmp };
        w.nodes[0].endpoint.call(now, |e| e.handle_icmp(now, &error));
    };
    told(sa.spi_i, sa.remote);
    told(sa.spi_r, sa.remote);
    told(7, sa.remote);
    assert_eq!(w.nodes[0].endpoint.protocol().counters().icmp_noted, 0);
    // In flight, and to another port.
    w.net.mute.insert(1);
    w.rekey_child(0);
    w.run(S);
    let error = Undelivered { spi: sa.spi_i, remote: "192.0.2.2:4501".parse().unwrap(), icmp };
    let now = w.now();
    w.nodes[0].endpoint.call(now, |e| e.handle_icmp(now, &error));
    assert_eq!(w.nodes[0].endpoint.protocol().counters().icmp_noted, 0);
}

#[test]
fn an_answer_makes_an_error_before_it_worthless() {
    let mut w = World::pair(5, |_| {});
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_AUTH {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.net.mute.insert(1);
    w.initiate(0);
    w.run(S);
    tell(&mut w, ("192.0.2.2", 3, 3), true);
    // IKE_SA_INIT is answered after all, and IKE_AUTH on the same port is not.
    w.net.mute.clear();
    w.run(300 * S);
    let why = w.nodes[0].endpoint.down(w.now()).remove(0).why.expect("a reason");
    assert_eq!(why.entry().name(), "no-answer");
    assert!(why.details()[0].starts_with("IKE_SA_INIT answered in "), "{why:?}");
}
