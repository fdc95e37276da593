//! Axes: the scale of a library's axis, and the values that are marked on it. Pure.

use std::ops::Range;

use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

use super::style::wide;
use crate::report::number::number;

/// The number of marks that is aimed at on a linear axis.
const MARKS: usize = 8;
/// Most marks of a logarithmic axis.
const MOST: usize = 9;
/// Share of the axis that is left free at each end of measured values, so that no mark lies on the
/// edge.
const ROOM: f64 = 0.04;

/// An axis, linear or logarithmic.
pub(super) struct Axis {
    scale: Scale,
    /// The values that are marked, ascending.
    marks: Vec<f64>,
}

enum Scale {
    Linear(RangedCoordf64),
    Log(LogCoord<f64>),
}

impl Axis {
    /// A linear axis from one end to the other, with marks at round values.
    fn linear(ends: Range<f64>) -> Self {
        let scale = RangedCoordf64::from(ends);
        Self { marks: scale.key_points(MARKS), scale: Scale::Linear(scale) }
    }

    /// A logarithmic axis between ends above 0, with marks at powers of ten, and at 2 and 5 times
    /// these where there is room.
    fn log(ends: Range<f64>) -> Self {
        let powers = ends.start.log10().floor() as i32..=ends.end.log10().ceil() as i32;
        let within = |v: &f64| (ends.start * 0.999_999..=ends.end * 1.000_001).contains(v);
        let of = |digits: &[f64], every: usize| -> Vec<f64> {
            let powers = powers.clone().step_by(every);
            powers.flat_map(|e| digits.iter().map(move |d| d * 10f64.powi(e))).filter(within).collect()
        };
        let all = of(&[1.0, 2.0, 5.0], 1);
        let marks = if all.len() <= MOST { all } else { of(&[1.0], powers.clone().count() / MOST + 1) };
        Self { marks, scale: Scale::Log(ends.log_scale().into()) }
    }

    /// An axis for measured values from `low` to `high`. A linear axis holds 0; a logarithmic axis,
    /// for values above 0, ends at round values.
    pub(super) fn values(low: f64, high: f64, log: bool) -> Self {
        if log {
            let round = |v: f64, up: bool| {
                let power = 10f64.powi(v.log10().floor() as i32);
                let steps = [1.0, 2.0, 5.0, 10.0].map(|d| d * power);
                let found = if up {
                    steps.into_iter().find(|s| *s >= v * 0.999_999)
                } else {
                    steps.into_iter().rfind(|s| *s <= v * 1.000_001)
                };
                found.unwrap_or(v)
            };
            let (low, high) = (round(low, false), round(high, true));
            return Self::log(low..if high > low { high } else { low * 10.0 });
        }
        let (low, high) = (low.min(0.0), high.max(0.0));
        let room = if high > low { (high - low) * ROOM } else { 1.0 };
        let less = if low < 0.0 { room } else { 0.0 };
        Self::linear(low - less..high + room)
    }

    /// An axis for the ascending `numbers` that were chosen, `pixels` long. The numbers themselves
    /// are marked where most of their labels have room.
    pub(super) fn numbers(numbers: &[f64], log: bool, pixels: i32) -> Self {
        let (low, high) = (numbers.first().copied().unwrap_or(0.0), numbers.last().copied().unwrap_or(1.0));
        let mut axis = match (log && low > 0.0, high > low) {
            (true, true) => {
                let room = (high / low).powf(ROOM);
                Self::log(low / room..high * room)
            }
            (true, false) => Self::log(low / 2.0..low * 2.0),
            (false, true) => {
                let room = (high - low) * ROOM;
                Self::linear(low - room..high + room)
            }
            (false, false) => Self::linear(low - 1.0..low + 1.0),
        };
        let own = axis.apart(numbers, pixels);
        let round = axis.apart(&axis.marks, pixels);
        axis.marks = if 3 * own.len() >= 2 * numbers.len() { own } else { round };
        axis
    }

    /// Rows of a chart, from `rows` at the bottom up to 0 at the top. Nothing is marked.
    pub(super) fn rows(rows: usize) -> Self {
        Self { scale: Scale::Linear(RangedCoordf64::from(rows as f64..0.0)), marks: Vec::new() }
    }

    /// The marks whose labels have room beside each other on an axis of `pixels`.
    fn apart(&self, marks: &[f64], pixels: i32) -> Vec<f64> {
        let mut free = i32::MIN;
        let fits = |mark: &f64| {
            let (middle, half) = (self.map(mark, (0, pixels)), wide(&self.label(*mark)) / 2);
            let fits = middle - half > free;
            if fits {
                free = middle + half + 8;
            }
            fits
        };
        marks.iter().copied().filter(fits).collect()
    }

