//! Seal and open of one packet.
//!
//! A long text is worked on in groups of 16 blocks. Every round of AES on eight pairs is followed
//! by the products of one pair in GHASH: the two use different units of the processor, and neither
//! waits for the other. Open hashes the group that it decrypts; seal the group before, whose cipher
//! text is there already.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_set_epi64x, _mm_setzero_si128, _mm_xor_si128, _mm256_add_epi32,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_set_epi32,
    _mm256_set_m128i, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_xor_si256, _mm256_zextsi128_si256,
};

use super::aes::{last_rounds, round};
use super::ghash::{Sum, h_and, times_h, two_powers};
use super::key::{GcmKey, NONCE_LEN};
use super::lanes::{PAIR, keep, load_end, load_pair, reflect, store, store_end, store_pair, twice};

/// Pairs of a group.
const PAIRS: usize = 8;
/// Bytes of a group.
const GROUP: usize = PAIRS * PAIR;
/// Bytes of text of the first group.
const FIRST: usize = GROUP - PAIR;

/// Calls a function generic over the number of pairs.
macro_rules! by_pairs {
    ($pairs:expr, $name:ident($($arg:expr),*)) => {
        match $pairs {
            0 => $name::<0>($($arg),*),
            1 => $name::<1>($($arg),*),
            2 => $name::<2>($($arg),*),
            3 => $name::<3>($($arg),*),
            4 => $name::<4>($($arg),*),
            5 => $name::<5>($($arg),*),
            6 => $name::<6>($($arg),*),
            7 => $name::<7>($($arg),*),
            _ => $name::<8>($($arg),*),
        }
    };
}

/// The tag.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
pub(super) fn seal(key: &GcmKey, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; 16] {
    let lens = lens(aad, text);
    let counter = Counter::new(key, nonce);
    let aad = aad_block(key, aad);
    if text.len() <= FIRST {
        return by_pairs!(1 + text.len().div_ceil(PAIR), seal_short(key, &counter, aad, text, lens));
    }
    seal_long(key, counter, aad, text, lens)
}

/// The tag that the packet ought to have. The text is decrypted whether or not it has it.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
pub(super) fn open(key: &GcmKey, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; 16] {
    let lens = lens(aad, text);
    let counter = Counter::new(key, nonce);
    let aad = aad_block(key, aad);
    if text.len() <= FIRST {
        return by_pairs!(1 + text.len().div_ceil(PAIR), open_short(key, &counter, aad, text, lens));
    }
    open_long(key, counter, aad, text, lens)
}

/// The counters of a group, already under the first round key.
struct Counter {
    /// With counter 0.
    nonce: __m256i,
    /// With the counter of the group.
    base: __m256i,
    /// The counter of the group, in the machine's order.
    at: __m256i,
}

impl Counter {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(key: &GcmKey, nonce: &[u8; NONCE_LEN]) -> Self {
        // Salt and IV are read as they were written: a load across two fresh stores would wait for
        // both.
        let (salt, iv) =
            nonce.split_first_chunk().map_or(([0; 4], [0; 8]), |(s, i)| (*s, i.try_into().unwrap_or([0; 8])));
        let (salt, iv) = (u64::from(u32::from_le_bytes(salt)), u64::from_le_bytes(iv));
        let base = _mm_set_epi64x((iv >> 32) as i64, (iv << 32 | salt) as i64);
        let base = _mm256_broadcastsi128_si256(base);
        let nonce = _mm256_xor_si256(base, twice(&key.round_keys[0]));
        Self { nonce, base: nonce, at: _mm256_setzero_si256() }
    }

    /// The first `N` pairs of the group.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs<const N: usize>(&self) -> [__m256i; N] {
        let mut pairs = [self.base; N];
        for (i, pair) in pairs.iter_mut().enumerate() {
            let low = 2 * i as i32;
            let bits = _mm256_set_epi32((low + 1) << 24, 0, 0, 0, low << 24, 0, 0, 0);
            *pair = _mm256_xor_si256(*pair, bits);
        }
        pairs
    }

    /// The next group.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn next(&mut self) {
        const ORDER: [u8; 16] =
            [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 3, 2, 1, 0];
        self.at = _mm256_add_epi32(self.at, _mm256_set_epi32(0, 0, 0, 16, 0, 0, 0, 16));
        self.base = _mm256_xor_si256(self.nonce, _mm256_shuffle_epi8(self.at, twice(&ORDER)));
    }
}

