//! Messages from a key daemon to a packet engine, and back (in the spirit of PF_KEY, RFC 2367).
//!
//! This is the seam between `ike` and `ipsec`, which never see each other: the same messages are
//! applied by the user-space SAD and SPD or by the kernel's. They are plain data and can be
//! recorded and replayed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::iana::ProtocolId;
use crate::proposal::EspSuite;
use crate::secret::Secret;
use crate::selector::{PacketSelector, TrafficSelector};

/// A security parameter index, host order. 0 is never on the wire, 1-255 are reserved (RFC 4303
/// section 2.1).
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

/// Joins a policy to the SAs that carry its traffic: both directions of a child, and of all its
/// rekeyed successors.
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

/// Limits of an SA's life as the engine counts them; 0 means none. Time limits are the key daemon's
/// own.
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

/// Treatment of the DSCP field (RFC 2474) on the way into a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dscp {
    /// The outer header has the inner one's.
    #[default]
    Copy,
    /// The outer header has this one, 0 to 63.
    Set(u8),
}

/// Traffic flow confidentiality padding (RFC 4303 section 2.7). Tunnel mode ESP only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tfc {
    /// None.
    #[default]
    None,
    /// Every inner packet is padded to this many bytes, unless it is longer already.
    To(u16),
    /// Every inner packet is padded to the longest that fits the path ([`Command::SaPathMtu`]).
    Mtu,
}

/// The addresses that the peer used for the two ends when a NAT is between (RFC 3948 section
/// 3.1.2): what the checksums of upper-layer protocols in transport mode were made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginalAddresses {
    /// Our end, as the peer sees it.
    pub local: IpAddr,
    /// The peer's end, as the peer sees it.
    pub remote: IpAddr,
}

/// How packets are carried, beside mode and algorithms. The default is what RFC 4301 section 5.1.2
/// and RFC 6040 ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaOptions {
    /// IPComp with deflate (RFC 3173) inside of ESP or AH, under this compression parameter index:
    /// outbound the one that the peer chose, inbound ours. What does not get shorter goes without.
    pub ipcomp: Option<u16>,
    /// The outer packet is never fragmented: inner packets are made to fit the path, by
    /// fragmentation before encapsulation where their DF bit allows it. When false they are
    /// encapsulated whole and the outer packet may be fragmented.
    pub copy_df: bool,
    /// Congestion marks pass through the tunnel (RFC 6040 normal mode). When false the outer header
    /// says Not-ECT and what it says on arrival is ignored.
    pub copy_ecn: bool,
    /// DSCP of the outer header.
    pub dscp_out: Dscp,
    /// The inner packet gets the outer header's DSCP on arrival.
    pub dscp_in: bool,
    /// Padding.
    pub tfc: Tfc,
    /// While nothing else leaves by this SA, a dummy packet does, this often (RFC 4303 section
    /// 2.6). Outbound, tunnel mode ESP only.
    pub dummies: Option<Duration>,
    /// Transport mode through a NAT. Inbound only.
    pub original: Option<OriginalAddresses>,
}

impl Default for SaOptions {
    fn default() -> Self {
        Self {
            ipcomp: None,
            copy_df: true,
            copy_ecn: true,
            dscp_out: Dscp::Copy,
            dscp_in: false,
            tfc: Tfc::None,
            dummies: None,
            original: None,
        }
    }
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
    /// Algorithms, and whether sequence numbers are extended. Of an AH SA the encryption is NULL.
    pub suite: EspSuite,
    /// How packets are carried.
    pub options: SaOptions,
    /// Encryption key, salt appended for AEADs (RFC 4106 section 8.1, RFC 7634 section 2).
    pub encr_key: Secret,
    /// Integrity key; empty with an AEAD.
    pub integ_key: Secret,
    /// Anti-replay window in packets, 0 for none. Inbound only.
    pub replay_window: u32,
    /// Our side's selectors: what an inbound inner packet may be addressed to, an outbound one come
    /// from.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side's selectors.
    pub remote_ts: Vec<TrafficSelector>,
    /// Limits that the engine counts.
    pub lifetime: Lifetime,
    /// Raise [`Up::FirstUse`] when the first packet has been authenticated (inbound only). The
    /// responder of a rekey waits for it before it sends on the new SA.
    pub notify_first_use: bool,
}

