//! Choosing a proposal (RFC 7296 sections 2.7 and 3.3), checking what the peer chose, and saying
//! why nothing fits.
//!
//! Our own order of preference decides, except that the method of the KE payload is kept when both
//! sides allow it: the peer need not be sent back with INVALID_KE_PAYLOAD. For a CHILD_SA, ESP and
//! AH proposals are alternatives.
//!
//! | protocol | types of transforms (RFC 7296 section 3.3.3) |
//! |---|---|
//! | IKE | ENCR, INTEG unless combined mode, PRF, KE, ADDKE1 to 7 |
//! | ESP | ENCR, INTEG unless combined mode, ESN, KE for PFS, ADDKE1 to 7 beside KE |
//! | AH | INTEG, ESN, KE for PFS, ADDKE1 to 7 beside KE |
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `additional` | additional key exchanges: all methods differ; IKE_INTERMEDIATE is announced |

use ironswan_crypto::{batch, icv, kex, message, prf};
use ironswan_keying::diagnosis::{Difference, KeyExchange, Nearest};
use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};
use ironswan_wire::proposal::{Additional, EspSuite, IkeSuite, Proposal, Transform};

mod additional;

pub(crate) use additional::{counting, has_additional};
use additional::{is_barred, leaves_room};

/// The agreement of two proposals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selected<S> {
    /// Algorithms.
    pub suite: S,
    /// The offered proposal, reduced to the transforms chosen: what the answer says. The SPI is the
    /// offerer's.
    pub answer: Proposal,
}

/// How key exchange counts in a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeRule {
    /// One must be agreed on; this one if possible.
    Prefer(Option<KeId>),
    /// None takes place: KE transforms are passed over (the first CHILD_SA, RFC 7296 section 1.2).
    Ignore,
}

/// Numbers that stand for "none of this type".
fn is_none(t: &Transform) -> bool {
    matches!(t, Transform::Integ(IntegId::NONE) | Transform::Ke(KeId::NONE) | Transform::AddKe(_, KeId::NONE))
}

/// The key exchange method of a transform.
fn method(t: &Transform) -> Option<KeId> {
    match t {
        Transform::Ke(id) | Transform::AddKe(_, id) if *id != KeId::NONE => Some(*id),
        _ => None,
    }
}

/// True for the types of key exchange.
fn is_of_ke(kind: TransformType) -> bool {
    kind == TransformType::KE || (TransformType::ADDKE1.0..=TransformType::ADDKE7.0).contains(&kind.0)
}

/// Types of which [`kinds`] has the most.
const KINDS: usize = 11;

/// The types that a proposal of this protocol can have.
fn kinds(protocol: ProtocolId) -> &'static [TransformType] {
    const fn with_ke(first: [TransformType; 3]) -> [TransformType; KINDS] {
        [
            first[0],
            first[1],
            first[2],
            TransformType::KE,
            TransformType::ADDKE1,
            TransformType::ADDKE2,
            TransformType::ADDKE3,
            TransformType::ADDKE4,
            TransformType::ADDKE5,
            TransformType::ADDKE6,
            TransformType::ADDKE7,
        ]
    }
    const IKE: [TransformType; KINDS] =
        with_ke([TransformType::ENCR, TransformType::INTEG, TransformType::PRF]);
    const ESP: [TransformType; KINDS] =
        with_ke([TransformType::ENCR, TransformType::INTEG, TransformType::ESN]);
    match protocol {
        ProtocolId::IKE => &IKE,
        // AH encrypts nothing.
        ProtocolId::AH => ESP.split_at(1).1,
        _ => &ESP,
    }
}

/// The alternatives of one type, with an empty list spelt out as its default: NONE, or no extended
/// sequence numbers.
fn alternatives(p: &Proposal, kind: TransformType) -> Vec<Transform> {
    let mut all: Vec<_> = p.of_type(kind).copied().collect();
    if all.is_empty() {
        all.extend(default(kind));
    }
    all
}

