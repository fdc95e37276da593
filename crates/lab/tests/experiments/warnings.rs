//! Warnings of whole runs, each provoked by what it warns of: systems that are missing or do not
//! start, peers with other keys. And every kind of warning has a test that provokes it. Needs root,
//! nft and iperf3, and the program `ironswan` beside this test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::commands::LAB;
use crate::common::{self, assert_root, common, left, program};
use ironswan_lab::record::Record;
use ironswan_lab::{TunnelsOptions, tunnels};

/// A folder with programs, removed at the end.
struct Programs(PathBuf);

impl Programs {
    fn new(name: &str) -> Self {
        let path = common::out(&format!("programs-{name}"));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A shell script.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        path
    }

    /// A program of this machine.
    fn link(&self, name: &str) {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let found = path.split(':').map(|folder| Path::new(folder).join(name)).find(|p| p.exists());
        symlink(found.unwrap_or_else(|| panic!("{name} is not installed")), self.0.join(name))
            .expect("a link");
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The sentences of the warnings of that kind.
fn said<'a>(record: &'a Record, kind: &str) -> Vec<&'a str> {
    record.warnings.iter().filter(|w| w.kind == kind).map(|w| w.text.as_str()).collect()
}

#[test]
fn of_all_systems_those_that_are_missing_or_do_not_start_are_left_out_and_named() {
    let Some(ironswan) = program() else { return };
    assert_root();
    let programs = Programs::new("missing");
    ["ip", "nft", "iperf3", "ethtool", "nsenter"].iter().for_each(|name| programs.link(name));
    programs.script("wg", "echo a key");
    let broken = programs.script("broken", "exit 1");
    let folder = common::out("warnings-missing");
    let arguments = ["compare", "--smoke", "--dut", "all", "--sizes", "512", "--congestion", "reno", "--out"];
    let run = Command::new(LAB)
        .args(arguments)
        .arg(&folder)
        .env("IRONSWAN", ironswan)
        .env("PATH", &programs.0)
        .env("WIREGUARD_GO", broken)
        .env_remove("WIREGUARD_GO_TAILSCALE")
        .output()
        .expect("the program");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let record = fs::read(folder.join("run.json")).expect("run.json");
    let record: Record = serde_json::from_slice(&record).expect("a record");
    let missing = said(&record, "not-installed");
    let missing =
        missing.iter().find(|text| text.starts_with("wireguard-go-tailscale left out: ")).expect("named");
    assert!(missing.contains("is not installed") && missing.contains("WIREGUARD_GO_TAILSCALE"), "{missing}");
    let ended = said(&record, "left-out");
    let ended =
        ended.iter().find(|text| text.contains("wireguard-go, which did not start: ")).expect("named");
    assert!(ended.starts_with("left out: ") && ended.contains("the process of g1 ended"), "{ended}");
    // The others were measured all the same.
    let systems: BTreeSet<&str> = record.samples.iter().map(|s| s.factors["dut"].as_str()).collect();
    assert!(systems.contains("plain") && !systems.contains("wireguard-go"), "{systems:?}");
    common::recomputed(&folder);
}

/// A gateway whose pre-shared keys are others than the laboratory gave it: two of them agree, its
/// simulated peers refuse it.
#[test]
fn peers_that_refuse_a_gateway_and_tunnels_that_do_not_come_up_are_said() {
    let Some(ironswan) = program() else { return };
    let programs = Programs::new("keys");
    let other_keys = "[ \"$1\" != run ] || find \"$3\" -type f -exec sed -i 's/secret = \"\\(not-\\)*/secret = \"not-/' {} +";
    let script = format!("{other_keys}\nexec {} \"$@\"", ironswan.display());
    let mut common = common("warnings-keys", &["ironswan"]);
    common.dut_options.ironswan = Some(programs.script("ironswan", &script));
    let options =
        TunnelsOptions { common, tunnels: vec![2], simulated: Some(3), ..TunnelsOptions::default() };
    let report = tunnels(options).expect("a run");
    let record = &report.record;
    let text = said(record, "not-all-up");
    assert_eq!(text.len(), 1, "{:?}", record.warnings);
    assert!(
        text[0].starts_with("ironswan with simulated peers: 0 of 3 tunnels were up after 30 s"),
        "{text:?}"
    );
    let text = said(record, "peer-trouble");
    assert!(text.iter().any(|t| t.contains("does not match shared key")), "{:?}", record.warnings);
    common::recomputed(&report.folder);
    assert_eq!(left(&record.commands), [""; 0]);
}

