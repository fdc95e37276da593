//! Reads and changes fields of frames: IPv4 addresses, ports, checksums, ARP, ICMP. Pure.

use std::net::Ipv4Addr;

use super::shaper::ETHERNET;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The header of an IPv4 packet in an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv4 {
    pub protocol: u8,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// Offset of the bytes behind the header, in the frame.
    payload: usize,
    fragment: bool,
    dont_fragment: bool,
}

impl Ipv4 {
    /// `None` for what is not IPv4.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        if frame.get(12..14)? != [0x08, 0x00] {
            return None;
        }
        let header: &[u8; 20] = frame.get(ETHERNET..)?.first_chunk()?;
        let length = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || length < 20 || frame.len() < ETHERNET + length {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let flags = u16::from_be_bytes([header[6], header[7]]);
        Some(Self {
            protocol: header[9],
            source: address(12),
            destination: address(16),
            payload: ETHERNET + length,
            fragment: flags & 0x3fff != 0,
            dont_fragment: flags & 0x4000 != 0,
        })
    }

    /// Source and destination port, or for ICMP echo its identifier as both; `None` for what has
    /// none.
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(self.payload + at..)?.first_chunk()?));
        match self.protocol {
            _ if self.fragment => None,
            TCP | UDP => Some((word(0)?, word(2)?)),
            ICMP if [0, 8].contains(frame.get(self.payload)?) => Some((word(4)?, word(4)?)),
            _ => None,
        }
    }

    pub fn rewrite_source(&self, frame: &mut [u8], address: Ipv4Addr, port: u16) {
        self.rewrite(frame, 12, address, 0, port);
    }

    pub fn rewrite_destination(&self, frame: &mut [u8], address: Ipv4Addr, port: u16) {
        self.rewrite(frame, 16, address, 2, port);
    }

    /// Writes an address and a port, and mends the checksums.
    fn rewrite(&self, frame: &mut [u8], address_at: usize, address: Ipv4Addr, port_at: usize, port: u16) {
        // Of TCP and UDP the addresses are part of the checksum; not of ICMP.
        let (port_at, sum_at, pseudo) = match self.protocol {
            TCP => (port_at, 16, true),
            UDP => (port_at, 6, true),
            _ => (4, 2, false),
        };
        let (port_at, sum_at) = (self.payload + port_at, self.payload + sum_at);
        let absent = self.protocol == UDP && frame.get(sum_at..sum_at + 2) == Some(&[0, 0]);
        let mut write = |at: usize, new: [u8; 2], sums: &[usize]| {
            let Some(old) = frame.get(at..at + 2).and_then(|b| b.first_chunk::<2>().copied()) else { return };
            frame[at..at + 2].copy_from_slice(&new);
            for &sum in sums {
                let Some(current) = frame.get(sum..sum + 2).and_then(|b| b.first_chunk::<2>().copied())
                else {
                    continue;
                };
                let mended =
                    mend(u16::from_be_bytes(current), u16::from_be_bytes(old), u16::from_be_bytes(new));
                frame[sum..sum + 2].copy_from_slice(&mended.to_be_bytes());
            }
        };
        let header_sum = ETHERNET + 10;
        let both = [header_sum, sum_at];
        let octets = address.octets();
        for (i, word) in [[octets[0], octets[1]], [octets[2], octets[3]]].into_iter().enumerate() {
            let sums = if pseudo && !absent { &both[..] } else { &both[..1] };
            write(ETHERNET + address_at + 2 * i, word, sums);
        }
        write(port_at, port.to_be_bytes(), if absent { &[] } else { &both[1..] });
    }
}

/// A checksum after one word changed (RFC 1624, equation 3).
fn mend(sum: u16, old: u16, new: u16) -> u16 {
    let mut s = u32::from(!sum) + u32::from(!old) + u32::from(new);
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    !(s as u16)
}

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c.get(1).copied().unwrap_or(0)));
    let mut s: u32 = words.sum();
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    !(s as u16)
}

/// The answer to an ARP request for `address`; `None` for any other frame.
pub(super) fn answer_arp(frame: &[u8], address: Ipv4Addr, ethernet: [u8; 6]) -> Option<Vec<u8>> {
    // Ethernet and IPv4, request.
    let request = [0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1];
    if frame.get(12..22)? != request || frame.get(38..42)? != address.octets() {
        return None;
    }
    let asker = frame.get(22..32)?;
    let mut answer = Vec::with_capacity(42);
    answer.extend_from_slice(&asker[..6]);
    answer.extend_from_slice(&ethernet);
    answer.extend_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 2]);
    answer.extend_from_slice(&ethernet);
    answer.extend_from_slice(&address.octets());
    answer.extend_from_slice(asker);
    Some(answer)
}

