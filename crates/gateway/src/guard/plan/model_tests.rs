//! The chains against the definition: random policies, random packets, the text of the table read
//! as the kernel reads it.

use std::collections::HashMap;
use std::net::IpAddr;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::selector::{AddrRange, Precedence, TrafficSelector};

use super::tests::settings;
use super::*;

/// As the kernel sees it.
#[derive(Clone, Debug)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    /// The true protocol, also where the packet hides it.
    protocol: u8,
    ports: (u16, u16),
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Whole,
    /// A later fragment; its data look like these ports.
    Later(u16, u16),
    /// Too short for ports.
    Short,
    /// IPv6, behind destination options.
    Behind,
    /// IPv6, behind AH: the kernel sees what is inside.
    Ah,
}

/// Result of the table for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Guarded,
    Steered,
    Passed,
}

/// Sets of numbers, by name with its @.
type Sets = HashMap<String, Vec<u32>>;

struct Table {
    sets: Sets,
    maps: HashMap<String, Vec<(AddrRange, String)>>,
    chains: HashMap<String, Vec<Vec<String>>>,
}

fn range(text: &str) -> AddrRange {
    match text.split_once('-') {
        Some((a, b)) => AddrRange::new(a.parse().unwrap(), b.parse().unwrap()).unwrap(),
        None => {
            let (a, len) = text.split_once('/').unwrap();
            AddrRange::prefix(a.parse().unwrap(), len.parse().unwrap()).unwrap()
        }
    }
}

