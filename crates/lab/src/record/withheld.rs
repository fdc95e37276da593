//! Why a figure is not compared with the baseline: the tester, and not the device, may have limited
//! what the baseline carried. A ratio to that would say how fast the tester is. Pure.

use std::collections::BTreeMap;

use crate::stats::Summary;

/// The measure that is 1 where the tester set the limit of a sample, and 0 where the system did.
pub const TESTER_LIMITED: &str = "tester_limited";
/// The measure of what the tester carries alone under the same load, 1000 packets a second.
pub const TESTER_KPPS: &str = "tester_kpps";

/// The reason, from the samples of the baseline; none where the device set their limit. One repeat
/// that the tester limited is enough: it is in the median.
pub(super) fn reason(baseline: &BTreeMap<&str, Vec<f64>>) -> Option<String> {
    let limited = baseline.get(TESTER_LIMITED)?.iter().any(|value| *value > 0.0);
    let alone = baseline.get(TESTER_KPPS).and_then(|all| Summary::of(all));
    limited.then(|| match alone {
        Some(alone) => format!("the tester alone carries {:.1} kpps", alone.median),
        None => "the tester set the limit".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Baseline, Figure, Sample, Which, factors, figures};
    use super::*;

    fn withheld(figures: &[Figure]) -> Vec<Option<&str>> {
        figures.iter().map(|f| f.withheld.as_deref()).collect()
    }

    #[test]
    fn a_baseline_that_the_tester_limited_has_a_reason_in_the_place_of_a_ratio() {
        let sample = |dut: &str, repeat, kpps, more: &[(&str, f64)]| Sample {
            factors: factors([("dut", dut)]),
            repeat,
            began: 0.0,
            measures: [("kpps", kpps)].iter().chain(more).map(|(k, v)| ((*k).to_string(), *v)).collect(),
            files: vec![],
            absent: [].into(),
        };
        let baseline = Baseline { factor: "dut".into(), value: "plain".into() };
        let of = |second: &[(&str, f64)]| {
            let samples = [
                sample("plain", 0, 108.0, &[(TESTER_KPPS, 100.0), (TESTER_LIMITED, 0.0)]),
                sample("plain", 1, 110.0, second),
                sample("x", 0, 124.0, &[(TESTER_KPPS, 100.0), (TESTER_LIMITED, 1.0)]),
            ];
            figures(&samples, Some(&baseline))
        };
        // What limited the other system is not asked here.
        let free = of(&[(TESTER_KPPS, 120.0), (TESTER_LIMITED, 0.0)]);
        assert_eq!(free[1].number("kpps", Which::Ratio), Some(124.0 / 109.0));
        assert_eq!(withheld(&free), [None, None]);
        let limited = of(&[(TESTER_KPPS, 120.0), (TESTER_LIMITED, 1.0)]);
        assert_eq!(withheld(&limited), [None, Some("the tester alone carries 110.0 kpps")]);
        assert_eq!(
            (limited[1].number("kpps", Which::Ratio), limited[1].number("kpps", Which::Added)),
            (None, None)
        );
        assert_eq!(limited[1].number("kpps", Which::Median), Some(124.0));
        let unknown = reason(&BTreeMap::from([(TESTER_LIMITED, vec![1.0])]));
        assert_eq!(unknown.as_deref(), Some("the tester set the limit"));
        assert_eq!(reason(&BTreeMap::from([("kpps", vec![1.0])])), None);
    }
}