/// The ICMP error of a router for a packet that is larger than `mtu` and may not be cut
/// (destination unreachable, fragmentation needed); `None` where a router has to be silent. The
/// sender of the error is the destination of the packet, because the relay has no address.
pub(super) fn too_big(frame: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let packet = Ipv4::parse(frame)?;
    let error = packet.protocol == ICMP && ![0, 8].contains(frame.get(packet.payload)?);
    if !packet.dont_fragment || error {
        return None;
    }
    let quoted = &frame[ETHERNET..frame.len().min(packet.payload + 8)];
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(quoted);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut answer = Vec::with_capacity(ETHERNET + 20 + icmp.len());
    answer.extend_from_slice(&frame[6..12]);
    answer.extend_from_slice(&frame[..6]);
    answer.extend_from_slice(&[0x08, 0x00]);
    let length = u16::try_from(20 + icmp.len()).ok()?.to_be_bytes();
    let mut header = vec![0x45, 0xc0, length[0], length[1], 0, 0, 0, 0, 64, ICMP, 0, 0];
    header.extend_from_slice(&packet.destination.octets());
    header.extend_from_slice(&packet.source.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    answer.extend_from_slice(&header);
    answer.extend_from_slice(&icmp);
    Some(answer)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, transport: Vec<u8>, sum_at: usize) -> Vec<u8> {
        let mut transport = transport;
        let mut summed = Vec::new();
        if protocol != ICMP {
            summed.extend_from_slice(&from.octets());
            summed.extend_from_slice(&to.octets());
            summed.extend_from_slice(&[0, protocol]);
            summed.extend_from_slice(&(transport.len() as u16).to_be_bytes());
        }
        summed.extend_from_slice(&transport);
        transport[sum_at..sum_at + 2].copy_from_slice(&checksum(&summed).to_be_bytes());
        let length = (20 + transport.len() as u16).to_be_bytes();
        let mut header = vec![0x45, 0, length[0], length[1], 0, 9, 0x40, 0, 64, protocol, 0, 0];
        header.extend_from_slice(&from.octets());
        header.extend_from_slice(&to.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend(header);
        frame.extend(transport);
        frame
    }

    pub(in super::super) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut t = [from.1.to_be_bytes(), to.1.to_be_bytes(), [0, 13], [0, 0]].concat();
        t.extend_from_slice(b"hello");
        packet(UDP, from.0, to.0, t, 6)
    }

    pub(in super::super) fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut t = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
        t.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 7]);
        packet(TCP, from.0, to.0, t, 16)
    }

    pub(in super::super) fn echo(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut t = vec![8, 0, 0, 0];
        t.extend_from_slice(&from.1.to_be_bytes());
        t.extend_from_slice(&[0, 1, 9, 9]);
        packet(ICMP, from.0, to.0, t, 2)
    }

    pub(in super::super) fn arp_request(from: Ipv4Addr, whom: Ipv4Addr) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7]);
        frame.extend_from_slice(&from.octets());
        frame.extend_from_slice(&[0; 6]);
        frame.extend_from_slice(&whom.octets());
        frame
    }

    /// Both checksums are right.
    pub(in super::super) fn sound(frame: &[u8]) -> bool {
        let p = Ipv4::parse(frame).expect("IPv4");
        let mut summed = Vec::new();
        if p.protocol != ICMP {
            summed.extend_from_slice(&p.source.octets());
            summed.extend_from_slice(&p.destination.octets());
            summed.extend_from_slice(&[0, p.protocol]);
            summed.extend_from_slice(&((frame.len() - p.payload) as u16).to_be_bytes());
        }
        summed.extend_from_slice(&frame[p.payload..]);
        checksum(&frame[ETHERNET..p.payload]) == 0 && checksum(&summed) == 0
    }

    const A: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    const B: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

    #[test]
    fn rewriting_keeps_checksums_right_and_absent_ones_absent() {
        for make in [udp, tcp, echo] {
            for (address, port) in [(Ipv4Addr::new(255, 255, 0, 0), 0xffff), (Ipv4Addr::new(1, 2, 3, 4), 1)] {
                let mut frame = make((A, 500), (B, 4500));
                assert!(sound(&frame));
                let p = Ipv4::parse(&frame).expect("IPv4");
                p.rewrite_source(&mut frame, address, port);
                p.rewrite_destination(&mut frame, address, port);
                assert!(sound(&frame), "{address} {port}");
                let p = Ipv4::parse(&frame).expect("IPv4");
                assert_eq!((p.source, p.destination), (address, address));
                assert_eq!(p.ports(&frame), Some((port, port)));
            }
        }
        let mut frame = udp((A, 500), (B, 4500));
        frame[ETHERNET + 26..ETHERNET + 28].copy_from_slice(&[0, 0]);
        Ipv4::parse(&frame).expect("IPv4").rewrite_source(&mut frame, B, 7);
        assert_eq!(frame[ETHERNET + 26..ETHERNET + 28], [0, 0]);
    }

    #[test]
    fn short_and_strange_frames_are_no_ipv4() {
        let frame = tcp((A, 1), (B, 2));
        for n in 0..ETHERNET + 20 {
            assert_eq!(Ipv4::parse(&frame[..n]), None, "{n} bytes");
        }
        for n in ETHERNET + 20..frame.len() {
            let _ = Ipv4::parse(&frame[..n]).expect("a header").ports(&frame[..n]);
        }
        let mut options = frame.clone();
        options[ETHERNET] = 0x4f;
        assert_eq!(Ipv4::parse(&options), None);
        options[ETHERNET] = 0x60;
        assert_eq!(Ipv4::parse(&options), None);
    }

    #[test]
    fn too_big_quotes_the_packet_to_its_sender_and_never_answers_an_error() {
        let frame = udp((A, 500), (B, 4500));
        let answer = too_big(&frame, 1400).expect("an answer");
        assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        assert!(sound(&answer));
        let p = Ipv4::parse(&answer).expect("IPv4");
        assert_eq!((p.source, p.destination, p.protocol), (B, A, ICMP));
        assert_eq!(answer[p.payload..p.payload + 2], [3, 4]);
        assert_eq!(answer[p.payload + 6..p.payload + 8], 1400u16.to_be_bytes());
        assert_eq!(answer[p.payload + 8..], frame[ETHERNET..ETHERNET + 28]);
        assert_eq!(too_big(&answer, 10), None, "an error");
        let mut may_be_cut = frame;
        may_be_cut[ETHERNET + 6] = 0;
        assert_eq!(too_big(&may_be_cut, 1400), None);
    }
}