impl Table {
    fn parse(text: &str) -> Self {
        let mut t = Self { sets: HashMap::new(), maps: HashMap::new(), chains: HashMap::new() };
        let (mut map, mut chain) = (None, None);
        for line in text.lines().map(str::trim) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["set", name, "{", "type", "inet_proto;", "elements", "=", "{", all @ .., "};", "}"] => {
                    let all = all.iter().map(|w| w.trim_end_matches(',').parse().unwrap());
                    t.sets.insert(format!("@{name}"), all.collect());
                }
                ["map", name, ..] => map = Some((*name).to_owned()),
                ["chain", name, "{"] => chain = Some((*name).to_owned()),
                ["}", ..] => (map, chain) = (None, None),
                [key, ":", verdict @ ..] if map.is_some() => {
                    let to = verdict.last().unwrap().trim_end_matches(',').to_owned();
                    t.maps.entry(map.clone().unwrap()).or_default().push((range(key), to));
                }
                words => {
                    if let Some(name) = &chain {
                        let rule = words.iter().map(|w| (*w).to_owned()).collect();
                        t.chains.entry(name.clone()).or_default().push(rule);
                    }
                }
            }
        }
        t
    }

    fn run(&self, chain: &str, p: &Packet) -> Fate {
        for rule in &self.chains[chain] {
            let words: Vec<&str> = rule.iter().map(String::as_str).collect();
            if let Some(verdict) = p.rule(&self.sets, &words) {
                match verdict {
                    ["accept"] | ["goto", "skip"] => return Fate::Passed,
                    ["return"] => return Fate::Guarded,
                    ["goto", "steer"] => return Fate::Steered,
                    ["goto", to] => return self.run(to, p),
                    [_, field, "vmap", map] => {
                        let key = if *field == "daddr" { p.dst } else { p.src };
                        let mut found = self.maps[&map[1..]].iter().filter(|(r, _)| r.contains(key));
                        let (Some((_, to)), None) = (found.next(), found.next()) else {
                            panic!("{key} is not in {map} once");
                        };
                        return if to == "accept" { Fate::Passed } else { self.run(to, p) };
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(chain.starts_with('i'), "{chain} has no end");
        Fate::Guarded
    }
}

impl Packet {
    /// The first four bytes behind the IP header, which the kernel loads whatever they are.
    fn th(&self) -> Option<[u8; 4]> {
        let (a, b) = match self.shape {
            Shape::Short => return None,
            Shape::Later(a, b) => (a, b),
            _ => self.ports,
        };
        let mut out = [0; 4];
        out[..2].copy_from_slice(&a.to_be_bytes());
        out[2..].copy_from_slice(&b.to_be_bytes());
        Some(out)
    }

    fn next_header(&self) -> u8 {
        match self.shape {
            Shape::Behind => 60,
            Shape::Ah => 51,
            Shape::Later(..) => 44,
            _ => self.protocol,
        }
    }

    /// The verdict, if all conditions before it hold.
    fn rule<'a, 'b>(&self, sets: &Sets, words: &'a [&'b str]) -> Option<&'a [&'b str]> {
        let is_v6 = |ip: &str| (ip == "ip6") == self.src.is_ipv6();
        match words {
            ["accept"] | ["return"] | ["goto", _] => Some(words),
            [ip, "daddr" | "saddr", "vmap", _] => is_v6(ip).then_some(words),
            // Behind the maps, where each address has been found.
            ["meta", "oif", ..] | ["oifname", ..] => panic!("not found in the maps"),
            ["meta", "nfproto", family, "accept"] => {
                ((*family == "ipv6") == self.src.is_ipv6()).then_some(&words[3..])
            }
            [ip @ ("ip" | "ip6"), side @ ("saddr" | "daddr"), rest @ ..] => {
                let addr = if *side == "saddr" { self.src } else { self.dst };
                let (not, r, rest) = match rest {
                    ["!=", r, rest @ ..] => (true, r, rest),
                    [r, rest @ ..] => (false, r, rest),
                    [] => panic!("no value"),
                };
                if is_v6(ip) && range(r).contains(addr) != not { self.rule(sets, rest) } else { None }
            }
            ["icmpv6", ..] => None,
            ["ip", "frag-off", "&", "0x1fff", "==", "0", rest @ ..] => {
                if matches!(self.shape, Shape::Later(..)) { None } else { self.rule(sets, rest) }
            }
            ["frag", "frag-off", "!=", "0", rest @ ..] => {
                if matches!(self.shape, Shape::Later(..)) {
                    self.rule(sets, rest)
                } else {
                    None
                }
            }
            ["ip6", "nexthdr", rest @ ..] => self.number(sets, Some(self.next_header().into()), rest),
            ["frag", "nexthdr", rest @ ..] => self.number(sets, Some(self.protocol.into()), rest),
            ["meta", "l4proto", rest @ ..] => self.number(sets, Some(self.protocol.into()), rest),
            ["th", "sport", rest @ ..] | ["@th,0,16", rest @ ..] => {
                self.number(sets, self.th().map(|b| u16::from_be_bytes([b[0], b[1]]).into()), rest)
            }
            ["th", "dport", rest @ ..] => {
                self.number(sets, self.th().map(|b| u16::from_be_bytes([b[2], b[3]]).into()), rest)
            }
            // These packets quote nothing.
            ["@th,0,8", ..] | ["icmp", "type", ..] => None,
            ["@th,16,8", rest @ ..] => self.number(sets, self.th().map(|b| b[2].into()), rest),
            ["@th,0,32", "&", "0", "==", "0", rest @ ..] => self.th().and_then(|_| self.rule(sets, rest)),
            other => panic!("{other:?}"),
        }
    }

    fn number<'a, 'b>(&self, sets: &Sets, value: Option<u32>, words: &'a [&'b str]) -> Option<&'a [&'b str]> {
        let value = value?;
        let one = |w: &str| match w.trim_end_matches(',').split_once('-') {
            Some((a, b)) => (a.parse().unwrap()..=b.parse().unwrap()).contains(&value),
            None => w.trim_end_matches(',').parse::<u32>().unwrap() == value,
        };
        let (not, words) = match words {
            ["!=", rest @ ..] => (true, rest),
            words => (false, words),
        };
        let (holds, rest) = match words {
            ["{", rest @ ..] => {
                let end = rest.iter().position(|w| *w == "}").unwrap();
                (rest[..end].iter().any(|w| one(w)), &rest[end + 1..])
            }
            [set, rest @ ..] if set.starts_with('@') => (sets[*set].contains(&value), rest),
            [w, rest @ ..] => (one(w), rest),
            [] => panic!("no value"),
        };
        if holds == not { None } else { self.rule(sets, rest) }
    }

    /// Protocol and ports as the engine reads them.
    fn seen(&self) -> (u8, Option<(u16, u16)>) {
        let ports = match self.protocol {
            6 | 17 | 132 => Some(self.ports),
            1 | 58 => Some((self.ports.0, self.ports.0)),
            135 => Some((self.ports.1 & 0xff00, self.ports.1 & 0xff00)),
            _ => None,
        };
        match self.shape {
            Shape::Whole | Shape::Behind => (self.protocol, ports),
            Shape::Later(..) | Shape::Short => (self.protocol, None),
            Shape::Ah => (51, None),
        }
    }
}

