//! `connections.<conn>` and its `local` and `remote` sections.

use std::time::Duration;

use ironswan_ike::config::{AddrSpec, Auth, ChildAction, ChildConfig, Childless, Connection, Unique};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;

use super::super::algorithms;
use super::super::diag::Diagnostics;
use super::super::proposal;
use super::super::tree::{Node, Section};
use super::super::value::{self, show};
use super::Reader;
use super::child::child;
use super::keys::{self, join};

/// A connection's name and a child's are at most this long. VICI's answers put both into one name, or a child's and a number,
/// and a name of VICI has 255 bytes.
const MAX_NAME: usize = 100;
/// Addresses of one side: those of both sides are tried with each other.
const MAX_ADDRS: usize = 255;
/// swanctl's default: 4 hours.
const REKEY_TIME: Duration = Duration::from_secs(4 * 3600);

/// Understands one connection. `path` is what its keys are called in messages (`connections.net`, or empty for VICI).
/// `None` when there was an error; all errors are in `diags`.
pub fn connection(name: &str, section: &Section, path: &str, diags: &mut Diagnostics) -> Option<Connection> {
    let before = diags.errors();
    if let Err(message) = name_of(name) {
        diags.error(&section.origin, path, message);
    }
    let mut local: Vec<(&str, &Section)> = Vec::new();
    let mut remote: Vec<(&str, &Section)> = Vec::new();
    let mut children: Option<&Section> = None;
    keys::check(
        section,
        path,
        keys::CONN,
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
        keys::CONN_SECTIONS,
    );
    // What is only let through or dropped needs nobody to authenticate.
    let shunt = |s: &Section| {
        s.value("mode")
            .is_some_and(|m| matches!(m.as_text().trim().to_ascii_lowercase().as_str(), "pass" | "drop"))
    };
    let only_shunts = children.is_some_and(|c| !c.is_empty() && c.sections().all(|(_, s)| shunt(s)));
    let sides = |found: &[(&str, &Section)]| !(only_shunts && found.is_empty());
    let (local_sides, remote_sides) = (sides(&local), sides(&remote));
    let local_id =
        local_sides.then(|| side("local", &local, section, path, diags)).flatten().map(|(s, path)| {
            let mut r = Reader { section: s, path: &path, diags };
            r.get("id", |t| if t.trim() == "%any" { Ok(None) } else { identity(t).map(Some) }).flatten()
        });
    let remote_id =
        remote_sides.then(|| side("remote", &remote, section, path, diags)).flatten().map(|(s, path)| {
            let mut r = Reader { section: s, path: &path, diags };
            r.get("id", pattern).unwrap_or(IdPattern::Any)
        });
    let mut kids = Vec::new();
    if let Some(children) = children {
        let path = join(path, "children");
        for (name, node) in children.entries() {
            if let Err(message) = name_of(name) {
                diags.error(node.origin(), &path, message);
                continue;
            }
            match node {
                Node::Section(s) => kids.extend(child(name, s, &join(&path, name), diags)),
                Node::Value(v) => {
                    diags.error(
                        &v.origin,
                        &join(&path, name),
                        format!("is a section, not a key; write {name} {{ ... }}"),
                    );
                }
            }
        }
    }

    let mut r = Reader { section, path, diags };
    r.get("version", |t| match t.trim() {
        "0" | "2" => Ok(()),
        "1" => Err("IKEv1 is not spoken (RFC 9395 retired it); set version = 2".to_owned()),
        t => Err(format!("`{}` is not a version; set version = 2", show(t))),
    });
    let local_addrs = addrs(&mut r, "local_addrs");
    let remote_addrs = addrs(&mut r, "remote_addrs");
    // Whether it is one of ours is for `check` to say.
    let local_port = r.get("local_port", |t| value::port(t, 0)).filter(|port| *port > 0);
    let remote_port = r.get("remote_port", |t| value::port(t, 500)).unwrap_or(500);
    let proposals = match section.value("proposals") {
        None => proposal::default_list(ProtocolId::IKE),
        Some(v) => match proposal::list(v.items(), ProtocolId::IKE) {
            Ok(list) => {
                algorithms::advice(&list).into_iter().for_each(|w| r.warn("proposals", w));
                list
            }
            Err(errors) => {
                errors.into_iter().for_each(|e| r.error("proposals", e));
                Vec::new()
            }
        },
    };
    let rekey_time = r.get("rekey_time", value::time).unwrap_or(REKEY_TIME);
    let over_time = r.get("over_time", value::time).unwrap_or(rekey_time / 10);
    let mut rand_time = r.get("rand_time", value::time).unwrap_or(over_time.min(rekey_time));
    if rand_time > rekey_time {
        r.warn("rand_time", "is longer than rekey_time, which is used instead");
        rand_time = rekey_time;
    }
    let keyingtries = r
        .get("keyingtries", |t| match t.trim() {
            "%forever" => Ok(0),
            t => value::number(t, u64::from(u32::MAX)).map(|n| n as u32),
        })
        .unwrap_or(1);
    let unique = r.word(
        "unique",
        &[("no", Unique::No), ("never", Unique::Never), ("keep", Unique::Keep), ("replace", Unique::Replace)],
    );
    let childless = r.word(
        "childless",
        &[
            ("allow", Childless::Allow),
            ("never", Childless::Never),
            ("prefer", Childless::Prefer),
            ("force", Childless::Force),
        ],
    );
    let encap = r.get("encap", value::boolean).unwrap_or(false);
    if encap {
        ah_in_udp(&mut r, &kids);
    }
    let dpd_delay = r.get("dpd_delay", value::time).unwrap_or(Duration::ZERO);
    let starts = kids.iter().any(|c| c.start_action != ChildAction::None && c.kind == Default::default());
    if starts && !remote_addrs.iter().any(|a| matches!(a, AddrSpec::Host(_) | AddrSpec::Name(_))) {
        r.warn("remote_addrs", "a child has a start_action, but there is no single address to initiate to; name the peer's address");
    }
    if diags.errors() > before {
        return None;
    }
    Some(Connection {
        name: name.to_owned(),
        local_addrs,
        remote_addrs,
        local_port,
        remote_port,
        proposals,
        local_auth: Auth::Psk,
        remote_auth: Auth::Psk,
        local_id: local_id.flatten(),
        remote_id: remote_id.unwrap_or_default(),
        encap,
        dpd_delay,
        keyingtries,
        unique: unique.unwrap_or_default(),
        childless: childless.unwrap_or_default(),
        rekey_time,
        over_time,
        rand_time,
        children: kids,
    })
}

