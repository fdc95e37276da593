//! Answers from a model: what a link needs, what a machine carries. Pure.
//!
//! A gateway's processors have `cores` seconds in a second. Of these a firewall and everything else
//! leaves a share, and a safety factor is kept: `cores x share / safety` is what IPsec may use.

use schemars::JsonSchema;
use serde::Serialize;

use super::mix::Mix;
use super::model::{Cost, Model, Path, Way};
pub use super::schemas::ANSWER_SCHEMA;
use super::suite::SuiteCost;
use crate::error::LabError;
use crate::machine::Fingerprint;
use crate::schema::{TIME, never_negative};

/// Preamble and gap between frames, bytes; with [`super::mix::ETHERNET`], what a frame takes on a
/// wire beside its packet.
const GAP: f64 = 20.0;
/// Each tunnel's share of rekeyings is sealed and opened by the gateway as well, which is nothing
/// beside the key exchange.
const REKEY_LIMIT: f64 = 0.1;
/// Rates between which an answer is looked for, packets per second.
const HIGHEST: f64 = 1e12;
const LOWEST: f64 = 1e-3;
/// From one to the next.
const STEP: f64 = 1.01;

/// A question to the planner.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Suite of ESP.
    pub suite: String,
    /// How ESP is carried.
    pub path: Path,
    /// The packets.
    pub mix: Mix,
    /// Tunnels.
    pub tunnels: u32,
    /// Seconds between two rekeyings of a tunnel.
    pub rekey: f64,
    /// All tunnels come up within so many seconds.
    pub storm: Option<f64>,
    /// Share of the processors that a firewall and all else leave.
    pub share: f64,
    /// Safety factor: the machine has this many times the capacity that is needed.
    pub safety: f64,
    /// Processors; those of the calibrated machine when absent.
    pub cores: Option<f64>,
    /// Clock, GHz; that of the calibrated machine when absent.
    pub ghz: Option<f64>,
}

impl Ask {
    /// A suite and a mix on a path, with the usual rest: one tunnel, rekeyed every hour, half of
    /// the processors, safety 1.5.
    pub fn of(suite: &str, path: Path, mix: Mix) -> Self {
        let suite = suite.to_string();
        Self {
            suite,
            path,
            mix,
            tunnels: 1,
            rekey: 3_600.0,
            storm: None,
            share: 0.5,
            safety: 1.5,
            cores: None,
            ghz: None,
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("--share is the part of the processors that is left for IPsec: above 0, at most 1");
        }
        if !(1.0..=100.0).contains(&self.safety) {
            return wrong("--safety is a factor from 1 (none) to 100");
        }
        if !(1..=1_000_000).contains(&self.tunnels) {
            return wrong("--tunnels is 1 to 1,000,000");
        }
        if !(self.rekey >= 1.0 && self.rekey.is_finite()) {
            return wrong("--rekey is at least a second");
        }
        if self.storm.is_some_and(|s| !(s > 0.0 && s.is_finite())) {
            return wrong("--setup-storm is a number of seconds above 0");
        }
        if self.cores.is_some_and(|c| !(c > 0.0 && c <= 100_000.0)) {
            return wrong("--cores is a number above 0");
        }
        if self.ghz.is_some_and(|g| !(0.1..=20.0).contains(&g)) {
            return wrong("--ghz is a clock from 0.1 to 20 GHz");
        }
        Ok(())
    }

    /// Nanoseconds here are so many there, by the clock alone.
    fn slower(&self, model: &Model) -> f64 {
        match (self.ghz, model.machine.mhz) {
            (Some(there), Some(here)) => here / 1e3 / there,
            _ => 1.0,
        }
    }
}

/// Processors that key exchange takes.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Keys {
    /// Rekeyings, all the time.
    pub rekey_cores: f64,
    /// Setting all tunnels up in the time asked for, while it lasts.
    pub storm_cores: f64,
}

/// Cost of a packet at a rate, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Packet {
    /// Sealing side.
    pub out: Cost,
    /// Opening side.
    pub into: Cost,
    /// Forwarding, of one direction.
    pub forwarding_ns: f64,
    /// Calls and wakings per packet, sealing and opening.
    pub calls: [f64; 2],
    /// Packets that share a call of the crypto engine, sealing and opening.
    pub burst: [f64; 2],
}

