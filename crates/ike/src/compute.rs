//! The computations among the requests of an endpoint. They take long, so a driver runs them
//! outside of the endpoint, on a thread of its choice.

use ironswan_crypto::kex;

use crate::event::{Completion, Request, Time};
use ironswan_keying::PublicKey;
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};

impl Request {
    /// True when [`Self::compute`] answers this request.
    pub fn is_computation(&self) -> bool {
        match self {
            Self::GenerateKey { .. }
            | Self::Agree { .. }
            | Self::Respond { .. }
            | Self::Sign { .. }
            | Self::Verify { .. }
            | Self::Certify(_) => true,
            Self::Usage { .. }
            | Self::Packets { .. }
            | Self::Route { .. }
            | Self::PathMtu { .. }
            | Self::Resolve { .. }
            | Self::Fetch { .. } => false,
        }
    }

    /// Computes the answer, at `now` for certificates. `None` when somebody else has to answer.
    pub fn compute(&self, now: Time) -> Option<Completion> {
        Some(match self {
            Self::GenerateKey { ke, seed } => match kex::generate(*ke, seed.expose()) {
                Ok((private, public)) => Completion::KeyPair { private, public },
                Err(e) => {
                    let why = Uncomputed::KeyPair { method: Some(*ke), why: e.to_string() };
                    Completion::Failed { why: KeyExchange::NotComputed { why }.into() }
                }
            },
            Self::Agree { ke, private, peer_public } => {
                Completion::SharedSecret(kex::agree(*ke, private, peer_public).ok())
            }
            Self::Respond { ke, seed, peer_public } => {
                Completion::Response(kex::respond(*ke, seed.expose(), peer_public).ok())
            }
            Self::Sign { key, scheme, legacy, message } => {
                Completion::Signature(key.sign(*scheme, *legacy, message).ok())
            }
            Self::Verify { keys, scheme, legacy, messages, signature } => {
                let verifies = |key: &PublicKey, message: &[u8]| {
                    key.verify(*scheme, *legacy, message, signature).is_ok()
                };
                let by = |key| messages.iter().any(|message| verifies(key, message));
                Completion::Verified(keys.iter().any(by))
            }
            Self::Certify(claim) => Completion::Certified(claim.judge(now)),
            Self::Usage { .. }
            | Self::Packets { .. }
            | Self::Route { .. }
            | Self::PathMtu { .. }
            | Self::Resolve { .. }
            | Self::Fetch { .. } => return None,
        })
    }
}
