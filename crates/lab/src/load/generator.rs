//! Our own generator: numbered UDP packets at an offered rate, or as many as go out, from one
//! thread inside a host's namespace. Open loop: what is late is not made up for later than
//! [`MAX_LATE`]; it is counted as unsent.
//!
//! Frames leave by `sendmmsg` on a packet socket past routing and queueing, which sends about one
//! and a half times as many per core as `sendmmsg` on a UDP socket; or by `AF_XDP`
//! ([`SendBy`](super::SendBy)). A packet socket's ring shared with the kernel sends no more, and
//! its slots come back only when the packet has been consumed, which would couple the generator to
//! the system under test.

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::capture::Pace;
use super::frame::{Burst, Frames, Lane, Route, Shape};
use super::sender::{Outlet, SendBy, Sender, Taken};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::topology::{Cpus, Netns};

/// Load to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Packets a second; as many as go out when absent.
    pub rate: Option<f64>,
    /// How many in all.
    pub packets: u64,
    /// Not longer than this.
    pub at_most: Duration,
}

impl Offer {
    /// The part of one thread of several that send at once.
    pub fn of_lane(self, lane: Lane) -> Self {
        let count = u64::from(lane.count.max(1));
        let more = u64::from(u64::from(lane.index) < self.packets % count);
        let packets = if self.packets == u64::MAX { u64::MAX } else { self.packets / count + more };
        Self { rate: self.rate.map(|rate| rate / count as f64), packets, ..self }
    }
}

/// Counts of packets. `intended` = `sent` + `unsent`; `refused` is a part of `sent`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Packets that the offered rate wanted sent; without a rate, those tried.
    pub intended: u64,
    /// Given to the kernel.
    pub sent: u64,
    /// Of these: the kernel said that the link, or the receiving end's backlog, dropped them at
    /// once.
    pub refused: u64,
    /// Never left: the generator was late, or the kernel had no room. They count as lost; they say
    /// nothing about the system under test.
    pub unsent: u64,
    /// From the first to the last, seconds.
    pub seconds: f64,
    /// CPU time of the generator's thread, seconds. Software interrupts that ran in its context are
    /// in it.
    pub cpu_seconds: f64,
}

impl Sent {
    /// What several threads sent at once.
    pub fn together(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, one| Self {
            intended: sum.intended + one.intended,
            sent: sum.sent + one.sent,
            refused: sum.refused + one.refused,
            unsent: sum.unsent + one.unsent,
            seconds: sum.seconds.max(one.seconds),
            cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
        })
    }
}

/// Frames of one call, and so the slots of a [`Burst`].
pub const BATCH: usize = 64;
/// A packet is sent at most this late. After a longer pause of the generator older packets are
/// given up, so that the pause does not end in a burst.
const MAX_LATE: Duration = Duration::from_millis(10);
/// Of the generator's thread (nice).
const PRIORITY: i32 = -15;
/// Packets are due in bunches of about this time's worth.
const GRAIN: Duration = Duration::from_micros(100);

/// Sends `offer` of packets of `shape` along `route`, as [`generate_paced`] does.
pub fn generate(
    netns: &Netns,
    interface: &str,
    route: Route,
    shape: Shape,
    offer: Offer,
    epoch: Instant,
    cpus: Option<&Cpus>,
) -> Result<Sent, LabError> {
    generate_bursts(netns, interface, route, shape, (offer, 1), epoch, cpus)
}

/// The same in bursts of so many packets, each sent as fast as they go; the bursts are evenly
/// spaced.
pub fn generate_bursts(
    netns: &Netns,
    interface: &str,
    route: Route,
    shape: Shape,
    (offer, burst): (Offer, u32),
    epoch: Instant,
    cpus: Option<&Cpus>,
) -> Result<Sent, LabError> {
    let frames = &mut Frames::new(shape, route, BATCH);
    let outlet = Outlet { interface, by: SendBy::Packet, queue: 0 };
    let sender = &mut Sender::open(netns, outlet, frames)?;
    generate_paced(netns, (sender, frames), (offer, Pace::Bursts(burst)), epoch, cpus)
}

