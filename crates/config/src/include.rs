//! Files into one tree: `include` with globs, and limits of number and depth. How a file is read
//! stands in [`super::files`].

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ironswan_keying::diagnosis::{Configuration, FileFault, IncludeFault};
use zeroize::Zeroizing;

use super::diag::Diagnostics;
use super::files::{Files, system};
use super::patterns::{component, has_glob};
use super::references;
use super::syntax::{self, Includes};
use super::tree::{Origin, Section};

/// A file is at most this long (10 MB).
pub const MAX_FILE: u64 = 10_000_000;
/// All files together are at most this long.
pub const MAX_TOTAL: u64 = 64_000_000;
/// Files inside files, at most.
const MAX_DEPTH: usize = 10;
/// No more files than this.
const MAX_FILES: usize = 20_000;
/// A file that was read.
#[derive(Clone, Debug)]
pub struct Source {
    /// As it is named in messages.
    pub name: Arc<str>,
    /// Permission bits.
    pub mode: u32,
    /// When it was last written, seen after it had been read.
    pub written: Option<SystemTime>,
    /// There is not one byte in it.
    pub empty: bool,
}

/// Reads files into one tree.
#[derive(Debug)]
pub struct Reader {
    files: Files,
    root: Section,
    sources: Vec<Source>,
    /// The same without links and relative paths.
    read: HashSet<PathBuf>,
    total: u64,
    open: Vec<PathBuf>,
}

impl Reader {
    /// Nothing read yet. What the file system is asked is noted in `files`.
    pub fn new(files: &Files) -> Self {
        Self {
            files: files.clone(),
            root: Section::new(Origin::source("configuration")),
            sources: Vec::new(),
            read: HashSet::new(),
            total: 0,
            open: Vec::new(),
        }
    }
}

impl Reader {
    /// Reads a file, and what it includes, into the tree. False when the file itself cannot be
    /// read.
    pub fn read(&mut self, path: &Path, diags: &mut Diagnostics) -> bool {
        let mut root = std::mem::replace(&mut self.root, Section::new(Origin::source("")));
        let at = Origin { file: path.to_string_lossy().into(), line: 0 };
        let ok = self.file(path, &at, &mut root, &mut Vec::new(), diags);
        self.root = root;
        ok
    }

    /// True when this file has been read, by whatever name, or by an include.
    pub fn has(&self, path: &Path) -> bool {
        self.files.canonical(path).is_ok_and(|path| self.read.contains(&path))
    }

    /// First components of all references: sections that something inherits from.
    pub fn referenced(&self) -> HashSet<String> {
        fn walk(s: &Section, out: &mut HashSet<String>) {
            for (name, _) in &s.refs {
                out.insert(name.split('.').next().unwrap_or(name).to_owned());
            }
            s.sections().for_each(|(_, sub)| walk(sub, out));
        }
        let mut out = HashSet::new();
        walk(&self.root, &mut out);
        out
    }

    /// The tree with every reference resolved, and the files it came from.
    pub fn finish(mut self, diags: &mut Diagnostics) -> (Section, Vec<Source>) {
        references::resolve(&mut self.root, diags);
        (self.root, self.sources)
    }

    fn file(
        &mut self,
        path: &Path,
        at: &Origin,
        into: &mut Section,
        sections: &mut Vec<String>,
        diags: &mut Diagnostics,
    ) -> bool {
        let name = path.to_string_lossy().escape_debug().to_string();
        let canonical = match self.files.canonical(path) {
            Ok(p) => p,
            Err(e) => {
                let why = system(e);
                diags.error(at, "", Configuration::Unreadable { path: Some(name), why });
                return false;
            }
        };
        let refused = if self.open.contains(&canonical) {
            Some(IncludeFault::Itself)
        } else if self.open.len() >= MAX_DEPTH {
            Some(IncludeFault::TooDeep { max: MAX_DEPTH })
        } else if self.sources.len() >= MAX_FILES {
            Some(IncludeFault::TooMany { max: MAX_FILES })
        } else {
            None
        };
        if let Some(why) = refused {
            diags.error(at, "", Configuration::IncludeRefused { file: name, why });
            return false;
        }
        let (bytes, meta) = match self.load(path) {
            Ok(read) => read,
            Err(why) => {
                diags.error(at, "", Configuration::Unreadable { path: Some(name), why });
                return false;
            }
        };
        let source: Arc<str> = path.to_string_lossy().into();
        let (mode, written) = (meta.permissions().mode(), meta.modified().ok());
        self.sources.push(Source { name: source.clone(), mode, written, empty: bytes.is_empty() });
        self.read.insert(canonical.clone());
        self.open.push(canonical);
        syntax::parse(&source, &bytes, into, sections, self, diags);
        self.open.pop();
        true
    }

