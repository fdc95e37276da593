//! The table of cycles per byte by layer that NAI Labs measured and FreeS/WAN published
//! (Pentium II), measured again on one gateway: plain forwarding, ESP without its cryptography,
//! with SHA-1, with 3DES and SHA-1, and with AES-GCM.
//!
//! | layer | is now |
//! |---|---|
//! | IP stack | what a forwarding box adds to the whole machine, by `plan`'s measurement |
//! | ESP without cryptography | all stages of `null-sha1` but `crypto` |
//! | the others | all stages of the suite |
//!
//! A tunnel without integrity is nothing that the daemon agrees to, so that no packet is ever sent
//! without: the second layer is computed from a gateway that has SHA-1.

use std::time::Duration;

use super::Measured;
use crate::dut::{StageTimes, Suite};
use crate::error::LabError;
use crate::experiment::campaign::Campaign;
use crate::experiment::plan::forwarding_ns;
use crate::plan::links::FREESWAN_CYCLES;
use crate::record::{Derived, Factors, Historical, Plot, Record, View, Which, factors};
use crate::topology::Owner;

/// Payload of the packets, bytes.
pub(super) const PAYLOAD: usize = 1300;
/// The inner packet of this payload: with IPv4 and UDP.
const BYTES: f64 = PAYLOAD as f64 + 28.0;
/// Frame of the same packet, with Ethernet header and FCS.
const FRAME: u32 = PAYLOAD as u32 + 28 + 18;
/// Packets a second of plain forwarding: far below what a box carries.
const RATE: f64 = 30_000.0;

/// Name of plain forwarding among the systems.
pub(super) const PLAIN: &str = "plain";
/// Setting of a run that says what the layers are.
pub(super) const SETTING: &str = "layers";

/// Suites of the layers, in the order of the table, with the names of their layers.
const SUITES: [(&str, &str); 3] =
    [("null-sha1", "NULL with SHA-1"), ("3des-sha1", "3DES with SHA-1"), ("aes128gcm16", "AES-128-GCM")];
/// Layer that is all stages of the first suite but its cryptography.
const BARE: &str = "ESP without cryptography";
/// Layer of plain forwarding.
const IP: &str = "IP stack: plain forwarding";

/// Sides of a tunnel that carry the load, with the words for them and the names of their figures.
const SIDES: [(&str, &str, &str); 2] =
    [("g1 out", "encrypting", "now_encrypting"), ("g2 in", "decrypting", "now_decrypting")];
/// The word for a box that does neither.
const FORWARDING: &str = "forwarding";
/// Name of the published figures.
const THEN: &str = "then";
/// Name of the measure.
const MEASURE: &str = "cycles_per_byte";

pub(super) fn suites() -> Result<Vec<Suite>, LabError> {
    SUITES.iter().map(|(suite, ..)| suite.parse().map_err(LabError::Usage)).collect()
}

/// Loads and suites, for the record.
pub(super) fn described() -> String {
    format!(
        "UDP of {PAYLOAD} B, one flow; plain forwarding at {RATE} packets/s; suites {}",
        SUITES.map(|(s, ..)| s).join(", ")
    )
}

/// Measures what a forwarding box without a tunnel adds to the machine's busy time for a packet.
pub(super) fn plain(
    c: &mut Campaign,
    owner: &Owner,
    duration: Duration,
    repeat: u32,
) -> Result<(), LabError> {
    c.says("plain forwarding")?;
    let began = c.elapsed();
    let ns = forwarding_ns(owner, FRAME, RATE, duration)?;
    let mut measures = vec![("ns_per_packet", ns), ("bytes_per_packet", BYTES)];
    measures.extend(c.machine().mhz.map(|mhz| ("cycles_per_packet", ns * mhz / 1e3)));
    let of = factors([("dut", PLAIN), ("load", "forwarding"), ("side", "one box"), ("stage", super::ALL)]);
    c.sample(of, repeat, began, &measures, vec![]);
    if let Some(mhz) = c.machine().mhz {
        let cycles = [(MEASURE, ns * mhz / 1e3 / BYTES)];
        c.sample(factors([("layer", IP), ("side", FORWARDING)]), repeat, began, &cycles, vec![]);
    }
    Ok(())
}

