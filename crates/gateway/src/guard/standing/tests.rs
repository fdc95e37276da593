//! Tests of what is set and taken away in which order, with a kernel that only remembers.

use std::cell::RefCell;
use std::rc::Rc;

use ironswan_io::route::{Route, RouteKind};
use ironswan_wire::sadb::Action;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::*;
use crate::driver::tests::standing_guard;
use crate::guard::plan::Verdict;
use crate::guard::standing_route;
use crate::network::tests::{Fake, Table as KernelState};

fn net(a: [u8; 4], len: u8) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::prefix(a.into(), len).unwrap())
}

fn policy(verdict: Verdict, local: TrafficSelector, remote: TrafficSelector) -> Policy {
    Policy { name: "net.net".into(), verdict, local, remote, priority: 0, open: 0, guard: true }
}

fn protect(remote: [u8; 4], len: u8) -> Policy {
    policy(Verdict::Protect, net([10, 1, 0, 0], 16), net(remote, len))
}

fn setup() -> (StandingGuard, Fake, Rc<RefCell<KernelState>>) {
    let kept = Rc::new(RefCell::new(KernelState::default()));
    (standing_guard(), Fake(kept.clone()), kept)
}

/// A configuration of these policies.
fn only(policies: &[Policy]) -> Configured {
    Configured { policies: policies.to_vec(), ..Configured::default() }
}

/// A whole pass with a table that is replaced.
fn pass(s: &mut StandingGuard, kernel: &mut Fake, loaded: &[Policy]) {
    pass_with(s, kernel, only(loaded));
}

fn pass_with(s: &mut StandingGuard, kernel: &mut Fake, loaded: Configured) {
    let generation = s.replan(kernel, loaded);
    if let Some(text) = s.begin_table() {
        s.table_replaced(&text, Ok(()));
    }
    s.open(kernel, generation);
}

fn log(s: &mut StandingGuard) -> Vec<String> {
    s.take_log().iter().map(ToString::to_string).collect()
}

fn routes(kept: &Rc<RefCell<KernelState>>) -> Vec<String> {
    let mut all: Vec<String> =
        kept.borrow().routes.iter().map(|r| r.to_string().replace(" table 220", "")).collect();
    all.sort();
    all
}

#[test]
fn our_own_side_keeps_its_way_before_the_wide_one_is_closed() {
    let (mut s, mut kernel, kept) = setup();
    s.loading(&mut kernel, &[protect([10, 0, 0, 0], 8)]);
    let done = kept.borrow().done.clone();
    let at = |what: &str| done.iter().position(|d| d.contains(what)).unwrap();
    assert!(at("throw 10.1.0.0/16") < at("unreachable 10.0.0.0/8"), "{done:?}");
    assert!(at("rule 220") < at("unreachable"), "{done:?}");
    let before = kept.borrow().changes;
    pass(&mut s, &mut kernel, &[protect([10, 0, 0, 0], 8)]);
    assert_eq!(kept.borrow().changes, before, "the plan of all says the same");
    assert!(!s.is_due());
}

#[test]
fn what_a_predecessor_left_stays_until_the_plan_stands_and_goes_then() {
    let (mut s, mut kernel, kept) = setup();
    pass(&mut s, &mut kernel, &[protect([10, 2, 0, 0], 16), protect([10, 3, 0, 0], 16)]);
    let device = Route {
        kind: RouteKind::Device(3),
        metric: 0,
        mtu: 1400,
        ..standing_route(Destination { ip: [10, 2, 0, 0].into(), prefix_len: 16 }, Way::Tunnel)
    };
    let foreign = Route { protocol: 4, metric: 7, ..device.clone() };
    kept.borrow_mut().routes.extend([device.clone(), foreign.clone()]);
    // The next process, with another configuration.
    let mut next = standing_guard();
    assert!(!next.adopted());
    next.adopt(&mut kernel).unwrap();
    assert!(
        next.adopted() && !kept.borrow().routes.contains(&device) && kept.borrow().routes.contains(&foreign)
    );
    kept.borrow_mut().routes.retain(|r| *r != foreign);
    let generation = next.replan(&mut kernel, only(&[protect([10, 4, 0, 0], 16)]));
    let text = next.begin_table().unwrap();
    next.table_replaced(&text, Err(Guard::Ended));
    next.open(&mut kernel, generation);
    assert_eq!(routes(&kept).len(), 3, "nothing is opened before the table stands: {:?}", routes(&kept));
    pass(&mut next, &mut kernel, &[protect([10, 4, 0, 0], 16)]);
    assert_eq!(routes(&kept), ["unreachable 10.4.0.0/16 metric 4278198272"]);
    assert_eq!(
        log(&mut next),
        [
            "nft table: the gateway has put its last table there; what it protects goes nowhere until it succeeds",
            "nft table: done at last"
        ]
    );
}

