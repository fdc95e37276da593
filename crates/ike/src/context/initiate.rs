//! From the wish for an IKE_SA to IKE_SA_INIT: the peer's names and addresses, and ours for it.

use super::Context;
use crate::event::{Completion, Level, Request, RequestId};
use crate::sa::{IkeSa, Wait};
use crate::task::{Exchange, Task};
use ironswan_keying::Close;
use ironswan_keying::choices::{address, way};
use ironswan_keying::diagnosis::{Path, Unresolved};
use ironswan_keying::{AddrSpec, Report};
use std::net::IpAddr;

/// Number of no request: an IKE_SA that waits for policy.
pub(crate) const OF_POLICY: RequestId = RequestId(0);

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

impl Context<'_> {
    /// Looks up the last of these names; without any, goes on with what is known. `why` is the
    /// reason why the name before it has no address.
    pub(crate) fn next_name(&mut self, sa: &mut IkeSa, names: Vec<String>, why: Option<Unresolved>) {
        match names.last().cloned() {
            Some(name) => self.wait_for(sa, Request::Resolve { name }, Begin::Resolve(names)),
            None => self.choose_remote(sa, why),
        }
    }

    /// A name has been looked up.
    fn name_known(&mut self, sa: &mut IkeSa, mut names: Vec<String>, completion: Completion) {
        let Some(name) = names.pop() else { return };
        let addrs = crate::endpoint::addresses(completion);
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
    pub(crate) fn choose_remote(&mut self, sa: &mut IkeSa, why: Option<Unresolved>) {
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
        match way::own(self.settings.policy, sa.conn(), self.settings.addresses, remote.is_ipv4()) {
            Some(local) => {
                sa.set_source(local);
            }
            None => self.wait_for(sa, Request::Route { remote }, Begin::Route(remote)),
        }
    }
}
