//! `ironswan plan` as a command.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{CalibrateOptions, calibrate, verify};
use crate::error::LabError;
use crate::experiment::line::say;
use crate::machine::Fingerprint;
use crate::plan::answer::{self, Ask, Carried};
use crate::plan::mix::Mix;
use crate::plan::model::Model;
use crate::plan::store::{self, Doubts};
use crate::plan::{fitted, links, text};

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanWhat {
    /// A model of this machine.
    Calibrate,
    /// What the model predicts, against measurements.
    Verify,
    /// What this machine carries.
    ThisMachine,
    /// What a link of so many bits per second each way needs.
    Link(f64),
    /// What all links with names need.
    Links,
}

/// Options of the command.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// What is wanted.
    pub what: PlanWhat,
    /// The question; its suite and mix are the first of those below.
    pub ask: Ask,
    /// Suites; those of the model when empty.
    pub suites: Vec<String>,
    /// Mixes; a few usual ones when empty.
    pub mixes: Vec<Mix>,
    /// The model's file.
    pub model: Option<PathBuf>,
    /// How to measure.
    pub calibrate: CalibrateOptions,
    /// One JSON document instead of text.
    pub json: bool,
}

/// Does it; the exit status: 1 when a verification missed its goal.
pub fn plan_command(o: &PlanOptions) -> i32 {
    match done(o) {
        Ok((lines, document, good)) => {
            let text = if o.json {
                serde_json::to_string_pretty(&document)
                    .map(|t| t + "\n")
                    .map_err(|e| LabError::Measurement(format!("the answer cannot be written as JSON: {e}")))
            } else {
                Ok(lines.iter().map(|l| format!("{}\n", l.trim_end())).collect())
            };
            match say("plan", text) {
                0 => i32::from(!good),
                status => status,
            }
        }
        Err(e) => say("plan", Err(e)),
    }
}

/// Lines for people, the document, and whether the answer is yes.
fn done(o: &PlanOptions) -> Result<(Vec<String>, Value, bool), LabError> {
    if o.what == PlanWhat::Calibrate {
        let options = CalibrateOptions { suites: o.suites.clone(), ..o.calibrate.clone() };
        let model = calibrate(&options)?;
        let place = store::write(&model, o.model.as_deref())?;
        let mut lines = text::about(&model, &here(&model));
        lines.extend(fitted::fitted(&model));
        lines.push(format!("measured for {:.0} s; the model is in {}", model.seconds, place.display()));
        let document = serde_json::to_value(&model)
            .map_err(|e| LabError::Measurement(format!("the model cannot be written as JSON: {e}")))?;
        return Ok((lines, document, true));
    }
    let model = store::read(o.model.as_deref())?;
    let doubts = here(&model);
    let mut lines = text::about(&model, &doubts);
    let foreign = !doubts.machine.is_empty();
    if foreign && matches!(o.what, PlanWhat::ThisMachine | PlanWhat::Verify) {
        return Err(LabError::Usage(format!(
            "the model is of another machine ({}) and says nothing about this one: calibrate here with `ironswan plan \
             --calibrate`",
            doubts.machine.join("; ")
        )));
    }
    let suites: Vec<String> = match (&o.what, o.suites.is_empty()) {
        (_, false) => o.suites.clone(),
        (PlanWhat::ThisMachine, true) => model.suites.iter().map(|s| s.suite.clone()).collect(),
        (_, true) => vec!["aes128gcm16".into()],
    };
    let mixes = match (&o.what, o.mixes.is_empty()) {
        (_, false) => o.mixes.clone(),
        (PlanWhat::ThisMachine, true) => {
            vec![Mix::frames(64), Mix::imix().shuffled(), Mix::frames(crate::plan::mix::LARGEST), Mix::tcp()]
        }
        (_, true) => vec![Mix::imix().shuffled()],
    };
    let asks = || suites.iter().flat_map(|s| mixes.iter().map(move |m| (s, m)));
    let ask = |(suite, mix): (&String, &Mix)| Ask { suite: suite.clone(), mix: mix.clone(), ..o.ask.clone() };
    let mut answers = Vec::new();
    let mut extrapolated = Vec::new();
    let good = match o.what {
        PlanWhat::Verify => {
            let v = verify(&model, &o.calibrate)?;
            lines.extend(text::verification(&v));
            let document = serde_json::to_value(&v).map_err(unwritable)?;
            return Ok((lines, document, v.met));
        }
        PlanWhat::ThisMachine => {
            let all = asks().map(|a| answer::carries(&model, &ask(a))).collect::<Result<Vec<_>, _>>()?;
            let rates = |((_, mix), c): ((&String, _), &Carried)| c.both().map(|c| (mix, c.pps));
            let loads: Vec<(&Mix, f64)> = asks().zip(&all).flat_map(rates).collect();
            lines.extend(text::carries(&model, &o.ask, &all, &loads));
            extrapolated = text::extrapolation(&model, &o.ask, None, &loads);
            answers.push(("carries", serde_json::to_value(&all).map_err(unwritable)?));
            true
        }
        PlanWhat::Link(bits) => {
            let mut all = Vec::new();
            for a in asks() {
                let ask = ask(a);
                let need = answer::need(&model, &ask, bits)?;
                lines.push(String::new());
                lines.extend(text::need(&model, &ask, &need));
                extrapolated.extend(text::extrapolation(&model, &ask, Some(&need), &[]));
                all.push(json!({ "suite": ask.suite, "mix": ask.mix, "need": need }));
            }
            answers.push(("needs", Value::from(all)));
            true
        }
        PlanWhat::Links => {
            let mut all = Vec::new();
            for a in asks() {
                let ask = ask(a);
                lines.push(String::new());
                lines.extend(text::links(&model, &ask)?);
                for (name, mbps) in links::LINKS {
                    let need = answer::need(&model, &ask, mbps * 1e6)?;
                    extrapolated.extend(text::extrapolation(&model, &ask, Some(&need), &[]));
                    all.push(json!({ "link": name, "suite": ask.suite, "mix": ask.mix, "need": need }));
                }
            }
            answers.push(("needs", Value::from(all)));
            true
        }
        PlanWhat::Calibrate => true,
    };
    extrapolated.sort();
    extrapolated.dedup();
    let mut document = json!({
        "schema": "ironswan.plan/3",
        "model": { "made": model.made, "version": model.program.version, "machine": model.machine },
        "another_machine": doubts.machine,
        "warnings": doubts.others,
        "extrapolation": extrapolated,
        "asked": {
            "path": o.ask.path, "tunnels": o.ask.tunnels, "rekey_seconds": o.ask.rekey, "setup_storm_seconds": o.ask.storm,
            "share": o.ask.share, "safety": o.ask.safety, "cores": o.ask.cores, "ghz": o.ask.ghz,
        },
        "lines": lines,
    });
    for (name, value) in answers {
        document[name] = value;
    }
    Ok((lines, document, good))
}

