//! Reader of the `section { key = value }` syntax of `swanctl.conf`, `strongswan.conf` and `ironswan.conf`.
//!
//! ```text
//! # comment
//! include conf.d/*.conf
//! name : other, third.sub {      inherits from sections written elsewhere
//!     key = value up to the end of the line, a `}` or a `#`
//!     text = "quoted: \" \\ \n \r \t, may go over lines, \<newline> joins"
//! }
//! ```
//! A key written twice: the last one holds. A section written twice: its parts are merged. CRLF, tabs and a byte order
//! mark are harmless; a NUL, bytes that are not UTF-8, and a name with `.` are errors with their line. What keys
//! mean is `meaning`'s affair; files and globs are `include`'s.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::diag::Diagnostics;
use super::tree::{Node, Origin, Section, Value};

/// Sections inside sections, at most.
const MAX_DEPTH: usize = 32;
/// A name is at most this long.
const MAX_NAME: usize = 255;

/// Reads what an `include` names into the section where it stands.
pub(super) trait Includes {
    /// Reads every file that `pattern` (relative to the including file) names.
    fn include(
        &mut self,
        pattern: &str,
        at: &Origin,
        into: &mut Section,
        depth: usize,
        diags: &mut Diagnostics,
    );
}

/// No files at all: for text that did not come from a file (and for the fuzzer).
pub(super) struct NoIncludes;

impl Includes for NoIncludes {
    fn include(&mut self, pattern: &str, at: &Origin, _: &mut Section, _: usize, diags: &mut Diagnostics) {
        diags.error(
            at,
            "",
            format!("include {}: not possible here", shorten(&pattern.escape_debug().to_string())),
        );
    }
}

/// Reads one text into `root`. The first thing that cannot be read ends it, with an error in `diags`; what was read
/// before stays in `root`.
pub(super) fn parse(
    file: &Arc<str>,
    bytes: &[u8],
    root: &mut Section,
    depth: usize,
    includes: &mut dyn Includes,
    diags: &mut Diagnostics,
) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = line_of(bytes, e.valid_up_to());
            let at = Origin { file: file.clone(), line };
            diags.error(&at, "", "bytes that are not UTF-8; save the file as UTF-8 text");
            return;
        }
    };
    if let Some(pos) = memchr_nul(bytes) {
        let at = Origin { file: file.clone(), line: line_of(bytes, pos) };
        diags.error(&at, "", "a NUL byte; this is not a text file, or it is damaged");
        return;
    }
    let mut p = Parser { file, rest: text, line: 1, includes, diags };
    if let Err((line, message)) = p.statements(root, depth, None) {
        let at = Origin { file: file.clone(), line };
        p.diags.error(&at, "", message);
    }
}

fn memchr_nul(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&b| b == 0)
}

fn line_of(bytes: &[u8], pos: usize) -> u32 {
    let lines = bytes[..pos].iter().filter(|&&b| b == b'\n').count();
    u32::try_from(lines).unwrap_or(u32::MAX).saturating_add(1)
}

type Stop = (u32, String);

struct Parser<'a> {
    file: &'a Arc<str>,
    rest: &'a str,
    line: u32,
    includes: &'a mut dyn Includes,
    diags: &'a mut Diagnostics,
}

