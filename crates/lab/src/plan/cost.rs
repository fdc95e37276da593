//! Cost of a packet, its parts, and how surely each of them is known. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::never_negative;

/// A cost that was fitted, and half of its interval.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Estimate {
    /// Nanoseconds.
    pub value: f64,
    /// Two standard errors, nanoseconds.
    pub within: f64,
}

impl Estimate {
    /// The same where the interval does not reach to nothing; `None` where the fit cannot tell the
    /// cost from the others.
    pub fn told(self) -> Option<Self> {
        (self.value > self.within && self.within.is_finite()).then_some(self)
    }
}

/// Cost that a number of flows adds to a packet, beside what one flow costs.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct FlowCost {
    /// Flows, their packets in turns.
    pub flows: u32,
    /// Nanoseconds more per packet than with one flow: sealing, opening. Nothing where that lies
    /// within what the repeats differ by.
    pub added: [f64; 2],
    /// Half of their intervals, nanoseconds.
    pub within: [f64; 2],
}

/// Packets that share a call when more come at once: a gateway that is woken by the first reads
/// what has come by then.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct BurstShare {
    /// Packets that came at once.
    #[schemars(range(min = 1))]
    pub at_once: u32,
    /// Packets that shared a call of the crypto engine: sealing, opening.
    pub shared: [f64; 2],
    /// The base beside that of evenly spaced packets at the same rate: a gateway that sleeps
    /// between two bursts is woken for each.
    #[schemars(inner(range(max = 1)))]
    pub ratio: [f64; 2],
}

/// A cost and its parts, nanoseconds per packet.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Cost {
    /// The packet's way through the gateway in a full batch, and whatever cannot be told from it.
    pub base: f64,
    /// Calls and wakings of the gateway beyond those of a full batch.
    pub wakings: f64,
    /// Of its bytes.
    pub bytes: f64,
    /// Of changes of size.
    pub changes: f64,
    /// Of crypto.
    pub crypto: f64,
    /// Of many SAs.
    pub sas: f64,
    /// Of many flows.
    pub flows: f64,
}

/// Names of a cost's parts, in their order.
const PARTS: [&str; 7] = ["way", "calls and wakings", "bytes", "changes of size", "crypto", "SAs", "flows"];

impl Cost {
    fn values(&self) -> [f64; 7] {
        [self.base, self.wakings, self.bytes, self.changes, self.crypto, self.sas, self.flows]
    }

    /// From all parts by what `of` makes of each.
    fn each(values: [f64; 7]) -> Self {
        let [base, wakings, bytes, changes, crypto, sas, flows] = values;
        Self { base, wakings, bytes, changes, crypto, sas, flows }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }

    /// The parts with their names.
    pub fn parts(&self) -> [(&'static str, f64); 7] {
        let values = self.values();
        std::array::from_fn(|n| (PARTS[n], values[n]))
    }

    /// The largest part.
    pub fn dominant(&self) -> (&'static str, f64) {
        self.parts().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nothing", 0.0))
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        let (own, others) = (self.values(), other.values());
        Self::each(std::array::from_fn(|n| own[n] + others[n]))
    }

    /// So many times as much.
    pub fn times(&self, factor: f64) -> Self {
        Self::each(self.values().map(|v| v * factor))
    }

    /// Cost of a packet without bytes and crypto, as a keepalive is one.
    pub fn bare(&self) -> f64 {
        self.base + self.wakings + self.flows
    }
}

/// Half of the interval of each part of a cost, two standard errors, nanoseconds; absent where a
/// single load or an older model says nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Widths {
    /// The packet's way.
    pub base: Option<f64>,
    /// Calls and wakings.
    pub wakings: Option<f64>,
    /// Its bytes.
    pub bytes: Option<f64>,
    /// Changes of size.
    pub changes: Option<f64>,
    /// Crypto.
    pub crypto: Option<f64>,
    /// Many SAs.
    pub sas: Option<f64>,
    /// Many flows.
    pub flows: Option<f64>,
    /// All of it: the parts are independent but for way and wakings, which the base is split into.
    pub total: Option<f64>,
}

impl Widths {
    /// In the order of [`Cost::parts`].
    pub fn parts(&self) -> [Option<f64>; 7] {
        [self.base, self.wakings, self.bytes, self.changes, self.crypto, self.sas, self.flows]
    }

    /// So many times as much.
    pub fn times(&self, factor: f64) -> Self {
        let of = |v: Option<f64>| v.map(|v| v * factor);
        let [base, wakings, bytes, changes, crypto, sas, flows] = self.parts().map(of);
        Self { base, wakings, bytes, changes, crypto, sas, flows, total: of(self.total) }
    }
}

/// Half of the interval of a sum of independent costs: as far as theirs are known.
pub fn together(widths: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = widths.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.iter().map(|w| w * w).sum::<f64>().sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_keep_their_order() {
        let one = Cost::each([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!((one.total(), one.plus(&one).total(), one.times(3.0).total()), (28.0, 56.0, 84.0));
        assert_eq!((one.dominant(), one.bare()), (("flows", 7.0), 10.0));
        assert_eq!(one.parts().map(|(_, v)| v), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn an_interval_that_reaches_to_nothing_tells_nothing() {
        let of = |value, within| Estimate { value, within }.told().is_some();
        assert!(of(10.0, 9.0) && !of(10.0, 10.0) && !of(0.0, 0.0) && !of(10.0, f64::NAN));
        assert!(!of(f64::INFINITY, f64::INFINITY));
        assert_eq!(together([Some(3.0), None, Some(4.0)]), Some(5.0));
        assert_eq!(together([None, None]), None);
    }
}
