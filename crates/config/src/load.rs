//! A folder or files to a [`Config`].

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ironswan_keying::diagnosis::Configuration;
use ironswan_keying::{Certificates, Connection, Ppk, PrivateKey, PrivateKeys, SharedKey};
use ironswan_pki::fetch::Places;
use ironswan_pki::{Certificate, Crl};

use super::certfiles::{Credentials, Dated, Named};
use super::diag::{Diagnostics, Severity};
use super::files::{Clock, Files, Task, system};
use super::include::{Reader, Source};
use super::meaning::{self, Daemon};
use super::tree::{Node, Origin, Section};
use super::{references, syntax};

/// Everything that a folder says.
#[derive(Debug, Default)]
pub struct Config {
    /// Connections without errors, in the order of the files. Of public keys whose files were at
    /// fault they know nothing.
    pub connections: Vec<Connection>,
    /// Pre-shared keys.
    pub secrets: Vec<SharedKey>,
    /// Post-quantum preshared keys.
    pub ppks: Vec<Ppk>,
    /// Our private keys.
    pub private_keys: Vec<PrivateKey>,
    /// Certificates, each with true for those of CAs that are trusted.
    pub certificates: Vec<(Certificate, bool)>,
    /// Revocation lists.
    pub lists: Vec<Crl>,
    /// Places for the status of the certificates that a CA has issued.
    pub status_places: Vec<(Certificate, Places)>,
    /// The files of certificates and lists.
    pub(super) dated: Vec<(Origin, Dated)>,
    /// The daemon's settings.
    pub daemon: Daemon,
    /// When the newest of its files was last written, `ironswan.conf` among them.
    pub written: Option<SystemTime>,
    /// A file without one byte, of those with connections.
    pub empty: Option<String>,
    /// The same of those with settings.
    pub empty_settings: Option<String>,
    /// There is a `swanctl.conf` in the folder.
    pub has_main: bool,
    /// There is an `ironswan.conf` in the folder.
    pub has_settings: bool,
    /// A file could not be read to its end, or a section inherits from what is not there: nothing
    /// was understood, since most of what could be said about the rest would only follow from that.
    pub unread: bool,
    /// A secret was not understood: that there is no key for a connection would only follow from
    /// that.
    pub(super) secret_lost: bool,
    /// The same of a private key.
    pub(super) private_lost: bool,
    /// Places of sections and keys, by full name (`connections.net`,
    /// `connections.net.children.net.local_ts`).
    pub(super) places: HashMap<String, Origin>,
    /// Names of the `local...` sections of each connection, in the order of their rounds.
    local_sides: HashMap<String, Vec<String>>,
    /// The same of the `remote...` sections.
    remote_sides: HashMap<String, Vec<String>>,
}

impl Config {
    /// Understands a tree of sections that did not come from files, such as that of [`parse_text`].
    pub fn from_tree(root: &Section, diags: &mut Diagnostics) -> Self {
        understand(root, &HashSet::new(), &Named::default(), diags)
    }

    /// Our private keys, as the daemon holds them.
    pub(super) fn key_ring(&self) -> PrivateKeys {
        let mut ring = PrivateKeys::default();
        self.private_keys.iter().for_each(|key| ring.insert(key.clone()));
        ring
    }

    /// The certificates and lists, as the daemon holds them.
    pub(super) fn loaded(&self) -> Certificates {
        let mut loaded = Certificates::default();
        self.certificates.iter().for_each(|(c, trusted)| loaded.insert(c.clone(), *trusted));
        self.lists.iter().for_each(|list| loaded.insert_list(list.clone()));
        self.status_places.iter().for_each(|(ca, places)| loaded.insert_places(ca, places.clone()));
        loaded
    }

    /// Full name of the section with our side of a connection in a round, counted from 0.
    pub(super) fn local_side(&self, conn: &str, round: usize) -> String {
        side(&self.local_sides, conn, round, "local")
    }

    /// The same of the peer's side.
    pub(super) fn remote_side(&self, conn: &str, round: usize) -> String {
        side(&self.remote_sides, conn, round, "remote")
    }

    /// Places of the sections and keys of connections that a diagnosis may be about, by full name
    /// (`connections.net`, `connections.net.children.net.local_ts`).
    pub fn places(&self) -> impl Iterator<Item = (&str, &Origin)> {
        let all = self.places.iter().map(|(name, at)| (name.as_str(), at));
        all.filter(|(name, _)| name.starts_with("connections."))
    }

