//! The file system as the configuration sees it: regular files of a bounded size, read by a thread
//! that may hang.
//!
//! ```text
//! caller ─ Task::start ─▶ thread ipsec-files ─ Files: stat, open, read, list ─▶ disk, NFS, FUSE
//!            ▲                    │ notes which path it is at, and for how long
//!            └── the result, or after 5 s the path ◀──┘
//! ```
//! A network file system whose server is gone answers nothing, not even `stat`, for hours. Nobody
//! waits for one answer longer than [`TIME_LIMIT`], which is a silence, nor for all answers
//! together longer than `TOGETHER` times that: a cold disk with thousands of files is slow, and
//! alive. What is done with the files between the answers has a limit of its own, as long again.
//! The thread stays behind, and ends when the file system answers, the work is done or the process
//! ends. A named pipe or a device is not opened at all: the one would hang, the other may do
//! something.

use std::borrow::Borrow;
use std::fs::Metadata;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::file_system::{Access, FileSystem};
use ironswan_keying::diagnosis::{Configuration, FileFault};
use zeroize::Zeroizing;

/// How long the file system may be silent.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Limit for all answers about one configuration together, and for the work between them, in
/// units of the limit for one answer (60 s).
const TOGETHER: u32 = 12;
/// A caller that waits for a task looks at it this often.
pub const POLL: Duration = Duration::from_millis(2);
/// Stack of the thread: sections may be nested as deeply as on the main thread.
const STACK: usize = 8 << 20;

/// Reads a monotonic clock. This crate reads none itself: the program that uses it names one.
pub type Clock = fn() -> Instant;

#[derive(Debug)]
struct Note {
    /// Path that the file system has been asked about, and since when.
    at: Option<(PathBuf, Instant)>,
    /// Time that it took for what it has answered.
    spent: Duration,
    /// Number of its answers.
    answers: u64,
    /// When the reading of this configuration began.
    begun: Instant,
    /// Nobody waits any more.
    given_up: bool,
}

/// Asks the file system, and notes what it is asked. Clones share the note.
#[derive(Clone, Debug)]
pub struct Files {
    note: Arc<Mutex<Note>>,
    access: Access,
}

impl Files {
    /// The reading of a configuration begins now.
    pub fn new(now: Clock) -> Self {
        Self::through(Access::direct(now))
    }

    fn through(access: Access) -> Self {
        let begun = access.now();
        let note = Note { at: None, spent: Duration::ZERO, answers: 0, begun, given_up: false };
        Self { note: Arc::new(Mutex::new(note)), access }
    }

    fn now(&self) -> Instant {
        self.access.now()
    }

    fn note(&self) -> MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the file system something that may hang.
    ///
    /// # Errors
    /// The answer's own, or that the caller of the task has given up.
    pub fn ask<T>(&self, path: &Path, ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        {
            let mut note = self.note();
            if note.given_up {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody waits for it any more"));
            }
            note.at = Some((path.to_owned(), self.now()));
        }
        let answer = ask();
        let mut note = self.note();
        if let Some((_, since)) = note.at.take() {
            note.spent += self.now().saturating_duration_since(since);
            note.answers += 1;
        }
        answer
    }

    /// A regular file, or a link to one, of at most `max` bytes: what is in it, and how it was when
    /// it had been read.
    pub(super) fn read(&self, path: &Path, max: u64) -> Result<(Zeroizing<Vec<u8>>, Metadata), FileFault> {
        self.ask(path, || Ok(read(self.access.system(), path, max))).map_err(system)?
    }

    /// The path without links.
    pub(super) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.ask(path, || self.access.system().canonical(path))
    }

    /// True when there is something. What cannot be looked at is an error, and so is a link to what
    /// is not there: whoever wrote it means that there is something.
    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        self.ask(path, || self.access.system().exists(path))
    }

    /// Lists a folder, in no order. `None`: there is no folder of that name. A folder of which one
    /// entry cannot be read is an error, since nobody can say what is missing.
    pub(super) fn list(&self, folder: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        self.ask(folder, || self.access.system().list(folder))
    }

    /// Begins to read another configuration, which may take all the time that one may take.
    pub fn begin_again(&self) {
        let mut note = self.note();
        (note.spent, note.answers, note.begun) = (Duration::ZERO, 0, self.now());
    }

    /// A sentence about the path that has used up the time, or the work that has. `None`: all is
    /// well.
    fn overdue(&self, limit: Duration) -> Option<Configuration> {
        let note = self.note();
        let Some((path, since)) = note.at.as_ref() else {
            let worked = self.now().saturating_duration_since(note.begun).saturating_sub(note.spent);
            let endless = Configuration::ReadingEndless { seconds: worked.as_secs() };
            return (worked >= limit * TOGETHER).then_some(endless);
        };
        let path = path.display().to_string();
        let waited = self.now().saturating_duration_since(*since);
        if waited >= limit {
            return Some(Configuration::FileSystemSilent { path, seconds: waited.as_secs() });
        }
        let spent = note.spent + waited;
        let slow = Configuration::FileSystemSlow { path, seconds: spent.as_secs(), answers: note.answers };
        (spent >= limit * TOGETHER).then_some(slow)
    }
}

