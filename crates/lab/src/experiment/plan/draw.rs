//! Loads of a verification that a seed draws when the calibration has long been made: suite, path,
//! sizes, rate, flows and bursts, each by itself. Pure.

use super::loads::{FITTED, KEPT_SUITE, Load};
use crate::plan::mix::{LARGEST, Mix};
use crate::plan::model::{Path, Way};
use crate::relay::Random;

/// A draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// How many loads.
    pub count: u32,
    /// They follow from it.
    pub seed: u64,
}

/// Suites that are drawn from.
pub(super) const SUITES: [&str; 3] = [FITTED[0], FITTED[1], KEPT_SUITE];
/// Rates over a line, packets a second: every one between is as likely by its logarithm.
const RATES: [f64; 2] = [2_000.0, 60_000.0];
/// The same where figures mean nothing.
const SLOW: [f64; 2] = [500.0, 1_500.0];
/// Flows.
const FLOWS: [u32; 6] = [1, 4, 16, 64, 512, 4_096];
/// Packets that come at once: half of the loads are evenly spaced.
const BURSTS: [u32; 6] = [1, 1, 1, 4, 16, 32];
/// Of all loads, those at the highest rate of one gateway, and those of three sizes.
const HIGHEST: f64 = 0.25;
const MIXED: f64 = 0.4;
/// A load that was drawn before is drawn again, at most so often.
const TRIES: u32 = 1_000;

/// Draws them. In its smoke a verification has few rigs, and no search.
pub(super) fn draw(d: Draw, smoke: bool) -> Vec<Load> {
    let mut random = Random::new(d.seed);
    let mut loads: Vec<Load> = Vec::new();
    let key = |load: &Load| (load.name(), load.only().map(|(suite, path)| (suite, path.name())));
    for _ in 0..d.count {
        for _ in 0..TRIES {
            let load = one(&mut random, smoke);
            if !loads.iter().any(|l| key(l) == key(&load)) {
                loads.push(load);
                break;
            }
        }
    }
    loads
}

fn one(random: &mut Random, smoke: bool) -> Load {
    let of = |random: &mut Random, n: usize| random.below(n as u64) as usize;
    let suite = if smoke { SUITES[0] } else { SUITES[of(random, SUITES.len())] };
    let path = Path::BOTH[of(random, 2)];
    let frame = |random: &mut Random| 64 + random.below(u64::from(LARGEST - 64 + 1)) as u32;
    let mix = if random.chance(MIXED) {
        let frames = [0; 3].map(|_| frame(random));
        Mix::rows(&frames.map(|f| f.to_string()).join("-"), frames)
    } else {
        Mix::frames(frame(random))
    };
    let highest = random.chance(HIGHEST) && !smoke;
    let [least, most] = if smoke { SLOW } else { RATES };
    let rate = (least * (most / least).powf(random.unit())).round();
    let (way, flows) = (Way::BOTH[of(random, 2)], FLOWS[of(random, FLOWS.len())]);
    let burst = BURSTS[of(random, BURSTS.len())];
    // A gateway alone has the flows of the calibration, and a full one gathers by itself.
    let (load, flows, burst) = if highest {
        (Load::Highest(mix, way), crate::plan::model::FLOWS, 1)
    } else {
        (Load::Packets(mix, rate), flows, burst)
    };
    Load::Only { suite, path, flows, burst, load: Box::new(load) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_loads_and_another_one_others() {
        let names = |seed| -> Vec<String> {
            let all = draw(Draw { count: 40, seed }, false);
            all.iter().map(|l| format!("{} {:?}", l.name(), l.only())).collect()
        };
        let (one, two) = (names(1), names(2));
        assert_eq!((&one, one.len()), (&names(1), 40));
        assert!(one.iter().all(|n| !two.contains(n)));
        let unique: std::collections::BTreeSet<&String> = one.iter().collect();
        assert_eq!(unique.len(), 40);
    }

    #[test]
    fn every_kind_of_load_is_drawn_and_none_beyond_what_a_calibration_has() {
        let all = draw(Draw { count: 400, seed: 7 }, false);
        let with = |f: &dyn Fn(&Load) -> bool| all.iter().filter(|l| f(l)).count();
        for suite in SUITES {
            for path in Path::BOTH {
                assert!(with(&|l| l.is_for(suite, path)) > 30, "{suite} {path:?}");
            }
        }
        assert!((60..140).contains(&with(&|l| l.alone().is_some())));
        assert!((110..210).contains(&with(&|l| l.mix().parts.len() == 3)));
        for flows in FLOWS {
            let usual = flows == crate::plan::model::FLOWS;
            assert!(with(&|l| l.flows() == (!usual).then_some(flows)) > 20, "{flows}");
        }
        for burst in [None, Some(4), Some(16), Some(32)] {
            assert!(with(&|l| l.burst() == burst) > 20, "{burst:?}");
        }
        let sizes = all.iter().flat_map(|l| l.mix().parts).map(|p| p.frame);
        assert!(sizes.clone().all(|f| (64..=LARGEST).contains(&f)) && sizes.clone().any(|f| f < 150));
        assert!(all.iter().filter_map(Load::offered).all(|r| (RATES[0]..=RATES[1]).contains(&r)));
        let smoke = draw(Draw { count: 4, seed: 7 }, true);
        assert!(smoke.iter().all(|l| l.alone().is_none() && l.only().is_some_and(|(s, _)| s == FITTED[0])));
    }
}
