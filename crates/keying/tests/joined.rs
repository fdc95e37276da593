//! Policy and a protocol joined: a protocol of ten lines, and two of them that share one policy.
#![allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Seeded;
use ironswan_keying::diagnosis::{KeyExchange, NotDone, Path, Unanswered};
use ironswan_keying::limits::{RETRY_ROUTED, STARTS_AT_ONCE};
use ironswan_keying::tunnels::{Ended, Start, Tried};
use ironswan_keying::{
    ChildAction, Close, Connection, Diagnosis, IkeId, Joined, Limits, Next, Order, Policy, Protocol, Report,
    Target, Ticket,
};
use ironswan_testkit::config;
use ironswan_wire::iana::ExchangeType;

const S: Duration = Duration::from_secs(1);

/// A protocol that brings up whatever it is asked for, or says no for this reason, or nothing.
struct Ten {
    policy: Arc<dyn Policy>,
    says_no: Option<Close>,
    silent: bool,
    reports: VecDeque<Report>,
    /// Attempts and all other orders, in their order.
    obeyed: Vec<Order>,
    /// Children that it is bringing up.
    at_work: Vec<String>,
    limits: Option<Limits>,
}

impl Ten {
    fn new(policy: Arc<dyn Policy>) -> Self {
        let (reports, obeyed, at_work) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { policy, says_no: None, silent: false, reports, obeyed, at_work, limits: None }
    }

    fn start(&mut self, start: &Start) {
        let conn = self.policy.connection(&start.conn).expect("a loaded connection");
        for child in &start.children {
            self.reports.push_back(Report::Begun { start: start.clone(), child: child.clone() });
            if self.says_no.is_none() && !self.silent {
                self.reports.push_back(Report::Up { conn: conn.name.clone(), child: child.clone() });
            }
        }
        if let Some(end) = self.says_no.clone() {
            let tried = Some(Tried {
                children: start.children.clone(),
                number: start.number,
                addresses: 1,
                automatic: start.automatic,
                prefer: start.prefer,
                takes_over: start.takes_over,
                goes_on: false,
            });
            let ike = IkeId(start.id.0);
            self.reports.push_back(Report::Ended(Ended { ike, conn, end, lost: Vec::new(), tried }));
        }
        if !self.silent {
            self.reports.push_back(Report::Over(start.id));
        }
    }

    fn starts(&self) -> Vec<&Start> {
        self.obeyed
            .iter()
            .filter_map(|o| if let Order::Start(start) = o { Some(start) } else { None })
            .collect()
    }
}

