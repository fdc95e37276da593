//! The captures that are on: what they want of the data plane and of the driver, and what these
//! have copied.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ironswan_ike::event::{Event, KeyLog};
use ironswan_ipsec::Wanted;
use tokio::sync::Mutex;

use super::subscriber::{MAX_SNAPLEN, Subscriber};
use crate::dataplane::captured::{IkeCopy, wall_nanos};
use crate::driver::Driver;
use crate::observe::keylog;

/// Pause between two looks at what the workers have copied.
const INTERVAL: Duration = Duration::from_millis(10);
/// Packets that are recorded before the control thread turns to something else.
const SLICE: usize = 500;
/// Bytes of IKE messages that wait for the next look.
const MAX_IKE: usize = 4 << 20;

/// The captures that are on.
#[derive(Default)]
pub(in crate::control) struct Captures {
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
    pub(super) fn all(&self) -> Vec<Rc<Subscriber>> {
        self.on.borrow().values().cloned().collect()
    }

    pub(super) fn count(&self) -> usize {
        self.on.borrow().len()
    }

    /// Adds a capture, and gives its number. Call [`Captures::refresh`] and [`Captures::tell_keys`]
    /// then.
    pub(super) fn add(&self, driver: &Driver, subscriber: Rc<Subscriber>) -> u64 {
        if self.on.borrow().is_empty() {
            self.keylog.set(driver.view(|e, _| e.protocol().options().keylog));
        }
        let number = self.last.get() + 1;
        self.last.set(number);
        self.on.borrow_mut().insert(number, subscriber);
        number
    }

    /// Ends a capture.
    pub(super) fn remove(&self, driver: &Driver, number: u64) -> Option<Rc<Subscriber>> {
        let ended = self.on.borrow_mut().remove(&number);
        self.refresh(driver);
        self.tell_keys(driver);
        ended
    }

    /// Has keys told as long as a capture or the configuration wants them.
    pub(super) fn tell_keys(&self, driver: &Driver) {
        let wanted = self.all().iter().any(|s| s.asked.keys);
        driver.tell_keys(wanted || self.keylog.get());
    }

    /// Starts the task that looks for copies until no capture is on.
    pub(super) fn look_at_copies(self: &Rc<Self>, driver: &Driver) {
        if self.looking.replace(true) {
            return;
        }
        let (captures, driver) = (self.clone(), driver.clone());
        tokio::task::spawn_local(async move {
            while captures.count() > 0 {
                tokio::time::sleep(INTERVAL).await;
                captures.look(&driver).await;
            }
            captures.looking.set(false);
        });
    }

    /// An IKE message has come or leaves.
    pub(in crate::control) fn datagram(&self, driver: &Driver, copy: IkeCopy) {
        let size = copy.payload.len() + 200;
        if self.ike_bytes.get() + size > MAX_IKE {
            return self.ike_missed.set(self.ike_missed.get() + 1);
        }
        self.ike_bytes.set(self.ike_bytes.get() + size);
        let conn = copy.ike.and_then(|id| conn_of(driver, id));
        self.ike.borrow_mut().push((copy, conn));
    }

    /// An event that captures are interested in.
    pub(in crate::control) fn event(&self, driver: &Driver, event: &Event) {
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
    pub(super) fn refresh(&self, driver: &Driver) -> bool {
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
    pub(super) async fn look(&self, driver: &Driver) {
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
