//! A look-aside device at work: packets are handed over to its queue, and their answers are asked
//! for by polling or by waiting.
//!
//! ```text
//!   asking thread: submit ──> queue ──> device's thread: poll, work ──> mailbox ──> asking thread
//! ```
//! The device is software. With [`Ask::Inline`] the asking thread polls the queue itself, and so
//! does the work. Otherwise a second thread does, all the time: it stands for the processor of a
//! card. It puts the answers in a mailbox, at which the asking thread looks again and again
//! ([`Ask::Poll`]), or sleeps until the second thread wakes it ([`Ask::Wait`]), as an interrupt
//! would.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_cryptodev::{
    Answer, Answers, Direction, Key, MOST_ANSWERS, MOST_SLOTS, MOST_UNDER_WAY, Packets, Requests,
};
use ironswan_wire::proposal::EspSuite;

use super::engine::Ask;
use super::work::{CACHED, Check, Data, Dispatch, LARGE, Work};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;

/// Requests whose way there and back is timed.
const TIMED_REQUESTS: u64 = 10_000;
/// A device that has not answered for this time is taken for broken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The asking thread sleeps for this time at most, and then looks whether the run has been ended.
const SLEEP: Duration = Duration::from_millis(500);
/// Packets of a round between two looks at the clock.
const CLOCK_EVERY: u32 = 32;
/// Looks without an answer, after which the asking thread reads the clock.
const LOOKS: u32 = 1 << 20;

/// Results of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timed {
    /// Packets.
    pub(super) operations: u64,
    /// Processor time of the asking thread for one, nanoseconds.
    pub(super) ns: f64,
    /// Time that passes for one, nanoseconds.
    pub(super) elapsed_ns: f64,
    /// Sleeps of the asking thread for one.
    pub(super) sleeps: f64,
}

/// Time from handing a request over until its answer is seen, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) p99: f64,
}

/// Packets of one size, ready to be sealed or opened by the device.
pub(super) struct Device {
    packets: Packets,
    ask: Ask,
    work: Work,
    dispatch: Dispatch,
    /// Requests that are with the device at most.
    depth: u32,
    slots: u32,
    packet: usize,
    /// What is written to the slots before each round of opening.
    sealed: Vec<u8>,
    /// The next sequence number.
    seq: u64,
}

/// Answers on their way from the thread of the device to the asking one. Each slot has an answer at
/// most, so there is always room.
struct Mailbox {
    answers: Vec<AtomicU32>,
    /// Answers that have been put in.
    written: AtomicUsize,
    stop: AtomicBool,
    ready: AtomicBool,
}

/// The two ends of the queue as the asking thread has them.
struct Queue<'a, 'b> {
    requests: Requests<'b>,
    answers: Source<'a, 'b>,
    slots: u32,
    depth: u32,
    /// Sleeps so far.
    sleeps: u64,
}

