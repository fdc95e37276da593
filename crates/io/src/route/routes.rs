//! Routes: add, remove, list, look up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};

use super::link::family;
use super::netlink::Netlink;
use crate::error::Error;

/// Protocols whose ports routing rules ask for.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// In `RTAX_LOCK`: the bit of `RTAX_MTU`.
const LOCK_MTU: u32 = 1 << 2;

/// A prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Destination {
    /// Address; bits past the length are 0.
    pub ip: IpAddr,
    /// Length.
    pub prefix_len: u8,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

/// Treatment of a packet that matches a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteKind {
    /// Out of this interface.
    Device(u32),
    /// Nowhere, with ICMP unreachable to the sender.
    Unreachable,
    /// As if this table had nothing: the next rule is asked.
    Throw,
    /// Anything else that was found in the table (several next hops, blackhole, ...): never made
    /// here.
    Other,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// Table.
    pub table: u32,
    /// Destinations that the route matches.
    pub destination: Destination,
    /// Forward, refuse or continue in the next table.
    pub kind: RouteKind,
    /// Lower wins. 0 is the kernel's choice (0 for IPv4, 1024 for IPv6).
    pub metric: u32,
    /// Source address of what this machine sends itself.
    pub source: Option<IpAddr>,
    /// Largest packet; 0 for the device's.
    pub mtu: u32,
    /// Who made it; [`super::PROTOCOL`] is us.
    pub protocol: u8,
}

impl fmt::Display for Route {
    /// As `ip route` would take it, with the index for the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unreachable => f.write_str("unreachable ")?,
            RouteKind::Throw => f.write_str("throw ")?,
            RouteKind::Device(_) | RouteKind::Other => {}
        }
        write!(f, "{}", self.destination)?;
        if let RouteKind::Device(index) = self.kind {
            write!(f, " dev #{index}")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if self.mtu != 0 {
            write!(f, " mtu {}", self.mtu)?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        write!(f, " table {}", self.table)
    }
}

/// How a packet to some address would leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Interface index.
    pub link: u32,
    /// Next router; `None` when the address is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address the kernel would choose.
    pub source: Option<IpAddr>,
    /// Path MTU where the kernel knows one (a route's metric, or learned from ICMP); else the
    /// interface's.
    pub mtu: u32,
    /// `mtu` was learned from an ICMP error, and the kernel forgets it after this time.
    pub expires: Option<Duration>,
    /// The address is one of this machine's own.
    pub local: bool,
}

/// A packet whose way through the routing tables is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteQuery {
    /// Destination.
    pub to: IpAddr,
    /// Source.
    pub from: Option<IpAddr>,
    /// Index of the interface by which the packet came; `None` for a packet of this machine.
    pub came_by: Option<u32>,
    /// Mark.
    pub mark: u32,
    /// Protocol.
    pub protocol: Option<u8>,
    /// Source and destination port; `None` where the packet shows none.
    pub ports: [Option<u16>; 2],
}

impl RouteQuery {
    /// A packet of this machine of which only the addresses and the mark count.
    pub fn new(to: IpAddr, from: Option<IpAddr>, mark: u32) -> Self {
        Self { to, from, came_by: None, mark, protocol: None, ports: [None; 2] }
    }
}

/// The kernel's answer about a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteAnswer {
    /// The packet would leave so, or is for this machine. `mtu` is 0 where the interface's holds.
    Way {
        /// Interface and next router.
        hop: NextHop,
        /// The table that decided; 0 where the kernel does not say.
        table: u32,
    },
    /// The packet would be dropped. The number of the kernel's error; 0 where the route is of a
    /// kind that carries no such packets.
    Refused(i32),
}

