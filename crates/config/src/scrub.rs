//! Finds secrets in text that goes to somebody else, in whatever form they stand there, and puts a
//! keyed hash in their place.
//!
//! ```text
//! secret ─▶ needles: raw, escaped as in JSON and in files; hexadecimal; base64 at three alignments
//! text   ─▶ once as it is, and once without line ends, blanks and colons (hexadecimal, base64)
//!        ─▶ ranges, those that touch joined ─▶ [#0123456789abcdef]
//! ```
//! The hash is HMAC-SHA2-256 under a key that its maker forgets: equal secrets show as equal within
//! one report, and nobody can try guesses against it.
//!
//! A secret of less than [`ANYWHERE`] bytes is found as a whole word only: otherwise the secret `a`
//! would take every second letter away. Of the files of private keys every part is a needle.

use std::collections::HashMap;
use std::ops::Range;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use ironswan_crypto::prf;
use ironswan_wire::iana::PrfId;
use zeroize::Zeroizing;

/// Length of the key of the hashes, in bytes.
pub const KEY_LEN: usize = 32;
/// Needles of at least this many bytes are found inside words, too.
const ANYWHERE: usize = 5;
/// Bytes of each part of a key file, and the distance from one to the next. Both are multiples of
/// three, so that base64 has whole characters; parts overlap, so that no character stands between
/// two of them.
const PART: usize = 12;
const STEP: usize = 6;
/// A part with fewer different bytes is structure, not key.
const LEAST_VARIETY: usize = 7;
/// Length of the beginning by which needles are found.
const HEAD: usize = 4;

/// A form of a secret.
struct Needle {
    bytes: Zeroizing<Vec<u8>>,
    /// Index of the secret's label.
    label: u32,
}

/// Needles by their first bytes.
struct Index {
    by_head: HashMap<[u8; HEAD], Vec<Needle>>,
    /// A bit for each pair of bytes with which a needle begins: most places of a text have none.
    pairs: Vec<u64>,
}

impl Default for Index {
    fn default() -> Self {
        Self { by_head: HashMap::new(), pairs: vec![0; (1 << 16) / 64] }
    }
}

impl Index {
    fn add(&mut self, bytes: Vec<u8>, label: u32) {
        let bytes = Zeroizing::new(bytes);
        let mut head = [0; HEAD];
        let n = bytes.len().min(HEAD);
        head[..n].copy_from_slice(&bytes[..n]);
        let second = if n < 2 { 0..=u8::MAX } else { head[1]..=head[1] };
        for pair in second.map(|second| usize::from(u16::from_be_bytes([head[0], second]))) {
            self.pairs[pair / 64] |= 1 << (pair % 64);
        }
        let bucket = self.by_head.entry(head).or_default();
        if !bucket.iter().any(|known| known.bytes == bytes) {
            bucket.push(Needle { bytes, label });
        }
    }

    /// The longest needle at the beginning of `rest`, of those that `fits` takes.
    fn longest(&self, rest: &[u8], fits: impl Fn(&Needle) -> bool) -> Option<&Needle> {
        let pair = usize::from(u16::from_be_bytes([*rest.first()?, rest.get(1).copied().unwrap_or(0)]));
        if self.pairs[pair / 64] >> (pair % 64) & 1 == 0 {
            return None;
        }
        let mut best: Option<&Needle> = None;
        for n in 1..=HEAD.min(rest.len()) {
            let mut head = [0; HEAD];
            head[..n].copy_from_slice(&rest[..n]);
            let bucket = self.by_head.get(&head).into_iter().flatten();
            for needle in bucket.filter(|needle| if n < HEAD { needle.bytes.len() == n } else { true }) {
                let longer = best.is_none_or(|b| b.bytes.len() < needle.bytes.len());
                if longer && rest.starts_with(&needle.bytes) && fits(needle) {
                    best = Some(needle);
                }
            }
        }
        best
    }
}

/// A place in a text where a secret stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its bytes.
    pub range: Range<usize>,
    /// What is to stand there instead.
    pub label: String,
}

