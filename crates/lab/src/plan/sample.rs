//! A model for tests, with round numbers.

use super::model::{
    Cell, Gathering, Handshake, Linear, MODEL_SCHEMA, ManySas, Mix, Model, Path, PathCost, Seen, Shared,
    SuiteCost, Way,
};
use crate::machine::Fingerprint;
use crate::report::Program;

pub(crate) fn model() -> Model {
    let buffers = Shared { own: 1.0, shared: 1.0, change: 0.5, merged: 0.1 };
    let calls = Shared { own: 0.0, shared: 2.0, change: 0.0, merged: 0.05 };
    let gathering = Gathering { window: 1e-4, most: 64.0, buffers, calls };
    let path = |path, way| PathCost {
        path,
        way,
        per_packet: 500.0,
        per_byte: 0.25,
        per_buffer: 400.0,
        per_call: 3_000.0,
        crypto: 1.0,
        residual: 0.02,
        cells: 10,
        gathering,
    };
    let line = |per_packet, per_byte| Linear { per_packet, per_byte, residual: 0.5 };
    let suite = |name: &str, line| SuiteCost {
        suite: name.into(),
        engines: "vaes".into(),
        seal: line,
        open: line,
        fixed_bytes: 32,
        block: 4,
    };
    Model {
        schema: MODEL_SCHEMA.into(),
        program: Program { name: "ironswan".into(), version: "0.1.0".into(), build: "release".into() },
        made: "2026-11-22T10:00:00Z".into(),
        seconds: 60.0,
        machine: Fingerprint { cpus: 2, mhz: Some(2_000.0), ..Fingerprint::take() },
        suites: vec![suite("aes128gcm16", line(40.0, 0.1)), suite("3des-sha1", line(500.0, 25.0))],
        paths: Path::BOTH.into_iter().flat_map(|p| Way::BOTH.map(|w| path(p, w))).collect(),
        kernel_ns: 700.0,
        handshake: Handshake { what: "PSK".into(), setup_us: 200.0, rekey_us: 100.0, samples: 5 },
        many_sas: [(1, 0.0), (100, 10.0), (10_000, 110.0)].map(|(sas, added)| ManySas { sas, added }).into(),
        cells: vec![Cell {
            suite: "aes128gcm16".into(),
            path: Path::Udp,
            mix: Mix::frames(64),
            pps: 1e4,
            seen: vec![Seen { seconds: 0.3, packets: 3_000.0, bytes_per_packet: 46.0, ..EMPTY }],
        }],
        held_back: vec!["imix".into()],
        warnings: vec![],
    }
}

pub(crate) const EMPTY: Seen = Seen {
    seconds: 0.0,
    packets: 0.0,
    bytes_per_packet: 0.0,
    loss: 0.0,
    out: super::model::Side { ns: 0.0, buffers: 0.0, calls: 0.0 },
    into: super::model::Side { ns: 0.0, buffers: 0.0, calls: 0.0 },
    machine_ns: 0.0,
    generator_ns: 0.0,
    other_share: 0.0,
};