impl Packet {
    /// Of one packet each way.
    pub fn both(&self) -> f64 {
        self.out.total() + self.into.total() + 2.0 * self.forwarding_ns
    }
}

/// Answer: the needs of a link.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Need {
    /// The link, 10^6 bits per second each way.
    pub link_mbps: f64,
    /// Packets a second each way when it is full.
    pub pps: f64,
    /// Bits of inner IP packets each way, 10^6 per second.
    pub inner_mbps: f64,
    /// Mean bytes of an outer packet on the link, with Ethernet framing and gap.
    pub outer_bytes: f64,
    /// Cost of a packet.
    pub packet: Packet,
    /// Cost of key exchange.
    pub keys: Keys,
    /// Processors for the packets, without share and safety.
    pub packet_cores: f64,
    /// Processors in all, without share and safety.
    pub bare_cores: f64,
    /// Processors needed, with share and safety.
    pub cores: f64,
    /// Cycles per byte of inner packets, both directions together, each byte once in each
    /// direction.
    pub cycles_per_byte: Option<f64>,
    /// MHz for each Mbit/s of the link (each way), without share and safety.
    pub mhz_per_mbps: Option<f64>,
    /// The same with them.
    pub mhz_per_mbps_safe: Option<f64>,
    /// The largest part of the cost, and its share.
    pub dominant: (String, f64),
}

/// Names the limit on the number of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Rekeying takes a tenth of what IPsec may use.
    Processors,
    /// There is no memory for more.
    Memory,
}

impl Limit {
    /// `processors`, `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Memory => "memory",
        }
    }
}

/// Rates that a machine carries with a share of its processors.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Carries {
    /// The share of processors and memory that IPsec has.
    pub share: f64,
    /// Packets a second each way, both ways at once.
    pub pps: f64,
    /// The same in bits of inner packets, 10^6 per second each way.
    pub mbps: f64,
    /// One way only, sealing: 10^6 bits per second.
    pub out_mbps: f64,
    /// One way only, opening.
    pub in_mbps: f64,
    /// Packets a second of the two.
    pub one_way_pps: [f64; 2],
    /// Tunnels: the smaller of the two below.
    pub tunnels: f64,
    /// Which of the two that is.
    pub tunnels_limit: Limit,
    /// Tunnels whose rekeying takes a tenth of what IPsec may use.
    pub tunnels_of_processors: f64,
    /// Tunnels for which the share of the memory is enough; unknown where the memory is.
    pub tunnels_of_memory: Option<f64>,
    /// Cost of a packet at that rate.
    pub packet: Packet,
}

/// Answer: the rates that a machine carries of a mix with a suite.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Carried {
    /// The suite.
    pub suite: String,
    /// The mix.
    pub mix: String,
    /// IPsec has the machine for itself.
    pub whole: Carries,
    /// A firewall and all else leave it the share that was asked about.
    pub shared: Carries,
}

impl Carried {
    /// Both.
    pub fn both(&self) -> [&Carries; 2] {
        [&self.whole, &self.shared]
    }
}

/// An answer as a JSON document.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["carries"] }, { "required": ["needs"] }]))]
pub struct Document {
    /// [`ANSWER_SCHEMA`].
    #[schemars(extend("const" = ANSWER_SCHEMA))]
    pub schema: String,
    /// The model that answers.
    pub model: Source,
    /// Differences between the machine of the model and this one.
    pub another_machine: Vec<String>,
    /// Doubts about the model.
    pub warnings: Vec<String>,
    /// Questions that lie outside of what was measured.
    pub extrapolation: Vec<String>,
    /// The question.
    pub asked: Asked,
    /// The answer for people, by line.
    pub lines: Vec<String>,
    /// Rates that the machine carries, where they were asked for.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries: Option<Vec<Carried>>,
    /// Needs of links, where they were asked for.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<Needed>>,
}

/// The model of an answer.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Source {
    /// When it was made, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub made: String,
    /// Version of the program that made it.
    #[schemars(length(min = 1))]
    pub version: String,
    /// Its machine.
    pub machine: Fingerprint,
}

