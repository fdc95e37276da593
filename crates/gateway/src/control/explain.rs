//! Our own `ironswan-status` and `ironswan-explain`: how each tunnel is, and all that is known of
//! one connection or of one peer.
//!
//! ```text
//! ironswan-status { ike = NAME }
//! list-tunnel event    NAME { child = net  state = down  wanted = yes  action = start
//!                             place = swanctl.conf:12  remote = 192.0.2.2
//!                             since = 12  before { lasted = 90 ended = 12 }  trouble { .. } }
//!
//! ironswan-explain { latest = 8 }
//! answer               latest { 1 { conn = NAME  or  from = 192.0.2.9  .. } }
//!
//! ironswan-explain { ike = NAME }   or   { peer = 192.0.2.2 }
//! answer               connections { NAME { place = swanctl.conf:3  local_addrs = [..]
//!                                           remote_addrs = [..]  notes { 1 { .. } }
//!                                           path { state = known  mtu = 1500  ago = 5 .. } } }
//!                      strangers { 1 { from = 192.0.2.2  meant = NAME  .. } }
//!                      machine = [ .. ]
//! ```
//! `state` is `up`, `trying`, `down`, `waiting` (for the peer, an operator or a packet), `pass` or
//! `drop`. A tunnel is wanted when its `start_action` starts it, or when it was up or tried and
//! nobody has closed it here. Times are in seconds; `since` and `before` are missing where nothing
//! is known. `trouble` is that of `ironswan-troubles`. A note has `name`, `meaning`, `level`,
//! `first` and `last` (seconds ago), `count`, `why`, `remedy` (or `advice`), `details`, `values`,
//! `sides` and `places`. `path` is there while an IKE_SA stands: `state` is `known` (with `mtu`,
//! the bytes of the largest packet that was seen to pass towards the peer, and `believed`),
//! `not-yet`, or `off` (`path_probe = no`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_config::request::number;
use ironswan_ike::event::{IkeSaInfo, PathMtu};
use ironswan_io::route::Netlink;
use ironswan_keying::{
    AddrSpec, Before, ChildAction, ChildConfig, ChildKind, Connection, Down, Level, Next, Up,
};
use ironswan_wire::vici::Section;

use super::client::Client;
use super::{Control, failure, text, troubles};
use crate::observe::records::{Note, Places};
use crate::start::fitness::{self, Facts};

/// Limits the latest notes of one answer.
const MAX_LATEST: usize = 100;

/// Limits the notes about strangers of one answer: the latest are told.
const MAX_STRANGERS: usize = 16;

/// Limits the connections that are told of with one peer.
const CONNECTIONS: usize = 8;

/// How one tunnel is.
struct Tunnel<'a> {
    conn: &'a Connection,
    /// `None`: the IKE_SA alone was asked for.
    child: Option<&'a ChildConfig>,
    up: Option<Up>,
    was_up: Option<Before>,
    down: Option<&'a Down>,
    /// Of the IKE_SA on which it stands.
    sa: Option<&'a IkeSaInfo>,
}

