//! Experiment E2, `lab topologies`: UDP messages over host to host, four boxes in a line, and road
//! warriors, with every system and suite, by the size of the message, with the processor's crypto
//! instructions and without, after Miltchev, Ioannidis and Keromytis (2002). A message is one
//! packet. TCP like ttcp's, by the size of the write, can be chosen instead. They saw a dip at 512
//! bytes; here one is looked for by a stated rule.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `traffic` | the load: UDP messages, or TCP |
//! | `conclude` | figures and views, made of the samples |

mod conclude;
mod traffic;

use std::time::Duration;

use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use super::emulated::Emulated;
use super::line::once;
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, on_stage, systems};
use crate::dut::{Dut, DutOptions, Hardware, Suite};
use crate::error::LabError;
use crate::interrupt;
use crate::load::frame::MIN_PAYLOAD;
use crate::load::round_trip;
use crate::record::{Better, Record, factors};
use crate::relay::{Link, RelaySpec};
use crate::topology::{HostToHost, Line, LineSpec, Mode, Owner, RoadWarriors, Topology};
pub use traffic::TopologyLoad;
use traffic::{Sending, Traffic, UNDER_WAY};

const ABOUT: About = About {
    name: "topologies",
    number: "E2",
    question: "What gets through a tunnel as a share of plain, by topology, algorithm and size, with and without the \
               processor's crypto instructions?",
    measures: MEASURES,
    baseline: Some(("system", "plain")),
};

/// The experiment over emulated links, with all measures.
const LINKED: About = About { measures: &ALL_MEASURES, ..ABOUT };

type Measured = (&'static str, &'static str, &'static str, &'static str, Better);

/// All measures. The measures that need no emulated link come first.
const ALL_MEASURES: [Measured; 9] = [
    ("gbps", "Gb/s", "Gb/s", "payload that arrived, all senders together", Better::More),
    ("machine_ns", "ns/byte", "ns", "non-idle time of all processors per byte that arrived", Better::Less),
    ("writes", "writes/s", "1/s", "writes of the senders: messages, of UDP", Better::More),
    ("bytes", "bytes", "bytes", "that arrived in the window", Better::Neither),
    ("busy", "busy", "share", "of the machine's processor time that was not idle", Better::Neither),
    ("lost", "lost", "share", "of the UDP messages, from the first to the last of a load", Better::Less),
    ("rtt_ms", "round trip", "ms", "the least of five on a path without other traffic", Better::Less),
    (
        "link_lost",
        "lost on links",
        "share",
        "of the frames on the emulated links, by their loss, queue and MTU",
        Better::Neither,
    ),
    (
        "relay_busy",
        "relay",
        "share",
        "of the window for which the busiest direction of a relay did not wait",
        Better::Neither,
    ),
];
const MEASURES: &[Measured] = ALL_MEASURES.split_at(6).0;

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct TopologiesOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Names from [`TOPOLOGIES`]; all of them when empty.
    pub topologies: Vec<String>,
    /// The load; UDP when absent, and TCP over emulated links.
    pub load: Option<TopologyLoad>,
    /// Bytes of a message (UDP) or of a write (TCP); the experiment's own choice when empty.
    pub sizes: Vec<usize>,
    /// With the processor's crypto instructions, without, or both; both when absent.
    pub hardware: Option<Hardware>,
    /// Connections of each sender, TCP; 1 when absent.
    pub connections: Option<u32>,
    /// The kernel may join small writes (no TCP_NODELAY), as ttcp's sockets did by default.
    pub join: bool,
    /// Emulates the outer links.
    pub link: Option<Link>,
}

/// The topologies that are measured.
pub const TOPOLOGIES: [&str; 3] = ["host-to-host", "line", "road-warrior"];

/// Bytes of the messages, and of the writes of TCP. The largest message fits the inner MTU.
const MESSAGES: [usize; 8] = [64, 128, 256, 384, 512, 768, 1024, LARGEST];
const WRITES: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
/// The largest message: what the inner MTU leaves to IPv4 and UDP.
const LARGEST: usize = INNER_MTU as usize - 28;
const SUITES: [&str; 5] = ["aes128gcm16", "chacha20poly1305", "aes128-sha1", "null-sha1", "3des-sha1"];
const QUICK_SUITES: [&str; 2] = ["aes128gcm16", "3des-sha1"];
const INNER_MTU: u32 = 1400;
const WARRIORS: usize = 3;
/// Time of traffic before the measuring window, so that TCP's slow start is not measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// The same over an emulated link, in round trips of the link.
const WARM_UP_TRIPS: u32 = 20;

