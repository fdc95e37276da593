//! The tables of `docs/manual/configuration.md`, made from the table of keys.
//!
//! A table stands between `<!-- keys: NAME -->` and `<!-- end of keys -->`. `cargo run -p
//! ironswan-config --example manual` writes it.

use std::fmt::Write as _;

use super::keys::authority::AUTHORITY_TABLE;
use super::keys::child::CHILD_TABLE;
use super::keys::conn::local::LOCAL_TABLE;
use super::keys::conn::remote::REMOTE_TABLE;
use super::keys::conn::{CERT_TABLE, CONN_TABLE};
use super::keys::data::DATA_TABLE;
use super::keys::secret::{IKE_TABLE, PASSPHRASE_TABLE, PPK_TABLE};
use super::keys::settings::{LOG_TABLE, SETTINGS_TABLE, VICI_TABLE};
use super::keys::{Preset, Rule, Table};

/// The end of a table in the manual.
const END: &str = "<!-- end of keys -->";

/// Sections whose keys the manual lists, by the names of their tables.
const TABLES: [(&str, Table); 13] = [
    ("connections.<name>", CONN_TABLE),
    ("local", LOCAL_TABLE),
    ("remote", REMOTE_TABLE),
    ("cert<suffix>", CERT_TABLE),
    ("children.<name>", CHILD_TABLE),
    ("secrets.ike<suffix>", IKE_TABLE),
    ("secrets.ppk<suffix>", PPK_TABLE),
    ("secrets.private<suffix>", PASSPHRASE_TABLE),
    ("authorities.<name>", AUTHORITY_TABLE),
    ("ironswan.conf", SETTINGS_TABLE),
    ("vici", VICI_TABLE),
    ("log", LOG_TABLE),
    ("data", DATA_TABLE),
];

/// True when a section of some kind has a key of this name.
pub(crate) fn is_key(name: &str) -> bool {
    TABLES.iter().any(|(_, table)| table.names().any(|known| known == name))
}

/// The page has no place for this table of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingTable(&'static str);

impl std::fmt::Display for MissingTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the page has no table `<!-- keys: {} -->`", self.0)
    }
}

impl std::error::Error for MissingTable {}

/// The page with all its tables of keys made anew.
///
/// # Errors
/// The page has no place for a table.
pub fn manual(page: &str) -> Result<String, MissingTable> {
    let mut page = page.to_owned();
    for (name, table) in TABLES {
        let mark = format!("<!-- keys: {name} -->\n");
        let missing = || MissingTable(name);
        let from = page.find(&mark).ok_or_else(missing)? + mark.len();
        let len = page[from..].find(END).ok_or_else(missing)?;
        page.replace_range(from..from + len, &rows(table));
    }
    Ok(page)
}

/// Keys that are read, then those that may hold a few values only or have no effect.
fn rows(table: Table) -> String {
    let mut read = String::from("\n| key | kind | default | meaning |\n|---|---|---|---|\n");
    for key in table.read {
        let default = match key.preset() {
            Preset::Is(text) => format!("`{text}`"),
            Preset::Depends(words) => words.to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(read, "| `{}` | {} | {default} | {} |", key.name(), key.kind().word(), key.about());
    }
    if table.unused.is_empty() {
        return read + "\n";
    }
    let mut other =
        String::from("\n| key that is not used | may be | answer to another value |\n|---|---|---|\n");
    for key in table.unused {
        let (name, why) = (key.name, key.why);
        let _ = match key.rule {
            Rule::Only([]) => writeln!(other, "| `{name}` | empty | {why} |"),
            Rule::Only(values) => {
                let values: Vec<String> = values.iter().map(|v| format!("`{v}`")).collect();
                writeln!(other, "| `{name}` | {} | {why} |", values.join(", "))
            }
            Rule::NoEffect => {
                writeln!(other, "| `{name}` | anything | none; the key has no effect: {why} |")
            }
            Rule::Moved(section) => {
                writeln!(other, "| `{name}` | empty | the key has moved to `{section}`; {why} |")
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
            let read = table.read.iter().map(|key| (key.name(), key.about()));
            for (key, about) in read.chain(table.unused.iter().map(|key| (key.name, key.why))) {
                assert!(rows.contains(&format!("| `{key}` | ")), "{name}: {key}");
                assert!(!about.is_empty() && !about.contains(['|', '\n']), "{name}: {key}");
            }
        }
        assert!(manual("no place") == Err(MissingTable("connections.<name>")));
    }
}
