//! The laboratory: measurements of IPsec gateways that anyone can repeat, on network namespaces of this machine.
//!
//! ```text
//!   experiment ──> topology (boxes and links; a guard removes them)
//!       │   └────> dut      (systems under test, as processes)
//!       │   └────> load     (traffic)
//!       │   └────> measure  (what the kernel counts)
//!       └────────> report   (run folder, text) <── stats
//! ```
//! An experiment makes trials; a trial is a fresh topology, one system under test, one load and one measuring window. All that
//! is reported comes from the record (`run.json`). Whatever happens, namespaces and processes are removed: by guards on return,
//! error and signals, by the next run after a `kill -9`.
//!
//! Entry points for the program: [`line_command`] (`ironswan lab line`), [`report_command`] (`ironswan lab report`) and [`demo`] (`ironswan demo`); [`line()`] for those who
//! want the record. A gateway is always judged as a process, so nothing here imports the daemon.

#![forbid(unsafe_code)]

mod clock;
pub mod dut;
mod error;
mod experiment;
mod interrupt;
pub mod load;
pub mod machine;
pub mod measure;
pub mod process;
pub mod report;
pub mod stats;
pub mod topology;

pub use error::{LabError, LogTail, Remedy};
pub use experiment::{DemoOptions, LineOptions, LineReport, demo, line, line_command, report_command};