impl Control {
    /// `ironswan-status`.
    pub(super) async fn status(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "ike");
        let mut down: HashMap<String, Vec<Down>> = HashMap::new();
        for d in self.driver.view(|e, now| e.down(now)) {
            down.entry(d.conn.clone()).or_default().push(d);
        }
        let sas = self.driver.uncounted(only);
        let mut by_conn: HashMap<&str, Vec<&IkeSaInfo>> = HashMap::new();
        for sa in &sas {
            by_conn.entry(sa.conn.as_str()).or_default().push(sa);
        }
        let names: Vec<String> =
            self.driver.view(|e, _| e.connections().iter().map(|c| c.name.clone()).collect());
        for name in names.iter().filter(|name| only.is_none_or(|only| only == name.as_str())) {
            // Read each connection at its turn: somebody may unload it meanwhile.
            let Some(conn) = self.driver.view(|e, _| e.connection(name)) else { continue };
            let down = down.get(name).map_or(&[][..], Vec::as_slice);
            let sas = by_conn.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            for child in conn.children.iter().map(Some).chain(alone(&conn, down, sas)) {
                let named = child.map(|child| child.name.as_str());
                let (up, was_up) =
                    self.driver.view(|e, now| (e.up(now, name, named), e.was_up(now, name, named)));
                let mut carries = sas.iter().filter(|sa| {
                    child.is_none_or(|child| sa.children.iter().any(|of| of.name == child.name))
                });
                let down = down.iter().find(|d| d.child.as_deref() == named);
                let tunnel = Tunnel { conn: &conn, child, up, was_up, down, sa: carries.next().copied() };
                let section = tunnel.section(&self.driver.records().places());
                if !client.stream("list-tunnel", Section::new().with(name.as_str(), section)).await {
                    return Section::new();
                }
            }
        }
        Section::new()
    }

    /// `ironswan-explain`.
    pub(super) fn explain(&self, message: &Section) -> Section {
        let (ike, peer) = (text(message, "ike"), text(message, "peer"));
        match number::<usize>(message, "latest") {
            Ok(None) => {}
            Ok(Some(most)) => return self.latest(most.min(MAX_LATEST)),
            Err(e) => return failure(e.to_string()),
        }
        let peer = match peer.map(str::parse::<IpAddr>).transpose() {
            Ok(peer) => peer,
            Err(_) => return failure("peer: not an address"),
        };
        if ike.is_none() && peer.is_none() {
            return failure("ike or peer is missing");
        }
        let found: Vec<Arc<Connection>> = match (ike, peer) {
            (Some(name), _) => self.driver.view(|e, _| e.connection(name).into_iter().collect()),
            (None, Some(peer)) => {
                let all = self.driver.view(|e, _| e.connections());
                all.into_iter().filter(|conn| is_for(conn, peer)).take(CONNECTIONS).collect()
            }
            (None, None) => Vec::new(),
        };
        let now = ironswan_io::clock::now();
        let connections: Section =
            found.iter().map(|conn| (conn.name.clone(), self.of_connection(conn, now))).collect();
        if let Some(name) = ike.filter(|_| found.is_empty()) {
            return failure(format!("no connection '{}' is loaded", name.escape_debug()));
        }
        let (strangers, left_out) =
            self.driver.records().of_strangers(MAX_STRANGERS, |from, note| match peer {
                Some(peer) => from == peer,
                None => found
                    .iter()
                    .any(|conn| note.meant.as_deref() == Some(conn.name.as_str()) || is_named(conn, from)),
            });
        let strangers: Section = (1..)
            .zip(&strangers)
            .map(|(n, (from, note))| {
                let meant = note.meant.clone();
                let mut s = Section::new().with("from", from.to_string());
                if let Some(meant) = &meant {
                    s.put("meant", meant.as_str());
                }
                let places = self.driver.records().places();
                (n.to_string(), with_note(s, note, meant.as_deref().map(|conn| (conn, None)), &places, now))
            })
            .collect();
        Section::new()
            .with("success", true)
            .with("connections", connections)
            .with("strangers", strangers)
            .with("strangers-left-out", left_out as u64)
            .with("machine", self.in_the_way())
    }

    /// The latest notes about anybody.
    fn latest(&self, most: usize) -> Section {
        let now = ironswan_io::clock::now();
        let places = self.driver.records().places();
        let notes = self.driver.records().latest(most);
        let notes: Section = (1..)
            .zip(&notes)
            .map(|(n, (about, note))| {
                let s = match about {
                    Ok(conn) => Section::new().with("conn", conn.as_str()),
                    Err(from) => Section::new().with("from", from.to_string()),
                };
                (n.to_string(), with_note(s, note, None, &places, now))
            })
            .collect();
        Section::new().with("success", true).with("latest", notes)
    }

    /// What on this machine keeps tunnels from carrying anything. The answer is about the present,
    /// so the kernel is asked each time.
    fn in_the_way(&self) -> Vec<String> {
        match Netlink::open().and_then(|mut netlink| Facts::carrying(&mut netlink)) {
            Ok(facts) => self.driver.guard(|g| fitness::carries(&facts, g.policies())),
            Err(e) => vec![format!("cannot look at this machine's addresses and links: {e}")],
        }
    }

    fn of_connection(&self, conn: &Connection, now: Instant) -> Section {
        let addresses = |list: &[AddrSpec]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let places = self.driver.records().places();
        let mut s = Section::new();
        if let Some(place) = places.line(&conn.name, None, None) {
            s.put("place", place);
        }
        // Notes do not name the child: with one child there is no doubt.
        let child = match conn.children.as_slice() {
            [one] => Some(one.name.as_str()),
            _ => None,
        };
        let notes = self.driver.records().of_connection(&conn.name);
        let notes: Section = (1..)
            .zip(&notes)
            .map(|(n, note)| {
                (n.to_string(), with_note(Section::new(), note, Some((&conn.name, child)), &places, now))
            })
            .collect();
        s.put("local_addrs", addresses(&conn.local_addrs))
            .put("remote_addrs", addresses(&conn.remote_addrs))
            .put("notes", notes);
        let sa = self.driver.view(|e, now| e.protocol().ike_sas_of(now, &conn.name).pop());
        if let Some(sa) = sa.filter(|sa| sa.established.is_some()) {
            s.put("path", path(conn, &sa));
        }
        s
    }
}

/// What is known of the path to the peer of an IKE_SA.
fn path(conn: &Connection, sa: &IkeSaInfo) -> Section {
    match sa.path_mtu {
        Some(PathMtu { proven, believed, narrow, age }) => Section::new()
            .with("state", "known")
            .with("mtu", proven)
            .with("believed", believed)
            .with("narrow", narrow)
            .with("ago", age.as_secs()),
        None => Section::new().with("state", if conn.path_probe { "not-yet" } else { "off" }),
    }
}

