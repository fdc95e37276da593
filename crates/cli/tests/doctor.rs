//! `ironswan doctor` as people call it. Needs root: it makes network namespaces and runs a daemon.

mod common;

use std::fs;
use std::process::{Command, Output};

use common::{IRONSWAN, Scratch, stderr, stdout};

const CONFIGURATION: &str = "connections { net { local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n local { auth = psk\n id = a }\n\
    remote { auth = psk\n id = b }\n children { net { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n\
    secrets { ike-1 { secret = 0123456789abcdef0123456789abcdef } }\n";

/// Runs a script in a new network namespace, with a link that is up. `$1` is the program, `$2` a
/// folder with a configuration, `$3` a path for a socket.
fn script(body: &str) -> Output {
    let scratch = Scratch::new();
    scratch.write("config/swanctl.conf", CONFIGURATION);
    scratch
        .write("config/ironswan.conf", &format!("qcd_secret = {}\n", scratch.path().join("qcd").display()));
    let [config, socket] = ["config", "ironswan.vici"].map(|name| scratch.path().join(name));
    let head = "ip link set lo up; ip link add wan type veth peer name other; ip address add 192.0.2.1/24 dev wan\n\
                ip link set wan up; ip link set other up; echo 1 > /proc/sys/net/ipv4/ip_forward\n";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &format!("{head}{body}"), "sh", IRONSWAN]);
    command.args([&config, &socket]).output().expect("unshare")
}

fn document(output: &Output) -> serde_json::Value {
    let out = stdout(output);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}\n{}", stderr(output)))
}

/// Verdicts of the checks of one name.
fn verdicts(doc: &serde_json::Value, name: &str) -> Vec<String> {
    let checks = doc["checks"].as_array().expect("a list");
    let named = checks.iter().filter(|c| c["name"] == name);
    named.map(|c| c["verdict"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn without_a_problem_the_exit_status_is_0_and_with_one_it_is_1() {
    let good = script(r#""$1" doctor --config "$2" --vici "unix://$3" --json"#);
    let doc = document(&good);
    assert_eq!((&doc["schema"], &doc["problems"]), (&"ironswan.doctor/1".into(), &0.into()), "{doc:#}");
    assert_eq!(good.status.code(), Some(0), "{doc:#}");
    assert_eq!(verdicts(&doc, "ports"), ["ok"]);
    let bad = script(
        r#"echo 0 > /proc/sys/net/ipv4/ip_forward; "$1" doctor --config "$2" --vici "unix://$3" --json"#,
    );
    let doc = document(&bad);
    assert_eq!(
        (bad.status.code(), verdicts(&doc, "forwarding")),
        (Some(1), vec!["problem".to_owned()]),
        "{doc:#}"
    );
}

#[test]
fn text_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let out =
        script(r#"echo 0 > /proc/sys/net/ipv4/ip_forward; "$1" doctor --config "$2" --vici "unix://$3""#);
    let page = stdout(&out);
    assert!(page.starts_with("problem  forwarding  "), "{page}");
    assert!(page.contains("do: `sysctl -w net.ipv4.ip_forward=1`"), "{page}");
    assert!(page.lines().all(|l| l.chars().count() <= 80) && !page.contains('\x1b'), "{page}");
    assert!(page.lines().last().is_some_and(|l| l.starts_with("1 problem, ")), "{page}");
}

#[test]
fn a_daemon_that_runs_is_asked_and_its_ports_are_its_own() {
    let out = script(
        r#""$1" run --config "$2" --vici "unix://$3" 2> "$3.log" & daemon=$!
        until test -S "$3"; do kill -0 $daemon || exit 9; sleep 0.05; done
        "$1" doctor --config "$2" --vici "unix://$3" --json; status=$?
        kill $daemon; wait $daemon; exit $status"#,
    );
    let doc = document(&out);
    assert_eq!(out.status.code(), Some(0), "{doc:#}");
    let checks = doc["checks"].as_array().expect("a list");
    let said = |name: &str| {
        let check = checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name}: {doc:#}"));
        check["what"].as_str().expect("a text").to_owned()
    };
    assert!(said("daemon").contains("runs as process"), "{}", said("daemon"));
    assert!(said("ports").contains("the daemon's"), "{}", said("ports"));
    assert!(said("privileges").contains("system calls filtered"), "{}", said("privileges"));
    assert!(said("engines").contains("aes128gcm16 by"), "{}", said("engines"));
    assert_eq!(verdicts(&doc, "forwarding"), ["ok"], "{doc:#}");
}

#[test]
fn without_root_nothing_is_left_out_in_silence() {
    let scratch = Scratch::new();
    let program = scratch.path().join("ironswan");
    fs::copy(IRONSWAN, &program).expect("a copy that others may run");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let output = command.args(["doctor", "--config", "/nonexistent", "--json"]).output().expect("setpriv");
    let doc = document(&output);
    for name in ["tun", "nft", "firewall", "flowtables", "kernel-ipsec", "privileges"] {
        assert_eq!(verdicts(&doc, name), ["unknown"], "{name}: {doc:#}");
    }
    let unknown = doc["checks"].as_array().expect("a list").iter().filter(|c| c["verdict"] == "unknown");
    for check in unknown {
        assert!(check["what"].as_str().is_some_and(|w| w.starts_with("not checked: ")), "{check}");
    }
}
