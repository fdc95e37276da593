//! The program in the kernel's own hands (`BPF_PROG_TEST_RUN`): frames of every kind, and its
//! verdict. Needs root.

use std::os::fd::AsFd;

use super::super::frame::tests::{MAC, OURS4, OURS6, PORT, esp, ipv4, ipv6, padded, set_checksum, udp};
use super::super::socket::XdpSocket;
use super::*;

const LONGEST: u16 = 1792;

struct Loaded {
    maps: Maps,
    program: OwnedFd,
    _socket: OwnedFd,
}

fn program(maps: &Maps, raw_esp: bool) -> Program<'_> {
    Program {
        mac: MAC,
        frame: LONGEST,
        port: PORT,
        raw_esp,
        addresses: maps.addresses.as_fd(),
        sockets: maps.sockets.as_fd(),
    }
}

fn loaded(raw_esp: bool) -> Loaded {
    const ROOT: &str =
        "these tests need root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW: they load an XDP program";
    let maps = Maps::new(4).expect(ROOT);
    let socket = XdpSocket::unbound().expect(ROOT);
    maps.set_socket(0, socket.as_fd()).unwrap();
    maps.add_address(OURS4.into()).unwrap();
    maps.add_address(OURS6.parse().unwrap()).unwrap();
    let program = program(&maps, raw_esp).load().expect(ROOT);
    Loaded { maps, program, _socket: socket }
}

impl Loaded {
    fn verdict(&self, frame: &[u8]) -> u32 {
        bpf::test_run(self.program.as_fd(), frame, 1).unwrap().0
    }
}

fn in_udp(payload: &[u8]) -> Vec<u8> {
    ipv4(OURS4, 17, &udp(4500, PORT, payload))
}

/// Changes some bytes.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    set_checksum(&mut frame);
    frame
}

#[test]
fn esp_to_us_is_redirected_whatever_carries_it() {
    let l = loaded(true);
    for (what, frame) in [
        ("ESP in UDP", in_udp(&esp(256, 100))),
        ("from another port", ipv4(OURS4, 17, &udp(61_000, PORT, &esp(0xffff_ffff, 100)))),
        ("with DF off", with(in_udp(&esp(256, 100)), 20, &[0, 0])),
        ("shortest ESP in UDP", padded(in_udp(&esp(0x0100_0000, 8)))),
        ("longest", in_udp(&esp(256, usize::from(LONGEST) - 42))),
        ("ESP", ipv4(OURS4, 50, &esp(256, 100))),
        ("shortest ESP", padded(ipv4(OURS4, 50, &esp(256, 8)))),
        ("ESP in UDP over IPv6", ipv6(OURS6, 17, &udp(4500, PORT, &esp(256, 100)))),
        ("ESP over IPv6", ipv6(OURS6, 50, &esp(256, 8))),
    ] {
        assert_eq!(l.verdict(&frame), XDP_REDIRECT, "{what}");
    }
}

#[test]
fn everything_else_is_the_kernels() {
    let l = loaded(true);
    let packet = esp(256, 100);
    let marker = [&[0; 4][..], &[0xaa; 60]].concat();
    let other = [192, 0, 2, 2];
    let mapped = std::net::Ipv4Addr::from(OURS4).to_ipv6_mapped().to_string();
    for (what, frame) in [
        ("IKE", in_udp(&marker)),
        ("IKE over IPv6", ipv6(OURS6, 17, &udp(4500, PORT, &marker))),
        ("IKE on port 500", ipv4(OURS4, 17, &udp(500, 500, &[0xaa; 60]))),
        ("keepalive", padded(in_udp(&[0xff]))),
        ("keepalive over IPv6, padded", padded(ipv6(OURS6, 17, &udp(4500, PORT, &[0xff])))),
        ("four bytes", padded(in_udp(&[0xff; 4]))),
        ("seven bytes", padded(in_udp(&[0xff; 7]))),
        ("reserved SPI in UDP", in_udp(&esp(255, 100))),
        ("reserved SPI", ipv4(OURS4, 50, &esp(255, 100))),
        ("reserved SPI over IPv6", ipv6(OURS6, 50, &esp(1, 100))),
        ("another port", ipv4(OURS4, 17, &udp(4500, 4501, &packet))),
        ("from port 0", ipv4(OURS4, 17, &udp(0, PORT, &packet))),
        ("TCP", ipv4(OURS4, 6, &packet)),
        ("ICMP", ipv4(OURS4, 1, &packet)),
        ("AH", ipv4(OURS4, 51, &packet)),
        ("to another address", ipv4(other, 17, &udp(4500, PORT, &packet))),
        ("ESP to another address", ipv4(other, 50, &packet)),
        ("to another IPv6 address", ipv6("2001:db8::2", 50, &packet)),
        ("ESP to our IPv4 address as IPv6 writes it", ipv6(&mapped, 50, &packet)),
        ("UDP to our IPv4 address as IPv6 writes it", ipv6(&mapped, 17, &udp(4500, PORT, &packet))),
        ("to our IPv4 address in front of zeros", ipv6("c000:201::", 50, &packet)),
        ("to all", ipv4([255; 4], 17, &udp(4500, PORT, &packet))),
        ("to another station", with(in_udp(&packet), 5, &[9])),
        ("to all stations", with(in_udp(&packet), 0, &[0xff; 6])),
        ("first fragment", with(in_udp(&packet), 20, &[0x20, 0])),
        ("later fragment", with(in_udp(&packet), 20, &[0, 185])),
        ("last fragment", with(ipv4(OURS4, 50, &packet), 20, &[0x1f, 0xff])),
        ("IP options", with(in_udp(&packet), 14, &[0x46])),
        ("too short a header", with(in_udp(&packet), 14, &[0x44])),
        ("not version 4", with(in_udp(&packet), 14, &[0x65])),
        ("not version 6", with(ipv6(OURS6, 50, &packet), 14, &[0x45])),
        ("hop-by-hop options", ipv6(OURS6, 0, &packet)),
        ("fragment of IPv6", ipv6(OURS6, 44, &packet)),
        ("destination options", ipv6(OURS6, 60, &packet)),
        ("ARP", with(in_udp(&packet), 12, &[8, 6])),
        ("VLAN tag", with(in_udp(&packet), 12, &[0x81, 0])),
        ("too long for a frame", in_udp(&esp(256, usize::from(LONGEST) - 41))),
        ("UDP length that lies low", with(in_udp(&packet), 38, &[0, 15])),
    ] {
        assert_eq!(l.verdict(&frame), XDP_PASS, "{what}");
    }
}

