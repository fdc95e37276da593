//! From the wish for an IKE_SA to IKE_SA_INIT: the peer's names and addresses, and ours for it.

use std::sync::Arc;
use std::time::Instant;

use super::unanswered::UnansweredInit;
use super::{Endpoint, Roam};
use crate::context::initiate::OF_POLICY;
use crate::event::{Completion, IkeId};
use crate::sa::{Attempt, IkeSa};
use crate::task::{NewChild, Task};
use ironswan_keying::diagnosis::{Authentication, NotDone};
use ironswan_keying::tunnels::Start;
use ironswan_keying::{ChildConfig, Connection, Diagnosis};

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
            Some(why) => Err(why),
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
        let id = self.shared.spis.new_ike_id();
        let (spi_i, init) = match unanswered {
            Some(old) if self.shared.spis.take_ike(old.spi_i, id) => (old.spi_i, old.init),
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
