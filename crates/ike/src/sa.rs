//! One IKE_SA: what it knows and nothing that it does. Kept small: what only the first exchanges
//! need is in [`Init`], which is dropped once the peer is authenticated.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_wire::iana::{ExchangeType, ProtocolId};
use ironswan_wire::id::Identity;
use ironswan_wire::ike::{
    Flags, Header, Message, ParseError, Payload, SealedDraft, Within, parse_chain, sealed,
};
use ironswan_wire::proposal::IkeSuite;
use ironswan_wire::sadb::Spi;

use crate::child::Child;
use crate::event::{ChildId, IkeId, IkeState, RequestId, Ticket};
pub(crate) use crate::init::{Earlier, Init};
use crate::keymat::IkeKeys;
use crate::task::{Exchange, NewChild, Task};
use crate::window::Window;
use ironswan_keying::Connection;
use ironswan_keying::tunnels::AttemptId;

/// A datagram that waits until the IKE_SA has an answer from outside.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub bytes: Vec<u8>,
}

/// Our request in flight.
pub(crate) struct Active {
    pub task: Task,
    pub mid: u32,
    pub exchange: ExchangeType,
    /// The message as sent: "a retransmission MUST be bitwise identical" (RFC 7296 section 2.1).
    pub bytes: Vec<u8>,
    /// Retransmissions so far.
    pub tries: u32,
}

/// The peer's request that is being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answering {
    pub mid: u32,
    pub exchange: ExchangeType,
    pub digest: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The exchange that waits for work outside, and the request for that work.
pub(crate) struct Wait {
    pub id: RequestId,
    pub exchange: Box<dyn Exchange>,
}

/// What is between the endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NatState {
    /// A NAT in front of us.
    pub local: bool,
    /// A NAT in front of the peer, or the peer pretends.
    pub remote: bool,
    /// We pretend.
    pub fake: bool,
}

impl NatState {
    /// ESP travels in UDP.
    pub(crate) fn encap(self) -> bool {
        self.local || self.remote || self.fake
    }
}

/// The way to the peer when addresses or routes change, for one IKE_SA.
#[derive(Default)]
pub(crate) struct Roam {
    /// There is no way to the peer now: requests wait.
    pub no_path: bool,
    /// Ask the peer for a sign of life whatever `dpd_delay` says.
    pub probe: bool,
    /// This one, once it is up, takes over from that one.
    pub replaces: Option<IkeId>,
    /// The address of the peer to try first, if it has this one.
    pub prefer: Option<IpAddr>,
    /// Another one is on its way that will take over from this one.
    pub leaving: bool,
    /// That one is to another address of the peer, because there was no way to this one's.
    pub elsewhere: bool,
    /// Our address has changed in the middle of IKE_AUTH: the peer may have this IKE_SA at an
    /// address that is not ours.
    pub misplaced: bool,
}

/// One IKE_SA.
pub(crate) struct IkeSa {
    pub id: IkeId,
    pub conn: Arc<Connection>,
    /// We are the initiator of this IKE_SA (of its IKE_SA_INIT, or of the rekeying that made it).
    pub initiator: bool,
    pub spi_i: u64,
    pub spi_r: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub state: IkeState,
    pub suite: Option<IkeSuite>,
    pub keys: Option<IkeKeys>,
    /// Counter for AEAD IVs: unique under these keys.
    pub iv: u64,
    pub window: Window,
    pub queue: VecDeque<Task>,
    pub active: Option<Active>,
    pub answering: Option<Answering>,
    pub wait: Option<Wait>,
    pub backlog: VecDeque<Datagram>,
    pub children: BTreeMap<ChildId, Child>,
    pub local_id: Identity,
    /// The authenticated peer, or whom we expect.
    pub remote_id: Option<Identity>,
    pub nat: NatState,
    pub init: Option<Box<Init>>,
    /// The key under which the half-open table knows us.
    pub half_open: Option<(u64, SocketAddr)>,
    pub created: Instant,
    pub established: Option<Instant>,
    /// The last authenticated message from the peer.
    pub last_in: Instant,
    /// Usage has been asked for and not answered.
    pub usage_asked: bool,
    /// The IKE_SA that replaced this one.
    pub successor: Option<IkeId>,
    /// The IKE_SA that this one replaced.
    pub predecessor: Option<IkeId>,
    /// IkeUp has been told.
    pub announced: bool,
    /// The attempt of policy that made it; `None` for a responder, and for attempts at further
    /// addresses.
    pub start: Option<AttemptId>,
    /// Number of this try of `keyingtries`, from 1.
    pub attempt: u32,
    /// How often this attempt has begun again from the start, as somebody may have interfered.
    pub restarts: u32,
    /// Not commanded: comes from an action, so an error is a reason to try again.
    pub automatic: bool,
    /// Waits for the IKE_SA to be established (an initiation without child).
    pub ticket: Option<Ticket>,
    /// How many addresses the peer may have; the number of the attempt says which it is. 0 until
    /// known.
    pub choices: u32,
    /// Other addresses of the peer are asked besides; by the first of the attempts.
    pub race: Option<IkeId>,
    /// How it stands when our addresses change.
    pub roam: Roam,
    /// The peer answers TEMPORARY_FAILURE: since when without anything else, and when last.
    pub busy_peer: Option<(Instant, Instant)>,
    /// That the peer has too many children has been said.
    pub told_full: bool,
    /// Its lifetime is over, so it is deleted though nobody has asked for that.
    pub over_time: bool,
    /// To be removed.
    pub dead: bool,
}

