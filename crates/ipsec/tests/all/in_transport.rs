//! Transport mode on its way in: the header that a packet gets, checksums behind a NAT, what policy
//! and selectors say, and that flows are merged and kept in order.

use std::net::SocketAddr;

use ironswan_ipsec::Carrier;
use ironswan_ipsec::DropReason::*;
use ironswan_wire::ip::{checksum, v4};
use ironswan_wire::offload::Gso;
use ironswan_wire::sadb::{Action, Command, Entry, OriginalAddresses, PolicyAdd};

use crate::common::*;
use crate::in_common::*;

/// What must come out: the fields that are not the peer's are those of a fresh header.
fn fresh(spec: Spec, make: &Make, tos: u8) -> Vec<u8> {
    host_packet(make, Spec { tos, ttl: 64, id: 0, df: true, flow_label: 0, ..spec })
}

#[test]
fn a_fresh_header_from_the_datagrams_addresses() {
    for make in [transport(), transport().over_v6()] {
        for carrier in [Carrier::Udp, Carrier::Esp] {
            for algorithm in ALGORITHMS {
                for spec in [Spec::tcp(100), Spec::udp(0), Spec::udp(1200), Spec::tcp(0)] {
                    let mut make = make.clone();
                    make.options.algorithm = algorithm;
                    let mut r = Receiver::new(make.clone());
                    let packet = host_packet(&make, spec.clone());
                    let (protocol, payload) = upper(&packet);
                    let mut a = r.esp(1, payload, protocol);
                    (a.carrier, a.tos) = (carrier, 0xb9);
                    assert_eq!(r.delivers(&a), fresh(spec, &make, 0xb9));
                    assert_eq!(r.engine.sas()[0].stats.bytes, packet.len() as u64);
                    r.refuses(&a, InStateSeqDuplicate);
                }
            }
        }
    }
}

#[test]
fn runs_of_a_flow_are_merged_as_in_tunnel_mode() {
    for make in [transport(), transport().over_v6()] {
        let mut r = Receiver::new(make.clone());
        let spec = Spec { df: true, id: 0, ttl: 64, ..Spec::udp(5_000) };
        let mut at = 0;
        let batch: Vec<_> = host_segments(&make, &spec, 1_000)
            .iter()
            .map(|p| {
                at += 1;
                let (protocol, payload) = upper(p);
                r.esp(at, payload, protocol)
            })
            .collect();
        let out = r.take(&batch);
        let again: Vec<_> = out.iter().flat_map(|(offload, p)| device(offload, p)).collect();
        assert_eq!((out.len(), out[0].0.gso), (1, Gso::UdpL4));
        if make.options.outer_v6 {
            assert_eq!(again, host_segments(&make, &spec, 1_000));
        } else {
            // Every identification is zero; cutting again counts up, which says nothing with DF.
            assert_eq!(
                again.iter().map(|p| u16::from_be_bytes([p[4], p[5]])).collect::<Vec<_>>(),
                [0, 1, 2, 3, 4]
            );
        }
        assert_eq!(again.len(), 5);
    }
}

fn host_segments(make: &Make, spec: &Spec, size: usize) -> Vec<Vec<u8>> {
    let (a, b) = make.options.outer();
    Spec { v6: a.is_ipv6(), src: a.ip(), dst: b.ip(), ..spec.clone() }.segments(size)
}

#[test]
fn flows_of_tunnel_and_transport_mode_keep_their_order_in_one_batch() {
    let mut tunnel = Make { spi: SPI + 1, ..Make::default() };
    tunnel.options = Make::default().between_hosts().options;
    let mut r = Receiver::with(vec![transport().over_v6(), tunnel.over_v6().between_hosts()]);
    let make = r.makes[0].clone();
    let spec = |n: u16| Spec { ttl: 64, payload: vec![n as u8; 100], ..Spec::udp(0) };
    let batch: Vec<_> = (0..30u16)
        .map(|n| {
            let packet = host_packet(&make, spec(n));
            let seq = u64::from(n) + 1;
            // The same flow by turns, three packets each.
            if n / 3 % 2 == 0 {
                r.esp(seq, upper(&packet).1, 17)
            } else {
                r.esp_of(1, seq, &text(&packet, 41, 4))
            }
        })
        .collect();
    let out = r.take(&batch);
    let again: Vec<_> = out.iter().flat_map(|(offload, p)| device(offload, p)).collect();
    assert_eq!(again, (0..30).map(|n| host_packet(&make, spec(n))).collect::<Vec<_>>());
    assert!(out.len() < 30, "{}", out.len());
}

