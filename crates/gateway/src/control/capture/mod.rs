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
//! packets of every connection and of none are wanted. `keys` has lines of the tables that tshark
//! and Wireshark read, of SAs that are made while the capture is on.
//!
//! A worker waits for no capture (`dataplane::captured`), nor does the control thread: a client
//! that stalls loses packets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `around` | IP and UDP headers of outer packets |
//! | `record` | a packet as a block of pcapng, with its comment |
//! | `subscriber` | one capture: what it wants, and what waits for its client |

mod around;
mod record;
mod subscriber;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ironswan_config::request::{flag, number, text};
use ironswan_ike::event::{Event, KeyLog, Level};
use ironswan_ipsec::Wanted;
use ironswan_keying::diagnosis::Configuration;
use ironswan_wire::vici::{Section, Value};

use super::client::Client;
use super::{Control, failure, success};
use crate::driver::{Driver, IkeCopy, wall_nanos};
use crate::observe::{keylog, log};
use subscriber::{Asked, Subscriber};
use tokio::sync::Mutex;

/// Pause between two looks at what the workers have copied.
const INTERVAL: Duration = Duration::from_millis(10);
/// Packets that are recorded before the control thread turns to something else.
const SLICE: usize = 500;
/// Captures at one time.
const MAX_CAPTURES: usize = 16;
/// Bytes of IKE messages that wait for the next look.
const MAX_IKE: usize = 4 << 20;
/// Bytes of a packet, at most and by default.
const MAX_SNAPLEN: usize = 65_535;
/// Bytes of an item of a list of VICI, at most.
const ITEM: usize = 60_000;
/// The longest time of a capture, in seconds.
const MAX_TIME: u64 = 30 * 86_400;

/// The captures that are on.
#[derive(Default)]
pub(super) struct Captures {
    on: RefCell<BTreeMap<u64, Rc<Subscriber>>>,
    last: Cell<u64>,
    /// Names may have changed since captures looked.
    stale: Cell<bool>,
    /// IKE messages since the last look, with their connections.
    ike: RefCell<Vec<(IkeCopy, Option<String>)>>,
    ike_bytes: Cell<usize>,
    ike_missed: Cell<u64>,
    /// Held by whoever looks, so that nobody takes what was copied for recorded before it is.
    busy: Mutex<()>,
    /// The task that looks is running.
    looking: Cell<bool>,
    /// The configuration says that keys are told, whether there is a capture or not.
    keylog: Cell<bool>,
}

impl Captures {
    fn all(&self) -> Vec<Rc<Subscriber>> {
        self.on.borrow().values().cloned().collect()
    }

    /// An IKE message has come or leaves.
    pub(super) fn datagram(&self, driver: &Driver, copy: IkeCopy) {
        let size = copy.payload.len() + 200;
        if self.ike_bytes.get() + size > MAX_IKE {
            return self.ike_missed.set(self.ike_missed.get() + 1);
        }
        self.ike_bytes.set(self.ike_bytes.get() + size);
        let conn = copy.ike.and_then(|id| conn_of(driver, id));
        self.ike.borrow_mut().push((copy, conn));
    }

    /// An event that captures are interested in.
    pub(super) fn event(&self, driver: &Driver, event: &Event) {
        if self.on.borrow().is_empty() {
            return;
        }
        match event {
            // The first packets of a new policy are not to be missed.
            Event::ChildUp { .. } => {
                self.refresh(driver);
            }
            Event::ChildDown { .. } | Event::ChildRekeyed { .. } | Event::IkeUp(_) => self.stale.set(true),
            Event::KeyLog(entry) => self.key(driver, entry),
            _ => {}
        }
    }

    fn key(&self, driver: &Driver, entry: &KeyLog) {
        let (id, table) = match entry {
            KeyLog::Ike { ike, .. } => (*ike, "ikev2_decryption_table"),
            KeyLog::Child { ike, .. } => (*ike, "esp_sa"),
        };
        let conn = conn_of(driver, id);
        for s in self.all().into_iter().filter(|s| s.asked.keys) {
            if s.asked.conn.is_none() || s.asked.conn == conn {
                s.key(table, keylog::line(entry));
            }
        }
    }

    /// Looks up the names anew, and tells the data plane what is wanted. False: it has no copies to
    /// give.
    fn refresh(&self, driver: &Driver) -> bool {
        self.stale.set(false);
        let all = self.all();
        for s in &all {
            // What has gone stays known: its last packets may be on their way.
            let now = driver.view(|e, _| e.protocol().reqids(s.asked.conn.as_deref()));
            let mut names = s.names.borrow_mut();
            match names.len() > 2 * now.len() + 64 {
                true => *names = now,
                false => names.extend(now),
            }
        }
        let wanted = (!all.is_empty()).then(|| {
            let mut reqids: Vec<_> =
                all.iter().flat_map(|s| s.names.borrow().keys().copied().collect::<Vec<_>>()).collect();
            reqids.sort_unstable();
            reqids.dedup();
            Arc::new(Wanted {
                everything: all.iter().any(|s| s.asked.conn.is_none()),
                reqids,
                only_dropped: all.iter().all(|s| s.asked.drops),
                snaplen: all.iter().map(|s| s.asked.snaplen).max().unwrap_or(MAX_SNAPLEN),
                clock: wall_nanos,
            })
        });
        let given = driver.capture(wanted);
        driver.tap_ike(all.iter().any(|s| !s.asked.drops));
        given
    }

