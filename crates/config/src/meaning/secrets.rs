//! `secrets`: pre-shared keys. Kinds of secrets that nothing uses yet are errors, as everything unbuilt is.

use ironswan_ike::config::SharedKey;
use ironswan_wire::id::IdPattern;

use super::super::diag::{Diagnostics, nearest};
use super::super::tree::{Node, Section};
use super::super::value;
use super::conn::pattern;
use super::keys::{hint, join};

/// Kinds of secrets that strongSwan knows and that are not built.
const UNBUILT: &[&str] =
    &["eap", "xauth", "ntlm", "ppk", "private", "rsa", "ecdsa", "pkcs8", "pkcs12", "token", "bliss"];

/// No more identities than this for one key.
const MAX_OWNERS: usize = 10_000;

/// Understands the `secrets` section.
pub fn secrets(section: &Section, diags: &mut Diagnostics) -> Vec<SharedKey> {
    let mut out = Vec::new();
    for (name, node) in section.entries() {
        let key = join("secrets", name);
        let Node::Section(s) = node else {
            // The name is not said: it may be a part of a secret that is not quoted.
            let message = "holds a key that stands in no section of its own; write ike-1 { secret = ... }";
            diags.error(node.origin(), "secrets", message);
            continue;
        };
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if name.starts_with("ike") {
            out.extend(ike(name, s, &key, diags));
        } else if let Some(kind) = UNBUILT.iter().find(|k| kind == **k || name.starts_with(&format!("{k}-")))
        {
            diags.error(&s.origin, &key, format!("{kind} secrets are not built yet; remove this section"));
        } else {
            diags.error(&s.origin, &key, format!("unknown section{}", hint(kind, ["ike"])));
        }
    }
    out
}

fn ike(name: &str, section: &Section, path: &str, diags: &mut Diagnostics) -> Option<SharedKey> {
    let before = diags.errors();
    let mut secret = None;
    let mut owners: Vec<IdPattern> = Vec::new();
    for (key, node) in section.entries() {
        let full = join(path, key);
        let Node::Value(v) = node else {
            diags.error(node.origin(), &full, "is a key, not a section");
            continue;
        };
        if key == "secret" {
            match value::secret(&v.as_text()) {
                Ok(s) => secret = Some(s),
                Err(e) => diags.error(&v.origin, &full, e),
            }
        } else if key.starts_with("id") {
            if v.is_empty() {
                continue;
            }
            match pattern(&v.as_text()) {
                Ok(id) if owners.len() < MAX_OWNERS => owners.push(id),
                Ok(_) => {
                    diags.error(&v.origin, &full, format!("more than {MAX_OWNERS} identities for one key"))
                }
                Err(e) => diags.error(&v.origin, &full, e),
            }
        } else if nearest(key, ["secret", "id"]).is_some() {
            diags.error(&v.origin, &full, format!("unknown key{}", hint(key, ["secret", "id"])));
        } else {
            // Perhaps the second line of a secret.
            let message = "unknown key, not named since it may be a part of a secret; quote a secret that goes over lines, and \
                           write no keys but secret and id";
            diags.error(&v.origin, path, message);
        }
    }
    if secret.is_none() && diags.errors() == before {
        diags.error(&section.origin, path, "has no secret; write secret = \"...\"");
    }
    if diags.errors() > before {
        return None;
    }
    // `%any` among the owners says no more than having none.
    if owners.contains(&IdPattern::Any) {
        owners.clear();
    }
    Some(SharedKey { name: name.to_owned(), secret: secret?, owners })
}
