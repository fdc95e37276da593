//! Security association payload (RFC 7296 section 3.3): proposals, transforms, attributes.
//!
//! ```text
//! proposal:  | last (0, 2) | RESERVED | length | number | protocol | SPI size | transforms
//!            | SPI | transforms ...
//! transform: | last (0, 3) | RESERVED | length | type | RESERVED | id | attributes ...
//! attribute: | 1, type (15 bits) | value |   or   | 0, type | length | value ...
//! ```
//!
//! Not here: which combination is acceptable. What is not understood becomes
//! [`Transform::Unknown`], which matches nothing: with a known type it spoils the transform only,
//! with an unknown type the proposal (section 3.3.6).

use crate::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};
use crate::ike::error::Fault;
use crate::proposal::{Proposal, Transform};
use crate::read::{EmitError, Reader, Writer};

/// Attribute 14 with the AF bit: "Key Length (in bits)", always in the short form.
const KEY_LENGTH: u16 = 0x8000 | 14;
const AF: u16 = 0x8000;
/// More transforms than this in one payload are a syntax error. What is understood costs memory and
/// is compared with what is configured; the longest proposals of common peers have a fifth of it.
const MAX_TRANSFORMS: usize = 512;
/// More proposals for an IKE_SA than this are one, too: strangers send them, and each may be
/// compared with each that is configured. Proposals for ESP and AH come from authenticated peers,
/// some of which propose all that they have; their numbers, which grow and have 8 bits, bound them.
const MAX_IKE_PROPOSALS: usize = 64;
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

pub(super) fn parse(r: &mut Reader<'_>) -> Result<Vec<Proposal>, Fault> {
    let mut proposals: Vec<Proposal> = Vec::new();
    let mut left = MAX_TRANSFORMS;
    loop {
        let more = match r.u8("proposal")? {
            LAST => false,
            MORE_PROPOSALS => true,
            _ => return Err(Fault::Invalid("last-proposal field is neither 0 nor 2")),
        };
        r.u8("RESERVED")?;
        let length = usize::from(r.u16("proposal length")?);
        let body = length.checked_sub(4).ok_or(Fault::Invalid("proposal length below 4"))?;
        let proposal = parse_proposal(r.sub(body, "proposal")?, &mut left)?;
        if proposal.protocol == ProtocolId::IKE && proposals.len() == MAX_IKE_PROPOSALS {
            return Err(Fault::Invalid("too many proposals"));
        }
        // "The first proposal in an SA payload MUST be 1, and subsequent proposals MUST be one more
        // than the previous proposal"; an answer has one, with the number it had. Numbers that only
        // grow cannot be confused, so gaps are let through, and there are at most 255.
        if proposals.last().map_or(0, |p| p.number) >= proposal.number {
            return Err(Fault::Invalid("proposal numbers do not grow from 1"));
        }
        proposals.push(proposal);
        if !more {
            return Ok(proposals);
        }
    }
}

/// `allowed` is how many transforms there may be from here on.
fn parse_proposal(mut r: Reader<'_>, allowed: &mut usize) -> Result<Proposal, Fault> {
    let number = r.u8("proposal number")?;
    let protocol = ProtocolId(r.u8("protocol")?);
    let spi_size = r.u8("SPI size")?;
    let count = r.u8("number of transforms")?;
    // "For an initial IKE SA negotiation, this field MUST be zero ... During subsequent
    // negotiations, it is equal to the size, in octets, of the SPI of the corresponding protocol (8
    // for IKE, 4 for ESP and AH)."
    match (protocol, spi_size) {
        (ProtocolId::IKE, 0 | 8) | (ProtocolId::AH | ProtocolId::ESP, 4) => {}
        (ProtocolId::IKE | ProtocolId::AH | ProtocolId::ESP, _) => {
            return Err(Fault::Invalid("SPI size is not the protocol's"));
        }
        _ => {}
    }
    let spi = r.bytes(spi_size.into(), "SPI")?.to_vec();
    *allowed = allowed.checked_sub(count.into()).ok_or(Fault::Invalid("too many transforms"))?;
    let mut transforms = Vec::with_capacity(count.into());
    for left in (0..count).rev() {
        let expected = if left == 0 { LAST } else { MORE_TRANSFORMS };
        if r.u8("transform")? != expected {
            return Err(Fault::Invalid("last-transform field does not match the number of transforms"));
        }
        r.u8("RESERVED")?;
        let length = usize::from(r.u16("transform length")?);
        let body = length.checked_sub(4).ok_or(Fault::Invalid("transform length below 4"))?;
        transforms.push(parse_transform(r.sub(body, "transform")?)?);
    }
    if r.any_left() {
        return Err(Fault::Trailing(r.left()));
    }
    Ok(Proposal { number, protocol, spi, transforms })
}

