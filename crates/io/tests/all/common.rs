//! Network namespaces for tests, which belong to the thread and end with it, and helpers that
//! receive.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use ironswan_io::mmsg::{Received, RecvSlots};
use ironswan_io::poller::{Poller, Ready};
use ironswan_io::udp::UdpSocket;

/// Runs `f` on a thread with a fresh network namespace, loopback up. Fails, with the reason, where
/// that is not allowed.
pub fn in_namespace<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        s.spawn(|| {
            ironswan_io::namespace::unshare()
                .expect("these tests need root: they make network namespaces and TUN devices");
            ip("link set lo up");
            f()
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives `device` an address, and waits until the kernel is ready to use it, which takes IPv6 a
/// moment.
pub fn address(address: &str, prefix_len: u8, device: &str) {
    ip(&format!(
        "addr add {address}/{prefix_len} dev {device}{}",
        if address.contains(':') { " nodad" } else { "" }
    ));
    let mut netlink = ironswan_io::route::Netlink::open().unwrap();
    for _ in 0..500 {
        if netlink.lookup(address.parse().unwrap(), None, 0).unwrap().is_some_and(|hop| hop.local) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{address} does not become usable");
}

/// Runs `ip` in the namespace of this thread.
pub fn ip(args: &str) -> String {
    let out = Command::new("ip").args(args.split_whitespace()).output().expect("iproute2 is needed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn v4(text: &str) -> IpAddr {
    text.parse::<Ipv4Addr>().unwrap().into()
}

/// Waits until `fd` is readable; fails after a second.
pub fn readable(fd: impl AsFd) {
    let poller = Poller::new().unwrap();
    poller.add(fd, 1).unwrap();
    let mut ready = Ready::with_capacity(1);
    poller.wait(&mut ready, Some(Duration::from_secs(1))).unwrap();
    assert_eq!(ready.tokens(), [1], "nothing arrived");
}

/// Receives until this many datagrams have arrived.
pub fn receive(socket: &UdpSocket, datagrams: usize) -> (Vec<Received>, Vec<Vec<u8>>) {
    let (mut slots, mut buf) = (RecvSlots::new(8), vec![0; 8 * 65_536]);
    let (mut all, mut payloads): (Vec<Received>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    while payloads.len() < datagrams {
        readable(socket);
        let mut got = Vec::new();
        slots.recv(socket.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap();
        for r in got {
            assert!(!r.truncated);
            payloads.extend(buf[r.offset..r.offset + r.len].chunks(r.segment.max(1)).map(<[u8]>::to_vec));
            all.push(r);
        }
    }
    (all, payloads)
}
