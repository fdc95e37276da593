//! The planner's model: what a packet costs a gateway, by suite, path and direction.
//!
//! ```text
//! cost of a packet = base(packets a second) + b x bytes + s x changes of size  of the path
//!                  + crypto(suite, direction, bytes, burst)                    of the suite
//!                  + SAs
//! ```
//! The base is a curve through what was measured at several rates, up to all that goes: a gateway
//! that is woken for every packet pays a waking for each, and the more come the more it finds at
//! once. A burst is what it finds: the packets that share a call of the crypto engine, which is on
//! the same curve. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calm::{Agreement, Calm, Trust};
use super::cost::{BurstShare, Estimate, FlowCost};
use super::gathering::Gathering;
use super::mix::Mix;
pub use super::schemas::MODEL_SCHEMA;
use super::suite::SuiteCost;
use super::workers::{Measured, WorkerCost};
use crate::error::LabError;
use crate::schema::{TIME, never_negative};

/// Class of machines, by the instructions that a crypto engine may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// With VAES.
    Vaes,
    /// With AES-NI alone.
    AesNi,
    /// Without either.
    WithoutAes,
}

impl Class {
    /// All.
    pub const ALL: [Self; 3] = [Self::Vaes, Self::AesNi, Self::WithoutAes];

    /// For a sentence: `with VAES`, `with AES-NI`, `without AES`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Vaes => "with VAES",
            Self::AesNi => "with AES-NI",
            Self::WithoutAes => "without AES",
        }
    }

    /// For a command line: the same, in small letters and with hyphens.
    pub fn name(self) -> String {
        self.words().to_lowercase().replace(' ', "-")
    }
}

/// One gateway under a load.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Side {
    /// Packets a second that it handled.
    pub pps: f64,
    /// Processor time of its processes for each, nanoseconds. What the kernel does in their system
    /// calls is in it: sending, and in this laboratory the way to the next box.
    pub ns: f64,
    /// Calls and wakings of the gateway for each packet.
    pub calls: f64,
    /// Packets that share a call of the crypto engine, on average.
    pub burst: f64,
}

/// Cost that was measured of one load.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Seen {
    /// Length, seconds.
    pub seconds: f64,
    /// Packets that were sent.
    pub packets: f64,
    /// Mean length of the inner IP packets.
    pub bytes_per_packet: f64,
    /// Share of what was meant to be sent that did not arrive.
    #[schemars(range(max = 1))]
    pub loss: f64,
    /// The gateway that seals.
    pub out: Side,
    /// The gateway that opens.
    pub into: Side,
    /// Busy time of the whole machine less that of programs outside, nanoseconds per packet that
    /// was sent.
    pub machine_ns: f64,
    /// Share of the machine that programs outside used.
    #[schemars(range(max = 1))]
    pub other_share: f64,
}

impl Seen {
    /// The gateway of one direction.
    pub fn side(&self, way: Way) -> &Side {
        match way {
            Way::Out => &self.out,
            Way::In => &self.into,
        }
    }
}

/// Which way a packet goes through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the protected network: sealed.
    Out,
    /// Towards it: opened.
    In,
}

impl Way {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Out, Self::In];

    /// `out`, `in`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// How ESP is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// In UDP.
    Udp,
    /// As IP protocol 50.
    Raw,
}

impl Path {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Udp, Self::Raw];

    /// `udp`, `raw`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Raw => "raw",
        }
    }
}

/// Cost of a path in one direction, without crypto.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct PathCost {
    /// How ESP is carried.
    pub path: Path,
    /// Which way.
    pub way: Way,
    /// Nanoseconds of a byte of the inner packet.
    pub per_byte: f64,
    /// Nanoseconds of a change of size, where packets gather: it ends what is sent at once.
    pub per_change: f64,
    /// The base by the rate, in its order: of packets by themselves.
    #[schemars(length(min = 1))]
    pub packets: Vec<Point>,
    /// Of packets that are merged on the way, as TCP's are.
    #[schemars(length(min = 1))]
    pub merged: Vec<Point>,
    /// Half of the interval of `per_byte`, two standard errors; absent where the fit cannot tell
    /// bytes from the base, which then has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_within: Option<f64>,
    /// The same of `per_change`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_change_within: Option<f64>,
    /// One call or waking beyond those of a full batch: by what a packet by itself costs more than
    /// one of such a batch. A part of the base; absent where the two cannot be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waking: Option<Estimate>,
    /// How packets by themselves gather at the end, where dearer ones were seen to gather more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gathering: Option<Gathering>,
    /// Root mean square of the relative error over the loads it was fitted to.
    pub residual: f64,
    /// How many loads.
    pub cells: usize,
}

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Point {
    /// Packets a second.
    pub pps: f64,
    /// Nanoseconds of a packet of no length; of merged packets, of a full one.
    pub ns: f64,
    /// The gateway's calls and wakings for each.
    pub calls: f64,
    /// Packets that share a call of the crypto engine.
    pub burst: f64,
    /// Half of the interval of `ns`, two standard errors; absent where one load alone says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
}

