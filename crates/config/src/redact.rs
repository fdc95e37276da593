//! Files of a configuration as they may be shown to others: secrets are hashes, all else stays,
//! line by line, so that findings still name the right lines.
//!
//! ```text
//! secrets {                                secrets {
//!     # the old one was swordfish              # (comment left out)
//!     ike-1 {                           ─▶     ike-1 {
//!         secret = 0sc3dvcmQ=                      secret = [#0123456789abcdef]
//!         id = peer                                id = peer
//! ```
//! This reader is not that of `syntax`: it knows where each value begins and ends, and no meaning.
//! Where it does not understand a file it leaves the rest of the file out, since a secret that was
//! not quoted looks just so. The value of a key that nobody knows is hidden, too: the key may be a
//! misspelt one. What else may be secret is found by `scrub`, which gets every secret that is read
//! here.
//!
//! Not here: private keys, which are never copied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::files::Files;
use super::include::{MAX_FILE, MAX_TOTAL, glob};
use super::meaning::is_key;
use super::scrub::Scrubber;
use super::value;

/// Limits how many files are copied.
const MAX_FILES: usize = 2_000;
/// Limits how many sections may be open.
const MAX_DEPTH: usize = 64;
/// Parts of the names of keys whose values are secrets wherever they stand.
const SECRET_KEYS: [&str; 6] = ["secret", "password", "passphrase", "psk", "pin", "passwd"];

/// Bytes of the shortest value of an unknown key that is looked for in other texts, too.
const LEAST_ODD: usize = 8;

/// A file for others to read, or the reason why it was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Where it stands.
    pub path: PathBuf,
    /// Its text.
    pub text: Result<Vec<u8>, String>,
}

/// A place to be replaced, and a file that is included there.
#[derive(Default)]
struct Marks {
    /// Ranges, and what is to stand there.
    hidden: Vec<(std::ops::Range<usize>, Hidden)>,
    /// Patterns of files, and true for those within `secrets`.
    includes: Vec<(String, bool)>,
}

/// What stands in a place that is to be replaced.
enum Hidden {
    /// A secret, decoded, and as it is written.
    Secret(Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>),
    /// The value of a key that nobody knows, decoded, and as it is written.
    Odd(Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>),
    /// A comment beside secrets.
    Comment,
    /// The rest of a file that is not understood.
    Rest(usize),
}

/// Files of a folder with a configuration, and all that these include. Their secrets are added to
/// `scrubber`. Takes as long as the file system does: call it on a thread that may hang.
pub fn folder(fs: &Files, dir: &Path, scrubber: &mut Scrubber) -> Vec<Copied> {
    let mut wanted: Vec<(PathBuf, bool)> = Vec::new();
    for name in ["swanctl.conf", "ironswan.conf", "strongswan.conf", "ipsec.conf", "ipsec.secrets"] {
        if fs.exists(&dir.join(name)).unwrap_or(true) {
            wanted.push((dir.join(name), false));
        }
    }
    let mut more = fs.list(&dir.join("conf.d")).ok().flatten().unwrap_or_default();
    more.retain(|path| path.extension().is_some_and(|e| e == "conf"));
    more.sort();
    wanted.extend(more.into_iter().map(|path| (path, false)));
    // A file that two others include may be secret in one of them only: then it is.
    let mut done: BTreeMap<PathBuf, (bool, Copied)> = BTreeMap::new();
    let mut total = 0;
    while let Some((path, within)) = wanted.pop() {
        let known = done.get(&path).is_some_and(|(was, _)| *was || !within);
        if known || done.len() >= MAX_FILES {
            continue;
        }
        let text = one(fs, &path, within, &mut total, scrubber).map(|(text, includes)| {
            let base = path.parent().unwrap_or(Path::new("")).to_owned();
            for (pattern, within) in includes {
                let found = glob(fs, &base.join(pattern)).unwrap_or_default();
                wanted.extend(found.into_iter().map(|path| (path, within)));
            }
            text
        });
        done.insert(path.clone(), (within, Copied { path, text }));
    }
    done.into_values().map(|(_, copied)| copied).collect()
}

type Text = (Vec<u8>, Vec<(String, bool)>);

