use std::time::Duration;

use ironswan_wire::iana::EncrId;
use ironswan_wire::vici::{Packet, Section};

use super::super::tests::{Raw, Served, in_front_of, local};
use super::*;
use crate::dataplane::captured::IkeCopy;
use crate::dataplane::recording::Record;
use crate::driver::Driver;
use crate::driver::tests::{conf, recorded_pair, up};

/// Two gateways that send no more than they must.
fn quiet_pair() -> [(Driver, Record); 2] {
    let quiet = |me, peer| conf(me, peer).replace("net { local_addrs", "net { path_probe = no\n local_addrs");
    recorded_pair(&quiet(1, 2), &quiet(2, 1))
}

async fn begin(s: &Served, request: Section) -> Raw {
    let mut c = Raw::connect(s).await;
    c.register("capture").await;
    c.send(&Packet::CmdRequest { name: "ironswan-capture".into(), message: request }.emit().unwrap()).await;
    c
}

/// What a capture has told until its answer: the file, lines of `esp_sa`, packets, and the answer.
async fn rest(c: &mut Raw) -> (Vec<u8>, Vec<String>, u64, Section) {
    let (mut file, mut lines, mut packets) = (Vec::new(), Vec::new(), 0);
    loop {
        match c.packet().await {
            Some(Packet::Event { name, message }) => {
                assert_eq!(name, "capture");
                message.get_list("data").unwrap().iter().for_each(|part| file.extend_from_slice(part));
                packets += message.get_str("packets").unwrap().parse::<u64>().unwrap();
                let keys = message.section("keys").and_then(|keys| keys.get_list("esp_sa"));
                lines.extend(keys.into_iter().flatten().map(|l| String::from_utf8(l.clone()).unwrap()));
            }
            Some(Packet::CmdResponse(answer)) => return (file, lines, packets, answer),
            other => panic!("{other:?}"),
        }
    }
}

/// Type and content of each block.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |b: &[u8], at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !file.is_empty() {
        let len = word(file, 4) as usize;
        assert_eq!(word(file, len - 4) as usize, len);
        all.push((word(file, 0), file[8..len - 4].to_vec()));
        file = &file[len..];
    }
    all
}

fn comments(file: &[u8]) -> Vec<String> {
    let packets = blocks(file).into_iter().filter(|(kind, _)| *kind == 6);
    let text = packets.map(|(_, body)| String::from_utf8_lossy(&body).into_owned());
    text.map(|t| t[t.find("connection").expect("a comment")..].trim_end_matches('\0').to_owned()).collect()
}

async fn stop(s: &Served, id: &str) -> Section {
    Raw::connect(s).await.request("ironswan-capture", Section::new().with("stop", id)).await
}