/// What is wrong with the name of a connection or a child. From a file it can only be too long.
fn name_of(name: &str) -> Result<(), String> {
    let quoted = show(name);
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("`{quoted}` is not a name; write one without blanks and control characters"));
    }
    if name.len() > MAX_NAME {
        return Err(format!("the name `{quoted}` is longer than {MAX_NAME} bytes; shorten it"));
    }
    Ok(())
}

/// RFC 3948 section 1 has ESP in UDP only: AH protects the addresses that a NAT changes.
fn ah_in_udp(r: &mut Reader<'_>, kids: &[ChildConfig]) {
    for child in kids {
        let ah = |p: &Proposal| p.protocol == ProtocolId::AH;
        let name = show(&child.name);
        if child.proposals.iter().all(ah) {
            r.error(
                "encap",
                format!("AH cannot be carried in UDP, and children.{name} has ah_proposals only; write esp_proposals (null-sha256 \
                         authenticates without encrypting), or set encap = no"),
            );
        } else if child.proposals.iter().any(ah) {
            r.warn("encap", format!("AH cannot be carried in UDP: the ah_proposals of children.{name} are never used; remove them"));
        }
    }
}

fn addrs(r: &mut Reader<'_>, key: &str) -> Vec<AddrSpec> {
    let list = r.list(key, value::address).unwrap_or_else(|| vec![AddrSpec::Any]);
    if list.len() > MAX_ADDRS {
        r.error(key, format!("more than {MAX_ADDRS} addresses; write subnets or ranges"));
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
    let table = if what == "local" { keys::LOCAL } else { keys::REMOTE };
    let (name, section) = match found {
        [] => {
            diags.error(
                &conn.origin,
                &join(path, what),
                format!("is missing; write {what} {{ auth = psk }}"),
            );
            return None;
        }
        [one] => *one,
        [_, (name, second), ..] => {
            diags.error(
                &second.origin,
                &join(path, name),
                format!(
                    "a second {what} round: multiple authentication (RFC 4739) is not built yet; keep one"
                ),
            );
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
                diags.error(
                    &s.origin,
                    &join(&path, sub),
                    "certificates are not built yet; use auth = psk and remove this section",
                );
            }
            known
        },
        &["cert", "cacert"],
    );
    let mut r = Reader { section, path: &path, diags };
    r.get("round", |t| value::number(t, 255));
    if section.value("auth").is_none() {
        r.error("auth", "the default is pubkey, which is not built yet; write auth = psk");
    }
    r.get("auth", |t| match t.trim().to_ascii_lowercase().as_str() {
        "psk" => Ok(()),
        _ => Err(format!("`{}` is not built yet; write auth = psk", show(t))),
    });
    Some((section, path))
}

/// One identity.
pub(super) fn identity(text: &str) -> Result<Identity, String> {
    match Identity::parse(text) {
        Some(id) if id.data.is_empty() => Err(format!("`{}` is an empty identity", show(text))),
        Some(id) if id.data.len() > 1024 => Err("an identity longer than 1024 bytes".to_owned()),
        Some(id) => Ok(id),
        None if text.contains('=') => Err(format!(
            "`{}`: distinguished names are not read yet; use a name, an address, or keyid:",
            show(text)
        )),
        None => {
            Err(format!("`{}` is not an identity; write a name, user@name, an address or @#hex", show(text)))
        }
    }
}

/// An identity or a pattern of one.
pub(super) fn pattern(text: &str) -> Result<IdPattern, String> {
    let t = text.trim();
    if t == "%any" || t.starts_with('*') {
        return IdPattern::parse(t).ok_or_else(|| format!("`{}` is not a pattern", show(t)));
    }
    identity(t).map(IdPattern::Exact)
}
