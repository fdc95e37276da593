//! Vendor ID payload (RFC 7296 section 3.12).

use crate::read::Reader;

/// Any bytes; one that is not known says nothing. It "MUST NOT change the interpretation of any
/// information defined in this specification" (RFC 7296).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VendorId(pub Vec<u8>);

impl VendorId {
    pub(super) fn parse(r: &mut Reader<'_>) -> Self {
        Self(r.rest().to_vec())
    }
}
