//! Keys of `authorities.<name>`.

use super::Preset::Depends;
use super::{Entry, Key, Kind, Table, UNSET, Unused};
use super::{keys, no_effect, only, text};

const FETCH: &str =
    "only places that certificates name are asked: put other revocation lists into the folder `x509crl`";
const TOKEN: &str = "tokens are not built; use `cacert` and remove this key";

keys! {
    /// Keys of `authorities.<name>`.
    AUTHORITY;
    CACERT: String = text("cacert", Kind::File, Depends(""), |t| Ok(t.trim().to_owned()),
        "file of the certificate of a CA, absolute or in the folder `x509ca`");
    FILE: String = text("file", Kind::File, Depends(""), |t| Ok(t.trim().to_owned()),
        "the same, absolute");
}

/// `authorities.<name>`.
pub(in crate::meaning) const AUTHORITY_TABLE: Table = Table { read: AUTHORITY, unused: AUTHORITY_UNUSED };

const AUTHORITY_UNUSED: &[Unused] = &[
    no_effect("crl_uris", FETCH),
    no_effect("ocsp_uris", FETCH),
    no_effect("cert_uri_base", "hash and URL is not built"),
    only("handle", UNSET, TOKEN),
    only("slot", UNSET, TOKEN),
    only("module", UNSET, TOKEN),
];
