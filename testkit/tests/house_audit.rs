//! `docs/rfc/audit.md` says of each rule of the RFCs which test holds it, or why there is none, and
//! `docs/rfc/bad-inputs.md` which test sends each bad input. The tests that they name exist.
//!
//! A row is `| section | rule | tests |`, or `| number | input | tests |`. The last column names
//! tests in backticks, a Rust function (`fragments_are_...`) or a test against real peers
//! (`nat.attacker_moves_nothing`), or begins with "not:" and a reason.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository")
}

fn files(dir: &Path, ending: &str, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() && !path.ends_with("target") {
            files(&path, ending, out);
        } else if path.extension().is_some_and(|e| e == ending) {
            out.push(path);
        }
    }
}

/// Names of the functions behind `#[test]`, `proptest!` included, in one source file.
fn rust_tests(source: &str, out: &mut HashSet<String>) {
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(name) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "))
            && std::mem::take(&mut marked)
        {
            out.extend(name.split(['(', '<']).next().map(str::to_owned));
        }
    }
}

/// `file.function` of the tests of a script: functions at the left margin that take the laboratory
/// and `full`.
fn script_tests(file: &str, source: &str, out: &mut HashSet<String>) {
    for (name, takes) in source.lines().filter_map(|l| l.strip_prefix("def ")?.split_once('(')) {
        if takes.starts_with("lab, full") {
            out.insert(format!("{file}.{name}"));
        }
    }
}

/// The rows of the tables of a page, without their heads.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let heads = ["| section", "| number", "| ---"];
    page.lines().filter(move |l| l.starts_with("| ") && !heads.iter().any(|h| l.starts_with(h)))
}

/// What is wrong with the rows of a page.
fn faults(page: &str, tests: &HashSet<String>) -> Vec<String> {
    let mut out = Vec::new();
    for line in rows(page) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(last) = cells.last().filter(|_| cells.len() == 3) else {
            out.push(format!("not three columns: {line}"));
            continue;
        };
        let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !last.starts_with("not: ") {
            out.push(format!("neither a test nor a reason: {line}"));
        }
        out.extend(named.iter().filter(|n| !tests.contains(**n)).map(|n| format!("no such test: {n}")));
    }
    out
}

/// All tests that a page may name.
fn all_tests() -> HashSet<String> {
    let mut tests = HashSet::new();
    let mut sources = Vec::new();
    for dir in ["crates", "testkit", "fuzz"] {
        files(&root().join(dir), "rs", &mut sources);
    }
    for path in &sources {
        rust_tests(&fs::read_to_string(path).expect("a source file"), &mut tests);
    }
    let mut scripts = Vec::new();
    files(&root().join("testkit/interop/tests"), "py", &mut scripts);
    for path in &scripts {
        let name = path.file_stem().expect("a file").to_string_lossy();
        script_tests(&name, &fs::read_to_string(path).expect("a script"), &mut tests);
    }
    tests
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/rfc").join(name)).unwrap_or_else(|e| panic!("docs/rfc/{name}: {e}"))
}

#[test]
fn every_rule_of_the_audit_has_a_test_that_exists_or_a_reason() {
    let page = page("audit.md");
    assert!(rows(&page).count() > 60, "the tables were not found");
    assert_eq!(faults(&page, &all_tests()), [""; 0]);
}

#[test]
fn every_bad_input_has_a_test_that_exists() {
    let page = page("bad-inputs.md");
    let numbers: HashSet<u32> =
        rows(&page).filter_map(|l| l.trim_matches('|').split(" | ").next()?.trim().parse().ok()).collect();
    assert_eq!(
        (1..=42).filter(|n| !numbers.contains(n)).collect::<Vec<_>>(),
        [0; 0],
        "numbers without a row"
    );
    assert_eq!(faults(&page, &all_tests()), [""; 0]);
}

#[test]
fn a_row_without_a_test_is_found() {
    let mut tests = HashSet::new();
    rust_tests("#[test]\nfn held() {}\nfn helper() {}\n    #[test]\n    fn inside(a: u8) {}\n", &mut tests);
    script_tests("leak", "def boot(lab, full):\n    def inner():\ndef helper(lab):\n", &mut tests);
    assert_eq!(tests.len(), 3);
    let page = "| section | rule | tests |\n| --- | --- | --- |\n| 1 | a | `held`, `leak.boot` |\n| 2 | b | not: no multicast |\n";
    assert_eq!(faults(&page.replace("| --- | --- | --- |\n", ""), &tests), [""; 0]);
    let bad = "| 1 | a | `helper` |\n| 2 | b | |\n| 3 | c | soon |\n| 4 | d |\n";
    assert_eq!(faults(bad, &tests).len(), 4);
}
