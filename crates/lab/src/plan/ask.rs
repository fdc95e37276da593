//! A question to the planner: suite, packets, tunnels, share and safety. Pure.

use super::mix::Mix;
use super::model::{Model, Path};
use crate::error::LabError;

/// A question to the planner.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Suite of ESP.
    pub suite: String,
    /// How ESP is carried.
    pub path: Path,
    /// The packets.
    pub mix: Mix,
    /// Tunnels.
    pub tunnels: u32,
    /// Seconds between two rekeyings of a tunnel.
    pub rekey: f64,
    /// All tunnels come up within so many seconds.
    pub storm: Option<f64>,
    /// Share of the processors that a firewall and all else leave.
    pub share: f64,
    /// Safety factor: the load is multiplied by it.
    pub safety: f64,
    /// Processors; those of the calibrated machine when absent.
    pub cores: Option<f64>,
    /// Clock, GHz; that of the calibrated machine when absent.
    pub ghz: Option<f64>,
    /// Outer packets are IPv6.
    pub ipv6: bool,
    /// Packets that come at once.
    pub burst: u32,
    /// Flows; as many as the calibration sent when absent.
    pub flows: Option<u32>,
    /// Seconds between two NAT keepalives of a peer (RFC 3948); absent without a NAT.
    pub keepalive: Option<f64>,
}

impl Ask {
    /// A suite and a mix on a path, with the usual rest: one tunnel, rekeyed every hour, half of
    /// the processors, safety 1.5.
    pub fn of(suite: &str, path: Path, mix: Mix) -> Self {
        let suite = suite.to_string();
        Self {
            suite,
            path,
            mix,
            tunnels: 1,
            rekey: 3_600.0,
            storm: None,
            share: 0.5,
            safety: 1.5,
            cores: None,
            ghz: None,
            ipv6: false,
            burst: 1,
            flows: None,
            keepalive: None,
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("--share is the part of the processors that is left for IPsec: above 0, at most 1");
        }
        if !(1.0..=100.0).contains(&self.safety) {
            return wrong("--safety is a factor from 1 (none) to 100");
        }
        if !(1..=1_000_000).contains(&self.tunnels) {
            return wrong(
                "--tunnels (or --sites and --users together) is 1 to 1,000,000: divide more than that among several gateways",
            );
        }
        if !(1..=65_536).contains(&self.burst) {
            return wrong("--burst is the number of packets that come at once: 1 (evenly spaced) to 65,536");
        }
        if self.flows == Some(0) {
            return wrong(
                "--flows is a number of flows from 1 on; leave it out for as many as were measured",
            );
        }
        if !(self.rekey >= 1.0 && self.rekey.is_finite()) {
            return wrong("--rekey is at least a second");
        }
        if self.storm.is_some_and(|s| !(s > 0.0 && s.is_finite())) {
            return wrong("--setup-storm is a number of seconds above 0");
        }
        if self.cores.is_some_and(|c| !(c > 0.0 && c <= 100_000.0)) {
            return wrong("--cores is a number above 0");
        }
        if self.ghz.is_some_and(|g| !(0.1..=20.0).contains(&g)) {
            return wrong("--ghz is a clock from 0.1 to 20 GHz");
        }
        if self.keepalive.is_some_and(|s| !(1.0..=86_400.0).contains(&s)) {
            return wrong("--keepalive is a time from 1s to 1d; 20s is usual");
        }
        if self.keepalive.is_some() && self.path == Path::Raw {
            return wrong(
                "--keepalive: a NAT is passed by ESP in UDP alone; leave --encap no or --keepalive out",
            );
        }
        Ok(())
    }

    /// Nanoseconds here are so many there, by the clock alone.
    pub(super) fn slower(&self, model: &Model) -> f64 {
        match (self.ghz, model.machine.mhz) {
            (Some(there), Some(here)) => here / 1e3 / there,
            _ => 1.0,
        }
    }
}

/// Bits per second on the link, Ethernet framing and gaps included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Sent by the gateway: sealed.
    pub out: f64,
    /// Received by it: opened.
    pub into: f64,
}

impl Demand {
    /// A link that is full both ways.
    pub fn full(bits: f64) -> Self {
        Self { out: bits, into: bits }
    }
}
