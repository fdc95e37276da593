//! The kernel's routing as this gateway uses it: rtnetlink, or a stand-in of tests.

use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, Netlink, NextHop, Route, Rule, TABLE};

/// Questions and changes of the kernel's routing. Tests have stand-ins.
pub trait Kernel {
    /// Adds or replaces a route.
    fn set_route(&mut self, route: &Route) -> Result<(), IoError>;
    /// Removes a route.
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError>;
    /// How a packet with this mark would leave; an MTU of 0 is the interface's.
    fn lookup(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError>;
    /// The same of the route as it was configured, whatever ICMP errors have made the kernel
    /// believe of the path.
    fn configured(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError>;
    /// The MTU of an interface, if it is there.
    fn link_mtu(&mut self, link: u32) -> Result<Option<u32>, IoError>;
    /// This machine's addresses.
    fn addresses(&mut self) -> Result<Vec<Address>, IoError>;
    /// The routes of table 220.
    fn routes(&mut self) -> Result<Vec<Route>, IoError>;
    /// The rules of the kind that is used here.
    fn rules(&mut self) -> Result<Vec<Rule>, IoError>;
    /// Lines about objects that are missing in these lists because their messages were not
    /// understood; for each list once.
    fn left_out(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Adds a rule, once.
    fn add_rule(&mut self, rule: &Rule) -> Result<(), IoError>;
    /// Removes a rule and its copies.
    fn delete_rule(&mut self, rule: &Rule) -> Result<usize, IoError>;
}

impl Kernel for Netlink {
    fn set_route(&mut self, route: &Route) -> Result<(), IoError> {
        Netlink::set_route(self, route)
    }
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError> {
        Netlink::delete_route(self, route)
    }
    fn lookup(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError> {
        Netlink::lookup_route(self, remote, source, mark)
    }
    fn configured(
        &mut self,
        remote: IpAddr,
        source: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError> {
        Netlink::configured_route(self, remote, source, mark)
    }
    fn link_mtu(&mut self, link: u32) -> Result<Option<u32>, IoError> {
        Netlink::link_mtu(self, link)
    }
    fn addresses(&mut self) -> Result<Vec<Address>, IoError> {
        Netlink::addresses(self)
    }
    fn routes(&mut self) -> Result<Vec<Route>, IoError> {
        Netlink::routes(self, TABLE)
    }
    fn rules(&mut self) -> Result<Vec<Rule>, IoError> {
        Netlink::rules(self)
    }
    fn left_out(&mut self) -> Vec<String> {
        Netlink::left_out(self)
    }
    fn add_rule(&mut self, rule: &Rule) -> Result<(), IoError> {
        Netlink::add_rule(self, rule)
    }
    fn delete_rule(&mut self, rule: &Rule) -> Result<usize, IoError> {
        Netlink::delete_rule(self, rule)
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
pub(crate) mod tests;
