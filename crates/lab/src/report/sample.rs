//! A small record with round numbers, for tests of what is made from records.

use std::collections::BTreeMap;

use super::warning::Warning;
use crate::machine::Fingerprint;
use crate::record::{Baseline, Better, LAB_SCHEMA, Measure, Program, Record, Sample, factors, figures};

fn sample(dut: &str, repeat: u32, gbps: f64, ns: f64) -> Sample {
    let measures = [("gbps", gbps), ("machine_ns_per_byte", ns)];
    Sample {
        factors: factors([("dut", dut), ("load", "offload mode, 1 stream, a to b")]),
        repeat,
        began: f64::from(repeat) * 10.0,
        measures: measures.map(|(name, value)| (name.to_string(), value)).into(),
        absent: [].into(),
        files: vec![format!("raw/{repeat}-{dut}.iperf3.json")],
    }
}

fn measure(name: &str, unit: &str, what: &str, better: Better) -> Measure {
    Measure { name: name.into(), heading: unit.into(), unit: unit.into(), what: what.into(), better }
}

/// Plain at 9, 10, 11 Gb/s and 1 ns per byte, a tunnel at 5, 6, 7 Gb/s and 2 ns per byte, at 2 GHz.
pub(crate) fn record() -> Record {
    let samples: Vec<Sample> = (0..3)
        .flat_map(|r| {
            let r64 = f64::from(r);
            [sample("plain", r, 9.0 + r64, 1.0), sample("ironswan", r, 5.0 + r64, 2.0)]
        })
        .collect();
    let baseline = Some(Baseline { factor: "dut".into(), value: "plain".into() });
    Record {
        schema: LAB_SCHEMA.into(),
        experiment: "line".into(),
        number: "E1".into(),
        question: "What does a tunnel cost?".into(),
        program: Program { name: "ironswan".into(), version: "0.1.0".into(), build: "release".into() },
        command_line: vec!["ironswan".into(), "lab".into(), "line".into()],
        started: "2026-11-21T21:22:36Z".into(),
        seconds: 33.0,
        machine: Fingerprint { mhz: Some(2000.0), ..Fingerprint::take() },
        versions: BTreeMap::from([("iperf3".to_string(), "iperf 3.12".to_string())]),
        settings: BTreeMap::new(),
        measures: vec![
            measure("gbps", "Gb/s", "payload", Better::More),
            measure("machine_ns_per_byte", "ns/byte", "busy time per byte", Better::Less),
            measure("softirq_share", "share", "software interrupts", Better::Neither),
        ],
        figures: figures(&samples, baseline.as_ref()),
        baseline,
        samples,
        derived: vec![],
        views: vec![],
        history: vec![],
        commands: vec!["ip netns add x".into()],
        warnings: vec![
            Warning::FewRepeats { repeats: 2 }.record(),
            Warning::SharedCores { cpus: 2 }.record(),
        ],
    }
}
