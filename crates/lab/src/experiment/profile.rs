//! Experiment E10, `lab profile`: where the time of a packet goes inside IronSwan, stage by stage,
//! on both gateways and in both directions, under TCP and under small and large UDP packets. KLIPS
//! was profiled in its time on the encrypt side only; the decrypt side was invisible. The times are
//! the engine's own: of batches that it picks out and measures. Samples of the processors say what
//! is inside its system calls, and where the time of other systems goes
//! ([`ProfileOptions::inside`]). With [`ProfileOptions::layers`] the stages make the table of
//! cycles per byte by layer that FreeS/WAN published.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `inside` | the experiment by samples of the processors |
//! | `work` | what a sample was doing |
//! | `layers` | cycles per byte by layer, then and now |

mod inside;
mod layers;
mod work;

use std::time::Duration;

use super::beside::Beside;
use super::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use super::line::{choose_duts, once};
use super::placement::{Placement, Spread};
use super::rig::Rig;
use super::runner::{self, Method, Schedule};
use crate::dut::{Dut, DutOptions, EngineCounts, StageTimes};
use crate::error::LabError;
use crate::load::frame::{Family, Shape};
use crate::load::{Direction, Iperf3, Offer};
use crate::machine;
use crate::record::{Better, Columns, Factors, Historical, Plot, Record, Table, View, Which, factors};
use crate::report::{Warning, history};
use crate::topology::{Line, Mode, Owner};

/// Options of the experiment; the system is `ironswan`, in the encapsulations and suites given.
#[derive(Debug, Clone, Default)]
pub struct ProfileOptions {
    /// Options that all experiments have; the duration is that of each load.
    pub common: Common,
    /// Samples of the processors in the place of the engine's own stages, of any systems.
    pub inside: bool,
    /// Measures plain forwarding and the suites of the published table of cycles per byte by layer,
    /// under large UDP packets alone.
    pub layers: bool,
}

const ABOUT: About = About {
    name: "profile",
    number: "E10",
    question: "Where does the time of a packet go inside a gateway, on the way out and on the way in?",
    measures: MEASURES,
    baseline: None,
};

/// The experiment by layer, with all measures.
const LAYERED: About = About {
    question: "How many cycles does a byte cost a gateway, layer by layer, and how many did it cost a Pentium II?",
    measures: &ALL_MEASURES,
    ..ABOUT
};

type Measure = (&'static str, &'static str, &'static str, &'static str, Better);

/// All measures. The measures of every run come first.
const ALL_MEASURES: [Measure; 6] = [
    (
        "ns_per_packet",
        "ns",
        "ns",
        "time per ESP packet; what one read, send or merged buffer costs is shared by its packets, and what interrupts a \
             stage is in it",
        Better::Less,
    ),
    ("cycles_per_packet", "cycles", "cycles", "the same by the clock of this machine", Better::Less),
    ("share", "share", "share", "a stage's part in the time of all stages", Better::Neither),
    ("bytes_per_packet", "bytes", "bytes", "inner bytes of a packet", Better::Neither),
    ("packets", "packets", "packets", "packets in the batches that were measured", Better::Neither),
    (
        "cycles_per_byte",
        "cycles/byte",
        "cycles",
        "time of one box per byte of the inner packets, by the clock of this machine",
        Better::Less,
    ),
];
const MEASURES: &[Measure] = ALL_MEASURES.split_at(5).0;

/// The stages in the order of the way; others follow in the order of their names.
const STAGES: [&str; 7] = ["receive", "parse", "policy", "sequence", "encapsulation", "crypto", "send"];
/// All of them together.
const ALL: &str = "all";

#[derive(Clone, Copy)]
enum Load {
    Tcp(u32),
    /// Bytes of payload.
    Udp(usize),
}

impl Load {
    fn all() -> [Self; 3] {
        [Self::Tcp(1), Self::Udp(18), Self::Udp(1300)]
    }

    fn name(self) -> String {
        match self {
            Self::Tcp(streams) => format!("TCP, {streams} stream"),
            Self::Udp(payload) => format!("UDP flood, {payload} B of payload"),
        }
    }

