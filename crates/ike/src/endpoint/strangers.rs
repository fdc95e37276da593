//! Limits the cost of senders that nobody has authenticated, beside memory (`halfopen`): comparing
//! proposals, answers that say no, and lines in the log. Each has a limit of its own, so that none
//! of them silences another.
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | requests refused | [`REFUSALS_PER_SECOND`] | cookies are asked for first |
//! | of these, with a cookie | [`PROVED_REFUSALS_PER_NET`] a second | dropped unread |
//! | answers that say no | [`ANSWERS_PER_NET`] to one network | silence |
//! | QCD tokens sent | [`TOKENS_PER_SECOND`], [`TOKENS_PER_NET`] to one network | silence |
//! | QCD tokens compared | [`TOKENS_VERIFIED_PER_NET`] a second | counted |
//! | guesses at who it is | [`GUESSES_PER_SECOND`] hashes | no guess |
//! | log lines | [`STRANGER_LINES`] | counted |
//!
//! The limit of lines is for all networks together, with [`STRANGER_LINES_BURST`] at once; about
//! one network there is one line in [`STRANGER_LINE_OF_NET`], so that the lines of one alone never
//! use up those of all. The number of lines that were left out is written every
//! [`STRANGER_SUMMARY`].
//!
//! A network is a /24 or /64. Networks share [`STRANGER_BUCKETS`] counters by a hash that nobody
//! can predict: who sends from one network silences one in a thousand others at most, and not one
//! of its choice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Rng;

use super::halfopen::Prefix;
use ironswan_keying::limits::{
    ANSWERS_PER_NET, GUESSES_PER_SECOND, PROVED_REFUSALS_PER_NET, REFUSALS_PER_SECOND, STRANGER_BUCKETS,
    STRANGER_LINE_OF_NET, STRANGER_LINES, STRANGER_LINES_BURST, TOKENS_PER_NET, TOKENS_PER_SECOND,
    TOKENS_VERIFIED_PER_NET,
};

const SECOND: Duration = Duration::from_secs(1);

/// Subject of a line in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// A message outside of any IKE_SA, or of its first exchange.
    Message,
    /// A peer that has done a key exchange with us and is not who it says.
    Authentication,
}

/// Counts in each second anew, or in another length of time.
#[derive(Default)]
struct Counted {
    since: Option<Instant>,
    now: u32,
    before: u32,
}

impl Counted {
    /// True when the second has just begun.
    fn turn(&mut self, now: Instant) -> bool {
        self.turn_after(SECOND, now)
    }

    /// True when a time of this length has just begun.
    fn turn_after(&mut self, length: Duration, now: Instant) -> bool {
        let age = self.since.map(|t| now.saturating_duration_since(t));
        match age {
            Some(age) if age < length => return false,
            Some(age) if age < 2 * length => self.before = self.now,
            _ => self.before = 0,
        }
        (self.since, self.now) = (Some(now), 0);
        true
    }
}

/// A counter for each network, of the current second or another length of time.
struct Buckets {
    length: Duration,
    time: Counted,
    used: Box<[u8; STRANGER_BUCKETS]>,
}

impl Default for Buckets {
    fn default() -> Self {
        Self::each(SECOND)
    }
}

impl Buckets {
    fn each(length: Duration) -> Self {
        Self { length, time: Counted::default(), used: Box::new([0; STRANGER_BUCKETS]) }
    }

    /// How often this bucket has been used in this time.
    fn used(&mut self, now: Instant, bucket: usize) -> u8 {
        if self.time.turn_after(self.length, now) {
            self.used.fill(0);
        }
        self.used[bucket]
    }

    fn take(&mut self, now: Instant, bucket: usize, limit: u8) -> bool {
        let used = self.used(now, bucket);
        self.used[bucket] = used.saturating_add(1);
        used < limit
    }
}

/// The lines about each network.
struct Lines(Buckets);

impl Default for Lines {
    fn default() -> Self {
        Self(Buckets::each(STRANGER_LINE_OF_NET))
    }
}

/// All of it.
#[derive(Default)]
pub(crate) struct Strangers {
    /// Drawn when it is first needed.
    seed: Option<u64>,
    refused: Counted,
    refused_of_net: Buckets,
    answers: Buckets,
    lines_of_net: Lines,
    /// Events that may be written about, in thousandths; full at the start.
    spent: u32,
    refilled: Option<Instant>,
    silent: [u64; 2],
    versions: Counted,
    tokens_verified: Buckets,
    tokens_of_net: Buckets,
    tokens_sent: Counted,
    guesses: Counted,
    /// The last configured address that was compared with what a stranger says of its own.
    guessed_last: Option<IpAddr>,
}

