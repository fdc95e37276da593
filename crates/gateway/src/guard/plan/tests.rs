//! Plans for one policy of each kind.

use super::*;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

pub(super) fn ts(text: &str) -> TrafficSelector {
    let (range, rest) = text.split_once('[').unwrap_or((text, ""));
    let range = if let Some((a, b)) = range.split_once("..") {
        AddrRange::new(a.parse().unwrap(), b.parse().unwrap()).unwrap()
    } else {
        let (a, len) = range.split_once('/').unwrap();
        AddrRange::prefix(a.parse().unwrap(), len.parse().unwrap()).unwrap()
    };
    let mut ts = TrafficSelector::addresses(range);
    if let Some((protocol, ports)) = rest.trim_end_matches(']').split_once('/') {
        ts.protocol = protocol.parse().unwrap();
        (ts.start_port, ts.end_port) = match ports.split_once('-') {
            _ if ports == "any" => (0, 65535),
            _ if ports == "opaque" => (65535, 0),
            Some((a, b)) => (a.parse().unwrap(), b.parse().unwrap()),
            None => (ports.parse().unwrap(), ports.parse().unwrap()),
        };
    }
    ts
}

pub(super) fn policy(verdict: Verdict, local: &str, remote: &str) -> Policy {
    Policy {
        name: "site.net".into(),
        verdict,
        local: ts(local),
        remote: ts(remote),
        priority: 0,
        open: 0,
        guard: true,
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        device: "ipsec0".into(),
        mark: 0x220,
        steer_mark: 0x1000_0000,
        ports: [500, 4500],
        vrf: false,
        nft: true,
    }
}

fn routes(plan: &Plan) -> Vec<String> {
    let letter = |way: &Way| if *way == Way::Tunnel { "" } else { "throw " };
    plan.routes.iter().map(|(d, way)| format!("{}{d}", letter(way))).collect()
}

/// The elements of a map that lead to a chain.
fn map(plan: &Plan, name: &str) -> Vec<String> {
    elements(plan, name).into_iter().filter(|e| !e.ends_with(" : accept")).collect()
}

/// All elements of a map.
fn elements(plan: &Plan, name: &str) -> Vec<String> {
    let text = plan.nft.as_deref().unwrap();
    let Some((_, rest)) = text.split_once(&format!("map {name} {{")) else { return Vec::new() };
    let body = rest.split_once('}').unwrap().0;
    body.lines()
        .skip(1)
        .map(|l| l.trim().trim_end_matches(',').to_owned())
        .filter(|l| !l.is_empty())
        .collect()
}

/// The rules of a chain, without the one that finds errors: see the tests of `quoted`.
fn chain(plan: &Plan, name: &str) -> Vec<String> {
    let text = plan.nft.as_deref().unwrap();
    let (_, rest) =
        text.split_once(&format!("\tchain {name} {{\n")).unwrap_or_else(|| panic!("no {name}:\n{text}"));
    let rules = rest.lines().take_while(|l| *l != "\t}").map(|l| l.trim().to_owned());
    rules.filter(|l| !l.starts_with(quoted::dispatch(name[1..].starts_with('6')))).collect()
}

