//! Fragments and ports (RFC 4301 section 7): out by policy, in by selectors of the SA and by
//! policy.

use ironswan_ipsec::DropReason::{self, *};
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId, SaAdd, Spi};
use ironswan_wire::selector::TrafficSelector;

use crate::common::*;

const OPAQUE: (u16, u16) = (65_535, 0);

/// `packet` in fragments of `size` bytes of payload, a multiple of 8.
fn fragments(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let v6 = packet[0] >> 4 == 6;
    let (head, data) = packet.split_at(if v6 { 40 } else { 20 });
    let n = data.len().div_ceil(size);
    let piece = |(i, chunk): (usize, &[u8])| {
        let (at, more) = ((i * size) as u16, i + 1 != n);
        let mut p = head.to_vec();
        if v6 {
            p[4..6].copy_from_slice(&((8 + chunk.len()) as u16).to_be_bytes());
            p.extend_from_slice(&[head[6], 0]);
            p.extend_from_slice(&(at | u16::from(more)).to_be_bytes());
            p.extend_from_slice(&[0xab, 0, 0, 9]);
            p[6] = 44;
        } else {
            p[2..4].copy_from_slice(&((20 + chunk.len()) as u16).to_be_bytes());
            p[6..8].copy_from_slice(&((at / 8) | if more { 0x2000 } else { 0 }).to_be_bytes());
            ironswan_wire::ip::v4::set_checksum(&mut p);
        }
        p.extend_from_slice(chunk);
        p
    };
    data.chunks(size).enumerate().map(piece).collect()
}

fn ports(mut t: TrafficSelector, protocol: u8, (start_port, end_port): (u16, u16)) -> TrafficSelector {
    (t.protocol, t.start_port, t.end_port) = (protocol, start_port, end_port);
    t
}

/// To 10.2.0.0/16 or fd02::/32 and ports there.
fn to(v6: bool, action: Action, protocol: u8, p: (u16, u16)) -> PolicyAdd {
    let (local, remote) = if v6 { ("fd01::/32", "fd02::/32") } else { ("10.1.0.0/16", "10.2.0.0/16") };
    PolicyAdd {
        name: "p".into(),
        action,
        local: ts(local),
        remote: ports(ts(remote), protocol, p),
        priority: 0,
        entry: Entry::default(),
    }
}

