//! Chains with one peculiarity: structure, time, what a CA may do, uses of keys, extensions and
//! signatures.

use ironswan_crypto::sign::{Curve, Hash, KeyKind, Scheme};
use ironswan_wire::der::{
    BIT_STRING, BOOLEAN, INTEGER, NULL, OCTET_STRING, SEQUENCE, emit, explicit, implicit,
};

use crate::judges::Usage;
use crate::made::{
    CERT_SIGN, CRL_SIGN, Case, ENCIPHER, NON_REPUDIATION, NOW, SIGN, generalized, in_test, key, oid,
    sequence, utc,
};

const PAST: &str = "191231235959Z";
const THIS_SECOND: &str = "200101000000Z";
const SOON: &str = "200101000001Z";
/// A purpose that is not for IKE: codeSigning.
const CODE: &str = "1.3.6.1.5.5.7.3.3";
const SERVER: &str = "1.3.6.1.5.5.7.3.1";
const CLIENT: &str = "1.3.6.1.5.5.7.3.2";
const IKE: &str = "1.3.6.1.5.5.7.3.17";

/// Time.
pub const TIME: &[Case] = &[
    ("nothing is wrong", |_| ()),
    ("the gateway's certificate has expired", |c| c.own.validity[1] = utc(PAST)),
    ("the lower CA has expired", |c| c.low().validity[1] = utc(PAST)),
    ("the upper CA has expired", |c| c.high().validity[1] = utc(PAST)),
    ("the root has expired", |c| c.root().validity[1] = utc(PAST)),
    ("the gateway's certificate is not valid yet", |c| c.own.validity[0] = utc(SOON)),
    ("the lower CA is not valid yet", |c| c.low().validity[0] = utc(SOON)),
    ("the root is not valid yet", |c| c.root().validity[0] = utc(SOON)),
    ("valid from this second on", |c| c.own.validity[0] = utc(THIS_SECOND)),
    ("valid until this second", |c| c.own.validity[1] = utc(THIS_SECOND)),
    ("valid until the next second", |c| c.own.validity[1] = utc(SOON)),
    ("valid for no time: the end is before the beginning", |c| {
        c.own.validity = [utc("290101000000Z"), utc("190101000000Z")];
    }),
    ("a GeneralizedTime before 2050", |c| c.own.validity[1] = generalized("20290101000000Z")),
    ("a GeneralizedTime that has passed", |c| c.own.validity[1] = generalized("20191231235959Z")),
    ("no end: the year 9999", |c| c.own.validity[1] = generalized("99991231235959Z")),
    ("a UTCTime of 1950", |c| c.own.validity[0] = utc("500101000000Z")),
    ("a UTCTime of 2049", |c| c.own.validity[1] = utc("491231235959Z")),
    ("a UTCTime without seconds", |c| c.own.validity[1] = utc("2901010000Z")),
    ("a UTCTime with an offset", |c| c.own.validity[1] = utc("290101000000+0100")),
    ("a UTCTime without a zone", |c| c.own.validity[1] = utc("290101000000")),
    ("a GeneralizedTime with a fraction", |c| c.own.validity[1] = generalized("20290101000000.5Z")),
    ("a month that is not there", |c| c.own.validity[1] = utc("291301000000Z")),
    ("29 February 2021", |c| c.own.validity[1] = utc("210229000000Z")),
    ("29 February 2020", |c| c.own.validity[1] = utc("200229000000Z")),
    ("the 60th second of a minute", |c| c.own.validity[1] = utc("210101235960Z")),
    ("a time that is a NULL", |c| c.own.validity[1] = emit(NULL, &[])),
    ("an hour later", |c| c.now = NOW + 3600),
    ("ten years later", |c| c.now = NOW + 10 * 366 * 86_400),
];

