//! Traffic selectors (RFC 7296 section 3.13, RFC 4301 section 4.4.1.1): address range, protocol,
//! port range.

use std::net::IpAddr;

/// A range of addresses of one family, `start <= end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddrRange {
    start: IpAddr,
    end: IpAddr,
}

impl AddrRange {
    /// `None` when the families differ or `start > end`.
    pub fn new(start: IpAddr, end: IpAddr) -> Option<Self> {
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(Self { start, end })
    }

    /// One address.
    pub fn host(addr: IpAddr) -> Self {
        Self { start: addr, end: addr }
    }

    /// The prefix `addr/len`; bits of `addr` past `len` are cleared. `None` when `len` is too long.
    pub fn prefix(addr: IpAddr, len: u8) -> Option<Self> {
        match addr {
            IpAddr::V4(a) if len <= 32 => {
                let mask = if len == 0 { 0 } else { u32::MAX << (32 - len) };
                let start = u32::from(a) & mask;
                Some(Self { start: IpAddr::V4(start.into()), end: IpAddr::V4((start | !mask).into()) })
            }
            IpAddr::V6(a) if len <= 128 => {
                let mask = if len == 0 { 0 } else { u128::MAX << (128 - len) };
                let start = u128::from(a) & mask;
                Some(Self { start: IpAddr::V6(start.into()), end: IpAddr::V6((start | !mask).into()) })
            }
            _ => None,
        }
    }

    /// All of IPv4 or all of IPv6.
    pub fn any(ipv6: bool) -> Self {
        if ipv6 {
            Self { start: IpAddr::V6(0u128.into()), end: IpAddr::V6(u128::MAX.into()) }
        } else {
            Self { start: IpAddr::V4(0u32.into()), end: IpAddr::V4(u32::MAX.into()) }
        }
    }

    /// First address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// True for an IPv6 range.
    pub fn is_ipv6(&self) -> bool {
        self.start.is_ipv6()
    }

    /// True when `addr` is of this family and inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.start.is_ipv4() && self.start <= addr && addr <= self.end
    }

    /// The addresses in both; `None` when there are none.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.is_ipv6() != other.is_ipv6() {
            return None;
        }
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The prefix length when the range is exactly one prefix.
    pub fn prefix_len(&self) -> Option<u8> {
        let (start, end, bits) = match (self.start, self.end) {
            (IpAddr::V4(s), IpAddr::V4(e)) => (u128::from(u32::from(s)), u128::from(u32::from(e)), 32),
            (IpAddr::V6(s), IpAddr::V6(e)) => (u128::from(s), u128::from(e), 128),
            _ => return None,
        };
        let differ = start ^ end;
        let host_bits = 128 - differ.leading_zeros();
        let mask = if host_bits == 128 { u128::MAX } else { (1u128 << host_bits) - 1 };
        (differ == mask && start & mask == 0 && end & mask == mask).then_some((bits - host_bits) as u8)
    }

    /// The smallest set of prefixes `(address, length)` that covers exactly this range (at most 2 *
    /// bits of them).
    pub fn prefixes(&self) -> Vec<(IpAddr, u8)> {
        let (mut at, end, bits) = match (self.start, self.end) {
            (IpAddr::V4(s), IpAddr::V4(e)) => (u128::from(u32::from(s)), u128::from(u32::from(e)), 32u32),
            (IpAddr::V6(s), IpAddr::V6(e)) => (u128::from(s), u128::from(e), 128),
            _ => return Vec::new(),
        };
        let to_addr = |v: u128| match bits {
            32 => IpAddr::V4((v as u32).into()),
            _ => IpAddr::V6(v.into()),
        };
        let mut out = Vec::new();
        loop {
            // The widest prefix that starts at `at` and does not pass `end`.
            let mut host = at.trailing_zeros().min(bits);
            loop {
                let mask = if host == 128 { u128::MAX } else { (1u128 << host) - 1 };
                if mask <= end - at {
                    out.push((to_addr(at), (bits - host) as u8));
                    match at.checked_add(mask).and_then(|last| last.checked_add(1)) {
                        Some(next) if next <= end => at = next,
                        _ => return out,
                    }
                    break;
                }
                host -= 1;
            }
        }
    }
}

impl std::fmt::Display for AddrRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.prefix_len() {
            Some(len) => write!(f, "{}/{len}", self.start),
            None => write!(f, "{}..{}", self.start, self.end),
        }
    }
}

impl std::fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// One traffic selector. Protocol 0 is any; ports 0-65535 are any; 65535-0 is OPAQUE (RFC 7296
/// section 3.13.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrafficSelector {
    /// Addresses.
    pub range: AddrRange,
    /// IP protocol, 0 for any.
    pub protocol: u8,
    /// First port. For ICMP the high byte is the type and the low byte the code.
    pub start_port: u16,
    /// Last port.
    pub end_port: u16,
}

