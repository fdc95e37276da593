//! A line with a running system under test on it, ready for one trial after the other with packets
//! of our own generator: on both gateways, or on the first with the laboratory's own tester in the
//! place of the second.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::passed::{Cost, Passed, Time};
use super::placement::Placement;
use super::tester::{self, Behaved, Tester};
use super::throughput::Carrier;
use super::traffic::Manner;
use super::ways::{Way, lanes, send};
use crate::clock;
use crate::dut::{Dut, EngineCounts, Running};
use crate::error::LabError;
use crate::interrupt;
use crate::load::capture::Pace;
use crate::load::frame::{Family, Route, Shape};
use crate::load::{self, Counted, Direction, Iperf3, Offer, Receiver, Sent, TcpLoad, TcpReport};
use crate::measure::counters::{self, CpuTicks};
use crate::measure::outer::{Crossed, OuterWatch};
use crate::measure::places::{Account, Ends, Snapshot};
use crate::measure::quota::{Quota, Stalls};
use crate::measure::soaker::{Busy, Soak};
use crate::measure::{self, Window, WindowPlan};
use crate::process::{self, Journal};
use crate::topology::{Line, LineSpec, Mode, Netns, Node, Owner, Sites, address, queues};

/// The receiver's port.
pub(super) const PORT: u16 = 7007;
/// Time of traffic before the first trial of a topology, so that ARP, path MTU discovery and empty
/// caches are not measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// Limits how long we wait until a system carries traffic. On a busy machine the system has to wait
/// for its turn.
const WARM_AT_MOST: Duration = Duration::from_secs(30);
/// Most bytes that a tunnel may add to a packet. Where inner packets are larger than usual, the MTU
/// of the outer link grows by the same amount.
const ENCAPSULATION: u32 = 100;
const GATEWAYS: [Node; 2] = [Node::G1, Node::G2];
/// MTU of a link as it is made.
const ORDINARY_MTU: u32 = 1500;
/// The usual inner MTU, which fits every system on an ordinary link.
const USUAL_MTU: u32 = 1400;

/// A system under test at work on a line, and the state of its trials.
pub(super) struct Rig {
    name: String,
    pub(super) line: Line,
    pub(super) dir: PathBuf,
    running: Option<Box<dyn Running>>,
    pub(super) placement: Placement,
    pub(super) mode: Mode,
    /// Version of IP of the packets of trials.
    family: Family,
    pub(super) route: Route,
    pub(super) trials: u32,
    /// Route of the packets from b to a; `route` is that of packets from a to b.
    back: Route,
    /// The CPU quotas of its gateways; empty without.
    pub(super) quotas: Vec<Quota>,
    /// A soaker at work.
    pub(super) soak: Option<Arc<Soak>>,
    /// The laboratory's tester in the place of the second gateway, when one gateway is measured
    /// alone.
    tester: Option<Tester>,
    /// State of the packets that came out of that gateway, all trials together.
    behaved: Behaved,
    /// How packets of a trial are sent and received.
    pub(super) manner: Manner,
}

/// What a line has to carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bed {
    pub(super) mode: Mode,
    /// The largest packet of the hosts, bytes.
    pub(super) inner_mtu: u32,
    /// Version of IP of the packets of trials.
    pub(super) family: Family,
    /// Queues at each end of a link.
    pub(super) queues: usize,
}

impl Bed {
    /// For packets of IPv4, with as many queues as every link has.
    pub(super) fn usual(mode: Mode, inner_mtu: u32) -> Self {
        Self { mode, inner_mtu, family: Family::V4, queues: queues() }
    }
}

/// Time for which quotas had stopped the gateways of a rig, as read at one moment.
pub(super) struct Stopped {
    at: Instant,
    stalls: Vec<Stalls>,
}

impl Stopped {
    /// Share of the processors' time between this reading and `after` in which a gateway was
    /// stopped, the mean of all gateways; 0 without quotas.
    pub(super) fn stopped(&self, after: &Self) -> f64 {
        let stalls: Vec<Stalls> = after.stalls.iter().zip(&self.stalls).map(|(a, b)| a.since(b)).collect();
        stopped_share(&stalls, (after.at - self.at).as_secs_f64(), measure::cpus())
    }
}

