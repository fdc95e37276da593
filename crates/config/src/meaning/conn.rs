//! `connections.<conn>` and its `local` and `remote` sections.

use std::time::Duration;

use ironswan_crypto::sign::Legacy;
use ironswan_keying::diagnosis::{Configuration, Conflict, NameFault, Unwise};
use ironswan_keying::limits::KEYS_TRIED;
use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, Connection, LocalRound, PublicKey, RemoteRound, Trust,
    key_identity,
};
use ironswan_pki::{Certificate, identity};
use ironswan_wire::iana::{IdType, ProtocolId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::printable::hides;
use ironswan_wire::proposal::Proposal;

use super::super::algorithms;
use super::super::certfiles::{AUTHORITIES, ENDS, Named, folder_of};
use super::super::diag::Diagnostics;
use super::super::tree::{Node, Section};
use super::super::value::show;
use super::Reader;
use super::child::child;
use super::keys::conn::{self as k, Method, local as l, remote as m};
use super::keys::{self, Key, Table, join};

/// A connection's name and a child's are at most this long. VICI's answers put both into one name,
/// or a child's and a number, and a name of VICI has 255 bytes.
const MAX_NAME: usize = 100;
/// Addresses of one side: those of both sides are tried with each other.
const MAX_ADDRS: usize = 255;
/// `rekey_time` of a connection that names neither `rekey_time` nor `reauth_time`.
const REKEY_TIME: Duration = Duration::from_secs(4 * 3_600);
/// Public keys of one side: each of the peer's is tried with its signature.
const MAX_PUBKEYS: usize = 100;
/// Certificate policies of one side: each is judged by a search for a chain of its own.
const MAX_POLICIES: usize = 8;
/// Rounds in which one side proves itself (RFC 4739).
const MAX_ROUNDS: usize = 4;
/// Names of the sub-sections of a connection, each with or without a suffix.
const SECTIONS: &[&str] = &["local", "remote", "children"];

/// Understands one connection. `path` is what its keys are called in messages (`connections.net`,
/// or empty for VICI). `named` has the keys and certificates that it names. All errors are in
/// `diags`. `None` when there was one, unless only files of keys are at fault: the connection comes
/// without these keys then, so that the guard knows its selectors.
pub fn connection(
    name: &str,
    section: &Section,
    path: &str,
    named: &Named,
    diags: &mut Diagnostics,
) -> Option<Connection> {
    let (before, mut of_keys) = (diags.errors(), 0);
    if let Err(reason) = name_of(name) {
        diags.error(&section.origin, path, reason);
    }
    let (local, remote) = (in_rounds("local", section), in_rounds("remote", section));
    let mut children: Option<&Section> = None;
    keys::check(
        section,
        path,
        k::CONN_TABLE,
        diags,
        |sub, s, _| {
            match sub {
                "children" => children = Some(s),
                _ => return sub.starts_with("local") || sub.starts_with("remote"),
            }
            true
        },
        SECTIONS,
    );
    // A connection that only lets packets through or drops them needs nobody to authenticate.
    let shunt = |s: &Section| {
        s.value("mode")
            .is_some_and(|m| matches!(m.as_text().trim().to_ascii_lowercase().as_str(), "pass" | "drop"))
    };
    let only_shunts = children.is_some_and(|c| !c.is_empty() && c.sections().all(|(_, s)| shunt(s)));
    let sides = |found: &[(&str, &Section)]| !(only_shunts && found.is_empty());
    let (local_sides, remote_sides) = (sides(&local), sides(&remote));
    let us = match local_sides {
        true => sides_of("local", &local, section, path, diags, |s, path, diags| {
            local_side(&mut Reader { section: s, path, diags }, named, &mut of_keys)
        }),
        false => Vec::new(),
    };
    let them = match remote_sides {
        true => sides_of("remote", &remote, section, path, diags, |s, path, diags| {
            remote_side(&mut Reader { section: s, path, diags }, named, &mut of_keys)
        }),
        false => Vec::new(),
    };
    let times = times(&mut Reader { section, path, diags });
    let mut kids = Vec::new();
    if let Some(children) = children {
        let path = join(path, "children");
        for (name, node) in children.entries() {
            if let Err(reason) = name_of(name) {
                diags.error(node.origin(), &path, reason);
                continue;
            }
            match node {
                Node::Section(s) => {
                    kids.extend(child(name, s, &join(&path, name), times.reauth_time, diags));
                }
                Node::Value(v) => {
                    let key = Configuration::KeyForSection { name: name.to_owned() };
                    diags.error(&v.origin, &join(&path, name), key);
                }
            }
        }
    }

    let mut r = Reader { section, path, diags };
    r.written(&k::VERSION);
    let local_addrs = addrs(&mut r, &k::LOCAL_ADDRS);
    let remote_addrs = addrs(&mut r, &k::REMOTE_ADDRS);
    let local_port = r.written(&k::LOCAL_PORT).flatten();
    let remote_port = r.read(&k::REMOTE_PORT);
    let proposals = r.read(&k::PROPOSALS);
    algorithms::advice(&proposals).into_iter().for_each(|w| r.doubt(&k::PROPOSALS, w));
    let Times { rekey_time, reauth_time, over_time, rand_time } = times;
    let keyingtries = r.read(&k::KEYINGTRIES);
    let unique = r.read(&k::UNIQUE);
    let childless = r.read(&k::CHILDLESS);
    let fragmentation = r.read(&k::FRAGMENTATION);
    let ppk_id = r.written(&k::PPK_ID).flatten();
    let ppk_required = r.read(&k::PPK_REQUIRED);
    let ppk_intermediate = r.read(&k::PPK_INTERMEDIATE);
    let send_cert = r.read(&k::SEND_CERT);
    let send_certreq = r.read(&k::SEND_CERTREQ);
    let encap = r.read(&k::ENCAP);
    if encap {
        ah_in_udp(&mut r, &kids);
    }
    let mobike = r.read(&k::MOBIKE);
    let dscp = r.read(&k::DSCP);
    let dpd_delay = r.read(&k::DPD_DELAY);
    let path_probe = r.read(&k::PATH_PROBE);
    let starts = kids.iter().any(|c| c.start_action != ChildAction::None && c.kind == Default::default());
    if starts && !remote_addrs.iter().any(|a| matches!(a, AddrSpec::Host(_) | AddrSpec::Name(_))) {
        r.doubt(&k::REMOTE_ADDRS, Unwise::NoAddress);
    }
    if diags.errors() > before + of_keys {
        return None;
    }
    let (mut us, mut them) = (us.into_iter(), them.into_iter());
    let (local_auth, local_id) = us.next().unwrap_or((Auth::Psk, None));
    let (remote_auth, remote_id) = them.next().unwrap_or((Auth::Psk, IdPattern::Any));
    let local_rounds = us.map(|(auth, id)| LocalRound { auth, id }).collect();
    let remote_rounds = them.map(|(auth, id)| RemoteRound { auth, id }).collect();
    Some(Connection {
        name: name.to_owned(),
        local_addrs,
        remote_addrs,
        local_port,
        remote_port,
        proposals,
        local_auth,
        remote_auth,
        local_id,
        remote_id,
        local_rounds,
        remote_rounds,
        encap,
        mobike,
        dscp,
        dpd_delay,
        path_probe,
        keyingtries,
        unique,
        childless,
        fragmentation,
        ppk_id,
        ppk_required,
        ppk_intermediate,
        send_cert,
        send_certreq,
        rekey_time,
        reauth_time,
        over_time,
        rand_time,
        children: kids,
    })
}

/// Times of the IKE_SAs of a connection.
struct Times {
    rekey_time: Duration,
    reauth_time: Duration,
    over_time: Duration,
    rand_time: Duration,
}

/// Rekeying is left to its default only where nothing else is written, as with charon.
fn times(r: &mut Reader<'_>) -> Times {
    let reauth_time = r.read(&k::REAUTH_TIME);
    let unwritten = if reauth_time.is_zero() { REKEY_TIME } else { Duration::ZERO };
    let rekey_time = r.written(&k::REKEY_TIME).unwrap_or(unwritten);
    let over_time = r.written(&k::OVER_TIME).unwrap_or(rekey_time.max(reauth_time) / 10);
    let shorter = match (rekey_time.is_zero(), reauth_time.is_zero()) {
        (false, false) => rekey_time.min(reauth_time),
        _ => rekey_time.max(reauth_time),
    };
    let mut rand_time = r.written(&k::RAND_TIME).unwrap_or(over_time.min(shorter));
    if rand_time > shorter {
        r.doubt(&k::RAND_TIME, Unwise::RandTime);
        rand_time = shorter;
    }
    Times { rekey_time, reauth_time, over_time, rand_time }
}

/// Checks the name of a connection or a child. From a file it can only be too long.
fn name_of(name: &str) -> Result<(), Configuration> {
    let bad = |why| Configuration::BadName { name: show(name), why };
    if name.is_empty() || name.chars().any(|c| hides(c) || c.is_whitespace()) {
        return Err(bad(NameFault::NotAName));
    }
    if name.len() > MAX_NAME {
        return Err(bad(NameFault::Long(MAX_NAME)));
    }
    Ok(())
}

/// RFC 3948 section 1 has ESP in UDP only: AH protects the addresses that a NAT changes.
fn ah_in_udp(r: &mut Reader<'_>, kids: &[ChildConfig]) {
    for child in kids {
        let ah = |p: &Proposal| p.protocol == ProtocolId::AH;
        let name = show(&child.name);
        if child.proposals.iter().all(ah) {
            r.conflict(&k::ENCAP, Conflict::AhInUdp { child: name });
        } else if child.proposals.iter().any(ah) {
            r.doubt(&k::ENCAP, Unwise::AhNeverUsed { child: name });
        }
    }
}

fn addrs(r: &mut Reader<'_>, key: &Key<Vec<AddrSpec>>) -> Vec<AddrSpec> {
    let list = r.read(key);
    if list.len() > MAX_ADDRS {
        r.error(
            key,
            Configuration::TooMany { max: MAX_ADDRS, of: "addresses", write: "write subnets or ranges" },
        );
    }
    list
}

/// The `local...` or `remote...` sections, checked and read, in the order of their rounds.
fn sides_of<T>(
    what: &str,
    found: &[(&str, &Section)],
    conn: &Section,
    path: &str,
    diags: &mut Diagnostics,
    mut read: impl FnMut(&Section, &str, &mut Diagnostics) -> T,
) -> Vec<T> {
    if found.is_empty() {
        let write = format!("{what} {{ auth = psk }}");
        diags.error(&conn.origin, &join(path, what), Configuration::MissingSection { write });
    }
    if let Some((name, section)) = found.get(MAX_ROUNDS) {
        let many = Configuration::TooMany { max: MAX_ROUNDS, of: "rounds of authentication", write: "" };
        diags.error(&section.origin, &join(path, name), many);
        return Vec::new();
    }
    let mut sides = Vec::new();
    for (name, section) in found {
        let path = join(path, name);
        check_side(what, section, &path, diags);
        sides.push(read(section, &path, diags));
    }
    sides
}

/// The `local...` or `remote...` sections of a connection in the order of their rounds: by `round`,
/// and without it by their place.
pub(in super::super) fn in_rounds<'a>(what: &str, conn: &'a Section) -> Vec<(&'a str, &'a Section)> {
    let found = conn.sections().filter(|(name, _)| name.starts_with(what));
    // A wrong number is said by the one who reads the section.
    let round = |section: &Section| section.value(l::ROUND.name()).and_then(|v| l::ROUND.understand(v).ok());
    let numbered = (1..).zip(found);
    let mut sides: Vec<_> =
        numbered.map(|(place, (name, section))| (round(section).unwrap_or(place), (name, section))).collect();
    sides.sort_by_key(|(round, _)| *round);
    sides.into_iter().map(|(_, side)| side).collect()
}

