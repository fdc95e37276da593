//! Applies `wire::sadb` messages: to the packet engine, and for what is to be protected to the kernel's routing.
//!
//! For each remote prefix of a PROTECT policy there is a route in table 220 to the TUN device, whose source is an address
//! of this machine inside the local selector (if it has one), and whose MTU is the path MTU less exactly what ESP adds.
//! Routes are counted: two policies to one prefix share one, and it goes with the last of them.
//!
//! This is the seam for the kernel's own engine: another implementation of [`Installer`]'s two halves. Not here: finer
//! steering than by destination, and the guard.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, Destination, Hop, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE};
use ironswan_ipsec::Engine;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Action, Command, Direction, PolicyAdd, ReqId, SaAdd};
use ironswan_wire::selector::AddrRange;

/// Prefixes of one selector that are routed; a range may be cut into up to 254 of them, and a peer chooses ranges.
const MAX_PREFIXES: usize = 512;
/// Assumed while there is no SA yet: what the slimmest link on the way usually lets through.
const UNKNOWN_PATH_MTU: u32 = 1500;

/// What the kernel is asked for; replaced in tests.
pub trait Kernel {
    /// Adds or replaces a route.
    fn set_route(&mut self, route: &Route) -> Result<(), IoError>;
    /// Removes a route.
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError>;
    /// How a packet with this mark would leave.
    fn lookup(&mut self, remote: IpAddr, source: Option<IpAddr>, mark: u32) -> Result<Option<Hop>, IoError>;
    /// This machine's addresses.
    fn addresses(&mut self) -> Result<Vec<Address>, IoError>;
}

impl Kernel for Netlink {
    fn set_route(&mut self, route: &Route) -> Result<(), IoError> {
        Netlink::set_route(self, route)
    }
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError> {
        Netlink::delete_route(self, route)
    }
    fn lookup(&mut self, remote: IpAddr, source: Option<IpAddr>, mark: u32) -> Result<Option<Hop>, IoError> {
        Netlink::lookup(self, remote, source, mark)
    }
    fn addresses(&mut self) -> Result<Vec<Address>, IoError> {
        Netlink::addresses(self)
    }
}

/// The outside of a reqid's newest outbound SA, which decides the MTU.
#[derive(Clone, Copy, Debug)]
struct Outside {
    local: SocketAddr,
    remote: SocketAddr,
    udp_encap: bool,
    suite: EspSuite,
}

/// A route and who needs it.
#[derive(Debug)]
struct Routed {
    users: Vec<ReqId>,
    installed: Option<Route>,
}

/// Applies commands.
pub struct Installer {
    engine: Arc<Engine>,
    kernel: Box<dyn Kernel>,
    device: u32,
    mark: u32,
    routes: BTreeMap<Destination, Routed>,
    /// The selectors of a reqid's policies: prefix, and where the source address must be.
    inside: HashMap<ReqId, Vec<(Destination, AddrRange)>>,
    outside: HashMap<ReqId, Outside>,
}

impl Installer {
    /// For a TUN device (by index) and the mark that outer packets carry.
    pub fn new(engine: Arc<Engine>, kernel: Box<dyn Kernel>, device: u32, mark: u32) -> Self {
        Self {
            engine,
            kernel,
            device,
            mark,
            routes: BTreeMap::new(),
            inside: HashMap::new(),
            outside: HashMap::new(),
        }
    }

    /// Applies one command. `now` is the engine's clock. The error is a sentence for the log; the routes are as far as
    /// they could be set.
    pub fn apply(&mut self, now: Duration, command: &Command) -> Result<(), String> {
        self.engine.apply(now, command).map_err(|e| format!("{}: {e}", describe(command)))?;
        match command {
            Command::SaAdd(sa) if sa.direction == Direction::Out => {
                let SaAdd { local, remote, udp_encap, suite, .. } = **sa;
                self.outside.insert(sa.reqid, Outside { local, remote, udp_encap, suite });
                self.refresh(&[sa.reqid])
            }
            Command::SaUpdate { sa, local, remote, udp_encap } if sa.direction == Direction::Out => {
                let mut moved = Vec::new();
                for (reqid, o) in &mut self.outside {
                    if o.remote.ip() == sa.remote {
                        (o.local, o.remote, o.udp_encap) = (*local, *remote, *udp_encap);
                        moved.push(*reqid);
                    }
                }
                self.refresh(&moved)
            }
            Command::PolicyAdd(policy) => self.policy(policy, true),
            Command::PolicyDelete(policy) => self.policy(policy, false),
            Command::SaAdd(_) | Command::SaUpdate { .. } | Command::SaDelete(_) => Ok(()),
        }
    }

