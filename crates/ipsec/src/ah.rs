//! The Authentication Header (RFC 4302): its place in a packet, its length, and the part of the
//! headers in front that its ICV covers. Pure functions over bytes.
//!
//! ```text
//! IP header (options) | IPv6: hop-by-hop, routing, destination options | AH | payload
//! `------------------- immutable() -----------------------------------'
//! AH:  0 next header  1 length in 32-bit words, less 2  2-3 zero  4-7 SPI  8-11 sequence number
//!      12.. field: IV (AES-GMAC only), ICV | padding to 4 bytes (IPv4) or 8 (IPv6)
//! ```
//!
//! The ICV covers the following, with every byte that may change on the way zeroed or as it will be
//! on arrival (section 3.3.3.1):
//!
//! | | zeroed | predicted |
//! |---|---|---|
//! | IPv4 header | TOS, flags, offset, TTL, checksum | destination: last of a source route |
//! | IPv4 options (appendix A1) | all, whole, but End, NOP, 130, 133, 134, 148, 149 | |
//! | IPv6 header | class, flow label, hop limit | destination: last of the routing header |
//! | hop-by-hop, destination options | data of an option whose type has bit 0x20 | |
//! | routing header, types 0 and 2 | | segments left 0, addresses moved on by one |
//!
//! AES-GMAC: RFC 4543 section 4 says that IV and ICV (24 bytes) need no padding; verified erratum
//! 3643 corrects it: with the 12 bytes before them AH is 36 long, so "in IPv6, padding of 4 octets
//! is required", and none in IPv4. Linux has no AES-GMAC for AH, but pads every algorithm so in
//! IPv6. In IPv4 it pads to 8 bytes too, against section 2.6, unless the SA has the flag `align4`
//! (which strongSwan sets); `Ah::has_field_len` takes either there.
//!
//! Not here: the ICV itself (`ironswan_crypto::icv`), the sequence number's window, who may send
//! what.

use ironswan_wire::ip::{self, Fragment, protocol, v4, v6};

use crate::counters::DropReason;

/// Bytes of AH in front of IV and ICV: next header, length, reserved, SPI, sequence number.
pub const FIXED: usize = 12;

/// An AH in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ah {
    /// Offset of AH in the packet, in bytes.
    pub(crate) at: usize,
    /// Length of AH in bytes, padding included.
    pub(crate) len: usize,
    /// End of the packet in bytes, from its IP header; at least `at + len`.
    pub(crate) end: usize,
    /// True when the outer header is that of IPv6.
    pub(crate) ipv6: bool,
    pub(crate) next_header: u8,
    pub(crate) spi: u32,
    /// Low half of the sequence number.
    pub(crate) seq: u32,
}

impl Ah {
    /// True when AH is as long as with a field of this many bytes. In IPv4 it may be padded as in
    /// IPv6.
    pub(crate) fn has_field_len(&self, field_len: usize) -> bool {
        self.len == header_len(field_len, true) || (!self.ipv6 && self.len == header_len(field_len, false))
    }
}

/// Finds AH in a packet that begins with an IP header.
pub(crate) fn find(packet: &[u8]) -> Result<Ah, DropReason> {
    let info = ip::parse(packet).map_err(|_| DropReason::InHdrError)?;
    // "If a packet offered to AH for processing appears to be an IP fragment, i.e., the OFFSET
    // field is non-zero or the MORE FRAGMENTS flag is set, the receiver MUST discard the packet"
    // (section 3.4.1).
    if info.fragment != Fragment::No {
        return Err(DropReason::InFragment);
    }
    let whole = packet.get(info.upper..info.total_len).ok_or(DropReason::InHdrError)?;
    let h = whole.first_chunk::<FIXED>().ok_or(DropReason::InHdrError)?;
    let len = (usize::from(h[1]) + 2) * 4;
    if info.protocol != protocol::AH || len < FIXED || len > whole.len() {
        return Err(DropReason::InHdrError);
    }
    let word = |i: usize| u32::from_be_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    Ok(Ah {
        at: info.upper,
        len,
        end: info.total_len,
        ipv6: info.ipv6,
        next_header: h[0],
        spi: word(4),
        seq: word(8),
    })
}

/// Length of AH around a field of IV and ICV, padding included, in bytes.
pub fn header_len(field_len: usize, ipv6: bool) -> usize {
    // "an integral multiple of 32 bits (IPv4) or 64 bits (IPv6)" (section 2.6).
    (FIXED + field_len).next_multiple_of(if ipv6 { 8 } else { 4 })
}

