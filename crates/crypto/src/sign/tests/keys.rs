//! Keys go through their files, and sign what only they can have signed. The command line of
//! OpenSSL is the other implementation.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::testing::hex;

#[test]
fn a_key_signs_by_each_of_its_algorithms_and_only_the_signed_message_verifies() {
    for key in one_of_each() {
        let public = key.public();
        for scheme in schemes(public) {
            let signature = key.sign(scheme, WEAK, b"octets").expect("a signature");
            assert_eq!(public.verify(scheme, WEAK, b"octets", &signature), Ok(()), "{key:?} {scheme:?}");
            let wrong = public.verify(scheme, WEAK, b"octet", &signature);
            assert_eq!(wrong, Err(SignatureFault::Wrong), "{key:?} {scheme:?}");
            for at in [0, signature.len() / 2, signature.len() - 1] {
                let mut other = signature.clone();
                other[at] ^= 1;
                assert!(public.verify(scheme, WEAK, b"octets", &other).is_err(), "{key:?} {scheme:?} {at}");
            }
            for another in schemes(public).into_iter().filter(|other| *other != scheme) {
                assert!(
                    public.verify(another, WEAK, b"octets", &signature).is_err(),
                    "{scheme:?} {another:?}"
                );
            }
        }
    }
}

#[test]
fn sha_1_has_to_be_asked_for() {
    for key in one_of_each() {
        for scheme in schemes(key.public()).into_iter().filter(|scheme| scheme.hash() == Hash::Sha1) {
            assert_eq!(key.sign(scheme, STRICT, b"octets"), Err(SignatureFault::Sha1));
            let signature = key.sign(scheme, WEAK, b"octets").expect("a signature");
            let refused = key.public().verify(scheme, STRICT, b"octets", &signature);
            assert_eq!(refused, Err(SignatureFault::Sha1));
        }
        assert!(!key.public().hashes().contains(&Hash::Sha1));
    }
}

#[test]
fn a_key_does_not_sign_by_the_algorithm_of_another() {
    let keys = one_of_each();
    for key in &keys {
        let own = schemes(key.public());
        for scheme in keys.iter().flat_map(|other| schemes(other.public())) {
            let fits = own.contains(&scheme);
            assert_eq!(key.sign(scheme, WEAK, b"octets").is_ok(), fits, "{key:?} {scheme:?}");
            if !fits {
                let verdict = key.public().verify(scheme, WEAK, b"octets", &[0; 256]);
                assert_eq!(verdict, Err(SignatureFault::Scheme));
            }
        }
        for hash in key.public().hashes() {
            assert!(key.public().scheme(*hash, true).is_some(), "{key:?} {hash}");
        }
    }
}

#[test]
fn a_key_is_the_same_after_its_way_through_a_file() {
    for key in one_of_each() {
        let file = key.to_pkcs8().expect("a file");
        let again = PrivateKey::from_der(file.expose(), STRICT).expect("the same key");
        assert_eq!(again, key);
        assert!(again.to_pkcs8() == Some(file), "{key:?} is written in another way");
        let public = PublicKey::from_spki(key.public().spki(), STRICT).expect("the same key");
        assert_eq!(&public, key.public());
        let scheme = schemes(&public)[1 % schemes(&public).len()];
        let signature = again.sign(scheme, WEAK, b"octets").expect("a signature");
        assert_eq!(public.verify(scheme, WEAK, b"octets", &signature), Ok(()));
    }
}

#[test]
fn a_salt_that_does_not_fit_is_our_callers_fault() {
    let scheme = |salt_len| Scheme::RsaPss { hash: Hash::Sha256, salt_len };
    assert_eq!(RSA.sign(scheme(223), STRICT, b""), Err(SignatureFault::Scheme));
    let longest = RSA.sign(scheme(222), STRICT, b"").expect("a signature");
    assert_eq!(RSA.public().verify(scheme(222), STRICT, b"", &longest), Ok(()));
    assert_eq!(RSA.public().verify(scheme(223), STRICT, b"", &longest), Err(SignatureFault::Wrong));
    assert_eq!(RSA.public().verify(scheme(0xffff), STRICT, b"", &longest), Err(SignatureFault::Wrong));
}

