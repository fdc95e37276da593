//! The packets that must not come in, as rows that the program asks one after the other.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

/// Protocols whose first four bytes are ports, as the engine reads them (`wire::ip`).
pub const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Protocols whose first two bytes, type and code, stand for both ports.
pub const WITH_TYPES: [u8; 2] = [1, 58];
/// The mobility header: its third byte is the high byte of both ports.
pub const MOBILITY: u8 = 135;

/// Packets to `local` that show all of this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row {
    /// Destinations.
    pub local: AddrRange,
    /// Of this protocol only.
    pub protocol: Option<u8>,
    /// Of protocols that have ports, or type and code, only; or only of others.
    pub shows: Option<bool>,
    /// First and last source port; type and code count as both ports.
    pub source: (u16, u16),
    /// First and last destination port.
    pub destination: (u16, u16),
    /// Whether such packets are dropped or go on.
    pub drop: bool,
}

impl Row {
    /// Every packet goes on.
    pub fn all(ipv6: bool) -> Self {
        let any = (0, u16::MAX);
        let local = AddrRange::any(ipv6);
        Self { local, protocol: None, shows: None, source: any, destination: any, drop: false }
    }
}

/// Rows for packets from some addresses. The first row that covers a packet decides; a packet that
/// none covers goes on.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct List {
    /// For packets that show ports, or type and code, if their protocol has them.
    pub ports: Vec<Row>,
    /// For those that do not, as they are too short.
    pub protocol: Vec<Row>,
    /// For those that hide even their protocol: IPv6 behind extension headers.
    pub addresses: Vec<Row>,
    /// For later fragments, which show their protocol; the first one shows all.
    pub fragments: Vec<Row>,
}

impl List {
    pub(super) fn views(&self) -> [&[Row]; 4] {
        [&self.ports, &self.protocol, &self.addresses, &self.fragments]
    }
}

/// One family of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Family {
    /// Sources, disjoint and ascending, and the number of their list. Packets from other addresses
    /// go on.
    pub intervals: Vec<(AddrRange, usize)>,
    /// Lists.
    pub lists: Vec<List>,
}

/// The packets that must not come in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// IPv4, IPv6.
    pub families: [Family; 2],
    /// UDP ports of IKE and of encapsulation: what comes to them in clear comes in, beside ESP and
    /// AH.
    pub ports: [u16; 2],
    /// This machine's addresses: only they are sent ESP, AH and IKE. `Ingress::want` puts them
    /// in.
    pub own: BTreeSet<IpAddr>,
}

impl Filter {
    /// True when nothing is ever dropped.
    pub fn is_empty(&self) -> bool {
        self.families.iter().all(|f| f.intervals.is_empty())
    }
}
