//! The words of proposal strings: what each stands for, which protocols can carry it here, and what
//! the RFCs think of it.
//!
//! ```text
//! word -> transform            the table, in strongSwan's spelling
//! transform + protocol -> yes  asked of `crypto`: nothing is offered that cannot be carried
//! transform + protocol -> level (RFCs 8221 and 8247), from `wire::requirement`
//! ```
//!
//! `ironswan check --algorithms` prints it, and `docs/manual/algorithms.md` holds the same; a test
//! compares them. Not here: how words make a proposal (`proposal`).

use ironswan_crypto::{batch, icv, kex, message, prf};
use ironswan_keying::diagnosis::Unwise;
use ironswan_wire::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};
use ironswan_wire::proposal::{EspSuite, Proposal, Transform};
use ironswan_wire::requirement::{Requirement, requirement};

/// Meaning of a word of proposals.
#[derive(Clone, Copy)]
pub(super) enum Token {
    /// This transform, as ESP and IKE have it. AH has another number for AES-GMAC: [`in_protocol`].
    Is(Transform),
    /// Known to strongSwan, not built here; what to write instead.
    Unbuilt(&'static str),
}

use Token::{Is, Unbuilt};

const fn encr(id: EncrId, bits: u16) -> Token {
    Is(Transform::Encr(id, Some(bits)))
}

const USE_AES: &str = "write aes128gcm16, aes256gcm16, chacha20poly1305, or aes128 or aes256 with sha256";
const USE_SHA2: &str = "write sha256, sha384 or sha512";
const USE_PRF: &str = "write prfsha256, prfsha384 or prfsha512";
pub(super) const USE_KE: &str = "write x25519, ecp256, ecp384, modp2048 or modp3072";
pub(super) const PQ: &str = "write x25519-ke1_mlkem768, which has both";

/// Every word. Of several for one transform the first is the one that messages and the manual use.
pub(super) const WORDS: &[(&str, Token)] = &[
    ("aes128gcm16", encr(EncrId::AES_GCM_16, 128)),
    ("aes128gcm128", encr(EncrId::AES_GCM_16, 128)),
    ("aes128gcm", encr(EncrId::AES_GCM_16, 128)),
    ("aes128gcm12", encr(EncrId::AES_GCM_12, 128)),
    ("aes128gcm96", encr(EncrId::AES_GCM_12, 128)),
    ("aes128gcm8", encr(EncrId::AES_GCM_8, 128)),
    ("aes128gcm64", encr(EncrId::AES_GCM_8, 128)),
    ("aes192gcm16", encr(EncrId::AES_GCM_16, 192)),
    ("aes192gcm128", encr(EncrId::AES_GCM_16, 192)),
    ("aes192gcm", encr(EncrId::AES_GCM_16, 192)),
    ("aes192gcm12", encr(EncrId::AES_GCM_12, 192)),
    ("aes192gcm96", encr(EncrId::AES_GCM_12, 192)),
    ("aes192gcm8", encr(EncrId::AES_GCM_8, 192)),
    ("aes192gcm64", encr(EncrId::AES_GCM_8, 192)),
    ("aes256gcm16", encr(EncrId::AES_GCM_16, 256)),
    ("aes256gcm128", encr(EncrId::AES_GCM_16, 256)),
    ("aes256gcm", encr(EncrId::AES_GCM_16, 256)),
    ("aes256gcm12", encr(EncrId::AES_GCM_12, 256)),
    ("aes256gcm96", encr(EncrId::AES_GCM_12, 256)),
    ("aes256gcm8", encr(EncrId::AES_GCM_8, 256)),
    ("aes256gcm64", encr(EncrId::AES_GCM_8, 256)),
    ("chacha20poly1305", Is(Transform::Encr(EncrId::CHACHA20_POLY1305, None))),
    ("aes128ccm16", encr(EncrId::AES_CCM_16, 128)),
    ("aes128ccm128", encr(EncrId::AES_CCM_16, 128)),
    ("aes128ccm", encr(EncrId::AES_CCM_16, 128)),
    ("aes128ccm12", encr(EncrId::AES_CCM_12, 128)),
    ("aes128ccm96", encr(EncrId::AES_CCM_12, 128)),
    ("aes128ccm8", encr(EncrId::AES_CCM_8, 128)),
    ("aes128ccm64", encr(EncrId::AES_CCM_8, 128)),
    ("aes192ccm16", encr(EncrId::AES_CCM_16, 192)),
    ("aes192ccm128", encr(EncrId::AES_CCM_16, 192)),
    ("aes192ccm", encr(EncrId::AES_CCM_16, 192)),
    ("aes192ccm12", encr(EncrId::AES_CCM_12, 192)),
    ("aes192ccm96", encr(EncrId::AES_CCM_12, 192)),
    ("aes192ccm8", encr(EncrId::AES_CCM_8, 192)),
    ("aes192ccm64", encr(EncrId::AES_CCM_8, 192)),
    ("aes256ccm16", encr(EncrId::AES_CCM_16, 256)),
    ("aes256ccm128", encr(EncrId::AES_CCM_16, 256)),
    ("aes256ccm", encr(EncrId::AES_CCM_16, 256)),
    ("aes256ccm12", encr(EncrId::AES_CCM_12, 256)),
    ("aes256ccm96", encr(EncrId::AES_CCM_12, 256)),
    ("aes256ccm8", encr(EncrId::AES_CCM_8, 256)),
    ("aes256ccm64", encr(EncrId::AES_CCM_8, 256)),
    ("aes128", encr(EncrId::AES_CBC, 128)),
    ("aes", encr(EncrId::AES_CBC, 128)),
    ("aes192", encr(EncrId::AES_CBC, 192)),
    ("aes256", encr(EncrId::AES_CBC, 256)),
    ("aes128ctr", encr(EncrId::AES_CTR, 128)),
    ("aes192ctr", encr(EncrId::AES_CTR, 192)),
    ("aes256ctr", encr(EncrId::AES_CTR, 256)),
    ("3des", Is(Transform::Encr(EncrId::DES3, None))),
    ("null", Is(Transform::Encr(EncrId::NULL, None))),
    ("des", Unbuilt(USE_AES)),
    ("blowfish", Unbuilt(USE_AES)),
    ("blowfish128", Unbuilt(USE_AES)),
    ("blowfish192", Unbuilt(USE_AES)),
    ("blowfish256", Unbuilt(USE_AES)),
    ("cast128", Unbuilt(USE_AES)),
    ("chacha20poly1305compat", Unbuilt(USE_AES)),
    ("serpent", Unbuilt(USE_AES)),
    ("serpent128", Unbuilt(USE_AES)),
    ("serpent192", Unbuilt(USE_AES)),
    ("serpent256", Unbuilt(USE_AES)),
    ("twofish", Unbuilt(USE_AES)),
    ("twofish128", Unbuilt(USE_AES)),
    ("twofish192", Unbuilt(USE_AES)),
    ("twofish256", Unbuilt(USE_AES)),
    ("camellia", Unbuilt(USE_AES)),
    ("camellia128", Unbuilt(USE_AES)),
    ("camellia128ctr", Unbuilt(USE_AES)),
    ("camellia128ccm8", Unbuilt(USE_AES)),
    ("camellia128ccm12", Unbuilt(USE_AES)),
    ("camellia128ccm16", Unbuilt(USE_AES)),
    ("camellia128ccm64", Unbuilt(USE_AES)),
    ("camellia128ccm96", Unbuilt(USE_AES)),
    ("camellia128ccm128", Unbuilt(USE_AES)),
    ("camellia192", Unbuilt(USE_AES)),
    ("camellia192ctr", Unbuilt(USE_AES)),
    ("camellia192ccm8", Unbuilt(USE_AES)),
    ("camellia192ccm12", Unbuilt(USE_AES)),
    ("camellia192ccm16", Unbuilt(USE_AES)),
    ("camellia192ccm64", Unbuilt(USE_AES)),
    ("camellia192ccm96", Unbuilt(USE_AES)),
    ("camellia192ccm128", Unbuilt(USE_AES)),
    ("camellia256", Unbuilt(USE_AES)),
    ("camellia256ctr", Unbuilt(USE_AES)),
    ("camellia256ccm8", Unbuilt(USE_AES)),
    ("camellia256ccm12", Unbuilt(USE_AES)),
    ("camellia256ccm16", Unbuilt(USE_AES)),
    ("camellia256ccm64", Unbuilt(USE_AES)),
    ("camellia256ccm96", Unbuilt(USE_AES)),
    ("camellia256ccm128", Unbuilt(USE_AES)),
    ("sha256", Is(Transform::Integ(IntegId::HMAC_SHA2_256_128))),
    ("sha2_256", Is(Transform::Integ(IntegId::HMAC_SHA2_256_128))),
    ("sha384", Is(Transform::Integ(IntegId::HMAC_SHA2_384_192))),
    ("sha2_384", Is(Transform::Integ(IntegId::HMAC_SHA2_384_192))),
    ("sha512", Is(Transform::Integ(IntegId::HMAC_SHA2_512_256))),
    ("sha2_512", Is(Transform::Integ(IntegId::HMAC_SHA2_512_256))),
    ("aescmac", Is(Transform::Integ(IntegId::AES_CMAC_96))),
    ("aesxcbc", Is(Transform::Integ(IntegId::AES_XCBC_96))),
    ("sha1", Is(Transform::Integ(IntegId::HMAC_SHA1_96))),
    ("sha", Is(Transform::Integ(IntegId::HMAC_SHA1_96))),
    ("md5", Is(Transform::Integ(IntegId::HMAC_MD5_96))),
    ("aes128gmac", encr(EncrId::NULL_AES_GMAC, 128)),
    ("aes192gmac", encr(EncrId::NULL_AES_GMAC, 192)),
    ("aes256gmac", encr(EncrId::NULL_AES_GMAC, 256)),
    ("sha256_96", Unbuilt(USE_SHA2)),
    ("sha2_256_96", Unbuilt(USE_SHA2)),
    ("sha1_160", Unbuilt(USE_SHA2)),
    ("md5_128", Unbuilt(USE_SHA2)),
    ("camelliaxcbc", Unbuilt(USE_SHA2)),
    ("prfsha256", Is(Transform::Prf(PrfId::HMAC_SHA2_256))),
    ("prfsha384", Is(Transform::Prf(PrfId::HMAC_SHA2_384))),
    ("prfsha512", Is(Transform::Prf(PrfId::HMAC_SHA2_512))),
    ("prfaescmac", Is(Transform::Prf(PrfId::AES128_CMAC))),
    ("prfaesxcbc", Is(Transform::Prf(PrfId::AES128_XCBC))),
    ("prfsha1", Is(Transform::Prf(PrfId::HMAC_SHA1))),
    ("prfmd5", Is(Transform::Prf(PrfId::HMAC_MD5))),
    ("prfcamelliaxcbc", Unbuilt(USE_PRF)),
    ("x25519", Is(Transform::Ke(KeId::CURVE_25519))),
    ("curve25519", Is(Transform::Ke(KeId::CURVE_25519))),
    ("ecp256", Is(Transform::Ke(KeId::ECP_256))),
    ("ecp384", Is(Transform::Ke(KeId::ECP_384))),
    ("ecp521", Is(Transform::Ke(KeId::ECP_521))),
    ("x448", Is(Transform::Ke(KeId::CURVE_448))),
    ("curve448", Is(Transform::Ke(KeId::CURVE_448))),
    ("modp2048", Is(Transform::Ke(KeId::MODP_2048))),
    ("modp3072", Is(Transform::Ke(KeId::MODP_3072))),
    ("modp4096", Is(Transform::Ke(KeId::MODP_4096))),
    ("modp1536", Is(Transform::Ke(KeId::MODP_1536))),
    ("modp1024", Is(Transform::Ke(KeId::MODP_1024))),
    ("modp768", Unbuilt(USE_KE)),
    ("modp6144", Is(Transform::Ke(KeId::MODP_6144))),
    ("modp8192", Is(Transform::Ke(KeId::MODP_8192))),
    ("modp1024s160", Is(Transform::Ke(KeId::MODP_1024_160))),
    ("modp2048s224", Is(Transform::Ke(KeId::MODP_2048_224))),
    ("modp2048s256", Is(Transform::Ke(KeId::MODP_2048_256))),
    ("modpnull", Unbuilt(USE_KE)),
    ("ecp192", Unbuilt(USE_KE)),
    ("ecp224", Unbuilt(USE_KE)),
    ("ecp224bp", Unbuilt(USE_KE)),
    ("ecp256bp", Unbuilt(USE_KE)),
    ("ecp384bp", Unbuilt(USE_KE)),
    ("ecp512bp", Unbuilt(USE_KE)),
    ("modpnone", Unbuilt("leave the key exchange out instead")),
    ("mlkem512", Is(Transform::Ke(KeId::ML_KEM_512))),
    ("mlkem768", Is(Transform::Ke(KeId::ML_KEM_768))),
    ("mlkem1024", Is(Transform::Ke(KeId::ML_KEM_1024))),
    ("esn", Is(Transform::Esn(EsnId::ESN))),
    ("noesn", Is(Transform::Esn(EsnId::NO_ESN))),
];

/// The transform for `ke1_mlkem768` and the like; `None` when the method is not known. `ke1_none`
/// makes the exchange optional (RFC 9370 section 2.2.1).
pub(super) fn additional(number: u8, method: &str) -> Option<Transform> {
    if method == "none" {
        return Some(Transform::AddKe(number, KeId::NONE));
    }
    WORDS.iter().find_map(|(word, token)| match token {
        Is(Transform::Ke(id)) if *word == method => Some(Transform::AddKe(number, *id)),
        _ => None,
    })
}

/// The transform as this protocol has it: AES-GMAC is an encryption algorithm without encryption in
/// ESP (RFC 4543 section 3), and an integrity algorithm in AH (section 4).
pub(super) fn in_protocol(transform: Transform, protocol: ProtocolId) -> Transform {
    let ah = protocol == ProtocolId::AH;
    match transform {
        Transform::Encr(EncrId::NULL_AES_GMAC, Some(128)) if ah => Transform::Integ(IntegId::AES_128_GMAC),
        Transform::Encr(EncrId::NULL_AES_GMAC, Some(192)) if ah => Transform::Integ(IntegId::AES_192_GMAC),
        Transform::Encr(EncrId::NULL_AES_GMAC, Some(256)) if ah => Transform::Integ(IntegId::AES_256_GMAC),
        other => other,
    }
}

/// True when a proposal for this protocol can have this transform: the protocol has its kind, and
/// this program the algorithm.
pub(super) fn carries(protocol: ProtocolId, transform: &Transform) -> bool {
    let (ike, ah) = (protocol == ProtocolId::IKE, protocol == ProtocolId::AH);
    let esp = |encr: EncrId, key_bits: u16, integ: Option<IntegId>| {
        batch::keymat_lens(&EspSuite { encr, key_bits, integ, ke: None, esn: false }).is_some()
    };
    match *transform {
        Transform::Encr(_, _) if ah => false,
        Transform::Encr(id, bits) if ike => message::encr_key_len(id, bits.unwrap_or(0)).is_some(),
        Transform::Encr(id, bits) => {
            esp(id, bits.unwrap_or(0), (!id.is_aead()).then_some(IntegId::HMAC_SHA2_256_128))
        }
        Transform::Integ(id) if ah => icv::key_len(id).is_some(),
        Transform::Integ(id) if ike => message::integ_key_len(id).is_some(),
        Transform::Integ(id) => esp(EncrId::NULL, 0, Some(id)),
        Transform::Prf(id) => ike && prf::get(id).is_some(),
        Transform::Ke(id) if ike => kex::supported(id),
        Transform::Ke(id) => kex::public_len(id).is_some(),
        Transform::AddKe(_, id) => id == KeId::NONE || kex::public_len(id).is_some(),
        Transform::Esn(_) => !ike,
        Transform::Unknown { .. } => false,
    }
}

/// The word for a transform in proposals of this protocol.
pub(super) fn word(transform: &Transform, protocol: ProtocolId) -> Option<&'static str> {
    let transform = match *transform {
        Transform::AddKe(_, id) => &Transform::Ke(id),
        _ => transform,
    };
    WORDS.iter().find_map(|(word, token)| match token {
        Is(t) if in_protocol(*t, protocol) == *transform => Some(*word),
        _ => None,
    })
}

