//! Tests of `ironswan-status` and `ironswan-explain`, on both ends of a tunnel that is refused and
//! then comes up.

use ironswan_wire::vici::Packet;

use super::*;
use crate::control::tests::{Raw, in_front_of, local};
use crate::driver::tests::{conf, pair_of, up};

async fn tunnels(c: &mut Raw) -> Vec<Section> {
    c.register("list-tunnel").await;
    let name = "ironswan-status".to_owned();
    c.send(&Packet::CmdRequest { name, message: Section::new() }.emit().unwrap()).await;
    let mut all = Vec::new();
    loop {
        match c.packet().await {
            Some(Packet::Event { message, .. }) => {
                all.push(message.section("net").expect("the connection").clone())
            }
            Some(Packet::CmdResponse(_)) => return all,
            other => panic!("{other:?}"),
        }
    }
}

async fn explained(c: &mut Raw, key: &str, value: &str) -> Section {
    c.request("ironswan-explain", Section::new().with(key, value)).await
}

fn notes(answer: &Section) -> Vec<Section> {
    let conn = answer.section("connections").and_then(|all| all.section("net")).expect("the connection");
    conn.section("notes").unwrap().sections().map(|(_, note)| note.clone()).collect()
}

#[tokio::test]
async fn both_ends_say_why_and_forget_it_when_the_tunnel_is_up() {
    local(async {
        let wrong = conf(2, 1).replace("10.1.0.0/24", "10.9.0.0/24");
        let (a, b) = pair_of(&conf(1, 2), &wrong);
        let (ours, theirs) = (in_front_of(&a, &b), in_front_of(&b, &a));
        let mut c = Raw::connect(&ours).await;
        let state = |t: &[Section]| {
            let text = |key: &str| t[0].get_str(key).unwrap_or("-").to_owned();
            (text("state"), text("wanted"), text("action"))
        };
        let is = |state: &str, wanted: &str| (state.to_owned(), wanted.to_owned(), "none".to_owned());
        assert_eq!(state(&tunnels(&mut c).await), is("waiting", "no"));
        assert_eq!(notes(&explained(&mut c, "ike", "net").await), []);
        up(&a).await.unwrap_err();
        let down = tunnels(&mut c).await;
        assert_eq!(state(&down), is("down", "yes"));
        let trouble = down[0].section("trouble").unwrap();
        assert_eq!(trouble.get_str("name"), Some("peer-error"));
        let told = notes(&explained(&mut c, "ike", "net").await);
        assert_eq!(told.last().unwrap().get_str("why"), trouble.get_str("why"));
        // The peer knows both sides.
        let mut d = Raw::connect(&theirs).await;
        let answer = explained(&mut d, "ike", "net").await;
        let told = notes(&answer);
        let note = told.iter().find(|note| note.get_str("name") == Some("selectors-unacceptable")).unwrap();
        let sides: Vec<&Section> = note.section("sides").unwrap().sections().map(|(_, side)| side).collect();
        let differ: Vec<&str> = sides
            .iter()
            .filter(|side| side.get_str("differs") == Some("yes"))
            .map(|side| side.get_str("what").unwrap())
            .collect();
        assert_eq!(differ, ["net: remote_ts"]);
        assert_eq!(note.get_str("count"), Some("1"));
        // Whoever mends it finds nothing left.
        b.load_connection(crate::driver::tests::read(&conf(2, 1)).connections.remove(0));
        up(&a).await.unwrap();
        let up = tunnels(&mut c).await;
        assert_eq!(state(&up).0, "up");
        let before = up[0].section("before").unwrap();
        assert_eq!(before.get_str("name"), Some("peer-error"));
        assert!(up[0].section("trouble").is_none());
        assert_eq!(notes(&explained(&mut c, "ike", "net").await), []);
    })
    .await;
}

#[tokio::test]
async fn what_is_asked_for_has_to_make_sense() {
    local(async {
        let (a, b) = pair_of(&conf(1, 2), &conf(2, 1));
        let s = in_front_of(&a, &b);
        let mut c = Raw::connect(&s).await;
        for (key, value, why) in [
            ("ike", "nobody", "no connection 'nobody' is loaded"),
            ("peer", "not an address", "peer: not an address"),
            ("x", "y", "ike or peer is missing"),
        ] {
            let answer = explained(&mut c, key, value).await;
            assert_eq!((answer.get_str("success"), answer.get_str("errmsg")), (Some("no"), Some(why)));
        }
        let answer = explained(&mut c, "peer", "192.0.2.2").await;
        assert!(answer.section("connections").unwrap().section("net").is_some(), "{answer:?}");
        let answer = explained(&mut c, "peer", "203.0.113.9").await;
        assert!(answer.section("connections").unwrap().is_empty());
    })
    .await;
}
