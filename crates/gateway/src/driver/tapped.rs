//! Copies for captures: the data plane's, and those of IKE messages, which pass here.

use std::net::SocketAddr;
use std::sync::Arc;

use ironswan_ike::event::{IkeId, Transmit};
use ironswan_ipsec::Wanted;
use ironswan_wire::sadb::Direction;

use super::Driver;
use crate::dataplane::IkeDatagram;
use crate::dataplane::captured::{Captured, IkeCopy, wall_nanos};

/// The non-ESP marker (RFC 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];

impl Driver {
    /// Begins, changes or ends the data plane's copying. False: it has no copies to give.
    pub(crate) fn capture(&self, wanted: Option<Arc<Wanted>>) -> bool {
        self.0.state.borrow_mut().plane.capture(wanted)
    }

    /// Takes the copies of the data plane.
    pub(crate) fn take_captured(&self) -> Captured {
        self.0.state.borrow_mut().plane.take_captured()
    }

    /// Gives copies of IKE messages to the observers from now on, or no longer.
    pub(crate) fn tap_ike(&self, on: bool) {
        self.0.tapped.set(on);
    }

    /// Has the keys of new SAs told by events from now on, or no longer. Not to be called for an
    /// event.
    pub(crate) fn tell_keys(&self, on: bool) {
        self.0.state.borrow_mut().endpoint.outputs().set_keylog(on);
    }

    /// Copies an IKE message that has arrived.
    pub(super) fn arrives(&self, datagram: &IkeDatagram) {
        if self.0.tapped.get() {
            let IkeDatagram { local, remote, payload } = datagram;
            let natt = self.view(|e, _| e.protocol().options().ports.natt);
            let marker: &[u8] = if local.port() == natt { &MARKER } else { &[] };
            self.copy(Direction::In, (*local, *remote), [marker, payload].concat(), None, marker.len());
        }
    }

    /// Copies an IKE message that is about to leave.
    pub(super) fn leaves(&self, t: &Transmit) {
        if self.0.tapped.get() {
            let mut local = t.local;
            if local.ip().is_unspecified() {
                let hop = self.0.guard.lookup(t.remote.ip(), None).ok().flatten();
                local.set_ip(hop.and_then(|hop| hop.source).unwrap_or(local.ip()));
            }
            let natt = self.view(|e, _| e.protocol().options().ports.natt);
            let at = if local.port() == natt { MARKER.len() } else { 0 };
            self.copy(Direction::Out, (local, t.remote), t.payload.clone(), t.ike, at);
        }
    }

    /// `at`: where the IKE header is.
    fn copy(
        &self,
        direction: Direction,
        (local, remote): (SocketAddr, SocketAddr),
        payload: Vec<u8>,
        ike: Option<IkeId>,
        at: usize,
    ) {
        let spi = |at: usize| {
            let bytes = payload.get(at..at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let known = || {
            let (spi_i, spi_r) = (spi(at)?, spi(at + 8)?);
            self.view(|e, _| e.protocol().ike_of(spi_i, spi_r, remote))
        };
        let ike = ike.or_else(known);
        let copy = IkeCopy { time: wall_nanos(), direction, local, remote, payload, ike };
        let observers = self.0.observers.borrow().clone();
        observers.iter().for_each(|o| o.datagram(copy.clone()));
    }
}
