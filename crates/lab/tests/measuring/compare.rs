//! The experiment `compare` in its shortest form. Needs root, nft, iperf3 and OpenVPN.

use crate::common::{self, common, left, sound};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::{Common, CompareOptions, TrafficOptions, compare};

#[test]
fn systems_are_compared_under_tcp_and_packets_in_one_table() {
    let common = Common { soaker: true, ..common("compare", &["plain", "openvpn"]) };
    let report = compare(CompareOptions { common, ..CompareOptions::default() }).expect("a run");
    let record = &report.record;
    sound(record);
    let figure =
        |load: &str, dut: &str| record.figure(&factors([("load", load), ("dut", dut)])).expect("a figure");
    let (plain, tunnel) = (figure("TCP", "plain"), figure("TCP", "openvpn"));
    // Of windows as short as these nothing can be said about which is faster.
    let [a, b] = [plain, tunnel].map(|f| f.number("gbps", Which::Median).expect("a rate"));
    let ratio = tunnel.number("gbps", Which::Ratio).expect("a ratio");
    assert!(a > 0.0 && b > 0.0 && (ratio * a / b - 1.0).abs() < 1e-9, "{a} {b} {ratio}");
    assert!(tunnel.number("memory", Which::Median).is_some_and(|m| m > 1.0));
    assert!(plain.number("memory", Which::Median).is_none());
    // A soaker ran beside all of it, and the report shows it beside accounting.
    for figure in [plain, tunnel] {
        let busy = ["busy_kernel", "busy_soaker", "busy_apart"].map(|n| figure.number(n, Which::Median));
        assert!(busy.iter().all(|b| b.is_some_and(|b| (0.0..=1.0).contains(&b))), "{figure:?}");
        // Windows of a fifth of a second leave room for much.
        assert!(busy[2].is_some_and(|apart| apart > 0.03), "{figure:?}");
    }
    assert!(record.settings["soaker"].contains("units/s"), "{:?}", record.settings);
    assert!(report.text(120).contains("Busy processors, by accounting and by a soaker"));
    assert!(record.versions["openvpn"].starts_with("OpenVPN 2."), "{:?}", record.versions);
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn ipv6_in_bursts_is_carried_by_tcp_and_by_packets() {
    let traffic = TrafficOptions { ipv6: true, burst: Some(8), ..TrafficOptions::default() };
    let options = CompareOptions {
        common: common("compare-ipv6", &["plain", "openvpn"]),
        traffic,
        ..CompareOptions::default()
    };
    let report = compare(options).expect("a run");
    let record = &report.record;
    sound(record);
    assert_eq!((record.settings["IP inside"].as_str(), record.settings["flows"].as_str()), ("IPv6", "64"));
    assert!(record.settings["bursts"].starts_with("8 packets at once"), "{:?}", record.settings);
    for dut in ["plain", "openvpn"] {
        let figure = record.figure(&factors([("load", "TCP"), ("dut", dut)])).expect("a figure");
        assert!(figure.number("gbps", Which::Median) > Some(0.0), "{figure:?}");
        // TCP asked for the far host's address of IPv6.
        assert!(record.figure(&factors([("load", "512"), ("dut", dut)])).is_some());
    }
    assert!(record.commands.iter().any(|c| c.contains("iperf3 -c fd00:a:2::2 ")), "{:?}", record.commands);
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}
