//! The ways in which an IKE_SA begins: we initiate, a peer does, or a rekeying makes it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::id::IdPattern;
use ironswan_wire::proposal::IkeSuite;

use super::path::NatState;
use super::work::Answering;
use super::{Attempt, IkeSa, Roam};
use crate::event::{IkeId, IkeState};
use crate::init::Init;
use crate::keymat::IkeKeys;
use crate::task::Task;
use ironswan_keying::Connection;

/// Values of a half-open IKE_SA besides its connection and SPIs.
pub(crate) struct Half {
    pub suite: IkeSuite,
    pub nat: NatState,
    pub init: Init,
    /// The IKE_SA_INIT request.
    pub request: Answering,
}

impl IkeSa {
    /// Our attempt to reach a peer whose address is still to be chosen. `kept` is what it takes
    /// over from an attempt before.
    pub(crate) fn initiate(
        id: IkeId,
        conn: Arc<Connection>,
        (spi_i, kept): (u64, Box<Init>),
        local_port: u16,
        (attempt, roam): (Attempt, Roam),
        now: Instant,
    ) -> Self {
        let nowhere = IpAddr::from([0u8; 4]);
        let ends = (SocketAddr::new(nowhere, local_port), SocketAddr::new(nowhere, conn.remote_port));
        let mut sa = Self::new(id, conn, true, (spi_i, 0), ends, now);
        if let IdPattern::Exact(id) = &sa.conn.remote_id {
            sa.remote_id = Some(id.clone());
        }
        (sa.init, sa.attempt, sa.roam) = (Some(kept), attempt, roam);
        sa.work.push(Task::Init);
        sa
    }

    /// A half-open IKE_SA for a request of a peer, which has been taken.
    pub(crate) fn respond(
        id: IkeId,
        conn: Arc<Connection>,
        (spi_i, spi_r): (u64, u64),
        half: Half,
        now: Instant,
    ) -> Self {
        let Half { suite, nat, init, request } = half;
        let ends = (request.local, request.remote);
        let mut sa = Self::new(id, conn, false, (spi_i, spi_r), ends, now);
        sa.state = IkeState::Connecting;
        sa.crypt.agree(spi_r, suite);
        sa.path.set_nat(nat);
        sa.agree_fragments(init.fragments);
        sa.init = Some(Box::new(init));
        sa.half_open = Some((spi_i, request.remote));
        sa.work.begin_answer(request);
        sa
    }

    /// The IKE_SA that takes over from `old`. It is `Created` until it has the children. "the new
    /// IKE SA ... message counters are reset to zero" (RFC 7296 section 2.18 by way of 2.2).
    pub(crate) fn succeed(
        old: &Self,
        (id, initiator): (IkeId, bool),
        spis: (u64, u64),
        (suite, keys): (IkeSuite, IkeKeys),
        now: Instant,
    ) -> Self {
        let mut sa = Self::new(id, old.conn.clone(), initiator, spis, (old.local(), old.remote()), now);
        sa.crypt.agree(spis.1, suite);
        sa.crypt.set_keys(Some(keys));
        (sa.local_id, sa.remote_id) = (old.local_id.clone(), old.remote_id.clone());
        sa.path.set_nat(old.nat());
        *sa.path.mobility_mut() = old.path.mobility().clone();
        sa.agree_fragments(old.fragments.are_agreed());
        sa.established = Some(now);
        sa.renewal = old.renewal;
        sa.ppk = old.ppk;
        (sa.attempt.automatic, sa.asked) = (old.attempt.automatic, old.asked);
        sa
    }
}