/// The question of an answer, but for suites, mixes and links.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Asked {
    /// How ESP is carried.
    pub path: Path,
    /// Tunnels.
    #[schemars(range(min = 1))]
    pub tunnels: u32,
    /// Seconds between two rekeyings of a tunnel.
    pub rekey_seconds: f64,
    /// All tunnels come up within so many seconds.
    pub setup_storm_seconds: Option<f64>,
    /// Share of the processors that a firewall and all else leave.
    pub share: f64,
    /// Safety factor.
    pub safety: f64,
    /// Processors; those of the calibrated machine when absent.
    pub cores: Option<f64>,
    /// Clock, GHz; that of the calibrated machine when absent.
    pub ghz: Option<f64>,
}

impl From<&Ask> for Asked {
    fn from(ask: &Ask) -> Self {
        Self {
            path: ask.path,
            tunnels: ask.tunnels,
            rekey_seconds: ask.rekey,
            setup_storm_seconds: ask.storm,
            share: ask.share,
            safety: ask.safety,
            cores: ask.cores,
            ghz: ask.ghz,
        }
    }
}

/// Needs of one link with a suite and a mix.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Needed {
    /// Name or rate of the link.
    #[schemars(length(min = 1))]
    pub link: String,
    /// The suite.
    #[schemars(length(min = 1))]
    pub suite: String,
    /// The packets.
    pub mix: Mix,
    /// The answer.
    pub need: Need,
}

/// Processors that `model`'s machine or the one asked about has.
pub fn cores(model: &Model, ask: &Ask) -> f64 {
    ask.cores.unwrap_or(model.machine.cpus as f64)
}

/// Tunnels that the same share of the memory holds as of the processors.
pub fn tunnels_of_memory(model: &Model, ask: &Ask) -> Option<f64> {
    let kib = model.machine.memory_kib? as f64 * ask.share - model.tunnel.base_kib;
    Some((kib / model.tunnel.kib.max(f64::MIN_POSITIVE)).max(0.0).floor())
}

/// How many tunnels a share of the machine holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tunnels {
    /// The answer.
    pub most: f64,
    /// Names the limit.
    pub limit: Limit,
    /// By the time that rekeying takes.
    pub of_processors: f64,
    /// By memory, where that is known.
    pub of_memory: Option<f64>,
}

/// How many there may be: whatever is short first.
pub fn tunnels(model: &Model, ask: &Ask) -> Tunnels {
    let one = model.handshake.rekey_us * ask.slower(model) / ask.rekey / 1e6;
    let budget = cores(model, ask) * ask.share / ask.safety;
    let of_processors = (budget * REKEY_LIMIT / one.max(f64::MIN_POSITIVE)).floor();
    let of_memory = tunnels_of_memory(model, ask);
    let (most, limit) = match of_memory.filter(|m| *m < of_processors) {
        Some(most) => (most, Limit::Memory),
        None => (of_processors, Limit::Processors),
    };
    Tunnels { most, limit, of_processors, of_memory }
}

fn packet(model: &Model, ask: &Ask, suite: &SuiteCost, pps: f64) -> Result<Packet, LabError> {
    let slower = ask.slower(model);
    let scale = |c: Cost| Cost {
        base: c.base * slower,
        bytes: c.bytes * slower,
        crypto: c.crypto * slower,
        sas: c.sas * slower,
    };
    let cost = |way| model.cost(suite, ask.path, way, (&ask.mix, pps), f64::from(ask.tunnels)).map(scale);
    let at = |way| {
        let alone = suite.of_mix(way, &ask.mix, 1.0);
        model.path(ask.path, way)?.base(&ask.mix, pps, alone)
    };
    let (out, into) = (at(Way::Out)?, at(Way::In)?);
    Ok(Packet {
        out: cost(Way::Out)?,
        into: cost(Way::In)?,
        forwarding_ns: model.forwarding.ns * slower,
        calls: [out.calls, into.calls],
        burst: [out.burst, into.burst],
    })
}

fn keys(model: &Model, ask: &Ask) -> Keys {
    let each = ask.slower(model) * f64::from(ask.tunnels) / 1e6;
    Keys {
        rekey_cores: each * model.handshake.rekey_us / ask.rekey,
        storm_cores: ask.storm.map_or(0.0, |s| each * model.tunnel.setup_us / s),
    }
}

