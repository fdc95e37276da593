//! Every check is provoked by facts; `gather_tests` provokes those that a kernel can.

use std::time::{Duration, UNIX_EPOCH};

use ironswan_config::Daemon;
use ironswan_io::clock::Discipline;
use ironswan_io::route::{Address, Link};
use ironswan_io::sysctl::ReversePath;
use ironswan_io::tun::Offloads;
use ironswan_io::xfrm;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::*;
use crate::guard::plan::{Policy, Verdict as Way, from_config};
use crate::start::fitness;

/// A policy between two prefixes.
fn policy(local: &str, remote: &str) -> Policy {
    let ts = |text: &str| ironswan_config::selector(text).expect("a selector");
    Policy {
        name: "net.a".into(),
        verdict: Way::Protect,
        local: ts(local),
        remote: ts(remote),
        priority: 0,
        open: 0,
        guard: true,
    }
}

fn link(name: &str, mtu: u32) -> Link {
    Link { index: 2, name: name.into(), mtu, up: true, carrier: true, ..Link::default() }
}

/// A machine on which nothing is in the way.
fn fit() -> Facts {
    let settings = Daemon::default();
    let engine = |suite: &str| Engine { suite: suite.into(), engine: "vaes".into() };
    Facts {
        wanted: Wanted {
            folder: "/etc/ironswan".into(),
            state: State::Read { connections: 1, errors: 0, warnings: 0 },
            plan: from_config::settings(&settings),
            policies: vec![policy("10.1.0.0/16", "10.2.0.0/16")],
            peers: vec!["192.0.2.2".parse().expect("an address")],
            written: Some(UNIX_EPOCH + Duration::from_secs(1_790_000_000)),
            settings,
        },
        running: None,
        unasked: None,
        machine: Machine {
            now: UNIX_EPOCH + Duration::from_secs(1_795_000_000),
            discipline: Ok(Discipline { synchronised: true, error: Duration::from_millis(3) }),
            random: Ok(true),
            instructions: Ok(["aes", "pclmulqdq", "avx2", "vaes"].map(str::to_owned).to_vec()),
            missing_engines: vec![("ipsec-mb", "not built in")],
            engines: vec![engine("aes128gcm16"), engine("chacha20poly1305")],
            wrong_engines: Vec::new(),
            processors: 4,
            descriptors: Ok(1024),
            own: Ok(Confinement { uid: 0, capabilities: u64::MAX, seccomp: false }),
            daemon: None,
        },
        kernel: Kernel {
            tun: Ok(Offloads { checksum: true, tso: true, uso: true }),
            udp: Ok(Udp { segments: 128, merging: true, buffers: [8 << 20; 2] }),
            buffer_limits: Ok([212_992; 2]),
            backlog: Ok(1000),
            backlog_drops: Ok(0),
            conntrack: Some(Conntrack { stream: 120, unanswered: 30 }),
            xfrm: Ok(xfrm::Kernel::default()),
        },
        network: Network {
            fitness: Ok(fitness::Facts {
                addresses: vec![Address::new(2, "192.0.2.1".parse().expect("an address"), 24)],
                links: vec![link("wan", 1500)],
                forwarding: [true, true],
                ..fitness::Facts::default()
            }),
            not_forwarding: Vec::new(),
            names: Vec::new(),
        },
        processes: Processes { ports: Ok(Vec::new()), others: Ok(Vec::new()) },
        firewall: Firewall { nft: Ok("1.0.6".into()), ruleset: Ok(String::new()), legacy: false },
        places: Places {
            folders: vec![Place { path: "/run".into(), holds: "the VICI socket", writable: Ok(()) }],
            units: ["ironswan.service", "ironswan-guard.service"]
                .map(|name| Unit { name, there: true, enabled: true })
                .to_vec(),
        },
    }
}