#[test]
fn a_hole_that_is_none_any_more_is_closed_before_the_table_is_replaced() {
    let (mut s, mut kernel, kept) = setup();
    let hole = policy(Verdict::Bypass, net([10, 1, 0, 0], 16), net([10, 2, 3, 0], 24));
    pass(&mut s, &mut kernel, &[protect([10, 2, 0, 0], 16), hole]);
    assert_eq!(routes(&kept), ["throw 10.2.3.0/24", "unreachable 10.2.0.0/16 metric 4278198272"]);
    s.unloaded();
    s.replan(&mut kernel, only(&[protect([10, 2, 0, 0], 16)]));
    assert_eq!(routes(&kept), ["unreachable 10.2.0.0/16 metric 4278198272"]);
}

#[test]
fn what_comes_while_the_table_is_replaced_stays_closed() {
    let (mut s, mut kernel, kept) = setup();
    let generation = s.replan(&mut kernel, only(&[protect([10, 2, 0, 0], 16)]));
    let text = s.begin_table().unwrap();
    s.loading(&mut kernel, &[protect([10, 3, 0, 0], 16)]);
    s.table_replaced(&text, Ok(()));
    s.open(&mut kernel, generation);
    assert!(routes(&kept).iter().any(|r| r.contains("unreachable 10.3.0.0/16")), "{:?}", routes(&kept));
    assert!(s.is_due(), "its table is still to come");
}

#[test]
fn what_could_not_be_done_is_forgotten_with_the_wish() {
    let (mut s, mut kernel, kept) = setup();
    kept.borrow_mut().refuse = Some("10.3.0.0/16");
    s.loading(&mut kernel, &[protect([10, 3, 0, 0], 16)]);
    for _ in 0..3 {
        pass(&mut s, &mut kernel, &[protect([10, 3, 0, 0], 16)]);
        assert!(s.is_due() && s.problem().is_some());
    }
    assert_eq!(s.take_log().len(), 1, "said once");
    s.unloaded();
    pass(&mut s, &mut kernel, &[]);
    assert!(!s.is_due() && s.problem().is_none());
}

#[test]
fn without_nft_there_is_one_rule_and_no_text() {
    let (_, mut kernel, kept) = setup();
    let mut s = StandingGuard::new(Settings { nft: false, ..standing_guard().settings().clone() });
    pass(&mut s, &mut kernel, &[protect([10, 2, 0, 0], 16)]);
    let rules: Vec<String> = kept.borrow().rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["220: not from all fwmark 0x220/0x220 lookup 220"]);
    assert!(s.table().is_none() && !s.is_due());
    s.clear(&mut kernel);
    assert!(kept.borrow().rules.is_empty() && kept.borrow().routes.is_empty());
}

#[test]
fn ipv6_sockets_look_again_after_routes_have_come_and_only_then() {
    let (mut s, mut kernel, kept) = setup();
    let six = |a: u16| {
        let net = |b| {
            TrafficSelector::addresses(AddrRange::prefix([0xfd00, b, 0, 0, 0, 0, 0, 0].into(), 32).unwrap())
        };
        policy(Verdict::Protect, net(1), net(a))
    };
    let renewed = |kept: &Rc<RefCell<KernelState>>| {
        kept.borrow().done.iter().filter(|d| d.contains("rule 218")).cloned().collect::<Vec<_>>()
    };
    pass(&mut s, &mut kernel, &[protect([10, 2, 0, 0], 16)]);
    assert!(renewed(&kept).is_empty(), "IPv4 sockets look by themselves");
    pass(&mut s, &mut kernel, &[six(2), six(3)]);
    let first = renewed(&kept);
    assert!(
        matches!(&first[..], [add, delete] if add.starts_with("add") && delete.starts_with("delete")),
        "{first:?}"
    );
    let done = kept.borrow().done.clone();
    let at = |what: &str| done.iter().rposition(|d| d.contains(what)).unwrap();
    assert!(at("unreachable fd00:3::/32") < at("add rule 218"), "{done:?}");
    pass(&mut s, &mut kernel, &[six(2)]);
    assert_eq!(renewed(&kept).len(), 2, "what goes needs nothing");
    pass(&mut s, &mut kernel, &[six(2), six(4)]);
    assert_eq!(renewed(&kept).len(), 4);
    assert!(!s.is_due());
}

