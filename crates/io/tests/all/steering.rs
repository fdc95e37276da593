//! What this kernel does with marks, rules, throw routes and nftables. Needs root, `ip` and `nft`.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{address, in_namespace, ip};
use ironswan_io::nft::{NftWatch, TableChange};
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE, Watch};
use ironswan_io::sysctl::{self, ReversePath};
use ironswan_io::tun::{Tun, TunConfig};

const STEER: u32 = 0x1000_0000;
const OUTER: u32 = 0x220;

fn v4(text: &str) -> IpAddr {
    text.parse::<Ipv4Addr>().unwrap().into()
}

fn route(to: &str, prefix_len: u8, kind: RouteKind) -> Route {
    let destination = Destination { ip: v4(to), prefix_len };
    Route { table: TABLE, destination, kind, metric: 0, source: None, mtu: 0, protocol: PROTOCOL }
}

/// Runs `nft`; its process ID.
fn nft(args: &str) -> u32 {
    let mut child =
        Command::new("nft").args(args.split(' ')).stderr(Stdio::piped()).spawn().expect("nftables is needed");
    let pid = child.id();
    assert!(child.wait().unwrap().success(), "nft {args}");
    pid
}

#[test]
fn marks_reach_a_default_route_in_the_table_that_others_do_not() {
    in_namespace(|| {
        address("192.0.2.1", 24, "lo");
        ip("route add default via 192.0.2.2 dev lo");
        let tun = Tun::create(&TunConfig::default()).unwrap();
        let mut n = Netlink::open().unwrap();
        n.set_route(&route("0.0.0.0", 0, RouteKind::Device(tun.index()))).unwrap();
        n.set_route(&route("10.2.0.0", 16, RouteKind::Device(tun.index()))).unwrap();
        n.set_route(&route("10.2.3.0", 24, RouteKind::Throw)).unwrap();
        let rules = [Rule::marked(false, STEER), Rule::fallback(false, OUTER, true)];
        for rule in &rules {
            n.add_rule(rule).unwrap();
            n.add_rule(rule).unwrap();
            assert_eq!(n.rules().unwrap().iter().filter(|r| *r == rule).count(), 1, "{rule}");
        }
        let mut link = |to: &str, mark: u32| n.lookup(v4(to), None, mark).unwrap().map(|hop| hop.link);
        assert_eq!(
            link("198.51.100.7", 0),
            Some(1),
            "a default route in the table does not count without a mark"
        );
        assert_eq!(link("198.51.100.7", STEER), Some(tun.index()));
        assert_eq!(link("198.51.100.7", STEER | 5), Some(tun.index()), "other bits of the mark are others'");
        assert_eq!(link("10.2.0.7", 0), Some(tun.index()));
        assert_eq!(link("10.2.0.7", OUTER), Some(1));
        assert_eq!(link("10.2.0.7", OUTER | 0x4000), Some(1));
        assert_eq!(link("10.2.0.7", 0x200), Some(tun.index()), "a part of the mark is not the mark");
        assert_eq!(link("10.2.3.7", 0), Some(1), "thrown back to the main table");
        let throw = n.routes(TABLE).unwrap().into_iter().find(|r| r.kind == RouteKind::Throw).unwrap();
        assert_eq!(throw.to_string(), "throw 10.2.3.0/24 table 220");
        n.delete_route(&throw).unwrap();
        assert_eq!(n.lookup(v4("10.2.3.7"), None, 0).unwrap().unwrap().link, tun.index());
        for rule in &rules {
            assert_eq!(n.delete_rule(rule).unwrap(), 1, "{rule}");
        }
        ip("rule add from 10.0.0.0/8 fwmark 0x7/0xff lookup 99 prio 5");
        ip("-6 rule add unreachable prio 6");
        let all = n.all_rules().unwrap();
        let at = |priority: u32| all.iter().find(|l| l.rule.priority == priority).unwrap();
        assert!(at(5).lookup && at(5).conditions && !at(6).lookup);
        assert_eq!(at(5).rule.to_string(), "5: from all fwmark 0x7/0xff lookup 99");
        assert!(n.rules().unwrap().iter().all(|r| !matches!(r.priority, 5 | 6)));
    });
}

#[test]
fn throw_works_for_ipv6_too() {
    in_namespace(|| {
        let mut n = Netlink::open().unwrap();
        let destination = Destination { ip: "fd02::".parse().unwrap(), prefix_len: 64 };
        let throw = Route { destination, ..route("0.0.0.0", 0, RouteKind::Throw) };
        n.set_route(&throw).unwrap();
        n.set_route(&throw).unwrap();
        let found = n.routes(TABLE).unwrap();
        assert_eq!(
            found.iter().map(|r| (r.destination, r.kind)).collect::<Vec<_>>(),
            [(destination, RouteKind::Throw)]
        );
        n.delete_route(&found[0]).unwrap();
        assert_eq!(n.routes(TABLE).unwrap(), []);
    });
}

