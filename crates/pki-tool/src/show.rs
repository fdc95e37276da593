//! `print`: files in words, without being told what they are.

use std::fmt::Write as _;
use std::path::Path;

use ironswan_pki::key_file;
use serde_json::{Map, Value, json};

use crate::args::Print;
use crate::failure::Failure;
use crate::files::{self, Source};
use crate::kind::{self, Item};
use crate::shown::{self, Shown};
use crate::signed::SHOW_ALL;
use crate::{dates, passphrase, wanted};

/// Carries out `print`. A file that cannot be shown does not hide those behind it.
pub(crate) fn print(a: &Print) -> Result<(), Failure> {
    let mut paths: Vec<Option<&Path>> = a.files.iter().map(|path| Some(path.as_path())).collect();
    if paths.is_empty() || a.input.path.is_some() {
        paths.insert(0, a.input.path.as_deref());
    }
    let (mut text, mut documents, mut failed) = (String::new(), Vec::new(), Vec::new());
    for path in paths {
        let shown = files::read(path).and_then(|source| {
            let list = of_file(&source, a.input.passphrase_file.as_deref())?;
            Ok((source.name.clone(), list))
        });
        match shown {
            Ok((name, list)) => {
                for one in list {
                    if a.json {
                        documents.push(as_json(&name, &one));
                    } else {
                        as_text(&mut text, &name, &one);
                    }
                }
            }
            Err(failure) => failed.extend(failure.lines),
        }
    }
    if a.json {
        text = format!("{:#}\n", json!({ "schema": "ironswan.pki.print/1", "items": documents }));
    }
    files::say(&text)?;
    if failed.is_empty() { Ok(()) } else { Err(Failure { status: 2, lines: failed }) }
}

/// Everything in a file.
fn of_file(source: &Source, passphrase_file: Option<&Path>) -> Result<Vec<Shown>, Failure> {
    let now = dates::now();
    let mut list = Vec::new();
    for item in kind::items(source)? {
        list.push(match item {
            Item::Certificate(certificate) => shown::certificate(&certificate, now),
            Item::List(crl) => shown::list(&crl, now),
            Item::Request(request) => shown::request(&request),
            Item::Public(key) => shown::key("public key", &key),
            Item::Private(key) => shown::key("private key, not encrypted", key.public()),
            Item::Locked => {
                let key = wanted::private_key(source, passphrase_file)?;
                shown::key("private key, encrypted (PKCS#8)", key.public())
            }
            Item::Container => {
                list.extend(contents(source, passphrase_file)?);
                continue;
            }
        });
    }
    Ok(list)
}

/// What PKCS#12 holds.
fn contents(source: &Source, passphrase_file: Option<&Path>) -> Result<Vec<Shown>, Failure> {
    let passphrase = passphrase::known(passphrase_file, &source.name)?;
    let contents = key_file::pkcs12(&source.bytes, &passphrase, SHOW_ALL);
    let contents = contents.map_err(|fault| source.unusable(&fault))?;
    let now = dates::now();
    let mut list = Vec::new();
    if let Some(key) = &contents.key {
        list.push(shown::key("private key in PKCS#12", key.public()));
    }
    for certificate in &contents.certificates {
        let mut one = shown::certificate(certificate, now);
        one.kind.push_str(" in PKCS#12");
        list.push(one);
    }
    Ok(list)
}

/// Width of the column of labels.
const LABEL: usize = 20;

fn as_text(out: &mut String, name: &str, shown: &Shown) {
    if !out.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{name}: {}", shown.kind);
    for (label, lines) in &shown.rows {
        for (n, line) in lines.iter().enumerate() {
            let label = if n == 0 { label } else { "" };
            let _ = writeln!(out, "  {label:LABEL$}  {line}");
        }
    }
}

/// The rows as fields: one line is a string, several are a list.
fn as_json(name: &str, shown: &Shown) -> Value {
    let mut fields = Map::new();
    fields.insert("file".into(), name.into());
    fields.insert("kind".into(), shown.kind.as_str().into());
    for (label, lines) in &shown.rows {
        let label = label.replace([' ', '-'], "_").to_lowercase();
        let value = match lines.as_slice() {
            [one] => Value::from(one.as_str()),
            lines => Value::from(lines.to_vec()),
        };
        fields.insert(label, value);
    }
    Value::Object(fields)
}