/// Agrees on one transform of each type, or tells every type that differs.
fn agree(ours: &Proposal, theirs: &Proposal, ke: KeRule) -> Result<Vec<Transform>, Vec<Difference>> {
    let mut chosen = Vec::new();
    let mut differ = Vec::new();
    let mut aead = false;
    for &kind in kinds(theirs.protocol) {
        if is_of_ke(kind) && ke == KeRule::Ignore {
            continue;
        }
        let (mut mine, mut offered) = (alternatives(ours, kind), alternatives(theirs, kind));
        if kind == TransformType::INTEG && aead {
            // RFC 5282 section 8: with a combined-mode cipher, no integrity transform or NONE. A
            // peer that offers both kinds of cipher in one proposal means its integrity transforms
            // for the others.
            let mixed = |p: &Proposal| p.of_type(TransformType::ENCR).any(|t| !is_aead(t));
            for (list, p) in [(&mut mine, ours), (&mut offered, theirs)] {
                if mixed(p) || list.contains(&Transform::Integ(IntegId::NONE)) {
                    *list = vec![Transform::Integ(IntegId::NONE)];
                }
            }
        } else if kind == TransformType::INTEG {
            if !differ.is_empty() && mine.iter().chain(&offered).all(is_none) {
                // Combined-mode ciphers that differ: that there is no integrity transform is not a
                // second difference.
                continue;
            }
            // Encryption without integrity is not agreed on (RFC 8221 section 4), and NULL
            // encryption without it even less: "the integrity and NULL encryption MUST NOT both be
            // NULL" (RFC 4303 section 3.2). AH is integrity.
            mine.retain(|t| !is_none(t));
        }
        let preferred = match ke {
            KeRule::Prefer(Some(id)) if kind == TransformType::KE => Some(Transform::Ke(id)),
            _ => None,
        };
        mine.retain(|t| !is_barred(chosen.iter(), t));
        let pick = preferred
            .filter(|t| mine.contains(t) && offered.contains(t))
            .or_else(|| mine.iter().copied().find(|t| offered.contains(t)));
        match pick {
            Some(t) => {
                aead |= is_aead(&t);
                chosen.push(t);
            }
            None => differ.push(Difference { kind, received: offered, configured: mine }),
        }
    }
    // "If the responder receives a proposal that contains a Transform Type it does not understand
    // ... it MUST consider this proposal unacceptable" (RFC 7296 section 3.3.6).
    for t in &theirs.transforms {
        if is_odd(theirs, t) {
            differ.push(Difference { kind: t.kind(), received: vec![*t], configured: Vec::new() });
        }
    }
    if differ.is_empty() { Ok(chosen) } else { Err(differ) }
}

/// The transforms that [`agree`] agrees on, in the order of the types; others where those leave no
/// method for a later key exchange, and `None` when there are none. Strangers' proposals are
/// compared with this one, which allocates nothing.
fn choose(ours: &Proposal, theirs: &Proposal, ke: KeRule) -> Option<[Option<Transform>; KINDS]> {
    let mut chosen = [None; KINDS];
    let mut aead = false;
    let all = kinds(theirs.protocol);
    for (at, &kind) in all.iter().enumerate() {
        if is_of_ke(kind) && ke == KeRule::Ignore {
            continue;
        }
        let later = all.get(at + 1..).unwrap_or_default();
        // Where additional key exchanges leave no choice by themselves, none of KE is tried.
        if kind == TransformType::KE && !leaves_room(ours, theirs, later, std::iter::empty) {
            return None;
        }
        let integ = kind == TransformType::INTEG;
        let none = Transform::Integ(IntegId::NONE);
        // As in `agree`: with a combined-mode cipher, NONE is what a proposal with both kinds of
        // cipher means.
        let only_none = |p: &Proposal| {
            integ && aead && (has(p, kind, &none) || p.of_type(TransformType::ENCR).any(|t| !is_aead(t)))
        };
        let (ours_none, theirs_none) = (only_none(ours), only_none(theirs));
        let offered = |t: &Transform| if theirs_none { *t == none } else { has(theirs, kind, t) };
        let mine = |t: &Transform| {
            let is_mine = if ours_none { *t == none } else { has(ours, kind, t) };
            is_mine && !(integ && !aead && is_none(t)) && !is_barred(chosen.iter().flatten(), t)
        };
        let preferred = match ke {
            KeRule::Prefer(Some(id)) if kind == TransformType::KE => Some(Transform::Ke(id)),
            _ => None,
        };
        let fits = |t: &Transform| {
            let so_far = || chosen.iter().flatten().chain(std::iter::once(t));
            mine(t) && offered(t) && (!is_of_ke(kind) || leaves_room(ours, theirs, later, so_far))
        };
        let pick = preferred
            .filter(fits)
            .or_else(|| ours.of_type(kind).copied().find(fits))
            .or_else(|| default(kind).filter(fits));
        let pick = pick?;
        aead |= is_aead(&pick);
        chosen[at] = Some(pick);
    }
    (!theirs.transforms.iter().any(|t| is_odd(theirs, t))).then_some(chosen)
}

