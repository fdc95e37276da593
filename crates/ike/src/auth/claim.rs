//! The claim of a peer that proves itself by certificates, as one computation: reads them, finds a
//! chain, verifies AUTH by the key of the first one, and looks whether one was revoked. When lists
//! or responses of OCSP have to be fetched for that, the claim is judged again with the answers.

use std::sync::Arc;

use ironswan_crypto::sign::Scheme;
use ironswan_keying::diagnosis::{Authentication, ProofFault};
use ironswan_keying::{Certificates, Inquiry, Proven, Signatures, Statuses, Trust, Unproven};
use ironswan_pki::Time;
use ironswan_wire::id::Identity;

/// A peer's claim to an identity, with its certificates and AUTH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateClaim {
    pub(crate) trust: Trust,
    pub(crate) rules: Signatures,
    pub(crate) loaded: Arc<Certificates>,
    /// Lists and responses that were fetched earlier.
    pub(crate) statuses: Statuses,
    /// What was fetched for this claim.
    pub(crate) inquiry: Inquiry,
    /// Certificates in DER, the peer's own first.
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) peer: Identity,
    pub(crate) scheme: Scheme,
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) signature: Vec<u8>,
}

/// Reason why a claim is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// The certificates break a rule.
    Certificate(Authentication),
    /// AUTH proves nothing.
    Proof(ProofFault),
    /// None yet: the status of a certificate is unknown, and these places may know it.
    Status(Box<Inquiry>),
}

impl CertificateClaim {
    /// The same claim with another signature.
    #[must_use]
    pub fn with_signature(self, signature: Vec<u8>) -> Self {
        Self { signature, ..self }
    }

    /// Judges the claim at `now`: the chain first, then AUTH by the key of the certificate. Then
    /// the peer is somebody to whom a trusted CA has given a certificate, and its status may be
    /// asked.
    ///
    /// # Errors
    /// The reason why the claim is refused.
    pub fn judge(&self, now: Time) -> Result<Proven, Doubt> {
        let legacy = self.rules.legacy();
        let chained = self
            .loaded
            .judge(&self.trust, &self.sent, &self.peer, legacy, now)
            .map_err(Doubt::Certificate)?;
        let kind = chained.key().kind();
        if !self.rules.takes(kind, self.scheme) {
            let (scheme, configured) = (self.scheme, self.rules.to_string());
            return Err(Doubt::Proof(ProofFault::CertifiedKey { scheme, key: kind, configured }));
        }
        let signed =
            |message: &Vec<u8>| chained.key().verify(self.scheme, legacy, message, &self.signature).is_ok();
        if !self.messages.iter().any(signed) {
            return Err(Doubt::Proof(ProofFault::Certified));
        }
        let policy = self.trust.revocation;
        let status = chained.status(&self.peer, &self.loaded, &self.statuses, policy, &self.inquiry, now);
        status.map_err(|why| match why {
            Unproven::Refused(why) => Doubt::Certificate(why),
            Unproven::Asks(inquiry) => Doubt::Status(inquiry),
        })
    }
}
