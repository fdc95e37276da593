//! Bodies of fuzz targets: [`esp_inbound`]. In the crate, so that they are compiled and run with the tests.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::rng::Seeded;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Command, Direction, Lifetime, Mode, ReqId, SaAdd, SaOptions, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::{Carrier, Config, Datagram, Engine, RxBatch, Worker, demux};

/// Suites of the fuzzed engine: encryption, key bits, bytes of key with salt, integrity and its key length. The SPI of
/// the n-th is `0x100 + n`.
type Suite = (EncrId, u16, usize, Option<(IntegId, usize)>);

/// See [`Suite`].
const SUITES: [Suite; 3] = [
    (EncrId::AES_GCM_16, 128, 20, None),
    (EncrId::AES_CBC, 128, 16, Some((IntegId::HMAC_SHA2_256_128, 32))),
    (EncrId::CHACHA20_POLY1305, 256, 36, None),
];

fn suite(n: usize) -> EspSuite {
    let (encr, key_bits, _, integ) = SUITES[n];
    EspSuite { encr, key_bits, integ: integ.map(|i| i.0), ke: None, esn: n == 2 }
}

fn keys(n: usize) -> (Vec<u8>, Vec<u8>) {
    (vec![n as u8; SUITES[n].2], vec![0x55; SUITES[n].3.map_or(0, |i| i.1)])
}

/// Keys that seal what the engine opens.
static SENDER: LazyLock<Vec<EspKey>> = LazyLock::new(|| {
    (0..SUITES.len())
        .filter_map(|n| EspKey::new(&suite(n), &keys(n).0, &keys(n).1, &mut Seeded::new(1)))
        .collect()
});

fn engine() -> Arc<Engine> {
    let engine = Engine::new(Box::new(Seeded::new(2)), Config::default());
    let any = |ipv6| TrafficSelector::addresses(AddrRange::any(ipv6));
    let addr = std::net::SocketAddr::from(([192, 0, 2, 1], 4500));
    for n in 0..SUITES.len() {
        let (encr_key, integ_key) = keys(n);
        let sa = SaAdd {
            direction: Direction::In,
            protocol: ProtocolId::ESP,
            spi: Spi(0x100 + n as u32),
            reqid: ReqId(1),
            local: addr,
            remote: addr,
            udp_encap: true,
            mode: Mode::Tunnel,
            suite: suite(n),
            options: SaOptions::default(),
            encr_key: Secret::new(encr_key),
            integ_key: Secret::new(integ_key),
            replay_window: [0, 33, 4096][n],
            local_ts: vec![any(false), any(true)],
            remote_ts: vec![any(false), any(true)],
            lifetime: Lifetime::default(),
            notify_first_use: true,
        };
        engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(sa))).expect("the fuzzed engine's own SA");
    }
    engine
}

/// ESP inbound. The input is read as a list of packets, each `kind, length (2 bytes), bytes`:
///
/// - kinds 0 to 2: the bytes are the plaintext (inner packet, padding, trailer) that an authentic peer seals with suite
///   0 to 2, so that what is behind the ICV is fuzzed;
/// - 3 to 5: the same, and the sealed packet is damaged by its first plaintext byte;
/// - else: the bytes are a datagram as they are.
///
/// All packets go through [`demux`] and one inbound call. Panics when the books do not balance, when something
/// unauthentic is delivered, or when a write is not what the device accepts. The result tells how far the input came: which
/// counters it moved.
pub fn esp_inbound(data: &[u8]) -> u64 {
    let engine = engine();
    let mut worker = Worker::new(engine.clone());
    let mut buf = Vec::new();
    let mut datagrams = Vec::new();
    let (mut rest, mut seq, mut authentic) = (data, 0u64, 0u64);
    while let [kind, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (bytes, after) = after.split_at(len);
        rest = after;
        let start = buf.len();
        let n = usize::from(*kind) % 3;
        if *kind < 6 {
            seq += 1;
            seal(&mut buf, n, seq, bytes);
            if *kind < 3 {
                authentic += 1;
            } else {
                let at = usize::from(bytes.first().copied().unwrap_or(0)) % (buf.len() - start);
                buf[start + at] ^= 0x10;
            }
        } else {
            buf.extend_from_slice(bytes);
        }
        let datagram = Datagram {
            offset: start as u32,
            len: (buf.len() - start) as u32,
            segment_size: if *kind & 0x40 != 0 { u16::from(*kind) } else { 0 },
            local: std::net::SocketAddr::from(([192, 0, 2, 1], 4500)),
            remote: std::net::SocketAddr::from(([192, 0, 2, 2], 4500)),
            carrier: Carrier::Udp,
            tos: kind >> 2,
        };
        demux(&buf, &datagram, &mut datagrams, |_, _| ());
    }
    let mut rx = RxBatch::new();
    worker.begin(Duration::from_secs(1));
    worker.inbound(&mut buf, &datagrams, &mut rx);
    let counters = engine.counters();
    assert!(counters.balance(), "{counters:?}");
    assert!(
        counters.traffic.in_writes + counters.traffic.in_merged <= authentic,
        "something unauthentic was delivered"
    );
    for write in &rx.writes {
        let bytes = rx.gather(&buf, write);
        assert_eq!(bytes.len(), write.total as usize);
        let info = ironswan_wire::ip::parse(&bytes).expect("what is delivered is an IP packet");
        assert_eq!(info.total_len, bytes.len());
        if write.offload.segment_size != 0 {
            assert!(
                bytes.len() - usize::from(write.offload.hdr_len) > usize::from(write.offload.segment_size)
            );
        }
    }
    let traffic = &counters.traffic;
    let moved = [traffic.in_writes, traffic.in_merged, traffic.in_dummies, rx.writes.len() as u64];
    let drops = counters.drops().map(|(_, n)| n);
    moved.into_iter().chain(drops).fold(0u64, |sum, n| sum.wrapping_mul(5).wrapping_add(n.min(3)))
}

