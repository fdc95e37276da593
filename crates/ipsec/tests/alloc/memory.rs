//! What the engine takes at most, in bytes of its allocations: for an SA, for a worker that is
//! flooded; and that it gives them back. The figures here are those that docs/performance.md
//! states.

use std::sync::Arc;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{DropReason, Engine, TxBatch, TxConfig, Worker};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, Mode, PolicyAdd, ReqId, SaAdd, SaRef, Spi};

use super::common::*;
use super::live;
use super::out_common::{fragments, outbound, policies, udp_between, with_keys};

const KIB: i64 = 1024;
const MIB: i64 = 1024 * KIB;

/// A pair of SAs (one out, one in with a window of 4,096 packets) and its policy, in bytes: two
/// keys with their schedules make up most.
const OF_A_PAIR: i64 = 6 * KIB;
/// Libipsec-mb's keys besides.
const OF_A_PAIR_OF_IPSEC_MB: i64 = 8 * KIB;
/// What is left of it when it is gone: places in tables, which the next pair takes.
const OF_A_PAIR_GONE: i64 = 512;
/// A worker that is not flooded: its caches of flows as they begin.
const OF_A_WORKER: i64 = 768 * KIB;
/// What a flood can make of it: flows (32 MiB), packets that wait for an SA (4 MiB and what
/// describes them), fragments that wait for others (1 MiB, and the packets that they become), and
/// what each of them has of tables.
const OF_A_FLOODED_WORKER: i64 = 40 * MIB;

fn engine() -> Arc<Engine> {
    Engine::new(Box::new(Seeded::new(1)), config())
}

fn udp_to(dst: &str, ports: (u16, u16)) -> Vec<u8> {
    Spec { dst: ip(dst), ports, ..Spec::udp(36) }.build()
}

/// The SAs and the policy of one tunnel of many, each with a peer of its own.
fn tunnel(k: u32) -> [Command; 3] {
    let mut out = SaAdd { spi: Spi(SPI + k), reqid: ReqId(k + 1), udp_encap: true, ..outbound(false) };
    out.remote.set_ip(ip(&format!("198.18.{}.{}", k >> 8, k & 255)));
    out.local_ts = vec![ts("10.1.0.0/16")];
    out.remote_ts = vec![ts(&format!("10.2.{}.{}/32", k >> 8, k & 255))];
    let out = with_keys(out);
    let inb = SaAdd { direction: Direction::In, replay_window: 4_096, ..out.clone() };
    let policy = PolicyAdd {
        name: "tunnel".into(),
        action: Action::Protect(out.reqid),
        local: out.local_ts[0],
        remote: out.remote_ts[0],
        priority: 0,
        entry: Entry::default(),
    };
    [Command::PolicyAdd(policy), Command::SaAdd(Box::new(inb)), Command::SaAdd(Box::new(out))]
}

/// What takes a command back.
fn opposite(command: Command) -> Command {
    match command {
        Command::PolicyAdd(policy) => Command::PolicyDelete(policy),
        Command::SaAdd(sa) => Command::SaDelete(SaRef {
            direction: sa.direction,
            spi: sa.spi,
            reqid: sa.reqid,
            remote: sa.remote.ip(),
        }),
        other => panic!("{other:?} was not added"),
    }
}

#[test]
fn ten_thousand_sas_come_and_go_ten_times_and_leave_nothing() {
    const PAIRS: u32 = 10_000;
    let engine = engine();
    let mut worker = Worker::new(engine.clone());
    let mut tx = TxBatch::new(TxConfig::default());
    let (mut most, mut after) = (Vec::with_capacity(10), Vec::with_capacity(10));
    let empty = live();
    for _ in 0..10 {
        for k in 0..PAIRS {
            tunnel(k).into_iter().for_each(|c| engine.apply(SECOND, &c).unwrap());
        }
        worker.begin(SECOND);
        for k in 0..PAIRS {
            let mut frame = udp_to(&format!("10.2.{}.{}", k >> 8, k & 255), (4_000, 53));
            assert!(worker.outbound(&mut frame, &Offload::NONE, &mut tx));
            if k % 256 == 255 || k + 1 == PAIRS {
                worker.seal(&mut tx);
                tx.clear();
            }
        }
        most.push(live() - empty);
        for k in 0..PAIRS {
            tunnel(k).into_iter().for_each(|c| engine.apply(SECOND, &opposite(c)).unwrap());
        }
        worker.begin(SECOND);
        after.push(live() - empty);
    }
    assert_eq!(engine.counters().traffic.out_sent, 10 * u64::from(PAIRS), "each had its packet");
    let pairs = i64::from(PAIRS);
    println!("{} bytes a pair, of which {} stay when all are gone", most[0] / pairs, after[0] / pairs);
    assert!(most[0] > pairs * KIB, "they were there: {most:?}");
    let other = std::env::var_os("IRONSWAN_ENGINE").is_some_and(|engine| engine == "ipsec-mb");
    let of_a_pair = if other { OF_A_PAIR_OF_IPSEC_MB } else { OF_A_PAIR };
    assert!(most.iter().all(|m| *m <= pairs * of_a_pair), "{most:?}");
    // Tables keep the room for as many as there once were.
    assert!(after.iter().all(|a| *a <= pairs * OF_A_PAIR_GONE), "{after:?}");
    // The list of places that are free again is there from the second time on.
    assert!(most[1] <= most[0] + 8 * pairs, "{most:?}");
    assert!(most[2..].iter().all(|m| *m <= most[1]), "no more from the third time on: {most:?}");
    assert!(after[2..].iter().all(|a| *a <= after[1]), "nothing is left from the second time on: {after:?}");
}