/// A with these policies, and an SA with all selectors for each reqid: SPI + reqid.
fn pair(policies: Vec<PolicyAdd>) -> Pair {
    let mut pair = Pair::new(Options::default());
    for p in pair.options.policies(REQID) {
        pair.a.apply(SECOND, &Command::PolicyDelete(p)).unwrap();
    }
    for reqid in 2..4 {
        let sa = pair.options.sa(Direction::Out, SPI + reqid, reqid, 42);
        pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    }
    for p in policies {
        pair.a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    pair.wa.begin(SECOND);
    pair
}

/// The SPIs of what came out, less SPI.
fn sent(pair: &mut Pair, packets: &[Vec<u8>]) -> Vec<u32> {
    let mut out = Vec::new();
    for p in packets {
        let esp = pair.seal(&[(p.clone(), ironswan_wire::offload::Offload::NONE)]);
        out.extend(esp.iter().map(|p| u32::from_be_bytes(p[..4].try_into().unwrap()) - SPI));
    }
    out
}

/// What was dropped of A's.
fn drops(pair: &Pair) -> Vec<(DropReason, u64)> {
    let c = pair.a.counters();
    assert!(c.balance(), "{c:?}");
    c.drops().filter(|(_, n)| *n != 0).collect()
}

fn udp(v6: bool, port: u16, id: u16) -> Vec<u8> {
    let spec = Spec { ports: (4_000, port), id, df: false, ..Spec::udp(100) };
    if v6 { spec.over_v6().build() } else { spec.build() }
}

fn protect(reqid: u32) -> Action {
    Action::Protect(ReqId(reqid))
}

const ANY: (u16, u16) = (0, 65_535);

#[test]
fn any_ports_take_fragments_in_any_order() {
    for v6 in [false, true] {
        let mut pair = pair(vec![to(v6, protect(2), 17, ANY)]);
        let mut f = fragments(&udp(v6, 53, 1), 48);
        f.reverse();
        assert_eq!(sent(&mut pair, &f), [2, 2, 2]);
    }
}

#[test]
fn a_later_fragment_takes_what_its_first_got() {
    for v6 in [false, true] {
        let policies = vec![
            to(v6, protect(2), 17, (53, 53)),
            to(v6, protect(3), 17, ANY),
            to(v6, Action::Discard, 17, (80, 90)),
        ];
        let mut pair = pair(policies);
        assert_eq!(sent(&mut pair, &fragments(&udp(v6, 53, 1), 48)), [2, 2, 2]);
        assert_eq!(sent(&mut pair, &fragments(&udp(v6, 99, 2), 48)), [3, 3, 3]);
        assert_eq!(drops(&pair), []);
        assert!(sent(&mut pair, &fragments(&udp(v6, 80, 3), 48)).is_empty());
        assert_eq!(drops(&pair), [(OutPolBlock, 3)]);
    }
}

#[test]
fn bypass_is_for_its_own_fragments_only() {
    let mut pair = pair(vec![to(false, Action::Bypass, 17, (500, 500)), to(false, protect(3), 0, ANY)]);
    assert!(sent(&mut pair, &fragments(&udp(false, 500, 1), 48)).is_empty());
    assert_eq!(sent(&mut pair, &fragments(&udp(false, 501, 2), 48)), [3, 3, 3]);
    assert_eq!(drops(&pair), [(OutPolBypass, 3)]);
}

#[test]
fn a_later_fragment_without_its_first_goes_nowhere_where_ports_decide() {
    for v6 in [false, true] {
        let mut pair = pair(vec![to(v6, Action::Discard, 17, (80, 80)), to(v6, protect(3), 0, ANY)]);
        let f = fragments(&udp(v6, 53, 1), 48);
        assert!(sent(&mut pair, &f[1..]).is_empty());
        assert_eq!(drops(&pair), [(OutNoPolicy, 2)]);
        // Of a protocol that no policy asks for ports of, it goes.
        let mut tcp = Spec { df: false, ..Spec::tcp(100) };
        if v6 {
            tcp = tcp.over_v6();
        }
        assert_eq!(sent(&mut pair, &fragments(&tcp.build(), 48)[1..]), [3, 3]);
        // And not after half a minute.
        assert_eq!(sent(&mut pair, &f[..2]), [3, 3]);
        pair.wa.begin(SECOND * 40);
        assert!(sent(&mut pair, &f[2..]).is_empty());
        assert_eq!(drops(&pair), [(OutNoPolicy, 3)]);
    }
}

#[test]
fn opaque_takes_later_fragments_and_nothing_else() {
    for v6 in [false, true] {
        let mut pair = pair(vec![to(v6, protect(2), 17, (53, 53)), to(v6, protect(3), 17, OPAQUE)]);
        assert_eq!(sent(&mut pair, &fragments(&udp(v6, 53, 1), 48)), [2, 3, 3]);
        assert!(sent(&mut pair, &fragments(&udp(v6, 54, 2), 48)[..1]).is_empty());
        assert_eq!(drops(&pair), [(OutNoPolicy, 1)]);
    }
}

#[test]
fn what_hides_its_ports_gets_through_no_port_selector() {
    let mut pair = pair(vec![to(false, Action::Discard, 6, (23, 23)), to(false, protect(3), 0, ANY)]);
    let packet = Spec { ports: (4_000, 80), df: false, ..Spec::tcp(100) }.build();
    // RFC 1858: 8 bytes of TCP, the flags in the next fragment.
    assert!(sent(&mut pair, &fragments(&packet, 8)).is_empty());
    let n = (packet.len() - 20).div_ceil(8) as u64;
    assert_eq!(drops(&pair), [(OutNoPolicy, n)]);
    // A later one that lies over the first.
    let f = fragments(&packet, 48);
    let over = fragments(&packet, 40)[1].clone();
    assert_eq!(sent(&mut pair, &[f[0].clone(), over, f[1].clone()]), [3, 3]);
    assert_eq!(drops(&pair), [(OutNoPolicy, n + 1)]);
}

#[test]
fn an_sa_narrowed_to_ports_takes_the_fragments_of_its_packets() {
    let mut pair = pair(vec![to(false, protect(7), 17, ANY)]);
    let mut sa = pair.options.sa(Direction::Out, SPI + 7, 7, 42);
    sa.remote_ts = vec![ports(ts("10.2.0.0/16"), 17, (53, 53))];
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    pair.wa.begin(SECOND);
    assert_eq!(sent(&mut pair, &fragments(&udp(false, 53, 1), 48)), [7, 7, 7]);
    assert!(sent(&mut pair, &fragments(&udp(false, 54, 2), 48)).is_empty());
    assert!(sent(&mut pair, &fragments(&udp(false, 53, 3), 48)[1..]).is_empty());
    assert_eq!(drops(&pair), [(OutStateMismatch, 5)]);
}

/// B with an inbound SA for which A seals whatever it likes.
fn inbound(edit: impl Fn(&mut SaAdd), policies: Vec<PolicyAdd>) -> Pair {
    let mut pair = pair(vec![to(false, protect(2), 0, ANY), to(true, protect(2), 0, ANY)]);
    let mut sa = pair.options.sa(Direction::In, SPI + 2, 2, 42);
    edit(&mut sa);
    assert_eq!(sa.spi, Spi(SPI + 2));
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    for mut p in policies {
        std::mem::swap(&mut p.local, &mut p.remote);
        pair.b.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    pair.wb.begin(SECOND);
    pair
}

fn delivered(pair: &mut Pair, packets: &[Vec<u8>]) -> usize {
    let esp: Vec<_> = packets.iter().map(|p| pair.seal_one(p)).collect();
    pair.open_each(&esp).len()
}

#[test]
fn inbound_a_later_fragment_comes_out_of_the_sa_of_its_first() {
    for v6 in [false, true] {
        let mut pair = inbound(
            |sa| {
                sa.local_ts =
                    vec![ports(ts("10.2.0.0/16"), 17, (53, 53)), ports(ts("fd02::/32"), 17, (53, 53))]
            },
            vec![],
        );
        let f = fragments(&udp(v6, 53, 1), 48);
        assert_eq!(delivered(&mut pair, &f[1..]), 0);
        assert_eq!(pair.dropped(), Some((InStateMismatch, 2)));
        assert_eq!(delivered(&mut pair, &f), 3);
        assert_eq!(
            delivered(&mut pair, &fragments(&udp(v6, 54, 2), 48)),
            if v6 { 2 } else { 0 },
            "of IPv6 it is the same packet again"
        );
        pair.wb.begin(SECOND * 40);
        assert_eq!(delivered(&mut pair, &f[1..]), 0);
        let whole = udp(v6, 53, 9);
        assert_eq!(delivered(&mut pair, &[whole]), 1);
    }
}

#[test]
fn inbound_opaque_takes_later_fragments_and_no_whole_packets() {
    let mut pair = inbound(|sa| sa.local_ts = vec![ports(ts("10.2.0.0/16"), 17, OPAQUE)], vec![]);
    let f = fragments(&udp(false, 53, 1), 48);
    assert_eq!(delivered(&mut pair, &f), 2);
    assert_eq!(pair.dropped(), Some((InStateMismatch, 1)));
    assert_eq!(delivered(&mut pair, &[udp(false, 53, 2)]), 0);
}

#[test]
fn inbound_a_discard_of_ports_holds_for_later_fragments() {
    let mut pair = inbound(|_| {}, vec![to(false, Action::Discard, 17, (80, 80))]);
    assert_eq!(delivered(&mut pair, &fragments(&udp(false, 80, 1), 48)[..1]), 0);
    assert_eq!(pair.dropped(), Some((InPolBlock, 1)));
    let mut pair = inbound(|_| {}, vec![to(false, Action::Discard, 17, (80, 80))]);
    assert_eq!(delivered(&mut pair, &fragments(&udp(false, 80, 1), 48)[1..]), 0);
    assert_eq!(pair.dropped(), Some((InStateMismatch, 2)));
    assert_eq!(delivered(&mut pair, &fragments(&udp(false, 81, 2), 48)), 3);
    assert_eq!(delivered(&mut pair, &fragments(&Spec { df: false, ..Spec::tcp(100) }.build(), 48)[1..]), 2);
}