/// Mean share of `seconds` for which the groups were stopped. The kernel adds up the time of a
/// group over the processors on which it was stopped.
fn stopped_share(stalls: &[Stalls], seconds: f64, cpus: usize) -> f64 {
    let all = stalls.len() as f64 * cpus as f64 * seconds;
    stalls.iter().map(|s| s.seconds).sum::<f64>() / all.max(1e-9)
}

impl Rig {
    /// Builds the line and starts the system, where `placement` puts it. With an inner MTU above
    /// the usual one the outer link's is raised to as much more as any tunnel adds, and the
    /// tunnel's device, where the system leaves that to others, to the inner one: nothing is
    /// fragmented.
    pub(super) fn start(
        owner: &Owner,
        dut: &dyn Dut,
        mode: Mode,
        inner_mtu: u32,
        placement: &Placement,
    ) -> Result<Self, LabError> {
        Self::start_on(owner, dut, Bed::usual(mode, inner_mtu), placement)
    }

    /// The same on any bed. Links and tunnels carry IPv4 besides the version of IP of the packets.
    pub(super) fn start_on(
        owner: &Owner,
        dut: &dyn Dut,
        bed: Bed,
        placement: &Placement,
    ) -> Result<Self, LabError> {
        Self::begin(owner, dut, bed, placement, false)
    }

    /// The same with one gateway, and the laboratory's own tester in the place of the other.
    pub(super) fn start_single(
        owner: &Owner,
        dut: &dyn Dut,
        inner_mtu: u32,
        placement: &Placement,
    ) -> Result<Self, LabError> {
        Self::start_single_on(owner, dut, Bed::usual(Mode::Wire, inner_mtu), placement)
    }

    /// The same on any bed.
    pub(super) fn start_single_on(
        owner: &Owner,
        dut: &dyn Dut,
        bed: Bed,
        placement: &Placement,
    ) -> Result<Self, LabError> {
        Self::begin(owner, dut, bed, placement, true)
    }

    fn begin(
        owner: &Owner,
        dut: &dyn Dut,
        Bed { mode, inner_mtu, family, queues }: Bed,
        placement: &Placement,
        alone: bool,
    ) -> Result<Self, LabError> {
        let line = Line::build_with_queues(owner, LineSpec { mode, inner_mtu }, queues)?;
        if inner_mtu > ORDINARY_MTU {
            line.widen(inner_mtu)?;
        }
        if family == Family::V6 {
            line.add_ipv6(inner_mtu)?;
        }
        let dir = owner.dir().join(line.number().to_string());
        fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        placement.steer(&line)?;
        if inner_mtu > USUAL_MTU {
            let outer = (inner_mtu + ENCAPSULATION).to_string();
            for gateway in [Node::G1, Node::G2] {
                line.ip(gateway, &["link", "set", "wan", "mtu", &outer])?;
            }
        }
        let (tester, played) = match alone {
            true => Tester::prepare(&line, dut).map(|(tester, played)| (Some(tester), played))?,
            false => (None, None),
        };
        let sites = if family == Family::V6 { line.sites().with_ipv6() } else { line.sites() };
        let sites = Sites { played, ..sites };
        let running = match placement.gateways() {
            Some(cpus) => cpus.while_pinned(|| dut.start(&sites, &dir))?,
            None => dut.start(&sites, &dir)?,
        };
        drop(sites);
        placement.hold(&line)?;
        let large = inner_mtu > USUAL_MTU && running.takes_mtu();
        if let Some(device) = running.tunnel_device().filter(|_| large) {
            for gateway in if alone { &GATEWAYS[..1] } else { &GATEWAYS[..] } {
                line.ip(*gateway, &["link", "set", &device, "mtu", &inner_mtu.to_string()])?;
            }
        }
        let way = |gateway, host| load::route(line.ethernet(gateway, "lan")?, host, PORT);
        let (route, back) = (way(Node::G1, address::B)?, way(Node::G2, address::A)?);
        let mut rig = Self {
            name: dut.name(),
            line,
            dir,
            running: Some(running),
            placement: placement.clone(),
            mode,
            family,
            route,
            trials: 0,
            back,
            quotas: Vec::new(),
            soak: None,
            tester,
            behaved: Behaved::default(),
            manner: Manner::default(),
        };
        rig.warm_up()?;
        Ok(rig)
    }

    /// The rig under a name of its own, where several rigs have the same system.
    pub(super) fn called(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// The system's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn running(&mut self) -> Result<&mut Box<dyn Running>, LabError> {
        let name = &self.name;
        self.running.as_mut().ok_or_else(|| LabError::Measurement(format!("{name} has been stopped")))
    }

