//! What two parts of a configuration mean for each other: the linter behind `ironswan check`. The daemon runs with what is
//! found here, errors too: a connection without a key waits for one that VICI loads.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ironswan_keying::{AddrSpec, ChildAction, ChildConfig, ChildKind, Connection, Ports, SharedKeys, TsSpec};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::diag::{Diagnostics, Severity};
use super::load::Config;
use super::psk;

/// Overlaps reported, at most: ten thousand connections with the same selectors would give fifty million.
const MAX_OVERLAPS: usize = 100;

/// Checks a configuration that could be read.
pub fn check(config: &Config, diags: &mut Diagnostics) {
    if config.unread {
        return;
    }
    ports(config, diags);
    overlaps(config, diags);
    reqids(config, diags);
    twins(config, diags);
    if !config.secret_lost {
        keys(config, diags);
    }
    selves(config, diags);
    own_address(config, diags);
    strength(config, diags);
}

fn warn(config: &Config, diags: &mut Diagnostics, severity: Severity, key: &str, message: String) {
    diags.push(severity, config.place(key), key, message);
}

/// A connection that sends from a port which is not the daemon's cannot be initiated. It answers peers all the same.
fn ports(config: &Config, diags: &mut Diagnostics) {
    let ports = Ports { ike: config.daemon.port_ike, natt: config.daemon.port_natt };
    for conn in &config.connections {
        if let Some(why) = ports.foreign(conn) {
            let severity = if initiates(conn) { Severity::Error } else { Severity::Warning };
            warn(config, diags, severity, &format!("connections.{}.local_port", conn.name), why);
        }
    }
}

struct Claim<'a> {
    conn: &'a Connection,
    child: &'a str,
    local: &'a TrafficSelector,
    remote: &'a TrafficSelector,
}

/// Two children of different connections that want the same packets: the engine gives them to one.
fn overlaps(config: &Config, diags: &mut Diagnostics) {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for conn in &config.connections {
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect && c.priority == 0) {
            for l in &child.local_ts {
                for r in &child.remote_ts {
                    if let (TsSpec::Fixed(local), TsSpec::Fixed(remote)) = (l, r) {
                        claims.push(Claim { conn, child: &child.name, local, remote });
                    }
                }
            }
        }
    }
    // Sorted by the first remote address, only neighbours whose ranges still reach each other can overlap.
    claims.sort_by_key(|c| (c.remote.range.is_ipv6(), c.remote.range.start()));
    let mut active: Vec<usize> = Vec::new();
    let mut found = 0;
    for i in 0..claims.len() {
        let c = &claims[i];
        active.retain(|&a| {
            let r = claims[a].remote.range;
            r.is_ipv6() == c.remote.range.is_ipv6() && r.end() >= c.remote.range.start()
        });
        for &a in &active {
            let o = &claims[a];
            if o.conn.name == c.conn.name && o.child == c.child {
                continue;
            }
            let (Some(local), Some(remote)) = (o.local.intersect(c.local), o.remote.intersect(c.remote))
            else {
                continue;
            };
            // One inside the other is how a road warrior's exception is written: the more specific one wins.
            let nested = |x: &Claim<'_>, y: &Claim<'_>| {
                (x.local, x.remote) != (y.local, y.remote)
                    && x.local.is_subset_of(y.local)
                    && x.remote.is_subset_of(y.remote)
            };
            let inside = if nested(o, c) {
                Some((o, c))
            } else if nested(c, o) {
                Some((c, o))
            } else {
                None
            };
            if inside.is_some() && o.conn.name == c.conn.name {
                continue;
            }
            found += 1;
            if found > MAX_OVERLAPS {
                return;
            }
            if let Some((inner, outer)) = inside {
                let key = format!("connections.{}.children.{}.remote_ts", inner.conn.name, inner.child);
                let other = format!("connections.{}.children.{}", outer.conn.name, outer.child);
                let at = config.place(&other).map(|p| format!(" ({p})")).unwrap_or_default();
                let message = format!(
                    "{local} === {remote} lies inside of what {other}{at} wants: the more specific one, this, gets those packets"
                );
                warn(config, diags, Severity::Note, &key, message);
                continue;
            }
            let key = format!("connections.{}.children.{}.remote_ts", c.conn.name, c.child);
            let other = format!("connections.{}.children.{}", o.conn.name, o.child);
            let at = config.place(&other).map(|p| format!(" ({p})")).unwrap_or_default();
            let message = format!(
                "wants {local} === {remote} as {other}{at} does; only one of them gets those packets; \
                 make the selectors disjoint or set priority"
            );
            warn(config, diags, Severity::Warning, &key, message);
        }
        // Bounded work: beyond this many open ranges the report is full of them anyway.
        if active.len() < 1_000 {
            active.push(i);
        }
    }
}

