//! Stores the model, and judges whether it says anything about this machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::answer;
use super::ask::{Ask, Demand};
use super::calm::Trust;
use super::mix::Mix;
use super::model::{Class, MODEL_SCHEMA, Model};
use super::sound;
use crate::error::LabError;
use crate::machine::Fingerprint;
use crate::schema;
use crate::text_file;

/// For everybody on this machine.
pub const SYSTEM: &str = "/var/lib/ironswan/plan.json";

/// Models of other machines, by name.
pub const MACHINES: &str = "/var/lib/ironswan/machines";

/// File of a model of some machine: a word is a name in [`MACHINES`], anything else a file.
pub fn of_machine(named: &Path) -> PathBuf {
    let is_word = named.components().count() == 1 && named.extension().is_none() && !named.exists();
    if is_word { Path::new(MACHINES).join(named).with_extension("json") } else { named.to_path_buf() }
}

/// Names of the machines that [`MACHINES`] has models of.
fn machines() -> Vec<String> {
    let all = fs::read_dir(MACHINES).into_iter().flatten().flatten();
    let mut names: Vec<String> = all
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| path.file_stem()?.to_str().map(String::from))
        .collect();
    names.sort();
    names
}

/// File of the model that `--machine` names: a file, a machine, or a class of machines, of which
/// the slowest in [`MACHINES`] answers.
pub fn asked(named: &Path) -> Result<PathBuf, LabError> {
    let place = of_machine(named);
    let class = Class::ALL.into_iter().find(|class| named.to_str() == Some(&class.name()));
    match class.filter(|_| !place.exists()) {
        Some(class) => slowest(class, Path::new(MACHINES)),
        None => Ok(place),
    }
}

/// The model of a class in a folder whose machine needs the most processors for the same load.
fn slowest(class: Class, folder: &Path) -> Result<PathBuf, LabError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = entries.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    // What cannot be read is no model of a machine.
    let models = all.filter_map(|path| read(Some(&path)).ok().map(|model| (path, model)));
    let own = models.filter(|(_, m)| m.system.is_none() && m.class() == class);
    let costs = own.filter_map(|(path, model)| {
        let suite = model.suites.first()?;
        let ask = Ask::of(&suite.suite, super::model::Path::Udp, Mix::imix().shuffled());
        let need = answer::need(&model, &ask, Demand::full(1e9)).ok()?;
        Some((need.scaled_cores, path))
    });
    costs.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, path)| path).ok_or_else(|| {
        LabError::Usage(format!(
            "there is no model of a machine of class {} in {}: `ironswan plan --calibrate` and `--export NAME` on such a machine \
             make one",
            class.name(),
            folder.display()
        ))
    })
}

/// Writes a copy of a model for other machines' questions, never over another file.
pub fn export(model: &Model, to: &Path) -> Result<PathBuf, LabError> {
    let place = of_machine(to);
    if place.exists() {
        return Err(LabError::Usage(format!("--export: {} is there already: name another", place.display())));
    }
    write(model, Some(&place))
}

/// For a user alone.
fn own() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|s| !s.is_empty()).map(PathBuf::from);
    let home =
        || Some(PathBuf::from(std::env::var_os("HOME").filter(|s| !s.is_empty())?).join(".local/state"));
    Some(state.or_else(home)?.join("ironswan/plan.json"))
}

/// The places of `file`, or where everybody looks, and where this user does.
fn places(file: Option<&Path>) -> Vec<PathBuf> {
    match file {
        Some(file) => vec![file.to_path_buf()],
        None => [Some(PathBuf::from(SYSTEM)), own()].into_iter().flatten().collect(),
    }
}

