//! Experiment E7, `lab compare`: every system that this machine has, under the loads of E1 (TCP)
//! and E6 (packets), side by side, after Freescale's table of IPsec stacks on one box.

use std::time::Duration;

use super::alone::{self, Alone};
use super::bench::{Bench, Ready, ready};
use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::passed::Passed;
use super::placement::{Placement, Spread};
use super::rig::{Bed, Rig};
use super::runner::{self, Method, Schedule};
use super::searched::{self, Load as Offered};
use super::throughput::{self, Care, Carrier, FrameSize, percent};
use super::traffic::{Traffic, TrafficOptions, Wanted};
use super::trials;
use crate::error::LabError;
use crate::load::frame::Shape;
use crate::load::{Direction, Iperf3};
use crate::measure::soaker::Busy;
use crate::record::{
    Better, Columns, Derived, Factors, Historical, Plot, Record, TESTER_KPPS, Table, View, Which, factors,
};
use crate::report::Warning;
use crate::topology::Mode;

/// Options of the experiment. Empty lists: the experiment's own choice.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// Options that all experiments have; `duration` is the length of a TCP window.
    pub common: Common,
    /// Frame sizes of the loads with packets.
    pub sizes: Vec<FrameSize>,
    /// Captures, IPv6, bursts, threads and sockets.
    pub traffic: TrafficOptions,
}

const ABOUT: About = About {
    name: "compare",
    number: "E7",
    question: "What does each system that this machine has carry, and what does it cost, on the same line in the same run?",
    measures: &[
        (
            "gbps",
            "Gb/s",
            "Gb/s",
            "TCP payload, or IP packets inside the tunnel at the throughput",
            Better::More,
        ),
        ("kpps", "kpps", "1000 packets/s", "packets that arrived, a to b", Better::More),
        ("ns_byte", "ns/B", "ns", "non-idle time of the machine for each byte", Better::Less),
        ("ns_packet", "ns/packet", "ns", "non-idle time of the machine for each packet", Better::Less),
        ("memory", "MiB", "MiB", "resident in both gateways' processes", Better::Less),
        alone::MEASURES[0],
        alone::MEASURES[1],
    ],
    baseline: Some(("dut", PLAIN)),
};

/// The system that the others are compared with.
const PLAIN: &str = "plain";

/// Loss that is allowed at a throughput.
const LOSS: f64 = 0.001;

/// Inner MTU for all systems: strongSwan's ESP in user space drops larger packets.
const INNER_MTU: u32 = 1400;

/// Makes the experiment.
pub fn compare(options: CompareOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let names = match common.duts.as_slice() {
        // All of them do not start in ten seconds.
        [] if common.smoke => vec!["plain".into(), "ironswan".into()],
        [] => vec!["all".into()],
        names => names.to_vec(),
    };
    let usual: &[&str] = common.by_care(&["64", "512", "1418"], &["64", "1418"], &["512"]);
    let wanted = Wanted { sizes: &options.sizes, usual, flows: None };
    let mut traffic = Traffic::of(&options.traffic, wanted, |_| INNER_MTU)?;
    let mut lacks = Iperf3::lacks();
    lacks.extend(traffic.lacks());
    if !lacks.is_empty() {
        return Err(LabError::Unfit(lacks));
    }
    let ready = ready(&names, common)?;
    let repeats = common.repeats.unwrap_or(common.by_care(3, 1, 1));
    let sizes = traffic.sizes.len();
    let Budget { sizes: some, window, care } = Budget::new(common, sizes, ready.duts.len(), repeats);
    // Of sizes that were asked for none is left out.
    if options.sizes.is_empty() {
        traffic.sizes.drain(..sizes - some);
    }
    let frames = traffic.sizes.iter().map(|(size, shape)| Load::Frames(*size, *shape));
    let cells: Vec<Load> = [Load::Tcp].into_iter().chain(frames).collect();
    let schedule = Schedule {
        about: ABOUT,
        common,
        repeats,
        samples: ready.duts.len() * repeats as usize * cells.len(),
        guess: care.guess() + Duration::from_secs(1),
        cells,
    };
    let compared = ready.duts.len() > 1 && ready.duts.iter().any(|dut| dut.name() == PLAIN);
    let alone = alone::most_trials(common, compared);
    runner::run(schedule, &Work { names, ready, window, care, traffic, alone })
}

