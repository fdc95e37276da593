//! `lab report` and `lab compare-runs` as commands, on a stored run. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/sizes")
}

/// Exit status, standard output, standard error.
fn lab(arguments: &[&str]) -> (i32, String, String) {
    let done =
        Command::new(env!("CARGO_BIN_EXE_ironswan-lab")).args(arguments).output().expect("ironswan-lab");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code().expect("a status"), text(done.stdout), text(done.stderr))
}

/// A copy of the stored run with a changed record, removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str, change: impl Fn(String) -> String) -> Self {
        let path = std::env::temp_dir().join(format!("ironswan-lab-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let run = fs::read_to_string(stored().join("run.json")).expect("run.json");
        fs::create_dir_all(path.join("raw")).expect("raw");
        for dut in ["plain", "ironswan", "wireguard-go"] {
            for size in [64, 512, 1280, 1518] {
                for repeat in 0..3 {
                    fs::write(path.join(format!("raw/{dut}-{size}-{repeat}.txt")), "").expect("a raw file");
                }
            }
        }
        fs::write(path.join("run.json"), change(run)).expect("run.json");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_stored_run_is_shown_again_as_text_as_json_and_as_a_page() {
    let copy = Copy::new("shown", |run| run);
    let (status, text, errors) = lab(&["report", copy.path()]);
    assert_eq!((status, errors.as_str()), (0, ""));
    for part in ["E6 sizes", "wireguard-go", "818,961", "1,057 Mbit/s", "Warnings", copy.path()] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let (status, json, _) = lab(&["report", "--json", copy.path()]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((status, json["schema"].as_str()), (0, Some("ironswan.lab/1")));
    let (status, csv, _) = lab(&["report", "--csv", copy.path()]);
    assert_eq!(
        (status, csv.lines().next()),
        (0, Some("dut,size,measure,unit,repeats,median,mad,iqr,smallest,largest,ratio,added,withheld"))
    );
    let (status, markdown, _) = lab(&["report", "--markdown", copy.path()]);
    assert!(
        status == 0 && markdown.starts_with("# E6 sizes: ") && markdown.contains("| --- |"),
        "{markdown}"
    );
    let (status, _, errors) = lab(&["report", "--csv", "--json", copy.path()]);
    assert!(status == 2 && errors.contains("cannot be used with"), "{errors}");
    let (status, page, _) = lab(&["report", "--html", copy.path()]);
    assert_eq!((status, page.trim_end()), (0, format!("{}/index.html", copy.path()).as_str()));
    for file in ["index.html", "forwarded.svg"] {
        assert_eq!(
            fs::read(copy.0.join(file)).expect(file),
            fs::read(stored().join(file)).expect(file),
            "{file}"
        );
    }
}

#[test]
fn raw_files_that_are_missing_are_named_and_the_report_is_made_all_the_same() {
    let copy = Copy::new("missing", |run| run);
    for file in ["raw/ironswan-64-0.txt", "raw/plain-512-2.txt"] {
        fs::remove_file(copy.0.join(file)).expect("removed");
    }
    let (status, text, errors) = lab(&["report", copy.path()]);
    assert!(status == 0 && text.contains("818,961"), "{text}");
    assert!(errors.contains("note: raw/ironswan-64-0.txt and 1 more named by the record"), "{errors}");
}

#[test]
fn what_cannot_be_shown_is_refused_with_the_reason_and_status_two() {
    for (name, change, expected) in [
        ("cut", (|run| run[..run.len() / 3].to_string()) as fn(String) -> String, "cut short"),
        ("later", |run| run.replace("ironswan.lab/1", "ironswan.lab/2"), "newer than this program"),
        ("other", |run| run.replace("ironswan.lab/1", "other/1"), "does not know"),
        ("false", |run| run.replace("\"seconds\": 81.5", "\"seconds\": -1"), "run.seconds: minimum 0"),
    ] {
        let copy = Copy::new(name, change);
        for arguments in [vec!["report", copy.path()], vec!["report", "--html", copy.path()]] {
            let (status, text, errors) = lab(&arguments);
            assert_eq!((status, text.as_str()), (2, ""), "{name}");
            assert!(errors.starts_with("ironswan lab report: ") && errors.contains(expected), "{errors}");
        }
        assert!(!copy.0.join("index.html").exists());
    }
    let (status, _, errors) = lab(&["report", "/nonexistent/run"]);
    assert!(status == 2 && errors.contains("/nonexistent/run does not exist"), "{errors}");
}

#[test]
fn two_runs_are_laid_side_by_side_and_others_refused() {
    let (a, b) = (Copy::new("a", |run| run), Copy::new("b", |run| run.replace("6.18.44 #1 SMP", "7.0.1")));
    let (status, text, errors) = lab(&["compare-runs", a.path(), b.path()]);
    assert_eq!((status, errors.as_str()), (0, ""));
    for part in ["only because it was asked for", "kernel: A 6.18.44 #1 SMP; B 7.0.1", "1.000"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let (status, json, _) = lab(&["compare-runs", "--json", a.path(), b.path()]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((status, json["schema"].as_str()), (0, Some("ironswan.compare-runs/1")));
    assert_eq!(json["differences"][0]["what"], "kernel");
    let other = Copy::new("c", |run| run.replace("\"experiment\": \"sizes\"", "\"experiment\": \"driver\""));
    let (status, _, errors) = lab(&["compare-runs", a.path(), other.path()]);
    assert!(status == 2 && errors.contains("only runs of the same experiment"), "{errors}");
}

#[test]
fn the_schema_of_a_record_is_printed_and_an_unknown_name_is_answered_with_the_known_ones() {
    let (status, names, errors) = lab(&["schema"]);
    assert_eq!((status, errors.as_str()), (0, ""));
    for name in names.lines().map(|line| line.split(' ').next().expect("a name")) {
        let (status, text, _) = lab(&["schema", name]);
        let schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &schema["properties"]["schema"]["const"]), (0, &name.into()));
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
    assert_eq!(names.lines().count(), 4, "{names}");
    let (status, text, errors) = lab(&["schema", "ironswan.run/1"]);
    assert_eq!((status, text.as_str()), (2, ""));
    assert!(errors.contains("no schema `ironswan.run/1`; there are ironswan.lab/1,"), "{errors}");
}
