//! Seeds on disk, and how inputs are written for people.

use std::path::PathBuf;
use std::{fs, io};

use crate::Target;

/// Where the seeds of a target are.
pub fn seeds_dir(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target.seeds)
}

/// The seeds of a target, in the order of their names, so that a run can be repeated.
pub fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<_> =
        fs::read_dir(seeds_dir(target))?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Reads what [`to_hex`] wrote.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}
