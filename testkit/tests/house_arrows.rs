//! The rules of the house that a program can check (ARCHITECTURE.md): which crate may import which,
//! where `unsafe`, clocks and sockets may be, how long a file may be, and words that do not belong
//! in it.
//!
//! Every rule is a function from a directory to a list of faults, so that the tests below can also
//! show each rule finding its fault in a made-up tree. What is not here: formatting and lints
//! (`make check`).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The whole table of arrows: crate, and what of ours it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("crypto", &["wire"]),
    ("pki", &["crypto", "wire"]),
    ("ipsec", &["crypto", "wire"]),
    ("keying", &["crypto", "pki", "wire"]),
    ("ike", &["crypto", "keying", "pki", "wire"]),
    ("io", &["wire"]),
    ("config", &["wire", "crypto", "keying", "pki"]),
    ("gateway", &["wire", "crypto", "ipsec", "keying", "ike", "io", "config", "pki"]),
    ("cryptodev", &[]),
    ("lab", &["wire", "io", "crypto", "cryptodev", "ipsec", "keying", "ike"]),
    ("cli", &["config", "gateway", "pki", "wire"]),
    ("pki-tool", &["config", "crypto", "pki", "wire"]),
];

/// Crates without I/O: their rules are stricter.
const PURE: &[&str] = &["wire", "pki", "ipsec", "keying", "ike", "config"];

/// The reader of configurations may read files, on a thread, since a file system may hang. All else
/// that is pure holds for it.
const READS_FILES: &str = "config";
const OF_FILES: &[&str] = &["std::fs", "std::thread", "rustix"];

/// Third-party crates that bring sockets, clocks or an async runtime.
const IMPURE_DEPENDENCIES: &[&str] = &[
    "tokio",
    "socket2",
    "rustix",
    "libc",
    "nix",
    "mio",
    "netlink-sys",
    "rsvici",
    "futures",
    "async-io",
    "chrono",
    "time",
];

/// What may not stand in the code of a pure crate. `Instant` as a type is welcome: `now` is an
/// argument.
const IMPURE_CODE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    ".elapsed()",
    "std::net::Udp",
    "std::net::Tcp",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "async fn",
    "async move",
    ".await",
    "getrandom",
];

/// Where `unsafe` may be: two places in what ships, one in the laboratory with a feature, and three
/// tests that count allocations, which takes a `GlobalAlloc`.
const UNSAFE_PLACES: &[&str] = &[
    "crates/io/",
    "crates/crypto/src/engine",
    "crates/cryptodev/src/dpdk",
    "crates/ipsec/tests/alloc",
    "testkit/tests/memory",
    "fuzz/",
];

/// Longest file, in lines.
const MAX_LINES: usize = 1_000;

/// Words that mean unfinished work. Written in halves, so that this file does not contain them.
fn unfinished() -> Vec<String> {
    [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("todo", "!("), ("unimplemented", "!("), ("dbg", "!(")]
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository").to_path_buf()
}

/// Files below `dir` whose name ends in one of `endings`, without build output and hidden
/// directories.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return found };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') && name != ".ci"
            || name == "target"
            || name == "corpus"
            || name == "artifacts"
        {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|e| name.ends_with(e)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The file with comments and the contents of string literals blanked, so that words in prose do
/// not count as code. Line numbers stay. Understands `//`, nested `/* */`, `"…"`, raw strings and
/// character literals.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |out: &mut String, from: usize, to: usize| {
        out.extend(bytes[from..to].iter().map(|&b| if b == b'\n' { '\n' } else { ' ' }));
    };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(b"//") {
            at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            let (mut depth, mut i) = (1, 2);
            while depth > 0 && i < rest.len() {
                if rest[i..].starts_with(b"/*") {
                    (depth, i) = (depth + 1, i + 2);
                } else if rest[i..].starts_with(b"*/") {
                    (depth, i) = (depth - 1, i + 2);
                } else {
                    i += 1;
                }
            }
            at + i
        } else if let Some(hashes) = raw_string_start(rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = at + 2 + hashes;
            text.get(body..).and_then(|t| t.find(&close)).map_or(bytes.len(), |i| body + i + close.len())
        } else if rest[0] == b'"' {
            let mut i = 1;
            while i < rest.len() && rest[i] != b'"' {
                i += if rest[i] == b'\\' { 2 } else { 1 };
            }
            (at + i + 1).min(bytes.len())
        } else if rest[0] == b'\'' && (rest.get(2) == Some(&b'\'') || rest.get(1) == Some(&b'\\')) {
            let quote = rest.iter().skip(3).position(|&b| b == b'\'').map_or(rest.len(), |i| i + 4);
            at + if rest[1] == b'\\' { quote } else { 3 }
        } else {
            out.push(rest[0] as char);
            at += 1;
            continue;
        };
        blank(&mut out, at, end);
        at = end;
    }
    out
}

