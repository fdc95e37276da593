//! Commands of an operator: initiate, terminate, rekey, and the end of everything.

use std::time::Instant;

use super::Endpoint;
use super::carried::Carried;
use super::lifecycle::{queue_rekey_ike, rekeys_ike};
use crate::event::{ChildId, ChildState, IkeId, IkeState, Ticket};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, NewChild, Task};
use ironswan_keying::CommandError;
use ironswan_keying::tunnels::TERMINATED;

/// Which SAs a command is about: everything that is given must match. All `None` matches nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Connection's name.
    pub ike: Option<String>,
    /// Child's name.
    pub child: Option<String>,
    /// IKE_SA's unique id.
    pub ike_id: Option<u64>,
    /// CHILD_SA's unique id.
    pub child_id: Option<u64>,
}

impl Target {
    fn children_only(&self) -> bool {
        self.child.is_some() || self.child_id.is_some()
    }

    fn matches_ike(&self, sa: &IkeSa) -> bool {
        (self.ike.is_some() || self.ike_id.is_some() || self.children_only())
            && self.ike.as_ref().is_none_or(|n| sa.conn.name == *n)
            && self.ike_id.is_none_or(|id| sa.id.0 == id)
    }

    fn children_of(&self, sa: &IkeSa) -> Vec<ChildId> {
        let live = |s| matches!(s, ChildState::Installed | ChildState::Rekeying | ChildState::Installing);
        sa.children
            .values()
            .filter(|c| live(c.state))
            .filter(|c| self.child.as_ref().is_none_or(|n| c.config.name == *n))
            .filter(|c| self.child_id.is_none_or(|id| c.id.0 == id))
            .map(|c| c.id)
            .collect()
    }
}

impl Endpoint {
    /// Brings up a child, or with `child` `None` the IKE_SA alone. `ike` may be left out when a
    /// connection has the child. The ticket's `Done` says how it ended; what is up already is done
    /// at once.
    pub fn initiate(
        &mut self,
        now: Instant,
        ike: Option<&str>,
        child: Option<&str>,
    ) -> Result<Ticket, CommandError> {
        let mut start = self.tunnels.command(ike, child)?;
        let ticket = self.open_ticket(1);
        start.ticket = Some(ticket);
        let begun = self.start(now, &start, child, &mut Carried::default());
        self.run_todo(now);
        begun.map(|()| ticket).map_err(|why| {
            self.tickets.forget(ticket);
            CommandError::Refused(why)
        })
    }

    /// Closes what matches: children when the target names one, IKE_SAs otherwise. With `force`
    /// nothing is waited for. How many there were, and the ticket whose `Done` comes when all are
    /// closed.
    pub fn terminate(
        &mut self,
        now: Instant,
        target: &Target,
        force: bool,
    ) -> Result<(usize, Ticket), CommandError> {
        if let Some(conn) = target.ike.as_ref().filter(|_| !target.children_only()) {
            self.tunnels.cancel(conn);
        }
        let found = self.find(target);
        let count = found.iter().map(|(_, kids)| kids.as_ref().map_or(1, Vec::len)).sum();
        if count == 0 {
            return Err(CommandError::NotFound("a matching SA to terminate was".to_owned()));
        }
        let ticket = self.open_ticket(found.len());
        for (id, kids) in found {
            self.with_sa(now, id, |ep, sa| match kids {
                Some(kids) if force => {
                    let mut spis = Vec::new();
                    for kid in &kids {
                        let gone = ep.remove_child(now, sa, *kid);
                        spis.extend(gone.map(|c| (c.agreed.protocol, c.spi_in)));
                    }
                    sa.queue.push_back(Task::DeleteChild(DeleteChild { spis, ..DeleteChild::default() }));
                    ep.done(Some(ticket), Ok(()));
                }
                Some(kids) => sa.queue.push_back(Task::DeleteChild(DeleteChild::of(kids, Some(ticket)))),
                None if force || sa.state == IkeState::Created => {
                    ep.last_delete(now, sa);
                    ep.done(Some(ticket), Ok(()));
                }
                None if !sa.is_up() => {
                    ep.let_go(now, sa, TERMINATED);
                    ep.done(Some(ticket), Ok(()));
                }
                None => {
                    // Before anything else that waits.
                    let task = DeleteIke { ticket: Some(ticket) };
                    sa.queue.push_front(Task::DeleteIke(task));
                }
            });
        }
        self.run_todo(now);
        Ok((count, ticket))
    }

