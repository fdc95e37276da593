//! Keys of `authorities.<name>`.

use ironswan_keying::diagnosis::ValueFault;
use ironswan_pki::fetch::Place;

use super::super::super::tree::Value;
use super::super::super::value::{Wrong, wrong};
use super::Preset::Depends;
use super::{Entry, Key, Kind, Table, UNSET, Unused};
use super::{each, keys, list, no_effect, only, text};

const TOKEN: &str = "tokens are not built; use `cacert` and remove this key";

keys! {
    /// Keys of `authorities.<name>`.
    AUTHORITY;
    CACERT: String = text("cacert", Kind::File, Depends(""), |t| Ok(t.trim().to_owned()),
        "file of the certificate of a CA, absolute or in the folder `x509ca`");
    FILE: String = text("file", Kind::File, Depends(""), |t| Ok(t.trim().to_owned()),
        "the same, absolute");
    CRL_URIS: Vec<Place> = list("crl_uris", Kind::Uris, Depends(""), places,
        "places of revocation lists for the certificates that this CA has issued, beginning with `http://`. They are asked before those that a certificate names, and may be on this machine");
    OCSP_URIS: Vec<Place> = list("ocsp_uris", Kind::Uris, Depends(""), places,
        "responders of OCSP, likewise");
}

/// `authorities.<name>`.
pub(in crate::meaning) const AUTHORITY_TABLE: Table = Table { read: AUTHORITY, unused: AUTHORITY_UNUSED };

const AUTHORITY_UNUSED: &[Unused] = &[
    no_effect("cert_uri_base", "hash and URL is not built"),
    only("handle", UNSET, TOKEN),
    only("slot", UNSET, TOKEN),
    only("module", UNSET, TOKEN),
];

fn places(value: &Value) -> Result<Vec<Place>, Vec<Wrong>> {
    each(value, |uri| {
        Place::of_configuration(uri.as_bytes())
            .map_err(|_| wrong(uri, ValueFault::Not("a place of the web"), "write http://HOST/FILE"))
    })
}
