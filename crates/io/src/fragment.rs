//! Cuts an IP packet into fragments (RFC 791 section 3.2, RFC 8200 section 4.5): what leaves
//! through a socket to which it is given with its header is not cut by the kernel.
//!
//! ```text
//!        first fragment                                           later fragments
//! IPv4   header, all options | 8n bytes                           header, copied options | ..
//! IPv6   header, unfragmentable extensions | fragment header | .. the same
//! ```
//!
//! In a later fragment NOPs stand for the IPv4 options that are not copied.
//!
//! Not here: when something may be cut ([`crate::send`]).

use std::ops::Range;

/// DF and MF in the third word of an IPv4 header.
const DF: u16 = 0x4000;
const MF: u16 = 0x2000;
/// Bytes of the IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;
/// IPv6 next headers that stay in front of the fragment header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
/// The fragment header's own number.
const FRAGMENT: u8 = 44;

/// Writes the fragments of `packet`, each at most `mtu` bytes, into `out`, and where each stands
/// into `each`. `id` names an IPv6 packet; one of IPv4 has its name in the header. DF is taken off:
/// whoever asks has decided. False, and nothing is written, when `packet` is no whole IP packet, is
/// a fragment itself, or `mtu` is too small for eight bytes of it.
pub fn cut(packet: &[u8], mtu: usize, id: u32, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> bool {
    let written = match packet.first().map(|b| b >> 4) {
        Some(4) => cut_v4(packet, mtu, out, each),
        Some(6) => cut_v6(packet, mtu, id, out, each),
        _ => None,
    };
    written.is_some()
}

fn cut_v4(packet: &[u8], mtu: usize, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> Option<()> {
    let header_len = usize::from(packet.first()? & 15) * 4;
    let header = packet.get(..header_len).filter(|h| h.len() >= 20)?;
    let flags = u16::from_be_bytes([header[6], header[7]]) & !DF;
    if flags != 0 || usize::from(u16::from_be_bytes([header[2], header[3]])) != packet.len() {
        return None;
    }
    let step = whole_eights(mtu.checked_sub(header_len)?)?;
    let payload = &packet[header_len..];
    let mut at = 0;
    while at < payload.len() || at == 0 {
        let chunk = &payload[at..payload.len().min(at + step)];
        let more = at + chunk.len() < payload.len();
        let start = out.len();
        out.extend_from_slice(header);
        out.extend_from_slice(chunk);
        let h = &mut out[start..start + header_len];
        h[2..4].copy_from_slice(&((header_len + chunk.len()) as u16).to_be_bytes());
        let field = (at / 8) as u16 | if more { MF } else { 0 };
        h[6..8].copy_from_slice(&field.to_be_bytes());
        if at != 0 {
            keep_copied_options(&mut h[20..]);
        }
        h[10..12].fill(0);
        let sum = h.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        h[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        each.push(start..out.len());
        at += chunk.len().max(1);
    }
    Some(())
}

/// "Copied flag: 0 = not copied" into fragments but the first (RFC 791 section 3.1). What is not
/// becomes NOP.
fn keep_copied_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => return,
            1 => 1,
            _ => match options.get(at + 1) {
                Some(&len) if len >= 2 && at + usize::from(len) <= options.len() => usize::from(len),
                _ => return,
            },
        };
        if kind & 0x80 == 0 {
            options[at..at + len].fill(1);
        }
        at += len;
    }
}

fn cut_v6(packet: &[u8], mtu: usize, id: u32, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> Option<()> {
    let payload_len = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    if packet.len() != 40 + payload_len {
        return None;
    }
    // The headers that every router reads stay in front: "all headers up to and including the
    // Routing header if present, else the Hop-by-Hop Options header if present" (RFC 8200 section
    // 4.5).
    let (mut end, mut link) = (40, 6);
    let (mut at, mut next_at) = (40, 6);
    loop {
        let next = *packet.get(next_at)?;
        if next == FRAGMENT {
            return None;
        }
        if !matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
            break;
        }
        let len = (usize::from(*packet.get(at + 1)?) + 1) * 8;
        next_at = at;
        at += len;
        if next != DESTINATION {
            (end, link) = (at, next_at);
        }
    }
    let (front, payload) = packet.split_at_checked(end)?;
    let first = front[link];
    let step = whole_eights(mtu.checked_sub(end + FRAGMENT_HEADER)?)?;
    for (i, chunk) in payload.chunks(step).enumerate() {
        let start = out.len();
        let more = i * step + chunk.len() < payload.len();
        out.extend_from_slice(front);
        out.extend_from_slice(&[first, 0]);
        out.extend_from_slice(&((i * step) as u16 | u16::from(more)).to_be_bytes());
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(chunk);
        let len = (out.len() - start - 40) as u16;
        out[start + 4..start + 6].copy_from_slice(&len.to_be_bytes());
        out[start + link] = FRAGMENT;
        each.push(start..out.len());
    }
    Some(())
}

/// "An integer multiple of 8 octets": the most that fits, if any does.
fn whole_eights(room: usize) -> Option<usize> {
    Some(room & !7).filter(|step| *step != 0)
}

#[cfg(test)]
mod tests;
