//! ICMP errors about our requests. An error is noted with the request in flight, and said. Nothing
//! else changes: attempts, retransmissions and IKE_SAs go on as if it had not come, since whoever
//! knows addresses and ports can send one.

use std::time::Instant;

use super::Endpoint;
use crate::context::failure::{Subject, lines};
use crate::event::{Level, Undelivered};
use ironswan_keying::diagnosis::Icmp;

impl Endpoint {
    /// A box has said by ICMP that it did not pass a request of ours on. The data plane has
    /// compared the error with what was sent. Two lines are written about a request at most: for
    /// the first error, and for the first that is certain.
    pub fn handle_icmp(&mut self, now: Instant, told: &Undelivered) {
        let Undelivered { spi, remote, icmp } = *told;
        // The IKE_SA is put back as it was: what waits in its queue is not begun.
        let Some(mut sa) = self.shared.spis.ike(spi).and_then(|id| self.sas.remove(&id)) else { return };
        let fits = sa.our_spi() == spi && sa.remote() == remote;
        if let Some(active) = sa.work_mut().active_mut().filter(|_| fits) {
            self.shared.counters.icmp_noted += 1;
            let before = active.icmp;
            let kept = Icmp::kept(before, icmp);
            active.icmp = Some(kept);
            let news = before.is_none_or(|before| kept.certain && !before.certain);
            if let Some(request) = sa.unanswered().filter(|_| news) {
                if sa.is_up() {
                    let text = format!("an ICMP error about a request, which goes on: {request}; {kept}");
                    self.log(Level::Info, &sa, text);
                } else {
                    let why = self.aside(now, |cx| cx.silence(&sa, request, Some(kept))).into();
                    let conn = Some(sa.conn().name.as_str());
                    // Whoever we have initiated to is no stranger.
                    let of = Subject { conn, ike: Some(sa.id()), stranger: None };
                    let events = lines(Level::Info, of, "no answer yet", &why);
                    self.shared.outbox.extend(events);
                }
            }
        }
        self.settle(sa);
    }
}
