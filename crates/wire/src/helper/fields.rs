//! Fields of messages: text, flags and addresses.

use std::net::IpAddr;

use super::{MAX_REASON, MessageError};
use crate::read::{Reader, Writer};

/// Reads text of at most `max` bytes without a 0.
pub(super) fn text(r: &mut Reader<'_>, max: usize, what: &'static str) -> Result<Vec<u8>, MessageError> {
    let len = usize::from(r.u16(what)?);
    let bytes = r.bytes(len, what)?;
    if len > max || bytes.contains(&0) {
        return Err(MessageError::Value(what));
    }
    Ok(bytes.to_vec())
}

/// Reads text that is not empty.
pub(super) fn named(r: &mut Reader<'_>, max: usize, what: &'static str) -> Result<Vec<u8>, MessageError> {
    text(r, max, what).and_then(|t| if t.is_empty() { Err(MessageError::Value(what)) } else { Ok(t) })
}

pub(super) fn reason(r: &mut Reader<'_>) -> Result<String, MessageError> {
    let bytes = text(r, MAX_REASON, "reason")?;
    String::from_utf8(bytes).map_err(|_| MessageError::Value("reason"))
}

pub(super) fn flag(r: &mut Reader<'_>, what: &'static str) -> Result<bool, MessageError> {
    match r.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(MessageError::Value(what)),
    }
}

/// An address: 4 or 6, then its octets.
pub(super) fn address(r: &mut Reader<'_>) -> Result<IpAddr, MessageError> {
    match r.u8("family")? {
        4 => Ok(IpAddr::from(r.array::<4>("address")?)),
        6 => Ok(IpAddr::from(r.array::<16>("address")?)),
        _ => Err(MessageError::Value("family")),
    }
}

pub(super) fn put_address(w: &mut Writer<'_>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => {
            w.u8(4);
            w.bytes(&a.octets());
        }
        IpAddr::V6(a) => {
            w.u8(6);
            w.bytes(&a.octets());
        }
    }
}

/// Text longer than its length field can say is cut: no caller has such text, and the other side
/// refuses what is cut.
pub(super) fn put(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    w.u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    w.bytes(text);
}

/// The longest part of a reason that fits, whole characters only.
pub(super) fn fitting(reason: &str) -> &[u8] {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason.as_bytes()[..end]
}

pub(super) fn ended(r: &Reader<'_>) -> Result<(), MessageError> {
    if r.any_left() { Err(MessageError::Trailing(r.left())) } else { Ok(()) }
}
