//! What the processors do, by samples: `perf` looks at each of them many times a second, by a
//! clock, and writes down which process runs there and, in the kernel, which functions called one
//! another.
//! It needs no counters of the processor, so it works in a virtual machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::process::{self, Journal, Process, end_all};

/// `perf` has begun when its file has been there for this long.
const BEGUN: Duration = Duration::from_millis(300);
/// The longest that `perf` may take to begin, to end, and to read its file.
const PERF_TIMEOUT: Duration = Duration::from_secs(60);

/// One look at one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Name of the thread that ran there, as the kernel has it.
    pub name: String,
    /// Its process; 0 where none ran.
    pub pid: u32,
    /// Functions of the kernel, the innermost first. Empty where the process itself ran.
    pub calls: Vec<String>,
}

/// Samples under way. Dropping it ends `perf` and removes its file.
pub(crate) struct Sampler {
    perf: Process,
    data: PathBuf,
}

impl Sampler {
    /// Looks at each processor in a second. Not a divisor of the kernel's own ticks, so that the
    /// two do not fall together.
    pub(crate) const RATE: u32 = 1999;

    /// What this machine lacks for it.
    pub(crate) fn lacks() -> Vec<Remedy> {
        match process::find("perf") {
            Some(_) => vec![],
            None => vec![Remedy::new("`perf` is not installed", "apt-get install linux-perf")],
        }
    }

    /// Begins to look at all processors. Its files go to the folder `dir`.
    pub(crate) fn start(journal: &Journal, dir: &Path) -> Result<Self, LabError> {
        let data = dir.join("perf.data");
        let _ = fs::remove_file(&data);
        let (rate, file) = (Self::RATE.to_string(), data.display().to_string());
        let argv = [
            "perf",
            "record",
            "-q",
            "-a",
            "-e",
            "cpu-clock",
            "-F",
            &rate,
            "-g",
            "--kernel-callchains",
            "-o",
            &file,
        ];
        let perf = Process::start(journal, "perf", &argv, &dir.join("perf.log"))?;
        let mut sampler = Self { perf, data };
        let end = clock::now() + PERF_TIMEOUT;
        while !sampler.data.exists() && clock::now() < end {
            sampler.alive()?;
            interrupt::pause(Duration::from_millis(10))?;
        }
        interrupt::pause(BEGUN)?;
        sampler.alive()?;
        Ok(sampler)
    }

    fn alive(&mut self) -> Result<(), LabError> {
        match self.perf.ended() {
            None => Ok(()),
            Some(status) => Err(self.failed(&format!("it ended ({status})"))),
        }
    }

    fn failed(&self, why: &str) -> LabError {
        let said = self.perf.tail(3).lines.join("; ");
        LabError::Measurement(format!(
            "perf takes no samples here: {why}; {said}: a container needs CAP_PERFMON, or kernel.perf_event_paranoid=-1"
        ))
    }

    /// Ends it and gives all samples.
    pub(crate) fn stop(mut self, journal: &Journal) -> Result<Vec<Stack>, LabError> {
        self.alive()?;
        let killed = end_all(std::slice::from_mut(&mut self.perf), PERF_TIMEOUT);
        if !killed.is_empty() {
            return Err(self.failed("it had to be killed"));
        }
        let file = self.data.display().to_string();
        let argv = ["perf", "script", "-i", &file, "-F", "comm,pid,tid,ip,sym"];
        let stacks = parse(&process::run(journal, &argv, PERF_TIMEOUT)?);
        if stacks.is_empty() {
            return Err(self.failed("its file has no sample"));
        }
        if !stacks.iter().flat_map(|s| &s.calls).any(|call| call != UNKNOWN) {
            let why = "the kernel hides the names of its functions";
            let action = "sysctl -w kernel.kptr_restrict=0";
            return Err(LabError::Unfit(vec![Remedy::new(why, action)]));
        }
        Ok(stacks)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        end_all(std::slice::from_mut(&mut self.perf), Duration::from_secs(2));
        let _ = fs::remove_file(&self.data);
    }
}

/// A function without a name.
const UNKNOWN: &str = "[unknown]";

/// Reads what `perf script` prints: a line with thread and process for each sample, then a line for
/// each function, with its address.
fn parse(text: &str) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for line in text.lines() {
        if let Some((address, name)) = line.strip_prefix('\t').and_then(|l| l.trim().split_once(' ')) {
            // The upper half of all addresses is the kernel's.
            let kernel = u64::from_str_radix(address, 16).is_ok_and(|a| a >= 1 << 63);
            if let Some(stack) = stacks.last_mut().filter(|_| kernel) {
                stack.calls.push(name.to_string());
            }
        } else if let Some((name, ids)) = line.trim_end().rsplit_once(' ') {
            let pid = ids.split_once('/').and_then(|(pid, _)| pid.parse().ok());
            stacks.extend(pid.map(|pid| Stack { name: name.trim().into(), pid, calls: vec![] }));
        }
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_their_process_and_the_kernel_s_functions_from_the_inside_out() {
        let text = "two words 12/34 \n\tffffffff815e4699 copy_page\n\tffffffff821ef691 do_syscall_64\n\t  7ffe01 main\n\n\
                    swapper     0/0     \n\tffffffff81000130 pv_native_safe_halt\n\n\
                    ironswan   77/78    \n\n";
        let stack = |name: &str, pid, calls: &[&str]| Stack {
            name: name.into(),
            pid,
            calls: calls.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(
            parse(text),
            [
                stack("two words", 12, &["copy_page", "do_syscall_64"]),
                stack("swapper", 0, &["pv_native_safe_halt"]),
                stack("ironswan", 77, &[]),
            ]
        );
        assert_eq!(parse("nothing of the kind\n\n\tzz\n"), []);
    }
}
