//! A CPU soaker: threads of the lowest priority, one on each processor, take whatever time is left
//! over and count the units of work they get done with it. Calibrated on the machine with nothing
//! else to do, the count says what share of the processors was left, whatever the kernel's
//! accounting believes.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::topology::Cpus;

/// Of the soaker's threads: nothing else has to wait for them.
const NICE: i32 = 19;
/// Multiplications of a unit: some microseconds, so that neither counting nor the granularity
/// matters.
const UNIT: u32 = 4096;

/// Threads that soak up time; dropping it ends them.
#[derive(Debug)]
pub struct Soaker {
    stop: Arc<AtomicBool>,
    work: Vec<Arc<Work>>,
    threads: Vec<JoinHandle<()>>,
}

/// Units of work that a thread has done.
#[derive(Debug, Default)]
struct Work {
    units: AtomicU64,
    /// Processor time that it has had, nanoseconds.
    time: AtomicU64,
}

/// A moment of a soaker.
#[derive(Debug, Clone, Copy)]
pub struct Soaked {
    at: Instant,
    units: u64,
    time: Duration,
}

impl Soaked {
    /// Processor time that the soaker has had since `earlier`, clock ticks.
    pub fn ticks_since(self, earlier: Self) -> u64 {
        let had = self.time.saturating_sub(earlier.time).as_secs_f64();
        (had * rustix::param::clock_ticks_per_second() as f64).round() as u64
    }
}

/// Work that a soaker does when nothing else runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Units per second, all processors together.
    pub rate: f64,
    /// Share of the processors' time that it had meanwhile, by the scheduler: when something else
    /// ran, less than all.
    pub had: f64,
    /// The rate of its worst span, as a share of that of its best.
    pub worst: f64,
}

/// A soaker that gets no CPU time is given up after this many times the time that its spans should
/// take.
const TRIES_PER_SPAN: u32 = 20;
/// A calibration was disturbed when the soaker had less than this share of the processors, or when
/// its worst span is below this share of its best.
const UNDISTURBED: f64 = 0.95;

impl Soaker {
    /// Starts a thread on each processor that this process may use.
    pub fn start() -> Result<Self, LabError> {
        let mut soaker = Self { stop: Arc::default(), work: Vec::new(), threads: Vec::new() };
        for cpu in 0..super::cpus() {
            let (stop, work) = (soaker.stop.clone(), Arc::new(Work::default()));
            soaker.work.push(work.clone());
            let thread = thread::Builder::new().name(format!("lab-soaker-{cpu}"));
            let thread = thread.spawn(move || {
                // Pinning fails where processors are numbered with gaps; then the scheduler spreads
                // the threads.
                let _ = Cpus::new([cpu]).pin_this_thread();
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
                let mut state = cpu as u64 + 1;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..UNIT {
                        state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
                    }
                    // Asking for the time costs less than a hundredth of this.
                    if work.units.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
                        let time = u64::try_from(clock::of_this_thread().as_nanos()).unwrap_or(u64::MAX);
                        work.time.store(time, Ordering::Relaxed);
                    }
                }
            });
            soaker.threads.push(thread.map_err(LabError::io("starting a soaker thread"))?);
        }
        Ok(soaker)
    }

    /// This moment.
    pub fn now(&self) -> Soaked {
        let sum = |of: fn(&Work) -> &AtomicU64| self.work.iter().map(|w| of(w).load(Ordering::Relaxed)).sum();
        Soaked { at: clock::now(), units: sum(|w| &w.units), time: Duration::from_nanos(sum(|w| &w.time)) }
    }

    /// Units per second between two moments.
    pub fn rate(from: Soaked, to: Soaked) -> f64 {
        (to.units - from.units) as f64 / Self::seconds(from, to).max(1e-9)
    }

    /// Seconds between two moments.
    pub fn seconds(from: Soaked, to: Soaked) -> f64 {
        (to.at - from.at).as_secs_f64()
    }

    /// Calibrates on a machine with nothing else to do: the best of several spans, since whatever
    /// disturbs makes less. On a busy machine goes on until there was a moment for it.
    pub fn calibrate(&self, spans: u32, span: Duration) -> Result<Calibration, LabError> {
        let (mut best, mut worst, mut had) = (0f64, f64::INFINITY, 0.0);
        for n in 0..spans.max(1).saturating_mul(TRIES_PER_SPAN) {
            if n >= spans && best > 0.0 {
                break;
            }
            let from = self.now();
            interrupt::pause(span)?;
            let to = self.now();
            let rate = Self::rate(from, to);
            if rate > best {
                let capacity = self.work.len() as f64 * Self::seconds(from, to);
                (best, had) = (rate, to.time.saturating_sub(from.time).as_secs_f64() / capacity.max(1e-9));
            }
            worst = worst.min(rate);
        }
        if best > 0.0 {
            Ok(Calibration { rate: best, had: had.min(1.0), worst: worst / best })
        } else {
            Err(LabError::Measurement("the CPU soaker got no time at all: measure on a quiet machine".into()))
        }
    }
}

impl Calibration {
    /// The share of all processors that was left between two moments, 0 to 1.
    pub fn left(&self, from: Soaked, to: Soaked) -> f64 {
        self.of(from, to).min(1.0)
    }

    /// The same without its bound: more than 1 says that the machine was not idle when it was
    /// calibrated.
    pub fn of(&self, from: Soaked, to: Soaked) -> f64 {
        Soaker::rate(from, to) / self.rate
    }

