//! `pkcs12`: a private key and its certificates in one file under a passphrase (RFC 7292), as
//! Windows, Android and iOS take them.

use std::path::Path;

use ironswan_crypto::container;
use ironswan_pki::Certificate;

use crate::args::Pkcs12;
use crate::failure::Failure;
use crate::files::{self, Readers};
use crate::signed::SHOW_ALL;
use crate::{passphrase, wanted};

/// Carries out `pkcs12`.
pub(crate) fn pkcs12(a: &Pkcs12) -> Result<(), Failure> {
    let source = files::read(Some(&a.key))?;
    let key = wanted::private_key(&source, a.passphrase_file.as_deref())?;
    let mut own = certificates(&a.cert)?;
    let certificate = own.remove(0);
    if certificate.key(SHOW_ALL).as_ref() != Ok(key.public()) {
        return Err(Failure::usage(format!(
            "{} is not the key of {}: name the key that the certificate was issued for",
            source.name,
            a.cert.display()
        )));
    }
    // Certificates behind the own one in its file are those of CAs between.
    for path in &a.cacert {
        own.extend(certificates(path)?);
    }
    let name = a.out.as_ref().map_or("the file".into(), |path| path.display().to_string());
    let passphrase = passphrase::new(a.export_passphrase_file.as_deref(), &name, "--export-passphrase-file")?;
    let pkcs8 = key.to_pkcs8().ok_or_else(|| Failure::internal("writing the key"))?;
    let others: Vec<&[u8]> = own.iter().map(Certificate::der).collect();
    let sealed = container::seal_pkcs12(&pkcs8, certificate.der(), &others, &passphrase);
    let sealed = sealed.ok_or_else(|| {
        Failure::usage("no PKCS#12 was made: use a passphrase of letters, digits and signs in UTF-8")
    })?;
    files::write_bytes(a.out.as_deref(), a.force, &sealed, Readers::Owner)?;
    files::made(
        a.out.as_deref(),
        &format!(
            "PKCS#12 with the key and certificate of {}, certificates of CAs: {}",
            certificate.subject(),
            others.len()
        ),
    )
}

/// The certificates of a file: one at least.
fn certificates(path: &Path) -> Result<Vec<Certificate>, Failure> {
    wanted::certificates(&files::read(Some(path))?)
}
