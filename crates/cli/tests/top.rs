//! `ironswan top` beside a daemon. Needs root: it makes a network namespace.

mod common;

use std::process::{Command, Output};

use common::{IRONSWAN, Scratch, stderr, stdout};

const CONFIGURATION: &str = "connections { branch { local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.9\n local { auth = psk\n id = a }\n\
    remote { auth = psk\n id = b }\n children { lan { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24\n start_action = start } } } }\n\
    secrets { ike-1 { secret = 0123456789abcdef0123456789abcdef } }\n";

/// Runs `top` with these arguments beside a daemon whose peer does not exist.
fn top(arguments: &str) -> Output {
    let scratch = Scratch::new();
    scratch.write("config/swanctl.conf", CONFIGURATION);
    scratch
        .write("config/ironswan.conf", &format!("qcd_secret = {}\n", scratch.path().join("qcd").display()));
    let [config, socket] = ["config", "ironswan.vici"].map(|name| scratch.path().join(name));
    let script = format!(
        r#"ip link set lo up; ip link add wan type veth peer name other; ip address add 192.0.2.1/24 dev wan
        ip link set wan up; ip link set other up
        "$1" run --config "$2" --vici "unix://$3" 2> "$3.log" & daemon=$!
        until test -S "$3"; do kill -0 $daemon || exit 9; sleep 0.05; done
        "$1" top --vici "unix://$3" {arguments}; status=$?
        kill $daemon; wait $daemon; exit $status"#
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script, "sh", IRONSWAN]);
    command.args([&config, &socket]).output().expect("unshare")
}

#[test]
fn a_page_has_threads_and_the_tunnel_that_is_down_in_24_lines_of_80_columns() {
    let out = top("--once");
    let page = stdout(&out);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(page.lines().count() <= 24 && page.lines().all(|l| l.chars().count() <= 80), "{page}");
    for words in ["ironswan ", "cpu   control ", "data-0 ", "no CHILD_SA", "DOWN\nbranch/lan: "] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    assert!(!page.contains('\x1b'), "{page}");
}

#[test]
fn programs_get_a_document() {
    let out = top("--json");
    let doc: serde_json::Value = serde_json::from_str(&stdout(&out)).expect("a document");
    assert_eq!((&doc["schema"], &doc["down"][0]["name"]), (&"ironswan.top/1".into(), &"branch/lan".into()));
    assert!(doc["threads"].as_array().is_some_and(|t| t.len() >= 2), "{doc:#}");
}
