//! Checks documents against JSON Schemas: a small validator of the keywords that derived schemas
//! use. A keyword, type or pattern that it does not know is reported as a breach rather than passed
//! over. Pure.

use serde_json::{Map, Value};

use super::{NAME, NUMBER, RAW, TIME, WORDS};

/// Every place where a document breaks a schema, as a path and the rule that is broken; empty for a
/// sound one.
pub(super) fn breaches_of(root: &Value, document: &Value) -> Vec<String> {
    let mut check = Check { root, found: Vec::new() };
    check.value(root, document, "run");
    check.found
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
            // `format` names the Rust type of a number, whose range stands beside it.
            "$schema" | "$id" | "$defs" | "title" | "description" | "format" => true,
            "$ref" => {
                let name = rule.as_str()?.strip_prefix("#/$defs/")?;
                let target = self.root.get("$defs")?.get(name)?;
                self.value(target, value, path);
                true
            }
            "type" => match rule.as_array() {
                Some(names) => {
                    let of: Option<Vec<bool>> = names.iter().map(|n| is_type(value, n.as_str()?)).collect();
                    of?.contains(&true)
                }
                None => is_type(value, rule.as_str()?)?,
            },
            "const" => value == rule,
            "enum" => rule.as_array()?.contains(value),
            "anyOf" => self.choices(rule, value, path)? > 0,
            "oneOf" => self.choices(rule, value, path)? == 1,
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
            "prefixItems" => {
                let own = rule.as_array()?.iter().zip(value.as_array().into_iter().flatten());
                own.enumerate().for_each(|(i, (rule, v))| self.value(rule, v, &format!("{path}[{i}]")));
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

impl Check<'_> {
    /// How many of several schemas the value obeys.
    fn choices(&self, rule: &Value, value: &Value, path: &str) -> Option<usize> {
        let obeys = |choice: &&Value| {
            let mut one = Check { root: self.root, found: Vec::new() };
            one.value(choice, value, path);
            one.found.is_empty()
        };
        Some(rule.as_array()?.iter().filter(obeys).count())
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
        RAW => text.strip_prefix("raw/").is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        WORDS => words('-', lower_digit, lower_digit),
        NAME => words('_', lower, lower_digit),
        NUMBER => {
            text.strip_prefix('E').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
        }
        TIME => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00T00:00:00Z"
        }
        _ => return None,
    })
}