/// Number of `#` when a raw string starts here.
fn raw_string_start(rest: &[u8]) -> Option<usize> {
    let after = rest.strip_prefix(b"r")?;
    let hashes = after.iter().take_while(|&&b| b == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// True when `word` stands in `line` with no letter, digit or underscore beside it.
fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (inside(word.chars().next()), inside(word.chars().next_back()));
    line.match_indices(word).any(|(at, _)| {
        !(first && inside(line[..at].chars().next_back())
            || last && inside(line[at + word.len()..].chars().next()))
    })
}

/// Dependencies in a manifest with their line numbers, those for tests left out. Build dependencies
/// count.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let path: Vec<&str> = section.split('.').collect();
            let at = path.iter().position(|p| *p == "dependencies" || *p == "build-dependencies");
            inside = at.is_some_and(|i| i + 1 == path.len());
            if let Some(name) = at.and_then(|i| path.get(i + 1)) {
                found.push((number + 1, (*name).to_string()));
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.push((number + 1, name.to_string()));
        }
    }
    found
}

/// Every crate imports only what the table allows, and the table names every crate.
fn arrow_faults(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut present: Vec<String> = fs::read_dir(root.join("crates"))
        .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    present.sort();
    for name in &present {
        let manifest = root.join("crates").join(name).join("Cargo.toml");
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| n == name) else {
            faults.push(format!("crates/{name}: not in the table of arrows"));
            continue;
        };
        for (line, dependency) in dependencies(&read(&manifest)) {
            let bad = match dependency.strip_prefix("ironswan-") {
                Some(ours) => !allowed.contains(&ours),
                None => {
                    let allowed = name == READS_FILES && OF_FILES.contains(&dependency.as_str());
                    PURE.contains(&name.as_str())
                        && IMPURE_DEPENDENCIES.contains(&dependency.as_str())
                        && !allowed
                }
            };
            if bad {
                faults.push(format!("crates/{name}/Cargo.toml:{line}: {name} may not import {dependency}"));
            }
        }
    }
    for (name, _) in ARROWS {
        if !present.iter().any(|p| p == name) {
            faults.push(format!("crates/{name}: in the table of arrows, but not there"));
        }
    }
    faults
}

/// Pure crates forbid `unsafe` at their root and contain neither clock nor socket nor async code,
/// tests included.
fn purity_faults(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for name in PURE {
        let src = root.join("crates").join(name).join("src");
        if !fs::read_to_string(src.join("lib.rs"))
            .is_ok_and(|t| code_only(&t).contains("#![forbid(unsafe_code)]"))
        {
            faults.push(format!("crates/{name}/src/lib.rs: no #![forbid(unsafe_code)]"));
        }
        for path in files(&src, &[".rs"]) {
            let mut in_tests = path.components().any(|c| c.as_os_str() == "tests")
                || path.file_stem().is_some_and(|s| s.to_string_lossy().ends_with("tests"));
            for (number, line) in code_only(&read(&path)).lines().enumerate() {
                // A file's own tests are its last part.
                in_tests |= line.trim() == "mod tests {";
                for word in IMPURE_CODE.iter().filter(|w| *name != READS_FILES || !OF_FILES.contains(w)) {
                    // A test may start from the real time: what it checks does not depend on it.
                    if has_word(line, word) && !(in_tests && *word == "Instant::now") {
                        faults.push(format!(
                            "{}:{}: {word} in a crate without I/O",
                            shown(root, &path),
                            number + 1
                        ));
                    }
                }
            }
        }
    }
    faults
}

