//! The children of an IKE_SA.

use ironswan_wire::iana::ProtocolId;
use ironswan_wire::sadb::Spi;

use super::IkeSa;
use super::work::Active;
use crate::child::{Child, Children};
use crate::event::ChildId;
use crate::task::{NewChild, Task};

impl IkeSa {
    /// Its children.
    pub(crate) fn children(&self) -> impl ExactSizeIterator<Item = &Child> {
        self.children.values().map(|child| &**child)
    }

    /// Its children, to be changed.
    pub(crate) fn children_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.children.values_mut().map(|child| &mut **child)
    }

    pub(crate) fn has_child(&self, id: ChildId) -> bool {
        self.children.contains_key(&id)
    }

    pub(crate) fn child(&self, id: ChildId) -> Option<&Child> {
        self.children.get(&id).map(|child| &**child)
    }

    pub(crate) fn child_mut(&mut self, id: ChildId) -> Option<&mut Child> {
        self.children.get_mut(&id).map(|child| &mut **child)
    }

    pub(crate) fn add_child(&mut self, child: Child) {
        self.children.insert(child.id(), Box::new(child));
    }

    /// Takes over children of another IKE_SA.
    pub(crate) fn take_children(&mut self, children: Children) {
        self.children.extend(children);
    }

    pub(crate) fn take_child(&mut self, id: ChildId) -> Option<Child> {
        self.children.remove(&id).map(|child| *child)
    }

    /// The child of ESP or AH (whose SPIs are different number spaces) that sends with this SPI.
    pub(crate) fn child_by_spi_out(&self, protocol: ProtocolId, spi: Spi) -> Option<ChildId> {
        self.children.values().find(|c| (c.agreed().protocol, c.spi_out()) == (protocol, spi)).map(|c| c.id())
    }

    /// True when a child sends with this SPI, of whichever protocol: the name of an outbound SA
    /// (`SaRef`) has none.
    pub(crate) fn sends_with(&self, spi: Spi) -> bool {
        self.children.values().any(|c| c.spi_out() == spi)
    }

    /// Our rekeying of a child whose CREATE_CHILD_SA is in flight.
    pub(crate) fn rekeying(&self) -> Option<&NewChild> {
        match self.work.active() {
            Some(Active { task: Task::Child(n), .. }) if n.rekey.is_some() => Some(n),
            _ => None,
        }
    }

    /// Our child whose CREATE_CHILD_SA has been answered, and that additional key exchanges are
    /// under way for.
    pub(crate) fn following_up(&self) -> Option<&NewChild> {
        let tasks = self.work.active().map(|a| &a.task).into_iter().chain(self.work.queued());
        tasks.filter_map(|t| if let Task::FollowUp(f) = t { f.child() } else { None }).next()
    }

    /// Our rekeying of this child that is in flight or waits for work outside.
    pub(crate) fn rekeying_mut(&mut self, id: ChildId) -> Option<&mut NewChild> {
        let in_flight = self.work.active().is_some();
        let under_way = self.work.tasks_mut().enumerate().filter_map(|(at, task)| match task {
            Task::Child(new) if in_flight && at == 0 => Some(&mut **new),
            Task::FollowUp(follow) => follow.child_mut(),
            _ => None,
        });
        let waiting = self.wait.as_mut().and_then(|wait| wait.exchange.child_mut());
        under_way.chain(waiting).find(|new| new.rekey == Some(id))
    }

    /// What the peer has made of this child while our rekeying of it is in flight.
    pub(crate) fn collision_over(&self, id: ChildId) -> Option<ChildId> {
        let ours = self.rekeying().or(self.following_up()).filter(|n| n.rekey == Some(id))?;
        ours.collision.as_ref().map(|c| c.child).filter(|theirs| self.has_child(*theirs))
    }
}
