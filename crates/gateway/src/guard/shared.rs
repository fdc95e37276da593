//! The record of the guard together with the kernel's routing, shared on the control thread by the
//! driver and by a data plane that sets routes of its own.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, NextHop, Route};
use ironswan_keying::diagnosis::Guard;

use crate::guard::ingress::left_out;
use crate::guard::standing::StandingGuard;
use crate::network::Kernel;

struct Shared {
    guard: StandingGuard,
    kernel: Box<dyn Kernel>,
    /// Reasons why look-ups failed, by error number (none: an answer that is not understood). Each
    /// is logged once.
    unanswered: HashSet<Option<i32>>,
}

/// A handle to the record of the guard and to the kernel's routing.
#[derive(Clone)]
pub struct SharedGuard(Rc<RefCell<Shared>>);

impl SharedGuard {
    /// Shares these.
    pub fn new(guard: StandingGuard, kernel: Box<dyn Kernel>) -> Self {
        Self(Rc::new(RefCell::new(Shared { guard, kernel, unanswered: HashSet::new() })))
    }

    /// Looks at the guard.
    pub fn look<R>(&self, f: impl FnOnce(&StandingGuard) -> R) -> R {
        f(&self.0.borrow().guard)
    }

    /// Changes something at the guard, or in the kernel.
    pub fn change<R>(&self, f: impl FnOnce(&mut StandingGuard, &mut dyn Kernel) -> R) -> R {
        let shared = &mut *self.0.borrow_mut();
        f(&mut shared.guard, &mut *shared.kernel)
    }

    /// Asks the kernel how a packet with our mark would leave; `None` when there is no route. A
    /// failure is logged once for each reason.
    ///
    /// # Errors
    /// The error of the kernel, or that its answer is not understood. That is not "no route":
    /// whatever was known before holds.
    pub fn lookup(&self, remote: IpAddr, source: Option<IpAddr>) -> Result<Option<NextHop>, IoError> {
        let found = self.change(|guard, kernel| kernel.lookup(remote, source, guard.settings().mark));
        found.inspect_err(|e| self.no_answer(e))
    }

    /// Logs that the kernel did not answer, once for each reason.
    pub fn no_answer(&self, e: &IoError) {
        let shared = &mut *self.0.borrow_mut();
        if shared.unanswered.insert(e.errno()) {
            let unknown = Guard::WayUnknown { why: e.to_string() };
            shared.guard.say(unknown);
        }
    }

    /// Addresses of this machine from which something may be sent to other machines. `device` is
    /// the index of the data plane's own interface, whose addresses do not count.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn addresses(&self, device: Option<u32>) -> Result<Vec<IpAddr>, IoError> {
        let usable = |a: &Address| {
            let link_local = match a.ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            !a.tentative && Some(a.link) != device && !a.ip.is_loopback() && !link_local
        };
        let all = self.change(|_, kernel| kernel.addresses())?;
        Ok(all.into_iter().filter(usable).map(|a| a.ip).collect())
    }

    /// Compares the guard's rules and routes with those in the kernel, and restores the missing
    /// ones. Returns their names, and the routes of table 220 as they were found.
    ///
    /// # Errors
    /// The kernel does not list its rules or routes.
    pub fn restore(&self) -> Result<(Vec<String>, Vec<Route>), IoError> {
        self.change(|guard, kernel| {
            let (rules, routes) = (kernel.rules()?, kernel.routes()?);
            let said = left_out(kernel.left_out());
            said.into_iter().for_each(|d| guard.say(d));
            let missing = guard.compare(&rules, &routes);
            guard.close(kernel);
            Ok((missing, routes))
        })
    }
}
