//! Section references: `name : a, b.c { }` takes over what `a` has and `name` has not, then what
//! `b.c` has.
//!
//! As in strongSwan's settings, references are followed when something is looked for, not when they
//! are read: a section at a path is itself, then what it refers to, then what stands at the same
//! path below whatever the sections around it refer to; of each in turn the first that has a key
//! holds. A key that is written without a value hides one behind it. References to nothing and in
//! circles, which strongSwan ignores, are errors: a tunnel would be less than what was written.

use std::collections::HashSet;
use std::ptr;

use ironswan_keying::diagnosis::{Configuration, InheritFault, InheritLimit};

use super::diag::Diagnostics;
use super::tree::{Node, Origin, Section};

/// References may add so many entries, and so many more for each that was written: a template of 50
/// keys for every connection. A few kilobytes become a few megabytes at most.
const ADDED_ENTRIES: usize = 20_000;
const ADDED_PER_ENTRY: usize = 50;
/// References add no more entries than this, however many were written: 50 for each of 100,000
/// connections, as many as `ike_sa_max` lets be up by default. One of some bytes takes 160-280
/// bytes of memory, so that all are 1.4 GB at most.
const MAX_ADDED_ENTRIES: usize = 5_000_000;
/// Each so many bytes of a name and its text count as one more entry: a text of 10 MB is not free
/// to inherit.
const BYTES_PER_ENTRY: usize = 100;
/// Sections and entries that may be visited in all, and so many more for each entry that was
/// written.
const STEPS: usize = 1_000_000;
const STEPS_PER_ENTRY: usize = 200;
/// No more visits than this, however many entries were written: a few seconds of work.
const MAX_STEPS: usize = 50_000_000;
/// A path that is looked for is at most this long; it grows without end when a section inherits
/// from a part of itself.
const MAX_PATH: usize = 64;
/// References that lead from one section to the next, at most: each of them takes place on the
/// stack.
const MAX_CHAIN: usize = 64;
/// Only so many sections are compared with a name that is none, and only for so many names.
const MAX_COMPARED: usize = 10_000;
const MAX_HINTS: usize = 10;

/// Makes every section what it inherits, too. No reference is left.
pub(super) fn resolve(root: &mut Section, diags: &mut Diagnostics) {
    resolve_within(MAX_ADDED_ENTRIES, root, diags);
}

fn resolve_within(max_added: usize, root: &mut Section, diags: &mut Diagnostics) {
    let mut written = Vec::new();
    references(root, &mut Vec::new(), &mut written);
    if written.is_empty() {
        return;
    }
    let size = root.size();
    let added = ADDED_ENTRIES.saturating_add(ADDED_PER_ENTRY.saturating_mul(size)).min(max_added);
    let mut resolver = Resolver {
        root,
        steps: STEPS.saturating_add(STEPS_PER_ENTRY.saturating_mul(size)).min(MAX_STEPS),
        entries: weight_below(root).saturating_add(added),
        added,
        hints: MAX_HINTS,
        following: Vec::new(),
        circles: HashSet::new(),
        stopped: None,
        place: None,
    };
    let before = diags.errors();
    for refs in written.chunk_by(|a, b| a.0 == b.0) {
        let mut in_circle = None;
        for (path, name, origin) in refs {
            let wrong = resolver.wrong(path, name, &mut in_circle);
            if resolver.stopped.is_some() {
                // The limit was reached before everything was found.
                resolver.place(origin, path);
                break;
            }
            if let Some(why) = wrong {
                let from = name.clone();
                diags.error(origin, &path.join("."), Configuration::Inheritance { from, why });
            }
        }
        if resolver.stopped.is_some() {
            break;
        }
    }
    let whole = (diags.errors() == before && resolver.stopped.is_none())
        .then(|| resolver.whole(&mut Vec::new(), &[resolver.root], diags));
    if let (Some(limit), Some((origin, path))) = (resolver.stopped, resolver.place) {
        diags.error(&origin, &path, Configuration::InheritanceLimit { limit });
    }
    match whole {
        Some(whole) if diags.errors() == before => *root = whole,
        _ => forget(root),
    }
}

fn references(section: &Section, at: &mut Vec<String>, out: &mut Vec<(Vec<String>, String, Origin)>) {
    out.extend(section.refs.iter().map(|(name, origin)| (at.clone(), name.clone(), origin.clone())));
    for (name, sub) in section.sections() {
        at.push(name.to_owned());
        references(sub, at, out);
        at.pop();
    }
}

fn forget(section: &mut Section) {
    section.refs.clear();
    for (_, node) in section.nodes_mut() {
        if let Node::Section(s) = node {
            forget(s);
        }
    }
}

/// As how many entries one counts, without what is below it.
fn weight(name: &str, node: &Node) -> usize {
    let text = if let Node::Value(v) = node { v.text_len() } else { 0 };
    1 + (name.len() + text) / BYTES_PER_ENTRY
}

fn weight_below(section: &Section) -> usize {
    let below = |node: &Node| if let Node::Section(s) = node { weight_below(s) } else { 0 };
    section.entries().map(|(name, node)| weight(name, node) + below(node)).sum()
}

/// The sections that are one at some path. What they are compared by is their address.
#[derive(Default)]
struct Found<'a> {
    list: Vec<&'a Section>,
    /// All of `list`, once there are more than a few.
    index: HashSet<*const Section>,
}

impl<'a> Found<'a> {
    /// Above this many an index is quicker than looking at each.
    const INDEXED_FROM: usize = 16;