#[test]
fn one_tunnel_has_one_route_one_element_each_way_and_the_rules_of_its_family() {
    let p = plan(&settings(), &[policy(Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16")]);
    assert_eq!(routes(&p), ["10.2.0.0/16"]);
    assert_eq!(p.rules, [Rule::marked(false, 0x1000_0000), Rule::fallback(false, 0x220, true)]);
    assert_eq!(map(&p, "out4"), ["10.2.0.0/16 : goto o4_0"]);
    assert_eq!(map(&p, "in4"), ["10.2.0.0/16 : goto i4_0"]);
    assert_eq!(chain(&p, "o4_0"), ["ip saddr 10.1.0.0/16 return", "goto skip"]);
    assert_eq!(chain(&p, "i4_0"), ["ip daddr != 10.1.0.0/16 accept"]);
    assert!(!p.nft.as_ref().unwrap().contains("out6"));
    assert_eq!((p.serving[0].chains.as_slice(), p.serving[0].routes.len()), (&["o4_0".to_owned()][..], 1));
    assert_eq!(p.warnings, [""; 0]);
}

#[test]
fn every_address_has_an_element_and_a_family_without_policies_one_rule() {
    let p = plan(
        &settings(),
        &[
            policy(Verdict::Protect, "10.1.0.0/16", "0.0.0.0/8"),
            policy(Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16"),
            policy(Verdict::Protect, "10.1.0.0/16[6/any]", "10.3.0.0/16[6/80]"),
            policy(Verdict::Protect, "10.1.0.0/16", "255.255.255.255/32"),
        ],
    );
    assert_eq!(
        elements(&p, "out4"),
        [
            "0.0.0.0/8 : goto o4_0",
            "1.0.0.0-10.1.255.255 : accept",
            "10.2.0.0/16 : goto o4_0",
            "10.3.0.0/16 : goto o4_1",
            "10.4.0.0-255.255.255.254 : accept",
            "255.255.255.255/32 : goto o4_0",
        ]
    );
    assert!(!chain(&p, "o4_0").is_empty() && !chain(&p, "o4_1").is_empty());
    // Nothing is let through behind the maps, but what a tunnel is to carry or has carried.
    assert_eq!(
        chain(&p, "in"),
        ["ip saddr vmap @in4", "meta nfproto ipv6 accept", "oifname \"ipsec0\" accept"]
    );
    assert_eq!(
        chain(&p, "out"),
        ["ip daddr vmap @out4", "meta nfproto ipv6 accept", "meta oif != 0 iifname \"ipsec0\" accept"]
    );
    let six = plan(&settings(), &[policy(Verdict::Protect, "::/0", "::/0")]);
    assert_eq!(chain(&six, "out")[0], "meta nfproto ipv4 accept");
    let passed: Vec<_> = elements(&six, "in6").into_iter().filter(|e| e.ends_with(" : accept")).collect();
    assert_eq!(passed, ["fe80::/10 : accept", "ff00::/8 : accept"], "link scope alone");
}

#[test]
fn where_tunnels_meet_nothing_at_all_is_let_through_behind_the_maps() {
    let closed = |policies: &[Policy]| {
        let p = plan(&settings(), policies);
        let at_the_end =
            |name: &str, rule: &str| chain(&p, name).last().is_some_and(|last| last.contains(rule));
        let open = [at_the_end("out", "iifname"), at_the_end("in", "oifname")];
        assert_eq!(open[0], open[1]);
        !open[0]
    };
    let protect = |local, remote| policy(Verdict::Protect, local, remote);
    assert!(closed(&[protect("10.2.0.0/16", "10.1.0.0/16"), protect("10.1.0.0/16", "10.2.0.0/16")]), "a hub");
    assert!(closed(&[protect("0.0.0.0/0", "10.2.0.0/16")]), "what is local is everything");
    let unguarded = Policy { guard: false, ..protect("10.2.0.0/24", "10.3.0.0/16") };
    assert!(closed(&[unguarded.clone(), protect("10.1.0.0/16", "10.2.0.0/16")]));
    assert!(!closed(&[protect("10.1.0.0/16", "10.2.0.0/16"), protect("10.1.0.0/16", "10.3.0.0/16")]));
    assert!(!closed(&[protect("10.1.0.0/16", "0.0.0.0/0")]), "its own side is none of the remote one");
    assert!(!closed(&[
        policy(Verdict::Bypass, "10.2.0.0/16", "10.3.0.0/16"),
        protect("10.1.0.0/16", "10.2.0.0/16")
    ]));
}

#[test]
fn the_own_side_of_a_child_is_no_hole_in_the_policy_of_its_namesake_in_another_connection() {
    let of =
        |name: &str, local, remote| Policy { name: name.into(), ..policy(Verdict::Protect, local, remote) };
    // b.net covers what 10.5.0.0/16 sends to 10.1.0.0/16, which is only a.net's own side.
    let p = plan(
        &settings(),
        &[of("a.net", "10.1.0.0/16", "0.0.0.0/0"), of("b.net", "10.5.0.0/16", "10.0.0.0/8")],
    );
    let to_a: Vec<_> =
        elements(&p, "out4").into_iter().filter(|e| e.starts_with("10.1.0.0/16 : goto ")).collect();
    assert_eq!(to_a.len(), 1, "{:?}", elements(&p, "out4"));
    let rules = chain(&p, to_a[0].rsplit(' ').next().unwrap());
    assert_eq!(rules, ["ip saddr 10.5.0.0/16 return", "goto skip"]);
}

#[test]
fn without_policies_there_is_nothing_but_the_removal_of_what_stood() {
    let p = plan(&settings(), &[]);
    assert_eq!(p.nft.as_deref(), Some("table inet ironswan {}\ndelete table inet ironswan\n"));
    assert_eq!((p.rules.len(), p.routes.len()), (0, 0));
    let only_a_hole = plan(&settings(), &[policy(Verdict::Bypass, "10.1.0.0/16", "10.2.0.0/16")]);
    assert_eq!((only_a_hole.nft, only_a_hole.rules.len(), only_a_hole.routes.len()), (p.nft, 0, 0));
}

#[test]
fn a_policy_that_is_not_guarded_is_steered_and_asks_nothing_inbound() {
    let p = Policy { guard: false, ..policy(Verdict::Protect, "fd01::/32", "fd02::/32") };
    let p = plan(&settings(), &[p]);
    assert_eq!(chain(&p, "o6_0"), ["ip6 saddr fd01::/32 goto steer", "goto skip"]);
    let text = p.nft.unwrap();
    assert!(
        !text.contains("in6") && !text.contains("hook postrouting") && !text.contains("hook input"),
        "{text}"
    );
}

#[test]
fn a_hole_by_destination_and_the_own_side_lead_back() {
    let p = plan(
        &settings(),
        &[
            policy(Verdict::Protect, "10.1.0.0/16", "10.0.0.0/8"),
            policy(Verdict::Bypass, "10.0.0.0/8", "10.9.0.0/16"),
            policy(Verdict::Bypass, "10.1.5.0/24", "10.8.0.0/16"),
        ],
    );
    // The second hole does not know its own side by destination alone: marks do.
    assert_eq!(routes(&p), ["10.0.0.0/8", "throw 10.1.0.0/16", "throw 10.9.0.0/16"]);
    assert_eq!(
        map(&p, "out4"),
        [
            "10.0.0.0/16 : goto o4_0",
            "10.1.0.0/16 : goto o4_1",
            "10.2.0.0-10.7.255.255 : goto o4_0",
            "10.8.0.0/16 : goto o4_2",
            "10.9.0.0/16 : goto o4_1",
            "10.10.0.0-10.255.255.255 : goto o4_0",
        ]
    );
    assert_eq!(chain(&p, "o4_1"), ["goto skip"]);
    assert_eq!(
        chain(&p, "o4_2"),
        ["ip saddr 10.1.5.0/24 goto skip", "ip saddr 10.1.0.0/16 return", "goto skip"]
    );
    assert!(map(&p, "in4").iter().all(|e| !e.contains("10.9")), "passes inbound without a question");
}

#[test]
fn two_networks_of_one_child_reach_each_other_two_children_get_a_warning() {
    let of =
        |name: &str, local| Policy { name: name.into(), ..policy(Verdict::Protect, local, "10.0.0.0/8") };
    let one = plan(&settings(), &[of("a.net", "10.1.0.0/16"), of("a.net", "10.2.0.0/16")]);
    assert_eq!(
        map(&one, "out4")[1..3],
        ["10.1.0.0-10.2.255.255 : goto o4_1", "10.3.0.0-10.255.255.255 : goto o4_0"]
    );
    assert_eq!((chain(&one, "o4_1"), one.warnings.len()), (vec!["goto skip".to_owned()], 0));
    let two = plan(&settings(), &[of("a.x", "10.1.0.0/16"), of("a.y", "10.2.0.0/16")]);
    assert_eq!(two.warnings.len(), 2, "{:?}", two.warnings);
    assert!(
        two.warnings[0].starts_with("a.x: protects 10.2.0.0/16, too, which is a.y's own side"),
        "{:?}",
        two.warnings
    );
}

#[test]
fn link_scope_stays_on_the_link_unless_a_policy_names_it() {
    let p = plan(
        &settings(),
        &[
            policy(Verdict::Protect, "10.1.0.0/16", "0.0.0.0/1"),
            policy(Verdict::Protect, "10.1.0.0/16", "128.0.0.0/1"),
            policy(Verdict::Protect, "10.1.0.0/16", "169.254.7.0/30"),
        ],
    );
    let want = [
        "0.0.0.0/1",
        "throw 10.1.0.0/16",
        "128.0.0.0/1",
        "throw 169.254.0.0/16",
        "169.254.7.0/30",
        "throw 224.0.0.0/4",
        "throw 255.255.255.255/32",
    ];
    assert_eq!(routes(&p), want);
    let chain_of = |key: &str| {
        let all = map(&p, "out4");
        let element = all.iter().find(|e| e.starts_with(key)).unwrap_or_else(|| panic!("{key} in {all:?}"));
        chain(&p, element.rsplit(' ').next().unwrap())
    };
    assert_eq!(chain_of("169.254.0.0"), ["goto skip"]);
    assert_eq!(chain_of("169.254.7.0/30"), ["ip saddr 10.1.0.0/16 return", "goto skip"]);
    assert_eq!(chain_of("255.255.255.255/32"), ["goto skip"]);
}

#[test]
fn each_kind_of_selector_asks_what_the_packet_shows() {
    let of = |local: &str, remote: &str| {
        let p = plan(&settings(), &[policy(Verdict::Protect, local, remote)]);
        (p.clone(), chain(&p, "o4_0"))
    };
    assert_eq!(
        of("10.1.0.0/16[6/any]", "10.2.0.0/16[6/any]").1[0],
        "ip saddr 10.1.0.0/16 meta l4proto 6 return"
    );
    let (p, head) = of("10.1.0.0/16[6/any]", "10.2.0.0/16[6/80-90]");
    assert_eq!(head[0], "ip frag-off & 0x1fff == 0 @th,0,32 & 0 == 0 goto o4_0s");
    assert_eq!(head[1], "ip saddr 10.1.0.0/16 meta l4proto 6 return", "what does not show its ports");
    assert_eq!(chain(&p, "o4_0s")[0], "ip saddr 10.1.0.0/16 meta l4proto 6 th dport 80-90 return");
    assert_eq!(chain(&p, "i4_0s")[0], "ip daddr 10.1.0.0/16 meta l4proto 6 th sport 80-90 return");
    let (p, _) = of("0.0.0.0/0[1/2048]", "10.2.0.0/16[1/2048]");
    let all = chain(&p, "o4_0s");
    assert_eq!(all[all.len() - 2], "meta l4proto 1 @th,0,16 2048 return");
    assert!(all[..3].contains(&"ip saddr 169.254.0.0/16 goto skip".to_owned()), "not from the link: {all:?}");
    let (p, head) = of("10.1.0.0/16[0/opaque]", "10.2.0.0/16[0/opaque]");
    assert_eq!(head[1], "ip saddr 10.1.0.0/16 return");
    assert_eq!(chain(&p, "o4_0s")[0], "ip saddr 10.1.0.0/16 meta l4proto != @with_either return");
    let (_, all) = of("10.1.0.0/16", "10.2.0.1..10.2.0.6");
    assert_eq!(all, ["ip saddr 10.1.0.0/16 return", "goto skip"]);
}

#[test]
fn without_nft_routes_steer_and_what_they_cannot_tell_apart_is_named() {
    let settings = Settings { nft: false, ..settings() };
    let p = plan(
        &settings,
        &[
            policy(Verdict::Protect, "10.1.0.0/16", "0.0.0.0/0"),
            policy(Verdict::Protect, "10.1.0.0/16[6/any]", "10.2.0.0/16[6/80]"),
            policy(Verdict::Bypass, "10.1.0.0/16", "10.3.0.0/16"),
            policy(Verdict::Bypass, "10.1.0.0/16[6/any]", "10.4.0.0/16[6/22]"),
        ],
    );
    assert_eq!((p.nft.as_ref(), p.rules.as_slice()), (None, &[Rule::fallback(false, 0x220, false)][..]));
    let want = [
        "0.0.0.0/0",
        "throw 10.1.0.0/16",
        "10.2.0.0/16",
        "throw 10.3.0.0/16",
        "throw 169.254.0.0/16",
        "throw 224.0.0.0/4",
        "throw 255.255.255.255/32",
    ];
    assert_eq!(routes(&p), want);
    assert_eq!(p.warnings.len(), 2, "{:?}", p.warnings);
    assert!(
        p.warnings[0].contains("10.4.0.0/16[tcp/22]") && p.warnings[0].contains("guard = yes"),
        "{:?}",
        p.warnings
    );
    assert!(p.warnings[1].contains("ports cannot be told apart"), "{:?}", p.warnings);
}

#[test]
fn ten_thousand_tunnels_from_one_network_share_one_chain() {
    let policies: Vec<Policy> = (0..10_000u32)
        .map(|i| {
            let remote = format!("20.{}.{}.0/24", i / 100, i % 100 * 2);
            Policy { name: format!("peer{i}.net"), ..policy(Verdict::Protect, "10.1.0.0/16", &remote) }
        })
        .collect();
    let p = plan(&settings(), &policies);
    assert_eq!((p.routes.len(), map(&p, "out4").len(), map(&p, "in4").len()), (10_000, 10_000, 10_000));
    assert_eq!(p.nft.as_ref().unwrap().matches("chain o4_").count(), 1);
    assert!(p.serving.iter().all(|s| s.chains == ["o4_0"] && s.routes.len() == 1));
}

#[test]
fn the_usual_tunnel_costs_two_chains_and_four_rules() {
    // The kernel takes tens of microseconds for each object, and for every notice of one.
    let lines = |n: u8| {
        let policies: Vec<Policy> = (0..n)
            .map(|i| policy(Verdict::Protect, &format!("10.1.{i}.0/24"), &format!("10.2.{i}.0/24")))
            .collect();
        let text = plan(&settings(), &policies).nft.unwrap();
        let chains = text.matches("\tchain ").count();
        (chains, text.lines().filter(|l| l.starts_with("\t\t") && !l.contains(" : ")).count())
    };
    let (one, many) = (lines(1), lines(51));
    assert_eq!((many.0 - one.0, many.1 - one.1), (50 * 2, 50 * 4));
}

#[test]
fn no_policy_costs_a_set_of_its_own() {
    // To add one that belongs to a rule, the kernel looks through all others: with thousands,
    // minutes.
    let own_sets = |n: u8, net: &str, len: u8, what: &str| {
        let ts = |side: u8, i: u8| {
            format!("{}/{len}{what}", net.replace('L', &format!("{side}")).replace('N', &format!("{i}")))
        };
        let policies: Vec<Policy> = (1..=n).map(|i| policy(Verdict::Protect, &ts(1, i), &ts(2, i))).collect();
        let text = plan(&settings(), &policies).nft.unwrap();
        assert!(text.matches("\tchain o").count() >= usize::from(n), "a list each");
        text.lines().filter(|l| l.starts_with("\t\t") && l.contains(" { ")).count()
    };
    for (net, len) in [("10.L.N.0", 24), ("fd00:L:N::", 64)] {
        for what in ["", "[6/any]", "[17/7000-7199]", "[0/80-90]", "[0/opaque]"] {
            assert_eq!(own_sets(1, net, len, what), own_sets(50, net, len, what), "{net} {what}");
        }
    }
}

#[test]
fn what_is_in_a_vrf_is_neither_steered_nor_guarded() {
    let all = [policy(Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16")];
    let without = plan(&settings(), &all);
    let with = plan(&Settings { vrf: true, ..settings() }, &all);
    let rules: Vec<String> = with.rules.iter().map(|r| r.to_string()).collect();
    assert_eq!(rules[0], "218: from all lookup [l3mdev-table]");
    assert_eq!(with.rules[1..], without.rules[..]);
    // Without the lines for VRFs, each in its chain in front of what would mark or drop, it is the
    // same table.
    let text = with.nft.unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.ends_with("kind \"vrf\" accept")).collect();
    assert_eq!(lines, without.nft.unwrap().lines().collect::<Vec<_>>());
    for (chain, line) in [
        ("prerouting", "meta iifkind"),
        ("output", "meta oifkind"),
        ("guard_out", "meta iifkind"),
        ("guard_out_nat", "meta iifkind"),
        ("guard_input", "meta iifkind"),
        ("guard_forward", "meta iifkind"),
    ] {
        let body = text.split_once(&format!("\tchain {chain} {{\n")).unwrap().1;
        let body = body.split_once("\t}\n").unwrap().0;
        let at = body.find(line).unwrap_or_else(|| panic!("{chain}: {body}"));
        assert!(body.find("jump ").is_some_and(|jump| at < jump), "{chain}: {body}");
    }
    let plain = plan(&Settings { vrf: true, ..settings() }, &[]);
    assert_eq!(plain.rules, [], "where nothing is steered no rule is needed");
}
