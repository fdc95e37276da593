//! Files: reading them with a limit, and writing new ones with their mode. Files of secrets get
//! mode 0600, and no file is replaced unless somebody said so.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64::engine::{Engine as _, general_purpose::STANDARD};
use ironswan_pki::crl::MAX_CRL;
use ironswan_pki::key_file::FileFault;
use zeroize::Zeroizing;

use crate::args::{Form, Output};
use crate::failure::Failure;

/// Longest file that is read, in bytes: the longest revocation list, in PEM.
const MAX_INPUT: usize = 2 * MAX_CRL;
/// Memory that is taken for a file before it is read, in bytes.
const FIRST_READ: usize = 64 << 10;
/// Characters of one line of PEM.
const PEM_LINE: usize = 64;

/// A file that was read.
pub(crate) struct Source {
    /// Its name, as messages show it.
    pub(crate) name: String,
    /// Its bytes. They may be a key, so they are wiped.
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

impl Source {
    /// The message about a file that cannot be used.
    pub(crate) fn unusable(&self, fault: &FileFault) -> Failure {
        let remedy = match fault {
            FileFault::Passphrase => "type the passphrase again, or name the right --passphrase-file",
            FileFault::Rounds { .. } => "encrypt the file anew, with fewer rounds",
            FileFault::Encrypted => "name its passphrase with --passphrase-file",
            FileFault::Key(_) => {
                "`ironswan pki print` says what the file holds; make a new key with `ironswan pki gen`"
            }
            FileFault::OldEncryption => "then use the new file",
            _ => "`ironswan pki print` says what the file holds; copy it again if it is damaged",
        };
        Failure::usage(format!("{} {fault}; {remedy}", self.name))
    }
}

/// Reads a file, or standard input.
pub(crate) fn read(path: Option<&Path>) -> Result<Source, Failure> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        let input = std::io::stdin();
        if input.is_terminal() {
            return Err(Failure::usage("no file to read: name it with --in, or write it to standard input"));
        }
        return read_all("standard input".into(), input.lock());
    };
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
    read_all(name, file)
}

fn read_all(name: String, from: impl Read) -> Result<Source, Failure> {
    // A file of a key fits: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FIRST_READ));
    let limit = MAX_INPUT as u64 + 1;
    from.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
    if bytes.len() > MAX_INPUT {
        return Err(Failure::usage(format!(
            "{name} has more than {MAX_INPUT} bytes: no such file is so long"
        )));
    }
    if bytes.is_empty() {
        return Err(Failure::usage(format!("{name} is empty")));
    }
    Ok(Source { name, bytes })
}

/// Who may read a file that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Its owner: it holds a secret.
    Owner,
    /// Everybody.
    All,
}

impl Readers {
    fn mode(self) -> u32 {
        if self == Self::Owner { 0o600 } else { 0o644 }
    }
}

/// Writes an element of DER, as PEM with this label or as it is.
pub(crate) fn write(output: &Output, label: &str, der: &[u8], readers: Readers) -> Result<(), Failure> {
    match output.outform {
        Form::Der => write_bytes(output.out.as_deref(), output.force, der, readers),
        Form::Pem => write_bytes(output.out.as_deref(), output.force, pem(label, der).as_bytes(), readers),
    }
}

/// Writes bytes to a file, or to standard output.
pub(crate) fn write_bytes(
    path: Option<&Path>,
    force: bool,
    bytes: &[u8],
    readers: Readers,
) -> Result<(), Failure> {
    let Some(path) = path else { return write_out(bytes, readers) };
    let cannot = |e| Failure::usage(format!("cannot write {}: {e}", path.display()));
    let create =
        |path: &Path| OpenOptions::new().write(true).create_new(true).mode(readers.mode()).open(path);
    let fill = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
    match create(path) {
        Ok(file) => fill(file).map_err(|e| {
            // A file that is not complete would be in the way of the next try.
            let _ = std::fs::remove_file(path);
            cannot(e)
        }),
        Err(e) if e.kind() == ErrorKind::AlreadyExists && !force => Err(Failure::usage(format!(
            "{} exists already; choose another name for --out, or replace it with --force",
            path.display()
        ))),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            // The new file takes the place of the old one when it is complete.
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".new-{}", std::process::id()));
            let beside = path.with_file_name(name);
            let done = create(&beside).and_then(fill).and_then(|()| std::fs::rename(&beside, path));
            done.map_err(|e| {
                let _ = std::fs::remove_file(&beside);
                cannot(e)
            })
        }
        Err(e) => Err(cannot(e)),
    }
}

/// Writes to standard output. A shell that redirects a secret into a file chooses the file's mode,
/// so we look at it.
fn write_out(bytes: &[u8], readers: Readers) -> Result<(), Failure> {
    if readers == Readers::Owner
        && let Ok(meta) = File::open("/dev/stdout").and_then(|out| out.metadata())
        && meta.is_file()
        && meta.mode() & 0o077 != 0
    {
        complain(&format!(
            "ironswan pki: warning: standard output is a file that others may read (mode {:o}): use --out, or chmod 600",
            meta.mode() & 0o777
        ));
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Nobody reads on.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Failure::usage(format!("cannot write to standard output: {e}"))),
    }
}

/// Prints a text for people.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    write_out(text.as_bytes(), Readers::All)
}

/// Prints a line to standard error. Nothing happens when nobody reads it.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says what was made, when it went into a file: standard output is free then.
pub(crate) fn made(path: Option<&Path>, what: &str) -> Result<(), Failure> {
    match path {
        Some(path) => say(&format!("{}: {what}\n", path.display())),
        None => Ok(()),
    }
}

/// PEM of an element (RFC 7468).
fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let mut digits = Zeroizing::new(String::with_capacity(der.len().div_ceil(3) * 4));
    STANDARD.encode_string(der, &mut digits);
    let mut text = Zeroizing::new(String::with_capacity(digits.len() + digits.len() / PEM_LINE + 128));
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = digits.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