/// Of each kind of warning a test that provokes it: the file and the test.
const PROVOKED: [(&str, &str, &str); 44] = [
    ("accounting", "src/report/accounting.rs", "a_difference_that_nothing_explains_is_said_where_it_is"),
    ("above-plain", "src/experiment/topologies/conclude.rs", "more_than_plain_is_explained_by_the_load"),
    ("backlog-drops", "src/experiment/line/doubts.rs", CALM),
    ("calibration", "src/report/accounting.rs", "a_calibration_beside_other_work_is_a_doubt"),
    ("clock-unstable", GENERAL, CALM),
    (
        "cost-grows",
        "src/experiment/tunnels/mod.rs",
        "a_cost_that_grows_with_the_square_of_the_tunnels_is_said_and_one_in_proportion_is_not",
    ),
    ("debug-build", GENERAL, CALM),
    ("few-packets", "src/experiment/rfc2544.rs", "a_small_loss_of_few_packets_is_a_doubt"),
    ("few-repeats", GENERAL, CALM),
    ("few-ticks", "src/experiment/plan/systems.rs", "loads_of_few_clock_ticks_are_a_doubt"),
    ("fragments", "src/experiment/bench.rs", CROSSES),
    ("frequency-scaling", GENERAL, CALM),
    ("impossible", TRIALS, "what_cannot_be_is_said_and_what_ticks_or_a_gateway_alone_explain_is_not"),
    ("killed", "tests/measuring/line.rs", "a_gateway_that_has_to_be_killed_is_named_and_leaves_nothing"),
    ("left-out", HERE, MISSING),
    ("libipsec-alone", GENERAL, COMPARED),
    ("no-plain", GENERAL, COMPARED),
    ("no-throughput", SEARCHED, SEARCH),
    ("lowered", SEARCHED, LATER),
    ("noisy-repeats", GENERAL, CALM),
    ("not-all-up", HERE, REFUSED),
    ("not-installed", HERE, MISSING),
    ("offload-off", "src/experiment/line/doubts.rs", CALM),
    ("other-load", "src/experiment/campaign_tests.rs", "a_run_on_a_busy_machine_says_so"),
    ("peer-trouble", HERE, REFUSED),
    ("quick", "src/experiment/plan/doubts.rs", "a_hasty_calibration_says_so"),
    ("rate-not-reached", "src/experiment/line/doubts.rs", CALM),
    (
        "saturated",
        "src/experiment/plan/doubts.rs",
        "a_load_is_doubted_that_loses_packets_where_twice_as_many_go",
    ),
    (
        "relay-limited",
        "src/experiment/emulated.rs",
        "a_relay_that_never_waits_or_loses_what_it_should_not_is_said",
    ),
    ("shared-cores", GENERAL, CALM),
    ("short-trials", GENERAL, "trials_shorter_than_those_of_published_figures_are_a_doubt"),
    ("short-window", "src/experiment/line/doubts.rs", CALM),
    ("smoke", GENERAL, CALM),
    ("stolen-time", GENERAL, CALM),
    ("tester-limited", SEARCHED, SEARCH),
    ("unconfirmed", SEARCHED, LATER),
    ("too-short", GENERAL, CALM),
    ("throttled", GENERAL, CALM),
    (
        "unexplained-loss",
        "src/experiment/flood/doubts.rs",
        "a_calm_flood_has_no_doubt_and_each_doubt_has_its_cause",
    ),
    ("unprotected", "src/experiment/bench.rs", CROSSES),
    ("unsteady", "src/experiment/line/doubts.rs", CALM),
    (
        "wide-search",
        "src/experiment/flood/doubts.rs",
        "a_calm_flood_has_no_doubt_and_each_doubt_has_its_cause",
    ),
    (
        "withheld",
        "src/experiment/alone.rs",
        "a_baseline_at_the_tester_s_own_limit_is_withheld_and_one_far_below_is_not",
    ),
    (
        "wrong-packets",
        "src/experiment/tester.rs",
        "wrong_packets_of_any_kind_are_a_doubt_and_late_or_lost_ones_are_none",
    ),
];
const COMPARED: &str =
    "systems_that_are_no_factor_are_doubted_too_and_plain_is_missed_where_it_is_compared_with";
