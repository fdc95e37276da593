//! Runs the fuzz targets for some seconds of processor time each on stable Rust: seeds first, then
//! mutations of what was interesting.
//!
//! Every run is determined by its seed. A panic, an input that takes too long and an input that
//! allocates too much end the program with status 1 and print the input and the command that runs
//! it again.

#![allow(clippy::disallowed_methods, reason = "a fuzzer runs for a time and judges how long inputs take")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironswan_fuzz::corpus::{from_hex, seeds, seeds_dir, to_hex};
use ironswan_fuzz::mutate::{Rng, mutate};
use ironswan_fuzz::{TARGETS, Target, find};

const USAGE: &str = "\
usage: short [--seconds N] [--seed N] [--limit-ms N] [TARGET ...]   all targets, 5 s of processor time each, seed 1, 1000 ms an input
       short --replay TARGET HEX | @FILE                            one input
       short [--seconds N] --expect-crash TARGET                    status 0 when a planted defect is found
       short --list";

/// Counts what is allocated, so that an input that makes a parser allocate by a length field is
/// found.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: both calls go to the system allocator unchanged; what is added touches only atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `alloc` above with this layout, that is from the system
        // allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The input that is running now, for the watchdog.
struct Now {
    target: &'static str,
    input: Vec<u8>,
    /// Counts inputs; `running` says whether this one still runs.
    number: u64,
    running: bool,
}

struct Runner {
    seed: u64,
    limit: Duration,
    now: Arc<Mutex<Now>>,
}

/// Processor time of this program: the watchdog's share is nothing beside the inputs'.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

enum Finding {
    Panic(String),
    Slow(Duration),
    Memory(usize),
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::Slow(time) => write!(f, "too slow: {} ms", time.as_millis()),
            Self::Memory(bytes) => write!(f, "too much memory: {bytes} bytes at one time"),
        }
    }
}

fn report(target: &str, what: &dyn std::fmt::Display, input: &[u8], origin: &str) {
    let hex = to_hex(input);
    println!("{target}: FOUND {what}");
    println!("{target}: {origin}, {} bytes: {hex}", input.len());
    println!("{target}: again with: short --replay {target} {hex}");
}

impl Runner {
    fn new(seed: u64, limit: Duration) -> Self {
        let now = Arc::new(Mutex::new(Now { target: "", input: Vec::new(), number: 0, running: false }));
        let watched = Arc::clone(&now);
        std::thread::spawn(move || watchdog(&watched, seed, limit));
        Self { seed, limit, now }
    }

    /// Runs one input. Slow means slow twice: the first time may be the machine's fault.
    fn run(&self, target: &Target, input: &[u8]) -> Result<u64, Finding> {
        match self.run_once(target, input) {
            Err(Finding::Slow(_)) => {
                let before = cpu_time();
                let result = self.run_once(target, input);
                let time = cpu_time() - before;
                match result {
                    Err(Finding::Slow(_)) if time > self.limit => Err(Finding::Slow(time)),
                    Err(Finding::Slow(_)) => Ok(0),
                    other => other,
                }
            }
            other => other,
        }
    }

    fn run_once(&self, target: &Target, input: &[u8]) -> Result<u64, Finding> {
        {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            now.target = target.name;
            now.input.clear();
            now.input.extend_from_slice(input);
            now.number += 1;
            now.running = true;
        }
        let began = Instant::now();
        let before = ALLOCATED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        let memory = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        let time = began.elapsed();
        self.now.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        match result {
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
                Err(Finding::Panic(text.to_owned()))
            }
            Ok(_) if memory > target.max_memory => Err(Finding::Memory(memory)),
            Ok(_) if time > self.limit => Err(Finding::Slow(time)),
            Ok(signature) => Ok(signature),
        }
    }

    /// Seeds, then mutations until the time is up. `false` after a finding.
    fn fuzz(&self, target: &Target, time: Duration) -> bool {
        let mut corpus = match seeds(target) {
            Ok(all) if !all.is_empty() => all,
            Ok(_) => return missing(target, "no files"),
            Err(e) => return missing(target, &e.to_string()),
        };
        let mut seen = HashSet::new();
        for (n, input) in corpus.iter().enumerate() {
            match self.run(target, input) {
                Ok(signature) => drop(seen.insert(signature)),
                Err(finding) => {
                    report(target.name, &finding, input, &format!("seed file {n}"));
                    return false;
                }
            }
        }
        let mut rng = Rng::new(self.seed);
        let (began, start) = (cpu_time(), corpus.len());
        let mut runs = 0u64;
        let mut input = Vec::new();
        while !runs.is_multiple_of(64) || cpu_time() - began < time {
            runs += 1;
            input.clear();
            // What was found last is as likely to lead on as all else together.
            let pick = if rng.below(2) == 0 {
                corpus.len() - 1 - rng.below(corpus.len().min(8))
            } else {
                rng.below(corpus.len())
            };
            input.extend_from_slice(&corpus[pick]);
            mutate(&mut input, &corpus, target.dictionary, target.max_len, &mut rng);
            match self.run(target, &input) {
                Ok(signature) => {
                    if corpus.len() < 10_000 && seen.insert(signature) {
                        corpus.push(input.clone());
                    }
                }
                Err(finding) => {
                    report(target.name, &finding, &input, &format!("seed {}, input {runs}", self.seed));
                    return false;
                }
            }
        }
        let (found, took) = (corpus.len() - start, (cpu_time() - began).as_millis().max(1));
        let per_second = u128::from(runs) * 1000 / took;
        println!(
            "{}: seed {}, {runs} inputs ({per_second}/s), {start} seeds, {found} kept",
            target.name, self.seed
        );
        true
    }
}

