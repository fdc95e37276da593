//! The experiments of the laboratory, one file each, and what they share: options with defaults,
//! one measured trial.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `line/` | `lab line`: TCP across four boxes |
//! | `topologies/` | `lab topologies` |
//! | `transfer` | `lab transfer`: one large file |
//! | `background/` | `lab background`: what traffic leaves of the CPU |
//! | `driver` | `lab driver`: crypto engines alone |
//! | `rfc2544` | `lab rfc2544`: highest rates and delays, by frame size |
//! | `flood/` | `lab flood`: small and large packets at any rate |
//! | `fragments` | `lab fragments`: packets that do not fit the link |
//! | `compare` | `lab compare`: all systems side by side |
//! | `cores/` | `lab cores`: one gateway by workers, queues and flows |
//! | `guest/` | `lab emulated`: instructions, counted in a guest |
//! | `tunnels/` | `lab tunnels`: many tunnels |
//! | `compression` | `lab compression`: IPComp |
//! | `profile` | `lab profile`: time by stage |
//! | `lowend` | `lab lowend`: gateways held to a part of a core |
//! | `plan/` | measurements for `ironswan plan` |
//! | `demo` | `ironswan demo` |
//! | `shown` | prints reports, also of runs made earlier |
//! | `runner` | makes an experiment: rounds over its cells |
//! | `campaign` | opens and ends the measurements of an experiment |
//! | `budget` | how much of an experiment fits into a given time |
//! | `bench` | systems side by side, for trials with packets |
//! | `rig` | a line with a system on it, for trials with packets |
//! | `ways` | sockets, frames and receivers of a trial with packets |
//! | `stage` | a topology with a system on it, for applications |
//! | `tester` | the tester of one gateway alone |
//! | `own_traffic` | what the generator sends of a capture |
//! | `alone` | what the tester carries without a gateway |
//! | `traffic` | captures, IPv6, bursts, threads and sockets of packets |
//! | `throughput` | parts that experiments with packets share |
//! | `searched` | searches the throughput of systems, and confirms it by later trials |
//! | `trials` | every trial with packets, as a CSV |
//! | `passed` | packets that one trial passed, and impossible counts |
//! | `placement` | processors for each part of a flood |
//! | `emulated` | whether the emulated links kept up |
//! | `judge` | verdict of a trial whose generator fell short |
//! | `beside` | a CPU soaker beside any part of an experiment |
//! | `general_doubts` | doubts that any experiment can have |

mod alone;
mod background;
mod bench;
mod beside;
mod budget;
mod campaign;
#[cfg(test)]
mod campaign_tests;
mod compare;
mod compression;
mod cores;
mod demo;
mod driver;
mod emulated;
mod flood;
mod fragments;
mod general_doubts;
mod guest;
mod judge;
mod line;
mod lowend;
mod own_traffic;
mod passed;
mod placement;
mod plan;
mod profile;
mod rfc2544;
mod rig;
mod runner;
mod searched;
mod shown;
mod stage;
mod tester;
mod throughput;
mod topologies;
mod traffic;
mod transfer;
mod trials;
#[cfg(test)]
mod trials_tests;
mod tunnels;
mod ways;

pub use background::{BackgroundOptions, background};
pub use campaign::{Common, Report, present};
pub use compare::{CompareOptions, compare};
pub use compression::{CompressionOptions, compression};
pub use cores::{CoresOptions, cores};
pub use demo::{DemoOptions, demo};
#[cfg(test)]
pub(crate) use driver::suite::by_name as suite_by_name;
pub use driver::{DriverOptions, driver};
pub use flood::{FloodOptions, flood};
pub use fragments::{FragmentsOptions, fragments};
pub use guest::{EmulatedOptions, emulated, inside};
pub use line::{LineOptions, line};
pub use lowend::{LowendOptions, lowend};
pub use placement::Spread;
pub use plan::{CalibrateOptions, Draw, PlanOptions, PlanWhat, calibrate, plan_command, verify};
pub use profile::{ProfileOptions, profile};
pub use rfc2544::{Rfc2544Options, Setup as Rfc2544Setup, rfc2544};
pub use shown::{Form, compare_runs_command, report_command, schema_command};
pub use throughput::FrameSize;
pub use topologies::{TOPOLOGIES, TopologiesOptions, TopologyLoad, topologies};
pub use traffic::TrafficOptions;
pub use transfer::{TransferOptions, transfer};
pub use tunnels::{TunnelAuth, TunnelsOptions, tunnels};
