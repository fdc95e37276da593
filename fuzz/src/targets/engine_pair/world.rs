//! Both engines, and the checks of everything that leaves one and arrives at the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Carrier, Config, Datagram, DropReason, Engine, RxBatch, TxBatch, TxConfig, Worker};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::{Fragment, parse, protocol};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::sadb::{Action, Command, Dscp, Entry, Mode, PolicyAdd, ReqId, SaAdd};
use ironswan_wire::selector::PacketSelector;

use super::Defect;
use super::input::{Choice, mirrored, sa, selector};
use super::reference::{Policies, canonical, cut, flow};

const SECOND: Duration = Duration::from_secs(1);

/// Both engines with their SAs and policies, and the packets on their way.
pub(super) struct World {
    engines: [Arc<Engine>; 2],
    a: Worker,
    b: Worker,
    tx: TxBatch,
    rx: RxBatch,
    sas: Vec<SaAdd>,
    policies: Policies,
    /// Policies of B, with local and remote as A sees them.
    theirs: Policies,
    /// Packets sent since the last delivery that B must refuse.
    refused: Vec<Vec<u8>>,
    /// Packets sent since the last delivery that must arrive, by flow.
    expected: HashMap<PacketSelector, Vec<Vec<u8>>>,
    defect: Defect,
    delivered: u64,
}

/// The crypto engines of both ends. The length of the input chooses which engine of this machine
/// AWS-LC faces, and at which end it stands.
fn crypto(len: usize) -> [Engines; 2] {
    let all: Vec<EngineId> = EngineId::available().collect();
    let mut ends = [Engines::portable(), Engines::only(all[len / 2 % all.len()])];
    ends.rotate_left(len % 2);
    ends
}

