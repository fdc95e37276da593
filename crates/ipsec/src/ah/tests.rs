//! Tests of the Authentication Header: every bit in front of it is either covered or not, and a
//! packet under way is covered as on arrival.

use proptest::prelude::*;

use super::*;

const SPI: u32 = 0x8765_4321;

/// A whole AH with a field of 16 bytes, and 8 bytes behind it.
fn ah_and_payload(ipv6: bool) -> Vec<u8> {
    let mut out = vec![0xee; header_len(16, ipv6)];
    emit(&mut out, protocol::UDP, SPI, 7);
    out.extend_from_slice(&[0xdd; 8]);
    out
}

fn v4(options: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let rest = ah_and_payload(false);
    let len = (20 + options.len() + rest.len()) as u16;
    let mut p = vec![0x40 | (5 + options.len() / 4) as u8, 0x2e];
    p.extend_from_slice(&len.to_be_bytes());
    p.extend_from_slice(&[0x12, 0x34, 0x40, 0, 61, protocol::AH, 0xab, 0xcd, 192, 0, 2, 1, 198, 51, 100, 2]);
    p.extend_from_slice(options);
    p.extend_from_slice(&rest);
    p
}

/// Extension headers: kind, and what follows its first two bytes.
fn v6(headers: &[(u8, &[u8])]) -> Vec<u8> {
    let mut p = vec![0x62, 0xe1, 0x23, 0x45, 0, 0, 0, 64];
    p.extend_from_slice(&[0x20; 16]);
    p.extend_from_slice(&[0xd0; 16]);
    let mut announced = 6;
    for (kind, body) in headers {
        assert!((body.len() + 2).is_multiple_of(8));
        p[announced] = *kind;
        announced = p.len();
        p.extend_from_slice(&[0, ((body.len() + 2) / 8 - 1) as u8]);
        p.extend_from_slice(body);
    }
    p[announced] = protocol::AH;
    p.extend_from_slice(&ah_and_payload(true));
    let len = (p.len() - 40) as u16;
    p[4..6].copy_from_slice(&len.to_be_bytes());
    p
}

fn covered(packet: &[u8]) -> Vec<u8> {
    let mut heads = vec![1, 2, 3];
    immutable(&packet[..find(packet).unwrap().at], &mut heads).unwrap();
    heads.split_off(3)
}

/// Flips each bit in front of AH and says which bytes are not covered: all of their bits count for
/// nothing. A byte some of whose bits count must be in `partly`.
fn uncovered(packet: &[u8], partly: &[(usize, u8)]) -> Vec<usize> {
    let at = find(packet).unwrap().at;
    let want = covered(packet);
    let mut out = Vec::new();
    for i in 0..at {
        let ignored = (0..8)
            .filter(|bit| {
                let mut changed = packet[..at].to_vec();
                changed[i] ^= 1 << bit;
                let mut heads = Vec::new();
                immutable(&changed, &mut heads).is_ok() && heads == want
            })
            .fold(0u8, |mask, bit| mask | 1 << bit);
        let expected = partly.iter().find(|(at, _)| *at == i).map(|(_, mask)| *mask);
        match ignored {
            0xff if expected.is_none() => out.push(i),
            0 if expected.is_none() => {}
            mask => assert_eq!(Some(mask), expected, "byte {i}"),
        }
    }
    out
}

