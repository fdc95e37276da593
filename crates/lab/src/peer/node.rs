//! The peers' thread: datagrams and timers into the endpoint, key exchanges computed on the spot,
//! SAs noted by tunnel.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::System;
use ironswan_ike::event::{Completion, Event, Level, Request, RequestId, Time};
use ironswan_ike::{Endpoint, Options};
use ironswan_io::mmsg::{Received, RecvSlots};
use ironswan_io::udp::UdpSocket;
use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Connection, Joined, Limits, SharedKey, Target,
    TsSpec, Unique,
};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::sadb::{Command, Direction, Lifetime, Mode, ReqId, SaAdd, SaOptions};
use ironswan_wire::selector::TrafficSelector;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PeerSpec, PeerTunnel, SaKeys, Shared, TunnelKeys, ike_proposal};
use crate::clock;

/// Datagrams of one call, and room for each: IKE without certificates needs less.
const MESSAGES: usize = 32;
const ROOM: usize = 4096;
/// The four zero bytes in front of an IKE message on port 4500, which ESP never begins with (RFC
/// 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];

/// Which tunnel an SA belongs to: addresses and selectors, all as the tunnel has them.
type Key = (IpAddr, IpAddr, TrafficSelector, TrafficSelector);

/// One of the two SAs of a tunnel, until the other has come.
type Halves = (Option<SaAdd>, Option<SaAdd>);

/// All peers of a process.
pub(super) struct Node {
    endpoint: Joined<Endpoint>,
    tunnels: HashMap<Key, usize>,
    /// By reqid, which is the peers' own and unique to a tunnel.
    halves: HashMap<ReqId, (usize, Halves)>,
    initiate: bool,
    names: usize,
}