/// Reads one file. `within`: it is included within `secrets`.
fn one(
    fs: &Files,
    path: &Path,
    within: bool,
    total: &mut u64,
    scrubber: &mut Scrubber,
) -> Result<Text, String> {
    let (bytes, _) = fs.read(path, MAX_FILE).map_err(|why| why.to_string())?;
    *total += bytes.len() as u64;
    if *total > MAX_TOTAL {
        return Err("all files together are too long".to_owned());
    }
    let named = |name: &str| path.file_name().is_some_and(|n| n == name);
    let foreign = named("strongswan.conf") || named("ipsec.conf");
    let marks =
        if named("ipsec.secrets") { ipsec_secrets(&bytes) } else { sections(&bytes, within, foreign) };
    Ok((hide(&bytes, marks.hidden, scrubber), marks.includes))
}

/// One text of the kind of `swanctl.conf`, for tests and for text that is in no file.
pub fn text(bytes: &[u8], scrubber: &mut Scrubber) -> Vec<u8> {
    hide(bytes, sections(bytes, false, false).hidden, scrubber)
}

/// Puts hashes and notes in the place of what is hidden. Line ends stay.
fn hide(bytes: &[u8], hidden: Vec<(std::ops::Range<usize>, Hidden)>, scrubber: &mut Scrubber) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    for (range, what) in hidden {
        out.extend_from_slice(&bytes[at..range.start]);
        let note = match what {
            Hidden::Secret(secret, written) => added(secret, written, scrubber),
            Hidden::Odd(value, written) if is_odd(&written) => added(value, written, scrubber),
            Hidden::Odd(value, _) => scrubber.label(&value),
            Hidden::Comment => "# (comment left out)".to_owned(),
            Hidden::Rest(line) => {
                // Perhaps a secret that is not quoted: its words are looked for elsewhere.
                let words = bytes[range.clone()].split(|b| b.is_ascii_whitespace() || b"\"'{}=".contains(b));
                words.filter(|w| w.len() >= 8).take(1_000).for_each(|w| scrubber.add(w));
                format!("# (left out from here, since line {line} is not understood: `ironswan check`)")
            }
        };
        out.extend_from_slice(note.as_bytes());
        out.extend(bytes[range.clone()].iter().filter(|b| **b == b'\n'));
        at = range.end;
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// Adds a secret in both forms. Returns the hash that stands for it.
fn added(secret: Zeroizing<Vec<u8>>, written: Zeroizing<Vec<u8>>, scrubber: &mut Scrubber) -> String {
    scrubber.add(&secret);
    if *written != *secret {
        scrubber.add(&written);
    }
    scrubber.label(&secret)
}

/// True for a value that is neither short nor a list of addresses: such may stand in other texts
/// for good reasons.
fn is_odd(written: &[u8]) -> bool {
    let address = |b: &u8| b.is_ascii_digit() || b".:/,- []%".contains(b);
    written.len() >= LEAST_ODD && !written.iter().all(address)
}

/// Reads sections, keys and values. `foreign`: another program's file, whose keys are not ours.
fn sections(bytes: &[u8], within: bool, foreign: bool) -> Marks {
    let marks = Marks::default();
    let mut reader = Reader { bytes, at: 0, begun: 0, open: Vec::new(), within, foreign, marks };
    if reader.statements().is_none() {
        let start = reader.begun;
        let line = 1 + bytes[..start].iter().filter(|b| **b == b'\n').count();
        reader.marks.hidden.retain(|(range, _)| range.end <= start);
        reader.marks.hidden.push((start..bytes.len(), Hidden::Rest(line)));
    }
    reader.marks
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Beginning of the statement that is read. One that is not understood is left out from here.
    begun: usize,
    /// Names of the open sections.
    open: Vec<Vec<u8>>,
    /// All is within `secrets`.
    within: bool,
    /// Keys are not ours, so that an unknown one is nothing odd.
    foreign: bool,
    marks: Marks,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn among_secrets(&self) -> bool {
        self.within || self.open.first().is_some_and(|name| name == b"secrets")
    }

    fn take_while(&mut self, take: impl Fn(u8) -> bool) -> &[u8] {
        let start = self.at;
        while self.peek().is_some_and(&take) {
            self.at += 1;
        }
        &self.bytes[start..self.at]
    }

    /// Blanks, line ends and comments.
    fn space(&mut self) {
        loop {
            self.take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'));
            match self.peek() {
                Some(b'#') => self.comment(),
                _ => return,
            }
        }
    }

    /// A comment beside secrets is hidden, and so is one that looks like a secret.
    fn comment(&mut self) {
        let start = self.at;
        let text = self.take_while(|b| b != b'\n').to_ascii_lowercase();
        let speaks = SECRET_KEYS.iter().any(|key| text.windows(key.len()).any(|w| w == key.as_bytes()));
        if self.among_secrets() || speaks {
            self.marks.hidden.push((start..self.at, Hidden::Comment));
        }
    }

    /// `None`: something is not understood.
    fn statements(&mut self) -> Option<()> {
        loop {
            self.space();
            self.begun = self.at;
            match self.peek() {
                None => return self.open.is_empty().then_some(()),
                Some(b'}') => {
                    self.open.pop()?;
                    self.at += 1;
                }
                Some(_) => self.statement()?,
            }
        }
    }

    fn statement(&mut self) -> Option<()> {
        let ends = |b: u8| b.is_ascii_whitespace() || b.is_ascii_control() || b".,:{}=\"#".contains(&b);
        let name = self.take_while(|b| !ends(b)).to_vec();
        if name.is_empty() {
            return None;
        }
        if name == b"include"
            && matches!(self.peek(), Some(b' ' | b'\t'))
            && self.bytes.get(self.at + 1) != Some(&b'=')
        {
            return self.include();
        }
        self.space();
        match self.peek()? {
            b'=' => {
                self.at += 1;
                self.value(&name)
            }
            b':' => {
                self.take_while(|b| b != b'{' && b != b'\n' && b != b'=' && b != b'#');
                self.space();
                self.begin(name)
            }
            _ => self.begin(name),
        }
    }

    fn begin(&mut self, name: Vec<u8>) -> Option<()> {
        (self.peek()? == b'{' && self.open.len() < MAX_DEPTH).then_some(())?;
        self.at += 1;
        self.open.push(name);
        Some(())
    }

    fn include(&mut self) -> Option<()> {
        self.take_while(|b| b == b' ' || b == b'\t');
        let pattern = if self.peek() == Some(b'"') {
            self.quoted()?
        } else {
            Zeroizing::new(self.take_while(|b| !b" \t\r\n#}\"".contains(&b)).to_vec())
        };
        let pattern = String::from_utf8(pattern.to_vec()).ok().filter(|p| !p.is_empty())?;
        let within = self.among_secrets();
        self.marks.includes.push((pattern, within));
        Some(())
    }

    /// A value up to the end of its line. One that is a secret is hidden.
    fn value(&mut self, name: &[u8]) -> Option<()> {
        let lower = name.to_ascii_lowercase();
        let named = |part: &&str| lower.windows(part.len()).any(|w| w == part.as_bytes());
        let plain = lower.starts_with(b"id") || lower == b"file" || lower == b"qcd_secret";
        let secret = !plain && (self.among_secrets() || SECRET_KEYS.iter().any(named));
        let odd = !plain && !self.foreign && !std::str::from_utf8(name).is_ok_and(is_key);
        let (mut out, mut parts) = (Zeroizing::new(Vec::with_capacity(256)), 0);
        let (mut start, mut end) = (self.at, self.at);
        loop {
            self.take_while(|b| matches!(b, b' ' | b'\t' | b'\r'));
            match self.peek() {
                None | Some(b'\n' | b'}') => break,
                // Perhaps a part of a secret that is not quoted.
                Some(b'#') if secret || odd => {
                    let from = self.at;
                    let rest = self.take_while(|b| b != b'\n').to_vec();
                    self.marks.hidden.push((from..self.at, Hidden::Comment));
                    if parts > 0 && from == end {
                        out.extend(rest);
                    }
                    break;
                }
                Some(b'#') => break,
                Some(_) => {}
            }
            if parts == 0 {
                start = self.at;
            } else {
                out.push(b' ');
            }
            parts += 1;
            let part = match self.peek() {
                Some(b'"') => self.quoted()?,
                _ => Zeroizing::new(self.take_while(|b| !b" \t\r\n#}\"".contains(&b)).to_vec()),
            };
            out.extend_from_slice(&part);
            end = self.at;
        }
        if (secret || odd) && parts > 0 {
            let written = Zeroizing::new(self.bytes[start..end].to_vec());
            let what = if secret { Hidden::Secret } else { Hidden::Odd };
            let at = self.marks.hidden.iter().rposition(|(r, _)| r.start < start).map_or(0, |n| n + 1);
            self.marks.hidden.insert(at, (start..end, what(decoded(&out), written)));
        }
        Some(())
    }

    /// A text in quotes, without them.
    fn quoted(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        let mut out = Zeroizing::new(Vec::with_capacity(256));
        self.at += 1;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Some(out),
                b'\\' => {
                    let byte = self.peek()?;
                    self.at += 1;
                    match byte {
                        b'n' => out.push(b'\n'),
                        b'r' => out.push(b'\r'),
                        b't' => out.push(b'\t'),
                        b'\n' => {}
                        other => out.push(other),
                    }
                }
                b'\r' => {}
                other => out.push(other),
            }
        }
    }
}

