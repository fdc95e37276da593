//! The meaning of a configuration: from sections, keys and texts to connections. One implementation
//! for files and for VICI.
//!
//! Every finding is reported, not only the first. Defaults are swanctl's; where ours differ the
//! reader says so: `replay_window` is 4096 packets (32 there), since routers with several queues
//! reorder more than 32 packets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `authorities` | `authorities` |
//! | `child` | `children.<child>` |
//! | `conn` | `connections.<conn>`, `local`, `remote` |
//! | `daemon` | `ironswan.conf` |
//! | `data` | `data { .. }` of `ironswan.conf` |
//! | `keys/` | the table of all keys, and their readers |
//! | `manual` | the tables of the manual, made from the table of keys |
//! | `secrets` | `secrets` |

mod authorities;
mod child;
mod conn;
mod daemon;
mod data;
mod keys;
mod manual;
mod secrets;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Configuration, Conflict, Unwise};

use super::diag::Diagnostics;
use super::tree::{Origin, Section};
use keys::Key;
pub(super) use keys::join;

pub(super) use authorities::{authorities, places};
pub use conn::connection;
pub(super) use conn::in_rounds;
pub use daemon::{Daemon, daemon};
pub use keys::listed::{list_child, list_connection};
pub use keys::settings::{LogFormat, vici_uri};
pub(crate) use manual::is_key;
pub use manual::{MissingTable, manual};
pub(super) use secrets::passphrases;
pub use secrets::{ppks, secrets};

/// Reads the values of one section by the table of keys. A value that is wrong is reported.
struct Reader<'a> {
    section: &'a Section,
    path: &'a str,
    diags: &'a mut Diagnostics,
}

impl Reader<'_> {
    /// The value that was written for `key`. `None` when none was written, or a wrong one.
    fn written<T>(&mut self, key: &Key<T>) -> Option<T> {
        let value = self.section.value(key.name())?;
        match key.understand(value) {
            Ok(v) => Some(v),
            Err(wrong) => {
                let path = join(self.path, key.name());
                wrong.into_iter().for_each(|why| self.diags.error(&value.origin, &path, why));
                None
            }
        }
    }

    /// The value of `key`: its default when none was written, or a wrong one.
    fn read<T>(&mut self, key: &Key<T>) -> T {
        self.written(key).unwrap_or_else(|| key.default())
    }

    /// True when there is a value, right or wrong.
    fn has<T>(&self, key: &Key<T>) -> bool {
        self.section.value(key.name()).is_some()
    }

    /// Place of a key, or of the section when the key was not written.
    fn origin<T>(&self, key: &Key<T>) -> Origin {
        let section = || self.section.origin.clone();
        self.section.value(key.name()).map_or_else(section, |v| v.origin.clone())
    }

    /// Reports that the value of this key cannot be used.
    fn error<T>(&mut self, key: &Key<T>, reason: impl Into<Diagnosis>) {
        let origin = self.origin(key);
        self.diags.error(&origin, &join(self.path, key.name()), reason);
    }

    /// Reports that this key has no effect.
    fn note<T>(&mut self, key: &Key<T>, reason: impl Into<Diagnosis>) {
        let origin = self.origin(key);
        self.diags.note(&origin, &join(self.path, key.name()), reason);
    }

    /// Reports that this key contradicts another one.
    fn conflict<T>(&mut self, key: &Key<T>, what: Conflict) {
        self.error(key, Configuration::Conflicting { what });
    }

    /// Reports that the value of this key works and is doubtful.
    fn doubt<T>(&mut self, key: &Key<T>, what: Unwise) {
        let origin = self.origin(key);
        self.diags.warn(&origin, &join(self.path, key.name()), Configuration::Doubtful { what });
    }
}

#[cfg(test)]
mod child_tests;
#[cfg(test)]
mod tests;
