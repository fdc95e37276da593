//! AUTH with the key of an X.509 certificate (RFC 7296 sections 2.15, 3.6 and 3.7): our CERT
//! payloads, CERTREQ of both sides, and the peer's certificates on their way to a verdict.
//!
//! ```text
//! <--  CERTREQ in IKE_SA_INIT            CAs of the responder
//!  IDi, CERT, CERT..., CERTREQ, AUTH -->
//! <--  IDr, CERT, CERT..., AUTH
//! ```
//! Whoever sends IKE_AUTH has proved nothing. The number of its certificates is looked at here; all
//! else is one computation ([`CertificateClaim`]): to read them, to find a chain, and to verify
//! AUTH by the key of the first one. A peer that has proved that much may make us ask for the
//! status of its certificates, and the computation is made again with the answers. Not here: the
//! rules of chains (`ironswan_keying::Certificates`), and the algorithms of signatures
//! (`signature`). Hash and URL is neither offered nor read.

use std::sync::Arc;

use ironswan_crypto::sign::Scheme;
use ironswan_keying::diagnosis::{Authentication, ProofFault};
use ironswan_keying::limits::{AUTHORITIES_ASKED, CERTIFICATES_PER_PEER};
use ironswan_keying::{Connection, Fingerprint, Inquiry, Policy, SendCert, Signatures, Trust};
use ironswan_pki::Certificate;
use ironswan_pki::ocsp::MAX_NONCE;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Cert, CertReq, X509_SIGNATURE};

use super::claim::{CertificateClaim, Doubt};
use super::signature;
use super::{Step, Verifier};
use crate::event::{Completion, Request};

/// CERT payloads of a chain of ours.
pub(crate) fn payloads(chain: &[Certificate]) -> impl Iterator<Item = Payload> {
    chain.iter().map(|c| Payload::Cert(Cert { encoding: X509_SIGNATURE, data: c.der().to_vec() }))
}

/// CERTREQ with the keys of the CAs that the peer's certificate may come from. `settled`: the peer
/// belongs to this connection. Else its identity may name another one. `None`: nothing is asked
/// for.
pub(crate) fn request(policy: &dyn Policy, conn: &Connection, settled: bool) -> Option<Payload> {
    // CAs of the first round by certificates: of further rounds nothing is asked for.
    let trust = conn.remote_sides().find_map(|(auth, _)| auth.trust());
    if !conn.send_certreq || (settled && trust.is_none()) {
        return None;
    }
    let keys = policy.certificates().asked_for(trust.filter(|_| settled));
    let authorities: Vec<u8> = keys.iter().take(AUTHORITIES_ASKED).flatten().copied().collect();
    let asks = !authorities.is_empty();
    asks.then_some(Payload::CertReq(CertReq { encoding: X509_SIGNATURE, authorities }))
}

/// Keys of CAs in the peer's CERTREQ. `None`: the peer asks for no certificate.
pub(crate) fn asked(payloads: &[Payload]) -> Option<Vec<Fingerprint>> {
    let mut asked = None;
    for payload in payloads {
        let Payload::CertReq(request) = payload else { continue };
        if request.encoding == X509_SIGNATURE {
            let keys = request.authorities.chunks_exact(size_of::<Fingerprint>());
            let keys = keys.filter_map(|key| Fingerprint::try_from(key).ok());
            let all: &mut Vec<Fingerprint> = asked.get_or_insert_default();
            all.extend(keys.take(AUTHORITIES_ASKED - all.len()));
        }
    }
    asked
}

/// True when our certificate goes to a peer that has asked so.
pub(crate) fn is_sent(conn: &Connection, asked: Option<&[Fingerprint]>) -> bool {
    match conn.send_cert {
        SendCert::Always => true,
        SendCert::IfAsked => asked.is_some(),
        SendCert::Never => false,
    }
}

/// Judges AUTH of a peer that proves itself by a certificate.
pub(crate) struct Certified {
    /// The claim, without AUTH until [`Verifier::verify`].
    claim: CertificateClaim,
    /// Algorithm of the signature that is judged.
    scheme: Option<Scheme>,
    /// The chain, once it has been found.
    chain: Option<String>,
    /// Lines about certificates of unknown status.
    doubts: Vec<String>,
    /// Places are asked for the status of certificates.
    asking: bool,
}