    fn load(&mut self, path: &Path) -> Result<(Zeroizing<Vec<u8>>, Metadata), FileFault> {
        let (bytes, meta) = self.files.read(path, MAX_FILE)?;
        self.total += bytes.len() as u64;
        if self.total > MAX_TOTAL {
            return Err(FileFault::AllTooLong { max: MAX_TOTAL });
        }
        Ok((bytes, meta))
    }
}

impl Includes for Reader {
    fn include(
        &mut self,
        pattern: &str,
        at: &Origin,
        into: &mut Section,
        sections: &mut Vec<String>,
        diags: &mut Diagnostics,
    ) {
        let base = Path::new(&*at.file).parent().unwrap_or(Path::new("")).to_path_buf();
        let path = if Path::new(pattern).is_absolute() { PathBuf::from(pattern) } else { base.join(pattern) };
        if !has_glob(pattern) {
            self.file(&path, at, into, sections, diags);
            return;
        }
        // A glob that matches nothing is no error: `conf.d/*.conf` of an empty folder.
        match glob(&self.files, &path) {
            Ok(found) => {
                for p in found {
                    self.file(&p, at, into, sections, diags);
                }
            }
            Err(why) => {
                let file = pattern.escape_debug().to_string();
                diags.error(at, "", Configuration::IncludeRefused { file, why });
            }
        }
    }
}

/// Every path that a pattern names, sorted. Wildcards do not match a leading dot.
pub(super) fn glob(files: &Files, pattern: &Path) -> Result<Vec<PathBuf>, IncludeFault> {
    let mut found = vec![PathBuf::new()];
    let mut matched = false;
    let escaped = |path: &Path| path.to_string_lossy().escape_debug().to_string();
    let unseen = |path: &Path, e: io::Error| IncludeFault::Unseen { path: escaped(path), why: system(e) };
    // Of what a wildcard has matched, that is no match which is no folder where one is needed.
    let no_folder = |e: &io::Error, matched: bool| matched && e.kind() == io::ErrorKind::NotADirectory;
    for part in pattern.components() {
        let text = part.as_os_str().to_string_lossy();
        if !has_glob(&text) {
            for p in &mut found {
                p.push(part);
            }
            continue;
        }
        let mut next = Vec::new();
        for dir in &found {
            let dir_or_here = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            let entries = match files.list(dir_or_here) {
                Ok(entries) => entries.unwrap_or_default(),
                Err(e) if no_folder(&e, matched) => continue,
                Err(e) => return Err(unseen(dir_or_here, e)),
            };
            for name in entries.iter().filter_map(|entry| entry.file_name()) {
                let name = name.to_string_lossy();
                if component(&text, &name) {
                    next.push(dir.join(&*name));
                }
            }
            if next.len() > MAX_FILES {
                return Err(IncludeFault::TooMany { max: MAX_FILES });
            }
        }
        next.sort();
        found = next;
        matched = true;
    }
    let mut there = Vec::with_capacity(found.len());
    for path in found {
        match files.exists(&path) {
            Ok(true) => there.push(path),
            Ok(false) => {}
            Err(e) if no_folder(&e, matched) => {}
            Err(e) => return Err(unseen(&path, e)),
        }
    }
    Ok(there)
}

#[cfg(test)]
#[path = "include_tests.rs"]
mod tests;
