//! What two parts of a configuration mean for each other: the linter behind `ironswan check`. Each finding is a
//! warning; the daemon runs with them.

use std::collections::HashMap;
use std::net::IpAddr;

use ironswan_ike::config::{AddrSpec, ChildKind, Connection, SharedKey, TsSpec};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::selector::TrafficSelector;

use super::diag::{Diagnostics, Severity};
use super::load::Config;
use super::psk;

/// Overlaps reported, at most: ten thousand connections with the same selectors would give fifty million.
const MAX_OVERLAPS: usize = 100;

/// Checks a configuration that could be read.
pub fn check(config: &Config, diags: &mut Diagnostics) {
    overlaps(config, diags);
    twins(config, diags);
    keys(config, diags);
    own_address(config, diags);
    strength(config, diags);
}

fn warn(config: &Config, diags: &mut Diagnostics, severity: Severity, key: &str, message: String) {
    diags.push(severity, config.place(key), key, message);
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
            if nested(o, c) || nested(c, o) {
                continue;
            }
            found += 1;
            if found > MAX_OVERLAPS {
                return;
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

/// Two connections that a responder cannot tell apart.
fn twins(config: &Config, diags: &mut Diagnostics) {
    let text = |addrs: &[AddrSpec]| format!("{addrs:?}");
    let mut seen: HashMap<(String, String, String, String), &Connection> = HashMap::new();
    for conn in &config.connections {
        let id = conn.local_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let key = (text(&conn.local_addrs), text(&conn.remote_addrs), id, conn.remote_id.to_string());
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

/// How well a key's owners fit one end: 0 not at all, more is better.
fn fit(key: &SharedKey, ids: &[Identity]) -> usize {
    key.owners
        .iter()
        .map(|owner| match owner {
            IdPattern::Any => 1,
            IdPattern::Suffix(..) if ids.iter().any(|id| owner.matches(id)) => 2,
            IdPattern::Exact(_) if ids.iter().any(|id| owner.matches(id)) => 3,
            _ => 0,
        })
        .max()
        .unwrap_or(0)
}

fn identities(id: Option<&Identity>, addrs: &[AddrSpec]) -> Vec<Identity> {
    let hosts = addrs
        .iter()
        .filter_map(|a| if let AddrSpec::Host(h) = a { Some(Identity::from_addr(*h)) } else { None });
    id.cloned().into_iter().chain(hosts).collect()
}

/// Pre-shared keys: one for each connection, and no doubt which.
fn keys(config: &Config, diags: &mut Diagnostics) {
    // With ten thousand connections and keys the pairs are a hundred million: look exact owners up instead.
    let mut by_owner: HashMap<&Identity, Vec<usize>> = HashMap::new();
    let mut general: Vec<usize> = Vec::new();
    for (i, key) in config.secrets.iter().enumerate() {
        let exact: Vec<&Identity> = key
            .owners
            .iter()
            .filter_map(|o| if let IdPattern::Exact(id) = o { Some(id) } else { None })
            .collect();
        if exact.len() != key.owners.len() || exact.is_empty() {
            general.push(i);
        }
        exact.into_iter().for_each(|id| by_owner.entry(id).or_default().push(i));
    }
    for conn in &config.connections {
        if conn.children.iter().all(|c| c.kind != ChildKind::Protect) && !conn.children.is_empty() {
            continue;
        }
        let remote_id = if let IdPattern::Exact(id) = &conn.remote_id { Some(id) } else { None };
        let us = identities(conn.local_id.as_ref(), &conn.local_addrs);
        let them = identities(remote_id, &conn.remote_addrs);
        let mut candidates: Vec<usize> = general.clone();
        for id in us.iter().chain(&them) {
            candidates.extend(by_owner.get(id).into_iter().flatten());
        }
        // A peer that is not known by name may still turn out to be an owner.
        let open = !matches!(conn.remote_id, IdPattern::Exact(_));
        candidates.sort_unstable();
        candidates.dedup();
        let mut scored: Vec<((usize, usize), usize)> = candidates
            .iter()
            .map(|&i| {
                let key = &config.secrets[i];
                if key.owners.is_empty() { ((1, 1), i) } else { ((fit(key, &them) * 2, fit(key, &us)), i) }
            })
            .filter(|((them, us), _)| them + us > 0)
            .collect();
        scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let path = format!("connections.{}", conn.name);
        match scored.as_slice() {
            [] if !(open && config.secrets.iter().any(|k| !k.owners.is_empty())) => {
                let who =
                    if remote_id.is_some() { conn.remote_id.to_string() } else { "any peer".to_owned() };
                let message = format!(
                    "no pre-shared key for {who}; add secrets {{ ike-... {{ id = ...  secret = ... }} }}"
                );
                warn(config, diags, Severity::Warning, &path, message);
            }
            [first, second, ..]
                if first.0 == second.0
                    && config.secrets[first.1].secret != config.secrets[second.1].secret =>
            {
                let message = format!(
                    "two different keys fit equally well, secrets.{} and secrets.{}; give each its own id",
                    config.secrets[first.1].name, config.secrets[second.1].name
                );
                warn(config, diags, Severity::Warning, &path, message);
            }
            _ => {}
        }
    }
}

/// Selectors that contain the peer's own outer address.
fn own_address(config: &Config, diags: &mut Diagnostics) {
    for conn in &config.connections {
        let hosts: Vec<IpAddr> = conn
            .remote_addrs
            .iter()
            .filter_map(|a| if let AddrSpec::Host(h) = a { Some(*h) } else { None })
            .collect();
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
pub(crate) fn documented(config: &Config, severity: Severity, diags: &mut Diagnostics) {
    for key in config.secrets.iter().filter(|key| psk::is_documented(&key.secret)) {
        let message = "this key is an example in IronSwan's documents, and everybody knows it; `ironswan pki --psk` makes a \
                       new one for both gateways";
        warn(config, diags, severity, &format!("secrets.{}.secret", key.name), message.to_owned());
    }
}
