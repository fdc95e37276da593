//! Parts that experiments with packets share: frames of RFC 2544, how thoroughly a throughput is
//! searched, and the measures of a trial.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::campaign::{Campaign, Common};
use super::judge::Judge;
use super::passed::Passed;
use super::trials;
use crate::error::LabError;
use crate::load::frame::{Family, MAX_PAYLOAD, MIN_PAYLOAD, Mix, Shape};
use crate::load::{Direction, Offer};
use crate::measure::cost;
use crate::measure::mlr::Goal;
use crate::stats;

/// Ethernet header and frame check sequence: a frame of RFC 2544 less its IP packet.
pub(super) const FRAMING: u32 = 18;
/// IPv4 and UDP in front of the generator's payload.
const IP_UDP: u32 = Family::V4.headers() as u32;
/// The smallest frame that can carry the generator's marks: Ethernet's smallest.
pub(super) const SMALLEST: u32 = FRAMING + IP_UDP + MIN_PAYLOAD as u32;
/// The largest of ordinary Ethernet.
pub(super) const LARGEST: u32 = FRAMING + IP_UDP + MAX_PAYLOAD as u32;
/// The largest of all.
pub(super) const JUMBO: u32 = 9000;

/// What a search offers packets to: a system on its line, or the tester alone.
pub(super) trait Carrier {
    /// Its name.
    fn name(&self) -> &str;

    /// Offers packets of `shape` (its tag is set there) in each direction that `direction` says.
    fn pass(&mut self, shape: Shape, offer: Offer, direction: Direction) -> Result<Passed, LabError>;

    /// Most trials of its search; of none it is flooded, and that is all.
    fn most_trials(&self) -> u32 {
        u32::MAX
    }

    /// Most later trials, which confirm what the search found.
    fn most_later(&self) -> u32 {
        u32::MAX
    }
}

impl<T: Carrier + ?Sized> Carrier for &mut T {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn pass(&mut self, shape: Shape, offer: Offer, direction: Direction) -> Result<Passed, LabError> {
        (**self).pass(shape, offer, direction)
    }

    fn most_trials(&self) -> u32 {
        (**self).most_trials()
    }

    fn most_later(&self) -> u32 {
        (**self).most_later()
    }
}

/// A size of frame, or the mix of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSize {
    /// Bytes with Ethernet header and FCS, as in RFC 2544.
    Bytes(u32),
    /// Of twelve frames seven of 64 bytes, four of 570, one of 1518 (or the largest that fits).
    Imix,
    /// The packets of a capture, as they are to be sent.
    Captured(Mix),
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(n) => n.fmt(f),
            Self::Imix => f.write_str("IMIX"),
            Self::Captured(_) => f.write_str("mix"),
        }
    }
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.parse::<u32>() {
            _ if s.eq_ignore_ascii_case("imix") => Ok(Self::Imix),
            Ok(n) if (SMALLEST..=JUMBO).contains(&n) => Ok(Self::Bytes(n)),
            _ => Err(format!(
                "`{s}` is not a frame size; write {SMALLEST} to {JUMBO} bytes (Ethernet header and FCS included) or imix"
            )),
        }
    }
}

impl FrameSize {
    /// The packets of it over `flows` flows, where inner packets have at most `inner_mtu` bytes;
    /// `None` when they do not fit.
    pub(super) fn shape(self, inner_mtu: u32, flows: u32) -> Option<Shape> {
        self.shape_of(Family::V4, inner_mtu, flows)
    }

    /// The same over IPv4 or IPv6. A capture has flows of its own.
    pub(super) fn shape_of(self, family: Family, inner_mtu: u32, flows: u32) -> Option<Shape> {
        let (smallest, largest) = (smallest(family), inner_mtu + FRAMING);
        let payload = |frame: u32| (frame - FRAMING - family.headers() as u32) as u16;
        let (mix, payload) = match self {
            Self::Bytes(n) if !(smallest..=largest).contains(&n) => return None,
            Self::Bytes(n) => (None, payload(n)),
            Self::Imix => {
                let sizes = [64, 570, 1518].map(|n: u32| payload(n.max(smallest).min(largest)));
                (Some(Mix::simple(sizes)), sizes[2])
            }
            Self::Captured(mix) => (Some(mix), mix.largest() as u16),
        };
        let flows = mix.and_then(|mix| mix.flows()).unwrap_or(flows);
        Some(Shape { payload: usize::from(payload), mix, flows, family, tag: 0 })
    }
}

impl FrameSize {
    /// The error that frames of this size are not, where inner packets have at most `inner_mtu`
    /// bytes.
    pub(super) fn misfit(self, family: Family, inner_mtu: u32) -> LabError {
        let most = inner_mtu + FRAMING;
        LabError::Usage(match self {
            Self::Bytes(n) if n > most => format!("frames of {n} bytes do not fit: write {most} or less"),
            size => format!("frames of {size} bytes do not fit: write {} or more", smallest(family)),
        })
    }
}

