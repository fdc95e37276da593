//! The manual's words on each entry: under which symptoms it is looked for, and what to do about
//! it in all cases. The remedy of a diagnosis says what to do in one case.
//!
//! `docs/manual/diagnoses.md` and `symptoms.md` are made from it (`manual`), and `ironswan explain`
//! shows it where a diagnosis has no remedy. Texts are Markdown; links are seen from `docs/manual`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `authentication` | advice on entries of authentication |
//! | `configuration` | advice on entries of configuration |
//! | `data_plane` | advice on entries of the data plane |
//! | `entry` | the words on one entry, and the macro that has them for an area |
//! | `guard` | advice on entries of the guard |
//! | `key_exchange` | advice on entries of key exchange |
//! | `machine` | advice on entries of this machine |
//! | `packet` | advice on entries of the way of one packet |
//! | `path` | advice on entries of the path to the peer |
//! | `selectors` | advice on entries of traffic selectors |

mod authentication;
mod configuration;
mod data_plane;
mod entry;
mod guard;
mod key_exchange;
mod machine;
mod packet;
mod path;
mod selectors;

use super::Entry;
use super::symptom::Symptom;
use entry::Advice;

fn of(entry: Entry) -> Advice {
    match entry {
        Entry::Configuration(entry) => configuration::of(entry),
        Entry::KeyExchange(entry) => key_exchange::of(entry),
        Entry::Authentication(entry) => authentication::of(entry),
        Entry::Selectors(entry) => selectors::of(entry),
        Entry::Path(entry) => path::of(entry),
        Entry::DataPlane(entry) => data_plane::of(entry),
        Entry::Guard(entry) => guard::of(entry),
        Entry::Machine(entry) => machine::of(entry),
        Entry::Packet(entry) => packet::of(entry),
    }
}

impl Entry {
    /// Symptoms under which people look for it.
    pub fn symptoms(self) -> &'static [Symptom] {
        of(self).symptoms
    }

    /// What to do about it in all cases, without a full stop. Links are left out.
    pub fn advice(self) -> String {
        without_links(self.advice_with_links())
    }

    /// [`advice`](Self::advice) in Markdown.
    pub(super) fn advice_with_links(self) -> &'static str {
        of(self).text
    }
}

/// `[words](page.md)` becomes `words`.
fn without_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, (words, after))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once("](")?)))
    {
        out.push_str(before);
        out.push_str(words);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn advice_is_a_short_cell_and_names_each_symptom_once() {
        for entry in Entry::all() {
            let (name, text) = (entry.name(), entry.advice_with_links());
            assert!(!text.is_empty() && text.len() <= 250, "{name}: {} bytes", text.len());
            assert!(!text.contains(['|', '\n']) && !text.ends_with('.'), "{name}: {text}");
            let symptoms: BTreeSet<_> = entry.symptoms().iter().collect();
            assert!(!symptoms.is_empty() && symptoms.len() == entry.symptoms().len(), "{name}: {symptoms:?}");
            let plain = entry.advice();
            assert!(!plain.contains("](") && !plain.contains(".md"), "{name}: {plain}");
        }
    }

    #[test]
    fn links_become_their_words() {
        assert_eq!(without_links("see [a page](p.md#x); or [`k`](q.md)"), "see a page; or `k`");
        assert_eq!(without_links("none"), "none");
        assert_eq!(without_links("[fd00::9]:500"), "[fd00::9]:500");
    }
}
