//! Tests of the table of algorithms, and of the manual's copy of it.

use ironswan_wire::requirement::Level;

use super::*;

#[test]
fn no_word_is_listed_twice() {
    let mut words: Vec<_> = WORDS.iter().map(|(n, _)| *n).collect();
    words.sort_unstable();
    let count = words.len();
    words.dedup();
    assert_eq!(words.len(), count);
}

#[test]
fn everything_that_crypto_has_can_be_written() {
    // Implicit IVs have no word in strongSwan's language, and nobody to negotiate them with.
    let unwritten = [EncrId::AES_CCM_8_IIV, EncrId::AES_GCM_16_IIV, EncrId::CHACHA20_POLY1305_IIV];
    for protocol in PROTOCOLS {
        for id in EncrId::ALL {
            let lengths: &[Option<u16>] =
                if id.has_key_length() { &[Some(128), Some(192), Some(256)] } else { &[None] };
            for t in lengths.iter().map(|bits| Transform::Encr(*id, *bits)) {
                let can = carries(protocol, &t) && !unwritten.contains(id);
                let written = word(&t, protocol).filter(|_| carries(protocol, &t)).is_some();
                assert_eq!(written, can, "{protocol} {t}");
            }
        }
        for id in IntegId::ALL {
            let t = Transform::Integ(*id);
            assert!(!carries(protocol, &t) || word(&t, protocol).is_some(), "{protocol} {t}");
        }
        for id in PrfId::ALL {
            let t = Transform::Prf(*id);
            assert!(!carries(protocol, &t) || word(&t, protocol).is_some(), "{protocol} {t}");
        }
        for id in KeId::ALL {
            let t = Transform::Ke(*id);
            assert!(!carries(protocol, &t) || word(&t, protocol).is_some(), "{protocol} {t}");
        }
    }
}

#[test]
fn what_must_be_implemented_is() {
    for (protocol, transform) in [
        (ProtocolId::ESP, Transform::Encr(EncrId::NULL, None)),
        (ProtocolId::ESP, Transform::Encr(EncrId::AES_CBC, Some(256))),
        (ProtocolId::ESP, Transform::Encr(EncrId::AES_GCM_16, Some(128))),
        (ProtocolId::ESP, Transform::Integ(IntegId::HMAC_SHA1_96)),
        (ProtocolId::AH, Transform::Integ(IntegId::HMAC_SHA2_256_128)),
        (ProtocolId::IKE, Transform::Encr(EncrId::AES_CBC, Some(128))),
        (ProtocolId::IKE, Transform::Prf(PrfId::HMAC_SHA2_256)),
        (ProtocolId::IKE, Transform::Prf(PrfId::HMAC_SHA1)),
        (ProtocolId::IKE, Transform::Integ(IntegId::HMAC_SHA1_96)),
        (ProtocolId::IKE, Transform::Ke(KeId::MODP_2048)),
    ] {
        assert!(
            requirement(protocol, &transform).unwrap().level >= Level::MustMinus,
            "{protocol} {transform}"
        );
        assert!(carries(protocol, &transform), "{protocol} {transform}");
    }
    for (protocol, transform) in [
        (ProtocolId::IKE, Transform::Encr(EncrId::NULL, None)),
        (ProtocolId::IKE, Transform::Prf(PrfId::HMAC_MD5)),
        (ProtocolId::IKE, Transform::Ke(KeId::CURVE_448)),
        (ProtocolId::IKE, Transform::Encr(EncrId::AES_GCM_16_IIV, Some(128))),
        (ProtocolId::IKE, Transform::Esn(EsnId::ESN)),
        (ProtocolId::AH, Transform::Encr(EncrId::AES_CBC, Some(128))),
        (ProtocolId::ESP, Transform::Prf(PrfId::HMAC_SHA2_256)),
        (ProtocolId::ESP, Transform::Integ(IntegId::AES_128_GMAC)),
        (ProtocolId::ESP, Transform::Unknown { kind: 1, id: 99 }),
    ] {
        assert!(!carries(protocol, &transform), "{protocol} {transform}");
    }
}

/// The tables of `docs/manual/algorithms.md`.
fn page() -> String {
    let mut out = String::new();
    for kind in [Kind::Aead, Kind::Cipher, Kind::Integrity, Kind::Prf, Kind::KeyExchange] {
        let heading = match kind {
            Kind::Aead => "Encryption with integrity (AEAD)",
            Kind::Cipher => "Encryption; needs an integrity algorithm beside it",
            Kind::Integrity => "Integrity",
            Kind::Prf => "Pseudo-random functions",
            Kind::KeyExchange => "Key exchange",
        };
        out += &format!(
            "## {heading}\n\n| word | also | algorithm | ESP | AH | IKEv2 |\n|---|---|---|---|---|---|\n"
        );
        for a in algorithms().iter().filter(|a| a.kind == kind) {
            let words: Vec<String> = a.words.iter().map(|w| format!("`{w}`")).collect();
            let levels = a.levels.map(|l| l.map_or_else(|| "-".to_owned(), |r| level(&r)));
            out += &format!(
                "| {} | {} | {} | {} |\n",
                words[0],
                words[1..].join(", "),
                a.name,
                levels.join(" | ")
            );
        }
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n"
}

fn level(r: &Requirement) -> String {
    format!("{}{}", r.level, r.notes())
}

#[test]
fn the_manual_has_the_same_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/algorithms.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let tables = manual.find("## Encryption with").map_or("", |at| &manual[at..]);
    assert!(tables == page(), "docs/manual/algorithms.md must end in:\n\n{}", page());
}
