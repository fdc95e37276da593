//! A whole message: header and the payloads that are in clear; SK or SKF, when there is one, comes
//! last.

use super::error::{Fault, ParseError};
use super::header::{self, HEADER_LEN, Header};
use super::payload::{self, Payload, Within};
use super::sealed::{self, Geometry, Ranges};
use crate::iana::PayloadType;
use crate::read::{EmitError, Reader, Writer};

/// A message as far as it can be read without keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Header.
    pub header: Header,
    /// Payloads in the order they came.
    pub payloads: Vec<Payload>,
}

impl Message {
    /// Reads a datagram (without the non-ESP marker) that must hold exactly one message.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let header = Header::parse(datagram)?;
        let mut r = Reader::new(datagram);
        r.bytes(HEADER_LEN, "IKE header").map_err(ParseError::header)?;
        Ok(Self { header, payloads: payload::parse_from(header.next_payload, r, Within::Clear)? })
    }

    /// The message in bytes. Next payload and length of the header are set from the payloads.
    pub fn emit(&self) -> Result<Vec<u8>, EmitError> {
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        self.header.emit_before(payload::first_type(&self.payloads, PayloadType::NONE), &mut w);
        payload::append(&self.payloads, PayloadType::NONE, &mut w)?;
        Header::patch_length(&mut w)?;
        Ok(out)
    }

    /// True when the last payload is SK or SKF.
    pub fn is_sealed(&self) -> bool {
        matches!(self.payloads.last(), Some(Payload::Sk(_) | Payload::Skf(_)))
    }

    /// The bytes in front of the IV: IKE header, payloads in clear, and the generic header of SK.
    /// Of a fragment those of the message that it is a part of: SK stands for SKF. The two lengths
    /// are those of the datagram that this was parsed from. `None` without SK and SKF.
    pub fn front(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let behind = match self.payloads.last()? {
            Payload::Sk(sk) => sk.body.len(),
            Payload::Skf(skf) => skf.body.len() + sealed::FRAGMENT_FIELDS_LEN,
            _ => return None,
        };
        let end = datagram.len().checked_sub(behind)?;
        let mut front = datagram.get(..end)?.to_vec();
        let sealed = end.checked_sub(payload::GENERIC_LEN)?;
        // The Next Payload field that names SK or SKF: of the last payload in clear, or of the
        // header.
        let (mut names, mut at) = (header::NEXT_PAYLOAD, HEADER_LEN);
        while at < sealed {
            let [high, low] = *front.get(at + 2..)?.first_chunk()?;
            // A payload that was parsed has at least its generic header.
            let length = usize::from(u16::from_be_bytes([high, low])).max(payload::GENERIC_LEN);
            (names, at) = (at, at + length);
        }
        *front.get_mut(names)? = PayloadType::SK.0;
        Some(front)
    }

    /// Finds IV, text and ICV of the SK or SKF payload, in the datagram that this was parsed from.
    /// INVALID_SYNTAX when the payload is too short for this cipher or not whole blocks, or when
    /// there is none.
    pub fn sealed(&self, geometry: Geometry) -> Result<Ranges, ParseError> {
        match self.payloads.last() {
            Some(Payload::Sk(sk)) => {
                sealed::locate(PayloadType::SK, self.header.length as usize, sk.body.len(), geometry)
            }
            Some(Payload::Skf(skf)) => {
                sealed::locate(PayloadType::SKF, self.header.length as usize, skf.body.len(), geometry)
            }
            _ => Err(ParseError::header(Fault::Invalid("no encrypted payload"))),
        }
    }
}