/// Secrets, and the hashes that stand for them.
pub struct Scrubber {
    key: Zeroizing<Vec<u8>>,
    labels: Vec<String>,
    /// Raw and escaped forms.
    plain: Index,
    /// Base64, also across line ends.
    base64: Index,
    /// Hexadecimal digits in lower case, also across line ends and colons.
    hex: Index,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({} secrets)", self.labels.len())
    }
}

impl Scrubber {
    /// No secrets yet. `key` is random, and used for one report.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let (plain, base64, hex) = (Index::default(), Index::default(), Index::default());
        Self { key: Zeroizing::new(key.to_vec()), labels: Vec::new(), plain, base64, hex }
    }

    /// The key, for another process that knows other secrets.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Number of secrets.
    pub fn secrets(&self) -> usize {
        self.labels.len()
    }

    /// What stands for a secret.
    pub fn label(&self, secret: &[u8]) -> String {
        let mac =
            prf::get(PrfId::HMAC_SHA2_256).expect("HMAC-SHA2-256 is always there").mac(&self.key, &[secret]);
        let digits: String = mac.expose()[..8].iter().map(|b| format!("{b:02x}")).collect();
        format!("[#{digits}]")
    }

    /// Adds a secret, in all its forms.
    pub fn add(&mut self, secret: &[u8]) {
        if secret.is_empty() {
            return;
        }
        let label = self.next_label(secret);
        self.add_forms(secret, label);
        // Room from the start: a buffer that grows would leave a copy behind.
        let room = || String::with_capacity(10 * secret.len());
        let mut add = |chars: &mut dyn Iterator<Item = char>| {
            let mut escaped = room();
            chars.for_each(|c| escaped.push(c));
            self.plain.add(escaped.into_bytes(), label);
        };
        add(&mut secret.escape_ascii().map(char::from));
        let Ok(text) = std::str::from_utf8(secret) else { return };
        add(&mut text.escape_debug());
        add(&mut text.escape_default());
        add(&mut text.chars().flat_map(|c| matches!(c, '\\' | '"').then_some('\\').into_iter().chain([c])));
    }

    /// Adds every part of a private key in DER.
    pub fn add_key(&mut self, bytes: &[u8]) {
        let label = self.next_label(bytes);
        let last = bytes.len().saturating_sub(PART);
        for at in (0..=last).step_by(STEP).chain([last]) {
            let part = &bytes[at..bytes.len().min(at + PART)];
            let mut seen = [false; 256];
            part.iter().for_each(|b| seen[usize::from(*b)] = true);
            if seen.iter().filter(|seen| **seen).count() >= LEAST_VARIETY {
                self.add_forms(part, label);
            }
        }
    }

    fn next_label(&mut self, secret: &[u8]) -> u32 {
        let label = self.label(secret);
        self.labels.push(label);
        self.labels.len() as u32 - 1
    }

    fn add_forms(&mut self, secret: &[u8], label: u32) {
        self.plain.add(secret.to_vec(), label);
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = Vec::with_capacity(2 * secret.len());
        secret.iter().for_each(|b| digits.extend([b >> 4, b & 15].map(|d| DIGITS[usize::from(d)])));
        self.hex.add(digits, label);
        for shift in 0..3 {
            let padded = Zeroizing::new([&[0; 2][..shift], secret].concat());
            // Characters that depend on this secret alone.
            let (first, end) = ((8 * shift).div_ceil(6), 8 * padded.len() / 6);
            for engine in [&BASE64_STANDARD, &BASE64_URL_SAFE] {
                let text = Zeroizing::new(engine.encode(&*padded).into_bytes());
                if end > first {
                    self.base64.add(text[first..end].to_vec(), label);
                }
            }
        }
    }

    /// Finds the secrets in a text: ranges in order, none of which touch.
    pub fn find(&self, text: &[u8]) -> Vec<Found> {
        let mut all: Vec<(Range<usize>, u32)> = Vec::new();
        let lower = Zeroizing::new(text.to_ascii_lowercase());
        let word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        for at in 0..text.len() {
            let fits = |needle: &Needle| {
                let len = needle.bytes.len();
                let inside = word(at.checked_sub(1).and_then(|n| text.get(n))) || word(text.get(at + len));
                len >= ANYWHERE || !inside
            };
            for (index, text) in [(&self.plain, text), (&self.base64, text), (&self.hex, &lower[..])] {
                if let Some(needle) = index.longest(&text[at..], fits) {
                    all.push((at..at + needle.bytes.len(), needle.label));
                }
            }
        }
        self.find_across_lines(text, &mut all);
        self.join(all)
    }

    /// Finds base64 and hexadecimal digits with line ends, blanks or colons in between.
    fn find_across_lines(&self, text: &[u8], all: &mut Vec<(Range<usize>, u32)>) {
        let (mut compact, mut places) = (Zeroizing::new(Vec::with_capacity(text.len())), Vec::new());
        let mut at = 0;
        while at < text.len() {
            match &text[at..] {
                // A line end within JSON.
                [b'\\', b'n' | b'r', ..] => at += 2,
                [b' ' | b'\t' | b'\r' | b'\n' | b':' | b'-', ..] => at += 1,
                [byte, ..] => {
                    compact.push(*byte);
                    places.push(at);
                    at += 1;
                }
                [] => break,
            }
        }
        let lower = Zeroizing::new(compact.to_ascii_lowercase());
        for at in 0..compact.len() {
            // A short needle would be put together from words that only stand beside each other.
            let long = |needle: &Needle| needle.bytes.len() >= 2 * ANYWHERE;
            for (index, text) in [(&self.base64, &compact), (&self.hex, &lower)] {
                if let Some(needle) = index.longest(&text[at..], long) {
                    all.push((places[at]..places[at + needle.bytes.len() - 1] + 1, needle.label));
                }
            }
        }
    }

    /// Joins ranges that overlap or touch.
    fn join(&self, mut all: Vec<(Range<usize>, u32)>) -> Vec<Found> {
        all.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut out: Vec<Found> = Vec::new();
        for (range, label) in all {
            match out.last_mut() {
                Some(last) if range.start <= last.range.end => last.range.end = last.range.end.max(range.end),
                _ => out.push(Found { range, label: self.labels[label as usize].clone() }),
            }
        }
        out
    }

    /// Puts hashes in the place of all secrets. Returns how many places there were.
    pub fn scrub(&self, text: &mut Vec<u8>) -> usize {
        let found = self.find(text);
        replace(text, &found);
        found.len()
    }
}

