//! Tests of folders and of the linter.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::super::check;
use super::*;
use ironswan_testkit::clock::now;
use ironswan_testkit::scratch::Scratch;

const CONN: &str = "connections { net { local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n mobike = no\n\
    local { auth = psk\n id = g1 }\n remote { auth = psk\n id = g2 }\n\
    children { net { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n";
const SECRET: &str = "secrets { ike-1 { secret = \"0123456789abcdef\" } }\n";

fn lint(text: &str) -> Vec<String> {
    lint_with(text, "")
}

/// The same with this `ironswan.conf`.
fn lint_with(text: &str, own: &str) -> Vec<String> {
    let dir = Scratch::new();
    if !own.is_empty() {
        dir.write("ironswan.conf", own);
    }
    dir.write("swanctl.conf", text);
    let mut d = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut d).unwrap();
    assert_eq!(d.errors(), 0, "{d:?}");
    check::check(&config, &mut d);
    // As `ironswan check` shows them.
    let prefix = format!("{}/", dir.path().display());
    d.iter().map(|x| x.to_string().replace(&prefix, "")).collect()
}

#[test]
fn a_folder_of_swanctl_conf_conf_d_and_ironswan_conf() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", "include conf.d/*.conf\n");
    dir.write("conf.d/a.conf", CONN);
    dir.write("conf.d/b.conf", SECRET);
    dir.write("ironswan.conf", "port_natt = 14500\nlog { level = debug }\nretransmit_timeout = 0.5\n");
    let mut d = Diagnostics::default();
    let c = load_dir(now, dir.path(), &mut d).unwrap();
    assert!(d.is_empty(), "{d:?}");
    assert_eq!((c.connections.len(), c.secrets.len(), c.daemon.port_natt), (1, 1, 14_500));
    assert_eq!(c.daemon.limits.retransmit_timeout.as_millis(), 500);
    check::check(&c, &mut d);
    assert!(d.is_empty(), "{d:?}");
}

#[test]
fn a_file_that_is_included_by_another_name_is_read_once() {
    let dir = Scratch::new();
    let more = dir.write("conf.d/a.conf", &format!("{CONN}{SECRET}"));
    // A glob with an absolute path, beside a folder that is named through a link.
    dir.write("swanctl.conf", &format!("include {}/*.conf\n", more.parent().unwrap().display()));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let mut d = Diagnostics::default();
    let config = load_dir(now, &link, &mut d).unwrap();
    assert!(d.is_empty() && config.connections.len() == 1, "{d:?}");
}

#[test]
fn a_folder_with_only_conf_d_is_enough_and_an_empty_one_is_not() {
    let dir = Scratch::new();
    let mut d = Diagnostics::default();
    assert!(load_dir(now, dir.path(), &mut d).is_none());
    assert!(d.error_lines()[0].contains("holds neither"));
    dir.write("conf.d/a.conf", CONN);
    let mut d = Diagnostics::default();
    assert_eq!(load_dir(now, dir.path(), &mut d).unwrap().connections.len(), 1);
    let mut d = Diagnostics::default();
    assert!(load_dir(now, std::path::Path::new("/nonexistent"), &mut d).is_none());
    assert!(d.error_lines()[0].contains("--config"));
}

#[test]
fn secrets_that_others_may_read_are_refused_with_the_remedy() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", "include secrets.inc\n");
    let path = dir.write("secrets.inc", SECRET);
    for (mode, bad) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let mut d = Diagnostics::default();
        load_dir(now, dir.path(), &mut d).unwrap();
        assert_eq!(d.errors() == 1, bad, "{mode:o} {d:?}");
        if bad {
            assert!(d.error_lines()[0].contains(&format!("chmod 600 {}", path.display())), "{d:?}");
        }
    }
}

#[test]
fn unknown_sections_are_named_and_those_that_others_inherit_from_are_not() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", "conections { }\nbase { mobike = no }\nconnections { a : base { local { auth = psk }\n remote { auth = psk } } }\nk = 1\npools { p { addrs = 10.0.0.0/24 } }");
    let mut d = Diagnostics::default();
    load_dir(now, dir.path(), &mut d).unwrap();
    let e = d.error_lines();
    assert_eq!(e.len(), 3, "{e:?}");
    assert!(e[0].contains(":1: conections: ") && e[0].contains("`connections`"), "{e:?}");
    assert!(e[1].contains(":5: k: ") && e[2].contains("pools.p: pools are not built"), "{e:?}");
}

#[test]
fn the_linter_names_both_of_two_children_that_want_the_same_packets() {
    let two = format!("{CONN}{SECRET}").replace(
        "children {",
        "children { other { local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.128-10.2.1.0 }\n",
    );
    let found = lint(&two);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("10.1.0.0/24 === 10.2.0.128/25")
            && found[0].contains("children.other")
            && found[0].contains("children.net"),
        "{found:?}"
    );
}

#[test]
fn the_linter_finds_twins_missing_keys_and_doubtful_keys() {
    let twin = CONN.replace(" net {", " net2 {").replacen("10.2.0.0", "10.3.0.0", 1);
    let found = lint(&format!("{CONN}{SECRET}{twin}"));
    assert!(
        found.len() == 1
            && found[0].contains("connections.net2")
            && found[0].contains("same addresses and identities"),
        "{found:?}"
    );
    // Names are the same in capitals; key ids that begin alike are not.
    let found = lint(&format!("{CONN}{SECRET}{}", twin.replace("id = g2", "id = G2")));
    assert!(found.len() == 1 && found[0].contains("same addresses and identities"), "{found:?}");
    let key_id = |end: &str| format!("id = \"@#{}{end}\"", "ab".repeat(64));
    let (first, second) = (CONN.replace("id = g2", &key_id("01")), twin.replace("id = g2", &key_id("02")));
    let found = lint(&format!("{first}{SECRET}{second}"));
    assert!(found.is_empty(), "{found:?}");
    let found = lint(CONN);
    assert!(
        found.len() == 1
            && found[0].contains("swanctl.conf:1: ")
            && found[0].contains("connections.net: no shared key found for 'g1' - 'g2'"),
        "{found:?}"
    );
    let doubtful = format!(
        "{CONN}secrets {{ ike-a {{ id = g2\n secret = aaaaaaaaaaaaaaaaaa }}\n ike-b {{ id = g2\n secret = bbbbbbbbbbbbbbbbbbbbbbb }} }}"
    );
    let found = lint(&doubtful);
    assert!(found.len() == 1 && found[0].contains("secrets.ike-a and secrets.ike-b"), "{found:?}");
    let other = format!("{CONN}secrets {{ ike-a {{ id = g3\n secret = aaaaaaaaaaaaaaaaaa }} }}");
    assert!(lint(&other)[0].contains("no shared key found for 'g1' - 'g2'"));
}

#[test]
fn the_linter_finds_one_reqid_of_two_peers_with_other_selectors() {
    let with = |reqid: &str| format!("remote_ts = 10.2.0.0/24\n reqid = {reqid}");
    let first = CONN.replacen("remote_ts = 10.2.0.0/24", &with("7"), 1);
    assert_ne!(first, CONN);
    let second = |reqid: &str, remote: &str| {
        let twin = CONN.replacen("remote_ts = 10.2.0.0/24", &with(reqid), 1).replace("10.2.0.0", remote);
        twin.replace(" net {", " net2 {").replace("id = g2", "id = g3").replace("192.0.2.2", "192.0.2.3")
    };
    let found = lint(&format!("{first}{SECRET}{}", second("7", "10.3.0.0")));
    let [one] = &found[..] else { panic!("{found:?}") };
    assert!(
        one.contains("connections.net2.children.net2.reqid") && one.contains("has the reqid 7 too"),
        "{one}"
    );
    assert_eq!(lint(&format!("{first}{SECRET}{}", second("8", "10.3.0.0"))), [""; 0]);
    // Two peers in front of the same network are one place; that they overlap is another finding.
    let found = lint(&format!("{first}{SECRET}{}", second("7", "10.2.0.0")));
    assert!(found.len() == 1 && found[0].contains("only one of them gets"), "{found:?}");
}

#[test]
fn the_linter_finds_the_peer_inside_the_selector_and_short_keys() {
    let text = format!("{CONN}secrets {{ ike-1 {{ secret = short }} }}").replace("10.2.0.0/24", "0.0.0.0/0");
    let found = lint(&text);
    assert!(found.iter().any(|f| f.contains("contains the peer's own address 192.0.2.2")), "{found:?}");
    assert!(found.iter().any(|f| f.contains("a very short key")), "{found:?}");
}

#[test]
fn ten_thousand_equal_connections_are_checked_in_bounded_time() {
    let mut text = String::from("connections {\n");
    for i in 0..10_000 {
        text.push_str(&format!(
            "c{i} {{ remote_addrs = 10.{}.{}.1\n local {{ auth = psk }}\n remote {{ auth = psk\n id = p{i} }}\n children {{ n {{ local_ts = 0.0.0.0/0\n remote_ts = 10.0.0.0/8 }} }} }}\n",
            i / 250, i % 250
        ));
    }
    text.push('}');
    text.push_str(SECRET);
    let found = lint(&text);
    assert!(found.iter().filter(|f| f.contains("only one of them gets")).count() == 100);
}

#[test]
fn the_linter_asks_the_daemon_s_own_choice_of_key() {
    let keys = |keys: &str| lint(&format!("{CONN}secrets {{ {keys} }}"));
    let long = "secret = 0123456789abcdefgh\n";
    // A key of two does not let a third in, though it names one side.
    let found = keys(&format!("ike-ab {{ id-a = g1\n id-b = g3\n {long} }}"));
    assert!(found.len() == 1 && found[0].contains("no shared key found for 'g1' - 'g2'"), "{found:?}");
    assert!(!found[0].contains("warning"), "{found:?}");
    assert!(keys(&format!("ike-ab {{ id-a = G1\n id-b = g2\n {long} }}")).is_empty());
    assert!(keys(&format!("ike-a {{ id-a = g1\n {long} }}")).is_empty());
    // A secret that is wrong is one finding.
    let dir = Scratch::new();
    dir.write("swanctl.conf", &format!("{CONN}secrets {{ ike-1 {{ secret = 0x1 }} }}"));
    let mut d = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut d).unwrap();
    check::check(&config, &mut d);
    assert_eq!(d.iter().count(), 1, "{d:?}");
    // Any peer: whoever owns a key may come, and nobody without one.
    let any = |keys: &str| lint(&format!("{CONN}secrets {{ {keys} }}").replace("id = g2 ", ""));
    assert!(any(&format!("ike-x {{ id = g7\n {long} }}")).is_empty());
    assert!(
        any(&format!("ike-x {{ id = g7\n id2 = g8\n {long} }}"))[0]
            .contains("no shared key found for 'g1' - '%any'")
    );
}

#[test]
fn the_linter_finds_what_meets_itself() {
    let found = lint(&format!("{CONN}{SECRET}").replace("id = g2", "id = G1"));
    assert!(
        found.len() == 1 && found[0].contains("warning: connections.net.remote.id: is our own identity"),
        "{found:?}"
    );
    let found = lint(&format!("{CONN}{SECRET}").replace("10.2.0.0/24", "10.1.0.0/24"));
    assert!(found.len() == 1 && found[0].contains("10.1.0.0/24 is in local_ts, too"), "{found:?}");
    let found = lint(&format!("{CONN}{SECRET}").replace("10.1.0.0/24", "10.1.0.5/24"));
    assert!(
        found.len() == 1
            && found[0]
                .contains("local_ts: `10.1.0.5/24` has bits set behind its prefix, and means 10.1.0.0/24"),
        "{found:?}"
    );
    let dpd = |conn: &str| {
        let text = format!("{CONN}{SECRET}").replace("mobike = no", conn);
        lint(&text.replace("remote_ts = 10.2.0.0/24", "remote_ts = 10.2.0.0/24\n dpd_action = trap\n"))
    };
    let found = dpd("mobike = no");
    assert!(found.len() == 1 && found[0].contains("dpd_action: without dpd_delay"), "{found:?}");
    assert!(dpd("dpd_delay = 30s").is_empty());
}

#[test]
fn the_linter_says_which_of_two_peers_gets_the_packets_of_both() {
    let hub =
        CONN.replace(" net {", " hub {").replace("192.0.2.2", "192.0.2.3").replace("id = g2", "id = g3");
    let found = lint(&format!("{CONN}{SECRET}{}", hub.replace("10.2.0.0/24", "10.0.0.0/8")));
    assert!(
        found.len() == 1
            && found[0].contains(
                "note: connections.net.children.net.remote_ts: 10.1.0.0/24 === 10.2.0.0/24 lies inside"
            )
            && found[0].contains("connections.hub"),
        "{found:?}"
    );
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_one_finding() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", &format!("{CONN}{SECRET}").replacen("local {", "local", 1));
    let mut d = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut d).unwrap();
    check::check(&config, &mut d);
    assert!(config.unread && d.iter().count() == 1, "{d:?}");
}

#[test]
fn shunts_need_nobody_to_authenticate() {
    let shunts = "connections { bypass { children { lan { local_ts = 10.1.0.0/24\n remote_ts = 10.1.0.0/24\n mode = pass\n \
                  start_action = trap\n } } } }\n";
    assert!(lint(shunts).is_empty(), "{:?}", lint(shunts));
    let dir = Scratch::new();
    dir.write("swanctl.conf", &shunts.replace("mode = pass", "mode = tunnel"));
    let mut d = Diagnostics::default();
    load_dir(now, dir.path(), &mut d);
    assert_eq!(d.errors(), 2, "{d:?}");
}

#[test]
fn a_port_of_a_connection_is_one_of_the_daemon_s() {
    let from =
        |port: &str| format!("{}{SECRET}", CONN.replace("mobike = no", &format!("local_port = {port}")));
    let moved = "port_ike = 1500\nport_natt = 14500\n";
    for (port, own) in [("0", ""), ("500", ""), ("4500", ""), ("1500", moved), ("14500", moved), ("0", moved)]
    {
        assert_eq!(lint_with(&from(port), own), [""; 0], "{port}");
    }
    assert_eq!(
        lint(&from("600")),
        [
            "swanctl.conf:3: warning: connections.net.local_port: UDP port 600 is none of this gateway's, 500 and 4500 (port_ike and \
             port_natt in ironswan.conf); remove local_port, or set it to 4500 to start UDP-encapsulated"
        ]
    );
    assert!(lint_with(&from("500"), moved)[0].contains("UDP port 500 is none of this gateway's, 1500 and"));
    // A connection that only answers works all the same.
    let started = |text: String, key: &str| {
        text.replace("remote_ts = 10.2.0.0/24", &format!("remote_ts = 10.2.0.0/24\n {key} = start"))
    };
    let open = |text: String| text.replace("remote_addrs = 192.0.2.2", "remote_addrs = %any");
    for (text, severity) in [
        (from("600"), Severity::Warning),
        (open(started(from("600"), "close_action")), Severity::Warning),
        (started(from("600"), "start_action"), Severity::Error),
        (started(from("600"), "close_action"), Severity::Error),
    ] {
        let dir = Scratch::new();
        dir.write("swanctl.conf", &text);
        let mut d = Diagnostics::default();
        let config = load_dir(now, dir.path(), &mut d).unwrap();
        check::check(&config, &mut d);
        let found: Vec<_> = d.iter().filter(|x| x.key.ends_with(".local_port")).map(|x| x.severity).collect();
        assert_eq!(found, [severity], "{text}");
    }
}