/// The word to write instead of an algorithm that the RFCs advise against, or that is for old
/// peers.
fn instead(protocol: ProtocolId, kind: TransformType) -> &'static str {
    match kind {
        // An integrity algorithm and its PRF stand beside it, which an AEAD does not go with.
        TransformType::ENCR if protocol == ProtocolId::IKE => "aes128",
        TransformType::ENCR => "aes128gcm16",
        TransformType::INTEG => "sha256",
        TransformType::PRF => "prfsha256",
        _ => "x25519",
    }
}

/// One sentence for each algorithm that is offered and that the RFCs say SHOULD NOT or MUST NOT of,
/// or that only old peers need.
pub(super) fn advice(proposals: &[Proposal]) -> Vec<Unwise> {
    let mut seen: Vec<(ProtocolId, Transform)> = Vec::new();
    let mut out = Vec::new();
    for (protocol, t) in proposals.iter().flat_map(|p| p.transforms.iter().map(|t| (p.protocol, *t))) {
        let Some(found) = requirement(protocol, &t).filter(|r| r.old) else { continue };
        if seen.contains(&(protocol, t)) {
            continue;
        }
        seen.push((protocol, t));
        let name = word(&t, protocol).map_or_else(|| t.to_string(), str::to_owned);
        out.push(Unwise::WeakAlgorithm {
            name,
            requirement: found,
            protocol,
            instead: instead(protocol, t.kind()),
        });
    }
    out
}

