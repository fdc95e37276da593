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
