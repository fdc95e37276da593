//! Tests of the list of tunnels that are down, as clients receive it.

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::vici::Packet;

use super::*;
use crate::control::tests::{Raw, local, serve};
use crate::driver::tests::{conf, pair_of, up};

/// The events of `ironswan-troubles`.
async fn listed(c: &mut Raw) -> Vec<Section> {
    let name = "ironswan-troubles".to_owned();
    c.send(&Packet::CmdRequest { name, message: Section::new() }.emit().unwrap()).await;
    let mut events = Vec::new();
    loop {
        match c.packet().await {
            Some(Packet::Event { message, .. }) => events.push(message),
            Some(Packet::CmdResponse(_)) => return events,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_tunnel_that_is_down_has_its_last_failure_with_name_data_and_remedy() {
    local(async {
        // The peer takes another network.
        let s = serve(pair_of(&conf(1, 2), &conf(2, 1).replace("10.1.0.0/24", "10.9.0.0/24")));
        let mut c = Raw::connect(&s).await;
        c.register("list-trouble").await;
        assert_eq!(listed(&mut c).await, [], "nobody has asked for the tunnel");
        up(&s.a).await.unwrap_err();
        let events = listed(&mut c).await;
        let trouble = events.first().and_then(|event| event.section("net")).expect("the connection");
        let text = |key: &str| trouble.get_str(key).unwrap_or_default();
        assert_eq!((events.len(), text("child"), text("since")), (1, "net", "0"));
        assert_eq!(text("why"), "received TS_UNACCEPTABLE notify error");
        assert_eq!((text("name"), text("fault")), ("peer-error", "no agreement"));
        assert_eq!(text("remedy"), "compare local_ts here with remote_ts there, and the other way round");
        let details = trouble.get("details");
        let proposed =
            "proposed were ESP:AES_GCM_16_128/NO_EXT_SEQ and traffic selectors 10.1.0.0/24 === 10.2.0.0/24";
        assert_eq!(details, Some(&Value::from([proposed])));
        // An operator has asked, and nobody asks again.
        assert_eq!(text("next"), "nothing");
    })
    .await;
}

#[tokio::test]
async fn an_attempt_that_waits_for_its_turn_says_when_the_next_try_is() {
    local(async {
        // The peer has another secret, and the tunnel is to be up.
        let ours = conf(1, 2)
            .replace(" esp_proposals", " start_action = start\n esp_proposals")
            .replace(" proposals", " keyingtries = 0\n proposals");
        let s = serve(pair_of(&ours, &conf(2, 1).replace("0123456789abcdef", "fedcba9876543210")));
        let mut c = Raw::connect(&s).await;
        c.register("list-trouble").await;
        let mut next = Vec::new();
        for _ in 0..100 {
            next = listed(&mut c).await;
            let trouble = next.first().and_then(|event| event.section("net"));
            if trouble.is_some_and(|t| t.get_str("next") == Some("retry")) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let trouble = next.first().and_then(|event| event.section("net")).expect("the connection");
        let text = |key: &str| trouble.get_str(key).unwrap_or_default();
        assert_eq!((text("next"), text("name")), ("retry", "rejected-by-peer"));
        assert!(text("next-try").parse::<u64>().is_ok_and(|seconds| seconds <= 4), "{trouble:?}");
        assert!(text("remedy").contains("local.id, remote.id and shared key 'ike-1'"), "{trouble:?}");
    })
    .await;
}

#[test]
fn the_advice_of_the_manual_stands_in_for_a_remedy_that_is_missing() {
    let put = |why: &Diagnosis| {
        let mut s = Section::new();
        put_remedy(&mut s, why.entry(), &why.remedy());
        s
    };
    let deleted = put(&KeyExchange::PeerDeleted { child: false }.into());
    assert!(deleted.get_str("advice").is_some_and(|advice| advice.contains("close_action")), "{deleted:?}");
    assert_eq!(deleted.get_str("remedy"), None);
    let ended = put(&KeyExchange::AhThroughNat.into());
    assert!(ended.get_str("remedy").is_some_and(|remedy| !remedy.is_empty()), "{ended:?}");
    assert_eq!(ended.get_str("advice"), None);
}
