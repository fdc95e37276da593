//! The Internet checksum's sum with AVX2: half the time of the portable one, and the packet path
//! computes one for every packet that it cuts or merges.

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

/// Adds up 64-bit words in lanes: as they are, without their carries, and their upper halves, which
/// tell what was carried:
/// `lower + (upper << 32)` is the former sum modulo 2^64, and neither sum of halves reaches that
/// before 2^32 words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn steps_avx2(steps: &[[u8; STEP]]) -> u64 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_slli_epi64,
        _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi64,
    };
    let (mut words, mut upper) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
    for step in steps {
        let at = step.as_ptr().cast::<__m256i>();
        // SAFETY: both loads lie within the 64 bytes of `step`; unaligned loads have no other
        // demand.
        let both = unsafe { [_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))] };
        for (i, word) in both.into_iter().enumerate() {
            words[i] = _mm256_add_epi64(words[i], word);
            upper[i] = _mm256_add_epi64(upper[i], _mm256_srli_epi64::<32>(word));
        }
    }
    let words = _mm256_add_epi64(words[0], words[1]);
    let upper = _mm256_add_epi64(upper[0], upper[1]);
    let lower = _mm256_sub_epi64(words, _mm256_slli_epi64::<32>(upper));
    let mut lanes = [0u64; 4];
    // SAFETY: 32 bytes are written to 32 bytes; unaligned stores have no other demand.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_add_epi64(lower, upper)) };
    lanes.iter().sum()
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
