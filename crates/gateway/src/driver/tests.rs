//! Tests of the driver: two of them joined by nothing but their sends, with real engines and a kernel that agrees.

use std::net::IpAddr;

use ironswan_crypto::rng::System;
use ironswan_ike::{Options, Target};
use ironswan_io::Error as IoError;
use ironswan_io::route::{Address, Hop, Route, Rule};
use ironswan_keying::Limits;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;
use crate::dataplane::userspace::install::Kernel;
use crate::dataplane::userspace::install::tests::{Fake, Table};
use crate::guard::standing::StandingGuard;
use ironswan_config::load_files;
use ironswan_testkit::scratch::Scratch;

struct Agreeable(IpAddr);

impl Kernel for Agreeable {
    fn set_route(&mut self, _: &Route) -> Result<(), IoError> {
        Ok(())
    }
    fn delete_route(&mut self, _: &Route) -> Result<(), IoError> {
        Ok(())
    }
    fn lookup(&mut self, _: IpAddr, _: Option<IpAddr>, _: u32) -> Result<Option<Hop>, IoError> {
        Ok(Some(Hop { link: 2, gateway: None, source: Some(self.0), mtu: 1500, expires: None, local: false }))
    }
    fn configured(&mut self, to: IpAddr, from: Option<IpAddr>, mark: u32) -> Result<Option<Hop>, IoError> {
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

/// A driver at `me`, and what it sends.
pub(crate) fn gateway(me: &str, conf: &str) -> (Driver, mpsc::UnboundedReceiver<Transmit>) {
    with_kernel(Box::new(Agreeable(me.parse().unwrap())), conf)
}

/// A driver over this kernel, and what it sends.
pub(crate) fn with_kernel(
    kernel: Box<dyn Kernel>,
    conf: &str,
) -> (Driver, mpsc::UnboundedReceiver<Transmit>) {
    let (tx, rx) = mpsc::unbounded_channel();
    let send = Box::new(move |t: &Transmit| tx.send(t.clone()).map_err(std::io::Error::other));
    (sending(send, kernel, conf), rx)
}

/// A driver over this kernel that sends so.
fn sending(send: Send, kernel: Box<dyn Kernel>, conf: &str) -> Driver {
    let engine = Engine::new(Box::new(System), ironswan_ipsec::Config::default());
    let installer = Installer::new(engine.clone(), kernel, 7, standing_guard());
    let endpoint = Endpoint::new(Limits::default(), Box::new(System), Options::default());
    let driver = Driver::new(endpoint, engine, installer, send, None, clock::now());
    let config = read(conf);
    for s in config.secrets {
        driver.act(|e, _| e.load_shared(s));
    }
    for c in config.connections {
        driver.load_connection(c);
    }
    driver
}

/// A configuration without errors.
fn read(conf: &str) -> ironswan_config::Config {
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
            let send = Box::new(|_: &Transmit| Err(io::ErrorKind::NetworkUnreachable.into()));
            // Whoever comes is answered.
            let text = conf(1, 2).replace("remote_addrs = 192.0.2.2", "remote_addrs = 192.0.2.2, 0.0.0.0/0");
            let a = sending(send, Box::new(Agreeable("192.0.2.1".parse().unwrap())), &text);
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
                a.datagram("192.0.2.1:500".parse().unwrap(), remote, &request);
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
            a.act(|e, _| e.set_limits(limits));
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
                a.datagram("192.0.2.1:500".parse().unwrap(), ([10, site, n, 1], 500).into(), &bytes);
            };
            // Two sites fill the table, and 20 others come.
            (0..40).for_each(|n| ask(n, n % 2));
            assert_eq!(kex.waiting(), 40);
            (0..20).for_each(|n| ask(n, 10 + n));
            let c = a.view(|e, _| *e.counters());
            let known = a.0.computing.borrow().len();
            println!("{} half-open, {} gave way, {} wait", c.half_open, c.half_open_displaced, kex.waiting());
            assert_eq!((c.half_open, c.half_open_displaced, kex.waiting(), known), (40, 20, 40, 40));
            drop(hanging);
            // Those that are left are answered.
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

/// Carries what one sends to the other, as the sockets would: without the non-ESP marker.
pub(crate) async fn carry(mut from: mpsc::UnboundedReceiver<Transmit>, to: Driver) {
    while let Some(t) = from.recv().await {
        let payload = match t.remote.port() {
            4500 => t.payload.strip_prefix(&[0; 4]).expect("a non-ESP marker on port 4500"),
            _ => &t.payload,
        };
        to.datagram(t.remote, t.local, payload);
    }
}

/// Two gateways that reach each other.
pub(crate) fn pair() -> (Driver, Driver) {
    pair_of(&conf(1, 2), &conf(2, 1))
}

/// Two gateways of these configurations that reach each other.
pub(crate) fn pair_of(first: &str, second: &str) -> (Driver, Driver) {
    let (a, from_a) = gateway("192.0.2.1", first);
    let (b, from_b) = gateway("192.0.2.2", second);
    tokio::task::spawn_local(carry(from_a, b.clone()));
    tokio::task::spawn_local(carry(from_b, a.clone()));
    for d in [&a, &b] {
        let d = d.clone();
        tokio::task::spawn_local(async move { d.timers().await });
    }
    (a, b)
}

pub(crate) async fn up(a: &Driver) -> Outcome {
    let (_, end) = a.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t))).unwrap();
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("in time").expect("an outcome")
}

