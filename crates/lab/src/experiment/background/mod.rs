//! Experiment E4, `lab background`: what is left of the machine beside constant traffic: the run
//! time of a fixed piece of work (the sieve of Eratosthenes), and the share of the processors that
//! a soaker gets, beside what the kernel's accounting says was left. The traffic is TCP, plain and
//! through tunnels, and real programs (ftp, sftp, scp, https), all at shares of one rate: the
//! highest that each of them carries on this machine, which is measured first.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `conclude` | figures and views, made of the samples |

mod conclude;

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use super::line::once;
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, systems};
use crate::clock;
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
use crate::record::{Better, Record, factors};
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
        ("rate_mbps", "rate", "Mbit/s", "at which the traffic was held", Better::Neither),
        (
            "highest_mbps",
            "highest",
            "Mbit/s",
            "that this kind of traffic carried without a limit, before all else, in the same way",
            Better::More,
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
    /// Rates of the payload, Mbit/s. The experiment's own choice, by `shares`, when empty.
    pub rates_mbps: Vec<u32>,
    /// Shares, percent, of the highest rate that every kind of traffic carries; 10, 50 and 100 when
    /// empty.
    pub shares: Vec<u32>,
}

const INNER_MTU: u32 = 1400;
/// The shares that are measured, percent.
const SHARES: [u32; 3] = [10, 50, 100];
/// Speed that no path reaches, bits per second: a file of so many seconds does not end while the
/// highest rate is measured.
const BEYOND: f64 = 100e9;
/// Largest file that every file system takes, bytes.
const LARGEST: f64 = 8e12;

/// Limits how long we wait until a program carries its file.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that a client receives before the file, at most: certificates and keys.
const HANDSHAKE: u64 = 16 << 10;

/// Programs that carry the traffic as well, without a tunnel.
const APPS: [App; 4] = [App::Ftp, App::Sftp, App::Scp, App::Https];

/// Kind of traffic that a window carries beside the sieve.
#[derive(Clone, Copy)]
enum Traffic<'a> {
    None,
    Tcp(&'a dyn Dut),
    App(App, &'a dyn Dut),
}

/// How much traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Percent of the highest rate that every kind of traffic carries.
    Share(u32),
    /// Mbit/s.
    Rate(u32),
}

impl Load {
    fn name(self) -> String {
        match self {
            Self::Share(percent) => format!("{percent} %"),
            Self::Rate(mbps) => format!("{mbps} Mbit/s"),
        }
    }
}

/// Traffic at work, with what keeps it going.
enum Flow {
    Tcp(Ttcp),
    App { server: Server, client: Process },
}

struct Plan {
    /// The highest rate of each kind of traffic, bits per second, by name; empty at fixed rates.
    highest: Vec<(String, f64)>,
    window: Duration,
    rounds: u32,
    /// How long the sieve should take without traffic, seconds.
    sieve: f64,
    calibration: Calibration,
}

/// Makes the experiment.
pub fn background(options: BackgroundOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let loads = loads(&options)?;
    let window = common.duration.unwrap_or(common.by_care(
        Duration::from_secs(2),
        Duration::from_millis(500),
        Duration::from_millis(100),
    ));
    useful("--duration", window, 0.1..=600.0)?;
    let systems = systems(common, &common.dut_options, &["plain", "ironswan"], false, vec![])?;
    let plain = dut::by_name("plain", &common.encaps, &common.dut_options)?;
    let mut traffic = vec![Traffic::None];
    traffic.extend(systems.duts.iter().map(|d| Traffic::Tcp(d.as_ref())));
    let own = common.by_care(&APPS[..], &APPS[..], &[App::Https]);
    let (apps, missing): (Vec<App>, Vec<App>) = own.iter().partition(|a| a.lacks().is_empty());
    traffic.extend(plain.iter().flat_map(|d| apps.iter().map(move |a| Traffic::App(*a, d.as_ref()))));
    let searched = if options.rates_mbps.is_empty() { traffic.len() - 1 } else { 0 };
    let repeats = common.repeats.unwrap_or(fitting(common, window, traffic.len() * loads.len(), searched));
    let cells: Vec<(Load, Traffic<'_>)> =
        loads.iter().flat_map(|load| traffic.iter().map(move |traffic| (*load, *traffic))).collect();
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: repeats as usize * cells.len(),
        guess: window * 3,
        repeats,
        cells,
    };
    let traffic = if searched > 0 { &traffic[1..] } else { &[] };
    runner::run(schedule, &Work { systems: &systems, missing: &missing, traffic, repeats, window })
}

