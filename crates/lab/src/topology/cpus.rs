//! Which processors do what: affinity of threads, and where the kernel handles what a link receives
//! (RPS, or threads that poll).
//!
//! On a machine of our own the load comes from another machine and the system under test pays for
//! receiving it. Here a veth pair would let the sender pay: the receiving half of the link runs in
//! the sender's context. Receive packet steering moves it to the processors that the link's box is
//! said to have, through the same bounded backlog that a busy interface has. But it does so in
//! software interrupts, which come before everything that a processor has to run: what arrives
//! starves what carries. Threads that poll (threaded NAPI) take their turn with all others, as the
//! scheduler sees fit.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::direct::{DEVICE, Direct};
use super::line::{LINKS, Line};
use super::netdev;
use super::netns::Netns;
use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};

/// A set of processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// The processors with these numbers.
    pub fn new(numbers: impl IntoIterator<Item = usize>) -> Self {
        Self(numbers.into_iter().collect())
    }

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.0.iter().filter(|n| **n < CpuSet::MAX_CPU).for_each(|n| set.set(*n));
        set
    }

    /// Keeps the calling thread on them; threads and processes that it starts later inherit that.
    pub fn pin_this_thread(&self) -> Result<(), LabError> {
        sched_setaffinity(None, &self.set())
            .map_err(|e| LabError::io(format!("keeping a thread on processor {self}"))(e.into()))
    }

    /// Keeps a thread, by its id, on them.
    fn hold(&self, thread: u32) -> Result<(), LabError> {
        let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
        sched_setaffinity(pid, &self.set())
            .map_err(|e| LabError::io(format!("keeping thread {thread} on processor {self}"))(e.into()))
    }

    /// Keeps all threads of a process that runs on them; threads that these start later inherit
    /// that.
    pub(crate) fn hold_process(&self, pid: u32) -> Result<(), LabError> {
        let tasks = format!("/proc/{pid}/task");
        let mut held = BTreeSet::new();
        // A thread that starts another one before it is pinned itself leaves one that is not: read
        // the list again until nothing new is in it.
        loop {
            let list = fs::read_dir(&tasks).map_err(LabError::io(format!("listing {tasks}")))?;
            let threads = list.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
            let new: Vec<u32> = threads.filter(|t| held.insert(*t)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for thread in new {
                match self.hold(thread) {
                    Err(e) if fs::exists(format!("{tasks}/{thread}")).unwrap_or(true) => return Err(e),
                    _ => {}
                }
            }
        }
    }

    /// Calls `work` with the calling thread kept on them; what it starts stays there.
    pub fn while_pinned<T>(&self, work: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        let before = sched_getaffinity(None)
            .map_err(|e| LabError::io("reading this thread's processors")(e.into()))?;
        self.pin_this_thread()?;
        let result = work();
        sched_setaffinity(None, &before)
            .map_err(|e| LabError::io("giving a thread its processors back")(e.into()))?;
        result
    }

    /// As `/sys/class/net/*/queues/*/rps_cpus` wants them: hexadecimal words of 32, separated by
    /// commas.
    fn mask(&self) -> String {
        let words = self.0.iter().max().map_or(1, |n| n / 32 + 1);
        let word = |w: usize| self.0.iter().filter(|n| **n / 32 == w).fold(0u32, |m, n| m | 1 << (n % 32));
        (0..words).rev().map(|w| format!("{:08x}", word(w))).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&list.join(","))
    }
}

/// Boxes whose links can be told which processors handle what they receive.
pub trait Steered {
    /// Both ends of every link: its box and its device.
    fn link_ends(&self) -> Vec<(&Netns, &'static str)>;

    /// The commands that were run on it.
    fn journal(&self) -> &Journal;

    /// Has everything that any link receives handled by `cpus`, whoever sent it.
    fn receive_on(&self, cpus: &Cpus) -> Result<(), LabError> {
        self.link_ends().into_iter().try_for_each(|(node, device)| steer(self.journal(), node, device, cpus))
    }

    /// Has everything that any link receives polled by threads of the kernel that are kept on
    /// `cpus`; their ids.
    fn poll_on(&self, cpus: &Cpus) -> Result<Vec<u32>, LabError> {
        let mut threads = Vec::new();
        for (node, device) in self.link_ends() {
            // Without GRO a veth does not poll, and what comes from one that segments is not given
            // to GRO.
            let argv = ["ethtool", "-K", device, "gro", "on", "tso", "off"];
            process::run(self.journal(), &node.exec(&argv), super::line::COMMAND)?;
        }
        for (node, device) in self.link_ends() {
            let own = poll_by_threads(self.journal(), node, device)?;
            own.iter().try_for_each(|thread| cpus.hold(*thread))?;
            threads.extend(own);
        }
        Ok(threads)
    }
}

impl Steered for Line {
    fn link_ends(&self) -> Vec<(&Netns, &'static str)> {
        LINKS.iter().flat_map(|l| [l.left, l.right]).map(|(node, dev, _)| (self.node(node), dev)).collect()
    }