impl Point {
    /// The base where `burst` packets share a call, on the same lines; at the end where that many
    /// were never seen to.
    fn sharing(curve: &[Self], burst: f64) -> Option<Self> {
        match curve.iter().position(|p| p.burst >= burst) {
            None => curve.last().copied(),
            Some(0) => curve.first().copied(),
            Some(n) => {
                let (low, high) = (curve[n - 1], curve[n]);
                let share = (burst / low.burst).ln() / (high.burst / low.burst).ln();
                Self::at(curve, low.pps * (high.pps / low.pps).powf(share))
            }
        }
    }

    /// The base at `pps` on the straight line, in logarithms, between the two points around it;
    /// before the first as there, beyond the last as there.
    pub fn at(curve: &[Self], pps: f64) -> Option<Self> {
        let above = curve.iter().position(|p| p.pps >= pps);
        let (low, high) = match above {
            Some(0) => return curve.first().map(|p| Self { pps, ..*p }),
            None => return curve.last().map(|p| Self { pps, ..*p }),
            Some(n) => (curve[n - 1], curve[n]),
        };
        let share = (pps / low.pps).ln() / (high.pps / low.pps).ln();
        let between =
            |a: f64, b: f64| if a > 0.0 && b > 0.0 { a * (b / a).powf(share) } else { a + (b - a) * share };
        Some(Self {
            pps,
            ns: between(low.ns, high.ns),
            calls: between(low.calls, high.calls),
            burst: between(low.burst, high.burst),
            within: low.within.zip(high.within).map(|(a, b)| between(a, b)),
        })
    }
}

/// Calls and wakings for a packet that meets no other: a read and a send.
pub(crate) const ALONE: f64 = 2.0;

impl Point {
    /// Share of the packets that share their calls with others.
    pub fn gathered(&self) -> f64 {
        (1.0 - self.calls / ALONE).clamp(0.0, 1.0)
    }
}

impl PathCost {
    /// Calls and wakings for a packet of a full batch.
    pub fn full_calls(&self) -> f64 {
        self.packets.last().map_or(0.0, |p| p.calls)
    }

    /// The curve that a mix is on.
    pub fn curve(&self, mix: &Mix) -> &[Point] {
        if mix.merged { &self.merged } else { &self.packets }
    }

    /// The base for a mix whose crypto takes so long for a packet by itself, nanoseconds. In bursts
    /// of which so many share a call, these calls are as at the rate where so many are found at
    /// once, and the base is such a part of that of evenly spaced packets, but no less than there.
    pub fn base(
        &self,
        mix: &Mix,
        pps: f64,
        crypto: f64,
        (sharing, ratio): (f64, f64),
    ) -> Result<Point, LabError> {
        let mut curve = self.curve(mix).to_vec();
        if let (Some(gathering), Some(end), false) = (&self.gathering, curve.last_mut(), mix.merged) {
            *end = gathering.end(end, crypto);
        }
        let found = Point::at(&curve, pps).map(|at| {
            let shared = Point::sharing(&curve, sharing).filter(|shared| shared.burst > at.burst);
            let of = |shared: Point| Point { pps, ns: (at.ns * ratio).max(shared.ns).min(at.ns), ..shared };
            shared.map_or(at, of)
        });
        found.ok_or_else(|| {
            LabError::Usage(format!(
                "the model has no measurement of mix {} on path {}; calibrate again",
                mix.name,
                self.path.name()
            ))
        })
    }
}

/// CPU time that IKE takes of one gateway: a daemon, over its sockets.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Handshake {
    /// Methods.
    pub what: String,
    /// Bringing an IKE_SA with one CHILD_SA up, microseconds.
    pub setup_us: f64,
    /// Rekeying a CHILD_SA, microseconds.
    pub rekey_us: f64,
    /// Half of what rounds of rekeyings differ by; absent in older models, whose figures are of
    /// endpoints in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekey_within_us: Option<f64>,
    /// How many were measured.
    pub samples: usize,
}

