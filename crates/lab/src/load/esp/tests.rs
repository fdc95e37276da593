use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::batch::{self, Job};
use ironswan_wire::ip::checksum;
use ironswan_wire::offload::{Gso, Offload, VNET_HDR_LEN};
use ironswan_wire::secret::Secret;

use super::*;
use crate::experiment::suite_by_name;
use crate::load::frame::{Burst, Family, Mix, Route, Shape};

const ROUTE: Route =
    Route { next_hop: [2; 6], destination: Ipv4Addr::new(10, 1, 0, 2), port: 7007, sources: [10, 2, 0] };
const INNER: Inner = Inner { destination: ROUTE.destination, port: ROUTE.port };
const SHAPE: Shape = Shape { payload: 100, mix: None, flows: 3, family: Family::V4, tag: 5 };

/// Both ends of an SA with that suite: the one that seals and the one that opens.
fn ends(suite: &str, udp: bool) -> [Arc<Association>; 2] {
    let suite = suite_by_name(suite).expect(suite);
    let (encr, integ) = ironswan_crypto::batch::keymat_lens(&suite).expect("lengths");
    let bytes = |n: usize| Secret::new((0..n).map(|i| (i as u8).wrapping_mul(29) ^ 0x51).collect());
    let keys = SaKeys { spi: 0xc0ff_ee01, encr: bytes(encr), integ: bytes(integ) };
    let at = |host, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port);
    let (left, right) = (at(2, 4500), at(1, 4500));
    [(left, right), (right, left)].map(|(local, remote)| {
        Arc::new(Association::new(&suite, &keys, Outer { local, remote, udp }).expect("an SA"))
    })
}

/// `count` frames from number `first` on, cut as the kernel cuts them.
fn frames(sealed: &mut Sealed, first: u32, count: usize) -> Vec<Vec<u8>> {
    sealed.make(first, count, 1_000).expect("sealed");
    let (mut all, mut at) = (Vec::new(), 0);
    while at < count {
        let row = sealed.row(first, count, at);
        assert!(row.messages > 0 && row.len <= row.stride);
        for n in 0..row.messages {
            let message = &sealed.bytes()[row.start + n * row.stride..][..row.len];
            let cut = cut(message);
            assert_eq!(cut.len(), row.packets);
            all.extend(cut);
        }
        at += row.messages * row.packets;
    }
    assert_eq!((at, all.len()), (count, count));
    all
}

/// The packets of a message, but for their UDP checksums, which hold what the kernel is to finish.
fn cut(message: &[u8]) -> Vec<Vec<u8>> {
    let offload = Offload::parse(message).expect("a header");
    let frame = &message[VNET_HDR_LEN..];
    if offload.gso == Gso::None {
        return vec![frame.to_vec()];
    }
    assert_eq!((offload.gso, offload.hdr_len), (Gso::UdpL4, 42));
    let (head, payload) = frame.split_at(42);
    assert_eq!(usize::from(u16::from_be_bytes([head[38], head[39]])), 8 + payload.len());
    let segment = |esp: &[u8]| {
        let mut packet = [head, esp].concat();
        v4::set_total_len(&mut packet[14..34], (28 + esp.len()) as u16);
        packet[38..40].copy_from_slice(&((8 + esp.len()) as u16).to_be_bytes());
        packet
    };
    payload.chunks(offload.segment_size.into()).map(segment).collect()
}

/// Puts frames side by side as a receiver has them, and takes them in.
fn give(opener: &mut Opener, frames: &[Vec<u8>], behind: bool) {
    let mut buffer = vec![0; frames.len() * 2048];
    for (slot, frame) in buffer.chunks_mut(2048).zip(frames) {
        slot[..frame.len()].copy_from_slice(frame);
    }
    let places = frames.iter().enumerate().map(|(n, f)| (n * 2048..n * 2048 + f.len(), 2_000));
    opener.take(&mut buffer, places, behind);
}