/// The lengths in bits, as the last block of GHASH.
#[inline]
#[target_feature(enable = "avx2")]
fn lens(aad: &[u8], text: &[u8]) -> __m128i {
    _mm_set_epi64x(aad.len() as i64 * 8, text.len() as i64 * 8)
}

/// The last block of additional data, with what GHASH made of those before it. ESP has 8 bytes of
/// it, or 12.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,vpclmulqdq")]
fn aad_block(key: &GcmKey, aad: &[u8]) -> __m128i {
    match (aad.first_chunk(), aad.last_chunk()) {
        (Some(first), _) if aad.len() == 8 => _mm_set_epi64x(i64::from_be_bytes(*first), 0),
        (Some(first), Some(last)) if aad.len() == 12 => {
            _mm_set_epi64x(i64::from_be_bytes(*first), i64::from(u32::from_be_bytes(*last)) << 32)
        }
        _ => other_aad(key, aad),
    }
}

/// Of any length.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx2,pclmulqdq,vpclmulqdq")]
fn other_aad(key: &GcmKey, aad: &[u8]) -> __m128i {
    let mut hash = _mm_setzero_si128();
    for block in aad.chunks(16) {
        let block = _mm256_castsi256_si128(reflect(load_end(block)));
        hash = _mm_xor_si128(times_h(key, hash).reduce(), block);
    }
    hash
}

/// All rounds; after each of the first eight, `step` with its number from 0, which adds products to
/// `sum`.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn weave<const N: usize>(
    key: &GcmKey,
    pairs: &mut [__m256i; N],
    sum: &mut Sum,
    mut step: impl FnMut(usize, &mut Sum),
) {
    // Written out: as a loop it is not always unrolled, and then neither round keys nor products
    // are constants of it.
    macro_rules! each {
        ($($i:literal)+) => {$(
            round(key, $i, pairs);
            step($i - 1, sum);
            sum.tie(pairs);
        )+};
    }
    each!(1 2 3 4 5 6 7 8);
    round(key, 9, pairs);
    last_rounds(key, pairs);
}

/// All rounds, with nothing beside them.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn rounds<const N: usize>(key: &GcmKey, pairs: &mut [__m256i; N]) {
    for i in 1..10 {
        round(key, i, pairs);
    }
    last_rounds(key, pairs);
}

/// How the last group is hashed: the power of its first block, and whether the lengths come after a
/// reduction of their own, there being no power left for them.
#[inline]
fn last_group(blocks: usize) -> (usize, bool) {
    if blocks == 16 { (16, true) } else { (blocks + 1, false) }
}

/// The tag; `mask` is the block of counter 1.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn tag(sum: Sum, mask: __m128i) -> [u8; 16] {
    let hash = _mm256_castsi256_si128(reflect(_mm256_zextsi128_si256(sum.reduce())));
    let mut tag = [0; 16];
    store(&mut tag, _mm_xor_si128(hash, mask));
    tag
}

/// Encrypts the text of the last group. The key stream of its first pair is at `from`, and so is
/// what is given: the pairs as GHASH wants them.
#[inline]
#[target_feature(enable = "avx2")]
fn encrypt_last<const N: usize>(stream: &[__m256i; N], from: usize, text: &mut [u8]) -> [__m256i; N] {
    let mut out = [_mm256_setzero_si256(); N];
    if N > from {
        let mut before = _mm256_setzero_si256();
        for (i, bytes) in text[..PAIR * (N - 1 - from)].as_chunks_mut().0.iter_mut().enumerate() {
            before = _mm256_xor_si256(load_pair(bytes), stream[from + i]);
            store_pair(bytes, before);
            out[from + i] = reflect(before);
        }
        let pair = _mm256_xor_si256(load_end(text), stream[N - 1]);
        store_end(text, before, pair);
        out[N - 1] = reflect(keep(pair, text.len() - PAIR * (N - 1 - from)));
    }
    out
}

