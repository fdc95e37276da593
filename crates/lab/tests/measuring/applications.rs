//! The experiments whose load is made of applications, each in its shortest form: their records
//! obey what must hold of them, and nothing is left behind. Needs root, nft and ethtool; tunnels
//! are measured when the program `ironswan` is built.

use crate::common::{self, common_with_program, cost, left};
use ironswan_lab::load::apps::App;
use ironswan_lab::record::{Figure, Record, Which, factors};
use ironswan_lab::{
    BackgroundOptions, CompressionOptions, LabError, Report, TransferOptions, background, compression,
    transfer,
};

/// What holds of every record; removes the run.
fn finished(report: Report, samples: usize) -> Record {
    let r = report.record;
    assert_eq!(r.samples.len(), samples);
    assert!(!r.history.is_empty() && r.history.iter().all(|h| !h.now.is_empty()), "{:?}", r.history);
    assert!(r.warnings.iter().any(|w| w.kind == "few-repeats"), "{:?}", r.warnings);
    assert_eq!(left(&r.commands), [""; 0]);
    assert!(report.folder.join("run.json").exists());
    common::recomputed(&report.folder);
    r
}

#[test]
fn compression_gains_on_text_over_a_slow_link_and_nothing_on_random_data() {
    let common = common_with_program("compression");
    let tunnels = common.duts.len() > 1;
    let report = compression(CompressionOptions { common, rates: vec![2000, 0] }).expect("a run");
    let r = finished(report, 2 * 2 * if tunnels { 3 } else { 1 });
    for s in &r.samples {
        let m = &s.measures;
        assert!(m["kb_s"] > 0.0 && cost(s, "machine_ns") >= 0.0 && m["bytes"] >= 16384.0, "{s:?}");
        if s.factors["link"] == "2 Mbit/s" {
            // Never faster than the link, but for what is compressed.
            let most = 250.0 * if s.factors["system"].ends_with("ipcomp") { 4.0 } else { 1.0 };
            assert!(m["kb_s"] < most && m["on_link"] > 0.2, "{s:?}");
        } else {
            assert!(!m.contains_key("on_link"), "{s:?}");
        }
    }
    let on_link = |system: &str, data: &str| {
        let f = factors([("link", "2 Mbit/s"), ("system", system), ("data", data)]);
        r.figure(&f).and_then(|f| f.number("on_link", Which::Median)).expect("a figure")
    };
    assert!(on_link("plain", "text") > 1.0);
    if tunnels {
        // ESP in UDP adds at least 57 bytes to packets of at most 1348 of payload. Each run has its
        // own repeats of segments and its own acknowledgements, so the two are not compared with
        // each other.
        assert!(on_link("ironswan", "text") > 1.0 + 0.9 * 57.0 / 1348.0, "headers of the tunnel");
        assert!(on_link("ironswan ipcomp", "text") < 0.8 * on_link("ironswan", "text"));
        assert!(on_link("ironswan ipcomp", "random") > 1.0);
        assert_eq!(r.derived.iter().filter(|d| d.name == "gain").count(), 4);
    }
}

#[test]
fn a_background_run_has_the_machine_s_shares_between_nothing_and_all() {
    let common = common_with_program("background");
    let systems = common.duts.len();
    let options = BackgroundOptions { common, rates_mbps: vec![50], ..BackgroundOptions::default() };
    let report = background(options).expect("a run");
    let apps = [App::Https].into_iter().filter(|a| a.lacks().is_empty()).count();
    let r = finished(report, systems + 1 + apps);
    for s in &r.samples {
        let m = &s.measures;
        assert!(m["sieve_s"] > 0.0, "{s:?}");
        for share in ["soaker_left", "kernel_left"] {
            assert!((0.0..=1.0).contains(&m[share]), "{s:?}");
        }
        assert_eq!(m.contains_key("mbps"), s.factors["traffic"] != "none");
        assert_eq!(s.factors["load"], "50 Mbit/s");
        assert!(!m.contains_key("highest_mbps"), "{s:?}");
    }
    // A sender that was stopped by the scheduler may catch up, but over its life it keeps to its
    // rate: what arrived in both windows is no more than what the rate allows until the next sample
    // began.
    let ends = r.samples.iter().skip(1).map(|s| s.began).chain([r.seconds]);
    for (s, end) in r.samples.iter().zip(ends).filter(|(s, _)| s.factors["traffic"] != "none") {
        let m = &s.measures;
        let carried = m["mbps"] * 0.1 + m["sieve_mbps"] * m["sieve_s"];
        // The limiters of real programs work in bursts longer than these windows.
        let ours = ["plain", "ironswan"].contains(&s.factors["traffic"].as_str());
        assert!(carried >= 0.0 && (!ours || carried <= 50.0 * (end - s.began) + 1.0), "{s:?} until {end}");
    }
    let e = background(BackgroundOptions { rates_mbps: vec![0], ..BackgroundOptions::default() });
    assert!(matches!(e, Err(LabError::Usage(_))));
}

