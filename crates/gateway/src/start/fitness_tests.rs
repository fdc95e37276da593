use ironswan_io::route::{Destination, Rule};
use ironswan_wire::selector::TrafficSelector;

use super::*;

fn settings(nft: bool) -> Settings {
    let device = "ipsec0".to_owned();
    Settings { device, mark: 0x220, steer_mark: 0x1000_0000, ports: [500, 4500], vrf: false, nft }
}

fn policy(local: &str, remote: &str) -> Policy {
    let ts = |text: &str| {
        let (ip, len) = text.split_once('/').unwrap();
        TrafficSelector::addresses(AddrRange::prefix(ip.parse().unwrap(), len.parse().unwrap()).unwrap())
    };
    let (local, remote) = (ts(local), ts(remote));
    Policy {
        name: "net.a".into(),
        verdict: Verdict::Protect,
        local,
        remote,
        priority: 0,
        open: 0,
        guard: true,
    }
}

fn fit() -> Facts {
    let local = Rule { priority: 0, table: 255, mark: None, mask: u32::MAX, ..Rule::marked(false, 1) };
    let mut rules = vec![Rule { protocol: 2, ..local }];
    for (priority, table) in [(32_766, 254), (32_767, 253)] {
        rules.push(Rule { priority, table, protocol: 2, ..local });
    }
    rules.extend([Rule::marked(false, 0x1000_0000), Rule::fallback(false, 0x220, true)]);
    Facts {
        rules: rules.into_iter().map(|rule| ListedRule { rule, lookup: true, conditions: false }).collect(),
        addresses: vec![Address::new(2, "192.0.2.1".parse().unwrap(), 24)],
        links: vec![Link { index: 2, name: "wan".into(), ..Link::default() }],
        forwarding: [true, true],
        ..Facts::default()
    }
}

fn listed(rule: Rule) -> ListedRule {
    ListedRule { rule: Rule { protocol: 4, ..rule }, lookup: true, conditions: false }
}

/// The one finding, with all of these words in it.
#[track_caller]
fn one(found: &[String], words: &[&str]) {
    assert_eq!(found.len(), 1, "{found:#?}");
    for word in words {
        assert!(found[0].contains(word), "{word}: {}", found[0]);
    }
}

