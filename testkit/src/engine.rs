//! A model of the packet engine: a SAD and an SPD that apply `sadb` commands and refuse what no engine could do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ironswan_wire::sadb::{Action, Command, Direction, PolicyAdd, SaAdd, SaRef, Spi};

fn is(out: &SaAdd, name: &SaRef) -> bool {
    (out.spi, out.reqid, out.remote.ip()) == (name.spi, name.reqid, name.remote)
}

/// The model.
#[derive(Default, Debug)]
pub struct Engine {
    /// Inbound SAs by SPI.
    pub inbound: BTreeMap<Spi, SaAdd>,
    /// Outbound SAs, the newest last.
    pub outbound: Vec<SaAdd>,
    /// Installed policies.
    pub policies: Vec<PolicyAdd>,
    /// Inbound SPIs that have raised FirstUse.
    pub used: Vec<Spi>,
    /// The highest sequence number that has been opened, by inbound SPI.
    pub newest: BTreeMap<Spi, u64>,
    /// Sources that have been told of, until an SA is moved.
    pub told: BTreeSet<(Spi, SocketAddr)>,
    /// How often something was added.
    pub added: usize,
}

impl Engine {
    /// Applies a command.
    ///
    /// # Panics
    /// When it adds what is there or removes what is not: an endpoint that does so has lost count.
    pub fn apply(&mut self, command: &Command) {
        match command {
            Command::SaAdd(sa) => {
                self.added += 1;
                assert!(sa.spi.0 > 255, "SPI {} is reserved", sa.spi);
                assert!(!sa.encr_key.is_empty(), "an SA without key");
                assert!(!sa.local_ts.is_empty() && !sa.remote_ts.is_empty(), "an SA without selectors");
                match sa.direction {
                    Direction::In => {
                        let old = self.inbound.insert(sa.spi, (**sa).clone());
                        assert!(old.is_none(), "inbound SPI {} twice", sa.spi);
                    }
                    Direction::Out => {
                        let name = |o: &SaAdd| (o.spi, o.reqid, o.remote.ip());
                        let twice = |o: &SaAdd| name(o) == name(sa);
                        assert!(!self.outbound.iter().any(twice), "outbound SPI {} twice", sa.spi);
                        self.outbound.push((**sa).clone());
                    }
                }
            }
            Command::SaUpdate { sa, local, remote, udp_encap } => {
                let found = match sa.direction {
                    Direction::In => self.inbound.get_mut(&sa.spi),
                    Direction::Out => self.outbound.iter_mut().find(|o| is(o, sa)),
                };
                let found = found.expect("an update of an SA that is there");
                self.told.retain(|(spi, _)| *spi != sa.spi);
                (found.local, found.remote, found.udp_encap) = (*local, *remote, *udp_encap);
            }
            Command::SaPathMtu { .. } => panic!("path MTUs are for whoever asks the kernel"),
            Command::SaDelete(sa) => match sa.direction {
                Direction::In => {
                    self.inbound.remove(&sa.spi).expect("a delete of an inbound SA that is there");
                }
                Direction::Out => {
                    let at = self
                        .outbound
                        .iter()
                        .position(|o| is(o, sa))
                        .expect("a delete of an outbound SA that is there");
                    self.outbound.remove(at);
                }
            },
            Command::PolicyAdd(p) => {
                let same = |q: &PolicyAdd| (q.action, q.local, q.remote) == (p.action, p.local, p.remote);
                assert!(!self.policies.iter().any(same), "policy {p:?} twice");
                self.policies.push(p.clone());
            }
            Command::PolicyDelete(p) => {
                let at =
                    self.policies.iter().position(|q| q == p).expect("a delete of a policy that is there");
                self.policies.remove(at);
            }
        }
    }

    /// The SA that traffic of the first protecting policy leaves through.
    pub fn sending(&self) -> Option<&SaAdd> {
        let reqid = self.policies.iter().find_map(|p| match p.action {
            Action::Protect(r) => Some(r),
            _ => None,
        })?;
        self.outbound.iter().rev().find(|o| o.reqid == reqid)
    }
}