impl World {
    pub(super) fn new(choice: &mut Choice<'_>, defect: Defect) -> Self {
        let crypto = crypto(choice.0.len());
        let engines = [0, 1].map(|end| {
            let config = Config { engines: crypto[end], ..Config::default() };
            Engine::new(Box::new(Seeded::new(1 + end as u64)), config)
        });
        let [ea, eb] = &engines;
        let mut sas = Vec::new();
        for n in 1..=1 + u32::from(choice.byte() % 3) {
            let sa = sa(choice, n);
            ea.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).expect("the target's own SA");
            eb.apply(SECOND, &Command::SaAdd(Box::new(mirrored(&sa)))).expect("its mirror image");
            sas.push(sa);
        }
        let (mut policies, mut theirs) = (Policies::default(), Policies::default());
        let policy = |choice: &mut Choice<'_>, n: u32| {
            let bits = choice.byte();
            let ipv6 = bits & 1 != 0;
            let action = match bits >> 1 & 7 {
                0 => Action::Discard,
                1 => Action::Bypass,
                // No SA has the last reqid.
                _ => Action::Protect(ReqId(1 + u32::from(bits >> 4) % 4)),
            };
            let priority = if bits & 0x80 != 0 { u32::from(bits >> 4) } else { 0 };
            let (local, remote) = (selector(choice, ipv6), selector(choice, ipv6));
            let bits = choice.byte();
            let open = if bits & 1 != 0 { u32::from(bits >> 3) * 8 } else { 0 };
            let entry = Entry { open, age: u64::from(bits >> 1 & 3) };
            PolicyAdd { name: n.to_string(), action, local, remote, priority, entry }
        };
        let at_b = |policy: &PolicyAdd| {
            let mirror = PolicyAdd { local: policy.remote, remote: policy.local, ..policy.clone() };
            eb.apply(SECOND, &Command::PolicyAdd(mirror))
                .expect("the mirror image of the target's own policy");
        };
        let mut all = Vec::new();
        for n in 0..1 + u32::from(choice.byte() % 6) {
            let policy = policy(choice, n);
            ea.apply(SECOND, &Command::PolicyAdd(policy.clone())).expect("the target's own policy");
            at_b(&policy);
            policies.add(policy.clone());
            theirs.add(policy.clone());
            all.push(policy);
        }
        // Policies of B alone: one that comes before another with the same selectors, and any.
        for n in 0..u32::from(choice.byte() % 8).saturating_sub(5) {
            let mut policy = policy(choice, 10 + n);
            if n == 0 {
                let before = &all[usize::from(choice.byte()) % all.len()];
                (policy.local, policy.remote, policy.priority) = (before.local, before.remote, 1);
            }
            at_b(&policy);
            theirs.add(policy);
        }
        let (mut a, mut b) = (Worker::new(engines[0].clone()), Worker::new(engines[1].clone()));
        a.begin(SECOND);
        b.begin(SECOND);
        let tx = TxBatch::new(TxConfig { capacity: 256 * 1024, ..TxConfig::default() });
        let (rx, refused, expected) = (RxBatch::new(), Vec::new(), HashMap::new());
        Self { engines, a, b, tx, rx, sas, policies, theirs, refused, expected, defect, delivered: 0 }
    }

    /// The SAs of the packets at `from` and behind it in the batch, in the order in which they
    /// leave.
    fn sas_of_packets(&self, from: usize) -> Vec<&SaAdd> {
        let mut found = Vec::new();
        for send in &self.tx.sends {
            let mut at = send.offset as usize;
            for packet in self.tx.bytes(send).chunks(usize::from(send.segment_size).max(1)) {
                if at >= from {
                    found.push(self.sa_of_packet(packet, send.carrier).expect("a packet of one of the SAs"));
                }
                at += packet.len();
            }
        }
        found
    }

    /// The SA that the SPI of a packet names.
    fn sa_of_packet(&self, packet: &[u8], carrier: Carrier) -> Option<&SaAdd> {
        let at = match carrier {
            Carrier::Udp | Carrier::Esp => 0,
            Carrier::Ip => {
                let info = parse(packet).ok()?;
                // The SPI of AH stands behind next header, length and reserved.
                info.upper + if info.protocol == protocol::AH { 4 } else { 0 }
            }
        };
        let spi = u32::from_be_bytes(*packet.get(at..)?.first_chunk()?);
        self.sas.iter().find(|sa| sa.spi.0 == spi)
    }

    /// A sends a frame. `ours` when it is well-formed, so that all of it must arrive.
    pub(super) fn send(&mut self, frame: &[u8], offload: &Offload, ours: bool) {
        let used = self.tx.used();
        let mut copy = frame.to_vec();
        if !self.a.outbound(&mut copy, offload, &mut self.tx) {
            self.deliver(true);
            return self.send(frame, offload, ours);
        }
        let mut left_by = self.sas_of_packets(used);
        let packets_sent = left_by.len();
        let Some(info) = parse(frame).ok() else {
            assert!(left_by.is_empty(), "a frame that is not IP has left");
            return;
        };
        let Some(selector) = info.selector(frame) else { return };
        let action = self.policies.outbound(&selector);
        let allowed = match info.fragment {
            Fragment::No => Vec::from_iter(action),
            _ => self.policies.of_fragment(&selector),
        };
        let first = left_by.first().map(|sa| (*sa).clone());
        if self.defect == Defect::Leaked && action == Some(Action::Discard) && offload.gso == Gso::UdpL4 {
            left_by.extend(&self.sas);
        }
        for sa in left_by {
            assert!(allowed.contains(&Action::Protect(sa.reqid)), "{selector:?} left by {sa:?}: {action:?}");
        }
        let Some(sa) = first else { return };
        if ours {
            let packets = cut(frame, offload).expect("a frame of our own");
            assert_eq!(packets.len(), packets_sent, "as many packets as the device would make");
            for p in packets {
                let (key, _) = flow(&p).expect("a packet of our own");
                let first = self.theirs.outbound(&key);
                if first.is_some_and(|action| action != Action::Protect(sa.reqid)) {
                    self.refused.push(p);
                    continue;
                }
                self.expected.entry(key).or_default().push(comparable(&p, &sa).expect("a packet of our own"));
            }
        }
    }

    /// Gives all packets that were sent to B. `ours` when all of them must come out.
    pub(super) fn deliver(&mut self, ours: bool) {
        self.a.seal(&mut self.tx);
        let (mut buf, mut datagrams) = (Vec::new(), Vec::new());
        let mut packets = 0;
        for send in &self.tx.sends {
            let mut bytes = self.tx.bytes(send);
            let mut carrier = send.carrier;
            packets += u64::from(send.segments);
            // A raw socket takes the header off.
            if let (Carrier::Ip, Ok(info)) = (carrier, parse(bytes))
                && info.protocol == protocol::ESP
            {
                bytes = &bytes[info.upper..info.total_len];
                carrier = Carrier::Esp;
            }
            datagrams.push(Datagram {
                offset: buf.len() as u32,
                len: bytes.len() as u32,
                segment_size: if send.segments > 1 { send.segment_size } else { 0 },
                local: send.remote,
                remote: send.local,
                carrier,
                tos: send.tos,
            });
            buf.extend_from_slice(bytes);
        }
        self.tx.clear();
        let before = self.engines[1].counters();
        self.rx.clear();
        self.b.inbound(&mut buf, &datagrams, &mut self.rx);
        let after = self.engines[1].counters();
        assert_eq!(after.traffic.in_packets - before.traffic.in_packets, packets);
        for engine in &self.engines {
            assert!(engine.counters().balance(), "{:?}", engine.counters());
        }
        let (expected, refused) = (std::mem::take(&mut self.expected), std::mem::take(&mut self.refused));
        if !ours {
            return;
        }
        let dropped: Vec<_> =
            after.drops().map(|(r, n)| (r, n - before.dropped(r))).filter(|(_, n)| *n != 0).collect();
        let by_policy = |(r, _): &&(_, u64)| matches!(r, DropReason::InPolBlock | DropReason::InTmplMismatch);
        let (others, blocked) = (dropped.iter().any(|d| !by_policy(&d)), dropped.iter().filter(by_policy));
        assert!(!others, "what was sealed is dropped: {dropped:?}");
        assert_eq!(blocked.map(|(_, n)| n).sum::<u64>(), refused.len() as u64, "{dropped:?}");
        let mut got: HashMap<PacketSelector, Vec<Vec<u8>>> = HashMap::new();
        if self.defect == Defect::Impersonated {
            for p in refused {
                got.entry(flow(&p).expect("a packet of our own").0).or_default().push(p);
            }
        }
        for write in &self.rx.writes {
            let whole = self.rx.gather(&buf, write);
            let mut packets = cut(&whole, &write.offload).expect("a write that the device takes");
            if self.defect == Defect::Lost && packets.len() > 2 {
                packets.pop();
            }
            for p in packets {
                self.delivered += 1;
                let (key, _) = flow(&p).expect("a packet is delivered");
                got.entry(key).or_default().push(p);
            }
        }
        self.compare(expected, got);
    }

    fn compare(
        &self,
        expected: HashMap<PacketSelector, Vec<Vec<u8>>>,
        mut got: HashMap<PacketSelector, Vec<Vec<u8>>>,
    ) {
        for (key, want) in expected {
            let mut got = got.remove(&key).unwrap_or_default();
            // Which SA it was is known from its policy: the same for all of a flow.
            let sa = match self.policies.outbound(&key) {
                Some(Action::Protect(reqid)) => self.sas.iter().find(|sa| sa.reqid == reqid),
                _ => None,
            };
            let sa = sa.expect("what was sealed is for an SA");
            if self.defect == Defect::Reordered && got.len() > 1 && sa.options.ipcomp.is_some() {
                got.swap(0, 1);
            }
            if self.defect == Defect::Changed && sa.mode == Mode::Transport {
                got.iter_mut().for_each(|p| *p.last_mut().expect("a packet") ^= 1);
            }
            let got: Vec<_> = got.iter().map(|p| comparable(p, sa).expect("a packet")).collect();
            assert_eq!(got.len(), want.len(), "packets of {key:?} by {sa:?}");
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!(got == want, "packet {i} of {key:?} by {sa:?}\n got {got:02x?}\nwant {want:02x?}");
            }
        }
        assert!(got.is_empty(), "nobody sent {got:02x?}");
    }

    /// How far the input came, as a number: equal when the same counters moved as far.
    pub(super) fn signature(&self) -> u64 {
        let (a, b) = (self.engines[0].counters(), self.engines[1].counters());
        let blocked = b.dropped(DropReason::InTmplMismatch);
        let numbers = [self.delivered, a.traffic.out_sent, a.held, b.traffic.in_merged, blocked];
        let drops = a.drops().chain(b.drops()).map(|(_, n)| n);
        let kind = |sa: &SaAdd| {
            u64::from(sa.mode == Mode::Transport) << 1 | u64::from(sa.protocol == ProtocolId::AH)
        };
        let kinds = self.sas.iter().map(kind);
        let all = numbers.into_iter().chain(drops).chain(kinds);
        all.fold(0u64, |sum, n| sum.wrapping_mul(7).wrapping_add(n.min(5)))
    }
}

/// The bytes of a packet that must be the same at both ends of this SA.
fn comparable(packet: &[u8], sa: &SaAdd) -> Option<Vec<u8>> {
    let dscp = !(sa.options.dscp_in && sa.options.dscp_out != Dscp::Copy);
    canonical(packet, sa.mode == Mode::Tunnel, dscp)
}
