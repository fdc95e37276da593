//! One load, and what it cost each gateway: packets of one or several sizes at a fixed rate or TCP
//! over a running line, or packets through one gateway alone at the highest rate that it carries.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::super::passed::Passed;
use super::super::rig::{PORT, Rig, cpu};
use super::loads::around;
use crate::clock;
use crate::dut::EngineCounts;
use crate::error::LabError;
use crate::interrupt;
use crate::load::frame::{self, Family, Shape};
use crate::load::{self, Direction, Iperf3, Offer, Receiver, TcpLoad};
use crate::measure::counters::{self, CpuTicks, LinkCounters, parse_links};
use crate::measure::headers;
use crate::measure::search::{Goal, Search, Step};
use crate::measure::soaker::Soaked;
use crate::plan::mix::Mix;
use crate::plan::model::{FLOWS, Seen, Side, Way};
use crate::topology::Node;

/// Between two looks at gateways that work off their queues, so many without work in a row are the
/// end (one alone may be a gateway that got no processor), and no longer than this in all.
const LOOK: Duration = Duration::from_millis(10);
const QUIET: u32 = 5;
const DRAIN: Duration = Duration::from_secs(3);
/// Largest share that may be lost at the highest rate of one gateway: half a percent.
pub(super) const LOSS: &str = "0.5%";
/// The search for it: how close it is looked for.
const HIGHEST: Goal = Goal { loss: 0.005, width: 0.08, packets: u64::MAX, trials: u32::MAX };
/// Of a load's length, that of a trial of this search that does not decide.
const PROBE: u32 = 4;
/// The generator never offers more.
const LIMIT: f64 = 1e7;

/// Counters at one moment.
struct Moment {
    /// Processor time of the processes of g1 and g2, nanoseconds.
    gateways: [u64; 2],
    /// Counters of g1's link to the sender.
    lan: LinkCounters,
    machine: Machine,
    /// When the last of it was read.
    at: Instant,
}

/// Counters of the whole machine at one moment.
pub(super) struct Machine {
    cpu: CpuTicks,
    /// When `cpu` was read.
    at: Instant,
    /// Ticks of processes that are no part of the measurement.
    others: HashMap<(u32, u64), u64>,
    /// Work that a soaker had done, when one is at work.
    soaked: Option<Soaked>,
}

impl Machine {
    /// Now; `inside` are the processes that are a part of it.
    pub(super) fn now(inside: &[u32]) -> Result<Self, LabError> {
        let others = counters::processes_outside(inside);
        Ok(Self { others, cpu: cpu()?, at: clock::now(), soaked: None })
    }

    /// Busy time without that of programs outside, nanoseconds, and the share of the machine that
    /// these used.
    pub(super) fn until(&self, after: &Self) -> (f64, f64) {
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let gained =
            |(p, ticks): (&(u32, u64), &u64)| ticks.saturating_sub(self.others.get(p).copied().unwrap_or(0));
        let others = after.others.iter().map(gained).sum::<u64>() as f64 / hertz;
        let capacity = (after.at - self.at).as_secs_f64() * crate::measure::cpus() as f64;
        let soaked = self.soaked.zip(after.soaked).map_or(0, |(from, to)| to.ticks_since(from));
        let busy = after.cpu.since(&self.cpu).beside_a_soaker(soaked).busy_seconds(capacity, hertz);
        ((busy - others).max(0.0) * 1e9, crate::measure::share(others, capacity))
    }
}

impl Rig {
    fn moment(&self, inside: &[u32]) -> Result<Moment, LabError> {
        let links = parse_links(&self.line.node(Node::G1).read("/proc/thread-self/net/dev")?);
        let lan = links.into_iter().find(|(name, _)| name == "lan").map(|(_, l)| l).unwrap_or_default();
        let soaked = self.soak.as_ref().map(|soak| soak.now());
        let (machine, gateways) = (Machine { soaked, ..Machine::now(inside)? }, self.gateways_ns());
        Ok(Moment { lan, machine, gateways, at: clock::now() })
    }

    fn gateways_ns(&self) -> [u64; 2] {
        [Node::G1, Node::G2].map(|n| self.line.node(n).pids().iter().map(|p| counters::process_ns(*p)).sum())
    }

