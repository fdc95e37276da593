//! Proposal strings in strongSwan's dialect: `aes128gcm16-prfsha256-curve25519`, `aes256-sha256-modp2048`, `default`.
//!
//! A token that is known and not built, one that is not known, and one that is of no use in this protocol are errors that name
//! it. Rules that a string can break (RFC 7296 section 3.3, RFC 8221 section 4: an AEAD with an integrity algorithm, no key
//! exchange for IKE, encryption without integrity) are errors too. With a classic cipher and no PRF the PRF follows the
//! integrity algorithm, as in charon; with an AEAD it must be written, as in charon. Not here: the words (`algorithms`).

use ironswan_wire::iana::{EncrId, EsnId, IntegId, PrfId, ProtocolId, TransformType};
use ironswan_wire::proposal::{Proposal, Transform};

use super::algorithms::{ADDITIONAL, Token, WORDS, carries, in_protocol, word};
use super::diag::nearest;
use super::value::{NAMES_NOTHING, show};

/// IKE's `default`: AEADs first, then AES-CBC with HMAC-SHA2 for peers without them.
const IKE_DEFAULT: &[&str] = &[
    "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-curve25519-ecp256-ecp384-modp3072-modp2048",
    "aes128-aes256-sha256-sha384-sha512-prfsha256-prfsha384-prfsha512-curve25519-ecp256-ecp384-modp3072-modp2048",
];

/// ESP's `default`. Extended sequence numbers are preferred: at 10 Gb/s of small packets 32 bits last five minutes.
const ESP_DEFAULT: &[&str] =
    &["aes128gcm16-aes256gcm16-chacha20poly1305-esn-noesn", "aes128-aes256-sha256-sha384-sha512-esn-noesn"];

/// AH's `default`.
const AH_DEFAULT: &[&str] = &["sha256-sha384-sha512-esn-noesn"];

/// Proposals are numbered by one byte from 1 (RFC 7296 section 3.3.1).
const MAX_PROPOSALS: usize = 255;
/// A peer that is one of us takes no more than this for an IKE_SA, and so many transforms in one payload.
const MAX_IKE_PROPOSALS: usize = 64;
const MAX_TRANSFORMS: usize = 512;

