//! `req`: certificate requests (PKCS#10, RFC 2986), and requests that are read.

use std::sync::Arc;

use der::asn1::{Any, ObjectIdentifier, SetOfVec};
use der::{Decode, Encode, oid::AssociatedOid};
use ironswan_crypto::sign::{KeyFault, Legacy, PublicKey, SignatureFault};
use ironswan_pki::Name;
use x509_cert::attr::Attribute;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use crate::args::{Req, Subject};
use crate::failure::Failure;
use crate::files::{self, Readers};
use crate::signed::SHOW_ALL;
use crate::signed::{self, encoding};
use crate::{extensions, names, wanted, words};

/// Longest request in bytes.
const MAX_REQUEST: usize = 64 << 10;

/// Carries out `req`.
pub(crate) fn request(a: &Req) -> Result<(), Failure> {
    let source = files::read(a.input.path.as_deref())?;
    let key = wanted::private_key(&source, a.input.passphrase_file.as_deref())?;
    let subject = names::distinguished(a.subject.dn.as_deref().unwrap_or_default())?;
    let (names, purposes) = names_and_purposes(&a.subject)?;
    if subject.value().is_empty() && names.is_empty() {
        return Err(Failure::usage("nobody is named: give the subject with --dn, or its names with --san"));
    }
    let wanted = extensions::of_subject(&names, &purposes, subject.value().is_empty())?;
    let mut attributes = SetOfVec::new();
    if !wanted.is_empty() {
        let make = || {
            let value = Any::encode_from(&ExtensionReq(wanted))?;
            attributes.insert(Attribute { oid: ExtensionReq::OID, values: SetOfVec::try_from(vec![value])? })
        };
        make().map_err(encoding)?;
    }
    let scheme = signed::scheme(key.public(), &a.signing)?;
    let info = || {
        Ok(CertReqInfo {
            version: Version::V1,
            subject: subject.decode_as()?,
            public_key: SubjectPublicKeyInfoOwned::from_der(key.public().spki())?,
            attributes,
        })
    };
    let der = signed::sign(&info().map_err(encoding)?, &key, scheme)?;
    files::write(&a.output, "CERTIFICATE REQUEST", &der, Readers::All)?;
    let request = Request::from_der(&der).map_err(|e| Failure::internal(&format!("the request ({e})")))?;
    let subject = words::subject(&request.subject());
    files::made(
        a.output.out.as_deref(),
        &format!("request of {subject}, for a key of {}", key.public().kind()),
    )
}

/// Names and purposes of the command line.
pub(crate) fn names_and_purposes(
    subject: &Subject,
) -> Result<(Vec<GeneralName>, Vec<ObjectIdentifier>), Failure> {
    let names = subject.san.iter().map(|text| names::general(text)).collect::<Result<_, _>>()?;
    for name in subject.san.iter().filter(|name| name.contains('*')) {
        files::complain(&format!(
            "ironswan pki: warning: --san {name:?}: a `*` in a certificate stands for nothing else in IKE; write each name"
        ));
    }
    let purposes = subject.flag.iter().map(|text| extensions::purpose(text)).collect::<Result<_, _>>()?;
    Ok((names, purposes))
}

/// A request that was read.
pub(crate) struct Request {
    der: Arc<[u8]>,
    subject: Vec<u8>,
    key_info: Vec<u8>,
    extensions: Vec<Extension>,
}

impl Request {
    /// Reads a request in DER. Its signature is not verified.
    ///
    /// # Errors
    /// The bytes are no request.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, String> {
        if der.len() > MAX_REQUEST {
            return Err(format!("it has {} bytes, and {MAX_REQUEST} is the most", der.len()));
        }
        let request = CertReq::from_der(der).map_err(|e| e.to_string())?;
        let subject = request.info.subject.to_der().map_err(|e| e.to_string())?;
        if Name::from_der(&subject).is_none() {
            return Err("its subject is malformed".into());
        }
        let key_info = request.info.public_key.to_der().map_err(|e| e.to_string())?;
        let mut extensions = Vec::new();
        for attribute in request.info.attributes.iter().filter(|a| a.oid == ExtensionReq::OID) {
            for value in attribute.values.iter() {
                let list: ExtensionReq = value.decode_as().map_err(|e| format!("its extensions: {e}"))?;
                extensions.extend(list.0);
            }
        }
        Ok(Self { der: der.into(), subject, key_info, extensions })
    }

    /// Subject.
    pub(crate) fn subject(&self) -> Name<'_> {
        // The name was checked when the request was read.
        Name::from_der(&self.subject).unwrap_or_else(|| Name::from_der(&[0x30, 0]).expect("the empty name"))
    }

    /// Public key of the subject.
    pub(crate) fn key(&self, legacy: Legacy) -> Result<PublicKey, KeyFault> {
        PublicKey::from_spki(&self.key_info, legacy)
    }

    /// Extensions that the request asks for.
    pub(crate) fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// Names of `subjectAltName`.
    pub(crate) fn names(&self) -> Option<Vec<GeneralName>> {
        self.asked::<SubjectAltName>().map(|names| names.0)
    }

    /// Purposes of `extKeyUsage`.
    pub(crate) fn purposes(&self) -> Option<Vec<ObjectIdentifier>> {
        self.asked::<ExtendedKeyUsage>().map(|purposes| purposes.0)
    }

    fn asked<T: AssociatedOid + for<'a> Decode<'a>>(&self) -> Option<T> {
        let extension = self.extensions.iter().find(|extension| extension.extn_id == T::OID)?;
        T::from_der(extension.extn_value.as_bytes()).ok()
    }

    /// The request in DER.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Verifies that the owner of the key has signed the request.
    ///
    /// # Errors
    /// The signature is not by the key of the request.
    pub(crate) fn verify(&self) -> Result<(), SignatureFault> {
        let key = self.key(SHOW_ALL).map_err(|_| SignatureFault::Scheme)?;
        signed::verify(&self.der, &key, SHOW_ALL)
    }
}
