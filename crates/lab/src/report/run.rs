//! The record of a run: `run.json`, schema `ironswan.run/1` (the file `run-1.schema.json` beside
//! this one). What is added later is optional; what changes its meaning gets a new number.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::load::{Direction, TcpReport};
use crate::machine::Fingerprint;
use crate::measure::Window;
use crate::record::{Program, WarningRecord};
use crate::stats::Summary;
use crate::topology::Mode;

/// The name and number of the schema.
pub const SCHEMA: &str = "ironswan.run/1";

/// The JSON Schema of `run.json`.
pub const RUN_SCHEMA_JSON: &str = include_str!("run-1.schema.json");

/// A run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// The experiment's name: `line`.
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
    /// Versions of the systems under test and of the tools, by name.
    pub versions: BTreeMap<String, String>,
    /// Options of the run.
    pub settings: LineSettings,
    /// Every trial, in the order in which they were made.
    pub trials: Vec<Trial>,
    /// Figures that follow from the trials.
    pub results: Results,
    /// The published measurement that it repeats.
    pub history: HistoryNote,
    /// Doubts.
    pub warnings: Vec<WarningRecord>,
}

/// Options of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineSettings {
    /// The systems under test.
    pub duts: Vec<String>,
    /// ESP proposal of the IPsec systems.
    pub esp_proposal: String,
    /// IKE proposal of the IPsec systems.
    pub ike_proposal: String,
    /// Length of a measuring window, seconds.
    pub duration: f64,
    /// Trials of each system in each cell.
    pub repeats: u32,
    /// MTU of the hosts' routes, bytes.
    pub inner_mtu: u32,
    /// Congestion control of the boxes' TCP; as the machine had it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// One trial: a fresh line, one system, one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The system under test.
    pub dut: String,
    /// Case that the trial belongs to.
    pub cell: CellKey,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// When it began, seconds since the run began.
    pub began: f64,
    /// Time to start the system and bring the tunnel up, seconds.
    pub setup_seconds: f64,
    /// Counters in the window.
    pub window: Window,
    /// The report of the load generator.
    pub tcp: TcpReport,
    /// Command lines that were run, in order.
    pub commands: Vec<String>,
    /// Files of this trial, relative to the run's folder.
    pub files: Vec<String>,
}

/// Factors that are held fixed in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellKey {
    /// How packets cross the links.
    pub mode: Mode,
    /// TCP connections at once.
    pub streams: u32,
    /// Which way.
    pub direction: Direction,
    /// Payload offered, 10^6 bits per second over all streams; as fast as it goes when absent.
    pub rate_mbps: Option<u32>,
}

impl std::fmt::Display for CellKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = if self.streams == 1 { "" } else { "s" };
        write!(f, "{} mode, {} stream{s}, {}", self.mode, self.streams, self.direction)?;
        self.rate_mbps.map_or(Ok(()), |rate| write!(f, ", at {rate} Mb/s"))
    }
}

/// Figures that follow from the trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// One comparison each.
    pub cells: Vec<Cell>,
}

/// A comparison of systems under the same load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Factors that are held fixed.
    pub key: CellKey,
    /// One system each.
    pub rows: Vec<Row>,
}

/// One system in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The system under test.
    pub dut: String,
    /// Payload at the receiving host, 10^9 bits per second.
    pub gbps: Summary,
    /// Busy time of the whole machine per byte, nanoseconds.
    pub machine_ns_per_byte: Summary,
    /// CPU time of the gateways' processes per byte, nanoseconds; it may contain software
    /// interrupts of others.
    pub gateways_ns_per_byte: Summary,
    /// Share of software interrupts in the machine's busy time: the most that is foreign in the
    /// figure above.
    pub softirq_share: Summary,
    /// Mean size of a received buffer, bytes.
    pub bytes_per_buffer: Summary,
    /// Median rate over that of plain forwarding in the same cell.
    pub ratio: Option<f64>,
    /// Median cost of the machine less that of plain forwarding in the same cell, nanoseconds per
    /// byte.
    pub added_ns_per_byte: Option<f64>,
    /// The same in clock cycles of this machine.
    pub added_cycles_per_byte: Option<f64>,
    /// Largest resident size of a gateway, KiB.
    pub resident_kib: Option<u64>,
    /// Median time to bring the system up, seconds.
    pub setup_seconds: f64,
}

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryNote {
    /// Who, when, on what.
    pub source: String,
    /// Plain forwarding, 10^9 bits per second, lowest and highest.
    pub plain_gbps: (f64, f64),
    /// Through the tunnel, 10^9 bits per second, lowest and highest.
    pub tunnel_gbps: (f64, f64),
    /// Their ratio.
    pub ratio: f64,
    /// Cycles of one gateway per byte.
    pub cycles_per_byte: f64,
    /// Why it cannot be compared without a thought.
    pub caveat: String,
}

impl Cell {
    /// The row of a system.
    pub fn row(&self, dut: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.dut == dut)
    }
}

impl Results {
    /// Groups trials into cells, in the order of their first appearance, and compares with `plain`.
    pub fn of(trials: &[Trial], mhz: Option<f64>) -> Self {
        let mut cells: Vec<(CellKey, Vec<&str>)> = Vec::new();
        for t in trials {
            match cells.iter_mut().find(|(key, _)| *key == t.cell) {
                Some((_, duts)) if duts.contains(&t.dut.as_str()) => {}
                Some((_, duts)) => duts.push(&t.dut),
                None => cells.push((t.cell, vec![&t.dut])),
            }
        }
        let cells = cells
            .into_iter()
            .map(|(key, duts)| {
                let of = |dut: &str| -> Vec<&Trial> {
                    trials.iter().filter(|t| t.cell == key && t.dut == dut).collect()
                };
                let mut rows: Vec<Row> = duts.iter().filter_map(|dut| Row::of(dut, &of(dut))).collect();
                let plain = rows.iter().find(|r| r.dut == "plain").cloned();
                for row in rows.iter_mut().filter(|r| r.dut != "plain") {
                    row.compare(plain.as_ref(), mhz);
                }
                Cell { key, rows }
            })
            .collect();
        Self { cells }
    }
}

impl Row {
    fn of(dut: &str, trials: &[&Trial]) -> Option<Self> {
        let summary =
            |f: &dyn Fn(&Trial) -> f64| Summary::of(&trials.iter().map(|t| f(t)).collect::<Vec<_>>());
        Some(Self {
            dut: dut.into(),
            gbps: summary(&|t| t.window.gbps)?,
            machine_ns_per_byte: summary(&|t| t.window.machine_ns_per_byte)?,
            gateways_ns_per_byte: summary(&|t| t.window.gateways_ns_per_byte)?,
            softirq_share: summary(&|t| t.window.softirq_share)?,
            bytes_per_buffer: summary(&|t| t.window.bytes_per_buffer)?,
            ratio: None,
            added_ns_per_byte: None,
            added_cycles_per_byte: None,
            resident_kib: trials.iter().flat_map(|t| &t.window.gateways).filter_map(|g| g.resident_kib).max(),
            setup_seconds: summary(&|t| t.setup_seconds)?.median,
        })
    }

    fn compare(&mut self, plain: Option<&Self>, mhz: Option<f64>) {
        let Some(plain) = plain else { return };
        let added = self.machine_ns_per_byte.median - plain.machine_ns_per_byte.median;
        self.ratio = (plain.gbps.median > 0.0).then(|| self.gbps.median / plain.gbps.median);
        self.added_ns_per_byte = Some(added);
        self.added_cycles_per_byte = mhz.map(|mhz| added * mhz / 1e3);
    }
}
