//! A peer with wide selectors does not speak for others: what comes out of its SA has to be what
//! the SPD, in its order, would send back into it (RFC 4301 sections 4.4.1 and 5.2).

use ironswan_ipsec::DropReason::{self, InFragment, InPolBlock, InStateMismatch, InTmplMismatch};
use ironswan_wire::ip::protocol;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId, SaAdd, SaRef, Spi};

use crate::common::*;
use crate::in_common::{self, Arriving, Make, Receiver, host_packet, text};
use crate::out_common::fragments;
use crate::quoted::error;

const OURS: Action = Action::Protect(ReqId(REQID));
const THEIRS: Action = Action::Protect(ReqId(2));

fn policy(action: Action, local: &str, remote: &str) -> PolicyAdd {
    PolicyAdd {
        name: "p".into(),
        action,
        local: ts(local),
        remote: ts(remote),
        priority: 0,
        entry: Entry::default(),
    }
}

/// A hub with 10.2.0.0/16 and fd02::/32 behind it, and a spoke whose SAs have everything.
fn wide(make: Make) -> Make {
    let options = Options {
        left: vec![ts("0.0.0.0/0"), ts("::/0")],
        right: vec![ts("10.2.0.0/16"), ts("fd02::/32")],
        ..make.options
    };
    Make { options, ..make }
}

fn of_the_spoke() -> [PolicyAdd; 2] {
    [policy(OURS, "10.2.0.0/16", "0.0.0.0/0"), policy(OURS, "fd02::/32", "::/0")]
}

/// The second peer, a network in clear, and one that nobody may reach.
fn of_others() -> [PolicyAdd; 6] {
    [
        policy(THEIRS, "10.2.0.0/16", "10.3.0.0/16"),
        policy(Action::Bypass, "10.2.0.0/16", "10.4.0.0/16"),
        policy(Action::Discard, "10.2.0.0/16", "10.5.0.0/16"),
        policy(THEIRS, "fd02::/32", "fd03::/32"),
        policy(Action::Bypass, "fd02::/32", "fd04::/32"),
        policy(Action::Discard, "fd02::/32", "fd05::/32"),
    ]
}

