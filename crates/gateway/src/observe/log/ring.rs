//! The latest lines of the log, for `ironswan log`.
//!
//! ```text
//! any thread ─ push ─▶ ring (at most 1 MiB) ─ look ─▶ readers, each with its own place
//!                        └─ the oldest lines go: a reader that was slower counts them
//! ```
//! Whoever logs holds the lock for as long as it takes to move a line, and never waits for a
//! reader. A reader copies pointers under the lock, some hundred at a time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes of all lines, with what the ring itself needs for each.
const MAX_BYTES: usize = 1 << 20;
/// Bytes of the text of one line; the rest of a longer one is not kept.
const MAX_TEXT: usize = 16 * 1024;
/// Lines that one look returns at most.
const AT_ONCE: usize = 256;

/// A line of the log, by its parts. An empty one is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kept {
    /// When it was written.
    pub(crate) time: String,
    /// `error`, `warn`, `info` or `debug`.
    pub(crate) level: &'static str,
    /// It is below the level of the log, and was raised for this connection or peer.
    pub(crate) raised: bool,
    /// Name of the connection.
    pub(crate) conn: String,
    /// Address of the peer of the IKE_SA that it is about.
    pub(crate) peer: Option<IpAddr>,
    /// Name of the failure that it is about.
    pub(crate) diagnosis: String,
    /// Remedy for it, with which the text ends as well.
    pub(crate) remedy: String,
    /// The text.
    pub(crate) text: String,
}

impl Kept {
    fn bytes(&self) -> usize {
        let texts = [&self.time, &self.conn, &self.diagnosis, &self.remedy, &self.text];
        size_of::<Self>() + 2 * size_of::<usize>() + texts.iter().map(|t| t.capacity()).sum::<usize>()
    }
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<Arc<Kept>>,
    bytes: usize,
    /// Number of the next line. The first one of the process has number 0.
    next: u64,
}

/// The ring.
pub(crate) struct Ring {
    lines: Mutex<Lines>,
    /// Wakes readers that have seen everything.
    more: Notify,
}

/// Result of one look at the ring.
#[derive(Default)]
pub(crate) struct Look {
    /// Lines, in order.
    pub(crate) lines: Vec<Arc<Kept>>,
    /// Lines before them that are gone already.
    pub(crate) lost: u64,
    /// Where to look next.
    pub(crate) next: u64,
}

impl Ring {
    /// Without lines.
    pub(crate) const fn new() -> Self {
        let lines = Lines { kept: VecDeque::new(), bytes: 0, next: 0 };
        Self { lines: Mutex::new(lines), more: Notify::const_new() }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line; the oldest ones make room.
    pub(crate) fn push(&self, mut line: Kept) {
        if line.text.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| line.text.is_char_boundary(*at)).unwrap_or(0);
            line.text.truncate(end);
            line.text.push_str(" ...");
        }
        for text in [&mut line.time, &mut line.conn, &mut line.diagnosis, &mut line.remedy, &mut line.text] {
            text.shrink_to_fit();
        }
        let line = Arc::new(line);
        // Dropped behind the lock.
        let mut gone = Vec::new();
        {
            let mut lines = self.lines();
            lines.bytes += line.bytes();
            lines.kept.push_back(line);
            lines.next += 1;
            while lines.bytes > MAX_BYTES {
                let Some(oldest) = lines.kept.pop_front() else { break };
                lines.bytes -= oldest.bytes();
                gone.push(oldest);
            }
        }
        self.more.notify_waiters();
    }

    /// The lines from number `from` on, some hundred at most.
    pub(crate) fn look(&self, from: u64) -> Look {
        let lines = self.lines();
        let oldest = lines.next - lines.kept.len() as u64;
        let first = from.clamp(oldest, lines.next);
        let skipped = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        let found: Vec<_> = lines.kept.iter().skip(skipped).take(AT_ONCE).cloned().collect();
        let next = first + found.len() as u64;
        Look { lines: found, lost: first.saturating_sub(from), next }
    }

    /// Number of the next line.
    pub(crate) fn end(&self) -> u64 {
        self.lines().next
    }

    /// Number of the oldest line.
    pub(crate) fn begin(&self) -> u64 {
        let lines = self.lines();
        lines.next - lines.kept.len() as u64
    }

    /// Waits until there is a line of this number.
    pub(crate) async fn wait(&self, number: u64) {
        loop {
            let more = self.more.notified();
            tokio::pin!(more);
            // Before the look: a line that comes behind it wakes us.
            more.as_mut().enable();
            if self.end() > number {
                return;
            }
            more.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(text: String) -> Kept {
        Kept { level: "info", text, ..Kept::default() }
    }

    #[test]
    fn a_reader_gets_every_line_once_and_hears_how_many_are_gone() {
        let ring = Ring::new();
        (0..600).for_each(|n| ring.push(line(format!("line {n}"))));
        let (mut at, mut seen) = (ring.begin(), Vec::new());
        while at < ring.end() {
            let look = ring.look(at);
            assert!(look.lost == 0 && !look.lines.is_empty() && look.lines.len() <= AT_ONCE);
            seen.extend(look.lines.iter().map(|l| l.text.clone()));
            at = look.next;
        }
        assert_eq!(seen, (0..600).map(|n| format!("line {n}")).collect::<Vec<_>>());
        // 100,000 more do not fit.
        (600..100_600).for_each(|n| ring.push(line(format!("line {n}"))));
        let look = ring.look(at);
        assert_eq!(look.lost, ring.begin() - 600);
        assert_eq!(look.lines[0].text, format!("line {}", ring.begin()));
        // A place that was never there.
        let look = ring.look(u64::MAX);
        assert!(look.lines.is_empty() && look.next == ring.end());
    }

    #[test]
    fn lines_have_a_bounded_number_of_bytes() {
        let ring = Ring::new();
        for n in 0..5_000 {
            ring.push(line("x".repeat(n * 7)));
        }
        let lines = ring.lines();
        assert!(lines.bytes <= MAX_BYTES);
        assert_eq!(lines.bytes, lines.kept.iter().map(|l| l.bytes()).sum::<usize>());
        assert!(lines.kept.iter().all(|l| l.text.len() <= MAX_TEXT + 4));
        assert!(lines.kept.len() > 40, "{}", lines.kept.len());
    }

    #[tokio::test]
    async fn a_line_of_another_thread_wakes_a_reader() {
        static RING: Ring = Ring::new();
        let writer = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            RING.push(line("late".to_owned()));
        });
        tokio::time::timeout(Duration::from_secs(5), RING.wait(0)).await.expect("woken");
        assert_eq!(RING.look(0).lines[0].text, "late");
        writer.join().unwrap();
    }
}