/// Cycles per byte of the layers that one side of a gateway with this suite shows: the layer of the
/// suite, and of the first suite the layer without cryptography besides. Nothing of a side that
/// carries no load.
pub(super) fn of_side(esp: &str, side: &str, times: &StageTimes, mhz: Option<f64>) -> Vec<Measured> {
    let layer = SUITES.iter().find(|(suite, _)| *suite == esp).map(|(_, layer)| *layer);
    let word = SIDES.iter().find(|(name, ..)| *name == side).map(|(_, word, _)| *word);
    let (Some(layer), Some(word), Some(mhz)) = (layer, word, mhz) else { return Vec::new() };
    if times.bytes == 0 {
        return Vec::new();
    }
    let sample = |layer: &str, ns: u64| {
        (
            factors([("layer", layer), ("side", word)]),
            vec![(MEASURE, ns as f64 * mhz / 1e3 / times.bytes as f64)],
        )
    };
    let all: u64 = times.ns.values().sum();
    let crypto = times.ns.get("crypto").filter(|_| layer == SUITES[0].1);
    let bare = crypto.map(|crypto| sample(BARE, all - crypto));
    bare.into_iter().chain([sample(layer, all)]).collect()
}

/// Cycles per byte by layer, then and now; empty when plain forwarding was not measured, or the
/// clock is not known.
pub(super) fn cycles(record: &Record) -> Vec<Derived> {
    let now = |layer: &str, side: &str| {
        record.figure(&factors([("layer", layer), ("side", side)]))?.number(MEASURE, Which::Median)
    };
    let Some(plain) = now(IP, FORWARDING) else { return Vec::new() };
    let [ip, bare, sha1, des] = FREESWAN_CYCLES.map(f64::from);
    let [null, triple, gcm] = SUITES.map(|(_, layer)| layer);
    let mut derived = Vec::new();
    for (layer, then) in
        [(IP, Some(ip)), (BARE, Some(bare)), (null, Some(sha1)), (triple, Some(sha1 + des)), (gcm, None)]
    {
        let mut add = |name: &str, value: f64, how: &str| {
            derived.push(Derived {
                name: name.into(),
                factors: factors([("layer", layer)]),
                value,
                unit: "cycles/byte".into(),
                how: how.into(),
            });
        };
        if let Some(then) = then {
            add(THEN, then, "published, Pentium II");
        }
        for (_, side, name) in SIDES {
            // Forwarding has one side only.
            let value = if layer == IP { Some(plain) } else { now(layer, side) };
            if let Some(value) = value {
                add(
                    name,
                    value,
                    "cycles of a packet over the bytes of its inner packet, median of the repeats",
                );
            }
        }
    }
    derived
}

/// The table of layers, and its picture.
pub(super) fn views() -> [View; 2] {
    let table = View::Derived {
        title: "Cycles per byte by layer, each with all above it: a Pentium II then, one gateway now".into(),
        names: std::iter::once(THEN).chain(SIDES.map(|(.., name)| name)).map(String::from).collect(),
    };
    let plot = View::Plot(Plot {
        name: "layers".into(),
        title: "Cycles per byte by layer, each with all above it".into(),
        // Of all figures these have the measure.
        only: Factors::new(),
        x: "layer".into(),
        x_label: "layer".into(),
        y: MEASURE.into(),
        which: Which::Median,
        series: vec!["side".into()],
        log_x: false,
        log_y: false,
    });
    [table, plot]
}