impl Node {
    /// Checks the tunnels and loads them. Nothing is sent yet.
    pub(super) fn new(spec: PeerSpec) -> Result<Self, String> {
        let n = spec.tunnels.len();
        // The peers share a processor with thousands of others, and trust the only peer that they
        // have.
        let limits = Limits {
            cookie_threshold: usize::MAX,
            half_open_max: usize::MAX,
            half_open_per_net: usize::MAX,
            half_open_per_addr: usize::MAX,
            ike_sa_max: 2 * n + 1,
            ike_sa_max_per_id: 0,
            child_sa_max_per_id: 0,
            ..Limits::default()
        };
        let endpoint = |policy| Endpoint::new(policy, limits.clone(), Box::new(System), Options::default());
        let mut endpoint = Joined::new(limits.clone(), Box::new(System), endpoint);
        let mut tunnels = HashMap::with_capacity(n);
        let now = clock::now();
        for (number, tunnel) in spec.tunnels.iter().enumerate() {
            let key = (tunnel.local, tunnel.remote, tunnel.local_ts, tunnel.remote_ts);
            if tunnels.insert(key, number).is_some() {
                return Err(format!("tunnel {number} has the addresses and selectors of another"));
            }
            let owner = |id: &str| {
                IdPattern::parse(id).ok_or_else(|| format!("`{id}` of tunnel {number} is not an identity"))
            };
            endpoint.load_shared(SharedKey {
                name: format!("psk-{number}"),
                secret: tunnel.secret.clone(),
                owners: vec![owner(&tunnel.local_id)?, owner(&tunnel.remote_id)?],
            });
            endpoint.load_connection(now, connection(number, tunnel, &spec)?);
        }
        Ok(Self { endpoint, tunnels, halves: HashMap::new(), initiate: spec.initiate, names: n })
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self, sockets: &[UdpSocket; 2], shared: &Shared) {
        if self.initiate {
            // As connections of `start_action = start` begin, by the endpoint's own pace.
            let names = (0..self.names).map(name);
            names.for_each(|n| {
                let _ = self.endpoint.initiate(clock::now(), Some(&n), Some(&n));
                self.pump(clock::now(), sockets, shared);
            });
        }
        let mut slots = RecvSlots::new(MESSAGES);
        let mut buffer = vec![0; MESSAGES * ROOM];
        let mut got: Vec<Received> = Vec::with_capacity(MESSAGES);
        while !shared.stop.load(Ordering::Acquire) {
            let mut heard = 0;
            for socket in sockets {
                got.clear();
                heard += slots.recv(socket.as_fd(), &mut buffer, ROOM, 0, &mut got).unwrap_or(0);
                for r in &got {
                    let bytes = &buffer[r.offset..r.offset + r.len];
                    let payload = match socket.port() {
                        500 => bytes,
                        _ => match bytes.strip_prefix(&MARKER) {
                            Some(ike) => ike,
                            None => {
                                // A keepalive is one byte.
                                let esp = u64::from(bytes.len() > 1);
                                shared.esp.fetch_add(esp, Ordering::Relaxed);
                                continue;
                            }
                        },
                    };
                    let (now, local) = (clock::now(), SocketAddr::new(r.local, socket.port()));
                    self.endpoint.call(now, |e| e.handle_datagram(now, local, r.remote, payload));
                    self.pump(now, sockets, shared);
                }
            }
            let now = clock::now();
            if shared.rekey.swap(false, Ordering::AcqRel) {
                self.rekey(now);
                self.pump(now, sockets, shared);
            }
            if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                self.endpoint.handle_timeout(now);
                self.pump(now, sockets, shared);
            }
            if heard == 0 {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                let mut both = sockets.each_ref().map(|s| PollFd::new(s, PollFlags::IN));
                // Ready, late or interrupted: the next receive shows.
                let _ = poll(&mut both, Some(&timeout));
            }
        }
    }

    /// Rekeys the CHILD_SA of every tunnel that has one.
    fn rekey(&mut self, now: Instant) {
        for child in (0..self.names).map(name) {
            // A child that does not exist is not rekeyed; the caller finds no new keys then.
            let _ = self.endpoint.rekey(now, &Target { child: Some(child), ..Target::default() }, false);
        }
    }

    /// Carries out what the endpoint asks for: events, requests, datagrams.
    fn pump(&mut self, now: Instant, sockets: &[UdpSocket; 2], shared: &Shared) {
        loop {
            if let Some(event) = self.endpoint.outputs().poll_event() {
                self.note(event, shared);
            } else if let Some((id, request)) = self.endpoint.outputs().poll_request() {
                self.serve(now, id, request);
            } else if let Some(t) = self.endpoint.outputs().poll_transmit() {
                if let Some(socket) = sockets.iter().find(|s| s.port() == t.local.port()) {
                    // IKE sends a lost datagram again.
                    let _ = socket.send_fragmentable(t.local.ip(), t.remote, 0, &t.payload);
                }
            } else {
                return;
            }
        }
    }

    fn serve(&mut self, now: Instant, id: RequestId, request: Request) {
        // No end has a certificate, so the time says nothing.
        let completion = request.compute(Time(0)).unwrap_or(match request {
            Request::Usage { .. } => Completion::Usage { last_use: None },
            Request::Packets { sas } => Completion::Packets(vec![0; sas.len()]),
            Request::Resolve { .. } => Completion::Addresses(Ok(Vec::new())),
            Request::Fetch { .. } => Completion::Fetched { answers: Vec::new(), took: Duration::ZERO },
            // Every tunnel names its address.
            _ => Completion::Route { local: None },
        });
        self.endpoint.call(now, |e| e.complete(now, id, completion));
    }

    fn note(&mut self, event: Event, shared: &Shared) {
        match event {
            Event::Sadb(Command::SaAdd(sa)) => self.installed(*sa, shared),
            Event::Sadb(Command::SaDelete(sa)) => {
                // The SA of a rekeyed CHILD_SA: its successor has the reqid.
                let Some((tunnel, halves)) = self.halves.get_mut(&sa.reqid) else { return };
                let half = if sa.direction == Direction::In { &mut halves.0 } else { &mut halves.1 };
                if half.take_if(|h| h.spi == sa.spi).is_some() {
                    forget(*tunnel, shared);
                }
            }
            Event::Log { level: Level::Error, text, .. } => problem(shared, text),
            _ => {}
        }
    }

    /// An SA has been agreed on: only one of a tunnel that we know, with its selectors, is sound.
    fn installed(&mut self, sa: SaAdd, shared: &Shared) {
        let ([local], [remote]) = (sa.local_ts.as_slice(), sa.remote_ts.as_slice()) else {
            return problem(shared, format!("an SA with SPI {} has several selectors", sa.spi));
        };
        let key = (sa.local.ip(), sa.remote.ip(), *local, *remote);
        let Some(&tunnel) = self.tunnels.get(&key) else {
            return problem(
                shared,
                format!("{} has agreed to {local} === {remote}, which no tunnel has", sa.remote),
            );
        };
        let (_, halves) = self.halves.entry(sa.reqid).or_insert((tunnel, (None, None)));
        match sa.direction {
            Direction::In => halves.0 = Some(sa),
            Direction::Out => halves.1 = Some(sa),
        }
        if let (Some(inbound), Some(outbound)) = &*halves {
            let mut state = shared.state();
            let keys = keys(tunnel, inbound, outbound);
            if let Some(slot) = state.keys.get_mut(tunnel)
                && slot.replace(keys).is_none()
            {
                shared.up.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn forget(tunnel: usize, shared: &Shared) {
    if shared.state().keys.get_mut(tunnel).and_then(Option::take).is_some() {
        shared.up.fetch_sub(1, Ordering::Relaxed);
    }
}

fn problem(shared: &Shared, text: String) {
    shared.state().problem.get_or_insert(text);
}

fn keys(tunnel: usize, inbound: &SaAdd, outbound: &SaAdd) -> TunnelKeys {
    let half = |sa: &SaAdd| SaKeys { spi: sa.spi.0, encr: sa.encr_key.clone(), integ: sa.integ_key.clone() };
    TunnelKeys {
        tunnel,
        local: outbound.local,
        remote: outbound.remote,
        udp_encap: outbound.udp_encap,
        suite: outbound.suite,
        inbound: half(inbound),
        outbound: half(outbound),
    }
}

/// The name of a tunnel's connection and of its child.
fn name(number: usize) -> String {
    format!("peer-{number}")
}

fn connection(number: usize, tunnel: &PeerTunnel, spec: &PeerSpec) -> Result<Connection, String> {
    let bad = |id: &str| format!("`{id}` of tunnel {number} is not an identity");
    if tunnel.local == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        return Err(format!("tunnel {number} has no address"));
    }
    Ok(Connection {
        name: name(number),
        local_addrs: vec![AddrSpec::Host(tunnel.local)],
        remote_addrs: vec![AddrSpec::Host(tunnel.remote)],
        local_port: None,
        remote_port: 500,
        proposals: vec![ike_proposal()],
        local_auth: Auth::Psk,
        remote_auth: Auth::Psk,
        local_rounds: Vec::new(),
        remote_rounds: Vec::new(),
        local_id: Some(Identity::parse(&tunnel.local_id).ok_or_else(|| bad(&tunnel.local_id))?),
        remote_id: IdPattern::parse(&tunnel.remote_id).ok_or_else(|| bad(&tunnel.remote_id))?,
        encap: spec.encap,
        mobike: false,
        dscp: 0,
        dpd_delay: Duration::ZERO,
        path_probe: false,
        keyingtries: 1,
        unique: Unique::Replace,
        childless: ironswan_keying::Childless::Allow,
        fragmentation: ironswan_keying::Fragmentation::Yes,
        ppk_id: None,
        ppk_required: false,
        ppk_intermediate: true,
        send_cert: ironswan_keying::SendCert::IfAsked,
        send_certreq: true,
        rekey_time: Duration::ZERO,
        reauth_time: Duration::ZERO,
        over_time: Duration::ZERO,
        rand_time: Duration::ZERO,
        children: vec![ChildConfig {
            name: name(number),
            proposals: vec![spec.esp.clone()],
            local_ts: vec![TsSpec::Fixed(tunnel.local_ts)],
            remote_ts: vec![TsSpec::Fixed(tunnel.remote_ts)],
            mode: Mode::Tunnel,
            ipcomp: false,
            options: SaOptions::default(),
            policies: false,
            kind: ChildKind::Protect,
            rekey_time: Duration::ZERO,
            life_time: Duration::ZERO,
            rand_time: Duration::ZERO,
            inactivity: Duration::ZERO,
            lifetime: Lifetime::default(),
            replay_window: 0,
            start_action: ChildAction::None,
            close_action: ChildAction::None,
            dpd_action: ChildAction::None,
            reqid: 0,
            priority: 0,
            guard: false,
        }],
    })
}

#[cfg(test)]
mod tests {
    use ironswan_wire::secret::Secret;
    use ironswan_wire::selector::AddrRange;

    use super::super::aes_gcm;
    use super::*;

    fn ts(last: u8) -> TrafficSelector {
        TrafficSelector {
            range: AddrRange::host([10, 0, 0, last].into()),
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
        }
    }

    /// Tunnels from one end's point of view; `other` turns them around.
    fn spec(other: bool, selectors: [u8; 2]) -> PeerSpec {
        let tunnels = (1..=3).map(|n| {
            let (a, b) = (IpAddr::from([192, 0, 2, n]), IpAddr::from([198, 51, 100, n]));
            let (ia, ib) = (format!("a{n}.example"), format!("b{n}.example"));
            let (ta, tb) = (ts(selectors[0] + n), ts(selectors[1] + n));
            let secret = Secret::new(format!("secret {n}").into_bytes());
            let (local, remote, local_id, remote_id, local_ts, remote_ts) =
                if other { (b, a, ib, ia, tb, ta) } else { (a, b, ia, ib, ta, tb) };
            PeerTunnel { local, remote, local_id, remote_id, secret, local_ts, remote_ts }
        });
        PeerSpec { tunnels: tunnels.collect(), initiate: !other, encap: true, esp: aes_gcm(256) }
    }

    /// Lets two nodes talk without sockets until neither has anything to say.
    fn talk(a: &mut Node, b: &mut Node, shared: [&Shared; 2]) {
        let now = clock::now();
        for _ in 0..100 {
            let mut quiet = true;
            for turn in [0, 1] {
                let (from, to) = if turn == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
                loop {
                    if let Some(event) = from.endpoint.outputs().poll_event() {
                        from.note(event, shared[turn]);
                    } else if let Some((id, request)) = from.endpoint.outputs().poll_request() {
                        from.serve(now, id, request);
                    } else {
                        break;
                    }
                }
                while let Some(t) = from.endpoint.outputs().poll_transmit() {
                    quiet = false;
                    let payload = t.payload.strip_prefix(&MARKER).unwrap_or(&t.payload);
                    to.endpoint.call(now, |e| e.handle_datagram(now, t.remote, t.local, payload));
                }
            }
            if quiet {
                return;
            }
        }
        panic!("they never end");
    }

    fn shared() -> Shared {
        let shared = Shared::default();
        shared.state().keys = vec![None; 3];
        shared
    }

    fn nodes(a: PeerSpec, b: PeerSpec) -> ([Node; 2], [Shared; 2]) {
        let (mut a, mut b) = (Node::new(a).expect("a node"), Node::new(b).expect("a node"));
        let both = [shared(), shared()];
        for n in 0..3 {
            a.endpoint.initiate(clock::now(), Some(&name(n)), Some(&name(n))).expect("begun");
        }
        talk(&mut a, &mut b, [&both[0], &both[1]]);
        ([a, b], both)
    }

    fn up(a: PeerSpec, b: PeerSpec) -> [Shared; 2] {
        nodes(a, b).1
    }

    #[test]
    fn after_a_rekeying_both_ends_hand_out_other_keys_that_are_the_same() {
        let ([mut a, mut b], [ours, theirs]) = nodes(spec(false, [10, 20]), spec(true, [10, 20]));
        let keys = |s: &Shared| s.state().keys.iter().flatten().cloned().collect::<Vec<_>>();
        let old = keys(&ours);
        // The end that did not initiate, as the tester of a gateway.
        b.rekey(clock::now());
        talk(&mut b, &mut a, [&theirs, &ours]);
        let (new, same) = (keys(&ours), keys(&theirs));
        assert_eq!((old.len(), new.len(), same.len()), (3, 3, 3));
        for ((old, new), same) in old.iter().zip(&new).zip(&same) {
            assert!(old.inbound != new.inbound && old.outbound != new.outbound);
            assert_eq!((&new.inbound, &new.outbound), (&same.outbound, &same.inbound));
        }
        assert_eq!((ours.up.load(Ordering::Relaxed), theirs.up.load(Ordering::Relaxed)), (3, 3));
    }

    #[test]
    fn both_ends_hand_out_the_same_keys_turned_around() {
        let [a, b] = up(spec(false, [10, 20]), spec(true, [10, 20]));
        assert_eq!((a.up.load(Ordering::Relaxed), b.up.load(Ordering::Relaxed)), (3, 3));
        let keys = |s: &Shared| s.state().keys.iter().flatten().cloned().collect::<Vec<_>>();
        let (ours, theirs) = (keys(&a), keys(&b));
        assert_eq!(ours.len(), 3);
        for (n, (x, y)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!((x.tunnel, y.tunnel), (n, n));
            assert_eq!((&x.inbound, &x.outbound), (&y.outbound, &y.inbound));
            assert_eq!((x.local.ip(), x.remote.ip()), (y.remote.ip(), y.local.ip()));
            assert!(x.udp_encap && x.inbound != x.outbound);
            // 256 bits and the salt.
            assert_eq!((x.outbound.encr.len(), x.outbound.integ.len()), (36, 0));
        }
        assert_eq!((a.state().problem.clone(), b.state().problem.clone()), (None, None));
    }

    #[test]
    fn another_secret_or_other_selectors_are_a_problem_and_no_tunnel() {
        let mut other = spec(true, [10, 20]);
        other.tunnels[1].secret = Secret::new(b"guessed".to_vec());
        let [a, b] = up(spec(false, [10, 20]), other);
        assert_eq!((a.up.load(Ordering::Relaxed), b.up.load(Ordering::Relaxed)), (2, 2));
        assert!(b.state().problem.is_some());
        let [a, _] = up(spec(false, [10, 20]), spec(true, [10, 40]));
        assert_eq!(a.up.load(Ordering::Relaxed), 0);
        assert!(a.state().problem.is_some());
    }

    #[test]
    fn two_tunnels_that_cannot_be_told_apart_are_refused() {
        let mut twice = spec(false, [10, 20]);
        twice.tunnels.push(twice.tunnels[0].clone());
        assert!(Node::new(twice).err().expect("refused").contains("another"));
    }
}
