//! Files of keys, as swanctl has them: public keys that `pubkeys` names, relative to the folder
//! `pubkey`, and our private keys, every file of the folders `private`, `rsa`,
//! `ecdsa` and `pkcs8`.
//!
//! ```text
//! pubkeys = g2.pem ─▶ pubkey/g2.pem ─┐                      ┌─▶ PublicKeys, by the written name
//! VICI: bytes of the key ────────────┴─ PEM or DER ─ pki ───┴─▶ PrivateKey
//! private/*, rsa/*, ecdsa/*, pkcs8/* ┘
//! ```
//! A file is read once, however many connections name it. Not here: what the bytes of a key mean
//! (`ironswan_pki::key_file`, `ironswan_crypto::sign`).

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use ironswan_crypto::sign::{KeyFault, Legacy};
use ironswan_keying::diagnosis::Configuration;
use ironswan_keying::{PrivateKey, PublicKey};
use ironswan_pki::key_file;
use ironswan_wire::secret::Secret;

use super::diag::{Diagnostics, Severity};
use super::files::Files;
use super::folders::{MAX_FILES, Refused, each_file, exposed, read, shown};
use super::tree::Section;

/// A file of one key is at most this long, in bytes. The longest key of RSA takes a fifth of it.
const MAX_KEY_FILE: u64 = 64 << 10;
/// Folders of private keys, below that of the configuration.
const PRIVATE_FOLDERS: [&str; 4] = ["private", "rsa", "ecdsa", "pkcs8"];

/// Public keys by the names under which a configuration speaks of them: a file, or for VICI a
/// number.
#[derive(Default, Debug)]
pub struct PublicKeys(HashMap<String, Result<PublicKey, Configuration>>);

impl PublicKeys {
    /// Takes the bytes of a key, in PEM or DER, and returns a name for it. Bytes that are no key
    /// are reported where the name is used.
    pub fn number(&mut self, bytes: &[u8]) -> String {
        let name = format!("public key {}", self.0.len() + 1);
        self.0.insert(name.clone(), public_key(bytes).map_err(|why| unusable(&shown(&name), why)));
        name
    }

    /// The key of this name.
    pub(super) fn find(&self, name: &str) -> Result<PublicKey, Configuration> {
        self.0.get(name).cloned().unwrap_or_else(|| Err(unusable(&shown(name), KeyFault::Malformed)))
    }

    /// Reads the files that `pubkeys` of all connections name, and notes when the newest of them
    /// was written.
    pub(super) fn of_files(
        fs: &Files,
        folder: &Path,
        root: &Section,
        written: &mut Option<SystemTime>,
        diags: &mut Diagnostics,
    ) -> Self {
        let mut keys = Self::default();
        let Some(conns) = root.section("connections") else { return keys };
        let sides = conns.sections().flat_map(|(_, conn)| conn.sections());
        let sides = sides.filter(|(name, _)| name.starts_with("local") || name.starts_with("remote"));
        for value in sides.filter_map(|(_, side)| side.value("pubkeys")) {
            for name in value.items() {
                if keys.0.contains_key(name) {
                    continue;
                }
                if keys.0.len() >= MAX_FILES {
                    let many =
                        Configuration::TooMany { max: MAX_FILES, of: "files of public keys", write: "" };
                    diags.error(&value.origin, "pubkeys", many);
                    return keys;
                }
                // An absolute path stands for itself.
                let path = folder.join("pubkey").join(name);
                let key = read(fs, &path, MAX_KEY_FILE, written)
                    .map_err(|why| Configuration::Unreadable { path: Some(shown(&path)), why })
                    .and_then(|(bytes, _)| public_key(&bytes).map_err(|why| unusable(&shown(&path), why)));
                keys.0.insert(name.to_owned(), key);
            }
        }
        keys
    }
}

/// Private keys of a folder.
#[derive(Default)]
pub(super) struct Private {
    /// Keys that can be used.
    pub(super) keys: Vec<PrivateKey>,
    /// A file could not be read, or holds nothing of use: perhaps the key of a connection.
    pub(super) lost: bool,
}

