//! rtnetlink of this kernel: routes, rules, addresses, interfaces, filters. Needs root.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{address, in_namespace, ip, v4};
use ironswan_io::error::Error;
use ironswan_io::ingress::{Family, Filter, Ingress, List, Row};
use ironswan_io::route::{
    Address, Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE, UNREACHABLE_METRIC, Watch,
};
use ironswan_io::tun::{Tun, TunConfig};
use ironswan_wire::selector::AddrRange;

#[test]
fn routes_and_rules_are_made_listed_and_removed() {
    in_namespace(|| {
        address("10.1.0.1", 24, "lo");
        address("fd01::1", 128, "lo");
        let tun = Tun::create(&TunConfig::default()).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let cases: [(IpAddr, u8, IpAddr); 2] = [
            (v4("10.2.0.0"), 24, v4("10.1.0.1")),
            ("fd02::".parse().unwrap(), 64, "fd01::1".parse().unwrap()),
        ];
        for (net, prefix_len, source) in cases {
            let route = Route {
                table: TABLE,
                destination: Destination { ip: net, prefix_len },
                kind: RouteKind::Device(tun.index()),
                metric: 100,
                source: Some(source),
                mtu: 1322,
                protocol: PROTOCOL,
            };
            let below = Route {
                kind: RouteKind::Unreachable,
                metric: UNREACHABLE_METRIC,
                source: None,
                mtu: 0,
                ..route.clone()
            };
            netlink.set_route(&route).unwrap();
            netlink.set_route(&below).unwrap();
            // Again, with another MTU: replaced, not doubled.
            let route = Route { mtu: 1300, ..route };
            netlink.set_route(&route).unwrap();
            let listed: Vec<_> = netlink
                .routes(TABLE)
                .unwrap()
                .into_iter()
                .filter(|r| r.destination == route.destination)
                .collect();
            assert_eq!(listed, [route.clone(), below.clone()]);

            let rule = Rule::fallback(net.is_ipv6(), 0x220, false);
            netlink.add_rule(&rule).unwrap();
            netlink.add_rule(&rule).unwrap();
            assert_eq!(netlink.rules().unwrap().iter().filter(|r| **r == rule).count(), 1);
            let to = match net {
                IpAddr::V4(_) => v4("10.2.0.7"),
                IpAddr::V6(_) => "fd02::7".parse().unwrap(),
            };
            let hop = netlink.lookup(to, None, 0).unwrap().expect("a route");
            assert_eq!((hop.link, hop.source, hop.mtu, hop.local), (tun.index(), Some(source), 1300, false));
            // What carries the mark does not see the table, and there is no other route.
            assert_eq!(netlink.lookup(to, None, 0x220).unwrap(), None);
            // Without the device's route the unreachable one holds.
            netlink.delete_route(&route).unwrap();
            assert_eq!(netlink.lookup(to, None, 0).unwrap(), None);
            netlink.delete_route(&below).unwrap();
            netlink.delete_route(&below).unwrap();
            assert_eq!(netlink.delete_rule(&rule).unwrap(), 1);
            assert_eq!(netlink.delete_rule(&rule).unwrap(), 0);
            assert!(!netlink.rules().unwrap().contains(&rule));
        }
        assert_eq!(netlink.routes(TABLE).unwrap(), []);
    });
}

#[test]
fn a_route_with_a_source_that_is_not_ours_is_refused_with_its_text() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let route = Route {
            table: TABLE,
            destination: Destination { ip: v4("10.2.0.0"), prefix_len: 24 },
            kind: RouteKind::Device(1),
            metric: 0,
            source: Some(v4("203.0.113.9")),
            mtu: 0,
            protocol: PROTOCOL,
        };
        let text = netlink.set_route(&route).unwrap_err().to_string();
        assert!(text.contains("10.2.0.0/24") && text.contains("203.0.113.9"), "{text}");
    });
}

