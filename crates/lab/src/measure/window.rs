//! One measuring window over a line with traffic on it: the first second (path MTU discovery, slow
//! start, caches) is left out, then counters are read at both ends of the window and at every half
//! second in between.
//!
//! The headline cost is the busy time of the whole machine per byte, because this kernel accounts
//! by tick: time charged to a gateway's process contains software interrupts of other boxes that
//! ran in its context, and lacks its own that ran elsewhere. Subtracting plain forwarding of the
//! same run leaves what the system under test adds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cost;
use super::counters::{self, CpuTicks, LinkCounters, parse_links};
use super::soaker::{Busy, Soak};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::load::Direction;
use crate::load::frame::Family;
use crate::topology::{Line, Mode, Node};

/// Options of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct WindowPlan<'a> {
    /// Direction in which the counted traffic goes.
    pub direction: Direction,
    /// How packets cross the line: what its counters contain depends on it.
    pub mode: Mode,
    /// Version of IP of the traffic.
    pub family: Family,
    /// Left out at the beginning, from the first traffic on.
    pub warm_up: Duration,
    /// Length of the window.
    pub duration: Duration,
    /// A soaker at work.
    pub soak: Option<&'a Soak>,
}

/// Counters at one moment of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Seconds since the beginning of the window.
    pub t: f64,
    /// Bytes received by the receiving hosts since then.
    pub bytes: u64,
    /// Buffers received since then.
    pub buffers: u64,
    /// Busy clock ticks of the machine since then.
    pub busy_ticks: u64,
}

/// A process on one of the gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The box: `g1` or `g2`.
    pub node: String,
    /// The program's name.
    pub process: String,
    /// CPU time in the window, nanoseconds.
    pub cpu_ns: u64,
    /// Resident size at the end, KiB; absent when the process was gone.
    pub resident_kib: Option<u64>,
}

/// The interface through which a tunnel's traffic must pass on g1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelDevice {
    /// Name of the interface.
    pub name: String,
    /// Bytes and packets that it carried in the window.
    pub counters: LinkCounters,
}

/// Results of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Length, seconds.
    pub seconds: f64,
    /// Bytes received by the receiving hosts (b; for reverse traffic a; for both, both), with
    /// headers.
    pub bytes: u64,
    /// Buffers received.
    pub buffers: u64,
    /// TCP payload among the bytes: less one set of headers per buffer.
    pub payload_bytes: u64,
    /// Payload received, 10^9 bits per second.
    pub gbps: f64,
    /// Mean size of a received buffer: near 64 KB offload crossed the links, near the MTU packets
    /// crossed as on a wire.
    pub bytes_per_buffer: f64,
    /// Busy time of the whole machine per byte of payload received, nanoseconds.
    pub machine_ns_per_byte: f64,
    /// CPU time of the gateways' processes per byte of payload received, nanoseconds.
    pub gateways_ns_per_byte: f64,
    /// Share of the machine's busy time that was software interrupts.
    pub softirq_share: f64,
    /// Share of the machine's capacity that was busy.
    pub busy_share: f64,
    /// The busy share by accounting and by a soaker; absent without a soaker. With a soaker, no
    /// other figure here contains the soaker's own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// Share of the machine's capacity used by processes that belong neither to the line nor to the
    /// laboratory.
    pub other_load_share: f64,
    /// Packets lost in the kernel's receive backlog; of the whole machine.
    pub backlog_drops: u64,
    /// Time of the machine by kind, clock ticks.
    pub cpu: CpuTicks,
    /// Clock ticks per second.
    pub ticks_per_second: u64,
    /// The processes on the gateways.
    pub gateways: Vec<Gateway>,
    /// Counters of every interface, named `box.interface`.
    pub links: BTreeMap<String, LinkCounters>,
    /// The tunnel's interface, for systems that have one.
    pub tunnel: Option<TunnelDevice>,
    /// The moments in between.
    pub samples: Vec<Sample>,
}

impl Window {
    /// Busy time of the whole machine per byte as a cost, nanoseconds.
    pub(crate) fn machine_cost(&self) -> f64 {
        let busy = self.machine_ns_per_byte * self.payload_bytes as f64 / 1e9;
        if cost::seconds(busy) == cost::TOO_SHORT { cost::TOO_SHORT } else { self.machine_ns_per_byte }
    }

    /// Share of the machine's busy time that was software interrupts, where there were ticks enough
    /// to tell.
    pub(crate) fn softirq(&self) -> f64 {
        cost::share(self.cpu.softirq, &self.cpu)
    }
}

/// Counter files of the line, opened once: reading them does not need to enter the namespaces
/// again.
struct Taps {
    links: Vec<(Node, File)>,
    receivers: Vec<Node>,
}

