//! The Internet checksum's sum with AVX2: half the time of the portable one, and the packet path computes one for every
//! packet that it cuts or merges.

use ironswan_wire::ip::checksum;

/// Bytes of one step.
const STEP: usize = 64;

/// The sum of `data`, in the machine's byte order, as [`checksum::sum`] gives it after folding.
#[inline]
pub(crate) fn sum(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if data.len() >= 2 * STEP && std::arch::is_x86_feature_detected!("avx2") {
        let (steps, rest) = data.as_chunks::<STEP>();
        // SAFETY: the processor has AVX2.
        return unsafe { steps_avx2(steps) } + checksum::sum(rest);
    }
    checksum::sum(data)
}

/// Each 64-bit word is split into halves, which are added up in 64-bit lanes: no carry is lost before 2^32 words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn steps_avx2(steps: &[[u8; STEP]]) -> u64 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
    };
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let mut lanes = [_mm256_setzero_si256(); 4];
    for step in steps {
        let at = step.as_ptr().cast::<__m256i>();
        // SAFETY: both loads lie within the 64 bytes of `step`; unaligned loads have no other demand.
        let (a, b) = unsafe { (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) };
        lanes[0] = _mm256_add_epi64(lanes[0], _mm256_and_si256(a, low));
        lanes[1] = _mm256_add_epi64(lanes[1], _mm256_srli_epi64::<32>(a));
        lanes[2] = _mm256_add_epi64(lanes[2], _mm256_and_si256(b, low));
        lanes[3] = _mm256_add_epi64(lanes[3], _mm256_srli_epi64::<32>(b));
    }
    let total = _mm256_add_epi64(_mm256_add_epi64(lanes[0], lanes[1]), _mm256_add_epi64(lanes[2], lanes[3]));
    let mut words = [0u64; 4];
    // SAFETY: 32 bytes are written to 32 bytes; unaligned stores have no other demand.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), total) };
    words.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_portable_sum_at_every_length_and_alignment() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for start in 0..9 {
            for len in (0..400).chain([1348, 4096, 4990]) {
                let d = &data[start..start + len];
                assert_eq!(checksum::fold(sum(d)), checksum::fold(checksum::sum(d)), "{start}+{len}");
            }
        }
        let ones = vec![0xff; 65_535];
        assert_eq!(checksum::fold(sum(&ones)), checksum::fold(checksum::sum(&ones)));
    }
}