/// An input that does not return cannot be reported by the thread that runs it.
fn watchdog(watched: &Mutex<Now>, seed: u64, limit: Duration) {
    let (mut number, mut cpu, mut wall) = (0, cpu_time(), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !now.running || now.number != number {
            (number, cpu, wall) = (now.number, cpu_time(), Instant::now());
        } else if cpu_time() - cpu > 2 * limit || wall.elapsed() > 60 * limit {
            report(now.target, &Finding::Slow(wall.elapsed()), &now.input, &format!("seed {seed}"));
            std::process::exit(1);
        }
    }
}

fn missing(target: &Target, why: &str) -> bool {
    println!("{}: no seeds in {}: {why}", target.name, seeds_dir(target).display());
    false
}

/// Runs this program on a planted defect: it must be found, reported, and come again from what was
/// printed.
fn expect_crash(target: &Target, seconds: u64, seed: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let run = |args: &[&str]| Command::new(&program).args(args).output().map_err(|e| e.to_string());
    let out = run(&[
        "--seconds",
        &seconds.to_string(),
        "--seed",
        &seed.to_string(),
        "--limit-ms",
        "300",
        target.name,
    ])?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.code() != Some(1) || !text.contains("FOUND") {
        return Err(format!("not found within {seconds} s: {text}"));
    }
    let hex = text.split_whitespace().last().unwrap_or_default();
    let again = run(&["--limit-ms", "300", "--replay", target.name, hex])?;
    if again.status.code() != Some(1) {
        return Err(format!("it does not come again: {text}"));
    }
    Ok(text)
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("short: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut seconds, mut seed, mut limit_ms) = (None, 1, 1000);
    let mut targets: Vec<&Target> = Vec::new();
    let mut crash = None;
    let mut replay = None;
    let target = |name: &str| find(name).ok_or_else(|| format!("no target '{name}'; --list names them"));
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number = |v: String| v.parse::<u64>().map_err(|_| format!("not a number: {v}"));
        match arg.as_str() {
            "--seconds" => seconds = Some(number(value()?)?),
            "--seed" => seed = number(value()?)?,
            "--limit-ms" => limit_ms = number(value()?)?,
            "--expect-crash" => crash = Some(target(&value()?)?),
            "--replay" => replay = Some((target(&value()?)?, value()?)),
            "--list" => {
                TARGETS.iter().filter(|t| !t.hidden).for_each(|t| println!("{}", t.name));
                return Ok(true);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            name if !name.starts_with('-') => targets.push(target(name)?),
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    if let Some(target) = crash {
        return match expect_crash(target, seconds.unwrap_or(20), seed) {
            Ok(text) => {
                println!("{}: the planted defect was found, as it must be", target.name);
                text.lines().for_each(|line| println!("  {line}"));
                Ok(true)
            }
            Err(why) => {
                println!("{}: the planted defect was missed: {why}", target.name);
                Ok(false)
            }
        };
    }
    silence_panics();
    let runner = Runner::new(seed, Duration::from_millis(limit_ms));
    if let Some((target, what)) = replay {
        let input = match what.strip_prefix('@') {
            Some(path) => std::fs::read(path).map_err(|e| format!("{path}: {e}"))?,
            None => from_hex(&what).ok_or("not hexadecimal")?,
        };
        return Ok(match runner.run(target, &input) {
            Ok(signature) => {
                println!("{}: fine, result {signature:016x}", target.name);
                true
            }
            Err(finding) => {
                report(target.name, &finding, &input, "replayed");
                false
            }
        });
    }
    if targets.is_empty() {
        targets.extend(TARGETS.iter().filter(|t| !t.hidden));
    }
    let mut good = true;
    for target in targets {
        good &= runner.fuzz(target, Duration::from_secs(seconds.unwrap_or(5)));
    }
    Ok(good)
}

/// A finding is reported once, with its input: the first panic's place is printed, and no
/// backtrace.
fn silence_panics() {
    static SAID: AtomicBool = AtomicBool::new(false);
    panic::set_hook(Box::new(|info| {
        if !SAID.swap(true, Ordering::Relaxed) {
            println!("{info}");
        }
    }));
}
