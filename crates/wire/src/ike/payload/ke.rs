//! Key exchange payload (RFC 7296 section 3.4): `| method | RESERVED | data |`.

use crate::iana::KeId;
use crate::ike::error::Fault;
use crate::read::{Reader, Writer};

/// A public value. Whether it is one of the method's values is for `crypto` to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ke {
    /// Key exchange method, formerly the Diffie-Hellman group number.
    pub group: KeId,
    /// The public value.
    pub data: Vec<u8>,
}

impl Ke {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let group = KeId(r.u16("key exchange method")?);
        r.u16("RESERVED")?;
        Ok(Self { group, data: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u16(self.group.0);
        w.u16(0);
        w.bytes(&self.data);
    }
}
