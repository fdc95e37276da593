//! Stories between two gateways, and a peer that is authenticated and misbehaves: node 0 initiates,
//! and messages can be forged in its name.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_keying::{Connection, Diagnosis, Limits};
use ironswan_testkit::{Forger, Node, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::id::Identity;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Nonce;
use ironswan_wire::proposal::Proposal;

pub const S: Duration = Duration::from_secs(1);
pub const MS: Duration = Duration::from_millis(1);

pub fn a() -> SocketAddr {
    "192.0.2.1:500".parse().expect("an address")
}

pub fn b() -> SocketAddr {
    "192.0.2.2:500".parse().expect("an address")
}

/// All failures that the gateways have logged or told whoever has asked for something, and the
/// reasons of tunnels that are down.
pub fn failures(w: &World) -> Vec<Diagnosis> {
    let down =
        |n: &Node| n.endpoint.down(w.now()).into_iter().filter_map(|down| down.why).collect::<Vec<_>>();
    w.nodes.iter().flat_map(|n| [n.failures.clone(), down(n)].concat()).collect()
}

/// Node 0 initiates with these connections, which fails or not. All failures.
pub fn tried(tweak: impl FnOnce(&mut [Connection; 2])) -> Vec<Diagnosis> {
    let mut w = World::pair(1, tweak);
    let _ = w.establish(0);
    w.run(S);
    failures(&w)
}

/// Two gateways with an IKE_SA and a CHILD_SA, and the keys of both.
pub struct Pair {
    pub w: World,
    pub f: Forger,
    /// Message ID of the next request, of either side.
    pub mid: u32,
}

impl Pair {
    /// With these connections.
    pub fn up(tweak: impl FnOnce(&mut [Connection; 2])) -> Self {
        Self::limited(Limits::default(), tweak)
    }

    /// With these limits and connections.
    pub fn limited(limits: Limits, tweak: impl FnOnce(&mut [Connection; 2])) -> Self {
        let mut w = World::pair_at(1, a().ip(), b().ip(), limits, tweak);
        w.establish(0).expect("an IKE_SA");
        let f = Forger::newest(&w.nodes[0]);
        Self { w, f, mid: 2 }
    }

    /// A request in the name of node 0. All failures.
    pub fn ask(&mut self, exchange: ExchangeType, payloads: &[Payload]) -> Vec<Diagnosis> {
        let (from, to) = {
            let sa = &self.w.up(0)[0];
            (sa.local, sa.remote)
        };
        let mut bytes = self.f.message(true, exchange, false, self.mid, payloads);
        if to.port() == 4500 {
            bytes = [&[0; 4], &bytes[..]].concat();
        }
        self.mid += 1;
        self.w.inject(from, to, bytes);
        self.w.run(100 * MS);
        failures(&self.w)
    }

    /// CREATE_CHILD_SA for a child with these changes of its payloads.
    pub fn ask_child(&mut self, change: impl FnOnce(&mut Vec<Payload>)) -> Vec<Diagnosis> {
        let mut payloads = self.child(0xc111_1111);
        change(&mut payloads);
        self.ask(ExchangeType::CREATE_CHILD_SA, &payloads)
    }

    /// SA with this SPI, a nonce, and the selectors of the child that there is, seen from node 0.
    pub fn child(&self, spi: u32) -> Vec<Payload> {
        let child = self.w.child(0);
        vec![
            Payload::Sa(vec![Proposal { spi: spi.to_be_bytes().to_vec(), ..config::esp_proposal(&[]) }]),
            Payload::Nonce(Nonce(vec![7; 32])),
            Payload::TsI(child.local_ts),
            Payload::TsR(child.remote_ts),
        ]
    }

    /// Node 0 asks for something by `begin`, and these payloads come in answer. All failures.
    pub fn answer(
        &mut self,
        exchange: ExchangeType,
        begin: impl FnOnce(&mut World),
        payloads: &[Payload],
    ) -> Vec<Diagnosis> {
        self.w.net.rules.push(Box::new(move |s| match s.node == 0 && s.exchange == exchange {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        begin(&mut self.w);
        self.w.run(10 * MS);
        let bytes = self.f.message(false, exchange, true, self.mid, payloads);
        self.w.inject(b(), a(), bytes);
        self.w.run(100 * MS);
        failures(&self.w)
    }
}

/// IKE proposals with this method alone.
pub fn ike_with(c: &mut Connection, ke: KeId) {
    c.proposals = vec![config::ike_proposal(&[ke])];
}

/// A third gateway at this address with this identity and the connection of node 0.
pub fn third(w: &mut World, at: &str, id: &str) {
    let now = w.now();
    let mut node = Node::seeded(vec![config::ip(at)], 90 + w.nodes.len() as u64, Limits::default());
    let mut conn = w.nodes[0].connection("gw");
    conn.local_addrs = vec![];
    conn.local_id = Identity::parse(id);
    node.endpoint.load_shared(config::psk("ike-gw", "a secret of both", &["g1.example", "g2.example"]));
    for n in [&mut node, &mut w.nodes[1]] {
        n.endpoint.load_shared(config::psk("any", "a secret of all", &[]));
    }
    node.endpoint.load_connection(now, conn);
    w.nodes.push(node);
}