impl Route {
    fn message(&self) -> RouteMessage {
        let mut m = RouteMessage::default();
        m.header.address_family = family(self.destination.ip.is_ipv6());
        m.header.destination_prefix_length = self.destination.prefix_len;
        m.header.table = u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        m.header.protocol = RouteProtocol::from(self.protocol);
        m.header.scope = RouteScope::Universe;
        m.header.kind = RouteType::Unicast;
        m.attributes.push(RouteAttribute::Table(self.table));
        m.attributes.push(RouteAttribute::Destination(self.destination.ip.into()));
        match self.kind {
            RouteKind::Device(index) => {
                m.attributes.push(RouteAttribute::Oif(index));
                if self.destination.ip.is_ipv4() {
                    m.header.scope = RouteScope::Link;
                }
            }
            RouteKind::Throw => m.header.kind = RouteType::Throw,
            RouteKind::Unreachable | RouteKind::Other => m.header.kind = RouteType::Unreachable,
        }
        if self.metric != 0 {
            m.attributes.push(RouteAttribute::Priority(self.metric));
        }
        if let Some(source) = self.source {
            m.attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        if self.mtu != 0 {
            let mut metrics = vec![RouteMetric::Mtu(self.mtu)];
            if self.destination.ip.is_ipv6() {
                // Linux forwards IPv6 by the device's MTU, unless the route's is locked: only then
                // is a host told this one (Packet Too Big). The price is that what this machine
                // itself sends there learns of no narrower link behind the route. IPv4 forwards by
                // the route's MTU as it is.
                metrics.push(RouteMetric::Lock(LOCK_MTU));
            }
            m.attributes.push(RouteAttribute::Metrics(metrics));
        }
        m
    }

    pub(super) fn from_message(m: &RouteMessage) -> Self {
        let zero: IpAddr = match family(true) == m.header.address_family {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut route = Self {
            table: m.header.table.into(),
            destination: Destination { ip: zero, prefix_len: m.header.destination_prefix_length },
            kind: match m.header.kind {
                RouteType::Unreachable => RouteKind::Unreachable,
                RouteType::Throw => RouteKind::Throw,
                _ => RouteKind::Other,
            },
            metric: 0,
            source: None,
            mtu: 0,
            protocol: m.header.protocol.into(),
        };
        for a in &m.attributes {
            match a {
                RouteAttribute::Table(t) => route.table = *t,
                RouteAttribute::Destination(d) => route.destination.ip = ip(d).unwrap_or(zero),
                // IPv6 names the loopback interface in unreachable routes.
                RouteAttribute::Oif(i) if m.header.kind == RouteType::Unicast => {
                    route.kind = RouteKind::Device(*i)
                }
                RouteAttribute::Priority(p) => route.metric = *p,
                RouteAttribute::PrefSource(s) => route.source = ip(s),
                RouteAttribute::Metrics(list) => route.mtu = mtu(list).unwrap_or(0),
                _ => {}
            }
        }
        route
    }
}

fn ip(a: &RouteAddress) -> Option<IpAddr> {
    match a {
        RouteAddress::Inet(a) => Some((*a).into()),
        RouteAddress::Inet6(a) => Some((*a).into()),
        _ => None,
    }
}

fn mtu(list: &[RouteMetric]) -> Option<u32> {
    list.iter().find_map(|m| match m {
        RouteMetric::Mtu(v) => Some(*v),
        _ => None,
    })
}

impl Netlink {
    /// Adds a route, or replaces the one with the same table, destination and metric.
    ///
    /// # Errors
    /// The error that the kernel returned: for instance `EINVAL` for a source address this machine
    /// does not have.
    pub fn set_route(&mut self, route: &Route) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || format!("add the route {route}"))
    }

