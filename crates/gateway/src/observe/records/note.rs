//! One note: the words of a diagnosis, with what it is about, in a bounded number of bytes.

use std::time::Instant;

use ironswan_keying::diagnosis::{Entry, Side};
use ironswan_keying::{Diagnosis, Level};

/// Limits the bytes of one note.
const BYTES: usize = 2 * 1024;
/// Bytes of a note beside its texts, of a text beside its letters.
const FIXED: usize = size_of::<Note>();
const OF_TEXT: usize = size_of::<String>();

/// What was told once, or several times in the same words.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Note {
    /// Entry of the diagnosis.
    pub(crate) entry: Entry,
    /// How much it matters.
    pub(crate) level: Level,
    /// When it was told first.
    pub(crate) first: Instant,
    /// When it was told last.
    pub(crate) last: Instant,
    /// How often.
    pub(crate) count: u32,
    /// The sentence, without a full stop.
    pub(crate) sentence: String,
    /// What to do. Empty when the sentence says all.
    pub(crate) remedy: String,
    /// Lines of data.
    pub(crate) details: Vec<String>,
    /// Data by name.
    pub(crate) values: Vec<(&'static str, String)>,
    /// Values of both sides.
    pub(crate) sides: Vec<Side>,
    /// Keys of the configuration that it is about, as [`Diagnosis::keys`] names them.
    pub(crate) keys: &'static [&'static str],
    /// The connection that a stranger would have belonged to.
    pub(crate) meant: Option<String>,
}

impl Note {
    /// A note of now. What is too long is cut, and what finds no room is left out: first values,
    /// then details, then sides.
    pub(crate) fn new(now: Instant, level: Level, why: &Diagnosis, meant: Option<&str>) -> Self {
        let mut note = Self {
            entry: why.entry(),
            level,
            first: now,
            last: now,
            count: 1,
            sentence: cut(why.sentence(), BYTES / 4),
            remedy: cut(why.remedy(), BYTES / 4),
            details: Vec::new(),
            values: Vec::new(),
            sides: Vec::new(),
            keys: why.keys(),
            meant: meant.map(|meant| cut(meant.to_owned(), BYTES / 16)),
        };
        let mut room = BYTES.saturating_sub(note.bytes());
        let mut fits = |bytes: usize| {
            let fits = bytes <= room;
            room -= if fits { bytes } else { 0 };
            fits
        };
        note.sides = why.sides().into_iter().filter(|side| fits(of_side(side))).collect();
        let details = why.details().into_iter().map(|line| cut(line, BYTES / 4));
        note.details = details.filter(|line| fits(OF_TEXT + line.len())).collect();
        note.values = why.values().into_iter().filter(|value| fits(of_value(value))).collect();
        note
    }

    /// True when the other says the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.entry == other.entry && self.sentence == other.sentence
    }

    /// This note, told again: the words are the newer ones.
    pub(crate) fn again(self, newer: Self) -> Self {
        Self { first: self.first, count: self.count.saturating_add(1), ..newer }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.sentence.len() + self.remedy.len() + self.meant.as_ref().map_or(0, String::len);
        let details: usize = self.details.iter().map(|line| OF_TEXT + line.len()).sum();
        let values: usize = self.values.iter().map(of_value).sum();
        let sides: usize = self.sides.iter().map(of_side).sum();
        FIXED + texts + details + values + sides
    }
}

fn of_value((_, value): &(&'static str, String)) -> usize {
    size_of::<(&'static str, String)>() + value.len()
}

fn of_side(side: &Side) -> usize {
    size_of::<Side>() + side.what.len() + side.ours.len() + side.theirs.len()
}

/// Cuts a text to so many bytes.
fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let at = (0..=bytes - 4).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
        text.push_str(" ...");
    }
    text.shrink_to_fit();
    text
}
