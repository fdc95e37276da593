//! Reports: the record of a run (`run.json` and raw files in one folder), and what people see of it. A report is made from
//! the record alone, so a run can be shown again without measuring again.

pub(crate) mod accounting;
mod compare;
mod convert;
pub mod flood;
#[cfg(test)]
mod flood_tests;
mod flood_text;
mod folder;
mod grid;
pub mod history;
mod line;
mod page;
mod progress;
mod publish;
mod record_text;
mod run;
#[cfg(test)]
pub(crate) mod sample;
mod schema;
#[cfg(test)]
mod schema_test;
mod stored;
mod svg;
mod text;
mod warning;

pub use compare::{Comparison, compare};
pub use flood_text::flood_text;
pub(crate) use flood_text::percent;
pub use folder::RunFolder;
pub use line::{demo_text, line_text};
pub(crate) use page::factors_text;
pub use progress::Progress;
pub use publish::rendered;
pub(crate) use publish::{publish, publish_with, republish};
pub use record_text::{number, record_text};
pub use run::{
    Cell, CellKey, HistoryNote, LineSettings, Program, RUN_SCHEMA_JSON, Results, Row, Run, SCHEMA, Trial,
};
pub use schema::{LAB_SCHEMA_JSON, PLAN_SCHEMAS_JSON, breaches};
pub use stored::Stored;
pub(crate) use stored::pretty;
pub(crate) use text::{Table, terminal_width, wrap};
pub(crate) use warning::NOISE;
pub use warning::{Warning, WarningRecord};