/// The one check that is not ok; its name, verdict and words.
#[track_caller]
fn one(facts: &Facts, name: &str, verdict: Verdict, words: &[&str]) {
    let bad: Vec<Check> = judge(facts).into_iter().filter(|c| c.verdict != Verdict::Ok).collect();
    assert_eq!(bad.len(), 1, "{name}: {bad:#?}");
    assert_eq!((bad[0].name, bad[0].verdict), (name, verdict), "{bad:#?}");
    let text = format!("{}; {}", bad[0].what, bad[0].remedy);
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(verdict == Verdict::Unknown || !bad[0].remedy.is_empty(), "a remedy: {bad:#?}");
}

/// As [`one`], of facts that differ in one thing from a fit machine's.
#[track_caller]
fn differs(change: impl FnOnce(&mut Facts), name: &str, verdict: Verdict, words: &[&str]) {
    let mut facts = fit();
    change(&mut facts);
    one(&facts, name, verdict, words);
}

use Verdict::{Problem, Unknown, Warning};

#[test]
fn a_fit_machine_has_no_finding_and_every_check_says_something() {
    let all = judge(&fit());
    assert!(all.iter().all(|c| c.verdict == Verdict::Ok && c.remedy.is_empty()), "{all:#?}");
    for name in [
        "daemon",
        "configuration",
        "clock",
        "entropy",
        "processor",
        "engines",
        "workers",
        "descriptors",
        "privileges",
        "service",
        "folders",
        "tun",
        "udp-offload",
        "buffers",
        "backlog",
        "mtu",
        "forwarding",
        "rp_filter",
        "routes",
        "conntrack",
        "nat",
        "resolver",
        "ports",
        "other-daemons",
        "kernel-ipsec",
        "nft",
        "flowtables",
        "firewall",
    ] {
        assert_eq!(all.iter().filter(|c| c.name == name).count(), 1, "{name}: {all:#?}");
    }
    for c in &all {
        assert!(!c.what.is_empty() && !c.what.contains('\n'), "{c:?}");
    }
}

#[test]
fn a_configuration_that_is_wrong_doubtful_or_missing_is_told() {
    let read = |errors, warnings| State::Read { connections: 2, errors, warnings };
    differs(
        |f| f.wanted.state = read(3, 0),
        "configuration",
        Problem,
        &["3 error", "ironswan check /etc/ironswan"],
    );
    differs(|f| f.wanted.state = read(0, 2), "configuration", Warning, &["2 warning", "ironswan check"]);
    differs(
        |f| f.wanted.state = State::Unread("/x: no such folder".into()),
        "configuration",
        Warning,
        &["no such folder", "--config"],
    );
}

#[test]
fn a_clock_that_is_wrong_or_runs_free_is_told() {
    let at = |f: &mut Facts, secs| f.machine.now = UNIX_EPOCH + Duration::from_secs(secs);
    differs(|f| at(f, 100), "clock", Problem, &["1970", "timedatectl"]);
    differs(|f| at(f, 5_000_000_000), "clock", Problem, &["2128"]);
    differs(|f| at(f, 1_780_000_000), "clock", Problem, &["newest file"]);
    let free = Discipline { synchronised: false, error: Duration::from_secs(16) };
    differs(|f| f.machine.discipline = Ok(free), "clock", Warning, &["synchronises", "chrony"]);
    differs(|f| f.machine.discipline = Err("no".into()), "clock", Unknown, &["not checked: no"]);
}

#[test]
fn a_machine_that_is_slow_or_not_ready_is_told() {
    differs(|f| f.machine.random = Ok(false), "entropy", Problem, &["virtio-rng"]);
    differs(
        |f| f.machine.instructions = Ok(vec!["sse2".into()]),
        "processor",
        Warning,
        &["chacha20poly1305"],
    );
    differs(
        |f| f.machine.wrong_engines = vec!["engine 'vaes' is not used".into()],
        "engines",
        Warning,
        &["vaes", "report"],
    );
    differs(|f| f.machine.engines.clear(), "engines", Unknown, &["engines"]);
    differs(|f| f.machine.descriptors = Ok(64), "descriptors", Warning, &["64", "LimitNOFILE"]);
    differs(|f| f.wanted.settings.tuning.workers = 9, "workers", Warning, &["9 workers for 4 processors"]);
}