/// The measurements of a run: topologies, sizes, and the load.
struct Plan {
    topologies: Vec<String>,
    sizes: Vec<usize>,
    sending: Sending,
    repeats: u32,
    window: Duration,
    warm_up: Duration,
    link: Option<Link>,
}

/// Makes the experiment.
pub fn topologies(options: TopologiesOptions) -> Result<Report, LabError> {
    let mut plan = Plan::new(&options)?;
    let common = &options.common;
    let hardware = options.hardware.unwrap_or(Hardware::Both);
    let mut dut_options = DutOptions { hardware, ..common.dut_options.clone() };
    if dut_options.suites == DutOptions::default().suites {
        let suites = common.by_care(&SUITES[..], &QUICK_SUITES[..], &SUITES[..1]);
        dut_options.suites =
            suites.iter().map(|s| s.parse::<Suite>()).collect::<Result<_, _>>().map_err(LabError::Usage)?;
    }
    let systems = systems(
        common,
        &dut_options,
        &["plain", "ironswan"],
        plan.link.is_some(),
        Line::lacks(Mode::Offload),
    )?;
    if options.sizes.is_empty() {
        plan.fit(common, systems.duts.len());
    }
    let on = |topology| systems.duts.iter().map(move |dut| (topology, dut.as_ref()));
    let cells: Vec<_> = plan.topologies.iter().map(String::as_str).flat_map(on).collect();
    let schedule = Schedule {
        about: if plan.link.is_some() { LINKED } else { ABOUT },
        common,
        samples: cells.len() * plan.sizes.len() * plan.repeats as usize,
        guess: plan.window + plan.warm_up,
        repeats: plan.repeats,
        cells,
    };
    runner::run(schedule, &Work { plan: &plan, systems: &systems, suites: dut_options.esp(), hardware })
}

/// The experiment under way.
struct Work<'a> {
    plan: &'a Plan,
    systems: &'a Systems,
    /// Suites of ESP, for the record.
    suites: String,
    hardware: Hardware,
}

impl<'a> Method for Work<'a> {
    type Cell = (&'a str, &'a dyn Dut);
    type Bench = Owner;

    fn prepare(&self, c: &mut Campaign) -> Result<Owner, LabError> {
        let plan = self.plan;
        c.introduce(self.systems, plan.repeats, Some(plan.window));
        c.settings.insert("suites".into(), self.suites.clone());
        c.settings.insert("window".into(), format!("{} s", plan.window.as_secs_f64()));
        c.settings.insert("hardware".into(), self.hardware.to_string());
        c.settings.insert("load".into(), plan.sending.load.to_string());
        match plan.sending.load {
            TopologyLoad::Udp => {
                c.settings.insert("messages under way".into(), format!("{UNDER_WAY} at most"));
            }
            TopologyLoad::Tcp => {
                let Sending { connections, join, .. } = plan.sending;
                c.settings.insert("connections per sender".into(), connections.to_string());
                c.settings.insert("TCP_NODELAY".into(), if join { "no" } else { "yes" }.into());
            }
        }
        c.settings.insert("inner MTU".into(), INNER_MTU.to_string());
        if let Some(link) = plan.link {
            c.settings.insert("link".into(), link.to_string());
        }
        match plan.sending.load {
            TopologyLoad::Udp => Owner::claim(),
            TopologyLoad::Tcp => c.claim_for_tcp(),
        }
    }

    /// Measures one system on one topology, with all sizes.
    fn trial(
        &self,
        c: &mut Campaign,
        owner: &mut Owner,
        (topology, dut): &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{topology}, {}", dut.name()))?;
        let built = self.plan.build(owner, topology)?;
        on_stage(c, owner, built, *dut, |c, stage| {
            self.plan
                .sizes
                .iter()
                .try_for_each(|size| self.plan.measure(c, stage, *size, (topology, *dut), repeat))
        })
    }

