//! A small run with round numbers, for tests of what is made from runs.

use std::collections::BTreeMap;

use super::run::*;
use super::warning::Warning;
use crate::load::{Direction, TcpReport};
use crate::machine::Fingerprint;
use crate::measure::counters::{CpuTicks, LinkCounters};
use crate::measure::{Gateway, Sample, TunnelDevice, Window};
use crate::record::Program;
use crate::topology::Mode;

fn trial(dut: &str, repeat: u32, gbps: f64, ns: f64) -> Trial {
    let tunnel = dut != "plain";
    let gateway = |node: &str| Gateway {
        node: node.into(),
        process: "ironswan".into(),
        cpu_ns: 1_000_000_000,
        resident_kib: Some(10_240),
    };
    Trial {
        dut: dut.into(),
        cell: CellKey { mode: Mode::Offload, streams: 1, direction: Direction::Forward, rate_mbps: None },
        repeat,
        began: f64::from(repeat) * 10.0,
        setup_seconds: 0.25,
        window: Window {
            seconds: 2.0,
            bytes: (gbps * 2.5e8) as u64,
            buffers: 1000,
            payload_bytes: (gbps * 2.5e8) as u64,
            gbps,
            bytes_per_buffer: 60_000.0,
            machine_ns_per_byte: ns,
            gateways_ns_per_byte: if tunnel { 1.0 } else { 0.0 },
            softirq_share: 0.25,
            busy_share: 0.9,
            busy: None,
            other_load_share: 0.0,
            backlog_drops: 0,
            cpu: CpuTicks::default(),
            ticks_per_second: 100,
            gateways: if tunnel { vec![gateway("g1"), gateway("g2")] } else { vec![] },
            links: BTreeMap::from([("b.eth0".to_string(), LinkCounters::default())]),
            tunnel: tunnel.then(|| TunnelDevice { name: "ipsec0".into(), counters: LinkCounters::default() }),
            samples: vec![Sample { t: 2.0, bytes: (gbps * 2.5e8) as u64, buffers: 1000, busy_ticks: 360 }],
        },
        tcp: TcpReport { retransmits: Some(0), payload_gbps: gbps },
        commands: vec!["ip netns add x".into()],
        files: vec!["raw/000-plain.iperf3.json".into()],
    }
}

/// Plain at 9, 10, 11 Gb/s and 1 ns per byte, a tunnel at 5, 6, 7 Gb/s and 2 ns per byte, at 2 GHz.
pub(crate) fn run() -> Run {
    let trials: Vec<Trial> = (0..3)
        .flat_map(|r| {
            let r64 = f64::from(r);
            [trial("plain", r, 9.0 + r64, 1.0), trial("ironswan", r, 5.0 + r64, 2.0)]
        })
        .collect();
    let machine = Fingerprint { mhz: Some(2000.0), ..Fingerprint::take() };
    Run {
        schema: SCHEMA.into(),
        experiment: "line".into(),
        program: Program { name: "ironswan".into(), version: "0.1.0".into(), build: "release".into() },
        command_line: vec!["ironswan".into(), "lab".into(), "line".into()],
        started: "2026-11-21T21:22:36Z".into(),
        seconds: 33.0,
        versions: BTreeMap::from([("iperf3".to_string(), "iperf 3.12".to_string())]),
        settings: LineSettings {
            duts: vec!["plain".into(), "ironswan".into()],
            esp_proposal: "aes128gcm16".into(),
            ike_proposal: "aes128gcm16-prfsha256-curve25519".into(),
            duration: 2.0,
            repeats: 3,
            inner_mtu: 1400,
            congestion: Some("cubic".into()),
        },
        results: Results::of(&trials, machine.mhz),
        trials,
        machine,
        history: crate::experiment::history_note(),
        warnings: vec![
            Warning::FewRepeats { repeats: 2 }.record(),
            Warning::SharedCores { cpus: 2 }.record(),
        ],
    }
}
