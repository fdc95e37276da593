//! Random numbers that a seed determines: the same seed loses the same frames (splitmix64, Steele,
//! Lea and Flood 2014).

/// A generator of random numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Determined by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0 .. 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0 .. `limit` (0 when there is no room).
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// True with this probability; costs no number when it is 0.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.bits().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs of the authors' splitmix64.c for the seed 1234567.
        let mut r = Random::new(1_234_567);
        let wanted = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([r.bits(), r.bits(), r.bits()], wanted);
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut r = Random::new(1);
        let all: Vec<u64> = (0..10_000).map(|_| r.below(10)).collect();
        for n in 0..10 {
            let count = all.iter().filter(|v| **v == n).count();
            assert!((850..1150).contains(&count), "{n}: {count}");
        }
        assert!((0..1000).map(|_| r.unit()).all(|u| (0.0..1.0).contains(&u)));
        assert_eq!(r.below(0), 0);
        assert!(!r.chance(0.0) && r.chance(1.0));
        let mut bytes = [0; 13];
        r.fill(&mut bytes);
        assert!(bytes.iter().any(|b| *b != 0) && bytes[8..].iter().any(|b| *b != 0));
    }
}
