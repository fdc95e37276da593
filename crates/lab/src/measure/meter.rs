//! Processor time of the machine and of the processes on boxes, between two moments.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use super::counters::{self, CpuTicks, ProcessTicks};
use super::soaker::{Busy, Soak, Soaked};
use crate::clock;
use crate::error::LabError;
use crate::topology::Netns;

/// Reads what has been used so far; [`Meter::stop`] says what was used since.
#[derive(Debug)]
pub struct Meter {
    began: Instant,
    cpu: CpuTicks,
    /// Of each box, with the name under which it is accounted.
    parties: Vec<(String, u64)>,
    others: HashMap<(u32, u64), u64>,
    inside: Vec<u32>,
    soaked: Option<(Arc<Soak>, Soaked)>,
}

/// CPU time that was used.
#[derive(Debug, Clone, PartialEq)]
pub struct Used {
    /// Time that passed, seconds.
    pub seconds: f64,
    /// Non-idle processor time of the machine, seconds.
    pub busy: f64,
    /// Of this: in software interrupts, seconds.
    pub softirq: f64,
    /// Processor time of the processes of each party, seconds, those that ended and were waited for
    /// included.
    pub parties: Vec<(String, f64)>,
    /// Share of the machine that processes outside of the experiment took.
    pub other_share: f64,
    /// Share of the machine that its host took away.
    pub stolen_share: f64,
    /// Share of the machine that was busy, by accounting and by a soaker, when one was at work:
    /// then `busy` lacks its time.
    pub both: Option<Busy>,
}

impl Meter {
    /// Begins. `parties` are boxes, by the name under which they are accounted; `own` are further
    /// processes that belong to the experiment beside this one; `soak` is a soaker at work.
    pub fn start(
        parties: &[(&str, &Netns)],
        own: &[u32],
        soak: Option<&Arc<Soak>>,
    ) -> Result<Self, LabError> {
        let mut inside: Vec<u32> = parties.iter().flat_map(|(_, netns)| netns.pids()).collect();
        inside.extend(own);
        inside.push(std::process::id());
        Ok(Self {
            parties: parties.iter().map(|(name, netns)| ((*name).to_string(), ticks(netns))).collect(),
            others: counters::processes_outside(&inside),
            inside,
            soaked: soak.map(|soak| (soak.clone(), soak.now())),
            cpu: machine_ticks()?,
            began: clock::now(),
        })
    }

    /// Ends. The boxes have to be those of the start.
    pub fn stop(self, parties: &[(&str, &Netns)]) -> Result<Used, LabError> {
        self.stop_late(parties, "", || Ok(()))
    }

    /// Ends, and then accounts for the party `late` when `settle` has waited: until processes that
    /// end there have been waited for.
    pub fn stop_late(
        self,
        parties: &[(&str, &Netns)],
        late: &str,
        settle: impl FnOnce() -> Result<(), LabError>,
    ) -> Result<Used, LabError> {
        let (mut cpu, seconds) =
            (machine_ticks()?.since(&self.cpu), (clock::now() - self.began).as_secs_f64());
        let soaker = self.soaked.map(|(soak, from)| {
            let to = soak.now();
            cpu = cpu.beside_a_soaker(to.ticks_since(from));
            soak.busy(from, to)
        });
        let mut inside = self.inside;
        // Processes that were started meanwhile.
        inside.extend(parties.iter().flat_map(|(_, netns)| netns.pids()));
        let other: u64 = counters::processes_outside(&inside)
            .iter()
            .map(|(p, ticks)| ticks.saturating_sub(self.others.get(p).copied().unwrap_or(0)))
            .sum();
        let rate = rustix::param::clock_ticks_per_second() as f64;
        let capacity = (super::cpus() as f64 * seconds).max(1e-9);
        let mut after: Vec<u64> = parties.iter().map(|(_, netns)| ticks(netns)).collect();
        settle()?;
        for (ticks_of_party, (_, netns)) in
            after.iter_mut().zip(parties).filter(|(_, (name, _))| *name == late)
        {
            *ticks_of_party = ticks(netns);
        }
        let used = |((name, before), after): (&(String, u64), &u64)| {
            (name.clone(), after.saturating_sub(*before) as f64 / rate)
        };
        let busy = cpu.busy_seconds(capacity, rate);
        let [other_share, stolen_share] =
            [other, cpu.steal].map(|ticks| super::share(ticks as f64 / rate, capacity));
        let both = |soaker| Busy::new(busy / capacity, soaker, seconds, other_share + stolen_share);
        Ok(Used {
            seconds,
            busy,
            softirq: cpu.softirq as f64 / rate,
            parties: self.parties.iter().zip(&after).map(used).collect(),
            other_share,
            stolen_share,
            both: soaker.map(both),
        })
    }
}

impl Used {
    /// Of one party, seconds.
    pub fn party(&self, name: &str) -> f64 {
        self.parties.iter().filter(|(n, _)| n == name).map(|(_, s)| s).sum()
    }

    /// The busy share by accounting and by a soaker, as measures; of no value without one.
    pub(crate) fn by_soaker(&self) -> [(&'static str, f64); 3] {
        Busy::measures(self.both.as_ref())
    }

    /// Share of the machine that was not idle.
    pub fn busy_share(&self) -> f64 {
        (self.busy / (super::cpus() as f64 * self.seconds).max(1e-9)).min(1.0)
    }
}

/// Ticks of the processes of a box, with those of their children that have ended.
fn ticks(netns: &Netns) -> u64 {
    netns.pids().into_iter().filter_map(ticks_of).sum()
}

/// Ticks of one process with those of its children that have ended; also of one that has ended and
/// is not waited for.
pub(crate) fn ticks_of(pid: u32) -> Option<u64> {
    ticks_with_children(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// User and system time of a process and of its children that were waited for, from /proc/PID/stat.
fn ticks_with_children(stat: &str) -> Option<u64> {
    let own = ProcessTicks::parse(stat)?.ticks;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    // Fields 16 and 17, counted from field 3.
    let child = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(own + child(16)? + child(17)?)
}

/// Ticks of all processors since the machine was started.
pub(crate) fn machine_ticks() -> Result<CpuTicks, LabError> {
    let stat = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
    CpuTicks::parse(&stat).ok_or_else(|| LabError::Measurement("/proc/stat is not as expected".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_ended_are_part_of_their_parent() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 200 0 0 10 20 300 400 20 0 1 0 5000 1 1 1 1 1";
        assert_eq!(ticks_with_children(stat), Some(730));
        assert_eq!(ticks_with_children("7 (x"), None);
    }

    #[test]
    fn work_of_this_process_is_busy_time_and_nobody_else_s() {
        let meter = Meter::start(&[], &[], None).expect("a meter");
        let end = clock::now() + std::time::Duration::from_millis(100);
        let mut n = 0u64;
        while clock::now() < end {
            n = std::hint::black_box(n + 1);
        }
        let used = meter.stop(&[]).expect("used");
        assert!(used.busy >= 0.05 && used.seconds >= 0.1, "{used:?}");
        assert!(used.busy <= crate::measure::cpus() as f64 * used.seconds + 0.05, "{used:?}");
        assert!((0.0..=1.0).contains(&used.busy_share()) && used.parties.is_empty());
    }
}
