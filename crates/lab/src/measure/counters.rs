//! The kernel's counters: parsers for /proc/stat, /proc/net/dev, /proc/net/snmp style files and the
//! like. Pure, but for the few functions at the end that read /proc.

use std::collections::HashMap;
use std::fs;

use serde::{Deserialize, Serialize};

/// The first line of /proc/stat: time of all processors together, in clock ticks (proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTicks {
    /// In user mode.
    pub user: u64,
    /// In user mode with low priority.
    pub nice: u64,
    /// In the kernel, for a process.
    pub system: u64,
    /// Doing nothing.
    pub idle: u64,
    /// Doing nothing while a block device is waited for.
    pub iowait: u64,
    /// In interrupts.
    pub irq: u64,
    /// In software interrupts: here the kernel receives and forwards.
    pub softirq: u64,
    /// Not given to this virtual machine by its host.
    pub steal: u64,
}

impl CpuTicks {
    /// Parses /proc/stat.
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let mut v = line.split_whitespace().map(|w| w.parse().ok());
        let mut next = || v.next().flatten();
        Some(Self {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        })
    }

    /// Time added since `earlier`. The kernel lets idle and iowait go back a little; such a step
    /// counts as 0.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// The same beside a CPU soaker that had so many ticks at low priority, which are not to count
    /// as work. What other programs do at low priority is.
    #[must_use]
    pub fn beside_a_soaker(&self, had: u64) -> Self {
        let had = had.min(self.nice);
        Self { idle: self.idle + had, nice: self.nice - had, ..*self }
    }

    /// Seconds of `capacity` (processors times seconds) in which a processor did something for this
    /// machine, with `hertz` ticks a second: all but the idle ones. Without ticks on idle
    /// processors only idle time is accounted exactly.
    pub fn busy_seconds(&self, capacity: f64, hertz: f64) -> f64 {
        (capacity - (self.idle + self.iowait + self.steal) as f64 / hertz).clamp(0.0, capacity)
    }

    /// Ticks that were accounted as work: their shares by kind say more than their sum
    /// ([`CpuTicks::busy_seconds`]).
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// All ticks.
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait + self.steal
    }
}

/// One line of /proc/net/dev. A veth counts bytes with Ethernet headers (14 bytes a buffer), unless
/// the receiving end receives by polling (NAPI, which GRO switches on): then both ends count what
/// the receiver sees, IP packets without them. So do tunnel devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkCounters {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Buffers received: packets, or many packets in one buffer where segmentation offload crosses
    /// the link.
    pub rx_buffers: u64,
    /// Dropped on receipt.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Buffers sent.
    pub tx_buffers: u64,
    /// Dropped on sending.
    pub tx_dropped: u64,
}

impl LinkCounters {
    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            rx_buffers: self.rx_buffers.saturating_sub(earlier.rx_buffers),
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            tx_buffers: self.tx_buffers.saturating_sub(earlier.tx_buffers),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
        }
    }
}

/// Parses /proc/net/dev: the counters of every interface by name.
pub fn parse_links(dev: &str) -> Vec<(String, LinkCounters)> {
    dev.lines()
        .filter_map(|line| {
            let (name, values) = line.split_once(':')?;
            let v: Vec<u64> = values.split_whitespace().map_while(|w| w.parse().ok()).collect();
            let [rx_bytes, rx_buffers, _, rx_dropped, _, _, _, _, tx_bytes, tx_buffers, _, tx_dropped, ..] =
                v[..]
            else {
                return None;
            };
            let counters =
                LinkCounters { rx_bytes, rx_buffers, rx_dropped, tx_bytes, tx_buffers, tx_dropped };
            Some((name.trim().to_string(), counters))
        })
        .collect()
}

/// The second column of /proc/net/softnet_stat over all processors: packets lost because the
/// backlog was full. A counter of the machine, not of one namespace.
pub fn parse_backlog_drops(softnet: &str) -> u64 {
    softnet.lines().filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum()
}

/// True when /proc/net/tcp (or tcp6) has a listening socket on `port`.
pub fn listens(tcp: &str, port: u16) -> bool {
    let port = format!("{port:04X}");
    tcp.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|a| a.rsplit(':').next());
        // State 0A is TCP_LISTEN.
        local == Some(port.as_str()) && fields.nth(1) == Some("0A")
    })
}

/// Fields of /proc/PID/stat of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTicks {
    /// When it started, ticks since boot: with the id it names a process for good.
    pub start: u64,
    /// CPU time of all its threads, ticks.
    pub ticks: u64,
    /// A thread of the kernel.
    pub kernel: bool,
    /// Process ID of the parent.
    pub parent: u32,
    /// CPU time of its children that have ended and been waited for, and of theirs, ticks.
    pub reaped: u64,
}

