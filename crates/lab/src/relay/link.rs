//! A link as it is written on a command line and in a record: `rate=100mbit,delay=20ms,loss=0.1%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::RelaySpec;
use super::shaper::Impairment;

/// An emulated link, the same both ways.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link(Impairment);

/// Properties that can be written.
const KEYS: &str =
    "rate, burst, queue, delay, jitter, loss, reorder, reorder-by, duplicate, corrupt, mtu and seed";
const RATES: [(&str, u64); 4] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
const TIMES: [(&str, u64); 3] = [("ms", 1_000_000), ("us", 1000), ("s", 1_000_000_000)];
const SIZES: [(&str, u64); 3] = [("mb", 1_000_000), ("kb", 1000), ("", 1)];
/// Longest time: the load gives a path up that says nothing for some seconds.
const LONGEST: u64 = 1_000_000_000;

impl Link {
    /// The relay of the `nth` link of a topology: each loses other frames than the others.
    pub fn relay(&self, nth: usize) -> RelaySpec {
        let seed = self.0.seed ^ (nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Without a word on it, TCP would take for loss what is the path's MTU.
        RelaySpec { tell_too_big: true, ..RelaySpec::both(Impairment { seed, ..self.0 }) }
    }

    /// Time that the delays alone add to a round trip.
    pub fn round_trip(&self) -> Duration {
        self.0.delay * 2
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |what: String| format!("{key}={value}: {what}");
        let time = || {
            let range = "it is a time up to 1s, with its unit: s, ms or us";
            number(value, &TIMES)
                .filter(|ns| *ns <= LONGEST)
                .map(Duration::from_nanos)
                .ok_or_else(|| bad(range.into()))
        };
        let share = || {
            let share = value.strip_suffix('%').and_then(|v| v.parse::<f64>().ok());
            share
                .filter(|p| (0.0..=50.0).contains(p))
                .map(|p| p / 100.0)
                .ok_or_else(|| bad("it is a share from 0% to 50%".into()))
        };
        let bytes = || {
            number(value, &SIZES)
                .filter(|n| *n <= 1_000_000_000)
                .ok_or_else(|| bad("it is a number of bytes up to 1000mb".into()))
        };
        let link = &mut self.0;
        match key {
            "rate" => {
                let range = "it is a rate from 64kbit to 100gbit, with its unit: kbit, mbit or gbit";
                let rate = number(value, &RATES).filter(|r| (64_000..=100_000_000_000).contains(r));
                link.rate = Some(rate.ok_or_else(|| bad(range.into()))?);
            }
            "burst" => link.burst = bytes()?,
            "queue" => link.queue = bytes()?,
            "delay" => link.delay = time()?,
            "jitter" => link.jitter = time()?,
            "loss" => link.loss = share()?,
            "reorder" => link.reorder = share()?,
            "reorder-by" => link.reorder_by = time()?,
            "duplicate" => link.duplicate = share()?,
            "corrupt" => link.corrupt = share()?,
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| (576..=9000).contains(mtu));
                link.mtu = Some(mtu.ok_or_else(|| bad("it is a number from 576 to 9000".into()))?);
            }
            "seed" => link.seed = value.parse().map_err(|_| bad("it is a whole number".into()))?,
            _ => return Err(format!("a link has no `{key}`; it has {KEYS}")),
        }
        Ok(())
    }
}

/// A number with one of these units, in the smallest; the units are tried in their order.
fn number(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let number = digits.parse::<f64>().ok().filter(|n| (0.0..1e12).contains(n))?;
    Some((number * unit as f64).round() as u64)
}