/// Passphrase of a file, as `secrets` has it.
pub(super) struct Passphrase {
    /// Kind of the section: the folder in which the file lies.
    pub(super) kind: String,
    /// Name of the file in the folder.
    pub(super) file: String,
    /// The passphrase.
    pub(super) secret: Secret,
}

/// The passphrase for a file of this folder.
pub(super) fn passphrase<'a>(all: &'a [Passphrase], folder: &str, path: &Path) -> Option<&'a Secret> {
    let name = path.file_name()?.to_str()?;
    all.iter().find(|of| of.kind == folder && of.file == name).map(|of| &of.secret)
}

/// Reads our private keys, and notes when the newest of them was written. Keys of other algorithms,
/// and encrypted ones without a passphrase, are left out with a warning: strongSwan's folders are
/// full of them.
pub(super) fn private_keys(
    fs: &Files,
    folder: &Path,
    passphrases: &[Passphrase],
    written: &mut Option<SystemTime>,
    diags: &mut Diagnostics,
) -> Private {
    let mut private = Private::default();
    for kind in PRIVATE_FOLDERS {
        let whole = each_file(fs, &folder.join(kind), MAX_KEY_FILE, written, diags, |path, bytes, mode| {
            private.keys.push(one_private(path, bytes, mode, passphrase(passphrases, kind, path))?);
            Ok(())
        });
        private.lost |= !whole;
    }
    private
}

/// The private key of one file. The place of its finding is the path.
fn one_private(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    passphrase: Option<&Secret>,
) -> Result<PrivateKey, Refused> {
    let key = key_file::private_key(bytes, passphrase, LEGACY).map_err(|why| {
        if passphrase.is_some() && !matches!(why, key_file::FileFault::Key(_)) {
            return Refused(Severity::Error, Configuration::BadCredential { file: None, why });
        }
        let why = of_key(why);
        let harmless = matches!(why, KeyFault::Algorithm(_) | KeyFault::Curve | KeyFault::Encrypted);
        let severity = if harmless { Severity::Warning } else { Severity::Error };
        Refused(severity, Configuration::BadKey { file: None, why, private: true })
    })?;
    exposed(path, mode)?;
    Ok(key)
}

/// A public key that cannot be used. The place of the finding is the key `pubkeys`.
fn unusable(file: &str, why: KeyFault) -> Configuration {
    Configuration::BadKey { file: Some(file.to_owned()), why, private: false }
}

/// Keys of all lengths that `auth` may name are read. Connections look at the length.
const LEGACY: Legacy = Legacy { sha1: false, short_rsa: true };

/// Reads a public key in PEM or DER: `SubjectPublicKeyInfo`, or PKCS#1 for RSA.
///
/// # Errors
/// The bytes hold something else, or a key that nobody should use.
pub fn public_key(bytes: &[u8]) -> Result<PublicKey, KeyFault> {
    key_file::public_key(bytes, LEGACY).map_err(of_key)
}

/// Reads a private key in PEM or DER: PKCS#8, PKCS#1 or SEC 1.
///
/// # Errors
/// The bytes hold something else, or an encrypted key, or one that nobody should use.
pub fn private_key(bytes: &[u8]) -> Result<PrivateKey, KeyFault> {
    key_file::private_key(bytes, None, LEGACY).map_err(of_key)
}

/// The fault of a file of a key.
fn of_key(fault: key_file::FileFault) -> KeyFault {
    match fault {
        key_file::FileFault::Key(fault) => fault,
        key_file::FileFault::OldEncryption
        | key_file::FileFault::Encrypted
        | key_file::FileFault::Passphrase
        | key_file::FileFault::Rounds { .. } => KeyFault::Encrypted,
        _ => KeyFault::Malformed,
    }
}

#[cfg(test)]
#[path = "keyfiles_tests.rs"]
mod tests;