/// The same for decryption, which hashes before.
#[inline]
#[target_feature(enable = "avx2")]
fn decrypt_last<const N: usize>(stream: &[__m256i; N], from: usize, text: &mut [u8]) {
    if N > from {
        let end = load_end(text);
        let mut before = _mm256_setzero_si256();
        for (i, bytes) in text[..PAIR * (N - 1 - from)].as_chunks_mut().0.iter_mut().enumerate() {
            before = _mm256_xor_si256(load_pair(bytes), stream[from + i]);
            store_pair(bytes, before);
        }
        store_end(text, before, _mm256_xor_si256(end, stream[N - 1]));
    }
}

/// Pair `i` of a text, as GHASH wants it, and whole.
#[inline]
#[target_feature(enable = "avx2")]
fn hashed(text: &[u8], i: usize) -> __m256i {
    match text.get(PAIR * i..).and_then(<[u8]>::first_chunk) {
        Some(pair) => reflect(load_pair(pair)),
        None => _mm256_setzero_si256(),
    }
}

/// A text of one group: lengths and additional data make one pair, whose halves are far apart.
#[inline]
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn seal_short<const N: usize>(
    key: &GcmKey,
    counter: &Counter,
    aad: __m128i,
    text: &mut [u8],
    lens: __m128i,
) -> [u8; 16] {
    let mut pairs = counter.pairs::<N>();
    let blocks = text.len().div_ceil(16);
    let mut sum = Sum::zero();
    sum.add(_mm256_set_m128i(aad, lens), h_and(key, blocks + 2));
    rounds(key, &mut pairs);
    let hashed = encrypt_last(&pairs, 1, text);
    for (i, pair) in hashed.into_iter().skip(1).enumerate() {
        sum.add(pair, two_powers(key, blocks + 1 - 2 * i));
    }
    tag(sum, _mm256_extracti128_si256::<1>(pairs[0]))
}

#[inline]
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn open_short<const N: usize>(
    key: &GcmKey,
    counter: &Counter,
    aad: __m128i,
    text: &mut [u8],
    lens: __m128i,
) -> [u8; 16] {
    let mut pairs = counter.pairs::<N>();
    let blocks = text.len().div_ceil(16);
    let mut sum = Sum::zero();
    sum.add(_mm256_set_m128i(aad, lens), h_and(key, blocks + 2));
    let end = reflect(load_end(text));
    weave(key, &mut pairs, &mut sum, |i, sum| {
        if i + 1 < N {
            sum.add(if i + 2 == N { end } else { hashed(text, i) }, two_powers(key, blocks + 1 - 2 * i));
        }
    });
    decrypt_last(&pairs, 1, text);
    tag(sum, _mm256_extracti128_si256::<1>(pairs[0]))
}

/// A text of more than one group.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn seal_long(key: &GcmKey, mut counter: Counter, aad: __m128i, text: &mut [u8], lens: __m128i) -> [u8; 16] {
    let lens = times_h(key, lens);
    let aad = _mm256_set_m128i(aad, _mm_setzero_si128());
    let mut pairs = counter.pairs::<PAIRS>();
    rounds(key, &mut pairs);
    let mask = _mm256_extracti128_si256::<1>(pairs[0]);
    let (first, rest) = text.split_at_mut(FIRST);
    let (groups, text) = rest.as_chunks_mut::<GROUP>();
    for (bytes, stream) in first.as_chunks_mut().0.iter_mut().zip(&pairs[1..]) {
        store_pair(bytes, _mm256_xor_si256(load_pair(bytes), *stream));
    }
    // The group to be hashed: its first pair, with the hash so far in it, and where the others are.
    let (mut head, mut others) = (aad, &*first);
    for group in groups {
        counter.next();
        let mut pairs = counter.pairs::<PAIRS>();
        let mut sum = Sum::zero();
        weave(key, &mut pairs, &mut sum, |i, sum| {
            let i = (i + 1) % PAIRS;
            let pair = if i == 0 { head } else { hashed(others, i - 1) };
            sum.add(pair, two_powers(key, 16 - 2 * i));
        });
        let hash = _mm256_zextsi128_si256(sum.reduce());
        for (bytes, stream) in group.as_chunks_mut().0.iter_mut().zip(&pairs) {
            store_pair(bytes, _mm256_xor_si256(load_pair(bytes), *stream));
        }
        head = _mm256_xor_si256(hashed(group, 0), hash);
        others = &group[PAIR..];
    }
    counter.next();
    by_pairs!(text.len().div_ceil(PAIR), seal_rest(key, &counter, (head, others), text, &lens, mask))
}

