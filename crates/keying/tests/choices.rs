//! The pure choices of policy about IKE_SAs, case by case.

use std::net::IpAddr;

use ironswan_crypto::rng::Seeded;
use ironswan_keying::choices::contact::{self, Leaving, Older, Present, Room};
use ironswan_keying::choices::{address, way};
use ironswan_keying::limits::{
    ADDRESSES_AT_ONCE, ENDING_PER_ID, FULL_PROBES, FULL_SILENCE, NEXT_ADDRESS, ROAM_SILENCE, UNANSWERED_DEAD,
};
use ironswan_keying::{AddrSpec, Connection, IkeId, Limits, Shared, Tunnels, Unique};
use ironswan_testkit::config::{self, ip};
use ironswan_wire::id::IdPattern;

// ---- several addresses of one peer ----

fn hosts() -> [IpAddr; 3] {
    [1, 2, 3].map(|n| IpAddr::from([192, 0, 2, n]))
}

#[test]
fn attempts_go_through_all_addresses_in_turn_and_begin_with_the_preferred_one() {
    let hosts = hosts();
    let [a, b, c] = hosts;
    let order = |prefer| (1..=4).map(|n| address::of_attempt(&hosts, prefer, n)).collect::<Vec<_>>();
    assert_eq!(order(None), [Some(a), Some(b), Some(c), Some(a)]);
    assert_eq!(order(Some(c)), [Some(c), Some(a), Some(b), Some(c)]);
    // An address that the peer does not have any more is not preferred.
    assert_eq!(order(Some(IpAddr::from([192, 0, 2, 9]))), order(None));
    assert_eq!(address::of_attempt(&hosts, None, 0), Some(a));
    assert_eq!((address::of_attempt(&[], None, 1), address::of_attempt(&[], Some(a), 7)), (None, None));
    assert!(address::of_attempt(&hosts, Some(c), u32::MAX).is_some());
}

#[test]
fn the_next_address_is_asked_until_the_round_is_over() {
    let mut rng = Seeded::new(1);
    assert_eq!(address::pause(&mut rng, 1, 3, false), Some(NEXT_ADDRESS));
    assert_eq!(address::pause(&mut rng, 3, 3, false), None);
    assert_eq!(address::pause(&mut rng, 4, 3, false), Some(NEXT_ADDRESS));
    for addresses in [0, 1] {
        assert_eq!(address::pause(&mut rng, 1, addresses, false), None);
    }
    let pauses: Vec<_> = (0..99).filter_map(|_| address::pause(&mut rng, 1, 3, true)).collect();
    assert!(pauses.iter().all(|p| *p <= NEXT_ADDRESS && *p >= NEXT_ADDRESS * 9 / 10), "{pauses:?}");
    assert!(pauses.windows(2).any(|p| p[0] != p[1]));
}

#[test]
fn so_many_addresses_are_asked_at_once_and_no_limit_is_passed() {
    assert!(address::may_begin(1, 9, ADDRESSES_AT_ONCE - 1, 5, 6));
    assert!(!address::may_begin(1, 9, ADDRESSES_AT_ONCE, 5, 6));
    assert!(!address::may_begin(1, 9, 1, 6, 6));
    assert!(!address::may_begin(9, 9, 1, 5, 6));
}

// ---- our addresses and routes change ----

fn conn(local_addrs: &[&str]) -> Connection {
    let [conn, _] = config::pair(ip("192.0.2.1"), ip("192.0.2.2"));
    let local_addrs = local_addrs.iter().map(|a| AddrSpec::Host(ip(a))).collect();
    Connection { local_addrs, ..conn }
}

fn way_of(conn: &Connection, ours: &str, addresses: &[&str], route: Option<&str>) -> way::Way {
    let addresses: Vec<IpAddr> = addresses.iter().map(|a| ip(a)).collect();
    way::choose(&Shared::default(), conn, &way::Addresses::known(&addresses), ip(ours), route.map(ip))
}

fn from(to: &str, there: bool) -> way::Way {
    way::Way::From { to: ip(to), there }
}

#[test]
fn without_a_route_there_is_no_way_whatever_addresses_are_left() {
    assert_eq!(way_of(&conn(&[]), "192.0.2.1", &["192.0.2.1"], None), way::Way::None);
}