/// Puts labels into a text, in the place of what was found there.
pub fn replace(text: &mut Vec<u8>, found: &[Found]) {
    if found.is_empty() {
        return;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for Found { range, label } in found {
        out.extend_from_slice(&text[at..range.start.max(at)]);
        out.extend_from_slice(label.as_bytes());
        at = range.end.max(at);
    }
    out.extend_from_slice(&text[at..]);
    *text = out;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubber(secrets: &[&[u8]]) -> Scrubber {
        let mut s = Scrubber::new(&[7; KEY_LEN]);
        secrets.iter().for_each(|secret| s.add(secret));
        s
    }

    fn scrubbed(s: &Scrubber, text: &[u8]) -> (String, usize) {
        let mut text = text.to_vec();
        let n = s.scrub(&mut text);
        (String::from_utf8_lossy(&text).into_owned(), n)
    }

    /// Every form in which a test looks for a secret.
    fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
        let hex: String = secret.iter().map(|b| format!("{b:02x}")).collect();
        let colons = secret.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":");
        let mut out =
            vec![secret.to_vec(), hex.clone().into_bytes(), hex.to_uppercase().into_bytes(), colons.into()];
        out.push(format!("0x{hex}").into_bytes());
        for (before, behind) in [("", ""), ("x", "y"), ("xy", "zz"), ("xyz", "q")] {
            let around = [before.as_bytes(), secret, behind.as_bytes()].concat();
            out.push(BASE64_STANDARD.encode(&around).into_bytes());
            out.push(BASE64_URL_SAFE.encode(&around).into_bytes());
            out.push(format!("0s{}", BASE64_STANDARD.encode(&around)).into_bytes());
        }
        out
    }

    #[test]
    fn a_secret_is_found_in_every_form_and_equal_ones_have_equal_hashes() {
        let secret = b"correct horse\"battery\\staple";
        let s = scrubber(&[secret]);
        let label = s.label(secret);
        for form in forms(secret) {
            let text = [b"log: key=", &form[..], b" end\n"].concat();
            let (got, n) = scrubbed(&s, &text);
            assert!(n >= 1 && got.contains(&label), "{}: {got}", text.escape_ascii());
            assert!(got.starts_with("log: key=") && got.ends_with(" end\n"), "{got}");
            // Nothing but characters that other bytes share is left.
            assert!(got.replace(&label, "").len() <= "log: key=0sxyz== end\n".len() + 4, "{got}");
        }
        let json = serde_json_like(std::str::from_utf8(secret).unwrap());
        assert_eq!(scrubbed(&s, json.as_bytes()).0, format!("{{\"a\":\"{label}\"}}"));
        let other = scrubber(&[b"x", secret]);
        assert_eq!(other.label(secret), label, "the hash depends on key and secret alone");
        assert_ne!(Scrubber::new(&[8; KEY_LEN]).label(secret), label, "another report has other hashes");
    }

    fn serde_json_like(text: &str) -> String {
        format!("{{\"a\":\"{}\"}}", text.replace('\\', "\\\\").replace('"', "\\\""))
    }

    #[test]
    fn a_secret_that_is_wrapped_over_lines_is_found() {
        let secret: Vec<u8> = (0..60u32).map(|i| (i * 37 + 11) as u8).collect();
        let s = scrubber(&[&secret]);
        let base64 = BASE64_STANDARD.encode(&secret);
        let wrapped =
            base64.as_bytes().chunks(16).map(|c| String::from_utf8_lossy(c).into_owned()).collect::<Vec<_>>();
        for sep in ["\n", "\r\n", "\n    ", "\\n"] {
            let (got, n) = scrubbed(&s, format!("a\n{}\nb", wrapped.join(sep)).as_bytes());
            assert_eq!((n, got), (1, format!("a\n{}\nb", s.label(&secret))), "{sep:?}");
        }
    }

    #[test]
    fn a_short_secret_is_found_as_a_word_only() {
        let s = scrubber(&[b"key"]);
        let label = s.label(b"key");
        assert_eq!(scrubbed(&s, b"monkey keys key. 'key'").0, format!("monkey keys {label}. '{label}'"));
        assert_eq!(scrubbed(&s, b"0x6b6579").0, format!("0x{label}"));
    }

    #[test]
    fn any_part_of_a_private_key_is_found() {
        let key: Vec<u8> = (0..1200u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut s = Scrubber::new(&[7; KEY_LEN]);
        s.add_key(&key);
        let label = s.label(&key);
        let whole = BASE64_STANDARD.encode(&key);
        for width in [64, 76] {
            let lines: Vec<&[u8]> = whole.as_bytes().chunks(width).collect();
            let (got, _) = scrubbed(&s, &[b"<", &lines.join(&b"\n"[..])[..], b">"].concat());
            assert_eq!(got, format!("<{label}>"), "{width}");
        }
        let hex: String = key.iter().map(|b| format!("{b:02X}")).collect();
        assert_eq!(scrubbed(&s, format!("<{hex}>").as_bytes()).0, format!("<{label}>"));
        let (got, _) = scrubbed(&s, &[b"<", &key[..], b">"].concat());
        assert_eq!(got, format!("<{label}>"));
        // From its middle.
        assert!(scrubbed(&s, &whole.as_bytes()[400..800]).0.len() < 24 + label.len());
    }

    #[test]
    fn text_without_secrets_stays_as_it_is() {
        let s = scrubber(&[b"swordfish", b"0123456789abcdef0123456789abcdef"]);
        let text = b"connections { net { remote_addrs = 192.0.2.2 } }\n\xff\xfe sword fish\n";
        let mut same = text.to_vec();
        assert_eq!(s.scrub(&mut same), 0);
        assert_eq!(same, text);
        assert_eq!(s.find(b""), []);
        assert_eq!(format!("{s:?}"), "Scrubber(2 secrets)");
    }
}
