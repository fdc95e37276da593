//! Frames of every kind, and what the checks say to them.

use super::*;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PORT: u16 = 4500;
pub(crate) const OURS4: [u8; 4] = [192, 0, 2, 1];
pub(crate) const OURS6: &str = "2001:db8::1";

/// SPI, sequence number, and something encrypted.
pub(crate) fn esp(spi: u32, len: usize) -> Vec<u8> {
    let mut p = spi.to_be_bytes().to_vec();
    p.extend([0, 0, 0, 7]);
    p.resize(len, 0xee);
    p
}

pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// The checksum that makes the sum of the header all ones.
pub(crate) fn set_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

pub(crate) fn ipv4(to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut f = [&MAC[..], &[2, 0, 0, 0, 0, 2], &[8, 0, 0x45, 0xb9], &total.to_be_bytes()].concat();
    f.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 198, 51, 100, 9]);
    f.extend(to);
    f.extend(payload);
    set_checksum(&mut f);
    f
}

pub(crate) fn ipv6(to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let source: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let to: Ipv6Addr = to.parse().unwrap();
    let head = [0x86, 0xdd, 0x6b, 0x90, 0, 0, len[0], len[1], next, 64];
    [&MAC[..], &[2, 0, 0, 0, 0, 2], &head, &source.octets(), &to.octets(), payload].concat()
}

/// Ethernet pads to 60 bytes.
pub(crate) fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

fn take(frame: &[u8]) -> Option<(Vec<u8>, String, String, u8)> {
    let esp = parse(frame, 7, PORT)?;
    Some((frame[esp.range].to_vec(), esp.local.to_string(), esp.remote.to_string(), esp.tos))
}

#[test]
fn esp_is_found_with_its_addresses_and_tos_whatever_carries_it() {
    let packet = esp(256, 40);
    let in_udp = udp(4501, PORT, &packet);
    let (ours, theirs) = ("192.0.2.1".to_owned(), "198.51.100.9");
    assert_eq!(
        take(&ipv4(OURS4, 17, &in_udp)),
        Some((packet.clone(), ours.clone(), format!("{theirs}:4501"), 0xb9))
    );
    assert_eq!(take(&ipv4(OURS4, 50, &packet)), Some((packet.clone(), ours, format!("{theirs}:0"), 0xb9)));
    let (ours, theirs) = (OURS6.to_owned(), "[2001:db8::9]");
    assert_eq!(
        take(&ipv6(OURS6, 17, &in_udp)),
        Some((packet.clone(), ours.clone(), format!("{theirs}:4501"), 0xb9))
    );
    assert_eq!(take(&ipv6(OURS6, 50, &packet)), Some((packet, ours, format!("{theirs}:0"), 0xb9)));
}

#[test]
fn padding_of_ethernet_is_not_part_of_the_packet() {
    let packet = esp(0x1234, 12);
    for frame in [ipv4(OURS4, 17, &udp(9, PORT, &packet)), ipv4(OURS4, 50, &packet)] {
        assert_eq!(take(&padded(frame)).unwrap().0, packet);
    }
    let mut long = udp(9, PORT, &packet);
    // More in the IP packet than in the datagram.
    long.extend([1, 2, 3]);
    assert_eq!(take(&ipv4(OURS4, 17, &long)).unwrap().0, packet);
}

