//! Policy alone: [`Tunnels`] with a protocol of ten lines that says yes, no or nothing to each
//! order to start something.
#![allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Seeded;
use ironswan_keying::diagnosis::{KeyExchange, NotDone, Path, Unanswered, Unresolved};
use ironswan_keying::limits::{NAME_PERIOD, NAME_RETRY, RETRY_ROUTED, START_COUNTED, STARTS_AT_ONCE};
use ironswan_keying::tunnels::{Close, Ended, IkeId, Order, Report, Start, Tried};
use ironswan_keying::{
    AddrSpec, ChildAction, ChildKind, Connection, Diagnosis, Down, Limits, Next, Policy, Ticket, Tunnels,
};
use ironswan_testkit::config;
use ironswan_wire::iana::{ExchangeType, NotifyType};

const S: Duration = Duration::from_secs(1);

/// Answer of the protocol to each order to start something.
#[derive(Clone, PartialEq)]
enum Says {
    Yes,
    No(Close),
    Nothing,
}

/// The tunnels, a clock, and a protocol.
struct World {
    began: Instant,
    now: Instant,
    rng: Seeded,
    tunnels: Tunnels,
    says: Says,
    /// Attempts, and when each began.
    starts: Vec<(Duration, Start)>,
    /// All other orders but lines for the log.
    orders: Vec<Order>,
    log: Vec<String>,
}

impl World {
    fn new(says: Says) -> Self {
        let began = Instant::now();
        let (rng, tunnels) = (Seeded::new(1), Tunnels::new(Limits::default()));
        let (starts, orders, log) = (Vec::new(), Vec::new(), Vec::new());
        Self { began, now: began, rng, tunnels, says, starts, orders, log }
    }

    /// Obeys all orders.
    fn obey(&mut self) {
        while let Some(order) = self.tunnels.poll_order(self.now) {
            match order {
                Order::Start(start) => self.start(start),
                Order::Say { text, .. } => self.log.push(text),
                Order::SayWhy { why, .. } => self.log.push(why.to_string()),
                order => self.orders.push(order),
            }
        }
    }

    /// The protocol.
    fn start(&mut self, start: Start) {
        for child in &start.children {
            self.report(Report::Begun { start: start.clone(), child: child.clone() });
            if self.says == Says::Yes {
                self.report(Report::Up { conn: start.conn.clone(), child: child.clone() });
            }
        }
        if let Says::No(how) = self.says.clone() {
            self.fail(&start, &how);
        }
        if self.says != Says::Nothing {
            self.report(Report::Over(start.id));
        }
        self.starts.push((self.now - self.began, start));
    }

    /// Reports that an attempt has ended.
    fn fail(&mut self, start: &Start, how: &Close) {
        let conn = self.tunnels.policy().connection(&start.conn).expect("a loaded connection");
        let tried = Tried {
            children: start.children.clone(),
            number: start.number,
            addresses: 1,
            automatic: start.automatic,
            prefer: start.prefer,
            takes_over: start.takes_over,
            goes_on: false,
        };
        self.ended(&conn, how, &[], Some(tried));
    }

    /// Reports that an IKE_SA with these children has ended.
    fn ended(&mut self, conn: &Arc<Connection>, how: &Close, lost: &[&str], tried: Option<Tried>) {
        for child in lost {
            self.report(Report::Gone { conn: conn.name.clone(), child: Some((*child).to_owned()) });
        }
        let lost = lost.iter().map(|name| Arc::new(conn.child(name).expect("a child").clone())).collect();
        let (ike, conn, end) = (IkeId(1), conn.clone(), how.clone());
        self.report(Report::Ended(Ended { ike, conn, end, lost, tried }));
    }

    fn report(&mut self, report: Report) {
        self.tunnels.report(self.now, &mut self.rng, report, &|_, _| false);
    }

    /// Reports that the child `net` of `gw` stands on one SA more.
    fn up(&mut self) {
        self.report(Report::Up { conn: "gw".to_owned(), child: Some("net".to_owned()) });
    }

