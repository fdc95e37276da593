//! `log`: the latest lines of the daemon's log, and those that come.

use std::time::Duration;

use ironswan_wire::vici::Section;
use serde_json::{Map, Value};

use crate::args::Log;
use crate::failure::Failure;
use crate::vici::{Client, refusal};

/// Prints them; with `--json` each as one object in one line.
pub(crate) fn log(a: &Log) -> Result<(), Failure> {
    let mut message = Section::new();
    if a.follow {
        message.put("follow", true);
    }
    if let Some(conn) = &a.conn {
        message.put("conn", conn.as_str());
    }
    if let Some(peer) = a.peer {
        message.put("peer", peer.to_string());
    }
    if let (Some(level), Some(time)) = (&a.level, a.time) {
        message.put("level", level.as_str()).put("for", time);
    }
    let longer = (!a.follow).then(|| Duration::from_secs(a.time.unwrap_or(0)));
    let mut client = Client::connect(&a.daemon.vici)?;
    let answer = client.stream("ironswan-log", "log-line", message, longer, |line| {
        if a.daemon.json {
            say!("{}", object(&line));
        } else {
            say!("{}", text(&line));
        }
        if crate::text::unread() {
            // Nobody reads: a follower has nothing left to do.
            std::process::exit(0);
        }
    })?;
    match refusal(&answer) {
        None => Ok(()),
        Some(why) => Err(Failure::no(why)),
    }
}

/// As the daemon writes it to standard error.
fn text(line: &Section) -> String {
    if let Some(lost) = line.get_str("lost") {
        return format!("-- {lost} lines are lost here: they came faster than they were read --");
    }
    let part = |key| line.get_str(key).unwrap_or("-");
    let mark = if line.get_str("raised") == Some("yes") { "[raised] " } else { "" };
    format!("{} {} {} {mark}{}", part("time"), part("level"), part("conn"), part("text"))
}

/// As the daemon writes it with `log { format = json }`, with the address of the peer, and a
/// schema.
fn object(line: &Section) -> Value {
    let mut out = Map::new();
    out.insert("schema".into(), "ironswan.log/1".into());
    for key in ["time", "level", "conn", "peer", "text", "diagnosis", "remedy"] {
        if let Some(value) = line.get_str(key) {
            out.insert(key.into(), value.into());
        }
    }
    if line.get_str("raised") == Some("yes") {
        out.insert("raised".into(), true.into());
    }
    if let Some(lost) = line.get_str("lost").and_then(|n| n.parse::<u64>().ok()) {
        out.insert("lost".into(), lost.into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_looks_like_the_daemon_s_own_and_a_gap_is_said() {
        let line = Section::new()
            .with("time", "2026-01-02T03:04:05Z")
            .with("level", "debug")
            .with("conn", "net")
            .with("text", "parsed IKE_AUTH")
            .with("raised", true);
        assert_eq!(text(&line), "2026-01-02T03:04:05Z debug net [raised] parsed IKE_AUTH");
        let json = object(&line);
        assert_eq!((&json["schema"], &json["raised"]), (&"ironswan.log/1".into(), &true.into()));
        assert!(json.get("remedy").is_none());
        let gap = Section::new().with("lost", "12");
        assert!(text(&gap).contains("12 lines are lost"));
        assert_eq!(object(&gap)["lost"], 12);
        let bare = Section::new().with("time", "t").with("level", "info").with("text", "ready");
        assert_eq!(text(&bare), "t info - ready");
    }
}
