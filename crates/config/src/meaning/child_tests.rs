//! Tests of a child's keys: what each means, its default, and what is said of values that are wrong
//! or do not go together.

use std::time::Duration;

use ironswan_keying::{ChildAction, ChildConfig, ChildKind, MAX_REQID};
use ironswan_wire::sadb::{Dscp, Lifetime, Mode, SaOptions, Tfc};

use super::tests::{PSK, conn};

/// Reads a child, and returns it with all findings.
fn child(conn_keys: &str, keys: &str) -> (Option<ChildConfig>, Vec<String>) {
    let (c, d) = conn(&format!("{PSK}{conn_keys}\nchildren {{ n {{\n{keys}\n}} }}"));
    (c.map(|mut c| c.children.remove(0)), d.iter().map(ToString::to_string).collect())
}

fn good(keys: &str) -> ChildConfig {
    let (c, said) = child("", keys);
    assert_eq!(said, [""; 0], "{keys}");
    c.unwrap()
}

/// The one error, without its place.
fn bad(keys: &str) -> String {
    let (c, said) = child("", keys);
    assert!(c.is_none() && said.len() == 1, "{keys}: {said:?}");
    said[0].split_once(": connections.c.").unwrap().1.to_owned()
}

/// The one warning, without its place.
fn doubtful(keys: &str) -> (ChildConfig, String) {
    let (c, said) = child("", keys);
    assert_eq!(said.len(), 1, "{keys}: {said:?}");
    (c.unwrap(), said[0].split_once(": warning: connections.c.").unwrap().1.to_owned())
}

#[test]
fn how_packets_are_carried_is_swanctl_s_default() {
    let n = good("");
    assert_eq!((n.mode, n.kind, n.ipcomp, n.policies), (Mode::Tunnel, ChildKind::Protect, false, true));
    assert_eq!(n.options, SaOptions::default());
    assert!(n.options.copy_df && n.options.copy_ecn && !n.options.dscp_in);
    assert_eq!((n.options.dscp_out, n.options.tfc, n.options.dummies), (Dscp::Copy, Tfc::None, None));
}

/// A generated list of which every part was empty must not protect nothing.
#[test]
fn lists_of_commas_only_are_errors() {
    for text in [",", ", ,", ",,", "''"] {
        for key in ["local_ts", "remote_ts", "esp_proposals", "ah_proposals"] {
            let said = bad(&format!("{key} = \"{text}\""));
            assert!(said.starts_with(&format!("children.n.{key}: names nothing")), "{text}: {said}");
        }
        for key in ["local_addrs", "remote_addrs", "proposals"] {
            let (c, said) = child(&format!("{key} = \"{text}\""), "");
            assert!(
                c.is_none() && said.len() == 1 && said[0].contains(&format!("{key}: names nothing")),
                "{text}: {said:?}"
            );
        }
    }
}

#[test]
fn every_mode() {
    for (word, kind, mode) in [
        ("tunnel", ChildKind::Protect, Mode::Tunnel),
        ("Transport", ChildKind::Protect, Mode::Transport),
        ("pass", ChildKind::Pass, Mode::Tunnel),
        ("drop", ChildKind::Drop, Mode::Tunnel),
    ] {
        let n = good(&format!("mode = {word}"));
        assert_eq!((n.kind, n.mode), (kind, mode), "{word}");
    }
    for (word, said) in [
        ("beet", "children.n.mode: BEET mode is not built; set mode = transport, or tunnel"),
        (
            "transport_proxy",
            "children.n.mode: transport_proxy is for Mobile IPv6, and not built; set mode = transport",
        ),
        (
            "iptfs",
            "children.n.mode: IP-TFS (RFC 9347) is not built; set mode = tunnel, and tfc_padding = mtu to hide lengths",
        ),
        ("tunel", "children.n.mode: `tunel` is no mode; set mode = tunnel, transport, pass or drop"),
    ] {
        assert_eq!(bad(&format!("mode = {word}")), said);
    }
}