/// Sends `offer` of `frames`, which have [`BATCH`] slots, by a sender that was opened for them
/// inside `netns`, on a thread of its own, on the processors of `cpus`; packets follow one another
/// as `pace` says. Returns when done. `epoch` is what the packets' time stamps count from.
pub fn generate_paced(
    netns: &Netns,
    (sender, frames): (&mut Sender, &mut dyn Burst),
    (offer, pace): (Offer, Pace),
    epoch: Instant,
    cpus: Option<&Cpus>,
) -> Result<Sent, LabError> {
    netns.inside(|| {
        if let Some(cpus) = cpus {
            cpus.pin_this_thread()?;
        }
        // A tester on a machine of its own would not wait for the system under test.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), PRIORITY);
        // Sleeps end when they should, not up to 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let before = thread_seconds();
        let mut sent = Generator { sender, frames, offer, pace, epoch, sent: Sent::default() }.run()?;
        sent.cpu_seconds = thread_seconds() - before;
        Ok(sent)
    })?
}

struct Generator<'a> {
    sender: &'a mut Sender,
    frames: &'a mut dyn Burst,
    offer: Offer,
    pace: Pace,
    epoch: Instant,
    sent: Sent,
}

impl Generator<'_> {
    fn run(mut self) -> Result<Sent, LabError> {
        let start = clock::now();
        // Numbers are 32 bits wide.
        let packets = self.offer.packets.min(u64::from(u32::MAX));
        let mut calls = 0u32;
        loop {
            calls = calls.wrapping_add(1);
            if calls.is_multiple_of(256) {
                interrupt::check()?;
            }
            let now = clock::now();
            let elapsed = now - start;
            // Packets that were due by the end are still sent, at most [`MAX_LATE`] late like all
            // others.
            let over = elapsed >= self.offer.at_most;
            if self.sent.intended >= packets || elapsed >= self.offer.at_most + MAX_LATE {
                break;
            }
            let left = packets - self.sent.intended;
            let Some(rate) = self.offer.rate else {
                if over {
                    break;
                }
                self.burst(left.min(BATCH as u64) as usize, now)?;
                continue;
            };
            let due = self.pace.due(rate, elapsed.min(self.offer.at_most));
            let behind = due.saturating_sub(self.sent.intended).min(left);
            // What has become due in that time, however many came at once.
            let late = self.pace.due(rate, elapsed.saturating_sub(MAX_LATE).min(self.offer.at_most));
            let kept = due.saturating_sub(late).max(BATCH as u64).max(self.pace.at_once());
            if behind > kept {
                // The oldest packets are given up: they would be later than that.
                self.sent.intended += behind - kept;
                self.sent.unsent += behind - kept;
            } else if behind == 0 {
                if over {
                    break;
                }
                let grain = (GRAIN.as_secs_f64() * rate).clamp(1.0, BATCH as f64) as u64;
                let bunch = if self.pace == Pace::Even { grain - 1 } else { 0 };
                let next = self.pace.time(rate, self.sent.intended + bunch);
                if let Ok(wait) = Duration::try_from_secs_f64(next - elapsed.as_secs_f64()) {
                    thread::sleep(wait);
                }
                continue;
            }
            self.burst(behind.min(BATCH as u64) as usize, now)?;
        }
        // Count the packets that became due after the last look at the clock as intended too, so
        // that a pause at the end is not hidden.
        let missed = missed(&self.offer, self.pace, self.sent.intended);
        self.sent.intended += missed;
        self.sent.unsent += missed;
        self.sent.seconds = (clock::now() - start).as_secs_f64();
        Ok(self.sent)
    }

    /// Sends `count` packets stamped `now`.
    fn burst(&mut self, count: usize, now: Instant) -> Result<(), LabError> {
        let time = (now - self.epoch).as_nanos() as u64;
        let first = self.sent.sent as u32;
        self.frames.make(first, count, time)?;
        self.sent.intended += count as u64;
        let mut at = 0;
        while at < count {
            let row = self.frames.row(first, count, at);
            let frames = self.frames.bytes().get(row.start..).unwrap_or_default();
            let lens = self.frames.lens().and_then(|lens| lens.get(at..count));
            match self.sender.send(frames, row, lens) {
                Ok(Taken { packets: 0, .. }) => {
                    return Err(LabError::Measurement("the generator has nothing to send".into()));
                }
                Ok(Taken { packets, refused }) => {
                    at += packets;
                    self.sent.sent += packets as u64;
                    self.sent.refused += refused as u64;
                }
                // Too much in flight. Numbers stay without gaps: those left over were never sent.
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    self.sent.unsent += (count - at) as u64;
                    break;
                }
                Err(e) => return Err(LabError::io("sending frames")(e)),
            }
        }
        Ok(())
    }
}