/// `unsafe` only where it is fenced, and there with a safety comment: directly above it, or within
/// six lines.
fn unsafe_faults(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for path in files(root, &[".rs"]) {
        let name = shown(root, &path);
        let text = read(&path);
        let original: Vec<&str> = text.lines().collect();
        let fenced = UNSAFE_PLACES.iter().any(|p| name.starts_with(p));
        for (number, line) in code_only(&text).lines().enumerate() {
            if !has_word(line, "unsafe") {
                continue;
            }
            // The comment may be longer than the six lines in which it otherwise has to stand.
            let is_comment = |n: &usize| original[*n].trim_start().starts_with("//");
            let comment = (0..number).rev().take_while(is_comment).last().unwrap_or(number);
            let above = original[comment.min(number.saturating_sub(6))..=number].join("\n");
            if !fenced {
                faults.push(format!("{name}:{}: unsafe outside {}", number + 1, UNSAFE_PLACES.join(", ")));
            } else if !above.contains("SAFETY:") && !above.contains("# Safety") && !line.contains("extern") {
                faults.push(format!("{name}:{}: unsafe without a SAFETY comment", number + 1));
            }
        }
    }
    faults
}

/// No file past `MAX_LINES`.
fn length_faults(root: &Path) -> Vec<String> {
    files(root, &[".rs", ".py", ".sh"])
        .into_iter()
        .filter_map(|path| {
            let lines = read(&path).lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines} lines, split it", shown(root, &path)))
        })
        .collect()
}

/// No mark of unfinished work, in code, scripts or prose.
fn word_faults(root: &Path) -> Vec<String> {
    let words = unfinished();
    let mut faults = Vec::new();
    for path in
        files(root, &[".rs", ".py", ".sh", ".md", ".toml", ".c", "Makefile", "run", "setup", "test", "check"])
    {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|w| has_word(line, w)) {
                faults.push(format!("{}:{}: {word}", shown(root, &path), number + 1));
            }
        }
    }
    faults
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn assert_none(faults: &[String]) {
    let mut text = String::new();
    for fault in faults {
        let _ = writeln!(text, "  {fault}");
    }
    assert!(faults.is_empty(), "{} faults:\n{text}", faults.len());
}

#[test]
fn crates_import_only_what_the_arrows_allow() {
    assert_none(&arrow_faults(&repository()));
}

#[test]
fn pure_crates_have_no_clock_no_socket_no_async_and_forbid_unsafe() {
    assert_none(&purity_faults(&repository()));
}

#[test]
fn unsafe_is_only_where_it_is_fenced_and_says_why_it_is_sound() {
    assert_none(&unsafe_faults(&repository()));
}

#[test]
fn no_file_is_longer_than_a_thousand_lines() {
    assert_none(&length_faults(&repository()));
}

#[test]
fn nothing_is_marked_as_unfinished() {
    assert_none(&word_faults(&repository()));
}

// Each rule finds its fault in a tree made for it, and only that one.

