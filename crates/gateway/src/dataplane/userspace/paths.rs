//! Which ICMP errors about the path to a peer are believed: those that quote an SPI of an outbound
//! SA to that peer.
//!
//! Whoever knows the addresses of both ends can send "fragmentation needed" or "packet too big" in
//! the name of a router. An SPI is known only to who sees the packets, so an error that quotes it
//! comes from the path. The installer keeps the list of outbound SAs, the thread that receives ICMP
//! (`icmp`) asks it, and what is believed stands in [`ironswan_io::known`], where senders
//! and the installer find it.
//!
//! In UDP the SPI lies in bytes 9 to 12 behind the IP header. RFC 792 lets routers quote 8: such
//! errors are never believed, since ports can be guessed (RFC 1812 section 4.3.2.3 has asked
//! routers since 1995 for as much as fits into 576 bytes).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ironswan_io::known::KnownPaths;
use ironswan_io::sysctl;
use ironswan_wire::ip::icmp::{self, TooBig};
use ironswan_wire::sadb::{ReqId, SaRef, Spi};

/// Protocol and port of an outbound SA's packets on their way, as an ICMP error quotes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The protocol that has the SPI: 50 (ESP) or 51 (AH).
    pub protocol: u8,
    /// The peer's port, if they are in UDP.
    pub port: Option<u16>,
}

/// Outbound SAs.
#[derive(Debug, Default)]
struct Sas {
    /// More than one where peers behind one NAT have chosen the same SPI.
    by_spi: HashMap<(IpAddr, Spi), Vec<(ReqId, Shape)>>,
    /// How many there are to a peer.
    peers: HashMap<IpAddr, usize>,
}

/// The outbound SAs, what is known of their paths, and how many errors were believed and refused.
#[derive(Debug, Default)]
pub struct Paths {
    known: Arc<KnownPaths>,
    sas: Mutex<Sas>,
    believed: AtomicU64,
    refused: AtomicU64,
}

impl Paths {
    /// The path MTUs that are known.
    pub fn known(&self) -> &Arc<KnownPaths> {
        &self.known
    }

    /// ICMP errors that were believed, and that were not: they quoted a packet like ours, but no
    /// SPI of an SA to its receiver.
    pub fn counters(&self) -> [(&'static str, u64); 2] {
        [("icmp-believed", self.believed.load(Relaxed)), ("icmp-refused", self.refused.load(Relaxed))]
    }

    /// An outbound SA has come.
    pub fn add(&self, sa: &SaRef, shape: Shape) {
        let mut sas = self.sas();
        let same = sas.by_spi.entry((sa.remote, sa.spi)).or_default();
        match same.iter_mut().find(|(reqid, _)| *reqid == sa.reqid) {
            Some((_, known)) => *known = shape,
            None => {
                same.push((sa.reqid, shape));
                *sas.peers.entry(sa.remote).or_default() += 1;
            }
        }
    }

    /// An outbound SA is gone. With the last to a peer goes what the routing table said of the
    /// path.
    pub fn remove(&self, sa: &SaRef) {
        let mut sas = self.sas();
        let Some(same) = sas.by_spi.get_mut(&(sa.remote, sa.spi)) else { return };
        let before = same.len();
        same.retain(|(reqid, _)| *reqid != sa.reqid);
        let gone = before - same.len();
        if same.is_empty() {
            sas.by_spi.remove(&(sa.remote, sa.spi));
        }
        if let Some(left) = sas.peers.get_mut(&sa.remote) {
            *left -= gone.min(*left);
            if *left == 0 {
                sas.peers.remove(&sa.remote);
                self.known.set_route_mtu(sa.remote, None);
            }
        }
    }

    /// The routing table gives the path to `remote` this MTU, or (`None`) leaves it to the link.
    /// Kept while there is an SA.
    pub fn routed(&self, remote: IpAddr, mtu: Option<u32>) {
        let sas = self.sas();
        if sas.peers.contains_key(&remote) {
            self.known.set_route_mtu(remote, mtu);
        }
    }

    /// Judges an ICMP message (`whole`: nothing of it is missing) that was sent to `local`; `natt`
    /// is our port for ESP in UDP. The peer, if the path to it has become narrower by that.
    pub fn judge(
        &self,
        now: Instant,
        local: IpAddr,
        natt: Option<u16>,
        message: &[u8],
        whole: bool,
    ) -> Option<IpAddr> {
        let ipv6 = local.is_ipv6();
        let error = icmp::too_big(message, ipv6)?;
        // Other programs' datagrams, and IKE, which may be fragmented: the kernel looks after
        // these.
        if error.ports.is_some_and(|(ours, _)| Some(ours) != natt) || error.spi == Some(Spi(0)) {
            return None;
        }
        // The kernel has looked at the checksum of ICMPv6 only, which covers addresses.
        let ours = error.from == local && self.has(&error) && (ipv6 || whole && icmp::is_sound(message));
        let counter = if ours { &self.believed } else { &self.refused };
        counter.fetch_add(1, Relaxed);
        if !ours {
            return None;
        }
        let mtu = error.mtu.max(sysctl::least_path_mtu(ipv6));
        let until = now + sysctl::path_mtu_expires(ipv6);
        self.known.learn_icmp_mtu(error.to, mtu, until).then_some(error.to)
    }

    /// True when there is an outbound SA whose packets look as the quoted one.
    fn has(&self, error: &TooBig) -> bool {
        let Some(spi) = error.spi else { return false };
        let shape = Shape { protocol: error.protocol, port: error.ports.map(|(_, theirs)| theirs) };
        let sas = self.sas();
        sas.by_spi.get(&(error.to, spi)).is_some_and(|same| same.iter().any(|(_, known)| *known == shape))
    }

    fn sas(&self) -> MutexGuard<'_, Sas> {
        self.sas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
