//! Counters of a system's packet engine on one gateway, from `ironswan list counters --json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Packets of one gateway's engine, cumulative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Packets taken from the device. A frame that was cut counts as its parts.
    pub taken: u64,
    /// ESP packets made of them.
    pub given: u64,
    /// ESP packets that arrived.
    pub arrived: u64,
    /// Inner packets delivered, those merged into another's write included.
    pub delivered: u64,
    /// Dropped on the way out, by reason.
    pub out_drops: BTreeMap<String, u64>,
    /// Dropped on the way in, by reason.
    pub in_drops: BTreeMap<String, u64>,
    /// Counters of workers and sockets, by name.
    pub plane: BTreeMap<String, u64>,
    /// Time of measured batches by stage, from device to network.
    pub outbound: StageTimes,
    /// The same, network to device.
    pub inbound: StageTimes,
}

/// Time of the batches that an engine has measured, by stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Packets in these batches.
    pub packets: u64,
    /// Their inner bytes.
    pub bytes: u64,
    /// Nanoseconds by the stage's name.
    pub ns: BTreeMap<String, u64>,
}

impl StageTimes {
    fn since(&self, earlier: &Self) -> Self {
        let then = |k: &str| earlier.ns.get(k).copied().unwrap_or(0);
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            ns: self.ns.iter().map(|(k, v)| (k.clone(), v.saturating_sub(then(k)))).collect(),
        }
    }
}

impl EngineCounts {
    /// From the JSON document; `None` when it is another.
    pub(super) fn parse(json: &Value) -> Option<Self> {
        let packets = json.get("packets")?;
        let number = |v: &Value| v.as_u64().or_else(|| v.as_str()?.parse().ok());
        let packet = |name: &str| packets.get(name).and_then(number);
        let map = |name: &str| -> BTreeMap<String, u64> {
            let object = json.get(name).and_then(Value::as_object);
            object.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), number(v)?))).collect()
        };
        // Absent from versions that measure no stages.
        let stages = |direction: &str| {
            let object = json.get("stages").and_then(|s| s.get(direction)).and_then(Value::as_object);
            let mut ns: BTreeMap<String, u64> =
                object.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), number(v)?))).collect();
            let mut take = |name: &str| ns.remove(name).unwrap_or(0);
            StageTimes { packets: take("packets"), bytes: take("bytes"), ns }
        };
        let (in_drops, out_drops) =
            map("drops").into_iter().partition(|(reason, _)| reason.starts_with("In"));
        Some(Self {
            taken: packet("out-frames")? + packet("out-made")?,
            given: packet("out-sent")?,
            arrived: packet("in-packets")?,
            delivered: packet("in-writes")? + packet("in-merged")?,
            out_drops,
            in_drops,
            plane: map("plane"),
            outbound: stages("outbound"),
            inbound: stages("inbound"),
        })
    }

    /// The difference to `earlier`; reasons without a difference are left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let n = |now: u64, then: u64| now.saturating_sub(then);
        let map = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            now.iter()
                .map(|(k, v)| (k.clone(), n(*v, then.get(k).copied().unwrap_or(0))))
                .filter(|(_, v)| *v > 0)
                .collect()
        };
        Self {
            taken: n(self.taken, earlier.taken),
            given: n(self.given, earlier.given),
            arrived: n(self.arrived, earlier.arrived),
            delivered: n(self.delivered, earlier.delivered),
            out_drops: map(&self.out_drops, &earlier.out_drops),
            in_drops: map(&self.in_drops, &earlier.in_drops),
            plane: map(&self.plane, &earlier.plane),
            outbound: self.outbound.since(&earlier.outbound),
            inbound: self.inbound.since(&earlier.inbound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_taken_from_the_document_and_subtracted() {
        let json = |n: u64| {
            serde_json::json!({ "schema": "ironswan.counters/1",
                "packets": { "out-frames": n, "out-made": 2, "out-sent": n, "in-packets": 4, "in-writes": 3, "in-merged": 1 },
                "drops": { "OutNoPolicy": n, "InStateSeqOld": 0 }, "plane": { "socket-drops": "7" },
                "stages": { "outbound": { "packets": n, "bytes": 100, "crypto": n * 3 } } })
        };
        let (a, b) = (EngineCounts::parse(&json(10)).expect("a"), EngineCounts::parse(&json(15)).expect("b"));
        assert_eq!((b.taken, b.given, b.arrived, b.delivered, b.plane["socket-drops"]), (17, 15, 4, 4, 7));
        let d = b.since(&a);
        assert_eq!((d.taken, d.given, d.arrived), (5, 5, 0));
        assert_eq!(d.out_drops, BTreeMap::from([("OutNoPolicy".to_string(), 5)]));
        assert_eq!((d.outbound.packets, d.outbound.ns["crypto"], d.inbound.packets), (5, 15, 0));
        assert!(d.in_drops.is_empty() && d.plane.is_empty());
        assert_eq!(EngineCounts::parse(&serde_json::json!({})), None);
    }
}
