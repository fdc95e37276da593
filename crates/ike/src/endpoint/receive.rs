//! From a datagram to the task it belongs to. Nothing changes before a message is authenticated,
//! except that it is counted, and that a half-open IKE_SA computes its shared secret (once).

use ironswan_keying::diagnosis::KeyExchange;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::{Header, ParseError};

use super::{About, Endpoint};
use crate::context::failure::Subject;
use crate::event::Level;
use crate::sa::{Datagram, IkeSa};
use crate::timer::Timer;
use ironswan_keying::limits::MESSAGE_BYTES;

/// False when no answer can be sent: no host sends from port 0 or from such an address, but whoever
/// forges datagrams can, and each answer would cost its sending and the account of why that failed.
fn answerable(local: SocketAddr, remote: SocketAddr) -> bool {
    let one_host = |ip: IpAddr| match ip {
        // The broadcast address of a subnet cannot be told from a host's.
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_multicast(),
    };
    remote.port() != 0 && !remote.ip().is_unspecified() && one_host(remote.ip()) && one_host(local.ip())
}

impl Endpoint {
    fn tombs_timer(&mut self) {
        match self.shared.tombs.due() {
            Some(at) => self.shared.timers.set(Timer::Tombs, at),
            None => self.shared.timers.cancel(Timer::Tombs),
        }
    }

    pub(crate) fn expire_tombs(&mut self, now: Instant) {
        self.shared.tombs.expire(now);
        self.tombs_timer();
    }

    pub(super) fn receive(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, bytes: &[u8]) {
        if !answerable(local, remote) {
            self.shared.counters.invalid += 1;
            return;
        }
        let Some(header) = self.read_header(now, local, remote, bytes) else { return };
        if let Some(c) = self.shared.counters.exchange(header.exchange) {
            if header.is_response() { c.in_rsp += 1 } else { c.in_req += 1 }
        }
        if header.exchange == ExchangeType::IKE_SA_INIT && header.is_request() {
            return self.answer_init(now, local, remote, &header, bytes);
        }
        let spi = header.receiver_spi();
        let Some(id) = self.shared.spis.ike(spi) else {
            match self.shared.tombs.answer(spi, bytes) {
                Some(response) if header.is_request() => {
                    let response = response.to_vec();
                    self.shared.counters.retransmits_in += 1;
                    response.iter().for_each(|part| self.transmit(local, remote, part));
                }
                _ => self.unknown(now, (local, remote), &header, bytes.len()),
            }
            return;
        };
        let datagram = Datagram { local, remote, bytes: bytes.to_vec() };
        let (exchange, answers) = (header.exchange, header.is_response());
        self.with_sa(now, id, |ep, sa| {
            ep.shared.by_connection.count_message(&sa.conn().name, exchange, |x| {
                if answers { x.in_rsp += 1 } else { x.in_req += 1 }
            });
            if sa.waiting().is_some() {
                if !sa.work_mut().keep(datagram) {
                    ep.shared.counters.out_of_order += 1;
                }
            } else {
                ep.on(now, sa, |cx, sa| cx.process(sa, datagram));
            }
        });
    }

    /// Reads the header of a message. One of another major version is answered, anything else that
    /// cannot be read is only counted.
    fn read_header(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        bytes: &[u8],
    ) -> Option<Header> {
        let peek = match Header::read(bytes) {
            Ok(peek) if bytes.len() <= MESSAGE_BYTES => peek,
            _ => {
                self.shared.counters.invalid += 1;
                return None;
            }
        };
        match Header::parse(bytes) {
            Ok(header) => return Some(header),
            Err(ParseError::MajorVersion(major)) => {
                self.shared.counters.invalid_version += 1;
                // "SHOULD send an unauthenticated Notify message of type INVALID_MAJOR_VERSION"
                // (RFC 7296 section 2.5): never to a response, rarely, and never longer than what
                // came.
                if !peek.flags.response() && bytes.len() >= 37 && self.may_answer_version(now) {
                    if self.may_write(now, remote.ip(), About::Message) {
                        let why = KeyExchange::BadVersion { major, remote };
                        let of = Subject { stranger: Some(remote.ip()), ..Subject::default() };
                        self.note_why(Level::Warn, of, "", &why.into());
                    }
                    self.respond_stateless(local, remote, &peek, NotifyType::INVALID_MAJOR_VERSION, [2]);
                }
            }
            Err(_) => self.shared.counters.invalid += 1,
        }
        None
    }

    /// Works off what came while the IKE_SA waited.
    pub(crate) fn drain_backlog(&mut self, now: Instant, sa: &mut IkeSa) {
        while !sa.is_dead() && sa.waiting().is_none() {
            let Some(datagram) = sa.work_mut().next_datagram() else { break };
            self.on(now, sa, |cx, sa| cx.process(sa, datagram));
        }
    }
}
