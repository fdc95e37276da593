//! The part of AUTH's octets that covers IKE_INTERMEDIATE (RFC 9242 section 3.3).
//!
//! ```text
//! IntAuth_i1 = prf(SK_pi1, A | P)                   A: IKE header and generic header of SK, as if
//! IntAuth_iN = prf(SK_piN, IntAuth_iN-1 | A | P)       the message were P and nothing else
//! IntAuth    = IntAuth_iN | IntAuth_rN | MID        P: payloads inside SK, in clear
//! ```
//! SK_p are those under which the exchange takes place. MID is the message ID of the first IKE_AUTH
//! request.

use ironswan_crypto::prf::Prf;
use ironswan_wire::iana::PayloadType;
use ironswan_wire::ike::{HEADER_LEN, Header};
use ironswan_wire::read::Writer;
use ironswan_wire::secret::Secret;

/// Both directions, as far as the exchanges have come.
#[derive(Default, Debug)]
pub(crate) struct IntAuth {
    initiator: Vec<u8>,
    responder: Vec<u8>,
}

impl IntAuth {
    /// Adds a message: its header, and the payloads inside with the type of the first. `sk_p` is
    /// its sender's. "the Length field in the IKE header and the Payload Length field in the
    /// Encrypted payload header are adjusted" so that they count neither IV, padding nor ICV, and a
    /// message in fragments counts as if it were whole (RFC 9242 section 3.3.2).
    pub(crate) fn add(
        &mut self,
        prf: &dyn Prf,
        sk_p: &Secret,
        header: &Header,
        (first, inner): (PayloadType, &[u8]),
    ) {
        let so_far = if header.flags.response() { &mut self.responder } else { &mut self.initiator };
        let payload = 4 + inner.len();
        // No message that is sent or taken is near these limits.
        let length = u32::try_from(HEADER_LEN + payload).unwrap_or(u32::MAX);
        let mut a = Vec::with_capacity(HEADER_LEN + 4);
        let mut w = Writer::new(&mut a);
        Header { next_payload: PayloadType::SK, length, ..*header }.emit(&mut w);
        w.u8(first.0);
        w.u8(0);
        w.u16(u16::try_from(payload).unwrap_or(u16::MAX));
        *so_far = prf.mac(sk_p.expose(), &[so_far, &a, inner]).expose().to_vec();
    }

    /// What AUTH covers besides: nothing without IKE_INTERMEDIATE.
    pub(crate) fn octets(&self, auth_mid: u32) -> Vec<u8> {
        if self.initiator.is_empty() && self.responder.is_empty() {
            return Vec::new();
        }
        [&self.initiator[..], &self.responder, &auth_mid.to_be_bytes()].concat()
    }
}
