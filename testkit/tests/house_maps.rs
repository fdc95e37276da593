//! Newcomers find their way: every source file is named in the map of its folder, tables have short
//! cells, and the files that documents name exist.
//!
//! ```text
//! crates/C/src/a.rs       named in the header of lib.rs (or main.rs)
//! crates/C/src/a/b.rs     named in the header of a/mod.rs, or of a.rs
//! ```
//!
//! A header is the `//!` comment at the top of a file; a name stands in it between backticks, or as
//! `b.rs`. Files of tests need no entry, since they stand beside what they test and are called so.
//! Not here: whether a description is right.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Adds the paths of all Rust files below `folder` to `found`.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry of a folder can be read").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The `//!` comment at the top of a file.
fn header(source: &str) -> String {
    let lines = source.lines().skip_while(|l| !l.starts_with("//!")).take_while(|l| l.starts_with("//!"));
    lines.map(|l| format!("{}\n", l.trim_start_matches("//!"))).collect()
}

/// Whether a header names the module: `` `x` ``, `` `x/` ``, `` [`a::x`] `` or `x.rs`.
fn names(header: &str, module: &str) -> bool {
    let quoted = header.split('`').skip(1).step_by(2).map(|q| q.trim_end_matches('/'));
    let last = |q: &str| q.rsplit("::").next().unwrap_or_default().to_owned();
    let file = format!("{module}.rs");
    quoted.map(last).any(|q| q == module) || header.split_whitespace().any(|w| w.trim_matches('`') == file)
}

/// The folder in whose map a file belongs, and the name under which it stands there. None for roots
/// of crates and for tests.
fn entry<'a>(src: &Path, file: &'a Path) -> Option<(PathBuf, &'a str)> {
    let is_test = |name: &str| name == "tests" || name.ends_with("_tests");
    let inside = file.strip_prefix(src).expect("the file is below its crate's src");
    let stem = |p: &'a Path| p.file_stem().and_then(|s| s.to_str()).expect("names are UTF-8");
    if inside.iter().filter_map(|p| p.to_str()).any(|p| is_test(p.trim_end_matches(".rs"))) {
        return None;
    }
    match (stem(file), file.parent().expect("a file has a folder")) {
        ("lib" | "main", folder) if folder == src => None,
        ("mod", folder) => Some((folder.parent()?.to_path_buf(), stem(folder))),
        (name, folder) => Some((folder.to_path_buf(), name)),
    }
}

/// The files that can hold the map of a folder.
fn maps(src: &Path, folder: &Path) -> Vec<PathBuf> {
    let candidates = if folder == src {
        vec![src.join("lib.rs"), src.join("main.rs")]
    } else {
        vec![folder.join("mod.rs"), folder.with_extension("rs")]
    };
    candidates.into_iter().filter(|p| p.exists()).collect()
}

/// Files of a crate that no map names.
fn unnamed(src: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    files.sort();
    let mut missing = Vec::new();
    for file in &files {
        let Some((folder, name)) = entry(src, file) else { continue };
        if !maps(src, &folder).iter().any(|map| names(&header(&read(map)), name)) {
            missing.push(file.strip_prefix(src).expect("as above").display().to_string());
        }
    }
    missing
}

/// Cells of a page's tables that have more than `most` characters: the line and how many.
fn long_cells(page: &str, most: usize) -> Vec<(usize, usize)> {
    let rows = page.lines().enumerate().filter(|(_, l)| l.starts_with('|'));
    rows.flat_map(|(i, l)| l.split('|').map(move |cell| (i + 1, cell.trim().chars().count())))
        .filter(|(_, length)| *length > most)
        .collect()
}

/// Paths between backticks that begin with a folder of this repository.
fn paths_named(page: &str) -> Vec<&str> {
    let folders = ["crates/", "testkit/", "docs/", "fuzz/", "scripts/", "packaging/"];
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|q| folders.iter().any(|f| q.starts_with(f)) && !q.contains(['*', ' '])).collect()
}

#[test]
fn every_source_file_is_named_in_the_map_of_its_folder() {
    let mut missing = Vec::new();
    let mut crates = 0;
    for entry in fs::read_dir(root().join("crates")).expect("there are crates") {
        let folder = entry.expect("an entry of a folder can be read").path();
        let name = folder.file_name().and_then(|n| n.to_str()).expect("names are UTF-8").to_owned();
        missing.extend(unnamed(&folder.join("src")).into_iter().map(|f| format!("crates/{name}/src/{f}")));
        crates += 1;
    }
    assert!(crates >= 8, "only {crates} crates were found");
    let help = "name each in the table `# Files` in the header of its folder's mod.rs, or of lib.rs";
    assert!(missing.is_empty(), "{} files are in no map; {help}:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn cells_of_the_architecture_s_tables_are_short() {
    assert_eq!(long_cells(&read(&root().join("ARCHITECTURE.md")), 250), []);
}

#[test]
fn readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; 150 are read");
}

#[test]
fn files_that_the_documents_for_newcomers_name_exist() {
    let mut gone = Vec::new();
    let mut seen = 0;
    for page in [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/walks/packet.md",
        "docs/walks/datagram.md",
        "docs/walks/key.md",
    ] {
        let text = read(&root().join(page));
        for path in paths_named(&text) {
            seen += 1;
            if !root().join(path).exists() && !path.contains("NAME") {
                gone.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(seen > 80, "only {seen} paths were found");
    assert_eq!(gone, [""; 0]);
}

#[test]
fn a_file_that_no_map_names_is_found() {
    let src = std::env::temp_dir().join(format!("house-maps-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = src.join(path);
        fs::create_dir_all(path.parent().expect("it is below src")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    };
    write("lib.rs", "//! The crate: `named`, [`folder`].\n\nmod named;\nmod forgotten;\n// `forgotten`\n");
    write("named.rs", "//! ```text\n//! part.rs    a part\n//! ```\n");
    write("named/part.rs", "");
    write("named/lost.rs", "");
    write("named_tests.rs", "");
    write("forgotten.rs", "");
    write("folder/mod.rs", "#![allow(x)]\n//! | `inner/` | [`crate::folder::other`] |\n");
    write("folder/inner/mod.rs", "");
    write("folder/other.rs", "");
    write("folder/others.rs", "");
    write("folder/tests/story.rs", "");
    let missing = unnamed(&src);
    fs::remove_dir_all(&src).expect("the folder can be removed");
    assert_eq!(missing, ["folder/others.rs", "forgotten.rs", "named/lost.rs"]);
}

#[test]
fn a_long_cell_and_a_path_are_found() {
    assert_eq!(long_cells("a line | of text\n| one | two |\n| 12345 | 123 |", 4), [(3, 5)]);
    assert_eq!(
        paths_named("`crates/a.rs`, `a.rs`, `docs/rfc/`, `testkit/tests/*.rs`"),
        ["crates/a.rs", "docs/rfc/"]
    );
}
