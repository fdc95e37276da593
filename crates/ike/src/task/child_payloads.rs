//! The payloads that a request and a response of a CHILD_SA have in common (RFC 7296 sections 1.2,
//! 1.3.1).

use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Ke;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::selector::TrafficSelector;

use crate::negotiate;
use crate::sa::IkeSa;

/// Payloads about a child, each the last of its kind in the message.
pub(super) struct ChildPayloads<'a> {
    pub proposals: &'a [Proposal],
    pub tsi: &'a [TrafficSelector],
    pub tsr: &'a [TrafficSelector],
    /// Empty, where the message has none.
    pub nonce: &'a [u8],
    pub ke: Option<&'a Ke>,
}

impl<'a> ChildPayloads<'a> {
    /// Reads them from a message, which a failure calls `message`. Every message about a child has
    /// SA, TSi and TSr.
    pub fn read(payloads: &'a [Payload], message: &'static str) -> Result<Self, KeyExchange> {
        let (mut proposals, mut tsi, mut tsr) = (None, None, None);
        let (mut nonce, mut ke): (&[u8], _) = (&[], None);
        for p in payloads {
            match p {
                Payload::Sa(list) => proposals = Some(list.as_slice()),
                Payload::Nonce(p) => nonce = &p.0,
                Payload::Ke(p) => ke = Some(p),
                Payload::TsI(list) => tsi = Some(list.as_slice()),
                Payload::TsR(list) => tsr = Some(list.as_slice()),
                _ => {}
            }
        }
        let (Some(proposals), Some(tsi), Some(tsr)) = (proposals, tsi, tsr) else {
            return Err(KeyExchange::MissingPayload { message, needs: "SA, TSi and TSr" });
        };
        Ok(Self { proposals, tsi, tsr, nonce, ke })
    }
}

/// "at least half the key size of the negotiated pseudorandom function" (RFC 7296 section 2.10):
/// the IKE_SA's makes the keys.
pub(super) fn check_nonce(sa: &IkeSa, nonce: &[u8]) -> Result<(), KeyExchange> {
    match sa.suite().filter(|suite| !negotiate::nonce_fits(suite.prf, nonce)) {
        Some(suite) => Err(KeyExchange::ShortNonce { bytes: nonce.len(), prf: suite.prf }),
        None => Ok(()),
    }
}
