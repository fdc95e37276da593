//! Children of every protocol, mode and option, from their keys to what Debian's `swanctl
//! --list-sas` prints.

use super::tests::{Raw, Served, local, serve, swanctl};
use super::*;
use crate::driver::tests::{conf, pair_of, up};

/// Two gateways whose child `net` has these keys besides its selectors.
fn with_keys(keys: &str) -> Served {
    let text = |me, peer| conf(me, peer).replace("esp_proposals = aes128gcm16", keys);
    serve(pair_of(&text(1, 2), &text(2, 1)))
}

/// The line of the child in `swanctl --list-sas`, from its state to its algorithms.
async fn listed(s: &Served) -> String {
    let (ok, out) = swanctl(s, &["--list-sas"]).await;
    assert!(ok, "{out}");
    let line = out.lines().find(|l| l.contains("INSTALLED")).unwrap_or_else(|| panic!("{out}"));
    line.split_once("INSTALLED, ").unwrap().1.to_owned()
}

const HOSTS: &str = "local_ts = dynamic\n remote_ts = dynamic\n";

#[tokio::test]
async fn swanctl_prints_mode_protocol_and_algorithms_of_every_kind() {
    local(async {
        for (keys, want) in [
            ("esp_proposals = aes192-sha384-esn", "TUNNEL, ESP:AES_CBC-192/HMAC_SHA2_384_192/ESN"),
            ("esp_proposals = null-sha1", "TUNNEL, ESP:NULL/HMAC_SHA1_96"),
            ("esp_proposals = 3des-md5", "TUNNEL, ESP:3DES_CBC/HMAC_MD5_96"),
            ("esp_proposals = aes256gmac", "TUNNEL, ESP:NULL_AES_GMAC-256"),
            ("esp_proposals = aes128ccm12", "TUNNEL, ESP:AES_CCM_12-128"),
            ("ah_proposals = sha256", "TUNNEL, AH:HMAC_SHA2_256_128"),
            ("ah_proposals = aes192gmac-esn", "TUNNEL, AH:AES_192_GMAC/ESN"),
            ("mode = transport", "TRANSPORT, ESP:AES_GCM_16-128"),
            ("mode = transport\n ah_proposals = aesxcbc", "TRANSPORT, AH:AES_XCBC_96"),
            ("ipcomp = yes", "TUNNEL, ESP:AES_GCM_16-128"),
            ("ah_proposals = sha512\n esp_proposals = null-sha256", "TUNNEL, AH:HMAC_SHA2_512_256"),
        ] {
            // In transport mode the selectors must be the hosts themselves; the last of two equal
            // keys holds.
            let hosts = if keys.contains("transport") { HOSTS } else { "" };
            let default = if keys.contains("proposals") { "" } else { "\n esp_proposals = aes128gcm16" };
            let s = with_keys(&format!("{hosts}{keys}{default}"));
            up(&s.a).await.unwrap();
            assert_eq!(listed(&s).await, want, "{keys}");
        }
    })
    .await;
}

#[tokio::test]
async fn cpis_are_four_digits_and_both_ends_agree_on_them() {
    local(async {
        let s = with_keys("ipcomp = yes\n esp_proposals = aes128gcm16");
        up(&s.a).await.unwrap();
        let mut c = Raw::connect(&s).await;
        c.register("list-sa").await;
        let request =
            ironswan_wire::vici::Packet::CmdRequest { name: "list-sas".into(), message: Section::new() };
        c.send(&request.emit().unwrap()).await;
        let Some(ironswan_wire::vici::Packet::Event { message, .. }) = c.packet().await else {
            panic!("no list-sa")
        };
        let (_, ours) =
            message.section("net").unwrap().section("child-sas").unwrap().sections().next().unwrap();
        let cpi = |key: &str| {
            let text = ours.get_str(key).unwrap();
            assert_eq!(text.len(), 4, "{key} = {text}");
            u16::from_str_radix(text, 16).unwrap()
        };
        let (sas, _) = s.b.ike_sas();
        let theirs = &sas[0].children[0];
        assert_eq!((theirs.cpi_in, theirs.cpi_out), (Some(cpi("cpi-out")), Some(cpi("cpi-in"))));
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_cannot_be_leaves_the_one_that_is_loaded() {
    local(async {
        let s = with_keys("ah_proposals = sha256");
        up(&s.a).await.unwrap();
        let before = s.a.view(|e, _| e.connection("net"));
        let mut c = Raw::connect(&s).await;
        let side = || Section::new().with("auth", "psk");
        for (key, value, say) in [
            ("ah_proposals", "aes128", "encrypts, which AH does not"),
            ("mode", "beet", "BEET mode is not built"),
            ("tfc_padding", "64", "is for ESP, and AH hides nothing"),
            ("dscp", "64", "is not a DSCP"),
            ("copy_dscp", "perhaps", "is none of out, in, yes, no"),
        ] {
            let kid = Section::new().with("ah_proposals", ["sha256"]).with("mode", "tunnel");
            let kid: Section =
                kid.iter().filter(|(n, _)| *n != key).map(|(n, v)| (n.to_owned(), v.clone())).collect();
            let kid = kid.with(key, value);
            let net = Section::new()
                .with("local", side())
                .with("remote", side())
                .with("children", Section::new().with("net", kid));
            let answer = c.request("load-conn", Section::new().with("net", net)).await;
            assert_eq!(answer.get_str("success"), Some("no"), "{key}");
            assert!(answer.get_str("errmsg").unwrap().contains(say), "{answer:?}");
            assert_eq!(s.a.view(|e, _| e.connection("net")), before, "{key}");
        }
        assert_eq!(listed(&s).await, "TUNNEL, AH:HMAC_SHA2_256_128");
    })
    .await;
}

#[tokio::test]
async fn a_child_is_listed_with_what_it_may_become() {
    local(async {
        let s = with_keys("ah_proposals = sha256\n esp_proposals = null-sha256\n ipcomp = yes");
        let mut c = Raw::connect(&s).await;
        c.register("list-conn").await;
        let request =
            ironswan_wire::vici::Packet::CmdRequest { name: "list-conns".into(), message: Section::new() };
        c.send(&request.emit().unwrap()).await;
        let Some(ironswan_wire::vici::Packet::Event { message, .. }) = c.packet().await else {
            panic!("no list-conn")
        };
        let kid = message.section("net").unwrap().section("children").unwrap().section("net").unwrap();
        assert_eq!((kid.get_str("mode"), kid.get_str("ipcomp")), (Some("TUNNEL"), Some("yes")));
        assert_eq!(kid.get_list("protocols").unwrap(), [b"AH".to_vec(), b"ESP".to_vec()]);
    })
    .await;
}
