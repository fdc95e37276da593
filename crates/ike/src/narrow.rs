//! Traffic selectors: what a configuration means on given addresses, and narrowing (RFC 7296
//! section 2.9).

use std::net::IpAddr;

use ironswan_wire::selector::{AddrRange, TrafficSelector};

use ironswan_keying::TsSpec;
pub(crate) use ironswan_keying::diagnosis::list_selectors as list;
use ironswan_keying::limits::{PAIRS_PER_CHILD, SELECTORS_PER_SIDE};

/// The selectors that `specs` mean when that end's outer address is `outer`.
pub(crate) fn resolve(specs: &[TsSpec], outer: IpAddr) -> Vec<TrafficSelector> {
    let mut out = Vec::with_capacity(specs.len());
    for spec in specs {
        let ts = match *spec {
            TsSpec::Fixed(ts) => ts,
            TsSpec::Dynamic { protocol, start_port, end_port } => {
                TrafficSelector { range: AddrRange::host(outer), protocol, start_port, end_port }
            }
        };
        if !out.contains(&ts) {
            out.push(ts);
        }
    }
    out
}

/// The part of `proposed` that `configured` allows: every intersection, in the proposer's order,
/// without those inside others. Empty when nothing is.
pub(crate) fn narrow(configured: &[TrafficSelector], proposed: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut out: Vec<TrafficSelector> = Vec::new();
    for p in proposed {
        for c in configured {
            let Some(ts) = p.intersect(c) else { continue };
            if out.iter().any(|have| ts.is_subset_of(have)) {
                continue;
            }
            out.retain(|have| !have.is_subset_of(&ts));
            if out.len() < SELECTORS_PER_SIDE {
                out.push(ts);
            }
        }
    }
    // It stays for as long as the child.
    out.shrink_to_fit();
    out
}

/// True when every selector of `answer` lies inside one of `asked`, and there is at least one: a
/// responder may only narrow.
pub(crate) fn is_narrowed(answer: &[TrafficSelector], asked: &[TrafficSelector]) -> bool {
    !answer.is_empty() && answer.iter().all(|a| asked.iter().any(|q| a.is_subset_of(q)))
}

/// How specific a selector is by the configuration: bits that the most specific configured one
/// around it leaves open. Where none is around it (the peer has moved since), the least specific
/// counts.
pub(crate) fn open_bits(configured: &[TrafficSelector], ts: &TrafficSelector) -> u32 {
    let bits = |c: &TrafficSelector| c.open_bits();
    let around = configured.iter().filter(|c| ts.is_subset_of(c)).map(bits).min();
    let family = configured.iter().filter(|c| c.range.is_ipv6() == ts.range.is_ipv6());
    around.or_else(|| family.map(bits).max()).unwrap_or(0).max(ts.open_bits())
}

/// How many pairs a child may have for which so many selectors are configured on each side.
pub(crate) fn max_pairs(local: usize, remote: usize) -> usize {
    local.saturating_mul(remote).max(PAIRS_PER_CHILD)
}

/// Takes the last selectors of the longer list away until there are no more pairs than `max`: a
/// responder may narrow, and the initiator's first choices stay.
pub(crate) fn limit_pairs(local: &mut Vec<TrafficSelector>, remote: &mut Vec<TrafficSelector>, max: usize) {
    while local.len().saturating_mul(remote.len()) > max {
        let (longer, other) = if local.len() > remote.len() {
            (&mut *local, remote.len())
        } else {
            (&mut *remote, local.len())
        };
        let fitting = (max / other).max(1);
        longer.truncate(fitting.max(longer.len() / 2).min(longer.len() - 1));
    }
}

/// True when every packet that `all` means is meant by `by` as well. A selector of `all` may be
/// covered by several that are pieces of its address range.
pub(crate) fn covers(by: &[TrafficSelector], all: &[TrafficSelector]) -> bool {
    all.iter().all(|whole| {
        let end = whole.range.end();
        // Selectors that are as wide in everything but addresses, so that only these are left to
        // put together.
        let as_wide = |piece: &&TrafficSelector| {
            let there = TrafficSelector { range: piece.range, ..*whole };
            there.is_subset_of(piece)
        };
        let mut pieces: Vec<&AddrRange> = by.iter().filter(as_wide).map(|piece| &piece.range).collect();
        pieces.sort_unstable_by_key(|r| r.start());
        // The first address that is not covered yet.
        let mut next = Some(whole.range.start());
        for piece in pieces {
            match next {
                Some(addr) if piece.contains(addr) && piece.end() >= end => return true,
                Some(addr) if piece.contains(addr) => next = successor(piece.end()),
                _ => {}
            }
        }
        false
    })
}

