//! Checks of parts of a configuration against each other: the linter behind `ironswan check`. The
//! daemon runs with what is found here, errors too: a connection without a key waits for one that
//! VICI loads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ironswan_keying::diagnosis::{Configuration, Diagnosis, KeyLack};
use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Connection, PPK_BYTES, Ports, Ppks, SharedKeys,
    TsSpec,
};
use ironswan_wire::iana::IdType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::diag::{Diagnostics, Severity};
use super::load::Config;
use super::psk;

/// Overlaps reported, at most: ten thousand connections with the same selectors would give fifty
/// million.
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
        ppks(config, diags);
    }
    if !config.private_lost {
        private_keys(config, diags);
    }
    trust(config, diags);
    selves(config, diags);
    own_address(config, diags);
    strength(config, diags);
}

fn warn(
    config: &Config,
    diags: &mut Diagnostics,
    severity: Severity,
    key: &str,
    reason: impl Into<Diagnosis>,
) {
    diags.push(severity, config.place(key), key, reason);
}

/// A connection that sends from a port which is not the daemon's cannot be initiated. It answers
/// peers all the same.
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

/// What all children protect that have no place of their own in the order of policies.
fn claims(config: &Config) -> Vec<Claim<'_>> {
    let mut claims = Vec::new();
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
    claims
}

/// The reason why two claims are worth a message, with the claim that it is about: they want the
/// same packets.
fn overlap<'a, 'b>(
    config: &Config,
    o: &'a Claim<'b>,
    c: &'a Claim<'b>,
) -> Option<(&'a Claim<'b>, Severity, Configuration)> {
    if o.conn.name == c.conn.name && o.child == c.child {
        return None;
    }
    let (local, remote) = (o.local.intersect(c.local)?, o.remote.intersect(c.remote)?);
    // One inside the other is how a road warrior's exception is written: the more specific one
    // wins.
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
        return None;
    }
    let packets = format!("{local} === {remote}");
    let (this, other) = inside.unwrap_or((c, o));
    let other = child_with_place(config, other.conn, other.child);
    Some(match inside {
        Some(_) => (this, Severity::Note, Configuration::Inside { packets, other }),
        None => (this, Severity::Warning, Configuration::Overlap { packets, other }),
    })
}

/// Two children of different connections that want the same packets: the engine gives them to one.
fn overlaps(config: &Config, diags: &mut Diagnostics) {
    let mut claims = claims(config);
    // Sorted by the first remote address, only neighbours whose ranges still reach each other can
    // overlap.
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
            let Some((this, severity, why)) = overlap(config, &claims[a], c) else { continue };
            found += 1;
            if found > MAX_OVERLAPS {
                return;
            }
            let key = format!("connections.{}.children.{}.remote_ts", this.conn.name, this.child);
            warn(config, diags, severity, &key, why);
        }
        // Bounded work: beyond this many open ranges the report is full of them anyway.
        if active.len() < 1_000 {
            active.push(i);
        }
    }
}

/// A child as messages name it, with the place where it was written.
fn child_with_place(config: &Config, conn: &Connection, child: &str) -> String {
    let name = format!("connections.{}.children.{child}", conn.name);
    let place = config.place(&name).map(|place| format!(" ({place})")).unwrap_or_default();
    name + &place
}

/// Children of different connections with one configured reqid and other selectors: policies and
/// SAs of one reqid are one peer's to the engine, so that each peer may speak for the other's
/// networks.
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
            let other = child_with_place(config, first, &other.name);
            let shared = Configuration::SharedReqid { reqid: child.reqid, other };
            warn(config, diags, Severity::Warning, &key, shared);
        }
    }
}

/// Two connections that a responder cannot tell apart.
fn twins(config: &Config, diags: &mut Diagnostics) {
    let text = |addrs: &[AddrSpec]| format!("{addrs:?}");
    // The identities themselves: their texts are cut where they are long.
    let mut seen: BTreeMap<_, &Connection> = BTreeMap::new();
    for conn in &config.connections {
        let us = conn.local_id.as_ref().map(Identity::folded);
        // The method by which the peer proves itself tells connections apart, too.
        let psk = conn.remote_auth == Auth::Psk;
        let them: Vec<_> = conn.remote_sides().map(|(_, id)| id.folded()).collect();
        let key = (text(&conn.local_addrs), text(&conn.remote_addrs), us, them, psk);
        if let Some(first) = seen.insert(key, conn) {
            let path = format!("connections.{}", conn.name);
            let twins = Configuration::Twins { other: first.name.clone() };
            warn(config, diags, Severity::Warning, &path, twins);
        }
    }
}

