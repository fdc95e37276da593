//! Key files under a passphrase: encrypted PKCS#8 (RFC 5958 section 3) and PKCS#12 (RFC 7292).
//!
//! A file says how often its passphrase is hashed, up to 100 million times. Whoever opens a file
//! that comes from outside looks at that number first (`ironswan_pki::key_file` does).

use ironswan_wire::secret::Secret;

use crate::engine::aws_lc_sys::container;
use crate::wipe;

/// Bytes of the stack that are overwritten after work with a key.
const STACK: usize = 32 * 1024;

/// Opens `EncryptedPrivateKeyInfo`. Returns PKCS#8, not encrypted. `None` when the passphrase is
/// wrong, or the bytes or the kind of the key are not known.
pub fn open_pkcs8(der: &[u8], passphrase: &Secret) -> Option<Secret> {
    wipe::after::<STACK, _>(|| container::open_pkcs8(der, passphrase))
}

/// Opens PKCS#12: the private key as PKCS#8, if there is one, and the certificates in DER. `None`
/// when the passphrase is wrong or has a zero byte, or the bytes are not known.
pub fn open_pkcs12(der: &[u8], passphrase: &Secret) -> Option<(Option<Secret>, Vec<Vec<u8>>)> {
    wipe::after::<STACK, _>(|| container::open_pkcs12(der, passphrase))
}

/// Encrypts a private key in PKCS#8: `EncryptedPrivateKeyInfo` by AES-256-CBC. `None` when the
/// bytes are no key that is known.
pub fn seal_pkcs8(pkcs8: &Secret, passphrase: &Secret) -> Option<Vec<u8>> {
    wipe::after::<STACK, _>(|| container::seal_pkcs8(pkcs8.expose(), passphrase))
}

/// Makes PKCS#12 of a private key in PKCS#8, its certificate, and other certificates, both in DER.
/// All is encrypted by 3DES, as every reader knows it. `None` when the key is not that of the
/// certificate, or the passphrase has a zero byte.
pub fn seal_pkcs12(
    pkcs8: &Secret,
    certificate: &[u8],
    others: &[&[u8]],
    passphrase: &Secret,
) -> Option<Vec<u8>> {
    wipe::after::<STACK, _>(|| container::seal_pkcs12(pkcs8, certificate, others, passphrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::{Curve, KeyKind, Legacy, PrivateKey};

    #[test]
    fn a_sealed_key_opens_by_its_passphrase_alone() {
        let (right, wrong) = (Secret::new(b"correct horse".to_vec()), Secret::new(b"battery".to_vec()));
        for kind in [KeyKind::Rsa(2048), KeyKind::Ecdsa(Curve::P384), KeyKind::Ed25519] {
            let key = PrivateKey::generate(kind).expect("a key");
            let pkcs8 = key.to_pkcs8().expect("memory");
            let sealed = seal_pkcs8(&pkcs8, &right).expect("sealed");
            assert!(!sealed.windows(16).any(|part| pkcs8.expose().windows(16).last() == Some(part)));
            assert!(open_pkcs8(&sealed, &wrong).is_none());
            let opened = open_pkcs8(&sealed, &right).expect("the passphrase");
            assert_eq!(PrivateKey::from_der(opened.expose(), Legacy::default()), Ok(key));
        }
        assert!(seal_pkcs8(&Secret::new(b"no key".to_vec()), &right).is_none());
    }
}