/// A list of strings to proposals for IKE, ESP or AH, numbered from 1. The errors name the string.
pub(super) fn list<'a>(
    items: impl Iterator<Item = &'a str>,
    protocol: ProtocolId,
) -> Result<Vec<Proposal>, Vec<String>> {
    let mut out: Vec<Proposal> = Vec::new();
    let mut errors = Vec::new();
    let all = match protocol {
        ProtocolId::IKE => IKE_DEFAULT,
        ProtocolId::AH => AH_DEFAULT,
        _ => ESP_DEFAULT,
    };
    let max = if protocol == ProtocolId::IKE { MAX_IKE_PROPOSALS } else { MAX_PROPOSALS };
    for item in items {
        let one_item = [item];
        let texts = if item.eq_ignore_ascii_case("default") { all } else { &one_item[..] };
        for text in texts {
            match one(text, protocol) {
                Ok(_) if out.len() >= max => errors.push(format!("more than {max} proposals")),
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
    if out.is_empty() && errors.is_empty() {
        errors.push(NAMES_NOTHING.to_owned());
    }
    errors.extend(too_many(&out));
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

/// A sentence about proposals that do not go into one payload.
pub(super) fn too_many(list: &[Proposal]) -> Option<String> {
    let transforms: usize = list.iter().map(|p| p.transforms.len()).sum();
    if list.len() > MAX_PROPOSALS {
        return Some(format!("more than {MAX_PROPOSALS} proposals, with those for the other protocol"));
    }
    (transforms > MAX_TRANSFORMS)
        .then(|| format!("more than {MAX_TRANSFORMS} algorithms in all proposals together; write fewer"))
}

/// Puts lists of several protocols into one, numbered from 1 in this order; or says that they are too many.
pub(super) fn join(lists: impl IntoIterator<Item = Vec<Proposal>>) -> Result<Vec<Proposal>, String> {
    let all: Vec<Proposal> = lists.into_iter().flatten().collect();
    match too_many(&all) {
        None => Ok(all.into_iter().zip(1..=u8::MAX).map(|(p, number)| Proposal { number, ..p }).collect()),
        Some(why) => Err(why),
    }
}

fn one(text: &str, protocol: ProtocolId) -> Result<Vec<Transform>, String> {
    let whole = show(text);
    let mut transforms: Vec<Transform> = Vec::new();
    for token in text.split('-') {
        let token = token.trim().to_ascii_lowercase();
        let t = transform(&token, protocol).map_err(|e| format!("`{whole}`: {e}"))?;
        if !transforms.contains(&t) {
            transforms.push(t);
        }
        if transforms.len() > 64 {
            return Err(format!("`{whole}`: more than 64 algorithms"));
        }
    }
    complete(transforms, protocol).map_err(|e| format!("`{whole}`: {e}"))
}

fn transform(token: &str, protocol: ProtocolId) -> Result<Transform, String> {
    if token.is_empty() {
        return Err("an empty algorithm name; write names with one hyphen between them".to_owned());
    }
    if let Some((_, t)) = WORDS.iter().find(|(name, _)| *name == token) {
        return match t {
            Token::Is(t) => {
                let t = in_protocol(*t, protocol);
                if carries(protocol, &t) { Ok(t) } else { Err(misplaced(token, &t, protocol)) }
            }
            Token::Unbuilt(remedy) => Err(format!("{token} is not built; {remedy}")),
        };
    }
    let additional = token.strip_prefix("ke").and_then(|r| r.split_once('_'));
    if additional.is_some_and(|(n, _)| matches!(n, "1" | "2" | "3" | "4" | "5" | "6" | "7")) {
        return Err(format!("{} is not built; {ADDITIONAL}", show(token)));
    }
    if let Some(explicit) = token.strip_suffix("iiv").map(|t| t.trim_end_matches('_'))
        && WORDS.iter().any(|(name, _)| *name == explicit)
    {
        // The engine has them; no daemon has a word for them that others would understand.
        return Err(format!("implicit IVs (RFC 8750) cannot be negotiated yet; write {explicit}"));
    }
    let usable = |t: &Token| matches!(t, Token::Is(t) if carries(protocol, &in_protocol(*t, protocol)));
    let near = nearest(token, WORDS.iter().filter(|(_, t)| usable(t)).map(|(n, _)| *n));
    let hint = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    Err(format!("{} is not a known algorithm{hint}", show(token)))
}

/// Why a transform that is known cannot be in a proposal of this protocol.
fn misplaced(token: &str, t: &Transform, protocol: ProtocolId) -> String {
    match (t, protocol) {
        (Transform::Prf(_), ProtocolId::ESP | ProtocolId::AH) => {
            "a PRF is for proposals of the IKE_SA; remove it".to_owned()
        }
        (Transform::Esn(_), _) => "esn and noesn are for esp_proposals and ah_proposals".to_owned(),
        (Transform::Encr(..), ProtocolId::AH) => format!(
            "{token} encrypts, which AH does not; name an integrity algorithm such as sha256, or write esp_proposals"
        ),
        (Transform::Encr(EncrId::NULL | EncrId::NULL_AES_GMAC, _), ProtocolId::IKE) => {
            format!("{token} leaves IKE messages readable; it is for esp_proposals, write aes128gcm16 here")
        }
        (Transform::Encr(..), _) => {
            format!("{token} is not built for the IKE_SA; write aes128gcm16, or aes128 with sha256")
        }
        (Transform::Integ(_), _) => format!("{token} is not built for the IKE_SA; write sha256"),
        (Transform::Prf(_), _) => format!("{token} is not built; write prfsha256"),
        _ => format!("{token} is not built; write x25519, ecp256, ecp384, modp2048 or modp3072"),
    }
}

/// The PRF that goes with an integrity algorithm when none is written.
fn implied_prf(integ: IntegId) -> Option<PrfId> {
    Some(match integ {
        IntegId::HMAC_MD5_96 => PrfId::HMAC_MD5,
        IntegId::HMAC_SHA1_96 => PrfId::HMAC_SHA1,
        IntegId::AES_XCBC_96 => PrfId::AES128_XCBC,
        IntegId::AES_CMAC_96 => PrfId::AES128_CMAC,
        IntegId::HMAC_SHA2_256_128 => PrfId::HMAC_SHA2_256,
        IntegId::HMAC_SHA2_384_192 => PrfId::HMAC_SHA2_384,
        IntegId::HMAC_SHA2_512_256 => PrfId::HMAC_SHA2_512,
        _ => return None,
    })
}

/// Checks what a proposal must have, adds what follows from it, and puts it in the order in which charon logs it.
fn complete(mut t: Vec<Transform>, protocol: ProtocolId) -> Result<Vec<Transform>, String> {
    let has = |t: &[Transform], kind| t.iter().any(|x| x.kind() == kind);
    let integ = has(&t, TransformType::INTEG);
    let aead = if protocol == ProtocolId::AH {
        if !integ {
            return Err("an integrity algorithm is missing; for example sha256".to_owned());
        }
        false
    } else {
        encryption(&t, integ, protocol)?
    };
    if protocol == ProtocolId::IKE {
        if !has(&t, TransformType::KE) {
            return Err("a key exchange is missing; add x25519, ecp256 or modp2048".to_owned());
        }
        if !has(&t, TransformType::PRF) {
            if aead {
                return Err("a PRF is missing, which an AEAD does not imply; add prfsha256".to_owned());
            }
            let integs = t.iter().filter_map(|x| if let Transform::Integ(id) = x { Some(*id) } else { None });
            let mut implied = Vec::new();
            for id in integs {
                match implied_prf(id).map(Transform::Prf).filter(|prf| carries(protocol, prf)) {
                    Some(prf) => implied.push(prf),
                    None => {
                        let name = word(&Transform::Integ(id), protocol).unwrap_or("this algorithm");
                        return Err(format!("the PRF that goes with {name} is not built; add prfsha256"));
                    }
                }
            }
            t.extend(implied);
        }
    } else if !has(&t, TransformType::ESN) {
        t.push(Transform::Esn(EsnId::NO_ESN));
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

/// Checks encryption against integrity; true when it is of AEADs.
fn encryption(t: &[Transform], integ: bool, protocol: ProtocolId) -> Result<bool, String> {
    let ciphers = t.iter().filter_map(|x| if let Transform::Encr(id, _) = x { Some(*id) } else { None });
    let (aead, classic): (Vec<EncrId>, Vec<EncrId>) = ciphers.partition(|id| id.is_aead());
    let list = "AES-GCM, AES-CCM, AES-GMAC and ChaCha20-Poly1305";
    match (aead.is_empty(), classic.is_empty()) {
        (true, true) if integ && protocol == ProtocolId::ESP => {
            Err("an encryption algorithm is missing; for example aes128gcm16. To authenticate only, add null".to_owned())
        }
        (true, true) => Err("an encryption algorithm is missing; for example aes128gcm16".to_owned()),
        (false, false) => Err(format!(
            "{list} cannot be in one proposal with other ciphers (RFC 7296 section 3.3); write two proposals with a \
             comma between them"
        )),
        // RFC 5282 section 8, and RFC 8221 section 6 (AUTH_NONE) for ESP.
        (false, true) if integ => Err(format!("{list} take no integrity algorithm (RFC 5282 section 8); remove it")),
        (false, true) => Ok(true),
        // RFC 8221 section 4: encryption without integrity MUST NOT be used; RFC 4303 section 3.2: and not both NULL.
        (true, false) if !integ => Err(match classic.contains(&EncrId::NULL) {
            true => "null without an integrity algorithm protects nothing; add sha256".to_owned(),
            false => "an integrity algorithm is missing, without which encryption does not protect (RFC 8221 section 4); \
                      add sha256"
                .to_owned(),
        }),
        (true, false) => Ok(false),
    }
}

#[cfg(test)]
#[path = "proposal_tests.rs"]
mod tests;