    /// Carries it for that long; packets that arrived.
    fn carry(self, rig: &mut Rig, duration: Duration) -> Result<f64, LabError> {
        Ok(match self {
            Self::Tcp(streams) => {
                let report = rig.tcp(streams, duration)?;
                report.payload_gbps * 1e9 / 8.0 * duration.as_secs_f64() / PAYLOAD
            }
            Self::Udp(payload) => {
                let offer = Offer { rate: None, packets: u64::MAX, at_most: duration };
                let shape = Shape { payload, mix: None, flows: 1, family: Family::V4, tag: 0 };
                rig.pass(shape, offer, Direction::Forward)?.received() as f64
            }
        })
    }
}

/// Makes the experiment.
pub fn profile(options: ProfileOptions) -> Result<Report, LabError> {
    if options.inside {
        return inside::inside(&options.common);
    }
    let mut dut_options = options.common.dut_options.clone();
    if options.layers {
        if dut_options.suites != DutOptions::default().suites {
            return Err(LabError::Usage(
                "--suite: --layers has suites of its own; leave one of them out".into(),
            ));
        }
        if options.common.encaps.len() > 1 {
            return Err(LabError::Usage(
                "--encap: the table of --layers has room for one encapsulation; choose yes or no".into(),
            ));
        }
        if options.common.congestion.is_some() {
            return Err(LabError::Usage(
                "--congestion: --layers carries no TCP; leave one of them out".into(),
            ));
        }
        dut_options.suites = layers::suites()?;
    }
    let common = &Common { dut_options, ..options.common };
    let seconds = Duration::from_secs_f64;
    let duration = common.duration.unwrap_or(common.by_care(seconds(3.0), seconds(1.5), seconds(0.4)));
    useful("--duration", duration, 0.2..=600.0)?;
    let repeats = common.repeats.unwrap_or(common.by_care(3, 2, 1));
    let mut lacks = machine::lacks_privilege();
    let loads: Vec<Load> =
        if options.layers { vec![Load::Udp(layers::PAYLOAD)] } else { Load::all().to_vec() };
    // Plain forwarding is measured between links whose packets cross one by one.
    lacks.extend(Line::lacks(if options.layers { Mode::Wire } else { Mode::Offload }));
    if !options.layers {
        lacks.extend(Iperf3::lacks());
    }
    let (duts, missing, _) = choose_duts(&["ironswan".into()], &common.encaps, &common.dut_options)?;
    lacks.extend(missing);
    if !lacks.is_empty() {
        once(&mut lacks);
        return Err(LabError::Unfit(lacks));
    }
    // A sample for each stage of the two busy sides.
    let each = 2 * (STAGES.len() + 1);
    let schedule = Schedule {
        about: if options.layers { LAYERED } else { ABOUT },
        common,
        cells: options
            .layers
            .then_some(Cell::Plain)
            .into_iter()
            .chain(duts.iter().map(|d| Cell::Gateways(d.as_ref())))
            .collect(),
        repeats,
        samples: repeats as usize * (duts.len() * loads.len() * each + usize::from(options.layers)),
        guess: duration / each as u32,
    };
    let esp = common.dut_options.esp();
    runner::run(schedule, &Work { duts: &duts, loads, layers: options.layers, esp, duration, repeats })
}

const MTU: u32 = 1400;
/// Bytes of TCP's payload that count as a packet: what one of the inner MTU carries.
const PAYLOAD: f64 = MTU as f64 - 52.0;

/// One system of a round.
#[derive(Clone, Copy)]
enum Cell<'a> {
    /// Forwarding without a tunnel, by the kernel.
    Plain,
    Gateways(&'a dyn Dut),
}

/// The experiment under way.
struct Work<'a> {
    duts: &'a [Box<dyn Dut>],
    loads: Vec<Load>,
    layers: bool,
    /// Suites of ESP, for the record.
    esp: String,
    /// Length of each load.
    duration: Duration,
    repeats: u32,
}

impl<'a> Method for Work<'a> {
    type Cell = Cell<'a>;
    type Bench = Owner;

    fn prepare(&self, c: &mut Campaign) -> Result<Owner, LabError> {
        introduce(c, self.duts, &self.esp, (self.duration, self.repeats));
        if self.layers {
            c.settings.insert(layers::SETTING.into(), layers::described());
            return Owner::claim();
        }
        c.versions.extend(Iperf3::version().map(|v| ("iperf3".to_string(), v)));
        c.claim_for_tcp()
    }

