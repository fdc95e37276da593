//! TCP's maximum segment size, brought down to what fits the path of an SA (RFC 9293 section 3.7.1,
//! RFC 6691).
//!
//! ```text
//! TCP header, from 20 on, options:  0 end | 1 nothing | kind, length, data ..
//! maximum segment size:             2 | 4 | MSS (2 bytes)           in SYN and SYN-ACK only
//! ```
//!
//! Hosts whose ICMP is filtered on the way would otherwise never learn what the tunnel takes away.
//! Only ever made smaller; a SYN without the option asks for 536 or 1,220 bytes, which is left to
//! fragmentation where it does not fit.

use ironswan_wire::ip::{Fragment, IpInfo, checksum, protocol, tcp, v4, v6};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: u8 = 4;
/// Flags, in a TCP header.
const FLAGS: usize = 13;

/// True for a packet that [`clamp`] may have something to do with.
#[inline]
pub(crate) fn is_syn(packet: &[u8], info: &IpInfo) -> bool {
    info.protocol == protocol::TCP
        && packet.get(info.upper + FLAGS).is_some_and(|flags| flags & tcp::SYN != 0)
}

/// Makes the MSS of a TCP SYN such that the packets it asks for are of at most `largest` bytes, IP
/// header included. With `finished_checksum` the checksum is brought up to date; else whoever
/// completes it will find the new option. Everything that is not a whole and well-formed SYN is
/// left as it is. `info` is what [`ironswan_wire::ip::parse`] says of `packet`.
#[cold]
pub(crate) fn clamp(packet: &mut [u8], info: &IpInfo, largest: u32, finished_checksum: bool) {
    if !is_syn(packet, info) || info.fragment != Fragment::No {
        return;
    }
    // "The MSS value to be sent in an MSS Option should be equal to the effective MTU minus the
    // fixed IP and TCP headers" (RFC 9293 section 3.7.1): whoever sends options subtracts them from
    // what it sends.
    let headers = tcp::MIN_HEADER + if info.ipv6 { v6::HEADER } else { v4::MIN_HEADER };
    let Some(most) = (largest as usize).checked_sub(headers).filter(|most| *most != 0) else { return };
    let Some(segment) = packet.get_mut(info.upper..info.total_len) else { return };
    let Some(header) = tcp::header_len(segment) else { return };
    let Some(at) = find(&segment[tcp::MIN_HEADER..header]).map(|at| tcp::MIN_HEADER + at) else { return };
    let old = u16::from_be_bytes([segment[at], segment[at + 1]]);
    if usize::from(old) <= most {
        return;
    }
    let new = (most as u16).to_be_bytes();
    segment[at..at + 2].copy_from_slice(&new);
    if finished_checksum {
        let field = [segment[tcp::CHECKSUM], segment[tcp::CHECKSUM + 1]];
        // Bytes of an odd offset stand in the other half of a word of the sum.
        let swap = |bytes: [u8; 2]| if at % 2 == 0 { bytes } else { [bytes[1], bytes[0]] };
        let sum = checksum::update(field, swap(old.to_be_bytes()), swap(new));
        segment[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&sum);
    }
}