/// The published table beside ours.
pub(super) fn history(derived: &[Derived]) -> Historical {
    let [ip, bare, sha1, des] = FREESWAN_CYCLES;
    let now: Vec<String> = derived
        .iter()
        .filter(|d| d.name == SIDES[0].2)
        .map(|d| format!("{} {:.1}", d.factors.get("layer").map_or("-", String::as_str), d.value))
        .collect();
    Historical {
        source: "NAI Labs on a Pentium II, in FreeS/WAN's page on performance: cycles per byte by layer".into(),
        then: format!("IP stack {ip}, IPsec without cryptography {bare}, with SHA-1 {sha1}, 3DES {des} more: {}", sha1 + des),
        now: format!("encrypting: {}", now.join(", ")),
        caveat: "Alike: what one box spends on a byte of large packets, layer upon layer. Not alike: then IPsec worked inside the \
                 kernel's stack, packet by packet. Now plain forwarding is the kernel's, and a tunnel is a process with system \
                 calls of its own, which packets share in batches. The layer without cryptography is a gateway with SHA-1 less \
                 its stage crypto. Cycles are times by the clock that the kernel shows."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, figures};
    use crate::report::sample;

    #[test]
    fn a_side_shows_the_layer_of_its_suite_and_the_first_suite_also_the_layer_without_cryptography() {
        let ns = [("receive", 3000), ("crypto", 1000), ("send", 6000)].map(|(s, ns)| (s.to_string(), ns));
        let times = StageTimes { packets: 10, bytes: 10_000, ns: ns.into() };
        let of = |esp: &str, side: &str| -> Vec<(String, String, f64)> {
            let own = of_side(esp, side, &times, Some(2000.0)).into_iter();
            own.map(|(f, m)| (f["layer"].clone(), f["side"].clone(), m[0].1)).collect()
        };
        let is = |layer: &str, side: &str, cycles| (layer.to_string(), side.to_string(), cycles);
        assert_eq!(
            of("null-sha1", "g1 out"),
            [is(BARE, "encrypting", 1.8), is("NULL with SHA-1", "encrypting", 2.0)]
        );
        assert_eq!(of("aes128gcm16", "g2 in"), [is("AES-128-GCM", "decrypting", 2.0)]);
        // Acknowledgements, or another suite.
        assert!(of("null-sha1", "g2 out").is_empty() && of("other", "g1 out").is_empty());
        assert!(of_side("null-sha1", "g1 out", &StageTimes::default(), Some(2000.0)).is_empty());
        assert!(of_side("null-sha1", "g1 out", &times, None).is_empty());
    }

    fn record(layers: &[(&str, &str, f64)]) -> Record {
        let sample = |(layer, side, cycles): &(&str, &str, f64)| Sample {
            factors: factors([("layer", layer), ("side", side)]),
            repeat: 0,
            began: 0.0,
            measures: [(MEASURE.to_string(), *cycles)].into(),
            absent: [].into(),
            files: vec![],
        };
        let samples: Vec<Sample> = layers.iter().map(sample).collect();
        Record { figures: figures(&samples, None), samples, baseline: None, ..sample::record() }
    }

    #[test]
    fn each_layer_has_its_cycles_then_and_now() {
        let all = [
            (IP, FORWARDING, 1.0),
            (BARE, "encrypting", 7.0),
            ("NULL with SHA-1", "encrypting", 9.0),
            ("3DES with SHA-1", "encrypting", 30.0),
            ("AES-128-GCM", "encrypting", 8.0),
            ("AES-128-GCM", "decrypting", 6.0),
        ];
        let derived = cycles(&record(&all));
        let value = |layer: &str, name: &str| {
            derived.iter().find(|d| d.name == name && d.factors["layer"] == layer).map(|d| d.value)
        };
        let of = |layer: &str| [THEN, "now_encrypting", "now_decrypting"].map(|name| value(layer, name));
        assert_eq!(of(IP), [Some(5.0), Some(1.0), Some(1.0)]);
        assert_eq!(of(BARE), [Some(11.0), Some(7.0), None]);
        assert_eq!(of("NULL with SHA-1"), [Some(24.0), Some(9.0), None]);
        assert_eq!(of("3DES with SHA-1"), [Some(140.0), Some(30.0), None]);
        assert_eq!(of("AES-128-GCM"), [None, Some(8.0), Some(6.0)]);
        assert!(history(&derived).now.contains("NULL with SHA-1 9.0"), "{}", history(&derived).now);
        // Without plain forwarding there is no table.
        assert!(cycles(&record(&all[1..])).is_empty());
    }
}