#[test]
fn esp_and_ah_are_alternatives_in_the_order_of_the_keys() {
    let shown = |keys: &str| {
        good(keys).proposals.iter().map(|p| format!("{} {p}", p.number)).collect::<Vec<_>>().join(" ")
    };
    assert!(shown("").starts_with("1 ESP:AES_GCM_16_128"));
    assert_eq!(shown("ah_proposals = sha256"), "1 AH:HMAC_SHA2_256_128/NO_EXT_SEQ");
    assert_eq!(
        shown("ah_proposals = default\nesp_proposals ="),
        "1 AH:HMAC_SHA2_256_128/HMAC_SHA2_384_192/HMAC_SHA2_512_256/EXT_SEQ/NO_EXT_SEQ"
    );
    assert_eq!(
        shown("ah_proposals = sha256, aes128gmac-esn\nesp_proposals = null-sha256"),
        "1 AH:HMAC_SHA2_256_128/NO_EXT_SEQ 2 AH:AES_128_GMAC/EXT_SEQ 3 ESP:NULL/HMAC_SHA2_256_128/NO_EXT_SEQ"
    );
    assert_eq!(
        shown("esp_proposals = null-sha256\nah_proposals = sha256"),
        "1 ESP:NULL/HMAC_SHA2_256_128/NO_EXT_SEQ 2 AH:HMAC_SHA2_256_128/NO_EXT_SEQ"
    );
    assert_eq!(
        bad("ah_proposals = aes128-sha256"),
        "children.n.ah_proposals: `aes128-sha256`: aes128 encrypts, which AH does not; name an integrity algorithm such as \
         sha256, or write esp_proposals"
    );
}

#[test]
fn encryption_beside_none_is_warned_about() {
    let said = "encryption is offered beside none (AH, null, GMAC): the peer may choose what everybody can read; keep one kind";
    for (keys, key) in [
        ("esp_proposals = aes128gcm16\nah_proposals = sha256", "ah_proposals"),
        ("esp_proposals = aes128-sha256, null-sha256", "esp_proposals"),
        ("esp_proposals = aes128-null-sha256", "esp_proposals"),
        ("esp_proposals = aes128gcm16-aes128gmac", "esp_proposals"),
    ] {
        assert_eq!(doubtful(keys).1, format!("children.n.{key}: {said}"), "{keys}");
    }
}

#[test]
fn algorithms_that_the_rfcs_advise_against_are_warned_about_and_taken() {
    let (n, said) = doubtful("esp_proposals = aes128-md5");
    assert_eq!(n.proposals.len(), 1);
    assert_eq!(
        said,
        "children.n.esp_proposals: md5 is broken or breakable: MUST NOT (RFC 8221 section 6) for ESP; write sha256 instead"
    );
    let weak = "t.conf:5: warning: connections.c.children.n.esp_proposals: 3des is weak: SHOULD NOT (RFC 8221 section 5) for ESP; \
                write aes128gcm16 instead";
    for enough in ["", "rekey_bytes = 1g", "rekey_bytes = 500m\nlife_bytes = 2g", "life_bytes = 1g"] {
        let (c, said) = child("", &format!("esp_proposals = 3des-sha256\n{enough}"));
        assert!(c.is_some());
        assert_eq!(said, [weak], "{enough}");
    }
    for (much, key) in [("rekey_bytes = 2g", "rekey_bytes"), ("life_bytes = 2g", "life_bytes")] {
        let (_, said) = child("", &format!("esp_proposals = 3des-sha256\n{much}"));
        assert_eq!(
            said,
            [
                weak.to_owned(),
                format!(
                    "t.conf:6: warning: connections.c.children.n.{key}: is more than 3des should encrypt with one key, since equal \
                 blocks of 8 bytes show text (Sweet32); set rekey_bytes = 1g, which is also what leaving it out means"
                ),
            ]
        );
    }
    let (c, said) = child("proposals = aes128-md5-prfsha256-x25519", "");
    assert!(c.is_some());
    assert_eq!(
        said,
        [
            "t.conf:3: warning: connections.c.proposals: md5 is broken or breakable: MUST NOT (RFC 8247 section 2.3) for IKE; \
         write sha256 instead"
        ]
    );
}

#[test]
fn ah_and_udp_do_not_go_together() {
    let (c, said) = child("encap = yes", "ah_proposals = sha256");
    assert!(c.is_none());
    assert_eq!(
        said,
        [
            "t.conf:3: connections.c.encap: AH cannot be carried in UDP, and children.n has ah_proposals only; write esp_proposals \
         (null-sha256 authenticates without encrypting), or set encap = no"
        ]
    );
    let (c, said) = child("encap = yes", "ah_proposals = sha256\nesp_proposals = null-sha256");
    assert!(c.is_some());
    assert_eq!(
        said,
        [
            "t.conf:3: warning: connections.c.encap: AH cannot be carried in UDP: the ah_proposals of children.n are never used; \
         remove them"
        ]
    );
    assert_eq!(child("encap = no", "ah_proposals = sha256").1, [""; 0]);
}

