//! MLRsearch (draft-ietf-bmwg-mlrsearch): the throughput at several allowed losses by one search.
//! The search knows nothing of generators: it names the next load to try, and is told how much of
//! that was lost.
//!
//! ```text
//! trials (load, duration, loss) ──classify──> each load, by goal: lower, upper bound, or undecided
//!         ^                                      └──> the two that matter ──> throughput
//!         └──────────── search: which load, how long ─────────┘
//! ```
//! The class of a load follows from the trials at that load alone ([`Goal::classify`]); the order
//! of trials only decides how soon the class is known. Trials shorter than a goal asks for count
//! little, so coarse and short trials find the place, and long trials decide. RFC 2544's plain
//! search is one setting ([`Goal::rfc2544`]): one long trial at a load decides, and no loss is
//! allowed. What a search has found is confirmed, or lowered, by later trials ([`Confirm`]). Pure.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `search` | the next load to try, and for how long |
//! | `bounds` | lower and upper bound of a load, from its trials |
//! | `confirm` | later trials about what a search has found |
//! | `simulated` | systems with a known throughput, for tests |

mod bounds;
mod confirm;
#[cfg(test)]
mod confirm_tests;
mod search;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use bounds::{Bounds, Class, Goal, Trial};
pub use confirm::{Confirm, Contradiction, Held, Later, Limits};
pub use search::{Ask, Found, Plan, Search};
