//! AUTH with a digital signature (RFC 7427) by Ed25519 (RFC 8420) and raw public keys: both sides
//! know each other's key from their configuration, and no CERT payload travels.
//!
//! ```text
//! AUTH data: | length of AlgorithmIdentifier (1) | AlgorithmIdentifier | signature |
//! ```
//! "The algorithm needs the whole message": the signature covers the octets themselves, which the
//! Identity hash stands for in SIGNATURE_HASH_ALGORITHMS. A side signs only when the other has
//! announced that hash.

use ironswan_crypto::sign::{self, ED25519_ALGORITHM, SIGNATURE_LEN};
use ironswan_keying::diagnosis::ProofFault;
use ironswan_keying::{PrivateKey, PublicKey};
use ironswan_wire::iana::{AuthMethod, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Notify, find_notify};

use super::{Prover, Step, Verifier};
use crate::event::{Completion, Request};

/// Hash algorithm "Identity" (RFC 8420 section 2).
const IDENTITY: [u8; 2] = 5u16.to_be_bytes();
/// The method in lines of the log, as charon names it.
const NAME: &str = "ED25519";

/// The notification that says which hashes our side verifies signatures over.
pub(crate) fn announcement() -> Payload {
    Payload::Notify(Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, IDENTITY))
}

/// Reads the peer's announcement: true when the peer verifies Ed25519, `None` when there is no
/// announcement.
pub(crate) fn announced(payloads: &[Payload]) -> Option<bool> {
    let hashes = &find_notify(payloads, NotifyType::SIGNATURE_HASH_ALGORITHMS)?.data;
    Some(hashes.chunks(2).any(|hash| hash == IDENTITY))
}

/// Our private key.
pub(crate) struct Signer {
    key: PrivateKey,
}

impl Signer {
    pub(crate) fn new(key: PrivateKey) -> Self {
        Self { key }
    }
}

impl Prover for Signer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn key(&self) -> Option<&PublicKey> {
        Some(&self.key.public)
    }

    fn prove(&self, octets: Vec<u8>) -> Step<Auth> {
        Step::Ask(Request::Sign { secret: self.key.secret.clone(), message: octets })
    }

    fn resume(&self, answer: Completion) -> Step<Auth> {
        match answer {
            Completion::Signature(Some(signature)) => Step::Done(auth(&signature)),
            _ => Step::Failed(None),
        }
    }
}

/// AUTH with this signature.
fn auth(signature: &[u8]) -> Auth {
    let data = [&[ED25519_ALGORITHM.len() as u8], &ED25519_ALGORITHM[..], signature].concat();
    Auth { method: AuthMethod::SIGNATURE, data }
}

/// The signature in AUTH. The error says what is wrong with AUTH.
fn signature(auth: &Auth) -> Result<&[u8], ProofFault> {
    if auth.method != AuthMethod::SIGNATURE {
        return Err(ProofFault::Method("pubkey"));
    }
    let parts = auth.data.split_first().and_then(|(len, rest)| rest.split_at_checked(usize::from(*len)));
    let Some((algorithm, signature)) = parts else { return Err(ProofFault::Short(auth.data.len())) };
    if algorithm != ED25519_ALGORITHM {
        return Err(ProofFault::Algorithm(algorithm.to_vec()));
    }
    if signature.len() != SIGNATURE_LEN {
        return Err(ProofFault::Length(signature.len(), SIGNATURE_LEN));
    }
    Ok(signature)
}

/// The public keys that a peer may have.
pub(crate) struct Keys {
    keys: Vec<PublicKey>,
}

impl Keys {
    pub(crate) fn new(keys: Vec<PublicKey>) -> Self {
        Self { keys }
    }
}

impl Verifier for Keys {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify(&self, octets: Vec<Vec<u8>>, auth: &Auth) -> Step<()> {
        match signature(auth) {
            Ok(signature) => Step::Ask(Request::Verify {
                keys: self.keys.clone(),
                messages: octets,
                signature: signature.to_vec(),
            }),
            Err(fault) => Step::Failed(Some(fault)),
        }
    }

    fn resume(&self, answer: Completion) -> Step<()> {
        match answer {
            Completion::Verified(true) => Step::Done(()),
            _ => Step::Failed(Some(ProofFault::Signature(self.keys.len()))),
        }
    }
}

/// True when one of these keys has signed one of these messages.
pub(crate) fn verify(keys: &[PublicKey], messages: &[Vec<u8>], signature: &[u8]) -> bool {
    keys.iter().any(|PublicKey::Ed25519(key)| messages.iter().any(|m| sign::verify(key, m, signature)))
}