/// Children of different connections with one configured reqid and other selectors: policies and SAs of one reqid are one
/// peer's to the engine, so that each peer may speak for the other's networks.
fn reqids(config: &Config, diags: &mut Diagnostics) {
    let mut seen: BTreeMap<u32, (&Connection, &ChildConfig)> = BTreeMap::new();
    for conn in &config.connections {
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect && c.reqid != 0) {
            let (first, other) = *seen.entry(child.reqid).or_insert((conn, child));
            let same = (&other.local_ts, &other.remote_ts) == (&child.local_ts, &child.remote_ts);
            if first.name == conn.name || same {
                continue;
            }
            let key = format!("connections.{}.children.{}.reqid", conn.name, child.name);
            let theirs = format!("connections.{}.children.{}", first.name, other.name);
            let at = config.place(&theirs).map(|p| format!(" ({p})")).unwrap_or_default();
            let message = format!(
                "{theirs}{at} has the reqid {} too, and other selectors: to the packet engine both peers are one, and either may \
                 send in the name of the other's networks; leave reqid out, or give each its own",
                child.reqid
            );
            warn(config, diags, Severity::Warning, &key, message);
        }
    }
}

/// Two connections that a responder cannot tell apart.
fn twins(config: &Config, diags: &mut Diagnostics) {
    let text = |addrs: &[AddrSpec]| format!("{addrs:?}");
    // The identities themselves: their texts are cut where they are long.
    let mut seen: BTreeMap<(String, String, Option<Identity>, IdPattern), &Connection> = BTreeMap::new();
    for conn in &config.connections {
        let us = conn.local_id.as_ref().map(Identity::folded);
        let key = (text(&conn.local_addrs), text(&conn.remote_addrs), us, conn.remote_id.folded());
        if let Some(first) = seen.insert(key, conn) {
            let path = format!("connections.{}", conn.name);
            let message = format!(
                "has the same addresses and identities as connections.{}: a peer that initiates is given the first \
                 that fits; use one connection with two children, or different identities",
                first.name
            );
            warn(config, diags, Severity::Warning, &path, message);
        }
    }
}

fn hosts(addrs: &[AddrSpec]) -> impl Iterator<Item = IpAddr> {
    addrs.iter().filter_map(|a| if let AddrSpec::Host(h) = a { Some(*h) } else { None })
}

/// Pre-shared keys: one for each connection, and no doubt which. The daemon's own choice is asked for the identities that it
/// will ask for: ours, or our address; the peer's, or (to initiate) its address. A side that only a running daemon knows is
/// taken for whatever has a key.
fn keys(config: &Config, diags: &mut Diagnostics) {
    let mut ring = SharedKeys::default();
    config.secrets.iter().for_each(|key| ring.insert(key.clone()));
    for conn in config.connections.iter().filter(|c| !c.only_shunts()) {
        let path = format!("connections.{}", conn.name);
        let us: Vec<Identity> = match &conn.local_id {
            Some(id) => vec![id.clone()],
            None => hosts(&conn.local_addrs).map(Identity::from_addr).collect(),
        };
        let them: Vec<Identity> = match &conn.remote_id {
            IdPattern::Exact(id) => vec![id.clone()],
            _ if starts(conn) => hosts(&conn.remote_addrs).map(Identity::from_addr).collect(),
            _ => Vec::new(),
        };
        let pairs: Vec<_> = us.iter().flat_map(|us| them.iter().map(move |them| (us, them))).collect();
        let mut lack = None;
        for (us, them) in &pairs {
            match ring.choose(us, them) {
                None => lack = lack.or(Some((us.to_string(), them.to_string()))),
                Some((key, Some(other))) => {
                    let message = format!(
                        "two different keys fit equally well, secrets.{} and secrets.{}, and the first of them is used; give each \
                         its own id",
                        key.name, other.name
                    );
                    warn(config, diags, Severity::Warning, &path, message);
                    break;
                }
                Some(_) => {}
            }
        }
        if pairs.is_empty() {
            let local = if let [one] = us.as_slice() { Some(one) } else { None };
            if !ring.may_find(local, &conn.remote_id) {
                let us = local.map_or_else(|| "%any".to_owned(), ToString::to_string);
                lack = Some((us, conn.remote_id.to_string()));
            }
        }
        if let Some((us, them)) = lack {
            let message = format!(
                "no shared key found for '{us}' - '{them}'; add secrets {{ ike-{} {{ id = {them} ... }} }}, with the secret",
                conn.name
            );
            warn(config, diags, Severity::Error, &path, message);
        }
    }
}