    fn journal(&self) -> &Journal {
        Self::journal(self)
    }
}

impl Steered for Direct {
    fn link_ends(&self) -> Vec<(&Netns, &'static str)> {
        vec![(self.a(), DEVICE), (self.b(), DEVICE)]
    }

    fn journal(&self) -> &Journal {
        Self::journal(self)
    }
}

/// The threads that poll a device from now on.
fn poll_by_threads(journal: &Journal, netns: &Netns, device: &str) -> Result<Vec<u32>, LabError> {
    let refused = |why: &dyn fmt::Display| {
        let lack = format!("the kernel does not have {device} polled by threads of which it tells ({why})");
        LabError::Unfit(vec![Remedy::new(lack, "another --placement, or Linux 6.8 or later")])
    };
    let script = format!("echo 1 > /sys/class/net/{device}/threaded");
    process::run(journal, &netns.exec(&["sh", "-c", &script]), super::line::COMMAND).map_err(
        |e| match e {
            LabError::Command { why, .. } => refused(&why),
            e => e,
        },
    )?;
    let threads = netns.inside(|| netdev::polling_threads(device))?.map_err(|e| refused(&e))?;
    if threads.is_empty() {
        return Err(refused(&"it has none"));
    }
    // The ids are those of the first PID namespace; in another they may be anybody's.
    for thread in &threads {
        let name = fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
        if !name.starts_with(&format!("napi/{device}-")) {
            return Err(refused(&"they are not in this PID namespace"));
        }
    }
    Ok(threads)
}

fn steer(journal: &Journal, netns: &Netns, device: &str, cpus: &Cpus) -> Result<(), LabError> {
    // `ip netns exec` mounts the namespace's own /sys.
    let script = format!(
        "for q in /sys/class/net/{device}/queues/rx-*/rps_cpus; do echo {} > $q || exit 1; done",
        cpus.mask()
    );
    process::run(journal, &netns.exec(&["sh", "-c", &script]), super::line::COMMAND).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn masks_are_words_of_32_with_the_highest_first() {
        assert_eq!(Cpus::new([1]).mask(), "00000002");
        assert_eq!(Cpus::new([0, 1, 5]).mask(), "00000023");
        assert_eq!(Cpus::new([33]).mask(), "00000002,00000000");
        assert_eq!(Cpus::new([]).mask(), "00000000");
    }

    #[test]
    fn a_process_is_held_with_all_its_threads_and_those_that_they_start() {
        let cpus = sched_getaffinity(None).expect("of this thread");
        let last = (0..CpuSet::MAX_CPU).rfind(|n| cpus.is_set(*n)).expect("a processor");
        let script = "import sys, threading, time\nstart = lambda: threading.Thread(target=time.sleep, args=(60,), \
                      daemon=True).start()\nstart(); start()\nprint(flush=True)\nsys.stdin.readline()\nstart()\n\
                      print(flush=True)\nsys.stdin.readline()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let (mut to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut lines = BufReader::new(from).lines();
        lines.next().expect("a line").expect("text");
        let only = Cpus::new([last]);
        only.hold_process(child.id()).expect("held");
        to.write_all(b"\n").expect("written");
        lines.next().expect("a line").expect("text");
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).expect("tasks").flatten();
        let threads: Vec<i32> = tasks.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        assert_eq!(threads.len(), 4);
        for thread in threads {
            let set = sched_getaffinity(Pid::from_raw(thread)).expect("of a thread");
            let on: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect();
            assert_eq!(on, [last]);
        }
        drop(to);
        child.wait().expect("ended");
        assert!(only.hold_process(child.id()).is_err(), "of a process that is over");
    }
}
