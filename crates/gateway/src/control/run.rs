//! `initiate`, `terminate`, `rekey`: commands that take time, with the log of what they do.

use std::collections::HashSet;
use std::time::Duration;

use ironswan_config::request::bad;
use ironswan_ike::event::Level;
use ironswan_keying::diagnosis::{Configuration, KeyExchange, NotDone, Path, RequestFault};
use ironswan_keying::{Diagnosis, Target};
use ironswan_wire::vici::Section;
use tokio::sync::oneshot;

use super::client::{Client, Watch};
use super::{Control, errmsg, failure, flag, number, success, text};
use crate::driver::Outcome;
use crate::observe::log;

/// How long the kernel may take to guard what has come up.
const GUARDED: Duration = Duration::from_secs(10);

/// How a wait ended.
enum End {
    Done(Outcome),
    TimedOut,
    /// Nothing can be sent to the peer, and why.
    Unreachable(Diagnosis),
}

impl Control {
    /// `initiate`: by child, by connection, or a child of a connection.
    pub(super) async fn initiate(&self, client: &Client, message: &Section) -> Section {
        let (ike, child) = (text(message, "ike"), text(message, "child"));
        let what = match (child, ike) {
            (Some(child), _) => format!("CHILD_SA '{}'", child.escape_debug()),
            (None, Some(ike)) => format!("IKE_SA '{}'", ike.escape_debug()),
            (None, None) => return failure("missing configuration name"),
        };
        let (timeout, level) = match options(message) {
            Ok(o) => o,
            Err(e) => return failure(e.to_string()),
        };
        let conns = self.connections_with(ike, child);
        say(&conns, &format!("vici initiate {what}"));
        let seen = self.driver.send_errors();
        let _watch = client.watch(Watch { level, conns: conns.clone() });
        let begun = self.driver.command(|e, now| e.initiate(now, ike, child).map(|ticket| (1, ticket)));
        let (_, end) = match begun {
            Ok(begun) => begun,
            Err(e) if names_nothing(&e) => return failure(e.to_string()),
            Err(e) => return failure(format!("establishing {what} failed: {e}")),
        };
        let ended = tokio::select! {
            biased;
            why = self.driver.unreachable(&conns, seen), if timeout >= 0 => Some(End::Unreachable(why)),
            ended = wait(client, timeout, end) => ended,
        };
        match ended {
            None => success(),
            // Whoever is told that it is up is told that it protects.
            Some(End::Done(Ok(()))) => self.protected(&what).await,
            Some(End::Done(Err(why))) => {
                // The endpoint asked for a source address, and there is none: the same fault, found
                // earlier.
                let unreachable = matches!(why, Diagnosis::Path(Path::NoRoute { .. }));
                let answer = failure(format!("establishing {what} failed: {why}"));
                if unreachable { answer.with("unreachable", true) } else { answer }
            }
            Some(End::TimedOut) => {
                let why = self.driver.view(|e, _| e.obstacle(conns.iter(), child));
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                failure(format!("{what} not established after {timeout}ms{why}"))
            }
            // Nobody waits for a network that is not there; the attempt goes on, in case it comes.
            // The extra field is ours: the fault is on this side.
            Some(End::Unreachable(why)) => {
                failure(format!("establishing {what} failed: {why}")).with("unreachable", true)
            }
        }
    }

    /// Names of the connections with this name, and with a child of this name.
    pub(super) fn connections_with(&self, ike: Option<&str>, child: Option<&str>) -> HashSet<String> {
        self.driver.view(|e, _| {
            e.connections()
                .iter()
                .filter(|c| ike.is_none_or(|i| c.name == i))
                .filter(|c| child.is_none_or(|name| c.children.iter().any(|k| k.name == name)))
                .map(|c| c.name.clone())
                .collect()
        })
    }

    /// The answer that something is established, given once the kernel steers and guards it.
    async fn protected(&self, what: &str) -> Section {
        match tokio::time::timeout(GUARDED, self.driver.guarded()).await {
            Ok(Ok(())) => success(),
            Ok(Err(why)) => {
                failure(format!("{what} is established, but the kernel does not steer and guard: {why}"))
            }
            Err(_) => {
                failure(format!("{what} is established, but the kernel is not done with its guard yet"))
            }
        }
    }

    /// `terminate`.
    pub(super) async fn terminate(&self, client: &Client, message: &Section) -> Section {
        let read = target(message).and_then(|t| Ok((t, options(message)?, flag(message, "force")?)));
        let (target, (timeout, level), force) = match read {
            Ok(read) => read,
            Err(e) => return failure(e.to_string()),
        };
        let conns = self.conns_of(&target);
        say(&conns, &format!("vici terminate {}", show(&target)));
        let _watch = client.watch(Watch { level, conns });
        let (matches, end) = match self.driver.command(|e, now| e.terminate(now, &target, force)) {
            Ok((n, end)) if n > 0 => (n, end),
            Ok(_) => {
                let why = NotDone::NoMatch { to: "terminate" };
                return counted(false, 0, Some(0), Some(why.to_string()));
            }
            Err(e) => return counted(false, 0, Some(0), Some(e.to_string())),
        };
        match wait(client, timeout, end).await {
            None | Some(End::Done(Ok(()))) => counted(true, matches, Some(matches), None),
            Some(End::Done(Err(why))) => counted(false, matches, Some(0), Some(why.to_string())),
            Some(End::TimedOut | End::Unreachable(_)) => {
                counted(false, matches, Some(0), Some(format!("not terminated after {timeout}ms")))
            }
        }
    }

