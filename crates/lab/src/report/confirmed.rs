//! Throughputs as later trials left them: for runs with a search, what it had found, and how many
//! later trials confirmed the rate that is shown. Pure.

use crate::record::{Better, Columns, Factors, Figure, Measure, Record, Table, View, Which};

const TITLE: &str =
    "Throughputs after later trials: what the search had found, and trials that carried what is left";

/// Names of the measures: what the search found, trials that carried what is left, and trials that
/// said anything about it.
pub(crate) const NAMES: [&str; 3] = ["found_kpps", "confirmed", "later"];

/// The measures by heading, unit and meaning.
const MEASURES: [(&str, &str, &str); 3] = [
    ("found kpps", "1000 packets/s", "what the search found, before later trials"),
    ("confirmed", "1", "later trials that carried the throughput"),
    ("of later", "1", "later trials that said anything about the throughput"),
];

/// Whether this is one of the measures that a run with a search has beside its own.
pub(crate) fn is_measure(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Whether a figure has a row in a table: in that of throughputs only those that were searched.
pub(super) fn has_place(table: &Table, figure: &Figure) -> bool {
    table.title != TITLE || figure.measures.contains_key(NAMES[0])
}

/// Adds to a record whose samples have them what they mean and a table of them.
pub(crate) fn show(record: &mut Record) {
    let with = record.figures.iter().filter(|f| f.measures.contains_key(NAMES[0]));
    let mut rows: Vec<String> = Vec::new();
    for name in with.flat_map(|f| f.factors.keys()) {
        if !rows.contains(name) {
            rows.push(name.clone());
        }
    }
    if rows.is_empty() {
        return;
    }
    record.measures.extend(NAMES.iter().zip(MEASURES).map(|(name, (heading, unit, what))| Measure {
        name: (*name).into(),
        heading: heading.into(),
        unit: unit.into(),
        what: what.into(),
        better: Better::Neither,
    }));
    let shown = ["found_kpps", "kpps", "confirmed", "later"].map(|name| (name.to_string(), Which::Median));
    record.views.push(View::Table(Table {
        title: TITLE.into(),
        only: Factors::new(),
        rows,
        columns: Columns::Measures(shown.to_vec()),
    }));
}

/// How many later trials confirmed a throughput, for people; `None` where a run does not say it.
pub(super) fn text(figure: &Figure) -> Option<String> {
    let of = |name: &str| figure.number(name, Which::Median);
    Some(format!("{} of {} later trials carried", of(NAMES[1])?, of(NAMES[2])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, factors, figures};
    use crate::report::sample;

    #[test]
    fn searched_throughputs_have_a_table_and_a_run_without_any_has_none() {
        let mut record = sample::record();
        let (views, measures) = (record.views.len(), record.measures.len());
        show(&mut record);
        assert_eq!((record.views.len(), record.measures.len()), (views, measures));
        let sample = |size: &str, measures: &[(&str, f64)]| Sample {
            factors: factors([("dut", "plain"), ("size", size)]),
            repeat: 0,
            began: 0.0,
            measures: measures.iter().map(|(name, value)| ((*name).to_string(), *value)).collect(),
            absent: [].into(),
            files: vec![],
        };
        record.measures.push(Measure {
            name: "kpps".into(),
            heading: "kpps".into(),
            unit: "1000 packets/s".into(),
            what: "packets".into(),
            better: Better::More,
        });
        record.samples = vec![
            sample("64", &[("kpps", 75.0), ("found_kpps", 150.0), ("confirmed", 3.0), ("later", 4.0)]),
            sample("999", &[("kpps", 80.0)]),
        ];
        record.figures = figures(&record.samples, None);
        show(&mut record);
        assert_eq!((record.views.len(), record.measures.len()), (views + 1, measures + 1 + NAMES.len()));
        let text = crate::report::record_text(&record, 100);
        let (_, table) = text.split_once("Throughputs after later trials").expect("the table");
        let row = table.lines().find(|l| l.contains("plain")).expect("a row");
        assert!(["64", "150", "75.0", "3", "4"].iter().all(|cell| row.contains(cell)), "{row}");
        assert!(!table.contains("999"), "{table}");
        assert_eq!(super::text(&record.figures[0]).as_deref(), Some("3 of 4 later trials carried"));
        assert_eq!(super::text(&record.figures[1]), None);
    }
}