/// Names one SA: SPI and direction (inbound and outbound SPIs are different number spaces). An
/// inbound SPI is ours and says it all. An outbound one is the peer's choice and unique per peer
/// only, and two peers behind one NAT share an address: so reqid and address belong to the name.
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

/// Action of a policy on a packet (RFC 4301 section 4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Through the newest outbound SA with this reqid that covers the packet; without one: keep the
    /// first packets, drop and count the rest, and raise [`Up::Acquire`].
    Protect(ReqId),
    /// In clear.
    Bypass,
    /// Dropped.
    Discard,
}

impl Action {
    /// The SAs that protect; `None` when nothing is protected.
    pub fn reqid(&self) -> Option<ReqId> {
        match self {
            Self::Protect(reqid) => Some(*reqid),
            Self::Bypass | Self::Discard => None,
        }
    }
}

/// The entry of the configuration that a policy was made of. The SPD is ordered by who configures
/// it (RFC 4301 section 4.4.1): a peer may have its selectors narrowed to whatever lies inside of
/// what is configured, and gets no other place by that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Entry {
    /// Bits that the entry's selectors leave open. Where the policy's own leave more, these count:
    /// 0 is a policy that was not narrowed.
    pub open: u32,
    /// Of two entries of one rank the one with the smaller number is matched first.
    pub age: u64,
}

/// One policy, for both directions: local to remote going out, remote to local coming in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyAdd {
    /// Owner of the policy: `connection.child`. The engine does not use it.
    pub name: String,
    /// Action on a packet that the policy covers.
    pub action: Action,
    /// Our side.
    pub local: TrafficSelector,
    /// The peer's side.
    pub remote: TrafficSelector,
    /// Lower is matched first; 0 lets the engine order by how specific the selectors of its entry
    /// are.
    pub priority: u32,
    /// The configured selectors from which the policy was narrowed.
    pub entry: Entry,
}

/// From the key daemon to the engine. Applied in order; each is all or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// An exchange has named this inbound SPI to the peer at `remote`, and its SA will come:
    /// packets with it from that address wait for the SA, few and not long. Ends with the SA, or
    /// with [`Self::SpiFree`].
    SpiReserve {
        /// Our SPI.
        spi: Spi,
        /// The peer's outer address.
        remote: IpAddr,
    },
    /// No SA will come for this inbound SPI. Nothing happens when it is not reserved.
    SpiFree(Spi),
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
    /// The path MTU to the SA's peer is this many bytes now, outer IP header included. Outbound
    /// only. Until it is told, nothing is made to fit.
    SaPathMtu {
        /// Which.
        sa: SaRef,
        /// Bytes.
        mtu: u32,
    },
    /// Remove an SA. An outbound SA's reqid falls back to the newest older SA, if one is left.
    SaDelete(SaRef),
    /// Install a policy. The same selectors with the same action twice are counted.
    PolicyAdd(PolicyAdd),
    /// Remove a policy once.
    PolicyDelete(PolicyAdd),
}

/// An auditable event (RFC 4301 section 9): a packet that was dropped on its way in, and how many
/// more for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RejectedPackets {
    /// The engine's name of the reason, as its counters have it.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub sentence: &'static str,
    /// Packets since the last event of this reason, this one included.
    pub count: u64,
    /// The packet's SPI; 0 when it has none.
    pub spi: Spi,
    /// Sequence number: the low half alone where the SA is not known or the ICV was not looked at.
    pub sequence: u64,
    /// Destination of the packet.
    pub local: IpAddr,
    /// Source of the packet.
    pub remote: IpAddr,
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
    /// Packets were dropped on their way in. Rate-limited for each reason.
    Rejected(RejectedPackets),
    /// An authenticated packet, newer than every one before, came UDP-encapsulated from another
    /// address or port than the SA's: a NAT has a new mapping (RFC 7296 section 2.23). Only for an
    /// SA with `udp_encap`. Raised once for each new source until the SA is moved by
    /// [`Command::SaUpdate`], and again every ten seconds while its newest packets still come from
    /// there; of at most four sources in that time. Whether to follow is the key daemon's to say.
    Moved {
        /// The inbound SPI.
        spi: Spi,
        /// Source of the packet.
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
