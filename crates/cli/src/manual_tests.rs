//! Every command of ours that a document shows is one that the command line takes.
//!
//! A line of a fenced block has to parse as it stands. In running text a command may be named
//! without its arguments (`ironswan prove`). `testkit/interop/run manual` runs those of the pages
//! for operators.

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::args::Args;

/// Words that stand for something of the reader's, and something that could be there.
const PLACEHOLDERS: [(&str, &str); 2] = [("ADDRESS", "192.0.2.2"), ("LEVEL", "debug")];

/// A command as a document shows it.
struct Shown {
    place: String,
    text: String,
    /// In a fenced block; else in running text.
    is_whole: bool,
}

/// Pages in `folder` and the folders in it.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// Commands of a page. A first line of `ironswan status` (`ironswan 0.1.0, up ..`) is none.
fn commands(name: &str, page: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let (mut fence, mut open) = (false, String::new());
    for (i, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            fence = !fence;
            continue;
        }
        // Code in running text may go on in the next line.
        let text = std::mem::take(&mut open) + line;
        if !fence && !text.matches('`').count().is_multiple_of(2) && !line.is_empty() {
            open = text + " ";
            continue;
        }
        let texts: Vec<&str> = if fence { vec![line] } else { text.split('`').skip(1).step_by(2).collect() };
        for text in texts.into_iter().filter(|text| text.starts_with("ironswan ")) {
            if !text.starts_with("ironswan 0.") && !text.starts_with("ironswan helper: ") {
                let place = format!("{name}:{}", i + 1);
                found.push(Shown { place, text: text.to_owned(), is_whole: fence });
            }
        }
    }
    found
}

/// Words of the first command of a line, as a shell makes them. What stands two blanks behind it is
/// an explanation.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(q), letter) if q == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                if letters.peek().is_some_and(|next| " #".contains(*next)) {
                    break;
                }
            }
            (None, '|' | ';' | '&' | '>' | '<') => break,
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Whether nothing is wrong but that something is missing.
fn lacks_arguments(e: &clap::Error) -> bool {
    let lacks_value =
        || e.kind() == ErrorKind::InvalidValue && e.to_string().contains("but none was supplied");
    e.kind() == ErrorKind::MissingRequiredArgument || lacks_value()
}

#[test]
fn every_command_that_a_document_shows_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("ARCHITECTURE.md")];
    pages(&root.join("docs"), &mut files);
    let (mut seen, mut faults) = (0, Vec::new());
    for file in files {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        for shown in commands(&name, &std::fs::read_to_string(&file).unwrap()) {
            let fill = |word: String| {
                PLACEHOLDERS
                    .iter()
                    .find(|(name, _)| *name == word)
                    .map_or(word, |(_, value)| (*value).to_owned())
            };
            seen += 1;
            match Args::try_parse_from(words(&shown.text).into_iter().map(fill)) {
                Ok(_) => {}
                Err(e) if !shown.is_whole && lacks_arguments(&e) => {}
                Err(e) => faults.push(format!("{}: {}\n  {e}", shown.place, shown.text)),
            }
        }
    }
    assert!(seen > 150, "only {seen} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn commands_are_found_and_cut_into_words_as_by_a_shell() {
    let page = "`ironswan up` and `ip link`\n```\nironswan 0.1.0, up\nironswan up net | head\n```\n`ironswan\nstatus`\n";
    let found = commands("p.md", page);
    let found: Vec<_> = found.iter().map(|s| (s.place.as_str(), s.text.as_str(), s.is_whole)).collect();
    let want = [
        ("p.md:1", "ironswan up", false),
        ("p.md:4", "ironswan up net | head", true),
        ("p.md:7", "ironswan status", false),
    ];
    assert_eq!(found, want);
    assert_eq!(
        words("ironswan explain --packet 'a > b tcp'  why"),
        ["ironswan", "explain", "--packet", "a > b tcp"]
    );
    assert_eq!(words("ironswan up net && ls"), ["ironswan", "up", "net"]);
    assert_eq!(words("ironswan status  # all"), ["ironswan", "status"]);
    assert_eq!(words("ironswan status # all"), ["ironswan", "status"]);
}
