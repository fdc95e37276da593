//! Messages: an ordered tree of keys, lists and sections.

use zeroize::Zeroize;

use super::packet::{emit_name, parse_name};
use super::{Error, MAX_DEPTH};
use crate::read::{EmitError, Reader, Writer};

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

/// Value of a name: a text, a list or a section.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes; text by convention, keys and certificates are binary.
    Text(Vec<u8>),
    /// A list of such.
    List(Vec<Vec<u8>>),
    /// More names.
    Section(Section),
}

/// Named values in the order they came or were put. A message is a section without a name. Values
/// are wiped when it is dropped: those of some commands are keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Section {
    entries: Vec<(String, Value)>,
}

impl Section {
    /// Nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a value. Texts, numbers (in decimal), booleans (`yes` and `no`), lists and sections
    /// all are values.
    pub fn put(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.entries.push((name.into(), value.into()));
        self
    }

    /// [`Section::put`] for building in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.put(name, value);
        self
    }

    /// All names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The sections directly inside, in order.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name, section)),
            _ => None,
        })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a name; of several the last, as in a configuration file.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The bytes of a key.
    pub fn get_bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name) {
            Some(Value::Text(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a key. `None` as well when it is not UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The items of a list.
    pub fn get_list(&self, name: &str) -> Option<&[Vec<u8>]> {
        match self.get(name) {
            Some(Value::List(items)) => Some(items),
            _ => None,
        }
    }

    /// The section of this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        match self.get(name) {
            Some(Value::Section(section)) => Some(section),
            _ => None,
        }
    }

    /// Takes the value of a name out, so that a secret leaves no copy behind. Whoever takes it
    /// wipes it.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.entries.iter().rposition(|(n, _)| n == name)?;
        Some(self.entries.remove(at).1)
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        // Sections that are open, outermost first, without the message itself.
        let mut open: Vec<(String, Section)> = Vec::new();
        let mut message = Section::new();
        let mut list: Option<(String, Vec<Vec<u8>>)> = None;
        while r.any_left() {
            let element = r.u8("element type")?;
            if list.is_some() && !matches!(element, LIST_ITEM | LIST_END) {
                return Err(Error::Unbalanced("something else than an item inside a list"));
            }
            let here = open.last_mut().map_or(&mut message, |(_, section)| section);
            match element {
                SECTION_START => {
                    let name = parse_name(&mut r)?;
                    if open.len() == MAX_DEPTH {
                        return Err(Error::TooDeep);
                    }
                    open.push((name, Section::new()));
                }
                SECTION_END => {
                    let (name, section) =
                        open.pop().ok_or(Error::Unbalanced("a section ends that did not begin"))?;
                    open.last_mut().map_or(&mut message, |(_, outer)| outer).put(name, section);
                }
                KEY_VALUE => {
                    let name = parse_name(&mut r)?;
                    here.put(name, parse_value(&mut r)?);
                }
                LIST_START => list = Some((parse_name(&mut r)?, Vec::new())),
                LIST_ITEM => {
                    let (_, items) = list.as_mut().ok_or(Error::Unbalanced("a list item outside a list"))?;
                    items.push(parse_value(&mut r)?);
                }
                LIST_END => {
                    let (name, items) =
                        list.take().ok_or(Error::Unbalanced("a list ends that did not begin"))?;
                    here.put(name, items);
                }
                _ => return Err(Error::ElementType(element)),
            }
        }
        if list.is_some() {
            return Err(Error::Unbalanced("a list does not end"));
        }
        if !open.is_empty() {
            return Err(Error::Unbalanced("a section does not end"));
        }
        Ok(message)
    }

    /// The message in bytes.
    pub fn emit(&self) -> Result<Vec<u8>, EmitError> {
        let mut out = Vec::new();
        self.emit_onto(&mut Writer::new(&mut out))?;
        Ok(out)
    }

    pub(super) fn emit_onto(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        self.emit_at(MAX_DEPTH, w)
    }

    fn emit_at(&self, levels: usize, w: &mut Writer<'_>) -> Result<(), EmitError> {
        for (name, value) in &self.entries {
            match value {
                Value::Text(bytes) => {
                    w.u8(KEY_VALUE);
                    emit_name(name, w)?;
                    emit_value(bytes, w)?;
                }
                Value::List(items) => {
                    w.u8(LIST_START);
                    emit_name(name, w)?;
                    for item in items {
                        w.u8(LIST_ITEM);
                        emit_value(item, w)?;
                    }
                    w.u8(LIST_END);
                }
                Value::Section(section) => {
                    let levels = levels.checked_sub(1).ok_or(EmitError { what: "VICI section nesting" })?;
                    w.u8(SECTION_START);
                    emit_name(name, w)?;
                    section.emit_at(levels, w)?;
                    w.u8(SECTION_END);
                }
            }
        }
        Ok(())
    }
}

fn parse_value(r: &mut Reader<'_>) -> Result<Vec<u8>, Error> {
    let length = r.u16("value length")?;
    Ok(r.bytes(length.into(), "value")?.to_vec())
}

fn emit_value(value: &[u8], w: &mut Writer<'_>) -> Result<(), EmitError> {
    w.count16(value.len(), "VICI value")?;
    w.bytes(value);
    Ok(())
}

impl Drop for Section {
    fn drop(&mut self) {
        for (_, value) in &mut self.entries {
            match value {
                Value::Text(bytes) => bytes.zeroize(),
                Value::List(items) => items.iter_mut().for_each(Zeroize::zeroize),
                // Wipes itself.
                Value::Section(_) => {}
            }
        }
    }
}

/// Names whose values are private keys, passwords and PINs in strongSwan's commands.
fn is_secret(name: &str) -> bool {
    matches!(name, "data" | "pin" | "secret")
}

impl std::fmt::Debug for Section {
    /// Readable, without what a log must not hold.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in &self.entries {
            match value {
                Value::Text(bytes) if is_secret(name) => {
                    map.entry(name, &format_args!("<{} bytes>", bytes.len()))
                }
                _ => map.entry(name, value),
            };
        }
        map.finish()
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::List(items) => {
                f.debug_list().entries(items.iter().map(|i| i.escape_ascii().to_string())).finish()
            }
            Self::Section(section) => section.fmt(f),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Text(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Text(bytes.to_vec())
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::from(if yes { "yes" } else { "no" })
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::from(n.to_string())
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::from(u64::from(n))
    }
}

impl From<u16> for Value {
    fn from(n: u16) -> Self {
        Self::from(u64::from(n))
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Self {
        Self::from(n.to_string())
    }
}

impl From<Section> for Value {
    fn from(section: Section) -> Self {
        Self::Section(section)
    }
}

impl From<Vec<Vec<u8>>> for Value {
    fn from(items: Vec<Vec<u8>>) -> Self {
        Self::List(items)
    }
}

impl From<Vec<String>> for Value {
    fn from(items: Vec<String>) -> Self {
        Self::List(items.into_iter().map(String::into_bytes).collect())
    }
}

impl From<&[&str]> for Value {
    fn from(items: &[&str]) -> Self {
        Self::List(items.iter().map(|i| i.as_bytes().to_vec()).collect())
    }
}

impl<const N: usize> From<[&str; N]> for Value {
    fn from(items: [&str; N]) -> Self {
        Self::from(&items[..])
    }
}

impl<T: Into<Value>> FromIterator<(String, T)> for Section {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().map(|(name, value)| (name, value.into())).collect() }
    }
}
