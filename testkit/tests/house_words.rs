//! Comments are for engineers who are not native speakers: short lines, sentences that name their
//! subject, and constants whose names say what they limit (CONTRIBUTING.md, "Plain sentences").
//!
//! Each rule counts, and a count that is still above its goal may only become smaller. What is not
//! here: whether a comment is true, or easy to understand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Most columns of a comment line.
const MAX_COLUMNS: usize = 100;

/// First words that usually hide the noun of a sentence.
const HIDING: &[&str] = &[
    "What", "Whose", "Whom", "Those", "That", "It", "Its", "They", "Where", "As many", "As much", "So many",
    "So long", "So much",
];

/// Comment lines that may begin with such a word, in all crates together.
const MOST_HIDING: usize = 500;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit is inside the repository").to_path_buf()
}

/// Adds the texts of all Rust files below `folder`, each with its path.
fn read_all(folder: &Path, texts: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry of a folder can be read").path();
        if path.is_dir() {
            read_all(&path, texts);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            texts.push((path, text));
        }
    }
}

/// The Rust files of every crate, of the testkit and of the fuzz targets, by folder.
fn everywhere() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let mut all = BTreeMap::new();
    let crates = fs::read_dir(repository().join("crates")).expect("there are crates");
    let crates = crates.map(|entry| entry.expect("an entry of a folder can be read").path());
    let others = ["testkit", "fuzz/src", "fuzz/fuzz_targets"].map(|folder| repository().join(folder));
    for folder in crates.chain(others) {
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        let mut texts = Vec::new();
        read_all(&folder, &mut texts);
        all.insert(name, texts);
    }
    all
}

/// The Rust files in `src` of every crate, by the crate's name.
fn crates() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(repository().join("crates")).expect("there are crates") {
        let folder = entry.expect("an entry of a folder can be read").path();
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        let mut texts = Vec::new();
        read_all(&folder.join("src"), &mut texts);
        all.insert(name, texts);
    }
    assert!(all.len() >= 9, "only {} crates were found", all.len());
    all
}

/// Lines that are comments, with their numbers.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, l)| l.trim_start().starts_with("//"))
}

/// Numbers of the comment lines that have too many columns.
fn long_lines(text: &str) -> Vec<usize> {
    comments(text).filter(|(_, line)| line.chars().count() > MAX_COLUMNS).map(|(number, _)| number).collect()
}

/// Numbers of the comment lines that begin with a word that hides the noun.
fn hiding_lines(text: &str) -> Vec<usize> {
    let hides = |line: &str| {
        let body = line.trim_start().trim_start_matches('/');
        let body = body.strip_prefix('!').unwrap_or(body);
        let body = body.strip_prefix(' ').unwrap_or(body);
        HIDING.iter().any(|word| {
            let rest = body.strip_prefix(word).map(|rest| rest.chars().next());
            rest.is_some_and(|next| !next.is_some_and(|c| c.is_alphanumeric() || c == '_'))
        })
    };
    comments(text).filter(|(_, line)| hides(line)).map(|(number, _)| number).collect()
}

/// Numbers of the lines that define a constant of this name.
fn constants(text: &str, name: &str) -> Vec<usize> {
    let defines = |line: &str| {
        let rest = line.trim_start().split("const ").nth(1);
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(':'))
    };
    text.lines().enumerate().filter(|(_, line)| defines(line)).map(|(i, _)| i + 1).collect()
}

#[test]
fn comment_lines_have_at_most_100_columns() {
    let mut places = Vec::new();
    for (path, text) in everywhere().into_values().flatten() {
        places.extend(long_lines(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert_eq!(places, [""; 0]);
}

#[test]
fn few_comments_begin_with_a_word_that_hides_the_noun() {
    let mut places = Vec::new();
    for (path, text) in crates().into_values().flatten() {
        places.extend(hiding_lines(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    println!("comments with such a first word: {} of at most {MOST_HIDING}", places.len());
    assert!(places.len() < MOST_HIDING, "{} of at most {MOST_HIDING}:\n{}", places.len(), places.join("\n"));
}

#[test]
fn no_constant_is_called_patience() {
    let mut texts = Vec::new();
    for folder in ["crates", "testkit", "fuzz/src", "fuzz/fuzz_targets"] {
        read_all(&repository().join(folder), &mut texts);
    }
    let mut places = Vec::new();
    for (path, text) in &texts {
        let lines = constants(text, concat!("PAT", "IENCE"));
        places.extend(lines.into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert_eq!(places, [""; 0], "name what waits for what");
}

#[test]
fn each_rule_finds_its_fault() {
    let long = format!("/// {}\n//! {}\nlet x = \"{0}\";\n", "x".repeat(97), "é".repeat(96));
    assert_eq!(long_lines(&long), [1]);
    let hiding =
        "/// What waits.\n//! Itself.\n// It's\n    //Those\n/// As many\n/// As far\n/// The\nWhat\n///  It";
    assert_eq!(hiding_lines(hiding), [1, 3, 4, 5]);
    let code = "const WAIT: u8 = 1;\n    pub const WAIT: u8 = 1;\nconst WAITED: u8 = WAIT;\n";
    assert_eq!(constants(code, "WAIT"), [1, 2]);
}
