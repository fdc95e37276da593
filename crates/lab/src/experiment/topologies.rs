//! Experiment E2, `lab topologies`: TCP like ttcp's over host to host, four boxes in a line, and
//! road warriors, with every system and suite, by the size of the sender's writes, after Miltchev,
//! Ioannidis and Keromytis (2002). They saw a dip at 512 bytes; here one is looked for by a stated
//! rule.

use std::time::Duration;

use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use super::emulated::Emulated;
use super::line::once;
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, on_stage, systems};
use crate::dut::{Dut, DutOptions, Suite};
use crate::error::LabError;
use crate::interrupt;
use crate::load::{Ttcp, TtcpLoad, round_trip};
use crate::record::{
    Better, Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::relay::{Link, RelaySpec};
use crate::topology::{HostToHost, Line, LineSpec, Mode, Owner, Path, RoadWarriors, Topology};

const ABOUT: About = About {
    name: "topologies",
    number: "E2",
    question: "What does TCP get through a tunnel as a share of plain, by topology, algorithm and size of write?",
    measures: MEASURES,
    baseline: Some(("system", "plain")),
};

/// The experiment over emulated links, with all measures.
const LINKED: About = About { measures: &ALL_MEASURES, ..ABOUT };

type Measured = (&'static str, &'static str, &'static str, &'static str, Better);

/// All measures. The measures that need no emulated link come first.
const ALL_MEASURES: [Measured; 8] = [
    ("gbps", "Gb/s", "Gb/s", "TCP payload that arrived, all connections together", Better::More),
    ("machine_ns", "ns/byte", "ns", "non-idle time of all processors per byte that arrived", Better::Less),
    ("writes", "writes/s", "1/s", "writes of the senders", Better::More),
    ("bytes", "bytes", "bytes", "that arrived in the window", Better::Neither),
    ("busy", "busy", "share", "of the machine's processor time that was not idle", Better::Neither),
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
const MEASURES: &[Measured] = ALL_MEASURES.split_at(5).0;

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct TopologiesOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Names from [`TOPOLOGIES`]; all of them when empty.
    pub topologies: Vec<String>,
    /// Sizes of writes, bytes; 64 to 64 K when empty.
    pub writes: Vec<usize>,
    /// Connections of each sender; 1 when absent.
    pub connections: Option<u32>,
    /// The kernel may join small writes (no TCP_NODELAY), as ttcp's sockets did by default.
    pub join: bool,
    /// Emulates the outer links.
    pub link: Option<Link>,
}

/// The topologies that are measured.
pub const TOPOLOGIES: [&str; 3] = ["host-to-host", "line", "road-warrior"];

const WRITES: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
const SUITES: [&str; 5] = ["aes128gcm16", "chacha20poly1305", "aes128-sha1", "null-sha1", "3des-sha1"];
const INNER_MTU: u32 = 1400;
const WARRIORS: usize = 3;
/// Time of traffic before the measuring window, so that TCP's slow start is not measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// The same over an emulated link, in round trips of the link.
const WARM_UP_TRIPS: u32 = 20;

/// A size is a dip when its share of plain is below this part of the shares of both its neighbours.
const DIP: f64 = 0.85;

/// The measurements of a run: topologies, sizes of writes, and the load.
struct Plan {
    topologies: Vec<String>,
    writes: Vec<usize>,
    load: TtcpLoad,
    repeats: u32,
    window: Duration,
    warm_up: Duration,
    link: Option<Link>,
}

/// Makes the experiment.
pub fn topologies(options: TopologiesOptions) -> Result<Report, LabError> {
    let mut plan = Plan::new(&options)?;
    let common = &options.common;
    let mut dut_options = common.dut_options.clone();
    if dut_options.suites == DutOptions::default().suites {
        let suites = common.by_care(&SUITES[..], &SUITES[..3], &SUITES[..1]);
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
    if options.writes.is_empty() {
        plan.fit(common, systems.duts.len());
    }
    let on = |topology| systems.duts.iter().map(move |dut| (topology, dut.as_ref()));
    let cells: Vec<_> = plan.topologies.iter().map(String::as_str).flat_map(on).collect();
    let schedule = Schedule {
        about: if plan.link.is_some() { LINKED } else { ABOUT },
        common,
        samples: cells.len() * plan.writes.len() * plan.repeats as usize,
        guess: plan.window + plan.warm_up,
        repeats: plan.repeats,
        cells,
    };
    runner::run(schedule, &Work { plan: &plan, systems: &systems, suites: dut_options.esp() })
}

/// The experiment under way.
struct Work<'a> {
    plan: &'a Plan,
    systems: &'a Systems,
    /// Suites of ESP, for the record.
    suites: String,
}

impl<'a> Method for Work<'a> {
    type Cell = (&'a str, &'a dyn Dut);
    type Bench = Owner;

    fn prepare(&self, c: &mut Campaign) -> Result<Owner, LabError> {
        let plan = self.plan;
        c.introduce(self.systems, plan.repeats, Some(plan.window));
        c.settings.insert("suites".into(), self.suites.clone());
        c.settings.insert("window".into(), format!("{} s", plan.window.as_secs_f64()));
        c.settings.insert("connections per sender".into(), plan.load.connections.to_string());
        c.settings.insert("TCP_NODELAY".into(), if plan.load.nodelay { "yes" } else { "no" }.into());
        c.settings.insert("inner MTU".into(), INNER_MTU.to_string());
        if let Some(link) = plan.link {
            c.settings.insert("link".into(), link.to_string());
        }
        c.claim_for_tcp()
    }

    /// Measures one system on one topology, with all sizes of writes.
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
                .writes
                .iter()
                .try_for_each(|write| self.plan.measure(c, stage, *write, (topology, *dut), repeat))
        })
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

