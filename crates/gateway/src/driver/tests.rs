//! Tests of the driver: two of them joined by nothing but their sends, with data planes that record
//! and a kernel that agrees.

use std::collections::HashMap as Map;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_crypto::rng::System;
use ironswan_ike::Options;
use ironswan_ike::event::IkeState;
use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, NextHop, Route, Rule};
use ironswan_keying::{Joined, Limits, Target};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;
use crate::dataplane::IkeDatagram;
use crate::dataplane::recording::{Record, Recording, SendIke};
use crate::guard::standing::StandingGuard;
use crate::network::tests::{Fake, Table};
use ironswan_config::load_files;
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::sadb::Direction;

struct Agreeable(IpAddr);

impl Kernel for Agreeable {
    fn set_route(&mut self, _: &Route) -> Result<(), IoError> {
        Ok(())
    }
    fn delete_route(&mut self, _: &Route) -> Result<(), IoError> {
        Ok(())
    }
    fn lookup(&mut self, _: IpAddr, _: Option<IpAddr>, _: u32) -> Result<Option<NextHop>, IoError> {
        Ok(Some(NextHop {
            link: 2,
            gateway: None,
            source: Some(self.0),
            mtu: 1500,
            expires: None,
            local: false,
        }))
    }
    fn configured(
        &mut self,
        to: IpAddr,
        from: Option<IpAddr>,
        mark: u32,
    ) -> Result<Option<NextHop>, IoError> {
        self.lookup(to, from, mark)
    }
    fn link_mtu(&mut self, _: u32) -> Result<Option<u32>, IoError> {
        Ok(Some(1500))
    }
    fn addresses(&mut self) -> Result<Vec<Address>, IoError> {
        Ok(Vec::new())
    }
    fn routes(&mut self) -> Result<Vec<Route>, IoError> {
        Ok(Vec::new())
    }
    fn rules(&mut self) -> Result<Vec<Rule>, IoError> {
        Ok(Vec::new())
    }
    fn add_rule(&mut self, _: &Rule) -> Result<(), IoError> {
        Ok(())
    }
    fn delete_rule(&mut self, _: &Rule) -> Result<usize, IoError> {
        Ok(1)
    }
}

/// A guard of which nothing stands yet, with the default settings.
pub(crate) fn standing_guard() -> StandingGuard {
    StandingGuard::new(from_config::settings(&Default::default()))
}

/// Datagrams that a driver sends.
pub(crate) type Sent = mpsc::UnboundedReceiver<IkeDatagram>;

/// A driver at `me`, and what it sends.
pub(crate) fn gateway(me: &str, conf: &str) -> (Driver, Sent) {
    let (driver, sent, _) = recorded(me, conf);
    (driver, sent)
}

/// A driver at `me`, what it sends, and what its data plane is told.
pub(crate) fn recorded(me: &str, conf: &str) -> (Driver, Sent, Record) {
    over(Box::new(Agreeable(me.parse().unwrap())), conf)
}

/// A driver over this kernel, and what it sends.
pub(crate) fn with_kernel(kernel: Box<dyn Kernel>, conf: &str) -> (Driver, Sent) {
    let (driver, sent, _) = over(kernel, conf);
    (driver, sent)
}

fn over(kernel: Box<dyn Kernel>, conf: &str) -> (Driver, Sent, Record) {
    let (tx, rx) = mpsc::unbounded_channel();
    let send = Box::new(move |d| tx.send(d).map_err(io::Error::other));
    let (driver, record) = sending(send, kernel, conf);
    (driver, rx, record)
}

/// A driver over this kernel that sends so, and what its data plane is told.
fn sending(send: SendIke, kernel: Box<dyn Kernel>, conf: &str) -> (Driver, Record) {
    let (plane, record) = Recording::sending(send);
    let endpoint = |policy| Endpoint::new(policy, Limits::default(), Box::new(System), Options::default());
    let endpoint = Joined::new(Limits::default(), Box::new(System), endpoint);
    let driver = Driver::new(endpoint, plane, SharedGuard::new(standing_guard(), kernel), None);
    let config = read(conf);
    for s in config.secrets {
        driver.act(|e, _| e.load_shared(s));
    }
    for c in config.connections {
        driver.load_connection(c);
    }
    (driver, record)
}

/// Numbers of SAs and policies in the data plane of a driver.
pub(crate) fn held(d: &Driver) -> (u64, u64) {
    let counters: Map<_, _> = d.plane(|plane| plane.report().counters).into_iter().collect();
    (counters["sas"], counters["policies"])
}

