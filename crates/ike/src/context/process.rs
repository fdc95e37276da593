//! One IKE_SA's messages: from a datagram that belongs to it to the task. Nothing changes before a
//! message is authenticated, except that it is counted, and that a half-open IKE_SA computes its
//! shared secret (once). Which IKE_SA a datagram belongs to is found in `receive`.

use std::net::SocketAddr;
use std::time::Instant;

use ironswan_wire::iana::{ExchangeType, NotifyType, ProtocolId};
use ironswan_wire::ike::payload::find_notify;
use ironswan_wire::ike::{HEADER_LEN, Header, ParseError, Payload, ends_sealed};

use super::Context;
use crate::endpoint::About;
use crate::event::{IkeState, Level};
use crate::sa::{Active, Answering, Datagram, IkeSa, Inner, Opened};
use crate::task::{
    Task, answer_child, answer_init, auth, create_child, delete, follow_up, intermediate, liveness, mobike,
    path_probe, qcd, rekey_ike, restart, sa_init,
};
use crate::timer::Timer;
use crate::window::{Inbound, Sealed};
use ironswan_keying::Close;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, ProbeRefusal};
use ironswan_keying::limits::{BUSY_PEER, BUSY_PEER_FORGOTTEN, FRAGMENTS_KEPT, MESSAGE_BYTES};

/// "The Encrypted payload ... MUST be the last payload in the message. Often, it is the only
/// payload in the message" (RFC 7296 section 3.14).
fn is_sealed(header: &Header, datagram: &[u8]) -> bool {
    let payloads = datagram.get(HEADER_LEN..).unwrap_or_default();
    header.is_sealed() || ends_sealed(header.next_payload, payloads)
}