#[test]
fn what_is_sealed_is_opened_again_with_every_suite_form_and_size() {
    for suite in
        ["aes128gcm16", "chacha20poly1305", "aes256-sha512", "aes128ctr-sha256", "null-sha1", "3des-md5"]
    {
        for udp in [true, false] {
            for shape in [
                Shape { payload: 18, ..SHAPE },
                Shape { payload: 1472, ..SHAPE },
                Shape { payload: 1472, mix: Some(Mix::simple([18, 524, 1472])), ..SHAPE },
            ] {
                let [there, here] = ends(suite, udp);
                let mut sealed = Sealed::new(there, shape, ROUTE, 24);
                let mut opener = Opener::new(Some(here), INNER, shape);
                let sent = frames(&mut sealed, 0, 24);
                give(&mut opener, &sent, false);
                let (received, esp) = opener.finish();
                assert_eq!((received.unique, received.corrupt, received.reordered), (24, 0, 0), "{suite}");
                assert_eq!(esp, Some(EspCounts::default()), "{suite}");
                assert_eq!(received.latency.expect("latency").max_us, 1.0);
            }
        }
    }
}

#[test]
fn the_outer_headers_are_whole_once_the_kernel_has_finished_the_checksum() {
    let [there, _] = ends("aes128gcm16", true);
    let mut sealed = Sealed::new(there, SHAPE, ROUTE, 2);
    let frame = frames(&mut sealed, 0, 1).remove(0);
    let offload = Offload::parse(sealed.bytes()).expect("a header");
    let (start, offset) = offload.csum.expect("unfinished");
    assert_eq!((start, offset), (34, 6));
    assert!(v4::checksum_ok(&frame[14..34]));
    assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
    // As the interface does: the complement of the sum over all, with the pseudo-header's in the
    // field.
    let finished = !checksum::fold(checksum::sum(&frame[34..]));
    let mut udp = frame[34..].to_vec();
    udp[6..8].copy_from_slice(&finished.to_ne_bytes());
    let pseudo = checksum::pseudo(&frame[26..34], protocol::UDP) + checksum::be16(udp.len() as u16);
    assert_eq!(checksum::fold(pseudo + checksum::sum(&udp)), 0xffff);
}

#[test]
fn packets_of_one_length_go_to_the_kernel_together_in_udp_as_many_as_it_takes() {
    let large = Shape { payload: 1472, ..SHAPE };
    let rows = |shape, udp| {
        let [there, _] = ends("aes128gcm16", udp);
        let mut sealed = Sealed::new(there, shape, ROUTE, 64);
        sealed.make(0, 64, 0).expect("sealed");
        let (mut rows, mut at) = (Vec::new(), 0);
        while at < 64 {
            let row = sealed.row(0, 64, at);
            rows.push((row.messages, row.packets));
            at += row.messages * row.packets;
        }
        rows
    };
    assert_eq!(rows(SHAPE, true), [(1, 64)]);
    // 65,507 bytes hold 42 packets of 1,536.
    assert_eq!(rows(large, true), [(1, 42), (1, 22)]);
    assert_eq!(rows(large, false), [(64, 1)]);
    let mix = Shape { mix: Some(Mix::simple([18, 524, 1472])), ..large };
    assert_eq!(rows(mix, true)[..3], [(1, 7), (1, 4), (1, 1)]);
}

#[test]
fn tampered_repeated_and_foreign_packets_are_counted_and_not_received() {
    let [there, here] = ends("aes128gcm16", true);
    let mut sealed = Sealed::new(there, SHAPE, ROUTE, 8);
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    let sent = frames(&mut sealed, 0, 8);
    let spi = 14 + 20 + 8;
    // Any bit of the ESP packet: the SPI makes it foreign, all else wrong.
    let mut tampered = Vec::new();
    for at in [spi + 4, spi + 7, spi + 8, spi + 20, sent[0].len() - 1] {
        let mut frame = sent[0].clone();
        frame[at] ^= 1;
        tampered.push(frame);
    }
    let mut foreign = sent[0].clone();
    foreign[spi + 3] ^= 1;
    give(&mut opener, &tampered, false);
    give(&mut opener, &[foreign], false);
    assert_eq!(opener.unique(), 0);
    // Twice in one batch, and again later.
    give(&mut opener, &[sent[1].clone(), sent[1].clone(), sent[2].clone()], false);
    give(&mut opener, &[sent[2].clone(), sent[1].clone()], false);
    assert_eq!(opener.unique(), 2);
    // Too short for anything, from another address, another protocol: the first is refused, the
    // others are not the gateway's.
    let mut short = sent[3][..spi + 4].to_vec();
    short[16..18].copy_from_slice(&32u16.to_be_bytes());
    short[38..40].copy_from_slice(&12u16.to_be_bytes());
    let mut stranger = sent[3].clone();
    stranger[29] = 77;
    give(&mut opener, &[short, stranger, vec![0; 60], vec![]], false);
    let (received, esp) = opener.finish();
    assert_eq!((received.unique, received.duplicates, received.corrupt), (2, 0, 0));
    let wanted = EspCounts { refused: 6, foreign: 1, repeated: 3, ..EspCounts::default() };
    assert_eq!(esp, Some(wanted));
}

