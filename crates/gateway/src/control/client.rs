//! One client: reads frames, runs its commands one after the other, writes what waits for it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use ironswan_ike::event::Level;
use ironswan_wire::vici::{FrameReader, Packet, Section};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use zeroize::{Zeroize, Zeroizing};

use super::queue::Queue;
use super::{Control, EVENTS};
use crate::log::Repeated;

/// A client that takes nothing for so long, while something waits for it, is given up.
const STALLED: Duration = Duration::from_secs(30);

/// What a running command streams of the log: charon's levels up to this, of these connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    pub(super) level: u8,
    pub(super) conns: HashSet<String>,
}

/// One client.
#[derive(Default)]
pub(super) struct Client {
    pub(super) queue: Queue,
    events: RefCell<HashSet<&'static str>>,
    watch: RefCell<Option<Watch>>,
}

impl Client {
    /// True when it has registered for the event.
    pub(super) fn wants(&self, event: &str) -> bool {
        self.events.borrow().contains(event)
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
            if let Err(e) = packets(control, client, &mut frames).await {
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

/// Runs the packets that have arrived whole.
async fn packets(control: &Control, client: &Client, frames: &mut FrameReader) -> Result<(), String> {
    while let Some(frame) = frames.next_frame().map_err(|e| e.to_string())? {
        let answer = match Packet::parse(&frame).map_err(|e| e.to_string())? {
            Packet::CmdRequest { name, message } => {
                let answer = control.dispatch(client, &name, message).await;
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
            _ => return Err("a packet that only a daemon sends".to_owned()),
        };
        let bytes = answer.emit().map_err(|e| e.to_string())?;
        if !client.queue.push_when_room(bytes).await {
            return Ok(());
        }
    }
    Ok(())
}
