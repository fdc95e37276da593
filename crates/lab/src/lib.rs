//! The laboratory: measurements of IPsec gateways that anyone can repeat, on network namespaces of
//! this machine.
//!
//! ```text
//!   experiment ──> topology (boxes and links; a guard removes them)
//!       │   └────> dut      (systems under test, as processes)
//!       │   └────> load     (traffic)
//!       │   └────> measure  (what the kernel counts)
//!       └────────> report   (run folder, text, plots, page) <── stats
//! ```
//! An experiment makes trials; a trial is a fresh topology, one system under test, one load and one
//! measuring window. All that is reported comes from the record (`run.json`). Whatever happens,
//! namespaces and processes are removed: by guards on return, error and signals, by the next run
//! after a `kill -9`.
//!
//! [`command::main`] is the program `ironswan-lab`; [`line()`] and the other experiments are for
//! those who want the record. A gateway is always judged as a process, so nothing here imports the
//! daemon.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `command/` | the program `ironswan-lab`: its command line |
//! | `experiment/` | the experiments, and what their measurements share |
//! | `topology/` | boxes and links, made of network namespaces |
//! | `relay/` | emulated links |
//! | `dut/` | systems under test |
//! | `load/` | generators and receivers of traffic |
//! | `peer/` | simulated IKE peers |
//! | `measure/` | searches, counters, watches |
//! | `record/` | the record of a run, in one shape |
//! | `report/` | text, page and plots of a record |
//! | `schema/` | JSON Schemas of what is written, derived from the types |
//! | `plan/` | the planner |
//! | `stats` | medians, spreads |
//! | `machine` | fingerprint of the machine |
//! | `process` | child processes |
//! | `interrupt` | Ctrl-C, SIGTERM and SIGHUP |
//! | `clock` | the only place of the laboratory that reads a clock |
//! | `text_file` | reads a file that may be anything |
//! | `error` | errors, sorted by who has to act |

#![forbid(unsafe_code)]

mod clock;
pub mod command;
pub mod dut;
mod error;
mod experiment;
mod interrupt;
pub mod load;
pub mod machine;
pub mod measure;
pub mod peer;
pub mod plan;
pub mod process;
pub mod record;
pub mod relay;
pub mod report;
pub mod schema;
pub mod stats;
mod text_file;
pub mod topology;

pub use error::{LabError, LogTail, Remedy};
pub use experiment::TrafficOptions;
pub use experiment::{
    BackgroundOptions, CompressionOptions, TransferOptions, background, compression, transfer,
};
pub use experiment::{
    CalibrateOptions, Common, DemoOptions, Draw, DriverOptions, FloodOptions, Form, LineOptions, PlanOptions,
    PlanWhat, ProfileOptions, Report, Spread, calibrate, compare_runs_command, demo, driver, flood, line,
    plan_command, present, profile, report_command, schema_command, verify,
};
pub use experiment::{
    CompareOptions, FrameSize, LowendOptions, Rfc2544Options, Rfc2544Setup, compare, lowend, rfc2544,
};
pub use experiment::{CoresOptions, cores};
pub use experiment::{EmulatedOptions, emulated, inside};
pub use experiment::{FragmentsOptions, fragments};
pub use experiment::{TOPOLOGIES, TopologiesOptions, TopologyLoad, topologies};
pub use experiment::{TunnelAuth, TunnelsOptions, tunnels};
