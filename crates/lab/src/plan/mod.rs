//! The planner, E12: what a link needs, what a machine carries, from a model fitted to measurements on this machine. The
//! measurements themselves are an experiment (`experiment::plan`); here is what follows from them.
//!
//! ```text
//! measured cells ── paths ──> model ── answer ──> lines for people, JSON
//!                    └ fit     │ └ store (plan.json)
//!                              └ verified, rates: predictions against measurements
//! all of them ── record ──> the record of a run folder
//! ```

pub mod answer;
pub mod fit;
pub mod fitted;
pub mod gathering;
pub mod links;
pub mod mix;
pub mod model;
pub mod paths;
pub mod rates;
#[cfg(test)]
mod recomputed;
pub mod record;
#[cfg(test)]
pub(crate) mod sample;
pub mod store;
pub mod suite;
pub mod text;
pub mod verified;