    /// Measures one system under every load.
    fn trial(
        &self,
        c: &mut Campaign,
        owner: &mut Owner,
        cell: &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        let dut = match cell {
            Cell::Plain => return layers::plain(c, owner, self.duration, repeat),
            Cell::Gateways(dut) => *dut,
        };
        let placement = Placement::new(Spread::Free, c.machine().cpus).map_err(LabError::Usage)?;
        c.says(&format!("{}, starting", dut.name()))?;
        let mut rig = Rig::start(owner, dut, Mode::Offload, MTU, &placement)?;
        for load in self.loads.iter().copied() {
            c.says(&format!("{}, {}", dut.name(), load.name()))?;
            let (began, before) = (c.elapsed(), counts(&mut rig)?);
            let beside = Beside::start(c, &rig.line, &[])?;
            load.carry(&mut rig, self.duration)?;
            let busy = beside.stop(&rig.line)?;
            if c.soak().is_some() {
                // No stage's, and in no table of stages.
                let of = factors([("dut", &dut.name()), ("traffic", &load.name())]);
                c.sample(of, repeat, began, &busy, vec![]);
            }
            let after = counts(&mut rig)?;
            for (gateway, (now, then)) in ["g1", "g2"].iter().zip(after.iter().zip(&before)) {
                let d = now.since(then);
                for (direction, times) in [("out", &d.outbound), ("in", &d.inbound)] {
                    let side = format!("{gateway} {direction}");
                    let of = factors([("dut", &dut.name()), ("load", &load.name()), ("side", &side)]);
                    let mhz = c.machine().mhz;
                    let stages = samples(&of, times, mhz);
                    let layers = match dut.ipsec().filter(|_| self.layers) {
                        Some((suite, _)) => layers::of_side(&suite.esp, &side, times, mhz),
                        None => Vec::new(),
                    };
                    for (of, measures) in stages.into_iter().chain(layers) {
                        c.sample(of, repeat, began, &measures, vec![]);
                    }
                }
            }
        }
        stop(c, dut, rig, repeat);
        Ok(())
    }