#[test]
fn a_flood_takes_no_more_of_a_worker_than_is_stated() {
    // Enough policies for the cache of flows to grow; half of them have no SA; one is for transport
    // mode, with fragments.
    const POLICIES: u32 = 1_024;
    const ROUNDS: u32 = 40;
    let whole = Spec { df: false, ..udp_between(false, 60_000) }.build();
    let mut half = fragments(&whole, 30_000, 1).remove(0);
    let engine = engine();
    for k in 0..POLICIES {
        for command in tunnel(k).into_iter().take(if k % 2 == 0 { 3 } else { 1 }) {
            engine.apply(SECOND, &command).unwrap();
        }
    }
    let transport = with_keys(SaAdd { mode: Mode::Transport, reqid: ReqId(POLICIES + 1), ..outbound(false) });
    for command in policies(transport.reqid).into_iter().chain([Command::SaAdd(Box::new(transport))]) {
        engine.apply(SECOND, &command).unwrap();
    }
    let before = live();
    let mut worker = Worker::new(engine.clone());
    worker.begin(SECOND);
    let idle = live() - before;
    let mut tx = TxBatch::new(TxConfig::default());
    let memory = live() - before - idle;
    let mut most = Vec::with_capacity(ROUNDS as usize);
    let mut number = 0u32;
    for round in 0..ROUNDS {
        for _ in 0..16_384 {
            number += 1;
            // Every packet is a flow of its own; every 16th goes where there is no SA, every 64th
            // is half of a large one.
            let k = if number.is_multiple_of(16) { number % 512 * 2 + 1 } else { number % 512 * 2 };
            let ports = ((number >> 9) as u16, (number >> 20) as u16 + 1);
            let mut frame = if number.is_multiple_of(64) {
                half[4..6].copy_from_slice(&((number / 64) as u16).to_be_bytes());
                v4::set_checksum(&mut half[..20]);
                half.clone()
            } else {
                udp_to(&format!("10.2.{}.{}", k >> 8, k & 255), ports)
            };
            if !worker.outbound(&mut frame, &Offload::NONE, &mut tx) {
                worker.seal(&mut tx);
                tx.clear();
                assert!(worker.outbound(&mut frame, &Offload::NONE, &mut tx));
            }
        }
        worker.seal(&mut tx);
        tx.clear();
        engine.take_up();
        worker.begin(SECOND + SECOND * round / ROUNDS);
        most.push(live() - before - memory);
    }
    let counters = engine.counters();
    assert!(counters.balance(), "{counters:?}");
    assert!(counters.traffic.out_sent > 500_000 && counters.dropped(DropReason::OutNoStates) > 10_000);
    assert!(counters.dropped(DropReason::OutReassembly) > 1_000, "{counters:?}");
    println!("a worker: {idle} bytes idle, {} in a flood", most[39]);
    assert!(idle <= OF_A_WORKER, "{idle} bytes idle");
    assert!(most.iter().all(|m| *m <= OF_A_FLOODED_WORKER), "{most:?}");
    assert!(most[39] > idle + 32 * MIB, "the flood reached what it was to fill: {most:?}");
    assert!(most[20..].iter().all(|m| *m <= most[19]), "the second half adds nothing: {most:?}");
    // What waited is given back when it has waited long enough.
    worker.begin(SECOND * 60);
    while worker.release(&mut tx) {}
    let after = live() - before - memory;
    println!("{after} bytes when nothing waits any more");
    assert!(after <= idle + 33 * MIB, "only the cache of flows is left: {after}");
}
