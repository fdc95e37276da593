//! The experiment `cores` in its shortest form. Needs root, nft, ethtool, and the program
//! `ironswan` beside this test.

use crate::common::{self, common, left, program};
use ironswan_lab::dut::Encap;
use ironswan_lab::record::{Factors, Which, factors};
use ironswan_lab::schema::breaches;
use ironswan_lab::{Common, CoresOptions, LabError, cores};

#[test]
fn a_gateway_is_measured_by_workers_queues_and_flows_one_at_a_time() {
    let Some(program) = program() else { return };
    let mut common = common("cores", &[]);
    common.dut_options.ironswan = Some(program);
    let cpus = ironswan_lab::machine::Fingerprint::take().cpus as u32;
    let report =
        cores(CoresOptions { common, flows: vec![1, 64], ..CoresOptions::default() }).expect("a run");
    let r = &report.record;
    assert_eq!(breaches(&serde_json::to_value(r).expect("JSON")), [""; 0]);
    assert_eq!(r.faults(), [""; 0]);
    // By workers (one, and all), and by flows.
    let workers = if cpus > 1 { 2 } else { 1 };
    assert_eq!(r.samples.len(), workers + 2);
    assert_eq!(r.values("varied", &Factors::new()), ["workers", "flows"]);
    for s in &r.samples {
        let (f, m) = (&s.factors, &s.measures);
        assert!(f["varied"] == "workers" || f["workers"] == cpus.to_string(), "{s:?}");
        assert_eq!((f["queues"].as_str(), f["direction"].as_str()), (&*cpus.to_string(), "encrypting"));
        assert_eq!(s.files.len(), 1);
        // A gateway that was starved on a busy machine has no rate; the record says so.
        let starved = r.warnings.iter().any(|w| w.kind == "no-throughput");
        assert!(starved || (m["kpps"] > 0.0 && m["gateways_ns"] > 0.0 && m["inner_gbps"] > 0.0), "{s:?}");
        assert!(m.get("loss").is_none_or(|loss| (0.0..=1.0).contains(loss)), "{s:?}");
    }
    // Each gateway has settings of its own.
    let crossed = r.settings.keys().filter(|key| key.starts_with("crossed, ironswan, "));
    assert_eq!(crossed.count(), workers, "{:?}", r.settings);
    let flows = factors([("varied", "flows"), ("flows", "64")]);
    let kpps = |f: &ironswan_lab::record::Figure| f.number("kpps", Which::Median);
    let found = r.figures_with(&flows).next().expect("a figure");
    let times = r.derived.iter().filter(|d| d.name == "times").count();
    assert!(times <= workers && (times > 0 || kpps(found).is_none()), "{times}");
    assert!(r.warnings.iter().any(|w| w.kind == "smoke"), "{:?}", r.warnings);
    assert_eq!(left(&r.commands), [""; 0]);
    common::recomputed(&report.folder);
}

#[test]
fn more_workers_than_processors_are_refused() {
    let e = cores(CoresOptions { workers: vec![100_000], ..CoresOptions::default() });
    assert!(matches!(e, Err(LabError::Usage(_))));
}

#[test]
fn several_suites_or_encapsulations_are_refused() {
    let mut suites = Common::default();
    suites.dut_options.suites.push("aes128-sha1".parse().expect("a suite"));
    let encaps = Common { encaps: vec![Encap::Udp, Encap::Raw], ..Common::default() };
    for (common, said) in [(suites, "--suite"), (encaps, "--encap")] {
        let e = cores(CoresOptions { common, ..CoresOptions::default() }).expect_err(said);
        assert!(matches!(&e, LabError::Usage(text) if text.contains(said)), "{e}");
    }
}
