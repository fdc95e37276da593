//! Files: reading them with limits, and `include` with globs.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use zeroize::Zeroizing;

use super::diag::Diagnostics;
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
    root: Section,
    sources: Vec<Source>,
    total: u64,
    open: Vec<PathBuf>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            root: Section::new(Origin::source("configuration")),
            sources: Vec::new(),
            total: 0,
            open: Vec::new(),
        }
    }
}

impl Reader {
    /// Reads a file, and what it includes, into the tree. False when the file itself cannot be read.
    pub fn read(&mut self, path: &Path, diags: &mut Diagnostics) -> bool {
        let mut root = std::mem::replace(&mut self.root, Section::new(Origin::source("")));
        let at = Origin { file: path.to_string_lossy().into(), line: 0 };
        let ok = self.file(path, &at, &mut root, &mut Vec::new(), diags);
        self.root = root;
        ok
    }

    /// True when this file has been read, by name or by an include.
    pub fn has(&self, path: &Path) -> bool {
        let name = path.to_string_lossy();
        self.sources.iter().any(|s| *s.name == *name)
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
        let canonical = match path.canonicalize() {
            Ok(p) => p,
            Err(e) => {
                diags.error(at, "", format!("cannot read {name}: {e}"));
                return false;
            }
        };
        if self.open.contains(&canonical) {
            diags.error(at, "", format!("{name} includes itself; remove this include"));
            return false;
        }
        if self.open.len() >= MAX_DEPTH {
            diags.error(at, "", format!("{name}: more than {MAX_DEPTH} files included inside each other"));
            return false;
        }
        if self.sources.len() >= MAX_FILES {
            diags.error(at, "", format!("{name}: more than {MAX_FILES} files"));
            return false;
        }
        let (bytes, meta) = match self.load(path) {
            Ok(read) => read,
            Err(message) => {
                diags.error(at, "", format!("cannot read {name}: {message}"));
                return false;
            }
        };
        let source: Arc<str> = path.to_string_lossy().into();
        let (mode, written) = (meta.permissions().mode(), meta.modified().ok());
        self.sources.push(Source { name: source.clone(), mode, written, empty: bytes.is_empty() });
        self.open.push(canonical);
        syntax::parse(&source, &bytes, into, sections, self, diags);
        self.open.pop();
        true
    }

    fn load(&mut self, path: &Path) -> Result<(Zeroizing<Vec<u8>>, Metadata), String> {
        let mut file = File::open(path).map_err(|e| e.to_string())?;
        let meta = file.metadata().map_err(|e| e.to_string())?;
        if !meta.is_file() {
            return Err("not a regular file".to_owned());
        }
        if meta.size() > MAX_FILE {
            return Err(format!(
                "{} bytes, more than the {MAX_FILE} that a configuration file may have",
                meta.size()
            ));
        }
        // The limit holds for what is read, not for what `stat` said.
        let mut bytes = Zeroizing::new(Vec::with_capacity(meta.size() as usize));
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        let len = bytes.len() as u64;
        if len > MAX_FILE {
            return Err(format!("more than the {MAX_FILE} bytes that a configuration file may have"));
        }
        self.total += len;
        if self.total > MAX_TOTAL {
            return Err(format!("all files together are longer than {MAX_TOTAL} bytes"));
        }
        // It may have been written to while it was read.
        let meta = file.metadata().map_err(|e| e.to_string())?;
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
        match glob(&path) {
            Ok(found) => {
                for p in found {
                    self.file(&p, at, into, sections, diags);
                }
            }
            Err(message) => diags.error(at, "", format!("include {}: {message}", pattern.escape_debug())),
        }
    }
}

fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Every path that a pattern names, sorted. Wildcards do not match a leading dot.
fn glob(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
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
            let Ok(entries) = std::fs::read_dir(dir_or_here) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.starts_with('.') && !text.starts_with('.') {
                    continue;
                }
                if wild(text.as_bytes(), name.as_bytes()) {
                    next.push(dir.join(&*name));
                }
            }
            if next.len() > MAX_FILES {
                return Err(format!("names more than {MAX_FILES} files"));
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|p| p.exists());
    Ok(found)
}

/// One path component against a pattern of `*`, `?`, `[a-z]`, `[!a]`; linear in practice: only the last `*` is retried.
fn wild(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(b'?') => Some(p + 1),
            Some(b'[') => match class(&pattern[p..], name[n]) {
                Some((true, used)) => Some(p + used),
                Some((false, _)) => None,
                None => (name[n] == b'[').then_some(p + 1),
            },
            Some(c) => (*c == name[n]).then_some(p + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                n += 1;
            }
            (None, Some((after, from))) => {
                p = after;
                n = from + 1;
                star = Some((after, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// `[...]` at the start of `pattern`: whether it takes `c`, and its length. `None` when it is never closed.
fn class(pattern: &[u8], c: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let (mut i, mut hit) = (start, false);
    loop {
        let a = *pattern.get(i)?;
        if a == b']' && i > start {
            return Some((hit != negated, i + 1));
        }
        match (pattern.get(i + 1), pattern.get(i + 2)) {
            (Some(b'-'), Some(&b)) if b != b']' => {
                hit |= a <= c && c <= b;
                i += 3;
            }
            _ => {
                hit |= a == c;
                i += 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "include_tests.rs"]
mod tests;
