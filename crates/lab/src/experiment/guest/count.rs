//! What a load takes by the counters of the guest's kernel.

use std::fs;
use std::time::Duration;

use super::orders::{Counted, Load, Place};
use crate::error::LabError;

/// What a load took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub took: Duration,
    pub idle: Duration,
    pub units: u64,
    pub switches: u64,
}

/// What the guest's kernel has counted since it was booted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    idle: Duration,
    switches: u64,
}

impl Kernel {
    /// As it is now.
    pub(super) fn look() -> Result<Self, LabError> {
        let stat = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
        let switches = parse_switches(&stat).ok_or_else(|| {
            LabError::Measurement("/proc/stat does not say how often threads were switched".into())
        })?;
        Ok(Self { idle: idle_time()?, switches })
    }

    /// Of `units` that took so long since then.
    pub(super) fn count(self, took: Duration, units: u64) -> Result<Count, LabError> {
        let now = Self::look()?;
        let idle = now.idle.saturating_sub(self.idle).min(took);
        Ok(Count { took, idle, units, switches: now.switches.saturating_sub(self.switches) })
    }
}

impl Count {
    pub(super) fn told(&self, system: &str, place: Place, load: Load, shift: u32) -> Counted {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Counted {
            system: system.into(),
            place,
            load,
            nanos: nanos(self.took),
            instructions: nanos(self.took.saturating_sub(self.idle)) >> shift,
            units: self.units,
            idle: self.idle.as_secs_f64() / self.took.as_secs_f64().max(1e-9),
            switches: self.switches,
        }
    }
}

/// For how long the processor has been idle.
fn idle_time() -> Result<Duration, LabError> {
    // The figures of /proc/stat have steps of a hundredth of a second, ten million instructions.
    let text = fs::read_to_string("/proc/timer_list").map_err(LabError::io("reading /proc/timer_list"))?;
    parse_idle(&text)
        .ok_or_else(|| LabError::Measurement("/proc/timer_list does not say how long it was idle".into()))
}

fn parse_idle(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix(".idle_sleeptime"))?;
    let nanos = line.trim_start_matches([' ', ':']).split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn parse_switches(stat: &str) -> Option<u64> {
    stat.lines().find_map(|l| l.strip_prefix("ctxt "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_is_read_to_the_nanosecond() {
        let text = "cpu: 0\n  .nohz_mode      : 2\n  .idle_entrytime : 5 nsecs\n  .idle_sleeptime : 1234567891 nsecs\n";
        assert_eq!(parse_idle(text), Some(Duration::from_nanos(1_234_567_891)));
        assert_eq!(parse_idle("  .idle_sleeptime\n"), None);
        assert_eq!(parse_idle(""), None);
        assert_eq!(parse_switches("cpu  1 2\nintr 5\nctxt 4711\nbtime 1\n"), Some(4711));
        assert_eq!(parse_switches("cpu  1 2\n"), None);
    }

    #[test]
    fn instructions_are_busy_time_by_the_length_of_one() {
        let count = Count {
            took: Duration::from_nanos(6400),
            idle: Duration::from_nanos(3200),
            units: 4,
            switches: 12,
        };
        let load = Load::Udp { size: 64, burst: 1, packets: 4 };
        let fast = count.told("plain", Place::Line, load, 0);
        assert_eq!((fast.instructions, fast.nanos, fast.units, fast.idle), (3200, 6400, 4, 0.5));
        let slow = count.told("plain", Place::Line, load, 5);
        assert_eq!((slow.instructions, slow.nanos), (100, 6400));
    }
}
