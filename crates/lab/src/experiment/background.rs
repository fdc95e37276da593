//! Experiment E4, `lab background`: what is left of the machine beside constant traffic: the run
//! time of a fixed piece of work (the sieve of Eratosthenes), and the share of the processors that
//! a soaker gets, beside what the kernel's accounting says was left.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, systems};
use crate::dut;
use crate::dut::Dut;
use crate::error::LabError;
use crate::interrupt;
use crate::load::apps::{App, Server};
use crate::load::{Ttcp, TtcpLoad};
use crate::measure::counters::parse_links;
use crate::measure::soaker::{Calibration, Soaker};
use crate::measure::{machine_ticks, sieve};
use crate::process::Process;
use crate::record::{
    Better, Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::report::{NOISE, Warning};
use crate::topology::{HostToHost, Netns, Owner, Topology};

const ABOUT: About = About {
    name: "background",
    number: "E4",
    question: "What does constant traffic leave of the machine, by a sieve's run time, by a CPU soaker, and by the kernel?",
    measures: &[
        ("sieve_s", "sieve s", "s", "the sieve took, on every processor at once", Better::Less),
        (
            "soaker_left",
            "left",
            "share",
            "of the processors that the soaker got, of what it got on the idle machine",
            Better::More,
        ),
        (
            "kernel_left",
            "kernel says",
            "share",
            "of the processors that /proc/stat says was idle or the soaker's",
            Better::More,
        ),
        (
            "mbps",
            "Mb/s",
            "Mbit/s",
            "that arrived while the soaker ran, with headers where a program carries it",
            Better::Neither,
        ),
        (
            "sieve_mbps",
            "Mb/s, sieve",
            "Mbit/s",
            "that arrived while the sieve ran, in the same way",
            Better::Neither,
        ),
    ],
    baseline: Some(("traffic", NONE)),
};

/// The traffic that is none.
const NONE: &str = "none";

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct BackgroundOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Payload, Mbit/s; 200 when absent.
    pub rate_mbps: Option<u32>,
}

const INNER_MTU: u32 = 1400;
const RATE: u32 = 200;
/// The accounting disagrees with the soaker when they are so far apart.
const APART: f64 = 0.05;

/// Programs that carry the traffic as well, without a tunnel.
const APPS: [App; 2] = [App::Scp, App::Https];

/// Kind of traffic that a window carries beside the sieve.
#[derive(Clone, Copy)]
enum Traffic<'a> {
    None,
    Tcp(&'a dyn Dut),
    App(App, &'a dyn Dut),
}

/// Traffic at work, with what keeps it going.
enum Flow {
    Tcp(Ttcp),
    App { server: Server, client: Process },
}

struct Plan {
    rate: f64,
    window: Duration,
    rounds: u32,
    /// How long the sieve should take without traffic, seconds.
    sieve: f64,
    calibration: Calibration,
}

/// Makes the experiment.
pub fn background(options: BackgroundOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let rate_mbps = options.rate_mbps.unwrap_or(RATE);
    if !(1..=100_000).contains(&rate_mbps) {
        return Err(LabError::Usage("the rate must be between 1 and 100,000 Mbit/s".into()));
    }
    let window = common.duration.unwrap_or(common.by_care(
        Duration::from_secs(4),
        Duration::from_secs(1),
        Duration::from_millis(150),
    ));
    useful("--duration", window, 0.1..=600.0)?;
    let systems = systems(common, &common.dut_options, &["plain", "ironswan"], false, vec![])?;
    let plain = dut::by_name("plain", &common.encaps, &common.dut_options)?;
    let mut traffic = vec![Traffic::None];
    traffic.extend(systems.duts.iter().map(|d| Traffic::Tcp(d.as_ref())));
    let (apps, missing): (Vec<App>, Vec<App>) = APPS.into_iter().partition(|a| a.lacks().is_empty());
    traffic.extend(plain.iter().flat_map(|d| apps.iter().map(move |a| Traffic::App(*a, d.as_ref()))));
    let repeats = common.repeats.unwrap_or(fitting(common, window, traffic.len()));
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: repeats as usize * traffic.len(),
        guess: window * 3,
        repeats,
        cells: traffic,
    };
    runner::run(schedule, &Work { systems: &systems, missing: &missing, rate_mbps, repeats, window })
}