    /// False when it is there already.
    fn add(&mut self, section: &'a Section) -> bool {
        let new = if self.list.len() < Self::INDEXED_FROM {
            !self.list.iter().any(|s| ptr::eq(*s, section))
        } else {
            if self.index.is_empty() {
                self.index.extend(self.list.iter().map(|s| ptr::from_ref(*s)));
            }
            self.index.insert(section)
        };
        if new {
            self.list.push(section);
        }
        new
    }
}

struct Resolver<'a> {
    root: &'a Section,
    /// Visits that are left.
    steps: usize,
    /// Entries that may still be made.
    entries: usize,
    /// How many of these may come from references.
    added: usize,
    /// Names that may still be compared with all others.
    hints: usize,
    /// The sections whose references are being followed.
    following: Vec<*const Section>,
    /// Sections that a circle of references leads back to.
    circles: HashSet<*const Section>,
    /// The limit that was reached.
    stopped: Option<InheritLimit>,
    /// Place and path of the section that was being resolved then.
    place: Option<(Origin, String)>,
}

impl<'a> Resolver<'a> {
    /// True when the references of the section at `path` lead back to it.
    fn is_in_circle(&mut self, path: &[String]) -> bool {
        self.circles.clear();
        let found = self.find(&borrowed(path));
        found.first().is_some_and(|own| self.circles.contains(&ptr::from_ref(*own)))
    }

    /// Returns the fault of a reference to `name` from the section at `path`. `in_circle` holds for
    /// all references of a section.
    fn wrong(&mut self, path: &[String], name: &str, in_circle: &mut Option<bool>) -> Option<InheritFault> {
        let own = borrowed(path);
        let target: Vec<&str> = name.split('.').collect();
        if own.starts_with(&target) {
            return Some(InheritFault::Circle);
        }
        if target.starts_with(&own) {
            return Some(InheritFault::Part);
        }
        if *in_circle.get_or_insert_with(|| self.is_in_circle(path)) {
            return Some(InheritFault::Circle);
        }
        if self.find(&target).is_empty() {
            return Some(InheritFault::NoSection { near: self.nearest(name) });
        }
        None
    }

    /// The name of a section that is near to one that is no section.
    fn nearest(&mut self, name: &str) -> Option<String> {
        self.hints = self.hints.checked_sub(1)?;
        let known = self.root.sections().map(|(n, _)| n).take(MAX_COMPARED);
        super::diag::nearest(name, known).map(str::to_owned)
    }

    /// The sections that are one at `path`, in the order in which they are asked for a key.
    fn find(&mut self, path: &[&str]) -> Vec<&'a Section> {
        let mut out = Found::default();
        self.collect(self.root, path, &mut out);
        out.list
    }

    fn stop(&mut self, limit: InheritLimit) {
        self.stopped.get_or_insert(limit);
    }

    fn place(&mut self, origin: &Origin, path: &[String]) {
        self.place.get_or_insert_with(|| (origin.clone(), path.join(".")));
    }

    /// Takes a step. False when none is left.
    fn step(&mut self) -> bool {
        let left = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        left
    }

    fn collect(&mut self, section: &'a Section, path: &[&str], out: &mut Found<'a>) {
        if path.len() > MAX_PATH {
            return self.stop(InheritLimit::Depth);
        }
        if !self.step() {
            return self.stop(InheritLimit::Entries { max: None });
        }
        match path.split_first() {
            None => {
                if !out.add(section) {
                    let this = ptr::from_ref(section);
                    if self.following.contains(&this) {
                        self.circles.insert(this);
                    }
                    return;
                }
            }
            Some((first, rest)) => {
                if let Some(sub) = section.section(first) {
                    self.collect(sub, rest, out);
                }
            }
        }
        if section.refs.is_empty() {
            return;
        }
        if self.following.len() >= MAX_CHAIN {
            return self.stop(InheritLimit::Chain);
        }
        self.following.push(section);
        for (name, _) in &section.refs {
            let full: Vec<&str> = name.split('.').chain(path.iter().copied()).collect();
            self.collect(self.root, &full, out);
            if self.stopped.is_some() {
                break;
            }
        }
        self.following.pop();
    }

    /// Merges `parts`, which are one section at `path`, with everything below them.
    fn whole(&mut self, path: &mut Vec<String>, parts: &[&'a Section], diags: &mut Diagnostics) -> Section {
        let origin = parts.first().map_or(&self.root.origin, |s| &s.origin);
        let mut out = Section::new(origin.clone());
        for (name, node) in parts.iter().flat_map(|s| s.entries()) {
            if !self.step() {
                self.stop(InheritLimit::Entries { max: None });
            }
            if self.stopped.is_some() {
                self.place(node.origin(), path);
                return out;
            }
            if let Some(own) = out.get(name) {
                let is_key = match (own, node) {
                    (Node::Value(_), Node::Section(_)) => true,
                    (Node::Section(_), Node::Value(_)) => false,
                    _ => continue,
                };
                let (name, place) = (name.to_owned(), own.origin().to_string());
                let clash = Configuration::InheritedClash { name, is_key, place };
                diags.error(node.origin(), &path.join("."), clash);
                continue;
            }
            let Some(left) = self.entries.checked_sub(weight(name, node)) else {
                self.stop(InheritLimit::Entries { max: Some(self.added) });
                self.place(node.origin(), path);
                return out;
            };
            self.entries = left;
            let node = match node {
                Node::Value(v) => Node::Value(v.clone()),
                Node::Section(_) => {
                    path.push(name.to_owned());
                    let parts = self.find(&borrowed(path));
                    if self.stopped.is_some() {
                        self.place(node.origin(), path);
                        return out;
                    }
                    let whole = self.whole(path, &parts, diags);
                    path.pop();
                    Node::Section(whole)
                }
            };
            out.set(name, node);
        }
        out
    }
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

#[cfg(test)]
#[path = "references_tests.rs"]
mod tests;
