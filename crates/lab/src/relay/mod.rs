//! Link emulation by a relay of our own: two link ends in a namespace of the relay, and a thread
//! for each direction that takes frames from one packet socket, lets the [`Shaper`] (and the NAT)
//! decide what becomes of them and when, and sends them through the other. Needs nothing of the
//! kernel but packet sockets.
//!
//! ```text
//!   box ---- left  [ socket -> shaper -> NAT -> socket ]  right ---- box
//! ```
//! Link ends next to a relay must send whole, separate packets (no segmentation or checksum
//! offload): the topologies see to that.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `shaper` | rate, delay, loss and order of a link; pure |
//! | `link` | how a link is written on the command line |
//! | `nat` | translates addresses and ports |
//! | `packet` | fields of a frame that a relay reads and changes |
//! | `random` | random numbers that a seed determines |

mod link;
mod nat;
mod packet;
mod random;
mod shaper;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ironswan_io::mmsg::RecvSlots;
use ironswan_io::packet::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

pub use link::Link;
pub use nat::{Nat, NatCounts, NatSpec, Passage};
pub use random::Random;
pub use shaper::{ETHERNET, Impairment, Pushed, Shaper, ShaperCounts};

use crate::clock;
use crate::error::LabError;
use crate::topology::Netns;

/// The relay's own link ends.
pub(crate) const ENDS: [&str; 2] = ["left", "right"];
/// Frames of one receive, and room for each: jumbo frames.
const BATCH: usize = 32;
const ROOM: usize = 16 << 10;
/// Bytes of frames that wait in the kernel for the relay.
const BUFFER: u32 = 16 << 20;
/// How old its counts may become while it never waits, nanoseconds.
const STALE: u64 = 5_000_000;
/// Longest sleep: how soon a thread sees that it has to end.
const NAP: u64 = 20_000_000;

/// Settings of a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RelaySpec {
    /// To frames from left to right.
    pub there: Impairment,
    /// To frames from right to left.
    pub back: Impairment,
    /// A NAT with the left side inside.
    pub nat: Option<NatSpec>,
    /// Senders of packets larger than the MTU that may not be cut are told so (ICMP).
    pub tell_too_big: bool,
}

impl RelaySpec {
    /// The same in both directions, with different random numbers.
    pub fn both(with: Impairment) -> Self {
        let back = Impairment { seed: with.seed ^ 0x5bd1_e995, ..with };
        Self { there: with, back, nat: None, tell_too_big: false }
    }
}

/// Counters of a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayCounts {
    /// From left to right.
    pub there: DirectionCounts,
    /// From right to left.
    pub back: DirectionCounts,
    /// Of the NAT.
    pub nat: NatCounts,
}

/// One direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionCounts {
    /// Of the shaper.
    pub shaper: ShaperCounts,
    /// Frames that the kernel lost since the relay was too slow: they were never offered to the
    /// shaper.
    pub overrun: u64,
    /// Frames that were delivered and that the link on the other side did not take.
    pub refused: u64,
    /// The most that a frame left later than it should have, microseconds.
    pub latest_us: u64,
    /// For how long its thread has waited since nothing was due, microseconds. One that never waits
    /// cannot keep up.
    pub idle_us: u64,
}

/// A relay at work; dropping it ends its threads and removes its namespace.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: [Arc<Mutex<DirectionCounts>>; 2],
    nat: Option<Arc<Mutex<Nat>>>,
    // Last: the sockets of the threads are closed before it goes.
    _netns: Netns,
}

