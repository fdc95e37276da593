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
use ironswan_keying::diagnosis::{ConfigurationEntry, Entry};

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

/// Rows of the tables of the manual that begin with a name: (name, fault).
fn rows(page: &str) -> Vec<(&str, &str)> {
    let section = page.split("\n## Diagnoses").nth(1).expect("a section `## Diagnoses`");
    let section = section.split("\n## ").next().unwrap_or_default();
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let name = cells.next().unwrap_or_default().trim_matches('`');
            assert!(cells.clone().all(|cell| cell.len() <= 250), "{name}: a cell of more than 250 bytes");
            let (_means, fault, remedy) = (cells.next(), cells.next(), cells.next());
            assert!(remedy.is_some_and(|cell| !cell.is_empty()), "{name}: nothing to do");
            (name, fault.unwrap_or_default())
        })
        .collect()
}

#[test]
fn the_manual_has_a_row_for_every_entry_and_no_other() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manual/troubleshooting.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (mut listed, mut written) = (BTreeSet::new(), BTreeSet::new());
    for entry in Entry::all() {
        listed.insert((entry.name(), entry.fault().word()));
    }
    for row in rows(&page) {
        assert!(written.insert(row), "{row:?} twice");
    }
    let missing: Vec<_> = listed.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/manual/troubleshooting.md lacks {missing:?}");
    assert!(unknown.is_empty(), "docs/manual/troubleshooting.md has {unknown:?}, which the list has not");
}