/// The operating system's own reason.
pub fn system(e: impl Borrow<io::Error>) -> FileFault {
    let e = e.borrow();
    match e.kind() {
        io::ErrorKind::NotFound => FileFault::Missing(e.to_string()),
        _ => FileFault::System(e.to_string()),
    }
}

fn read(from: &dyn FileSystem, path: &Path, max: u64) -> Result<(Zeroizing<Vec<u8>>, Metadata), FileFault> {
    let regular = |meta: Metadata| if meta.is_file() { Ok(meta) } else { Err(FileFault::NotRegular) };
    let mut file = from.open(path)?;
    let meta = regular(file.metadata().map_err(system)?)?;
    if meta.len() > max {
        return Err(FileFault::TooLong { bytes: Some(meta.len()), max });
    }
    // The limit holds for what is read, not for what `stat` said.
    let bytes = read_at_most(&mut file, max as usize + 1, meta.len() as usize).map_err(system)?;
    if bytes.len() as u64 > max {
        return Err(FileFault::TooLong { bytes: None, max });
    }
    // Somebody may have written to the file while we read it.
    Ok((bytes, regular(file.metadata().map_err(system)?)?))
}

/// Reads up to `max` bytes of a file that is said to have `expected`. There may be secrets among
/// them: what grows is copied, and the old copy wiped.
fn read_at_most(file: &mut impl Read, max: usize, expected: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // One more, so that its end is seen without growing.
    let mut bytes = Zeroizing::new(vec![0; (expected + 1).min(max)]);
    let mut len = 0;
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if len == bytes.len() {
            if len == max {
                break;
            }
            let mut larger = Zeroizing::new(vec![0; (2 * len).max(64).min(max)]);
            larger[..len].copy_from_slice(&bytes);
            bytes = larger;
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Work on files that is under way on a thread of its own.
#[derive(Debug)]
pub struct Task<T> {
    files: Files,
    result: Receiver<T>,
    limit: Duration,
}

/// How a task stands.
#[derive(Debug)]
pub enum Progress<T> {
    /// This came out.
    Done(T),
    /// The task goes on.
    UnderWay,
    /// The file system, or the work between its answers, has taken too long.
    Overdue(Configuration),
    /// The task has panicked, which has been logged.
    Failed,
}

impl<T: Send + 'static> Task<T> {
    /// Begins.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(now: Clock, work: impl FnOnce(&Files) -> T + Send + 'static) -> Result<Self, Configuration> {
        Self::limited(now, TIME_LIMIT, work)
    }

    /// Begins, with files that another process opens.
    ///
    /// # Errors
    /// As [`Task::start`].
    pub fn through(
        access: Access,
        work: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> Result<Self, Configuration> {
        Self::begin(access, TIME_LIMIT, work)
    }

    /// Begins, with another limit than [`TIME_LIMIT`].
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn limited(
        now: Clock,
        limit: Duration,
        work: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> Result<Self, Configuration> {
        Self::begin(Access::direct(now), limit, work)
    }

    fn begin(
        access: Access,
        limit: Duration,
        work: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> Result<Self, Configuration> {
        let files = Files::through(access);
        let (tx, result) = sync_channel(1);
        let theirs = files.clone();
        std::thread::Builder::new()
            .name("ipsec-files".into())
            .stack_size(STACK)
            .spawn(move || {
                // Whoever asked may have given up.
                let _ = tx.send(work(&theirs));
            })
            .map_err(|e| Configuration::ReadingFailed { why: Some(e.to_string()) })?;
        Ok(Self { files, result, limit })
    }

    /// Looks how it stands. What is overdue stays with the task, and may be done later.
    pub fn look(&mut self) -> Progress<T> {
        match self.result.try_recv() {
            Ok(done) => Progress::Done(done),
            Err(TryRecvError::Empty) => match self.files.overdue(self.limit) {
                None => Progress::UnderWay,
                Some(why) => {
                    // The thread ends as soon as the file system answers.
                    self.files.note().given_up = true;
                    Progress::Overdue(why)
                }
            },
            Err(TryRecvError::Disconnected) => Progress::Failed,
        }
    }

    /// Waits for its end on this thread, not longer than files may take.
    ///
    /// # Errors
    /// The path that does not answer, or that the task has panicked.
    pub fn wait(mut self) -> Result<T, Configuration> {
        loop {
            match self.look() {
                Progress::Done(done) => return Ok(done),
                Progress::Overdue(why) => return Err(why),
                Progress::Failed => return Err(Configuration::ReadingFailed { why: None }),
                Progress::UnderWay => std::thread::sleep(POLL),
            }
        }
    }
}

/// Does something that may hang, with this path, not longer than files may take.
///
/// # Errors
/// The file system does not answer, or the path cannot be read.
pub fn within_limit<T: Send + 'static>(
    now: Clock,
    path: &Path,
    ask: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, Configuration> {
    let (path, name) = (path.to_owned(), path.display().to_string());
    let task = Task::start(now, move |files| files.ask(&path, || Ok(ask(&path))))?;
    task.wait()?.map_err(|e| Configuration::Unreadable { path: Some(name), why: system(e) })
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