/// True when the proposal has this transform, or means it by having none of its type.
fn has(p: &Proposal, kind: TransformType, t: &Transform) -> bool {
    p.transforms.contains(t) || (default(kind) == Some(*t) && p.of_type(kind).next().is_none())
}

/// The meaning of a proposal without any transform of a type.
fn default(kind: TransformType) -> Option<Transform> {
    match kind {
        TransformType::INTEG => Some(Transform::Integ(IntegId::NONE)),
        TransformType::KE => Some(Transform::Ke(KeId::NONE)),
        // ESP and AH proposals MUST have one; what was meant by leaving it out is the old
        // behaviour.
        TransformType::ESN => Some(Transform::Esn(EsnId::NO_ESN)),
        kind if is_of_ke(kind) => Some(Transform::AddKe(kind.0 - TransformType::ADDKE1.0 + 1, KeId::NONE)),
        _ => None,
    }
}

/// True for a transform for which its whole proposal is refused.
fn is_odd(theirs: &Proposal, t: &Transform) -> bool {
    let kind = t.kind();
    match *t {
        Transform::Unknown { .. } => !is_known(kind),
        // AH that promises to encrypt would be believed by somebody.
        Transform::Encr(..) => theirs.protocol == ProtocolId::AH,
        _ => false,
    }
}

/// True for the types that have a name.
fn is_known(kind: TransformType) -> bool {
    (TransformType::ENCR.0..=TransformType::ADDKE7.0).contains(&kind.0)
}

fn is_aead(t: &Transform) -> bool {
    matches!(t, Transform::Encr(id, _) if id.is_aead())
}

/// Chooses among the configured proposals of these protocols; `suite` makes of the transforms what
/// is supported. Counts the pairs of proposals that it compares.
fn fit<S>(
    configured: &[Proposal],
    offered: &[Proposal],
    protocols: &[ProtocolId],
    ke: KeRule,
    compared: &mut u64,
    suite: impl Fn(ProtocolId, &[Transform]) -> Option<S>,
) -> Option<Selected<S>> {
    for ours in configured.iter().filter(|p| protocols.contains(&p.protocol)) {
        for theirs in offered.iter().filter(|p| p.protocol == ours.protocol) {
            *compared += 1;
            let Some(chosen) = choose(ours, theirs, ke) else { continue };
            let chosen: Vec<Transform> = chosen.into_iter().flatten().collect();
            if let Some(suite) = suite(theirs.protocol, &chosen) {
                return Some(Selected { suite, answer: reduced(theirs, &chosen) });
            }
        }
    }
    None
}

/// An offered proposal with the transforms that were chosen, and nothing that the offer only means
/// by leaving it out. "if the initiator includes any ADDKE Transform Type in the proposal, the
/// responder MUST select one of the algorithms proposed using this type" (RFC 9370 section 2.2.1):
/// that may be NONE.
fn reduced(theirs: &Proposal, chosen: &[Transform]) -> Proposal {
    let says = |t: &Transform| !is_none(t) || matches!(t, Transform::AddKe(..));
    let said = |t: &&Transform| says(t) && theirs.transforms.contains(t);
    let transforms = chosen.iter().filter(said).copied().collect();
    let (number, protocol, spi) = (theirs.number, theirs.protocol, theirs.spi.clone());
    Proposal { number, protocol, spi, transforms }
}

