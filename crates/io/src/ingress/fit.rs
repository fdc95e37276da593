//! Makes a filter smaller that is larger than the program may be. The program then drops every
//! packet for which it has no room to ask.
//!
//! ```text
//! a list is too long:   its first rows stay as they are;
//!                       of the others, rows that drop remain, for every protocol and port:
//!                       neighbouring destinations are joined until the rows are few enough
//! all lists together:   the longest ones are shortened so, to 16 rows if needed
//! still too many:       neighbouring sources become one range, with the rows of all of them;
//!                       networks with most ranges first: /16 or /48, then larger ones
//! ```
//! A joined range includes the addresses between its parts, so the program drops more than the
//! policies ask. One peer's many policies take nothing from another peer, and let no packet
//! through. The nft table stays exact.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

use super::{Family, Filter, List, Row};

/// Limits the rows of all lists together: 8 MB. Ten thousand lists of one policy each have some
/// 80,000.
const MAX_TOTAL_ROWS: usize = 1 << 17;
/// Limits the intervals of an address family: 5 MB.
const MAX_INTERVALS: usize = 1 << 17;
/// Rows that each list keeps at least, when lists are shortened to make room for others.
const MIN_ROWS: usize = 16;
/// Prefix lengths of the networks whose sources are joined, tried in this order: IPv4, IPv6.
const NETWORKS: [[u32; 2]; 3] = [[16, 48], [8, 32], [0, 0]];

/// A filter that the program has room for.
#[derive(Debug)]
pub(super) struct FittedFilter<'a> {
    pub(super) filter: Cow<'a, Filter>,
    /// One sentence for the log: which policies the program applies more strictly than written, for
    /// lack of room.
    pub(super) stricter: Option<String>,
}

/// Makes a filter as small as the program may be. `longest`: rows that a list may have.
pub(super) fn fit(filter: &Filter, longest: usize) -> FittedFilter<'_> {
    let mut rows = longest;
    while total_rows(filter, rows) > MAX_TOTAL_ROWS && rows > MIN_ROWS {
        rows = MIN_ROWS.max(rows / 2);
    }
    let too_long = |list: &List| list.views().iter().any(|v| v.len() > rows);
    let shortened: Vec<AddrRange> = filter
        .families
        .iter()
        .flat_map(|f| f.intervals.iter().filter(|(_, n)| f.lists.get(*n).is_some_and(too_long)))
        .map(|(range, _)| *range)
        .collect();
    let mut filter = Cow::Borrowed(filter);
    if !shortened.is_empty() || !has_room(&filter, rows) {
        let families = filter.families.each_ref().map(|f| Family {
            intervals: f.intervals.clone(),
            lists: f.lists.iter().map(|l| shorten(l, rows)).collect(),
        });
        filter = Cow::Owned(Filter { families, ports: filter.ports, own: filter.own.clone() });
    }
    let mut folded: Vec<AddrRange> = Vec::new();
    for bits in NETWORKS {
        if !has_room(&filter, rows) {
            folded.extend(fold(filter.to_mut(), bits, rows));
        }
    }
    let shortened = range_text(&shortened).map(|from| {
        format!(
            "the program at the ingress has no room for all policies for what comes from {from}: what policies behind the first \
             {} protect is dropped there by its addresses alone, whatever its ports, and so is what a `pass` behind them lets through",
            rows_kept(rows),
        )
    });
    let folded = range_text(&folded).map(|networks| {
        format!(
            "the program at the ingress has no room for so many different remote addresses, and takes {networks} for one network \
             each: what comes from any address there is dropped where a policy for one of them protects the destination, whatever its \
             protocol and ports, and so is what a `pass` lets through"
        )
    });
    let said: Vec<String> = shortened.into_iter().chain(folded).collect();
    let stricter = (!said.is_empty()).then(|| said.join("; "));
    FittedFilter { filter, stricter }
}

