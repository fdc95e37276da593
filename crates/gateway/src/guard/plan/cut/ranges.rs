//! Arithmetic of address ranges of one family.

use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

/// Addresses that stay on the link. A policy that merely covers them does not protect them; one
/// that lies wholly inside does.
pub(in super::super) fn link_scope(ipv6: bool) -> Vec<AddrRange> {
    let of = |a: IpAddr, len| AddrRange::prefix(a, len);
    let found = if ipv6 {
        vec![of([0xfe80, 0, 0, 0, 0, 0, 0, 0].into(), 10), of([0xff00, 0, 0, 0, 0, 0, 0, 0].into(), 8)]
    } else {
        vec![
            of([169, 254, 0, 0].into(), 16),
            of([224, 0, 0, 0].into(), 4),
            of([255, 255, 255, 255].into(), 32),
        ]
    };
    found.into_iter().flatten().collect()
}

pub(in super::super) fn inside(inner: &AddrRange, outer: &AddrRange) -> bool {
    outer.contains(inner.start()) && outer.contains(inner.end())
}

pub(in super::super) fn strictly_inside(inner: &AddrRange, outer: &AddrRange) -> bool {
    inside(inner, outer) && inner != outer
}

/// Ranges of one family, joined where they overlap, in order.
pub(in super::super) fn joined(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    let mut out: Vec<AddrRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.contains(range.start()) => {
                *last = AddrRange::new(last.start(), last.end().max(range.end())).unwrap_or(*last);
            }
            _ => out.push(range),
        }
    }
    out
}

/// The address as a number.
pub(super) fn bits(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

/// The address with this number.
pub(super) fn address(v: u128, ipv6: bool) -> IpAddr {
    // Only values that came from an address of this family, or lie between two of them, get here.
    if ipv6 { IpAddr::V6(v.into()) } else { IpAddr::V4((v as u32).into()) }
}

/// The addresses of a family between two ranges; `None` for a range: from its first address, to its
/// last.
pub(in super::super) fn between(
    left: Option<&AddrRange>,
    right: Option<&AddrRange>,
    ipv6: bool,
) -> Option<AddrRange> {
    let any = AddrRange::any(ipv6);
    let first = left.map_or(Some(bits(any.start())), |l| bits(l.end()).checked_add(1))?;
    let last = right.map_or(Some(bits(any.end())), |r| bits(r.start()).checked_sub(1))?;
    // Behind the last address of IPv4 begins no other.
    if first > last {
        return None;
    }
    AddrRange::new(address(first, ipv6), address(last, ipv6))
}
