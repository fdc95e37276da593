//! A calibration as the command makes it: refused on a machine that was disturbed, made once or
//! twice, compared with the one before it, and stored.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CalibrateOptions, calibrate};
use crate::error::LabError;
use crate::interrupt;
use crate::machine::Fingerprint;
use crate::plan::again;
use crate::plan::calm::{REMEDY, Trust};
use crate::plan::model::Model;
use crate::plan::sound;
use crate::plan::store;

/// Calibrates and stores the model at `file`, or where everybody finds it; twice, when a pause
/// between the two is given. A second calibration that contradicts the first is an error, and the
/// model that stays says so with every answer.
pub(super) fn made(
    o: &CalibrateOptions,
    file: Option<&Path>,
    twice: Option<Duration>,
) -> Result<(Model, PathBuf), LabError> {
    // Another system's stands beside those of other machines, by its name.
    let named = o.dut.as_deref().map(|dut| store::of_machine(Path::new(dut)));
    let file = file.or(named.as_deref());
    store::check(file)?;
    let mut before = earlier(o, file);
    if let Some(pause) = twice {
        let first = judged(calibrate(o)?, o)?;
        store::write(&first, file)?;
        before = Some(first);
        interrupt::pause(pause)?;
    }
    let made = judged(calibrate(o)?, o)?;
    let model = compared(made, before.as_ref(), twice.is_some())?;
    let place = store::write(&model, file)?;
    match (model.trust(), o.anyway || o.smoke) {
        (Trust::None(why), false) => Err(LabError::Measurement(why)),
        _ => Ok((model, place)),
    }
}

/// Refuses what no machine is like, and a machine that was disturbed.
fn judged(model: Model, o: &CalibrateOptions) -> Result<Model, LabError> {
    let why = sound::beyond_reason(&model);
    let why = why.or_else(|| model.calm.and_then(|c| c.disturbed()).filter(|_| !(o.anyway || o.smoke)));
    match why {
        None => Ok(model),
        Some(why) => Err(LabError::Measurement(format!(
            "this machine cannot be calibrated now: {why}. {REMEDY}; --anyway keeps such a model, and its answers are all \"cannot \
             tell\""
        ))),
    }
}

/// The calibration that is stored, where it says something of the same machine with the same
/// program.
fn earlier(o: &CalibrateOptions, file: Option<&Path>) -> Option<Model> {
    let model = store::read(file).ok()?;
    let doubts = store::doubts(&model, &Fingerprint::take(), env!("CARGO_PKG_VERSION"));
    let same = doubts.machine.is_empty()
        && model.program.version == env!("CARGO_PKG_VERSION")
        && model.machine.kernel == Fingerprint::take().kernel;
    let sound = model.calm.is_some_and(|c| c.disturbed().is_none()) && !hasty(&model) && !o.smoke;
    let system = model.system.as_ref().map(|s| &s.name) == o.dut.as_ref();
    (same && sound && system).then_some(model)
}

/// Whether a model has figures that mean nothing.
fn hasty(model: &Model) -> bool {
    model.warnings.iter().any(|w| w.kind == "smoke")
}