/// What a CA may do.
pub const AUTHORITY: &[Case] = &[
    ("the lower CA has no basicConstraints", |c| c.low().remove(19)),
    ("the root has no basicConstraints", |c| c.root().remove(19)),
    ("the lower CA says that it is none", |c| c.low().basic(false, None)),
    ("the root says that it is no CA", |c| c.root().basic(false, None)),
    ("the lower CA has neither basicConstraints nor keyUsage", |c| {
        c.low().remove(19);
        c.low().remove(15);
    }),
    ("basicConstraints are not critical", |c| c.low().extensions.iter_mut().for_each(|e| e.1 = false)),
    ("the gateway's certificate is that of a CA", |c| c.own.basic(true, None)),
    ("the gateway says that it is no CA", |c| c.own.basic(false, None)),
    ("a path length of 0 at the root", |c| c.root().basic(true, Some(&[0]))),
    ("a path length of 1 at the root", |c| c.root().basic(true, Some(&[1]))),
    ("a path length of 2 at the root", |c| c.root().basic(true, Some(&[2]))),
    ("a path length of 0 at the upper CA", |c| c.high().basic(true, Some(&[0]))),
    ("a path length of 1 at the upper CA", |c| c.high().basic(true, Some(&[1]))),
    ("a path length of 0 at the lower CA", |c| c.low().basic(true, Some(&[0]))),
    ("a path length of 0 at the lower CA, and the gateway is a CA", |c| {
        c.low().basic(true, Some(&[0]));
        c.own.basic(true, None);
        c.own.usage(SIGN | CERT_SIGN);
    }),
    ("a path length of 300", |c| c.high().basic(true, Some(&[1, 0x2c]))),
    ("a path length of 2 to the power of 70", |c| {
        c.high().basic(true, Some(&[0x40, 0, 0, 0, 0, 0, 0, 0, 0]));
    }),
    ("a negative path length", |c| c.high().basic(true, Some(&[0xff]))),
    ("a path length at a certificate that is no CA's", |c| c.own.basic(false, Some(&[0]))),
    ("a path length of 0 above a CA that has issued its own certificate", |c| {
        // High renews its key: the second certificate has its own name as issuer.
        let mut renewed = c.high().clone();
        (renewed.issuer, renewed.by) = (in_test("High"), key(2));
        renewed.key = key(9).public().spki().to_vec();
        renewed.set(14, false, &emit(OCTET_STRING, &[&[9; 20]]));
        renewed.set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[2; 20]])]));
        c.high().basic(true, Some(&[1]));
        c.low().by = key(9);
        c.low().set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[9; 20]])]));
        c.sent.push(renewed);
    }),
    ("a CA without keyUsage", |c| c.low().remove(15)),
    ("a root without keyUsage", |c| c.root().remove(15)),
    ("a CA that may sign lists alone", |c| c.low().usage(CRL_SIGN)),
    ("a root that may sign lists alone", |c| c.root().usage(CRL_SIGN)),
    ("a CA that may sign certificates alone", |c| c.low().usage(CERT_SIGN)),
    ("a CA with keyUsage for messages alone", |c| c.high().usage(SIGN)),
    ("keyUsage of a CA that is not critical", |c| {
        c.low().set(15, false, &emit(BIT_STRING, &[&[1, CERT_SIGN | CRL_SIGN]]));
    }),
    ("keyUsage without a bit at a CA", |c| c.low().set(15, true, &emit(BIT_STRING, &[&[0]]))),
    ("an end that may sign certificates and is no CA", |c| c.own.usage(SIGN | CERT_SIGN)),
    ("a gateway as CA", |c| {
        // The certificate of a gateway issues another one.
        let mut below = c.own.clone();
        (below.issuer, below.subject, below.by) = (in_test("gw"), in_test("forged"), key(4));
        below.key = key(9).public().spki().to_vec();
        below.set(14, false, &emit(OCTET_STRING, &[&[9; 20]]));
        below.set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[4; 20]])]));
        let above = std::mem::replace(&mut c.own, below);
        c.sent.push(above);
    }),
];

