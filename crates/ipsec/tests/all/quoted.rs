//! ICMP errors of routers whose addresses no selector covers go by what they quote (RFC 4301
//! section 6.2).

use ironswan_ipsec::DropReason::{InPolBlock, InStateMismatch, OutNoPolicy, OutNoStates};
use ironswan_wire::ip::checksum::{fold, sum};
use ironswan_wire::ip::v4;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId};

use crate::common::*;

/// "Too big" or "unreachable" from `from` to `to` about `quoted`, of which it quotes `keep` bytes.
pub fn error(from: &str, to: &str, quoted: &Spec, keep: usize) -> Vec<u8> {
    let mut quoted_bytes = quoted.build();
    quoted_bytes.truncate(keep);
    let mut icmp = vec![if quoted.v6 { 2 } else { 3 }, if quoted.v6 { 0 } else { 4 }, 0, 0, 0, 0, 5, 0];
    icmp.extend(quoted_bytes);
    let (from, to) = (ip(from), ip(to));
    let octets = |a: std::net::IpAddr| match a {
        std::net::IpAddr::V4(a) => a.octets().to_vec(),
        std::net::IpAddr::V6(a) => a.octets().to_vec(),
    };
    let mut p = if quoted.v6 {
        let len = (icmp.len() as u16).to_be_bytes();
        vec![0x60, 0, 0, 0, len[0], len[1], 58, 64]
    } else {
        let check = (!fold(sum(&icmp))).to_ne_bytes();
        icmp[2..4].copy_from_slice(&check);
        let len = ((20 + icmp.len()) as u16).to_be_bytes();
        vec![0x45, 0, len[0], len[1], 0, 7, 0, 0, 64, 1, 0, 0]
    };
    p.extend(octets(from));
    p.extend(octets(to));
    if !quoted.v6 {
        v4::set_checksum(&mut p);
    }
    p.extend(icmp);
    p
}

/// A packet from B's side to A's, about which routers of A's side complain.
fn quoted(v6: bool) -> Spec {
    if v6 {
        Spec { v6, src: ip("fd02::1"), dst: ip("fd01::1"), ..Spec::udp(200) }
    } else {
        Spec { src: ip("10.2.0.1"), dst: ip("10.1.0.1"), ..Spec::udp(200) }
    }
}

#[test]
fn an_error_of_a_router_outside_the_selectors_is_protected_and_accepted_by_what_it_quotes() {
    let mut pair = Pair::new(Options::default());
    for e in [
        error("172.16.0.9", "10.2.0.1", &quoted(false), 28),
        error("2001:db8::9", "fd02::1", &quoted(true), 100),
    ] {
        let esp = pair.seal_one(&e);
        assert_eq!(pair.open_each(&[esp]), [e], "{:?}", pair.b.counters());
    }
    assert_eq!(pair.dropped(), None);
}

#[test]
fn an_error_that_speaks_for_no_flow_of_the_tunnel_does_not_leave() {
    let mut pair = Pair::new(Options::default());
    let other = Spec { dst: ip("10.3.0.1"), ..quoted(false) };
    let cases = [
        error("172.16.0.9", "10.2.0.7", &quoted(false), 28),
        error("172.16.0.9", "10.2.0.1", &other, 28),
        error("172.16.0.9", "10.2.0.1", &quoted(false), 19),
    ];
    let n = cases.len() as u64;
    for e in cases {
        assert!(pair.seal(&[(e, ironswan_wire::offload::Offload::NONE)]).is_empty());
    }
    assert_eq!(pair.a.counters().dropped(OutNoPolicy), n);
    // Without an SA it waits for none, and asks for none.
    pair.a.apply(SECOND, &Command::SaDelete(pair.out_ref())).unwrap();
    pair.wa.begin(SECOND);
    let e = error("172.16.0.9", "10.2.0.1", &quoted(false), 28);
    assert!(pair.seal(&[(e, ironswan_wire::offload::Offload::NONE)]).is_empty());
    let c = pair.a.counters();
    assert_eq!((c.dropped(OutNoPolicy), c.dropped(OutNoStates), c.held), (n + 1, 0, 0));
    assert!(c.balance() && pair.a.take_up().is_empty());
}

#[test]
fn what_a_peer_sends_as_an_error_is_accepted_for_flows_of_its_sa_only() {
    let mut pair = Pair::new(Options::default());
    // A peer that sends anything from anywhere by this SA.
    let mut wide = pair.options.sa(Direction::Out, SPI, 2, 42);
    wide.local_ts = vec![ts("0.0.0.0/0")];
    wide.remote_ts = vec![ts("0.0.0.0/0")];
    let policy = |action, local, remote| {
        let (local, remote) = (ts(local), ts(remote));
        Command::PolicyAdd(PolicyAdd {
            name: "p".into(),
            action,
            local,
            remote,
            priority: 1,
            entry: Entry::default(),
        })
    };
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(wide))).unwrap();
    pair.a.apply(SECOND, &policy(Action::Protect(ReqId(2)), "0.0.0.0/0", "0.0.0.0/0")).unwrap();
    pair.wa.begin(SECOND);
    let good = error("172.16.0.9", "10.2.0.1", &quoted(false), 28);
    let mut echo = good.clone();
    echo[20] = 8;
    // A redirect would turn a host's routes, in the name of its own gateway.
    let mut redirect = error("10.2.0.254", "10.2.0.1", &quoted(false), 28);
    redirect[20] = 5;
    let elsewhere = Spec { dst: ip("10.9.0.1"), ..quoted(false) };
    for bad in [
        echo,
        redirect,
        error("172.16.0.9", "10.2.0.7", &quoted(false), 28),
        error("172.16.0.9", "10.2.0.1", &elsewhere, 28),
        error("172.16.0.9", "10.2.0.1", &quoted(false), 27 - 8),
    ] {
        let before = pair.b.counters().dropped(InStateMismatch);
        let esp = pair.seal_one(&bad);
        assert_eq!(pair.open_each(&[esp]), [[0u8; 0]; 0]);
        assert_eq!(pair.b.counters().dropped(InStateMismatch), before + 1);
    }
    // One that is good opens no door for the next of the same router.
    let esp = [pair.seal_one(&good), pair.seal_one(&error("172.16.0.9", "10.2.0.1", &elsewhere, 28))];
    assert_eq!(pair.open_each(&esp).len(), 1);
    // What DISCARD says of the router holds, whatever it quotes.
    let router = policy(Action::Discard, "10.2.0.0/16", "172.16.0.9/32");
    pair.b.apply(SECOND, &router).unwrap();
    pair.wb.begin(SECOND);
    let esp = pair.seal_one(&good);
    assert_eq!(pair.open_each(&[esp]), [[0u8; 0]; 0]);
    assert_eq!(pair.b.counters().dropped(InPolBlock), 1);
    let Command::PolicyAdd(router) = router else { unreachable!() };
    pair.b.apply(SECOND, &Command::PolicyDelete(router)).unwrap();
    // What DISCARD says of the flow holds for errors about it.
    pair.b.apply(SECOND, &policy(Action::Discard, "10.2.0.0/16", "10.1.0.1/32")).unwrap();
    pair.wb.begin(SECOND);
    let esp = pair.seal_one(&good);
    assert_eq!(pair.open_each(&[esp]), [[0u8; 0]; 0]);
    let c = pair.b.counters();
    assert_eq!(c.dropped(InPolBlock), 2);
    assert!(c.balance());
}
