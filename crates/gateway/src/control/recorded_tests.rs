//! The whole control plane without a device: VICI in front, a simulated peer behind, and a data
//! plane that records what it is told.

use std::time::Duration;

use ironswan_ike::event::Event;
use ironswan_ipsec::WindowNeeds;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::sadb::{Action, Direction, Mode, SaAdd, SaRef, SaStats, Up};
use ironswan_wire::selector::PacketSelector;
use ironswan_wire::vici::{Packet, Section};

use super::tests::{Raw, in_front_of, local};
use crate::dataplane::Notice;
use crate::dataplane::recording::Record;
use crate::driver::tests::{conf, held, recorded_pair, up};
use crate::driver::{Driver, Observer};

/// The configuration of the gateway `me`, with these keys in its child.
fn with_child(me: u8, peer: u8, keys: &str) -> String {
    conf(me, peer)
        .replace("esp_proposals = aes128gcm16 }", &format!("esp_proposals = aes128gcm16\n {keys} }}"))
}

/// The newest SA of a direction.
fn newest(record: &Record, direction: Direction) -> SaAdd {
    record.sas().into_iter().rfind(|sa| sa.direction == direction).expect("an SA")
}

/// Waits until `is` holds, for 5 s at most. `what` names the condition when it does not.
async fn soon(what: &str, is: impl Fn() -> bool) {
    for _ in 0..500 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("within 5 seconds: {what}");
}

/// The connection `net` as a client of VICI loads it.
fn net() -> Section {
    let side = |id: &str| Section::new().with("auth", "psk").with("id", id);
    let child = Section::new()
        .with("local_ts", ["10.1.0.0/24"])
        .with("remote_ts", ["10.2.0.0/24"])
        .with("esp_proposals", ["aes128gcm16"]);
    let conn = Section::new()
        .with("version", "2")
        .with("local_addrs", ["192.0.2.1"])
        .with("remote_addrs", ["192.0.2.2"])
        .with("proposals", ["aes128gcm16-prfsha256-x25519"])
        .with("local", side("g1.example"))
        .with("remote", side("g2.example"))
        .with("children", Section::new().with("net", child));
    Section::new().with("net", conn)
}

fn succeeded(answer: &Section) {
    assert_eq!(answer.get_str("success"), Some("yes"), "{answer:?}");
}

#[tokio::test]
async fn a_tunnel_that_vici_loads_reaches_the_data_plane_whole_and_leaves_it_again() {
    local(async {
        let [(a, told), (b, peer)] = recorded_pair("", &conf(2, 1));
        let s = in_front_of(&a, &b);
        let mut c = Raw::connect(&s).await;
        let key = Section::new().with("type", "IKE").with("data", "0123456789abcdef");
        succeeded(&c.request("load-shared", key).await);
        succeeded(&c.request("load-conn", net()).await);
        assert_eq!(told.batches(), [""; 0], "nothing is up");
        let initiate = Section::new().with("child", "net").with("timeout", "5000");
        succeeded(&c.request("initiate", initiate).await);

        let batches = told.batches().join(", ");
        let (reserved, made) = batches.split_once(", ").unwrap();
        assert!(reserved.starts_with("reserve SPI "), "packets may come before their SA: {reserved}");
        assert_eq!(
            made, "add In SA, add Out SA, add policy 10.1.0.0/24 === 10.2.0.0/24",
            "the SA that opens comes first"
        );
        let (ours, theirs) = (newest(&told, Direction::Out), newest(&peer, Direction::In));
        assert_eq!((ours.spi, &ours.encr_key), (theirs.spi, &theirs.encr_key));
        assert_eq!((ours.mode, ours.protocol, ours.encr_key.len()), (Mode::Tunnel, ProtocolId::ESP, 20));
        assert_eq!(told.policies()[0].action, Action::Protect(ours.reqid));
        assert_eq!(told.policies()[0].name, "net.net");

        // Counters of the data plane are those that are listed.
        let stats = SaStats { packets: 3, bytes: 300, last_use: a.plane_now().as_secs() };
        told.count(Direction::Out, ours.spi, stats);
        c.register("list-sa").await;
        c.send(&Packet::CmdRequest { name: "list-sas".into(), message: Section::new() }.emit().unwrap())
            .await;
        let Some(Packet::Event { message, .. }) = c.packet().await else { panic!("no IKE_SA") };
        let children = message.section("net").and_then(|sa| sa.section("child-sas")).unwrap();
        let (_, child) = children.sections().next().unwrap();
        assert_eq!((child.get_str("packets-out"), child.get_str("bytes-out")), (Some("3"), Some("300")));
        assert_eq!(child.get_str("packets-in"), Some("0"));
        assert!(matches!(c.packet().await, Some(Packet::CmdResponse(_))));
        let all = c.request("ironswan-counters", Section::new()).await;
        assert_eq!(all.section("plane").unwrap().get_str("sas"), Some("2"));
        assert_eq!((all.section("replays"), all.section("replay-windows")), (None, None));
        let mut needs = WindowNeeds { window: 32, ..WindowNeeds::default() };
        needs.needed.add(100);
        told.replayed(ours.reqid, needs);
        let all = c.request("ironswan-counters", Section::new().with("ike", "net")).await;
        let net =
            all.section("replay-windows").and_then(|conns| conns.section("net")?.section("net")).unwrap();
        assert_eq!((net.get_str("window"), net.get_str("advised")), (Some("32"), Some("128")));
        let all = c.request("ironswan-counters", Section::new().with("ike", "other")).await;
        assert_eq!(all.section("replay-windows"), None);
        let stats = c.request("stats", Section::new()).await;
        assert_eq!(stats.get_list("plugins").unwrap().last().unwrap(), b"recording");

        let terminate = Section::new().with("ike", "net").with("timeout", "5000");
        succeeded(&c.request("terminate", terminate).await);
        soon("nothing is left", || held(&a) == (0, 0) && held(&b) == (0, 0)).await;
        let mut gone: Vec<String> =
            told.batches().iter().flat_map(|b| b.split(", ")).map(str::to_owned).collect();
        gone.sort();
        assert_eq!(gone, ["delete In SA", "delete Out SA", "delete policy 10.1.0.0/24 === 10.2.0.0/24"]);
    })
    .await;
}

