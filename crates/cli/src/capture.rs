//! `capture`: the blocks that the daemon tells, into a file.
//!
//! The daemon knows nothing of the file: when the disk is full, only this command hears of it. What
//! it has then ends with a whole packet.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironswan_wire::vici::{Section, Value};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::args::Capture;
use crate::failure::Failure;
use crate::text::complain;
use crate::vici::{Client, refusal};

/// Type of the block of a packet.
const PACKET: u32 = 6;
/// Bytes of the smallest block.
const MIN_BLOCK: usize = 12;
/// The daemon ends a capture at once when it is told to; then nobody waits for it any longer.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Where the blocks go.
enum Output {
    File(File),
    Pipe(std::io::Stdout),
}

/// What has been written.
struct Written {
    output: Output,
    bytes: u64,
    packets: u64,
    missed: u64,
}

/// Tells the daemon to end a capture.
#[derive(Clone)]
struct Stop {
    uri: String,
    id: String,
    said: Arc<AtomicBool>,
}

impl Stop {
    /// Once, over a connection of its own: the other one is busy with the capture.
    fn stop(&self) {
        if self.said.swap(true, Ordering::AcqRel) {
            return;
        }
        let message = Section::new().with("stop", self.id.as_str());
        let answer = Client::connect(&self.uri).and_then(|mut c| c.request("ironswan-capture", message));
        if answer.is_err() {
            // The daemon has gone, or another reason is on its way over the other connection.
            self.said.store(false, Ordering::Release);
        }
    }

    /// Ends the capture when nobody reads standard output any more, though no packet comes that
    /// could not be written.
    fn at_closed_pipe(&self) -> Result<(), Failure> {
        let stop = self.clone();
        let wait = move || {
            let out = std::io::stdout();
            // A pipe says ERR or HUP when its other end is closed, whatever it is asked for.
            let closed = loop {
                let mut fds = [PollFd::new(&out, PollFlags::empty())];
                match poll(&mut fds, None) {
                    Err(Errno::INTR) => {}
                    Err(_) => break false,
                    Ok(_) if fds[0].revents().is_empty() => {}
                    Ok(_) => break true,
                }
            };
            if closed {
                stop.stop();
            }
        };
        std::thread::Builder::new()
            .name("reader".into())
            .spawn(wait)
            .map(|_| ())
            .map_err(|e| Failure::no(format!("cannot watch standard output: {e}")))
    }