/// Computes the needs of a link of `bits` per second each way when it is full of the mix both ways.
pub fn need(model: &Model, ask: &Ask, bits: f64) -> Result<Need, LabError> {
    ask.check()?;
    let suite = model.suite(&ask.suite)?;
    let outer = |bytes: f64| suite.outer(ask.path, bytes) + f64::from(super::mix::ETHERNET) + GAP;
    let outer_bytes: f64 = ask.mix.parts.iter().map(|p| p.share * outer(p.bytes())).sum();
    let pps = bits / 8.0 / outer_bytes;
    // Packets gather while one processor is busy with those that it has found.
    let packet = packet(model, ask, suite, pps)?;
    let keys = keys(model, ask);
    let packet_cores = pps * packet.both() / 1e9;
    let bare_cores = packet_cores + keys.rekey_cores + keys.storm_cores;
    let with = ask.safety / ask.share;
    let mhz = ask.ghz.map(|g| g * 1e3).or(model.machine.mhz);
    let both = packet.out.plus(&packet.into);
    let parts = both.parts().into_iter().chain([("forwarding", 2.0 * packet.forwarding_ns)]);
    let parts = parts.map(|(name, ns)| (name, ns * pps / 1e9));
    let all = parts.chain([("rekeying", keys.rekey_cores), ("the setup storm", keys.storm_cores)]);
    let dominant = all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nothing", 0.0));
    Ok(Need {
        link_mbps: bits / 1e6,
        pps,
        inner_mbps: pps * ask.mix.bytes() * 8.0 / 1e6,
        outer_bytes,
        packet,
        keys,
        packet_cores,
        bare_cores,
        cores: bare_cores * with,
        cycles_per_byte: mhz.map(|mhz| packet.both() / 2.0 / ask.mix.bytes() * mhz / 1e3),
        mhz_per_mbps: mhz.map(|mhz| bare_cores * mhz / (bits / 1e6)),
        mhz_per_mbps_safe: mhz.map(|mhz| bare_cores * with * mhz / (bits / 1e6)),
        dominant: (dominant.0.into(), dominant.1 / bare_cores.max(f64::MIN_POSITIVE)),
    })
}

/// Computes the rate of the mix that the machine carries, by itself and with the share that is
/// asked about.
pub fn carries(model: &Model, ask: &Ask) -> Result<Carried, LabError> {
    ask.check()?;
    let whole = Ask { share: 1.0, ..ask.clone() };
    Ok(Carried {
        suite: ask.suite.clone(),
        mix: ask.mix.name.clone(),
        whole: with_share(model, &whole)?,
        shared: with_share(model, ask)?,
    })
}

fn with_share(model: &Model, ask: &Ask) -> Result<Carries, LabError> {
    let suite = model.suite(&ask.suite)?;
    let keys = keys(model, ask);
    let budget = cores(model, ask) * ask.share / ask.safety;
    let left = budget - keys.rekey_cores;
    if left <= 0.0 {
        return Err(LabError::Usage(format!(
            "rekeying {} tunnels every {} s alone takes {:.2} processors, and IPsec may use {budget:.2}: rekey less often, or \
             have fewer tunnels",
            ask.tunnels, ask.rekey, keys.rekey_cores
        )));
    }
    let at = |pps: f64| packet(model, ask, suite, pps);
    let both = highest(left, |pps| Ok(at(pps)?.both()))?;
    let out = highest(left, |pps| at(pps).map(|p| p.out.total() + p.forwarding_ns))?;
    let into = highest(left, |pps| at(pps).map(|p| p.into.total() + p.forwarding_ns))?;
    let mbps = |pps: f64| pps * ask.mix.bytes() * 8.0 / 1e6;
    let tunnels = tunnels(model, ask);
    Ok(Carries {
        share: ask.share,
        pps: both,
        mbps: mbps(both),
        out_mbps: mbps(out),
        in_mbps: mbps(into),
        one_way_pps: [out, into],
        tunnels: tunnels.most,
        tunnels_limit: tunnels.limit,
        tunnels_of_processors: tunnels.of_processors,
        tunnels_of_memory: tunnels.of_memory,
        packet: at(both)?,
    })
}