/// The next address.
fn successor(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(a) => u32::from(a).checked_add(1).map(|n| IpAddr::from(n.to_be_bytes())),
        IpAddr::V6(a) => u128::from(a).checked_add(1).map(|n| IpAddr::from(n.to_be_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(addr: &str, len: u8) -> TrafficSelector {
        TrafficSelector::addresses(AddrRange::prefix(addr.parse().unwrap(), len).unwrap())
    }

    #[test]
    fn dynamic_is_the_outer_address() {
        let dynamic = TsSpec::Dynamic { protocol: 17, start_port: 53, end_port: 53 };
        let got = resolve(&[dynamic.clone(), dynamic], "192.0.2.1".parse().unwrap());
        assert_eq!(list(&got), "192.0.2.1/32[udp/53]");
    }

    #[test]
    fn a_proposal_is_cut_to_what_is_configured() {
        let got = narrow(&[net("10.1.0.0", 16), net("10.2.0.0", 16)], &[net("10.0.0.0", 8)]);
        assert_eq!(list(&got), "10.1.0.0/16 10.2.0.0/16");
        assert!(narrow(&[net("10.1.0.0", 16)], &[net("192.168.0.0", 16)]).is_empty());
    }

    #[test]
    fn the_triggering_packet_does_not_hide_the_wider_selector() {
        let got = narrow(&[net("10.1.0.0", 16)], &[net("10.1.0.7", 32), net("10.1.0.0", 16)]);
        assert_eq!(list(&got), "10.1.0.0/16");
    }

    #[test]
    fn an_answer_may_only_shrink() {
        assert!(is_narrowed(&[net("10.1.2.0", 24)], &[net("10.1.0.0", 16)]));
        assert!(!is_narrowed(&[net("0.0.0.0", 0)], &[net("10.1.0.0", 16)]));
        assert!(!is_narrowed(&[], &[net("10.1.0.0", 16)]));
    }

    #[test]
    fn pieces_cover_the_whole_and_less_does_not() {
        let (net8, a, b) = (net("10.0.0.0", 8), net("10.0.0.0", 9), net("10.128.0.0", 9));
        assert!(covers(&[net8], &[net8]) && covers(&[net8], &[a, b]) && covers(&[b, a], &[net8]));
        assert!(covers(&[net("0.0.0.0", 0)], &[net8, net("192.0.2.0", 24)]));
        assert!(!covers(&[a], &[net8]) && !covers(&[], &[net8]) && covers(&[], &[]));
        assert!(!covers(&[net("10.0.0.0", 9), net("10.129.0.0", 16)], &[net8]));
        let all = net("255.255.255.0", 24);
        assert!(covers(&[net("255.255.255.0", 25), net("255.255.255.128", 25)], &[all]));
        assert!(!covers(&[net("255.255.255.0", 25)], &[all]));
        assert!(!covers(&[net("::", 0)], &[net8]));
        // Fewer protocols or ports are less, however many addresses there are.
        let tcp = TrafficSelector { protocol: 6, ..net("0.0.0.0", 0) };
        let low = TrafficSelector { end_port: 1023, ..tcp };
        assert!(!covers(&[tcp], &[net8]) && !covers(&[low], &[tcp]));
        assert!(covers(&[net("0.0.0.0", 0)], &[tcp, low]) && covers(&[tcp], &[low]));
    }

    #[test]
    fn pairs_are_bounded_and_the_first_choices_stay() {
        let nets = |n: u8| -> Vec<_> { (0..n).map(|i| net(&format!("10.{i}.0.0"), 24)).collect() };
        for (l, r) in [(255, 255), (255, 1), (1, 255), (255, 5), (32, 32), (33, 32)] {
            let (mut local, mut remote) = (nets(l), nets(r));
            limit_pairs(&mut local, &mut remote, max_pairs(1, 1));
            let pairs = local.len() * remote.len();
            let whole = usize::from(l) * usize::from(r);
            assert!(
                pairs <= PAIRS_PER_CHILD && pairs >= whole.min(PAIRS_PER_CHILD / 2),
                "{l} x {r}: {pairs}"
            );
            assert_eq!((local[0], remote[0]), (nets(1)[0], nets(1)[0]));
        }
        // The configured selectors themselves are never cut.
        let (mut local, mut remote) = (nets(200), nets(200));
        limit_pairs(&mut local, &mut remote, max_pairs(200, 200));
        assert_eq!((local.len(), remote.len()), (200, 200));
    }

    #[test]
    fn an_answer_is_bounded() {
        let many: Vec<_> = (0..=255)
            .flat_map(|a| [net(&format!("10.{a}.0.0"), 24), net(&format!("10.{a}.2.0"), 24)])
            .collect();
        assert_eq!(narrow(&many, &many).len(), SELECTORS_PER_SIDE);
    }
}
