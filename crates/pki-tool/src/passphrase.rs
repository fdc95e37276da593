//! Passphrases: the first line of a file, or what somebody types on the terminal without an echo.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use ironswan_wire::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// Longest passphrase in bytes.
const MAX_PASSPHRASE: usize = 1024;

/// The passphrase of something that is encrypted: `what`, as the question names it.
pub(crate) fn known(file: Option<&Path>, what: &str) -> Result<Secret, Failure> {
    match file {
        Some(path) => of_file(path),
        None => ask(&format!("Passphrase of {what}: ")).map_err(|e| {
            Failure::usage(format!(
                "{what} is encrypted, and there is no terminal to ask for its passphrase ({e}): name a file with --passphrase-file"
            ))
        }),
    }
}

/// A new passphrase, asked for twice. `option` names the file of it on the command line.
pub(crate) fn new(file: Option<&Path>, what: &str, option: &str) -> Result<Secret, Failure> {
    if let Some(path) = file {
        return of_file(path);
    }
    let asked = |question: &str| {
        ask(question).map_err(|e| {
            Failure::usage(format!(
                "there is no terminal to ask for a passphrase ({e}): name a file with {option}"
            ))
        })
    };
    let first = asked(&format!("New passphrase of {what}: "))?;
    let second = asked("The same again: ")?;
    if first.is_empty() {
        return Err(Failure::usage("the passphrase is empty"));
    }
    if first.expose() != second.expose() {
        return Err(Failure::usage("the two passphrases differ: nothing was written"));
    }
    Ok(first)
}

/// The first line of a file.
fn of_file(path: &Path) -> Result<Secret, Failure> {
    let cannot = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", path.display()));
    let line = first_line(File::open(path).map_err(cannot)?).map_err(cannot)?;
    if line.is_empty() {
        return Err(Failure::usage(format!(
            "the first line of {} is empty: it has to be the passphrase",
            path.display()
        )));
    }
    Ok(line)
}

/// Bytes up to the end of the line. Memory is taken first, so that no copy is left behind.
fn first_line(mut from: impl Read) -> std::io::Result<Secret> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE));
    let mut byte = [0];
    while from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        if line.len() == MAX_PASSPHRASE {
            return Err(std::io::Error::other(format!(
                "the passphrase has more than {MAX_PASSPHRASE} bytes"
            )));
        }
        line.push(byte[0]);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Secret::new(std::mem::take(&mut *line)))
}

/// Asks on the terminal of this process, which is there although input and output are redirected.
fn ask(question: &str) -> std::io::Result<Secret> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&terminal)?;
    let silent = Silent::new(&terminal, before)?;
    (&terminal).write_all(question.as_bytes())?;
    let line = first_line(&terminal);
    drop(silent);
    (&terminal).write_all(b"\n")?;
    line
}

/// A terminal that does not show what is typed, until this is dropped.
struct Silent<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Silent<'a> {
    fn new(terminal: &'a File, before: Termios) -> std::io::Result<Self> {
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}
