//! Exchanges that we start, each with its state from the queue to the response. Several files name
//! these states, so they import none of the files that carry the exchanges out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::iana::{KeId, ProtocolId};
use ironswan_wire::proposal::{IkeSuite, Proposal};
use ironswan_wire::sadb::{Mode, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{PacketSelector, TrafficSelector};

use super::series::FollowUp;
use crate::child::Agreed;
use crate::event::{ChildId, IkeId, Ticket};
use crate::qcd::Token;
use ironswan_keying::ChildConfig;

/// Name of IKE_AUTH in VICI's `tasks-*` lists.
pub(super) const AUTH_NAME: &str = "IKE_AUTH";
/// Name of IKE_INTERMEDIATE in VICI's `tasks-*` lists.
pub(super) const INTERMEDIATE_NAME: &str = "IKE_INTERMEDIATE";
/// Name of the rekeying of an IKE_SA in VICI's `tasks-*` lists.
pub(super) const REKEY_IKE_NAME: &str = "IKE_REKEY";

/// An exchange that we start. It waits in its IKE_SA's queue, then is the one request in flight.
pub(crate) enum Task {
    /// IKE_SA_INIT.
    Init,
    /// IKE_INTERMEDIATE with a key exchange, and our private key once it is sent.
    Intermediate(Secret),
    /// IKE_AUTH, with the first child.
    Auth(Option<Box<NewChild>>),
    /// CREATE_CHILD_SA: a new child, or the successor of one.
    Child(Box<NewChild>),
    /// CREATE_CHILD_SA: the successor of the IKE_SA.
    RekeyIke(Box<RekeyIke>),
    /// IKE_FOLLOWUP_KE: an additional key exchange behind our CREATE_CHILD_SA.
    FollowUp(Box<FollowUp>),
    /// INFORMATIONAL with DELETE for children.
    DeleteChild(DeleteChild),
    /// INFORMATIONAL with DELETE for the IKE_SA.
    DeleteIke(DeleteIke),
    /// INFORMATIONAL of MOBIKE.
    Mobike(Mobike),
    /// An empty INFORMATIONAL.
    Liveness,
    /// INFORMATIONAL with our QCD token.
    QcdToken,
    /// INFORMATIONAL that measures the path.
    PathProbe(PathProbe),
}

/// Returns the name of an exchange that makes a child, in VICI's `tasks-*` lists.
pub(super) fn child_name(rekeys: bool) -> &'static str {
    if rekeys { "CHILD_REKEY" } else { "CHILD_CREATE" }
}

impl Task {
    /// Name in VICI's `tasks-*` lists: charon's name for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Init => "IKE_INIT",
            Self::Intermediate(_) => INTERMEDIATE_NAME,
            Self::Auth(_) => AUTH_NAME,
            Self::Child(n) => child_name(n.rekey.is_some()),
            Self::RekeyIke(_) => REKEY_IKE_NAME,
            Self::FollowUp(follow) => follow.name(),
            Self::DeleteChild(_) => "CHILD_DELETE",
            Self::DeleteIke(_) => "IKE_DELETE",
            Self::Mobike(_) => "IKE_MOBIKE",
            Self::Liveness => "IKE_DPD",
            Self::QcdToken => "IKE_QCD",
            Self::PathProbe(_) => "IKE_PATH_PROBE",
        }
    }

    /// True for an exchange whose response may make a child.
    pub(crate) fn makes_child(&self) -> bool {
        match self {
            Self::Child(_) => true,
            Self::FollowUp(follow) => follow.child().is_some(),
            _ => false,
        }
    }

    /// Concerns children, or their addresses: goes with them to the successor of the IKE_SA.
    pub(crate) fn follows_children(&self) -> bool {
        self.makes_child() || matches!(self, Self::DeleteChild(_) | Self::Mobike(_))
    }

    /// True for a rekeying of the IKE_SA.
    pub(crate) fn rekeys_ike(&self) -> bool {
        match self {
            Self::RekeyIke(_) => true,
            Self::FollowUp(follow) => follow.child().is_none(),
            _ => false,
        }
    }
}

/// A child that we propose.
pub(crate) struct NewChild {
    pub config: Arc<ChildConfig>,
    /// The child to replace.
    pub rekey: Option<ChildId>,
    pub ticket: Option<Ticket>,
    /// The packet that asks for it.
    pub packet: Option<PacketSelector>,
    /// 0 until it is prepared.
    pub id: ChildId,
    pub spi_in: Spi,
    /// Our CPI, when IPComp is offered.
    pub cpi_in: Option<u16>,
    /// The mode that is asked for.
    pub mode: Mode,
    pub nonce: Vec<u8>,
    pub ke: Option<KeId>,
    pub private: Option<Secret>,
    pub public: Vec<u8>,
    pub rounds: u32,
    pub proposals: Vec<Proposal>,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    /// The peer's own rekeying of the same child, which came while ours was under way.
    pub collision: Option<ChildCollision>,
    /// The peer has deleted the old child meanwhile.
    pub old_gone: bool,
}