/// How the definition treats policies that a packet might match, when the packet hides a part of
/// its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unseen {
    /// Nothing but what is seen.
    Exact,
    /// A policy that closes covers also what it might.
    Closes,
    /// The same, but for later fragments: a policy that lets through covers those that it might,
    /// too.
    ClosesWhole,
}

/// The definition: the first policy that covers the packet.
fn definition(policies: &[Policy], p: &Packet, flow: Flow, unseen: Unseen) -> Fate {
    let may = unseen != Unseen::Exact;
    let follows = unseen == Unseen::ClosesWhole && matches!(p.shape, Shape::Later(..));
    let (protocol, ports) = p.seen();
    let (local, remote) = if flow == Flow::Out { (p.src, p.dst) } else { (p.dst, p.src) };
    let (lport, rport) = match flow {
        Flow::Out => (ports.map(|p| p.0), ports.map(|p| p.1)),
        Flow::In => (ports.map(|p| p.1), ports.map(|p| p.0)),
    };
    let mut order: Vec<&Policy> = policies.iter().collect();
    order.sort_by_key(|q| {
        let protect = q.verdict == Verdict::Protect;
        let order = Precedence::new(&q.local, &q.remote, q.priority, q.open, protect);
        (order, q.verdict, !q.guard)
    });
    let strictly = |a: &AddrRange, b: &AddrRange| a != b && b.contains(a.start()) && b.contains(a.end());
    for q in order {
        let own = |o: &&Policy| {
            o.name == q.name
                && o.verdict != Verdict::Bypass
                && strictly(&o.local.range, &o.remote.range)
                && strictly(&o.local.range, &q.remote.range)
                && o.local.range.contains(remote)
        };
        let hole = strictly(&q.local.range, &q.remote.range) && policies.iter().any(|o| own(&o));
        let closes = q.verdict != Verdict::Bypass && !hole && (q.guard || flow == Flow::Out);
        let exact = q.local.matches(local, protocol, lport) && q.remote.matches(remote, protocol, rport);
        let addresses = q.local.range.contains(local) && q.remote.range.contains(remote);
        let asked = |f: fn(&TrafficSelector) -> bool| f(&q.local) || f(&q.remote);
        let ranges = asked(|t| !t.any_port() && !t.opaque_port());
        let only = q.local.protocol.max(q.remote.protocol);
        // Ports of a protocol without any, or seen and not seen at once.
        let never = ranges && (asked(TrafficSelector::opaque_port) || matches!(only, 47 | 51));
        let could = match p.shape {
            _ if never => false,
            Shape::Whole => exact,
            Shape::Later(..) | Shape::Short => {
                let fits = |t: &TrafficSelector| t.protocol == 0 || t.protocol == protocol;
                let shows = matches!(protocol, 1 | 6 | 17 | 58 | 132 | 135);
                exact || addresses && fits(&q.local) && fits(&q.remote) && shows && ranges
            }
            Shape::Behind | Shape::Ah => addresses,
        };
        // Behind extension headers only addresses count; and what passes must pass for certain.
        let plain = !asked(|t| t.protocol != 0 || !t.any_port());
        let hidden = may && matches!(p.shape, Shape::Behind | Shape::Ah);
        if follows && could && !exact && !closes {
            return Fate::Passed;
        }
        if exact && !(hidden && !closes && !plain) || may && closes && could {
            return match q.guard {
                _ if !closes => Fate::Passed,
                true => Fate::Guarded,
                false if flow == Flow::In => Fate::Passed,
                false => Fate::Steered,
            };
        }
    }
    Fate::Passed
}

