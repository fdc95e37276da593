//! Tests of what keys mean: defaults, every reader's errors, what is not built.

use std::sync::Arc;
use std::time::Duration;

use ironswan_keying::{AddrSpec, Auth, ChildAction, ChildKind, Connection, TsSpec, Unique};
use ironswan_wire::id::{IdPattern, Identity};

use super::super::diag::Severity;
use super::super::syntax::{NoIncludes, parse};
use super::super::tree::{Node, Value};
use super::*;

pub(super) fn tree(text: &str) -> Section {
    let file: Arc<str> = "t.conf".into();
    let mut root = Section::new(Origin { file: file.clone(), line: 1 });
    let mut d = Diagnostics::default();
    parse(&file, text.as_bytes(), &mut root, &mut Vec::new(), &mut NoIncludes, &mut d);
    assert!(d.is_empty(), "{d:?}");
    root
}

pub(super) fn conn(text: &str) -> (Option<Connection>, Diagnostics) {
    let mut d = Diagnostics::default();
    let c = connection("c", &tree(text), "connections.c", &Default::default(), &mut d);
    (c, d)
}

pub(super) const PSK: &str = "local { auth = psk }\nremote { auth = psk }\n";

fn good(text: &str) -> Connection {
    let (c, d) = conn(&format!("{PSK}{text}"));
    assert!(d.is_empty(), "{d:?}");
    c.unwrap()
}

fn bad(text: &str) -> String {
    let (c, d) = conn(&format!("{PSK}{text}"));
    assert!(c.is_none());
    assert_eq!(d.errors(), 1, "{text}: {d:?}");
    d.error_lines().remove(0)
}

#[test]
fn defaults_are_swanctl_s_and_the_replay_window_is_ours() {
    let c = good("children { n { } }");
    assert_eq!((c.local_addrs, c.remote_addrs), (vec![AddrSpec::Any], vec![AddrSpec::Any]));
    assert_eq!((c.local_port, c.remote_port, c.keyingtries, c.unique), (None, 500, 1, Unique::No));
    assert_eq!(good("local_port = 0\nchildren { n { } }").local_port, None);
    assert_eq!(
        (c.rekey_time.as_secs(), c.over_time.as_secs(), c.rand_time.as_secs()),
        (14_400, 1_440, 1_440)
    );
    assert_eq!(
        (c.dpd_delay, c.encap, c.local_id, c.remote_id),
        (Duration::ZERO, false, None, IdPattern::Any)
    );
    let n = &c.children[0];
    assert_eq!((n.rekey_time.as_secs(), n.life_time.as_secs(), n.rand_time.as_secs()), (3_600, 3_960, 360));
    assert_eq!((n.replay_window, n.kind, n.start_action), (4_096, ChildKind::Protect, ChildAction::None));
    assert_eq!(n.local_ts, [TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }]);
    assert_eq!((c.proposals.len(), n.proposals.len()), (4, 2));
}

#[test]
fn everything_that_is_built_is_read() {
    let c = good(
        "version = 2\nlocal_addrs = 192.0.2.1, fd00::1\nremote_addrs = 192.0.2.2\nlocal_port = 4500\nremote_port = 0\n\
         proposals = aes128gcm16-prfsha256-x25519, aes256-sha256-modp2048\nencap = yes\nmobike = no\ndpd_delay = 30s\n\
         fragmentation = yes\naggressive = no\npull = yes\nsend_cert = always\nsend_certreq = no\nvips =\npools =\n\
         keyingtries = %forever\nunique = replace\nreauth_time = 0s\nrekey_time = 2h\nover_time = 5m\nrand_time = 1m\n\
         children { n { esp_proposals = aes128gcm16-esn\n local_ts = 10.1.0.0/16[tcp/80], dynamic\n remote_ts = 10.2.0.0/16\n\
         rekey_time = 30m\n life_time = 40m\n rekey_bytes = 1G\n rekey_packets = 1000000\n life_packets = 2000000\n\
         replay_window = 0x40\n start_action = trap\n close_action = start\n dpd_action = restart\n reqid = 7\n priority = 9\n\
         mode = tunnel\n policies = yes\n ipcomp = no\n copy_dscp = out\n hw_offload = no\n } p { mode = pass\n local_ts = 10.1.0.0/16\n\
         remote_ts = 10.3.0.0/16 } }",
    );
    assert_eq!(
        (c.local_port, c.remote_port, c.keyingtries, c.unique),
        (Some(4_500), 500, 0, Unique::Replace)
    );
    assert_eq!((c.local_addrs.len(), c.proposals.len(), c.encap), (2, 2, true));
    assert_eq!((c.rekey_time.as_secs(), c.over_time.as_secs(), c.rand_time.as_secs()), (7_200, 300, 60));
    let n = &c.children[0];
    assert_eq!((n.lifetime.soft_bytes, n.lifetime.hard_bytes), (1 << 30, (1 << 30) + (1 << 30) / 10));
    assert_eq!((n.lifetime.soft_packets, n.lifetime.hard_packets), (1_000_000, 2_000_000));
    assert_eq!((n.replay_window, n.reqid, n.priority, n.rand_time.as_secs()), (64, 7, 9, 600));
    assert_eq!(
        (n.start_action, n.close_action, n.dpd_action),
        (ChildAction::Trap, ChildAction::Start, ChildAction::Start)
    );
    assert_eq!(c.children[1].kind, ChildKind::Pass);
}