    fn end(&self, c: &mut Campaign, _: Owner) -> Result<(), LabError> {
        let doubt = conclude::above_plain(c.samples(), self.plan.sending.load);
        doubt.into_iter().for_each(|doubt| c.doubt(doubt));
        Ok(())
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

impl Plan {
    fn new(o: &TopologiesOptions) -> Result<Self, LabError> {
        let c = &o.common;
        let load = o.load.unwrap_or(if o.link.is_some() { TopologyLoad::Tcp } else { TopologyLoad::Udp });
        let udp = load == TopologyLoad::Udp;
        if udp && (o.connections.is_some() || o.join || c.congestion.is_some()) {
            return Err(LabError::Usage(
                "--connections, --join and --congestion are of TCP: add --load tcp".into(),
            ));
        }
        if udp && o.link.is_some() {
            return Err(LabError::Usage("over an emulated link (--link) the load is TCP".into()));
        }
        let mut topologies = o.topologies.clone();
        if topologies.is_empty() {
            // The shortest run leaves the line to other experiments.
            let own = c.by_care(&TOPOLOGIES[..], &TOPOLOGIES[..], &["host-to-host", "road-warrior"]);
            topologies = own.iter().map(ToString::to_string).collect();
        }
        if let Some(bad) = topologies.iter().find(|t| !TOPOLOGIES.contains(&t.as_str())) {
            return Err(LabError::Usage(format!(
                "there is no topology `{bad}`; there are {}",
                TOPOLOGIES.join(", ")
            )));
        }
        let mut sizes = o.sizes.clone();
        if sizes.is_empty() {
            sizes = match load {
                TopologyLoad::Udp => {
                    c.by_care(&MESSAGES[..], &[64, 256, 512, 1024, LARGEST], &[512]).to_vec()
                }
                TopologyLoad::Tcp => {
                    c.by_care(&WRITES[..], &[64, 256, 512, 1024, 8192, 65536], &[512, 8192]).to_vec()
                }
            };
        }
        if let Some(bad) = sizes.iter().find(|s| udp && !(MIN_PAYLOAD..=LARGEST).contains(s)) {
            return Err(LabError::Usage(format!(
                "a message of {bad} B cannot be measured: a message is one packet, of {MIN_PAYLOAD} to {LARGEST} B \
                 (writes of any size: --load tcp)"
            )));
        }
        if sizes.iter().any(|s| !(1..=1 << 20).contains(s)) {
            return Err(LabError::Usage("a write must have between 1 byte and 1 MiB".into()));
        }
        sizes.sort_unstable();
        once(&mut sizes);
        once(&mut topologies);
        let connections = o.connections.unwrap_or(1);
        if !(1..=64).contains(&connections) {
            return Err(LabError::Usage("the number of connections must be between 1 and 64".into()));
        }
        let window = c.duration.unwrap_or(c.by_care(
            Duration::from_secs(if udp { 1 } else { 2 }),
            Duration::from_millis(300),
            Duration::from_millis(150),
        ));
        useful("--duration", window, 0.1..=3600.0)?;
        let start = o.link.map_or(Duration::ZERO, |link| link.round_trip() * WARM_UP_TRIPS);
        Ok(Self {
            topologies,
            sizes,
            sending: Sending { load, connections, join: o.join },
            repeats: c.repeats.unwrap_or(c.by_care(5, 1, 1)),
            window,
            warm_up: c.by_care(WARM_UP, WARM_UP / 2, WARM_UP / 6).max(start),
            link: o.link,
        })
    }

    /// Estimates how long the experiment takes with this many systems.
    fn guess(&self, systems: usize) -> Duration {
        // Boxes and gateways are started for all sizes at once.
        let one = Duration::from_millis(1050);
        // A receiver of messages waits until its path has been quiet for a while.
        let end = if self.sending.load == TopologyLoad::Udp { 200 } else { 100 };
        let size = self.window + self.warm_up + Duration::from_millis(end);
        (one + size * self.sizes.len() as u32) * (self.topologies.len() * systems) as u32 * self.repeats
    }

    /// Leaves out sizes until the experiment fits into the time of a short run. The
    /// largest and the smallest size stay longest.
    fn fit(&mut self, common: &Common, systems: usize) {
        let Some(time) = budget::of(common) else { return };
        while self.sizes.len() > 1 && self.guess(systems) > time {
            let middle = if self.sizes.len() == 2 { 0 } else { self.sizes.len() / 2 };
            self.sizes.remove(middle);
        }
    }

    /// The first of the emulated links.
    fn relay(&self) -> Option<RelaySpec> {
        self.link.map(|link| link.relay(0))
    }

    /// Round-trip time in seconds of the first path, when it has an emulated link.
    fn round_trip(&self, topology: &dyn Topology) -> Result<Option<f64>, LabError> {
        match self.link {
            Some(_) => round_trip(&topology.paths()[0]),
            None => Ok(None),
        }
    }

    /// Builds the topology of this name.
    fn build(&self, owner: &Owner, topology: &str) -> Result<Box<dyn Topology>, LabError> {
        Ok(match topology {
            "host-to-host" => Box::new(HostToHost::build(owner, INNER_MTU, self.relay())?),
            "line" => {
                let spec = LineSpec { mode: Mode::Offload, inner_mtu: INNER_MTU };
                Box::new(Line::build_over(owner, spec, self.relay())?)
            }
            _ => Box::new(RoadWarriors::build_over(owner, WARRIORS, INNER_MTU, self.link.as_ref())?),
        })
    }

    /// Measures one size.
    fn measure(
        &self,
        c: &mut Campaign,
        stage: &mut Stage<Box<dyn Topology>>,
        size: usize,
        (topology, dut): (&str, &dyn Dut),
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{topology}, {}, {size} B", dut.name()))?;
        let began = c.elapsed();
        let trip = self.round_trip(&stage.topology)?;
        // Of each load, with room for the number of a path.
        let tag = stage.topology.number() << 16 | (c.samples().len() as u32 & 0xfff) << 4;
        let traffic = Traffic::start(&stage.topology.paths(), self.sending, size, tag)?;
        interrupt::pause(self.warm_up)?;
        let before = Emulated::look(stage.topology.relays());
        let (meter, bytes, writes) = (stage.meter(c)?, traffic.received(), traffic.writes());
        interrupt::pause(self.window)?;
        let (bytes, writes) = (traffic.received() - bytes, traffic.writes() - writes);
        let used = stage.measured(meter)?;
        let crossed = Emulated::look(stage.topology.relays()).since(&before, used.seconds);
        let lost = traffic.finish()?;
        let mut measures = vec![
            ("gbps", bytes as f64 * 8.0 / used.seconds / 1e9),
            // Not finite, so left out, where nothing arrived.
            ("machine_ns", used.machine_cost() * 1e9 / bytes as f64),
            ("writes", writes as f64 / used.seconds),
            ("bytes", bytes as f64),
            ("busy", used.busy_share()),
        ];
        measures.extend(lost.map(|lost| ("lost", lost)));
        measures.extend(used.by_soaker());
        if self.link.is_some() {
            measures.push(("rtt_ms", trip.unwrap_or(f64::NAN) * 1e3));
            measures.extend([("link_lost", crossed.lost), ("relay_busy", crossed.busy)]);
            let cell = format!("{topology}, {size} B");
            crossed.doubt(&dut.name(), &cell).into_iter().for_each(|d| c.doubt(d));
        }
        let f = factors([("topology", topology), ("system", &dut.name()), ("size", &size.to_string())]);
        c.sample(f, repeat, began, &measures, vec![]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_short() {
        for (quick, time) in [(true, budget::QUICK), (false, budget::SMOKE)] {
            let common = Common { quick, smoke: !quick, ..Common::default() };
            let mut plan = Plan::new(&TopologiesOptions { common: common.clone(), ..Default::default() })
                .expect("a plan");
            // Plain, and two systems for each of the suites: the hardware on and off.
            let systems = if quick { 5 } else { 3 };
            plan.fit(&common, systems);
            assert!(plan.guess(systems) <= time, "{:?}: {:?}", plan.sizes, plan.guess(systems));
            assert!(plan.sizes.len() >= if quick { 4 } else { 1 }, "{:?}", plan.sizes);
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_by_name() {
        let plan = |change: &dyn Fn(&mut TopologiesOptions)| {
            let mut o = TopologiesOptions::default();
            change(&mut o);
            Plan::new(&o).map(|p| p.sizes)
        };
        let tcp = Some(TopologyLoad::Tcp);
        let link = || "rate=20mbit".parse().ok();
        assert_eq!(plan(&|_| ()).expect("a plan"), MESSAGES);
        assert_eq!(plan(&|o| o.load = tcp).expect("a plan"), WRITES);
        assert_eq!(plan(&|o| o.link = link()).expect("a plan"), WRITES);
        assert_eq!(plan(&|o| (o.load, o.sizes) = (tcp, vec![9, 3, 9])).expect("a plan"), [3, 9]);
        for bad in [
            plan(&|o| o.topologies = vec!["ring".into()]),
            plan(&|o| o.sizes = vec![17]),
            plan(&|o| o.sizes = vec![1373]),
            plan(&|o| (o.load, o.sizes) = (tcp, vec![0])),
            plan(&|o| (o.load, o.connections) = (tcp, Some(0))),
            plan(&|o| o.connections = Some(2)),
            plan(&|o| o.join = true),
            plan(&|o| o.common.congestion = Some("cubic".parse().expect("a name"))),
            plan(&|o| (o.link, o.load) = (link(), Some(TopologyLoad::Udp))),
            plan(&|o| o.common.duration = Some(Duration::from_millis(1))),
        ] {
            assert!(matches!(bad, Err(LabError::Usage(_))));
        }
    }
}
