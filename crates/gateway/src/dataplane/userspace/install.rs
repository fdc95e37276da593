//! Applies `wire::sadb` messages to the packet engine, and sets for traffic that is to be protected
//! the kernel's routes to the device.
//!
//! For each remote prefix of a PROTECT or DISCARD policy in the engine there is a route in table
//! 220 to the TUN device. Its source is an address of this machine inside the local selector, if
//! there is one. Its MTU is the path MTU less exactly the bytes that ESP or AH adds; with `copy_df
//! = no` it is 1,500 at least, since the outer packets may be fragmented. Routes are counted: two
//! policies to one prefix share one, and it goes with the last of them. Below each stands an
//! unreachable one, which belongs to [`SharedGuard`], as does everything that does not depend on
//! SAs.
//!
//! The engine is told the same path MTUs: it makes packets fit that the kernel has not made fit,
//! and clamps the MSS of TCP that is forwarded.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `path` | path MTUs of outbound SAs |
//! | `routes` | routes to the device |

mod path;
mod routes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_io::route::{Destination, Route};
use ironswan_ipsec::mtu::Encapsulation;
use ironswan_ipsec::{ApplyError, Engine};
use ironswan_wire::sadb::{Command, Direction, ReqId, SaAdd};

use self::path::Outside;
use self::routes::Routed;
use super::paths::Paths;
use crate::guard::shared::SharedGuard;

/// How long a list of this machine's addresses, and the MTUs of its interfaces, are believed when
/// nobody tells of a change ([`Installer::addresses_changed`]).
const ADDRESSES: Duration = Duration::from_secs(10);

/// Applies commands.
pub struct Installer {
    engine: Arc<Engine>,
    guard: SharedGuard,
    /// Index of the TUN device.
    device: u32,
    /// The engine's clock, as of the last command.
    now: Duration,
    routes: BTreeMap<Destination, Routed>,
    /// The destinations of a reqid's policies, and how many lead to each.
    inside: HashMap<ReqId, BTreeMap<Destination, usize>>,
    /// Number of policies that were added so far, by which the newest is known.
    added: u64,
    /// Outbound SAs by reqid, the oldest first. The last of a reqid is kept when it is gone, until
    /// another comes.
    outside: HashMap<ReqId, Vec<Outside>>,
    /// The outbound SAs as ICMP errors quote them, and the path MTUs learned from such errors.
    paths: Arc<Paths>,
    /// Reqids for whose SAs the kernel did not tell the path MTU, and when to ask again.
    ask_again: HashMap<ReqId, Instant>,
    /// This machine's addresses with their places in the kernel's list, in order of address, and
    /// when they were read.
    addresses: Option<(Instant, Vec<(IpAddr, usize)>)>,
    /// MTUs of interfaces, and since when they are gathered.
    link_mtus: (Option<Instant>, HashMap<u32, u32>),
    /// Makes the workers look at the engine, and whether that is due.
    wake: Box<dyn Fn()>,
    wake_due: bool,
}

impl Installer {
    /// For a TUN device, by index.
    pub fn new(engine: Arc<Engine>, guard: SharedGuard, device: u32) -> Self {
        Self {
            engine,
            guard,
            device,
            now: Duration::ZERO,
            routes: BTreeMap::new(),
            inside: HashMap::new(),
            added: 0,
            outside: HashMap::new(),
            paths: Arc::default(),
            ask_again: HashMap::new(),
            addresses: None,
            link_mtus: (None, HashMap::new()),
            wake: Box::new(|| ()),
            wake_due: false,
        }
    }

    /// Calls `wake` when SAs have come or gone ([`Self::wake`]): packets may wait for them, and
    /// workers keep deleted SAs until they look.
    #[must_use]
    pub fn waking(self, wake: impl Fn() + 'static) -> Self {
        Self { wake: Box::new(wake), ..self }
    }

    /// Shares these with the senders, and with the thread that receives ICMP errors.
    #[must_use]
    pub fn over(self, paths: Arc<Paths>) -> Self {
        Self { paths, ..self }
    }