    fn warm_up(&mut self) -> Result<(), LabError> {
        let shape = Shape { payload: 64, mix: None, flows: 1, family: self.family, tag: 0 };
        let offer = Offer { rate: Some(1000.0), packets: 100, at_most: WARM_UP };
        let mut directions = vec![Direction::Forward];
        directions.extend(self.tester.is_some().then_some(Direction::Reverse));
        for direction in directions {
            // Neighbours are resolved by the first packets, which may not all survive that.
            let began = clock::now();
            loop {
                interrupt::check()?;
                let epoch = clock::now();
                let first = self.take_number(direction)?;
                let mut ways = self.ways(shape, direction, epoch, first)?;
                let cpus = self.placement.generator();
                let sent = send(&mut ways, (offer, Pace::Even), epoch, cpus)?;
                // Of what was sent, which may be less than was intended: that is not the system's
                // fault.
                let most = |(way, sent): (Way<'_>, &Sent)| {
                    let arrived = way.receiver.finish().arrived();
                    arrived > 0 && arrived * 2 >= sent.sent
                };
                if ways.into_iter().zip(&sent).all(most) {
                    break;
                }
                self.running()?.alive()?;
                if clock::now() - began >= WARM_AT_MOST {
                    let why = LabError::Measurement(format!("it carries nothing {direction}"));
                    let name = self.name.clone();
                    return Err(self.running()?.failed(&name, why));
                }
            }
        }
        Ok(())
    }

    /// Takes the next number of a trial; a trial in both directions takes two. The tester, if there
    /// is one, takes the keys of the present CHILD_SA before.
    fn take_number(&mut self, direction: Direction) -> Result<u32, LabError> {
        if let Some(tester) = &mut self.tester {
            tester.agree()?;
        }
        let first = self.trials + 1;
        self.trials += if direction == Direction::Both { 2 } else { 1 };
        Ok(first)
    }