/// A load, which all systems are under in turn.
#[derive(Clone, Copy)]
enum Load {
    Tcp,
    Frames(FrameSize, Shape),
}

/// The experiment under way.
struct Work {
    /// Systems asked for.
    names: Vec<String>,
    ready: Ready,
    /// Length of a TCP window.
    window: Duration,
    care: Care,
    traffic: Traffic,
    /// Most trials of the tester's own search; none where it is not measured.
    alone: u32,
}

impl Method for Work {
    type Cell = Load;
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        let width = self.care.width * 100.0;
        let settings = [
            ("TCP", format!("one connection, {} s", self.window.as_secs_f64())),
            ("packets", format!("a loss of at most {}, to within {width} %", percent(LOSS))),
            ("frames", format!("with FCS; the inner packet is 18 bytes smaller, at most {INNER_MTU} bytes")),
            ("mode", Mode::Wire.to_string()),
            ("systems asked for", self.names.join(", ")),
        ];
        self.ready.introduce(c, settings.into_iter().chain(self.traffic.settings()));
        self.care.describe(c);
        c.trials_last(self.window);
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut bench = Bench::new(c.claim_for_tcp()?);
        for dut in &self.ready.duts {
            c.says(&format!("starting {}", dut.name()))?;
            let bed = Bed { family: self.traffic.family, ..Bed::usual(Mode::Wire, INNER_MTU) };
            match Rig::start_on(&bench.owner, dut.as_ref(), bed, &placement) {
                Ok(rig) => bench.add(c, rig)?,
                // One system among all that does not start spoils the others' comparison no more
                // than one not installed.
                Err(LabError::Dut { dut, why, .. }) if self.names.iter().any(|n| n == "all") => {
                    c.doubt(Warning::LeftOut { what: format!("{dut}, which did not start: {why}") });
                }
                Err(e) => return Err(e),
            }
        }
        // In so short a run there is no time for it.
        if self.alone > 0 {
            c.says(&format!("starting {}", alone::NAME))?;
            let alone = Alone::start(&bench.owner, Mode::Wire, INNER_MTU, &placement, self.alone)?;
            bench.alone = Some(alone);
        }
        Ok(bench)
    }

    fn trial(&self, c: &mut Campaign, bench: &mut Bench, load: &Load, repeat: u32) -> Result<(), LabError> {
        match load {
            Load::Tcp => bench.rigs.iter_mut().try_for_each(|rig| self.tcp(c, rig, repeat)),
            Load::Frames(size, shape) => self.frames(c, bench, (*size, *shape), repeat),
        }
    }

    fn end(&self, c: &mut Campaign, bench: Bench) -> Result<(), LabError> {
        bench.stop(c)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

impl Work {
    /// One system under TCP.
    fn tcp(&self, c: &mut Campaign, rig: &mut Rig, repeat: u32) -> Result<(), LabError> {
        c.says(&format!("TCP: {}", rig.name()))?;
        let began = c.elapsed();
        let w = rig.tcp_window(1, self.window)?;
        let memory: u64 = w.gateways.iter().filter_map(|g| g.resident_kib).sum();
        let mut measures = vec![("gbps", w.gbps), ("ns_byte", w.machine_cost())];
        measures.extend(Busy::measures(w.busy.as_ref()));
        if !w.gateways.is_empty() {
            measures.push(("memory", memory as f64 / 1024.0));
        }
        c.sample(factors([("load", "TCP"), ("dut", rig.name())]), repeat, began, &measures, vec![]);
        Ok(())
    }

    /// All systems under frames of one size.
    fn frames(
        &self,
        c: &mut Campaign,
        bench: &mut Bench,
        (size, shape): (FrameSize, Shape),
        repeat: u32,
    ) -> Result<(), LabError> {
        bench.send_so(self.traffic.manner(size));
        let began = c.elapsed();
        let cell = format!("{size} B");
        let mut all: Vec<&mut dyn Carrier> = Vec::new();
        all.extend(bench.alone.as_mut().map(|alone| alone as &mut dyn Carrier));
        all.extend(bench.rigs.iter_mut().map(|rig| rig as &mut dyn Carrier));
        let load = Offered { shape, direction: Direction::Forward, cell: &cell };
        let mut searched = searched::search(c, &mut all, load, &self.care)?;
        let tester = bench.alone.is_some().then(|| searched.remove(0));
        let mut beside = Vec::new();
        if let Some(tester) = &tester {
            tester.trials.impossible(alone::NAME, &cell).into_iter().for_each(|d| c.doubt(d));
            let file = trials::file(&[&size.to_string(), "forward", "tester_alone"], repeat);
            beside.push(c.keep(&file, tester.trials.csv().as_bytes())?);
        }
        for (rig, s) in bench.rigs.iter().zip(searched) {
            let load = factors([("load", &size.to_string()), ("dut", rig.name())]);
            let mut files =
                s.keep(c, (rig.name(), &cell), &[&size.to_string(), "forward", rig.name()], repeat)?;
            files.extend(beside.iter().cloned());
            let withheld = alone::doubt(tester.as_ref(), &s, rig.name(), &cell);
            withheld.into_iter().filter(|_| rig.name() == PLAIN).for_each(|d| c.doubt(d));
            let pps = s.found.first().and_then(|f| f.conditional_throughput);
            let cost = |p: &Passed| {
                let soaked = p.by_soaker();
                [("ns_packet", p.machine_cost())].into_iter().chain(soaked).collect::<Vec<_>>()
            };
            let costs: Vec<_> = s.at.iter().flatten().map(cost).collect();
            let mut measures = throughput::medians(&costs);
            if let Some((_, ns)) = measures.first().copied() {
                measures.push(("ns_byte", ns / throughput::inner_bytes(&shape)));
            }
            measures.extend(alone::measures(tester.as_ref(), &s, 0));
            measures.extend(s.confirmed(0));
            if let Some(pps) = pps {
                measures.extend([("kpps", pps / 1e3), ("gbps", throughput::inner_gbps(&shape, pps))]);
            }
            c.sample(load, repeat, began, &measures, files);
        }
        Ok(())
    }
}

/// Parts of the experiment that fit into the time of a run.
struct Budget {
    /// Sizes of frames, the last ones.
    sizes: usize,
    window: Duration,
    care: Care,
}

impl Budget {
    /// The most that fits, for so many systems; the least that says something where even that does
    /// not.
    fn new(common: &Common, sizes: usize, systems: usize, repeats: u32) -> Self {
        let ms = Duration::from_millis;
        let windows = common.by_care(&[5000][..], &[1000, 500], &[200]);
        // The length of a TCP window is not that of a trial.
        let care = Care::of(&Common { duration: None, ..common.clone() }, vec![LOSS]);
        let windows: Vec<Duration> =
            common.duration.map_or_else(|| windows.iter().map(|w| ms(*w)).collect(), |d| vec![d]);
        // Fewer sizes before shorter windows.
        let choices: Vec<(usize, Duration)> =
            windows.iter().flat_map(|w| (1..=sizes).rev().map(move |s| (s, *w))).collect();
        let others = |s: usize, w| Self::others(&care, (s, w), (systems, repeats), common.smoke);
        let n = |s: usize| (s * systems) as u32 * repeats;
        let fits = choices.iter().find_map(|(s, w)| {
            let care = budget::searches(common, &care, others(*s, *w), n(*s))?;
            // Fewer say little about a second size.
            (care.trials >= 8 || *s == 1).then_some(Self { sizes: *s, window: *w, care })
        });
        let (sizes, window) = choices.last().copied().unwrap_or((1, ms(200)));
        fits.unwrap_or_else(|| {
            let care = budget::least(common, &care, others(sizes, window), n(sizes));
            Self { sizes, window, care }
        })
    }

    /// About what all but the searches takes: each system is started, carries TCP, and is flooded
    /// with each size.
    fn others(
        care: &Care,
        (sizes, window): (usize, Duration),
        (systems, repeats): (usize, u32),
        smoke: bool,
    ) -> Duration {
        let warm_up = window.min(Duration::from_secs(1));
        let flood = budget::trials(&[Duration::from_secs_f64(care.last)]);
        let tcp = warm_up + window + Duration::from_millis(500);
        // Starting a system, and the trials that are made again.
        let all = (Duration::from_millis(1_700) + (tcp + flood * sizes as u32) * repeats) * systems as u32;
        // The tester alone is started, flooded and searched too, where there is the time.
        let searched =
            vec![Duration::from_secs_f64(care.last); 1 + alone::in_all(alone::QUICK_TRIALS) as usize];
        let alone = budget::trials(&searched) * sizes as u32 * repeats;
        if smoke { all } else { all + Duration::from_millis(200) + alone }
    }
}

fn conclude(record: &Record) -> Conclusion {
    use Which::{Added, Median, Ratio};
    let columns = [
        ("gbps", Median),
        ("gbps", Ratio),
        ("kpps", Median),
        (TESTER_KPPS, Median),
        ("ns_byte", Median),
        ("ns_packet", Median),
        ("memory", Median),
    ];
    let measures = |columns: &[(&str, Which)]| {
        Columns::Measures(columns.iter().map(|(n, w)| ((*n).to_string(), *w)).collect())
    };
    let mut views = vec![
        View::Table(Table {
            title: "Every system under every load".into(),
            only: Factors::new(),
            rows: vec!["load".into(), "dut".into()],
            columns: measures(&columns),
        }),
        // For packets there is no such difference: each system is measured at its own throughput,
        // where it works in batches of another size than plain forwarding at its many times higher
        // one.
        View::Table(Table {
            title: "What a tunnel adds to plain forwarding (TCP)".into(),
            only: factors([("load", "TCP")]),
            rows: vec!["dut".into()],
            columns: measures(&[("ns_byte", Added)]),
        }),
        View::Plot(Plot {
            name: "carried".into(),
            title: "Carried by each system".into(),
            only: Factors::new(),
            x: "load".into(),
            x_label: "load: TCP, frames of so many bytes, or a mix".into(),
            y: "gbps".into(),
            which: Median,
            series: vec!["dut".into()],
            log_x: false,
            log_y: false,
        }),
    ];
    let ours = ours(record);
    let derived = ours.as_deref().map(|ours| derive(record, ours)).unwrap_or_default();
    let ours = ours.unwrap_or_else(|| "ironswan".into());
    if !derived.is_empty() {
        views.push(View::Derived {
            title: format!("{ours} over each of the others"),
            names: vec!["ironswan_over".into()],
        });
    }
    let now = match derived
        .iter()
        .map(|d| d.value)
        .fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)))
    {
        (low, high) if high > 0.0 => {
            format!("{ours} {low:.2} to {high:.2} times the other tunnels of this run")
        }
        _ => format!("this run has no figures of both {ours} and another tunnel"),
    };
    let history = vec![Historical {
        source: "Freescale, IPsec stacks on the same box: NanoSec, Openswan, strongSwan, NETKEY".into(),
        then: "NanoSec 1.3 to 2.2 times the open stacks, by frame size".into(),
        now,
        caveat: "Then all stacks used the same accelerator and ran in one kernel; here some are programs, some the kernel's \
                 own, and those of WireGuard have another protocol and cipher."
            .into(),
    }];
    Conclusion { derived, views, history }
}

