//! AUTH with a digital signature, and the judgement of one by raw public keys: both sides know each
//! other's key from their configuration, and no CERT payload travels. RSA and ECDSA by RFC 7427,
//! Ed25519 by RFC 8420, and for a peer without RFC 7427 the old methods of RFC 7296 section 3.8 and
//! RFC 4754. AUTH data:
//!
//! ```text
//! method 14:          | length of AlgorithmIdentifier (1) | AlgorithmIdentifier | signature |
//! methods 1, 9 to 11: | signature |
//! ```
//! Each side says in IKE_SA_INIT over which hashes it verifies signatures
//! (SIGNATURE_HASH_ALGORITHMS). The other side signs only over one of these. Not here: the choice
//! of the algorithm (`ironswan_keying::Signatures`).

use ironswan_crypto::sign::{Hash, KeyKind, Legacy, Scheme};
use ironswan_keying::diagnosis::ProofFault;
use ironswan_keying::{Auth as Method, Connection, PrivateKey, PublicKey, Signatures};
use ironswan_pki::Certificate;
use ironswan_wire::iana::{AuthMethod, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Notify, find_notify};

use super::{Prover, Step, Verifier};
use crate::event::{Completion, Request};

/// Hashes over which we verify signatures. `settled`: the peer will belong to this connection. Else
/// its identity may name another one, so all hashes that need not be named are among them.
pub(crate) fn hashes(conn: &Connection, settled: bool) -> Vec<Hash> {
    let rules = conn.remote_sides().filter_map(|(auth, _)| match auth {
        Method::Psk => None,
        Method::Pubkey { rules, .. } | Method::Certificate { rules, .. } => Some(rules.announced()),
    });
    let mut all: Vec<Vec<Hash>> = rules.collect();
    if !settled || all.is_empty() {
        all.push(Signatures::default().announced());
    }
    let mut hashes = Vec::new();
    for hash in all.into_iter().flatten() {
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
    }
    hashes
}

/// The notification that says over which hashes our side verifies signatures.
pub(crate) fn announcement(hashes: &[Hash]) -> Payload {
    let data: Vec<u8> = hashes.iter().flat_map(|hash| hash.number().to_be_bytes()).collect();
    Payload::Notify(Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, data))
}

/// Reads the peer's announcement: the hashes that are built, each once. `None` when there is no
/// announcement.
pub(crate) fn announced(payloads: &[Payload]) -> Option<Vec<Hash>> {
    let numbers = &find_notify(payloads, NotifyType::SIGNATURE_HASH_ALGORITHMS)?.data;
    let is_there = |hash: &Hash| numbers.chunks(2).any(|number| number == hash.number().to_be_bytes());
    Some(Hash::ALL.into_iter().filter(is_there).collect())
}

/// An algorithm in lines of the log, as charon names it.
pub(crate) fn name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::RsaPkcs1(Hash::Sha1) => "RSA_EMSA_PKCS1_SHA1",
        Scheme::RsaPkcs1(Hash::Sha256) => "RSA_EMSA_PKCS1_SHA2_256",
        Scheme::RsaPkcs1(Hash::Sha384) => "RSA_EMSA_PKCS1_SHA2_384",
        Scheme::RsaPkcs1(Hash::Sha512) => "RSA_EMSA_PKCS1_SHA2_512",
        Scheme::RsaPss { hash: Hash::Sha256, salt_len: 32 } => "RSA_EMSA_PSS_SHA2_256_SALT_32",
        Scheme::RsaPss { hash: Hash::Sha384, salt_len: 48 } => "RSA_EMSA_PSS_SHA2_384_SALT_48",
        Scheme::RsaPss { hash: Hash::Sha512, salt_len: 64 } => "RSA_EMSA_PSS_SHA2_512_SALT_64",
        Scheme::RsaPss { .. } => "RSA_EMSA_PSS",
        Scheme::Ecdsa(Hash::Sha1) => "ECDSA_WITH_SHA1_DER",
        Scheme::Ecdsa(Hash::Sha256) => "ECDSA_WITH_SHA256_DER",
        Scheme::Ecdsa(Hash::Sha384) => "ECDSA_WITH_SHA384_DER",
        Scheme::Ecdsa(Hash::Sha512) => "ECDSA_WITH_SHA512_DER",
        Scheme::EcdsaFixed(Hash::Sha256) => "ECDSA-256 signature",
        Scheme::EcdsaFixed(Hash::Sha384) => "ECDSA-384 signature",
        Scheme::EcdsaFixed(Hash::Sha512) => "ECDSA-521 signature",
        Scheme::Ed25519 => "ED25519",
        Scheme::RsaPkcs1(Hash::Identity) | Scheme::Ecdsa(Hash::Identity) | Scheme::EcdsaFixed(_) => {
            "signature"
        }
    }
}

