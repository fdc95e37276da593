//! A model for tests, with round numbers.

use super::calm::{Agreement, Calm};
use super::cost::{BurstShare, Estimate, FlowCost};
use super::mix::Mix;
use super::model::{
    Cell, Forwarding, Handshake, MODEL_SCHEMA, ManySas, Model, Path, PathCost, Point, Seen, Side, TunnelCost,
    Way,
};
use super::rates::Rate;
use super::suite::{BURSTS, Burst, Linear, SuiteCost};
use super::verified::Taken;
use super::workers::WorkerCost;
use crate::machine::Fingerprint;
use crate::record::Program;

pub(crate) fn model() -> Model {
    // A waking is 6 us, and finds what came within 100 us.
    let points = |curve: &[f64]| -> Vec<Point> {
        let alone = |pps: f64| 1.0 / (1.0 + pps * 1e-4);
        let point = |&pps: &f64| Point {
            pps,
            ns: 900.0 + 6_000.0 * alone(pps),
            calls: 2.0 * alone(pps),
            burst: 1.0 / alone(pps),
            within: Some(10.0 + 60.0 * alone(pps)),
        };
        curve.iter().map(point).collect()
    };
    let path = |path, way| PathCost {
        path,
        way,
        per_byte: 0.25,
        per_change: 0.0,
        packets: points(&[1_000.0, 10_000.0, 90_000.0]),
        merged: points(&[40_000.0]),
        per_byte_within: Some(0.01),
        per_change_within: None,
        waking: Some(Estimate { value: 3_000.0, within: 60.0 }),
        gathering: None,
        residual: 0.02,
        cells: 10,
    };
    let line = |per_packet, per_byte| Linear { per_packet, per_byte, residual: 0.5 };
    let suite = |name: &str, line| SuiteCost {
        suite: name.into(),
        engines: "vaes".into(),
        bursts: BURSTS.map(|packets| Burst { packets, seal: line, open: line }),
        fixed_bytes: 32,
        block: 4,
    };
    Model {
        schema: MODEL_SCHEMA.into(),
        program: Program { name: "ironswan".into(), version: "0.0.9".into(), build: "release".into() },
        made: "2026-11-22T10:00:00Z".into(),
        seconds: 60.0,
        machine: Fingerprint {
            cpus: 2,
            mhz: Some(2_000.0),
            memory_kib: Some(24_000_000),
            ..Fingerprint::take()
        },
        system: None,
        suites: vec![suite("aes128gcm16", line(40.0, 0.1)), suite("3des-sha1", line(500.0, 25.0))],
        paths: Path::BOTH.into_iter().flat_map(|p| Way::BOTH.map(|w| path(p, w))).collect(),
        forwarding: Forwarding { pps: 60_000.0, hosts_ns: 9_000.0, ns: 700.0, spread_ns: 100.0 },
        handshake: Handshake {
            what: "PSK".into(),
            setup_us: 200.0,
            rekey_us: 100.0,
            rekey_within_us: Some(4.0),
            samples: 5,
        },
        tunnel: TunnelCost {
            tunnels: [100, 1_000],
            kib: 25.0,
            base_kib: 10_000.0,
            setup_us: 400.0,
            setup_within_us: Some(20.0),
        },
        many_sas: [(1, 0.0), (100, 10.0), (10_000, 110.0)]
            .map(|(sas, added)| ManySas { sas, added, within: Some(1.0) })
            .into(),
        flows: [(1, 0.0), (64, 10.0), (4_096, 110.0)]
            .map(|(flows, added)| FlowCost { flows, added: [added; 2], within: [2.0; 2] })
            .into(),
        bursts: [4, 64]
            .map(|n| BurstShare { at_once: n, shared: [f64::from(n); 2], ratio: [0.01; 2] })
            .into(),
        // Neither worker is in the other's way.
        workers: [1, 2]
            .map(|workers| WorkerCost { workers, pps: [1e5; 2], ns: [2_000.0; 2], within: [20.0; 2] })
            .into(),
        cells: vec![Cell {
            suite: "aes128gcm16".into(),
            path: Path::Udp,
            mix: Mix::frames(64),
            flows: None,
            burst: None,
            offered: Some(1e4),
            alone: None,
            seen: vec![Seen { seconds: 0.3, packets: 3_000.0, bytes_per_packet: 46.0, ..EMPTY }],
        }],
        held_back: vec!["imix".into()],
        calm: Some(Calm { others: 0.01, stolen: 0.0, spread: Some(0.02) }),
        agreement: Some(Agreement {
            made: "2026-11-22T09:00:00Z".into(),
            apart: 3_600.0,
            question: "processors".into(),
            differs: 0.02,
        }),
        warnings: vec![],
    }
}

pub(crate) const EMPTY: Seen = Seen {
    seconds: 0.0,
    packets: 0.0,
    bytes_per_packet: 0.0,
    loss: 0.0,
    out: Side { pps: 0.0, ns: 0.0, calls: 0.0, burst: 1.0 },
    into: Side { pps: 0.0, ns: 0.0, calls: 0.0, burst: 1.0 },
    machine_ns: 0.0,
    other_share: 0.0,
};

/// Parts of a verification of [`model`]: one load, that the calibration has as well.
pub(crate) fn taken() -> Taken {
    let model = model();
    Taken {
        program: model.program,
        made: "2026-11-22T11:00:00Z".into(),
        seconds: 30.0,
        machine: model.machine,
        model_made: model.made,
        // Two repeats.
        measured: model
            .cells
            .into_iter()
            .map(|c| Cell { seen: [c.seen.clone(), c.seen].concat(), ..c })
            .collect(),
        drawn: None,
        against: None,
        rates: vec![],
        warnings: vec![],
    }
}

/// A highest rate that is predicted exactly.
pub(crate) fn rate() -> Rate {
    Rate {
        dut: "ironswan".into(),
        suite: "aes128gcm16".into(),
        path: Path::Udp,
        way: Way::Out,
        mix: Mix::frames(64),
        loss: "0".into(),
        measured_pps: 500_000.0,
        spread: None,
        machine_ns: 4_000.0,
        measured_ns: 1_500.0,
        beside_ns: 2_500.0,
        busy_at_most: 1.0,
        predicted_pps: 500_000.0,
        predicted_ns: 1_500.0,
        ns_error: 0.0,
        error: 0.0,
    }
}