/// The policy that the engine is told to add for a child with this remote network.
fn of_child(name: &str, remote: [u8; 4]) -> PolicyAdd {
    let action = Action::Protect(ironswan_wire::sadb::ReqId(1));
    PolicyAdd {
        name: name.into(),
        action,
        local: net([10, 1, 0, 0], 16),
        remote: net(remote, 16),
        priority: 0,
        entry: ironswan_wire::sadb::Entry::default(),
    }
}

/// Loaded children whose selectors only the negotiation tells.
fn children(guards: &[(&str, bool)]) -> Configured {
    let guards = guards.iter().map(|(name, guard)| ((*name).to_owned(), *guard)).collect();
    Configured { guards, ..Configured::default() }
}

fn guarded(s: &StandingGuard) -> Vec<(&str, bool)> {
    s.policies().iter().map(|p| (&*p.name, p.guard)).collect()
}

#[test]
fn a_child_of_the_same_name_in_another_connection_does_not_decide_on_the_guard() {
    for told in [["a.net", "b.net"], ["b.net", "a.net"]] {
        let (mut s, mut kernel, _) = setup();
        s.replan(&mut kernel, children(&[("b.net", true), ("a.net", false)]));
        for name in told {
            let remote = if name == "a.net" { [10, 2, 0, 0] } else { [10, 3, 0, 0] };
            s.engine(&of_child(name, remote), true);
        }
        s.replan(&mut kernel, children(&[("b.net", true), ("a.net", false)]));
        assert_eq!(guarded(&s), [("a.net", false), ("b.net", true)], "{told:?}");
        // Both have the same policy: the guard of one is enough, whichever came first, as long as
        // that one has it.
        let (mut s, mut kernel, _) = setup();
        let both = || children(&[("b.net", true), ("a.net", false)]);
        s.replan(&mut kernel, both());
        told.iter().for_each(|name| s.engine(&of_child(name, [10, 2, 0, 0]), true));
        s.replan(&mut kernel, both());
        assert_eq!(guarded(&s).iter().map(|p| p.1).collect::<Vec<_>>(), [true], "{told:?}");
        s.engine(&of_child("b.net", [10, 2, 0, 0]), false);
        assert!(s.is_due());
        s.replan(&mut kernel, both());
        assert_eq!(guarded(&s), [("a.net", false)], "{told:?}");
    }
}

#[test]
fn what_runs_takes_over_the_guard_that_its_child_has_now() {
    let (mut s, mut kernel, _) = setup();
    s.replan(&mut kernel, children(&[("a.net", true)]));
    s.engine(&of_child("a.net", [10, 2, 0, 0]), true);
    for guard in [true, false, true, false] {
        s.replan(&mut kernel, children(&[("a.net", guard)]));
        assert_eq!(guarded(&s), [("a.net", guard)]);
    }
    // The policy stays with its last guard setting after its child was unloaded. A new policy under
    // the same name is guarded.
    s.replan(&mut kernel, children(&[]));
    assert_eq!(guarded(&s), [("a.net", false)]);
    s.engine(&of_child("a.net", [10, 3, 0, 0]), true);
    s.replan(&mut kernel, children(&[]));
    assert_eq!(guarded(&s), [("a.net", false), ("a.net", true)]);
    s.engine(&of_child("a.net", [10, 2, 0, 0]), false);
    s.engine(&of_child("a.net", [10, 3, 0, 0]), false);
    s.replan(&mut kernel, children(&[]));
    assert!(s.policies().is_empty() && s.known.is_empty());
}

