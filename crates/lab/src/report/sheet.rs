//! A run for other programs: every figure as CSV (RFC 4180), for spreadsheets; the report as
//! Markdown, for documents and tickets. From the record alone. Pure.

use std::fmt::Write;

use super::answer::answer;
use super::grid::{Grid, titled};
use crate::process::quoted;
use crate::record::{Record, View};

/// Columns of the CSV behind the factors.
const COLUMNS: [&str; 11] = [
    "measure", "unit", "repeats", "median", "mad", "iqr", "smallest", "largest", "ratio", "added", "withheld",
];

/// Every figure, a row for each measure of it: its factors, and what is known of its spread. What
/// does not apply is empty; a measure that is absent for a reason has that in the place of its
/// median.
pub(super) fn csv(record: &Record) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in record.figures.iter().flat_map(|f| f.factors.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut out = row(names.iter().chain(&COLUMNS).map(ToString::to_string));
    for figure in &record.figures {
        let factors = names.iter().map(|name| figure.factors.get(*name).cloned().unwrap_or_default());
        let factors: Vec<String> = factors.collect();
        for (name, quantity) in &figure.measures {
            let unit = record.measure(name).map_or("", |m| m.unit.as_str());
            let s = &quantity.summary;
            let numbers = [s.median, s.mad, s.iqr, s.min, s.max].map(|v| v.to_string());
            let more =
                [quantity.ratio, quantity.added].map(|v| v.map_or_else(String::new, |v| v.to_string()));
            let head = [name.clone(), unit.into(), s.n.to_string()];
            let why = figure.withheld.clone().unwrap_or_default();
            out.push_str(&row(factors.iter().cloned().chain(head).chain(numbers).chain(more).chain([why])));
        }
        for (name, why) in &figure.absent {
            let unit = record.measure(name).map_or("", |m| m.unit.as_str());
            let cells = [name.clone(), unit.into(), "0".into(), why.to_string()];
            let rest = std::iter::repeat_n(String::new(), COLUMNS.len() - cells.len());
            out.push_str(&row(factors.iter().cloned().chain(cells).chain(rest)));
        }
    }
    out
}

/// A row of a CSV: a cell with a comma, a quote or a line break is quoted.
fn row(cells: impl Iterator<Item = String>) -> String {
    let quote = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quote).collect::<Vec<_>>().join(",") + "\r\n"
}

/// The report: question, answer, doubts, tables, the published figures beside ours, where and how
/// it was measured.
pub(super) fn markdown(record: &Record) -> String {
    let mut out = format!("# {} {}: {}\n\n", record.number, record.experiment, text(&record.question));
    if let Some(answer) = answer(record) {
        out.push_str(&format!("**{}**\n\n", text(&answer)));
    }
    for doubt in &record.warnings {
        // Writing to a string does not fail.
        let _ = writeln!(out, "- {}: {}", doubt.kind, text(&doubt.text));
    }
    for view in &record.views {
        match view {
            View::Table(table) => out.push_str(&table_of(&titled(record, table), &Grid::of(record, table))),
            View::Derived { title, names } => out.push_str(&table_of(title, &Grid::derived(record, names))),
            View::Plot(_) => {}
        }
    }
    for h in &record.history {
        let _ =
            write!(out, "\n## {}\n\n- then: {}\n- now: {}\n", text(&h.source), text(&h.then), text(&h.now));
        if !h.caveat.is_empty() {
            let _ = writeln!(out, "- but: {}", text(&h.caveat));
        }
    }
    let settings: Vec<String> = record.settings.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    let _ = write!(
        out,
        "\n## How it was measured\n\n{}; {}. {}\n\n    {}\n",
        text(&record.machine.one_line()),
        record.started,
        text(&settings.join("; ")),
        quoted(&record.command_line)
    );
    out
}

/// A table: names to the left, numbers to the right.
fn table_of(title: &str, grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("\n## {}\n\n", text(title));
    out.push_str(&line(grid.heading.iter().map(|cell| text(cell)).collect()));
    let rule = |nth: usize| if nth < grid.names { "---" } else { "---:" };
    out.push_str(&line((0..grid.heading.len()).map(|nth| rule(nth).into()).collect()));
    for row in &grid.rows {
        out.push_str(&line(row.iter().map(|cell| text(&cell.text)).collect()));
    }
    out
}

