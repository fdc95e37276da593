//! Two runs of one experiment side by side. Figures of different runs are compared nowhere else,
//! and here only because it was asked for: what differs between the two machines, versions and
//! settings is said first. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::number::{extremes, number};
use super::text::{Table, wrap};
use crate::error::LabError;
use crate::machine::Fingerprint;
use crate::record::{Better, Record, factors_text};
use crate::stats::Summary;

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// `ironswan.compare-runs/1`.
    pub schema: String,
    /// The experiment of both.
    pub experiment: String,
    /// When each was begun, UTC, RFC 3339.
    pub started: [String; 2],
    /// Differences between both runs, besides the figures.
    pub differences: Vec<Difference>,
    /// The figures that both have.
    pub rows: Vec<Pair>,
    /// Figures that only the first run has.
    pub only_first: Vec<String>,
    /// Figures that only the second run has.
    pub only_second: Vec<String>,
    /// How many doubts each run has about itself.
    pub warnings: [usize; 2],
}

/// Something besides the figures that is not the same in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the difference: `kernel`, `version of iperf3`.
    pub what: String,
    /// In the first run.
    pub first: String,
    /// In the second.
    pub second: String,
}

/// A figure that both have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Values of the factors, as text for people.
    pub of: String,
    /// The measure's name.
    pub measure: String,
    /// Unit of the value.
    pub unit: String,
    /// In the first run.
    pub first: Summary,
    /// In the second.
    pub second: Summary,
    /// The second median over the first; absent over 0.
    pub ratio: Option<f64>,
    /// Whether the difference exceeds the spread: no repeat of one run lies among those of the
    /// other. Absent where a run has too few repeats to tell.
    pub exceeds_spread: Option<bool>,
    /// Whether the second is better, where the measure has a better way and the difference exceeds
    /// the spread.
    pub better: Option<bool>,
}

/// Repeats from which on the extremes say something.
const FEWEST: usize = 2;

/// Lays the run `second` beside `first`.
pub fn compare(first: &Record, second: &Record) -> Result<Comparison, LabError> {
    if first.experiment != second.experiment {
        return Err(LabError::Usage(format!(
            "the first run is of experiment `{}`, the second of `{}`: only runs of the same experiment can be compared",
            first.experiment, second.experiment
        )));
    }
    let rows: Vec<Pair> = first.figures.iter().flat_map(|a| pairs(first, second, a)).collect();
    let only = |one: &Record, other: &Record| {
        let lacking = one.figures.iter().filter(|f| other.figure(&f.factors).is_none());
        lacking.map(factors_text).collect::<Vec<_>>()
    };
    Ok(Comparison {
        schema: "ironswan.compare-runs/1".into(),
        experiment: first.experiment.clone(),
        started: [first.started.clone(), second.started.clone()],
        differences: differences(first, second),
        rows,
        only_first: only(first, second),
        only_second: only(second, first),
        warnings: [first.warnings.len(), second.warnings.len()],
    })
}

/// The measures of a figure of the first run, each with that of the second.
fn pairs(first: &Record, second: &Record, figure: &crate::record::Figure) -> Vec<Pair> {
    let Some(other) = second.figure(&figure.factors) else { return Vec::new() };
    let pair = |(name, a): (&String, &crate::record::Quantity)| {
        let (a, b) = (a.summary, other.measures.get(name)?.summary);
        let measure = first.measure(name)?;
        // The same name with another unit is another quantity.
        if second.measure(name).is_none_or(|m| m.unit != measure.unit) {
            return None;
        }
        let enough = a.n.min(b.n) >= FEWEST;
        let exceeds_spread = enough.then_some(a.max < b.min || b.max < a.min);
        let more = b.median > a.median;
        Some(Pair {
            of: factors_text(figure),
            measure: name.clone(),
            unit: measure.unit.clone(),
            first: a,
            second: b,
            ratio: (a.median != 0.0).then(|| b.median / a.median),
            exceeds_spread,
            better: match measure.better {
                _ if exceeds_spread != Some(true) => None,
                Better::More => Some(more),
                Better::Less => Some(!more),
                Better::Neither => None,
            },
        })
    };
    figure.measures.iter().filter_map(pair).collect()
}