#[test]
fn addresses_come_and_go_and_are_noticed() {
    in_namespace(|| {
        let watch = Watch::open().unwrap();
        let mut netlink = Netlink::open().unwrap();
        assert!(watch.take().is_empty());
        let address = Address::new(1, v4("10.77.0.1"), 32);
        netlink.add_address(address).unwrap();
        netlink.add_address(address).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
        assert!(netlink.addresses().unwrap().contains(&address));
        let hop = netlink.lookup(address.ip, None, 0).unwrap().unwrap();
        assert!(hop.local);
        netlink.delete_address(address).unwrap();
        netlink.delete_address(address).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
        assert!(!netlink.addresses().unwrap().contains(&address));
        assert!(matches!(netlink.link("nothere0"), Err(Error::NoDevice { .. })));
        ip("rule add fwmark 7 lookup 99");
        assert!(watch.wait(Duration::from_secs(1)).rules);
    });
}

#[test]
fn what_one_socket_changes_is_not_told_and_what_others_change_is() {
    in_namespace(|| {
        let (mut ours, mut other) = (Netlink::open().unwrap(), Netlink::open().unwrap());
        assert_ne!(ours.port().unwrap(), other.port().unwrap());
        let watch = Watch::open().unwrap().ignore_own_routing(ours.port().unwrap());
        let route = Route {
            table: TABLE,
            destination: Destination { ip: v4("10.2.0.0"), prefix_len: 24 },
            kind: RouteKind::Unreachable,
            metric: UNREACHABLE_METRIC,
            source: None,
            mtu: 0,
            protocol: PROTOCOL,
        };
        let rule = Rule::fallback(false, 0x220, false);
        ours.set_route(&route).unwrap();
        ours.add_rule(&rule).unwrap();
        assert!(watch.wait(Duration::from_millis(200)).is_empty());
        other.delete_route(&route).unwrap();
        other.delete_rule(&rule).unwrap();
        let change = watch.wait(Duration::from_secs(1));
        assert!(change.table && (change.rules || watch.wait(Duration::from_secs(1)).rules), "{change:?}");
        // Addresses are told whoever changes them.
        ours.add_address(Address::new(1, v4("10.77.0.1"), 32)).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
    });
}

#[test]
fn an_interface_says_of_what_it_is_part() {
    in_namespace(|| {
        ip("link add br0 type bridge");
        ip("link add v0 type veth peer name v1");
        ip("link set v0 master br0");
        let links = Netlink::open().unwrap().links().unwrap();
        let link = |name| links.iter().find(|l| l.name == name).unwrap();
        let (bridge, part, alone) = (link("br0"), link("v0"), link("v1"));
        assert_eq!((part.controller, part.part_of.as_deref()), (Some(bridge.index), Some("bridge")));
        assert_eq!((alone.controller, &alone.part_of), (None, &None));
    });
}