    /// The path to these peers has become narrower: looks the path MTU up again.
    pub fn narrowed(&mut self, peers: &[IpAddr]) -> Result<(), String> {
        let reqids: Vec<ReqId> =
            self.outside.iter().filter(|(_, o)| peers.contains(&o.remote.ip())).map(|(r, _)| *r).collect();
        self.refresh(&reqids)
    }

    /// The address that this machine would send to `remote` from.
    pub fn source_to(&mut self, remote: IpAddr) -> Result<Option<IpAddr>, IoError> {
        Ok(self.kernel.lookup(remote, None, self.mark)?.and_then(|hop| hop.source))
    }

    /// Removes every route that is still there.
    pub fn clear(&mut self) {
        for (_, routed) in std::mem::take(&mut self.routes) {
            if let Some(route) = routed.installed {
                // The device goes next, and its routes with it.
                let _ = self.kernel.delete_route(&route);
            }
        }
        self.inside.clear();
    }

    fn policy(&mut self, policy: &PolicyAdd, add: bool) -> Result<(), String> {
        let Action::Protect(reqid) = policy.action else { return Ok(()) };
        let prefixes = policy.remote.range.prefixes();
        let mut error = Ok(());
        for (ip, prefix_len) in prefixes.into_iter().take(MAX_PREFIXES) {
            let to = Destination { ip, prefix_len };
            let inside = self.inside.entry(reqid).or_default();
            let entry = self.routes.entry(to).or_insert(Routed { users: Vec::new(), installed: None });
            if add {
                inside.push((to, policy.local.range));
                entry.users.push(reqid);
            } else {
                if let Some(at) = inside.iter().rposition(|i| *i == (to, policy.local.range)) {
                    inside.remove(at);
                }
                if let Some(at) = entry.users.iter().rposition(|u| *u == reqid) {
                    entry.users.remove(at);
                }
                if inside.is_empty() {
                    self.inside.remove(&reqid);
                    self.outside.remove(&reqid);
                }
            }
            error = self.settle(to).and(error);
        }
        error
    }

    fn refresh(&mut self, reqids: &[ReqId]) -> Result<(), String> {
        let mut error = Ok(());
        for reqid in reqids {
            let to: Vec<Destination> =
                self.inside.get(reqid).map(|i| i.iter().map(|(d, _)| *d).collect()).unwrap_or_default();
            for d in to {
                error = self.settle(d).and(error);
            }
        }
        error
    }

    /// Makes the kernel's route to `to` what it should be now.
    fn settle(&mut self, to: Destination) -> Result<(), String> {
        let Some(routed) = self.routes.get(&to) else { return Ok(()) };
        let Some(&newest) = routed.users.last() else {
            let gone = self.routes.remove(&to).and_then(|r| r.installed);
            return match gone {
                Some(route) => self.kernel.delete_route(&route).map_err(|e| e.to_string()),
                None => Ok(()),
            };
        };
        let users = routed.users.clone();
        let mut mtu = u32::MAX;
        for reqid in users {
            mtu = mtu.min(self.inner_mtu(reqid, to.ip.is_ipv6()));
        }
        let local =
            self.inside.get(&newest).and_then(|i| i.iter().rev().find(|(d, _)| *d == to)).map(|(_, l)| *l);
        let source = match local {
            Some(range) => self.address_in(&range),
            None => None,
        };
        let kind = RouteKind::Device(self.device);
        let mut route =
            Route { table: TABLE, destination: to, kind, metric: 0, source, mtu, protocol: PROTOCOL };
        if self.routes.get(&to).is_some_and(|r| r.installed.as_ref() == Some(&route)) {
            return Ok(());
        }
        let mut set = self.kernel.set_route(&route);
        if set.is_err() && route.source.is_some() {
            // The address went away between the look and the route; without it the route still carries what is forwarded.
            route.source = None;
            set = self.kernel.set_route(&route);
        }
        if let Some(r) = self.routes.get_mut(&to) {
            r.installed = set.is_ok().then_some(route);
        }
        set.map_err(|e| e.to_string())
    }

