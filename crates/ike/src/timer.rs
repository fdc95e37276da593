//! Every timer of an endpoint, in one enum and one table.
//!
//! Setting, cancelling and finding the next are O(log n) in the number of timers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::event::{ChildId, IkeId};

/// What runs out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The request in flight is sent again, or the peer is given up.
    Retransmit(IkeId),
    /// An IKE_SA that we answer for has not been authenticated in time.
    HalfOpen(IkeId),
    /// `rekey_time` less its random part: the IKE_SA is rekeyed.
    RekeyIke(IkeId),
    /// `rekey_time` and `over_time` are over: the IKE_SA is closed.
    OverTime(IkeId),
    /// `dpd_delay` since the last sign of life: ask.
    Liveness(IkeId),
    /// Nothing has been sent for a while through the NAT in front of us: keep its mapping.
    Keepalive(IkeId),
    /// There is no IKE_SA with the peer at this address yet, whether it has answered or not: ask the next one as well.
    Rival(IkeId),
    /// Both sides have begun at once, and the peer should have deleted this IKE_SA of its own by now.
    Twin(IkeId),
    /// A replaced or redundant IKE_SA that the peer should have deleted by now is dropped.
    Linger(IkeId),
    /// `rekey_time` less its random part: the CHILD_SA is rekeyed.
    RekeyChild(ChildId),
    /// `life_time`: the CHILD_SA is closed.
    LifeChild(ChildId),
    /// A CHILD_SA that lost a collision, and that the peer should have deleted by now, is deleted.
    Redundant(ChildId),
    /// The inbound SA of a rekeyed CHILD_SA has been kept long enough.
    OldInbound(ChildId),
    /// Another attempt to bring a connection up.
    Retry(u64),
    /// There is no way to some peer: ask the routing table again.
    Paths,
    /// A DNS name is looked up again.
    Name(u64),
    /// The first of the starts that wait has its turn, whatever has become of those under way.
    Pace,
    /// What was not written about those who are not authenticated is summed up.
    Strangers,
    /// The oldest stored answer of an IKE_SA that is gone is forgotten.
    Tombs,
}

impl Timer {
    /// Everything that an IKE_SA can have set.
    pub(crate) fn of_ike(id: IkeId) -> [Self; 9] {
        [
            Self::Retransmit(id),
            Self::HalfOpen(id),
            Self::RekeyIke(id),
            Self::OverTime(id),
            Self::Liveness(id),
            Self::Keepalive(id),
            Self::Linger(id),
            Self::Twin(id),
            Self::Rival(id),
        ]
    }

    /// Everything that a CHILD_SA can have set while its IKE_SA knows it.
    pub(crate) fn of_child(id: ChildId) -> [Self; 3] {
        [Self::RekeyChild(id), Self::LifeChild(id), Self::Redundant(id)]
    }
}

/// The table.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    at: BTreeMap<Timer, Instant>,
    order: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    /// Sets the timer, or moves it.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.cancel(timer);
        self.at.insert(timer, at);
        self.order.insert((at, timer));
    }

    /// Stops the timer.
    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// How many are set.
    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    /// When this timer fires.
    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.at.get(&timer).copied()
    }

    /// When the first timer fires.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out the first timer that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let &(at, timer) = self.order.first()?;
        if at > now {
            return None;
        }
        self.cancel(timer);
        Some(timer)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_fire_in_order_and_once_and_can_move() {
        let t0 = Instant::now();
        let s = Duration::from_secs(1);
        let mut t = Timers::default();
        t.set(Timer::Retry(1), t0 + 3 * s);
        t.set(Timer::Retry(2), t0 + 2 * s);
        t.set(Timer::Retry(3), t0 + s);
        t.set(Timer::Retry(3), t0 + 4 * s);
        t.cancel(Timer::Retry(9));
        assert_eq!(t.next(), Some(t0 + 2 * s));
        assert_eq!(t.pop(t0 + s), None);
        let all: Vec<_> = std::iter::from_fn(|| t.pop(t0 + 9 * s)).collect();
        assert_eq!(all, [Timer::Retry(2), Timer::Retry(1), Timer::Retry(3)]);
        assert_eq!(t.next(), None);
    }
}