    /// Removes a route. That it is gone already is no error.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        match self.change(message, 0, || format!("remove the route {route}")) {
            Err(e) if matches!(e.errno(), Some(libc::ESRCH | libc::ENODEV)) => Ok(()),
            other => other,
        }
    }

    /// The routes of one table, both families.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn routes(&mut self, table: u32) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for ipv6 in [false, true] {
            let mut m = RouteMessage::default();
            m.header.address_family = family(ipv6);
            m.attributes.push(RouteAttribute::Table(table));
            let all = match self.dump(RouteNetlinkMessage::GetRoute(m), || format!("list table {table}")) {
                // A table that was never used does not exist; a kernel without IPv6 has none.
                Err(e) if matches!(e.errno(), Some(libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                    continue;
                }
                other => other?,
            };
            routes.extend(all.iter().filter_map(|m| match m {
                RouteNetlinkMessage::NewRoute(m) => Some(Route::from_message(m)).filter(|r| r.table == table),
                _ => None,
            }));
        }
        Ok(routes)
    }

    /// How a packet to `remote` that carries `mark` (and comes from `source`, when given) would
    /// leave. `None`: it would not, there is no route.
    ///
    /// # Errors
    /// The error that the kernel returned, and [`Error::Answer`].
    pub fn lookup(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, Error> {
        let hop = self.lookup_route(remote, source, mark)?;
        Ok(match hop {
            Some(hop) if hop.mtu == 0 => {
                Some(NextHop { mtu: self.link_mtu(hop.link)?.unwrap_or(1500), ..hop })
            }
            hop => hop,
        })
    }

    /// As [`Self::lookup`], but `mtu` is 0 where the kernel knows none of the path, so that the
    /// interface's holds: for who asks for thousands of paths over a few interfaces.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn lookup_route(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, Error> {
        self.hop(remote, source, mark, RouteFlags::empty())
    }

    /// As [`Self::lookup_route`], but of the route as it was configured (`ip route get fibmatch`):
    /// `mtu` is the route's own, whatever the kernel has learned from ICMP. `link` is 0 where the
    /// route has several next hops.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn configured_route(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, Error> {
        self.hop(remote, source, mark, RouteFlags::FibMatch)
    }

    fn hop(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
        flags: RouteFlags,
    ) -> Result<Option<NextHop>, Error> {
        Ok(match self.ask_way(&RouteQuery::new(remote, source, mark), flags)? {
            RouteAnswer::Way { hop, .. } => Some(hop),
            RouteAnswer::Refused(_) => None,
        })
    }

    /// The way of a packet, also of one that comes by an interface: the kernel then looks whether
    /// it forwards there, and whether the source may come from there.
    ///
    /// # Errors
    /// The error that the kernel returned, and [`Error::Answer`].
    pub fn way(&mut self, packet: &RouteQuery) -> Result<RouteAnswer, Error> {
        // IPv6 names the table without being asked, and refuses to be asked.
        let flags = if packet.to.is_ipv6() { RouteFlags::empty() } else { RouteFlags::LookupTable };
        self.ask_way(packet, flags)
    }

    fn ask_way(&mut self, packet: &RouteQuery, flags: RouteFlags) -> Result<RouteAnswer, Error> {
        let remote = packet.to;
        let m = match self.get(RouteNetlinkMessage::GetRoute(query_message(packet, flags))) {
            Ok(RouteNetlinkMessage::NewRoute(m)) => m,
            Ok(_) => return Err(Error::Answer { what: format!("look up the route to {remote}") }),
            Err(e) => match e.raw_os_error() {
                Some(
                    refused @ (libc::ENETUNREACH
                    | libc::EHOSTUNREACH
                    | libc::EACCES
                    | libc::EINVAL
                    | libc::EXDEV
                    | libc::EAFNOSUPPORT
                    | libc::EOPNOTSUPP),
                ) => return Ok(RouteAnswer::Refused(refused)),
                _ => {
                    return Err(Error::request(format!("look up the route to {remote}"), e));
                }
            },
        };
        if !matches!(m.header.kind, RouteType::Unicast | RouteType::Local) {
            return Ok(RouteAnswer::Refused(0));
        }
        let mut table = m.header.table.into();
        let mut hop = NextHop {
            link: 0,
            gateway: None,
            source: None,
            mtu: 0,
            expires: None,
            local: m.header.kind == RouteType::Local,
        };
        for a in &m.attributes {
            match a {
                RouteAttribute::Oif(i) => hop.link = *i,
                RouteAttribute::Table(t) => table = *t,
                RouteAttribute::Gateway(a) => hop.gateway = ip(a),
                RouteAttribute::PrefSource(a) => hop.source = ip(a),
                RouteAttribute::Metrics(list) => hop.mtu = mtu(list).unwrap_or(0),
                // In ticks of USER_HZ, which is 100 everywhere.
                RouteAttribute::CacheInfo(info) if info.expires != 0 => {
                    hop.expires = Some(Duration::from_millis(u64::from(info.expires) * 10));
                }
                _ => {}
            }
        }
        Ok(RouteAnswer::Way { hop, table })
    }
}

/// The request for the way of a packet.
fn query_message(packet: &RouteQuery, flags: RouteFlags) -> RouteMessage {
    let mut m = RouteMessage::default();
    let bits = |ip: IpAddr| if ip.is_ipv6() { 128 } else { 32 };
    m.header.flags = flags;
    m.header.address_family = family(packet.to.is_ipv6());
    m.header.destination_prefix_length = bits(packet.to);
    m.attributes.push(RouteAttribute::Destination(packet.to.into()));
    if let Some(source) = packet.from.filter(|s| !s.is_unspecified() && s.is_ipv6() == packet.to.is_ipv6()) {
        m.header.source_prefix_length = bits(source);
        m.attributes.push(RouteAttribute::Source(source.into()));
    }
    if let Some(index) = packet.came_by {
        m.attributes.push(RouteAttribute::Iif(index));
    }
    if packet.mark != 0 {
        m.attributes.push(RouteAttribute::Mark(packet.mark));
    }
    // The kernel takes no other protocols here; no rule asks for theirs.
    if let Some(protocol @ (TCP | UDP)) = packet.protocol {
        m.attributes.push(RouteAttribute::IpProto(protocol));
        let [source, destination] = packet.ports;
        m.attributes.extend(source.map(RouteAttribute::Sport));
        m.attributes.extend(destination.map(RouteAttribute::Dport));
    }
    m
}
