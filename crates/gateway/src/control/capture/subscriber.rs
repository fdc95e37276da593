//! One capture: what it wants, and the blocks that wait for its client.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use ironswan_ipsec::{Fate, Layer, Tap, TapPacket};
use ironswan_wire::sadb::ReqId;
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::record::{self, Whose};
use crate::dataplane::captured::IkeCopy;

/// Bytes of a packet, at most and by default.
pub(super) const MAX_SNAPLEN: usize = 65_535;

/// Bytes that wait for a client beside what its queue holds. What does not fit is missed.
const MAX_WAITING: usize = 2 << 20;
/// Bytes of an event, about.
const EVENT: usize = 48 * 1024;
/// Lines of key tables that wait for a client.
const MAX_KEYS: usize = 4_096;

/// Connection and child of each reqid.
pub(super) type Names = BTreeMap<ReqId, (String, String)>;

/// What a client asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The client's name for it, by which it is stopped.
    pub(super) id: String,
    /// This connection; `None` for everything.
    pub(super) conn: Option<String>,
    /// Only packets that are dropped.
    pub(super) drops: bool,
    /// Lines of the key tables.
    pub(super) keys: bool,
    /// Bytes of a packet.
    pub(super) snaplen: usize,
    /// It ends by itself after so many packets.
    pub(super) packets: Option<u64>,
}

/// Whole blocks, and how many packets they are.
#[derive(Default)]
pub(super) struct Blocks {
    pub(super) bytes: Vec<u8>,
    pub(super) packets: u64,
}

/// A capture.
pub(super) struct Subscriber {
    pub(super) asked: Asked,
    /// The reqids of its connection.
    pub(super) names: RefCell<Names>,
    waiting: RefCell<VecDeque<Blocks>>,
    bytes: Cell<usize>,
    keys: RefCell<VecDeque<(&'static str, Zeroizing<String>)>>,
    /// Inner and outer packets.
    recorded: Cell<[u64; 2]>,
    missed: Cell<[u64; 2]>,
    stopped: Cell<bool>,
    pub(super) more: Notify,
}

impl Subscriber {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            asked,
            names: RefCell::default(),
            waiting: RefCell::default(),
            bytes: Cell::default(),
            keys: RefCell::default(),
            recorded: Cell::default(),
            missed: Cell::default(),
            stopped: Cell::default(),
            more: Notify::new(),
        }
    }

    /// Records a copy of the data plane, if it is wanted.
    pub(super) fn packet(&self, tap: &Tap, packet: &TapPacket) {
        if self.asked.drops && !matches!(packet.fate, Fate::Dropped(_)) {
            return;
        }
        let names = self.names.borrow();
        let named = packet.reqid.and_then(|reqid| names.get(&reqid));
        if self.asked.conn.is_some() && named.is_none() {
            return;
        }
        let whose = Whose { conn: named.map(|(conn, _)| &**conn), child: named.map(|(_, child)| &**child) };
        let snaplen = self.asked.snaplen;
        self.record(packet.layer, |out| record::packet(out, (tap, packet), whose, snaplen).is_ok());
    }

    /// Records an IKE message of this connection, if it is wanted.
    pub(super) fn ike(&self, copy: &IkeCopy, conn: Option<&str>) {
        if self.asked.drops || self.asked.conn.is_some() && self.asked.conn.as_deref() != conn {
            return;
        }
        let whose = Whose { conn, child: None };
        self.record(Layer::Outer, |out| record::ike(out, copy, whose, self.asked.snaplen).is_ok());
    }

    fn record(&self, layer: Layer, add: impl FnOnce(&mut Vec<u8>) -> bool) {
        let at = layer as usize;
        let recorded = self.recorded.get();
        if self.asked.packets.is_some_and(|most| recorded.iter().sum::<u64>() >= most) {
            return self.stop();
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.back().is_none_or(|blocks| blocks.bytes.len() >= EVENT) {
            waiting.push_back(Blocks::default());
        }
        let Some(blocks) = waiting.back_mut() else { return };
        let before = blocks.bytes.len();
        if self.bytes.get() >= MAX_WAITING || !add(&mut blocks.bytes) {
            let mut missed = self.missed.get();
            missed[at] += 1;
            return self.missed.set(missed);
        }
        blocks.packets += 1;
        self.bytes.set(self.bytes.get() + blocks.bytes.len() - before);
        let mut recorded = recorded;
        recorded[at] += 1;
        self.recorded.set(recorded);
        if self.asked.packets.is_some_and(|most| recorded.iter().sum::<u64>() >= most) {
            self.stop();
        }
    }

    /// Packets of which nobody made a copy.
    pub(super) fn miss(&self, more: [u64; 2]) {
        let missed = self.missed.get();
        self.missed.set([missed[0] + more[0], missed[1] + more[1]]);
    }

    /// A line of a key table.
    pub(super) fn key(&self, table: &'static str, line: Zeroizing<String>) {
        let mut keys = self.keys.borrow_mut();
        if self.asked.keys && keys.len() < MAX_KEYS {
            keys.push_back((table, line));
            self.more.notify_one();
        }
    }

    /// The next blocks to send; `None` when none wait.
    pub(super) fn next(&self) -> Option<Blocks> {
        let blocks = self.waiting.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - blocks.bytes.len());
        Some(blocks)
    }

    /// The next line of a key table.
    pub(super) fn next_key(&self) -> Option<(&'static str, Zeroizing<String>)> {
        self.keys.borrow_mut().pop_front()
    }

    /// Inner and outer packets that were recorded, and those that were missed.
    pub(super) fn counts(&self) -> [[u64; 2]; 2] {
        [self.recorded.get(), self.missed.get()]
    }

    /// Ends it, once what waits has been sent.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
        self.more.notify_one();
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.get()
    }
}
