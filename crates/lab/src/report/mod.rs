//! Reports: the record of a run (`run.json` and raw files in one folder), and what people see of it. A report is made from
//! the record alone, so a run can be shown again without measuring again.

mod folder;
pub mod history;
mod line;
mod progress;
mod run;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod schema_test;
mod text;
mod warning;

pub use folder::RunFolder;
pub use line::{demo_text, line_text};
pub use progress::Progress;
pub use run::{
    Cell, CellKey, HistoryNote, LineSettings, Program, RUN_SCHEMA_JSON, Results, Row, Run, SCHEMA, Trial,
};
pub(crate) use text::{terminal_width, wrap};
pub use warning::{Warning, WarningRecord};
