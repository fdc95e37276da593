//! `ironswan plan` as a command.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::made::made;
use super::{CalibrateOptions, Draw, verify};
use crate::clock::{self, Utc};
use crate::error::LabError;
use crate::experiment::shown::say;
use crate::machine::Fingerprint;
use crate::plan::answer;
use crate::plan::ask::{Ask, Demand};
use crate::plan::document::{ANSWER_SCHEMA, Asked, Document, Needed, Source};
use crate::plan::mix::Mix;
use crate::plan::model::Model;
use crate::plan::record::{self, Told};
use crate::plan::sound;
use crate::plan::store::{self, Doubts};
use crate::plan::verified::Verdict;
use crate::plan::{fitted, links, needs, text};
use crate::process;
use crate::record::Record;
use crate::report::{RunFolder, Stored, number, pretty, publish_with};

/// The answer that the user wants.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanWhat {
    /// A model of this machine.
    Calibrate,
    /// Predictions of the model, against measurements.
    Verify,
    /// Rates that this machine carries.
    ThisMachine,
    /// Needs of a link under that load.
    Link(Demand),
    /// A copy of the model, for another machine's questions.
    Export,
    /// Needs of all links that have names.
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
    /// A run of one gateway alone, whose highest rates are predicted as well.
    pub against: Option<PathBuf>,
    /// Loads of a verification that are drawn; those that the program names when absent.
    pub drawn: Option<Draw>,
    /// How to measure.
    pub calibrate: CalibrateOptions,
    /// Pause between two calibrations; one is made when absent.
    pub twice: Option<Duration>,
    /// Folder for the run; none is made when absent.
    pub out: Option<PathBuf>,
    /// Reasons of an answer, too.
    pub why: bool,
    /// File that the model is copied to.
    pub export: Option<PathBuf>,
    /// One JSON document instead of text.
    pub json: bool,
}

/// An answer, as text and as a document.
struct Answer {
    /// For people.
    lines: Vec<String>,
    /// The same for programs, and the file that it is in a folder.
    document: Value,
    file: &'static str,
    /// The model that was made or asked.
    model: Model,
    /// Record from which plots and page are made.
    record: Record,
    /// The answer is yes.
    good: bool,
}

/// Does it; the exit status: 1 when a verification missed its goal.
pub fn plan_command(o: &PlanOptions) -> i32 {
    match kept(o) {
        Ok(answer) => {
            let text = if o.json { pretty(&answer.document) } else { Ok(of_lines(&answer.lines)) };
            match say("plan", text) {
                0 => i32::from(!answer.good),
                status => status,
            }
        }
        Err(e) => say("plan", Err(e)),
    }
}

fn of_lines(lines: &[String]) -> String {
    lines.iter().map(|l| format!("{}\n", l.trim_end())).collect()
}

/// The answer, in a folder too when one is wanted.
fn kept(o: &PlanOptions) -> Result<Answer, LabError> {
    let folder = o.out.as_deref().map(|out| RunFolder::create(Some(out), "plan")).transpose()?;
    let written = done(o).and_then(|answer| {
        if let Some(folder) = &folder {
            let mut files =
                vec![("report.txt", of_lines(&answer.lines)), ("plan.json", pretty(&answer.model)?)];
            if answer.file != "plan.json" {
                files.push((answer.file, pretty(&answer.document)?));
            }
            publish_with(&answer.record, folder, &files)?;
        }
        Ok(answer)
    });
    if written.is_err() {
        folder.iter().for_each(RunFolder::discard);
    }
    written
}

