//! `authorities`: CAs whose certificates are trusted. The files that they name are read with those
//! of the folders (`certfiles`).

use ironswan_keying::diagnosis::Configuration;
use ironswan_pki::fetch::{Place, Places};

use super::super::diag::Diagnostics;
use super::super::tree::{Node, Section};
use super::Reader;
use super::keys::authority as k;
use super::keys::{self, Key, join};

/// Places that a section of `authorities` names, as far as they can be understood. [`authorities`]
/// reports the others.
pub fn places(section: &Section) -> Places {
    let of = |key: &Key<Vec<Place>>| {
        let value = section.value(key.name()).filter(|value| !value.is_empty());
        value.and_then(|value| key.understand(value).ok()).unwrap_or_default()
    };
    Places { lists: of(&k::CRL_URIS), responders: of(&k::OCSP_URIS) }
}

/// Checks the `authorities` section.
pub fn authorities(section: &Section, diags: &mut Diagnostics) {
    for (name, node) in section.entries() {
        let path = join("authorities", name);
        let Node::Section(s) = node else {
            diags.error(node.origin(), &path, Configuration::KeyForSection { name: name.to_owned() });
            continue;
        };
        keys::check(s, &path, k::AUTHORITY_TABLE, diags, |_, _, _| false, &[]);
        let mut r = Reader { section: s, path: &path, diags };
        r.written(&k::CRL_URIS);
        r.written(&k::OCSP_URIS);
        let named = [r.written(&k::CACERT), r.written(&k::FILE)].into_iter().flatten().any(|t| !t.is_empty());
        if !named {
            diags.error(
                &s.origin,
                &path,
                Configuration::MissingSection { write: "cacert = FILE".to_owned() },
            );
        }
    }
}