/// The bytes that a written secret stands for; the text itself where its digits are wrong.
fn decoded(written: &[u8]) -> Zeroizing<Vec<u8>> {
    let secret = std::str::from_utf8(written).ok().and_then(|text| value::secret(text).ok());
    Zeroizing::new(secret.map_or_else(|| written.to_vec(), |s| s.expose().to_vec()))
}

/// Reads `ipsec.secrets`: `SELECTORS : TYPE SECRET`. All behind the type is hidden, and so is every
/// line that is not of this form: it may be the rest of a key.
fn ipsec_secrets(bytes: &[u8]) -> Marks {
    let (mut marks, mut at) = (Marks::default(), 0);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let start = at;
        at += line.len();
        let end = start + line.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |n| n + 1);
        let text = &bytes[start..end];
        let first = text.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
        if text.is_empty() {
            continue;
        }
        if text[first..].starts_with(b"#") {
            marks.hidden.push((start + first..end, Hidden::Comment));
            continue;
        }
        if text.starts_with(b"include") {
            // An included file is read as this one is by its name alone, so it is not read at all.
            marks.hidden.push((start + 7..end, Hidden::Comment));
            continue;
        }
        let behind = colon(text).map(|n| start + n + 1);
        let secrets = behind.map_or(start, |from| {
            let skip = |from: usize, take: fn(&u8) -> bool| {
                from + bytes[from..end].iter().take_while(|b| take(b)).count()
            };
            let word = skip(from, u8::is_ascii_whitespace);
            let typed = skip(word, u8::is_ascii_alphabetic);
            skip(typed, u8::is_ascii_whitespace)
        });
        for range in tokens(bytes, secrets..end) {
            let written = &bytes[range.clone()];
            let bare = written.strip_prefix(b"\"").and_then(|w| w.strip_suffix(b"\"")).unwrap_or(written);
            let written = Zeroizing::new(bare.to_vec());
            marks.hidden.push((range, Hidden::Secret(decoded(bare), written)));
        }
    }
    marks
}

/// The colon in front of a type: one that stands alone. Addresses of IPv6 have colons, too.
fn colon(text: &[u8]) -> Option<usize> {
    let blank = |n: Option<&u8>| n.is_none_or(u8::is_ascii_whitespace);
    (0..text.len()).find(|&n| text[n] == b':' && blank(n.checked_sub(1).and_then(|n| text.get(n))))
}

/// Words, and texts in quotes, of a range.
fn tokens(bytes: &[u8], range: std::ops::Range<usize>) -> Vec<std::ops::Range<usize>> {
    let (mut out, mut at) = (Vec::new(), range.start);
    while at < range.end {
        if bytes[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let rest = &bytes[at..range.end];
        let len = match rest[0] {
            quote @ (b'"' | b'\'') => {
                rest[1..].iter().position(|b| *b == quote).map_or(rest.len(), |n| n + 2)
            }
            _ => rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len()),
        };
        out.push(at..at + len);
        at += len;
    }
    out
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
