//! The manual names every drop reason. The keys of the configuration are compared by the crate
//! `config`, which makes their tables.
//!
//! Compared as text: the tables in the source on one side, the pages on the other. What is not
//! here: whether what the pages say is right.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository");
    fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Names in the macro call that lists the drop reasons.
fn drop_reasons(source: &str) -> Vec<String> {
    let list = source.split("drop_reasons! {").nth(1).and_then(|t| t.split("\n}").next()).unwrap_or_default();
    list.lines()
        .map(str::trim)
        .filter(|l| !l.starts_with("///"))
        .filter_map(|l| l.strip_suffix(','))
        .map(str::to_string)
        .collect()
}

/// Which of `names` the page does not show as `name`.
fn missing<'a>(names: &'a [String], page: &str) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|n| !page.contains(&format!("`{n}`"))).collect()
}

#[test]
fn every_drop_reason_is_in_the_manual_with_its_remedy() {
    let reasons = drop_reasons(&read("crates/ipsec/src/counters.rs"));
    assert!(reasons.len() > 20, "the list was not found: {reasons:?}");
    assert_eq!(missing(&reasons, &read("docs/manual/troubleshooting.md")), [""; 0]);
}

#[test]
fn what_is_missing_from_a_page_is_found() {
    assert_eq!(missing(&["one".into(), "two".into()], "| `one` | ... two"), ["two"]);
    assert_eq!(drop_reasons("drop_reasons! {\n    /// Why,\n    InX,\n    OutY,\n}\n"), ["InX", "OutY"]);
}
