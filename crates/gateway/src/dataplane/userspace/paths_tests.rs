use std::time::Duration;

use ironswan_io::clock;
use ironswan_wire::ip::checksum::{fold, sum};
use ironswan_wire::ip::protocol::{AH, ESP, UDP};
use ironswan_wire::sadb::Direction;

use super::*;

const SPI: u32 = 0xc000_1234;

fn ends(ipv6: bool) -> (IpAddr, IpAddr) {
    let of = |text: &str| text.parse().unwrap();
    if ipv6 { (of("2001:db8::1"), of("2001:db8::2")) } else { (of("192.0.2.1"), of("192.0.2.2")) }
}

fn sa(ipv6: bool, reqid: u32) -> SaRef {
    SaRef { direction: Direction::Out, spi: Spi(SPI), reqid: ReqId(reqid), remote: ends(ipv6).1 }
}

/// "Too big" about a packet from us to the peer.
fn error(ipv6: bool, mtu: u16, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut m = if ipv6 { vec![2, 0, 0, 0, 0, 0, 0, 0] } else { vec![3, 4, 0, 0, 0, 0, 0, 0] };
    m[6..8].copy_from_slice(&mtu.to_be_bytes());
    match ends(ipv6) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            m.extend([0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 63, protocol, 0, 0]);
            m.extend([a.octets(), b.octets()].concat());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            m.extend([0x60, 0, 0, 0, 5, 0xb4, protocol, 63]);
            m.extend([a.octets(), b.octets()].concat());
        }
        _ => unreachable!("one family"),
    }
    m.extend(upper);
    let checksum = (!fold(sum(&m))).to_ne_bytes();
    m[2..4].copy_from_slice(&checksum);
    m
}

fn in_udp(ours: u16, theirs: u16, spi: u32) -> Vec<u8> {
    [&ours.to_be_bytes()[..], &theirs.to_be_bytes(), &[5, 0, 0, 0], &spi.to_be_bytes(), &[0, 0, 0, 9]]
        .concat()
}

fn judge(paths: &Paths, ipv6: bool, message: &[u8]) -> bool {
    paths.judge(clock::now(), ends(ipv6).0, Some(4500), message, true).is_some()
}

/// Numbers of errors that were believed and that were refused.
fn counted(paths: &Paths) -> [u64; 2] {
    paths.counters().map(|(_, n)| n)
}

#[test]
fn an_error_is_believed_only_with_protocol_ports_and_spi_of_an_sa_to_that_peer() {
    for ipv6 in [false, true] {
        let raw = |protocol, upper: &[u8]| error(ipv6, 1400, protocol, upper);
        let esp = SPI.to_be_bytes();
        let ah = [&[50, 4, 0, 0][..], &esp, &[0, 0, 0, 1]].concat();
        let kinds = [
            (Shape { protocol: ESP, port: None }, raw(ESP, &[&esp[..], &[0, 0, 0, 1]].concat())),
            (Shape { protocol: ESP, port: Some(4501) }, raw(UDP, &in_udp(4500, 4501, SPI))),
            (Shape { protocol: AH, port: None }, raw(AH, &ah)),
        ];
        for (shape, right) in &kinds {
            let paths = Paths::default();
            paths.add(&sa(ipv6, 1), *shape);
            let mut refused = 0;
            for (other, wrong) in &kinds {
                if other != shape {
                    refused += 1;
                    assert!(!judge(&paths, ipv6, wrong), "{shape:?} is not {other:?}");
                }
            }
            let mut spi = right.clone();
            // The SPI's last byte, and what the checksum makes of it.
            let at = spi.len() - 5;
            spi[at] ^= 1;
            spi[2..4].fill(0);
            let checksum = (!fold(sum(&spi))).to_ne_bytes();
            spi[2..4].copy_from_slice(&checksum);
            assert!(!judge(&paths, ipv6, &spi), "{shape:?}: another SPI");
            refused += 1;
            let elsewhere = paths.judge(clock::now(), ends(ipv6).1, Some(4500), right, true);
            assert_eq!(elsewhere, None, "the error went to another address than the packet came from");
            refused += 1;
            assert_eq!((counted(&paths), paths.known().mtu(ends(ipv6).1)), ([0, refused], None));

            assert!(judge(&paths, ipv6, right), "{shape:?}");
            assert_eq!((counted(&paths), paths.known().mtu(ends(ipv6).1)), ([1, refused], Some(1400)));
            assert!(!judge(&paths, ipv6, right), "believed, but no news");
            assert_eq!(counted(&paths), [2, refused]);
            paths.remove(&sa(ipv6, 1));
            assert!(!judge(&paths, ipv6, right), "the SA is gone");
            assert_eq!(counted(&paths), [2, refused + 1]);
        }
    }
}

