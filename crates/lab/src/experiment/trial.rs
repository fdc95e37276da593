//! One trial: a fresh line, one system under test, one load, one measuring window; everything
//! removed again.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::dut::Dut;
use crate::error::LabError;
use crate::load::{Iperf3, TcpLoad};
use crate::measure::soaker::Soak;
use crate::measure::{self, WindowPlan};
use crate::report::{CellKey, RunFolder, Trial, Warning};
use crate::topology::{Line, LineSpec, Owner};

/// Left out at the beginning of the load.
pub(super) const WARM_UP: Duration = Duration::from_secs(1);
/// Added to the load's length: it must outlast the window, whatever connecting took.
const SLACK: Duration = Duration::from_millis(700);

/// Parts of a trial: system, load, window.
pub(super) struct TrialPlan<'a> {
    pub(super) owner: &'a Owner,
    pub(super) folder: &'a RunFolder,
    pub(super) dut: &'a dyn Dut,
    pub(super) cell: CellKey,
    pub(super) repeat: u32,
    pub(super) inner_mtu: u32,
    pub(super) duration: Duration,
    pub(super) soak: Option<&'a Soak>,
    /// Since the run began.
    pub(super) began: Duration,
}

impl TrialPlan<'_> {
    /// About what one takes with a window of `duration`.
    pub(super) fn guess(duration: Duration) -> Duration {
        // iperf3 counts in whole seconds.
        let load = (WARM_UP + duration + SLACK).as_millis().div_ceil(1000);
        Duration::from_secs(u64::try_from(load).unwrap_or(u64::MAX)) + Duration::from_millis(600)
    }

    /// Makes it. `stage` hears what is being done.
    pub(super) fn run(&self, stage: &dyn Fn(&str)) -> Result<(Trial, Vec<Warning>), LabError> {
        let name = self.dut.name();
        stage("four boxes in a line");
        let line = Line::build(self.owner, LineSpec { mode: self.cell.mode, inner_mtu: self.inner_mtu })?;
        let dir = self.directory(&line)?;
        stage("starting");
        let start = clock::now();
        let mut running = self.dut.start(&line.sites(), &dir)?;
        let setup = clock::now() - start;
        let load = TcpLoad {
            streams: self.cell.streams,
            direction: self.cell.direction,
            rate_mbps: self.cell.rate_mbps,
            duration: WARM_UP + self.duration + SLACK,
        };
        let mut traffic = Iperf3::start(&line, load, &dir)?;
        stage("measuring");
        let plan = WindowPlan {
            direction: self.cell.direction,
            mode: self.cell.mode,
            warm_up: WARM_UP,
            duration: self.duration,
            soak: self.soak,
        };
        let window = measure::measure(&line, plan, running.tunnel_device().as_deref(), || {
            running.alive()?;
            traffic.alive()
        })
        .map_err(|e| running.failed(&name, e))?;
        stage("reading the books");
        let (json, tcp) = traffic.finish().map_err(|e| running.failed(&name, e))?;
        let description = running.describe()?;
        let killed = running.stop();
        let commands = line.journal().lines();
        let files = self.keep(line.number(), &dir, &json, &description)?;
        drop(line);
        // Of no more use, and it holds the keys.
        let _ = fs::remove_dir_all(&dir);
        let warnings = if killed.is_empty() {
            vec![]
        } else {
            vec![Warning::Killed { dut: name.clone(), processes: killed }]
        };
        let trial = Trial {
            dut: name,
            cell: self.cell,
            repeat: self.repeat,
            began: self.began.as_secs_f64(),
            setup_seconds: setup.as_secs_f64(),
            window,
            tcp,
            commands,
            files,
        };
        Ok((trial, warnings))
    }

    fn directory(&self, line: &Line) -> Result<PathBuf, LabError> {
        let dir = self.owner.dir().join(line.number().to_string());
        fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        Ok(dir)
    }

    fn keep(
        &self,
        number: u32,
        dir: &std::path::Path,
        json: &serde_json::Value,
        description: &str,
    ) -> Result<Vec<String>, LabError> {
        let stem = format!("{number:03}-{}", self.dut.name());
        let mut files = vec![
            self.folder.keep(&format!("{stem}.iperf3.json"), json.to_string().as_bytes())?,
            self.folder.keep(&format!("{stem}.tunnel.txt"), format!("{description}\n").as_bytes())?,
        ];
        for gateway in ["g1", "g2"] {
            if let Ok(log) = fs::read(dir.join(format!("{gateway}.log"))) {
                files.push(self.folder.keep(&format!("{stem}.{gateway}.log"), &log)?);
            }
            for configuration in [format!("{gateway}/swanctl.conf"), format!("{gateway}.swanctl.conf")] {
                if let Ok(text) = fs::read_to_string(dir.join(configuration)) {
                    let name = format!("{stem}.{gateway}.swanctl.conf");
                    files.push(self.folder.keep(&name, without_secrets(&text).as_bytes())?);
                }
            }
        }
        Ok(files)
    }
}

/// A configuration as the record keeps it: the value of every `secret` left out, for runs are shown
/// to others.
fn without_secrets(configuration: &str) -> String {
    configuration
        .lines()
        .map(|line| match line.split_once('=') {
            Some((key, _)) if key.trim() == "secret" => format!("{key}= (left out)\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_configuration_has_no_secret() {
        let kept =
            without_secrets("secrets {\n  ike-1 {\n    secret = \"swordfish\"\n    id-1 = g1\n  }\n}\n");
        assert_eq!(kept, "secrets {\n  ike-1 {\n    secret = (left out)\n    id-1 = g1\n  }\n}\n");
    }
}
