//! One load on a running line, and what it cost each gateway: packets of one or several sizes at a fixed rate, or TCP.

use std::time::{Duration, Instant};

use super::super::rig::{PORT, Rig, cpu};
use crate::clock;
use crate::dut::EngineCounts;
use crate::error::LabError;
use crate::interrupt;
use crate::load::frame::{self, Shape};
use crate::load::{self, Direction, Iperf3, Offer, Receiver, TcpLoad};
use crate::measure::counters::{self, CpuTicks, LinkCounters, parse_links};
use crate::measure::headers;
use crate::plan::model::{Mix, Seen, Side};
use crate::topology::Node;

/// Flows of packets: enough that no two neighbours belong to one flow, so that nothing is merged on the way.
const FLOWS: u32 = 64;
/// TCP's start is left out.
const START: Duration = Duration::from_millis(700);

/// Counters at one moment.
struct Moment {
    /// Processor time of the processes of g1 and g2, nanoseconds.
    gateways: [u64; 2],
    /// What g1's link to the sender has received.
    lan: LinkCounters,
    cpu: CpuTicks,
    /// When `cpu` was read.
    at: Instant,
    others: u64,
}

impl Rig {
    fn moment(&self, inside: &[u32]) -> Result<Moment, LabError> {
        let others = counters::processes_outside(inside).values().sum();
        let links = parse_links(&self.line.node(Node::G1).read("/proc/thread-self/net/dev")?);
        let lan = links.into_iter().find(|(name, _)| name == "lan").map(|(_, l)| l).unwrap_or_default();
        let ns = |n: Node| self.line.node(n).pids().iter().map(|p| counters::process_ns(*p)).sum();
        let (cpu, at) = (cpu()?, clock::now());
        Ok(Moment { lan, cpu, at, others, gateways: [ns(Node::G1), ns(Node::G2)] })
    }

    /// Ids of the processes of the line and of the laboratory.
    fn inside(&self) -> Vec<u32> {
        self.line.pids().into_iter().chain([std::process::id()]).collect()
    }

    /// Packets of a mix at `pps` for `duration`.
    pub(super) fn packets(&mut self, mix: &Mix, pps: f64, duration: Duration) -> Result<Seen, LabError> {
        self.trials += 1;
        let tag = self.line.number() << 16 | self.trials;
        let epoch = clock::now();
        let largest = mix.parts.iter().map(|p| p.payload()).max().unwrap_or_default();
        // The generator's mixes are 7:4:1.
        let sizes: Option<[u16; 3]> =
            mix.parts.iter().map(|p| p.payload() as u16).collect::<Vec<_>>().try_into().ok();
        let shape =
            Shape { payload: largest as usize, mix: sizes.map(frame::Mix::simple), flows: FLOWS, tag };
        let receiver =
            Receiver::start(self.line.node(Node::B), PORT, shape, epoch, self.placement.receiver())?;
        let inside = self.inside();
        // Asking the daemons costs them time, so that is outside of what is measured.
        let engines = self.engines()?;
        let before = self.moment(&inside)?;
        let began = clock::now();
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: duration };
        let (a, cpus) = (self.line.node(Node::A), self.placement.generator());
        let sent = load::generate(a, "eth0", self.route, shape, offer, epoch, cpus)?;
        let seconds = (clock::now() - began).as_secs_f64();
        let after = self.moment(&inside)?;
        let asked = self.engines()?;
        let received = receiver.finish().received.unique;
        let count = sent.sent as f64;
        let loss = 1.0 - received as f64 / sent.intended.max(1) as f64;
        let generator = sent.cpu_seconds * 1e9;
        let seen = before.until(&after, (count, count * mix.bytes()), seconds, loss, generator);
        Ok(seen.with(engines.zip(asked)))
    }

    /// TCP from a to b at `mbps`, for `duration` after its start. A packet is one of the tunnel's.
    pub(super) fn stream(&mut self, mbps: u32, mtu: f64, duration: Duration) -> Result<Seen, LabError> {
        let whole = START + duration + Duration::from_millis(500);
        let load =
            TcpLoad { streams: 1, direction: Direction::Forward, rate_mbps: Some(mbps), duration: whole };
        let mut traffic = Iperf3::start(&self.line, load, &self.dir)?;
        interrupt::pause(START)?;
        traffic.alive()?;
        let inside = self.inside();
        let engines = self.engines()?;
        let before = self.moment(&inside)?;
        let began = clock::now();
        interrupt::pause(duration)?;
        let seconds = (clock::now() - began).as_secs_f64();
        let after = self.moment(&inside)?;
        let asked = self.engines()?;
        traffic.finish()?;
        // Where segmentation offload is at work a buffer has its headers once.
        let lan = after.lan.since(&before.lan);
        let payload = lan.rx_bytes.saturating_sub(headers(self.mode) * lan.rx_buffers) as f64;
        let count = (payload / (mtu - 52.0)).max(1.0);
        let seen = before.until(&after, (count, payload + 52.0 * count), seconds, 0.0, 0.0);
        Ok(seen.with(engines.zip(asked)))
    }
}

impl Moment {
    /// What happened between two moments, by the packet.
    fn until(
        &self,
        after: &Self,
        (packets, bytes): (f64, f64),
        seconds: f64,
        loss: f64,
        generator: f64,
    ) -> Seen {
        let n = packets.max(1.0);
        let side = |g: usize| Side {
            ns: after.gateways[g].saturating_sub(self.gateways[g]) as f64 / n,
            ..Side::default()
        };
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let others = after.others.saturating_sub(self.others) as f64 * 1e9 / hertz;
        let capacity = (after.at - self.at).as_secs_f64() * crate::measure::cpus() as f64;
        let busy = after.cpu.since(&self.cpu).busy_seconds(capacity, hertz) * 1e9;
        Seen {
            seconds,
            packets,
            bytes_per_packet: bytes / n,
            loss,
            out: side(0),
            into: side(1),
            machine_ns: (busy - others).max(0.0) / n,
            generator_ns: generator / n,
            other_share: others / (seconds.max(1e-9) * 1e9 * crate::measure::cpus() as f64),
        }
    }
}

impl Seen {
    /// With what the engines counted before and after.
    fn with(mut self, engines: Option<([EngineCounts; 2], [EngineCounts; 2])>) -> Self {
        let Some((before, after)) = engines else { return self };
        let [g1, g2] = [after[0].since(&before[0]), after[1].since(&before[1])];
        // Packets of the way that the load goes; acknowledgements of TCP come back, and their work is in the counters too.
        for (side, counts, n) in [(&mut self.out, &g1, g1.given), (&mut self.into, &g2, g2.arrived)] {
            let of = |names: &[&str]| -> f64 {
                names.iter().map(|k| counts.plane.get(*k).copied().unwrap_or(0) as f64).sum::<f64>()
                    / n.max(1) as f64
            };
            side.buffers = of(&["tun-reads", "tun-writes", "send-messages", "received"]);
            side.calls = of(&["rounds", "send-calls", "receives"]);
        }
        self
    }
}
