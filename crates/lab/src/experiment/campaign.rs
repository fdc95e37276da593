//! The frame around the measurements of every experiment: listens for signals, makes the run's
//! folder, records samples, makes the record of them. A campaign that is dropped before it is
//! finished leaves no folder.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::general_doubts;
use crate::clock::{self, Utc};
use crate::dut::{DutOptions, Encap};
use crate::error::LabError;
use crate::interrupt;
use crate::machine::Fingerprint;
use crate::measure::soaker::Soak;
use crate::measure::{Watch, cost};
use crate::process;
use crate::record::{
    Absent, Baseline, Better, Derived, Factors, Historical, LAB_SCHEMA, Measure, Program, Record, Sample,
    View, figures,
};
use crate::report::{self, Progress, RunFolder, Warning, accounting, confirmed};
use crate::topology::{Congestion, Owner};

/// Options that experiments share; each ignores what does not concern it.
#[derive(Debug, Clone)]
pub struct Common {
    /// Systems by name ([`crate::dut::NAMES`]), or `all` for those installed; the experiment's own
    /// choice when empty.
    pub duts: Vec<String>,
    /// Encapsulations for the systems that have the choice.
    pub encaps: Vec<Encap>,
    /// Algorithms and programs of the systems.
    pub dut_options: DutOptions,
    /// Length of a measurement; the experiment's own choice when absent.
    pub duration: Option<Duration>,
    /// Repeats of each measurement; the experiment's own choice when absent.
    pub repeats: Option<u32>,
    /// Folder for the run; a new one under /var/tmp/ironswan when absent.
    pub out: Option<PathBuf>,
    /// A minute at most.
    pub quick: bool,
    /// Ten seconds at most: shows that everything works, its figures mean nothing.
    pub smoke: bool,
    /// A CPU soaker runs beside the traffic, and says what it left of the processors.
    pub soaker: bool,
    /// Congestion control of the boxes' TCP, for experiments that carry TCP; the usual one when
    /// absent.
    pub congestion: Option<Congestion>,
    /// The command line, for the record.
    pub command_line: Vec<String>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            duts: vec![],
            encaps: vec![Encap::Udp],
            dut_options: DutOptions::default(),
            duration: None,
            repeats: None,
            out: None,
            quick: false,
            smoke: false,
            soaker: false,
            congestion: None,
            command_line: process::own_command_line(),
        }
    }
}

impl Common {
    /// One of three by how thorough the run is: all of it, a minute, a few seconds.
    pub(crate) fn by_care<T>(&self, full: T, quick: T, smoke: T) -> T {
        match (self.smoke, self.quick) {
            (true, _) => smoke,
            (false, true) => quick,
            (false, false) => full,
        }
    }
}

/// A usage error unless a length that was asked for is one that an experiment can use, seconds.
pub(crate) fn useful(option: &str, asked: Duration, range: RangeInclusive<f64>) -> Result<(), LabError> {
    let (asked, least, most) = (asked.as_secs_f64(), range.start(), range.end());
    if range.contains(&asked) {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "{option} {asked}: in this experiment it is a number from {least} to {most}"
    )))
}

/// Description of an experiment: its name, its question, its measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    /// Name on the command line.
    pub name: &'static str,
    /// Number in the list of experiments.
    pub number: &'static str,
    /// The question that the experiment answers, in a sentence.
    pub question: &'static str,
    /// The measures: name, heading, unit, description, which way is good.
    pub measures: &'static [(&'static str, &'static str, &'static str, &'static str, Better)],
    /// With what it compares: factor and value.
    pub baseline: Option<(&'static str, &'static str)>,
}

/// Result of an experiment that has ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The record, as in `run.json`.
    pub record: Record,
    /// The run's folder.
    pub folder: PathBuf,
}

/// Conclusions of an experiment from its samples, for the record.
#[derive(Debug, Default)]
pub(crate) struct Conclusion {
    pub derived: Vec<Derived>,
    pub views: Vec<View>,
    pub history: Vec<Historical>,
}

/// An experiment under way.
#[derive(Debug)]
pub(crate) struct Campaign {
    about: About,
    common: Common,
    folder: Option<RunFolder>,
    progress: Progress,
    machine: Fingerprint,
    watch: Option<Watch>,
    /// Largest shares of the machine that other programs and the host of a virtual machine took
    /// within measurements, where those are known apart from the rest of the run.
    disturbed: Option<(f64, f64)>,
    soak: Option<Arc<Soak>>,
    /// Length of the shortest trials that figures rest on, where an experiment has any.
    shortest: Option<Duration>,
    started: String,
    began: Instant,
    samples: Vec<Sample>,
    warnings: Vec<Warning>,
    commands: Vec<String>,
    /// Systems that are measured, where the samples' factors do not name them.
    pub systems: Vec<String>,
    /// Versions of systems and tools, by name.
    pub versions: BTreeMap<String, String>,
    /// Settings of the run by name, as the caller gave them.
    pub settings: BTreeMap<String, String>,
}

