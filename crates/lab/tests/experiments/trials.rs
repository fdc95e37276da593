//! The raw trials of a run: a second program comes from them to the figures of its record, and
//! names what was changed in either. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{self, recompute};
use serde_json::{Value, json};

/// A stored run of `rfc2544` with the trials of both of its systems; the throughput of one is
/// contradicted.
fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/search")
}

const PLAIN: &str = "raw/512-both_ways-plain-0.csv";
const OPENVPN: &str = "raw/512-both_ways-openvpn-0.csv";

/// A copy of it, removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Self {
        let path = common::out(&format!("trials-{name}"));
        fs::create_dir_all(path.join("raw")).expect("a folder");
        for file in ["run.json", PLAIN, OPENVPN] {
            fs::copy(stored().join(file), path.join(file)).expect(file);
        }
        Self(path)
    }

    /// Writes `value` into a column of the first row of a trial.
    fn set(&self, file: &str, trial: usize, column: &str, value: &str) {
        let text = fs::read_to_string(self.0.join(file)).expect("trials");
        let mut lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
        let at = lines[0].iter().position(|c| *c == column).unwrap_or_else(|| panic!("no column {column}"));
        let number = trial.to_string();
        let row = lines.iter_mut().find(|l| l[0] == number).unwrap_or_else(|| panic!("no trial {trial}"));
        assert_ne!(row[at], value, "{column} of trial {trial}");
        row[at] = value;
        let lines: Vec<String> = lines.iter().map(|l| l.join(",")).collect();
        fs::write(self.0.join(file), lines.join("\n") + "\n").expect("trials");
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let path = self.0.join("run.json");
        let mut run = serde_json::from_str(&fs::read_to_string(&path).expect("run.json")).expect("JSON");
        change(&mut run);
        fs::write(path, run.to_string()).expect("run.json");
    }

    /// The second program finds this wrong.
    fn wrong(&self, expected: &str) {
        let (status, said) = recompute(&self.0);
        assert_eq!(status, Some(1), "{expected}: {said}");
        assert!(said.contains(expected), "{expected:?} is not in {said}");
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The sample of a system with these factors.
fn sample<'a>(run: &'a mut Value, dut: &str, factor: &str, value: &str) -> &'a mut Value {
    let samples = run["samples"].as_array_mut().expect("samples");
    let is = |s: &&mut Value| s["factors"]["dut"] == dut && s["factors"][factor] == value;
    samples.iter_mut().find(is).expect("a sample")
}

#[test]
fn a_second_program_comes_from_the_trials_to_the_record() {
    let (status, said) = recompute(&stored());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("20 samples follow from 38 raw trials"), "{said}");
}

#[test]
fn trials_that_cannot_have_been_are_named() {
    for (file, trial, column, value, expected) in [
        (PLAIN, 1, "received", "2305", "trial 1: received 2305 is more than sent 2304"),
        (PLAIN, 1, "sent", "2303", "trial 1: intended 2304 is not sent 2303 and unsent 0"),
        (PLAIN, 1, "lost", "-1", "trial 1: lost -1 is not sent 2304 less received 2304"),
        (PLAIN, 1, "refused", "2305", "trial 1: intended 2304 is not sent"),
        (PLAIN, 2, "intended", "653", "trial 2: intended 653 is more than 21713.9"),
        (PLAIN, 1, "p50_us", "0", "trial 1: half of the packets took 0.0 us"),
        (PLAIN, 1, "p99_us", "10", "trial 1: p90_us 6684.671 is above p99_us 10.0"),
        (PLAIN, 1, "p50_us", "", "trial 1: some percentiles of the latency are known"),
        (PLAIN, 1, "idle_s", "9", "trial 1: processors were idle for 9.0 s"),
        (PLAIN, 1, "busy_s", "0.1", "trial 1: busy_s is 0.1, and 0.2"),
        (PLAIN, 1, "gateways_ns", "9000000000", "trial 1: gateways used 9.0 s"),
        (PLAIN, 1, "duplicates", "-3", "trial 1: duplicates -3 is less than nothing"),
        (PLAIN, 3, "trial", "7", "trials are not numbered from 1"),
        (PLAIN, 3, "began_s", "0.5", "trial 3: it began before"),
        (PLAIN, 1, "received", "many", "no file of trials: ValueError"),
    ] {
        let copy = Copy::new("impossible");
        copy.set(file, trial, column, value);
        copy.wrong(expected);
    }
}

