//! Keys of `secrets.ike<suffix>` and `secrets.ppk<suffix>`, and the kinds of secrets that are not
//! built.

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::secret::Secret;

use super::Preset::Depends;
use super::conn::{pattern, ppk_identity};
use super::{Entry, Key, Kind, Table};
use super::{keys, text};
use crate::value;

keys! {
    /// Keys of `secrets.ike<suffix>`.
    IKE;
    SECRET: Secret = text("secret", Kind::Secret, Depends(""), value::secret,
        "the key itself: text, `0x` and hexadecimal, or `0s` and base64");
    ID: IdPattern = text("id", Kind::Identity, Depends(""), pattern,
        "also `id<suffix>`: whose it is; several allowed. Without any, the key serves every pair; otherwise the best match of both identities wins");
}

/// `secrets.ike<suffix>`. A name that begins with `id` is the key `id`.
pub(in crate::meaning) const IKE_TABLE: Table = Table { read: IKE, unused: &[] };

keys! {
    /// Keys of `secrets.ppk<suffix>`.
    PPK;
    PPK_SECRET: Secret = text("secret", Kind::Secret, Depends(""), value::secret,
        "the key itself, written as that of `ike<suffix>`; it should have at least 32 random bytes");
    PPK_ID: Option<Identity> = text("id", Kind::Identity, Depends(""), ppk_identity,
        "also `id<suffix>`: the identifier that goes to the peer, a name or `@#hex`; several allowed. It is compared byte by byte. Without any, the key serves every identifier that no other key has");
}

/// `secrets.ppk<suffix>`. A name that begins with `id` is the key `id`.
pub(in crate::meaning) const PPK_TABLE: Table = Table { read: PPK, unused: &[] };

/// Kinds of secrets that are passphrases of files with private keys.
pub(in crate::meaning) const PASSPHRASES: &[&str] = &["private", "rsa", "ecdsa", "pkcs8", "pkcs12"];

keys! {
    /// Keys of `secrets.private<suffix>` and its kin.
    PASSPHRASE;
    FILE: String = text("file", Kind::File, Depends(""), |t| Ok(t.trim().to_owned()),
        "name of the file in the folder that is named like the section: `private`, `rsa`, `ecdsa`, `pkcs8` or `pkcs12`");
    PHRASE: Secret = text("secret", Kind::Secret, Depends(""), value::secret,
        "the passphrase of the file, written as a shared key");
}

/// `secrets.private<suffix>` and its kin.
pub(in crate::meaning) const PASSPHRASE_TABLE: Table = Table { read: PASSPHRASE, unused: &[] };

/// Kinds of secrets that strongSwan knows and that are not built.
pub(in crate::meaning) const UNBUILT: &[&str] = &["eap", "xauth", "ntlm", "token", "bliss"];
