//! Raw trials: their CSV, and doubts about them, from trials that were never made.

use std::time::Duration;

use super::passed::Cost;
use super::passed::{Passed, Time};
use super::trials::{Purpose, Trials, file};
use crate::load::{Counted, Direction, Offer, Received, Sent};
use crate::measure::mlr::Ask;

/// One way: so many were to be sent, were, and arrived.
fn way(intended: u64, sent: u64, received: u64) -> (Sent, Counted) {
    let counted = Received { unique: received, seconds: 0.5, ..Received::default() };
    (
        Sent { intended, sent, unsent: intended - sent, seconds: 0.5, ..Sent::default() },
        Counted { received: counted, socket_drops: 0, esp: None },
    )
}

/// A trial of half a second on two processors, half of whose time was idle.
fn passed(ways: &[(Sent, Counted)]) -> Passed {
    Passed {
        ways: ways.to_vec(),
        account: None,
        engines: vec![],
        cost: Cost { gateways_ns: 100_000_000, ..Cost::default() },
        busy_seconds: 0.5,
        time: Time { machine: 1.0, idle: 0.5, stolen: 0.0 },
        stopped: 0.0,
        outer: (15_000, 10),
    }
}

fn offer(rate: f64, ms: u64) -> Offer {
    Offer { rate: Some(rate), packets: u64::MAX, at_most: Duration::from_millis(ms) }
}

#[test]
fn every_way_of_every_trial_has_a_row_under_names_that_fit() {
    let mut trials = Trials::new(Direction::Both);
    let flood = Offer { rate: None, ..offer(0.0, 100) };
    trials.add((Purpose::Flood, "flood"), 0.25, flood, &passed(&[way(10, 10, 9), way(12, 11, 11)]));
    let ask = Ask { load: 100.0 / 3.0, duration: 0.3 };
    trials.asked(Purpose::Search, 1.5, ask, None, &passed(&[way(10, 8, 8), way(10, 10, 10)]));
    trials.asked(Purpose::Confirm, 2.5, ask, Some(0.125), &passed(&[way(10, 10, 10), way(8, 8, 7)]));
    let csv = trials.csv();
    let lines: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 7);
    assert!(lines.iter().all(|l| l.len() == lines[0].len()), "{csv}");
    let of = |row: usize, name: &str| {
        let at = lines[0].iter().position(|c| *c == name).unwrap_or_else(|| panic!("no column {name}"));
        lines[row][at]
    };
    let row = |row: usize| {
        ["trial", "purpose", "of", "way", "sent", "unsent", "received", "lost"].map(|n| of(row, n))
    };
    assert_eq!(row(1), ["1", "flood", "flood", "forward", "10", "0", "9", "1"]);
    assert_eq!(row(2), ["1", "flood", "flood", "reverse", "11", "1", "11", "0"]);
    assert_eq!(row(6), ["3", "confirm", "", "reverse", "8", "0", "7", "1"]);
    assert_eq!([of(1, "offered_pps"), of(3, "told_loss"), of(5, "told_loss")], ["", "", "0.125"]);
    // The columns hold exactly the rate that was offered.
    assert_eq!(of(3, "offered_pps").parse::<f64>(), Ok(100.0 / 3.0));
    assert_eq!([of(6, "machine_s"), of(6, "idle_s"), of(6, "gateways_ns")], ["1", "0.5", "100000000"]);
}

#[test]
fn names_of_files_tell_systems_apart_and_are_no_paths() {
    assert_eq!(file(&["64", "a to b", "ironswan"], 0), "64-a_to_b-ironswan-0.csv");
    assert_eq!(file(&["IMIX", "25_percent", "x aes/sha ../y"], 2), "IMIX-25_percent-x_aes_sha_.._y-2.csv");
}

#[test]
fn what_cannot_be_is_said_and_what_ticks_or_a_gateway_alone_explain_is_not() {
    let said = |passed: Passed| {
        let mut trials = Trials::new(Direction::Forward);
        trials.add((Purpose::Curve, "1"), 0.0, offer(20.0, 500), &passed);
        let warning = trials.impossible("x", "64 B")?;
        assert_eq!(warning.kind(), "impossible");
        Some(warning.text())
    };
    let fine = passed(&[way(10, 10, 10)]);
    assert_eq!(said(fine.clone()), None);
    let text = said(passed(&[way(10, 9, 10)])).expect("a doubt");
    assert!(
        text.starts_with("x, 64 B: trial 1: 10 packets arrived of 9 that were sent: the laboratory"),
        "{text}"
    );
    let time = |idle, gateways_ns| Passed {
        time: Time { idle, ..fine.time },
        cost: Cost { gateways_ns, ..Cost::default() },
        ..fine.clone()
    };
    // A hundredth of a second more than there was is cut ticks; two seconds are not.
    assert_eq!(said(time(1.01, 0)), None);
    assert!(said(time(3.0, 0)).expect("a doubt").contains("idle for 3.00 s of 1.00 s"));
    // Half of it was not idle.
    assert_eq!(said(time(0.5, 510_000_000)), None);
    assert!(said(time(0.5, 2_500_000_000)).expect("a doubt").contains("used 2.50 s of 0.50 s"));
    // Packets that were only counted on the outer link are not known to be ours.
    let mut more = fine.clone();
    more.ways[0].1.esp = Some(crate::load::esp::EspCounts { unopened: 5, ..Default::default() });
    assert_eq!((said(more.clone()), more.lost_by_the_system()), (None, 0.0));
}
