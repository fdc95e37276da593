//! A network between nodes: delay, loss, duplication, reordering (by jitter), rules for single
//! messages, and NATs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::event::Cut;
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::ike::Header;

/// A datagram under way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source, as the receiver will see it.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// UDP payload, non-ESP marker included.
    pub payload: Vec<u8>,
}

/// What a rule sees of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Number of the sending node.
    pub node: usize,
    /// Exchange.
    pub exchange: ExchangeType,
    /// A response.
    pub response: bool,
    /// Message ID.
    pub mid: u32,
    /// Initiator's SPI.
    pub spi_i: u64,
    /// How many datagrams the network has seen before.
    pub index: usize,
    /// Whether IP may fragment it.
    pub cut: Cut,
    /// Bytes of its IP packet.
    pub bytes: usize,
}

/// What a rule says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on.
    Pass,
    /// Lose it.
    Drop,
    /// Keep it this long more.
    Delay(Duration),
}

/// A rule for single messages.
pub type Rule = Box<dyn FnMut(&Seen) -> Verdict>;

/// Rewrites a message on its way.
pub type Tamper = Box<dyn FnMut(&mut Vec<u8>)>;

/// Translates one address to another with ports of its own.
#[derive(Debug)]
pub struct Nat {
    /// The addresses behind it.
    pub inside: Vec<IpAddr>,
    /// The address in front of it.
    pub outside: IpAddr,
    /// Ports are kept, and what comes from outside is let in: all are forwarded to the one address
    /// inside.
    forwards: bool,
    mapped: BTreeMap<SocketAddr, u16>,
    next: u16,
}

impl Nat {
    /// A translator.
    pub fn new(inside: IpAddr, outside: IpAddr) -> Self {
        Self { inside: vec![inside], outside, forwards: false, mapped: BTreeMap::new(), next: 20_000 }
    }

    /// One that a responder can be behind.
    pub fn forwarding(inside: IpAddr, outside: IpAddr) -> Self {
        Self { forwards: true, ..Self::new(inside, outside) }
    }

    /// Forgets every mapping: the next packet gets another port.
    pub fn rebind(&mut self) {
        self.mapped.clear();
    }

    fn out(&mut self, from: SocketAddr) -> SocketAddr {
        if !self.inside.contains(&from.ip()) {
            return from;
        }
        if self.forwards {
            return SocketAddr::new(self.outside, from.port());
        }
        let next = &mut self.next;
        let port = *self.mapped.entry(from).or_insert_with(|| {
            *next += 1;
            *next
        });
        SocketAddr::new(self.outside, port)
    }

    /// `None`: no such mapping.
    fn back(&self, to: SocketAddr) -> Option<SocketAddr> {
        if to.ip() != self.outside {
            return Some(to);
        }
        if let (true, Some(inside)) = (self.forwards, self.inside.first()) {
            return Some(SocketAddr::new(*inside, to.port()));
        }
        self.mapped.iter().find(|(_, port)| **port == to.port()).map(|(inside, _)| *inside)
    }
}

/// The network.
pub struct Net {
    rng: Seeded,
    /// One way.
    pub delay: Duration,
    /// Up to this much more, at random: reorders.
    pub jitter: Duration,
    /// Of a thousand datagrams, so many are lost.
    pub loss: u32,
    /// Of a thousand, so many come twice.
    pub duplicate: u32,
    /// Nodes of which everything that they send is lost, ESP too.
    pub mute: BTreeSet<usize>,
    /// Bytes of the largest IP packet on the way from each node; none is named: all pass. Routers
    /// fragment what may be, and say nothing of what may not.
    pub mtu: BTreeMap<usize, usize>,
    /// Fragments of IP are lost.
    pub no_fragments: bool,
    /// When each IKE datagram and keepalive was sent, for finding storms.
    pub sent: Vec<Instant>,
    /// Looked at in order; the first that does not pass decides.
    pub rules: Vec<Rule>,
    /// Rewrites what is sent between ports 500, before anybody sees it.
    pub tamper: Option<Tamper>,
    /// So many corrupted copies overtake every datagram: bits turned, cut short, lengthened.
    pub corrupt: u32,
    /// The translator, if there is one.
    pub nat: Option<Nat>,
    /// Another one, in front of another node.
    pub far: Option<Nat>,
    in_flight: BTreeMap<(Instant, u64), Packet>,
    seq: u64,
    /// Datagrams seen.
    pub count: usize,
    /// Of these, lost.
    pub lost: usize,
    /// Everything seen, for a story that repeats or examines it.
    pub log: Vec<(Seen, Packet)>,
}