#[test]
fn an_ike_sa_follows_the_routing_table_unless_its_connection_names_its_address() {
    let both = ["192.0.2.1", "198.51.100.1"];
    assert_eq!(way_of(&conn(&[]), "192.0.2.1", &both, Some("192.0.2.1")), way::Way::Same);
    assert_eq!(way_of(&conn(&[]), "192.0.2.1", &both, Some("198.51.100.1")), from("198.51.100.1", true));
    // The configured address stays as long as it is there.
    assert_eq!(way_of(&conn(&["192.0.2.1"]), "192.0.2.1", &both, Some("198.51.100.1")), way::Way::Same);
    let gone = ["198.51.100.1"];
    assert_eq!(way_of(&conn(&[]), "192.0.2.1", &gone, Some("198.51.100.1")), from("198.51.100.1", false));
    assert_eq!(way_of(&conn(&["192.0.2.1"]), "192.0.2.1", &gone, Some("198.51.100.1")), way::Way::None);
}

#[test]
fn an_address_that_the_connection_must_not_be_at_is_not_taken() {
    let two = conn(&["192.0.2.1", "192.0.2.9"]);
    assert_eq!(way_of(&two, "192.0.2.1", &["192.0.2.9"], Some("198.51.100.1")), from("192.0.2.9", false));
    // An address of the other IP version cannot be the source.
    let other = conn(&["192.0.2.1", "2001:db8::9"]);
    assert_eq!(way_of(&other, "192.0.2.1", &["2001:db8::9"], Some("198.51.100.1")), way::Way::None);
}

#[test]
fn before_we_have_been_told_every_address_is_ours_and_special_ones_always_are() {
    assert!(way::Addresses::default().has(ip("203.0.113.7")));
    let known = way::Addresses::known(&[ip("192.0.2.1")]);
    assert!(known.has(ip("192.0.2.1")) && !known.has(ip("203.0.113.7")));
    for special in ["0.0.0.0", "127.0.0.1", "169.254.1.1", "::", "::1", "fe80::1"] {
        assert!(known.has(ip(special)), "{special}");
    }
}

#[test]
fn a_peer_with_another_address_is_looked_for_there() {
    let mut tunnels = Tunnels::new(Limits::default());
    let policy = tunnels.policy().clone();
    let two = vec![AddrSpec::Host(ip("192.0.2.2")), AddrSpec::Host(ip("2001:db8::2"))];
    let two = Connection { remote_addrs: two, ..conn(&[]) };
    assert_eq!(way::elsewhere(&policy, &two.name, ip("192.0.2.2")), None, "it is not loaded");
    assert!(!way::can_take_over(&policy, &two.name));
    tunnels.load(two.clone());
    assert!(way::can_take_over(&policy, &two.name));
    assert_eq!(way::elsewhere(&policy, &two.name, ip("192.0.2.2")), Some(ip("2001:db8::2")));
    assert_eq!(way::elsewhere(&policy, &two.name, ip("2001:db8::2")), Some(ip("192.0.2.2")));
    assert!(way::asks_for_life(ROAM_SILENCE * 2) && !way::asks_for_life(ROAM_SILENCE));
}

// ---- older IKE_SAs of the same peer ----

fn older(id: u64) -> Older {
    Older { id: IkeId(id), stands: true, before: true, later: false, initial_contact: false, crossed: false }
}

#[test]
fn unique_says_whether_a_new_ike_sa_stands_beside_replaces_or_yields_to_an_older_one() {
    let list = [older(1), Older { crossed: true, ..older(2) }, Older { stands: false, ..older(3) }];
    let none = Some(Leaving::default());
    let replaced = Some(Leaving { replaced: vec![IkeId(1), IkeId(3)], ..Leaving::default() });
    for (unique, expected) in
        [(Unique::No, &none), (Unique::Never, &none), (Unique::Keep, &None), (Unique::Replace, &replaced)]
    {
        assert_eq!(&contact::duplicates(unique, false, &list), expected, "{unique:?}");
        assert_eq!(contact::duplicates(unique, false, &[]), none, "{unique:?}");
    }
    // The new one is not refused for one that is ending, or that both sides have begun at once.
    assert_eq!(contact::duplicates(Unique::Keep, false, &list[1..]), none);
}

#[test]
fn one_that_the_peer_has_asked_for_before_another_yields_to_that_one() {
    let later = Older { before: false, later: true, ..older(1) };
    let says = Older { initial_contact: true, ..later };
    for (unique, later_wins, says_wins) in [
        (Unique::No, false, true),
        (Unique::Keep, true, true),
        (Unique::Replace, true, true),
        (Unique::Never, false, false),
    ] {
        let yields = |older| contact::duplicates(unique, false, &[older]).is_none();
        assert_eq!((yields(later), yields(says)), (later_wins, says_wins), "{unique:?}");
        // One that is ending has nobody yield to it.
        assert!(!yields(Older { stands: false, ..says }), "{unique:?}");
    }
}

