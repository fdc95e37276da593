//! Certificate payloads (RFC 7296 sections 3.6 and 3.7): `| encoding | data |`. The data is not
//! looked into here.

use crate::ike::error::Fault;
use crate::read::{Reader, Writer};

/// Encoding of an X.509 certificate's signature (RFC 7296 section 3.6).
pub const X509_SIGNATURE: u8 = 4;

/// A certificate, or a part of its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cert {
    /// Certificate encoding.
    pub encoding: u8,
    /// As that encoding says.
    pub data: Vec<u8>,
}

impl Cert {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { encoding: r.u8("certificate encoding")?, data: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.encoding);
        w.bytes(&self.data);
    }
}

/// Which certification authorities the sender trusts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertReq {
    /// Certificate encoding.
    pub encoding: u8,
    /// For X.509, SHA-1 hashes of public keys, 20 bytes each, joined.
    pub authorities: Vec<u8>,
}

impl CertReq {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { encoding: r.u8("certificate encoding")?, authorities: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.encoding);
        w.bytes(&self.authorities);
    }
}
