//! Answers from a model: what a link needs, what a machine carries. Pure.
//!
//! The question is capacity. A loaded gateway works in batches, so a packet costs what it cost at
//! the highest rate without loss, and not what a lone packet costs:
//!
//! ```text
//! highest rate  = processors x share of them that can be busy without loss / cost at saturation
//! enough, when    highest rate >= load x safety / share
//! ```
//! Processors are those of the machine that was measured; more or fewer are worth what one worker
//! and two were seen to carry. Safety and share multiply the load. How busy the machine is at the
//! load itself, where packets gather less, is a second figure.

use schemars::JsonSchema;
use serde::Serialize;

use super::ask::{Ask, Demand};
use super::calm::Trust;
use super::cost::{Cost, Widths, together};
use super::model::{Model, Way};
use super::price::Traffic;
use super::suite::SuiteCost;
use super::workers::Gain;
use crate::error::LabError;
use crate::schema::never_negative;

/// Preamble and gap between frames, bytes; with [`super::mix::ETHERNET`], what a frame takes on a
/// wire beside its packet.
const GAP: f64 = 20.0;
/// An IPv6 header is longer than one of IPv4 by so many bytes.
const IPV6_MORE: f64 = 20.0;
/// Share of what IPsec may use that rekeying may take, where tunnels are counted.
const REKEY_LIMIT: f64 = 0.1;
/// No answer is surer than this: cells of the same machine differ by as much from day to day.
pub(super) const SUREST: f64 = 0.05;

/// Processors that everything but packets takes.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Keys {
    /// Rekeyings, all the time.
    pub rekey_cores: f64,
    /// Setting all tunnels up in the time asked for, while it lasts.
    pub storm_cores: f64,
    /// NAT keepalives: each costs the way of a received packet, without crypto.
    pub keepalive_cores: f64,
}

impl Keys {
    fn all(&self) -> f64 {
        self.rekey_cores + self.storm_cores + self.keepalive_cores
    }
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
    /// Half of the intervals of the parts, sealing and opening.
    pub within: [Widths; 2],
    /// Half of the interval of forwarding.
    pub forwarding_within: f64,
    /// Calls and wakings per packet, sealing and opening.
    pub calls: [f64; 2],
    /// Packets that share a call of the crypto engine, sealing and opening.
    pub burst: [f64; 2],
}

impl Packet {
    /// Of one packet each way.
    pub fn both(&self) -> f64 {
        self.cores([1e9; 2])
    }

    /// Relative error of the cost of a packet, by the intervals of its parts: of the worse of the
    /// two directions.
    pub fn unsure(&self) -> f64 {
        let of = |cost: &Cost, within: &Widths| {
            let width = together([within.total, Some(self.forwarding_within)]).unwrap_or(0.0);
            width / (cost.total() + self.forwarding_ns).max(f64::MIN_POSITIVE)
        };
        of(&self.out, &self.within[0]).max(of(&self.into, &self.within[1]))
    }

    /// Processors for so many packets a second, sealed and opened.
    pub fn cores(&self, [out, into]: [f64; 2]) -> f64 {
        let each = |pps: f64, cost: &Cost| pps * (cost.total() + self.forwarding_ns) / 1e9;
        each(out, &self.out) + each(into, &self.into)
    }
}

/// Whether a machine is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// By more than the answer is unsure of.
    Enough,
    /// Short by more than that.
    NotEnough,
    /// So near that the model cannot tell, or nobody can trust the model.
    CannotTell,
}

/// Answer: the needs of a link.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Need {
    /// The load that the gateway sends, 10^6 bits per second on the link.
    pub link_mbps: f64,
    /// The load that it receives.
    pub back_mbps: f64,
    /// Packets a second that it seals.
    pub pps: f64,
    /// Packets a second that it opens.
    pub back_pps: f64,
    /// Bits of inner IP packets that it seals, 10^6 per second.
    pub inner_mbps: f64,
    /// Mean bytes of an outer packet on the link, with Ethernet framing and gap.
    pub outer_bytes: f64,
    /// Cost of a packet at saturation.
    pub packet: Packet,
    /// Cost of everything but packets.
    pub keys: Keys,
    /// Processors for the packets at the cost of saturation, without share and safety.
    pub packet_cores: f64,
    /// Processors in all, without share and safety.
    pub bare_cores: f64,
    /// Share of the processors that can be busy while nothing is lost.
    #[schemars(range(max = 1))]
    pub busy_at_most: f64,
    /// Processors of the least machine whose highest rate is above load x safety / share, if every
    /// one carried as much as each of those that were measured.
    pub scaled_cores: f64,
    /// The same by what a second worker adds.
    pub cores: f64,
    /// What it adds; absent where one and two workers were not measured.
    pub gain: Option<Gain>,
    /// Highest rate of the machine that is asked about, over the load.
    pub headroom: f64,
    /// Whether the machine that is asked about is enough.
    pub verdict: Verdict,
    /// Names what it runs out of first.
    pub first: Limit,
    /// Memory that is needed over the share of the machine's; absent where the memory is not known.
    pub memory_used: Option<f64>,
    /// Relative error that the answer may have, by how the model misses its own measurements.
    pub unsure: f64,
    /// Cost of a packet at the load itself.
    pub at_load: Packet,
    /// Processors that are busy at the load itself, without safety and share.
    pub busy_cores: f64,
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

