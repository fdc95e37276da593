//! Every timer of an endpoint, in one enum and one table.
//!
//! Setting, cancelling and finding the next are O(log n) in the number of timers.

use crate::event::{ChildId, IkeId};

/// One timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The request in flight is sent again, or the peer is given up.
    Retransmit(IkeId),
    /// An IKE_SA that we answer for has not been authenticated in time.
    HalfOpen(IkeId),
    /// `rekey_time` less its random part: the IKE_SA is rekeyed.
    RekeyIke(IkeId),
    /// The authentication counts no longer: the IKE_SA is made anew.
    Reauth(IkeId),
    /// `rekey_time` or the time of the authentication, and `over_time`, are over: the IKE_SA is
    /// closed.
    OverTime(IkeId),
    /// Look whether packets come back on the children.
    Flow(IkeId),
    /// `dpd_delay` since the last sign of life: ask.
    Liveness(IkeId),
    /// Fragments of a message of the peer have waited long enough for the others.
    Fragments(IkeId),
    /// The peer has not gone on with additional key exchanges of its rekeying.
    FollowUp(IkeId),
    /// The path to the peer is measured, or the next probe of that goes out.
    PathProbe(IkeId),
    /// Nothing has been sent for a while through the NAT in front of us: keep its mapping.
    Keepalive(IkeId),
    /// There is no IKE_SA with the peer at this address yet, whether it has answered or not: ask
    /// the next one as well.
    Rival(IkeId),
    /// Both sides have begun at once, and the peer should have deleted this IKE_SA of its own by
    /// now.
    Twin(IkeId),
    /// Another IKE_SA has taken over, and the packets that were under way have arrived: this one is
    /// deleted.
    Retire(IkeId),
    /// The peer has deleted this IKE_SA, and the packets that were under way have arrived: it is
    /// answered.
    AnswerDelete(IkeId),
    /// A replaced or redundant IKE_SA that the peer should have deleted by now is dropped.
    Linger(IkeId),
    /// `rekey_time` less its random part: the CHILD_SA is rekeyed.
    RekeyChild(ChildId),
    /// `life_time`: the CHILD_SA is closed.
    LifeChild(ChildId),
    /// `inactivity` since the CHILD_SA was installed or used last: close it if it was not used.
    Inactivity(ChildId),
    /// A CHILD_SA that lost a collision, and that the peer should have deleted by now, is deleted.
    Redundant(ChildId),
    /// The peer should have the CHILD_SA that takes over by now: it is sent on.
    TakeUp(ChildId),
    /// The inbound SA of a rekeyed CHILD_SA has been kept long enough.
    OldInbound(ChildId),
    /// There is no way to some peer: ask the routing table again.
    Paths,
    /// Lines that were not written about unauthenticated senders are summed up.
    Strangers,
    /// The oldest stored answer of an IKE_SA that is gone is forgotten.
    Tombs,
}

impl Timer {
    /// Everything that an IKE_SA can have set.
    pub(crate) fn of_ike(id: IkeId) -> [Self; 16] {
        [
            Self::Retransmit(id),
            Self::HalfOpen(id),
            Self::RekeyIke(id),
            Self::Reauth(id),
            Self::OverTime(id),
            Self::Flow(id),
            Self::Liveness(id),
            Self::Fragments(id),
            Self::FollowUp(id),
            Self::Keepalive(id),
            Self::Retire(id),
            Self::AnswerDelete(id),
            Self::Linger(id),
            Self::Twin(id),
            Self::Rival(id),
            Self::PathProbe(id),
        ]
    }

    /// Everything that a CHILD_SA can have set while its IKE_SA knows it.
    pub(crate) fn of_child(id: ChildId) -> [Self; 5] {
        [
            Self::RekeyChild(id),
            Self::LifeChild(id),
            Self::Inactivity(id),
            Self::Redundant(id),
            Self::TakeUp(id),
        ]
    }
}

/// The timers of an endpoint.
pub(crate) type Timers = ironswan_keying::Timers<Timer>;