    /// Lets time pass, and obeys.
    fn run(&mut self, time: Duration) {
        self.obey();
        let end = self.now + time;
        while let Some(at) = self.tunnels.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.tunnels.handle_timeout(self.now);
            self.obey();
        }
        self.now = end;
    }

    fn load(&mut self, conn: &Connection) {
        self.tunnels.load(conn.clone());
        self.obey();
    }

    /// The only tunnel that is down. Nothing is under way.
    fn down(&self) -> Option<Down> {
        let mut down = self.tunnels.down(self.now, |_, _| None);
        assert!(down.len() <= 1, "{down:?}");
        down.pop()
    }

    /// The connection as it is loaded.
    fn conn(&self) -> Arc<Connection> {
        self.tunnels.policy().connection("gw").expect("it is loaded")
    }

    /// Ends everything: nothing may be left in any table.
    fn end(mut self) {
        self.tunnels.stop();
        self.obey();
        for (table, len) in self.tunnels.tables() {
            assert!(len == 0 || table == "tunnels that are up", "{table}: {len}");
        }
    }
}

/// Connection `gw` with a child `net` that loading starts.
fn gw(start_action: ChildAction) -> Connection {
    let [mut conn, _] = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    conn.children[0].start_action = start_action;
    conn.keyingtries = 0;
    conn
}

fn request() -> Unanswered {
    let (local, remote) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
    Unanswered { local, remote, exchange: ExchangeType::IKE_SA_INIT, sent: 6, before: None }
}

fn unanswered() -> Close {
    Close::NoAnswer(Path::NoAnswer { request: request() }.into())
}

fn no_answer() -> Says {
    Says::No(unanswered())
}

fn refused() -> Diagnosis {
    KeyExchange::peer_error(NotifyType::NO_PROPOSAL_CHOSEN).into()
}

#[test]
fn a_yes_brings_the_tunnel_up_and_nothing_is_down() {
    let mut w = World::new(Says::Yes);
    w.load(&gw(ChildAction::Start));
    assert_eq!(w.starts.len(), 1);
    assert_eq!((w.starts[0].1.conn.as_str(), &w.starts[0].1.children), ("gw", &vec![Some("net".to_owned())]));
    w.run(3_600 * S);
    assert_eq!((w.starts.len(), w.down()), (1, None));
    // The same once more changes nothing.
    w.load(&gw(ChildAction::Start));
    assert_eq!((w.starts.len(), w.orders.len()), (1, 0));
    w.end();
}

#[test]
fn a_no_is_repeated_with_growing_pauses_and_the_reason_is_kept() {
    let mut w = World::new(Says::No(Close::Failed(refused())));
    w.load(&gw(ChildAction::Start));
    w.run(3_600 * S);
    let at: Vec<Duration> = w.starts.iter().map(|(at, _)| *at).collect();
    let mut most = 5 * S;
    for pair in at.windows(2) {
        let pause = pair[1] - pair[0];
        assert!(pause >= most / 2 && pause <= most, "{pause:?} of {most:?}");
        most = (most * 2).min(300 * S);
    }
    let numbers: Vec<u32> = w.starts.iter().map(|(_, start)| start.number).collect();
    assert_eq!(numbers, (1..=at.len() as u32).collect::<Vec<_>>());
    let down = w.down().expect("a tunnel that is down");
    assert_eq!((down.why, down.since), (Some(refused()), 3_600 * S));
    assert!(matches!(down.next, Next::In { pause, .. } if pause <= 300 * S), "{:?}", down.next);
    // It comes up at last.
    w.says = Says::Yes;
    w.run(300 * S);
    assert_eq!(w.down(), None);
    w.end();
}

