//! Measuring: what the kernel counts, and the record made of it for one trial. Knows neither systems under test nor
//! load generators, only a line with traffic on it.

pub mod counters;
mod meter;
pub mod mlr;
pub mod outer;
pub mod places;
pub mod quota;
pub mod search;
pub mod sieve;
pub mod soaker;
mod watch;
mod window;

pub use meter::{Meter, Used};
pub(crate) use meter::{machine_ticks, ticks_of};
pub(crate) use watch::{Seen, Watch};
pub use window::{Gateway, Sample, TunnelDevice, Window, WindowPlan, measure};
pub(crate) use window::{cpus, headers};
