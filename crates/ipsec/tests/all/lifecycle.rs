//! Commands and what follows from them: rekey, fall-back, moved peers, limits, acquires, policies;
//! and the books balance.

use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::DropReason::{self, *};
use ironswan_ipsec::{
    ApplyError, Carrier, Config, Datagram, Engine, RxBatch, TxBatch, TxConfig, Worker, demux,
};
use ironswan_wire::esp::UdpKind;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaRef, Spi, Tfc, Up,
};
use ironswan_wire::secret::Secret;

use crate::common::*;

fn add(pair: &Pair, direction: Direction, spi: u32) {
    let engine = if direction == Direction::Out { &pair.a } else { &pair.b };
    let sa = pair.options.sa(direction, spi, REQID, u64::from(spi));
    engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
}

fn begin(pair: &mut Pair) {
    pair.wa.begin(SECOND);
    pair.wb.begin(SECOND);
}

fn spi_of(p: &[u8]) -> u32 {
    u32::from_be_bytes(p[..4].try_into().unwrap())
}

fn drop_reason(engine: &Engine) -> Option<(DropReason, u64)> {
    let c = engine.counters();
    assert!(c.balance(), "{c:?}");
    c.drops().find(|(_, n)| *n != 0)
}

#[test]
fn the_newest_outbound_sa_is_used_and_an_older_one_when_it_goes() {
    let mut pair = Pair::new(Options::default());
    let frame = Spec::udp(20).build();
    assert_eq!(spi_of(&pair.seal_one(&frame)), SPI);
    add(&pair, Direction::In, SPI + 1);
    add(&pair, Direction::Out, SPI + 1);
    begin(&mut pair);
    let p = pair.seal_one(&frame);
    assert_eq!(spi_of(&p), SPI + 1);
    assert_eq!(pair.open(&[p]).len(), 1);
    let newest = SaRef { spi: Spi(SPI + 1), ..pair.out_ref() };
    pair.a.apply(SECOND, &Command::SaDelete(newest)).unwrap();
    begin(&mut pair);
    let p = pair.seal_one(&frame);
    assert_eq!(spi_of(&p), SPI);
    assert_eq!(p[4..8], 2u32.to_be_bytes(), "the older one goes on where it was");
    assert_eq!(pair.a.apply(SECOND, &Command::SaDelete(newest)), Err(ApplyError::NotFound));
    pair.a.apply(SECOND, &Command::SaDelete(pair.out_ref())).unwrap();
    pair.b.apply(SECOND, &Command::SaDelete(pair.in_ref())).unwrap();
    begin(&mut pair);
    assert!(pair.seal(&[(frame, Offload::NONE)]).is_empty());
    assert_eq!((drop_reason(&pair.a), pair.a.counters().held), (None, 1));
    assert!(pair.open(&[p]).is_empty());
    assert_eq!(drop_reason(&pair.b), Some((InNoStates, 1)));
    assert_eq!(pair.b.sas().len(), 1);
}

#[test]
fn workers_see_commands_from_their_next_batch_on() {
    let mut pair = Pair::new(Options::default());
    let frame = Spec::udp(20).build();
    add(&pair, Direction::Out, SPI + 1);
    assert_eq!(spi_of(&pair.seal_one(&frame)), SPI);
    begin(&mut pair);
    assert_eq!(spi_of(&pair.seal_one(&frame)), SPI + 1);
}

/// A peer sends as soon as it has been told, which may be within the worker's round.
#[test]
fn what_arrives_finds_an_sa_that_was_installed_within_the_round() {
    let mut pair = Pair::new(Options::default());
    add(&pair, Direction::Out, SPI + 1);
    pair.wa.begin(SECOND);
    let esp = pair.seal_one(&Spec::udp(20).build());
    assert_eq!(spi_of(&esp), SPI + 1);
    add(&pair, Direction::In, SPI + 1);
    assert_eq!(pair.open(&[esp]).len(), 1, "{:?}", pair.b.counters());
}

