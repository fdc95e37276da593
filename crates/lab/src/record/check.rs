//! Checks rules of a record that a schema cannot express: its figures follow from its samples, and
//! its views show measures that exist. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Columns, Figure, Record, View, figures};

impl Record {
    /// Everything in which the record contradicts itself, a sentence each; empty for a sound one.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (nth, sample) in self.samples.iter().enumerate() {
            let unknown = sample.measures.keys().filter(|name| self.measure(name).is_none());
            faults.extend(
                unknown.map(|name| format!("sample {nth} has the measure {name}, which is not declared")),
            );
        }
        if figures(&self.samples, self.baseline.as_ref()) != self.figures {
            faults.push("the figures do not follow from the samples".into());
        }
        let mut plots = BTreeSet::new();
        for view in &self.views {
            let (view, measures) = match view {
                View::Table(t) => match &t.columns {
                    Columns::Factor { measure, .. } => (format!("table {:?}", t.title), vec![measure]),
                    Columns::Measures(list) => {
                        (format!("table {:?}", t.title), list.iter().map(|(name, _)| name).collect())
                    }
                },
                View::Plot(p) => {
                    if !plots.insert(&p.name) {
                        faults.push(format!("two plots are named {}", p.name));
                    }
                    (format!("plot {}", p.name), vec![&p.y])
                }
                View::Derived { .. } => continue,
            };
            let unknown = measures.into_iter().filter(|m| self.measure(m).is_none());
            faults.extend(unknown.map(|m| format!("{view} shows the measure {m}, which is not declared")));
        }
        faults
    }
}

/// The factors besides `known` by which some of these figures differ although all of the known ones
/// agree: a view that left them out would show one figure for several.
pub(crate) fn hidden_factors(figures: &[&Figure], known: &[&str]) -> Vec<String> {
    let mut hidden: Vec<String> = Vec::new();
    loop {
        let mut first: BTreeMap<Vec<Option<&String>>, &Figure> = BTreeMap::new();
        let clash = figures.iter().find_map(|figure| {
            let by = known.iter().copied().chain(hidden.iter().map(String::as_str));
            let other = first.insert(by.map(|k| figure.factors.get(k)).collect(), figure)?;
            let mut names = figure.factors.keys().chain(other.factors.keys());
            names.find(|k| figure.factors.get(*k) != other.factors.get(*k)).cloned()
        });
        match clash {
            Some(factor) => hidden.push(factor),
            None => return hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Quantity, factors};

    #[test]
    fn factors_that_a_view_would_hide_are_found() {
        let figure = |dut: &str, size: &str, mode: &str| Figure {
            factors: factors([("dut", dut), ("size", size), ("mode", mode)]),
            measures: BTreeMap::<String, Quantity>::new(),
            withheld: None,
            absent: [].into(),
        };
        let all = [figure("x", "64", "wire"), figure("y", "64", "wire"), figure("x", "64", "offload")];
        let all: Vec<&Figure> = all.iter().collect();
        assert_eq!(hidden_factors(&all, &["dut", "size", "mode"]), [""; 0]);
        assert_eq!(hidden_factors(&all, &["dut"]), ["mode"]);
        assert_eq!(hidden_factors(&all, &["size"]), ["dut", "mode"]);
        assert_eq!(hidden_factors(&all[..2], &["size", "dut"]), [""; 0]);
    }
}
