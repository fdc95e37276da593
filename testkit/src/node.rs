//! One gateway: policy and an endpoint, a model engine, and all that the endpoint has said.

use ironswan_keying::diagnosis::{KeyExchange, Machine, Uncomputed, Unresolved};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::event::{
    Completion, Event, IkeSaInfo, KeyLog, KnownPath, Level, Request, RequestId, Ticket, Time, Transmit,
};
use ironswan_ike::{Endpoint, Options};
use ironswan_keying::{Connection, Diagnosis, Fetched, Joined, Limits};
use ironswan_pki::fetch::Fetch;
use ironswan_wire::fetched::FetchFault;
use ironswan_wire::sadb::{Direction, SaRef};
use ironswan_wire::secret::Secret;

use crate::engine::Engine;

/// The time at which certificates are judged, unless a story says another: 2026-01-01.
pub const WALL: Time = Time(1_767_225_600);

/// One gateway.
pub struct Node {
    /// Its addresses; the first is the answer to `Request::Route`.
    pub addrs: Vec<IpAddr>,
    /// Policy and the endpoint.
    pub endpoint: Joined<Endpoint>,
    /// The model of its packet engine.
    pub engine: Engine,
    /// Every line it logged, with its level.
    pub log: Vec<(Level, String)>,
    /// The failures that it logged, and those of commands.
    pub failures: Vec<Diagnosis>,
    /// Every event but log lines, engine commands and keys.
    pub events: Vec<Event>,
    /// Keys told for the key log.
    pub keys: Vec<KeyLog>,
    /// Commands that have ended.
    pub done: BTreeMap<Ticket, Result<(), String>>,
    /// How long an answer to a request takes.
    pub work: Duration,
    /// Answers under way.
    pub answers: VecDeque<(Instant, RequestId, Completion)>,
    /// Shared secrets of key exchanges, in order.
    pub secrets: Vec<Secret>,
    /// Key pairs and shared secrets computed.
    pub kex: usize,
    /// Signatures made, and proofs judged.
    pub signatures: usize,
    /// The time at which certificates are judged.
    pub wall: Time,
    /// What the resolver knows: the answer to `Request::Resolve`.
    pub names: BTreeMap<String, Vec<IpAddr>>,
    /// Names to which the resolver never answers.
    pub mute_names: BTreeSet<String>,
    /// Names looked up.
    pub resolved: usize,
    /// Answers of servers of the web, by URI. A server of another URI is silent.
    pub web: BTreeMap<String, Fetched>,
    /// Things that were fetched, in order.
    pub fetched: Vec<Fetch>,
    /// No key pair can be made.
    pub no_keys: bool,
    /// While this is set, key exchanges are kept in it instead of being computed, until
    /// [`Self::release`].
    pub held: Option<Vec<(RequestId, Request)>>,
    /// Routes to nowhere: `Request::Route` finds none.
    pub no_routes: bool,
    /// The routing table cannot be asked.
    pub routes_unknown: bool,
    /// What it knows of every path: the answer to `Request::PathMtu`.
    pub known_path: Option<KnownPath>,
    /// Datagrams from an address that it does not have.
    pub unsendable: usize,
    /// Calls of the endpoint: requests answered, datagrams taken in, timers.
    pub calls: usize,
    /// NAT-keepalives sent.
    pub keepalives: usize,
    /// When ESP last arrived.
    pub last_esp: Option<Instant>,
    /// When ESP last left.
    pub last_esp_out: Option<Instant>,
    /// ESP packets that were opened, and such that met no SA.
    pub esp: (usize, usize),
}

impl Node {
    /// A gateway with these addresses and this source of randomness.
    pub fn new(addrs: Vec<IpAddr>, rng: Box<dyn Rng>, limits: Limits) -> Self {
        Self::with_options(addrs, rng, limits, Options { keylog: true, ..Options::default() })
    }

    /// The same with these ports.
    pub fn with_options(addrs: Vec<IpAddr>, mut rng: Box<dyn Rng>, limits: Limits, options: Options) -> Self {
        let times = Box::new(Seeded::new(u64::from(rng.u32())));
        let endpoint = |policy| Endpoint::new(policy, limits.clone(), rng, options);
        Self {
            addrs,
            endpoint: Joined::new(limits.clone(), times, endpoint),
            engine: Engine::default(),
            log: Vec::new(),
            failures: Vec::new(),
            events: Vec::new(),
            keys: Vec::new(),
            secrets: Vec::new(),
            done: BTreeMap::new(),
            work: Duration::ZERO,
            answers: VecDeque::new(),
            kex: 0,
            signatures: 0,
            wall: WALL,
            names: BTreeMap::new(),
            mute_names: BTreeSet::new(),
            resolved: 0,
            web: BTreeMap::new(),
            fetched: Vec::new(),
            no_keys: false,
            held: None,
            no_routes: false,
            routes_unknown: false,
            known_path: Some(KnownPath { mtu: 1_500, told: None }),
            unsendable: 0,
            calls: 0,
            keepalives: 0,
            last_esp: None,
            last_esp_out: None,
            esp: (0, 0),
        }
    }

    /// A gateway with a seeded source.
    pub fn seeded(addrs: Vec<IpAddr>, seed: u64, limits: Limits) -> Self {
        Self::new(addrs, Box::new(Seeded::new(seed)), limits)
    }

