//! Half-open IKE_SAs that we answer for: how many there are, from where, and finding the one that a repeated IKE_SA_INIT
//! belongs to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::event::IkeId;

/// From one address, cookies are asked for from this many half-open IKE_SAs on (charon's `cookie_threshold_ip`).
pub(crate) const COOKIE_THRESHOLD_ADDR: usize = 3;

/// The table. No map here is ever iterated.
#[derive(Default)]
pub(crate) struct HalfOpen {
    count: usize,
    by_addr: HashMap<IpAddr, usize>,
    by_init: HashMap<(u64, SocketAddr), IkeId>,
}

impl HalfOpen {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many there are from this address.
    pub(crate) fn from(&self, addr: IpAddr) -> usize {
        self.by_addr.get(&addr).copied().unwrap_or(0)
    }

    /// The IKE_SA that this initiator's SPI and address has made.
    pub(crate) fn find(&self, spi_i: u64, remote: SocketAddr) -> Option<IkeId> {
        self.by_init.get(&(spi_i, remote)).copied()
    }

    /// One more.
    pub(crate) fn add(&mut self, spi_i: u64, remote: SocketAddr, id: IkeId) {
        self.count += 1;
        *self.by_addr.entry(remote.ip()).or_default() += 1;
        self.by_init.insert((spi_i, remote), id);
    }

    /// One is authenticated or gone: it counts no more, but a late copy of its IKE_SA_INIT is still known by
    /// [`Self::find`] until [`Self::forget`].
    pub(crate) fn close(&mut self, remote: SocketAddr) {
        self.count -= 1;
        if let Some(n) = self.by_addr.get_mut(&remote.ip()) {
            *n -= 1;
            if *n == 0 {
                self.by_addr.remove(&remote.ip());
            }
        }
    }

    /// How many requests are known by their initiators.
    pub(crate) fn requests(&self) -> usize {
        self.by_init.len()
    }

    /// From how many addresses they are.
    pub(crate) fn addresses(&self) -> usize {
        self.by_addr.len()
    }

    /// Forgets the request.
    pub(crate) fn forget(&mut self, spi_i: u64, remote: SocketAddr) {
        self.by_init.remove(&(spi_i, remote));
    }
}
