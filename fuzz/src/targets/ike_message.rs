//! A datagram as it comes from the network, before any key.

use std::collections::BTreeSet;

use ironswan_wire::iana::PayloadType;
use ironswan_wire::ike::{Fault, Geometry, Message, ParseError, Payload, sealed};
use ironswan_wire::natt::{self, Natt};

use super::signature;

/// Generic headers, substructure headers, notify types, the marker.
pub const DICTIONARY: &[&[u8]] = &[
    &[0, 0, 0, 4],
    &[0, 0, 0, 8],
    &[33, 0, 0, 4],
    &[41, 0x80, 0, 8],
    &[43, 0, 0, 4],
    &[44, 0, 0, 24, 1, 0, 0, 0],
    &[46, 0, 0, 29],
    &[53, 0, 0, 33, 0, 1, 0, 2],
    &[2, 0, 0, 8, 1, 1, 0, 0],
    &[3, 0, 0, 8, 1, 0, 0, 20],
    &[3, 0, 0, 12, 1, 0, 0, 12, 0x80, 14, 1, 0],
    &[0, 0, 0, 8, 6, 0, 0, 35],
    &[0x80, 14, 0, 128],
    &[0, 14, 0, 2],
    &[7, 0, 0, 16, 0, 0, 0xff, 0xff],
    &[8, 0, 0, 40, 0, 0, 0xff, 0xff],
    &[3, 4, 0x40, 9],
    &[0, 0, 0x40, 6],
    &[3, 4, 0, 1],
    &[1, 0, 0, 0],
];

const GEOMETRIES: [Geometry; 3] = [
    Geometry { iv: 8, icv: 16, block: 1 },
    Geometry { iv: 16, icv: 16, block: 16 },
    Geometry { iv: 8, icv: 12, block: 8 },
];

/// Runs the bytes as they are, and once more with the length field set right, since the chain is
/// never reached otherwise.
pub fn run(data: &[u8]) -> u64 {
    let datagram = match natt::classify(data) {
        Natt::Ike(ike) => ike,
        _ => data,
    };
    let first = message(datagram);
    let Some(after) = datagram.len().checked_sub(28) else { return first };
    let mut fixed = datagram.to_vec();
    fixed[24..28].copy_from_slice(&(after as u32 + 28).to_be_bytes());
    message(&fixed)
}

fn message(datagram: &[u8]) -> u64 {
    let message = match Message::parse(datagram) {
        Ok(message) => message,
        Err(e) => return of_error(&e),
    };
    assert_eq!(message.header.length as usize, datagram.len());
    for geometry in GEOMETRIES {
        if let Ok(ranges) = message.sealed(geometry) {
            assert!(message.is_sealed());
            assert_eq!((ranges.aad.start, ranges.icv.end), (0, datagram.len()));
            assert_eq!((ranges.aad.end, ranges.iv.end), (ranges.iv.start, ranges.text.start));
            assert_eq!(ranges.text.end, ranges.icv.start);
            let text = &datagram[ranges.text];
            assert!(
                sealed::unpad(text).is_ok_and(|plain| plain.len() < text.len()) || text[text.len() - 1] > 0
            );
        }
    }
    // What was read can be said again, and then it stays the same. Only selectors of unknown types
    // are lost.
    if let Ok(bytes) = message.emit() {
        let again = Message::parse(&bytes).expect("what was emitted parses");
        assert_eq!(again.emit().as_ref(), Ok(&bytes));
    }
    of_kinds(&message.payloads)
}

/// Which payload, and what was wrong with it; not where.
pub(super) fn of_error(e: &ParseError) -> u64 {
    // Displaying must not panic either.
    assert!(!e.to_string().is_empty());
    match e {
        ParseError::Syntax { payload: PayloadType(kind), fault, .. } => match fault {
            Fault::Short(len) => signature((1, kind, len.what)),
            Fault::Trailing(_) => signature((2, kind)),
            Fault::Invalid(what) => signature((3, kind, what)),
        },
        ParseError::UnsupportedCritical(_) => signature(4),
        ParseError::MajorVersion(_) => signature(5),
    }
}

/// Which payloads, whatever their order and number, the unknown ones as one kind.
pub(super) fn of_kinds(payloads: &[Payload]) -> u64 {
    let kind = |p: &Payload| if matches!(p, Payload::Other { .. }) { 0 } else { p.kind().0 };
    let kinds: BTreeSet<u8> = payloads.iter().map(kind).collect();
    signature(kinds)
}