#[test]
fn a_moved_peer_keeps_sequence_numbers_and_counters() {
    let mut pair = Pair::new(Options::default());
    let frame = Spec::udp(20).build();
    let first = pair.seal_one(&frame);
    let (local, remote) = ("192.0.2.9:4500".parse().unwrap(), "198.51.100.7:61234".parse().unwrap());
    let sa = pair.out_ref();
    pair.a.apply(SECOND, &Command::SaUpdate { sa, local, remote, udp_encap: true }).unwrap();
    let sa = pair.in_ref();
    pair.b.apply(SECOND, &Command::SaUpdate { sa, local: remote, remote: local, udp_encap: true }).unwrap();
    begin(&mut pair);
    let second = pair.seal_one(&frame);
    assert_eq!(second[4..8], 2u32.to_be_bytes());
    assert_eq!((pair.tx.sends[0].local, pair.tx.sends[0].remote), (local, remote));
    assert_eq!(pair.open_each(&[first, second]).len(), 2);
    let moved = SaRef { remote: remote.ip(), ..pair.out_ref() };
    assert_eq!(pair.a.sa_stats(moved).unwrap().packets, 2);
    assert_eq!(pair.a.sa_stats(pair.out_ref()), None);
    // To raw ESP, IPv6.
    let (local, remote) = ("[2001:db8::1]:0".parse().unwrap(), "[2001:db8::2]:0".parse().unwrap());
    pair.a.apply(SECOND, &Command::SaUpdate { sa: moved, local, remote, udp_encap: false }).unwrap();
    begin(&mut pair);
    pair.seal_one(&frame);
    assert!(pair.tx.sends[0].carrier == Carrier::Esp);
    let mixed = Command::SaUpdate {
        sa: SaRef { remote: remote.ip(), ..moved },
        local: "192.0.2.1:0".parse().unwrap(),
        remote,
        udp_encap: false,
    };
    assert_eq!(pair.a.apply(SECOND, &mixed), Err(ApplyError::Family));
}

#[test]
fn two_peers_behind_one_nat_may_choose_the_same_spi() {
    let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
    // One public address, two ports, the same SPI: only their policies tell them apart.
    let at = |port: u16| format!("192.0.2.2:{port}").parse().unwrap();
    let peer = |reqid: u32, port: u16, inside: &str| {
        let options =
            Options { right: vec![ts(inside)], left: vec![ts("10.1.0.0/16")], ..Options::default() };
        for p in options.policies(reqid) {
            engine.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
        }
        let mut sa = options.sa(Direction::Out, SPI, reqid, u64::from(reqid));
        sa.remote = at(port);
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).unwrap();
        assert_eq!(engine.apply(SECOND, &Command::SaAdd(Box::new(sa))), Err(ApplyError::Exists));
        SaRef { direction: Direction::Out, spi: Spi(SPI), reqid: ReqId(reqid), remote: ip("192.0.2.2") }
    };
    let first = peer(1, 10_001, "10.2.0.0/16");
    let second = peer(2, 10_002, "10.3.0.0/16");
    let mut worker = Worker::new(engine.clone());
    let mut sent = |dst: &str| {
        let mut tx = TxBatch::new(TxConfig::default());
        worker.begin(SECOND);
        let mut frame = Spec { dst: ip(dst), ..Spec::udp(20) }.build();
        assert!(worker.outbound(&mut frame, &Offload::NONE, &mut tx));
        worker.seal(&mut tx);
        tx.sends.first().map(|s| s.remote)
    };
    assert_eq!((sent("10.2.0.1"), sent("10.3.0.1")), (Some(at(10_001)), Some(at(10_002))));
    // A move of one, to another port and to another address, leaves the other where it is.
    let local = "192.0.2.1:4500".parse().unwrap();
    let update = |sa, remote| Command::SaUpdate { sa, local, remote, udp_encap: true };
    engine.apply(SECOND, &update(second, at(20_002))).unwrap();
    assert_eq!((sent("10.2.0.1"), sent("10.3.0.1")), (Some(at(10_001)), Some(at(20_002))));
    let elsewhere = "198.51.100.9:4500".parse().unwrap();
    engine.apply(SECOND, &update(first, elsewhere)).unwrap();
    assert_eq!((sent("10.2.0.1"), sent("10.3.0.1")), (Some(elsewhere), Some(at(20_002))));
    let first = SaRef { remote: elsewhere.ip(), ..first };
    assert_eq!(engine.sa_stats(first).map(|s| s.packets), Some(3));
    engine.apply(SECOND, &Command::SaDelete(second)).unwrap();
    assert_eq!(engine.apply(SECOND, &Command::SaDelete(second)), Err(ApplyError::NotFound));
    assert_eq!((sent("10.2.0.1"), sent("10.3.0.1")), (Some(elsewhere), None));
}