/// True when a child brings the connection up from here.
fn starts(conn: &Connection) -> bool {
    conn.children.iter().any(|c| c.kind == ChildKind::Protect && c.start_action != ChildAction::None)
}

/// True when something brings the connection up from here by itself, which takes an address of the peer.
fn initiates(conn: &Connection) -> bool {
    let named = |spec: &AddrSpec| matches!(spec, AddrSpec::Host(_) | AddrSpec::Name(_));
    let acts = |c: &ChildConfig| {
        [c.start_action, c.close_action, c.dpd_action].iter().any(|action| *action != ChildAction::None)
    };
    conn.remote_addrs.iter().any(named)
        && conn.children.iter().any(|c| c.kind == ChildKind::Protect && acts(c))
}

/// Connections and children that meet themselves, and peers that are never asked whether they live.
fn selves(config: &Config, diags: &mut Diagnostics) {
    for conn in config.connections.iter().filter(|c| !c.only_shunts()) {
        let path = format!("connections.{}", conn.name);
        if let (Some(us), IdPattern::Exact(them)) = (&conn.local_id, &conn.remote_id)
            && conn.remote_id.matches(us)
        {
            let message = format!("is our own identity, too, {them}: give each side its own");
            warn(config, diags, Severity::Warning, &format!("{path}.remote.id"), message);
        }
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect) {
            let path = format!("{path}.children.{}", child.name);
            let same = child.local_ts.iter().filter(|l| child.remote_ts.contains(l)).find_map(|l| match l {
                TsSpec::Fixed(ts) if ts.range != AddrRange::any(ts.range.is_ipv6()) => Some(ts),
                _ => None,
            });
            if let Some(ts) = same {
                let message = format!(
                    "{ts} is in local_ts, too: no packet knows on which side its destination is; renumber one of the networks"
                );
                warn(config, diags, Severity::Warning, &format!("{path}.remote_ts"), message);
            }
            if conn.dpd_delay.is_zero() && child.dpd_action != ChildAction::None {
                let message = "without dpd_delay a dead peer is noticed only when the next request, such as a rekeying, stays \
                               without an answer; set dpd_delay = 30s in the connection";
                warn(config, diags, Severity::Warning, &format!("{path}.dpd_action"), message.to_owned());
            }
        }
    }
}

/// Selectors that contain the peer's own outer address.
fn own_address(config: &Config, diags: &mut Diagnostics) {
    for conn in &config.connections {
        let hosts: Vec<IpAddr> = hosts(&conn.remote_addrs).collect();
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect) {
            for ts in &child.remote_ts {
                let TsSpec::Fixed(ts) = ts else { continue };
                if let Some(host) = hosts.iter().find(|h| ts.range.contains(**h)) {
                    let key = format!("connections.{}.children.{}.remote_ts", conn.name, child.name);
                    let message = format!(
                        "{ts} contains the peer's own address {host}: traffic to the gateway itself goes through the \
                         tunnel too; leave the address out unless that is meant"
                    );
                    warn(config, diags, Severity::Warning, &key, message);
                }
            }
        }
    }
}

/// Keys that can be guessed (RFC 7296 section 2.15: a PSK needs as much unpredictability as the strongest key).
fn strength(config: &Config, diags: &mut Diagnostics) {
    documented(config, Severity::Error, diags);
    for key in &config.secrets {
        let path = format!("secrets.{}", key.name);
        let remedy = "whoever answers as the peer once can try keys offline; `ironswan pki --psk` makes one of 32 random bytes";
        match key.secret.len() {
            0..8 => warn(config, diags, Severity::Warning, &path, format!("a very short key; {remedy}")),
            8..16 => warn(config, diags, Severity::Note, &path, format!("a short key; {remedy}")),
            _ => {}
        }
    }
}

/// Keys that stand in our documents, where everybody reads them: an error to a check; the daemon warns and uses them, since
/// taking tunnels down would not mend it.
pub fn documented(config: &Config, severity: Severity, diags: &mut Diagnostics) {
    for key in config.secrets.iter().filter(|key| psk::is_documented(&key.secret)) {
        let message = "this key is an example in IronSwan's documents, and everybody knows it; `ironswan pki --psk` makes a \
                       new one for both gateways";
        warn(config, diags, severity, &format!("secrets.{}.secret", key.name), message.to_owned());
    }
}
