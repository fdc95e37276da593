//! NAT detection (RFC 7296 section 2.23): the hashes of NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP.
//!
//! SHA-1 is what the RFC fixes here. It protects nothing: the notifications are in clear, and are believed only once
//! AUTH has covered the message that held them.

use std::net::{IpAddr, SocketAddr};

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

/// The two notifications of a message that we send. `fake` gives a source hash that cannot match, so that both sides
/// encapsulate (`encap = yes`).
pub(crate) fn payloads(
    spi_i: u64,
    spi_r: u64,
    local: SocketAddr,
    remote: SocketAddr,
    fake: bool,
) -> [Payload; 2] {
    let mut source = hash(spi_i, spi_r, local);
    if fake {
        // The hash of this very address with every bit turned is the hash of no address that occurs.
        source.iter_mut().for_each(|b| *b = !*b);
    }
    [
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, source)),
        Payload::Notify(Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, hash(spi_i, spi_r, remote))),
    ]
}

/// SHA-1 (FIPS 180-4 section 6.1) of a short input.
fn sha1(input: &[u8]) -> [u8; 20] {
    let mut message = input.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((input.len() as u64 * 8).to_be_bytes());
    let mut h: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in message.chunks_exact(64) {
        let mut w = [0u32; 80];
        for (t, bytes) in block.chunks_exact(4).enumerate() {
            w[t] = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for t in 16..80 {
            w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = h;
        for (t, word) in w.iter().enumerate() {
            let (f, k) = match t {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (have, add) in h.iter_mut().zip([a, b, c, d, e]) {
            *have = have.wrapping_add(add);
        }
    }
    let mut out = [0; 20];
    for (chunk, word) in out.chunks_exact_mut(4).zip(h) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn sha1_is_that_of_fips_180() {
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(
            hex(&sha1(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
    }

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
    }
}