#[test]
fn a_link_local_sender_is_known_with_the_interface() {
    let mut frame = ipv6(OURS6, 50, &esp(256, 16));
    frame[22..38].copy_from_slice(&"fe80::9".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(parse(&frame, 7, PORT).unwrap().remote, "[fe80::9%7]:0".parse().unwrap());
}

#[test]
fn a_frame_cut_anywhere_is_refused() {
    for frame in [
        ipv4(OURS4, 17, &udp(4500, PORT, &esp(256, 32))),
        ipv4(OURS4, 50, &esp(256, 32)),
        ipv6(OURS6, 17, &udp(4500, PORT, &esp(256, 32))),
        ipv6(OURS6, 50, &esp(256, 32)),
    ] {
        assert!(take(&frame).is_some());
        for len in 0..frame.len() {
            assert_eq!(take(&frame[..len]), None, "{len} of {}", frame.len());
        }
    }
}

/// Changes bytes of an IPv4 frame with ESP in UDP, and sums the header again where that is asked
/// for.
fn changed(at: usize, bytes: &[u8], sum: bool) -> Vec<u8> {
    let mut frame = ipv4(OURS4, 17, &udp(4500, PORT, &esp(256, 32)));
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    if sum {
        set_checksum(&mut frame);
    }
    frame
}

#[test]
fn headers_that_contradict_each_other_or_the_standards_are_refused() {
    assert!(take(&changed(0, &[], true)).is_some());
    for (what, frame) in [
        ("checksum", changed(24, &[0x12, 0x34], false)),
        ("one bit of a header", changed(22, &[63], false)),
        ("IP options", changed(14, &[0x46], true)),
        ("version", changed(14, &[0x55], true)),
        ("total length past the frame", changed(16, &61u16.to_be_bytes(), true)),
        ("total length below the header", changed(16, &19u16.to_be_bytes(), true)),
        ("total length that cuts UDP", changed(16, &27u16.to_be_bytes(), true)),
        ("total length that cuts ESP", changed(16, &35u16.to_be_bytes(), true)),
        ("first fragment", changed(20, &[0x20, 0], true)),
        ("later fragment", changed(20, &[0, 1], true)),
        ("UDP length past the packet", changed(38, &41u16.to_be_bytes(), true)),
        ("UDP length below the header", changed(38, &7u16.to_be_bytes(), true)),
        ("UDP length without ESP", changed(38, &15u16.to_be_bytes(), true)),
        ("another port", changed(36, &4501u16.to_be_bytes(), true)),
        ("source port 0", changed(34, &[0, 0], true)),
        ("IKE", changed(42, &[0; 4], true)),
        ("reserved SPI", changed(42, &255u32.to_be_bytes(), true)),
        ("another protocol", changed(23, &[6], true)),
        ("another EtherType", changed(12, &[8, 6], true)),
        ("source 0.0.0.0", changed(26, &[0; 4], true)),
        ("loopback source", changed(26, &[127, 0, 0, 1], true)),
        ("multicast source", changed(26, &[224, 0, 0, 1], true)),
        ("broadcast source", changed(26, &[255; 4], true)),
    ] {
        assert_eq!(take(&frame), None, "{what}");
    }
    for (what, at, bytes) in [
        ("version", 14, &[0x4b][..]),
        ("length past the frame", 18, &[0, 200][..]),
        ("an extension header", 20, &[0][..]),
        ("fragment header", 20, &[44][..]),
        ("multicast source", 22, &[0xff][..]),
        ("no source", 22, &[0; 16][..]),
        ("IPv4 source", 22, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..]),
        ("IPv4 destination", 38, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..]),
    ] {
        let mut frame = ipv6(OURS6, 50, &esp(256, 32));
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(take(&frame), None, "IPv6: {what}");
    }
}

#[test]
fn random_bytes_behind_a_good_beginning_never_lead_outside_the_frame() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let good =
        [ipv4(OURS4, 17, &udp(4500, PORT, &esp(256, 32))), ipv6(OURS6, 17, &udp(4500, PORT, &esp(256, 32)))];
    let mut taken = 0;
    for i in 0..200_000 {
        let mut frame = good[i % 2].clone();
        for _ in 0..1 + i % 3 {
            let at = usize::from(random()) % frame.len();
            frame[at] = random();
        }
        if frame[12] == 8 {
            set_checksum(&mut frame);
        }
        if let Some(esp) = parse(&frame, 7, PORT) {
            assert!(esp.range.end <= frame.len() && esp.range.len() >= 8);
            taken += 1;
        }
    }
    assert!(taken > 1000, "most changes are in what is encrypted: {taken}");
}
