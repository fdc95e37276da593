//! One client: reads frames, runs its commands one after the other, writes what waits for it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use ironswan_config::request::bad;
use ironswan_ike::event::Level;
use ironswan_io::clock;
use ironswan_keying::diagnosis::{Configuration, RequestFault};
use ironswan_wire::vici::{FrameReader, Packet, Section};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use zeroize::{Zeroize, Zeroizing};

use super::queue::Queue;
use super::socket::Access;
use super::{Control, EVENTS, reads};
use crate::observe::log::Repeated;

/// A client that takes nothing for so long, while something waits for it, is given up.
const STALLED: Duration = Duration::from_secs(30);

/// How often to look whether a client whose command is under way is still there. Nothing is read
/// from it meanwhile.
const HANG_UP_CHECK: Duration = Duration::from_secs(1);

/// Events of a list between two turns of the others.
const SLICE: u32 = 64;

/// Log lines that a running command streams to its client: those up to this level of charon's, of
/// these connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    pub(super) level: u8,
    pub(super) conns: HashSet<String>,
}

/// One client.
#[derive(Default)]
pub(super) struct Client {
    /// Power of the socket by which it has come.
    pub(super) access: Access,
    pub(super) queue: Queue,
    events: RefCell<HashSet<&'static str>>,
    watch: RefCell<Option<Watch>>,
    /// Events of lists that were sent.
    listed: Cell<u32>,
    /// A command of its is carried out.
    busy: Cell<bool>,
}

impl Client {
    /// A client that has come by a socket of this power.
    pub(super) fn new(access: Access) -> Self {
        Self { access, ..Self::default() }
    }

    /// True when it has registered for the event.
    pub(super) fn wants(&self, event: &str) -> bool {
        self.events.borrow().contains(event)
    }

    /// True for a client that neither has a command carried out nor listens to anything.
    pub(super) fn is_idle(&self) -> bool {
        !self.busy.get() && self.events.borrow().is_empty()
    }

    /// Lets others have their turn, every now and then within a long list.
    async fn breathe(&self) {
        self.listed.set(self.listed.get().wrapping_add(1));
        if self.listed.get().is_multiple_of(SLICE) {
            tokio::task::yield_now().await;
        }
    }

    /// Sends an event, if it has registered for it.
    pub(super) fn event(&self, name: &str, message: &Section) {
        if self.wants(name) {
            match (Packet::Event { name: name.to_owned(), message: message.clone() }).emit() {
                Ok(frame) => self.queue.push(frame),
                Err(e) => too_large(name, e),
            }
        }
    }

    /// Sends an event of a list, waiting for room. False when the client is gone.
    pub(super) async fn stream(&self, name: &str, message: Section) -> bool {
        self.breathe().await;
        if !self.wants(name) {
            return true;
        }
        match (Packet::Event { name: name.to_owned(), message }).emit() {
            Ok(frame) => self.queue.push_when_room(frame).await,
            Err(e) => {
                too_large(name, e);
                true
            }
        }
    }

    /// Sends an event of a list whose item has parts, as one event of a section `item` with `head`
    /// and the parts under `key`, or as several with the same head if a frame cannot hold all
    /// parts. False when the client is gone.
    pub(super) async fn stream_parts(
        &self,
        name: &str,
        item: &str,
        head: Section,
        (key, parts): (&str, Vec<(String, Section)>),
    ) -> bool {
        self.breathe().await;
        if !self.wants(name) {
            return true;
        }
        let mut at = 0;
        let mut size = parts.len();
        loop {
            let end = parts.len().min(at + size);
            let part: Section = parts[at..end].iter().cloned().collect();
            let message = Section::new().with(item, head.clone().with(key, part));
            match (Packet::Event { name: name.to_owned(), message }).emit() {
                Ok(frame) => {
                    if !self.queue.push_when_room(frame).await {
                        return false;
                    }
                    at = end;
                }
                Err(_) if end - at > 1 => {
                    size = (end - at).div_ceil(2);
                    continue;
                }
                Err(e) => {
                    too_large(name, e);
                    at = end;
                }
            }
            if at >= parts.len() {
                return true;
            }
        }
    }

    /// Streams the log of these connections as `control-log` until the guard is dropped.
    pub(super) fn watch(&self, watch: Watch) -> WatchGuard<'_> {
        *self.watch.borrow_mut() = Some(watch);
        WatchGuard(self)
    }

    /// True when a line of this level and connection belongs to its running command.
    pub(super) fn watches(&self, level: u8, conn: Option<&str>) -> bool {
        self.watch
            .borrow()
            .as_ref()
            .is_some_and(|w| level <= w.level && conn.is_some_and(|c| w.conns.contains(c)))
    }
}

