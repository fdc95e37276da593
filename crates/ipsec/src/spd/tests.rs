//! The tree against the definition: of all policies that cover the packet, the first in the order.

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::sadb::{Entry, ReqId};
use ironswan_wire::selector::AUTO_PRIORITY;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// The definition: a list, and the traffic selectors' own word on what they cover.
#[derive(Default)]
struct Listed(Vec<(PolicyAdd, Rank, u32)>);

impl Listed {
    fn add(&mut self, p: &PolicyAdd, serial: u64) {
        if let Some(found) = self.0.iter_mut().find(|(q, ..)| same(p, q)) {
            found.2 += 1;
            return;
        }
        self.0.push((p.clone(), Rank::new(p, serial), 1));
    }

    fn remove(&mut self, p: &PolicyAdd) -> bool {
        let Some(at) = self.0.iter().position(|(q, ..)| same(p, q)) else { return false };
        self.0[at].2 -= 1;
        if self.0[at].2 == 0 {
            self.0.swap_remove(at);
        }
        true
    }

    fn out(&self, p: &PacketSelector) -> Option<&PolicyAdd> {
        let covers = |q: &PolicyAdd| {
            q.local.matches(p.src, p.protocol, p.src_port) && q.remote.matches(p.dst, p.protocol, p.dst_port)
        };
        self.0.iter().filter(|(q, ..)| covers(q)).min_by_key(|(_, rank, _)| *rank).map(|(q, ..)| q)
    }
}

fn reversed(p: &PacketSelector) -> PacketSelector {
    PacketSelector { src: p.dst, dst: p.src, src_port: p.dst_port, dst_port: p.src_port, ..*p }
}

fn out_policy<'a>(spd: &'a Spd, p: &PacketSelector) -> Option<&'a PolicyAdd> {
    let (_, list) = spd.find(p.dst, p.src, p.dst_port, p.src_port, p.protocol)?;
    Some(&list[0].policy)
}

fn agree(spd: &Spd, listed: &Listed, p: &PacketSelector) {
    let want = listed.out(p);
    assert_eq!(out_policy(spd, p), want, "{p:?}");
    assert_eq!(spd.lookup_out(p), want.map(|q| q.action));
    assert_eq!(spd.lookup_in(&reversed(p)), want.map(|q| q.action));
}

fn agree_in_all(spd: &Spd, listed: &Listed) {
    let mut sorted: Vec<_> = listed.0.iter().collect();
    sorted.sort_by_key(|(p, rank, _)| (p.remote.range.is_ipv6(), *rank));
    let all = spd.all();
    assert!(all.iter().map(|p| (&p.policy, p.count)).eq(sorted.iter().map(|(p, _, n)| (p, *n))));
}

fn addr(v6: bool, n: u32) -> IpAddr {
    match v6 {
        true => IpAddr::V6((0xfd_u128 << 120 | u128::from(n) << 40).into()),
        false => IpAddr::from((0x0a00_0000 + n).to_be_bytes()),
    }
}

/// An address range of `1 << bits` addresses of the tests' numbering.
fn span(v6: bool, a: u32, b: u32) -> AddrRange {
    let (a, b) = (a.min(b), a.max(b));
    match (addr(v6, a), addr(v6, b)) {
        (IpAddr::V6(s), IpAddr::V6(e)) => {
            AddrRange::new(s.into(), IpAddr::V6((u128::from(e) | ((1 << 40) - 1)).into())).unwrap()
        }
        (s, e) => AddrRange::new(s, e).unwrap(),
    }
}

fn ts(range: AddrRange, protocol: u8, ports: (u16, u16)) -> TrafficSelector {
    TrafficSelector { range, protocol, start_port: ports.0, end_port: ports.1 }
}

fn policy(local: TrafficSelector, remote: TrafficSelector, action: Action, priority: u32) -> PolicyAdd {
    PolicyAdd { name: String::new(), action, local, remote, priority, entry: Entry::default() }
}

