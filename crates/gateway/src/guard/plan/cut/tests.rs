//! The bound of what policies are cut into.

use std::net::IpAddr;

use ironswan_wire::selector::TrafficSelector;

use super::*;
use crate::guard::plan::model_tests::Dice;
use crate::guard::plan::tests::settings;

/// The outcome of the cut for a packet that shows everything; `None`: no list is for its remote
/// address.
fn ask(cut: &Cut, (local, remote): (IpAddr, IpAddr), protocol: u8, ports: (u16, u16)) -> Option<Outcome> {
    let (_, list) = cut.intervals.iter().find(|(range, _)| range.contains(remote))?;
    let within = |asked: Ports, port: u16| match asked {
        Ports::Any => true,
        Ports::Opaque => !shows_ports(protocol),
        Ports::Range(first, last) => shows_ports(protocol) && (first..=last).contains(&port),
    };
    let covers = |s: &&Step| {
        s.local.contains(local)
            && (s.protocol == 0 || s.protocol == protocol)
            && within(s.local_ports, ports.0)
            && within(s.remote_ports, ports.1)
    };
    Some(cut.lists[*list].steps.iter().find(covers).map_or(Outcome::Passed, |s| s.outcome))
}

#[test]
fn a_list_that_is_too_long_closes_at_least_what_it_would_have() {
    let mut dice = Dice::new(11);
    let bounds = |list| Bounds { list, all: UNBOUNDED, work: UNBOUNDED };
    let (mut opener, mut same, mut stricter) = (0, 0, 0);
    for _ in 0..400 {
        let v6 = dice.below(2) == 0;
        let policies: Vec<Policy> = (0..1 + dice.below(20)).map(|_| dice.policy(v6)).collect();
        let negotiated: Vec<bool> = policies.iter().map(|_| dice.below(2) == 0).collect();
        let from_peers = Negotiated { by_index: &negotiated, narrowed: &[] };
        let (entries, _) = entries(&policies, &from_peers, v6, false);
        let whole = sweep(&entries, policies.len(), v6, bounds(UNBOUNDED)).unwrap();
        let max = dice.of(&[0, 1, 3]);
        let short = match dice.below(2) {
            0 => sweep(&entries, policies.len(), v6, bounds(max)).unwrap(),
            _ => sweep(&gathered(&entries, max), policies.len(), v6, bounds(UNBOUNDED)).unwrap(),
        };
        for _ in 0..60 {
            let sides = (dice.address(v6), dice.address(v6));
            let (protocol, ports) =
                (dice.of(&[6, 17, 1, 58, 47]), (dice.of(&[3, 5, 9]), dice.of(&[3, 5, 9])));
            let of = |cut| ask(cut, sides, protocol, ports).unwrap_or(Outcome::Passed);
            let (want, got) = (of(&whole), of(&short));
            // In their order: what is guarded comes first.
            match got.cmp(&want) {
                std::cmp::Ordering::Less => stricter += 1,
                std::cmp::Ordering::Equal => same += 1,
                std::cmp::Ordering::Greater => opener += 1,
            }
        }
        // A list must say which packets pass by, for every address that is led to the device
        // unmarked.
        let routed = |cut: &Cut, at: IpAddr| {
            let list = cut.intervals.iter().find(|(range, _)| range.contains(at));
            list.is_some_and(|(_, list)| cut.lists[*list].routed)
        };
        for _ in 0..20 {
            let at = dice.address(v6);
            assert_eq!(routed(&short, at), routed(&whole, at), "{at}\n{policies:#?}");
        }
    }
    println!("{same} packets are told as before, {stricter} are closed, {opener} are opened");
    assert!(opener == 0 && same > 1000 && stricter > 100);
}

