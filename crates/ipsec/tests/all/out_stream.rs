//! What a key daemon tells an engine is a stream of messages that can be recorded and replayed: a
//! second engine that hears the same has the same SAs and policies, and opens what the first one
//! seals.

use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{ApplyError, Config, DropReason, Engine, SaInfo, TxBatch, TxConfig, Worker};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Entry, Lifetime, PolicyAdd, ReqId, SaAdd, SaOptions, SaRef, Spi, Tfc,
};

use crate::common::*;
use crate::out_common::*;

/// Makes a stream of commands of all kinds, most of which make sense.
struct Daemon {
    rng: Seeded,
    /// SAs added and not deleted, as they were added; updates change what names them.
    sas: Vec<(SaAdd, SaRef)>,
    policies: Vec<PolicyAdd>,
    spi: u32,
}

impl Daemon {
    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.rng.u32() as usize % list.len()].clone()
    }

    fn sa(&mut self) -> SaAdd {
        let outer_v6 = self.rng.u32().is_multiple_of(2);
        let esn = self.rng.u32().is_multiple_of(2);
        self.spi += 1;
        let suites = esp_suites();
        let mut sa = match self.rng.u32() % 5 {
            0 => SaAdd { suite: self.one_of(&ah_suites()), ..ah(outer_v6) },
            1 => SaAdd { mode: TRANSPORT, suite: self.one_of(&ah_suites()), ..ah(outer_v6) },
            2 => SaAdd { mode: TRANSPORT, suite: self.one_of(&suites), ..outbound(outer_v6) },
            _ => SaAdd { suite: self.one_of(&suites), ..outbound(outer_v6) },
        };
        sa.udp_encap = sa.protocol == ProtocolId::ESP && self.rng.u32().is_multiple_of(2);
        sa.suite = EspSuite { esn, ..sa.suite };
        sa.options.ipcomp = self.one_of(&[None, Some(0x99)]);
        sa.options.copy_df = self.one_of(&[true, false]);
        sa.options.copy_ecn = self.one_of(&[true, false]);
        sa.options.dscp_out = self.one_of(&[Dscp::Copy, Dscp::Set(8)]);
        if sa.mode == TUNNEL && sa.protocol == ProtocolId::ESP {
            sa.options.tfc = self.one_of(&[Tfc::None, Tfc::Mtu, Tfc::To(700)]);
            sa.options.dummies = self.one_of(&[None, Some(Duration::from_secs(3))]);
        }
        sa.lifetime = Lifetime { soft_packets: 1 << 20, ..Lifetime::default() };
        sa.reqid = ReqId(1 + self.rng.u32() % 12);
        sa.spi = Spi(self.spi);
        if self.rng.u32().is_multiple_of(2) { inbound(&with_keys(sa)) } else { with_keys(sa) }
    }

    fn next(&mut self) -> Command {
        let any = self.sas.len().max(1);
        let at = self.rng.u32() as usize % any;
        match (self.rng.u32() % 10, self.sas.is_empty(), self.policies.is_empty()) {
            (0..=3, ..) | (_, true, true) => {
                let sa = self.sa();
                let remote = sa.remote.ip();
                let name = SaRef { direction: sa.direction, spi: sa.spi, reqid: sa.reqid, remote };
                self.sas.push((sa.clone(), name));
                Command::SaAdd(Box::new(sa))
            }
            (4, false, _) => {
                let sa = self.sas[at].1;
                let last = self.rng.u32() % 250;
                let (local, remote) =
                    (format!("203.0.113.1:{}", 4_000 + last), format!("203.0.113.{last}:4500"));
                // An AH SA refuses to be put into UDP, and nothing changes.
                let udp_encap = self.rng.u32().is_multiple_of(2);
                let update = Command::SaUpdate {
                    sa,
                    local: local.parse().unwrap(),
                    remote: remote.parse().unwrap(),
                    udp_encap,
                };
                if !(udp_encap && self.sas[at].0.protocol == ProtocolId::AH) {
                    self.sas[at].1.remote = ip(&format!("203.0.113.{last}"));
                }
                update
            }
            (5, false, _) => Command::SaPathMtu { sa: self.sas[at].1, mtu: 1_300 + self.rng.u32() % 200 },
            (6, false, _) => Command::SaDelete(self.sas.swap_remove(at).1),
            (7, _, false) => {
                let at = self.rng.u32() as usize % self.policies.len();
                Command::PolicyDelete(self.policies.swap_remove(at))
            }
            _ => {
                let net = self.rng.u32() % 200;
                let action =
                    self.one_of(&[Action::Bypass, Action::Discard, Action::Protect(ReqId(1 + net % 12))]);
                let policy = PolicyAdd {
                    name: format!("net {net}"),
                    action,
                    local: ts("10.1.0.0/16"),
                    remote: ts(&format!("10.2.{net}.0/24")),
                    priority: self.rng.u32() % 3,
                    entry: Entry::default(),
                };
                self.policies.push(policy.clone());
                Command::PolicyAdd(policy)
            }
        }
    }
}

fn engine(seed: u64) -> Arc<Engine> {
    Engine::new(Box::new(Seeded::new(seed)), Config::default())
}

/// In an order that does not depend on memory.
fn sas(engine: &Engine) -> Vec<SaInfo> {
    let mut all = engine.sas();
    all.sort_by_key(|sa| (sa.sa.direction == Direction::Out, sa.sa.spi, sa.reqid));
    all
}

type Recorded = Vec<(Command, Result<(), ApplyError>)>;

