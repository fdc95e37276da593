//! Layout of the encrypted payloads: SK (RFC 7296 section 3.14) and SKF (RFC 7383 section 2.5).
//!
//! ```text
//! | IKE header | clear payloads | SK header | number, total | IV | payloads, padding, len | ICV |
//! |                             |     4     | SKF only: 2+2 |    |<-------- text ------->|     |
//! |<------------------- aad ------------------------------->|
//! ```
//!
//! All lengths are final before anything is sealed, so a cipher works in place on the ranges given
//! here. With an AEAD the aad is its associated data (RFC 5282 section 5.1; for SKF with the
//! fragment fields, RFC 7383); with a separate integrity algorithm the ICV covers everything before
//! it. Not here: ciphers and keys.

use std::ops::Range;

use super::error::{Fault, ParseError};
use super::header::Header;
use super::payload::{self, Payload};
use crate::iana::PayloadType;
use crate::read::{EmitError, Writer};

/// Length of fragment number and total in bytes.
pub(super) const FRAGMENT_FIELDS_LEN: usize = 4;

/// Sizes that a cipher suite gives the layout, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Length of the IV.
    pub iv: usize,
    /// Length of the ICV.
    pub icv: usize,
    /// The text is a multiple of this; 1 for AEADs and stream ciphers.
    pub block: usize,
}

impl Geometry {
    /// Length of the text that holds `plain` bytes of payloads: with padding and pad length.
    pub fn text_len(&self, plain: usize) -> usize {
        (plain + 1).next_multiple_of(self.block.max(1))
    }

    /// How many bytes of payloads one SKF message of at most `max_message` bytes carries. `None`:
    /// not one.
    pub fn fragment_capacity(&self, max_message: usize) -> Option<usize> {
        let room = max_message.checked_sub(super::HEADER_LEN + 4 + 4 + self.iv + self.icv)?;
        let block = self.block.max(1);
        (room / block * block).checked_sub(1).filter(|&n| n > 0)
    }
}

/// Places of the parts of the encrypted payload, in the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// From the first byte of the message up to the IV.
    pub aad: Range<usize>,
    /// IV.
    pub iv: Range<usize>,
    /// Plaintext or ciphertext: payloads, padding, pad length.
    pub text: Range<usize>,
    /// ICV, up to the last byte of the message.
    pub icv: Range<usize>,
}

/// Position of a fragment, from 1 (RFC 7383 section 2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// Number of this one.
    pub number: u16,
    /// How many there are.
    pub total: u16,
}

/// A message laid out and not yet sealed: IV and ICV are zero, the text is plain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedDraft {
    /// The message.
    pub bytes: Vec<u8>,
    /// Places of the parts.
    pub ranges: Ranges,
}

impl SealedDraft {
    /// Lays out a message whose last payload is SK around `inner`.
    pub fn emit(
        header: &Header,
        clear: &[Payload],
        inner: &[Payload],
        geometry: Geometry,
    ) -> Result<Self, EmitError> {
        let (first, plain) = payload::emit_chain(inner)?;
        Self::emit_plain(header, clear, first, &plain, None, geometry)
    }

    /// The same around payloads already in bytes, whole (SK) or one fragment of them (SKF; of a
    /// message in fragments only the first names `first_inner`, the others carry 0).
    pub fn emit_plain(
        header: &Header,
        clear: &[Payload],
        first_inner: PayloadType,
        plain: &[u8],
        fragment: Option<Fragment>,
        geometry: Geometry,
    ) -> Result<Self, EmitError> {
        let kind = if fragment.is_some() { PayloadType::SKF } else { PayloadType::SK };
        let text_len = geometry.text_len(plain.len());
        let pad_len = text_len - plain.len() - 1;
        let mut bytes = Vec::with_capacity(128 + text_len + geometry.iv + geometry.icv);
        let mut w = Writer::new(&mut bytes);
        header.emit_before(payload::first_type(clear, kind), &mut w);
        payload::append(clear, kind, &mut w)?;

        let start = w.len();
        w.u8(first_inner.0);
        w.u8(0);
        let length = w.reserve16();
        if let Some(fragment) = fragment {
            w.u16(fragment.number);
            w.u16(fragment.total);
        }
        let iv = w.len()..w.len() + geometry.iv;
        w.zeros(geometry.iv);
        let text = w.len()..w.len() + text_len;
        w.bytes(plain);
        // "Padding MAY contain any value chosen by the sender" (RFC 7296 section 3.14).
        w.zeros(pad_len);
        w.count8(pad_len, "SK padding")?;
        let icv = w.len()..w.len() + geometry.icv;
        w.zeros(geometry.icv);
        w.patch16(length, start, "SK payload")?;
        Header::patch_length(&mut w)?;
        Ok(Self { bytes, ranges: Ranges { aad: 0..iv.start, iv, text, icv } })
    }
}

/// Ranges of an encrypted payload whose body (IV to ICV) is the last `body` bytes of `message`.
pub(super) fn locate(
    kind: PayloadType,
    message: usize,
    body: usize,
    geometry: Geometry,
) -> Result<Ranges, ParseError> {
    let start = message.saturating_sub(body);
    let syntax = |what| ParseError::Syntax { payload: kind, offset: start, fault: Fault::Invalid(what) };
    // At least the pad length byte must be inside.
    if body < geometry.iv + 1 + geometry.icv {
        return Err(syntax("too short for IV, pad length and ICV"));
    }
    let text = start + geometry.iv..message - geometry.icv;
    if !text.len().is_multiple_of(geometry.block.max(1)) {
        return Err(syntax("not a multiple of the cipher's block"));
    }
    Ok(Ranges { aad: 0..start, iv: start..text.start, icv: text.end..message, text })
}

/// The payloads in an opened text, without padding and pad length. "The recipient MUST accept any
/// length that results in proper alignment" and any value in it (RFC 7296 section 3.14).
pub fn unpad(text: &[u8]) -> Result<&[u8], ParseError> {
    text.split_last().and_then(|(&pad, rest)| rest.get(..rest.len().checked_sub(usize::from(pad))?)).ok_or(
        ParseError::Syntax {
            payload: PayloadType::SK,
            offset: text.len().saturating_sub(1),
            fault: Fault::Invalid("the pad length is longer than the text"),
        },
    )
}
