//! Our own `ironswan-capture`: copies of packets, with what became of them, as the blocks of a
//! pcapng file.
//!
//! ```text
//! request        ike = net  drops = no  keys = no  snaplen = 65535  packets = 100  time = 60
//!                id = NAME | stop = NAME
//! capture event  data = [ blocks, .. ]  packets = 17  missed = 0
//!                keys { esp_sa = [ line, .. ] }
//! answer         success = yes  packets = 100  missed = 3
//! ```
//! The request is carried out until the time is over, the packets are there, another client says
//! `stop` with its `id`, or the client goes. Put one behind the other, `data` of all events is the
//! file; each event ends with a whole block. `missed` counts from the begin. Without `ike` the
//! packets of every connection and of none are wanted. `keys` has lines, without their ends, of the
//! tables that tshark and Wireshark read, of SAs that are made while the capture is on.
//!
//! A worker waits for no capture (`dataplane::captured`), nor does the control thread: a client
//! that stalls loses packets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `captures` | the captures that are on, and what was copied for them |
//! | `around` | IP and UDP headers of outer packets |
//! | `record` | a packet as a block of pcapng, with its comment |
//! | `subscriber` | one capture: what it wants, and what waits for its client |

mod around;
pub(super) mod captures;
mod record;
mod subscriber;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ironswan_config::request::{flag, number, text};
use ironswan_ike::event::Level;
use ironswan_keying::diagnosis::Configuration;
use ironswan_wire::vici::{Section, Value};

use super::client::Client;
use super::{Control, failure, success};
use crate::dataplane::captured::wall_nanos;
use crate::observe::log;
use subscriber::{Asked, MAX_SNAPLEN, Subscriber};

/// Captures at one time.
const MAX_CAPTURES: usize = 16;
/// Bytes of an item of a list of VICI, at most.
const ITEM: usize = 60_000;
/// The longest time of a capture, in seconds.
const MAX_TIME: u64 = 30 * 86_400;

/// A capture that is on; ends it when dropped.
struct On<'a> {
    control: &'a Control,
    number: u64,
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        let ended = self.control.captures.remove(&self.control.driver, self.number);
        if let Some(ended) = ended {
            let [recorded, missed] = ended.counts().map(|n| n.iter().sum::<u64>());
            let text = format!("a capture has ended: {recorded} packets, {missed} missed");
            log::line(Level::Info, ended.asked.conn.as_deref(), &text, None);
        }
    }
}

impl Control {
    /// `ironswan-capture`.
    pub(super) async fn capture(&self, client: &Client, message: &Section) -> Section {
        if let Some(id) = text(message, "stop") {
            let found = self.captures.all().into_iter().find(|s| s.asked.id == id);
            return match found {
                Some(s) => {
                    s.stop();
                    success()
                }
                None => failure("there is no such capture"),
            };
        }
        let (asked, time) = match asked(message) {
            Ok(asked) => asked,
            Err(e) => return failure(e.to_string()),
        };
        if !client.wants("capture") {
            return failure("register for the event capture first");
        }
        if let Some(conn) = &asked.conn
            && !self.driver.view(|e, _| e.connections().iter().any(|c| c.name == *conn))
        {
            return failure(format!("there is no connection '{}'", conn.escape_debug()));
        }
        if self.captures.count() >= MAX_CAPTURES {
            return failure(format!("{MAX_CAPTURES} captures are on already; end one"));
        }
        let Some((on, subscriber)) = self.begin(asked) else {
            return failure("this data plane gives no copies of packets");
        };
        if give(client, &subscriber, time).await {
            self.captures.look(&self.driver).await;
            send_waiting(client, &subscriber).await;
        }
        let [recorded, missed] = subscriber.counts();
        let shared = self.captures.count() > 1;
        let bytes = record::end(wall_nanos(), recorded, missed, shared);
        drop(on);
        let all = missed.iter().sum();
        client.stream("capture", event(subscriber::Blocks { bytes, packets: 0 }, all, Section::new())).await;
        success().with("packets", recorded.iter().sum::<u64>()).with("missed", all)
    }

