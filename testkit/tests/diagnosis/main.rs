//! Every entry of the list of diagnoses happens. The match from entry to case is exhaustive, so that an entry
//! without a case does not compile.

mod configuration;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Entry;

fn happens(entry: Entry) -> Vec<Diagnosis> {
    match entry {
        Entry::Configuration(entry) => configuration::happens(entry),
    }
}

#[test]
fn every_entry_happens_and_its_sentence_is_one_line() {
    let mut missing = Vec::new();
    for entry in Entry::all() {
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