/// True when the proposal's packets can be read by whoever sees them.
pub(super) fn is_readable(proposal: &Proposal) -> bool {
    proposal.protocol == ProtocolId::AH
        || proposal
            .of_type(TransformType::ENCR)
            .any(|t| matches!(t, Transform::Encr(EncrId::NULL | EncrId::NULL_AES_GMAC, _)))
}

/// True when the proposal has an algorithm that makes packets unreadable.
pub(super) fn is_secret(proposal: &Proposal) -> bool {
    proposal
        .of_type(TransformType::ENCR)
        .any(|t| !matches!(t, Transform::Encr(EncrId::NULL | EncrId::NULL_AES_GMAC, _)))
}

/// Kind of algorithm that a word names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Encrypts and authenticates.
    Aead,
    /// Encrypts; needs an integrity algorithm beside it.
    Cipher,
    /// Authenticates; AES-GMAC is here.
    Integrity,
    /// Pseudo-random function.
    Prf,
    /// Key exchange.
    KeyExchange,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Aead => "AEAD",
            Self::Cipher => "encryption",
            Self::Integrity => "integrity",
            Self::Prf => "PRF",
            Self::KeyExchange => "key exchange",
        })
    }
}

/// A row of the table of algorithms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Algorithm {
    /// Kind of algorithm.
    pub kind: Kind,
    /// Words for this algorithm in proposal strings, the usual one first.
    pub words: Vec<&'static str>,
    /// The algorithm as logs show it.
    pub name: String,
    /// Transform type, number in its registry (RFC 7296 section 3.3.2), and key length in bits, 0
    /// without.
    pub transform: (u8, u16, u16),
    /// Requirement of the RFCs for ESP, AH and IKEv2. `None`: the algorithm cannot be used there.
    pub levels: [Option<Requirement>; 3],
}