impl Context<'_> {
    pub(crate) fn process(&mut self, sa: &mut IkeSa, d: Datagram) {
        let Ok(header) = Header::parse(&d.bytes) else { return };
        // The flag tells the original initiator of the IKE_SA from the responder; our own messages
        // that come back to us have it the wrong way round.
        let peer_spi_fits = if sa.is_initiator() {
            // Another response to IKE_SA_INIT says that one of the two is forged.
            let another = header.exchange == ExchangeType::IKE_SA_INIT && !sa.is_up();
            header.responder_spi == sa.spi_r() || sa.spi_r() == 0 || another
        } else {
            header.initiator_spi == sa.spi_i()
        };
        if header.flags.initiator() == sa.is_initiator() || !peer_spi_fits {
            self.shared.counters.out_of_order += 1;
            return;
        }
        if header.exchange == ExchangeType::IKE_SA_INIT {
            return sa_init::process(self, sa, &header, &d);
        }
        if sa.keys().is_none() {
            let first_sealed =
                matches!(header.exchange, ExchangeType::IKE_AUTH | ExchangeType::IKE_INTERMEDIATE);
            let first_auth =
                first_sealed && header.is_request() && sa.work().judge(header.message_id) == Inbound::New;
            if sa.is_initiator() || !first_auth || !answer_init::agree(self, sa) {
                self.shared.counters.out_of_order += 1;
                return;
            }
            sa.work_mut().keep_first(d);
            return;
        }
        if !is_sealed(&header, &d.bytes) {
            return qcd::judge(self, sa, &d);
        }
        if header.is_request() {
            match sa.work().judge(header.message_id) {
                Inbound::New if self.owes_answer(sa) => self.shared.counters.retransmits_in += 1,
                Inbound::New => self.request(sa, &header, &d),
                Inbound::Again => match self.stored(sa, &d.bytes) {
                    // "the responder MUST remember each response until it receives a request whose
                    // sequence number is larger than or equal to the sequence number in the
                    // response plus its window size" (RFC 7296 section 2.1), and it goes to where
                    // the request came from.
                    Some(response) => {
                        self.shared.counters.retransmits_in += 1;
                        self.transmit_all(sa, (d.local, d.remote), &response);
                    }
                    None => self.shared.counters.out_of_order += 1,
                },
                Inbound::Outside => self.shared.counters.out_of_order += 1,
            }
        } else if !self.owes_answer(sa)
            && sa.work().active().is_some_and(|a| a.mid == header.message_id && a.exchange == header.exchange)
        {
            self.response(sa, &header, &d);
        } else {
            self.shared.counters.out_of_order += 1;
        }
    }

    /// True while our answer to the peer's DELETE waits: nothing is done any more on the IKE_SA.
    pub(crate) fn owes_answer(&self, sa: &IkeSa) -> bool {
        self.has_timer(Timer::AnswerDelete(sa.id()))
    }

    /// The response to the last request, when this is that request or its first fragment.
    fn stored(&self, sa: &IkeSa, bytes: &[u8]) -> Option<Sealed> {
        let work = sa.work();
        let again = || work.window().last().filter(|_| sa.is_first_fragment(bytes)).map(|(_, r)| r);
        work.stored(bytes).or_else(again).map(<[_]>::to_vec)
    }

    /// Opens a message that may be the next of its kind. `None`: there is nothing to do for it, or
    /// not yet.
    fn open(&mut self, sa: &mut IkeSa, d: &Datagram) -> Option<(Inner, Result<Vec<Payload>, ParseError>)> {
        let due = sa.fragments_due();
        let opened = sa.open(&d.bytes, self.now + FRAGMENTS_KEPT);
        if sa.fragments_due() != due {
            self.rearm_fragments(sa);
        }
        match opened {
            Opened::Whole(inner, payloads) => return Some((inner, payloads)),
            Opened::Junk => self.shared.count_invalid(&sa.conn().name),
            Opened::Stale => self.shared.counters.out_of_order += 1,
            Opened::Part => {}
            Opened::TooLong => self.too_long(sa, d),
        }
        None
    }

    /// Sets the timer to when fragments that wait for others are given up next.
    fn rearm_fragments(&mut self, sa: &IkeSa) {
        match sa.fragments_due() {
            Some(at) => self.set_timer(Timer::Fragments(sa.id()), at),
            None => self.cancel_timer(Timer::Fragments(sa.id())),
        }
    }

    /// The others of some fragments have not come in time.
    pub(crate) fn expire_fragments(&mut self, sa: &mut IkeSa) {
        sa.expire_fragments(self.now);
        self.rearm_fragments(sa);
    }

    /// The peer sends a message in fragments that is longer than a message may be. None of it is
    /// kept, and nothing is answered: what it says is not known.
    fn too_long(&mut self, sa: &mut IkeSa, d: &Datagram) {
        self.shared.count_invalid(&sa.conn().name);
        if sa.is_up() || self.may_write(d.remote.ip(), About::Authentication) {
            let why = KeyExchange::MessageTooLong { limit: MESSAGE_BYTES };
            self.log_why(Level::Error, sa, "", &why.into());
        }
    }

    /// What an authenticated message that is the next of its kind tells, whatever is in it.
    fn alive(&mut self, sa: &mut IkeSa, d: &Datagram, auth_request: bool) {
        (sa.signs_mut().last_in, sa.signs_mut().last_ike) = (self.now, self.now);
        if auth_request {
            // It brings the ports that both float to. There are no children yet.
            sa.path().set_ends(d.local, d.remote);
        } else if !sa.mobility().agreed {
            // With MOBIKE the peer says itself where it is: "The host not behind a NAT MUST NOT use
            // these dynamic updates for IKEv2 packets, but MAY use them for ESP packets" (RFC 4555
            // section 3.8).
            self.peer_at(sa, d.remote);
        }
    }

    /// An authenticated message that is no copy of an older one, or a packet newer than every one
    /// before, came from here: hosts "SHOULD send all packets ... to the IP address and port from
    /// the last valid authenticated packet from the other end" when that end is behind a NAT (RFC
    /// 7296 section 2.23). A peer that is not behind one stays where it is. That we are behind a
    /// NAT as well, where the RFC says SHOULD NOT, does not keep the peer's NAT from forgetting it.
    pub(crate) fn peer_at(&mut self, sa: &mut IkeSa, remote: SocketAddr) {
        let alive = sa.stands();
        if !sa.nat().remote
            || !alive
            || sa.remote() == remote
            || remote.ip().is_ipv4() != sa.local().ip().is_ipv4()
        {
            return;
        }
        if self.move_clashes(sa, remote.ip()) {
            self.log(
                Level::Warn,
                sa,
                format!("not following the peer to {remote}: an SPI of it is taken there"),
            );
            return;
        }
        let old = sa.path().follow(remote);
        self.log(Level::Info, sa, format!("remote endpoint changed from {old} to {remote}"));
        self.move_children(sa, old.ip());
        path_probe::begin(self, sa);
    }

    fn request(&mut self, sa: &mut IkeSa, header: &Header, d: &Datagram) {
        let Some((inner, payloads)) = self.open(sa, d) else { return };
        let payloads = match payloads {
            Ok(payloads) => payloads,
            Err(e) => return self.bad_request(sa, header, (d, inner.digest), e),
        };
        if !may_come(sa, header.exchange) {
            return self.out_of_place(sa, header, (d, inner.digest));
        }
        self.alive(sa, d, !sa.is_up());
        self.begin_answer(sa, header, (d, inner.digest));
        qcd::keep(self, sa, header.exchange, &payloads);
        match header.exchange {
            ExchangeType::IKE_INTERMEDIATE => intermediate::answer(self, sa, &inner, &payloads),
            ExchangeType::IKE_AUTH => auth::answer(self, sa, &payloads),
            ExchangeType::IKE_FOLLOWUP_KE => follow_up::answer(self, sa, &payloads),
            ExchangeType::CREATE_CHILD_SA => {
                let for_ike = payloads.iter().any(
                    |p| matches!(p, Payload::Sa(list) if list.iter().any(|p| p.protocol == ProtocolId::IKE)),
                );
                if for_ike {
                    rekey_ike::answer(self, sa, &payloads);
                } else {
                    answer_child::answer(self, sa, &payloads);
                }
            }
            _ => delete::answer(self, sa, &payloads),
        }
    }

    fn begin_answer(&mut self, sa: &mut IkeSa, header: &Header, (d, digest): (&Datagram, u64)) {
        sa.work_mut().begin_answer(Answering {
            mid: header.message_id,
            exchange: header.exchange,
            digest,
            local: d.local,
            remote: d.remote,
        });
    }

    /// An authentic request of an exchange that cannot come now, or that nobody has heard of. "Once
    /// the IKE SA is authenticated, all requests having errors MUST result in a response notifying
    /// the peer" (RFC 7296 section 2.21.3); before that, none does.
    fn out_of_place(&mut self, sa: &mut IkeSa, header: &Header, (d, digest): (&Datagram, u64)) {
        self.shared.counters.out_of_order += 1;
        if !sa.is_up() {
            return;
        }
        self.begin_answer(sa, header, (d, digest));
        self.refuse_syntax(sa, KeyExchange::OutOfPlace { exchange: header.exchange });
    }

    /// An authentic request that cannot be read.
    fn bad_request(&mut self, sa: &mut IkeSa, header: &Header, (d, digest): (&Datagram, u64), e: ParseError) {
        self.shared.count_invalid(&sa.conn().name);
        if !may_come(sa, header.exchange) {
            return self.out_of_place(sa, header, (d, digest));
        }
        let message = format!("{} request", header.exchange);
        let why: Diagnosis = KeyExchange::Unreadable { message, error: e }.into();
        // Who has only done a key exchange can send these without end.
        if sa.is_up() || self.may_write(d.remote.ip(), About::Authentication) {
            self.log_why(Level::Error, sa, "", &why);
        }
        self.begin_answer(sa, header, (d, digest));
        if e.notify() == NotifyType::INVALID_SYNTAX {
            return self.refuse_syntax(sa, why);
        }
        // An unknown critical payload is fatal before the peer is authenticated only (RFC 7296
        // section 2.21.2).
        self.respond_why(sa, &why);
        if !sa.is_up() {
            self.bury(sa);
            self.close(sa, Close::Failed(why));
        }
    }

    /// Answers a request of an authenticated peer with INVALID_SYNTAX, which "is considered fatal
    /// in both peers, meaning that the IKE SA is deleted without needing an explicit Delete
    /// payload" (RFC 7296 section 2.21.3).
    pub(crate) fn refuse_syntax(&mut self, sa: &mut IkeSa, why: impl Into<Diagnosis>) {
        let why = why.into();
        self.respond_notify(sa, NotifyType::INVALID_SYNTAX, []);
        self.bury(sa);
        if sa.is_up() {
            self.log_why(Level::Error, sa, "the peer sent invalid syntax, both ends drop the IKE_SA", &why);
        }
        self.close(sa, Close::Syntax(why));
    }

    /// Refuses a request of the peer for which a key has not been computed. A peer whose value is
    /// to blame loses the IKE_SA: we "MUST immediately drop the IKE SA" (RFC 6989 section 2.5). Any
    /// other reason is on our side, and the peer may ask again.
    pub(crate) fn refuse_uncomputed(&mut self, sa: &mut IkeSa, why: Diagnosis) {
        if matches!(why, Diagnosis::KeyExchange(KeyExchange::BadValue { .. })) {
            return self.refuse_syntax(sa, why);
        }
        self.log_why(Level::Warn, sa, "", &why);
        self.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }

    /// The peer has answered with what cannot be read. A request that asked for nothing has its
    /// answer all the same.
    fn unreadable(&mut self, sa: &mut IkeSa, active: Active, e: ParseError) {
        match active.task {
            Task::PathProbe(_) => path_probe::refused(self, sa, ProbeRefusal::Unreadable),
            _ => self.drop_unreadable(sa, active, e),
        }
    }

    /// The peer has answered with what cannot be read: the IKE_SA ends.
    fn drop_unreadable(&mut self, sa: &mut IkeSa, active: Active, e: ParseError) {
        let message = format!("{} response", active.exchange);
        let why: Diagnosis = KeyExchange::Unreadable { message, error: e }.into();
        self.log_why(Level::Error, sa, "", &why);
        // The peer cannot know that its answer was of no use.
        self.say_deleted(sa);
        let active = match sa.is_up() {
            true => active,
            // Perhaps it is not the peer's.
            false => match self.doubt_sealed(sa, active) {
                Some(active) => active,
                None => return,
            },
        };
        let how = match sa.state() {
            // Only its DELETE was to be answered.
            IkeState::Rekeyed => Close::Replaced,
            _ if sa.is_up() => Close::Syntax(why),
            _ => Close::Failed(why),
        };
        sa.work_mut().sent(active);
        self.close(sa, how);
    }

    /// A sealed response cannot be read before the peer is authenticated. When IKE_SA_INIT may have
    /// been forged, the attempt begins again; else gives the request back.
    fn doubt_sealed(&mut self, sa: &mut IkeSa, active: Active) -> Option<Active> {
        match active {
            Active { task: Task::Auth(child), mid, exchange, bytes, tries, sent_at, unsent, icmp } => {
                let child = restart::doubted(self, sa, child, false)?;
                let task = Task::Auth(child);
                Some(Active { task, mid, exchange, bytes, tries, sent_at, unsent, icmp })
            }
            active => restart::doubted(self, sa, None, false).map(|_| active),
        }
    }

    fn response(&mut self, sa: &mut IkeSa, header: &Header, d: &Datagram) {
        let Some((inner, opened)) = self.open(sa, d) else { return };
        sa.note_answer(self.now);
        self.alive(sa, d, false);
        self.shared.timers.cancel(Timer::Retransmit(sa.id()));
        if let Ok(payloads) = &opened {
            qcd::keep(self, sa, header.exchange, payloads);
        }
        let in_flight = sa.work().active();
        // It is in flight until the peer is authenticated.
        let opened = match (opened, in_flight) {
            (Ok(payloads), Some(Active { task: Task::Auth(_), .. })) => {
                return auth::process(self, sa, payloads);
            }
            (opened, _) => opened,
        };
        let Some(active) = sa.work_mut().answered() else { return };
        let payloads = match opened {
            Ok(payloads) => payloads,
            Err(e) => return self.unreadable(sa, active, e),
        };
        // The answer to one of MOBIKE is judged first.
        if !matches!(active.task, Task::Mobike(_)) {
            self.follow_answer(sa, d, active.tries);
        }
        if is_fatal(sa, &active.task, &payloads) {
            let why: Diagnosis = KeyExchange::PeerCannotRead { exchange: Some(active.exchange) }.into();
            self.log_why(Level::Error, sa, "both ends drop the IKE_SA", &why);
            sa.work_mut().sent(active);
            return self.close(sa, Close::Syntax(why));
        }
        if active.exchange == ExchangeType::CREATE_CHILD_SA && out_of_step(self.now, sa, &payloads) {
            let why: Diagnosis = KeyExchange::PeerBusy.into();
            self.log_why(Level::Error, sa, "", &why);
            self.say_deleted(sa);
            sa.work_mut().sent(active);
            return self.close(sa, Close::Syntax(why));
        }
        match active.task {
            Task::Init | Task::Auth(_) => {}
            Task::Intermediate(private) => {
                intermediate::process(self, sa, private, &inner, &payloads);
            }
            Task::Child(new) => create_child::process(self, sa, new, &payloads),
            Task::RekeyIke(task) => rekey_ike::process(self, sa, task, &payloads),
            Task::FollowUp(follow) => follow_up::process(self, sa, follow, &payloads),
            Task::DeleteChild(task) => delete::process_child(self, sa, task, &payloads),
            Task::DeleteIke(task) => delete::process_ike(self, sa, task),
            Task::Mobike(task) => mobike::process(self, sa, (task, active.tries), &payloads, d),
            Task::Liveness => {
                mobike::watch_nat(self, sa, &payloads, d);
                liveness::rearm(self, sa);
            }
            Task::QcdToken => liveness::rearm(self, sa),
            Task::PathProbe(probe) => path_probe::process(self, sa, &probe, &payloads),
        }
    }
}

