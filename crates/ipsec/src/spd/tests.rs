use ironswan_wire::sadb::ReqId;
use ironswan_wire::selector::{AUTO_PRIORITY, AddrRange, TrafficSelector};
use proptest::prelude::*;

use super::*;

fn selector(v6: bool, start: u8, end: u8, protocol: u8, ports: (u16, u16)) -> TrafficSelector {
    let addr = |last: u8| -> IpAddr {
        if v6 {
            IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
        } else {
            IpAddr::from([10, 0, 0, last])
        }
    };
    let range = AddrRange::new(addr(start.min(end)), addr(start.max(end))).unwrap();
    TrafficSelector { range, protocol, start_port: ports.0, end_port: ports.1 }
}

fn any_selector(v6: bool) -> impl Strategy<Value = TrafficSelector> {
    let ends = prop_oneof![
        (any::<u8>(), 0u32..=8).prop_map(|(a, bits)| {
            let mask = ((1u16 << bits) - 1) as u8;
            (a & !mask, a | mask)
        }),
        any::<(u8, u8)>(),
    ];
    let ports = prop_oneof![Just((0, 65_535)), Just((5, 5)), Just((3, 8)), Just((65_535, 0))];
    (ends, prop_oneof![Just(0u8), Just(6), Just(17)], ports)
        .prop_map(move |((a, b), protocol, ports)| selector(v6, a, b, protocol, ports))
}

fn any_policy() -> impl Strategy<Value = PolicyAdd> {
    let action = prop_oneof![
        (0u32..5).prop_map(|r| Action::Protect(ReqId(r))),
        Just(Action::Bypass),
        Just(Action::Discard)
    ];
    let priority = prop_oneof![4 => Just(0u32), 1 => Just(7), 1 => Just(AUTO_PRIORITY + 1)];
    (any::<bool>(), action, priority).prop_flat_map(|(v6, action, priority)| {
        (any_selector(v6), any_selector(v6)).prop_map(move |(local, remote)| PolicyAdd {
            name: String::new(),
            action,
            local,
            remote,
            priority,
        })
    })
}

/// The definition: of all policies that cover the packet, the first in the order.
fn by_definition(list: &[(PolicyAdd, Rank)], covers: impl Fn(&PolicyAdd) -> bool) -> Option<&PolicyAdd> {
    list.iter().filter(|(p, _)| covers(p)).min_by_key(|(_, rank)| *rank).map(|(p, _)| p)
}

proptest! {
    #[test]
    fn the_index_finds_what_the_definition_finds(
        policies in proptest::collection::vec(any_policy(), 0..40),
        gone in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
        probes in proptest::collection::vec((any::<bool>(), any::<(u8, u8)>(), prop_oneof![Just(6u8), Just(17), Just(1)],
            prop_oneof![Just(None), Just(Some(5u16)), Just(Some(8)), Just(Some(80))]), 1..60),
    ) {
        let mut spd = Spd::default();
        let mut list: Vec<(PolicyAdd, Rank)> = Vec::new();
        for (i, p) in policies.iter().enumerate() {
            spd.add(p, i as u64);
            if !list.iter().any(|(q, _)| same(p, q)) {
                let found = spd.all().into_iter().find(|q| same(&q.policy, p)).unwrap();
                list.push((p.clone(), found.rank));
            }
        }
        for g in gone {
            if policies.is_empty() { break; }
            let p = g.get(&policies);
            while spd.remove(p) {}
            list.retain(|(q, _)| !same(p, q));
        }
        prop_assert_eq!(spd.has_discards(), list.iter().any(|(p, _)| p.action == Action::Discard));
        prop_assert_eq!(spd.all().len(), list.len());
        for (v6, (a, b), protocol, port) in probes {
            let host = |n| selector(v6, n, n, 0, (0, 0)).range.start();
            let p = PacketSelector { src: host(a), dst: host(b), protocol, src_port: port, dst_port: port };
            let want = by_definition(&list, |q| q.local.matches(p.src, protocol, port) && q.remote.matches(p.dst, protocol, port));
            prop_assert_eq!(spd.lookup_out(&p).map(|q| &q.policy), want);
            let want = by_definition(&list, |q| q.local.matches(p.dst, protocol, port) && q.remote.matches(p.src, protocol, port));
            prop_assert_eq!(spd.lookup_in(&p).map(|q| &q.policy), want);
        }
    }
}