/// The ironswan that is compared with the others: the one of that name, or the first with another
/// encapsulation or settings.
fn ours(record: &Record) -> Option<String> {
    let all = Factors::new();
    let mut variants = record.values("dut", &all);
    variants.retain(|dut| dut.starts_with("ironswan"));
    variants.iter().find(|dut| **dut == "ironswan").or(variants.first()).map(|dut| (*dut).to_string())
}

/// How many times what each other tunnel carries `ours` carries, by load.
fn derive(record: &Record, ours: &str) -> Vec<Derived> {
    let all = Factors::new();
    let over = |figure: &crate::record::Figure| {
        let dut = figure.factors.get("dut").filter(|d| !d.starts_with("ironswan") && *d != "plain")?;
        let mut own = figure.factors.clone();
        own.insert("dut".into(), ours.into());
        let (carried, theirs) =
            (record.figure(&own)?.number("gbps", Which::Median)?, figure.number("gbps", Which::Median)?);
        (theirs > 0.0).then(|| Derived {
            name: "ironswan_over".into(),
            factors: factors([("load", &figure.factors["load"]), ("dut", dut)]),
            value: carried / theirs,
            unit: "1".into(),
            how: format!("Gb/s of {ours} over Gb/s of the system"),
        })
    };
    record.figures_with(&all).filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Baseline, Sample, figures};
    use crate::report::sample;

    /// A run in which each of these systems carried so many Gb/s by TCP.
    fn run(carried: &[(&str, f64)]) -> Record {
        let mut record = sample::record();
        let of = |(dut, gbps): &(&str, f64)| Sample {
            factors: factors([("load", "TCP"), ("dut", dut)]),
            repeat: 0,
            began: 0.0,
            measures: [("gbps".to_string(), *gbps), ("ns_byte".to_string(), 1.0)].into(),
            absent: [].into(),
            files: vec![],
        };
        record.samples = carried.iter().map(of).collect();
        record.baseline = Some(Baseline { factor: "dut".into(), value: "plain".into() });
        record.figures = figures(&record.samples, record.baseline.as_ref());
        record
    }

    #[test]
    fn short_runs_are_short_with_as_many_systems_as_there_are() {
        for (quick, sizes, most, time) in [(true, 2, 8, budget::QUICK), (false, 1, 2, budget::SMOKE)] {
            let smoke = !quick;
            let common = Common { quick, smoke, ..Common::default() };
            for systems in 1..=most {
                let b = Budget::new(&common, sizes, systems, 1);
                let trial = budget::trials(&[Duration::from_secs_f64(b.care.last)]);
                let searches = trial * (b.care.trials + b.care.later) * (b.sizes * systems) as u32;
                let all = Budget::others(&b.care, (b.sizes, b.window), (systems, 1), smoke) + searches;
                assert!(all <= time, "{systems} systems: {all:?}");
            }
        }
    }

    #[test]
    fn an_ironswan_of_another_encapsulation_is_compared_too() {
        let raw =
            conclude(&run(&[("plain", 9.0), ("ironswan-raw", 3.0), ("openvpn", 1.0), ("strongswan", 2.0)]));
        let over: Vec<(&str, f64)> =
            raw.derived.iter().map(|d| (d.factors["dut"].as_str(), d.value)).collect();
        assert_eq!(over, [("openvpn", 3.0), ("strongswan", 1.5)]);
        assert_eq!(raw.history[0].now, "ironswan-raw 1.50 to 3.00 times the other tunnels of this run");
        let both = conclude(&run(&[("ironswan-raw", 3.0), ("ironswan", 4.0), ("openvpn", 1.0)]));
        assert_eq!(both.derived.iter().map(|d| d.value).collect::<Vec<_>>(), [4.0]);
        let alone = conclude(&run(&[("plain", 9.0), ("ironswan", 4.0)]));
        assert_eq!(alone.history[0].now, "this run has no figures of both ironswan and another tunnel");
    }

    #[test]
    fn what_a_tunnel_adds_is_shown_for_tcp_only() {
        let views = conclude(&run(&[("plain", 9.0), ("ironswan", 4.0)])).views;
        let added = views.iter().filter_map(|view| match view {
            View::Table(t) => match &t.columns {
                Columns::Measures(list) if list.iter().any(|(_, w)| *w == Which::Added) => Some(&t.only),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(added.collect::<Vec<_>>(), [&factors([("load", "TCP")])]);
    }
}
