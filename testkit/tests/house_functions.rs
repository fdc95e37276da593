//! No function of the daemon's own rooms is longer than a screen: each says in steps what it does,
//! and the name of a step says why it is there.
//!
//! The lines of a function are those from its word `fn` to its closing brace. A function inside
//! another one counts by itself, and its lines are also lines of the outer one.
//!
//! Not here: code for tests (`#[cfg(test)]`, `#[test]`, files and folders called `tests` or
//! `..._tests`), and functions that a macro makes.

use std::fs;
use std::path::{Path, PathBuf};

use syn::Attribute;
use syn::visit::{self, Visit};

/// Most lines of a function.
const MAX_LINES: usize = 60;

/// Crates whose functions are counted.
const CRATES: [&str; 4] = ["config", "gateway", "ike", "keying"];

/// Functions that are longer, by the end of their file's name. Entries only leave.
const LONG: &[(&str, &str)] = &[
    ("config/src/meaning/child.rs", "child"),
    ("config/src/meaning/conn.rs", "connection"),
    ("keying/src/diagnosis/authentication.rs", "words"),
    ("keying/src/diagnosis/configuration_words.rs", "words"),
    ("keying/src/diagnosis/data_plane.rs", "words"),
    ("keying/src/diagnosis/key_exchange_words.rs", "words"),
    ("keying/src/diagnosis/proposal.rs", "words"),
    ("keying/src/diagnosis/unwise.rs", "words"),
    ("keying/src/diagnosis/value.rs", "words"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository").to_path_buf()
}

/// Whether a file or folder of this name holds code for tests only.
fn is_of_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| {
        let stem = stem.to_string_lossy();
        stem == "tests" || stem.ends_with("_tests")
    })
}

/// Adds all Rust files below `folder` that are not for tests.
fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry of a folder can be read").path();
        if is_of_tests(&path) {
            continue;
        }
        if path.is_dir() {
            find_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Whether an item with these attributes is for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of_cfg = || attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"));
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && of_cfg())
    })
}

/// A function, where it begins, and how many lines it has.
#[derive(Debug, PartialEq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Collects the functions of a file.
#[derive(Default)]
struct Collector(Vec<Function>);

impl Collector {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let line = signature.fn_token.span.start().line;
        let end = body.brace_token.span.close().end().line;
        self.0.push(Function { name: signature.ident.to_string(), line, lines: end - line + 1 });
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.note(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.note(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = item.default.as_ref().filter(|_| !is_for_tests(&item.attrs)) {
            self.note(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// The functions of a file that are not for tests.
fn functions(text: &str) -> Result<Vec<Function>, syn::Error> {
    let mut collector = Collector::default();
    collector.visit_file(&syn::parse_file(text)?);
    Ok(collector.0)
}

/// Functions with more than this many lines.
fn longer_than(max: usize, all: Vec<Function>) -> Vec<Function> {
    all.into_iter().filter(|f| f.lines > max).collect()
}

#[test]
fn functions_have_at_most_60_lines() {
    let (mut faults, mut seen, mut count) = (Vec::new(), Vec::new(), 0);
    for name in CRATES {
        let mut files = Vec::new();
        find_files(&repository().join("crates").join(name).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let all = functions(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            count += all.len();
            for long in longer_than(MAX_LINES, all) {
                let known = LONG.iter().find(|(end, name)| file.ends_with(end) && long.name == *name);
                seen.extend(known);
                if known.is_none() {
                    let Function { name, line, lines } = long;
                    faults.push(format!("{}:{line} {name}: {lines} lines", file.display()));
                }
            }
        }
    }
    println!("{count} functions were counted");
    assert!(count > 2000, "only {count} functions were found");
    assert_eq!(faults, [""; 0], "cut them into steps of at most {MAX_LINES} lines");
    let short: Vec<_> = LONG.iter().filter(|known| !seen.contains(known)).collect();
    assert!(short.is_empty(), "these are short by now, take them off the list: {short:?}");
}

#[test]
fn each_kind_of_function_is_counted() {
    let code = "\
/// Documented.
#[inline]
pub fn a()
    -> u8
{
    fn inner() {
    }
    1
}
struct S; impl S { const fn b(&self) {} }
trait T { fn c(&self); fn d(&self) {
} }
mod m { fn e() {
} }
#[cfg(test)]
mod tests { fn t() {
} }
#[test]
fn u() {
}
impl S { #[cfg(test)] fn v() {
} #[cfg(not(test))] fn w() {
} }
";
    let found = functions(code).expect("the code can be parsed");
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
    let wanted = [("a", 3, 7), ("inner", 6, 2), ("b", 10, 1), ("d", 11, 2), ("e", 13, 2), ("w", 22, 2)];
    assert_eq!(found, wanted);
    assert!(functions("fn f( {").is_err());
}

#[test]
fn a_long_function_is_a_fault() {
    let code =
        |lines: usize| format!("fn short() {{}}\nfn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2));
    let long = |lines| longer_than(MAX_LINES, functions(&code(lines)).expect("the code can be parsed"));
    assert_eq!(long(MAX_LINES), []);
    assert_eq!(long(MAX_LINES + 1), [Function { name: "long".to_owned(), line: 2, lines: MAX_LINES + 1 }]);
    for (path, tests) in
        [("a/tests.rs", true), ("a/way_tests.rs", true), ("a/tests", true), ("a/test.rs", false)]
    {
        assert_eq!(is_of_tests(Path::new(path)), tests, "{path}");
    }
}