/// A calibration beside the one before it. One that follows too soon confirms nothing, unless two
/// were asked for; it may contradict.
fn compared(made: Model, before: Option<&Model>, asked: bool) -> Result<Model, LabError> {
    let Some(before) = before else { return Ok(made) };
    let agreement = again::agreement(before, &made)?;
    let contradicts = matches!(Trust::of(&made.made, None, Some(&agreement)), Trust::None(_));
    let counts = asked || contradicts || agreement.apart >= again::APART_AT_LEAST;
    // What two calibrations have confirmed stays so.
    let kept = before.agreement.clone().filter(|_| matches!(before.trust(), Trust::Twice(_)));
    Ok(Model { agreement: if counts { Some(agreement) } else { kept }, ..made })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::calm::Calm;
    use crate::plan::model::System;
    use crate::plan::sample;

    fn at(made: &str, slower: f64) -> Model {
        let mut model = Model { made: made.into(), agreement: None, ..sample::model() };
        for path in &mut model.paths {
            path.packets.iter_mut().chain(&mut path.merged).for_each(|p| p.ns *= slower);
        }
        model
    }

    #[test]
    fn a_second_calibration_confirms_contradicts_or_comes_too_soon() {
        let before = at("2026-11-22T10:00:00Z", 1.0);
        let of = |made: &str, slower, asked| {
            compared(at(made, slower), Some(&before), asked).expect("compared").trust()
        };
        assert!(matches!(of("2026-11-22T10:30:00Z", 1.03, false), Trust::Twice(d) if d < 0.04));
        assert_eq!(of("2026-11-22T10:05:00Z", 1.03, false), Trust::Once);
        assert!(matches!(of("2026-11-22T10:05:00Z", 1.03, true), Trust::Twice(_)));
        for (made, asked) in [("2026-11-22T10:05:00Z", false), ("2026-11-22T11:00:00Z", true)] {
            let Trust::None(why) = of(made, 1.5, asked) else { panic!("two confident answers") };
            assert!(why.starts_with("this machine cannot be calibrated now") && why.contains(made), "{why}");
        }
        assert_eq!(compared(before.clone(), None, true).expect("alone").trust(), Trust::Once);
        // Confirmed before, and again at once.
        let confirmed = Model { agreement: sample::model().agreement, ..before };
        let again = compared(at("2026-11-22T10:05:00Z", 1.0), Some(&confirmed), false).expect("compared");
        assert!(matches!(again.trust(), Trust::Twice(_)), "{:?}", again.trust());
        // A contradiction is no confirmation for the next one.
        let contradicted =
            compared(at("2026-11-22T10:30:00Z", 2.0), Some(&confirmed), false).expect("compared");
        let next = compared(at("2026-11-22T10:35:00Z", 2.0), Some(&contradicted), false).expect("compared");
        assert_eq!(next.trust(), Trust::Once);
        let last = compared(at("2026-11-22T11:05:00Z", 2.0), Some(&next), false).expect("compared");
        assert!(matches!(last.trust(), Trust::Twice(d) if d == 0.0), "{:?}", last.trust());
    }

    #[test]
    fn a_machine_that_was_disturbed_is_refused_unless_such_a_model_is_wanted() {
        let busy = Model { calm: Some(Calm { others: 0.4, stolen: 0.0, spread: None }), ..sample::model() };
        let of = |o: CalibrateOptions| judged(busy.clone(), &o).map(|m| m.trust());
        let why = of(CalibrateOptions::default()).expect_err("disturbed").to_string();
        for part in ["cannot be calibrated now", "other programs used 40.0 %", "--calibrate", "--anyway"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let kept = of(CalibrateOptions { anyway: true, ..CalibrateOptions::default() }).expect("kept");
        assert!(matches!(kept, Trust::None(why) if why.contains("40.0 %")));
        assert!(judged(sample::model(), &CalibrateOptions::default()).is_ok());
        let mut absurd = sample::model();
        absurd.handshake.rekey_us = 0.0;
        let anyway = CalibrateOptions { anyway: true, ..CalibrateOptions::default() };
        assert!(judged(absurd, &anyway).is_err_and(|e| e.to_string().contains("us to rekey")));
    }

    #[test]
    fn only_a_sound_calibration_of_this_machine_is_compared_with() {
        let file = std::env::temp_dir().join(format!("ironswan-plan-earlier-{}.json", std::process::id()));
        let here = |change: fn(&mut Model)| {
            let mut model = Model { machine: Fingerprint::take(), ..sample::model() };
            model.program.version = env!("CARGO_PKG_VERSION").into();
            change(&mut model);
            store::write(&model, Some(&file)).expect("written");
            let found = earlier(&CalibrateOptions::default(), Some(&file));
            std::fs::remove_file(&file).expect("removed");
            found.is_some()
        };
        assert!(here(|_| ()));
        assert!(!here(|m| m.machine.cpus += 1));
        assert!(!here(|m| m.program.version = "0.0.0".into()));
        assert!(!here(|m| m.machine.kernel = "2.2.14".into()));
        assert!(!here(|m| m.calm = None));
        assert!(!here(|m| m.system = Some(System { name: "strongswan".into(), version: "5.9".into() })));
        assert!(!here(|m| m.calm = Some(Calm { others: 0.5, stolen: 0.0, spread: None })));
        assert!(!here(|m| m.warnings = vec![crate::report::Warning::Smoke.record()]));
        assert_eq!(earlier(&CalibrateOptions::default(), Some(&file)), None);
    }
}