impl Relay {
    /// Relays between the two link ends ([`ENDS`]) in `netns`.
    pub(crate) fn start(netns: Netns, spec: RelaySpec) -> Result<Self, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::Measurement(format!("the relay: {e}"));
        let stop = Arc::new(AtomicBool::new(false));
        let nat = spec.nat.map(|nat| Arc::new(Mutex::new(Nat::new(nat))));
        let counts: [Arc<Mutex<DirectionCounts>>; 2] = Default::default();
        let mut relay = Self { stop, threads: Vec::new(), counts, nat, _netns: netns };
        let epoch = clock::now();
        for (side, with) in [spec.there, spec.back].into_iter().enumerate() {
            let open = || {
                let from = PacketSocket::listen(ENDS[side], 1, BUFFER)?;
                PacketSocket::open(ENDS[1 - side], 1, BUFFER).map(|to| (from, to))
            };
            let (from, to) = relay._netns.inside(open)?.map_err(|e| failed(&e))?;
            let direction = Direction {
                from,
                to,
                inside: side == 0,
                shaper: Shaper::new(with),
                mtu: with.mtu.filter(|_| spec.tell_too_big),
                nat: relay.nat.clone(),
                stop: relay.stop.clone(),
                shared: relay.counts[side].clone(),
                counts: DirectionCounts::default(),
                idle: 0,
                epoch,
            };
            let thread = thread::Builder::new().name(format!("lab-relay-{}", ENDS[side]));
            relay.threads.push(thread.spawn(move || direction.run()).map_err(|e| failed(&e))?);
        }
        Ok(relay)
    }

    /// The counters as of a few milliseconds ago.
    pub fn counts(&self) -> RelayCounts {
        let of = |side: usize| *self.counts[side].lock().unwrap_or_else(PoisonError::into_inner);
        let nat = |n: &Arc<Mutex<Nat>>| n.lock().unwrap_or_else(PoisonError::into_inner).counts();
        RelayCounts { there: of(0), back: of(1), nat: self.nat.as_ref().map(nat).unwrap_or_default() }
    }

    /// Has the NAT forget its mappings.
    pub fn forget_mappings(&self) {
        if let Some(nat) = &self.nat {
            nat.lock().unwrap_or_else(PoisonError::into_inner).forget();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The thread of one direction.
struct Direction {
    from: PacketSocket,
    to: PacketSocket,
    /// Frames come from the inside of the NAT.
    inside: bool,
    shaper: Shaper,
    /// The MTU to tell senders of.
    mtu: Option<usize>,
    nat: Option<Arc<Mutex<Nat>>>,
    stop: Arc<AtomicBool>,
    shared: Arc<Mutex<DirectionCounts>>,
    counts: DirectionCounts,
    /// For how long it has waited, nanoseconds.
    idle: u64,
    epoch: Instant,
}

impl Direction {
    fn run(mut self) {
        // Sleeps end when they should, not up to 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut slots = RecvSlots::new(BATCH);
        let mut buffer = vec![0; BATCH * ROOM];
        let mut got = Vec::with_capacity(BATCH);
        let mut published = 0;
        while !self.stop.load(Ordering::Acquire) {
            got.clear();
            let n = slots.recv(self.from.as_fd(), &mut buffer, ROOM, 0, &mut got).unwrap_or(0);
            let now = self.now();
            for r in &got {
                if r.truncated {
                    self.counts.overrun += 1;
                    continue;
                }
                let frame = buffer[r.offset..r.offset + r.len].to_vec();
                let Pushed::TooBig(frame) = self.shaper.push(now, frame) else { continue };
                if let Some(answer) = self.mtu.and_then(|mtu| packet::too_big(&frame, mtu)) {
                    let _ = self.from.send(&answer, answer.len(), answer.len(), 1);
                }
            }
            self.forward(now);
            if n < BATCH || now - published > STALE {
                self.publish();
                published = now;
            }
            if n == 0 {
                let now = self.now();
                let wait = self.shaper.next().map_or(NAP, |at| at.saturating_sub(now).min(NAP));
                let timeout = Timespec { tv_sec: 0, tv_nsec: wait as i64 };
                // Ready, late or interrupted: the next receive shows.
                let _ = poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout));
                self.idle += self.now() - now;
            }
        }
        self.publish();
    }

    /// Sends what is due.
    fn forward(&mut self, now: u64) {
        while let Some(due) = self.shaper.next() {
            let Some(mut frame) = self.shaper.pop(now) else { break };
            self.counts.latest_us = self.counts.latest_us.max((now - due) / 1000);
            let passage = match &self.nat {
                None => Passage::On,
                Some(nat) => {
                    let mut nat = nat.lock().unwrap_or_else(PoisonError::into_inner);
                    if self.inside { nat.out(now, &mut frame) } else { nat.back(now, &mut frame) }
                }
            };
            let sent = match passage {
                Passage::On => self.to.send(&frame, frame.len(), frame.len(), 1),
                Passage::Answer(answer) => self.from.send(&answer, answer.len(), answer.len(), 1),
                Passage::Dropped => Ok(1),
            };
            self.counts.refused += u64::from(refused(sent));
        }
    }

    /// Shows the counts to others.
    fn publish(&mut self) {
        self.counts.shaper = self.shaper.counts();
        self.counts.idle_us = self.idle / 1000;
        self.counts.overrun += u64::from(self.from.take_drops());
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
    }

    fn now(&self) -> u64 {
        (clock::now() - self.epoch).as_nanos() as u64
    }
}

fn refused(sent: io::Result<usize>) -> bool {
    !matches!(sent, Ok(1..))
}
