//! Tests of the installer with a kernel that only remembers.

use std::cell::RefCell;
use std::rc::Rc;

use ironswan_crypto::rng::System;
use ironswan_ipsec::Config;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::sadb::{Lifetime, Mode, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::TrafficSelector;

use super::*;

#[derive(Default)]
struct Table {
    routes: Vec<Route>,
    path_mtu: u32,
    addresses: Vec<IpAddr>,
    changes: usize,
}

struct Fake(Rc<RefCell<Table>>);

impl Kernel for Fake {
    fn set_route(&mut self, route: &Route) -> Result<(), IoError> {
        let mut t = self.0.borrow_mut();
        t.routes.retain(|r| r.destination != route.destination);
        t.routes.push(route.clone());
        t.changes += 1;
        Ok(())
    }
    fn delete_route(&mut self, route: &Route) -> Result<(), IoError> {
        let mut t = self.0.borrow_mut();
        t.routes.retain(|r| r != route);
        t.changes += 1;
        Ok(())
    }
    fn lookup(&mut self, _: IpAddr, _: Option<IpAddr>, mark: u32) -> Result<Option<Hop>, IoError> {
        assert_eq!(mark, 0x220);
        let source = Some([192, 0, 2, 1].into());
        Ok(Some(Hop { link: 2, gateway: None, source, mtu: self.0.borrow().path_mtu, local: false }))
    }
    fn addresses(&mut self) -> Result<Vec<Address>, IoError> {
        Ok(self.0.borrow().addresses.iter().map(|ip| Address { link: 1, ip: *ip, prefix_len: 24 }).collect())
    }
}

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
    (Installer::new(engine, Box::new(Fake(table.clone())), 7, 0x220), table)
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
        encr_key: Secret::new(vec![1; 20]),
        integ_key: Secret::default(),
        replay_window: 0,
        local_ts: vec![all],
        remote_ts: vec![all],
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }))
}

const NOW: Duration = Duration::from_secs(1);

#[test]
fn the_inner_mtu_is_exact() {
    // 1500 - 20 - 8 - 8 - 8 - 16 = 1440, a multiple of 4, less 2.
    assert_eq!(inner_max(1500, false, true, &gcm()), 1438);
    assert_eq!(inner_max(1500, false, false, &gcm()), 1446);
    assert_eq!(inner_max(1500, true, true, &gcm()), 1418);
    let cbc = EspSuite { encr: EncrId::AES_CBC, integ: Some(IntegId::HMAC_SHA2_256_128), ..gcm() };
    // 1500 - 20 - 8 - 8 - 16 - 16 = 1432, 89 blocks of 16 are 1424, less 2.
    assert_eq!(inner_max(1500, false, true, &cbc), 1422);
    assert_eq!(inner_max(10, false, true, &cbc), 0);
}

#[test]
fn a_route_comes_with_the_policy_and_gets_its_mtu_with_the_sa() {
    let (mut i, table) = setup();
    i.apply(NOW, &Command::PolicyAdd(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    assert_eq!(table.borrow().routes[0].mtu, 1400);
    i.apply(NOW, &sa(1, true)).unwrap();
    let route = table.borrow().routes[0].clone();
    assert_eq!(route.to_string(), "10.2.0.0/24 dev #7 src 10.1.0.1 mtu 1438 table 220");
    assert_eq!(route.protocol, PROTOCOL);
    table.borrow_mut().path_mtu = 1300;
    i.narrowed(&[[192, 0, 2, 2].into()]).unwrap();
    assert_eq!(table.borrow().routes[0].mtu, 1238);
    i.apply(NOW, &Command::PolicyDelete(policy(1, range([10, 2, 0, 0], [10, 2, 0, 255])))).unwrap();
    assert!(table.borrow().routes.is_empty() && i.inside.is_empty() && i.outside.is_empty());
}

#[test]
fn a_route_that_two_policies_need_stays_until_both_are_gone_and_is_as_narrow_as_the_narrower() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 0], [10, 2, 0, 255]);
    for (reqid, udp) in [(1, true), (2, false)] {
        i.apply(NOW, &sa(reqid, udp)).unwrap();
        i.apply(NOW, &Command::PolicyAdd(policy(reqid, to))).unwrap();
    }
    assert_eq!((table.borrow().routes.len(), table.borrow().routes[0].mtu), (1, 1438));
    i.apply(NOW, &Command::PolicyDelete(policy(1, to))).unwrap();
    assert_eq!(table.borrow().routes[0].mtu, 1446);
    i.apply(NOW, &Command::PolicyDelete(policy(2, to))).unwrap();
    assert!(table.borrow().routes.is_empty());
}

#[test]
fn a_range_is_cut_into_prefixes_and_a_rekey_changes_nothing() {
    let (mut i, table) = setup();
    let to = range([10, 2, 0, 1], [10, 2, 0, 6]);
    i.apply(NOW, &Command::PolicyAdd(policy(1, to))).unwrap();
    i.apply(NOW, &sa(1, true)).unwrap();
    assert_eq!(table.borrow().routes.len(), 4);
    let changes = table.borrow().changes;
    let Command::SaAdd(mut next) = sa(1, true) else { unreachable!() };
    next.spi = Spi(0x2000);
    i.apply(NOW, &Command::SaAdd(next)).unwrap();
    assert_eq!(table.borrow().changes, changes);
    i.clear();
    assert!(table.borrow().routes.is_empty());
}

#[test]
fn what_the_engine_refuses_gets_no_route_and_shunts_get_none_either() {
    let (mut i, table) = setup();
    let mut p = policy(1, AddrRange::any(true));
    let e = i.apply(NOW, &Command::PolicyAdd(p.clone())).unwrap_err();
    assert!(e.contains("unable to install policy net"), "{e}");
    p = policy(1, range([10, 3, 0, 0], [10, 3, 0, 255]));
    p.action = Action::Bypass;
    i.apply(NOW, &Command::PolicyAdd(p)).unwrap();
    assert!(table.borrow().routes.is_empty());
}
