//! Commands of an operator: terminate and rekey.

use std::time::Instant;

use super::Endpoint;
use crate::context::lifecycle::{queue_rekey_ike, rekeys_ike};
use crate::event::{ChildId, ChildState, IkeId, IkeState, Ticket};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, NewChild, Task};
use ironswan_keying::choices::way;
use ironswan_keying::diagnosis::NotDone;
use ironswan_keying::{Diagnosis, Target};

/// The children of an IKE_SA that a command is about.
fn children_of(target: &Target, sa: &IkeSa) -> Vec<ChildId> {
    let live = |s| matches!(s, ChildState::Installed | ChildState::Rekeying | ChildState::Installing);
    let children = sa.children().filter(|c| live(c.state()));
    children.filter(|c| target.matches_child(c.id().0, &c.config().name)).map(|c| c.id()).collect()
}

impl Endpoint {
    /// Closes the SAs that match, as
    /// [`Protocol::terminate`](ironswan_keying::Protocol::terminate) says.
    pub(super) fn close_matching(
        &mut self,
        now: Instant,
        target: &Target,
        force: bool,
    ) -> Result<(usize, Ticket), Diagnosis> {
        let found = self.find(target);
        let count = found.iter().map(|(_, kids)| kids.as_ref().map_or(1, Vec::len)).sum();
        if count == 0 {
            return Err(NotDone::NoMatch { to: "terminate" }.into());
        }
        let ticket = self.open_ticket(found.len());
        for (id, kids) in found {
            self.with_sa(now, id, |ep, sa| match kids {
                Some(kids) if force => {
                    let mut spis = Vec::new();
                    for kid in &kids {
                        let gone = ep.on(now, sa, |cx, sa| cx.remove_child(sa, *kid));
                        spis.extend(gone.map(|c| (c.agreed().protocol, c.spi_in())));
                    }
                    sa.work_mut().push(Task::DeleteChild(DeleteChild { spis, ..DeleteChild::default() }));
                    ep.done(Some(ticket), Ok(()));
                }
                Some(kids) => sa.work_mut().push(Task::DeleteChild(DeleteChild::of(kids, Some(ticket)))),
                // Without a way to the peer nobody can be waited for.
                None if force || sa.state() == IkeState::Created || sa.is_blocked() => {
                    ep.on(now, sa, |cx, sa| cx.last_delete(sa));
                    ep.done(Some(ticket), Ok(()));
                }
                None if !sa.is_up() => {
                    ep.let_go(now, sa, NotDone::Terminated);
                    ep.done(Some(ticket), Ok(()));
                }
                None => {
                    // Before anything else that waits.
                    let task = DeleteIke { ticket: Some(ticket) };
                    sa.work_mut().push_first(Task::DeleteIke(task));
                }
            });
        }
        self.run_todo(now);
        Ok((count, ticket))
    }

    /// Rekeys the SAs that match, as [`Protocol::rekey`](ironswan_keying::Protocol::rekey) says.
    pub(super) fn rekey_matching(
        &mut self,
        now: Instant,
        target: &Target,
        reauth: bool,
    ) -> Result<(usize, Ticket), Diagnosis> {
        if reauth {
            return self.reauthenticate_matching(now, target);
        }
        let found = self.find_lasting(target);
        let count: usize = found.iter().map(|(_, kids)| kids.as_ref().map_or(1, Vec::len)).sum();
        if count == 0 {
            return Err(NotDone::NoMatch { to: "rekey" }.into());
        }
        let ticket = self.open_ticket(count);
        for (id, kids) in found {
            self.with_sa(now, id, |ep, sa| match kids {
                Some(kids) => {
                    for kid in kids {
                        let ready = sa.child(kid).filter(|c| c.state() == ChildState::Installed);
                        match ready.map(|c| c.config().clone()) {
                            Some(config) => {
                                let new = NewChild::new(config, Some(kid), Some(ticket));
                                sa.work_mut().push(Task::Child(Box::new(new)));
                            }
                            None => ep.done(Some(ticket), Err(NotDone::ChildRekeying.into())),
                        }
                    }
                }
                None if rekeys_ike(sa) => {
                    ep.done(Some(ticket), Err(NotDone::IkeRekeying.into()));
                }
                None => {
                    if !queue_rekey_ike(sa, Some(ticket)) {
                        ep.done(Some(ticket), Err(NotDone::NotEstablished.into()));
                    }
                }
            });
        }
        self.run_todo(now);
        Ok((count, ticket))
    }

    /// Makes the IKE_SAs that match anew, also those of children that match.
    fn reauthenticate_matching(
        &mut self,
        now: Instant,
        target: &Target,
    ) -> Result<(usize, Ticket), Diagnosis> {
        let found = self.find_lasting(target);
        if found.is_empty() {
            return Err(NotDone::NoMatch { to: "reauthenticate" }.into());
        }
        let ticket = self.open_ticket(found.len());
        for (id, _) in &found {
            self.work_on(now, *id, |cx, sa| {
                let refusal = if !sa.is_up() {
                    NotDone::NotEstablished
                } else if sa.roam().leaving {
                    NotDone::Replacing
                } else if !way::can_take_over(cx.policy(), &sa.conn().name) {
                    NotDone::NoAddress
                } else {
                    sa.roam_mut().ticket = Some(ticket);
                    return cx.renew(sa, "reauthentication is asked for");
                };
                cx.done(Some(ticket), Err(refusal.into()));
            });
        }
        self.run_todo(now);
        Ok((found.len(), ticket))
    }

    /// The same as [`Self::find`], without IKE_SAs from which others have taken over.
    fn find_lasting(&self, target: &Target) -> Vec<(IkeId, Option<Vec<ChildId>>)> {
        let mut found = self.find(target);
        found.retain(|(id, _)| self.sas.get(id).is_some_and(|sa| !sa.roam().retired));
        found
    }

    /// The IKE_SAs that match, with the children that do when the target is about children.
    pub(super) fn find(&self, target: &Target) -> Vec<(IkeId, Option<Vec<ChildId>>)> {
        let mut found = Vec::new();
        for sa in self.sas.values().filter(|sa| target.matches_ike(sa.id(), &sa.conn().name)) {
            if target.children_only() {
                let kids = children_of(target, sa);
                if !kids.is_empty() {
                    found.push((sa.id(), Some(kids)));
                }
            } else if !matches!(sa.state(), IkeState::Rekeyed | IkeState::Deleting) {
                found.push((sa.id(), None));
            }
        }
        found
    }
}