#[test]
fn an_authentic_packet_with_the_wrong_thing_inside_is_corrupt_and_the_same_inside_twice_a_duplicate() {
    let [there, here] = ends("aes128gcm16", true);
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    for route in [Route { port: 1, ..ROUTE }, Route { destination: [10, 1, 0, 9].into(), ..ROUTE }] {
        let mut astray = Sealed::new(there.clone(), SHAPE, route, 1);
        give(&mut opener, &frames(&mut astray, 0, 1), false);
    }
    // An earlier trial's is nobody's; one of another size is wrong.
    for shape in [Shape { tag: SHAPE.tag - 1, ..SHAPE }, Shape { payload: 101, ..SHAPE }] {
        give(&mut opener, &frames(&mut Sealed::new(there.clone(), shape, ROUTE, 1), 0, 1), false);
    }
    let mut sealed = Sealed::new(there, SHAPE, ROUTE, 1);
    let first = frames(&mut sealed, 0, 1);
    let again = frames(&mut sealed, 0, 1);
    give(&mut opener, &first, false);
    give(&mut opener, &again, false);
    let (received, esp) = opener.finish();
    assert_eq!((received.unique, received.duplicates, received.corrupt), (1, 1, 3));
    // The earlier trial's number is a gap among those of this one.
    assert_eq!(esp, Some(EspCounts { missing: 1, ..EspCounts::default() }));
}

#[test]
fn numbers_that_never_came_and_those_that_came_late_are_told_apart() {
    let [there, here] = ends("aes128gcm16", false);
    let mut sealed = Sealed::new(there, SHAPE, ROUTE, 10);
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    let sent = frames(&mut sealed, 0, 10);
    for n in [2, 0, 1, 6, 9] {
        give(&mut opener, &sent[n..=n], false);
    }
    let (received, esp) = opener.finish();
    assert_eq!(received.unique, 5);
    assert_eq!(esp, Some(EspCounts { reordered: 2, missing: 5, ..EspCounts::default() }));
}

#[test]
fn a_tester_that_is_behind_counts_every_packet_and_says_which_it_did_not_open() {
    let [there, here] = ends("aes128gcm16", true);
    let mut sealed = Sealed::new(there, SHAPE, ROUTE, 64);
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    let mut sent = frames(&mut sealed, 0, 64);
    let last = sent[63].len() - 1;
    // With nothing opened yet there is nothing to trust; later a number far off is not, behind or
    // not.
    give(&mut opener, &sent[..1], true);
    for frame in &mut sent[1..] {
        frame[last] ^= 1;
    }
    let mut far = sent[40].clone();
    far[14 + 20 + 8 + 4] = 9;
    give(&mut opener, &sent[1..40], true);
    give(&mut opener, &[far, sent[5].clone()], true);
    let (received, esp) = opener.finish();
    let esp = esp.expect("ESP");
    // Numbers 2 to 40: 16 and 32 are opened and found out, and so is the one far off; the other 37
    // are not.
    assert_eq!((received.unique, esp.unopened, esp.refused, esp.repeated, esp.missing), (1, 37, 3, 1, 2));
}