    /// The disturbance, when there was one.
    pub fn disturbed(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        if self.had < UNDISTURBED {
            let had = percent(self.had);
            Some(format!(
                "while the soaker was calibrated without traffic it had no more than {had} of the processors"
            ))
        } else if self.worst < UNDISTURBED {
            let by = percent(1.0 - self.worst);
            Some(format!("while the soaker was calibrated without traffic its rate changed by {by}"))
        } else {
            None
        }
    }
}

impl Drop for Soaker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A calibrated soaker that runs beside everything that is measured.
#[derive(Debug)]
pub struct Soak {
    soaker: Soaker,
    calibration: Calibration,
}

impl Soak {
    /// Starts it and calibrates it: nothing else may be at work yet.
    pub fn start() -> Result<Self, LabError> {
        let soaker = Soaker::start()?;
        let calibration = soaker.calibrate(5, Duration::from_millis(200))?;
        Ok(Self { soaker, calibration })
    }

    /// Rate of the soaker without traffic, measured at start.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// This moment.
    pub fn now(&self) -> Soaked {
        self.soaker.now()
    }

    /// The share of the processors that it did not get between two moments.
    pub fn busy(&self, from: Soaked, to: Soaked) -> f64 {
        1.0 - self.calibration.left(from, to)
    }
}

/// The share of the processors that was busy, by accounting and by a soaker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Busy {
    /// Share that /proc/stat says was busy with something other than the soaker.
    pub accounting: f64,
    /// Share that the soaker did not get, of what it got without traffic.
    pub soaker: f64,
    /// By how much the two may differ all the same: accounting counts ticks, of which a short
    /// window has few; what other programs and the host of a virtual machine took is not the same
    /// to both; and the soaker has caches to share.
    pub apart: f64,
}

/// Error of the soaker's share from shared caches, a changing clock rate and the edges of a window.
const INEXACT: f64 = 0.03;

impl Busy {
    /// By how much more the two differ than is explained.
    pub(crate) fn unexplained(&self) -> f64 {
        (self.accounting - self.soaker).abs() - self.apart
    }

    /// Of a window of `seconds` in which shares of the machine were taken by others.
    pub(crate) fn new(accounting: f64, soaker: f64, seconds: f64, taken: f64) -> Self {
        // Three standard deviations of a share of one half, where each processor's tick says what
        // runs there.
        let ticks = super::cpus() as f64 * seconds * rustix::param::clock_ticks_per_second() as f64;
        Self { accounting, soaker, apart: (INEXACT + 1.5 / ticks.max(1.0).sqrt() + taken).min(1.0) }
    }

    /// As measures of a sample; of no value without a soaker.
    pub(crate) fn measures(busy: Option<&Self>) -> [(&'static str, f64); 3] {
        let of = |f: fn(&Self) -> f64| busy.map_or(f64::NAN, f);
        [
            ("busy_kernel", of(|b| b.accounting)),
            ("busy_soaker", of(|b| b.soaker)),
            ("busy_apart", of(|b| b.apart)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_left_is_the_rate_over_that_of_the_idle_machine() {
        let at = clock::now();
        let soaked = |seconds, units| {
            let s = Duration::from_secs(seconds);
            Soaked { at: at + s, units, time: s }
        };
        let (from, to) = (soaked(0, 100), soaked(2, 300));
        let calibration = |rate| Calibration { rate, had: 1.0, worst: 1.0 };
        assert!((Soaker::rate(from, to) - 100.0).abs() < 1e-6);
        assert!((calibration(200.0).left(from, to) - 0.5).abs() < 1e-9);
        assert!((calibration(50.0).left(from, to) - 1.0).abs() < 1e-9, "never more than all");
        assert!((calibration(50.0).of(from, to) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_calibration_beside_other_work_says_so() {
        let calm = Calibration { rate: 1.0, had: 0.99, worst: 0.98 };
        assert_eq!(calm.disturbed(), None);
        let uneven = Calibration { worst: 0.8, ..calm }.disturbed().expect("a reason");
        assert!(uneven.ends_with("its rate changed by 20 %"), "{uneven}");
        // Whoever is not nice has the processors, and nothing that the machine does beside gives
        // them back.
        let stop = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            for _ in 0..2 * crate::measure::cpus() {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let soaker = Soaker::start().expect("threads");
            let calibration = (0..50).find_map(|_| soaker.calibrate(2, Duration::from_millis(200)).ok());
            stop.store(true, Ordering::Relaxed);
            calibration.expect("some time within twenty seconds")
        });
        assert!(beside.had < 0.9, "{beside:?}");
        let why = beside.disturbed().expect("a reason");
        assert!(why.contains("no more than") && why.ends_with("of the processors"), "{why}");
    }

    #[test]
    fn short_windows_and_other_programs_explain_a_difference() {
        let apart = |seconds, taken| Busy::new(0.5, 0.5, seconds, taken).apart;
        assert!(apart(0.1, 0.0) > apart(5.0, 0.0) && apart(5.0, 0.0) < 0.1, "{}", apart(5.0, 0.0));
        assert!((apart(5.0, 0.2) - apart(5.0, 0.0) - 0.2).abs() < 1e-9);
        assert!(Busy::measures(None).iter().all(|(_, v)| v.is_nan()));
    }

    #[test]
    fn a_soaker_counts_and_ends() {
        let soaker = Soaker::start().expect("threads");
        // The lowest priority may get nothing for a while on a busy machine.
        let calibration = (0..50).find_map(|_| soaker.calibrate(2, Duration::from_millis(100)).ok());
        let calibration = calibration.expect("some time within ten seconds");
        let from = soaker.now();
        thread::sleep(Duration::from_millis(50));
        assert!((0.0..=1.0).contains(&calibration.left(from, soaker.now())));
        let threads = soaker.threads.len();
        drop(soaker);
        assert_eq!(threads, crate::measure::cpus());
    }
}
