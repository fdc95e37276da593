//! The planner, E12: what a link needs, what a machine carries, from a model fitted to measurements
//! on this machine. The measurements themselves are an experiment (`experiment::plan`); here is
//! what follows from them.
//!
//! ```text
//! measured cells ── paths ──> model ── answer ──> lines for people, JSON
//!                    └ fit     │ └ store (plan.json)
//!                              └ verified, rates: predictions against measurements
//! all of them ── record ──> the record of a run folder
//! ```
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `model` | costs of packets, and what a machine carries |
//! | `price` | what the model says that a packet of a load costs |
//! | `cost` | cost of a packet, its parts, and how surely each is known |
//! | `fit` | fits of costs to measurements |
//! | `paths` | from measured loads to the costs of a path |
//! | `rates` | highest rates of one gateway |
//! | `gathering` | how packets gather at the highest rates |
//! | `suite` | cost of a suite alone |
//! | `workers` | how capacity grows with processors |
//! | `mix` | sizes of packets, and how many of each |
//! | `links` | links by name |
//! | `ask` | questions to the planner |
//! | `answer` | answers from a model: capacity, and how busy it is at the load |
//! | `answer_tests` | test: answers about a machine whose costs are known |
//! | `calm` | what disturbed a calibration, and how far it can be trusted |
//! | `again` | two calibrations of one machine, compared |
//! | `document` | an answer as a JSON document |
//! | `needs` | the needs of a link, for people |
//! | `text` | other answers for people |
//! | `fitted` | measurements and fit of a calibration, as text for people |
//! | `verified` | predictions against measurements |
//! | `recomputed` | test: a verification, computed by another program |
//! | `record` | the record of a run folder |
//! | `store` | where the model is kept |
//! | `sound` | whether a model can be what it says |
//! | `schemas` | names of the schemas of models, answers and verifications |
//! | `sample` | a model with round numbers, for tests |

pub mod again;
pub mod answer;
#[cfg(test)]
mod answer_tests;
pub mod ask;
pub mod calm;
pub mod cost;
pub mod document;
pub mod fit;
pub mod fitted;
pub mod gathering;
pub mod links;
pub mod mix;
pub mod model;
pub mod needs;
pub mod paths;
pub mod price;
pub mod rates;
#[cfg(test)]
mod recomputed;
pub mod record;
#[cfg(test)]
pub(crate) mod sample;
mod schemas;
pub mod sound;
pub mod store;
pub mod suite;
pub mod text;
pub mod verified;
pub mod workers;