#[test]
fn what_is_tried_on_command_has_as_many_tries_as_are_configured() {
    let mut w = World::new(no_answer());
    w.load(&Connection { keyingtries: 3, ..gw(ChildAction::None) });
    let start = w.tunnels.command(Some("gw"), Some("net")).expect("a known child");
    w.start(Start { ticket: Some(Ticket(7)), ..start });
    w.run(3_600 * S);
    let numbers: Vec<u32> = w.starts.iter().map(|(_, start)| start.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    // Each try but the first repeats another, and the protocol is told after the last.
    let repeats: Vec<_> = w.starts.iter().map(|(_, start)| start.repeats).collect();
    assert_eq!(repeats, [None, Some(IkeId(1)), Some(IkeId(1))]);
    assert_eq!(w.orders, [Order::GivenUp { ike: IkeId(1), stays: None }]);
    assert_eq!(w.down().map(|down| down.next), Some(Next::Nothing));
    w.end();
}

#[test]
fn a_no_to_a_command_is_final_and_no_answer_is_not() {
    for (how, starts) in [(Close::Failed(refused()), 1), (unanswered(), 2)] {
        let mut w = World::new(Says::No(how));
        w.load(&Connection { keyingtries: 2, ..gw(ChildAction::None) });
        let start = w.tunnels.command(None, Some("net")).expect("a known child");
        w.start(start);
        w.run(3_600 * S);
        assert_eq!(w.starts.len(), starts);
        w.end();
    }
}

#[test]
fn commands_that_cannot_be_begun_say_why() {
    let mut w = World::new(Says::Yes);
    let mut conn = gw(ChildAction::None);
    conn.children.push(config::child("shunt", "10.1.0.0/24", "10.9.0.0/24"));
    conn.children[1].kind = ChildKind::Drop;
    w.load(&conn);
    let mut why =
        |conn, child| w.tunnels.command(conn, child).map_err(|why| why.to_string()).expect_err("a refusal");
    assert_eq!(why(Some("x"), None), "IKE_SA config 'x' not found");
    assert_eq!(why(Some("gw"), Some("x")), "CHILD_SA config 'x' not found");
    assert_eq!(why(None, Some("shunt")), "'shunt' is a shunt, there is nothing to negotiate");
    w.tunnels.stop();
    assert_eq!(w.tunnels.command(None, Some("net")), Err(NotDone::Stopping.into()));
}

#[test]
fn so_many_are_under_way_at_once_while_nobody_answers() {
    let mut w = World::new(Says::Nothing);
    for n in 0..2 * STARTS_AT_ONCE + 1 {
        w.tunnels.load(Connection { name: n.to_string(), ..gw(ChildAction::Start) });
    }
    w.obey();
    assert_eq!(w.starts.len(), STARTS_AT_ONCE);
    w.run(START_COUNTED);
    assert_eq!(w.starts.len(), 2 * STARTS_AT_ONCE);
    // One that has ended makes room for the next.
    let last = w.starts.last().expect("an attempt").1.id;
    w.report(Report::Over(last));
    w.obey();
    assert_eq!(w.starts.len(), 2 * STARTS_AT_ONCE + 1);
    w.end();
}

#[test]
fn the_end_of_an_ike_sa_does_what_the_configuration_says() {
    let lost = || Close::Lost(Path::PeerDead { request: request(), silent: 165, icmp: None }.into());
    for (how, dpd, close, starts, traps) in [
        (lost(), ChildAction::Start, ChildAction::None, 1, 0),
        (lost(), ChildAction::Trap, ChildAction::Start, 0, 1),
        (lost(), ChildAction::None, ChildAction::Start, 0, 0),
        (Close::ByPeer, ChildAction::None, ChildAction::Start, 1, 0),
        (Close::ByUs, ChildAction::Start, ChildAction::Start, 0, 0),
        (Close::Replaced, ChildAction::Start, ChildAction::Start, 0, 0),
    ] {
        let mut w = World::new(Says::Yes);
        let mut conn = gw(ChildAction::None);
        (conn.children[0].dpd_action, conn.children[0].close_action) = (dpd, close);
        w.load(&conn);
        w.up();
        let conn = w.conn();
        w.ended(&conn, &how, &["net"], None);
        let listed = w.down().and_then(|down| down.why);
        w.obey();
        let trapped = w.orders.iter().filter(|o| matches!(o, Order::Trap { .. })).count();
        assert_eq!((w.starts.len(), trapped), (starts, traps), "{how:?}");
        let trouble = !matches!(how, Close::ByUs | Close::Replaced);
        assert_eq!(listed, trouble.then(|| how.reason()), "{how:?}");
        w.end();
    }
}

#[test]
fn a_tunnel_that_stands_on_another_sa_is_not_down() {
    let mut w = World::new(Says::Yes);
    w.load(&gw(ChildAction::None));
    w.up();
    w.up();
    let conn = w.conn();
    w.ended(&conn, &Close::ByPeer, &["net"], None);
    assert_eq!(w.down(), None);
    w.ended(&conn, &Close::ByPeer, &["net"], None);
    assert_eq!(w.down().map(|down| (down.why, down.next)), {
        Some((Some(Close::ByPeer.reason()), Next::Nothing))
    });
    w.end();
}

#[test]
fn a_message_that_nobody_can_read_is_not_repeated_at_once() {
    let mut w = World::new(Says::Yes);
    let mut conn = gw(ChildAction::None);
    conn.children[0].dpd_action = ChildAction::Start;
    w.load(&conn);
    w.up();
    let conn = w.conn();
    w.ended(&conn, &Close::Syntax(KeyExchange::PeerCannotRead { exchange: None }.into()), &["net"], None);
    w.obey();
    assert_eq!(w.starts.len(), 0);
    w.run(6 * S);
    assert_eq!((w.starts.len(), w.down()), (1, None));
    w.end();
}

#[test]
fn attempts_without_a_route_are_made_when_routes_change() {
    let mut w = World::new(Says::No(Close::NoRoute(Path::NoRoute { remote: request().remote.ip() }.into())));
    w.load(&gw(ChildAction::Start));
    w.run(1_000 * S);
    let tries = w.starts.len();
    w.says = Says::Yes;
    w.tunnels.routes_changed(w.now, &mut w.rng);
    w.run(RETRY_ROUTED);
    assert_eq!((w.starts.len(), w.down()), (tries + 1, None));
    w.end();
}

#[test]
fn a_reload_ends_attempts_of_a_child_that_is_gone_and_tells_who_waits() {
    let mut w = World::new(no_answer());
    w.load(&gw(ChildAction::None));
    let (conn, child, ticket) = ("gw".to_owned(), "net".to_owned(), Some(Ticket(7)));
    w.report(Report::Busy { ike: IkeId(1), conn, child, ticket });
    w.obey();
    let words = w.log.concat();
    let pause = words.strip_prefix("the peer is busy, trying CHILD_SA net again in ");
    let pause = pause.and_then(|rest| rest.strip_suffix(" seconds")).and_then(|n| n.parse().ok());
    assert!(pause.is_some_and(|pause: u64| (5..15).contains(&pause)), "{words}");
    let mut other = gw(ChildAction::None);
    other.children[0].name = "other".to_owned();
    w.load(&other);
    let [Order::Change { old, new }, Order::Cancel { ticket: Some(Ticket(7)), why, .. }] = &w.orders[..]
    else {
        panic!("{:?}", w.orders);
    };
    assert_eq!((old.children[0].name.as_str(), new.children[0].name.as_str()), ("net", "other"));
    assert_eq!(*why, NotDone::ChildRemoved.into());
    w.run(60 * S);
    assert_eq!((w.starts.len(), w.down()), (0, None));
    w.end();
}

#[test]
fn a_changed_connection_does_not_wait_for_the_time_of_its_next_attempt() {
    let mut w = World::new(no_answer());
    w.load(&gw(ChildAction::Start));
    w.run(1_000 * S);
    w.says = Says::Yes;
    w.load(&Connection { remote_port: 501, ..gw(ChildAction::Start) });
    assert_eq!(w.starts.last().map(|(at, start)| (*at, start.number)), Some((1_000 * S, 1)));
    assert_eq!(w.down(), None);
    w.end();
}

#[test]
fn unloading_removes_traps_and_ends_what_loading_has_started() {
    let mut w = World::new(Says::Yes);
    w.load(&gw(ChildAction::Trap));
    assert!(w.tunnels.has_trap("gw", "net"));
    let [Order::Trap { local, remote, .. }] = w.orders[..] else { panic!("{:?}", w.orders) };
    assert_eq!((local, remote), (config::ip("192.0.2.1"), config::ip("192.0.2.2")));
    let conn = w.conn();
    assert!(w.tunnels.unload("gw") && !w.tunnels.unload("gw"));
    w.obey();
    let untrap = Order::Untrap { conn: "gw".to_owned(), child: "net".to_owned() };
    assert_eq!(w.orders[1..], [untrap, Order::End(conn)]);
    w.end();
}

#[test]
fn a_command_installs_and_removes_a_trap_and_says_why_it_cannot() {
    let mut w = World::new(Says::Yes);
    w.load(&gw(ChildAction::None));
    assert!(w.orders.is_empty() && !w.tunnels.unroute_command(None, "net"));
    assert_eq!(w.tunnels.route_command(None, "net"), Ok("gw".to_owned()));
    w.obey();
    assert!(matches!(w.orders[..], [Order::Trap { .. }]) && w.tunnels.has_trap("gw", "net"));
    // Twice is once.
    w.tunnels.route_command(Some("gw"), "net").unwrap();
    w.obey();
    assert_eq!(w.orders.len(), 1);
    assert!(!w.tunnels.unroute_command(Some("other"), "net"));
    assert!(w.tunnels.unroute_command(Some("gw"), "net"));
    w.obey();
    assert!(matches!(w.orders[1..], [Order::Untrap { .. }]) && !w.tunnels.wants_trap("gw", "net"));
    let why = |w: &mut World, conn: Option<&str>, child: &str| {
        w.tunnels.route_command(conn, child).unwrap_err().to_string()
    };
    assert!(why(&mut w, None, "nope").contains("nope"));
    assert!(why(&mut w, Some("nope"), "net").contains("nope"));
    let mut anyone = Connection { remote_addrs: vec![AddrSpec::Any], ..gw(ChildAction::None) };
    w.load(&anyone);
    assert!(why(&mut w, None, "net").contains("remote address unknown"));
    anyone.children[0].policies = false;
    w.load(&anyone);
    assert!(why(&mut w, None, "net").contains("without policies"));
    assert!(w.tunnels.unload("gw"));
    w.obey();
    w.end();
}

#[test]
fn a_trap_that_waits_for_a_name_is_removed_by_command_too_and_shunts_go_first() {
    let mut w = World::new(Says::Yes);
    w.load(&named(ChildAction::None));
    w.tunnels.route_command(None, "net").unwrap();
    w.obey();
    assert!(w.tunnels.wants_trap("gw", "net") && !w.tunnels.has_trap("gw", "net"));
    assert!(w.tunnels.unroute_command(None, "net") && !w.tunnels.wants_trap("gw", "net"));
    let mut shunt = Connection { name: "z".to_owned(), ..gw(ChildAction::Trap) };
    shunt.children[0].kind = ironswan_keying::ChildKind::Pass;
    w.load(&gw(ChildAction::Trap));
    w.load(&shunt);
    assert!(w.tunnels.has_trap("gw", "net") && w.tunnels.has_trap("z", "net"));
    assert!(w.tunnels.unroute_command(None, "net"));
    assert!(w.tunnels.has_trap("gw", "net") && !w.tunnels.has_trap("z", "net"));
}

/// The same with a peer of this name.
fn named(start_action: ChildAction) -> Connection {
    let name = AddrSpec::Name("peer.example".to_owned());
    let mut conn = Connection { remote_addrs: vec![name], ..gw(start_action) };
    conn.children[0].remote_ts =
        vec![ironswan_keying::TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }];
    conn
}