    /// Ends the capture at SIGINT and SIGTERM; a second signal ends this program.
    fn at_signals(&self) -> Result<(), Failure> {
        let stop = self.clone();
        let failed = |e: std::io::Error| Failure::no(format!("cannot wait for signals: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let wait = move || {
            runtime.block_on(async {
                use tokio::signal::unix::{SignalKind, signal};
                let (Ok(mut int), Ok(mut term)) =
                    (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return;
                };
                tokio::select! { _ = int.recv() => {} _ = term.recv() => {} }
                stop.stop();
                let again = async {
                    tokio::select! { _ = int.recv() => {} _ = term.recv() => {} }
                };
                let _ = tokio::time::timeout(STOP_LIMIT, again).await;
                std::process::exit(1);
            });
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(|_| ()).map_err(failed)
    }
}

/// A name for one capture, which no other command has.
#[allow(clippy::disallowed_methods, reason = "the time makes the name of this capture, nothing else")]
fn new_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

/// Captures until the time is over, the packets are there, or a signal comes.
pub(crate) fn capture(a: &Capture) -> Result<(), Failure> {
    let pipe = a.file.as_os_str() == "-";
    if pipe && a.keys {
        return Err(Failure::usage("--keys needs a file: name one with -w"));
    }
    let mut client = Client::connect(&a.vici)?;
    let output = match pipe {
        true => Output::Pipe(std::io::stdout()),
        false => Output::File(make(&a.file, true).map_err(|e| cannot_write(&a.file, &e))?),
    };
    let mut keys = match a.keys {
        true => Some(Keys::make(&a.file)?),
        false => None,
    };
    let id = new_id();
    let stop = Stop { uri: a.vici.clone(), id: id.clone(), said: Arc::default() };
    stop.at_signals()?;
    if pipe {
        stop.at_closed_pipe()?;
    }
    let mut message = Section::new().with("id", id).with("drops", a.drops).with("keys", a.keys);
    if let Some(name) = &a.name {
        message.put("ike", name.as_str());
    }
    for (key, number) in [("time", a.time), ("packets", a.packets), ("snaplen", a.snaplen.map(u64::from))] {
        if let Some(number) = number {
            message.put(key, number);
        }
    }
    let mut written = Written { output, bytes: 0, packets: 0, missed: 0 };
    let mut failed = None;
    let answer = client.stream("ironswan-capture", "capture", message, None, |event| {
        if failed.is_some() {
            return;
        }
        let result = written
            .take(&event)
            .map_err(|e| (false, e))
            .and_then(|()| keys.as_mut().map_or(Ok(()), |keys| keys.take(&event)).map_err(|e| (true, e)));
        if let Err(e) = result {
            failed = Some(e);
            stop.stop();
        }
    });
    let refused = match &answer {
        Ok(answer) => refusal(answer),
        Err(_) => None,
    };
    if let Some(why) = refused {
        if !pipe && written.bytes == 0 {
            // What was made for nothing.
            let _ = std::fs::remove_file(&a.file);
        }
        return Err(Failure::no(why));
    }
    match failed {
        // Whoever reads the pipe has seen enough.
        Some((false, e)) if pipe && e.kind() == ErrorKind::BrokenPipe => {}
        Some((of_keys, e)) => {
            let file = if of_keys { keys_folder(&a.file) } else { a.file.clone() };
            let mut failure = cannot_write(&file, &e);
            failure.lines.push(format!("{} were written before, and can be read", packets(written.packets)));
            return Err(failure);
        }
        None => {}
    }
    written.say(a, keys.as_ref());
    answer.map(|_| ())
}

fn packets(n: u64) -> String {
    if n == 1 { "1 packet".to_owned() } else { format!("{n} packets") }
}

fn cannot_write(file: &Path, e: &std::io::Error) -> Failure {
    Failure::no(format!("cannot write to {}: {e}", file.to_string_lossy().escape_debug()))
}

/// Opens a file for nobody else: what is in it was protected. `again`: one that is there is
/// emptied.
fn make(path: &Path, again: bool) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).create_new(!again).truncate(again).mode(0o600).open(path)
}

