//! The record of a flood experiment: `run.json`, schema `ironswan.flood/1` (the file
//! `flood-1.schema.json` beside this one), and what follows from its trials.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::Spread;
use crate::load::{Received, Sent};
use crate::machine::Fingerprint;
use crate::measure::places::Account;
use crate::measure::soaker::Busy;
use crate::record::{Program, WarningRecord};
use crate::stats;
use crate::topology::Mode;

/// The name and number of the schema.
pub const FLOOD_SCHEMA: &str = "ironswan.flood/1";

/// The JSON Schema of it.
pub const FLOOD_SCHEMA_JSON: &str = include_str!("flood-1.schema.json");

/// A run of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodRun {
    /// [`FLOOD_SCHEMA`].
    pub schema: String,
    /// The experiment's name: `flood`.
    pub experiment: String,
    /// The program that measured.
    pub program: Program,
    /// The command line.
    pub command_line: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Machine of the run.
    pub machine: Fingerprint,
    /// Versions of the systems under test, by name.
    pub versions: BTreeMap<String, String>,
    /// Options of the run.
    pub settings: FloodSettings,
    /// Every trial, in the order in which they were made.
    pub trials: Vec<FloodTrial>,
    /// Figures that follow from the trials.
    pub results: FloodResults,
    /// The commands that built each system's line, by `cell: system`.
    pub commands: BTreeMap<String, Vec<String>>,
    /// Doubts.
    pub warnings: Vec<WarningRecord>,
}

/// Options of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodSettings {
    /// The systems under test.
    pub duts: Vec<String>,
    /// ESP proposal of the IPsec systems.
    pub esp_proposal: String,
    /// Largest shares of packets that may be lost.
    pub goals: Vec<f64>,
    /// A throughput is known to within this share of itself.
    pub width: f64,
    /// Packets of a deciding trial.
    pub packets: u64,
    /// Length of a short trial, seconds.
    pub probe: f64,
    /// Multiples of the throughput that are offered after it is known.
    pub multiples: Vec<f64>,
    /// Trials at each multiple.
    pub repeats: u32,
    /// MTU of the hosts' routes, bytes.
    pub inner_mtu: u32,
}

/// Factors that are held fixed in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialKey {
    /// Which processors the parts have.
    pub placement: Spread,
    /// How packets cross the links.
    pub mode: Mode,
    /// Bytes of UDP payload.
    pub payload: u32,
    /// How many flows.
    pub flows: u32,
}

impl fmt::Display for TrialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.flows == 1 { "" } else { "s" };
        let Self { placement, mode, payload, flows } = self;
        write!(f, "{payload} B of payload, {flows} flow{s}, placement {placement}, {mode} mode")
    }
}

/// Purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// As fast as the generator can, to begin the search with.
    Flood,
    /// A short one of the search.
    Probe,
    /// A long one of the search.
    Decide,
    /// A point of the curve past the throughput.
    Curve,
}

/// CPU of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Share of the machine's capacity that was busy.
    pub busy_share: f64,
    /// The busy share by accounting and by a soaker; absent without a soaker. With a soaker, no
    /// other figure here contains the soaker's own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// Share of software interrupts in that.
    pub softirq_share: f64,
    /// Share of the capacity used by processes that belong neither to the line nor to the
    /// laboratory.
    pub other_load_share: f64,
    /// Share of the capacity that the host of a virtual machine took away.
    pub stolen_share: f64,
    /// CPU time of the gateways' processes, nanoseconds.
    pub gateways_ns: u64,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodTrial {
    /// The system under test.
    pub dut: String,
    /// Case that the trial belongs to.
    pub cell: TrialKey,
    /// Purpose of the trial.
    pub purpose: Purpose,
    /// The loss that the search allowed, for trials of a search.
    pub goal: Option<f64>,
    /// The multiple of the throughput, for points of the curve.
    pub multiple: Option<f64>,
    /// When it began, seconds since the run began.
    pub began: f64,
    /// Packets a second that were offered; as many as go out when absent.
    pub offered_pps: Option<f64>,
    /// Share of the intended packets that did not arrive, unsent ones included.
    pub loss: f64,
    /// Packets a second that arrived.
    pub forwarded_pps: f64,
    /// Counts of the generator.
    pub sent: Sent,
    /// Counts of the receiver.
    pub received: Received,
    /// Places where the difference was dropped.
    pub account: Account,
    /// CPU.
    pub cost: Cost,
}

