//! Certificates of every shape, good and bad, made and signed here; and the chain in which each
//! case changes something.
//!
//! ```text
//! trusted[0]  O=Test, CN=Root      key 1
//! sent[HIGH]  O=Test, CN=High      key 2
//! sent[LOW]   O=Test, CN=Low       key 3
//! own         O=Test, CN=gw        key 4
//! ```

use std::sync::OnceLock;

use ironswan_crypto::sign::{Curve, KeyKind, Legacy, PrivateKey, Scheme};
use ironswan_pki::rules::Policies;
use ironswan_wire::der::{
    BIT_STRING, BOOLEAN, GENERALIZED_TIME, INTEGER, OCTET_STRING, OID, SEQUENCE, UTC_TIME, emit, explicit,
    implicit,
};
use ironswan_wire::name_text;
use ironswan_wire::secret::Secret;

use crate::judges::{Question, Usage};

/// The time of all cases: 2020-01-01.
pub const NOW: i64 = 1_577_836_800;

/// Place of the lower CA in `Chain::sent`.
pub const LOW: usize = 0;
/// Place of the upper CA in `Chain::sent`.
pub const HIGH: usize = 1;

/// Bits of keyUsage: digitalSignature, nonRepudiation, keyEncipherment, keyCertSign, cRLSign.
pub const SIGN: u8 = 0x80;
pub const NON_REPUDIATION: u8 = 0x40;
pub const ENCIPHER: u8 = 0x20;
pub const CERT_SIGN: u8 = 0x04;
pub const CRL_SIGN: u8 = 0x02;

/// The key of Ed25519 of this number.
pub fn key(number: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![number; 32])).expect("a seed of its length")
}

/// One key of each other kind, made once: P-256, P-384, P-521, RSA of 2,048 bits.
pub fn other_key(kind: KeyKind) -> PrivateKey {
    static KEYS: [OnceLock<PrivateKey>; 4] = [const { OnceLock::new() }; 4];
    let place = match kind {
        KeyKind::Ecdsa(Curve::P256) => 0,
        KeyKind::Ecdsa(Curve::P384) => 1,
        KeyKind::Ecdsa(Curve::P521) => 2,
        _ => 3,
    };
    KEYS[place].get_or_init(|| PrivateKey::generate(kind).expect("a kind that is built")).clone()
}

/// A distinguished name in DER.
pub fn name(text: &str) -> Vec<u8> {
    name_text::parse(text).expect("a name")
}

/// The name `O=Test, CN=`text.
pub fn in_test(text: &str) -> Vec<u8> {
    name(&format!("O=Test, CN={text}"))
}

/// A UTCTime.
pub fn utc(text: &str) -> Vec<u8> {
    emit(UTC_TIME, &[text.as_bytes()])
}

/// A GeneralizedTime.
pub fn generalized(text: &str) -> Vec<u8> {
    emit(GENERALIZED_TIME, &[text.as_bytes()])
}

/// An OBJECT IDENTIFIER.
pub fn oid(text: &str) -> Vec<u8> {
    emit(OID, &[ironswan_pki::Oid::parse(text).expect("an object identifier").value()])
}

/// A SEQUENCE of these parts.
pub fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    emit(SEQUENCE, &[&parts.concat()])
}

/// One certificate. Every field is written as it stands here, so a certificate can be wrong in any
/// part.
#[derive(Clone)]
pub struct Made {
    /// 2 for version 3 of X.509. `None` leaves the field out, which means version 1.
    pub version: Option<u8>,
    pub serial: Vec<u8>,
    /// Distinguished names in DER.
    pub issuer: Vec<u8>,
    pub subject: Vec<u8>,
    /// notBefore and notAfter, in DER.
    pub validity: [Vec<u8>; 2],
    /// `SubjectPublicKeyInfo` in DER.
    pub key: Vec<u8>,
    /// Object identifier as an element, whether it is critical, and value.
    pub extensions: Vec<(Vec<u8>, bool, Vec<u8>)>,
    pub by: PrivateKey,
    pub scheme: Scheme,
    /// Algorithm in the signed part, when it is another one than that of the signature.
    pub inner: Option<Vec<u8>>,
    /// Changes the finished certificate.
    pub spoil: fn(&mut Vec<u8>),
}