const ANY: (u16, u16) = (0, 65_535);
const OPAQUE: (u16, u16) = (65_535, 0);

fn any_selector(v6: bool) -> impl Strategy<Value = TrafficSelector> {
    let ends = prop_oneof![
        4 => (any::<u8>(), 0u32..=8).prop_map(|(a, bits)| {
            let mask = (1u32 << bits) - 1;
            (u32::from(a) & !mask, u32::from(a) | mask)
        }),
        2 => any::<(u8, u8)>().prop_map(|(a, b)| (a.into(), b.into())),
    ];
    let ports = select(vec![
        ANY,
        ANY,
        (5, 5),
        (3, 8),
        OPAQUE,
        (0x0800, 0x08ff),
        (0x0300, 0x0304),
        (9, 4),
        (0, 0),
        (65_535, 65_535),
    ]);
    (ends, select(vec![0u8, 6, 17, 1, 58, 50]), ports)
        .prop_map(move |((a, b), protocol, ports)| ts(span(v6, a, b), protocol, ports))
}

fn any_policy() -> impl Strategy<Value = PolicyAdd> {
    let action = prop_oneof![
        (0u32..5).prop_map(|r| Action::Protect(ReqId(r))),
        Just(Action::Bypass),
        Just(Action::Discard)
    ];
    let priority =
        prop_oneof![4 => Just(0u32), 1 => 1u32..20, 1 => Just(AUTO_PRIORITY), 1 => Just(AUTO_PRIORITY + 1)];
    let entry =
        (select(vec![0u32, 0, 20, 40, 100, 400]), 0u64..3).prop_map(|(open, age)| Entry { open, age });
    (any::<bool>(), action, priority, entry).prop_flat_map(|(v6, action, priority, entry)| {
        (any_selector(v6), any_selector(v6))
            .prop_map(move |(l, r)| PolicyAdd { entry, ..policy(l, r, action, priority) })
    })
}

