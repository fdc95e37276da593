//! AUTH with a pre-shared key (RFC 7296 section 2.15).
//!
//! `AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"), SignedOctets)`

use ironswan_crypto::prf::Prf;
use ironswan_keying::SharedKey;
use ironswan_keying::diagnosis::ProofFault;
use ironswan_wire::iana::AuthMethod;
use ironswan_wire::ike::payload::Auth;
use ironswan_wire::secret::{Secret, ct_eq};

use super::{Prover, Step, Verifier};

/// The shared key of both sides, for either direction.
pub(crate) struct Psk {
    prf: &'static dyn Prf,
    key: SharedKey,
}

impl Psk {
    pub(crate) fn new(prf: &'static dyn Prf, key: SharedKey) -> Self {
        Self { prf, key }
    }

    /// The AUTH data over these octets.
    fn mac(&self, octets: &[u8]) -> Secret {
        let key = self.prf.mac(self.key.secret.expose(), &[b"Key Pad for IKEv2"]);
        self.prf.mac(key.expose(), &[octets])
    }
}

impl Prover for Psk {
    fn name(&self) -> &'static str {
        "pre-shared key"
    }

    fn prove(&self, octets: Vec<u8>) -> Step<Auth> {
        Step::Done(Auth { method: AuthMethod::PSK, data: self.mac(&octets).expose().to_vec() })
    }
}

impl Verifier for Psk {
    fn name(&self) -> &'static str {
        "pre-shared key"
    }

    fn verify(&mut self, octets: Vec<Vec<u8>>, auth: &Auth) -> Step<()> {
        if auth.method != AuthMethod::PSK {
            return Step::Failed(Some(ProofFault::Method("psk".to_owned())));
        }
        if octets.iter().any(|octets| ct_eq(self.mac(octets).expose(), &auth.data)) {
            return Step::Done(());
        }
        Step::Failed(Some(ProofFault::Mac(self.key.name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::signed_octets;
    use super::*;

    #[test]
    fn auth_is_that_of_the_rfc() {
        // AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"), RealMessage | Nonce | prf(SK_p,
        // RestOfIDPayload) ), with the pad's 17 bytes and no terminator.
        let prf = ironswan_crypto::prf::get(ironswan_wire::iana::PrfId::HMAC_SHA2_256).unwrap();
        let sk_p = Secret::from(&[5; 32][..]);
        let octets = signed_octets(prf, b"message", b"nonce", &sk_p, b"\x02\0\0\0me");
        let pad = [
            0x4b, 0x65, 0x79, 0x20, 0x50, 0x61, 0x64, 0x20, 0x66, 0x6f, 0x72, 0x20, 0x49, 0x4b, 0x45, 0x76,
            0x32,
        ];
        let key = prf.mac(b"a secret", &[&pad]);
        let maced = prf.mac(&[5; 32], &[&[2, 0, 0, 0, b'm', b'e']]);
        let whole = [b"messagenonce", maced.expose()].concat();
        let wanted = prf.mac(key.expose(), &[&whole]).expose().to_vec();
        let key =
            SharedKey { name: "ike-1".into(), secret: Secret::from(&b"a secret"[..]), owners: Vec::new() };
        let mut psk = Psk::new(prf, key);
        let Step::Done(auth) = psk.prove(octets.clone()) else { panic!("not made at once") };
        assert_eq!((auth.method, &auth.data), (AuthMethod::PSK, &wanted));
        let mut right = |data: &[u8]| {
            let auth = Auth { method: AuthMethod::PSK, data: data.to_vec() };
            matches!(psk.verify(vec![b"another".to_vec(), octets.clone()], &auth), Step::Done(()))
        };
        assert!(right(&wanted));
        for n in 0..32 {
            assert!(!right(&wanted[..n]), "cut at {n}");
        }
        assert!(!right(&[&wanted[..], &[0]].concat()));
        let auth = Auth { method: AuthMethod::SIGNATURE, data: wanted };
        assert!(matches!(psk.verify(vec![octets], &auth), Step::Failed(_)));
    }
}
