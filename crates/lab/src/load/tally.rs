//! Counts packets that arrived: received, duplicates, reordered, corrupt, and the latency of each.
//! Pure.

use serde::{Deserialize, Serialize};

use super::frame::{self, Shape};
use super::latency::{Histogram, Latency};

/// Counts of a receiver. `unique` + `duplicates` + `corrupt` are all packets that reached the
/// receiver, but for late packets of an earlier trial, which count nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Received {
    /// Sound packets, each number once.
    pub unique: u64,
    /// Sound packets whose number had arrived before.
    pub duplicates: u64,
    /// Sound packets, not duplicates, behind one of their own flow with a higher number (RFC 4737).
    pub reordered: u64,
    /// Packets that were damaged, of another size, or not of the laboratory.
    pub corrupt: u64,
    /// From the first packet to the last, seconds.
    pub seconds: f64,
    /// From generator to receiver.
    pub latency: Option<Latency>,
}

/// Counts packets as they come.
#[derive(Debug)]
pub struct Tally {
    shape: Shape,
    pattern: [u8; frame::JUMBO_PAYLOAD],
    /// One bit for each number.
    seen: Vec<u64>,
    /// The number after the highest of each flow.
    next: Vec<u32>,
    latency: Histogram,
    counts: Received,
    first: Option<u64>,
    last: u64,
}

impl Tally {
    /// For packets of that shape.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            pattern: frame::pattern(),
            seen: Vec::new(),
            next: vec![0; shape.flows as usize],
            latency: Histogram::default(),
            counts: Received::default(),
            first: None,
            last: 0,
        }
    }

    /// Takes in one payload that arrived at `now`, nanoseconds since the trial's epoch; false for
    /// one of an earlier trial.
    pub fn take(&mut self, payload: &[u8], now: u64) -> bool {
        let Some(mark) = self.shape.read(payload, &self.pattern) else {
            // A packet that another trial has counted as lost does not belong to this one.
            let ours = !self.shape.straggles(payload);
            self.counts.corrupt += u64::from(ours);
            return ours;
        };
        let (word, bit) = (mark.number as usize / 64, 1u64 << (mark.number % 64));
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        if self.seen[word] & bit != 0 {
            self.counts.duplicates += 1;
            return true;
        }
        self.seen[word] |= bit;
        self.counts.unique += 1;
        let next = &mut self.next[mark.flow as usize];
        if mark.number < *next {
            self.counts.reordered += 1;
        } else {
            *next = mark.number.saturating_add(1);
        }
        self.latency.record(now.saturating_sub(mark.time));
        self.first.get_or_insert(now);
        self.last = now;
        true
    }

    /// Adds what another has counted of the same trial. A number that both have seen was sent once,
    /// so one of the two is a duplicate. The order of a flow is known to the tally that has all its
    /// packets.
    pub fn merge(&mut self, other: &Self) {
        if other.seen.len() > self.seen.len() {
            self.seen.resize(other.seen.len(), 0);
        }
        let mut twice = 0;
        for (own, more) in self.seen.iter_mut().zip(&other.seen) {
            twice += u64::from((*own & more).count_ones());
            *own |= more;
        }
        for (own, more) in self.next.iter_mut().zip(&other.next) {
            *own = (*own).max(*more);
        }
        self.latency.merge(&other.latency);
        let (own, more) = (&mut self.counts, &other.counts);
        own.unique = own.unique + more.unique - twice;
        own.duplicates += more.duplicates + twice;
        own.reordered += more.reordered;
        own.corrupt += more.corrupt;
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last = self.last.max(other.last);
    }

    /// Bytes of the largest payload.
    pub fn largest(&self) -> usize {
        self.shape.mix.map_or(self.shape.payload, |mix| mix.largest())
    }

    /// Sound packets so far.
    pub fn unique(&self) -> u64 {
        self.counts.unique
    }

    /// The sum of it.
    pub fn finish(self) -> Received {
        Received {
            seconds: self.last.saturating_sub(self.first.unwrap_or(self.last)) as f64 / 1e9,
            latency: self.latency.summary(),
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Family, Mark};
    use super::*;

    fn packet(shape: &Shape, number: u32, flow: u32) -> Vec<u8> {
        let mut payload = vec![0; shape.payload];
        payload[18..].copy_from_slice(&frame::pattern()[..shape.payload - 18]);
        shape.write(&Mark { number, time: 1_000, flow }, &mut payload);
        payload
    }

    #[test]
    fn injected_faults_are_counted_under_their_names() {
        let shape = Shape { payload: 100, mix: None, flows: 2, family: Family::V4, tag: 1 };
        let mut tally = Tally::new(shape);
        let mut damaged = packet(&shape, 9, 1);
        damaged[60] ^= 1;
        for (i, p) in [
            packet(&shape, 0, 0),
            packet(&shape, 1, 1),
            packet(&shape, 4, 0),
            // Behind number 4 of its own flow: reordered. Number 3 is not: its flow has seen
            // nothing higher.
            packet(&shape, 2, 0),
            packet(&shape, 3, 1),
            // Again, twice.
            packet(&shape, 2, 0),
            packet(&shape, 0, 0),
            damaged,
            packet(&Shape { tag: 2, ..shape }, 5, 1),
            vec![],
        ]
        .iter()
        .enumerate()
        {
            tally.take(p, 2_000 + i as u64 * 1_000_000);
        }
        let r = tally.finish();
        assert_eq!((r.unique, r.duplicates, r.reordered, r.corrupt), (5, 2, 1, 3));
        assert!((r.seconds - 0.004).abs() < 1e-12);
        assert_eq!(r.latency.expect("latency").samples, 5);
    }

    #[test]
    fn tallies_of_several_receivers_together_are_that_of_one() {
        let shape = Shape { payload: 100, mix: None, flows: 4, family: Family::V4, tag: 1 };
        let (mut one, mut parts) = (Tally::new(shape), [Tally::new(shape), Tally::new(shape)]);
        // Each flow comes to one receiver; some packets are lost, late or come twice.
        let numbers = (0..1000).filter(|n| n % 7 != 0).chain([7, 14, 200, 201]);
        for (nth, number) in numbers.enumerate() {
            let (packet, now) = (packet(&shape, number, number % 4), 10_000 + nth as u64 * 1000);
            one.take(&packet, now);
            parts[number as usize % 2].take(&packet, now);
        }
        let [mut all, more] = parts;
        all.merge(&more);
        let together = all.finish();
        assert_eq!(together, one.finish());
        assert_eq!((together.unique, together.duplicates, together.reordered), (859, 2, 2));
        // Nothing but a copy on the way makes the same packet come to both.
        let (mut a, mut b) = (Tally::new(shape), Tally::new(shape));
        a.take(&packet(&shape, 1, 1), 2_000);
        b.take(&packet(&shape, 1, 1), 1_500);
        a.merge(&b);
        let r = a.finish();
        assert_eq!((r.unique, r.duplicates, r.seconds), (1, 1, 5e-7));
    }

    #[test]
    fn the_highest_number_is_no_overflow() {
        let shape = Shape { payload: 18, mix: None, flows: 1, family: Family::V4, tag: 1 };
        let mut tally = Tally::new(shape);
        tally.take(&packet(&shape, 1 << 27, 0), 5_000);
        tally.take(&packet(&shape, 3, 0), 5_000);
        let r = tally.finish();
        assert_eq!((r.unique, r.reordered), (2, 1));
    }
}
