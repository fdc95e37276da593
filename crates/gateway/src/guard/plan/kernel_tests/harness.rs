//! A box with three TUN devices: `lan0`, `wan0` and the device of the tunnel; what a test writes to
//! one is routed by the kernel, and read from another, or from none.

use std::io::IoSlice;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use ironswan_io::route::{Netlink, Route, RouteKind};
use ironswan_io::sysctl;
use ironswan_io::tun::{READ_SIZE, Tun, TunConfig, VNET_HEADER};
use ironswan_wire::ip::checksum;
use ironswan_wire::selector::TrafficSelector;

use super::super::tests::{settings, ts};
use super::super::*;
use crate::guard::{self, Nft};

/// The interface where a packet was seen, or the counter of the guard that counted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Went {
    Tunnel,
    Wide,
    Lan,
    /// Nowhere, and counted by the guard outwards.
    ClearOut,
    /// Nowhere, and counted by the guard inwards.
    ClearIn,
    Nowhere,
}
pub(super) use Went::{ClearIn, ClearOut, Lan, Nowhere, Tunnel, Wide};

/// Content behind the IP header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Upper {
    Tcp(u16, u16),
    Udp(u16, u16),
    /// Of IPv4; IPv6 has other types.
    Echo,
    EchoReply,
    /// This protocol, with eight bytes that mean nothing.
    Proto(u8),
    /// The first fragment of a UDP datagram.
    First(u16, u16),
    /// A later fragment, of this protocol.
    Later(u8),
    /// TCP behind eight bytes of destination options; in IPv4 just TCP.
    Options(u16, u16),
    /// Two bytes of TCP.
    Short,
}
pub(super) use Upper::{Echo, EchoReply, First, Later, Options, Proto, Short, Tcp, Udp};

/// One notation for both families: 10.A.B.C is fd00:A:B::C, everything else A.B.C.D is
/// 2001:A:B:C::D, lengths double.
pub(super) fn family(v6: bool, addr: &str) -> IpAddr {
    let ip: IpAddr = addr.parse().unwrap();
    let IpAddr::V4(v4) = ip else { return ip };
    match v4.octets().map(u16::from) {
        _ if !v6 => ip,
        [10, a, b, c] => [0xfd00, a, b, 0, 0, 0, 0, c].into(),
        [0, 0, 0, 0] => [0u16; 8].into(),
        [a, b, c, d] => [0x2001, a, b, c, 0, 0, 0, d].into(),
    }
}

pub(super) fn selector(v6: bool, text: &str) -> TrafficSelector {
    if !v6 {
        return ts(text);
    }
    let (range, rest) = text.split_once('[').map_or((text, String::new()), |(a, b)| (a, format!("[{b}")));
    let rest = rest.replace("[1/2048", "[58/32768");
    let range = match range.split_once("..") {
        Some((a, b)) => format!("{}..{}", family(v6, a), family(v6, b)),
        None => {
            let (a, len) = range.split_once('/').unwrap();
            let len: u8 = len.parse().unwrap();
            format!("{}/{}", family(v6, a), if len == 32 { 128 } else { len * 2 })
        }
    };
    ts(&format!("{range}{rest}"))
}

pub(super) fn policies(list: &[(Verdict, &str, &str)]) -> Vec<Policy> {
    let of = |v6| {
        list.iter().enumerate().map(move |(i, (verdict, local, remote))| Policy {
            name: format!("site.{i}"),
            verdict: *verdict,
            local: selector(v6, local),
            remote: selector(v6, remote),
            priority: 0,
            open: 0,
            guard: true,
        })
    };
    of(false).chain(of(true)).collect()
}

