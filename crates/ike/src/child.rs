//! One CHILD_SA: a pair of SAs in the packet engine. What is told to the engine about it is in
//! `context::install`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_wire::iana::ProtocolId;
use ironswan_wire::proposal::{Additional, EspSuite, Transform};
use ironswan_wire::sadb::{Direction, Mode, OriginalAddresses, ReqId, SaAdd, SaRef, Spi};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::endpoint::Narrowed;
use crate::event::{ChildId, ChildSaInfo, ChildState};
use crate::flow::Watch;
use crate::narrow;
use crate::task::DeleteChild;
use ironswan_keying::ChildConfig;

/// The agreement of both ends, as we see it.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    /// ESP or AH.
    pub protocol: ProtocolId,
    pub suite: EspSuite,
    /// Additional key exchanges that have made its keys.
    pub additional: Additional,
    pub mode: Mode,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    /// Transport mode through a NAT.
    pub original: Option<OriginalAddresses>,
    /// IPComp: our CPI; both or neither are there.
    pub cpi_in: Option<u16>,
    /// IPComp: the peer's CPI.
    pub cpi_out: Option<u16>,
    /// The peer takes TFC padding.
    pub tfc: bool,
}

impl Agreed {
    /// `AH:HMAC_SHA2_256_128/NO_EXT_SEQ`, as charon prints it.
    pub(crate) fn proposal(&self) -> String {
        let mut esp = self.suite.to_string();
        for (n, id) in self.additional.iter() {
            esp.insert_str(esp.rfind('/').unwrap_or(esp.len()), &format!("/{}", Transform::AddKe(n, id)));
        }
        match esp.strip_prefix("ESP:NULL/").filter(|_| self.protocol == ProtocolId::AH) {
            Some(rest) => format!("{}:{rest}", self.protocol),
            None => esp,
        }
    }
}

/// A CHILD_SA as it is when its two SAs have been made.
pub(crate) struct NewPair {
    pub id: ChildId,
    pub config: Arc<ChildConfig>,
    pub reqid: ReqId,
    pub agreed: Agreed,
    /// The selectors before narrowing: ours and the peer's as configured.
    pub configured: (Vec<TrafficSelector>, Vec<TrafficSelector>),
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub udp_encap: bool,
    pub at: Instant,
    /// See [`Child::begun_by_us`].
    pub begun_by_us: Option<bool>,
}

/// One CHILD_SA.
pub(crate) struct Child {
    id: ChildId,
    config: Arc<ChildConfig>,
    reqid: ReqId,
    state: ChildState,
    agreed: Agreed,
    /// The selectors before narrowing: ours and the peer's as configured.
    configured: (Vec<TrafficSelector>, Vec<TrafficSelector>),
    spi_in: Spi,
    spi_out: Spi,
    udp_encap: bool,
    installed: Instant,
    /// Whether packets come back.
    watch: Watch,
    /// It has been said that the peer refuses to rekey it.
    refused: bool,
    outbound: Outbound,
    /// ChildUp or ChildRekeyed has been told.
    announced: bool,
    begun_by_us: Option<bool>,
    /// Policy counts it among those that carry the tunnel.
    counted: bool,
    /// The child that took over. Set by the responder of a rekeying, and by its initiator once the
    /// new one stands.
    replaced_by: Option<ChildId>,
    /// The peer pair it while we pair this one, and it is the one to go: the peer is to delete it.
    redundant_to: Option<ChildId>,
    /// Tasks that are to close the child wait here until the peer has shown that it knows this
    /// child.
    to_close: Vec<DeleteChild>,
}

/// Children by number. A node of the tree has room for eleven; most IKE_SAs have one, so each child
/// is in a box of its own.
pub(crate) type Children = BTreeMap<ChildId, Box<Child>>;

/// The outbound SA of a child.
enum Outbound {
    /// It is neither in the engine nor to be put there.
    Absent,
    /// It is kept back until the peer has shown that its inbound one stands: by a packet on the new
    /// SA, or by deleting the old one. Until then the old outbound SA goes on.
    HeldBack(Box<SaAdd>),
    /// It is in the engine.
    Installed,
}

