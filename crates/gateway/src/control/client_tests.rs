//! Tests of answers that are too long for VICI, and of clients that go while their command waits.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ironswan_io::clock;
use ironswan_wire::vici::{Packet, Section};

use super::super::tests::{Raw, Served, local, serve, serve_with};
use super::super::{MAX_ERRMSG, failure};
use super::HANG_UP_CHECK;
use crate::driver::tests::{conf, gateway, pair};

/// A connection's section for `load-conn`, with these children.
fn conn(children: Section) -> Section {
    Section::new()
        .with("version", "2")
        .with("local_addrs", ["192.0.2.1"])
        .with("remote_addrs", ["192.0.2.9"])
        .with("local", Section::new().with("auth", "psk").with("id", "a"))
        .with("remote", Section::new().with("auth", "psk"))
        .with("children", children)
}

#[tokio::test]
async fn errors_that_do_not_fit_an_answer_are_cut_and_the_client_stays() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let wrong: Section = (0..255).map(|n| (format!("{n:0>250}"), "1")).collect();
        let kids: Section = (0..3).map(|n| (format!("kid{n}"), wrong.clone())).collect();
        let r = c.request("load-conn", Section::new().with("net2", conn(kids))).await;
        let why = r.get_str("errmsg").expect("a reason");
        assert_eq!(r.get_str("success"), Some("no"));
        assert!(why.starts_with("connection net2: ") && why.len() <= MAX_ERRMSG + 100, "{} bytes", why.len());
        assert!(why.contains(" bytes more"), "{}", &why[why.len() - 100..]);
        let version = c.request("version", Section::new()).await;
        assert_eq!(version.get_str("daemon"), Some("ironswan"));
    })
    .await;
}

#[test]
fn a_long_reason_is_cut_between_two_sentences_or_between_two_characters() {
    let errmsg = |text: &str| failure(text).get_str("errmsg").unwrap().to_owned();
    assert_eq!(errmsg("short"), "short");
    let sentences = format!("{}; {}", "a".repeat(MAX_ERRMSG - 100), "b".repeat(1_000));
    assert_eq!(errmsg(&sentences), format!("{}; and 1000 bytes more", "a".repeat(MAX_ERRMSG - 100)));
    // Characters of three bytes, of which one would be cut in two.
    let cut = errmsg(&"\u{20ac}".repeat(MAX_ERRMSG));
    let euros = MAX_ERRMSG / 3;
    assert_eq!(cut, format!("{}; and {} bytes more", "\u{20ac}".repeat(euros), (MAX_ERRMSG - euros) * 3));
}

