//! Experiment E11, `lab lowend`: gateways held to a share of a core, after FreeS/WAN's "even a 486
//! can handle a T1 line".

use std::time::Duration;

use super::bench::{Bench, Ready, ready};
use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::passed::Passed;
use super::placement::{Placement, Spread};
use super::rig::Rig;
use super::runner::{self, Method, Schedule};
use super::searched::{self, Load};
use super::throughput::{self, Care, FRAMING, FrameSize, LARGEST, percent};
use super::trials::{self, Purpose, Trials};
use crate::error::LabError;
use crate::load::{Direction, Iperf3, Offer};
use crate::measure::quota::{PERIOD, Quota};
use crate::measure::soaker::Busy;
use crate::record::{Better, Columns, Factors, Historical, Plot, Record, Table, View, Which, factors};
use crate::report::history::lowend as published;
use crate::topology::{Mode, Node, Owner};

/// Options of the experiment. Empty lists: the experiment's own choice.
#[derive(Debug, Clone, Default)]
pub struct LowendOptions {
    /// Options that all experiments have.
    pub common: Common,
    /// Shares of a core, in percent, that each gateway is held to.
    pub shares: Vec<u32>,
    /// Offered rates of inner packets, 10^6 bits per second.
    pub rates: Vec<f64>,
}

const ABOUT: About = About {
    name: "lowend",
    number: "E11",
    question: "What does a gateway carry that has a tenth, a quarter, a half of a core, or one?",
    measures: &[
        ("mbps", "Mbit/s", "Mbit/s", "TCP payload, or IP packets inside the tunnel", Better::More),
        ("kpps", "kpps", "1000 packets/s", "packets that arrived", Better::More),
        ("loss", "loss", "share", "of the intended packets", Better::Less),
        ("core", "of a core", "share", "time of a gateway's process, the mean of both", Better::Less),
        (
            "stopped",
            "stopped",
            "share",
            "of the processors' time in which a gateway was stopped by its quota, the mean of both",
            Better::Less,
        ),
        ("p50_us", "50 % us", "us", "latency that half of the packets did not exceed", Better::Less),
        ("p99_us", "99 %", "us", "that of 99 of 100", Better::Less),
        ("max_us", "max", "us", "the largest", Better::Less),
    ],
    baseline: None,
};

/// Loss that is allowed at a throughput. A gateway that is stopped nine tenths of the time has
/// queues that overflow.
const LOSS: f64 = 0.001;
const RATES: [f64; 4] = [1.5, 10.0, 50.0, 100.0];
/// The frames that the fixed rates are made of.
const FIXED: FrameSize = FrameSize::Bytes(1424);

/// Makes the experiment.
pub fn lowend(options: LowendOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let shares = match options.shares.as_slice() {
        [] => common.by_care(vec![10, 25, 50, 100], vec![10, 25, 50, 100], vec![25]),
        shares => shares.to_vec(),
    };
    if shares.iter().any(|s| !(10..=100).contains(s)) {
        return Err(LabError::Usage(
            "a share must be between 10 and 100 percent: of a period of 10 ms the kernel gives no less than 1 ms".into(),
        ));
    }
    let rates = match options.rates.as_slice() {
        [] => common.by_care(RATES.to_vec(), vec![1.5, 50.0], vec![1.5]),
        rates => rates.to_vec(),
    };
    if rates.iter().any(|r| !(0.01..=100_000.0).contains(r)) {
        return Err(LabError::Usage("a rate must be between 0.01 and 100,000 Mbit/s".into()));
    }
    let sizes: Vec<FrameSize> =
        common.by_care(vec![64, 1424], vec![1424], vec![1424]).into_iter().map(FrameSize::Bytes).collect();
    let names = match common.duts.as_slice() {
        [] => vec!["ironswan".into()],
        names => names.to_vec(),
    };
    let mut lacks = Iperf3::lacks();
    lacks.extend(Quota::lacks());
    if !lacks.is_empty() {
        return Err(LabError::Unfit(lacks));
    }
    let ready = ready(&names, common)?;
    let repeats = common.repeats.unwrap_or(common.by_care(3, 1, 1));
    let window = common.by_care(Duration::from_secs(4), Duration::from_secs(1), Duration::from_millis(500));
    let fixed =
        common.by_care(Duration::from_secs(3), Duration::from_millis(500), Duration::from_millis(200));
    let counts = (ready.duts.len(), shares.len(), sizes.len(), rates.len());
    let care = fitting(common, (window, fixed), counts, repeats);
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: ready.duts.len() * shares.len() * repeats as usize * (sizes.len() + 1 + rates.len()),
        guess: care.guess() / 2 + Duration::from_secs(1),
        cells: shares.clone(),
        repeats,
    };
    runner::run(schedule, &Work { ready, shares, sizes, rates, window, fixed, care })
}

