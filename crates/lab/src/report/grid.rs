//! The tables of a record as cells, from which text and page are made. Pure.

use super::number::{extremes, number};
use super::{accounting, confirmed};
use crate::record::{Columns, Factors, Figure, Record, Table, Which, hidden_factors};

/// A table: its heading, its rows, and how many columns at the left name the row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) names: usize,
}

/// Text of a cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    /// The extremes of the repeats, where the cell is a median of several.
    pub(super) spread: Option<String>,
}

impl Cell {
    fn name(text: &str) -> Self {
        Self { text: text.into(), spread: None }
    }

    fn of(record: &Record, figure: Option<&Figure>, measure: &str, which: Which) -> Self {
        let value = figure.and_then(|f| f.number(measure, which));
        let summary = figure.and_then(|f| f.measures.get(measure)).map(|q| &q.summary);
        // A reason stands in the place of what is not compared.
        let withheld = figure.and_then(|f| f.withheld.as_deref()).filter(|_| which != Which::Median);
        let absent = || figure.and_then(|f| f.absent(record, measure, which)).map(|why| why.to_string());
        let none =
            || withheld.map(|reason| format!("withheld: {reason}")).or_else(absent).unwrap_or("-".into());
        Self {
            text: value.map_or_else(none, number),
            spread: summary.filter(|_| which == Which::Median).and_then(extremes),
        }
    }
}

impl Grid {
    /// Of a table of the record. Where its rows and columns would hide that figures differ by
    /// another factor, that factor becomes a column of names too.
    pub(super) fn of(record: &Record, table: &Table) -> Self {
        let has_place = |f: &&Figure| accounting::has_place(table, f) && confirmed::has_place(table, f);
        let figures: Vec<&Figure> = record.figures_with(&table.only).filter(has_place).collect();
        let across = match &table.columns {
            Columns::Factor { factor, .. } => Some(factor.as_str()),
            Columns::Measures(_) => None,
        };
        let known: Vec<&str> = table.rows.iter().map(String::as_str).chain(across).collect();
        let mut names = table.rows.clone();
        names.extend(hidden_factors(&figures, &known));
        let mut keys: Vec<(Vec<&str>, Vec<&Figure>)> = Vec::new();
        for figure in figures {
            let key: Vec<&str> =
                names.iter().map(|f| figure.factors.get(f).map_or("-", String::as_str)).collect();
            match keys.iter_mut().find(|(k, _)| *k == key) {
                Some((_, own)) => own.push(figure),
                None => keys.push((key, vec![figure])),
            }
        }
        let mut grid = Self { heading: names.clone(), rows: Vec::new(), names: names.len() };
        match &table.columns {
            Columns::Factor { factor, measure, which } => {
                let values = record.values(factor, &table.only);
                grid.heading.extend(values.iter().map(ToString::to_string));
                for (key, own) in &keys {
                    let at = |value: &&str| {
                        own.iter().copied().find(|f| f.factors.get(factor).is_some_and(|v| v == value))
                    };
                    let cells = values.iter().map(|v| Cell::of(record, at(v), measure, *which));
                    grid.rows.push(key.iter().map(|k| Cell::name(k)).chain(cells).collect());
                }
            }
            Columns::Measures(measures) => {
                grid.heading.extend(measures.iter().map(|(name, which)| heading(record, name, *which)));
                for (key, own) in &keys {
                    let has =
                        |f: &Figure, name: &str| f.measures.contains_key(name) || f.absent.contains_key(name);
                    let with = |name: &str| own.iter().copied().find(|f| has(f, name));
                    let cells =
                        measures.iter().map(|(name, which)| Cell::of(record, with(name), name, *which));
                    grid.rows.push(key.iter().map(|k| Cell::name(k)).chain(cells).collect());
                }
            }
        }
        grid
    }

    /// Of the derived numbers of these names.
    pub(super) fn derived(record: &Record, names: &[String]) -> Self {
        let own: Vec<_> = record.derived.iter().filter(|d| names.contains(&d.name)).collect();
        let mut keys: Vec<&Factors> = Vec::new();
        let mut columns: Vec<&str> = Vec::new();
        for d in &own {
            if !keys.contains(&&d.factors) {
                keys.push(&d.factors);
            }
            for name in d.factors.keys() {
                if !columns.contains(&name.as_str()) {
                    columns.push(name);
                }
            }
        }
        let unit = |name: &str| own.iter().find(|d| d.name == name).map_or("", |d| d.unit.as_str());
        let titles = names.iter().map(|n| match unit(n) {
            "" | "1" => n.replace('_', " "),
            unit => format!("{} ({unit})", n.replace('_', " ")),
        });
        let heading = columns.iter().map(ToString::to_string).chain(titles).collect();
        let row = |key: &&Factors| -> Vec<Cell> {
            let factors = columns.iter().map(|c| Cell::name(key.get(*c).map_or("-", String::as_str)));
            let values = names.iter().map(|n| {
                let value = own.iter().find(|d| d.name == *n && d.factors == **key).map(|d| d.value);
                Cell::name(&value.map_or_else(|| "-".into(), number))
            });
            factors.chain(values).collect()
        };
        Self { rows: keys.iter().map(row).collect(), heading, names: columns.len() }
    }
}

/// The heading of a column of one measure.
fn heading(record: &Record, measure: &str, which: Which) -> String {
    let own = record.measure(measure).map_or(measure, |m| m.heading.as_str());
    match which {
        Which::Median => own.to_string(),
        Which::Ratio => format!("{own} ratio"),
        Which::Added => format!("+{own}"),
    }
}

/// The title with what the cells are, where that is one thing.
pub(super) fn titled(record: &Record, table: &Table) -> String {
    match &table.columns {
        Columns::Factor { factor, measure, which } => {
            let unit = record.measure(measure).map_or("", |m| m.unit.as_str());
            let unit = which.unit(unit, record);
            let comma = if unit.is_empty() { "" } else { ", " };
            format!("{} ({unit}{comma}by {factor})", table.title)
        }
        Columns::Measures(_) => table.title.clone(),
    }
}

impl Which {
    /// The unit of this number of a quantity whose unit is `unit`; nothing for a number of things.
    pub(super) fn unit(self, unit: &str, record: &Record) -> String {
        let base = record.baseline.as_ref().map_or("the baseline", |b| b.value.as_str());
        let unit = if unit == "1" { "" } else { unit };
        match self {
            Self::Median => unit.into(),
            Self::Ratio => format!("over that of {base}"),
            Self::Added => format!("{unit} more than {base}").trim_start().into(),
        }
    }
}
