//! Records against their schemas: sound ones pass, whatever is wrong is found, and the schemas
//! leave nothing open.

use serde_json::{Value, json};

use super::run::{RUN_SCHEMA_JSON, Run};
use super::sample;
use super::schema::{LAB_SCHEMA_JSON, PLAN_SCHEMAS_JSON, breaches, breaches_of};
use crate::record::{Record, Which, factors};

/// Paths in a schema of objects that may have properties it does not name.
pub(super) fn open_objects(schema: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let mut open = Vec::new();
    walk(&schema, "", &mut open);
    open.sort();
    open
}

#[test]
fn a_run_obeys_its_schema_and_reads_back_unchanged() {
    let run = sample::run();
    let json = serde_json::to_value(&run).expect("JSON");
    assert_eq!(breaches(&json), [""; 0]);
    let back: Run = serde_json::from_value(json).expect("a run");
    assert_eq!(back, run);
}

#[test]
fn whatever_breaks_the_schema_is_found() {
    let good = serde_json::to_value(sample::run()).expect("JSON");
    let broken = |pointer: &str, value: Value| {
        let mut json = good.clone();
        *json.pointer_mut(pointer).expect(pointer) = value;
        breaches_of(RUN_SCHEMA_JSON, &json)
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
fn every_property_of_a_record_is_described_by_the_schema() {
    // A field added to the structures but not to the schema is an additional property, which it
    // forbids everywhere.
    assert_eq!(open_objects(RUN_SCHEMA_JSON), [".$defs.window.properties.links", ".properties.versions"]);
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
fn a_line_in_the_shape_of_all_experiments_obeys_its_schema_and_itself() {
    let record = Record::from(&sample::run());
    assert_eq!(breaches(&serde_json::to_value(&record).expect("JSON")), [""; 0]);
    assert_eq!(record.faults(), [""; 0]);
    // The same figures as in the record of its own.
    let only = factors([("dut", "ironswan")]);
    let figure = record.figures_with(&only).next().expect("a figure");
    assert_eq!(figure.number("gbps", Which::Ratio), Some(0.6));
    assert_eq!(figure.number("machine_ns_per_byte", Which::Added), Some(1.0));
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
