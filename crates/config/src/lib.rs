//! Configuration: from what was written to what is meant.
//!
//! ```text
//! files -> syntax, include -> tree -> meaning -> Config      findings: file, line, key (diag)
//! VICI message ------------> tree -> meaning -> Connection   the same code
//! Config -> check: what two parts of it mean for each other
//! ```
//! Files are the only thing of the world that this crate touches ([`files`]). It has no socket, and
//! its callers name the clock.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `algorithms` | words of proposals, and the RFCs' opinion of each |
//! | `certfiles` | files of certificates, revocation lists and PKCS#12 |
//! | `check` | findings between two parts of a configuration |
//! | `credentials` | dates and names of certificates |
//! | `diag` | findings: place, key, remedy |
//! | `file_system` | who opens files: this process or another one |
//! | `files` | files that may hang, read by a thread |
//! | `folders` | files of a folder of credentials |
//! | `include` | `include` with globs and limits |
//! | `keyfiles` | files of public and private keys |
//! | `load` | from a folder or files to a configuration |
//! | `patterns` | wildcards in paths |
//! | `proposal` | proposal strings |
//! | `psk` | pre-shared keys as people write them |
//! | `redact` | files as they may be shown to others: without secrets |
//! | `references` | sections that inherit from others |
//! | `request` | values of requests by VICI |
//! | `scrub` | finds secrets in text, in whatever form |
//! | `syntax` | parser of `section { key = value }` |
//! | `tree` | sections, keys and values, each with its place |
//! | `ts` | traffic selectors as people write them |
//! | `tuning` | settings of the data plane |
//! | `value` | readers of values: numbers, times, sizes, addresses |
//! | `meaning/` | from sections and keys to connections |

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod certfiles;
pub mod check;
pub mod credentials;
pub mod diag;
pub mod file_system;
pub mod files;
mod folders;
mod include;
pub mod keyfiles;
mod load;
mod meaning;
pub mod patterns;
mod proposal;
pub mod psk;
pub mod redact;
mod references;
pub mod request;
pub mod scrub;
mod syntax;
pub mod tree;
mod ts;
pub mod tuning;
mod value;
#[cfg(test)]
mod wiped_tests;

pub use load::{Config, load_dir, load_files, parse_text, read_dir};
pub use meaning::{Daemon, LogFormat, MissingTable, connection, daemon, manual, vici_uri};
pub use meaning::{list_child, list_connection};
pub use ts::text as selector_text;

/// The selector that a text names, as [`selector_text`] writes one with an address. `None`: the
/// text is none, or names no address.
pub fn selector(text: &str) -> Option<ironswan_wire::selector::TrafficSelector> {
    match ts::selector(text) {
        Ok(ironswan_keying::TsSpec::Fixed(selector)) => Some(selector),
        Ok(ironswan_keying::TsSpec::Dynamic { .. }) | Err(_) => None,
    }
}

/// A random pre-shared key in the form that `secret =` takes.
pub fn random_psk() -> zeroize::Zeroizing<String> {
    psk::random(&mut ironswan_crypto::rng::System)
}

/// For the test of the grammar: one file as a tree, what it includes and inherits taken in, what
/// was found while reading, the keys in its `secrets`, and what was found there.
#[doc(hidden)]
pub fn tree_of(
    now: files::Clock,
    file: &std::path::Path,
) -> (tree::Section, diag::Diagnostics, Vec<ironswan_keying::SharedKey>, diag::Diagnostics) {
    let (mut read, mut refused) = (diag::Diagnostics::default(), diag::Diagnostics::default());
    let mut reader = include::Reader::new(&files::Files::new(now));
    reader.read(file, &mut read);
    let (root, _) = reader.finish(&mut read);
    let secrets = match root.section("secrets") {
        Some(section) if read.errors() == 0 => meaning::secrets(section, &mut refused),
        _ => Vec::new(),
    };
    (root, read, secrets, refused)
}
