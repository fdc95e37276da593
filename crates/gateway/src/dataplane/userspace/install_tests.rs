//! Tests of the installer with a kernel that only remembers.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use ironswan_crypto::rng::System;
use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_io::route::{PROTOCOL, RouteKind};
use ironswan_ipsec::Config;
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Action, Entry, Lifetime, Mode, PolicyAdd, SaOptions, SaRef, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::path::ASK_AGAIN;
use super::*;
use crate::driver::tests::standing_guard;
use crate::guard::plan::from_config::Configured;
use crate::network::tests::{Fake, Table};

#[path = "install/routes_tests.rs"]
mod routes;

fn gcm() -> EspSuite {
    EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false }
}

fn setup() -> (Installer, Rc<RefCell<Table>>) {
    let table = Rc::new(RefCell::new(Table {
        path_mtu: 1500,
        addresses: vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into(), [10, 1, 0, 1].into()],
        ..Table::default()
    }));
    let engine = Engine::new(Box::new(System), Config::default());
    let guard = SharedGuard::new(standing_guard(), Box::new(Fake(table.clone())));
    (Installer::new(engine, guard, 7), table)
}

impl Installer {
    /// Adds a policy, of which the guard hears from the driver.
    fn add(&mut self, policy: PolicyAdd) {
        self.apply(NOW, &Command::PolicyAdd(policy.clone())).unwrap();
        self.guard.change(|guard, _| guard.engine(&policy, true));
    }

    /// The guard makes its plan for a configuration without policies.
    fn replan(&mut self) -> u64 {
        let generation = self.guard.change(|guard, kernel| guard.replan(kernel, Configured::default()));
        self.guard_changed();
        generation
    }

    fn open(&self, generation: u64) {
        self.guard.change(|guard, kernel| guard.open(kernel, generation));
    }

    /// Restores rules and routes, and names the missing ones.
    fn verify(&mut self) -> Result<Vec<String>, IoError> {
        let (mut missing, routes) = self.guard.restore()?;
        missing.extend(self.restore(&routes));
        Ok(missing)
    }

    fn log(&self) -> Vec<String> {
        self.guard.change(|guard, _| guard.take_log()).iter().map(ToString::to_string).collect()
    }

    /// Whether the guard has something to do, and whether the kernel refused something.
    fn state(&self) -> (bool, bool) {
        self.guard.look(|guard| (guard.is_due(), guard.problem().is_some()))
    }
}

fn range(a: [u8; 4], b: [u8; 4]) -> AddrRange {
    AddrRange::new(a.into(), b.into()).unwrap()
}

fn policy(reqid: u32, remote: AddrRange) -> PolicyAdd {
    PolicyAdd {
        name: "net".into(),
        action: Action::Protect(ReqId(reqid)),
        local: TrafficSelector::addresses(range([10, 1, 0, 0], [10, 1, 0, 255])),
        remote: TrafficSelector::addresses(remote),
        priority: 0,
        entry: Entry::default(),
    }
}

fn sa(reqid: u32, udp_encap: bool) -> Command {
    let all = TrafficSelector::addresses(AddrRange::any(false));
    Command::SaAdd(Box::new(SaAdd {
        direction: Direction::Out,
        protocol: ProtocolId::ESP,
        spi: Spi(0x1000 + reqid),
        reqid: ReqId(reqid),
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        udp_encap,
        mode: Mode::Tunnel,
        suite: gcm(),
        options: SaOptions::default(),
        encr_key: Secret::new(vec![1; 20]),
        integ_key: Secret::default(),
        replay_window: 0,
        local_ts: vec![all],
        remote_ts: vec![all],
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }))
}

/// An SA that is not as [`sa`] makes them.
fn other_sa(reqid: u32, change: impl FnOnce(&mut SaAdd)) -> Command {
    let Command::SaAdd(mut sa) = sa(reqid, false) else { unreachable!() };
    change(&mut sa);
    Command::SaAdd(sa)
}

