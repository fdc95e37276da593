//! Mutation of byte strings: what network formats get wrong are lengths, counts, types, and the
//! seams between parts.

/// SplitMix64: small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence is determined by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.number()) * n as u128) >> 64) as usize
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

/// Values at which length and count arithmetic goes wrong.
const EDGES: [u32; 22] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    28,
    32,
    64,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    u32::MAX,
];

/// Changes `input` in one to eight places. `others` are inputs to take pieces from.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], dictionary: &[&[u8]], max_len: usize, rng: &mut Rng) {
    // Few changes mostly: a format with checks everywhere forgives little.
    let times = 1 + rng.below(8).min(rng.below(8));
    for _ in 0..times {
        once(input, others, dictionary, rng);
        input.truncate(max_len);
    }
}

fn once(input: &mut Vec<u8>, others: &[Vec<u8>], dictionary: &[&[u8]], rng: &mut Rng) {
    let len = input.len();
    let at = rng.below(len);
    match rng.below(14) {
        0 if len > 0 => input[at] ^= 1 << rng.below(8),
        1 if len > 0 => input[at] = rng.number() as u8,
        2 if len > 0 => input[at] = EDGES[rng.below(EDGES.len())] as u8,
        3 if len > 0 => input[at] = input[at].wrapping_add(rng.below(9) as u8).wrapping_sub(4),
        4 => {
            // A 16-bit edge, or the bytes that follow it, or as many as there are.
            let left = len.saturating_sub(at);
            let near = [
                left,
                left.wrapping_sub(1),
                left + 1,
                left.wrapping_sub(2),
                len,
                EDGES[rng.below(EDGES.len())] as usize,
            ];
            overwrite(input, at, &(near[rng.below(near.len())] as u16).to_be_bytes());
        }
        5 => overwrite(input, at, &EDGES[rng.below(EDGES.len())].to_be_bytes()),
        6 => {
            let n = rng.below(len - at.min(len) + 1);
            input.drain(at..at + n);
        }
        7 => {
            let n = rng.below((len - at.min(len)).min(64) + 1);
            let piece = input[at..at + n].to_vec();
            let copies = 1 + rng.below(4);
            for _ in 0..copies {
                insert(input, rng.below(len + 1), &piece);
            }
        }
        8 => {
            let n = 1 + rng.below(16);
            let noise: Vec<u8> = (0..n).map(|_| rng.number() as u8).collect();
            insert(input, at, &noise);
        }
        9 => {
            if let Some(word) = rng.pick(dictionary) {
                overwrite(input, at, word);
            }
        }
        10 => {
            if let Some(word) = rng.pick(dictionary) {
                insert(input, at, word);
            }
        }
        11 => {
            // The head of this, the tail of another.
            if let Some(other) = rng.pick(others) {
                let from = rng.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
        12 => {
            // A piece of another over a piece of this.
            if let Some(other) = rng.pick(others) {
                let from = rng.below(other.len());
                let n = rng.below((other.len() - from).min(64) + 1);
                overwrite(input, at, &other[from..from + n]);
            }
        }
        _ => input.truncate(rng.below(len + 1)),
    }
}

fn overwrite(input: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in input.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

fn insert(input: &mut Vec<u8>, at: usize, what: &[u8]) {
    let at = at.min(input.len());
    input.splice(at..at, what.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut input = b"a message of some bytes".to_vec();
            (0..200)
                .map(|_| {
                    mutate(&mut input, &[b"other".to_vec()], &[b"word"], 100, &mut rng);
                    input.clone()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn inputs_of_any_length_are_mutated_and_stay_within_the_limit() {
        let mut rng = Rng::new(1);
        for len in [0, 1, 2, 3, 100] {
            for _ in 0..10_000 {
                let mut input = vec![0; len];
                mutate(&mut input, &[vec![], vec![1; 90]], &[b"", b"word"], 120, &mut rng);
                assert!(input.len() <= 120);
            }
        }
    }
}
