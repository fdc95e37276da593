//! Files of certificates, revocation lists and PKCS#12, as swanctl has them: those that `certs` and
//! `cacerts` name, relative to the folders `x509` and `x509ca`, and every file of these folders, of
//! `x509crl` and of `pkcs12`.
//!
//! ```text
//! certs = g1.pem ─▶ x509/g1.pem ──┐
//! cacerts = ca.pem ▶ x509ca/ca.pem┼─▶ Named, by folder and name ─▶ connections
//! VICI: bytes of a certificate ───┘
//! x509/*, x509ca/*, x509crl/*, pkcs12/*, authorities ─▶ Loaded
//! ```
//! Not here: the bytes of a file (`ironswan_pki::key_file`), and keys in clear (`keyfiles`).

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use ironswan_crypto::sign::Legacy;
use ironswan_keying::PrivateKey;
use ironswan_keying::diagnosis::Configuration;
use ironswan_pki::fetch::Places;
use ironswan_pki::key_file::{self, FileFault};
use ironswan_pki::{Certificate, Crl};

use super::diag::{Diagnostics, Severity};
use super::files::Files;
use super::folders::{MAX_FILES, Refused, each_file, exposed, read, shown};
use super::keyfiles::{Passphrase, PublicKeys, passphrase};
use super::tree::{Origin, Section, Value};

/// Folder of certificates of ends.
pub const ENDS: &str = "x509";
/// Folder of certificates of CAs.
pub const AUTHORITIES: &str = "x509ca";
/// Longest file of a certificate, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Longest file of a revocation list, in bytes.
const MAX_LIST_FILE: u64 = 10 << 20;

/// Public keys and certificates by the names under which a configuration speaks of them: a file, or
/// for VICI a number.
#[derive(Default, Debug)]
pub struct Named {
    /// Raw public keys.
    pub public: PublicKeys,
    certificates: HashMap<(&'static str, String), Result<Vec<Certificate>, Configuration>>,
}

impl Named {
    /// Takes the bytes of a certificate, in PEM or DER, and returns a name for it. Bytes that are
    /// no certificate are reported where the name is used.
    pub(super) fn number(&mut self, folder: &'static str, bytes: &[u8]) -> String {
        let name = format!("certificate {}", self.certificates.len() + 1);
        let found = key_file::certificates(bytes).map_err(|why| unusable(Some(shown(&name)), why));
        self.certificates.insert((folder, name.clone()), found);
        name
    }

    /// Certificates whose files are named by an absolute path: those of no folder.
    pub(super) fn elsewhere(&self) -> impl Iterator<Item = (Origin, Dated)> {
        let files = self.certificates.iter().filter(|((_, name), _)| Path::new(name).is_absolute());
        files.flat_map(|((_, name), found)| {
            let found = found.iter().flatten();
            found.map(|c| (place(Path::new(name)), Dated::Certificate(c.clone())))
        })
    }

    /// The certificate of this name in a folder: the first one of its file.
    pub(super) fn certificate(&self, folder: &'static str, name: &str) -> Result<Certificate, Configuration> {
        let none = || unusable(Some(shown(name)), FileFault::Pem);
        let all =
            self.certificates.get(&(folder, name.to_owned())).cloned().unwrap_or_else(|| Err(none()))?;
        all.into_iter().next().ok_or_else(none)
    }

    /// Reads the files that all connections name, and notes when the newest of them was written.
    pub(super) fn of_files(
        fs: &Files,
        folder: &Path,
        root: &Section,
        written: &mut Option<SystemTime>,
        diags: &mut Diagnostics,
    ) -> Self {
        let public = PublicKeys::of_files(fs, folder, root, written, diags);
        let mut named = Self { public, certificates: HashMap::new() };
        let Some(conns) = root.section("connections") else { return named };
        let sides = conns.sections().flat_map(|(_, conn)| conn.sections());
        for (_, side) in sides.filter(|(name, _)| name.starts_with("local") || name.starts_with("remote")) {
            for (of, value) in certificates_of(side) {
                for name in value.items() {
                    if named.certificates.contains_key(&(of, name.to_owned())) {
                        continue;
                    }
                    if named.certificates.len() >= MAX_FILES {
                        let of = "files of certificates";
                        diags.error(
                            &value.origin,
                            "certs",
                            Configuration::TooMany { max: MAX_FILES, of, write: "" },
                        );
                        return named;
                    }
                    let found = of_file(fs, &folder.join(of).join(name), written);
                    named.certificates.insert((of, name.to_owned()), found);
                }
            }
        }
        named
    }
}

/// The values of one side that name files of certificates, each with the folder of the files:
/// `certs`, `cacerts`, and `file` of the sections `cert<suffix>` and `cacert<suffix>`.
fn certificates_of(side: &Section) -> impl Iterator<Item = (&'static str, &Value)> {
    let lists = [("certs", ENDS), ("cacerts", AUTHORITIES)];
    let lists = lists.into_iter().filter_map(|(key, folder)| Some((folder, side.value(key)?)));
    lists.chain(side.sections().filter_map(|(name, of)| Some((folder_of(name)?, of.value("file")?))))
}

/// Folder of the file that a section `cert<suffix>` or `cacert<suffix>` of a side names.
pub(super) fn folder_of(section: &str) -> Option<&'static str> {
    let starts = |with| section.starts_with(with);
    (starts("cacert").then_some(AUTHORITIES)).or(starts("cert").then_some(ENDS))
}

