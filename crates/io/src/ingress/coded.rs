//! A filter as bytes, for the helper, which reads them as what anybody may have written.

use std::net::IpAddr;

use ironswan_wire::helper::MessageError;
use ironswan_wire::read::{Reader, Writer};
use ironswan_wire::selector::AddrRange;

use super::{Family, Filter, List, Row};

/// The filter as bytes.
pub(super) fn encode(filter: &Filter) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    filter.ports.iter().for_each(|port| w.u16(*port));
    count(&mut w, filter.own.len());
    for own in &filter.own {
        w.u8(u8::from(own.is_ipv6()));
        put(&mut w, *own);
    }
    for family in &filter.families {
        count(&mut w, family.intervals.len());
        for (range, list) in &family.intervals {
            put_range(&mut w, range);
            count(&mut w, *list);
        }
        count(&mut w, family.lists.len());
        for rows in family.lists.iter().flat_map(List::views) {
            count(&mut w, rows.len());
            rows.iter().for_each(|row| put_row(&mut w, row));
        }
    }
    out
}

/// Reads a filter.
///
/// # Errors
/// The field that is wrong.
pub(super) fn decode(bytes: &[u8]) -> Result<Filter, MessageError> {
    let mut r = Reader::new(bytes);
    let ports = [r.u16("port")?, r.u16("port")?];
    let mut filter = Filter { ports, ..Filter::default() };
    for _ in 0..r.u32("addresses")? {
        let ipv6 = number(&mut r, 1, "family")? == 1;
        filter.own.insert(address(&mut r, ipv6)?);
    }
    for (ipv6, family) in [false, true].into_iter().zip(&mut filter.families) {
        *family = read_family(&mut r, ipv6)?;
    }
    if r.any_left() { Err(MessageError::Trailing(r.left())) } else { Ok(filter) }
}

fn read_family(r: &mut Reader<'_>, ipv6: bool) -> Result<Family, MessageError> {
    let mut family = Family::default();
    for _ in 0..r.u32("intervals")? {
        let range = range(r, ipv6)?;
        // The program searches them by halves.
        if family.intervals.last().is_some_and(|(last, _)| last.end() >= range.start()) {
            return Err(MessageError::Value("interval"));
        }
        family.intervals.push((range, r.u32("list")? as usize));
    }
    for _ in 0..r.u32("lists")? {
        let [ports, protocol, addresses, fragments] =
            [rows(r, ipv6)?, rows(r, ipv6)?, rows(r, ipv6)?, rows(r, ipv6)?];
        family.lists.push(List { ports, protocol, addresses, fragments });
    }
    let known = family.intervals.iter().all(|(_, list)| *list < family.lists.len());
    if known { Ok(family) } else { Err(MessageError::Value("list")) }
}

fn rows(r: &mut Reader<'_>, ipv6: bool) -> Result<Vec<Row>, MessageError> {
    (0..r.u32("rows")?).map(|_| row(r, ipv6)).collect()
}

fn row(r: &mut Reader<'_>, ipv6: bool) -> Result<Row, MessageError> {
    Ok(Row {
        local: range(r, ipv6)?,
        protocol: match number(r, 1, "protocol")? {
            0 => None,
            _ => Some(r.u8("protocol")?),
        },
        shows: match number(r, 2, "shows")? {
            0 => None,
            n => Some(n == 2),
        },
        source: (r.u16("port")?, r.u16("port")?),
        destination: (r.u16("port")?, r.u16("port")?),
        drop: number(r, 1, "verdict")? == 1,
    })
}

fn put_row(w: &mut Writer<'_>, row: &Row) {
    put_range(w, &row.local);
    match row.protocol {
        None => w.u8(0),
        Some(protocol) => w.bytes(&[1, protocol]),
    }
    w.u8(row.shows.map_or(0, |shows| 1 + u8::from(shows)));
    let (a, b, c, d) = (row.source.0, row.source.1, row.destination.0, row.destination.1);
    [a, b, c, d].into_iter().for_each(|port| w.u16(port));
    w.u8(u8::from(row.drop));
}

/// A small number, `max` at most.
fn number(r: &mut Reader<'_>, max: u8, what: &'static str) -> Result<u8, MessageError> {
    r.u8(what)
        .map_err(MessageError::from)
        .and_then(|n| if n <= max { Ok(n) } else { Err(MessageError::Value(what)) })
}

fn range(r: &mut Reader<'_>, ipv6: bool) -> Result<AddrRange, MessageError> {
    let (start, end) = (address(r, ipv6)?, address(r, ipv6)?);
    AddrRange::new(start, end).ok_or(MessageError::Value("range"))
}

fn put_range(w: &mut Writer<'_>, range: &AddrRange) {
    put(w, range.start());
    put(w, range.end());
}

fn address(r: &mut Reader<'_>, ipv6: bool) -> Result<IpAddr, MessageError> {
    Ok(match ipv6 {
        true => IpAddr::from(r.array::<16>("address")?),
        false => IpAddr::from(r.array::<4>("address")?),
    })
}

fn put(w: &mut Writer<'_>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => w.bytes(&a.octets()),
        IpAddr::V6(a) => w.bytes(&a.octets()),
    }
}

/// A filter has far fewer of anything than 2^32.
fn count(w: &mut Writer<'_>, n: usize) {
    w.u32(u32::try_from(n).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Filter {
        let range = |a: &str, b: &str| AddrRange::new(a.parse().unwrap(), b.parse().unwrap()).unwrap();
        let row = Row {
            local: range("10.1.0.0", "10.1.0.255"),
            protocol: Some(6),
            shows: Some(true),
            source: (1, 2),
            destination: (3, 65_535),
            drop: true,
        };
        let list = List { ports: vec![row, Row::all(false)], fragments: vec![row], ..List::default() };
        let v4 = Family {
            intervals: vec![(range("10.2.0.0", "10.2.0.9"), 1), (range("10.3.0.0", "10.3.0.0"), 0)],
            lists: vec![List::default(), list],
        };
        let v6 = Family {
            intervals: vec![(range("2001:db8::", "2001:db8::ff"), 0)],
            lists: vec![List {
                addresses: vec![Row { shows: Some(false), ..Row::all(true) }],
                ..List::default()
            }],
        };
        let own = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()].into();
        Filter { families: [v4, v6], ports: [500, 4500], own }
    }

    #[test]
    fn a_filter_comes_back_as_it_was() {
        for filter in [Filter::default(), filter()] {
            assert_eq!(decode(&encode(&filter)).unwrap(), filter);
        }
    }

    #[test]
    fn no_part_of_a_filter_and_no_other_bytes_are_one() {
        let bytes = encode(&filter());
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        // Whatever one byte is changed to: an error or a filter, and never more than was sent.
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 3, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(filter) = decode(&changed) {
                    assert!(encode(&filter).len() <= bytes.len(), "{at} {value}");
                }
            }
        }
    }

    #[test]
    fn lists_that_are_not_there_and_intervals_out_of_order_are_refused() {
        let mut missing = filter();
        missing.families[0].intervals[0].1 = 2;
        assert_eq!(decode(&encode(&missing)), Err(MessageError::Value("list")));
        let mut twisted = filter();
        twisted.families[0].intervals.reverse();
        assert_eq!(decode(&encode(&twisted)), Err(MessageError::Value("interval")));
    }
}
