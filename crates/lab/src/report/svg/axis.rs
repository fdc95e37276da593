//! Axes: where values lie, and which of them are marked. Pure.

/// An axis from `low` to `high`, laid from pixel `from` to pixel `to`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// The values to mark, ascending, each within the axis.
    pub(super) ticks: Vec<f64>,
    /// How many decimals the marks need.
    decimals: usize,
}

/// The number of marks that is aimed at.
const MARKS: f64 = 6.0;

impl Axis {
    /// A linear axis with round ends that holds `low` and `high`, and 0 when `zero`; marked at
    /// steps of 1, 2 or 5.
    pub(super) fn linear(low: f64, high: f64, zero: bool) -> Self {
        let (low, high) = if zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
        let (low, high) = if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) };
        let step = step(high - low);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let ticks: Vec<f64> = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        Self { log: false, low: first * step, high: last * step, from: 0.0, to: 1.0, ticks, decimals }
    }

    /// A logarithmic axis that holds `low` and `high`, both above 0; marked at powers of ten, and
    /// at 2 and 5 where there is room for them.
    pub(super) fn log(low: f64, high: f64) -> Self {
        let floor = low.log10().floor() as i32;
        let ceiling = (high.log10().ceil() as i32).max(floor + 1);
        let all: Vec<f64> = (floor..=ceiling)
            .flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)))
            .filter(|v| *v <= 10f64.powi(ceiling) * 1.000_001)
            .collect();
        let below = all.iter().copied().rfind(|v| *v <= low * 1.000_001).unwrap_or(low);
        let above = all.iter().copied().find(|v| *v >= high * 0.999_999).unwrap_or(high);
        // The ends differ, or there is nothing to lay out.
        let above = if above > below { above } else { below * 10.0 };
        let mut ticks: Vec<f64> = all.into_iter().filter(|v| (below..=above).contains(v)).collect();
        if ticks.len() as f64 > MARKS + 2.0 {
            let every = ((above / below).log10() / (MARKS + 2.0)).ceil().max(1.0) as i32;
            ticks.retain(|v| is_power(*v) && (v.log10().round() as i32 - floor) % every == 0);
        }
        let smallest = ticks.first().copied().unwrap_or(below);
        let decimals = (-smallest.log10().floor()).max(0.0) as usize;
        Self { log: true, low: below, high: above, from: 0.0, to: 1.0, ticks, decimals }
    }

    /// The same with its marks at these values, those of them that lie within it.
    pub(super) fn marked_at(mut self, values: &[f64]) -> Self {
        self.ticks = values.iter().copied().filter(|v| (self.low..=self.high).contains(v)).collect();
        self.decimals = self.ticks.iter().map(|v| decimals(*v)).max().unwrap_or(0);
        self
    }

    /// The same from pixel `from` to pixel `to`.
    pub(super) fn laid(mut self, from: f64, to: f64) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// The same with its ends exactly there.
    pub(super) fn between(mut self, low: f64, high: f64) -> Self {
        (self.low, self.high) = (low, high);
        self.ticks.retain(|v| (low..=high).contains(v));
        self
    }

    /// The pixel of a value; values outside lie at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// True when the value lies within it.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// How a mark is labelled.
    pub(super) fn label(&self, value: f64) -> String {
        let largest = self.high.abs().max(self.low.abs());
        let own = if self.log { decimals(value) } else { self.decimals };
        for (unit, size) in [(" G", 1e9), (" M", 1e6)] {
            if largest >= 10.0 * size && (!self.log || value >= size) {
                return if value == 0.0 { "0".into() } else { format!("{}{unit}", trimmed(value / size)) };
            }
        }
        if own > 6 {
            return format!("{value:.0e}");
        }
        grouped(&format!("{value:.own$}"))
    }
}

/// Decimals that a number of few digits needs.
fn decimals(value: f64) -> usize {
    let text = trimmed(value);
    text.split_once('.').map_or(0, |(_, d)| d.len())
}

/// With at most six decimals that count, or fewer digits after them for small numbers.
fn trimmed(value: f64) -> String {
    let places =
        if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 12) as usize };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Thousands apart.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |d| ("-", d));
    let (whole, rest) = digits.find('.').map_or((digits, ""), |dot| digits.split_at(dot));
    let mut out = String::from(sign);
    // -0 is 0.
    if whole.chars().chain(rest.chars()).all(|c| c == '0' || c == '.') {
        out.clear();
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

fn is_power(value: f64) -> bool {
    let e = value.log10();
    (e - e.round()).abs() < 1e-9
}

/// The step of 1, 2 or 5 times a power of ten that divides a range into about [`MARKS`] parts.
fn step(range: f64) -> f64 {
    let rough = range / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    let round = if digit <= 1.0 {
        1.0
    } else if digit <= 2.0 {
        2.0
    } else if digit <= 5.0 {
        5.0
    } else {
        10.0
    };
    round * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|t| axis.label(*t)).collect()
    }

    #[test]
    fn linear_marks_are_steps_of_one_two_or_five_around_the_data() {
        for (low, high, expected) in [
            (0.0, 9.7, vec!["0", "2", "4", "6", "8", "10"]),
            (3.0, 5.9, vec!["0", "1", "2", "3", "4", "5", "6"]),
            (-0.12, 0.31, vec!["-0.2", "-0.1", "0.0", "0.1", "0.2", "0.3", "0.4"]),
            (0.0, 0.0, vec!["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (0.0, 1_430_000.0, vec!["0", "500,000", "1,000,000", "1,500,000"]),
            (0.0, 25e6, vec!["0", "5 M", "10 M", "15 M", "20 M", "25 M"]),
        ] {
            let axis = Axis::linear(low, high, true);
            assert_eq!(labels(&axis), expected, "{low} {high}");
            assert!(axis.holds(low) && axis.holds(high));
        }
    }

    #[test]
    fn logarithmic_marks_are_powers_of_ten_or_closer_where_there_is_room() {
        assert_eq!(labels(&Axis::log(64.0, 1518.0)), ["50", "100", "200", "500", "1,000", "2,000"]);
        assert_eq!(labels(&Axis::log(1.0, 100_000.0)), ["1", "10", "100", "1,000", "10,000", "100,000"]);
        assert_eq!(labels(&Axis::log(0.001, 0.02)), ["0.001", "0.002", "0.005", "0.01", "0.02"]);
        let one = Axis::log(5.0, 5.0);
        assert!(one.holds(5.0) && one.ticks.len() > 1);
        assert!(Axis::log(1e-6, 1e12).ticks.len() <= 10);
    }

    #[test]
    fn values_lie_where_the_axis_says() {
        let axis = Axis::linear(0.0, 10.0, true).laid(300.0, 100.0);
        assert_eq!((axis.at(0.0), axis.at(5.0), axis.at(10.0)), (300.0, 200.0, 100.0));
        let axis = Axis::log(1.0, 100.0).laid(0.0, 200.0);
        assert!((axis.at(10.0) - 100.0).abs() < 1e-9);
        // A value that is not above 0 stands at the end of a logarithmic axis.
        assert_eq!(axis.at(0.0), 0.0);
    }

    #[test]
    fn marks_may_be_the_data_themselves() {
        let axis = Axis::log(64.0, 1518.0).marked_at(&[64.0, 390.0, 1518.0, 9000.0]);
        assert_eq!(labels(&axis), ["64", "390", "1,518"]);
    }
}
