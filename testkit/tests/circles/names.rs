//! Finds the file that defines the item which a path means.

use super::modules::{Binding, Crate, Use};

/// An item, and the file that defines it.
#[derive(Clone, PartialEq, Eq)]
pub struct Defined {
    pub file: usize,
    pub name: String,
}

#[derive(Clone)]
enum Meaning {
    Module(usize),
    Item(Defined),
}

/// Names that are being looked for, so that an import that leads back to itself ends: it names
/// another crate.
type Asked = Vec<(usize, String)>;

/// The items of this crate that a path means: several where a name stands for a type and a
/// function. Nothing for modules, and for what other crates define.
pub fn meant(tree: &Crate, used: &Use) -> Vec<Defined> {
    let mut items = Vec::new();
    for meaning in follow(tree, used.module, &used.path, &mut Vec::new()) {
        if let Meaning::Item(item) = meaning
            && !items.contains(&item)
        {
            items.push(item);
        }
    }
    items
}

/// Follows a path from its first word, as seen from a module.
fn follow(tree: &Crate, from: usize, path: &[String], asked: &mut Asked) -> Vec<Meaning> {
    let Some((first, rest)) = path.split_first() else { return Vec::new() };
    let start = match first.as_str() {
        "crate" => vec![Meaning::Module(0)],
        "self" => vec![Meaning::Module(from)],
        "super" => tree.module(from).parent.map(Meaning::Module).into_iter().collect(),
        name => look_up(tree, from, name, asked),
    };
    rest.iter().fold(start, |found, name| {
        found
            .iter()
            .flat_map(|meaning| {
                match meaning {
                    Meaning::Module(module) if name == "super" => {
                        tree.module(*module).parent.map(Meaning::Module).into_iter().collect()
                    }
                    Meaning::Module(module) => inside(tree, *module, name, asked),
                    // A variant, constant or function of a type: the type's file counts.
                    Meaning::Item(item) if found.iter().all(|m| matches!(m, Meaning::Item(_))) => {
                        vec![Meaning::Item(item.clone())]
                    }
                    Meaning::Item(_) => Vec::new(),
                }
            })
            .collect()
    })
}

/// A name behind the path of a module. One that the module does not show was made there by a macro,
/// unless the module hands on all names of another crate.
fn inside(tree: &Crate, module: usize, name: &str, asked: &mut Asked) -> Vec<Meaning> {
    let here = tree.module(module);
    let found = look_up(tree, module, name, asked);
    let other_crate = |path: &Vec<String>| follow(tree, module, path, &mut Vec::new()).is_empty();
    if found.is_empty() && !here.names.contains_key(name) && !here.globs.iter().any(other_crate) {
        return vec![Meaning::Item(Defined { file: tree.file_of(module), name: name.to_owned() })];
    }
    found
}

/// A name as the code of a module sees it: its own items and imports, then those of its globs.
fn look_up(tree: &Crate, module: usize, name: &str, asked: &mut Asked) -> Vec<Meaning> {
    let here = tree.module(module);
    let question = (module, name.to_owned());
    let again = asked.contains(&question);
    asked.push(question);
    let found = match here.names.get(name) {
        Some(bindings) => bindings
            .iter()
            .flat_map(|binding| match binding {
                Binding::Module(number) => vec![Meaning::Module(*number)],
                Binding::Item => vec![Meaning::Item(Defined { file: here.file, name: name.to_owned() })],
                // `pub use line::line` begins with the module `line`, not with itself.
                Binding::Import(_) if again => Vec::new(),
                Binding::Import(path) => follow(tree, module, path, asked),
            })
            .collect(),
        None if again => Vec::new(),
        None => {
            let mut found = Vec::new();
            for path in &here.globs {
                for meaning in follow(tree, module, path, asked) {
                    if let Meaning::Module(module) = meaning {
                        found.extend(look_up(tree, module, name, asked));
                    }
                }
            }
            found
        }
    };
    asked.pop();
    found
}