impl TrafficSelector {
    /// All protocols and ports of the range.
    pub fn addresses(range: AddrRange) -> Self {
        Self { range, protocol: 0, start_port: 0, end_port: 65535 }
    }

    /// True when every port is meant.
    pub fn any_port(&self) -> bool {
        self.start_port == 0 && self.end_port == 65535
    }

    /// True for OPAQUE ports: only packets whose ports cannot be seen.
    pub fn opaque_port(&self) -> bool {
        self.start_port == 65535 && self.end_port == 0
    }

    /// True when the packet's address, protocol and port (`None`: not to be seen, as in a non-first
    /// fragment) fall inside.
    pub fn matches(&self, addr: IpAddr, protocol: u8, port: Option<u16>) -> bool {
        self.range.contains(addr)
            && (self.protocol == 0 || self.protocol == protocol)
            && match port {
                _ if self.any_port() => true,
                None => self.opaque_port(),
                Some(p) => self.start_port <= p && p <= self.end_port,
            }
    }

    /// Intersection of both selectors; `None` when it is empty. This is narrowing (RFC 7296 section
    /// 2.9).
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let range = self.range.intersect(&other.range)?;
        let protocol = match (self.protocol, other.protocol) {
            (0, p) | (p, 0) => p,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (start_port, end_port) = if self.any_port() {
            (other.start_port, other.end_port)
        } else if other.any_port() {
            (self.start_port, self.end_port)
        } else if self.opaque_port() || other.opaque_port() {
            if self.opaque_port() != other.opaque_port() {
                return None;
            }
            (65535, 0)
        } else {
            let (s, e) = (self.start_port.max(other.start_port), self.end_port.min(other.end_port));
            if s > e {
                return None;
            }
            (s, e)
        };
        Some(Self { range, protocol, start_port, end_port })
    }

    /// True when everything `self` selects is selected by `other`.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.intersect(other).as_ref() == Some(self)
    }

    /// Number of bits that the selector leaves open, in address (a range counts as the next larger
    /// prefix), protocol and ports: 0 for one address, protocol and port.
    pub fn open_bits(&self) -> u32 {
        let bits = |addr| match addr {
            IpAddr::V4(a) => u128::from(u32::from(a)),
            IpAddr::V6(a) => u128::from(a),
        };
        let addresses = 128 - (bits(self.range.end) ^ bits(self.range.start)).leading_zeros();
        let protocol = if self.protocol == 0 { 8 } else { 0 };
        let ports = match self.end_port.checked_sub(self.start_port) {
            None => 0, // OPAQUE
            Some(n) => 16 - n.leading_zeros(),
        };
        addresses + protocol + ports
    }
}

/// Rank of policies of priority 0 among those with an explicit priority: smaller ones come before,
/// larger ones after.
pub const AUTO_PRIORITY: u32 = 300_000;

/// The order of the policies of an SPD (RFC 4301 section 4.4.1): the smaller is matched first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Precedence(
    /// The priority, then the bits that the selectors of the configuration leave open, then 1 for
    /// PROTECT: of equally specific ones, DISCARD and BYPASS come first, since they are made to cut
    /// holes. One number, as look-ups compare many.
    u64,
);

impl Precedence {
    /// The precedence of a policy for these selectors. `open`: the open bits of the configured
    /// selectors that the peers narrowed them from, or 0 when they were not narrowed. Priority 0
    /// counts as [`AUTO_PRIORITY`].
    pub fn new(
        local: &TrafficSelector,
        remote: &TrafficSelector,
        priority: u32,
        open: u32,
        protect: bool,
    ) -> Self {
        let priority = if priority == 0 { AUTO_PRIORITY } else { priority };
        let open = open.max(local.open_bits() + remote.open_bits()).min(u32::MAX >> 1);
        Self(u64::from(priority) << 32 | u64::from(open) << 1 | u64::from(protect))
    }
}

impl std::fmt::Display for TrafficSelector {
    /// As strongSwan prints it: `10.1.0.0/16`, `10.1.0.1/32[tcp/80]`, `10.0.0.0/8[17]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.range)?;
        if self.protocol == 0 && self.any_port() {
            return Ok(());
        }
        f.write_str("[")?;
        match self.protocol {
            0 => f.write_str("0")?,
            1 => f.write_str("icmp")?,
            6 => f.write_str("tcp")?,
            17 => f.write_str("udp")?,
            58 => f.write_str("ipv6-icmp")?,
            p => write!(f, "{p}")?,
        }
        if self.opaque_port() {
            f.write_str("/OPAQUE")?;
        } else if self.start_port == self.end_port {
            write!(f, "/{}", self.start_port)?;
        } else if !self.any_port() {
            write!(f, "/{}-{}", self.start_port, self.end_port)?;
        }
        f.write_str("]")
    }
}