    /// Pixels of the widest label.
    pub(super) fn widest(&self) -> i32 {
        self.marks.iter().map(|m| wide(&self.label(*m))).max().unwrap_or(0)
    }

    /// The value at which bars begin: 0, or the lowest value of an axis without 0.
    pub(super) fn foot(&self) -> f64 {
        let ends = self.range();
        if ends.contains(&0.0) { 0.0 } else { ends.start }
    }

    /// Whether the value lies within the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        self.range().contains(&value)
    }

    /// The value as a mark. Marks of a linear axis have as many decimals as the one that needs
    /// most.
    fn label(&self, value: f64) -> String {
        let decimals = match self.scale {
            Scale::Linear(_) => self.marks.iter().map(|m| decimals(*m)).max().unwrap_or(0),
            Scale::Log(_) => decimals(value),
        };
        // A mark next to 0 may be the remainder of a sum.
        let value = if value.abs() < 1e-12 { 0.0 } else { value };
        if value.abs() >= 1000.0 { number(value) } else { format!("{value:.decimals$}") }
    }
}

/// Decimals that a round number needs, at most six.
fn decimals(value: f64) -> usize {
    let whole = |d: &i32| {
        let shifted = value * 10f64.powi(*d);
        (shifted - shifted.round()).abs() < 1e-6 * shifted.abs().max(1.0)
    };
    (0..6).find(whole).unwrap_or(6) as usize
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match &self.scale {
            Scale::Linear(scale) => scale.map(value, limit),
            Scale::Log(scale) => {
                // A value that is not above 0 stands at the end.
                let ends = scale.range();
                scale.map(&value.max(ends.start), limit)
            }
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        match &self.scale {
            Scale::Linear(scale) => scale.range(),
            Scale::Log(scale) => scale.range(),
        }
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.marks.iter().map(|m| axis.label(*m)).collect()
    }

    #[test]
    fn a_linear_axis_holds_zero_and_the_values_and_marks_round_ones() {
        for (low, high, expected) in [
            (0.0, 9.7, vec!["0", "2", "4", "6", "8", "10"]),
            (3.0, 5.9, vec!["0", "1", "2", "3", "4", "5", "6"]),
            (-0.12, 0.31, vec!["-0.1", "0.0", "0.1", "0.2", "0.3"]),
            (0.0, 1_430_000.0, vec!["0", "200,000", "400,000", "600,000", "800,000", "1,000,000"]),
        ] {
            let axis = Axis::values(low, high, false);
            assert!(axis.holds(low) && axis.holds(high) && axis.holds(0.0));
            let labels = labels(&axis);
            assert!(
                labels.starts_with(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()),
                "{labels:?}"
            );
        }
        let nothing = Axis::values(0.0, 0.0, false);
        assert!(nothing.holds(0.0) && nothing.marks.len() > 1);
    }

    #[test]
    fn a_logarithmic_axis_marks_powers_of_ten_or_closer_where_there_is_room() {
        assert_eq!(labels(&Axis::values(64.0, 1518.0, true)), ["50", "100", "200", "500", "1,000", "2,000"]);
        assert_eq!(labels(&Axis::values(1.0, 1e5, true)), ["1", "10", "100", "1,000", "10,000", "100,000"]);
        assert_eq!(labels(&Axis::values(0.001, 0.02, true)), ["0.001", "0.002", "0.005", "0.01", "0.02"]);
        let one = Axis::values(5.0, 5.0, true);
        assert!(one.holds(5.0) && one.marks.len() > 1);
        assert!(Axis::values(1e-6, 1e12, true).marks.len() <= MOST);
        // A value that is not above 0 stands at the end.
        assert_eq!(one.map(&0.0, (0, 100)), 0);
    }

    #[test]
    fn the_numbers_chosen_are_marked_where_most_have_room() {
        let sizes = [64.0, 390.0, 1518.0];
        assert_eq!(labels(&Axis::numbers(&sizes, true, 600)), ["64", "390", "1,518"]);
        let many: Vec<f64> = (0..200).map(f64::from).collect();
        let axis = Axis::numbers(&many, false, 600);
        assert!((4..15).contains(&axis.marks.len()), "{:?}", axis.marks);
        for one in [Axis::numbers(&[7.0], false, 600), Axis::numbers(&[7.0], true, 600)] {
            assert_eq!(labels(&one), ["7"]);
        }
    }
}