#[test]
fn what_holds_filters_goes_with_ours_when_it_was_made_for_it() {
    let run = |args: &str| {
        let done = std::process::Command::new("tc").args(args.split(' ')).output().unwrap();
        assert!(done.status.success(), "tc {args}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let row = Row { drop: true, ..Row::all(false) };
    let list = List { ports: vec![row], ..List::default() };
    let family = Family { intervals: vec![(AddrRange::any(false), 0)], lists: vec![list] };
    let filter = |port| {
        let families = [family.clone(), Family::default()];
        Arc::new(Filter { families, ports: [port; 2], ..Filter::default() })
    };
    let lo: &[(u32, &str)] = &[(1, "lo")];
    let stand = |port: u16| {
        let mut ingress = Ingress::open().unwrap();
        ingress.set_filter(&filter(port), &BTreeSet::new(), lo).unwrap();
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
    };
    // As another process takes it away.
    let remove = || assert_eq!(Ingress::open().unwrap().reconcile(&[], lo).removed, ["lo"]);
    let holds = || run("qdisc show dev lo").contains("clsact");
    in_namespace(|| {
        stand(1);
        // Another process sets another one in its place.
        stand(2);
        assert!(run("filter show dev lo ingress").contains("ironswan:"));
        remove();
        assert!(!holds(), "made for it");

        run("qdisc add dev lo clsact");
        stand(1);
        stand(2);
        remove();
        assert!(holds(), "somebody else's");
        run("qdisc del dev lo clsact");

        stand(1);
        run("filter add dev lo ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1");
        remove();
        assert!(run("filter show dev lo ingress").contains("pref 7"));
        run("qdisc del dev lo clsact");

        // Somebody takes the filter alone away: what held it is still there for it.
        let mut ingress = Ingress::open().unwrap();
        ingress.set_filter(&filter(1), &BTreeSet::new(), lo).unwrap();
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
        run("filter del dev lo ingress pref 2");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        remove();
        assert!(!holds(), "made for the one that was lost");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        run("filter del dev lo ingress pref 2");
        assert!(ingress.reconcile(&[], lo).removed.is_empty());
        assert!(!holds(), "made for one that is not wanted any more");
        // What somebody else put in its place is his.
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
        run("qdisc del dev lo clsact");
        run("qdisc add dev lo ingress");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        remove();
        assert!(run("qdisc show dev lo").contains("ingress"));
    });
}

#[test]
fn of_traffic_control_only_our_filters_are_told() {
    let tc = |args: &str| {
        let done = std::process::Command::new("tc").args(args.split(' ')).status().unwrap();
        assert!(done.success(), "tc {args}");
    };
    let wait = |watch: &Watch| watch.wait(Duration::from_secs(5)).filters;
    let quiet = |watch: &Watch| !watch.wait(Duration::from_millis(100)).filters;
    in_namespace(|| {
        let mut ingress = Ingress::open().unwrap();
        let watch = Watch::open().unwrap().ignore_own_filters(ingress.port().unwrap());
        let others = Watch::open().unwrap();
        tc("qdisc add dev lo root pfifo limit 10");
        tc("qdisc change dev lo root pfifo limit 20");
        tc("qdisc del dev lo root");
        tc("qdisc add dev lo clsact");
        tc("filter add dev lo ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1");
        assert!(quiet(&watch));
        let row = Row { drop: true, ..Row::all(false) };
        let list = List { ports: vec![row], ..List::default() };
        let v4 = Family { intervals: vec![(AddrRange::any(false), 0)], lists: vec![list] };
        let filter = Filter { families: [v4, Family::default()], ..Filter::default() };
        ingress.set_filter(&Arc::new(filter), &BTreeSet::new(), &[]).unwrap();
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).set, ["lo"]);
        assert!(quiet(&watch), "our own");
        assert!(wait(&others), "for whoever did not ask to be spared");
        for what in
            ["filter del dev lo ingress pref 2", "filter del dev lo ingress", "qdisc del dev lo clsact"]
        {
            tc(what);
            assert!(wait(&watch), "{what}");
            assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"], "{what}");
            assert!(quiet(&watch));
        }
        tc("filter add dev lo egress pref 2 protocol ip u32 match u32 0 0 flowid 1:1");
        tc("filter del dev lo egress pref 2");
        assert!(quiet(&watch), "what leaves is nothing of ours");
        // A queueing discipline that takes any number of its handle for its ingress.
        tc("qdisc del dev lo clsact");
        tc("qdisc add dev lo ingress");
        assert!(wait(&watch));
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"]);
        tc("filter del dev lo parent ffff:");
        assert!(wait(&watch), "all filters of the ingress");
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"]);
    });
}

#[test]
fn a_list_is_whole_while_the_tables_change() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let route = |i: u8, j: u8| Route {
            table: TABLE,
            destination: Destination { ip: IpAddr::from([10, i, j, 0]), prefix_len: 24 },
            kind: RouteKind::Unreachable,
            metric: UNREACHABLE_METRIC,
            source: None,
            mtu: 0,
            protocol: PROTOCOL,
        };
        for i in 0..4 {
            (0..=255).for_each(|j| netlink.set_route(&route(i, j)).unwrap());
        }
        let mut other = Netlink::open().unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                for _ in 0..300 {
                    other.set_route(&route(9, 9)).unwrap();
                    other.delete_route(&route(9, 9)).unwrap();
                }
            });
            for _ in 0..20 {
                let all = netlink.routes(TABLE).unwrap();
                let ours = all.iter().filter(|r| **r != route(9, 9)).count();
                assert_eq!(ours, 4 * 256);
            }
        });
    });
}