/// Why a message could not be read.
pub(crate) enum OpenError {
    /// Not authentic, or not even that: nothing may change because of it.
    Junk,
    /// Authentic, and not understood.
    Syntax(ParseError),
}

impl IkeSa {
    /// One of this connection that nothing has happened on yet. What its maker knows more, it fills
    /// in.
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
            spi_i,
            spi_r,
            local,
            remote,
            state: IkeState::Created,
            suite: None,
            keys: None,
            iv: 0,
            window: Window::default(),
            queue: VecDeque::new(),
            active: None,
            answering: None,
            wait: None,
            backlog: VecDeque::new(),
            children: BTreeMap::new(),
            local_id: conn.local_identity(local.ip()),
            remote_id: None,
            nat: NatState::default(),
            init: None,
            half_open: None,
            created: now,
            established: None,
            last_in: now,
            usage_asked: false,
            successor: None,
            predecessor: None,
            announced: false,
            start: None,
            attempt: 1,
            restarts: 0,
            automatic: false,
            ticket: None,
            choices: 0,
            race: None,
            roam: Roam::default(),
            busy_peer: None,
            told_full: false,
            over_time: false,
            dead: false,
            conn,
        }
    }

    /// Our SPI.
    pub(crate) fn our_spi(&self) -> u64 {
        if self.initiator { self.spi_i } else { self.spi_r }
    }

    /// The peer is authenticated and the IKE_SA usable: CREATE_CHILD_SA and INFORMATIONAL make
    /// sense.
    pub(crate) fn is_up(&self) -> bool {
        self.established.is_some()
    }

    /// An attempt of ours that the peer may have established without our knowing it: our IKE_AUTH
    /// is in flight.
    pub(crate) fn may_be_up_there(&self) -> bool {
        matches!(&self.active, Some(Active { task: Task::Auth(_), .. }))
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
        Header::new(self.spi_i, self.spi_r, exchange, Flags::new(self.initiator, response), mid)
    }

    /// Seals payloads into a message. `None` only when something does not fit its field on the
    /// wire, or without keys.
    pub(crate) fn seal(&mut self, rng: &mut dyn Rng, header: &Header, inner: &[Payload]) -> Option<Vec<u8>> {
        let keys = self.keys.as_ref()?;
        let SealedDraft { mut bytes, ranges } = SealedDraft::emit(header, &[], inner, keys.geometry).ok()?;
        let (aad, rest) = bytes.split_at_mut(ranges.iv.start);
        let (iv, rest) = rest.split_at_mut(ranges.iv.len());
        let (text, icv) = rest.split_at_mut(ranges.text.len());
        match <&mut [u8; 8]>::try_from(&mut *iv) {
            Ok(counter) => {
                *counter = self.iv.to_be_bytes();
                self.iv += 1;
            }
            Err(_) => rng.fill(iv),
        }
        keys.seal.seal(aad, iv, text, icv);
        Some(bytes)
    }

    /// Opens a message: authenticates it first, and reads the payloads inside then.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Vec<Payload>, OpenError> {
        let keys = self.keys.as_ref().ok_or(OpenError::Junk)?;
        let message = Message::parse(bytes).map_err(|_| OpenError::Junk)?;
        // Fragments are not announced; clear payloads before SK carry no meaning in any exchange
        // here.
        let Some(Payload::Sk(sk)) = message.payloads.last() else { return Err(OpenError::Junk) };
        let ranges = message.sealed(keys.geometry).map_err(|_| OpenError::Junk)?;
        let mut text = bytes[ranges.text.clone()].to_vec();
        keys.open
            .open(&bytes[ranges.aad], &bytes[ranges.iv], &mut text, &bytes[ranges.icv])
            .map_err(|_| OpenError::Junk)?;
        let plain = sealed::unpad(&text).map_err(OpenError::Syntax)?;
        parse_chain(sk.inner, plain, Within::Sk).map_err(OpenError::Syntax)
    }

    /// The child of ESP or AH (whose SPIs are different number spaces) that sends with this SPI.
    pub(crate) fn child_by_spi_out(&self, protocol: ProtocolId, spi: Spi) -> Option<ChildId> {
        self.children.values().find(|c| (c.agreed.protocol, c.spi_out) == (protocol, spi)).map(|c| c.id)
    }

    /// True when a child sends with this SPI, of whichever protocol: the name of an outbound SA
    /// (`SaRef`) has none.
    pub(crate) fn sends_with(&self, spi: Spi) -> bool {
        self.children.values().any(|c| c.spi_out == spi)
    }

    /// `192.0.2.1[g1.example]...192.0.2.2[g2.example]`.
    pub(crate) fn ends(&self) -> String {
        let remote = self.remote_id.as_ref().map_or_else(|| "%any".to_owned(), ToString::to_string);
        format!("{}[{}]...{}[{remote}]", self.local.ip(), self.local_id, self.remote.ip())
    }

    /// Our rekeying of a child that is in flight.
    pub(crate) fn rekeying(&self) -> Option<&NewChild> {
        match &self.active {
            Some(Active { task: Task::Child(n), .. }) if n.rekey.is_some() => Some(n),
            _ => None,
        }
    }

    /// True when our request in flight is for rekeying this child.
    pub(crate) fn rekeys_child(&self, id: ChildId) -> bool {
        self.rekeying().is_some_and(|n| n.rekey == Some(id))
    }

    /// What the peer has made of this child while our rekeying of it is in flight.
    pub(crate) fn collision_over(&self, id: ChildId) -> Option<ChildId> {
        self.rekeying().filter(|n| n.rekey == Some(id))?.collision.as_ref().map(|c| c.child)
    }
}
