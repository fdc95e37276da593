//! Experiment E6's flood, `lab flood`: packets of one size at a rate that nobody asks permission
//! for. For each system the throughput at bounded losses, by a search whose trials are interleaved
//! with those of the other systems; then the curve past it, where a gateway shows whether it still
//! works when more arrives than it can carry, and where every packet that did not arrive was
//! dropped. After the RFC 2544 figures of Freescale's study (throughput at loss, and flood).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `trial` | one trial, and what the trials of a system say together |
//! | `conclude` | samples, tables and plots of a run |
//! | `doubts` | doubts that a reader of a run should have |

mod conclude;
mod doubts;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::alone::{self, Alone};
use super::campaign::{Campaign, Common, Report, useful};
use super::line::{choose_duts, once};
use super::placement::{Placement, Spread};
use super::rig::Rig;
use super::throughput::Carrier;
use crate::dut::{Dut, DutOptions, Encap};
use crate::error::LabError;
use crate::load::Offer;
use crate::load::frame;
use crate::machine;
use crate::measure::search::{Goal, Search, Step};
use crate::process;
use crate::report::{self, Warning};
use crate::topology::{Line, Mode, Owner};

use trial::{Load, Purpose, Series, Trial};

/// Options of the experiment. The lists multiply.
#[derive(Debug, Clone)]
pub struct FloodOptions {
    /// Systems by name ([`crate::dut::NAMES`]), or `all` for those installed.
    pub duts: Vec<String>,
    /// Encapsulations for the systems that have the choice.
    pub encaps: Vec<Encap>,
    /// Algorithms and programs of the systems.
    pub dut_options: DutOptions,
    /// Bytes of UDP payload.
    pub payloads: Vec<u32>,
    /// Numbers of flows.
    pub flows: Vec<u32>,
    /// Which processors the parts have.
    pub placements: Vec<Spread>,
    /// Forms in which packets cross the links.
    pub modes: Vec<Mode>,
    /// Largest shares of packets that may be lost; the curve is drawn past the throughput of the
    /// first.
    pub goals: Vec<f64>,
    /// A throughput is known to within this share of itself.
    pub width: f64,
    /// Packets of a deciding trial.
    pub packets: u64,
    /// Length of a short trial.
    pub probe: Duration,
    /// Multiples of the throughput to offer.
    pub multiples: Vec<f64>,
    /// Trials at each multiple.
    pub repeats: u32,
    /// MTU of the hosts' routes, bytes.
    pub inner_mtu: u32,
    /// Folder for the run; a new one under /var/tmp/ironswan when absent.
    pub out: Option<PathBuf>,
    /// Fewer packets, wider steps, one repeat; of the usual payloads, flows and losses the first: a
    /// minute.
    pub quick: bool,
    /// The same in ten seconds: shows that everything works, says nothing about speed.
    pub smoke: bool,
    /// A CPU soaker runs beside the traffic, and says what it left of the processors.
    pub soaker: bool,
    /// The command line, for the record.
    pub command_line: Vec<String>,
}

impl Default for FloodOptions {
    fn default() -> Self {
        Self {
            duts: vec!["plain".into(), "ironswan".into()],
            encaps: vec![Encap::Udp],
            dut_options: DutOptions::default(),
            payloads: vec![18, 1300],
            flows: vec![1, 1000],
            placements: vec![Spread::Free],
            modes: vec![Mode::Offload],
            goals: vec![0.005, 0.000_01],
            width: 0.05,
            packets: 1_000_000,
            probe: Duration::from_millis(1000),
            multiples: vec![1.0, 2.0, 4.0],
            repeats: 3,
            inner_mtu: 1400,
            out: None,
            quick: false,
            smoke: false,
            soaker: false,
            command_line: process::own_command_line(),
        }
    }
}

/// Longest deciding trial; a slow system is decided by fewer packets than asked for, which the
/// record shows.
const AT_MOST: Duration = Duration::from_secs(60);
/// The same for `quick` and `smoke`.
const AT_MOST_QUICK: Duration = Duration::from_secs(8);
/// Most trials of one search.
const TRIALS: u32 = 24;
/// The same for `smoke`.
const TRIALS_SMOKE: u32 = 4;
/// From one trial to the next: the way has to be quiet.
const PAUSE: Duration = Duration::from_millis(400);

