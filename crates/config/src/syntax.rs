//! Reader of the `section { key = value }` syntax of `swanctl.conf`, `strongswan.conf` and
//! `ironswan.conf`.
//!
//! ```text
//! # comment
//! include conf.d/*.conf
//! name : other, third.sub {      inherits from sections written elsewhere
//!     key = words up to the end of the line, a `}` or a `#`    one blank between two words
//!     text = "quoted: \" \\ \n \r \t, \<newline> joins lines" and "more"    one blank, too
//!     unset =                    takes away what was written before, or would be inherited
//! }
//! ```
//! A key written twice: the last one holds, with a warning. A section written twice: its parts are
//! merged. CRLF, tabs and a byte order mark are harmless. `testkit/interop/tests/grammar.py`
//! compares this reader with Debian's `swanctl`. Refused although `swanctl` takes them, since they
//! hide mistakes: a NUL, bytes that are not UTF-8, control characters and Unicode blanks outside of
//! quotes, a key and a section of one name, a section that begins in one file and ends in another.
//! The meaning of keys is in `meaning`; files and globs are in `include`.

use std::sync::Arc;

use ironswan_keying::diagnosis::{Configuration, IncludeFault, SyntaxFault};
use zeroize::Zeroizing;

use super::diag::Diagnostics;
use super::meaning::join;
use super::tree::{Node, Origin, Section, Value};

/// Sections inside sections, at most.
const MAX_DEPTH: usize = 32;
/// A name is at most this long.
const MAX_NAME: usize = 255;
/// A section inherits from no more than this, wherever it is opened.
const MAX_REFS: usize = 100;

/// Reads what an `include` names into the section where it stands.
pub(super) trait Includes {
    /// Reads every file that `pattern` (relative to the including file) names. `path`: the names of
    /// the sections that are open, of which `into` is the last.
    fn include(
        &mut self,
        pattern: &str,
        at: &Origin,
        into: &mut Section,
        path: &mut Vec<String>,
        diags: &mut Diagnostics,
    );
}

/// No files at all: for text that did not come from a file.
pub(super) struct NoIncludes;

impl Includes for NoIncludes {
    fn include(
        &mut self,
        pattern: &str,
        at: &Origin,
        _: &mut Section,
        _: &mut Vec<String>,
        diags: &mut Diagnostics,
    ) {
        let file = shorten(&pattern.escape_debug().to_string());
        diags.error(at, "", Configuration::IncludeRefused { file, why: IncludeFault::NoFile });
    }
}

/// Reads one text into `root`, which is the section that `path` names. The first thing that cannot
/// be read ends it, with an error in `diags`; what was read before stays in `root`.
pub(super) fn parse(
    file: &Arc<str>,
    bytes: &[u8],
    root: &mut Section,
    path: &mut Vec<String>,
    includes: &mut dyn Includes,
    diags: &mut Diagnostics,
) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = line_of(bytes, e.valid_up_to());
            let at = Origin { file: file.clone(), line };
            diags.error(&at, "", Configuration::Syntax { why: SyntaxFault::NotUtf8 });
            return;
        }
    };
    if let Some(pos) = memchr_nul(bytes) {
        let at = Origin { file: file.clone(), line: line_of(bytes, pos) };
        diags.error(&at, "", Configuration::Syntax { why: SyntaxFault::Nul });
        return;
    }
    let layout = Layout { line_start: 0, fresh: true, unclosed: None, superfluous: None };
    let mut p = Parser { file, text, rest: text, line: 1, layout, secret: None, path, includes, diags };
    let depth = p.path.len();
    if let Err((line, why)) = p.statements(root, None) {
        let at = Origin { file: file.clone(), line };
        p.diags.error(&at, "", Configuration::Syntax { why });
    }
    p.path.truncate(depth);
}

fn memchr_nul(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&b| b == 0)
}

fn line_of(bytes: &[u8], pos: usize) -> u32 {
    let lines = bytes[..pos].iter().filter(|&&b| b == b'\n').count();
    u32::try_from(lines).unwrap_or(u32::MAX).saturating_add(1)
}

/// The line on which reading ends, and the reason.
type Stop = (u32, SyntaxFault);

/// Braces as the indentation suggests them. A missing `}` shows only at the end of the file, far
/// from its place; people indent what is inside, so the first line that stands too far out, or the
/// first `}` that stands too far in, tells more.
struct Layout<'a> {
    /// Offset in the text at which the current line begins, in bytes.
    line_start: usize,
    /// Nothing of the current line has been read.
    fresh: bool,
    /// The first section that ends by its indentation and not by a brace: name, line of its
    /// beginning, line of its end.
    unclosed: Option<(&'a str, u32, u32)>,
    /// The line of the first `}` that stands further in than the section that it closes.
    superfluous: Option<u32>,
}

