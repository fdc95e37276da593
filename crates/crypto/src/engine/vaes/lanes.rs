//! Between bytes and vectors: whole pairs of blocks, and the last one of a text, which need not be
//! full.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_or_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_shuffle_epi8,
    _mm_storeu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_set_m128i, _mm256_shuffle_epi8, _mm256_storeu_si256,
    _mm256_zextsi128_si256,
};

/// Bytes of two blocks.
pub(super) const PAIR: usize = 32;

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: reads the 16 bytes of `bytes`; an unaligned load has no other demand.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// One block, in both halves.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn twice(bytes: &[u8; 16]) -> __m256i {
    _mm256_broadcastsi128_si256(load(bytes))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_pair(bytes: &[u8; PAIR]) -> __m256i {
    // SAFETY: reads the 32 bytes of `bytes`; an unaligned load has no other demand.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(to: &mut [u8; 16], value: __m128i) {
    // SAFETY: writes the 16 bytes of `to`; an unaligned store has no other demand.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_pair(to: &mut [u8; PAIR], value: __m256i) {
    // SAFETY: writes the 32 bytes of `to`; an unaligned store has no other demand.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// Reverses the bytes of each block: from the order of packets to that of [`super::ghash`], or
/// back.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reflect(pair: __m256i) -> __m256i {
    const ORDER: [u8; 16] = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0];
    _mm256_shuffle_epi8(pair, twice(&ORDER))
}

/// Up to 15 bytes, the rest zero; the first byte is the lowest. Reads that overlap instead of a
/// copy through memory.
#[inline]
pub(super) fn short(bytes: &[u8]) -> u128 {
    let len = bytes.len();
    if let (Some(a), Some(b)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u128::from(u64::from_le_bytes(*a)) | u128::from(u64::from_le_bytes(*b)) << (8 * (len - 8))
    } else if let (Some(a), Some(b)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u128::from(u64::from(u32::from_le_bytes(*a)) | u64::from(u32::from_le_bytes(*b)) << (8 * (len - 4)))
    } else if let (Some(a), Some(b)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u128::from(u32::from(u16::from_le_bytes(*a)) | u32::from(u16::from_le_bytes(*b)) << (8 * (len - 2)))
    } else {
        bytes.first().map_or(0, |b| u128::from(*b))
    }
}

/// Writes the lowest bytes of `value`, up to 15.
#[inline]
fn store_short(to: &mut [u8], value: u128) {
    let len = to.len();
    if len >= 8 {
        to[..8].copy_from_slice(&(value as u64).to_le_bytes());
        to[len - 8..].copy_from_slice(&((value >> (8 * (len - 8))) as u64).to_le_bytes());
    } else if len >= 4 {
        to[..4].copy_from_slice(&(value as u32).to_le_bytes());
        to[len - 4..].copy_from_slice(&(((value as u64) >> (8 * (len - 4))) as u32).to_le_bytes());
    } else if len >= 2 {
        to[..2].copy_from_slice(&(value as u16).to_le_bytes());
        to[len - 2..].copy_from_slice(&(((value as u32) >> (8 * (len - 2))) as u16).to_le_bytes());
    } else if len == 1 {
        to[0] = value as u8;
    }
}

/// Moves the bytes of a block towards its beginning (`by` positive) or its end, by up to 16; zeros
/// come in.
#[inline]
#[target_feature(enable = "avx2")]
fn moved(block: __m128i, by: isize) -> __m128i {
    const ORDER: [u8; 48] = {
        let mut order = [0x80; 48];
        let mut i = 0;
        while i < 16 {
            order[16 + i] = i as u8;
            i += 1;
        }
        order
    };
    match ORDER.get(16usize.wrapping_add_signed(by)..).and_then(<[u8]>::first_chunk) {
        Some(order) => _mm_shuffle_epi8(block, load(order)),
        None => _mm_setzero_si128(),
    }
}

/// How many bytes of the last pair a text has: 1 to 32, or none of an empty one.
#[inline]
fn end_len(text: &[u8]) -> usize {
    if text.is_empty() { 0 } else { (text.len() - 1) % PAIR + 1 }
}

/// The last pair of a text, which need not be full, with zeros after it. The reads lie within the
/// text: the last 16 bytes are read whole and moved.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_end(text: &[u8]) -> __m256i {
    let len = end_len(text);
    match (text[text.len() - len..].first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => match text.last_chunk() {
            Some(pair) if len == PAIR => load_pair(pair),
            _ => _mm256_set_m128i(moved(load(last), (PAIR - len) as isize), load(first)),
        },
        (None, Some(last)) => _mm256_zextsi128_si256(moved(load(last), (16 - len) as isize)),
        _ => {
            let value = short(text);
            _mm256_zextsi128_si256(_mm_set_epi64x((value >> 64) as i64, value as i64))
        }
    }
}

/// Writes the last pair of a text, of which `before` is the pair before, if there is one: the last
/// 16 bytes are written whole.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_end(text: &mut [u8], before: __m256i, pair: __m256i) {
    let len = end_len(text);
    let start = text.len() - len;
    if let (PAIR, Some(to)) = (len, text.last_chunk_mut()) {
        return store_pair(to, pair);
    }
    let low = _mm256_castsi256_si128(pair);
    if let Some(to) = text[start..].first_chunk_mut() {
        store(to, low);
    }
    if let Some(to) = text.last_chunk_mut() {
        let over = (len % 16) as isize;
        let (first, second) = if len >= 16 {
            (low, _mm256_extracti128_si256::<1>(pair))
        } else {
            (_mm256_extracti128_si256::<1>(before), low)
        };
        return store(to, _mm_or_si128(moved(first, over), moved(second, over - 16)));
    }
    let mut bytes = [0; 16];
    store(&mut bytes, low);
    store_short(text, u128::from_le_bytes(bytes));
}

/// The first `len` bytes of a pair, zero after them.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn keep(pair: __m256i, len: usize) -> __m256i {
    const WINDOW: [u8; 2 * PAIR] = {
        let mut window = [0; 2 * PAIR];
        let mut i = 0;
        while i < PAIR {
            window[i] = 0xff;
            i += 1;
        }
        window
    };
    match WINDOW[PAIR - len.min(PAIR)..].first_chunk() {
        Some(mask) => _mm256_and_si256(pair, load_pair(mask)),
        None => pair,
    }
}