#[test]
fn a_drop_shunt_without_guard_leaves_another_child_guarded() {
    let (mut s, mut kernel, _) = setup();
    let shunt =
        Policy { guard: false, ..policy(Verdict::Discard, net([10, 1, 0, 0], 16), net([10, 2, 0, 0], 16)) };
    let loaded = || Configured { policies: vec![shunt.clone()], ..children(&[("net.net", false)]) };
    pass_with(&mut s, &mut kernel, loaded());
    let discard = |name: &str| PolicyAdd { action: Action::Discard, ..of_child(name, [10, 2, 0, 0]) };
    s.engine(&discard("net.net"), true);
    s.engine(&discard("b.net"), true);
    assert!(s.is_due(), "the plan does not say so yet");
    s.replan(&mut kernel, loaded());
    assert_eq!(guarded(&s), [("net.net", true)]);
}

#[test]
fn what_a_peer_narrows_from_a_loaded_policy_adds_no_chains_to_the_plan_and_is_shown() {
    let (mut s, mut kernel, _) = setup();
    let loaded = || Configured {
        policies: vec![Policy { name: "a.net".into(), ..protect([10, 2, 0, 0], 15) }],
        guards: [("a.net".to_owned(), true)].into(),
    };
    s.replan(&mut kernel, loaded());
    let text = s.plan().nft.clone();
    let wide = protect([10, 2, 0, 0], 15);
    let open = wide.local.open_bits() + wide.remote.open_bits();
    let narrowed = |name, remote| PolicyAdd {
        entry: ironswan_wire::sadb::Entry { open, age: 0 },
        ..of_child(name, remote)
    };
    // Inside, of the same child; then of another child, not inside, and one with a place of its own
    // in the order.
    s.engine(&narrowed("a.net", [10, 2, 0, 0]), true);
    s.replan(&mut kernel, loaded());
    assert_eq!((guarded(&s), &s.plan().nft), (vec![("a.net", true)], &text));
    let shown: Vec<_> = s.served().map(|(p, serving)| (p.remote.to_string(), serving.clone())).collect();
    assert_eq!(shown.iter().map(|s| &*s.0).collect::<Vec<_>>(), ["10.2.0.0/15", "10.2.0.0/16"]);
    assert_eq!(shown[0].1.chains, shown[1].1.chains);
    let to = |at: usize| shown[at].1.routes.iter().map(|(d, _)| d.to_string()).collect::<Vec<_>>();
    assert_eq!([to(0), to(1)], [["10.2.0.0/15"], ["10.2.0.0/16"]]);
    s.engine(&narrowed("b.net", [10, 3, 0, 0]), true);
    s.engine(&narrowed("a.net", [10, 4, 0, 0]), true);
    s.engine(&of_child("a.net", [10, 3, 0, 0]), true);
    s.replan(&mut kernel, loaded());
    let planned: Vec<_> = s.policies().iter().map(|p| (&*p.name, p.remote.to_string())).collect();
    let planned: Vec<_> = planned.iter().map(|(name, remote)| (*name, &**remote)).collect();
    assert_eq!(
        planned,
        [
            ("a.net", "10.2.0.0/15"),
            ("a.net", "10.3.0.0/16"),
            ("b.net", "10.3.0.0/16"),
            ("a.net", "10.4.0.0/16")
        ]
    );
    assert_eq!(s.served().count(), 5);
    // When the child is unloaded, what runs on is guarded by its own policy.
    s.replan(&mut kernel, children(&[]));
    assert_eq!(s.policies().len(), 4);
    assert_eq!(s.served().count(), 4);
}

