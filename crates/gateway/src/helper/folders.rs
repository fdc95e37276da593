//! Which files the helper opens.
//!
//! Everything below the configuration's folder may be opened, also by links in it that lead out:
//! whoever can write into that folder is trusted with its content, and the daemon cannot. A path
//! with a `..` in it is not below anything. Of other files the helper opens those that are named
//! in a file which it has opened: by an absolute path, or after `include`. So the helper looks for
//! such names in every text that it opens; it understands nothing else of the configuration.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ironswan_config::patterns::{has_glob, matches};
use zeroize::Zeroizing;

/// Limits the names that are remembered.
const MAX_NAMES: usize = 100_000;
/// Limits the bytes of a file in which names are looked for: no file of a configuration is longer.
const MAX_FILE: u64 = 16 << 20;

/// What is wanted of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The content of a file.
    Content,
    /// Whether there is something, what it is a link to, or the names in a folder.
    Name,
}

/// The configuration's folder, and what its files name outside of it.
#[derive(Debug)]
pub(super) struct Folders {
    config: PathBuf,
    /// The same folder without links, as it was when the first file was asked for.
    resolved: OnceLock<PathBuf>,
    named: Mutex<Named>,
}

#[derive(Debug, Default)]
struct Named {
    paths: HashSet<PathBuf>,
    /// With wildcards.
    patterns: Vec<PathBuf>,
}

impl Folders {
    /// `config`: the configuration's folder, as the daemon names it.
    pub(super) fn new(config: &Path) -> Self {
        Self { config: config.to_owned(), resolved: OnceLock::new(), named: Mutex::default() }
    }

    fn named(&self) -> MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether this path may be looked at, or opened.
    ///
    /// # Errors
    /// A path outside of what is allowed.
    pub(super) fn allow(&self, path: &Path, wanted: Wanted) -> io::Result<()> {
        let plain = path.components().all(|part| part != Component::ParentDir);
        let resolved =
            self.resolved.get_or_init(|| self.config.canonicalize().unwrap_or_else(|_| self.config.clone()));
        if plain && [&self.config, resolved].iter().any(|folder| path.starts_with(folder)) {
            return Ok(());
        }
        let named = self.named();
        let parts = path.components().count();
        // A folder on the way to the names that a pattern stands for is listed, and never opened.
        let by_pattern = |pattern: &PathBuf| {
            let all = pattern.components().count();
            (parts == all || wanted == Wanted::Name && parts < all) && matches(pattern, path)
        };
        if named.paths.contains(path) || named.patterns.iter().any(by_pattern) {
            return Ok(());
        }
        let config = self.config.display();
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the path is not below {config}, and no file there names it"),
        ))
    }

    /// Whether a file that was opened has this absolute path in it, without wildcards.
    pub(super) fn is_named(&self, path: &Path) -> bool {
        self.named().paths.contains(path)
    }

    /// Looks for names in a file that was opened under this path. Where the reading of the file
    /// stands does not change.
    pub(super) fn learn(&self, path: &Path, file: &File) {
        let Some(text) = text_of(file) else { return };
        let base = path.parent().unwrap_or(Path::new(""));
        let mut named = self.named();
        for name in names(&text) {
            if named.paths.len() + named.patterns.len() >= MAX_NAMES {
                return;
            }
            let name = base.join(name);
            if !name.to_str().is_some_and(has_glob) {
                named.paths.insert(name);
            } else if !named.patterns.contains(&name) {
                named.patterns.push(name);
            }
        }
    }
}

/// The text of a file; `None` when it is none, or a key in PEM, whose letters mean nothing here.
fn text_of(file: &File) -> Option<Zeroizing<String>> {
    let len = file.metadata().ok()?.len().min(MAX_FILE);
    // There may be secrets in it: the room does not grow, because that would leave a copy.
    let mut bytes = Zeroizing::new(vec![0; usize::try_from(len).ok()?]);
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut text = Zeroizing::new(String::with_capacity(bytes.len()));
    (&bytes[..]).read_to_string(&mut text).ok()?;
    (!text.contains("-----BEGIN") && !text.contains('\0')).then_some(text)
}

/// Words that are absolute paths, and those that follow `include`. A word that follows `secret` is
/// left alone.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "={}\",;".contains(c)));
    words.filter(|word| !word.is_empty()).filter(move |word| {
        let last = std::mem::replace(&mut before, word);
        last == "include" || word.starts_with('/') && !last.starts_with("secret")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_testkit::scratch::Scratch;

    #[test]
    fn only_the_folder_and_what_its_files_name_may_be_opened() {
        let dir = Scratch::new();
        let folders = Folders::new(dir.path());
        let below = |name: &str| dir.path().join(name);
        dir.write(
            "swanctl.conf",
            "include /srv/shared/*.conf\ninclude ../beside.conf # /not/this\n# /nor/this\n\
             connections { a { remote { pubkeys = one.pem, /keys/two.pem\n } } }\n\
             secrets { ike { secret = \"/a/secret\" } }",
        );
        let file = File::open(below("swanctl.conf")).unwrap();
        let may = |path: &Path| folders.allow(path, Wanted::Content).is_ok();
        assert!(!may(Path::new("/keys/two.pem")), "no file names it yet");
        folders.learn(&below("swanctl.conf"), &file);
        for path in ["", "swanctl.conf", "private/new.pem", "../beside.conf"] {
            assert!(may(&below(path)), "{path}");
        }
        for path in ["/keys/two.pem", "/srv/shared/new.conf"] {
            assert!(may(Path::new(path)), "{path}");
        }
        for path in ["/srv", "/srv/shared"] {
            assert!(!may(Path::new(path)), "{path} is no file of the pattern");
            assert!(folders.allow(Path::new(path), Wanted::Name).is_ok(), "{path} is on the way");
        }
        let other = PathBuf::from(format!("{}-other/swanctl.conf", dir.path().display()));
        assert!(!may(&other) && !may(&below("../../shadow")));
        for path in [
            "/etc/shadow",
            "/nor/this",
            "/a/secret",
            "/srv/shared/a/b.conf",
            "/srv/shared/.conf",
            "/",
            "shadow",
        ] {
            assert!(!may(Path::new(path)), "{path}");
        }
        let why = folders.allow(Path::new("/etc/shadow"), Wanted::Name).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn keys_and_bytes_name_nothing_and_the_names_are_bounded() {
        let dir = Scratch::new();
        let folders = Folders::new(dir.path());
        let learn = |name: &str, text: &str| {
            dir.write(name, text);
            folders.learn(&dir.path().join(name), &File::open(dir.path().join(name)).unwrap());
            folders.named().paths.len()
        };
        assert_eq!(learn("key.pem", "-----BEGIN PRIVATE KEY-----\n/abc/def\n"), 0);
        assert_eq!(learn("key.der", "\0\n/abc/def\n"), 0);
        let many: String = (0..MAX_NAMES + 10).map(|n| format!("/name/{n}\n")).collect();
        assert_eq!(learn("many.conf", &many), MAX_NAMES);
    }
}
