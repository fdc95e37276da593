//! The record of an experiment: `run.json`, schema `ironswan.lab/1`, in one shape for all of them.
//!
//! ```text
//!   samples (factors -> measures, as counted)
//!     └──> figures (per factors: median, spread, against the baseline)
//!            └──> views (which figures make a table or a plot)
//! ```
//! A *factor* is what was chosen (the system, the suite, the size), a *measure* what was counted or
//! timed. Whatever a report shows follows from the samples by [`figures`], so anyone can recompute
//! it from the file, and two runs can be laid beside each other without knowing what was measured.
//! Pure.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `check` | rules of a record that a schema cannot express |
//! | `view` | tables and plots |
//! | `withheld` | why a figure is not compared with the baseline |

mod check;
mod view;
mod withheld;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Fingerprint;
use crate::schema::{NAME, NUMBER, RAW, TIME, WORDS};
use crate::stats::Summary;

pub(crate) use check::hidden_factors;
pub use view::{Columns, Plot, Table, View, Which};
pub use withheld::{TESTER_KPPS, TESTER_LIMITED};

/// The name and number of the schema.
pub const LAB_SCHEMA: &str = "ironswan.lab/1";

/// Values of the factors, by the name of the factor.
pub type Factors = BTreeMap<String, String>;

/// A run of an experiment.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`LAB_SCHEMA`].
    #[schemars(extend("const" = LAB_SCHEMA))]
    pub schema: String,
    /// The experiment's name, as on the command line: `driver`.
    #[schemars(regex(pattern = WORDS))]
    pub experiment: String,
    /// Number of the experiment in the laboratory: `E5`.
    #[schemars(regex(pattern = NUMBER))]
    pub number: String,
    /// The question that the experiment answers, in a sentence.
    #[schemars(length(min = 1))]
    pub question: String,
    /// The program that measured.
    pub program: Program,
    /// The command line.
    pub command_line: Vec<String>,
    /// When it began, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub started: String,
    /// How long it took, seconds.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Machine of the run.
    pub machine: Fingerprint,
    /// Versions of the systems under test and of the tools, by name.
    pub versions: BTreeMap<String, String>,
    /// Options of the run, by name.
    pub settings: BTreeMap<String, String>,
    /// The measures, with units and meanings.
    pub measures: Vec<Measure>,
    /// With what figures are compared.
    pub baseline: Option<Baseline>,
    /// Everything that was measured, in that order.
    pub samples: Vec<Sample>,
    /// Figures that follow from the samples ([`figures`]).
    pub figures: Vec<Figure>,
    /// Conclusions from several figures together: a slope, a ratio of two rows.
    pub derived: Vec<Derived>,
    /// The tables and plots.
    pub views: Vec<View>,
    /// The published measurement that it repeats.
    pub history: Vec<Historical>,
    /// Command lines that were run, in order; long lists are in `raw/`.
    pub commands: Vec<String>,
    /// Doubts.
    pub warnings: Vec<WarningRecord>,
}

/// The program that measured.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name of the program.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Version of the program.
    #[schemars(length(min = 1))]
    pub version: String,
    /// `release` or `debug`.
    #[schemars(extend("enum" = ["release", "debug"]))]
    pub build: String,
}

impl Program {
    /// This program.
    pub(crate) fn own() -> Self {
        Self {
            name: "ironswan".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            build: if cfg!(debug_assertions) { "debug".into() } else { "release".into() },
        }
    }
}

/// A doubt about the run: a name for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarningRecord {
    /// Name of the warning.
    #[schemars(regex(pattern = WORDS))]
    pub kind: String,
    /// The sentence for people.
    #[schemars(length(min = 1))]
    pub text: String,
}

/// A quantity.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name in samples and figures, lower case with `_`: `ns_per_op`.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// Heading of its column, short: `ns/op`.
    #[schemars(length(min = 1))]
    pub heading: String,
    /// Unit: `ns`, `Gb/s`, `packets/s`, `share`, `KiB`, `1` for a number of things.
    #[schemars(length(min = 1))]
    pub unit: String,
    /// Meaning in half a sentence.
    #[schemars(length(min = 1))]
    pub what: String,
    /// Which way is good.
    pub better: Better,
}

/// Which way a quantity is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The more the better.
    More,
    /// The less the better.
    Less,
    /// Neither.
    Neither,
}

/// Figures are compared with those whose factors are the same but for this one, which has this
/// value.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The factor: `dut`.
    #[schemars(length(min = 1))]
    pub factor: String,
    /// Value of the factor: `plain`.
    #[schemars(length(min = 1))]
    pub value: String,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Values of the factors.
    pub factors: Factors,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// When it began, seconds since the run began.
    #[schemars(range(min = 0))]
    pub began: f64,
    /// Values that were counted or timed, by the name of the measure. A value that could not be
    /// measured is absent.
    pub measures: BTreeMap<String, f64>,
    /// Measures that are absent for a reason that people have to know, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, Absent>,
    /// Raw files of the sample, relative to the run's folder.
    #[schemars(inner(regex(pattern = RAW)))]
    pub files: Vec<String>,
}