#[test]
fn the_destinations_of_what_a_peer_narrowed_from_a_default_route_are_closed_and_what_passes_is_marked() {
    let (mut s, mut kernel, kept) = setup();
    let wide = Policy { name: "a.net".into(), ..protect([0, 0, 0, 0], 0) };
    let loaded = || Configured { policies: vec![wide.clone()], guards: [("a.net".to_owned(), true)].into() };
    pass_with(&mut s, &mut kernel, loaded());
    let open = wide.local.open_bits() + wide.remote.open_bits();
    let narrowed = |remote| PolicyAdd {
        remote,
        entry: ironswan_wire::sadb::Entry { open, age: 0 },
        ..of_child("a.net", [0, 0, 0, 0])
    };
    s.engine(&narrowed(net([10, 0, 0, 0], 8)), true);
    let to = Destination { ip: [10, 0, 0, 0].into(), prefix_len: 8 };
    s.set_unreachable_below(&mut kernel, to);
    pass_with(&mut s, &mut kernel, loaded());
    assert_eq!(s.policies().len(), 1, "it is not cut");
    // Without the table unmarked packets to it still find nowhere to go.
    let found = routes(&kept);
    assert!(found.iter().any(|r| r.starts_with("unreachable 10.0.0.0/8 ")), "{found:?}");
    assert_eq!(s.way(&to), Some(Way::Tunnel));
    // And what no policy covers is not led to the device, but marked.
    let text = s.plan().nft.clone().unwrap();
    let element = text.lines().find(|l| l.contains("11.0.0.0-")).unwrap();
    let default = element.split_once("goto ").unwrap().1.trim_end_matches(',');
    let element = text.lines().find(|l| l.contains("10.2.0.0-10.255.255.255")).unwrap();
    let chain = element.split_once("goto ").unwrap().1.trim_end_matches(',');
    let end = |chain: &str| {
        let body = text.split_once(&format!("\tchain {chain} {{\n")).unwrap().1.split_once('}').unwrap().0;
        body.lines().rfind(|l| !l.trim().is_empty()).unwrap().trim().to_owned()
    };
    assert_eq!([end(default), end(chain)], ["accept", "goto skip"]);
    // A narrowed policy that overlaps our own side closes addresses that are a hole in the loaded
    // one, so it gets lists of its own.
    s.engine(&narrowed(net([10, 1, 0, 0], 17)), true);
    // The same holds for a narrowed policy that names link scope.
    s.engine(&narrowed(net([224, 0, 0, 0], 8)), true);
    pass_with(&mut s, &mut kernel, loaded());
    let planned: Vec<_> = s.policies().iter().map(|p| p.remote.to_string()).collect();
    assert_eq!(planned, ["0.0.0.0/0", "10.1.0.0/17", "224.0.0.0/8"]);
}

#[test]
fn a_program_that_is_wanted_nowhere_is_not_said_to_stand() {
    let (mut s, mut kernel, _) = setup();
    let mut left = 1;
    s.set_keeper_thread(
        KeeperThread::with(move |_: &std::sync::Arc<_>| {
            let problem = (left > 0).then(|| crate::guard::ingress::incomplete("this kernel has none"));
            left -= i32::from(left > 0);
            crate::guard::ingress::KeepOutcome { problem, ..Default::default() }
        })
        .unwrap(),
    );
    let mut kept = |s: &mut StandingGuard, loaded: &[Policy]| {
        pass(s, &mut kernel, loaded);
        s.keeper_thread().unwrap().settle();
        s.ingress_kept();
        log(s).join(" ")
    };
    let said = kept(&mut s, &[protect([10, 2, 0, 0], 16)]);
    assert!(said.contains("this kernel has none"), "{said}");
    let said = kept(&mut s, &[]);
    assert!(!said.contains("the program at the ingress stands"), "{said}");
    assert_eq!(s.ingress().1, None);
}

#[test]
fn thousands_of_ranges_that_a_peer_narrowed_leave_every_hole_open() {
    let (mut s, mut kernel, _) = setup();
    // Of one protocol: a policy for all of them would decide before what was narrowed is asked.
    let remote = TrafficSelector { protocol: 17, ..net([0, 0, 0, 0], 0) };
    let wide = Policy { name: "a.net".into(), remote, ..protect([0, 0, 0, 0], 0) };
    let hole =
        Policy { name: "b.pass".into(), ..policy(Verdict::Bypass, wide.local, net([10, 9, 0, 0], 16)) };
    let loaded = || only(&[wide.clone(), hole.clone()]);
    let open = wide.local.open_bits() + wide.remote.open_bits();
    for i in 0..24 * 255u16 {
        let first = u32::from_be_bytes([10, 20, 0, 0]) + u32::from(i);
        let range = AddrRange::new(first.to_be_bytes().into(), (first + 14).to_be_bytes().into()).unwrap();
        let remote =
            TrafficSelector { protocol: 17, start_port: i, end_port: i, ..TrafficSelector::addresses(range) };
        let entry = ironswan_wire::sadb::Entry { open, age: 0 };
        s.engine(&PolicyAdd { remote, entry, ..of_child("a.net", [0, 0, 0, 0]) }, true);
    }
    s.replan(&mut kernel, loaded());
    assert_eq!(s.plan().warnings, [""; 0]);
    assert_eq!((s.policies().len(), s.served().count()), (2, 2 + 24 * 255));
}