#[test]
fn only_changes_of_table_220_are_told_as_such() {
    in_namespace(|| {
        let watch = Watch::open().unwrap();
        ip("route add 10.9.0.0/24 dev lo");
        let change = watch.wait(Duration::from_secs(1));
        assert!(change.routes && !change.table);
        ip("route add unreachable 10.9.0.0/24 table 220");
        let change = watch.wait(Duration::from_secs(1));
        assert!(change.table && !change.routes);
        ip("route flush table 220");
        assert!(watch.wait(Duration::from_secs(1)).table);
    });
}

#[test]
fn tentative_and_deprecated_addresses_are_no_sources() {
    in_namespace(|| {
        // The other end is down, so that duplicate address detection on this one does not begin,
        // let alone end.
        ip("link add v0 type veth peer name v1");
        ip("addr add fd01::1/64 dev v0");
        ip("addr add fd01::2/64 dev v0 nodad preferred_lft 0");
        ip("addr add fd01::3/64 dev v0 nodad");
        let all = Netlink::open().unwrap().addresses().unwrap();
        let source =
            |text: &str| all.iter().find(|a| a.ip == text.parse::<IpAddr>().unwrap()).unwrap().is_source();
        assert_eq!(
            [source("fd01::1"), source("fd01::2"), source("fd01::3")],
            [false, false, true],
            "{all:?}"
        );
    });
}

/// Waits for touches, at most a second.
fn touches(watch: &mut NftWatch) -> Vec<TableChange> {
    for _ in 0..100 {
        let found = watch.take();
        if !found.is_empty() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Vec::new()
}

#[test]
fn who_touches_the_table_is_named_and_other_tables_are_nobodys_business() {
    in_namespace(|| {
        let mut watch = NftWatch::open("guarded").unwrap();
        nft("add table inet other");
        nft("add table ip guarded");
        assert_eq!(watch.take(), []);
        for change in [
            "add table inet guarded",
            "add chain inet guarded c",
            "add rule inet guarded c accept",
            "add set inet guarded s { type ipv4_addr ; }",
            "add element inet guarded s { 10.0.0.1 }",
            "add counter inet guarded n",
            "flush chain inet guarded c",
            "flush ruleset",
        ] {
            let pid = nft(change);
            let found = touches(&mut watch);
            assert_eq!(found.len(), 1, "{change}: {found:?}");
            assert!(found[0].is_by(pid), "{change}: {found:?}, made by {pid}");
            assert_eq!(found[0].name.as_deref(), Some("nft"));
        }
        assert_eq!(watch.take(), []);
    });
}

#[test]
fn a_device_is_prepared_and_what_is_global_only_read() {
    in_namespace(|| {
        let set =
            |key: &str, value: &str| std::fs::write(format!("/proc/sys/net/ipv4/conf/{key}"), value).unwrap();
        let get = |key: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{key}")).unwrap().trim().to_owned()
        };
        set("all/rp_filter", "0");
        set("default/rp_filter", "1");
        let _tun = Tun::create(&TunConfig::default()).unwrap();
        assert_eq!(sysctl::effective_reverse_path("ipsec0"), ReversePath::Strict);
        sysctl::prepare_device("ipsec0").unwrap();
        sysctl::prepare_device("ipsec0").unwrap();
        assert_eq!((get("ipsec0/rp_filter"), get("ipsec0/src_valid_mark")), ("0".into(), "1".into()));
        assert_eq!(
            (get("all/src_valid_mark"), get("default/rp_filter")),
            ("0".into(), "1".into()),
            "not ours to set"
        );
        set("all/rp_filter", "1");
        assert_eq!(sysctl::effective_reverse_path("ipsec0"), ReversePath::Strict);
        set("ipsec0/rp_filter", "2");
        assert_eq!(sysctl::effective_reverse_path("ipsec0"), ReversePath::Loose, "2 wins over 1");
        let text = sysctl::prepare_device("nothere0").unwrap_err().to_string();
        assert!(text.contains("net.ipv4.conf.nothere0.rp_filter"), "{text}");
        set("../ip_forward", "0");
        assert!(!sysctl::forwarding(false));
        set("../ip_forward", "1");
        assert!(sysctl::forwarding(false));
        assert!(matches!(sysctl::reverse_path("../all"), ReversePath::Off), "no way out of the folder");
    });
}
