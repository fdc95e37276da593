//! Applies `wire::sadb` messages: to the packet engine, to the guard, and for what is to be protected to the kernel's routing.
//!
//! For each remote prefix of a PROTECT or DISCARD policy that the engine has there is a route in table 220 to the TUN device,
//! whose source is an address of this machine inside the local selector (if it has one), and whose MTU is the path MTU less
//! exactly what ESP or AH adds; with `copy_df = no` it is 1,500 at least, since the outer packets may be fragmented. Routes
//! are counted: two policies to one prefix share one, and it goes with the last of them. Below each stands an unreachable one,
//! which is [`StandingGuard`]'s, as is everything that does not depend on SAs.
//!
//! The engine is told the same path MTUs: it makes fit what the kernel has not, and clamps the MSS of what is forwarded.
//!
//! This is the seam for the kernel's own engine: another implementation of [`Installer`]'s two halves.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `kernel` | rtnetlink, or a test's stand-in |
//! | `path` | path MTUs of outbound SAs |

mod kernel;
mod path;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_io::route::{Address, Destination, PROTOCOL, Route, RouteKind, TABLE};
use ironswan_ipsec::Engine;
use ironswan_ipsec::mtu::Encapsulation;
use ironswan_wire::sadb::{Action, Command, Direction, PolicyAdd, ReqId, SaAdd};
use ironswan_wire::selector::AddrRange;

pub use self::kernel::Kernel;
use self::path::{Outside, UNKNOWN_PATH_MTU};
use crate::dataplane::userspace::paths::Paths;
use crate::guard::plan::from_config::Configured;
use crate::guard::plan::{Policy, Way};
use crate::guard::standing::{StandingGuard, default_metric};

/// Prefixes of one selector that are routed; a range may be cut into up to 254 of them, and a peer chooses ranges.
const MAX_PREFIXES: usize = 512;
/// Whose routes those of DISCARD policies are: no SA has this reqid.
const DISCARD: ReqId = ReqId(0);
/// How long a list of this machine's addresses, and the MTUs of its interfaces, are believed, should nobody tell of a change
/// ([`Installer::addresses_changed`]).
const ADDRESSES: Duration = Duration::from_secs(10);

/// A route and who needs it. Everything here is counted, since a peer chooses how many policies lead to one destination.
#[derive(Debug, Default)]
struct Routed {
    users: BTreeMap<ReqId, User>,
    installed: Option<Route>,
}

/// One reqid's policies to a destination.
#[derive(Debug, Default)]
struct User {
    /// Where the source address must be: how many of the policies say so, and when the last of them came.
    locals: BTreeMap<AddrRange, (usize, u64)>,
    /// When the last policy came.
    since: u64,
}

/// Applies commands.
pub struct Installer {
    engine: Arc<Engine>,
    kernel: Box<dyn Kernel>,
    device: u32,
    guard: StandingGuard,
    /// The engine's clock, as of the last command.
    now: Duration,
    routes: BTreeMap<Destination, Routed>,
    /// The destinations of a reqid's policies, and how many lead to each.
    inside: HashMap<ReqId, BTreeMap<Destination, usize>>,
    /// Counts what was added to these, so that the newest is known.
    added: u64,
    /// By reqid, the oldest first. The last of a reqid is kept when it is gone, until another comes.
    outside: HashMap<ReqId, Vec<Outside>>,
    /// The outbound SAs as ICMP errors quote them, and what was learned from those.
    paths: Arc<Paths>,
    /// Whose path MTU the kernel did not tell, and when it is asked again.
    ask_again: HashMap<ReqId, Instant>,
    /// This machine's addresses with their places in the kernel's list, in order of address, and when that was.
    addresses: Option<(Instant, Vec<(IpAddr, usize)>)>,
    /// MTUs of interfaces, and since when they are gathered.
    link_mtus: (Option<Instant>, HashMap<u32, u32>),
    /// Why look-ups failed, by error number (none: an answer that is not understood): each is said once.
    unanswered: HashSet<Option<i32>>,
    /// Makes the workers look at the engine, and whether that is due.
    wake: Box<dyn Fn()>,
    wake_due: bool,
}