fn delete(reqid: u32) -> Command {
    let (spi, reqid) = (Spi(0x1000 + reqid), ReqId(reqid));
    Command::SaDelete(SaRef { direction: Direction::Out, spi, reqid, remote: [192, 0, 2, 2].into() })
}

const NOW: Duration = Duration::from_secs(1);

#[test]
fn a_route_comes_with_the_policy_and_gets_its_mtu_with_the_sa() {
    let (mut i, table) = setup();
    let p = policy(1, range([10, 2, 0, 0], [10, 2, 0, 255]));
    i.apply(NOW, &Command::PolicyAdd(p.clone())).unwrap();
    assert_eq!(table.borrow().device()[0].mtu, 1400);
    assert!(
        table.borrow().done[0].starts_with("set unreachable 10.2.0.0/24"),
        "nowhere first, then the device"
    );
    i.apply(NOW, &sa(1, true)).unwrap();
    let route = table.borrow().device()[0].clone();
    assert_eq!(route.to_string(), "10.2.0.0/24 dev #7 src 10.1.0.1 mtu 1438 table 220");
    assert_eq!(route.protocol, PROTOCOL);
    table.borrow_mut().path_mtu = 1300;
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!(table.borrow().device()[0].mtu, 1238);
    table.borrow_mut().path_mtu = 1400;
    table.borrow_mut().addresses[2] = [10, 1, 0, 7].into();
    i.refresh_all();
    assert_eq!(table.borrow().device()[0].to_string(), "10.2.0.0/24 dev #7 src 10.1.0.7 mtu 1338 table 220");
    i.apply(NOW, &Command::PolicyDelete(p)).unwrap();
    assert!(table.borrow().device().is_empty() && i.inside.is_empty());
    assert_eq!(table.borrow().routes.len(), 1, "the unreachable one stays until the plan says otherwise");
}