/// The smallest frame over a version of IP.
pub(super) fn smallest(family: Family) -> u32 {
    FRAMING + (family.headers() + MIN_PAYLOAD) as u32
}

/// Bytes of the inner IP packet, on average.
pub(super) fn inner_bytes(shape: &Shape) -> f64 {
    shape.mean_len() + shape.family.headers() as f64
}

/// Gb/s of inner IP packets at so many a second.
pub(super) fn inner_gbps(shape: &Shape, pps: f64) -> f64 {
    inner_bytes(shape) * 8.0 * pps / 1e9
}

/// How thoroughly a throughput is searched.
#[derive(Debug, Clone)]
pub(super) struct Care {
    /// The largest losses, strictest first.
    pub losses: Vec<f64>,
    /// Share of bad seconds that is forgiven.
    pub exceed: f64,
    /// How close the bounds come, as a share.
    pub width: f64,
    /// Length of the first trials, of full ones, and of all full ones at a load that decide about
    /// it, seconds.
    pub initial: f64,
    pub last: f64,
    pub sum: f64,
    /// Stages before the last.
    pub coarse: u32,
    /// Most trials of a search.
    pub trials: u32,
    /// Most trials that are made after the searches, for all that was found in one.
    pub later: u32,
}

impl Care {
    /// How thoroughly the experiments with packets search.
    pub(super) fn of(common: &Common, losses: Vec<f64>) -> Self {
        let full = common.duration.map_or(common.by_care(1.0, 0.25, 0.1), |d| d.as_secs_f64().max(0.05));
        Self {
            losses,
            exceed: 0.5,
            width: common.by_care(0.02, 0.05, 0.25),
            initial: full * 0.3,
            last: full,
            sum: full * common.by_care(5.0, 2.0, 1.0),
            coarse: common.by_care(2, 1, 0),
            trials: common.by_care(150, 22, 4),
            later: common.by_care(96, 8, 2),
        }
    }

    /// As RFC 2544 has it: nothing is forgiven, one trial of `seconds` decides.
    pub(super) fn strict(self, seconds: f64) -> Self {
        Self { exceed: 0.0, initial: seconds, last: seconds, sum: seconds, coarse: 0, ..self }
    }

    /// Notes it among the settings of a run: what its results follow from, with the raw trials.
    pub(super) fn describe(&self, c: &mut Campaign) {
        let losses: Vec<String> = self.losses.iter().map(f64::to_string).collect();
        for (name, value) in [
            ("loss allowed", format!("{} of the packets sent", losses.join(", "))),
            ("width", format!("{} %", self.width * 100.0)),
            ("bad seconds forgiven", format!("{} %", self.exceed * 100.0)),
            (
                "trials",
                format!("{} s at first, {} s in full, {} s decide", self.initial, self.last, self.sum),
            ),
            (
                trials::LATER,
                format!(
                    "what was found is tried again after all searches: full trials as they decide, {} at most; no trial counts \
                     for more than a full one",
                    self.later
                ),
            ),
            (
                "what was not sent",
                format!(
                    "is no loss of the system up to {} % of a trial, and no throughput; a trial with more is repeated, twice at most",
                    Judge::new(self.width).most() * 100.0
                ),
            ),
        ] {
            c.settings.insert(name.into(), value);
        }
        c.trials_last(Duration::from_secs_f64(self.last));
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        let goal = |loss: &f64| Goal {
            loss_ratio: *loss,
            exceed_ratio: self.exceed,
            width: self.width,
            initial_trial: self.initial,
            final_trial: self.last,
            duration_sum: self.sum,
        };
        self.losses.iter().map(goal).collect()
    }

    /// About how long the search of one system takes.
    pub(super) fn guess(&self) -> Duration {
        let pause = 0.35;
        let goals = self.losses.len() as f64;
        // Found together, goals share most of their trials.
        let short = 6.0 * f64::from(self.coarse) * (self.initial.max(self.last / 2.0) + pause);
        let long = (1.0 + 0.5 * goals) * 2.0 * (self.sum / self.last).ceil() * (self.last + pause);
        let searched = (short + long).min(f64::from(self.trials) * (self.last + pause));
        let later = goals * (self.sum / self.last).ceil().min(f64::from(self.later)) * (self.last + pause);
        Duration::from_secs_f64(searched + later)
    }
}

/// The measures of a trial: what every experiment with packets takes down.
pub(super) fn measures(shape: &Shape, passed: &Passed) -> Vec<(&'static str, f64)> {
    let (packets, seconds) = (passed.received().max(1) as f64, passed.seconds());
    let (bytes, frames) = passed.outer;
    let mut measures = vec![
        ("kpps", passed.forwarded_pps() / 1e3),
        ("inner_gbps", inner_gbps(shape, passed.forwarded_pps())),
        // A veth that receives by polling, as in wire mode, counts IP packets: neither Ethernet
        // header nor FCS.
        ("outer_gbps", (bytes + u64::from(FRAMING) * frames) as f64 * 8.0 / seconds / 1e9),
        ("loss", passed.loss()),
        ("busy", passed.cost.busy_share),
        ("gateways_ns", passed.cost.gateways_ns as f64 / packets),
        ("machine_ns", passed.machine_cost()),
    ];
    measures.extend(passed.by_soaker());
    measures
}