fn apply(r: &mut Receiver, policies: impl IntoIterator<Item = PolicyAdd>) {
    for p in policies {
        r.engine.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    r.worker.begin(SECOND);
}

fn hub(make: Make) -> Receiver {
    let mut r = Receiver::new(wide(make));
    apply(&mut r, of_the_spoke().into_iter().chain(of_others()));
    r
}

/// A packet from this source to the hub's network.
fn from(src: &str) -> Vec<u8> {
    let v6 = src.contains(':');
    Spec { v6, src: ip(src), dst: ip(if v6 { "fd02::1" } else { "10.2.0.1" }), ..Spec::udp(100) }.build()
}

/// Whose packets pass, and why the others do not.
const SOURCES: [(&str, Option<DropReason>); 8] = [
    ("10.1.0.1", None),
    ("10.3.0.1", Some(InTmplMismatch)),
    ("10.4.0.1", Some(InTmplMismatch)),
    ("10.5.0.1", Some(InPolBlock)),
    ("fd01::1", None),
    ("fd03::1", Some(InTmplMismatch)),
    ("fd04::1", Some(InTmplMismatch)),
    ("fd05::1", Some(InPolBlock)),
];

fn next_header(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 6 { protocol::IPV6 } else { protocol::IPV4 }
}

fn esp(r: &Receiver, seq: u64, packet: &[u8]) -> Arriving {
    r.esp(seq, packet, next_header(packet))
}

/// Twice each, since what is said of a flow is remembered.
fn only_its_own_passes(r: &mut Receiver, seal: impl Fn(&Receiver, u64, &[u8]) -> Arriving) {
    for (i, (src, reason)) in SOURCES.into_iter().chain(SOURCES).enumerate() {
        let packet = from(src);
        let arriving = seal(r, 1 + i as u64, &packet);
        match reason {
            None => assert_eq!(r.delivers(&arriving), packet, "{src}"),
            Some(reason) => r.refuses(&arriving, reason),
        }
    }
}

#[test]
fn a_peer_with_wide_selectors_speaks_for_itself_only() {
    only_its_own_passes(&mut hub(Make::default()), esp);
    only_its_own_passes(&mut hub(in_common::ah()), |r, seq, p| r.ah(seq, p, next_header(p)));
    let compressed = hub(Make::default().with_ipcomp(7));
    only_its_own_passes(&mut { compressed }, |r, seq, p| {
        r.esp(seq, &in_common::ipcomp(7, next_header(p), p), in_common::IPCOMP)
    });
}

#[test]
fn transport_mode_too() {
    let make = in_common::transport();
    let (a, b) = make.options.outer();
    let host = |addr: std::net::SocketAddr| format!("{}/32", addr.ip());
    let packet = host_packet(&make, Spec::udp(100));
    let mut r = Receiver::new(make);
    apply(&mut r, [policy(OURS, &host(b), &host(a))]);
    assert_eq!(
        in_common::upper(&r.delivers(&r.esp(1, &packet[20..], protocol::UDP))),
        in_common::upper(&packet)
    );
    let udp = |p: PolicyAdd| {
        let udp = |t| ironswan_wire::selector::TrafficSelector { protocol: protocol::UDP, ..t };
        PolicyAdd { local: udp(p.local), remote: udp(p.remote), ..p }
    };
    apply(&mut r, [udp(policy(THEIRS, &host(b), &host(a)))]);
    r.refuses(&r.esp(2, &packet[20..], protocol::UDP), InTmplMismatch);
}

/// Whatever comes first: the SA, its policies, those of others; and when others go, all is as
/// before.
#[test]
fn policies_that_come_and_go_are_seen_at_once() {
    let mut r = Receiver::new(wide(Make::default()));
    let packet = from("10.3.0.1");
    assert_eq!(r.delivers(&esp(&r, 1, &packet)), packet);
    apply(&mut r, of_the_spoke());
    assert_eq!(r.delivers(&esp(&r, 2, &packet)), packet);
    for (i, other) in of_others().into_iter().take(2).enumerate() {
        let seq = 10 * (1 + i as u64);
        let packet = from(["10.3.0.1", "10.4.0.1"][i]);
        assert_eq!(r.delivers(&esp(&r, seq, &packet)), packet);
        r.engine.apply(SECOND, &Command::PolicyAdd(other.clone())).unwrap();
        r.worker.begin(SECOND);
        r.refuses(&esp(&r, seq + 1, &packet), InTmplMismatch);
        r.engine.apply(SECOND, &Command::PolicyDelete(other)).unwrap();
        r.worker.begin(SECOND);
        assert_eq!(r.delivers(&esp(&r, seq + 2, &packet)), packet);
    }
    // Its own policies go while its SA stays a while, as after a rekeying: what is another's is not
    // its own.
    apply(&mut r, of_others());
    for p in of_the_spoke() {
        r.engine.apply(SECOND, &Command::PolicyDelete(p)).unwrap();
    }
    r.worker.begin(SECOND);
    r.refuses(&esp(&r, 40, &packet), InTmplMismatch);
    assert_eq!(r.delivers(&esp(&r, 41, &from("10.1.0.1"))), from("10.1.0.1"));
}

/// What the order of policies says on the way out, it says on the way in.
#[test]
fn the_order_of_policies_decides_and_of_equal_ones_the_older() {
    let mut r = Receiver::new(wide(Make::default()));
    apply(&mut r, of_the_spoke());
    let packet = from("10.3.0.1");
    // A wider one, or one that ranks behind, takes nothing away.
    let behind = PolicyAdd { priority: 400_000, ..policy(THEIRS, "10.2.0.0/16", "10.3.0.0/16") };
    apply(&mut r, [policy(THEIRS, "0.0.0.0/0", "0.0.0.0/0"), behind]);
    assert_eq!(r.delivers(&esp(&r, 1, &packet)), packet);
    // Two peers for one network: the one whose policy is older has it, until that goes.
    let equal = policy(THEIRS, "10.2.0.0/16", "0.0.0.0/0");
    apply(&mut r, [equal]);
    assert_eq!(r.delivers(&esp(&r, 2, &packet)), packet);
    r.engine.apply(SECOND, &Command::PolicyDelete(of_the_spoke()[0].clone())).unwrap();
    r.worker.begin(SECOND);
    r.refuses(&esp(&r, 3, &packet), InTmplMismatch);
    apply(&mut r, [of_the_spoke()[0].clone()]);
    r.refuses(&esp(&r, 4, &packet), InTmplMismatch);
    apply(&mut r, [PolicyAdd { priority: 9, ..of_the_spoke()[0].clone() }]);
    assert_eq!(r.delivers(&esp(&r, 5, &packet)), packet);
}

/// A rekeyed SA and its successor, and two peers with the same networks, have one reqid.
#[test]
fn all_sas_of_one_reqid_are_of_its_policy() {
    let makes = vec![wide(Make::default()), wide(Make { spi: SPI + 1, ..Make::default() })];
    let mut r = Receiver::with(makes);
    apply(&mut r, of_the_spoke().into_iter().chain(of_others()));
    for (which, seq) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
        let packet = from("10.1.0.1");
        let sealed = r.esp_of(which, seq, &text(&packet, protocol::IPV4, 16));
        assert_eq!(r.delivers(&sealed), packet);
        let foreign = r.esp_of(which, 10 + seq, &text(&from("10.3.0.1"), protocol::IPV4, 16));
        r.refuses(&foreign, InTmplMismatch);
    }
}