/// Appends a packet with this plaintext, made whole blocks.
fn seal(buf: &mut Vec<u8>, n: usize, seq: u64, text: &[u8]) {
    let key = &SENDER[n];
    let start = buf.len();
    buf.extend_from_slice(&(0x100 + n as u32).to_be_bytes());
    buf.extend_from_slice(&(seq as u32).to_be_bytes());
    buf.resize(buf.len() + key.iv_len(), 0);
    let missing = text.len().max(2).next_multiple_of(key.block_len()) - text.len();
    buf.resize(buf.len() + missing, 0);
    buf.extend_from_slice(text);
    buf.resize(buf.len() + key.icv_len(), 0);
    let mut jobs = [Job { start: start as u32, len: (buf.len() - start) as u32, seq, key: 0, ok: false }];
    batch::seal(buf, &mut jobs, &[key]);
    assert!(jobs[0].ok, "the sender's own packet");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
        [&[kind][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
    }

    proptest! {
        #[test]
        fn the_target_holds_on_any_input(list in proptest::collection::vec((any::<u8>(), any::<Vec<u8>>(), any::<bool>()), 0..20)) {
            let data: Vec<u8> = list
                .iter()
                .flat_map(|(kind, bytes, valid)| {
                    // Half of them look like the end of a packet, so that the steps behind the trailer are reached.
                    let mut bytes = bytes.clone();
                    if *valid && bytes.len() > 30 {
                        bytes[0] = 0x45;
                        let len = bytes.len() as u16 - 2;
                        bytes[2..4].copy_from_slice(&len.to_be_bytes());
                        ironswan_wire::ip::v4::set_checksum(&mut bytes[..20]);
                        let n = bytes.len();
                        bytes[n - 2..].copy_from_slice(&[0, 4]);
                    }
                    record(kind % 9, &bytes)
                })
                .collect();
            esp_inbound(&data);
        }
    }

    #[test]
    fn the_target_reaches_delivery() {
        // Guards the guard: a well-formed plaintext must come out, or the target tests nothing.
        let mut packet =
            vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0];
        ironswan_wire::ip::v4::set_checksum(&mut packet[..20]);
        packet.extend_from_slice(&[1, 2, 2, 4]);
        let engine = engine();
        let mut worker = Worker::new(engine.clone());
        let mut buf = Vec::new();
        seal(&mut buf, 0, 1, &packet);
        let addr = std::net::SocketAddr::from(([192, 0, 2, 1], 4500));
        let d = Datagram {
            offset: 0,
            len: buf.len() as u32,
            segment_size: 0,
            local: addr,
            remote: addr,
            carrier: Carrier::Udp,
            tos: 0,
        };
        let mut rx = RxBatch::new();
        worker.inbound(&mut buf, &[d], &mut rx);
        assert_eq!(rx.writes.len(), 1);
        esp_inbound(&record(0, &packet));
    }
}
