//! JSON documents: each has a `schema` of its own, so that programs know what they read.

use ironswan_wire::printable::printable;
use ironswan_wire::vici::{Section, Value};
use serde_json::{Map, Value as Json};

/// Prints one document of the schema `ironswan.<what>/1`.
pub(crate) fn print(what: &str, body: Json) {
    let mut document = Map::new();
    document.insert("schema".into(), format!("ironswan.{what}/1").into());
    match body {
        Json::Object(fields) => document.extend(fields),
        other => {
            document.insert("items".into(), other);
        }
    }
    say!("{:#}", shown(Json::Object(document)));
}

/// A document with every text in it fit to be shown, also by a program that prints it as it is.
fn shown(value: Json) -> Json {
    match value {
        Json::String(text) => printable(&text).into(),
        Json::Array(items) => items.into_iter().map(shown).collect(),
        Json::Object(fields) => {
            fields.into_iter().map(|(name, value)| (printable(&name).into_owned(), shown(value))).collect()
        }
        other => other,
    }
}

/// Keys whose values are numbers.
const NUMBERS: &[&str] = &[
    "uniqueid",
    "local-port",
    "remote-port",
    "encr-keysize",
    "integ-keysize",
    "established",
    "rekey-time",
    "reauth-time",
    "reqid",
    "priority",
    "bytes-in",
    "packets-in",
    "use-in",
    "bytes-out",
    "packets-out",
    "use-out",
    "life-time",
    "install-time",
    "rekey_time",
    "reauth_time",
    "rekey_bytes",
    "rekey_packets",
    "dpd_delay",
    "priority",
    "total",
    "half-open",
    "workers",
    "udp-segments",
    "receive-buffer",
    "send-buffer",
    "since",
    "lasted",
    "ended",
    "next-try",
    "next-number",
    "first",
    "last",
    "count",
    "mtu",
    "believed",
    "ago",
];
/// Keys whose values are yes or no.
const FLAGS: &[&str] = &[
    "initiator",
    "nat-local",
    "nat-remote",
    "nat-fake",
    "nat-any",
    "encap",
    "guard",
    "ipcomp",
    "tun-tso",
    "tun-uso",
    "udp-gro",
    "busy-poll",
    "wanted",
    "differs",
    "narrow",
];

/// A message as an object. VICI has texts only; what is known to be a number or a yes or no becomes
/// one.
pub(crate) fn object(section: &Section) -> Json {
    Json::Object(section.iter().map(|(name, value)| (name.to_owned(), value_of(name, value))).collect())
}

fn value_of(name: &str, value: &Value) -> Json {
    match value {
        Value::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            if NUMBERS.contains(&name)
                && let Ok(n) = text.parse::<u64>()
            {
                return n.into();
            }
            match &*text {
                "yes" if FLAGS.contains(&name) => true.into(),
                "no" if FLAGS.contains(&name) => false.into(),
                text => text.into(),
            }
        }
        Value::List(items) => items.iter().map(|i| Json::from(String::from_utf8_lossy(i))).collect(),
        Value::Section(s) => object(s),
    }
}

/// Counters: every leaf is a number.
pub(crate) fn numbers(section: &Section) -> Json {
    Json::Object(
        section
            .iter()
            .map(|(name, value)| {
                let json = match value {
                    Value::Text(bytes) => {
                        let text = String::from_utf8_lossy(bytes);
                        text.parse::<u64>().map_or_else(|_| text.into(), Json::from)
                    }
                    Value::List(_) => Json::Null,
                    Value::Section(s) => numbers(s),
                };
                (name.to_owned(), json)
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_document_moves_a_cursor() {
        let evil = "a\u{1b}[2J\u{202e}";
        let clean = "a\\u{1b}[2J\\u{202e}";
        let document = shown(serde_json::json!({ evil: [evil, { "x": evil }], "n": 7 }));
        assert_eq!(document, serde_json::json!({ clean: [clean, { "x": clean }], "n": 7 }));
    }

    #[test]
    fn numbers_and_flags_are_typed_and_the_rest_is_text() {
        let s = Section::new()
            .with("uniqueid", "7")
            .with("initiator", "yes")
            .with("local-id", "7")
            .with("local-ts", ["10.0.0.0/8"])
            .with("x", Section::new().with("rekey-time", "soon"));
        assert_eq!(
            object(&s).to_string(),
            r#"{"initiator":true,"local-id":"7","local-ts":["10.0.0.0/8"],"uniqueid":7,"x":{"rekey-time":"soon"}}"#
        );
        assert_eq!(numbers(&Section::new().with("a", "5")).to_string(), r#"{"a":5}"#);
    }
}