/// The loads that the options ask for.
fn loads(o: &BackgroundOptions) -> Result<Vec<Load>, LabError> {
    if !o.rates_mbps.is_empty() && !o.shares.is_empty() {
        return Err(LabError::Usage("--rate and --share exclude each other".into()));
    }
    if o.rates_mbps.iter().any(|rate| !(1..=100_000).contains(rate)) {
        return Err(LabError::Usage("the rate must be between 1 and 100,000 Mbit/s".into()));
    }
    if o.shares.iter().any(|share| !(1..=100).contains(share)) {
        return Err(LabError::Usage("a share of the highest rate must be between 1 and 100 %".into()));
    }
    let own: &[u32] = o.common.by_care(&SHARES, &[10, 100], &[50]);
    let shares = if o.shares.is_empty() { own } else { &o.shares };
    let mut loads: Vec<Load> = match &o.rates_mbps[..] {
        [] => shares.iter().map(|share| Load::Share(*share)).collect(),
        rates => rates.iter().map(|rate| Load::Rate(*rate)).collect(),
    };
    once(&mut loads);
    Ok(loads)
}

/// The experiment under way.
struct Work<'a> {
    systems: &'a Systems,
    /// Programs that this machine lacks.
    missing: &'a [App],
    /// Kinds of traffic whose highest rate is measured first; none at fixed rates.
    traffic: &'a [Traffic<'a>],
    repeats: u32,
    window: Duration,
}