    /// Place of a key, or of the nearest section above it.
    pub(super) fn place(&self, key: &str) -> Option<&Origin> {
        let mut key = key;
        loop {
            if let Some(at) = self.places.get(key) {
                return Some(at);
            }
            key = key.rsplit_once('.')?.0;
        }
    }
}

/// A connection that was not read from sections, or whose side has fewer rounds than the other, has
/// no section in this round: it is named as the first one would be.
fn side(names: &HashMap<String, Vec<String>>, conn: &str, round: usize, first: &str) -> String {
    let name = names.get(conn).and_then(|names| names.get(round)).map_or(first, String::as_str);
    format!("connections.{conn}.{name}")
}

/// Reads a configuration folder: `swanctl.conf`, `conf.d/*.conf`, `ironswan.conf`. `None` when
/// there is nothing that could be read. A configuration is usable only when `diags` holds no error.
/// A file system that does not answer is waited for no longer than [`super::files::TIME_LIMIT`],
/// which is an error.
pub fn load_dir(now: Clock, dir: &Path, diags: &mut Diagnostics) -> Option<Config> {
    let dir = dir.to_owned();
    on_a_thread(now, diags, move |fs, diags| read_dir(fs, &dir, diags))
}

/// Reads files of swanctl.conf's kind as one configuration, whose keys are in folders beside the
/// first of them. `None` when none of them could be read. As [`load_dir`], no longer than the time
/// limit.
pub fn load_files(now: Clock, files: &[PathBuf], diags: &mut Diagnostics) -> Option<Config> {
    let files = files.to_vec();
    // As `swanctl --file` does.
    let folder = files.first().and_then(|file| file.parent()).unwrap_or(Path::new("")).to_owned();
    on_a_thread(now, diags, move |fs, diags| read_files(fs, &files, &folder, diags))
}

/// Parses one text that is in no file, with everything that its sections inherit. `name` stands for
/// the file in findings; an `include` is an error.
pub fn parse_text(name: &str, bytes: &[u8], diags: &mut Diagnostics) -> Section {
    let mut root = Section::new(Origin::source(name));
    syntax::parse(&name.into(), bytes, &mut root, &mut Vec::new(), &mut syntax::NoIncludes, diags);
    references::resolve(&mut root, diags);
    root
}

/// Reads on a thread that may hang.
fn on_a_thread(
    now: Clock,
    diags: &mut Diagnostics,
    read: impl FnOnce(&Files, &mut Diagnostics) -> Option<Config> + Send + 'static,
) -> Option<Config> {
    let whole = move |fs: &Files| {
        let mut diags = Diagnostics::default();
        (read(fs, &mut diags), diags)
    };
    match Task::start(now, whole).and_then(Task::wait) {
        Ok((config, found)) => {
            diags.extend(found);
            config
        }
        Err(why) => {
            diags.push(Severity::Error, None, "", why);
            None
        }
    }
}

/// [`load_dir`], on this thread, however long it takes.
pub fn read_dir(fs: &Files, dir: &Path, diags: &mut Diagnostics) -> Option<Config> {
    let before = diags.errors();
    let main = dir.join("swanctl.conf");
    let mut files = Vec::new();
    // A file that cannot be looked at is not taken for a missing one: its connections would be
    // ended, and unguarded.
    let has_main = there(fs, &main, diags);
    if has_main {
        files.push(main);
    }
    let conf_d = dir.join("conf.d");
    let mut extra = fs
        .list(&conf_d)
        .unwrap_or_else(|e| {
            unseen(&conf_d, &e, diags);
            None
        })
        .unwrap_or_default();
    extra.retain(|p| {
        let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.ends_with(".conf") && !name.starts_with('.')
    });
    extra.sort();
    files.extend(extra);
    if files.is_empty() {
        if diags.errors() > before {
            return None;
        }
        match fs.list(dir) {
            Ok(list) => {
                let folder = list.is_some();
                let at = Origin::source(&dir.to_string_lossy());
                diags.error(&at, "", Configuration::NothingToRead { folder });
            }
            Err(e) => unseen(dir, &e, diags),
        }
        return None;
    }
    // This one is not read: a look at it that fails says nothing.
    if fs.exists(&dir.join("ipsec.conf")).unwrap_or(false) {
        let at = Origin::source(&dir.join("ipsec.conf").to_string_lossy());
        diags.warn(&at, "", Configuration::IpsecConf);
    }
    let mut config = read_files(fs, &files, dir, diags)?;
    config.has_main = has_main;
    let own = dir.join("ironswan.conf");
    if there(fs, &own, diags) {
        let mut reader = Reader::new(fs);
        if reader.read(&own, diags) {
            let (root, sources) = reader.finish(diags);
            config.daemon = meaning::daemon(&root, diags);
            config.has_settings = true;
            config.written = config.written.max(last_written(&sources));
            config.empty_settings = empty(&sources);
        }
    }
    Some(config)
}

