//! What forwarding a packet costs one box that has no tunnel: two hosts on one link, and the same hosts with a forwarding box
//! between them, in turns. The difference of the machine's busy time is that box's, and no host is in it.
//!
//! ```text
//!   a 10.1.0.2 ------------------------------ 10.2.0.2 b
//!   a 10.1.0.2 ---- 10.1.0.1 r 10.2.0.1 ---- 10.2.0.2 b
//! ```

use std::time::Duration;

use super::super::rig::PORT;
use super::observe::{Machine, shape};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::load::{self, Offer, Receiver};
use crate::plan::mix::Mix;
use crate::plan::model::Forwarding;
use crate::process;
use crate::stats;
use crate::topology::{Network, Owner, address};

const COMMAND: Duration = Duration::from_secs(5);

/// The two hosts, and what is between them.
struct Way {
    network: Network,
    route: load::frame::Route,
    sent: u32,
}

impl Way {
    fn build(owner: &Owner, forwarding: bool) -> Result<Self, LabError> {
        let mut network = Network::new(owner);
        let (a, b) = (network.add("a")?, network.add("b")?);
        let (left, right) = ((a, "eth0", "10.1.0.2/24"), (b, "eth0", "10.2.0.2/24"));
        let mut ends = vec![(a, "eth0"), (b, "eth0")];
        let (next, device) = if forwarding {
            let r = network.add("r")?;
            network.connect(left, (r, "lan", "10.1.0.1/24"))?;
            network.connect((r, "wan", "10.2.0.1/24"), right)?;
            network.node(r).sysctl(network.journal(), "net.ipv4.ip_forward", "1")?;
            ends.extend([(r, "lan"), (r, "wan")]);
            (r, "lan")
        } else {
            network.connect(left, right)?;
            (b, "eth0")
        };
        // As in the line of four boxes: every packet crosses by itself.
        for (node, device) in ends {
            let argv = ["ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "on"];
            process::run(network.journal(), &network.node(node).exec(&argv), COMMAND)?;
        }
        let argv = ["ip", "-n", network.node(next).name(), "-br", "link", "show", "dev", device];
        let brief = process::run(network.journal(), &argv, COMMAND)?;
        let next_hop = load::parse_ethernet(&brief)
            .ok_or_else(|| LabError::Measurement(format!("no Ethernet address in `{}`", brief.trim())))?;
        Ok(Self { network, route: load::route(next_hop, address::B, PORT)?, sent: 0 })
    }

    /// Busy time of the machine for a packet that arrives, nanoseconds.
    fn busy(&mut self, mix: &Mix, pps: f64, duration: Duration) -> Result<f64, LabError> {
        self.sent += 1;
        let (epoch, inside) = (clock::now(), [std::process::id()]);
        let shape = shape(mix, self.network.number() << 16 | self.sent);
        let receiver = Receiver::start(self.network.node(1), PORT, shape, epoch, None)?;
        let before = Machine::now(&inside)?;
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: duration };
        load::generate(self.network.node(0), "eth0", self.route, shape, offer, epoch, None)?;
        let (busy, _) = before.until(&Machine::now(&inside)?);
        let received = receiver.finish().received.unique;
        if received == 0 {
            return Err(LabError::Measurement("plain forwarding carries nothing".into()));
        }
        Ok(busy / received as f64)
    }
}

/// Measures it with packets of each of these sizes, in turns with and without the box between, `repeats` times.
pub(super) fn measure(
    owner: &Owner,
    frames: &[u32],
    pps: f64,
    duration: Duration,
    repeats: u32,
) -> Result<Forwarding, LabError> {
    let mut ways = [Way::build(owner, false)?, Way::build(owner, true)?];
    // Neighbours are looked up before it counts.
    for way in &mut ways {
        way.busy(&Mix::frames(64), pps.min(1_000.0), Duration::from_millis(100))?;
    }
    let mut all = Vec::new();
    for _ in 0..repeats {
        for frame in frames {
            interrupt::check()?;
            let mut busy = [0.0; 2];
            for (way, busy) in ways.iter_mut().zip(&mut busy) {
                *busy = way.busy(&Mix::frames(*frame), pps, duration)?;
            }
            all.push(busy);
        }
    }
    added(&all, pps).ok_or_else(|| LabError::Measurement("plain forwarding was not measured".into()))
}

/// From pairs of what a packet takes without the box and with it.
fn added(all: &[[f64; 2]], pps: f64) -> Option<Forwarding> {
    let hosts: Vec<f64> = all.iter().map(|b| b[0]).collect();
    let boxes: Vec<f64> = all.iter().map(|b| b[1] - b[0]).collect();
    let range = stats::quantile(&boxes, 1.0)? - stats::quantile(&boxes, 0.0)?;
    // A box that costs less than nothing is noise.
    Some(Forwarding {
        pps,
        hosts_ns: stats::median(&hosts)?,
        ns: stats::median(&boxes)?.max(0.0),
        range_ns: range,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_costs_what_it_adds_to_the_hosts() {
        let f =
            added(&[[5_000.0, 6_500.0], [6_000.0, 8_000.0], [5_500.0, 6_500.0]], 1e4).expect("three pairs");
        assert_eq!((f.hosts_ns, f.ns, f.range_ns, f.pps), (5_500.0, 1_500.0, 1_000.0, 1e4));
        assert_eq!(added(&[[5_000.0, 4_000.0]], 1e4).map(|f| f.ns), Some(0.0));
        assert_eq!(added(&[], 1e4), None);
    }
}
