//! Records against their schemas: sound ones pass, whatever is wrong is found, and the schemas
//! leave nothing open.

use serde_json::{Value, json};

use super::check::breaches_of;
use super::{NAMES, breaches, by_name};
use crate::record::{LAB_SCHEMA, Record};
use crate::report::sample;

/// Paths in a schema of objects that may have properties it does not name.
fn open_objects(schema: &Value) -> Vec<String> {
    let mut open = Vec::new();
    walk(schema, "", &mut open);
    open.sort();
    open
}

#[test]
fn a_run_obeys_its_schema_and_reads_back_unchanged() {
    let run = sample::record();
    let json = serde_json::to_value(&run).expect("JSON");
    assert_eq!(breaches(&json), [""; 0]);
    let back: Record = serde_json::from_value(json).expect("a record");
    assert_eq!(back, run);
}

#[test]
fn whatever_breaks_the_schema_is_found() {
    let good = serde_json::to_value(sample::record()).expect("JSON");
    let broken = |pointer: &str, value: Value| {
        let mut json = good.clone();
        *json.pointer_mut(pointer).expect(pointer) = value;
        breaches(&json)
    };
    for (pointer, value) in [
        ("/schema", json!("ironswan.lab/2")),
        ("/program/build", json!("fast")),
        ("/started", json!("yesterday")),
        ("/samples/0/measures/gbps", json!(null)),
        ("/samples/1/repeat", json!(-1)),
        ("/samples/1/repeat", json!(1.5)),
        ("/samples/0/files/0", json!("/etc/passwd")),
        ("/figures/1/measures/gbps/ratio", json!("half")),
        ("/warnings/0/kind", json!("Few Repeats")),
    ] {
        assert!(!broken(pointer, value).is_empty(), "{pointer} was passed over");
    }
    let mut extra = good.clone();
    extra["machine"]["colour"] = json!("red");
    assert_eq!(breaches(&extra), ["run.machine.colour: additionalProperties false"]);
    let mut lacking = good.clone();
    lacking.as_object_mut().expect("object").remove("warnings");
    assert_eq!(breaches(&lacking), ["run: required \"warnings\""]);
}

#[test]
fn schemas_leave_open_only_what_goes_by_names() {
    for (name, _) in NAMES {
        let open = open_objects(&by_name(name).expect(name));
        let expected: &[&str] = match name {
            LAB_SCHEMA => &[
                ".$defs.Derived.properties.factors",
                ".$defs.Figure.properties.absent",
                ".$defs.Figure.properties.factors",
                ".$defs.Figure.properties.measures",
                ".$defs.Plot.properties.only",
                ".$defs.Sample.properties.absent",
                ".$defs.Sample.properties.factors",
                ".$defs.Sample.properties.measures",
                ".$defs.Table.properties.only",
                ".properties.settings",
                ".properties.versions",
            ],
            _ => &[],
        };
        assert_eq!(open, expected, "{name}");
    }
}

#[test]
fn a_keyword_that_is_not_known_is_no_silent_pass() {
    let found = breaches_of(&json!({"type": "object", "allOf": []}), &json!({}));
    assert_eq!(found, [r#"run: the validator does not know allOf []"#]);
    let found = breaches_of(&json!({"pattern": "^x*$"}), &json!("y"));
    assert_eq!(found, [r#"run: the validator does not know pattern "^x*$""#]);
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
