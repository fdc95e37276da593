//! Tests of reassembly: any cut in any order gives the packet back, and everything else gives it up
//! with the books in balance.

use ironswan_wire::ip;
use proptest::prelude::*;

use super::*;
use crate::counters::Totals;

const SECOND: Duration = Duration::from_secs(1);

/// A UDP packet with a header of `extra` more bytes than the least: options, or a hop-by-hop
/// header.
fn packet(ipv6: bool, extra: bool, id: u16, len: usize) -> Vec<u8> {
    let mut p = Vec::new();
    let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256 + usize::from(id)) as u8).collect();
    if ipv6 {
        p.extend_from_slice(&[0x60, 0x20, 0, 9, 0, 0, if extra { 0 } else { 17 }, 64]);
        p.extend_from_slice(&[0xa; 16]);
        p.extend_from_slice(&[0xb; 16]);
        if extra {
            p.extend_from_slice(&[17, 0, 5, 2, 0, 0, 1, 0]);
        }
        let payload = (p.len() - 40 + 8 + len) as u16;
        p[4..6].copy_from_slice(&payload.to_be_bytes());
    } else {
        let head = if extra { 24 } else { 20 };
        p.extend_from_slice(&[0x40 | (head / 4) as u8, 2]);
        p.extend_from_slice(&((head + 8 + len) as u16).to_be_bytes());
        p.extend_from_slice(&id.to_be_bytes());
        p.extend_from_slice(&[0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        if extra {
            p.extend_from_slice(&[148, 4, 0, 0]);
        }
        v4::set_checksum(&mut p);
    }
    p.extend_from_slice(&[0x11, 0x11, 0x22, 0x22]);
    p.extend_from_slice(&((8 + len) as u16).to_be_bytes());
    p.extend_from_slice(&[0, 0]);
    p.extend_from_slice(&data);
    p
}

fn head_len(packet: &[u8]) -> usize {
    ip::parse(packet).unwrap().upper
}

/// Bytes `from..to` of what follows the header of a packet, as a fragment of it.
fn cut(packet: &[u8], id: u32, from: usize, to: usize) -> Vec<u8> {
    let (head, data) = packet.split_at(head_len(packet));
    let mut p = head.to_vec();
    let more = u16::from(to < data.len());
    if packet[0] >> 4 == 6 {
        let announced = if head.len() == 40 { 6 } else { 40 };
        let next = std::mem::replace(&mut p[announced], 44);
        p.extend_from_slice(&[next, 0]);
        p.extend_from_slice(&(from as u16 | more).to_be_bytes());
        p.extend_from_slice(&id.to_be_bytes());
        p.extend_from_slice(&data[from..to]);
        let payload = (p.len() - 40) as u16;
        p[4..6].copy_from_slice(&payload.to_be_bytes());
    } else {
        let total = (p.len() + to - from) as u16;
        p[2..4].copy_from_slice(&total.to_be_bytes());
        p[6..8].copy_from_slice(&((from as u16 / 8) | (more << 13)).to_be_bytes());
        v4::set_checksum(&mut p);
        p.extend_from_slice(&data[from..to]);
    }
    p
}

/// A reassembler with its books.
#[derive(Default)]
struct Desk {
    reassembler: Reassembler,
    totals: Totals,
    now: Duration,
    pushed: u64,
    whole: u64,
}

impl Desk {
    fn push(&mut self, fragment: &[u8]) -> PushResult {
        let info = ip::parse(fragment).unwrap();
        let mut tally = Tally::default();
        let pushed = self.reassembler.push(self.now, fragment, &info, &mut tally);
        self.totals.add(&mut tally);
        self.pushed += 1;
        self.whole += u64::from(pushed == PushResult::Whole);
        self.books();
        pushed
    }

    fn expire(&mut self, now: Duration) {
        let mut tally = Tally::default();
        self.now = now;
        self.reassembler.expire(now, &mut tally);
        self.totals.add(&mut tally);
        self.books();
    }

    /// Fragments held, absorbed and dropped. What went in is one of these or stands for a packet
    /// that became whole, and no more memory is used than may be.
    fn books(&self) -> (u64, u64, u64) {
        let c = self.totals.snapshot();
        let dropped = c.dropped(DropReason::OutReassembly);
        assert_eq!(c.dropped_out(), dropped);
        assert_eq!(self.pushed, self.whole + c.traffic.out_absorbed + c.held + dropped);
        let r = &self.reassembler;
        assert!(r.partial.len() <= MAX_PACKETS && r.spare.len() <= MAX_SPARE);
        assert_eq!(r.bytes, r.partial.iter().map(|p| p.data.capacity()).sum::<usize>());
        assert!(r.bytes <= MAX_BYTES, "{}", r.bytes);
        assert_eq!(c.held, r.partial.iter().map(|p| p.fragments as u64).sum::<u64>());
        (c.held, c.traffic.out_absorbed, dropped)
    }

    fn packet(&mut self) -> Vec<u8> {
        self.reassembler.packet_mut().clone()
    }
}

/// Pushes fragments of which the last completes the packet.
fn whole(desk: &mut Desk, fragments: &[Vec<u8>]) -> Vec<u8> {
    let (last, others) = fragments.split_last().unwrap();
    for fragment in others {
        assert_eq!(desk.push(fragment), PushResult::Held);
    }
    assert_eq!(desk.push(last), PushResult::Whole);
    desk.packet()
}

/// Both families, without and with more headers.
const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn two_fragments_in_either_order_are_the_packet() {
    for (ipv6, extra) in KINDS {
        let want = packet(ipv6, extra, 1, 1_000);
        let fragments = [cut(&want, 9, 0, 600), cut(&want, 9, 600, 1_008)];
        for order in [[0, 1], [1, 0]] {
            let mut desk = Desk::default();
            assert_eq!(whole(&mut desk, &order.map(|i| fragments[i].clone())), want);
            assert_eq!(desk.books(), (0, 1, 0));
            assert!(desk.reassembler.partial.is_empty());
        }
    }
}

#[test]
fn the_header_is_the_first_fragments() {
    for (ipv6, extra) in KINDS {
        let want = packet(ipv6, extra, 1, 100);
        let mut later = cut(&want, 9, 64, 108);
        // Another TTL or hop limit and, for IPv6, another next header in the fragment header: they
        // count for nothing.
        if ipv6 {
            later[7] = 3;
            let at = head_len(&want);
            later[at] = 6;
        } else {
            later[8] = 3;
        }
        let mut desk = Desk::default();
        assert_eq!(whole(&mut desk, &[later, cut(&want, 9, 0, 64)]), want);
    }
    let mut first = packet(false, false, 1, 100);
    first[6] = 0xc0;
    let want = finished(first);
    let mut fragments = [cut(&want, 0, 0, 64), cut(&want, 0, 64, 108)];
    fragments[0][6] |= 0xc0;
    let mut desk = Desk::default();
    assert_eq!(whole(&mut desk, &fragments), want, "DF and the reserved flag stay");
}

/// The packet with the checksum that it must have.
fn finished(mut packet: Vec<u8>) -> Vec<u8> {
    let head = head_len(&packet);
    v4::set_checksum(&mut packet[..head]);
    packet
}

#[test]
fn an_atomic_fragment_is_a_packet_of_its_own() {
    for extra in [false, true] {
        let want = packet(true, extra, 1, 300);
        let mut desk = Desk::default();
        // While another packet with the same identification waits (RFC 6946).
        assert_eq!(desk.push(&cut(&want, 9, 0, 64)), PushResult::Held);
        assert_eq!(whole(&mut desk, &[cut(&want, 9, 0, 308)]), want);
        assert_eq!(whole(&mut desk, std::slice::from_ref(&want)), want, "no fragment header at all");
        assert_eq!(whole(&mut desk, &[cut(&want, 9, 64, 308)]), want, "the other packet is unharmed");
    }
}

#[test]
fn an_exact_duplicate_is_absorbed() {
    for (ipv6, extra) in KINDS {
        let want = packet(ipv6, extra, 1, 400);
        let [a, b, c] = [(0, 200), (200, 304), (304, 408)].map(|(from, to)| cut(&want, 9, from, to));
        let mut desk = Desk::default();
        assert_eq!(whole(&mut desk, &[a.clone(), c.clone(), a, c, b]), want);
        assert_eq!(desk.books(), (0, 4, 0));
    }
}

#[test]
fn an_overlap_gives_up_the_packet_and_what_else_comes_of_it() {
    for (ipv6, extra) in KINDS {
        let good = packet(ipv6, extra, 1, 400);
        let mut other = good.clone();
        *other.last_mut().unwrap() ^= 1;
        let mut longer = packet(ipv6, extra, 1, 500);
        let same = good.len();
        longer[same - 408..same].copy_from_slice(&good[same - 408..]);
        for (what, overlap) in [
            ("into the one before", cut(&good, 9, 96, 304)),
            ("into the one behind", cut(&good, 9, 0, 208)),
            ("inside", cut(&good, 9, 16, 24)),
            ("around", cut(&good, 9, 0, 320)),
            ("the same place and another length", cut(&good, 9, 200, 216)),
            ("the same place and other bytes", cut(&other, 9, 304, 408)),
            ("the same bytes, and more to come", cut(&longer, 9, 304, 408)),
        ] {
            let mut desk = Desk::default();
            for (from, to) in [(8, 104), (200, 304), (304, 408)] {
                assert_eq!(desk.push(&cut(&good, 9, from, to)), PushResult::Held);
            }
            assert_eq!(desk.push(&overlap), PushResult::Dropped, "{what}");
            assert_eq!(desk.books(), (0, 0, 4));
            assert_eq!(desk.push(&cut(&good, 9, 104, 200)), PushResult::Dropped, "not yet received: {what}");
            assert_eq!(
                desk.push(&cut(&packet(ipv6, extra, 2, 400), 8, 0, 200)),
                PushResult::Held,
                "of another packet"
            );
            // The packet has timed out: its identification may be used again.
            desk.expire(TIMEOUT);
            assert_eq!(desk.books(), (0, 0, 6));
            assert_eq!(whole(&mut desk, &[cut(&good, 9, 200, 408), cut(&good, 9, 0, 200)]), good);
        }
    }
}

#[test]
fn fragments_that_lie_are_refused() {
    for (ipv6, extra) in KINDS {
        let good = packet(ipv6, extra, 1, 400);
        let shorter = packet(ipv6, extra, 1, 300);
        let give_up = |first: &[Vec<u8>], last: &[u8], what: &str| {
            let mut desk = Desk::default();
            for fragment in first {
                assert_eq!(desk.push(fragment), PushResult::Held, "{what}");
            }
            assert_eq!(desk.push(last), PushResult::Dropped, "{what}");
            assert_eq!(desk.books(), (0, 0, first.len() as u64 + 1));
        };
        give_up(&[cut(&good, 9, 304, 408)], &cut(&shorter, 9, 200, 308), "two ends");
        give_up(&[cut(&shorter, 9, 200, 308)], &cut(&good, 9, 304, 400), "behind the end");
        let shortest = packet(ipv6, extra, 1, 292);
        give_up(&[cut(&good, 9, 304, 400)], &cut(&shortest, 9, 200, 300), "an end in front of what came");
        // These say nothing about a packet: no memory is taken for them.
        for (what, fragment) in [
            ("not whole units", cut(&good, 9, 0, 204)),
            ("nothing in it", cut(&good, 9, 8, 8)),
            ("half the upper header", cut(&packet(ipv6, extra, 1, 0), 9, 0, 0)),
        ] {
            let mut desk = Desk::default();
            assert_eq!(desk.push(&fragment), PushResult::Dropped, "{what}");
            assert!(desk.reassembler.partial.is_empty());
        }
    }
}

#[test]
fn the_upper_header_must_be_in_the_first_fragment() {
    // TCP: 20 bytes, or what its data offset says.
    for (ipv6, extra) in KINDS {
        for (protocol, offset, first, held) in [
            (6, 0x50, 16, false),
            (6, 0x50, 24, true),
            (6, 0x80, 24, false),
            (6, 0x80, 32, true),
            (17, 0, 8, true),
            (132, 0, 8, false),
            (132, 0, 16, true),
            (47, 0, 8, true),
        ] {
            let mut p = packet(ipv6, extra, 1, 100);
            let upper = head_len(&p);
            p[upper + 12] = offset;
            let at = if !ipv6 {
                9
            } else if extra {
                40
            } else {
                6
            };
            p[at] = protocol;
            let mut desk = Desk::default();
            let want = if held { PushResult::Held } else { PushResult::Dropped };
            assert_eq!(desk.push(&cut(&p, 9, 0, first)), want, "{protocol} {offset} {first}");
        }
    }
}

#[test]
fn the_longest_packet_is_whole_and_a_longer_one_is_refused() {
    for (ipv6, extra) in KINDS {
        let most = 65_535
            - match (ipv6, extra) {
                (false, _) => head_len(&packet(false, extra, 1, 0)),
                (true, extra) => {
                    if extra {
                        8
                    } else {
                        0
                    }
                }
            };
        let want = packet(ipv6, extra, 1, most - 8);
        let mut desk = Desk::default();
        assert_eq!(whole(&mut desk, &[cut(&want, 9, 65_000, most), cut(&want, 9, 0, 65_000)]), want);

        // One byte more, which no header can say: a last fragment with a byte more.
        let mut last = cut(&want, 9, 65_000, most);
        last.push(7);
        let total = last.len() - if ipv6 { 40 } else { 0 };
        let at = if ipv6 { 4 } else { 2 };
        last[at..at + 2].copy_from_slice(&(total as u16).to_be_bytes());
        assert_eq!(desk.push(&cut(&want, 9, 0, 65_000)), PushResult::Held);
        assert_eq!(desk.push(&last), PushResult::Dropped);
        assert_eq!(desk.books().0, 0);
    }
}

#[test]
fn what_waits_too_long_is_given_up() {
    let want = packet(false, false, 1, 100);
    let mut desk = Desk { now: Duration::from_secs(5), ..Desk::default() };
    assert_eq!(desk.reassembler.next_expiry(), None);
    assert_eq!(desk.push(&cut(&want, 0, 0, 64)), PushResult::Held);
    let at = Duration::from_secs(5) + TIMEOUT;
    assert_eq!(desk.reassembler.next_expiry(), Some(at));
    desk.expire(at - SECOND);
    assert_eq!(desk.books(), (1, 0, 0));
    desk.expire(at);
    assert_eq!(desk.books(), (0, 0, 1));
    // Without a call in between, a fragment that comes too late begins anew.
    assert_eq!(desk.push(&cut(&want, 0, 0, 64)), PushResult::Held);
    desk.now += TIMEOUT;
    assert_eq!(desk.push(&cut(&want, 0, 64, 108)), PushResult::Held);
    assert_eq!(desk.books(), (1, 0, 2));
}

#[test]
fn the_oldest_makes_room() {
    let of = |id: u16| packet(false, false, id, 100);
    let mut desk = Desk::default();
    for id in 0..200 {
        assert_eq!(desk.push(&cut(&of(id), 0, 0, 64)), PushResult::Held);
    }
    assert_eq!(desk.books(), (MAX_PACKETS as u64, 0, 200 - MAX_PACKETS as u64));
    assert_eq!(whole(&mut desk, &[cut(&of(199), 0, 64, 108)]), of(199));
    assert_eq!(desk.push(&cut(&of(0), 0, 64, 108)), PushResult::Held, "it was forgotten");

    // Far ends take much memory: so few of them are kept.
    let mut desk = Desk::default();
    for id in 0..200 {
        assert_eq!(
            desk.push(&cut(&packet(true, false, id, 65_000), u32::from(id), 64_000, 65_008)),
            PushResult::Held
        );
    }
    assert!((8..=16).contains(&desk.reassembler.partial.len()));

    // Many little ones of one packet.
    let want = packet(false, false, 1, 16 * MAX_FRAGMENTS);
    let mut desk = Desk::default();
    for i in 0..MAX_FRAGMENTS {
        assert_eq!(desk.push(&cut(&want, 0, 16 * i, 16 * i + 8)), PushResult::Held);
    }
    assert_eq!(desk.push(&cut(&want, 0, 8, 16)), PushResult::Dropped);
    assert_eq!(desk.books(), (0, 0, MAX_FRAGMENTS as u64 + 1));
}

#[test]
fn packets_differ_in_addresses_identification_and_for_ipv4_protocol() {
    let base = packet(false, false, 1, 100);
    let later = cut(&base, 0, 64, 108);
    for at in [5, 9, 15, 19] {
        let mut other = cut(&base, 0, 0, 64);
        other[at] ^= if at == 9 { 17 ^ 47 } else { 1 };
        let mut desk = Desk::default();
        assert_eq!(desk.push(&later), PushResult::Held);
        assert_eq!(desk.push(&other), PushResult::Held, "{at}");
    }
    let base = packet(true, false, 1, 100);
    for at in [23, 39, 47] {
        let mut other = cut(&base, 7, 0, 64);
        other[at] ^= 1;
        let mut desk = Desk::default();
        assert_eq!(desk.push(&cut(&base, 7, 64, 108)), PushResult::Held);
        assert_eq!(desk.push(&other), PushResult::Held, "{at}");
    }
}

#[test]
fn congestion_of_one_fragment_is_the_packets() {
    for ipv6 in [false, true] {
        let with = |ecn: u8| {
            let mut p = packet(ipv6, false, 1, 100);
            if ipv6 {
                p[1] = p[1] & 0xcf | ecn << 4;
                p
            } else {
                p[1] = p[1] & 0xfc | ecn;
                finished(p)
            }
        };
        for (first, later, want) in [
            (2, 2, Some(2)),
            (2, 3, Some(3)),
            (3, 1, Some(3)),
            (0, 0, Some(0)),
            (3, 3, Some(3)),
            (0, 3, None),
            (3, 0, None),
        ] {
            let mut desk = Desk::default();
            assert_eq!(desk.push(&cut(&with(later), 9, 64, 108)), PushResult::Held);
            let pushed = desk.push(&cut(&with(first), 9, 0, 64));
            match want {
                Some(ecn) => assert_eq!((pushed, desk.packet()), (PushResult::Whole, with(ecn))),
                None => assert_eq!(pushed, PushResult::Dropped),
            }
        }
    }
}

/// How a packet comes: where it is cut, in units of 8 bytes, and in which order.
fn comings() -> impl Strategy<Value = (usize, Vec<usize>, Vec<u64>)> {
    (0usize..9_000, prop::collection::vec(0usize..1_200, 1..20), prop::collection::vec(any::<u64>(), 60))
}

proptest! {
    #[test]
    fn any_order_of_any_cut_gives_the_packet_back(kind in 0usize..4, (len, cuts, keys) in comings(), twice in prop::collection::vec(any::<bool>(), 24)) {
        let (ipv6, extra) = KINDS[kind];
        let want = packet(ipv6, extra, 1, len + 8);
        let end = len + 16;
        // At least 16 bytes of upper header and data in the first fragment.
        let mut at: Vec<usize> = cuts.iter().map(|c| c * 8).filter(|c| (8..end).contains(c)).collect();
        at.extend([0, end]);
        at.sort_unstable();
        at.dedup();
        prop_assume!(at.len() > 2);
        let mut fragments: Vec<_> = at.windows(2).map(|w| cut(&want, 9, w[0], w[1])).collect();
        let distinct = fragments.len();
        let doubles: Vec<_> = fragments.iter().zip(&twice).filter(|(_, t)| **t).map(|(f, _)| f.clone()).collect();
        fragments.extend(doubles);
        let mut order: Vec<_> = fragments.iter().zip(&keys).collect();
        order.sort_by_key(|(_, key)| **key);
        let mut desk = Desk::default();
        let mut seen = std::collections::HashSet::new();
        for (fragment, _) in order {
            seen.insert(fragment.clone());
            let pushed = desk.push(fragment);
            if seen.len() == distinct {
                prop_assert_eq!(pushed, PushResult::Whole);
                prop_assert_eq!(desk.packet(), want);
                break;
            }
            prop_assert_eq!(pushed, PushResult::Held);
        }
        prop_assert_eq!(desk.books().0, 0);
    }

    #[test]
    fn no_fragments_make_it_panic_or_grow(
        pieces in prop::collection::vec((any::<bool>(), 0u16..4, 0usize..1_100, 1usize..200, any::<u8>(), 0u64..10), 1..300),
    ) {
        let mut desk = Desk::default();
        for (ipv6, id, from, len, flip, wait) in pieces {
            let p = packet(ipv6, false, id, 9_000);
            let end = (from * 8 + len * 8).min(9_008);
            let mut fragment = cut(&p, u32::from(id), (from * 8).min(end), end);
            let at = usize::from(flip) % fragment.len();
            fragment[at] ^= flip;
            desk.now += Duration::from_secs(wait);
            if let Ok(info) = ip::parse(&fragment) {
                fragment.truncate(info.total_len);
                desk.push(&fragment);
            }
        }
    }
}
