//! Addresses and ports at which peers were reached by NAT traversal (UDP 4500): a peer that is
//! silent on UDP 500 afterwards is behind a filter rather than dead.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ironswan_keying::limits::REACHED_KEPT;

/// Ports by address. Only authenticated peers are in it.
#[derive(Default)]
pub(crate) struct Reached(BTreeMap<IpAddr, u16>);

impl Reached {
    /// A peer has been authenticated at this address and port. When the table is full, another
    /// address is forgotten.
    pub(crate) fn note(&mut self, peer: SocketAddr) {
        self.0.insert(peer.ip(), peer.port());
        if self.0.len() > REACHED_KEPT {
            let first = self.0.keys().next().copied().filter(|first| *first != peer.ip());
            match first {
                Some(first) => _ = self.0.remove(&first),
                None => _ = self.0.pop_last(),
            }
        }
    }

    /// The address and port at which a peer was reached last.
    pub(crate) fn at(&self, peer: IpAddr) -> Option<SocketAddr> {
        self.0.get(&peer).map(|port| SocketAddr::new(peer, *port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_port_counts_and_the_table_does_not_grow_without_end() {
        let mut reached = Reached::default();
        let at = |n: u32, port| SocketAddr::new(n.to_be_bytes().into(), port);
        for n in 0..2 * REACHED_KEPT as u32 {
            reached.note(at(n, 4500));
            reached.note(at(n, 4501));
            assert_eq!(reached.at(at(n, 0).ip()), Some(at(n, 4501)));
        }
        assert_eq!(reached.0.len(), REACHED_KEPT);
        reached.note(at(0, 4500));
        assert_eq!(reached.at(at(0, 0).ip()), Some(at(0, 4500)), "the lowest of all");
        assert_eq!(reached.0.len(), REACHED_KEPT);
    }
}
