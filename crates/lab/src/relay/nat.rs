//! A NAT of addresses and ports between the two sides of a relay, the left one inside. Pure: works
//! on frames, time is an argument (nanoseconds).
//!
//! Translated are UDP, TCP and ICMP echo over IPv4, packet by packet. What a NAT of this kind
//! cannot translate is dropped and counted: other protocols (raw ESP), fragments, ICMP errors. The
//! relay answers ARP for the outside address.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::packet::{self, Ipv4};

/// Outer address and ports, which stand for everything inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatSpec {
    /// The outside address, which is in the network of the right side.
    pub outside: Ipv4Addr,
    /// First and last outer port.
    pub ports: (u16, u16),
    /// A mapping that neither side has used for so long is forgotten.
    pub timeout: Duration,
}

/// Packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatCounts {
    /// Rewritten, both ways.
    pub translated: u64,
    /// Dropped: of a kind that has no ports.
    pub untranslatable: u64,
    /// Dropped: from outside, for no mapping.
    pub unmapped: u64,
    /// Dropped: no port was left.
    pub exhausted: u64,
    /// Mappings made.
    pub mappings: u64,
}

/// The Ethernet address that answers for the outside address.
const OWN: [u8; 6] = [0x02, 0, 0x5e, 0, 0x53, 0x01];

/// Protocol, address, port.
type Inside = (u8, Ipv4Addr, u16);

#[derive(Debug)]
struct Mapping {
    inside: Inside,
    ethernet: [u8; 6],
    used: u64,
}

/// The table.
#[derive(Debug)]
pub struct Nat {
    spec: NatSpec,
    by_inside: HashMap<Inside, u16>,
    by_outside: HashMap<(u8, u16), Mapping>,
    next: u16,
    counts: NatCounts,
}

/// Verdict about a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Passage {
    /// The frame goes on, rewritten or not.
    On,
    /// The frame is dropped.
    Dropped,
    /// The frame is dropped, and this answer goes back to its sender.
    Answer(Vec<u8>),
}

impl Nat {
    /// An empty table.
    pub fn new(spec: NatSpec) -> Self {
        Self {
            spec,
            by_inside: HashMap::new(),
            by_outside: HashMap::new(),
            next: spec.ports.0,
            counts: NatCounts::default(),
        }
    }

    /// So far.
    pub fn counts(&self) -> NatCounts {
        self.counts
    }

    /// Forgets every mapping, as a NAT that is restarted does.
    pub fn forget(&mut self) {
        self.by_inside.clear();
        self.by_outside.clear();
    }

    /// A frame from inside.
    pub fn out(&mut self, now: u64, frame: &mut [u8]) -> Passage {
        let Some(packet) = Ipv4::parse(frame) else { return Passage::On };
        let Some((source, _)) = packet.ports(frame) else { return self.untranslatable() };
        let inside = (packet.protocol, packet.source, source);
        let Some(port) = self.mapped(now, inside, frame) else {
            self.counts.exhausted += 1;
            return Passage::Dropped;
        };
        packet.rewrite_source(frame, self.spec.outside, port);
        self.counts.translated += 1;
        Passage::On
    }

    /// A frame from outside.
    pub fn back(&mut self, now: u64, frame: &mut [u8]) -> Passage {
        if let Some(answer) = packet::answer_arp(frame, self.spec.outside, OWN) {
            return Passage::Answer(answer);
        }
        let Some(packet) = Ipv4::parse(frame) else { return Passage::On };
        let Some((_, port)) = packet.ports(frame) else { return self.untranslatable() };
        let timeout = self.spec.timeout.as_nanos() as u64;
        let mapping = self.by_outside.get_mut(&(packet.protocol, port));
        let alive = mapping.filter(|m| now.saturating_sub(m.used) < timeout);
        match alive.filter(|_| packet.destination == self.spec.outside) {
            Some(mapping) => {
                mapping.used = now;
                let (_, address, port) = mapping.inside;
                frame[..6].copy_from_slice(&mapping.ethernet);
                packet.rewrite_destination(frame, address, port);
                self.counts.translated += 1;
                Passage::On
            }
            None => {
                self.counts.unmapped += 1;
                Passage::Dropped
            }
        }
    }

    fn untranslatable(&mut self) -> Passage {
        self.counts.untranslatable += 1;
        Passage::Dropped
    }

