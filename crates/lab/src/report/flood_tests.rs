//! The record of a flood against its schema, and the text made of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::flood::*;
use super::schema::breaches_of;
use super::schema_test::open_objects;
use super::warning::Warning;
use super::{flood_text, sample};
use crate::experiment::Spread;
use crate::load::{Latency, Received, Sent};
use crate::measure::places::{Account, Place};
use crate::record::Program;
use crate::topology::Mode;

const KEY: TrialKey = TrialKey { placement: Spread::OwnCore, mode: Mode::Offload, payload: 18, flows: 1000 };

/// Sent for a second: `sent` packets of which `got` arrived, the rest dropped in a queue.
fn trial(dut: &str, multiple: Option<f64>, sent: u64, got: u64) -> FloodTrial {
    let account = Account {
        sent,
        received: got,
        places: vec![Place {
            place: "queue of ipsec0 on g1".into(),
            packets: sent - got + 1,
            buffers: Some(sent - got + 1),
        }],
        unexplained: -1,
        softnet_dropped: 0,
    };
    let sent = Sent { intended: sent + 10, sent, unsent: 10, seconds: 1.0, cpu_seconds: 0.5, refused: 0 };
    let latency = Latency {
        samples: got,
        min_us: 1.0,
        p50_us: 20.0,
        p90_us: 30.0,
        p99_us: 40.0,
        p999_us: 50.0,
        max_us: 60.0,
    };
    let received = Received { unique: got, seconds: 1.0, latency: Some(latency), ..Received::default() };
    let mut t = FloodTrial::new(dut.into(), KEY, Some(1e5), sent, received, account, Cost::default());
    t.multiple = multiple;
    t.purpose = if multiple.is_some() { Purpose::Curve } else { Purpose::Decide };
    if multiple.is_none() {
        (t.goal, t.offered_pps) = (Some(0.005), Some(got as f64));
    }
    t
}

fn run() -> FloodRun {
    let trials = vec![
        trial("wireguard-go", None, 20_001, 20_000),
        trial("wireguard-go", Some(4.0), 80_000, 10_000),
        trial("ironswan", None, 120_001, 120_000),
        trial("ironswan", Some(4.0), 480_000, 60_000),
    ];
    FloodRun {
        schema: FLOOD_SCHEMA.into(),
        experiment: "flood".into(),
        program: Program { name: "ironswan".into(), version: "0.1.0".into(), build: "release".into() },
        command_line: vec!["ironswan".into(), "lab".into(), "flood".into()],
        started: "2026-11-21T21:22:36Z".into(),
        seconds: 33.0,
        machine: sample::run().machine,
        versions: BTreeMap::from([("ironswan".to_string(), "ironswan 0.1.0".to_string())]),
        settings: FloodSettings {
            duts: vec!["wireguard-go".into(), "ironswan".into()],
            esp_proposal: "aes128gcm16".into(),
            goals: vec![0.005, 0.000_01],
            width: 0.05,
            packets: 1_000_000,
            probe: 1.0,
            multiples: vec![1.0, 2.0, 4.0],
            repeats: 1,
            inner_mtu: 1400,
        },
        results: FloodResults::of(&trials, &[0.005, 0.000_01]),
        trials,
        commands: BTreeMap::from([("x: ironswan".to_string(), vec!["ip netns add x".to_string()])]),
        warnings: vec![Warning::FewPackets { packets: 10 }.record()],
    }
}

#[test]
fn what_a_search_for_a_smaller_loss_carried_counts_for_a_larger_one() {
    let decided = |goal, rate: f64, loss| {
        let mut t = trial("ironswan", None, 120_001, 120_000);
        (t.goal, t.offered_pps, t.loss) = (Some(goal), Some(rate), loss);
        t
    };
    let (large, small) = (0.005, 0.000_01);
    let cases = [
        (vec![decided(large, 1e5, 0.0), decided(small, 9e4, 0.0)], [Some(1e5), Some(9e4)]),
        // The search for the larger loss was disturbed, and ended lower.
        (vec![decided(large, 1e5, 0.0), decided(small, 1.2e5, 0.0)], [Some(1.2e5), Some(1.2e5)]),
        (vec![decided(large, 1e5, 0.01), decided(small, 1.2e5, 0.004)], [Some(1.2e5), None]),
        // But not the other way round: that would be more trials for the smaller loss than its own.
        (vec![decided(large, 1e5, 0.0), decided(small, 9e4, 0.1)], [Some(1e5), None]),
    ];
    for (trials, want) in cases {
        let results = FloodResults::of(&trials, &[large, small]);
        let got: Vec<_> = results.cells[0].rows[0].throughput.iter().map(|t| t.pps).collect();
        assert_eq!(got, want);
    }
}

#[test]
fn a_flood_obeys_its_schema_and_reads_back_unchanged() {
    let run = run();
    let json = serde_json::to_value(&run).expect("JSON");
    assert_eq!(breaches_of(FLOOD_SCHEMA_JSON, &json), [""; 0]);
    let back: FloodRun = serde_json::from_value(json).expect("a run");
    assert_eq!(back, run);
    assert_eq!(open_objects(FLOOD_SCHEMA_JSON), [".properties.commands", ".properties.versions"]);
}

#[test]
fn whatever_breaks_the_schema_of_a_flood_is_found() {
    let good = serde_json::to_value(run()).expect("JSON");
    for (pointer, value) in [
        ("/schema", json!("ironswan.run/1")),
        ("/trials", json!([])),
        ("/trials/0/cell/placement", json!("everywhere")),
        ("/trials/0/loss", json!(1.5)),
        ("/trials/0/sent/unsent", json!(-1)),
        ("/trials/0/account/places/0/packets", json!(0)),
        ("/trials/0/received/latency/p50_us", json!(null)),
        ("/results/cells/0/rows/0/curve/0/of_peak", json!("half")),
        ("/settings/goals", json!([])),
    ] {
        let mut json: Value = good.clone();
        *json.pointer_mut(pointer).expect(pointer) = value;
        assert!(!breaches_of(FLOOD_SCHEMA_JSON, &json).is_empty(), "{pointer} was passed over");
    }
}

#[test]
fn ratios_and_shares_of_the_peak_follow_from_the_trials() {
    let run = run();
    let rows = &run.results.cells[0].rows;
    assert_eq!(rows[1].throughput[0].of_wireguard_go, Some(6.0));
    assert_eq!((rows[1].throughput[1].pps, rows[0].throughput[0].of_wireguard_go), (None, None));
    assert_eq!((rows[1].peak_pps, rows[1].curve[0].of_peak), (120_000.0, 0.5));
    // Unsent packets count as lost.
    assert!((run.trials[0].loss - 11.0 / 20_011.0).abs() < 1e-12);
}

#[test]
fn the_text_of_a_flood_names_throughput_share_of_peak_and_every_place() {
    for width in [80, 120] {
        let mut run = run();
        run.results.cells[0].rows[0].dut = "wireguard-go-tailscale".into();
        let text = flood_text(&run, width);
        for part in ["<=0.5 %", "<=0.001 %", "queue of ipsec0 on", "without a", "120", "6.0", "50%"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
    }
}
