//! The processes of a system on its gateways, and what most systems do with them.

use std::time::Duration;

use crate::error::{LabError, LogTail};
use crate::process::{self, Process};
use crate::topology::Sites;

/// Configuration of a CHILD_SA whose other end the laboratory plays: keys are never replaced,
/// because a trial must not meet a rekeying.
pub(super) fn lasting(sites: &Sites<'_>) -> &'static str {
    if sites.played.is_some() { "        rekey_time = 0\n" } else { "" }
}

/// The processes of a system on its gateways, and what most systems do with them.
#[derive(Debug)]
pub(crate) struct Pair {
    dut: String,
    processes: Vec<Process>,
}

/// Lines of each log that a failure shows.
const TAIL: usize = 15;

impl Pair {
    pub(crate) fn new(dut: impl Into<String>) -> Self {
        Self { dut: dut.into(), processes: Vec::new() }
    }

    pub(crate) fn add(&mut self, process: Process) {
        self.processes.push(process);
    }

    pub(crate) fn logs(&self) -> Vec<LogTail> {
        self.processes.iter().map(|p| p.tail(TAIL)).collect()
    }

    /// The error of this system, with the end of its logs.
    pub(crate) fn failed(&self, why: impl Into<String>) -> LabError {
        LabError::Dut { dut: self.dut.clone(), why: why.into(), logs: self.logs() }
    }

    pub(crate) fn alive(&mut self) -> Result<(), LabError> {
        let ended = self.processes.iter_mut().find_map(|p| Some((p.ended()?, p.name().to_string())));
        match ended {
            Some((status, name)) => Err(self.failed(format!("the process of {name} ended ({status})"))),
            None => Ok(()),
        }
    }

    /// Ends all together.
    pub(crate) fn stop(mut self) -> Vec<String> {
        process::end_all(&mut self.processes, Duration::from_secs(3))
    }
}
