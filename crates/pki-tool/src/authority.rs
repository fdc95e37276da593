//! The CA that signs certificates and lists: its certificate and its key.

use ironswan_crypto::sign::{Legacy, PrivateKey};
use ironswan_pki::Certificate;

use crate::args::Authority as Files;
use crate::dates;
use crate::failure::Failure;
use crate::{files, wanted};

/// A CA.
pub(crate) struct Authority {
    /// File of its certificate, as messages show it.
    pub(crate) name: String,
    /// Its certificate.
    pub(crate) certificate: Certificate,
    /// Its private key.
    pub(crate) key: PrivateKey,
}

impl Authority {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// A file cannot be read, the key is another one than the certificate's, or the certificate is
    /// not that of a CA that may sign now.
    pub(crate) fn open(paths: &Files) -> Result<Self, Failure> {
        let source = files::read(Some(&paths.cacert))?;
        let certificate = wanted::certificate(&source)?;
        if !certificate.is_ca() {
            return Err(Failure::usage(format!(
                "{} is not the certificate of a CA: make one with `ironswan pki self --ca`, or issue it with --ca",
                source.name
            )));
        }
        if certificate.not_after() < dates::now() {
            return Err(Failure::usage(format!(
                "the CA of {} has expired: it was valid until {}; make a new one",
                source.name,
                certificate.not_after()
            )));
        }
        let key_source = files::read(Some(&paths.cakey))?;
        let key = wanted::private_key(&key_source, paths.passphrase_file.as_deref())?;
        let expected = certificate.key(Legacy { short_rsa: true, ..Legacy::default() });
        if expected.as_ref() != Ok(key.public()) {
            return Err(Failure::usage(format!(
                "{} is not the key of {}: name the key that the certificate of the CA was made with",
                key_source.name, source.name
            )));
        }
        Ok(Self { name: source.name, certificate, key })
    }

    /// The identifier of its key, as its own certificate has it.
    pub(crate) fn key_id(&self) -> Vec<u8> {
        let own = self.certificate.subject_key_id().map(<[u8]>::to_vec);
        own.unwrap_or_else(|| self.key.public().id().to_vec())
    }
}
