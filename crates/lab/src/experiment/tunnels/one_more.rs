//! Cost of one more tunnel for a gateway that has many, for the planner: the difference between two
//! bring-ups.

use std::time::Duration;

use super::config::Config;
use super::gateways::{Ground, Said, System, watch};
use crate::dut::{Suite, ironswan};
use crate::error::LabError;
use crate::plan::model::TunnelCost;
use crate::topology::Owner;

/// The cost of a start varies by more than the cost of a few tunnels. The measurement is repeated
/// up to this many times, until that variation does not hide the tunnels.
const TRIES: usize = 4;

/// A gateway when all its tunnels are up.
struct Up {
    tunnels: u32,
    /// Resident size, KiB.
    kib: f64,
    /// Processor time since its start, nanoseconds, the mean of both ends.
    cpu_ns: f64,
}

/// Brings few tunnels up and then many between two gateways of `program`.
pub(in crate::experiment) fn one_more(
    owner: &Owner,
    program: &str,
    tunnels: [u32; 2],
) -> Result<TunnelCost, LabError> {
    let [few, many] = tunnels;
    for _ in 0..TRIES {
        if let Some(cost) = added([&up(owner, program, few)?, &up(owner, program, many)?]) {
            return Ok(cost);
        }
    }
    Err(LabError::Measurement("more tunnels took no more memory or time".into()))
}

fn up(owner: &Owner, program: &str, tunnels: u32) -> Result<Up, LabError> {
    let (suite, key) = (Suite::default(), ironswan::random_secret()?);
    let config = Config {
        tunnels,
        suite: &suite,
        key: &key,
        credentials: None,
        initiator: 0,
        encap: true,
        hub: false,
        more: "",
    };
    let mut ground = Ground::new(owner, &System::IronSwan(program.to_owned()), &config)?;
    let mut g2 = ground.start_responder(1)?;
    let (mut g1, _) = ground.start(0)?;
    let at_most = Duration::from_secs(30) + Duration::from_millis(10) * tunnels;
    let both = |said: &[Said]| Ok(said.iter().map(|s| s.established).min().unwrap_or(0));
    let seen = watch(&mut [&mut g1, &mut g2], tunnels.into(), at_most, both)?;
    let reached = seen.moments.last().map_or(0, |m| m.up);
    if reached < u64::from(tunnels) {
        return Err(LabError::Measurement(format!("{reached} of {tunnels} tunnels came up")));
    }
    Ok(Up { tunnels, kib: g2.kib(), cpu_ns: (g1.cpu_ns() + g2.cpu_ns()) as f64 / 2.0 })
}

/// `None` when more tunnels took nothing.
fn added([few, many]: [&Up; 2]) -> Option<TunnelCost> {
    let more = f64::from(many.tunnels) - f64::from(few.tunnels);
    let kib = (many.kib - few.kib) / more;
    let setup_us = (many.cpu_ns - few.cpu_ns) / more / 1e3;
    let cost = TunnelCost {
        tunnels: [few.tunnels, many.tunnels],
        kib,
        base_kib: (few.kib - kib * f64::from(few.tunnels)).max(0.0),
        setup_us,
    };
    (kib > 0.0 && setup_us > 0.0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_gateways_need_is_not_the_tunnels() {
        let up = |tunnels, kib, cpu_ns| Up { tunnels, kib, cpu_ns };
        let cost = added([&up(100, 12_500.0, 9e7), &up(1_100, 37_500.0, 4.9e8)]).expect("more");
        assert_eq!((cost.kib, cost.base_kib, cost.setup_us), (25.0, 10_000.0, 400.0));
        assert_eq!(added([&up(100, 12_500.0, 9e7), &up(1_100, 12_500.0, 4.9e8)]), None);
    }
}