fn done(o: &PlanOptions) -> Result<Answer, LabError> {
    let told = || {
        let started = Utc::from_epoch(clock::since_epoch()).rfc3339();
        Told { command_line: process::own_command_line(), started, seconds: 0.0 }
    };
    if o.what == PlanWhat::Calibrate {
        let options = CalibrateOptions { suites: o.suites.clone(), ..o.calibrate.clone() };
        let (model, place) = made(&options, o.model.as_deref(), o.twice)?;
        let mut lines = text::about(&model, &here(&model));
        lines.extend(fitted::fitted(&model));
        lines.push(format!("measured for {:.0} s; the model is in {}", model.seconds, place.display()));
        let document = serde_json::to_value(&model).map_err(unwritable)?;
        let told = Told { started: model.made.clone(), seconds: model.seconds, ..told() };
        let record = record::calibrated(&model, told);
        return Ok(Answer { lines, document, file: "plan.json", model, record, good: true });
    }
    let model = store::read(o.model.as_deref())?;
    let doubts = here(&model);
    let own = model.program.version == env!("CARGO_PKG_VERSION");
    if let Some(what) = sound::contradiction(&model).filter(|_| own) {
        return Err(LabError::Usage(format!(
            "the model's costs do not follow from its own measurements ({what}): somebody changed it, or another build made it. \
             Calibrate again, or get it again from its machine"
        )));
    }
    if let (PlanWhat::Export, Some(to)) = (&o.what, &o.export) {
        let place = store::export(&model, to)?;
        let name = to.display();
        let lines = vec![format!(
            "the model is in {}: ask it with `ironswan plan --machine {name} --link 1G`",
            place.display()
        )];
        let document = serde_json::to_value(&model).map_err(unwritable)?;
        let record = record::calibrated(&model, told());
        return Ok(Answer { lines, document, file: "plan.json", model, record, good: true });
    }
    let about = text::about(&model, &doubts);
    let asks_need = matches!(o.what, PlanWhat::Link(_));
    // Answers come first: the model stands behind the three lines.
    let mut lines = if asks_need { Vec::new() } else { about.clone() };
    if let (Some(system), PlanWhat::Verify | PlanWhat::ThisMachine) = (&model.system, &o.what) {
        return Err(LabError::Usage(format!(
            "the model is of {}, whose tunnels were not measured: ask it with --link, --links, --sites or --users",
            system.name
        )));
    }
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
        // Another system has one suite.
        (_, true) => match (&model.system, model.suites.first()) {
            (Some(_), Some(own)) => vec![own.suite.clone()],
            _ => vec!["aes128gcm16".into()],
        },
    };
    let mixes = match (&o.what, o.mixes.is_empty()) {
        (_, false) => o.mixes.clone(),
        (PlanWhat::ThisMachine, true) => {
            vec![Mix::frames(64), Mix::imix().shuffled(), Mix::frames(crate::plan::mix::LARGEST), Mix::tcp()]
        }
        (_, true) => vec![Mix::imix().shuffled()],
    };
    let asks: Vec<Ask> = suites
        .iter()
        .flat_map(|suite| mixes.iter().map(move |mix| (suite.clone(), mix.clone())))
        .map(|(suite, mix)| Ask { suite, mix, ..o.ask.clone() })
        .collect();
    let mut extrapolated = Vec::new();
    let (carries, needs, record) = match o.what {
        PlanWhat::Verify => {
            let against = o.against.as_deref().map(Stored::read).transpose()?;
            let v = verify(&model, &o.calibrate, against.as_ref().map(Stored::record), o.drawn)?;
            lines.extend(text::verification(&v));
            let document = serde_json::to_value(&v).map_err(unwritable)?;
            let told = Told { started: v.taken.made.clone(), seconds: v.taken.seconds, ..told() };
            let record = record::verified(&model, &v, told);
            return Ok(Answer {
                lines,
                document,
                file: "verify.json",
                model,
                record,
                good: v.verdict == Verdict::Met,
            });
        }
        PlanWhat::ThisMachine => {
            let all = asks.iter().map(|a| answer::carries(&model, a)).collect::<Result<Vec<_>, _>>()?;
            let rates = asks.iter().zip(&all).flat_map(|(ask, c)| c.both().map(|c| (&ask.mix, c.pps)));
            let loads: Vec<(&Mix, f64)> = rates.collect();
            lines.extend(text::carries(&model, &o.ask, &all, &loads));
            extrapolated = text::extrapolation(&model, &o.ask, None, &loads);
            let record = record::carried(&model, &all, told());
            (Some(all), None, record)
        }
        _ => {
            let links: Vec<(&str, Demand)> = match o.what {
                PlanWhat::Link(demand) => vec![("", demand)],
                _ => links::LINKS.map(|(name, mbps)| (name, Demand::full(mbps * 1e6))).into(),
            };
            let (mut all, mut documents) = (Vec::new(), Vec::new());
            for ask in &asks {
                if o.what == PlanWhat::Links {
                    lines.push(String::new());
                    lines.extend(needs::links(&model, ask)?);
                }
                for (name, demand) in &links {
                    let need = answer::need(&model, ask, *demand)?;
                    let beyond = text::extrapolation(&model, ask, Some(&need), &[]);
                    if o.what != PlanWhat::Links {
                        if asks.len() > 1 {
                            lines.push(format!("{}, mix {}:", ask.suite, ask.mix.name));
                        }
                        lines.extend(needs::summary(&model, ask, &need, &beyond));
                        if o.why {
                            lines.extend(needs::why(&model, ask, &need));
                        }
                    }
                    extrapolated.extend(beyond);
                    let mbps = number(demand.out / 1e6);
                    let name = if name.is_empty() { mbps + " Mbit/s" } else { (*name).into() };
                    let (suite, mix) = (ask.suite.clone(), ask.mix.clone());
                    documents.push(Needed { link: name.clone(), suite, mix, need: need.clone() });
                    all.push((name, ask.clone(), need));
                }
            }
            (None, Some(documents), record::needed(&model, &all, told()))
        }
    };
    if asks_need {
        lines.extend(about);
    }
    extrapolated.sort();
    extrapolated.dedup();
    let extrapolation = extrapolated.iter().map(|why| format!("extrapolation: {why}"));
    let said: Vec<String> = doubts.others.iter().cloned().chain(extrapolation).collect();
    let document = Document {
        schema: ANSWER_SCHEMA.into(),
        model: Source::from(&model),
        another_machine: doubts.machine,
        warnings: doubts.others,
        extrapolation: extrapolated,
        asked: Asked::from(&o.ask),
        lines: lines.clone(),
        carries,
        needs,
    };
    let document = serde_json::to_value(document).map_err(unwritable)?;
    Ok(Answer { lines, document, file: "answer.json", record: record.doubted(&said), model, good: true })
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
    use crate::schema::breaches;

    fn options(what: PlanWhat, model: &std::path::Path) -> PlanOptions {
        PlanOptions {
            what,
            ask: Ask::of("aes128gcm16", Path::Udp, Mix::imix().shuffled()),
            suites: vec![],
            mixes: vec![],
            model: Some(model.into()),
            against: None,
            drawn: None,
            calibrate: CalibrateOptions::default(),
            twice: None,
            out: None,
            why: true,
            export: None,
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
        let Answer { lines, document, .. } =
            done(&options(PlanWhat::Link(Demand::full(1e9)), &file)).expect("an answer");
        let text = lines.join("\n");
        // Far more packets than the sample's curve has, and larger ones.
        for part in [
            "processors:",
            "first runs out processors",
            "sure to 5 %",
            "one box without a tunnel takes: 700 (+-100) ns",
            "memory: 1 tunnels x 25.0 KiB",
            "rekeying:",
            "needed:",
            "what dominates:",
            "FreeS/WAN's rule: 17.5",
            "3DES 116 more: 140",
            "extrapolation: more than the 90,000 packets",
            "frames of 594 B: 64 to 64 B were measured",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(document["schema"], ANSWER_SCHEMA);
        assert_eq!(breaches(&document), [""; 0]);
        assert!(document["needs"][0]["need"]["cores"].as_f64().is_some_and(|c| c > 0.0), "{document}");
        let Answer { lines, document, .. } = done(&options(PlanWhat::Links, &file)).expect("an answer");
        assert!(lines.iter().any(|l| l.contains("400G")), "{lines:?}");
        assert!(document["extrapolation"].as_array().is_some_and(|a| !a.is_empty()), "{document}");
        let Answer { lines, document, .. } = done(&options(PlanWhat::ThisMachine, &file)).expect("an answer");
        assert_eq!(breaches(&document), [""; 0]);
        let mut none = document.clone();
        none.as_object_mut().expect("an object").remove("carries");
        assert_eq!(breaches(&none).len(), 1, "an answer to nothing");
        let of = |who: &str| document["carries"][0][who]["mbps"].as_f64().expect("a rate");
        assert!(of("whole") > 1.5 * of("shared"), "{document}");
        assert!(lines.iter().any(|l| l.contains("3des-sha1")), "{lines:?}");
        assert!(
            lines.iter().any(|l| l.starts_with("tunnels, share: ") && l.contains("/ 25.0 KiB")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|l| l.contains("all: tunnels") && l.contains("share: tunnels")),
            "{lines:?}"
        );
        std::fs::remove_file(file).expect("removed");
    }

    #[test]
    fn an_answer_is_a_run_folder_when_one_is_wanted_and_none_is_left_without_an_answer() {
        let model = Model { machine: Fingerprint::take(), ..sample::model() };
        let file = stored("folder", &model);
        let out = std::env::temp_dir().join(format!("ironswan-plan-out-{}", std::process::id()));
        for (what, plot) in [(PlanWhat::ThisMachine, "carried-imix.svg"), (PlanWhat::Links, "needed.svg")] {
            let o = PlanOptions { out: Some(out.clone()), ..options(what, &file) };
            let answer = kept(&o).expect("an answer");
            let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
            assert_eq!(read("report.txt"), of_lines(&answer.lines));
            assert_eq!(store::read(Some(&out.join("plan.json"))).expect("a model"), model);
            let document: Value = serde_json::from_str(&read("answer.json")).expect("JSON");
            assert_eq!(breaches(&document), [""; 0]);
            assert_eq!(*Stored::read(&out).expect("a run").record(), answer.record);
            assert!(read(plot).contains("<svg") && read("index.html").contains(plot), "{plot}");
            // Never over another.
            assert_eq!(kept(&o).err().map(|e| e.exit_code()), Some(2));
            std::fs::remove_dir_all(&out).expect("removed");
        }
        let wrong = PlanOptions {
            suites: vec!["rot13".into()],
            out: Some(out.clone()),
            ..options(PlanWhat::Links, &file)
        };
        assert!(kept(&wrong).is_err() && !out.exists());
        std::fs::remove_file(file).expect("removed");
    }

    #[test]
    fn a_model_of_this_version_whose_costs_do_not_follow_from_its_measurements_is_refused() {
        let mut model = Model { machine: Fingerprint::take(), ..sample::model() };
        model.program.version = env!("CARGO_PKG_VERSION").into();
        let file = stored("changed", &model);
        let e = done(&options(PlanWhat::Link(Demand::full(1e9)), &file)).err().expect("changed");
        assert!(e.to_string().contains("path udp out") && e.to_string().contains("Calibrate again"), "{e}");
        assert_eq!(e.exit_code(), 2);
        std::fs::remove_file(file).expect("removed");
    }

    #[test]
    fn another_system_answers_for_itself_and_for_no_tunnels() {
        use crate::plan::model::{System, TunnelCost};
        let mut model = Model { machine: Fingerprint::take(), ..sample::model() };
        model.system =
            Some(System { name: "strongswan-kernel".into(), version: "Linux strongSwan 5.9".into() });
        model.suites.truncate(1);
        model.paths.truncate(2);
        model.handshake.rekey_us = 0.0;
        model.tunnel = TunnelCost { kib: 0.0, setup_us: 0.0, ..model.tunnel };
        let file = stored("system", &model);
        let Answer { lines, document, .. } =
            done(&options(PlanWhat::Link(Demand::full(1e7)), &file)).expect("an answer");
        let text = lines.join("\n");
        for part in [
            "enough with strongswan-kernel: ",
            "rekeying and memory of strongswan-kernel were not measured",
            "model of strongswan-kernel (Linux strongSwan 5.9) on ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("memory: ") && breaches(&document).is_empty(), "{text}");
        assert_eq!(document["model"]["system"]["name"], "strongswan-kernel");
        let mut raw = options(PlanWhat::Links, &file);
        raw.ask.path = Path::Raw;
        assert!(done(&raw).err().is_some_and(|e| e.to_string().contains("--encap yes")));
        let e = done(&options(PlanWhat::ThisMachine, &file)).err().expect("no tunnels");
        assert!(e.to_string().contains("ask it with --link"), "{e}");
        std::fs::remove_file(file).expect("removed");
    }

    #[test]
    fn a_model_of_another_machine_is_refused_for_this_one_and_warned_of_for_others() {
        let model = Model { machine: Fingerprint { cpus: 999, ..Fingerprint::take() }, ..sample::model() };
        let file = stored("another", &model);
        let e = done(&options(PlanWhat::ThisMachine, &file)).err().expect("another machine");
        assert!(e.to_string().contains("another machine") && e.exit_code() == 2, "{e}");
        let Answer { lines, document, .. } =
            done(&options(PlanWhat::Link(Demand::full(1e9)), &file)).expect("an answer");
        assert!(lines.iter().any(|l| l.starts_with("warning: this is another machine")), "{lines:?}");
        assert!(document["another_machine"].as_array().is_some_and(|a| !a.is_empty()));
        let missing = PlanOptions {
            suites: vec!["aes256gcm16".into()],
            ..options(PlanWhat::Link(Demand::full(1e9)), &file)
        };
        let e = done(&missing).err().expect("not measured");
        assert!(e.to_string().contains("--calibrate --suite aes256gcm16"), "{e}");
        std::fs::remove_file(file).expect("removed");
    }
}
