//! Cost of a suite alone: by the length of a packet, and by how many packets share a call. Pure.
//!
//! ```text
//! a call of an engine that works side by side = c x longest + p x packets   (while it has lanes)
//! so each packet of a burst                   = c x longest / packets + p
//! ```
//! An engine that works packet by packet has no `c`; one that works side by side gets bursts from
//! [`WORTH`] packets on, and gains little once its lanes are full. So a few bursts are measured, on
//! both sides of that step, and between two of them a cost lies on the straight line of 1 /
//! packets. There, whatever the single bursts of a load were, their mean (packets by calls) says
//! what its packets cost on average.

use ironswan_crypto::engines::WORTH;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mix::{Mix, Part};
use super::model::{Path, Way};
use crate::schema::never_negative;

/// The bursts that are measured: a packet by itself, the most that go packet by packet, the fewest
/// that go side by side, as many as there are lanes, and what a gateway reads before it looks.
pub const BURSTS: [u32; 5] = [1, 7, 8, 16, 64];
const _: () = assert!(BURSTS[1] + 1 == WORTH as u32 && BURSTS[2] == WORTH as u32);

/// A cost that grows with the length: nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Linear {
    /// Of a packet of no length.
    pub per_packet: f64,
    /// Of each byte.
    pub per_byte: f64,
    /// Root mean square of what the line misses the measurements by.
    pub residual: f64,
}

/// Cost of each packet when that many share a call.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Packets of a call.
    #[schemars(range(min = 1))]
    pub packets: u32,
    /// Sealing a text of so many bytes.
    pub seal: Linear,
    /// Opening it.
    pub open: Linear,
}

impl Burst {
    fn line(&self, way: Way) -> &Linear {
        match way {
            Way::Out => &self.seal,
            Way::In => &self.open,
        }
    }
}

/// A suite, measured alone.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteCost {
    /// Name of the suite.
    #[schemars(length(min = 1))]
    pub suite: String,
    /// Engines that were chosen for small and large packets.
    #[schemars(length(min = 1))]
    pub engines: String,
    /// Cost of a packet in each of [`BURSTS`].
    pub bursts: [Burst; BURSTS.len()],
    /// Bytes of SPI, sequence number, IV and ICV.
    #[schemars(range(min = 1))]
    pub fixed_bytes: u32,
    /// The text is a multiple of this.
    #[schemars(range(min = 1))]
    pub block: u32,
}

impl SuiteCost {
    /// Bytes of text for an IP packet: with pad length, next header and padding.
    pub fn text(&self, bytes: f64) -> f64 {
        let block = f64::from(self.block.max(1));
        ((bytes + 2.0) / block).ceil() * block
    }

    /// Nanoseconds for a packet of a mix, on average, when `burst` share a call: on the straight
    /// line of 1 / packets between the two measured bursts around it; outside of them as there.
    pub fn of_mix(&self, way: Way, mix: &Mix, burst: f64) -> f64 {
        let at = |n: usize| self.measured(&self.bursts[n], way, mix);
        match self.bursts.iter().position(|b| f64::from(b.packets) >= burst) {
            Some(0) => at(0),
            None => at(BURSTS.len() - 1),
            Some(n) => {
                let [few, many] = [n - 1, n].map(|n| 1.0 / f64::from(self.bursts[n].packets));
                let share = (few - 1.0 / burst) / (few - many);
                at(n - 1) * (1.0 - share) + at(n) * share
            }
        }
    }

    /// Half of the interval of that, nanoseconds: twice what the lines of the two bursts around it
    /// miss their measurements by.
    pub fn within(&self, way: Way, burst: f64) -> f64 {
        let last = BURSTS.len() - 1;
        let above = self.bursts.iter().position(|b| f64::from(b.packets) >= burst).unwrap_or(last);
        let of = |n: usize| self.bursts[n].line(way).residual;
        2.0 * of(above).max(of(above.saturating_sub(1)))
    }

    /// Nanoseconds for a packet of a mix in one of the measured bursts. Lanes of shorter packets
    /// wait for the longest of the call.
    fn measured(&self, burst: &Burst, way: Way, mix: &Mix) -> f64 {
        let packets = f64::from(burst.packets);
        let line = burst.line(way);
        let mean: f64 = mix.parts.iter().map(|p| p.share * self.text(p.bytes())).sum();
        let side_by_side = burst.packets >= u32::from(WORTH);
        let lane = if side_by_side { self.lane_byte(way) } else { 0.0 };
        let waits = lane * (self.longest(mix, packets) - mean) / packets;
        line.per_packet + line.per_byte * mean + waits
    }

