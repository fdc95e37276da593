//! Tests of device routes: which there are, for which policies and SAs, and how they are restored.

use super::*;

#[test]
fn only_the_child_whose_sa_is_named_moves() {
    let (mut i, table) = setup();
    for reqid in [1, 2] {
        let net = reqid as u8;
        i.apply(NOW, &sa(reqid, false)).unwrap();
        i.apply(NOW, &Command::PolicyAdd(policy(reqid, range([10, 2, net, 0], [10, 2, net, 255])))).unwrap();
    }
    // Both peers are behind one NAT; the second is found to be encapsulated.
    let moved = Command::SaUpdate {
        sa: ironswan_wire::sadb::SaRef {
            direction: Direction::Out,
            spi: Spi(0x1002),
            reqid: ReqId(2),
            remote: [192, 0, 2, 2].into(),
        },
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:1024".parse().unwrap(),
        udp_encap: true,
    };
    i.apply(NOW, &moved).unwrap();
    let mtus: Vec<u32> = table.borrow().device().iter().map(|r| r.mtu).collect();
    assert_eq!(mtus, [1446, 1438]);
}

#[test]
fn a_route_that_two_policies_need_stays_until_both_are_gone_and_is_as_narrow_as_the_narrower() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 0], [10, 2, 0, 255]);
    for (reqid, udp) in [(1, true), (2, false)] {
        i.apply(NOW, &sa(reqid, udp)).unwrap();
        i.apply(NOW, &Command::PolicyAdd(policy(reqid, to))).unwrap();
    }
    assert_eq!((table.borrow().device().len(), table.borrow().device()[0].mtu), (1, 1438));
    i.apply(NOW, &Command::PolicyDelete(policy(1, to))).unwrap();
    assert_eq!(table.borrow().device()[0].mtu, 1446);
    // A DISCARD policy to the same prefix does not narrow it.
    let discard = PolicyAdd { action: Action::Discard, ..policy(0, to) };
    i.apply(NOW, &Command::PolicyAdd(discard.clone())).unwrap();
    assert_eq!(table.borrow().device()[0].mtu, 1446);
    i.apply(NOW, &Command::PolicyDelete(policy(2, to))).unwrap();
    assert_eq!(table.borrow().device()[0].mtu, 1400);
    i.apply(NOW, &Command::PolicyDelete(discard)).unwrap();
    assert!(table.borrow().device().is_empty());
}

#[test]
fn a_range_is_cut_into_prefixes_and_a_rekey_changes_nothing() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 1], [10, 2, 0, 6]);
    i.apply(NOW, &Command::PolicyAdd(policy(1, to))).unwrap();
    i.apply(NOW, &sa(1, true)).unwrap();
    assert_eq!(table.borrow().device().len(), 4);
    let changes = table.borrow().changes;
    let Command::SaAdd(mut next) = sa(1, true) else { unreachable!() };
    next.spi = Spi(0x2000);
    i.apply(NOW, &Command::SaAdd(next)).unwrap();
    assert_eq!(table.borrow().changes, changes);
    i.clear();
    assert!(table.borrow().device().is_empty());
}

#[test]
fn what_the_engine_refuses_gets_no_route_and_holes_get_none_either() {
    let (mut i, table) = setup();
    let p = policy(1, AddrRange::any(true));
    let command = Command::PolicyAdd(p);
    assert_eq!(i.apply(NOW, &command).unwrap_err(), ApplyError::Family);
    let refused = crate::dataplane::refused(&command, "why").to_string();
    assert!(refused.contains("unable to install policy net"), "{refused}");
    let mut p = policy(1, range([10, 3, 0, 0], [10, 3, 0, 255]));
    p.action = Action::Bypass;
    i.apply(NOW, &Command::PolicyAdd(p)).unwrap();
    assert!(table.borrow().routes.is_empty());
}

#[test]
fn a_route_that_is_refused_is_said_once_and_tried_again_and_the_sa_lives() {
    let (mut i, table) = setup();
    table.borrow_mut().refuse = Some("dev #7");
    let to = range([10, 2, 0, 0], [10, 2, 0, 255]);
    i.apply(NOW, &sa(1, true)).unwrap();
    i.add(policy(1, to));
    assert!(table.borrow().device().is_empty());
    assert_eq!(table.borrow().routes.len(), 1, "unreachable: closed");
    let said = i.log();
    assert!(said.len() == 1 && said[0].contains("route to 10.2.0.0/24"), "{said:?}");
    let generation = i.replan();
    i.open(generation);
    assert_eq!(i.state(), (true, true));
    assert!(i.log().is_empty(), "said already");
    table.borrow_mut().refuse = None;
    let generation = i.replan();
    i.guard.change(|guard, _| {
        let text = guard.begin_table().unwrap();
        guard.table_replaced(&text, Ok(()));
    });
    i.open(generation);
    assert_eq!(table.borrow().device().len(), 1);
    assert_eq!(i.state(), (false, false));
    assert_eq!(i.log(), ["route to 10.2.0.0/24: done at last"]);
}