/// Why nothing fits: the nearest pair, and a proposal of both that is not supported.
fn why_not(
    configured: &[Proposal],
    offered: &[Proposal],
    protocols: &[ProtocolId],
    ke: KeRule,
) -> KeyExchange {
    let mut nearest: Option<Nearest> = None;
    let mut unsupported = None;
    for ours in configured.iter().filter(|p| protocols.contains(&p.protocol)) {
        for theirs in offered.iter().filter(|p| p.protocol == ours.protocol) {
            match agree(ours, theirs, ke) {
                Ok(chosen) => unsupported = Some(Box::new(reduced(theirs, &chosen))),
                Err(differ) => {
                    if nearest.as_ref().is_none_or(|best| differ.len() < best.differ.len()) {
                        let (received, configured) = (theirs.clone(), ours.clone());
                        nearest = Some(Nearest { received, configured, differ });
                    }
                }
            }
        }
    }
    KeyExchange::NoProposal {
        received: offered.to_vec(),
        configured: configured.to_vec(),
        nearest: nearest.map(Box::new),
        unsupported,
    }
}

fn key_bits(encr: EncrId, bits: Option<u16>) -> u16 {
    // The length that an AEAD does not negotiate. 3DES and NULL go without (`EspSuite::key_bits`).
    let only = || match algorithm::encr(encr) {
        Some(shape) if encr.is_aead() && shape.key_bits.len() == 1 => shape.key_bits[0],
        _ => 0,
    };
    bits.unwrap_or_else(only)
}

fn ike_suite(chosen: &[Transform]) -> Option<IkeSuite> {
    let (mut encr, mut integ, mut prf_id, mut ke) = (None, None, None, None);
    for t in chosen {
        match *t {
            Transform::Encr(id, bits) => encr = Some((id, key_bits(id, bits))),
            Transform::Integ(id) if id != IntegId::NONE => integ = Some(id),
            Transform::Prf(id) => prf_id = Some(id),
            Transform::Ke(id) if id != KeId::NONE => ke = Some(id),
            _ => {}
        }
    }
    let (encr, key_bits) = encr?;
    let additional = Additional::of(chosen);
    let suite = IkeSuite { encr, key_bits, integ, prf: prf_id?, ke: ke?, additional };
    ike_supported(&suite).then_some(suite)
}

fn ike_supported(s: &IkeSuite) -> bool {
    message::encr_key_len(s.encr, s.key_bits).is_some()
        && s.encr.is_aead() == s.integ.is_none()
        && s.integ.is_none_or(|i| message::integ_key_len(i).is_some())
        && prf::get(s.prf).is_some()
        && kex::supported(s.ke)
        && s.additional.iter().all(|(_, id)| kex::public_len(id).is_some())
}

/// Lengths of the keying material of a CHILD_SA's direction, in bytes: for encryption with salt,
/// and for integrity. `None` for what is not supported.
pub(crate) fn keymat_lens(protocol: ProtocolId, suite: &EspSuite) -> Option<(usize, usize)> {
    match protocol {
        ProtocolId::AH => Some((0, icv::key_len(suite.integ?)?)),
        _ => batch::keymat_lens(suite),
    }
}

/// Algorithms of a CHILD_SA, and the additional key exchanges that make its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChildSuite {
    pub esp: EspSuite,
    pub additional: Additional,
}

fn child_suite(protocol: ProtocolId, chosen: &[Transform]) -> Option<ChildSuite> {
    // An AH SA encrypts nothing (`SaAdd::suite`).
    let mut suite = EspSuite { encr: EncrId::NULL, key_bits: 0, integ: None, ke: None, esn: false };
    for t in chosen {
        match *t {
            Transform::Encr(id, bits) => (suite.encr, suite.key_bits) = (id, key_bits(id, bits)),
            Transform::Integ(id) if id != IntegId::NONE => suite.integ = Some(id),
            Transform::Ke(id) if id != KeId::NONE => suite.ke = Some(id),
            Transform::Esn(id) => suite.esn = id == EsnId::ESN,
            _ => {}
        }
    }
    keymat_lens(protocol, &suite)?;
    let additional = Additional::of(chosen);
    // IKE_FOLLOWUP_KE comes behind a key exchange in CREATE_CHILD_SA (RFC 9370 section 2.2.4).
    let has_first = suite.ke.is_some() || additional.is_none();
    let mut methods = suite.ke.into_iter().chain(additional.iter().map(|(_, id)| id));
    let all_known = methods.all(|id| kex::public_len(id).is_some());
    (has_first && all_known).then_some(ChildSuite { esp: suite, additional })
}

