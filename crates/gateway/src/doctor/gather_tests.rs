//! Checks that a kernel can provoke, each in a network namespace of its own.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ironswan_io::namespace;
use ironswan_testkit::scratch::Scratch;

use super::*;

/// A tunnel for the network behind this gateway.
const CONFIGURATION: &str = "connections { net { local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n local { auth = psk\n id = a }\n\
    remote { auth = psk\n id = b }\n children { net { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n\
    secrets { ike-1 { secret = 0123456789abcdef0123456789abcdef } }\n";

/// Runs `test` on a thread in a network namespace with a link that is up and forwards.
fn in_namespace(test: impl FnOnce() + Send) {
    let body = || {
        namespace::unshare().expect("these tests need root: they make network namespaces");
        run("ip link set lo up");
        run("ip link add wan type veth peer name other");
        run("ip address add 192.0.2.1/24 dev wan");
        run("ip link set wan up");
        run("ip link set other up");
        set("net/ipv4/ip_forward", "1");
        set("net/ipv6/conf/all/forwarding", "1");
        test();
    };
    std::thread::scope(|s| s.spawn(body).join()).expect("the test's thread");
}

#[track_caller]
fn run(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status().expect("it runs");
    assert!(status.success(), "{line}");
}

fn set(path: &str, value: &str) {
    fs::write(format!("/proc/sys/{path}"), value).expect("a setting");
}

/// All checks of this namespace, with a configuration.
fn checks(configuration: &str) -> Vec<Check> {
    let folder = Scratch::new();
    folder.write("swanctl.conf", configuration);
    let socket = folder.path().join("vici");
    judge(&gather(&Given { folder: folder.path().to_owned(), running: None, unasked: None, socket }))
}

/// The checks of this name that are not ok.
fn bad<'a>(all: &'a [Check], name: &str) -> Vec<&'a Check> {
    all.iter().filter(|c| c.name == name && c.verdict != Verdict::Ok).collect()
}

#[track_caller]
fn one(all: &[Check], name: &str, verdict: Verdict, words: &[&str]) {
    let found = bad(all, name);
    assert_eq!(found.len(), 1, "{name}: {all:#?}");
    let text = format!("{}; {}", found[0].what, found[0].remedy);
    assert!(found[0].verdict == verdict && words.iter().all(|w| text.contains(w)), "{found:?}");
}