#[test]
fn times_of_an_ike_sa_depend_on_each_other_as_with_charon() {
    let times = |text: &str| {
        let c = good(text);
        [c.rekey_time, c.reauth_time, c.over_time, c.rand_time].map(|time| time.as_secs())
    };
    assert_eq!(times(""), [14_400, 0, 1_440, 1_440]);
    assert_eq!(times("reauth_time = 3h"), [0, 10_800, 1_080, 1_080]);
    assert_eq!(times("reauth_time = 10h\nrekey_time = 1h"), [3_600, 36_000, 3_600, 3_600]);
    assert_eq!(times("reauth_time = 3h\nover_time = 5m\nrand_time = 1m"), [0, 10_800, 300, 60]);
    assert_eq!(times("reauth_time = 0s\nrekey_time = 0s"), [0, 0, 0, 0]);
}

#[test]
fn the_dscp_of_ike_packets_is_six_binary_digits() {
    assert_eq!(good("").dscp, 0);
    assert_eq!(good("dscp = 101110").dscp, 46);
    assert_eq!(good("dscp = 000001").dscp, 1);
    for wrong in ["46", "ef", "10111", "1011100", "+01110", "101112"] {
        assert!(bad(&format!("dscp = {wrong}")).contains("six binary digits"), "{wrong}");
    }
}

#[test]
fn what_is_not_built_is_an_error_with_key_line_value_and_remedy() {
    for (text, key, say) in [
        ("version = 1", "version", "RFC 9395"),
        ("vips = 0.0.0.0", "vips", "not built yet"),
        ("aggressive = yes", "aggressive", "RFC 9395"),
        ("if_id_in = 7", "if_id_in", "remove this key"),
        ("proposals = aes128gcm16-prfsha256-ecp256bp", "proposals", "ecp256bp is not built; write x25519"),
        ("children { n { mode = beet } }", "children.n.mode", "BEET mode is not built; set mode = transport"),
        ("children { n { updown = /x } }", "children.n.updown", "/x: updown"),
        ("children { n { label = x } }", "children.n.label", "security labels are not built yet"),
        ("children { n { sha256_96 = yes } }", "children.n.sha256_96", "set sha256_96 = no"),
        (
            "children { n { policies_fwd_out = yes } }",
            "children.n.policies_fwd_out",
            "set policies_fwd_out = no",
        ),
    ] {
        let got = bad(text);
        assert!(
            got.starts_with(&format!("t.conf:3: connections.c.{key}: ")) && got.contains(say),
            "{text}: {got}"
        );
    }
}

#[test]
fn unknown_keys_and_sections_name_the_nearest_known_one() {
    assert!(bad("remote_adrs = 1.2.3.4").ends_with("unknown key; did you mean `remote_addrs`?"));
    assert!(bad("children { n { local_tss = dynamic } }").contains("`local_ts`"));
    assert!(bad("childern { }").contains("`children`"));
    assert!(bad("zzz = 1").ends_with("unknown key; remove it"));
    assert!(bad("children = 1").contains("is a section, not a key"));
    assert!(bad("proposals { }").contains("is a key, not a section"));
    assert!(bad("children { n = 1 }").contains("children.n: is a section"));
    assert!(bad("local_x { auth = eap-md5 }").contains("connections.c.local_x"));
}

