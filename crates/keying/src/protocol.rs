//! A key exchange protocol as policy sees it: it obeys orders and reports. Several versions of a
//! protocol may be behind one implementation of the trait, so that they share one
//! [`Tunnels`](crate::Tunnels).

use std::net::IpAddr;
use std::time::Instant;

use crate::tunnels::Start;
use crate::{Diagnosis, IkeId, Limits, Order, Report, Ticket};

/// SAs that a command is about: everything that is given must match. All `None` matches nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Connection's name.
    pub ike: Option<String>,
    /// Child's name.
    pub child: Option<String>,
    /// IKE_SA's unique id.
    pub ike_id: Option<u64>,
    /// CHILD_SA's unique id.
    pub child_id: Option<u64>,
}

impl Target {
    /// True when the command is about children alone.
    pub fn children_only(&self) -> bool {
        self.child.is_some() || self.child_id.is_some()
    }

    /// True when this IKE_SA of connection `conn` matches.
    pub fn matches_ike(&self, id: IkeId, conn: &str) -> bool {
        (self.ike.is_some() || self.ike_id.is_some() || self.children_only())
            && self.ike.as_ref().is_none_or(|name| name == conn)
            && self.ike_id.is_none_or(|of| of == id.0)
    }

    /// True when the CHILD_SA of this number and name matches, if its IKE_SA does.
    pub fn matches_child(&self, id: u64, name: &str) -> bool {
        self.child.as_ref().is_none_or(|of| of == name) && self.child_id.is_none_or(|of| of == id)
    }
}

/// A key exchange protocol. [`Joined`](crate::Joined) takes its reports after every call.
pub trait Protocol {
    /// Obeys an order.
    fn obey(&mut self, now: Instant, order: Order);

    /// The next report. They are taken in the order in which things have happened.
    fn poll_report(&mut self) -> Option<Report>;

    /// Begins an attempt for one child that an operator has asked for. The ticket's end says how
    /// the attempt ended; a child that is up already is done at once.
    ///
    /// # Errors
    /// The reason why the attempt cannot begin.
    fn initiate(&mut self, now: Instant, start: Start) -> Result<Ticket, Diagnosis>;

    /// Closes the SAs that match: children when the target names one, IKE_SAs otherwise. With
    /// `force` nothing is waited for. Returns their number, and the ticket that ends when all are
    /// closed.
    ///
    /// # Errors
    /// When nothing matches.
    fn terminate(&mut self, now: Instant, target: &Target, force: bool)
    -> Result<(usize, Ticket), Diagnosis>;

    /// Rekeys the SAs that match: children when the target names one, IKE_SAs otherwise. Returns
    /// their number, and the ticket that ends with the last rekeying.
    ///
    /// # Errors
    /// When nothing matches.
    fn rekey(&mut self, now: Instant, target: &Target, reauth: bool) -> Result<(usize, Ticket), Diagnosis>;

    /// Sends a DELETE for every IKE_SA that the peer has or may have, once, and drops everything.
    fn shutdown(&mut self, now: Instant);

    /// Links, addresses or routes have changed; `addresses` are all addresses that are ours now.
    fn network_changed(&mut self, now: Instant, addresses: &[IpAddr]);

    /// Takes over limits and times. Timers that are set already stay, except for those of
    /// NAT-keepalives, which follow `keep_alive`.
    fn set_limits(&mut self, now: Instant, limits: Limits);

    /// Time has passed: fires every timer that is due.
    fn handle_timeout(&mut self, now: Instant);

    /// When [`Self::handle_timeout`] must be called next.
    fn poll_timeout(&self) -> Option<Instant>;

    /// How far the attempt of ours for this child (`None`: for the IKE_SA) of a connection is, or
    /// `None` when the protocol is not bringing the child up.
    fn progress(&self, conn: &str, child: Option<&str>) -> Option<String>;

    /// How far any attempt of ours for this connection is that waits for the peer or for this
    /// machine.
    fn under_way(&self, conn: &str) -> Option<String>;

    /// Number of entries in every table that a peer, a command or time may fill, by name.
    fn tables(&self) -> Vec<(&'static str, usize)>;
}
