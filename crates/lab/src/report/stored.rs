//! A run read back from its folder: to be shown again, drawn again, or laid beside another.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::{record_text, sheet};
use crate::error::LabError;
use crate::record::{LAB_SCHEMA, Record};
use crate::schema;
use crate::text_file;

/// Schemas of older programs: `line` and `flood` had formats of their own.
const OLDER: [&str; 2] = ["ironswan.run/1", "ironswan.flood/1"];

/// No record has more bytes.
const MOST: u64 = 256 << 20;

/// A run in its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    folder: PathBuf,
    record: Record,
}

impl Stored {
    /// Reads the run in a folder. What is wrong with it is said: no folder, no record, a damaged
    /// one, one of another program or of a later version of this one.
    pub fn read(folder: &Path) -> Result<Self, LabError> {
        let path = folder.join("run.json");
        let name = path.display();
        let text = text_file::read(&path, MOST).map_err(|e| absent(folder, &path, &e))?;
        let json: Value = serde_json::from_str(&text).map_err(|e| {
            LabError::Usage(format!(
                "{name} is damaged: {e}; it was cut short or edited, and the run must be made again"
            ))
        })?;
        let found = json.get("schema").and_then(Value::as_str).unwrap_or_default().to_string();
        if found != LAB_SCHEMA {
            return Err(LabError::Usage(unknown(&path, &found, &json)));
        }
        let broken = schema::breaches_of::<Record>(&json);
        if let Some(first) = broken.first() {
            let more =
                if broken.len() > 1 { format!(" (and {} more)", broken.len() - 1) } else { String::new() };
            return Err(LabError::Usage(format!(
                "{name} is damaged: it breaks its schema {found} at {first}{more}; it was edited, and the run must be made again"
            )));
        }
        let record: Record =
            serde_json::from_value(json).map_err(|e| LabError::Usage(format!("{name} is damaged: {e}")))?;
        let faults = record.faults();
        if !faults.is_empty() {
            return Err(LabError::Usage(format!(
                "{name} contradicts itself: {}; it was edited, and the run must be made again",
                faults.join("; ")
            )));
        }
        Ok(Self { folder: folder.to_path_buf(), record })
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Raw files that the record names and the folder lacks.
    pub fn missing_files(&self) -> Vec<String> {
        let mut files: Vec<String> = self.record.samples.iter().flat_map(|s| s.files.clone()).collect();
        files.sort();
        files.dedup();
        files.retain(|file| !self.folder.join(file).exists());
        files
    }

    /// The report as text, `width` columns wide.
    pub fn text(&self, width: usize) -> String {
        format!("{}\nRun folder: {}\n", record_text(&self.record, width), self.folder.display())
    }

    /// Every figure as CSV, a row each.
    pub fn csv(&self) -> String {
        sheet::csv(&self.record)
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        sheet::markdown(&self.record)
    }

    /// The record as it is stored, as JSON.
    pub fn json(&self) -> Result<String, LabError> {
        pretty(&self.record)
    }

    /// The record of the run.
    pub fn record(&self) -> &Record {
        &self.record
    }
}

/// A document as JSON for standard output.
pub(crate) fn pretty(document: &impl Serialize) -> Result<String, LabError> {
    serde_json::to_string_pretty(document)
        .map(|text| text + "\n")
        .map_err(|e| LabError::Measurement(format!("the run cannot be written as JSON: {e}")))
}

/// Why there is no record to read.
fn absent(folder: &Path, path: &Path, e: &std::io::Error) -> LabError {
    let name = folder.display();
    if !folder.exists() {
        LabError::Usage(format!(
            "{name} does not exist; name the folder of a run, as it was printed at its end"
        ))
    } else if !folder.is_dir() {
        LabError::Usage(format!("{name} is not a folder; name the folder of a run, not a file in it"))
    } else if !path.exists() && folder.join("raw").is_dir() {
        LabError::Usage(format!(
            "{name} has no run.json: the run is still going on, or ended before it was whole; make it again"
        ))
    } else if !path.exists() {
        LabError::Usage(format!("{name} has no run.json: it is not the folder of a run"))
    } else {
        LabError::Usage(format!("{} cannot be read: {e}", path.display()))
    }
}

/// Characters of a schema or version that are shown.
const SHOWN: usize = 100;

/// Why a schema is not read: an older program's, a later one's, or none of the laboratory.
fn unknown(path: &Path, schema: &str, json: &Value) -> String {
    // Whoever wrote the record may have written anything.
    let shown = |text: &str| text.chars().take(SHOWN).collect::<String>().escape_debug().to_string();
    let (name, schema) = (path.display(), &shown(schema));
    let made = json.pointer("/program/version").and_then(Value::as_str).map(shown);
    let version =
        |s: &str| s.rsplit_once('/').and_then(|(what, n)| Some((what.to_string(), n.parse::<u32>().ok()?)));
    let newer = version(schema)
        .zip(version(LAB_SCHEMA))
        .is_some_and(|((what, n), (ours, last))| what == ours && n > last);
    if newer {
        let made = made.unwrap_or_else(|| "a later version".into());
        format!(
            "{name} has schema {schema}, which is newer than this program, which reads {LAB_SCHEMA}; read it with ironswan {made}, \
             which made it"
        )
    } else if OLDER.contains(&schema.as_str()) {
        format!(
            "{name} has schema {schema}, which was written by an older program; this program reads {LAB_SCHEMA}: make the run again"
        )
    } else if schema.is_empty() {
        format!("{name} names no schema: it is not the record of a run (this program reads {LAB_SCHEMA})")
    } else {
        format!("{name} has schema {schema}, which this program does not know; it reads {LAB_SCHEMA}")
    }
}