#[test]
fn lengths_are_those_of_the_rfcs() {
    // (field, IPv4, IPv6): HMAC-96, HMAC-SHA2 128/192/256, AES-GMAC with its IV (erratum 3643 of
    // RFC 4543).
    for (field, ipv4, ipv6) in [(12, 24, 24), (16, 28, 32), (24, 36, 40), (32, 44, 48), (8 + 16, 36, 40)] {
        assert_eq!((header_len(field, false), header_len(field, true)), (ipv4, ipv6));
        // Linux pads to 8 bytes in IPv4 too; nobody may pad to less in IPv6.
        for (len, in_v4, in_v6) in [
            (ipv4, true, ipv4 == ipv6),
            (ipv6, true, true),
            (ipv4 - 4, false, false),
            (ipv6 + 4, false, false),
        ] {
            for (v6, fits) in [(false, in_v4), (true, in_v6)] {
                let ah = Ah { at: 20, len, end: 100, ipv6: v6, next_header: 4, spi: 1, seq: 1 };
                assert_eq!(ah.has_field_len(field), fits, "{field} in {len}");
            }
        }
    }
}

#[test]
fn what_is_written_is_found() {
    let packet = v4(&[]);
    assert_eq!(
        find(&packet),
        Ok(Ah { at: 20, len: 28, end: 56, ipv6: false, next_header: protocol::UDP, spi: SPI, seq: 7 })
    );
    // SPI, sequence number, zeros for field and padding.
    assert_eq!(packet[20..32], [17, 5, 0, 0, 0x87, 0x65, 0x43, 0x21, 0, 0, 0, 7]);
    assert_eq!(packet[32..48], [0; 16]);
    assert_eq!(packet[48..], [0xdd; 8]);
    assert_eq!(find(&v4(&[148, 4, 0, 0])).unwrap().at, 24);

    let headers: [(u8, &[u8]); 3] =
        [(0, &[5, 2, 0, 0, 1, 0]), (60, &[1, 4, 0, 0, 0, 0]), (43, &[0, 0, 0, 0, 0, 0])];
    assert_eq!(find(&v6(&headers)).map(|ah| (ah.at, ah.len)), Ok((64, 32)));
    // A longer buffer than the packet says; a shorter one.
    let mut long = packet.clone();
    long.extend_from_slice(&[0; 10]);
    assert_eq!(find(&long).unwrap().end, 56);
    for len in 0..48 {
        assert_eq!(find(&packet[..len]), Err(DropReason::InHdrError), "{len}");
    }
}

#[test]
fn fragments_and_lies_are_refused() {
    for field in [[0x20, 0], [0, 1], [0x20, 9]] {
        let mut p = v4(&[]);
        p[6..8].copy_from_slice(&field);
        assert_eq!(find(&p), Err(DropReason::InFragment));
    }
    for field in [[0, 1], [1, 0], [1, 1]] {
        let p = v6(&[(44, &[field[0], field[1], 0, 0, 0, 1])]);
        assert_eq!(find(&p), Err(DropReason::InFragment));
    }
    // A fragment header around a whole packet is none that a sender of AH puts there.
    let p = v6(&[(44, &[0, 0, 0, 0, 0, 1])]);
    let at = find(&p).unwrap().at;
    assert_eq!(immutable(&p[..at], &mut Vec::new()), Err(DropReason::InHdrError));

    let wrong = |at: usize, value: u8| {
        let mut p = v4(&[]);
        p[at] = value;
        find(&p)
    };
    assert_eq!(wrong(9, 50), Err(DropReason::InHdrError), "not AH");
    assert_eq!(wrong(21, 0), Err(DropReason::InHdrError), "shorter than its fixed part");
    assert_eq!(wrong(21, 8), Err(DropReason::InHdrError), "longer than the packet");
    assert!(wrong(21, 7).is_ok(), "to the end of the packet");
    assert_eq!(wrong(0, 0x4f), Err(DropReason::InHdrError), "more options than bytes");
    let many = vec![(60u8, &[1u8, 4, 0, 0, 0, 0][..]); 9];
    assert_eq!(find(&v6(&many)), Err(DropReason::InHdrError));
}

#[test]
fn the_fields_of_an_ipv4_header_that_may_change_are_not_covered() {
    let packet = v4(&[]);
    assert_eq!(uncovered(&packet, &[]), [1, 6, 7, 8, 10, 11]);
    assert_eq!(
        covered(&packet),
        [0x45, 0, 0, 56, 0x12, 0x34, 0, 0, 0, 51, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]
    );
}

