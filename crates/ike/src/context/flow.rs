//! Looks now and then whether packets come back on the children of an IKE_SA. The packet engine is
//! asked for its counters, so that packets cost nothing for it. What is found is said, and nothing
//! else follows from it.

use std::time::Duration;

use super::Context;
use crate::child::Child;
use crate::endpoint::Pending;
use crate::event::{ChildId, ChildState, Event, Level, Request};
use crate::flow::{Counted, Flow};
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::diagnosis::{Carrier, Entry, Path, PathEntry};
use ironswan_keying::limits::{FLOW_LOOK, FLOW_LOOK_IDLE};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::sadb::{Direction, SaRef};

/// Carries packets in both directions, and no other child takes over from it.
fn is_watched(child: &Child) -> bool {
    let stands = matches!(child.state(), ChildState::Installed | ChildState::Rekeying);
    stands && child.sends() && child.redundant_to().is_none()
}

impl Context<'_> {
    /// A child of this IKE_SA sends from now on: looks soon, unless a look is due anyway.
    pub(crate) fn watch_flow(&mut self, sa: &IkeSa) {
        let (timer, at) = (Timer::Flow(sa.id()), self.now + FLOW_LOOK);
        if self.shared.timers.get(timer).is_none_or(|due| due > at) {
            self.flow_later(sa, FLOW_LOOK);
        }
    }

    /// Sets the time of the next look, up to a tenth earlier. Neighbours by number are apart, so
    /// that thousands of IKE_SAs that came up at once do not look at once.
    fn flow_later(&mut self, sa: &IkeSa, pause: Duration) {
        let part = u32::try_from(sa.id().0 % 64).unwrap_or(0);
        let at = self.now + pause - pause / 640 * part;
        self.shared.timers.set(Timer::Flow(sa.id()), at);
    }

    /// The timer has fired: asks the engine for the counters of both SAs of each child.
    pub(crate) fn ask_flow(&mut self, sa: &mut IkeSa) {
        let remote = sa.remote().ip();
        let children: Vec<&Child> = sa.children().filter(|child| is_watched(child)).collect();
        if children.is_empty() || !sa.stands() {
            // The next child that sends sets the timer.
            return;
        }
        let both = [Direction::In, Direction::Out];
        let sas: Vec<SaRef> =
            children.iter().flat_map(|child| both.map(|direction| child.sa_ref(direction, remote))).collect();
        let children = children.iter().map(|child| child.id()).collect();
        self.ask(Pending::Flow { ike: sa.id(), children }, Request::Packets { sas });
    }

    /// The engine has told the packets of both SAs of these children.
    pub(crate) fn judge_flow(&mut self, sa: &mut IkeSa, children: &[ChildId], packets: &[u64]) {
        let mut pause = FLOW_LOOK_IDLE;
        for (id, counters) in children.iter().zip(packets.chunks_exact(2)) {
            let counted = Counted { inbound: counters[0], outbound: counters[1] };
            if self.judge_child(sa, *id, counted) {
                pause = FLOW_LOOK;
            }
        }
        if sa.stands() {
            self.flow_later(sa, pause);
        }
    }

    /// Judges one child. True when the next look is to be soon.
    fn judge_child(&mut self, sa: &mut IkeSa, id: ChildId, counted: Counted) -> bool {
        let asks = !sa.conn().dpd_delay.is_zero();
        let (now, heard) = (self.now, asks.then_some(sa.signs().last_ike));
        let (remote, ours, theirs) = (sa.remote().ip(), sa.local().port(), sa.remote().port());
        let Some(child) = sa.child_mut(id).filter(|child| is_watched(child)) else { return false };
        let flow = child.watch().look(now, counted, heard);
        let name = child.name();
        match flow {
            Flow::Idle => false,
            Flow::Well | Flow::Suspect => true,
            Flow::Cleared => {
                self.log(Level::Info, sa, format!("packets come back on CHILD_SA {name}"));
                self.over(sa, Entry::Path(PathEntry::OneWay));
                true
            }
            Flow::OneWay { sent, silent } => {
                let carrier = match (child.is_in_udp(), child.agreed().protocol) {
                    (true, _) => Carrier::Udp { ours, theirs },
                    (false, ProtocolId::AH) => Carrier::Ah,
                    (false, _) => Carrier::Esp,
                };
                let (received, silent) = (counted.inbound, silent.as_secs());
                let why = Path::OneWay { child: name, sent, received, silent, remote, carrier };
                self.log_why(Level::Warn, sa, "", &why.into());
                true
            }
        }
    }

    /// Something that was said about the tunnels of this IKE_SA is over.
    pub(crate) fn over(&mut self, sa: &IkeSa, entry: Entry) {
        self.emit(Event::Over { conn: sa.conn().name.clone(), ike: sa.id(), entry });
    }
}