/// The experiment under way.
struct Work<'a> {
    systems: &'a Systems,
    /// Programs that this machine lacks.
    missing: &'a [App],
    rate_mbps: u32,
    repeats: u32,
    window: Duration,
}

impl<'a> Method for Work<'a> {
    type Cell = Traffic<'a>;
    type Bench = (Plan, Owner);

    fn prepare(&self, c: &mut Campaign) -> Result<(Plan, Owner), LabError> {
        let window = self.window;
        c.introduce(self.systems, self.repeats, Some(window));
        for (app, r) in self.missing.iter().flat_map(|a| a.lacks().into_iter().map(move |r| (a, r))) {
            c.doubt(Warning::NotInstalled { dut: app.name().into(), lack: r.lack, action: r.action });
        }
        let plan = Plan::calibrated(c, self.rate_mbps, window)?;
        c.settings.insert("rate".into(), format!("{} Mbit/s of payload", self.rate_mbps));
        let sieve = format!("{} rounds of 2^20 numbers on each processor", plan.rounds);
        c.settings.insert("sieve".into(), sieve);
        let soaker = format!("{:.0} units/s on the idle machine", plan.calibration.rate);
        c.settings.insert("soaker".into(), soaker);
        Ok((plan, c.claim_for_tcp()?))
    }

    fn trial(
        &self,
        c: &mut Campaign,
        (plan, owner): &mut (Plan, Owner),
        traffic: &Traffic<'a>,
        repeat: u32,
    ) -> Result<(), LabError> {
        plan.one(c, owner, *traffic, repeat)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// Repeats that fit: the sieve takes up to twice as long beside traffic, and something has to be
/// started and ended.
fn fitting(common: &Common, window: Duration, traffic: usize) -> u32 {
    let one = window * 4 + Duration::from_millis(900);
    budget::repeats(common, window * 5 / 2, one * traffic as u32, common.by_care(5, 3, 1))
}

impl Traffic<'_> {
    fn name(&self) -> String {
        match self {
            Self::None => NONE.into(),
            Self::Tcp(dut) => dut.name(),
            Self::App(app, _) => app.name().into(),
        }
    }

    fn dut(&self) -> Option<&dyn Dut> {
        match self {
            Self::None => None,
            Self::Tcp(dut) | Self::App(_, dut) => Some(*dut),
        }
    }
}

impl Flow {
    /// Bytes that have arrived: counted by the receiver, or by the link of the client.
    fn received(&self, client: &Netns) -> u64 {
        match self {
            Self::Tcp(ttcp) => ttcp.received(),
            Self::App { .. } => {
                let links = client.read("/proc/thread-self/net/dev").map(|text| parse_links(&text));
                let links = links.unwrap_or_default();
                links.iter().find(|(name, _)| name == "wan").map_or(0, |(_, link)| link.rx_bytes)
            }
        }
    }

    fn finish(self, alive: impl FnMut() -> Result<(), LabError>) -> Result<(), LabError> {
        match self {
            Self::Tcp(ttcp) => ttcp.finish().map(|_| ()),
            Self::App { mut server, mut client } => match client.ended() {
                None => server.alive(),
                Some(status) => Err(server.failed(&client, &format!("ended early ({status})"), alive)),
            },
        }
    }
}

impl Plan {
    /// Finds out what sieve and soaker do on the idle machine.
    fn calibrated(c: &mut Campaign, rate_mbps: u32, window: Duration) -> Result<Self, LabError> {
        c.says("calibrating the sieve and the soaker")?;
        let calibration = {
            let soaker = Soaker::start()?;
            soaker.calibrate(4, window / 2)?
        };
        // The number of rounds that the idle machine does in one window.
        let round = sieve::run(2)?.as_secs_f64() / 2.0;
        let rounds = (window.as_secs_f64() / round.max(1e-6)).clamp(1.0, 1e6) as u32;
        calibration.disturbed().into_iter().for_each(|what| c.doubt(Warning::Calibration { what }));
        let sieve = round * f64::from(rounds);
        Ok(Self { rate: f64::from(rate_mbps) * 1e6, window, rounds, sieve, calibration })
    }

