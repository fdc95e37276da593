//! Prints what was asked for, and the commands that show runs made earlier.

use std::path::Path;

use crate::error::LabError;
use crate::report::{self, Stored};
use crate::schema;

/// `lab report` as a command: the report of a run made earlier, from its folder alone; with `json`
/// its record; with `html` its plots and page are written again.
pub fn report_command(folder: &Path, json: bool, html: bool) -> i32 {
    let text = Stored::read(folder).and_then(|stored| {
        if let [first, more @ ..] = stored.missing_files().as_slice() {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            eprintln!(
                "ironswan lab report: note: {first}{more} named by the record is not in the folder: the report is whole, what \
                 was counted on the way is not"
            );
        }
        if html {
            return report::republish(&stored).map(|page| format!("{}\n", page.display()));
        }
        if json { stored.json() } else { Ok(stored.text(report::terminal_width())) }
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
