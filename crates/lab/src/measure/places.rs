//! Says where packets were lost. Packets are counted at stations: sent; taken in and given out by
//! both engines, where the system under test tells that; received. A packet that one station counts
//! and the next does not was dropped at one of the places between the two, and the drop counters of
//! these places say at which.
//!
//! ```text
//! sent ── link a-g1, backlog, g1's device ──> engine g1
//!      ── link g1-g2, backlog, sockets ──> engine g2
//!      ── g2's device, link g2-b, backlog, b's socket ──> received
//! ```
//! Counters of links and sockets count buffers. With segmentation offload one buffer is many
//! packets, while the stations count packets. So the number of packets lost between two stations is
//! exact, and the counters only say at which place.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::counters::{self, LinkCounters, parse_links};
use crate::dut::EngineCounts;
use crate::error::LabError;
use crate::topology::{Line, Node};

/// Counters of one box, cumulative.
#[derive(Debug, Clone, Default, PartialEq)]
struct BoxCounts {
    links: BTreeMap<String, LinkCounters>,
    /// Drops of all UDP sockets, and of all raw sockets.
    udp_drops: u64,
    raw_drops: u64,
    /// Discards of the IP layer: no route, no buffer.
    ip_discards: u64,
    /// UDP datagrams with a wrong checksum, or without a socket.
    udp_errors: u64,
}

/// All counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    boxes: [BoxCounts; 4],
    /// Of the whole machine.
    softnet_dropped: u64,
    engines: Option<[EngineCounts; 2]>,
}

impl Snapshot {
    /// Reads the counters of all four boxes; `engines` are those of the system under test on g1 and
    /// g2, if it has any.
    pub fn take(line: &Line, engines: Option<[EngineCounts; 2]>) -> Result<Self, LabError> {
        let mut boxes: [BoxCounts; 4] = Default::default();
        for (counts, node) in boxes.iter_mut().zip(Node::ALL) {
            let netns = line.node(node);
            // One visit for all files: entering a namespace costs a thread.
            let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            let [dev, udp, raw, snmp] = netns
                .inside(|| ["dev", "udp", "raw", "snmp"].map(read))?
                .map(|text| text.unwrap_or_default());
            *counts = BoxCounts::parse(&dev, &udp, &raw, &snmp);
        }
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        Ok(Self { boxes, softnet_dropped: counters::parse_backlog_drops(&softnet), engines })
    }

    /// The counters of one end of a link.
    pub(crate) fn link(&self, node: Node, device: &str) -> LinkCounters {
        self.boxes[node as usize].links.get(device).copied().unwrap_or_default()
    }
}

impl BoxCounts {
    fn parse(dev: &str, udp: &str, raw: &str, snmp: &str) -> Self {
        let snmp = parse_snmp(snmp);
        let value = |name: &str| snmp.get(name).copied().unwrap_or(0);
        Self {
            links: parse_links(dev).into_iter().collect(),
            udp_drops: parse_socket_drops(udp),
            raw_drops: parse_socket_drops(raw),
            ip_discards: [
                "Ip.InDiscards",
                "Ip.OutDiscards",
                "Ip.OutNoRoutes",
                "Ip.InAddrErrors",
                "Ip.InHdrErrors",
            ]
            .iter()
            .map(|n| value(n))
            .sum(),
            udp_errors: value("Udp.InCsumErrors") + value("Udp.NoPorts"),
        }
    }
}

/// The last column of /proc/net/udp and /proc/net/raw over all sockets. A socket that is gone takes
/// its drops along.
fn parse_socket_drops(sockets: &str) -> u64 {
    sockets.lines().skip(1).filter_map(|l| l.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

/// /proc/net/snmp: pairs of lines, names and values; as `Udp.InErrors`.
fn parse_snmp(snmp: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    let lines: Vec<&str> = snmp.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((_, numbers))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            // Some are -1 for "none".
            values.insert(format!("{group}.{name}"), number.parse().unwrap_or(0));
        }
    }
    values
}

/// Packets lost at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Name of the place: a fixed word, then details.
    pub place: String,
    /// Packets.
    pub packets: u64,
    /// Drops that the kernel counted there. Fewer than the packets where a buffer was many packets;
    /// absent for engines.
    pub buffers: Option<u64>,
}

