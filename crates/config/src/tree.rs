//! The written text as a tree: sections, keys and values, each with the place it was written at.
//!
//! The same tree is made from a file (`syntax`) and from a VICI message (`control::load`), so that
//! `meaning` has one implementation. Nothing here knows what a key means.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

/// Place of a text. Line 0: not in a file (VICI, the command line).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// File as it was named, or a word for the source.
    pub file: Arc<str>,
    /// Line from 1; 0 when there are no lines.
    pub line: u32,
}

impl Origin {
    /// A place that is not a line of a file.
    pub fn source(name: &str) -> Self {
        Self { file: name.into(), line: 0 }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

/// A value: one text, or (VICI only) a list of texts. Wiped when dropped, since it may be a secret.
#[derive(Clone)]
pub struct Value {
    items: Vec<Zeroizing<String>>,
    list: bool,
    /// Place of the value.
    pub origin: Origin,
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self { items: vec![Zeroizing::new(text.into())], list: false, origin }
    }

    /// `key =` with nothing behind it: takes away what would be inherited.
    pub fn unset(origin: Origin) -> Self {
        Self { items: Vec::new(), list: false, origin }
    }

    /// True for [`Value::unset`].
    pub fn is_unset(&self) -> bool {
        self.items.is_empty() && !self.list
    }

    /// A list, as VICI has them.
    pub fn list(items: impl IntoIterator<Item = String>, origin: Origin) -> Self {
        Self { items: items.into_iter().map(Zeroizing::new).collect(), list: true, origin }
    }

    /// The text; of a list its items joined by commas, as a file would have it.
    pub fn as_text(&self) -> Zeroizing<String> {
        match self.items.as_slice() {
            [one] => one.clone(),
            many => Zeroizing::new(many.iter().map(|i| i.as_str()).collect::<Vec<_>>().join(",")),
        }
    }

    /// Bytes of all its texts.
    pub(super) fn text_len(&self) -> usize {
        self.items.iter().map(|item| item.len()).sum()
    }

    /// True when nothing was written, which means the same as leaving the key out.
    pub fn is_empty(&self) -> bool {
        self.items.iter().all(|i| i.trim().is_empty())
    }

    /// The items of a list: a text is split at commas, blanks are trimmed, empty items are left
    /// out. An item in quotes of its own (`'CN=a, O=b', c`) ends with them, as `swanctl` splits
    /// lists.
    pub fn items(&self) -> impl Iterator<Item = &str> {
        let list = self.list;
        self.items
            .iter()
            .flat_map(move |i| if list { vec![i.as_str()] } else { split(i) })
            .map(str::trim)
            .filter(|i| !i.is_empty())
    }
}

fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(' ');
    while !rest.is_empty() {
        let quoted = rest.strip_prefix(['\'', '"']).and_then(|inside| {
            let quote = &rest[..1];
            inside.split_once(quote)
        });
        let (item, behind) = quoted.or_else(|| rest.split_once(',')).unwrap_or((rest, ""));
        out.push(item);
        rest = behind.trim_start_matches(' ');
    }
    out
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({})", self.origin)
    }
}

/// A key's value or a section.
#[derive(Clone, Debug)]
pub enum Node {
    /// `key = value`.
    Value(Value),
    /// `name { ... }`.
    Section(Section),
}

impl Node {
    /// Place of the entry.
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Value(v) => &v.origin,
            Self::Section(s) => &s.origin,
        }
    }
}

/// Above this many entries a section keeps an index by name.
const INDEXED_FROM: usize = 16;

/// A section: its entries in the order in which they were first written.
#[derive(Clone, Debug)]
pub struct Section {
    /// Place at which the section was first opened.
    pub origin: Origin,
    entries: Vec<(String, Node)>,
    index: HashMap<String, usize>,
    /// Sections to inherit from (`name : a, b { ... }`), with the place of each reference; empty
    /// once resolved.
    pub refs: Vec<(String, Origin)>,
}

impl Section {
    /// An empty section.
    pub fn new(origin: Origin) -> Self {
        Self { origin, entries: Vec::new(), index: HashMap::new(), refs: Vec::new() }
    }

