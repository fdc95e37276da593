//! Proposal strings in strongSwan's dialect: `aes128gcm16-prfsha256-curve25519`,
//! `aes256-sha256-modp2048`, `default`.
//!
//! A token that is known and not built, one that is not known, and one that is of no use in this
//! protocol are errors that name it. Rules that a string can break (RFC 7296 section 3.3, RFC 8221
//! section 4: an AEAD with an integrity algorithm, no key exchange for IKE, encryption without
//! integrity) are errors too. With a classic cipher and no PRF the PRF follows the integrity
//! algorithm, as in charon; with an AEAD it must be written, as in charon. Not here: the words
//! (`algorithms`).

use ironswan_crypto::kex;
use ironswan_keying::diagnosis::{Configuration, ProposalFault};
use ironswan_wire::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};
use ironswan_wire::proposal::{Proposal, Transform};

use super::algorithms::{PQ, Token, USE_KE, WORDS, additional, carries, in_protocol, word};
use super::diag::nearest;
use super::value::{Wrong, show};

/// IKE's `default`: with ML-KEM-768 before without, for peers that have additional key exchanges
/// (RFC 9370). A peer without them refuses a whole proposal that names one, so the others are
/// proposals of their own. In each half AEADs come first, then AES-CBC with HMAC-SHA2.
const IKE_DEFAULT: &[&str] = &[
    "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-x25519-ecp256-ecp384-ke1_mlkem768",
    "aes128-aes256-sha256-sha384-sha512-prfsha256-prfsha384-prfsha512-x25519-ecp256-ecp384-ke1_mlkem768",
    "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-x25519-ecp256-ecp384-modp3072-modp2048",
    "aes128-aes256-sha256-sha384-sha512-prfsha256-prfsha384-prfsha512-x25519-ecp256-ecp384-modp3072-modp2048",
];

/// ESP's `default`. Extended sequence numbers are preferred: at 10 Gb/s of small packets 32 bits
/// last five minutes.
const ESP_DEFAULT: &[&str] =
    &["aes128gcm16-aes256gcm16-chacha20poly1305-esn-noesn", "aes128-aes256-sha256-sha384-sha512-esn-noesn"];

/// AH's `default`.
const AH_DEFAULT: &[&str] = &["sha256-sha384-sha512-esn-noesn"];

/// Proposals are numbered by one byte from 1 (RFC 7296 section 3.3.1).
const MAX_PROPOSALS: usize = 255;
/// Limits of our own parser for what a peer may propose: proposals for an IKE_SA, and transforms in
/// one payload. We send no more than we would accept.
const MAX_IKE_PROPOSALS: usize = 64;
const MAX_TRANSFORMS: usize = 512;

/// Limits the algorithms of one proposal.
const MAX_TRANSFORMS_OF_ONE: usize = 64;