/// Our private key, and how it signs for this peer.
pub(crate) struct Signer {
    key: PrivateKey,
    /// Certificates that go to the peer: our own, and those above it.
    chain: Vec<Certificate>,
    method: AuthMethod,
    scheme: Scheme,
    legacy: Legacy,
}

impl Signer {
    /// Chooses how this key signs for a peer that has announced these hashes. `None`: the peer
    /// verifies nothing that the key and `rules` allow.
    pub(crate) fn choose(key: &PrivateKey, rules: &Signatures, peer: Option<&[Hash]>) -> Option<Self> {
        let (method, scheme) = rules.choose(key.public(), peer)?;
        Some(Self { key: key.clone(), chain: Vec::new(), method, scheme, legacy: rules.legacy() })
    }

    /// The same, and these certificates go to the peer.
    pub(crate) fn with_chain(self, chain: Vec<Certificate>) -> Self {
        Self { chain, ..self }
    }

    /// AUTH with this signature.
    fn auth(&self, signature: Vec<u8>) -> Option<Auth> {
        let (method, mut data) = (self.method, Vec::new());
        if method == AuthMethod::SIGNATURE {
            let algorithm = self.scheme.to_der()?;
            data.push(u8::try_from(algorithm.len()).ok()?);
            data.extend(algorithm);
        }
        data.extend(signature);
        Some(Auth { method, data })
    }
}

impl Prover for Signer {
    fn name(&self) -> &'static str {
        name(self.scheme)
    }

    fn key(&self) -> Option<&PublicKey> {
        Some(self.key.public())
    }

    fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    fn prove(&self, octets: Vec<u8>) -> Step<Auth> {
        let (key, scheme, legacy) = (self.key.clone(), self.scheme, self.legacy);
        Step::Ask(Request::Sign { key, scheme, legacy, message: octets })
    }

    fn resume(&self, answer: Completion) -> Step<Auth> {
        let auth = match answer {
            Completion::Signature(Some(signature)) => self.auth(signature),
            _ => None,
        };
        auth.map_or(Step::Failed(None), Step::Done)
    }
}

/// The algorithm and the signature in AUTH. `None`: AUTH is not by signature. The error says what
/// is wrong with AUTH.
fn read(auth: &Auth) -> Result<Option<(Scheme, &[u8])>, ProofFault> {
    let old = match auth.method {
        AuthMethod::SIGNATURE => None,
        AuthMethod::RSA => Some(Scheme::RsaPkcs1(Hash::Sha1)),
        AuthMethod::ECDSA_256 => Some(Scheme::EcdsaFixed(Hash::Sha256)),
        AuthMethod::ECDSA_384 => Some(Scheme::EcdsaFixed(Hash::Sha384)),
        AuthMethod::ECDSA_521 => Some(Scheme::EcdsaFixed(Hash::Sha512)),
        _ => return Ok(None),
    };
    if let Some(scheme) = old {
        return Ok(Some((scheme, &auth.data)));
    }
    let parts = auth.data.split_first().and_then(|(len, rest)| rest.split_at_checked(usize::from(*len)));
    let Some((algorithm, signature)) = parts.filter(|(_, signature)| !signature.is_empty()) else {
        return Err(ProofFault::Short(auth.data.len()));
    };
    match Scheme::from_der(algorithm) {
        Some(scheme) => Ok(Some((scheme, signature))),
        None => Err(ProofFault::Algorithm(algorithm.to_vec())),
    }
}

