use base64::engine::{Engine as _, general_purpose::STANDARD};
use ironswan_crypto::sign::KeyKind;

use super::*;
use crate::der::emit;
use crate::testing::{Make, key};

/// Keys and files by OpenSSL 3.0. The passphrase of all is `secret`.
const ED25519_PKCS8: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----\n\
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAi4MesmsjmkyAICCAAw\n\
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEK1Pzk0OQZxG3UVjhpKffpAEQLG8\n\
DkQz8/qn0656l66pvUKi5cBLo98mNgxN4WWPuIORHFLxke0eMWPRFtsUK/MMo8e2\n\
Fylhpvmf4fEqSQRz15A=\n\
-----END ENCRYPTED PRIVATE KEY-----";
/// PBES1: 3DES under SHA-1.
const EC_PKCS8: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----\n\
MIGxMBwGCiqGSIb3DQEMAQMwDgQI8vVb735rc68CAggABIGQvB8roxQhndg/2cMu\n\
LjMFQgo0/ppwjVxPZ5rXeksjKaJooprCoteRnZEdYCT651/lO6OC8osQxVtgaU/E\n\
CCe/M2cKtDJIzZw27EfV0voUNW5QS2hRip1BMYpiT7lCAC9kE2aQrnW3BF/RJAPy\n\
0EwADhxSfAJ2Y0wpsI4Lr+6/oorWfvp+MjDRys8k+oFPstXs\n\
-----END ENCRYPTED PRIVATE KEY-----";
/// Wants 20 million rounds.
const SLOW_PKCS8: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----\n\
MIGdMFkGCSqGSIb3DQEFDTBMMCsGCSqGSIb3DQEFDDAeBAiWwKuXVtHGTgIEATEt\n\
ADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQ0aX92O6PswajyF31R5jFCARA\n\
RRprmqjTSBpNY6klaHLa1g0Tm0bM//oThyzKd2wNv1QK30PMkHi9XrdSP/IczCre\n\
9cWU5JlQDl7M74wpLraLrA==\n\
-----END ENCRYPTED PRIVATE KEY-----";
/// AES-256 and HMAC-SHA-256: the key of `ED25519_PKCS8` with a certificate.
const NEW_PKCS12: &str = "\
MIIDhgIBAzCCAzwGCSqGSIb3DQEHAaCCAy0EggMpMIIDJTCCAjIGCSqGSIb3DQEHBqCCAiMwggIfAgEAMIICGAYJKoZIhvcN\
AQcBMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgu2DT0kbef1AICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME\
ASoEEMe57ogxbJ7zYUv8WvfO+46AggGw94/kljcPUMlsRpqi2DyTwdlVOyUpCZOOCt2CvbLUSZi+QaV46z8fJ+uX3OjeCo/I\
5hgQQF5pysLJgfJtFMvjLRqfgqifWRuFeJuNO6PexrvjY4OM6BZW/3Q4uY2KHcd2rhZ++hYWXQ52kXAPKZiawC5dJzy18nS2\
1C3bEz4TngMW2o6qEuuoWbnx/QVsvdAtCTZGZRIGZv9YT8P0HhBXO5Jx5ap+h3eUZlNxIB31SVunSPRJzZAgat/xKsyvBIzw\
3aPPCXENYTeZA6GZkdEC9JsYN7MU9mmcxaDPL3ezXaiZECcM4T5w2jteIctCDpeSnbz7k8vfdBwcJzrurp4xepgk2SV71CrH\
zVwdnBdx2esVXABXZTSEEAyOCPmKyxZQ8LSjNbuewS6xYAV8j3VbyzDprKn5/qBTJdQTe/nMUGNNViYf8GFtn9A+sznAPVPQ\
coXoDwW/9fBoAvkRXQKMiUo3RwOUxVOjiPVOkHLN9r+LJPyFdPNjuIplZcbj7ejP63irJ/C+EnKedqCnrvCljWgxAKtr3aYg\
pYtRv4DlfReH+CB2zXhNZJcijvmCV55YMIHsBgkqhkiG9w0BBwGggd4EgdswgdgwgdUGCyqGSIb3DQEMCgECoIGeMIGbMFcG\
CSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjpvN7WdQZQQAICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAUK\
R2JloRR52cFY74Ub0FQEQAa6I1SfZEtjZytPdsX2AYzwX8K2z/ZL13PuNl/OSc0M8MlgDwJR+vcaCk/d4OaHLsVnGy9Z0CE1\
xXRTZe8It3wxJTAjBgkqhkiG9w0BCRUxFgQU9HqI0o+MnP74S9zqOfT3UL1aIlQwQTAxMA0GCWCGSAFlAwQCAQUABCB2BO/l\
5OsHMML0+5FSkyQW/MrPmSigQJ0QJvbOv69/hQQIIfhtbb8qFxcCAggA";
/// `-legacy`: 3DES, RC2 of 40 bits and HMAC-SHA-1; the key of `EC_PKCS8` with a certificate.
const OLD_PKCS12: &str = "\
MIIDcgIBAzCCAzgGCSqGSIb3DQEHAaCCAykEggMlMIIDITCCAhcGCSqGSIb3DQEHBqCCAggwggIEAgEAMIIB/QYJKoZIhvcN\
AQcBMBwGCiqGSIb3DQEMAQYwDgQIIYrdMSfOxTYCAggAgIIB0ERhh5OPRYxIKIHTABgx838gXIMuG/SbVtpsLhnzym46L0LC\
WClPSXlX3yFvQ1eG0yRXHz7PLNhdD/9eOLdsZc6O5VvZYFRTkm2ba9cFSa6zLZ7u28idiBoI0tIEF483tw4ijGxv8oTiuTmX\
8n/f8L0JFKgs8Gn//QTglaekTwtrbiDPUJ7DiflqBA0JCJT43V9dTAQg/Rl9lfA4Ml6s5BacngvlVL9/tQDOWsP7J4wV8LCN\
1hzuaVW6WS2L0cq8c4Q5XkJSJ8q1v4+krOrr+RMqwCxelYWuA2IJlKkLopr1NLkXM6wIDEP1IrNOAzrooHrgvvrAV4uUjmG9\
lwILGdIUVG94G6DG8t7iW9lOhaCu5EwR3/qWZqSImXmQinkVCHudQzG9+ZRY1PmgkXC9y8Ysj2liEONgrjYDO7eH0qkgbdcb\
UYwB1AVrocn/c/0Iy3MC9KUVLhLX5CzM/PTQsCeLlHse4lIdxZ5+IRR+v3y7heUSM4JcuEZl5tl1XGSFbyD7h20Mrzf2Zkhx\
PfO0o29APJOuEVBKL3xiZE3ZlzEopmsnZ4KeCIVjvUYty5sKrRD8rMz5iNoz6NwgnVWDFtMTuLg1ENzuhcoeH4w2eQ8fMIIB\
AgYJKoZIhvcNAQcBoIH0BIHxMIHuMIHrBgsqhkiG9w0BDAoBAqCBtDCBsTAcBgoqhkiG9w0BDAEDMA4ECLvsXlFqAwA1AgII\
AASBkJtPWabws7jcjLyNPfcXS0rJJJfg/1z73nN7WftY2icywjplJvyybntXCB2XeQSkWNznZ0iu5Q5i7OVifjEjv9NAxw2X\
qXMpQpk47VY+xrttTWN5mqqgcHHy7IiXexm9uXB4jQsIujkdZmgA4YnIObNHqjLIV3xnPp64p5oXphY6b1m5akaIIeQ50bGN\
FKzuJTElMCMGCSqGSIb3DQEJFTEWBBSUOnq/HKtPeYdvuTqZM3s+5qeegzAxMCEwCQYFKw4DAhoFAAQUUKF6NnIMGWa2hprI\
pDWx5sai/DIECHnN/WhFvkj2AgIIAA==";
/// The seed of `ED25519_PKCS8`.
const SEED: &str = "97a3c682a21527d0387e9245127e151b165f810ca599d46f268b5ea5e4c9b510";

