//! 3DES in CBC mode for x86-64 processors with AVX2: 32 blocks side by side, without a look-up that
//! depends on a secret.
//!
//! ```text
//! a vector    one byte of 32 lanes: a lane is a packet (encrypting),
//!             or a block of one packet (decrypting)
//! a half      8 vectors, a nibble of the half in the low four bits of each
//! an S-box    the inner four bits are the nibble itself and pick a column (a byte shuffle),
//!             the outer two come from the neighbours and pick one of four rows (blends)
//! P           the tables have each output bit where it belongs; masks pick the bits of a nibble
//! ```
//!
//! Lanes have their own keys, so packets of different SAs share a pass. CBC can be decrypted block
//! by block, but must be encrypted one after another: with fewer packets than lanes the rest of a
//! pass is wasted.
//!
//! Not here: which key is none (`aws_lc_sys::des`, which has refused it).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `tables` | tables of DES, and those that the compiler makes of them |

mod tables;
#[cfg(test)]
mod tests;

use std::arch::x86_64::*;

use zeroize::Zeroize;

use tables::{BOXES, PC1, PC2, ROUTES, TURNS};

/// Blocks that are worked on side by side.
pub(crate) const LANES: usize = 32;
const BLOCK_LEN: usize = 8;
const ROUNDS: usize = 48;
/// Bytes of a key that has been expanded: one a round and S-box.
const SCHEDULE: usize = ROUNDS * 8;

/// Eight vectors.
type Eight = [__m256i; 8];

/// Whether this processor has what the code here is compiled for.
pub(crate) fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// A 3DES key ready for use: for each round and S-box four bits for the column, then the two outer
/// ones.
pub(crate) struct TripleDesKey {
    encrypt: [[u8; 8]; ROUNDS],
}

impl TripleDesKey {
    /// Without a key so far. `None` when the processor lacks AVX2.
    pub(crate) fn blank() -> Option<Self> {
        available().then_some(Self { encrypt: [[0; 8]; ROUNDS] })
    }

    /// Expands 24 bytes in place; parity is not looked at. `None` for another length.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        let key: &[u8; 24] = key.try_into().ok()?;
        let (keys, _) = key.as_chunks::<BLOCK_LEN>();
        for (i, (key, rounds)) in keys.iter().zip(self.encrypt.chunks_mut(16)).enumerate() {
            expand(u64::from_be_bytes(*key), rounds);
            // Encrypt, decrypt, encrypt: the middle one backwards.
            if i == 1 {
                rounds.reverse();
            }
        }
        Some(())
    }

    /// Decrypts whole blocks in place. Panics unless `text` is a multiple of the block.
    pub(crate) fn decrypt(&self, iv: &[u8; BLOCK_LEN], text: &mut [u8]) {
        let (blocks, rest) = text.as_chunks_mut::<BLOCK_LEN>();
        assert!(rest.is_empty(), "CBC text that is not whole blocks");
        let mut chain = *iv;
        for blocks in blocks.chunks_mut(LANES) {
            let mut lanes = [0; LANES];
            for (lane, block) in lanes.iter_mut().zip(blocks.iter()) {
                *lane = u64::from_le_bytes(*block);
            }
            // SAFETY: `blank` gives a key only where the processor has AVX2.
            unsafe { pass(&mut lanes, |round, sbox| splat(self.encrypt[ROUNDS - 1 - round][sbox])) };
            for (lane, block) in lanes.iter().zip(blocks) {
                let cipher = *block;
                *block = (lane ^ u64::from_le_bytes(chain)).to_le_bytes();
                chain = cipher;
            }
        }
    }
}

impl Drop for TripleDesKey {
    fn drop(&mut self) {
        self.encrypt.as_flattened_mut().zeroize();
    }
}

/// The subkeys of one DES key.
fn expand(key: u64, rounds: &mut [[u8; 8]]) {
    let bit = |of: u64, width: u32, n: u8| of >> (width - u32::from(n)) & 1;
    let mut halves = PC1.iter().fold(0, |all, n| all << 1 | bit(key, 64, *n));
    for (turn, round) in TURNS.iter().zip(rounds) {
        for _ in 0..*turn {
            // Both halves of 28 bits turn left.
            let (left, right) = (halves >> 28, halves & 0xfff_ffff);
            let turned = |half: u64| (half << 1 | half >> 27) & 0xfff_ffff;
            halves = turned(left) << 28 | turned(right);
        }
        for (sbox, six) in round.iter_mut().zip(PC2.chunks(6)) {
            let b: [u8; 6] = std::array::from_fn(|i| bit(halves, 56, six[i]) as u8);
            *sbox = b[1] << 3 | b[2] << 2 | b[3] << 1 | b[4] | b[0] << 4 | b[5] << 5;
        }
    }
}