/// Text that is shown as it stands: what Markdown or HTML would take for markup is escaped, and a
/// line break would end a row.
fn text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::record::{Absent, Columns, Factors, Plot, Table, Which, figures};

    #[test]
    fn every_figure_is_a_row_and_text_stays_in_its_cell() {
        let mut record = sample::record();
        record.figures[0].factors.insert("load".into(), "a, \"b\"\nc".into());
        let csv = csv(&record);
        let lines: Vec<&str> = csv.split("\r\n").collect();
        assert_eq!(
            lines[0],
            "dut,load,measure,unit,repeats,median,mad,iqr,smallest,largest,ratio,added,withheld"
        );
        let figures: usize = record.figures.iter().map(|f| f.measures.len()).sum();
        assert_eq!(lines.len(), 1 + figures + 1, "{csv}");
        assert!(lines[1].contains(",\"a, \"\"b\"\"\nc\",gbps,Gb/s,3,"), "{csv}");
        let tunnel = lines.iter().find(|l| l.starts_with("ironswan,") && l.contains("gbps")).expect("a row");
        assert!(tunnel.ends_with("gbps,Gb/s,3,6,1,1,5,7,0.6,-4,"), "{tunnel}");
    }

    #[test]
    fn a_cost_that_is_too_short_reads_so_and_its_plot_leaves_it_out() {
        let mut record = sample::record();
        for sample in record.samples.iter_mut().filter(|s| s.factors["dut"] == "plain") {
            sample.measures.remove("machine_ns_per_byte");
            sample.absent.insert("machine_ns_per_byte".into(), Absent::TooShort);
        }
        record.figures = figures(&record.samples, record.baseline.as_ref());
        let costs = [Which::Median, Which::Added].map(|which| ("machine_ns_per_byte".to_string(), which));
        record.views = vec![
            View::Table(Table {
                title: "Costs".into(),
                only: Factors::new(),
                rows: vec!["dut".into()],
                columns: Columns::Measures(costs.to_vec()),
            }),
            View::Plot(Plot {
                name: "costs".into(),
                title: "Costs".into(),
                only: Factors::new(),
                x: "dut".into(),
                x_label: "system".into(),
                y: "machine_ns_per_byte".into(),
                which: Which::Median,
                series: vec!["dut".into()],
                log_x: false,
                log_y: false,
            }),
        ];
        assert_eq!(record.faults(), [""; 0]);
        let csv = csv(&record);
        let plain =
            csv.lines().find(|l| l.starts_with("plain,") && l.contains("ns_per_byte")).expect("a row");
        assert!(plain.ends_with(",machine_ns_per_byte,ns/byte,0,too short,,,,,,,"), "{plain}");
        assert!(csv.contains(",machine_ns_per_byte,ns/byte,3,2,0,0,2,2,,"), "{csv}");
        let markdown = markdown(&record);
        assert!(markdown.contains("| plain | too short | too short |"), "{markdown}");
        // What it would be added to is not known either.
        assert!(markdown.contains("| ironswan | 2.00 | too short |"), "{markdown}");
        assert!(crate::report::record_text(&record, 100).contains("too short"));
        let drawn: Vec<String> =
            crate::report::rendered(&record).expect("drawn").into_iter().map(|(_, text)| text).collect();
        let svg = drawn.iter().find(|text| text.contains("<svg")).expect("a plot");
        assert!(svg.contains("ironswan") && !svg.contains("plain"), "{svg}");
        // The record reads back, and obeys its schema.
        let json = serde_json::to_value(&record).expect("JSON");
        assert_eq!(
            json.pointer("/samples/0/absent/machine_ns_per_byte"),
            Some(&serde_json::json!("too short"))
        );
        assert_eq!(crate::schema::breaches(&json), [""; 0]);
        assert_eq!(serde_json::from_value::<Record>(json).expect("a record"), record);
    }

    #[test]
    fn markdown_has_the_answer_first_and_no_markup_of_its_contents() {
        let mut record = sample::record();
        record.question = "<b>What</b> | does\n# it cost?".into();
        let markdown = markdown(&record);
        assert!(
            markdown.starts_with(
                "# E1 line: &lt;b>What&lt;/b> \\| does \\# it cost?\n\n**Through ironswan TCP has"
            )
        );
        assert!(markdown.contains("- shared-cores: "), "{markdown}");
    }
}