    /// Waits until the gateways have worked off what is in their queues; the moment when they had.
    fn drained(&self, inside: &[u32]) -> Result<Moment, LabError> {
        let (began, mut end) = (clock::now(), self.moment(inside)?);
        let (mut before, mut quiet) = (end.gateways, 0);
        while quiet < QUIET && clock::now() - began < DRAIN {
            interrupt::pause(LOOK)?;
            let now = self.gateways_ns();
            let worked = now.iter().zip(&before).map(|(n, b)| n.saturating_sub(*b)).max().unwrap_or(0);
            // A tenth of a processor is no longer the load.
            if u128::from(worked) < LOOK.as_nanos() / 10 {
                quiet += 1;
            } else {
                (quiet, end) = (0, self.moment(inside)?);
            }
            before = now;
        }
        Ok(end)
    }

    /// Ids of the processes of the line and of the laboratory.
    fn inside(&self) -> Vec<u32> {
        self.line.pids().into_iter().chain([std::process::id()]).collect()
    }

    /// Packets of a mix at `pps`, for `duration`.
    pub(super) fn packets(&mut self, mix: &Mix, pps: f64, duration: Duration) -> Result<Seen, LabError> {
        self.packets_of(mix, (FLOWS, 1), pps, duration)
    }

    /// The same of so many flows, and with so many packets at once.
    pub(super) fn packets_of(
        &mut self,
        mix: &Mix,
        (flows, burst): (u32, u32),
        pps: f64,
        duration: Duration,
    ) -> Result<Seen, LabError> {
        self.trials += 1;
        let shape = Shape { flows, ..shape(mix, self.line.number() << 16 | self.trials) };
        let epoch = clock::now();
        let receiver =
            Receiver::start(self.line.node(Node::B), PORT, shape, epoch, self.placement.receiver())?;
        let inside = self.inside();
        // Asking the daemons costs them time, so that is outside of what is measured.
        let engines = self.engines()?;
        let before = self.moment(&inside)?;
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: duration };
        let (a, cpus) = (self.line.node(Node::A), self.placement.generator());
        let sent = load::generate_bursts(a, "eth0", self.route, shape, (offer, burst), epoch, cpus)?;
        receiver.all_sent();
        // Packets that were still in queues are work of this load, in the time that it took.
        let after = self.drained(&inside)?;
        let received = receiver.finish().received.unique;
        let asked = self.engines()?;
        let count = sent.sent as f64;
        let loss = 1.0 - received as f64 / sent.intended.max(1) as f64;
        Ok(before.until(&after, (count, mix.bytes()), loss, engines.zip(asked), true))
    }

    /// Packets of a mix through one gateway alone, at `pps`.
    pub(super) fn alone(
        &mut self,
        mix: &Mix,
        way: Way,
        pps: f64,
        duration: Duration,
    ) -> Result<Seen, LabError> {
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: duration };
        let direction = if way == Way::Out { Direction::Forward } else { Direction::Reverse };
        let passed = self.pass(shape(mix, 0), offer, direction)?;
        Ok(seen_alone(&passed, way, mix.bytes()))
    }

    /// The same at the highest rate up to which hardly anything is lost, looked for from `low`
    /// upwards in at most so many trials.
    pub(super) fn highest(
        &mut self,
        mix: &Mix,
        way: Way,
        low: f64,
        duration: Duration,
        trials: u32,
    ) -> Result<Seen, LabError> {
        look_up(low, duration, trials, |pps, time| self.alone(mix, way, pps, time))
    }

    /// The same over the whole line, from a to b.
    pub(super) fn highest_of_line(
        &mut self,
        mix: &Mix,
        low: f64,
        duration: Duration,
        trials: u32,
    ) -> Result<Seen, LabError> {
        look_up(low, duration, trials, |pps, time| self.packets(mix, pps, time))
    }

    /// TCP from a to b at `mbps`, for `duration` after its start. A packet is one of the tunnel's.
    pub(super) fn stream(&mut self, mbps: u32, mtu: f64, duration: Duration) -> Result<Seen, LabError> {
        let (start, whole) = around(duration);
        let load = TcpLoad {
            streams: 1,
            direction: Direction::Forward,
            rate_mbps: Some(mbps),
            duration: whole,
            family: Family::V4,
        };
        let mut traffic = Iperf3::start(&self.line, load, &self.dir)?;
        interrupt::pause(start)?;
        traffic.alive()?;
        let inside = self.inside();
        let engines = self.engines()?;
        let before = self.moment(&inside)?;
        interrupt::pause(duration)?;
        let after = self.moment(&inside)?;
        let asked = self.engines()?;
        traffic.finish()?;
        // With segmentation offload a buffer has its headers once.
        let lan = after.lan.since(&before.lan);
        let payload = lan.rx_bytes.saturating_sub(headers(self.mode, Family::V4) * lan.rx_buffers) as f64;
        let count = (payload / (mtu - 52.0)).max(1.0);
        let bytes = payload / count + 52.0;
        Ok(before.until(&after, (count, bytes), 0.0, engines.zip(asked), false))
    }
}