#[test]
fn limits_of_packets_and_bytes() {
    let lifetime = Lifetime { soft_packets: 3, hard_packets: 5, ..Lifetime::default() };
    let mut pair = Pair::new(Options { lifetime, ..Options::default() });
    let frame = (Spec::udp(20).build(), Offload::NONE);
    let esp = pair.seal(&vec![frame.clone(); 8]);
    assert_eq!(esp.len(), 5);
    assert_eq!(drop_reason(&pair.a), Some((OutStateExpired, 3)));
    let (out, inb) = (pair.out_ref(), pair.in_ref());
    assert_eq!(pair.a.take_up(), [Up::Expire { sa: out, hard: false }, Up::Expire { sa: out, hard: true }]);
    assert_eq!(pair.a.take_up(), []);
    assert_eq!(pair.open_each(&esp).len(), 5);
    assert_eq!(pair.b.take_up(), [Up::Expire { sa: inb, hard: false }, Up::Expire { sa: inb, hard: true }]);

    let lifetime = Lifetime { hard_bytes: 10_000, soft_bytes: 5_000, ..Lifetime::default() };
    let mut pair = Pair::new(Options { lifetime, ..Options::default() });
    let esp = pair.seal(&[Spec::tcp(6_000).superpacket(1_000), Spec::tcp(6_000).superpacket(1_000), frame]);
    assert_eq!(esp.len(), 7, "the second would go beyond it, what is smaller fits");
    assert_eq!(pair.a.take_up().len(), 2);
    assert_eq!(drop_reason(&pair.a), Some((OutStateExpired, 1)));
}

#[test]
fn an_inbound_sa_past_its_hard_limit_carries_nothing_more() {
    let lifetime = Lifetime { hard_packets: 2, ..Lifetime::default() };
    let mut sender = Pair::new(Options::default());
    let mut pair = Pair::new(Options { lifetime, ..Options::default() });
    let esp: Vec<_> = (0..5).map(|_| sender.seal_one(&Spec::udp(20).build())).collect();
    assert_eq!(pair.open_each(&esp).len(), 2);
    assert_eq!(pair.dropped(), Some((InStateExpired, 3)));
}

#[test]
fn the_first_authenticated_packet_is_reported_once() {
    let mut pair = Pair::new(Options { notify_first_use: true, ..Options::default() });
    let mut bad = pair.seal_one(&Spec::udp(20).build());
    bad[20] ^= 1;
    pair.open(&[bad]);
    assert_eq!(commands(&pair.b), []);
    let good: Vec<_> = (0..3).map(|_| pair.seal_one(&Spec::udp(20).build())).collect();
    pair.open(&good);
    assert_eq!(pair.b.take_up(), [Up::FirstUse { spi: Spi(SPI) }]);
    let more = pair.seal_one(&Spec::udp(20).build());
    pair.open(&[more]);
    assert_eq!(pair.b.take_up(), []);
}

