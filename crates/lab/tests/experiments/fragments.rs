//! The experiment `fragments` in its shortest form. Needs root, nft and OpenVPN, and for ironswan
//! the program beside this test.

use crate::common::{self, common_with_program, left, sound};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::{FragmentsOptions, LabError, fragments};

#[test]
fn every_system_says_what_it_does_with_what_does_not_fit_and_its_counters_agree() {
    let mut common = common_with_program("fragments");
    common.duts.push("openvpn".into());
    let duts = common.duts.clone();
    let report = fragments(FragmentsOptions { common, ..FragmentsOptions::default() }).expect("a run");
    let record = &report.record;
    sound(record);
    let crossing = |dut: &str, link: &str| {
        let figure = factors([("size", "1518"), ("link", link), ("dut", dut)]);
        let figure = record.figure(&figure).unwrap_or_else(|| panic!("{dut}, {link}"));
        figure.number("crossing", Which::Median)
    };
    for dut in &duts {
        let became = &record.settings[&format!("1500 bytes over MTU 1400, {dut}")];
        let (refusing, cutting) = became.split_once("; DF clear: ").expect("both");
        assert_ne!(cutting, "carried whole", "{dut}: {became}");
        if dut == "plain" {
            assert!(refusing.starts_with("DF set: refused, with"), "{became}");
            assert!(cutting.starts_with("cut on the way out"), "{became}");
        }
        // Pieces cross the narrow link if and only if the system was seen to cut what it sends; on
        // a busy machine it may be that nothing was seen of it.
        let counted = &record.settings[&format!("crossed, {dut}, MTU 1400")];
        let pieces = !counted.contains(", 0 later fragments");
        let unseen = cutting == "dropped without a word" || cutting.starts_with("carried whole");
        assert!(
            pieces == became.contains("cut on the way out") || unseen && pieces,
            "{dut}: {became}, {counted}"
        );
        assert!(record.settings[&format!("crossed, {dut}")].contains(", 0 later fragments"), "{dut}");
        // Where there is a throughput, no fewer packets crossed than arrived, and more where they
        // were cut.
        for (link, least) in
            [("whole", 0.999), ("MTU 1400", if cutting.contains("cut ") { 1.9 } else { 0.0 })]
        {
            assert!(
                crossing(dut, link).is_none_or(|c| c > least),
                "{dut}, {link}: {:?}",
                crossing(dut, link)
            );
        }
    }
    assert!(report.text(120).contains("over one that does not"));
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn links_that_cut_nothing_are_refused() {
    for mtu in [100, 1501] {
        let e = fragments(FragmentsOptions { outer_mtu: Some(mtu), ..FragmentsOptions::default() });
        assert!(matches!(e, Err(LabError::Usage(_))), "{mtu}");
    }
}