/// Offset of the value of the MSS option in `options`. `None` when there is none, or the options
/// are malformed before it.
fn find(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let len = *options.get(at + 1)?;
                if kind == MSS && len == MSS_LEN && at + 4 <= options.len() {
                    return Some(at + 2);
                }
                if kind == MSS || len < 2 {
                    return None;
                }
                at += usize::from(len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_wire::ip;
    use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};

    /// A TCP packet with these flags and options, and a right checksum.
    fn packet(ipv6: bool, flags: u8, options: &[u8]) -> Vec<u8> {
        let segment = 20 + options.len() + 3;
        let mut p = if ipv6 {
            [&[0x60, 0, 0, 0, 0, segment as u8, 6, 64][..], &[7; 32]].concat()
        } else {
            [&[0x45, 0, 0, 20 + segment as u8, 0, 0, 0, 0, 64, 6, 0, 0][..], &[7; 8]].concat()
        };
        let upper = p.len();
        p.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        p.extend_from_slice(&[((20 + options.len()) * 4) as u8, flags, 1, 1, 0, 0, 0, 0]);
        p.extend_from_slice(options);
        p.extend_from_slice(&[1, 2, 3]);
        let check = !fold(covered(&p, upper));
        p[upper + 16..upper + 18].copy_from_slice(&check.to_ne_bytes());
        p
    }

    fn covered(p: &[u8], upper: usize) -> u64 {
        let addresses = if upper == 40 { &p[8..40] } else { &p[12..20] };
        pseudo(addresses, 6) + be16((p.len() - upper) as u16) + sum(&p[upper..])
    }

    fn clamped(p: &[u8], largest: u32, finished: bool) -> Vec<u8> {
        let mut copy = p.to_vec();
        clamp(&mut copy, &ip::parse(p).unwrap(), largest, finished);
        copy
    }

    #[test]
    fn a_syn_asks_for_no_more_than_fits_and_its_checksum_stays_right() {
        for ipv6 in [false, true] {
            let upper = if ipv6 { 40 } else { 20 };
            for flags in [tcp::SYN, tcp::SYN | tcp::ACK, tcp::SYN | tcp::ECE | tcp::CWR] {
                // At every alignment.
                for before in
                    [&[][..], &[1], &[1, 1], &[1, 3, 3, 7], &[4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
                {
                    let mut options = [before, &[2, 4, 0x05, 0xb4]].concat();
                    options.resize(options.len().next_multiple_of(4), 0);
                    let p = packet(ipv6, flags, &options);
                    let got = clamped(&p, 1_400, true);
                    let most = (1_400 - upper as u16 - 20).to_be_bytes();
                    let at = upper + 20 + before.len() + 2;
                    assert_eq!(got[at..at + 2], most);
                    assert_eq!(fold(covered(&got, upper)), 0xffff, "{before:?}");
                    // Nothing else changes.
                    let mut restored = got.clone();
                    restored[at..at + 2].copy_from_slice(&p[at..at + 2]);
                    restored[upper + 16..upper + 18].copy_from_slice(&p[upper + 16..upper + 18]);
                    assert_eq!(restored, p);
                    // A second time changes nothing.
                    assert_eq!(clamped(&got, 1_400, true), got);
                    // Without a finished checksum its field is left alone.
                    let got = clamped(&p, 1_400, false);
                    assert_eq!(got[at..at + 2], most);
                    assert_eq!(got[upper + 16..upper + 18], p[upper + 16..upper + 18]);
                }
            }
        }
    }

    #[test]
    fn everything_else_is_left_as_it_is() {
        let mss = [2, 4, 0x05, 0xb4];
        let same = |p: &[u8], largest| assert_eq!(clamped(p, largest, true), p);
        // Small enough, to the byte.
        same(&packet(false, tcp::SYN, &mss), 1_500);
        assert_ne!(clamped(&packet(false, tcp::SYN, &mss), 1_499, true), packet(false, tcp::SYN, &mss));
        same(&packet(true, tcp::SYN, &mss), 1_520);
        // No SYN; no option; no room for any data.
        same(&packet(false, tcp::ACK, &mss), 1_000);
        same(&packet(false, tcp::SYN, &[]), 100);
        same(&packet(false, tcp::SYN, &mss), 40);
        same(&packet(false, tcp::SYN, &mss), 0);
        // Malformed: a length of nothing, an option longer than the header, an MSS of another
        // length, the end first.
        for options in [
            [3, 0, 2, 4, 5, 0xb4, 0, 0],
            [3, 1, 2, 4, 5, 0xb4, 0, 0],
            [3, 40, 2, 4, 5, 0xb4, 0, 0],
            [2, 3, 5, 1, 2, 4, 5, 0xb4],
            [0, 2, 4, 5, 0xb4, 0, 0, 0],
            [1, 1, 1, 1, 1, 2, 4, 5],
            [1, 1, 1, 1, 1, 1, 1, 2],
        ] {
            same(&packet(false, tcp::SYN, &options), 500);
        }
        // A header that is longer than the packet, and a fragment.
        let mut p = packet(false, tcp::SYN, &mss);
        p[32] = 0xf0;
        same(&p, 500);
        let mut p = packet(false, tcp::SYN, &mss);
        p[6] = 0x20;
        same(&p, 500);
        let mut p = packet(false, tcp::SYN, &mss);
        p[9] = 17;
        same(&p, 500);
        // Cut short.
        let p = packet(false, tcp::SYN, &mss);
        for len in 20..p.len() {
            let mut p = p[..len].to_vec();
            p[3] = len as u8;
            let got = clamped(&p, 500, true);
            assert_eq!(got.len(), len);
        }
    }
}
