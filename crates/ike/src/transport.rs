//! Transport mode in a negotiation (RFC 7296 sections 1.3.1 and 2.23.1): when it is possible, and
//! what traffic selectors mean when a NAT is between.
//!
//! ```text
//!          initiator IP1 --- NAT, outside IPN1 --- IPN2, outside of NAT --- IP2 responder
//! request   TSi IP1, TSr IPN2      the responder reads TSi as IPN1, TSr as IP2
//! response  TSi IPN1, TSr IP2      the initiator reads TSi as IP1, TSr as IPN2
//! ```
//! Each reads its own address for itself, and for the peer the address that it sees.
//!
//! Each end replaces the address of the end that is behind a NAT by what it sees itself, on
//! receipt, before anything else is done with the selectors: choosing a child, narrowing, checking
//! that an answer was narrowed. What was on the wire is kept: it is what the peer's packets have
//! their checksums computed with (RFC 3948 section 3.1.2). Nothing is replaced in what is sent.
//!
//! Not here: when transport mode is asked for and agreed to (`task::create_child`,
//! `task::answer_child`).

use std::net::IpAddr;

use ironswan_wire::sadb::OriginalAddresses;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::sa::IkeSa;

/// Both ends' selectors, as we see them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
    /// The addresses on the wire, when a NAT is between.
    pub original: Option<OriginalAddresses>,
}

/// The one address of these selectors; `None` when they have several, or none.
fn address(ts: &[TrafficSelector]) -> Option<IpAddr> {
    let first = ts.first()?.range;
    let single = first.start() == first.end() && ts.iter().all(|t| t.range == first);
    single.then_some(first.start())
}

/// True when the selectors are for the hosts at the ends of this IKE_SA, as transport mode needs:
/// "the TSi entries MUST have exactly one IP address, and that MUST match the source address of the
/// IKE SA", and the same of TSr (section 2.23.1).
pub(crate) fn host_to_host(sa: &IkeSa, local: &[TrafficSelector], remote: &[TrafficSelector]) -> bool {
    address(local) == Some(sa.local().ip()) && address(remote) == Some(sa.remote().ip())
}

/// The same protocols and ports at another address.
pub(crate) fn at(ts: &[TrafficSelector], addr: IpAddr) -> Vec<TrafficSelector> {
    ts.iter().map(|t| TrafficSelector { range: AddrRange::host(addr), ..*t }).collect()
}

/// Reads selectors from the peer for transport mode. `None` when they are not of one address each.
pub(crate) fn read(sa: &IkeSa, local: &[TrafficSelector], remote: &[TrafficSelector]) -> Option<Seen> {
    let on_wire = OriginalAddresses { local: address(local)?, remote: address(remote)? };
    // "If the client is behind a NAT, substitute the IP address in the TSi entries with ...", and
    // the same of the server and TSr; ours with our address, the peer's with its address as it came
    // to us. Our address may also have changed since the peer was told of it.
    let ours = sa.nat().local || sa.roam().misplaced;
    let local = if ours { at(local, sa.local().ip()) } else { local.to_vec() };
    let remote = if sa.nat().remote { at(remote, sa.remote().ip()) } else { remote.to_vec() };
    // Addresses of another family cannot have made a checksum of ours (RFC 6145 translates that
    // too).
    let family = |addr: IpAddr| addr.is_ipv4() == sa.remote().is_ipv4();
    let original = (sa.nat().encap() && family(on_wire.local) && family(on_wire.remote)).then_some(on_wire);
    Some(Seen { local, remote, original })
}