/// Text with the first of these ranges, and how many more there are; `None` when there are none.
fn range_text(ranges: &[AddrRange]) -> Option<String> {
    let first = ranges.first()?;
    let more = if ranges.len() > 1 { format!(" and {} more", ranges.len() - 1) } else { String::new() };
    Some(format!("{}-{}{more}", first.start(), first.end()))
}

fn has_room(filter: &Filter, rows: usize) -> bool {
    total_rows(filter, rows) <= MAX_TOTAL_ROWS
        && filter.families.iter().all(|f| f.intervals.len() <= MAX_INTERVALS)
}

/// Joins the intervals of a network (`bits`: its prefix length) into one interval, whose list drops
/// everything that one of their lists drops. Begins with the networks that have most intervals, and
/// ends when there is room. Returns the joined intervals.
fn fold(filter: &mut Filter, bits: [u32; 2], rows: usize) -> Vec<AddrRange> {
    let mut networks: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
    for (n, (family, bits)) in filter.families.iter().zip(bits).enumerate() {
        let same = |a: &(AddrRange, usize), b: &(AddrRange, usize)| {
            network_bits(a.0, bits) == network_bits(b.0, bits)
        };
        let mut first = 0;
        for group in family.intervals.chunk_by(same) {
            networks.push((n, first..first + group.len()));
            first += group.len();
        }
    }
    networks.retain(|(_, group)| group.len() > 1);
    networks.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
    // Sizes that the memory would have without these rows.
    let mut size = total_rows(filter, rows);
    let mut intervals = filter.families.each_ref().map(|f| f.intervals.len());
    let mut used = filter.families.each_ref().map(|f| {
        let mut used = vec![0usize; f.lists.len()];
        f.intervals.iter().filter_map(|(_, n)| used.get_mut(*n).map(|u| *u += 1)).for_each(drop);
        used
    });
    let mut folded: [Vec<(std::ops::Range<usize>, AddrRange, List)>; 2] = Default::default();
    for (n, group) in networks {
        if size <= MAX_TOTAL_ROWS && intervals.iter().all(|n| *n <= MAX_INTERVALS) {
            break;
        }
        let (Some(family), Some(used)) = (filter.families.get(n), used.get_mut(n)) else { break };
        let Some(members) = family.intervals.get(group.clone()) else { break };
        let (Some((first, _)), Some((last, _))) = (members.first(), members.last()) else { break };
        let lists: BTreeSet<usize> = members.iter().map(|(_, n)| *n).collect();
        let theirs = lists.iter().filter_map(|n| family.lists.get(*n));
        let dropped = theirs.flat_map(List::views).flatten().filter(|r| r.drop).map(|r| r.local);
        let closed: Vec<Row> = join(dropped, rows).into_iter().map(drop_all_row).collect();
        for (_, list) in members {
            if let (Some(uses), Some(list)) = (used.get_mut(*list), family.lists.get(*list)) {
                *uses -= 1;
                if *uses == 0 {
                    size -= size_of(list, rows);
                }
            }
        }
        let list = List {
            ports: closed.clone(),
            protocol: closed.clone(),
            addresses: closed.clone(),
            fragments: closed,
        };
        size += size_of(&list, rows);
        if let (Some(count), Some(folded)) = (intervals.get_mut(n), folded.get_mut(n)) {
            *count -= group.len() - 1;
            folded.push((group, hull(first, last), list));
        }
    }
    let mut sources = Vec::new();
    for (family, mut folded) in filter.families.iter_mut().zip(folded) {
        folded.sort_by_key(|(group, ..)| group.start);
        sources.extend(folded.iter().map(|(_, range, _)| *range));
        let old = std::mem::take(family);
        // New numbers of the lists that an interval still uses, by old number.
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut folded = folded.into_iter().peekable();
        let mut at = 0;
        while let Some((range, list)) = old.intervals.get(at) {
            if let Some((group, hull, list)) = folded.next_if(|(group, ..)| group.start == at) {
                family.intervals.push((hull, family.lists.len()));
                family.lists.push(list);
                at = group.end;
                continue;
            }
            let next = family.lists.len();
            let number = *numbers.entry(*list).or_insert(next);
            if number == next {
                family.lists.extend(old.lists.get(*list).cloned());
            }
            family.intervals.push((*range, number));
            at += 1;
        }
    }
    sources
}

