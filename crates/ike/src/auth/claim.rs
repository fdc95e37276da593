//! The claim of a peer that proves itself by certificates, as one computation: reads them, finds a
//! chain, and verifies AUTH by the key of the first one.

use std::sync::Arc;

use ironswan_crypto::sign::Scheme;
use ironswan_keying::diagnosis::{Authentication, ProofFault};
use ironswan_keying::{Certificates, Proven, Signatures, Trust};
use ironswan_pki::Time;
use ironswan_wire::id::Identity;

/// A peer's claim to an identity, with its certificates and AUTH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateClaim {
    pub(crate) trust: Trust,
    pub(crate) rules: Signatures,
    pub(crate) loaded: Arc<Certificates>,
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
}

impl CertificateClaim {
    /// Judges the claim at `now`: the chain first, then AUTH by the key of the certificate.
    ///
    /// # Errors
    /// The reason why the claim is refused.
    pub fn judge(&self, now: Time) -> Result<Proven, Doubt> {
        let legacy = self.rules.legacy();
        let proven = self
            .loaded
            .judge(&self.trust, &self.sent, &self.peer, legacy, now)
            .map_err(Doubt::Certificate)?;
        let kind = proven.key.kind();
        if !self.rules.takes(kind, self.scheme) {
            let (scheme, configured) = (self.scheme, self.rules.to_string());
            return Err(Doubt::Proof(ProofFault::CertifiedKey { scheme, key: kind, configured }));
        }
        let signed =
            |message: &Vec<u8>| proven.key.verify(self.scheme, legacy, message, &self.signature).is_ok();
        if self.messages.iter().any(signed) { Ok(proven) } else { Err(Doubt::Proof(ProofFault::Certified)) }
    }
}