impl Installer {
    /// For a TUN device, by index.
    pub fn new(engine: Arc<Engine>, kernel: Box<dyn Kernel>, device: u32, guard: StandingGuard) -> Self {
        Self {
            engine,
            kernel,
            device,
            guard,
            now: Duration::ZERO,
            routes: BTreeMap::new(),
            inside: HashMap::new(),
            added: 0,
            outside: HashMap::new(),
            paths: Arc::default(),
            ask_again: HashMap::new(),
            addresses: None,
            link_mtus: (None, HashMap::new()),
            unanswered: HashSet::new(),
            wake: Box::new(|| ()),
            wake_due: false,
        }
    }

    /// Calls `wake` when SAs have come or gone ([`Self::wake`]): packets may wait for them, and workers keep what was deleted
    /// until they look.
    #[must_use]
    pub fn waking(self, wake: impl Fn() + 'static) -> Self {
        Self { wake: Box::new(wake), ..self }
    }

    /// Shares these with those who send and who hear of ICMP errors.
    #[must_use]
    pub fn over(self, paths: Arc<Paths>) -> Self {
        Self { paths, ..self }
    }

    /// Wakes the workers if an SA has come or gone since the last call. To be called when the commands of one step have been
    /// applied: a CHILD_SA is several, and each would wake them.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.wake_due) {
            (self.wake)();
        }
    }

    /// Applies one command. `now` is the engine's clock. The error is the engine's, a sentence for the log. What the kernel
    /// refuses is tried again and said by [`StandingGuard`]; until then the traffic goes nowhere.
    pub fn apply(&mut self, now: Duration, command: &Command) -> Result<(), String> {
        self.now = now;
        self.engine.apply(now, command).map_err(|e| format!("{}: {e}", describe(command)))?;
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
            Command::SaUpdate { .. } | Command::SaPathMtu { .. } => {}
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
        let wider = self.paths.known().forget(now);
        if !wider.is_empty() {
            self.narrowed(&wider);
        }
        let due: Vec<ReqId> = self.ask_again.iter().filter(|(_, at)| **at <= now).map(|(r, _)| *r).collect();
        for reqid in &due {
            self.ask_again.remove(reqid);
        }
        self.refresh(&due);
    }

    /// This machine's addresses or links have changed: they are looked up again when one is asked for next.
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

    /// The address that this machine would send to `remote` from; `None`: there is no route.
    ///
    /// # Errors
    /// What the kernel says, or that its answer is not understood. That is not "no route": what was known before holds.
    pub fn source_to(&mut self, remote: IpAddr) -> Result<Option<IpAddr>, IoError> {
        let hop = self.kernel.lookup(remote, None, self.guard.settings().mark);
        Ok(hop.inspect_err(|e| self.no_answer(e))?.and_then(|hop| hop.source))
    }

    fn no_answer(&mut self, e: &IoError) {
        if self.unanswered.insert(e.errno()) {
            self.guard.say(format!("{e}; until it is, what was known of the way holds (said once)"));
        }
    }

    /// This machine's addresses from which something may be sent to other machines.
    pub fn addresses(&mut self) -> Result<Vec<IpAddr>, IoError> {
        let usable = |a: &Address| {
            let link_local = match a.ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            !a.tentative && a.link != self.device && !a.ip.is_loopback() && !link_local
        };
        Ok(self.kernel.addresses()?.into_iter().filter(usable).map(|a| a.ip).collect())
    }

    /// The guard, and with it every route and rule that does not depend on SAs.
    pub fn guard(&self) -> &StandingGuard {
        &self.guard
    }

    /// The guard, to change it.
    pub fn guard_mut(&mut self) -> &mut StandingGuard {
        &mut self.guard
    }

    /// What a predecessor left is taken over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn adopt(&mut self) -> Result<(), IoError> {
        self.guard.adopt(&mut *self.kernel)
    }

    /// These policies are about to be loaded ([`StandingGuard::loading`]).
    pub fn loading(&mut self, policies: &[Policy]) {
        self.guard.loading(&mut *self.kernel, policies);
    }

    /// Makes the plan anew and carries out what closes ([`StandingGuard::replan`]).
    pub fn replan(&mut self, loaded: Configured) -> u64 {
        let generation = self.guard.replan(&mut *self.kernel, loaded);
        // Routes that became holes, were holes, or were refused.
        let hole = |to: &Destination| self.guard.way(to) == Some(Way::Throw);
        let wrong = self.routes.iter().filter(|(to, r)| r.installed.is_some() == hole(to));
        let wrong: Vec<Destination> = wrong.map(|(to, _)| *to).collect();
        wrong.into_iter().for_each(|to| self.settle(to));
        generation
    }

    /// Carries out what opens ([`StandingGuard::open`]).
    pub fn open(&mut self, generation: u64) {
        self.guard.open(&mut *self.kernel, generation);
    }

    /// Compares rules and routes with what the kernel has, and restores what is missing. Says what was.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn verify(&mut self) -> Result<Vec<String>, IoError> {
        let (rules, routes) = (self.kernel.rules()?, self.kernel.routes()?);
        self.kernel.left_out().into_iter().for_each(|line| self.guard.say(line + " (said once)"));
        let mut missing = self.guard.compare(&rules, &routes);
        let found: HashSet<Route> = routes.into_iter().collect();
        let mut gone = Vec::new();
        for (to, routed) in &mut self.routes {
            let Some(route) = &routed.installed else { continue };
            // As the kernel reports it.
            let metric = default_metric(to.ip);
            if !found.contains(&Route { metric, ..route.clone() }) {
                missing.push(format!("route {route}"));
                routed.installed = None;
                gone.push(*to);
            }
        }
        self.guard.close(&mut *self.kernel);
        gone.into_iter().for_each(|to| self.settle(to));
        Ok(missing)
    }

    /// Goes on with another device. Whatever led to the old one went with it.
    pub fn replace_device(&mut self, device: u32) {
        self.device = device;
        self.routes.values_mut().for_each(|r| r.installed = None);
        self.refresh_all();
    }

    /// The routes to the device that stand.
    pub fn device_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().filter_map(|r| r.installed.as_ref())
    }

    /// Removes every route to the device that is still there; what keeps the traffic from leaving in clear stays.
    pub fn clear(&mut self) {
        for (_, routed) in std::mem::take(&mut self.routes) {
            if let Some(route) = routed.installed {
                // The device goes next, and its routes with it.
                let _ = self.kernel.delete_route(&route);
            }
        }
        self.inside.clear();
    }

    /// Removes rules and unreachable routes too.
    pub fn clear_all(&mut self) {
        self.clear();
        self.guard.clear(&mut *self.kernel);
    }

    fn policy(&mut self, policy: &PolicyAdd, add: bool) {
        self.guard.engine(policy, add);
        let reqid = match policy.action {
            Action::Protect(reqid) => reqid,
            // What is dropped goes to the device to be counted.
            Action::Discard => DISCARD,
            Action::Bypass => return,
        };
        let prefixes = policy.remote.range.prefixes();
        for (ip, prefix_len) in prefixes.into_iter().take(MAX_PREFIXES) {
            let to = Destination { ip, prefix_len };
            match add {
                true => self.need(reqid, to, policy.local.range),
                false => self.release(reqid, to, policy.local.range),
            }
            self.settle(to);
        }
    }

    /// One more policy of the reqid leads to `to`.
    fn need(&mut self, reqid: ReqId, to: Destination, local: AddrRange) {
        self.added += 1;
        *self.inside.entry(reqid).or_default().entry(to).or_default() += 1;
        let user = self.routes.entry(to).or_default().users.entry(reqid).or_default();
        user.since = self.added;
        let (count, since) = user.locals.entry(local).or_default();
        (*count, *since) = (*count + 1, self.added);
    }

    /// One policy less.
    fn release(&mut self, reqid: ReqId, to: Destination, local: AddrRange) {
        if let Some(users) = self.routes.get_mut(&to).map(|r| &mut r.users)
            && let Some(user) = users.get_mut(&reqid)
        {
            uncount(&mut user.locals, &local, |(count, _)| count);
            if user.locals.is_empty() {
                users.remove(&reqid);
            }
        }
        let Some(inside) = self.inside.get_mut(&reqid) else { return };
        uncount(inside, &to, |count| count);
        if inside.is_empty() {
            self.inside.remove(&reqid);
            // SAs that are there may get other policies; when they go without, they take the entry along.
            if self.outside.get(&reqid).is_some_and(|all| all.iter().all(|o| o.gone)) {
                self.outside.remove(&reqid);
                self.ask_again.remove(&reqid);
            }
        }
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

    /// Makes the kernel's route to `to` what it should be now.
    fn settle(&mut self, to: Destination) {
        let Some(routed) = self.routes.get(&to) else { return };
        let newest = routed.users.values().max_by_key(|user| user.since);
        let local = newest.and_then(|user| user.locals.iter().max_by_key(|(_, (_, since))| *since));
        let hole = self.guard.way(&to) == Some(Way::Throw);
        let (Some((local, _)), false) = (local, hole) else {
            let installed = match newest {
                None => self.routes.remove(&to).and_then(|r| r.installed),
                Some(_) => self.routes.get_mut(&to).and_then(|r| r.installed.take()),
            };
            // What replaced it in the kernel (a hole has the same metric) is not to go with it.
            if let Some(route) = installed.filter(|_| !hole) {
                let gone = self.kernel.delete_route(&route);
                self.guard.tried(format!("route to {to}"), gone);
            } else {
                self.guard.tried(format!("route to {to}"), Ok(()));
            }
            return;
        };
        let (local, users) = (*local, routed.users.keys().copied().collect::<Vec<ReqId>>());
        // 0 is the device's, which everybody's is less than.
        let mut mtu = 0;
        for reqid in users.iter().filter(|r| **r != DISCARD) {
            mtu = match (mtu, self.inner_mtu(*reqid, to.ip.is_ipv6())) {
                (known, 0) => known,
                (0, new) => new,
                (known, new) => known.min(new),
            };
        }
        if users.iter().all(|r| *r == DISCARD) {
            mtu = UNKNOWN_PATH_MTU - 100;
        }
        let source = self.address_in(&local);
        let kind = RouteKind::Device(self.device);
        let mut route =
            Route { table: TABLE, destination: to, kind, metric: 0, source, mtu, protocol: PROTOCOL };
        if self.routes.get(&to).is_some_and(|r| r.installed.as_ref() == Some(&route)) {
            return;
        }
        // Nowhere first, then the device.
        self.guard.set_unreachable_below(&mut *self.kernel, to);
        let mut set = self.kernel.set_route(&route);
        if set.is_err() && route.source.is_some() {
            // The address went away between the look and the route; without it the route still carries what is forwarded.
            route.source = None;
            set = self.kernel.set_route(&route);
        }
        let set = self.guard.tried(format!("route to {to}"), set);
        if let Some(r) = self.routes.get_mut(&to) {
            r.installed = set.then_some(route);
        }
    }

    /// An address of this machine in the range: the source of what the gateway itself sends into the tunnel.
    fn address_in(&mut self, range: &AddrRange) -> Option<IpAddr> {
        // All of a family says nothing about which address is meant.
        if range.prefix_len() == Some(0) {
            return None;
        }
        let now = clock::now();
        if self.addresses.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= ADDRESSES) {
            let usable = |a: &Address| !a.tentative && !a.ip.is_loopback() && !a.ip.is_multicast();
            let all = self.kernel.addresses().ok()?;
            let mut all: Vec<(IpAddr, usize)> =
                all.iter().enumerate().filter(|(_, a)| usable(a)).map(|(place, a)| (a.ip, place)).collect();
            all.sort_unstable();
            self.addresses = Some((now, all));
        }
        let (_, all) = self.addresses.as_ref()?;
        let from = all.partition_point(|(ip, _)| *ip < range.start());
        let inside = all.get(from..)?.iter().take_while(|(ip, _)| *ip <= range.end());
        // Of several the one that the kernel names first.
        inside.min_by_key(|(_, place)| *place).map(|(ip, _)| *ip)
    }
}

/// Counts down what a map has of a key, to which it is gone.
fn uncount<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K, count: impl Fn(&mut V) -> &mut usize) {
    if let Some(value) = map.get_mut(key) {
        *count(value) -= 1;
        if *count(value) == 0 {
            map.remove(key);
        }
    }
}

fn describe(command: &Command) -> String {
    match command {
        Command::SaAdd(sa) => format!("unable to install {:?}bound SA {}", sa.direction, sa.spi),
        Command::SaUpdate { sa, .. } | Command::SaPathMtu { sa, .. } => {
            format!("unable to update SA {}", sa.spi)
        }
        Command::SaDelete(sa) => format!("unable to remove {:?}bound SA {}", sa.direction, sa.spi),
        Command::PolicyAdd(p) => {
            format!("unable to install policy {} ({} === {})", p.name, p.local, p.remote)
        }
        Command::PolicyDelete(p) => {
            format!("unable to remove policy {} ({} === {})", p.name, p.local, p.remote)
        }
    }
}

#[cfg(test)]
#[path = "install_tests.rs"]
pub(crate) mod tests;