#[test]
fn a_packet_without_sa_asks_for_one() {
    let mut pair = Pair::new(Options::default());
    pair.a.apply(SECOND, &Command::SaDelete(pair.out_ref())).unwrap();
    begin(&mut pair);
    let frame = (Spec::tcp(20).build(), Offload::NONE);
    assert!(pair.seal(&vec![frame.clone(); 10]).is_empty());
    assert_eq!((drop_reason(&pair.a), pair.a.counters().held), (None, 10));
    let up = pair.a.take_up();
    assert_eq!(up.len(), 1);
    let Up::Acquire { reqid, packet } = up[0] else { panic!("{up:?}") };
    assert_eq!(reqid, ReqId(REQID));
    assert_eq!((packet.src, packet.dst, packet.protocol), (ip("10.1.0.1"), ip("10.2.0.1"), 6));
    assert_eq!((packet.src_port, packet.dst_port), (Some(40_000), Some(5_201)));
    assert_eq!(pair.a.counters().acquires_suppressed, 9);
    pair.wa.begin(SECOND + Duration::from_millis(999));
    pair.seal(&vec![frame.clone(); 3]);
    assert!(pair.a.take_up().is_empty());
    pair.wa.begin(SECOND * 2);
    pair.seal(&[frame]);
    assert_eq!(pair.a.take_up().len(), 1);
}

fn policy(action: Action, local: &str, remote: &str, priority: u32) -> PolicyAdd {
    PolicyAdd {
        name: "p".into(),
        action,
        local: ts(local),
        remote: ts(remote),
        priority,
        entry: Entry::default(),
    }
}

#[test]
fn protect_bypass_discard_and_nothing() {
    let mut pair = Pair::new(Options::default());
    for p in [
        policy(Action::Bypass, "10.1.0.0/16", "10.2.3.0/24", 0),
        policy(Action::Discard, "10.1.0.0/16", "10.2.3.4/32", 0),
    ] {
        pair.a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    begin(&mut pair);
    let to = |dst: &str| (Spec { dst: ip(dst), ..Spec::udp(20) }.build(), Offload::NONE);
    for _ in 0..2 {
        assert_eq!(pair.seal(&[to("10.2.0.1")]).len(), 1);
        assert_eq!(pair.seal(&[to("10.2.3.1"), to("10.2.3.4"), to("10.9.0.1")]).len(), 0);
    }
    let c = pair.a.counters();
    assert_eq!(
        (c.dropped(OutPolBypass), c.dropped(OutPolBlock), c.dropped(OutNoPolicy), c.dropped_out()),
        (2, 2, 2, 6)
    );
    assert!(c.balance());
}

#[test]
fn explicit_priorities_come_before_specific_selectors() {
    let mut pair = Pair::new(Options::default());
    let block = policy(Action::Discard, "10.0.0.0/8", "10.0.0.0/8", 5);
    pair.a.apply(SECOND, &Command::PolicyAdd(block.clone())).unwrap();
    pair.a.apply(SECOND, &Command::PolicyAdd(block.clone())).unwrap();
    let frame = (Spec::udp(20).build(), Offload::NONE);
    // Added twice: removed when it was deleted twice.
    for sent in [0, 0, 1] {
        begin(&mut pair);
        assert_eq!(pair.seal(std::slice::from_ref(&frame)).len(), sent);
        let deleted = pair.a.apply(SECOND, &Command::PolicyDelete(block.clone()));
        assert_eq!(deleted, if sent == 0 { Ok(()) } else { Err(ApplyError::NotFound) });
    }
}

#[test]
fn an_sa_narrower_than_its_policy_carries_what_was_agreed_only() {
    let mut pair = Pair::new(Options::default());
    pair.a
        .apply(
            SECOND,
            &Command::PolicyAdd(policy(Action::Protect(ReqId(REQID)), "10.1.0.0/16", "10.0.0.0/8", 0)),
        )
        .unwrap();
    begin(&mut pair);
    let frame = (Spec { dst: ip("10.5.0.1"), ..Spec::udp(20) }.build(), Offload::NONE);
    assert!(pair.seal(&[frame]).is_empty());
    assert_eq!(drop_reason(&pair.a), Some((OutStateMismatch, 1)));
}

#[test]
fn a_flow_accepted_on_one_sa_is_not_accepted_on_another() {
    let mut pair = Pair::new(Options::default());
    // A second SA of the same peer, for another net.
    let other = Options { left: vec![ts("10.9.0.0/16")], ..Options::default() };
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(other.sa(Direction::In, SPI + 1, 2, 43)))).unwrap();
    let mut sender = Pair::new(Options::default());
    sender
        .a
        .apply(SECOND, &Command::SaAdd(Box::new(sender.options.sa(Direction::Out, SPI + 1, REQID, 43))))
        .unwrap();
    begin(&mut pair);
    let frame = Spec::udp(20).build();
    let first = sender.seal_one(&frame);
    begin(&mut sender);
    let second = sender.seal_one(&frame);
    assert_eq!((spi_of(&first), spi_of(&second)), (SPI, SPI + 1));
    for _ in 0..2 {
        // The window is fresh each time for the second only: the first is a duplicate later.
        pair.open(&[first.clone(), second.clone()]);
    }
    let c = pair.b.counters();
    assert_eq!((c.traffic.in_writes, c.dropped(InStateMismatch)), (1, 1));
    assert!(c.balance());
}