/// Parses a list of proposal strings for IKE, ESP or AH to proposals, numbered from 1. The errors
/// name the string.
pub(super) fn list<'a>(
    items: impl Iterator<Item = &'a str>,
    protocol: ProtocolId,
) -> Result<Vec<Proposal>, Vec<Wrong>> {
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
            match parse_proposal(text, protocol) {
                Ok(_) if out.len() >= max => {
                    errors.push(Configuration::TooMany { max, of: "proposals", write: "" })
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
    if out.is_empty() && errors.is_empty() {
        errors.push(Configuration::NamesNothing);
    }
    errors.extend(too_many(&out));
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

/// A sentence about proposals that do not go into one payload.
fn too_many(list: &[Proposal]) -> Option<Wrong> {
    let transforms: usize = list.iter().map(|p| p.transforms.len()).sum();
    if list.len() > MAX_PROPOSALS {
        let of = "proposals, with those for the other protocol";
        return Some(Configuration::TooMany { max: MAX_PROPOSALS, of, write: "" });
    }
    let of = "algorithms in all proposals together";
    (transforms > MAX_TRANSFORMS).then_some(Configuration::TooMany {
        max: MAX_TRANSFORMS,
        of,
        write: "write fewer",
    })
}

/// Puts lists of several protocols into one, numbered from 1 in this order; or says that they are
/// too many.
pub(super) fn join(lists: impl IntoIterator<Item = Vec<Proposal>>) -> Result<Vec<Proposal>, Wrong> {
    let all: Vec<Proposal> = lists.into_iter().flatten().collect();
    match too_many(&all) {
        None => Ok(all.into_iter().zip(1..=u8::MAX).map(|(p, number)| Proposal { number, ..p }).collect()),
        Some(why) => Err(why),
    }
}

/// Parses one proposal string.
fn parse_proposal(text: &str, protocol: ProtocolId) -> Result<Vec<Transform>, Wrong> {
    let bad = |why| Configuration::BadProposal { proposal: show(text), why };
    let mut transforms: Vec<Transform> = Vec::new();
    for token in text.split('-') {
        let token = token.trim().to_ascii_lowercase();
        let t = parse_transform(&token, protocol).map_err(bad)?;
        if !transforms.contains(&t) {
            transforms.push(t);
        }
        if transforms.len() > MAX_TRANSFORMS_OF_ONE {
            return Err(bad(ProposalFault::TooMany { max: MAX_TRANSFORMS_OF_ONE }));
        }
    }
    complete(transforms, protocol).map_err(bad)
}

/// Parses one word of a proposal string.
fn parse_transform(token: &str, protocol: ProtocolId) -> Result<Transform, ProposalFault> {
    if token.is_empty() {
        return Err(ProposalFault::EmptyName);
    }
    if let Some((_, t)) = WORDS.iter().find(|(name, _)| *name == token) {
        return match t {
            Token::Is(t) => {
                let t = in_protocol(*t, protocol);
                if carries(protocol, &t) { Ok(t) } else { Err(misplaced(token, &t, protocol)) }
            }
            Token::Unbuilt(write) => Err(ProposalFault::NotBuilt { name: token.to_owned(), write }),
        };
    }
    let numbered = token.strip_prefix("ke").and_then(|r| r.split_once('_'));
    let numbered = numbered.and_then(|(n, method)| Some((n.parse().ok()?, method)));
    if let Some((n @ 1..=7u8, method)) = numbered {
        match additional(n, method) {
            Some(t) if carries(protocol, &t) => return Ok(t),
            // Methods of the remedy stand behind the number, too.
            _ if is_unbuilt_method(method) => {
                return Err(ProposalFault::MethodNotBuilt { name: token.to_owned(), number: n });
            }
            Some(t) => return Err(misplaced(token, &t, protocol)),
            None => {}
        }
    }
    if let Some(explicit) = token.strip_suffix("iiv").map(|t| t.trim_end_matches('_'))
        && WORDS.iter().any(|(name, _)| *name == explicit)
    {
        // The engine has them; no daemon has a word for them that others would understand.
        return Err(ProposalFault::ImplicitIv { explicit: explicit.to_owned() });
    }
    let usable = |t: &Token| matches!(t, Token::Is(t) if carries(protocol, &in_protocol(*t, protocol)));
    let near = match numbered {
        // A number that is misspelt, too, has no nearest word.
        Some((n, method)) => {
            let methods =
                WORDS.iter().filter(|(name, _)| additional(1, name).is_some_and(|t| carries(protocol, &t)));
            let near = nearest(method, methods.map(|(name, _)| *name));
            near.filter(|_| (1..=7u8).contains(&n)).map(|method| format!("ke{n}_{method}"))
        }
        None => nearest(token, WORDS.iter().filter(|(_, t)| usable(t)).map(|(n, _)| *n)).map(str::to_owned),
    };
    Err(ProposalFault::Unknown { name: show(token), near })
}

/// True for a key exchange method that is known and not built.
fn is_unbuilt_method(method: &str) -> bool {
    match WORDS.iter().find(|(name, _)| *name == method) {
        Some((_, Token::Unbuilt(write))) => *write == USE_KE,
        Some((_, Token::Is(Transform::Ke(id)))) => kex::public_len(*id).is_none(),
        _ => false,
    }
}

/// Reason why a transform that is known cannot be in a proposal of this protocol.
fn misplaced(token: &str, t: &Transform, protocol: ProtocolId) -> ProposalFault {
    let name = token.to_owned();
    match (t, protocol) {
        (Transform::Prf(_), ProtocolId::ESP | ProtocolId::AH) => ProposalFault::PrfOutsideIke,
        (Transform::Esn(_), _) => ProposalFault::EsnInIke,
        (Transform::Encr(..), ProtocolId::AH) => ProposalFault::EncryptionInAh { name },
        (Transform::Encr(EncrId::NULL | EncrId::NULL_AES_GMAC, _), ProtocolId::IKE) => {
            ProposalFault::ReadableIke { name }
        }
        (Transform::Encr(..), _) => {
            ProposalFault::NotForIke { name, write: "write aes128gcm16, or aes128 with sha256" }
        }
        (Transform::Integ(_), _) => ProposalFault::NotForIke { name, write: "write sha256" },
        (Transform::Prf(_), _) => ProposalFault::NotBuilt { name, write: "write prfsha256" },
        (Transform::Ke(KeId::ML_KEM_512 | KeId::ML_KEM_768 | KeId::ML_KEM_1024), _) => {
            let name = format!("{name} as the first key exchange");
            ProposalFault::NotBuilt { name, write: PQ }
        }
        _ => ProposalFault::NotBuilt { name, write: USE_KE },
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

/// Checks what a proposal must have, adds what follows from it, and puts it in the order in which
/// charon logs it.
fn complete(mut t: Vec<Transform>, protocol: ProtocolId) -> Result<Vec<Transform>, ProposalFault> {
    let has = |t: &[Transform], kind| t.iter().any(|x| x.kind() == kind);
    let integ = has(&t, TransformType::INTEG);
    let aead = if protocol == ProtocolId::AH {
        if !integ {
            return Err(ProposalFault::NoIntegrity);
        }
        false
    } else {
        encryption(&t, integ, protocol)?
    };
    if protocol == ProtocolId::IKE {
        if !has(&t, TransformType::KE) {
            return Err(ProposalFault::NoKeyExchange);
        }
        if !has(&t, TransformType::PRF) {
            if aead {
                return Err(ProposalFault::NoPrf);
            }
            let integs = t.iter().filter_map(|x| if let Transform::Integ(id) = x { Some(*id) } else { None });
            let mut implied = Vec::new();
            for id in integs {
                match implied_prf(id).map(Transform::Prf).filter(|prf| carries(protocol, prf)) {
                    Some(prf) => implied.push(prf),
                    None => {
                        let name = word(&Transform::Integ(id), protocol).unwrap_or("this algorithm");
                        return Err(ProposalFault::ImpliedPrfNotBuilt { name: name.to_owned() });
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
        // Behind ADDKE7.
        TransformType::ESN => u8::MAX,
        kind => kind.0,
    };
    t.sort_by_key(rank);
    key_exchanges(&t)?;
    Ok(t)
}

/// Checks additional key exchanges of a sorted proposal: each comes behind a first one, and chooses
/// a method that none before has chosen. A negotiation takes the first one that is left, so a
/// proposal without one for some number is never agreed on.
fn key_exchanges(t: &[Transform]) -> Result<(), ProposalFault> {
    let method = |x: &Transform| match *x {
        Transform::Ke(id) | Transform::AddKe(_, id) => Some(id),
        _ => None,
    };
    let mut chosen: Vec<KeId> =
        t.iter().find(|x| x.kind() == TransformType::KE).and_then(method).into_iter().collect();
    for n in 1..=7u8 {
        let mut methods =
            t.iter().filter(|x| matches!(x, Transform::AddKe(of, _) if *of == n)).filter_map(method);
        let Some(first) = methods.next() else { continue };
        if chosen.is_empty() {
            return Err(ProposalFault::NoKeyExchange);
        }
        match std::iter::once(first).chain(methods).find(|id| *id == KeId::NONE || !chosen.contains(id)) {
            Some(KeId::NONE) => {}
            Some(id) => chosen.push(id),
            None => {
                let name = word(&Transform::Ke(first), ProtocolId::IKE).unwrap_or("this method");
                return Err(ProposalFault::MethodTwice { name: name.to_owned(), number: n });
            }
        }
    }
    Ok(())
}

/// Checks encryption against integrity; true when it is of AEADs.
fn encryption(t: &[Transform], integ: bool, protocol: ProtocolId) -> Result<bool, ProposalFault> {
    let ciphers = t.iter().filter_map(|x| if let Transform::Encr(id, _) = x { Some(*id) } else { None });
    let (aead, classic): (Vec<EncrId>, Vec<EncrId>) = ciphers.partition(|id| id.is_aead());
    match (aead.is_empty(), classic.is_empty()) {
        (true, true) => Err(ProposalFault::NoEncryption { integrity: integ && protocol == ProtocolId::ESP }),
        (false, false) => Err(ProposalFault::MixedModes),
        // RFC 5282 section 8, and RFC 8221 section 6 (AUTH_NONE) for ESP.
        (false, true) if integ => Err(ProposalFault::AeadWithIntegrity),
        (false, true) => Ok(true),
        // RFC 8221 section 4: encryption without integrity MUST NOT be used; RFC 4303 section 3.2:
        // and not both NULL.
        (true, false) if !integ => Err(match classic.contains(&EncrId::NULL) {
            true => ProposalFault::NullAlone,
            false => ProposalFault::EncryptionAlone,
        }),
        (true, false) => Ok(false),
    }
}

#[cfg(test)]
#[path = "proposal_tests.rs"]
mod tests;
