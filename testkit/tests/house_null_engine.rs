//! The engine that protects nothing (`ironswan_crypto::null`) is for counting instructions: no
//! manifest turns its feature on, nothing that builds what ships asks for it, and one program
//! chooses it. `scripts/budget` looks into the release binary too.

use std::fs;
use std::path::{Path, PathBuf};

const FEATURE: &str = "null-engine";

/// Where the feature may be named, and how many lines may do so.
const NAMED: &[(&str, usize)] = &[
    // What it is.
    ("crates/crypto/Cargo.toml", 1),
    ("crates/crypto/src/batch.rs", usize::MAX),
    ("crates/crypto/src/batch/setup.rs", usize::MAX),
    ("crates/crypto/src/icv.rs", usize::MAX),
    ("crates/crypto/src/lib.rs", usize::MAX),
    ("crates/crypto/src/null.rs", usize::MAX),
    // Handed on, by name only; and the one program that cannot be built without it.
    ("crates/ipsec/Cargo.toml", 2),
    ("crates/ipsec/examples/budget.rs", 1),
    ("scripts/budget", 2),
    ("testkit/tests/house_null_engine.rs", usize::MAX),
];

/// Manifests, code and everything that builds: text files outside of `docs`, build output and
/// hidden directories but `.ci`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let skipped = ["target", "corpus", "artifacts", "docs", "__pycache__"].contains(&name.as_str())
            || name.starts_with('.') && name != ".ci"
            || name.ends_with(".md");
        match path.is_dir() {
            _ if skipped => {}
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Lines that name the feature where they may not.
fn faults(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for path in files(root) {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let lines: Vec<&str> = text.lines().filter(|l| l.contains(FEATURE)).collect();
        let allowed = NAMED.iter().find(|(n, _)| *n == name).map_or(0, |(_, lines)| *lines);
        if lines.len() > allowed {
            faults.push(format!("{name}: {} lines name {FEATURE}, {allowed} may", lines.len()));
        }
        if name.ends_with("Cargo.toml") {
            let defaults = lines.iter().any(|l| l.trim_start().starts_with("default"));
            let asked = lines.iter().any(|l| l.starts_with("ironswan") || l.contains("path ="));
            if defaults || asked {
                faults.push(format!("{name}: turns {FEATURE} on"));
            }
        }
        let chosen = text.contains("null::choose");
        if chosen
            && !["crates/ipsec/examples/budget.rs", "testkit/tests/house_null_engine.rs"].contains(&&name[..])
        {
            faults.push(format!("{name}: chooses the null engine"));
        }
    }
    faults
}

#[test]
fn nothing_that_ships_has_the_null_engine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository");
    let manifest = fs::read_to_string(root.join("crates/crypto/Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("null-engine = []"), "the feature that this is about");
    assert_eq!(faults(root), Vec::<String>::new());
}

#[test]
fn a_manifest_or_script_that_asks_for_it_is_found() {
    let root = std::env::temp_dir().join(format!("house-null-{}", std::process::id()));
    let cases = [
        ("crates/cli/Cargo.toml", "ironswan-ipsec = { workspace = true, features = [\"null-engine\"] }", 2),
        ("crates/crypto/Cargo.toml", "default = [\"null-engine\"]", 1),
        ("scripts/setup", "cargo build --features ironswan-ipsec/null-engine", 1),
        ("crates/gateway/src/start/run.rs", "ironswan_crypto::null::choose();", 1),
        (
            "crates/ipsec/Cargo.toml",
            "ironswan-crypto = { workspace = true, features = [\"null-engine\"] }",
            1,
        ),
    ];
    for (path, text, count) in cases {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("a temporary directory");
        fs::write(path, text).expect("a temporary file");
        let found = faults(&root);
        fs::remove_dir_all(&root).expect("it was made above");
        assert_eq!(found.len(), count, "{text}: {found:?}");
    }
}
