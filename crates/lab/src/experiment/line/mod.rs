//! Experiment E1, `lab line`: TCP across four boxes in a line, with and without a tunnel between
//! the inner two, after Metheringham's measurements for FreeS/WAN (2001). Systems are interleaved
//! (A B A B), every trial gets fresh boxes, figures are medians, and costs are compared with plain
//! forwarding of the same run only.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `trial` | one trial |
//! | `conclude` | tables, plots and history of a run |
//! | `doubts` | doubts that a reader of a run should have |

mod conclude;
mod doubts;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::campaign::{About, Campaign, Common, Report, useful};
use crate::dut::{self, Dut, DutOptions, Encap};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::load::{Direction, Iperf3};
use crate::machine;
use crate::process;
use crate::report::Warning;
use crate::topology::{Congestion, Line, Mode, Owner};

use trial::Trial;
pub(super) use trial::{Load, TrialPlan};

/// Options of the experiment. The lists multiply: every system is measured in every mode with every
/// number of streams.
#[derive(Debug, Clone)]
pub struct LineOptions {
    /// Systems by name ([`dut::NAMES`]), or `all` for those installed.
    pub duts: Vec<String>,
    /// Encapsulations for the systems that have the choice.
    pub encaps: Vec<Encap>,
    /// Algorithms and programs of the systems.
    pub dut_options: DutOptions,
    /// Length of a measuring window.
    pub duration: Duration,
    /// Trials of each system in each cell.
    pub repeats: u32,
    /// Numbers of TCP connections.
    pub streams: Vec<u32>,
    /// Rates to offer, 10^6 bits per second over all connections; `None` is as much as they take. A
    /// rate is offered to the first number of streams in the first direction only: a cost at a
    /// fixed rate is not one at full speed.
    pub rates_mbps: Vec<Option<u32>>,
    /// Forms in which packets cross the links.
    pub modes: Vec<Mode>,
    /// Which ways the payload flows.
    pub directions: Vec<Direction>,
    /// MTU of the hosts' routes, bytes.
    pub inner_mtu: u32,
    /// Folder for the run; a new one under /var/tmp/ironswan when absent.
    pub out: Option<PathBuf>,
    /// Shorter windows and fewer repeats, so that it takes a minute at most.
    pub quick: bool,
    /// One window of a second each: shows that everything works, says nothing about speed.
    pub smoke: bool,
    /// A CPU soaker runs beside the traffic, and says what it left of the processors.
    pub soaker: bool,
    /// Congestion control of the boxes' TCP.
    pub congestion: Congestion,
    /// The command line, for the record.
    pub command_line: Vec<String>,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self {
            duts: vec!["plain".into(), "ironswan".into()],
            encaps: vec![Encap::Udp],
            dut_options: DutOptions::default(),
            duration: Duration::from_secs(4),
            repeats: 5,
            streams: vec![1],
            rates_mbps: vec![None],
            modes: vec![Mode::Offload],
            directions: vec![Direction::Forward],
            inner_mtu: 1400,
            out: None,
            quick: false,
            smoke: false,
            soaker: false,
            congestion: Congestion::default(),
            command_line: process::own_command_line(),
        }
    }
}

/// Makes the experiment.
pub fn line(options: LineOptions) -> Result<Report, LabError> {
    let prepared = Prepared::new(options, "line")?;
    let owner = prepared.claim()?;
    prepared.measure(&owner)
}

/// Options that have been checked against each other and against the machine.
pub(super) struct Prepared {
    options: LineOptions,
    experiment: &'static str,
    duts: Vec<Box<dyn Dut>>,
    warnings: Vec<Warning>,
}

impl Prepared {
    /// Checks the options, then the machine; every lack is reported at once.
    pub(super) fn new(mut options: LineOptions, experiment: &'static str) -> Result<Self, LabError> {
        options.check()?;
        options.congestion.check()?;
        let mut lacks = machine::lacks_privilege();
        let wire = options.modes.contains(&Mode::Wire);
        lacks.extend(Line::lacks(if wire { Mode::Wire } else { Mode::Offload }));
        lacks.extend(Iperf3::lacks());
        let mut prepared = Self { options, experiment, duts: Vec::new(), warnings: Vec::new() };
        let o = &prepared.options;
        let (duts, missing, warnings) = choose_duts(&o.duts, &o.encaps, &o.dut_options)?;
        (prepared.duts, prepared.warnings) = (duts, warnings);
        lacks.extend(missing);
        if !lacks.is_empty() {
            once(&mut lacks);
            return Err(LabError::Unfit(lacks));
        }
        prepared.options.shorten(prepared.duts.len());
        Ok(prepared)
    }