    /// `rekey`. As in charon it does not wait, unless a `timeout` says so (an extension of ours).
    pub(super) async fn rekey(&self, client: &Client, message: &Section) -> Section {
        let read = target(message).and_then(|t| Ok((t, options(message)?, flag(message, "reauth")?)));
        let (target, (timeout, level), reauth) = match read {
            Ok(read) => read,
            Err(e) => return failure(e.to_string()),
        };
        let conns = self.conns_of(&target);
        say(&conns, &format!("vici rekey {}", show(&target)));
        let _watch = client.watch(Watch { level, conns });
        let (matches, end) = match self.driver.command(|e, now| e.rekey(now, &target, reauth)) {
            Ok((n, end)) if n > 0 => (n, end),
            Ok(_) => {
                let why = NotDone::NoMatch { to: "rekey" };
                return counted(false, 0, None, Some(why.to_string()));
            }
            Err(e) => return counted(false, 0, None, Some(e.to_string())),
        };
        if message.get("timeout").is_none() {
            return counted(true, matches, None, None);
        }
        match wait(client, timeout, end).await {
            None | Some(End::Done(Ok(()))) => counted(true, matches, None, None),
            Some(End::Done(Err(why))) => counted(false, matches, None, Some(why.to_string())),
            Some(End::TimedOut | End::Unreachable(_)) => {
                counted(false, matches, None, Some(format!("not rekeyed after {timeout}ms")))
            }
        }
    }

    /// Names of the connections whose IKE_SAs a target may mean.
    fn conns_of(&self, t: &Target) -> HashSet<String> {
        self.driver.view(|e, now| {
            e.protocol()
                .ike_sas(now)
                .into_iter()
                .filter(|sa| t.ike.as_ref().is_none_or(|n| sa.conn == *n))
                .filter(|sa| t.ike_id.is_none_or(|id| sa.id.0 == id))
                .filter(|sa| {
                    let by_name = t.child.as_ref().is_none_or(|n| sa.children.iter().any(|c| c.name == *n));
                    by_name && t.child_id.is_none_or(|id| sa.children.iter().any(|c| c.id.0 == id))
                })
                .map(|sa| sa.conn)
                .collect()
        })
    }
}

/// A command names a connection or child that is not loaded.
fn names_nothing(why: &Diagnosis) -> bool {
    matches!(why, Diagnosis::KeyExchange(KeyExchange::NotDone { why }) if why.is_unknown_name())
}

/// `timeout` in milliseconds (0: none, negative: do not wait) and `loglevel`.
fn options(message: &Section) -> Result<(i64, u8), Configuration> {
    let timeout = number::<i64>(message, "timeout")?.unwrap_or(0);
    let level = number::<i64>(message, "loglevel")?.unwrap_or(1);
    Ok((timeout, u8::try_from(level.clamp(-1, 9) + 1).unwrap_or(0)))
}

fn target(message: &Section) -> Result<Target, Configuration> {
    let t = Target {
        ike: text(message, "ike").map(str::to_owned),
        child: text(message, "child").map(str::to_owned),
        ike_id: number(message, "ike-id")?,
        child_id: number(message, "child-id")?,
    };
    if t == Target::default() { Err(bad(RequestFault::NoSelector)) } else { Ok(t) }
}

/// Logs a command under the name of the connection it is about, or without one where it may be
/// about several.
pub(super) fn say(conns: &HashSet<String>, text: &str) {
    let only = conns.iter().next().filter(|_| conns.len() == 1);
    log::line(Level::Info, only.map(String::as_str), text, None);
}

fn show(t: &Target) -> String {
    let mut out = Vec::new();
    out.extend(t.child.as_ref().map(|c| format!("CHILD_SA '{}'", c.escape_debug())));
    out.extend(t.child_id.map(|c| format!("CHILD_SA #{c}")));
    out.extend(t.ike.as_ref().map(|c| format!("IKE_SA '{}'", c.escape_debug())));
    out.extend(t.ike_id.map(|c| format!("IKE_SA #{c}")));
    out.join(" of ")
}

/// Waits for the end. `None`: it was asked not to wait.
async fn wait(client: &Client, timeout: i64, end: oneshot::Receiver<Outcome>) -> Option<End> {
    if timeout < 0 {
        return None;
    }
    let limit = async {
        match u64::try_from(timeout) {
            Ok(ms) if ms > 0 => tokio::time::sleep(Duration::from_millis(ms)).await,
            _ => std::future::pending().await,
        }
    };
    Some(tokio::select! {
        end = end => End::Done(end.unwrap_or_else(|_| Err(NotDone::Stopping.into()))),
        () = limit => End::TimedOut,
        () = client.queue.closed() => End::TimedOut,
    })
}

/// The answer of `terminate` and `rekey`, in charon's order.
fn counted(ok: bool, matches: usize, terminated: Option<usize>, why: Option<String>) -> Section {
    let mut s = Section::new().with("success", ok).with("matches", matches);
    if let Some(n) = terminated {
        s.put("terminated", n);
    }
    if let Some(e) = why {
        s.put("errmsg", errmsg(e));
    }
    s
}
