//! Doubts about a run. Each is named, so that programs can find it, and says what it means for the
//! figures.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `text` | the sentence of each |

mod text;

use crate::measure::mlr::Contradiction;
use crate::record::WarningRecord;

/// Range over median from which repeats are called noisy.
pub(crate) const NOISE: f64 = 0.2;

/// A doubt, with what makes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// Fewer repeats than published figures have: the spread says little.
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
        /// Offered load, 10^6 bits per second.
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
    /// A deciding trial had fewer than a million packets: small shares of loss mean nothing.
    FewPackets {
        /// How many.
        packets: u64,
    },
    /// The generator itself could not hold the rate of deciding trials, or the most that it sends
    /// was carried.
    TesterLimited {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// How many of its trials; none when the system carried all that the generator sends.
        trials: usize,
    },
    /// The tester, and not the system, set the limit of what others are compared with.
    Withheld {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The losses for which it did.
        losses: String,
        /// Packets a second that the tester carries alone for the first of them, all ways together;
        /// none where that was not found.
        alone: Option<f64>,
    },
    /// A search ended without a rate.
    NoThroughput {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The share of loss that was allowed.
        goal: f64,
        /// Highest rate that was carried when the search ran out of trials, packets a second.
        least: Option<f64>,
    },
    /// A search ran out of trials before its rate was known as closely as was asked for.
    WideSearch {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The share of loss that was allowed.
        goal: f64,
        /// The throughput, packets a second.
        pps: f64,
        /// The lowest rate above it that failed, packets a second.
        failed: f64,
    },
    /// Later trials lost more at or below a throughput than that allows, and it was lowered.
    Lowered {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The loss that is allowed, as shown.
        goal: String,
        /// What the search had found, packets a second each way.
        before: f64,
        /// What later trials left of it, packets a second each way.
        pps: f64,
        /// The later trials at or below what had been found.
        why: Contradiction,
        /// Later trials that carried what is left.
        confirmed: usize,
        /// Of how many that said anything about it.
        of: usize,
    },
    /// There were too few later trials to confirm a throughput.
    Unconfirmed {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The loss that is allowed, as shown.
        goal: String,
        /// The throughput, packets a second each way.
        pps: f64,
        /// Later trials that carried it.
        confirmed: usize,
        /// Of how many that said anything about it.
        of: usize,
    },
    /// Something was counted that cannot be.
    Impossible {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The first of these things.
        what: String,
        /// How much more of the kind.
        more: usize,
    },
    /// More packets were missing, or more drops counted, than the account explains.
    Unexplained {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The largest share of the packets sent.
        share: f64,
    },
    /// The kernel does not tell time by the processor's counter.
    ClockUnstable {
        /// Clock source that the kernel uses.
        clocksource: String,
    },
    /// A gateway had to be killed after its trial.
    Killed {
        /// The system under test.
        dut: String,
        /// Names of its processes.
        processes: Vec<String>,
    },
    /// A system that was asked for as one of all is not installed.
    NotInstalled {
        /// The system.
        dut: String,
        /// Name of the missing thing.
        lack: String,
        /// Remedy.
        action: String,
    },
    /// Loads that were meant to be far below what the line carries lost packets.
    Saturated {
        /// The largest share of a load that was lost.
        share: f64,
    },
    /// Packets crossed the outer link that were not the system's own protocol.
    Unprotected {
        /// The system under test.
        dut: String,
        /// How many.
        packets: u64,
    },
    /// Packets crossed the outer link in pieces.
    Fragments {
        /// The system under test.
        dut: String,
        /// Pieces but the first of each.
        packets: u64,
    },
    /// Packets came out of a gateway that should not have: not authentic, repeated, of another SA,
    /// damaged.
    WrongPackets {
        /// The system under test.
        dut: String,
        /// How many.
        packets: u64,
        /// How many of each kind.
        what: String,
    },
    /// Nothing to subtract: plain forwarding was not among the systems.
    NoPlain,
    /// strongSwan's own ESP was measured, and strongSwan with the kernel's was not.
    LibipsecAlone {
        /// Name of the former.
        measured: &'static str,
        /// Name of the latter.
        usual: &'static str,
    },
    /// Tunnels carried more than plain forwarding.
    AbovePlain {
        /// In how many cells.
        cells: usize,
        /// Of how many.
        of: usize,
        /// The cell with the largest ratio.
        worst: String,
        /// The ratio of that cell.
        ratio: f64,
        /// How that can be.
        why: &'static str,
    },
    /// Repeats of some figures differ much.
    NoisyFigures {
        /// How many figures.
        noisy: usize,
        /// Of how many that were repeated.
        of: usize,
        /// The noisiest: what it is, and its measure.
        worst: String,
        /// Range of the figure over its median.
        range: f64,
    },
    /// The quota of a control group, or heat, held the machine back.
    Throttled {
        /// By what, and how much.
        what: String,
    },
    /// The processor's clock is not fixed.
    FrequencyScaling {
        /// Measurement that shows it.
        what: String,
    },
    /// Tunnels that did not come up in the time allowed.
    NotAllUp {
        /// The system under test.
        dut: String,
        /// How many there were to be.
        tunnels: u64,
        /// How many were up at the end.
        up: u64,
        /// The time allowed, seconds.
        seconds: f64,
    },
    /// The more tunnels there are, the more each costs.
    CostGrows {
        /// The system under test.
        dut: String,
        /// How many tunnels.
        tunnels: u64,
        /// The last tenth's cost over the second's.
        growth: f64,
    },
    /// An emulated link could not keep up with what it was given.
    RelayLimited {
        /// The system under test.
        dut: String,
        /// The cell.
        cell: String,
        /// The largest share of a window for which a direction of it did not wait.
        busy: f64,
        /// Frames that it lost for that reason, and none on purpose.
        frames: u64,
    },
    /// Simulated peers have refused something that the system under test did.
    PeerTrouble {
        /// The first such thing.
        why: String,
    },
    /// The rate of a CPU soaker or of the sieve without traffic was measured on a machine that was
    /// not idle.
    Calibration {
        /// Measurement that shows it.
        what: String,
    },
    /// The share of the processors that was busy is another one by the kernel's accounting than by
    /// a soaker.
    Accounting {
        /// Cell of the results.
        cell: String,
        /// The share by accounting.
        kernel: f64,
        /// The share by the soaker.
        soaker: f64,
        /// The difference that is explained.
        apart: f64,
    },
    /// A part of an experiment was left out.
    LeftOut {
        /// Which, and why.
        what: String,
    },
    /// Made in a few seconds to show that everything works.
    Smoke,
    /// A model made in less time than a good one takes.
    Quick,
    /// Costs that would rest on fewer than ten clock ticks were left out.
    TooShort {
        /// Figures that lack a cost for it.
        figures: usize,
        /// Of how many.
        of: usize,
        /// The first of them.
        first: String,
    },
    /// Loads of a calibration took the machine so few clock ticks that what a packet cost is
    /// rounded.
    FewTicks {
        /// Loads.
        figures: usize,
        /// Of how many.
        of: usize,
        /// The first of them.
        first: String,
    },
    /// Trials are shorter than those of published figures.
    ShortTrials {
        /// Length of the shortest that figures rest on, seconds.
        seconds: f64,
    },
    /// The window is too short for a figure.
    ShortWindow {
        /// Length of the window.
        seconds: f64,
    },
}