    /// Does what the endpoint wants done, in its order. What it wants sent is returned.
    pub fn drain(&mut self, now: Instant) -> Vec<Transmit> {
        let mut out = Vec::new();
        loop {
            let mut busy = false;
            while let Some(event) = self.endpoint.outputs().poll_event() {
                busy = true;
                match event {
                    Event::Sadb(command) => self.engine.apply(&command),
                    Event::Log { level, text, why, .. } => {
                        assert!(!text.contains('\n'), "a log line with a newline: {text:?}");
                        self.log.push((level, text));
                        self.failures.extend(why.map(|why| (*why).clone()));
                    }
                    Event::KeyLog(keys) => self.keys.push(keys),
                    Event::Unwanted(id) => {
                        self.held.iter_mut().for_each(|held| held.retain(|(of, _)| *of != id))
                    }
                    Event::Done { ticket, result } => {
                        self.failures.extend(result.clone().err());
                        let result = result.map_err(|why| why.sentence());
                        assert!(self.done.insert(ticket, result).is_none(), "{ticket:?} done twice");
                    }
                    other => self.events.push(other),
                }
            }
            while let Some((id, request)) = self.endpoint.outputs().poll_request() {
                busy = true;
                if matches!(&request, Request::Resolve { name } if self.mute_names.contains(name)) {
                    continue;
                }
                if let Some(held) = self.held.as_mut().filter(|_| request.is_computation()) {
                    held.push((id, request));
                    continue;
                }
                let answer = self.compute(request);
                let took = match &answer {
                    Completion::Fetched { took, .. } => *took,
                    _ => self.work,
                };
                let at = self.answers.partition_point(|(at, ..)| *at <= now + took);
                self.answers.insert(at, (now + took, id, answer));
            }
            while self.answers.front().is_some_and(|(at, ..)| *at <= now) {
                let Some((_, id, answer)) = self.answers.pop_front() else { break };
                busy = true;
                self.calls += 1;
                self.endpoint.call(now, |e| e.complete(now, id, answer));
            }
            // Not before the events of the same turn: an inbound SA stands before the peer hears of
            // it.
            if !busy {
                while let Some(t) = self.endpoint.outputs().poll_transmit() {
                    self.keepalives += usize::from(t.payload == [0xff]);
                    out.push(t);
                }
                return out;
            }
        }
    }

    /// Computes the key exchanges that were held.
    pub fn release(&mut self, now: Instant) {
        for (id, request) in self.held.take().into_iter().flatten() {
            let answer = self.compute(request);
            self.answers.push_back((now, id, answer));
        }
    }

    fn compute(&mut self, request: Request) -> Completion {
        match request {
            Request::GenerateKey { .. } if self.no_keys => {
                let why = Uncomputed::NotStarted("no keys today".to_owned());
                Completion::Failed { why: KeyExchange::NotComputed { why }.into() }
            }
            Request::GenerateKey { .. } | Request::Agree { .. } | Request::Respond { .. } => {
                self.kex += 1;
                let answer = request.compute(self.wall).expect("a computation");
                if let Completion::SharedSecret(Some(secret)) | Completion::Response(Some((_, secret))) =
                    &answer
                {
                    self.secrets.push(secret.clone());
                }
                answer
            }
            Request::Sign { .. } | Request::Verify { .. } | Request::Certify(_) => {
                self.signatures += 1;
                request.compute(self.wall).expect("a computation")
            }
            Request::Usage { sas } => {
                let of = |direction, at: Option<Instant>| {
                    at.filter(|_| sas.iter().any(|sa| sa.direction == direction))
                };
                let times = [of(Direction::In, self.last_esp), of(Direction::Out, self.last_esp_out)];
                Completion::Usage { last_use: times.into_iter().flatten().max() }
            }
            Request::Packets { sas } => {
                let of = |sa: &SaRef| self.engine.counts.get(&(sa.direction == Direction::In, sa.spi));
                Completion::Packets(sas.iter().map(|sa| of(sa).copied().unwrap_or(0)).collect())
            }
            Request::Route { .. } if self.routes_unknown => {
                let (request, why) = ("the route".to_owned(), "no table today".to_owned());
                Completion::Failed { why: Machine::KernelRefused { request, why, write: "" }.into() }
            }
            Request::Route { .. } if self.no_routes => Completion::Route { local: None },
            Request::Route { remote } => Completion::Route {
                local: self.addrs.iter().copied().find(|a| a.is_ipv4() == remote.is_ipv4()),
            },
            Request::PathMtu { .. } => Completion::PathMtu(self.known_path),
            Request::Fetch { wanted, limit } => {
                let silent = || FetchFault::Silent { milliseconds: limit.as_millis() as u32 };
                let answer = |fetch: &Fetch| self.web.get(fetch.place.uri()).cloned();
                let answers: Vec<Option<Fetched>> = wanted.iter().map(answer).collect();
                let took = if answers.contains(&None) { limit } else { Duration::from_millis(10) };
                self.fetched.extend(wanted);
                let answers = answers.into_iter().map(|a| a.unwrap_or_else(|| Err(silent()))).collect();
                Completion::Fetched { answers, took }
            }
            Request::Resolve { name } => {
                self.resolved += 1;
                let unknown = || Unresolved::Resolver("no such name".to_owned());
                Completion::Addresses(
                    self.names.get(&name).filter(|addrs| !addrs.is_empty()).cloned().ok_or_else(unknown),
                )
            }
        }
    }

    /// Its IKE_SAs.
    pub fn sas(&self, now: Instant) -> Vec<IkeSaInfo> {
        self.endpoint.protocol().ike_sas(now)
    }

    /// A copy of a connection as it is loaded.
    pub fn connection(&self, name: &str) -> Connection {
        (*self.endpoint.connection(name).expect("a loaded connection")).clone()
    }

    /// True when some line holds this text.
    pub fn logged(&self, text: &str) -> bool {
        self.log.iter().any(|(_, line)| line.contains(text))
    }

    /// How many lines hold this text.
    pub fn count_logged(&self, text: &str) -> usize {
        self.log.iter().filter(|(_, line)| line.contains(text)).count()
    }
}
