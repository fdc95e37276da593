//! `AF_XDP` on a veth: what comes through it, what goes the kernel's way, and what happens when the
//! interface goes. Needs root.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{address, in_namespace, ip};
use ironswan_io::mmsg::{Received, RecvSlots};
use ironswan_io::packet::PacketSocket;
use ironswan_io::poller::{Poller, Ready};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_io::xdp::{GenericXdp, InterfaceState, SLOT, XdpAttachment, XdpConfig, XdpError, XdpSocket};

const OURS: &str = "192.0.2.1";
const OURS6: &str = "2001:db8::1";
const PORT: u16 = 4500;

/// A veth of which `wan` is ours, with addresses, and frames are sent from `peer`.
fn veth() {
    ip("link add wan address 02:00:00:00:00:01 type veth peer name peer address 02:00:00:00:00:02");
    ip("link set peer up");
    ip("link set wan up");
    address(OURS, 24, "wan");
    address(OURS6, 64, "wan");
}

fn config(interface: &str) -> XdpConfig {
    XdpConfig { interface: interface.into(), natt_port: PORT, raw_esp: true, generic: GenericXdp::Hardware }
}

fn open() -> (XdpAttachment, XdpSocket) {
    let (attachment, mut sockets) =
        XdpAttachment::open(&config("wan")).expect("these tests need root: they load an XDP program");
    assert_eq!(sockets.len(), 1, "a veth has one queue unless it is asked for more");
    (attachment, sockets.remove(0))
}

fn checksum(header: &[u8]) -> [u8; 2] {
    let mut sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    (!(sum as u16)).to_be_bytes()
}

