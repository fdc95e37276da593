//! Decides for each frame of one direction of a link when it comes out, and whether it is lost,
//! changed or doubled. Pure: time is an argument (nanoseconds since any moment), randomness comes
//! from a seed.
//!
//! ```text
//!   push ──> MTU ──> loss ──> corruption ──> duplication
//!        ──> queue and rate ──> delay, jitter, reordering ──> pop
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::Random;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Frames that a shaper holds at most, whatever the delay.
const HELD: usize = 1 << 18;

/// Settings of one direction of a link. The default is a perfect link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Bits per second, the Ethernet header counted and preamble and FCS not; unlimited when
    /// absent.
    pub rate: Option<u64>,
    /// Bytes that may pass at once after a pause; with 0 a frame comes out when its last bit would
    /// have.
    pub burst: u64,
    /// Bytes that may wait for the rate.
    pub queue: u64,
    /// Added to each frame.
    pub delay: Duration,
    /// The delay varies by as much as this, uniformly, both ways; the order stays.
    pub jitter: Duration,
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames that are held back, so that others overtake them.
    pub reorder: f64,
    /// For how long they are.
    pub reorder_by: Duration,
    /// Share of frames that come twice.
    pub duplicate: f64,
    /// Share of frames in which one bit behind the Ethernet header is turned.
    pub corrupt: f64,
    /// The largest packet, bytes without the Ethernet header; larger ones are dropped.
    pub mtu: Option<usize>,
    /// Determines which frames meet what.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            rate: None,
            burst: 0,
            queue: 64 << 10,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(2),
            duplicate: 0.0,
            corrupt: 0.0,
            mtu: None,
            seed: 1,
        }
    }
}

/// Frames of one direction. `offered` + `duplicated` = `delivered` + `lost` + `queue_full` +
/// `too_big` + those still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShaperCounts {
    /// Frames that came in.
    pub offered: u64,
    /// Frames that came out.
    pub delivered: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Lost since the queue was full.
    pub queue_full: u64,
    /// Larger than the MTU.
    pub too_big: u64,
    /// Damaged; they come out.
    pub corrupted: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Shaper {
    with: Impairment,
    random: Random,
    held: BinaryHeap<Reverse<Held>>,
    /// When everything accepted so far would be through at the rate alone, picoseconds.
    busy_until: u64,
    /// When the last frame that was not held back comes out, nanoseconds.
    last_out: u64,
    number: u64,
    counts: ShaperCounts,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    out: u64,
    number: u64,
    frame: Vec<u8>,
}

/// Fate of a pushed frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The frame is held, or was dropped on purpose or by a full queue.
    Taken,
    /// The frame is larger than the MTU, and is given back.
    TooBig(Vec<u8>),
}

impl Shaper {
    /// Of these properties.
    pub fn new(with: Impairment) -> Self {
        Self {
            with,
            random: Random::new(with.seed),
            held: BinaryHeap::new(),
            busy_until: 0,
            last_out: 0,
            number: 0,
            counts: ShaperCounts::default(),
        }
    }