/// Where the asking thread finds answers.
enum Source<'a, 'b> {
    Device(Answers<'b>),
    Mailbox { mailbox: &'a Mailbox, read: usize, waits: bool },
}

impl Mailbox {
    fn new(slots: u32) -> Self {
        Self {
            answers: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            written: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            ready: AtomicBool::new(false),
        }
    }

    /// The thread of the device: works until it is stopped, and wakes whoever waits.
    fn fill(&self, mut answers: Answers<'_>, waits: Option<&Thread>) {
        let mut some = [Answer::default(); MOST_ANSWERS];
        let mut written = 0;
        self.ready.store(true, Ordering::Release);
        while !self.stop.load(Ordering::Relaxed) {
            let n = answers.poll(&mut some);
            if n == 0 {
                spin_loop();
                continue;
            }
            for answer in &some[..n] {
                self.answers[written % self.answers.len()].store(answer.to_bits(), Ordering::Relaxed);
                written = written.wrapping_add(1);
            }
            self.written.store(written, Ordering::Release);
            // Does nothing more than a store unless that thread sleeps.
            waits.inspect(|thread| thread.unpark());
        }
    }

    /// Takes what has come since `read`.
    fn take(&self, read: &mut usize, some: &mut [Answer]) -> usize {
        let there = self.written.load(Ordering::Acquire).wrapping_sub(*read).min(some.len());
        for answer in &mut some[..there] {
            *answer = Answer::from_bits(self.answers[*read % self.answers.len()].load(Ordering::Relaxed));
            *read = read.wrapping_add(1);
        }
        there
    }
}

impl Queue<'_, '_> {
    /// Hands every packet over once, at most `depth` at a time, with sequence numbers from `seq`
    /// on, until all have come back; from `end` on none is handed over. `sent` is called before
    /// packets are handed over, and `seen` with answers. Returns the number of packets.
    fn round(
        &mut self,
        (seq, end): (u64, Option<Instant>),
        mut sent: impl FnMut(u32, u32),
        mut seen: impl FnMut(&[Answer]),
    ) -> Result<u32, LabError> {
        let mut some = [Answer::default(); MOST_ANSWERS];
        let (mut out, mut back, mut idle) = (0, 0, Idle::default());
        let (mut all, mut look) = (self.slots, CLOCK_EVERY);
        while back < all {
            if back >= look {
                look = back + CLOCK_EVERY;
                if end.is_some_and(|end| clock::now() >= end) {
                    all = out;
                }
            }
            let room = (self.depth - (out - back)).min(all - out);
            if room > 0 {
                sent(out, room);
                out += self.requests.submit(out, room, seq + u64::from(out));
            }
            let n = self.take(&mut some);
            if n == 0 {
                idle.again()?;
                continue;
            }
            idle = Idle::default();
            seen(&some[..n]);
            back += n as u32;
        }
        Ok(back)
    }

    /// Takes answers. Where there are none yet, returns 0, with [`Ask::Wait`] after a sleep.
    fn take(&mut self, some: &mut [Answer]) -> usize {
        match &mut self.answers {
            Source::Device(answers) => answers.poll(some),
            Source::Mailbox { mailbox, read, waits } => {
                let n = mailbox.take(read, some);
                if n == 0 && *waits {
                    self.sleeps += 1;
                    thread::park_timeout(SLEEP);
                } else if n == 0 {
                    spin_loop();
                }
                n
            }
        }
    }
}

/// Looks in a row at which there was no answer.
#[derive(Default)]
struct Idle {
    looks: u32,
    since: Option<Instant>,
}

impl Idle {
    /// Counts a look.
    ///
    /// # Errors
    /// The run has been ended, or the device does not answer.
    fn again(&mut self) -> Result<(), LabError> {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS) {
            return Ok(());
        }
        interrupt::check()?;
        let now = clock::now();
        if now - *self.since.get_or_insert(now) > ANSWER_TIMEOUT {
            return Err(LabError::Measurement(
                "the device of cryptodev has not answered for ten seconds".into(),
            ));
        }
        Ok(())
    }
}

impl Device {
    /// Packets with `size` bytes of text in as many slots as `data`, `dispatch` and `operations`
    /// want. All are sealed or opened once, and compared with what aws-lc makes of them.
    pub(super) fn new(
        suite: &EspSuite,
        (ask, work): (Ask, Work),
        size: u32,
        (data, dispatch): (Data, Dispatch),
        operations: u64,
    ) -> Result<Self, LabError> {
        let keys = Keys::new(suite)?;
        let packet = 8 + keys.own.iv_len() + size as usize + keys.own.icv_len();
        let slots = slots(packet, (data, dispatch), operations);
        let (plain, sealed) = keys.packets(packet, slots)?;
        let direction = match work {
            Work::Seal => Direction::Seal,
            Work::Open => Direction::Open,
        };
        let packets = Packets::open(keys.of_device(), direction, slots, packet)
            .map_err(|fault| LabError::Measurement(format!("cryptodev: {fault}")))?;
        let depth = depth(dispatch).min(slots);
        let mut device = Self { packets, ask, work, dispatch, depth, slots, packet, sealed, seq: 0 };
        let text = 8 + keys.own.iv_len()..packet - keys.own.icv_len();
        device.prove(suite, &plain, text)?;
        Ok(device)
    }

    /// Every packet must come back as aws-lc makes it, and one with another ICV must be refused.
    fn prove(
        &mut self,
        suite: &EspSuite,
        plain: &[u8],
        text: std::ops::Range<usize>,
    ) -> Result<(), LabError> {
        let wrong =
            |what: &str| Err(LabError::Measurement(format!("{suite}: the device of cryptodev {what}")));
        let packets = match self.work {
            Work::Seal => plain.to_vec(),
            Work::Open => self.sealed.clone(),
        };
        let oks = self.once(&packets)?;
        let mut got = vec![0; self.packet];
        for (slot, (sealed, plain)) in
            (0..).zip(self.sealed.chunks(self.packet).zip(plain.chunks(self.packet)))
        {
            self.packets.read(slot, &mut got);
            let same = match self.work {
                Work::Seal => got == sealed,
                Work::Open => got[text.clone()] == plain[text.clone()],
            };
            if !oks[slot as usize] || !same {
                return wrong("gives another result than aws-lc");
            }
        }
        if self.work == Work::Open {
            let mut forged = self.sealed.clone();
            forged.chunks_mut(self.packet).for_each(|packet| packet[text.end] ^= 1);
            if self.once(&forged)?.contains(&true) {
                return wrong("opens packets with a wrong ICV");
            }
        }
        Ok(())
    }