fn secret() -> Secret {
    Secret::from(&b"secret"[..])
}

fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(file: &[u8], passphrase: Option<&Secret>) -> Result<PrivateKey, FileFault> {
    private_key(file, passphrase, Legacy::default())
}

#[test]
fn an_encrypted_key_is_read_with_its_passphrase() {
    let key = read(ED25519_PKCS8.as_bytes(), Some(&secret())).unwrap();
    assert_eq!(key.public().kind(), KeyKind::Ed25519);
    assert!(hex(key.to_pkcs8().unwrap().expose()).ends_with(SEED));
    let key = read(EC_PKCS8.as_bytes(), Some(&secret())).unwrap();
    assert_eq!(hex(&key.public().id()).len(), 40);
    assert_eq!(key.public().kind().to_string(), "ECDSA P-256");
    for file in [ED25519_PKCS8, EC_PKCS8] {
        assert_eq!(read(file.as_bytes(), None), Err(FileFault::Encrypted));
        assert_eq!(read(file.as_bytes(), Some(&Secret::from(&b"Secret"[..]))), Err(FileFault::Passphrase));
    }
}

#[test]
fn pkcs12_holds_a_key_and_its_certificate() {
    let new = pkcs12(&decoded(NEW_PKCS12), &secret(), Legacy::default()).unwrap();
    let (key, certificate) = (new.key.unwrap(), &new.certificates[0]);
    assert!(hex(key.to_pkcs8().unwrap().expose()).ends_with(SEED));
    assert_eq!(certificate.subject().to_string(), "C=CH, CN=gw");
    assert_eq!(certificate.key(Legacy::default()).as_ref(), Ok(key.public()));
    let old = pkcs12(&decoded(OLD_PKCS12), &secret(), Legacy::default()).unwrap();
    assert_eq!(old.certificates[0].subject().to_string(), "CN=old");
    assert_eq!(old.certificates[0].key(Legacy::default()).as_ref(), Ok(old.key.unwrap().public()));
    for file in [NEW_PKCS12, OLD_PKCS12] {
        for wrong in [&b"Secret"[..], b"", b"secret\0"] {
            let result = pkcs12(&decoded(file), &Secret::from(wrong), Legacy::default());
            assert_eq!(result.map(drop), Err(FileFault::Passphrase));
        }
    }
}

