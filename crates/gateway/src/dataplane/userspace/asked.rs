//! Requests of IKE that were sent last, and which ICMP errors about datagrams quote one of them.
//!
//! ```text
//! IkeSender ── request ──▶ by SPI, by peer ◀── error ── thread of ICMP ──▶ control thread
//! ```
//! An error that quotes our SPI is *certain*: only who sees our packets knows it. An error that
//! quotes addresses and ports of the latest request to a peer is *likely*. All others are counted
//! and dropped here: a stale or wrong SPI, a peer to which nothing was sent, ESP in UDP.
//!
//! Forged errors cost their thread a look-up each. Of those that pass, each request lets
//! [`ERRORS_PER_REQUEST`] through, so that the control thread has less work with them than with the
//! requests themselves. Both tables have a fixed number of places; a request takes the place of
//! another one of the same hash, which nobody can predict.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ironswan_ike::event::Undelivered;
use ironswan_keying::diagnosis::Icmp;
use ironswan_wire::ike::Header;
use ironswan_wire::ip::icmp;

/// Places of each table.
const PLACES: usize = 4096;
/// Errors about one sent request that are passed on, for each table.
const ERRORS_PER_REQUEST: u8 = 4;
/// Bytes in front of IKE on the port for NAT traversal.
const MARKER: usize = 4;

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Our SPI.
    spi: u64,
    /// Our port.
    port: u16,
    /// The peer's address and port.
    remote: SocketAddr,
    /// Errors about it that are still passed on.
    left: u8,
}

/// Requests by our SPI, and by the peer's address and port.
#[derive(Debug)]
struct Tables {
    by_spi: Box<[Option<Request>]>,
    by_peer: Box<[Option<Request>]>,
}

/// Requests that were sent last. Those who send write, and the thread of ICMP reads.
#[derive(Debug)]
pub(super) struct Asked {
    hasher: RandomState,
    tables: Mutex<Tables>,
    /// Our port where IKE has the non-ESP marker in front.
    natt: u16,
    passed: AtomicU64,
    refused: AtomicU64,
}