#[test]
fn transport_mode_is_between_two_addresses() {
    good(
        "mode = transport\nlocal_ts = 192.0.2.1[tcp], 192.0.2.1[udp]\nremote_ts = dynamic[udp/53], dynamic[tcp]",
    );
    for (ts, more) in [
        ("10.2.0.0/24", "10.2.0.0/24"),
        ("192.0.2.2, 192.0.2.3", "192.0.2.3/32"),
        ("192.0.2.2-192.0.2.3[tcp]", "192.0.2.2/31"),
    ] {
        let (n, said) = doubtful(&format!("mode = transport\nremote_ts = {ts}"));
        assert_eq!(n.mode, Mode::Transport);
        assert_eq!(
            said,
            format!(
                "children.n.remote_ts: with {more} this is more than one address, and transport mode is between two: tunnel \
                 mode is asked for; write dynamic, or set mode = tunnel"
            )
        );
    }
}

#[test]
fn dscp_df_and_ecn() {
    for (keys, out, inward) in [
        ("copy_dscp = out", Dscp::Copy, false),
        ("copy_dscp = in", Dscp::Set(0), true),
        ("copy_dscp = yes", Dscp::Copy, true),
        ("copy_dscp = no", Dscp::Set(0), false),
        ("dscp = 46", Dscp::Set(46), false),
        ("dscp = EF", Dscp::Set(46), false),
        ("dscp = 0x2e\ncopy_dscp = no", Dscp::Set(46), false),
        ("dscp = cs6\ncopy_dscp = in", Dscp::Set(48), true),
        ("dscp = af41", Dscp::Set(34), false),
        ("dscp = le", Dscp::Set(1), false),
        ("dscp = 0", Dscp::Set(0), false),
    ] {
        let n = good(keys);
        assert_eq!((n.options.dscp_out, n.options.dscp_in), (out, inward), "{keys}");
    }
    let n = good("copy_df = no\ncopy_ecn = off");
    assert!(!n.options.copy_df && !n.options.copy_ecn);
    for (keys, said) in [
        ("copy_dscp = maybe", "children.n.copy_dscp: `maybe` is none of out, in, yes, no"),
        ("dscp = 64", "children.n.dscp: `64` is not a DSCP; write 0 to 63, or a name such as ef, cs6, af41"),
        (
            "dscp = af44",
            "children.n.dscp: `af44` is not a DSCP; write 0 to 63, or a name such as ef, cs6, af41",
        ),
        (
            "dscp = ef\ncopy_dscp = yes",
            "children.n.dscp: and copy_dscp both say what the outer header has; set copy_dscp = no (or in), or remove dscp",
        ),
        ("copy_df = x", "children.n.copy_df: `x` is neither yes nor no"),
        ("copy_ecn = 2", "children.n.copy_ecn: `2` is neither yes nor no"),
        ("ipcomp = deflate", "children.n.ipcomp: `deflate` is neither yes nor no"),
    ] {
        assert_eq!(bad(keys), said);
    }
    let (_, said) = doubtful("mode = transport\ndscp = ef");
    assert_eq!(
        said,
        "children.n.dscp: has no effect in transport mode, which keeps the packet's own header; remove it"
    );
}

