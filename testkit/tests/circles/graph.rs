//! Edges between files, and the circles in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which file imports which. A file is its number in the list of names.
pub struct Graph {
    files: Vec<String>,
    /// The first item for which a file imports another one, and the line at which it does.
    edges: BTreeMap<(usize, usize), (String, usize)>,
}

impl Graph {
    /// A graph of these files without edges.
    pub fn new(files: Vec<String>) -> Self {
        Self { files, edges: BTreeMap::new() }
    }

    /// File `from` imports `item` of file `to`. A file does not import itself.
    pub fn add(&mut self, from: usize, to: usize, item: &str, line: usize) {
        if from != to {
            self.edges.entry((from, to)).or_insert_with(|| (item.to_owned(), line));
        }
    }

    /// All edges, as `from -> to: item`.
    pub fn edges(&self) -> Vec<String> {
        let shown = |((from, to), (item, _)): (&(usize, usize), &(String, usize))| {
            format!("{} -> {}: {item}", self.files[*from], self.files[*to])
        };
        let mut edges: Vec<String> = self.edges.iter().map(shown).collect();
        edges.sort();
        edges
    }

    /// The circles: every set of at least two files in which each reaches each other one by imports
    /// (a strongly connected component). The biggest is the first.
    pub fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<Vec<bool>> = (0..self.files.len()).map(|file| self.reached_from(file)).collect();
        let mut circles = Vec::new();
        let mut placed = vec![false; self.files.len()];
        for file in 0..self.files.len() {
            if placed[file] {
                continue;
            }
            let circle: Vec<usize> = (file..self.files.len())
                .filter(|&other| other == file || reached[file][other] && reached[other][file])
                .collect();
            circle.iter().for_each(|&member| placed[member] = true);
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// For each file, whether imports lead to it from `start`.
    fn reached_from(&self, start: usize) -> Vec<bool> {
        let mut reached = vec![false; self.files.len()];
        let mut waiting = vec![start];
        while let Some(file) = waiting.pop() {
            for (&(_, to), _) in self.edges.range((file, 0)..(file + 1, 0)) {
                if !std::mem::replace(&mut reached[to], true) {
                    waiting.push(to);
                }
            }
        }
        reached
    }

    /// A circle for a person: its files, and each edge between them with the item and line that
    /// make it.
    pub fn shown(&self, circle: &[usize]) -> String {
        let names: Vec<&str> = circle.iter().map(|&file| self.files[file].as_str()).collect();
        let mut text = format!("{} files import each other: {}\n", circle.len(), names.join(", "));
        for ((from, to), (item, line)) in &self.edges {
            if circle.contains(from) && circle.contains(to) {
                let _ = writeln!(text, "  {}:{line} -> {}: {item}", self.files[*from], self.files[*to]);
            }
        }
        text
    }
}
