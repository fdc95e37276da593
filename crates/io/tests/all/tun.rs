//! TUN devices of this kernel. Needs root.

use std::time::Duration;

use crate::common::{in_namespace, readable, v4};
use ironswan_io::error::Error;
use ironswan_io::route::{Address, Netlink};
use ironswan_io::tun::{READ_SIZE, Tun, TunConfig, VNET_HEADER};

#[test]
fn a_tun_device_carries_packets_both_ways() {
    in_namespace(|| {
        let tun = Tun::create(&TunConfig {
            name: "ipsec0".into(),
            mtu: 1300,
            queue_len: 777,
            ..TunConfig::default()
        })
        .unwrap();
        assert!(tun.offloads().checksum && tun.offloads().tso, "{:?}", tun.offloads());
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link("ipsec0").unwrap();
        assert_eq!((link.index, link.mtu, link.up, link.queue_len), (tun.index(), 1300, true, 777));
        assert!(netlink.addresses().unwrap().iter().all(|a| a.link != link.index), "no address but ours");
        netlink.add_address(Address::new(link.index, v4("10.9.0.1"), 24)).unwrap();
        // Out: a datagram of ours, its checksum left to us.
        let s = std::net::UdpSocket::bind("10.9.0.1:1000").unwrap();
        s.send_to(b"hello", "10.9.0.2:2000").unwrap();
        let mut buf = vec![0; READ_SIZE];
        let n = loop {
            readable(&tun);
            let n = tun.read(&mut buf).unwrap();
            if buf[VNET_HEADER] >> 4 == 4 {
                break n;
            }
        };
        let mut packet = buf[VNET_HEADER..n].to_vec();
        assert_eq!((packet[9], &packet[28..]), (17, &b"hello"[..]));
        // In: the same datagram turned round, without a UDP checksum.
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        packet[26..28].fill(0);
        let header = [0u8; VNET_HEADER];
        tun.write(&[std::io::IoSlice::new(&header), std::io::IoSlice::new(&packet)]).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut reply = [0; 16];
        let (n, from) = s.recv_from(&mut reply).unwrap();
        assert_eq!((&reply[..n], from), (&b"hello"[..], "10.9.0.2:2000".parse().unwrap()));
        // A read into too little memory takes the packet's beginning, fills the buffer, and leaves
        // the device working.
        s.send_to(&[1; 500], "10.9.0.2:2000").unwrap();
        s.send_to(b"next", "10.9.0.2:2000").unwrap();
        readable(&tun);
        assert_eq!(tun.read(&mut buf[..100]).unwrap(), 100);
        let n = tun.read(&mut buf).unwrap();
        assert_eq!(&buf[n - 4..n], b"next");
        assert!(matches!(tun.read(&mut buf), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock));
        // The name is taken while the device lives, and free when it is gone.
        assert!(matches!(Tun::create(&TunConfig::default()), Err(Error::DeviceBusy { .. })));
        drop(tun);
        // A program that another test is starting has a copy of it until it runs.
        let free = (0..500).any(|_| match Tun::create(&TunConfig::default()) {
            Err(Error::DeviceBusy { .. }) => {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
            made => made.is_ok(),
        });
        assert!(free, "the name stays taken");
    });
}

#[test]
fn names_that_are_no_tun_device_are_refused() {
    in_namespace(|| {
        let create = |name: &str| Tun::create(&TunConfig { name: name.into(), ..TunConfig::default() });
        for name in ["", "a/b", "sixteen-letters-", "a b", "..", "x%d"] {
            assert!(matches!(create(name), Err(Error::DeviceName { .. })), "{name:?}");
        }
        assert!(matches!(create("lo"), Err(Error::DeviceBusy { .. })), "{:?}", create("lo"));
        let kept = create("lo").unwrap_err().to_string();
        assert!(kept.contains("ip link del lo"), "{kept}");
    });
}