#[derive(Clone)]
struct Counted {
    cpu: CpuTicks,
    links: BTreeMap<String, LinkCounters>,
    bytes: u64,
    buffers: u64,
}

impl Taps {
    fn open(line: &Line, direction: Direction) -> Result<Self, LabError> {
        let links = Node::ALL
            .into_iter()
            .map(|node| Ok((node, line.node(node).open("/proc/thread-self/net/dev")?)))
            .collect::<Result<_, LabError>>()?;
        let receivers = match direction {
            Direction::Forward => vec![Node::B],
            Direction::Reverse => vec![Node::A],
            Direction::Both => vec![Node::A, Node::B],
        };
        Ok(Self { links, receivers })
    }

    fn read(&mut self) -> Result<Counted, LabError> {
        let stat = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
        let cpu = CpuTicks::parse(&stat)
            .ok_or_else(|| LabError::Measurement("/proc/stat is not as expected".into()))?;
        let (mut links, mut bytes, mut buffers) = (BTreeMap::new(), 0, 0);
        let mut text = String::new();
        for (node, file) in &mut self.links {
            text.clear();
            file.rewind()
                .and_then(|()| file.read_to_string(&mut text))
                .map_err(LabError::io("reading /proc/net/dev"))?;
            for (name, counters) in parse_links(&text) {
                if name == "eth0" && self.receivers.contains(node) {
                    bytes += counters.rx_bytes;
                    buffers += counters.rx_buffers;
                }
                if name != "lo" {
                    links.insert(format!("{}.{name}", node.name()), counters);
                }
            }
        }
        Ok(Counted { cpu, links, bytes, buffers })
    }
}

fn gateway_processes(line: &Line) -> Vec<(Node, u32)> {
    [Node::G1, Node::G2]
        .into_iter()
        .flat_map(|n| line.node(n).pids().into_iter().map(move |p| (n, p)))
        .collect()
}

fn backlog_drops() -> u64 {
    fs::read_to_string("/proc/net/softnet_stat").map_or(0, |t| counters::parse_backlog_drops(&t))
}