impl Strangers {
    fn bucket(&mut self, rng: &mut dyn Rng, from: IpAddr) -> usize {
        let seed = *self.seed.get_or_insert_with(|| rng.u64());
        let mut h = DefaultHasher::new();
        (seed, Prefix::net(from)).hash(&mut h);
        // Below `STRANGER_BUCKETS`, which is a power of two.
        (h.finish() % STRANGER_BUCKETS as u64) as usize
    }

    /// True while there is some left for an event that may be written about.
    fn afford(&mut self, now: Instant) -> bool {
        let since = self.refilled.map_or(Duration::ZERO, |t| now.saturating_duration_since(t));
        let millis = u32::try_from(since.as_millis()).unwrap_or(u32::MAX);
        let grown = millis.saturating_mul(STRANGER_LINES);
        // The rest below a millisecond counts towards the next one.
        self.refilled = Some(self.refilled.map_or(now, |t| t + Duration::from_millis(millis.into())));
        self.spent = self.spent.saturating_sub(grown);
        let left = self.spent + 1_000 <= STRANGER_LINES_BURST * 1_000;
        self.spent += if left { 1_000 } else { 0 };
        left
    }
}

impl Strangers {
    /// Counts a refused request. `proved`: it has brought a cookie, so its address is its own.
    pub(crate) fn refused(&mut self, now: Instant, rng: &mut dyn Rng, from: IpAddr, proved: bool) {
        self.refused.turn(now);
        self.refused.now = self.refused.now.saturating_add(1);
        if proved {
            let bucket = self.bucket(rng, from);
            self.refused_of_net.take(now, bucket, PROVED_REFUSALS_PER_NET);
        }
    }

    /// Whether to read a request that has brought its cookie. What is sent in the name of a network
    /// takes nothing from it.
    pub(crate) fn may_compare(&mut self, now: Instant, rng: &mut dyn Rng, from: IpAddr) -> bool {
        let bucket = self.bucket(rng, from);
        self.refused_of_net.used(now, bucket) < PROVED_REFUSALS_PER_NET
    }

    /// True while so many requests are refused that each must bring a cookie before it is compared
    /// with anything.
    pub(crate) fn refuses_many(&mut self, now: Instant) -> bool {
        self.refused.turn(now);
        self.refused.now.max(self.refused.before) >= REFUSALS_PER_SECOND
    }

    /// Whether to answer this address that something is refused.
    pub(crate) fn may_answer(&mut self, now: Instant, rng: &mut dyn Rng, to: IpAddr) -> bool {
        let bucket = self.bucket(rng, to);
        self.answers.take(now, bucket, ANSWERS_PER_NET)
    }

    /// Whether to answer a message of another version. Such a message may come from anywhere, and
    /// nobody waits for the answer.
    pub(crate) fn may_answer_version(&mut self, now: Instant) -> bool {
        self.versions.turn(now);
        self.versions.now = self.versions.now.saturating_add(1);
        self.versions.now <= u32::from(ANSWERS_PER_NET)
    }

    /// Whether to compare a QCD token that has come from this address.
    pub(crate) fn may_verify_token(&mut self, now: Instant, rng: &mut dyn Rng, from: IpAddr) -> bool {
        let bucket = self.bucket(rng, from);
        self.tokens_verified.take(now, bucket, TOKENS_VERIFIED_PER_NET)
    }

    /// Whether to answer a request of an unknown IKE_SA with a QCD token.
    pub(crate) fn may_send_token(&mut self, now: Instant, rng: &mut dyn Rng, to: IpAddr) -> bool {
        self.tokens_sent.turn(now);
        let bucket = self.bucket(rng, to);
        if self.tokens_sent.now >= TOKENS_PER_SECOND || !self.tokens_of_net.take(now, bucket, TOKENS_PER_NET)
        {
            return false;
        }
        self.tokens_sent.now += 1;
        true
    }