/// A reason why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum Absent {
    /// A cost that would rest on fewer than ten clock ticks of processor time.
    #[serde(rename = "too short")]
    TooShort,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("too short"),
        }
    }
}

/// All repeats of one measurement together.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Values of the factors.
    pub factors: Factors,
    /// Each measure.
    pub measures: BTreeMap<String, Quantity>,
    /// Why none of them is compared with the baseline's: `the tester alone carries 812.0 kpps`.
    /// Absent where they are, and where there is no baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub withheld: Option<String>,
    /// Measures that are absent from all repeats for a reason that people have to know, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, Absent>,
}

/// A measure over all repeats.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Median and spread.
    pub summary: Summary,
    /// The median over the baseline's.
    pub ratio: Option<f64>,
    /// The median less the baseline's.
    pub added: Option<f64>,
}

/// A number that follows from several figures.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// Name of the conclusion: `ns_per_byte`.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// To what it belongs.
    pub factors: Factors,
    /// Value of the conclusion.
    pub value: f64,
    /// Unit of the value.
    #[schemars(length(min = 1))]
    pub unit: String,
    /// How it follows: `least squares over the sizes`.
    #[schemars(length(min = 1))]
    pub how: String,
}

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Historical {
    /// Who, when, on what.
    #[schemars(length(min = 1))]
    pub source: String,
    /// The published finding, with its numbers.
    #[schemars(length(min = 1))]
    pub then: String,
    /// The answer of this run, with its numbers.
    pub now: String,
    /// Why the two cannot be compared without a thought.
    pub caveat: String,
}

/// The figures of `samples`: one for each combination of factors, in the order of first appearance;
/// every measure over all repeats, and against the figure that differs in the baseline's factor
/// only. Where the tester and not the system limited that figure ([`TESTER_LIMITED`]), there is a
/// reason in the place of the comparison.
pub fn figures(samples: &[Sample], baseline: Option<&Baseline>) -> Vec<Figure> {
    let mut order: Vec<&Factors> = Vec::new();
    let mut values: BTreeMap<&Factors, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    let mut absent: BTreeMap<&Factors, BTreeMap<String, Absent>> = BTreeMap::new();
    for sample in samples {
        let own = values.entry(&sample.factors).or_insert_with(|| {
            order.push(&sample.factors);
            BTreeMap::new()
        });
        sample.measures.iter().for_each(|(name, value)| own.entry(name).or_default().push(*value));
        absent.entry(&sample.factors).or_default().extend(sample.absent.clone());
    }
    let summary = |factors: &Factors, name: &str| Summary::of(values.get(factors)?.get(name)?);
    let figure = |factors: &&Factors| {
        let base = baseline.filter(|b| factors.get(&b.factor).is_some_and(|v| *v != b.value)).map(|b| {
            let mut base = (*factors).clone();
            base.insert(b.factor.clone(), b.value.clone());
            base
        });
        let withheld = base.as_ref().and_then(|b| withheld::reason(values.get(b)?));
        let base = base.filter(|_| withheld.is_none());
        let measures = values.get(*factors).into_iter().flatten().filter_map(|(name, all)| {
            let summary_here = Summary::of(all)?;
            let base = base.as_ref().and_then(|b| summary(b, name)).map(|s| s.median);
            let quantity = Quantity {
                summary: summary_here,
                ratio: base.filter(|b| *b != 0.0).map(|b| summary_here.median / b),
                added: base.map(|b| summary_here.median - b),
            };
            Some(((*name).to_string(), quantity))
        });
        let measures: BTreeMap<String, Quantity> = measures.collect();
        let mut absent = absent.get(*factors).cloned().unwrap_or_default();
        absent.retain(|name, _| !measures.contains_key(name));
        Figure { factors: (*factors).clone(), measures, withheld, absent }
    };
    order.iter().map(figure).collect()
}

impl Record {
    /// The measure of that name.
    pub fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|m| m.name == name)
    }

    /// The figure with exactly these factors.
    pub fn figure(&self, factors: &Factors) -> Option<&Figure> {
        self.figures.iter().find(|f| f.factors == *factors)
    }

    /// The figures whose factors include `only`.
    pub fn figures_with<'a>(&'a self, only: &Factors) -> impl Iterator<Item = &'a Figure> {
        self.figures.iter().filter(|f| only.iter().all(|(k, v)| f.factors.get(k) == Some(v)))
    }

    /// The values of a factor among figures that include `only`, in the order of first appearance.
    pub fn values(&self, factor: &str, only: &Factors) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.figures_with(only).filter_map(|f| f.factors.get(factor)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        values
    }
}

