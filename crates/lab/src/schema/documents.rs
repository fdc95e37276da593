//! The documents that have a schema, by its name.

use serde_json::Value;

use crate::plan::document::{self, ANSWER_SCHEMA};
use crate::plan::model::{MODEL_SCHEMA, Model};
use crate::plan::verified::{VERIFY_SCHEMA, Verification};
use crate::record::{LAB_SCHEMA, Record};

/// The schemas, with what each is of.
pub const NAMES: [(&str, &str); 4] = [
    (LAB_SCHEMA, "run.json of every experiment"),
    (MODEL_SCHEMA, "the planner's model"),
    (VERIFY_SCHEMA, "predictions of the model against measurements"),
    (ANSWER_SCHEMA, "an answer of the planner"),
];

/// The JSON Schema of that name.
pub fn by_name(name: &str) -> Option<Value> {
    Some(match name {
        LAB_SCHEMA => super::of::<Record>(),
        MODEL_SCHEMA => super::of::<Model>(),
        VERIFY_SCHEMA => super::of::<Verification>(),
        ANSWER_SCHEMA => super::of::<document::Document>(),
        _ => return None,
    })
}

/// Every place where a document breaks the schema that it names, as a path and the rule that is
/// broken; empty for a sound one.
pub fn breaches(document: &Value) -> Vec<String> {
    let Some(name) = document.get("schema").and_then(Value::as_str) else {
        return vec!["run.schema: absent".into()];
    };
    match by_name(name) {
        Some(schema) => super::check::breaches_of(&schema, document),
        None => vec![format!("run.schema: {name} is not known")],
    }
}