fn hosts(addrs: &[AddrSpec]) -> impl Iterator<Item = IpAddr> {
    addrs.iter().filter_map(|a| if let AddrSpec::Host(h) = a { Some(*h) } else { None })
}

/// Pre-shared keys: one for each connection, and no doubt which. The daemon's own choice is asked
/// for the identities that it will ask for: ours, or our address; the peer's, or (to initiate) its
/// address. A side that only a running daemon knows is taken for whatever has a key.
fn keys(config: &Config, diags: &mut Diagnostics) {
    let mut ring = SharedKeys::default();
    config.secrets.iter().for_each(|key| ring.insert(key.clone()));
    let shared = |c: &Cow<'_, Connection>| c.local_auth == Auth::Psk || c.remote_auth == Auth::Psk;
    let rounds = config.connections.iter().filter(|c| !c.only_shunts()).flat_map(Connection::apart);
    for conn in rounds.filter(shared) {
        let path = format!("connections.{}", conn.name);
        let us: Vec<Identity> = match &conn.local_id {
            Some(id) => vec![id.clone()],
            None => hosts(&conn.local_addrs).map(Identity::from_addr).collect(),
        };
        let them: Vec<Identity> = match &conn.remote_id {
            IdPattern::Exact(id) => vec![id.clone()],
            _ if starts(&conn) => hosts(&conn.remote_addrs).map(Identity::from_addr).collect(),
            _ => Vec::new(),
        };
        let pairs: Vec<_> = us.iter().flat_map(|us| them.iter().map(move |them| (us, them))).collect();
        let mut lack = None;
        for (us, them) in &pairs {
            match ring.choose(us, them) {
                None => lack = lack.or(Some((us.to_string(), them.to_string()))),
                Some((key, Some(other))) => {
                    let two = Configuration::TwoKeys { first: key.name.clone(), second: other.name.clone() };
                    warn(config, diags, Severity::Warning, &path, two);
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
        if let Some((local, remote)) = lack {
            let none = Configuration::NoKey { local, remote, conn: conn.name.clone() };
            warn(config, diags, Severity::Error, &path, none);
        }
    }
}

/// Post-quantum preshared keys: the one that each connection names, by the daemon's own choice. A
/// connection that can go without is only warned of.
fn ppks(config: &Config, diags: &mut Diagnostics) {
    let mut ring = Ppks::default();
    config.ppks.iter().for_each(|key| ring.insert(key.clone()));
    for conn in config.connections.iter().filter(|c| !c.only_shunts()) {
        let path = format!("connections.{}", conn.name);
        match &conn.ppk_id {
            Some(id) if ring.find(&id.data).is_none() => {
                let severity = if conn.ppk_required { Severity::Error } else { Severity::Warning };
                let none = Configuration::NoPpk { id: id.clone() };
                warn(config, diags, severity, &format!("{path}.ppk_id"), none);
            }
            None if conn.ppk_required => {
                let key = format!("{path}.ppk_required");
                warn(config, diags, Severity::Warning, &key, Configuration::PpkUnnamed);
            }
            _ => {}
        }
    }
}

/// Our private keys: one for each connection on which we sign, by the daemon's own choice.
fn private_keys(config: &Config, diags: &mut Diagnostics) {
    let (ring, loaded) = (config.key_ring(), config.loaded());
    let conns = config.connections.iter().filter(|c| !c.only_shunts());
    for (round, conn) in conns.flat_map(|conn| conn.apart().into_iter().enumerate()) {
        let key = format!("{}.pubkeys", config.local_side(&conn.name, round));
        let us = conn.local_id.clone().or_else(|| hosts(&conn.local_addrs).map(Identity::from_addr).next());
        // A side that only a running daemon knows.
        let unknown = || Identity::from_addr(Ipv4Addr::UNSPECIFIED.into());
        match &conn.local_auth {
            Auth::Certificate { trust, .. } => {
                let by_address = us.is_none() && loaded.has_own_address(&ring);
                let local = us.clone().unwrap_or_else(unknown);
                let lack = match loaded.ours(trust, &local, &ring, &[]) {
                    Err(Configuration::NoPrivateKey { why, .. }) if us.is_none() => {
                        Configuration::NoPrivateKey { local: "%any".into(), why }
                    }
                    Err(why) => why,
                    Ok(_) => continue,
                };
                if !by_address {
                    warn(config, diags, Severity::Error, &key, lack);
                }
            }
            Auth::Pubkey { keys: public, .. } => {
                let by_name = conn.local_id.as_ref().is_some_and(|id| id.kind == IdType::KEY_ID);
                // That the file of our public key is at fault has been said.
                if public.is_empty() && !by_name {
                    continue;
                }
                // Without an identity there are public keys, and the identity is not asked.
                let local = us.as_ref().map_or_else(|| "%any".to_owned(), ToString::to_string);
                if ring.find(public, &us.unwrap_or_else(unknown)).is_none() {
                    let why = if public.is_empty() { KeyLack::Fingerprint } else { KeyLack::Named };
                    warn(config, diags, Severity::Error, &key, Configuration::NoPrivateKey { local, why });
                }
            }
            Auth::Psk => {}
        }
    }
}

/// CAs, or keys and certificates of the peer: something that its proof is compared with.
fn trust(config: &Config, diags: &mut Diagnostics) {
    let loaded = config.loaded();
    let conns = config.connections.iter().filter(|c| !c.only_shunts());
    for (round, conn) in conns.flat_map(|conn| conn.apart().into_iter().enumerate()) {
        let Some(trust) = conn.remote_auth.trust() else { continue };
        if !trust.certificates.is_empty() && !trust.asks_for_chain() {
            continue;
        }
        if let Err(of) = loaded.has_root(trust) {
            let none = Configuration::NoPublicKey { of };
            warn(config, diags, Severity::Error, &config.remote_side(&conn.name, round), none);
        }
    }
}

/// True when a child brings the connection up from here.
fn starts(conn: &Connection) -> bool {
    conn.children.iter().any(|c| c.kind == ChildKind::Protect && c.start_action != ChildAction::None)
}

/// True when something brings the connection up from here by itself, which takes an address of the
/// peer.
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
            let own = Configuration::OwnIdentity { id: them.to_string() };
            warn(config, diags, Severity::Warning, &format!("{}.id", config.remote_side(&conn.name, 0)), own);
        }
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect) {
            let path = format!("{path}.children.{}", child.name);
            let same = child.local_ts.iter().filter(|l| child.remote_ts.contains(l)).find_map(|l| match l {
                TsSpec::Fixed(ts) if ts.range != AddrRange::any(ts.range.is_ipv6()) => Some(ts),
                _ => None,
            });
            if let Some(ts) = same {
                let both = Configuration::BothSides { selector: ts.to_string() };
                warn(config, diags, Severity::Warning, &format!("{path}.remote_ts"), both);
            }
            if conn.dpd_delay.is_zero() && child.dpd_action != ChildAction::None {
                let key = format!("{path}.dpd_action");
                warn(config, diags, Severity::Warning, &key, Configuration::NoLiveness);
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
                    let inside = Configuration::PeerInside { selector: ts.to_string(), address: *host };
                    warn(config, diags, Severity::Warning, &key, inside);
                }
            }
        }
    }
}