pub(super) struct Dice(Seeded);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Seeded::new(seed))
    }

    pub(super) fn below(&mut self, n: u32) -> u32 {
        let mut b = [0; 4];
        self.0.fill(&mut b);
        u32::from_le_bytes(b) % n
    }

    pub(super) fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    pub(super) fn address(&mut self, v6: bool) -> IpAddr {
        let last = self.below(32) as u16;
        if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, last].into() } else { [10, 0, 0, last as u8].into() }
    }

    fn range(&mut self, v6: bool) -> AddrRange {
        let (a, b) = (self.address(v6), self.address(v6));
        match self.below(8) {
            0 => AddrRange::any(v6),
            1 => AddrRange::new(a.min(b), a.max(b)).unwrap(),
            _ => {
                let host = self.below(6) as u8;
                AddrRange::prefix(a, if v6 { 128 } else { 32 } - host).unwrap()
            }
        }
    }

    pub(super) fn policy(&mut self, v6: bool) -> Policy {
        let protocol = self.of(&[0, 0, 0, 6, 6, 17, 1, 58, 47, 51, 135]);
        let mut side = || {
            let (start_port, end_port) = self.of(&[
                (0, 65_535),
                (0, 65_535),
                (0, 65_535),
                (5, 5),
                (3, 0x800),
                (65_535, 0),
                (0x400, 0x9ff),
            ]);
            TrafficSelector { range: self.range(v6), protocol, start_port, end_port }
        };
        let (local, mut remote) = (side(), side());
        if self.below(4) == 0 {
            remote.protocol = 0;
        }
        Policy {
            name: self.of(&["a.b", "a.c", "d.e"]).into(),
            verdict: self.of(&[Verdict::Protect, Verdict::Protect, Verdict::Discard, Verdict::Bypass]),
            local,
            remote,
            priority: self.of(&[0, 0, 0, 7, 300_001]),
            open: self.of(&[0, 0, 0, 30, 60, 90, 300]),
            guard: self.below(5) != 0,
        }
    }

    fn packet(&mut self, v6: bool) -> Packet {
        let port = [0, 3, 4, 5, 6, 0x400, 0x500, 0x800, 0x801, 0x900, 0xa00, 65_535];
        let shape = match self.below(8) {
            0 => Shape::Later(self.of(&port), self.of(&port)),
            1 => Shape::Short,
            2 if v6 => Shape::Behind,
            3 if v6 => Shape::Ah,
            _ => Shape::Whole,
        };
        Packet {
            src: self.address(v6),
            dst: self.address(v6),
            protocol: self.of(&[6, 6, 17, 1, 58, 47, 132, 135]),
            ports: (self.of(&port), self.of(&port)),
            shape,
        }
    }
}

fn compare(seed: u64, rounds: u32, count: u32, packets: u32) {
    let mut dice = Dice::new(seed);
    for round in 0..rounds {
        let v6 = dice.below(2) == 0;
        let n = 1 + dice.below(count);
        let policies: Vec<Policy> = (0..n).map(|_| dice.policy(v6)).collect();
        let plan = plan(&settings(), &policies);
        let text = plan.nft.unwrap();
        if !text.contains("chain out {") {
            continue;
        }
        let table = Table::parse(&text);
        for _ in 0..packets {
            let p = dice.packet(v6);
            for (flow, chain) in [(Flow::Out, "out"), (Flow::In, "in")] {
                let got = table.run(chain, &p);
                let want = definition(&policies, &p, flow, Unseen::Closes);
                // A packet that hides a part may be treated as one of another, guarded policy.
                let stricter = p.shape != Shape::Whole && want == Fate::Steered && got == Fate::Guarded;
                assert!(
                    got == want || stricter,
                    "round {round}, {flow:?}: {p:?}: {got:?}, not {want:?}\n{policies:#?}\n{text}"
                );
                // And whatever the engine, who sees more, would protect is never let by.
                if definition(&policies, &p, flow, Unseen::Exact) == Fate::Guarded {
                    assert_eq!(got, Fate::Guarded, "round {round}, {flow:?}: {p:?}\n{policies:#?}\n{text}");
                }
            }
        }
    }
}