impl NewChild {
    pub(crate) fn new(config: Arc<ChildConfig>, rekey: Option<ChildId>, ticket: Option<Ticket>) -> Self {
        Self {
            config,
            rekey,
            ticket,
            packet: None,
            id: ChildId(0),
            spi_in: Spi(0),
            cpi_in: None,
            mode: Mode::Tunnel,
            nonce: Vec::new(),
            ke: None,
            private: None,
            public: Vec::new(),
            rounds: 0,
            proposals: Vec::new(),
            local_ts: Vec::new(),
            remote_ts: Vec::new(),
            collision: None,
            old_gone: false,
        }
    }
}

/// The peer's rekeying of the child that we are rekeying.
pub(crate) struct ChildCollision {
    /// The child that it made, or will have made after additional key exchanges.
    pub child: ChildId,
    /// Nonce of its request.
    pub ni: Vec<u8>,
    /// Nonce of our response.
    pub nr: Vec<u8>,
}

/// Our rekeying of the IKE_SA.
pub(crate) struct RekeyIke {
    pub ticket: Option<Ticket>,
    /// Id of the new IKE_SA. The id and the SPI are reserved.
    pub new: IkeId,
    pub spi: u64,
    pub nonce: Vec<u8>,
    pub ke: KeId,
    pub private: Option<Secret>,
    pub public: Vec<u8>,
    pub rounds: u32,
    /// The peer has refused what keeps the PRF.
    pub any_prf: bool,
    pub proposals: Vec<Proposal>,
    /// The peer's own rekeying, which came while ours was under way.
    pub collision: Option<IkeCollision>,
}

impl RekeyIke {
    pub(crate) fn new(ticket: Option<Ticket>) -> Self {
        Self {
            ticket,
            new: IkeId(0),
            spi: 0,
            nonce: Vec::new(),
            ke: KeId::NONE,
            private: None,
            public: Vec::new(),
            rounds: 0,
            any_prf: false,
            proposals: Vec::new(),
            collision: None,
        }
    }
}

/// What a good response to our rekeying of the IKE_SA says.
pub(crate) struct AnsweredIke {
    pub suite: IkeSuite,
    pub spi: u64,
    pub nonce: Vec<u8>,
    /// The peer's QCD token for the successor.
    pub token: Option<Token>,
}

/// What a good response to our proposal of a child says.
pub(crate) struct AnsweredChild {
    pub agreed: Agreed,
    pub spi_out: Spi,
    pub nonce: Vec<u8>,
    pub peer_public: Vec<u8>,
}

/// The peer's rekeying of the IKE_SA that is agreed on. The SPI of the successor is reserved.
pub(crate) struct AgreedIke {
    pub id: IkeId,
    pub suite: IkeSuite,
    pub spis: (u64, u64),
    pub ni: Vec<u8>,
    pub nr: Vec<u8>,
}

/// The peer's child that is agreed on. Its id, SPI and CPI are reserved.
pub(crate) struct AgreedChild {
    pub id: ChildId,
    pub config: Arc<ChildConfig>,
    /// The child to replace.
    pub rekey: Option<ChildId>,
    pub agreed: Agreed,
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub ni: Vec<u8>,
    pub nr: Vec<u8>,
}

/// The peer's rekeying of the IKE_SA that we are rekeying.
pub(crate) struct IkeCollision {
    /// The IKE_SA that it made.
    pub new: IkeId,
    pub ni: Vec<u8>,
    pub nr: Vec<u8>,
}

/// Children to close.
#[derive(Default, Debug)]
pub(crate) struct DeleteChild {
    pub ids: Vec<ChildId>,
    /// Inbound SPIs of what was never installed on our side, or is not any more.
    pub spis: Vec<(ProtocolId, Spi)>,
    pub ticket: Option<Ticket>,
}

impl DeleteChild {
    pub(crate) fn of(ids: Vec<ChildId>, ticket: Option<Ticket>) -> Self {
        Self { ids, spis: Vec::new(), ticket }
    }

    /// What we proposed and will not have, though the peer may: under each protocol that it may
    /// have chosen.
    pub(crate) fn of_unborn(new: &NewChild) -> Self {
        let offered = |p: &ProtocolId| new.proposals.iter().any(|q| q.protocol == *p);
        let spis = [ProtocolId::ESP, ProtocolId::AH].into_iter().filter(offered).map(|p| (p, new.spi_in));
        Self { ids: Vec::new(), spis: spis.collect(), ticket: None }
    }
}

/// The IKE_SA to close.
#[derive(Default)]
pub(crate) struct DeleteIke {
    pub ticket: Option<Ticket>,
}

/// Request of MOBIKE (RFC 4555).
pub(crate) enum Mobike {
    /// UPDATE_SA_ADDRESSES with COOKIE2, between these addresses, which are known when it is sent.
    Update { ends: Option<(SocketAddr, SocketAddr)>, cookie: Vec<u8> },
    /// COOKIE2 alone: is the peer where it says?
    Routable { cookie: Vec<u8> },
    /// Our further addresses.
    Addresses,
}

/// A request whose IP packet has a size that the path may not carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathProbe {
    /// Bytes of the IP packet.
    pub bytes: u32,
    /// Bytes of data in the notification.
    pub padding: usize,
    pub sent: Instant,
    /// It has been sent again in a form that passes a narrow path: its answer says nothing any
    /// more.
    pub given_way: bool,
}