#[test]
fn the_mtu_is_that_of_the_encapsulation() {
    let ah = |sa: &mut SaAdd| {
        let integ = Some(ironswan_wire::iana::IntegId::HMAC_SHA2_256_128);
        sa.protocol = ProtocolId::AH;
        sa.suite = EspSuite { encr: EncrId::NULL, key_bits: 0, integ, ke: None, esn: false };
        (sa.encr_key, sa.integ_key) = (Secret::default(), Secret::new(vec![1; 32]));
    };
    // AES-GCM takes 8 and 8 and 16 and 2, AH 12 and 16; a header of 20 is around tunnels.
    type Change<'a> = &'a dyn Fn(&mut SaAdd);
    let kinds: [(Change<'_>, u32); 5] = [
        (&|_| (), 1446),
        (&|sa| sa.mode = Mode::Transport, 1466),
        (&ah, 1452),
        (&|sa| (ah(sa), sa.mode = Mode::Transport).0, 1472),
        // Outer packets may be fragmented: inner ones of the path's own size pass, whatever the
        // device's MTU is.
        (&|sa| sa.options.copy_df = false, 1500),
    ];
    for (change, mtu) in kinds {
        let (mut i, table) = setup();
        i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
        i.apply(NOW, &other_sa(1, |sa| change(sa))).unwrap();
        assert_eq!(table.borrow().device()[0].mtu, mtu);
        // Of two that share a route, the one that must not be fragmented decides.
        i.apply(NOW, &Command::PolicyAdd(policy(2, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
        i.apply(NOW, &sa(2, true)).unwrap();
        assert_eq!(table.borrow().device()[0].mtu, 1438);
    }
}

#[test]
fn the_engine_is_told_the_path_mtu_whenever_it_is_learned() {
    let (mut i, table) = setup();
    let told = |i: &Installer| {
        let mut all: Vec<_> = i.engine.sas().into_iter().map(|s| (s.sa.spi, s.path_mtu)).collect();
        all.sort();
        all
    };
    i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    i.apply(NOW, &sa(1, true)).unwrap();
    assert_eq!(told(&i), [(Spi(0x1001), 1500)]);
    table.borrow_mut().path_mtu = 1300;
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!(told(&i), [(Spi(0x1001), 1300)]);
    table.borrow_mut().path_mtu = 1400;
    i.refresh_all();
    // A successor is told too, and what it replaced carries nothing any more.
    i.apply(NOW, &other_sa(1, |sa| sa.spi = Spi(0x2001))).unwrap();
    assert_eq!(told(&i), [(Spi(0x1001), 1400), (Spi(0x2001), 1400)]);
}

#[test]
fn when_the_newest_sa_goes_the_older_one_decides_again() {
    let (mut i, table) = setup();
    let mtu = || table.borrow().device()[0].mtu;
    let told = |i: &Installer| i.engine.sas().iter().map(|s| s.path_mtu).collect::<Vec<_>>();
    i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    i.apply(NOW, &sa(1, false)).unwrap();
    i.apply(NOW, &other_sa(1, |sa| (sa.spi, sa.udp_encap) = (Spi(0x2001), true))).unwrap();
    assert_eq!(mtu(), 1438);
    // Both ends rekeyed at once, and the newer one of the two loses.
    let named = |spi| SaRef {
        direction: Direction::Out,
        spi: Spi(spi),
        reqid: ReqId(1),
        remote: [192, 0, 2, 2].into(),
    };
    i.apply(NOW, &Command::SaDelete(named(0x2001))).unwrap();
    assert_eq!(mtu(), 1446);
    table.borrow_mut().path_mtu = 1300;
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!((mtu(), told(&i)), (1246, vec![1300]));
    // The SA moves, and the route with it.
    let (local, remote) = ("192.0.2.1:4500".parse().unwrap(), "192.0.2.9:4500".parse().unwrap());
    i.apply(NOW, &Command::SaUpdate { sa: named(0x1001), local, remote, udp_encap: true }).unwrap();
    assert_eq!(mtu(), 1238);
    // The last one is remembered until there is another.
    let last = SaRef { remote: [192, 0, 2, 9].into(), ..named(0x1001) };
    i.apply(NOW, &Command::SaDelete(last)).unwrap();
    assert_eq!(mtu(), 1238);
    i.apply(NOW, &sa(1, false)).unwrap();
    assert_eq!((mtu(), i.outside[&ReqId(1)].len()), (1246, 1));
}

#[test]
fn workers_are_woken_when_an_sa_comes_or_goes() {
    let (i, _table) = setup();
    let woken = Rc::new(RefCell::new(0));
    let count = woken.clone();
    let mut i = i.waking(move || *count.borrow_mut() += 1);
    i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    assert_eq!(*woken.borrow(), 0);
    i.apply(NOW, &sa(1, true)).unwrap();
    let sa =
        SaRef { direction: Direction::Out, spi: Spi(0x1001), reqid: ReqId(1), remote: [192, 0, 2, 2].into() };
    assert_eq!(*woken.borrow(), 0, "not before the step is complete");
    i.wake();
    i.apply(NOW, &Command::SaDelete(sa)).unwrap();
    i.wake();
    i.wake();
    assert_eq!(*woken.borrow(), 2);
}

#[test]
fn a_measured_path_lowers_the_routes_until_it_is_found_wide() {
    let (mut i, table) = setup();
    i.add(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])));
    i.apply(NOW, &sa(1, true)).unwrap();
    let mtu = || table.borrow().device()[0].mtu;
    let told = |i: &Installer| i.engine.sas().iter().map(|s| s.path_mtu).collect::<Vec<_>>();
    let (local, remote) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let known = |i: &mut Installer| i.known_path(local, remote).map(|known| (known.mtu, known.told));
    assert_eq!((mtu(), known(&mut i)), (1438, Some((1500, None))));
    i.measured(remote, Some(1300));
    assert_eq!((mtu(), told(&i)), (1238, vec![1300]));
    assert_eq!(known(&mut i), Some((1500, None)), "what is measured is compared with the rest");
    // An ICMP error counts besides, and the least of all.
    let until = clock::now() + Duration::from_secs(600);
    i.paths.known().learn_icmp_mtu(remote, 1400, until);
    i.narrowed(&[remote]);
    assert_eq!((mtu(), known(&mut i)), (1238, Some((1400, Some(1400)))));
    i.measured(remote, Some(1350));
    assert_eq!((mtu(), told(&i)), (1286, vec![1350]));
    i.measured(remote, None);
    assert_eq!((mtu(), told(&i)), (1338, vec![1400]));
    // Without SAs it is kept for the next one: there may be an IKE_SA without children.
    i.measured(remote, Some(1300));
    let gone = SaRef { direction: Direction::Out, spi: Spi(0x1001), reqid: ReqId(1), remote };
    i.apply(NOW, &Command::SaDelete(gone)).unwrap();
    i.apply(NOW, &other_sa(1, |sa| (sa.spi, sa.udp_encap) = (Spi(0x2001), true))).unwrap();
    assert_eq!(mtu(), 1238);
}

#[test]
fn of_many_peers_on_one_link_one_asks_for_its_mtu_until_links_change() {
    let (mut i, table) = setup();
    (table.borrow_mut().path_mtu, table.borrow_mut().link_mtu) = (0, 1400);
    let told = |i: &Installer| i.engine.sas().iter().map(|s| s.path_mtu).collect::<HashSet<_>>();
    for reqid in 1..=50 {
        i.apply(NOW, &Command::PolicyAdd(policy(reqid, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
        i.apply(NOW, &sa(reqid, true)).unwrap();
    }
    // Once, or once more where these took longer than an answer is believed.
    let asked = table.borrow().link_asks;
    assert!((1..5).contains(&asked), "{asked}");
    assert_eq!((table.borrow().lookups, told(&i)), (50, HashSet::from([1400])));
    table.borrow_mut().link_mtu = 1300;
    i.narrowed(&[[192, 0, 2, 2].into()]);
    assert_eq!((table.borrow().link_asks, told(&i)), (asked + 1, HashSet::from([1300])));
    table.borrow_mut().link_mtu = 1500;
    i.refresh_all();
    assert_eq!((table.borrow().link_asks, told(&i)), (asked + 2, HashSet::from([1500])));
}

#[test]
fn what_the_kernel_answers_and_nobody_understands_changes_nothing_and_is_said_once() {
    // The path's MTU from the route, and from the link.
    for (route, link) in [(1300, 0), (0, 1300)] {
        let (mut i, table) = setup();
        (table.borrow_mut().path_mtu, table.borrow_mut().link_mtu) = (route, link);
        i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
        i.apply(NOW, &sa(1, true)).unwrap();
        let mtus = |i: &Installer| {
            let told: HashSet<u32> = i.engine.sas().iter().map(|s| s.path_mtu).collect();
            (told, table.borrow().device()[0].mtu)
        };
        assert_eq!(mtus(&i), (HashSet::from([1300]), 1238));
        table.borrow_mut().puzzles = true;
        i.refresh_all();
        i.narrowed(&[[192, 0, 2, 2].into()]);
        i.apply(NOW, &other_sa(1, |sa| (sa.udp_encap, sa.spi) = (true, Spi(0x2001)))).unwrap();
        assert_eq!(mtus(&i), (HashSet::from([1300]), 1238), "what was known holds, for the successor too");
        assert_eq!(i.guard.lookup([192, 0, 2, 2].into(), None).is_err(), route != 0, "and is not no route");
        let log = i.log();
        assert!(log.len() == 1 && log[0].contains("is not understood"), "{log:?}");
        // Nobody tells when it is understood again.
        table.borrow_mut().puzzles = false;
        (table.borrow_mut().path_mtu, table.borrow_mut().link_mtu) = (1400, 1400);
        i.forgotten(clock::now() + ASK_AGAIN);
        assert_eq!(mtus(&i).1, 1338);
    }
}

#[test]
fn what_a_list_is_without_is_said() {
    let (mut i, table) = setup();
    table.borrow_mut().left_out.push("of the rules, 1 is left out".into());
    assert_eq!(i.verify().unwrap(), [""; 0]);
    assert_eq!(i.log(), ["of the rules, 1 is left out (said once)"]);
    assert_eq!(i.verify().unwrap(), [""; 0]);
    assert_eq!(i.log(), [""; 0]);
}

#[test]
fn addresses_are_asked_for_once_a_burst() {
    let (mut i, table) = setup();
    for net in 0..50 {
        i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, net, 0], [10, 2, net, 255])))).unwrap();
    }
    assert!(table.borrow().dumps <= 5, "{}", table.borrow().dumps);
    let before = table.borrow().dumps;
    i.refresh_all();
    assert!(table.borrow().dumps > before, "a change is looked at");
}

