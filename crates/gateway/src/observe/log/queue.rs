//! The lines of the log on their way to standard error: a bounded queue and one thread that writes.
//!
//! ```text
//! any thread ─ push ─▶ pending (at most 1 MiB) ─▶ writer thread ─ write ─▶ standard error
//!                 └─ no room: counted                     └─ refused (EPIPE, ENOSPC): counted
//! ```
//! Nobody but the writer ever waits for standard error: a pipe that is full, a terminal that is
//! stopped or a disk that hangs costs lines, never the thread that wrote them. How many were lost
//! is written as soon as writing works again.

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironswan_io::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Lines that wait for the writer have at most this many bytes in all.
pub(super) const MAX_PENDING: usize = 1 << 20;
/// Pause after standard error has refused a write: a full disk may have room again, a closed pipe
/// never has.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Composes the line which says that so many lines were lost.
pub(super) type LostLine = fn(u64) -> Vec<u8>;

#[derive(Default)]
struct State {
    /// Whole lines, one after the other.
    pending: Vec<u8>,
    /// Lines for which there was no room behind `pending`.
    lost_after: u64,
    /// Lines of earlier batches, which standard error refused.
    lost_before: u64,
    /// The writer holds a batch that it has not written yet.
    writing: bool,
}

/// The queue. Clones are the same queue.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes the writer.
    more: Condvar,
    /// Wakes whoever waits in [`Queue::flush`].
    written: Condvar,
    lost_line: LostLine,
}

impl Queue {
    /// A queue whose lines go to `sink` on a thread of its own, which lives as long as the process.
    pub(super) fn start(sink: impl Write + Send + 'static, lost_line: LostLine) -> io::Result<Self> {
        let queue = Self(Arc::new(Shared {
            state: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
            lost_line,
        }));
        let writer = queue.clone();
        std::thread::Builder::new()
            .name("ipsec-log".into())
            .stack_size(256 * 1024)
            .spawn(move || writer.write_for_ever(sink))?;
        Ok(queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one line, with its newline, or counts it as lost. Never blocks.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.pending.len() + line.len() > MAX_PENDING {
            state.lost_after += 1;
            return;
        }
        state.pending.extend_from_slice(line);
        self.0.more.notify_one();
    }

    /// Waits until all that was pushed has been written or refused, at most `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let end = clock::now() + limit;
        let mut state = self.state();
        while state.writing || !state.pending.is_empty() || state.lost_after > 0 {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return;
            }
            state = self.0.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write_for_ever(&self, sink: impl Write) {
        let mut sink = Sink { out: sink, torn: false };
        loop {
            let (before, batch, after) = self.take();
            let refused = self.write_batch(&mut sink, before, &batch, after);
            let mut state = self.state();
            state.writing = false;
            state.lost_before += refused;
            drop(state);
            self.0.written.notify_all();
            if refused > 0 {
                std::thread::sleep(PAUSE_AFTER_ERROR);
            }
        }
    }

    /// Waits for something to write: lines that were lost before the batch, the batch, lines that
    /// were lost after it.
    fn take(&self) -> (u64, Vec<u8>, u64) {
        let mut state = self.state();
        while state.pending.is_empty() && state.lost_after == 0 {
            // Lost lines are reported with the next line at the latest, and once a second until
            // then.
            if state.lost_before == 0 {
                state = self.0.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.0.more.wait_timeout(state, PAUSE_AFTER_ERROR);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() {
                break;
            }
        }
        state.writing = true;
        let (before, after) = (state.lost_before, state.lost_after);
        (state.lost_before, state.lost_after) = (0, 0);
        (before, std::mem::take(&mut state.pending), after)
    }

    /// Writes a batch. The result is the number of lines that are lost and could not be told.
    fn write_batch(&self, sink: &mut Sink<impl Write>, before: u64, batch: &[u8], after: u64) -> u64 {
        let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count() as u64;
        if before > 0 && sink.write(&(self.0.lost_line)(before)).is_err() {
            return before + lines(batch) + after;
        }
        if let Err(written) = sink.write(batch) {
            return lines(batch.get(written..).unwrap_or_default()) + after;
        }
        if after > 0 && sink.write(&(self.0.lost_line)(after)).is_err() {
            return after;
        }
        0
    }
}

/// Destination of the lines, and whether only a part of the last one was written.
struct Sink<W> {
    out: W,
    torn: bool,
}

impl<W: Write> Sink<W> {
    /// Writes all, however long that takes. An error says how many bytes went before it.
    fn write(&mut self, bytes: &[u8]) -> Result<(), usize> {
        if self.torn && !bytes.is_empty() {
            self.put(b"\n").map_err(|_| 0usize)?;
        }
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.out.write(rest) {
                Ok(n) if n > 0 => {
                    at += n;
                    self.torn = bytes.get(at - 1) != Some(&b'\n');
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return Err(at),
            }
        }
        Ok(())
    }
}

/// Standard error without the lock of the standard library's: whoever writes there by other means
/// cannot hold up the writer, nor be held up by it.
pub(super) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let out = io::stderr();
        loop {
            match rustix::io::write(&out, bytes) {
                // Somebody who shares the descriptor has made it non-blocking.
                Err(rustix::io::Errno::AGAIN) => {
                    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
                    // Whatever it says, the write is tried again.
                    let _ = poll(&mut [PollFd::new(&out, PollFlags::OUT)], Some(&limit));
                }
                done => return done.map_err(io::Error::from),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