#[test]
fn the_rates_beside_the_sieve_are_shares_of_the_highest_that_all_traffic_carries() {
    let common = common_with_program("background-shares");
    let options = BackgroundOptions { common, shares: vec![10, 50], ..BackgroundOptions::default() };
    let report = background(options).expect("a run");
    let kinds = report.record.settings.keys().filter(|k| k.starts_with("highest rate, ")).count();
    let r = finished(report, 2 * (kinds + 1));
    let value = |f: &Figure, name| f.number(name, Which::Median).expect(name);
    let moving: Vec<&Figure> = r.figures.iter().filter(|f| f.factors["traffic"] != "none").collect();
    assert!(kinds >= 1 && moving.len() == 2 * kinds, "{kinds} kinds");
    let least = moving.iter().map(|f| value(f, "highest_mbps")).fold(f64::INFINITY, f64::min);
    for f in &moving {
        let share = if f.factors["load"] == "10 %" { 0.1 } else { 0.5 };
        assert!((value(f, "rate_mbps") / (least * share) - 1.0).abs() < 1e-9, "{f:?}");
        // Ours keeps to its rate; what was held up may be made up for within the window.
        let ours = ["plain", "ironswan"].contains(&f.factors["traffic"].as_str());
        assert!(!ours || value(f, "mbps") <= 3.0 * value(f, "rate_mbps") + 50.0, "{f:?}");
    }
    let none = r.figures.iter().find(|f| f.factors["traffic"] == "none").expect("no traffic");
    assert!(!none.measures.contains_key("rate_mbps"));
    assert_eq!(r.history.len(), 2);
}

#[test]
fn every_file_arrives_by_every_method_that_is_installed() {
    let common = common_with_program("transfer");
    let tunnels = common.duts.len() > 1;
    let options = TransferOptions { common, size_mb: Some(2) };
    let installed = |app: App| app.lacks().is_empty();
    if !App::ALL.into_iter().any(installed) {
        let e = transfer(options).expect_err("nothing to carry files with");
        assert!(matches!(&e, LabError::Unfit(r) if r.iter().any(|r| r.action.contains("apt-get"))), "{e}");
        return;
    }
    let plain = App::ALL.into_iter().filter(|a| installed(*a)).count();
    let tunnelled = App::ALL.into_iter().filter(|a| installed(*a) && !a.encrypts()).count();
    let r = finished(transfer(options).expect("a run"), plain + if tunnels { tunnelled } else { 0 });
    for s in &r.samples {
        let m = &s.measures;
        assert!(m["bytes"] == 2e6 && m["elapsed_ns"] > 0.0, "{s:?}");
        assert!((m["mb_s"] * m["elapsed_ns"] / 1e3 - 1.0).abs() < 1e-6, "{s:?}");
        // No party used more than the machine has, give or take the tick by which it is counted.
        let most = m["elapsed_ns"] * ironswan_lab::machine::Fingerprint::take().cpus as f64
            + 50_000_000.0 / 2e6 * 5.0;
        for party in ["client_ns", "server_ns", "gateways_ns"] {
            assert!((0.0..=most).contains(&cost(s, party)), "{party}: {s:?}");
        }
    }
    for (n, app) in App::ALL.into_iter().enumerate() {
        let named = r.warnings.iter().any(|w| w.kind == "not-installed" && w.text.starts_with(app.name()));
        assert_eq!(named, !installed(app), "{n}: {:?}", r.warnings);
    }
}
