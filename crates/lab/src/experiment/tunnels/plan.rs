//! What `lab tunnels` measures: its options, and the systems and numbers of tunnels that follow.

use std::path::PathBuf;
use std::time::Duration;

use super::config::MOST;
use super::credentials::TunnelAuth;
use super::gateways::System;
use crate::dut::{self, Encap, ironswan};
use crate::error::LabError;
use crate::experiment::campaign::{Common, useful};
use crate::report::Warning;

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct TunnelsOptions {
    /// Options that all experiments have. Systems: `ironswan`, `strongswan-libipsec`.
    pub common: Common,
    /// Numbers of tunnels between two gateways; the experiment's own choice when empty.
    pub tunnels: Vec<u32>,
    /// Simulated peers of one gateway, 0 for none; the experiment's own choice when absent.
    pub simulated: Option<u32>,
    /// How the gateways authenticate each other; by pre-shared keys when empty. Each way is
    /// measured in turns with the others.
    pub auths: Vec<TunnelAuth>,
    /// A capture whose SPIs go through the key caches, too.
    pub trace: Option<PathBuf>,
}

/// With certificates the initiator has one identity in all tunnels, and a gateway lets one identity
/// have at most so many IKE_SAs by default (`ike_sa_max_per_id`).
pub(super) const CERTIFICATES_MOST: u32 = 1_000;

/// One system with so many tunnels, by one authentication.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) system: System,
    pub(super) tunnels: u32,
    pub(super) auth: TunnelAuth,
}

impl Cell {
    /// Name in tables: that of the system, with the authentication when it is no pre-shared key.
    pub(super) fn dut(&self) -> String {
        match self.auth {
            TunnelAuth::Psk => self.system.name().into(),
            auth => format!("{}-{auth}", self.system.name()),
        }
    }
}

/// The measurements of a run: systems, numbers of tunnels, loads.
pub(super) struct Plan {
    pub(super) systems: Vec<System>,
    pub(super) tunnels: Vec<u32>,
    /// strongSwan is measured up to here: 1,000 take it half a minute, 2,000 as long until they are
    /// up alone, and the time grows with the square.
    pub(super) strongswan_most: u32,
    pub(super) auths: Vec<TunnelAuth>,
    pub(super) simulated: u32,
    pub(super) repeats: u32,
    pub(super) window: Duration,
    pub(super) dead: Duration,
    pub(super) key: String,
}

impl Plan {
    pub(super) fn new(o: &TunnelsOptions, doubts: &mut Vec<Warning>) -> Result<Self, LabError> {
        let mut tunnels = o.tunnels.clone();
        if tunnels.is_empty() {
            tunnels = o.common.by_care(vec![1, 10, 100, 1_000, 10_000], vec![1, 10, 100, 1_000], vec![3, 20]);
        }
        let simulated = o.simulated.unwrap_or(o.common.by_care(100_000, 1_000, 20));
        if tunnels.iter().chain([&simulated]).any(|n| *n > MOST) || tunnels.contains(&0) {
            return Err(LabError::Usage(format!("tunnels are counted from 1 to {MOST}")));
        }
        let mut systems = Vec::new();
        let names: Vec<&str> = match o.common.duts.as_slice() {
            [] => o.common.by_care(
                vec!["ironswan", dut::LIBIPSEC],
                vec!["ironswan", dut::LIBIPSEC],
                vec!["ironswan"],
            ),
            given => given.iter().map(String::as_str).collect(),
        };
        for name in names {
            let found = dut::by_name(name, &[Encap::Udp], &o.common.dut_options)?;
            let lacks = found.first().map(|d| d.lacks()).unwrap_or_default();
            match (name, lacks.first()) {
                (dut::LIBIPSEC, Some(lack)) if o.common.duts.is_empty() => {
                    doubts.push(Warning::NotInstalled {
                        dut: name.into(),
                        lack: lack.lack.clone(),
                        action: lack.action.clone(),
                    })
                }
                (_, Some(_)) => return Err(LabError::Unfit(lacks)),
                ("ironswan", None) => {
                    let program = o.common.dut_options.gateway().unwrap_or_default();
                    systems.push(System::IronSwan(program.to_string_lossy().into_owned()));
                }
                (dut::LIBIPSEC, None) => systems.push(System::StrongSwan),
                _ => {
                    return Err(LabError::Usage(format!(
                        "`{name}` has no IKE; the systems of this experiment are ironswan and {}",
                        dut::LIBIPSEC
                    )));
                }
            }
        }
        let window = o.common.duration.unwrap_or(o.common.by_care(
            Duration::from_secs(3),
            Duration::from_millis(1_000),
            Duration::from_millis(200),
        ));
        // The tunnel of every packet is kept.
        useful("--duration", window, 0.05..=60.0)?;
        Ok(Self {
            systems,
            tunnels,
            strongswan_most: o.common.by_care(1_000, 100, 100),
            auths: if o.auths.is_empty() { vec![TunnelAuth::Psk] } else { o.auths.clone() },
            simulated,
            repeats: o.common.repeats.unwrap_or(1),
            window,
            dead: o.common.by_care(
                Duration::from_secs(40),
                Duration::from_secs(5),
                Duration::from_millis(500),
            ),
            key: ironswan::random_secret()?,
        })
    }

    /// Which systems with how many tunnels, and by which authentication.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for tunnels in &self.tunnels {
            for auth in &self.auths {
                let all =
                    self.systems.iter().map(|s| Cell { system: s.clone(), tunnels: *tunnels, auth: *auth });
                cells.extend(all.filter(|cell| self.fits(cell)));
            }
        }
        cells
    }

    fn fits(&self, cell: &Cell) -> bool {
        (cell.system != System::StrongSwan || cell.tunnels <= self.strongswan_most)
            && (cell.auth == TunnelAuth::Psk || cell.tunnels <= CERTIFICATES_MOST)
    }

    /// The largest number of tunnels of each system: with so many, all that get there are asked for
    /// peers that are gone.
    pub(super) fn most(&self) -> Vec<u32> {
        let cells = self.cells();
        let of = |s: &System| cells.iter().filter(|c| c.system == *s).map(|c| c.tunnels).max();
        self.systems.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_gone_at_the_largest_number_of_each_system() {
        let plan = |systems: &[System], tunnels: &[u32]| Plan {
            systems: systems.to_vec(),
            tunnels: tunnels.to_vec(),
            strongswan_most: 1_000,
            auths: vec![TunnelAuth::Psk],
            simulated: 0,
            repeats: 1,
            window: Duration::ZERO,
            dead: Duration::ZERO,
            key: String::new(),
        };
        let both = [System::IronSwan(String::new()), System::StrongSwan];
        assert_eq!(plan(&both, &[10, 1_000, 10_000]).most(), [10_000, 1_000]);
        assert_eq!(plan(&both[..1], &[10, 1_000, 10_000]).most(), [10_000]);
        // A number of tunnels that takes strongSwan too long is left out for its peers, too.
        assert_eq!(plan(&both, &[5_000]).most(), [5_000]);
        // So is one that is more than a gateway has for one identity.
        let auths = vec![TunnelAuth::Psk, TunnelAuth::Rsa];
        let both = Plan { auths, ..plan(&both[..1], &[10, 5_000]) };
        let names: Vec<_> = both.cells().iter().map(|c| (c.dut(), c.tunnels)).collect();
        let named = |dut: &str, n| (dut.to_owned(), n);
        assert_eq!(names, [named("ironswan", 10), named("ironswan-rsa", 10), named("ironswan", 5_000)]);
    }
}
