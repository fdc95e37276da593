//! Derives JSON Schemas of what the laboratory writes from the types, and checks documents by
//! them.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `check` | checks a document against a schema |
//! | `documents` | the schemas by name |
//! | `tests` | test: documents against their schemas |

mod check;
mod documents;
#[cfg(test)]
mod tests;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

pub use documents::{NAMES, breaches, by_name};

/// Words with hyphens: names of experiments, plots and doubts.
pub(crate) const WORDS: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";
/// Words with `_`: names of measures.
pub(crate) const NAME: &str = "^[a-z][a-z0-9]*(_[a-z0-9]+)*$";
/// Number of an experiment.
pub(crate) const NUMBER: &str = "^E[0-9]+$";
/// A raw file of a run.
pub(crate) const RAW: &str = "^raw/[^/]+$";
/// A moment, UTC, RFC 3339.
pub(crate) const TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$";

/// The schema of a document of that type, as it is written.
pub(crate) fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// Every place where a document breaks the schema of that type, as a path and the rule that is
/// broken; empty for a sound one.
pub(crate) fn breaches_of<T: JsonSchema>(document: &Value) -> Vec<String> {
    check::breaches_of(&of::<T>(), document)
}

/// Adds to the schema of a structure that none of its numbers is less than nothing.
pub(crate) fn never_negative(schema: &mut Schema) {
    fn bound(schema: &mut Value) {
        let is_number = match schema.get("type") {
            Some(Value::String(name)) => name == "number",
            Some(Value::Array(names)) => names.iter().any(|name| name == "number"),
            _ => false,
        };
        if let (true, Some(rules)) = (is_number, schema.as_object_mut()) {
            rules.entry("minimum").or_insert(0.into());
        }
        if let Some(items) = schema.get_mut("items") {
            bound(items);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(bound);
    }
}
