//! A kernel that only remembers, for tests.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, NextHop, Route, RouteKind, Rule};

use super::Kernel;
use crate::guard::standing::default_metric;

/// State of a kernel that only remembers.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) path_mtu: u32,
    /// MTU of the link, for paths of which nothing is known (`path_mtu` 0), and how often it was
    /// asked for.
    pub(crate) link_mtu: u32,
    pub(crate) link_asks: u32,
    /// `path_mtu` is what the kernel has learned from ICMP; the route's own is this.
    pub(crate) path_expires: Option<Duration>,
    pub(crate) route_mtu: u32,
    pub(crate) lookups: usize,
    pub(crate) dumps: usize,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) changes: usize,
    /// Changes, in order.
    pub(crate) done: Vec<String>,
    /// Answers about routes (links, where `path_mtu` is 0) are not understood.
    pub(crate) puzzles: bool,
    /// Rules are not listed.
    pub(crate) silent: bool,
    /// Lines about objects that the lists lack.
    pub(crate) left_out: Vec<String>,
    /// Changes whose text contains this are refused.
    pub(crate) refuse: Option<&'static str>,
}

impl Table {
    fn change(&mut self, what: String) -> Result<(), IoError> {
        if self.refuse.is_some_and(|r| what.contains(r)) {
            let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
            return Err(IoError::Netlink { what, source });
        }
        self.done.push(what);
        self.changes += 1;
        Ok(())
    }

    /// The routes to the device.
    pub(crate) fn device(&self) -> Vec<&Route> {
        self.routes.iter().filter(|r| matches!(r.kind, RouteKind::Device(_))).collect()
    }
}

/// The kernel makes metric 0 of IPv6 routes 1024.
fn as_kept(route: &Route) -> Route {
    let metric = if route.metric == 0 { default_metric(route.destination.ip) } else { route.metric };
    Route { metric, ..route.clone() }
}

/// A kernel that only remembers.
pub(crate) struct Fake(pub(crate) Rc<RefCell<Table>>);

impl Kernel for Fake {
    fn set_route(&mut self, route: &Route) -> Result<(), IoError> {
        let mut t = self.0.borrow_mut();
        t.change(format!("set {route}"))?;
        let route = as_kept(route);
        t.routes.retain(|r| (r.destination, r.metric) != (route.destination, route.metric));
        t.routes.push(route);
        Ok(())
    }
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError> {
        let mut t = self.0.borrow_mut();
        t.change(format!("delete {route}"))?;
        let route = as_kept(route);
        let of = |r: &Route| (r.destination, r.metric, r.kind);
        t.routes.retain(|r| of(r) != of(&route));
        Ok(())
    }
    fn lookup(&mut self, to: IpAddr, _: Option<IpAddr>, mark: u32) -> Result<Option<NextHop>, IoError> {
        assert_eq!(mark, 0x220);
        let (source, mut t) = (Some([192, 0, 2, 1].into()), self.0.borrow_mut());
        t.lookups += 1;
        if t.puzzles && t.path_mtu != 0 {
            return Err(IoError::Answer { what: format!("look up the route to {to}") });
        }
        Ok(Some(NextHop {
            link: 2,
            gateway: None,
            source,
            mtu: t.path_mtu,
            expires: t.path_expires,
            local: false,
        }))
    }
    fn configured(
        &mut self,
        to: IpAddr,
        from: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError> {
        let own = self.0.borrow().route_mtu;
        Ok(self.lookup(to, from, mark)?.map(|hop| NextHop { mtu: own, expires: None, ..hop }))
    }
    fn link_mtu(&mut self, link: u32) -> Result<Option<u32>, IoError> {
        let mut t = self.0.borrow_mut();
        t.link_asks += 1;
        if t.puzzles {
            return Err(IoError::Answer { what: format!("show interface {link}") });
        }
        Ok(Some(t.link_mtu).filter(|_| link == 2))
    }
    fn addresses(&mut self) -> Result<Vec<Address>, IoError> {
        self.0.borrow_mut().dumps += 1;
        Ok(self.0.borrow().addresses.iter().map(|ip| Address::new(1, *ip, 24)).collect())
    }
    fn routes(&mut self) -> Result<Vec<Route>, IoError> {
        Ok(self.0.borrow().routes.clone())
    }
    fn rules(&mut self) -> Result<Vec<Rule>, IoError> {
        let t = self.0.borrow();
        if t.silent {
            return Err(IoError::Answer { what: "list the rules".to_owned() });
        }
        Ok(t.rules.clone())
    }
    fn left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().left_out)
    }
    fn add_rule(&mut self, rule: &Rule) -> Result<(), IoError> {
        let mut t = self.0.borrow_mut();
        t.change(format!("add rule {rule}"))?;
        t.rules.push(*rule);
        Ok(())
    }
    fn delete_rule(&mut self, rule: &Rule) -> Result<usize, IoError> {
        let mut t = self.0.borrow_mut();
        t.change(format!("delete rule {rule}"))?;
        t.rules.retain(|r| r != rule);
        Ok(1)
    }
}