impl Asked {
    pub(super) fn new(natt: u16) -> Self {
        let table = || vec![None; PLACES].into_boxed_slice();
        Self {
            hasher: RandomState::new(),
            tables: Mutex::new(Tables { by_spi: table(), by_peer: table() }),
            natt,
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Errors that were passed on, and that were not.
    pub(super) fn counters(&self) -> [(&'static str, u64); 2] {
        [("icmp-ike-passed", self.passed.load(Relaxed)), ("icmp-ike-refused", self.refused.load(Relaxed))]
    }

    /// A datagram of IKE is sent, with the marker where one is due. Responses are of no interest:
    /// they may go to strangers.
    pub(super) fn note(&self, port: u16, remote: SocketAddr, datagram: &[u8]) {
        let message = if port == self.natt { datagram.get(MARKER..) } else { Some(datagram) };
        let Some(Ok(header)) = message.map(Header::read) else { return };
        if !header.is_request() {
            return;
        }
        let spi = if header.flags.initiator() { header.initiator_spi } else { header.responder_spi };
        let request = Request { spi, port, remote, left: ERRORS_PER_REQUEST };
        let (by_spi, by_peer) = (self.place(spi), self.place(remote));
        let mut tables = self.tables();
        (tables.by_spi[by_spi], tables.by_peer[by_peer]) = (Some(request), Some(request));
    }

    /// Judges an error that `from` has sent to our address `local`. `sound`: its checksum is right.
    /// `None`: it is about nothing that was sent, or too many have come.
    pub(super) fn judge(
        &self,
        local: IpAddr,
        from: IpAddr,
        error: &icmp::Undelivered<'_>,
        sound: bool,
    ) -> Option<Undelivered> {
        let judged = (error.from.ip() == local && sound).then(|| self.find(error)).flatten();
        let counter = if judged.is_some() { &self.passed } else { &self.refused };
        counter.fetch_add(1, Relaxed);
        let (spi, certain) = judged?;
        let icmp = Icmp { kind: error.kind, code: error.code, from, certain, times: 1 };
        Some(Undelivered { spi, remote: error.to, icmp })
    }

    /// Our SPI of the request that an error quotes, and whether the error quotes the SPI.
    fn find(&self, error: &icmp::Undelivered<'_>) -> Option<(u64, bool)> {
        let mut quoted = error.payload;
        if error.from.port() == self.natt && !quoted.is_empty() {
            // Another word than the marker is the SPI of ESP.
            let (marker, rest) = quoted.split_at_checked(MARKER).unwrap_or((quoted, &[]));
            if marker.iter().any(|byte| *byte != 0) {
                return None;
            }
            quoted = rest;
        }
        let spi = |at: usize| quoted.get(at..)?.first_chunk().map(|spi| u64::from_be_bytes(*spi));
        let fits = |request: &Request| (request.port, request.remote) == (error.from.port(), error.to);
        // The SPIs of initiator and responder, of which one is ours. A box may fill a short quote
        // up with zeros (RFC 4884 section 4.1).
        let spis = [spi(0), spi(8)].map(|spi| spi.filter(|spi| *spi != 0));
        let mut tables = self.tables();
        if spis == [None; 2] {
            let place = self.place(error.to);
            let request = tables.by_peer[place].as_mut().filter(|request| fits(request))?;
            request.left = request.left.checked_sub(1)?;
            return Some((request.spi, false));
        }
        for spi in spis.into_iter().flatten() {
            let place = self.place(spi);
            let request = tables.by_spi[place].as_mut();
            if let Some(request) = request.filter(|request| request.spi == spi && fits(request)) {
                request.left = request.left.checked_sub(1)?;
                return Some((spi, true));
            }
        }
        None
    }

    fn place(&self, key: impl Hash) -> usize {
        // Below `PLACES`.
        (self.hasher.hash_one(key) % PLACES as u64) as usize
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u64 = 0x1122_3344_5566_7788;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::new(addr("192.0.2.2:0").ip(), port)
    }

    /// A request or response of ours as it is sent from this port.
    fn message(port: u16, (spi_i, spi_r): (u64, u64), initiator: bool, response: bool) -> Vec<u8> {
        let mut m = if port == 4500 { vec![0; 4] } else { Vec::new() };
        m.extend([spi_i.to_be_bytes(), spi_r.to_be_bytes()].concat());
        let flags = u8::from(initiator) << 3 | u8::from(response) << 5;
        m.extend([33, 0x20, 35, flags, 0, 0, 0, 1, 0, 0, 0, 28]);
        m
    }

    fn asked() -> Asked {
        let asked = Asked::new(4500);
        asked.note(500, peer(500), &message(500, (OURS, 0), true, false));
        asked
    }

    /// Judges an error about a datagram from this port of ours that quotes so much of it.
    fn told(asked: &Asked, (from, to): (u16, SocketAddr), payload: &[u8]) -> Option<(u64, bool)> {
        let local = addr("192.0.2.1:0").ip();
        let error = icmp::Undelivered { kind: 3, code: 13, from: SocketAddr::new(local, from), to, payload };
        let told = asked.judge(local, addr("198.51.100.9:0").ip(), &error, true)?;
        assert_eq!((told.icmp.from, told.icmp.kind, told.icmp.code), (addr("198.51.100.9:0").ip(), 3, 13));
        assert_eq!(told.remote, to);
        Some((told.spi, told.icmp.certain))
    }

    #[test]
    fn an_error_with_our_spi_is_certain_and_one_without_any_is_likely() {
        let m = message(500, (OURS, 0), true, false);
        let asked = asked();
        for quoted in [8, 16, 28] {
            assert_eq!(told(&asked, (500, peer(500)), &m[..quoted]), Some((OURS, true)), "{quoted}");
        }
        for quoted in [0, 3, 7] {
            assert_eq!(told(&asked, (500, peer(500)), &m[..quoted]), Some((OURS, false)), "{quoted}");
        }
        assert_eq!(told(&asked, (500, peer(500)), &[0; 100]), Some((OURS, false)), "filled up");
    }

    #[test]
    fn our_spi_is_the_responders_where_we_have_not_begun() {
        let asked = Asked::new(4500);
        let m = message(4500, (7, OURS), false, false);
        asked.note(4500, peer(4500), &m);
        assert_eq!(told(&asked, (4500, peer(4500)), &m), Some((OURS, true)));
        // The quote ends before it: the SPI in it is the peer's.
        assert_eq!(told(&asked, (4500, peer(4500)), &m[..12]), None);
        assert_eq!(told(&asked, (4500, peer(4500)), &m[..4]), Some((OURS, false)));
    }

    #[test]
    fn what_was_not_sent_is_not_believed() {
        let asked = asked();
        let m = message(500, (OURS, 0), true, false);
        let other = message(500, (OURS + 1, 0), true, false);
        assert_eq!(told(&asked, (500, peer(500)), &other), None, "another SPI");
        assert_eq!(told(&asked, (500, peer(4500)), &m), None, "another port of the peer");
        assert_eq!(told(&asked, (4500, peer(500)), &m), None, "another port of ours");
        assert_eq!(told(&asked, (500, addr("192.0.2.3:500")), &[]), None, "another peer");
        // ESP in UDP, which has its SPI where IKE has the marker.
        asked.note(4500, peer(4500), &message(4500, (OURS, 0), true, false));
        assert_eq!(told(&asked, (4500, peer(4500)), &[0xc0, 1, 2, 3, 0, 0, 0, 1]), None);
        let local = addr("192.0.2.1:0").ip();
        let error =
            icmp::Undelivered { kind: 3, code: 3, from: addr("192.0.2.1:500"), to: peer(500), payload: &m };
        assert_eq!(asked.judge(local, peer(0).ip(), &error, false), None, "damaged");
        assert_eq!(
            asked.judge(addr("192.0.2.77:0").ip(), peer(0).ip(), &error, true),
            None,
            "not to the sender"
        );
        assert_eq!(asked.counters(), [("icmp-ike-passed", 0), ("icmp-ike-refused", 7)]);
    }

    #[test]
    fn answers_and_keepalives_are_no_requests() {
        let asked = Asked::new(4500);
        asked.note(500, peer(500), &message(500, (7, OURS), false, true));
        asked.note(4500, peer(4500), &[0xff]);
        asked.note(4500, peer(4500), &[]);
        for port in [500, 4500] {
            assert_eq!(told(&asked, (port, peer(port)), &[]), None, "{port}");
        }
    }

    #[test]
    fn a_flood_of_errors_passes_a_few_for_each_request_that_was_sent() {
        let asked = asked();
        let m = message(500, (OURS, 0), true, false);
        let passed =
            |quoted: &[u8]| (0..10_000).filter(|_| told(&asked, (500, peer(500)), quoted).is_some()).count();
        assert_eq!((passed(&[]), passed(&m)), (4, 4), "those with the SPI have room of their own");
        asked.note(500, peer(500), &m);
        assert_eq!((passed(&[]), passed(&m)), (4, 4));
    }

    #[test]
    fn very_many_peers_take_no_more_room() {
        let asked = Asked::new(4500);
        for n in 0..50_000u32 {
            let to = SocketAddr::new(n.to_be_bytes().into(), 500);
            asked.note(500, to, &message(500, (u64::from(n) + 1, 0), true, false));
            assert_eq!(told(&asked, (500, to), &[]), Some((u64::from(n) + 1, false)));
        }
        let tables = asked.tables();
        assert_eq!((tables.by_spi.len(), tables.by_peer.len()), (PLACES, PLACES));
    }
}