fn any_packet() -> impl Strategy<Value = PacketSelector> {
    let port = || {
        select(vec![
            None,
            Some(0u16),
            Some(3),
            Some(5),
            Some(8),
            Some(80),
            Some(0x0801),
            Some(0x0303),
            Some(65_535),
        ])
    };
    (any::<bool>(), any::<(u8, u8)>(), select(vec![6u8, 17, 1, 58, 50, 0, 255]), port(), port()).prop_map(
        |(v6, (a, b), protocol, src_port, dst_port)| PacketSelector {
            src: addr(v6, a.into()),
            dst: addr(v6, b.into()),
            protocol,
            src_port,
            dst_port,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Add(PolicyAdd),
    Again(Index),
    Remove(Index),
    Ask(PacketSelector),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_policy().prop_map(Step::Add),
        1 => any::<Index>().prop_map(Step::Again),
        3 => any::<Index>().prop_map(Step::Remove),
        8 => any_packet().prop_map(Step::Ask),
    ]
}

proptest! {
    #[test]
    fn the_tree_finds_what_the_definition_finds(steps in proptest::collection::vec(any_step(), 0..400)) {
        let (mut spd, mut listed) = (Spd::default(), Listed::default());
        let mut ever: Vec<PolicyAdd> = Vec::new();
        for (serial, step) in steps.iter().enumerate() {
            let before = spd.clone();
            let count = before.all().len();
            match step {
                Step::Add(p) => {
                    spd.add(p, serial as u64);
                    listed.add(p, serial as u64);
                    ever.push(p.clone());
                }
                Step::Again(i) if !ever.is_empty() => {
                    let p = i.get(&ever);
                    spd.add(p, serial as u64);
                    listed.add(p, serial as u64);
                }
                Step::Remove(i) if !ever.is_empty() => {
                    let p = i.get(&ever);
                    prop_assert_eq!(spd.remove(p), listed.remove(p));
                }
                Step::Ask(p) => agree(&spd, &listed, p),
                _ => {}
            }
            prop_assert_eq!(before.all().len(), count, "a snapshot does not change");
        }
        agree_in_all(&spd, &listed);
        while let Some((p, ..)) = listed.0.first().cloned() {
            prop_assert!(spd.remove(&p) && listed.remove(&p));
        }
        agree_in_all(&spd, &listed);
    }
}

/// Sets of policies as they are found, and as someone with ill will would make them. `n` of them.
/// Compares [`Spd::others_first`] with its definition: some packet that the SA's selectors cover
/// has a first policy that is not its own.
fn others_agree(
    listed: &Listed,
    spd: &Spd,
    (local, remote): (&[TrafficSelector], &[TrafficSelector]),
    reqid: ReqId,
    packets: &[PacketSelector],
) {
    if spd.is_preceded_by_others(local, remote, reqid) {
        return;
    }
    for p in packets {
        let covered = local.iter().any(|t| t.matches(p.src, p.protocol, p.src_port))
            && remote.iter().any(|t| t.matches(p.dst, p.protocol, p.dst_port));
        let first = listed.out(p).map(|q| q.action);
        assert!(!covered || first.is_none_or(|action| action == Action::Protect(reqid)), "{p:?}: {first:?}");
    }
}

proptest! {
    /// An SA that is said to be alone in its selectors is: of whatever selectors, with and without
    /// policies of its own.
    #[test]
    fn who_is_said_to_be_alone_is_alone(
        policies in proptest::collection::vec(any_policy(), 0..40),
        sides in proptest::collection::vec((any_selector(false), any_selector(false)), 1..4),
        own in any::<[bool; 4]>(),
        packets in proptest::collection::vec(any_packet(), 200),
    ) {
        let (mut spd, mut listed) = (Spd::default(), Listed::default());
        let reqid = ReqId(1);
        let mut add = |p: &PolicyAdd, serial| {
            spd.add(p, serial);
            listed.add(p, serial);
        };
        let mut serial = 0;
        for (i, p) in policies.iter().enumerate() {
            serial += 1;
            add(p, serial);
            if let Some((l, r)) = sides.get(i).filter(|_| own[i % 4]) {
                serial += 1;
                add(&policy(*l, *r, Action::Protect(reqid), 0), serial);
            }
        }
        let (local, remote): (Vec<_>, Vec<_>) = sides.into_iter().unzip();
        others_agree(&listed, &spd, (&local, &remote), reqid, &packets);
    }
}

/// Nobody pays who need not: an SA with its own policy beside thousands of others, inside of a
/// wider one, beside one of the same selectors that is younger. And who has to, does.
#[test]
fn who_is_alone_is_said_to_be() {
    let net = |addr: [u8; 4], len| TrafficSelector::addresses(AddrRange::prefix(addr.into(), len).unwrap());
    let (here, all) = (net([10, 0, 0, 0], 8), net([0, 0, 0, 0], 0));
    let spoke = |k: u32| net((0x0b00_0000 + (k << 8)).to_be_bytes(), 24);
    let mut spd = Spd::default();
    let mut serial = 0;
    let mut add = |spd: &mut Spd, p: PolicyAdd| {
        serial += 1;
        spd.add(&p, serial);
    };
    let protect = |n: u32| Action::Protect(ReqId(n));
    add(&mut spd, policy(here, all, protect(1), 0));
    for k in 2..5_000 {
        add(&mut spd, policy(here, spoke(k), protect(k), 0));
    }
    add(&mut spd, policy(here, spoke(7), protect(9_999), 0));
    let others = |spd: &Spd, local, remote, n| spd.is_preceded_by_others(&[local], &[remote], ReqId(n));
    for k in [2, 7, 4_999] {
        assert!(!others(&spd, here, spoke(k), k), "{k}");
    }
    assert!(others(&spd, here, all, 1));
    assert!(others(&spd, here, spoke(7), 9_999), "an older one has the same");
    assert!(others(&spd, here, spoke(3), 4), "no policy of its own");
    // A part of its policy has no policy of its own, and is not said to be.
    let half = net([11, 0, 2, 0], 25);
    assert!(others(&spd, here, half, 2));
    add(&mut spd, policy(here, half, Action::Bypass, 0));
    assert!(others(&spd, here, spoke(2), 2));
    assert!(spd.remove(&policy(here, half, Action::Bypass, 0)) && !others(&spd, here, spoke(2), 2));
    // The other family is another world.
    let v6 = TrafficSelector::addresses(AddrRange::any(true));
    assert!(!others(&spd, v6, v6, 77) && !others(&spd, here, v6, 77));
    let many: Vec<_> = (0..65).map(spoke).collect();
    assert!(
        spd.is_preceded_by_others(&[here], &many, ReqId(77))
            && Spd::default().is_preceded_by_others(&[here], &many, ReqId(77))
    );
}

fn shapes(n: u32) -> Vec<(&'static str, Vec<PolicyAdd>)> {
    let mut rng = Seeded::new(4);
    let mut random = move |below: u32| {
        let mut b = [0; 4];
        rng.fill(&mut b);
        u32::from_le_bytes(b) % below
    };
    let all = |v6| ts(AddrRange::any(v6), 0, ANY);
    let host = |v6, i| ts(AddrRange::host(addr(v6, i)), 0, ANY);
    let protect = |i| Action::Protect(ReqId(i));
    let mut out = Vec::new();
    let mut shape =
        |name, make: &mut dyn FnMut(u32) -> PolicyAdd| out.push((name, (0..n).map(make).collect()));
    shape("remote prefixes", &mut |i| {
        policy(all(false), ts(span(false, i * 4, i * 4 + 3), 0, ANY), protect(i), 0)
    });
    shape("remote prefixes, IPv6", &mut |i| policy(all(true), ts(span(true, i, i), 0, ANY), protect(i), 0));
    shape("local prefixes", &mut |i| {
        policy(ts(span(false, i * 4, i * 4 + 3), 0, ANY), host(false, 7), protect(i), 0)
    });
    shape("port ranges", &mut |i| {
        let (a, b) = ((i % 320) * 200, (i / 320) * 200);
        let range = |p: u32| ts(AddrRange::host(addr(false, 1)), 6, (p as u16, (p + 150) as u16));
        policy(range(a), range(b), protect(i), 0)
    });
    shape("ranges", &mut |i| {
        policy(all(false), ts(span(false, i * 64 + 5, i * 64 + 63), 0, ANY), protect(i), 0)
    });
    shape("ranges that overlap", &mut |i| {
        let at = random(n * 8);
        policy(all(false), ts(span(false, at, at + random(4_000)), 0, ANY), protect(i), 0)
    });
    shape("an onion", &mut |i| policy(all(false), ts(span(false, i, 2 * n - i), 0, ANY), protect(i), 0));
    shape("nested", &mut |i| {
        // A BYPASS host in a PROTECT /24 in a DISCARD /23, and so on.
        let at = (i / 3) * 512;
        match i % 3 {
            0 => policy(all(false), ts(span(false, at, at + 511), 0, ANY), Action::Discard, 0),
            1 => policy(all(false), ts(span(false, at, at + 255), 0, ANY), protect(i), 0),
            _ => policy(all(false), ts(span(false, at + 9, at + 9), 0, ANY), Action::Bypass, 0),
        }
    });
    shape("ICMP", &mut |i| {
        let (kind, code) = ((i % 256) as u16, (i / 256 % 256) as u16);
        let side = |r| ts(r, 1, (kind << 8 | code, kind << 8 | code));
        policy(side(AddrRange::any(false)), side(AddrRange::host(addr(false, i / 65_536))), protect(i), 0)
    });
    shape("with priorities", &mut |i| {
        let (a, b) = (random(n) & !15, random(n) & !3);
        let (local, remote) = (span(false, a, a + 15), span(false, b, b + 3));
        let ports = [ANY, ANY, (80, 80), OPAQUE][random(4) as usize];
        policy(ts(local, 6, ANY), ts(remote, 6, ports), protect(i), [0, 5, 400_000][random(3) as usize])
    });
    shape("both sides", &mut |i| {
        let (a, b) = ((i % 300) * 256, (i / 300) * 256);
        policy(ts(span(false, a, a + 255), 0, ANY), ts(span(false, b, b + 255), 0, ANY), protect(i), 0)
    });
    out
}

/// A packet on an edge of a policy, or one beside it.
fn near(p: &PolicyAdd, r: u32) -> PacketSelector {
    let pick = |range: &AddrRange, r: u32| {
        let (start, end) = (range.start(), range.end());
        let step = |a: IpAddr, by: i64| match a {
            IpAddr::V4(a) => IpAddr::from(u32::from(a).wrapping_add(by as u32).to_be_bytes()),
            IpAddr::V6(a) => IpAddr::V6(u128::from(a).wrapping_add(i128::from(by) as u128).into()),
        };
        match r % 8 {
            0 => step(start, -1),
            1 => step(end, 1),
            2 | 3 => end,
            _ => start,
        }
    };
    let port = |t: &TrafficSelector, r: u32| match r % 8 {
        0 => None,
        1 => Some(t.start_port.wrapping_sub(1)),
        2 => Some(t.end_port.wrapping_add(1)),
        3 | 4 => Some(t.end_port),
        _ => Some(t.start_port),
    };
    PacketSelector {
        src: pick(&p.local.range, r),
        dst: pick(&p.remote.range, r >> 3),
        protocol: if p.remote.protocol == 0 { 17 } else { p.remote.protocol },
        src_port: port(&p.local, r >> 6),
        dst_port: port(&p.remote, r >> 9),
    }
}

#[test]
fn every_shape_finds_what_the_definition_finds() {
    let mut rng = Seeded::new(8);
    let mut random = || {
        let mut b = [0; 4];
        rng.fill(&mut b);
        u32::from_le_bytes(b)
    };
    for (name, policies) in shapes(700) {
        let (mut spd, mut listed) = (Spd::default(), Listed::default());
        for (serial, p) in policies.iter().enumerate() {
            spd.add(p, serial as u64);
            listed.add(p, serial as u64);
            if random() % 4 == 0 {
                let p = &policies[random() as usize % (serial + 1)];
                assert_eq!(spd.remove(p), listed.remove(p), "{name}");
            }
        }
        agree_in_all(&spd, &listed);
        for _ in 0..4_000 {
            agree(&spd, &listed, &near(&policies[random() as usize % policies.len()], random()));
        }
        for p in &policies {
            assert_eq!(spd.remove(p), listed.remove(p), "{name}");
            agree(&spd, &listed, &near(&policies[random() as usize % policies.len()], random()));
        }
        assert!(spd.all().is_empty());
    }
}

/// Not a measure of time but of work: no look-up may read more than a few of 20,000 policies.
#[test]
fn every_shape_is_found_in_a_few_steps() {
    for (name, policies) in shapes(20_000) {
        let mut spd = Spd::default();
        for (serial, p) in policies.iter().enumerate() {
            spd.add(p, serial as u64);
        }
        let mut steps = 0;
        for (i, p) in policies.iter().enumerate().step_by(7) {
            let p = near(p, (i as u32).wrapping_mul(2_654_435_761) >> 8);
            steps = steps.max(spd.v4.as_ref().map_or(0, |t| t.steps(&point_of(&p))));
        }
        println!("{name}: at most {steps} boxes compared");
        assert!(steps <= 300, "{name}: {steps}");
    }
}

fn point_of(p: &PacketSelector) -> Point<u32> {
    match (p.dst, p.src) {
        (IpAddr::V4(r), IpAddr::V4(l)) => point(r.into(), l.into(), p.dst_port, p.src_port, p.protocol),
        _ => [0; 5],
    }
}
