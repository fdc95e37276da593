//! How long short runs may take, and how much of an experiment fits into that.

use std::time::Duration;

use super::campaign::Common;
use super::throughput::Care;

/// Time limit of a run with `--quick`, of the minute that it may take in all.
pub(super) const QUICK: Duration = Duration::from_secs(55);
/// Time limit of a run with `--smoke`, of the ten seconds that it may take in all.
pub(super) const SMOKE: Duration = Duration::from_secs(9);

/// Between two trials of packets: the way has to be quiet.
const PAUSE: Duration = Duration::from_millis(350);
/// Fewer trials find nothing.
const LEAST: u32 = 3;

/// The time of a run; `None` when it may take as long as it needs.
pub(super) fn of(common: &Common) -> Option<Duration> {
    common.by_care(None, Some(QUICK), Some(SMOKE))
}

/// How many repeats of `one` fit, from one to `most`; all of them where there is no limit.
pub(super) fn repeats(common: &Common, fixed: Duration, one: Duration, most: u32) -> u32 {
    let Some(time) = of(common) else { return most };
    let fit = time.saturating_sub(fixed).as_secs_f64() / one.as_secs_f64().max(1e-3);
    (fit as u32).clamp(1, most.max(1))
}

/// Limits the trials of each search, and the later ones, so that a run of `searches` searches of a
/// throughput keeps to its time; `others` is the time for all other parts. `None` when fewer trials
/// are left than find anything.
pub(super) fn searches(common: &Common, care: &Care, others: Duration, searches: u32) -> Option<Care> {
    let Some(time) = of(common) else { return Some(care.clone()) };
    let each = time.saturating_sub(others).as_secs_f64() / f64::from(searches.max(1));
    let trials = (each / (care.last + PAUSE.as_secs_f64())) as u32;
    (trials >= LEAST).then(|| shared(care, trials))
}

/// At most so many trials in all: a fourth of them confirms what the others have found.
fn shared(care: &Care, trials: u32) -> Care {
    let later = (trials / 4).min(care.later);
    Care { trials: (trials - later).min(care.trials), later, ..care.clone() }
}

/// The same, but with the fewest trials where that is still too much.
pub(super) fn least(common: &Common, care: &Care, others: Duration, n: u32) -> Care {
    searches(common, care, others, n).unwrap_or_else(|| shared(care, LEAST))
}

/// About what trials of those lengths take, one after the other.
pub(super) fn trials(lengths: &[Duration]) -> Duration {
    lengths.iter().map(|l| *l + PAUSE).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARE: Care = Care {
        losses: vec![],
        exceed: 0.5,
        width: 0.05,
        initial: 0.1,
        last: 0.25,
        sum: 0.5,
        coarse: 1,
        trials: 22,
        later: 8,
    };

    fn common(quick: bool, smoke: bool) -> Common {
        Common { quick, smoke, ..Common::default() }
    }

    #[test]
    fn searches_fit_the_time_of_the_run() {
        let s = Duration::from_secs;
        for (common, time) in [(common(true, false), QUICK), (common(false, true), SMOKE)] {
            for n in 1..=12 {
                let Some(care) = searches(&common, &CARE, s(3), n) else { continue };
                let each = care.trials + care.later;
                let all = f64::from(n * each) * 0.6;
                assert!(all <= (time - s(3)).as_secs_f64() + 1e-9 && each >= LEAST, "{n}: {all}");
                // Where there is room for more than a search, what it finds is confirmed.
                assert!(care.later > 0 || each == LEAST, "{n}: {care:?}");
            }
        }
        assert!(searches(&common(false, true), &CARE, s(3), 12).is_none());
        assert_eq!(least(&common(false, true), &CARE, s(3), 12).trials, LEAST);
        let all = searches(&common(false, false), &CARE, s(500), 100).map(|c| (c.trials, c.later));
        assert_eq!(all, Some((22, 8)));
    }

    #[test]
    fn repeats_fit_the_time_of_the_run() {
        let s = Duration::from_secs;
        assert_eq!(repeats(&common(false, false), s(5), s(100), 5), 5);
        assert_eq!(repeats(&common(true, false), s(5), s(25), 3), 2);
        assert_eq!(repeats(&common(true, false), s(5), s(100), 3), 1);
        assert_eq!(repeats(&common(false, true), s(1), s(1), 3), 3);
    }
}
