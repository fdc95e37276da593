//! The tester of one gateway alone (RFC 2544 figure 2): the box on the outer link is the
//! laboratory's own. Its IKE agrees on a CHILD_SA with the gateway, then it seals what the gateway
//! is to open and opens what the gateway has sealed.
//!
//! ```text
//!   a ---- lan g1 wan ==== ESP ==== wan (g2: the tester)
//!   numbered packets, encrypting ─────────────>
//!   <───────────── numbered packets, decrypting
//! ```
//! The tester sends and receives on the link itself. The kernel of its box sees IKE alone.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use ironswan_wire::proposal::EspSuite;
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::driver::suite;
use super::rig::PORT;
use crate::dut::ironswan::random_secret;
use crate::dut::{Dut, Encap};
use crate::error::LabError;
use crate::interrupt;
use crate::load::esp::{Association, EspCounts, Inner, Opener, Outer, Sealed};
use crate::load::frame::{Burst, Frames, Route, Shape};
use crate::load::{self, BATCH, Counted, Sent};
use crate::peer::{self, Peer, PeerSpec, PeerTunnel, TunnelKeys};
use crate::process;
use crate::report::Warning;
use crate::topology::{Line, Node, Played, address};

/// The tester's end of the outer link.
pub(super) const DEVICE: &str = "wan";
const COMMAND: Duration = Duration::from_secs(5);
/// The gateway has said that the tunnel is up; the tester has to agree.
const AGREED: Duration = Duration::from_secs(5);
/// After a rekeying, until the gateway sends by the new SA alone.
const SETTLED: Duration = Duration::from_millis(300);

/// The tester at work on the box g2 of a line.
pub(super) struct Tester {
    /// None for a gateway that only forwards.
    tunnel: Option<Tunnel>,
    /// Through the gateway to the host behind it.
    route: Route,
}

struct Tunnel {
    peer: Peer,
    /// The CHILD_SA once it is there, and what it was made of.
    sas: Option<(TunnelKeys, Pair)>,
}

struct Pair {
    inbound: Arc<Association>,
    outbound: Arc<Association>,
}

/// Packets that came out of a gateway measured alone, on either side: how many were right, and what
/// was wrong with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Behaved {
    /// Packets that arrived, each once.
    pub arrived: u64,
    /// Result of opening their ESP, from the gateway to the tester.
    pub esp: EspCounts,
    /// Damaged inside, and come twice.
    pub corrupt: u64,
    pub duplicates: u64,
    /// More than had been sent.
    pub beyond: u64,
}

/// Why a system cannot be measured by the tester; `None` when it can.
pub(super) fn cannot(dut: &dyn Dut) -> Option<String> {
    let Some((suite, _)) = dut.ipsec() else {
        return match dut.name() {
            name if name == "plain" => None,
            name if name.starts_with("libreswan") => Some("it is not set up for the tester".into()),
            _ => Some("it does not speak IKEv2 and ESP".into()),
        };
    };
    let own = crate::dut::Suite::default().ike;
    if suite.ike != own {
        return Some(format!("the tester's IKE_SA is {own}"));
    }
    suite::by_name(&suite.esp).err().map(|_| format!("the tester has no {}", suite.esp))
}

/// The algorithms that the tester has to do for a system; none for one that only forwards.
pub(super) fn algorithms(dut: &dyn Dut) -> Result<Option<EspSuite>, LabError> {
    dut.ipsec().map(|(suite, _)| suite::by_name(&suite.esp)).transpose()
}