/// Names the limit on load or tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Processor time; for a number of tunnels, rekeying takes a tenth of what IPsec may use.
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
    /// Cost of a packet at saturation.
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

/// Processors that `model`'s machine or the one asked about has.
pub fn cores(model: &Model, ask: &Ask) -> f64 {
    ask.cores.unwrap_or(model.machine.cpus as f64)
}

/// Memory that IPsec may use, KiB.
fn memory(model: &Model, ask: &Ask) -> Option<f64> {
    model.machine.memory_kib.map(|kib| kib as f64 * ask.share)
}

/// Tunnels that the same share of the memory holds as of the processors.
pub(super) fn tunnels_of_memory(model: &Model, ask: &Ask) -> Option<f64> {
    let kib = memory(model, ask)? - model.tunnel.base_kib;
    // Of another system nobody knows.
    (model.tunnel.kib > 0.0).then_some(())?;
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

/// Cost of a packet when so many a second are sealed and opened; at saturation where they are
/// infinitely many.
fn packet(model: &Model, ask: &Ask, suite: &SuiteCost, [out, into]: [f64; 2]) -> Result<Packet, LabError> {
    let slower = ask.slower(model);
    let of = |way, pps: f64| {
        let (sas, flows, burst) = (f64::from(ask.tunnels), ask.flows, f64::from(ask.burst));
        model.price(suite, ask.path, way, Traffic { mix: &ask.mix, pps, sas, flows, burst })
    };
    let (out, into) = (of(Way::Out, out)?, of(Way::In, into)?);
    Ok(Packet {
        out: out.cost.times(slower),
        into: into.cost.times(slower),
        forwarding_ns: model.forwarding.ns * slower,
        within: [out, into].map(|price| price.within.times(slower)),
        forwarding_within: model.forwarding.spread_ns * slower,
        calls: [out, into].map(|price| price.at.calls),
        burst: [out, into].map(|price| price.at.burst),
    })
}

fn saturated(model: &Model, ask: &Ask, suite: &SuiteCost) -> Result<Packet, LabError> {
    packet(model, ask, suite, [f64::INFINITY; 2])
}

fn keys(model: &Model, ask: &Ask, packet: &Packet) -> Keys {
    let each = ask.slower(model) * f64::from(ask.tunnels) / 1e6;
    Keys {
        rekey_cores: each * model.handshake.rekey_us / ask.rekey,
        storm_cores: ask.storm.map_or(0.0, |s| each * model.tunnel.setup_us / s),
        keepalive_cores: ask
            .keepalive
            .map_or(0.0, |s| f64::from(ask.tunnels) / s * (packet.into.bare() + packet.forwarding_ns) / 1e9),
    }
}

/// Half of the interval of what rekeying and setting up take, processors. Keepalives have that of
/// packets.
fn keys_within(model: &Model, ask: &Ask) -> f64 {
    let each = ask.slower(model) * f64::from(ask.tunnels) / 1e6;
    let rekey = each * model.handshake.rekey_within_us.unwrap_or(0.0) / ask.rekey;
    let storm = ask.storm.map_or(0.0, |s| each * model.tunnel.setup_within_us.unwrap_or(0.0) / s);
    rekey.hypot(storm)
}

/// Share of the processors that can be busy while nothing is lost, both ways.
fn busy_at_most(model: &Model, ask: &Ask) -> f64 {
    Way::BOTH.iter().map(|way| model.busy_at_most(ask.path, *way)).fold(1.0, f64::min)
}

/// Relative error that an answer may have. Of the packets it is what the paths' fits miss their own
/// measurements by, the intervals of a packet's cost, or how far repeats or two calibrations lie
/// apart: whichever is most. Keys, and processors that were not measured, add their own intervals.
fn unsure(model: &Model, ask: &Ask, packet: &Packet, keys_share: f64) -> f64 {
    let fits = model.paths.iter().filter(|p| p.path == ask.path).map(|p| p.residual);
    // The median of repeats is known to half of what they differ by.
    let repeats = model.calm.and_then(|c| c.spread).map_or(0.0, |spread| spread / 2.0);
    let whole = [packet.unsure(), model.trust().unsure(), repeats];
    let packets = fits.chain(whole).fold(SUREST, f64::max);
    packets.hypot(keys_share).hypot(model.processors().unsure(cores(model, ask)))
}

/// Computes the needs of a load of the mix.
pub fn need(model: &Model, ask: &Ask, demand: Demand) -> Result<Need, LabError> {
    ask.check()?;
    let suite = model.suite(&ask.suite)?;
    let more = if ask.ipv6 { IPV6_MORE } else { 0.0 };
    let outer = |bytes: f64| suite.outer(ask.path, bytes) + more + f64::from(super::mix::ETHERNET) + GAP;
    let outer_bytes: f64 = ask.mix.parts.iter().map(|p| p.share * outer(p.bytes())).sum();
    let rates = [demand.out, demand.into].map(|bits| bits / 8.0 / outer_bytes);
    let [pps, back_pps] = rates;
    let full = saturated(model, ask, suite)?;
    let at_load = packet(model, ask, suite, rates)?;
    let keys = keys(model, ask, &full);
    let packet_cores = full.cores(rates);
    let bare_cores = packet_cores + keys.all();
    let with = ask.safety / ask.share;
    let busy_at_most = busy_at_most(model, ask);
    let least = bare_cores / busy_at_most;
    let have = model.processors().worth(cores(model, ask));
    let headroom = have / least.max(f64::MIN_POSITIVE);
    let unsure = unsure(model, ask, &full, keys_within(model, ask) / bare_cores.max(f64::MIN_POSITIVE));
    let needs_kib = model.tunnel.base_kib + f64::from(ask.tunnels) * model.tunnel.kib;
    let known = |kib: &f64| *kib > 0.0 && model.tunnel.kib > 0.0;
    let memory_used = memory(model, ask).filter(known).map(|kib| needs_kib / kib);
    let used = least * with / have;
    let first = if memory_used.is_some_and(|m| m > used) { Limit::Memory } else { Limit::Processors };
    let verdict = match memory_used {
        Some(memory) if memory > 1.0 => Verdict::NotEnough,
        _ if matches!(model.trust(), Trust::None(_)) => Verdict::CannotTell,
        _ if used * (1.0 + unsure) <= 1.0 => Verdict::Enough,
        _ if used > 1.0 + unsure => Verdict::NotEnough,
        _ => Verdict::CannotTell,
    };
    let mhz = ask.ghz.map(|g| g * 1e3).or(model.machine.mhz);
    let bytes = ask.mix.bytes();
    let fastest = demand.out.max(demand.into) / 1e6;
    let of_parts = |cost: &Cost, pps: f64| cost.parts().map(|(name, ns)| (name, ns * pps / 1e9));
    let mut parts = of_parts(&full.out, pps);
    parts.iter_mut().zip(of_parts(&full.into, back_pps)).for_each(|(out, into)| out.1 += into.1);
    let all = parts.into_iter().chain([
        ("forwarding", full.forwarding_ns * (pps + back_pps) / 1e9),
        ("rekeying", keys.rekey_cores),
        ("the setup storm", keys.storm_cores),
        ("NAT keepalives", keys.keepalive_cores),
    ]);
    let dominant = all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nothing", 0.0));
    Ok(Need {
        link_mbps: demand.out / 1e6,
        back_mbps: demand.into / 1e6,
        pps,
        back_pps,
        inner_mbps: pps * bytes * 8.0 / 1e6,
        outer_bytes,
        packet: full,
        keys,
        packet_cores,
        bare_cores,
        busy_at_most,
        scaled_cores: least * with,
        cores: model.processors().processors(least * with),
        gain: Gain::of(&model.workers),
        headroom,
        verdict,
        first,
        memory_used,
        unsure,
        at_load,
        busy_cores: at_load.cores(rates) + keys.all(),
        cycles_per_byte: mhz.map(|mhz| packet_cores / ((pps + back_pps) * bytes) * mhz * 1e6),
        mhz_per_mbps: mhz.map(|mhz| least * mhz / fastest),
        mhz_per_mbps_safe: mhz.map(|mhz| least * with * mhz / fastest),
        dominant: (dominant.0.into(), dominant.1 / bare_cores.max(f64::MIN_POSITIVE)),
    })
}

/// Computes the load of the mix that the machine carries, by itself and with the share that is
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
    let packet = saturated(model, ask, model.suite(&ask.suite)?)?;
    let keys = keys(model, ask, &packet);
    // The load is multiplied by safety / share, so the load that is carried is divided by it.
    let have = model.processors().worth(cores(model, ask));
    let budget = have * busy_at_most(model, ask) * ask.share / ask.safety;
    let taken = keys.rekey_cores + keys.keepalive_cores;
    let left = budget - taken;
    if left <= 0.0 {
        return Err(LabError::Usage(format!(
            "rekeying {} tunnels every {} s alone takes {taken:.2} processors, and IPsec may use {budget:.2}: rekey less often, or \
             have fewer tunnels",
            ask.tunnels, ask.rekey
        )));
    }
    let highest = |ways: [f64; 2]| left / packet.cores(ways).max(f64::MIN_POSITIVE);
    let (both, out, into) = (highest([1.0; 2]), highest([1.0, 0.0]), highest([0.0, 1.0]));
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
        packet,
    })
}
