//! Certificates, lists and responses for tests: made and signed here, with keys of Ed25519.

use ironswan_crypto::sign::{Legacy, PrivateKey, Scheme};
use ironswan_wire::name_text;
use ironswan_wire::secret::Secret;

use crate::certificate::Certificate;
use crate::der::{BIT_STRING, BOOLEAN, INTEGER, OCTET_STRING, OID, SEQUENCE, UTC_TIME, emit, explicit};
use crate::time::Time;

/// A time at which everything that is made here is valid: 2020-01-01.
pub(crate) const NOW: Time = Time(1_577_836_800);

/// The key of this number.
pub(crate) fn key(number: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![number; 32])).expect("a seed of its length")
}

/// A name in DER.
pub(crate) fn name(text: &str) -> Vec<u8> {
    name_text::parse(text).expect("a name")
}

/// Signs bytes, and puts them and the signature together as certificates, lists and responses do.
pub(crate) fn signed(body: &[u8], by: &PrivateKey, more: &[u8]) -> Vec<u8> {
    signed_by(body, by, Scheme::Ed25519, more)
}

fn signed_by(body: &[u8], by: &PrivateKey, scheme: Scheme, more: &[u8]) -> Vec<u8> {
    let weak = Legacy { sha1: true, short_rsa: true };
    let signature = by.sign(scheme, weak, body).expect("the key fits");
    let algorithm = scheme.to_der().expect("it has one");
    emit(SEQUENCE, &[body, &algorithm, &emit(BIT_STRING, &[&[0], &signature]), more])
}

/// One extension.
pub(crate) fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { emit(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    emit(SEQUENCE, &[&emit(OID, &[oid]), &critical, &emit(OCTET_STRING, &[value])])
}

/// A certificate to make.
#[derive(Clone)]
pub(crate) struct Make {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) serial: u8,
    /// Key of the subject, and of the issuer, who signs.
    pub(crate) keys: (u8, u8),
    pub(crate) validity: (&'static str, &'static str),
    pub(crate) extensions: Vec<Vec<u8>>,
}

impl Make {
    /// A CA that has issued its own certificate.
    pub(crate) fn root(subject: &str, key: u8) -> Self {
        Self::ca(subject, key, subject, key)
    }

    /// A CA below another one.
    pub(crate) fn ca(subject: &str, key: u8, issuer: &str, by: u8) -> Self {
        let constraints = extension(&[0x55, 0x1d, 19], true, &emit(SEQUENCE, &[&emit(BOOLEAN, &[&[0xff]])]));
        Self { extensions: vec![constraints], ..Self::own(subject, key, issuer, by) }
    }

    /// The certificate of a peer.
    pub(crate) fn own(subject: &str, key: u8, issuer: &str, by: u8) -> Self {
        Self {
            subject: subject.into(),
            issuer: issuer.into(),
            serial: key.max(1),
            keys: (key, by),
            validity: ("190101000000Z", "290101000000Z"),
            extensions: Vec::new(),
        }
    }

    /// Adds an extension of RFC 5280.
    pub(crate) fn with(mut self, number: u8, critical: bool, value: &[u8]) -> Self {
        self.extensions.push(extension(&[0x55, 0x1d, number], critical, value));
        self
    }

    /// Adds `subjectAltName`, of names in DER.
    pub(crate) fn alt_names(self, names: &[Vec<u8>]) -> Self {
        self.with(17, false, &emit(SEQUENCE, &[&names.concat()]))
    }

    /// The certificate in DER.
    pub(crate) fn der(&self) -> Vec<u8> {
        self.der_of(key(self.keys.0).public().spki(), &key(self.keys.1), Scheme::Ed25519)
    }

    /// The certificate of another key, or by another one.
    pub(crate) fn der_of(&self, spki: &[u8], by: &PrivateKey, scheme: Scheme) -> Vec<u8> {
        let time = |text: &str| emit(UTC_TIME, &[text.as_bytes()]);
        let extensions = match self.extensions.concat() {
            list if list.is_empty() => Vec::new(),
            list => emit(explicit(3), &[&emit(SEQUENCE, &[&list])]),
        };
        let body = emit(
            SEQUENCE,
            &[
                &emit(explicit(0), &[&emit(INTEGER, &[&[2]])]),
                &emit(INTEGER, &[&[self.serial]]),
                &scheme.to_der().expect("it has one"),
                &name(&self.issuer),
                &emit(SEQUENCE, &[&time(self.validity.0), &time(self.validity.1)]),
                &name(&self.subject),
                spki,
                &extensions,
            ],
        );
        signed_by(&body, by, scheme, &[])
    }

    /// The certificate.
    pub(crate) fn make(&self) -> Certificate {
        Certificate::from_der(&self.der()).expect("a certificate")
    }
}
