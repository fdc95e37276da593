//! Pages of the manual that are made from the list: all diagnoses by area, and the same by symptom.
//! `cargo run -p ironswan-keying --example diagnoses` writes them.

use std::fmt::Write as _;

use super::symptom::Symptom;
use super::{Area, Entry};

/// What stands above the table of an area. May be empty.
fn about(area: Area) -> &'static str {
    match area {
        Area::Configuration => {
            "`ironswan check` finds these before a daemon does. A finding also has its file, line and key.\n\n"
        }
        Area::Authentication => {
            "A missing key is an entry of the [configuration](#configuration), where `ironswan check` finds it before any peer does.\n\n"
        }
        Area::Path => {
            "Several of these rest on [ICMP errors](troubleshooting.md#icmp-errors), which are told and never acted on.\n\n"
        }
        Area::Packet => {
            "`ironswan explain --packet` finds these: [why does this packet not pass?](troubleshooting.md#why-does-this-packet-not-pass)\n\n"
        }
        _ => "",
    }
}

/// The title of an area, and the name by which links find it.
fn title(area: Area) -> (String, String) {
    let word = area.word();
    (word[..1].to_uppercase() + &word[1..], word.replace(' ', "-"))
}

/// The meaning as a cell has it: without a full stop at its end, and beginning small, unless with a
/// name such as AH.
fn meaning(entry: Entry) -> String {
    let text = entry.meaning().trim_end_matches('.');
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().to_string() + &text[first.len_utf8()..]
        }
        _ => text.to_owned(),
    }
}

/// `docs/manual/diagnoses.md`.
pub fn diagnoses_page() -> String {
    let mut out = String::from(
        "# Diagnoses\n\n\
         Every reason has a name that does not change: in the log (`format = json`), in `ironswan explain`, `status` and\n\
         `check --json`, in VICI's `alert`, and here. The column *whose fault* says who has to change something. [Symptoms](symptoms.md) has\n\
         the same names by what one sees. A program makes both pages from the list in the code.\n",
    );
    let mut last = None;
    for entry in Entry::all() {
        if last != Some(entry.area()) {
            last = Some(entry.area());
            let (title, _) = title(entry.area());
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "\n## {title}\n\n{}| name | means | whose fault | do |\n|---|---|---|---|\n",
                about(entry.area())
            );
        }
        let (name, fault, advice) = (entry.name(), entry.fault().word(), entry.advice_with_links());
        let _ = writeln!(out, "| `{name}` | {} | {fault} | {advice} |", meaning(entry));
    }
    out
}

/// `docs/manual/symptoms.md`.
pub fn symptoms_page() -> String {
    let mut out = String::from(
        "# Symptoms\n\n\
         What one sees, the commands that say which reason it is, and all reasons that there are. [Diagnoses](diagnoses.md) says of each name\n\
         what to do about it. NAME is a connection, ADDRESS a peer's; a packet is written as \
         [here](troubleshooting.md#why-does-this-packet-not-pass).\n\
         A program makes this page from the list in the code, and a test runs every command.\n\n",
    );
    for symptom in Symptom::ALL {
        let title = symptom.title();
        let anchor: String = title
            .chars()
            .filter(|c| !matches!(c, ':' | ','))
            .collect::<String>()
            .to_lowercase()
            .replace(' ', "-");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "* [{title}](#{anchor})");
    }
    for symptom in Symptom::ALL {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n## {}\n\n| ask | it tells |\n|---|---|\n", symptom.title());
        for step in symptom.steps() {
            let _ = writeln!(out, "| `{}` | {} |", step.command, step.tells);
        }
        let space = if symptom.more().is_empty() { "" } else { "\n\n" };
        let _ = write!(out, "\n{}{space}| it may be | which means |\n|---|---|\n", symptom.more());
        for entry in Entry::all().filter(|entry| entry.symptoms().contains(symptom)) {
            let (name, (_, anchor)) = (entry.name(), title(entry.area()));
            let _ = writeln!(out, "| [`{name}`](diagnoses.md#{anchor}) | {} |", meaning(entry));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meaning_begins_small_unless_with_a_name() {
        let of = |name: &str| meaning(Entry::all().find(|entry| entry.name() == name).expect("an entry"));
        assert!(of("no-answer").starts_with("the peer does not answer"), "{}", of("no-answer"));
        assert!(of("ah-through-nat").starts_with("AH is configured"), "{}", of("ah-through-nat"));
        assert!(Entry::all().all(|entry| !meaning(entry).ends_with('.')));
    }
}