/// A configuration without errors.
pub(crate) fn read(conf: &str) -> ironswan_config::Config {
    let dir = Scratch::new();
    let path = dir.write("t.conf", conf);
    let mut diags = ironswan_config::diag::Diagnostics::default();
    let config = load_files(ironswan_io::clock::now, &[path], &mut diags).unwrap();
    assert_eq!(diags.errors(), 0, "{diags:?}");
    config
}

/// Keeps what is logged.
#[derive(Default)]
struct Lines(RefCell<Vec<(Option<String>, String)>>);

impl Observer for Lines {
    fn event(&self, _: &Driver, event: &Event) {
        if let Event::Log { conn, text, .. } = event {
            self.0.borrow_mut().push((conn.clone(), text.clone()));
        }
    }
}

/// The IKE_SA_INIT request of a gateway at 192.0.2.2 that brings up `net` with 192.0.2.1.
async fn ike_sa_init() -> Vec<u8> {
    let (b, mut from_b) = gateway("192.0.2.2", &conf(2, 1));
    let _begun = b.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t))).unwrap();
    let request = tokio::time::timeout(Duration::from_secs(10), from_b.recv()).await;
    request.expect("in time").expect("an IKE_SA_INIT").payload
}

#[tokio::test]
async fn answers_to_strangers_that_cannot_be_sent_are_a_few_lines_and_hide_no_peer() {
    LocalSet::new()
        .run_until(async {
            let request = ike_sa_init().await;
            let send = Box::new(|_| Err(io::ErrorKind::NetworkUnreachable.into()));
            // Whoever comes is answered.
            let text = conf(1, 2).replace("remote_addrs = 192.0.2.2", "remote_addrs = 192.0.2.2, 0.0.0.0/0");
            let (a, _) = sending(send, Box::new(Agreeable("192.0.2.1".parse().unwrap())), &text);
            let lines = Rc::new(Lines::default());
            a.observe(lines.clone());
            let unsent = || {
                let lines = lines.0.borrow();
                lines
                    .iter()
                    .filter(|(_, text)| text.contains("error writing to socket"))
                    .cloned()
                    .collect::<Vec<_>>()
            };
            for n in 0..5_000u32 {
                let remote = SocketAddr::new(IpAddr::from((0xc633_0000 + n).to_be_bytes()), 500);
                receive(&a, "192.0.2.1:500".parse().unwrap(), remote, &request);
            }
            println!("{} lines, {} failures told", unsent().len(), a.send_errors());
            assert!((1..=3).contains(&unsent().len()), "{:?}", unsent());
            assert_eq!(a.send_errors(), 0, "who waits for a peer is not woken");
            let before = unsent().len();
            let _begun = a.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t))).unwrap();
            for _ in 0..100 {
                if a.send_errors() > 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(a.send_errors(), 1);
            assert_eq!(unsent().len(), before + 1);
            assert_eq!(unsent()[before].0.as_deref(), Some("net"));
        })
        .await;
}

#[tokio::test]
async fn no_more_key_pairs_wait_for_strangers_than_there_are_half_open_ike_sas() {
    LocalSet::new()
        .run_until(async {
            let request = ike_sa_init().await;
            let text = conf(1, 2).replace("remote_addrs = 192.0.2.2", "remote_addrs = 192.0.2.2, 0.0.0.0/0");
            let (a, mut from_a) = gateway("192.0.2.1", &text);
            let limits = Limits {
                half_open_max: 40,
                half_open_per_net: 1,
                cookie_threshold: 1_000,
                ..Limits::default()
            };
            a.act(|e, now| e.set_limits(now, limits));
            // No thread is free until the test lets them go.
            let kex = &a.pools().kex;
            let hanging: Vec<_> = (0..std::thread::available_parallelism().map_or(2, usize::from).max(2))
                .map(|_| {
                    let (tx, rx) = std::sync::mpsc::channel::<()>();
                    let (began, begun) = std::sync::mpsc::channel();
                    let work = move || (began.send(()), rx.recv());
                    let _result = kex.run(Turn::First, usize::MAX, work).unwrap();
                    begun.recv_timeout(Duration::from_secs(10)).unwrap();
                    tx
                })
                .collect();
            let ask = |n: u8, site: u8| {
                let mut bytes = request.clone();
                bytes[..8].copy_from_slice(&[9, site, n, 1, 1, 1, 1, 1]);
                receive(&a, "192.0.2.1:500".parse().unwrap(), ([10, site, n, 1], 500).into(), &bytes);
            };
            // Two sites fill the table, and 20 others come.
            (0..40).for_each(|n| ask(n, n % 2));
            assert_eq!(kex.waiting(), 40);
            (0..20).for_each(|n| ask(n, 10 + n));
            let c = a.view(|e, _| *e.protocol().counters());
            let known = a.0.computing.borrow().len();
            println!("{} half-open, {} gave way, {} wait", c.half_open, c.half_open_displaced, kex.waiting());
            assert_eq!((c.half_open, c.half_open_displaced, kex.waiting(), known), (40, 20, 40, 40));
            drop(hanging);
            // The remaining strangers are answered.
            for _ in 0..40 {
                tokio::time::timeout(Duration::from_secs(10), from_a.recv()).await.expect("in time").unwrap();
            }
            assert!(a.0.computing.borrow().is_empty() && kex.waiting() == 0);
        })
        .await;
}

