//! Addresses of both ends of one IKE_SA, and the NAT between them.

use std::net::{IpAddr, SocketAddr};

/// NATs between the ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NatState {
    /// A NAT is in front of us.
    pub local: bool,
    /// The peer's NAT hash does not match: there is a NAT, or the peer forces UDP encapsulation.
    pub remote: bool,
    /// `encap = yes`: we send a wrong NAT hash to force UDP encapsulation.
    pub fake: bool,
}

impl NatState {
    /// ESP travels in UDP.
    pub(crate) fn encap(self) -> bool {
        self.local || self.remote || self.fake
    }
}

/// MOBIKE of one IKE_SA (RFC 4555).
#[derive(Clone, Debug, Default)]
pub(crate) struct Mobility {
    /// Both ends use it.
    pub agreed: bool,
    /// Further addresses of the peer.
    pub peer: Vec<IpAddr>,
    /// Our address and one of the peer, by which it has said that it is not any more where we
    /// think. Requests go there as well, until an answer shows which of the two works.
    pub offered: Option<(SocketAddr, SocketAddr)>,
    /// Further addresses of ours that the peer has been told.
    pub told: Vec<IpAddr>,
    /// Hash of our address and port as the peer last saw them (NAT_DETECTION_DESTINATION_IP), while
    /// a NAT is in front of us. `None`: the peer has not said yet.
    pub mapping: Option<[u8; 20]>,
}

/// Addresses and ports of both ends.
pub(crate) struct Path {
    local: SocketAddr,
    remote: SocketAddr,
    nat: NatState,
    /// There is no way to the peer now: requests wait.
    blocked: bool,
    mobility: Mobility,
}

impl Path {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, nat: NatState::default(), blocked: false, mobility: Mobility::default() }
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn nat(&self) -> NatState {
        self.nat
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn mobility(&self) -> &Mobility {
        &self.mobility
    }

    /// MOBIKE, to be changed.
    pub(crate) fn mobility_mut(&mut self) -> &mut Mobility {
        &mut self.mobility
    }

    /// Our address is this one now.
    pub(crate) fn set_local_ip(&mut self, ip: IpAddr) {
        self.local.set_ip(ip);
    }

    /// The peer's address is this one now.
    pub(crate) fn set_remote_ip(&mut self, ip: IpAddr) {
        self.remote.set_ip(ip);
    }

    pub(crate) fn set_local_port(&mut self, port: u16) {
        self.local.set_port(port);
    }

    pub(crate) fn set_remote_port(&mut self, port: u16) {
        self.remote.set_port(port);
    }

    /// Takes over both ends of a datagram of the peer.
    pub(crate) fn set_ends(&mut self, local: SocketAddr, remote: SocketAddr) {
        (self.local, self.remote) = (local, remote);
    }

    /// The peer is at this address and port now. Returns the previous ones.
    pub(crate) fn follow(&mut self, remote: SocketAddr) -> SocketAddr {
        std::mem::replace(&mut self.remote, remote)
    }

    /// NAT detection has found this.
    pub(crate) fn set_nat(&mut self, nat: NatState) {
        self.nat = nat;
    }

    /// There is no way to the peer. Returns true when that was known before.
    pub(crate) fn block(&mut self) -> bool {
        std::mem::replace(&mut self.blocked, true)
    }

    /// There is a way to the peer. Returns true when there was none before.
    pub(crate) fn unblock(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }
}
