//! Result of one trial of packets, and checks that it is possible at all. Pure.

use serde::{Deserialize, Serialize};

use super::judge::Shares;
use crate::dut::EngineCounts;
use crate::load::{Counted, Sent};
use crate::measure::places::Account;
use crate::measure::soaker::Busy;
use crate::measure::{self, cost};

/// CPU of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cost {
    /// Share of the machine's capacity that was busy.
    pub busy_share: f64,
    /// The busy share by accounting and by a soaker; absent without a soaker. With a soaker, no
    /// other figure here contains the soaker's own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// Share of software interrupts in that.
    pub softirq_share: f64,
    /// Share of the capacity used by processes that belong neither to the line nor to the
    /// laboratory.
    pub other_load_share: f64,
    /// Share of the capacity that the host of a virtual machine took away.
    pub stolen_share: f64,
    /// CPU time of the gateways' processes, nanoseconds.
    pub gateways_ns: u64,
}

/// Result of one trial of packets.
#[derive(Clone)]
pub(super) struct Passed {
    /// Each direction: what was sent and what arrived.
    pub ways: Vec<(Sent, Counted)>,
    /// Account of the places where packets were lost; only for traffic from a to b alone.
    pub account: Option<Account>,
    /// Counters of each gateway's packet engine, for systems that count.
    pub engines: Vec<EngineCounts>,
    /// CPU.
    pub cost: Cost,
    /// Of it, non-idle time of the whole machine, seconds.
    pub busy_seconds: f64,
    /// The busy time split by kind.
    pub time: Time,
    /// Share of the processors' time in which a gateway was stopped by its quota, the mean of both.
    pub stopped: f64,
    /// Bytes and packets that crossed the outer link, both ways, as its kernel counts them (in wire
    /// mode without Ethernet header).
    pub outer: (u64, u64),
}

/// Time of all processors of the machine together in a trial, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Time {
    /// All there was.
    pub machine: f64,
    /// Doing nothing, or waiting for a disk.
    pub idle: f64,
    /// Taken by the host of this virtual machine.
    pub stolen: f64,
}

impl Time {
    /// By which times may disagree that were read one after the other from counters in whole ticks
    /// (`hertz` a second): a fiftieth of all there was, a tick of each processor, and one of each
    /// of the eight counters that were added up.
    fn inexact(&self, hertz: f64) -> f64 {
        self.machine / 50.0 + (measure::cpus() as f64 + 8.0) / hertz
    }
}

impl Passed {
    /// Lists results that are impossible whatever the system under test does, and so a defect of
    /// the laboratory: more packets arrived than were sent, more CPU time used than there was.
    pub(super) fn impossible(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (sent, counted) in &self.ways {
            // Packets that were not opened are assumed to be ours. A gateway that lets out other
            // packets is found by the warning `wrong-packets`.
            let (sent, received) = (sent.sent, counted.received.unique);
            if received > sent {
                all.push(format!("{received} packets arrived of {sent} that were sent"));
            }
        }
        let (time, hertz) = (self.time, rustix::param::clock_ticks_per_second() as f64);
        let not_idle = time.machine - time.idle;
        if not_idle < -time.inexact(hertz) {
            all.push(format!("the processors were idle for {:.2} s of {:.2} s", time.idle, time.machine));
        }
        let gateways = self.cost.gateways_ns as f64 / 1e9;
        if gateways > not_idle.max(0.0) + time.inexact(hertz) {
            let not_idle = not_idle.max(0.0);
            all.push(format!(
                "gateways used {gateways:.2} s of {not_idle:.2} s in which a processor was not idle"
            ));
        }
        all
    }

    /// Non-idle time of the whole machine for each packet that arrived, as a cost, nanoseconds.
    pub(super) fn machine_cost(&self) -> f64 {
        cost::seconds(self.busy_seconds) * 1e9 / self.received().max(1) as f64
    }

    fn sum(&self, of: impl Fn(&(Sent, Counted)) -> u64) -> u64 {
        self.ways.iter().map(of).sum()
    }

    /// Packets that were given to the kernel.
    pub(super) fn sent(&self) -> u64 {
        self.sum(|(s, _)| s.sent)
    }

    /// Packets that arrived, each once.
    pub(super) fn received(&self) -> u64 {
        self.sum(|(_, c)| c.arrived())
    }

    /// Share of the intended packets that did not arrive, unsent ones included: of the worse
    /// direction, for a throughput is that of both. Less than nothing is lost only where more came
    /// out than went in: of a gateway measured alone that is
    /// `wrong-packets`, of two it is [`Passed::impossible`].
    pub(super) fn loss(&self) -> f64 {
        let share = |(s, c): &(Sent, Counted)| 1.0 - c.arrived() as f64 / s.intended.max(1) as f64;
        self.ways.iter().map(share).fold(0.0, f64::max)
    }

    /// Share of packets that the generator left out, and share of sent packets that were lost: each
    /// of the worse direction.
    pub(super) fn shares(&self) -> Shares {
        let worst = |share: &dyn Fn(&(Sent, Counted)) -> f64| self.ways.iter().map(share).fold(0.0, f64::max);
        Shares {
            unsent: worst(&|(s, _)| s.unsent as f64 / s.intended.max(1) as f64),
            lost: worst(&|(s, c)| 1.0 - (c.arrived() as f64 / s.sent.max(1) as f64).min(1.0)),
        }
    }

    /// Share of the packets sent that the system lost, and not the receiver behind it: of the worse
    /// direction.
    pub(super) fn lost_by_the_system(&self) -> f64 {
        let through = |(s, c): &(Sent, Counted)| (c.arrived() + c.socket_drops) as f64 / s.sent.max(1) as f64;
        self.ways.iter().map(|way| 1.0 - through(way)).fold(0.0, f64::max)
    }

    /// Share of the intended packets that came out and that the receiver had no room for.
    pub(super) fn receiver_loss(&self) -> f64 {
        self.sum(|(_, c)| c.socket_drops) as f64 / self.sum(|(s, _)| s.intended).max(1) as f64
    }

    /// Packets a second that the generator gave to the kernel, all directions together.
    pub(super) fn sent_pps(&self) -> f64 {
        self.ways.iter().map(|(s, _)| s.sent as f64 / s.seconds.max(1e-9)).sum()
    }

    /// From the first packet to the last, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.ways.iter().map(|(s, c)| s.seconds.max(c.received.seconds)).fold(1e-9, f64::max)
    }

    /// The busy share by accounting and by a soaker, as measures; of no value without one.
    pub(super) fn by_soaker(&self) -> [(&'static str, f64); 3] {
        Busy::measures(self.cost.busy.as_ref())
    }

    /// Packets a second that arrived, all directions together.
    pub(super) fn forwarded_pps(&self) -> f64 {
        self.received() as f64 / self.seconds()
    }
}