/// The algorithm and the signature in AUTH of a peer that has to obey these rules.
pub(crate) fn permitted<'a>(auth: &'a Auth, rules: &Signatures) -> Result<(Scheme, &'a [u8]), ProofFault> {
    let Some((scheme, signature)) = read(auth)? else { return Err(ProofFault::Method(rules.to_string())) };
    if rules.permits(scheme) {
        Ok((scheme, signature))
    } else {
        Err(ProofFault::Scheme { scheme, configured: rules.to_string() })
    }
}

/// The public keys that a peer may have, and how it may sign.
pub(crate) struct Keys {
    keys: Vec<PublicKey>,
    rules: Signatures,
    /// Algorithm of the signature that is judged.
    scheme: Option<Scheme>,
}

impl Keys {
    pub(crate) fn new(keys: Vec<PublicKey>, rules: Signatures) -> Self {
        Self { keys, rules, scheme: None }
    }

    /// Judges all that takes no computing. Returns the algorithm, the keys that may have
    /// signed, and the signature.
    fn judge(&self, auth: &Auth) -> Result<(Scheme, Vec<PublicKey>, Vec<u8>), ProofFault> {
        let configured = || self.rules.to_string();
        let (scheme, signature) = permitted(auth, &self.rules)?;
        let may_sign = |key: &&PublicKey| self.rules.takes(key.kind(), scheme);
        let keys: Vec<PublicKey> = self.keys.iter().filter(may_sign).cloned().collect();
        if keys.is_empty() {
            let mut kinds: Vec<KeyKind> = self.keys.iter().map(PublicKey::kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            return Err(ProofFault::Keys { scheme, keys: kinds, configured: configured() });
        }
        Ok((scheme, keys, signature.to_vec()))
    }
}

impl Verifier for Keys {
    fn name(&self) -> &'static str {
        self.scheme.map_or("signature", name)
    }

    fn verify(&mut self, octets: Vec<Vec<u8>>, auth: &Auth) -> Step<()> {
        match self.judge(auth) {
            Ok((scheme, keys, signature)) => {
                self.scheme = Some(scheme);
                let legacy = self.rules.legacy();
                Step::Ask(Request::Verify { keys, scheme, legacy, messages: octets, signature })
            }
            Err(fault) => Step::Failed(Some(fault)),
        }
    }