#[tokio::test]
async fn an_answer_of_ours_that_does_not_fit_is_an_error_and_the_client_stays() {
    local(async {
        let s = serve(pair());
        // More than 512 KiB of names.
        s.a.act(|e, now| {
            let template = (*e.connections()[0]).clone();
            for n in 0..6_000 {
                let mut conn = template.clone();
                conn.name = format!("{n:0>100}");
                e.load_connection(now, conn);
            }
        });
        let mut c = Raw::connect(&s).await;
        let r = c.request("get-conns", Section::new()).await;
        assert_eq!(r.get_str("success"), Some("no"));
        let why = r.get_str("errmsg").expect("a reason");
        assert!(why.starts_with("the answer to get-conns does not fit"), "{why}");
        let version = c.request("version", Section::new()).await;
        assert_eq!(version.get_str("daemon"), Some("ironswan"));
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_does_not_fit_one_event_is_listed_in_several() {
    local(async {
        let s = serve(pair());
        s.a.act(|e, now| {
            let mut conn = (*e.connections()[0]).clone();
            conn.name = "wide".to_owned();
            let template = conn.children[0].clone();
            conn.children = (0..3_000)
                .map(|n| {
                    let mut child = template.clone();
                    child.name = format!("child-{n}");
                    child
                })
                .collect();
            e.load_connection(now, conn);
        });
        let mut c = Raw::connect(&s).await;
        c.register("list-conn").await;
        let message = Section::new().with("ike", "wide");
        c.send(&Packet::CmdRequest { name: "list-conns".into(), message }.emit().unwrap()).await;
        let (mut events, mut names) = (0, Vec::new());
        loop {
            match c.packet().await {
                Some(Packet::Event { message, .. }) => {
                    events += 1;
                    let wide = message.section("wide").expect("its name");
                    assert_eq!(wide.get_str("version"), Some("IKEv2"));
                    names.extend(wide.section("children").unwrap().sections().map(|(n, _)| n.to_owned()));
                }
                Some(Packet::CmdResponse(_)) => break,
                other => panic!("{other:?}"),
            }
        }
        let want: Vec<String> = (0..3_000).map(|n| format!("child-{n}")).collect();
        assert!(events > 1, "{events}");
        assert!(names == want, "{} names in {events} events", names.len());
    })
    .await;
}

/// Number of clients that the server serves, once it is `want` or five times the interval has
/// passed.
async fn clients(s: &Served, want: usize) -> (usize, Duration) {
    let begun = clock::now();
    let waited = |at: Instant| clock::now().saturating_duration_since(at);
    while s.control.clients.borrow().len() != want && waited(begun) < 5 * HANG_UP_CHECK {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (s.control.clients.borrow().len(), waited(begun))
}

#[tokio::test]
async fn a_client_that_goes_while_its_command_waits_gives_its_place_back() {
    local(async {
        // Nobody carries the datagrams of the first gateway.
        let (a, sent) = gateway("192.0.2.1", &conf(1, 2));
        let (b, _) = gateway("192.0.2.2", &conf(2, 1));
        let s = serve((a, b));
        let initiate = || {
            let message = Section::new().with("child", "net").with("timeout", "0").with("loglevel", "-1");
            Packet::CmdRequest { name: "initiate".into(), message }.emit().unwrap()
        };
        let mut gone = Raw::connect(&s).await;
        gone.send(&initiate()).await;
        // This one only says that it will send nothing more, and waits on.
        let mut waiting = Raw::connect(&s).await;
        waiting.send(&initiate()).await;
        waiting.shut_down().await;
        assert_eq!(clients(&s, 2).await.0, 2);
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(gone);
        let (left, after) = clients(&s, 1).await;
        println!("{left} client left after {after:?}");
        assert_eq!(left, 1);
        tokio::time::sleep(2 * HANG_UP_CHECK).await;
        assert_eq!(s.control.clients.borrow().len(), 1, "who still reads is served");
        drop((waiting, sent));
        assert_eq!(clients(&s, 0).await.0, 0);
    })
    .await;
}

#[tokio::test]
async fn a_reload_is_carried_out_also_when_its_client_does_not_wait() {
    local(async {
        let done = Rc::new(Cell::new(false));
        let told = done.clone();
        let reload =
            move || -> Pin<Box<dyn Future<Output = Result<(), crate::start::failure::NotReloaded>>>> {
                let told = told.clone();
                Box::pin(async move {
                    tokio::time::sleep(3 * HANG_UP_CHECK).await;
                    told.set(true);
                    Ok(())
                })
            };
        let s = serve_with(pair(), Box::new(reload));
        let mut c = Raw::connect(&s).await;
        let message = Section::new();
        c.send(&Packet::CmdRequest { name: "reload-settings".into(), message }.emit().unwrap()).await;
        assert_eq!(clients(&s, 1).await.0, 1);
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(c);
        let (left, after) = clients(&s, 0).await;
        println!("{left} clients left after {after:?}, reloaded: {}", done.get());
        assert!(left == 0 && !done.get());
        for _ in 0..5 {
            tokio::time::sleep(HANG_UP_CHECK).await;
        }
        assert!(done.get());
    })
    .await;
}