/// One packet to encrypt: where its text lies in the buffer, whole blocks, and its IV.
pub(crate) struct Text<'a> {
    /// The key.
    pub(crate) key: &'a TripleDesKey,
    /// First byte of the text.
    pub(crate) at: usize,
    /// Length of the text, in bytes.
    pub(crate) len: usize,
    /// The IV.
    pub(crate) iv: [u8; BLOCK_LEN],
}

/// The keys of the lanes, and what is left of their packets.
struct Lanes {
    keys: [[u8; LANES]; SCHEDULE],
    at: [usize; LANES],
    end: [usize; LANES],
    chain: [u64; LANES],
}

/// Encrypts packets in place, as many side by side as there are lanes; a lane whose packet is done
/// takes the next. Panics when a text is not whole blocks inside the buffer.
pub(crate) fn encrypt<'a>(buf: &mut [u8], mut texts: impl Iterator<Item = Text<'a>>) {
    let mut lanes =
        Lanes { keys: [[0; LANES]; SCHEDULE], at: [0; LANES], end: [0; LANES], chain: [0; LANES] };
    loop {
        let mut active = 0;
        let mut blocks = [0; LANES];
        for lane in 0..LANES {
            while lanes.at[lane] == lanes.end[lane]
                && let Some(text) = texts.next()
            {
                assert!(text.len.is_multiple_of(BLOCK_LEN) && text.at + text.len <= buf.len());
                for (row, byte) in lanes.keys.iter_mut().zip(text.key.encrypt.as_flattened()) {
                    row[SLOTS[lane]] = *byte;
                }
                (lanes.at[lane], lanes.end[lane]) = (text.at, text.at + text.len);
                lanes.chain[lane] = u64::from_le_bytes(text.iv);
            }
            if lanes.at[lane] < lanes.end[lane]
                && let Some(block) = buf[lanes.at[lane]..].first_chunk()
            {
                blocks[lane] = u64::from_le_bytes(*block) ^ lanes.chain[lane];
                active += 1;
            }
        }
        if active == 0 {
            break;
        }
        // SAFETY: who has a key has AVX2 (`TripleDesKey::blank`), and without one no lane is
        // active.
        unsafe { pass(&mut blocks, |round, sbox| load(&lanes.keys[round * 8 + sbox])) };
        for lane in 0..LANES {
            if lanes.at[lane] < lanes.end[lane] {
                buf[lanes.at[lane]..][..BLOCK_LEN].copy_from_slice(&blocks[lane].to_le_bytes());
                lanes.at[lane] += BLOCK_LEN;
                lanes.chain[lane] = blocks[lane];
            }
        }
    }
    lanes.keys.as_flattened_mut().zeroize();
}

/// The place in a vector of each lane, as [`rows`] orders them.
const SLOTS: [usize; LANES] = slots();

const fn slots() -> [usize; LANES] {
    // A pair of lanes lies in each half of vector `lane / 4`; vectors are interleaved by 1, 2 and
    // 4.
    let mut out = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        let (vector, half, odd) = (lane / 4, lane / 2 % 2, lane % 2);
        out[lane] = half * 16 + vector * 2 + odd;
        lane += 1;
    }
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte as i8)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(row: &[u8; LANES]) -> __m256i {
    // SAFETY: 32 bytes are read, which the array has; the load needs no alignment.
    unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
}

/// 48 rounds over all lanes; `key` gives the vector for a round and an S-box.
#[inline]
#[target_feature(enable = "avx2")]
fn pass(lanes: &mut [u64; LANES], key: impl Fn(usize, usize) -> __m256i) {
    let bytes = rows(lanes);
    // IP: the bits of all bytes, from the last one on, by their place; then which places come first
    // (FIPS 46-3).
    let t = turned([bytes[7], bytes[6], bytes[5], bytes[4], bytes[3], bytes[2], bytes[1], bytes[0]]);
    let (mut left, mut right) = (nibbles(t[1], t[3], t[5], t[7]), nibbles(t[0], t[2], t[4], t[6]));
    for stage in 0..3 {
        for pair in 0..8 {
            let round = stage * 16 + pair * 2;
            left = mixed(left, &right, |sbox| key(round, sbox));
            right = mixed(right, &left, |sbox| key(round + 1, sbox));
        }
        // The halves are not swapped behind the last round of a DES.
        std::mem::swap(&mut left, &mut right);
    }
    let ([a, b, c, d], [e, f, g, h]) = (joined(&left), joined(&right));
    let t = turned([e, a, f, b, g, c, h, d]);
    *lanes = columns([t[7], t[6], t[5], t[4], t[3], t[2], t[1], t[0]]);
}