#[test]
fn a_frame_cut_before_its_sequence_number_is_the_kernels() {
    let l = loaded(true);
    for frame in [
        in_udp(&esp(256, 8)),
        ipv4(OURS4, 50, &esp(256, 8)),
        ipv6(OURS6, 17, &udp(4500, PORT, &esp(256, 8))),
        ipv6(OURS6, 50, &esp(256, 8)),
    ] {
        assert_eq!(l.verdict(&frame), XDP_REDIRECT);
        // The kernel itself refuses to run a program on less than an Ethernet header.
        for len in 14..frame.len() {
            assert_eq!(l.verdict(&frame[..len]), XDP_PASS, "{len} of {}", frame.len());
        }
    }
}

#[test]
fn esp_without_udp_is_left_alone_where_it_is_not_asked_for() {
    let l = loaded(false);
    assert_eq!(l.verdict(&ipv4(OURS4, 50, &esp(256, 100))), XDP_PASS);
    assert_eq!(l.verdict(&ipv6(OURS6, 50, &esp(256, 100))), XDP_PASS);
    assert_eq!(l.verdict(&in_udp(&esp(256, 100))), XDP_REDIRECT);
}

#[test]
fn without_a_socket_or_without_the_address_the_kernel_goes_on() {
    let mut l = loaded(true);
    let (frame, frame6) = (in_udp(&esp(256, 100)), ipv6(OURS6, 50, &esp(256, 100)));
    l.maps.remove_address(OURS4.into()).unwrap();
    l.maps.remove_address(OURS4.into()).unwrap();
    assert_eq!((l.verdict(&frame), l.verdict(&frame6)), (XDP_PASS, XDP_REDIRECT));
    l.maps.add_address(OURS4.into()).unwrap();
    assert_eq!(l.verdict(&frame), XDP_REDIRECT);
    // As when its process dies.
    l._socket = XdpSocket::unbound().unwrap();
    assert_eq!((l.verdict(&frame), l.verdict(&frame6)), (XDP_PASS, XDP_PASS));
}

#[test]
fn whatever_the_program_takes_passes_the_checks_unless_its_lengths_or_sums_lie() {
    // Seeded changes of good frames: program and checks read the same fields, so that what the
    // program redirects is refused behind it only for what the program does not look at.
    let l = loaded(true);
    let mut state = 3u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let good = [
        in_udp(&esp(256, 32)),
        ipv4(OURS4, 50, &esp(256, 32)),
        ipv6(OURS6, 17, &udp(4500, PORT, &esp(256, 32))),
        ipv6(OURS6, 50, &esp(256, 32)),
    ];
    let (mut redirected, mut refused) = (0, 0);
    for i in 0..20_000 {
        let mut frame = good[i % 4].clone();
        let at = usize::from(random()) % 70 % frame.len();
        frame[at] = random();
        let length = matches!(
            (i % 4, at),
            (0 | 1, 16 | 17 | 24..=29) | (0, 38 | 39) | (2 | 3, 18 | 19 | 22..=37) | (2, 58 | 59)
        );
        if i % 4 < 2 && at != 24 && at != 25 {
            set_checksum(&mut frame);
        }
        let taken = super::super::frame::parse(&frame, 1, PORT).is_some();
        match l.verdict(&frame) {
            XDP_REDIRECT => {
                redirected += 1;
                assert!(taken || length, "{at} {frame:02x?}");
                refused += u32::from(!taken);
            }
            // Addresses are the program's alone.
            verdict => assert_eq!(verdict, XDP_PASS),
        }
    }
    assert!(redirected > 5_000 && refused > 100, "{redirected} {refused}");
}

#[test]
fn the_verifier_is_quoted_when_it_refuses() {
    let mut a = Assembler::default();
    a.load(Word, R0, R2, 0);
    a.push(EXIT, R0, 0, 0, 0);
    let error = bpf::load(ProgramKind::Xdp, &a.0, "bad").unwrap_err().to_string();
    assert!(error.contains("the verifier says: R2 !read_ok"), "{error}");
}