#[test]
fn a_passphrase_is_not_hashed_more_often_than_the_limit() {
    let rounds = Err(FileFault::Rounds { max: MAX_ROUNDS });
    assert_eq!(read(SLOW_PKCS8.as_bytes(), Some(&secret())), rounds);
    assert_eq!(super::rounds(SLOW_PKCS8.as_bytes()), Ok(20_000_000));
    // One for the MAC, and one each for the certificate and the key.
    assert_eq!(super::rounds(&decoded(NEW_PKCS12)), Ok(3 * 2048));
    // A salt that looks like a SEQUENCE hides no number behind itself.
    let of = |salt: &[u8], count: &[u8]| {
        let parameters = emit(SEQUENCE, &[&emit(OCTET_STRING, &[salt]), &emit(INTEGER, &[count])]);
        check_rounds(&emit(SEQUENCE, &[&emit(SEQUENCE, &[&parameters])]))
    };
    assert_eq!(of(b"saltsalt", &[8, 0]), Ok(()));
    assert_eq!(of(b"saltsalt", &[0x7f, 0, 0, 0]).map(|()| unreachable!()), rounds);
    assert_eq!(of(&[0x30, 0], &[0x7f, 0, 0, 0]).map(|()| unreachable!()), rounds);
    assert_eq!(of(b"saltsalt", &[0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0]).map(|()| unreachable!()), rounds);
    assert_eq!(check_rounds(&emit(SEQUENCE, &[&emit(IN_PIECES, &[])])), Err(FileFault::Malformed));
    let deep = (0..100).fold(Vec::new(), |inner, _| emit(SEQUENCE, &[&inner]));
    assert_eq!(check_rounds(&deep), Err(FileFault::Malformed));
    // Indefinite lengths of BER.
    assert_eq!(check_rounds(&[0x30, 0x80, 0, 0]), Err(FileFault::Malformed));
}