/// An Ethernet frame from 192.0.2.2 (or 2001:db8::2) with `payload` in UDP, or, without a port, as
/// ESP.
fn frame(to: &str, port: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let to: IpAddr = to.parse().unwrap();
    let upper = match port {
        None => payload.to_vec(),
        Some(port) => {
            let len = (payload.len() as u16 + 8).to_be_bytes();
            // No checksum; IPv6 sockets of ours take that too.
            [&4501u16.to_be_bytes(), &port.to_be_bytes(), &len, &[0, 0], payload].concat()
        }
    };
    let protocol = if port.is_some() { 17 } else { 50 };
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match to {
        IpAddr::V4(to) => {
            let len = (upper.len() as u16 + 20).to_be_bytes();
            let mut header =
                [&[0x45, 0x28][..], &len, &[0, 0, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 2]].concat();
            header.extend(to.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum);
            f.extend([8, 0]);
            f.extend(header);
        }
        IpAddr::V6(to) => {
            let len = (upper.len() as u16).to_be_bytes();
            f.extend([0x86, 0xdd, 0x62, 0x80, 0, 0, len[0], len[1], protocol, 64]);
            f.extend("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
            f.extend(to.octets());
        }
    }
    f.extend(upper);
    f
}

/// An ESP packet that can be told from others.
fn esp(number: u32, len: usize) -> Vec<u8> {
    let mut p = [0x1000u32.to_be_bytes(), number.to_be_bytes()].concat();
    p.resize(len, number as u8);
    p
}

fn send(frames: &[Vec<u8>]) {
    let mut socket = PacketSocket::open("peer", 1, 1 << 20).unwrap();
    for f in frames {
        assert_eq!(socket.send(f, f.len(), f.len(), 1).unwrap(), 1);
    }
}

/// Waits until `fd` is readable, at most a second.
fn readable(fd: impl AsFd) -> bool {
    let poller = Poller::new().unwrap();
    poller.add(fd, 1).unwrap();
    let mut ready = Ready::with_capacity(1);
    poller.wait(&mut ready, Some(Duration::from_secs(1))).unwrap();
    !ready.tokens().is_empty()
}

/// What comes through the socket until it is `n` packets, with what is known of each.
fn receive(socket: &mut XdpSocket, n: usize) -> Vec<(Vec<u8>, Received)> {
    let (mut buf, mut all) = (vec![0; 8 * SLOT], Vec::new());
    while all.len() < n {
        assert!(readable(&*socket), "{} of {n} came, {:?}", all.len(), socket.stats());
        let mut got = Vec::new();
        socket.recv(&mut buf, SLOT, &mut got);
        all.extend(got.iter().map(|r| (buf[r.offset..r.offset + r.len].to_vec(), *r)));
    }
    all
}

/// What comes to a socket of the kernel's, at once.
fn kernel(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buf = vec![0; 8 * 65_536];
    let mut got = Vec::new();
    if readable(socket) {
        RecvSlots::new(8).recv(socket.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap();
    }
    got.iter().map(|r| buf[r.offset..r.offset + r.len].to_vec()).collect()
}

/// The same of a frame that is sent again when it did not come: a program that another test is just
/// starting has a copy of what was closed before this, until it runs.
fn kernel_at_last(socket: &UdpSocket, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut attempts = (0..3).map(|_| {
        send(&[frame.to_vec()]);
        kernel(socket)
    });
    attempts.find(|got| !got.is_empty()).unwrap_or_default()
}

fn natt(ipv6: bool) -> UdpSocket {
    UdpSocket::bind(UdpConfig { gro: false, ..UdpConfig::esp(ipv6, PORT, 0) }).unwrap()
}

#[test]
fn esp_comes_through_in_order_and_ike_and_keepalives_reach_the_sockets() {
    in_namespace(|| {
        veth();
        let (attachment, mut xdp) = open();
        assert!(!attachment.is_generic());
        let (v4, v6) = (natt(false), natt(true));
        let ike = [&[0; 4][..], b"an IKE message"].concat();
        let big = esp(5, 1400);
        send(&[
            frame(OURS, Some(PORT), &esp(1, 8)),
            frame(OURS, Some(PORT), &ike),
            frame(OURS, None, &esp(2, 100)),
            frame(OURS, Some(PORT), &[0xff]),
            frame(OURS6, Some(PORT), &esp(3, 60)),
            frame(OURS6, Some(PORT), &ike),
            frame(OURS6, None, &esp(4, 60)),
            frame(OURS, Some(PORT), &big),
        ]);
        let got = receive(&mut xdp, 5);
        let payloads: Vec<_> = got.iter().map(|(p, _)| p.clone()).collect();
        assert_eq!(payloads, [esp(1, 8), esp(2, 100), esp(3, 60), esp(4, 60), big]);
        let known: Vec<_> = got.iter().map(|(_, r)| (r.local.to_string(), r.remote.to_string())).collect();
        let known: Vec<_> = known.iter().map(|(l, r)| (l.as_str(), r.as_str())).collect();
        assert_eq!(
            known,
            [
                (OURS, "192.0.2.2:4501"),
                (OURS, "192.0.2.2:0"),
                (OURS6, "[2001:db8::2]:4501"),
                (OURS6, "[2001:db8::2]:0"),
                (OURS, "192.0.2.2:4501"),
            ]
        );
        assert!(got.iter().all(|(p, r)| r.tos == 0x28 && r.segment == p.len() && !r.truncated));
        assert_eq!(kernel(&v4), [ike.clone(), vec![0xff]]);
        assert_eq!(kernel(&v6), [ike]);
        let stats = xdp.stats();
        assert_eq!((stats.frames, stats.dropped()), (5, 0), "{stats:?}");
    });
}

#[test]
fn a_frame_with_a_wrong_header_checksum_is_dropped_and_counted() {
    in_namespace(|| {
        veth();
        let (_attachment, mut xdp) = open();
        let mut bad = frame(OURS, Some(PORT), &esp(1, 50));
        bad[24] ^= 1;
        send(&[bad, frame(OURS, Some(PORT), &esp(2, 50))]);
        let got = receive(&mut xdp, 1);
        assert_eq!(got[0].0, esp(2, 50));
        let stats = xdp.stats();
        assert_eq!((stats.frames, stats.malformed, stats.dropped()), (2, 1, 1), "{stats:?}");
    });
}

#[test]
fn every_frame_of_a_flood_is_received_or_counted_where_it_was_dropped() {
    in_namespace(|| {
        veth();
        let (_attachment, mut xdp) = open();
        let count = 5_000u32;
        send(&(0..count).map(|i| frame(OURS, Some(PORT), &esp(i, 64))).collect::<Vec<_>>());
        let mut got = receive(&mut xdp, 2048);
        // Room again: what is sent now is received.
        let last = esp(count, 64);
        send(&[frame(OURS, Some(PORT), &last)]);
        got.extend(receive(&mut xdp, 1));
        assert_eq!(got.last().unwrap().0, last);
        let numbers: Vec<u32> =
            got.iter().map(|(p, _)| u32::from_be_bytes(*p[4..].first_chunk().unwrap())).collect();
        assert!(numbers.is_sorted(), "in order");
        let stats = xdp.stats();
        assert!(stats.no_frame > 0 && stats.no_frame == stats.dropped(), "{stats:?}");
        assert_eq!(stats.frames + stats.dropped(), u64::from(count) + 1, "{stats:?}");
        assert_eq!(stats.frames, got.len() as u64);
    });
}

#[test]
fn without_its_socket_or_its_program_esp_reaches_the_kernels_sockets_again() {
    in_namespace(|| {
        veth();
        let natt = natt(false);
        let (attachment, mut xdp) = open();
        let (a, b, c) = (esp(1, 40), esp(2, 40), esp(3, 40));
        send(&[frame(OURS, Some(PORT), &a)]);
        assert_eq!(receive(&mut xdp, 1)[0].0, a);
        drop(xdp);
        assert_eq!(
            kernel_at_last(&natt, &frame(OURS, Some(PORT), &b)),
            std::slice::from_ref(&b),
            "no socket"
        );
        drop(attachment);
        assert_eq!(kernel_at_last(&natt, &frame(OURS, Some(PORT), &c)), [c], "no program");
        assert!((0..50).any(|_| !ip("link show dev wan").contains("xdp")));
        // And with a new one it comes through again.
        let (_attachment, mut xdp) = open();
        send(&[frame(OURS, Some(PORT), &b)]);
        assert_eq!(receive(&mut xdp, 1)[0].0, b);
    });
}

/// Calls `changed` until it is said that `done`, at most a second long.
fn until(
    attachment: &mut XdpAttachment,
    done: impl Fn(&XdpAttachment, InterfaceState) -> bool,
) -> InterfaceState {
    loop {
        assert!(readable(&*attachment), "nothing is said");
        let standing = attachment.changed();
        if done(attachment, standing) {
            return standing;
        }
    }
}

#[test]
fn addresses_that_come_and_go_are_learnt() {
    in_namespace(|| {
        veth();
        let natt = natt(false);
        let (mut attachment, mut xdp) = open();
        let (new, packet) = ("192.0.2.77", esp(9, 40));
        let has = |a: &XdpAttachment, ip: &str| a.addresses().any(|have| have.to_string() == ip);
        assert!(has(&attachment, OURS) && has(&attachment, OURS6) && !has(&attachment, "127.0.0.1"));
        ip(&format!("addr add {new}/24 dev wan"));
        until(&mut attachment, |a, _| has(a, new));
        send(&[frame(new, Some(PORT), &packet)]);
        let got = receive(&mut xdp, 1);
        assert_eq!((&got[0].0, got[0].1.local.to_string().as_str()), (&packet, new));
        ip(&format!("addr del {new}/24 dev wan"));
        until(&mut attachment, |a, _| !has(a, new));
        send(&[frame(new, Some(PORT), &packet), frame(OURS, Some(PORT), &packet)]);
        assert_eq!(receive(&mut xdp, 1)[0].1.local.to_string(), OURS);
        assert!(kernel(&natt).is_empty(), "an address that is nobody's is not the socket's either");
    });
}

#[test]
fn an_interface_that_goes_is_missed_and_others_that_go_are_not() {
    in_namespace(|| {
        veth();
        let (mut attachment, mut xdp) = open();
        ip("link add other type veth peer name another");
        ip("link del other");
        until(&mut attachment, |_, standing| standing == InterfaceState::Attached);
        ip("link del peer");
        assert_eq!(
            until(&mut attachment, |_, standing| standing == InterfaceState::Gone),
            InterfaceState::Gone
        );
        let mut got = Vec::new();
        assert_eq!(xdp.recv(&mut vec![0; SLOT], SLOT, &mut got), 0);
        assert_eq!(xdp.stats().dropped(), 0);
    });
}

#[test]
fn behind_the_driver_it_works_too() {
    in_namespace(|| {
        veth();
        let config = XdpConfig { generic: GenericXdp::Only, ..config("wan") };
        let (attachment, mut sockets) = XdpAttachment::open(&config).unwrap();
        assert!(attachment.is_generic());
        let packets: Vec<_> = (0..20).map(|i| esp(i, 1400)).collect();
        send(&packets.iter().map(|p| frame(OURS, Some(PORT), p)).collect::<Vec<_>>());
        let got: Vec<_> = receive(&mut sockets[0], 20).into_iter().map(|(p, _)| p).collect();
        assert_eq!(got, packets);
    });
}

#[test]
fn each_queue_has_its_socket() {
    in_namespace(|| {
        ip("link add wan numrxqueues 2 numtxqueues 2 type veth peer name peer numrxqueues 2 numtxqueues 2");
        let (_attachment, sockets) = XdpAttachment::open(&config("wan")).unwrap();
        assert_eq!(sockets.len(), 2);
    });
}

#[test]
fn frames_longer_than_the_memory_of_one_reach_the_kernel() {
    in_namespace(|| {
        veth();
        let natt = natt(false);
        let (_attachment, mut xdp) = open();
        // After the sizes of frames were chosen.
        ip("link set peer mtu 3000");
        ip("link set wan mtu 3000");
        let (long, short) = (esp(1, 2900), esp(2, 1400));
        send(&[frame(OURS, Some(PORT), &long), frame(OURS, Some(PORT), &short)]);
        assert_eq!(receive(&mut xdp, 1)[0].0, short);
        assert_eq!(kernel(&natt), [long]);
    });
}

#[test]
fn what_keeps_it_from_being_opened_is_said_with_the_remedy() {
    in_namespace(|| {
        veth();
        let refuse = |interface: &str, words: &[&str]| {
            let error = XdpAttachment::open(&config(interface)).map(drop).unwrap_err();
            let text = error.to_string();
            assert!(words.iter().all(|w| text.contains(w)), "{text}");
            error
        };
        assert!(matches!(refuse("nosuch", &["no interface nosuch", "ip link"]), XdpError::Interface(_)));
        assert!(matches!(refuse("lo", &["lo", "Ethernet"]), XdpError::NotEthernet { .. }));
        ip("link add soft type bridge");
        refuse("soft", &["attached", "soft", "driver has no XDP"]);
        let held = open();
        refuse("wan", &["wan", "another program", "ip link show"]);
        drop(held);
        ip("link set peer mtu 9000");
        refuse("wan", &["MTU", "3,498"]);
        assert!(!ip("link show dev wan").contains("xdp"), "nothing is left behind");
    });
}

#[test]
fn a_buffer_without_room_takes_nothing_and_loses_nothing() {
    in_namespace(|| {
        veth();
        let (_attachment, mut xdp) = open();
        // Too little room for even one frame: nothing is taken, nothing is lost.
        send(&[frame(OURS, Some(PORT), &esp(1, 1000))]);
        assert!(readable(&xdp));
        let mut got = Vec::new();
        assert_eq!(xdp.recv(&mut [0; 100], SLOT, &mut got), 0);
        assert_eq!(receive(&mut xdp, 1)[0].1.remote, SocketAddr::new("192.0.2.2".parse().unwrap(), 4501));
    });
}