#[test]
fn privileges_that_are_missing_and_those_of_the_daemon_are_told() {
    let own = |uid, capabilities| Ok(Confinement { uid, capabilities, seccomp: false });
    differs(
        |f| f.machine.own = own(0, 1 << 10),
        "privileges",
        Problem,
        &["CAP_NET_ADMIN", "CAP_NET_RAW", "--cap-add"],
    );
    differs(|f| f.machine.own = own(1000, 0), "privileges", Unknown, &["as root"]);
    let open = Confinement { uid: 995, capabilities: 0x3000, seccomp: false };
    differs(|f| f.machine.daemon = Some(Ok(open)), "privileges", Warning, &["sandbox", "SECCOMP"]);
    let mut facts = fit();
    facts.machine.daemon = Some(Ok(Confinement { seccomp: true, ..open }));
    let all = judge(&facts);
    let told = all.iter().find(|c| c.name == "privileges").expect("the check");
    assert_eq!(told.what, "the daemon is user 995 with 2 capabilities, system calls filtered");
}

#[test]
fn units_and_folders_are_told() {
    differs(
        |f| f.places.units[1].enabled = false,
        "service",
        Warning,
        &["in clear", "systemctl enable ironswan-guard.service"],
    );
    differs(|f| f.places.units[0].there = false, "service", Warning, &["not installed", "packaging/systemd"]);
    differs(
        |f| f.places.folders[0].writable = Err("read-only".into()),
        "folders",
        Problem,
        &["/run", "read-only", "VICI"],
    );
    differs(
        |f| f.places.folders[0].writable = Err("only root can tell".into()),
        "folders",
        Unknown,
        &["as root"],
    );
}

#[test]
fn offloads_and_sizes_are_told() {
    let tun = |tso, uso| Ok(Offloads { checksum: true, tso, uso });
    differs(|f| f.kernel.tun = tun(true, false), "tun", Warning, &["USO", "6.2"]);
    differs(|f| f.kernel.tun = tun(false, false), "tun", Warning, &["no segmentation offload"]);
    differs(|f| f.kernel.tun = Err("no /dev/net/tun".into()), "tun", Problem, &["modprobe tun"]);
    let udp = |segments, merging, bytes| Ok(Udp { segments, merging, buffers: [bytes; 2] });
    differs(|f| f.kernel.udp = udp(1, true, 8 << 20), "udp-offload", Warning, &["UDP_SEGMENT"]);
    differs(|f| f.kernel.udp = udp(64, false, 8 << 20), "udp-offload", Warning, &["UDP_GRO"]);
    differs(
        |f| f.kernel.udp = udp(64, true, 212_992),
        "buffers",
        Warning,
        &["212992 of the 8388608", "rmem_max"],
    );
    differs(|f| f.kernel.backlog = Ok(100), "backlog", Warning, &["netdev_max_backlog=10000"]);
    differs(|f| f.kernel.backlog_drops = Ok(7), "backlog", Warning, &["7 packets were dropped"]);
    let links =
        |f: &mut Facts, mtu| f.network.fitness.as_mut().expect("facts").links = vec![link("wan", mtu)];
    differs(|f| links(f, 1200), "mtu", Warning, &["1200 at wan", "1280"]);
    differs(|f| links(f, 500), "mtu", Problem, &["500 at wan", "ip link set wan mtu"]);
    differs(|f| f.network.fitness.as_mut().expect("facts").links.clear(), "mtu", Warning, &["no link is up"]);
}

