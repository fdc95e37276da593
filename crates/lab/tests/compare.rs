//! The experiment `compare` in its shortest form. Needs root, nft, iperf3 and OpenVPN.

mod common;

use std::fs;

use common::{common, left, sound};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::{CompareOptions, compare};

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
    // Of windows as short as these nothing can be said about which is faster.
    let [a, b] = [plain, tunnel].map(|f| f.number("gbps", Which::Median).expect("a rate"));
    let ratio = tunnel.number("gbps", Which::Ratio).expect("a ratio");
    assert!(a > 0.0 && b > 0.0 && (ratio * a / b - 1.0).abs() < 1e-9, "{a} {b} {ratio}");
    assert!(tunnel.number("memory", Which::Median).is_some_and(|m| m > 1.0));
    assert!(plain.number("memory", Which::Median).is_none());
    assert!(record.versions["openvpn"].starts_with("OpenVPN 2."), "{:?}", record.versions);
    fs::remove_dir_all(&report.folder).expect("remove");
    assert_eq!(left(&record.commands), [""; 0]);
}