/// The last group of a long text, and the hash of the one before it.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn seal_rest<const N: usize>(
    key: &GcmKey,
    counter: &Counter,
    (head, others): (__m256i, &[u8]),
    text: &mut [u8],
    lens: &Sum,
    mask: __m128i,
) -> [u8; 16] {
    let mut pairs = counter.pairs::<N>();
    let mut sum = Sum::zero();
    weave(key, &mut pairs, &mut sum, |i, sum| {
        let pair = if i == 0 { head } else { hashed(others, i - 1) };
        sum.add(pair, two_powers(key, 16 - 2 * i));
    });
    let hash = sum.reduce();
    let mut sum = *lens;
    if N == 0 {
        sum.join(&times_h(key, hash));
        return tag(sum, mask);
    }
    let (top, late) = last_group(text.len().div_ceil(16));
    let mut sum = if late { Sum::zero() } else { sum };
    let mut hashed = encrypt_last(&pairs, 0, text);
    hashed[0] = _mm256_xor_si256(hashed[0], _mm256_zextsi128_si256(hash));
    for (i, pair) in hashed.into_iter().enumerate() {
        sum.add(pair, two_powers(key, top - 2 * i));
    }
    if late {
        sum = times_h(key, sum.reduce());
        sum.join(lens);
    }
    tag(sum, mask)
}

/// A text of more than one group.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn open_long(key: &GcmKey, mut counter: Counter, aad: __m128i, text: &mut [u8], lens: __m128i) -> [u8; 16] {
    let lens = times_h(key, lens);
    let aad = _mm256_set_m128i(aad, _mm_setzero_si128());
    let mut pairs = counter.pairs::<PAIRS>();
    let (first, rest) = text.split_at_mut(FIRST);
    let (groups, text) = rest.as_chunks_mut::<GROUP>();
    let mut sum = Sum::zero();
    weave(key, &mut pairs, &mut sum, |i, sum| {
        let pair = if i == 0 { aad } else { hashed(first, i - 1) };
        sum.add(pair, two_powers(key, 16 - 2 * i));
    });
    let mask = _mm256_extracti128_si256::<1>(pairs[0]);
    for (bytes, stream) in first.as_chunks_mut().0.iter_mut().zip(&pairs[1..]) {
        store_pair(bytes, _mm256_xor_si256(load_pair(bytes), *stream));
    }
    let mut hash = sum.reduce();
    for group in groups {
        counter.next();
        let mut pairs = counter.pairs::<PAIRS>();
        let mut sum = Sum::zero();
        weave(key, &mut pairs, &mut sum, |i, sum| {
            let mut pair = hashed(group, i);
            if i == 0 {
                pair = _mm256_xor_si256(pair, _mm256_zextsi128_si256(hash));
            }
            sum.add(pair, two_powers(key, 16 - 2 * i));
        });
        for (bytes, stream) in group.as_chunks_mut().0.iter_mut().zip(&pairs) {
            store_pair(bytes, _mm256_xor_si256(load_pair(bytes), *stream));
        }
        hash = sum.reduce();
    }
    counter.next();
    by_pairs!(text.len().div_ceil(PAIR), open_rest(key, &counter, hash, text, &lens, mask))
}

/// The last group of a long text.
#[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
fn open_rest<const N: usize>(
    key: &GcmKey,
    counter: &Counter,
    hash: __m128i,
    text: &mut [u8],
    lens: &Sum,
    mask: __m128i,
) -> [u8; 16] {
    let mut sum = *lens;
    if N == 0 {
        sum.join(&times_h(key, hash));
        return tag(sum, mask);
    }
    let mut pairs = counter.pairs::<N>();
    let (top, late) = last_group(text.len().div_ceil(16));
    let mut sum = if late { Sum::zero() } else { sum };
    let end = reflect(load_end(text));
    weave(key, &mut pairs, &mut sum, |i, sum| {
        if i < N {
            let mut pair = if i + 1 == N { end } else { hashed(text, i) };
            if i == 0 {
                pair = _mm256_xor_si256(pair, _mm256_zextsi128_si256(hash));
            }
            sum.add(pair, two_powers(key, top - 2 * i));
        }
    });
    if late {
        sum = times_h(key, sum.reduce());
        sum.join(lens);
    }
    decrypt_last(&pairs, 0, text);
    tag(sum, mask)
}