    /// Listens for signals, removes what dead runs left, takes a name.
    pub(super) fn claim(&self) -> Result<Owner, LabError> {
        interrupt::install()?;
        interrupt::check()?;
        Owner::claim_for_tcp(&self.options.congestion)
    }

    /// Measures under the name of `owner` and writes the run's folder.
    pub(super) fn measure(self, owner: &Owner) -> Result<Report, LabError> {
        let o = &self.options;
        let loads = o.loads();
        let steps = o.repeats as usize * loads.len() * self.duts.len();
        let about = About { name: self.experiment, ..conclude::ABOUT };
        let mut campaign = Campaign::begin(about, &o.common(), steps, TrialPlan::guess(o.duration))?;
        campaign.settings.extend(self.settings());
        campaign.versions = self.versions();
        self.warnings.iter().for_each(|doubt| campaign.doubt(doubt.clone()));
        let mut trials: Vec<Trial> = Vec::new();
        for repeat in 0..o.repeats {
            for &load in &loads {
                for dut in &self.duts {
                    let plan = TrialPlan {
                        owner,
                        dut: dut.as_ref(),
                        load,
                        repeat,
                        inner_mtu: o.inner_mtu,
                        duration: o.duration,
                    };
                    let (trial, commands) = plan.run(&mut campaign)?;
                    if !trials.iter().any(|t| t.dut == trial.dut) {
                        campaign.ran([format!("# {}, {load}", trial.dut)]);
                        campaign.ran(commands);
                    }
                    trials.push(trial);
                }
            }
        }
        doubts::raise(o, &trials, &mut campaign);
        campaign.finish(conclude::conclude)
    }

    /// The options as settings of the run.
    fn settings(&self) -> BTreeMap<String, String> {
        let o = &self.options;
        let systems: Vec<String> = self.duts.iter().map(|d| d.name()).collect();
        BTreeMap::from([
            ("systems".into(), systems.join(", ")),
            ("ESP proposal".into(), o.dut_options.esp()),
            ("IKE proposal".into(), o.dut_options.ike()),
            ("window, s".into(), o.duration.as_secs_f64().to_string()),
            ("repeats".into(), o.repeats.to_string()),
            ("inner MTU, bytes".into(), o.inner_mtu.to_string()),
            (Congestion::SETTING.into(), o.congestion.to_string()),
        ])
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let mut versions: BTreeMap<String, String> =
            self.duts.iter().filter_map(|d| Some((d.name(), d.version()?))).collect();
        versions.extend(Iperf3::version().map(|v| ("iperf3".to_string(), v)));
        versions
    }

    /// The systems that will be measured.
    pub(super) fn duts(&self) -> &[Box<dyn Dut>] {
        &self.duts
    }

    /// The options in force.
    pub(super) fn options(&self) -> &LineOptions {
        &self.options
    }
}

/// Systems that can be measured, what those asked for by name lack, and what is said of those left
/// out of `all`.
type Chosen = (Vec<Box<dyn Dut>>, Vec<Remedy>, Vec<Warning>);

/// The systems of these names.
pub(super) fn choose_duts(
    names: &[String],
    encaps: &[Encap],
    options: &DutOptions,
) -> Result<Chosen, LabError> {
    let dut::There { duts, absent } = dut::there(names, encaps, options)?;
    if !names.iter().any(|name| name == "all") {
        return Ok((duts, absent.into_iter().map(|(_, lack)| lack).collect(), Vec::new()));
    }
    let warning = |(dut, r): (String, Remedy)| Warning::NotInstalled { dut, lack: r.lack, action: r.action };
    Ok((duts, Vec::new(), absent.into_iter().map(warning).collect()))
}