    /// Nanoseconds of a call for each byte of its longest packet: what a byte is cheaper by when
    /// the lanes are full. Where each packet is done by itself it is nothing.
    fn lane_byte(&self, way: Way) -> f64 {
        let [_, _, few, lanes, _] = self.bursts.each_ref();
        let gain = few.line(way).per_byte - lanes.line(way).per_byte;
        let call = gain.max(0.0) / (1.0 / f64::from(few.packets) - 1.0 / f64::from(lanes.packets));
        // No more than all that the bytes of a call cost.
        call.min(lanes.line(way).per_byte * f64::from(lanes.packets))
    }

    /// Bytes of text of the longest of so many packets of a mix, on average, when they come in no
    /// order.
    fn longest(&self, mix: &Mix, packets: f64) -> f64 {
        let up_to = |frame: u32| -> f64 {
            let shares = mix.parts.iter().filter(|p| p.frame <= frame).map(|p| p.share);
            shares.sum::<f64>().powf(packets)
        };
        let mut frames: Vec<u32> = mix.parts.iter().map(|p| p.frame).collect();
        frames.sort_unstable();
        frames.dedup();
        let mut below = 0.0;
        let mut mean = 0.0;
        for frame in frames {
            let all = up_to(frame);
            mean += (all - below) * self.text(Part { frame, share: 1.0 }.bytes());
            below = all;
        }
        mean
    }

    /// Bytes of the outer IP packet.
    pub fn outer(&self, path: Path, bytes: f64) -> f64 {
        let udp = if path == Path::Udp { 8.0 } else { 0.0 };
        20.0 + udp + f64::from(self.fixed_bytes) + self.text(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// A call that takes 3,000 ns, 2 for each byte of its longest packet, and 100 for each packet;
    /// in bursts that are not worth it each packet is a call. Opening: 100 for each packet.
    fn side_by_side() -> SuiteCost {
        let line = |per_packet, per_byte| Linear { per_packet, per_byte, residual: 0.0 };
        let burst = |packets| {
            let share = if packets < u32::from(WORTH) { 1.0 } else { 1.0 / f64::from(packets) };
            Burst { packets, seal: line(100.0 + 3_000.0 * share, 2.0 * share), open: line(100.0, 0.1) }
        };
        SuiteCost { bursts: BURSTS.map(burst), ..sample::model().suites[0].clone() }
    }

    #[test]
    fn a_call_that_packets_share_is_shared_between_measured_bursts_too() {
        let (suite, mix) = (side_by_side(), Mix::frames(64));
        for burst in [1.0, 1.7, 4.0, 7.0, 8.0, 9.5, 16.0, 33.3, 64.0] {
            // 46 bytes and a trailer of 2.
            let ns = suite.of_mix(Way::Out, &mix, burst);
            let share = if burst < f64::from(WORTH) { 1.0 } else { burst };
            assert!((ns - 100.0 - 3_096.0 / share).abs() < 1e-9, "{burst}: {ns}");
            assert!((suite.of_mix(Way::In, &mix, burst) - 104.8).abs() < 1e-9);
        }
        let out = |burst| suite.of_mix(Way::Out, &mix, burst);
        assert_eq!((out(1_000.0), out(0.5)), (out(64.0), out(1.0)));
    }

    #[test]
    fn the_mean_burst_says_what_bursts_of_several_sizes_cost() {
        let (suite, mix) = (side_by_side(), Mix::frames(64));
        let bursts = [8.0, 9.0, 12.0, 30.0, 64.0];
        let packets: f64 = bursts.iter().sum();
        let each = bursts.iter().map(|b| b * suite.of_mix(Way::Out, &mix, *b)).sum::<f64>() / packets;
        let mean = suite.of_mix(Way::Out, &mix, packets / bursts.len() as f64);
        assert!((each - mean).abs() < 1e-9, "{each} {mean}");
    }

    #[test]
    fn side_by_side_all_wait_for_the_longest_and_one_by_one_nobody_does() {
        let suite = side_by_side();
        let mix = Mix::parse("64:1,256:1").expect("a mix");
        // All are the short one, with 48 bytes of text, once in 2^n.
        for packets in BURSTS.map(f64::from) {
            let short = 0.5f64.powf(packets);
            let longest = 48.0 * short + 240.0 * (1.0 - short);
            let together = 100.0 + (3_000.0 + 2.0 * longest) / packets;
            let ns = if packets < f64::from(WORTH) { 3_100.0 + 2.0 * 144.0 } else { together };
            assert!((suite.of_mix(Way::Out, &mix, packets) - ns).abs() < 1e-9, "{packets}");
            assert!((suite.of_mix(Way::In, &mix, packets) - 100.0 - 0.1 * 144.0).abs() < 1e-9);
        }
    }
}