/// Packets that an offer wanted sent by its end, beyond those `intended`; none where no rate was
/// asked for.
fn missed(offer: &Offer, pace: Pace, intended: u64) -> u64 {
    let packets = offer.packets.min(u64::from(u32::MAX));
    let all = offer.rate.map_or(0, |rate| packets.min(pace.due(rate, offer.at_most)));
    all.saturating_sub(intended)
}

/// CPU time of this thread so far.
fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

/// The Ethernet address in the output of `ip -br link show dev ...`.
pub fn parse_ethernet(brief: &str) -> Option<[u8; 6]> {
    let word = brief.split_whitespace().nth(2)?;
    let bytes: Vec<u8> = word.split(':').map(|b| u8::from_str_radix(b, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// Route of packets for a host, by way of the sender's gateway with that Ethernet address.
pub fn route(next_hop: [u8; 6], destination: &str, port: u16) -> Result<Route, LabError> {
    let destination: Ipv4Addr = destination
        .parse()
        .map_err(|_| LabError::Measurement(format!("{destination} is not an IPv4 address")))?;
    let [a, b, c, _] = destination.octets();
    // The other of the two hosts' networks.
    let sources = if [a, b, c] == [10, 1, 0] { [10, 2, 0] } else { [10, 1, 0] };
    Ok(Route { next_hop, destination, port, sources })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ethernet_address_is_the_third_word() {
        let text = "lan@if2          UP             3a:bd:1f:00:ff:01 <BROADCAST,MULTICAST,UP,LOWER_UP>\n";
        assert_eq!(parse_ethernet(text), Some([0x3a, 0xbd, 0x1f, 0, 0xff, 1]));
        assert_eq!(parse_ethernet("lo UNKNOWN x"), None);
        assert_eq!(parse_ethernet(""), None);
    }

    #[test]
    fn what_is_due_at_the_end_is_intended_though_nobody_looked() {
        let at_most = Duration::from_millis(500);
        let offer = Offer { rate: Some(10_000.0), packets: u64::MAX, at_most };
        assert_eq!([4_800, 5_000, 5_001].map(|sent| missed(&offer, Pace::Even, sent)), [200, 0, 0]);
        // All that were to be sent are.
        assert_eq!(missed(&Offer { packets: 4_800, ..offer }, Pace::Even, 4_800), 0);
        assert_eq!(missed(&Offer { rate: None, ..offer }, Pace::Even, 7), 0);
    }

    #[test]
    fn threads_share_an_offer_and_their_counts_are_those_of_one() {
        let offer = Offer { rate: Some(900.0), packets: 10, at_most: Duration::from_secs(1) };
        let parts: Vec<Offer> = Lane::all(3).map(|lane| offer.of_lane(lane)).collect();
        assert_eq!(parts.iter().map(|o| o.packets).collect::<Vec<_>>(), [4, 3, 3]);
        assert!(parts.iter().all(|o| o.rate == Some(300.0) && o.at_most == offer.at_most));
        let all = Offer { rate: None, packets: u64::MAX, ..offer }.of_lane(Lane { index: 2, count: 3 });
        assert_eq!((all.rate, all.packets), (None, u64::MAX));
        let one = Sent { intended: 10, sent: 8, refused: 1, unsent: 2, seconds: 1.0, cpu_seconds: 0.5 };
        let two = Sent { seconds: 2.0, ..one };
        let both = Sent { intended: 20, sent: 16, refused: 2, unsent: 4, seconds: 2.0, cpu_seconds: 1.0 };
        assert_eq!((Sent::together(&[one, two]), Sent::together(&[])), (both, Sent::default()));
    }

    #[test]
    fn half_a_burst_at_the_end_was_never_meant() {
        let offer = Offer { rate: Some(10_000.0), packets: u64::MAX, at_most: Duration::from_micros(3_250) };
        let missed = |pace, intended| missed(&offer, pace, intended);
        let bursts = Pace::Bursts(16);
        assert_eq!((missed(bursts, 16), missed(bursts, 32), missed(Pace::Even, 32)), (16, 0, 0));
    }
}
