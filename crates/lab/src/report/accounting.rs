//! The share of the processors that was busy, by the kernel's accounting beside a CPU soaker's: for
//! runs in which a soaker was at work while traffic was measured. Pure.

use super::warning::Warning;
use crate::measure::soaker::{Busy, Calibration};
use crate::record::{Better, Columns, Factors, Figure, Measure, Record, Table, View, Which, factors_text};

const TITLE: &str = "Busy processors, by accounting and by a soaker";

/// The measures by name, heading and meaning.
const MEASURES: [(&str, &str, &str); 3] = [
    (
        "busy_kernel",
        "busy",
        "of the processors that /proc/stat says was busy with something other than the soaker",
    ),
    (
        "busy_soaker",
        "soaker",
        "of the processors that the soaker did not get, of what it got without traffic",
    ),
    (
        "busy_apart",
        "explained",
        "by which the two may differ: few ticks in a short window, other programs, the soaker's own error",
    ),
];

/// Whether this is one of the measures that a run with a soaker has beside its own.
pub(crate) fn is_measure(name: &str) -> bool {
    MEASURES.iter().any(|m| m.0 == name)
}

/// Whether a figure has a row in a table: in that of the soaker only those beside which there was
/// one.
pub(super) fn has_place(table: &Table, figure: &Figure) -> bool {
    table.title != TITLE || figure.measures.contains_key(MEASURES[0].0)
}

/// Adds to a record whose samples have them what they mean and a table of them.
pub(crate) fn show(record: &mut Record) {
    let with: Vec<&Figure> =
        record.figures.iter().filter(|f| f.measures.contains_key(MEASURES[0].0)).collect();
    let mut rows: Vec<String> = Vec::new();
    for name in with.iter().flat_map(|f| f.factors.keys()) {
        if !rows.contains(name) {
            rows.push(name.clone());
        }
    }
    if with.is_empty() {
        return;
    }
    record.measures.extend(MEASURES.map(|(name, heading, what)| Measure {
        name: name.into(),
        heading: heading.into(),
        unit: "share".into(),
        what: what.into(),
        better: Better::Neither,
    }));
    record.views.push(View::Table(Table {
        title: TITLE.into(),
        only: Factors::new(),
        rows,
        columns: Columns::Measures(MEASURES.map(|(name, ..)| (name.into(), Which::Median)).to_vec()),
    }));
}

/// Warns of each cell where accounting and soaker differ by more than is explained.
pub(crate) fn doubts(record: &Record) -> Vec<Warning> {
    let of_figure = |figure: &Figure| {
        let [kernel, soaker, apart] = MEASURES.map(|(name, ..)| figure.number(name, Which::Median));
        let busy = Busy { accounting: kernel?, soaker: soaker?, apart: apart? };
        (busy.unexplained() > 0.0).then(|| doubt(&busy, factors_text(figure)))
    };
    record.figures.iter().filter_map(of_figure).collect()
}

/// The warning that accounting and soaker disagree in a cell.
pub(crate) fn doubt(busy: &Busy, cell: String) -> Warning {
    Warning::Accounting { cell, kernel: busy.accounting, soaker: busy.soaker, apart: busy.apart }
}

/// A warning when the calibration of the soaker was disturbed.
pub(crate) fn calibration_doubts(calibration: Calibration) -> Option<Warning> {
    calibration.disturbed().map(|what| Warning::Calibration { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, factors, figures};
    use crate::report::sample;

    fn record(busy: [Option<Busy>; 2]) -> Record {
        let mut record = sample::record();
        let sample = |(load, busy): (&str, Option<Busy>)| Sample {
            factors: factors([("dut", "plain"), ("load", load)]),
            repeat: 0,
            began: 0.0,
            measures: Busy::measures(busy.as_ref())
                .into_iter()
                .filter(|(_, v)| v.is_finite())
                .map(|(name, v)| (name.to_string(), v))
                .collect(),
            absent: [].into(),
            files: vec![],
        };
        record.samples = ["64", "1518"].into_iter().zip(busy).map(sample).collect();
        record.figures = figures(&record.samples, None);
        record
    }

    #[test]
    fn a_difference_that_nothing_explains_is_said_where_it_is() {
        let busy = |accounting, soaker| Some(Busy { accounting, soaker, apart: 0.1 });
        let near = record([busy(0.5, 0.55), busy(0.5, 0.41)]);
        assert_eq!(doubts(&near), []);
        let far = record([busy(0.5, 0.55), busy(0.3, 0.75)]);
        let kinds: Vec<&str> = doubts(&far).iter().map(Warning::kind).collect();
        assert_eq!(kinds, ["accounting"]);
        let text: Vec<String> = doubts(&far).iter().map(Warning::text).collect();
        assert!(text[0].contains("1518") && text[0].contains("30 % of the processors were busy"), "{text:?}");
        assert!(text[0].contains("75 % by the soaker; 10 points would be explained"), "{text:?}");
    }

    #[test]
    fn a_calibration_beside_other_work_is_a_doubt() {
        let kind = |had, worst| calibration_doubts(Calibration { rate: 1.0, had, worst }).map(|w| w.kind());
        assert_eq!(
            (kind(0.99, 0.98), kind(0.5, 0.98), kind(0.99, 0.5)),
            (None, Some("calibration"), Some("calibration"))
        );
    }

    #[test]
    fn both_are_shown_where_there_was_a_soaker_and_nothing_where_there_was_none() {
        let busy = Some(Busy { accounting: 0.5, soaker: 0.6, apart: 0.2 });
        let (mut with, mut without) = (record([busy, None]), record([None, None]));
        let (views, measures) = (without.views.len(), without.measures.len());
        show(&mut with);
        show(&mut without);
        assert_eq!((without.views.len(), without.measures.len()), (views, measures));
        assert_eq!((with.views.len(), with.measures.len()), (views + 1, measures + 3));
        let text = crate::report::record_text(&with, 100);
        assert!(text.contains("Busy processors, by accounting and by a soaker"), "{text}");
        let row = text.lines().find(|l| l.contains("plain") && l.contains("0.60")).expect("a row");
        assert!(row.contains("64") && row.contains("0.50") && row.contains("0.20"), "{row}");
        // A cell without a soaker has no row.
        let (_, table) = text.split_once(TITLE).expect("the table");
        assert!(!table.contains("1518"), "{table}");
    }
}