    /// The outside port of `inside`, a new one if need be.
    fn mapped(&mut self, now: u64, inside: Inside, frame: &[u8]) -> Option<u16> {
        let timeout = self.spec.timeout.as_nanos() as u64;
        if let Some(port) = self.by_inside.get(&inside).copied() {
            let mapping = self.by_outside.get_mut(&(inside.0, port));
            if let Some(m) = mapping.filter(|m| now.saturating_sub(m.used) < timeout) {
                m.used = now;
                return Some(port);
            }
            self.by_inside.remove(&inside);
            self.by_outside.remove(&(inside.0, port));
        }
        let (first, last) = self.spec.ports;
        let mut ethernet = [0; 6];
        ethernet.copy_from_slice(frame.get(6..12)?);
        for _ in first..=last {
            let port = self.next;
            self.next = if port >= last { first } else { port + 1 };
            let key = (inside.0, port);
            match self.by_outside.get(&key) {
                Some(m) if now.saturating_sub(m.used) < timeout => continue,
                Some(stale) => {
                    self.by_inside.remove(&stale.inside);
                }
                None => {}
            }
            self.by_outside.insert(key, Mapping { inside, ethernet, used: now });
            self.by_inside.insert(inside, port);
            self.counts.mappings += 1;
            return Some(port);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::{arp_request, echo, sound, tcp, udp};
    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
    const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const S: u64 = 1_000_000_000;

    fn nat(ports: (u16, u16)) -> Nat {
        Nat::new(NatSpec { outside: OUTSIDE, ports, timeout: Duration::from_secs(30) })
    }

    fn ends(frame: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
        let p = Ipv4::parse(frame).expect("IPv4");
        let (from, to) = p.ports(frame).expect("ports");
        ((p.source, from), (p.destination, to))
    }

    #[test]
    fn a_flow_has_one_outside_port_and_answers_find_back() {
        for make in [udp, tcp, echo] {
            let mut nat = nat((1000, 1009));
            let mut frame = make((INSIDE, 500), (PEER, 500));
            assert_eq!(nat.out(0, &mut frame), Passage::On);
            let ((source, port), _) = ends(&frame);
            assert_eq!((source, port), (OUTSIDE, 1000));
            assert!(sound(&frame), "checksums");
            let mut again = make((INSIDE, 500), (PEER, 500));
            nat.out(S, &mut again);
            assert_eq!(ends(&again).0, (OUTSIDE, 1000));
            let mut answer = make((PEER, port), (OUTSIDE, port));
            assert_eq!(nat.back(S, &mut answer), Passage::On);
            assert_eq!(ends(&answer).1, (INSIDE, 500));
            assert!(sound(&answer), "checksums");
            assert_eq!(answer[..6], frame[6..12], "to the host's Ethernet address");
            assert_eq!((nat.counts().translated, nat.counts().mappings), (3, 1));
        }
    }

    #[test]
    fn mappings_end_by_their_timeout_and_a_use_renews_them() {
        let mut nat = nat((1000, 1009));
        let out = |nat: &mut Nat, now| {
            let mut frame = udp((INSIDE, 500), (PEER, 500));
            nat.out(now, &mut frame);
            ends(&frame).0.1
        };
        let back = |nat: &mut Nat, now, port| nat.back(now, &mut udp((PEER, 500), (OUTSIDE, port)));
        assert_eq!(out(&mut nat, 0), 1000);
        assert_eq!(back(&mut nat, 29 * S, 1000), Passage::On);
        assert_eq!(out(&mut nat, 58 * S), 1000);
        assert_eq!(back(&mut nat, 88 * S, 1000), Passage::Dropped);
        assert_eq!(out(&mut nat, 89 * S), 1001, "a new port after the timeout");
        nat.forget();
        assert_eq!(back(&mut nat, 89 * S, 1001), Passage::Dropped);
        assert_eq!(nat.counts().unmapped, 2);
    }

    #[test]
    fn ports_run_out_and_come_back() {
        let mut nat = nat((1000, 1001));
        let mut out = |port, now| nat.out(now, &mut udp((INSIDE, port), (PEER, 500)));
        assert_eq!([out(1, 0), out(2, 0), out(3, 0)], [Passage::On, Passage::On, Passage::Dropped]);
        assert_eq!(out(3, 31 * S), Passage::On);
        assert_eq!(nat.counts().exhausted, 1);
    }

    #[test]
    fn what_has_no_ports_is_dropped_and_what_is_not_ip_passes() {
        let mut nat = nat((1000, 1009));
        let mut esp = udp((INSIDE, 1), (PEER, 2));
        esp[14 + 9] = 50;
        assert_eq!(nat.out(0, &mut esp), Passage::Dropped);
        let mut fragment = udp((INSIDE, 1), (PEER, 2));
        fragment[14 + 7] = 1;
        assert_eq!(nat.out(0, &mut fragment), Passage::Dropped);
        assert_eq!(nat.counts().untranslatable, 2);
        assert_eq!(nat.out(0, &mut arp_request(INSIDE, PEER)), Passage::On);
        // Whoever asks for the outside address hears of the relay; other questions pass.
        let Passage::Answer(answer) = nat.back(0, &mut arp_request(PEER, OUTSIDE)) else {
            panic!("no answer")
        };
        assert_eq!((&answer[6..12], &answer[28..32]), (&OWN[..], &OUTSIDE.octets()[..]));
        assert_eq!(nat.back(0, &mut arp_request(PEER, INSIDE)), Passage::On);
        assert_eq!(nat.back(0, &mut udp((PEER, 1), (INSIDE, 500))), Passage::Dropped);
    }
}
