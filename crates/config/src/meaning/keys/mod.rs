//! The table of all keys: name, kind of value, default, reader, and one sentence for the manual.
//!
//! Reading a section, checking it for unknown keys, `list-conns`, and the tables of
//! `docs/manual/configuration.md` all come from here. A key that belongs to a feature that is not
//! built is in a second list, with the values that ask for nothing. Every other name is an error,
//! so that no configuration is silently taken for less than it says.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `authority` | keys of `authorities.<name>` |
//! | `child` | keys of `children.<child>`, and their readers |
//! | `conn` | keys of `connections.<conn>`, `local` and `remote`, and their readers |
//! | `data` | keys of `data { .. }`, and their readers |
//! | `listed` | the keys that `list-conns` shows, and their values |
//! | `secret` | keys of `secrets.ike<suffix>` and `.ppk<suffix>`, and kinds that are not built |
//! | `settings` | keys of `ironswan.conf`, `vici { .. }` and `log { .. }`, and their readers |

pub(super) mod authority;
pub(super) mod child;
pub(super) mod conn;
pub(super) mod data;
pub(super) mod listed;
pub(super) mod secret;
pub(super) mod settings;

use std::time::Duration;

use ironswan_keying::diagnosis::{Configuration, ValueFault};

use super::super::diag::{Diagnostics, nearest};
use super::super::tree::{Node, Origin, Section, Value};
use super::super::value::{self, Wrong, boolean, show, wrong};

/// The kind of value that a key holds, for the manual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A whole number.
    Number,
    /// A number with a fraction.
    Factor,
    /// A time with its unit.
    Duration,
    /// A number of bytes with its unit.
    Bytes,
    /// Yes or no.
    YesNo,
    /// One of a few words.
    Word,
    /// Addresses, ranges, subnets and names.
    Addresses,
    /// Lists of algorithms.
    Proposals,
    /// Traffic selectors.
    Selectors,
    /// The identity of a gateway.
    Identity,
    /// A network device.
    Device,
    /// A list of network devices.
    Devices,
    /// A list of processors.
    Processors,
    /// A user of this machine.
    User,
    /// A group of this machine.
    Group,
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A list of files.
    Files,
    /// A list of object identifiers.
    Policies,
    /// A socket of VICI.
    Socket,
    /// A list of sockets of VICI.
    Sockets,
    /// A list of places of the web.
    Uris,
    /// A shared secret.
    Secret,
}

impl Kind {
    /// The word for the manual.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Factor => "factor",
            Self::Duration => "time",
            Self::Bytes => "size",
            Self::YesNo => "yes or no",
            Self::Word => "word",
            Self::Addresses => "list of addresses",
            Self::Proposals => "list of proposals",
            Self::Selectors => "list of selectors",
            Self::Identity => "identity",
            Self::Device => "device",
            Self::Devices => "list of devices",
            Self::Processors => "list of processors",
            Self::User => "user",
            Self::Group => "group",
            Self::Folder => "folder",
            Self::File => "file",
            Self::Files => "list of files",
            Self::Policies => "list of OIDs",
            Self::Socket => "socket",
            Self::Sockets => "list of sockets",
            Self::Uris => "list of URIs",
            Self::Secret => "secret",
        }
    }
}