impl Net {
    /// A network without faults and with 5 ms one way.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Seeded::new(seed),
            delay: Duration::from_millis(5),
            jitter: Duration::ZERO,
            loss: 0,
            duplicate: 0,
            mute: BTreeSet::new(),
            mtu: BTreeMap::new(),
            no_fragments: false,
            sent: Vec::new(),
            rules: Vec::new(),
            tamper: None,
            corrupt: 0,
            nat: None,
            far: None,
            in_flight: BTreeMap::new(),
            seq: 0,
            count: 0,
            lost: 0,
            log: Vec::new(),
        }
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.u32() % 1_000 < per_mille
    }

    /// True when a packet of this size passes on the way from a node, whole or in fragments.
    fn carries(&self, node: usize, bytes: usize, ipv4: bool, cut: Cut) -> bool {
        match self.mtu.get(&node) {
            // Over IPv6 the sender alone makes fragments, and it knows nothing of the path.
            Some(mtu) if bytes > *mtu => cut == Cut::Allowed && ipv4 && !self.no_fragments,
            _ => true,
        }
    }

    fn corrupted(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut out = payload.to_vec();
        let at = self.rng.u32() as usize % out.len().max(1);
        match self.rng.u32() % 8 {
            0 => out.truncate(at),
            1 => out.extend([0; 3]),
            // The header's fields more often than they weigh.
            2 | 3 => out[at % 32] ^= 1 << (self.rng.u32() % 8),
            _ => out[at] ^= 1 << (self.rng.u32() % 8),
        }
        out
    }

    /// A node sends.
    pub fn send(
        &mut self,
        now: Instant,
        node: usize,
        from: SocketAddr,
        to: SocketAddr,
        (mut payload, cut): (Vec<u8>, Cut),
    ) {
        self.sent.push(now);
        let bytes = payload.len() + if to.is_ipv4() { 28 } else { 48 };
        if let Some(tamper) = self.tamper.as_mut().filter(|_| from.port() == 500 && to.port() == 500) {
            tamper(&mut payload);
        }
        let message = if from.port() == 4500 || to.port() == 4500 {
            payload.get(4..).unwrap_or_default()
        } else {
            &payload[..]
        };
        let mut extra = Duration::ZERO;
        let mut packet = Packet { from, to, payload: payload.clone() };
        if let Ok(h) = Header::read(message) {
            let seen = Seen {
                node,
                exchange: h.exchange,
                response: h.is_response(),
                mid: h.message_id,
                spi_i: h.initiator_spi,
                index: self.count,
                cut,
                bytes,
            };
            self.log.push((seen, packet.clone()));
            self.count += 1;
            for rule in &mut self.rules {
                match rule(&seen) {
                    Verdict::Pass => continue,
                    Verdict::Drop => {
                        self.lost += 1;
                        return;
                    }
                    Verdict::Delay(more) => extra += more,
                }
                break;
            }
        }
        if self.mute.contains(&node) || self.chance(self.loss) {
            self.lost += 1;
            return;
        }
        if !self.carries(node, bytes, to.is_ipv4(), cut) {
            self.lost += 1;
            return;
        }
        match self.translate(packet.from, packet.to) {
            Some((from, to)) => (packet.from, packet.to) = (from, to),
            None => {
                self.lost += 1;
                return;
            }
        }
        for _ in 0..self.corrupt {
            let payload = self.corrupted(&packet.payload);
            self.inject(now + self.delay / 2, Packet { payload, ..packet.clone() });
        }
        let copies = 1 + u32::from(self.chance(self.duplicate));
        for _ in 0..copies {
            let jitter = match u64::try_from(self.jitter.as_micros()).unwrap_or(0) {
                0 => Duration::ZERO,
                n => Duration::from_micros(self.rng.u64() % n),
            };
            self.inject(now + self.delay + extra + jitter, packet.clone());
        }
    }

    /// What the translators make of source and destination; `None`: lost.
    pub fn translate(&mut self, from: SocketAddr, to: SocketAddr) -> Option<(SocketAddr, SocketAddr)> {
        [&mut self.nat, &mut self.far].into_iter().flatten().try_fold((from, to), |(from, to), nat| {
            let from = nat.out(from);
            Some((from, nat.back(to)?))
        })
    }

    /// True when nothing is translated.
    pub fn whole(&self) -> bool {
        self.nat.is_none() && self.far.is_none()
    }

    /// The most that was sent within any one second from `since` on.
    pub fn busiest_second(&self, since: Instant) -> usize {
        let sent: Vec<Instant> = self.sent.iter().copied().filter(|t| *t >= since).collect();
        let mut first = 0;
        let mut most = 0;
        for (i, t) in sent.iter().enumerate() {
            while t.saturating_duration_since(sent[first]) >= Duration::from_secs(1) {
                first += 1;
            }
            most = most.max(i + 1 - first);
        }
        most
    }

    /// Puts a datagram on the wire, to arrive at this moment.
    pub fn inject(&mut self, at: Instant, packet: Packet) {
        self.seq += 1;
        self.in_flight.insert((at, self.seq), packet);
    }

    /// When the next datagram arrives.
    pub fn next(&self) -> Option<Instant> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    /// The next datagram that has arrived.
    pub fn arrived(&mut self, now: Instant) -> Option<Packet> {
        if self.next()? > now {
            return None;
        }
        self.in_flight.pop_first().map(|(_, p)| p)
    }
}
