//! Child processes: short commands that are waited for, and long-running ones that are ended by
//! their guard. Every command line goes to a [`Journal`], so that a run can say exactly what was
//! done.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock;
use crate::error::{LabError, LogTail};
use crate::interrupt;

/// The commands of one trial, in order, as a person would type them. Shared by everything that
/// takes part in it.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    /// Writes one command down.
    pub fn note(&self, command: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command.into());
    }

    /// All so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How a short command ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status of the process.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Standard error; if that is empty, standard output; if that is empty too, the exit status.
    pub fn complaint(&self) -> String {
        let text = if self.stderr.trim().is_empty() { self.stdout.trim() } else { self.stderr.trim() };
        if text.is_empty() { self.status.to_string() } else { text.to_string() }
    }
}

/// The command line with shell quoting where it needs any.
pub fn quoted<S: AsRef<str>>(argv: &[S]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    argv.iter()
        .map(|a| match a.as_ref() {
            "" => "''".to_string(),
            a if a.chars().all(plain) => a.to_string(),
            a => format!("'{}'", a.replace('\'', r"'\''")),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// How this process was started, as a person types it: `ironswan lab line --quick`.
pub fn own_command_line() -> Vec<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let own = arguments.first().is_some_and(|first| ["demo", "plan"].contains(&first.as_str()));
    let program = ["ironswan", "lab"].into_iter().take(if own { 1 } else { 2 });
    program.map(String::from).chain(arguments).collect()
}

/// The program of that name in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Root's tools may be missing from a user's PATH, and sudo may keep that PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|p| is_executable(p))
}

/// A regular file that someone may execute.
pub(crate) fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Runs a command to its end; an error when it fails, takes longer than `timeout`, or a signal
/// comes.
pub fn run<S: AsRef<str>>(journal: &Journal, argv: &[S], timeout: Duration) -> Result<String, LabError> {
    run_with(journal, argv, "", timeout)
}

/// As [`run`], with `input` on its standard input.
pub fn run_with<S: AsRef<str>>(
    journal: &Journal,
    argv: &[S],
    input: &str,
    timeout: Duration,
) -> Result<String, LabError> {
    let done = finish(journal, argv, input, timeout)?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        Err(LabError::Command { command: quoted(argv), why: done.complaint() })
    }
}

/// As [`run_with`], leaving the judgement of the exit status to the caller.
pub fn finish<S: AsRef<str>>(
    journal: &Journal,
    argv: &[S],
    input: &str,
    timeout: Duration,
) -> Result<Finished, LabError> {
    interrupt::check()?;
    journal.note(quoted(argv));
    execute(argv, input, timeout, interrupt::pause)
}

/// For clean-up: neither recorded nor stopped by a signal.
pub(crate) fn run_regardless<S: AsRef<str>>(argv: &[S], timeout: Duration) -> Result<Finished, LabError> {
    execute(argv, "", timeout, |d| {
        thread::sleep(d);
        Ok(())
    })
}

fn execute<S: AsRef<str>>(
    argv: &[S],
    input: &str,
    timeout: Duration,
    pause: impl Fn(Duration) -> Result<(), LabError>,
) -> Result<Finished, LabError> {
    let failed = |why: String| LabError::Command { command: quoted(argv), why };
    let mut child = command(argv)
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            // A child that does not read its input says why on its own; a broken pipe adds nothing.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
        }
        let out = scope.spawn(move || drain(out));
        let err = scope.spawn(move || drain(err));
        let ended = wait(&mut child, timeout, &pause);
        if !matches!(ended, Ok(Some(_))) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        match ended? {
            Some(status) => Ok(Finished { status, stdout, stderr }),
            None => {
                let said = if stderr.trim().is_empty() { stdout } else { stderr };
                let said = said.trim();
                let sep = if said.is_empty() { "" } else { ": " };
                Err(failed(format!("no end after {} s{sep}{said}", clock::patiently(timeout).as_secs())))
            }
        }
    })
}

fn command<S: AsRef<str>>(argv: &[S]) -> Command {
    let mut c = Command::new(argv.first().map_or("", AsRef::as_ref));
    // A group of its own: a Ctrl-C at the terminal is for the laboratory, which then ends its
    // children in order.
    c.args(argv.iter().skip(1).map(AsRef::as_ref)).process_group(0);
    c
}

/// The most that is kept of what a short command prints.
const OUTPUT_LIMIT: u64 = 16 << 20;

fn drain(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // Output that was read before an error is still worth showing.
        let _ = pipe.take(OUTPUT_LIMIT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(
    child: &mut Child,
    timeout: Duration,
    pause: impl Fn(Duration) -> Result<(), LabError>,
) -> Result<Option<ExitStatus>, LabError> {
    let end = clock::now() + clock::patiently(timeout);
    let mut step = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().map_err(LabError::io("waiting for a child process"))? {
            return Ok(Some(status));
        }
        if clock::now() >= end {
            return Ok(None);
        }
        pause(step)?;
        step = (step * 2).min(clock::patiently(Duration::from_millis(20)));
    }
}

/// A process that runs until it is ended; dropping it ends it. Its output goes to a log file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Ended and reaped; how it ended is of no more interest.
    over: bool,
}

