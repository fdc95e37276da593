//! One IKE_SA: what it knows and nothing that it does. What only the first exchanges need is in
//! [`Init`], which is dropped once the peer is authenticated.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `begin` | the ways in which an IKE_SA begins |
//! | `children` | its children |
//! | `crypt` | SPIs and keys |
//! | `fragments` | fragments of messages |
//! | `open` | seals and opens messages |
//! | `parts` | smaller parts: attempt, roaming, signs of life, renewal |
//! | `path` | addresses, and the NAT between them |
//! | `probing` | measurements of the path to the peer |
//! | `work` | tasks and messages |

mod begin;
mod children;
mod crypt;
mod fragments;
mod open;
mod parts;
mod path;
mod probing;
mod work;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::iana::ExchangeType;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::Header;
use ironswan_wire::proposal::IkeSuite;

use crate::child::Children;
use crate::event::{IkeId, IkeState, RequestId};
pub(crate) use crate::init::{Earlier, Init};
use crate::keymat::IkeKeys;
use crate::qcd::Token;
use crate::task::{Exchange, FollowUps, Task};
pub(crate) use begin::Half;
pub(crate) use crypt::Crypt;
use fragments::Fragments;
pub(crate) use fragments::Inner;
use ironswan_keying::diagnosis::{Answered, Unanswered};
use ironswan_keying::{Connection, Fingerprint};
pub(crate) use open::Opened;
pub(crate) use parts::{Asked, Attempt, Renewal, Roam, Signs};
pub(crate) use path::{Mobility, NatState, Path};
pub(crate) use probing::{Found, Probing};
pub(crate) use work::{Active, Answering, Datagram, Work};

/// The exchange that waits for work outside, and the request for that work.
pub(crate) struct Wait {
    pub id: RequestId,
    pub exchange: Box<dyn Exchange>,
}

/// One IKE_SA.
pub(crate) struct IkeSa {
    id: IkeId,
    conn: Arc<Connection>,
    /// We are the initiator of this IKE_SA (of its IKE_SA_INIT, or of the rekeying that made it).
    initiator: bool,
    local_id: Identity,
    /// The authenticated peer, or whom we expect.
    remote_id: Option<Identity>,
    state: IkeState,
    created: Instant,
    established: Option<Instant>,
    /// IkeUp has been told.
    announced: bool,
    /// The authentication ends; `None`: it counts without end.
    renewal: Option<Renewal>,
    /// Its lifetime is over, so it is deleted though nobody has asked for that.
    over_time: bool,
    /// To be removed.
    dead: bool,
    path: Path,
    crypt: Crypt,
    fragments: Fragments,
    work: Work,
    /// The exchange that waits for work outside.
    wait: Option<Wait>,
    children: Children,
    init: Option<Box<Init>>,
    /// The key under which the half-open table knows us.
    half_open: Option<(u64, SocketAddr)>,
    attempt: Attempt,
    asked: Option<Asked>,
    roam: Roam,
    signs: Signs,
    probing: Probing,
    /// The peer's series of additional key exchanges.
    follow_ups: FollowUps,
    /// A post-quantum preshared key is in its keys, or in those of an IKE_SA before it.
    ppk: bool,
    /// The peer's QCD token.
    token: Option<Token>,
    /// The IKE_SA that replaced this one.
    successor: Option<IkeId>,
    /// The IKE_SA that this one replaced.
    predecessor: Option<IkeId>,
}

impl IkeSa {
    /// An IKE_SA of this connection that nothing has happened on yet.
    pub(crate) fn new(
        id: IkeId,
        conn: Arc<Connection>,
        initiator: bool,
        (spi_i, spi_r): (u64, u64),
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Self {
        Self {
            id,
            initiator,
            local_id: conn.local_identity(local.ip()),
            remote_id: None,
            state: IkeState::Created,
            created: now,
            established: None,
            announced: false,
            renewal: None,
            over_time: false,
            dead: false,
            path: Path::new(local, remote),
            crypt: Crypt::new(spi_i, spi_r),
            fragments: Fragments::default(),
            work: Work::default(),
            wait: None,
            children: Children::new(),
            init: None,
            half_open: None,
            attempt: Attempt::default(),
            asked: None,
            roam: Roam::default(),
            signs: Signs {
                last_in: now,
                last_ike: now,
                usage_asked: false,
                busy_peer: None,
                told_full: false,
                forgotten: 0,
                refused: false,
            },
            probing: Probing::default(),
            follow_ups: FollowUps::default(),
            ppk: false,
            token: None,
            successor: None,
            predecessor: None,
            conn,
        }
    }

    // ---- who it is ----

    pub(crate) fn id(&self) -> IkeId {
        self.id
    }

    pub(crate) fn conn(&self) -> &Arc<Connection> {
        &self.conn
    }

    /// We are the initiator of this IKE_SA (of its IKE_SA_INIT, or of the rekeying that made it).
    pub(crate) fn is_initiator(&self) -> bool {
        self.initiator
    }

    pub(crate) fn local_id(&self) -> &Identity {
        &self.local_id
    }

    /// The authenticated peer, or whom we expect.
    pub(crate) fn remote_id(&self) -> Option<&Identity> {
        self.remote_id.as_ref()
    }

    /// The peer's IKE_AUTH request; `None` when we are the initiator.
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.asked
    }