    /// Prepares source and receiver of each direction of `direction`, for packets of `shape` with a
    /// tag of their own. The receivers work from now on.
    fn ways(
        &self,
        shape: Shape,
        direction: Direction,
        epoch: Instant,
        first: u32,
    ) -> Result<Vec<Way<'_>>, LabError> {
        let directions = match direction {
            Direction::Both => vec![Direction::Forward, Direction::Reverse],
            one => vec![one],
        };
        let cpus = self.placement.receiver();
        let way = |(direction, trial): (Direction, u32)| {
            // Distinguishes trials and directions, and systems by their topology's number.
            let shape = Shape { tag: self.line.number() << 16 | trial, ..shape };
            let [a, outside, b] = [Node::A, Node::G2, Node::B].map(|n| self.line.node(n));
            let listen = |node| Receiver::start_many(node, (PORT, self.manner.threads), shape, epoch, cpus);
            let frames = |route| lanes(shape, route, self.manner.threads);
            let (from, interface, frames, receiver) = match (direction, &self.tester) {
                (Direction::Reverse, None) => (b, "eth0", frames(self.back), listen(a)?),
                (Direction::Reverse, Some(tester)) => {
                    (outside, tester::DEVICE, vec![tester.frames(shape)], listen(a)?)
                }
                (_, None) => (a, "eth0", frames(self.route), listen(b)?),
                (_, Some(tester)) => {
                    let opener = tester.opener(shape, &self.route);
                    let tap = Receiver::tap(outside, tester::DEVICE, opener, epoch, cpus)?;
                    (a, "eth0", frames(self.route), tap)
                }
            };
            Way::open((from, interface), frames, self.manner.by, receiver)
        };
        directions.into_iter().zip(first..).map(way).collect()
    }

    /// Offers packets of `shape` (its tag is set here) in each direction that `direction` says,
    /// `offer` in each.
    pub(super) fn pass(
        &mut self,
        shape: Shape,
        offer: Offer,
        direction: Direction,
    ) -> Result<Passed, LabError> {
        let counted_before = self.engines_of_all()?;
        let processes: Vec<u32> =
            [Node::G1, Node::G2].iter().flat_map(|n| self.line.node(*n).pids()).collect();
        let inside: Vec<u32> = processes.iter().copied().chain([std::process::id()]).collect();
        let gateways_ns = |pids: &[u32]| pids.iter().map(|p| counters::process_ns(*p)).sum::<u64>();
        let epoch = clock::now();
        let first = self.take_number(direction)?;
        let mut ways = self.ways(shape, direction, epoch, first)?;
        let before = Snapshot::take(&self.line, counted_before.clone().try_into().ok())?;
        let (others, stalls) = (counters::processes_outside(&inside), self.stalls());
        let soaked = self.soak.as_ref().map(|soak| (soak.clone(), soak.now()));
        let (ns_before, cpu_before, start) = (gateways_ns(&processes), cpu()?, clock::now());
        let sent = send(&mut ways, (offer, self.manner.pace), epoch, self.placement.generator())?;
        let (mut cpu, seconds) = (cpu()?.since(&cpu_before), (clock::now() - start).as_secs_f64());
        let soaker = soaked.map(|(soak, from)| {
            let to = soak.now();
            cpu = cpu.beside_a_soaker(to.ticks_since(from));
            soak.busy(from, to)
        });
        let (ns, stopped) = (gateways_ns(&processes), stalls.stopped(&self.stalls()));
        let other: u64 = counters::processes_outside(&inside)
            .iter()
            .map(|(p, ticks)| ticks.saturating_sub(others.get(p).copied().unwrap_or(0)))
            .sum();
        let counted: Vec<Counted> = ways.into_iter().map(|way| way.receiver.finish()).collect();
        let ways: Vec<(Sent, Counted)> = sent.into_iter().zip(counted).collect();
        ways.iter().for_each(|(sent, counted)| self.behaved.add(sent, counted));
        let counted_after = self.engines_of_all()?;
        let engines = counted_after.iter().zip(&counted_before).map(|(after, before)| after.since(before));
        let engines = engines.collect();
        let after = Snapshot::take(&self.line, counted_after.try_into().ok())?;
        let device = self.running()?.tunnel_device();
        let on_the_line = direction == Direction::Forward && self.tester.is_none();
        let account = ways.first().filter(|_| on_the_line).map(|(sent, counted)| {
            let ends = Ends {
                sent: sent.sent,
                received: counted.received.unique,
                corrupt: counted.received.corrupt,
                socket_drops: counted.socket_drops,
            };
            let polls = self.mode == Mode::Wire || self.placement.polls();
            Account::of(&before, &after, ends, polls, device.as_deref())
        });
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let capacity = (measure::cpus() as f64 * seconds).max(1e-9);
        let share = |ticks: u64| measure::share(ticks as f64 / hertz, capacity);
        let busy_seconds = cpu.busy_seconds(capacity, hertz);
        let both = |soaker| Busy::new(busy_seconds / capacity, soaker, seconds, share(other + cpu.steal));
        let outer = after.link(Node::G1, "wan").since(&before.link(Node::G1, "wan"));
        Ok(Passed {
            ways,
            account,
            engines,
            cost: Cost {
                busy_share: busy_seconds / capacity,
                busy: soaker.map(both),
                softirq_share: cpu.softirq as f64 / cpu.busy().max(1) as f64,
                other_load_share: share(other),
                stolen_share: share(cpu.steal),
                gateways_ns: ns.saturating_sub(ns_before),
            },
            busy_seconds,
            time: Time {
                machine: capacity,
                idle: (cpu.idle + cpu.iowait) as f64 / hertz,
                stolen: cpu.steal as f64 / hertz,
            },
            stopped,
            outer: (outer.tx_bytes + outer.rx_bytes, outer.tx_buffers + outer.rx_buffers),
        })
    }

    /// Reads how long quotas have stopped the gateways until now.
    pub(super) fn stalls(&self) -> Stopped {
        Stopped { at: clock::now(), stalls: self.quotas.iter().map(Quota::stalls).collect() }
    }

    /// State of the packets that came out of a gateway that is measured alone; `None` on the line.
    pub(super) fn behaved(&self) -> Option<Behaved> {
        self.tester.as_ref().map(|_| self.behaved)
    }

    /// Begins to count the packets that cross the outer link.
    pub(super) fn watch(&self) -> Result<OuterWatch, LabError> {
        OuterWatch::start(&self.line)
    }

    /// Packets that have crossed the outer link since the watch began.
    pub(super) fn crossed(&self, watch: &OuterWatch) -> Result<Crossed, LabError> {
        watch.read(&self.line)
    }

    /// The processes of one gateway.
    pub(super) fn gateway_pids(&self, gateway: Node) -> Vec<u32> {
        self.line.node(gateway).pids()
    }

    /// TCP from a to b by iperf3, with a measuring window of `duration` after a warm-up of as much,
    /// at most a second.
    pub(super) fn tcp_window(&mut self, streams: u32, duration: Duration) -> Result<Window, LabError> {
        let warm_up = duration.min(Duration::from_secs(1));
        // Longer than it will take; it is ended with the window.
        let load = TcpLoad {
            streams,
            direction: Direction::Forward,
            rate_mbps: None,
            duration: warm_up + duration + Duration::from_secs(20),
            family: self.family,
        };
        let mut traffic = Iperf3::start(&self.line, load, &self.dir)?;
        let device = self.running()?.tunnel_device();
        let (name, soak) = (&self.name, self.soak.as_deref());
        let running =
            self.running.as_mut().ok_or_else(|| LabError::Measurement(format!("{name} has been stopped")))?;
        let (direction, mode, family) = (Direction::Forward, self.mode, self.family);
        let plan = WindowPlan { direction, mode, family, warm_up, duration, soak };
        let window = measure::measure(&self.line, plan, device.as_deref(), || {
            running.alive()?;
            traffic.alive()
        })
        .map_err(|e| running.failed(name, e))?;
        drop(traffic);
        Ok(window)
    }

    /// Counters of the packet engines of both gateways; `None` unless both have engines that count.
    pub(super) fn engines(&mut self) -> Result<Option<[EngineCounts; 2]>, LabError> {
        Ok(self.engines_of_all()?.try_into().ok())
    }

    /// Counters of each packet engine of the system, since its start.
    pub(super) fn engines_of_all(&mut self) -> Result<Vec<EngineCounts>, LabError> {
        let name = self.name.clone();
        let running = self.running()?;
        running.alive()?;
        running.engines().map_err(|e| running.failed(&name, e))
    }

    /// TCP from a to b for that long, by iperf3.
    pub(super) fn tcp(&mut self, streams: u32, duration: Duration) -> Result<TcpReport, LabError> {
        let (direction, family) = (Direction::Forward, self.family);
        let load = TcpLoad { streams, direction, rate_mbps: None, duration, family };
        let (report, name) = (Iperf3::start(&self.line, load, &self.dir)?.finish(), self.name.clone());
        let running = self.running()?;
        report.map(|(_, tcp)| tcp).map_err(|e| running.failed(&name, e))
    }

    /// Ends the system; returns the names of processes that had to be killed, and what it said of
    /// its tunnel.
    pub(super) fn stop(mut self) -> (Vec<String>, Vec<String>) {
        let killed = self.running.take().map(|r| r.stop()).unwrap_or_default();
        (killed, self.line.journal().lines())
    }
}

