//! The experiments of the laboratory, one file each, and what they share: options with defaults, one measured trial.

mod background;
mod beside;
mod budget;
mod campaign;
#[cfg(test)]
mod campaign_tests;
mod compare;
mod compression;
mod demo;
mod doubts;
mod driver;
mod emulated;
mod flood;
mod flood_doubts;
mod fragments;
mod general_doubts;
mod judge;
mod line;
mod lowend;
mod passed;
mod placement;
mod plan;
mod profile;
mod rfc2544;
mod rig;
mod stage;
mod tester;
mod throughput;
mod topologies;
mod transfer;
mod trial;
mod trials;
#[cfg(test)]
mod trials_tests;
mod tunnels;

pub use background::{BackgroundOptions, background};
pub use campaign::{Common, Report, present};
pub use compare::{CompareOptions, compare};
pub use compression::{CompressionOptions, compression};
pub use demo::{DemoOptions, demo};
#[cfg(test)]
pub(crate) use driver::suite::by_name as suite_by_name;
pub use driver::{DriverOptions, driver};
pub use flood::{FloodOptions, FloodReport, flood, flood_command};
pub use fragments::{FragmentsOptions, fragments};
pub use line::{LineOptions, LineReport, compare_runs_command, line, line_command, report_command};
pub use lowend::{LowendOptions, lowend};
pub use placement::Spread;
pub use plan::{CalibrateOptions, PlanOptions, PlanWhat, calibrate, plan_command, verify};
pub use profile::{ProfileOptions, profile};
pub use rfc2544::{Rfc2544Options, Setup as Rfc2544Setup, rfc2544};
pub use throughput::FrameSize;
pub use topologies::{TOPOLOGIES, TopologiesOptions, topologies};
pub use transfer::{TransferOptions, transfer};
pub use tunnels::{TunnelsOptions, tunnels};

#[cfg(test)]
pub(crate) use line::history_note;