/// Writes AH into `out` ([`header_len`] bytes), with zeros for IV, ICV and padding.
pub fn emit(out: &mut [u8], next_header: u8, spi: u32, seq: u32) {
    let words = out.len() / 4;
    if let Some((h, rest)) = out.split_first_chunk_mut::<FIXED>() {
        // "the value of this field is the length of AH in 32-bit words (4-byte units), minus 2"
        // (section 2.2).
        *h = [next_header, (words - 2) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        h[4..8].copy_from_slice(&spi.to_be_bytes());
        h[8..].copy_from_slice(&seq.to_be_bytes());
        rest.fill(0);
    }
}

/// Appends `head`, which is everything in front of AH, to `heads` as the ICV covers it. The result
/// is the same for a received packet and for one that is about to leave.
///
/// # Errors
///
/// [`DropReason::InHdrError`] when `head` is not a header of IPv4 or IPv6 that AH may follow. Then
/// `heads` stays as it was.
pub fn immutable(head: &[u8], heads: &mut Vec<u8>) -> Result<(), DropReason> {
    let from = heads.len();
    heads.extend_from_slice(head);
    let head = &mut heads[from..];
    let done = match head.first().map(|b| b >> 4) {
        Some(4) => immutable_v4(head),
        Some(6) => immutable_v6(head),
        _ => None,
    };
    if done.is_none() {
        heads.truncate(from);
    }
    done.ok_or(DropReason::InHdrError)
}

/// IPv4 options whose every byte stays (appendix A1), beside End and NOP.
fn option_stays(kind: u8) -> bool {
    // Security, extended security, commercial security, router alert, sender directed
    // multi-destination delivery.
    matches!(kind, 130 | 133 | 134 | 148 | 149)
}

const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

fn immutable_v4(head: &mut [u8]) -> Option<()> {
    let len = head.len();
    let (h, mut options) = head.split_first_chunk_mut::<{ v4::MIN_HEADER }>()?;
    (usize::from(h[0] & 0x0f) * 4 == len).then_some(())?;
    h[1] = 0;
    h[6..9].fill(0);
    h[10..12].fill(0);
    while let Some((kind, rest)) = options.split_first() {
        match kind {
            // The bytes behind End are padding.
            0 => break,
            1 => options = &mut options[1..],
            kind => {
                let kind = *kind;
                let len = usize::from(*rest.first()?);
                (len >= 2).then_some(())?;
                let (option, behind) = options.split_at_mut_checked(len)?;
                if matches!(kind, LOOSE_ROUTE | STRICT_ROUTE)
                    && let Some(last) = last_address(option)?
                {
                    h[16..20].copy_from_slice(&last);
                }
                // "the entire option is zeroed for ICV computation purposes" (section 3.3.3.1.1.2).
                if !option_stays(kind) {
                    option.fill(0);
                }
                options = behind;
            }
        }
    }
    Some(())
}

/// The final destination of a source route that has not been gone to its end. `None` for a route
/// that is none.
fn last_address(option: &[u8]) -> Option<Option<[u8; 4]>> {
    let route = option.get(3..)?;
    let pointer = usize::from(option[2]);
    (route.len() % 4 == 0 && pointer >= 4).then_some(())?;
    // "If the pointer is greater than the length, the source route is empty" (RFC 791), and the
    // header has the address.
    Some(if pointer > option.len() { None } else { route.last_chunk().copied() })
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DEST_OPTIONS: u8 = 60;

fn immutable_v6(head: &mut [u8]) -> Option<()> {
    let (h, mut rest) = head.split_first_chunk_mut::<{ v6::HEADER }>()?;
    let mut next = h[6];
    h[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    h[7] = 0;
    let destination = h.last_chunk_mut::<16>()?;
    while next != protocol::AH {
        let len = 8 + usize::from(*rest.get(1)?) * 8;
        let (header, behind) = rest.split_at_mut_checked(len)?;
        match next {
            HOP_BY_HOP | DEST_OPTIONS => options_v6(&mut header[2..])?,
            ROUTING => final_routing_header(header, destination)?,
            // A fragment header too: AH is applied to whole packets, so that none is under it.
            _ => return None,
        }
        next = header[0];
        rest = behind;
    }
    rest.is_empty().then_some(())
}

/// "This option may change en-route" (RFC 8200 section 4.2).
const MAY_CHANGE: u8 = 0x20;
/// Mobile IPv6's home address, which stands in for the source address (RFC 6275 section 6.3).
const HOME_ADDRESS: u8 = 201;

fn options_v6(mut options: &mut [u8]) -> Option<()> {
    while let Some((kind, rest)) = options.split_first() {
        let kind = *kind;
        if kind == 0 {
            options = &mut options[1..];
            continue;
        }
        // The ICV is that of the packet with both addresses exchanged: there is no Mobile IPv6 here
        // to ask for it.
        (kind != HOME_ADDRESS).then_some(())?;
        let len = 2 + usize::from(*rest.first()?);
        let (option, behind) = options.split_at_mut_checked(len)?;
        // "the entire "Option Data" field must be treated as zero-valued octets" (section
        // 3.3.3.1.2.2); its type and length count.
        if kind & MAY_CHANGE != 0 {
            option[2..].fill(0);
        }
        options = behind;
    }
    Some(())
}

/// A routing header as it will be at the final destination. Of types 0 and 2, whose addresses take
/// turns with the destination's (RFC 2460 section 4.4, RFC 6275 section 6.4). What AH does with
/// others is said nowhere (RFC 8754 section 7.5).
fn final_routing_header(header: &mut [u8], destination: &mut [u8; 16]) -> Option<()> {
    let (h, rest) = header.split_first_chunk_mut::<8>()?;
    let (addresses, none) = rest.as_chunks_mut::<16>();
    (matches!(h[2], 0 | 2) && none.is_empty()).then_some(())?;
    let left = usize::from(h[3]);
    let ahead = addresses.len().checked_sub(left).and_then(|gone| addresses.get_mut(gone..))?;
    // Each hop puts the next address into the destination and the destination into its place.
    for address in ahead {
        std::mem::swap(address, destination);
    }
    h[3] = 0;
    Some(())
}

#[cfg(test)]
mod tests;
