//! Our own `ironswan-explain-packet`: the way of one packet through this machine, and the first
//! obstacle.
//!
//! ```text
//! packet = "10.1.0.9 > 10.2.5.1 tcp 443"  live = yes
//!
//! packet = "10.1.0.9 > 10.2.5.1 tcp 443"  passes = no  hints = [ .. ]
//! outbound { passes = no
//!            stations { link { state = passes  text = ".."  interface = lan0 } sa { .. } .. }
//!            obstacle { station = sa  name = packet-without-sa  fault = ..  why = ..
//!                       remedy = ..  details = [ .. ]  values { child = .. }  sides { } } }
//! inbound { .. }
//! ```
//! `outbound` and `inbound` are there when that direction is meant. A station that is met twice has
//! a number behind its name: `rules`, `rules-2`. With `live` the flow is followed for ten seconds.

use ironswan_keying::Diagnosis;
use ironswan_wire::vici::Section;

use super::{Control, failure, flag, text, troubles};
use crate::passage::{Passage, Question, Station, Stop, ask};

impl Control {
    /// `ironswan-explain-packet`.
    pub(super) async fn explain_packet(&self, message: &Section) -> Section {
        let live = match flag(message, "live") {
            Ok(live) => live,
            Err(e) => return failure(e.to_string()),
        };
        let question = match Question::read(text(message, "packet").unwrap_or_default()) {
            Ok(question) => question,
            Err(why) => return failure(why),
        };
        let answer = match live {
            true => ask::live(&self.driver, &question).await,
            false => ask::once(&self.driver, &question),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => return failure(why.to_string()),
        };
        let mut out = Section::new()
            .with("packet", question.to_string())
            .with("passes", answer.passes())
            .with("live", live)
            .with("hints", answer.hints);
        for passage in &answer.passages {
            out.put(passage.direction.name(), section(passage));
        }
        out
    }
}

/// One direction.
fn section(passage: &Passage) -> Section {
    let mut stations = Section::new();
    for (at, stop) in passage.stops.iter().enumerate() {
        let before = passage.stops.iter().take(at).filter(|s| s.station == stop.station).count();
        let name = stop.station.name();
        let name = if before == 0 { name.to_owned() } else { format!("{name}-{}", before + 1) };
        stations.put(name, station(stop));
    }
    let mut out = Section::new().with("passes", passage.obstacle.is_none()).with("stations", stations);
    if let Some((at, why)) = &passage.obstacle {
        out.put("obstacle", obstacle(*at, why));
    }
    out
}

fn station(stop: &Stop) -> Section {
    let mut out = Section::new().with("state", stop.state.name()).with("text", stop.text.as_str());
    for (name, value) in &stop.values {
        out.put(*name, value.as_str());
    }
    out
}

fn obstacle(at: Station, why: &Diagnosis) -> Section {
    let entry = why.entry();
    let mut out = Section::new()
        .with("station", at.name())
        .with("name", entry.name())
        .with("fault", entry.fault().word())
        .with("why", why.sentence())
        .with("remedy", why.remedy());
    let details = why.details();
    if !details.is_empty() {
        out.put("details", details);
    }
    out.put("values", troubles::values(&why.values())).put("sides", troubles::sides(&why.sides()));
    out
}

#[cfg(test)]
#[path = "explain_packet_tests.rs"]
mod tests;
