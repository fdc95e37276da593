//! One gateway, as for road warriors, and its peers simulated in one process.

use std::time::Duration;

use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::config::{Config, HUB, OUTER, behind, identity, outer, secret};
use super::gateways::{self, Ground, System, watch};
use super::plan::Plan;
use super::{bring_up, of};
use crate::dut;
use crate::error::LabError;
use crate::experiment::beside::Beside;
use crate::experiment::campaign::{Campaign, Common};
use crate::machine;
use crate::peer::{Peer, PeerSpec, PeerTunnel, aes_gcm};
use crate::report::Warning;
use crate::topology::{Node, Owner};

/// Memory for a simulated peer and its tunnel's end at the gateway, KiB, with room to spare.
const PEER_KIB: u64 = 64;

/// One gateway and simulated peers.
pub(super) fn simulated(
    c: &mut Campaign,
    owner: &Owner,
    o: &Common,
    plan: &Plan,
    program: &str,
) -> Result<(), LabError> {
    let n = plan.simulated;
    let needed = u64::from(n) * PEER_KIB;
    let available = machine::available_kib();
    if available.is_some_and(|kib| kib < needed) {
        let what = format!(
            "{n} simulated peers: they need {} MiB of memory and {} MiB are free",
            needed / 1024,
            available.unwrap_or(0) / 1024
        );
        c.doubt(Warning::LeftOut { what });
        return Ok(());
    }
    c.says(&format!("ironswan, {n} simulated peers"))?;
    let began = c.elapsed();
    let suite = &o.dut_options.suites[0];
    if *suite != dut::Suite::default() {
        c.doubt(Warning::LeftOut { what: "simulated peers: they have the default suite only".into() });
        return Ok(());
    }
    let config = Config {
        tunnels: n,
        suite,
        key: &plan.key,
        credentials: None,
        initiator: 0,
        encap: true,
        hub: true,
        more: "",
        rekey: None,
    };
    let mut ground = Ground::new(owner, &System::IronSwan(program.to_owned()), &config)?;
    // All addresses of the range are the peers'.
    ground.line.ip(Node::G2, &["route", "add", "local", OUTER[1], "dev", "lo"])?;
    let hub: std::net::Ipv4Addr =
        HUB[0].parse().map_err(|_| LabError::Measurement("the hub has no address".into()))?;
    let network = |ip: std::net::Ipv4Addr, len| {
        AddrRange::prefix(ip.into(), len)
            .map(TrafficSelector::addresses)
            .ok_or_else(|| LabError::Measurement(format!("{ip}/{len} is no network")))
    };
    let tunnel = |t| {
        Ok(PeerTunnel {
            local: outer(1, t).into(),
            remote: hub.into(),
            local_id: identity(1, t),
            remote_id: identity(0, t),
            secret: Secret::new(secret(&plan.key, t).into_bytes()),
            local_ts: network(behind(1, t), 30)?,
            remote_ts: network([10, 1, 0, 0].into(), 24)?,
        })
    };
    let tunnels = (0..n).map(tunnel).collect::<Result<_, LabError>>()?;
    let spec = PeerSpec { tunnels, initiate: false, encap: true, esp: aes_gcm(128) };
    let peers = Peer::start(ground.netns(1), spec)?;
    let (mut g1, _) = ground.start(0)?;
    let beside = Beside::start(c, &ground.line, &[])?;
    gateways::wait(&mut g1, |said| said.begun > 0)?;
    let at_most = Duration::from_secs(30) + Duration::from_millis(5) * n;
    let loaded = g1.kib();
    let up = |_: &[gateways::Said]| Ok(peers.up() as u64);
    let seen = watch(&mut [&mut g1], n.into(), at_most, up)?;
    let kib = (g1.kib() - loaded) / f64::from(n);
    let mut more = vec![("kib_loaded", loaded), ("kib_per_tunnel", kib)];
    more.extend(beside.stop(&ground.line)?);
    let what = of("simulated peers", "ironswan", n);
    if !bring_up(c, &seen, what, n, 0, began, &more) {
        let reached = seen.moments.last().map_or(0, |m| m.up);
        c.doubt(Warning::NotAllUp {
            dut: "ironswan with simulated peers".into(),
            tunnels: n.into(),
            up: reached,
            seconds: at_most.as_secs_f64(),
        });
    }
    if let Err(e) = peers.sound() {
        c.doubt(Warning::PeerTrouble { why: e.to_string() });
    }
    // The gateway says that all are up, too, or what the peers have is not what it has.
    match gateways::wait(&mut g1, |said| said.established >= peers.up() as u64) {
        // A failure here does not spoil the measurements before, so it is a warning.
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        Err(e) => {
            c.doubt(Warning::PeerTrouble { why: e.to_string() });
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}