fn differences(a: &Record, b: &Record) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut say = |what: String, first: String, second: String| {
        if first != second {
            found.push(Difference { what, first, second });
        }
    };
    for ((what, first), (_, second)) in machine(&a.machine).into_iter().zip(machine(&b.machine)) {
        say(what.into(), first, second);
    }
    let program =
        |r: &Record| format!("{} {} ({} build)", r.program.name, r.program.version, r.program.build);
    say("program that measured".into(), program(a), program(b));
    maps("version of ", &a.versions, &b.versions, &mut say);
    maps("", &a.settings, &b.settings, &mut say);
    found
}

fn maps(
    prefix: &str,
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
    say: &mut impl FnMut(String, String, String),
) {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value =
        |map: &BTreeMap<String, String>, key: &String| map.get(key).cloned().unwrap_or_else(|| "-".into());
    for key in keys {
        say(format!("{prefix}{key}"), value(a, key), value(b, key));
    }
}

/// Properties in which two machines have to agree to be the same for a measurement. The clock and
/// the load of the moment vary on one machine.
fn machine(m: &Fingerprint) -> Vec<(&'static str, String)> {
    let known = |v: &Option<String>| v.clone().unwrap_or_else(|| "-".into());
    vec![
        ("processor", format!("{} x {}", m.cpus, m.cpu_model)),
        ("instruction sets", m.cpu_flags.join(" ")),
        ("virtual machine", if m.virtual_machine { "yes" } else { "no" }.into()),
        ("memory, KiB", m.memory_kib.map_or_else(|| "-".into(), |k| k.to_string())),
        ("kernel", m.kernel.clone()),
        ("distribution", known(&m.os)),
        ("clock source", known(&m.clocksource)),
        ("frequency governor", known(&m.governor)),
    ]
}

impl Comparison {
    /// As text, `width` columns wide.
    pub fn text(&self, width: usize) -> String {
        let mut out = wrap(
            &format!(
                "Two runs of {}: A, begun {}, and B, begun {}. They were measured at different times; their figures are laid side \
                 by side only because it was asked for, and a ratio of figures from different runs is not a result of the \
                 laboratory.",
                self.experiment, self.started[0], self.started[1]
            ),
            width,
            "",
            "",
        );
        out.push('\n');
        if self.differences.is_empty() {
            out.push_str("Machine, versions and settings are the same.\n");
        } else {
            out.push_str("Not the same in both:\n");
            for d in &self.differences {
                out.push_str(&wrap(
                    &format!("{}: A {}; B {}", d.what, d.first, d.second),
                    width,
                    "  - ",
                    "      ",
                ));
            }
        }
        for (name, count) in ["A", "B"].iter().zip(self.warnings) {
            if count > 0 {
                let s = if count == 1 { "" } else { "s" };
                out.push_str(&format!("{name} has {count} warning{s} about itself; see its report.\n"));
            }
        }
        let mut measures: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            if !measures.contains(&(&row.measure, &row.unit)) {
                measures.push((&row.measure, &row.unit));
            }
        }
        for (measure, unit) in measures {
            out.push_str(&format!("\n{measure} ({unit})\n{}", self.table(measure).render("  ")));
        }
        for (name, only) in [("A", &self.only_first), ("B", &self.only_second)] {
            if !only.is_empty() {
                out.push('\n');
                out.push_str(&wrap(&format!("Only in {name}: {}", only.join("; ")), width, "", "  "));
            }
        }
        if self.rows.is_empty() {
            out.push_str("\nThe two runs have no figure in common.\n");
        } else {
            out.push('\n');
            out.push_str(&wrap(
                "* the difference exceeds the spread: no repeat of one run lies among those of the other; ? too few repeats to \
                 tell. The medians have their extremes in brackets.",
                width,
                "",
                "",
            ));
        }
        out
    }

    fn table(&self, measure: &str) -> Table {
        let mut table = Table::default();
        table.row(["", "A", "B", "B/A", ""]);
        for row in self.rows.iter().filter(|r| r.measure == measure) {
            let shown = |s: &Summary| {
                let spread = extremes(s).map_or_else(String::new, |s| format!(" ({s})"));
                format!("{}{spread}", number(s.median))
            };
            let mark = match (row.exceeds_spread, row.better) {
                (None, _) => "?",
                (Some(false), _) => "",
                (Some(true), Some(true)) => "* better",
                (Some(true), Some(false)) => "* worse",
                (Some(true), None) => "*",
            };
            table.row([
                row.of.clone(),
                shown(&row.first),
                shown(&row.second),
                row.ratio.map_or_else(|| "-".into(), |r| format!("{r:.3}")),
                mark.to_string(),
            ]);
        }
        table
    }
}
