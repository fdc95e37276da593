//! Files that a command needs to be of one kind: private keys, certificates, revocation lists. When
//! a file is of another kind, the message says which.

use std::path::Path;

use ironswan_crypto::sign::{Legacy, PrivateKey};
use ironswan_pki::key_file::{self, FileFault};
use ironswan_pki::{Certificate, Crl};

use crate::failure::Failure;
use crate::files::Source;
use crate::{kind, passphrase};

/// The private key in a file. Asks for its passphrase when there is one.
pub(crate) fn private_key(source: &Source, passphrase_file: Option<&Path>) -> Result<PrivateKey, Failure> {
    let legacy = Legacy { short_rsa: true, ..Legacy::default() };
    let key = match key_file::private_key(&source.bytes, None, legacy) {
        Err(FileFault::Encrypted) => {
            let passphrase = passphrase::known(passphrase_file, &source.name)?;
            key_file::private_key(&source.bytes, Some(&passphrase), legacy)
        }
        other => other,
    };
    key.map_err(|fault| other(source, "a private key", &fault))
}

/// The certificates in a file: one at least.
pub(crate) fn certificates(source: &Source) -> Result<Vec<Certificate>, Failure> {
    match key_file::certificates(&source.bytes) {
        Ok(list) if list.is_empty() => Err(Failure::usage(format!("{} holds no certificate", source.name))),
        other => other.map_err(|fault| self::other(source, "a certificate", &fault)),
    }
}

/// The first certificate in a file.
pub(crate) fn certificate(source: &Source) -> Result<Certificate, Failure> {
    certificates(source).map(|mut list| list.swap_remove(0))
}

/// The revocation list in a file.
pub(crate) fn list(source: &Source) -> Result<Crl, Failure> {
    key_file::list(&source.bytes).map_err(|fault| other(source, "a revocation list", &fault))
}

/// The message about a file that is not what is wanted.
fn other(source: &Source, wanted: &str, fault: &FileFault) -> Failure {
    let items = kind::items(source).unwrap_or_default();
    match items.first().map(kind::Item::name) {
        Some(held) if held != wanted => {
            Failure::usage(format!("{} holds {held}: name a file that holds {wanted}", source.name))
        }
        _ => source.unusable(fault),
    }
}
