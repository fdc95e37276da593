//! The experiment `compare` in its shortest form. Needs root, nft, iperf3 and OpenVPN.

use std::fs;
use std::path::PathBuf;

use ironswan_lab::record::{Record, Which, factors};
use ironswan_lab::{Common, CompareOptions, compare};

fn common(name: &str, duts: &[&str]) -> Common {
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
    Common {
        duts: duts.iter().map(ToString::to_string).collect(),
        smoke: true,
        out: Some(out(name)),
        ..Common::default()
    }
}

fn out(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ironlab-test-{name}-{}", std::process::id()))
}

/// What holds for every record of such a run.
fn sound(record: &Record) {
    assert_eq!(record.faults(), Vec::<String>::new());
    for sample in &record.samples {
        for (name, value) in &sample.measures {
            assert!(value.is_finite() && *value >= 0.0, "{name} of {sample:?}");
        }
        for share in ["loss", "busy", "of_peak"] {
            assert!(sample.measures.get(share).is_none_or(|v| *v <= 1.0), "{share} of {sample:?}");
        }
    }
    assert!(record.warnings.iter().any(|w| w.kind == "smoke"));
    assert!(
        !record.warnings.iter().any(|w| ["unprotected", "fragments"].contains(&w.kind.as_str())),
        "{:?}",
        record.warnings
    );
}

/// Neither boxes nor processes of this test are left.
fn nothing_left() {
    let prefix = format!("ironlab-{}-", std::process::id());
    let left = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with(&prefix)).collect()
    };
    for dir in ["/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"] {
        assert_eq!(left(dir), Vec::<String>::new(), "{dir}");
    }
}

#[test]
fn systems_are_compared_under_tcp_and_packets_in_one_table() {
    let options =
        CompareOptions { common: common("compare", &["plain", "openvpn"]), ..CompareOptions::default() };
    let report = compare(options).expect("a run");
    let record = &report.record;
    sound(record);
    let figure =
        |load: &str, dut: &str| record.figure(&factors([("load", load), ("dut", dut)])).expect("a figure");
    let (plain, tunnel) = (figure("TCP", "plain"), figure("TCP", "openvpn"));
    assert!(plain.number("gbps", Which::Median).is_some_and(|g| g > 0.0));
    let ratio = tunnel.number("gbps", Which::Ratio).expect("a ratio");
    // A tunnel in user space is no faster than none.
    assert!(ratio > 0.0 && ratio < 1.5, "{ratio}");
    assert!(tunnel.number("memory", Which::Median).is_some_and(|m| m > 1.0));
    assert!(plain.number("memory", Which::Median).is_none());
    assert!(record.versions["openvpn"].starts_with("OpenVPN 2."), "{:?}", record.versions);
    fs::remove_dir_all(&report.folder).expect("remove");
    nothing_left();
}