/// The certificates of one file.
fn of_file(
    fs: &Files,
    path: &Path,
    written: &mut Option<SystemTime>,
) -> Result<Vec<Certificate>, Configuration> {
    let (bytes, _) = read(fs, path, MAX_FILE, written)
        .map_err(|why| Configuration::Unreadable { path: Some(shown(path)), why })?;
    key_file::certificates(&bytes).map_err(|why| unusable(Some(shown(path)), why))
}

/// A file of credentials that cannot be used. `None`: the place of the finding is the file.
fn unusable(file: Option<String>, why: FileFault) -> Configuration {
    Configuration::BadCredential { file, why }
}

/// Something with dates, as a file holds it.
#[derive(Clone, Debug)]
pub(super) enum Dated {
    /// A certificate.
    Certificate(Certificate),
    /// A revocation list.
    List(Crl),
}

fn place(path: &Path) -> Origin {
    Origin::source(&shown(path))
}

/// All that the folders of credentials hold.
#[derive(Default)]
pub(super) struct Credentials {
    /// Our private keys.
    pub(super) private: Vec<PrivateKey>,
    /// Certificates, each with true for those of CAs that are trusted.
    pub(super) certificates: Vec<(Certificate, bool)>,
    /// Revocation lists.
    pub(super) lists: Vec<Crl>,
    /// Places for the status of the certificates that a CA has issued.
    pub(super) places: Vec<(Certificate, Places)>,
    /// The files of certificates and lists.
    pub(super) files: Vec<(Origin, Dated)>,
    /// A file of a private key could not be read, or holds nothing of use.
    pub(super) lost: bool,
}

impl Credentials {
    /// Reads the folders, and the CAs of the sections `authorities`. Notes when the newest file was
    /// written. A file of which nothing can be used is an error: perhaps it is that of a CA.
    pub(super) fn of_folders(
        fs: &Files,
        folder: &Path,
        root: &Section,
        passphrases: &[Passphrase],
        written: &mut Option<SystemTime>,
        diags: &mut Diagnostics,
    ) -> Self {
        let private = super::keyfiles::private_keys(fs, folder, passphrases, written, diags);
        let mut all = Self { private: private.keys, lost: private.lost, ..Self::default() };
        for (name, trusted) in [(ENDS, false), (AUTHORITIES, true)] {
            each_file(fs, &folder.join(name), MAX_FILE, written, diags, |path, bytes, _| {
                let found = key_file::certificates(bytes).map_err(refused)?;
                all.files.extend(found.iter().map(|c| (place(path), Dated::Certificate(c.clone()))));
                all.certificates.extend(found.into_iter().map(|certificate| (certificate, trusted)));
                Ok(())
            });
        }
        each_file(fs, &folder.join("x509crl"), MAX_LIST_FILE, written, diags, |path, bytes, _| {
            let list = key_file::list(bytes).map_err(refused)?;
            all.files.push((place(path), Dated::List(list.clone())));
            all.lists.push(list);
            Ok(())
        });
        let (mut keys, mut lost) = (Vec::new(), false);
        each_file(fs, &folder.join("pkcs12"), MAX_FILE, written, diags, |path, bytes, mode| {
            lost = true;
            exposed(path, mode)?;
            let secret =
                passphrase(passphrases, "pkcs12", path).ok_or_else(|| refused(FileFault::Encrypted))?;
            let legacy = Legacy { sha1: false, short_rsa: true };
            let contents = key_file::pkcs12(bytes, secret, legacy).map_err(refused)?;
            keys.extend(contents.key);
            let found = contents.certificates.iter();
            all.files.extend(found.map(|c| (place(path), Dated::Certificate(c.clone()))));
            all.certificates.extend(contents.certificates.into_iter().map(|certificate| {
                let trusted = certificate.is_ca();
                (certificate, trusted)
            }));
            lost = false;
            Ok(())
        });
        all.private.extend(keys);
        all.lost |= lost;
        all.authorities(fs, folder, root, written, diags);
        all
    }

    /// Reads the certificates that the sections `authorities` name.
    fn authorities(
        &mut self,
        fs: &Files,
        folder: &Path,
        root: &Section,
        written: &mut Option<SystemTime>,
        diags: &mut Diagnostics,
    ) {
        let Some(authorities) = root.section("authorities") else { return };
        for (name, authority) in authorities.sections() {
            for key in ["cacert", "file"] {
                let Some(value) = authority.value(key).filter(|value| !value.is_empty()) else { continue };
                match of_file(fs, &folder.join(AUTHORITIES).join(value.as_text().trim()), written) {
                    Ok(found) => {
                        let places = super::meaning::places(authority);
                        self.places.extend(found.first().map(|ca| (ca.clone(), places)));
                        self.certificates.extend(found.into_iter().map(|c| (c, true)));
                    }
                    Err(why) => diags.error(&value.origin, &format!("authorities.{name}.{key}"), why),
                }
            }
        }
    }
}

/// A file of a folder that cannot be used. An encrypted one may be meant for another program.
fn refused(why: FileFault) -> Refused {
    let severity = if why == FileFault::Encrypted { Severity::Warning } else { Severity::Error };
    Refused(severity, unusable(None, why))
}

#[cfg(test)]
#[path = "certfiles_tests.rs"]
mod tests;
