//! The experiment `rfc2544` in its shortest form. Needs root, nft and OpenVPN.

use std::fs;
use std::path::PathBuf;

use ironswan_lab::record::{Record, Which, factors};
use ironswan_lab::{Common, FrameSize, LabError, Rfc2544Options, rfc2544};

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
fn throughput_latency_and_the_curve_of_a_mix_both_ways_follow_from_what_was_sent() {
    let options = Rfc2544Options {
        common: common("rfc2544", &["plain", "openvpn"]),
        sizes: vec![FrameSize::Bytes(1518), FrameSize::Imix],
        directions: vec!["both".parse().expect("a direction")],
        losses: vec![0.0, 0.05],
        ..Rfc2544Options::default()
    };
    let report = rfc2544(options).expect("a run");
    let record = &report.record;
    sound(record);
    for dut in ["plain", "openvpn"] {
        let flood = factors([
            ("part", "curve"),
            ("direction", "both ways"),
            ("size", "1518"),
            ("offered", "flood"),
            ("dut", dut),
        ]);
        let flood = record.figure(&flood).expect("a flood");
        let number = |name: &str| flood.number(name, Which::Median).expect("a number");
        // 1500 bytes of each frame are the inner packet.
        assert!(
            (number("inner_gbps") / (number("kpps") * 1e3 * 1500.0 * 8.0 / 1e9) - 1.0).abs() < 1e-6,
            "{flood:?}"
        );
        // Every packet that arrived crossed the outer link, in a frame no smaller than it came in.
        assert!(number("outer_gbps") >= number("inner_gbps") * 1518.0 / 1500.0 * 0.999, "{flood:?}");
        let latency = factors([
            ("part", "latency"),
            ("direction", "both ways"),
            ("size", "IMIX"),
            ("load", "10%"),
            ("dut", dut),
        ]);
        let latency = record.figure(&latency).expect("a latency");
        let p = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"]
            .map(|n| latency.number(n, Which::Median).unwrap_or(0.0));
        assert!(p[0] > 0.0 && p.windows(2).all(|w| w[0] <= w[1] * 1.02), "{p:?}");
    }
    // What crossed the outer link was counted outside of the systems.
    assert!(record.settings["crossed, plain"].contains(" 0 WireGuard or OpenVPN"), "{:?}", record.settings);
    assert!(record.settings["crossed, openvpn"].ends_with(" 0 other"), "{:?}", record.settings);
    assert_eq!(record.history.first().map(|h| h.then.contains("25 %")), Some(true));
    assert!(report.folder.join("run.json").exists());
    fs::remove_dir_all(&report.folder).expect("remove");
    nothing_left();
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for change in [
        |o: &mut Rfc2544Options| o.losses = vec![0.7],
        |o: &mut Rfc2544Options| o.flows = Some(0),
        |o: &mut Rfc2544Options| o.width = Some(0.9),
        |o: &mut Rfc2544Options| o.common.duts = vec!["opensvan".into()],
    ] {
        let mut o = Rfc2544Options::default();
        change(&mut o);
        let e = rfc2544(o).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
    assert!("63".parse::<FrameSize>().is_err());
}