#[test]
fn of_many_peers_that_share_a_route_only_the_new_one_is_looked_up() {
    let (mut i, table) = setup();
    for reqid in 1..=50 {
        i.apply(NOW, &Command::PolicyAdd(policy(reqid, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
        i.apply(NOW, &sa(reqid, true)).unwrap();
    }
    assert_eq!(table.borrow().lookups, 50);
    i.refresh_all();
    assert_eq!(table.borrow().lookups, 100, "when the network changes each is");
}

#[test]
fn what_was_learned_of_a_path_holds_for_its_time_for_every_sa_to_that_peer() {
    let (mut i, table) = setup();
    let (peer, now) = (IpAddr::from([192, 0, 2, 2]), clock::now());
    let p = policy(1, range([10, 2, 0, 0], [10, 2, 0, 255]));
    i.apply(NOW, &Command::PolicyAdd(p)).unwrap();
    i.apply(NOW, &sa(1, true)).unwrap();
    assert!(i.paths.known().learn_icmp_mtu(peer, 1400, now + Duration::from_secs(600)));
    i.narrowed(&[peer]);
    assert_eq!(table.borrow().device()[0].mtu, 1338);
    // A successor is on the same path.
    i.apply(NOW, &other_sa(1, |sa| (sa.udp_encap, sa.spi) = (true, Spi(0x2001)))).unwrap();
    assert_eq!(table.borrow().device()[0].mtu, 1338);
    i.forgotten(now + Duration::from_secs(590));
    assert_eq!(table.borrow().device()[0].mtu, 1338);
    i.forgotten(now + Duration::from_secs(601));
    assert_eq!(table.borrow().device()[0].mtu, 1438);
    // As long as the last error says, though it says what is known.
    for seconds in [600, 5] {
        i.paths.known().learn_icmp_mtu(peer, 1400, now + Duration::from_secs(seconds));
        i.narrowed(&[peer]);
    }
    assert_eq!(table.borrow().device()[0].mtu, 1338);
    i.forgotten(now + Duration::from_secs(6));
    assert_eq!(table.borrow().device()[0].mtu, 1438);
    assert_eq!(i.paths.known().icmp_mtu(peer), None);
}

#[test]
fn what_icmp_made_the_kernel_believe_does_not_count_and_the_routes_own_mtu_does() {
    let (mut i, table) = setup();
    let peer = IpAddr::from([192, 0, 2, 2]);
    i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    i.apply(NOW, &sa(1, true)).unwrap();
    let mtu = || table.borrow().device()[0].mtu;
    // Narrower, with the link's MTU as the truth; then wider than the route is.
    for (forged, route, path) in [(560, 0, 1500), (1450, 1300, 1300)] {
        (table.borrow_mut().path_mtu, table.borrow_mut().path_expires) =
            (forged, Some(Duration::from_secs(600)));
        (table.borrow_mut().route_mtu, table.borrow_mut().link_mtu) = (route, 1500);
        i.refresh_all();
        assert_eq!(mtu(), path - 62);
        // Who sends is told only what the kernel does not enforce.
        assert_eq!(i.paths.known().mtu(peer), Some(path).filter(|_| route != 0));
    }
    assert_eq!(i.paths.known().icmp_mtu(peer), None);
    i.apply(NOW, &delete(1)).unwrap();
    assert_eq!(i.paths.known().mtu(peer), None);
}
