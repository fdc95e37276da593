//! Object identifiers of certificates, lists and responses, as the bytes of their DER value.

pub(crate) use ironswan_wire::oid::{Oid, dotted};

/// The last byte of an extension of RFC 5280 (2.5.29.x). `None` for all others.
pub(crate) fn certificate_extension(value: &[u8]) -> Option<u8> {
    match value {
        [0x55, 0x1d, number] => Some(*number),
        _ => None,
    }
}

/// authorityInfoAccess.
pub(crate) const AUTHORITY_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
/// Access method: OCSP.
pub(crate) const ACCESS_OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];
/// anyPolicy.
pub(crate) const ANY_POLICY: &[u8] = &[0x55, 0x1d, 0x20, 0];
/// anyExtendedKeyUsage.
pub(crate) const ANY_PURPOSE: &[u8] = &[0x55, 0x1d, 0x25, 0];
/// Purposes below `id-kp` (1.3.6.1.5.5.7.3) end in one byte.
pub(crate) const PURPOSES: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3];
/// iKEIntermediate, a purpose that old software of Apple and Microsoft asks for.
pub(crate) const IKE_INTERMEDIATE: &[u8] = &[0x2b, 6, 1, 5, 5, 8, 2, 2];
/// id-kp-OCSPSigning.
pub(crate) const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// id-pkix-ocsp-basic.
pub(crate) const OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
/// id-pkix-ocsp-nonce.
pub(crate) const OCSP_NONCE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 2];
/// id-pkix-ocsp-nocheck.
pub(crate) const OCSP_NO_CHECK: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 5];
/// SHA-1.
pub(crate) const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
