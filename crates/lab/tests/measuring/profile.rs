//! The experiment `profile` in its shortest form. Needs root, iperf3, and the program `ironswan`
//! beside this test.

use std::time::Duration;

use crate::common::{self, common, left, program, recompute, soaked};
use ironswan_lab::dut::Encap;
use ironswan_lab::record::{Factors, Which, factors};
use ironswan_lab::report::Stored;
use ironswan_lab::schema::breaches;
use ironswan_lab::{Common, LabError, ProfileOptions, profile};

#[test]
fn a_profile_tells_every_stage_of_both_sides_and_leaves_nothing_behind() {
    let Some(program) = program() else { return };
    let mut common = common("profile", &[]);
    common.dut_options.ironswan = Some(program);
    let report = profile(ProfileOptions { common, ..ProfileOptions::default() }).expect("a run");
    let record = &report.record;
    assert_eq!(breaches(&serde_json::to_value(record).expect("JSON")), [""; 0]);
    assert_eq!(record.faults(), [""; 0]);
    assert!(Stored::read(&report.folder).expect("a run").record() == record);
    // TCP is carried out by g1 and in by g2; floods may starve a gateway on a busy machine.
    for side in ["g1 out", "g2 in"] {
        let only = factors([("load", "TCP, 1 stream"), ("side", side)]);
        let number = |stage: &str, measure: &str| {
            let figure = record.figures_with(&only).find(|f| f.factors["stage"] == stage).expect(stage);
            figure.number(measure, Which::Median).expect(measure)
        };
        let stages: Vec<&str> = record.values("stage", &only);
        for stage in ["receive", "policy", "sequence", "crypto", "send"] {
            assert!(stages.contains(&stage), "{side}: {stages:?}");
        }
        let parts: f64 = stages.iter().filter(|s| **s != "all").map(|s| number(s, "ns_per_packet")).sum();
        assert!((parts - number("all", "ns_per_packet")).abs() < 1e-6 * parts, "{side}");
        assert!(number("crypto", "ns_per_packet") > 0.0);
        let (bytes, packets) = (number("all", "bytes_per_packet"), number("all", "packets"));
        assert!((20.0..=1500.0).contains(&bytes) && packets >= 1.0, "{side}: {bytes} {packets}");
    }
    let shares = record.samples.iter().filter(|s| s.factors["stage"] != "all").map(|s| s.measures["share"]);
    assert!(shares.into_iter().all(|s| (0.0..=1.0).contains(&s)));
    assert!(record.warnings.iter().any(|w| w.kind == "smoke"));
    let (status, said) = recompute(&report.folder);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(left(&record.commands), [""; 0]);
    common::recomputed(&report.folder);
}

#[test]
fn a_soaker_is_at_work_beside_every_load_and_in_no_table_of_stages() {
    let Some(program) = program() else { return };
    let mut common = Common { soaker: true, ..common("profile-soaker", &[]) };
    common.dut_options.ironswan = Some(program);
    let report = profile(ProfileOptions { common, ..ProfileOptions::default() }).expect("a run");
    let record = &report.record;
    assert_eq!(record.faults(), [""; 0]);
    let any = Factors::new();
    let loads = record.values("load", &any);
    assert!(!loads.is_empty());
    let all: Vec<Factors> = loads.iter().map(|load| factors([("traffic", load)])).collect();
    soaked(record, &all);
    let stages = record.samples.iter().filter(|s| s.factors.contains_key("stage"));
    assert!(stages.flat_map(|s| s.measures.keys()).all(|name| !name.starts_with("busy")));
    assert_eq!(left(&record.commands), [""; 0]);
    common::recomputed(&report.folder);
}

#[test]
fn the_layers_of_the_published_table_are_measured_in_its_order() {
    let Some(program) = program() else { return };
    let mut common = common("profile-layers", &[]);
    common.dut_options.ironswan = Some(program);
    let report =
        profile(ProfileOptions { common, layers: true, ..ProfileOptions::default() }).expect("a run");
    let record = &report.record;
    assert_eq!(record.faults(), [""; 0]);
    let duts = record.values("dut", &Factors::new());
    assert_eq!(duts, ["plain", "ironswan", "ironswan-3des-sha1", "ironswan-aes128gcm16"]);
    assert_eq!(record.settings["ESP proposal"], "null-sha1, 3des-sha1, aes128gcm16");
    if record.machine.mhz.is_some() {
        let then: Vec<(&str, f64)> = record
            .derived
            .iter()
            .filter(|d| d.name == "then")
            .map(|d| (d.factors["layer"].as_str(), d.value))
            .collect();
        let published = [
            ("IP stack: plain forwarding", 5.0),
            ("ESP without cryptography", 11.0),
            ("NULL with SHA-1", 24.0),
            ("3DES with SHA-1", 140.0),
        ];
        assert_eq!(then, published);
        let now = |layer: &str| {
            let own =
                record.derived.iter().find(|d| d.name == "now_encrypting" && d.factors["layer"] == layer);
            own.map(|d| d.value).expect(layer)
        };
        // Each is the median of samples of its own, the bare layer too.
        let layers = record.values("layer", &Factors::new());
        assert_eq!(layers.len(), 5, "{layers:?}");
        let bare = factors([("layer", "ESP without cryptography"), ("side", "encrypting")]);
        let of_samples = record.figure(&bare).and_then(|f| f.number("cycles_per_byte", Which::Median));
        assert_eq!(of_samples, Some(now("ESP without cryptography")));
        // The stages of one gateway: without its cryptography they take less.
        assert!(now("ESP without cryptography") < now("NULL with SHA-1"));
        assert!(now("AES-128-GCM") > 0.0 && now("IP stack: plain forwarding") >= 0.0);
        assert!(report.text(100).contains("Cycles per byte by layer"), "{}", report.text(100));
    }
    assert_eq!(left(&record.commands), [""; 0]);
    common::recomputed(&report.folder);
}