impl Campaign {
    /// Begins one of `steps` measurements of about `guess` each.
    pub(crate) fn begin(
        about: About,
        common: &Common,
        steps: usize,
        guess: Duration,
    ) -> Result<Self, LabError> {
        interrupt::install()?;
        interrupt::check()?;
        common.congestion.iter().try_for_each(Congestion::check)?;
        let folder = RunFolder::create(common.out.as_deref(), about.name)?;
        let mut campaign = Self {
            about,
            common: common.clone(),
            folder: Some(folder),
            progress: Progress::new(steps, guess),
            watch: None,
            disturbed: None,
            soak: None,
            shortest: None,
            machine: Fingerprint::take(),
            started: Utc::from_epoch(clock::since_epoch()).rfc3339(),
            began: clock::now(),
            samples: Vec::new(),
            warnings: Vec::new(),
            commands: Vec::new(),
            systems: Vec::new(),
            versions: BTreeMap::new(),
            settings: BTreeMap::new(),
        };
        if cfg!(debug_assertions) {
            campaign.doubt(Warning::DebugBuild);
        }
        campaign.watch = Some(Watch::begin(&campaign.machine));
        if common.soaker {
            campaign.says("calibrating the soaker")?;
            let soak = Soak::start()?;
            accounting::calibration_doubts(soak.calibration()).into_iter().for_each(|d| campaign.doubt(d));
            campaign.settings.insert("soaker".into(), soak_text(&soak));
            campaign.soak = Some(Arc::new(soak));
        }
        Ok(campaign)
    }

    /// A name for boxes whose TCP counts. Their congestion control is among the settings.
    pub(crate) fn claim_for_tcp(&mut self) -> Result<Owner, LabError> {
        let congestion = self.common.congestion.clone().unwrap_or_default();
        self.settings.insert(Congestion::SETTING.into(), congestion.to_string());
        Owner::claim_for_tcp(&congestion)
    }

    /// The soaker that runs beside all traffic, when one was asked for.
    pub(crate) fn soak(&self) -> Option<&Arc<Soak>> {
        self.soak.as_ref()
    }

    /// Says on the progress bar what is being done, and ends the experiment when a signal has come.
    pub(crate) fn says(&self, what: &str) -> Result<(), LabError> {
        self.progress.says(what);
        interrupt::check()
    }

    /// Since the run began, seconds.
    pub(crate) fn elapsed(&self) -> f64 {
        (clock::now() - self.began).as_secs_f64()
    }

    /// Takes one measurement down; one step of the progress bar.
    pub(crate) fn sample(
        &mut self,
        factors: Factors,
        repeat: u32,
        began: f64,
        measures: &[(&str, f64)],
        files: Vec<String>,
    ) {
        debug_assert!(
            measures.iter().all(|(name, _)| {
                let beside = accounting::is_measure(name) || confirmed::is_measure(name);
                beside || self.about.measures.iter().any(|m| m.0 == *name)
            }),
            "a measure that the experiment does not declare"
        );
        let short = measures.iter().filter(|(_, v)| *v == cost::TOO_SHORT);
        let absent = short.map(|(k, _)| ((*k).to_string(), Absent::TooShort)).collect();
        let measures =
            measures.iter().filter(|(_, v)| v.is_finite()).map(|(k, v)| ((*k).to_string(), *v)).collect();
        self.samples.push(Sample { factors, repeat, began, measures, absent, files });
        self.progress.step();
        if let Some(watch) = &mut self.watch {
            watch.look();
        }
    }

