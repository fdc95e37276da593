//! Measures the cost of IKE: two endpoints in memory negotiate with each other, and the processor
//! time of both is taken. No socket, no route, no packet engine: what a daemon does besides is not
//! in it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Seeded;
use ironswan_ike::event::{Completion, Event, Request, Time, Transmit};
use ironswan_ike::{Endpoint, Options};
use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Connection, Joined, Limits, SharedKey, Target,
    TsSpec, Unique,
};
use ironswan_wire::iana::{EncrId, EsnId, KeId, PrfId, ProtocolId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::{Lifetime, Mode, SaOptions};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::plan::model::Handshake;

const NAMES: [&str; 2] = ["g1.example", "g2.example"];
/// Messages of one exchange, both ways, are far fewer.
const TURNS: usize = 64;

/// Measures, for about `time`.
pub(super) fn measure(time: Duration) -> Result<Handshake, LabError> {
    let (mut setup, mut rekey) = (Vec::new(), Vec::new());
    let end = clock::now() + time;
    while setup.len() < 5 || clock::now() < end {
        interrupt::check()?;
        let mut pair = Pair::new(setup.len() as u64)?;
        let began = clock::of_this_thread();
        pair.up()?;
        setup.push((clock::of_this_thread() - began).as_secs_f64() * 1e6 / 2.0);
        let began = clock::of_this_thread();
        pair.rekey()?;
        rekey.push((clock::of_this_thread() - began).as_secs_f64() * 1e6 / 2.0);
    }
    let median = |values: &[f64]| {
        crate::stats::median(values).ok_or_else(|| LabError::Measurement("no handshake was measured".into()))
    };
    Ok(Handshake {
        what: "PSK, AES-128-GCM, Curve25519; rekeying of a CHILD_SA with Curve25519".into(),
        setup_us: median(&setup)?,
        rekey_us: median(&rekey)?,
        samples: setup.len(),
    })
}

/// Two gateways, and datagrams under way.
struct Pair {
    ends: [Joined<Endpoint>; 2],
    now: Instant,
    done: usize,
}

impl Pair {
    fn new(seed: u64) -> Result<Self, LabError> {
        let now = clock::now();
        let end = |n: usize| -> Result<Joined<Endpoint>, LabError> {
            let rng = Box::new(Seeded::new(seed * 2 + n as u64));
            let times = Box::new(Seeded::new(seed * 2 + n as u64 + 1_000));
            let endpoint = |policy| Endpoint::new(policy, Limits::default(), rng, Options::default());
            let mut end = Joined::new(Limits::default(), times, endpoint);
            let owners = NAMES.iter().map(|name| pattern(name)).collect::<Result<_, _>>()?;
            let secret = Secret::from("the laboratory's own, of no worth".as_bytes());
            end.load_shared(SharedKey { name: "ike-1".into(), secret, owners });
            end.load_connection(now, connection(n)?);
            Ok(end)
        };
        let mut pair = Self { ends: [end(0)?, end(1)?], now, done: 0 };
        pair.run()?;
        Ok(pair)
    }

    fn up(&mut self) -> Result<(), LabError> {
        self.ends[0].initiate(self.now, Some("net"), Some("net")).map_err(|e| failed(&format!("{e:?}")))?;
        self.finish()
    }

    fn rekey(&mut self) -> Result<(), LabError> {
        let target = Target { child: Some("net".into()), ..Target::default() };
        self.ends[0].rekey(self.now, &target, false).map_err(|e| failed(&format!("{e:?}")))?;
        self.finish()
    }

    fn finish(&mut self) -> Result<(), LabError> {
        let before = self.done;
        self.run()?;
        if self.done == before { Err(failed("it did not end")) } else { Ok(()) }
    }

    /// Carries datagrams until both are quiet.
    fn run(&mut self) -> Result<(), LabError> {
        for _ in 0..TURNS {
            let mut quiet = true;
            for n in 0..2 {
                for t in self.drain(n)? {
                    quiet = false;
                    let now = self.now;
                    self.ends[1 - n].call(now, |end| end.handle_datagram(now, t.remote, t.local, &t.payload));
                }
            }
            if quiet {
                return Ok(());
            }
        }
        Err(failed("it does not come to an end"))
    }

    /// Does what one wants done; returns what it wants sent.
    fn drain(&mut self, n: usize) -> Result<Vec<Transmit>, LabError> {
        let (end, now) = (&mut self.ends[n], self.now);
        let mut sent = Vec::new();
        loop {
            let mut busy = false;
            while let Some(event) = end.outputs().poll_event() {
                busy = true;
                if let Event::Done { result, .. } = event {
                    result.map_err(|why| failed(&why.to_string()))?;
                    self.done += 1;
                }
            }
            while let Some((id, request)) = end.outputs().poll_request() {
                busy = true;
                let answer = answer(request, n)?;
                end.call(now, |e| e.complete(now, id, answer));
            }
            if !busy {
                while let Some(t) = end.outputs().poll_transmit() {
                    sent.push(t);
                }
                return Ok(sent);
            }
        }
    }
}

fn failed(why: &str) -> LabError {
    LabError::Measurement(format!("a negotiation in memory failed: {why}"))
}

fn answer(request: Request, n: usize) -> Result<Completion, LabError> {
    // No end has a certificate, so the time says nothing.
    match (request.compute(Time(0)), request) {
        (Some(Completion::Failed { why }), _) => Err(failed(&why.to_string())),
        (Some(answer), _) => Ok(answer),
        (None, Request::Usage { .. }) => Ok(Completion::Usage { last_use: None }),
        (None, Request::Fetch { .. }) => Err(failed("no end has a certificate, and one asks for its status")),
        (None, Request::Resolve { .. }) => Ok(Completion::Addresses(Ok(Vec::new()))),
        (None, _) => Ok(Completion::Route { local: Some(address(n)) }),
    }
}

fn address(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1 + n as u8))
}