    /// The peer asks for this IKE_SA. Only the first time counts.
    pub(crate) fn ask(&mut self, asked: Asked) {
        self.asked.get_or_insert(asked);
    }

    /// The peer has proved to be this one.
    pub(crate) fn set_remote_id(&mut self, peer: Identity) {
        self.remote_id = Some(peer);
    }

    /// The connection has been loaded anew, and the peer has agreed to nothing that has changed.
    /// Returns the connection before.
    pub(crate) fn adopt_conn(&mut self, conn: Arc<Connection>) -> Arc<Connection> {
        std::mem::replace(&mut self.conn, conn)
    }

    /// The peer belongs to another connection than its address suggested.
    pub(crate) fn move_to_conn(&mut self, conn: Arc<Connection>) {
        self.local_id = conn.local_identity(self.local().ip());
        self.conn = conn;
    }

    // ---- its life ----

    pub(crate) fn state(&self) -> IkeState {
        self.state
    }

    pub(crate) fn set_state(&mut self, state: IkeState) {
        self.state = state;
    }

    pub(crate) fn created(&self) -> Instant {
        self.created
    }

    /// When the peer was authenticated, or the rekeying was done.
    pub(crate) fn established(&self) -> Option<Instant> {
        self.established
    }

    /// The peer is authenticated.
    pub(crate) fn establish(&mut self, now: Instant) {
        (self.state, self.announced) = (IkeState::Established, true);
        self.established = Some(now);
        (self.signs.last_in, self.signs.last_ike) = (now, now);
    }

    /// IkeUp has been told.
    pub(crate) fn is_announced(&self) -> bool {
        self.announced
    }

    /// It has taken over from another IKE_SA.
    pub(crate) fn take_over_from(&mut self, old: IkeId) {
        (self.state, self.announced) = (IkeState::Established, true);
        self.predecessor = Some(old);
    }

    /// Another IKE_SA takes over: gives its children and tasks.
    pub(crate) fn hand_over(&mut self, heir: IkeId) -> (Children, VecDeque<Task>) {
        self.successor = Some(heir);
        (self.state, self.announced) = (IkeState::Rekeyed, false);
        (std::mem::take(&mut self.children), self.work.take_queue())
    }

    /// Nobody has taken over: takes back what it handed over.
    pub(crate) fn take_back(&mut self, children: Children, tasks: VecDeque<Task>) {
        self.announced = true;
        self.children = children;
        tasks.into_iter().for_each(|task| self.work.push(task));
    }

    /// The peer's QCD token.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Keeps the peer's QCD token, in place of an older one.
    pub(crate) fn set_token(&mut self, token: Token) {
        self.token = Some(token);
    }

    /// The peer's series of additional key exchanges.
    pub(crate) fn follow_ups(&self) -> &FollowUps {
        &self.follow_ups
    }

    /// The same, to be changed.
    pub(crate) fn follow_ups_mut(&mut self) -> &mut FollowUps {
        &mut self.follow_ups
    }

    /// The IKE_SA that replaced this one.
    pub(crate) fn successor(&self) -> Option<IkeId> {
        self.successor
    }

    /// The IKE_SA that this one replaced.
    pub(crate) fn predecessor(&self) -> Option<IkeId> {
        self.predecessor
    }

