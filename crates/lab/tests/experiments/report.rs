//! Reports of stored runs: what is made from a record is what it was, damage is named, and a second
//! program comes to the same figures. Needs no root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Published, recompute, results};
use ironswan_lab::LabError;
use ironswan_lab::record::Record;
use ironswan_lab::report::{self, Stored};
use serde_json::{Value, json};

/// The stored runs; each has beside its record what is made from it.
const RUNS: [&str; 3] = ["sizes", "line", "flood"];

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs").join(name)
}

fn json_of(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(stored(name).join("run.json")).expect("run.json")).expect("JSON")
}

/// A folder with this run.json, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, run: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ironlab-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::write(path.join("run.json"), run).expect("run.json");
        Self(path)
    }

    fn error(&self) -> String {
        let e = Stored::read(&self.0).expect_err("not a run");
        assert!(matches!(e, LabError::Usage(_)) && e.exit_code() == 2, "{e}");
        e.to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is made from the stored runs is what was made before. After a change that is meant,
/// `IRONSWAN_SNAPSHOTS=update cargo test -p ironswan-lab --test experiments report` writes it anew;
/// look at the difference.
#[test]
fn reports_pages_and_plots_of_stored_runs_are_what_they_were() {
    let update = std::env::var("IRONSWAN_SNAPSHOTS").is_ok_and(|v| v == "update");
    for name in RUNS {
        let run = Stored::read(&stored(name)).expect("a run");
        let mut files = report::rendered(run.record()).expect("drawn");
        let width = 100;
        // The folder's path is not the same everywhere.
        let text = run.text(width).replace(&stored(name).display().to_string(), name);
        files.push(("report.txt".into(), text));
        for (file, made) in files {
            let path = stored(name).join(&file);
            if update {
                fs::write(&path, &made).expect("a snapshot");
            }
            let before = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(
                made == before,
                "{} is no longer what is made; see how to update it here",
                path.display()
            );
        }
    }
}

#[test]
fn a_page_needs_nothing_but_itself_and_shows_everything() {
    let run = Stored::read(&stored("sizes")).expect("a run");
    let record = run.record();
    let files = report::rendered(record).expect("drawn");
    let page = &files.iter().find(|(name, _)| name == "index.html").expect("the page").1;
    for outside in ["src=", "http://", "https://", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    assert_eq!(files.len(), 5);
    // Whatever a record says is text and never markup.
    assert!(page.contains("Example &lt;CPU&gt; &amp; Co") && page.contains("&lt;while&gt;"));
    for part in [
        record.question.as_str(),
        "shared-cores",
        "1,057 Mbit/s",
        "--out &#39;my run&#39;",
        "ip netns add ironlab-1-a",
        "0.0.20230223",
        "frame sizes",
        "prefers-color-scheme",
        "@media print",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    // A median with the extremes of its repeats, as in the record.
    let figure = &record.figures[0].measures["forwarded"].summary;
    let spread = format!("{} to {}", report::number(figure.min), report::number(figure.max));
    assert!(page.contains(&spread), "{spread}");
    assert!(page.find("Read these figures with care") < page.find("<h2>Results"), "doubts come first");
}

#[test]
fn stored_records_obey_their_schema_and_themselves() {
    for name in RUNS {
        let run = Stored::read(&stored(name)).expect("a run");
        let record = run.record();
        assert_eq!(
            ironswan_lab::schema::breaches(&serde_json::to_value(record).expect("JSON")),
            [""; 0],
            "{name}"
        );
        assert_eq!(record.faults(), [""; 0], "{name}");
        assert!(report::compare(record, record).expect("comparable").differences.is_empty());
    }
}

#[test]
fn every_tag_of_a_page_and_a_plot_is_closed() {
    let runs = RUNS.map(|name| Stored::read(&stored(name)).expect("a run"));
    for (name, text) in runs.iter().map(Stored::record).flat_map(|r| report::rendered(r).expect("drawn")) {
        let mut open: Vec<&str> = Vec::new();
        for tag in text.split('<').skip(1) {
            let tag = tag.split('>').next().expect("a tag");
            let word = tag.trim_start_matches('/').split([' ', '/', '\n']).next().expect("a name");
            match tag {
                _ if tag.starts_with(['!', '?']) || tag.ends_with('/') || word == "meta" => {}
                _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(word), "{name}"),
                _ => open.push(word),
            }
        }
        assert_eq!(open, [""; 0], "{name}");
    }
}

#[test]
fn a_folder_without_a_run_is_refused_with_the_reason() {
    let folder = Folder::with("absent", "");
    fs::remove_file(folder.0.join("run.json")).expect("removed");
    assert!(folder.error().contains("it is not the folder of a run"), "{}", folder.error());
    fs::create_dir(folder.0.join("raw")).expect("raw");
    assert!(folder.error().contains("ended before it was whole"), "{}", folder.error());
    let e = Stored::read(&folder.0.join("nowhere")).expect_err("absent").to_string();
    assert!(e.contains("does not exist"), "{e}");
    fs::write(folder.0.join("file"), "").expect("a file");
    let e = Stored::read(&folder.0.join("file")).expect_err("a file").to_string();
    assert!(e.contains("is not a folder"), "{e}");
}

#[test]
fn a_damaged_record_is_refused_with_the_place_of_the_damage() {
    let whole = json_of("sizes").to_string();
    let cut = Folder::with("cut", &whole[..whole.len() / 2]);
    assert!(cut.error().contains("is damaged") && cut.error().contains("cut short"), "{}", cut.error());
    assert!(Folder::with("list", "[]").error().contains("names no schema"));
    let broken = |name: &str, pointer: &str, value: Value| {
        let mut json = json_of("sizes");
        *json.pointer_mut(pointer).expect(pointer) = value;
        Folder::with(name, &json.to_string()).error()
    };
    let e = broken("type", "/samples/3/repeat", json!("second"));
    assert!(e.contains("run.samples[3].repeat: type"), "{e}");
    let e = broken("file", "/samples/0/files/0", json!("/etc/passwd"));
    assert!(e.contains("run.samples[0].files[0]: pattern"), "{e}");
    // Sound by its schema, and yet not true.
    let e = broken("figure", "/figures/0/measures/gbps/summary/median", json!(77.0));
    assert!(e.contains("the figures do not follow from the samples"), "{e}");
    let e = broken("view", "/views/3/plot/y", json!("speed"));
    assert!(e.contains("plot forwarded shows the measure speed, which is not declared"), "{e}");
}

#[test]
fn records_of_other_programs_and_of_other_versions_are_told_apart() {
    let with = |schema: &str| {
        let mut json = json_of("sizes");
        json["schema"] = json!(schema);
        json["program"]["version"] = json!("9.1.0");
        Folder::with("schema", &json.to_string()).error()
    };
    let e = with("ironswan.lab/2");
    assert!(e.contains("newer than this program") && e.contains("ironswan 9.1.0"), "{e}");
    for older in ["ironswan.run/1", "ironswan.flood/1"] {
        let e = with(older);
        let part = format!(
            "has schema {older}, which was written by an older program; this program reads ironswan.lab/1"
        );
        assert!(e.contains(&part) && e.contains("make the run again"), "{e}");
    }
    let e = with("iperf.lab/1");
    assert!(e.contains("does not know; it reads ironswan.lab/1"), "{e}");
}

/// A run like the stored one, with changes.
fn changed(change: impl Fn(&mut Record)) -> Record {
    let mut record: Record = serde_json::from_value(json_of("sizes")).expect("a record");
    change(&mut record);
    record.figures = ironswan_lab::record::figures(&record.samples, record.baseline.as_ref());
    record
}

#[test]
fn two_runs_are_compared_figure_by_figure_and_what_differs_is_said() {
    let a = changed(|_| {});
    let b = changed(|r| {
        r.machine.kernel = "7.0.0".into();
        r.versions.insert("openssl".into(), "3.0".into());
        r.settings.insert("repeats".into(), "5".into());
        r.samples.retain(|s| s.factors["size"] != "64");
        // The cost doubles; the rate stays within its spread.
        r.samples.iter_mut().filter_map(|s| s.measures.get_mut("cost")).for_each(|v| *v *= 2.0);
    });
    let c = report::compare(&a, &b).expect("a comparison");
    let of = |measure: &str| c.rows.iter().filter(|r| r.measure == measure).collect::<Vec<_>>();
    assert_eq!(
        (of("cost").len(), of("forwarded").len(), c.only_first.len(), c.only_second.len()),
        (9, 9, 3, 0)
    );
    for row in of("cost") {
        assert!((row.ratio.expect("a ratio") - 2.0).abs() < 1e-9, "{row:?}");
        assert_eq!((row.exceeds_spread, row.better), (Some(true), Some(false)), "{row:?}");
    }
    for row in of("forwarded") {
        assert_eq!((row.ratio, row.exceeds_spread, row.better), (Some(1.0), Some(false), None), "{row:?}");
    }
    let what: Vec<&str> = c.differences.iter().map(|d| d.what.as_str()).collect();
    assert_eq!(what, ["kernel", "version of openssl", "repeats"]);
    let text = c.text(100);
    for part in
        ["only because it was asked for", "kernel: A 6.18.44 #1 SMP; B 7.0.0", "* worse", "Only in A: dut"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let one = changed(|r| r.samples.retain(|s| s.repeat == 0));
    let c = report::compare(&a, &one).expect("a comparison");
    assert!(c.rows.iter().all(|r| r.exceeds_spread.is_none()), "one repeat has no spread");
}

#[test]
fn runs_of_different_experiments_are_not_compared() {
    let (a, b) = (changed(|_| {}), changed(|r| r.experiment = "driver".into()));
    let e = report::compare(&a, &b).expect_err("different");
    assert!(e.to_string().contains("`sizes`") && e.to_string().contains("`driver`"), "{e}");
    assert_eq!(e.exit_code(), 2);
}

#[test]
fn a_second_program_comes_to_the_same_figures() {
    for (name, expected) in [
        ("sizes", "48 quantities of 12 figures follow from 36 samples"),
        ("line", "46 quantities of 6 figures follow from 18 samples; and from 18 windows"),
        ("flood", "80 quantities of 35 figures follow from 35 samples; and from 23 trials"),
    ] {
        let (status, said) = recompute(&stored(name));
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// The run of that name in a folder of its own, where `file` has `value` at `pointer`; of a file of
/// lines its first line.
fn falsified(name: &str, file: &str, pointer: &str, value: Value) -> Folder {
    let folder = Folder::with(&format!("recompute{}", pointer.replace('/', "-")), &json_of(name).to_string());
    let raw = stored(name).join("raw");
    if raw.exists() {
        fs::create_dir_all(folder.0.join("raw")).expect("raw");
        for from in fs::read_dir(raw).expect("raw files").map(|f| f.expect("a file")) {
            fs::copy(from.path(), folder.0.join("raw").join(from.file_name())).expect("a copy");
        }
    }
    let path = folder.0.join(file);
    let text = fs::read_to_string(&path).expect(file);
    let (first, rest) =
        if file.ends_with(".jsonl") { text.split_once('\n').expect("lines") } else { (&*text, "") };
    let mut json: Value = serde_json::from_str(first).expect("JSON");
    *json.pointer_mut(pointer).expect(pointer) = value;
    fs::write(path, format!("{json}\n{rest}")).expect("written");
    folder
}

#[test]
fn a_second_program_names_whatever_is_wrong() {
    let (run, plain) = ("run.json", "raw/000-plain.window.json");
    let (tunnel, flood) = ("raw/001-ironswan.window.json", "raw/18-1-free-offload-plain.jsonl");
    for (name, file, pointer, value, expected) in [
        ("sizes", run, "/figures/0/measures/gbps/summary/median", json!(77.0), "gbps: median"),
        ("sizes", run, "/figures/5/measures/cost/summary/iqr", json!(0.0), "cost: iqr"),
        ("sizes", run, "/figures/1/measures/cost/ratio", json!(null), "cost: ratio"),
        ("sizes", run, "/figures/1/measures/cost/added", json!(1.5), "cost: added"),
        ("sizes", run, "/samples/0/measures/gbps", json!(0.0), "gbps: "),
        ("sizes", run, "/samples/4/measures/loss", json!(1.5), "loss: 1.5 is not a share"),
        ("sizes", run, "/samples/4/measures/forwarded", json!(-1.0), "forwarded: -1.0 is less than nothing"),
        ("sizes", run, "/measures/0/name", json!("speed"), "forwarded is not declared"),
        ("line", plain, "/payload_bytes", json!(1), "): gbps is"),
        ("line", plain, "/cpu/idle", json!(0), "): machine_ns_per_byte is"),
        ("line", plain, "/cpu/idle", json!(999_999), "): processors were idle for 9999.99 s"),
        ("line", tunnel, "/gateways/0/cpu_ns", json!(999_000_000_000_u64), "): gateways used 1000"),
        ("line", tunnel, "/gateways/0/resident_kib", json!(99_999_999), "): resident_kib is"),
        ("line", run, "/derived/0/value", json!(0.0), ": added_cycles_per_byte is 0.0"),
        ("flood", flood, "/loss", json!(0.9), ": loss is 0.9"),
        ("flood", flood, "/sent/unsent", json!(1), "is not sent"),
        ("flood", flood, "/received/unique", json!(99_999_999), "is more than sent"),
        ("flood", flood, "/account/unexplained", json!(7), "unexplained is 7"),
        ("flood", flood, "/forwarded_pps", json!(1e9), "loss any, part throughput: kpps is"),
        ("flood", run, "/samples/0/measures/kpps", json!(5.0), "loss 0.5 %: kpps is 5.0"),
        ("flood", run, "/samples/3/measures/of_peak", json!(1.0), "of_peak is 1.0"),
        ("flood", run, "/derived/0/value", json!(6.0), "of_wireguard_go is 6.0"),
    ] {
        let folder = falsified(name, file, pointer, value);
        let (status, said) = recompute(&folder.0);
        assert_eq!(status, Some(1), "{name} {pointer}: {said}");
        assert!(said.contains(expected), "{name} {pointer}: {expected:?} is not in {said}");
    }
    let folder = Folder::with("recompute-none", "{");
    let (status, said) = recompute(&folder.0);
    assert_eq!(status, Some(2), "{said}");
}

#[test]
fn published_figures_follow_from_their_samples() {
    let published = Published::unpacked("report-figures");
    for name in published.names() {
        let (status, said) = recompute(&published.run(&name));
        assert_eq!(status, Some(0), "{name}: {said}");
    }
}

/// Cells of the table of a page below its heading `| heading |`, without the first column.
fn cells<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let rows =
        page.lines().skip_while(|l| !l.starts_with(heading)).skip(2).take_while(|l| l.starts_with('|'));
    rows.map(|l| l.trim_matches('|').split('|').skip(1).map(str::trim).collect()).collect()
}

#[test]
fn published_tables_are_made_again_without_measuring() {
    let published = Published::unpacked("report-tables");
    let page = fs::read_to_string(results().join("README.md")).expect("the page of results");
    let sections: BTreeSet<&str> = page.lines().filter_map(|l| l.strip_prefix("## ")).collect();
    let names = published.names();
    assert_eq!(sections, names.iter().map(String::as_str).collect(), "the page has a section for each run");
    let text = |name: &str| {
        let run = Stored::read(&published.run(name)).expect(name);
        assert_eq!(run.missing_files(), [""; 0], "{name} names raw files, which are not published");
        run.text(100)
    };
    for name in &names {
        assert!(text(name).contains(" ----"), "{name} has no table");
    }
    // What stands in the page on performance: rates and added costs of TCP, rates of UDP in kpps,
    // times of many tunnels.
    let performance = results().join("../performance.md");
    let performance = fs::read_to_string(performance).expect("docs/performance.md");
    for (name, heading, columns) in [
        ("line", "| IronSwan, ESP in UDP |", vec![0, 1, 3]),
        ("flood", "| | plain: 0.5 %, 0.001 % |", vec![0, 1, 2]),
        ("tunnels", "| tunnels | all up, s |", vec![0, 2, 3]),
    ] {
        let (made, rows) = (text(name), cells(&performance, heading));
        assert!(rows.len() >= 3, "{heading} has {} rows", rows.len());
        let made: BTreeSet<&str> = made.split_whitespace().collect();
        for figure in rows.iter().flat_map(|row| columns.iter().map(|c| row[*c])).flat_map(|c| c.split(", "))
        {
            assert!(made.contains(figure), "{name}: {figure} of {heading} is not in the report");
        }
    }
}

#[test]
fn plots_that_documents_show_are_made_again_from_their_runs() {
    let published = Published::unpacked("report-plots");
    let mut plots = 0;
    for shown in fs::read_dir(results()).expect("docs/results").map(|f| f.expect("a file").path()) {
        let file = shown.file_name().expect("a name").to_string_lossy().into_owned();
        let Some((name, plot)) = file.split_once('-').filter(|_| file.ends_with(".svg")) else { continue };
        let run = Stored::read(&published.run(name)).expect(name);
        let made = report::rendered(run.record()).expect("drawn");
        let (_, made) = made.into_iter().find(|(f, _)| f == plot).expect(plot);
        assert!(
            made == fs::read_to_string(&shown).expect("a plot"),
            "{file} is not what is made from the run"
        );
        plots += 1;
    }
    assert!(plots >= 4, "{plots} plots");
}

/// Folders that only the machine of a run has.
const ELSEWHERE: [&str; 4] = ["/tmp/", "/work/", "/root/", "/home/"];

#[test]
fn the_published_runs_are_few_small_and_without_paths_of_a_machine() {
    let files: Vec<PathBuf> =
        fs::read_dir(results()).expect("docs/results").map(|f| f.expect("a file").path()).collect();
    let bytes: u64 = files.iter().map(|f| fs::metadata(f).expect("a file").len()).sum();
    assert!(files.len() <= 20 && bytes <= 1 << 20, "{} files of {bytes} bytes", files.len());
    let published = Published::unpacked("report-paths");
    for name in published.names() {
        let run = fs::read_to_string(published.run(&name).join("run.json")).expect("a record");
        for place in ELSEWHERE {
            assert!(!run.contains(place), "{name} has a path in {place}");
        }
    }
}