#[test]
fn fingerprints_are_those_of_the_rfc_s_key() {
    // RFC 8410 section 10.1; the digests are those of sha1sum and sha256sum.
    let spki =
        hex("302a300506032b657003210019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1");
    let key = PublicKey::from_spki(&spki, STRICT).expect("a key");
    assert_eq!(key.spki(), spki);
    assert_eq!(key.key_bits(), &spki[12..]);
    assert_eq!(key.kind().to_string(), "Ed25519");
    let sum = |program: &str, bytes: &[u8]| {
        let dir = Folder::new("sums");
        let out = run(program, &[dir.put("bytes", bytes).to_str().expect("a path")]);
        hex(String::from_utf8_lossy(&out)
            .split_whitespace()
            .next()
            .expect("a digest")
            .trim_start_matches('\\'))
    };
    assert_eq!(key.id().to_vec(), sum("sha1sum", key.key_bits()));
    assert_eq!(key.info().to_vec(), sum("sha1sum", &spki));
    assert_eq!(key.fingerprint().to_vec(), sum("sha256sum", &spki));
}

/// A folder of its own for a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ironswan-sign-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a new folder");
        Self(path)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn put(&self, file: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(file), bytes).expect("a new file");
        self.path(file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program, and gives what it prints.
fn run(program: &str, words: &[&str]) -> Vec<u8> {
    let out = Command::new(program).args(words).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}; install the package that has it"));
    assert!(out.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

fn openssl(words: &[&str]) -> Vec<u8> {
    run("openssl", words)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Words of `openssl` for an algorithm. `None` for r | s, which it does not write.
fn words(scheme: Scheme) -> Option<Vec<String>> {
    let digest = match scheme.hash() {
        Hash::Sha1 => "sha1",
        Hash::Sha256 => "sha256",
        Hash::Sha384 => "sha384",
        Hash::Sha512 => "sha512",
        Hash::Identity => return Some(vec!["-rawin".into()]),
    };
    let mut words = vec!["-rawin".to_owned(), "-digest".into(), digest.into()];
    match scheme {
        Scheme::RsaPss { salt_len, .. } => {
            for option in ["rsa_padding_mode:pss".to_owned(), format!("rsa_pss_saltlen:{salt_len}")] {
                words.extend(["-pkeyopt".into(), option]);
            }
        }
        Scheme::EcdsaFixed(_) => return None,
        _ => {}
    }
    Some(words)
}

/// OpenSSL verifies what we sign, and we verify what OpenSSL signs, with keys that OpenSSL has made
/// and written in each of its forms.
#[test]
fn keys_and_signatures_are_those_of_openssl() {
    let dir = Folder::new("openssl");
    let (pem, der, public, message, signature) = (
        dir.path("key.pem"),
        dir.path("key.der"),
        dir.path("public.der"),
        dir.path("message"),
        dir.path("sig"),
    );
    std::fs::write(&message, b"octets").expect("a file");
    let mut checked = 0;
    for (kind, make, old) in [
        (
            KeyKind::Rsa(2048),
            &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"][..],
            Some(&["rsa", "-traditional"][..]),
        ),
        (
            KeyKind::Rsa(3072),
            &["RSA", "-pkeyopt", "rsa_keygen_bits:3072"],
            Some(&["rsa", "-traditional"][..]),
        ),
        (KeyKind::Ecdsa(Curve::P256), &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], Some(&["ec"])),
        (KeyKind::Ecdsa(Curve::P384), &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"], Some(&["ec"])),
        (KeyKind::Ecdsa(Curve::P521), &["EC", "-pkeyopt", "ec_paramgen_curve:P-521"], Some(&["ec"])),
        (KeyKind::Ed25519, &["ed25519"], None),
    ] {
        openssl(&[&["genpkey", "-out", text(&pem), "-algorithm"], make].concat());
        openssl(&["pkey", "-in", text(&pem), "-pubout", "-outform", "DER", "-out", text(&public)]);
        // PKCS#8.
        openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", text(&pem), "-outform", "DER", "-out", text(&der)]);
        let read = |path: &Path| std::fs::read(path).expect("a file of openssl");
        let key = PrivateKey::from_der(&read(&der), STRICT).expect("a key");
        assert_eq!((key.public().kind(), key.public().spki()), (kind, &read(&public)[..]));
        // OpenSSL takes the file that we write, and finds the same public key in it.
        std::fs::write(&der, key.to_pkcs8().expect("a file").expose()).expect("a file");
        let same = openssl(&["pkey", "-inform", "DER", "-in", text(&der), "-pubout", "-outform", "DER"]);
        assert_eq!(same, read(&public), "{kind}");
        openssl(&["pkey", "-inform", "DER", "-in", text(&der), "-check", "-noout"]);
        // PKCS#1 or SEC 1.
        if let Some(old) = old {
            openssl(&[old, &["-in", text(&pem), "-outform", "DER", "-out", text(&der)]].concat());
            let first = read(&der);
            assert!(first != key.to_pkcs8().expect("a file").expose(), "{kind}: PKCS#8 again");
            assert_eq!(PrivateKey::from_der(&first, STRICT).as_ref(), Ok(&key), "{kind}");
        }
        // Encrypted.
        openssl(&[
            "pkcs8",
            "-topk8",
            "-in",
            text(&pem),
            "-outform",
            "DER",
            "-out",
            text(&der),
            "-passout",
            "pass:x",
        ]);
        assert_eq!(PrivateKey::from_der(&read(&der), STRICT), Err(KeyFault::Encrypted));
        for scheme in schemes(key.public()) {
            let Some(options) = words(scheme) else { continue };
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let common = &["pkeyutl", "-in", text(&message)][..];
            openssl(&[common, &["-sign", "-inkey", text(&pem), "-out", text(&signature)], &options].concat());
            let theirs = read(&signature);
            assert_eq!(key.public().verify(scheme, WEAK, b"octets", &theirs), Ok(()), "{kind} {scheme:?}");
            let ours = key.sign(scheme, WEAK, b"octets").expect("a signature");
            std::fs::write(&signature, &ours).expect("a file");
            let verify = ["-verify", "-pubin", "-keyform", "DER", "-inkey", text(&public), "-sigfile"];
            openssl(&[common, &verify, &[text(&signature)], &options].concat());
            checked += 1;
        }
    }
    println!("{checked} algorithms with keys of openssl, both ways");
    assert!(checked >= 29, "only {checked}");
}

#[test]
fn keys_that_are_not_here_are_named() {
    let dir = Folder::new("others");
    let public = dir.path("public.der");
    let pem = dir.path("key.pem");
    for (make, why) in [
        (&["EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"][..], KeyFault::Curve),
        (&["EC", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1"], KeyFault::Curve),
        (
            &["EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit"],
            KeyFault::Curve,
        ),
        (&["RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"], KeyFault::Algorithm("RSASSA-PSS alone")),
        (&["RSA", "-pkeyopt", "rsa_keygen_bits:1024"], KeyFault::RsaSize(1024)),
        (&["ed448"], KeyFault::Algorithm("Ed448")),
        (&["x25519"], KeyFault::Algorithm("X25519")),
    ] {
        openssl(&[&["genpkey", "-out", text(&pem), "-algorithm"], make].concat());
        openssl(&["pkey", "-in", text(&pem), "-pubout", "-outform", "DER", "-out", text(&public)]);
        let spki = std::fs::read(&public).expect("a file");
        assert_eq!(PublicKey::from_spki(&spki, STRICT), Err(why), "{make:?}");
        openssl(&["pkey", "-in", text(&pem), "-outform", "DER", "-out", text(&public)]);
        let private = std::fs::read(&public).expect("a file");
        let refused = PrivateKey::from_der(&private, STRICT).expect_err("no key of ours");
        assert!(refused == why || make[0] == "EC" && refused == KeyFault::Malformed, "{make:?}: {refused:?}");
        if why == KeyFault::RsaSize(1024) {
            let legacy = Legacy { short_rsa: true, ..STRICT };
            assert_eq!(PublicKey::from_spki(&spki, legacy).map(|key| key.kind()), Ok(KeyKind::Rsa(1024)));
            assert!(PrivateKey::from_der(&private, legacy).is_ok());
        }
    }
}