/// True when there is something of that name; an error when nobody can say.
fn there(fs: &Files, path: &Path, diags: &mut Diagnostics) -> bool {
    fs.exists(path).unwrap_or_else(|e| {
        unseen(path, &e, diags);
        false
    })
}

fn unseen(path: &Path, e: &std::io::Error, diags: &mut Diagnostics) {
    let (name, why) = (path.to_string_lossy(), system(e));
    diags.error(&Origin::source(&name), "", Configuration::Unreadable { path: None, why });
}

fn read_files(fs: &Files, files: &[PathBuf], folder: &Path, diags: &mut Diagnostics) -> Option<Config> {
    let mut reader = Reader::new(fs);
    let mut any = false;
    let before = diags.errors();
    for file in files {
        // `swanctl.conf` usually includes `conf.d/*.conf` itself.
        if !reader.has(file) {
            any |= reader.read(file, diags);
        }
    }
    if !any {
        return None;
    }
    let used = reader.referenced();
    let (root, sources) = reader.finish(diags);
    let unread = diags.errors() > before;
    secret_files(&root, &sources, diags);
    let (mut written, empty) = (last_written(&sources), empty(&sources));
    if unread {
        return Some(Config { unread, written, empty, ..Config::default() });
    }
    let named = Named::of_files(fs, folder, &root, &mut written, diags);
    let passphrases = root.section("secrets").map(|s| meaning::passphrases(s, diags)).unwrap_or_default();
    let found = Credentials::of_folders(fs, folder, &root, &passphrases, &mut written, diags);
    let config = understand(&root, &used, &named, diags);
    let Credentials { private, certificates, lists, places, files: mut dated, lost } = found;
    dated.extend(named.elsewhere());
    Some(Config {
        private_keys: private,
        certificates,
        lists,
        status_places: places,
        dated,
        private_lost: lost,
        written,
        empty,
        ..config
    })
}

fn last_written(sources: &[Source]) -> Option<SystemTime> {
    sources.iter().filter_map(|s| s.written).max()
}

/// A file without one byte.
fn empty(sources: &[Source]) -> Option<String> {
    sources.iter().find(|s| s.empty).map(|s| s.name.to_string())
}

/// Files with secrets that others may read are refused.
fn secret_files(root: &Section, sources: &[Source], diags: &mut Diagnostics) {
    let Some(secrets) = root.section("secrets") else { return };
    let modes: HashMap<&str, u32> = sources.iter().map(|f| (&*f.name, f.mode)).collect();
    let mut seen: HashSet<&str> = HashSet::new();
    for (_, s) in secrets.sections() {
        for (key, node) in s.entries() {
            let at = node.origin();
            if key.starts_with("id") || !seen.insert(&at.file) {
                continue;
            }
            let mode = modes.get(&*at.file).copied().unwrap_or_default();
            if mode & 0o077 != 0 {
                let exposed = Configuration::SecretsExposed { file: at.file.to_string(), mode: mode & 0o777 };
                diags.error(at, "secrets", exposed);
            }
        }
    }
}

