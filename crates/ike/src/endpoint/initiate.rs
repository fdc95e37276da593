//! From the wish for an IKE_SA to IKE_SA_INIT: the peer's names and addresses, and ours for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::context::Context;
use super::unanswered::UnansweredInit;
use super::{Close, Endpoint, Roam};
use crate::event::{Completion, IkeId, Level, Request, RequestId};
use crate::sa::{Attempt, IkeSa, Wait};
use crate::task::{Exchange, NewChild, Task};
use ironswan_keying::choices::{address, way};
use ironswan_keying::diagnosis::{Authentication, NotDone, Path, Unresolved};
use ironswan_keying::tunnels::Start;
use ironswan_keying::{AddrSpec, ChildConfig, Connection, Diagnosis, Report};

/// Number of no request: an IKE_SA that waits for policy.
const OF_POLICY: RequestId = RequestId(0);

/// The way to IKE_SA_INIT, while an address is looked up.
enum Begin {
    /// The last of these DNS names is looked up, then the others, and then the peer's address is
    /// known.
    Resolve(Vec<String>),
    /// Policy takes over the addresses of a name, or the reason why there are none. These names are
    /// still to be looked up.
    Known(Vec<String>, Option<Unresolved>),
    /// The routing table is asked for our own address towards this one.
    Route(IpAddr),
}

impl Exchange for Begin {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::Resolve(names) => cx.name_known(sa, names, completion),
            Self::Known(names, why) => cx.next_name(sa, names, why),
            Self::Route(_) => cx.route_known(sa, completion),
        }
    }

    fn name(&self) -> &'static str {
        Task::Init.name()
    }

    fn waits_for(&self) -> String {
        match self {
            Self::Resolve(names) => {
                let name = names.last().map_or("", String::as_str);
                format!("waiting for the resolver to look up '{name}'")
            }
            Self::Known(..) => "waiting to begin".to_owned(),
            Self::Route(peer) => format!("waiting for the route to {peer}"),
        }
    }
}

impl Endpoint {
    /// Looks whether a connection can be initiated now; the error is the reason why not.
    pub(super) fn may_begin(&self, conn: &Connection) -> Result<(), Diagnosis> {
        if self.sas.len() >= self.limits().ike_sa_max {
            let (peer, max, setting) = (None, self.limits().ike_sa_max, "ike_sa_max");
            return Err(Authentication::IkeLimit { peer, max, setting }.into());
        }
        if conn.names_to_initiate().is_empty() && self.policy().hosts(&conn.remote_addrs).is_empty() {
            return Err(NotDone::NoAddress.into());
        }
        match self.options.ports.foreign(conn) {
            Some(why) => Err(why.into()),
            None => Ok(()),
        }
    }

    /// Makes a new IKE_SA and begins IKE_SA_INIT.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        conn: Arc<Connection>,
        child: Option<Arc<ChildConfig>>,
        start: &Start,
        unanswered: Option<UnansweredInit>,
    ) {
        let names = conn.names_to_initiate();
        // The IKE_SA that the new one should replace may be gone by now.
        let replaces = start.takes_over.and_then(|old| self.heir(old));
        let id = self.spis.new_ike_id();
        let (spi_i, init) = match unanswered {
            Some(old) if self.spis.take_ike(old.spi_i, id) => (old.spi_i, old.init),
            _ => (self.aside(now, |cx| cx.new_ike_spi(id)), Box::default()),
        };
        let attempt = Attempt {
            start: Some(start.id),
            number: start.number,
            automatic: start.automatic,
            ticket: start.ticket.filter(|_| child.is_none()),
            ..Attempt::default()
        };
        let roam = Roam { replaces, prefer: start.prefer, ..Roam::default() };
        let local_port = self.options.ports.of(&conn);
        let mut sa = Box::new(IkeSa::initiate(id, conn, (spi_i, init), local_port, (attempt, roam), now));
        if let Some(config) = child {
            let new = NewChild { packet: start.packet, ..NewChild::new(config, None, start.ticket) };
            sa.work_mut().push(Task::Child(Box::new(new)));
        }
        self.by_conn.entry(sa.conn().name.clone()).or_default().insert(id);
        self.on(now, &mut sa, |cx, sa| cx.next_name(sa, names, None));
        self.pump(now, &mut sa);
        self.settle(sa);
    }

    /// Policy has taken over the addresses of a name that this IKE_SA has had looked up.
    pub(super) fn go_on(&mut self, now: Instant, ike: IkeId) {
        // The addresses are policy's: nothing is left to say of them.
        let nothing = Completion::Addresses(Ok(Vec::new()));
        self.with_sa(now, ike, |ep, sa| ep.resume(now, sa, OF_POLICY, nothing));
    }
}