impl Warning {
    /// Name of the warning: lower case, with hyphens. A name never changes its meaning.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::FewRepeats { .. } => "few-repeats",
            Self::OtherLoad { .. } => "other-load",
            Self::Stolen { .. } => "stolen-time",
            Self::DebugBuild => "debug-build",
            Self::SharedCores { .. } => "shared-cores",
            Self::RateNotReached { .. } => "rate-not-reached",
            Self::Unsteady { .. } => "unsteady",
            Self::OffloadOff { .. } => "offload-off",
            Self::BacklogDrops { .. } => "backlog-drops",
            Self::FewPackets { .. } => "few-packets",
            Self::TesterLimited { .. } => "tester-limited",
            Self::Withheld { .. } => "withheld",
            Self::NoThroughput { .. } => "no-throughput",
            Self::WideSearch { .. } => "wide-search",
            Self::Lowered { .. } => "lowered",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::Impossible { .. } => "impossible",
            Self::Unexplained { .. } => "unexplained-loss",
            Self::ClockUnstable { .. } => "clock-unstable",
            Self::Killed { .. } => "killed",
            Self::NotInstalled { .. } => "not-installed",
            Self::Saturated { .. } => "saturated",
            Self::Unprotected { .. } => "unprotected",
            Self::Fragments { .. } => "fragments",
            Self::WrongPackets { .. } => "wrong-packets",
            Self::NoPlain => "no-plain",
            Self::LibipsecAlone { .. } => "libipsec-alone",
            Self::AbovePlain { .. } => "above-plain",
            Self::NoisyFigures { .. } => "noisy-repeats",
            Self::Throttled { .. } => "throttled",
            Self::FrequencyScaling { .. } => "frequency-scaling",
            Self::NotAllUp { .. } => "not-all-up",
            Self::CostGrows { .. } => "cost-grows",
            Self::RelayLimited { .. } => "relay-limited",
            Self::PeerTrouble { .. } => "peer-trouble",
            Self::Calibration { .. } => "calibration",
            Self::Accounting { .. } => "accounting",
            Self::LeftOut { .. } => "left-out",
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::TooShort { .. } => "too-short",
            Self::FewTicks { .. } => "few-ticks",
            Self::ShortTrials { .. } => "short-trials",
            Self::ShortWindow { .. } => "short-window",
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
        let slow = Warning::NotAllUp { dut: "x".into(), tunnels: 10, up: 7, seconds: 30.4 };
        assert!(
            slow.text().starts_with("x: 7 of 10 tunnels were up after 30 s;") && slow.kind() == "not-all-up"
        );
        let grows = Warning::CostGrows { dut: "x".into(), tunnels: 10, growth: 1.254 }.text();
        assert!(grows.contains("1.25 times") && !grows.contains("  "), "{grows}");
    }

    #[test]
    fn every_warning_is_in_the_manual() {
        let kinds = include_str!("warning.rs").lines().filter_map(|line| {
            let (variant, kind) = line.trim().split_once(" => \"")?;
            let is_name = variant.starts_with("Self::") && !kind.contains(' ');
            is_name.then(|| kind.trim_end_matches("\","))
        });
        let kinds: Vec<&str> = kinds.collect();
        assert!(kinds.len() > 20 && kinds.contains(&"other-load"), "the names were not found: {kinds:?}");
        let page = include_str!("../../../../docs/measuring.md");
        let missing: Vec<&&str> = kinds.iter().filter(|k| !page.contains(&format!("| `{k}` |"))).collect();
        assert!(missing.is_empty(), "docs/measuring.md says nothing of {missing:?}");
    }
}