/// The first `bits` bits of the first address of a range.
fn network_bits(range: AddrRange, bits: u32) -> u128 {
    let (address, len) = match range.start() {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    address.checked_shr(len - bits).unwrap_or(0)
}

/// Checks that a filter fits as it is.
///
/// # Errors
/// A sentence that says what is too much.
pub(super) fn check(filter: &Filter, longest: usize) -> Result<(), String> {
    let lists = filter.families.iter().flat_map(|f| &f.lists);
    let most = lists.flat_map(List::views).map(<[Row]>::len).max().unwrap_or(0);
    if most > longest {
        return Err(format!("{most} policies cover one address, and the program asks at most {longest}"));
    }
    if !has_room(filter, longest) {
        return Err("the program has no room for so many policies".to_owned());
    }
    Ok(())
}

/// The addresses of this machine (`own`) for which the filter drops packets. The program needs to
/// know no others.
pub(super) fn affected_addresses<'a>(
    filter: &Filter,
    own: impl IntoIterator<Item = &'a IpAddr>,
) -> impl Iterator<Item = IpAddr> {
    let rows = filter.families.iter().flat_map(|f| &f.lists).flat_map(List::views).flatten();
    let dropped = join(rows.filter(|r| r.drop).map(|r| r.local), usize::MAX);
    own.into_iter().copied().filter(move |ip| {
        let at = dropped.partition_point(|r| r.start() <= *ip);
        at.checked_sub(1).and_then(|at| dropped.get(at)).is_some_and(|r| r.contains(*ip))
    })
}

/// Number of rows of all lists, when each view is cut to `rows`, with the closing row of each.
fn total_rows(filter: &Filter, rows: usize) -> usize {
    filter.families.iter().flat_map(|f| &f.lists).map(|list| size_of(list, rows)).sum()
}

fn size_of(list: &List, rows: usize) -> usize {
    list.views().iter().map(|view| view.len().min(rows) + 1).sum()
}

/// A row that drops every packet to these addresses.
fn drop_all_row(local: AddrRange) -> Row {
    Row { local, drop: true, ..Row::all(local.is_ipv6()) }
}

/// Number of rows that the program asks unchanged when a list is too long; the rest is replaced by
/// stricter rows.
fn rows_kept(rows: usize) -> usize {
    rows / 2
}

fn shorten(list: &List, rows: usize) -> List {
    let view = |view: &[Row]| {
        if view.len() <= rows {
            return view.to_vec();
        }
        let (first, rest) = view.split_at(rows_kept(rows));
        let closed = join(rest.iter().filter(|r| r.drop).map(|r| r.local), rows - first.len());
        first.iter().copied().chain(closed.into_iter().map(drop_all_row)).collect()
    };
    let [ports, protocol, addresses, fragments] = list.views().map(view);
    List { ports, protocol, addresses, fragments }
}

/// The union of ranges, ascending, as at most `most` ranges: those that are nearest to each other
/// are joined.
fn join(ranges: impl Iterator<Item = AddrRange>, most: usize) -> Vec<AddrRange> {
    let mut sorted: Vec<AddrRange> = ranges.collect();
    sorted.sort_unstable_by_key(|r| (r.start(), r.end()));
    let mut out: Vec<AddrRange> = Vec::new();
    for range in sorted {
        match out.last_mut() {
            Some(last) if gap(last, &range) == Some(0) => *last = hull(last, &range),
            _ => out.push(range),
        }
    }
    let Some(excess) = out.len().checked_sub(most).filter(|n| *n > 0) else { return out };
    let mut gaps: Vec<(u128, usize)> =
        (1..out.len()).filter_map(|n| Some((gap(out.get(n - 1)?, out.get(n)?)?, n))).collect();
    gaps.sort_unstable();
    let joined: BTreeSet<usize> = gaps.into_iter().take(excess).map(|(_, n)| n).collect();
    let mut few: Vec<AddrRange> = Vec::new();
    for (n, range) in out.into_iter().enumerate() {
        match few.last_mut() {
            Some(last) if joined.contains(&n) => *last = hull(last, &range),
            _ => few.push(range),
        }
    }
    few
}