/// `left + f(right)`, by nibbles.
#[inline]
#[target_feature(enable = "avx2")]
fn mixed(left: Eight, right: &Eight, key: impl Fn(usize) -> __m256i) -> Eight {
    let mut sum = left;
    for sbox in 0..8 {
        let k = key(sbox);
        let column = _mm256_xor_si256(right[sbox], k);
        // The outer bits, each moved to the top of its byte, which is all that a blend looks at.
        let before = _mm256_slli_epi16::<7>(right[(sbox + 7) % 8]);
        let behind = _mm256_slli_epi16::<4>(right[(sbox + 1) % 8]);
        let upper = _mm256_xor_si256(before, _mm256_slli_epi16::<3>(k));
        let lower = _mm256_xor_si256(behind, _mm256_slli_epi16::<2>(k));
        let row = |n: usize| _mm256_shuffle_epi8(table(&BOXES[sbox][n]), column);
        let first = _mm256_blendv_epi8(row(0), row(1), lower);
        let second = _mm256_blendv_epi8(row(2), row(3), lower);
        let out = _mm256_blendv_epi8(first, second, upper);
        for (to, mask) in ROUTES[sbox] {
            sum[to] = _mm256_xor_si256(sum[to], _mm256_and_si256(out, splat(mask)));
        }
    }
    // Bits that had to make room are four places too high.
    sum.map(|n| _mm256_and_si256(_mm256_xor_si256(n, _mm256_srli_epi16::<4>(n)), splat(0x0f)))
}

/// A table of 16 bytes in both halves of a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn table(row: &[u8; 16]) -> __m256i {
    // SAFETY: 16 bytes are read, which the array has; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(row.as_ptr().cast()) })
}

/// Four bytes as eight nibbles.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> Eight {
    let high = |v| _mm256_and_si256(_mm256_srli_epi16::<4>(v), splat(0x0f));
    let low = |v| _mm256_and_si256(v, splat(0x0f));
    [high(a), low(a), high(b), low(b), high(c), low(c), high(d), low(d)]
}

/// The way back.
#[inline]
#[target_feature(enable = "avx2")]
fn joined(n: &Eight) -> [__m256i; 4] {
    std::array::from_fn(|i| _mm256_or_si256(_mm256_slli_epi16::<4>(n[2 * i]), n[2 * i + 1]))
}

/// Eight rows of eight bits turned into columns, in every lane: bit `c` of row `r` becomes bit `r`
/// of row `c`, from the top.
#[inline]
#[target_feature(enable = "avx2")]
fn turned(mut rows: Eight) -> Eight {
    macro_rules! swap {
        ($by:literal, $mask:literal, $($a:literal $b:literal),+) => {$(
            let mask = splat($mask);
            let (a, b) = (rows[$a], rows[$b]);
            let t = _mm256_and_si256(_mm256_xor_si256(a, _mm256_srli_epi16::<$by>(b)), mask);
            rows[$a] = _mm256_xor_si256(a, t);
            rows[$b] = _mm256_xor_si256(b, _mm256_slli_epi16::<$by>(t));
        )+};
    }
    swap!(1, 0x55, 0 1, 2 3, 4 5, 6 7);
    swap!(2, 0x33, 0 2, 1 3, 4 6, 5 7);
    swap!(4, 0x0f, 0 4, 1 5, 2 6, 3 7);
    rows
}

/// Vector `b` gets byte `b` of every lane, in the order of [`SLOTS`].
#[inline]
#[target_feature(enable = "avx2")]
fn rows(lanes: &[u64; LANES]) -> Eight {
    let pairs = _mm256_setr_epi8(
        0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14,
        7, 15,
    );
    let (fours, _) = lanes.as_chunks::<4>();
    let v: Eight = std::array::from_fn(|i| {
        // SAFETY: four numbers of 8 bytes are read; the load needs no alignment.
        let four = unsafe { _mm256_loadu_si256(fours[i].as_ptr().cast()) };
        _mm256_shuffle_epi8(four, pairs)
    });
    let low = |a, b| _mm256_unpacklo_epi16(a, b);
    let high = |a, b| _mm256_unpackhi_epi16(a, b);
    // Bytes 0 to 3, and 4 to 7, of vectors 0 1, 2 3, 4 5, 6 7.
    let l = [low(v[0], v[1]), low(v[2], v[3]), low(v[4], v[5]), low(v[6], v[7])];
    let h = [high(v[0], v[1]), high(v[2], v[3]), high(v[4], v[5]), high(v[6], v[7])];
    let four = |q: [__m256i; 4]| {
        let a = _mm256_unpacklo_epi32(q[0], q[1]);
        let b = _mm256_unpackhi_epi32(q[0], q[1]);
        let c = _mm256_unpacklo_epi32(q[2], q[3]);
        let d = _mm256_unpackhi_epi32(q[2], q[3]);
        [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ]
    };
    let ([a, b, c, d], [e, f, g, h]) = (four(l), four(h));
    [a, b, c, d, e, f, g, h]
}

/// The way back.
#[inline]
#[target_feature(enable = "avx2")]
fn columns(rows: Eight) -> [u64; LANES] {
    let mut bytes = [[0u8; LANES]; 8];
    for (row, out) in rows.into_iter().zip(&mut bytes) {
        // SAFETY: 32 bytes are written, which the array has; the store needs no alignment.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), row) };
    }
    std::array::from_fn(|lane| u64::from_le_bytes(std::array::from_fn(|b| bytes[b][SLOTS[lane]])))
}
