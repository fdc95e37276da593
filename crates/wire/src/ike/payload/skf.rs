//! Encrypted fragment payload (RFC 7383 section 2.5): `| number | total | IV | text | ICV |`.

use crate::iana::PayloadType;
use crate::ike::error::Fault;
use crate::ike::sealed::Fragment;
use crate::read::{Reader, Writer};

/// One fragment, sealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skf {
    /// Type of the first payload inside: told by fragment 1 only, and to be ignored in the others.
    pub inner: PayloadType,
    /// Which one of how many.
    pub fragment: Fragment,
    /// IV, text, ICV.
    pub body: Vec<u8>,
}

impl Skf {
    pub(super) fn parse(inner: PayloadType, r: &mut Reader<'_>) -> Result<Self, Fault> {
        let fragment = Fragment { number: r.u16("fragment number")?, total: r.u16("total fragments")? };
        // The fragment number starts from 1 and must not be above the total (RFC 7383 section 2.5).
        if fragment.number == 0 || fragment.number > fragment.total {
            return Err(Fault::Invalid("the fragment number is not within the total"));
        }
        Ok(Self { inner, fragment, body: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u16(self.fragment.number);
        w.u16(self.fragment.total);
        w.bytes(&self.body);
    }
}