/// Looks for the highest rate upwards from `low`.
fn look_up(
    low: f64,
    duration: Duration,
    trials: u32,
    mut trial: impl FnMut(f64, Duration) -> Result<Seen, LabError>,
) -> Result<Seen, LabError> {
    let mut search = Search::upwards(Goal { trials, ..HIGHEST }, low, LIMIT);
    let mut decided: Vec<(f64, Seen)> = Vec::new();
    let found = loop {
        interrupt::check()?;
        let (pps, time) = match search.step() {
            Step::Probe(pps) => (pps, duration / PROBE),
            Step::Decide(pps) => (pps, duration),
            Step::Done(found) => break found,
        };
        let seen = trial(pps, time)?;
        search.tell(seen.loss);
        if time == duration {
            decided.push((pps, seen));
        }
    };
    // On a machine that is disturbed again and again no trial may pass: take the one that lost
    // least.
    let least = || decided.iter().min_by(|(_, a), (_, b)| a.loss.total_cmp(&b.loss));
    let best = decided.iter().find(|(pps, _)| Some(*pps) == found).or_else(least);
    best.map(|(_, seen)| *seen)
        .ok_or_else(|| LabError::Measurement("the search for the highest rate did not decide".into()))
}

/// Cost of one gateway, from a trial that went through it one way.
fn seen_alone(passed: &Passed, way: Way, bytes_per_packet: f64) -> Seen {
    let (sent, seconds) = ((passed.sent() as f64).max(1.0), passed.seconds());
    let counts = passed.engines.first();
    let n = counts.map_or(passed.received() as f64, |c| handled_by(c, way)).max(1.0);
    let side = Side { pps: n / seconds, ns: passed.cost.gateways_ns as f64 / n, ..gathered(counts, way, n) };
    let other = Side { burst: 1.0, ..Side::default() };
    let (out, into) = if way == Way::Out { (side, other) } else { (other, side) };
    let outside = passed.cost.other_load_share * passed.time.machine;
    Seen {
        seconds,
        packets: sent,
        bytes_per_packet,
        loss: passed.loss().max(0.0),
        out,
        into,
        machine_ns: (passed.busy_seconds - outside).max(0.0) * 1e9 / sent,
        other_share: passed.cost.other_load_share,
    }
}

/// Packets that a gateway sealed, or opened.
fn handled_by(counts: &EngineCounts, way: Way) -> f64 {
    match way {
        Way::Out => counts.given as f64,
        Way::In => counts.arrived as f64,
    }
}

/// Calls of a gateway that handled `n` packets, and how many shared one of the crypto engine.
fn gathered(counts: Option<&EngineCounts>, way: Way, n: f64) -> Side {
    let of = |name: &&str| counts.and_then(|c| c.plane.get(*name)).copied().unwrap_or(0) as f64;
    let calls = ["rounds", "send-calls", "receives"].iter().map(of).sum::<f64>();
    // Packets that are read together are sealed by one call, and those that are received together
    // are opened by one.
    let batches = of(if way == Way::Out { &"seals" } else { &"receives" });
    // Without a count, each packet by itself: too dear rather than too cheap.
    let burst = if batches > 0.0 { (n / batches).max(1.0) } else { 1.0 };
    Side { calls: calls / n, burst, ..Side::default() }
}

