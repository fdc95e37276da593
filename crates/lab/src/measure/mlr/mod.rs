//! MLRsearch (draft-ietf-bmwg-mlrsearch): the throughput at several allowed losses by one search.
//! It knows nothing of generators: it says what to try next and is told how much of it was lost.
//!
//! ```text
//! trials (load, duration, loss) ──classify──> each load, for each goal: lower bound, upper bound, or undecided
//!         ^                                      └──bounds──> the two that matter ──> conditional throughput
//!         └──────────── search: which load, how long ─────────┘
//! ```
//! What a load *is* follows from the trials at it alone ([`Goal::classify`]); the order of trials
//! only decides how soon that is known. Trials shorter than a goal's count little, so coarse and
//! short ones find the place and long ones decide it. RFC 2544's plain search is one setting
//! ([`Goal::rfc2544`]): one long trial at a load decides, and no loss is allowed. Pure.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `search` | the next load to try, and for how long |
//! | `bounds` | lower and upper bound of a load, from its trials |
//! | `simulated` | systems with a known throughput, for tests |

mod bounds;
mod search;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use bounds::{Bounds, Class, Goal, Trial};
pub use search::{Ask, Found, Plan, Search};
