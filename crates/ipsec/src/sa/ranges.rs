//! Address ranges of an inbound SA: a quick answer, from the SA's own memory, to whether its
//! selectors cover a packet. Most packets get it. For all others the selectors themselves are
//! asked, and the answer is remembered by flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::selectors::Selectors;

/// A pair of address ranges, as numbers: the first of an SA's selectors on either side that ask for
/// nothing else. What lies in both is covered; what does not may be covered by others.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Ranges<A> {
    remote: [A; 2],
    local: [A; 2],
}

impl<A: Copy + PartialOrd + From<u8>> Ranges<A> {
    pub(super) fn new(selectors: &Selectors, number: impl Fn(IpAddr) -> Option<A>) -> Self {
        let ends = |t: &TrafficSelector| Some([number(t.range.start())?, number(t.range.end())?]);
        let first =
            |side: &[TrafficSelector]| side.iter().filter(|t| t.protocol == 0 && t.any_port()).find_map(ends);
        // From one to zero is nothing.
        let none = [1.into(), 0.into()];
        match (first(&selectors.remote), first(&selectors.local)) {
            (Some(remote), Some(local)) => Self { remote, local },
            _ => Self { remote: none, local: none },
        }
    }

    /// True when a packet that arrived lies in both.
    #[inline(always)]
    pub(super) fn contain(&self, src: A, dst: A) -> bool {
        let ([a, b], [c, d]) = (self.remote, self.local);
        (a <= src) & (src <= b) & (c <= dst) & (dst <= d)
    }
}

/// The network of a source or a destination that no packet on a wire has ([`crate::pipeline`]'s
/// `accept`).
const MARTIAN_SOURCES: [(IpAddr, u8); 5] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
    // Multicast, reserved, broadcast.
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 3),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 127),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];
const MARTIAN_DESTINATIONS: [(IpAddr, u8); 3] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 127),
];

/// True when selectors of a family let such addresses in, so that every packet has to be asked.
pub(super) fn have_martians(selectors: &Selectors, ipv6: bool) -> bool {
    let any = |side: &[TrafficSelector], networks: &[(IpAddr, u8)]| {
        networks.iter().filter(|(addr, _)| addr.is_ipv6() == ipv6).any(|(addr, len)| {
            let network = AddrRange::prefix(*addr, *len);
            side.iter().any(|t| network.is_none_or(|n| t.range.intersect(&n).is_some()))
        })
    };
    any(&selectors.remote, &MARTIAN_SOURCES) || any(&selectors.local, &MARTIAN_DESTINATIONS)
}

pub(super) fn number_v4(addr: IpAddr) -> Option<u32> {
    match addr {
        IpAddr::V4(a) => Some(a.into()),
        IpAddr::V6(_) => None,
    }
}

pub(super) fn number_v6(addr: IpAddr) -> Option<u128> {
    match addr {
        IpAddr::V4(_) => None,
        IpAddr::V6(a) => Some(a.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_with_martians_are_known() {
        let prefix = |addr: &str, len| {
            TrafficSelector::addresses(AddrRange::prefix(addr.parse().unwrap(), len).unwrap())
        };
        let have = |local: TrafficSelector, remote: TrafficSelector| {
            let selectors = Selectors { local: [local].into(), remote: [remote].into() };
            [false, true].map(|ipv6| have_martians(&selectors, ipv6))
        };
        let (v4, v6) = (prefix("10.0.0.0", 8), prefix("2001:db8::", 32));
        assert_eq!(have(v4, v4), [false; 2]);
        assert_eq!(have(v6, v6), [false; 2]);
        for (addr, len, source, destination) in [
            ("0.0.0.0", 0, true, true),
            ("0.1.2.3", 32, true, true),
            ("127.9.9.9", 32, true, true),
            ("239.1.2.3", 32, true, false),
            ("240.0.0.0", 5, true, false),
            ("255.255.255.255", 32, true, false),
        ] {
            assert_eq!(have(v4, prefix(addr, len)), [source, false], "{addr}");
            assert_eq!(have(prefix(addr, len), v4), [destination, false], "{addr}");
        }
        for (addr, len, source, destination) in [
            ("::", 0, true, true),
            ("::", 128, true, true),
            ("::1", 128, true, true),
            ("ff02::1", 128, true, false),
        ] {
            assert_eq!(have(v6, prefix(addr, len)), [false, source], "{addr}");
            assert_eq!(have(prefix(addr, len), v6), [false, destination], "{addr}");
        }
    }

    #[test]
    fn ranges_answer_for_addresses_alone_and_for_nothing_else() {
        let selector = |start: u8, end: u8| {
            let range = AddrRange::new([10, 0, 0, start].into(), [10, 0, 0, end].into()).unwrap();
            TrafficSelector::addresses(range)
        };
        let ranges = |local: Vec<_>, remote: Vec<_>| {
            Ranges::new(&Selectors { local: local.into(), remote: remote.into() }, number_v4)
        };
        let of = |last: u8| u32::from_be_bytes([10, 0, 0, last]);
        let ports = TrafficSelector { start_port: 5, end_port: 9, ..selector(0, 255) };
        let udp = TrafficSelector { protocol: 17, ..selector(0, 255) };
        let some = ranges(vec![udp, selector(1, 2)], vec![ports, selector(7, 9)]);
        for (src, dst) in [(7, 1), (9, 2)] {
            assert!(some.contain(of(src), of(dst)));
        }
        for (src, dst) in [(6, 1), (10, 2), (7, 0), (9, 3), (1, 7)] {
            assert!(!some.contain(of(src), of(dst)));
        }
        for (local, remote) in [(selector(0, 255), ports), (udp, selector(0, 255))] {
            let none = ranges(vec![local], vec![remote]);
            assert!(!none.contain(of(7), of(7)) && !none.contain(0, 0) && !none.contain(1, 1));
        }
    }
}