/// Uses of the gateway's key.
pub const USE: &[Case] = &[
    ("IKE, and keyUsage has digitalSignature", |c| c.usage = Usage::Signatures),
    ("IKE, and keyUsage has nonRepudiation alone", |c| {
        c.usage = Usage::Signatures;
        c.own.usage(NON_REPUDIATION);
    }),
    ("IKE, and keyUsage has keyEncipherment alone", |c| {
        c.usage = Usage::Signatures;
        c.own.usage(ENCIPHER);
    }),
    ("IKE, and keyUsage is for a CA", |c| {
        c.usage = Usage::Signatures;
        c.own.usage(CERT_SIGN | CRL_SIGN);
    }),
    ("IKE without keyUsage", |c| {
        c.usage = Usage::Signatures;
        c.own.remove(15);
    }),
    ("a TLS server", |c| {
        c.usage = Usage::Server;
        c.own.purposes(false, &[SERVER]);
    }),
    ("a TLS client", |c| {
        c.usage = Usage::Client;
        c.own.purposes(true, &[CLIENT]);
    }),
    ("a TLS server and code", |c| {
        c.usage = Usage::Server;
        c.own.purposes(true, &[CODE, SERVER]);
    }),
    ("extKeyUsage for code alone", |c| {
        c.usage = Usage::Server;
        c.own.purposes(false, &[CODE]);
    }),
    ("extKeyUsage for code alone, critical", |c| {
        c.usage = Usage::Client;
        c.own.purposes(true, &[CODE]);
    }),
    ("extKeyUsage for IKE alone", |c| {
        c.usage = Usage::Server;
        c.own.purposes(false, &[IKE]);
    }),
    ("extKeyUsage for any purpose", |c| {
        c.usage = Usage::Server;
        c.own.purposes(false, &["2.5.29.37.0"]);
    }),
    ("extKeyUsage of a CA for code alone", |c| {
        c.usage = Usage::Server;
        c.low().purposes(false, &[CODE]);
    }),
    ("extKeyUsage that names nothing", |c| {
        c.usage = Usage::Server;
        c.own.purposes(false, &[]);
    }),
    ("lists, and keyUsage has cRLSign", |c| {
        c.usage = Usage::Lists;
        c.own.usage(CRL_SIGN);
    }),
    ("lists, and keyUsage has digitalSignature", |c| c.usage = Usage::Lists),
];

/// Extensions that are critical, unknown, malformed, or twice there.
pub const EXTENSIONS: &[Case] = &[
    ("an unknown extension", |c| c.own.add("1.2.3.4", false, &[5, 0])),
    ("an unknown critical extension of the gateway", |c| c.own.add("1.2.3.4", true, &[5, 0])),
    ("an unknown critical extension of a CA", |c| c.low().add("1.2.3.4", true, &[5, 0])),
    ("an unknown critical extension of the root", |c| c.root().add("1.2.3.4", true, &[5, 0])),
    ("a critical subjectKeyIdentifier", |c| c.own.set(14, true, &emit(OCTET_STRING, &[&[4; 20]]))),
    ("a critical authorityKeyIdentifier", |c| {
        c.own.set(35, true, &emit(SEQUENCE, &[&emit(implicit(0), &[&[3; 20]])]));
    }),
    ("a critical authorityInfoAccess", |c| {
        let place = emit(0x86, &[b"http://ocsp.example/"]);
        let entry = sequence(&[oid("1.3.6.1.5.5.7.48.1"), place]);
        c.own.add("1.3.6.1.5.5.7.1.1", true, &sequence(&[entry]));
    }),
    ("a critical issuerAltName", |c| c.own.set(18, true, &sequence(&[emit(0x82, &[b"ca.example"])]))),
    ("a critical privateKeyUsagePeriod", |c| {
        let until = emit(implicit(1), &[b"20290101000000Z"]);
        c.own.set(16, true, &emit(SEQUENCE, &[&until]));
    }),
    ("critical distribution points", |c| {
        let place = emit(explicit(0), &[&emit(0x86, &[b"http://crl.example/a.crl"])]);
        let point = emit(SEQUENCE, &[&emit(explicit(0), &[&place])]);
        c.own.set(31, true, &sequence(&[point]));
    }),
    ("a critical certificate of a proxy", |c| {
        let policy = sequence(&[oid("1.3.6.1.5.5.7.21.1")]);
        c.own.add("1.3.6.1.5.5.7.1.14", true, &sequence(&[policy]));
    }),
    ("an extension that is there twice", |c| {
        c.own.add("1.2.3.4", false, &[5, 0]);
        c.own.add("1.2.3.4", false, &[5, 0]);
    }),
    ("keyUsage that is there twice", |c| {
        let again = c.own.extensions[0].clone();
        c.own.extensions.push(again);
    }),
    ("an authorityKeyIdentifier of another key", |c| {
        c.own.set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[9; 20]])]));
    }),
    ("an authorityKeyIdentifier with another serial number", |c| {
        let names = emit(explicit(1), &[&emit(explicit(4), &[&in_test("High")])]);
        c.own.set(35, false, &emit(SEQUENCE, &[&names, &emit(implicit(2), &[&[77]])]));
    }),
    ("no authorityKeyIdentifier", |c| c.own.remove(35)),
    ("no subjectKeyIdentifier at a CA", |c| c.low().remove(14)),
    ("no subjectKeyIdentifier at the gateway", |c| c.own.remove(14)),
    ("malformed basicConstraints", |c| c.low().set(19, true, &[0x30, 3, 2, 1])),
    ("malformed keyUsage", |c| c.own.set(15, true, &emit(INTEGER, &[&[1]]))),
    ("malformed subjectAltName", |c| c.own.set(17, false, &emit(SEQUENCE, &[&[0x82, 9, b'x']]))),
    ("malformed extKeyUsage", |c| c.own.set(37, false, &emit(NULL, &[]))),
    ("malformed distribution points", |c| c.own.set(31, false, &emit(NULL, &[]))),
    ("malformed authorityInfoAccess", |c| c.own.add("1.3.6.1.5.5.7.1.1", false, &emit(NULL, &[]))),
    ("malformed subjectKeyIdentifier", |c| c.own.set(14, false, &emit(NULL, &[]))),
    ("malformed authorityKeyIdentifier", |c| c.own.set(35, false, &emit(NULL, &[]))),
    ("bytes behind the value of an extension", |c| {
        c.own.set(15, true, &[emit(BIT_STRING, &[&[7, SIGN]]), vec![5, 0]].concat());
    }),
    ("a CA flag that is written although it is false", |c| {
        c.own.set(19, true, &emit(SEQUENCE, &[&emit(BOOLEAN, &[&[0]])]));
    }),
    ("a CA flag of another number than 255", |c| {
        c.low().set(19, true, &emit(SEQUENCE, &[&emit(BOOLEAN, &[&[1]])]));
    }),
];