/// Memory and CPU time that one more tunnel takes of a gateway that has many.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct TunnelCost {
    /// Numbers of tunnels that were measured: few, and many.
    pub tunnels: [u32; 2],
    /// Memory, KiB: its configuration, its IKE_SA and its pair of SAs.
    pub kib: f64,
    /// Memory of a gateway without any tunnel, KiB.
    pub base_kib: f64,
    /// Processor time until it is up, start, configuration, routes and policies included,
    /// microseconds.
    pub setup_us: f64,
    /// Half of its interval, by what two bring-ups of few tunnels differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_within_us: Option<f64>,
}

/// Cost of plain forwarding.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Forwarding {
    /// Packets a second at which it was measured.
    pub pps: f64,
    /// Busy time of the machine for a packet that goes from host to host, nanoseconds.
    pub hosts_ns: f64,
    /// Cost that each forwarding box between the hosts adds.
    pub ns: f64,
    /// How far the middle half of what single loads say of it lies apart, nanoseconds.
    pub spread_ns: f64,
}

/// Cost that many SAs add to a packet.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct ManySas {
    /// SAs in turn at random.
    pub sas: u32,
    /// Nanoseconds more per packet and direction than with one.
    pub added: f64,
    /// Half of its interval, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
}

/// One measurement that the model was fitted to.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The suite.
    #[schemars(length(min = 1))]
    pub suite: String,
    /// How ESP was carried.
    pub path: Path,
    /// The sizes.
    pub mix: Mix,
    /// Flows, where they were not those of every other load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// Packets that came at once, where they were not evenly spaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Packets a second that were offered; absent where the rate was the highest that one gateway
    /// carries.
    pub offered: Option<f64>,
    /// The way through one gateway that was measured by itself, beside the tester; absent where
    /// there were two gateways in a line.
    pub alone: Option<Way>,
    /// Measurements, one for each repeat.
    #[schemars(length(min = 1, max = 1_000))]
    pub seen: Vec<Seen>,
}

impl Cell {
    /// The median over the repeats of what one direction cost, nanoseconds per packet, and how far
    /// the repeats lie apart as a share of it.
    pub fn measured(&self, way: Way) -> Option<(f64, f64)> {
        let s = crate::stats::Summary::of(&self.values(way, |s| s.ns))?;
        Some((s.median, s.relative_range()))
    }

    /// Packets a second that it handled of one direction, over the repeats.
    pub fn rates(&self, way: Way) -> Option<crate::stats::Summary> {
        crate::stats::Summary::of(&self.values(way, |s| s.pps))
    }

    /// Whether it says something of that way.
    pub fn is_of(&self, way: Way) -> bool {
        self.alone.is_none_or(|alone| alone == way)
    }

    fn values(&self, way: Way, of: impl Fn(&Side) -> f64) -> Vec<f64> {
        if self.is_of(way) { self.seen.iter().map(|s| of(s.side(way))).collect() } else { Vec::new() }
    }

    /// The medians over the repeats of one direction; `None` where it says nothing of that.
    pub fn median(&self, way: Way) -> Option<Side> {
        let median = |of: fn(&Side) -> f64| crate::stats::median(&self.values(way, of));
        Some(Side {
            pps: median(|s| s.pps)?,
            ns: median(|s| s.ns)?,
            calls: median(|s| s.calls)?,
            burst: median(|s| s.burst)?,
        })
    }
}

/// Another system than IronSwan.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name in the laboratory.
    #[schemars(length(min = 1))]
    pub name: String,
    /// As it says.
    pub version: String,
}

/// A model: the measurements of one machine, and the costs that follow from them.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`MODEL_SCHEMA`].
    #[schemars(extend("const" = MODEL_SCHEMA))]
    pub schema: String,
    /// The program that measured.
    pub program: crate::record::Program,
    /// When, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub made: String,
    /// How long it took, seconds.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Machine on which the measurements were made.
    pub machine: crate::machine::Fingerprint,
    /// The system that was measured where it is not IronSwan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<System>,
    /// Suites, alone; of another system with no time of their own, as it is in the paths'.
    #[schemars(length(min = 1))]
    pub suites: Vec<SuiteCost>,
    /// Paths: all of IronSwan's, or those that another system has.
    #[schemars(length(min = 2, max = 4))]
    pub paths: Vec<PathCost>,
    /// Forwarding without a tunnel.
    pub forwarding: Forwarding,
    /// IKE.
    pub handshake: Handshake,
    /// One more tunnel.
    pub tunnel: TunnelCost,
    /// Many SAs, in the order of their number.
    #[schemars(length(min = 1))]
    pub many_sas: Vec<ManySas>,
    /// Many flows, in the order of their number; none where they were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowCost>,
    /// Bursts, in the order of their length; none where they were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bursts: Vec<BurstShare>,
    /// One gateway alone with one worker and with two; none where they were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerCost>,
    /// Loads to which the paths were fitted.
    #[schemars(length(min = 1, max = 2_000))]
    pub cells: Vec<Cell>,
    /// Loads that were kept out of the fit, to be predicted.
    pub held_back: Vec<String>,
    /// State of the machine meanwhile; absent in older models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calm: Option<Calm>,
    /// Its answers beside those of the calibration before it; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
    /// Doubts.
    pub warnings: Vec<crate::record::WarningRecord>,
}