#[test]
fn names_and_lists_of_addresses_have_a_length() {
    let long = "n".repeat(101);
    assert!(bad(&format!("children {{ {long} {{ }} }}")).contains("is longer than 100 bytes"));
    good(&format!("children {{ {} {{ }} }}", &long[1..]));
    let mut d = Diagnostics::default();
    assert!(connection(&long, &tree(PSK), "", &Default::default(), &mut d).is_none());
    assert!(d.errors() == 1 && d.error_lines()[0].contains("is longer than 100 bytes"), "{d:?}");
    // As VICI may bring them.
    for name in ["", "a b", "a\nb"] {
        let mut section = tree(PSK);
        let origin = Origin::source("vici");
        section.open("children", &origin).unwrap().open(name, &origin).unwrap();
        let mut d = Diagnostics::default();
        assert!(connection("c", &section, "", &Default::default(), &mut d).is_none());
        let says = format!("vici: children: `{}` is not a name", name.escape_debug());
        assert!(d.errors() == 1 && d.error_lines()[0].starts_with(&says), "{d:?}");
    }
    let addrs = |n: usize| format!("remote_addrs = {}", vec!["192.0.2.1"; n].join(","));
    assert!(bad(&addrs(256)).contains("more than 255 addresses"));
    good(&addrs(255));
}

#[test]
fn each_local_and_remote_section_is_a_round_in_the_order_of_round_or_of_place() {
    let names = |c: &Connection| {
        let of = |id: Option<String>| id.unwrap_or_default();
        let local: Vec<_> = c.local_sides().map(|(_, id)| of(id.map(Identity::to_string))).collect();
        let remote: Vec<_> = c.remote_sides().map(|(_, id)| id.to_string()).collect();
        (local.join(" "), remote.join(" "))
    };
    let both = |text: &str| {
        let (c, d) = conn(&format!("{text}\nchildren {{ n {{ }} }}"));
        names(&c.unwrap_or_else(|| panic!("{d:?}")))
    };
    let side = |name: &str, more: &str, id: &str| format!("{name} {{ auth = psk\n {more}\n id = {id} }}\n");
    let placed = side("local-b", "", "b") + &side("remote", "", "x") + &side("local-a", "", "a");
    assert_eq!(both(&placed), ("b a".into(), "x".into()));
    let numbered = side("local-1", "round = 2", "second") + &side("local-2", "round = 1", "first");
    let remote = side("remote1", "round = 9", "y") + &side("remote2", "round = 7", "z");
    assert_eq!(both(&(numbered + &remote)), ("first second".into(), "z y".into()));
    // Each round has a method of its own.
    let (c, _) = conn("local-1 { auth = pubkey }\nlocal-2 { auth = psk }\nremote { auth = psk }\n");
    let c = c.unwrap();
    assert!(c.local_auth.trust().is_some() && c.local_rounds[0].auth == Auth::Psk && c.has_rounds());
    let five = (0..5).map(|n| side(&format!("local{n}"), "", "a")).collect::<String>();
    let (c, d) = conn(&(five + "remote { auth = psk }\n"));
    assert!(c.is_none() && d.error_lines()[0].contains("4 rounds of authentication"), "{d:?}");
}

#[test]
fn wrong_values_are_named() {
    for (text, say) in [
        ("local_addrs = 1.2.3", "`1.2.3`"),
        ("local_port = 70000", "70000"),
        ("keyingtries = often", "`often`"),
        ("unique = sometimes", "none of no, never, keep, replace"),
        ("childless = sometimes", "none of allow, never, prefer, force"),
        ("dpd_delay = 5x", "is not a time"),
        ("encap = maybe", "neither yes nor no"),
        ("children { n { local_ts = 10.0.0.0/40 } }", "more than 32"),
        ("children { n { local_ts = fd00::/64\n remote_ts = 10.0.0.0/8 } }", "same family"),
        ("children { n { replay_window = 100000 } }", "more than 65536"),
        ("children { n { rekey_bytes = 1T } }", "number of bytes"),
        ("children { n { mode = tunel } }", "is no mode"),
        ("children { n { dpd_action = reboot } }", "none of none, trap, start"),
    ] {
        assert!(bad(text).contains(say), "{text}: {}", bad(text));
    }
}

