//! No more than three files of a crate import each other in a circle, so that each can be read
//! without most of the others.
//!
//! File `a` imports file `b` when code of `a` names an item that `b` defines: by `use`, or by a
//! path anywhere in its code (expressions, types, patterns, arguments of macros), which begins with
//! `crate`, `super`, `self`, or a name that leads there. A circle is a set of files in which
//! imports lead from each to each other one (a strongly connected component).
//!
//! | case | counts as |
//! |---|---|
//! | `use super::X`, re-exported there from `x.rs` | an import of `x.rs`, none of `mod.rs` |
//! | `pub use x::X` itself, of any visibility | none: its users import the file of the item |
//! | `mod x;` | no import |
//! | `use super::*` | an import of the file of each item whose name the code uses |
//! | `use crate::x`, where `x` is a module | no import: paths behind `x::` are |
//! | `Type::function()`, `Enum::Variant` | an import of the file of the type |
//! | a name that a module does not define | a macro's: an import of that file |
//! | a method call, a field | no import: neither says where it is defined |
//! | code for tests, attributes, documentation | no import |
//!
//! Beside circles: the folders in which one IKE_SA lives import nothing from the file of the table
//! of all IKE_SAs.
//!
//! `cargo test -p ironswan-testkit --test house_circles -- --nocapture` prints the circles, with an
//! item for each edge.
//!
//! Not here: imports between crates (`house_arrows.rs`).

mod circles;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Most files that may import each other.
const MAX_FILES: usize = 3;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository").to_path_buf()
}

/// The root files of every crate: `lib.rs` and `main.rs`, below the repository.
fn roots() -> Vec<String> {
    let folders = fs::read_dir(repository().join("crates")).expect("there are crates");
    let mut crates: Vec<String> = folders
        .map(|entry| format!("crates/{}", entry.expect("an entry can be read").file_name().to_string_lossy()))
        .chain(["testkit".to_owned()])
        .collect();
    crates.sort();
    let files = crates.iter().flat_map(|c| ["lib.rs", "main.rs"].map(|root| format!("{c}/src/{root}")));
    files.filter(|file| repository().join(file).exists()).collect()
}

fn graph_of(root: &str) -> circles::graph::Graph {
    let text = |file: &str| fs::read_to_string(repository().join(file)).ok();
    circles::graph(&text, root).unwrap_or_else(|e| panic!("{e}"))
}

/// The crate of a file.
fn crate_of(file: &str) -> &str {
    let folder = file.split("/src/").next().unwrap_or(file);
    folder.strip_prefix("crates/").unwrap_or(folder)
}

/// Crates whose biggest circle has more files than it may, with its number of files.
fn faults(biggest: &BTreeMap<String, usize>) -> Vec<String> {
    let big = biggest.iter().filter(|(_, files)| **files > MAX_FILES);
    big.map(|(name, files)| format!("{name}: {files} files import each other, {MAX_FILES} may")).collect()
}

/// Folders of `ike` in which one IKE_SA lives: its state, its exchanges, and its surroundings.
const ONE_IKE_SA: [&str; 4] = ["auth", "context", "sa", "task"];

/// The file that defines the table of all IKE_SAs.
const TABLE: &str = "crates/ike/src/endpoint/mod.rs";

/// Edges that lead to the table of all IKE_SAs, from the folders of one IKE_SA, and from others.
fn to_the_table(edges: Vec<String>) -> (Vec<String>, Vec<String>) {
    let edges = edges.into_iter().filter(|edge| edge.contains(&format!("-> {TABLE}: ")));
    edges.partition(|edge| ONE_IKE_SA.iter().any(|dir| edge.starts_with(&format!("crates/ike/src/{dir}/"))))
}

#[test]
fn one_ike_sa_never_sees_the_table_of_all() {
    let (from_one, from_others) = to_the_table(graph_of("crates/ike/src/lib.rs").edges());
    assert_eq!(from_one, [""; 0]);
    assert!(from_others.iter().any(|edge| edge.ends_with(": Endpoint")), "{from_others:?}");
    let made_up = format!("crates/ike/src/task/delete.rs -> {TABLE}: Endpoint");
    assert_eq!(to_the_table(vec![made_up.clone()]).0, [made_up]);
}

#[test]
fn at_most_three_files_import_each_other() {
    let mut biggest: BTreeMap<String, usize> = BTreeMap::new();
    let mut text = String::new();
    let roots = roots();
    assert!(roots.len() >= 10, "only {} crates were found", roots.len());
    for root in &roots {
        let graph = graph_of(root);
        let name = crate_of(root);
        for circle in graph.circles().iter().filter(|circle| circle.len() > MAX_FILES) {
            let most = biggest.entry(name.to_owned()).or_default();
            *most = circle.len().max(*most);
            text += &format!("{name}: {}", graph.shown(circle));
        }
    }
    println!(
        "{text}files of the biggest circle of each crate that has one of more than {MAX_FILES}: {biggest:?}"
    );
    assert_eq!(faults(&biggest), [""; 0], "\n{text}");
}

/// The graph of a crate that stands here: names of files, and their code.
fn made_up(files: &[(&str, &str)]) -> circles::graph::Graph {
    let text = |name: &str| files.iter().find(|(n, _)| *n == name).map(|(_, code)| (*code).to_owned());
    circles::graph(&text, "lib.rs").unwrap_or_else(|e| panic!("{e}"))
}

fn edges(files: &[(&str, &str)]) -> Vec<String> {
    made_up(files).edges()
}

