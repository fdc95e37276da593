//! Values of requests by VICI: numbers, yes or no, and whole connections as the reader of
//! configurations takes them. Errors name the key.

use ironswan_keying::diagnosis::{Configuration, RequestFault};
use ironswan_wire::vici::{Section, Value};

use super::certfiles::{AUTHORITIES, ENDS, Named};
use super::tree::{self, Node, Origin};

/// A key's text, unless it is empty.
pub fn text<'a>(message: &'a Section, key: &str) -> Option<&'a str> {
    message.get_str(key).filter(|t| !t.is_empty())
}

/// A key's number.
///
/// # Errors
/// The key is there, and has no number.
pub fn number<T: std::str::FromStr>(
    message: &Section,
    key: &'static str,
) -> Result<Option<T>, Configuration> {
    match message.get(key) {
        None => Ok(None),
        Some(_) => match text(message, key).map(str::trim).map(str::parse) {
            Some(Ok(n)) => Ok(Some(n)),
            _ => Err(bad(RequestFault::NotNumber(key))),
        },
    }
}

/// A key's yes or no. A missing key is no.
///
/// # Errors
/// The key is there, and has neither.
pub fn flag(message: &Section, key: &'static str) -> Result<bool, Configuration> {
    match text(message, key) {
        None if message.get(key).is_none() => Ok(false),
        Some("yes" | "true" | "1") => Ok(true),
        Some("no" | "false" | "0") => Ok(false),
        _ => Err(bad(RequestFault::NotFlag(key))),
    }
}

/// A message as the reader of configurations takes it. Where a file names public keys or
/// certificates, a message has their bytes: these become `named`, each under a number.
///
/// # Errors
/// A value is no text, or a name is there twice.
pub fn tree(section: &Section, origin: &Origin, named: &mut Named) -> Result<tree::Section, Configuration> {
    let mut out = tree::Section::new(origin.clone());
    let text = |name: &str, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| bad(RequestFault::NotText(name.escape_debug().to_string())))
    };
    for (name, value) in section.iter() {
        let node = match value {
            Value::Text(bytes) if is_blob(name) && !bytes.is_empty() => {
                Node::Value(tree::Value::list([keep(named, name, bytes)], origin.clone()))
            }
            Value::List(items) if is_blob(name) => {
                let names: Vec<String> = items.iter().map(|bytes| keep(named, name, bytes)).collect();
                Node::Value(tree::Value::list(names, origin.clone()))
            }
            Value::Text(bytes) => Node::Value(tree::Value::text(text(name, bytes)?, origin.clone())),
            Value::List(items) => {
                let items: Result<Vec<String>, _> = items.iter().map(|i| text(name, i)).collect();
                Node::Value(tree::Value::list(items?, origin.clone()))
            }
            // `wire` has bounded the depth.
            Value::Section(s) => Node::Section(tree(s, origin, named)?),
        };
        if out.set(name, node).is_some() {
            return Err(bad(RequestFault::Twice(name.escape_debug().to_string())));
        }
    }
    Ok(out)
}

/// True for keys that name files in a file, and have their bytes in a message.
fn is_blob(key: &str) -> bool {
    matches!(key, "pubkeys" | "certs" | "cacerts")
}

/// Keeps the bytes of a file, and returns their name.
fn keep(named: &mut Named, key: &str, bytes: &[u8]) -> String {
    match key {
        "certs" => named.number(ENDS, bytes),
        "cacerts" => named.number(AUTHORITIES, bytes),
        _ => named.public.number(bytes),
    }
}

/// The entry for a request that cannot be understood.
pub fn bad(why: RequestFault) -> Configuration {
    Configuration::BadRequest { why }
}
