//! What an endpoint does with a diagnosis: lines of the log, and the notification that answers the
//! peer.

use std::sync::Arc;

use ironswan_keying::Diagnosis;
use ironswan_wire::ike::Payload;

use super::Endpoint;
use crate::event::{Event, IkeId, Level};
use crate::sa::IkeSa;

impl Endpoint {
    /// Writes why something about this IKE_SA has failed: `context: sentence; remedy`, or without
    /// the context when it is empty, and the details in lines of their own.
    pub(crate) fn log_why(&mut self, level: Level, sa: &IkeSa, context: &str, why: &Diagnosis) {
        let conn = (!sa.conn.name.is_empty()).then_some(sa.conn.name.as_str());
        self.write_why(level, conn, Some(sa.id), context, why);
    }

    /// The same about no IKE_SA.
    pub(crate) fn note_why(&mut self, level: Level, conn: Option<&str>, context: &str, why: &Diagnosis) {
        self.write_why(level, conn, None, context, why);
    }

    fn write_why(
        &mut self,
        level: Level,
        conn: Option<&str>,
        ike: Option<IkeId>,
        context: &str,
        why: &Diagnosis,
    ) {
        let conn = conn.map(str::to_owned);
        let text = if context.is_empty() { why.to_string() } else { format!("{context}: {why}") };
        let first = Some(Arc::new(why.clone()));
        self.emit(Event::Log { level, conn: conn.clone(), ike, text, why: first });
        for text in why.details() {
            self.emit(Event::Log { level, conn: conn.clone(), ike, text, why: None });
        }
    }

    /// Answers the peer's request that is being worked on with the notification of this failure.
    pub(crate) fn respond_why(&mut self, sa: &mut IkeSa, why: &Diagnosis) {
        let notify = why.notify();
        self.respond(sa, &notify.into_iter().map(Payload::Notify).collect::<Vec<_>>());
    }
}