#[test]
fn destination_options_behind_esp_are_payload() {
    let make = transport().over_v6();
    let mut r = Receiver::new(make.clone());
    let packet = host_packet(&make, Spec::udp(40));
    let options = [[17, 1, 1, 12].as_slice(), &[0; 12]].concat();
    let payload = [&options[..], upper(&packet).1].concat();
    let a = r.esp(1, &payload, 60);
    let out = r.delivers(&a);
    assert_eq!((out[6], &out[40..]), (60, &payload[..]));
    // An SA for UDP alone knows it behind them.
    let mut make = make;
    for t in make.options.left.iter_mut().chain(&mut make.options.right) {
        t.protocol = 17;
    }
    let mut r = Receiver::new(make);
    let a = r.esp(1, &payload, 60);
    r.delivers(&a);
    let a = r.esp(2, &host_packet(&transport().over_v6(), Spec::tcp(40))[40..], 6);
    r.refuses(&a, InStateMismatch);
}

#[test]
fn fragments_inside_are_refused() {
    let mut r = Receiver::new(transport().over_v6());
    for (seq, field) in [1u16, 8, 0xfff8].into_iter().enumerate() {
        let [high, low] = field.to_be_bytes();
        let payload = [&[17, 0, high, low, 0, 0, 0, 1][..], &[0; 40]].concat();
        let a = r.esp(seq as u64 + 1, &payload, 44);
        r.refuses(&a, InFragment);
    }
    // A fragment header of a whole packet does no harm (RFC 6946).
    let packet = host_packet(&transport().over_v6(), Spec::udp(40));
    let payload = [&[17, 0, 0, 0, 0, 0, 0, 1][..], upper(&packet).1].concat();
    let a = r.esp(10, &payload, 44);
    r.delivers(&a);
}

#[test]
fn a_dummy_is_absorbed() {
    let mut r = Receiver::new(transport());
    let a = r.esp(1, &[0; 30], 59);
    assert!(r.each(&[a]).is_empty());
    assert_eq!((r.engine.counters().traffic.in_dummies, r.engine.counters().dropped_in()), (1, 0));
}

#[test]
fn ip_in_ip_is_a_payload_of_the_two_hosts() {
    let inner = Spec::udp(10).build();
    for next in [4, 41] {
        let mut r = Receiver::new(transport());
        let a = r.esp(1, &inner, next);
        let out = r.delivers(&a);
        assert_eq!(upper(&out), (next, &inner[..]));
        assert_eq!(out[12..16], [192, 0, 2, 1], "under the hosts' own header");
    }
    let mut make = transport();
    for t in make.options.left.iter_mut().chain(&mut make.options.right) {
        t.protocol = 6;
    }
    let mut r = Receiver::new(make);
    let a = r.esp(1, &inner, 4);
    r.refuses(&a, InStateMismatch);
}

#[test]
fn payload_that_is_nothing_or_not_its_protocol() {
    // An empty payload, a cut TCP header, protocols of no one: well-formed IP all of them, which
    // the host judges.
    let mut r = Receiver::new(transport());
    for (seq, (payload, next)) in
        [(&[][..], 6), (&[1, 2, 3][..], 6), (&[][..], 17), (&[9; 9][..], 0), (&[9; 9][..], 255)]
            .into_iter()
            .enumerate()
    {
        let a = r.esp(seq as u64 + 1, payload, next);
        let out = r.delivers(&a);
        assert_eq!((out[9], &out[20..]), (next, payload));
        assert!(v4::checksum_ok(&out[..20]));
    }
    // Extension headers that go beyond the packet are not IP.
    let mut r = Receiver::new(transport().over_v6());
    for (seq, next) in [0, 43, 60].into_iter().enumerate() {
        let a = r.esp(seq as u64 + 1, &[17, 9, 0, 0, 0, 0, 0, 0], next);
        r.refuses(&a, InInnerHdrError);
    }
}