#[test]
fn padding_and_dummies() {
    for (text, tfc) in
        [("0", Tfc::None), ("1200", Tfc::To(1200)), ("MTU", Tfc::Mtu), ("65535", Tfc::To(65_535))]
    {
        assert_eq!(good(&format!("tfc_padding = {text}")).options.tfc, tfc);
    }
    for (text, every) in [
        ("0", None),
        ("20ms", Some(Duration::from_millis(20))),
        ("0.5", Some(Duration::from_millis(500))),
        ("2m", Some(Duration::from_secs(120))),
    ] {
        assert_eq!(good(&format!("tfc_padding = mtu\ntfc_dummies = {text}")).options.dummies, every);
    }
    for (keys, said) in [
        (
            "tfc_padding = 65536",
            "children.n.tfc_padding: `65536` is not a length; write bytes up to 65535, or mtu",
        ),
        (
            "tfc_padding = yes",
            "children.n.tfc_padding: `yes` is not a length; write bytes up to 65535, or mtu",
        ),
        ("tfc_padding = mtu\ntfc_dummies = 2d", "children.n.tfc_dummies: `2d` is not between 1ms and 1d"),
        (
            "tfc_padding = mtu\ntfc_dummies = 0.0001",
            "children.n.tfc_dummies: `0.0001` is not between 1ms and 1d",
        ),
        (
            "mode = transport\ntfc_padding = mtu",
            "children.n.tfc_padding: is for tunnel mode (RFC 4303 section 2.7); set mode = tunnel, or remove this key",
        ),
        (
            "ah_proposals = sha256\ntfc_padding = 100",
            "children.n.tfc_padding: is for ESP, and AH hides nothing; write esp_proposals, or remove this key",
        ),
    ] {
        assert_eq!(bad(keys), said);
    }
    assert_eq!(
        bad("mode = transport\ntfc_dummies = 1s"),
        "children.n.tfc_dummies: is for tunnel mode (RFC 4303 section 2.7); set mode = tunnel, or remove this key"
    );
    let (_, said) = doubtful("tfc_dummies = 1s");
    assert_eq!(
        said,
        "children.n.tfc_dummies: dummies are told from packets by their length unless both are padded; set tfc_padding = mtu"
    );
}

#[test]
fn a_reqid_is_below_those_that_are_chosen() {
    assert_eq!(good("reqid = 2147483647").reqid, MAX_REQID);
    let line = bad("reqid = 2147483648");
    assert!(line.contains("reqid: `2147483648` is more than 2147483647"), "{line}");
}

#[test]
fn the_replay_window_has_a_floor_and_a_ceiling() {
    for n in [32, 64, 4096, 65_536] {
        assert_eq!(good(&format!("replay_window = {n}")).replay_window, n);
    }
    let (n, said) = doubtful("replay_window = 31");
    assert_eq!(n.replay_window, 31);
    assert_eq!(
        said,
        "children.n.replay_window: 31 loses packets that arrive out of order; leave the key out, or set at least 32"
    );
    assert!(doubtful("replay_window = 0").1.contains("turns the replay check off"));
    assert_eq!(bad("replay_window = 65537"), "children.n.replay_window: `65537` is more than 65536");
}

#[test]
fn limits_are_times_bytes_and_packets() {
    let n = good(
        "rekey_time = 10m\nlife_time = 15m\nrekey_bytes = 500m\nlife_bytes = 1g\nrekey_packets = 1000\nlife_packets = 2k",
    );
    assert_eq!((n.rekey_time, n.life_time), (Duration::from_secs(600), Duration::from_secs(900)));
    assert_eq!(
        n.lifetime,
        Lifetime { soft_bytes: 500 << 20, hard_bytes: 1 << 30, soft_packets: 1000, hard_packets: 2048 }
    );
    assert_eq!(good("rekey_packets = 10000").lifetime.hard_packets, 11_000);
    assert!(
        doubtful("rekey_packets = 10000\nlife_packets = 10000").1.contains("closed before it is rekeyed")
    );
}

/// A frame of 64 KB that does not fit ends the SA. Without a hard limit of its own a low soft one
/// leaves room for one.
#[test]
fn a_hard_limit_lets_a_frame_of_the_kernel_through() {
    let n = good("rekey_packets = 10\nrekey_bytes = 1000");
    assert_eq!(
        n.lifetime,
        Lifetime { soft_bytes: 1000, hard_bytes: 262_144, soft_packets: 10, hard_packets: 1500 }
    );
    assert_eq!(good("life_packets = 1500\nlife_bytes = 262144").lifetime.hard_packets, 1500);
    assert_eq!(good("life_packets = 0\nlife_bytes = 0").lifetime, Lifetime::default());
    assert_eq!(
        bad("life_packets = 1499"),
        "children.n.life_packets: 1499 is less than the kernel may hand over at once, which would end the CHILD_SA before it \
         carries anything; set at least 1500, or rekey_packets alone"
    );
    assert!(
        bad("rekey_bytes = 1000\nlife_bytes = 262143").contains("set at least 262144, or rekey_bytes alone")
    );
}

#[test]
fn a_child_without_policies_sends_nothing_and_traps_nothing() {
    let (n, said) = doubtful("policies = no");
    assert!(!n.policies);
    assert_eq!(
        said,
        "children.n.policies: without policies nothing is sent through this child, only what arrives is taken"
    );
    assert_eq!(
        bad("policies = no\nstart_action = trap"),
        "children.n.policies: a trap is a policy; set policies = yes, or no action to trap"
    );
    let n = child("remote_addrs = 192.0.2.2", "start_action = trap\npriority = 7").0.unwrap();
    assert_eq!((n.start_action, n.priority, n.policies), (ChildAction::Trap, 7, true));
}

