//! Traps and shunts by command, counters, and the events of failures and moves.

use ironswan_ike::event::Event;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Configuration;
use ironswan_wire::vici::{Packet, Section};

use super::tests::{Raw, in_front_of, local, serve};
use crate::driver::tests::{conf, pair, recorded_pair, up};

fn named(child: &str) -> Section {
    Section::new().with("child", child)
}

fn refused(answer: &Section, words: &str) {
    assert_eq!(answer.get_str("success"), Some("no"), "{answer:?}");
    assert!(answer.get_str("errmsg").unwrap().contains(words), "{answer:?}");
}

#[tokio::test]
async fn a_trap_comes_and_goes_by_command_in_charon_s_words() {
    local(async {
        let [(a, told), (b, _)] = recorded_pair(&conf(1, 2), &conf(2, 1));
        let s = in_front_of(&a, &b);
        let mut c = Raw::connect(&s).await;
        refused(&c.request("install", Section::new()).await, "missing configuration name");
        refused(&c.request("install", named("nope")).await, "configuration name not found");
        let elsewhere = named("net").with("ike", "nope");
        refused(&c.request("install", elsewhere).await, "configuration name not found");
        refused(&c.request("uninstall", Section::new()).await, "missing configuration name");
        refused(&c.request("uninstall", named("net")).await, "policy 'net' not found");

        let answer = c.request("install", named("net")).await;
        assert_eq!(answer.get_str("success"), Some("yes"), "{answer:?}");
        assert!(told.batches().join(", ").contains("add policy 10.1.0.0/24 === 10.2.0.0/24"));
        c.register("list-policy").await;
        c.send(&Packet::CmdRequest { name: "list-policies".into(), message: Section::new() }.emit().unwrap())
            .await;
        let Some(Packet::Event { message, .. }) = c.packet().await else { panic!("no policy") };
        assert_eq!(message.section("net/net").unwrap().get_str("mode"), Some("TUNNEL"));
        assert!(matches!(c.packet().await, Some(Packet::CmdResponse(_))));

        let answer = c.request("uninstall", named("net").with("ike", "net")).await;
        assert_eq!(answer.get_str("success"), Some("yes"), "{answer:?}");
        assert!(told.batches().join(", ").contains("delete policy 10.1.0.0/24 === 10.2.0.0/24"));
        refused(&c.request("uninstall", named("net")).await, "policy 'net' not found");
    })
    .await;
}

#[tokio::test]
async fn redirect_is_refused_with_a_reason() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let to = || Section::new().with("gateway", "192.0.2.9");
        refused(&c.request("redirect", Section::new()).await, "missing target gateway");
        refused(&c.request("redirect", to()).await, "missing redirect selector");
        refused(&c.request("redirect", to().with("ike", "net")).await, "RFC 5685) is not built");
    })
    .await;
}

#[tokio::test]
async fn counters_are_of_the_daemon_or_of_a_connection_and_can_be_reset() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        refused(
            &c.request("get-counters", Section::new().with("name", "net")).await,
            "no counters found for this connection",
        );
        let every = || Section::new().with("all", "yes");
        assert_eq!(c.request("get-counters", every()).await.get_str("success"), Some("yes"));
        up(&s.a).await.unwrap();

        let of = |answer: &Section, name: &str, key: &str| -> u64 {
            let counters = answer.section("counters").unwrap().section(name).unwrap();
            counters.get_str(key).unwrap().parse().unwrap()
        };
        let all = c.request("get-counters", Section::new()).await;
        assert_eq!(all.section("counters").unwrap().section("").unwrap().iter().count(), 21);
        let by_name = c.request("get-counters", Section::new().with("name", "net")).await;
        for key in ["ike-init-out-req", "ike-init-in-resp", "ike-auth-out-req", "ike-auth-in-resp"] {
            assert_eq!((of(&all, "", key), of(&by_name, "net", key)), (1, 1), "{key}");
        }
        let answer = c.request("get-counters", every()).await;
        let names: Vec<&str> = answer.section("counters").unwrap().sections().map(|(n, _)| n).collect();
        assert_eq!(names, ["net"]);

        // The reset of a connection leaves the daemon's counters alone.
        c.request("reset-counters", Section::new().with("name", "net")).await;
        let by_name = c.request("get-counters", Section::new().with("name", "net")).await;
        assert_eq!(of(&by_name, "net", "ike-init-out-req"), 0);
        let all = c.request("get-counters", Section::new()).await;
        assert_eq!(of(&all, "", "ike-init-out-req"), 1);
        let answer = c.request("reset-counters", every()).await;
        assert_eq!(answer.get_str("success"), Some("yes"));
        let all = c.request("get-counters", Section::new()).await;
        assert_eq!(of(&all, "", "ike-init-out-req"), 0);
        // Our own counters go on from the start of the daemon.
        let own = c.request("ironswan-counters", Section::new()).await;
        assert_eq!(own.section("ike").unwrap().get_str("ike-init-out-req"), Some("1"));
        let unknown = c.request("reset-counters", Section::new().with("name", "nope")).await;
        assert_eq!(unknown.get_str("success"), Some("yes"));

        // They go with the connection.
        c.request("terminate", Section::new().with("ike", "net").with("timeout", "5000")).await;
        c.request("unload-conn", Section::new().with("name", "net")).await;
        let answer = c.request("get-counters", Section::new().with("name", "net")).await;
        refused(&answer, "no counters found");
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_an_alert_and_a_move_an_update() {
    local(async {
        let s = serve(pair());
        up(&s.a).await.unwrap();
        let mut c = Raw::connect(&s).await;
        c.register("alert").await;
        c.register("ike-update").await;
        let (id, sa) = s.a.view(|e, now| {
            let sa = e.protocol().ike_sas(now).remove(0);
            (sa.id, sa)
        });
        let why = Diagnosis::from(Configuration::NoLiveness);
        s.a.announce(&Event::Log {
            level: ironswan_ike::event::Level::Warn,
            conn: Some("net".to_owned()),
            ike: Some(id),
            text: why.to_string(),
            why: Some(std::sync::Arc::new(why.clone())),
            stranger: None,
        });
        let Some(Packet::Event { name, message }) = c.packet().await else { panic!("no event") };
        assert_eq!((name.as_str(), message.get_str("name")), ("alert", Some("no-liveness")));
        assert_eq!((message.get_str("conn"), message.get_str("msg")), (Some("net"), Some(&*why.sentence())));
        let state = message.section("ike-sa").unwrap().section("net").unwrap().get_str("state");
        assert_eq!(state, Some("ESTABLISHED"));

        let mut old = sa;
        old.children.clear();
        let (local, remote) = (old.local, "192.0.2.77:4500".parse().unwrap());
        s.a.announce(&Event::IkeMoved { old: Box::new(old.clone()), local, remote });
        let Some(Packet::Event { name, message }) = c.packet().await else { panic!("no event") };
        assert_eq!(name, "ike-update");
        let keys: Vec<&str> = message.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["local-host", "local-port", "remote-host", "remote-port", "net"]);
        assert_eq!(message.get_str("remote-host"), Some("192.0.2.77"));
        let before = message.section("net").unwrap();
        assert_eq!(before.get_str("remote-host"), Some(&*old.remote.ip().to_string()));
        assert!(before.section("child-sas").is_none());
    })
    .await;
}
