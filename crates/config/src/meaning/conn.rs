//! `connections.<conn>` and its `local` and `remote` sections.

use std::time::Duration;

use ironswan_crypto::sign::Legacy;
use ironswan_keying::diagnosis::{Configuration, Conflict, NameFault, Unwise};
use ironswan_keying::limits::KEYS_TRIED;
use ironswan_keying::{AddrSpec, Auth, ChildAction, ChildConfig, Connection, PublicKey, key_identity};
use ironswan_wire::iana::{IdType, ProtocolId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;

use super::super::algorithms;
use super::super::diag::Diagnostics;
use super::super::keyfiles::PublicKeys;
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
/// Names of the sub-sections of a connection, each with or without a suffix.
const SECTIONS: &[&str] = &["local", "remote", "children"];

/// Understands one connection. `path` is what its keys are called in messages (`connections.net`,
/// or empty for VICI). `public` has the keys that its `pubkeys` name. All errors are in `diags`.
/// `None` when there was one, unless only files of keys are at fault: the connection comes without
/// these keys then, so that the guard knows its selectors.
pub fn connection(
    name: &str,
    section: &Section,
    path: &str,
    public: &PublicKeys,
    diags: &mut Diagnostics,
) -> Option<Connection> {
    let (before, mut of_keys) = (diags.errors(), 0);
    if let Err(reason) = name_of(name) {
        diags.error(&section.origin, path, reason);
    }
    let mut local: Vec<(&str, &Section)> = Vec::new();
    let mut remote: Vec<(&str, &Section)> = Vec::new();
    let mut children: Option<&Section> = None;
    keys::check(
        section,
        path,
        k::CONN_TABLE,
        diags,
        |sub, s, _| {
            match sub {
                "children" => children = Some(s),
                _ if sub.starts_with("local") => local.push((sub, s)),
                _ if sub.starts_with("remote") => remote.push((sub, s)),
                _ => return false,
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
    let us = local_sides.then(|| side("local", &local, section, path, diags)).flatten().map(|(s, path)| {
        let mut r = Reader { section: s, path: &path, diags };
        r.written(&l::ROUND);
        let id = r.written(&l::ID).flatten();
        // A fingerprint of our public key as identity names the key as well.
        let named = id.as_ref().is_some_and(|id| id.kind == IdType::KEY_ID);
        let lack = (!named).then_some(Configuration::NoPublicKey { ours: true });
        let auth = authentication(&mut r, &l::AUTH, &l::PUBKEYS, public, lack, &mut of_keys);
        let id = if r.has(&l::ID) { id } else { by_key(&auth) };
        (auth, id)
    });
    let them =
        remote_sides.then(|| side("remote", &remote, section, path, diags)).flatten().map(|(s, path)| {
            let mut r = Reader { section: s, path: &path, diags };
            r.written(&m::ROUND);
            let lack = Some(Configuration::NoPublicKey { ours: false });
            let auth = authentication(&mut r, &m::AUTH, &m::PUBKEYS, public, lack, &mut of_keys);
            if matches!(&auth, Auth::Pubkey { keys, .. } if keys.len() > KEYS_TRIED) {
                r.doubt(&m::PUBKEYS, Unwise::ManyKeys { tried: KEYS_TRIED });
            }
            let unwritten = || by_key(&auth).map_or(IdPattern::Any, IdPattern::Exact);
            let id = r.written(&m::ID).unwrap_or_else(unwritten);
            (auth, id)
        });
    let mut kids = Vec::new();
    if let Some(children) = children {
        let path = join(path, "children");
        for (name, node) in children.entries() {
            if let Err(reason) = name_of(name) {
                diags.error(node.origin(), &path, reason);
                continue;
            }
            match node {
                Node::Section(s) => kids.extend(child(name, s, &join(&path, name), diags)),
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
    let Times { rekey_time, reauth_time, over_time, rand_time } = times(&mut r);
    let keyingtries = r.read(&k::KEYINGTRIES);
    let unique = r.read(&k::UNIQUE);
    let childless = r.read(&k::CHILDLESS);
    let fragmentation = r.read(&k::FRAGMENTATION);
    let ppk_id = r.written(&k::PPK_ID).flatten();
    let ppk_required = r.read(&k::PPK_REQUIRED);
    let encap = r.read(&k::ENCAP);
    if encap {
        ah_in_udp(&mut r, &kids);
    }
    let mobike = r.read(&k::MOBIKE);
    let dpd_delay = r.read(&k::DPD_DELAY);
    let starts = kids.iter().any(|c| c.start_action != ChildAction::None && c.kind == Default::default());
    if starts && !remote_addrs.iter().any(|a| matches!(a, AddrSpec::Host(_) | AddrSpec::Name(_))) {
        r.doubt(&k::REMOTE_ADDRS, Unwise::NoAddress);
    }
    if diags.errors() > before + of_keys {
        return None;
    }
    let (local_auth, local_id) = us.unwrap_or((Auth::Psk, None));
    let (remote_auth, remote_id) = them.unwrap_or((Auth::Psk, IdPattern::Any));
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
        encap,
        mobike,
        dpd_delay,
        keyingtries,
        unique,
        childless,
        fragmentation,
        ppk_id,
        ppk_required,
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
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
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

/// The one `local...` or `remote...` section, checked.
fn side<'a>(
    what: &str,
    found: &[(&str, &'a Section)],
    conn: &Section,
    path: &str,
    diags: &mut Diagnostics,
) -> Option<(&'a Section, String)> {
    let table: Table = if what == "local" { l::LOCAL_TABLE } else { m::REMOTE_TABLE };
    let (name, section) = match found {
        [] => {
            let write = format!("{what} {{ auth = psk }}");
            diags.error(&conn.origin, &join(path, what), Configuration::MissingSection { write });
            return None;
        }
        [one] => *one,
        [_, (name, second), ..] => {
            let what = format!("a second {what} round: multiple authentication (RFC 4739) is not built yet");
            let unbuilt = Configuration::NotBuilt { what, write: "keep one" };
            diags.error(&second.origin, &join(path, name), unbuilt);
            return None;
        }
    };
    let path = join(path, name);
    keys::check(
        section,
        &path,
        table,
        diags,
        |sub, s, diags| {
            let known = sub.starts_with("cert") || sub.starts_with("cacert");
            if known {
                let what = "certificates are not built yet".to_owned();
                let write = "use pubkeys or auth = psk, and remove this section";
                diags.error(&s.origin, &join(&path, sub), Configuration::NotBuilt { what, write });
            }
            known
        },
        &["cert", "cacert"],
    );
    Some((section, path))
}

/// The identity of a side that has none: its first public key names it, as with charon.
fn by_key(auth: &Auth) -> Option<Identity> {
    match auth {
        Auth::Psk => None,
        Auth::Pubkey { keys, .. } => keys.first().map(key_identity),
    }
}

/// A key that is shorter than `auth` requires.
fn short(name: &str, key: &PublicKey) -> Configuration {
    Configuration::ShortKey { file: name.to_owned(), kind: key.kind() }
}

/// The method of authentication of one side, with its public keys. `lack` is the fault of a side
/// that uses public keys and names none. `of_keys` counts errors about files of keys.
fn authentication(
    r: &mut Reader<'_>,
    auth: &Key<Method>,
    pubkeys: &Key<Vec<String>>,
    public: &PublicKeys,
    lack: Option<Configuration>,
    of_keys: &mut usize,
) -> Auth {
    let names = r.written(pubkeys).unwrap_or_default();
    if names.len() > MAX_PUBKEYS {
        r.error(pubkeys, Configuration::TooMany { max: MAX_PUBKEYS, of: "public keys", write: "" });
        return Auth::Psk;
    }
    let method = if r.has(auth) { r.written(auth) } else { Some(auth.default()) };
    let is_short = |key: &PublicKey| match &method {
        Some(Method::Pubkey(rules)) => !rules.permits_key(key.kind()),
        _ => false,
    };
    let mut keys = Vec::new();
    for name in names {
        match public
            .find(&name)
            .and_then(|key| if is_short(&key) { Err(short(&name, &key)) } else { Ok(key) })
        {
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
            if let Some(lack) = lack.filter(|_| !r.has(pubkeys)) {
                r.error(auth, lack);
            }
            if rules.legacy() != Legacy::default() {
                r.doubt(auth, Unwise::WeakSignatures);
            }
            Auth::Pubkey { keys, rules }
        }
        Some(Method::Psk) if !keys.is_empty() => {
            r.note(pubkeys, Configuration::NoEffect { why: "auth = psk uses no public keys" });
            Auth::Psk
        }
        _ => Auth::Psk,
    }
}