impl std::fmt::Debug for TrafficSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The selectors of a packet as the SPD sees it: addresses, protocol, and ports where they can be
/// seen (`None` for protocols without ports and for non-first fragments).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketSelector {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Upper-layer protocol, behind any IPv6 extension headers.
    pub protocol: u8,
    /// Source port, or ICMP `type << 8 | code`.
    pub src_port: Option<u16>,
    /// Destination port, or ICMP `type << 8 | code`.
    pub dst_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(a: &str, b: &str) -> AddrRange {
        AddrRange::new(a.parse().unwrap(), b.parse().unwrap()).unwrap()
    }

    #[test]
    fn prefix_is_found_only_when_exact() {
        assert_eq!(r("10.1.0.0", "10.1.255.255").prefix_len(), Some(16));
        assert_eq!(r("10.1.0.0", "10.1.255.254").prefix_len(), None);
        assert_eq!(r("10.1.0.1", "10.1.0.1").prefix_len(), Some(32));
        assert_eq!(AddrRange::any(false).prefix_len(), Some(0));
        assert_eq!(AddrRange::any(true).prefix_len(), Some(0));
        assert_eq!(r("10.0.0.1", "10.0.0.2").prefix_len(), None);
        assert_eq!(r("fd00::", "fd00::ffff").prefix_len(), Some(112));
    }

    #[test]
    fn a_range_becomes_the_fewest_prefixes() {
        let p = r("10.0.0.1", "10.0.0.6").prefixes();
        let text: Vec<_> = p.iter().map(|(a, l)| format!("{a}/{l}")).collect();
        assert_eq!(text, ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]);
        assert_eq!(AddrRange::any(true).prefixes(), [("::".parse().unwrap(), 0)]);
        assert_eq!(AddrRange::any(false).prefixes(), [("0.0.0.0".parse().unwrap(), 0)]);
        assert_eq!(r("255.255.255.255", "255.255.255.255").prefixes().len(), 1);
    }

    #[test]
    fn narrowing_intersects_every_field() {
        let a =
            TrafficSelector { range: r("10.0.0.0", "10.0.0.255"), protocol: 6, start_port: 80, end_port: 90 };
        let b = TrafficSelector {
            range: r("10.0.0.128", "10.0.1.0"),
            protocol: 0,
            start_port: 85,
            end_port: 100,
        };
        let c = a.intersect(&b).unwrap();
        assert_eq!(c.to_string(), "10.0.0.128/25[tcp/85-90]");
        assert!(c.is_subset_of(&a) && c.is_subset_of(&b) && !a.is_subset_of(&b));
        let udp = TrafficSelector { protocol: 17, ..a };
        assert_eq!(a.intersect(&udp), None);
    }

    #[test]
    fn ports_that_cannot_be_seen_match_any_and_opaque_only() {
        let any = TrafficSelector::addresses(AddrRange::any(false));
        let port = TrafficSelector { protocol: 6, start_port: 80, end_port: 80, ..any };
        let opaque = TrafficSelector { protocol: 6, start_port: 65535, end_port: 0, ..any };
        let a = "1.2.3.4".parse().unwrap();
        assert!(any.matches(a, 6, None) && !port.matches(a, 6, None) && opaque.matches(a, 6, None));
        assert!(
            port.matches(a, 6, Some(80)) && !port.matches(a, 6, Some(81)) && !opaque.matches(a, 6, Some(80))
        );
    }

    #[test]
    fn more_specific_selectors_leave_fewer_bits_open() {
        let open = |s: &str, e: &str, protocol, ports: (u16, u16)| {
            TrafficSelector { range: r(s, e), protocol, start_port: ports.0, end_port: ports.1 }.open_bits()
        };
        assert_eq!(open("10.0.0.1", "10.0.0.1", 6, (5, 5)), 0);
        assert_eq!(open("10.0.0.1", "10.0.0.1", 0, (0, 65_535)), 8 + 16);
        assert_eq!(open("10.0.0.0", "10.0.0.255", 6, (5, 5)), 8);
        assert_eq!(open("10.0.0.1", "10.0.0.2", 6, (5, 5)), 2, "a range counts as the next larger prefix");
        assert_eq!(open("10.0.0.1", "10.0.0.1", 6, (65_535, 0)), 0, "OPAQUE is one value");
        assert_eq!(TrafficSelector::addresses(AddrRange::any(true)).open_bits(), 128 + 8 + 16);
    }
}
