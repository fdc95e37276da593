//! Tests of the answer about one packet, as clients receive it.

use ironswan_wire::vici::Section;

use crate::control::tests::{Raw, local, serve};
use crate::diagnosis::tests::in_namespace;
use crate::driver::tests::pair;
use crate::guard::plan::from_config::configured;

/// The answer about a packet, in a network namespace with a loopback interface alone.
fn asked(packet: &'static str) -> Section {
    in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut out = Section::new();
            local(async {
                let s = serve(pair());
                let loaded = s.a.view(|e, _| configured(e.connections().iter().map(|c| &**c)));
                s.a.replan(loaded);
                let mut c = Raw::connect(&s).await;
                let message = Section::new().with("packet", packet);
                out = c.request("ironswan-explain-packet", message).await;
            })
            .await;
            out
        })
    })
}

#[test]
fn a_packet_that_cannot_be_read_is_answered_with_what_is_expected() {
    let answer = asked("10.1.0.9 -> nowhere");
    assert_eq!(answer.get_str("success"), Some("no"));
    assert!(answer.get_str("errmsg").is_some_and(|e| e.contains("expected: SRC[:PORT] > DST")), "{answer:?}");
    assert_eq!(asked("").get_str("success"), Some("no"));
}

#[test]
fn the_answer_has_the_stations_in_order_and_the_first_obstacle_by_name() {
    let answer = asked("203.0.113.9 > 198.51.100.1 udp 53");
    assert_eq!(answer.get_str("packet"), Some("203.0.113.9 > 198.51.100.1 udp 53"));
    assert_eq!(answer.get_str("passes"), Some("no"));
    let out = answer.section("outbound").expect("a direction");
    let stations: Vec<&str> = out.section("stations").unwrap().sections().map(|(name, _)| name).collect();
    assert_eq!(stations, ["link", "policy", "route", "guard"]);
    let obstacle = out.section("obstacle").unwrap();
    assert_eq!(obstacle.get_str("station"), Some("policy"));
    assert_eq!(obstacle.get_str("name"), Some("packet-without-policy"));
    assert!(obstacle.get_str("why").unwrap().contains("203.0.113.9 > 198.51.100.1 udp 53"));
}

#[test]
fn a_loaded_tunnel_that_is_down_is_named_as_the_obstacle() {
    let answer = asked("10.1.0.9 > 10.2.0.5 tcp 443");
    let obstacle = answer.section("outbound").and_then(|s| s.section("obstacle")).expect("an obstacle");
    assert_eq!(obstacle.get_str("name"), Some("packet-without-sa"), "{answer:?}");
    assert!(obstacle.get_str("why").unwrap().contains("net.net"), "{answer:?}");
    let answer = asked("10.2.0.5 > 10.1.0.9 tcp 443");
    assert!(answer.section("inbound").is_some() && answer.section("outbound").is_none(), "{answer:?}");
}