#[test]
fn keys_in_clear_and_other_files_are_told_apart() {
    let plain = key(7).to_pkcs8().unwrap();
    assert_eq!(read(plain.expose(), None).as_ref(), Ok(&key(7)));
    let pem = |label: &str, der: &[u8]| {
        format!("text\n-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    };
    let certificate = Make::root("CN=Root", 1).der();
    let both = pem("CERTIFICATE", &certificate) + &pem("PRIVATE KEY", plain.expose());
    assert_eq!(read(both.as_bytes(), None).as_ref(), Ok(&key(7)));
    assert_eq!(read(&certificate, None), Err(FileFault::Key(KeyFault::Malformed)));
    let two = pem("CERTIFICATE", &certificate).repeat(2);
    assert_eq!(certificates(two.as_bytes()).unwrap().len(), 2);
    assert_eq!(certificates(&certificate).unwrap().len(), 1);
    assert!(matches!(certificates(both.as_bytes()), Err(FileFault::Certificate(_))));
    assert!(matches!(list(&certificate), Err(FileFault::List(_))));
}

#[test]
fn damaged_and_large_files_say_so() {
    for (file, why) in [
        ("-----BEGIN PRIVATE KEY-----\nAAAA", FileFault::Pem),
        ("-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----", FileFault::Pem),
        ("-----BEGIN ", FileFault::Pem),
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----",
            FileFault::OldEncryption,
        ),
        ("", FileFault::Key(KeyFault::Malformed)),
    ] {
        assert_eq!(read(file.as_bytes(), None), Err(why), "{file}");
    }
    let many = "-----BEGIN A-----\n-----END A-----\n".repeat(101);
    assert_eq!(certificates(many.as_bytes()), Err(FileFault::TooMany { max: 100 }));
    assert_eq!(read(&vec![0; MAX_FILE + 1], None), Err(FileFault::TooLong { max: MAX_FILE }));
}

#[test]
fn no_byte_of_pkcs12_can_be_changed_without_notice() {
    let der = decoded(NEW_PKCS12);
    // Every seventh byte: each change costs 2,048 rounds.
    for at in (0..der.len()).step_by(7) {
        let mut changed = der.clone();
        changed[at] ^= 1;
        let result = pkcs12(&changed, &secret(), Legacy::default());
        assert!(result.is_err(), "byte {at}");
    }
}

#[test]
fn pkcs12_that_we_make_holds_the_key_and_all_certificates() {
    let (own, root) = (Make::own("CN=gw", 1, "CN=root", 2).der(), Make::root("CN=root", 2).der());
    let secret = |text: &str| Secret::new(text.into());
    let pkcs8 = key(1).to_pkcs8().unwrap();
    let sealed = container::seal_pkcs12(&pkcs8, &own, &[&root], &secret("s3cret")).unwrap();
    let contents = pkcs12(&sealed, &secret("s3cret"), Legacy::default()).unwrap();
    assert_eq!(contents.key, Some(key(1)));
    let read: Vec<&[u8]> = contents.certificates.iter().map(Certificate::der).collect();
    assert_eq!(read, [&own[..], &root]);
    assert!(matches!(pkcs12(&sealed, &secret("other"), Legacy::default()), Err(FileFault::Passphrase)));
    // The key of somebody else's certificate, and a passphrase that the library would cut off.
    assert_eq!(container::seal_pkcs12(&pkcs8, &root, &[], &secret("s3cret")), None);
    assert_eq!(container::seal_pkcs12(&pkcs8, &own, &[], &secret("s3\0cret")), None);
}