    /// Wakes the workers if an SA has come or gone since the last call. To be called when the
    /// commands of one step have been applied: a CHILD_SA is several, and each would wake them.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.wake_due) {
            (self.wake)();
        }
    }

    /// Applies one command. `now` is the engine's clock. A route that the kernel refuses is no
    /// error here: the guard logs it and tries it again, and until then the traffic goes nowhere.
    ///
    /// # Errors
    /// The engine refuses the command; nothing has changed then.
    pub fn apply(&mut self, now: Duration, command: &Command) -> Result<(), ApplyError> {
        self.now = now;
        self.engine.apply(now, command)?;
        match command {
            Command::SaAdd(sa) if sa.direction == Direction::Out => {
                let SaAdd { spi, local, remote, options, .. } = **sa;
                let (encapsulation, copy_df) = (Encapsulation::of(sa), options.copy_df);
                let (path, stale, gone) = (None, true, false);
                let outside = Outside { spi, local, remote, encapsulation, copy_df, path, stale, gone };
                self.paths.add(&outside.named(sa.reqid), outside.shape());
                let all = self.outside.entry(sa.reqid).or_default();
                all.retain(|o| !o.gone);
                all.push(outside);
                self.refresh(&[sa.reqid]);
                self.wake_due = true;
            }
            Command::SaUpdate { sa, local, remote, udp_encap } if sa.direction == Direction::Out => {
                self.paths.remove(sa);
                if let Some(o) =
                    self.outside.get_mut(&sa.reqid).and_then(|all| all.iter_mut().find(|o| o.is(sa)))
                {
                    (o.local, o.remote, o.path) = (*local, *remote, None);
                    o.encapsulation.udp_encap = *udp_encap;
                    o.encapsulation.outer_ipv6 = remote.is_ipv6();
                    self.paths.add(&o.named(sa.reqid), o.shape());
                    self.refresh(&[sa.reqid]);
                }
            }
            Command::PolicyAdd(policy) => self.policy(policy, true),
            Command::PolicyDelete(policy) => self.policy(policy, false),
            Command::SaDelete(sa) if sa.direction == Direction::Out => {
                self.paths.remove(sa);
                if let Some(o) =
                    self.outside.get_mut(&sa.reqid).and_then(|all| all.iter_mut().find(|o| o.is(sa)))
                {
                    o.gone = true;
                    // An older one may carry the packets again.
                    self.refresh(&[sa.reqid]);
                }
                // Without a policy (`policies = no`) nothing else will end the entry.
                if !self.inside.contains_key(&sa.reqid)
                    && let Some(all) = self.outside.get_mut(&sa.reqid)
                {
                    all.retain(|o| !o.gone);
                    if all.is_empty() {
                        self.outside.remove(&sa.reqid);
                        self.ask_again.remove(&sa.reqid);
                    }
                }
                self.wake_due = true;
            }
            Command::SaAdd(_) | Command::SaDelete(_) => self.wake_due = true,
            Command::SaUpdate { .. }
            | Command::SaPathMtu { .. }
            | Command::SpiReserve { .. }
            | Command::SpiFree(_) => {}
        }
        Ok(())
    }

    /// The path to these peers has become narrower, or may be wider: looks the path MTU up again.
    pub fn narrowed(&mut self, peers: &[IpAddr]) {
        self.link_mtus.1.clear();
        let concerns = |all: &[Outside]| all.iter().any(|o| peers.contains(&o.remote.ip()));
        let reqids: Vec<ReqId> =
            self.outside.iter().filter(|(_, all)| concerns(all)).map(|(r, _)| *r).collect();
        self.refresh(&reqids);
    }

    /// Forgets what was learned of paths and holds no longer, and looks their MTUs up again: they
    /// may be wide.
    pub fn forgotten(&mut self, now: Instant) {
        let wider = self.paths.known().forget_expired(now);
        if !wider.is_empty() {
            self.narrowed(&wider);
        }
        let due: Vec<ReqId> = self.ask_again.iter().filter(|(_, at)| **at <= now).map(|(r, _)| *r).collect();
        for reqid in &due {
            self.ask_again.remove(reqid);
        }
        self.refresh(&due);
    }

    /// This machine's addresses or links have changed: reads them again when one is needed next.
    pub fn addresses_changed(&mut self) {
        self.addresses = None;
        self.link_mtus.1.clear();
    }

    /// Links, addresses or routes have changed: looks up every path MTU and source address again.
    pub fn refresh_all(&mut self) {
        self.outside.values_mut().flatten().for_each(|o| o.stale = true);
        self.addresses_changed();
        let all: Vec<Destination> = self.routes.keys().copied().collect();
        all.into_iter().for_each(|to| self.settle(to));
    }

    /// Goes on with another device. The routes to the old one went with it.
    pub fn replace_device(&mut self, device: u32) {
        self.device = device;
        self.routes.values_mut().for_each(|r| r.installed = None);
        self.refresh_all();
    }

    /// The routes to the device that stand.
    pub fn device_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().filter_map(|r| r.installed.as_ref())
    }

    /// Removes every route to the device that is still there. The guard's own routes stay, and keep
    /// the traffic from leaving in clear.
    pub fn clear(&mut self) {
        for (_, routed) in std::mem::take(&mut self.routes) {
            if let Some(route) = routed.installed {
                // The device goes next, and its routes with it.
                let _ = self.guard.change(|_, kernel| kernel.delete_route(&route));
            }
        }
        self.inside.clear();
    }

    fn refresh(&mut self, reqids: &[ReqId]) {
        // Many of them may share a destination.
        let mut all = BTreeSet::new();
        for reqid in reqids {
            self.outside.get_mut(reqid).into_iter().flatten().for_each(|o| o.stale = true);
            all.extend(self.inside.get(reqid).into_iter().flat_map(BTreeMap::keys).copied());
        }
        all.into_iter().for_each(|to| self.settle(to));
    }
}

#[cfg(test)]
#[path = "install_tests.rs"]
pub(crate) mod tests;
