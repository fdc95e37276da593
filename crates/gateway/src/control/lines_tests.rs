//! `ironswan-log` over a real socket. The ring is one for the whole process, so each test looks for
//! connections of its own names.

use std::time::Duration;

use ironswan_ike::event::Level;
use ironswan_wire::vici::{Packet, Section};

use super::tests::{Raw, local, serve};
use crate::driver::tests::{pair, up};
use crate::observe::log::ring::Kept;
use crate::observe::log::{LATEST, RAISED, line, line_of};

fn kept(conn: &str, text: &str) {
    LATEST.push(Kept { level: "info", conn: conn.into(), text: text.into(), ..Kept::default() });
}

async fn begin(c: &mut Raw, message: Section) {
    c.register("log-line").await;
    c.send(&Packet::CmdRequest { name: "ironswan-log".into(), message }.emit().unwrap()).await;
}

/// The next line, or the answer.
async fn next(c: &mut Raw) -> Result<Section, Section> {
    match c.packet().await {
        Some(Packet::Event { message, .. }) => Ok(message),
        Some(Packet::CmdResponse(answer)) => Err(answer),
        other => panic!("{other:?}"),
    }
}

fn raised_for(conn: &str) -> bool {
    RAISED.covers(Level::Debug, Some(conn), &|| None, "x")
}

#[tokio::test]
async fn the_latest_lines_are_shown_by_connection_and_by_peer() {
    local(async {
        let s = serve(pair());
        kept("lines-a", "one");
        kept("lines-b", "from 203.0.113.77[500]");
        kept("lines-a", "two");
        let mut c = Raw::reader(&s).await;
        begin(&mut c, Section::new().with("conn", "lines-a")).await;
        let texts = [next(&mut c).await.unwrap(), next(&mut c).await.unwrap()];
        assert_eq!(texts.each_ref().map(|t| t.get_str("text").unwrap()), ["one", "two"]);
        assert_eq!((texts[0].get_str("conn"), texts[0].get_str("level")), (Some("lines-a"), Some("info")));
        assert_eq!(next(&mut c).await.unwrap_err().get_str("success"), Some("yes"));
        let mut c = Raw::connect(&s).await;
        begin(&mut c, Section::new().with("peer", "203.0.113.77")).await;
        assert_eq!(next(&mut c).await.unwrap().get_str("conn"), Some("lines-b"));
        assert_eq!(next(&mut c).await.unwrap_err().get_str("success"), Some("yes"));
    })
    .await;
}

#[tokio::test]
async fn a_follower_gets_what_comes_until_it_goes() {
    local(async {
        let s = serve(pair());
        kept("lines-c", "before");
        let mut c = Raw::connect(&s).await;
        begin(&mut c, Section::new().with("conn", "lines-c").with("follow", "yes")).await;
        assert_eq!(next(&mut c).await.unwrap().get_str("text"), Some("before"));
        kept("lines-other", "no");
        kept("lines-c", "behind");
        assert_eq!(next(&mut c).await.unwrap().get_str("text"), Some("behind"));
    })
    .await;
}

#[tokio::test]
async fn a_level_is_raised_for_a_time_and_while_the_client_is_there() {
    local(async {
        let s = serve(pair());
        let raise =
            |conn: &str, time| Section::new().with("conn", conn).with("level", "debug").with("for", time);
        let mut c = Raw::connect(&s).await;
        line(Level::Debug, Some("lines-d"), "not kept", None);
        begin(&mut c, raise("lines-d", "1")).await;
        while !raised_for("lines-d") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        line_of(Level::Debug, Some("lines-d"), &|| "192.0.2.9".parse().ok(), "kept", None);
        line(Level::Debug, Some("lines-e"), "of another", None);
        let got = next(&mut c).await.unwrap();
        let parts = ["text", "level", "raised", "peer"].map(|key| got.get_str(key).unwrap().to_owned());
        assert_eq!(parts, ["kept", "debug", "yes", "192.0.2.9"]);
        assert_eq!(next(&mut c).await.unwrap_err().get_str("success"), Some("yes"));
        assert!(!raised_for("lines-d"));
        // A client that goes takes its level with it.
        let mut c = Raw::connect(&s).await;
        begin(&mut c, raise("lines-d", "600")).await;
        while !raised_for("lines-d") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(c);
        let gone = async {
            while raised_for("lines-d") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone).await.expect("lowered");
    })
    .await;
}

#[tokio::test]
async fn steps_of_a_key_exchange_are_lines_of_the_raised_level() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        begin(&mut c, Section::new().with("conn", "net").with("level", "debug").with("for", "60")).await;
        while !raised_for("net") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        up(&s.a).await.unwrap();
        let mut seen = Vec::new();
        // Another test of this process may have a connection of this name.
        while !seen.iter().any(|text: &String| text.starts_with("sending IKE_AUTH request")) {
            let got = next(&mut c).await.unwrap();
            assert_eq!(got.get_str("conn"), Some("net"));
            seen.push(got.get_str("text").unwrap().to_owned());
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_lines_and_is_told_how_many() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        begin(&mut c, Section::new().with("conn", "lines-f").with("follow", "yes")).await;
        kept("lines-f", "first");
        assert_eq!(next(&mut c).await.unwrap().get_str("text"), Some("first"));
        let padding = "x".repeat(2_000);
        let before = ironswan_io::clock::now();
        for n in 0..3_000 {
            kept("lines-f", &format!("line {n} {padding}"));
            if n % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Whoever logs has waited for nobody.
        assert!(before.elapsed() < Duration::from_secs(5));
        kept("lines-f", "last");
        let (mut lost, mut got) = (0, 0);
        loop {
            let line = next(&mut c).await.unwrap();
            lost += line.get_str("lost").map_or(0, |n| n.parse::<u64>().unwrap());
            match line.get_str("text") {
                Some("last") => break,
                Some(_) => got += 1,
                None => {}
            }
        }
        // Lines of other tests may be among the lost ones.
        assert!(lost > 0 && lost + got >= 3_000 && got < 3_000, "{lost} {got}");
    })
    .await;
}

#[tokio::test]
async fn a_request_that_cannot_be_meant_is_refused_with_what_to_write() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        for (keys, says) in [
            (&[("peer", "gw.example")][..], "not an IP address"),
            (&[("for", "60")], "name the level"),
            (&[("level", "debug"), ("conn", "net")], "for how long"),
            (&[("level", "debug"), ("for", "60")], "name conn or peer"),
            (&[("level", "loud"), ("for", "60"), ("conn", "net")], "error, warn, info or debug"),
            (&[("level", "debug"), ("for", "0"), ("conn", "net")], "1 to 86400"),
            (&[("level", "debug"), ("for", "99999999"), ("conn", "net")], "1 to 86400"),
            (&[("level", "debug"), ("for", "-1"), ("conn", "net")], "for"),
            (&[("follow", "perhaps")], "follow"),
        ] {
            let message: Section =
                keys.iter().map(|(k, v)| (*k, *v)).fold(Section::new(), |s, (k, v)| s.with(k, v));
            let answer = c.request("ironswan-log", message).await;
            assert_eq!(answer.get_str("success"), Some("no"));
            assert!(answer.get_str("errmsg").unwrap().contains(says), "{answer:?}");
        }
    })
    .await;
}