/// A section whose `}` has not come yet.
struct Open<'a> {
    name: &'a str,
    line: u32,
    /// The blanks in front of its name, when it is the first of its line.
    indent: Option<&'a str>,
    /// One of its lines stands further in than its name.
    indented: bool,
}

struct Parser<'a, 'b> {
    file: &'b Arc<str>,
    text: &'a str,
    rest: &'a str,
    line: u32,
    layout: Layout<'a>,
    /// The line on which the last value of a key `secret` ended.
    secret: Option<u32>,
    path: &'b mut Vec<String>,
    includes: &'b mut dyn Includes,
    diags: &'b mut Diagnostics,
}

impl<'a> Parser<'a, '_> {
    fn here(&self) -> Origin {
        Origin { file: self.file.clone(), line: self.line }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.layout.line_start = self.text.len() - self.rest.len();
            self.layout.fresh = true;
        }
        Some(c)
    }

    /// Skips blanks on this line.
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
    }

    /// A comment ends with its line. What is behind a carriage return in the middle of one
    /// `swanctl` reads in some places and not in others.
    fn comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        if self.rest[..end].trim_end_matches('\r').contains('\r') {
            let at = self.here();
            self.diags.error(&at, "", Configuration::Syntax { why: SyntaxFault::CarriageReturn });
        }
        self.rest = &self.rest[end..];
    }

    /// Skips blanks, line ends and comments.
    fn space(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' => {
                    self.bump();
                }
                '#' => self.comment(),
                _ => return,
            }
        }
    }

    fn fail<T>(&self, why: SyntaxFault) -> Result<T, Stop> {
        Err((self.line, why))
    }

    /// The blanks in front of what is read next, when it is the first of its line.
    fn indent(&mut self) -> Option<&'a str> {
        let here = self.text.len() - self.rest.len();
        std::mem::take(&mut self.layout.fresh).then(|| &self.text[self.layout.line_start..here])
    }

    /// Statements up to the end of the file, or to the `}` that closes `open`.
    fn statements(&mut self, into: &mut Section, mut open: Option<Open<'a>>) -> Result<(), Stop> {
        loop {
            self.space();
            let indent = self.indent();
            match (self.peek(), &mut open) {
                (None, None) => return Ok(()),
                (None, Some(open)) => return Err(self.never_closed(open)),
                (Some('}'), None) => return Err(self.closes_nothing()),
                (Some('}'), Some(open)) => {
                    if let (Some(inner), Some(outer)) = (indent, open.indent) {
                        if further_in(outer, inner) {
                            self.layout.unclosed.get_or_insert((open.name, open.line, self.line));
                        } else if further_in(inner, outer) {
                            self.layout.superfluous.get_or_insert(self.line);
                        }
                    }
                    self.bump();
                    return Ok(());
                }
                (Some(_), open) => {
                    if let (Some(open), Some(inner)) = (open, indent)
                        && let Some(outer) = open.indent
                    {
                        if further_in(inner, outer) {
                            open.indented = true;
                        } else if open.indented && outer.starts_with(inner) {
                            self.layout.unclosed.get_or_insert((open.name, open.line, self.line));
                        }
                    }
                    self.statement(into, indent)?;
                }
            }
            self.layout.fresh = false;
        }
    }

    /// The end of the file came before the `}` of `open`.
    fn never_closed(&self, open: &Open<'_>) -> Stop {
        let (name, begins, before) = match self.layout.unclosed {
            None => (open.name, open.line, None),
            Some((name, begins, ends)) => (name, begins, Some(ends)),
        };
        let open = (begins != open.line).then(|| (open.name.to_owned(), open.line));
        (begins, SyntaxFault::NeverClosed { name: name.to_owned(), before, open })
    }

    /// A `}` came and no section was open.
    fn closes_nothing(&self) -> Stop {
        (self.line, SyntaxFault::ClosesNothing { superfluous: self.layout.superfluous })
    }

    fn statement(&mut self, into: &mut Section, indent: Option<&'a str>) -> Result<(), Stop> {
        let at = self.here();
        // A message goes to the log and to terminals: it must not quote a part of a secret.
        let behind = self.secret == Some(at.line);
        if behind && self.text[..self.text.len() - self.rest.len()].ends_with('}') {
            return self.fail(SyntaxFault::DirectlyBehindSecret);
        }
        let among = self.path.first().is_some_and(|first| first == "secrets") || into.get("secret").is_some();
        let hide = |stop: Stop| match (behind, among) {
            (true, _) => (stop.0, SyntaxFault::BehindSecret),
            (_, true) => (stop.0, SyntaxFault::NoStatementAmongSecrets),
            _ => stop,
        };
        let name = self.name().map_err(hide)?;
        // With one blank before the `=` it is a key, with two a directive that lacks its file: so
        // does `swanctl` read it.
        if name == "include" && self.rest.starts_with([' ', '\t']) && !self.rest[1..].starts_with('=') {
            self.blanks();
            let pattern = self.include_pattern()?;
            self.includes.include(&pattern, &at, into, self.path, self.diags);
            return Ok(());
        }
        self.space();
        if self.peek() == Some('=') {
            if behind {
                return self.fail(SyntaxFault::BehindSecret);
            }
            self.bump();
            let value = self.value(&at)?;
            if name == "secret" {
                self.secret = Some(self.line);
            }
            return self.assign(into, name, value);
        }
        let mut refs = Vec::new();
        if self.peek() == Some(':') {
            self.bump();
            refs = self.references()?;
        }
        self.space();
        match self.peek() {
            Some('{') => {
                self.bump();
            }
            _ if name == "include" => return Err((at.line, SyntaxFault::IncludeNamesNone)),
            _ => {
                return Err(hide((at.line, SyntaxFault::NoValue { name: shorten(name) })));
            }
        }
        self.section(into, name, &at, refs, indent)
    }

    /// The statements of a section, behind its `{`.
    fn section(
        &mut self,
        into: &mut Section,
        name: &'a str,
        at: &Origin,
        refs: Vec<(String, Origin)>,
        indent: Option<&'a str>,
    ) -> Result<(), Stop> {
        if self.path.len() >= MAX_DEPTH {
            return Err((at.line, SyntaxFault::TooDeep { name: name.to_owned(), max: MAX_DEPTH }));
        }
        let Some(section) = into.open(name, at) else {
            return Err((at.line, SyntaxFault::KeyAlready { name: name.to_owned() }));
        };
        section.refs.extend(refs);
        if section.refs.len() > MAX_REFS {
            let name = Some(shorten(name));
            return Err((at.line, SyntaxFault::TooManyReferences { name, max: MAX_REFS }));
        }
        self.path.push(name.to_owned());
        self.layout.fresh = false;
        self.secret = None;
        self.statements(section, Some(Open { name, line: at.line, indent, indented: false }))?;
        self.path.pop();
        Ok(())
    }

    fn assign(&mut self, into: &mut Section, name: &str, value: Value) -> Result<(), Stop> {
        let at = value.origin.clone();
        match into.set(name, Node::Value(value)) {
            None => {}
            Some(Node::Section(s)) => {
                let (name, place) = (name.to_owned(), s.origin.to_string());
                return Err((at.line, SyntaxFault::SectionAlready { name, place }));
            }
            Some(Node::Value(before)) => {
                let key = join(&self.path.join("."), name);
                let first = if before.origin.file == at.file {
                    format!("line {}", before.origin.line)
                } else {
                    before.origin.to_string()
                };
                self.diags.warn(&at, &key, Configuration::WrittenTwice { first });
            }
        }
        Ok(())
    }

    /// A name, quoted by nothing: everything printable but `. , : { } = " #` and blanks
    /// (strongswan.conf(5)).
    fn name(&mut self) -> Result<&'a str, Stop> {
        let ends = |c: char| c.is_whitespace() || c.is_control() || ".,:{}=\"#".contains(c);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        if name.is_empty() {
            let c = self.peek().unwrap_or(' ');
            let found = c.escape_default().to_string();
            return self.fail(SyntaxFault::NameExpected { found });
        }
        if name.len() > MAX_NAME {
            return self.fail(SyntaxFault::NameTooLong { name: shorten(name), max: MAX_NAME });
        }
        self.rest = &self.rest[end..];
        match self.peek() {
            Some('.') => self.fail(SyntaxFault::DotInName { name: shorten(name) }),
            Some(found @ (',' | '"')) => self.fail(SyntaxFault::BehindName { found, name: shorten(name) }),
            Some(c) if (c.is_control() || c.is_whitespace()) && !" \t\r\n".contains(c) => {
                let (found, name) = (c.escape_unicode().to_string(), shorten(name));
                self.fail(SyntaxFault::OddBlank { control: c.is_control(), found, name })
            }
            _ => Ok(name),
        }
    }

    fn references(&mut self) -> Result<Vec<(String, Origin)>, Stop> {
        let mut refs = Vec::new();
        loop {
            self.space();
            let at = self.here();
            let ends = |c: char| c.is_whitespace() || ",:{}=\"#".contains(c);
            let end = self.rest.find(ends).unwrap_or(self.rest.len());
            if end == 0 || end > MAX_NAME * 4 {
                return self.fail(SyntaxFault::ReferenceExpected);
            }
            refs.push((self.rest[..end].to_owned(), at));
            if refs.len() > MAX_REFS {
                return self.fail(SyntaxFault::TooManyReferences { name: None, max: MAX_REFS });
            }
            self.rest = &self.rest[end..];
            self.space();
            if self.peek() != Some(',') {
                return Ok(refs);
            }
            self.bump();
        }
    }

    /// A file's name or glob, up to a blank unless it is quoted; a `\` keeps what stands behind it.
    fn include_pattern(&mut self) -> Result<String, Stop> {
        if self.peek() == Some('"') {
            return Ok(self.quoted()?.to_string());
        }
        let mut pattern = String::new();
        while let Some(c) = self.peek() {
            match c {
                '=' if pattern.is_empty() => break,
                ' ' | '\t' | '\r' | '\n' | '#' | '}' | '"' => break,
                '\\' => {
                    self.bump();
                    match self.peek() {
                        Some(c @ (' ' | '\t' | '#' | '}' | '"')) => {
                            self.bump();
                            pattern.push(c);
                        }
                        _ => pattern.push('\\'),
                    }
                }
                c => {
                    self.bump();
                    pattern.push(c);
                }
            }
        }
        if pattern.is_empty() { self.fail(SyntaxFault::IncludeNamesNone) } else { Ok(pattern) }
    }

    /// Words and quoted texts, in any order, with one blank between them.
    fn value(&mut self, at: &Origin) -> Result<Value, Stop> {
        let mut out = Zeroizing::new(String::new());
        let mut parts = 0;
        let mut after_word = false;
        loop {
            let before = self.rest.len();
            self.blanks();
            after_word &= before == self.rest.len();
            match self.peek() {
                None | Some('\n' | '}') => break,
                Some('#') => {
                    if after_word {
                        self.diags.warn(at, "", Configuration::CommentInValue);
                    }
                    break;
                }
                Some(_) if parts > 0 => push(&mut out, " "),
                Some(_) => {}
            }
            parts += 1;
            if self.peek() == Some('"') {
                let text = self.quoted()?;
                push(&mut out, &text);
                after_word = false;
                continue;
            }
            let end = self.rest.find([' ', '\t', '\r', '\n', '#', '}', '"']).unwrap_or(self.rest.len());
            let (word, rest) = self.rest.split_at(end);
            if let Some(c) = word.chars().find(|c| c.is_control()) {
                let found = c.escape_default().to_string();
                return self.fail(SyntaxFault::ControlInValue { found });
            }
            push(&mut out, word);
            self.rest = rest;
            after_word = true;
        }
        Ok(if parts == 0 { Value::unset(at.clone()) } else { Value::text(out.as_str(), at.clone()) })
    }

    /// A quoted text, standing on its opening quote. Every carriage return is left out, so that
    /// line ends inside are the same whatever the file's are.
    fn quoted(&mut self) -> Result<Zeroizing<String>, Stop> {
        let opened = self.line;
        let never = || (opened, SyntaxFault::QuoteNeverClosed);
        self.bump();
        let mut out = Zeroizing::new(String::new());
        loop {
            let end = self.rest.find(['"', '\\', '\n', '\r']).ok_or_else(never)?;
            let (plain, rest) = self.rest.split_at(end);
            push(&mut out, plain);
            self.rest = rest;
            match self.bump() {
                None => return Err(never()),
                Some('"') => return Ok(out),
                Some('\\') => match self.bump().ok_or_else(never)? {
                    'n' => push(&mut out, "\n"),
                    'r' => push(&mut out, "\r"),
                    't' => push(&mut out, "\t"),
                    '\r' if self.peek() == Some('\n') => {
                        self.bump();
                    }
                    '\n' => {}
                    c => push(&mut out, c.encode_utf8(&mut [0; 4])),
                },
                Some('\n') => push(&mut out, "\n"),
                Some(_) => {}
            }
        }
    }
}

/// True when a line indented by `inner` stands further in than one indented by `outer`. Blanks and
/// tabs are not compared.
fn further_in(inner: &str, outer: &str) -> bool {
    inner.len() > outer.len() && inner.starts_with(outer)
}

/// Appends to what may be a secret: what grows is copied, and the old copy wiped.
fn push(out: &mut Zeroizing<String>, text: &str) {
    if out.capacity() - out.len() < text.len() {
        let mut larger =
            Zeroizing::new(String::with_capacity((out.len() + text.len()).max(2 * out.capacity())));
        larger.push_str(out);
        *out = larger;
    }
    out.push_str(text);
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 40 {
        text.to_owned()
    } else {
        text.chars().take(40).chain("...".chars()).collect()
    }
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
