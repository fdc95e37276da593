//! `run.json` against its schema, by a small validator of the keywords that the schema uses; any other keyword in the schema
//! fails the test rather than being passed over.

use serde_json::{Value, json};

use super::run::{RUN_SCHEMA_JSON, Run};
use super::sample;

fn schema() -> Value {
    serde_json::from_str(RUN_SCHEMA_JSON).expect("the schema is JSON")
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the schema has the unknown type {other}"),
    }
}

/// The schema's patterns, by hand.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern {
        "^raw/[^/]+$" => {
            text.strip_prefix("raw/").is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
        }
        "^[a-z]+(-[a-z]+)*$" => {
            text.split('-').all(|w| !w.is_empty() && w.chars().all(|c| c.is_ascii_lowercase()))
        }
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$" => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00T00:00:00Z"
        }
        other => panic!("the schema has the unknown pattern {other}"),
    }
}

/// The first place where `value` breaks `schema`, as a path and the rule broken.
fn breach(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    let rules = schema.as_object().expect("a schema is an object");
    let number = || value.as_f64().unwrap_or(f64::NAN);
    let length = || value.as_array().map_or(0, Vec::len) as u64;
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let name = rule.as_str().expect("a reference").trim_start_matches("#/$defs/");
                let target = root["$defs"].get(name).expect("a definition");
                if let Some(deeper) = breach(root, target, value, path) {
                    return Some(deeper);
                }
                true
            }
            "type" => is_type(value, rule.as_str().expect("one type")),
            "const" => value == rule,
            "enum" => rule.as_array().expect("a list").contains(value),
            "anyOf" => {
                let choices = rule.as_array().expect("a list");
                choices.iter().any(|choice| breach(root, choice, value, path).is_none())
            }
            "required" => rule
                .as_array()
                .expect("a list")
                .iter()
                .all(|key| value.get(key.as_str().expect("a name")).is_some()),
            "properties" => {
                for (key, inner) in rule.as_object().expect("properties") {
                    let found = value.get(key).and_then(|v| breach(root, inner, v, &format!("{path}.{key}")));
                    if found.is_some() {
                        return found;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = |key: &str| rules.get("properties").is_some_and(|p| p.get(key).is_some());
                let extra = value.as_object().into_iter().flatten().filter(|(key, _)| !known(key));
                let mut allowed = true;
                for (key, v) in extra {
                    if rule == &Value::Bool(false) {
                        allowed = false;
                    } else if let Some(deeper) = breach(root, rule, v, &format!("{path}.{key}")) {
                        return Some(deeper);
                    }
                }
                allowed
            }
            "items" => {
                for (i, v) in value.as_array().into_iter().flatten().enumerate() {
                    if let Some(deeper) = breach(root, rule, v, &format!("{path}[{i}]")) {
                        return Some(deeper);
                    }
                }
                true
            }
            "minItems" => length() >= rule.as_u64().expect("a number"),
            "maxItems" => length() <= rule.as_u64().expect("a number"),
            "minLength" => value.as_str().map_or(0, str::len) as u64 >= rule.as_u64().expect("a number"),
            "minimum" => number() >= rule.as_f64().expect("a number"),
            "maximum" => number() <= rule.as_f64().expect("a number"),
            "exclusiveMinimum" => number() > rule.as_f64().expect("a number"),
            "pattern" => matches(rule.as_str().expect("a pattern"), value.as_str().unwrap_or_default()),
            other => panic!("the validator does not know the keyword {other}"),
        };
        if !holds {
            return Some(format!("{path}: {keyword} {rule}"));
        }
    }
    None
}

/// The first breach in a whole `run.json`.
pub(crate) fn breach_of_run(run: &Value) -> Option<String> {
    let schema = schema();
    breach(&schema, &schema, run, "run")
}

#[test]
fn a_run_obeys_its_schema_and_reads_back_unchanged() {
    let run = sample::run();
    let json = serde_json::to_value(&run).expect("JSON");
    assert_eq!(breach_of_run(&json), None);
    let back: Run = serde_json::from_value(json).expect("a run");
    assert_eq!(back, run);
}

#[test]
fn whatever_breaks_the_schema_is_found() {
    let good = serde_json::to_value(sample::run()).expect("JSON");
    let broken = |pointer: &str, value: Value| {
        let mut json = good.clone();
        *json.pointer_mut(pointer).expect(pointer) = value;
        breach_of_run(&json)
    };
    for (pointer, value) in [
        ("/schema", json!("ironswan.run/2")),
        ("/program/build", json!("fast")),
        ("/started", json!("yesterday")),
        ("/trials", json!([])),
        ("/trials/0/cell/mode", json!("hyper")),
        ("/trials/0/window/gbps", json!(null)),
        ("/trials/0/window/bytes", json!(0)),
        ("/trials/1/window/tunnel/counters/rx_bytes", json!(-1)),
        ("/trials/0/window/links/b.eth0/rx_bytes", json!(1.5)),
        ("/trials/0/files/0", json!("/etc/passwd")),
        ("/results/cells/0/rows/1/ratio", json!("half")),
        ("/history/plain_gbps", json!([1.0])),
        ("/warnings/0/kind", json!("Few Repeats")),
    ] {
        assert!(broken(pointer, value).is_some(), "{pointer} was passed over");
    }
    let mut extra = good.clone();
    extra["machine"]["colour"] = json!("red");
    assert!(breach_of_run(&extra).is_some_and(|b| b.contains("additionalProperties")));
    let mut lacking = good.clone();
    lacking.as_object_mut().expect("object").remove("warnings");
    assert!(breach_of_run(&lacking).is_some_and(|b| b.contains("required")));
}

#[test]
fn every_property_of_a_record_is_described_by_the_schema() {
    // A field added to the structures but not to the schema is an additional property, which it forbids everywhere.
    let mut open = Vec::new();
    walk(&schema(), "", &mut open);
    open.sort();
    assert_eq!(open, [".$defs.window.properties.links", ".properties.versions"]);
}

fn walk(schema: &Value, path: &str, open: &mut Vec<String>) {
    if let Some(rules) = schema.as_object() {
        let is_object = rules.get("type").is_some_and(|t| t == "object");
        if is_object && rules.get("additionalProperties") != Some(&Value::Bool(false)) {
            open.push(path.into());
        }
        for (key, inner) in rules {
            walk(inner, &format!("{path}.{key}"), open);
        }
    } else if let Some(list) = schema.as_array() {
        list.iter().for_each(|inner| walk(inner, path, open));
    }
}
