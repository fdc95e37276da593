//! Measures the cost of forwarding a packet for one box that has no tunnel: two hosts on one link,
//! and the same hosts with forwarding boxes between them, in turns. The difference of the machine's
//! busy time, by the box, is one box's, and no host is in it. One box adds less than what the
//! hosts' own time differs by from load to load; four add four times as much.
//!
//! ```text
//!   a 10.1.0.2 ------------------------------------------------------------ 10.2.0.2 b
//!   a 10.1.0.2 ---- r0 ---- r1 ---- r2 ---- r3 ---- 10.2.0.2 b
//! ```

use std::time::Duration;

use super::super::rig::PORT;
use super::observe::{Machine, shape};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::load::{self, Offer, Receiver};
use crate::measure::cost;
use crate::plan::mix::Mix;
use crate::plan::model::Forwarding;
use crate::process;
use crate::stats;
use crate::topology::{Network, Owner, address};

const COMMAND: Duration = Duration::from_secs(5);
/// Forwarding boxes between the hosts.
const BOXES: usize = 4;

/// A short load on a busy machine may pass before anything is forwarded: so many in a row do not.
const TRIES: usize = 10;

/// The two hosts, and what is between them.
struct Way {
    network: Network,
    route: load::frame::Route,
    sent: u32,
}

impl Way {
    /// Between the hosts are so many boxes.
    fn build(owner: &Owner, boxes: usize) -> Result<Self, LabError> {
        let mut network = Network::new(owner);
        let (a, b) = (network.add("a")?, network.add("b")?);
        let between = (0..boxes).map(|n| network.add(&format!("r{n}"))).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<usize> = [a].into_iter().chain(between).chain([b]).collect();
        let ends = |link: usize| match link {
            _ if boxes == 0 => ["10.1.0.2/24".to_string(), "10.2.0.2/24".to_string()],
            0 => ["10.1.0.2/24".into(), "10.1.0.1/24".into()],
            last if last == boxes => ["10.2.0.1/24".into(), "10.2.0.2/24".into()],
            n => [format!("192.0.2.{}/30", 4 * n + 1), format!("192.0.2.{}/30", 4 * n + 2)],
        };
        for (link, pair) in all.windows(2).enumerate() {
            let [left, right] = ends(link);
            network.connect((pair[0], "right", &left), (pair[1], "left", &right))?;
            // As in the line of four boxes: every packet crosses by itself.
            for (node, device) in [(pair[0], "right"), (pair[1], "left")] {
                let argv = ["ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "on"];
                process::run(network.journal(), &network.node(node).exec(&argv), COMMAND)?;
            }
        }
        for (n, node) in all.iter().enumerate().skip(1).take(boxes) {
            network.node(*node).sysctl(network.journal(), "net.ipv4.ip_forward", "1")?;
            // The last one is on b's network.
            if n < boxes {
                let next = format!("192.0.2.{}", 4 * n + 2);
                network.ip(*node, &["route", "add", "10.2.0.0/24", "via", &next])?;
            }
        }
        let argv = ["ip", "-n", network.node(all[1]).name(), "-br", "link", "show", "dev", "left"];
        let brief = process::run(network.journal(), &argv, COMMAND)?;
        let next_hop = load::parse_ethernet(&brief)
            .ok_or_else(|| LabError::Measurement(format!("no Ethernet address in `{}`", brief.trim())))?;
        Ok(Self { network, route: load::route(next_hop, address::B, PORT)?, sent: 0 })
    }

    /// Busy time of the machine for a packet that arrives, nanoseconds: of the first load of which
    /// anything does and that is long enough for a cost, or as long as a load may be. One that is
    /// too short is made again for twice as long.
    fn busy(&mut self, mix: &Mix, pps: f64, lengths: (Duration, Duration)) -> Result<f64, LabError> {
        let (mut duration, longest) = lengths;
        for _ in 0..TRIES {
            interrupt::check()?;
            match self.load(mix, pps, duration)? {
                Some((busy, _)) if cost::seconds(busy) == cost::TOO_SHORT && duration < longest => {
                    duration = longest.min(duration * 2);
                }
                Some((busy, received)) => return Ok(busy * 1e9 / received),
                None => {}
            }
        }
        Err(LabError::Measurement("plain forwarding carries nothing".into()))
    }

    /// Looks up neighbours on the way, by a load of which anything arrives.
    fn warm_up(&mut self, pps: f64) -> Result<(), LabError> {
        for _ in 0..TRIES {
            interrupt::check()?;
            if self.load(&Mix::frames(64), pps.min(1_000.0), Duration::from_millis(100))?.is_some() {
                return Ok(());
            }
        }
        Err(LabError::Measurement("plain forwarding carries nothing".into()))
    }

    /// Busy time of the machine, seconds, and packets that arrived, in one load; nothing when none
    /// of its packets arrives.
    fn load(&mut self, mix: &Mix, pps: f64, duration: Duration) -> Result<Option<(f64, f64)>, LabError> {
        self.sent += 1;
        let (epoch, inside) = (clock::now(), [std::process::id()]);
        let shape = shape(mix, self.network.number() << 16 | self.sent);
        let receiver = Receiver::start(self.network.node(1), PORT, shape, epoch, None)?;
        let before = Machine::now(&inside)?;
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: duration };
        load::generate(self.network.node(0), "right", self.route, shape, offer, epoch, None)?;
        let (busy, _) = before.until(&Machine::now(&inside)?);
        let received = receiver.finish().received.unique;
        Ok((received > 0).then_some((busy / 1e9, received as f64)))
    }
}

