//! What a key daemon tells a packet engine, and what the engine tells back (in the spirit of PF_KEY, RFC 2367).
//!
//! This is the seam between `ike` and `ipsec`, which never see each other: the same messages are applied by the
//! user-space SAD and SPD or by the kernel's. They are plain data and can be recorded and replayed.

use std::net::{IpAddr, SocketAddr};

use crate::iana::ProtocolId;
use crate::proposal::EspSuite;
use crate::secret::Secret;
use crate::selector::{PacketSelector, TrafficSelector};

/// A security parameter index, host order. 0 is never on the wire, 1-255 are reserved (RFC 4303 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Spi(pub u32);

impl std::fmt::Display for Spi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl std::fmt::Debug for Spi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Joins a policy to the SAs that carry its traffic: both directions of a child, and of all its rekeyed successors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ReqId(pub u32);

/// Which way an SA works.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Opens what arrives.
    In,
    /// Seals what leaves.
    Out,
}

/// How the inner packet is carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// A whole IP packet inside (RFC 4301 section 3.2).
    #[default]
    Tunnel,
    /// The upper-layer payload inside.
    Transport,
}

/// Limits of an SA's life as the engine counts them; 0 means none. Time limits are the key daemon's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lifetime {
    /// Bytes after which [`Up::Expire`] is raised with `hard = false`.
    pub soft_bytes: u64,
    /// Bytes after which the SA carries nothing more.
    pub hard_bytes: u64,
    /// Packets after which [`Up::Expire`] is raised with `hard = false`.
    pub soft_packets: u64,
    /// Packets after which the SA carries nothing more.
    pub hard_packets: u64,
}

/// One SA to install.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaAdd {
    /// In or out.
    pub direction: Direction,
    /// ESP or AH.
    pub protocol: ProtocolId,
    /// Inbound: our SPI, unique among our inbound SAs. Outbound: the peer's.
    pub spi: Spi,
    /// The policy this SA serves.
    pub reqid: ReqId,
    /// Our outer address and port (the port matters with `udp_encap` only).
    pub local: SocketAddr,
    /// The peer's outer address and port.
    pub remote: SocketAddr,
    /// RFC 3948 encapsulation on output. Input is accepted either way (RFC 7296 section 2.23).
    pub udp_encap: bool,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Algorithms, and whether sequence numbers are extended.
    pub suite: EspSuite,
    /// Encryption key, salt appended for AEADs (RFC 4106 section 8.1, RFC 7634 section 2).
    pub encr_key: Secret,
    /// Integrity key; empty with an AEAD.
    pub integ_key: Secret,
    /// Anti-replay window in packets, 0 for none. Inbound only.
    pub replay_window: u32,
    /// Our side's selectors: what an inbound inner packet may be addressed to, an outbound one come from.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side's selectors.
    pub remote_ts: Vec<TrafficSelector>,
    /// Limits that the engine counts.
    pub lifetime: Lifetime,
    /// Raise [`Up::FirstUse`] when the first packet has been authenticated (inbound only). The responder of a rekey
    /// waits for it before it sends on the new SA.
    pub notify_first_use: bool,
}

/// Names one SA: SPI and direction (inbound and outbound SPIs are different number spaces). An inbound SPI is ours and says
/// it all. An outbound one is the peer's choice and unique per peer only, and two peers behind one NAT share an address: so
/// reqid and address belong to the name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SaRef {
    /// In or out.
    pub direction: Direction,
    /// SPI.
    pub spi: Spi,
    /// The policy that the SA serves. Outbound only.
    pub reqid: ReqId,
    /// The peer's outer address, as the SA has it now. Outbound only.
    pub remote: IpAddr,
}

/// What a policy does with a packet (RFC 4301 section 4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Through the newest outbound SA with this reqid; without one: drop, count, and raise [`Up::Acquire`].
    Protect(ReqId),
    /// In clear.
    Bypass,
    /// Dropped.
    Discard,
}

/// One policy, for both directions: local to remote going out, remote to local coming in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyAdd {
    /// The child's name, for people.
    pub name: String,
    /// What to do.
    pub action: Action,
    /// Our side.
    pub local: TrafficSelector,
    /// The peer's side.
    pub remote: TrafficSelector,
    /// Lower is matched first; 0 lets the engine order by how specific the selectors are.
    pub priority: u32,
}

/// From the key daemon to the engine. Applied in order; each is all or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Install an SA. An outbound SA is used for its reqid from now on.
    SaAdd(Box<SaAdd>),
    /// Move the SA to other outer addresses (NAT mapping change, MOBIKE).
    SaUpdate {
        /// Which.
        sa: SaRef,
        /// New local address.
        local: SocketAddr,
        /// New remote address.
        remote: SocketAddr,
        /// New encapsulation.
        udp_encap: bool,
    },
    /// Remove an SA. An outbound SA's reqid falls back to the newest older SA, if one is left.
    SaDelete(SaRef),
    /// Install a policy. The same selectors with the same action twice are counted.
    PolicyAdd(PolicyAdd),
    /// Remove a policy once.
    PolicyDelete(PolicyAdd),
}

/// From the engine to the key daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Up {
    /// A packet met a PROTECT policy without an SA. Rate-limited per reqid.
    Acquire {
        /// The policy's reqid.
        reqid: ReqId,
        /// The packet.
        packet: PacketSelector,
    },
    /// A limit of [`Lifetime`] was reached. Raised once for soft and once for hard.
    Expire {
        /// Which SA.
        sa: SaRef,
        /// Hard: the SA carries nothing more.
        hard: bool,
    },
    /// The first authenticated packet arrived on an inbound SA that asked for this.
    FirstUse {
        /// The inbound SPI.
        spi: Spi,
    },
    /// An authenticated packet, newer than every one before, came UDP-encapsulated from another address or port than the
    /// SA's: a NAT has a new mapping (RFC 7296 section 2.23). Only for an SA with `udp_encap`. Raised once for each new
    /// source until the SA is moved by [`Command::SaUpdate`], and again every ten seconds while its newest packets still
    /// come from there; of at most four sources in that time. Whether to follow is the key daemon's to say.
    Moved {
        /// The inbound SPI.
        spi: Spi,
        /// Where the packet came from.
        remote: SocketAddr,
    },
}

/// Counters of one SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaStats {
    /// Packets sealed, or opened and delivered.
    pub packets: u64,
    /// Bytes of inner packets.
    pub bytes: u64,
    /// Seconds on the driver's monotonic clock of the last packet; 0 when there was none.
    pub last_use: u64,
}
