//! Series and points of a plot, from the record. Pure.

use super::style::COLOURS;
use crate::record::{Figure, Plot, Record, Which, hidden_factors};

/// A point of a series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// Which of the plot's places along the x axis.
    pub(super) place: usize,
    pub(super) y: f64,
    /// The extremes of the repeats.
    pub(super) range: Option<(f64, f64)>,
}

/// A line, or bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) label: String,
    /// Number of its colour and mark.
    pub(super) style: usize,
    pub(super) points: Vec<Point>,
}

/// Everything that a plot shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Data {
    /// The values of the factor along the x axis: numbers ascending, words as they first appeared.
    pub(super) places: Vec<String>,
    /// The same as numbers, if all of them are.
    pub(super) numbers: Option<Vec<f64>>,
    pub(super) series: Vec<Series>,
}

impl Data {
    pub(super) fn of(record: &Record, plot: &Plot) -> Self {
        let figures: Vec<&Figure> = record
            .figures_with(&plot.only)
            .filter(|f| f.factors.contains_key(&plot.x) && f.number(&plot.y, plot.which).is_some())
            .collect();
        let mut places: Vec<String> = Vec::new();
        for value in figures.iter().filter_map(|f| f.factors.get(&plot.x)) {
            if !places.contains(value) {
                places.push(value.clone());
            }
        }
        let numbers: Option<Vec<f64>> = places.iter().map(|p| finite(p)).collect();
        let numbers = numbers.map(|mut numbers| {
            places.sort_by(|a, b| finite(a).unwrap_or(0.0).total_cmp(&finite(b).unwrap_or(0.0)));
            numbers.sort_by(f64::total_cmp);
            numbers
        });
        let known: Vec<&str> = plot.series.iter().chain([&plot.x]).map(String::as_str).collect();
        let mut names = plot.series.clone();
        names.extend(hidden_factors(&figures, &known));
        let mut series: Vec<Series> = Vec::new();
        for figure in figures {
            let Some(y) = figure.number(&plot.y, plot.which).filter(|y| y.is_finite()) else { continue };
            let x = figure.factors.get(&plot.x);
            let Some(place) = places.iter().position(|p| Some(p) == x) else { continue };
            let label = label(figure, &names);
            let summary = figure.measures.get(&plot.y).map(|q| q.summary);
            let summary = summary.filter(|_| plot.which == Which::Median);
            let point = Point { place, y, range: summary.filter(|s| s.n > 1).map(|s| (s.min, s.max)) };
            match series.iter_mut().find(|s| s.label == label) {
                Some(own) => own.points.push(point),
                None => series.push(Series { style: series.len(), label, points: vec![point] }),
            }
        }
        series.iter_mut().for_each(|s| s.points.sort_by_key(|p| p.place));
        // One system has one colour in all plots of a record, as far as the colours go.
        let mut all: Vec<String> = Vec::new();
        for figure in record.figures.iter().filter(|f| names.iter().all(|n| f.factors.contains_key(n))) {
            let label = label(figure, &names);
            if !all.contains(&label) {
                all.push(label);
            }
        }
        if all.len() <= COLOURS.len() {
            for own in &mut series {
                own.style = all.iter().position(|l| *l == own.label).unwrap_or(own.style);
            }
        }
        Self { places, numbers, series }
    }

    /// The smallest and largest value shown, error bars included; `None` of nothing.
    pub(super) fn extent(&self) -> Option<(f64, f64)> {
        let all = self.series.iter().flat_map(|s| &s.points).flat_map(|p| {
            let (low, high) = p.range.unwrap_or((p.y, p.y));
            [p.y, low, high]
        });
        all.fold(None, |extent: Option<(f64, f64)>, v| {
            let (low, high) = extent.unwrap_or((v, v));
            Some((low.min(v), high.max(v)))
        })
    }

    /// The smallest value above 0.
    pub(super) fn least_positive(&self) -> Option<f64> {
        let all = self.series.iter().flat_map(|s| &s.points);
        let low = all.map(|p| p.range.map_or(p.y, |(low, _)| if low > 0.0 { low } else { p.y }));
        low.filter(|v| *v > 0.0).min_by(f64::total_cmp)
    }

    /// True when every value is above 0 (error bars may reach below).
    pub(super) fn is_positive(&self) -> bool {
        self.series.iter().flat_map(|s| &s.points).all(|p| p.y > 0.0)
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|v: &f64| v.is_finite())
}

/// Name of a series: its values, with the factor's name where the value alone says nothing.
fn label(figure: &Figure, names: &[String]) -> String {
    let value = |name: &String| {
        let value = figure.factors.get(name)?;
        Some(if finite(value).is_some() || ["yes", "no"].contains(&value.as_str()) {
            format!("{name} {value}")
        } else {
            value.clone()
        })
    };
    names.iter().filter_map(value).collect::<Vec<_>>().join(", ")
}