/// Ranges of 4,001 addresses that slide by one, each with ports of its own: as a peer can propose
/// them.
fn windows(count: u16) -> Vec<Policy> {
    (0..count)
        .map(|i| {
            let first = u32::from_be_bytes([10, 2, 0, 0]) + u32::from(i);
            let range =
                AddrRange::new(address(first.into(), false), address(u128::from(first) + 4000, false));
            let mut remote = TrafficSelector::addresses(range.unwrap());
            (remote.protocol, remote.start_port, remote.end_port) = (17, i, i);
            Policy {
                name: "a.net".into(),
                verdict: Verdict::Protect,
                local: TrafficSelector::addresses(AddrRange::prefix([10, 1, 0, 0].into(), 16).unwrap()),
                remote,
                priority: 0,
                open: 0,
                guard: true,
            }
        })
        .collect()
}

#[test]
fn policies_that_overlap_in_all_ways_are_cut_into_a_bounded_number_of_steps_and_stay_closed() {
    let mut policies = windows(2000);
    let other = |name: &str, third, verdict| Policy {
        name: name.into(),
        verdict,
        remote: TrafficSelector::addresses(AddrRange::prefix([10, 9, third, 0].into(), 24).unwrap()),
        ..windows(1)[0].clone()
    };
    policies.push(other("b.pass", 1, Verdict::Bypass));
    policies.push(Policy {
        remote: TrafficSelector::addresses(AddrRange::prefix([10, 9, 0, 0].into(), 16).unwrap()),
        ..other("b.net", 1, Verdict::Protect)
    });
    let cut = cut(&policies, &Negotiated::default(), false, false);
    let steps: usize = cut.lists.iter().map(|list| list.steps.len()).sum();
    println!("{} lists of {steps} steps", cut.lists.len());
    assert!(cut.closed && steps <= MAX_STEPS + 2 * policies.len(), "{steps}");
    let ask = |remote: [u8; 4], port| ask(&cut, ([10, 1, 0, 1].into(), remote.into()), 17, (9, port));
    // The middle of all windows, whatever the port: nothing leaves in clear.
    assert_eq!(ask([10, 2, 8, 0], 300), Some(Outcome::Guarded));
    assert_eq!(ask([10, 2, 8, 0], 9000), Some(Outcome::Guarded));
    // Addresses with few overlapping policies, and those of other policies, are as before.
    assert_eq!(ask([10, 2, 0, 1], 1), Some(Outcome::Guarded));
    assert_eq!(ask([10, 2, 0, 1], 9000), Some(Outcome::Passed));
    assert_eq!(ask([10, 9, 1, 1], 9), Some(Outcome::Passed));
    assert_eq!(ask([10, 9, 2, 1], 9), Some(Outcome::Guarded));
    let warnings = crate::guard::plan::plan(&settings(), &policies).warnings;
    assert!(warnings.iter().any(|w| w.contains("overlap in too many ways")), "{warnings:?}");
    let warnings = crate::guard::plan::plan(&settings(), &policies[2000..]).warnings;
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn a_child_with_very_many_own_sides_has_no_holes_and_others_have_theirs() {
    let network = |second: u8, third: u8| AddrRange::prefix([10, second, third, 0].into(), 24).unwrap();
    let policy = |name: &str, local| Policy {
        name: name.into(),
        local: TrafficSelector::addresses(local),
        remote: TrafficSelector::addresses(AddrRange::any(false)),
        ..windows(1)[0].clone()
    };
    let many = (0..300u16).map(|i| policy("a.net", network(1 + (i >> 8) as u8, i as u8)));
    let few = [policy("b.net", network(8, 1)), policy("b.net", network(8, 2))];
    let policies: Vec<Policy> = many.chain(few).collect();
    let (entries, without) = entries(&policies, &Negotiated::default(), false, false);
    assert_eq!(without, ["a.net"]);
    let holes = entries.into_iter().filter(|e| e.policy.is_none());
    let holes: Vec<Entry> = holes.filter(|e| e.rank.class == Class::Policy).collect();
    println!("{} holes for the own sides of {} policies", holes.len(), policies.len());
    assert!(holes.iter().all(|hole| policies[hole.rank.policy].name == "b.net"));
    assert_eq!(holes.len(), 4);
}

#[test]
fn what_is_narrowed_from_a_policy_of_the_plan_opens_nothing_when_it_is_not_cut() {
    let mut dice = Dice::new(12);
    let (mut left, mut same, mut stricter, mut routed) = (0, 0, 0, 0);
    for _ in 0..3000 {
        let v6 = dice.below(2) == 0;
        let count = 1 + dice.below(6);
        let loaded: Vec<Policy> =
            (0..count).map(|_| Policy { open: 0, priority: 0, ..dice.policy(v6) }).collect();
        let inner: Vec<Policy> = (0..1 + dice.below(4))
            .filter_map(|_| {
                let outer = &loaded[dice.below(count) as usize];
                let within = dice.policy(v6);
                let (local, remote) =
                    (outer.local.intersect(&within.local)?, outer.remote.intersect(&within.remote)?);
                let (local, remote) = match dice.below(3) {
                    0 => (outer.local, remote),
                    1 => (local, outer.remote),
                    _ => (local, remote),
                };
                let open = outer.local.open_bits() + outer.remote.open_bits();
                Some(Policy { local, remote, open, ..outer.clone() })
            })
            .filter(|p| !loaded.iter().any(|l| (l.local, l.remote) == (p.local, p.remote)))
            .collect();
        let in_order = |mut all: Vec<Policy>| {
            all.sort_by_key(|p| (p.verdict, p.local, p.remote, p.priority));
            all
        };
        let all = in_order(loaded.iter().chain(&inner).cloned().collect());
        let narrowing = crate::guard::plan::Narrowing::new(&loaded, &all);
        let (narrowed, cut_in): (Vec<Policy>, Vec<Policy>) =
            inner.into_iter().partition(|p| narrowing.outer(p).is_some());
        left += narrowed.len();
        let some = in_order(loaded.iter().chain(&cut_in).cloned().collect());
        let whole = cut(&all, &Negotiated::default(), v6, false);
        let short = cut(&some, &Negotiated { narrowed: &narrowed, by_index: &[] }, v6, false);
        for _ in 0..60 {
            let sides = (dice.address(v6), dice.address(v6));
            let (protocol, ports) =
                (dice.of(&[6, 17, 1, 58, 47]), (dice.of(&[3, 5, 9]), dice.of(&[3, 5, 9])));
            let of = |cut| ask(cut, sides, protocol, ports).unwrap_or(Outcome::Passed);
            let (want, got) = (of(&whole), of(&short));
            assert!(
                got <= want,
                "{sides:?} {protocol} {ports:?}: {got:?}, not {want:?}\n{some:#?}\n{narrowed:#?}"
            );
            *(if got == want { &mut same } else { &mut stricter }) += 1;
            let is_routed = |cut: &Cut| {
                let list = cut.intervals.iter().find(|(range, _)| range.contains(sides.1));
                list.is_some_and(|(_, list)| cut.lists[*list].routed)
            };
            assert_eq!(is_routed(&short), is_routed(&whole), "{}\n{some:#?}\n{narrowed:#?}", sides.1);
            routed += usize::from(is_routed(&short));
        }
    }
    println!(
        "{left} left out; {same} packets are told as before, {stricter} are closed; {routed} are to be marked"
    );
    assert!(left > 200 && routed > 1000 && stricter * 20 < same);
}

#[test]
fn what_peers_negotiated_in_all_ways_closes_its_own_addresses_and_no_hole_of_what_is_loaded() {
    let to =
        |second, len| TrafficSelector::addresses(AddrRange::prefix([10, second, 0, 0].into(), len).unwrap());
    let of =
        |name: &str, verdict, remote| Policy { name: name.into(), verdict, remote, ..windows(1)[0].clone() };
    let mut policies = vec![
        of("b.net", Verdict::Protect, TrafficSelector::addresses(AddrRange::any(false))),
        of("b.pass", Verdict::Bypass, to(9, 16)),
        // Among the windows.
        Policy {
            priority: 1,
            ..of("c.pass", Verdict::Bypass, TrafficSelector { protocol: 17, ..to(2, 29) })
        },
    ];
    let loaded = policies.len();
    policies.extend(windows(6000));
    let negotiated: Vec<bool> = (0..policies.len()).map(|i| i >= loaded).collect();
    let from_peers = Negotiated { by_index: &negotiated, narrowed: &[] };
    let cut = cut(&policies, &from_peers, false, false);
    let steps: usize = cut.lists.iter().map(|list| list.steps.len()).sum();
    println!("{} lists of {steps} steps", cut.lists.len());
    let from =
        |local: [u8; 4], remote: [u8; 4], port| ask(&cut, (local.into(), remote.into()), 17, (9, port));
    let ask = |remote, port| from([10, 1, 0, 1], remote, port);
    // The own side of another child, what a pass names, and what comes before all that was
    // negotiated.
    assert_eq!(ask([10, 1, 9, 9], 5), None, "everything passes");
    assert_eq!(ask([10, 9, 1, 1], 5), None);
    assert_eq!(ask([10, 2, 0, 1], 5), Some(Outcome::Passed));
    assert_eq!(ask([10, 2, 8, 0], 300), Some(Outcome::Guarded));
    assert_eq!(ask([10, 7, 0, 1], 300), Some(Outcome::Guarded));
    assert!(cut.closed && steps < 100, "{steps}");
    assert!(
        cut.lists
            .iter()
            .zip(0..)
            .all(|(list, i)| list.routed == cut.serving[loaded..].iter().any(|s| s.contains(&i)))
    );
}

#[test]
fn thousands_of_policies_that_all_overlap_are_closed_without_looking_at_all_for_each_interval() {
    // Each has a local network of its own, too, so that none decides for another.
    let mut policies = windows(16_000);
    for (i, p) in policies.iter_mut().enumerate() {
        let second = 128 + (i >> 8) as u8;
        p.local = TrafficSelector::addresses(AddrRange::prefix([10, second, i as u8, 0].into(), 24).unwrap());
        let first = address(u128::from(u32::from_be_bytes([10, 2, 0, 0])) + i as u128, false);
        p.remote.range = AddrRange::new(first, [10, 120, 0, i as u8].into()).unwrap();
    }
    let cut = cut(&policies, &Negotiated::default(), false, false);
    println!("{} intervals of {} lists", cut.intervals.len(), cut.lists.len());
    assert!(cut.closed);
    assert_eq!(ask(&cut, ([10, 128, 0, 1].into(), [10, 3, 0, 0].into()), 17, (9, 9)), Some(Outcome::Guarded));
    assert!(cut.serving.iter().all(|serving| (1..=REMEMBERED).contains(&serving.len())));
}

#[test]
fn holes_for_own_sides_that_are_too_many_are_said_and_those_of_what_is_loaded_stay() {
    let network = |third: u8| AddrRange::prefix([10, 1, third, 0].into(), 24).unwrap();
    let policy = |third, protocol| Policy {
        name: "a.net".into(),
        local: TrafficSelector::addresses(network(third)),
        remote: TrafficSelector { protocol, ..TrafficSelector::addresses(AddrRange::any(false)) },
        ..windows(1)[0].clone()
    };
    let both = |third| [policy(third, 6), policy(third, 17)];
    let loaded: Vec<Policy> = (0..182).flat_map(both).collect();
    let warnings = crate::guard::plan::plan(&settings(), &loaded).warnings;
    assert!(warnings.iter().any(|w| w.starts_with("a.net: has too many local networks")), "{warnings:?}");
    assert!(
        crate::guard::plan::plan(&settings(), &loaded[..360])
            .warnings
            .iter()
            .all(|w| !w.contains("too many"))
    );
    // Policies that a peer negotiates take no hole from those that are loaded.
    let few = 20;
    let negotiated: Vec<bool> = (0..loaded.len()).map(|i| i >= few).collect();
    let from_peers = Negotiated { by_index: &negotiated, narrowed: &[] };
    let cut = cut(&loaded, &from_peers, false, false);
    assert_eq!(cut.without_holes, ["a.net"]);
    let ask = |local: [u8; 4]| ask(&cut, (local.into(), [10, 1, 2, 1].into()), 17, (9, 9));
    assert_eq!([ask([10, 1, 3, 1]), ask([10, 1, 90, 1])], [Some(Outcome::Passed), Some(Outcome::Guarded)]);
}