impl Protocol for Ten {
    fn obey(&mut self, _: Instant, order: Order) {
        if let Order::Start(start) = &order {
            self.start(start);
        }
        self.obeyed.push(order);
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn initiate(&mut self, _: Instant, start: Start) -> Result<Ticket, Diagnosis> {
        match &self.says_no {
            Some(no) => Err(no.reason()),
            None => {
                self.start(&start);
                Ok(Ticket(start.id.0))
            }
        }
    }

    fn terminate(&mut self, _: Instant, _: &Target, _: bool) -> Result<(usize, Ticket), Diagnosis> {
        Err(NotDone::NoMatch { to: "find" }.into())
    }

    fn rekey(&mut self, _: Instant, _: &Target, _: bool) -> Result<(usize, Ticket), Diagnosis> {
        Err(NotDone::NoMatch { to: "find" }.into())
    }

    fn shutdown(&mut self, _: Instant) {}

    fn network_changed(&mut self, _: Instant, _: &[IpAddr]) {}

    fn set_limits(&mut self, _now: Instant, limits: Limits) {
        self.limits = Some(limits);
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn progress(&self, _: &str, child: Option<&str>) -> Option<String> {
        self.at_work.iter().find(|name| child == Some(name)).map(|_| "it is asked".to_owned())
    }

    fn under_way(&self, _: &str) -> Option<String> {
        self.at_work.first().map(|_| "it is asked".to_owned())
    }

    fn tables(&self) -> Vec<(&'static str, usize)> {
        vec![("reports", self.reports.len())]
    }
}

fn joined<P: Protocol>(protocol: impl FnOnce(Arc<dyn Policy>) -> P) -> Joined<P> {
    Joined::new(Limits::default(), Box::new(Seeded::new(1)), protocol)
}

/// Connection `name` with a child `net`.
fn conn(name: &str, start_action: ChildAction) -> Connection {
    let [mut conn, _] = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    conn.children[0].start_action = start_action;
    Connection { name: name.to_owned(), keyingtries: 0, ..conn }
}

/// The end of an attempt that nobody has answered.
fn no_answer() -> Close {
    let (local, remote) = (SocketAddr::from(([192, 0, 2, 1], 500)), SocketAddr::from(([192, 0, 2, 2], 500)));
    let request = Unanswered { local, remote, exchange: ExchangeType::IKE_SA_INIT, sent: 6, before: None };
    Close::NoAnswer(Path::NoAnswer { request }.into())
}

/// Lets time pass until `end`.
fn run<P: Protocol>(joined: &mut Joined<P>, now: &mut Instant, end: Instant) {
    while let Some(at) = joined.poll_timeout().filter(|at| *at <= end) {
        *now = at.max(*now);
        joined.handle_timeout(*now);
    }
    *now = end;
}

#[test]
fn a_no_comes_back_as_the_next_attempt_and_a_yes_ends_the_trouble() {
    let (mut j, mut now) = (joined(Ten::new), Instant::now());
    j.outputs().says_no = Some(no_answer());
    j.load_connection(now, conn("gw", ChildAction::Start));
    let down = j.down(now);
    assert_eq!((down.len(), &down[0].why), (1, &Some(no_answer().reason())));
    assert!(matches!(down[0].next, Next::In { .. }), "{:?}", down[0].next);
    let end = now + 60 * S;
    run(&mut j, &mut now, end);
    let tries = j.protocol().starts().len();
    assert!(tries > 2, "{tries}");
    // Every attempt but the first names the one that it repeats.
    let repeats: Vec<_> = j.protocol().starts().iter().map(|start| start.repeats).collect();
    let ids: Vec<_> = j.protocol().starts().iter().map(|start| Some(IkeId(start.id.0))).collect();
    assert_eq!((repeats[0], &repeats[1..]), (None, &ids[..tries - 1]));
    j.outputs().says_no = None;
    let end = now + 300 * S;
    run(&mut j, &mut now, end);
    assert_eq!((j.down(now), j.poll_timeout()), (Vec::new(), None));
}

#[test]
fn a_command_is_answered_at_once_and_overtakes_attempts_to_come() {
    let (mut j, now) = (joined(Ten::new), Instant::now());
    j.outputs().says_no = Some(no_answer());
    j.load_connection(now, conn("gw", ChildAction::Start));
    assert!(j.poll_timeout().is_some());
    let refused = Err(no_answer().reason());
    assert_eq!(j.initiate(now, Some("gw"), Some("net")), refused);
    assert_eq!(j.poll_timeout(), None, "the attempt to come is forgotten");
    j.outputs().says_no = None;
    assert!(j.initiate(now, None, Some("net")).is_ok());
    assert_eq!(j.down(now), []);
    assert_eq!(j.initiate(now, Some("other"), None), Err(NotDone::NotLoaded("other".to_owned()).into()));
}

#[test]
fn terminating_a_connection_forgets_its_attempts_to_come_and_routes_bring_them_forward() {
    let (mut j, mut now) = (joined(Ten::new), Instant::now());
    j.outputs().says_no = Some(Close::NoRoute(Path::NoRoute { remote: config::ip("192.0.2.2") }.into()));
    j.load_connection(now, conn("gw", ChildAction::Start));
    let end = now + 1_000 * S;
    run(&mut j, &mut now, end);
    j.network_changed(now, &[config::ip("192.0.2.1")]);
    assert!(j.poll_timeout().is_some_and(|at| at <= now + RETRY_ROUTED));
    let whole = Target { ike: Some("gw".to_owned()), ..Target::default() };
    let child = Target { child: Some("net".to_owned()), ..whole.clone() };
    assert!(j.terminate(now, &child, false).is_err() && j.poll_timeout().is_some());
    assert!(j.terminate(now, &whole, false).is_err() && j.poll_timeout().is_none());
}

#[test]
fn a_child_that_is_made_anew_counts_as_down_after_it_was_closed() {
    for (at_work, down) in [(vec!["net".to_owned()], 1), (Vec::new(), 0)] {
        let (mut j, now) = (joined(Ten::new), Instant::now());
        j.load_connection(now, conn("gw", ChildAction::None));
        let of = || ("gw".to_owned(), Some("net".to_owned()));
        let ((conn, child), why) = (of(), Diagnosis::from(KeyExchange::PeerDeleted { child: true }));
        let ended = why.to_string();
        j.call(now, |ten| ten.reports.push_back(Report::Failed { conn, child, why }));
        assert_eq!(j.obstacle(["gw"].into_iter(), Some("net")), Some(ended));
        j.outputs().at_work = at_work;
        let (conn, child) = of();
        j.call(now, |ten| ten.reports.push_back(Report::Unwanted { conn, child }));
        assert_eq!(j.down(now).len(), down);
        let waits = (down > 0).then(|| "it is asked".to_owned());
        assert_eq!(j.obstacle(["gw"].into_iter(), Some("net")), waits);
    }
}

#[test]
fn after_the_shutdown_nothing_is_loaded_and_nothing_begins() {
    let (mut j, mut now) = (joined(Ten::new), Instant::now());
    j.outputs().says_no = Some(no_answer());
    j.load_connection(now, conn("gw", ChildAction::Start));
    j.set_limits(now, Limits { ike_sa_max: 7, ..Limits::default() });
    assert_eq!(j.protocol().limits.as_ref().map(|limits| limits.ike_sa_max), Some(7));
    j.shutdown(now);
    let starts = j.protocol().starts().len();
    assert!(j.is_stopping() && j.connections().is_empty());
    j.load_connection(now, conn("gw", ChildAction::Start));
    let end = now + 600 * S;
    run(&mut j, &mut now, end);
    assert_eq!((j.protocol().starts().len(), j.connections().len()), (starts, 0));
    assert_eq!(j.initiate(now, Some("gw"), None), Err(NotDone::Stopping.into()));
    assert_eq!(j.tables().iter().filter(|(_, len)| *len > 0).count(), 0, "{:?}", j.tables());
}

/// Two versions of a protocol behind one policy. Connections of the first begin with `1`.
struct Both([Ten; 2]);

impl Both {
    fn of(&mut self, conn: &str) -> &mut Ten {
        &mut self.0[usize::from(!conn.starts_with('1'))]
    }
}

impl Protocol for Both {
    fn obey(&mut self, now: Instant, order: Order) {
        if let Order::Start(start) = &order {
            self.of(&start.conn.clone()).obey(now, order);
        }
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.0.iter_mut().find_map(Protocol::poll_report)
    }

    fn initiate(&mut self, now: Instant, start: Start) -> Result<Ticket, Diagnosis> {
        self.of(&start.conn.clone()).initiate(now, start)
    }

    fn terminate(&mut self, now: Instant, of: &Target, force: bool) -> Result<(usize, Ticket), Diagnosis> {
        self.0[0].terminate(now, of, force)
    }

    fn rekey(&mut self, now: Instant, of: &Target, reauth: bool) -> Result<(usize, Ticket), Diagnosis> {
        self.0[0].rekey(now, of, reauth)
    }

    fn shutdown(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|ten| ten.shutdown(now));
    }

    fn network_changed(&mut self, now: Instant, addresses: &[IpAddr]) {
        self.0.iter_mut().for_each(|ten| ten.network_changed(now, addresses));
    }

    fn set_limits(&mut self, now: Instant, limits: Limits) {
        self.0.iter_mut().for_each(|ten| ten.set_limits(now, limits.clone()));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|ten| ten.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(Protocol::poll_timeout).min()
    }

    fn progress(&self, conn: &str, child: Option<&str>) -> Option<String> {
        self.0.iter().find_map(|ten| ten.progress(conn, child))
    }

    fn under_way(&self, conn: &str) -> Option<String> {
        self.0.iter().find_map(|ten| ten.under_way(conn))
    }

    fn tables(&self) -> Vec<(&'static str, usize)> {
        self.0.iter().flat_map(Protocol::tables).collect()
    }
}

#[test]
fn two_versions_of_a_protocol_share_one_policy_and_its_pace() {
    let now = Instant::now();
    let mut j = joined(|policy| Both([0, 1].map(|_| Ten::new(policy.clone()))));
    j.outputs().0.iter_mut().for_each(|ten| ten.silent = true);
    for n in 0..STARTS_AT_ONCE {
        for version in [1, 2] {
            j.load_connection(now, conn(&format!("{version}-{n}"), ChildAction::Start));
        }
    }
    let [first, second] = &j.protocol().0;
    assert_eq!((first.starts().len(), second.starts().len()), (STARTS_AT_ONCE / 2, STARTS_AT_ONCE / 2));
    assert!(first.starts().iter().all(|start| start.conn.starts_with("1-")));
    assert!(second.starts().iter().all(|start| start.conn.starts_with("2-")));
    // One list of tunnels that are down, and one command for both.
    assert_eq!(j.down(now).len(), STARTS_AT_ONCE);
    j.outputs().0.iter_mut().for_each(|ten| ten.silent = false);
    for name in ["1-0", "2-0"] {
        assert!(j.initiate(now, Some(name), Some("net")).is_ok());
    }
    assert_eq!(j.down(now).len(), STARTS_AT_ONCE - 2);
}