/// Understands a tree. `used`: top-level sections that others inherit from, which may have any
/// name. `named`: the keys and certificates that connections name.
pub(super) fn understand(
    root: &Section,
    used: &HashSet<String>,
    named: &Named,
    diags: &mut Diagnostics,
) -> Config {
    let mut config = Config::default();
    for (name, node) in root.entries() {
        match (name, node) {
            ("connections", Node::Section(s)) => connections(s, named, &mut config, diags),
            ("secrets", Node::Section(s)) => {
                let before = diags.errors();
                config.secrets = meaning::secrets(s, diags);
                config.ppks = meaning::ppks(s, diags);
                config.secret_lost = diags.errors() > before;
                for (n, sub) in s.sections() {
                    config.places.insert(format!("secrets.{n}"), sub.origin.clone());
                    if let Some(Node::Value(v)) = sub.get("secret") {
                        config.places.insert(format!("secrets.{n}.secret"), v.origin.clone());
                    }
                }
            }
            ("authorities", Node::Section(s)) => meaning::authorities(s, diags),
            ("pools", Node::Section(s)) => {
                for (n, sub) in s.sections() {
                    let what = format!("{name} are not built yet");
                    let unbuilt = Configuration::NotBuilt { what, write: "remove this section" };
                    diags.error(&sub.origin, &format!("{name}.{n}"), unbuilt);
                }
            }
            (_, Node::Section(_)) if used.contains(name) => {}
            (_, Node::Section(s)) => {
                let known = ["connections", "secrets", "pools", "authorities"];
                let near = if diags.is_full() { None } else { super::diag::nearest(name, known) };
                let near = near.map(str::to_owned);
                diags.error(&s.origin, name, Configuration::UnknownSection { near, top: true });
            }
            (_, Node::Value(v)) => {
                diags.error(&v.origin, name, Configuration::KeyOutside);
            }
        }
    }
    config
}

fn connections(section: &Section, named: &Named, config: &mut Config, diags: &mut Diagnostics) {
    for (name, node) in section.entries() {
        let path = format!("connections.{name}");
        let Node::Section(s) = node else {
            diags.error(node.origin(), &path, Configuration::KeyForSection { name: name.to_owned() });
            continue;
        };
        note_places(s, name, config);
        if let Some(conn) = meaning::connection(name, s, &path, named, diags) {
            config.connections.push(conn);
        }
    }
}

/// Remembers where the things are that `check` talks about, and the names of both sides.
fn note_places(conn: &Section, name: &str, config: &mut Config) {
    let (path, places) = (format!("connections.{name}"), &mut config.places);
    places.insert(path.clone(), conn.origin.clone());
    for key in ["local_addrs", "local_port", "remote_addrs", "proposals", "ppk_id", "ppk_required"] {
        if let Some(v) = conn.value(key) {
            places.insert(format!("{path}.{key}"), v.origin.clone());
        }
    }
    let (local, remote) = (meaning::in_rounds("local", conn), meaning::in_rounds("remote", conn));
    for (side, section) in &local {
        let path = format!("{path}.{side}");
        places.insert(path.clone(), section.origin.clone());
        places.extend(section.value("id").map(|v| (format!("{path}.id"), v.origin.clone())));
        let certs = section.value("certs").map(|v| &v.origin);
        let pubkeys = section.value("pubkeys").map(|v| &v.origin).or(certs);
        places.extend(pubkeys.map(|at| (format!("{path}.pubkeys"), at.clone())));
        places.extend(certs.map(|at| (format!("{path}.certs"), at.clone())));
    }
    for (side, section) in &remote {
        let path = format!("{path}.{side}");
        let at = section.value("auth").map_or(&section.origin, |v| &v.origin);
        places.insert(path.clone(), at.clone());
        for key in ["certs", "revocation", "id"] {
            places.extend(section.value(key).map(|v| (format!("{path}.{key}"), v.origin.clone())));
        }
    }
    let names = |sides: Vec<(&str, &Section)>| sides.into_iter().map(|(side, _)| side.to_owned()).collect();
    config.local_sides.insert(name.to_owned(), names(local));
    config.remote_sides.insert(name.to_owned(), names(remote));
    let Some(children) = conn.section("children") else { return };
    for (name, child) in children.sections() {
        let path = format!("{path}.children.{name}");
        places.insert(path.clone(), child.origin.clone());
        for key in [
            "local_ts",
            "remote_ts",
            "dpd_action",
            "start_action",
            "mode",
            "esp_proposals",
            "ah_proposals",
            "replay_window",
        ] {
            if let Some(v) = child.value(key) {
                places.insert(format!("{path}.{key}"), v.origin.clone());
            }
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
