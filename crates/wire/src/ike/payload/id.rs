//! Identification payloads (RFC 7296 section 3.5): `| type | RESERVED | data |`.

use crate::iana::IdType;
use crate::id::Identity;
use crate::ike::error::Fault;
use crate::read::{Reader, Writer};

/// An identity as it came. AUTH covers the whole body, so RESERVED is kept: it is ignored, not
/// forgotten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Id {
    /// Who.
    pub identity: Identity,
    /// The RESERVED bytes, zero in what we send.
    pub reserved: [u8; 3],
}

impl Id {
    /// An identity to send.
    pub fn new(identity: Identity) -> Self {
        Self { identity, reserved: [0; 3] }
    }

    /// The body as on the wire: `RestOfInitIDPayload` of RFC 7296 section 2.15.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.identity.data.len());
        self.emit(&mut Writer::new(&mut out));
        out
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let kind = IdType(r.u8("ID type")?);
        let reserved = r.array("RESERVED")?;
        let data = r.rest();
        match (kind, data.len()) {
            (IdType::IPV4_ADDR, 4) | (IdType::IPV6_ADDR, 16) => {}
            (IdType::IPV4_ADDR, _) => return Err(Fault::Invalid("an IPv4 identity is 4 bytes")),
            (IdType::IPV6_ADDR, _) => return Err(Fault::Invalid("an IPv6 identity is 16 bytes")),
            _ => {}
        }
        Ok(Self { identity: Identity { kind, data: data.to_vec() }, reserved })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.identity.kind.0);
        w.bytes(&self.reserved);
        w.bytes(&self.identity.data);
    }
}