/// The value of a key that nobody wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Preset {
    /// This text. The key's own reader reads it, so that the manual and the program cannot differ.
    Is(&'static str),
    /// A value that follows from other keys or from the machine, in the words of the manual. Empty:
    /// there is no value.
    Depends(&'static str),
}

use Preset::Is;

/// Reader of a value.
enum Read<T> {
    /// Reads a text.
    Text(fn(&str) -> Result<T, Wrong>),
    /// Reads a list, and finds fault with any number of its items.
    List(fn(&Value) -> Result<T, Vec<Wrong>>),
}

/// A key that is read.
pub(super) struct Key<T> {
    name: &'static str,
    kind: Kind,
    preset: Preset,
    read: Read<T>,
    about: &'static str,
}

const fn text<T>(
    name: &'static str,
    kind: Kind,
    preset: Preset,
    read: fn(&str) -> Result<T, Wrong>,
    about: &'static str,
) -> Key<T> {
    Key { name, kind, preset, read: Read::Text(read), about }
}

const fn list<T>(
    name: &'static str,
    kind: Kind,
    preset: Preset,
    read: fn(&Value) -> Result<T, Vec<Wrong>>,
    about: &'static str,
) -> Key<T> {
    Key { name, kind, preset, read: Read::List(read), about }
}

const fn yes_no(name: &'static str, preset: &'static str, about: &'static str) -> Key<bool> {
    text(name, Kind::YesNo, Is(preset), boolean, about)
}

const fn time(name: &'static str, preset: Preset, about: &'static str) -> Key<Duration> {
    text(name, Kind::Duration, preset, value::time, about)
}

impl<T> Key<T> {
    /// Name of the key in its section.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Understands a value that was written for this key.
    pub(super) fn understand(&self, value: &Value) -> Result<T, Vec<Wrong>> {
        match self.read {
            Read::Text(read) => read(&value.as_text()).map_err(|wrong| vec![wrong]),
            Read::List(read) => read(value),
        }
    }

    /// The value when nothing was written.
    ///
    /// # Panics
    /// The key has no default of its own, or its reader refuses the default: both are defects of
    /// the table, and the tests read every default.
    pub(super) fn default(&self) -> T {
        let Is(text) = self.preset else { panic!("{} has no default of its own", self.name) };
        let value = Value::text(text, Origin::source("default"));
        self.understand(&value).unwrap_or_else(|wrong| panic!("{} = {text}: {wrong:?}", self.name))
    }
}

/// A key that is read, whatever the type of its value.
pub(super) trait Entry {
    /// Name of the key in its section.
    fn name(&self) -> &'static str;
    /// The kind of its value.
    fn kind(&self) -> Kind;
    /// Default of the key.
    fn preset(&self) -> Preset;
    /// Meaning of the key, for the manual.
    fn about(&self) -> &'static str;
}

impl<T> Entry for Key<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn preset(&self) -> Preset {
        self.preset
    }

    fn about(&self) -> &'static str {
        self.about
    }
}

/// Treatment of a key that has no reader.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Only these values (`no` and `yes` stand for their synonyms, `0` for `0s` and `0x0`) are
    /// taken.
    Only(&'static [&'static str]),
    /// Any value is taken, and has no effect.
    NoEffect,
    /// The key is read in this section now.
    Moved(&'static str),
}

/// A key that has no reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unused {
    /// Name of the key in its section.
    pub(super) name: &'static str,
    /// How it is treated.
    pub(super) rule: Rule,
    /// Why it is not read, and what to write instead.
    pub(super) why: &'static str,
}

const fn only(name: &'static str, values: &'static [&'static str], why: &'static str) -> Unused {
    Unused { name, rule: Rule::Only(values), why }
}

const fn no_effect(name: &'static str, why: &'static str) -> Unused {
    Unused { name, rule: Rule::NoEffect, why }
}

/// All keys of one kind of section.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// Keys that are read.
    pub(super) read: &'static [&'static dyn Entry],
    /// Keys that are known and not read.
    pub(super) unused: &'static [Unused],
}

impl Table {
    /// The names of all keys.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        self.read.iter().map(|key| key.name()).chain(self.unused.iter().map(|key| key.name))
    }
}