/// The highest rate whose packets fit into `budget` processors. Packets that gather may take less
/// time in all than fewer that do not, so it is looked for from above: in steps of a hundredth, and
/// by halving within the step.
pub(super) fn highest(budget: f64, ns: impl Fn(f64) -> Result<f64, LabError>) -> Result<f64, LabError> {
    let fits = |pps: f64| Ok::<_, LabError>(pps * ns(pps)? / 1e9 <= budget);
    let mut high = HIGHEST;
    let mut low = high / STEP;
    while low > LOWEST && !fits(low)? {
        high = low;
        low /= STEP;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::super::mix::LARGEST;
    use super::super::sample;
    use super::*;

    fn ask(mix: Mix) -> Ask {
        Ask { share: 1.0, safety: 1.0, ..Ask::of("aes128gcm16", Path::Udp, mix) }
    }

    #[test]
    fn a_link_of_a_known_machine_needs_what_the_formula_says() {
        let model = sample::model();
        let n = need(&model, &ask(Mix::frames(LARGEST)), 1e9).expect("an answer");
        // 1,400 bytes and a trailer of 2, in whole words: 1,404; SPI to ICV 32, IP 20, UDP 8;
        // Ethernet 18 and 20.
        assert!((n.outer_bytes - (1_404.0 + 32.0 + 28.0 + 38.0)).abs() < 1e-9, "{n:?}");
        let pps = 1e9 / 8.0 / n.outer_bytes;
        // Between two points of the curve.
        assert!(pps < 90_000.0 && pps > 10_000.0);
        let (low, high) = (900.0f64 + 3_000.0, 900.0 + 600.0);
        let base = low * (high / low).powf((pps / 10_000.0).ln() / 9.0f64.ln());
        let ns = base + 350.0 + 40.0 + 140.4;
        assert!((n.packet.out.total() - ns).abs() < 1e-6, "{n:?}");
        let cores = pps * 2.0 * (ns + 700.0) / 1e9 + 100e-6 / 3_600.0;
        assert!((n.bare_cores / cores - 1.0).abs() < 1e-9 && n.cores == n.bare_cores, "{n:?}");
        assert!((n.mhz_per_mbps.expect("a clock") - cores * 2_000.0 / 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn safety_and_share_multiply() {
        let model = sample::model();
        let plain = need(&model, &ask(Mix::imix()), 1e9).expect("an answer");
        let careful = Ask { share: 0.5, safety: 1.5, ..ask(Mix::imix()) };
        let careful = need(&model, &careful, 1e9).expect("an answer");
        assert!((careful.cores / plain.cores - 3.0).abs() < 1e-9);
        assert_eq!(careful.bare_cores, plain.bare_cores);
    }

    #[test]
    fn more_never_needs_less() {
        let model = sample::model();
        let cores = |a: &Ask, bits: f64| need(&model, a, bits).expect("an answer").cores;
        for mix in [Mix::frames(64), Mix::imix().shuffled(), Mix::frames(LARGEST), Mix::tcp()] {
            let base = ask(mix);
            let mut before = 0.0;
            for bits in (0..80).map(|i| 1e4 * 1.3f64.powi(i)) {
                let now = cores(&base, bits);
                assert!(now > before, "{bits}: {now} after {before}");
                before = now;
            }
            let more = |change: fn(&mut Ask)| {
                let mut a = base.clone();
                change(&mut a);
                cores(&a, 1e9) > cores(&base, 1e9)
            };
            assert!(more(|a| a.tunnels = 5_000) && more(|a| a.rekey = 60.0) && more(|a| a.storm = Some(0.1)));
            assert!(more(|a| a.ghz = Some(1.0)) && more(|a| a.suite = "3des-sha1".into()));
        }
        // Smaller packets: more of them on the same link.
        assert!(cores(&ask(Mix::frames(64)), 1e9) > cores(&ask(Mix::frames(LARGEST)), 1e9));
    }

    #[test]
    fn what_a_machine_carries_fills_it() {
        let model = sample::model();
        for mix in [Mix::frames(64), Mix::imix(), Mix::tcp()] {
            let a = Ask { share: 0.5, safety: 1.5, ..ask(mix) };
            let Carried { whole, shared: c, .. } = carries(&model, &a).expect("an answer");
            let used = whole.pps * whole.packet.both() / 1e9;
            assert!((used / (2.0 / 1.5) - 1.0).abs() < 1e-3 && whole.share == 1.0, "{used}");
            let used = c.pps * c.packet.both() / 1e9;
            assert!((used / (2.0 * 0.5 / 1.5) - 1.0).abs() < 1e-3, "{used}");
            // One way carries more than that, and no more than twice as much as the cheaper half
            // would allow.
            assert!(c.one_way_pps.iter().all(|p| *p > c.pps), "{c:?}");
            // 24 GB: half of it, less 10 MB, by 25 KiB.
            let kib = 12_000_000.0 - 10_000.0;
            assert_eq!(c.tunnels_of_memory, Some(kib / 25.0));
            let twice = Ask { cores: Some(4.0), ..a };
            assert!(carries(&model, &twice).expect("an answer").shared.pps > c.pps * 1.9);
        }
    }

    #[test]
    fn tunnels_are_as_many_as_whatever_is_short_first_allows() {
        let model = sample::model();
        // A tenth of 2 processors / 1.5 by 100 us; 24 GB less 10 MB by 25 KiB. The share halves the
        // first, and about the second.
        let of = |rekey, share| tunnels(&model, &Ask { rekey, share, safety: 1.5, ..ask(Mix::imix()) });
        let (hour, minute) = (of(3_600.0, 1.0), of(60.0, 1.0));
        assert_eq!((hour.of_processors, hour.of_memory), (4_800_000.0, Some(959_600.0)));
        assert_eq!((hour.most, hour.limit), (959_600.0, Limit::Memory));
        assert_eq!((minute.most, minute.limit), (80_000.0, Limit::Processors));
        let half = of(3_600.0, 0.5);
        assert_eq!((half.most, half.limit, half.of_processors), (479_600.0, Limit::Memory, 2_400_000.0));
        let mut unknown = model.clone();
        unknown.machine.memory_kib = None;
        let found = tunnels(&unknown, &Ask { safety: 1.5, ..ask(Mix::imix()) });
        assert_eq!((found.most, found.limit, found.of_memory), (4_800_000.0, Limit::Processors, None));
    }

    #[test]
    fn the_highest_rate_is_found_where_a_lower_one_takes_more() {
        // 0.5 processors at 60,000 packets a second, 0.3 at 100,000, from there 3 us each.
        let ns = |pps: f64| Ok(if pps < 100_000.0 { 5e8 / pps } else { 3_000.0 });
        let found = highest(0.45, ns).expect("a rate");
        assert!((found - 150_000.0).abs() < 1.0, "{found}");
        let none = highest(1e-9, |_| Ok(1e12)).expect("a rate");
        assert!(none < 0.01, "{none}");
    }

    #[test]
    fn questions_without_sense_are_refused() {
        let model = sample::model();
        for change in [
            |a: &mut Ask| a.share = 0.0,
            |a: &mut Ask| a.share = 1.1,
            |a: &mut Ask| a.safety = 0.5,
            |a: &mut Ask| a.safety = f64::NAN,
            |a: &mut Ask| a.tunnels = 0,
            |a: &mut Ask| a.rekey = 0.0,
            |a: &mut Ask| a.storm = Some(0.0),
            |a: &mut Ask| a.cores = Some(0.0),
            |a: &mut Ask| a.ghz = Some(1000.0),
            |a: &mut Ask| a.suite = "rot13".into(),
        ] {
            let mut a = ask(Mix::imix());
            change(&mut a);
            assert!(matches!(need(&model, &a, 1e9), Err(LabError::Usage(_))), "{a:?}");
            assert!(matches!(carries(&model, &a), Err(LabError::Usage(_))), "{a:?}");
        }
        // Rekeyings take all of the processors.
        let a = Ask { tunnels: 1_000_000, rekey: 1.0, ..ask(Mix::imix()) };
        assert!(carries(&model, &a).is_err_and(|e| e.to_string().contains("rekey less often")));
    }
}