    /// The samples so far.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// A doubt; told once however often it is raised.
    pub(crate) fn doubt(&mut self, warning: Warning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Says which share of the machine other programs had at most within a measurement, and which
    /// share the host of a virtual machine took away. Without it, all of the run counts.
    pub(crate) fn disturbed_by(&mut self, others: f64, stolen: f64) {
        self.disturbed = Some((others, stolen));
    }

    /// Says how long trials are that figures rest on.
    pub(crate) fn trials_last(&mut self, length: Duration) {
        self.shortest = Some(self.shortest.map_or(length, |shortest| shortest.min(length)));
    }

    /// Commands that were run.
    pub(crate) fn ran(&mut self, commands: impl IntoIterator<Item = String>) {
        self.commands.extend(commands);
    }

    /// Keeps a raw file; its name in the record.
    pub(crate) fn keep(&self, name: &str, contents: &[u8]) -> Result<String, LabError> {
        match &self.folder {
            Some(folder) => folder.keep(name, contents),
            None => Err(LabError::Measurement("the run has no folder any more".into())),
        }
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &Fingerprint {
        &self.machine
    }

    /// Ends it: what the machine and the repeats give to doubt is added; `conclude` sees the record
    /// with its figures, and says what follows from them and how they are shown. Writes
    /// `run.json`, the plots and the page.
    pub(crate) fn finish(mut self, conclude: impl FnOnce(&Record) -> Conclusion) -> Result<Report, LabError> {
        let folder = self
            .folder
            .take()
            .ok_or_else(|| LabError::Measurement("the run has no folder any more".into()))?;
        let ticks = format!("are left out where they rest on fewer than {} clock ticks", cost::FEWEST_TICKS);
        self.settings.insert("costs".into(), ticks);
        let baseline = self
            .about
            .baseline
            .map(|(factor, value)| Baseline { factor: factor.into(), value: value.into() });
        let samples = std::mem::take(&mut self.samples);
        let mut record = Record {
            schema: LAB_SCHEMA.into(),
            experiment: self.about.name.into(),
            number: self.about.number.into(),
            question: self.about.question.into(),
            program: Program::own(),
            command_line: self.common.command_line.clone(),
            started: self.started.clone(),
            seconds: (clock::now() - self.began).as_secs_f64(),
            machine: self.machine.clone(),
            versions: std::mem::take(&mut self.versions),
            settings: std::mem::take(&mut self.settings),
            measures: self.about.measures.iter().map(measure).collect(),
            figures: figures(&samples, baseline.as_ref()),
            baseline,
            samples,
            derived: vec![],
            views: vec![],
            history: vec![],
            commands: std::mem::take(&mut self.commands),
            warnings: vec![],
        };
        let conclusion = conclude(&record);
        (record.derived, record.views, record.history) =
            (conclusion.derived, conclusion.views, conclusion.history);
        confirmed::show(&mut record);
        accounting::show(&mut record);
        general_doubts::short_trials(self.shortest).into_iter().for_each(|d| self.doubt(d));
        accounting::doubts(&record).into_iter().for_each(|d| self.doubt(d));
        // The record's format has no infinite values and no NaN, and a figure of that kind says
        // nothing.
        record.derived.retain(|d| d.value.is_finite());
        record.views.iter_mut().for_each(name_as_file);
        let mut seen = self.watch.take().map(Watch::finish).unwrap_or_default();
        (seen.others, seen.stolen) = self.disturbed.unwrap_or((seen.others, seen.stolen));
        let general = general_doubts::doubts(&record, &self.systems, &self.common, &seen);
        // The experiment knows better what it has raised itself.
        let own: Vec<&str> = self.warnings.iter().map(Warning::kind).collect();
        let more: Vec<Warning> = general.into_iter().filter(|w| !own.contains(&w.kind())).collect();
        self.warnings.extend(more);
        record.warnings = self.warnings.iter().map(Warning::record).collect();
        debug_assert_eq!(flaws(&record), [""; 0], "a record that could not be read back");
        let written = report::publish(&record, &folder);
        if written.is_err() {
            folder.discard();
        }
        written.map(|()| Report { record, folder: folder.path().to_path_buf() })
    }
}

/// A soaker as a setting of a run.
pub(super) fn soak_text(soak: &Soak) -> String {
    format!("at work beside all traffic, {:.0} units/s on the idle machine", soak.calibration().rate)
}

/// Names of plots become names of files: systems and suites in them may have other characters.
fn name_as_file(view: &mut View) {
    if let View::Plot(plot) = view {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let lower = plot.name.to_ascii_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !allowed(c)).filter(|w| !w.is_empty()).collect();
        plot.name = words.join("-");
    }
}

/// For builds with assertions: what `lab report` would refuse.
fn flaws(record: &Record) -> Vec<String> {
    let json = serde_json::to_value(record).unwrap_or_default();
    crate::schema::breaches_of::<Record>(&json).into_iter().chain(record.faults()).collect()
}

fn measure(m: &(&str, &str, &str, &str, Better)) -> Measure {
    let (name, heading, unit, what, better) = *m;
    Measure { name: name.into(), heading: heading.into(), unit: unit.into(), what: what.into(), better }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            folder.discard();
        }
    }
}

impl Report {
    /// The report as text for a terminal of `width` columns.
    pub fn text(&self, width: usize) -> String {
        format!("{}\nRun folder: {}\n", report::record_text(&self.record, width), folder(&self.folder))
    }
}

fn folder(path: &Path) -> String {
    path.display().to_string()
}

/// An experiment as a command: prints its report (or with `json` its record) on standard output,
/// errors on standard error; returns the exit status.
pub fn present(name: &str, outcome: Result<Report, LabError>, json: bool) -> i32 {
    let text = outcome.and_then(|report| {
        if json { report::pretty(&report.record) } else { Ok(report.text(report::terminal_width())) }
    });
    super::shown::say(&format!("lab {name}"), text)
}
