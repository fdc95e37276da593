//! AES (FIPS 197) by the processor's instructions: the key schedule, and the rounds of up to eight
//! pairs of blocks.

use std::arch::x86_64::{
    __m256i, _mm_aesenclast_si128, _mm_cvtsi128_si32, _mm_set1_epi32, _mm_setzero_si128,
    _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_castsi256_si128, _mm256_xor_si256,
};

use zeroize::Zeroize;

use super::key::GcmKey;
use super::lanes::{store, twice};

/// FIPS 197 section 5.2. Gives the number of rounds. `key` has 16, 24 or 32 bytes.
#[target_feature(enable = "avx2,aes")]
pub(super) fn expand(key: &[u8], round_keys: &mut [[u8; 16]; 15]) -> u8 {
    let key_words = key.len() / 4;
    let rounds = key_words + 6;
    let mut words = [0u32; 60];
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut constant = 1u8;
    for i in key_words..4 * (rounds + 1) {
        let mut last = words[i - 1];
        if i % key_words == 0 {
            last = sub_word(last.rotate_right(8)) ^ u32::from(constant);
            constant = constant << 1 ^ if constant & 0x80 != 0 { 0x1b } else { 0 };
        } else if key_words == 8 && i % 8 == 4 {
            last = sub_word(last);
        }
        words[i] = words[i - key_words] ^ last;
    }
    for (bytes, word) in round_keys.as_flattened_mut().as_chunks_mut().0.iter_mut().zip(&words) {
        *bytes = word.to_le_bytes();
    }
    words.zeroize();
    rounds as u8
}

/// The S-box on four bytes: the last round without key, on four columns alike, which ShiftRows
/// leaves as they are.
#[inline]
#[target_feature(enable = "avx2,aes")]
fn sub_word(word: u32) -> u32 {
    _mm_cvtsi128_si32(_mm_aesenclast_si128(_mm_set1_epi32(word as i32), _mm_setzero_si128())) as u32
}

/// One block alone, in place.
#[target_feature(enable = "avx2,vaes")]
pub(super) fn block(key: &GcmKey, block: &mut [u8; 16]) {
    let mut pairs = [_mm256_xor_si256(twice(block), twice(&key.round_keys[0]))];
    for i in 1..10 {
        round(key, i, &mut pairs);
    }
    last_rounds(key, &mut pairs);
    store(block, _mm256_castsi256_si128(pairs[0]));
}

/// Round `i` of 1 to 9.
#[inline]
#[target_feature(enable = "avx2,vaes")]
pub(super) fn round<const N: usize>(key: &GcmKey, i: usize, pairs: &mut [__m256i; N]) {
    let round_key = twice(&key.round_keys[i]);
    for pair in pairs {
        *pair = _mm256_aesenc_epi128(*pair, round_key);
    }
}

/// Round 10 and what longer keys have after it.
#[inline]
#[target_feature(enable = "avx2,vaes")]
pub(super) fn last_rounds<const N: usize>(key: &GcmKey, pairs: &mut [__m256i; N]) {
    let mut last = twice(&key.round_keys[10]);
    if key.rounds > 10 {
        round(key, 10, pairs);
        round(key, 11, pairs);
        last = twice(&key.round_keys[12]);
        if key.rounds > 12 {
            round(key, 12, pairs);
            round(key, 13, pairs);
            last = twice(&key.round_keys[14]);
        }
    }
    for pair in pairs {
        *pair = _mm256_aesenclast_epi128(*pair, last);
    }
}