/// Versions, serial numbers, and the encoding of the whole.
pub const STRUCTURE: &[Case] = &[
    ("version 1 without extensions", |c| {
        c.own.version = None;
        c.own.extensions.clear();
    }),
    ("a CA of version 1", |c| {
        c.low().version = None;
        c.low().extensions.clear();
    }),
    ("a root of version 1", |c| {
        c.root().version = None;
        c.root().extensions.clear();
    }),
    ("version 1 with extensions", |c| c.own.version = None),
    ("version 2 with extensions", |c| c.own.version = Some(1)),
    ("version 3 without extensions", |c| c.own.extensions.clear()),
    ("a version that is not there", |c| c.own.version = Some(7)),
    ("the serial number 0", |c| c.own.serial = vec![0]),
    ("a negative serial number", |c| c.own.serial = vec![0x80]),
    ("a serial number of 30 bytes", |c| c.own.serial = vec![0x11; 30]),
    ("a serial number with a zero too many", |c| c.own.serial = vec![0, 1]),
    ("a byte behind the certificate", |c| c.own.spoil = |der| der.push(0)),
    ("a certificate that ends early", |c| c.own.spoil = |der| der.truncate(der.len() - 1)),
    ("a length that is not the shortest", |c| {
        c.own.spoil = |der| {
            // 30 82 hh ll becomes 30 83 00 hh ll.
            der[1] = 0x83;
            der.insert(2, 0);
        };
    }),
    ("a length that is not definite", |c| {
        c.own.spoil = |der| {
            der.splice(1..4, [0x80]);
            der.extend([0, 0]);
        };
    }),
    ("no byte at all", |c| c.own.spoil = Vec::clear),
    ("a CA that nobody can read", |c| c.low().spoil = |der| der.truncate(40)),
];