impl Carrier for Rig {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn pass(&mut self, shape: Shape, offer: Offer, direction: Direction) -> Result<Passed, LabError> {
        Self::pass(self, shape, offer, direction)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The processes first, then their boxes, then their files, which hold keys.
        self.running = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(super) fn cpu() -> Result<CpuTicks, LabError> {
    let stat = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
    CpuTicks::parse(&stat).ok_or_else(|| LabError::Measurement("/proc/stat is not as expected".into()))
}

impl Line {
    /// The Ethernet address of a box's end of a link.
    pub(super) fn ethernet(&self, node: Node, device: &str) -> Result<[u8; 6], LabError> {
        ethernet(self.journal(), self.node(node), device)
    }
}

/// The Ethernet address of a device in a box.
pub(super) fn ethernet(journal: &Journal, node: &Netns, device: &str) -> Result<[u8; 6], LabError> {
    let argv = ["ip", "-n", node.name(), "-br", "link", "show", "dev", device];
    let brief = process::run(journal, &argv, Duration::from_secs(5))?;
    load::parse_ethernet(&brief).ok_or_else(|| {
        let (name, said) = (node.name(), brief.trim());
        LabError::Measurement(format!("no Ethernet address of {name} in `{said}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_cannot_be_stopped_for_longer_than_there_was() {
        let stall = |seconds| Stalls { seconds, ..Stalls::default() };
        // Stopped on each of four processors all the time; one of two, on one of them; not held at
        // all.
        assert_eq!(stopped_share(&[stall(8.0), stall(8.0)], 2.0, 4), 1.0);
        assert_eq!(stopped_share(&[stall(2.0), stall(0.0)], 2.0, 4), 0.125);
        assert_eq!(stopped_share(&[], 2.0, 4), 0.0);
    }
}