/// Packets of a mix, marked with `tag`.
pub(super) fn shape(mix: &Mix, tag: u32) -> Shape {
    let largest = mix.parts.iter().map(|p| p.payload()).max().unwrap_or_default();
    // The generator's mixes are 7:4:1.
    let sizes: Option<[u16; 3]> =
        mix.parts.iter().map(|p| p.payload() as u16).collect::<Vec<_>>().try_into().ok();
    Shape {
        payload: largest as usize,
        mix: sizes.map(frame::Mix::simple),
        flows: FLOWS,
        family: Family::V4,
        tag,
    }
}

impl Moment {
    /// Differences between two moments in which that many packets were sent. `handled`: a gateway's
    /// packets are those that its engine counted, not those that were sent.
    fn until(
        &self,
        after: &Self,
        (packets, bytes_per_packet): (f64, f64),
        loss: f64,
        engines: Option<([EngineCounts; 2], [EngineCounts; 2])>,
        handled: bool,
    ) -> Seen {
        // From before the gateways' time was read until after: their work is never divided by less
        // than the time it took.
        let seconds = (after.at - self.machine.at).as_secs_f64();
        let counts = engines.map(|(before, after)| [0, 1].map(|g| after[g].since(&before[g])));
        let side = |g: usize| {
            let ns = after.gateways[g].saturating_sub(self.gateways[g]) as f64;
            let counts = counts.as_ref().map(|c| &c[g]);
            // Packets of the way that the load goes; acknowledgements of TCP come back, and their
            // work is in the counters too.
            let own = counts.map(|c| handled_by(c, Way::BOTH[g]));
            let n = own.filter(|_| handled).unwrap_or(packets).max(1.0);
            let gathered = gathered(counts, Way::BOTH[g], own.unwrap_or(n).max(1.0));
            Side { pps: n / seconds.max(1e-9), ns: ns / n, ..gathered }
        };
        let (busy, other_share) = self.machine.until(&after.machine);
        Seen {
            seconds,
            packets,
            bytes_per_packet,
            loss,
            out: side(0),
            into: side(1),
            machine_ns: busy / packets.max(1.0),
            other_share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::passed::{Cost, Time};
    use super::*;
    use crate::load::{Counted, Received, Sent};

    /// 10,000 packets in half a second, of which a gateway handled 8,000; of two processors three
    /// quarters were busy, a tenth with programs outside.
    fn passed() -> Passed {
        let sent = Sent { intended: 10_000, sent: 10_000, seconds: 0.5, ..Sent::default() };
        let received = Received { unique: 7_000, seconds: 0.5, ..Received::default() };
        let plane = [("seals", 1_000), ("receives", 500)].map(|(name, n)| (name.to_string(), n)).into();
        Passed {
            ways: vec![(sent, Counted { received, socket_drops: 0, esp: None })],
            account: None,
            engines: vec![EngineCounts { given: 8_000, arrived: 5_000, plane, ..EngineCounts::default() }],
            cost: Cost { gateways_ns: 40_000_000, other_load_share: 0.1, ..Cost::default() },
            busy_seconds: 0.75,
            time: Time { machine: 1.0, idle: 0.25, stolen: 0.0 },
            stopped: 0.0,
            outer: (0, 0),
        }
    }

    #[test]
    fn a_load_of_one_gateway_costs_the_machine_what_no_other_program_had_by_the_packets_that_were_sent() {
        let seen = seen_alone(&passed(), Way::Out, 238.0);
        assert_eq!((seen.packets, seen.other_share), (10_000.0, 0.1));
        assert!((seen.machine_ns - 65_000.0).abs() < 1e-6, "{seen:?}");
        // Other programs cannot have had more than all.
        let crowded = Passed { busy_seconds: 0.05, ..passed() };
        assert_eq!(seen_alone(&crowded, Way::Out, 238.0).machine_ns, 0.0);
    }

    #[test]
    fn a_gateway_alone_is_measured_by_the_packets_that_it_handled_itself() {
        let [out, into] = Way::BOTH.map(|way| *seen_alone(&passed(), way, 238.0).side(way));
        assert_eq!((out.pps, out.ns, out.burst), (16_000.0, 5_000.0, 8.0));
        assert_eq!((into.pps, into.ns, into.burst), (10_000.0, 8_000.0, 10.0));
        // One that counts nothing has handled what came out of it.
        let silent = seen_alone(&Passed { engines: vec![], ..passed() }, Way::Out, 238.0);
        assert_eq!((silent.out.pps, silent.out.burst), (14_000.0, 1.0));
    }
}
