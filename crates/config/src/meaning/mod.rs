//! What is meant: from sections, keys and texts to `ike::config`. One implementation for files and for VICI.
//!
//! Every finding is reported, not only the first. Defaults are swanctl's; where ours differ the reader says so:
//! `replay_window` is 4096 packets (32 there), since routers with several queues reorder more than 32 packets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `child` | `children.<child>` |
//! | `conn` | `connections.<conn>`, `local`, `remote` |
//! | `daemon` | `ironswan.conf` |
//! | `data` | `data { .. }` of `ironswan.conf` |
//! | `keys` | the table of all keys |
//! | `manual` | the tables of the manual, made from the table of keys |
//! | `secrets` | `secrets` |

mod child;
mod conn;
mod daemon;
mod data;
mod keys;
mod manual;
mod secrets;

use super::diag::Diagnostics;
use super::tree::{Origin, Section};
pub(super) use keys::join;

pub use conn::connection;
pub use daemon::{Daemon, LogFormat, daemon, vici_uri};
pub use manual::manual;
pub use secrets::secrets;

/// Reads the values of one section.
struct Reader<'a> {
    section: &'a Section,
    path: &'a str,
    diags: &'a mut Diagnostics,
}

impl Reader<'_> {
    /// The value of `key` as `read` understands it; `None` when it was not written or is wrong (which is reported).
    fn get<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.section.value(key)?;
        match read(&value.as_text()) {
            Ok(v) => Some(v),
            Err(message) => {
                self.diags.error(&value.origin, &join(self.path, key), message);
                None
            }
        }
    }

    /// The values of a list. `None` when it was not written; items that are wrong are reported and left out.
    fn list<T>(&mut self, key: &str, mut read: impl FnMut(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let value = self.section.value(key)?;
        if value.items().next().is_none() {
            self.diags.error(&value.origin, &join(self.path, key), super::value::NAMES_NOTHING);
        }
        let mut out = Vec::new();
        for item in value.items() {
            match read(item) {
                Ok(v) => out.push(v),
                Err(message) => self.diags.error(&value.origin, &join(self.path, key), message),
            }
        }
        Some(out)
    }

    /// Where a key was written, or the section when it was not.
    fn origin(&self, key: &str) -> Origin {
        self.section.value(key).map_or_else(|| self.section.origin.clone(), |v| v.origin.clone())
    }

    fn error(&mut self, key: &str, message: impl Into<String>) {
        let origin = self.origin(key);
        self.diags.error(&origin, &join(self.path, key), message);
    }

    fn warn(&mut self, key: &str, message: impl Into<String>) {
        let origin = self.origin(key);
        self.diags.warn(&origin, &join(self.path, key), message);
    }

    /// One of a closed list of words.
    fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.get(key, |text| {
            let t = text.trim().to_ascii_lowercase();
            words.iter().find(|(w, _)| *w == t).map(|(_, v)| *v).ok_or_else(|| {
                let known: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
                format!("`{}` is none of {}", super::value::show(text), known.join(", "))
            })
        })
    }
}

#[cfg(test)]
mod child_tests;
#[cfg(test)]
mod tests;
