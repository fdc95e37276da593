//! Watches what else the machine does during a whole run: other programs, time taken away by the
//! host of a virtual machine, quotas, heat.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::counters::{CpuTicks, ProcessTicks};
use crate::clock;
use crate::machine::Fingerprint;

/// A process for good: its id, and when it started, ticks since boot.
type Key = (u32, u64);
/// All user processes.
type Processes = HashMap<Key, ProcessTicks>;

/// Shorter stretches are too few clock ticks to tell shares.
const STRETCH: Duration = Duration::from_secs(1);
const LAST_STRETCH: Duration = Duration::from_millis(250);

/// Findings of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Seen {
    /// Largest share of the machine, over a stretch of a second or more, that processes had which
    /// neither are this one nor descend from it.
    pub(crate) others: f64,
    /// Largest share that the host of this virtual machine took away.
    pub(crate) stolen: f64,
    /// How long the quota of a control group held this process and its children back.
    pub(crate) quota: Duration,
    /// How often the processor slowed itself down because of heat.
    pub(crate) heat: u64,
    /// Clock of the first processor at the beginning and at the end, MHz.
    pub(crate) mhz: Option<(f64, f64)>,
}

/// Watches the machine.
#[derive(Debug)]
pub(crate) struct Watch {
    last: State,
    /// This process and all that ever descended from it, also when their parents have gone.
    ours: HashSet<Key>,
    first_quota: Duration,
    first_heat: u64,
    first_mhz: Option<f64>,
    seen: Seen,
}

#[derive(Debug)]
struct State {
    at: Instant,
    cpu: CpuTicks,
    processes: Processes,
}

impl State {
    fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at: clock::now(), cpu: CpuTicks::parse(&stat).unwrap_or_default(), processes: processes() }
    }
}

impl Watch {
    /// Begins, on the machine of this fingerprint.
    pub(crate) fn begin(machine: &Fingerprint) -> Self {
        let last = State::take();
        let mut ours = HashSet::new();
        adopt(&mut ours, &last.processes, std::process::id());
        Self {
            last,
            ours,
            first_quota: quota(),
            first_heat: heat(),
            first_mhz: machine.mhz,
            seen: Seen::default(),
        }
    }

    /// Looks, if it is a while since the last time; between measurements.
    pub(crate) fn look(&mut self) {
        if clock::now() - self.last.at >= STRETCH {
            self.stretch();
        }
    }

    fn stretch(&mut self) {
        let now = State::take();
        adopt(&mut self.ours, &now.processes, std::process::id());
        let cpu = now.cpu.since(&self.last.cpu);
        let others = ticks_of_others(&self.last.processes, &now.processes, &self.ours);
        let share = |ticks: u64| (ticks as f64 / cpu.total().max(1) as f64).min(1.0);
        self.seen.others = self.seen.others.max(share(others));
        self.seen.stolen = self.seen.stolen.max(share(cpu.steal));
        self.last = now;
    }

    /// Ends.
    pub(crate) fn finish(mut self) -> Seen {
        if clock::now() - self.last.at >= LAST_STRETCH {
            self.stretch();
        }
        self.seen.quota = quota().saturating_sub(self.first_quota);
        self.seen.heat = heat().saturating_sub(self.first_heat);
        self.seen.mhz = self.first_mhz.zip(Fingerprint::take().mhz);
        self.seen
    }
}

fn processes() -> Processes {
    let Ok(entries) = fs::read_dir("/proc") else { return Processes::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let p = ProcessTicks::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        (!p.kernel).then_some(((pid, p.start), p))
    })
    .collect()
}

/// Adds to `ours` the process `me` and whatever descends from one of ours.
fn adopt(ours: &mut HashSet<Key>, processes: &Processes, me: u32) {
    let by_id: HashMap<u32, Key> = processes.keys().map(|key| (key.0, *key)).collect();
    ours.extend(by_id.get(&me));
    for key in processes.keys() {
        let mut line = vec![*key];
        // A chain of parents has an end; the bound is for a table that changed while it was read.
        while line.len() < 100 {
            let Some(last) = line.last() else { break };
            if ours.contains(last) {
                ours.extend(line);
                break;
            }
            let parent = processes.get(last).and_then(|p| by_id.get(&p.parent));
            let Some(parent) = parent.filter(|p| p.0 > 1) else { break };
            line.push(*parent);
        }
    }
}

/// CPU ticks that processes which are not `ours` had from `before` to `after`, those of children
/// that came and went included: what a child had is its parent's after its end. (Only the children
/// that init adopted are not counted: some of them may have been ours.)
fn ticks_of_others(before: &Processes, after: &Processes, ours: &HashSet<Key>) -> u64 {
    let all = |key: &Key, p: &ProcessTicks| p.ticks + if key.0 == 1 { 0 } else { p.reaped };
    // Ticks of a child that has ended come back within its parent's, and were counted once as the
    // child's own.
    let mut returned: HashMap<u32, u64> = HashMap::new();
    for (key, p) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        *returned.entry(p.parent).or_default() += all(key, p);
    }
    let others = after.iter().filter(|(key, _)| !ours.contains(*key));
    others
        .map(|(key, p)| {
            let then = before.get(key).map_or(0, |p| all(key, p));
            let returned = if key.0 == 1 { 0 } else { returned.get(&key.0).copied().unwrap_or(0) };
            all(key, p).saturating_sub(then + returned)
        })
        .sum()
}

