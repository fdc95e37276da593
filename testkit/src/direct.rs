//! Two gateways whose datagrams go straight from one to the other, without network, clock, packet
//! engine and log: for measurements of IKE alone. [`crate::World`] is for stories.
//!
//! ```text
//! peer n, 198.18.0.0 + n                                     hub, 192.0.2.1
//! spoken.example, 10.0.0.0 + n / 32   ◀── one tunnel ──▶   hub.example, 172.16.0.0/12
//! ```

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::net::IpAddr;
use std::time::Instant;

use ironswan_crypto::rng::Seeded;
use ironswan_ike::event::{Completion, Event, Level, Request, Transmit};
use ironswan_ike::{Endpoint, Options};
use ironswan_keying::{AddrSpec, Auth, Connection, Diagnosis, Joined, Limits, SendCert, Target, Trust};
use ironswan_pki::Certificate;
use ironswan_wire::iana::KeId;
use ironswan_wire::id::{IdPattern, Identity};

use crate::certificates::{LINK, Make, ROOT, p256};
use crate::{WALL, config};

/// Datagrams of any exchange are far fewer, its fragments included.
const DATAGRAMS: usize = 200;

/// Number of the hub's key, and that of the key of all peers.
const KEYS: (u8, u8) = (1, 2);

/// How both gateways set up their IKE_SA.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Both prove themselves by a certificate of ECDSA over P-256 below a root and one more CA;
    /// else by one pre-shared key.
    pub ecdsa: bool,
    /// Additional key exchanges beside X25519, one IKE_INTERMEDIATE each.
    pub additional: &'static [(u8, KeId)],
}

impl Way {
    /// A connection of one end whose certificate is `own`.
    fn connect(self, conn: &mut Connection, own: &Certificate) {
        conn.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], self.additional)];
        if self.ecdsa {
            let certificates = vec![own.clone()];
            conn.local_auth = Auth::certificate(Trust { certificates, ..Trust::default() });
            conn.remote_auth = Auth::certificate(Trust::default());
            conn.send_cert = SendCert::Always;
        }
    }

    /// What an end proves itself by, and what it knows of others.
    fn load(self, end: &mut End, own: u8) {
        if self.ecdsa {
            end.endpoint.load_private(p256(own));
            end.endpoint.change_certificates(|all| {
                all.insert(link(), false);
                all.insert(root(), true);
            });
        } else {
            end.endpoint.load_shared(config::psk("all", "a secret of all", &[]));
        }
    }
}

/// The root of all chains.
pub fn root() -> Certificate {
    Make::ca("CN=root", ROOT, "CN=root", ROOT).ecdsa().make()
}

/// The CA below the root.
pub fn link() -> Certificate {
    Make::ca("CN=link", LINK, "CN=root", ROOT).ecdsa().make()
}

/// The certificate of a gateway.
fn certificate(name: &str, key: u8) -> Certificate {
    Make::end(&format!("CN={name}"), key, "CN=link", LINK).names(&[name]).ecdsa().make()
}

/// The certificate of peer `n`.
pub fn certificate_of_peer(n: u32) -> Certificate {
    certificate(&format!("spoke{n}.example"), KEYS.1)
}

fn addresses(n: u32) -> (IpAddr, IpAddr) {
    (config::ip("192.0.2.1"), IpAddr::from((0xc612_0000 + n).to_be_bytes()))
}