#[test]
fn a_name_is_kept_fresh_and_a_trap_waits_for_it() {
    let mut w = World::new(Says::Yes);
    w.load(&named(ChildAction::Trap));
    assert_eq!(w.orders, [Order::Resolve("peer.example".to_owned())]);
    let answer = |w: &mut World, addrs: &[IpAddr]| {
        w.orders.clear();
        let addrs = if addrs.is_empty() { Err(Unresolved::NoAddress) } else { Ok(addrs.to_vec()) };
        let name = "peer.example".to_owned();
        w.report(Report::Resolved { name, addrs, ike: None });
        w.obey();
    };
    // Nothing is known: asked again with growing pauses, and said once.
    let mut pause = NAME_RETRY;
    for _ in 0..3 {
        answer(&mut w, &[]);
        assert!(w.orders.is_empty() && !w.tunnels.has_trap("gw", "net"));
        w.run(pause * 4 / 5 - S / 10);
        assert!(w.orders.is_empty());
        w.run(pause / 5 + S / 10);
        assert_eq!(w.orders, [Order::Resolve("peer.example".to_owned())]);
        pause *= 2;
    }
    assert_eq!(w.log.iter().filter(|line| line.contains("cannot be resolved")).count(), 1);
    let [a, b] = ["192.0.2.7", "192.0.2.8"].map(config::ip);
    answer(&mut w, &[a]);
    assert!(matches!(w.orders[..], [Order::Trap { remote, .. }] if remote == a), "{:?}", w.orders);
    w.run(NAME_PERIOD);
    // A known address stays first, whatever the order of the answer; one that fails changes
    // nothing.
    answer(&mut w, &[b, a]);
    assert_eq!(w.tunnels.policy().hosts(&w.conn().remote_addrs), [a, b]);
    w.run(NAME_PERIOD);
    answer(&mut w, &[]);
    assert_eq!((w.orders.len(), w.tunnels.policy().hosts(&w.conn().remote_addrs)), (0, vec![a, b]));
    w.run(NAME_RETRY);
    answer(&mut w, &[b]);
    assert!(matches!(w.orders[..], [Order::Untrap { .. }, Order::Trap { remote, .. }] if remote == b));
    w.end();
}