#[test]
fn findings_of_the_start_are_told_by_the_same_words() {
    let facts = |f: &mut Facts| f.network.fitness.clone().expect("facts");
    differs(
        |f| f.network.fitness = Ok(fitness::Facts { forwarding: [false, true], ..facts(f) }),
        "forwarding",
        Problem,
        &["net.a protects 10.1.0.0/16", "sysctl -w net.ipv4.ip_forward=1"],
    );
    differs(
        |f| {
            f.wanted.policies.clear();
            f.network.fitness = Ok(fitness::Facts { forwarding: [false, false], ..facts(f) });
        },
        "forwarding",
        Warning,
        &["own packets only", "ip_forward=1"],
    );
    differs(
        |f| f.network.not_forwarding = vec![("lan".into(), false)],
        "forwarding",
        Warning,
        &["lan", "net/ipv4/conf/lan/forwarding=1"],
    );
    differs(
        |f| {
            f.wanted.policies = vec![policy("10.1.0.0/16", "192.0.2.0/24")];
            let strict = vec!["wan".to_owned()];
            f.network.fitness = Ok(fitness::Facts { reverse_path: ReversePath::Strict, strict, ..facts(f) });
        },
        "rp_filter",
        Problem,
        &["192.0.2.2", "sysctl -w net.ipv4.conf.all.rp_filter=2"],
    );
    differs(
        |f| {
            let marking = vec![("ip mesh".to_owned(), "meta mark set meta mark | 0x10000000".to_owned())];
            f.network.fitness = Ok(fitness::Facts { marking, ..facts(f) });
        },
        "marks",
        Problem,
        &["ip mesh", "steer_mark"],
    );
}

#[test]
fn timeouts_and_names_are_told() {
    differs(
        |f| f.kernel.conntrack = Some(Conntrack { stream: 15, unanswered: 10 }),
        "conntrack",
        Warning,
        &["15 s", "20 s", "nf_conntrack_udp_timeout_stream"],
    );
    let keep = |f: &mut Facts, secs| f.wanted.settings.limits.keep_alive = Duration::from_secs(secs);
    differs(|f| keep(f, 0), "nat", Warning, &["no NAT-keepalives", "keep_alive"]);
    differs(|f| keep(f, 60), "nat", Warning, &["every 60 s", "after 30 s"]);
    differs(
        |f| f.network.names = vec![("hub.example".into(), Err("no answer within 6 s".into()))],
        "resolver",
        Problem,
        &["hub.example", "no answer", "resolv.conf"],
    );
}

#[test]
fn other_programs_are_told() {
    let holder = |ours| Ok(Holder { pid: 42, name: "charon".into(), ours });
    let port = |holder| Port { number: 500, address: "0.0.0.0".parse().expect("an address"), holder };
    let taken = port(holder(false));
    differs(
        |f| f.processes.ports = Ok(vec![taken]),
        "ports",
        Problem,
        &["UDP 500", "charon (process 42)", "systemctl stop strongswan-starter", "kill 42"],
    );
    let hidden = port(Err("only root may see its process".into()));
    differs(|f| f.processes.ports = Ok(vec![hidden]), "ports", Problem, &["only root", "ss -lunp"]);
    let mut facts = fit();
    facts.running = Some(Running { pid: Some(42), workers: 2, ..Running::default() });
    facts.processes.ports = Ok(vec![port(holder(true))]);
    assert!(judge(&facts).iter().all(|c| c.verdict == Verdict::Ok), "the daemon's own ports");
    let other = |here| vec![Other { pid: 7, name: "pluto".into(), here }];
    differs(
        |f| f.processes.others = Ok(other(Ok(true))),
        "other-daemons",
        Warning,
        &["pluto (process 7)", "systemctl disable"],
    );
    differs(
        |f| f.processes.others = Ok(other(Err("only root may see its network namespace".into()))),
        "other-daemons",
        Unknown,
        &["pluto", "as root"],
    );
    facts.processes.others = Ok(other(Ok(false)));
    assert!(judge(&facts).iter().all(|c| c.verdict == Verdict::Ok), "it is in another namespace");
    let kernel = xfrm::Kernel {
        policies: vec!["out 10.1.0.0/16 => 10.2.0.0/16".into()],
        policy_count: 3,
        sa_count: 2,
    };
    differs(
        |f| f.kernel.xfrm = Ok(kernel),
        "kernel-ipsec",
        Warning,
        &["policies (3) and SAs (2)", "10.2.0.0/16", "ip xfrm policy flush"],
    );
}

