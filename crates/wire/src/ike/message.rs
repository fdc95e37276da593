//! A whole message: header and the payloads that are in clear; SK or SKF, when there is one, comes
//! last.

use super::error::{Fault, ParseError};
use super::header::{HEADER_LEN, Header};
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