/// Chooses for the successor of an IKE_SA with this PRF: with the same one if both ends allow it.
/// `ke` is the method of the KE payload.
pub(crate) fn select_successor(
    configured: &[Proposal],
    offered: &[Proposal],
    ke: Option<KeId>,
    prf_id: Option<PrfId>,
) -> Result<Selected<IkeSuite>, KeyExchange> {
    prf_id
        .and_then(|prf_id| fit_ike(&keeping(configured, prf_id), offered, ke, &mut 0))
        .map_or_else(|| select_ike(configured, offered, ke), Ok)
}

/// Chooses for an IKE_SA. `ke` is the method of the KE payload.
fn select_ike(
    configured: &[Proposal],
    offered: &[Proposal],
    ke: Option<KeId>,
) -> Result<Selected<IkeSuite>, KeyExchange> {
    fit_ike(configured, offered, ke, &mut 0).ok_or_else(|| why_not_ike(configured, offered, ke))
}

/// The same for what strangers propose: the reason is not worked out. Counts the pairs of proposals
/// that it compares.
pub(crate) fn fit_ike(
    configured: &[Proposal],
    offered: &[Proposal],
    ke: Option<KeId>,
    compared: &mut u64,
) -> Option<Selected<IkeSuite>> {
    fit(configured, offered, &[ProtocolId::IKE], KeRule::Prefer(ke), compared, |_, chosen| ike_suite(chosen))
}

/// Why [`fit_ike`] finds nothing.
pub(crate) fn why_not_ike(configured: &[Proposal], offered: &[Proposal], ke: Option<KeId>) -> KeyExchange {
    why_not(configured, offered, &[ProtocolId::IKE], KeRule::Prefer(ke))
}

/// The protocols that a CHILD_SA can have. Through a NAT, ESP only: AH protects the addresses that
/// a NAT changes (RFC 3715 section 2.1), and no UDP encapsulation of it exists (RFC 3948).
pub(crate) fn carried(nat: bool) -> &'static [ProtocolId] {
    if nat { &[ProtocolId::ESP] } else { &[ProtocolId::ESP, ProtocolId::AH] }
}

/// True when some of these proposals is for AH.
pub(crate) fn any_ah(proposals: &[Proposal]) -> bool {
    proposals.iter().any(|p| p.protocol == ProtocolId::AH)
}

/// Chooses for an ESP or AH SA pair, of these protocols; which one it is, the answer says.
pub(crate) fn select_child(
    configured: &[Proposal],
    offered: &[Proposal],
    protocols: &[ProtocolId],
    ke: KeRule,
) -> Result<Selected<ChildSuite>, KeyExchange> {
    fit(configured, offered, protocols, ke, &mut 0, child_suite)
        .ok_or_else(|| why_not(configured, offered, protocols, ke))
}

/// The peer's answer must be one of the proposals that we sent, reduced to one transform of each
/// type.
fn check_answer<'a>(
    sent: &[Proposal],
    answer: &'a [Proposal],
    ke: KeRule,
) -> Option<(Vec<Transform>, &'a Proposal)> {
    let [answer] = answer else { return None };
    let offer = sent.iter().find(|p| p.number == answer.number && p.protocol == answer.protocol)?;
    for &kind in kinds(answer.protocol) {
        if answer.of_type(kind).count() > 1 {
            return None;
        }
    }
    if answer.transforms.iter().any(|t| !offer.transforms.contains(t) && !is_none(t)) {
        return None;
    }
    Some((agree(offer, answer, ke).ok()?, answer))
}

/// The IKE suite of an answer to `sent`, and the SPI in it (empty in IKE_SA_INIT); `None` for what
/// we never offered.
pub(crate) fn check_ike(sent: &[Proposal], answer: &[Proposal]) -> Option<(IkeSuite, Vec<u8>)> {
    let (chosen, answer) = check_answer(sent, answer, KeRule::Prefer(None))?;
    Some((ike_suite(&chosen)?, answer.spi.clone()))
}

/// The protocol and suite of an answer to `sent`, and the peer's SPI.
pub(crate) fn check_child(
    sent: &[Proposal],
    answer: &[Proposal],
    ke: KeRule,
) -> Option<(ProtocolId, ChildSuite, u32)> {
    let (chosen, answer) = check_answer(sent, answer, ke)?;
    let spi = u32::from_be_bytes(answer.spi.as_slice().try_into().ok()?);
    // "The set of SPI values in the range 1 through 255 are reserved", and 0 is never on the wire
    // (RFC 4303 section 2.1, RFC 4302 section 2.4).
    (spi > 255).then_some(())?;
    Some((answer.protocol, child_suite(answer.protocol, &chosen)?, spi))
}

