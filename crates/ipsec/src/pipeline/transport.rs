//! The IP header of a packet that came in transport mode, and its upper-layer checksum behind a
//! NAT.
//!
//! ```text
//! fresh:  IPv4, 20 bytes: TOS and addresses as received, ID 0, DF, TTL 64
//!         IPv6, 40 bytes: the same without ID and DF
//! kept:   the outer header of AH, with its options or extension headers;
//!         next header, length and checksum are new
//! ```
//!
//! Not here: whether the packet may come in at all ([`super::accept`]).

use std::net::IpAddr;

use ironswan_wire::ip::checksum::{fold, sum};
use ironswan_wire::ip::{IpInfo, protocol, tcp, udp, v4, v6};
use ironswan_wire::sadb::OriginalAddresses;

/// TTL or hop limit of a fresh header. The host at the other end sent it to this one: no router is
/// behind us.
const TTL: u8 = 64;

/// Appends a header from `src` to `dst`, without length and protocol. `None` when the families
/// differ.
pub(super) fn fresh(out: &mut Vec<u8>, src: IpAddr, dst: IpAddr, tos: u8) -> Option<()> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            // Not a fragment, and never one from here on: then the identification means nothing
            // (RFC 6864 section 4.1).
            let [df, rest] = v4::DF.to_be_bytes();
            out.extend_from_slice(&[0x45, tos, 0, 0, 0, 0, df, rest, TTL, 0, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            out.extend_from_slice(&[0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, 0, TTL]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
        }
        _ => return None,
    }
    Some(())
}

/// Makes the first `head` bytes of `packet`, an IP header and what extends it, its own: length, and
/// the next header where the packet had AH or nothing. `None` when it is longer than a header can
/// say.
pub(super) fn finish(packet: &mut [u8], head: usize, next_header: u8) -> Option<()> {
    let len = packet.len();
    let h = packet.get_mut(..head)?;
    if h.first()? >> 4 == 4 {
        h.get_mut(2..4)?.copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        *h.get_mut(9)? = next_header;
        v4::set_checksum(h);
    } else {
        let payload = u16::try_from(len.checked_sub(v6::HEADER)?).ok()?;
        h.get_mut(4..6)?.copy_from_slice(&payload.to_be_bytes());
        let (mut field, mut at) = (6, v6::HEADER);
        while at < head {
            field = at;
            at += 8 + usize::from(*h.get(at + 1)?) * 8;
        }
        *h.get_mut(field)? = next_header;
    }
    Some(())
}

/// Offset of the upper-layer checksum that covers the addresses, in its header. The checksums of
/// SCTP and of ICMP for IPv4 do not cover them.
fn checksum_of(upper: u8) -> Option<usize> {
    match upper {
        protocol::TCP => Some(tcp::CHECKSUM),
        protocol::UDP | protocol::UDPLITE | protocol::DCCP => Some(udp::CHECKSUM),
        protocol::ICMPV6 => Some(2),
        protocol::MH => Some(4),
        _ => None,
    }
}

/// Brings the upper-layer checksum from the addresses that the peer made it with to those in the
/// header (RFC 3948 section 3.1.2: "incrementally recompute the TCP/UDP checksum").
pub(super) fn repair(packet: &mut [u8], info: &IpInfo, original: &OriginalAddresses) {
    let now = if info.ipv6 { packet.get(8..40) } else { packet.get(12..20) };
    let Some(now) = now.map(sum) else { return };
    let Some(at) = checksum_of(info.protocol).map(|at| info.upper + at) else { return };
    let Some(field) = packet.get_mut(at..at + 2) else { return };
    let old = u16::from_ne_bytes([field[0], field[1]]);
    // "a UDP checksum of zero" says that there is none: it stays so.
    if old == 0 && info.protocol == protocol::UDP {
        return;
    }
    // RFC 1624 equation 3, for the addresses at once.
    let new =
        !fold(u64::from(!old) + u64::from(!fold(address(original.local) + address(original.remote))) + now);
    let new = if info.protocol == protocol::UDP { udp::no_zero(new) } else { new };
    field.copy_from_slice(&new.to_ne_bytes());
}

fn address(addr: IpAddr) -> u64 {
    match addr {
        IpAddr::V4(a) => sum(&a.octets()),
        IpAddr::V6(a) => sum(&a.octets()),
    }
}
