//! `pki`: keys for people. Today a random pre-shared key.

use serde_json::json;

use crate::args::Pki;
use crate::failure::Failure;
use crate::json;

/// Carries out `pki`.
pub(crate) fn pki(a: &Pki) -> Result<(), Failure> {
    let key = ironswan_config::random_psk();
    if a.json {
        json::print("pki", json!({ "psk": key.as_str() }));
    } else {
        say!("{}", key.as_str());
    }
    Ok(())
}