    /// The largest inner packet that fits the path unfragmented.
    fn inner_mtu(&mut self, reqid: ReqId, inner_ipv6: bool) -> u32 {
        // RFC 8200 section 5: no IPv6 link is narrower than 1280; RFC 791: 576 for IPv4 (68 in theory).
        let floor = if inner_ipv6 { 1280 } else { 576 };
        let Some(o) = self.outside.get(&reqid).copied() else {
            return UNKNOWN_PATH_MTU - 100;
        };
        let source = Some(o.local.ip()).filter(|ip| !ip.is_unspecified());
        let path = match self.kernel.lookup(o.remote.ip(), source, self.mark) {
            Ok(Some(hop)) if hop.mtu != 0 => hop.mtu.min(65_535),
            _ => UNKNOWN_PATH_MTU,
        };
        inner_max(path, o.remote.is_ipv6(), o.udp_encap, &o.suite).max(floor)
    }

    /// An address of this machine in the range: the source of what the gateway itself sends into the tunnel.
    fn address_in(&mut self, range: &AddrRange) -> Option<IpAddr> {
        // All of a family says nothing about which address is meant.
        if range.prefix_len() == Some(0) {
            return None;
        }
        let all = self.kernel.addresses().ok()?;
        all.iter().map(|a| a.ip).find(|ip| range.contains(*ip) && !ip.is_loopback() && !ip.is_multicast())
    }
}

fn describe(command: &Command) -> String {
    match command {
        Command::SaAdd(sa) => format!("unable to install {:?}bound SA {}", sa.direction, sa.spi),
        Command::SaUpdate { sa, .. } => format!("unable to update SA {}", sa.spi),
        Command::SaDelete(sa) => format!("unable to remove {:?}bound SA {}", sa.direction, sa.spi),
        Command::PolicyAdd(p) => {
            format!("unable to install policy {} ({} === {})", p.name, p.local, p.remote)
        }
        Command::PolicyDelete(p) => {
            format!("unable to remove policy {} ({} === {})", p.name, p.local, p.remote)
        }
    }
}

/// The largest inner packet whose ESP packet is not longer than `path`.
///
/// ```text
/// IP (20 or 40) | UDP 8 | SPI, sequence 8 | IV | inner | padding to a block | pad length, next header 2 | ICV
/// ```
fn inner_max(path: u32, outer_ipv6: bool, udp: bool, suite: &EspSuite) -> u32 {
    use ironswan_wire::iana::{EncrId, IntegId};
    let (iv, block) = match suite.encr {
        EncrId::AES_CBC => (16, 16),
        EncrId::NULL => (0, 4),
        // RFC 4106 section 3.1, RFC 7634 section 2.
        _ => (8, 4),
    };
    let icv = match suite.integ {
        Some(IntegId::HMAC_SHA2_256_128) => 16,
        Some(IntegId::HMAC_SHA2_384_192) => 24,
        Some(IntegId::HMAC_SHA2_512_256) => 32,
        _ => 16,
    };
    let outer = if outer_ipv6 { 40 } else { 20 } + if udp { 8 } else { 0 };
    let room = path.saturating_sub(outer + 8 + iv + icv);
    (room - room % block).saturating_sub(2)
}

/// The kernel's side of a start: whatever a dead predecessor left in table 220 goes, the rule that leads there comes.
///
/// # Errors
/// What the kernel says.
pub fn prepare(netlink: &mut Netlink, mark: u32) -> Result<(), IoError> {
    let ours = [Rule::steering(false, mark), Rule::steering(true, mark)];
    for rule in netlink.rules()? {
        if rule.protocol == PROTOCOL && rule.table == TABLE && !ours.contains(&rule) {
            netlink.delete_rule(&rule)?;
        }
    }
    for route in netlink.routes(TABLE)? {
        if route.protocol == PROTOCOL && !matches!(route.kind, RouteKind::Other) {
            netlink.delete_route(&route)?;
        }
    }
    netlink.add_rule(&ours[0])?;
    // A kernel without IPv6 has no rules for it.
    match netlink.add_rule(&ours[1]) {
        Err(e) if !no_such_family(&e) => Err(e),
        _ => Ok(()),
    }
}

fn no_such_family(e: &IoError) -> bool {
    matches!(e.errno(), Some(code) if [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::OPNOTSUPP]
        .iter().any(|n| n.raw_os_error() == code))
}

/// The kernel's side of an end.
pub fn restore(netlink: &mut Netlink, mark: u32) {
    for ipv6 in [false, true] {
        if let Err(e) = netlink.delete_rule(&Rule::steering(ipv6, mark)) {
            tracing::warn!("{e}");
        }
    }
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
