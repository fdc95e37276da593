//! Lines and notifications of a diagnosis.

use super::Context;
use crate::event::{Event, IkeId, Level};
use crate::sa::IkeSa;
use ironswan_keying::Diagnosis;
use ironswan_wire::ike::Payload;
use std::net::IpAddr;
use std::sync::Arc;

impl Context<'_> {
    /// Writes why something about this IKE_SA has failed.
    pub(crate) fn log_why(&mut self, level: Level, sa: &IkeSa, context: &str, why: &Diagnosis) {
        let conn = (!sa.conn().name.is_empty()).then_some(sa.conn().name.as_str());
        // Whoever we have initiated to is no stranger, though it may not be authenticated yet.
        let stranger = (!sa.is_up() && !sa.is_initiator()).then(|| sa.remote().ip());
        let of = Subject { conn, ike: Some(sa.id()), stranger };
        self.shared.outbox.extend(lines(level, of, context, why));
    }

    /// Answers the peer's request that is being worked on with the notification of this failure.
    pub(crate) fn respond_why(&mut self, sa: &mut IkeSa, why: &Diagnosis) {
        let notify = why.notify();
        self.respond(sa, &notify.into_iter().map(Payload::Notify).collect::<Vec<_>>());
    }
}

/// Lines that say why something has failed: `context: sentence; remedy`, or without the context
/// when it is empty, and the details in lines of their own. A context that ends with a comma gets
/// no colon.
pub(crate) fn lines(
    level: Level,
    of: Subject<'_>,
    context: &str,
    why: &Diagnosis,
) -> impl Iterator<Item = Event> {
    let Subject { conn, ike, stranger } = of;
    let conn = conn.map(str::to_owned);
    let text = match context {
        "" => why.to_string(),
        context if context.ends_with(',') => format!("{context} {why}"),
        context => format!("{context}: {why}"),
    };
    let first = (text, Some(Arc::new(why.clone())));
    let details = why.details().into_iter().map(|text| (text, None));
    std::iter::once(first).chain(details).map(move |(text, why)| Event::Log {
        level,
        conn: conn.clone(),
        ike,
        text,
        why,
        stranger,
    })
}

/// Subject of a line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Subject<'a> {
    /// Connection's name, when one is known.
    pub(crate) conn: Option<&'a str>,
    /// IKE_SA, when one is known.
    pub(crate) ike: Option<IkeId>,
    /// As in [`Event::Log`].
    pub(crate) stranger: Option<IpAddr>,
}
