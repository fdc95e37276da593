//! Properties and counters of the user-space data plane.

use ironswan_crypto::engines::{EngineId, EngineSelection};
use ironswan_ipsec::Engine;

use super::workers::Workers;
use crate::dataplane::{Property, Report};

/// Reads the workers and the engine. `threaded_napi`: the interfaces that kernel threads poll;
/// `slower`: the degradations that the workers have reported.
pub(super) fn of(
    workers: &Workers,
    engine: &Engine,
    selection: &EngineSelection,
    threaded_napi: Vec<String>,
    slower: &[String],
) -> Report {
    let chosen = |id: &EngineId| selection.table.iter().any(|m| m.chosen == *id);
    let engines = EngineId::ALL.into_iter().filter(chosen).map(|id| id.name().to_owned());
    let mut report = Report {
        name: "user-space-esp",
        workers: workers.workers(),
        properties: vec![("engines", Property::Names(engines.collect()))],
        counters: counters(workers),
        replays: Some(engine.replay_drops()),
        stages: workers.stats().stages,
        ..Report::default()
    };
    report.properties.extend(workers.offloads().properties());
    report.properties.push(("threaded-napi", Property::Names(threaded_napi)));
    report.properties.push(("slower", Property::Names(slower.to_vec())));
    packets(engine, &mut report);
    report
}

/// Packets and drops, as the engine counts them.
fn packets(engine: &Engine, report: &mut Report) {
    let c = engine.counters();
    let t = c.traffic;
    report.packets = vec![
        ("out-frames", t.out_frames),
        ("out-made", t.out_made),
        ("out-dummies", t.out_dummies),
        ("out-absorbed", t.out_absorbed),
        ("out-sent", t.out_sent),
        ("out-bytes", t.out_bytes),
        ("in-packets", t.in_packets),
        ("in-writes", t.in_writes),
        ("in-merged", t.in_merged),
        ("in-dummies", t.in_dummies),
        ("in-bytes", t.in_bytes),
        ("in-held", c.in_held),
        ("held", c.held),
    ];
    report.drops = c.drops().map(|(reason, n)| (reason.name(), n)).collect();
}

/// Counters of the workers and of the sockets.
fn counters(workers: &Workers) -> Vec<(&'static str, u64)> {
    let s = workers.stats();
    let mut counters = vec![
        ("rounds", s.rounds),
        ("batches-exhausted", s.exhausted),
        ("tun-reads", s.tun_reads),
        ("tun-read-errors", s.tun_read_errors),
        ("tun-read-bytes", s.tun_read_bytes),
        ("tun-writes", s.tun_writes),
        ("tun-write-bytes", s.tun_write_bytes),
        ("tun-write-errors", s.tun_write_errors),
        ("tun-write-unmerged", s.tun_write_unmerged),
        ("seals", s.seals),
        ("receives", s.receives),
        ("received", s.received),
        ("received-bytes", s.received_bytes),
        ("receive-errors", s.receive_errors),
        ("ike", s.ike),
        ("ike-dropped", s.ike_dropped),
        ("ike-dropped-full", workers.ike_dropped_full()),
        ("keepalives", s.keepalives),
        ("malformed", s.malformed),
        ("socket-drops", workers.socket_drops()),
    ];
    counters.extend(workers.paths().counters());
    counters.extend(workers.icmp_counters());
    counters.extend(workers.xdp_stats().named());
    counters.extend(s.send.named());
    counters
}
