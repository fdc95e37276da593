//! Authentication payload (RFC 7296 section 3.8): `| method | RESERVED | data |`.

use crate::iana::AuthMethod;
use crate::ike::error::Fault;
use crate::read::{Reader, Writer};

/// Proof of identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Auth {
    /// How it was made.
    pub method: AuthMethod,
    /// MAC or signature; with RFC 7427, length and AlgorithmIdentifier come before it.
    pub data: Vec<u8>,
}

impl Auth {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let method = AuthMethod(r.u8("auth method")?);
        r.bytes(3, "RESERVED")?;
        Ok(Self { method, data: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.method.0);
        w.zeros(3);
        w.bytes(&self.data);
    }
}