/// The same number with the largest of these units that leaves it whole.
fn text(number: u64, units: &[(&str, u64)]) -> String {
    let mut units = units.to_vec();
    units.sort_by_key(|(_, unit)| std::cmp::Reverse(*unit));
    let whole = units.iter().find(|(_, unit)| number > 0 && number.is_multiple_of(*unit));
    match whole.or(units.last()) {
        Some((name, unit)) => format!("{}{name}", number / unit),
        None => number.to_string(),
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let mut link = Self(Impairment::default());
        let mut seen: Vec<&str> = Vec::new();
        for part in s.split(',').map(str::trim) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not of the form key=value; the keys are {KEYS}"))?;
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            link.set(key, value)?;
            seen.push(key);
        }
        if let (Some(rate), false) = (link.0.rate, seen.contains(&"queue")) {
            // A tenth of a second, or some packets.
            link.0.queue = (rate / 80).max(20_000);
        }
        for (key, needs) in [("burst", "rate"), ("queue", "rate"), ("reorder-by", "reorder")] {
            if seen.contains(&key) && !seen.contains(&needs) {
                return Err(format!("{key} has no meaning without {needs}"));
            }
        }
        Ok(link)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, off) = (&self.0, Impairment::default());
        let mut parts: Vec<String> = Vec::new();
        if let Some(rate) = link.rate {
            parts.push(format!("rate={}", text(rate, &RATES)));
            if link.burst > 0 {
                parts.push(format!("burst={}", text(link.burst, &SIZES)));
            }
            parts.push(format!("queue={}", text(link.queue, &SIZES)));
        }
        let time = |name: &str, time: Duration| {
            (time > Duration::ZERO).then(|| {
                // The smallest unit of the command line is a microsecond; what is less is a part of
                // it.
                let ns = time.as_nanos() as u64;
                let shown =
                    if ns.is_multiple_of(1000) { text(ns, &TIMES) } else { format!("{}us", ns as f64 / 1e3) };
                format!("{name}={shown}")
            })
        };
        let share =
            |name: &str, share: f64| (share > 0.0).then(|| format!("{name}={}%", rounded(share * 100.0)));
        parts.extend(time("delay", link.delay));
        parts.extend(time("jitter", link.jitter));
        parts.extend(share("loss", link.loss));
        if link.reorder > 0.0 {
            parts.extend(share("reorder", link.reorder));
            parts.extend(time("reorder-by", link.reorder_by));
        }
        parts.extend(share("duplicate", link.duplicate));
        parts.extend(share("corrupt", link.corrupt));
        parts.extend(link.mtu.map(|mtu| format!("mtu={mtu}")));
        if link.seed != off.seed || parts.is_empty() {
            parts.push(format!("seed={}", link.seed));
        }
        f.write_str(&parts.join(","))
    }
}

/// Without what a division by a hundred and back leaves behind.
fn rounded(percent: f64) -> f64 {
    (percent * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_and_written_the_same() {
        let all = "rate=1.5mbit,burst=3kb,queue=64kb,delay=20ms,jitter=500us,loss=0.1%,reorder=1%,reorder-by=3ms,\
                   duplicate=0.07%,corrupt=2%,mtu=1400,seed=7";
        let link: Link = all.parse().unwrap();
        assert_eq!(link.to_string(), all.replace("1.5mbit", "1500kbit"));
        assert_eq!(link.to_string().parse(), Ok(link));
        let i = link.0;
        assert_eq!((i.rate, i.burst, i.queue, i.mtu, i.seed), (Some(1_500_000), 3000, 64_000, Some(1400), 7));
        assert_eq!((i.delay, i.jitter), (Duration::from_millis(20), Duration::from_micros(500)));
        assert_eq!((i.reorder_by, link.round_trip()), (Duration::from_millis(3), Duration::from_millis(40)));
        assert!((i.loss - 0.001).abs() < 1e-12 && (i.corrupt - 0.02).abs() < 1e-12);
        // Without a queue a rate has one of a tenth of a second, or of some packets.
        let short = |text: &str| text.parse::<Link>().unwrap().to_string();
        assert_eq!(short("rate=100mbit, delay=0.5ms"), "rate=100mbit,queue=1250kb,delay=500us");
        assert_eq!(short("rate=64kbit"), "rate=64kbit,queue=20kb");
        assert_eq!((short("loss=0%"), short("delay=0.0005us")), ("seed=1".into(), "delay=0.001us".into()));
    }

    #[test]
    fn a_link_that_makes_no_sense_is_refused_with_what_would() {
        for (text, said) in [
            ("", "key=value; the keys are rate, burst"),
            ("20ms", "`20ms` is not of the form key=value"),
            ("speed=1mbit", "a link has no `speed`; it has rate"),
            ("rate=100", "rate=100: it is a rate from 64kbit to 100gbit"),
            ("rate=1kbit", "from 64kbit"),
            ("rate=NaNmbit", "from 64kbit"),
            ("rate=-1mbit", "from 64kbit"),
            ("delay=20", "delay=20: it is a time up to 1s, with its unit"),
            ("delay=2s", "up to 1s"),
            ("jitter=ms", "up to 1s"),
            ("loss=0.1", "loss=0.1: it is a share from 0% to 50%"),
            ("loss=51%", "0% to 50%"),
            ("loss=-1%", "0% to 50%"),
            ("mtu=100", "from 576 to 9000"),
            ("seed=x", "a whole number"),
            ("queue=1mb", "queue has no meaning without rate"),
            ("reorder-by=1ms", "without reorder"),
            ("rate=1mbit,queue=-1", "bytes up to 1000mb"),
            ("loss=1%,loss=2%", "loss is given twice"),
        ] {
            let refused = text.parse::<Link>().expect_err(text);
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn each_link_of_a_topology_loses_other_frames_and_the_first_those_of_its_seed() {
        let link: Link = "loss=1%,seed=5".parse().unwrap();
        let seeds: Vec<u64> =
            (0..3).flat_map(|n| [link.relay(n).there.seed, link.relay(n).back.seed]).collect();
        assert_eq!(seeds[0], 5);
        assert!((1..6).all(|n| !seeds[..n].contains(&seeds[n])), "{seeds:?}");
        assert!(link.relay(0).tell_too_big && link.relay(0).nat.is_none());
    }
}
