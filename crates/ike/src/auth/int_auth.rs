//! The part of AUTH's octets that covers IKE_INTERMEDIATE (RFC 9242 section 3.3).
//!
//! ```text
//! IntAuth_i1 = prf(SK_pi1, A | P)                 A: IKE header, payloads in front of SK,
//! IntAuth_iN = prf(SK_piN, IntAuth_iN-1 | A | P)     generic header of SK
//! IntAuth    = IntAuth_iN | IntAuth_rN | MID      P: payloads inside SK, decrypted
//! ```
//! The lengths in A are those of a message that ends with P. SK_p are those under which the
//! exchange takes place. MID is the message ID of the first IKE_AUTH request.

use ironswan_crypto::prf::Prf;
use ironswan_wire::iana::PayloadType;
use ironswan_wire::ike::{GENERIC_LEN, HEADER_LEN, Header};
use ironswan_wire::read::Writer;
use ironswan_wire::secret::Secret;

/// The front of a message of ours, which has nothing in clear; `first`: type of the first payload
/// inside.
pub(crate) fn front(header: &Header, first: PayloadType) -> Vec<u8> {
    let mut front = Vec::with_capacity(HEADER_LEN + GENERIC_LEN);
    let mut w = Writer::new(&mut front);
    Header { next_payload: PayloadType::SK, ..*header }.emit(&mut w);
    w.u8(first.0);
    w.zeros(GENERIC_LEN - 1);
    front
}

/// Both directions, as far as the exchanges have come.
#[derive(Default, Debug)]
pub(crate) struct IntAuth {
    initiator: Vec<u8>,
    responder: Vec<u8>,
}

impl IntAuth {
    /// Adds a request or response: its [front](ironswan_wire::ike::Message::front), and the
    /// payloads inside. `sk_p` is its sender's. "the Length field in the IKE header and the Payload
    /// Length field in the Encrypted payload header are adjusted" so that they count neither IV,
    /// padding nor ICV, and a message in fragments counts as if it were whole (RFC 9242 section
    /// 3.3.2).
    pub(crate) fn add(&mut self, prf: &dyn Prf, sk_p: &Secret, response: bool, front: &[u8], inner: &[u8]) {
        let so_far = if response { &mut self.responder } else { &mut self.initiator };
        let mut a = front.to_vec();
        // No message that is sent or taken is near these limits.
        let length = u32::try_from(a.len() + inner.len()).unwrap_or(u32::MAX);
        let payload = u16::try_from(GENERIC_LEN + inner.len()).unwrap_or(u16::MAX);
        if let Some(field) = a.get_mut(HEADER_LEN - 4..HEADER_LEN) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        if let Some(field) = a.last_chunk_mut() {
            *field = payload.to_be_bytes();
        }
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