    /// Starts the traffic on a stage.
    fn flow(&self, stage: &Stage<HostToHost>, traffic: Traffic<'_>) -> Result<Flow, LabError> {
        let Traffic::App(app, _) = traffic else {
            let load = TtcpLoad { connections: 1, write: 65_536, nodelay: false, rate: Some(self.rate) };
            return Ttcp::start(&stage.topology.paths(), load).map(Flow::Tcp);
        };
        let path = stage.topology.paths()[0];
        let (files, journal) = (stage.dir().join("files"), stage.topology.journal());
        fs::create_dir(&files).map_err(LabError::io(format!("creating {}", files.display())))?;
        let file = files.join("file");
        // A file of holes takes no room, and encrypts like any other. Much longer than it can be
        // needed.
        let size = self.rate / 8.0 * (self.window.as_secs_f64() * 20.0 + 10.0);
        fs::File::create(&file)
            .and_then(|f| f.set_len(size as u64))
            .map_err(LabError::io(format!("creating {}", file.display())))?;
        let server = Server::start(app, path.to, &files, &stage.dir().join(app.name()), journal)?;
        let argv = server.fetch(&path, &file, Path::new("/dev/null"), Some(self.rate as u64));
        let client = Process::start(journal, app.name(), &argv, &stage.dir().join("client.log"))?;
        Ok(Flow::App { server, client })
    }

