//! Lays the rows that the program asks out as bytes in its map, the memory that it reads.
//!
//! ```text
//! first:       the numbers of the views
//! per family:  starts   first address of each interval, ascending, in words of 32 bits;
//!                       filled up to a power of two
//!              lists    by interval: the number of its list, 0 for none
//!              own      starts and 0 or 1 in the same way: our addresses for which a row drops
//!              heads    by list: its first row for each view
//!              rows     local first and last address | source ports | destination ports |
//!                       protocol | shows | drop; filled up to a power of two
//! ```
//! All numbers are in the machine's byte order. The last row of every list covers every packet, so
//! no list has a length.

use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

use super::{Family, Row};

/// Bytes of the head of a list.
pub(super) const HEAD: i32 = 16;
/// Offsets of fields in a row, behind its two addresses: source ports and destination ports, then
/// `protocol` and `shows`, each a value with the bits of it that count, then whether the row drops.
pub(super) const SOURCE: i16 = 0;
pub(super) const DESTINATION: i16 = 4;
pub(super) const PROTOCOL: i16 = 8;
pub(super) const SHOWS: i16 = 16;
pub(super) const DROP: i16 = 24;
const FIELDS: usize = 32;
/// Values of "shows": whether the protocol is one that shows ports, or type and code.
pub(super) const SHOWS_PORTS: u32 = 1;
pub(super) const SHOWS_NONE: u32 = 2;

/// A table for binary search: disjoint intervals that cover an address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SearchTable {
    /// Number of intervals, a power of two.
    pub(super) count: usize,
    /// Offset of the first addresses of the rows, and of their values.
    pub(super) starts: usize,
    pub(super) values: usize,
}

/// Offsets of the tables of one address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FamilyTables {
    pub(super) ipv6: bool,
    pub(super) lists: SearchTable,
    pub(super) own: SearchTable,
    pub(super) heads: usize,
    /// Number of heads of lists; the first head belongs to no list.
    pub(super) head_count: usize,
    pub(super) rows: usize,
    pub(super) row_count: usize,
    /// Rows of the longest view of a list.
    pub(super) longest: usize,
}

impl FamilyTables {
    /// Bytes of an address.
    pub(super) fn address(&self) -> i32 {
        if self.ipv6 { 16 } else { 4 }
    }

    /// Bytes of a row.
    pub(super) fn row(&self) -> i32 {
        2 * self.address() + FIELDS as i32
    }
}

/// Appends the tables of one address family to `bytes`.
pub(super) fn place(bytes: &mut Vec<u8>, family: &Family, own: &[IpAddr], ipv6: bool) -> FamilyTables {
    let lists = search(bytes, family.intervals.iter().map(|(r, n)| (*r, *n as u32 + 1)), ipv6);
    let own = search(bytes, own.iter().map(|ip| (AddrRange::host(*ip), 1)), ipv6);
    let (mut heads, mut rows) = (vec![[0u32; 4]], Vec::new());
    let (mut row_count, mut longest) = (0, 1);
    for list in &family.lists {
        let mut head = [0u32; 4];
        for (view, first) in list.views().into_iter().zip(&mut head) {
            *first = row_count as u32;
            for row in view {
                push(&mut rows, row, ipv6);
            }
            // A packet that no row covers passes.
            push(&mut rows, &Row::all(ipv6), ipv6);
            row_count += view.len() + 1;
            longest = longest.max(view.len() + 1);
        }
        heads.push(head);
    }
    // Nothing leads to the rest; with it, no number of a row has to be compared.
    let filled = row_count.next_power_of_two().max(1);
    for _ in row_count..filled {
        push(&mut rows, &Row::all(ipv6), ipv6);
    }
    row_count = filled;
    align(bytes);
    let at = bytes.len();
    heads.iter().flatten().for_each(|n| bytes.extend(n.to_ne_bytes()));
    let rows_at = bytes.len();
    bytes.extend(rows);
    FamilyTables { ipv6, lists, own, heads: at, head_count: heads.len(), rows: rows_at, row_count, longest }
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// An address as words of 32 bits, the first one first.
fn words(ip: IpAddr) -> Vec<u32> {
    match ip {
        IpAddr::V4(ip) => vec![ip.into()],
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            [96, 64, 32, 0].into_iter().map(|shift| (bits >> shift) as u32).collect()
        }
    }
}

fn push(rows: &mut Vec<u8>, row: &Row, ipv6: bool) {
    let local = if row.local.is_ipv6() == ipv6 { row.local } else { AddrRange::any(ipv6) };
    for ip in [local.start(), local.end()] {
        words(ip).into_iter().for_each(|w| rows.extend(w.to_ne_bytes()));
    }
    for port in [row.source.0, row.source.1, row.destination.0, row.destination.1] {
        rows.extend(port.to_ne_bytes());
    }
    let counts = |wanted: bool| if wanted { u32::MAX } else { 0 };
    let shows = row.shows.map_or(0, |yes| if yes { SHOWS_PORTS } else { SHOWS_NONE });
    let protocol = row.protocol.map_or(0, u32::from);
    let of =
        [protocol, counts(row.protocol.is_some()), shows, counts(row.shows.is_some()), row.drop.into(), 0];
    of.into_iter().for_each(|number| rows.extend(number.to_ne_bytes()));
}

/// Writes disjoint ascending ranges with their values; addresses between them have the value 0.
fn search(bytes: &mut Vec<u8>, ranges: impl Iterator<Item = (AddrRange, u32)>, ipv6: bool) -> SearchTable {
    let any = AddrRange::any(ipv6);
    let mut starts: Vec<(IpAddr, u32)> = vec![(any.start(), 0)];
    for (range, value) in ranges.filter(|(r, _)| r.is_ipv6() == ipv6) {
        if starts.last().is_some_and(|(start, _)| *start == range.start()) {
            starts.pop();
        }
        starts.push((range.start(), value));
        if let Some(next) = after(range.end()) {
            starts.push((next, 0));
        }
    }
    let count = starts.len().next_power_of_two();
    // As if the last interval were cut at the last address of all, again and again.
    let last = starts.last().map_or(0, |(_, value)| *value);
    starts.resize(count, (any.end(), last));
    align(bytes);
    let at = bytes.len();
    starts.iter().flat_map(|(ip, _)| words(*ip)).for_each(|w| bytes.extend(w.to_ne_bytes()));
    let values = bytes.len();
    starts.iter().for_each(|(_, value)| bytes.extend(value.to_ne_bytes()));
    SearchTable { count, starts: at, values }
}

fn after(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|n| IpAddr::V4(n.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|n| IpAddr::V6(n.into())),
    }
}
