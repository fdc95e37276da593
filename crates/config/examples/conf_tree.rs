//! What the reader of configurations makes of files, for `testkit/interop/tests/grammar.py`, which
//! compares it with what Debian's `swanctl` sends to a daemon. It prints the keys of `secrets` in
//! clear.
//!
//! Reads names of files from standard input, one a line, and answers each with one line of JSON:
//! `{"errors": [LINE...], "tree": SECTION, "secrets": [[NAME, HEX]...], "refused": [LINE...]}`, the
//! last about secrets. A SECTION is a list of `[NAME, SECTION]` and `[NAME, {"text": TEXT, "items":
//! [TEXT...]}]` in the order of the file.

use std::io::{BufRead, Write};
use std::path::Path;

use ironswan_config::tree::{Node, Section};
use ironswan_config::tree_of;
use serde_json::{Value, json};

fn section(s: &Section) -> Value {
    let entry = |(name, node): (&str, &Node)| match node {
        Node::Value(v) if v.is_unset() => None,
        Node::Value(v) => {
            let items: Vec<&str> = v.items().collect();
            Some(json!([name, { "text": v.as_text().as_str(), "items": items }]))
        }
        Node::Section(s) => Some(json!([name, section(s)])),
    };
    s.entries().filter_map(entry).collect()
}

#[allow(clippy::disallowed_methods, reason = "the reader of files takes the clock from its caller")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for file in std::io::stdin().lock().lines() {
        let (root, read, secrets, refused) = tree_of(now, Path::new(&file?));
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let secrets: Vec<Value> = secrets.iter().map(|k| json!([k.name, hex(k.secret.expose())])).collect();
        let answer = json!({ "errors": read.error_lines(), "tree": section(&root), "secrets": secrets,
                             "refused": refused.error_lines() });
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
