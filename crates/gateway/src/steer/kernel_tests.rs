//! Plans in a real kernel, and where packets go. A box with three TUN devices: `lan0`, `wan0` and the device of the tunnel; what a
//! test writes to one is routed by the kernel, and read from another, or from none. Needs root, and the program `nft`.

use std::io::IoSlice;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use ironswan_io::route::{Netlink, Route, RouteKind};
use ironswan_io::sysctl;
use ironswan_io::tun::{READ_SIZE, Tun, TunConfig, VNET_HEADER};
use ironswan_wire::ip::checksum;

use super::tests::{settings, ts};
use super::*;
use crate::guard::{self, Nft};

/// Where a packet was seen, or who dropped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Went {
    Tunnel,
    Wide,
    Lan,
    /// Nowhere, and counted by the guard outwards.
    ClearOut,
    /// Nowhere, and counted by the guard inwards.
    ClearIn,
    Nowhere,
}
use Went::{ClearIn, ClearOut, Lan, Nowhere, Tunnel, Wide};

/// What is behind the IP header.
#[derive(Clone, Copy, Debug)]
enum Upper {
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
use Upper::{Echo, EchoReply, First, Later, Options, Proto, Short, Tcp, Udp};

/// One notation for both families: 10.A.B.C is fd00:A:B::C, everything else A.B.C.D is 2001:A:B:C::D, lengths double.
fn family(v6: bool, addr: &str) -> IpAddr {
    let ip: IpAddr = addr.parse().unwrap();
    let IpAddr::V4(v4) = ip else { return ip };
    match v4.octets().map(u16::from) {
        _ if !v6 => ip,
        [10, a, b, c] => [0xfd00, a, b, 0, 0, 0, 0, c].into(),
        [0, 0, 0, 0] => [0u16; 8].into(),
        [a, b, c, d] => [0x2001, a, b, c, 0, 0, 0, d].into(),
    }
}

fn selector(v6: bool, text: &str) -> TrafficSelector {
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

fn policies(list: &[(Verdict, &str, &str)]) -> Vec<Policy> {
    let of = |v6| {
        list.iter().enumerate().map(move |(i, (verdict, local, remote))| Policy {
            name: format!("site.{i}"),
            verdict: *verdict,
            local: selector(v6, local),
            remote: selector(v6, remote),
            priority: 0,
            guard: true,
        })
    };
    of(false).chain(of(true)).collect()
}

/// A packet that carries `tag`.
fn packet(src: IpAddr, dst: IpAddr, upper: Upper, tag: u64) -> Vec<u8> {
    let v6 = src.is_ipv6();
    let ports = |a: u16, b: u16| [a.to_be_bytes(), b.to_be_bytes()].concat();
    let tcp = |a, b| [ports(a, b), vec![0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let tag = tag.to_be_bytes();
    let udp = |a, b| [ports(a, b), vec![0, 16, 0, 0]].concat();
    let echo = |t: u8| vec![t, 0, 0, 0, 0, 1, 0, 1];
    let (mut next, body) = match upper {
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

struct Box {
    lan: Tun,
    wan: Tun,
    tunnel: Tun,
    nft: Nft,
    netlink: Netlink,
    tag: u64,
}

fn run(program: &str, args: &str) -> String {
    let out = Command::new(program).args(args.split_whitespace()).output().unwrap();
    assert!(out.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn ip(args: &str) {
    run("ip", args);
}

/// In a namespace of its own, with the policies installed.
fn in_box(policies: &[Policy], f: impl FnOnce(&mut Box) + Send) {
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
    fn install(&mut self, policies: &[Policy]) -> Plan {
        let plan = plan(&settings(), policies);
        guard::install(Some(&self.nft), &mut self.netlink, &plan).unwrap();
        for (destination, _) in plan.routes.iter().filter(|(_, way)| *way == Way::Tunnel) {
            let kind = RouteKind::Device(self.tunnel.index());
            let route = Route { kind, metric: 0, ..guard::standing_route(*destination, Way::Tunnel) };
            self.netlink.set_route(&route).unwrap();
        }
        plan
    }

    /// What stands when everything but the table was flushed.
    fn forget_routes(&mut self) {
        guard::set_rules(&mut self.netlink, &[]).unwrap();
    }

    fn counted(&self) -> (u64, u64) {
        let c = self.nft.counters().unwrap().unwrap_or_default();
        (c.out_clear.packets, c.in_clear.packets)
    }

    /// Everything that is in the device's queue now.
    fn drain(tun: &Tun) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buf = vec![0; READ_SIZE];
        while let Ok(n) = tun.read(&mut buf) {
            all.push(buf[VNET_HEADER..n].to_vec());
        }
        all
    }

    /// The packets that left now, and where.
    fn left(&self) -> Vec<(Went, Vec<u8>)> {
        let all = [(&self.tunnel, Tunnel), (&self.wan, Wide), (&self.lan, Lan)];
        all.iter().flat_map(|(tun, went)| Self::drain(tun).into_iter().map(|p| (*went, p))).collect()
    }

    /// Writes the packet to `from`, and looks where it went.
    fn send(&mut self, from: Went, src: IpAddr, dst: IpAddr, upper: Upper) -> Went {
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
        // What is forwarded is there at once; for what is not, once more than that.
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
    fn check(&mut self, what: &str, cases: &[Case]) {
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

type Case = (Went, &'static str, &'static str, Upper, Went);

const HOST: &str = "10.1.0.5";

/// Every kind of selector.
const EVERY_KIND: &[(Verdict, &str, &str)] = &[
    (Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16"),
    (Verdict::Bypass, "10.1.0.0/16", "10.2.3.0/24"),
    (Verdict::Protect, "10.1.0.0/16[6/any]", "10.3.0.0/16[6/80-90]"),
    (Verdict::Protect, "10.1.0.0/16[1/2048]", "10.4.0.0/16[1/2048]"),
    (Verdict::Protect, "10.1.0.0/16[17/opaque]", "10.5.0.0/16[17/opaque]"),
    (Verdict::Protect, "10.1.0.0/16", "10.6.0.5..10.6.0.9"),
    (Verdict::Protect, "10.1.0.0/16", "10.7.0.0/16"),
    (Verdict::Bypass, "10.1.0.0/16[6/any]", "10.7.0.0/16[6/22]"),
    (Verdict::Discard, "10.1.0.0/16", "10.8.0.0/16"),
    (Verdict::Protect, "10.1.0.5..10.1.0.7[0/1000-2000]", "10.9.0.0/16"),
    (Verdict::Protect, "10.1.0.0/16[47/any]", "10.10.0.0/16[47/any]"),
];

const OUTWARDS: &[Case] = &[
    // Addresses, and a hole.
    (Lan, HOST, "10.2.0.9", Udp(1, 2), Tunnel),
    (Lan, HOST, "10.2.0.9", Tcp(1, 2), Tunnel),
    (Lan, HOST, "10.2.0.9", Echo, Tunnel),
    (Lan, HOST, "10.2.0.9", Later(17), Tunnel),
    (Lan, HOST, "10.2.3.9", Udp(1, 2), Wide),
    (Lan, HOST, "10.2.3.9", Later(17), Wide),
    (Lan, HOST, "10.2.4.0", Udp(1, 2), Tunnel),
    (Lan, HOST, "198.51.100.7", Udp(1, 2), Wide),
    // Another source.
    (Lan, "10.77.0.5", "10.2.0.9", Udp(1, 2), Wide),
    // Ports.
    (Lan, HOST, "10.3.0.9", Tcp(5, 79), Wide),
    (Lan, HOST, "10.3.0.9", Tcp(5, 80), Tunnel),
    (Lan, HOST, "10.3.0.9", Tcp(5, 90), Tunnel),
    (Lan, HOST, "10.3.0.9", Tcp(5, 91), Wide),
    (Lan, HOST, "10.3.0.9", Tcp(80, 5), Wide),
    (Lan, HOST, "10.3.0.9", Udp(5, 80), Wide),
    (Lan, HOST, "10.3.0.9", First(5, 80), Wide),
    (Lan, HOST, "10.3.0.9", Later(6), Tunnel),
    (Lan, HOST, "10.3.0.9", Later(17), Wide),
    (Lan, HOST, "10.3.0.9", Short, Tunnel),
    (Lan, "10.77.0.5", "10.3.0.9", Later(6), Wide),
    // Type and code: the first four bytes of the UDP packet look like an echo request's.
    (Lan, HOST, "10.4.0.9", Echo, Tunnel),
    (Lan, HOST, "10.4.0.9", EchoReply, Wide),
    (Lan, HOST, "10.4.0.9", Udp(0x0800, 7), Wide),
    (Lan, HOST, "10.4.0.9", Tcp(0x0800, 7), Wide),
    (Lan, HOST, "10.4.0.9", Udp(0x8000, 7), Wide),
    (Lan, HOST, "10.4.0.9", Proto(47), Wide),
    // OPAQUE.
    (Lan, HOST, "10.5.0.9", Udp(1, 2), Wide),
    (Lan, HOST, "10.5.0.9", First(1, 2), Wide),
    (Lan, HOST, "10.5.0.9", Later(17), Tunnel),
    (Lan, HOST, "10.5.0.9", Later(6), Wide),
    // A range that is no prefix.
    (Lan, HOST, "10.6.0.4", Udp(1, 2), Wide),
    (Lan, HOST, "10.6.0.5", Udp(1, 2), Tunnel),
    (Lan, HOST, "10.6.0.9", Udp(1, 2), Tunnel),
    (Lan, HOST, "10.6.0.10", Udp(1, 2), Wide),
    // A hole of one port: what does not show its port does not fit.
    (Lan, HOST, "10.7.0.9", Tcp(5, 22), Wide),
    (Lan, HOST, "10.7.0.9", Tcp(22, 5), Tunnel),
    (Lan, HOST, "10.7.0.9", Udp(5, 22), Tunnel),
    (Lan, HOST, "10.7.0.9", Later(6), Tunnel),
    (Lan, HOST, "10.7.0.9", Short, Tunnel),
    // DISCARD is for the device to drop.
    (Lan, HOST, "10.8.0.9", Udp(1, 2), Tunnel),
    // Local ports of any protocol, local range.
    (Lan, HOST, "10.9.0.9", Udp(1000, 2), Tunnel),
    (Lan, HOST, "10.9.0.9", Tcp(2000, 2), Tunnel),
    (Lan, HOST, "10.9.0.9", Udp(2001, 2), Wide),
    (Lan, HOST, "10.9.0.9", Udp(2, 1000), Wide),
    (Lan, HOST, "10.9.0.9", Later(17), Tunnel),
    (Lan, HOST, "10.9.0.9", Later(47), Wide),
    (Lan, "10.1.0.8", "10.9.0.9", Udp(1000, 2), Wide),
    // A protocol without ports.
    (Lan, HOST, "10.10.0.9", Proto(47), Tunnel),
    (Lan, HOST, "10.10.0.9", Udp(1, 2), Wide),
    (Lan, HOST, "10.10.0.9", Later(47), Tunnel),
];

const INWARDS: &[Case] = &[
    (Wide, "10.2.0.9", HOST, Udp(1, 2), ClearIn),
    (Wide, "10.2.0.9", HOST, Later(17), ClearIn),
    (Wide, "10.2.0.9", "10.1.0.1", Udp(1, 2), ClearIn),
    (Wide, "10.2.3.9", HOST, Udp(1, 2), Lan),
    (Wide, "198.51.100.7", HOST, Udp(1, 2), Lan),
    (Wide, "10.3.0.9", HOST, Tcp(80, 5), ClearIn),
    (Wide, "10.3.0.9", HOST, Tcp(5, 80), Lan),
    (Wide, "10.3.0.9", HOST, Later(6), ClearIn),
    (Wide, "10.4.0.9", HOST, Echo, ClearIn),
    (Wide, "10.4.0.9", HOST, Udp(0x0800, 7), Lan),
    (Wide, "10.5.0.9", HOST, Later(17), ClearIn),
    (Wide, "10.5.0.9", HOST, Udp(1, 2), Lan),
    (Wide, "10.6.0.9", HOST, Udp(1, 2), ClearIn),
    (Wide, "10.7.0.9", HOST, Tcp(22, 5), Lan),
    (Wide, "10.7.0.9", HOST, Tcp(5, 22), ClearIn),
    (Wide, "10.8.0.9", HOST, Udp(1, 2), ClearIn),
    (Wide, "10.9.0.9", HOST, Udp(2, 1000), ClearIn),
    (Wide, "10.9.0.9", "10.1.0.8", Udp(2, 1000), Lan),
    // What the engine delivers.
    (Tunnel, "10.2.0.9", HOST, Udp(1, 2), Lan),
    (Tunnel, "10.3.0.9", HOST, Tcp(80, 5), Lan),
    // A hub: from one tunnel into another, and out.
    (Tunnel, "10.1.3.9", "10.2.0.9", Udp(1, 2), Tunnel),
    (Tunnel, "10.2.0.9", "198.51.100.7", Udp(1, 2), Wide),
    (Tunnel, "10.2.0.9", "10.6.0.6", Udp(1, 2), Wide),
];

#[test]
fn every_kind_of_selector_is_steered_and_guarded_as_the_spd_says() {
    in_box(&policies(EVERY_KIND), |b| {
        b.check("out", OUTWARDS);
        b.check("in", INWARDS);
        // Extension headers are looked through by the engine alone.
        let from = family(true, HOST);
        for (to, want) in
            [("10.3.0.9", Tunnel), ("10.7.0.9", Tunnel), ("10.2.3.9", Wide), ("10.5.0.9", Tunnel)]
        {
            assert_eq!(b.send(Lan, from, family(true, to), Options(5, 22)), want, "{to}");
        }
        // Without rules nothing leads into the tunnel: the guard alone, and it lets through exactly what was not protected.
        b.forget_routes();
        let alone: Vec<Case> = OUTWARDS
            .iter()
            .map(|(from, src, dst, upper, want)| {
                (*from, *src, *dst, *upper, if *want == Tunnel { ClearOut } else { *want })
            })
            .collect();
        b.check("the guard alone", &alone);
        // Without a table the other way around: too much is led there, and nothing leaves.
        b.install(&policies(EVERY_KIND));
        b.nft.remove().unwrap();
        assert_eq!(b.send(Lan, family(false, HOST), family(false, "10.2.0.9"), Udp(1, 2)), Tunnel);
        assert_eq!(b.send(Lan, family(false, HOST), family(false, "10.7.0.9"), Tcp(1, 22)), Tunnel);
        // And with no policy at all nothing is left.
        let nothing = b.install(&[]);
        assert_eq!((nothing.rules.len(), nothing.routes.len()), (0, 0));
        assert_eq!(b.nft.counters().unwrap(), None);
        assert_eq!(b.send(Lan, family(false, HOST), family(false, "10.2.0.9"), Udp(1, 2)), Wide);
    });
}

#[test]
fn everything_through_the_tunnel_leaves_the_own_side_and_the_link_alone() {
    let all = policies(&[(Verdict::Protect, "10.1.0.0/16", "0.0.0.0/0")]);
    in_box(&all, |b| {
        // With strict reverse path checks, too.
        std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
        let cases: &[Case] = &[
            (Lan, HOST, "198.51.100.7", Udp(1, 2), Tunnel),
            (Lan, HOST, "10.2.0.9", Later(17), Tunnel),
            (Lan, HOST, "10.1.0.6", Udp(1, 2), Lan),
            (Wide, "198.51.100.7", HOST, Udp(1, 2), ClearIn),
            (Wide, "198.51.100.7", "10.1.0.1", Udp(1, 2), ClearIn),
            (Tunnel, "198.51.100.7", HOST, Udp(1, 2), Lan),
        ];
        b.check("forwarded", cases);
        for v6 in [false, true] {
            // LAN to gateway, both of its addresses, and back.
            for own in ["10.1.0.1", "192.0.2.1"] {
                b.left();
                b.tag += 1;
                let request = packet(family(v6, HOST), family(v6, own), Echo, b.tag);
                b.lan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&request)]).unwrap();
                let tag = b.tag.to_be_bytes();
                let reply = b.left().into_iter().find(|(_, p)| p.ends_with(&tag));
                assert_eq!(reply.map(|(went, _)| went), Some(Lan), "echo to {own} {v6}");
            }
        }
        // From the gateway itself: only its address on the own side is protected.
        for (from, to, want) in [
            ("10.1.0.1", "198.51.100.7", Tunnel),
            ("192.0.2.1", "198.51.100.7", Wide),
            ("10.1.0.1", "10.1.0.6", Lan),
            ("192.0.2.1", "10.1.0.6", Lan),
            ("0.0.0.0", "10.1.0.6", Lan),
            ("0.0.0.0", "198.51.100.7", Wide),
        ] {
            for v6 in [false, true] {
                b.left();
                let s = UdpSocket::bind((family(v6, from), 0)).unwrap();
                s.send_to(b"steering", (family(v6, to), 9)).unwrap();
                let found = b.left().into_iter().find(|(_, p)| p.ends_with(b"steering"));
                assert_eq!(found.map(|(went, _)| went), Some(want), "{from} -> {to} {v6}");
            }
        }
        let s = UdpSocket::bind("10.1.0.1:0").unwrap();
        s.set_broadcast(true).unwrap();
        for (to, want) in [("224.0.0.5", Lan), ("255.255.255.255", Lan), ("169.254.169.254", Wide)] {
            b.left();
            s.send_to(b"link", (to, 9)).unwrap();
            let found = b.left().into_iter().find(|(_, p)| p.ends_with(b"link"));
            assert_eq!(found.map(|(went, _)| went), Some(want), "{to}");
        }
        assert_eq!(b.counted().0, 0, "nothing of this was dropped on its way out");
    });
}

/// Where what this socket sends goes.
fn sent(b: &Box, send: impl FnOnce()) -> Option<Went> {
    b.left();
    send();
    b.left().into_iter().find(|(_, p)| p.ends_with(b"steering")).map(|(went, _)| went)
}

#[test]
fn a_host_sends_everything_through_the_tunnel_but_what_carries_the_tunnel() {
    let all = policies(&[(Verdict::Protect, "192.0.2.1/32", "0.0.0.0/0")]);
    in_box(&all, |b| {
        for v6 in [false, true] {
            let (own, far) = (family(v6, "192.0.2.1"), family(v6, "198.51.100.7"));
            let bound = || UdpSocket::bind((own, 0)).unwrap();
            let to = |s: &UdpSocket| s.send_to(b"steering", (far, 9)).map(drop).unwrap();
            assert_eq!(sent(b, || to(&bound())), Some(Tunnel), "bound");
            let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
            assert_eq!(sent(b, || to(&UdpSocket::bind(any).unwrap())), Some(Tunnel), "unconnected");
            let connected = UdpSocket::bind(any).unwrap();
            connected.connect((far, 9)).unwrap();
            for _ in 0..2 {
                assert_eq!(
                    sent(b, || assert!(connected.send(b"steering").is_ok())),
                    Some(Tunnel),
                    "connected"
                );
            }
            // A SYN, which nobody answers.
            b.left();
            let domain =
                if v6 { rustix::net::AddressFamily::INET6 } else { rustix::net::AddressFamily::INET };
            let flags = rustix::net::SocketFlags::NONBLOCK;
            let tcp = rustix::net::socket_with(domain, rustix::net::SocketType::STREAM, flags, None).unwrap();
            let _ = rustix::net::connect(&tcp, &std::net::SocketAddr::new(far, 80));
            let syn = |p: &[u8]| p[if v6 { 6 } else { 9 }] == 6;
            let all = b.left();
            assert!(all.iter().any(|(went, p)| *went == Tunnel && syn(p)), "SYN {all:x?}");
            assert!(!all.iter().any(|(went, p)| *went == Wide && syn(p)), "SYN {all:x?}");
            // Ours: both the mark and the port; one alone is not enough.
            let marked = |port| {
                ironswan_io::udp::UdpSocket::bind(ironswan_io::udp::UdpConfig::esp(v6, port, 0x220)).unwrap()
            };
            let send = |s: &ironswan_io::udp::UdpSocket| {
                let remote = std::net::SocketAddr::new(far, 9);
                rustix::net::sendto(s, b"steering", rustix::net::SendFlags::empty(), &remote).unwrap();
            };
            assert_eq!(sent(b, || send(&marked(4500))), Some(Wide), "ours");
            assert_eq!(sent(b, || send(&marked(4501))), Some(Tunnel), "another port");
            let unmarked = UdpSocket::bind((own, 4500)).unwrap();
            assert_eq!(sent(b, || to(&unmarked)), Some(Tunnel), "no mark");
        }
        assert_eq!(b.counted(), (0, 0));
        // Fragments of IPv6 come in one by one: of an IKE message, and of something else, whose first one does not get in.
        let (own, far) = (family(true, "192.0.2.1"), family(true, "198.51.100.7"));
        for (upper, want) in
            [(Later(17), Nowhere), (First(9, 4500), Nowhere), (First(9, 53), ClearIn), (Later(6), ClearIn)]
        {
            assert_eq!(b.send(Wide, far, own, upper), want, "{upper:?}");
        }
        // An error about an outer packet gets in, whoever sends it; another one does not.
        let before = b.counted();
        for (quoted, want) in [((4500u16, 9u16), 0), ((53, 9), 1)] {
            let inner =
                packet(family(false, "192.0.2.1"), family(false, "198.51.100.7"), Udp(quoted.0, quoted.1), 7);
            let mut icmp = [vec![3, 4, 0, 0, 0, 0, 5, 0], inner[..28].to_vec()].concat();
            let sum = !checksum::fold(checksum::sum(&icmp));
            icmp[2..4].copy_from_slice(&sum.to_ne_bytes());
            let mut error = packet(family(false, "198.51.100.1"), family(false, "192.0.2.1"), Proto(1), 7);
            error.truncate(20);
            error[3] = (20 + icmp.len()) as u8;
            (error[10], error[11]) = (0, 0);
            let sum = !checksum::fold(checksum::sum(&error));
            error[10..12].copy_from_slice(&sum.to_ne_bytes());
            error.extend(icmp);
            b.wan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&error)]).unwrap();
            assert_eq!(b.counted().1 - before.1, want, "about a packet from port {}", quoted.0);
        }
    });
}

#[test]
fn source_nat_is_no_way_around_the_guard() {
    let masquerade =
        "table inet t { chain c { type nat hook postrouting priority 100; oifname wan0 masquerade; }; }";
    let one = |local, remote| policies(&[(Verdict::Protect, local, remote)]);
    in_box(&one("10.1.0.0/16", "10.2.0.0/16"), |b| {
        run("nft", masquerade);
        b.check(
            "steered",
            &[(Lan, HOST, "10.2.0.9", Udp(1, 2), Tunnel), (Lan, HOST, "10.9.0.9", Udp(1, 2), Wide)],
        );
        // With connections tracked, fragments are put together before anybody looks.
        b.forget_routes();
        b.check("before NAT", &[(Lan, HOST, "10.2.0.9", Udp(3, 4), ClearOut)]);
        // What is to be protected is the address that NAT gives.
        b.install(&one("192.0.2.1/32", "10.2.0.0/16"));
        b.check(
            "after NAT",
            &[(Lan, HOST, "10.2.0.9", Udp(5, 6), ClearOut), (Lan, HOST, "10.9.0.9", Udp(5, 6), Wide)],
        );
    });
}

#[test]
fn somebody_elses_mark_on_a_forwarded_packet_excuses_nothing() {
    let marks = "table inet t { chain c { type filter hook forward priority -10; meta mark set 0x220; }; }";
    in_box(&policies(&[(Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16")]), |b| {
        run("nft", marks);
        b.forget_routes();
        b.check(
            "as ours",
            &[
                (Lan, HOST, "10.2.0.9", Udp(4500, 2), ClearOut),
                (Lan, HOST, "10.2.0.9", Proto(50), ClearOut),
                (Lan, HOST, "10.9.0.9", Udp(4500, 2), Wide),
            ],
        );
    });
}