#[test]
fn layers_have_their_own_suites_one_encapsulation_and_no_tcp() {
    for (common, said) in [
        (with(|c| c.dut_options.suites = vec!["aes256gcm16".parse().expect("a suite")]), "--suite"),
        (with(|c| c.encaps = vec![Encap::Udp, Encap::Raw]), "--encap"),
        (with(|c| c.congestion = Some("cubic".parse().expect("a name"))), "--congestion"),
    ] {
        let e =
            profile(ProfileOptions { common, layers: true, ..ProfileOptions::default() }).expect_err(said);
        assert!(matches!(&e, LabError::Usage(text) if text.contains(said)), "{e}");
    }
}

fn with(change: impl Fn(&mut Common)) -> Common {
    let mut common = Common::default();
    change(&mut common);
    common
}

#[test]
fn a_soaker_beside_samples_is_refused() {
    let common = Common { soaker: true, ..Common::default() };
    let options = ProfileOptions { common, inside: true, ..ProfileOptions::default() };
    let e = profile(options).expect_err("it would be counted as the hosts");
    assert!(matches!(&e, LabError::Usage(why) if why.contains("--soaker")), "{e}");
}

#[test]
fn a_load_of_no_length_is_refused() {
    let common = Common { duration: Some(Duration::from_millis(1)), ..Common::default() };
    let e = profile(ProfileOptions { common, ..ProfileOptions::default() }).expect_err("nonsense");
    assert!(matches!(e, LabError::Usage(_)), "{e}");
}

#[test]
fn samples_say_what_is_inside_the_calls_of_a_gateway_or_why_there_are_none() {
    let Some(program) = program() else { return };
    let mut common = common("profile-inside", &["plain", "ironswan"]);
    common.dut_options.ironswan = Some(program);
    let report = match profile(ProfileOptions { common, inside: true, ..ProfileOptions::default() }) {
        Ok(report) => report,
        // A container may keep perf from the processors; a test that stopped there would be of the
        // container.
        Err(e @ LabError::Measurement(_)) => {
            eprintln!("{e}");
            return assert!(e.to_string().contains("kernel.perf_event_paranoid"), "{e}");
        }
        Err(e) => panic!("{e}"),
    };
    let record = &report.record;
    assert_eq!(breaches(&serde_json::to_value(record).expect("JSON")), [""; 0]);
    assert_eq!(record.faults(), [""; 0]);
    let number = |of: &[(&str, &str)], measure: &str| {
        let mut all = factors([("load", "TCP, 1 stream")]);
        all.extend(of.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())));
        record.figure(&all).and_then(|f| f.number(measure, Which::Median))
    };
    let gateway = |work: &str, within: &str| {
        let part = if work == "all" { "gateways, all" } else { "gateways" };
        let of = [("dut", "ironswan"), ("part", part), ("work", work), ("within", within)];
        number(&of, "ns_per_packet").unwrap_or(0.0)
    };
    for within in ["receive", "send", "own code"] {
        assert!(gateway("all", within) > 0.0, "{within}");
    }
    assert!(gateway("TUN device", "all") + gateway("copies between kernel and program", "all") > 0.0);
    let parts: f64 = ["receive", "send", "wait", "entry, other calls", "interrupts", "own code"]
        .iter()
        .map(|within| gateway("all", within))
        .sum();
    assert!((parts / gateway("all", "all") - 1.0).abs() < 1e-6, "{parts}");
    // Plain forwarding has no process.
    let of = factors([("dut", "plain"), ("part", "gateways")]);
    assert_eq!(record.figures_with(&of).count(), 0);
    let machine = [("dut", "plain"), ("part", "machine, all"), ("work", "all"), ("who", "hosts")];
    assert!(number(&machine, "ns_per_packet").is_some_and(|ns| ns > 0.0));
    assert!(record.warnings.iter().any(|w| w.kind == "short-trials"));
    let text = report.text(1000);
    assert!(text.contains("A packet takes the processes of ironswan"), "{text}");
    assert_eq!(left(&record.commands), [""; 0]);
    common::recomputed(&report.folder);
}