const HERE: &str = "tests/experiments/warnings.rs";
const GENERAL: &str = "src/experiment/general_doubts.rs";
const SEARCHED: &str = "src/experiment/searched.rs";
const TRIALS: &str = "src/experiment/trials_tests.rs";
const CALM: &str = "a_calm_run_has_no_doubt_and_each_doubt_has_its_cause";
const CROSSES: &str = "what_crosses_outside_of_a_systems_protocol_or_in_pieces_is_a_doubt";
const SEARCH: &str = "a_search_that_the_generator_ended_or_that_was_not_finished_is_doubted";
const LATER: &str = "what_was_lowered_and_what_was_not_confirmed_is_said_with_the_reason";
const MISSING: &str = "of_all_systems_those_that_are_missing_or_do_not_start_are_left_out_and_named";
const REFUSED: &str = "peers_that_refuse_a_gateway_and_tunnels_that_do_not_come_up_are_said";

/// The kinds of warnings, each with its variants, from the code that names them.
fn kinds(code: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let names =
        code.split_once("fn kind(").and_then(|(_, rest)| rest.split_once("    }\n")).expect("names").0;
    for line in names.lines().filter_map(|l| l.trim().strip_prefix("Self::")) {
        let (variant, kind) = line.split_once(" => ").expect("a name");
        let variant = variant.split(' ').next().expect("a variant");
        kinds.entry(kind.trim_matches(['"', ','])).or_default().push(variant);
    }
    kinds
}

/// What of `provoked` is not so: kinds without a test, tests without their kind, and files without
/// their test.
fn unprovoked(kinds: &BTreeMap<&str, Vec<&str>>, provoked: &[(&str, &str, &str)]) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    for kind in kinds.keys().filter(|kind| !provoked.iter().any(|(k, ..)| k == *kind)) {
        wrong.push(format!("no test provokes {kind}"));
    }
    for (kind, file, test) in provoked {
        let Some(variants) = kinds.get(kind) else {
            wrong.push(format!("there is no kind {kind}"));
            continue;
        };
        let code = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
        let body = code.split("#[test]").find(|part| part.contains(&format!("fn {test}(")));
        let named = |body: &str| {
            let variant = |v: &&str| body.contains(&format!("Warning::{v}"));
            body.contains(&format!("\"{kind}\"")) || variants.iter().any(variant)
        };
        if !body.is_some_and(named) {
            wrong.push(format!("{kind}: {file} has no test {test} that names it"));
        }
    }
    wrong
}

#[test]
fn every_kind_of_warning_has_a_test_that_provokes_it() {
    let code = include_str!("../../src/report/warning.rs");
    let all = kinds(code);
    assert!(all.len() > 30 && all["noisy-repeats"] == ["NoisyFigures"], "{all:?}");
    assert_eq!(unprovoked(&all, &PROVOKED), [""; 0]);
    // A new kind, one that is gone, and a test that has nothing of it.
    let more = code.replacen(
        "Self::Smoke => \"smoke\"",
        "Self::Smoke => \"smoke\",\n Self::Newer { .. } => \"newer\"",
        1,
    );
    assert_eq!(unprovoked(&kinds(&more), &PROVOKED), ["no test provokes newer"]);
    assert_eq!(unprovoked(&BTreeMap::new(), &PROVOKED[..1]), ["there is no kind accounting"]);
    let wrong = [("smoke", GENERAL, CROSSES), ("smoke", "src/report/accounting.rs", SEARCH)];
    let smoke = BTreeMap::from([("smoke", vec!["Smoke"])]);
    assert_eq!(unprovoked(&smoke, &wrong).len(), 2);
}
