//! The words on one entry, and the macro that has them for every entry of an area.

use crate::diagnosis::symptom::Symptom;

/// The manual's words on one entry.
pub(super) struct Advice {
    /// At least one; each once.
    pub(super) symptoms: &'static [Symptom],
    /// What to do, in Markdown, as a cell of a table.
    pub(super) text: &'static str,
}

/// Makes `of`, which has the advice on each entry of an area. An entry without advice does not
/// compile.
macro_rules! advice {
    ($entries:ident; $($entry:ident [$($symptom:ident),+] $text:literal;)+) => {
        pub(super) fn of(entry: $entries) -> $crate::diagnosis::advice::entry::Advice {
            match entry {
                $($entries::$entry => $crate::diagnosis::advice::entry::Advice {
                    symptoms: &[$($crate::diagnosis::Symptom::$symptom),+],
                    text: $text,
                },)+
            }
        }
    };
}
pub(super) use advice;
