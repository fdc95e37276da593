//! Measuring: what the kernel counts, and the record made of it for one trial. Knows neither
//! systems under test nor load generators, only a line with traffic on it.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `search` | highest rate at one allowed loss |
//! | `mlr/` | highest rates at several allowed losses, by one search |
//! | `window` | one measuring window over a line with traffic |
//! | `meter` | CPU time of machine and processes, between two moments |
//! | `cost` | whether processor time is enough for a cost |
//! | `counters` | counters of the kernel |
//! | `places` | places where packets were dropped |
//! | `outer` | packets that crossed the outer link |
//! | `soaker` | a thread that takes the CPU time left over |
//! | `sieve` | a program whose run time shows what is left |
//! | `quota` | holds processes to a part of a core |
//! | `stacks` | samples of what the processors do, by perf |
//! | `watch` | what else the machine did during a run: programs, host, heat |

pub(crate) mod cost;
pub mod counters;
mod meter;
pub mod mlr;
pub mod outer;
pub mod places;
pub mod quota;
pub mod search;
pub mod sieve;
pub mod soaker;
pub(crate) mod stacks;
mod watch;
mod window;

pub use meter::{Meter, Used};
pub(crate) use meter::{account_of, machine_ticks};
pub(crate) use watch::{Seen, Watch};
pub use window::{Gateway, Sample, TunnelDevice, Window, WindowPlan, measure};
pub(crate) use window::{cpus, headers, share};