#[cfg(test)]
mod tests {
    use ironswan_wire::secret::Secret;

    use super::*;

    fn pair(n: u8) -> PrivateKey {
        let secret = Secret::new(vec![n; 32]);
        let public = PublicKey::Ed25519(sign::public(&secret).unwrap());
        PrivateKey { id: [n; 20], info: [n; 20], public, secret }
    }

    /// Proves with this key over `octets`.
    fn proof(key: PrivateKey, octets: &[u8]) -> Auth {
        let signer = Signer::new(key);
        let Step::Ask(request) = signer.prove(octets.to_vec()) else { panic!("nothing asked for") };
        match signer.resume(request.compute().unwrap()) {
            Step::Done(auth) => auth,
            _ => panic!("no proof"),
        }
    }

    /// The verdict of these keys.
    fn verdict(keys: &[PublicKey], octets: &[&[u8]], auth: &Auth) -> Result<(), Option<ProofFault>> {
        let verifier = Keys::new(keys.to_vec());
        let step = match verifier.verify(octets.iter().map(|o| o.to_vec()).collect(), auth) {
            Step::Ask(request) => verifier.resume(request.compute().unwrap()),
            step => step,
        };
        match step {
            Step::Done(()) => Ok(()),
            Step::Failed(why) => Err(why),
            Step::Ask(_) => panic!("asked twice"),
        }
    }

    #[test]
    fn auth_is_that_of_the_rfcs_and_only_the_right_key_and_octets_verify() {
        let auth = proof(pair(1), b"octets");
        assert_eq!(auth.method, AuthMethod(14));
        // "ASN.1 Length", then AlgorithmIdentifier with the object identifier 1.3.101.112 (RFC 8420
        // section 2, appendix A).
        assert_eq!(auth.data[..8], [7, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70]);
        assert_eq!(auth.data[8..], sign::sign(&pair(1).secret, b"octets").unwrap());
        let key = |n| pair(n).public;
        assert_eq!(verdict(&[key(2), key(1)], &[b"twin", b"octets"], &auth), Ok(()));
        assert!(verdict(&[key(2)], &[b"octets"], &auth).is_err());
        assert!(verdict(&[key(1)], &[b"other"], &auth).is_err());
        assert!(verdict(&[], &[b"octets"], &auth).is_err() && verdict(&[key(1)], &[], &auth).is_err());
    }

    #[test]
    fn auth_that_is_no_signature_of_ours_is_refused_before_any_computation() {
        let good = proof(pair(1), b"octets").data;
        let refused = |method, data: &[u8]| {
            let auth = Auth { method, data: data.to_vec() };
            match Keys::new(vec![pair(1).public]).verify(vec![b"octets".to_vec()], &auth) {
                Step::Failed(Some(fault)) => fault.to_string(),
                _ => panic!("taken: {data:02x?}"),
            }
        };
        for n in 0..good.len() {
            refused(AuthMethod::SIGNATURE, &good[..n]);
        }
        assert!(refused(AuthMethod::SIGNATURE, &[&good[..], &[0]].concat()).contains("65 bytes"));
        let mut oid = good.clone();
        oid[7] = 0x71;
        assert!(refused(AuthMethod::SIGNATURE, &oid).contains("300506032b6571"));
        // An AlgorithmIdentifier with a NULL parameter: "parameters MUST be absent" (RFC 8410
        // section 3).
        let null = [&[9, 0x30, 0x07, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x05, 0x00][..], &good[8..]].concat();
        assert!(refused(AuthMethod::SIGNATURE, &null).contains("algorithm"));
        let long = [&[0xff][..], &good[1..]].concat();
        assert!(refused(AuthMethod::SIGNATURE, &long).contains("too short"));
        assert!(refused(AuthMethod::PSK, &good).contains("remote.auth"));
    }

    #[test]
    fn an_announcement_is_read_whatever_else_is_in_it() {
        let of = |data: &[u8]| {
            let notify = Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, data);
            announced(&[Payload::Notify(notify)])
        };
        assert_eq!(announced(&[announcement()]), Some(true));
        assert_eq!(announced(&[]), None);
        assert_eq!(of(&[0, 2, 0, 3, 0, 5]), Some(true));
        for none in [&[][..], &[0, 2], &[5], &[0, 2, 0], &[5, 0], &[0, 0, 5]] {
            assert_eq!(of(none), Some(false), "{none:?}");
        }
    }
}