    fn resume(&mut self, answer: Completion) -> Step<()> {
        match answer {
            Completion::Verified(true) => Step::Done(()),
            _ => Step::Failed(Some(ProofFault::Signature(self.keys.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use ironswan_crypto::sign::Curve;
    use ironswan_wire::secret::Secret;

    use super::*;
    use crate::event::Time;

    fn pair(n: u8) -> PrivateKey {
        PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
    }

    fn public(n: u8) -> PublicKey {
        pair(n).public().clone()
    }

    /// Proves with this key over `octets`, for a peer that has announced these hashes.
    fn proof(key: &PrivateKey, rules: &str, peer: Option<&[Hash]>, octets: &[u8]) -> Auth {
        let signer = Signer::choose(key, &Signatures::parse(rules).unwrap(), peer).unwrap();
        let Step::Ask(request) = signer.prove(octets.to_vec()) else { panic!("nothing asked for") };
        match signer.resume(request.compute(Time(0)).unwrap()) {
            Step::Done(auth) => auth,
            _ => panic!("no proof"),
        }
    }

    /// The verdict of these keys by these rules.
    fn verdict(
        keys: &[PublicKey],
        rules: &str,
        octets: &[&[u8]],
        auth: &Auth,
    ) -> Result<(), Option<ProofFault>> {
        let mut verifier = Keys::new(keys.to_vec(), Signatures::parse(rules).unwrap());
        let step = match verifier.verify(octets.iter().map(|o| o.to_vec()).collect(), auth) {
            Step::Ask(request) => verifier.resume(request.compute(Time(0)).unwrap()),
            step => step,
        };
        match step {
            Step::Done(()) => Ok(()),
            Step::Failed(why) => Err(why),
            Step::Ask(_) | Step::Refused(_) => panic!("neither right nor wrong"),
        }
    }

    #[test]
    fn auth_is_that_of_the_rfcs_and_only_the_right_key_and_octets_verify() {
        let auth = proof(&pair(1), "pubkey", Some(&Hash::ALL), b"octets");
        assert_eq!(auth.method, AuthMethod(14));
        // "ASN.1 Length", then AlgorithmIdentifier with the object identifier 1.3.101.112 (RFC 8420
        // section 2, appendix A).
        assert_eq!(auth.data[..8], [7, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70]);
        let signature = pair(1).sign(Scheme::Ed25519, Legacy::default(), b"octets").unwrap();
        assert_eq!(auth.data[8..], signature);
        let verdict = |keys: &[PublicKey], octets: &[&[u8]]| verdict(keys, "pubkey", octets, &auth);
        assert_eq!(verdict(&[public(2), public(1)], &[b"twin", b"octets"]), Ok(()));
        assert!(verdict(&[public(2)], &[b"octets"]).is_err());
        assert!(verdict(&[public(1)], &[b"other"]).is_err());
        assert!(verdict(&[], &[b"octets"]).is_err() && verdict(&[public(1)], &[]).is_err());
    }

    #[test]
    fn every_kind_of_key_proves_itself_by_every_rule_and_a_changed_bit_proves_nothing() {
        let kinds = Curve::ALL.map(KeyKind::Ecdsa).into_iter().chain([KeyKind::Ed25519, KeyKind::Rsa(2048)]);
        for kind in kinds {
            let key = PrivateKey::generate(kind).unwrap();
            let public = std::slice::from_ref(key.public());
            let all = &Hash::ALL[..];
            let ways: &[(&str, Option<&[Hash]>, u8, usize)] = match kind {
                KeyKind::Rsa(_) => &[
                    ("rsa-sha256", Some(all), 14, 16),
                    ("rsa-sha512", Some(all), 14, 16),
                    ("rsa-sha1", Some(all), 14, 16),
                    ("rsa/pss-sha384", Some(all), 14, 68),
                    ("rsa-sha1", None, 1, 0),
                ],
                KeyKind::Ecdsa(Curve::P256) => &[
                    ("ecdsa-sha256", Some(all), 14, 13),
                    ("pubkey-sha512", Some(all), 14, 13),
                    ("ecdsa", None, 9, 0),
                ],
                KeyKind::Ecdsa(Curve::P384) => &[("ecdsa", Some(all), 14, 13), ("pubkey", None, 10, 0)],
                KeyKind::Ecdsa(Curve::P521) => &[("ecdsa", Some(all), 14, 13), ("pubkey", None, 11, 0)],
                KeyKind::Ed25519 => &[("pubkey", Some(all), 14, 8)],
            };
            for (rules, peer, method, head) in ways {
                let auth = proof(&key, rules, *peer, b"octets");
                assert_eq!(auth.method, AuthMethod(*method), "{kind} {rules}");
                if *head > 0 {
                    assert_eq!(usize::from(auth.data[0]) + 1, *head, "{kind} {rules}");
                }
                assert_eq!(verdict(public, rules, &[b"octets"], &auth), Ok(()), "{kind} {rules}");
                for at in 0..auth.data.len() {
                    for bit in [0x01, 0x80] {
                        let mut wrong = auth.clone();
                        wrong.data[at] ^= bit;
                        assert!(verdict(public, rules, &[b"octets"], &wrong).is_err(), "{kind} {rules} {at}");
                    }
                }
                for len in 0..auth.data.len() {
                    let cut = Auth { method: auth.method, data: auth.data[..len].to_vec() };
                    assert!(verdict(public, rules, &[b"octets"], &cut).is_err(), "{kind} {rules} {len}");
                }
            }
        }
    }

    #[test]
    fn auth_that_is_no_signature_of_ours_is_refused_before_any_computation() {
        let good = proof(&pair(1), "pubkey", Some(&Hash::ALL), b"octets").data;
        let refused = |method, data: &[u8], rules| {
            let auth = Auth { method, data: data.to_vec() };
            let rules = Signatures::parse(rules).unwrap();
            match Keys::new(vec![public(1)], rules).verify(vec![b"octets".to_vec()], &auth) {
                Step::Failed(Some(fault)) => fault.to_string(),
                _ => panic!("taken: {data:02x?}"),
            }
        };
        for n in 0..=8 {
            refused(AuthMethod::SIGNATURE, &good[..n], "pubkey");
        }
        let mut oid = good.clone();
        oid[7] = 0x71;
        assert!(refused(AuthMethod::SIGNATURE, &oid, "pubkey").contains("300506032b6571"));
        // An AlgorithmIdentifier with a NULL parameter: "parameters MUST be absent" (RFC 8410
        // section 3).
        let null = [&[9, 0x30, 0x07, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x05, 0x00][..], &good[8..]].concat();
        assert!(refused(AuthMethod::SIGNATURE, &null, "pubkey").contains("algorithm"));
        let long = [&[0xff][..], &good[1..]].concat();
        assert!(refused(AuthMethod::SIGNATURE, &long, "pubkey").contains("too short"));
        assert!(refused(AuthMethod::PSK, &good, "pubkey").contains("remote.auth = pubkey"));
        // An algorithm that the key is not for, one that the rules do not name, and SHA-1.
        let of = |scheme: Scheme| {
            let der = scheme.to_der().unwrap();
            [&[der.len() as u8][..], &der, &[1; 64]].concat()
        };
        let rsa = refused(AuthMethod::SIGNATURE, &of(Scheme::RsaPkcs1(Hash::Sha256)), "pubkey");
        assert!(rsa.contains("RSA PKCS#1 v1.5 with SHA2-256, and remote.pubkeys has Ed25519"), "{rsa}");
        let named = refused(AuthMethod::SIGNATURE, &good, "ecdsa-sha256");
        assert!(
            named.contains("signs by Ed25519, which remote.auth = ecdsa-sha256 does not allow"),
            "{named}"
        );
        for (method, data) in
            [(AuthMethod::SIGNATURE, of(Scheme::RsaPkcs1(Hash::Sha1))), (AuthMethod::RSA, vec![1; 256])]
        {
            let sha1 = refused(method, &data, "pubkey");
            assert!(sha1.contains("with SHA-1, which remote.auth = pubkey does not allow"), "{sha1}");
        }
    }

    #[test]
    fn an_old_method_of_ecdsa_means_one_curve() {
        let key = PrivateKey::generate(KeyKind::Ecdsa(Curve::P384)).unwrap();
        let mut auth = proof(&key, "pubkey", None, b"octets");
        assert_eq!((auth.method, auth.data.len()), (AuthMethod::ECDSA_384, 96));
        auth.method = AuthMethod::ECDSA_256;
        let keys = [key.public().clone()];
        assert!(matches!(verdict(&keys, "pubkey", &[b"octets"], &auth), Err(Some(ProofFault::Keys { .. }))));
    }

    #[test]
    fn an_announcement_is_read_whatever_else_is_in_it() {
        let of = |data: &[u8]| {
            let notify = Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, data);
            announced(&[Payload::Notify(notify)])
        };
        assert_eq!(announced(&[announcement(&Hash::ALL)]), Some(Hash::ALL.to_vec()));
        assert_eq!(announced(&[]), None);
        assert_eq!(of(&[0, 5, 0, 2, 0, 2]), Some(vec![Hash::Sha256, Hash::Identity]));
        for none in [&[][..], &[0, 9], &[5], &[0], &[5, 0], &[0, 0, 5]] {
            assert_eq!(of(none), Some(Vec::new()), "{none:?}");
        }
        assert_eq!(of(&[2; 60_000]), Some(Vec::new()));
    }
}
