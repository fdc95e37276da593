//! GHASH (SP 800-38D section 6.4), two blocks per instruction.
//!
//! A block is read with its bytes reversed: then bit i of the word is the coefficient of x^(127 -
//! i), and the product of two words is that of the polynomials, reflected and one bit short. That
//! bit is put into the powers of H, which are kept times x. Products are summed up as three words
//! (Karatsuba) over all blocks of a group and reduced once.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_set_epi64x, _mm_unpackhi_epi64, _mm_xor_si128,
    _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_set_m128i,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_unpackhi_epi64, _mm256_xor_si256,
    _mm256_zextsi128_si256,
};

use super::key::GcmKey;
use super::lanes::{load, load_pair, store};

/// Products that are not yet reduced: each half of a word is a sum of its own.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    low: __m256i,
    middle: __m256i,
    high: __m256i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn zero() -> Self {
        let zero = _mm256_setzero_si256();
        Self { low: zero, middle: zero, high: zero }
    }

    /// Adds another sum.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn join(&mut self, other: &Self) {
        self.low = _mm256_xor_si256(self.low, other.low);
        self.high = _mm256_xor_si256(self.high, other.high);
        self.middle = _mm256_xor_si256(self.middle, other.middle);
    }

    /// Adds `pair` times `powers`.
    #[inline]
    #[target_feature(enable = "avx2,vpclmulqdq")]
    pub(super) fn add(&mut self, pair: __m256i, powers: __m256i) {
        let halves = |v| _mm256_xor_si256(v, _mm256_unpackhi_epi64(v, v));
        let low = _mm256_clmulepi64_epi128::<0x00>(pair, powers);
        let high = _mm256_clmulepi64_epi128::<0x11>(pair, powers);
        let middle = _mm256_clmulepi64_epi128::<0x00>(halves(pair), halves(powers));
        self.low = _mm256_xor_si256(self.low, low);
        self.high = _mm256_xor_si256(self.high, high);
        self.middle = _mm256_xor_si256(self.middle, middle);
    }

    /// Does nothing, but the compiler does not know: what was added before stays before what is
    /// done with `pairs` after. Its scheduler would take woven products and rounds apart again.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn tie<const N: usize>(&mut self, pairs: &mut [__m256i; N]) {
        for pair in pairs {
            // SAFETY: no instruction.
            unsafe {
                asm!(
                    "/* {0} {1} {2} {3} */",
                    inout(ymm_reg) *pair, inout(ymm_reg) self.low, inout(ymm_reg) self.middle,
                    inout(ymm_reg) self.high, options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
    }

    /// The sum modulo the polynomial of GHASH, both halves added up.
    #[inline]
    #[target_feature(enable = "avx2,vpclmulqdq")]
    pub(super) fn reduce(self) -> __m128i {
        // Each step folds the lowest 64 bits onto the 128 above them.
        let poly = _mm256_set1_epi64x(0xc200_0000_0000_0000_u64 as i64);
        let fold = |low: __m256i, above: __m256i| {
            let turned = _mm256_xor_si256(above, _mm256_shuffle_epi32::<0x4e>(low));
            _mm256_xor_si256(turned, _mm256_clmulepi64_epi128::<0x00>(low, poly))
        };
        let middle = _mm256_xor_si256(self.middle, _mm256_xor_si256(self.low, self.high));
        let both = fold(fold(self.low, middle), self.high);
        _mm_xor_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both))
    }
}

/// H^`first` and the power below it.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn two_powers(key: &GcmKey, first: usize) -> __m256i {
    match key.powers.as_flattened().get(16 * (16 - first)..).and_then(<[u8]>::first_chunk) {
        Some(two) => load_pair(two),
        None => _mm256_setzero_si256(),
    }
}

/// H in the lower half, H^`upper` in the upper one.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn h_and(key: &GcmKey, upper: usize) -> __m256i {
    _mm256_set_m128i(load(&key.powers[16 - upper]), load(&key.powers[15]))
}

/// One block times H.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq")]
pub(super) fn times_h(key: &GcmKey, block: __m128i) -> Sum {
    let power = load(&key.powers[15]);
    let halves = |v| _mm_xor_si128(v, _mm_unpackhi_epi64(v, v));
    Sum {
        low: _mm256_zextsi128_si256(_mm_clmulepi64_si128::<0x00>(block, power)),
        middle: _mm256_zextsi128_si256(_mm_clmulepi64_si128::<0x00>(halves(block), halves(power))),
        high: _mm256_zextsi128_si256(_mm_clmulepi64_si128::<0x11>(block, power)),
    }
}

/// Fills in the powers of `h`, the highest first.
#[target_feature(enable = "avx2,vpclmulqdq")]
pub(super) fn powers(h: &[u8; 16], powers: &mut [[u8; 16]; 16]) {
    let word = u128::from_be_bytes(*h);
    // Times x: the bit that falls out comes back as the polynomial.
    let times_x = word << 1 ^ (word >> 127).wrapping_neg() & 0xc200_0000_0000_0000_0000_0000_0000_0001;
    let first = _mm_set_epi64x((times_x >> 64) as i64, times_x as i64);
    let mut power = first;
    for to in powers.iter_mut().rev() {
        store(to, power);
        let mut sum = Sum::zero();
        sum.add(_mm256_zextsi128_si256(power), _mm256_zextsi128_si256(first));
        power = sum.reduce();
    }
}