/// The median of each measure over the trials at one load: one that was disturbed does not speak
/// for the load.
pub(super) fn medians<'a>(trials: &[Vec<(&'a str, f64)>]) -> Vec<(&'a str, f64)> {
    let of = |name: &str| -> Option<f64> {
        let all = || trials.iter().flatten().filter(|(n, _)| *n == name).map(|(_, value)| *value);
        // A trial that was too short for a cost says nothing about it beside longer ones.
        let long: Vec<f64> = all().filter(|value| *value != cost::TOO_SHORT).collect();
        stats::median(&long).or_else(|| all().next().filter(|value| *value == cost::TOO_SHORT))
    };
    let names = trials.first().into_iter().flatten().map(|(name, _)| *name);
    names.filter_map(|name| Some((name, of(name)?))).collect()
}

/// Percentiles of the worse direction, microseconds.
pub(super) fn latencies(passed: &Passed) -> Vec<(&'static str, f64)> {
    let all: Vec<_> = passed.ways.iter().filter_map(|(_, c)| c.received.latency).collect();
    let worst = |of: &dyn Fn(&crate::load::Latency) -> f64| all.iter().map(of).fold(f64::NAN, f64::max);
    vec![
        ("p50_us", worst(&|l| l.p50_us)),
        ("p90_us", worst(&|l| l.p90_us)),
        ("p99_us", worst(&|l| l.p99_us)),
        ("p999_us", worst(&|l| l.p999_us)),
        ("max_us", worst(&|l| l.max_us)),
    ]
}

/// A share of loss as a factor: `0`, `0.001%`.
pub(super) fn percent(loss: f64) -> String {
    if loss == 0.0 { "0".into() } else { format!("{}%", (loss * 1e8).round() / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_sizes_are_those_of_rfc_2544_and_the_mix_is_cut_to_what_fits() {
        let shape = |s: &str, mtu| s.parse::<FrameSize>().expect("a size").shape(mtu, 1);
        // The smallest frame has an inner packet of 46 bytes, the largest one of 1500.
        let smallest = shape("64", 1400).expect("fits");
        assert_eq!((smallest.payload, inner_bytes(&smallest)), (18, 46.0));
        assert_eq!(shape("1518", 1500).expect("fits").payload, 1472);
        assert_eq!(shape("1424", 1400), None);
        assert_eq!((shape("9000", 1500), shape("9000", 8982).map(|s| s.payload)), (None, Some(8954)));
        let over_ipv6 = |s: &str| s.parse::<FrameSize>().expect("a size").shape_of(Family::V6, 1500, 1);
        assert_eq!((over_ipv6("83"), over_ipv6("84").map(|s| s.payload)), (None, Some(18)));
        assert_eq!(over_ipv6("1518").map(|s| inner_bytes(&s)), Some(1500.0));
        assert_eq!(over_ipv6("imix").map(|s| (s.len(0), s.len(11))), Some((18, 1452)));
        assert_eq!(shape("imix", 1500).expect("fits").payload, 1472);
        assert_eq!(shape("IMIX", 1400).expect("fits").payload, 1372);
        let mean = inner_bytes(&shape("imix", 1500).expect("fits"));
        assert!((mean - (7.0 * 46.0 + 4.0 * 552.0 + 1500.0) / 12.0).abs() < 1e-9, "{mean}");
        for bad in ["63", "9001", "x", ""] {
            assert!(bad.parse::<FrameSize>().is_err(), "{bad}");
        }
        assert_eq!(
            (percent(0.0), percent(0.00001), percent(0.001)),
            ("0".into(), "0.001%".into(), "0.1%".into())
        );
    }

    #[test]
    fn a_disturbed_trial_does_not_speak_for_its_load() {
        let trial = |busy, loss| vec![("busy", busy), ("loss", loss)];
        let trials = [trial(0.5, 0.0), trial(0.6, 0.0), trial(0.99, 0.3)];
        assert_eq!(medians(&trials), [("busy", 0.6), ("loss", 0.0)]);
        assert_eq!(medians(&[]), []);
        // One that was too short says nothing, unless all were.
        let trials = [trial(cost::TOO_SHORT, 0.0), trial(0.5, cost::TOO_SHORT), trial(0.75, cost::TOO_SHORT)];
        assert_eq!(medians(&trials), [("busy", 0.625), ("loss", 0.0)]);
        assert_eq!(medians(&[trial(cost::TOO_SHORT, 0.5)]), [("busy", cost::TOO_SHORT), ("loss", 0.5)]);
    }
}