    /// Records what the workers and the driver have copied.
    async fn look(&self, driver: &Driver) {
        let _busy = self.busy.lock().await;
        if self.stale.get() {
            self.refresh(driver);
        }
        let captured = driver.take_captured();
        let ike = std::mem::take(&mut *self.ike.borrow_mut());
        self.ike_bytes.set(0);
        let all = self.all();
        let mut missed = captured.missed;
        missed[1] += self.ike_missed.take();
        if missed != [0; 2] {
            all.iter().for_each(|s| s.miss(missed));
        }
        let taps = &captured.taps;
        let mut order: Vec<(u64, What)> = Vec::new();
        for (t, tap) in taps.iter().enumerate() {
            order.extend(
                tap.packets().iter().enumerate().map(|(p, packet)| (packet.time, What::Packet(t, p))),
            );
        }
        order.extend(ike.iter().enumerate().map(|(i, (copy, _))| (copy.time, What::Ike(i))));
        order.sort_by_key(|(time, _)| *time);
        for slice in order.chunks(SLICE) {
            for (_, what) in slice {
                match *what {
                    What::Packet(t, p) => all.iter().for_each(|s| s.packet(&taps[t], &taps[t].packets()[p])),
                    What::Ike(i) => all.iter().for_each(|s| s.ike(&ike[i].0, ike[i].1.as_deref())),
                }
            }
            all.iter().for_each(|s| s.more.notify_one());
            tokio::task::yield_now().await;
        }
    }
}

/// A packet of a batch, or an IKE message.
#[derive(Clone, Copy)]
enum What {
    Packet(usize, usize),
    Ike(usize),
}

fn conn_of(driver: &Driver, id: ironswan_ike::event::IkeId) -> Option<String> {
    driver.view(|e, _| e.protocol().conn_of(id).map(str::to_owned))
}

/// A capture that is on; ends it when dropped.
struct On<'a> {
    control: &'a Control,
    number: u64,
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        let captures = &self.control.captures;
        let ended = captures.on.borrow_mut().remove(&self.number);
        captures.refresh(&self.control.driver);
        self.control.tell_keys();
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
        if self.captures.on.borrow().len() >= MAX_CAPTURES {
            return failure(format!("{MAX_CAPTURES} captures are on already; end one"));
        }
        let Some((on, subscriber)) = self.begin(asked) else {
            return failure("this data plane gives no copies of packets");
        };
        let over = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let mut looked = false;
        let mut first = Some(record::begin(subscriber.asked.snaplen));
        loop {
            // What waits is sent before anything ends it.
            let sent = loop {
                let blocks = match first.take() {
                    Some(bytes) => Some(subscriber::Blocks { bytes, packets: 0 }),
                    None => subscriber.next(),
                };
                let keys = keys(&subscriber);
                if blocks.is_none() && keys.is_empty() {
                    break true;
                }
                let missed = subscriber.counts()[1].iter().sum();
                let message = event(blocks.unwrap_or_default(), missed, keys);
                if !client.stream("capture", message).await {
                    break false;
                }
            };
            if !sent || looked {
                break;
            }
            if subscriber.has_stopped() {
                self.captures.look(&self.driver).await;
                looked = true;
                continue;
            }
            tokio::select! {
                () = subscriber.more.notified() => {}
                () = &mut over => subscriber.stop(),
            }
        }
        let [recorded, missed] = subscriber.counts();
        let shared = self.captures.on.borrow().len() > 1;
        let bytes = record::end(wall_nanos(), recorded, missed, shared);
        drop(on);
        let all = missed.iter().sum();
        client.stream("capture", event(subscriber::Blocks { bytes, packets: 0 }, all, Section::new())).await;
        success().with("packets", recorded.iter().sum::<u64>()).with("missed", all)
    }

    /// Begins a capture. `None`: the data plane gives no copies.
    fn begin(&self, asked: Asked) -> Option<(On<'_>, Rc<Subscriber>)> {
        let captures = &self.captures;
        if captures.on.borrow().is_empty() {
            captures.keylog.set(self.driver.view(|e, _| e.protocol().options().keylog));
        }
        let subscriber = Rc::new(Subscriber::new(asked));
        let number = captures.last.get() + 1;
        captures.last.set(number);
        captures.on.borrow_mut().insert(number, subscriber.clone());
        let on = On { control: self, number };
        if !captures.refresh(&self.driver) {
            return None;
        }
        self.tell_keys();
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
        self.look_at_copies();
        Some((on, subscriber))
    }

    /// Has keys told as long as a capture or the configuration wants them.
    fn tell_keys(&self) {
        let wanted = self.captures.all().iter().any(|s| s.asked.keys);
        self.driver.tell_keys(wanted || self.captures.keylog.get());
    }

    /// Starts the task that looks for copies until no capture is on.
    fn look_at_copies(&self) {
        if self.captures.looking.replace(true) {
            return;
        }
        let (captures, driver) = (self.captures.clone(), self.driver.clone());
        tokio::task::spawn_local(async move {
            while !captures.on.borrow().is_empty() {
                tokio::time::sleep(INTERVAL).await;
                captures.look(&driver).await;
            }
            captures.looking.set(false);
        });
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

/// Lines of the key tables that wait, by table.
fn keys(subscriber: &Subscriber) -> Section {
    let mut tables: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for _ in 0..64 {
        let Some((table, line)) = subscriber.next_key() else { break };
        tables.entry(table).or_default().push(line.as_bytes().to_vec());
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