impl<'a> Method for Work<'a> {
    type Cell = (Load, Traffic<'a>);
    type Bench = (Plan, Owner);

    fn prepare(&self, c: &mut Campaign) -> Result<(Plan, Owner), LabError> {
        let window = self.window;
        c.introduce(self.systems, self.repeats, Some(window));
        for (app, r) in self.missing.iter().flat_map(|a| a.lacks().into_iter().map(move |r| (a, r))) {
            c.doubt(Warning::NotInstalled { dut: app.name().into(), lack: r.lack, action: r.action });
        }
        let mut plan = Plan::calibrated(c, window)?;
        let sieve = format!("{} rounds of 2^20 numbers on each processor", plan.rounds);
        c.settings.insert("sieve".into(), sieve);
        let soaker = format!("{:.0} units/s on the idle machine", plan.calibration.rate);
        c.settings.insert("soaker".into(), soaker);
        let owner = c.claim_for_tcp()?;
        for traffic in self.traffic {
            let rate = plan.unlimited(c, &owner, *traffic)?;
            c.settings
                .insert(format!("highest rate, {}", traffic.name()), format!("{:.0} Mbit/s", rate / 1e6));
            plan.highest.push((traffic.name(), rate));
        }
        if let Some(rate) = plan.common_rate() {
            c.settings.insert("rate at 100 %".into(), format!("{:.0} Mbit/s of payload", rate / 1e6));
        }
        Ok((plan, owner))
    }

    fn trial(
        &self,
        c: &mut Campaign,
        (plan, owner): &mut (Plan, Owner),
        (load, traffic): &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        plan.one(c, owner, (*load, *traffic), repeat)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

/// Repeats of `cells` that fit beside a calibration and the search for `searched` highest rates:
/// the sieve takes up to twice as long beside traffic, and something has to be started and ended.
fn fitting(common: &Common, window: Duration, cells: usize, searched: usize) -> u32 {
    let start = Duration::from_millis(900);
    let before = window * 5 / 2 + (window * 5 / 4 + start) * searched as u32;
    budget::repeats(common, before, (window * 4 + start) * cells as u32, 3)
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
            Self::App { .. } => received_by_link(client),
        }
    }

    /// Waits until a program has begun to carry its file: until then it looks for the server,
    /// exchanges keys, and on a busy machine waits for its turn.
    fn begun(&mut self, netns: &Netns) -> Result<(), LabError> {
        let Self::App { server, client } = self else { return Ok(()) };
        let begun = interrupt::wait_until(START_TIMEOUT, || {
            Ok(client.ended().is_some() || received_by_link(netns) >= HANDSHAKE)
        })?;
        match client.ended() {
            Some(status) => Err(server.failed(client, &format!("ended early ({status})"), || Ok(()))),
            None if begun => Ok(()),
            None => {
                let how = format!("received nothing of its file in {} s", START_TIMEOUT.as_secs());
                Err(server.failed(client, &how, || Ok(())))
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

/// Bytes that a client's link has received since it was made.
fn received_by_link(client: &Netns) -> u64 {
    let links = client.read("/proc/thread-self/net/dev").map(|text| parse_links(&text));
    links.unwrap_or_default().iter().find(|(name, _)| name == "wan").map_or(0, |(_, link)| link.rx_bytes)
}

impl Plan {
    /// Finds out what sieve and soaker do on the idle machine.
    fn calibrated(c: &mut Campaign, window: Duration) -> Result<Self, LabError> {
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
        Ok(Self { highest: Vec::new(), window, rounds, sieve, calibration })
    }

    /// The highest rate that every kind of traffic carries, bits per second.
    fn common_rate(&self) -> Option<f64> {
        self.highest.iter().map(|(_, rate)| *rate).reduce(f64::min)
    }

    /// Bits per second of a load.
    fn rate(&self, load: Load) -> f64 {
        match load {
            Load::Rate(mbps) => f64::from(mbps) * 1e6,
            Load::Share(percent) => self.common_rate().unwrap_or(0.0) * f64::from(percent) / 100.0,
        }
    }

    /// Bits per second that a kind of traffic carries without a limit, with nothing beside it.
    fn unlimited(&self, c: &mut Campaign, owner: &Owner, traffic: Traffic<'_>) -> Result<f64, LabError> {
        let Some(dut) = traffic.dut() else { return Ok(f64::INFINITY) };
        let name = traffic.name();
        c.says(&format!("the highest rate of {name}"))?;
        let mut stage = Stage::start(owner, HostToHost::build(owner, INNER_MTU, None)?, dut)?;
        let mut flow = self.flow(&stage, traffic, None)?;
        let client = stage.topology.paths()[0].from.netns;
        flow.begun(client)?;
        interrupt::pause(self.window / 4)?;
        let (start, before) = (clock::now(), flow.received(client));
        interrupt::pause(self.window)?;
        // On a busy machine nothing may arrive in a short window.
        interrupt::wait_until(START_TIMEOUT, || Ok(flow.received(client) > before))?;
        let bytes = flow.received(client) - before;
        let rate = bytes as f64 * 8.0 / (clock::now() - start).as_secs_f64();
        stage.alive()?;
        flow.finish(|| stage.alive())?;
        stage.stop(c);
        if bytes == 0 {
            return Err(LabError::Measurement(format!(
                "{name} carried nothing while its highest rate was measured"
            )));
        }
        Ok(rate)
    }

    /// Starts the traffic on a stage, at `rate` bits per second or without a limit.
    fn flow(
        &self,
        stage: &Stage<HostToHost>,
        traffic: Traffic<'_>,
        rate: Option<f64>,
    ) -> Result<Flow, LabError> {
        let Traffic::App(app, _) = traffic else {
            let load = TtcpLoad { connections: 1, write: 65_536, nodelay: false, rate };
            return Ttcp::start(&stage.topology.paths(), load).map(Flow::Tcp);
        };
        let path = stage.topology.paths()[0];
        let (files, journal) = (stage.dir().join("files"), stage.topology.journal());
        fs::create_dir(&files).map_err(LabError::io(format!("creating {}", files.display())))?;
        let file = files.join("file");
        // A file of holes takes no room, and encrypts like any other. Much longer than it can be
        // needed, also on a busy machine.
        let seconds = self.window.as_secs_f64() * 20.0 + 60.0;
        let size = (rate.unwrap_or(BEYOND) / 8.0 * seconds).min(LARGEST);
        fs::File::create(&file)
            .and_then(|f| f.set_len(size as u64))
            .map_err(LabError::io(format!("creating {}", file.display())))?;
        let server = Server::start(app, path.to, &files, &stage.dir().join(app.name()), journal)?;
        let argv = server.fetch(&path, &file, Path::new("/dev/null"), rate.map(|rate| rate as u64));
        let client = Process::start(journal, app.name(), &argv, &stage.dir().join("client.log"))?;
        Ok(Flow::App { server, client })
    }

    /// The sieve, then the soaker, beside the traffic.
    fn one(
        &self,
        c: &mut Campaign,
        owner: &Owner,
        (load, traffic): (Load, Traffic<'_>),
        repeat: u32,
    ) -> Result<(), LabError> {
        let (name, rate) = (traffic.name(), self.rate(load));
        c.says(&format!("beside {name}, {}", load.name()))?;
        let began = c.elapsed();
        let mut stage = match traffic.dut() {
            Some(dut) => Some(Stage::start(owner, HostToHost::build(owner, INNER_MTU, None)?, dut)?),
            None => None,
        };
        let mut flow = stage.as_ref().map(|s| self.flow(s, traffic, Some(rate))).transpose()?;
        let client = stage.as_ref().map(|s| s.topology.paths()[0].from.netns);
        if let Some((flow, client)) = flow.as_mut().zip(client) {
            flow.begun(client)?;
        }
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
        let highest = self.highest.iter().find(|(of, _)| *of == name).map_or(f64::NAN, |(_, rate)| *rate);
        let offered = if traffic.dut().is_some() { rate / 1e6 } else { f64::NAN };
        let measures = [
            ("sieve_s", sieve),
            ("soaker_left", self.calibration.left(from, to)),
            ("kernel_left", left as f64 / ticks.total() as f64),
            ("mbps", mbps(bytes, Soaker::seconds(from, to))),
            ("sieve_mbps", mbps(sieve_bytes, sieve)),
            ("rate_mbps", offered),
            ("highest_mbps", highest / 1e6),
        ];
        c.sample(factors([("load", &load.name()), ("traffic", &name)]), repeat, began, &measures, vec![]);
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
        // No traffic, two systems, and programs: one in the shortest run.
        let (ms, start) = (Duration::from_millis, Duration::from_millis(900));
        for (common, window, traffic, time) in [
            (common(true, false), ms(500), 3 + APPS.len(), budget::QUICK),
            (common(false, true), ms(100), 4, budget::SMOKE),
        ] {
            let loads = loads(&BackgroundOptions { common: common.clone(), ..Default::default() });
            let cells = traffic * loads.expect("loads").len();
            let repeats = fitting(&common, window, cells, traffic - 1);
            let whole = window * 5 / 2
                + (window * 5 / 4 + start) * (traffic - 1) as u32
                + (window * 4 + start) * repeats * cells as u32;
            assert!(whole <= time, "{repeats} repeats: {whole:?}");
        }
        assert_eq!(fitting(&common(false, false), ms(4000), 21, 6), 3);
    }

    #[test]
    fn loads_are_shares_of_the_highest_common_rate_or_fixed_rates() {
        let of = |rates_mbps: &[u32], shares: &[u32]| {
            let (rates_mbps, shares) = (rates_mbps.to_vec(), shares.to_vec());
            loads(&BackgroundOptions { rates_mbps, shares, ..BackgroundOptions::default() })
        };
        assert_eq!(of(&[], &[]).expect("loads"), SHARES.map(Load::Share));
        assert_eq!(of(&[], &[5, 5]).expect("loads"), [Load::Share(5)]);
        assert_eq!(of(&[200, 7], &[]).expect("loads"), [Load::Rate(200), Load::Rate(7)]);
        for bad in [of(&[0], &[]), of(&[], &[0]), of(&[], &[101]), of(&[5], &[5])] {
            assert!(matches!(bad, Err(LabError::Usage(_))));
        }
        let highest = vec![("plain".to_string(), 9e9), ("sftp".into(), 2e9), ("https".into(), 3e9)];
        let seconds = Duration::from_secs;
        let calibration = Calibration { rate: 1.0, had: 1.0, worst: 1.0 };
        let plan = Plan { highest, window: seconds(1), rounds: 1, sieve: 1.0, calibration };
        assert_eq!((plan.rate(Load::Share(100)), plan.rate(Load::Share(10))), (2e9, 2e8));
        assert_eq!(plan.rate(Load::Rate(200)), 2e8);
    }
}
