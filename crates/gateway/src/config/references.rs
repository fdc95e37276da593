//! Section references: `name : a, b.c { }` takes over what `a` has and `name` has not, then what `b.c` has.
//!
//! As in strongSwan's settings, references are followed when something is looked for, not when they are read: a section
//! at a path is itself, then what it refers to, then what stands at the same path below whatever the sections around it
//! refer to; of each in turn the first that has a key holds. A key that is written without a value hides one behind it.
//! References to nothing and in circles, which strongSwan ignores, are errors: a tunnel would be less than what was written.

use std::collections::HashSet;
use std::ptr;

use super::diag::Diagnostics;
use super::tree::{Node, Origin, Section};

/// References may add so many entries, and so many more for each that was written: a template of 50 keys for every
/// connection, and no more than a few megabytes out of a few kilobytes.
const ADDED_ENTRIES: usize = 20_000;
const ADDED_PER_ENTRY: usize = 50;
/// Sections that may be visited in all, and so many more for each entry.
const STEPS: usize = 1_000_000;
const STEPS_PER_ENTRY: usize = 200;
/// A path that is looked for is at most this long; it grows without end when a section inherits from a part of itself.
const MAX_PATH: usize = 64;

/// Makes every section what it inherits, too. No reference is left.
pub(super) fn resolve(root: &mut Section, diags: &mut Diagnostics) {
    let mut written = Vec::new();
    references(root, &mut Vec::new(), &mut written);
    if written.is_empty() {
        return;
    }
    let size = root.size();
    let mut resolver = Resolver {
        root,
        steps: STEPS.saturating_add(STEPS_PER_ENTRY.saturating_mul(size)),
        entries: size.saturating_add(ADDED_ENTRIES + ADDED_PER_ENTRY.saturating_mul(size)),
        following: Vec::new(),
        circles: HashSet::new(),
        stopped: None,
    };
    let before = diags.errors();
    for (path, name, origin) in &written {
        if let Some(why) = resolver.wrong(path, name) {
            diags.error(origin, &path.join("."), format!("inherits from `{name}`, {why}"));
        }
    }
    let whole = (diags.errors() == before).then(|| resolver.whole(&mut Vec::new(), &[resolver.root], diags));
    if let Some((origin, path)) = resolver.stopped {
        diags.error(&origin, &path, "inheriting makes too many entries; let fewer sections inherit");
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

fn split(name: &str) -> Vec<String> {
    name.split('.').map(str::to_owned).collect()
}

struct Resolver<'a> {
    root: &'a Section,
    /// Visits that are left.
    steps: usize,
    /// Entries that may still be made.
    entries: usize,
    /// The sections whose references are being followed.
    following: Vec<*const Section>,
    /// Sections that a circle of references leads back to.
    circles: HashSet<*const Section>,
    /// Where a budget ended: the place and the path.
    stopped: Option<(Origin, String)>,
}

impl<'a> Resolver<'a> {
    /// What is wrong with a reference to `name` from the section at `path`.
    fn wrong(&mut self, path: &[String], name: &str) -> Option<String> {
        let target = split(name);
        if path.starts_with(&target) {
            return Some("which contains or inherits from this section".to_owned());
        }
        if target.starts_with(path) {
            return Some("which is a part of this section".to_owned());
        }
        self.circles.clear();
        let found = self.find(path);
        if found.first().is_some_and(|own| self.circles.contains(&ptr::from_ref(*own))) {
            return Some("which contains or inherits from this section".to_owned());
        }
        if self.find(&target).is_empty() {
            let known: Vec<&str> = self.root.sections().map(|(n, _)| n).collect();
            let near = super::diag::nearest(name, known);
            let hint = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
            return Some(format!("which is no section{hint}"));
        }
        None
    }

    /// The sections that are one at `path`, in the order in which they are asked for a key.
    fn find(&mut self, path: &[String]) -> Vec<&'a Section> {
        let mut out = Vec::new();
        self.collect(self.root, path, &mut out);
        out
    }

    fn collect(&mut self, section: &'a Section, path: &[String], out: &mut Vec<&'a Section>) {
        if self.steps == 0 || path.len() > MAX_PATH {
            self.stopped.get_or_insert_with(|| (section.origin.clone(), path.join(".")));
            return;
        }
        self.steps -= 1;
        match path.split_first() {
            None if out.iter().any(|s| ptr::eq(*s, section)) => {
                let this = ptr::from_ref(section);
                if self.following.contains(&this) {
                    self.circles.insert(this);
                }
                return;
            }
            None => out.push(section),
            Some((first, rest)) => {
                if let Some(sub) = section.section(first) {
                    self.collect(sub, rest, out);
                }
            }
        }
        if section.refs.is_empty() {
            return;
        }
        self.following.push(section);
        for (name, _) in &section.refs {
            let mut full = split(name);
            full.extend_from_slice(path);
            self.collect(self.root, &full, out);
        }
        self.following.pop();
    }

    /// What `parts` are together, with everything below. `path` is where.
    fn whole(&mut self, path: &mut Vec<String>, parts: &[&'a Section], diags: &mut Diagnostics) -> Section {
        let origin = parts.first().map_or(&self.root.origin, |s| &s.origin);
        let mut out = Section::new(origin.clone());
        for (name, node) in parts.iter().flat_map(|s| s.entries()) {
            if let Some(own) = out.get(name) {
                let message = match (own, node) {
                    (Node::Value(_), Node::Section(_)) => "is a key already",
                    (Node::Section(_), Node::Value(_)) => "is a section already",
                    _ => continue,
                };
                let place = own.origin().clone();
                diags.error(
                    node.origin(),
                    &path.join("."),
                    format!("`{name}` {message} where this is inherited, {place}"),
                );
                continue;
            }
            if self.entries == 0 || path.len() > MAX_PATH {
                self.stopped.get_or_insert_with(|| (node.origin().clone(), path.join(".")));
                return out;
            }
            self.entries -= 1;
            let node = match node {
                Node::Value(v) => Node::Value(v.clone()),
                Node::Section(_) => {
                    path.push(name.to_owned());
                    let parts = self.find(path);
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

#[cfg(test)]
#[path = "references_tests.rs"]
mod tests;
