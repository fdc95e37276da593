//! The decision about a packet that somebody describes agrees with what happens to the packet.

use ironswan_ipsec::{Decision, DropReason};
use ironswan_wire::sadb::{Action, Command, Direction, Entry, Lifetime, Mode, PolicyAdd, SaAdd};
use ironswan_wire::selector::PacketSelector;

use crate::common::*;
use crate::in_common::{Make, Receiver};
use crate::out_common::{Sender, outbound};

fn packet(src: &str, dst: &str, port: u16) -> PacketSelector {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    PacketSelector { src, dst, protocol: 6, src_port: Some(50_000), dst_port: Some(port) }
}

fn policy(action: Action, local: &str, remote: &str) -> Command {
    let (local, remote) = (ts(local), ts(remote));
    Command::PolicyAdd(PolicyAdd {
        name: "other.child".into(),
        action,
        local,
        remote,
        priority: 1,
        entry: Entry::default(),
    })
}

#[test]
fn a_packet_that_leaves_has_its_policy_its_sa_and_the_room_of_its_path() {
    let sender = Sender::new(outbound(false));
    let ask = |p: &PacketSelector| sender.engine.decide_out(p);
    let found = ask(&packet("10.1.0.2", "10.2.0.2", 443));
    assert_eq!(found.policy.as_ref().map(|p| p.name.as_str()), Some("all"));
    let sa = found.sa.expect("an SA");
    assert_eq!((sa.sa, found.drop, found.inner_max), (sender.name(), None, None));
    sender.path_mtu(1400);
    let found = ask(&packet("10.1.0.2", "10.2.0.2", 443));
    assert!(found.inner_max.is_some_and(|max| (1300..1400).contains(&max)), "{:?}", found.inner_max);
    let hole = policy(Action::Discard, "10.1.0.0/16", "10.2.0.0/16");
    sender.engine.apply(SECOND, &hole).unwrap();
    let found = ask(&packet("10.1.0.2", "10.2.0.2", 443));
    assert_eq!((found.drop, found.sa), (Some(DropReason::OutPolBlock), None));
    assert_eq!(found.policy.map(|p| p.name), Some("other.child".to_owned()));
}

#[test]
fn no_policy_no_sa_and_a_narrower_sa_are_told_apart() {
    let narrow = SaAdd { remote_ts: vec![ts("10.2.0.0/24")], ..outbound(false) };
    let sender = Sender::new(narrow);
    let ask = |p: &PacketSelector| sender.engine.decide_out(p);
    let outside = ask(&packet("10.1.0.2", "10.9.0.2", 443));
    assert_eq!((outside.drop, outside.others.len()), (Some(DropReason::OutStateMismatch), 1));
    assert_eq!(outside.others[0].remote_ts, [ts("10.2.0.0/24")]);
    sender.engine.apply(SECOND, &Command::SaDelete(sender.name())).unwrap();
    let without = ask(&packet("10.1.0.2", "10.2.0.2", 443));
    assert!(without.policy.is_some() && without.sa.is_none() && without.drop.is_none(), "{without:?}");
    for policy in crate::out_common::policies(sender.sa.reqid) {
        let Command::PolicyAdd(policy) = policy else { panic!() };
        sender.engine.apply(SECOND, &Command::PolicyDelete(policy)).unwrap();
    }
    let none = ask(&packet("10.1.0.2", "10.2.0.2", 443));
    assert_eq!(none, Decision { drop: Some(DropReason::OutNoPolicy), ..Decision::default() });
}

#[test]
fn an_sa_at_its_limit_and_one_for_other_hosts_are_named() {
    let lifetime = Lifetime { hard_packets: 1, ..Lifetime::default() };
    let mut spent = Sender::new(SaAdd { lifetime, ..outbound(false) });
    spent.send(&[(crate::out_common::inner(false, 100), ironswan_wire::offload::Offload::NONE)]);
    let found = spent.engine.decide_out(&packet("10.1.0.2", "10.2.0.2", 443));
    assert_eq!((found.drop, found.sa.is_some()), (Some(DropReason::OutStateExpired), true));
    let hosts = Sender::new(SaAdd { mode: Mode::Transport, ..outbound(false) });
    let found = hosts.engine.decide_out(&packet("10.1.0.2", "10.2.0.2", 443));
    assert_eq!(found.drop, Some(DropReason::OutTransport));
    let (local, remote) = (hosts.sa.local.ip().to_string(), hosts.sa.remote.ip().to_string());
    assert_eq!(hosts.engine.decide_out(&packet(&local, &remote, 443)).drop, None);
}

#[test]
fn a_packet_that_arrives_has_the_sa_that_may_bring_it_and_else_the_reason() {
    let make = Make::default();
    let (left, right) = (make.options.left.clone(), make.options.right.clone());
    let receiver = Receiver::new(make);
    // B is the right one: its peer's packets come from the left.
    let (src, dst) = (left[0].range.start().to_string(), right[0].range.start().to_string());
    let found = receiver.engine.decide_in(&packet(&src, &dst, 443));
    assert_eq!(found.drop, None, "{found:?}");
    assert_eq!(found.sa.map(|sa| sa.sa.direction), Some(Direction::In));
    let none = receiver.engine.decide_in(&packet(&src, "203.0.113.9", 443));
    assert_eq!(none, Decision::default(), "no SA, and no policy");
    let other = policy(Action::Protect(OTHER), &format!("{dst}/32"), &format!("{src}/32"));
    receiver.engine.apply(SECOND, &other).unwrap();
    let found = receiver.engine.decide_in(&packet(&src, &dst, 443));
    assert_eq!(found.drop, Some(DropReason::InTmplMismatch));
    assert_eq!(found.policy.map(|p| p.name), Some("other.child".to_owned()));
}

/// The reqid of nobody's SA.
const OTHER: ironswan_wire::sadb::ReqId = ironswan_wire::sadb::ReqId(4711);
