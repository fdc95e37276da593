//! Configuration payload (RFC 7296 section 3.15): `| type | RESERVED | attributes |`, each
//! attribute
//! `| R, type | length | value |`. What the values mean is for `ike` to say.

use crate::ike::error::Fault;
use crate::read::{EmitError, Reader, Writer};

/// CFG_REQUEST.
pub const CFG_REQUEST: u8 = 1;
/// CFG_REPLY.
pub const CFG_REPLY: u8 = 2;
/// CFG_SET.
pub const CFG_SET: u8 = 3;
/// CFG_ACK.
pub const CFG_ACK: u8 = 4;

/// A request for configuration, or the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// CFG_REQUEST, CFG_REPLY, CFG_SET, CFG_ACK.
    pub kind: u8,
    /// In order; a type may come more than once.
    pub attributes: Vec<ConfigAttribute>,
}

/// One attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigAttribute {
    /// Type, 15 bits.
    pub kind: u16,
    /// Value; empty where one is asked for.
    pub value: Vec<u8>,
}

impl Config {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let kind = r.u8("CFG type")?;
        r.bytes(3, "RESERVED")?;
        let mut attributes = Vec::new();
        while r.any_left() {
            // "Reserved (1 bit) - This bit MUST be set to zero and MUST be ignored on receipt."
            let kind = r.u16("attribute type")? & 0x7fff;
            let length = r.u16("attribute length")?;
            attributes
                .push(ConfigAttribute { kind, value: r.bytes(length.into(), "attribute value")?.to_vec() });
        }
        Ok(Self { kind, attributes })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.u8(self.kind);
        w.zeros(3);
        for attribute in &self.attributes {
            w.u16(attribute.kind & 0x7fff);
            w.count16(attribute.value.len(), "attribute value")?;
            w.bytes(&attribute.value);
        }
        Ok(())
    }
}