pub(crate) fn conf(me: u8, peer: u8) -> String {
    format!(
        "connections {{ net {{ local_addrs = 192.0.2.{me}\n remote_addrs = 192.0.2.{peer}\n proposals = aes128gcm16-prfsha256-x25519\n\
         local {{ auth = psk\n id = g{me}.example }}\n remote {{ auth = psk\n id = g{peer}.example }}\n\
         children {{ net {{ local_ts = 10.{me}.0.0/24\n remote_ts = 10.{peer}.0.0/24\n esp_proposals = aes128gcm16 }} }} }} }}\n\
         secrets {{ ike-1 {{ secret = 0123456789abcdef }} }}\n"
    )
}

/// A datagram reaches a driver.
fn receive(d: &Driver, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
    d.receive(&IkeDatagram { local, remote, payload: payload.to_vec() });
}

/// Carries what one sends to the other, as the sockets would: without the non-ESP marker.
pub(crate) async fn carry(mut from: Sent, to: Driver) {
    while let Some(t) = from.recv().await {
        let payload = match t.remote.port() {
            4500 => t.payload.strip_prefix(&[0; 4]).expect("a non-ESP marker on port 4500"),
            _ => &t.payload,
        };
        receive(&to, t.remote, t.local, payload);
    }
}

/// Two gateways that reach each other.
pub(crate) fn pair() -> (Driver, Driver) {
    pair_of(&conf(1, 2), &conf(2, 1))
}

/// Two gateways of these configurations that reach each other.
pub(crate) fn pair_of(first: &str, second: &str) -> (Driver, Driver) {
    let [(a, _), (b, _)] = recorded_pair(first, second);
    (a, b)
}

/// Two gateways of these configurations that reach each other, and what their data planes are told.
pub(crate) fn recorded_pair(first: &str, second: &str) -> [(Driver, Record); 2] {
    let (a, from_a, told_a) = recorded("192.0.2.1", first);
    let (b, from_b, told_b) = recorded("192.0.2.2", second);
    tokio::task::spawn_local(carry(from_a, b.clone()));
    tokio::task::spawn_local(carry(from_b, a.clone()));
    for d in [&a, &b] {
        let (timed, served) = (d.clone(), d.clone());
        tokio::task::spawn_local(async move { timed.timers().await });
        tokio::task::spawn_local(async move { served.serve_plane().await });
    }
    [(a, told_a), (b, told_b)]
}

pub(crate) async fn up(a: &Driver) -> Outcome {
    let (_, end) = a.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t))).unwrap();
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("in time").expect("an outcome")
}

/// Waits until no SA is left in the data plane, 8 s at most.
async fn emptied(d: &Driver) {
    let mut waited = 0;
    while held(d).0 != 0 && waited < 80 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waited += 1;
    }
    assert_eq!(held(d).0, 0);
}

#[tokio::test]
async fn two_drivers_establish_rekey_and_take_down_a_tunnel() {
    LocalSet::new()
        .run_until(async {
            let (a, b) = pair();
            assert_eq!(up(&a).await, Ok(()));
            tokio::time::sleep(Duration::from_millis(100)).await;
            for d in [&a, &b] {
                assert_eq!(held(d), (2, 1));
                let (sas, _) = d.ike_sas();
                assert_eq!((sas.len(), sas[0].children.len()), (1, 1));
                assert!(sas[0].children[0].stats.is_some());
            }
            let target = Target { child: Some("net".into()), ..Target::default() };
            let (n, end) = a.command(|e, now| e.rekey(now, &target, false)).unwrap();
            assert_eq!(n, 1);
            assert_eq!(end.await.unwrap(), Ok(()));
            let target = Target { ike: Some("net".into()), ..Target::default() };
            let (n, end) = a.command(|e, now| e.terminate(now, &target, false)).unwrap();
            assert_eq!((n, end.await.unwrap()), (1, Ok(())));
            for d in [&a, &b] {
                // The rekeyed inbound SA may outlive its IKE_SA by the few seconds that it is kept
                // for late packets.
                emptied(d).await;
                assert_eq!(held(d), (0, 0));
                assert!(d.ike_sas().0.is_empty());
            }
        })
        .await;
}

