//! What an SA's options do to packets that come out of it: ECN, DSCP, and the MSS of a TCP SYN.

use ironswan_ipsec::DropReason::*;
use ironswan_wire::ip::{checksum, tcp};
use ironswan_wire::sadb::{Command, Direction, SaRef};

use crate::common::*;
use crate::in_common::*;

fn spec(v6: bool) -> Spec {
    if v6 { Spec::udp(10).over_v6() } else { Spec::udp(10) }
}

#[test]
fn without_copy_ecn_the_outer_field_is_ignored() {
    for make in [Make::default(), ah()] {
        for v6 in [false, true] {
            for inner in 0..4 {
                for outer in 0..4 {
                    let mut make = make.clone();
                    make.sa.copy_ecn = false;
                    let mut r = Receiver::new(make);
                    let packet = Spec { tos: 0xb8 | inner, ..spec(v6) }.build();
                    let next = if v6 { 41 } else { 4 };
                    let mut a = if r.makes[0].ah.is_some() {
                        r.ah(1, &packet, next)
                    } else {
                        r.esp(1, &packet, next)
                    };
                    a.tos = 0x20 | outer;
                    assert_eq!(r.delivers(&a), packet);
                }
            }
        }
    }
}

#[test]
fn with_dscp_in_the_inner_packet_takes_the_outer_dscp_and_keeps_the_rules_of_ecn() {
    // RFC 6040 figure 4, rows by inner, columns by outer; 4 is a drop.
    let table = [[0, 0, 0, 4], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];
    for make in [Make::default(), ah()] {
        for copy_ecn in [false, true] {
            for v6 in [false, true] {
                for (inner, row) in (0u8..).zip(table) {
                    for (outer, want) in (0u8..).zip(row) {
                        let mut make = make.clone();
                        (make.sa.copy_ecn, make.sa.dscp_in) = (copy_ecn, true);
                        let mut r = Receiver::new(make);
                        let packet = Spec { tos: 0xb8 | inner, ..spec(v6) };
                        let next = if v6 { 41 } else { 4 };
                        let text = packet.build();
                        let mut a = if r.makes[0].ah.is_some() {
                            r.ah(1, &text, next)
                        } else {
                            r.esp(1, &text, next)
                        };
                        a.tos = 0x48 | outer;
                        match (copy_ecn, want) {
                            (true, 4) => r.refuses(&a, InEcnError),
                            (true, ecn) => {
                                assert_eq!(r.delivers(&a), Spec { tos: 0x48 | ecn, ..packet }.build());
                            }
                            (false, _) => {
                                assert_eq!(r.delivers(&a), Spec { tos: 0x48 | inner, ..packet }.build());
                            }
                        }
                    }
                }
            }
        }
    }
}

fn syn(v6: bool, flags: u8, mss: u16) -> Spec {
    let [high, low] = mss.to_be_bytes();
    let base = if v6 { Spec::tcp(0).over_v6() } else { Spec::tcp(0) };
    Spec { flags, options: vec![2, 4, high, low, 1, 3, 3, 7], ..base }
}

/// A receiver whose way back is an SA with this path MTU.
fn with_way_back(make: Make, path: u32) -> Receiver {
    let mut r = Receiver::new(make.clone());
    let mut back = make.sa();
    back.direction = Direction::Out;
    r.engine.apply(SECOND, &Command::SaAdd(Box::new(back.clone()))).unwrap();
    if path != 0 {
        let sa =
            SaRef { direction: Direction::Out, spi: back.spi, reqid: back.reqid, remote: back.remote.ip() };
        r.engine.apply(SECOND, &Command::SaPathMtu { sa, mtu: path }).unwrap();
    }
    r.worker.begin(SECOND);
    r
}

#[test]
fn a_syn_is_clamped_to_what_fits_the_way_back() {
    for v6 in [false, true] {
        let headers = if v6 { 60 } else { 40 };
        for flags in [tcp::SYN, tcp::SYN | tcp::ACK] {
            let mut r = with_way_back(Make::default(), 1_400);
            // AES-GCM in UDP over IPv4 (see tests/all/mtu.rs): 1,400 less 20, 8, 8, 8, 16 is 1,340,
            // less the trailer.
            let largest = 1_340 - 2;
            let a = r.esp(1, &syn(v6, flags, 1_460).build(), if v6 { 41 } else { 4 });
            assert_eq!(r.delivers(&a), syn(v6, flags, largest - headers).build());
            // What asks for less gets less.
            let a = r.esp(2, &syn(v6, flags, 500).build(), if v6 { 41 } else { 4 });
            assert_eq!(r.delivers(&a), syn(v6, flags, 500).build());
        }
        // Nobody else's options are looked at.
        let mut r = with_way_back(Make::default(), 1_400);
        let a = r.esp(1, &syn(v6, tcp::ACK, 1_460).build(), if v6 { 41 } else { 4 });
        assert_eq!(r.delivers(&a), syn(v6, tcp::ACK, 1_460).build());
        // And nobody's while the path is not known, or there is no way back.
        for mut r in [with_way_back(Make::default(), 0), Receiver::new(Make::default())] {
            let a = r.esp(1, &syn(v6, tcp::SYN, 1_460).build(), if v6 { 41 } else { 4 });
            assert_eq!(r.delivers(&a), syn(v6, tcp::SYN, 1_460).build());
        }
    }
}

#[test]
fn a_syn_of_transport_mode_is_clamped_behind_the_nat_repair() {
    let mut make = transport();
    make.sa.original = Some(ironswan_wire::sadb::OriginalAddresses {
        local: make.options.outer().1.ip(),
        remote: ip("192.168.1.1"),
    });
    let mut r = with_way_back(make, 1_400);
    let packet = Spec { src: ip("192.168.1.1"), dst: ip("192.0.2.2"), ..syn(false, tcp::SYN, 1_460) }.build();
    let a = r.esp(1, &packet[20..], 6);
    let out = r.delivers(&a);
    let sum =
        checksum::pseudo(&out[12..20], 6) + checksum::be16(out.len() as u16 - 20) + checksum::sum(&out[20..]);
    assert_eq!(checksum::fold(sum), 0xffff);
    assert!(u16::from_be_bytes([out[42], out[43]]) < 1_360);
}