/// Makes the experiment.
pub fn flood(mut options: FloodOptions) -> Result<Report, LabError> {
    options.shorten();
    options.check()?;
    let mut lacks = machine::lacks_privilege();
    let ethtool = options.modes.contains(&Mode::Wire) || options.placements.contains(&Spread::OwnCoreThreads);
    lacks.extend(Line::lacks(if ethtool { Mode::Wire } else { Mode::Offload }));
    let (duts, missing, warnings) = choose_duts(&options.duts, &options.encaps, &options.dut_options)?;
    lacks.extend(missing);
    if !lacks.is_empty() {
        once(&mut lacks);
        return Err(LabError::Unfit(lacks));
    }
    let loads = options.loads();
    let guess = options.guess(duts.len()) / (loads.len() * duts.len()).max(1) as u32;
    let steps = loads.len() * duts.len();
    let mut campaign = Campaign::begin(conclude::ABOUT, &options.common(), steps, guess)?;
    warnings.into_iter().for_each(|doubt| campaign.doubt(doubt));
    campaign.settings.extend(options.settings(&duts));
    campaign.versions = duts.iter().filter_map(|d| Some((d.name(), d.version()?))).collect();
    campaign.systems = duts.iter().map(|d| d.name()).collect();
    let owner = Owner::claim()?;
    let mut work = Work { options: &options, owner: &owner, duts, campaign, trials: Vec::new() };
    for load in loads {
        work.load(load)?;
    }
    let Work { trials, mut campaign, .. } = work;
    doubts::raise(&options, &trials, &mut campaign);
    campaign.finish(conclude::conclude)
}

struct Work<'a> {
    options: &'a FloodOptions,
    owner: &'a Owner,
    duts: Vec<Box<dyn Dut>>,
    campaign: Campaign,
    trials: Vec<Trial>,
}

impl Work<'_> {
    /// All systems under one load, each on a line of its own; trials go round.
    fn load(&mut self, load: Load) -> Result<(), LabError> {
        let o = self.options;
        let first = self.trials.len();
        let placement = Placement::new(load.placement, crate::measure::cpus()).map_err(LabError::Usage)?;
        self.says(load, "starting")?;
        let mut rigs = Vec::new();
        for dut in &self.duts {
            let mut rig = Rig::start(self.owner, dut.as_ref(), load.mode, o.inner_mtu, &placement)?;
            rig.soak = self.campaign.soak().cloned();
            rigs.push(rig);
        }
        self.says(load, &format!("starting {}", alone::NAME))?;
        let mut tester = Alone::start(self.owner, load.mode, o.inner_mtu, &placement, 0)?;
        let (throughput, begin) = self.searched(load, &mut tester, &mut rigs)?;
        for _ in 0..o.repeats {
            for &multiple in &o.multiples {
                for ((rig, known), forwarded) in rigs.iter_mut().zip(&throughput).zip(&begin) {
                    self.says(load, &format!("{}, {multiple} times the throughput", rig.name()))?;
                    // Without a throughput, what came through the flood stands for it.
                    let rate = known.unwrap_or(*forwarded).max(1.0) * multiple;
                    let at_most = o.probe * 2;
                    let offer = Offer { rate: Some(rate), packets: u64::MAX, at_most };
                    self.trial(rig, load, offer, |t| {
                        t.purpose = Purpose::Curve;
                        t.multiple = Some(multiple);
                    })?;
                }
            }
        }
        self.campaign.ran([format!("# {load}: {}", alone::NAME)].into_iter().chain(tester.commands()));
        for rig in rigs {
            let name = rig.name().to_string();
            let (killed, commands) = rig.stop();
            self.campaign.ran([format!("# {load}: {name}")].into_iter().chain(commands));
            if !killed.is_empty() {
                self.campaign.doubt(Warning::Killed { dut: name, processes: killed });
            }
        }
        let all = Series::of(&self.trials[first..]);
        for series in &all {
            let file = self.campaign.keep(&series.file(), series.lines()?.as_bytes())?;
            let tester = Series::tester(&all, load);
            for (factors, repeat, began, measures) in conclude::samples(series, tester, &o.goals, o.width) {
                self.campaign.sample(factors, repeat, began, &measures, vec![file.clone()]);
            }
        }
        Ok(())
    }

    /// Floods the tester alone and all systems, and searches their throughput for every loss. Of
    /// each system: the throughput for the first loss, and what came through the flood, packets a
    /// second.
    fn searched(
        &mut self,
        load: Load,
        tester: &mut Alone,
        rigs: &mut [Rig],
    ) -> Result<(Vec<Option<f64>>, Vec<f64>), LabError> {
        let o = self.options;
        let mut all: Vec<&mut dyn Carrier> = vec![tester];
        all.extend(rigs.iter_mut().map(|rig| rig as &mut dyn Carrier));
        let mut begin = Vec::new();
        for carrier in &mut all {
            self.says(load, &format!("{}, flood", carrier.name()))?;
            let offer = Offer { rate: None, packets: u64::MAX, at_most: o.probe };
            let t = self.trial(*carrier, load, offer, |t| t.purpose = Purpose::Flood)?;
            begin.push((t.forwarded_pps, t.sent_pps()));
        }
        let mut throughput = vec![None; all.len()];
        // In a short run there is no time for the tester's own search unless a ratio depends on it.
        let unsearched = usize::from(!o.searches_tester(&self.duts));
        for (nth, &loss) in o.goals.iter().enumerate() {
            let goal = Goal { loss, width: o.width, packets: o.packets, trials: o.trials() };
            let mut searches: Vec<Search> = begin
                .iter()
                .zip(&throughput)
                .map(|((guess, limit), known)| Search::new(goal, known.unwrap_or(*guess), *limit))
                .collect();
            self.search(load, goal, &mut all[unsearched..], &mut searches[unsearched..])?;
            if nth == 0 {
                // The throughput, of which the curve takes multiples.
                for (search, known) in searches.iter().zip(&mut throughput).skip(unsearched) {
                    *known = if let Step::Done(pps) = search.step() { pps } else { None };
                }
            }
        }
        let forwarded = begin.into_iter().map(|(forwarded, _)| forwarded);
        Ok((throughput.split_off(1), forwarded.skip(1).collect()))
    }

    fn says(&self, load: Load, what: &str) -> Result<(), LabError> {
        self.campaign.says(&format!("{load}: {what}"))
    }

    fn search(
        &mut self,
        load: Load,
        goal: Goal,
        carriers: &mut [&mut dyn Carrier],
        searches: &mut [Search],
    ) -> Result<(), LabError> {
        let mut going = true;
        while going {
            going = false;
            for (carrier, search) in carriers.iter_mut().zip(searches.iter_mut()) {
                let (rate, packets, at_most, purpose) = match search.step() {
                    Step::Probe(rate) => (rate, u64::MAX, self.options.probe, Purpose::Probe),
                    Step::Decide(rate) => (rate, goal.packets, self.options.at_most(), Purpose::Decide),
                    Step::Done(_) => continue,
                };
                going = true;
                let name = carrier.name();
                let what = format!("{name}, loss <= {}: {:.0} kpps", report::percent(goal.loss), rate / 1e3);
                self.says(load, &what)?;
                let offer = Offer { rate: Some(rate), packets, at_most };
                let t =
                    self.trial(*carrier, load, offer, |t| (t.purpose, t.goal) = (purpose, Some(goal.loss)))?;
                search.tell(t.loss);
            }
        }
        Ok(())
    }

    fn trial(
        &mut self,
        carrier: &mut dyn Carrier,
        load: Load,
        offer: Offer,
        label: impl FnOnce(&mut Trial),
    ) -> Result<Trial, LabError> {
        let began = self.campaign.elapsed();
        let mut trial = Trial::make(carrier, load, offer)?;
        trial.began = began;
        label(&mut trial);
        self.trials.push(trial.clone());
        Ok(trial)
    }
}