#[tokio::test]
async fn an_answer_about_a_route_that_is_not_understood_is_not_no_route() {
    LocalSet::new()
        .run_until(async {
            let table = Rc::new(RefCell::new(Table { path_mtu: 1500, ..Table::default() }));
            let (a, from_a) = with_kernel(Box::new(Fake(table.clone())), &conf(1, 2));
            let (b, from_b) = gateway("192.0.2.2", &conf(2, 1));
            tokio::task::spawn_local(carry(from_a, b.clone()));
            tokio::task::spawn_local(carry(from_b, a.clone()));
            assert_eq!(up(&a).await, Ok(()));
            let lost =
                |d: &Driver| d.ike_sas().0.iter().filter(|sa| sa.state != IkeState::Established).count();
            let before = table.borrow().lookups;
            table.borrow_mut().puzzles = true;
            a.act(|e, now| e.network_changed(now, &["192.0.2.1".parse().unwrap()]));
            assert_eq!((table.borrow().lookups, lost(&a)), (before + 1, 0), "asked, and nothing follows");
            // The IKE_SA is not taken for lost: a command is carried out at once.
            let target = Target { child: Some("net".into()), ..Target::default() };
            let (_, end) = a.command(|e, now| e.rekey(now, &target, false)).unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(10), end).await;
            assert_eq!(ended.expect("in time").unwrap(), Ok(()));
        })
        .await;
}

#[tokio::test]
async fn an_attempt_for_which_the_route_is_not_understood_says_so() {
    LocalSet::new()
        .run_until(async {
            let table = Rc::new(RefCell::new(Table { path_mtu: 1500, puzzles: true, ..Table::default() }));
            let text = conf(1, 2).replace("local_addrs = 192.0.2.1\n", "");
            let (a, _sent) = with_kernel(Box::new(Fake(table)), &text);
            let why = up(&a).await.unwrap_err();
            assert!(
                why.sentence().contains("the route to 192.0.2.2 is not known: ")
                    && why.sentence().contains("not understood"),
                "{why}"
            );
        })
        .await;
}

#[tokio::test]
async fn a_child_whose_sa_the_data_plane_refuses_is_closed_on_both_sides() {
    LocalSet::new()
        .run_until(async {
            let [(a, record), (b, _)] = recorded_pair(&conf(1, 2), &conf(2, 1));
            assert_eq!(up(&a).await, Ok(()));
            // The data plane has this SPI already, so it says no.
            let again = record.sas().into_iter().find(|sa| sa.direction == Direction::In).unwrap();
            a.submit(vec![Command::SaAdd(Box::new(again))]);
            a.act(|_, _| ());
            for d in [&a, &b] {
                emptied(d).await;
                assert_eq!((d.ike_sas().0.len(), d.ike_sas().0[0].children.len()), (1, 0));
            }
        })
        .await;
}

#[tokio::test]
async fn a_command_that_matches_nothing_is_refused_at_once() {
    LocalSet::new()
        .run_until(async {
            let (a, _out) = gateway("192.0.2.1", &conf(1, 2));
            let e = a.command(|e, now| e.initiate(now, None, Some("nope")).map(|t| (1, t))).unwrap_err();
            assert_eq!(e.to_string(), "CHILD_SA config 'nope' not found");
        })
        .await;
}

#[test]
fn the_guard_of_a_child_is_its_own_and_follows_a_reload() {
    // Traps whose selectors are known only when the way to the peer is.
    let conn = |name: &str, net: u8, guard: &str| {
        format!(
            "{name} {{ remote_addrs = 192.0.2.{net}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ \
             net {{ local_ts = dynamic\n remote_ts = 10.{net}.0.0/16\n start_action = trap\n guard = {guard} }} }} }}\n"
        )
    };
    let (a, b) = (conn("a", 2, "no"), conn("b", 3, "yes"));
    let guards = |driver: &Driver| {
        driver.replan(driver.view(|e, _| from_config::configured(e.connections().iter().map(|c| &**c))));
        driver.guard(|g| {
            let all = g.policies().iter().map(|p| (p.name.clone(), p.guard));
            all.collect::<Vec<_>>()
        })
    };
    let want = |a: bool, b: bool| [("a.net".to_owned(), a), ("b.net".to_owned(), b)];
    for order in [[&a, &b], [&b, &a]] {
        let text = |conns: &str| format!("connections {{ {conns} }}");
        let (driver, _sent) = gateway("192.0.2.1", &text(order[0]));
        for (conns, guarded) in [
            (order[1].clone(), want(false, true)),
            (conn("a", 2, "yes"), want(true, true)),
            (conn("b", 3, "no"), want(true, false)),
        ] {
            for c in read(&text(&conns)).connections {
                driver.load_connection(c);
            }
            assert_eq!(guards(&driver), guarded);
        }
    }
}
