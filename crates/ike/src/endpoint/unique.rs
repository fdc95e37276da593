//! `unique` and INITIAL_CONTACT (RFC 7296 section 2.4): what a new IKE_SA means for those with the same pair of identities.

use std::time::Instant;

use ironswan_wire::id::Identity;

use super::{Close, Endpoint};
use crate::config::Unique;
use crate::event::{IkeId, IkeState, Level};
use crate::sa::IkeSa;
use crate::task::Task;
use crate::task::delete::DeleteIke;

impl Endpoint {
    /// The peer has just been authenticated: what becomes of other IKE_SAs with the same pair of identities. False: the
    /// new one is refused.
    pub(crate) fn check_unique(
        &mut self,
        now: Instant,
        sa: &IkeSa,
        remote_id: &Identity,
        initial_contact: bool,
    ) -> bool {
        let others: Vec<IkeId> = self
            .by_ids
            .get(&(sa.local_id.clone(), remote_id.clone()))
            .into_iter()
            .flatten()
            .copied()
            .filter(|id| *id != sa.id)
            .collect();
        // The notification speaks of what its sender knew: of IKE_SAs that stood before this one was begun. With both
        // sides initiating at once, one that was established meanwhile is not meant.
        let before = |ep: &Self, id: &IkeId| {
            ep.sas.get(id).is_some_and(|o| o.established.is_some_and(|t| t <= sa.created))
        };
        match sa.conn.unique {
            Unique::Never => true,
            Unique::Keep => {
                let stands = others.iter().any(|id| {
                    self.sas
                        .get(id)
                        .is_some_and(|o| matches!(o.state, IkeState::Established | IkeState::Rekeying))
                });
                if stands && !initial_contact {
                    let line =
                        format!("keeping existing IKE_SA for peer '{remote_id}', refusing the new one");
                    self.log(Level::Warn, sa, line);
                    return false;
                }
                self.forget_old(now, sa, remote_id, others, initial_contact, before);
                true
            }
            Unique::No => {
                self.forget_old(now, sa, remote_id, others, initial_contact, before);
                true
            }
            Unique::Replace if initial_contact => {
                self.forget_old(now, sa, remote_id, others, true, before);
                true
            }
            Unique::Replace => {
                for id in others {
                    let line =
                        format!("deleting duplicate IKE_SA for peer '{remote_id}' due to uniqueness policy");
                    self.log(Level::Info, sa, line);
                    self.with_sa(now, id, |_, old| {
                        if matches!(old.state, IkeState::Established | IkeState::Rekeying) {
                            old.queue.push_back(Task::DeleteIke(DeleteIke::default()));
                        }
                    });
                }
                true
            }
        }
    }

    fn forget_old(
        &mut self,
        now: Instant,
        sa: &IkeSa,
        remote_id: &Identity,
        others: Vec<IkeId>,
        initial_contact: bool,
        before: impl Fn(&Self, &IkeId) -> bool,
    ) {
        if !initial_contact {
            return;
        }
        for id in others {
            if !before(self, &id) {
                continue;
            }
            let line =
                format!("destroying duplicate IKE_SA for peer '{remote_id}', received INITIAL_CONTACT");
            self.log(Level::Info, sa, line);
            self.with_sa(now, id, |ep, old| ep.close_ike(now, old, Close::Forgotten));
        }
    }
}
