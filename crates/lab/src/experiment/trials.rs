//! The raw trials behind the figures of one system under one load: a CSV of them in `raw/` of the
//! run folder, from which
//! `testkit/laboratory/recompute.py` comes to the record's figures by itself; and what is to be
//! doubted of them. Pure.

use std::fmt::Write;

use super::passed::Passed;
use crate::load::{Direction, Offer};
use crate::measure;
use crate::report::Warning;

/// Purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// As fast as the generator can.
    Flood,
    /// A step of the search.
    Search,
    /// A later trial at a rate that a search found, or below it.
    Confirm,
    /// Latency at a share of the throughput.
    Latency,
    /// A multiple of the throughput.
    Curve,
    /// A rate that was asked for.
    Rate,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Search => "search",
            Self::Confirm => "confirm",
            Self::Latency => "latency",
            Self::Curve => "curve",
            Self::Rate => "rate",
        }
    }
}

/// One trial.
#[derive(Clone)]
struct Trial {
    purpose: Purpose,
    /// Which of its purpose, as in the factors of its sample: `90%`, `1.5`.
    of: String,
    /// Since the run began, and as long as it was to be, seconds.
    began: f64,
    seconds: f64,
    /// Packets a second that were offered, each way.
    rate: Option<f64>,
    /// The loss that the search, or the confirmation of its results, was told of; none when the
    /// trial said nothing, or was of neither.
    told: Option<f64>,
    passed: Passed,
}

/// The trials of one system under one load, in the order in which they were made.
#[derive(Clone)]
pub(super) struct Trials {
    direction: Direction,
    trials: Vec<Trial>,
}

/// A row for each way of each trial. What is of the trial, and not of one way of it, stands in both
/// rows: the time of the machine's processors (`machine_s` is all there is, `idle_s` includes
/// waiting for a disk), the gateways' processes, the outer link.
const COLUMNS: &str = "trial,purpose,of,way,began_s,offered_pps,duration_s,told_loss,intended,sent,unsent,refused,send_s,\
                       received,receive_s,lost,unopened,socket_drops,duplicates,reordered,corrupt,p50_us,p90_us,p99_us,p999_us,\
                       max_us,machine_s,idle_s,stolen_s,busy_s,gateways_ns,outer_bytes,outer_packets\n";

/// Name of the setting of a run that says how its later trials were made.
pub(super) const LATER: &str = "later trials";

impl Trials {
    pub(super) fn new(direction: Direction) -> Self {
        Self { direction, trials: Vec::new() }
    }

    /// Takes one down that began then, for `purpose`, the one named `of`.
    pub(super) fn add(&mut self, (purpose, of): (Purpose, &str), began: f64, offer: Offer, passed: &Passed) {
        let seconds = offer.at_most.as_secs_f64();
        let (rate, of, passed) = (offer.rate, of.to_string(), passed.clone());
        self.trials.push(Trial { purpose, of, began, seconds, rate, told: None, passed });
    }

    /// Takes one down that a search or its confirmation asked for, and the loss that it is told of.
    pub(super) fn asked(
        &mut self,
        purpose: Purpose,
        began: f64,
        ask: measure::mlr::Ask,
        told: Option<f64>,
        passed: &Passed,
    ) {
        self.trials.push(Trial {
            purpose,
            of: String::new(),
            began,
            seconds: ask.duration,
            rate: Some(ask.load),
            told,
            passed: passed.clone(),
        });
    }

    /// All of them as CSV, numbered from 1. Numbers are written so that they are read back as the
    /// same.
    pub(super) fn csv(&self) -> String {
        let ways: &[&str] = match self.direction {
            Direction::Forward => &["forward"],
            Direction::Reverse => &["reverse"],
            Direction::Both => &["forward", "reverse"],
        };
        let known = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
        let mut text = COLUMNS.to_string();
        for (n, trial) in (1..).zip(&self.trials) {
            let Trial { purpose, of, began, seconds, rate, told, passed } = trial;
            for ((sent, counted), way) in passed.ways.iter().zip(ways) {
                let (received, lost) = (counted.arrived(), sent.sent as i128 - i128::from(counted.arrived()));
                let latency = counted.received.latency.map_or_else(
                    || ",,,,".to_string(),
                    |l| [l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us].map(|v| v.to_string()).join(","),
                );
                // Writing to a string does not fail.
                let _ = writeln!(
                    text,
                    "{n},{},{of},{way},{began},{},{seconds},{},{},{},{},{},{},{received},{},{lost},{},{},{},{},{},{latency},\
                     {},{},{},{},{},{},{}",
                    purpose.name(),
                    known(*rate),
                    known(*told),
                    sent.intended,
                    sent.sent,
                    sent.unsent,
                    sent.refused,
                    sent.seconds,
                    counted.received.seconds,
                    counted.esp.map_or(0, |esp| esp.unopened),
                    counted.socket_drops,
                    counted.received.duplicates,
                    counted.received.reordered,
                    counted.received.corrupt,
                    passed.time.machine,
                    passed.time.idle,
                    passed.time.stolen,
                    passed.busy_seconds,
                    passed.cost.gateways_ns,
                    passed.outer.0,
                    passed.outer.1,
                );
            }
        }
        text
    }

    /// Warns of results that no measurement can have: a defect of the laboratory.
    pub(super) fn impossible(&self, dut: &str, cell: &str) -> Option<Warning> {
        let all: Vec<String> = (1..)
            .zip(&self.trials)
            .flat_map(|(n, trial)| trial.passed.impossible().into_iter().map(move |what| (n, what)))
            .map(|(n, what)| format!("trial {n}: {what}"))
            .collect();
        let what = all.first()?.clone();
        Some(Warning::Impossible { dut: dut.into(), cell: cell.into(), what, more: all.len() - 1 })
    }
}

/// The name of the file of the trials of one system under one load, from the words that tell it
/// from the others.
pub(super) fn file(words: &[&str], repeat: u32) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let clean = |word: &&str| word.chars().map(|c| if allowed(c) { c } else { '_' }).collect::<String>();
    let words: Vec<String> = words.iter().map(clean).collect();
    format!("{}-{repeat}.csv", words.join("-"))
}
