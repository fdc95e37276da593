//! The experiment `lowend` in its shortest form. Needs root, nft, iperf3, OpenVPN, and for its figures control groups that can
//! be written: without them it must say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ironswan_lab::record::{Record, Which, factors};
use ironswan_lab::{Common, LabError, LowendOptions, lowend};

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

/// Tests of this process look for what is left: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a group with a quota can be made here, found out without the laboratory: by any of the places that there are.
fn groups_work() -> bool {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].iter().any(|place| {
        let group = Path::new(place).join(format!("ironlab-lowend-test-{}", std::process::id()));
        let made = fs::create_dir(&group).is_ok();
        // Only what the kernel put there: elsewhere these would become files like any other.
        let quotas =
            [("cpu.max", "5000 10000"), ("cpu.cfs_quota_us", "50000")].map(|(f, q)| (group.join(f), q));
        let works = quotas.iter().any(|(file, quota)| file.exists() && fs::write(file, quota).is_ok());
        if made {
            fs::remove_dir(&group).expect("an empty group");
        }
        works
    })
}

#[test]
fn a_gateway_with_a_share_of_a_core_uses_no_more_and_the_group_is_removed() {
    let _alone = alone();
    let options =
        LowendOptions { common: common("lowend", &["openvpn"]), shares: vec![20], rates: vec![1.0] };
    let report = match lowend(options) {
        Err(LabError::Unfit(remedies)) => {
            assert!(remedies.iter().any(|r| r.action.contains("control groups")), "{remedies:?}");
            assert!(!groups_work(), "there are control groups: {remedies:?}");
            nothing_left();
            return;
        }
        other => other.expect("a run"),
    };
    let record = &report.record;
    sound(record);
    let figure = |part: &str, load: &str| {
        let figure = factors([("part", part), ("share", "20%"), ("load", load), ("dut", "openvpn")]);
        record.figure(&figure).unwrap_or_else(|| panic!("{part}, {load}"))
    };
    let tcp = figure("carried", "TCP");
    let core = tcp.number("core", Which::Median).expect("time of the gateways");
    // A period more at either end of a short window.
    assert!(core > 0.0 && core < 0.3, "{core}");
    assert!(tcp.number("stopped", Which::Median).is_some_and(|s| s > 0.0), "{tcp:?}");
    assert!(figure("offered", "1").number("p50_us", Which::Median).is_some_and(|l| l > 0.0));
    fs::remove_dir_all(&report.folder).expect("remove");
    nothing_left();
}

#[test]
fn what_cannot_be_held_is_refused() {
    let _alone = alone();
    for shares in [vec![5], vec![200]] {
        let e = lowend(LowendOptions { shares, ..LowendOptions::default() }).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
    let e = lowend(LowendOptions { common: common("lowend-plain", &["plain"]), ..LowendOptions::default() });
    let e = e.expect_err("the kernel forwards");
    assert!(matches!(e, LabError::Usage(_) | LabError::Unfit(_)), "{e}");
}