impl Tester {
    /// Makes the box ready, with IKE waiting for the gateway when `dut` speaks it; what the gateway
    /// has to be told of that.
    pub(super) fn prepare(line: &Line, dut: &dyn Dut) -> Result<(Self, Option<Played>), LabError> {
        // After the tester has seen a packet nobody else is to: no socket takes it, nobody is told
        // that there is none.
        let rules = format!(
            "table netdev ironlab_tester {{\nchain seen {{\n\
             type filter hook ingress device \"{DEVICE}\" priority 10; policy accept;\n\
             ip protocol esp drop\nudp dport 4500 @th,64,32 != 0 drop\nip daddr {} drop\n}}\n}}\n",
            address::NET_B
        );
        let argv = line.node(Node::G2).exec(&["nft", "-f", "/dev/stdin"]);
        process::run_with(line.journal(), &argv, &rules, COMMAND)?;
        let next_hop = line.ethernet(Node::G1, DEVICE)?;
        let route = load::route(next_hop, address::A, PORT)?;
        let Some((suite, encap)) = dut.ipsec() else { return Ok((Self { tunnel: None, route }, None)) };
        let secret = Secret::new(random_secret()?.into_bytes());
        let tunnel = PeerTunnel {
            local: ipv4(address::G2)?.into(),
            remote: ipv4(address::G1)?.into(),
            local_id: "g2.example".into(),
            remote_id: "g1.example".into(),
            secret: secret.clone(),
            local_ts: network(address::NET_B)?,
            remote_ts: network(address::NET_A)?,
        };
        let esp = peer::proposal(&suite::by_name(&suite.esp)?);
        let spec = PeerSpec { tunnels: vec![tunnel], initiate: false, encap: encap == Encap::Udp, esp };
        let peer = Peer::start(line.node(Node::G2), spec)?;
        // The second of the line's sites.
        let played = Played { site: 1, secret };
        Ok((Self { tunnel: Some(Tunnel { peer, sas: None }), route }, Some(played)))
    }

    /// Takes the keys of the CHILD_SA that is there now. To be called before every trial: the
    /// gateway may have made another. One with more than half of its sequence numbers used is
    /// rekeyed first.
    pub(super) fn agree(&mut self) -> Result<(), LabError> {
        let Some(tunnel) = &mut self.tunnel else { return Ok(()) };
        let up = tunnel.peer.wait_up(AGREED)?;
        let spent = |(_, p): &(_, Pair)| p.inbound.is_half_used() || p.outbound.is_half_used();
        // If the gateway does not want to rekey, the other half of the sequence numbers is left.
        if tunnel.sas.as_ref().is_some_and(spent) && tunnel.peer.rekey(AGREED)? {
            interrupt::pause(SETTLED)?;
        }
        let keys = tunnel.peer.keys().pop().filter(|_| up);
        let keys = keys.ok_or_else(|| LabError::Measurement("the tester has no CHILD_SA".into()))?;
        if tunnel.sas.as_ref().is_none_or(|(known, _)| *known != keys) {
            let outer = Outer { local: v4(keys.local)?, remote: v4(keys.remote)?, udp: keys.udp_encap };
            let half = |half| Association::new(&keys.suite, half, outer).map(Arc::new);
            let pair = Pair { inbound: half(&keys.inbound)?, outbound: half(&keys.outbound)? };
            // The same keys by another way: the gateway has another address or port.
            if let Some((known, old)) = &tunnel.sas {
                for (now, before, new, old) in [
                    (&keys.inbound, &known.inbound, &pair.inbound, &old.inbound),
                    (&keys.outbound, &known.outbound, &pair.outbound, &old.outbound),
                ] {
                    if now == before {
                        new.continues(old);
                    }
                }
            }
            tunnel.sas = Some((keys, pair));
        }
        Ok(())
    }

    fn pair(&self) -> Option<&Pair> {
        self.tunnel.as_ref()?.sas.as_ref().map(|(_, pair)| pair)
    }

    /// Source of the packets that go into the gateway from outside.
    pub(super) fn frames(&self, shape: Shape) -> Box<dyn Burst> {
        match self.pair() {
            Some(pair) => Box::new(Sealed::new(pair.outbound.clone(), shape, self.route, BATCH)),
            None => Box::new(Frames::new(shape, self.route, BATCH)),
        }
    }