#[test]
fn sides_without_keys_use_certificates_and_other_methods_are_refused() {
    let (_, d) = conn("local { id = a }\n");
    let e = d.error_lines();
    assert!(e.len() == 1 && e[0].contains("connections.c.remote: is missing"), "{e:?}");
    let (c, d) = conn("local { id = a }\nremote { id = \"C=CH, CN=x\" }\n");
    assert_eq!(d.error_lines(), [""; 0]);
    let c = c.expect("a connection");
    assert_eq!([&c.local_auth, &c.remote_auth].map(|auth| auth.trust().is_some()), [true; 2]);
    assert_eq!(c.remote_id.to_string(), "C=CH, CN=x");
    let (_, d) = conn(
        "local { auth = eap-mschapv2 }\nremote { auth = pubkey\n certs = a.pem\n cert1 { handle = 1 }\n id = \"C=CH, x\" }\n",
    );
    let e = d.error_lines().join("\n");
    assert!(
        e.contains("`eap-mschapv2` is no method that is built")
            && e.contains("remote.certs: a.pem")
            && e.contains("remote.cert1.handle: 1: tokens are not built"),
        "{e}"
    );
    assert!(e.contains("`C=CH, x` is not a distinguished name"), "{e}");
}

#[test]
fn what_has_no_effect_is_a_note_and_what_is_unwise_a_warning() {
    let (c, d) = conn(&format!(
        "{PSK}dpd_timeout = 60s\nchildren {{ n {{ replay_window = 0\n rand_bytes = 5\n start_action = start\n life_time = 10m }} }}"
    ));
    assert!(c.is_some());
    let of = |s| d.iter().filter(|x| x.severity == s).count();
    assert_eq!((of(Severity::Note), of(Severity::Warning)), (2, 3), "{d:?}");
}

#[test]
fn a_vici_message_is_understood_by_the_same_code() {
    let at = Origin::source("connection net");
    let mut s = Section::new(at.clone());
    s.set("remote_addrs", Node::Value(Value::list(["192.0.2.1".into(), "192.0.2.2".into()], at.clone())));
    s.set("mediation", Node::Value(Value::text("yes", at.clone())));
    for side in ["local", "remote"] {
        let sub = s.open(side, &at).unwrap();
        sub.set("auth", Node::Value(Value::text("psk", at.clone())));
    }
    let mut d = Diagnostics::default();
    assert!(connection("net", &s, "", &Default::default(), &mut d).is_none());
    assert_eq!(d.error_lines(), ["connection net: mediation: yes: mediation is not built; remove this key"]);
}

#[test]
fn secrets_and_their_owners() {
    let mut d = Diagnostics::default();
    let s = secrets(
        &tree(
            "ike-1 { secret = 0x00ff }\nike { id = g1.example\n id-2 = *.example\n id3 = 192.0.2.1\n secret = \"a b\" }\nike2 { id = %any\n secret = x }",
        ),
        &mut d,
    );
    assert!(d.is_empty(), "{d:?}");
    assert_eq!(s.iter().map(|k| k.owners.len()).collect::<Vec<_>>(), [0, 3, 0]);
    assert_eq!(s[0].secret.expose(), [0, 255]);
    let mut d = Diagnostics::default();
    let s = secrets(
        &tree(
            "ike-1 { }\neap-x { secret = a }\nikee = 1\npsk { secret = a }\nike-2 { secrt = x }\nike-3 { secret = 0xf }\nike-4 { secret = a\n id = }",
        ),
        &mut d,
    );
    assert_eq!(s.len(), 1);
    let e = d.error_lines();
    assert_eq!(e.len(), 6, "{e:?}");
    assert!(
        e[0].contains("secrets.ike-1: has no secret")
            && e[1].contains("eap secrets are not built")
            && e[4].contains("`secret`"),
        "{e:?}"
    );
    assert!(!e.join(" ").contains("0xf"));
}

