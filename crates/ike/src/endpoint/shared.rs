//! State that all IKE_SAs share: each of them reads and changes it while it works, and the endpoint
//! between.

use std::collections::VecDeque;

use ironswan_crypto::rng::Rng;
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::sadb::{Command, Spi};

use super::handover::Handovers;
use super::old_inbound::OldInbounds;
use super::outbox::Outbox;
use super::own::OwnValues;
use super::peers::Peers;
use super::probes::Probes;
use super::reached::Reached;
use super::spd::Spd;
use super::spis::Spis;
use super::strangers::Strangers;
use super::tickets::Tickets;
use super::todo::Todo;
use super::tombs::Tombs;
use crate::counters::{ByConnection, Counters, Exchange};
use crate::event::{ChildId, Event};
use crate::qcd::TokenMaker;
use crate::task::Agreement;
use crate::timer::Timers;

/// State that all IKE_SAs share.
pub(crate) struct Shared {
    pub rng: Box<dyn Rng>,
    pub timers: Timers,
    pub counters: Counters,
    /// Counters of each connection.
    pub by_connection: ByConnection,
    /// Messages to the driver and to policy.
    pub outbox: Outbox,
    /// Work with other IKE_SAs that is put off.
    pub todo: VecDeque<Todo>,
    pub tickets: Tickets,
    pub spis: Spis,
    pub spd: Spd,
    /// Inbound SAs of rekeyed children that are kept a while.
    pub old_inbound: OldInbounds,
    /// Children that are to take over from those of an older IKE_SA.
    pub handovers: Handovers,
    pub own: OwnValues,
    /// Possessions of each authenticated identity.
    pub peers: Peers,
    /// Addresses and ports at which peers were reached by NAT traversal.
    pub reached: Reached,
    /// Limits on the cost of senders that nobody has authenticated.
    pub strangers: Strangers,
    pub tombs: Tombs,
    /// Pace of measurements of paths, and peers that refuse them.
    pub probes: Probes,
    /// Makes our QCD tokens; `None`: no peer gets one.
    pub tokens: Option<TokenMaker>,
}

impl Shared {
    /// The state of an endpoint without IKE_SAs.
    pub(crate) fn new(rng: Box<dyn Rng>) -> Self {
        Self {
            rng,
            timers: Timers::default(),
            counters: Counters::default(),
            by_connection: ByConnection::default(),
            outbox: Outbox::default(),
            todo: VecDeque::new(),
            tickets: Tickets::default(),
            spis: Spis::default(),
            spd: Spd::default(),
            old_inbound: OldInbounds::default(),
            handovers: Handovers::default(),
            own: OwnValues::default(),
            peers: Peers::default(),
            reached: Reached::default(),
            strangers: Strangers::default(),
            tombs: Tombs::default(),
            probes: Probes::default(),
            tokens: None,
        }
    }

    /// Counts a message: in all, and for the connection of its IKE_SA.
    pub(crate) fn count_message(&mut self, conn: &str, exchange: ExchangeType, add: impl Fn(&mut Exchange)) {
        if let Some(x) = self.counters.exchange(exchange) {
            add(x);
        }
        self.by_connection.count_message(conn, exchange, add);
    }

    /// Counts a message of an IKE_SA that cannot be read, or is not authentic.
    pub(crate) fn count_invalid(&mut self, conn: &str) {
        self.counters.invalid += 1;
        self.by_connection.count(conn, |c| c.invalid += 1);
    }

    /// Gives back what a child has reserved that will not be installed. The engine hears that no SA
    /// will come.
    pub(crate) fn free_reserved(&mut self, id: ChildId, spi_in: Spi, cpi_in: Option<u16>) {
        if self.spis.free_reserved(id, spi_in, cpi_in) {
            self.outbox.emit(Event::Sadb(Command::SpiFree(spi_in)));
        }
    }

    /// Gives back the numbers of what the peer has not completed.
    pub(crate) fn release(&mut self, agreement: &Agreement) {
        match agreement {
            Agreement::Ike(agreed) => self.spis.free_ike(agreed.spis.1),
            Agreement::Child(agreed) => {
                self.free_reserved(agreed.id, agreed.spi_in, agreed.agreed.cpi_in);
            }
        }
    }
}