/// Keys that can be guessed (RFC 7296 section 2.15: a PSK needs as much unpredictability as the
/// strongest key).
fn strength(config: &Config, diags: &mut Diagnostics) {
    documented(config, Severity::Error, diags);
    for key in &config.secrets {
        let path = format!("secrets.{}", key.name);
        let short = |very| Configuration::ShortSecret { very };
        match key.secret.len() {
            0..8 => warn(config, diags, Severity::Warning, &path, short(true)),
            8..16 => warn(config, diags, Severity::Note, &path, short(false)),
            _ => {}
        }
    }
    for key in config.ppks.iter().filter(|key| key.secret.len() < PPK_BYTES) {
        let short = Configuration::ShortPpk { bytes: key.secret.len() };
        warn(config, diags, Severity::Warning, &format!("secrets.{}", key.name), short);
    }
}

/// Keys that stand in our documents, where everybody reads them: an error to a check; the daemon
/// warns and uses them, since taking tunnels down would not mend it.
pub fn documented(config: &Config, severity: Severity, diags: &mut Diagnostics) {
    let shared = config.secrets.iter().map(|key| (&key.name, &key.secret));
    let all = shared.chain(config.ppks.iter().map(|key| (&key.name, &key.secret)));
    for (name, _) in all.filter(|(_, secret)| psk::is_documented(secret)) {
        let path = format!("secrets.{name}.secret");
        warn(config, diags, severity, &path, Configuration::DocumentedSecret);
    }
}