/// Checks a `local...` or `remote...` section.
fn check_side(what: &str, section: &Section, path: &str, diags: &mut Diagnostics) {
    let table: Table = if what == "local" { l::LOCAL_TABLE } else { m::REMOTE_TABLE };
    keys::check(
        section,
        path,
        table,
        diags,
        |sub, s, diags| {
            // We have no CAs of our own side to name.
            let known = folder_of(sub).is_some_and(|folder| what == "remote" || folder == ENDS);
            if known {
                keys::check(s, &join(path, sub), k::CERT_TABLE, diags, |_, _, _| false, &[]);
            }
            known
        },
        &["cert", "cacert"],
    );
}

/// Reads a `local...` section: how we prove who we are. Its `round` has been used.
fn local_side(r: &mut Reader<'_>, named: &Named, of_keys: &mut usize) -> (Auth, Option<Identity>) {
    r.written(&l::ROUND);
    let id = r.written(&l::ID).flatten();
    let certificates = certificates(r, &l::CERTS, ENDS, named, of_keys);
    // A fingerprint of our public key as identity names the key as well.
    let by_print = id.as_ref().is_some_and(|id| id.kind == IdType::KEY_ID);
    let raw = by_print && certificates.is_empty();
    if let (Some(id), Some(first)) = (&id, certificates.first())
        && !certificates.iter().any(|own| identity::speaks_for(own, id))
    {
        r.doubt(&l::ID, Unwise::NotInCertificate { subject: first.subject().to_string() });
    }
    let trust = Trust { certificates, ..Trust::default() };
    let auth = authentication(r, (&l::AUTH, &l::PUBKEYS, &l::CERTS), named, trust, raw, of_keys);
    let id = if r.has(&l::ID) { id } else { by_key(&auth) };
    (auth, id)
}

