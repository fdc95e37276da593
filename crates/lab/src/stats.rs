//! Statistics over a handful of repeats. Pure.
//!
//! Repeats are few and disturbed in one direction only (something else ran), so the figures are
//! order statistics: median, and for the spread the median absolute deviation, the interquartile
//! range and the extremes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The quantile `q` (0..=1) of `values` by linear interpolation between order statistics; `None`
/// when there are none or one is not a number.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = q * (sorted.len() - 1) as f64;
    let (low, high) = (rank.floor() as usize, rank.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (rank - low as f64))
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Median absolute deviation from the median: half the repeats were nearer than this.
pub fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|v| (v - middle).abs()).collect::<Vec<_>>())
}

/// Interquartile range.
pub fn iqr(values: &[f64]) -> Option<f64> {
    Some(quantile(values, 0.75)? - quantile(values, 0.25)?)
}

/// Median and spread of repeated measurements of one quantity, in the unit of that quantity.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// How many repeats.
    #[schemars(range(min = 1))]
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Median absolute deviation.
    #[schemars(range(min = 0))]
    pub mad: f64,
    /// Interquartile range.
    #[schemars(range(min = 0))]
    pub iqr: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of `values`; `None` when there are none or one is not a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            n: values.len(),
            median: median(values)?,
            mad: mad(values)?,
            iqr: iqr(values)?,
            min: quantile(values, 0.0)?,
            max: quantile(values, 1.0)?,
        })
    }

    /// Distance of the extremes as a share of the median; 0 when the median is 0.
    pub fn relative_range(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median.abs() }
    }

    /// Half of the distance of the extremes, in the unit of the values.
    pub fn half_range(&self) -> f64 {
        (self.max - self.min) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.5]), Some(7.5));
    }

    #[test]
    fn nothing_and_not_a_number_have_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_mad() {
        // NIST's textbook shape: deviations 1 1 0 2 4 7 sorted give 1.
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(mad(&[10.0, 11.0, 12.0, 11.0, 500.0]), Some(1.0));
    }

    #[test]
    fn quartiles_interpolate_between_order_statistics() {
        // The values of R's type 7 (its default) for 1..=4 and for 1..=5.
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), Some(1.75));
        assert_eq!(iqr(&[1.0, 2.0, 3.0, 4.0]), Some(1.5));
        assert_eq!(iqr(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some(2.0));
    }

    #[test]
    fn a_summary_holds_the_extremes() {
        let s = Summary::of(&[2.0, 4.0, 3.0]).expect("three values");
        assert_eq!((s.n, s.min, s.median, s.max, s.mad, s.iqr), (3, 2.0, 3.0, 4.0, 1.0, 1.0));
        assert!((s.relative_range() - 2.0 / 3.0).abs() < 1e-12);
        assert!((s.half_range() - s.relative_range() * s.median / 2.0).abs() < 1e-12);
    }
}
