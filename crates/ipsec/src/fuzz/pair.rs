//! Two engines that face each other. What one seals, the other opens to the same packets, unless it
//! has a policy of its own that covers them before that of the SA; what leaves is what a list of
//! policies says has to be protected, by an SA of the policy that says so; and the books balance.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_crypto::rng::Seeded;
use ironswan_crypto::{batch, icv};
use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::{Fragment, parse, protocol, v4};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, Spi, Tfc,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, PacketSelector, TrafficSelector};

use super::reference::{Policies, canonical, cut, flow};
use crate::{Carrier, Config, Datagram, DropReason, Engine, RxBatch, TxBatch, TxConfig, Worker};

const SECOND: Duration = Duration::from_secs(1);

/// What may be wrong with the engine, to see that the target finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Nothing.
    None,
    /// The last packet of a merged write gets lost.
    Lost,
    /// A packet of transport mode is delivered with one bit changed.
    Changed,
    /// Two packets of one flow come in the wrong order.
    Reordered,
    /// A packet that a policy says to discard leaves.
    Leaked,
    /// A packet that another policy covers before that of its SA is delivered.
    Impersonated,
}

/// Bytes to choose by; zeros when they are used up.
struct Choice<'a>(&'a [u8]);

impl Choice<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}

/// Every ESP suite that the engine has, those that are fast first.
fn esp_suite(choice: &mut Choice<'_>, esn: bool) -> EspSuite {
    let encr = choice.of(EncrId::ALL);
    let bits = algorithm::encr(encr).map_or(&[0][..], |shape| shape.key_bits);
    let (key_bits, integ) = (choice.of(bits), choice.of(IntegId::ALL));
    let with = |integ| EspSuite { encr, key_bits, integ, ke: None, esn };
    let candidates = [with(None), with(Some(integ)), with(Some(IntegId::HMAC_SHA2_256_128))];
    let gcm = EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn };
    candidates.into_iter().find(|suite| batch::keymat_lens(suite).is_some()).unwrap_or(gcm)
}

/// Addresses and ports of the packets, and the ends of the SAs.
const V4: [[u8; 4]; 5] = [[10, 1, 0, 1], [10, 1, 9, 9], [10, 2, 0, 1], [192, 0, 2, 1], [192, 0, 2, 2]];
const PORTS: [u16; 4] = [80, 1_000, 1_500, 65_535];

fn v6(of: [u8; 4]) -> IpAddr {
    let [a, b, c, d] = of;
    IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
}

fn host(of: [u8; 4], ipv6: bool) -> IpAddr {
    if ipv6 { v6(of) } else { IpAddr::from(of) }
}

fn ends(ipv6: bool) -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(host(V4[3], ipv6), 4500), SocketAddr::new(host(V4[4], ipv6), 4500))
}

/// A selector: one or some of the addresses, a protocol, ports.
fn selector(choice: &mut Choice<'_>, ipv6: bool) -> TrafficSelector {
    let which = choice.byte();
    let addr = host(V4[usize::from(which & 7) % V4.len()], ipv6);
    let bits = if ipv6 { 96 } else { 0 };
    let len = match which >> 3 & 3 {
        0 => 0,
        1 => bits + 16,
        2 => bits + 24,
        _ => bits + 32,
    };
    let range = AddrRange::prefix(addr, len).unwrap_or(AddrRange::any(ipv6));
    let protocol = if which & 0x20 != 0 { choice.of(&[6, 17, 1, 58, 253]) } else { 0 };
    let (start_port, end_port) = match which >> 6 {
        1 => (80, 80),
        2 => (1_000, 1_500),
        3 if protocol != 0 => (65_535, 0),
        _ => (0, 65_535),
    };
    TrafficSelector { range, protocol, start_port, end_port }
}