    fn position(&self, name: &str) -> Option<usize> {
        if self.entries.len() < INDEXED_FROM {
            self.entries.iter().position(|(n, _)| n == name)
        } else {
            self.index.get(name).copied()
        }
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.position(name).map(|i| &self.entries[i].1)
    }

    /// The value of that name, unless it is empty.
    pub fn value(&self, name: &str) -> Option<&Value> {
        match self.get(name) {
            Some(Node::Value(v)) if !v.is_empty() => Some(v),
            _ => None,
        }
    }

    /// The sub-section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        match self.get(name) {
            Some(Node::Section(s)) => Some(s),
            _ => None,
        }
    }

    /// Every entry in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|(n, e)| (n.as_str(), e))
    }

    /// The sub-sections in order.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.entries().filter_map(|(n, e)| match e {
            Node::Section(s) => Some((n, s)),
            Node::Value(_) => None,
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds or replaces an entry; a replaced one keeps its position. Gives back what was there.
    pub fn set(&mut self, name: &str, node: Node) -> Option<Node> {
        if let Some(at) = self.position(name) {
            return Some(std::mem::replace(&mut self.entries[at].1, node));
        }
        self.entries.push((name.to_owned(), node));
        if self.entries.len() == INDEXED_FROM {
            self.index = self.entries.iter().enumerate().map(|(i, (n, _))| (n.clone(), i)).collect();
        } else if self.entries.len() > INDEXED_FROM {
            self.index.insert(name.to_owned(), self.entries.len() - 1);
        }
        None
    }

    /// The sub-section of that name, opened again or made; `None` when the name is a value's.
    pub fn open(&mut self, name: &str, origin: &Origin) -> Option<&mut Section> {
        if self.position(name).is_none() {
            self.set(name, Node::Section(Section::new(origin.clone())));
        }
        let at = self.position(name)?;
        match &mut self.entries[at].1 {
            Node::Section(s) => Some(s),
            Node::Value(_) => None,
        }
    }

    /// The sub-sections, to be changed.
    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = (&str, &mut Node)> {
        self.entries.iter_mut().map(|(n, e)| (n.as_str(), e))
    }

    /// Sections and values below this one.
    pub fn size(&self) -> usize {
        self.entries
            .iter()
            .map(|(_, e)| match e {
                Node::Value(_) => 1,
                Node::Section(s) => 1 + s.size(),
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Origin {
        Origin { file: "f".into(), line: 1 }
    }

    #[test]
    fn many_entries_are_found_by_the_index_as_few_are_by_looking() {
        let mut s = Section::new(at());
        for i in 0..100 {
            assert!(s.set(&format!("k{i}"), Node::Value(Value::text(i.to_string(), at()))).is_none());
            assert!(s.value(&format!("k{}", i / 2)).is_some());
        }
        assert!(s.set("k3", Node::Value(Value::text("x", at()))).is_some());
        assert_eq!(*s.value("k3").unwrap().as_text(), "x");
        assert_eq!((s.len(), s.size()), (100, 100));
    }

    #[test]
    fn a_file_s_text_is_a_list_by_commas_and_a_vici_list_is_not_split_again() {
        assert_eq!(Value::text(" a, b,,c ", at()).items().collect::<Vec<_>>(), ["a", "b", "c"]);
        for (text, items) in [
            ("'a b', c", &["a b", "c"][..]),
            ("'a, b','c'd,'e", &["a, b", "c", "d", "'e"]),
            ("\"a, 'b\" , '' ,x'y,z'", &["a, 'b", "x'y", "z'"]),
        ] {
            assert_eq!(Value::text(text, at()).items().collect::<Vec<_>>(), items, "{text}");
        }
        let list = Value::list(["CN=a, O=b".into(), "c".into()], at());
        assert_eq!(list.items().collect::<Vec<_>>(), ["CN=a, O=b", "c"]);
        assert_eq!(format!("{:?}", Value::text("swordfish", at())), "Value(f:1)");
    }
}