/// Signatures and keys.
pub const SIGNATURES: &[Case] = &[
    ("a signature of the gateway's certificate with one bit changed", |c| {
        c.own.spoil = |der| *der.last_mut().expect("a byte") ^= 1;
    }),
    ("a signature of the upper CA with one bit changed", |c| {
        c.high().spoil = |der| *der.last_mut().expect("a byte") ^= 1;
    }),
    ("a signature of the root with one bit changed", |c| {
        c.root().spoil = |der| *der.last_mut().expect("a byte") ^= 1;
    }),
    ("a certificate signed by another key", |c| c.own.by = key(9)),
    ("a CA signed by another key", |c| c.low().by = key(9)),
    ("a certificate signed by the root, with the name of the lower CA", |c| c.own.by = key(1)),
    ("a certificate signed by its own key, with the name of the lower CA", |c| c.own.by = key(4)),
    ("another algorithm inside than outside", |c| {
        c.own.inner = Scheme::Ecdsa(Hash::Sha256).to_der();
    }),
    ("a signature with unused bits", |c| {
        c.own.spoil = |der| {
            let at = der.len() - 65;
            der[at] = 1;
        };
    }),
    ("an Ed25519 signature that calls itself ECDSA", |c| {
        c.own.signed_by(crate::made::other_key(KeyKind::Ecdsa(Curve::P256)), Scheme::Ecdsa(Hash::Sha256));
    }),
    ("P-256", |c| {
        let ca = c.low().key_of(KeyKind::Ecdsa(Curve::P256));
        c.own.signed_by(ca, Scheme::Ecdsa(Hash::Sha256));
    }),
    ("P-384 with SHA2-512", |c| {
        let ca = c.low().key_of(KeyKind::Ecdsa(Curve::P384));
        c.own.signed_by(ca, Scheme::Ecdsa(Hash::Sha512));
    }),
    ("P-521", |c| {
        let ca = c.low().key_of(KeyKind::Ecdsa(Curve::P521));
        c.own.signed_by(ca, Scheme::Ecdsa(Hash::Sha512));
    }),
    ("RSA", |c| {
        let ca = c.low().key_of(KeyKind::Rsa(2048));
        c.own.signed_by(ca, Scheme::RsaPkcs1(Hash::Sha256));
    }),
    ("RSA with SHA2-512", |c| {
        let ca = c.low().key_of(KeyKind::Rsa(2048));
        c.own.signed_by(ca, Scheme::RsaPkcs1(Hash::Sha512));
    }),
    ("RSA PSS", |c| {
        let ca = c.low().key_of(KeyKind::Rsa(2048));
        c.own.signed_by(ca, Scheme::RsaPss { hash: Hash::Sha256, salt_len: 32 });
    }),
    ("RSA PSS with a short salt", |c| {
        let ca = c.low().key_of(KeyKind::Rsa(2048));
        c.own.signed_by(ca, Scheme::RsaPss { hash: Hash::Sha384, salt_len: 20 });
    }),
    ("RSA with SHA-1", |c| {
        let ca = c.low().key_of(KeyKind::Rsa(2048));
        c.own.signed_by(ca, Scheme::RsaPkcs1(Hash::Sha1));
    }),
    ("ECDSA with SHA-1", |c| {
        let ca = c.low().key_of(KeyKind::Ecdsa(Curve::P256));
        c.own.signed_by(ca, Scheme::Ecdsa(Hash::Sha1));
    }),
    ("RSA of 1,024 bits", |c| c.own.key = rsa(1024)),
    ("RSA of 2,048 bits", |c| c.own.key = rsa(2048)),
    ("RSA of 32,768 bits", |c| c.own.key = rsa(32_768)),
    ("a key for Ed448", |c| {
        c.own.key = sequence(&[sequence(&[oid("1.3.101.113")]), emit(BIT_STRING, &[&[0], &[1; 57]])]);
    }),
    ("a key for X25519", |c| {
        c.own.key = sequence(&[sequence(&[oid("1.3.101.110")]), emit(BIT_STRING, &[&[0], &[9; 32]])]);
    }),
    ("a key of an algorithm that nobody knows", |c| {
        c.own.key = sequence(&[sequence(&[oid("1.2.3.4")]), emit(BIT_STRING, &[&[0], &[1; 32]])]);
    }),
    ("a point that is not on its curve", |c| {
        let algorithm = sequence(&[oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")]);
        c.own.key = sequence(&[algorithm, emit(BIT_STRING, &[&[0, 4], &[1; 64]])]);
    }),
];

/// `SubjectPublicKeyInfo` with a modulus of so many bits. Nobody has the private key.
fn rsa(bits: usize) -> Vec<u8> {
    let modulus = [vec![0], vec![0xff; bits / 8]].concat();
    let parts = sequence(&[emit(INTEGER, &[&modulus]), emit(INTEGER, &[&[1, 0, 1]])]);
    let algorithm = sequence(&[oid("1.2.840.113549.1.1.1"), emit(NULL, &[])]);
    sequence(&[algorithm, emit(BIT_STRING, &[&[0], &parts])])
}