#[test]
fn a_flow_that_was_accepted_is_judged_again_when_policy_changes() {
    let mut pair = Pair::new(Options::default());
    let frame = Spec::udp(20).build();
    let esp: Vec<_> = (0..3).map(|_| pair.seal_one(&frame)).collect();
    assert_eq!(pair.open(&esp[..1]).len(), 1);
    let discard = policy(Action::Discard, "10.2.0.0/16", "10.1.0.0/16", 0);
    pair.b.apply(SECOND, &Command::PolicyAdd(discard.clone())).unwrap();
    begin(&mut pair);
    assert_eq!(pair.open(&esp[1..2]).len(), 0);
    assert_eq!(pair.dropped(), Some((InPolBlock, 1)));
    pair.b.apply(SECOND, &Command::PolicyDelete(discard)).unwrap();
    begin(&mut pair);
    assert_eq!(pair.open(&esp[2..]).len(), 1);
}

#[test]
fn refused_commands_change_nothing() {
    let pair = Pair::new(Options::default());
    let good = pair.options.sa(Direction::In, SPI + 9, REQID, 1);
    let (before, policies) = (pair.b.sas(), pair.b.policies());
    let mut cases = vec![];
    let mut case = |error, change: &dyn Fn(&mut ironswan_wire::sadb::SaAdd)| {
        for direction in [Direction::In, Direction::Out] {
            let mut sa = ironswan_wire::sadb::SaAdd { direction, ..good.clone() };
            change(&mut sa);
            cases.push((error, Command::SaAdd(Box::new(sa))));
        }
    };
    case(ApplyError::Protocol, &|s| s.protocol = ProtocolId::IKE);
    case(ApplyError::Encap, &|s| s.protocol = ProtocolId::AH);
    case(ApplyError::Key, &|s| (s.protocol, s.udp_encap) = (ProtocolId::AH, false));
    case(ApplyError::Options, &|s| (s.mode, s.options.tfc) = (Mode::Transport, Tfc::Mtu));
    case(ApplyError::Options, &|s| s.options.dscp_out = Dscp::Set(64));
    case(ApplyError::ReservedSpi, &|s| s.spi = Spi(0));
    case(ApplyError::ReservedSpi, &|s| s.spi = Spi(255));
    case(ApplyError::Key, &|s| s.encr_key = Secret::new(vec![0; 19]));
    case(ApplyError::Key, &|s| s.integ_key = Secret::new(vec![0; 32]));
    case(ApplyError::Key, &|s| s.suite.key_bits = 129);
    case(ApplyError::Selectors, &|s| s.local_ts.clear());
    case(ApplyError::Selectors, &|s| s.remote_ts.clear());
    case(ApplyError::Family, &|s| s.local = "[::1]:4500".parse().unwrap());
    case(ApplyError::Window, &|s| s.replay_window = (1 << 20) + 1);
    let existing = pair.options.sa(Direction::In, SPI, REQID, 1);
    cases.push((ApplyError::Exists, Command::SaAdd(Box::new(existing))));
    let missing = SaRef { spi: Spi(SPI + 5), ..pair.in_ref() };
    cases.push((ApplyError::NotFound, Command::SaDelete(missing)));
    cases.push((ApplyError::NotFound, Command::SaDelete(pair.out_ref())));
    let (local, remote) = pair.options.outer();
    cases.push((ApplyError::NotFound, Command::SaUpdate { sa: missing, local, remote, udp_encap: true }));
    let p = policy(Action::Bypass, "10.1.0.0/16", "10.2.0.0/16", 0);
    cases.push((ApplyError::NotFound, Command::PolicyDelete(p.clone())));
    let mixed = PolicyAdd { remote: ts("fd00::/8"), ..p };
    cases.push((ApplyError::Family, Command::PolicyAdd(mixed)));
    for (error, command) in cases {
        assert_eq!(pair.b.apply(SECOND, &command), Err(error), "{command:?}");
        assert_eq!((pair.b.sas(), pair.b.policies()), (before.clone(), policies.clone()));
    }
}