impl Plan {
    fn new(o: &TopologiesOptions) -> Result<Self, LabError> {
        let c = &o.common;
        let mut topologies = o.topologies.clone();
        if topologies.is_empty() {
            topologies = TOPOLOGIES.iter().map(ToString::to_string).collect();
        }
        if let Some(bad) = topologies.iter().find(|t| !TOPOLOGIES.contains(&t.as_str())) {
            return Err(LabError::Usage(format!(
                "there is no topology `{bad}`; there are {}",
                TOPOLOGIES.join(", ")
            )));
        }
        let mut writes = o.writes.clone();
        if writes.is_empty() {
            writes = c.by_care(&WRITES[..], &[64, 256, 512, 1024, 8192, 65536], &[512, 8192]).to_vec();
        }
        if writes.iter().any(|w| !(1..=1 << 20).contains(w)) {
            return Err(LabError::Usage("a write must have between 1 byte and 1 MiB".into()));
        }
        writes.sort_unstable();
        once(&mut writes);
        once(&mut topologies);
        let connections = o.connections.unwrap_or(1);
        if !(1..=64).contains(&connections) {
            return Err(LabError::Usage("the number of connections must be between 1 and 64".into()));
        }
        let window = c.duration.unwrap_or(c.by_care(
            Duration::from_secs(2),
            Duration::from_millis(300),
            Duration::from_millis(200),
        ));
        useful("--duration", window, 0.1..=3600.0)?;
        let start = o.link.map_or(Duration::ZERO, |link| link.round_trip() * WARM_UP_TRIPS);
        Ok(Self {
            topologies,
            writes,
            load: TtcpLoad { connections, write: 0, nodelay: !o.join, rate: None },
            repeats: c.repeats.unwrap_or(c.by_care(5, 1, 1)),
            window,
            warm_up: c.by_care(WARM_UP, WARM_UP / 2, WARM_UP / 3).max(start),
            link: o.link,
        })
    }

    /// Estimates how long the experiment takes with this many systems.
    fn guess(&self, systems: usize) -> Duration {
        // Boxes and gateways are started for all sizes at once.
        let one = Duration::from_millis(1050);
        let write = self.window + self.warm_up + Duration::from_millis(100);
        (one + write * self.writes.len() as u32) * (self.topologies.len() * systems) as u32 * self.repeats
    }