#[test]
fn selectors_and_discard_hold() {
    let make = transport();
    let packet = host_packet(&make, Spec { ports: (1000, 53), ..Spec::udp(40) });
    let (_, payload) = upper(&packet);
    let mut narrow = make.clone();
    for (t, port) in
        narrow.options.left.iter_mut().zip([2000]).chain(narrow.options.right.iter_mut().zip([53]))
    {
        (t.protocol, t.start_port, t.end_port) = (17, port, port);
    }
    let mut r = Receiver::new(narrow);
    let a = r.esp(1, payload, 17);
    r.refuses(&a, InStateMismatch);
    // Another source than the selectors': a datagram from elsewhere, in transport mode, is a packet
    // from elsewhere.
    let mut r = Receiver::new(make.clone());
    let mut a = r.esp(1, payload, 17);
    a.remote = "198.51.100.9:4500".parse().unwrap();
    r.refuses(&a, InStateMismatch);
    let mut r = Receiver::new(make.clone());
    let (left, right) = (make.options.left[0], make.options.right[0]);
    let mut local = right;
    (local.protocol, local.start_port, local.end_port) = (17, 53, 53);
    let discard = PolicyAdd {
        name: "hole".into(),
        action: Action::Discard,
        local,
        remote: left,
        priority: 0,
        entry: Entry::default(),
    };
    r.engine.apply(SECOND, &Command::PolicyAdd(discard)).unwrap();
    r.worker.begin(SECOND);
    let a = r.esp(1, payload, 17);
    r.refuses(&a, InPolBlock);
}

#[test]
fn addresses_that_no_packet_has() {
    let any = |mut make: Make| {
        make.options.left = vec![ts("0.0.0.0/0"), ts("::/0")];
        make.options.right = make.options.left.clone();
        make
    };
    for (remote, local) in
        [("127.0.0.1:1", "192.0.2.2:1"), ("224.0.0.1:1", "192.0.2.2:1"), ("[::1]:1", "[2001:db8::2]:1")]
    {
        let mut r = Receiver::new(any(transport()));
        let mut a = r.esp(1, &[0; 30], 253);
        (a.remote, a.local) = (remote.parse().unwrap(), local.parse().unwrap());
        r.refuses(&a, InInnerMartian);
    }
    // Two families make no header.
    let mut r = Receiver::new(any(transport()));
    let mut a = r.esp(1, &[0; 30], 253);
    a.local = "[2001:db8::2]:1".parse().unwrap();
    r.refuses(&a, InHdrError);
}

/// Packets whose upper-layer checksum covers the addresses, made for `from` -> `to`, and where it
/// is in the payload.
fn checked(v6: bool) -> Vec<(u8, usize, usize)> {
    let mut all = vec![(6, 16, 20), (17, 6, 8), (136, 6, 8), (33, 6, 12), (135, 4, 8)];
    if v6 {
        all.push((58, 2, 8));
    }
    all
}

