//! `ironswan-log`: the latest lines of the log, and those that come.
//!
//! ```text
//! request     conn = NAME  peer = ADDRESS            only lines of these
//!             follow = yes                           goes on with those that come
//!             level = debug  for = SECONDS           raises the level for them so long
//! log-line    time  level  raised  conn  peer  diagnosis  remedy  text
//! log-line    lost = N                               lines that went before they could be sent
//! ```
//! With `level`, the lines begin with the next one, and the command ends with the time. The level
//! is lowered again at the end of the command, and when the client goes. A client that does not
//! read is not waited for: the ring goes on, and lines that it has lost meanwhile are counted.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_config::request::{flag, number, text};
use ironswan_ike::event::Level;
use ironswan_wire::vici::Section;

use super::{Client, Control, failure, success};
use crate::observe::log::raised::{Raise, mentions};
use crate::observe::log::ring::{Kept, Ring};
use crate::observe::log::{self, LATEST, RAISED};

/// Limits the time for which a level can be raised, in seconds.
const MAX_RAISED: u64 = 86_400;

/// Lines that a client wants.
struct Wanted {
    conn: Option<String>,
    peer: Option<IpAddr>,
    follow: bool,
    /// The level is raised, for so long.
    raised: Option<(Level, Duration)>,
}

impl Wanted {
    fn of(message: &Section) -> Result<Self, String> {
        let conn = text(message, "conn").map(str::to_owned);
        let peer = match text(message, "peer").map(str::parse) {
            None => None,
            Some(Ok(peer)) => Some(peer),
            Some(Err(_)) => return Err("peer: not an IP address; write one such as 192.0.2.1".to_owned()),
        };
        let follow = flag(message, "follow").map_err(|e| e.to_string())?;
        let time: Option<u64> = number(message, "for").map_err(|e| e.to_string())?;
        let raised = match (text(message, "level"), time) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err("for: is the time of a raised level; name the level, too".to_owned());
            }
            (Some(_), None) => return Err("level: for how long? Write for, in seconds".to_owned()),
            (Some(_), Some(time)) if !(1..=MAX_RAISED).contains(&time) => {
                return Err(format!("for: a level can be raised for 1 to {MAX_RAISED} seconds"));
            }
            (Some(_), _) if conn.is_none() && peer.is_none() => {
                let whole = "for all of it set log.level of ironswan.conf and reload";
                return Err(format!(
                    "level: is raised for a connection or a peer; name conn or peer; {whole}"
                ));
            }
            (Some(level), Some(time)) => {
                let level = log::level_of(level).ok_or("level: is error, warn, info or debug")?;
                Some((level, Duration::from_secs(time)))
            }
        };
        Ok(Self { conn, peer, follow, raised })
    }

    fn wants(&self, line: &Kept) -> bool {
        self.conn.as_ref().is_none_or(|name| line.conn == *name)
            && self.peer.is_none_or(|addr| line.peer == Some(addr) || mentions(&line.text, addr))
    }
}

impl Control {
    /// `ironswan-log`.
    pub(super) async fn log_lines(&self, client: &Client, message: &Section) -> Section {
        let wanted = match Wanted::of(message) {
            Ok(wanted) => wanted,
            Err(why) => return failure(why),
        };
        let Some((level, time)) = wanted.raised else {
            send(&LATEST, client, &wanted, LATEST.begin(), wanted.follow).await;
            return success();
        };
        let begin = LATEST.end();
        let raise = Raise { conn: wanted.conn.clone(), peer: wanted.peer, level };
        let Some(_lowered_again) = RAISED.raise(raise) else {
            return failure("too many levels are raised already; end one of them, or wait");
        };
        // The time ends it also while the client reads nothing.
        let _ = tokio::time::timeout(time, send(&LATEST, client, &wanted, begin, true)).await;
        success()
    }
}

/// Sends the lines from number `at` on, to the last one or for ever; ends when the client goes.
async fn send(ring: &Ring, client: &Client, wanted: &Wanted, mut at: u64, follow: bool) {
    let end = ring.end();
    loop {
        let look = ring.look(at);
        if look.lost > 0 && !client.stream("log-line", Section::new().with("lost", look.lost)).await {
            return;
        }
        for line in look.lines.iter().filter(|line| wanted.wants(line)) {
            if !client.stream("log-line", section(line)).await {
                return;
            }
        }
        at = look.next;
        if !follow && at >= end {
            return;
        }
        if look.lines.is_empty() {
            ring.wait(at).await;
        } else {
            // Filtering a full ring must not hold anybody up.
            tokio::task::yield_now().await;
        }
    }
}

fn section(line: &Kept) -> Section {
    let mut s = Section::new().with("time", line.time.as_str()).with("level", line.level);
    if line.raised {
        s.put("raised", true);
    }
    let peer = line.peer.map(|peer| peer.to_string()).unwrap_or_default();
    let parts =
        [("conn", &line.conn), ("peer", &peer), ("diagnosis", &line.diagnosis), ("remedy", &line.remedy)];
    for (key, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        s.put(key, value.as_str());
    }
    s.with("text", line.text.as_str())
}