    fn end(&self, c: &mut Campaign, _: Owner) -> Result<(), LabError> {
        if c.samples().is_empty() {
            return Err(LabError::Measurement(
                "the gateways measured no stages: this ironswan is older, or its stage counters are off"
                    .into(),
            ));
        }
        Ok(())
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// Notes what is measured, and for how long.
fn introduce(c: &mut Campaign, duts: &[Box<dyn Dut>], esp: &str, (duration, repeats): (Duration, u32)) {
    c.trials_last(duration);
    c.settings.insert("duration of a load, s".into(), duration.as_secs_f64().to_string());
    c.settings.insert("repeats".into(), repeats.to_string());
    c.settings.insert("ESP proposal".into(), esp.into());
    c.settings.insert("inner MTU, bytes".into(), MTU.to_string());
    c.versions = duts.iter().filter_map(|d| Some((d.name(), d.version()?))).collect();
}

/// Ends a system. Its commands are noted in the first round.
fn stop(c: &mut Campaign, dut: &dyn Dut, rig: Rig, repeat: u32) {
    let (killed, commands) = rig.stop();
    if repeat == 0 {
        c.ran([format!("# {}", dut.name())].into_iter().chain(commands));
    }
    if !killed.is_empty() {
        c.doubt(Warning::Killed { dut: dut.name(), processes: killed });
    }
}

fn counts(rig: &mut Rig) -> Result<[EngineCounts; 2], LabError> {
    rig.engines()?.ok_or_else(|| LabError::Measurement("the system does not count stages".into()))
}

/// Factors and measures of one sample.
type Measured = (Factors, Vec<(&'static str, f64)>);

/// Samples of one side: each stage, and all together. Empty when no packet was measured.
fn samples(of: &Factors, times: &StageTimes, mhz: Option<f64>) -> Vec<Measured> {
    if times.packets == 0 {
        return Vec::new();
    }
    let packets = times.packets as f64;
    let sum: u64 = times.ns.values().sum();
    let sample = |stage: &str, ns: u64| {
        let mut of = of.clone();
        of.insert("stage".into(), stage.into());
        let per_packet = ns as f64 / packets;
        let mut list = vec![("ns_per_packet", per_packet), ("share", ns as f64 / sum.max(1) as f64)];
        list.extend(mhz.map(|mhz| ("cycles_per_packet", per_packet * mhz / 1e3)));
        (of, list)
    };
    let others = times.ns.keys().map(String::as_str).filter(|s| !STAGES.contains(s));
    let stages = STAGES.into_iter().chain(others);
    let mut samples: Vec<Measured> = stages.filter_map(|s| Some(sample(s, *times.ns.get(s)?))).collect();
    let (of, mut list) = sample(ALL, sum);
    list.extend([("bytes_per_packet", times.bytes as f64 / packets), ("packets", packets)]);
    samples.push((of, list));
    samples
}

fn conclude(record: &Record) -> Conclusion {
    let all = Factors::new();
    let medians = ["ns_per_packet", "cycles_per_packet", "bytes_per_packet", "packets"];
    let derived = layers::cycles(record);
    let mut views = Vec::new();
    if !derived.is_empty() {
        views.extend(layers::views());
    }
    views.push(View::Table(Table {
        title: "All stages together".into(),
        only: factors([("stage", ALL)]),
        rows: vec!["dut".into(), "load".into(), "side".into()],
        columns: Columns::Measures(medians.map(|m| (m.to_string(), Which::Median)).to_vec()),
    }));
    for dut in record.values("dut", &all).into_iter().filter(|dut| *dut != layers::PLAIN) {
        for (nth, load) in record.values("load", &factors([("dut", dut)])).into_iter().enumerate() {
            let only = factors([("dut", dut), ("load", load)]);
            views.push(View::Table(Table {
                title: format!("{dut}, {load}"),
                only: only.clone(),
                rows: vec!["stage".into()],
                columns: Columns::Factor {
                    factor: "side".into(),
                    measure: "ns_per_packet".into(),
                    which: Which::Median,
                },
            }));
            views.push(View::Plot(Plot {
                name: format!("stages-{dut}-{}", nth + 1),
                title: format!("{dut}, {load}"),
                only,
                x: "stage".into(),
                x_label: "stage".into(),
                y: "ns_per_packet".into(),
                which: Which::Median,
                series: vec!["side".into()],
                log_x: false,
                log_y: false,
            }));
        }
    }
    let history = match derived.is_empty() {
        true => vec![klips(record)],
        false => vec![layers::history(&derived)],
    };
    Conclusion { derived, views, history }
}

/// The table of KLIPS beside the part of crypto on both sides, under large packets.
fn klips(record: &Record) -> Historical {
    use history::profile as h;
    let large = Load::all().map(Load::name).into_iter().next_back().unwrap_or_default();
    let part = |side: &str| {
        let only = factors([("load", &large), ("side", side), ("stage", "crypto")]);
        let share = record.figures_with(&only).next().and_then(|f| f.number("share", Which::Median));
        share.map(|s| format!("{:.0} %", s * 100.0))
    };
    let now = match (part("g1 out"), part("g2 in")) {
        (Some(out), Some(back)) => format!(
            "crypto (cipher and authentication in one) takes {out} of the time on the encrypt side and {back} on the decrypt \
             side, under packets of 1,300 B"
        ),
        _ => "no packet of 1,300 B was measured on both sides".into(),
    };
    Historical { source: h::SOURCE.into(), then: h::THEN.into(), now, caveat: h::CAVEAT.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_and_their_sum_become_samples_in_the_order_of_the_way() {
        let times = StageTimes {
            packets: 100,
            bytes: 140_000,
            ns: STAGES.iter().map(|s| (s.to_string(), 1000)).chain([("extra".to_string(), 100)]).collect(),
        };
        let of = factors([("side", "g1 out")]);
        let all = samples(&of, &times, Some(2000.0));
        let stages: Vec<&str> = all.iter().map(|(of, _)| of["stage"].as_str()).collect();
        let expected: Vec<&str> = STAGES.into_iter().chain(["extra", "all"]).collect();
        assert_eq!(stages, expected);
        let value = |nth: usize, name: &str| all[nth].1.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        assert_eq!((value(0, "ns_per_packet"), value(0, "cycles_per_packet")), (Some(10.0), Some(20.0)));
        assert_eq!((value(8, "ns_per_packet"), value(8, "bytes_per_packet")), (Some(71.0), Some(1400.0)));
        let shares: f64 = (0..8).filter_map(|n| value(n, "share")).sum();
        assert!((shares - 1.0).abs() < 1e-12);
        assert!(samples(&of, &StageTimes::default(), None).is_empty());
    }
}