#[test]
fn in_udp_a_quote_of_eight_bytes_is_refused_and_other_traffic_is_nobodys() {
    for ipv6 in [false, true] {
        let paths = Paths::default();
        paths.add(&sa(ipv6, 1), Shape { protocol: ESP, port: Some(4500) });
        let whole = in_udp(4500, 4500, SPI);
        assert!(!judge(&paths, ipv6, &error(ipv6, 1400, UDP, &whole[..8])));
        assert!(!judge(&paths, ipv6, &error(ipv6, 1400, UDP, &whole[..11])));
        assert_eq!(counted(&paths), [0, 2]);
        assert!(!judge(&paths, ipv6, &error(ipv6, 1400, UDP, &in_udp(4500, 4500, 0))), "IKE");
        assert!(!judge(&paths, ipv6, &error(ipv6, 1400, UDP, &in_udp(53, 4500, SPI))), "not our port");
        assert!(!judge(&paths, ipv6, &error(ipv6, 1400, 6, &whole)), "TCP");
        assert_eq!(counted(&paths), [0, 2]);
        assert!(
            !judge(&paths, ipv6, &error(ipv6, 1400, UDP, &in_udp(4500, 4501, SPI))),
            "not the peer's port"
        );
        assert_eq!(counted(&paths), [0, 3]);
        assert!(judge(&paths, ipv6, &error(ipv6, 1400, UDP, &whole[..12])));
    }
}

#[test]
fn what_was_damaged_on_its_way_is_refused_and_nothing_is_narrower_than_the_floor() {
    let paths = Paths::default();
    paths.add(&sa(false, 1), Shape { protocol: ESP, port: None });
    paths.add(&sa(true, 1), Shape { protocol: ESP, port: None });
    let mut damaged = error(false, 1400, ESP, &SPI.to_be_bytes());
    damaged[7] ^= 1;
    assert!(!judge(&paths, false, &damaged));
    let good = error(false, 0, ESP, &SPI.to_be_bytes());
    assert_eq!(paths.judge(clock::now(), ends(false).0, None, &good, false), None, "not all of it is there");
    assert_eq!(counted(&paths), [0, 2]);
    // RFC 1191 section 4: routers before it say 0.
    for (ipv6, least) in [(false, sysctl::least_path_mtu(false)), (true, 1280)] {
        assert!(judge(&paths, ipv6, &error(ipv6, 0, ESP, &SPI.to_be_bytes())));
        assert_eq!(paths.known().mtu(ends(ipv6).1), Some(least));
    }
}

#[test]
fn two_sas_with_one_spi_are_two_and_the_routes_mtu_goes_with_the_last() {
    let (paths, peer) = (Paths::default(), ends(false).1);
    paths.routed(peer, Some(1300));
    assert_eq!(paths.known().mtu(peer), None, "there is no SA");
    for (reqid, port) in [(1, 4500), (2, 4501)] {
        paths.add(&sa(false, reqid), Shape { protocol: ESP, port: Some(port) });
        paths.routed(peer, Some(1300));
    }
    let about = |port| error(false, 1200, UDP, &in_udp(4500, port, SPI));
    paths.remove(&sa(false, 1));
    paths.remove(&sa(false, 1));
    assert_eq!(paths.known().mtu(peer), Some(1300));
    assert!(!judge(&paths, false, &about(4500)) && judge(&paths, false, &about(4501)));
    paths.remove(&sa(false, 2));
    assert_eq!(paths.known().mtu(peer), Some(1200), "what was learned stays until it is forgotten");
    paths.known().forget_expired(clock::now() + Duration::from_secs(100_000));
    assert_eq!(paths.known().mtu(peer), None);
    let sas = paths.sas();
    assert!(sas.by_spi.is_empty() && sas.peers.is_empty());
}
