//! Reports: the record of a run (`run.json` and raw files in one folder), and what people see of
//! it. A report is made from the record alone, so a run can be shown again without measuring again.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `folder` | the folder of a run |
//! | `stored` | a run that is read back from its folder |
//! | `record_text` | a run as text |
//! | `doubts_text` | the doubts of a run as text |
//! | `number` | numbers as people read them |
//! | `grid` | tables of a record as cells |
//! | `text` | tables and numbers for terminals |
//! | `answer` | the answer of an experiment in a sentence |
//! | `one_gateway` | answers of the experiments that look at one gateway by itself |
//! | `sheet` | a run for spreadsheets and documents: CSV and Markdown |
//! | `page` | a record as one page of HTML |
//! | `plot/` | plots |
//! | `publish` | the plots, the page and the record in a run's folder |
//! | `compare` | two runs side by side |
//! | `history` | published figures that experiments repeat |
//! | `confirmed` | throughputs as later trials left them |
//! | `accounting` | share of the CPU that was busy, by kernel and soaker |
//! | `warning` | doubts about a run |
//! | `progress` | a progress bar |
//! | `sample` | a small run with round numbers, for tests |

pub(crate) mod accounting;
mod answer;
mod compare;
pub(crate) mod confirmed;
mod doubts_text;
mod folder;
mod grid;
pub mod history;
mod number;
mod one_gateway;
mod page;
mod plot;
mod progress;
mod publish;
mod record_text;
#[cfg(test)]
pub(crate) mod sample;
mod sheet;
mod stored;
mod text;
mod warning;

pub use compare::{Comparison, compare};
pub use folder::RunFolder;
pub use number::number;
pub(crate) use number::percent;
pub use progress::Progress;
pub use publish::rendered;
pub(crate) use publish::{publish, publish_with, republish};
pub(crate) use record_text::demo_text;
pub use record_text::record_text;
pub use stored::Stored;
pub(crate) use stored::pretty;
pub(crate) use text::{Table, terminal_width, wrap};
pub(crate) use warning::NOISE;
pub use warning::Warning;
