//! Files of a folder of credentials, each of which is read, or reported with its path.
//!
//! Not here: the bytes of a file (`keyfiles`, `certfiles`), and time limits (`files`).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use ironswan_keying::diagnosis::{Configuration, FileFault};
use zeroize::Zeroizing;

use super::diag::{Diagnostics, Severity};
use super::files::{Files, system};
use super::tree::Origin;

/// Limits how many files of one kind a configuration names, and how many a folder holds.
pub(super) const MAX_FILES: usize = 20_000;

/// Reason why a file of a folder is not taken. Its place is the file.
pub(super) struct Refused(pub(super) Severity, pub(super) Configuration);

/// Gives each file of a folder, its bytes and permission bits to `take`, and reports files that are
/// refused. Files whose names begin with a dot are left out. Notes when the newest file was
/// written. False when there was an error.
pub(super) fn each_file(
    fs: &Files,
    folder: &Path,
    max: u64,
    written: &mut Option<SystemTime>,
    diags: &mut Diagnostics,
    mut take: impl FnMut(&Path, &[u8], u32) -> Result<(), Refused>,
) -> bool {
    let at = Origin::source(&shown(folder));
    let mut paths = match fs.list(folder) {
        Ok(list) => list.unwrap_or_default(),
        Err(e) => {
            diags.error(&at, "", Configuration::Unreadable { path: None, why: system(e) });
            return false;
        }
    };
    paths.retain(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")));
    if paths.len() > MAX_FILES {
        diags.error(&at, "", Configuration::TooMany { max: MAX_FILES, of: "files", write: "" });
        return false;
    }
    paths.sort();
    let mut whole = true;
    for path in paths {
        let taken = read(fs, &path, max, written)
            .map_err(|why| {
                let harmless = why == FileFault::NotRegular;
                let severity = if harmless { Severity::Warning } else { Severity::Error };
                Refused(severity, Configuration::Unreadable { path: None, why })
            })
            .and_then(|(bytes, mode)| take(&path, &bytes, mode));
        if let Err(Refused(severity, why)) = taken {
            whole &= severity != Severity::Error;
            diags.push(severity, Some(&Origin::source(&shown(&path))), "", why);
        }
    }
    whole
}

/// Bytes of a file of at most `max` bytes, and its permission bits.
pub(super) fn read(
    fs: &Files,
    path: &Path,
    max: u64,
    written: &mut Option<SystemTime>,
) -> Result<(Zeroizing<Vec<u8>>, u32), FileFault> {
    let (bytes, meta) = fs.read(path, max)?;
    *written = (*written).max(meta.modified().ok());
    Ok((bytes, meta.permissions().mode()))
}

/// Refuses a file of secrets that other users may read.
pub(super) fn exposed(path: &Path, mode: u32) -> Result<(), Refused> {
    match mode & 0o077 {
        0 => Ok(()),
        _ => {
            let open = Configuration::SecretsExposed { file: shown(path), mode: mode & 0o777 };
            Err(Refused(Severity::Error, open))
        }
    }
}

/// A path as messages name it: on one line, whatever its bytes are.
pub(super) fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().escape_debug().to_string()
}
