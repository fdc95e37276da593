//! Extensible authentication payload (RFC 7296 section 3.16): one EAP packet (RFC 3748 section 4).

use crate::ike::error::Fault;
use crate::read::Reader;

/// An EAP packet. Its inside is the methods' business; that its own length is the payload's is
/// checked here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Eap(pub Vec<u8>);

impl Eap {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let bytes = r.rest();
        match bytes {
            [_code, _id, high, low, ..] if usize::from(u16::from_be_bytes([*high, *low])) == bytes.len() => {
                Ok(Self(bytes.to_vec()))
            }
            _ => Err(Fault::Invalid("the EAP length is not the payload's")),
        }
    }
}