impl Context<'_> {
    /// Looks up the last of these names; without any, goes on with what is known. `why` is the
    /// reason why the name before it has no address.
    fn next_name(&mut self, sa: &mut IkeSa, names: Vec<String>, why: Option<Unresolved>) {
        match names.last().cloned() {
            Some(name) => self.wait_for(sa, Request::Resolve { name }, Begin::Resolve(names)),
            None => self.choose_remote(sa, why),
        }
    }

    /// A name has been looked up.
    fn name_known(&mut self, sa: &mut IkeSa, mut names: Vec<String>, completion: Completion) {
        let Some(name) = names.pop() else { return };
        let addrs = super::addresses(completion);
        let known = !self.policy().hosts(&[AddrSpec::Name(name.clone())]).is_empty();
        if let Err(why) = &addrs
            && known
        {
            let why = Path::NoName { names: vec![name.clone()], why: Some(why.clone()) };
            self.log_why(Level::Warn, sa, "using what it stood for before", &why.into());
        }
        sa.wait_for(Wait { id: OF_POLICY, exchange: Box::new(Begin::Known(names, addrs.clone().err())) });
        self.report(Report::Resolved { name, addrs, ike: Some(sa.id()) });
    }

    /// The routing table has said where we would send from.
    fn route_known(&mut self, sa: &mut IkeSa, completion: Completion) {
        match completion {
            Completion::Route { local: Some(local) }
                if self.policy().means(&sa.conn().local_addrs, local) =>
            {
                sa.set_source(local);
            }
            // Another address of the peer may be of a family that has a route.
            _ if sa.attempt().race.is_none() && sa.attempt().number < sa.attempt().choices => {
                sa.attempt_mut().number += 1;
                self.choose_remote(sa, None);
            }
            Completion::Failed { why } => {
                let why = Path::RouteUnknown { remote: sa.remote().ip(), why: why.sentence() };
                self.close(sa, Close::NoRoute(why.into()));
            }
            Completion::Route { local: Some(route) } => {
                let configured = sa.conn().local_addrs.iter().map(ToString::to_string).collect();
                let why = Path::NoLocalAddress { configured, remote: sa.remote().ip(), route };
                self.close(sa, Close::NoRoute(why.into()));
            }
            _ => {
                let why = Path::NoRoute { remote: sa.remote().ip() };
                self.close(sa, Close::NoRoute(why.into()));
            }
        }
    }

    /// Takes the peer's address for this attempt, and finds ours for it. The next address is asked
    /// by `race`. `why` is the reason why a name of the peer has no address.
    pub(super) fn choose_remote(&mut self, sa: &mut IkeSa, why: Option<Unresolved>) {
        let hosts = self.policy().hosts(&sa.conn().remote_addrs);
        sa.attempt_mut().choices = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let Some(remote) = address::of_attempt(&hosts, sa.roam().prefer, sa.attempt().number) else {
            let names = sa.conn().names_to_initiate();
            return self.close(sa, Close::Failed(Path::NoName { names, why }.into()));
        };
        sa.path().set_remote_ip(remote);
        self.rival_later(sa);
        let line = format!("initiating IKE_SA {} to {remote}", sa.name());
        self.log(Level::Info, sa, line);
        match way::own(self.policy, sa.conn(), self.addresses, remote.is_ipv4()) {
            Some(local) => {
                sa.set_source(local);
            }
            None => self.wait_for(sa, Request::Route { remote }, Begin::Route(remote)),
        }
    }
}
