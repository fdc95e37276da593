//! Prints what was asked for, and the commands that show runs made earlier.

use std::path::Path;

use crate::error::LabError;
use crate::report::{self, Stored};
use crate::schema;

/// Form in which a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The report, for a terminal.
    Text,
    /// The record.
    Json,
    /// Every figure.
    Csv,
    /// The report, for documents.
    Markdown,
    /// Plots and page are written into the folder again; the page's path is shown.
    Page,
}

/// `lab report` as a command: a run made earlier, from its folder alone.
pub fn report_command(folder: &Path, form: Form) -> i32 {
    let text = Stored::read(folder).and_then(|stored| {
        if let [first, more @ ..] = stored.missing_files().as_slice() {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            eprintln!(
                "ironswan lab report: note: {first}{more} named by the record is not in the folder: the report is whole, what \
                 was counted on the way is not"
            );
        }
        match form {
            Form::Text => Ok(stored.text(report::terminal_width())),
            Form::Json => stored.json(),
            Form::Csv => Ok(stored.csv()),
            Form::Markdown => Ok(stored.markdown()),
            Form::Page => report::republish(&stored).map(|page| format!("{}\n", page.display())),
        }
    });
    say("lab report", text)
}

/// `lab compare-runs` as a command: two runs of one experiment side by side.
pub fn compare_runs_command(first: &Path, second: &Path, json: bool) -> i32 {
    let both = || {
        let (first, second) = (Stored::read(first)?, Stored::read(second)?);
        let comparison = report::compare(first.record(), second.record())?;
        if json { report::pretty(&comparison) } else { Ok(comparison.text(report::terminal_width())) }
    };
    say("lab compare-runs", both())
}

/// `lab schema` as a command: the JSON Schema of that name, or without one the names.
pub fn schema_command(name: Option<&str>) -> i32 {
    let text = match name.map(|name| (name, schema::by_name(name))) {
        None => Ok(schema::NAMES.iter().map(|(name, of)| format!("{name}  {of}\n")).collect()),
        Some((_, Some(schema))) => report::pretty(&schema),
        Some((name, None)) => {
            let known = schema::NAMES.map(|(name, _)| name).join(", ");
            Err(LabError::Usage(format!("there is no schema `{name}`; there are {known}")))
        }
    };
    say("lab schema", text)
}

/// Prints a text on standard output or an error on standard error; the exit status.
pub(super) fn say(command: &str, text: Result<String, LabError>) -> i32 {
    match text {
        Ok(text) => {
            // A reader that closed the pipe has seen enough.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            0
        }
        Err(e) => {
            eprintln!("ironswan {command}: {e}");
            e.exit_code()
        }
    }
}