/// An engine that has heard a long stream, and the stream.
fn recorded(seed: u64) -> (Arc<Engine>, Recorded) {
    let first = engine(seed);
    let mut daemon = Daemon { rng: Seeded::new(seed), sas: Vec::new(), policies: Vec::new(), spi: 0x1000 };
    let mut stream = Recorded::new();
    for i in 0..400 {
        let command = daemon.next();
        let result = first.apply(SECOND * i, &command);
        stream.push((command, result));
    }
    (first, stream)
}

#[test]
fn a_replayed_stream_makes_the_same_engine() {
    for seed in 0..20 {
        let (first, stream) = recorded(seed);
        // All of it, and only what was accepted: what is refused changes nothing.
        for all in [true, false] {
            let second = engine(seed + 1_000);
            for (i, (command, result)) in stream.iter().enumerate() {
                if all || result.is_ok() {
                    assert_eq!(second.apply(SECOND * i as u32, command), *result, "{command:?}");
                }
            }
            assert_eq!(sas(&second), sas(&first));
            assert_eq!(second.policies(), first.policies());
        }
        let refused = stream.iter().filter(|(_, r)| r.is_err()).count();
        // A path MTU of an inbound SA, AH into UDP.
        assert!((1..80).contains(&refused), "most make sense: {refused}");
        let kinds = |f: fn(&Command) -> bool| stream.iter().filter(|(c, r)| r.is_ok() && f(c)).count();
        for count in [
            kinds(|c| matches!(c, Command::SaAdd(_))),
            kinds(|c| matches!(c, Command::SaUpdate { .. })),
            kinds(|c| matches!(c, Command::SaPathMtu { .. })),
            kinds(|c| matches!(c, Command::SaDelete(_))),
            kinds(|c| matches!(c, Command::PolicyAdd(_))),
            kinds(|c| matches!(c, Command::PolicyDelete(_))),
        ] {
            assert!(count > 1, "every kind of command is in the stream");
        }
        assert!(!first.sas().is_empty());
    }
}

#[test]
fn packets_open_at_what_has_heard_the_same() {
    // Every kind of SA, its other end added in one stream; each end lives in two engines.
    let mut daemon = Daemon { rng: Seeded::new(3), sas: Vec::new(), policies: Vec::new(), spi: 0x1000 };
    for round in 0..60 {
        let made = daemon.sa();
        let out = if made.direction == Direction::Out { made } else { inbound(&made) };
        let out = SaAdd {
            direction: Direction::Out,
            options: SaOptions { tfc: Tfc::None, dummies: None, ..out.options },
            ..out
        };
        let mut stream = policies(out.reqid).to_vec();
        stream.push(Command::SaAdd(Box::new(out.clone())));
        let (one, two) = (engine(1), engine(2));
        for command in &stream {
            one.apply(SECOND, command).unwrap();
            two.apply(SECOND, command).unwrap();
        }
        let name =
            SaRef { direction: Direction::Out, spi: out.spi, reqid: out.reqid, remote: out.remote.ip() };
        let mut r = Receiver::of(&out, 64);
        let mut received = 0;
        // The one that takes over goes on behind the numbers of the first (RFC 6311 section 5).
        for engine in [&one, &two] {
            let last = one.sas()[0].sequence;
            engine.advance_sequence(name, last).unwrap();
            let mut worker = Worker::new(engine.clone());
            worker.begin(SECOND);
            let mut tx = TxBatch::new(TxConfig::default());
            let (src, dst) = (out.local.ip(), out.remote.ip());
            let v6 = out.remote.is_ipv6();
            for len in [0, 30, 500] {
                let spec = Spec { v6, src, dst, ..Spec::udp(len) };
                assert!(worker.outbound(&mut spec.build(), &Offload::NONE, &mut tx));
            }
            worker.seal(&mut tx);
            let sent: Vec<_> = tx
                .sends
                .iter()
                .flat_map(|send| {
                    let step = usize::from(send.segment_size);
                    tx.bytes(send).chunks(step).map(|bytes| Sent { send: *send, bytes: bytes.to_vec() })
                })
                .collect();
            received += r.each(&sent).len();
        }
        assert_eq!(received, 6, "round {round}: {out:?} {:?}", r.engine.counters());
        assert_eq!(two.sas()[0].sequence, 6);
    }
}

/// Segments whose last one is short take less room than as many whole ones would: what may not fit
/// the rest of a batch waits for the next one, and is not lost.
#[test]
fn a_super_packet_of_long_segments_waits_for_room() {
    let ipcomp = SaOptions { ipcomp: Some(7), ..SaOptions::default() };
    for sa in [outbound(false), SaAdd { options: ipcomp, ..outbound(false) }, ah(false)] {
        let mut s = Sender::new(sa);
        s.tx = TxBatch::new(TxConfig { capacity: 18_500, ..TxConfig::default() });
        let (frame, offload) = Spec::tcp(9_001).superpacket(9_000);
        assert!(s.worker.outbound(&mut inner(false, 1_000), &Offload::NONE, &mut s.tx));
        assert!(!s.worker.outbound(&mut frame.clone(), &offload, &mut s.tx), "no room");
        s.worker.seal(&mut s.tx);
        s.tx.clear();
        assert!(s.worker.outbound(&mut frame.clone(), &offload, &mut s.tx));
        s.worker.seal(&mut s.tx);
        let t = s.engine.counters();
        assert_eq!((t.dropped(DropReason::OutTooBig), t.traffic.out_sent), (0, 3));
        s.balance();
    }
}
