//! `psk`, `gen`, `pub`, `keyid`, and keys that other commands read.

use std::path::Path;

use ironswan_crypto::container;
use ironswan_crypto::sign::{Curve, KeyKind, Legacy, MIN_RSA_BITS, PrivateKey, PublicKey};
use serde_json::json;

use crate::args::{Gen, KeyId, KeyType, Keyid, Psk, Pub};
use crate::failure::Failure;
use crate::files::{self, Readers, Source};
use crate::kind::{self, Item};
use crate::passphrase;
use crate::wanted;
use crate::words::hex;

/// The longest modulus of RSA that is made, in bits: a longer one takes minutes.
const MAX_NEW_RSA: usize = 8192;
/// Label of a public key in PEM.
pub(crate) const PUBLIC_KEY: &str = "PUBLIC KEY";

/// Carries out `psk`.
pub(crate) fn psk(a: &Psk) -> Result<(), Failure> {
    let key = ironswan_config::random_psk();
    if a.json {
        return files::say(&format!("{:#}\n", json!({ "schema": "ironswan.pki/1", "psk": key.as_str() })));
    }
    files::write_bytes(None, false, format!("{}\n", key.as_str()).as_bytes(), Readers::Owner)
}

/// Carries out `gen`.
pub(crate) fn generate(a: &Gen) -> Result<(), Failure> {
    let kind = kind_of(a.kind, a.size)?;
    let name = a.output.out.as_ref().map_or("the key".into(), |path| path.display().to_string());
    let passphrase = if a.encrypt || a.passphrase_file.is_some() {
        Some(passphrase::new(a.passphrase_file.as_deref(), &name, "--passphrase-file")?)
    } else {
        None
    };
    let key = PrivateKey::generate(kind).map_err(|e| Failure::usage(format!("no key was made: {e}")))?;
    let pkcs8 = key.to_pkcs8().ok_or_else(|| Failure::internal("writing the key"))?;
    match passphrase {
        Some(passphrase) => {
            let sealed = container::seal_pkcs8(&pkcs8, &passphrase);
            let sealed = sealed.ok_or_else(|| Failure::internal("encrypting the key"))?;
            files::write(&a.output, "ENCRYPTED PRIVATE KEY", &sealed, Readers::Owner)?;
        }
        None => files::write(&a.output, "PRIVATE KEY", pkcs8.expose(), Readers::Owner)?,
    }
    let how = if a.encrypt || a.passphrase_file.is_some() { "encrypted" } else { "not encrypted" };
    files::made(a.output.out.as_deref(), &format!("private key, {kind}, {how}, mode 0600"))
}

fn kind_of(kind: KeyType, size: Option<usize>) -> Result<KeyKind, Failure> {
    Ok(match (kind, size) {
        (KeyType::Rsa, size) => {
            let bits = size.unwrap_or(3072);
            if !(MIN_RSA_BITS..=MAX_NEW_RSA).contains(&bits) || bits % 128 != 0 {
                return Err(Failure::usage(format!(
                    "--size {bits}: keys of RSA have {MIN_RSA_BITS} to {MAX_NEW_RSA} bits, a multiple of 128; 3072 is a good choice"
                )));
            }
            KeyKind::Rsa(bits)
        }
        (KeyType::Ecdsa, None | Some(256)) => KeyKind::Ecdsa(Curve::P256),
        (KeyType::Ecdsa, Some(384)) => KeyKind::Ecdsa(Curve::P384),
        (KeyType::Ecdsa, Some(521)) => KeyKind::Ecdsa(Curve::P521),
        (KeyType::Ecdsa, Some(size)) => {
            return Err(Failure::usage(format!("--size {size}: keys of ECDSA have 256, 384 or 521 bits")));
        }
        (KeyType::Ed25519, None | Some(256)) => KeyKind::Ed25519,
        (KeyType::Ed25519, Some(size)) => {
            return Err(Failure::usage(format!(
                "--size {size}: keys of Ed25519 have one size; leave --size out"
            )));
        }
    })
}

/// Carries out `pub`.
pub(crate) fn public(a: &Pub) -> Result<(), Failure> {
    let key = public_of(&files::read(a.input.path.as_deref())?, a.input.passphrase_file.as_deref())?;
    files::write(&a.output, PUBLIC_KEY, key.spki(), Readers::All)?;
    files::made(a.output.out.as_deref(), &format!("public key, {}", key.kind()))
}

/// Carries out `keyid`.
pub(crate) fn keyid(a: &Keyid) -> Result<(), Failure> {
    let key = public_of(&files::read(a.input.path.as_deref())?, a.input.passphrase_file.as_deref())?;
    let (of_key, of_info) = (hex(&key.id()), hex(&key.info()));
    files::say(&match a.id {
        Some(KeyId::Spk) => format!("{of_key}\n"),
        Some(KeyId::Spki) => format!("{of_info}\n"),
        None => format!(
            "key id (subjectKeyIdentifier)          {of_key}\nSHA-1 of subjectPublicKeyInfo          {of_info}\n"
        ),
    })
}

/// The public key of the first thing in a file that has one.
pub(crate) fn public_of(source: &Source, passphrase_file: Option<&Path>) -> Result<PublicKey, Failure> {
    let legacy = Legacy { short_rsa: true, ..Legacy::default() };
    let item = kind::items(source)?.into_iter().next();
    let key = match item {
        Some(Item::Public(key)) => Ok(*key),
        Some(Item::Private(key)) => return Ok(key.public().clone()),
        Some(Item::Locked) => return Ok(wanted::private_key(source, passphrase_file)?.public().clone()),
        Some(Item::Certificate(certificate)) => certificate.key(legacy),
        Some(Item::Request(request)) => request.key(legacy),
        Some(Item::List(_) | Item::Container) | None => {
            return Err(Failure::usage(format!(
                "{} holds no key: name a private key, public key, certificate or request",
                source.name
            )));
        }
    };
    key.map_err(|e| Failure::usage(format!("{} holds a key that cannot be used: {e}", source.name)))
}
