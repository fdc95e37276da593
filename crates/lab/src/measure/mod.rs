//! Measuring: what the kernel counts, and the record made of it for one trial. Knows neither systems under test nor
//! load generators, only a line with traffic on it.

pub mod counters;
mod window;

pub(crate) use window::cpus;
pub use window::{Gateway, Sample, TunnelDevice, Window, WindowPlan, measure};
