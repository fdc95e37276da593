//! Making messages and putting them into the queue of datagrams.

use std::net::SocketAddr;

use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::ike::{Flags, Header, Message, Payload};

use super::Endpoint;
use crate::event::Cut;

impl Endpoint {
    /// Queues a datagram to a stranger.
    pub(crate) fn transmit(&mut self, local: SocketAddr, remote: SocketAddr, message: &[u8]) {
        self.shared.outbox.send(None, 0, (local, remote), self.options.ports.natt, message, Cut::Allowed);
    }

    /// Answers an IKE_SA_INIT request without keeping anything.
    pub(crate) fn respond_stateless(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        request: &Header,
        kind: NotifyType,
        data: impl Into<Vec<u8>>,
    ) {
        let flags = Flags::new(!request.flags.initiator(), true);
        let header = Header::new(
            request.initiator_spi,
            request.responder_spi,
            request.exchange,
            flags,
            request.message_id,
        );
        let message = Message { header, payloads: vec![Payload::Notify(Notify::new(kind, data))] };
        let Ok(bytes) = message.emit() else { return };
        if let Some(c) = self.shared.counters.exchange(request.exchange) {
            c.out_rsp += 1;
        }
        self.transmit(local, remote, &bytes);
    }
}