fn parse_transform(mut r: Reader<'_>) -> Result<Transform, Fault> {
    let kind = r.u8("transform type")?;
    r.u8("RESERVED")?;
    let id = r.u16("transform id")?;
    let mut key_bits = None;
    let mut understood = true;
    while r.any_left() {
        let attribute = r.u16("attribute type")?;
        let value = r.u16("attribute value or length")?;
        if attribute & AF == 0 {
            r.bytes(value.into(), "attribute value")?;
        }
        if attribute == KEY_LENGTH && key_bits.is_none() {
            key_bits = Some(value);
        } else {
            understood = false;
        }
    }
    Ok(match TransformType(kind) {
        _ if !understood => Transform::Unknown { kind, id },
        TransformType::ENCR => Transform::Encr(EncrId(id), key_bits),
        // Only encryption takes a key length among what is known.
        _ if key_bits.is_some() => Transform::Unknown { kind, id },
        TransformType::PRF => Transform::Prf(PrfId(id)),
        TransformType::INTEG => Transform::Integ(IntegId(id)),
        TransformType::KE => Transform::Ke(KeId(id)),
        TransformType::ESN => Transform::Esn(EsnId(id)),
        kind if (TransformType::ADDKE1.0..=TransformType::ADDKE7.0).contains(&kind.0) => {
            Transform::AddKe(kind.0 - TransformType::ADDKE1.0 + 1, KeId(id))
        }
        _ => Transform::Unknown { kind, id },
    })
}

pub(super) fn emit(proposals: &[Proposal], w: &mut Writer<'_>) -> Result<(), EmitError> {
    if proposals.is_empty() {
        return Err(EmitError { what: "SA payload without a proposal" });
    }
    for (i, proposal) in proposals.iter().enumerate() {
        let start = w.len();
        w.u8(if i + 1 == proposals.len() { LAST } else { MORE_PROPOSALS });
        w.u8(0);
        let length = w.reserve16();
        w.u8(proposal.number);
        w.u8(proposal.protocol.0);
        w.count8(proposal.spi.len(), "SPI")?;
        w.count8(proposal.transforms.len(), "number of transforms")?;
        w.bytes(&proposal.spi);
        for (i, transform) in proposal.transforms.iter().enumerate() {
            emit_transform(transform, i + 1 == proposal.transforms.len(), w)?;
        }
        w.patch16(length, start, "proposal")?;
    }
    Ok(())
}

fn emit_transform(transform: &Transform, last: bool, w: &mut Writer<'_>) -> Result<(), EmitError> {
    let (id, key_bits) = match *transform {
        Transform::Encr(id, bits) => (id.0, bits),
        Transform::Prf(id) => (id.0, None),
        Transform::Integ(id) => (id.0, None),
        Transform::Ke(id) => (id.0, None),
        Transform::Esn(id) => (id.0, None),
        Transform::AddKe(_, id) => (id.0, None),
        Transform::Unknown { id, .. } => (id, None),
    };
    let start = w.len();
    w.u8(if last { LAST } else { MORE_TRANSFORMS });
    w.u8(0);
    let length = w.reserve16();
    w.u8(transform.kind().0);
    w.u8(0);
    w.u16(id);
    if let Some(bits) = key_bits {
        w.u16(KEY_LENGTH);
        w.u16(bits);
    }
    w.patch16(length, start, "transform")
}