/// How long the quotas of this process's control groups, its own and those above it, have held it
/// back.
fn quota() -> Duration {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let stats = groups.lines().flat_map(stat_files).filter_map(|path| fs::read_to_string(path).ok());
    stats.map(|text| throttled(&text)).sum()
}

/// The files that tell of quotas, for a line of /proc/self/cgroup: of the group and of all above
/// it.
fn stat_files(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
        return Vec::new();
    };
    let root = match (number, controllers) {
        ("0", "") => "/sys/fs/cgroup",
        (_, c) if c.split(',').any(|c| c == "cpu") => "/sys/fs/cgroup/cpu",
        _ => return Vec::new(),
    };
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    groups.map(|g| Path::new(root).join(g).join("cpu.stat")).collect()
}

/// Of a file cpu.stat: version 2 counts microseconds, version 1 nanoseconds.
fn throttled(stat: &str) -> Duration {
    let value = |name: &str| {
        stat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    value("throttled_usec")
        .map(Duration::from_micros)
        .or_else(|| value("throttled_time").map(Duration::from_nanos))
        .unwrap_or_default()
}

/// How often the processors have slowed themselves down because of heat.
fn heat() -> u64 {
    let Ok(cpus) = fs::read_dir("/sys/devices/system/cpu") else { return 0 };
    cpus.filter_map(|cpu| {
        let text = fs::read_to_string(cpu.ok()?.path().join("thermal_throttle/core_throttle_count")).ok()?;
        text.trim().parse::<u64>().ok()
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, ticks: u64, reaped: u64) -> ProcessTicks {
        ProcessTicks { start: 5, ticks, kernel: false, parent, reaped }
    }

    fn table<const N: usize>(list: [(u32, ProcessTicks); N]) -> Processes {
        list.into_iter().map(|(pid, p)| ((pid, p.start), p)).collect()
    }

    #[test]
    fn what_descends_from_us_is_ours_even_when_its_parent_has_gone() {
        let mut ours = HashSet::new();
        let before = table([
            (1, process(0, 1, 0)),
            (10, process(1, 1, 0)),
            (20, process(10, 1, 0)),
            (21, process(20, 1, 0)),
            (30, process(1, 1, 0)),
        ]);
        adopt(&mut ours, &before, 10);
        assert_eq!(ours, HashSet::from([(10, 5), (20, 5), (21, 5)]));
        // 20 has gone, init has adopted 21, which then has a child.
        let after = table([
            (1, process(0, 1, 0)),
            (10, process(1, 1, 0)),
            (21, process(1, 1, 0)),
            (22, process(21, 1, 0)),
            (30, process(1, 1, 0)),
        ]);
        adopt(&mut ours, &after, 10);
        assert!(ours.contains(&(22, 5)) && !ours.contains(&(30, 5)) && !ours.contains(&(1, 5)));
    }

    #[test]
    fn time_of_others_is_counted_once_wherever_it_is_booked() {
        let ours = HashSet::from([(10, 5)]);
        let before = table([
            (1, process(0, 7, 500)),
            (10, process(1, 100, 0)),
            (40, process(1, 50, 20)),
            (41, process(40, 30, 0)),
        ]);
        // Ours worked; 40 worked 5; its child 41 worked 10 more, ended and was waited for, as was
        // another child that had 8; 50 is new and had 3; what init waited for is not counted.
        let after = table([
            (1, process(0, 8, 900)),
            (10, process(1, 400, 90)),
            (40, process(1, 55, 20 + 40 + 8)),
            (50, process(1, 3, 0)),
        ]);
        assert_eq!(ticks_of_others(&before, &after, &ours), 1 + 5 + 10 + 8 + 3);
        assert_eq!(ticks_of_others(&after, &after, &ours), 0);
    }

    #[test]
    fn quotas_of_both_versions_are_read_from_the_group_and_those_above() {
        assert_eq!(
            throttled("usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n"),
            Duration::from_micros(1500)
        );
        assert_eq!(throttled("nr_periods 0\nthrottled_time 2000000\n"), Duration::from_millis(2));
        assert_eq!(throttled(""), Duration::ZERO);
        let paths = |line: &str| -> Vec<String> {
            stat_files(line).iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(
            paths("0::/a/b"),
            ["/sys/fs/cgroup/a/b/cpu.stat", "/sys/fs/cgroup/a/cpu.stat", "/sys/fs/cgroup/cpu.stat"]
        );
        assert_eq!(paths("4:cpu,cpuacct:/"), ["/sys/fs/cgroup/cpu/cpu.stat"]);
        assert_eq!(paths("7:memory:/x"), [""; 0]);
    }
}