/// The first of the places with which `done` succeeds; its last error when it does with none.
fn first(file: Option<&Path>, done: impl Fn(&Path) -> Result<(), LabError>) -> Result<PathBuf, LabError> {
    let mut last = LabError::Usage("there is no place for the model: name one with --model FILE".into());
    for place in places(file) {
        match done(&place) {
            Ok(()) => return Ok(place),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// More than a model has, bytes.
const ROOM: usize = 256 << 10;
/// No file that is read as a model has more.
const MOST: u64 = 16 << 20;

/// Tries whether a model can be written ([`write()`]), before anything is measured for it. A model
/// that is there stays as it is, and no folder is made.
pub fn check(file: Option<&Path>) -> Result<(), LabError> {
    let possible = |place: &Path| {
        let tried = match place.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => try_beside(place),
        };
        let place = place.display();
        tried.map_err(|e| {
            LabError::Usage(format!(
                "the model cannot be written to {place} ({e}): name another file with --model"
            ))
        })
    };
    first(file, possible).map(drop)
}

/// Writes as much as a model has where the new file will be made, or in the folder in which that
/// one's will.
fn try_beside(place: &Path) -> io::Result<()> {
    let there = place.ancestors().skip(1).find(|folder| folder.exists());
    let new = beside(place);
    let new = there.unwrap_or(Path::new("")).join(new.file_name().unwrap_or_default());
    let tried = fs::write(&new, vec![b' '; ROOM]);
    // There is no file if the write failed.
    let _ = fs::remove_file(&new);
    tried
}

/// Writes a model: to `file`, or where everybody finds it, or where this user does. Returns the
/// place.
pub fn write(model: &Model, file: Option<&Path>) -> Result<PathBuf, LabError> {
    let text = serde_json::to_string_pretty(model)
        .map_err(|e| LabError::Measurement(format!("the model cannot be written as JSON: {e}")))?;
    first(file, |place| put(place, &text))
}

/// File that takes the place of the model once it is whole.
fn beside(place: &Path) -> PathBuf {
    place.with_extension(format!("new-{}", std::process::id()))
}

/// Whole or not at all.
fn put(place: &Path, text: &str) -> Result<(), LabError> {
    let failed = || LabError::io(format!("writing {}", place.display()));
    if let Some(folder) = place.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed())?;
    }
    let new = beside(place);
    fs::write(&new, format!("{text}\n")).and_then(|()| fs::rename(&new, place)).map_err(|e| {
        // Nothing to lose: it is the one that failed.
        let _ = fs::remove_file(&new);
        failed()(e)
    })
}

/// Reads the model of `file`, or of the first place that has one.
pub fn read(file: Option<&Path>) -> Result<Model, LabError> {
    let all = places(file);
    let place = all.iter().find(|p| file.is_some() || p.exists()).ok_or_else(|| {
        LabError::Usage(format!(
            "there is no model of this machine ({SYSTEM}): make one with `ironswan plan --calibrate` (root, two to \
             three minutes)"
        ))
    })?;
    if !place.exists() && place.starts_with(MACHINES) {
        let known = machines();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Err(LabError::Usage(format!(
            "there is no model {}; there are: {known}. `ironswan plan --export NAME` makes one of a calibrated machine",
            place.display()
        )));
    }
    let text = text_file::read(place, MOST).map_err(|e| match e.kind() {
        ErrorKind::InvalidInput | ErrorKind::FileTooLarge => LabError::Usage(format!(
            "{}: a model is a file of at most {} MiB, as `ironswan plan --calibrate` and `--export` write it; name another",
            place.display(),
            MOST >> 20
        )),
        _ => LabError::io(format!("reading {}", place.display()))(e),
    })?;
    parse(&text).map_err(|why| LabError::Usage(format!("{}: {why}", place.display())))
}

fn parse(text: &str) -> Result<Model, String> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?;
    // Every sentence about it may have some of its text.
    if let Some(place) = sound::unprintable(&json) {
        return Err(format!(
            "the text at {place} is none that a calibration writes; get the model again from its machine"
        ));
    }
    let found = json.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if found != MODEL_SCHEMA {
        return Err(format!(
            "its schema is `{found}`, and this program reads {MODEL_SCHEMA}: calibrate again"
        ));
    }
    if let Some(first) = schema::breaches_of::<Model>(&json).first() {
        return Err(format!("it is no model, as it breaks its schema at {first}; calibrate again"));
    }
    let model = serde_json::from_value(json).map_err(|e| format!("it is no model: {e}; calibrate again"))?;
    match sound::beyond_reason(&model) {
        None => Ok(model),
        Some(what) => Err(format!("no machine is like that: {what}; calibrate again")),
    }
}

/// Reasons to doubt a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doubts {
    /// Differences between the machine of the model and this one.
    pub machine: Vec<String>,
    /// Anything else, a sentence each.
    pub others: Vec<String>,
}