impl Made {
    /// The certificate of a gateway with key `of`, by the CA with key `by`.
    pub fn end(subject: Vec<u8>, of: u8, issuer: Vec<u8>, by: u8) -> Self {
        let mut this = Self {
            version: Some(2),
            serial: vec![of],
            issuer,
            subject,
            validity: [utc("190101000000Z"), utc("290101000000Z")],
            key: key(of).public().spki().to_vec(),
            extensions: Vec::new(),
            by: key(by),
            scheme: Scheme::Ed25519,
            inner: None,
            spoil: |_| (),
        };
        this.usage(SIGN);
        this.set(14, false, &emit(OCTET_STRING, &[&[of; 20]]));
        this.set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[by; 20]])]));
        this
    }

    /// The certificate of a CA.
    pub fn ca(subject: Vec<u8>, of: u8, issuer: Vec<u8>, by: u8) -> Self {
        let mut this = Self::end(subject, of, issuer, by);
        this.usage(CERT_SIGN | CRL_SIGN);
        this.basic(true, None);
        this
    }

    /// A CA that has issued its own certificate.
    pub fn root(subject: Vec<u8>, of: u8) -> Self {
        Self::ca(subject.clone(), of, subject, of)
    }

    /// Writes the extension 2.5.29.`number`, in the place of the one that was there.
    pub fn set(&mut self, number: u8, critical: bool, value: &[u8]) {
        self.remove(number);
        self.extensions.push((emit(OID, &[&[0x55, 0x1d, number]]), critical, value.to_vec()));
    }

    /// Adds another extension.
    pub fn add(&mut self, name: &str, critical: bool, value: &[u8]) {
        self.extensions.push((oid(name), critical, value.to_vec()));
    }

    /// Removes the extension 2.5.29.`number`.
    pub fn remove(&mut self, number: u8) {
        self.extensions.retain(|(name, ..)| name[2..] != [0x55, 0x1d, number]);
    }

    /// Writes keyUsage.
    pub fn usage(&mut self, bits: u8) {
        let unused = bits.trailing_zeros().min(7) as u8;
        self.set(15, true, &emit(BIT_STRING, &[&[unused, bits]]));
    }

    /// Writes basicConstraints.
    pub fn basic(&mut self, ca: bool, path_length: Option<&[u8]>) {
        let flag = if ca { emit(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
        let length = path_length.map(|length| emit(INTEGER, &[length])).unwrap_or_default();
        self.set(19, true, &sequence(&[flag, length]));
    }

    /// Writes extKeyUsage.
    pub fn purposes(&mut self, critical: bool, list: &[&str]) {
        let list: Vec<_> = list.iter().map(|purpose| oid(purpose)).collect();
        self.set(37, critical, &sequence(&list));
    }

    /// Writes subjectAltName, of names in DER.
    pub fn alt_names(&mut self, names: &[Vec<u8>]) {
        self.set(17, false, &sequence(names));
    }

    /// Gives the certificate another key, and returns the private one.
    pub fn key_of(&mut self, kind: KeyKind) -> PrivateKey {
        let key = other_key(kind);
        self.key = key.public().spki().to_vec();
        key
    }

    /// Has the certificate signed by another key.
    pub fn signed_by(&mut self, by: PrivateKey, scheme: Scheme) {
        (self.by, self.scheme) = (by, scheme);
    }

    /// The certificate in DER.
    pub fn der(&self) -> Vec<u8> {
        let list: Vec<Vec<u8>> = self
            .extensions
            .iter()
            .map(|(name, critical, value)| {
                let critical = if *critical { emit(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
                emit(SEQUENCE, &[name, &critical, &emit(OCTET_STRING, &[value])])
            })
            .collect();
        let extensions = if list.is_empty() { Vec::new() } else { emit(explicit(3), &[&sequence(&list)]) };
        let version = self.version.map(|n| emit(explicit(0), &[&emit(INTEGER, &[&[n]])]));
        let algorithm = self.scheme.to_der().expect("an algorithm of certificates");
        let body = emit(
            SEQUENCE,
            &[
                &version.unwrap_or_default(),
                &emit(INTEGER, &[&self.serial]),
                self.inner.as_ref().unwrap_or(&algorithm),
                &self.issuer,
                &sequence(&self.validity),
                &self.subject,
                &self.key,
                &extensions,
            ],
        );
        let weak = Legacy { sha1: true, short_rsa: true };
        let signature = self.by.sign(self.scheme, weak, &body).expect("the key fits");
        let mut der = emit(SEQUENCE, &[&body, &algorithm, &emit(BIT_STRING, &[&[0], &signature])]);
        (self.spoil)(&mut der);
        der
    }
}

/// A chain with a CA of the configuration, two CAs below, and a gateway.
#[derive(Clone)]
pub struct Chain {
    pub own: Made,
    pub sent: Vec<Made>,
    pub trusted: Vec<Made>,
    pub now: i64,
    pub policies: Policies,
    pub usage: Usage,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            own: Made::end(in_test("gw"), 4, in_test("Low"), 3),
            sent: vec![
                Made::ca(in_test("Low"), 3, in_test("High"), 2),
                Made::ca(in_test("High"), 2, in_test("Root"), 1),
            ],
            trusted: vec![Made::root(in_test("Root"), 1)],
            now: NOW,
            policies: Policies::default(),
            usage: Usage::Any,
        }
    }
}

impl Chain {
    /// The lower CA.
    pub fn low(&mut self) -> &mut Made {
        &mut self.sent[LOW]
    }

    /// The upper CA.
    pub fn high(&mut self) -> &mut Made {
        &mut self.sent[HIGH]
    }

    /// The CA of the configuration.
    pub fn root(&mut self) -> &mut Made {
        &mut self.trusted[0]
    }

    /// The question whether the chain is valid.
    pub fn question(&self) -> Question {
        let ders = |list: &[Made]| list.iter().map(Made::der).collect();
        Question {
            own: self.own.der(),
            sent: ders(&self.sent),
            trusted: ders(&self.trusted),
            lists: None,
            now: self.now,
            policies: self.policies.clone(),
            usage: self.usage,
        }
    }
}

/// A case: its name, and the change that it makes in a good chain.
pub type Case = (&'static str, fn(&mut Chain));