fn pattern(name: &str) -> Result<IdPattern, LabError> {
    IdPattern::parse(name).ok_or_else(|| failed(&format!("{name} is not an identity")))
}

fn network(n: usize) -> Result<TsSpec, LabError> {
    let net = IpAddr::V4(Ipv4Addr::new(10, 1 + n as u8, 0, 0));
    let range = AddrRange::prefix(net, 24).ok_or_else(|| failed("10.1.0.0/24 is not a prefix"))?;
    Ok(TsSpec::Fixed(TrafficSelector::addresses(range)))
}

fn connection(n: usize) -> Result<Connection, LabError> {
    let gcm = Transform::Encr(EncrId::AES_GCM_16, Some(128));
    let ke = Transform::Ke(KeId::CURVE_25519);
    let ike = vec![gcm, Transform::Prf(PrfId::HMAC_SHA2_256), ke];
    let esp = vec![gcm, ke, Transform::Esn(EsnId::NO_ESN)];
    let proposal = |protocol, transforms| Proposal { number: 1, protocol, spi: Vec::new(), transforms };
    let never = Duration::ZERO;
    let child = ChildConfig {
        name: "net".into(),
        proposals: vec![proposal(ProtocolId::ESP, esp)],
        local_ts: vec![network(n)?],
        remote_ts: vec![network(1 - n)?],
        mode: Mode::Tunnel,
        ipcomp: false,
        options: SaOptions::default(),
        policies: true,
        kind: ChildKind::Protect,
        rekey_time: never,
        life_time: never,
        rand_time: never,
        inactivity: never,
        lifetime: Lifetime::default(),
        replay_window: 32,
        start_action: ChildAction::None,
        close_action: ChildAction::None,
        dpd_action: ChildAction::None,
        reqid: 0,
        priority: 0,
        guard: false,
    };
    Ok(Connection {
        name: "net".into(),
        local_addrs: vec![AddrSpec::Host(address(n))],
        remote_addrs: vec![AddrSpec::Host(address(1 - n))],
        local_port: None,
        remote_port: 500,
        proposals: vec![proposal(ProtocolId::IKE, ike)],
        local_auth: Auth::Psk,
        remote_auth: Auth::Psk,
        local_rounds: Vec::new(),
        remote_rounds: Vec::new(),
        local_id: Identity::parse(NAMES[n]),
        remote_id: pattern(NAMES[1 - n])?,
        encap: false,
        mobike: false,
        dscp: 0,
        dpd_delay: never,
        keyingtries: 1,
        unique: Unique::No,
        childless: ironswan_keying::Childless::Allow,
        fragmentation: ironswan_keying::Fragmentation::Yes,
        ppk_id: None,
        ppk_required: false,
        ppk_intermediate: true,
        send_cert: ironswan_keying::SendCert::IfAsked,
        send_certreq: true,
        rekey_time: never,
        reauth_time: never,
        over_time: never,
        rand_time: never,
        children: vec![child],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_endpoints_in_memory_come_up_and_rekey() {
        let h = measure(Duration::ZERO).expect("measured");
        assert!(h.samples >= 5 && h.setup_us > 1.0 && h.rekey_us > 1.0, "{h:?}");
    }
}