/// Busy time of the machine that one forwarding box adds for a packet of that size, nanoseconds, by
/// one load of that length; where it is too short for a cost, by one of up to four times as long.
pub(in crate::experiment) fn forwarding_ns(
    owner: &Owner,
    frame: u32,
    pps: f64,
    duration: Duration,
) -> Result<f64, LabError> {
    measure(owner, &[frame], pps, (duration, duration * 4), 1).map(|forwarding| forwarding.ns)
}

/// Measures it with packets of each of these sizes, in turns with and without boxes between,
/// `repeats` times. A load has the first of two lengths, and no more than the second.
pub(super) fn measure(
    owner: &Owner,
    frames: &[u32],
    pps: f64,
    lengths: (Duration, Duration),
    repeats: u32,
) -> Result<Forwarding, LabError> {
    let mut ways = [Way::build(owner, 0)?, Way::build(owner, BOXES)?];
    // Neighbours are looked up before it counts.
    for way in &mut ways {
        way.warm_up(pps)?;
    }
    let mut all = Vec::new();
    for _ in 0..repeats {
        for frame in frames {
            let mut busy = [0.0; 2];
            for (way, busy) in ways.iter_mut().zip(&mut busy) {
                *busy = way.busy(&Mix::frames(*frame), pps, lengths)?;
            }
            all.push(busy);
        }
    }
    added(&all, pps).ok_or_else(|| LabError::Measurement("plain forwarding was not measured".into()))
}

/// From pairs of what a packet takes without the boxes and with them. In the middle of all, each by
/// themselves: what disturbs one load does not disturb its neighbour.
fn added(all: &[[f64; 2]], pps: f64) -> Option<Forwarding> {
    let middle = |n: usize| stats::median(&all.iter().map(|b| b[n]).collect::<Vec<_>>());
    let one: Vec<f64> = all.iter().map(|b| (b[1] - b[0]) / BOXES as f64).collect();
    let quarters = stats::quantile(&one, 0.75)? - stats::quantile(&one, 0.25)?;
    let hosts_ns = middle(0)?;
    // A box that costs less than nothing is noise.
    let ns = ((middle(1)? - hosts_ns) / BOXES as f64).max(0.0);
    Some(Forwarding { pps, hosts_ns, ns, spread_ns: quarters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_costs_what_each_adds_to_the_hosts() {
        let f = added(&[[5_000.0, 11_000.0], [6_000.0, 14_000.0], [5_500.0, 9_500.0]], 1e4).expect("three");
        assert_eq!((f.hosts_ns, f.ns, f.spread_ns, f.pps), (5_500.0, 1_375.0, 500.0, 1e4));
        assert_eq!(added(&[[5_000.0, 4_000.0]], 1e4).map(|f| f.ns), Some(0.0));
        assert_eq!(added(&[], 1e4), None);
    }
}