/// `policies = no`: what is nobody's passes.
#[test]
fn an_sa_without_policies_takes_what_no_other_policy_covers() {
    let mut r = Receiver::new(wide(Make::default()));
    apply(&mut r, of_others());
    only_its_own_passes(&mut r, esp);
}

/// An SA may be used as soon as it is there, which is before its policies are, and a worker may not
/// have seen these yet.
#[test]
fn policies_that_came_within_the_round_count() {
    let mut pair = Pair::new(Options::default());
    let all = |action| {
        let p = policy(action, "0.0.0.0/0", "0.0.0.0/0");
        Command::PolicyAdd(p)
    };
    pair.b.apply(SECOND, &all(THEIRS)).unwrap();
    pair.wb.begin(SECOND);
    let other = pair.options.sa(Direction::In, SPI + 1, 7, 42);
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(other))).unwrap();
    pair.b
        .apply(SECOND, &Command::PolicyAdd(policy(Action::Protect(ReqId(7)), "10.2.0.0/16", "10.1.0.0/16")))
        .unwrap();
    let sa = pair.options.sa(Direction::Out, SPI + 1, REQID, 42);
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    pair.wa.begin(SECOND);
    let packet = Spec::udp(100).build();
    let sealed = pair.seal_one(&packet);
    assert_eq!(sealed[..4], (SPI + 1).to_be_bytes());
    assert_eq!(pair.open_each(&[sealed]), [packet]);
    assert_eq!(pair.dropped(), None);
}

#[test]
fn fragments_are_judged_as_their_packets() {
    let mut r = hub(Make::default());
    let big = |src: &str| Spec { src: ip(src), df: false, ..Spec::udp(1_000) }.build();
    let mut seq = 0;
    let mut one = |r: &mut Receiver, packet: &[u8], reason: Option<DropReason>| {
        for fragment in fragments(packet, 400, 9) {
            seq += 1;
            match reason {
                None => assert_eq!(r.delivers(&esp(r, seq, &fragment)), fragment),
                Some(reason) => r.refuses(&esp(r, seq, &fragment), reason),
            }
        }
    };
    one(&mut r, &big("10.1.0.1"), None);
    one(&mut r, &big("10.3.0.1"), Some(InTmplMismatch));
    // Of another's policy for ports, only the first fragment shows that it is meant; no other
    // passes without.
    let mut p = policy(THEIRS, "10.2.0.0/16", "10.1.0.0/16");
    for side in [&mut p.local, &mut p.remote] {
        side.protocol = protocol::UDP;
    }
    (p.local.start_port, p.local.end_port) = (5_000, 6_000);
    apply(&mut r, [p]);
    let own = |dst: u16| Spec { ports: (40_000, dst), df: false, ..Spec::udp(1_000) }.build();
    one(&mut r, &own(7_000), None);
    let theirs = fragments(&own(5_201), 400, 10);
    r.refuses(&esp(&r, 100, &theirs[0]), InTmplMismatch);
    r.refuses(&esp(&r, 101, &theirs[1]), InStateMismatch);
}

#[test]
fn an_icmp_error_about_a_packet_of_another_policy_is_refused() {
    let mut r = hub(Make::default());
    let mut seq = 0;
    let mut next = |r: &Receiver, packet: &[u8]| {
        seq += 1;
        esp(r, seq, packet)
    };
    let to = |dst: &str| Spec { src: ip("10.2.0.1"), dst: ip(dst), ..Spec::udp(200) };
    // Twice, since nothing that one error says may open a door for the next of the same kind.
    for _ in 0..2 {
        for router in ["10.1.0.254", "172.16.0.9"] {
            let good = error(router, "10.2.0.1", &to("10.1.0.1"), 28);
            let sealed = next(&r, &good);
            assert_eq!(r.delivers(&sealed), good);
            for (about, reason) in
                [("10.3.0.1", InTmplMismatch), ("10.4.0.1", InTmplMismatch), ("10.5.0.1", InPolBlock)]
            {
                let sealed = next(&r, &error(router, "10.2.0.1", &to(about), 28));
                r.refuses(&sealed, reason);
            }
        }
        // What quotes nothing that can be read is an ICMP packet like others.
        let unreadable = error("10.1.0.254", "10.2.0.1", &to("10.3.0.1"), 10);
        let sealed = next(&r, &unreadable);
        assert_eq!(r.delivers(&sealed), unreadable);
    }
    // In fragments it would be looked at by nobody.
    let mut long = error("10.1.0.254", "10.2.0.1", &to("10.3.0.1"), 200);
    long[6] = 0;
    ironswan_wire::ip::v4::set_checksum(&mut long[..20]);
    let sealed = next(&r, &fragments(&long, 64, 9)[0]);
    r.refuses(&sealed, InFragment);
}

