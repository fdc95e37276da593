//! How figures are shown: tables and plots, as parts of a record. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Factors;
use crate::schema::{NAME, WORDS};

/// Which of a quantity's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The median.
    Median,
    /// The median over the baseline's.
    Ratio,
    /// The median less the baseline's.
    Added,
}

/// A table or a plot.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum View {
    /// Rows and columns of figures.
    Table(Table),
    /// Lines or bars.
    Plot(Plot),
    /// The derived numbers of this name, one row for each of their factors.
    Derived {
        /// Above the table.
        title: String,
        /// The names of the numbers, a column each.
        names: Vec<String>,
    },
}

/// A table: a row for each combination of the values of some factors.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Above it.
    #[schemars(length(min = 1))]
    pub title: String,
    /// Only figures with these factors.
    pub only: Factors,
    /// The factors that make rows.
    pub rows: Vec<String>,
    /// The columns.
    pub columns: Columns,
}

/// The columns of a table.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Columns {
    /// One for each value of a factor, with one measure in the cells.
    Factor {
        /// The factor.
        factor: String,
        /// The measure.
        measure: String,
        /// Which of its numbers.
        which: Which,
    },
    /// One for each of several measures.
    Measures(Vec<(String, Which)>),
}

/// A plot, in a file of its own.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The file's name without its ending, unique in the record: lower case, `-`.
    #[schemars(regex(pattern = WORDS))]
    pub name: String,
    /// Above it.
    #[schemars(length(min = 1))]
    pub title: String,
    /// Only figures with these factors.
    pub only: Factors,
    /// The factor along the x axis: numbers make lines, words make groups of bars.
    #[schemars(length(min = 1))]
    pub x: String,
    /// Title of the x axis, with the unit.
    #[schemars(length(min = 1))]
    pub x_label: String,
    /// The measure along the y axis.
    #[schemars(regex(pattern = NAME))]
    pub y: String,
    /// Which of its numbers.
    pub which: Which,
    /// The factors whose combinations make a line or a colour each.
    pub series: Vec<String>,
    /// The x axis has a logarithmic scale.
    pub log_x: bool,
    /// The y axis has a logarithmic scale.
    pub log_y: bool,
}