#[test]
fn outbound_spis_are_unique_for_each_peer_only() {
    let pair = Pair::new(Options::default());
    let mut sa = pair.options.sa(Direction::Out, SPI, REQID, 1);
    let command = Command::SaAdd(Box::new(sa.clone()));
    assert_eq!(pair.a.apply(SECOND, &command), Err(ApplyError::Exists));
    sa.remote = "192.0.2.77:4500".parse().unwrap();
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    assert_eq!(pair.a.sas().len(), 2);
}

#[test]
fn packets_for_two_peers_never_share_a_send() {
    let mut pair = Pair::new(Options::default());
    let mut sa = pair.options.sa(Direction::Out, SPI + 7, 7, 1);
    sa.remote = "192.0.2.77:4500".parse().unwrap();
    sa.remote_ts = vec![ts("10.7.0.0/16")];
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    let p = policy(Action::Protect(ReqId(7)), "10.1.0.0/16", "10.7.0.0/16", 0);
    pair.a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    begin(&mut pair);
    // Also when the batch is sealed after each packet.
    for seal_each in [false, true] {
        pair.tx.clear();
        for dst in ["10.2.0.1", "10.7.0.1", "10.7.0.2", "10.2.0.1"] {
            let mut frame = Spec { dst: ip(dst), ..Spec::udp(20) }.build();
            assert!(pair.wa.outbound(&mut frame, &Offload::NONE, &mut pair.tx));
            if seal_each {
                pair.wa.seal(&mut pair.tx);
            }
        }
        pair.wa.seal(&mut pair.tx);
        let got: Vec<_> =
            pair.tx.sends.iter().map(|s| (s.remote.ip(), s.segments, spi_of(pair.tx.bytes(s)))).collect();
        let (a, b) = (ip("192.0.2.2"), ip("192.0.2.77"));
        assert_eq!(got, [(a, 1, SPI), (b, 2, SPI + 7), (a, 1, SPI)]);
    }
}

