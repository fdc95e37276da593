//! The experiment `profile` in its shortest form. Needs root, iperf3, and the program `ironswan`
//! beside this test.

use std::time::Duration;

use crate::common::{self, common, left, program, recompute, soaked};
use ironswan_lab::record::{Factors, Which, factors};
use ironswan_lab::report::Stored;
use ironswan_lab::schema::breaches;
use ironswan_lab::{Common, LabError, ProfileOptions, profile};

#[test]
fn a_profile_tells_every_stage_of_both_sides_and_leaves_nothing_behind() {
    let Some(program) = program() else { return };
    let mut common = common("profile", &[]);
    common.dut_options.ironswan = Some(program);
    let report = profile(ProfileOptions { common }).expect("a run");
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
    let report = profile(ProfileOptions { common }).expect("a run");
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
fn a_load_of_no_length_is_refused() {
    let common = Common { duration: Some(Duration::from_millis(1)), ..Common::default() };
    let e = profile(ProfileOptions { common }).expect_err("nonsense");
    assert!(matches!(e, LabError::Usage(_)), "{e}");
}