impl Child {
    /// A child whose inbound SA is in the engine.
    pub(crate) fn new(pair: NewPair) -> Self {
        Self {
            id: pair.id,
            config: pair.config,
            reqid: pair.reqid,
            state: ChildState::Installed,
            agreed: pair.agreed,
            configured: pair.configured,
            spi_in: pair.spi_in,
            spi_out: pair.spi_out,
            udp_encap: pair.udp_encap,
            installed: pair.at,
            watch: Watch::new(pair.at),
            refused: false,
            outbound: Outbound::Absent,
            announced: false,
            begun_by_us: pair.begun_by_us,
            counted: false,
            replaced_by: None,
            redundant_to: None,
            to_close: Vec::new(),
        }
    }

    // ---- what it is ----

    pub(crate) fn id(&self) -> ChildId {
        self.id
    }

    pub(crate) fn config(&self) -> &Arc<ChildConfig> {
        &self.config
    }

    /// Who asked for this child. `None`: it took over from another one.
    pub(crate) fn begun_by_us(&self) -> Option<bool> {
        self.begun_by_us
    }

    pub(crate) fn reqid(&self) -> ReqId {
        self.reqid
    }

    pub(crate) fn state(&self) -> ChildState {
        self.state
    }

    /// The agreement with the peer.
    pub(crate) fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    pub(crate) fn spi_in(&self) -> Spi {
        self.spi_in
    }

    pub(crate) fn spi_out(&self) -> Spi {
        self.spi_out
    }

    /// `net{1}`, as charon names it.
    pub(crate) fn name(&self) -> String {
        format!("{}{{{}}}", self.config.name, self.id.0)
    }

    /// `SPIs c1_i c2_o and TS 10.1.0.0/24 === 10.2.0.0/24`, as charon writes it.
    pub(crate) fn spis_and_selectors(&self) -> String {
        let (local, remote) = (narrow::list(&self.agreed.local_ts), narrow::list(&self.agreed.remote_ts));
        format!("SPIs {}_i {}_o and TS {local} === {remote}", self.spi_in, self.spi_out)
    }

    /// The selectors of the child, before and after narrowing.
    pub(crate) fn selectors(&self) -> Narrowed {
        let agreed = (self.agreed.local_ts.clone(), self.agreed.remote_ts.clone());
        Narrowed { configured: self.configured.clone(), agreed }
    }

    /// How the engine knows one of its SAs, whose peer is at `remote`.
    pub(crate) fn sa_ref(&self, direction: Direction, remote: IpAddr) -> SaRef {
        let spi = if direction == Direction::In { self.spi_in } else { self.spi_out };
        SaRef { direction, spi, reqid: self.reqid, remote }
    }

    /// A snapshot, without what the engine has counted. `rekey_in` and `life_in` are the times that
    /// are left.
    pub(crate) fn snapshot(
        &self,
        now: Instant,
        rekey_in: Option<Duration>,
        life_in: Option<Duration>,
    ) -> ChildSaInfo {
        ChildSaInfo {
            id: self.id,
            name: self.config.name.clone(),
            reqid: self.reqid,
            state: self.state,
            protocol: self.agreed.protocol,
            mode: self.agreed.mode,
            udp_encap: self.udp_encap,
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            cpi_in: self.agreed.cpi_in,
            cpi_out: self.agreed.cpi_out,
            suite: self.agreed.suite,
            additional: self.agreed.additional,
            local_ts: self.agreed.local_ts.clone(),
            remote_ts: self.agreed.remote_ts.clone(),
            installed: now.saturating_duration_since(self.installed),
            rekey_in,
            life_in,
            stats: None,
        }
    }

    /// Takes over a configuration that means the same to the peer.
    pub(crate) fn set_config(&mut self, config: Arc<ChildConfig>) {
        self.config = config;
    }

    /// Whether its packets travel in UDP.
    pub(crate) fn is_in_udp(&self) -> bool {
        self.udp_encap
    }

    /// Whether packets come back.
    pub(crate) fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// The peer refuses to rekey it, which is said.
    pub(crate) fn refuse_rekeying(&mut self) {
        self.refused = true;
    }

    /// True when it has been said that the peer refuses to rekey it.
    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    // ---- the outbound SA ----