    /// Begins a capture. `None`: the data plane gives no copies.
    fn begin(&self, asked: Asked) -> Option<(On<'_>, Rc<Subscriber>)> {
        let captures = &self.captures;
        let subscriber = Rc::new(Subscriber::new(asked));
        let number = captures.add(&self.driver, subscriber.clone());
        let on = On { control: self, number };
        if !captures.refresh(&self.driver) {
            return None;
        }
        captures.tell_keys(&self.driver);
        let conn = subscriber.asked.conn.as_deref();
        let what = if subscriber.asked.drops { "dropped packets" } else { "packets" };
        let (level, keys) = match subscriber.asked.keys {
            true => (
                Level::Warn,
                ", WITH THE KEYS of SAs that are made meanwhile: whoever has them reads what these SAs carry",
            ),
            false => (Level::Info, ""),
        };
        log::line(level, conn, &format!("a capture of {what} begins{keys}"), None);
        captures.look_at_copies(&self.driver);
        Some((on, subscriber))
    }
}

/// What a request asks for, and for how long.
fn asked(message: &Section) -> Result<(Asked, Option<Duration>), Configuration> {
    let snaplen = number::<u32>(message, "snaplen")?.filter(|n| *n != 0);
    let time = number::<u64>(message, "time")?.map(|secs| Duration::from_secs(secs.min(MAX_TIME)));
    let asked = Asked {
        id: text(message, "id").unwrap_or_default().to_owned(),
        conn: text(message, "ike").map(str::to_owned),
        drops: flag(message, "drops")?,
        keys: flag(message, "keys")?,
        snaplen: snaplen.map_or(MAX_SNAPLEN, |n| (n as usize).min(MAX_SNAPLEN)),
        packets: number::<u64>(message, "packets")?,
    };
    Ok((asked, time))
}

/// Gives the client what is recorded until the capture ends. False: the client is gone.
async fn give(client: &Client, subscriber: &Subscriber, time: Option<Duration>) -> bool {
    let begin = subscriber::Blocks { bytes: record::begin(subscriber.asked.snaplen), packets: 0 };
    if !client.stream("capture", event(begin, 0, Section::new())).await {
        return false;
    }
    let over = async {
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    loop {
        // What waits is sent before anything ends it.
        if !send_waiting(client, subscriber).await {
            return false;
        }
        if subscriber.has_stopped() {
            return true;
        }
        tokio::select! {
            () = subscriber.more.notified() => {}
            () = &mut over => subscriber.stop(),
        }
    }
}

/// Sends what is recorded and waits. False: the client is gone.
async fn send_waiting(client: &Client, subscriber: &Subscriber) -> bool {
    loop {
        let (blocks, keys) = (subscriber.next(), keys(subscriber));
        if blocks.is_none() && keys.is_empty() {
            return true;
        }
        let missed = subscriber.counts()[1].iter().sum();
        if !client.stream("capture", event(blocks.unwrap_or_default(), missed, keys)).await {
            return false;
        }
    }
}

/// Lines of the key tables that wait, by table.
fn keys(subscriber: &Subscriber) -> Section {
    let mut tables: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for _ in 0..64 {
        let Some((table, line)) = subscriber.next_key() else { break };
        tables.entry(table).or_default().push(line.trim_end().as_bytes().to_vec());
    }
    tables.into_iter().map(|(table, lines)| (table.to_owned(), Value::List(lines))).collect()
}

fn event(blocks: subscriber::Blocks, missed: u64, keys: Section) -> Section {
    let items: Vec<Vec<u8>> = blocks.bytes.chunks(ITEM).map(<[u8]>::to_vec).collect();
    let event = Section::new().with("data", items).with("packets", blocks.packets).with("missed", missed);
    if keys.is_empty() { event } else { event.with("keys", keys) }
}

#[cfg(test)]
#[path = "../capture_tests.rs"]
mod tests;