/// Inner MTU: the largest frame is carried whole.
const INNER_MTU: u32 = LARGEST - FRAMING;

/// The experiment under way.
struct Work {
    ready: Ready,
    /// Shares of a core, percent.
    shares: Vec<u32>,
    sizes: Vec<FrameSize>,
    /// Fixed rates of inner packets, 10^6 bits per second.
    rates: Vec<f64>,
    /// Length of a TCP window, and of a trial at a fixed rate.
    window: Duration,
    fixed: Duration,
    care: Care,
}

impl Method for Work {
    /// Share of a core, percent.
    type Cell = u32;
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        let stops = self.shares.iter().map(|s| format!("{s} %: {:.1} ms", longest_stop_ms(*s)));
        let width = self.care.width * 100.0;
        let settings = [
            ("quota", format!("by control group, every {} ms", PERIOD.as_millis())),
            ("longest stop", stops.collect::<Vec<_>>().join(", ")),
            ("packets", format!("64 flows, a loss of at most {}, to within {width} %", percent(LOSS))),
            ("fixed rates", format!("frames of {FIXED} bytes, {} s", self.fixed.as_secs_f64())),
            ("mode", Mode::Wire.to_string()),
        ];
        self.ready.introduce(c, settings);
        self.care.describe(c);
        c.trials_last(self.window.min(self.fixed));
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut bench = Bench::new(c.claim_for_tcp()?);
        for dut in &self.ready.duts {
            c.says(&format!("starting {}", dut.name()))?;
            let mut rig = Rig::start(&bench.owner, dut.as_ref(), Mode::Wire, INNER_MTU, &placement)?;
            rig.quotas.extend(quotas(&bench.owner, &rig)?);
            bench.add(c, rig)?;
        }
        Ok(bench)
    }

    /// All systems with one share of a core, under all loads.
    fn trial(&self, c: &mut Campaign, bench: &mut Bench, share: &u32, repeat: u32) -> Result<(), LabError> {
        let mut quotas = bench.rigs.iter().flat_map(|rig| &rig.quotas);
        quotas.try_for_each(|q| q.set(f64::from(*share) / 100.0))?;
        bench.rigs.iter_mut().try_for_each(|rig| self.tcp(c, rig, *share, repeat))?;
        let mut sizes = self.sizes.iter();
        sizes.try_for_each(|size| self.throughput(c, &mut bench.rigs, *size, *share, repeat))?;
        for rate in &self.rates {
            bench.rigs.iter_mut().try_for_each(|rig| self.at_rate(c, rig, *rate, *share, repeat))?;
        }
        Ok(())
    }

    fn end(&self, c: &mut Campaign, bench: Bench) -> Result<(), LabError> {
        bench.stop(c)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// Searches so short that a short run keeps to its time: windows of TCP and at fixed rates; numbers
/// of systems, shares, sizes and fixed rates.
fn fitting(
    common: &Common,
    (window, fixed): (Duration, Duration),
    (systems, shares, sizes, rates): (usize, usize, usize, usize),
    repeats: u32,
) -> Care {
    let care = Care::of(common, vec![LOSS]);
    let flood = budget::trials(&[Duration::from_secs_f64(care.last)]);
    let tcp = window + window.min(Duration::from_secs(1)) + Duration::from_millis(500);
    let share = tcp + flood * sizes as u32 + budget::trials(&vec![fixed; rates]);
    let others = (Duration::from_millis(1000) + share * shares as u32 * repeats) * systems as u32;
    budget::least(common, &care, others, (systems * shares * sizes) as u32 * repeats)
}

/// The longest that a gateway with so many percent of a core is stopped, milliseconds.
fn longest_stop_ms(share: u32) -> f64 {
    PERIOD.as_secs_f64() * 1e3 * (1.0 - f64::from(share) / 100.0)
}

/// A quota for each gateway of a system.
fn quotas(owner: &Owner, rig: &Rig) -> Result<[Quota; 2], LabError> {
    let hold = |gateway: Node| {
        let pids = rig.gateway_pids(gateway);
        if pids.is_empty() {
            return Err(LabError::Usage(format!(
                "{} has no process on {} that could be held: the kernel does its work",
                rig.name(),
                gateway.name()
            )));
        }
        let quota = Quota::new(&format!("{}-{}", owner.next().0, gateway.name()), 1.0)?;
        quota.hold(&pids)?;
        Ok(quota)
    };
    Ok([hold(Node::G1)?, hold(Node::G2)?])
}

/// CPU shares of gateways with a quota, in one pass.
fn held(passed: &Passed) -> Vec<(&'static str, f64)> {
    let mut held =
        vec![("core", passed.cost.gateways_ns as f64 / 2e9 / passed.seconds()), ("stopped", passed.stopped)];
    held.extend(passed.by_soaker());
    held
}

/// Factors of a sample of one system.
fn factors_of(rig: &Rig, part: &str, share: u32, load: &str) -> Factors {
    factors([("part", part), ("share", &format!("{share}%")), ("load", load), ("dut", rig.name())])
}

impl Work {
    /// One system under TCP.
    fn tcp(&self, c: &mut Campaign, rig: &mut Rig, share: u32, repeat: u32) -> Result<(), LabError> {
        let at = format!("{share} % of a core");
        c.says(&format!("{at}: {}, TCP", rig.name()))?;
        let (began, before) = (c.elapsed(), rig.stalls());
        let w = rig.tcp_window(1, self.window)?;
        let stopped = before.stopped(&rig.stalls());
        let core = w.gateways.iter().map(|g| g.cpu_ns).sum::<u64>() as f64 / 2e9 / w.seconds;
        let mut measures = vec![("mbps", w.gbps * 1e3), ("core", core), ("stopped", stopped)];
        measures.extend(Busy::measures(w.busy.as_ref()));
        c.sample(factors_of(rig, "carried", share, "TCP"), repeat, began, &measures, vec![]);
        Ok(())
    }

    /// Searches the throughput of all systems with packets of one size.
    fn throughput(
        &self,
        c: &mut Campaign,
        rigs: &mut [Rig],
        size: FrameSize,
        share: u32,
        repeat: u32,
    ) -> Result<(), LabError> {
        let shape = shape(size)?;
        let cell = format!("{share} % of a core, {size} B");
        let began = c.elapsed();
        let load = Load { shape, direction: Direction::Forward, cell: &cell };
        let searched = searched::search(c, rigs, load, &self.care)?;
        for (rig, s) in rigs.iter().zip(searched) {
            let dut = rig.name();
            let words = [&*size.to_string(), &format!("{share}_percent"), dut];
            let files = s.keep(c, (dut, &cell), &words, repeat)?;
            let pps = s.found.first().and_then(|f| f.conditional_throughput);
            let trials: Vec<_> = s.at.iter().flatten().map(held).collect();
            let mut measures = throughput::medians(&trials);
            measures.extend(s.confirmed(0));
            if let Some(pps) = pps {
                measures.extend([("kpps", pps / 1e3), ("mbps", throughput::inner_gbps(&shape, pps) * 1e3)]);
            }
            c.sample(
                factors_of(rig, "carried", share, &format!("{size} B")),
                repeat,
                began,
                &measures,
                files,
            );
        }
        Ok(())
    }

    /// Offers a fixed rate to one system.
    fn at_rate(
        &self,
        c: &mut Campaign,
        rig: &mut Rig,
        mbps: f64,
        share: u32,
        repeat: u32,
    ) -> Result<(), LabError> {
        let shape = shape(FIXED)?;
        let pps = mbps * 1e6 / 8.0 / throughput::inner_bytes(&shape);
        c.says(&format!("{share} % of a core: {}, {mbps} Mbit/s", rig.name()))?;
        let began = c.elapsed();
        let offer = Offer { rate: Some(pps), packets: u64::MAX, at_most: self.fixed };
        let passed = rig.pass(shape, offer, Direction::Forward)?;
        let mut trials = Trials::new(Direction::Forward);
        trials.add((Purpose::Rate, &mbps.to_string()), began, offer, &passed);
        let (dut, at) = (rig.name(), format!("{mbps} Mbit/s, {share} % of a core"));
        trials.impossible(dut, &at).into_iter().for_each(|d| c.doubt(d));
        let words = [&format!("{mbps}Mbps"), &*format!("{share}_percent"), dut];
        let files = vec![c.keep(&trials::file(&words, repeat), trials.csv().as_bytes())?];
        let mut measures = throughput::latencies(&passed);
        measures.retain(|(name, _)| ["p50_us", "p99_us", "max_us"].contains(name));
        measures.extend([
            ("mbps", throughput::inner_gbps(&shape, passed.forwarded_pps()) * 1e3),
            ("loss", passed.loss()),
        ]);
        measures.extend(held(&passed));
        c.sample(factors_of(rig, "offered", share, &mbps.to_string()), repeat, began, &measures, files);
        Ok(())
    }
}

fn shape(size: FrameSize) -> Result<crate::load::frame::Shape, LabError> {
    size.shape(INNER_MTU, 64).ok_or_else(|| LabError::Usage(format!("frames of {size} bytes do not fit")))
}

fn conclude(record: &Record) -> Conclusion {
    use Which::Median;
    let columns =
        |names: &[&str]| Columns::Measures(names.iter().map(|n| ((*n).to_string(), Median)).collect());
    let rows = ["share", "load", "dut"].map(String::from).to_vec();
    let carried = factors([("part", "carried")]);
    let views = vec![
        View::Table(Table {
            title: "The most that each carries (TCP, and frames of so many bytes)".into(),
            only: carried.clone(),
            rows: rows.clone(),
            columns: columns(&["mbps", "kpps", "core", "stopped"]),
        }),
        View::Table(Table {
            title: "Fixed rates, Mbit/s offered".into(),
            only: factors([("part", "offered")]),
            rows,
            columns: columns(&["mbps", "loss", "core", "stopped", "p50_us", "p99_us", "max_us"]),
        }),
        View::Plot(Plot {
            name: "carried".into(),
            title: "Carried with a share of a core".into(),
            only: carried.clone(),
            x: "share".into(),
            x_label: "share of a core for each gateway".into(),
            y: "mbps".into(),
            which: Median,
            series: vec!["dut".into(), "load".into()],
            log_x: false,
            log_y: true,
        }),
    ];
    let least = record
        .figures_with(&carried)
        .filter_map(|f| Some((f, f.number("mbps", Median)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let now = least.map_or("nothing was carried".into(), |(f, mbps)| {
        format!(
            "the least of this run: {} with {} of a core, {}: {mbps:.1} Mbit/s, {:.0} times a T1 line",
            f.factors["dut"],
            f.factors["share"],
            f.factors["load"],
            mbps / published::T1
        )
    });
    let caveat = "Then a whole machine with its own clock, here a slice of a fast core: it is stopped until the next period when \
                  its slice is spent, caches are those of the whole core, and what the kernel does for a gateway in software \
                  interrupts is not held. Ciphers differ: 3DES then, AES-GCM with processor instructions now.";
    let history = vec![Historical {
        source: published::SOURCE.into(),
        then: published::then(),
        now,
        caveat: caveat.into(),
    }];
    Conclusion { derived: vec![], views, history }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_short() {
        let ms = Duration::from_millis;
        let quick = Common { quick: true, ..Common::default() };
        let care = fitting(&quick, (ms(1000), ms(500)), (1, 4, 1, 2), 1);
        // Four shares: TCP, a flood, two fixed rates, and the search.
        let share = ms(2500) + ms(600) + ms(850) * 2 + ms(600) * (care.trials + care.later);
        assert!(ms(1000) + share * 4 <= budget::QUICK && care.trials >= 8 && care.later > 0, "{care:?}");
        let smoke = Common { smoke: true, ..Common::default() };
        let care = fitting(&smoke, (ms(500), ms(200)), (1, 1, 1, 1), 1);
        assert!(
            ms(1000 + 1500 + 450 + 550) + ms(450) * (care.trials + care.later) <= budget::SMOKE,
            "{care:?}"
        );
    }
}