/// Reads a `remote...` section: how the peer proves who it is. Its `round` has been used.
fn remote_side(r: &mut Reader<'_>, named: &Named, of_keys: &mut usize) -> (Auth, IdPattern) {
    r.written(&m::ROUND);
    let policies = r.written(&m::CERT_POLICY).unwrap_or_default();
    if policies.len() > MAX_POLICIES {
        r.error(&m::CERT_POLICY, Configuration::TooMany { max: MAX_POLICIES, of: "policies", write: "" });
    }
    let trust = Trust {
        certificates: certificates(r, &m::CERTS, ENDS, named, of_keys),
        authorities: certificates(r, &m::CACERTS, AUTHORITIES, named, of_keys),
        ca_id: r.read(&m::CA_ID),
        policies,
        revocation: r.read(&m::REVOCATION),
    };
    let auth = authentication(r, (&m::AUTH, &m::PUBKEYS, &m::CERTS), named, trust, false, of_keys);
    if matches!(&auth, Auth::Pubkey { keys, .. } if keys.len() > KEYS_TRIED) {
        r.doubt(&m::PUBKEYS, Unwise::ManyKeys { tried: KEYS_TRIED });
    }
    let unwritten = || by_key(&auth).map_or(IdPattern::Any, IdPattern::Exact);
    let id = r.written(&m::ID).unwrap_or_else(unwritten);
    (auth, id)
}

