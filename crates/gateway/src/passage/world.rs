//! The questions that are asked of the kernel about a packet's way.

use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, Link, Netlink, RouteAnswer, RouteQuery};
use ironswan_io::sysctl::{self, ReversePath};
use ironswan_keying::diagnosis::Packet;
use ironswan_wire::selector::AddrRange;

use crate::guard::plan::Settings;
use crate::start::fitness::{self, Facts};

/// The kernel, or a stand-in of tests.
pub(super) trait World {
    /// The way of a packet.
    fn way(&mut self, packet: &RouteQuery) -> Result<RouteAnswer, IoError>;
    /// All interfaces.
    fn links(&self) -> &[Link];
    /// This machine's addresses.
    fn addresses(&self) -> &[Address];
    /// Packets for others that come by this interface are passed on.
    fn forwards_from(&self, ipv6: bool, link: &str) -> bool;
    /// Packets for others are passed on, where an interface does not say otherwise.
    fn forwards(&self, ipv6: bool) -> bool;
    /// `rp_filter` of an interface as it is in force.
    fn reverse_path(&self, link: &str) -> ReversePath;
    /// Rules and routes of other programs that may lead protected packets elsewhere, a line each.
    fn foreign(&mut self, settings: &Settings) -> Vec<String>;
}

/// The kernel of this network namespace.
pub(super) struct KernelWorld {
    netlink: Netlink,
    links: Vec<Link>,
    addresses: Vec<Address>,
}

impl KernelWorld {
    /// Reads links and addresses.
    pub(super) fn read() -> Result<Self, IoError> {
        let mut netlink = Netlink::open()?;
        let (links, addresses) = (netlink.links()?, netlink.addresses()?);
        Ok(Self { netlink, links, addresses })
    }
}

impl World for KernelWorld {
    fn way(&mut self, packet: &RouteQuery) -> Result<RouteAnswer, IoError> {
        self.netlink.way(packet)
    }

    fn links(&self) -> &[Link] {
        &self.links
    }

    fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    fn forwards_from(&self, ipv6: bool, link: &str) -> bool {
        sysctl::forwards_from(ipv6, link)
    }

    fn forwards(&self, ipv6: bool) -> bool {
        sysctl::forwarding(ipv6)
    }

    fn reverse_path(&self, link: &str) -> ReversePath {
        sysctl::effective_reverse_path(link)
    }

    fn foreign(&mut self, settings: &Settings) -> Vec<String> {
        match Facts::routing(&mut self.netlink, self.links.clone()) {
            Ok(facts) => fitness::leads_elsewhere(&facts, settings),
            Err(e) => vec![e.to_string()],
        }
    }
}

/// What more than one direction asks.
pub(super) trait Ask: World {
    /// The interface with this index.
    fn link_at(&self, index: u32) -> Option<&Link> {
        self.links().iter().find(|l| l.index == index)
    }

    /// Name of the interface with this index.
    fn name_of(&self, index: u32) -> String {
        self.link_at(index).map_or_else(|| format!("#{index}"), |l| super::shown(&l.name))
    }

    /// The interface on whose network the address lies, whether the interface is up or not: with a
    /// link that is down its routes have gone, and its addresses have not.
    fn network_of(&self, ip: IpAddr) -> Option<&Link> {
        let on = |a: &&Address| AddrRange::prefix(a.ip, a.prefix_len).is_some_and(|net| net.contains(ip));
        let nearest = self.addresses().iter().filter(on).max_by_key(|a| a.prefix_len)?;
        self.link_at(nearest.link)
    }

    /// The interface on whose network the address lies, when it is down or without a carrier.
    fn lost_link(&self, ip: IpAddr) -> Option<Packet> {
        let lost = self.network_of(ip).filter(|l| !l.up || !l.carrier)?;
        Some(Packet::LinkDown { name: super::shown(&lost.name), carrier: lost.up })
    }

    /// The address, when it is one of this machine.
    fn own(&self, ip: IpAddr) -> Option<&Address> {
        self.addresses().iter().find(|a| a.ip == ip)
    }
}

impl<W: World + ?Sized> Ask for W {}

/// The kernel's refusal in words.
pub(super) fn refusal(errno: i32) -> String {
    match errno {
        0 => "the route carries no such packets".to_owned(),
        errno => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            // "Network is unreachable (os error 101)": the number says nothing more.
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}
