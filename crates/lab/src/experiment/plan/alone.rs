//! What crypto costs by itself: each suite by size and burst, and with a key for every packet.

use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};

use super::loads::FITTED;
use super::{driver, suite};
use crate::clock;
use crate::error::LabError;
use crate::experiment::driver::work::Work;
use crate::plan::fit;
use crate::plan::model::ManySas;
use crate::plan::suite::{BURSTS, Burst, Linear, SuiteCost};

/// Sizes at which a suite is measured alone, bytes of text.
const TEXTS: [u32; 4] = [64, 400, 800, 1408];
/// Numbers of SAs.
const SAS: [u16; 4] = [1, 100, 1_000, 10_000];

/// As the daemon chooses them when it starts.
pub(super) fn engines() -> Engines {
    let began = clock::now();
    let mut stopwatch = || u64::try_from((clock::now() - began).as_nanos()).unwrap_or(u64::MAX);
    Engines::select(&mut stopwatch, None).engines
}

/// A suite, as the data plane would have it done: bursts that are too small for an engine that
/// works side by side go packet by packet.
pub(super) fn cost(name: &str, engines: &Engines, time: Duration) -> Result<SuiteCost, LabError> {
    let esp = suite::by_name(name)?;
    let linear = |work, burst| -> Result<Linear, LabError> {
        let points = driver::costs(&esp, engines, &TEXTS, (work, burst), time)?;
        // The relative error counts, and neither part is negative: small packets are as many as
        // large ones.
        let (rows, y): (Vec<Vec<f64>>, Vec<f64>) = points.iter().map(|(x, y)| (vec![1.0, *x], *y)).unzip();
        let costs = fit::non_negative(&rows, &y);
        let Some([per_packet, per_byte]) = costs.as_deref().and_then(|c| <[f64; 2]>::try_from(c).ok()) else {
            return Err(LabError::Measurement(format!("{name}: its times are no line")));
        };
        let off = points.iter().map(|(x, y)| (per_packet + per_byte * x - y).powi(2)).sum::<f64>();
        Ok(Linear { per_packet, per_byte, residual: (off / points.len() as f64).sqrt() })
    };
    let burst = |packets| -> Result<Burst, LabError> {
        Ok(Burst { packets, seal: linear(Work::Seal, packets)?, open: linear(Work::Open, packets)? })
    };
    let [one, most_alone, fewest, lanes, full] = BURSTS.map(burst);
    let (fixed_bytes, block) = driver::work::layout(&esp)?;
    let (small, large) = (engines.engine(&esp, 100), engines.engine(&esp, 1400));
    let chosen = |a: EngineId, b: EngineId| if a == b { a.to_string() } else { format!("{a}, {b}") };
    Ok(SuiteCost {
        suite: name.into(),
        engines: chosen(small, large),
        bursts: [one?, most_alone?, fewest?, lanes?, full?],
        fixed_bytes,
        block,
    })
}

/// Measures the cost that is added when every packet has another key, twice: by how far the two lie
/// apart it is unsure.
pub(super) fn many_sas(engines: &Engines, time: Duration, smoke: bool) -> Result<Vec<ManySas>, LabError> {
    let esp = suite::by_name(FITTED[0])?;
    let counts = &SAS[..if smoke { 2 } else { SAS.len() }];
    let mut rounds = [Vec::new(), Vec::new()];
    for round in &mut rounds {
        for sas in counts {
            let mut ns = 0.0;
            for work in Work::BOTH {
                // With one key as with many, every packet has memory of its own.
                ns += driver::spread(&esp, engines, 400, (work, *sas), time / 2)? / 2.0;
            }
            round.push(ns);
        }
    }
    Ok(of_sas(counts, &rounds))
}

/// The mean of two rounds beside what one SA costs.
fn of_sas(counts: &[u16], [first, second]: &[Vec<f64>; 2]) -> Vec<ManySas> {
    let mut all: Vec<ManySas> = Vec::new();
    let (Some(a), Some(b)) = (first.first(), second.first()) else { return all };
    for ((sas, one), other) in counts.iter().zip(first).zip(second) {
        let each = [one - a, other - b];
        // More SAs never cost less: what falls is noise.
        let least = all.last().map_or(0.0, |m| m.added);
        let added = (each.iter().sum::<f64>() / 2.0).max(least);
        let within = Some((each[0] - each[1]).abs() / 2.0);
        all.push(ManySas { sas: u32::from(*sas), added, within });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sas_cost_the_mean_of_two_rounds_and_are_unsure_by_what_these_differ() {
        let found = of_sas(&[1, 100, 1_000], &[vec![200.0, 230.0, 220.0], vec![210.0, 230.0, 228.0]]);
        let of = |n: usize| (found[n].sas, found[n].added, found[n].within);
        assert_eq!([of(0), of(1)], [(1, 0.0, Some(0.0)), (100, 25.0, Some(5.0))]);
        assert_eq!(of(2), (1_000, 25.0, Some(1.0)), "never less");
    }
}