impl ProcessTicks {
    /// Parses /proc/PID/stat.
    pub fn parse(stat: &str) -> Option<Self> {
        // Counted from field 3, which follows the last parenthesis of the name.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        const PF_KTHREAD: u64 = 0x0020_0000;
        Some(Self {
            start: number(22)?,
            ticks: number(14)? + number(15)?,
            kernel: number(9)? & PF_KTHREAD != 0,
            parent: fields.get(1)?.parse().ok()?,
            reaped: number(16)? + number(17)?,
        })
    }
}

/// CPU ticks of every user process but those `inside`, by id and start time.
pub fn processes_outside(inside: &[u32]) -> HashMap<(u32, u64), u64> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| !inside.contains(pid))
        .filter_map(|pid| {
            let p = ProcessTicks::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
            (!p.kernel).then_some(((pid, p.start), p.ticks))
        })
        .collect()
}

/// Every process with its parent, by id; those included that have ended and are not yet waited for.
pub fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, ProcessTicks::parse(&stat)?.parent))
        })
        .collect()
}

/// CPU time of the threads of a process, nanoseconds, from schedstat. It contains the software
/// interrupts that ran in their context and lacks those that ran elsewhere.
pub fn process_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .filter_map(|t| {
            let text = fs::read_to_string(t.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Resident size of a process, KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// The name of a process.
pub fn process_name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_iowait_and_steal() {
        let a = CpuTicks::parse("cpu  100 2 30 1000 5 1 40 7 0 0\ncpu0 1 1 1 1\n").expect("a cpu line");
        let b = CpuTicks::parse("cpu  150 2 60 1100 5 1 90 8 0 0\n").expect("a cpu line");
        let d = b.since(&a);
        assert_eq!((d.busy(), d.softirq, d.idle, d.steal, d.total()), (130, 50, 100, 1, 231));
        assert_eq!(CpuTicks::parse("cpu  1 2 3"), None);
        assert_eq!(CpuTicks::parse("intr 5"), None);
    }

    #[test]
    fn busy_is_what_was_not_idle_however_little_was_accounted_as_work() {
        let ticks = CpuTicks { user: 3, idle: 100, iowait: 20, steal: 30, ..CpuTicks::default() };
        // Two processors for a second of 100 ticks: 50 of 200 were neither idle nor taken away.
        assert_eq!(ticks.busy_seconds(2.0, 100.0), 0.5);
        assert_eq!(
            (ticks.busy_seconds(1.0, 100.0), CpuTicks::default().busy_seconds(2.0, 100.0)),
            (0.0, 2.0)
        );
    }

    #[test]
    fn a_soakers_time_is_idle_and_that_of_other_programs_of_low_priority_is_not() {
        let ticks = CpuTicks { user: 5, nice: 60, idle: 10, ..CpuTicks::default() };
        for (had, nice, idle) in [(0, 60, 10), (40, 20, 50), (60, 0, 70), (99, 0, 70)] {
            let beside = ticks.beside_a_soaker(had);
            assert_eq!(
                (beside.nice, beside.idle, beside.user, beside.total()),
                (nice, idle, 5, ticks.total())
            );
        }
    }

    #[test]
    fn idle_that_goes_back_is_no_underflow() {
        let a = CpuTicks { idle: 10, ..CpuTicks::default() };
        assert_eq!(CpuTicks::default().since(&a).idle, 0);
    }

    #[test]
    fn link_counters_are_found_by_name() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n  \
            eth0:      90       1    0    2    0     0          0         0     70       3    0    4    0     0       0          0\n";
        let links = parse_links(text);
        assert_eq!(links.len(), 2);
        assert_eq!(links[1].0, "eth0");
        let expected = LinkCounters {
            rx_bytes: 90,
            rx_buffers: 1,
            rx_dropped: 2,
            tx_bytes: 70,
            tx_buffers: 3,
            tx_dropped: 4,
        };
        assert_eq!(links[1].1, expected);
    }

    #[test]
    fn backlog_drops_are_hexadecimal_and_summed() {
        assert_eq!(parse_backlog_drops("0000ffff 0000000a 00000000\n00000001 00000010 00000000\n"), 26);
    }

    #[test]
    fn only_a_listening_socket_counts_as_listening() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let listening = "   0: 00000000:1451 00000000:0000 0A 00000000:00000000\n";
        let connected = "   0: 0200010A:1451 0200020A:9C40 01 00000000:00000000\n";
        assert!(listens(&format!("{head}{listening}"), 5201));
        assert!(!listens(&format!("{head}{connected}"), 5201));
        assert!(!listens(&format!("{head}{listening}"), 5202));
    }

    #[test]
    fn a_process_name_may_contain_anything() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 4194304 10 0 0 0 11 22 3 4 20 0 1 0 12345 100 5";
        let expected = ProcessTicks { start: 12345, ticks: 33, kernel: false, parent: 1, reaped: 7 };
        assert_eq!(ProcessTicks::parse(stat), Some(expected));
    }
}