impl FloodOptions {
    /// Options that all experiments have.
    fn common(&self) -> Common {
        Common {
            duts: self.duts.clone(),
            encaps: self.encaps.clone(),
            dut_options: self.dut_options.clone(),
            duration: None,
            repeats: Some(self.repeats),
            out: self.out.clone(),
            quick: self.quick,
            smoke: self.smoke,
            soaker: self.soaker,
            congestion: None,
            command_line: self.command_line.clone(),
        }
    }

    /// The options as settings of the run.
    fn settings(&self, duts: &[Box<dyn Dut>]) -> BTreeMap<String, String> {
        let systems: Vec<String> = duts.iter().map(|d| d.name()).collect();
        let losses: Vec<String> = self.goals.iter().map(|goal| report::percent(*goal)).collect();
        let multiples: Vec<String> = self.multiples.iter().map(ToString::to_string).collect();
        BTreeMap::from([
            ("systems".into(), systems.join(", ")),
            ("ESP proposal".into(), self.dut_options.esp()),
            ("losses allowed".into(), losses.join(", ")),
            ("width of a result".into(), report::percent(self.width)),
            ("packets of a deciding trial".into(), self.packets.to_string()),
            ("short trial, s".into(), self.probe.as_secs_f64().to_string()),
            ("multiples of the throughput".into(), multiples.join(", ")),
            ("trials at each multiple".into(), self.repeats.to_string()),
            ("inner MTU, bytes".into(), self.inner_mtu.to_string()),
        ])
    }

    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for &placement in &self.placements {
            for &mode in &self.modes {
                for &payload in &self.payloads {
                    for &flows in &self.flows {
                        loads.push(Load { placement, mode, payload, flows });
                    }
                }
            }
        }
        loads
    }

    /// About how long the whole run takes.
    fn guess(&self, duts: usize) -> Duration {
        // A search is about nine short trials and two deciding ones; 100,000 packets a second is a
        // fair system.
        let decide = Duration::from_secs_f64(self.packets as f64 / 1e5).min(self.at_most());
        let search = (self.probe + PAUSE) * 9.min(self.trials() - 2) + (decide + PAUSE) * 2;
        let curve = (self.probe * 2 + PAUSE) * self.multiples.len() as u32 * self.repeats;
        let searches = search * self.goals.len() as u32;
        let system = Duration::from_millis(1100) + self.probe + searches + curve;
        // The tester alone has no curve.
        let alone = Duration::from_millis(200) + self.probe + PAUSE;
        let alone = if self.smoke { alone } else { alone + searches };
        (system * duts as u32 + alone) * self.loads().len() as u32
    }

    /// Whether the throughput of the tester alone is searched; otherwise it is flooded only.
    fn searches_tester(&self, duts: &[Box<dyn Dut>]) -> bool {
        let compared = duts.len() > 1 && duts.iter().any(|dut| dut.name() == conclude::PLAIN);
        !self.smoke && (compared || !self.quick)
    }

    fn at_most(&self) -> Duration {
        if self.quick || self.smoke { AT_MOST_QUICK } else { AT_MOST }
    }

    fn trials(&self) -> u32 {
        if self.smoke { TRIALS_SMOKE } else { TRIALS }
    }

    fn shorten(&mut self) {
        if self.smoke || self.quick {
            // A list that the user has set stays. A list with its default is cut to one load and
            // one goal.
            let usual = Self::default();
            let one = |list: &mut Vec<u32>, usual: &[u32]| {
                if list == usual {
                    list.truncate(1);
                }
            };
            one(&mut self.payloads, &usual.payloads);
            one(&mut self.flows, &usual.flows);
            if self.goals == usual.goals {
                self.goals.truncate(1);
            }
        }
        if self.smoke {
            (self.packets, self.repeats, self.width) = (5_000, 1, 0.3);
            self.probe = Duration::from_millis(100);
            if self.multiples == Self::default().multiples {
                self.multiples = vec![1.0, 4.0];
            }
        } else if self.quick {
            (self.packets, self.repeats, self.width) = (self.packets.min(100_000), 1, self.width.max(0.1));
            self.probe = self.probe.min(Duration::from_millis(500));
        }
    }

    fn check(&mut self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if self.duts.is_empty() || self.loads().is_empty() || self.goals.is_empty() || self.encaps.is_empty()
        {
            return wrong("nothing to measure: name a system, a payload, a number of flows and a loss");
        }
        let largest = self.inner_mtu.saturating_sub(28).min(frame::MAX_PAYLOAD as u32);
        if self.payloads.iter().any(|p| !(frame::MIN_PAYLOAD as u32..=largest).contains(p)) {
            return Err(LabError::Usage(format!(
                "a payload must be between {} and {largest} bytes: the marks of a packet, and what fits the inner MTU",
                frame::MIN_PAYLOAD
            )));
        }
        if self.flows.iter().any(|f| !(1..=1_000_000).contains(f)) {
            return wrong("the number of flows must be between 1 and 1,000,000");
        }
        if self.goals.iter().any(|g| !(0.0..0.5).contains(g)) {
            return wrong("a loss must be a share of at least 0 and below 0.5");
        }
        if self.multiples.iter().any(|m| !(0.01..=100.0).contains(m)) {
            return wrong("a multiple must be between 0.01 and 100");
        }
        useful("--probe", self.probe, 0.01..=600.0)?;
        if !(1000..=100_000_000).contains(&self.packets) || !(1..=1000).contains(&self.repeats) {
            return wrong(
                "a deciding trial has 1,000 to 100,000,000 packets, and there are 1 to 1,000 repeats",
            );
        }
        if !(576..=1500).contains(&self.inner_mtu) || !(0.001..=0.5).contains(&self.width) {
            return wrong("the inner MTU is 576 to 1500 bytes, the width of a result 0.001 to 0.5");
        }
        once(&mut self.duts);
        once(&mut self.encaps);
        once(&mut self.payloads);
        once(&mut self.flows);
        once(&mut self.placements);
        once(&mut self.modes);
        once(&mut self.goals);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_short_and_keep_what_was_asked_for() {
        let of = |quick, smoke| {
            let mut o = FloodOptions { quick, smoke, ..FloodOptions::default() };
            o.shorten();
            o
        };
        let (quick, smoke) = (of(true, false), of(false, true));
        assert!(quick.guess(2) <= Duration::from_secs(60), "{:?}", quick.guess(2));
        assert!(smoke.guess(2) <= Duration::from_secs(10), "{:?}", smoke.guess(2));
        assert_eq!((quick.loads().len(), quick.goals.len(), smoke.loads().len()), (1, 1, 1));
        let mut asked = FloodOptions { quick: true, payloads: vec![64, 512], ..FloodOptions::default() };
        asked.shorten();
        assert_eq!(asked.payloads, [64, 512]);
        assert_eq!(of(false, false).loads().len(), 4);
    }
}
