//! Latency below the throughput of each system and the curve past it, with the later trials that
//! follow from them: those that offered no more than a throughput speak for it or against it.

use super::Work;
use crate::error::LabError;
use crate::experiment::campaign::Campaign;
use crate::experiment::passed::Passed;
use crate::experiment::rig::Rig;
use crate::experiment::searched::{self, Load, Searched};
use crate::experiment::trials::Purpose;
use crate::load::Offer;
use crate::report::Warning;

/// A trial at a share or a multiple of the throughput.
pub(super) struct Trial {
    /// Name of the share or multiple.
    pub name: &'static str,
    /// When it began, seconds since the run began.
    pub began: f64,
    pub passed: Passed,
}

/// Trials beside the throughput of one system.
#[derive(Default)]
pub(super) struct Beside {
    pub latency: Vec<Trial>,
    pub curve: Vec<Trial>,
}

impl Work {
    /// Measures latency and curve of all systems, trials going round, and confirms the throughputs
    /// by them. Where that lowers a system's throughput, they are measured anew, unless this was
    /// the last time.
    pub(super) fn beside(
        &self,
        c: &mut Campaign,
        rigs: &mut [Rig],
        load: Load<'_>,
        searched: &mut [Searched],
    ) -> Result<Vec<Beside>, LabError> {
        let mut all: Vec<Beside> = rigs.iter().map(|_| Beside::default()).collect();
        let mut rates: Vec<f64> = searched.iter().map(Searched::base_pps).collect();
        let mut due = vec![true; rigs.len()];
        for pass in 1..=self.passes {
            self.go_round(c, rigs, load, (&rates, &due), (searched, &mut all))?;
            searched::confirm(c, rigs, load, searched)?;
            let now: Vec<f64> = searched.iter().map(Searched::base_pps).collect();
            due = now.iter().zip(&rates).map(|(now, before)| now != before).collect();
            if pass < self.passes {
                rates = now;
            }
        }
        for ((rig, rate), _) in rigs.iter().zip(&rates).zip(&due).filter(|(_, due)| **due) {
            let (name, cell) = (rig.name(), load.cell);
            c.doubt(Warning::LeftOut {
                what: format!(
                    "{name}, {cell}: latency and curve of the throughput as it was lowered at last; shown are those of {:.1} kpps",
                    rate / 1e3
                ),
            });
        }
        Ok(all)
    }

    /// Measures latency and curve once, of those systems that are due.
    fn go_round(
        &self,
        c: &Campaign,
        rigs: &mut [Rig],
        load: Load<'_>,
        (rates, due): (&[f64], &[bool]),
        (searched, all): (&mut [Searched], &mut [Beside]),
    ) -> Result<(), LabError> {
        searched.iter_mut().for_each(Searched::begin);
        for (beside, _) in all.iter_mut().zip(due).filter(|(_, due)| **due) {
            *beside = Beside::default();
        }
        let latency = self.loads.iter().map(|step| (Purpose::Latency, *step, self.latency));
        let curve = self.multiples.iter().map(|step| (Purpose::Curve, *step, self.curve));
        for (purpose, (share, name), at_most) in latency.chain(curve) {
            let systems = rigs.iter_mut().zip(rates).zip(due).zip(searched.iter_mut()).zip(all.iter_mut());
            for ((((rig, rate), due), s), beside) in systems {
                if !due {
                    continue;
                }
                let what = match purpose {
                    Purpose::Latency => format!("latency at {name}"),
                    _ => format!("{name} times the throughput"),
                };
                c.says(&format!("{}: {}, {what}", load.cell, rig.name()))?;
                let began = c.elapsed();
                let rate = rate * share;
                let offer = Offer { rate: Some(rate), packets: u64::MAX, at_most };
                let passed = rig.pass(load.shape, offer, load.direction)?;
                s.trials.add((purpose, name), began, offer, &passed);
                s.hear(rate, at_most, &passed);
                let list = if purpose == Purpose::Latency { &mut beside.latency } else { &mut beside.curve };
                list.push(Trial { name, began, passed });
            }
        }
        Ok(())
    }
}

impl Searched {
    /// The rate, each way, of whose shares and multiples latency and curve are: the throughput for
    /// the strictest loss that was reached, or if there is none, what came through the flood.
    fn base_pps(&self) -> f64 {
        let reached = self.found.iter().filter_map(|f| f.conditional_throughput).find(|pps| *pps > 0.0);
        reached.unwrap_or_else(|| self.flood.forwarded_pps() / self.flood.ways.len() as f64).max(100.0)
    }

    /// The most that arrived in any trial, both ways together.
    pub(super) fn peak_pps(&self, beside: &Beside) -> f64 {
        let curve = beside.curve.iter().map(|t| &t.passed);
        let all = self.at.iter().flatten().chain(curve);
        all.map(Passed::forwarded_pps).fold(self.flood.forwarded_pps(), f64::max)
    }
}
