//! Parts of `ironswan report` that need no daemon: what the machine says of itself, secrets that
//! the report must not hold, and the archive.
//!
//! ```text
//! known: configuration, keys ─▶ Scrubber ─┐
//! machine, and what the daemon answers ───┴─▶ entries without secrets ─▶ archive ─▶ FILE
//! ```
//! The archive is made in memory, since nothing may be written before every entry was searched.
//! Not here: questions to the daemon, and the listing (`cli`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `archive` | tar and gzip, and the file |
//! | `known` | secrets of this machine, and the configuration without them |
//! | `machine` | kernel, links, routes, rules, settings |

mod archive;
mod known;
mod machine;

use ironswan_config::scrub::KEY_LEN;
use ironswan_crypto::rng::{Rng, System};
use zeroize::Zeroizing;

pub use archive::{pack, write};
pub use known::{Known, MAX_KEY_FILES, gather as known};
pub use machine::gather as machine;

/// A random key for the hashes of one report.
pub fn random_key() -> Zeroizing<[u8; KEY_LEN]> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    System.fill(&mut *key);
    key
}

/// A file of the archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its path in the archive.
    pub name: String,
    /// Its bytes.
    pub text: Vec<u8>,
}

impl Entry {
    /// A file of the archive.
    pub fn new(name: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}