    /// Writes these packets to the slots, and hands each over once. Returns the result of each.
    fn once(&mut self, packets: &[u8]) -> Result<Vec<bool>, LabError> {
        let (seq, packet) = (self.numbers(), self.packet);
        let mut oks = vec![false; self.slots as usize];
        self.with(|queue, _| {
            write(&mut queue.requests, packets, packet);
            queue.depth = MOST_UNDER_WAY;
            queue.round((seq, None), |_, _| (), |some| note(&mut oks, some))
        })?;
        Ok(oks)
    }

    /// The first sequence number of a round: what was sealed is opened with its own, and sealing
    /// never takes one twice.
    fn numbers(&mut self) -> u64 {
        next_numbers(&mut self.seq, self.work, self.slots)
    }

    /// Lends the ends of the queue, and the packets to be opened. The thread of the device, where
    /// it has one, is ready before and has ended afterwards.
    fn with<R>(
        &mut self,
        work: impl FnOnce(&mut Queue<'_, '_>, &[u8]) -> Result<R, LabError>,
    ) -> Result<R, LabError> {
        let (requests, answers) = self.packets.ends();
        let (slots, depth, sealed) = (self.slots, self.depth, &self.sealed);
        if self.ask == Ask::Inline {
            let answers = Source::Device(answers);
            return work(&mut Queue { requests, answers, slots, depth, sleeps: 0 }, sealed);
        }
        let waits = self.ask == Ask::Wait;
        let (mailbox, asking) = (Mailbox::new(slots), thread::current());
        thread::scope(|scope| {
            scope.spawn(|| mailbox.fill(answers, waits.then_some(&asking)));
            while !mailbox.ready.load(Ordering::Acquire) {
                spin_loop();
            }
            let answers = Source::Mailbox { mailbox: &mailbox, read: 0, waits };
            let done = work(&mut Queue { requests, answers, slots, depth, sleeps: 0 }, sealed);
            mailbox.stop.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Does `operations`, or as many as `at_most` allows, in rounds over all packets.
    pub(super) fn time(
        &mut self,
        check: Check,
        operations: u64,
        at_most: Duration,
    ) -> Result<Timed, LabError> {
        let inside = check == Check::Inside || self.dispatch == Dispatch::After;
        let (mut seq, work, slots, packet) = (self.seq, self.work, self.slots, self.packet);
        let mut oks = vec![false; slots as usize];
        let (mut done, mut spent, mut elapsed) = (0, Duration::ZERO, Duration::ZERO);
        let sleeps = self.with(|queue, sealed| {
            while done == 0 || done < operations && elapsed < at_most {
                if work == Work::Open {
                    write(&mut queue.requests, sealed, packet);
                }
                oks.fill(true);
                let (first, mut good) = (next_numbers(&mut seq, work, slots), true);
                let (began, used) = (clock::now(), clock::of_this_thread());
                let end = began + at_most.saturating_sub(elapsed);
                let look = |some: &[Answer]| {
                    note(&mut oks, some);
                    if inside {
                        good &= black_box(some.iter().all(|answer| answer.ok()));
                    }
                };
                let count = queue.round((first, Some(end)), |_, _| (), look)?;
                if check == Check::After {
                    good &= black_box(oks.iter().all(|ok| *ok));
                }
                spent += clock::of_this_thread() - used;
                elapsed += clock::now() - began;
                if !good || oks.contains(&false) {
                    return Err(wrong_result());
                }
                done += u64::from(count);
                interrupt::check()?;
            }
            Ok(queue.sleeps)
        })?;
        self.seq = seq;
        let of = |time: Duration| time.as_nanos() as f64 / done as f64;
        Ok(Timed {
            operations: done,
            ns: of(spent),
            elapsed_ns: of(elapsed),
            sleeps: sleeps as f64 / done as f64,
        })
    }

    /// Times single requests, in a pass of its own: it reads the clock all the time.
    pub(super) fn latency(&mut self, operations: u64, at_most: Duration) -> Result<Latency, LabError> {
        let (mut seq, work, slots, packet) = (self.seq, self.work, self.slots, self.packet);
        let began = clock::now();
        let end = began + at_most;
        let mut handed_over = vec![began; slots as usize];
        let mut times = Vec::new();
        let mut good = true;
        self.with(|queue, sealed| {
            let wanted = operations.min(TIMED_REQUESTS) as usize;
            while times.is_empty() || times.len() < wanted && clock::now() < end {
                if work == Work::Open {
                    write(&mut queue.requests, sealed, packet);
                }
                let first = next_numbers(&mut seq, work, slots);
                let handed_over = std::cell::RefCell::new(&mut handed_over);
                let sent = |first: u32, count: u32| {
                    let first = first as usize;
                    handed_over.borrow_mut()[first..first + count as usize].fill(clock::now());
                };
                let seen = |some: &[Answer]| {
                    let now = clock::now();
                    for answer in some {
                        good &= answer.ok();
                        times.push((now - handed_over.borrow()[answer.slot() as usize]).as_nanos() as f64);
                    }
                };
                queue.round((first, Some(end)), sent, seen)?;
                interrupt::check()?;
            }
            Ok(())
        })?;
        self.seq = seq;
        if !good {
            return Err(wrong_result());
        }
        times.sort_by(f64::total_cmp);
        Ok(Latency { median: times[times.len() / 2], p99: times[times.len() * 99 / 100] })
    }
}

/// Keys of an SA, as the device and as aws-lc have them.
struct Keys {
    encr: Vec<u8>,
    integ: Vec<u8>,
    own: Box<EspKey>,
}

impl Keys {
    fn new(suite: &EspSuite) -> Result<Self, LabError> {
        let unsupported = || LabError::Measurement(format!("no engine has the suite {suite}"));
        let (encr_len, integ_len) = batch::keymat_lens(suite).ok_or_else(unsupported)?;
        let (mut encr, mut integ) = (vec![0; encr_len], vec![0; integ_len]);
        let mut rng = Seeded::new(1);
        rng.fill(&mut encr);
        rng.fill(&mut integ);
        let own = EspKey::with_engines(suite, &encr, &integ, &mut Seeded::new(0), &Engines::portable());
        Ok(Self { own: own.ok_or_else(unsupported)?, encr, integ })
    }

    fn of_device(&self) -> Key<'_> {
        match self.encr.split_last_chunk() {
            // The salt of AES-GCM is behind its key (RFC 4106 section 8.1).
            Some((key, salt)) if self.integ.is_empty() => Key::Gcm { key, salt: *salt },
            _ => Key::CbcSha256 { key: &self.encr, mac: &self.integ },
        }
    }

    /// Packets with their IVs, before aws-lc has sealed them and afterwards.
    fn packets(&self, packet: usize, slots: u32) -> Result<(Vec<u8>, Vec<u8>), LabError> {
        let one: Vec<u8> = (0..packet).map(|i| (i ^ (i >> 8)) as u8).collect();
        let mut plain = one.repeat(slots as usize);
        let mut jobs: Vec<Job> = (0..slots)
            .map(|i| Job {
                start: i * packet as u32,
                len: packet as u32,
                seq: u64::from(i),
                key: 0,
                ok: false,
            })
            .collect();
        for (packet, i) in plain.chunks_mut(packet).zip(0_u32..) {
            packet[4..8].copy_from_slice(&i.to_be_bytes());
        }
        let mut sealed = plain.clone();
        batch::seal(&mut sealed, &mut jobs, &[&self.own]);
        if !jobs.iter().all(|job| job.ok) {
            return Err(LabError::Measurement("aws-lc did not seal".into()));
        }
        for (plain, sealed) in plain.chunks_mut(packet).zip(sealed.chunks(packet)) {
            let iv = 8..8 + self.own.iv_len();
            plain[iv.clone()].copy_from_slice(&sealed[iv]);
        }
        Ok((plain, sealed))
    }
}

fn write(requests: &mut Requests<'_>, packets: &[u8], packet: usize) {
    (0..).zip(packets.chunks(packet)).for_each(|(slot, bytes)| requests.write(slot, bytes));
}

fn note(oks: &mut [bool], some: &[Answer]) {
    some.iter().for_each(|answer| oks[answer.slot() as usize] = answer.ok());
}

fn next_numbers(seq: &mut u64, work: Work, slots: u32) -> u64 {
    match work {
        Work::Seal => {
            let first = *seq;
            *seq += u64::from(slots);
            first
        }
        Work::Open => 0,
    }
}

fn wrong_result() -> LabError {
    LabError::Measurement("the device of cryptodev gave a wrong result in the middle of a run".into())
}

/// How many requests are with the device at once.
fn depth(dispatch: Dispatch) -> u32 {
    match dispatch {
        Dispatch::All => MOST_UNDER_WAY,
        Dispatch::After => 1,
        Dispatch::Burst(n) => u32::try_from(n).unwrap_or(u32::MAX).min(MOST_UNDER_WAY),
    }
}

/// How many packets lie in memory: as for an engine of the processor, but four times as many as are
/// with the device at once, so that its queue is full most of the time.
fn slots(packet: usize, (data, dispatch): (Data, Dispatch), operations: u64) -> u32 {
    let wanted = match (data, dispatch) {
        (Data::Unique, _) | (_, Dispatch::All) => LARGE / packet,
        (Data::Same, _) => (CACHED / packet).max(4 * depth(dispatch) as usize),
    };
    let most =
        u32::try_from(operations).unwrap_or(u32::MAX).clamp(1, MOST_SLOTS).min((LARGE / packet) as u32);
    (wanted as u32).clamp(1, most)
}