/// The account of one trial: `sent` = `received` + the packets of all places + `unexplained`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Packets that left the generator.
    pub sent: u64,
    /// Sound packets that the receiver had, each once.
    pub received: u64,
    /// Places where the rest was lost, in the order of the way.
    pub places: Vec<Place>,
    /// Missing with no counter that says where: inside a system that counts nothing. Negative when
    /// more drops were counted than packets are missing.
    pub unexplained: i64,
    /// Packets dropped in the receive backlog of the whole machine, as a check on those of the
    /// line.
    pub softnet_dropped: u64,
}

/// Counts at both ends of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Packets that left the generator.
    pub sent: u64,
    /// Sound packets received, each once.
    pub received: u64,
    /// Damaged ones, which had been sent like the others.
    pub corrupt: u64,
    /// Dropped by the receiver's own socket, counted in buffers.
    pub socket_drops: u64,
}

/// Counters of one stretch of the way, in buffers, place by place.
type Counted = Vec<(String, u64)>;

impl Account {
    /// From the counters before and after a trial. `napi` says that the links receive by polling
    /// (with GRO on): a packet that the sending end could not put into the receiving end's ring is
    /// then another than one dropped in the backlog; otherwise both ends count the same packet.
    /// `device` is the tunnel's interface, where there is one.
    pub fn of(before: &Snapshot, after: &Snapshot, ends: Ends, napi: bool, device: Option<&str>) -> Self {
        let mut account = Self {
            sent: ends.sent,
            received: ends.received,
            places: Vec::new(),
            unexplained: 0,
            softnet_dropped: after.softnet_dropped.saturating_sub(before.softnet_dropped),
        };
        let delta = Delta { before, after, napi };
        let mut first = delta.link((Node::A, "eth0"), (Node::G1, "lan"));
        let mut middle = Counted::new();
        if let Some(device) = device {
            first.push((format!("queue of {device} on g1"), delta.of(Node::G1, device).tx_dropped));
        }
        first.push(("IP layer of g1".into(), delta.discards(Node::G1)));
        middle.extend(delta.link((Node::G1, "wan"), (Node::G2, "wan")));
        middle.push(("sockets of the gateway g2".into(), delta.sockets(Node::G2)));
        let mut last = Counted::new();
        if let Some(device) = device {
            last.push((format!("{device} on g2"), delta.of(Node::G2, device).rx_dropped));
        }
        last.push(("IP layer of g2".into(), delta.discards(Node::G2)));
        last.extend(delta.link((Node::G2, "lan"), (Node::B, "eth0")));
        last.push(("UDP of b: wrong checksum or no socket".into(), delta.udp_errors(Node::B)));
        last.push(("socket of the receiver".into(), ends.socket_drops));
        let arrived = ends.received + ends.corrupt;
        match delta.engines() {
            None => {
                let all: Counted = first.into_iter().chain(middle).chain(last).collect();
                account.stretch(ends.sent as i64 - arrived as i64, all);
            }
            Some([g1, g2]) => {
                account.stretch(ends.sent as i64 - g1.taken as i64, first);
                account.engine("g1", &g1.out_drops, g1.taken as i64 - g1.given as i64);
                account.stretch(g1.given as i64 - g2.arrived as i64, middle);
                account.engine("g2", &g2.in_drops, g2.arrived as i64 - g2.delivered as i64);
                account.stretch(g2.delivered as i64 - arrived as i64, last);
            }
        }
        account.add("corrupt on arrival".into(), ends.corrupt, None);
        account
    }

    /// Of packets over one link with no gateway, `refused` of which that link dropped at once.
    pub fn of_link(ends: Ends, refused: u64) -> Self {
        let (sent, received) = (ends.sent, ends.received);
        let mut account = Self { sent, received, places: Vec::new(), unexplained: 0, softnet_dropped: 0 };
        let missing = sent as i64 - (received + ends.corrupt) as i64;
        let places = [("link a-b", refused), ("socket of the receiver", ends.socket_drops)];
        account.stretch(missing, places.map(|(place, n)| (place.to_string(), n)).to_vec());
        account.add("corrupt on arrival".into(), ends.corrupt, None);
        account
    }

