//! Tests of the laboratory that need a process of their own: one test at a time, and no run beside
//! it.
//!
//! | module | subject |
//! |---|---|
//! | `cleanup` | nothing is left behind |
//! | `flood` | the generator and the receiver account for every packet |

mod cleanup;
#[path = "../common/mod.rs"]
mod common;
mod flood;