fn unwritable(e: serde_json::Error) -> LabError {
    LabError::Measurement(format!("the answer cannot be written as JSON: {e}"))
}

fn here(model: &Model) -> Doubts {
    store::doubts(model, &Fingerprint::take(), env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::model::Path;
    use crate::plan::sample;

    fn options(what: PlanWhat, model: &std::path::Path) -> PlanOptions {
        PlanOptions {
            what,
            ask: Ask::of("aes128gcm16", Path::Udp, Mix::imix().shuffled()),
            suites: vec![],
            mixes: vec![],
            model: Some(model.into()),
            calibrate: CalibrateOptions::default(),
            json: false,
        }
    }

    fn stored(name: &str, model: &Model) -> PathBuf {
        let file = std::env::temp_dir().join(format!("ironswan-plan-{name}-{}.json", std::process::id()));
        store::write(model, Some(&file)).expect("written")
    }

    #[test]
    fn answers_show_their_reasoning_and_name_extrapolation() {
        let model =
            Model { machine: Fingerprint { mhz: Some(2_000.0), ..Fingerprint::take() }, ..sample::model() };
        let file = stored("answers", &model);
        let (lines, document, _) = done(&options(PlanWhat::Link(1e9), &file)).expect("an answer");
        let text = lines.join("\n");
        // Far more packets than the sample's curve has, and larger ones.
        for part in [
            "processors:",
            "the highest rate that was measured cost 1,500 ns at 90,000",
            "one box without a tunnel takes: 700 ns",
            "memory: 1 tunnels x 25.0 KiB",
            "rekeying:",
            "needed:",
            "what dominates:",
            "FreeS/WAN's rule: 17.5",
            "3DES 116 more: 140",
            "extrapolation: more than the 90,000 packets",
            "extrapolation: frames of 594 B",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(document["schema"], "ironswan.plan/3");
        assert!(document["needs"][0]["need"]["cores"].as_f64().is_some_and(|c| c > 0.0), "{document}");
        let (lines, document, _) = done(&options(PlanWhat::Links, &file)).expect("an answer");
        assert!(lines.iter().any(|l| l.contains("400G")), "{lines:?}");
        assert!(document["extrapolation"].as_array().is_some_and(|a| !a.is_empty()), "{document}");
        let (lines, document, _) = done(&options(PlanWhat::ThisMachine, &file)).expect("an answer");
        let of = |who: &str| document["carries"][0][who]["mbps"].as_f64().expect("a rate");
        assert!(of("whole") > 1.5 * of("shared"), "{document}");
        assert!(lines.iter().any(|l| l.contains("3des-sha1")), "{lines:?}");
        assert!(lines.iter().any(|l| l.starts_with("tunnels, share: ") && l.contains("/ 25.0 KiB")), "{lines:?}");
        assert!(lines.iter().any(|l| l.contains("all: tunnels") && l.contains("share: tunnels")), "{lines:?}");
        std::fs::remove_file(file).expect("removed");
    }

    #[test]
    fn a_model_of_another_machine_is_refused_for_this_one_and_warned_of_for_others() {
        let model = Model { machine: Fingerprint { cpus: 999, ..Fingerprint::take() }, ..sample::model() };
        let file = stored("another", &model);
        let e = done(&options(PlanWhat::ThisMachine, &file)).expect_err("another machine");
        assert!(e.to_string().contains("another machine") && e.exit_code() == 2, "{e}");
        let (lines, document, _) = done(&options(PlanWhat::Link(1e9), &file)).expect("an answer");
        assert!(lines.iter().any(|l| l.starts_with("warning: this is another machine")), "{lines:?}");
        assert!(document["another_machine"].as_array().is_some_and(|a| !a.is_empty()));
        let missing =
            PlanOptions { suites: vec!["aes256gcm16".into()], ..options(PlanWhat::Link(1e9), &file) };
        let e = done(&missing).expect_err("not measured");
        assert!(e.to_string().contains("--calibrate --suite aes256gcm16"), "{e}");
        std::fs::remove_file(file).expect("removed");
    }
}
