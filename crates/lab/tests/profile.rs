//! The experiment `profile` in its shortest form. Needs root, iperf3, and the program `ironswan` beside this test.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{common, left, program};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::report::{Stored, breaches};
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
    assert!(Stored::read(&report.folder).expect("a run").record() == *record);
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
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/laboratory/recompute.py");
    let done = Command::new("python3").arg(program).arg(&report.folder).output().expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert_eq!(left(&record.commands), [""; 0]);
    fs::remove_dir_all(&report.folder).expect("removed");
}

#[test]
fn a_load_of_no_length_is_refused() {
    let common = Common { duration: Some(Duration::from_millis(1)), ..Common::default() };
    let e = profile(ProfileOptions { common }).expect_err("nonsense");
    assert!(matches!(e, LabError::Usage(_)), "{e}");
}