impl Model {
    /// How far it can be trusted.
    pub fn trust(&self) -> Trust {
        Trust::of(&self.made, self.calm.as_ref(), self.agreement.as_ref())
    }

    /// The machine's processors, and what a second worker adds.
    pub fn processors(&self) -> Measured<'_> {
        Measured { cpus: self.machine.cpus, workers: &self.workers }
    }

    /// Class of the model's machine.
    pub fn class(&self) -> Class {
        let has = |flag: &str| self.machine.cpu_flags.iter().any(|f| f == flag);
        match (has("vaes"), has("aes")) {
            (true, _) => Class::Vaes,
            (_, true) => Class::AesNi,
            _ => Class::WithoutAes,
        }
    }

    /// The suite of that name; an error names those that were measured.
    pub fn suite(&self, name: &str) -> Result<&SuiteCost, LabError> {
        self.suites.iter().find(|s| s.suite == name).ok_or_else(|| {
            let known: Vec<&str> = self.suites.iter().map(|s| s.suite.as_str()).collect();
            LabError::Usage(format!(
                "the model has no suite `{name}`: nothing can be said of what was not measured; it has {}. `ironswan plan \
                 --calibrate{} --suite {name}` measures it",
                known.join(", "),
                self.system.as_ref().map(|s| format!(" --dut {}", s.name)).unwrap_or_default()
            ))
        })
    }

    /// The path's cost in that direction.
    pub fn path(&self, path: Path, way: Way) -> Result<&PathCost, LabError> {
        self.paths.iter().find(|p| p.path == path && p.way == way).ok_or_else(|| {
            LabError::Usage(match &self.system {
                Some(system) => format!(
                    "the model of {} has no path {}: it has no such encapsulation here; ask with --encap {}",
                    system.name,
                    path.name(),
                    if path == Path::Raw { "yes" } else { "no" }
                ),
                None => format!(
                    "the model has no cost for path {}, direction {}; calibrate again",
                    path.name(),
                    way.name()
                ),
            })
        })
    }

    /// The share of the processors that are busy when one gateway alone carries as much as it can
    /// without loss: they are waited for before they are full. That of the fullest load, since a
    /// search that a disturbance ended early shows less.
    pub fn busy_at_most(&self, path: Path, way: Way) -> f64 {
        // Of another system, over a whole line.
        let line = |c: &Cell| c.alone.is_none() && c.offered.is_none() && !c.mix.merged;
        let own = self.cells.iter().filter(|c| c.path == path && (c.alone == Some(way) || line(c)));
        let capacity = self.machine.cpus.max(1) as f64 * 1e9;
        let busy = own.flat_map(|c| &c.seen).map(|s| s.machine_ns * s.packets / s.seconds / capacity);
        busy.filter(|share| share.is_normal())
            .reduce(f64::max)
            .map_or(1.0, |share| share.clamp(f64::MIN_POSITIVE, 1.0))
    }
}

/// Flows of a load of the calibration: enough that no two neighbours belong to one flow, so that
/// nothing is merged on the way.
pub const FLOWS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_between_two_rates_lies_on_a_line_of_logarithms_and_outside_it_stays() {
        let point = |pps, ns| Point { pps, ns, calls: 1.0, burst: 1.0, within: None };
        let curve = [
            point(1_000.0, 8_000.0),
            point(4_000.0, 2_000.0),
            point(4_000.0, 1_900.0),
            point(8_000.0, 1_000.0),
        ];
        let at = |pps| Point::at(&curve, pps).expect("a point").ns;
        assert_eq!((at(1.0), at(1_000.0), at(1e9)), (8_000.0, 8_000.0, 1_000.0));
        // Twice the rate, half the base: as much processor time at every rate between.
        assert!((at(2_000.0) - 4_000.0).abs() < 1e-6 && at(4_000.0) == 2_000.0);
        assert_eq!(Point::at(&[], 1.0), None);
    }
}