impl LineOptions {
    /// Options that all experiments have.
    fn common(&self) -> Common {
        Common {
            duts: self.duts.clone(),
            encaps: self.encaps.clone(),
            dut_options: self.dut_options.clone(),
            duration: Some(self.duration),
            repeats: Some(self.repeats),
            out: self.out.clone(),
            quick: self.quick,
            smoke: self.smoke,
            soaker: self.soaker,
            congestion: Some(self.congestion.clone()),
            command_line: self.command_line.clone(),
        }
    }

    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for &mode in &self.modes {
            for (d, &direction) in self.directions.iter().enumerate() {
                for (s, &streams) in self.streams.iter().enumerate() {
                    for &rate_mbps in self.rates_mbps.iter().filter(|r| r.is_none() || (d, s) == (0, 0)) {
                        loads.push(Load { mode, streams, direction, rate_mbps });
                    }
                }
            }
        }
        loads
    }

    fn check(&mut self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if self.duts.is_empty() || self.encaps.is_empty() || self.loads().is_empty() {
            return wrong(
                "nothing to measure: name a system, an encapsulation, a mode and a number of streams",
            );
        }
        if self.repeats == 0 || self.repeats > 1000 {
            return wrong("the number of repeats must be between 1 and 1000");
        }
        if self.streams.iter().any(|s| !(1..=128).contains(s)) {
            return wrong("the number of streams must be between 1 and 128, which is the most iperf3 does");
        }
        if self.rates_mbps.iter().flatten().any(|r| !(1..=1_000_000).contains(r)) {
            return wrong("a rate must be between 1 Mb/s and 1,000,000 Mb/s");
        }
        useful("--duration", self.duration, 0.5..=3600.0)?;
        if !(576..=1500).contains(&self.inner_mtu) {
            return wrong("the inner MTU must be between 576 and 1500 bytes");
        }
        once(&mut self.duts);
        once(&mut self.encaps);
        once(&mut self.streams);
        once(&mut self.modes);
        once(&mut self.directions);
        once(&mut self.rates_mbps);
        Ok(())
    }

    /// Applies `quick` and `smoke` to a run of `duts` systems.
    fn shorten(&mut self, duts: usize) {
        if self.smoke {
            (self.duration, self.repeats) = (Duration::from_secs(1), 1);
        } else if self.quick {
            let round = duts * self.loads().len();
            let total = |repeats: u32, seconds: u64| {
                TrialPlan::guess(Duration::from_secs(seconds))
                    * repeats
                    * u32::try_from(round).unwrap_or(u32::MAX)
            };
            let choices = [(5, 3), (5, 2), (3, 2), (2, 2), (2, 1)];
            let fits = choices.into_iter().find(|(r, s)| total(*r, *s) <= Duration::from_secs(55));
            let (repeats, seconds) = fits.unwrap_or((1, 1));
            self.repeats = self.repeats.min(repeats);
            self.duration = self.duration.min(Duration::from_secs(seconds));
        }
    }
}

/// Removes later copies of equal items, so that each is measured once.
pub(super) fn once<T: PartialEq>(list: &mut Vec<T>) {
    let all = std::mem::take(list);
    all.into_iter().for_each(|item| {
        if !list.contains(&item) {
            list.push(item);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_takes_a_minute_at_most_for_as_many_systems_as_there_are() {
        for duts in 1..=5 {
            let mut o = LineOptions { quick: true, ..LineOptions::default() };
            o.shorten(duts);
            let total = TrialPlan::guess(o.duration) * o.repeats * u32::try_from(duts).expect("few");
            assert!(total <= Duration::from_secs(60), "{duts} systems: {total:?}");
            assert!(o.repeats >= 2, "{duts} systems: {} repeats", o.repeats);
        }
    }

    #[test]
    fn quick_never_lengthens_what_was_asked_for() {
        let mut o = LineOptions {
            quick: true,
            repeats: 1,
            duration: Duration::from_secs(1),
            ..LineOptions::default()
        };
        o.shorten(2);
        assert_eq!((o.repeats, o.duration), (1, Duration::from_secs(1)));
    }

    #[test]
    fn fixed_rates_are_offered_once_and_everything_else_in_every_combination() {
        let o = LineOptions {
            streams: vec![1, 4],
            directions: vec![Direction::Forward, Direction::Both],
            rates_mbps: vec![None, Some(500), Some(1000)],
            modes: vec![Mode::Offload, Mode::Wire],
            ..LineOptions::default()
        };
        let loads = o.loads();
        assert_eq!(loads.len(), 2 * (2 * 2 + 2));
        assert!(
            loads
                .iter()
                .filter(|c| c.rate_mbps.is_some())
                .all(|c| (c.streams, c.direction) == (1, Direction::Forward))
        );
    }

    #[test]
    fn what_is_asked_for_twice_is_measured_once() {
        let mut o = LineOptions { streams: vec![1, 4, 1], ..LineOptions::default() };
        o.check().expect("sound options");
        assert_eq!(o.streams, [1, 4]);
    }
}
