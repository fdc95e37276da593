//! Interfaces and addresses.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::Netlink;
use crate::error::Error;

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Link-layer address; empty where there is none.
    pub address: Vec<u8>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// The driver says that the other end is there (IFF_LOWER_UP).
    pub carrier: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// The index of the interface that it is part of (bridge, bond, team, VRF ..).
    pub controller: Option<u32>,
    /// The kind of that interface ("bridge", "bond", "vrf" ..), where the kernel says.
    pub part_of: Option<String>,
    /// A VRF.
    pub vrf: bool,
    /// Transmit queue length in packets.
    pub queue_len: u32,
    /// Packets dropped on the way out. For a TUN device: its queue was full.
    pub tx_dropped: u64,
    /// Packets dropped on the way in.
    pub rx_dropped: u64,
}

impl Link {
    fn from_message(m: &LinkMessage) -> Self {
        let mut link = Self {
            index: m.header.index,
            up: m.header.flags.contains(LinkFlags::Up),
            carrier: m.header.flags.contains(LinkFlags::LowerUp),
            loopback: m.header.flags.contains(LinkFlags::Loopback),
            ..Self::default()
        };
        for a in &m.attributes {
            match a {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(address) => link.address.clone_from(address),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::TxQueueLen(n) => link.queue_len = *n,
                LinkAttribute::Controller(index) => link.controller = Some(*index).filter(|i| *i != 0),
                LinkAttribute::LinkInfo(info) => {
                    link.vrf = info.iter().any(|i| matches!(i, LinkInfo::Kind(InfoKind::Vrf)));
                    link.part_of = info.iter().find_map(|i| match i {
                        LinkInfo::PortKind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                LinkAttribute::Stats64(s) => {
                    link.tx_dropped = s.tx_dropped;
                    link.rx_dropped = s.rx_dropped;
                }
                _ => {}
            }
        }
        link
    }
}

/// An address of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface's index.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix on the link.
    pub prefix_len: u8,
    /// Not ours yet, or never: duplicate address detection runs, or has found another owner.
    pub tentative: bool,
    /// Being phased out: what is there goes on, nothing new may begin with it.
    pub deprecated: bool,
}

impl Address {
    /// An address in use.
    pub fn new(link: u32, ip: IpAddr, prefix_len: u8) -> Self {
        Self { link, ip, prefix_len, tentative: false, deprecated: false }
    }

    /// Whether new connections of this machine may use this address as their source.
    pub fn is_source(&self) -> bool {
        !self.tentative && !self.deprecated
    }
}

impl Netlink {
    /// One interface.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Answer`], or what the kernel says.
    pub fn link(&mut self, name: &str) -> Result<Link, Error> {
        let mut m = LinkMessage::default();
        m.attributes.push(LinkAttribute::IfName(name.into()));
        let found = self.one(m, || format!("show the interface {name}"))?;
        found.ok_or_else(|| Error::NoDevice { name: name.into() })
    }

    /// The interface with this index; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Answer`], or what the kernel says.
    pub fn link_at(&mut self, index: u32) -> Result<Option<Link>, Error> {
        let mut m = LinkMessage::default();
        m.header.index = index;
        self.one(m, || format!("show interface {index}"))
    }

    /// The MTU of the interface with this index, in bytes; `None` when there is none.
    ///
    /// # Errors
    /// As [`Self::link_at`].
    pub fn link_mtu(&mut self, index: u32) -> Result<Option<u32>, Error> {
        Ok(self.link_at(index)?.map(|link| link.mtu))
    }

    fn one(&mut self, which: LinkMessage, what: impl FnOnce() -> String) -> Result<Option<Link>, Error> {
        match self.get(RouteNetlinkMessage::GetLink(which)) {
            Ok(RouteNetlinkMessage::NewLink(m)) => Ok(Some(Link::from_message(&m))),
            Ok(_) => Err(Error::Answer { what: what() }),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(Error::request(what(), e)),
        }
    }

    /// All interfaces.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let all =
            self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), || "list interfaces".into())?;
        Ok(all
            .iter()
            .filter_map(|m| match m {
                RouteNetlinkMessage::NewLink(m) => Some(Link::from_message(m)),
                _ => None,
            })
            .collect())
    }

    /// Sets MTU and queue length, and up or down.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn set_link(&mut self, index: u32, mtu: u32, queue_len: u32, up: bool) -> Result<(), Error> {
        let mut m = LinkMessage::default();
        m.header.index = index;
        m.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        m.header.change_mask = LinkFlags::Up;
        m.attributes = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue_len)];
        self.change(RouteNetlinkMessage::SetLink(m), 0, || {
            format!("set mtu {mtu}, queue length {queue_len} and state on interface {index}")
        })
    }

    /// Stops the kernel from giving the interface an IPv6 link-local address, and from soliciting
    /// routers there. To be called while it is down. A kernel without IPv6 has nothing to stop, so
    /// failure is no error.
    pub fn no_link_local(&mut self, index: u32) {
        let mut m = LinkMessage::default();
        m.header.index = index;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        m.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
        let _ = self
            .change(RouteNetlinkMessage::SetLink(m), 0, || format!("set addrgenmode on interface {index}"));
    }

    /// The addresses of all interfaces.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let all = self
            .dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), || "list addresses".into())?;
        Ok(all
            .iter()
            .filter_map(|m| match m {
                RouteNetlinkMessage::NewAddress(m) => {
                    // On a point-to-point link ADDRESS is the peer's and LOCAL is ours.
                    let of = |local: bool| {
                        m.attributes.iter().find_map(|a| match a {
                            AddressAttribute::Local(ip) if local => Some(*ip),
                            AddressAttribute::Address(ip) if !local => Some(*ip),
                            _ => None,
                        })
                    };
                    let ip = of(true).or_else(|| of(false))?;
                    let flags = m.attributes.iter().find_map(|a| match a {
                        AddressAttribute::Flags(flags) => Some(*flags),
                        _ => None,
                    });
                    let flags = flags.unwrap_or(AddressFlags::from_bits_retain(m.header.flags.bits().into()));
                    // An optimistic address (RFC 4429) may be used while it is tentative.
                    let tentative = flags.contains(AddressFlags::Tentative)
                        && !flags.contains(AddressFlags::Optimistic)
                        || flags.contains(AddressFlags::Dadfailed);
                    let deprecated = flags.contains(AddressFlags::Deprecated);
                    let (link, prefix_len) = (m.header.index, m.header.prefix_len);
                    Some(Address { link, ip, prefix_len, tentative, deprecated })
                }
                _ => None,
            })
            .collect())
    }

    /// Gives an interface an address, e.g. a virtual IP address. Having it already is no error.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn add_address(&mut self, address: Address) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewAddress(address_message(address));
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE, || {
            format!("add address {}/{} to interface {}", address.ip, address.prefix_len, address.link)
        })
    }

    /// Takes it away. Not having it is no error.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn delete_address(&mut self, address: Address) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelAddress(address_message(address));
        match self.change(message, 0, || format!("remove address {}/{}", address.ip, address.prefix_len)) {
            Err(e) if matches!(e.errno(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => Ok(()),
            other => other,
        }
    }
}

fn address_message(address: Address) -> AddressMessage {
    let mut m = AddressMessage::default();
    m.header.family = family(address.ip.is_ipv6());
    m.header.prefix_len = address.prefix_len;
    m.header.index = address.link;
    m.attributes = vec![AddressAttribute::Local(address.ip), AddressAttribute::Address(address.ip)];
    m
}

pub(super) fn family(ipv6: bool) -> AddressFamily {
    if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}
