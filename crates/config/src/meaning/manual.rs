//! The tables of `docs/manual/configuration.md`, made from the table of keys.
//!
//! A table stands between `<!-- keys: NAME -->` and `<!-- end of keys -->`. `cargo run -p ironswan-config --example manual` writes it.

use std::fmt::Write as _;

use super::keys::{self, Rule, Table};

/// The end of a table in the manual.
const END: &str = "<!-- end of keys -->";

/// Sections whose keys the manual lists, by the names of their tables.
const TABLES: [(&str, Table); 4] = [
    ("connections.<name>", keys::CONN),
    ("local", keys::LOCAL),
    ("remote", keys::REMOTE),
    ("children.<name>", keys::CHILD),
];

/// The page with all its tables of keys made anew.
///
/// # Errors
/// The page has no place for a table.
pub fn manual(page: &str) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, table) in TABLES {
        let mark = format!("<!-- keys: {name} -->\n");
        let missing = || format!("the page has no table `{}`", mark.trim());
        let from = page.find(&mark).ok_or_else(missing)? + mark.len();
        let len = page[from..].find(END).ok_or_else(missing)?;
        page.replace_range(from..from + len, &rows(table));
    }
    Ok(page)
}

/// Keys that are read, then those that may hold a few values only or have no effect.
fn rows(table: Table) -> String {
    let mut read = String::from("\n| key | kind | default | meaning |\n|---|---|---|---|\n");
    let mut other =
        String::from("\n| key that is not used | may be | answer to another value |\n|---|---|---|\n");
    for key in table {
        let (name, default, about) = (key.name, key.default, key.about);
        // Writing to a String cannot fail.
        let _ = match (key.rule, key.kind) {
            (Rule::Read, kind) => {
                let kind = kind.map_or("", |kind| kind.word());
                writeln!(read, "| `{name}` | {kind} | {default} | {about} |")
            }
            (Rule::Only([], _), _) => writeln!(other, "| `{name}` | empty | {about} |"),
            (Rule::Only(values, _), _) => {
                let values: Vec<String> = values.iter().map(|v| format!("`{v}`")).collect();
                writeln!(other, "| `{name}` | {} | {about} |", values.join(", "))
            }
            (Rule::NoEffect(_), _) => {
                writeln!(other, "| `{name}` | anything | none; the key has no effect: {about} |")
            }
        };
    }
    format!("{read}{other}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_tables_that_the_keys_make() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/configuration.md");
        let page = std::fs::read_to_string(path).expect("the page");
        assert!(
            manual(&page).expect("places for all tables") == page,
            "docs/manual/configuration.md differs from the table of keys; run `cargo run -p ironswan-config --example manual`"
        );
    }

    #[test]
    fn every_key_has_its_row_and_every_row_its_sentence() {
        for (name, table) in TABLES {
            let rows = rows(table);
            for key in table {
                assert!(rows.contains(&format!("| `{}` | ", key.name)), "{name}: {}", key.name);
                assert!(!key.about.is_empty() && !key.about.contains(['|', '\n']), "{name}: {}", key.name);
            }
        }
        assert!(manual("no place").unwrap_err().contains("connections.<name>"));
    }
}