    fn add(&mut self, place: String, packets: u64, buffers: Option<u64>) {
        if packets > 0 {
            self.places.push(Place { place, packets, buffers });
        }
    }

    /// Enters `missing` packets of a stretch under the places whose counters moved.
    fn stretch(&mut self, missing: i64, counted: Counted) {
        let counted: Counted = counted.into_iter().filter(|(_, n)| *n > 0).collect();
        let buffers: u64 = counted.iter().map(|(_, n)| n).sum();
        let Ok(packets) = u64::try_from(missing) else {
            self.unexplained += missing;
            return;
        };
        // One place: all of it, however many packets a buffer was. Several: by their shares when
        // buffers were more than a packet, as counted when they were not.
        if counted.is_empty() {
            self.unexplained += missing;
        } else if counted.len() == 1 && packets >= buffers {
            let (place, n) = counted.into_iter().next().unwrap_or_default();
            self.add(place, packets, Some(n));
        } else {
            let many = packets > buffers + buffers / 50;
            let mut given = 0;
            for (place, n) in counted {
                let share =
                    if many { (packets as u128 * u128::from(n) / u128::from(buffers)) as u64 } else { n };
                given += share;
                self.add(place, share, Some(n));
            }
            self.unexplained += missing - given as i64;
        }
    }

    /// Enters an engine's reasons; what is missing beyond them is held inside, or unexplained.
    fn engine(&mut self, node: &str, drops: &BTreeMap<String, u64>, missing: i64) {
        for (reason, n) in drops {
            self.add(format!("engine of {node}: {reason}"), *n, None);
        }
        self.unexplained += missing - drops.values().sum::<u64>() as i64;
    }

    /// Sum that the places and the rest must have.
    pub fn balances(&self) -> bool {
        let places: u64 = self.places.iter().map(|p| p.packets).sum();
        self.sent as i64 == self.received as i64 + places as i64 + self.unexplained
    }
}

struct Delta<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    napi: bool,
}

