//! Records against their schemas: sound ones pass, whatever is wrong is found, and the schemas
//! leave nothing open.

use serde_json::{Value, json};

use super::sample;
use super::schema::{LAB_SCHEMA_JSON, PLAN_SCHEMAS_JSON, breaches, breaches_of};
use crate::record::Record;

/// Paths in a schema of objects that may have properties it does not name.
fn open_objects(schema: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let mut open = Vec::new();
    walk(&schema, "", &mut open);
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
        breaches_of(LAB_SCHEMA_JSON, &json)
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
fn the_schema_of_records_leaves_open_only_what_goes_by_names() {
    let open = open_objects(LAB_SCHEMA_JSON);
    let expected = [
        ".$defs.factors",
        ".$defs.figure.properties.measures",
        ".$defs.sample.properties.measures",
        ".properties.settings",
        ".properties.versions",
    ];
    assert_eq!(open, expected);
}

#[test]
fn the_schemas_of_the_planner_leave_nothing_open() {
    for schema in PLAN_SCHEMAS_JSON {
        assert_eq!(open_objects(schema), [""; 0]);
    }
}

#[test]
fn a_keyword_that_is_not_known_is_no_silent_pass() {
    let found = breaches_of(r#"{"type": "object", "oneOf": []}"#, &json!({}));
    assert_eq!(found, [r#"run: the validator does not know oneOf []"#]);
    let found = breaches_of(r#"{"pattern": "^x*$"}"#, &json!("y"));
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
