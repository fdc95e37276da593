//! Processor time of the machine and of the processes on boxes, between two moments.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use super::cost::{self, Account};
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
    parties: Vec<(String, Account)>,
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
    /// included; [`cost::TOO_SHORT`] where it has too few clock ticks and nothing else counts it.
    parties: Vec<(String, f64)>,
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
            parties: parties.iter().map(|(name, netns)| ((*name).to_string(), account(netns))).collect(),
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
        let mut after: Vec<Account> = parties.iter().map(|(_, netns)| account(netns)).collect();
        settle()?;
        for (of_party, (_, netns)) in after.iter_mut().zip(parties).filter(|(_, (name, _))| *name == late) {
            *of_party = account(netns);
        }
        let used = |((name, before), after): (&(String, Account), &Account)| {
            (name.clone(), after.seconds_since(*before))
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
    /// Non-idle processor time of the machine as it may be used for a cost, seconds.
    pub(crate) fn machine_cost(&self) -> f64 {
        cost::seconds(self.busy)
    }

    /// Processor time of one party as it may be used for a cost, seconds.
    pub(crate) fn party(&self, name: &str) -> f64 {
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

/// Processor time of the processes of a box, with that of their children that have ended.
fn account(netns: &Netns) -> Account {
    netns.pids().into_iter().filter_map(account_of).fold(Account::default(), Account::and)
}

/// Processor time of one process with that of its children that have ended; also of one that has
/// ended and is not waited for.
pub(crate) fn account_of(pid: u32) -> Option<Account> {
    let stat = ProcessTicks::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(Account { ticks: stat.ticks + stat.reaped, reaped: stat.reaped, ns: counters::process_ns(pid) })
}

/// Ticks of all processors since the machine was started.
pub(crate) fn machine_ticks() -> Result<CpuTicks, LabError> {
    let stat = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
    CpuTicks::parse(&stat).ok_or_else(|| LabError::Measurement("/proc/stat is not as expected".into()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn work_of_a_process_is_counted_by_ticks_and_by_schedstat_and_that_of_its_children_by_ticks() {
        // Its own work first, then that of a child; and it stays until its input ends.
        let work = "n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done";
        let script = format!("echo; read x; {work}; echo; read x; ({work}); echo; read x");
        let mut shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let (mut to, mut from) = (shell.stdin.take().expect("input"), shell.stdout.take().expect("output"));
        let [before, after, last] = [0, 1, 2].map(|_| {
            from.read_exact(&mut [0]).expect("the end of its work");
            let account = account_of(shell.id()).expect("the shell");
            to.write_all(b"\n").expect("a reader");
            account
        });
        assert!(after.ns > before.ns && after.ticks > before.ticks, "{before:?}, {after:?}");
        assert_eq!((before.reaped, after.reaped), (0, 0));
        assert!(last.reaped > 0 && last.ticks - last.reaped >= after.ticks, "{after:?}, {last:?}");
        assert!(shell.wait().expect("an end").success());
        assert_eq!(account_of(u32::MAX), None);
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