/// The proposals to send: numbered from 1, with our SPI, KE transforms kept, dropped or led by
/// `first`.
///
/// Of a CHILD_SA, only proposals of the protocols that can be [`carried`] are for sending.
pub(crate) fn offer<'a>(
    configured: impl IntoIterator<Item = &'a Proposal>,
    spi: &[u8],
    ke: KeRule,
) -> Vec<Proposal> {
    let mut out: Vec<Proposal> = Vec::new();
    for p in configured {
        let mut transforms = p.transforms.clone();
        match ke {
            KeRule::Ignore => transforms.retain(|t| !is_of_ke(t.kind())),
            KeRule::Prefer(Some(first)) => {
                let first = Transform::Ke(first);
                if let (Some(at), Some(head)) = (
                    transforms.iter().position(|t| *t == first),
                    transforms.iter().position(|t| t.kind() == TransformType::KE),
                ) {
                    transforms.remove(at);
                    transforms.insert(head, first);
                }
            }
            KeRule::Prefer(None) => {}
        }
        // ESN is among the mandatory types of ESP and AH (RFC 7296 section 3.3.3).
        if p.protocol != ProtocolId::IKE && !transforms.iter().any(|t| t.kind() == TransformType::ESN) {
            transforms.push(Transform::Esn(EsnId::NO_ESN));
        }
        let number = u8::try_from(out.len() + 1).unwrap_or(u8::MAX);
        if out.len() == 255 || out.iter().any(|q| q.transforms == transforms && q.protocol == p.protocol) {
            continue;
        }
        out.push(Proposal { number, protocol: p.protocol, spi: spi.to_vec(), transforms });
    }
    // The proposals that have the method in use come first: a peer that looks at the first proposal
    // only, or that cannot be told INVALID_KE_PAYLOAD when rekeying (Windows), is content.
    if let KeRule::Prefer(Some(first)) = ke {
        out.sort_by_key(|p| !p.transforms.contains(&Transform::Ke(first)));
        for (i, p) in out.iter_mut().enumerate() {
            p.number = u8::try_from(i + 1).unwrap_or(u8::MAX);
        }
    }
    out
}

/// What of these proposals keeps the PRF of an IKE_SA: those that have it, with no other PRF.
pub(crate) fn keeping(configured: &[Proposal], prf_id: PrfId) -> Vec<Proposal> {
    let keep = Transform::Prf(prf_id);
    let mut out: Vec<Proposal> =
        configured.iter().filter(|p| p.transforms.contains(&keep)).cloned().collect();
    for p in &mut out {
        p.transforms.retain(|t| *t == keep || t.kind() != TransformType::PRF);
    }
    out
}

/// The method of the KE payload that goes with these proposals: their first one.
pub(crate) fn first_ke(proposals: &[Proposal]) -> Option<KeId> {
    all_ke(proposals).next()
}

/// True when some proposal has this method.
pub(crate) fn has_ke(proposals: &[Proposal], ke: KeId) -> bool {
    all_ke(proposals).any(|k| k == ke)
}

fn all_ke(proposals: &[Proposal]) -> impl Iterator<Item = KeId> {
    proposals.iter().flat_map(|p| &p.transforms).filter_map(|t| match t {
        Transform::Ke(id) if *id != KeId::NONE => Some(*id),
        _ => None,
    })
}

/// "MUST be at least half the key size of the negotiated PRF" (RFC 7296 section 2.10): 32 bytes are
/// enough for every PRF here.
pub(crate) const NONCE_LEN: usize = 32;

/// Whether a peer's nonce is long enough for this PRF. The preferred length of an HMAC's key is
/// that of its output.
pub(crate) fn nonce_fits(prf_id: PrfId, nonce: &[u8]) -> bool {
    prf::get(prf_id).is_some_and(|prf| 2 * nonce.len() >= prf.output_len())
}

const _: () = assert!(NONCE_LEN * 2 >= 64, "half of PRF_HMAC_SHA2_512's key");

#[cfg(test)]
mod tests;