#[test]
fn the_daemon_s_settings_have_bounds_too() {
    let mut d = Diagnostics::default();
    let got = daemon(
        &tree(
            "device = ipsec7\nuser = nobody\nmark = 0x10\nkeylog = /var/tmp/k\nvici { listen = unix:///run/a.vici, unix:///run/b.vici }\nlog { level = warn\n format = json }\nretransmit_tries = 3\nretransmit_base = 1.5",
        ),
        &mut d,
    );
    assert!(d.is_empty(), "{d:?}");
    assert_eq!(
        (got.device.as_str(), got.mark, got.vici_listen.len(), got.log_format),
        ("ipsec7", 16, 2, LogFormat::Json)
    );
    let mut shared = Diagnostics::default();
    let text = "vici { readonly = unix:///run/ro.vici\n readonly_group = monitoring }";
    let ours = daemon(&tree(text), &mut shared);
    assert!(shared.is_empty(), "{shared:?}");
    assert_eq!(
        (ours.vici_readonly.as_deref(), ours.vici_readonly_group.as_deref()),
        (Some("unix:///run/ro.vici"), Some("monitoring"))
    );
    assert_eq!((got.limits.retransmit_tries, got.user.as_deref()), (3, Some("nobody")));
    for text in [
        "user = a:b",
        "user = a/b",
        "vici { readonly = /run/x }",
        "vici { readonly = unix://x }",
        "vici { readonly_group = monitoring }",
        "vici { readonly = unix:///run/x\n readonly_group = a:b }",
        "vici { readonly = unix:///run/x\n listen = unix:///run/y, unix:///run/x }",
        "device = a/b",
        "device = abcdefghijklmnop",
        // To nft it would be every device whose name begins with e.
        "device = e*",
        "device = \"a\\\"b\"",
        "device = \"a\\\\b\"",
        "device = $x",
        "device = a;b",
        "mark = 0",
        "steer_mark = 0",
        "steer_mark = 0x30000000",
        "steer_mark = 0x20",
        "guard = maybe",
        "workers = 2",
        "data = 1",
        "data { workers = 0 }",
        "port_ike = 0",
        "port_ike = 4500",
        "vici { listen = tcp://1.2.3.4 }",
        "vici { listen = unix://rel }",
        "log { level = loud }",
        "log { lvl = info }",
        "log { level { debug = yes } }",
        "vici { listen { } }",
        "data { workers { n = 2 } }",
        "guard { no = yes }",
        "retransmit_base = 0.5",
        "half_open_max = 0",
        "retransmit_timeout = 0",
        "prot_ike = 1",
        "vici = x",
        "half_open { }",
    ] {
        let mut d = Diagnostics::default();
        daemon(&tree(text), &mut d);
        assert_eq!(d.errors(), 1, "{text}: {d:?}");
    }
}

#[test]
fn the_default_that_the_manual_names_means_the_same_as_nothing_written() {
    use super::keys::child::CHILD_TABLE;
    use super::keys::conn::CONN_TABLE;
    use super::keys::conn::remote::REMOTE_TABLE;
    let without = format!("{:?}", good("children { n { } }"));
    let mut compared = 0;
    for (table, before, after) in [
        (CONN_TABLE, "children { n { } }\n", ""),
        (REMOTE_TABLE, "children { n { } }\nremote {\n", "\n}"),
        (CHILD_TABLE, "children { n {\n", "\n} }"),
    ] {
        for key in table.read {
            let keys::Preset::Is(default) = key.preset() else { continue };
            // This text writes the other method, since the default does not stand alone.
            if key.name() == "auth" {
                continue;
            }
            let with = good(&format!("{before}{} = {default}{after}", key.name()));
            assert_eq!(format!("{with:?}"), without, "{} = {default}", key.name());
            compared += 1;
        }
    }
    println!("{compared} defaults compared");
    assert!(compared > 25, "{compared} defaults compared");
}

#[test]
fn the_defaults_of_ironswan_conf_are_those_of_the_daemon() {
    use super::keys::data::DATA_TABLE;
    use super::keys::settings::{LOG_TABLE, SETTINGS_TABLE};
    let read = |text: &str| {
        let mut d = Diagnostics::default();
        let daemon = daemon(&tree(text), &mut d);
        assert!(d.is_empty(), "{text}: {d:?}");
        daemon
    };
    for text in ["", "data { }", "log { }", "vici { }"] {
        assert_eq!(read(text), Daemon::default(), "{text}");
    }
    let mut compared = 0;
    for (table, before, after) in
        [(SETTINGS_TABLE, "", ""), (LOG_TABLE, "log {\n", "\n}"), (DATA_TABLE, "data {\n", "\n}")]
    {
        for key in table.read {
            let keys::Preset::Is(default) = key.preset() else { continue };
            let text = format!("{before}{} = {default}{after}", key.name());
            assert_eq!(read(&text), Daemon::default(), "{text}");
            compared += 1;
        }
    }
    println!("{compared} defaults compared");
    assert!(compared > 30, "{compared} defaults compared");
}