/// A packet that carries `tag`.
pub(super) fn packet(src: IpAddr, dst: IpAddr, upper: Upper, tag: u64) -> Vec<u8> {
    let (mut next, mut payload) = content(src, dst, upper, tag);
    let fragment: u16 = match upper {
        First(..) => 1,
        Later(_) => 185 << 3,
        _ => 0,
    };
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let field = (fragment >> 3) | ((fragment & 1) << 13);
            let mut h = vec![0x45, 0];
            h.extend(((20 + payload.len()) as u16).to_be_bytes());
            h.extend([0x12, 0x34]);
            h.extend(field.to_be_bytes());
            h.extend([64, next, 0, 0]);
            h.extend(src.octets());
            h.extend(dst.octets());
            let sum = !checksum::fold(checksum::sum(&h));
            h[10..12].copy_from_slice(&sum.to_ne_bytes());
            [h, payload].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            if fragment != 0 {
                let mut header = vec![next, 0];
                header.extend(fragment.to_be_bytes());
                header.extend([0, 0, 0, 9]);
                payload = [header, payload].concat();
                next = 44;
            }
            if matches!(upper, Options(..)) {
                payload = [vec![next, 0, 1, 4, 0, 0, 0, 0], payload].concat();
                next = 60;
            }
            let mut h = vec![0x60, 0, 0, 0];
            h.extend((payload.len() as u16).to_be_bytes());
            h.extend([next, 64]);
            h.extend(src.octets());
            h.extend(dst.octets());
            [h, payload].concat()
        }
        _ => unreachable!("one family"),
    }
}

