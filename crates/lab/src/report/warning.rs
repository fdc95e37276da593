//! Doubts about a run. Each is named, so that programs can find it, and says what it means for the figures.

use serde::{Deserialize, Serialize};

/// A doubt, with what makes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// Repeats of one cell differ much.
    NoisyRepeats {
        /// The system under test.
        dut: String,
        /// The cell, as shown in tables.
        cell: String,
        /// Range over median of the rate.
        gbps: f64,
        /// Range over median of the machine's cost per byte.
        cost: f64,
    },
    /// Fewer than three repeats: the spread says little.
    FewRepeats {
        /// How many.
        repeats: u32,
    },
    /// Other programs used the processors during the measuring windows.
    OtherLoad {
        /// Their largest share of the machine in a window.
        share: f64,
    },
    /// The host of this virtual machine took processor time away.
    Stolen {
        /// The largest share in a window.
        share: f64,
    },
    /// A gateway built without optimisation was measured.
    DebugBuild,
    /// Hosts and gateways run on the same few processors.
    SharedCores {
        /// Processors of the machine.
        cpus: usize,
    },
    /// Less arrived than was offered: the cost is that of the rate reached.
    RateNotReached {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// What was offered, 10^6 bits per second.
        rate_mbps: u32,
    },
    /// The rate changed during a window.
    Unsteady {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// How many of its trials.
        trials: usize,
    },
    /// Packets crossed in another form than the mode says.
    OffloadOff {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// Mean size of a received buffer, bytes.
        bytes_per_buffer: f64,
    },
    /// The kernel threw packets away before any gateway saw them.
    BacklogDrops {
        /// In all windows together.
        packets: u64,
    },
    /// The kernel does not tell time by the processor's counter.
    ClockUnstable {
        /// What it uses.
        clocksource: String,
    },
    /// A gateway had to be killed after its trial.
    Killed {
        /// The system under test.
        dut: String,
        /// Its processes.
        processes: Vec<String>,
    },
    /// A system that was asked for as one of all is not installed.
    NotInstalled {
        /// The system.
        dut: String,
        /// What is missing.
        lack: String,
        /// What would supply it.
        action: String,
    },
    /// Nothing to subtract: plain forwarding was not among the systems.
    NoPlain,
    /// The window is too short for a figure.
    ShortWindow {
        /// Its length.
        seconds: f64,
    },
}

/// A warning in `run.json`: a name for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarningRecord {
    /// Its name.
    pub kind: String,
    /// Its sentence.
    pub text: String,
}

impl Warning {
    /// Its name: lower case, with hyphens; never changes its meaning.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoisyRepeats { .. } => "noisy-repeats",
            Self::FewRepeats { .. } => "few-repeats",
            Self::OtherLoad { .. } => "other-load",
            Self::Stolen { .. } => "stolen-time",
            Self::DebugBuild => "debug-build",
            Self::SharedCores { .. } => "shared-cores",
            Self::RateNotReached { .. } => "rate-not-reached",
            Self::Unsteady { .. } => "unsteady",
            Self::OffloadOff { .. } => "offload-off",
            Self::BacklogDrops { .. } => "backlog-drops",
            Self::ClockUnstable { .. } => "clock-unstable",
            Self::Killed { .. } => "killed",
            Self::NotInstalled { .. } => "not-installed",
            Self::NoPlain => "no-plain",
            Self::ShortWindow { .. } => "short-window",
        }
    }

    /// Its sentence.
    pub fn text(&self) -> String {
        let percent = |share: &f64| format!("{:.0} %", share * 100.0);
        match self {
            Self::NoisyRepeats { dut, cell, gbps, cost } => format!(
                "{dut}, {cell}: the repeats differ by {} in Gb/s and {} in ns/byte; read the medians as hints",
                percent(gbps),
                percent(cost)
            ),
            Self::FewRepeats { repeats } => {
                let s = if *repeats == 1 { "" } else { "s" };
                format!("only {repeats} repeat{s}: the spread says little")
            }
            Self::OtherLoad { share } => format!(
                "other programs took up to {} of this machine while it measured; the cost per byte contains them",
                percent(share)
            ),
            Self::Stolen { share } => format!(
                "the host of this virtual machine took up to {} of its processor time away",
                percent(share)
            ),
            Self::DebugBuild => {
                "this is a debug build; its figures say nothing about IronSwan: measure a release build"
                    .into()
            }
            Self::SharedCores { cpus } => format!(
                "both hosts and both gateways share {cpus} processor{}: the rate is that of the whole line, so compare \
                 the cost per byte",
                if *cpus == 1 { "" } else { "s" }
            ),
            Self::RateNotReached { dut, cell, rate_mbps } => {
                format!("{dut}, {cell}: did not carry the {rate_mbps} Mb/s offered")
            }
            Self::Unsteady { dut, cell, trials } => format!(
                "{dut}, {cell}: in {trials} trial{} the rate changed by more than a quarter within the window",
                if *trials == 1 { "" } else { "s" }
            ),
            Self::OffloadOff { dut, cell, bytes_per_buffer } => format!(
                "{dut}, {cell}: packets arrived in buffers of {bytes_per_buffer:.0} bytes, which is not what this mode \
                 means"
            ),
            Self::BacklogDrops { packets } => format!(
                "the kernel dropped {packets} packet{} in its receive backlog, before any gateway saw them",
                if *packets == 1 { "" } else { "s" }
            ),
            Self::ClockUnstable { clocksource } => {
                format!("the kernel tells time by {clocksource}, not by the processor's counter")
            }
            Self::Killed { dut, processes } => format!(
                "{dut}: {} did not end within 3 s of SIGTERM and had to be killed",
                processes.join(", ")
            ),
            Self::NotInstalled { dut, lack, action } => format!("{dut} left out: {lack}: {action}"),
            Self::NoPlain => "plain forwarding was not measured: there is no ratio and no added cost".into(),
            Self::ShortWindow { seconds } => {
                format!("windows of {seconds:.1} s are for trying the laboratory out, not for figures")
            }
        }
    }

    /// Both, for the record.
    pub fn record(&self) -> WarningRecord {
        WarningRecord { kind: self.kind().into(), text: self.text() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_in_percent_and_numbers_agree_with_their_nouns() {
        assert!(Warning::OtherLoad { share: 0.123 }.text().contains("up to 12 % of"));
        assert!(Warning::FewRepeats { repeats: 1 }.text().starts_with("only 1 repeat:"));
        assert!(Warning::FewRepeats { repeats: 2 }.text().starts_with("only 2 repeats:"));
    }
}