#[test]
fn ipv4_options_are_covered_whole_or_not_at_all() {
    let header = [1, 6, 7, 8, 10, 11];
    // NOP, router alert, security, extended security, commercial security, multi-destination, end
    // and what is behind it.
    let stays = [1, 148, 4, 0, 0, 130, 3, 9, 133, 3, 8, 134, 3, 7, 149, 3, 6, 0, 5, 5];
    let packet = v4(&stays);
    assert_eq!(covered(&packet)[20..], stays);
    // Record route, time stamp, trace route, experiments, MTU probe, stream, and what nobody knows.
    for kind in [7, 68, 82, 30, 94, 158, 222, 11, 12, 136, 205, 99] {
        let packet = v4(&[1, 148, 4, 0, 0, kind, 5, 4, 1, 2, 1, 1]);
        assert_eq!(covered(&packet)[20..], [1, 148, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1], "{kind}");
        // The data of this option may be anything, and its kind and length stand for nothing as
        // long as the option stays what it is.
        for at in 27..30 {
            let mut changed = packet.clone();
            changed[at] ^= 0xff;
            assert_eq!(covered(&changed), covered(&packet));
        }
    }
    let mut all = header.to_vec();
    all.extend(22..24);
    // Kind and length of a record route: other kinds may stand there, lengths must fit.
    let changeable = uncovered_ignoring(&v4(&[7, 4, 4, 0]), &[20, 21]);
    assert_eq!(changeable, all);
    for wrong in
        [&[7, 1, 0, 0][..], &[7, 0, 0, 0], &[7, 5, 0, 0], &[1, 1, 1, 7], &[131, 4, 4, 0], &[137, 3, 3, 0]]
    {
        let packet = v4(wrong);
        let mut heads = vec![9];
        assert_eq!(immutable(&packet[..24], &mut heads), Err(DropReason::InHdrError), "{wrong:?}");
        assert_eq!(heads, [9]);
    }
}

fn uncovered_ignoring(packet: &[u8], skip: &[usize]) -> Vec<usize> {
    let at = find(packet).unwrap().at;
    (0..at)
        .filter(|i| !skip.contains(i))
        .filter(|i| {
            (0..8).all(|bit| {
                let mut changed = packet[..at].to_vec();
                changed[*i] ^= 1 << bit;
                let mut heads = Vec::new();
                immutable(&changed, &mut heads).is_ok() && heads == covered(packet)
            })
        })
        .collect()
}

#[test]
fn a_source_route_is_covered_as_on_arrival_wherever_the_packet_is() {
    for kind in [131, 137] {
        // Via 1.1.1.1 and 2.2.2.2 to 3.3.3.3: RFC 791 section 3.1 puts the next address into the
        // header.
        let mut packet = v4(&[1, kind, 11, 4, 2, 2, 2, 2, 3, 3, 3, 3]);
        packet[16..20].copy_from_slice(&[1; 4]);
        let want = covered(&packet);
        assert_eq!(want[16..], [[3, 3, 3, 3], [1, 0, 0, 0], [0; 4], [0; 4]].concat());
        for (destination, pointer, recorded) in [([2; 4], 8, [9; 4]), ([3; 4], 12, [8; 4])] {
            packet[16..20].copy_from_slice(&destination);
            packet[23] = pointer;
            let slot = 24 + usize::from(pointer) - 8;
            packet[slot..slot + 4].copy_from_slice(&recorded);
            assert_eq!(covered(&packet), want, "pointer {pointer}");
        }
    }
}

#[test]
fn the_fields_of_an_ipv6_header_that_may_change_are_not_covered() {
    let packet = v6(&[]);
    // The first byte is the version and half of the class.
    assert_eq!(uncovered(&packet, &[(0, 0x0f)]), [1, 2, 3, 7]);
    assert_eq!(covered(&packet)[..8], [0x60, 0, 0, 0, 0, 40, 51, 0]);
    assert_eq!(covered(&packet)[8..], packet[8..40]);
}