#[tokio::test]
async fn ike_messages_and_keys_of_the_connection_come_until_somebody_stops_it() {
    local(async {
        let [(a, told), (b, _)] = quiet_pair();
        let s = in_front_of(&a, &b);
        let asked = Section::new().with("ike", "net").with("keys", true).with("id", "one");
        let mut c = begin(&s, asked).await;
        // The first blocks come at once.
        let Some(Packet::Event { message, .. }) = c.packet().await else { panic!("no event") };
        let mut file = message.get_list("data").unwrap().concat();
        assert_eq!(told.captured().unwrap().reqids, [], "nothing is up");
        up(&a).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let wanted = told.captured().unwrap();
        assert_eq!(wanted.reqids, [told.sas()[0].reqid]);
        assert!(!wanted.everything && !wanted.only_dropped);
        assert_eq!(stop(&s, "two").await.get_str("success"), Some("no"));
        assert_eq!(stop(&s, "one").await.get_str("success"), Some("yes"));
        let (more, lines, packets, answer) = rest(&mut c).await;
        file.extend_from_slice(&more);
        assert_eq!(answer.get_str("success"), Some("yes"));
        // IKE_SA_INIT and IKE_AUTH, each way.
        assert_eq!((packets, answer.get_str("packets"), answer.get_str("missed")), (4, Some("4"), Some("0")));
        let kinds: Vec<u32> = blocks(&file).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 6, 6, 5, 5]);
        let comments = comments(&file);
        assert!(comments.iter().all(|c| c.starts_with("connection net, IKE_SA 1, ")), "{comments:?}");
        let ways: Vec<&str> = comments.iter().map(|c| c.rsplit(", ").nth(1).unwrap()).collect();
        assert_eq!(ways, ["out", "in", "out", "in"]);
        assert_eq!(lines.len(), 2);
        assert_eq!(told.sas()[0].suite.encr, EncrId::AES_GCM_16);
        assert!(lines.iter().all(|l| l.contains("AES-GCM with 16 octet ICV [RFC4106]")));
        // It leaves nothing on.
        assert!(told.captured().is_none());
        assert!(!a.view(|e, _| e.protocol().options().keylog));
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_leaves_nothing_on_and_the_others_go_on() {
    local(async {
        let [(a, told), (b, _)] = quiet_pair();
        let s = in_front_of(&a, &b);
        up(&a).await.unwrap();
        let drops = begin(&s, Section::new().with("drops", true)).await;
        let mut one =
            begin(&s, Section::new().with("ike", "net").with("snaplen", "100").with("id", "x")).await;
        one.packet().await;
        let wanted = told.captured().unwrap();
        assert!(wanted.everything && !wanted.only_dropped);
        drop(drops);
        let only_one = || told.captured().is_some_and(|w| !w.everything && w.snaplen == 100);
        for _ in 0..300 {
            if only_one() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(only_one(), "{:?}", told.captured());
        drop(one);
        for _ in 0..300 {
            if told.captured().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it is still on");
    })
    .await;
}

#[tokio::test]
async fn it_ends_by_packets_and_by_time_and_refuses_what_makes_no_sense() {
    local(async {
        let [(a, _), (b, _)] = quiet_pair();
        let s = in_front_of(&a, &b);
        let mut c = begin(&s, Section::new().with("packets", "3")).await;
        c.packet().await;
        up(&a).await.unwrap();
        let (_, _, packets, answer) = rest(&mut c).await;
        assert_eq!((packets, answer.get_str("packets")), (3, Some("3")));
        let mut c = begin(&s, Section::new().with("time", "1").with("ike", "net")).await;
        let (file, _, packets, _) = rest(&mut c).await;
        assert_eq!((packets, blocks(&file).len()), (0, 5));
        let refused = |answer: &Section, why: &str| {
            assert_eq!(answer.get_str("success"), Some("no"));
            assert!(answer.get_str("errmsg").unwrap().contains(why), "{answer:?}");
        };
        let unknown = c.request("ironswan-capture", Section::new().with("ike", "a\u{1b}[2J")).await;
        refused(&unknown, "there is no connection 'a\\u{1b}[2J'");
        refused(&c.request("ironswan-capture", Section::new().with("packets", "many")).await, "packets");
        let mut other = Raw::connect(&s).await;
        refused(&other.request("ironswan-capture", Section::new()).await, "register for the event");
    })
    .await;
}

/// A packet of its own is dropped while the client reads nothing: memory is bounded, and what is
/// missing is counted.
#[test]
fn a_client_that_stalls_loses_packets() {
    let subscriber = Subscriber::new(Asked { snaplen: MAX_SNAPLEN, ..Asked::default() });
    let copy = IkeCopy {
        time: 1,
        direction: ironswan_wire::sadb::Direction::In,
        local: "192.0.2.1:500".parse().unwrap(),
        remote: "192.0.2.2:500".parse().unwrap(),
        payload: vec![0; 10_000],
        ike: None,
    };
    for _ in 0..1_000 {
        subscriber.ike(&copy, None);
    }
    let [recorded, missed] = subscriber.counts();
    assert_eq!((recorded[0], missed[0], recorded[1] + missed[1]), (0, 0, 1_000));
    assert!(recorded[1] < 220 && missed[1] > 700, "{recorded:?}");
    let mut packets = 0;
    while let Some(blocks) = subscriber.next() {
        assert!(blocks.bytes.len() < 64 * 1024);
        packets += blocks.packets;
    }
    assert_eq!(packets, recorded[1]);
    subscriber.ike(&copy, None);
    assert_eq!(subscriber.counts()[0][1], recorded[1] + 1, "there is room again");
}
