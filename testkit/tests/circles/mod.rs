//! Which files of a crate import each other in a circle.
//!
//! ```text
//! files ──modules──▶ modules, names, uses ──names──▶ edges ──graph──▶ circles
//! ```
//!
//! # Files
//!
//! | file | part |
//! |---|---|
//! | `modules.rs` | parses a crate: tree of modules, names in each, every path |
//! | `names.rs` | finds the file that defines the item which a path means |
//! | `graph.rs` | edges between files, and the circles in them |

pub mod graph;
mod modules;
mod names;

pub use modules::Source;

use graph::Graph;
use modules::Crate;

/// Reads a crate from its root file, and returns which of its files imports which.
///
/// # Errors
/// A file that is missing, or that does not parse.
pub fn graph(source: &dyn Source, root: &str) -> Result<Graph, String> {
    let tree = Crate::read(source, root)?;
    let mut graph = Graph::new(tree.files().to_vec());
    for used in tree.uses() {
        let from = tree.file_of(used.module);
        for item in names::meant(&tree, used) {
            graph.add(from, item.file, &item.name, used.line);
        }
    }
    Ok(graph)
}