#[test]
fn a_trap_whose_own_address_is_open_asks_for_the_route() {
    let mut w = World::new(Says::Yes);
    let mut conn = Connection { local_addrs: vec![AddrSpec::Any], ..gw(ChildAction::Trap) };
    conn.children[0].local_ts = named(ChildAction::None).children[0].remote_ts.clone();
    w.load(&conn);
    let remote = config::ip("192.0.2.2");
    let asked = Order::Route { conn: "gw".to_owned(), child: "net".to_owned(), remote };
    assert_eq!(w.orders, [asked]);
    let (conn, child, local) = ("gw".to_owned(), "net".to_owned(), Some(config::ip("192.0.2.9")));
    w.report(Report::TrapRouted { conn, child, local });
    w.obey();
    assert!(matches!(w.orders[1], Order::Trap { local, .. } if local == config::ip("192.0.2.9")));
    w.end();
}

#[test]
fn traffic_starts_a_trapped_child_but_not_while_an_attempt_waits() {
    let mut w = World::new(no_answer());
    w.load(&gw(ChildAction::Trap));
    let packet = ironswan_wire::selector::PacketSelector {
        src: config::ip("10.1.0.1"),
        dst: config::ip("10.2.0.1"),
        protocol: 17,
        src_port: Some(7),
        dst_port: Some(7),
    };
    let acquired = Report::Acquired { conn: "gw".to_owned(), child: "net".to_owned(), packet };
    w.report(acquired.clone());
    w.obey();
    assert!(w.starts[0].1.packet.is_some() && w.starts[0].1.automatic);
    w.report(acquired);
    w.obey();
    assert_eq!(w.starts.len(), 1);
    w.end();
}

#[test]
fn the_same_seed_and_the_same_reports_give_the_same_orders() {
    let story = || {
        let mut w = World::new(no_answer());
        w.load(&gw(ChildAction::Start));
        w.run(10_000 * S);
        w.starts
    };
    let starts = story();
    assert!(starts.len() > 30 && starts == story());
}