#[test]
fn initial_contact_ends_what_stood_before_and_means_nothing_with_never() {
    let list = [older(1), Older { before: false, ..older(2) }, Older { crossed: true, ..older(3) }];
    let forgotten = Leaving { forgotten: vec![IkeId(1), IkeId(3)], ..Leaving::default() };
    for unique in [Unique::No, Unique::Keep, Unique::Replace] {
        let leaving = contact::duplicates(unique, true, &list);
        assert_eq!(leaving.as_ref(), Some(&forgotten), "{unique:?}");
        assert!(leaving.is_some_and(|l| l.has(IkeId(1)) && !l.has(IkeId(2))));
    }
    assert_eq!(contact::duplicates(Unique::Never, true, &list), Some(Leaving::default()));
    assert!(!contact::counts_identities(Unique::Never) && contact::counts_identities(Unique::No));
}

/// An IKE_SA elsewhere that has been silent for long.
fn present(id: u64) -> Present {
    Present {
        id: IkeId(id),
        stays: true,
        silent: FULL_SILENCE * 2,
        same_address: false,
        same_port: false,
        unanswered: None,
        has_way: true,
    }
}

#[test]
fn at_the_limit_of_an_identity_silent_peers_are_asked_and_those_at_the_same_address_first() {
    assert!(contact::is_full(2, 2) && !contact::is_full(1, 2) && !contact::is_full(9, 0));
    let nobody = Leaving::default();
    let list = [
        Present { silent: FULL_SILENCE / 2, ..present(1) },
        present(2),
        Present { same_address: true, ..present(3) },
        Present { silent: FULL_SILENCE * 3, ..present(4) },
        Present { has_way: false, ..present(5) },
        Present { same_address: true, same_port: true, ..present(6) },
        Present { unanswered: Some(UNANSWERED_DEAD), ..present(7) },
    ];
    let asked = [6, 3, 4, 2].map(IkeId).to_vec();
    assert_eq!(contact::room(list.len(), &list, &nobody), Room::Full(asked));
    // More than a few are not asked for one that is refused.
    let many: Vec<Present> = (0..99).map(present).collect();
    assert!(matches!(contact::room(99, &many, &nobody), Room::Full(asked) if asked.len() == FULL_PROBES));
}

#[test]
fn a_dead_one_at_the_same_address_gives_way_and_one_that_is_replaced_makes_room() {
    let dead = Present { same_address: true, unanswered: Some(UNANSWERED_DEAD), ..present(2) };
    let asked = Present { unanswered: Some(UNANSWERED_DEAD - 1), ..dead };
    let nobody = Leaving::default();
    assert_eq!(contact::room(2, &[present(1), dead], &nobody), Room::Dead(IkeId(2)));
    assert_eq!(contact::room(2, &[present(1), asked], &nobody), Room::Full(vec![IkeId(1)]));
    let leaving = Leaving { replaced: vec![IkeId(1)], ..Leaving::default() };
    assert_eq!(contact::room(2, &[present(1), asked], &leaving), Room::Enough);
}

#[test]
fn those_on_their_way_out_do_not_count_until_they_are_too_many() {
    let ending = |n: u64| Present { stays: false, ..present(n) };
    let nobody = Leaving::default();
    let list = |n: usize| -> Vec<Present> { (0..n as u64).map(ending).collect() };
    assert_eq!(contact::room(2, &list(2), &nobody), Room::Enough);
    assert_eq!(contact::room(2, &list(1 + ENDING_PER_ID), &nobody), Room::Enough);
    assert_eq!(contact::room(2, &list(2 + ENDING_PER_ID), &nobody), Room::Ending(IkeId(0)));
}

#[test]
fn two_names_are_one_peer_or_not_and_where_one_is_open_the_address_tells() {
    let pattern = |text: &str| IdPattern::parse(text).expect("an identity");
    let (a, b, any) = (pattern("a.example"), pattern("b.example"), pattern("%any"));
    for here in [false, true] {
        assert!(contact::may_be_one_peer(&a, &a, here) && !contact::may_be_one_peer(&a, &b, here));
        assert_eq!(contact::may_be_one_peer(&any, &b, here), here);
        assert_eq!(contact::may_be_one_peer(&b, &any, here), here);
        assert_eq!(contact::may_be_one_peer(&any, &any, here), here);
    }
}
