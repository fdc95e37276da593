//! A progress bar on standard error, when that is a terminal; silent otherwise.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use crate::clock;

/// A bar over a known number of steps; the line is erased when it is dropped.
#[derive(Debug)]
pub struct Progress {
    steps: usize,
    done: usize,
    began: Instant,
    /// Estimated time of one step, until some have been done.
    guess: Duration,
    shown: bool,
}

impl Progress {
    /// A bar for `steps` steps of about `guess` each.
    pub fn new(steps: usize, guess: Duration) -> Self {
        Self { steps, done: 0, began: clock::now(), guess, shown: io::stderr().is_terminal() }
    }

    /// Says what the current step does.
    pub fn says(&self, what: &str) {
        if !self.shown {
            return;
        }
        let columns = tcgetwinsize(io::stderr()).map_or(80, |w| usize::from(w.ws_col)).max(20);
        let elapsed = clock::now() - self.began;
        let per_step = if self.done == 0 { self.guess } else { elapsed / self.done.max(1) as u32 };
        let left = per_step * (self.steps - self.done) as u32;
        let line = bar(self.done, self.steps, left, what, columns - 1);
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
        let _ = io::stderr().flush();
    }

    /// One step is done.
    pub fn step(&mut self) {
        self.done = (self.done + 1).min(self.steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

fn bar(done: usize, steps: usize, left: Duration, what: &str, width: usize) -> String {
    const CELLS: usize = 20;
    let filled = (done * CELLS).checked_div(steps).unwrap_or(CELLS).min(CELLS);
    let line = format!(
        "[{}{}] {done}/{steps}, about {} s left: {what}",
        "#".repeat(filled),
        ".".repeat(CELLS - filled),
        left.as_secs()
    );
    line.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_never_exceeds_the_line() {
        let ten = Duration::from_secs(10);
        assert!(bar(0, 4, ten, "x", 79).starts_with("[....................] 0/4, about 10 s left: x"));
        assert!(bar(2, 4, ten, "x", 79).starts_with("[##########..........] 2/4"));
        assert!(bar(4, 4, ten, "x", 79).starts_with("[####################] 4/4"));
        assert_eq!(bar(1, 4, ten, &"y".repeat(200), 40).len(), 40);
    }
}