/// An entry for the IKE_SA alone: of a connection without children, or when only that was asked
/// for.
fn alone<'a>(
    conn: &Connection,
    down: &[Down],
    sas: &[&IkeSaInfo],
) -> impl Iterator<Item = Option<&'a ChildConfig>> {
    let asked = down.iter().any(|d| d.child.is_none());
    let stands = conn.children.is_empty() || sas.iter().any(|sa| sa.children.is_empty());
    (asked || (conn.children.is_empty() && stands)).then_some(None).into_iter()
}

/// True when the connection names this address or a range with it, and not any address.
fn is_for(conn: &Connection, addr: IpAddr) -> bool {
    conn.remote_addrs.iter().any(|spec| *spec != AddrSpec::Any && spec.matches(addr))
}

/// True when the connection names this one address, and not any.
fn is_named(conn: &Connection, addr: IpAddr) -> bool {
    conn.remote_addrs.contains(&AddrSpec::Host(addr))
}

impl Tunnel<'_> {
    fn section(&self, places: &Places) -> Section {
        let Self { conn, child, up, was_up, down, sa } = self;
        let mut s = Section::new();
        if let Some(child) = child {
            s.put("child", child.name.as_str());
        }
        let kind = child.map_or(ChildKind::Protect, |child| child.kind);
        let action = child.map_or(ChildAction::None, |child| child.start_action);
        let wanted = kind == ChildKind::Protect && (action.starts() || down.is_some());
        let state = match (kind, up, down) {
            (ChildKind::Pass, ..) => "pass",
            (ChildKind::Drop, ..) => "drop",
            (_, Some(_), _) => "up",
            (_, None, Some(down)) if down.next == Next::Trying => "trying",
            (_, None, Some(_)) => "down",
            (_, None, None) if wanted => "down",
            (_, None, None) => "waiting",
        };
        s.put("state", state).put("wanted", wanted).put("action", word(action));
        let name = child.map(|child| child.name.as_str());
        let key = child.map(|_| "children.start_action");
        if let Some(place) = places.line(&conn.name, name, key) {
            s.put("place", place);
        }
        let configured = || {
            let mut hosts = conn.remote_addrs.iter().filter(|spec| !matches!(spec, AddrSpec::Any));
            hosts.next().map(ToString::to_string)
        };
        if let Some(remote) = sa.map(|sa| sa.remote.ip().to_string()).or_else(configured) {
            s.put("remote", remote);
        }
        let since = up.as_ref().map(|up| up.since).or(down.map(|down| down.since));
        if let Some(since) = since {
            s.put("since", since.as_secs());
        }
        let before = up.as_ref().and_then(|up| up.before).or(*was_up);
        if let Some(before) = before {
            s.put("before", past(&before));
        }
        if let Some(down) = down.filter(|_| up.is_none()) {
            s.put("trouble", troubles::trouble(down));
        }
        s
    }
}

/// A time up or down that is over.
fn past(before: &Before) -> Section {
    let mut s = Section::new().with("lasted", before.lasted.as_secs()).with("ended", before.ended.as_secs());
    if let Some(why) = before.why {
        s.put("name", why.name()).put("meaning", why.meaning());
    }
    s
}

/// The value of `start_action`.
fn word(action: ChildAction) -> &'static str {
    match action {
        ChildAction::None => "none",
        ChildAction::Start => "start",
        ChildAction::Trap => "trap",
        ChildAction::TrapAndStart => "trap|start",
    }
}

/// Adds a note to a section. `of`: its connection and child, when they are known.
fn with_note(
    mut s: Section,
    note: &Note,
    of: Option<(&str, Option<&str>)>,
    places: &Places,
    now: Instant,
) -> Section {
    let ago = |at: Instant| now.saturating_duration_since(at).as_secs();
    let level = match note.level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    s.put("name", note.entry.name())
        .put("fault", note.entry.fault().word())
        .put("meaning", note.entry.meaning())
        .put("level", level)
        .put("first", ago(note.first))
        .put("last", ago(note.last))
        .put("count", note.count)
        .put("why", note.sentence.as_str());
    troubles::put_remedy(&mut s, note.entry, &note.remedy);
    if !note.details.is_empty() {
        s.put("details", note.details.clone());
    }
    s.put("values", troubles::values(&note.values)).put("sides", troubles::sides(&note.sides));
    let lines: Vec<String> = of
        .into_iter()
        .flat_map(|(conn, child)| {
            note.keys.iter().filter_map(move |key| {
                let line = places.line(conn, child, Some(key))?;
                Some(format!("{} {line}", key.strip_prefix("children.").unwrap_or(key)))
            })
        })
        .collect();
    if !lines.is_empty() {
        s.put("places", lines);
    }
    s
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
