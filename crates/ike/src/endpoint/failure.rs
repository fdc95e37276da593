//! What an endpoint does with a diagnosis: lines of the log, and the notification that answers the
//! peer.

use ironswan_keying::Diagnosis;

use super::Endpoint;
use crate::context::failure::{Subject, lines};
use crate::event::Level;
use crate::sa::IkeSa;

impl Endpoint {
    /// Writes why an IKE_SA does not come up, in one line: its details have been written when it
    /// failed.
    pub(super) fn log_end(&mut self, sa: &IkeSa, why: &Diagnosis) {
        let conn = (!sa.conn().name.is_empty()).then_some(sa.conn().name.as_str());
        let context = "establishing IKE_SA failed";
        let of = Subject { conn, ike: Some(sa.id()), stranger: None };
        self.shared.outbox.extend(lines(Level::Error, of, context, why).take(1));
    }

    /// Writes why something about no IKE_SA has failed.
    pub(super) fn note_why(&mut self, level: Level, of: Subject<'_>, context: &str, why: &Diagnosis) {
        self.shared.outbox.extend(lines(level, of, context, why));
    }
}