    /// Takes a frame in at `now`, nanoseconds; times must not go back.
    pub fn push(&mut self, now: u64, mut frame: Vec<u8>) -> Pushed {
        self.counts.offered += 1;
        if self.with.mtu.is_some_and(|mtu| frame.len().saturating_sub(ETHERNET) > mtu) {
            self.counts.too_big += 1;
            return Pushed::TooBig(frame);
        }
        if self.random.chance(self.with.loss) {
            self.counts.lost += 1;
            return Pushed::Taken;
        }
        if self.random.chance(self.with.corrupt) && frame.len() > ETHERNET {
            let bit = self.random.below((frame.len() - ETHERNET) as u64 * 8) as usize;
            frame[ETHERNET + bit / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        if self.random.chance(self.with.duplicate) {
            self.counts.duplicated += 1;
            self.hold(now, frame.clone());
        }
        self.hold(now, frame);
        Pushed::Taken
    }

    fn hold(&mut self, now: u64, frame: Vec<u8>) {
        let Some(through) = self.through(now, frame.len() as u64) else {
            self.counts.queue_full += 1;
            return;
        };
        let jitter = self.with.jitter.as_nanos() as u64;
        let shift = if jitter > 0 { self.random.below(2 * jitter + 1) } else { 0 };
        let mut out =
            (through + self.with.delay.as_nanos() as u64 + shift).saturating_sub(jitter).max(through);
        if self.random.chance(self.with.reorder) {
            self.counts.reordered += 1;
            out += self.with.reorder_by.as_nanos() as u64;
        } else {
            out = out.max(self.last_out);
            self.last_out = out;
        }
        self.number += 1;
        self.held.push(Reverse(Held { out, number: self.number, frame }));
    }

    /// When a frame of that length is through at the rate; `None` when the queue has no room for
    /// it.
    fn through(&mut self, now: u64, len: u64) -> Option<u64> {
        if self.held.len() >= HELD {
            return None;
        }
        let Some(rate) = self.with.rate.filter(|r| *r > 0) else { return Some(now) };
        const PS: u128 = 1_000_000_000_000;
        let time = |bytes: u64| (u128::from(bytes) * 8 * PS / u128::from(rate)) as u64;
        let now = now * 1000;
        // Bytes that wait: what is not through yet, less what may pass at once.
        let allowed = time(self.with.burst);
        let ahead = self.busy_until.saturating_sub(now).saturating_sub(allowed);
        if ahead > 0 && ahead + time(len) > time(self.with.queue) {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + time(len);
        Some(self.busy_until.saturating_sub(allowed).max(now).div_ceil(1000))
    }

    /// The next frame that is out at `now`.
    pub fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let Reverse(h) = self.held.pop()?;
        self.counts.delivered += 1;
        self.counts.bytes += h.frame.len() as u64;
        Some(h.frame)
    }

    /// When the next frame comes out, nanoseconds.
    pub fn next(&self) -> Option<u64> {
        self.held.peek().map(|Reverse(h)| h.out)
    }

    /// Frames held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// So far.
    pub fn counts(&self) -> ShaperCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn numbered(n: u32, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..4].copy_from_slice(&n.to_be_bytes());
        frame
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
    }

    /// Pushes a frame of `len` bytes every `gap` ns; returns when each came out, in that order.
    fn run(with: Impairment, frames: u32, len: usize, gap: u64) -> (Vec<(u64, Vec<u8>)>, ShaperCounts) {
        let mut shaper = Shaper::new(with);
        let mut out = Vec::new();
        let take = |shaper: &mut Shaper, until: u64, out: &mut Vec<(u64, Vec<u8>)>| {
            while let Some(at) = shaper.next().filter(|at| *at <= until) {
                assert!(at == 0 || shaper.pop(at - 1).is_none(), "out before its time");
                out.push((at, shaper.pop(at).expect("due")));
            }
        };
        for n in 0..frames {
            let now = u64::from(n) * gap;
            take(&mut shaper, now, &mut out);
            shaper.push(now, numbered(n, len));
        }
        take(&mut shaper, u64::MAX, &mut out);
        let c = shaper.counts();
        assert_eq!(c.offered, u64::from(frames));
        assert_eq!(c.offered + c.duplicated, c.delivered + c.lost + c.queue_full + c.too_big);
        assert_eq!(shaper.held(), 0);
        (out, c)
    }

    #[test]
    fn a_perfect_link_delivers_everything_at_once_in_order() {
        let (out, c) = run(Impairment::default(), 1000, 100, 10);
        assert_eq!(c.delivered, 1000);
        assert!(out.iter().enumerate().all(|(i, (at, f))| *at == i as u64 * 10 && number(f) == i as u32));
    }

    #[test]
    fn one_percent_of_loss_is_one_percent_within_a_twentieth() {
        let (out, c) = run(Impairment { loss: 0.01, ..Impairment::default() }, 400_000, 60, 1000);
        let share = 1.0 - out.len() as f64 / 400_000.0;
        assert!((share - 0.01).abs() <= 0.0005, "{share}");
        assert_eq!(c.lost, 400_000 - out.len() as u64);
        // Another seed loses others, the same seed the same.
        let again = run(Impairment { loss: 0.01, ..Impairment::default() }, 400_000, 60, 1000).0;
        let other = run(Impairment { loss: 0.01, seed: 2, ..Impairment::default() }, 400_000, 60, 1000).0;
        assert!(again == out && other != out);
    }

    #[test]
    fn the_rate_is_held_within_a_percent_whatever_the_size() {
        for (rate, len) in [(512_000, 1514), (10_000_000, 64), (10_000_000, 1514), (10_000_000_000, 64)] {
            // Twice as much as goes, for long.
            let gap = (len as u64 * 8 * 1_000_000_000 / rate / 2).max(1);
            let with = Impairment { rate: Some(rate), queue: 20_000, ..Impairment::default() };
            let (out, c) = run(with, 20_000, len, gap);
            let (first, last) = (out[0].0, out[out.len() - 1].0);
            let bits = (out.len() - 1) as f64 * len as f64 * 8.0;
            let ratio = bits / ((last - first) as f64 / 1e9) / rate as f64;
            assert!((ratio - 1.0).abs() < 0.01, "{rate} {len}: {ratio}");
            assert!(c.queue_full > 9_000, "{c:?}");
        }
    }

    #[test]
    fn a_frame_takes_its_time_on_the_wire_and_a_burst_passes_at_once() {
        let slow = Impairment { rate: Some(8_000_000), ..Impairment::default() };
        let (out, _) = run(slow, 1, 1000, 1);
        assert_eq!(out[0].0, MS, "1000 bytes at a byte per microsecond");
        let (out, _) = run(Impairment { burst: 3000, ..slow }, 5, 1000, 1);
        let at: Vec<u64> = out.iter().map(|o| o.0).collect();
        // Three are within the burst; the others follow at the rate.
        assert_eq!(at[..3], [0, 1, 2]);
        assert!((MS - 10..=MS).contains(&at[3]) && (2 * MS - 10..=2 * MS).contains(&at[4]), "{at:?}");
    }

    #[test]
    fn the_queue_is_bounded_and_always_holds_one_frame() {
        let with = Impairment { rate: Some(8_000_000), queue: 10_000, ..Impairment::default() };
        let (_, c) = run(with, 100, 1000, 0);
        assert_eq!((c.delivered, c.queue_full), (10, 90));
        let (_, c) = run(Impairment { queue: 0, ..with }, 3, 1000, 2 * MS);
        assert_eq!(c.delivered, 3);
    }

    #[test]
    fn delay_and_jitter_stay_in_their_range_and_keep_the_order() {
        let with = Impairment {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(5),
            ..Impairment::default()
        };
        let (out, _) = run(with, 100_000, 100, 10 * MS);
        let delays: Vec<u64> = out.iter().map(|(at, f)| at - u64::from(number(f)) * 10 * MS).collect();
        assert!(delays.iter().all(|d| (15 * MS..=25 * MS).contains(d)));
        let mean = delays.iter().sum::<u64>() as f64 / 100_000.0;
        assert!((mean / MS as f64 - 20.0).abs() < 0.1, "{mean}");
        // Frames much nearer than the jitter.
        let (out, c) = run(with, 10_000, 100, 1000);
        assert!(out.windows(2).all(|w| number(&w[0].1) < number(&w[1].1)), "overtaken");
        assert_eq!(c.reordered, 0);
    }

    #[test]
    fn held_back_frames_are_overtaken_and_no_others() {
        let with = Impairment { reorder: 0.05, ..Impairment::default() };
        let (out, c) = run(with, 100_000, 100, 100_000);
        let mut highest = 0;
        let late = out.iter().filter(|(_, f)| {
            let behind = number(f) < highest;
            highest = highest.max(number(f));
            behind
        });
        assert_eq!(late.count() as u64, c.reordered);
        assert!((c.reordered as f64 / 100_000.0 - 0.05).abs() < 0.003, "{c:?}");
        assert!(out.iter().all(|(at, f)| [0, 2 * MS].contains(&(at - u64::from(number(f)) * 100_000))));
    }

    #[test]
    fn duplicates_and_damage_have_their_shares_and_damage_is_one_bit() {
        let with = Impairment { duplicate: 0.02, corrupt: 0.03, ..Impairment::default() };
        let (out, c) = run(with, 100_000, 100, 1000);
        assert!((c.duplicated as f64 / 1e5 - 0.02).abs() < 0.002, "{c:?}");
        assert!((c.corrupted as f64 / 1e5 - 0.03).abs() < 0.002, "{c:?}");
        assert_eq!(out.len() as u64, 100_000 + c.duplicated);
        let turned = |f: &[u8]| f.iter().skip(4).map(|b| b.count_ones()).sum::<u32>();
        assert!(out.iter().all(|(_, f)| turned(f) <= 1 && f[4..ETHERNET].iter().all(|b| *b == 0)));
        let damaged = out.iter().filter(|(_, f)| turned(f) == 1).count() as u64;
        assert!((c.corrupted..=c.corrupted + c.corrupted / 10).contains(&damaged));
    }

    #[test]
    fn what_is_larger_than_the_mtu_comes_back() {
        let mut shaper = Shaper::new(Impairment { mtu: Some(1400), ..Impairment::default() });
        assert_eq!(shaper.push(0, vec![0; 1414]), Pushed::Taken);
        assert_eq!(shaper.push(0, vec![7; 1415]), Pushed::TooBig(vec![7; 1415]));
        assert_eq!((shaper.counts().too_big, shaper.held()), (1, 1));
    }
}