/// True when the peer has dropped the IKE_SA: INVALID_SYNTAX is "considered fatal in both peers"
/// (RFC 7296 section 2.21.3). What was asked to be closed is closed.
fn is_fatal(sa: &IkeSa, asked: &Task, payloads: &[Payload]) -> bool {
    sa.is_up()
        && !matches!(asked, Task::DeleteIke(_))
        && find_notify(payloads, NotifyType::INVALID_SYNTAX).is_some()
}

/// Counts TEMPORARY_FAILURE in responses to CREATE_CHILD_SA. "If a peer continues to receive
/// TEMPORARY_FAILURE notifications on the same IKE SA after several minutes, then it SHOULD
/// conclude that the state information is out of sync and close the IKE SA" (RFC 7296 section
/// 2.25): true then.
fn out_of_step(now: Instant, sa: &mut IkeSa, payloads: &[Payload]) -> bool {
    if find_notify(payloads, NotifyType::TEMPORARY_FAILURE).is_none() {
        sa.signs_mut().busy_peer = None;
        return false;
    }
    let pause = |last: Instant| now.saturating_duration_since(last);
    let since = match sa.signs().busy_peer {
        Some((since, last)) if pause(last) < BUSY_PEER_FORGOTTEN => since,
        _ => now,
    };
    sa.signs_mut().busy_peer = Some((since, now));
    now.saturating_duration_since(since) >= BUSY_PEER
}

/// Exchanges and states: IKE_INTERMEDIATE for each additional key exchange and then IKE_AUTH once,
/// to a responder whose peer is not authenticated; everything else only when it is. In particular
/// an IKE_SA that is not established cannot be rekeyed (CVE-2014-2338).
fn may_come(sa: &IkeSa, exchange: ExchangeType) -> bool {
    let new = !sa.is_initiator() && sa.state() == IkeState::Connecting && !sa.is_up();
    match exchange {
        ExchangeType::IKE_INTERMEDIATE => new && intermediate::next_round(sa).is_some(),
        ExchangeType::IKE_AUTH => new && intermediate::next_round(sa).is_none(),
        ExchangeType::CREATE_CHILD_SA | ExchangeType::IKE_FOLLOWUP_KE | ExchangeType::INFORMATIONAL => {
            sa.is_up()
        }
        _ => false,
    }
}