/// Makes constants of keys, and the list of them all.
macro_rules! keys {
    ($(#[$about:meta])* $list:ident; $($name:ident: $value:ty = $key:expr;)*) => {
        $(pub(in crate::meaning) const $name: Key<$value> = $key;)*
        $(#[$about])*
        const $list: &[&dyn Entry] = &[$(&$name),*];
    };
}
use keys;

const UNSET: &[&str] = &[];
const NO: &[&str] = &["no"];
const YES: &[&str] = &["yes"];
const ZERO: &[&str] = &["0"];

/// Looks at every entry of a section: unknown names, values that ask for what is not built.
/// Sub-sections are given to `section`, which says whether it knows that name.
pub(super) fn check<'a>(
    section: &'a Section,
    path: &str,
    table: Table,
    diags: &mut Diagnostics,
    mut sub: impl FnMut(&'a str, &'a Section, &mut Diagnostics) -> bool,
    sub_names: &[&'static str],
) {
    // A file may hold a million keys that nobody knows. Once the list of findings is full, their
    // names are not compared with the known ones any more.
    let near = |name: &str, known: &mut dyn Iterator<Item = &'static str>, diags: &Diagnostics| {
        if diags.is_full() { None } else { near(name, known) }
    };
    for (name, node) in section.entries() {
        let key = join(path, name);
        let is_read = table.read.iter().any(|k| k.name() == name);
        let unused = table.unused.iter().find(|k| k.name == name);
        match node {
            Node::Section(s) if is_read || unused.is_some() => {
                diags.error(&s.origin, &key, Configuration::SectionForKey { name: name.to_owned() });
            }
            Node::Section(s) => {
                if !sub(name, s, diags) {
                    let near = near(name, &mut sub_names.iter().copied(), diags);
                    diags.error(&s.origin, &key, Configuration::UnknownSection { near, top: false });
                }
            }
            Node::Value(v) => match unused {
                Some(unused) => without_reader(unused, v, &key, diags),
                None if is_read => {}
                None if sub_names.contains(&name) => {
                    diags.error(&v.origin, &key, Configuration::KeyForSection { name: name.to_owned() });
                }
                None => {
                    let near = near(name, &mut table.names(), diags);
                    diags.error(&v.origin, &key, Configuration::UnknownKey { near });
                }
            },
        }
    }
}

/// Judges the value of a key that has no reader.
fn without_reader(unused: &Unused, value: &Value, key: &str, diags: &mut Diagnostics) {
    if value.is_empty() {
        return;
    }
    let text = value.as_text();
    match unused.rule {
        Rule::Only(values) if values.iter().any(|allowed| same(allowed, &text)) => {}
        Rule::Only(_) => {
            let (what, write) = unused.why.split_once("; ").unwrap_or((unused.why, ""));
            let what = format!("{}: {what}", show(&text));
            diags.error(&value.origin, key, Configuration::NotBuilt { what, write });
        }
        Rule::NoEffect => diags.note(&value.origin, key, Configuration::NoEffect { why: unused.why }),
        Rule::Moved(section) => {
            let (name, value_text) = (unused.name, show(&text));
            let moved = Configuration::KeyMoved { name, section, value: value_text };
            diags.error(&value.origin, key, moved);
        }
    }
}

/// The nearest of the known names.
pub(super) fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, known).map(str::to_owned)
}

/// A key's full name.
pub(in super::super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a value is the allowed one or a synonym of it.
fn same(allowed: &str, text: &str) -> bool {
    let t = text.trim().to_ascii_lowercase();
    match allowed {
        "yes" => boolean(&t) == Ok(true),
        "no" => boolean(&t) == Ok(false),
        "0" => matches!(t.as_str(), "0" | "0s" | "0x0" | "0m" | "0h" | "0x00000000"),
        _ => t == allowed,
    }
}

/// Reads each item of a list. Gives up after a dozen that are wrong: a list may have a million
/// items.
fn each<T>(list: &Value, read: impl Fn(&str) -> Result<T, Wrong>) -> Result<Vec<T>, Vec<Wrong>> {
    let (mut out, mut wrong) = (Vec::new(), Vec::new());
    for item in list.items() {
        match read(item) {
            Ok(item) => out.push(item),
            Err(why) => wrong.push(why),
        }
        if wrong.len() > 10 {
            break;
        }
    }
    if out.is_empty() && wrong.is_empty() {
        wrong.push(Configuration::NamesNothing);
    }
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

/// Reads one of a closed list of words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Wrong> {
    let t = text.trim().to_ascii_lowercase();
    words.iter().find(|(w, _)| *w == t).map(|(_, v)| *v).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        wrong(text, ValueFault::NoneOf(known.join(", ")), "")
    })
}