/// Connections between the hub and peer `n`, of both: `gw` at the peer, `to-n` at the hub.
fn connections(n: u32, way: Way) -> [Connection; 2] {
    let (hub, peer) = addresses(n);
    let id = format!("spoke{n}.example");
    let host = format!("{}/32", IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
    let net = "172.16.0.0/12";
    let mut conns = [
        config::connection(hub, peer, ("hub.example", &id), (net, &host)),
        config::connection(peer, hub, (&id, "hub.example"), (&host, net)),
    ];
    conns[0].name = format!("to-{n}");
    way.connect(&mut conns[0], &certificate("hub.example", KEYS.0));
    way.connect(&mut conns[1], &certificate_of_peer(n));
    conns
}

/// A hub that takes any number of peers by one connection.
pub fn hub(now: Instant, seed: u64, way: Way) -> End {
    let limits = Limits {
        cookie_threshold: usize::MAX,
        half_open_max: usize::MAX,
        half_open_per_addr: usize::MAX,
        ike_sa_max: usize::MAX,
        ..Limits::default()
    };
    let mut hub = End::new(addresses(0).0, seed, limits);
    way.load(&mut hub, KEYS.0);
    let [mut conn, _] = connections(0, way);
    (conn.name, conn.remote_id, conn.remote_addrs) = ("any".to_owned(), IdPattern::Any, vec![AddrSpec::Any]);
    conn.children = vec![config::child("net", "172.16.0.0/12", "10.0.0.0/8")];
    conn.local_id = Identity::parse("hub.example");
    hub.endpoint.load_connection(now, conn);
    hub
}

/// Peer `n` of a hub.
pub fn peer(now: Instant, n: u32, way: Way) -> End {
    let mut peer = End::new(addresses(n).1, u64::from(n) + 1_000_000, Limits::default());
    way.load(&mut peer, KEYS.1);
    let [_, conn] = connections(n, way);
    peer.endpoint.load_connection(now, conn);
    peer
}

/// Gives a hub a connection `to-n` of its own to peer `n`, by which it can initiate.
pub fn know(now: Instant, hub: &mut End, n: u32, way: Way) {
    let [conn, _] = connections(n, way);
    hub.endpoint.load_connection(now, conn);
}

/// The first of two gateways initiates by this connection, and the second answers.
///
/// # Panics
/// When that sets up no IKE_SA.
pub fn set_up(now: Instant, conn: &str, mut ends: [&mut End; 2]) {
    let before = ends.each_ref().map(|end| end.ups);
    ends[0].endpoint.initiate(now, Some(conn), Some("net")).expect("a connection");
    carry(now, ends.each_mut().map(|end| &mut **end));
    for (end, before) in ends.iter().zip(before) {
        assert_eq!(end.ups, before + 1, "{:?}", end.failures);
    }
}

/// The first of two gateways asks to rekey its child, and the second answers. Returns the request,
/// which the second answers in the same way when it comes once more.
///
/// # Panics
/// When the first one has no child.
pub fn ask(now: Instant, from: &mut End, to: &mut End) -> Transmit {
    let target = Target { child: Some("net".to_owned()), ..Target::default() };
    from.endpoint.rekey(now, &target, false).expect("a child");
    let request = from.drain(now).pop().expect("a request");
    to.receive(now, &request);
    assert_eq!(to.drain(now).len(), 1, "the answer");
    request
}

/// One gateway.
pub struct End {
    /// Policy and the endpoint.
    pub endpoint: Joined<Endpoint>,
    /// The answer to `Request::Route`.
    addr: IpAddr,
    /// Computations that were done, in order, while somebody collects them.
    pub computed: Option<Vec<Request>>,
    /// Failures of commands and in the log.
    pub failures: Vec<Diagnosis>,
    /// IKE_SAs that were established.
    pub ups: usize,
    /// Bytes of the lines that a daemon writes, at the level that it has unless told otherwise,
    /// with time and level in front.
    pub log_bytes: usize,
    /// The first key pair and the first shared secret are those of all IKE_SAs: to count what else
    /// an IKE_SA takes.
    pub one_key: bool,
    /// The first key pair and the first shared secret, once they have been computed.
    first: HashMap<Discriminant<Request>, Completion>,
}

/// Time, level and what stands between them and the line, in a line of the log.
const LINE_HEAD: usize = 40;

impl End {
    /// A gateway with this address and a seeded source of randomness.
    pub fn new(addr: IpAddr, seed: u64, limits: Limits) -> Self {
        let rng = || Box::new(Seeded::new(seed));
        let endpoint = |policy| Endpoint::new(policy, limits.clone(), rng(), Options::default());
        let endpoint = Joined::new(limits.clone(), rng(), endpoint);
        let (failures, first) = Default::default();
        Self { endpoint, addr, computed: None, failures, ups: 0, log_bytes: 0, one_key: false, first }
    }

    /// Does what the endpoint wants done, and returns what it wants sent.
    pub fn drain(&mut self, now: Instant) -> Vec<Transmit> {
        let mut sent = Vec::new();
        loop {
            let mut busy = false;
            while let Some(event) = self.endpoint.outputs().poll_event() {
                busy = true;
                match event {
                    Event::IkeUp(_) => self.ups += 1,
                    Event::Done { result: Err(why), .. } => self.failures.push(why),
                    Event::Log { level, text, why, .. } => {
                        if level <= Level::Info {
                            self.log_bytes += LINE_HEAD + text.len();
                        }
                        self.failures.extend(why.map(|why| (*why).clone()));
                    }
                    _ => {}
                }
            }
            while let Some((id, request)) = self.endpoint.outputs().poll_request() {
                busy = true;
                let answer = self.answer(&request);
                if let Some(computed) = self.computed.as_mut().filter(|_| request.is_computation()) {
                    computed.push(request);
                }
                self.endpoint.call(now, |e| e.complete(now, id, answer));
            }
            if !busy {
                while let Some(t) = self.endpoint.outputs().poll_transmit() {
                    sent.push(t);
                }
                return sent;
            }
        }
    }

    /// The answer to a request.
    fn answer(&mut self, request: &Request) -> Completion {
        let of_keys = matches!(request, Request::GenerateKey { .. } | Request::Agree { .. });
        let kind = discriminant(request);
        if let Some(answer) = self.first.get(&kind).filter(|_| self.one_key && of_keys) {
            return answer.clone();
        }
        let answer = request.compute(WALL).unwrap_or_else(|| self.other(request));
        if self.one_key && of_keys {
            self.first.insert(kind, answer.clone());
        }
        answer
    }

    /// The answer to a request that is no computation.
    fn other(&self, request: &Request) -> Completion {
        match request {
            Request::Usage { .. } => Completion::Usage { last_use: None },
            Request::Packets { sas } => Completion::Packets(vec![0; sas.len()]),
            Request::Resolve { .. } => Completion::Addresses(Ok(Vec::new())),
            _ => Completion::Route { local: Some(self.addr) },
        }
    }

    /// Receives a datagram.
    pub fn receive(&mut self, now: Instant, datagram: &Transmit) {
        let natt = self.endpoint.protocol().options().ports.natt;
        let message = match datagram.remote.port() == natt {
            true => datagram.payload.strip_prefix(&[0; 4]).expect("the non-ESP marker"),
            false => &datagram.payload,
        };
        self.endpoint.call(now, |e| e.handle_datagram(now, datagram.remote, datagram.local, message));
    }
}

/// Carries datagrams between two gateways until both are quiet.
///
/// # Panics
/// When that takes too many.
pub fn carry(now: Instant, ends: [&mut End; 2]) {
    let mut count = 0;
    loop {
        let mut quiet = true;
        for (from, to) in [(0, 1), (1, 0)] {
            for datagram in ends[from].drain(now) {
                (quiet, count) = (false, count + 1);
                ends[to].receive(now, &datagram);
            }
        }
        assert!(count < DATAGRAMS, "the gateways do not come to rest");
        if quiet {
            return;
        }
    }
}