    /// Leaves out sizes of writes until the experiment fits into the time of a short run. The
    /// largest and the smallest size stay longest.
    fn fit(&mut self, common: &Common, systems: usize) {
        let Some(time) = budget::of(common) else { return };
        while self.writes.len() > 1 && self.guess(systems) > time {
            let middle = if self.writes.len() == 2 { 0 } else { self.writes.len() / 2 };
            self.writes.remove(middle);
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

    /// Measures one size of writes.
    fn measure(
        &self,
        c: &mut Campaign,
        stage: &mut Stage<Box<dyn Topology>>,
        write: usize,
        (topology, dut): (&str, &dyn Dut),
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{topology}, {}, {write} B", dut.name()))?;
        let began = c.elapsed();
        let load = TtcpLoad { write, ..self.load };
        let trip = self.round_trip(&stage.topology)?;
        let ttcp = Ttcp::start(&stage.topology.paths() as &[Path<'_>], load)?;
        interrupt::pause(self.warm_up)?;
        let before = Emulated::look(stage.topology.relays());
        let (meter, bytes, writes) = (stage.meter(c)?, ttcp.received(), ttcp.writes());
        interrupt::pause(self.window)?;
        let (bytes, writes) = (ttcp.received() - bytes, ttcp.writes() - writes);
        let used = stage.measured(meter)?;
        let crossed = Emulated::look(stage.topology.relays()).since(&before, used.seconds);
        ttcp.finish()?;
        let mut measures = vec![
            ("gbps", bytes as f64 * 8.0 / used.seconds / 1e9),
            // Not finite, so left out, where nothing arrived.
            ("machine_ns", used.machine_cost() * 1e9 / bytes as f64),
            ("writes", writes as f64 / used.seconds),
            ("bytes", bytes as f64),
            ("busy", used.busy_share()),
        ];
        measures.extend(used.by_soaker());
        if self.link.is_some() {
            measures.push(("rtt_ms", trip.unwrap_or(f64::NAN) * 1e3));
            measures.extend([("link_lost", crossed.lost), ("relay_busy", crossed.busy)]);
            let cell = format!("{topology}, {write} B");
            crossed.doubt(&dut.name(), &cell).into_iter().for_each(|d| c.doubt(d));
        }
        let f = factors([("topology", topology), ("system", &dut.name()), ("write", &write.to_string())]);
        c.sample(f, repeat, began, &measures, vec![]);
        Ok(())
    }
}

/// The sizes at which `shares` (by size, ascending) fall below [`DIP`] of both neighbours, with how
/// deep: the share over the lower neighbour's.
fn dips(shares: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let part = |w: &[(u64, f64)]| w[1].1 / w[0].1.min(w[2].1);
    shares.windows(3).map(|w| (w[1].0, part(w))).filter(|(_, part)| *part < DIP).collect()
}

/// Shares of plain by size of write, of every system on every topology.
fn shares(record: &Record) -> Vec<(Factors, Vec<(u64, f64)>)> {
    let mut all: Vec<(Factors, Vec<(u64, f64)>)> = Vec::new();
    for figure in &record.figures {
        let Some(share) = figure.number("gbps", Which::Ratio) else { continue };
        let Some(write) = figure.factors.get("write").and_then(|w| w.parse().ok()) else { continue };
        let mut key = figure.factors.clone();
        key.remove("write");
        match all.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push((write, share)),
            None => all.push((key, vec![(write, share)])),
        }
    }
    all.iter_mut().for_each(|(_, list)| list.sort_by_key(|(write, _)| *write));
    all
}

fn conclude(record: &Record) -> Conclusion {
    let shares = shares(record);
    let mut derived = Vec::new();
    let mut found = Vec::new();
    for (key, list) in &shares {
        for (write, part) in dips(list) {
            derived.push(Derived {
                name: "dip".into(),
                factors: key
                    .iter()
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .chain([("write".into(), write.to_string())])
                    .collect(),
                value: part,
                unit: "of the lower neighbour's share".into(),
                how: format!("the share of plain is below {DIP} of both neighbouring sizes'"),
            });
            found.push(format!("{} B ({}, {})", write, key["topology"], key["system"]));
        }
    }
    let mut views = Vec::new();
    for topology in record.values("topology", &Factors::new()) {
        let only = factors([("topology", topology)]);
        let by_write =
            |measure: &str, which| Columns::Factor { factor: "write".into(), measure: measure.into(), which };
        let mut table = |what: &str, measure: &str, which| {
            views.push(View::Table(Table {
                title: format!("{topology}: {what}"),
                only: only.clone(),
                rows: vec!["system".into()],
                columns: by_write(measure, which),
            }));
        };
        table("throughput by bytes per write", "gbps", Which::Median);
        table("share of plain", "gbps", Which::Ratio);
        table("cost", "machine_ns", Which::Median);
        if record.measure("rtt_ms").is_some() {
            views.push(View::Table(Table {
                title: format!("{topology}: the emulated link ({})", record.settings["link"]),
                only: only.clone(),
                rows: vec!["system".into(), "write".into()],
                columns: Columns::Measures(
                    ["rtt_ms", "link_lost", "relay_busy"].map(|m| (m.into(), Which::Median)).to_vec(),
                ),
            }));
        }
        views.push(View::Plot(Plot {
            name: topology.into(),
            title: format!("{topology}: throughput as a share of plain"),
            only,
            x: "write".into(),
            x_label: "bytes per write".into(),
            y: "gbps".into(),
            which: Which::Ratio,
            series: vec!["system".into()],
            log_x: true,
            log_y: false,
        }));
    }
    if !derived.is_empty() {
        views.push(View::Derived { title: "Dips".into(), names: vec!["dip".into()] });
    }
    let all = shares.iter().flat_map(|(_, list)| list.iter().map(|(_, share)| *share));
    let range = all.fold(None, |range: Option<(f64, f64)>, s| {
        Some(range.map_or((s, s), |(low, high)| (low.min(s), high.max(s))))
    });
    let measured = range.map_or_else(
        || "no share of plain was measured".to_string(),
        |(low, high)| format!("{:.0} to {:.0} % of plain over all cells", low * 100.0, high * 100.0),
    );
    let dip = if shares.iter().all(|(_, list)| list.len() < 3) {
        "too few sizes to look for dips".to_string()
    } else if found.is_empty() {
        format!("no size is a dip (below {DIP} of both its neighbours' shares)")
    } else {
        format!("dips (below {DIP} of both neighbours' shares) at {}", found.join(", "))
    };
    let history = vec![Historical {
        source: "Miltchev, Ioannidis, Keromytis, USENIX FREENIX 2002: ttcp, OpenBSD, 100 Mbit/s Ethernet".into(),
        then: "IPsec with a crypto card had 40 % of plain with small writes and 30 % with 8 KB; the card more than \
               doubled software; a dip at writes of 512 B"
            .into(),
        now: format!("{measured}; {dip}"),
        caveat: "Then the wire limited plain and the processor IPsec, on a machine each; here all boxes share the \
                 processors of one machine and 64 KB buffers cross the links, so plain is much faster than any wire. \
                 TCP joins small writes when the path is slower than the writer, whatever TCP_NODELAY says: with small \
                 writes the cost of the system call hides that of the tunnel."
            .into(),
    }];
    Conclusion { derived, views, history }
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
            // Plain, and a system for each of the suites.
            let systems = if quick { 4 } else { 2 };
            plan.fit(&common, systems);
            assert!(plan.guess(systems) <= time, "{:?}: {:?}", plan.writes, plan.guess(systems));
            assert!(plan.writes.len() >= if quick { 4 } else { 1 }, "{:?}", plan.writes);
        }
    }

    #[test]
    fn a_dip_is_below_both_neighbours_by_the_stated_part() {
        let shares = [(64, 0.40), (256, 0.40), (512, 0.20), (1024, 0.35), (8192, 0.30)];
        let all = dips(&shares);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, 512);
        assert!((all[0].1 - 0.2 / 0.35).abs() < 1e-9);
        // Falling, rising, flat, or too little.
        assert!(dips(&[(1, 0.9), (2, 0.6), (3, 0.3)]).is_empty());
        assert!(dips(&[(1, 0.3), (2, 0.6), (3, 0.9)]).is_empty());
        assert!(dips(&[(1, 0.5), (2, 0.43), (3, 0.5)]).is_empty());
        assert!(dips(&[(1, 0.5), (2, 0.1)]).is_empty());
    }

    #[test]
    fn what_does_not_exist_is_refused_by_name() {
        let plan = |change: &dyn Fn(&mut TopologiesOptions)| {
            let mut o = TopologiesOptions::default();
            change(&mut o);
            Plan::new(&o).map(|p| p.writes)
        };
        assert_eq!(plan(&|_| ()).expect("a plan"), WRITES);
        assert_eq!(plan(&|o| o.writes = vec![9, 3, 9]).expect("a plan"), [3, 9]);
        for bad in [
            plan(&|o| o.topologies = vec!["ring".into()]),
            plan(&|o| o.writes = vec![0]),
            plan(&|o| o.connections = Some(0)),
            plan(&|o| o.common.duration = Some(Duration::from_millis(1))),
        ] {
            assert!(matches!(bad, Err(LabError::Usage(_))));
        }
    }
}