    /// Whether to write a line about something that this address has done. Lines that are not
    /// written are counted.
    pub(crate) fn may_write(&mut self, now: Instant, rng: &mut dyn Rng, from: IpAddr, about: About) -> bool {
        let bucket = self.bucket(rng, from);
        if self.lines_of_net.0.take(now, bucket, 1) && self.afford(now) {
            return true;
        }
        self.silent[usize::from(about == About::Authentication)] += 1;
        false
    }

    /// Guesses which configured peer a stranger is. `find` compares at most so many addresses,
    /// beginning behind the one that is given, and returns its guess and the last address.
    pub(crate) fn guess<T>(
        &mut self,
        now: Instant,
        find: impl FnOnce(Option<IpAddr>, usize, &mut u32) -> (Option<T>, Option<IpAddr>),
    ) -> Option<T> {
        self.guesses.turn(now);
        let left = GUESSES_PER_SECOND.saturating_sub(self.guesses.now);
        if left == 0 {
            return None;
        }
        let mut used = 0;
        let (guess, last) = find(self.guessed_last, left as usize, &mut used);
        self.guesses.now = self.guesses.now.saturating_add(used);
        self.guessed_last = last;
        guess
    }

    /// Takes the number of lines that were not written: about messages, and about peers that failed
    /// to authenticate themselves.
    pub(crate) fn take_silent(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.silent)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use ironswan_crypto::rng::Seeded;

    use super::*;
    use crate::endpoint::Endpoint;
    use crate::endpoint::Options;
    use crate::event::Event;
    use ironswan_keying::{Limits, Protocol, Shared};

    fn endpoint() -> (Endpoint, Instant) {
        let (policy, rng) = (std::sync::Arc::new(Shared::default()), Box::new(Seeded::new(1)));
        (Endpoint::new(policy, Limits::default(), rng, Options::default()), Instant::now())
    }

    fn ip(n: u32) -> IpAddr {
        IpAddr::from((0xc633_6400u32.wrapping_add(n << 8)).to_be_bytes())
    }

    #[test]
    fn lines_have_a_rate_and_the_rest_is_counted() {
        let (mut e, t0) = endpoint();
        let mut written = 0;
        for ms in 0..60_000 {
            for n in 0..2 {
                let at = t0 + Duration::from_millis(ms);
                written += u32::from(e.may_write(at, ip((ms * 2 + n) as u32 % 5_000), About::Message));
                if e.poll_timeout().is_some_and(|due| due <= at) {
                    e.handle_timeout(at);
                }
            }
        }
        assert!((60..=60 * STRANGER_LINES + STRANGER_LINES_BURST).contains(&written), "{written}");
        let mut lines = Vec::new();
        while let Some(Event::Log { text, .. }) = e.poll_event() {
            lines.push(text);
        }
        assert!((5..=6).contains(&lines.len()), "{lines:?}");
        assert!(lines[0].contains("lines about 1"), "{}", lines[0]);
    }

    #[test]
    fn lines_come_back_however_often_one_is_asked_for() {
        let (mut e, t0) = endpoint();
        let afforded =
            (0..50_000u64).filter(|n| e.shared.strangers.afford(t0 + Duration::from_micros(n * 200)));
        assert_eq!(afforded.count(), (10 * STRANGER_LINES + STRANGER_LINES_BURST - 1) as usize);
    }

    #[test]
    fn one_network_neither_silences_another_nor_uses_all_lines_up() {
        let (mut e, t0) = endpoint();
        let mut written = 0;
        for n in 0..60_000 {
            let at = t0 + Duration::from_millis(n);
            written += u32::from(e.may_write(at, ip(1), About::Message));
            e.may_answer(at, ip(1));
            if n % 2_000 == 1_999 {
                let other = ip(1_000 + n as u32);
                assert!(e.may_answer(at, other) && e.may_write(at, other, About::Authentication), "{n}");
            }
        }
        assert_eq!(written, 30, "one in two seconds");
    }

    #[test]
    fn many_refusals_are_remembered_for_a_second() {
        let (mut e, t0) = endpoint();
        for n in 0..REFUSALS_PER_SECOND {
            assert!(!e.refuses_many(t0));
            e.count_refusal(t0 + Duration::from_millis(n.into()), ip(n), false);
        }
        assert!(e.refuses_many(t0 + Duration::from_millis(30)));
        assert!(e.refuses_many(t0 + Duration::from_millis(1_900)));
        assert!(!e.refuses_many(t0 + Duration::from_millis(3_000)));
    }
}
