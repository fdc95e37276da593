//! Plans in a real kernel, and where packets go. Needs root, and the program `nft`.

mod harness;
mod hosts;

use std::io::IoSlice;
use std::net::UdpSocket;

use ironswan_io::tun::VNET_HEADER;

use super::tests::settings;
use super::*;
use harness::*;

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
    (Wide, "10.7.0.9", HOST, Later(6), ClearIn),
    (Wide, "10.7.0.9", HOST, Later(17), ClearIn),
    (Wide, "10.8.0.9", HOST, Udp(1, 2), ClearIn),
    (Wide, "10.9.0.9", HOST, Udp(2, 1000), ClearIn),
    (Wide, "10.9.0.9", "10.1.0.8", Udp(2, 1000), Lan),
    // Packets that the engine has delivered.
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
        // Without rules nothing leads into the tunnel. The guard then stands alone, and lets
        // exactly the unprotected packets through.
        b.forget_routes();
        let alone: Vec<Case> = OUTWARDS
            .iter()
            .map(|(from, src, dst, upper, want)| {
                (*from, *src, *dst, *upper, if *want == Tunnel { ClearOut } else { *want })
            })
            .collect();
        b.check("the guard alone", &alone);
        // Without the table the programs drop the same packets where they arrive.
        b.nft.remove().unwrap();
        // The exception is a later fragment where a hole of one port may let the first fragment in.
        let follows = |(_, src, _, upper, _): &Case| *src == "10.7.0.9" && matches!(upper, Later(6));
        let alone = |case: &Case| match case {
            (from, src, dst, upper, ClearIn) if follows(case) => (*from, *src, *dst, *upper, Lan),
            other => *other,
        };
        let wide: Vec<Case> = INWARDS.iter().filter(|(from, ..)| *from == Wide).map(alone).collect();
        assert!(wide.iter().any(|case| follows(case) && case.4 == Lan), "such a case is among them");
        b.check("the program at the ingress alone", &wide);
        // With rules and without a table it is the other way around: too much is led into the
        // tunnel, and nothing leaves in clear.
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
        // Here the policy protects the address that NAT gives.
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

#[test]
fn a_table_that_leaves_vrfs_alone_is_taken_and_changes_nothing_else() {
    let all = policies(&[(Verdict::Protect, "10.1.0.0/16", "10.2.0.0/16")]);
    in_box(&all, |b| {
        let vrf = plan(&Settings { vrf: true, ..settings() }, &all);
        b.nft.apply(&vrf.nft.unwrap()).unwrap();
        b.check(
            "with VRFs",
            &[
                (Lan, HOST, "10.2.0.9", Udp(1, 2), Tunnel),
                (Lan, HOST, "10.9.0.9", Udp(1, 2), Wide),
                (Wide, "10.2.0.9", HOST, Udp(1, 2), ClearIn),
            ],
        );
    });
}
