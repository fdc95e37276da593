//! Vendor ID payload (RFC 7296 section 3.12).

use crate::read::Reader;

/// Any bytes: "a receiver MUST NOT" act on one that it does not know.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VendorId(pub Vec<u8>);

impl VendorId {
    pub(super) fn parse(r: &mut Reader<'_>) -> Self {
        Self(r.rest().to_vec())
    }
}
