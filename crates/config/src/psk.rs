//! Pre-shared keys as people write them: a random one, and those that stand in a document and so
//! are known to everybody.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ironswan_crypto::rng::Rng;
use ironswan_wire::secret::{Secret, ct_eq};
use zeroize::Zeroizing;

/// Length of a random key in bytes: that of the output of HMAC-SHA2-256, which is more than anybody
/// can guess.
const RANDOM: usize = 32;

/// The keys of our documents, those of older versions too. Everybody can read them, so they keep
/// nobody out.
const DOCUMENTED: [&[u8]; 2] = [b"the-key-that-pki-printed", b"Base64 instead of text, 32 bytes"];

/// A random key in the form that `secret =` takes: `0s` and base64.
pub fn random(rng: &mut dyn Rng) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; RANDOM]);
    rng.fill(&mut *bytes);
    let mut text = Zeroizing::new(String::with_capacity(2 + RANDOM.div_ceil(3) * 4));
    text.push_str("0s");
    BASE64_STANDARD.encode_string(*bytes, &mut text);
    text
}

/// True for a key that stands in our documents.
pub fn is_documented(key: &Secret) -> bool {
    DOCUMENTED.iter().any(|known| ct_eq(known, key.expose()))
}

#[cfg(test)]
mod tests {
    use ironswan_crypto::rng::System;
    use ironswan_keying::diagnosis::Configuration;

    use super::super::diag::{Diagnostics, Severity};
    use super::super::{check, load_files, value};
    use super::*;

    #[test]
    fn a_random_key_has_32_bytes_and_is_read_as_it_was_made() {
        let (a, b) = (random(&mut System), random(&mut System));
        assert_ne!(a, b);
        assert_eq!((a.len(), value::secret(&a).unwrap().expose().len()), (46, 32));
        assert!(!is_documented(&value::secret(&a).unwrap()));
    }

    #[test]
    fn a_key_of_the_documents_is_an_error_to_a_check_and_a_warning_at_load() {
        let dir = ironswan_testkit::scratch::Scratch::new();
        let text = "secrets {\n ike-a {\n secret = the-key-that-pki-printed\n }\n}\n";
        let file = dir.write("swanctl.conf", text);
        for (severity, errors) in [(Severity::Error, 1), (Severity::Warning, 0)] {
            let mut diags = Diagnostics::default();
            let config =
                load_files(ironswan_testkit::clock::now, std::slice::from_ref(&file), &mut diags).unwrap();
            check::documented(&config, severity, &mut diags);
            let found: Vec<_> =
                diags.iter().filter(|d| d.diagnosis == Configuration::DocumentedSecret.into()).collect();
            assert_eq!((found.len(), diags.errors()), (1, errors));
            assert_eq!(found[0].origin.as_ref().unwrap().line, 3);
        }
    }

    #[test]
    fn every_key_of_the_documents_is_known_as_such() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = 0;
        for page in [
            "README.md",
            "docs/manual/configuration.md",
            "docs/manual/operations.md",
            "docs/manual/site-to-site.md",
            "docs/manual/host-to-host.md",
        ] {
            let text = std::fs::read_to_string(root.join(page)).unwrap();
            for key in text.lines().filter_map(|l| l.trim().strip_prefix("secret = ")) {
                let key = key.split('#').next().unwrap().trim();
                // A value in quotes shows how to quote.
                if key.starts_with(['"', '$']) {
                    continue;
                }
                assert!(is_documented(&value::secret(key).unwrap()), "{page}: {key}");
                found += 1;
            }
        }
        assert!(found > 0);
    }
}
