//! One CHILD_SA: a pair of SAs in the packet engine. What is told to the engine about it is in
//! `context::install`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::iana::ProtocolId;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Direction, Mode, OriginalAddresses, ReqId, SaAdd, SaRef, Spi};
use ironswan_wire::selector::TrafficSelector;

use crate::endpoint::Narrowed;
use crate::event::{ChildId, ChildState};
use crate::task::DeleteChild;
use ironswan_keying::ChildConfig;

/// The agreement of both ends, as we see it.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    /// ESP or AH.
    pub protocol: ProtocolId,
    pub suite: EspSuite,
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
        let esp = self.suite.to_string();
        match esp.strip_prefix("ESP:NULL/").filter(|_| self.protocol == ProtocolId::AH) {
            Some(rest) => format!("{}:{rest}", self.protocol),
            None => esp,
        }
    }
}

/// One CHILD_SA.
pub(crate) struct Child {
    pub id: ChildId,
    pub config: Arc<ChildConfig>,
    pub reqid: ReqId,
    pub state: ChildState,
    pub agreed: Agreed,
    /// The selectors before narrowing: ours and the peer's as configured.
    pub configured: (Vec<TrafficSelector>, Vec<TrafficSelector>),
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub udp_encap: bool,
    pub installed: Instant,
    /// The outbound SA, kept back until the peer has shown that its inbound one stands: by a packet
    /// on the new SA, or by deleting the old one. Until then the old outbound SA goes on.
    pub pending_out: Option<Box<SaAdd>>,
    /// The outbound SA is in the engine.
    pub out_installed: bool,
    /// ChildUp or ChildRekeyed has been told.
    pub announced: bool,
    /// Policy counts it among those that carry the tunnel.
    pub counted: bool,
    /// The child that took over. Set by the responder of a rekeying, and by its initiator once the
    /// new one stands.
    pub replaced_by: Option<ChildId>,
    /// The peer made it while we made this one, and it is the one to go: the peer is to delete it.
    pub redundant_to: Option<ChildId>,
    /// Tasks that are to close the child wait here until the peer has shown that it knows this
    /// child.
    pub to_close: Vec<DeleteChild>,
}

impl Child {
    /// `net{1}`, as charon names it.
    pub(crate) fn name(&self) -> String {
        format!("{}{{{}}}", self.config.name, self.id.0)
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
}
