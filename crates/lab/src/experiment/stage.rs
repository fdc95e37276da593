//! A topology with a running system under test on it, for experiments whose load is made of
//! applications; and what such experiments check before they begin.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::campaign::{Campaign, Common};
use super::line::{choose_duts, once};
use crate::dut::{Dut, DutOptions, Running};
use crate::error::{LabError, Remedy};
use crate::machine;
use crate::measure::{Meter, Used};
use crate::report::Warning;
use crate::topology::{Netns, Network, Owner, Topology};

/// Systems to measure, and what is said of those left out.
pub(super) struct Systems {
    pub duts: Vec<Box<dyn Dut>>,
    pub warnings: Vec<Warning>,
}

/// The systems asked for, or `own` when none was; an error that names everything this machine
/// lacks.
pub(super) fn systems(
    common: &Common,
    options: &DutOptions,
    own: &[&str],
    relayed: bool,
    mut lacks: Vec<Remedy>,
) -> Result<Systems, LabError> {
    let mut names = common.duts.clone();
    if names.is_empty() {
        names = own.iter().map(ToString::to_string).collect();
    }
    once(&mut names);
    if common.encaps.is_empty() || options.suites.is_empty() {
        return Err(LabError::Usage("nothing to measure: name an encapsulation and a suite".into()));
    }
    let (duts, missing, warnings) = choose_duts(&names, &common.encaps, options)?;
    lacks.extend(machine::lacks_privilege());
    lacks.extend(Network::lacks(relayed));
    lacks.extend(missing);
    once(&mut lacks);
    if lacks.is_empty() { Ok(Systems { duts, warnings }) } else { Err(LabError::Unfit(lacks)) }
}

impl Campaign {
    /// Notes what is measured and raises the doubts that are known before anything is, beside those
    /// that all have. `window` is how long each measurement lasts, where that is given.
    pub(super) fn introduce(&mut self, systems: &Systems, repeats: u32, window: Option<Duration>) {
        self.settings.insert("repeats".into(), repeats.to_string());
        for dut in &systems.duts {
            self.systems.push(dut.name());
            if let Some(version) = dut.version() {
                self.versions.insert(dut.name(), version);
            }
        }
        systems.warnings.iter().for_each(|w| self.doubt(w.clone()));
        if let Some(window) = window.filter(|window| *window < Duration::from_secs(1)) {
            self.doubt(Warning::ShortWindow { seconds: window.as_secs_f64() });
        }
        window.into_iter().for_each(|window| self.trials_last(window));
        if !systems.duts.iter().any(|d| d.name() == "plain") {
            self.doubt(Warning::NoPlain);
        }
    }
}

/// One system at work on a topology of that kind. Dropping it ends the system, then removes the
/// topology, then the files.
pub(super) struct Stage<T: Topology> {
    running: Option<Box<dyn Running>>,
    pub topology: T,
    dir: PathBuf,
    dut: String,
}

/// Starts `dut` on `topology`, lets `measure` measure it, and ends it.
pub(super) fn on_stage<T: Topology>(
    c: &mut Campaign,
    owner: &Owner,
    topology: T,
    dut: &dyn Dut,
    measure: impl FnOnce(&mut Campaign, &mut Stage<T>) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut stage = Stage::start(owner, topology, dut)?;
    measure(c, &mut stage)?;
    stage.stop(c);
    Ok(())
}

impl<T: Topology> Stage<T> {
    /// Starts `dut` on `topology`.
    pub(super) fn start(owner: &Owner, topology: T, dut: &dyn Dut) -> Result<Self, LabError> {
        let dir = owner.dir().join(topology.number().to_string());
        fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        let mut stage = Self { running: None, topology, dir, dut: dut.name() };
        stage.running = Some(dut.start(&stage.topology.sites(), &stage.dir)?);
        Ok(stage)
    }

    /// A private directory of this stage.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The topology, and a check like [`Stage::alive`] that can be used together with it.
    pub(super) fn parts(&mut self) -> (&T, impl FnMut() -> Result<(), LabError> + '_) {
        let Self { running, topology, .. } = self;
        (topology, || running.as_mut().map_or(Ok(()), |r| r.alive()))
    }

    /// An error once the system has ended by itself.
    pub(super) fn alive(&mut self) -> Result<(), LabError> {
        self.running.as_mut().map_or(Ok(()), |r| r.alive())
    }

    /// The boxes as parties of a measurement: `gateways`, and the hosts of the first path as
    /// `client` and `server` where these are boxes of their own.
    pub(super) fn parties(&self) -> Vec<(&'static str, &Netns)> {
        let hosts = self.topology.paths().into_iter().take(1);
        let hosts = hosts.flat_map(|p| [("client", p.from.netns), ("server", p.to.netns)]);
        let gateways = self.topology.sites().sites.into_iter().map(|s| ("gateways", s.netns));
        let mut parties: Vec<(&'static str, &Netns)> = Vec::new();
        // On host to host the hosts are the gateways too, and everything on them counts as theirs.
        for (name, netns) in gateways.chain(hosts) {
            if !parties.iter().any(|(_, p)| p.name() == netns.name()) {
                parties.push((name, netns));
            }
        }
        parties
    }

    /// Measures processor time until [`Stage::measured`].
    pub(super) fn meter(&self, c: &Campaign) -> Result<Meter, LabError> {
        Meter::start(&self.parties(), &[], c.soak())
    }

    /// Resources used since the meter was started. An error when the system has ended.
    pub(super) fn measured(&mut self, meter: Meter) -> Result<Used, LabError> {
        self.alive()?;
        meter.stop(&self.parties())
    }

    /// Ends the system; the commands that were run, and a process that had to be killed, are noted.
    pub(super) fn stop(mut self, c: &mut Campaign) {
        let killed = self.running.take().map(|r| r.stop()).unwrap_or_default();
        if !killed.is_empty() {
            c.doubt(Warning::Killed { dut: self.dut.clone(), processes: killed });
        }
        c.ran(self.topology.journal().lines());
    }
}

impl<T: Topology> Drop for Stage<T> {
    fn drop(&mut self) {
        // The processes first; the topology goes after this, and the files, which hold keys, with
        // the owner at the latest.
        self.running = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