fn too_large(event: &str, e: impl std::fmt::Display) {
    static LINES: Repeated = Repeated::new();
    LINES.line(Level::Warn, || format!("the VICI event {event} does not fit a frame: {e}"));
}

pub(super) struct WatchGuard<'a>(&'a Client);

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        *self.0.watch.borrow_mut() = None;
    }
}

/// Serves a client until it goes, or sends what is no VICI.
pub(super) async fn serve(control: &Control, client: &Client, stream: UnixStream) {
    let (mut read, mut write) = stream.into_split();
    let reader = async {
        let mut frames = FrameReader::new();
        // A frame may bring a key.
        let mut buf = Zeroizing::new(vec![0; 4096]);
        loop {
            match read.read(&mut buf).await {
                Ok(0) => break client.queue.finish(),
                Err(_) => break client.queue.close(),
                Ok(n) => {
                    frames.feed(&buf[..n]);
                    buf[..n].zeroize();
                }
            }
            let ran = tokio::select! {
                ran = packets(control, client, &mut frames) => ran,
                () = hung_up(read.as_ref()) => break client.queue.close(),
            };
            if let Err(e) = ran {
                tracing::debug!("a VICI client is cut off: {e}");
                // A last word, so that whoever wrote the client learns why.
                if let Ok(bytes) = Packet::CmdResponse(super::failure(format!("not VICI: {e}"))).emit() {
                    client.queue.push_when_room(bytes).await;
                }
                break client.queue.finish();
            }
        }
    };
    let writer = async {
        while let Some(frame) = client.queue.next().await {
            match tokio::time::timeout(STALLED, write.write_all(&frame)).await {
                Ok(Ok(())) => {}
                _ => {
                    client.queue.close();
                    return;
                }
            }
        }
        // The reader must not wait for a client that has been closed from this side.
        client.queue.close();
    };
    let ended = async {
        client.queue.closed().await;
    };
    tokio::join!(writer, async {
        tokio::select! {
            () = reader => {}
            () = ended => {}
        }
    });
}

/// Returns once the client has closed its socket. One that has only said that it will send no more
/// still reads.
async fn hung_up(stream: &UnixStream) {
    loop {
        tokio::time::sleep(HANG_UP_CHECK).await;
        // The kernel tells HUP without being asked for it.
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        if poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP) {
            return;
        }
    }
}

/// Runs the packets that have arrived whole. An error is the client's fault.
async fn packets(control: &Control, client: &Client, frames: &mut FrameReader) -> Result<(), Configuration> {
    let not_vici = |e: &dyn fmt::Display| bad(RequestFault::NotVici(e.to_string()));
    while let Some(frame) = frames.next_frame().map_err(|e| not_vici(&e))? {
        let mut command = String::new();
        let begun = clock::now();
        let answer = match Packet::parse(&frame).map_err(|e| not_vici(&e))? {
            Packet::CmdRequest { name, message } => {
                client.busy.set(true);
                let answer = carried_out(control, client, &name, message).await;
                client.busy.set(false);
                command = name;
                answer.map_or(Packet::CmdUnknown, Packet::CmdResponse)
            }
            Packet::EventRegister(name) => match EVENTS.iter().find(|e| **e == name) {
                Some(event) => {
                    client.events.borrow_mut().insert(event);
                    Packet::EventConfirm
                }
                None => Packet::EventUnknown,
            },
            Packet::EventUnregister(name) => {
                if client.events.borrow_mut().remove(name.as_str()) {
                    Packet::EventConfirm
                } else {
                    Packet::EventUnknown
                }
            }
            _ => return Err(bad(RequestFault::DaemonPacket)),
        };
        let fits = answer.emit().or_else(|e| {
            let why = format!("the answer to {command} does not fit a frame of VICI: {e}");
            Packet::CmdResponse(super::failure(why)).emit()
        });
        let bytes = fits.map_err(|e| not_vici(&e))?;
        if !client.queue.push_when_room(bytes).await {
            return Ok(());
        }
        match client.access {
            Access::ReadOnly => {
                let took = clock::now().saturating_duration_since(begun);
                tokio::time::sleep(took.min(reads::MAX_PAUSE)).await;
            }
            Access::Full => tokio::task::yield_now().await,
        }
    }
    Ok(())
}

/// Carries out one command. Clients that only read wait for their turn, and have a limited time.
async fn carried_out(control: &Control, client: &Client, name: &str, message: Section) -> Option<Section> {
    let dispatched = control.dispatch(client, name, message);
    if client.access == Access::Full || reads::lasts(name) {
        return dispatched.await;
    }
    let _turn = control.reading.acquire().await;
    match tokio::time::timeout(reads::LIMIT, dispatched).await {
        Ok(answer) => answer,
        Err(_) => {
            tracing::debug!("a VICI client that only reads is cut off: it takes {name} too slowly");
            client.queue.close();
            None
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
