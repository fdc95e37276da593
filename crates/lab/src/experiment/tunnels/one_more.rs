//! Costs of tunnels for a gateway that has many, for the planner, of two daemons over their
//! sockets: one more, by the difference between bring-ups, and a rekeying.

use std::time::Duration;

use super::config::Config;
use super::gateways::{Gateway, Ground, Said, System, watch};
use crate::dut::{Suite, ironswan};
use crate::error::LabError;
use crate::plan::model::{Handshake, TunnelCost};
use crate::stats::Summary;
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

/// Time after which a CHILD_SA is rekeyed where rekeyings are measured, seconds.
const REKEY: u32 = 1;
/// Brings few tunnels up, and then many, between two gateways of `program`.
pub(in crate::experiment) fn one_more(
    owner: &Owner,
    program: &str,
    tunnels: [u32; 2],
) -> Result<TunnelCost, LabError> {
    let [few, many] = tunnels;
    for _ in 0..TRIES {
        let up = |tunnels| up(owner, program, tunnels, None).map(|(up, _)| up);
        // Few of them twice: by what their starts differ the cost is unsure.
        if let Some(cost) = added([&up(few)?, &up(few)?, &up(many)?]) {
            return Ok(cost);
        }
    }
    Err(LabError::Measurement("more tunnels took no more memory or time".into()))
}

/// Two daemons with all tunnels up.
struct Daemons {
    gateways: [Gateway; 2],
    at_most: Duration,
    /// Dropped last.
    _ground: Ground,
}

fn up(owner: &Owner, program: &str, tunnels: u32, rekey: Option<u32>) -> Result<(Up, Daemons), LabError> {
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
        rekey,
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
    let up = Up { tunnels, kib: g2.kib(), cpu_ns: (g1.cpu_ns() + g2.cpu_ns()) as f64 / 2.0 };
    Ok((up, Daemons { gateways: [g1, g2], at_most, _ground: ground }))
}

/// Rekeys so many tunnels of two gateways of `program` in rounds, as their configuration says, and
/// takes the processor time of both daemons. The first round, among the last tunnels that come up,
/// is left out.
pub(in crate::experiment) fn rekeyed(
    owner: &Owner,
    program: &str,
    (tunnels, rounds): (u32, u32),
    setup_us: f64,
) -> Result<Handshake, LabError> {
    let (_, mut daemons) = up(owner, program, tunnels, Some(REKEY))?;
    let at_most = daemons.at_most + Duration::from_secs(u64::from(REKEY)) * 10 * rounds;
    let [g1, g2] = &mut daemons.gateways;
    let mut marks = Vec::new();
    for round in 1..=u64::from(rounds) {
        let wanted = u64::from(tunnels) * (round + 1);
        // The initiator says each rekeying once.
        let made = |said: &[Said]| Ok(said.first().map_or(0, |s| s.established));
        let seen = watch(&mut [&mut *g1, &mut *g2], wanted, at_most, made)?;
        let reached = seen.moments.last().map_or(0, |m| m.up);
        if reached < wanted {
            return Err(LabError::Measurement(format!("{reached} of {wanted} CHILD_SAs were made in time")));
        }
        marks.push((reached, (g1.cpu_ns() + g2.cpu_ns()) as f64 / 2.0));
    }
    of_rounds(&marks, setup_us).ok_or_else(|| LabError::Measurement("rekeyings took no time".into()))
}

/// From the CHILD_SAs made and the processor time used at the ends of the rounds.
fn of_rounds(marks: &[(u64, f64)], setup_us: f64) -> Option<Handshake> {
    let each = |pair: &[(u64, f64)]| {
        (pair[1].1 - pair[0].1) / 1e3 / pair[1].0.saturating_sub(pair[0].0).max(1) as f64
    };
    let costs: Vec<f64> = marks.windows(2).map(each).collect();
    let s = Summary::of(&costs).filter(|s| s.median > 0.0)?;
    Some(Handshake {
        what: "PSK, AES-128-GCM, Curve25519; rekeying of a CHILD_SA with what its proposal says".into(),
        setup_us,
        rekey_us: s.median,
        rekey_within_us: Some(s.half_range()),
        samples: marks.last()?.0.saturating_sub(marks.first()?.0) as usize,
    })
}

/// From two bring-ups of few tunnels and one of many. `None` when more tunnels took nothing.
fn added([few, again, many]: [&Up; 3]) -> Option<TunnelCost> {
    let more = f64::from(many.tunnels) - f64::from(few.tunnels);
    let (few_kib, few_ns) = ((few.kib + again.kib) / 2.0, (few.cpu_ns + again.cpu_ns) / 2.0);
    let kib = (many.kib - few_kib) / more;
    let setup_us = (many.cpu_ns - few_ns) / more / 1e3;
    let cost = TunnelCost {
        tunnels: [few.tunnels, many.tunnels],
        kib,
        base_kib: (few_kib - kib * f64::from(few.tunnels)).max(0.0),
        setup_us,
        setup_within_us: Some((few.cpu_ns - again.cpu_ns).abs() / more / 1e3),
    };
    (kib > 0.0 && setup_us > 0.0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_gateways_need_is_not_the_tunnels() {
        let up = |tunnels, kib, cpu_ns| Up { tunnels, kib, cpu_ns };
        let few = [up(100, 12_400.0, 8.5e7), up(100, 12_600.0, 9.5e7)];
        let cost = added([&few[0], &few[1], &up(1_100, 37_500.0, 4.9e8)]).expect("more");
        assert_eq!((cost.kib, cost.base_kib, cost.setup_us), (25.0, 10_000.0, 400.0));
        assert_eq!(cost.setup_within_us, Some(10.0));
        assert_eq!(added([&few[0], &few[1], &up(1_100, 12_500.0, 9e7)]), None);
    }

    #[test]
    fn a_rekeying_costs_what_a_round_of_them_took_each_daemon() {
        let marks = [(200, 1e8), (300, 1.5e8), (400, 2.1e8), (500, 2.6e8)];
        let found = of_rounds(&marks, 900.0).expect("rounds");
        assert_eq!((found.rekey_us, found.rekey_within_us), (500.0, Some(50.0)));
        assert_eq!((found.samples, found.setup_us), (300, 900.0));
        assert_eq!(of_rounds(&marks[..1], 900.0), None);
        assert_eq!(of_rounds(&[(200, 1e8), (300, 1e8)], 900.0), None);
    }
}