    /// The sieve, then the soaker, beside the traffic.
    fn one(
        &self,
        c: &mut Campaign,
        owner: &Owner,
        traffic: Traffic<'_>,
        repeat: u32,
    ) -> Result<(), LabError> {
        let name = traffic.name();
        c.says(&format!("beside {name}"))?;
        let began = c.elapsed();
        let mut stage = match traffic.dut() {
            Some(dut) => Some(Stage::start(owner, HostToHost::build(owner, INNER_MTU, None)?, dut)?),
            None => None,
        };
        let flow = stage.as_ref().map(|s| self.flow(s, traffic)).transpose()?;
        let client = stage.as_ref().map(|s| s.topology.paths()[0].from.netns);
        let received = || flow.as_ref().zip(client).map_or(0, |(f, client)| f.received(client));
        // TCP's start is not measured.
        interrupt::pause(self.window / 4)?;
        let before = received();
        let sieve = sieve::run(self.rounds)?.as_secs_f64();
        let sieve_bytes = received() - before;
        interrupt::check()?;
        let soaker = Soaker::start()?;
        interrupt::pause(self.window / 10)?;
        let (from, ticks, before) = (soaker.now(), machine_ticks()?, received());
        interrupt::pause(self.window)?;
        let (to, ticks, bytes) = (soaker.now(), machine_ticks()?.since(&ticks), received() - before);
        drop(soaker);
        if let Some(stage) = &mut stage {
            stage.alive()?;
        }
        if let Some(flow) = flow {
            flow.finish(|| stage.as_mut().map_or(Ok(()), Stage::alive))?;
        }
        if matches!(traffic, Traffic::None) {
            let soaker = self.calibration.of(from, to);
            quiet_doubts(sieve / self.sieve, soaker).into_iter().for_each(|d| c.doubt(d));
        }
        let beside = ticks.beside_a_soaker(to.ticks_since(from));
        let left = beside.idle + beside.iowait;
        let mbps = |bytes: u64, seconds: f64| {
            if traffic.dut().is_some() { bytes as f64 * 8.0 / seconds / 1e6 } else { f64::NAN }
        };
        let measures = [
            ("sieve_s", sieve),
            ("soaker_left", self.calibration.left(from, to)),
            ("kernel_left", left as f64 / ticks.total() as f64),
            ("mbps", mbps(bytes, Soaker::seconds(from, to))),
            ("sieve_mbps", mbps(sieve_bytes, sieve)),
        ];
        c.sample(factors([("traffic", &name)]), repeat, began, &measures, vec![]);
        if let Some(stage) = stage {
            stage.stop(c);
        }
        Ok(())
    }
}

/// Doubts about a machine without traffic: the sieve took `sieve` times as long as when it was
/// tried out, and the soaker got `soaker` times as much done as when it was calibrated.
fn quiet_doubts(sieve: f64, soaker: f64) -> Vec<Warning> {
    let mut doubts = Vec::new();
    for (what, times) in
        [("the sieve took {} times as long", sieve), ("the soaker got {} times as much done", soaker)]
    {
        if !(1.0 - NOISE..=1.0 + NOISE).contains(&times) {
            let what = what.replace("{}", &format!("{times:.2}"));
            doubts.push(Warning::Calibration {
                what: format!("without traffic {what} as when it was calibrated"),
            });
        }
    }
    doubts
}

fn conclude(record: &Record) -> Conclusion {
    let (mut derived, mut apart) = (Vec::new(), Vec::new());
    for figure in &record.figures {
        let Some(traffic) = figure.factors.get("traffic") else { continue };
        let number = |name| figure.number(name, Which::Median);
        let (Some(soaker), Some(kernel)) = (number("soaker_left"), number("kernel_left")) else { continue };
        derived.push(Derived {
            name: "overstated".into(),
            factors: figure.factors.clone(),
            value: kernel - soaker,
            unit: "share".into(),
            how: "what the kernel's accounting says was left, less what the soaker got".into(),
        });
        if (kernel - soaker).abs() > APART {
            let points = (kernel - soaker).abs() * 100.0;
            let way = if kernel > soaker { "too much" } else { "too little" };
            apart.push(format!("beside {traffic} the kernel reports {points:.0} points {way}"));
        }
    }
    let accounting = if apart.is_empty() {
        format!("the kernel's accounting agrees with the soaker to {:.0} points", APART * 100.0)
    } else {
        apart.join(", ")
    };
    let history = vec![
        Historical {
            source: "FreeS/WAN's page on performance: how to find the load of a gateway".into(),
            then: "top and the load average mislead: only a CPU soaker says what is left".into(),
            now: accounting,
            caveat: "Time that the host of a virtual machine takes away, a changing clock, shared caches and a sibling \
                     hyper-thread cost the soaker units of which accounting knows nothing."
                .into(),
        },
    ];
    let measures = [
        ("sieve_s", Which::Median),
        ("sieve_s", Which::Ratio),
        ("soaker_left", Which::Median),
        ("kernel_left", Which::Median),
        ("mbps", Which::Median),
        ("sieve_mbps", Which::Median),
    ];
    let views = vec![
        View::Table(Table {
            title: "Beside constant traffic".into(),
            only: Factors::new(),
            rows: vec!["traffic".into()],
            columns: Columns::Measures(measures.map(|(m, w)| (m.to_string(), w)).to_vec()),
        }),
        View::Derived { title: "Accounting against the soaker".into(), names: vec!["overstated".into()] },
        View::Plot(Plot {
            name: "left".into(),
            title: "Share of the processors left, by the soaker".into(),
            only: Factors::new(),
            x: "traffic".into(),
            x_label: "traffic".into(),
            y: "soaker_left".into(),
            which: Which::Median,
            series: vec![],
            log_x: false,
            log_y: false,
        }),
    ];
    Conclusion { derived, views, history }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_not_the_one_that_was_calibrated_is_doubted() {
        assert_eq!(quiet_doubts(1.05, 0.97), []);
        for (sieve, soaker, text) in [
            (1.5, 1.0, "the sieve took 1.50 times as long"),
            (1.0, 1.3, "got 1.30 times"),
            (1.0, 0.7, "0.70"),
        ] {
            let doubts = quiet_doubts(sieve, soaker);
            let [Warning::Calibration { what }] = &doubts[..] else { panic!("{doubts:?}") };
            assert!(what.contains(text), "{what}");
        }
    }

    #[test]
    fn short_runs_are_short() {
        let common = |quick, smoke| Common { quick, smoke, ..Common::default() };
        // No traffic, two systems, two programs.
        let (ms, most) = (Duration::from_millis, 5);
        for (common, window, time) in
            [(common(true, false), ms(1000), budget::QUICK), (common(false, true), ms(150), budget::SMOKE)]
        {
            let repeats = fitting(&common, window, most);
            let whole = window * 5 / 2 + (window * 4 + ms(900)) * repeats * most as u32;
            assert!(whole <= time, "{repeats} repeats: {whole:?}");
        }
        assert_eq!(fitting(&common(false, false), ms(4000), most), 5);
    }
}