#[tokio::test]
async fn a_packet_that_meets_a_trap_brings_the_tunnel_up() {
    local(async {
        let trap = with_child(1, 2, "start_action = trap");
        let [(a, told), _] = recorded_pair(&trap, &conf(2, 1));
        assert_eq!((held(&a), told.batches().len()), ((0, 1), 1), "a policy and no SA");
        let Action::Protect(reqid) = told.policies()[0].action else { panic!("no PROTECT policy") };
        let packet = PacketSelector {
            src: "10.1.0.7".parse().unwrap(),
            dst: "10.2.0.9".parse().unwrap(),
            protocol: 17,
            src_port: Some(5000),
            dst_port: Some(53),
        };
        told.raise(Notice::Up(vec![Up::Acquire { reqid, packet }]));
        soon("the tunnel is up", || held(&a).0 == 2).await;
        assert!(told.sas().iter().all(|sa| sa.reqid == reqid), "under the policy's reqid");
        // The packet waits for the SA no longer; another does not bring up a second tunnel.
        told.raise(Notice::Up(vec![Up::Acquire { reqid, packet }]));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(held(&a).0, 2);
    })
    .await;
}

/// The name of an SA as the data plane reports it.
fn named(sa: &SaAdd) -> SaRef {
    SaRef { direction: sa.direction, spi: sa.spi, reqid: sa.reqid, remote: sa.remote.ip() }
}

#[tokio::test]
async fn an_sa_that_comes_to_its_end_is_replaced_first_and_then_removed() {
    local(async {
        let [(a, told), (b, peer)] = recorded_pair(&conf(1, 2), &conf(2, 1));
        up(&a).await.unwrap();
        let before = newest(&told, Direction::Out);
        told.batches();
        told.raise(Notice::Up(vec![Up::Expire { sa: named(&before), hard: false }]));
        soon("there is a successor", || newest(&told, Direction::Out).spi != before.spi).await;
        let after = newest(&told, Direction::Out);
        assert_eq!((after.reqid, &after.local_ts), (before.reqid, &before.local_ts));
        soon("the old one is gone", || told.sas().iter().all(|sa| sa.spi != before.spi)).await;
        let all = told.batches().join(", ");
        assert!(all.find("add Out SA").unwrap() < all.find("delete Out SA").unwrap(), "{all}");
        assert!(!all.contains("policy"), "the policy stays as it is: {all}");
        assert_eq!(newest(&peer, Direction::In).spi, after.spi);

        told.raise(Notice::Up(vec![Up::Expire { sa: named(&after), hard: true }]));
        soon("both sides are empty", || held(&a).0 == 0 && held(&b).0 == 0).await;
    })
    .await;
}

/// Notes whether a child has come up.
#[derive(Default)]
struct ChildUp(std::cell::Cell<bool>);

impl Observer for ChildUp {
    fn event(&self, _: &Driver, event: &Event) {
        self.0.set(self.0.get() || matches!(event, Event::ChildUp { .. }));
    }
}

/// The data plane answers a batch of commands later, as a kernel does that answers by messages.
#[tokio::test]
async fn nothing_leaves_before_a_data_plane_that_answers_later_has_answered() {
    local(async {
        let [(a, _), (b, told)] = recorded_pair(&conf(1, 2), &conf(2, 1));
        told.answer_later();
        let seen = std::rc::Rc::new(ChildUp::default());
        b.observe(seen.clone());
        let begun = a.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t)));
        let (_, mut end) = begun.unwrap();
        soon("the responder has told its data plane", || !told.batches().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(end.try_recv().is_err(), "the answer would let the initiator send");
        assert!(!seen.0.get() && held(&b) == (0, 0));
        // A CHILD_SA may be more than one batch.
        while end.try_recv().is_err() {
            told.answer();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        soon("the child is up", || seen.0.get() && held(&b) == (2, 1)).await;
        assert_eq!(held(&a), (2, 1));
    })
    .await;
}

#[tokio::test]
async fn a_data_plane_that_refuses_later_closes_the_child_as_one_that_refuses_at_once() {
    local(async {
        let [(a, _), (b, told)] = recorded_pair(&conf(1, 2), &conf(2, 1));
        up(&a).await.unwrap();
        told.answer_later();
        let again = newest(&told, Direction::In);
        b.submit(vec![ironswan_wire::sadb::Command::SaAdd(Box::new(again))]);
        assert!(told.answer(), "it is under way");
        for d in [&a, &b] {
            // Deleting takes further batches.
            let answering = || {
                told.answer();
                held(d).0 == 0
            };
            soon("the child is closed", answering).await;
        }
        assert_eq!(a.ike_sas().0[0].children.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn whoever_waits_for_a_data_plane_that_ends_is_told() {
    local(async {
        let [(a, told), _] = recorded_pair(&conf(1, 2), &conf(2, 1));
        // Another one waits beside the test's own server.
        told.raise(Notice::Ended);
        told.raise(Notice::Ended);
        tokio::time::timeout(Duration::from_secs(5), a.serve_plane()).await.expect("it ends");
    })
    .await;
}