#[test]
fn the_data_of_ipv6_options_that_may_change_is_not_covered() {
    for kind in [0, 60] {
        // Pad1, an option that stays, one that may change, PadN.
        let body = [0, 0x05, 2, 7, 7, 0x3e, 3, 1, 2, 3, 1, 2, 0, 0];
        let packet = v6(&[(kind, &body)]);
        assert_eq!(uncovered(&packet, &[(0, 0x0f)]), [1, 2, 3, 7, 49, 50, 51]);
        assert_eq!(covered(&packet)[40..], [51, 1, 0, 0x05, 2, 7, 7, 0x3e, 3, 0, 0, 0, 1, 2, 0, 0]);
        for wrong in [[0x3e, 5, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0x3e], [201, 4, 0, 0, 0, 0]] {
            let packet = v6(&[(kind, &wrong)]);
            let at = find(&packet).unwrap().at;
            assert_eq!(immutable(&packet[..at], &mut Vec::new()), Err(DropReason::InHdrError));
        }
    }
}

#[test]
fn a_routing_header_is_covered_as_on_arrival_wherever_the_packet_is() {
    // RFC 2460 section 4.4: from S to D by way of I1, I2 and I3, as each node sees it.
    let [i1, i2, i3, d] = [[0x11; 16], [0x12; 16], [0x13; 16], [0xdd; 16]];
    let seen = [(i1, 3, [i2, i3, d]), (i2, 2, [i1, i3, d]), (i3, 1, [i1, i2, d]), (d, 0, [i1, i2, i3])];
    let packets = seen.map(|(destination, left, addresses)| {
        let body = [&[0, left, 0, 0, 0, 0][..], &addresses.concat()].concat();
        let mut packet = v6(&[(43, &body), (60, &[1, 4, 0, 0, 0, 0])]);
        packet[24..40].copy_from_slice(&destination);
        packet
    });
    let want = covered(&packets[3]);
    assert_eq!(want[24..], packets[3][24..104]);
    for packet in &packets {
        assert_eq!(covered(packet), want);
    }
    let wrong = |body: &[u8]| {
        let packet = v6(&[(43, body)]);
        let at = find(&packet).unwrap().at;
        immutable(&packet[..at], &mut Vec::new())
    };
    let body = |kind: u8, left: u8, len: usize| [&[kind, left, 0, 0, 0, 0][..], &vec![1; len]].concat();
    assert_eq!(wrong(&body(2, 1, 16)), Ok(()));
    for (what, body) in [
        ("more left than there are", body(0, 2, 16)),
        ("half an address", body(0, 0, 24)),
        ("of another type", body(4, 1, 16)),
        ("of another type, at its end", body(3, 0, 16)),
    ] {
        assert_eq!(wrong(&body), Err(DropReason::InHdrError), "{what}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0u8..4) {
        // Mostly something like a header.
        if let Some(h) = bytes.get_mut(..10) {
            match kind {
                0 => (h[0], h[9], h[2], h[3]) = (0x40 | h[0] & 0xf, 51, 0, h[3] & 0x7f),
                1 => (h[0], h[4], h[5], h[6]) = (0x60, 0, h[5] & 0x3f, [0, 43, 60, 51][usize::from(h[6] & 3)]),
                _ => {}
            }
        }
        if let Ok(ah) = find(&bytes) {
            prop_assert!(ah.at + ah.len <= ah.end && ah.end <= bytes.len());
            let mut heads = Vec::new();
            if immutable(&bytes[..ah.at], &mut heads).is_ok() {
                prop_assert_eq!(heads.len(), ah.at);
            }
        }
        let _ = immutable(&bytes, &mut Vec::new());
    }
}
