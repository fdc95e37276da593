//! Tests of the queue: a pipe that nobody reads, one that is closed, a disk that is full for a
//! while.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn lost(n: u64) -> Vec<u8> {
    format!("{n} lost\n").into_bytes()
}

/// Numbered lines of 100 bytes.
fn push(queue: &Queue, numbers: std::ops::Range<u64>) {
    for n in numbers {
        queue.push(format!("{n:099}\n").as_bytes());
    }
}

/// How many lines arrived, how many are said to be lost, and where the first such word stands.
fn count(text: &str) -> (u64, u64, Option<usize>) {
    let word = |l: &str| l.strip_suffix(" lost").map(|n| n.parse::<u64>().unwrap());
    let told = text.lines().filter_map(word).sum();
    let lines = text.lines().filter(|l| word(l).is_none()).count() as u64;
    (lines, told, text.lines().position(|l| word(l).is_some()))
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_nobody_and_the_lost_are_counted() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let queue = Queue::start(File::from(writer), lost).unwrap();
    let began = clock::now();
    push(&queue, 0..40_000);
    let took = clock::now().saturating_duration_since(began);
    assert!(took < Duration::from_secs(5), "40,000 lines took {took:?}");
    // The end of a daemon waits for it no longer than it is told.
    let began = clock::now();
    queue.flush(Duration::from_millis(200));
    let took = clock::now().saturating_duration_since(began);
    assert!((Duration::from_millis(200)..Duration::from_secs(1)).contains(&took), "{took:?}");
    let drain = std::thread::spawn(move || {
        let (mut text, mut file) = (Vec::new(), File::from(reader));
        let mut buf = [0; 4096];
        while !text.ends_with(b"the end\n") {
            let n = file.read(&mut buf).unwrap();
            text.extend_from_slice(&buf[..n]);
        }
        String::from_utf8(text).unwrap()
    });
    queue.flush(Duration::from_secs(10));
    queue.push(b"the end\n");
    let (lines, told, first) = count(&drain.join().unwrap());
    assert_eq!(lines - 1 + told, 40_000);
    // The queue holds 1 MiB, and the writer may have taken as much before the pipe was full: 21,000
    // lines in all.
    assert!(told > 18_000, "{told}");
    assert!(first.is_some_and(|at| at > 5_000), "{first:?}");
}

/// A sink that fails while it is told to, in the middle of a line.
struct Disk {
    full: Arc<AtomicBool>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.written.lock().unwrap();
        if !self.full.load(Ordering::SeqCst) {
            written.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        if written.is_empty() {
            written.extend_from_slice(&bytes[..150]);
            return Ok(150);
        }
        Err(ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_loses_lines_and_the_next_one_begins_anew() {
    let (full, written) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::default()));
    let queue = Queue::start(Disk { full: full.clone(), written: written.clone() }, lost).unwrap();
    // In one piece, whichever way the writer is woken.
    queue.push(&(0..10).flat_map(|n| format!("{n:099}\n").into_bytes()).collect::<Vec<u8>>());
    queue.flush(Duration::from_secs(5));
    full.store(false, Ordering::SeqCst);
    push(&queue, 10..12);
    queue.flush(Duration::from_secs(10));
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // One whole, half of another, nine lost with that one, and the two that came later.
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!((lines[1].len(), lines[2]), (50, "9 lost"));
    assert!(lines[4].ends_with("11"), "{text}");
}

#[test]
fn a_closed_pipe_costs_lines_and_nothing_else() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let queue = Queue::start(File::from(writer), lost).unwrap();
    push(&queue, 0..10);
    let began = clock::now();
    queue.flush(Duration::from_secs(5));
    let took = clock::now().saturating_duration_since(began);
    assert!(took < Duration::from_secs(1), "what is refused is not waited for: {took:?}");
    assert!(queue.state().lost_before > 0);
}