/// Number of addresses between two ranges; `a` begins first. `None` when they are of two families.
fn gap(a: &AddrRange, b: &AddrRange) -> Option<u128> {
    let between = |end: u128, start: u128| start.saturating_sub(end).saturating_sub(1);
    match (a.end(), b.start()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some(between(u32::from(a).into(), u32::from(b).into())),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some(between(a.into(), b.into())),
        _ => None,
    }
}

/// The smallest range that contains both; `a` begins first.
fn hull(a: &AddrRange, b: &AddrRange) -> AddrRange {
    AddrRange::new(a.start(), a.end().max(b.end())).unwrap_or(*a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn range(text: &str) -> AddrRange {
        let (a, b) = text.split_once('-').unwrap();
        AddrRange::new(ip(a), ip(b)).unwrap()
    }

    fn drop(local: AddrRange, port: u16) -> Row {
        Row { local, destination: (port, port), drop: true, ..Row::all(local.is_ipv6()) }
    }

    fn filter(views: Vec<Vec<Row>>) -> Filter {
        let of = |ports| List { ports, ..List::default() };
        let from = |n: usize| AddrRange::host(IpAddr::V4((0x0a02_0000 + n as u32).into()));
        let intervals = (0..views.len()).map(|n| (from(n), n)).collect();
        let v4 = Family { intervals, lists: views.into_iter().map(of).collect() };
        Filter { families: [v4, Family::default()], ..Filter::default() }
    }

    #[test]
    fn ranges_are_joined_where_least_is_between_them() {
        let all = [
            "10.1.0.0-10.1.0.9",
            "10.0.0.0-10.0.0.9",
            "10.0.0.10-10.0.0.20",
            "10.0.0.5-10.0.0.7",
            "10.0.0.30-10.0.0.30",
        ];
        let join = |most| join(all.into_iter().map(range), most);
        assert_eq!(join(9), ["10.0.0.0-10.0.0.20", "10.0.0.30-10.0.0.30", "10.1.0.0-10.1.0.9"].map(range));
        assert_eq!(join(2), ["10.0.0.0-10.0.0.30", "10.1.0.0-10.1.0.9"].map(range));
        assert_eq!(join(1), ["10.0.0.0-10.1.0.9"].map(range));
        let whole = [range("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), range("::1-::2")];
        assert_eq!(super::join(whole.into_iter(), 1), [whole[0]]);
    }

    #[test]
    fn a_list_that_is_too_long_closes_and_the_others_stay_as_they_are() {
        let net = range("10.1.0.0-10.1.0.255");
        let pass = Row { drop: false, ..drop(net, 53) };
        let long: Vec<Row> = std::iter::once(pass).chain((0..200).map(|n| drop(net, n))).collect();
        let f = filter(vec![long.clone(), vec![drop(net, 7)]]);
        assert!(check(&f, 127).unwrap_err().contains("201 policies cover one address"));
        let fitted = fit(&f, 127);
        let [cut, other] = &fitted.filter.families[0].lists[..] else { panic!("{fitted:?}") };
        assert_eq!(cut.ports[..63], long[..63], "what comes first is asked as it was");
        assert_eq!(cut.ports[63..], [Row { local: net, drop: true, ..Row::all(false) }]);
        assert_eq!(*other, f.families[0].lists[1]);
        check(&fitted.filter, 127).unwrap();
        let said = fitted.stricter.unwrap();
        assert!(said.contains("from 10.2.0.0-10.2.0.0:"), "{said}");
        assert!(fit(&f, 201).stricter.is_none());
    }

    #[test]
    fn the_longest_lists_make_room_for_all() {
        let net = range("10.1.0.0-10.1.0.255");
        let row = |n: u16| drop(net, n);
        let mut views: Vec<Vec<Row>> = (0..200).map(|_| (0..1000).map(row).collect()).collect();
        views.push((0..3).map(row).collect());
        let f = filter(views);
        assert!(check(&f, 1023).is_err());
        let fitted = fit(&f, 1023);
        check(&fitted.filter, 1023).unwrap();
        let lists = &fitted.filter.families[0].lists;
        assert_eq!(lists[200], f.families[0].lists[200]);
        // 511 at most: 255 as they were, and the destinations of the others.
        let last = Row { local: net, drop: true, ..Row::all(false) };
        assert!(lists[..200].iter().all(|l| l.ports.len() == 256 && l.ports[255] == last));
        assert!(fitted.stricter.unwrap().contains("and 199 more"));
    }

    #[test]
    fn more_lists_than_there_is_room_for_close_the_networks_that_have_most_of_them() {
        let nets = ["10.1.0.0-10.1.0.255", "10.3.0.0-10.3.0.255"].map(range);
        let mut f = filter((0..40_000).map(|n| vec![drop(nets[n % 2], n as u16)]).collect());
        let others =
            [range("10.1.255.0-10.1.255.9"), range("192.0.2.0-192.0.2.255"), range("192.0.3.0-192.0.3.255")];
        let v4 = &mut f.families[0];
        for other in others {
            v4.intervals.push((other, v4.lists.len()));
            v4.lists.push(List { ports: vec![drop(nets[0], 7)], ..List::default() });
        }
        v4.intervals.sort_unstable();
        let fitted = fit(&f, 127);
        check(&fitted.filter, 127).unwrap();
        let now = &fitted.filter.families[0];
        assert_eq!(
            now.intervals.iter().map(|(r, _)| *r).collect::<Vec<_>>(),
            [others[0], range("10.2.0.0-10.2.156.63"), others[1], others[2]]
        );
        let list = |n: usize| &now.lists[now.intervals[n].1];
        assert_eq!(list(1).ports, nets.map(drop_all_row));
        assert_eq!(list(1).fragments, list(1).ports);
        assert!(
            [0, 2, 3].iter().all(|n| list(*n).ports == [drop(nets[0], 7)]),
            "of others nothing has changed"
        );
        let said = fitted.stricter.unwrap();
        assert!(said.contains("takes 10.2.0.0-10.2.156.63 for one network"), "{said}");
        assert!(!said.contains("behind the first"), "{said}");
    }

    #[test]
    fn scattered_all_over_they_close_all_the_same() {
        let net = range("10.1.0.0-10.1.0.255");
        let mut f = filter((0..70_000).map(|n| vec![drop(net, n as u16)]).collect());
        for (n, (range, _)) in f.families[0].intervals.iter_mut().enumerate() {
            *range = AddrRange::host(IpAddr::V4(((n as u32) << 15).into()));
        }
        let fitted = fit(&f, 127);
        check(&fitted.filter, 127).unwrap();
        let now = &fitted.filter.families[0];
        assert!(now.lists.len() < MAX_TOTAL_ROWS / 4);
        for n in [0u32, 1, 35_000, 69_999] {
            let from = IpAddr::V4((n << 15).into());
            let (_, list) = now.intervals.iter().find(|(r, _)| r.contains(from)).unwrap();
            assert!(now.lists[*list].ports.iter().any(|r| r.drop && inside(net, r.local)));
        }
    }

    fn inside(inner: AddrRange, outer: AddrRange) -> bool {
        outer.contains(inner.start()) && outer.contains(inner.end())
    }

    #[test]
    fn only_addresses_for_which_something_is_dropped_matter() {
        let nets = ["10.1.0.0-10.1.0.255", "10.3.0.0-10.3.0.255"].map(range);
        let rows = vec![drop(nets[0], 1), Row { drop: false, ..drop(nets[1], 2) }];
        let own = ["10.1.0.1", "10.1.0.255", "10.1.1.0", "10.3.0.1", "fd00::1"].map(ip);
        let of: Vec<IpAddr> = affected_addresses(&filter(vec![rows]), &own).collect();
        assert_eq!(of, own[..2]);
    }
}