/// The SA of A to B for the `n`-th policy.
fn sa(choice: &mut Choice<'_>, n: u32) -> SaAdd {
    let (bits, more) = (choice.byte(), choice.byte());
    let bit = |i: u8| bits >> i & 1 != 0;
    let ah = bit(0);
    let (mode, ipv6, esn) = (if bit(1) { Mode::Transport } else { Mode::Tunnel }, bit(2), bit(4));
    let suite = if ah {
        let integ = Some(choice.of(IntegId::ALL)).filter(|id| icv::key_len(*id).is_some());
        let integ = integ.or(Some(IntegId::HMAC_SHA2_256_128));
        EspSuite { encr: EncrId::NULL, key_bits: 0, integ, ke: None, esn }
    } else {
        esp_suite(choice, esn)
    };
    let (encr_len, integ_len) = if ah {
        (0, suite.integ.and_then(icv::key_len).unwrap_or(0))
    } else {
        batch::keymat_lens(&suite).unwrap_or((0, 0))
    };
    // Different in every byte: a 3DES key must not be a DES key.
    let key = |len: usize, seed: u8| {
        Secret::new((0..len).map(|i| (i as u8).wrapping_mul(37) ^ seed).collect::<Vec<_>>())
    };
    let padding = mode == Mode::Tunnel && !ah;
    let (local, remote) = ends(ipv6);
    let narrow = more & 1 != 0;
    let mut both = |other: bool| {
        if narrow { vec![selector(choice, other)] } else { vec![] }
    };
    let (mut local_ts, mut remote_ts) = (both(ipv6), both(ipv6));
    if !narrow {
        let any = |v6| TrafficSelector::addresses(AddrRange::any(v6));
        (local_ts, remote_ts) = (vec![any(false), any(true)], vec![any(false), any(true)]);
    }
    SaAdd {
        direction: Direction::Out,
        protocol: if ah { ProtocolId::AH } else { ProtocolId::ESP },
        spi: Spi(0x1000 + n),
        reqid: ReqId(n),
        local,
        remote,
        udp_encap: !ah && bit(3),
        mode,
        suite,
        options: SaOptions {
            ipcomp: bit(5).then_some(0x100 + n as u16),
            copy_df: bit(6),
            copy_ecn: bit(7),
            dscp_out: if more & 2 != 0 { Dscp::Set(more >> 2 & 63) } else { Dscp::Copy },
            dscp_in: more & 4 != 0,
            tfc: if padding && more & 8 != 0 { Tfc::To(u16::from(more) * 4) } else { Tfc::None },
            dummies: None,
            original: None,
        },
        encr_key: key(encr_len, 0x5a),
        integ_key: key(integ_len, 0xc3),
        replay_window: [0, 64, 1024, 65_536][usize::from(more >> 6)],
        local_ts,
        remote_ts,
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }
}

/// The same at the other end.
fn mirrored(sa: &SaAdd) -> SaAdd {
    SaAdd {
        direction: Direction::In,
        local: sa.remote,
        remote: sa.local,
        local_ts: sa.remote_ts.clone(),
        remote_ts: sa.local_ts.clone(),
        options: SaOptions { tfc: Tfc::None, ..sa.options },
        ..sa.clone()
    }
}

/// A frame that a device may deliver, its checksums right or left to whoever sends it, and its
/// offload header.
fn frame(choice: &mut Choice<'_>) -> (Vec<u8>, Offload) {
    let (bits, which, kind) = (choice.byte(), choice.byte(), choice.byte());
    let ipv6 = bits & 1 != 0;
    let (src, dst) = match which & 3 {
        0 => (V4[3], V4[4]),
        _ => (V4[usize::from(which >> 2 & 3) % 3], V4[usize::from(which >> 4 & 3) % 3]),
    };
    let upper = match kind & 3 {
        0 | 1 => protocol::TCP,
        2 => protocol::UDP,
        _ if kind & 4 != 0 => 253,
        _ => protocol::UDP,
    };
    let ports = (PORTS[usize::from(which >> 6)], PORTS[usize::from(kind >> 6)]);
    let size = usize::from(choice.byte()) * 8;
    let count = if upper == 253 { 1 } else { usize::from(bits >> 4) };
    let body_len = size * count.max(1) + usize::from(bits >> 1 & 7);
    let seed = choice.byte();
    let body: Vec<u8> =
        (0..body_len).map(|i| if bits & 2 != 0 { seed } else { (i as u8).wrapping_mul(seed | 1) }).collect();
    let mut u = Vec::new();
    let field = match upper {
        protocol::TCP => {
            u.extend_from_slice(&ports.0.to_be_bytes());
            u.extend_from_slice(&ports.1.to_be_bytes());
            u.extend_from_slice(&[
                0,
                0,
                seed,
                0,
                0,
                0,
                0,
                7,
                0x50,
                0x10 | choice.byte() & 0xc9,
                9,
                9,
                0,
                0,
                0,
                0,
            ]);
            Some(16)
        }
        protocol::UDP => {
            u.extend_from_slice(&ports.0.to_be_bytes());
            u.extend_from_slice(&ports.1.to_be_bytes());
            u.extend_from_slice(&((8 + body.len()) as u16).to_be_bytes());
            u.extend_from_slice(&[0, 0]);
            Some(6)
        }
        _ => None,
    };
    let header = u.len();
    u.extend_from_slice(&body);
    let mut p = Vec::new();
    let total = u.len();
    match (host(src, ipv6), host(dst, ipv6)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            p.extend_from_slice(&[0x45, choice.byte(), ((20 + total) >> 8) as u8, (20 + total) as u8]);
            p.extend_from_slice(&[seed, which, if kind & 8 != 0 { 0x40 } else { 0 }, 0, 64, upper, 0, 0]);
            p.extend_from_slice(&src.octets());
            p.extend_from_slice(&dst.octets());
            v4::set_checksum(&mut p);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let class = choice.byte();
            p.extend_from_slice(&[0x60 | class >> 4, class << 4, 0, 9]);
            p.extend_from_slice(&[(total >> 8) as u8, total as u8, upper, 64]);
            p.extend_from_slice(&src.octets());
            p.extend_from_slice(&dst.octets());
        }
        _ => {}
    }
    let at = p.len();
    let addresses = if ipv6 { p[8..40].to_vec() } else { p[12..20].to_vec() };
    p.extend_from_slice(&u);
    let mut offload = Offload::NONE;
    if let Some(field) = field {
        let partial = fold(pseudo(&addresses, upper) + be16(total as u16));
        p[at + field..at + field + 2].copy_from_slice(&partial.to_ne_bytes());
        offload.csum = Some((at as u16, field as u16));
        offload.hdr_len = (at + header) as u16;
        if count > 1 && size > 0 {
            offload.segment_size = size as u16;
            offload.gso = match (upper, ipv6) {
                (protocol::UDP, _) => Gso::UdpL4,
                (_, true) => Gso::TcpV6,
                _ => Gso::TcpV4,
            };
        } else if kind & 0x10 != 0 {
            // Finished already.
            let value = match !fold(sum(&p[at..])) {
                0 => 0xffff,
                value => value,
            };
            p[at + field..at + field + 2].copy_from_slice(&value.to_ne_bytes());
            offload = Offload::NONE;
        }
    }
    (p, offload)
}