#[test]
fn actions_are_read_alone_and_combined() {
    let words = [
        ("none", ChildAction::None),
        ("clear", ChildAction::None),
        ("trap", ChildAction::Trap),
        ("route", ChildAction::Trap),
        ("start", ChildAction::Start),
        ("restart", ChildAction::Start),
        ("trap|start", ChildAction::TrapAndStart),
        ("start|trap", ChildAction::TrapAndStart),
        ("trap|restart", ChildAction::TrapAndStart),
    ];
    for (word, action) in words {
        let keys = format!("start_action = {word}\nclose_action = {word}");
        let n = child("remote_addrs = 192.0.2.2", &keys).0.unwrap();
        assert_eq!((n.start_action, n.close_action), (action, action), "{word}");
        let dpd = format!("dpd_action = {word}");
        let n = child("remote_addrs = 192.0.2.2\ndpd_delay = 9s", &dpd).0.unwrap();
        assert_eq!(n.dpd_action, action, "{word}");
    }
    for word in ["trap|none", "start|start", "trap|start|trap", "trap|", "|", "often"] {
        let error = bad(&format!("start_action = {word}"));
        assert!(error.contains("none, trap, start, trap|start"), "{word}: {error}");
    }
    let without = bad("policies = no\nclose_action = trap|start");
    assert!(without.contains("a trap is a policy"), "{without}");
}

#[test]
fn inactivity_is_a_time_and_is_off_by_default() {
    assert_eq!(good("").inactivity, Duration::ZERO);
    assert_eq!(good("inactivity = 10m").inactivity, Duration::from_secs(600));
    assert_eq!(good("inactivity = 45").inactivity, Duration::from_secs(45));
    assert!(bad("inactivity = soon").starts_with("children.n.inactivity: "));
}

#[test]
fn an_inactivity_that_closes_nothing_or_for_good_is_doubtful() {
    let address = "remote_addrs = 192.0.2.2";
    for (keys, said) in [
        ("inactivity = 1h", Some("is not shorter than rekey_time")),
        ("inactivity = 59m", None),
        ("inactivity = 10m\nrekey_time = 10m", Some("is not shorter than rekey_time")),
        ("inactivity = 10m\nrekey_time = 0\nlife_time = 9m", Some("is not shorter than life_time")),
        ("inactivity = 30h\nrekey_time = 0\nlife_time = 0", None),
        ("inactivity = 2s\ntfc_padding = mtu\ntfc_dummies = 1s", Some("dummies are packets")),
        ("inactivity = 2s\ntfc_padding = mtu\ntfc_dummies = 5s", None),
        ("inactivity = 10m\nstart_action = start", Some("closes the child for good")),
        ("inactivity = 10m\nstart_action = start\nclose_action = trap", Some("closes the child for good")),
        ("inactivity = 10m\nstart_action = trap|start", None),
        ("inactivity = 10m\nstart_action = trap\nclose_action = start", None),
        ("inactivity = 0\nstart_action = start", None),
    ] {
        let (c, warnings) = child(address, keys);
        assert!(c.is_some(), "{keys}: {warnings:?}");
        let found = |said: &str| warnings[0].contains(&format!("children.n.inactivity: {said}"));
        match said {
            Some(said) => assert!(warnings.len() == 1 && found(said), "{keys}: {warnings:?}"),
            None => assert_eq!(warnings, [""; 0], "{keys}"),
        }
    }
    let with = |reauth: &str, keys: &str| child(&format!("{address}\nreauth_time = {reauth}"), keys).1;
    let doubt = with("30m", "inactivity = 30m");
    assert!(
        doubt.len() == 1 && doubt[0].contains("is not shorter than the connection's reauth_time"),
        "{doubt:?}"
    );
    assert_eq!(with("31m", "inactivity = 30m"), [""; 0]);
    let doubt = with("30m", "inactivity = 2h");
    assert!(doubt.len() == 1 && doubt[0].contains("is not shorter than rekey_time"), "{doubt:?}");
    let kept = child(&format!("{address}\nrekey_time = 30m"), "inactivity = 40m").1;
    assert_eq!(kept, [""; 0], "a rekeyed IKE_SA keeps its children");
}