impl Certified {
    /// A judge of this peer, who has sent these payloads. The nonce is random, for requests of
    /// OCSP. The error: there are too many certificates among the payloads.
    pub(crate) fn new(
        policy: &dyn Policy,
        trust: &Trust,
        rules: &Signatures,
        peer: &Identity,
        payloads: &[Payload],
        nonce: [u8; MAX_NONCE],
    ) -> Result<Self, Authentication> {
        let certificates = || {
            payloads.iter().filter_map(|payload| match payload {
                Payload::Cert(cert) if cert.encoding == X509_SIGNATURE => Some(&cert.data),
                _ => None,
            })
        };
        let count = certificates().count();
        if count > CERTIFICATES_PER_PEER {
            return Err(Authentication::TooManyCertificates { peer: peer.clone(), count });
        }
        let claim = CertificateClaim {
            trust: trust.clone(),
            rules: rules.clone(),
            loaded: policy.certificates(),
            statuses: policy.statuses(),
            inquiry: Inquiry::new(nonce),
            sent: certificates().cloned().collect(),
            peer: peer.clone(),
            scheme: Scheme::Ed25519,
            messages: Vec::new(),
            signature: Vec::new(),
        };
        Ok(Self { claim, scheme: None, chain: None, doubts: Vec::new(), asking: false })
    }
}

impl Verifier for Certified {
    fn name(&self) -> &'static str {
        self.scheme.map_or("signature", signature::name)
    }

    fn chain(&self) -> Option<&str> {
        self.chain.as_deref()
    }

    fn doubts(&self) -> &[String] {
        &self.doubts
    }

    fn waits_for(&self) -> &'static str {
        match self.asking {
            true => "waiting for the revocation status of the peer's certificates",
            false => "waiting for the peer's signature to be verified",
        }
    }

    fn is_current(&self, policy: &dyn Policy) -> bool {
        Arc::ptr_eq(&self.claim.loaded, &policy.certificates())
    }

    fn verify(&mut self, octets: Vec<Vec<u8>>, auth: &Auth) -> Step<()> {
        match signature::permitted(auth, &self.claim.rules) {
            Ok((scheme, signature)) => {
                self.scheme = Some(scheme);
                self.claim.scheme = scheme;
                (self.claim.messages, self.claim.signature) = (octets, signature.to_vec());
                Step::Ask(Request::Certify(Box::new(self.claim.clone())))
            }
            Err(fault) => Step::Failed(Some(fault)),
        }
    }

    fn resume(&mut self, answer: Completion) -> Step<()> {
        match answer {
            Completion::Certified(Ok(proven)) => {
                (self.chain, self.doubts) = (Some(proven.chain), proven.doubts);
                Step::Done(())
            }
            Completion::Certified(Err(Doubt::Status(inquiry))) => {
                self.asking = true;
                self.claim.inquiry = *inquiry;
                let (wanted, limit) = (self.claim.inquiry.wanted(), self.claim.inquiry.limit());
                Step::Ask(Request::Fetch { wanted, limit })
            }
            Completion::Fetched { answers, took } if self.asking => {
                self.asking = false;
                self.claim.inquiry.answered(answers, took);
                Step::Ask(Request::Certify(Box::new(self.claim.clone())))
            }
            Completion::Certified(Err(Doubt::Certificate(why))) => Step::Refused(why.into()),
            Completion::Certified(Err(Doubt::Proof(fault))) => Step::Failed(Some(fault)),
            _ => Step::Failed(Some(ProofFault::Certified)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(encoding: u8, keys: std::ops::Range<u16>) -> Payload {
        let key = |n: u16| [&n.to_be_bytes()[..], &[7; 18]].concat();
        Payload::CertReq(CertReq { encoding, authorities: keys.flat_map(key).collect() })
    }

    #[test]
    fn of_a_thousand_keys_in_certreq_the_first_hundred_are_read() {
        let keys = asked(&[request(X509_SIGNATURE, 0..60), request(X509_SIGNATURE, 60..1_000)]).unwrap();
        assert_eq!(keys.len(), AUTHORITIES_ASKED);
        assert!(keys.iter().zip(0_u16..).all(|(key, n)| key[..2] == n.to_be_bytes()));
    }

    #[test]
    fn certreq_of_another_encoding_asks_for_nothing_and_an_empty_one_for_any_certificate() {
        assert_eq!(asked(&[request(X509_SIGNATURE + 1, 0..3)]), None);
        assert_eq!(asked(&[request(X509_SIGNATURE, 0..0)]), Some(Vec::new()));
        // Bytes behind the last whole key are no key.
        let cut = CertReq { encoding: X509_SIGNATURE, authorities: vec![7; 39] };
        assert_eq!(asked(&[Payload::CertReq(cut)]), Some(vec![[7; 20]]));
    }
}