#[test]
fn rules_of_nftables_are_told() {
    differs(
        |f| f.firewall.nft = Err("the program nft is not there".into()),
        "nft",
        Problem,
        &["apt install nftables"],
    );
    differs(|f| f.firewall.legacy = true, "firewall", Warning, &["iptables-legacy -S"]);
    let chain = |hook: &str, rules: &str| {
        format!(
            "table inet fw {{\n\tchain c {{\n\t\ttype filter hook {hook} priority 0; policy drop;\n\t\t{rules}\n\t}}\n}}\n"
        )
    };
    differs(
        |f| f.firewall.ruleset = Ok(chain("input", "tcp dport 22 accept")),
        "firewall",
        Warning,
        &[
            "likely",
            "inet fw c",
            "UDP 500, UDP 4500, ESP",
            "that arrive",
            "nft insert rule inet fw c udp dport 4500 accept",
        ],
    );
    differs(
        |f| f.firewall.ruleset = Ok(chain("input", "udp dport { 500, 4500 } accept")),
        "firewall",
        Warning,
        &["packets of ESP that arrive", "meta l4proto esp accept"],
    );
    differs(
        |f| f.firewall.ruleset = Ok(chain("output", "oifname \"lo\" drop")),
        "firewall",
        Warning,
        &["that leave"],
    );
    let both = chain("forward", "oifname \"ipsec0\" accept");
    differs(
        |f| f.firewall.ruleset = Ok(both),
        "firewall",
        Warning,
        &["come out of a tunnel", "iifname \"ipsec0\" accept"],
    );
    let flow = |rule: &str| chain("forward", rule).replace("policy drop", "policy accept");
    differs(
        |f| f.firewall.ruleset = Ok(flow("meta l4proto { 6, 17 } flow add @f")),
        "flowtables",
        Problem,
        &["flow add @f", "past the guard", "iifname != \"ipsec0\""],
    );
    let mut facts = fit();
    facts.firewall.ruleset = Ok(flow("iifname != \"ipsec0\" oifname != \"ipsec0\" flow add @f"));
    assert!(judge(&facts).iter().all(|c| c.verdict == Verdict::Ok), "{:#?}", judge(&facts));
    // The guard's own table drops, and that is its purpose.
    facts.firewall.ruleset = Ok(chain("input", "drop").replace("inet fw", "inet ironswan"));
    assert!(judge(&facts).iter().all(|c| c.verdict == Verdict::Ok));
}

#[test]
fn without_root_what_needs_it_is_said_and_nothing_is_a_problem() {
    let mut facts = fit();
    let only = |what: &str| format!("only root may see {what}");
    facts.kernel.tun = Err("only root may make a TUN device (no)".into());
    facts.kernel.xfrm = Err(only("the kernel's own IPsec"));
    facts.kernel.udp = Ok(Udp { segments: 128, merging: true, buffers: [212_992; 2] });
    facts.firewall.ruleset = Err(only("the rules of nftables"));
    facts.machine.own = Ok(Confinement { uid: 1000, capabilities: 0, seccomp: false });
    let all = judge(&facts);
    let unknown: Vec<&str> = all.iter().filter(|c| c.verdict == Unknown).map(|c| c.name).collect();
    assert_eq!(unknown, ["privileges", "tun", "buffers", "kernel-ipsec", "nft", "flowtables", "firewall"]);
    for c in all.iter().filter(|c| c.verdict == Unknown) {
        assert!(c.what.starts_with("not checked: ") && c.remedy.contains("as root"), "{c:?}");
    }
    assert!(all.iter().all(|c| c.verdict != Problem), "{all:#?}");
}

#[test]
fn selectors_of_the_daemon_s_answers_are_read() {
    let ts = ironswan_config::selector("10.1.0.0/16[tcp/80]").expect("a selector");
    assert_eq!((ts.protocol, ts.start_port, ts.end_port), (6, 80, 80));
    let range = AddrRange::prefix("10.1.0.0".parse().expect("an address"), 16).expect("a prefix");
    assert_eq!(ironswan_config::selector("10.1.0.0/16"), Some(TrafficSelector::addresses(range)));
    assert_eq!(ironswan_config::selector("dynamic"), None);
    assert_eq!(ironswan_config::selector("nonsense"), None);
}
