//! Contents of files, from a seed: text-like data of a stated entropy, or random bytes. Pure.

use crate::relay::Random;

/// Kinds of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Words of a vocabulary of [`WORDS`], each as likely as any other, with spaces between them.
    Text,
    /// Random bytes, which nothing compresses.
    Random,
}

/// Words of the vocabulary.
pub const WORDS: usize = 1024;
/// Letters of the shortest and of the longest word; the lengths are equally frequent.
const LETTERS: (usize, usize) = (2, 10);

impl Content {
    /// Name in tables and records: `text` or `random`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Random => "random",
        }
    }

    /// `len` bytes of it.
    pub fn bytes(self, len: usize, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        if self == Self::Random {
            let mut all = vec![0; len];
            random.fill(&mut all);
            return all;
        }
        let words = vocabulary();
        let mut all = Vec::with_capacity(len + LETTERS.1 + 1);
        while all.len() < len {
            all.extend_from_slice(&words[random.below(WORDS as u64) as usize]);
            all.push(b' ');
        }
        all.truncate(len);
        all
    }

    /// Information in a byte, bits: for text that of the choice of words, over their mean length
    /// with the space.
    pub fn entropy(self) -> f64 {
        match self {
            Self::Random => 8.0,
            Self::Text => {
                let letters: usize = vocabulary().iter().map(Vec::len).sum();
                (WORDS as f64).log2() / (letters as f64 / WORDS as f64 + 1.0)
            }
        }
    }
}

/// The same for every seed. Letters are about as frequent as in English.
fn vocabulary() -> Vec<Vec<u8>> {
    const FREQUENT: &[u8] = b"eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrrddddlllluuucccmmmwwffggyyppbbvk";
    let mut random = Random::new(0x7465_7874);
    let span = LETTERS.1 - LETTERS.0 + 1;
    let word = |n: usize| {
        let letter = |_| FREQUENT[random.below(FREQUENT.len() as u64) as usize];
        (0..LETTERS.0 + n % span).map(letter).collect()
    };
    (0..WORDS).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_from_its_seed_and_has_the_length_asked_for() {
        for content in [Content::Text, Content::Random] {
            for len in [0, 1, 7, 100_000] {
                assert_eq!(content.bytes(len, 1).len(), len);
            }
            assert_eq!(content.bytes(1000, 1), content.bytes(1000, 1));
            assert_ne!(content.bytes(1000, 1), content.bytes(1000, 2));
        }
    }

    #[test]
    fn text_has_few_bits_a_byte_and_random_data_all() {
        assert!((1.3..1.6).contains(&Content::Text.entropy()), "{}", Content::Text.entropy());
        // The distribution of single bytes bounds what a code without memory can do.
        let order0 = |bytes: &[u8]| {
            let share = |b: u8| bytes.iter().filter(|x| **x == b).count() as f64 / bytes.len() as f64;
            (0..=255).map(share).filter(|p| *p > 0.0).map(|p| -p * p.log2()).sum::<f64>()
        };
        let (text, random) =
            (order0(&Content::Text.bytes(100_000, 1)), order0(&Content::Random.bytes(100_000, 1)));
        assert!((3.5..4.5).contains(&text) && random > 7.99, "{text} {random}");
    }
}