#[test]
fn an_item_is_imported_from_the_file_that_defines_it() {
    let files = [
        ("lib.rs", "mod a; mod folder; pub use a::A; pub(crate) use folder::{Inner as Other, part};"),
        ("a.rs", "use super::Other; pub struct A; pub fn f() { crate::part::g(); }"),
        ("folder/mod.rs", "mod inner; pub mod part; pub use self::inner::*;"),
        ("folder/inner.rs", "use super::super::A; pub struct Inner; struct Hidden(crate::A);"),
        ("folder/part.rs", "pub fn g() { let _ = super::Inner; }"),
    ];
    assert_eq!(
        edges(&files),
        [
            "a.rs -> folder/inner.rs: Inner",
            "a.rs -> folder/part.rs: g",
            "folder/inner.rs -> a.rs: A",
            "folder/part.rs -> folder/inner.rs: Inner",
        ]
    );
    let circles = made_up(&files).circles();
    assert_eq!(circles.iter().map(Vec::len).collect::<Vec<_>>(), [3], "{circles:?}");
}

#[test]
fn declarations_re_exports_and_imported_modules_are_no_imports() {
    let files = [
        ("lib.rs", "pub mod a; pub mod b; pub use a::A; pub use b::*;"),
        ("a.rs", "use crate::b; pub struct A; pub fn f() { outside::b::g() }"),
        ("b.rs", "use std::fmt; use crate::a as other; pub fn g(_: &dyn fmt::Debug) {}"),
    ];
    assert_eq!(edges(&files), [""; 0]);
}

#[test]
fn paths_count_wherever_they_stand() {
    let from = |code: &str| edges(&[("lib.rs", "mod a; mod b;"), ("a.rs", code), ("b.rs", "")]);
    for code in [
        "fn f() -> Vec<crate::b::X> { Vec::new() }",
        "fn f() { match 1 { super::b::X => {}, _ => {} } }",
        "fn f() { use super::b::X; }",
        "use super::b; fn f() { assert!(b::X(1) == 2); }",
        "use super::b; fn f() { g.h(); let y = <b::X as Clone>::clone(&x); }",
        "use super::b as c; impl Iterator for Y { type Item = c::X; }",
        "use super::b::{self}; fn f() { b::X::new() }",
        "macro_rules! m { () => { $crate::b::X } }",
        "m! { struct Y { field: super::b::X } }",
        "mod inner { use super::super::b::X; }",
        "use super::*; fn f() { b::X }",
        "#[cfg(not(test))] use super::b::X;",
        "#[cfg(any(test, feature = \"x\"))] use super::b::X;",
    ] {
        assert_eq!(from(code), ["a.rs -> b.rs: X"], "{code}");
    }
    for code in [
        "#[cfg(test)] mod tests { use crate::b::X; }",
        "#[cfg(all(test, unix))] use crate::b::X;",
        "#[test] fn f() { crate::b::X; }",
        "fn f() { #[cfg(test)] let y = crate::b::X; }",
        "struct Y { #[cfg(test)] y: crate::b::X }",
        "/// See [`crate::b::X`].\npub(in crate::b) struct Y;",
        "fn f() { y.b.x(); println!(\"crate::b::X {}\", y.b); }",
        "fn f() { ::b::X }",
    ] {
        assert_eq!(from(code), [""; 0], "{code}");
    }
}

#[test]
fn a_name_from_a_glob_is_followed() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use b::X; use c::*; pub use outside::*;"),
        ("a.rs", "use super::*; fn f() { X; Y; Z; None }\nfn g() { crate::Outside; }"),
        ("b.rs", "pub struct X;"),
        ("c.rs", "pub const Y: u8 = 1;"),
    ];
    assert_eq!(edges(&files), ["a.rs -> b.rs: X", "a.rs -> c.rs: Y"]);
}

#[test]
fn one_name_may_be_a_module_and_a_function() {
    let files = [
        ("lib.rs", "mod line; mod user; pub use line::line;"),
        ("line.rs", "pub fn line() {} pub struct L; fn f() { crate::user::u }"),
        ("user.rs", "pub fn u() { super::line() }"),
    ];
    assert_eq!(edges(&files), ["line.rs -> user.rs: u", "user.rs -> line.rs: line"]);
}

#[test]
fn files_of_modules_are_found_as_the_compiler_finds_them() {
    let files = [
        ("lib.rs", "mod a; mod inline { pub mod deep; } #[path = \"odd.rs\"] mod even;"),
        ("a.rs", "mod below; use crate::inline::deep::D; use crate::even::E;"),
        ("a/below.rs", "use super::super::even::E;"),
        ("inline/deep.rs", "pub struct D;"),
        ("odd.rs", "pub struct E;"),
    ];
    assert_eq!(edges(&files), ["a.rs -> inline/deep.rs: D", "a.rs -> odd.rs: E", "a/below.rs -> odd.rs: E"]);
    let missing = |_: &str| None;
    assert_eq!(circles::graph(&missing, "lib.rs").err(), Some("lib.rs: no such file".to_owned()));
}

#[test]
fn a_circle_that_is_too_big_is_shown_and_counted() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::a::A; pub struct D;"),
    ];
    let graph = made_up(&files);
    let circles = graph.circles();
    assert_eq!(circles.len(), 1);
    assert_eq!(
        graph.shown(&circles[0]),
        "4 files import each other: a.rs, b.rs, c.rs, d.rs\n  a.rs:1 -> b.rs: B\n  b.rs:1 -> c.rs: C\n  \
         c.rs:1 -> d.rs: D\n  d.rs:1 -> a.rs: A\n"
    );
    let biggest = BTreeMap::from([("x".to_owned(), 3), ("y".to_owned(), 5)]);
    assert_eq!(faults(&biggest), ["y: 5 files import each other, 3 may"]);
}