/// Both engines, and what the reference knows of them.
struct World {
    engines: [Arc<Engine>; 2],
    a: Worker,
    b: Worker,
    tx: TxBatch,
    rx: RxBatch,
    sas: Vec<SaAdd>,
    policies: Policies,
    /// Those of B, seen from A.
    theirs: Policies,
    /// What must be refused, of the frames that have been taken since the last delivery.
    refused: Vec<Vec<u8>>,
    /// What must arrive, flow by flow, of the frames that have been taken since the last delivery.
    expected: HashMap<PacketSelector, Vec<Vec<u8>>>,
    defect: Defect,
    delivered: u64,
}

/// The crypto engines of both ends: AWS-LC faces each that this machine has, either way, by the
/// length of the input.
fn crypto(len: usize) -> [Engines; 2] {
    let all: Vec<EngineId> = EngineId::available().collect();
    let mut ends = [Engines::portable(), Engines::only(all[len / 2 % all.len()])];
    ends.rotate_left(len % 2);
    ends
}

impl World {
    fn new(choice: &mut Choice<'_>, defect: Defect) -> Self {
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
                // The last has no SA.
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
        // Of B alone: one that comes before another with the same selectors, and any.
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

    /// The SA that packet number `n` of the batch's ESP or AH jobs is for.
    fn sent_by(&self, start: u32, ah: bool) -> Option<&SaAdd> {
        let at = start as usize + if ah { 4 } else { 0 };
        let spi = u32::from_be_bytes(*self.tx.buf.get(at..)?.first_chunk()?);
        self.sas.iter().find(|sa| sa.spi.0 == spi)
    }

    /// A sends a frame. `ours` when it is well-formed, so that all of it must arrive.
    fn send(&mut self, frame: &[u8], offload: &Offload, ours: bool) {
        let jobs = (self.tx.jobs.len(), self.tx.ah_jobs.len());
        let mut copy = frame.to_vec();
        if !self.a.outbound(&mut copy, offload, &mut self.tx) {
            self.deliver(true);
            return self.send(frame, offload, ours);
        }
        let esp = self.tx.jobs[jobs.0..].iter().map(|j| (j.start, false));
        let ah = self.tx.ah_jobs[jobs.1..].iter().map(|j| (j.start, true));
        let sent: Vec<_> = esp.chain(ah).collect();
        let Some(info) = parse(frame).ok() else {
            assert!(sent.is_empty(), "what is not IP has left");
            return;
        };
        let Some(selector) = info.selector(frame) else { return };
        let action = self.policies.outbound(&selector);
        let allowed = match info.fragment {
            Fragment::No => Vec::from_iter(action),
            _ => self.policies.of_fragment(&selector),
        };
        let mut left_by: Vec<_> = sent
            .iter()
            .map(|(start, ah)| self.sent_by(*start, *ah).expect("what leaves is for one of the SAs"))
            .collect();
        if self.defect == Defect::Leaked && action == Some(Action::Discard) && offload.gso == Gso::UdpL4 {
            left_by.extend(&self.sas);
        }
        for sa in left_by {
            assert!(allowed.contains(&Action::Protect(sa.reqid)), "{selector:?} left by {sa:?}: {action:?}");
        }
        let Some((start, ah)) = sent.first() else { return };
        let Some(sa) = self.sent_by(*start, *ah).cloned() else { return };
        if ours {
            let packets = cut(frame, offload).expect("a frame of our own");
            assert_eq!(packets.len(), sent.len(), "as many packets as the device would make");
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

    /// What has been sent arrives. `ours` when all of it must come out.
    fn deliver(&mut self, ours: bool) {
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
}

/// What of a packet must be the same at both ends of this SA.
fn comparable(packet: &[u8], sa: &SaAdd) -> Option<Vec<u8>> {
    let dscp = !(sa.options.dscp_in && sa.options.dscp_out != Dscp::Copy);
    canonical(packet, sa.mode == Mode::Tunnel, dscp)
}

/// Two engines. The input is read as SAs, policies, and then frames: our own, which must arrive as
/// they were, or any bytes under any offload header, which must do no harm. Panics when they do
/// not, when a packet leaves that a list of policies says must not, or when the books do not
/// balance. The result tells how far the input came.
pub fn engine_pair(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::None)
}

/// The same with a defect, which it has to find.
pub fn engine_pair_with(data: &[u8], defect: Defect) -> u64 {
    let mut choice = Choice(data);
    let mut world = World::new(&mut choice, defect);
    while !choice.0.is_empty() {
        match choice.byte() {
            0..=15 => {
                // Any bytes: alone, for nothing is known of what they do to others' order.
                world.deliver(true);
                let header: Vec<u8> = (0..10).map(|_| choice.byte()).collect();
                let len = usize::from(choice.word()).min(choice.0.len());
                let (bytes, rest) = choice.0.split_at(len);
                choice.0 = rest;
                if let Ok(offload) = Offload::parse(&header) {
                    world.send(bytes, &offload, false);
                    world.deliver(false);
                }
            }
            16..=31 => world.deliver(true),
            _ => {
                let (frame, offload) = frame(&mut choice);
                world.send(&frame, &offload, true);
            }
        }
    }
    world.deliver(true);
    let (a, b) = (world.engines[0].counters(), world.engines[1].counters());
    let blocked = b.dropped(DropReason::InTmplMismatch);
    let numbers = [world.delivered, a.traffic.out_sent, a.held, b.traffic.in_merged, blocked];
    let drops = a.drops().chain(b.drops()).map(|(_, n)| n);
    let kinds = world
        .sas
        .iter()
        .map(|sa| u64::from(sa.mode == Mode::Transport) << 1 | u64::from(sa.protocol == ProtocolId::AH));
    numbers
        .into_iter()
        .chain(drops)
        .chain(kinds)
        .fold(0u64, |sum, n| sum.wrapping_mul(7).wrapping_add(n.min(5)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_crypto::rng::Rng;
    use std::panic::catch_unwind;

    fn inputs(count: u64) -> impl Iterator<Item = Vec<u8>> {
        (0..count).map(|seed| {
            let mut data = vec![0; 40 + seed as usize % 400];
            Seeded::new(seed).fill(&mut data);
            data
        })
    }

    #[test]
    fn two_engines_agree_with_each_other_and_with_the_reference() {
        let mut results = std::collections::HashSet::new();
        for data in inputs(1_500) {
            results.insert(engine_pair(&data));
        }
        assert!(results.len() > 200, "inputs that do different things: {}", results.len());
    }

    #[test]
    fn every_planted_defect_is_found() {
        std::panic::set_hook(Box::new(|_| ()));
        for defect in [Defect::Lost, Defect::Changed, Defect::Reordered, Defect::Leaked, Defect::Impersonated]
        {
            let found = inputs(3_000).any(|data| catch_unwind(|| engine_pair_with(&data, defect)).is_err());
            assert!(found, "{defect:?}");
        }
    }
}
