//! Records against their JSON Schemas, by a small validator of the keywords that those schemas use.
//! A keyword, type or pattern that it does not know is reported as a breach rather than passed
//! over. Pure.

use serde_json::{Map, Value};

use crate::plan::answer::ANSWER_SCHEMA;
use crate::plan::model::MODEL_SCHEMA;
use crate::plan::verified::VERIFY_SCHEMA;
use crate::record::LAB_SCHEMA;

/// The JSON Schema of [`crate::record::Record`].
pub const LAB_SCHEMA_JSON: &str = include_str!("lab-1.schema.json");

/// The JSON Schemas of the planner's documents: a model, a verification, an answer.
pub const PLAN_SCHEMAS_JSON: [&str; 3] = [
    include_str!("../plan/model-4.schema.json"),
    include_str!("../plan/verify-4.schema.json"),
    include_str!("../plan/answer-3.schema.json"),
];

/// Every place where a record (`run.json`) or a document of the
/// planner breaks the schema that it names, as a path and the rule that is broken; empty for a
/// sound one.
pub fn breaches(record: &Value) -> Vec<String> {
    let schema = match record.get("schema").and_then(Value::as_str) {
        Some(LAB_SCHEMA) => LAB_SCHEMA_JSON,
        Some(MODEL_SCHEMA) => PLAN_SCHEMAS_JSON[0],
        Some(VERIFY_SCHEMA) => PLAN_SCHEMAS_JSON[1],
        Some(ANSWER_SCHEMA) => PLAN_SCHEMAS_JSON[2],
        Some(other) => return vec![format!("run.schema: {other} is not known")],
        None => return vec!["run.schema: absent".into()],
    };
    breaches_of(schema, record)
}

/// Every place where a document breaks the schema of that text.
pub(super) fn breaches_of(schema: &str, document: &Value) -> Vec<String> {
    match serde_json::from_str::<Value>(schema) {
        Ok(root) => {
            let mut check = Check { root: &root, found: Vec::new() };
            check.value(&root, document, "run");
            check.found
        }
        Err(e) => vec![format!("the schema is not JSON: {e}")],
    }
}

struct Check<'a> {
    root: &'a Value,
    found: Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        let Some(rules) = schema.as_object() else {
            self.found.push(format!("{path}: its schema is not an object"));
            return;
        };
        for (keyword, rule) in rules {
            if let Some(holds) = self.keyword(rules, keyword, rule, value, path) {
                if !holds {
                    self.found.push(format!("{path}: {keyword} {rule}"));
                }
            } else {
                self.found.push(format!("{path}: the validator does not know {keyword} {rule}"));
            }
        }
    }

    /// Whether a rule holds; `None` when it is not understood. Deeper breaches are taken down on
    /// the way.
    fn keyword(
        &mut self,
        rules: &Map<String, Value>,
        keyword: &str,
        rule: &Value,
        value: &Value,
        path: &str,
    ) -> Option<bool> {
        // A rule of one type says nothing of values of another, which `type` is there for.
        let number = |holds: &dyn Fn(f64) -> bool| value.as_f64().is_none_or(holds);
        let length = |holds: &dyn Fn(u64) -> bool| value.as_array().is_none_or(|l| holds(l.len() as u64));
        Some(match keyword {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let name = rule.as_str()?.strip_prefix("#/$defs/")?;
                let target = self.root.get("$defs")?.get(name)?;
                self.value(target, value, path);
                true
            }
            "type" => is_type(value, rule.as_str()?)?,
            "const" => value == rule,
            "enum" => rule.as_array()?.contains(value),
            "anyOf" => rule.as_array()?.iter().any(|choice| {
                let mut one = Check { root: self.root, found: Vec::new() };
                one.value(choice, value, path);
                one.found.is_empty()
            }),
            "required" => {
                let lacking: Vec<&str> = rule
                    .as_array()?
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|k| value.is_object() && value.get(k).is_none())
                    .collect();
                self.found.extend(lacking.iter().map(|k| format!("{path}: required {k:?}")));
                true
            }
            "properties" => {
                for (key, inner) in rule.as_object()? {
                    if let Some(v) = value.get(key) {
                        self.value(inner, v, &format!("{path}.{key}"));
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = |key: &str| rules.get("properties").is_some_and(|p| p.get(key).is_some());
                for (key, v) in value.as_object().into_iter().flatten().filter(|(key, _)| !known(key)) {
                    if rule == &Value::Bool(false) {
                        self.found.push(format!("{path}.{key}: additionalProperties false"));
                    } else {
                        self.value(rule, v, &format!("{path}.{key}"));
                    }
                }
                true
            }
            "items" => {
                for (i, v) in value.as_array().into_iter().flatten().enumerate() {
                    self.value(rule, v, &format!("{path}[{i}]"));
                }
                true
            }
            "minItems" => {
                let least = rule.as_u64()?;
                length(&|n| n >= least)
            }
            "maxItems" => {
                let most = rule.as_u64()?;
                length(&|n| n <= most)
            }
            "minLength" => {
                let least = rule.as_u64()?;
                value.as_str().is_none_or(|s| s.chars().count() as u64 >= least)
            }
            "minimum" => {
                let least = rule.as_f64()?;
                number(&|n| n >= least)
            }
            "maximum" => {
                let most = rule.as_f64()?;
                number(&|n| n <= most)
            }
            "exclusiveMinimum" => {
                let least = rule.as_f64()?;
                number(&|n| n > least)
            }
            "pattern" => {
                let pattern = rule.as_str()?;
                match value.as_str() {
                    Some(text) => matches(pattern, text)?,
                    None => true,
                }
            }
            _ => return None,
        })
    }
}

fn is_type(value: &Value, name: &str) -> Option<bool> {
    Some(match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => return None,
    })
}

/// The schemas' patterns, by hand.
fn matches(pattern: &str, text: &str) -> Option<bool> {
    let words = |separator: char, first: fn(char) -> bool, rest: fn(char) -> bool| {
        text.starts_with(first)
            && text.split(separator).all(|w| !w.is_empty())
            && text.chars().all(|c| c == separator || rest(c))
    };
    let lower = |c: char| c.is_ascii_lowercase();
    let lower_digit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    Some(match pattern {
        "^raw/[^/]+$" => {
            text.strip_prefix("raw/").is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
        }
        "^[a-z]+(-[a-z]+)*$" => words('-', lower, lower),
        "^[a-z0-9]+(-[a-z0-9]+)*$" => words('-', lower_digit, lower_digit),
        "^[a-z][a-z0-9]*(_[a-z0-9]+)*$" => words('_', lower, lower_digit),
        "^E[0-9]+$" => {
            text.strip_prefix('E').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
        }
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$" => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00T00:00:00Z"
        }
        _ => return None,
    })
}
