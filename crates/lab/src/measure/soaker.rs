//! A CPU soaker: threads of the lowest priority, one on each processor, take whatever time is left over and count the units
//! of work they get done with it. Calibrated on the machine with nothing else to do, the count says what share of the
//! processors was left, whatever the kernel's accounting believes.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::topology::Cpus;

/// Of the soaker's threads: nothing else has to wait for them.
const NICE: i32 = 19;
/// Multiplications of a unit: some microseconds, so that neither counting nor the granularity matters.
const UNIT: u32 = 4096;

/// Threads that soak up time; dropping it ends them.
#[derive(Debug)]
pub struct Soaker {
    stop: Arc<AtomicBool>,
    units: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

/// A moment of a soaker.
#[derive(Debug, Clone, Copy)]
pub struct Soaked {
    at: Instant,
    units: u64,
}

/// Units per second when nothing else runs, all processors together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration(pub f64);

impl Soaker {
    /// Starts a thread on each processor that this process may use.
    pub fn start() -> Result<Self, LabError> {
        let mut soaker = Self { stop: Arc::default(), units: Vec::new(), threads: Vec::new() };
        for cpu in 0..super::cpus() {
            let (stop, units) = (soaker.stop.clone(), Arc::new(AtomicU64::new(0)));
            soaker.units.push(units.clone());
            let thread = thread::Builder::new().name(format!("lab-soaker-{cpu}"));
            let thread = thread.spawn(move || {
                // Where processors are numbered with gaps the scheduler spreads the threads.
                let _ = Cpus::new([cpu]).pin_this_thread();
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
                let mut state = cpu as u64 + 1;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..UNIT {
                        state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
                    }
                    units.fetch_add(1, Ordering::Relaxed);
                }
            });
            soaker.threads.push(thread.map_err(LabError::io("starting a soaker thread"))?);
        }
        Ok(soaker)
    }

    /// This moment.
    pub fn now(&self) -> Soaked {
        Soaked { at: clock::now(), units: self.units.iter().map(|u| u.load(Ordering::Relaxed)).sum() }
    }

    /// Units per second between two moments.
    pub fn rate(from: Soaked, to: Soaked) -> f64 {
        (to.units - from.units) as f64 / Self::seconds(from, to).max(1e-9)
    }

    /// Seconds between two moments.
    pub fn seconds(from: Soaked, to: Soaked) -> f64 {
        (to.at - from.at).as_secs_f64()
    }

    /// Calibrates on a machine with nothing else to do: the best of several spans, since whatever disturbs makes less.
    pub fn calibrate(&self, spans: u32, span: Duration) -> Result<Calibration, LabError> {
        let mut best = 0f64;
        for _ in 0..spans.max(1) {
            let from = self.now();
            interrupt::pause(span)?;
            best = best.max(Self::rate(from, self.now()));
        }
        if best > 0.0 {
            Ok(Calibration(best))
        } else {
            Err(LabError::Measurement("the CPU soaker got no time at all: measure on a quiet machine".into()))
        }
    }
}

impl Calibration {
    /// The share of all processors that was left between two moments, 0 to 1.
    pub fn left(&self, from: Soaked, to: Soaked) -> f64 {
        (Soaker::rate(from, to) / self.0).clamp(0.0, 1.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_left_is_the_rate_over_that_of_the_idle_machine() {
        let at = clock::now();
        let (from, to) = (Soaked { at, units: 100 }, Soaked { at: at + Duration::from_secs(2), units: 300 });
        assert!((Soaker::rate(from, to) - 100.0).abs() < 1e-6);
        assert!((Calibration(200.0).left(from, to) - 0.5).abs() < 1e-9);
        assert!((Calibration(50.0).left(from, to) - 1.0).abs() < 1e-9, "never more than all");
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