/// Where selectors are narrow, nobody else's policy lies inside, and errors are looked at all the
/// same.
#[test]
fn an_icmp_error_of_a_narrow_sa_is_about_its_own_flows() {
    let mut r = Receiver::new(Make::default());
    apply(&mut r, [policy(OURS, "10.2.0.0/16", "10.1.0.0/16"), policy(THEIRS, "10.2.0.0/16", "10.3.0.0/16")]);
    let to = |dst: &str| Spec { src: ip("10.2.0.1"), dst: ip(dst), ..Spec::udp(200) };
    let (good, bad) = (to("10.1.0.1"), to("10.3.0.1"));
    let [good, bad] = [good, bad].map(|quoted| error("10.1.0.254", "10.2.0.1", &quoted, 28));
    assert_eq!(r.delivers(&esp(&r, 1, &good)), good);
    r.refuses(&esp(&r, 2, &bad), InTmplMismatch);
}

/// A router behind one child of a peer complains about a flow of the peer's other child. And a flow
/// of ours with somebody outside is nobody's business.
#[test]
fn an_icmp_error_may_be_about_another_child_of_the_same_peer_and_not_about_a_flow_in_clear() {
    let mut r = Receiver::new(Make::default());
    apply(&mut r, [policy(OURS, "10.2.0.0/16", "10.1.0.0/16"), policy(THEIRS, "10.2.0.0/16", "10.3.0.0/16")]);
    let about = |dst: &str| {
        let quoted = Spec { src: ip("10.2.0.1"), dst: ip(dst), ..Spec::udp(200) };
        error("10.1.0.254", "10.2.0.1", &quoted, 28)
    };
    // The other child's SA leads to another peer, and then to this one, as its own do.
    let out = |spi, remote: Option<&str>| {
        let inbound = Options::default().sa(Direction::In, SPI, REQID, 42);
        let mut sa = Options::default().sa(Direction::Out, spi, 2, 42);
        (sa.local, sa.remote) = (inbound.local, inbound.remote);
        if let Some(remote) = remote {
            sa.remote.set_ip(ip(remote));
        }
        Command::SaAdd(Box::new(sa))
    };
    r.engine.apply(SECOND, &out(SPI + 10, Some("198.51.100.77"))).unwrap();
    r.worker.begin(SECOND);
    r.refuses(&esp(&r, 1, &about("10.3.0.1")), InTmplMismatch);
    r.engine.apply(SECOND, &out(SPI + 11, None)).unwrap();
    r.worker.begin(SECOND);
    assert_eq!(r.delivers(&esp(&r, 2, &about("10.3.0.1"))), about("10.3.0.1"));
    r.refuses(&esp(&r, 3, &about("198.51.100.7")), InStateMismatch);
}

/// What is refused is told, with its SPI.
#[test]
fn it_is_told() {
    let mut r = hub(Make::default());
    r.refuses(&esp(&r, 1, &from("10.3.0.1")), InTmplMismatch);
    let told: Vec<_> = r
        .engine
        .take_up()
        .into_iter()
        .filter_map(|up| match up {
            ironswan_wire::sadb::Up::Rejected(r) => Some((r.reason, r.spi, r.sequence)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [("InTmplMismatch", Spi(SPI), 1)]);
}

/// Ten thousand networks of others inside of one wide selector: the first packet of each flow is
/// looked up, and only the wide SA's. The others' SAs lie inside of no policy that comes before
/// their own.
#[test]
fn many_others() {
    let mut r = Receiver::new(wide(Make::default()));
    apply(&mut r, of_the_spoke());
    let net = |k: u32| format!("10.{}.{}.0/24", 100 + k / 256, k % 256);
    let others = |k: u32| PolicyAdd {
        action: Action::Protect(ReqId(10 + k)),
        ..policy(THEIRS, "10.2.0.0/16", &net(k))
    };
    apply(&mut r, (0..10_000).map(others));
    let narrow = Options { left: vec![ts(&net(77))], ..Options::default() };
    let sa = SaAdd { reqid: ReqId(87), ..narrow.sa(Direction::In, SPI + 1, 87, 42) };
    r.engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    r.worker.begin(SECOND);
    let mut seq = 0;
    for (src, passes) in
        [("10.1.0.1", true), ("10.100.77.1", false), ("10.139.15.1", false), ("10.139.16.1", true)]
    {
        seq += 1;
        let arriving = esp(&r, seq, &from(src));
        if passes { drop(r.delivers(&arriving)) } else { r.refuses(&arriving, InTmplMismatch) }
    }
    let stats = |spi| {
        let sa = SaRef { direction: Direction::In, spi: Spi(spi), reqid: ReqId(87), remote: ip("192.0.2.1") };
        r.engine.sa_stats(sa).unwrap().packets
    };
    assert_eq!(stats(SPI + 1), 0);
}
