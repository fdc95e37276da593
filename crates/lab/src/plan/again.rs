//! Two calibrations of one machine: whether they give the same answers. Pure.

use super::answer;
use super::ask::{Ask, Demand};
use super::calm::Agreement;
use super::mix::{LARGEST, Mix};
use super::model::{Model, Path, Way};
use crate::clock::Utc;
use crate::error::LabError;

/// Load of the questions: 100 Mbit/s both ways, at which packets gather little.
const LOAD: f64 = 1e8;
/// A calibration that is made so soon after another, seconds, shows that the machine repeats
/// itself, and nothing of another hour.
pub const APART_AT_LEAST: f64 = 1_700.0;

/// Asks both calibrations the same questions: what a load needs, and how busy it keeps a machine,
/// for each suite, path and some mixes. Returns where they differ most.
pub fn agreement(before: &Model, now: &Model) -> Result<Agreement, LabError> {
    let mut worst = (0.0f64, "all questions".to_string());
    let both = now.suites.iter().filter(|s| before.suite(&s.suite).is_ok());
    for suite in both {
        for path in Path::BOTH.into_iter().filter(|path| now.path(*path, Way::Out).is_ok()) {
            for mix in [Mix::frames(64), Mix::imix().shuffled(), Mix::frames(LARGEST), Mix::tcp()] {
                let what = format!(
                    "{} Mbit/s of {} both ways, {} {}",
                    LOAD / 1e6,
                    mix.name,
                    suite.suite,
                    path.name()
                );
                let ask = Ask { share: 1.0, safety: 1.0, ..Ask::of(&suite.suite, path, mix) };
                let of = |model| answer::need(model, &ask, Demand::full(LOAD));
                let (then, now) = (of(before)?, of(now)?);
                for (question, then, now) in [
                    ("processors that are needed for", then.cores, now.cores),
                    ("processors that are busy with", then.busy_cores, now.busy_cores),
                ] {
                    let differs = then.max(now) / then.min(now).max(f64::MIN_POSITIVE) - 1.0;
                    // What is no number agrees with nothing.
                    let differs = if differs.is_finite() { differs } else { f64::MAX };
                    if differs > worst.0 {
                        worst = (differs, format!("{question} {what}"));
                    }
                }
            }
        }
    }
    Ok(Agreement {
        made: before.made.clone(),
        apart: apart(&before.made, &now.made),
        question: worst.1,
        differs: worst.0,
    })
}

/// Seconds between two dates; 0 where one is none.
fn apart(before: &str, now: &str) -> f64 {
    let of = |text: &str| Utc::parse(text).map(|t| t.as_secs_f64());
    of(before).zip(of(now)).map_or(0.0, |(before, now)| (now - before).abs())
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Verdict, need};
    use super::super::calm::Trust;
    use super::super::sample;
    use super::*;

    /// The sample, half an hour later, on a machine that does everything so many times as slowly.
    fn later(slower: f64) -> Model {
        let mut model = Model { made: "2026-11-22T10:30:00Z".into(), ..sample::model() };
        for path in &mut model.paths {
            path.per_byte *= slower;
            path.packets.iter_mut().chain(&mut path.merged).for_each(|p| p.ns *= slower);
        }
        for burst in model.suites.iter_mut().flat_map(|s| &mut s.bursts) {
            for line in [&mut burst.seal, &mut burst.open] {
                (line.per_packet, line.per_byte) = (line.per_packet * slower, line.per_byte * slower);
            }
        }
        model.forwarding.ns *= slower;
        model
    }

    #[test]
    fn two_calibrations_that_agree_confirm_each_other_and_two_that_differ_leave_no_confident_answer() {
        let before = sample::model();
        let ask = Ask::of("aes128gcm16", Path::Udp, Mix::imix().shuffled());
        let verdict = |m: &Model| need(m, &ask, Demand::full(1e7)).expect("an answer").verdict;
        assert_eq!(verdict(&before), Verdict::Enough);
        for (slower, agree) in
            [(1.0, true), (1.08, true), (0.93, true), (1.2, false), (5.0, false), (0.7, false)]
        {
            let mut now = later(slower);
            let found = agreement(&before, &now).expect("questions");
            assert_eq!((found.made.as_str(), found.apart), ("2026-11-22T10:00:00Z", 1_800.0));
            let expected = slower.max(1.0 / slower) - 1.0;
            assert!((found.differs - expected).abs() < 0.02 * slower.max(1.0), "{slower}: {found:?}");
            now.agreement = Some(found);
            assert_eq!(matches!(now.trust(), Trust::Twice(_)), agree, "{slower}: {:?}", now.trust());
            assert_eq!(verdict(&now), if agree { Verdict::Enough } else { Verdict::CannotTell }, "{slower}");
        }
    }

    #[test]
    fn a_base_that_moved_is_found_though_the_capacity_is_the_same() {
        let (before, mut now) = (sample::model(), sample::model());
        now.paths.iter_mut().for_each(|p| p.packets[0].ns *= 5.0);
        now.paths.iter_mut().for_each(|p| p.packets[1].ns *= 5.0);
        let found = agreement(&before, &now).expect("questions");
        assert!(
            found.differs > 1.0 && found.question.starts_with("processors that are busy with"),
            "{found:?}"
        );
        assert_eq!(apart("soon", "2026-11-22T10:30:00Z"), 0.0);
    }
}
