//! The data plane in `stats` and `ironswan-counters`: workers, engines, offloads that the kernel
//! granted, time of each stage, counters.
//!
//! ```text
//! data-plane { workers = 2  engines = [..]  tun-tso = yes  tun-uso = yes
//!              udp-segments = 128  udp-gro = yes
//!              receive-buffer = 8388608  send-buffer = 8388608  busy-poll = no  xdp = []
//!              threaded-napi = []  slower = [] }
//! stages { outbound { packets = 9  bytes = 12600  receive = 1200  parse = ..  policy = ..
//!                     sequence = ..  encapsulation = ..  crypto = ..  send = .. }
//!          inbound { the same } }
//! ```
//! The names and their order are the data plane's ([`Report`]); these are those of the user-space
//! one. Stages are sums in nanoseconds since the start, over the batches that were measured.
//! `packets` and `bytes` count these batches only.

use ironswan_ipsec::{Stage, StageTimes};
use ironswan_wire::vici::{Section, Value};

use crate::dataplane::{Property, Report};

/// `data-plane`.
pub(super) fn properties(report: &Report) -> Section {
    let mut s = Section::new().with("workers", report.workers as u64);
    for (name, property) in &report.properties {
        s.put(
            *name,
            match property {
                Property::Flag(yes) => Value::from(*yes),
                Property::Number(n) => Value::from(*n),
                Property::Names(names) => Value::from(names.clone()),
            },
        );
    }
    s
}

/// A section of counters.
pub(super) fn counters(counters: &[(&'static str, u64)]) -> Section {
    counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// `stages`.
pub(super) fn stages(report: &Report) -> Section {
    let direction = |t: &StageTimes| {
        let mut s = Section::new().with("packets", t.packets).with("bytes", t.bytes);
        for stage in Stage::ALL {
            s.put(stage.name(), t.of(stage));
        }
        s
    };
    Section::new()
        .with("outbound", direction(&report.stages.outbound))
        .with("inbound", direction(&report.stages.inbound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::userspace::offloads::Offloads;

    #[test]
    fn every_stage_of_both_directions_is_there_by_its_name() {
        let mut plane = Report::default();
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            plane.stages.outbound.add(stage, 10 + i as u64);
            plane.stages.inbound.add(stage, 20 + i as u64);
        }
        (plane.stages.inbound.packets, plane.stages.inbound.bytes) = (3, 4200);
        let s = stages(&plane);
        let get = |direction: &str, key: &str| s.section(direction).unwrap().get_str(key).unwrap().to_owned();
        for (i, name) in ["receive", "parse", "policy", "sequence", "encapsulation", "crypto", "send"]
            .into_iter()
            .enumerate()
        {
            assert_eq!(get("outbound", name), (10 + i).to_string());
            assert_eq!(get("inbound", name), (20 + i).to_string());
        }
        assert_eq!((get("inbound", "packets"), get("inbound", "bytes")), ("3".into(), "4200".into()));
        assert_eq!(get("outbound", "packets"), "0");
    }

    #[test]
    fn what_was_granted_and_refused_is_shown() {
        let offloads = Offloads { segments: 64, gro: true, xdp: vec!["wan0".into()], ..Offloads::default() };
        let mut properties = offloads.properties();
        let names = |names: &[&str]| Property::Names(names.iter().map(|n| (*n).to_owned()).collect());
        properties.push(("threaded-napi", names(&["lan0", "wan0"])));
        properties.push(("slower", names(&["segmentation to 192.0.2.2"])));
        let s = super::properties(&Report { workers: 2, properties, ..Report::default() });
        for (key, value) in [("workers", "2"), ("udp-segments", "64"), ("udp-gro", "yes"), ("tun-tso", "no")]
        {
            assert_eq!(s.get_str(key), Some(value), "{key}");
        }
        assert_eq!(s.get_list("xdp").unwrap(), [b"wan0"]);
        assert_eq!(s.get_list("threaded-napi").unwrap(), [b"lan0", b"wan0"]);
        assert_eq!(s.get_list("slower").unwrap().len(), 1);
    }
}