/// Bytes that each buffer counts beside TCP payload, however many packets the buffer stands for:
/// IP and TCP with timestamps, and Ethernet. In wire mode the links receive by polling, and
/// Ethernet is not counted ([`LinkCounters`]).
pub(crate) fn headers(mode: Mode, family: Family) -> u64 {
    let ethernet = match mode {
        Mode::Offload => 14,
        Mode::Wire => 0,
    };
    let ip = match family {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    ethernet + ip + 32
}

const BETWEEN_SAMPLES: Duration = Duration::from_millis(500);
/// Less than this is an exchange of headers, not a load.
const TRAFFIC: u64 = 64 * 1024;

/// Waits for traffic, lets it warm up, and measures. `alive` is asked at every sample and ends the
/// window with its error.
pub fn measure(
    line: &Line,
    plan: WindowPlan<'_>,
    tunnel_device: Option<&str>,
    mut alive: impl FnMut() -> Result<(), LabError>,
) -> Result<Window, LabError> {
    let mut taps = Taps::open(line, plan.direction)?;
    let before = taps.read()?.bytes;
    let started = interrupt::wait_until(Duration::from_secs(10), || {
        alive()?;
        Ok(taps.read()?.bytes >= before + TRAFFIC)
    })?;
    if !started {
        return Err(LabError::Measurement("no traffic arrived within 10 s".into()));
    }
    interrupt::pause(plan.warm_up)?;

    let mut inside = line.pids();
    inside.push(std::process::id());
    let gateways: Vec<(Node, u32, u64)> =
        gateway_processes(line).into_iter().map(|(n, p)| (n, p, counters::process_ns(p))).collect();
    let (others, drops) = (counters::processes_outside(&inside), backlog_drops());
    let soaked = plan.soak.map(|soak| (soak, soak.now()));
    let worked = |cpu: CpuTicks| match soaked {
        Some((soak, from)) => cpu.beside_a_soaker(soak.now().ticks_since(from)),
        None => cpu,
    };
    let (start, first) = (clock::now(), taps.read()?);
    let (mut samples, hz) = (Vec::new(), rustix::param::clock_ticks_per_second() as f64);
    let (seconds, last) = loop {
        let elapsed = clock::now() - start;
        let left = plan.duration.saturating_sub(elapsed);
        // The last stretch takes up what is left rather than ending in a sliver.
        let step = if left < BETWEEN_SAMPLES * 3 / 2 { left } else { BETWEEN_SAMPLES };
        interrupt::pause(step)?;
        alive()?;
        let t = (clock::now() - start).as_secs_f64();
        let now = taps.read()?;
        samples.push(Sample {
            t,
            bytes: now.bytes.saturating_sub(first.bytes),
            buffers: now.buffers.saturating_sub(first.buffers),
            busy_ticks: (worked(now.cpu.since(&first.cpu)).busy_seconds(cpus() as f64 * t, hz) * hz).round()
                as u64,
        });
        if step == left {
            break (t, now);
        }
    };
    let cpu = worked(last.cpu.since(&first.cpu));
    let soaker = soaked.map(|(soak, from)| soak.busy(from, soak.now()));
    let gateways: Vec<Gateway> = gateways
        .into_iter()
        .map(|(node, pid, before)| Gateway {
            node: node.name().into(),
            process: counters::process_name(pid).unwrap_or_else(|| "?".into()),
            cpu_ns: counters::process_ns(pid).saturating_sub(before),
            resident_kib: counters::resident_kib(pid),
        })
        .collect();
    let other_ticks: u64 = counters::processes_outside(&inside)
        .iter()
        .map(|(process, ticks)| ticks.saturating_sub(others.get(process).copied().unwrap_or(0)))
        .sum();
    let drops = backlog_drops().saturating_sub(drops);
    Totals {
        seconds,
        first,
        last,
        cpu,
        soaker,
        gateways,
        other_ticks,
        drops,
        headers: headers(plan.mode, plan.family),
    }
    .window(tunnel_device, samples)
}

struct Totals {
    seconds: f64,
    first: Counted,
    last: Counted,
    /// Of the machine in between, without a soaker's.
    cpu: CpuTicks,
    /// Share that was busy by a soaker.
    soaker: Option<f64>,
    gateways: Vec<Gateway>,
    other_ticks: u64,
    drops: u64,
    /// Of a buffer, bytes.
    headers: u64,
}

/// Bytes that may have entered a tunnel before a window in which they leave it: its device's queue
/// and a slow daemon's own.
const WAITING: u64 = 8 << 20;

/// True when so many bytes arrived by way of a tunnel whose device carried `through`: nearly all,
/// or a good part, and the rest may have waited in it.
fn went_through(through: u64, bytes: u64) -> bool {
    let of = |share: f64| through as f64 >= share * bytes as f64;
    of(0.8) || (of(0.25) && bytes - through <= WAITING)
}

impl Totals {
    fn window(self, tunnel_device: Option<&str>, samples: Vec<Sample>) -> Result<Window, LabError> {
        let Self { seconds, first, last, cpu, soaker, gateways, other_ticks, drops, headers } = self;
        let bytes = last.bytes.saturating_sub(first.bytes);
        let buffers = last.buffers.saturating_sub(first.buffers);
        let payload = bytes.saturating_sub(headers * buffers);
        if payload == 0 || seconds <= 0.0 {
            return Err(LabError::Measurement(
                "the traffic stopped: nothing arrived in the measuring window".into(),
            ));
        }
        let hz = rustix::param::clock_ticks_per_second();
        let cpus = cpus() as f64;
        let busy = cpu.busy_seconds(cpus * seconds, hz as f64);
        let none = LinkCounters::default();
        let links: BTreeMap<String, LinkCounters> = last
            .links
            .iter()
            .map(|(name, c)| (name.clone(), c.since(first.links.get(name).unwrap_or(&none))))
            .collect();
        let tunnel = tunnel_device.map(|name| TunnelDevice {
            name: name.into(),
            counters: links.get(&format!("g1.{name}")).copied().unwrap_or_default(),
        });
        // A figure for a tunnel through which the traffic did not go is worse than none.
        if let Some(t) = &tunnel {
            let through = t.counters.rx_bytes + t.counters.tx_bytes;
            if !went_through(through, bytes) {
                return Err(LabError::Measurement(format!(
                    "the traffic did not go through the tunnel: the hosts received {bytes} bytes, \
                     interface {} of g1 carried {through}",
                    t.name
                )));
            }
        }
        let per_byte = |ns: f64| ns / payload as f64;
        let other_load_share = super::share(other_ticks as f64 / hz as f64, cpus * seconds);
        let taken = other_load_share + cpu.steal as f64 / cpu.total().max(1) as f64;
        Ok(Window {
            seconds,
            bytes,
            buffers,
            payload_bytes: payload,
            gbps: payload as f64 * 8.0 / seconds / 1e9,
            bytes_per_buffer: bytes as f64 / buffers.max(1) as f64,
            machine_ns_per_byte: per_byte(busy * 1e9),
            gateways_ns_per_byte: per_byte(gateways.iter().map(|g| g.cpu_ns).sum::<u64>() as f64),
            softirq_share: cpu.softirq as f64 / cpu.busy().max(1) as f64,
            busy_share: busy / (cpus * seconds),
            busy: soaker.map(|soaker| Busy::new(busy / (cpus * seconds), soaker, seconds, taken)),
            other_load_share,
            backlog_drops: drops,
            cpu,
            ticks_per_second: hz,
            gateways,
            links,
            tunnel,
            samples,
        })
    }
}

/// Processors of this machine.
pub(crate) fn cpus() -> usize {
    // Processors of the whole machine, as /proc/stat counts them, also those that this process may
    // not use.
    let online = fs::read_to_string("/proc/stat").map_or(0, |s| {
        s.lines()
            .filter(|l| l.starts_with("cpu") && l.as_bytes().get(3).is_some_and(u8::is_ascii_digit))
            .count()
    });
    online.max(1)
}

/// The share that some processor time, in seconds, has in a capacity of processor seconds, from 0
/// to 1. The kernel counts time in ticks: a short window may seem to hold more than its capacity.
pub(crate) fn share(used: f64, capacity: f64) -> f64 {
    (used / capacity.max(1e-9)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: u64, buffers: u64, cpu: CpuTicks, tunnel: u64) -> Counted {
        let link = |rx_bytes| LinkCounters { rx_bytes, ..LinkCounters::default() };
        let links =
            BTreeMap::from([("b.eth0".to_string(), link(bytes)), ("g1.ipsec0".to_string(), link(tunnel))]);
        Counted { cpu, links, bytes, buffers }
    }

    fn totals(tunnel: u64) -> Totals {
        let hz = rustix::param::clock_ticks_per_second();
        let all = cpus() as u64 * 2 * hz;
        let cpu = CpuTicks { idle: all / 2, system: all / 4, softirq: all / 4, ..CpuTicks::default() };
        Totals {
            seconds: 2.0,
            first: counted(1000, 10, CpuTicks::default(), 0),
            last: counted(2_000_001_000 + 100_000 * headers(Mode::Offload, Family::V4), 100_010, cpu, tunnel),
            cpu,
            soaker: None,
            gateways: vec![Gateway {
                node: "g1".into(),
                process: "x".into(),
                cpu_ns: 500_000_000,
                resident_kib: None,
            }],
            other_ticks: 0,
            drops: 0,
            headers: headers(Mode::Offload, Family::V4),
        }
    }

    #[test]
    fn a_buffer_s_headers_are_those_that_the_counters_of_its_mode_contain() {
        // Full packets of an MTU of 1400 count 1400 bytes in wire mode; an acknowledgement 52, and
        // 66 with offload.
        let both = [Family::V4, Family::V6].map(|f| [Mode::Wire, Mode::Offload].map(|mode| headers(mode, f)));
        assert_eq!(both, [[52, 66], [72, 86]]);
        let mut wire = totals(0);
        (wire.first, wire.headers) = (counted(0, 0, CpuTicks::default(), 0), headers(Mode::Wire, Family::V4));
        (wire.last.bytes, wire.last.buffers) = (1400 * 1000, 1000);
        assert_eq!(wire.window(None, vec![]).expect("a window").payload_bytes, 1348 * 1000);
    }

    #[test]
    fn rates_and_costs_follow_from_the_counters() {
        let w = totals(0).window(None, vec![]).expect("a window");
        assert_eq!((w.payload_bytes, w.buffers), (2_000_000_000, 100_000));
        assert!((w.gbps - 8.0).abs() < 1e-9);
        assert!((w.bytes_per_buffer - 20_066.0).abs() < 1e-9);
        // Half of the machine busy for two seconds, over 2e9 bytes.
        assert!((w.machine_ns_per_byte - cpus() as f64 * 0.5).abs() < 1e-9);
        assert!((w.gateways_ns_per_byte - 0.25).abs() < 1e-9);
        assert!((w.softirq_share - 0.5).abs() < 0.01);
        assert!((w.busy_share - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_had_waited_in_a_slow_system_before_the_window_has_not_bypassed_it() {
        assert!(went_through(5_067_804, 6_483_592) && went_through(80, 100));
        assert!(!went_through(WAITING, 2 * WAITING + WAITING / 4), "more than may wait");
        assert!(!went_through(WAITING / 10, WAITING), "most of it");
        assert!(!went_through(0, 1) && went_through(0, 0));
    }

    #[test]
    fn traffic_that_bypasses_the_tunnel_is_an_error() {
        let e = totals(1_000_000).window(Some("ipsec0"), vec![]).expect_err("bypassed");
        assert!(e.to_string().contains("did not go through the tunnel"), "{e}");
        assert!(totals(1_990_000_000).window(Some("ipsec0"), vec![]).is_ok());
    }
}