/// Waits until no SA is left in the engine, 8 s at most.
async fn emptied(d: &Driver) {
    let mut waited = 0;
    while !d.engine().sas().is_empty() && waited < 80 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waited += 1;
    }
    assert!(d.engine().sas().is_empty(), "{:?}", d.engine().sas());
}

#[tokio::test]
async fn two_drivers_establish_rekey_and_take_down_a_tunnel() {
    LocalSet::new()
        .run_until(async {
            let (a, b) = pair();
            assert_eq!(up(&a).await, Ok(()));
            tokio::time::sleep(Duration::from_millis(100)).await;
            for d in [&a, &b] {
                assert_eq!(d.engine().sas().len(), 2);
                assert_eq!(d.engine().policies().len(), 1);
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
                // The rekeyed inbound SA may outlive its IKE_SA by the few seconds that it is kept for late packets.
                emptied(d).await;
                assert!(d.engine().policies().is_empty(), "{:?}", d.engine().policies());
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
            // It is not taken for lost: a command is carried out at once.
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
                why.contains("the route to 192.0.2.2 is not known") && why.contains("not understood"),
                "{why}"
            );
        })
        .await;
}

#[tokio::test]
async fn a_child_whose_sa_the_engine_refuses_is_closed_on_both_sides() {
    LocalSet::new()
        .run_until(async {
            let (a, b) = pair();
            assert_eq!(up(&a).await, Ok(()));
            let child = a.ike_sas().0[0].children[0].clone();
            // The engine has this SPI already, so it says no.
            let again = ironswan_wire::sadb::SaAdd {
                direction: Direction::In,
                protocol: ironswan_wire::iana::ProtocolId::ESP,
                spi: child.spi_in,
                reqid: child.reqid,
                local: "192.0.2.1:500".parse().unwrap(),
                remote: "192.0.2.2:500".parse().unwrap(),
                udp_encap: false,
                mode: child.mode,
                suite: child.suite,
                options: ironswan_wire::sadb::SaOptions::default(),
                encr_key: vec![1; 20].into(),
                integ_key: Vec::new().into(),
                replay_window: 0,
                local_ts: child.local_ts,
                remote_ts: child.remote_ts,
                lifetime: Default::default(),
                notify_first_use: false,
            };
            a.apply(&Event::Sadb(Command::SaAdd(Box::new(again))));
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
        driver.both(|e, i| i.replan(from_config::configured(e.connections())));
        driver.installed(|i| {
            let all = i.guard().policies().iter().map(|p| (p.name.clone(), p.guard));
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
