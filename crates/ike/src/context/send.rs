//! Makes and queues messages.

use super::Context;
use crate::endpoint::outbox::Pending;
use crate::event::{Cut, Level, Request, Transmit};
use crate::sa::{Active, IkeSa, Wait};
use crate::task::{Exchange, Task, liveness, path_probe};
use crate::timer::Timer;
use crate::window::Sealed;
use ironswan_crypto::kex;
use ironswan_keying::Close;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, Unsent};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::payload::{Delete, Notify};
use ironswan_wire::ike::{Header, Message, Payload};
use ironswan_wire::secret::Secret;
use std::net::SocketAddr;
use std::time::Duration;

impl Context<'_> {
    /// Queues a datagram of an IKE_SA.
    fn transmit_of(
        &mut self,
        sa: &IkeSa,
        (local, remote): (SocketAddr, SocketAddr),
        message: &[u8],
        cut: Cut,
    ) {
        let known = (sa.is_initiator() || sa.is_up()) && remote.ip() == sa.remote().ip();
        self.shared.outbox.send(
            known.then_some(sa.id()),
            sa.conn().dscp,
            (local, remote),
            self.settings.options.ports.natt,
            message,
            cut,
        );
        // Whatever goes to the peer keeps the mapping of a NAT in front of us.
        if self.has_timer(Timer::Keepalive(sa.id())) && (local, remote) == (sa.local(), sa.remote()) {
            liveness::rearm_keepalive(self, sa);
        }
    }

    /// Queues a message of an IKE_SA, whole or in fragments of IKE; IP may cut it further.
    pub(crate) fn transmit_all(&mut self, sa: &IkeSa, ends: (SocketAddr, SocketAddr), message: &[Vec<u8>]) {
        self.transmit_cut(sa, ends, message, Cut::Allowed);
    }

    /// The same, and says whether IP may cut its datagrams.
    pub(crate) fn transmit_cut(
        &mut self,
        sa: &IkeSa,
        ends: (SocketAddr, SocketAddr),
        message: &[Vec<u8>],
        cut: Cut,
    ) {
        message.iter().for_each(|datagram| self.transmit_of(sa, ends, datagram, cut));
    }

    /// Makes the bytes of a message: IKE_SA_INIT in clear, "MUST NOT" be cut (RFC 7383 section
    /// 2.3); all others sealed.
    fn write(&mut self, sa: &mut IkeSa, header: Header, payloads: &[Payload]) -> Option<Sealed> {
        if header.exchange == ExchangeType::IKE_SA_INIT {
            return Some(vec![Message { header, payloads: payloads.to_vec() }.emit().ok()?]);
        }
        sa.seal(&mut *self.shared.rng, &header, payloads, self.settings.limits.fragment_size)
    }

    /// Queues a NAT-keepalive: "a single octet with the value 0xFF" (RFC 3948 section 2.3), without
    /// marker.
    pub(crate) fn transmit_keepalive(&mut self, sa: &IkeSa) {
        let (local, remote) = (sa.local(), sa.remote());
        let (payload, dscp) = (vec![0xff], sa.conn().dscp);
        self.shared.outbox.transmit(Transmit {
            local,
            remote,
            payload,
            dscp,
            cut: Cut::Allowed,
            ike: Some(sa.id()),
        });
    }

    /// Sends our request, and waits for the response.
    pub(crate) fn send_request(
        &mut self,
        sa: &mut IkeSa,
        exchange: ExchangeType,
        task: Task,
        payloads: &[Payload],
    ) {
        let Some(mid) = sa.work().next_mid() else {
            let why: Diagnosis = KeyExchange::CannotSend { why: Unsent::MessageIds }.into();
            self.log_why(Level::Error, sa, "closing IKE_SA", &why);
            self.fail_task(task, &why);
            self.close(sa, Close::Lost(why));
            return;
        };
        let header = sa.header(exchange, false, mid);
        let Some(bytes) = self.write(sa, header, payloads) else {
            let why: Diagnosis = KeyExchange::CannotSend { why: Unsent::TooLong(exchange) }.into();
            self.log_why(Level::Error, sa, "", &why);
            self.fail_task(task, &why);
            if !sa.is_up() {
                // Nothing would ever happen to it, and whoever wants the same would wait with it.
                self.close(sa, Close::Failed(why));
            }
            return;
        };
        if let Some(init) = sa.init_mut().filter(|_| exchange == ExchangeType::IKE_SA_INIT) {
            init.request = bytes.concat();
        }
        self.shared.count_message(&sa.conn().name, exchange, |x| x.out_req += 1);
        self.log(Level::Debug, sa, format!("sending {exchange} request {mid} ({})", size(&bytes)));
        if !sa.is_blocked() {
            self.transmit_all(sa, (sa.local(), sa.remote()), &bytes);
            self.test_paths(sa, 0, &bytes);
            let delay = self.until_retransmit(sa, 0);
            self.shared.timers.set(Timer::Retransmit(sa.id()), self.now + delay);
        }
        sa.work_mut().sent(Active::new(task, mid, exchange, bytes, self.now));
    }

    /// Sends a request of INFORMATIONAL in one datagram that must not be fragmented, and waits
    /// `wait` for the response. What follows then is up to the task. False when it cannot be made.
    pub(crate) fn send_uncut(
        &mut self,
        sa: &mut IkeSa,
        task: Task,
        payloads: &[Payload],
        wait: Duration,
    ) -> bool {
        let Some(mid) = sa.work().next_mid() else { return false };
        let exchange = ExchangeType::INFORMATIONAL;
        let header = sa.header(exchange, false, mid);
        let Some(bytes) = self.seal_whole(sa, &header, payloads) else { return false };
        self.shared.counters.info.out_req += 1;
        self.transmit_cut(sa, (sa.local(), sa.remote()), &bytes, Cut::Forbidden);
        self.shared.timers.set(Timer::Retransmit(sa.id()), self.now + wait);
        sa.work_mut().sent(Active::new(task, mid, exchange, bytes, self.now));
        true
    }

    /// Seals payloads into one message, however long it is.
    pub(crate) fn seal_whole(
        &mut self,
        sa: &mut IkeSa,
        header: &Header,
        payloads: &[Payload],
    ) -> Option<Sealed> {
        sa.seal_whole(&mut *self.shared.rng, header, payloads)
    }

    /// Seals payloads into fragments (RFC 7383) that pass wherever anything passes. `None` when
    /// they fit into one datagram, or the peer takes no fragments.
    pub(crate) fn seal_small(
        &mut self,
        sa: &mut IkeSa,
        header: &Header,
        payloads: &[Payload],
    ) -> Option<Sealed> {
        let sealed = sa.seal(&mut *self.shared.rng, header, payloads, 0)?;
        (sealed.len() > 1).then_some(sealed)
    }

    /// Sends a request and forgets it: the last word of an IKE_SA that is dropped.
    pub(crate) fn send_last_word(&mut self, sa: &mut IkeSa, payloads: &[Payload]) {
        // A probe of the path may not have passed, and the peer would not expect what follows it.
        path_probe::give_way(self, sa);
        // With a request in flight the next ID is used: a peer that has seen that request takes
        // this one.
        let mid =
            sa.work().next_mid().map(|m| if sa.work().active().is_some() { m.saturating_add(1) } else { m });
        let Some(mid) = mid else { return };
        let header = sa.header(ExchangeType::INFORMATIONAL, false, mid);
        if let Some(bytes) = self.write(sa, header, payloads) {
            let exchange = ExchangeType::INFORMATIONAL;
            self.shared.count_message(&sa.conn().name, exchange, |x| x.out_req += 1);
            self.transmit_all(sa, (sa.local(), sa.remote()), &bytes);
        }
    }

    /// A DELETE as the last word.
    pub(crate) fn say_deleted(&mut self, sa: &mut IkeSa) {
        self.send_last_word(sa, &[Payload::Delete(Delete::ike_sa())]);
    }

    /// Answers the peer's request that is being worked on. The bytes are kept for when it comes
    /// again.
    pub(crate) fn respond(&mut self, sa: &mut IkeSa, payloads: &[Payload]) {
        let Some(a) = sa.work_mut().take_answering() else { return };
        let header = sa.header(a.exchange, true, a.mid);
        let Some(bytes) = self.write(sa, header, payloads) else {
            let why = KeyExchange::CannotSend { why: Unsent::AnswerTooLong(a.exchange) };
            self.log_why(Level::Error, sa, "", &why.into());
            return;
        };
        self.shared.count_message(&sa.conn().name, a.exchange, |x| x.out_rsp += 1);
        self.transmit_all(sa, (a.local, a.remote), &bytes);
        if let Some(init) = sa.init_mut().filter(|_| a.exchange == ExchangeType::IKE_SA_INIT) {
            init.response = bytes.concat();
        }
        sa.work_mut().responded(a.digest, bytes);
    }

    /// Answers with one notification.
    pub(crate) fn respond_notify(&mut self, sa: &mut IkeSa, kind: NotifyType, data: impl Into<Vec<u8>>) {
        self.respond(sa, &[Payload::Notify(Notify::new(kind, data))]);
    }

    /// Asks outside for something that this exchange, and its IKE_SA with it, has to wait for.
    pub(crate) fn wait_for(&mut self, sa: &mut IkeSa, request: Request, exchange: impl Exchange + 'static) {
        if exchange.is_of_peer() {
            self.count_computing(sa, true);
        }
        let id = self.ask(Pending::Sa(sa.id()), request);
        sa.wait_for(Wait { id, exchange: Box::new(exchange) });
    }

    /// Asks for our part of a key exchange that the peer has begun with this value.
    pub(crate) fn wait_for_response(
        &mut self,
        sa: &mut IkeSa,
        ke: KeId,
        peer_public: Vec<u8>,
        exchange: impl Exchange + 'static,
    ) {
        let seed = Secret::filled(kex::SEED_LEN, |bytes| self.shared.rng.fill(bytes));
        self.wait_for(sa, Request::Respond { ke, seed, peer_public }, exchange);
    }

    /// Asks for a key pair of this method.
    pub(crate) fn wait_for_key(&mut self, sa: &mut IkeSa, ke: KeId, exchange: impl Exchange + 'static) {
        let seed = Secret::filled(kex::SEED_LEN, |bytes| self.shared.rng.fill(bytes));
        self.wait_for(sa, Request::GenerateKey { ke, seed }, exchange);
    }
}

/// The size of a message, for the log.
fn size(message: &[Vec<u8>]) -> String {
    let bytes: usize = message.iter().map(Vec::len).sum();
    match message.len() {
        1 => format!("{bytes} bytes"),
        n => format!("{bytes} bytes in {n} fragments"),
    }
}
