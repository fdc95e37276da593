//! The experiment `lowend` in its shortest form. Needs root, nft, iperf3, OpenVPN, and for its
//! figures control groups that can be written: without them it must say so.

use std::fs;
use std::path::Path;

use crate::common::{self, common, left, sound};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::{LabError, LowendOptions, lowend};

/// Whether a group with a quota can be made here, found out without the laboratory: by any of the
/// places that there are.
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
    let options =
        LowendOptions { common: common("lowend", &["openvpn"]), shares: vec![20], rates: vec![1.0] };
    let report = match lowend(options) {
        Err(LabError::Unfit(remedies)) => {
            assert!(remedies.iter().any(|r| r.action.contains("control groups")), "{remedies:?}");
            assert!(!groups_work(), "there are control groups: {remedies:?}");
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
    // It was stopped for having used its share, or others on this machine did not let it come to
    // that.
    let stopped = tcp.number("stopped", Which::Median).expect("the time for which they were stopped");
    assert!((0.0..=1.0).contains(&stopped) && (stopped > 0.0 || core < 0.2), "{tcp:?}");
    // Its gateways may have been stopped, or waiting for a processor, for all of so short a load:
    // then there is no latency.
    let offered = figure("offered", "1");
    let number = |name: &str| offered.number(name, Which::Median);
    let some = number("mbps").expect("a rate") > 0.0;
    assert!(number("p50_us").is_some_and(|l| l > 0.0) == some, "{offered:?}");
    assert!(some || number("loss") == Some(1.0), "{offered:?}");
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn what_cannot_be_held_is_refused() {
    for shares in [vec![5], vec![200]] {
        let e = lowend(LowendOptions { shares, ..LowendOptions::default() }).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
    let e = lowend(LowendOptions { common: common("lowend-plain", &["plain"]), ..LowendOptions::default() });
    let e = e.expect_err("the kernel forwards");
    assert!(matches!(e, LabError::Usage(_) | LabError::Unfit(_)), "{e}");
}
