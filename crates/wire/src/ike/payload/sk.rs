//! Encrypted payload (RFC 7296 section 3.14), sealed: its layout is in `ike::sealed`.

use crate::iana::PayloadType;
use crate::read::Reader;

/// IV, text and ICV in one piece: only the cipher says where one ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sk {
    /// Type of the first payload inside.
    pub inner: PayloadType,
    /// IV, text, ICV.
    pub body: Vec<u8>,
}

impl Sk {
    pub(super) fn parse(inner: PayloadType, r: &mut Reader<'_>) -> Self {
        Self { inner, body: r.rest().to_vec() }
    }
}