/// The identity of a side that has none: its first certificate or public key names it, as with
/// charon.
fn by_key(auth: &Auth) -> Option<Identity> {
    match auth {
        Auth::Psk => None,
        Auth::Certificate { trust, .. } => {
            trust.certificates.first().map(|own| Identity::name(own.subject().der().to_vec()))
        }
        Auth::Pubkey { keys, .. } => keys.first().map(key_identity),
    }
}

/// A key that is shorter than `auth` requires.
fn short(name: &str, key: &PublicKey) -> Configuration {
    Configuration::ShortKey { file: name.to_owned(), kind: key.kind() }
}

/// The certificates that one side names by a key, and by sections with a suffix. `of_keys` counts
/// errors about files.
fn certificates(
    r: &mut Reader<'_>,
    key: &Key<Vec<String>>,
    folder: &'static str,
    named: &Named,
    of_keys: &mut usize,
) -> Vec<Certificate> {
    let mut names = r.written(key).unwrap_or_default();
    let sections = r.section.sections().filter(|(name, _)| folder_of(name) == Some(folder));
    names.extend(sections.filter_map(|(_, s)| Some(s.value("file")?.as_text().trim().to_owned())));
    if names.len() > MAX_PUBKEYS {
        r.error(key, Configuration::TooMany { max: MAX_PUBKEYS, of: "certificates", write: "" });
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        match named.certificate(folder, name) {
            Ok(certificate) if found.contains(&certificate) => {}
            Ok(certificate) => found.push(certificate),
            Err(why) => {
                r.error(key, why);
                *of_keys += 1;
            }
        }
    }
    found
}

/// The method of authentication of one side, with its public keys or certificates. `raw`: it has a
/// raw public key although it names none. `of_keys` counts errors about files of keys.
fn authentication(
    r: &mut Reader<'_>,
    (auth, pubkeys, certs): (&Key<Method>, &Key<Vec<String>>, &Key<Vec<String>>),
    named: &Named,
    trust: Trust,
    raw: bool,
    of_keys: &mut usize,
) -> Auth {
    let names = r.written(pubkeys).unwrap_or_default();
    if names.len() > MAX_PUBKEYS {
        r.error(pubkeys, Configuration::TooMany { max: MAX_PUBKEYS, of: "public keys", write: "" });
        return Auth::Psk;
    }
    let method = if r.has(auth) { r.written(auth) } else { Some(auth.default()) };
    let rules = match &method {
        Some(Method::Pubkey(rules)) => Some(rules),
        _ => None,
    };
    let check = |name: &str, key: PublicKey| match rules {
        Some(rules) if !rules.permits_key(key.kind()) => Err(short(name, &key)),
        _ => Ok(key),
    };
    let mut keys = Vec::new();
    for name in names {
        match named.public.find(&name).and_then(|key| check(&name, key)) {
            Ok(key) if keys.contains(&key) => {}
            Ok(key) => keys.push(key),
            Err(why) => {
                r.error(pubkeys, why);
                *of_keys += 1;
            }
        }
    }
    match method {
        Some(Method::Pubkey(rules)) => {
            if rules.legacy() != Legacy::default() {
                r.doubt(auth, Unwise::WeakSignatures);
            }
            if !r.has(pubkeys) && !raw {
                return Auth::Certificate { trust: Box::new(trust), rules };
            }
            if r.has(certs) {
                r.note(certs, Configuration::NoEffect { why: "pubkeys is there, so no certificate is used" });
            }
            Auth::Pubkey { keys, rules }
        }
        Some(Method::Psk) => {
            if !keys.is_empty() {
                r.note(pubkeys, Configuration::NoEffect { why: "auth = psk uses no public keys" });
            }
            if r.has(certs) {
                r.note(certs, Configuration::NoEffect { why: "auth = psk uses no certificates" });
            }
            Auth::Psk
        }
        None => Auth::Psk,
    }
}