/// A directory of its own with a tree in it that breaks no rule, removed on drop.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("house-{name}-{}", std::process::id()));
        let tree = Self(root);
        for (name, imports) in ARROWS {
            let list: String = imports.iter().map(|i| format!("ironswan-{i}.workspace = true\n")).collect();
            tree.write(
                &format!("crates/{name}/Cargo.toml"),
                &format!("[dependencies]\n{list}\n[dev-dependencies]\nironswan-ike = \"1\"\ntokio = \"1\"\n"),
            );
            tree.write(
                &format!("crates/{name}/src/lib.rs"),
                "//! unsafe and Instant::now are words here\n#![forbid(unsafe_code)]\nfn f() -> &'static str {\n    \
                 \"std::fs unsafe\" // UdpSocket\n}\n",
            );
        }
        tree.write("crates/io/src/tun.rs", "// SAFETY: the descriptor is ours.\nunsafe { close(fd) }\n");
        for rule in [arrow_faults, purity_faults, unsafe_faults, length_faults, word_faults] {
            assert_none(&rule(&tree.0));
        }
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("a temporary directory");
        fs::write(path, text).expect("a temporary file");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_arrow_that_is_not_in_the_table_is_found() {
    let tree = Tree::new("arrow");
    tree.write(
        "crates/ike/Cargo.toml",
        "[dependencies]\nironswan-wire.workspace = true\nironswan-ipsec.workspace = true\n",
    );
    assert_eq!(arrow_faults(&tree.0), ["crates/ike/Cargo.toml:3: ike may not import ironswan-ipsec"]);
    tree.write("crates/ike/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nsocket2 = \"1\"\n");
    assert_eq!(arrow_faults(&tree.0), ["crates/ike/Cargo.toml:2: ike may not import socket2"]);
    tree.write("crates/ike/Cargo.toml", "[dependencies.ironswan-gateway]\npath = \"../gateway\"\n");
    assert_eq!(arrow_faults(&tree.0), ["crates/ike/Cargo.toml:1: ike may not import ironswan-gateway"]);
}

#[test]
fn a_crate_that_the_table_does_not_know_is_found() {
    let tree = Tree::new("unknown");
    tree.write("crates/extra/Cargo.toml", "[dependencies]\n");
    assert_eq!(arrow_faults(&tree.0), ["crates/extra: not in the table of arrows"]);
}

#[test]
fn a_clock_a_socket_and_async_code_are_found() {
    for (code, word) in [
        ("let t = std::time::Instant::now();", "Instant::now"),
        ("let s = UdpSocket::bind(a);", "UdpSocket"),
        ("async fn f() {}", "async fn"),
        ("let n = start.elapsed();", ".elapsed()"),
    ] {
        let tree = Tree::new("pure");
        tree.write("crates/wire/src/esp.rs", code);
        assert_eq!(
            purity_faults(&tree.0),
            [format!("crates/wire/src/esp.rs:1: {word} in a crate without I/O")]
        );
    }
}

#[test]
fn a_pure_crate_that_does_not_forbid_unsafe_is_found() {
    let tree = Tree::new("forbid");
    tree.write("crates/ipsec/src/lib.rs", "// #![forbid(unsafe_code)]\n");
    assert_eq!(purity_faults(&tree.0), ["crates/ipsec/src/lib.rs: no #![forbid(unsafe_code)]"]);
}

#[test]
fn unsafe_in_the_wrong_place_or_without_its_reason_is_found() {
    let tree = Tree::new("unsafe");
    tree.write("crates/gateway/src/a.rs", "/* not here: */ fn f() { unsafe { g() } }\n");
    tree.write("crates/io/src/b.rs", "fn f() {\n    unsafe { g() }\n}\n");
    assert_eq!(
        unsafe_faults(&tree.0),
        [
            "crates/gateway/src/a.rs:1: unsafe outside crates/io/, crates/crypto/src/engine, crates/cryptodev/src/dpdk, \
             crates/ipsec/tests/alloc, testkit/tests/memory, fuzz/",
            "crates/io/src/b.rs:2: unsafe without a SAFETY comment",
        ]
    );
}

#[test]
fn a_file_that_is_too_long_and_a_mark_of_unfinished_work_are_found() {
    let tree = Tree::new("words");
    tree.write("crates/io/src/long.rs", &"fn f() {}\n".repeat(MAX_LINES + 1));
    assert_eq!(length_faults(&tree.0), ["crates/io/src/long.rs: 1001 lines, split it"]);
    tree.write("docs/a.md", &format!("one\n{}: two\n", unfinished()[0]));
    assert_eq!(word_faults(&tree.0), [format!("docs/a.md:2: {}", unfinished()[0])]);
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = "a /* b /* c */ d */ e // f\n\"g \\\" h\" i r#\"j \" k\"# l '\"' m '\\'' n 'o\n";
    assert_eq!(code_only(text).split_whitespace().collect::<Vec<_>>(), ["a", "e", "i", "l", "m", "n", "'o"]);
}
