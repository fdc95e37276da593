//! How far a calibration can be trusted: what disturbed it, how far its repeats lie apart, and
//! whether another calibration of the same machine gives the same answers. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::number;
use crate::schema::{TIME, never_negative};

/// Share of the machine that other programs, or the host of a virtual machine, may take during a
/// calibration, the mean over all of it.
const TAKEN: f64 = 0.05;
/// Median over the loads of range by median of the repeats, up to which a machine repeats itself.
const SPREAD: f64 = 0.20;
/// Answers of two calibrations of one machine may differ by this much.
const AGREE: f64 = 0.10;

/// State of the machine during a calibration.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Calm {
    /// Share of the machine that programs outside used during the loads, on average.
    #[schemars(range(max = 1))]
    pub others: f64,
    /// Share that the host of a virtual machine took away, on average.
    #[schemars(range(max = 1))]
    pub stolen: f64,
    /// Median over the loads of range by median of the repeats; absent with one repeat.
    pub spread: Option<f64>,
}

impl Calm {
    /// Everything that disturbed the machine too much; `None` where nothing did.
    pub fn disturbed(&self) -> Option<String> {
        let percent = |share: f64| format!("{} %", number(share * 100.0));
        let mut why = Vec::new();
        if self.others > TAKEN {
            why.push(format!(
                "other programs used {} of it (at most {})",
                percent(self.others),
                percent(TAKEN)
            ));
        }
        if self.stolen > TAKEN {
            why.push(format!(
                "the host of this virtual machine took {} of it away (at most {})",
                percent(self.stolen),
                percent(TAKEN)
            ));
        }
        if let Some(spread) = self.spread.filter(|s| *s > SPREAD) {
            why.push(format!(
                "repeats of one load lie {} apart in the middle (at most {})",
                percent(spread),
                percent(SPREAD)
            ));
        }
        (!why.is_empty()).then(|| why.join("; "))
    }
}

/// Answers of a calibration beside those of the one before it.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Agreement {
    /// When the other one was made, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub made: String,
    /// Time between the two, seconds.
    pub apart: f64,
    /// The question whose answers differ most.
    #[schemars(length(min = 1))]
    pub question: String,
    /// By how much: the larger answer over the smaller, less one.
    pub differs: f64,
}

/// Trust in a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Trust {
    /// Two calibrations agree to this share.
    Twice(f64),
    /// Nobody knows whether a second one would agree.
    Once,
    /// The machine was disturbed, or two calibrations contradict each other: the reason, as a
    /// sentence with the remedy.
    None(String),
}

impl Trust {
    /// From the state of the machine and the comparison with another calibration.
    pub fn of(made: &str, calm: Option<&Calm>, agreement: Option<&Agreement>) -> Self {
        if let Some(why) = calm.and_then(Calm::disturbed) {
            return Self::None(format!("this machine could not be calibrated at {made}: {why}. {REMEDY}"));
        }
        match agreement {
            None => Self::Once,
            Some(a) if a.differs <= AGREE => Self::Twice(a.differs),
            Some(a) => Self::None(format!(
                "this machine cannot be calibrated now: the calibrations of {} and {made} differ by {} % ({}). {REMEDY}",
                a.made,
                number(a.differs * 100.0),
                a.question
            )),
        }
    }

    /// Relative error that an answer has by this alone.
    pub fn unsure(&self) -> f64 {
        match self {
            Self::Twice(differs) => *differs,
            Self::Once | Self::None(_) => AGREE,
        }
    }

    /// For the line that says how sure an answer is.
    pub fn text(&self) -> String {
        match self {
            Self::Twice(differs) => format!("two calibrations agree to {} %", number(differs * 100.0)),
            Self::Once => {
                "calibrated once, and a second `plan --calibrate` half an hour later would confirm it".into()
            }
            Self::None(why) => why.clone(),
        }
    }
}

/// Advice for a machine that cannot be calibrated.
pub const REMEDY: &str = "Stop what else runs on it, or wait, and run `ironswan plan --calibrate` again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_is_named_with_its_share_and_the_limit() {
        let calm = Calm { others: 0.05, stolen: 0.05, spread: Some(0.2) };
        assert_eq!(calm.disturbed(), None);
        for (calm, part) in [
            (Calm { others: 0.31, ..calm }, "other programs used 31.0 % of it (at most 5.00 %)"),
            (Calm { stolen: 0.06, ..calm }, "took 6.00 % of it away"),
            (Calm { spread: Some(0.4), ..calm }, "lie 40.0 % apart"),
        ] {
            let why = calm.disturbed().expect(part);
            assert!(why.contains(part) && !why.contains(';'), "{why}");
            let trust = Trust::of("2026-11-22T10:00:00Z", Some(&calm), None);
            assert!(
                matches!(&trust, Trust::None(s) if s.contains(part) && s.contains("--calibrate")),
                "{trust:?}"
            );
        }
        let all = Calm { others: 0.5, stolen: 0.5, spread: Some(0.5) };
        assert_eq!(all.disturbed().map(|why| why.matches(';').count()), Some(2));
    }

    #[test]
    fn two_calibrations_agree_or_contradict_each_other() {
        let agreement = |differs| Agreement {
            made: "2026-11-22T09:00:00Z".into(),
            apart: 3_600.0,
            question: "processors for 100 Mbit/s".into(),
            differs,
        };
        let of = |differs| Trust::of("2026-11-22T10:00:00Z", None, Some(&agreement(differs)));
        assert_eq!((of(0.02), of(AGREE)), (Trust::Twice(0.02), Trust::Twice(AGREE)));
        let Trust::None(why) = of(4.0) else { panic!("contradicted") };
        for part in
            ["cannot be calibrated now", "T09:00:00Z and 2026-11-22T10", "400 % (processors", "--calibrate"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(Trust::of("", None, None), Trust::Once);
        assert_eq!((Trust::Once.unsure(), of(0.02).unsure()), (AGREE, 0.02));
    }
}