impl Written {
    /// Writes the blocks of an event. When they cannot all be written, the file is cut behind the
    /// last whole one.
    fn take(&mut self, event: &Section) -> std::io::Result<()> {
        self.missed = event.get_str("missed").and_then(|n| n.parse().ok()).unwrap_or_default();
        let blocks = event.get_list("data").unwrap_or_default().concat();
        let mut done = 0;
        while done < blocks.len() {
            let result = match &mut self.output {
                Output::File(file) => file.write(&blocks[done..]),
                Output::Pipe(out) => out.write(&blocks[done..]),
            };
            match result {
                Ok(0) => return Err(self.cut(&blocks[..done], ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.cut(&blocks[..done], e)),
            }
        }
        if let Output::Pipe(out) = &mut self.output {
            out.flush()?;
        }
        let (_, packets) = whole(&blocks);
        self.bytes += blocks.len() as u64;
        self.packets += packets;
        Ok(())
    }

    /// Cuts off what was written of a block that is not whole.
    fn cut(&mut self, written: &[u8], why: std::io::Error) -> std::io::Error {
        let (len, packets) = whole(written);
        self.bytes += len as u64;
        self.packets += packets;
        if let Output::File(file) = &self.output {
            // If that fails as well, the file ends with a part of a packet, which readers say.
            let _ = file.set_len(self.bytes);
        }
        why
    }

    /// What there is now, to standard error: the packets may be on standard output.
    fn say(&self, a: &Capture, keys: Option<&Keys>) {
        let missed = match self.missed {
            0 => "none was missed".to_owned(),
            1 => "1 packet was missed".to_owned(),
            n => format!("{n} packets were missed"),
        };
        complain(format_args!("{} captured, {missed}", packets(self.packets)));
        let Some(keys) = keys else { return };
        let folder = keys_folder(&a.file);
        let folder = folder.to_string_lossy();
        complain(format_args!(
            "{} KEYS are in {}: whoever has them reads what these SAs carried; delete them when you are done",
            keys.lines,
            folder.escape_debug()
        ));
        if keys.lines == 0 {
            complain(format_args!(
                "no SA was made meanwhile: `ironswan rekey NAME` during a capture makes new ones"
            ));
        }
    }
}

/// The length of the whole blocks at the begin, and the packets among them.
fn whole(blocks: &[u8]) -> (usize, u64) {
    let word =
        |at: usize| blocks.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
    let (mut at, mut packets) = (0, 0);
    loop {
        let len = word(at + 4) as usize;
        if len < MIN_BLOCK || at + len > blocks.len() {
            return (at, packets);
        }
        packets += u64::from(word(at) == PACKET);
        at += len;
    }
}

/// The folder beside a capture.
fn keys_folder(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keys");
    name.into()
}

/// The tables, each made when its first line comes.
struct Keys {
    folder: PathBuf,
    tables: Vec<(String, File)>,
    lines: usize,
}

impl Keys {
    fn make(file: &Path) -> Result<Self, Failure> {
        let folder = keys_folder(file);
        DirBuilder::new().mode(0o700).create(&folder).map_err(|e| {
            let mut failure = cannot_write(&folder, &e);
            if e.kind() == ErrorKind::AlreadyExists {
                failure
                    .lines
                    .push("keys of an earlier capture are there: delete them, or name another file".into());
            }
            failure
        })?;
        complain(format_args!(
            "the KEYS of SAs that are made from now on go to {}; keys of those that stand are not kept anywhere",
            folder.to_string_lossy().escape_debug()
        ));
        Ok(Self { folder, tables: Vec::new(), lines: 0 })
    }

    fn take(&mut self, event: &Section) -> std::io::Result<()> {
        for (table, value) in event.section("keys").into_iter().flat_map(Section::iter) {
            let Value::List(lines) = value else { continue };
            // Nothing else becomes the name of a file.
            if !matches!(table, "ikev2_decryption_table" | "esp_sa") {
                continue;
            }
            let at = match self.tables.iter().position(|(name, _)| name == table) {
                Some(at) => at,
                None => {
                    self.tables.push((table.to_owned(), make(&self.folder.join(table), false)?));
                    self.tables.len() - 1
                }
            };
            let mut all = Zeroizing::new(Vec::new());
            for line in lines {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
            self.tables[at].1.write_all(&all)?;
            self.lines += lines.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = ((12 + body.len()) as u32).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, body, &len].concat()
    }

    #[test]
    fn whole_blocks_are_found_in_what_a_full_disk_has_left() {
        let all = [block(0x0a0d_0d0a, &[0; 8]), block(PACKET, &[1; 20]), block(PACKET, &[2; 4])].concat();
        assert_eq!(whole(&all), (all.len(), 2));
        assert_eq!(whole(&all[..all.len() - 1]), (52, 1));
        assert_eq!(whole(&all[..30]), (20, 0));
        assert_eq!(whole(&all[..3]), (0, 0));
        assert_eq!(whole(&[]), (0, 0));
        // Lengths that lie end it.
        assert_eq!(whole(&[0; 64]), (0, 0));
        assert_eq!(whole(&[0xff; 64]), (0, 0));
    }
}
