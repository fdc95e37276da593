//! A series of additional key exchanges behind a CREATE_CHILD_SA (RFC 9370 section 2.2.4), as
//! either side keeps it between two exchanges. `follow_up` carries the exchanges out.
//!
//! ```text
//! initiator: FollowUp, in the queue or in flight
//! responder: Awaited, in FollowUps of its IKE_SA until the next request or for some time
//! ```

use std::time::Instant;

use ironswan_keying::limits::SERIES_KEPT;
use ironswan_wire::iana::KeId;
use ironswan_wire::proposal::Additional;
use ironswan_wire::secret::Secret;

use super::state::{
    AgreedChild, AgreedIke, AnsweredChild, AnsweredIke, NewChild, REKEY_IKE_NAME, RekeyIke, Task, child_name,
};
use crate::event::{ChildId, IkeId};

/// What our series makes once all secrets are there.
pub(crate) enum Making {
    Ike(Box<RekeyIke>, AnsweredIke),
    Child(Box<NewChild>, Box<AnsweredChild>),
}

/// Our series after its CREATE_CHILD_SA.
pub(crate) struct FollowUp {
    pub making: Making,
    /// N(ADDITIONAL_KEY_EXCHANGE) of the last response, with which the next exchange is to come.
    pub link: Vec<u8>,
    /// Secret of CREATE_CHILD_SA.
    pub shared: Secret,
    /// Secrets of the exchanges that are done.
    pub more: Vec<Secret>,
    /// Our private key for the exchange in flight.
    pub private: Secret,
}

impl FollowUp {
    /// Begins a series. `link`: of the response to CREATE_CHILD_SA.
    pub(super) fn new(making: Making, link: Vec<u8>, shared: Secret) -> Self {
        Self { making, link, shared, more: Vec::new(), private: Secret::default() }
    }

    fn additional(&self) -> Additional {
        match &self.making {
            Making::Ike(_, answered) => answered.suite.additional,
            Making::Child(_, answered) => answered.agreed.additional,
        }
    }

    /// The method of the next exchange.
    pub(super) fn method(&self) -> Option<KeId> {
        self.additional().after(self.more.len())
    }

    /// True when no exchange comes behind the next one.
    pub(super) fn is_last(&self) -> bool {
        self.additional().after(self.more.len() + 1).is_none()
    }

    /// The child that the series makes.
    pub(crate) fn child(&self) -> Option<&NewChild> {
        match &self.making {
            Making::Child(new, _) => Some(new),
            Making::Ike(..) => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn child_mut(&mut self) -> Option<&mut NewChild> {
        match &mut self.making {
            Making::Child(new, _) => Some(new),
            Making::Ike(..) => None,
        }
    }

    /// The task that has begun the series.
    pub(crate) fn into_task(self) -> Task {
        match self.making {
            Making::Ike(task, _) => Task::RekeyIke(task),
            Making::Child(new, _) => Task::Child(new),
        }
    }

    /// Name in VICI's `tasks-*` lists: that of the task that has begun the series.
    pub(super) fn name(&self) -> &'static str {
        self.child().map_or(REKEY_IKE_NAME, |new| child_name(new.rekey.is_some()))
    }
}

/// What the peer's series makes once all secrets are there. The numbers of ours are reserved.
pub(crate) enum Agreement {
    Ike(AgreedIke),
    Child(Box<AgreedChild>),
}

/// The peer's series, which waits for the next exchange.
pub(crate) struct Awaited {
    pub agreement: Agreement,
    /// N(ADDITIONAL_KEY_EXCHANGE) of our last response.
    pub link: Vec<u8>,
    /// Secret of CREATE_CHILD_SA.
    pub shared: Secret,
    /// Secrets of the exchanges that are done.
    pub more: Vec<Secret>,
    /// The series is forgotten then.
    pub until: Instant,
}

impl Awaited {
    /// The method of the next exchange.
    pub(super) fn method(&self) -> Option<KeId> {
        let additional = match &self.agreement {
            Agreement::Ike(agreed) => &agreed.suite.additional,
            Agreement::Child(agreed) => &agreed.agreed.additional,
        };
        additional.after(self.more.len())
    }

    /// The child that it makes.
    pub(crate) fn child(&self) -> Option<&AgreedChild> {
        match &self.agreement {
            Agreement::Child(agreed) => Some(agreed),
            Agreement::Ike(_) => None,
        }
    }

    /// Name in VICI's `tasks-*` lists.
    pub(super) fn name(&self) -> &'static str {
        self.child().map_or(REKEY_IKE_NAME, |agreed| child_name(agreed.rekey.is_some()))
    }

    /// True when it makes this successor of the IKE_SA.
    pub(super) fn makes_ike(&self, id: IkeId) -> bool {
        matches!(&self.agreement, Agreement::Ike(agreed) if agreed.id == id)
    }

    /// True when both make a successor of the same SA, so that only one of them can go on.
    fn rivals(&self, other: &Self) -> bool {
        match (self.child(), other.child()) {
            (None, None) => true,
            (Some(a), Some(b)) => a.rekey.is_some() && a.rekey == b.rekey,
            _ => false,
        }
    }
}

/// The series of the peer of one IKE_SA, oldest first.
#[derive(Default)]
pub(crate) struct FollowUps(Vec<Awaited>);

impl FollowUps {
    /// Keeps one more. Returns the one in whose place it is: of the same SA, or the oldest of too
    /// many.
    pub(super) fn keep(&mut self, awaited: Awaited) -> Option<Awaited> {
        let full = (self.0.len() >= SERIES_KEPT).then_some(0);
        let before = self.0.iter().position(|a| a.rivals(&awaited)).or(full).map(|at| self.0.remove(at));
        self.0.push(awaited);
        before
    }

    /// The one that goes on with this link.
    pub(super) fn find(&self, link: &[u8]) -> Option<&Awaited> {
        self.0.iter().find(|a| a.link == link)
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, link: &[u8]) -> Option<&mut Awaited> {
        self.0.iter_mut().find(|a| a.link == link)
    }

    /// Takes the first one that fits.
    pub(super) fn take(&mut self, fits: impl Fn(&Awaited) -> bool) -> Option<Awaited> {
        self.0.iter().position(fits).map(|at| self.0.remove(at))
    }

    /// True when there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all.
    pub(crate) fn take_all(&mut self) -> Vec<Awaited> {
        std::mem::take(&mut self.0)
    }

    /// When the first of them is to be forgotten.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().map(|a| a.until).min()
    }

    /// The children that the peer is about to make.
    pub(crate) fn children(&self) -> impl Iterator<Item = &AgreedChild> {
        self.0.iter().filter_map(Awaited::child)
    }

    /// True when the peer is about to make this successor of the IKE_SA.
    pub(super) fn make_ike(&self, id: IkeId) -> bool {
        self.0.iter().any(|a| a.makes_ike(id))
    }

    /// True when the peer is about to make this child.
    pub(super) fn make(&self, id: ChildId) -> bool {
        self.children().any(|c| c.id == id)
    }

    /// True when the peer is about to rekey this child.
    pub(super) fn rekey(&self, child: ChildId) -> bool {
        self.children().any(|c| c.rekey == Some(child))
    }
}