    /// Rekeys what matches: children when the target names one, IKE_SAs otherwise. Reauthentication
    /// is refused.
    pub fn rekey(
        &mut self,
        now: Instant,
        target: &Target,
        reauth: bool,
    ) -> Result<(usize, Ticket), CommandError> {
        if reauth {
            return Err(CommandError::Refused(
                "reauthentication is not built; terminate and initiate, or rekey".to_owned(),
            ));
        }
        let found = self.find(target);
        let count: usize = found.iter().map(|(_, kids)| kids.as_ref().map_or(1, Vec::len)).sum();
        if count == 0 {
            return Err(CommandError::NotFound("a matching SA to rekey was".to_owned()));
        }
        let ticket = self.open_ticket(count);
        for (id, kids) in found {
            self.with_sa(now, id, |ep, sa| match kids {
                Some(kids) => {
                    for kid in kids {
                        let ready = sa.children.get(&kid).filter(|c| c.state == ChildState::Installed);
                        match ready.map(|c| c.config.clone()) {
                            Some(config) => {
                                let new = NewChild::new(config, Some(kid), Some(ticket));
                                sa.queue.push_back(Task::Child(Box::new(new)));
                            }
                            None => {
                                ep.done(Some(ticket), Err("CHILD_SA is being rekeyed already".to_owned()))
                            }
                        }
                    }
                }
                None if rekeys_ike(sa) => {
                    ep.done(Some(ticket), Err("IKE_SA is being rekeyed already".to_owned()));
                }
                None => {
                    if !queue_rekey_ike(sa, Some(ticket)) {
                        ep.done(Some(ticket), Err("IKE_SA is not established".to_owned()));
                    }
                }
            });
        }
        self.run_todo(now);
        Ok((count, ticket))
    }

    /// True after [`Self::shutdown`].
    pub fn is_stopping(&self) -> bool {
        self.tunnels.is_stopping()
    }

    /// Sends a DELETE for every IKE_SA that the peer has or may have, once, and drops everything,
    /// traps and shunts included. From then on nothing is loaded and nothing initiated: what came
    /// up now would go without a word to its peer.
    pub fn shutdown(&mut self, now: Instant) {
        self.tunnels.stop();
        self.obey_all(now);
        for id in self.ids_of_sas() {
            self.with_sa(now, id, |ep, sa| ep.last_delete(now, sa));
        }
        while let Some(id) = self.old_inbound.first() {
            self.timers.cancel(crate::timer::Timer::OldInbound(id));
            self.drop_old_inbound(id);
        }
        self.obey_all(now);
    }

    fn obey_all(&mut self, now: Instant) {
        while let Some(order) = self.tunnels.poll_order(now) {
            self.obey(now, order);
        }
    }

    /// The IKE_SAs that match, with the children that do when the target is about children.
    fn find(&self, target: &Target) -> Vec<(IkeId, Option<Vec<ChildId>>)> {
        let mut found = Vec::new();
        for sa in self.sas.values().filter(|sa| target.matches_ike(sa)) {
            if target.children_only() {
                let kids = target.children_of(sa);
                if !kids.is_empty() {
                    found.push((sa.id, Some(kids)));
                }
            } else if !matches!(sa.state, IkeState::Rekeyed | IkeState::Deleting) {
                found.push((sa.id, None));
            }
        }
        found
    }
}