impl<'a> Parser<'a> {
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
        }
        Some(c)
    }

    /// Skips blanks on this line.
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
    }

    fn comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
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

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Stop> {
        Err((self.line, message.into()))
    }

    /// Statements up to the end of the file, or to the `}` that closes `open` (its name and line).
    fn statements(
        &mut self,
        into: &mut Section,
        depth: usize,
        open: Option<(&str, u32)>,
    ) -> Result<(), Stop> {
        loop {
            self.space();
            match (self.peek(), open) {
                (None, None) => return Ok(()),
                (None, Some((name, line))) => {
                    return Err((line, format!("section `{name}` is never closed; add a `}}`")));
                }
                (Some('}'), None) => return self.fail("a `}` that closes nothing; remove it"),
                (Some('}'), Some(_)) => {
                    self.bump();
                    return Ok(());
                }
                (Some(_), _) => self.statement(into, depth)?,
            }
        }
    }

    fn statement(&mut self, into: &mut Section, depth: usize) -> Result<(), Stop> {
        let at = self.here();
        let name = self.name()?;
        self.blanks();
        if name == "include" && !matches!(self.peek(), Some('=' | '{' | ':')) {
            let pattern = self.include_pattern()?;
            self.includes.include(&pattern, &at, into, depth, self.diags);
            return Ok(());
        }
        if self.peek() == Some('=') {
            self.bump();
            let value = self.value(&at)?;
            if let Some(Node::Section(s)) = into.set(name, Node::Value(value)) {
                return Err((at.line, format!("`{name}` is a section already, opened at {}", s.origin)));
            }
            return Ok(());
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
            _ => {
                return Err((
                    at.line,
                    format!(
                        "`{}` is followed by neither `=` nor `{{`; write `{name} = value` or `{name} {{ ... }}`",
                        shorten(name)
                    ),
                ));
            }
        }
        if depth >= MAX_DEPTH {
            return Err((
                at.line,
                format!("section `{name}`: more than {MAX_DEPTH} sections inside each other"),
            ));
        }
        let Some(section) = into.open(name, &at) else {
            return Err((at.line, format!("`{name}` is a key already, it cannot be a section too")));
        };
        section.refs.extend(refs);
        self.statements(section, depth + 1, Some((name, at.line)))
    }

    /// A name, quoted by nothing: everything printable but `. , : { } = " #` and blanks (strongswan.conf(5)).
    fn name(&mut self) -> Result<&'a str, Stop> {
        let ends = |c: char| c.is_whitespace() || c.is_control() || ".,:{}=\"#".contains(c);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        if name.is_empty() {
            let c = self.peek().unwrap_or(' ');
            return self.fail(format!("`{}` where a name is expected", c.escape_default()));
        }
        if name.len() > MAX_NAME {
            return self.fail(format!("a name longer than {MAX_NAME} bytes: `{}`", shorten(name)));
        }
        self.rest = &self.rest[end..];
        match self.peek() {
            Some('.') => self.fail(format!(
                "a name must not contain `.`: `{name}.`; write nested sections, or `-` instead of the dot"
            )),
            Some(c @ (',' | '"')) => self.fail(format!("`{c}` after the name `{name}`")),
            Some(c) if c.is_control() && !c.is_whitespace() => {
                self.fail(format!("a control character ({}) after `{name}`", c.escape_default()))
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
                return self.fail("the name of a section is expected after `:`");
            }
            refs.push((self.rest[..end].to_owned(), at));
            if refs.len() > 100 {
                return self.fail("more than 100 references");
            }
            self.rest = &self.rest[end..];
            self.space();
            if self.peek() != Some(',') {
                return Ok(refs);
            }
            self.bump();
        }
    }

    fn include_pattern(&mut self) -> Result<String, Stop> {
        if self.peek() == Some('"') {
            let text = self.quoted()?;
            return Ok(text.to_string());
        }
        let end = self.rest.find(['\n', '#', '{', '}']).unwrap_or(self.rest.len());
        let pattern = self.rest[..end].trim();
        if pattern.is_empty() {
            return self.fail("include names no file");
        }
        self.rest = &self.rest[end..];
        Ok(pattern.to_owned())
    }

    fn value(&mut self, at: &Origin) -> Result<Value, Stop> {
        self.blanks();
        if self.peek() == Some('"') {
            let text = self.quoted()?;
            self.blanks();
            return match self.peek() {
                None | Some('\n' | '#' | '}') => Ok(Value::text(text.as_str(), at.clone())),
                Some(_) => self.fail("text after the closing quote; put all of the value inside the quotes"),
            };
        }
        let end = self.rest.find(['\n', '#', '}', '"', '{']).unwrap_or(self.rest.len());
        let text = self.rest[..end].trim_end_matches([' ', '\t', '\r']);
        let hash_inside = self.rest[end..].starts_with('#') && text.len() == end && !text.is_empty();
        self.rest = &self.rest[end..];
        match self.peek() {
            Some(c @ ('"' | '{')) => {
                return self.fail(format!(
                    "`{c}` inside a value; put the whole value in quotes, or start a new line before it"
                ));
            }
            _ if hash_inside => {
                self.diags.warn(
                    at,
                    "",
                    "`#` starts a comment in the middle of this value; quote the value if it belongs to it",
                );
            }
            _ => {}
        }
        if let Some(c) = text.chars().find(|c| c.is_control() && *c != '\t') {
            return self.fail(format!("a control character ({}) in a value", c.escape_default()));
        }
        Ok(Value::text(text, at.clone()))
    }

    /// A quoted text, standing on its opening quote.
    fn quoted(&mut self) -> Result<Zeroizing<String>, Stop> {
        let opened = self.line;
        self.bump();
        let mut out = Zeroizing::new(String::new());
        loop {
            match self.bump() {
                None => return Err((opened, "a quoted text that is never closed".to_owned())),
                Some('"') => return Ok(out),
                Some('\\') => match self.bump() {
                    Some('n') => out.push('\n'),
                    Some('r') => out.push('\r'),
                    Some('t') => out.push('\t'),
                    Some('\r') if self.peek() == Some('\n') => {
                        self.bump();
                    }
                    Some('\n') => {}
                    Some(c) => out.push(c),
                    None => return Err((opened, "a quoted text that is never closed".to_owned())),
                },
                // A line end inside a quoted text is itself, whatever the file's line ends are.
                Some('\r') if self.peek() == Some('\n') => {}
                Some(c) => out.push(c),
            }
        }
    }
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
