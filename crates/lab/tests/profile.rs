//! The experiment `profile` in its shortest form. Needs root, iperf3, and the program `ironswan` beside this test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ironswan_lab::record::{Which, factors};
use ironswan_lab::report::{Stored, breaches};
use ironswan_lab::{Common, LabError, ProfileOptions, profile};

/// The program, in the folder where cargo puts it or in that of release builds; absent when only this package was built, which
/// may not be where everything is tested.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test's own path");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let folders = [folder, &folder.with_file_name("release")];
    let program = folders.map(|f| f.join("ironswan")).into_iter().find(|p| p.exists());
    assert!(
        program.is_some() || std::env::var_os("CI").is_none(),
        "ironswan is not built: cargo build --release"
    );
    program
}

#[test]
fn a_profile_tells_every_stage_of_both_sides_and_leaves_nothing_behind() {
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
    let Some(program) = program() else {
        eprintln!("ironswan is not built: left out");
        return;
    };
    let out = std::env::temp_dir().join(format!("ironlab-test-profile-{}", std::process::id()));
    let mut common = Common { smoke: true, out: Some(out), ..Common::default() };
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
    let prefix = format!("ironlab-{}-", std::process::id());
    let left = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names: Vec<String> = left.filter_map(|e| e.file_name().into_string().ok()).collect();
    assert!(!names.iter().any(|n| n.starts_with(&prefix)), "{names:?}");
    fs::remove_dir_all(&report.folder).expect("removed");
}

#[test]
fn a_load_of_no_length_is_refused() {
    let common = Common { duration: Some(Duration::from_millis(1)), ..Common::default() };
    let e = profile(ProfileOptions { common }).expect_err("nonsense");
    assert!(matches!(e, LabError::Usage(_)), "{e}");
}
