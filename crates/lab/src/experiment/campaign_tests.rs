//! The frame around every experiment, without an experiment: folders, records, doubts about the
//! machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use crate::interrupt;
use crate::record::{Better, Columns, Derived, Factors, Plot, Record, Table, View, Which, factors};
use crate::report::Stored;
use crate::schema::breaches;

const ABOUT: About = About {
    name: "trial",
    number: "E0",
    question: "Does the machinery around experiments work?",
    measures: &[("gbps", "Gb/s", "Gb/s", "what was carried", Better::More)],
    baseline: Some(("dut", "plain")),
};

fn out(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ironlab-campaign-{name}-{}", std::process::id()))
}

fn begin(name: &str) -> Campaign {
    let common = Common { out: Some(out(name)), ..Common::default() };
    Campaign::begin(ABOUT, &common, 4, Duration::ZERO).expect("a campaign")
}

fn conclusion(_: &Record) -> Conclusion {
    let derived = |name: &str, value: f64| Derived {
        name: name.into(),
        factors: Factors::new(),
        value,
        unit: "1".into(),
        how: "by nothing".into(),
    };
    Conclusion {
        derived: vec![derived("sound", 2.0), derived("unsound", f64::NAN)],
        views: vec![
            View::Table(Table {
                title: "Rates".into(),
                only: Factors::new(),
                rows: vec!["dut".into()],
                columns: Columns::Measures(vec![("gbps".into(), Which::Median)]),
            }),
            View::Plot(Plot {
                name: "Rates of+all".into(),
                title: "Rates".into(),
                only: Factors::new(),
                x: "dut".into(),
                x_label: "system".into(),
                y: "gbps".into(),
                which: Which::Median,
                series: vec![],
                log_x: false,
                log_y: false,
            }),
        ],
        history: vec![],
    }
}

/// Three repeats of two systems; between them it waits that long.
fn run(name: &str, pause: Duration) -> Report {
    let mut c = begin(name);
    let file = c.keep("00.txt", b"counted").expect("a file");
    for repeat in 0..3 {
        for (dut, gbps) in [("plain", 4.0), ("x", 2.0)] {
            let gbps = gbps + f64::from(repeat) * 0.1;
            c.sample(factors([("dut", dut)]), repeat, c.elapsed(), &[("gbps", gbps)], vec![file.clone()]);
        }
        interrupt::pause(pause).expect("no signal");
    }
    c.finish(conclusion).expect("a report")
}

#[test]
fn a_finished_run_has_a_record_a_page_and_plots_that_agree() {
    let report = run("whole", Duration::ZERO);
    let json = serde_json::to_value(&report.record).expect("JSON");
    assert_eq!(breaches(&json), [""; 0]);
    assert_eq!(report.record.faults(), [""; 0]);
    // The figure that is NaN is not in the record.
    assert_eq!(report.record.derived.len(), 1);
    let mut files: Vec<String> = fs::read_dir(&report.folder)
        .expect("the folder")
        .map(|e| e.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    files.sort();
    assert_eq!(files, ["index.html", "rates-of-all.svg", "raw", "run.json"]);
    let stored = Stored::read(&report.folder).expect("a run");
    assert_eq!(*stored.record(), report.record);
    assert_eq!(stored.text(80), report.text(80));
    fs::remove_dir_all(&report.folder).expect("removed");
}

#[test]
fn a_run_that_does_not_come_to_its_end_leaves_nothing() {
    let mut c = begin("dropped");
    c.keep("00.txt", b"counted").expect("a file");
    c.sample(factors([("dut", "plain")]), 0, 0.0, &[("gbps", 1.0)], vec![]);
    drop(c);
    assert!(!out("dropped").exists());
}

/// A program that is neither this process nor descends from it, and keeps a processor busy until it
/// is dropped.
struct Busy(Pid);

impl Busy {
    fn start() -> Self {
        // The shell ends at once, so its child is nobody's that we know of; it would end by itself
        // after a minute.
        let script = "timeout 60 sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 & echo $!";
        let done = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output().expect("sh");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        Self(text.trim().parse().ok().and_then(Pid::from_raw).expect("a process id"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // `timeout` passes it on to the loop.
        let _ = kill_process(self.0, Signal::TERM);
    }
}

#[test]
fn a_run_on_a_busy_machine_says_so() {
    let busy = Busy::start();
    let report = run("busy", Duration::from_millis(1100));
    drop(busy);
    let kinds: Vec<&str> = report.record.warnings.iter().map(|w| w.kind.as_str()).collect();
    assert!(kinds.contains(&"other-load"), "{kinds:?}");
    let page = fs::read_to_string(report.folder.join("index.html")).expect("the page");
    assert!(page.contains("<b>other-load</b>"), "the page does not say so");
    fs::remove_dir_all(&report.folder).expect("removed");
}