/// A process that has a UDP port, and is not this program.
fn occupy(port: u16) -> Child {
    let code = format!(
        "import socket,sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', {port}))\nprint('bound', flush=True)\n\
         sys.stdin.read()"
    );
    let mut child = Command::new("python3");
    let mut child =
        child.args(["-c", &code]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    assert_eq!(line, "bound\n");
    child
}

#[test]
fn a_namespace_that_is_fit_has_no_problem() {
    in_namespace(|| {
        let all = checks(CONFIGURATION);
        let problems: Vec<&Check> = all.iter().filter(|c| c.verdict == Verdict::Problem).collect();
        assert!(problems.is_empty(), "{problems:#?}");
        for name in [
            "configuration",
            "tun",
            "udp-offload",
            "buffers",
            "mtu",
            "forwarding",
            "rp_filter",
            "ports",
            "nft",
        ] {
            assert!(all.iter().any(|c| c.name == name && c.verdict == Verdict::Ok), "{name}: {all:#?}");
        }
        assert!(all.iter().any(|c| c.name == "mtu" && c.what.contains("1500 at wan")), "{all:#?}");
        assert!(all.iter().any(|c| c.name == "kernel-ipsec" && c.verdict == Verdict::Ok), "{all:#?}");
    });
}

#[test]
fn forwarding_that_is_off_is_a_problem_and_off_at_one_interface_a_warning() {
    in_namespace(|| {
        set("net/ipv4/conf/wan/forwarding", "0");
        one(&checks(CONFIGURATION), "forwarding", Verdict::Warning, &["wan passes no IPv4 on"]);
        set("net/ipv4/ip_forward", "0");
        let words = ["net.net protects 10.1.0.0/24", "sysctl -w net.ipv4.ip_forward=1"];
        one(&checks(CONFIGURATION), "forwarding", Verdict::Problem, &words);
    });
}

#[test]
fn a_strict_rp_filter_is_a_problem_where_it_drops() {
    in_namespace(|| {
        set("net/ipv4/conf/all/rp_filter", "1");
        assert!(bad(&checks(CONFIGURATION), "rp_filter").is_empty(), "it is in no policy's way");
        let finer = CONFIGURATION.replace("10.2.0.0/24", "10.2.0.0/24[tcp/80]");
        one(&checks(&finer), "rp_filter", Verdict::Problem, &["10.2.0.0/24[tcp/80]", "rp_filter=2"]);
        set("net/ipv4/conf/all/rp_filter", "2");
        assert!(bad(&checks(&finer), "rp_filter").is_empty());
    });
}

#[test]
fn a_port_that_another_process_has_is_a_problem_with_its_name() {
    in_namespace(|| {
        let mut child = occupy(4500);
        let pid = child.id();
        let all = checks(CONFIGURATION);
        drop(child.stdin.take());
        child.wait().expect("it ends");
        one(&all, "ports", Verdict::Problem, &["UDP 4500 at 0.0.0.0", "python3", &format!("process {pid}")]);
        assert!(bad(&checks(CONFIGURATION), "ports").is_empty(), "the port is free again");
    });
}

#[test]
fn a_narrow_link_is_a_warning_and_a_tiny_one_a_problem() {
    in_namespace(|| {
        run("ip link set wan mtu 1200");
        one(&checks(CONFIGURATION), "mtu", Verdict::Warning, &["1200 at wan", "1280"]);
        run("ip link set wan mtu 400");
        one(&checks(CONFIGURATION), "mtu", Verdict::Problem, &["400 at wan"]);
    });
}

#[test]
fn an_input_chain_that_drops_ike_is_a_hint_until_a_rule_lets_it_in() {
    in_namespace(|| {
        run("nft add table inet fw");
        run("nft add chain inet fw in { type filter hook input priority 0 ; policy drop ; }");
        run("nft add rule inet fw in ct state established,related accept");
        let words = [
            "likely",
            "inet fw in",
            "UDP 500, UDP 4500, ESP",
            "nft insert rule inet fw in udp dport 500 accept",
        ];
        let all = checks(CONFIGURATION);
        one(&all, "firewall", Verdict::Warning, &words);
        // The remedies are commands that work.
        let remedy = &bad(&all, "firewall")[0].remedy;
        for command in remedy.split('`').filter(|c| c.starts_with("nft ")) {
            run(command);
        }
        assert!(bad(&checks(CONFIGURATION), "firewall").is_empty());
    });
}

#[test]
fn a_forward_chain_that_drops_what_tunnels_carry_is_a_hint() {
    in_namespace(|| {
        run("nft add table ip filter");
        run("nft add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }");
        let all = checks(CONFIGURATION);
        let found = bad(&all, "firewall");
        assert_eq!(found.len(), 2, "{found:#?}");
        for c in found {
            run(c.remedy.trim_matches('`').replace('"', "").as_str());
        }
        assert!(bad(&checks(CONFIGURATION), "firewall").is_empty());
    });
}

#[test]
fn routes_and_rules_of_others_are_told() {
    in_namespace(|| {
        run("ip route add 10.9.0.0/16 dev wan table 220");
        run("ip rule add priority 100 to 10.2.0.0/24 lookup 100");
        let all = checks(CONFIGURATION);
        one(
            &all,
            "routes",
            Verdict::Warning,
            &["10.9.0.0/16 dev wan", "ip route del 10.9.0.0/16 dev wan table 220"],
        );
        one(&all, "rules", Verdict::Warning, &["100:", "asked before"]);
    });
}

#[test]
fn a_conntrack_that_forgets_too_soon_is_a_warning() {
    in_namespace(|| {
        // Connection tracking of a namespace begins with the first rule that asks for it.
        run("nft add table inet t");
        run("nft add chain inet t c { type filter hook input priority 0 ; }");
        run("nft add rule inet t c ct state new accept");
        set("net/netfilter/nf_conntrack_udp_timeout_stream", "15");
        one(&checks(CONFIGURATION), "conntrack", Verdict::Warning, &["15 s", "timeout_stream=120"]);
    });
}

#[test]
fn a_wrong_configuration_and_none_are_told() {
    in_namespace(|| {
        let wrong = CONFIGURATION.replace("remote_addrs", "remote_adrs");
        one(&checks(&wrong), "configuration", Verdict::Problem, &["error", "ironswan check"]);
        let folder = std::path::PathBuf::from("/nonexistent");
        let all = judge(&gather(&Given {
            folder,
            running: None,
            unasked: None,
            socket: "/run/ironswan.vici".into(),
        }));
        one(&all, "configuration", Verdict::Warning, &["/nonexistent", "--config"]);
    });
}

#[test]
fn a_look_at_a_machine_ends_soon() {
    let begun = ironswan_io::clock::now();
    in_namespace(|| drop(checks(CONFIGURATION)));
    let took = ironswan_io::clock::now().saturating_duration_since(begun);
    assert!(took < Duration::from_secs(30), "{took:?}");
}
