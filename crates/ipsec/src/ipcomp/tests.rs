//! Tests of IPComp: streams that zlib made, streams that lie, and packets that are not worth it.

use ironswan_crypto::rng::{Rng, Seeded};
use proptest::prelude::*;

use super::*;

const CPI: u16 = 0x1234;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    Seeded::new(seed).fill(&mut out);
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|i| format!("line {i} of a letter that says {}\n", i * i).into_bytes()).take(len).collect()
}

/// Inflates the bytes behind an IPComp header.
fn inflate(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let packet = [&[6, 0, 0x12, 0x34], data].concat();
    let found = Compressor::default().expand(&packet, CPI, &mut out);
    match found {
        Some((next_header, range)) => {
            assert_eq!((next_header, range.start, range.end), (6, 6, out.len()));
            assert!(out.starts_with(b"before"));
            Some(out[6..].to_vec())
        }
        None => {
            assert_eq!(out, b"before");
            None
        }
    }
}

/// Stored blocks of RFC 1951 section 3.2.4; the last is marked so.
fn stored(blocks: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        let len = block.len() as u16;
        out.push(u8::from(i + 1 == blocks.len()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    out
}

#[test]
fn a_packet_is_shorter_and_comes_back() {
    let (mut c, adaptive) = (Compressor::default(), Adaptive::default());
    for len in [90, 128, 576, 1_400, 2_048] {
        let payload = text(len);
        let packet = c.compress(&adaptive, CPI, 17, &payload).unwrap().to_vec();
        assert!(packet.len() < payload.len());
        assert_eq!(packet[..HEADER], [17, 0, 0x12, 0x34]);
        let mut out = Vec::new();
        assert_eq!(c.expand(&packet, CPI, &mut out), Some((17, 0..len)));
        assert_eq!(out, payload);
    }
}

#[test]
fn what_zlib_made_inflates() {
    // Python: zlib.compressobj(level, zlib.DEFLATED, -wbits).
    let want = b"abcdefgh".repeat(20);
    for stream in [
        // Level 9, wbits 15.
        "4b4c4a4e494d4bcf481ca43400",
        // Level 1, flushed after 80 bytes: a stored block of nothing in between.
        "4a4c4a4e494d4bcf48a4120d000000ffffa3b63900",
    ] {
        assert_eq!(inflate(&unhex(stream)).as_deref(), Some(&want[..]), "{stream}");
    }
    // Level 9, wbits 11: a block with codes of its own.
    let dynamic = "2d8f510a443108c4aee2d584111444c1eafd571f9bf6330c51449a8d1493546225012ed6d644889a54b0e04572cbf8cc48e7d96d0f4de037e1061b12cd39fd590fea51582ca4e5c2a1de81fdbbfb845a19d1150d0dfecb47bcb33763f8f92d238b611e525fc71459f6383eae2414eb3b6f880a4d6cc663a706e546ffe55afc6cda0cd3c95bbe0bb912741dbed10eddf5e4256dbbbfec757d97f7c47d313f";
    let want: Vec<u8> = (0..300).map(|i| b"etaoin shrdlu"[(i * i / 7 + i / 5) % 13]).collect();
    assert_eq!(inflate(&unhex(dynamic)).as_deref(), Some(&want[..]));
    assert_eq!(inflate(&stored(&[&want[..70], &[], &want[70..]])).as_deref(), Some(&want[..]));
    assert_eq!(inflate(&stored(&[&[]])).as_deref(), Some(&[][..]));
}

#[test]
fn what_is_no_stream_is_refused() {
    let (mut c, adaptive) = (Compressor::default(), Adaptive::default());
    let packet = c.compress(&adaptive, CPI, 6, &text(700)).unwrap().to_vec();
    for len in 0..packet.len() {
        assert_eq!(c.expand(&packet[..len], CPI, &mut Vec::new()), None, "cut to {len}");
    }
    // Block type 3, a length that is not its complement, a distance before the beginning.
    for lie in ["07", "010500fbff41", "4b044200", ""] {
        assert_eq!(inflate(&unhex(lie)), None, "{lie}");
    }
    assert_eq!(c.expand(&packet, CPI + 1, &mut Vec::new()), None, "another CPI");
}

#[test]
fn bytes_behind_the_stream_and_flags_are_passed_over() {
    let mut data = stored(&[b"abc"]);
    data.extend_from_slice(&[0xff; 9]);
    assert_eq!(inflate(&data).as_deref(), Some(&b"abc"[..]));
    let mut out = Vec::new();
    let packet = [&[6, 0xff, 0x12, 0x34][..], &data].concat();
    assert_eq!(Compressor::default().expand(&packet, CPI, &mut out), Some((6, 0..3)));
}

#[test]
fn a_bomb_stops_at_the_longest_packet() {
    let bomb = |len: usize| {
        let mut c = libdeflater::Compressor::new(CompressionLvl::best());
        let mut out = vec![0; c.deflate_compress_bound(len)];
        let n = c.deflate_compress(&vec![7; len], &mut out).unwrap();
        out.truncate(n);
        out
    };
    assert_eq!(inflate(&bomb(MAX_EXPANDED)).map(|out| out.len()), Some(MAX_EXPANDED));
    assert_eq!(inflate(&bomb(MAX_EXPANDED + 1)), None);
    let big = bomb(10_000_000);
    assert!(big.len() < MAX_EXPANDED);
    assert_eq!(inflate(&big), None);
}

#[test]
fn nothing_grows_and_short_and_long_payloads_go_as_they_are() {
    let mut c = Compressor::default();
    for len in (0..300).chain([1_400, 2_048]) {
        assert_eq!(c.compress(&Adaptive::default(), CPI, 6, &random(len, 1)), None, "{len}");
    }
    for len in [0, 1, 89, 2_049, 65_535] {
        assert_eq!(c.compress(&Adaptive::default(), CPI, 6, &text(len)), None, "{len}");
    }
    assert!(c.compress(&Adaptive::default(), CPI, 6, &text(90)).is_some());
}

#[test]
fn a_payload_that_gains_one_byte_is_compressed_and_one_that_gains_none_is_not() {
    let mut seen = [0; 2];
    let mut library = libdeflater::Compressor::new(CompressionLvl::new(LEVEL).unwrap());
    for (len, repeated) in (150..250).flat_map(|len| (4..30).map(move |repeated| (len, repeated))) {
        // Random bytes, of which the last repeat the first: so much shorter it becomes.
        let mut payload = random(len, repeated as u64);
        payload.copy_within(..repeated, len - repeated);
        let written = library.deflate_compress(&payload, &mut [0; 300]).unwrap();
        let compressed =
            Compressor::default().compress(&Adaptive::default(), CPI, 6, &payload).map(<[u8]>::len);
        let shorter = HEADER + written < payload.len();
        assert_eq!(compressed, shorter.then_some(HEADER + written));
        if let Some(gained) = (payload.len() + 1).checked_sub(HEADER + written).filter(|n| (1..3).contains(n))
        {
            seen[gained - 1] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "no payload at the bound: {seen:?}");
}

#[test]
fn what_we_make_stays_within_a_window_of_2048_bytes() {
    // The farthest match there can be: the end of the longest payload repeats its beginning.
    let mut payload = random(WINDOW, 5);
    payload.copy_within(..600, WINDOW - 600);
    let (mut c, adaptive) = (Compressor::default(), Adaptive::default());
    let packet = c.compress(&adaptive, CPI, 6, &payload).unwrap();
    assert!(packet.len() < WINDOW - 500, "the match was found");
}

#[test]
fn random_data_is_hardly_tried_and_text_after_it_is_compressed_soon() {
    let (mut c, adaptive) = (Compressor::default(), Adaptive::default());
    let (noise, letter) = (random(1_400, 9), text(1_400));
    let mut tried = Vec::new();
    for i in 0..30_000 {
        let before = adaptive.failed.load(Relaxed);
        assert_eq!(c.compress(&adaptive, CPI, 6, &noise), None);
        if adaptive.failed.load(Relaxed) != before {
            tried.push(i);
        }
    }
    assert!(tried.len() < 30, "{}", tried.len());
    let gaps: Vec<_> = tried.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.is_sorted() && gaps.last() == Some(&(Adaptive::MAX_SKIP as usize + 1)), "{gaps:?}");
    let compressed = |c: &mut Compressor| c.compress(&adaptive, CPI, 6, &letter).is_some();
    let soon = (0..).position(|_| compressed(&mut c)).unwrap();
    assert!(soon <= Adaptive::MAX_SKIP as usize, "{soon}");
    assert!((0..1_000).all(|_| compressed(&mut c)), "from then on all is compressed");
}

#[test]
fn text_and_random_data_may_take_turns() {
    let (mut c, adaptive) = (Compressor::default(), Adaptive::default());
    let (noise, letter) = (random(1_400, 9), text(1_400));
    for i in 0..1_000 {
        let text = i % 3 == 0;
        let found = c.compress(&adaptive, CPI, 6, if text { &letter } else { &noise });
        assert_eq!(found.is_some(), text, "{i}");
    }
}

proptest! {
    #[test]
    fn every_payload_comes_back(
        words in prop::collection::vec("[a-e]{1,9}", 1..400),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        next_header: u8,
        cpi: u16,
    ) {
        let mut payload = words.join(" ").into_bytes();
        payload.extend_from_slice(&noise);
        let mut c = Compressor::default();
        if let Some(packet) = c.compress(&Adaptive::default(), cpi, next_header, &payload) {
            prop_assert!(packet.len() < payload.len());
            let packet = packet.to_vec();
            let mut out = Vec::new();
            prop_assert_eq!(c.expand(&packet, cpi, &mut out), Some((next_header, 0..payload.len())));
            prop_assert_eq!(out, payload);
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_exceed_its_bound(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut out = Vec::new();
        let cpi = bytes.get(2..4).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let found = Compressor::default().expand(&bytes, cpi, &mut out);
        prop_assert!(out.len() <= MAX_EXPANDED);
        prop_assert_eq!(found.is_some_and(|(_, range)| !range.is_empty()), !out.is_empty());
    }
}