/// Protocol and bytes behind the IP header, which end with `tag`; two bytes without it for
/// [`Short`].
fn content(src: IpAddr, dst: IpAddr, upper: Upper, tag: u64) -> (u8, Vec<u8>) {
    let v6 = src.is_ipv6();
    let ports = |a: u16, b: u16| [a.to_be_bytes(), b.to_be_bytes()].concat();
    let tcp = |a, b| [ports(a, b), vec![0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let tag = tag.to_be_bytes();
    let udp = |a, b| [ports(a, b), vec![0, 16, 0, 0]].concat();
    let echo = |t: u8| vec![t, 0, 0, 0, 0, 1, 0, 1];
    let (next, body) = match upper {
        Tcp(a, b) | Options(a, b) => (6, tcp(a, b)),
        Udp(a, b) | First(a, b) => (17, udp(a, b)),
        Echo if v6 => (58, echo(128)),
        Echo => (1, echo(8)),
        EchoReply if v6 => (58, echo(129)),
        EchoReply => (1, echo(0)),
        Proto(p) => (p, vec![0; 8]),
        Later(p) => (p, vec![0; 8]),
        Short => (6, vec![0, 80]),
    };
    let mut payload = if matches!(upper, Short) { body } else { [body, tag.to_vec()].concat() };
    if matches!(upper, Echo | EchoReply) {
        let addresses = match (src, dst) {
            (IpAddr::V6(a), IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
            _ => Vec::new(),
        };
        // Without a pseudo header in IPv4.
        let pseudo =
            if v6 { checksum::pseudo(&addresses, 58) + checksum::be16(payload.len() as u16) } else { 0 };
        let sum = !checksum::fold(checksum::sum(&payload) + pseudo);
        payload[2..4].copy_from_slice(&sum.to_ne_bytes());
    }
    (next, payload)
}

pub(super) struct Box {
    pub(super) lan: Tun,
    pub(super) wan: Tun,
    pub(super) tunnel: Tun,
    pub(super) nft: Nft,
    pub(super) netlink: Netlink,
    pub(super) tag: u64,
}

pub(super) fn run(program: &str, args: &str) -> String {
    let out = Command::new(program).args(args.split_whitespace()).output().unwrap();
    assert!(out.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(super) fn ip(args: &str) {
    run("ip", args);
}

/// In a namespace of its own, with the policies installed.
pub(super) fn in_box(policies: &[Policy], f: impl FnOnce(&mut Box) + Send) {
    std::thread::scope(|s| {
        s.spawn(|| {
            ironswan_io::namespace::unshare()
                .expect("these tests need root: they make network namespaces and TUN devices");
            let tun =
                |name: &str| Tun::create(&TunConfig { name: name.into(), ..TunConfig::default() }).unwrap();
            ip("link set lo up");
            let (lan, wan, tunnel) = (tun("lan0"), tun("wan0"), tun("ipsec0"));
            sysctl::prepare_device("ipsec0").unwrap();
            for (key, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
                std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
            }
            ip("addr add 10.1.0.1/16 dev lan0");
            ip("addr add fd00:1::1/32 dev lan0 nodad");
            ip("addr add 192.0.2.1/24 dev wan0");
            ip(&format!("addr add {}/64 dev wan0 nodad", family(true, "192.0.2.1")));
            ip("route add default dev wan0");
            ip("-6 route add default dev wan0");
            let (nft, mut netlink) = (Nft::find().unwrap(), Netlink::open().unwrap());
            // IPv6 takes a moment before it uses an address.
            for own in ["10.1.0.1", "192.0.2.1"] {
                while !netlink.lookup(family(true, own), None, 0).unwrap().is_some_and(|hop| hop.local) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let mut b = Box { lan, wan, tunnel, nft, netlink, tag: 0x6a77_0000_0000_0000 };
            b.install(policies);
            f(&mut b);
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

impl Box {
    pub(super) fn install(&mut self, policies: &[Policy]) -> Plan {
        let plan = plan(&settings(), policies);
        let without = guard::install(Some(&self.nft), &mut self.netlink, &plan, "ipsec0").unwrap();
        assert_eq!((without.problem, without.stricter), (None, None));
        for (destination, _) in plan.routes.iter().filter(|(_, way)| *way == Way::Tunnel) {
            let kind = RouteKind::Device(self.tunnel.index());
            let route = Route { kind, metric: 0, ..guard::standing_route(*destination, Way::Tunnel) };
            self.netlink.set_route(&route).unwrap();
        }
        plan
    }

    /// Removes all rules, as after a flush of everything but the table.
    pub(super) fn forget_routes(&mut self) {
        guard::set_rules(&mut self.netlink, &[]).unwrap();
    }

    pub(super) fn counted(&self) -> (u64, u64) {
        let links = Netlink::open().unwrap().links().unwrap();
        let ingress = guard::ingress::Report::look(&links).count;
        let c = self.nft.counters().unwrap().unwrap_or_default().and(ingress);
        (c.out_clear.packets, c.in_clear.packets)
    }

    /// Everything that is in the device's queue now.
    pub(super) fn drain(tun: &Tun) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buf = vec![0; READ_SIZE];
        while let Ok(n) = tun.read(&mut buf) {
            all.push(buf[VNET_HEADER..n].to_vec());
        }
        all
    }

    /// The packets that left now, and where.
    pub(super) fn left(&self) -> Vec<(Went, Vec<u8>)> {
        let all = [(&self.tunnel, Tunnel), (&self.wan, Wide), (&self.lan, Lan)];
        all.iter().flat_map(|(tun, went)| Self::drain(tun).into_iter().map(|p| (*went, p))).collect()
    }

    /// Writes the packet to `from`, and looks where it went.
    pub(super) fn send(&mut self, from: Went, src: IpAddr, dst: IpAddr, upper: Upper) -> Went {
        self.tag += 1;
        let packet = packet(src, dst, upper, self.tag);
        let before = self.counted();
        self.left();
        let tun = match from {
            Lan => &self.lan,
            Wide => &self.wan,
            _ => &self.tunnel,
        };
        tun.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&packet)]).unwrap();
        let tag = self.tag.to_be_bytes();
        let is_it = |p: &[u8]| match upper {
            Short => p.len() == packet.len() && p.ends_with(&[0, 80]),
            _ => p.ends_with(&tag),
        };
        let found = |b: &Self| b.left().into_iter().find(|(_, p)| is_it(p)).map(|(went, _)| went);
        // A forwarded packet is there at once. A packet that goes nowhere is looked for three times
        // more.
        for _ in 0..4 {
            if let Some(went) = found(self) {
                assert_eq!(before, self.counted(), "seen and counted");
                return went;
            }
            let now = self.counted();
            match (now.0 - before.0, now.1 - before.1) {
                (1, 0) => return ClearOut,
                (0, 1) => return ClearIn,
                (0, 0) => {}
                more => panic!("{src} -> {dst} {upper:?} was counted {more:?} times"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Nowhere
    }

    /// Sends each case in both families.
    pub(super) fn check(&mut self, what: &str, cases: &[Case]) {
        let mut wrong = Vec::new();
        for v6 in [false, true] {
            for (from, src, dst, upper, want) in cases {
                let (src, dst) = (family(v6, src), family(v6, dst));
                let went = self.send(*from, src, dst, *upper);
                if went != *want {
                    wrong.push(format!("{from:?}: {src} -> {dst} {upper:?}: {went:?}, not {want:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{what}:\n{}\n{}", wrong.join("\n"), run("nft", "list ruleset"));
    }
}

pub(super) type Case = (Went, &'static str, &'static str, Upper, Went);
