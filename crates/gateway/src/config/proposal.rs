//! Proposal strings in strongSwan's dialect: `aes128gcm16-prfsha256-curve25519`, `aes256-sha256-modp2048`, `default`.
//!
//! A token that is known and not built, and one that is not known, are errors that name it. Rules of RFC 7296
//! section 3.3 that a string can break (an AEAD with an integrity algorithm, no key exchange for IKE) are errors too.
//! With a classic cipher and no PRF the PRF follows the integrity algorithm, as in charon; with an AEAD it must be
//! written, as in charon.

use ironswan_wire::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};
use ironswan_wire::proposal::{Proposal, Transform};

use super::diag::nearest;
use super::value::show;

/// What a token stands for.
#[derive(Clone, Copy)]
enum Token {
    Is(Transform),
    /// Known to strongSwan, not built here; what to write instead.
    Unbuilt(&'static str),
}

use Token::{Is, Unbuilt};

const fn encr(id: EncrId, bits: u16) -> Token {
    Is(Transform::Encr(id, Some(bits)))
}

const GCM: EncrId = EncrId::AES_GCM_16;
const CBC: EncrId = EncrId::AES_CBC;
const SHORT_ICV: &str = "an ICV shorter than 16 bytes is not built; write aes128gcm16 or aes256gcm16";
const USE_AES: &str = "write aes128gcm16, aes256gcm16, chacha20poly1305, or aes128 or aes256 with sha256";
const USE_SHA2: &str = "write sha256, sha384 or sha512";
const USE_PRF: &str = "write prfsha256, prfsha384 or prfsha512";
const USE_KE: &str = "write curve25519, ecp256, ecp384, modp2048 or modp3072";
const PQ: &str = "additional key exchanges (RFC 9370) are not built; remove it";

const TOKENS: &[(&str, Token)] = &[
    ("aes", encr(CBC, 128)),
    ("aes128", encr(CBC, 128)),
    ("aes192", Unbuilt(USE_AES)),
    ("aes256", encr(CBC, 256)),
    ("aes128gcm16", encr(GCM, 128)),
    ("aes128gcm128", encr(GCM, 128)),
    ("aes256gcm16", encr(GCM, 256)),
    ("aes256gcm128", encr(GCM, 256)),
    ("aes192gcm16", Unbuilt(USE_AES)),
    ("aes192gcm128", Unbuilt(USE_AES)),
    ("aes128gcm8", Unbuilt(SHORT_ICV)),
    ("aes128gcm64", Unbuilt(SHORT_ICV)),
    ("aes128gcm12", Unbuilt(SHORT_ICV)),
    ("aes128gcm96", Unbuilt(SHORT_ICV)),
    ("aes192gcm8", Unbuilt(SHORT_ICV)),
    ("aes192gcm64", Unbuilt(SHORT_ICV)),
    ("aes192gcm12", Unbuilt(SHORT_ICV)),
    ("aes192gcm96", Unbuilt(SHORT_ICV)),
    ("aes256gcm8", Unbuilt(SHORT_ICV)),
    ("aes256gcm64", Unbuilt(SHORT_ICV)),
    ("aes256gcm12", Unbuilt(SHORT_ICV)),
    ("aes256gcm96", Unbuilt(SHORT_ICV)),
    ("aes128ctr", Unbuilt(USE_AES)),
    ("aes192ctr", Unbuilt(USE_AES)),
    ("aes256ctr", Unbuilt(USE_AES)),
    ("aes128ccm8", Unbuilt(USE_AES)),
    ("aes128ccm12", Unbuilt(USE_AES)),
    ("aes128ccm16", Unbuilt(USE_AES)),
    ("aes256ccm8", Unbuilt(USE_AES)),
    ("aes256ccm12", Unbuilt(USE_AES)),
    ("aes256ccm16", Unbuilt(USE_AES)),
    ("aes128gmac", Unbuilt(USE_AES)),
    ("aes256gmac", Unbuilt(USE_AES)),
    ("chacha20poly1305", Is(Transform::Encr(EncrId::CHACHA20_POLY1305, None))),
    ("3des", Unbuilt(USE_AES)),
    ("des", Unbuilt(USE_AES)),
    ("null", Unbuilt(USE_AES)),
    ("camellia", Unbuilt(USE_AES)),
    ("camellia128", Unbuilt(USE_AES)),
    ("camellia192", Unbuilt(USE_AES)),
    ("camellia256", Unbuilt(USE_AES)),
    ("blowfish", Unbuilt(USE_AES)),
    ("cast128", Unbuilt(USE_AES)),
    ("sha256", Is(Transform::Integ(IntegId::HMAC_SHA2_256_128))),
    ("sha2_256", Is(Transform::Integ(IntegId::HMAC_SHA2_256_128))),
    ("sha384", Is(Transform::Integ(IntegId::HMAC_SHA2_384_192))),
    ("sha2_384", Is(Transform::Integ(IntegId::HMAC_SHA2_384_192))),
    ("sha512", Is(Transform::Integ(IntegId::HMAC_SHA2_512_256))),
    ("sha2_512", Is(Transform::Integ(IntegId::HMAC_SHA2_512_256))),
    ("sha256_96", Unbuilt(USE_SHA2)),
    ("sha", Unbuilt(USE_SHA2)),
    ("sha1", Unbuilt(USE_SHA2)),
    ("sha1_160", Unbuilt(USE_SHA2)),
    ("md5", Unbuilt(USE_SHA2)),
    ("md5_128", Unbuilt(USE_SHA2)),
    ("aesxcbc", Unbuilt(USE_SHA2)),
    ("aescmac", Unbuilt(USE_SHA2)),
    ("prfsha256", Is(Transform::Prf(PrfId::HMAC_SHA2_256))),
    ("prfsha384", Is(Transform::Prf(PrfId::HMAC_SHA2_384))),
    ("prfsha512", Is(Transform::Prf(PrfId::HMAC_SHA2_512))),
    ("prfsha1", Unbuilt(USE_PRF)),
    ("prfmd5", Unbuilt(USE_PRF)),
    ("prfaesxcbc", Unbuilt(USE_PRF)),
    ("prfaescmac", Unbuilt(USE_PRF)),
    ("curve25519", Is(Transform::Ke(KeId::CURVE_25519))),
    ("x25519", Is(Transform::Ke(KeId::CURVE_25519))),
    ("ecp256", Is(Transform::Ke(KeId::ECP_256))),
    ("ecp384", Is(Transform::Ke(KeId::ECP_384))),
    ("modp2048", Is(Transform::Ke(KeId::MODP_2048))),
    ("modp3072", Is(Transform::Ke(KeId::MODP_3072))),
    ("modp768", Unbuilt(USE_KE)),
    ("modp1024", Unbuilt(USE_KE)),
    ("modp1536", Unbuilt(USE_KE)),
    ("modp4096", Unbuilt(USE_KE)),
    ("modp6144", Unbuilt(USE_KE)),
    ("modp8192", Unbuilt(USE_KE)),
    ("modp1024s160", Unbuilt(USE_KE)),
    ("modp2048s224", Unbuilt(USE_KE)),
    ("modp2048s256", Unbuilt(USE_KE)),
    ("modpnone", Unbuilt("leave the key exchange out instead")),
    ("ecp192", Unbuilt(USE_KE)),
    ("ecp224", Unbuilt(USE_KE)),
    ("ecp521", Unbuilt(USE_KE)),
    ("ecp224bp", Unbuilt(USE_KE)),
    ("ecp256bp", Unbuilt(USE_KE)),
    ("ecp384bp", Unbuilt(USE_KE)),
    ("ecp512bp", Unbuilt(USE_KE)),
    ("curve448", Unbuilt(USE_KE)),
    ("x448", Unbuilt(USE_KE)),
    ("mlkem512", Unbuilt(PQ)),
    ("mlkem768", Unbuilt(PQ)),
    ("mlkem1024", Unbuilt(PQ)),
    ("esn", Is(Transform::Esn(EsnId::ESN))),
    ("noesn", Is(Transform::Esn(EsnId::NO_ESN))),
];

/// IKE's `default`: AEADs first, then AES-CBC with HMAC-SHA2 for peers without them.
const IKE_DEFAULT: &[&str] = &[
    "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-curve25519-ecp256-ecp384-modp3072-modp2048",
    "aes128-aes256-sha256-sha384-sha512-prfsha256-prfsha384-prfsha512-curve25519-ecp256-ecp384-modp3072-modp2048",
];

/// ESP's `default`. Extended sequence numbers are preferred: at 10 Gb/s of small packets 32 bits last five minutes.
const ESP_DEFAULT: &[&str] =
    &["aes128gcm16-aes256gcm16-chacha20poly1305-esn-noesn", "aes128-aes256-sha256-sha384-sha512-esn-noesn"];

/// Proposals are numbered by one byte from 1 (RFC 7296 section 3.3.1).
const MAX_PROPOSALS: usize = 255;

/// A list of strings to proposals for IKE or ESP, numbered from 1. The errors name the string.
pub(super) fn list<'a>(
    items: impl Iterator<Item = &'a str>,
    protocol: ProtocolId,
) -> Result<Vec<Proposal>, Vec<String>> {
    let mut out: Vec<Proposal> = Vec::new();
    let mut errors = Vec::new();
    let all = if protocol == ProtocolId::IKE { IKE_DEFAULT } else { ESP_DEFAULT };
    for item in items {
        let one_item = [item];
        let texts = if item.eq_ignore_ascii_case("default") { all } else { &one_item[..] };
        for text in texts {
            match one(text, protocol) {
                Ok(_) if out.len() >= MAX_PROPOSALS => {
                    errors.push(format!("more than {MAX_PROPOSALS} proposals"))
                }
                Ok(transforms) => {
                    let number = (out.len() + 1) as u8;
                    out.push(Proposal { number, protocol, spi: Vec::new(), transforms });
                }
                Err(e) => errors.push(e),
            }
        }
        if errors.len() > 10 {
            break;
        }
    }
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

/// `default`.
pub(super) fn default_list(protocol: ProtocolId) -> Vec<Proposal> {
    list(std::iter::once("default"), protocol).unwrap_or_default()
}

fn one(text: &str, protocol: ProtocolId) -> Result<Vec<Transform>, String> {
    let whole = show(text);
    let mut transforms: Vec<Transform> = Vec::new();
    for token in text.split('-') {
        let token = token.trim().to_ascii_lowercase();
        let t = transform(&token).map_err(|e| format!("`{whole}`: {e}"))?;
        if !transforms.contains(&t) {
            transforms.push(t);
        }
        if transforms.len() > 64 {
            return Err(format!("`{whole}`: more than 64 algorithms"));
        }
    }
    complete(transforms, protocol).map_err(|e| format!("`{whole}`: {e}"))
}

fn transform(token: &str) -> Result<Transform, String> {
    if token.is_empty() {
        return Err("an empty algorithm name; write names with one hyphen between them".to_owned());
    }
    if let Some((_, t)) = TOKENS.iter().find(|(name, _)| *name == token) {
        return match t {
            Is(t) => Ok(*t),
            Unbuilt(remedy) => Err(format!("{token} is not built yet; {remedy}")),
        };
    }
    let additional = token.strip_prefix("ke").and_then(|r| r.split_once('_'));
    if additional.is_some_and(|(n, _)| matches!(n, "1" | "2" | "3" | "4" | "5" | "6" | "7")) {
        return Err(format!("{} is not built yet; {PQ}", show(token)));
    }
    let near = nearest(token, TOKENS.iter().filter(|(_, t)| matches!(t, Is(_))).map(|(n, _)| *n));
    let hint = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    Err(format!("{} is not a known algorithm{hint}", show(token)))
}

/// Checks what a proposal must have, adds what follows from it, and puts it in the order in which charon logs it.
fn complete(mut t: Vec<Transform>, protocol: ProtocolId) -> Result<Vec<Transform>, String> {
    let has = |t: &[Transform], kind| t.iter().any(|x| x.kind() == kind);
    let ciphers = t.iter().filter_map(|x| if let Transform::Encr(id, _) = x { Some(*id) } else { None });
    let (aead, classic): (Vec<EncrId>, Vec<EncrId>) = ciphers.partition(|id| id.is_aead());
    if aead.is_empty() && classic.is_empty() {
        return Err("an encryption algorithm is missing; for example aes128gcm16".to_owned());
    }
    if !aead.is_empty() && !classic.is_empty() {
        return Err(
            "AES-GCM or ChaCha20-Poly1305 cannot be in one proposal with AES-CBC (RFC 7296 section 3.3); \
                    write two proposals with a comma between them"
                .to_owned(),
        );
    }
    let integ = has(&t, TransformType::INTEG);
    if !aead.is_empty() && integ {
        return Err(
            "AES-GCM and ChaCha20-Poly1305 take no integrity algorithm (RFC 5282 section 8); remove it"
                .to_owned(),
        );
    }
    if aead.is_empty() && !integ {
        return Err("an integrity algorithm is missing; add sha256".to_owned());
    }
    if protocol == ProtocolId::IKE {
        if has(&t, TransformType::ESN) {
            return Err("esn and noesn are for esp_proposals".to_owned());
        }
        if !has(&t, TransformType::KE) {
            return Err("a key exchange is missing; add curve25519, ecp256 or modp2048".to_owned());
        }
        if !has(&t, TransformType::PRF) {
            if !aead.is_empty() {
                return Err("a PRF is missing, which an AEAD does not imply; add prfsha256".to_owned());
            }
            let implied: Vec<Transform> = t
                .iter()
                .filter_map(|x| match x {
                    Transform::Integ(IntegId::HMAC_SHA2_256_128) => {
                        Some(Transform::Prf(PrfId::HMAC_SHA2_256))
                    }
                    Transform::Integ(IntegId::HMAC_SHA2_384_192) => {
                        Some(Transform::Prf(PrfId::HMAC_SHA2_384))
                    }
                    Transform::Integ(IntegId::HMAC_SHA2_512_256) => {
                        Some(Transform::Prf(PrfId::HMAC_SHA2_512))
                    }
                    _ => None,
                })
                .collect();
            t.extend(implied);
        }
    } else {
        if has(&t, TransformType::PRF) {
            return Err("a PRF is for proposals of the IKE_SA; remove it".to_owned());
        }
        if !has(&t, TransformType::ESN) {
            t.push(Transform::Esn(EsnId::NO_ESN));
        }
    }
    let rank = |x: &Transform| match x.kind() {
        TransformType::ENCR => 0,
        TransformType::INTEG => 1,
        TransformType::PRF => 2,
        TransformType::KE => 3,
        _ => 4,
    };
    t.sort_by_key(rank);
    Ok(t)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ike(text: &str) -> Result<String, Vec<String>> {
        list(text.split(','), ProtocolId::IKE)
            .map(|l| l.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    fn esp(text: &str) -> Result<String, Vec<String>> {
        list(text.split(','), ProtocolId::ESP)
            .map(|l| l.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn strings_become_what_charon_logs() {
        assert_eq!(
            ike("aes128gcm16-prfsha256-curve25519").unwrap(),
            "IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519"
        );
        assert_eq!(
            ike("aes256-sha256-modp2048").unwrap(),
            "IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048"
        );
        assert_eq!(esp("AES128GCM16").unwrap(), "ESP:AES_GCM_16_128/NO_EXT_SEQ");
        assert_eq!(
            esp("chacha20poly1305-x25519-esn,aes256-sha512").unwrap(),
            "ESP:CHACHA20_POLY1305/CURVE_25519/EXT_SEQ ESP:AES_CBC_256/HMAC_SHA2_512_256/NO_EXT_SEQ"
        );
    }

    #[test]
    fn both_defaults_are_complete_and_numbered() {
        for p in [ProtocolId::IKE, ProtocolId::ESP] {
            let d = default_list(p);
            assert_eq!(d.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2]);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        let err = |r: Result<String, Vec<String>>| r.unwrap_err().remove(0);
        assert!(err(ike("aes128gcm61-prfsha256-curve25519")).contains("did you mean `aes128gcm16`?"));
        assert!(err(ike("aes128gcm8-prfsha256-ecp256")).contains("aes128gcm8 is not built yet"));
        assert!(err(ike("aes128gcm16-curve25519")).contains("add prfsha256"));
        assert!(err(ike("aes128-sha256")).contains("a key exchange is missing"));
        assert!(err(ike("aes128-modp2048")).contains("an integrity algorithm is missing"));
        assert!(err(ike("aes128gcm16-aes128-sha256-ecp256")).contains("write two proposals"));
        assert!(err(ike("aes128gcm16-ke1_mlkem768-prfsha256-x25519")).contains("RFC 9370"));
        assert!(err(esp("aes128gcm16-sha256")).contains("no integrity algorithm"));
        assert!(err(esp("aes128gcm16-prfsha256")).contains("a PRF is for"));
        assert!(err(esp("sha256")).contains("an encryption algorithm is missing"));
        assert!(err(esp("aes128--sha256")).contains("an empty algorithm name"));
        assert!(ike(&vec!["aes128-sha256-ecp256"; 300].join(",")).is_err());
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<_> = TOKENS.iter().map(|(n, _)| *n).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
