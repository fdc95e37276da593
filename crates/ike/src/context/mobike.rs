//! MOBIKE (RFC 4555): when an IKE_SA moves to other addresses, and with what.
//!
//! ```text
//! our address changes        the original initiator moves: UPDATE_SA_ADDRESSES from the new one
//! no answer to a request     it is sent to further addresses of the peer as well; the way by which
//!                            the answer comes is taken
//! our further addresses      told to the peer
//! ```
//! Children in transport mode, and those with the outer address as selector, cannot move: a new
//! IKE_SA takes over, as without MOBIKE. The exchanges stand in `task::mobike`.

use std::net::{IpAddr, SocketAddr};

use super::Context;
use crate::child::Child;
use crate::event::Level;
use crate::sa::{Datagram, IkeSa};
use crate::task::{Mobike, Task, liveness, mobike, path_probe};
use ironswan_keying::limits::{ADDITIONAL_ADDRESSES, PATH_TEST_AFTER, PATH_TESTS};
use ironswan_wire::sadb::Mode;

impl Context<'_> {
    /// Addresses of ours, besides the one in use, that the connection allows.
    pub(crate) fn further_addresses(&self, sa: &IkeSa) -> Vec<IpAddr> {
        let ours = self.settings.addresses.iter().filter(|addr| *addr != sa.local().ip());
        let global = |addr: &IpAddr| match addr {
            IpAddr::V4(a) => !a.is_loopback() && !a.is_link_local(),
            IpAddr::V6(a) => !a.is_loopback() && !a.is_unicast_link_local(),
        };
        let allowed = |addr: &IpAddr| self.policy().means(&sa.conn().local_addrs, *addr);
        ours.filter(global).filter(allowed).take(ADDITIONAL_ADDRESSES).collect()
    }

    /// True when this address is one of ours, as we have been told.
    pub(crate) fn is_known_ours(&self, addr: IpAddr) -> bool {
        self.settings.addresses.iter().any(|ours| ours == addr)
    }

    /// Tells the peer our further addresses, if it has been told others.
    pub(crate) fn tell_addresses(&mut self, sa: &mut IkeSa) {
        let stale = sa.is_up() && sa.mobility().agreed && sa.mobility().told != self.further_addresses(sa);
        let queued = |t: &Task| matches!(t, Task::Mobike(Mobike::Addresses | Mobike::Update { .. }));
        if stale && !sa.work().queued().any(queued) {
            sa.work_mut().push(Task::Mobike(Mobike::Addresses));
        }
    }

    /// True when we can move this IKE_SA with all of its children away from our present address.
    pub(crate) fn can_move(&self, sa: &IkeSa) -> bool {
        let here = sa.local().ip();
        let fixed = |c: &Child| {
            let outer =
                c.agreed().local_ts.iter().any(|ts| ts.range.start() == here && ts.range.end() == here);
            c.agreed().mode == Mode::Transport || outer
        };
        sa.moves() && !sa.children().any(fixed)
    }

    /// Moves the IKE_SA and its children, and tells the peer. A request in flight is sent again
    /// from the new address: the peer answers it to where it comes from.
    pub(crate) fn relocate(&mut self, sa: &mut IkeSa, local: IpAddr, remote: IpAddr) {
        if local.is_ipv4() != remote.is_ipv4() || self.move_clashes(sa, remote) {
            return;
        }
        let old = sa.remote().ip();
        let line = format!("moving IKE_SA {} to {local}...{remote}", sa.name());
        self.log(Level::Info, sa, line);
        sa.path().set_local_ip(local);
        sa.path().set_remote_ip(remote);
        sa.path().mobility_mut().offered = None;
        sa.path().unblock();
        self.move_children(sa, old);
        self.rearm_path(sa);
        self.queue_update(sa);
        self.send_again(sa);
        path_probe::begin(self, sa);
    }

    /// Timers that depend on addresses.
    pub(crate) fn rearm_path(&mut self, sa: &IkeSa) {
        liveness::rearm(self, sa);
        liveness::rearm_keepalive(self, sa);
    }

    /// Tells the peer our addresses next.
    pub(crate) fn queue_update(&mut self, sa: &mut IkeSa) {
        if !mobike::update_waits(sa) {
            let update = Mobike::Update { ends: None, cookie: Vec::new() };
            sa.work_mut().push_first(Task::Mobike(update));
        }
    }

    /// The peer has other further addresses, by a message between these ends. Where it does not
    /// have its present address any more, it is asked at both: the source of a datagram proves
    /// nothing.
    pub(crate) fn peer_addresses_changed(&mut self, sa: &mut IkeSa, ends: (SocketAddr, SocketAddr)) {
        let (here, there) = (sa.remote().ip(), ends.1.ip());
        if !sa.moves() || there == here || sa.mobility().peer.contains(&here) || sa.nat().remote {
            return;
        }
        if sa.is_blocked() {
            // There is no way to where it was, and it may be reached where it says.
            return self.relocate(sa, ends.0.ip(), ends.1.ip());
        }
        sa.path().mobility_mut().offered = Some(ends);
        if sa.work().active().is_some() {
            self.send_again(sa);
        } else {
            liveness::queue(sa);
        }
    }

    /// A request has had no answer for a while: it goes to further addresses of the peer as well.
    pub(crate) fn test_paths(&mut self, sa: &IkeSa, tries: u32, message: &[Vec<u8>]) {
        for ends in asked_as_well(sa, tries).collect::<Vec<_>>() {
            self.transmit_all(sa, ends, message);
        }
    }

    /// The answer to a request that has been sent again so often has come by another way than that
    /// of the IKE_SA: this one works, if the request has gone there. The source of a datagram alone
    /// says nothing, as its answer is authentic wherever it comes from.
    pub(crate) fn follow_answer(&mut self, sa: &mut IkeSa, d: &Datagram, tries: u32) {
        let asked = asked_as_well(sa, tries).any(|(_, remote)| remote == d.remote);
        sa.path().mobility_mut().offered = None;
        if asked && self.is_ours(d.local.ip()) {
            self.relocate(sa, d.local.ip(), d.remote.ip());
        }
    }
}

/// Further ways to the peer by which a request goes that has been sent again so often.
fn asked_as_well(sa: &IkeSa, tries: u32) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    let tests = sa.moves() && sa.is_up() && tries >= PATH_TEST_AFTER;
    let (local, here) = (sa.local(), sa.remote());
    let others =
        sa.mobility().peer.iter().filter(move |a| a.is_ipv4() == local.is_ipv4() && **a != here.ip());
    let others = others.take(if tests { PATH_TESTS } else { 0 });
    let offered = sa.mobility().offered.filter(|_| sa.moves() && sa.is_up());
    offered.into_iter().chain(others.map(move |addr| (local, SocketAddr::new(*addr, here.port()))))
}
