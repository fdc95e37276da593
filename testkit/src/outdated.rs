//! Whether a program is older than its source: a test of a program that nobody has built again
//! tests something else than what it seems to.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The newest source file in these folders, when it is newer than the program. Modules below a
/// `#[cfg]` do not count: cargo does not build a program again for one that is not part of it.
pub fn newer_source(program: &Path, folders: &[PathBuf]) -> Option<PathBuf> {
    let built = modified(program);
    let mut all = Vec::new();
    for folder in folders {
        collect(folder, &mut all);
    }
    let mut newer: Vec<_> = all.iter().map(|f| (modified(f), f)).filter(|(at, _)| *at > built).collect();
    if newer.is_empty() {
        return None;
    }
    newer.sort();
    let conditional: HashSet<String> = all.iter().flat_map(|f| conditional_modules(f)).collect();
    let counts = |file: &Path| {
        let below = folders.iter().find_map(|f| file.strip_prefix(f).ok()).expect("a file of a folder");
        !below.with_extension("").iter().any(|part| conditional.contains(&*part.to_string_lossy()))
    };
    newer.into_iter().rev().map(|(_, file)| file).find(|file| counts(file)).cloned()
}

fn modified(file: &Path) -> SystemTime {
    let metadata = fs::metadata(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    metadata.modified().expect("a time")
}

/// All Rust files below a folder.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.map(|e| e.expect("an entry")) {
        let path = entry.path();
        if entry.file_type().expect("a type").is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The names of modules that a file declares below a `#[cfg]`.
fn conditional_modules(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (mut names, mut conditional) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            conditional |= line.starts_with("#[cfg(");
            continue;
        }
        let module = line.strip_suffix(';').and_then(|l| l.rsplit_once("mod "));
        if let Some((_, name)) = module.filter(|_| conditional) {
            names.push(name.to_owned());
        }
        conditional = false;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::time::Duration;

    #[test]
    fn the_newest_file_that_every_build_has_is_named() {
        let scratch = Scratch::new();
        let program = scratch.write("program", "");
        let lib = scratch.write("src/lib.rs", "mod plain;\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests;\n");
        let plain = scratch.write("src/plain/mod.rs", "");
        let tests = scratch.write("src/tests.rs", "");
        let below = scratch.write("src/tests/more.rs", "");
        let note = scratch.write("src/note.txt", "");
        let at = |file: &Path, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
        };
        at(&program, 100);
        for file in [&lib, &plain] {
            at(file, 90);
        }
        let newer = || newer_source(&program, &[scratch.path().join("src")]);
        for file in [&tests, &below, &note] {
            at(file, 200);
        }
        assert_eq!(newer(), None);
        at(&lib, 110);
        assert_eq!(newer(), Some(lib.clone()));
        at(&plain, 120);
        assert_eq!(newer(), Some(plain));
        at(&program, 120);
        assert_eq!(newer(), None);
    }
}