#[test]
fn no_sequence_number_is_used_twice_and_the_last_is_the_end() {
    let [there, here] = ends("aes128gcm16", true);
    let (mut one, mut two) =
        (Sealed::new(there.clone(), SHAPE, ROUTE, 4), Sealed::new(there.clone(), SHAPE, ROUTE, 4));
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    give(&mut opener, &frames(&mut one, 0, 4), false);
    give(&mut opener, &frames(&mut two, 4, 4), false);
    give(&mut opener, &frames(&mut one, 8, 4), false);
    assert_eq!((opener.unique(), opener.finish().1), (12, Some(EspCounts::default())));
    // The same SA by another way goes on behind.
    let moved = ends("aes128gcm16", false)[0].clone();
    moved.continues(&there);
    assert_eq!((moved.reserve(1).expect("a number"), there.is_half_used()), (13, false));
    there.next.store(u64::from(u32::MAX) - 4, std::sync::atomic::Ordering::Relaxed);
    assert!(one.make(0, 4, 0).is_ok());
    assert!(there.is_half_used());
    assert!(one.make(4, 4, 0).is_err() && two.make(4, 1, 0).is_err());
}

#[test]
fn an_icmp_error_of_a_host_is_no_damaged_packet_and_its_number_is_not_missing() {
    let [there, here] = ends("aes128gcm16", false);
    let mut opener = Opener::new(Some(here), INNER, SHAPE);
    let mut sealed = Sealed::new(there.clone(), SHAPE, ROUTE, 1);
    let first = frames(&mut sealed, 0, 1);
    // From an address and of a length that would be wrong: all that counts is the protocol.
    let mut packet = vec![0u8; 56];
    packet[0] = 0x45;
    v4::set_total_len(&mut packet, 56);
    packet[9] = protocol::ICMP;
    packet[16..20].copy_from_slice(&ROUTE.destination.octets());
    let key = &there.key;
    let text = packet.len() + esp::pad_len(packet.len(), key.block_len()) + esp::TRAILER;
    let (at, seq) = (ETHERNET + v4::MIN_HEADER, there.reserve(1).expect("a number"));
    let len = esp::HEADER + key.iv_len() + text + key.icv_len();
    let mut frame = first[0][..at].to_vec();
    frame.resize(at + len, 0);
    v4::set_total_len(&mut frame[ETHERNET..at], (v4::MIN_HEADER + len) as u16);
    frame[at..at + 4].copy_from_slice(&there.spi.to_be_bytes());
    frame[at + 4..at + 8].copy_from_slice(&(seq as u32).to_be_bytes());
    let inside = at + esp::HEADER + key.iv_len();
    frame[inside..inside + packet.len()].copy_from_slice(&packet);
    esp::emit_trailer(&mut frame[inside + packet.len()..inside + text], protocol::IPV4);
    let mut jobs = [Job { start: at as u32, len: len as u32, seq, key: 0, ok: false }];
    batch::seal(&mut frame, &mut jobs, &[key]);
    assert!(jobs[0].ok);
    give(&mut opener, &first, false);
    give(&mut opener, &[frame], false);
    give(&mut opener, &frames(&mut sealed, 1, 1), false);
    let (received, esp) = opener.finish();
    assert_eq!((received.unique, received.corrupt, esp), (2, 0, Some(EspCounts::default())));
    // In clear as well.
    let mut opener = Opener::new(None, INNER, SHAPE);
    let mut clear = vec![0; ETHERNET];
    clear[12] = 8;
    clear.extend(packet);
    give(&mut opener, &[clear], false);
    assert_eq!(opener.finish().0.corrupt, 0);
}

#[test]
fn a_gateway_that_only_forwards_is_counted_in_clear() {
    let mut clear = crate::load::frame::Frames::new(SHAPE, ROUTE, 4);
    clear.make(0, 4, 1_000).expect("made");
    let row = clear.row(0, 4, 0);
    let one = |n: usize| clear.bytes()[n * row.stride..][..row.len].to_vec();
    let mut sent: Vec<Vec<u8>> = (0..row.messages).map(one).collect();
    sent[3][60] ^= 1;
    let mut opener = Opener::new(None, INNER, SHAPE);
    give(&mut opener, &sent, false);
    let (received, esp) = opener.finish();
    assert_eq!((received.unique, received.corrupt, esp), (3, 1, None));
}

#[test]
fn the_testers_own_limit_is_measured_on_packets_that_come_out_as_they_went_in() {
    let suite = suite_by_name("aes128gcm16").expect("a suite");
    let found = limits(&suite, SHAPE, Duration::from_millis(5)).expect("limits");
    assert!(found.seal_pps > 0.0 && found.open_pps > 0.0 && found.seal_pps.is_finite(), "{found:?}");
}