#[test]
fn checksums_behind_a_nat() {
    let addresses = [
        // Peer behind a NAT, ourselves behind one, both.
        ("192.168.7.9", "192.0.2.2", "198.51.100.7:1024", "192.0.2.2:4500"),
        ("192.0.2.1", "203.0.113.5", "192.0.2.1:4500", "10.0.0.5:4500"),
        ("192.168.7.9", "203.0.113.5", "198.51.100.7:1024", "10.0.0.5:4500"),
        ("fd00::7", "2001:db8:9::2", "[2001:db8:1::7]:4500", "[fd01::2]:4500"),
    ];
    for (src, dst, remote, local) in addresses {
        let (remote, local): (SocketAddr, SocketAddr) = (remote.parse().unwrap(), local.parse().unwrap());
        let (src, dst) = (ip(src), ip(dst));
        for (protocol, at, header) in checked(src.is_ipv6()) {
            for len in [header, header + 1, header + 1000] {
                let mut payload = bytes(len, u64::from(protocol));
                payload[at..at + 2].fill(0);
                let octets = |a: std::net::IpAddr| match a {
                    std::net::IpAddr::V4(a) => a.octets().to_vec(),
                    std::net::IpAddr::V6(a) => a.octets().to_vec(),
                };
                let total = |src, dst, payload: &[u8]| {
                    checksum::fold(
                        checksum::pseudo(&[octets(src), octets(dst)].concat(), protocol)
                            + checksum::be16(payload.len() as u16)
                            + checksum::sum(payload),
                    )
                };
                let check = !total(src, dst, &payload);
                payload[at..at + 2].copy_from_slice(&check.to_ne_bytes());
                let mut make = transport();
                make.options.left = vec![ts("0.0.0.0/0"), ts("::/0")];
                make.options.right = make.options.left.clone();
                make.sa.original = Some(OriginalAddresses { local: dst, remote: src });
                let mut r = Receiver::new(make);
                let mut a = r.esp(1, &payload, protocol);
                (a.remote, a.local) = (remote, local);
                let out = r.delivers(&a);
                let (_, got) = upper(&out);
                assert_eq!(total(remote.ip(), local.ip(), got), 0xffff, "{protocol} of {len} from {remote}");
                assert_eq!(got[..at], payload[..at]);
                assert_eq!(got[at + 2..], payload[at + 2..]);
            }
        }
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_and_none_becomes_zero() {
    let mut make = transport();
    make.options.left = vec![ts("0.0.0.0/0")];
    make.options.right = vec![ts("0.0.0.0/0")];
    make.sa.original = Some(OriginalAddresses { local: ip("192.0.2.2"), remote: ip("192.168.0.1") });
    let mut r = Receiver::new(make);
    let mut payload = vec![0, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];
    let a = r.esp(1, &payload, 17);
    assert_eq!(upper(&r.delivers(&a)).1, payload);
    // For each checksum there is a payload; one of them comes to zero.
    let mut seen = false;
    for n in 0..=u16::MAX {
        payload[6..8].copy_from_slice(&n.to_be_bytes());
        let a = r.esp(u64::from(n) + 2, &payload, 17);
        let out = r.delivers(&a);
        assert_eq!(upper(&out).1[6..8] == [0, 0], n == 0, "{n}");
        seen |= upper(&out).1[6..8] == [0xff, 0xff];
    }
    assert!(seen);
    // Protocols whose checksum does not know addresses, and headers that are too short, stay as
    // they are.
    for (seq, (payload, next)) in
        [(&[1; 20][..], 1), (&[1; 20][..], 132), (&[1; 20][..], 47), (&[1; 7][..], 17), (&[1; 17][..], 6)]
            .into_iter()
            .enumerate()
    {
        let a = r.esp(seq as u64 + 70_000, payload, next);
        assert_eq!(upper(&r.delivers(&a)).1, payload);
    }
}

#[test]
fn esp_in_udp_on_an_sa_without_a_nat_and_the_reverse_are_legal() {
    for mode in [Make::default(), transport()] {
        for udp_encap in [false, true] {
            let mut make = mode.clone();
            make.options.udp_encap = udp_encap;
            let mut r = Receiver::new(make.clone());
            let packet = host_packet(&transport(), Spec::udp(10));
            let inner = Spec::udp(10).build();
            for (seq, carrier) in [Carrier::Udp, Carrier::Esp].into_iter().enumerate() {
                let seq = seq as u64 + 1;
                let a = if make.mode == transport().mode {
                    r.esp(seq, upper(&packet).1, 17)
                } else {
                    r.esp(seq, &inner, 4)
                };
                r.delivers(&Arriving { carrier, ..a });
            }
            assert!(r.engine.take_up().is_empty(), "nobody has moved");
        }
    }
}