impl Delta<'_> {
    fn of(&self, node: Node, device: &str) -> LinkCounters {
        self.after.link(node, device).since(&self.before.link(node, device))
    }

    /// A link from one end to the other: the ring between them, the backlog of the receiving one.
    fn link(&self, from: (Node, &str), to: (Node, &str)) -> Counted {
        let (sent, got) = (self.of(from.0, from.1).tx_dropped, self.of(to.0, to.1).rx_dropped);
        let ring = if self.napi { sent } else { sent.saturating_sub(got) };
        let (a, b) = (from.0.name(), to.0.name());
        vec![(format!("link {a}-{b}"), ring), (format!("receive backlog of {b} ({})", to.1), got)]
    }

    fn counts(&self, node: Node, of: impl Fn(&BoxCounts) -> u64) -> u64 {
        of(&self.after.boxes[node as usize]).saturating_sub(of(&self.before.boxes[node as usize]))
    }

    fn discards(&self, node: Node) -> u64 {
        self.counts(node, |b| b.ip_discards)
    }

    fn sockets(&self, node: Node) -> u64 {
        self.counts(node, |b| b.udp_drops + b.raw_drops)
    }

    fn udp_errors(&self, node: Node) -> u64 {
        self.counts(node, |b| b.udp_errors)
    }

    fn engines(&self) -> Option<[EngineCounts; 2]> {
        let (before, after) = (self.before.engines.as_ref()?, self.after.engines.as_ref()?);
        Some([after[0].since(&before[0]), after[1].since(&before[1])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_one_link_packets_are_lost_on_it_or_at_the_receiver_s_socket() {
        let ends = Ends { sent: 100, received: 80, corrupt: 2, socket_drops: 5 };
        let account = Account::of_link(ends, 12);
        let places: Vec<_> = account.places.iter().map(|p| (p.place.as_str(), p.packets)).collect();
        assert_eq!(places, [("link a-b", 12), ("socket of the receiver", 5), ("corrupt on arrival", 2)]);
        assert!(account.unexplained == 1 && account.balances());
    }

    const DEV: &str = "h\nh\n lan: 1 1 0 RXD 0 0 0 0 1 1 0 TXD 0 0 0 0\n";

    fn boxes(rx: [u64; 4], tx: [u64; 4], device: &str) -> Snapshot {
        let mut s = Snapshot::default();
        for i in 0..4 {
            let dev = DEV.replace("RXD", &rx[i].to_string()).replace("TXD", &tx[i].to_string());
            s.boxes[i] = BoxCounts::parse(&dev.replace("lan", device), "", "", "");
        }
        s
    }

    fn engines(
        taken: u64,
        given: u64,
        arrived: u64,
        delivered: u64,
        drops: &[(&str, u64)],
    ) -> [EngineCounts; 2] {
        let of = |out: bool| {
            drops
                .iter()
                .filter(|(n, _)| n.starts_with("Out") == out)
                .map(|(n, c)| (n.to_string(), *c))
                .collect()
        };
        let g1 = EngineCounts { taken, given, out_drops: of(true), ..EngineCounts::default() };
        let g2 = EngineCounts { arrived, delivered, in_drops: of(false), ..EngineCounts::default() };
        [g1, g2]
    }

    #[test]
    fn socket_drops_and_snmp_values_are_found() {
        let udp = "  sl  local_address rem_address drops\n 1: 0:0 0:0 5\n 2: 0:0 0:0 7\n";
        assert_eq!(parse_socket_drops(udp), 12);
        let snmp = "Ip: InDiscards OutDiscards\nIp: 3 4\nUdp: NoPorts InCsumErrors\nUdp: 5 -1\n";
        let b = BoxCounts::parse("", udp, "", snmp);
        assert_eq!((b.ip_discards, b.udp_errors, b.udp_drops), (7, 5, 12));
    }

    #[test]
    fn every_packet_has_a_place_when_the_engines_count() {
        let mut before = boxes([0; 4], [0; 4], "lan");
        let mut after = boxes([0, 30, 0, 0], [0; 4], "lan");
        before.engines = Some(engines(0, 0, 0, 0, &[]));
        after.engines = Some(engines(970, 960, 900, 890, &[("OutNoPolicy", 10), ("InStateSeqOld", 10)]));
        // One socket buffer on g2 was sixty packets.
        after.boxes[2].udp_drops = 1;
        let ends = Ends { sent: 1000, received: 885, corrupt: 5, socket_drops: 0 };
        let a = Account::of(&before, &after, ends, false, None);
        let places: Vec<(&str, u64)> = a.places.iter().map(|p| (p.place.as_str(), p.packets)).collect();
        assert_eq!(
            places,
            [
                ("receive backlog of g1 (lan)", 30),
                ("engine of g1: OutNoPolicy", 10),
                ("sockets of the gateway g2", 60),
                ("engine of g2: InStateSeqOld", 10),
                ("corrupt on arrival", 5),
            ]
        );
        assert_eq!((a.unexplained, a.balances()), (0, true));
    }

    #[test]
    fn what_no_counter_explains_is_said_and_the_account_still_balances() {
        let (before, after) = (boxes([0; 4], [0; 4], "lan"), boxes([0, 100, 0, 0], [0; 4], "lan"));
        let ends = Ends { sent: 1000, received: 700, corrupt: 0, socket_drops: 50 };
        let a = Account::of(&before, &after, ends, false, None);
        // Two places with 150 buffers for 300 packets: shared out.
        assert_eq!((a.places.len(), a.unexplained, a.balances()), (2, 0, true));
        let none = Account::of(&before, &before, Ends { socket_drops: 0, ..ends }, false, None);
        assert_eq!((none.places.len(), none.unexplained, none.balances()), (0, 300, true));
    }

    #[test]
    fn a_drop_that_both_ends_of_a_link_count_is_one_packet_without_polling_and_two_with() {
        let before = boxes([0; 4], [0; 4], "wan");
        let after = boxes([0, 0, 40, 0], [0, 40, 0, 0], "wan");
        let delta = |napi| {
            let d = Delta { before: &before, after: &after, napi };
            d.link((Node::G1, "wan"), (Node::G2, "wan")).iter().map(|(_, n)| n).sum::<u64>()
        };
        assert_eq!((delta(false), delta(true)), (40, 80));
    }
}