    /// Receiver of the packets that come out of the gateway, bound along `route`.
    pub(super) fn opener(&self, shape: Shape, route: &Route) -> Opener {
        let inner = Inner { destination: route.destination, port: route.port };
        Opener::new(self.pair().map(|pair| pair.inbound.clone()), inner, shape)
    }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, LabError> {
    text.parse().map_err(|_| LabError::Measurement(format!("{text} is not an IPv4 address")))
}

fn v4(address: SocketAddr) -> Result<SocketAddrV4, LabError> {
    match address {
        SocketAddr::V4(v4) => Ok(v4),
        SocketAddr::V6(v6) => Err(LabError::Measurement(format!("the tester has no IPv6: {v6}"))),
    }
}

fn network(prefix: &str) -> Result<TrafficSelector, LabError> {
    let range = prefix
        .split_once('/')
        .and_then(|(address, len)| AddrRange::prefix(address.parse().ok()?, len.parse().ok()?));
    range
        .map(TrafficSelector::addresses)
        .ok_or_else(|| LabError::Measurement(format!("{prefix} is no network")))
}

impl Behaved {
    /// Adds what one direction of a trial came to.
    pub(super) fn add(&mut self, sent: &Sent, counted: &Counted) {
        let esp = counted.esp.unwrap_or_default();
        self.arrived += counted.arrived();
        self.corrupt += counted.received.corrupt;
        self.duplicates += counted.received.duplicates;
        self.beyond += counted.arrived().saturating_sub(sent.sent);
        self.esp.unopened += esp.unopened;
        self.esp.repeated += esp.repeated;
        self.esp.refused += esp.refused;
        self.esp.foreign += esp.foreign;
        self.esp.reordered += esp.reordered;
        self.esp.missing += esp.missing;
    }

    /// Packets that no gateway should let out.
    pub(super) fn wrong(&self) -> u64 {
        self.esp.repeated + self.esp.refused + self.esp.foreign + self.corrupt + self.duplicates + self.beyond
    }

    /// Warns when a gateway let such packets out.
    pub(super) fn doubt(&self, dut: &str) -> Option<Warning> {
        (self.wrong() > 0).then(|| Warning::WrongPackets {
            dut: dut.into(),
            packets: self.wrong(),
            what: self.to_string(),
        })
    }
}

impl fmt::Display for Behaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EspCounts { unopened, repeated, refused, foreign, reordered, missing } = self.esp;
        write!(
            f,
            "{} arrived ({unopened} of them counted by their ESP number and not opened); ESP: {missing} numbers never came, \
             {reordered} came late, {repeated} repeated, {refused} not authentic, {foreign} with another SPI; inside: {} \
             damaged, {} twice, {} more than were sent",
            self.arrived, self.corrupt, self.duplicates, self.beyond
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_packets_of_any_kind_are_a_doubt_and_late_or_lost_ones_are_none() {
        let esp = |esp| Behaved { esp, arrived: 9, ..Behaved::default() };
        let none = EspCounts { reordered: 3, missing: 4, unopened: 5, ..EspCounts::default() };
        assert_eq!(esp(none).doubt("x"), None);
        for (wrong, said) in [
            (esp(EspCounts { refused: 2, ..none }), "2 not authentic"),
            (esp(EspCounts { repeated: 2, ..none }), "2 repeated"),
            (esp(EspCounts { foreign: 2, ..none }), "2 with another SPI"),
            (Behaved { corrupt: 2, ..Behaved::default() }, "2 damaged"),
            (Behaved { duplicates: 2, ..Behaved::default() }, "2 twice"),
            (Behaved { beyond: 2, ..Behaved::default() }, "2 more than were sent"),
        ] {
            let doubt = wrong.doubt("x").expect(said);
            assert_eq!(doubt.kind(), "wrong-packets");
            let text = doubt.text();
            assert!(text.starts_with("x: 2 packets came out") && text.contains(said), "{text}");
        }
    }
}
