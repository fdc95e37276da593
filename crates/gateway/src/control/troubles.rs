//! Our own `ironswan-troubles`: what keeps traffic from passing, for `ironswan status` to say
//! before anything else.
//!
//! ```text
//! list-trouble event   NAME { child = net  since = 12  next = retry  next-try = 4  why = ..
//!                             name = no-answer  fault = ..  remedy = ..  details = [ .. ] }
//! answer               machine = [ "forwarding is off: .." ]
//!                      links { 192.0.2.1 = "the link wan is down" }
//! ```
//! An event tells of one tunnel that should be up and is not; `child` is missing where an IKE_SA
//! alone was asked for. `since` and `next-try` are seconds. `why` is the sentence of the last
//! failure. `name` (of the list of diagnoses), `fault`, `meaning`, `remedy`, `details` (lines with
//! its data), `values` and `sides` belong to it. `advice`, the words of the manual, stands in the
//! place of a `remedy` where there is none. Before the first failure `why` says how far the
//! attempt is. `next` is `trying`, `retry` (with `next-try`), `packet` or `nothing`. `machine`
//! names what on this machine keeps the tunnels from carrying anything; `links` has the local
//! addresses of IKE_SAs that no longer work, and why.

use std::collections::BTreeSet;

use ironswan_io::route::Netlink;
use ironswan_keying::diagnosis::{Entry, Side};
use ironswan_keying::{Down, Next};
use ironswan_wire::vici::{Section, Value};

use super::client::Client;
use super::{Control, text};
use crate::start::fitness::{self, Facts};

impl Control {
    /// `ironswan-troubles`.
    pub(super) async fn troubles(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "ike");
        let down = self.driver.view(|e, now| e.down(now));
        for d in down.iter().filter(|d| only.is_none_or(|n| d.conn == n)) {
            if !client.stream("list-trouble", Section::new().with(d.conn.as_str(), trouble(d))).await {
                break;
            }
        }
        // The answer is about the present, so the kernel is asked each time; both lists are short.
        let facts = match Netlink::open().and_then(|mut netlink| Facts::carrying(&mut netlink)) {
            Ok(facts) => facts,
            Err(e) => {
                let line = format!("cannot look at this machine's addresses and links: {e}");
                return Section::new().with("machine", vec![line]);
            }
        };
        let machine = self.driver.guard(|g| fitness::carries(&facts, g.policies()));
        let sas = self.driver.uncounted(None);
        let locals: BTreeSet<_> =
            sas.iter().map(|sa| sa.local.ip()).filter(|ip| !ip.is_unspecified()).collect();
        let links: Section = fitness::unusable(&facts, locals)
            .into_iter()
            .map(|(ip, why)| (ip.to_string(), Value::from(why)))
            .collect();
        Section::new().with("machine", machine).with("links", links)
    }
}

/// A tunnel that should be up and is not.
pub(super) fn trouble(d: &Down) -> Section {
    let mut s = Section::new();
    if let Some(child) = &d.child {
        s.put("child", child.as_str());
    }
    s.put("since", d.since.as_secs()).put("why", d.reason());
    if let Some(why) = &d.why {
        s.put("name", why.entry().name())
            .put("fault", why.entry().fault().word())
            .put("meaning", why.entry().meaning());
        put_remedy(&mut s, why.entry(), &why.remedy());
        let details = why.details();
        if !details.is_empty() {
            s.put("details", details);
        }
        s.put("values", values(&why.values())).put("sides", sides(&why.sides()));
    }
    match d.next {
        Next::Trying => s.put("next", "trying"),
        Next::In { pause, number } => {
            s.put("next", "retry").put("next-try", pause.as_secs()).put("next-number", number)
        }
        Next::Packet => s.put("next", "packet"),
        Next::Nothing => s.put("next", "nothing"),
    };
    s
}

/// Adds the remedy, or where the case has none, the manual's advice on its entry.
pub(super) fn put_remedy(s: &mut Section, entry: Entry, remedy: &str) {
    match remedy {
        "" => s.put("advice", entry.advice()),
        remedy => s.put("remedy", remedy),
    };
}

/// Data of a diagnosis by name.
pub(super) fn values(values: &[(&'static str, String)]) -> Section {
    values.iter().map(|(name, value)| ((*name).to_owned(), value.as_str())).collect()
}

/// Values of both sides.
pub(super) fn sides(sides: &[Side]) -> Section {
    let side = |side: &Side| {
        Section::new()
            .with("what", side.what.as_str())
            .with("ours", side.ours.as_str())
            .with("theirs", side.theirs.as_str())
            .with("differs", side.differs)
    };
    (1..).zip(sides).map(|(n, of)| (n.to_string(), side(of))).collect()
}

#[cfg(test)]
#[path = "troubles_tests.rs"]
mod tests;