#[test]
fn figures_that_do_not_follow_from_the_trials_are_named() {
    // What was told of a trial, and what it would have said of the load.
    let copy = Copy::new("told");
    copy.set(OPENVPN, 16, "told_loss", "0");
    copy.wrong("trial 16: told_loss is 0.0, and 0.08133971291866027 by its counts");
    // More of the trial at the bound was lost: it carries nothing any more.
    let copy = Copy::new("bound");
    copy.set(OPENVPN, 21, "received", "595");
    copy.set(OPENVPN, 21, "lost", "1");
    copy.wrong("trial 21: told_loss is 0.0");
    copy.wrong("and 10.220711064963819");
    // Less was sent at the bound than the record says.
    let copy = Copy::new("unsent");
    for (column, value) in [("sent", "590"), ("unsent", "6"), ("received", "590")] {
        copy.set(OPENVPN, 21, column, value);
    }
    copy.wrong("kpps is 11.92093432274538 in the record, and 11.80");
    for (part, of, trial, column, value, expected) in [
        ("load", "90%", 26, "received", "1600", "loss is "),
        ("load", "10%", 24, "p99_us", "9000", "p99_us is "),
        ("load", "10%", 24, "offered_pps", "597", "597.0 packets/s were offered, not 10% of 5960.4"),
        ("offered", "1", 27, "outer_packets", "1", "outer_gbps is "),
        ("offered", "flood", 1, "gateways_ns", "1", "gateways_ns is "),
        ("offered", "2", 29, "purpose", "latency", "has 0 trials of it"),
    ] {
        let copy = Copy::new("figure");
        copy.set(OPENVPN, trial, column, value);
        copy.wrong(expected);
        copy.wrong(&format!("{part} {of}"));
    }
    // The same from the other side: the record says something else.
    for (factor, value, measure) in [
        ("loss", "0", "kpps"),
        ("loss", "0.1%", "bound_kpps"),
        ("load", "90%", "loss"),
        ("offered", "1.5", "busy"),
    ] {
        let copy = Copy::new("record");
        copy.change(|run| sample(run, "openvpn", factor, value)["measures"][measure] = json!(0.5));
        copy.wrong(&format!("{measure} is 0.5 in the record, and "));
    }
    let copy = Copy::new("none");
    copy.change(|run| {
        sample(run, "openvpn", "loss", "0")["measures"].as_object_mut().expect("measures").remove("kpps");
    });
    copy.wrong("it has no kpps, and 5.96");
}

#[test]
fn samples_against_the_laws_of_any_measurement_are_named() {
    let with = |name: &str, value: f64, expected: &str| {
        let copy = Copy::new(name);
        copy.change(|run| sample(run, "plain", "load", "10%")["measures"][name] = json!(value));
        copy.wrong(expected);
    };
    with("p50_us", 0.0, "p50_us 0.0 is no time");
    with("max_us", 1.0, "is above max_us 1.0");
    let copy = Copy::new("offered");
    copy.change(|run| {
        for name in ["offered", "carried"] {
            let measure =
                json!({"name": name, "heading": name, "unit": "packets/s", "what": name, "better": "more"});
            run["measures"].as_array_mut().expect("measures").push(measure);
        }
        let measures = &mut sample(run, "plain", "load", "10%")["measures"];
        (measures["offered"], measures["carried"]) = (json!(100.0), json!(130.0));
    });
    copy.wrong("carried 130.0 is more than offered 100.0");
}

#[test]
fn a_throughput_that_its_own_trials_contradict_is_said_or_the_record_is_wrong() {
    let copy = Copy::new("silent");
    copy.change(|run| {
        run["warnings"].as_array_mut().expect("warnings").retain(|w| w["kind"] != "contradicted")
    });
    copy.wrong("openvpn, 512 B, both ways: it loses more at or below its throughput than that allows");
    // A doubt that nothing makes.
    let copy = Copy::new("made-up");
    copy.change(|run| {
        let warning = json!({"kind": "contradicted", "text": "plain, 512 B, both ways: it was not so"});
        run["warnings"].as_array_mut().expect("warnings").push(warning);
    });
    copy.wrong("a warning says that a throughput is contradicted, and no trial does it");
}

#[test]
fn trials_that_are_named_must_be_there_and_a_record_without_any_is_no_lie() {
    let copy = Copy::new("gone");
    fs::remove_file(copy.0.join(PLAIN)).expect("removed");
    copy.wrong("512-both_ways-plain-0.csv: no file of trials: FileNotFoundError");
    let copy = Copy::new("without");
    copy.change(|run| {
        run["samples"].as_array_mut().expect("samples").iter_mut().for_each(|s| s["files"] = json!([]));
    });
    let (status, said) = recompute(&copy.0);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("nothing is kept to check 20 samples with packets against"), "{said}");
}