impl Packet {
    /// As it arrives.
    fn frame(&self) -> Vec<u8> {
        let th = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes(), [0, 8], [0, 0]].concat();
        let (mut protocol, mut body, mut offset) = (self.protocol, th.clone(), [0u8; 2]);
        match self.shape {
            Shape::Whole => {}
            Shape::Short => body.truncate(2),
            Shape::Later(a, b) => {
                body = [a.to_be_bytes(), b.to_be_bytes(), [0, 8], [0, 0]].concat();
                offset = [0, 185];
            }
            Shape::Behind => {
                body = [&[self.protocol, 0, 1, 4, 0, 0, 0, 0], &th[..]].concat();
                protocol = 60;
            }
            Shape::Ah => {
                body = [&[self.protocol, 4][..], &[0; 22], &th].concat();
                protocol = 51;
            }
        }
        let mut p = vec![0; 12];
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                p.extend([
                    8,
                    0,
                    0x45,
                    0,
                    0,
                    20 + body.len() as u8,
                    0,
                    1,
                    offset[0],
                    offset[1],
                    64,
                    protocol,
                    0,
                    0,
                ]);
                p.extend([src.octets(), dst.octets()].concat());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                if offset != [0; 2] {
                    // In units of eight bytes, behind flags of three bits.
                    body = [&[self.protocol, 0, 5, 0xc8, 0, 0, 0, 9], &body[..]].concat();
                    protocol = 44;
                }
                p.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, body.len() as u8, protocol, 64]);
                p.extend([src.octets(), dst.octets()].concat());
            }
            _ => unreachable!("one family"),
        }
        p.extend(body);
        p
    }
}

/// The program at the ingress, run by the kernel, against the same definition. Needs root.
fn compare_ingress(seed: u64, rounds: u32, count: u32, packets: u32) {
    let mut dice = Dice::new(seed);
    let (mut dropped, mut passed) = (0, 0);
    for round in 0..rounds {
        let v6 = dice.below(2) == 0;
        let n = 1 + dice.below(count);
        let policies: Vec<Policy> = (0..n).map(|_| dice.policy(v6)).collect();
        let plan = plan(&settings(), &policies);
        if plan.ingress.is_empty() {
            continue;
        }
        let program = ironswan_io::ingress::Program::load(&plan.ingress)
            .expect("these tests need root: they load a program");
        for _ in 0..packets {
            let p = dice.packet(v6);
            let got = program.drops(&p.frame()).unwrap();
            let want = definition(&policies, &p, Flow::In, Unseen::ClosesWhole) == Fate::Guarded;
            assert_eq!(got, want, "round {round}: {p:?}\n{policies:#?}\n{:#?}", plan.ingress);
            *(if got { &mut dropped } else { &mut passed }) += 1;
        }
    }
    println!("{dropped} packets dropped, {passed} passed");
    assert!(dropped > 400 && passed > 400, "{dropped} dropped, {passed} passed");
}

#[test]
fn the_program_at_the_ingress_drops_as_the_definition_says() {
    compare_ingress(3, 400, 6, 40);
    compare_ingress(4, 8, 100, 300);
}

#[test]
fn few_policies_are_classified_as_the_definition_says() {
    compare(1, 3000, 6, 40);
}

#[test]
fn a_hundred_policies_that_overlap_in_all_ways_are_classified_as_the_definition_says() {
    compare(2, 15, 100, 300);
}
