//! The way of one packet through this machine: the stations that it passes, and the first obstacle,
//! for whoever asks why a packet does not arrive.
//!
//! ```text
//! outbound   link ─▶ forward ─▶ policy ─▶ route ─▶ guard ─▶ sa ─▶ size ─▶ outer
//! inbound    outer ─▶ sa ─▶ policy ─▶ guard ─▶ forward ─▶ route ─▶ link
//! live       rules: what the kernel's nft did with packets of the flow, for ten seconds
//! ```
//! Nothing is decided here: the kernel's own look-ups, the engine's decision and the guard's plan
//! are asked, and their answers are put in the order in which a packet meets them.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `question` | the packet that somebody asks about, as people write it |
//! | `view` | what policies, SAs and tunnels say about the packet |
//! | `near` | the policy that comes nearest to covering a packet |
//! | `world` | the questions that are asked of the kernel |
//! | `outbound` | the stations of a packet from our side |
//! | `inbound` | the stations of a packet from the peer's side |
//! | `live` | follows the packets of a flow through nft |
//! | `story` | what the reports of nft say about a flow; pure |
//! | `ask` | asks all of these, for the control socket |

pub(crate) mod ask;
mod inbound;
pub(crate) mod live;
mod near;
mod outbound;
mod question;
pub(crate) mod story;
mod view;
mod world;

pub(crate) use question::Question;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Packet;

/// Most characters that are shown of a text that others have written.
const MAX_SHOWN: usize = 300;

/// A text that others have written, for people: what a terminal would not print as it is written
/// (control characters, changes of the direction of writing) stands as an escape, and a long text
/// is cut.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(MAX_SHOWN) {
        match c {
            '\'' | '"' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(MAX_SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

/// A part of the way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Station {
    /// The interface by which it comes, or on the way in by which it leaves.
    Link,
    /// The kernel's setting to pass packets on.
    Forward,
    /// The SPD.
    Policy,
    /// Rules and routes.
    Route,
    /// The guard: nft table and programs at the ingress.
    Guard,
    /// The SA.
    Sa,
    /// Its length and the path's MTU.
    Size,
    /// The way of the protected packet to the peer, or from it.
    Outer,
    /// Rules of nft that the flow met.
    Rules,
}

impl Station {
    /// Stable short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Forward => "forward",
            Self::Policy => "policy",
            Self::Route => "route",
            Self::Guard => "guard",
            Self::Sa => "sa",
            Self::Size => "size",
            Self::Outer => "outer",
            Self::Rules => "rules",
        }
    }
}

/// Whether the packet gets past a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It does.
    Passes,
    /// It does not.
    Stops,
    /// Nobody knows, or nobody was asked because an earlier obstacle leaves nothing to ask.
    Unknown,
}

impl State {
    /// Stable short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Stops => "stops",
            Self::Unknown => "unknown",
        }
    }
}

/// A station, and what was found there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    pub(crate) station: Station,
    pub(crate) state: State,
    /// What was found, in words.
    pub(crate) text: String,
    /// The same as names and values, for programs.
    pub(crate) values: Vec<(&'static str, String)>,
}

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From our side to the peer's.
    Outbound,
    /// From the peer's side to ours.
    Inbound,
}

impl Direction {
    /// Stable short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }
}

/// The stations of one direction, and the first obstacle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Passage {
    pub(crate) direction: Direction,
    pub(crate) stops: Vec<Stop>,
    pub(crate) obstacle: Option<(Station, Diagnosis)>,
}

impl Passage {
    fn new(direction: Direction) -> Self {
        Self { direction, stops: Vec::new(), obstacle: None }
    }

    /// The packet gets past this station.
    fn passes(&mut self, station: Station, text: impl Into<String>) -> &mut Self {
        self.stop(station, State::Passes, text)
    }

    /// Nobody knows.
    fn unknown(&mut self, station: Station, text: impl Into<String>) -> &mut Self {
        self.stop(station, State::Unknown, text)
    }

    /// The packet does not get past this station. The first obstacle is the answer.
    pub(crate) fn stops(&mut self, station: Station, why: impl Into<Diagnosis>) -> &mut Self {
        let why = why.into();
        let text = why.sentence();
        self.obstacle.get_or_insert((station, why));
        self.stop(station, State::Stops, text)
    }

    fn stop(&mut self, station: Station, state: State, text: impl Into<String>) -> &mut Self {
        self.stops.push(Stop { station, state, text: text.into(), values: Vec::new() });
        self
    }

    /// A packet that no policy covers does pass, in clear, where nothing else is in its way and a
    /// route leads it on, other than into the tunnel (whose interface is `device`).
    fn say_whether_in_clear(&mut self, device: &str) {
        let Some((Station::Policy, Diagnosis::Packet(Packet::NoPolicy { clear, .. }))) = &mut self.obstacle
        else {
            return;
        };
        let stopped = self.stops.iter().filter(|s| s.state == State::Stops).count();
        let into_tunnel = |s: &Stop| s.values.iter().any(|(k, v)| *k == "interface" && v == device);
        let routed = |s: &Stop| s.station == Station::Route && s.state == State::Passes && !into_tunnel(s);
        *clear = stopped == 1 && self.stops.iter().any(routed);
        let sentence = self.obstacle.as_ref().map(|(_, why)| why.sentence()).unwrap_or_default();
        if let Some(stop) = self.stops.iter_mut().find(|s| s.station == Station::Policy) {
            stop.text = sentence;
        }
    }

    /// Adds a value to the last station.
    fn with(&mut self, name: &'static str, value: impl ToString) -> &mut Self {
        if let Some(last) = self.stops.last_mut() {
            last.values.push((name, value.to_string()));
        }
        self
    }
}

#[cfg(test)]
pub(crate) mod tests;
