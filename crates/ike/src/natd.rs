//! NAT detection (RFC 7296 section 2.23): the hashes of NAT_DETECTION_SOURCE_IP and
//! NAT_DETECTION_DESTINATION_IP.
//!
//! SHA-1 is what the RFC fixes here. It protects nothing: the notifications are in clear, and are
//! believed only once AUTH has covered the message that held them.

use std::net::{IpAddr, SocketAddr};

use ironswan_crypto::hash::sha1;
use ironswan_keying::limits::NATD_HASHES;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, notifies};

/// SHA-1(SPIi | SPIr | address | port).
pub(crate) fn hash(spi_i: u64, spi_r: u64, addr: SocketAddr) -> [u8; 20] {
    let mut input = Vec::with_capacity(34);
    input.extend(spi_i.to_be_bytes());
    input.extend(spi_r.to_be_bytes());
    match addr.ip() {
        IpAddr::V4(a) => input.extend(a.octets()),
        IpAddr::V6(a) => input.extend(a.octets()),
    }
    input.extend(addr.port().to_be_bytes());
    sha1(&input)
}

/// What the peer's notifications say about where it thinks the message came from and went to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Nat {
    /// Both notifications were there: the peer can traverse NAT.
    pub supported: bool,
    /// The address that the peer sent to is not ours: a NAT is in front of us.
    pub local: bool,
    /// The address that it came from is not one the peer sent from: a NAT is in front of the peer.
    pub remote: bool,
}

/// Judges a received message with these SPIs, which arrived at `local` from `remote`.
pub(crate) fn detect(
    payloads: &[Payload],
    spi_i: u64,
    spi_r: u64,
    local: SocketAddr,
    remote: SocketAddr,
) -> Nat {
    let data = |kind| {
        notifies(payloads).filter(move |n| n.kind == kind).take(NATD_HASHES).map(|n| n.data.as_slice())
    };
    let mut sources = data(NotifyType::NAT_DETECTION_SOURCE_IP).peekable();
    let mut destinations = data(NotifyType::NAT_DETECTION_DESTINATION_IP).peekable();
    if sources.peek().is_none() || destinations.peek().is_none() {
        return Nat::default();
    }
    let (from, to) = (hash(spi_i, spi_r, remote), hash(spi_i, spi_r, local));
    Nat { supported: true, local: !destinations.any(|h| h == to), remote: !sources.any(|h| h == from) }
}

/// Source hashes of a message.
fn sources(payloads: &[Payload]) -> impl Iterator<Item = &Notify> {
    notifies(payloads).filter(|n| n.kind == NotifyType::NAT_DETECTION_SOURCE_IP).take(NATD_HASHES)
}

/// True when the sender says anything of where it has sent from.
pub(crate) fn claims_some_source(payloads: &[Payload]) -> bool {
    sources(payloads).next().is_some()
}

/// True when the sender says that it has sent from this address and port. Anybody can write that.
pub(crate) fn claims_source(payloads: &[Payload], spi_i: u64, spi_r: u64, source: SocketAddr) -> bool {
    let expected = hash(spi_i, spi_r, source);
    sources(payloads).any(|n| n.data == expected)
}

/// The two notifications of a message that we send. `fake` gives a source hash that cannot match,
/// so that both sides encapsulate (`encap = yes`).
pub(crate) fn payloads(
    spi_i: u64,
    spi_r: u64,
    local: SocketAddr,
    remote: SocketAddr,
    fake: bool,
) -> [Payload; 2] {
    let mut source = hash(spi_i, spi_r, local);
    if fake {
        // The hash of this very address with every bit turned is the hash of no address that
        // occurs.
        source.iter_mut().for_each(|b| *b = !*b);
    }
    [
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, source)),
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, hash(spi_i, spi_r, remote))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translated_address_shows_on_the_right_side() {
        let a: SocketAddr = "192.0.2.1:500".parse().unwrap();
        let b: SocketAddr = "192.0.2.2:500".parse().unwrap();
        let nat: SocketAddr = "198.51.100.7:1025".parse().unwrap();
        // a sends to b.
        let sent = payloads(1, 0, a, b, false);
        assert_eq!(detect(&sent, 1, 0, b, a), Nat { supported: true, local: false, remote: false });
        assert_eq!(detect(&sent, 1, 0, b, nat), Nat { supported: true, local: false, remote: true });
        assert_eq!(detect(&sent, 1, 0, nat, a), Nat { supported: true, local: true, remote: false });
        assert_eq!(detect(&sent[..1], 1, 0, nat, a), Nat::default());
        // A host that does not know its address names several: one that fits is enough.
        let several = [payloads(1, 0, nat, b, false), payloads(1, 0, a, b, false)].concat();
        assert_eq!(detect(&several, 1, 0, b, a), Nat { supported: true, local: false, remote: false });
        assert!(detect(&payloads(1, 0, a, b, true), 1, 0, b, a).remote);
        assert!(claims_source(&several, 1, 0, a) && claims_source(&several, 1, 0, nat));
        assert!(!claims_source(&several, 2, 0, a) && !claims_source(&several, 1, 0, b));
        assert!(!claims_source(&payloads(1, 0, a, b, true), 1, 0, a), "a fake one");
        assert!(!claims_source(&[], 1, 0, a) && !claims_some_source(&[]) && claims_some_source(&several));
    }
}