#[test]
fn what_somebody_removes_is_found_and_set_again_and_our_own_changes_are_not() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 0], [10, 2, 0, 255]);
    i.add(policy(1, to));
    i.replan();
    assert_eq!(i.verify().unwrap(), Vec::<String>::new(), "nothing of it is missing");
    table.borrow_mut().routes.clear();
    let rules = std::mem::take(&mut table.borrow_mut().rules);
    assert_eq!(rules.len(), 2);
    let missing = i.verify().unwrap();
    assert_eq!(missing.len(), 4, "{missing:?}");
    assert_eq!((table.borrow().routes.len(), table.borrow().rules.len()), (2, 2));
    // Edited: another MTU.
    table.borrow_mut().routes.iter_mut().for_each(|r| r.mtu = 9000);
    assert_eq!(i.verify().unwrap().len(), 1);
    assert_eq!(table.borrow().device()[0].mtu, 1400);
    // A hole under our name that we did not make.
    let hole = Route {
        kind: RouteKind::Throw,
        metric: 0,
        source: None,
        mtu: 0,
        ..table.borrow().device()[0].clone()
    };
    let hole = Route { destination: Destination { ip: [10, 2, 0, 128].into(), prefix_len: 25 }, ..hole };
    table.borrow_mut().routes.push(hole.clone());
    assert_eq!(i.verify().unwrap().len(), 1);
    assert!(!table.borrow().routes.contains(&hole));
    assert_eq!(i.verify().unwrap(), Vec::<String>::new());
}

/// Of an SA nothing is kept when it is gone: without a policy of its reqid, or with one that goes
/// before or after it.
#[test]
fn an_sa_that_is_gone_leaves_no_entry() {
    let (mut i, table) = setup();
    table.borrow_mut().puzzles = true;
    for reqid in 1..50 {
        i.apply(NOW, &sa(reqid, true)).unwrap();
        i.apply(NOW, &delete(reqid)).unwrap();
    }
    let p = policy(7, range([10, 2, 0, 0], [10, 2, 0, 255]));
    let (add, remove) = (Command::PolicyAdd(p.clone()), Command::PolicyDelete(p));
    let (new, gone) = (sa(7, true), delete(7));
    for (commands, kept) in
        [([&new, &add, &gone, &remove], [1, 1, 1, 0]), ([&add, &new, &remove, &gone], [0, 1, 1, 0])]
    {
        for (command, kept) in commands.into_iter().zip(kept) {
            i.apply(NOW, command).unwrap();
            assert_eq!(i.outside.len(), kept, "{command:?}");
        }
    }
    assert_eq!((i.outside.len(), i.inside.len(), i.ask_again.len()), (0, 0, 0));
}

/// The peer's address is its selector in transport mode: when it moves, the policies of an SA go
/// and others come.
#[test]
fn an_sa_whose_policies_move_keeps_its_path() {
    let (mut i, table) = setup();
    table.borrow_mut().path_mtu = 1300;
    let at = |last| policy(1, range([10, 2, 0, last], [10, 2, 0, last]));
    i.apply(NOW, &sa(1, true)).unwrap();
    i.apply(NOW, &Command::PolicyAdd(at(1))).unwrap();
    i.apply(NOW, &Command::PolicyDelete(at(1))).unwrap();
    i.apply(NOW, &Command::PolicyAdd(at(2))).unwrap();
    let shown = || table.borrow().device().iter().map(|r| r.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(), ["10.2.0.2/32 dev #7 src 10.1.0.1 mtu 1238 table 220"]);
    table.borrow_mut().path_mtu = 1200;
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!(shown(), ["10.2.0.2/32 dev #7 src 10.1.0.1 mtu 1138 table 220"]);
    i.apply(NOW, &delete(1)).unwrap();
    i.apply(NOW, &Command::PolicyDelete(at(2))).unwrap();
    assert_eq!((i.outside.len(), i.inside.len(), i.routes.len()), (0, 0, 0));
}

/// A peer may cut a child into as many policies as are allowed, all of them to one host, and have
/// many children.
#[test]
fn very_many_policies_to_one_destination_cost_as_much_as_they_are() {
    let (mut i, table) = setup();
    let all: Vec<PolicyAdd> = (0..20_000u16)
        .map(|n| {
            let mut p = policy(1 + u32::from(n % 4), range([10, 2, 0, 1], [10, 2, 0, 1]));
            p.local.range = range([10, 1, 0, n as u8], [10, 1, 0, n as u8]);
            (p.remote.protocol, p.remote.start_port, p.remote.end_port) = (17, n, n);
            p
        })
        .collect();
    for reqid in 1..5 {
        i.apply(NOW, &sa(reqid, true)).unwrap();
    }
    let began = clock::now();
    all.iter().for_each(|p| i.policy(p, true));
    let added = began.elapsed();
    let lookups = table.borrow().lookups;
    assert_eq!((i.routes.len(), lookups, table.borrow().device().len()), (1, 4, 1));
    let routed = i.routes.values().next().unwrap();
    assert_eq!(routed.counted(), (4, 256), "what is looked at for each of them");
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!(table.borrow().lookups, lookups + 4, "each SA once");
    all.iter().for_each(|p| i.policy(p, false));
    println!("{} policies: added in {added:?}, all in {:?}", all.len(), began.elapsed());
    assert_eq!((i.inside.len(), i.routes.len(), table.borrow().device().len()), (0, 0, 0));
}

#[test]
fn another_device_gets_all_routes() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 1], [10, 2, 0, 6]);
    i.apply(NOW, &Command::PolicyAdd(policy(1, to))).unwrap();
    table.borrow_mut().routes.retain(|r| r.kind == RouteKind::Unreachable);
    i.replace_device(8);
    let table = table.borrow();
    assert_eq!(table.device().len(), 4);
    assert!(table.device().iter().all(|r| r.kind == RouteKind::Device(8)));
}
