//! Hardware properties of an interface: MAC address, made by software or not, receive queues.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage};

use super::netlink::Netlink;
use crate::error::Error;

/// An interface that carries Ethernet frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// Index.
    pub index: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Made by software (veth, bridge, bond, VLAN ..), and not a driver's.
    pub software: bool,
    /// Receive queues that were made; fewer may be in use.
    pub queues: u32,
}

impl Netlink {
    /// The Ethernet interface of this name; `None` when it is of another type.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Answer`], or what the kernel says.
    pub fn ethernet(&mut self, name: &str) -> Result<Option<Ethernet>, Error> {
        let mut m = LinkMessage::default();
        m.attributes.push(LinkAttribute::IfName(name.into()));
        let m = match self.get(RouteNetlinkMessage::GetLink(m)) {
            Ok(RouteNetlinkMessage::NewLink(m)) => m,
            Ok(_) => return Err(Error::Answer { what: format!("show the interface {name}") }),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                return Err(Error::NoDevice { name: name.into() });
            }
            Err(e) => return Err(Error::request(format!("show the interface {name}"), e)),
        };
        let mut mac = None;
        let mut link = Ethernet { index: m.header.index, mtu: 0, mac: [0; 6], software: false, queues: 1 };
        for a in &m.attributes {
            match a {
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(a) => mac = <[u8; 6]>::try_from(a.as_slice()).ok(),
                LinkAttribute::NumRxQueues(n) => link.queues = *n,
                LinkAttribute::LinkInfo(info) => {
                    link.software = info.iter().any(|i| matches!(i, LinkInfo::Kind(_)));
                }
                _ => {}
            }
        }
        let ethernet = m.header.link_layer_type == LinkLayerType::Ether;
        Ok(mac.filter(|_| ethernet).map(|mac| Ethernet { mac, ..link }))
    }
}
