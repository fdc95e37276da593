//! Requests of IKE_SAs that are not there. The sender may have one that this gateway has lost by a
//! restart, and a QCD token tells the sender so (RFC 6290 section 4.5). Without quick crash
//! detection, such requests are only counted.
//!
//! "A token maker MUST NOT send a valid QCD token in an unprotected message for an existing IKE SA"
//! (section 9.2). So no token is sent
//!
//! * when either of the two SPIs is ours and in use, whatever the initiator flag says: this also
//!   holds for IKE_SAs that are half-open, rekeyed, or being deleted;
//! * for the other role than the one that the initiator flag gives us: roles have different tokens
//!   (`qcd`);
//! * by two processes: only one at a time has the secret, as the helper locks its file.

use std::net::SocketAddr;
use std::time::Instant;

use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::secret::Secret;

use super::Endpoint;
use crate::qcd::TokenMaker;

impl Endpoint {
    /// From now on peers get QCD tokens made with this secret, which has
    /// [`QCD_SECRET_LEN`](crate::QCD_SECRET_LEN) bytes and outlives restarts. Peers get none when
    /// it has another length.
    pub fn make_qcd_tokens(&mut self, secret: Secret) {
        self.shared.tokens = TokenMaker::new(secret);
    }

    /// A message whose SPI no IKE_SA has. `bytes`: its length.
    pub(super) fn unknown(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        header: &Header,
        bytes: usize,
    ) {
        self.shared.counters.invalid_spi += 1;
        if !self.may_have_stood(header) {
            return;
        }
        let Some(maker) = &self.shared.tokens else { return };
        // The sender is the initiator, or we are.
        let token = maker.notify(!header.flags.initiator(), (header.initiator_spi, header.responder_spi));
        let Some(answer) = answer(header, token, bytes) else { return };
        if !self.shared.strangers.may_send_token(now, &mut self.shared.rng, remote.ip()) {
            self.shared.counters.qcd_held_back += 1;
            return;
        }
        self.shared.counters.qcd_sent += 1;
        self.transmit(local, remote, &answer);
    }

    /// True for a protected request of an IKE_SA that may have been established before a restart.
    /// No peer has a token before IKE_AUTH is done.
    fn may_have_stood(&self, header: &Header) -> bool {
        let established = matches!(
            header.exchange,
            ExchangeType::CREATE_CHILD_SA | ExchangeType::INFORMATIONAL | ExchangeType::IKE_FOLLOWUP_KE
        );
        let spis = [header.initiator_spi, header.responder_spi];
        established
            && header.is_request()
            && header.is_sealed()
            && spis.iter().all(|spi| *spi != 0 && self.shared.spis.ike(*spi).is_none())
    }
}

/// The answer to a request of this length, which it does not exceed: with INVALID_IKE_SPI, or with
/// the token alone where there is no room for both. "the IKE SPI and message ID fields in the
/// packet headers are taken from the protected IKE request" (RFC 6290 section 4.5).
fn answer(request: &Header, token: Notify, most: usize) -> Option<Vec<u8>> {
    let Header { initiator_spi, responder_spi, exchange, message_id, .. } = *request;
    let flags = Flags::new(!request.flags.initiator(), true);
    let header = Header::new(initiator_spi, responder_spi, exchange, flags, message_id);
    let both = vec![Notify::new(NotifyType::INVALID_IKE_SPI, []), token.clone()];
    [both, vec![token]].into_iter().find_map(|notifies| {
        let payloads = notifies.into_iter().map(Payload::Notify).collect();
        Message { header, payloads }.emit().ok().filter(|bytes| bytes.len() <= most)
    })
}