fn run(facts: &Facts, nft: bool, policies: &[Policy]) -> Vec<String> {
    let found = check(facts, &settings(nft), policies, &["192.0.2.2".parse().unwrap()]);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn a_fit_machine_gets_no_finding() {
    assert_eq!(run(&fit(), true, &[policy("10.1.0.0/16", "10.2.0.0/16")]), [""; 0]);
}

#[test]
fn interfaces_that_were_left_out_are_named() {
    let facts = Facts { left_out: vec!["an interface is left out".into()], ..fit() };
    one(&run(&facts, true, &[policy("10.1.0.0/16", "10.2.0.0/16")]), &["an interface is left out"]);
}

#[test]
fn another_program_s_route_in_the_table_is_named_with_its_owner() {
    let mut facts = fit();
    let destination = Destination { ip: "10.9.0.0".parse().unwrap(), prefix_len: 16 };
    let route = Route {
        table: TABLE,
        destination,
        kind: RouteKind::Device(2),
        metric: 0,
        source: None,
        mtu: 0,
        protocol: 4,
    };
    facts.routes = vec![Route { protocol: PROTOCOL, ..route.clone() }, route];
    one(&run(&facts, true, &[]), &["10.9.0.0/16 dev wan", "4, static", "ip route del", "left alone"]);
    facts.routes = vec![facts.routes[1].clone(); 20];
    assert_eq!(run(&facts, true, &[]).len(), EACH + 1, "bounded");
}

#[test]
fn another_program_s_rules_before_ours_or_with_our_priority_are_named() {
    let plain = Rule { mark: None, mask: u32::MAX, table: 100, ..Rule::marked(false, 1) };
    for (priority, words) in [
        (100, &["100: from all lookup 100", "asked before", "above 220", "the guard drops"][..]),
        (219, &["219: from all lookup 100", "another priority"]),
        (220, &["220: from all lookup 100", "another priority"]),
    ] {
        let mut facts = fit();
        facts.rules.push(listed(Rule { priority, ..plain }));
        facts.rules.push(listed(Rule { priority, ipv6: true, ..plain }));
        one(&run(&facts, true, &[]), words);
    }
    let mut facts = fit();
    facts.rules.push(listed(Rule { priority: 1000, ..plain }));
    assert_eq!(run(&facts, true, &[]), [""; 0]);
    facts.rules.push(ListedRule { lookup: false, conditions: true, ..listed(Rule { priority: 7, ..plain }) });
    one(&run(&facts, false, &[]), &["7: from all ... (no table) (with other conditions)", "it decides"]);
}

#[test]
fn another_program_s_use_of_our_mark_is_named() {
    let wireguard =
        Rule { mark: Some(0xca6c), mask: u32::MAX, not: true, priority: 32_765, ..Rule::marked(false, 1) };
    let mut facts = fit();
    facts.rules.push(listed(wireguard));
    one(&run(&facts, true, &[]), &["not from all fwmark 0xca6c", "0x220", "ironswan.conf"]);
    // Other bits, but all of them are asked for.
    facts.rules.pop();
    facts.rules.push(listed(Rule { mark: Some(1), ..wireguard }));
    one(&run(&facts, true, &[]), &["fwmark 0x1/0xeffffddf"]);
    assert_eq!(run(&facts, false, &[]), [""; 0], "without nft no mark is put on others' packets");
    facts.rules.pop();
    facts.rules.push(listed(Rule { mark: Some(1), mask: 0xff & !0x20, ..wireguard }));
    assert_eq!(run(&facts, true, &[]), [""; 0]);
}

#[test]
fn a_strict_check_of_the_way_back_is_named_where_it_would_drop() {
    let mut facts = fit();
    (facts.reverse_path, facts.strict) = (ReversePath::Strict, vec!["wan".into()]);
    assert_eq!(run(&facts, true, &[policy("10.1.0.0/16", "10.2.0.0/16")]), [""; 0]);
    let covering = [policy("10.1.0.0/16", "192.0.2.0/24")];
    let words = ["net.ipv4.conf.all.rp_filter is 1", "192.0.2.0/24", "192.0.2.2", "rp_filter=2"];
    one(&run(&facts, true, &covering), &words);
    // Everything is protected: without nft the way back to the peer leads into the tunnel too.
    let broad = [policy("10.1.0.0/16", "0.0.0.0/0")];
    assert_eq!(run(&facts, true, &broad), [""; 0]);
    one(&run(&facts, false, &broad), &["0.0.0.0/0", "rp_filter=2"]);
    let mut ports = policy("10.1.0.0/16", "10.2.0.0/16");
    (ports.remote.protocol, ports.remote.start_port, ports.remote.end_port) = (6, 80, 80);
    one(&run(&facts, true, &[ports.clone()]), &["10.2.0.0/16[tcp/80]", "in clear"]);
    facts.reverse_path = ReversePath::Off;
    one(&run(&facts, true, &[ports]), &["rp_filter is 1 on wan"]);
}

#[test]
fn forwarding_that_is_off_is_named_when_others_are_to_be_carried() {
    let mut facts = fit();
    facts.forwarding = [false, true];
    one(
        &run(&facts, true, &[policy("10.1.0.0/16", "10.2.0.0/16")]),
        &["10.1.0.0/16", "net.ipv4.ip_forward=1"],
    );
    assert_eq!(run(&facts, true, &[policy("192.0.2.1/32", "10.2.0.0/16")]), [""; 0], "a host's own address");
    one(&run(&facts, true, &[policy("192.0.2.9/32", "10.2.0.0/16")]), &["192.0.2.9/32"]);
    facts.forwarding = [true, false];
    one(&run(&facts, true, &[policy("fd01::/64", "fd02::/64")]), &["net.ipv6.conf.all.forwarding=1"]);
    assert_eq!(run(&facts, true, &[policy("10.1.0.0/16", "10.2.0.0/16")]), [""; 0]);
}

#[test]
fn nft_rules_that_use_bits_of_the_marks_are_named_with_the_bits() {
    for (rule, bits) in [
        ("meta mark set meta mark | 0x10000000 accept", 0x1000_0000),
        ("meta mark & 0x0000ff00 == 0x00000200 drop", 0xff00),
        ("meta mark set meta mark & 0xffffff00 | 0x00000012", 0xff),
        ("ip daddr 10.0.0.1 meta mark set 0x00000001", u32::MAX),
        ("meta mark 0x00000220 accept", 0x220),
        ("meta mark and 0x4000 == 0x4000 return", 0x4000),
        ("ct mark set meta mark", 0),
        ("ct mark set meta mark and 0xff", 0),
        ("ct mark set 0x10000000 meta mark set 0x4000", u32::MAX),
        ("ct mark & 0x00000080 == 0x00000080 accept", 0x80),
        ("meta mark & 0x000000ff == 0x00000001 meta mark set meta mark | 0x00010000", 0x1_00ff),
        ("meta mark set ct mark & 0x0000000f", !0xf),
        ("tcp dport 22 meta mark set meta mark xor 0x4000", 0x4000),
        ("counter accept", 0),
    ] {
        assert_eq!(mark_bits(rule), bits, "{rule}");
    }
    let ruleset = "table inet ironswan {\n\tchain c {\n\t\tmeta mark set meta mark | 0x220\n\t}\n}\ntable ip mesh {\n\tchain pre \
                   {\n\t\tmeta mark set meta mark | 0x10000000\n\t\tmeta mark & 0x40000000 != 0x0 accept\n\t}\n}\n";
    let facts = Facts { marking: marking(ruleset), ..fit() };
    let found = run(&facts, true, &[]);
    one(&found, &["`meta mark set meta mark | 0x10000000`", "table ip mesh", "steer_mark", "ironswan.conf"]);
    assert_eq!(run(&facts, false, &[]), [""; 0], "without nft nothing is marked");
}

#[test]
fn interfaces_of_programs_that_mark_by_themselves_are_named() {
    for name in ["cilium_host", "cali01234567890"] {
        let link = Link { name: name.into(), ..Link::default() };
        one(&run(&Facts { links: vec![link], ..fit() }, true, &[]), &[name, "0xffff", "steer_mark"]);
    }
}

#[test]
fn vrfs_are_left_alone_and_that_is_said() {
    let mut facts = fit();
    let vrf = Rule { priority: 1000, protocol: 2, ..Rule::vrf(false) };
    facts.rules.push(ListedRule { rule: vrf, lookup: true, conditions: false });
    facts.rules.push(ListedRule { rule: Rule::vrf(false), lookup: true, conditions: false });
    one(
        &run(&facts, true, &[]),
        &["`1000: from all lookup [l3mdev-table]`", "218", "neither steered nor guarded"],
    );
    // One that stands before ours is as it should be.
    facts.rules[5].rule.priority = 100;
    assert_eq!(run(&facts, true, &[]), [""; 0]);
}