impl Process {
    /// Starts `argv` under a `name` for messages, logging to the new file `log`.
    pub fn start<S: AsRef<str>>(
        journal: &Journal,
        name: &str,
        argv: &[S],
        log: &Path,
    ) -> Result<Self, LabError> {
        Self::start_in(journal, name, argv, &[], log)
    }

    /// As [`Process::start`], with variables added to its environment.
    pub fn start_in<S: AsRef<str>>(
        journal: &Journal,
        name: &str,
        argv: &[S],
        environment: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self, LabError> {
        interrupt::check()?;
        let variables: String = environment.iter().map(|(k, v)| format!("{k}={} ", quoted(&[v]))).collect();
        journal.note(format!("{variables}{} > {} 2>&1 &", quoted(argv), log.display()));
        let out = File::create(log).map_err(LabError::io(format!("creating {}", log.display())))?;
        let err = out.try_clone().map_err(LabError::io("duplicating a file handle"))?;
        let child = command(argv)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| LabError::Command { command: quoted(argv), why: e.to_string() })?;
        Ok(Self { name: name.into(), child, log: log.into(), over: false })
    }

    /// Name of the process in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// File that receives the output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The end of its log.
    pub fn tail(&self, lines: usize) -> LogTail {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        let from = all.len().saturating_sub(lines);
        LogTail { of: self.name.clone(), lines: all[from..].iter().map(ToString::to_string).collect() }
    }

    /// `Some` once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        self.over |= status.is_some();
        status
    }

    /// Waits for it to end by itself; `None` when it has not within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, LabError> {
        let status = wait(&mut self.child, timeout, interrupt::pause)?;
        self.over |= status.is_some();
        Ok(status)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may have ended meanwhile. Until we reap it, its id cannot belong to
            // another process.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Ends processes together: SIGTERM to all, `grace` for all, then SIGKILL. Returns the names of
/// those that had to be killed.
pub fn end_all(processes: &mut [Process], grace: Duration) -> Vec<String> {
    for p in processes.iter_mut().filter(|p| !p.over) {
        p.signal(Signal::TERM);
    }
    let end = clock::now() + clock::patiently(grace);
    let mut killed = Vec::new();
    for p in processes.iter_mut() {
        while p.ended().is_none() && !p.over && clock::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        if !p.over {
            killed.push(p.name.clone());
            p.signal(Signal::KILL);
            let _ = p.child.wait();
            p.over = true;
        }
    }
    killed
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.over {
            end_all(std::slice::from_mut(self), Duration::from_millis(1500));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_command_line_is_quoted_only_where_it_must_be() {
        assert_eq!(quoted(&["ip", "-n", "x1", "link"]), "ip -n x1 link");
        assert_eq!(quoted(&["sh", "-c", "echo 'a b'"]), r"sh -c 'echo '\''a b'\'''");
        assert_eq!(quoted(&["x", ""]), "x ''");
    }

    #[test]
    fn a_failing_command_reports_its_own_message_and_is_written_down() {
        let journal = Journal::default();
        let e = run(&journal, &["sh", "-c", "echo broken >&2; exit 3"], SECOND).expect_err("exit 3");
        assert!(e.to_string().ends_with("failed: broken"), "{e}");
        assert_eq!(journal.lines(), ["sh -c 'echo broken >&2; exit 3'"]);
    }

    #[test]
    fn input_reaches_the_command_and_its_output_comes_back() {
        let out = run_with(&Journal::default(), &["cat"], "hello", SECOND).expect("cat");
        assert_eq!(out, "hello");
    }

    #[test]
    fn input_larger_than_a_pipe_neither_blocks_nor_is_lost() {
        let input = "0123456789abcdef".repeat(1 << 16);
        let out = run_with(&Journal::default(), &["cat"], &input, 60 * SECOND).expect("cat");
        assert!(out == input, "{} of {} bytes", out.len(), input.len());
        // Whoever does not read it is killed at the timeout all the same.
        let start = clock::now();
        let hangs = run_with(&Journal::default(), &["sleep", "30"], &input, Duration::from_millis(50));
        assert!(hangs.expect_err("timeout").to_string().contains("no end after"));
        assert!(clock::now() - start < 25 * SECOND);
    }

    #[test]
    fn a_command_that_hangs_is_killed_at_its_timeout() {
        let start = clock::now();
        let e = run(&Journal::default(), &["sleep", "30"], Duration::from_millis(50)).expect_err("timeout");
        assert!(e.to_string().contains("no end after"), "{e}");
        assert!(clock::now() - start < 25 * SECOND);
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_and_named() {
        let dir = std::env::temp_dir().join(format!("ironlab-process-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temp dir");
        let script = "trap '' TERM; echo started; while :; do sleep 0.05; done";
        let p = Process::start(&Journal::default(), "stubborn", &["sh", "-c", script], &dir.join("log"))
            .expect("sh");
        while p.tail(1).lines.is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let pid = p.id();
        let killed = end_all(&mut [p], Duration::from_millis(100));
        assert_eq!(killed, ["stubborn"]);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        fs::remove_dir_all(&dir).expect("remove temp dir");
    }
}