    /// The end of the authentication.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        self.renewal
    }

    /// The authentication ends then.
    pub(crate) fn set_renewal(&mut self, renewal: Option<Renewal>) {
        self.renewal = renewal;
    }

    /// Its lifetime is over.
    pub(crate) fn is_over_time(&self) -> bool {
        self.over_time
    }

    /// Its lifetime is over, so it is deleted though nobody has asked for that.
    pub(crate) fn set_over_time(&mut self) {
        self.over_time = true;
    }

    /// To be removed.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// It is to be removed. Returns true when that was known before.
    pub(crate) fn die(&mut self) -> bool {
        std::mem::replace(&mut self.dead, true)
    }

    // ---- its parts ----

    pub(crate) fn local(&self) -> SocketAddr {
        self.path.local()
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.path.remote()
    }

    pub(crate) fn nat(&self) -> NatState {
        self.path.nat()
    }

    pub(crate) fn mobility(&self) -> &Mobility {
        self.path.mobility()
    }

    /// We move it: "the party who originally initiated" the first of those that were rekeyed to
    /// this one (RFC 4555 section 1.3).
    pub(crate) fn moves(&self) -> bool {
        self.path.mobility().agreed && self.asked.is_none()
    }

    /// There is no way to the peer now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.path.is_blocked()
    }

    /// True when there is a way to the peer, between the same addresses and ports as that of
    /// another IKE_SA.
    pub(crate) fn shares_path(&self, other: &Self) -> bool {
        !self.is_blocked() && (self.local(), self.remote()) == (other.local(), other.remote())
    }

    /// Addresses, to be changed.
    pub(crate) fn path(&mut self) -> &mut Path {
        &mut self.path
    }

    /// We send to the peer from this address.
    pub(crate) fn set_source(&mut self, local: IpAddr) {
        self.path.set_local_ip(local);
        self.local_id = self.conn.local_identity(local);
    }

    pub(crate) fn spi_i(&self) -> u64 {
        self.crypt.spi_i()
    }

    /// 0 until the responder has answered.
    pub(crate) fn spi_r(&self) -> u64 {
        self.crypt.spi_r()
    }

    pub(crate) fn suite(&self) -> Option<IkeSuite> {
        self.crypt.suite()
    }

    pub(crate) fn keys(&self) -> Option<&IkeKeys> {
        self.crypt.keys()
    }

    /// A post-quantum preshared key is in its keys, or in those of an IKE_SA before it.
    pub(crate) fn has_ppk(&self) -> bool {
        self.ppk
    }

    /// Takes over the keys with the post-quantum preshared key that both sides use, and returns its
    /// identifier. `None` when they use none.
    pub(crate) fn take_ppk(&mut self) -> Option<Identity> {
        let init = self.init.as_deref_mut()?;
        if let Some(id) = init.ppk.mixed.take() {
            self.ppk = true;
            return Some(id);
        }
        let (id, mixed) = init.ppk.used.take()?.into_parts();
        self.ppk = true;
        self.crypt.take_mixed(mixed, init.logged.take(), self.initiator);
        Some(id)
    }

    /// SPIs and keys, to be changed.
    pub(crate) fn crypt(&mut self) -> &mut Crypt {
        &mut self.crypt
    }

    /// Tasks and messages.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Tasks and messages, to be changed.
    pub(crate) fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    /// The exchange that waits for work outside.
    pub(crate) fn waiting(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// An exchange waits for work outside.
    pub(crate) fn wait_for(&mut self, wait: Wait) {
        self.wait = Some(wait);
    }

    /// Nobody waits any more.
    pub(crate) fn take_wait(&mut self) -> Option<Wait> {
        self.wait.take()
    }

    /// The answer to this request has come: the exchange that waited for it goes on.
    pub(crate) fn take_wait_for(&mut self, id: RequestId) -> Option<Wait> {
        self.wait.take_if(|wait| wait.id == id)
    }

    /// No request is in flight and nothing is waited for.
    pub(crate) fn is_free(&self) -> bool {
        self.work.active().is_none() && self.wait.is_none()
    }

    /// Nothing is in flight, waited for or queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_free() && self.work.queued().next().is_none()
    }

    pub(crate) fn init(&self) -> Option<&Init> {
        self.init.as_deref()
    }

    pub(crate) fn init_mut(&mut self) -> Option<&mut Init> {
        self.init.as_deref_mut()
    }

    /// The peer's IKE_AUTH request asks for certificates of these CAs; `None`: for none.
    pub(crate) fn asked_for_certificate(&mut self, asked: Option<Vec<Fingerprint>>) {
        if let Some(init) = self.init_mut() {
            init.peer_asks = asked;
        }
    }

    /// The values of the first two exchanges; fresh ones when there are none.
    pub(crate) fn begin_init(&mut self) -> &mut Init {
        self.init.get_or_insert_default()
    }

    /// The values of the first two exchanges are not needed any more here.
    pub(crate) fn take_init(&mut self) -> Option<Box<Init>> {
        self.init.take()
    }

    /// Begins anew with this SPI, as if no message had been sent: tasks and whoever waits stay.
    pub(crate) fn start_over(&mut self, spi_i: u64) {
        self.crypt = Crypt::new(spi_i, 0);
        self.fragments = Fragments::default();
        self.init = Some(Box::default());
        self.work.start_over();
        self.path.set_nat(NatState::default());
        self.state = IkeState::Created;
        self.attempt.restarts += 1;
        self.attempt.answered = None;
    }

    /// The key under which the half-open table knows it.
    pub(crate) fn half_open(&self) -> Option<(u64, SocketAddr)> {
        self.half_open
    }

    /// The half-open table forgets it.
    pub(crate) fn take_half_open(&mut self) -> Option<(u64, SocketAddr)> {
        self.half_open.take()
    }

    /// The attempt of policy that made it.
    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// The attempt, to be changed.
    pub(crate) fn attempt_mut(&mut self) -> &mut Attempt {
        &mut self.attempt
    }

    /// The peer answers the request in flight: notes how long that took, for an attempt that gets
    /// no further.
    pub(crate) fn note_answer(&mut self, now: Instant) {
        let (up, port) = (self.is_up(), self.remote().port());
        let Some(active) = self.work.active().filter(|_| !up) else { return };
        let millis = now.saturating_duration_since(active.sent_at).as_millis();
        let millis = u32::try_from(millis).unwrap_or(u32::MAX);
        self.attempt.answered = Some(Answered { exchange: active.exchange, port, millis });
    }

    /// The request in flight, as one that has no answer yet.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        let active = self.work.active()?;
        let (local, remote) = (self.local(), self.remote());
        let before = self.attempt.answered.filter(|_| !self.is_up());
        Some(Unanswered { local, remote, exchange: active.exchange, sent: active.tries + 1, before })
    }

    /// Its state while addresses change.
    pub(crate) fn roam(&self) -> &Roam {
        &self.roam
    }

    /// The same, to be changed.
    pub(crate) fn roam_mut(&mut self) -> &mut Roam {
        &mut self.roam
    }

    /// Signs of life of the peer.
    pub(crate) fn signs(&self) -> &Signs {
        &self.signs
    }

    /// Measurements of the path to the peer.
    pub(crate) fn probing(&self) -> &Probing {
        &self.probing
    }

    /// The same, to be changed.
    pub(crate) fn probing_mut(&mut self) -> &mut Probing {
        &mut self.probing
    }

    /// Signs of life, to be changed.
    pub(crate) fn signs_mut(&mut self) -> &mut Signs {
        &mut self.signs
    }

    // ---- questions ----
    /// Our SPI.
    pub(crate) fn our_spi(&self) -> u64 {
        if self.initiator { self.crypt.spi_i() } else { self.crypt.spi_r() }
    }

    /// The peer is authenticated and the IKE_SA usable: CREATE_CHILD_SA and INFORMATIONAL make
    /// sense.
    pub(crate) fn is_up(&self) -> bool {
        self.established.is_some()
    }

    /// An attempt of ours that the peer may have established without our knowing it: our IKE_AUTH
    /// is in flight.
    pub(crate) fn may_be_up_there(&self) -> bool {
        matches!(self.work.active(), Some(Active { task: Task::Auth(_), .. }))
    }

    /// Established, and not on its way out.
    pub(crate) fn stands(&self) -> bool {
        matches!(self.state, IkeState::Established | IkeState::Rekeying)
    }

    /// May carry new CHILD_SAs, now or once it is up.
    pub(crate) fn usable(&self) -> bool {
        !self.dead
            && !self.roam.leaving
            && match self.state {
                IkeState::Established | IkeState::Rekeying => true,
                IkeState::Created | IkeState::Connecting => self.initiator && !self.is_up(),
                IkeState::Rekeyed | IkeState::Deleting => false,
            }
    }

    /// `net[1]`, as charon names it.
    pub(crate) fn name(&self) -> String {
        format!("{}[{}]", self.conn.name, self.id.0)
    }

    /// The header of a message that we send.
    pub(crate) fn header(&self, exchange: ExchangeType, response: bool, mid: u32) -> Header {
        self.crypt.header(self.initiator, exchange, response, mid)
    }

    /// `192.0.2.1[g1.example]...192.0.2.2[g2.example]`.
    pub(crate) fn ends(&self) -> String {
        let remote = self.remote_id.as_ref().map_or_else(|| "%any".to_owned(), ToString::to_string);
        format!("{}[{}]...{}[{remote}]", self.local().ip(), self.local_id, self.remote().ip())
    }
}
