//! `secrets`: pre-shared keys and post-quantum preshared keys. Kinds of secrets that nothing uses
//! yet are errors, as everything unbuilt is.

use ironswan_keying::diagnosis::Configuration;
use ironswan_keying::{Ppk, SharedKey};
use ironswan_wire::id::IdPattern;
use ironswan_wire::secret::Secret;

use super::super::diag::Diagnostics;
use super::super::keyfiles::Passphrase;
use super::super::tree::{Node, Section};
use super::Reader;
use super::keys::secret as k;
use super::keys::{Key, Table, join, near};

/// Most identities of one key.
const MAX_OWNERS: usize = 10_000;

/// Understands the `secrets` section.
pub fn secrets(section: &Section, diags: &mut Diagnostics) -> Vec<SharedKey> {
    let mut out = Vec::new();
    for (name, node) in section.entries() {
        let key = join("secrets", name);
        let Node::Section(s) = node else {
            // The name is not said: it may be a part of a secret that is not quoted.
            diags.error(node.origin(), "secrets", Configuration::SecretWithoutSection);
            continue;
        };
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is = |k: &str| kind == k || name.strip_prefix(k).is_some_and(|rest| rest.starts_with('-'));
        if name.starts_with("ike") {
            out.extend(ike(name, s, &key, diags));
        } else if is_ppk(name) {
            // `ppks` reads it.
        } else if kind_of_passphrase(name).is_some() {
            // Whoever reads files of keys has read it.
        } else if let Some(kind) = k::UNBUILT.iter().find(|k| is(k)) {
            let what = format!("{kind} secrets are not built yet");
            let write = "remove this section";
            diags.error(&s.origin, &key, Configuration::NotBuilt { what, write });
        } else {
            let near = near(kind, ["ike", "ppk"]);
            diags.error(&s.origin, &key, Configuration::UnknownSection { near, top: false });
        }
    }
    out
}

fn is_ppk(name: &str) -> bool {
    name.starts_with("ppk")
}

/// Understands the post-quantum preshared keys among the secrets.
pub fn ppks(section: &Section, diags: &mut Diagnostics) -> Vec<Ppk> {
    let mut out = Vec::new();
    for (name, s) in section.sections().filter(|(name, _)| is_ppk(name)) {
        let path = join("secrets", name);
        let Some((secret, ids)) = shared(s, &path, k::PPK_TABLE, (&k::PPK_SECRET, &k::PPK_ID), diags) else {
            continue;
        };
        // `%any` among the identifiers says no more than having none.
        let ids: Option<Vec<_>> = ids.into_iter().collect();
        out.push(Ppk { name: name.to_owned(), secret, ids: ids.unwrap_or_default() });
    }
    out
}

/// The kind of a section that holds the passphrase of a file.
fn kind_of_passphrase(name: &str) -> Option<&'static str> {
    // `pkcs12` begins as `pkcs1` and a number does, so digits are no suffix here.
    let is = |kind: &&&str| {
        name.strip_prefix(**kind).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('-') || rest.bytes().all(|b| b.is_ascii_digit())
        })
    };
    k::PASSPHRASES.iter().find(is).copied()
}

/// Understands the passphrases of files among the secrets.
pub(in super::super) fn passphrases(section: &Section, diags: &mut Diagnostics) -> Vec<Passphrase> {
    let mut out = Vec::new();
    for (name, s) in section.sections() {
        let Some(kind) = kind_of_passphrase(name) else { continue };
        let path = join("secrets", name);
        super::keys::check(s, &path, k::PASSPHRASE_TABLE, diags, |_, _, _| false, &[]);
        let mut r = Reader { section: s, path: &path, diags };
        let (file, secret) = (r.written(&k::FILE), r.written(&k::PHRASE));
        match (file, secret) {
            (Some(file), Some(secret)) => out.push(Passphrase { kind: kind.to_owned(), file, secret }),
            _ if r.has(&k::FILE) && r.has(&k::PHRASE) => {}
            _ => diags.error(&s.origin, &path, Configuration::MissingPassphrase),
        }
    }
    out
}

fn ike(name: &str, section: &Section, path: &str, diags: &mut Diagnostics) -> Option<SharedKey> {
    let (secret, mut owners) = shared(section, path, k::IKE_TABLE, (&k::SECRET, &k::ID), diags)?;
    // `%any` among the owners says no more than having none.
    if owners.contains(&IdPattern::Any) {
        owners.clear();
    }
    Some(SharedKey { name: name.to_owned(), secret, owners })
}

/// Reads a section with a secret and its identities, by these two keys.
fn shared<I>(
    section: &Section,
    path: &str,
    table: Table,
    (secret_key, id_key): (&Key<Secret>, &Key<I>),
    diags: &mut Diagnostics,
) -> Option<(Secret, Vec<I>)> {
    let before = diags.errors();
    let mut secret = None;
    let mut ids: Vec<I> = Vec::new();
    for (key, node) in section.entries() {
        let full = join(path, key);
        let Node::Value(v) = node else {
            diags.error(node.origin(), &full, Configuration::SectionForKey { name: key.to_owned() });
            continue;
        };
        let wrong = |wrong: Vec<_>, diags: &mut Diagnostics| {
            wrong.into_iter().for_each(|why| diags.error(&v.origin, &full, why));
        };
        if key == secret_key.name() {
            match secret_key.understand(v) {
                Ok(s) => secret = Some(s),
                Err(why) => wrong(why, diags),
            }
        } else if key.starts_with(id_key.name()) {
            if v.is_empty() {
                continue;
            }
            match id_key.understand(v) {
                Ok(id) if ids.len() < MAX_OWNERS => ids.push(id),
                Ok(_) => {
                    let of = "identities for one key";
                    diags.error(&v.origin, &full, Configuration::TooMany { max: MAX_OWNERS, of, write: "" });
                }
                Err(why) => wrong(why, diags),
            }
        } else if let near @ Some(_) = near(key, table.names()) {
            diags.error(&v.origin, &full, Configuration::UnknownKey { near });
        } else {
            // Perhaps the second line of a secret.
            diags.error(&v.origin, path, Configuration::UnknownAmongSecrets);
        }
    }
    if secret.is_none() && diags.errors() == before {
        diags.error(&section.origin, path, Configuration::MissingSecret);
    }
    if diags.errors() > before {
        return None;
    }
    Some((secret?, ids))
}
