//! AUTH with a pre-shared key (RFC 7296 section 2.15).
//!
//! `AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"), SignedOctets)`

use ironswan_crypto::prf::Prf;
use ironswan_wire::secret::{Secret, ct_eq};

use super::SignedOctets;

/// The AUTH data of the side that `octets` are about.
pub(crate) fn auth(prf: &dyn Prf, psk: &Secret, octets: &SignedOctets<'_>) -> Secret {
    let key = prf.mac(psk.expose(), &[b"Key Pad for IKEv2"]);
    let maced_id = prf.mac(octets.sk_p.expose(), &[octets.id_body]);
    prf.mac(key.expose(), &[octets.message, octets.nonce, maced_id.expose()])
}

/// True when `data` is the AUTH of the side that `octets` are about.
pub(crate) fn verify(prf: &dyn Prf, psk: &Secret, octets: &SignedOctets<'_>, data: &[u8]) -> bool {
    ct_eq(auth(prf, psk, octets).expose(), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_is_that_of_the_rfc() {
        // AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"), RealMessage | Nonce | prf(SK_p, RestOfIDPayload) ), with the
        // pad's 17 bytes and no terminator.
        let prf = ironswan_crypto::prf::get(ironswan_wire::iana::PrfId::HMAC_SHA2_256).unwrap();
        let (psk, sk_p) = (Secret::from(&b"a secret"[..]), Secret::from(&[5; 32][..]));
        let octets =
            SignedOctets { message: b"message", nonce: b"nonce", sk_p: &sk_p, id_body: b"\x02\0\0\0me" };
        let pad = [
            0x4b, 0x65, 0x79, 0x20, 0x50, 0x61, 0x64, 0x20, 0x66, 0x6f, 0x72, 0x20, 0x49, 0x4b, 0x45, 0x76,
            0x32,
        ];
        let key = prf.mac(b"a secret", &[&pad]);
        let maced = prf.mac(&[5; 32], &[&[2, 0, 0, 0, b'm', b'e']]);
        let whole = [b"messagenonce", maced.expose()].concat();
        let wanted = prf.mac(key.expose(), &[&whole]);
        assert_eq!(auth(prf, &psk, &octets).expose(), wanted.expose());
        assert!(verify(prf, &psk, &octets, wanted.expose()));
        for n in 0..32 {
            assert!(!verify(prf, &psk, &octets, &wanted.expose()[..n]), "cut at {n}");
        }
        assert!(!verify(prf, &psk, &octets, &[wanted.expose(), &[0]].concat()));
    }
}