impl Figure {
    /// The reason why one of a measure's numbers is absent, if people have to know it: no value of
    /// this figure, or of the one that it is compared with in `record`.
    pub fn absent(&self, record: &Record, measure: &str, which: Which) -> Option<Absent> {
        let base = record.baseline.as_ref().filter(|_| which != Which::Median).and_then(|baseline| {
            let mut base = self.factors.clone();
            base.insert(baseline.factor.clone(), baseline.value.clone());
            record.figure(&base)
        });
        let known = [Some(self), base.filter(|_| self.measures.contains_key(measure))];
        known.into_iter().flatten().find_map(|figure| figure.absent.get(measure).copied())
    }

    /// One of a measure's numbers.
    pub fn number(&self, measure: &str, which: Which) -> Option<f64> {
        let quantity = self.measures.get(measure)?;
        match which {
            Which::Median => Some(quantity.summary.median),
            Which::Ratio => quantity.ratio,
            Which::Added => quantity.added,
        }
    }
}

/// The factors of a figure as text for people: `dut plain, size 64`.
pub(crate) fn factors_text(figure: &Figure) -> String {
    figure.factors.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
}

/// Factors from pairs.
pub fn factors<const N: usize>(pairs: [(&str, &str); N]) -> Factors {
    pairs.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(dut: &str, size: &str, repeat: u32, gbps: f64) -> Sample {
        Sample {
            factors: factors([("dut", dut), ("size", size)]),
            repeat,
            began: 0.0,
            measures: BTreeMap::from([("gbps".to_string(), gbps)]),
            absent: [].into(),
            files: vec![],
        }
    }

    #[test]
    fn figures_are_medians_against_the_baseline_of_the_same_other_factors() {
        let samples = [
            sample("plain", "64", 0, 4.0),
            sample("x", "64", 0, 1.0),
            sample("plain", "64", 1, 6.0),
            sample("x", "64", 1, 3.0),
            sample("x", "1400", 0, 7.0),
        ];
        let baseline = Baseline { factor: "dut".into(), value: "plain".into() };
        let all = figures(&samples, Some(&baseline));
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].number("gbps", Which::Median), Some(5.0));
        assert_eq!((all[0].number("gbps", Which::Ratio), all[0].number("gbps", Which::Added)), (None, None));
        assert_eq!(all[1].number("gbps", Which::Ratio), Some(0.4));
        assert_eq!(all[1].number("gbps", Which::Added), Some(-3.0));
        // Nothing to compare with.
        assert_eq!(all[2].number("gbps", Which::Ratio), None);
        assert_eq!(all[1].measures["gbps"].summary.n, 2);
    }

    #[test]
    fn what_was_not_measured_is_absent_and_not_zero() {
        let mut one = sample("x", "64", 0, 1.0);
        one.measures.clear();
        let all = figures(&[one, sample("x", "64", 1, 2.0)], None);
        assert_eq!(all[0].measures["gbps"].summary.n, 1);
        assert_eq!(figures(&[], None), []);
    }

    #[test]
    fn what_was_too_short_in_all_repeats_is_absent_with_the_reason() {
        let short = |dut: &str, repeat| {
            let mut short = sample(dut, "64", repeat, 1.0);
            short.measures.clear();
            short.absent.insert("gbps".into(), Absent::TooShort);
            short
        };
        let baseline = Baseline { factor: "dut".into(), value: "plain".into() };
        let mut record = crate::report::sample::record();
        record.samples = vec![
            short("plain", 0),
            short("plain", 1),
            short("x", 0),
            sample("x", "64", 1, 2.0),
            sample("y", "64", 0, 3.0),
        ];
        record.figures = figures(&record.samples, Some(&baseline));
        record.baseline = Some(baseline);
        let [plain, x, y] = record.figures.as_slice() else { panic!("three figures") };
        let why = |figure: &Figure, which| figure.absent(&record, "gbps", which);
        assert_eq!(
            (plain.number("gbps", Which::Median), why(plain, Which::Median)),
            (None, Some(Absent::TooShort))
        );
        // One repeat was long enough: that one counts.
        assert_eq!((x.number("gbps", Which::Median), x.absent.len()), (Some(2.0), 0));
        // Nothing to compare with, for the same reason.
        assert_eq!((y.number("gbps", Which::Added), why(y, Which::Added)), (None, Some(Absent::TooShort)));
        assert_eq!((why(y, Which::Median), y.absent(&record, "loss", Which::Ratio)), (None, None));
    }
}