    /// True when the outbound SA is in the engine.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.outbound, Outbound::Installed)
    }

    /// When it was installed.
    pub(crate) fn installed(&self) -> Instant {
        self.installed
    }

    /// True when the outbound SA is kept back until the peer has shown that its inbound one stands.
    pub(crate) fn is_held_back(&self) -> bool {
        matches!(self.outbound, Outbound::HeldBack(_))
    }

    /// Keeps the outbound SA back.
    pub(crate) fn hold_back(&mut self, outbound: Box<SaAdd>) {
        self.outbound = Outbound::HeldBack(outbound);
    }

    /// The outbound SA is in the engine from now on.
    pub(crate) fn begin_sending(&mut self) {
        self.outbound = Outbound::Installed;
    }

    /// The outbound SA that was kept back, for the engine: it counts as installed from now on.
    pub(crate) fn release_outbound(&mut self) -> Option<Box<SaAdd>> {
        match std::mem::replace(&mut self.outbound, Outbound::Installed) {
            Outbound::HeldBack(outbound) => Some(outbound),
            other => {
                self.outbound = other;
                None
            }
        }
    }

    /// The child sends no more. True when its outbound SA was in the engine.
    pub(crate) fn stop_sending(&mut self) -> bool {
        matches!(std::mem::replace(&mut self.outbound, Outbound::Absent), Outbound::Installed)
    }

    /// Has a task that is to close the child wait until the peer knows this child.
    pub(crate) fn hold_close(&mut self, task: DeleteChild) {
        self.to_close.push(task);
    }

    /// Tasks that are to close the child, which wait no longer.
    pub(crate) fn take_closes(&mut self) -> Vec<DeleteChild> {
        std::mem::take(&mut self.to_close)
    }

    // ---- its life ----

    /// The child that took over.
    pub(crate) fn replaced_by(&self) -> Option<ChildId> {
        self.replaced_by
    }

    /// The child of ours beside which the peer is to delete this one.
    pub(crate) fn redundant_to(&self) -> Option<ChildId> {
        self.redundant_to
    }

    /// ChildUp or ChildRekeyed has been told.
    pub(crate) fn is_announced(&self) -> bool {
        self.announced
    }

    /// ChildUp or ChildRekeyed is told now.
    pub(crate) fn announce(&mut self) {
        self.announced = true;
    }

    /// Policy counts the child from now on. True when it did not before.
    pub(crate) fn count(&mut self) -> bool {
        !std::mem::replace(&mut self.counted, true)
    }

    /// Policy counts the child no more. True when it did before.
    pub(crate) fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.counted)
    }

    /// It stands, and may be rekeyed by us.
    pub(crate) fn may_be_rekeyed(&self) -> bool {
        self.state == ChildState::Installed && self.redundant_to.is_none()
    }

    /// We rekey it.
    pub(crate) fn begin_rekeying(&mut self) {
        self.state = ChildState::Rekeying;
    }

    /// Our rekeying came to nothing. True when there was one.
    pub(crate) fn end_rekeying(&mut self) -> bool {
        let rekeying = self.state == ChildState::Rekeying;
        if rekeying {
            self.state = ChildState::Installed;
        }
        rekeying
    }

    /// We delete it.
    pub(crate) fn begin_deleting(&mut self) {
        self.state = ChildState::Deleting;
    }

    /// Another child has taken over.
    pub(crate) fn replace_by(&mut self, new: ChildId) {
        (self.state, self.replaced_by) = (ChildState::Rekeyed, Some(new));
    }

    /// The child that took over has given way to this one.
    pub(crate) fn pass_on_to(&mut self, heir: ChildId) {
        self.replaced_by = Some(heir);
    }

    /// The child that took over is gone: this one goes on.
    pub(crate) fn stand_again(&mut self) {
        (self.state, self.replaced_by) = (ChildState::Installed, None);
    }

    /// The peer is to delete it, because this one of ours stays.
    pub(crate) fn make_redundant(&mut self, to: ChildId) {
        self.redundant_to = Some(to);
    }

    /// It stays: the peer is not to delete it.
    pub(crate) fn keep(&mut self) {
        self.redundant_to = None;
    }

    // ---- the peer moves ----

    /// Whether its packets travel in UDP.
    pub(crate) fn set_udp_encap(&mut self, udp_encap: bool) {
        self.udp_encap = udp_encap;
    }

    /// Changes the peer's selectors of this range, as agreed and as configured, to another one.
    pub(crate) fn move_selectors(&mut self, from: AddrRange, to: AddrRange) {
        for ts in self.agreed.remote_ts.iter_mut().chain(&mut self.configured.1) {
            if ts.range == from {
                ts.range = to;
            }
        }
    }
}
