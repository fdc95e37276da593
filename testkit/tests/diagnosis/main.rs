//! Every entry of the list of diagnoses happens. The match from entry to case is exhaustive, so
//! that an entry without a case does not compile.

mod authentication;
mod certificates;
mod configuration;
mod key_exchange;
mod path;
mod selectors;
mod story;

use std::collections::BTreeSet;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{ConfigurationEntry, Entry, diagnoses_page, symptoms_page};

/// The tests of the gateway make these happen, since this crate does not know the gateway.
fn is_of_gateway(entry: Entry) -> bool {
    matches!(
        entry,
        Entry::DataPlane(_)
            | Entry::Guard(_)
            | Entry::Machine(_)
            | Entry::Packet(_)
            | Entry::Configuration(ConfigurationEntry::HalfWritten)
    )
}

fn happens(entry: Entry) -> Vec<Diagnosis> {
    match entry {
        Entry::Configuration(entry) => configuration::happens(entry),
        Entry::KeyExchange(entry) => key_exchange::happens(entry),
        Entry::Authentication(entry) => authentication::happens(entry),
        Entry::Selectors(entry) => selectors::happens(entry),
        Entry::Path(entry) => path::happens(entry),
        Entry::DataPlane(_) | Entry::Guard(_) | Entry::Machine(_) | Entry::Packet(_) => Vec::new(),
    }
}

#[test]
fn every_entry_happens_and_its_sentence_is_one_line() {
    let mut missing = Vec::new();
    for entry in Entry::all().filter(|entry| !is_of_gateway(*entry)) {
        let found = happens(entry);
        match found.iter().find(|diagnosis| diagnosis.entry() == entry) {
            Some(diagnosis) => {
                let text = diagnosis.to_string();
                println!("{:24} {text}", entry.name());
                assert!(!text.contains('\n') && !diagnosis.sentence().is_empty(), "{}: {text}", entry.name());
                assert!(!diagnosis.sentence().ends_with('.') && !text.contains("; ;"), "{text}");
            }
            None => missing.push(format!("{}: {found:?}", entry.name())),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manual").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Cells of the rows of a page that begin with the name of an entry, linked or not.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let is_name = |line: &str| line.starts_with("| `") && !line.starts_with("| `ironswan ");
    let rows = page.lines().filter(|line| is_name(line) || line.starts_with("| [`"));
    rows.map(|line| {
        let mut cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        cells[0] = cells[0].split('`').nth(1).unwrap_or_default();
        assert!(cells.iter().all(|cell| !cell.is_empty()), "an empty cell: {line}");
        assert!(cells.iter().all(|cell| cell.len() <= 250), "a cell of more than 250 bytes: {line}");
        cells
    })
    .collect()
}

#[test]
fn the_manual_has_the_pages_that_the_list_makes() {
    for (name, made) in [("diagnoses.md", diagnoses_page()), ("symptoms.md", symptoms_page())] {
        assert!(
            page(name) == made,
            "docs/manual/{name} differs from the list: run `cargo run -p ironswan-keying --example diagnoses`"
        );
    }
}

/// The pages are read as a person would, whoever has made them.
#[test]
fn the_manual_has_a_row_for_every_entry_and_no_other() {
    let page = page("diagnoses.md");
    let (mut listed, mut written) = (BTreeSet::new(), BTreeSet::new());
    for entry in Entry::all() {
        listed.insert((entry.name(), entry.fault().word()));
    }
    for row in rows(&page) {
        let [name, _means, fault, _do] = row[..] else { panic!("not four columns: {row:?}") };
        assert!(written.insert((name, fault)), "{name} twice");
    }
    let missing: Vec<_> = listed.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/manual/diagnoses.md lacks {missing:?}");
    assert!(unknown.is_empty(), "docs/manual/diagnoses.md has {unknown:?}, which the list has not");
}

#[test]
fn every_entry_stands_under_a_symptom_behind_commands_that_find_it() {
    let page = page("symptoms.md");
    let mut found = BTreeSet::new();
    for section in page.split("\n## ").skip(1) {
        let (commands, reasons) = section.split_once("| it may be |").expect("a table of reasons");
        assert!(commands.contains("\n| `ironswan "), "no command comes first: {section}");
        let names: BTreeSet<String> = rows(reasons).iter().map(|row| row[0].to_owned()).collect();
        assert_eq!(names.len(), rows(reasons).len(), "a reason twice: {section}");
        found.extend(names);
    }
    let listed: BTreeSet<String> = Entry::all().map(|entry| entry.name().to_owned()).collect();
    assert_eq!(found, listed);
}