/// Compares a model with the machine and the program that ask it.
pub fn doubts(model: &Model, here: &Fingerprint, version: &str) -> Doubts {
    let mut doubts = Doubts::default();
    let m = &model.machine;
    let mut differs = |what: &str, then: String, now: String| {
        if then != now {
            doubts.machine.push(format!("{what}: {then} then, {now} here"));
        }
    };
    differs("processor", m.cpu_model.clone(), here.cpu_model.clone());
    differs("processors", m.cpus.to_string(), here.cpus.to_string());
    differs("instruction sets", m.cpu_flags.join(" "), here.cpu_flags.join(" "));
    if model.program.version != version {
        doubts.others.push(format!(
            "the model was made by version {} and this is {version}: calibrate again",
            model.program.version
        ));
    }
    if m.kernel != here.kernel {
        doubts.others.push("the kernel has changed since the model was made: calibrate again".into());
    }
    if model.program.build != "release" && model.system.is_none() {
        doubts.others.push("the model was made by a debug build: it says nothing about IronSwan".into());
    }
    if let Trust::None(why) = model.trust() {
        doubts.others.push(why);
    }
    doubts.others.extend(model.warnings.iter().map(|w| format!("when the model was made: {}", w.text)));
    doubts
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_model_is_read_back_as_it_was_written() {
        let folder = std::env::temp_dir().join(format!("ironswan-plan-test-{}", std::process::id()));
        let file = folder.join("deep/plan.json");
        let model = sample::model();
        assert_eq!(write(&model, Some(&file)).expect("written"), file);
        assert_eq!(read(Some(&file)).expect("read"), model);
        // Edited: no packet costs less than nothing.
        let bad = fs::read_to_string(&file).expect("text").replacen("\"per_byte\": ", "\"per_byte\": -", 1);
        fs::write(&file, bad).expect("written");
        let e = read(Some(&file)).expect_err("a negative cost").to_string();
        assert!(e.contains("breaks its schema") && e.contains("per_byte: minimum 0"), "{e}");
        fs::remove_dir_all(&folder).expect("removed");
        assert!(matches!(read(Some(&file)), Err(LabError::Io { .. })));
    }

    #[test]
    fn a_place_is_tried_without_a_trace() {
        let folder = std::env::temp_dir().join(format!("ironswan-plan-try-{}", std::process::id()));
        let file = folder.join("plan.json");
        fs::create_dir(&folder).expect("a folder");
        fs::write(&file, "old").expect("written");
        let below = file.join("plan.json");
        for (place, refused) in [
            (&file, false),
            (&folder.join("another.json"), false),
            (&folder.join("deep/down/plan.json"), false),
            (&folder, true),
            (&below, true),
        ] {
            let tried = check(Some(place)).map_err(|e| e.to_string());
            assert_eq!(tried.is_err(), refused, "{tried:?}");
            let named = |e: &String| e.contains(&place.display().to_string()) && e.contains("--model");
            assert!(tried.as_ref().err().is_none_or(named), "{tried:?}");
        }
        assert_eq!(fs::read_to_string(&file).expect("what was there"), "old");
        assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 1);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn what_is_no_model_is_refused_with_what_to_do() {
        for (text, part) in [
            ("", "not JSON"),
            ("{}", "calibrate again"),
            (r#"{"schema": "ironswan.plan-model/9"}"#, "ironswan.plan-model/9"),
            (r#"{"schema": "ironswan.plan-model/2"}"#, "calibrate again"),
            (r#"{"schema": "ironswan.plan-model/4"}"#, "no model"),
            (r#"{"schema": "ironswan.plan-model/4", "made": "\u001b]0;x"}"#, "the text at .made"),
            (r#"{"schema": "\u001b]0;x"}"#, "the text at .schema"),
            (r#"{"schema": "a\u200bb"}"#, "the text at .schema"),
            (&"[".repeat(100_000), "not JSON"),
        ] {
            let e = parse(text).expect_err(text);
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn a_model_made_to_mislead_is_refused() {
        let model = sample::model();
        let refused = |change: &dyn Fn(&mut Model)| {
            let mut bad = model.clone();
            change(&mut bad);
            parse(&serde_json::to_string(&bad).expect("JSON")).err().unwrap_or_default()
        };
        assert_eq!(refused(&|_| ()), "");
        for (change, part) in [
            (&(|m: &mut Model| m.machine.cpus = 1_000_000) as &dyn Fn(&mut Model), "processors"),
            (&|m: &mut Model| m.machine.mhz = Some(1e9), "MHz"),
            (&|m: &mut Model| m.paths[0].packets[2].ns = 1e12, "packet's way"),
            (&|m: &mut Model| m.paths[0].packets.reverse(), "in no order"),
            (&|m: &mut Model| m.paths[1] = m.paths[0].clone(), "times"),
            (&|m: &mut Model| m.handshake.rekey_us = 0.0, "rekey"),
            (&|m: &mut Model| m.tunnel.kib = 1e-9, "KiB of a tunnel"),
            (&|m: &mut Model| m.suites[0].bursts[0].seal.per_byte = 1e9, "crypto"),
            (&|m: &mut Model| m.forwarding.ns = f64::NAN, "calibrate again"),
            (&|m: &mut Model| m.forwarding.ns = -1.0, "breaks its schema"),
        ] {
            let why = refused(change);
            assert!(why.contains(part) && why.contains("calibrate again"), "{part}: {why}");
        }
    }

    #[test]
    fn no_file_and_a_huge_file_are_refused_before_they_are_read() {
        let folder = std::env::temp_dir().join(format!("ironswan-plan-huge-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let huge = folder.join("huge.json");
        fs::File::create(&huge).and_then(|f| f.set_len(1 << 40)).expect("a sparse file");
        for place in [folder.as_path(), &huge, Path::new("/dev/zero")] {
            let e = read(Some(place)).expect_err("no model").to_string();
            assert!(e.contains("at most 16 MiB") && e.contains(&place.display().to_string()), "{e}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_class_is_answered_for_by_its_slowest_machine() {
        let folder = std::env::temp_dir().join(format!("ironswan-plan-class-{}", std::process::id()));
        let put = |name: &str, flags: &[&str], slower: f64| {
            let mut model = sample::model();
            model.machine.cpu_flags = flags.iter().map(ToString::to_string).collect();
            model.paths.iter_mut().flat_map(|p| &mut p.packets).for_each(|p| p.ns *= slower);
            write(&model, Some(&folder.join(name))).expect("written");
        };
        put("a.json", &["aes"], 1.0);
        put("b.json", &["aes"], 2.0);
        put("c.json", &["aes", "vaes"], 9.0);
        put("b.json.old", &["aes"], 3.0);
        fs::write(folder.join("d.json"), "{}").expect("written");
        assert_eq!(slowest(Class::AesNi, &folder).expect("two"), folder.join("b.json"));
        assert_eq!(slowest(Class::Vaes, &folder).expect("one"), folder.join("c.json"));
        let e = slowest(Class::WithoutAes, &folder).expect_err("none").to_string();
        assert!(e.contains("class without-aes") && e.contains("--export NAME"), "{e}");
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(asked(Path::new("xeon")).expect("a machine"), Path::new(MACHINES).join("xeon.json"));
    }

    #[test]
    fn a_word_is_a_machine_and_anything_else_a_file() {
        let of = |text: &str| of_machine(Path::new(text));
        assert_eq!(of("xeon"), Path::new(MACHINES).join("xeon.json"));
        assert_eq!((of("./xeon"), of("xeon.json")), ("./xeon".into(), "xeon.json".into()));
        let folder = std::env::temp_dir().join(format!("ironswan-plan-export-{}", std::process::id()));
        let file = folder.join("copy.json");
        let model = sample::model();
        assert_eq!(export(&model, &file).expect("written"), file);
        assert_eq!(read(Some(&file)).expect("read"), model);
        assert!(export(&model, &file).is_err_and(|e| e.to_string().contains("name another")));
        fs::remove_dir_all(&folder).expect("removed");
        let missing = read(Some(&of("no-such-machine-here"))).expect_err("no model").to_string();
        assert!(missing.contains("no-such-machine-here") && missing.contains("--export"), "{missing}");
    }

    #[test]
    fn another_machine_version_or_kernel_is_noticed() {
        let model = sample::model();
        let here = model.machine.clone();
        assert_eq!(doubts(&model, &here, &model.program.version), Doubts::default());
        let other = Fingerprint { cpus: 64, kernel: "7.0".into(), ..here };
        let d = doubts(&model, &other, "9.9");
        assert!(d.machine.len() == 1 && d.machine[0].contains("64 here"), "{d:?}");
        assert!(d.others.len() == 2 && d.others[0].contains("9.9"), "{d:?}");
    }
}
