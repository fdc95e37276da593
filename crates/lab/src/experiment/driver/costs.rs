//! Costs of a packet in a crypto engine, for the planner.

use std::time::Duration;

use ironswan_crypto::engines::Engines;
use ironswan_wire::proposal::EspSuite;

use super::USUAL;
use super::work::{Bench, Check, Data, Dispatch, Work};
use crate::clock;
use crate::error::LabError;

/// Nanoseconds of processor time for a packet of each size, in bursts of so many packets from
/// memory in the cache: what the planner builds on.
pub(in crate::experiment) fn costs(
    suite: &EspSuite,
    engines: &Engines,
    sizes: &[u32],
    (work, burst): (Work, u32),
    at_most: Duration,
) -> Result<Vec<(f64, f64)>, LabError> {
    let memory = (Data::Same, Dispatch::Burst(burst as usize));
    let of = |size: &u32| Ok((f64::from(*size), least(suite, engines, (*size, memory), (work, 1), at_most)?));
    sizes.iter().map(of).collect()
}

/// The same for one size in bursts of 64, where every packet has memory of its own and one of
/// several keys at random.
pub(in crate::experiment) fn spread(
    suite: &EspSuite,
    engines: &Engines,
    size: u32,
    (work, keys): (Work, u16),
    at_most: Duration,
) -> Result<f64, LabError> {
    least(suite, engines, (size, (Data::Unique, USUAL)), (work, keys), at_most)
}

/// The least of some short runs: what the machine does beside it adds, and never takes away.
fn least(
    suite: &EspSuite,
    engines: &Engines,
    (size, memory): (u32, (Data, Dispatch)),
    (work, keys): (Work, u16),
    at_most: Duration,
) -> Result<f64, LabError> {
    let (_, dispatch) = memory;
    let mut bench = Bench::new(suite, engines, size, memory, 20_000, keys)?;
    bench.time(work, dispatch, Check::After, 1, at_most)?;
    let mut least = f64::INFINITY;
    let end = clock::now() + at_most;
    let mut runs = 0;
    while runs < 3 || clock::now() < end {
        least = least.min(bench.time(work, dispatch, Check::After, 256, at_most / 4)?.ns);
        runs += 1;
    }
    Ok(least)
}
