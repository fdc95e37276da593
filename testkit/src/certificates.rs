//! X.509 certificates for stories: made and signed here, in DER. Keys are those of Ed25519 with a
//! number, as everywhere in stories, or those of ECDSA over P-256 with a number.
//!
//! ```text
//! root, key 100  ─▶  link, key 101  ─▶  g1.example, key 1;  g2.example, key 2
//! ```

use ironswan_crypto::sign::{Hash, Legacy, PrivateKey, Scheme};
use ironswan_pki::{Certificate, Crl, Time};
use ironswan_wire::der::{
    BIT_STRING, BOOLEAN, GENERALIZED_TIME, INTEGER, OCTET_STRING, OID, SEQUENCE, emit, explicit,
};
use ironswan_wire::name_text;
use ironswan_wire::secret::Secret;

/// Number of the root's key.
pub const ROOT: u8 = 100;
/// Number of the key of the CA below the root.
pub const LINK: u8 = 101;

/// The private key of this number.
pub fn key(number: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![number; 32])).expect("a seed of its length")
}

/// The private key of ECDSA over P-256 of this number, which is neither 0 nor 255.
pub fn p256(number: u8) -> PrivateKey {
    let curve = emit(explicit(0), &[&emit(OID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]])]);
    let scalar = emit(OCTET_STRING, &[&[number; 32]]);
    let der = emit(SEQUENCE, &[&emit(INTEGER, &[&[1]]), &scalar, &curve]);
    PrivateKey::from_der(&der, Legacy::default()).expect("a scalar of the curve")
}

/// A certificate to make.
#[derive(Clone, Debug)]
pub struct Make {
    subject: String,
    issuer: String,
    /// The private keys of these numbers.
    private: fn(u8) -> PrivateKey,
    /// The signature algorithm of the issuer.
    scheme: Scheme,
    /// Numbers of the keys of the subject, and of the issuer, who signs.
    keys: (u8, u8),
    /// Years in whose first second validity begins and ends.
    years: (u16, u16),
    extensions: Vec<Vec<u8>>,
}

impl Make {
    /// The certificate of an end.
    pub fn end(subject: &str, key: u8, issuer: &str, by: u8) -> Self {
        let (subject, issuer) = (subject.to_owned(), issuer.to_owned());
        let (private, scheme): (fn(u8) -> PrivateKey, _) = (self::key, Scheme::Ed25519);
        let (keys, years) = ((key, by), (2020, 2040));
        Self { subject, issuer, private, scheme, keys, years, extensions: Vec::new() }
    }

    /// The certificate of a CA.
    pub fn ca(subject: &str, key: u8, issuer: &str, by: u8) -> Self {
        let is_ca = emit(SEQUENCE, &[&emit(BOOLEAN, &[&[0xff]])]);
        Self::end(subject, key, issuer, by).with(19, &is_ca)
    }

    /// Subject and issuer have keys of ECDSA over P-256 with these numbers.
    #[must_use]
    pub fn ecdsa(self) -> Self {
        Self { private: p256, scheme: Scheme::Ecdsa(Hash::Sha256), ..self }
    }

    /// Valid from the beginning of one year to that of another one.
    #[must_use]
    pub fn years(self, from: u16, to: u16) -> Self {
        Self { years: (from, to), ..self }
    }

    /// Adds the names of `subjectAltName`: FQDNs.
    #[must_use]
    pub fn names(self, names: &[&str]) -> Self {
        let names: Vec<u8> = names.iter().flat_map(|name| emit(0x82, &[name.as_bytes()])).collect();
        self.with(17, &emit(SEQUENCE, &[&names]))
    }

    /// Adds a certificate policy.
    #[must_use]
    pub fn policy(self, oid: &[u8]) -> Self {
        self.with(32, &emit(SEQUENCE, &[&emit(SEQUENCE, &[&emit(OID, &[oid])])]))
    }

    /// Adds an extension of RFC 5280 (2.5.29.`number`), which is critical.
    #[must_use]
    pub fn with(mut self, number: u8, value: &[u8]) -> Self {
        let critical = emit(BOOLEAN, &[&[0xff]]);
        let oid = emit(OID, &[&[0x55, 0x1d, number]]);
        self.extensions.push(emit(SEQUENCE, &[&oid, &critical, &emit(OCTET_STRING, &[value])]));
        self
    }

    /// The certificate.
    pub fn make(&self) -> Certificate {
        let scheme = self.scheme.to_der().expect("it has one");
        let name = |text: &str| name_text::parse(text).expect("a name");
        let time = |year: u16| emit(GENERALIZED_TIME, &[format!("{year}0101000000Z").as_bytes()]);
        let list = self.extensions.concat();
        let extensions =
            if list.is_empty() { Vec::new() } else { emit(explicit(3), &[&emit(SEQUENCE, &[&list])]) };
        let body = emit(
            SEQUENCE,
            &[
                &emit(explicit(0), &[&emit(INTEGER, &[&[2]])]),
                &emit(INTEGER, &[&[self.keys.0.max(1)]]),
                &scheme,
                &name(&self.issuer),
                &emit(SEQUENCE, &[&time(self.years.0), &time(self.years.1)]),
                &name(&self.subject),
                (self.private)(self.keys.0).public().spki(),
                &extensions,
            ],
        );
        let issuer = (self.private)(self.keys.1);
        let signed = issuer.sign(self.scheme, Legacy::default(), &body).expect("a key that signs");
        let der = emit(SEQUENCE, &[&body, &scheme, &emit(BIT_STRING, &[&[0], &signed])]);
        Certificate::from_der(&der).expect("a certificate")
    }
}

/// A revocation list by this CA, valid from 2025 to 2035, of certificates with these serial
/// numbers: each is that of the key.
pub fn list(issuer: &str, by: u8, serials: &[u8]) -> Crl {
    let scheme = Scheme::Ed25519.to_der().expect("it has one");
    let time = |year: u16| emit(GENERALIZED_TIME, &[format!("{year}0101000000Z").as_bytes()]);
    let one = |serial: &u8| emit(SEQUENCE, &[&emit(INTEGER, &[&[*serial]]), &time(2025)]);
    let entries: Vec<u8> = serials.iter().flat_map(one).collect();
    let issuer = name_text::parse(issuer).expect("a name");
    let version = emit(INTEGER, &[&[1]]);
    let revoked = emit(SEQUENCE, &[&entries]);
    let body = emit(SEQUENCE, &[&version, &scheme, &issuer, &time(2025), &time(2035), &revoked]);
    let signed = key(by).sign(Scheme::Ed25519, Legacy::default(), &body).expect("a key that signs");
    let der = emit(SEQUENCE, &[&body, &scheme, &emit(BIT_STRING, &[&[0], &signed])]);
    Crl::from_der(&der).expect("a list")
}

/// The root.
pub fn root() -> Certificate {
    Make::ca("CN=root", ROOT, "CN=root", ROOT).make()
}

/// The CA below the root.
pub fn link() -> Certificate {
    Make::ca("CN=link", LINK, "CN=root", ROOT).make()
}

/// The certificate of gateway `n` with the name that stories give it, below the link.
pub fn end(n: u8) -> Make {
    let name = format!("g{n}.example");
    Make::end(&format!("CN={name}"), n, "CN=link", LINK).names(&[&name])
}

/// The time at the beginning of a year.
pub fn year(year: i64) -> Time {
    let leaps = |y: i64| y / 4 - y / 100 + y / 400;
    Time(((year - 1970) * 365 + leaps(year - 1) - leaps(1969)) * 86_400)
}