impl FloodTrial {
    /// From the two ends and the counters between them.
    pub(crate) fn new(
        dut: String,
        cell: TrialKey,
        offered_pps: Option<f64>,
        sent: Sent,
        received: Received,
        account: Account,
        cost: Cost,
    ) -> Self {
        let seconds = sent.seconds.max(received.seconds);
        Self {
            dut,
            cell,
            purpose: Purpose::Probe,
            goal: None,
            multiple: None,
            began: 0.0,
            offered_pps,
            loss: 1.0 - received.unique as f64 / sent.intended.max(1) as f64,
            forwarded_pps: if seconds > 0.0 { received.unique as f64 / seconds } else { 0.0 },
            sent,
            received,
            account,
            cost,
        }
    }
}

/// Figures that follow from the trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodResults {
    /// One comparison each.
    pub cells: Vec<FloodCell>,
}

/// A comparison of systems under the same load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodCell {
    /// Factors that are held fixed.
    pub key: TrialKey,
    /// One system each.
    pub rows: Vec<FloodRow>,
}

/// One system in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodRow {
    /// The system under test.
    pub dut: String,
    /// For each goal.
    pub throughput: Vec<Throughput>,
    /// The highest rate at which packets arrived in any trial of the cell, packets a second.
    pub peak_pps: f64,
    /// Past the throughput.
    pub curve: Vec<CurvePoint>,
}

/// The highest rate with a bounded loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Largest share of packets that may be lost.
    pub goal: f64,
    /// Packets a second; absent when no rate was found.
    pub pps: Option<f64>,
    /// Over that of wireguard-go in the same cell.
    pub of_wireguard_go: Option<f64>,
}

/// A system offered more than it can forward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Offered load, as a multiple of the throughput.
    pub multiple: f64,
    /// Packets sent a second.
    pub sent_pps: f64,
    /// Packets that arrived a second: the median of the repeats.
    pub forwarded_pps: f64,
    /// As a share of the peak.
    pub of_peak: f64,
    /// Trials.
    pub trials: usize,
}

impl FloodResults {
    /// From the trials, in the order of their first appearance.
    pub(crate) fn of(trials: &[FloodTrial], goals: &[f64]) -> Self {
        let mut keys: Vec<TrialKey> = Vec::new();
        trials.iter().for_each(|t| {
            if !keys.contains(&t.cell) {
                keys.push(t.cell);
            }
        });
        let cells = keys.into_iter().map(|key| {
            let mut rows: Vec<FloodRow> = Vec::new();
            for t in trials.iter().filter(|t| t.cell == key) {
                if !rows.iter().any(|r| r.dut == t.dut) {
                    rows.push(FloodRow::of(key, &t.dut, trials, goals));
                }
            }
            let reference = rows.iter().find(|r| r.dut == "wireguard-go").map(|r| r.throughput.clone());
            for row in rows.iter_mut().filter(|r| r.dut != "wireguard-go") {
                for (t, r) in row.throughput.iter_mut().zip(reference.iter().flatten()) {
                    t.of_wireguard_go = t.pps.zip(r.pps).map(|(ours, theirs)| ours / theirs);
                }
            }
            FloodCell { key, rows }
        });
        Self { cells: cells.collect() }
    }
}

impl FloodRow {
    fn of(key: TrialKey, dut: &str, trials: &[FloodTrial], goals: &[f64]) -> Self {
        let own: Vec<&FloodTrial> = trials.iter().filter(|t| t.cell == key && t.dut == dut).collect();
        let peak_pps = own.iter().map(|t| t.forwarded_pps).fold(0.0, f64::max);
        let mut multiples: Vec<f64> = Vec::new();
        own.iter().filter_map(|t| t.multiple).for_each(|m| {
            if !multiples.contains(&m) {
                multiples.push(m);
            }
        });
        let curve = multiples.into_iter().filter_map(|multiple| {
            let at: Vec<&&FloodTrial> = own.iter().filter(|t| t.multiple == Some(multiple)).collect();
            let median =
                |f: &dyn Fn(&FloodTrial) -> f64| stats::median(&at.iter().map(|t| f(t)).collect::<Vec<_>>());
            let forwarded_pps = median(&|t| t.forwarded_pps)?;
            Some(CurvePoint {
                multiple,
                sent_pps: median(&|t| t.sent.sent as f64 / t.sent.seconds.max(1e-9))?,
                forwarded_pps,
                of_peak: if peak_pps > 0.0 { forwarded_pps / peak_pps } else { 0.0 },
                trials: at.len(),
            })
        });
        // A search for a smaller loss decides for a larger one, too.
        let highest = |goal| {
            let decide =
                own.iter().filter(|t| t.purpose == Purpose::Decide && t.goal.is_some_and(|g| g <= goal));
            decide.filter(|t| t.loss <= goal).filter_map(|t| t.offered_pps).max_by(f64::total_cmp)
        };
        Self {
            dut: dut.into(),
            throughput: goals
                .iter()
                .map(|&goal| Throughput { goal, pps: highest(goal), of_wireguard_go: None })
                .collect(),
            peak_pps,
            curve: curve.collect(),
        }
    }
}