/// The protocols of [`Algorithm::levels`].
pub const PROTOCOLS: [ProtocolId; 3] = [ProtocolId::ESP, ProtocolId::AH, ProtocolId::IKE];

fn kind(transform: &Transform) -> Option<Kind> {
    match transform {
        Transform::Encr(EncrId::NULL_AES_GMAC, _) | Transform::Integ(_) => Some(Kind::Integrity),
        Transform::Encr(id, _) if id.is_aead() => Some(Kind::Aead),
        Transform::Encr(..) => Some(Kind::Cipher),
        Transform::Prf(_) => Some(Kind::Prf),
        Transform::Ke(_) => Some(Kind::KeyExchange),
        _ => None,
    }
}

fn number(transform: &Transform) -> (u8, u16, u16) {
    let (id, bits) = match *transform {
        Transform::Encr(id, bits) => (id.0, bits.unwrap_or(0)),
        Transform::Integ(id) => (id.0, 0),
        Transform::Prf(id) => (id.0, 0),
        Transform::Ke(id) | Transform::AddKe(_, id) => (id.0, 0),
        Transform::Esn(id) => (id.0, 0),
        Transform::Unknown { id, .. } => (id, 0),
    };
    (transform.kind().0, id, bits)
}

/// Every algorithm that can be used here, in the order of the table.
pub fn algorithms() -> Vec<Algorithm> {
    let mut out: Vec<(Transform, Algorithm)> = Vec::new();
    for (word, token) in WORDS {
        let Is(t) = token else { continue };
        if let Some((_, row)) = out.iter_mut().find(|(seen, _)| seen == t) {
            row.words.push(word);
            continue;
        }
        let levels = PROTOCOLS.map(|protocol| {
            let t = in_protocol(*t, protocol);
            carries(protocol, &t).then(|| requirement(protocol, &t)).flatten()
        });
        if let Some(kind) = kind(t).filter(|_| levels.iter().any(Option::is_some)) {
            let transform = number(t);
            out.push((*t, Algorithm { kind, words: vec![*word], name: t.to_string(), transform, levels }));
        }
    }
    out.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
#[path = "algorithms_tests.rs"]
mod tests;