#[test]
fn ten_thousand_sas_and_policies_are_found() {
    let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
    let options = Options::default();
    const N: u32 = 10_000;
    for i in 0..N {
        let side = format!("172.{}.{}.{}/32", 16 + (i >> 16), i >> 8 & 255, i & 255);
        let mut sa = options.sa(Direction::Out, 1000 + i, i, 1);
        sa.remote_ts = vec![ts(&side)];
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
        let p = policy(Action::Protect(ReqId(i)), "10.1.0.0/16", &side, 0);
        engine.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    let mut worker = Worker::new(engine.clone());
    worker.begin(SECOND);
    let mut tx = TxBatch::new(TxConfig::default());
    for i in (0..N).step_by(37) {
        let dst = ip(&format!("172.{}.{}.{}", 16 + (i >> 16), i >> 8 & 255, i & 255));
        tx.clear();
        assert!(worker.outbound(&mut Spec { dst, ..Spec::udp(9) }.build(), &Offload::NONE, &mut tx));
        worker.seal(&mut tx);
        assert_eq!(spi_of(&packets(&tx)[0]), 1000 + i);
    }
}

#[test]
fn a_merged_receive_is_taken_apart_into_ike_keepalives_and_esp() {
    let mut pair = Pair::new(Options::default());
    let esp: Vec<_> = (0..4).map(|_| pair.seal_one(&Spec::udp(20).build())).collect();
    let n = esp[0].len();
    let mut ike = vec![0; n];
    ike[10] = 5;
    let mut buf = [&esp[0][..], &esp[1], &ike, &esp[2], &esp[3], &[0xff]].concat();
    let (remote, local) = pair.options.outer();
    let d = Datagram {
        offset: 0,
        len: buf.len() as u32,
        segment_size: n as u16,
        local,
        remote,
        carrier: Carrier::Udp,
        tos: 0,
    };
    let (mut runs, mut other) = (Vec::new(), Vec::new());
    demux(&buf, &d, &mut runs, |kind, range| other.push((kind, range)));
    assert_eq!(other, [(UdpKind::Ike, 2 * n..3 * n), (UdpKind::Keepalive, 5 * n..5 * n + 1)]);
    let ranges: Vec<_> = runs.iter().map(|d| (d.offset as usize, d.len as usize)).collect();
    assert_eq!(ranges, [(0, 2 * n), (3 * n, 2 * n)]);
    let mut rx = RxBatch::new();
    pair.wb.inbound(&mut buf, &runs, &mut rx);
    let c = pair.b.counters();
    assert_eq!((c.traffic.in_packets, c.dropped_in()), (4, 0));
    // A single message, not merged.
    for (bytes, kind) in [(&[0xffu8][..], UdpKind::Keepalive), (&[0, 0, 0, 0, 1], UdpKind::Ike)] {
        let d = Datagram { len: bytes.len() as u32, segment_size: 0, ..d };
        let (mut esp, mut other) = (Vec::new(), Vec::new());
        demux(bytes, &d, &mut esp, |k, r| other.push((k, r)));
        assert_eq!((esp.len(), other), (0, vec![(kind, 0..bytes.len())]));
    }
}

#[test]
fn policies_are_listed_in_the_order_of_matching() {
    let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
    let list = [
        policy(Action::Protect(ReqId(1)), "0.0.0.0/0", "0.0.0.0/0", 0),
        policy(Action::Protect(ReqId(2)), "10.0.0.0/8", "10.0.0.0/8", 0),
        policy(Action::Bypass, "10.0.0.0/8", "10.0.0.0/8", 0),
        policy(Action::Discard, "0.0.0.0/0", "0.0.0.0/0", 9),
        policy(Action::Discard, "0.0.0.0/0", "0.0.0.0/0", 900_000),
    ];
    for p in &list {
        engine.apply(SECOND, &Command::PolicyAdd(p.clone())).unwrap();
    }
    let got: Vec<_> = engine.policies().into_iter().map(|p| p.policy).collect();
    let want: Vec<_> = [3, 2, 1, 0, 4].map(|i: usize| list[i].clone()).to_vec();
    assert_eq!(got, want);
}
