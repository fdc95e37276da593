//! Nonce payload (RFC 7296 section 3.9).

use crate::ike::error::Fault;
use crate::read::Reader;

/// A nonce of 16 to 256 bytes. That it is at least half the PRF's key size is for `ike` to check
/// (section 2.10).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nonce(pub Vec<u8>);

impl Nonce {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        // "The size of the Nonce Data MUST be between 16 and 256 octets, inclusive."
        match r.left() {
            16..=256 => Ok(Self(r.rest().to_vec())),
            _ => Err(Fault::Invalid("a nonce is 16 to 256 bytes")),
        }
    }
}
