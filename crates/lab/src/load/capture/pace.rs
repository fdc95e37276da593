//! When packets are due: evenly spaced, in bursts, or as far apart as those of a capture. At every
//! rate that is offered the gaps keep their proportions. Pure.

use std::time::Duration;

/// How packets follow one another at a given rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each as far from the next.
    Even,
    /// So many at once, the bursts evenly spaced.
    Bursts(u32),
    /// As those of a capture, over and over. The times of its packets, as shares of the time of
    /// all: the first is 0, none is below the one before, all are below 1.
    Captured(&'static [f64]),
}

impl Pace {
    /// Of packets that come so long after one another, the first after the last as well. Evenly
    /// spaced where that takes no time at all. The list is read once in a run and stays as long as
    /// the program does.
    pub fn captured(gaps: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<f64> = Vec::new();
        let mut at = Duration::ZERO;
        for gap in gaps {
            if !times.is_empty() {
                at += gap;
            }
            times.push(at.as_secs_f64());
        }
        if at.is_zero() || times.len() < 2 {
            return Self::Even;
        }
        // From the last packet to the first of the next round it takes the mean of the others.
        let all = at.as_secs_f64() * times.len() as f64 / (times.len() - 1) as f64;
        times.iter_mut().for_each(|t| *t /= all);
        Self::Captured(times.leak())
    }

    /// Packets that become due together at least.
    pub fn at_once(self) -> u64 {
        match self {
            Self::Bursts(packets) => u64::from(packets.max(1)),
            _ => 1,
        }
    }

    /// Packets that are due by then.
    pub fn due(self, rate: f64, elapsed: Duration) -> u64 {
        let all = elapsed.as_secs_f64() * rate;
        match self {
            Self::Even => all as u64,
            Self::Bursts(_) => all as u64 - all as u64 % self.at_once(),
            Self::Captured(times) => {
                let rounds = all / times.len() as f64;
                let within = times.partition_point(|t| *t < rounds.fract());
                rounds as u64 * times.len() as u64 + within as u64
            }
        }
    }

    /// When the packet of that number becomes due, seconds.
    pub fn time(self, rate: f64, number: u64) -> f64 {
        match self {
            Self::Even => (number + 1) as f64 / rate,
            Self::Bursts(_) => (number / self.at_once() + 1) as f64 * self.at_once() as f64 / rate,
            Self::Captured(times) => {
                let count = times.len() as u64;
                let within = times.get((number % count) as usize).copied().unwrap_or(0.0);
                ((number / count) as f64 + within) * count as f64 / rate
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_burst_become_due_together() {
        let at = |micros, burst| Pace::Bursts(burst).due(10_000.0, Duration::from_micros(micros));
        assert_eq!([0, 99, 100, 1_599, 1_600, 3_250].map(|t| at(t, 16)), [0, 0, 0, 0, 16, 32]);
        assert_eq!([99, 100, 1_650].map(|t| at(t, 1)), [0, 1, 16]);
        assert_eq!(Pace::Even.due(10_000.0, Duration::from_micros(1_650)), 16);
        let time = |pace: Pace, number| pace.time(10_000.0, number);
        assert_eq!((time(Pace::Bursts(16), 0), time(Pace::Bursts(16), 16)), (0.0016, 0.0032));
        assert_eq!(time(Pace::Even, 15), 0.0016);
    }

    #[test]
    fn gaps_of_a_capture_keep_their_proportions_at_any_rate() {
        // Two at once, 1 ms later one, 3 ms later one; then the mean, 4/3 ms.
        let pace = Pace::captured([7, 0, 1, 3].map(Duration::from_millis).into_iter());
        let Pace::Captured(times) = pace else { panic!("{pace:?}") };
        let expected = [0.0, 0.0, 3.0 / 16.0, 12.0 / 16.0];
        assert!(times.iter().zip(expected).all(|(t, e)| (t - e).abs() < 1e-12), "{times:?}");
        // 1000 a second: a round takes 4 ms.
        let due = |micros| pace.due(1_000.0, Duration::from_micros(micros));
        assert_eq!([0, 1, 749, 751, 2_999, 3_001, 4_001, 8_001].map(due), [0, 2, 2, 3, 3, 4, 6, 10]);
        for rate in [10.0, 1e6] {
            for number in 0..9 {
                let at = pace.time(rate, number);
                let near = (1e-4 / rate).max(3e-9);
                let after = Duration::from_secs_f64(at + near);
                assert!(pace.due(rate, after) > number, "{number} at {rate}");
                assert!(pace.due(rate, Duration::from_secs_f64((at - near).max(0.0))) <= number);
            }
        }
        // In the long run it is the rate.
        assert_eq!(pace.due(1e5, Duration::from_secs(60)), 6_000_000);
    }

    #[test]
    fn what_has_no_times_is_evenly_spaced() {
        assert_eq!(Pace::captured([Duration::ZERO; 5].into_iter()), Pace::Even);
        assert_eq!(Pace::captured([Duration::from_secs(1)].into_iter()), Pace::Even);
        assert_eq!(Pace::captured(std::iter::empty()), Pace::Even);
    }
}
