//! The data plane in `stats` and `ironswan-counters`: workers, engines, offloads that the kernel
//! granted, time of each stage, counters.
//!
//! ```text
//! data-plane { workers = 2  engines = [..]  tun-tso = yes  tun-uso = yes  udp-segments = 128  udp-gro = yes
//!              receive-buffer = 8388608  send-buffer = 8388608  busy-poll = no  xdp = []
//!              threaded-napi = []  slower = [] }
//! stages { outbound { packets = 9  bytes = 12600  receive = 1200  parse = ..  policy  sequence  encapsulation  crypto  send }
//!          inbound { the same } }
//! ```
//! Stages are sums in nanoseconds since the start, over the batches that were measured. `packets`
//! and `bytes` count these batches only.

use ironswan_crypto::engines::{EngineId, Measured};
use ironswan_ipsec::{Stage, StageTimes, Stages};
use ironswan_wire::vici::Section;

use crate::dataplane::userspace::DataPlane;
use crate::dataplane::userspace::offloads::Offloads;

/// Properties of the running data plane, and its counters since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plane {
    /// Threads that move packets.
    pub workers: usize,
    /// Engines that were chosen for at least one suite and size.
    pub engines: Vec<EngineId>,
    /// Offloads that the kernel granted.
    pub offloads: Offloads,
    /// Interfaces that are to be polled by kernel threads, and are.
    pub threaded_napi: Vec<String>,
    /// Offloads that the kernel has refused since, in short.
    pub slower: Vec<String>,
    /// Time of each stage.
    pub stages: Stages,
    /// Counters of the workers and of the sockets.
    pub counters: Vec<(&'static str, u64)>,
}

impl Plane {
    /// Reads a running data plane. `chosen` is the result of the engines' self-test,
    /// `threaded_napi` the interfaces that kernel threads poll, `slower` the degradations that the
    /// plane has reported.
    pub fn of(plane: &DataPlane, chosen: &[Measured], threaded_napi: Vec<String>, slower: &[String]) -> Self {
        let s = plane.stats();
        let mut counters = vec![
            ("rounds", s.rounds),
            ("batches-exhausted", s.exhausted),
            ("tun-reads", s.tun_reads),
            ("tun-read-errors", s.tun_read_errors),
            ("tun-read-bytes", s.tun_read_bytes),
            ("tun-writes", s.tun_writes),
            ("tun-write-bytes", s.tun_write_bytes),
            ("tun-write-errors", s.tun_write_errors),
            ("tun-write-unmerged", s.tun_write_unmerged),
            ("seals", s.seals),
            ("receives", s.receives),
            ("received", s.received),
            ("received-bytes", s.received_bytes),
            ("receive-errors", s.receive_errors),
            ("ike", s.ike),
            ("ike-dropped", s.ike_dropped),
            ("ike-dropped-full", plane.ike_dropped_full()),
            ("keepalives", s.keepalives),
            ("malformed", s.malformed),
            ("socket-drops", plane.socket_drops()),
        ];
        counters.extend(plane.paths().counters());
        counters.extend(plane.xdp_stats().named());
        counters.extend(s.send.named());
        Self {
            workers: plane.workers(),
            engines: EngineId::ALL.into_iter().filter(|id| chosen.iter().any(|m| m.chosen == *id)).collect(),
            offloads: plane.offloads(),
            threaded_napi,
            slower: slower.to_vec(),
            stages: s.stages,
            counters,
        }
    }

    /// `data-plane`.
    pub(super) fn section(&self) -> Section {
        let o = &self.offloads;
        Section::new()
            .with("workers", self.workers as u64)
            .with("engines", self.engines.iter().map(|id| id.name().to_owned()).collect::<Vec<_>>())
            .with("tun-tso", o.tun.tso)
            .with("tun-uso", o.tun.uso)
            .with("udp-segments", o.segments as u64)
            .with("udp-gro", o.gro)
            .with("receive-buffer", u64::from(o.buffers[0]))
            .with("send-buffer", u64::from(o.buffers[1]))
            .with("busy-poll", o.busy_poll)
            .with("xdp", o.xdp.clone())
            .with("threaded-napi", self.threaded_napi.clone())
            .with("slower", self.slower.clone())
    }

    /// `stages`.
    pub(super) fn stages_section(&self) -> Section {
        let direction = |t: &StageTimes| {
            let mut s = Section::new().with("packets", t.packets).with("bytes", t.bytes);
            for stage in Stage::ALL {
                s.put(stage.name(), t.of(stage));
            }
            s
        };
        Section::new()
            .with("outbound", direction(&self.stages.outbound))
            .with("inbound", direction(&self.stages.inbound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_of_both_directions_is_there_by_its_name() {
        let mut plane = Plane::default();
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            plane.stages.outbound.add(stage, 10 + i as u64);
            plane.stages.inbound.add(stage, 20 + i as u64);
        }
        (plane.stages.inbound.packets, plane.stages.inbound.bytes) = (3, 4200);
        let s = plane.stages_section();
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
        let slower = vec!["segmentation to 192.0.2.2".to_owned()];
        let threaded_napi = vec!["lan0".to_owned(), "wan0".to_owned()];
        let s = Plane { workers: 2, offloads, threaded_napi, slower, ..Plane::default() }.section();
        for (key, value) in [("workers", "2"), ("udp-segments", "64"), ("udp-gro", "yes"), ("tun-tso", "no")]
        {
            assert_eq!(s.get_str(key), Some(value), "{key}");
        }
        assert_eq!(s.get_list("xdp").unwrap(), [b"wan0"]);
        assert_eq!(s.get_list("threaded-napi").unwrap(), [b"lan0", b"wan0"]);
        assert_eq!(s.get_list("slower").unwrap().len(), 1);
    }
}
