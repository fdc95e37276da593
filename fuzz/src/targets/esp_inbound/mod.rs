//! Everything that can arrive at an engine with SAs of every kind: well-sealed nonsense, damaged
//! packets, and any other bytes.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `sender` | the engine's SAs, and the peer that seals packets for them |

mod sender;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Carrier, Config, Datagram, Engine, RxBatch, Worker, demux};
use ironswan_wire::ip::v4;
use ironswan_wire::sadb::Command;

use sender::{SA_COUNT, is_ah, path, sa, seal};

/// Record kinds with lengths, beginnings of inner packets, trailers.
pub const DICTIONARY: &[&[u8]] = &[
    &[0, 0, 40],
    &[1, 0, 32],
    &[2, 0, 64],
    &[3, 0, 40],
    &[0x46, 0, 60],
    &[0, 0, 1, 0, 0, 0, 0, 1],
    &[0x45, 0, 0, 40],
    &[0x60, 0, 0, 0],
    &[0, 4],
    &[0, 41],
    &[0, 59],
    &[1, 2, 2, 4],
    &[1, 1, 4],
    &[0xff],
];

/// An engine with all SAs of [`sa`].
fn engine() -> Arc<Engine> {
    let engine = Engine::new(Box::new(Seeded::new(2)), Config::default());
    for n in 0..SA_COUNT {
        engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(sa(n)))).expect("the fuzzed engine's own SA");
    }
    engine
}

/// One record of the input.
struct Record<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl Record<'_> {
    /// The SA that this record's packet is sealed for, and whether it is then damaged. `None` when
    /// the record's bytes are the packet.
    fn sealed_for(&self) -> Option<(usize, bool)> {
        match self.kind {
            0..6 => Some((usize::from(self.kind) % 3, self.kind >= 3)),
            0x10..0x30 => Some((usize::from(self.kind) % 16 % SA_COUNT, self.kind >= 0x20)),
            _ => None,
        }
    }
}

/// Splits the input into records. The last one is cut off where the input ends.
fn records(data: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let [kind, high, low, after @ ..] = rest else { return None };
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (bytes, after) = after.split_at(len);
        rest = after;
        Some(Record { kind: *kind, bytes })
    })
}

/// Gives the packets that the bytes describe to the engine. The input is a list of records, each
/// `kind, length (2 bytes), bytes`:
///
/// - kinds 0 to 2: the bytes are the plaintext (inner packet, padding, trailer) that an authentic
///   peer seals for SA 0 to 2, so that the code behind the ICV is fuzzed;
/// - 3 to 5: the same, and the sealed packet is damaged at the offset that its first plaintext byte
///   names;
/// - 0x10 to 0x2f: the same for SA `kind % 16`, damaged from 0x20 on; of an AH SA the first byte
///   chooses the headers in front of AH, and the last one is the next header;
/// - 0x30 to 0x3f: the bytes are a packet without its IP header, or with it;
/// - all others: the bytes are the payload of one UDP datagram.
///
/// All packets go through [`demux`] and one inbound call. Panics when the books do not balance,
/// when an unauthentic packet is delivered, or when a write is not one that the device accepts. The
/// result tells how far the input came: which counters it moved.
pub fn run(data: &[u8]) -> u64 {
    let engine = engine();
    let mut worker = Worker::new(engine.clone());
    let (mut buf, mut datagrams) = (Vec::new(), Vec::new());
    let (mut seq, mut authentic, mut damaged_ah) = (0u64, 0u64, 0u64);
    for record in records(data) {
        let (kind, bytes) = (record.kind, record.bytes);
        let start = buf.len();
        let mut carrier = if kind & 0xf0 == 0x30 { Carrier::Esp } else { Carrier::Udp };
        if let Some((n, damaged)) = record.sealed_for() {
            seq += 1;
            carrier = seal(&mut buf, n, seq, bytes);
            if damaged {
                let at = usize::from(bytes.first().copied().unwrap_or(0)) % (buf.len() - start);
                buf[start + at] ^= 0x10;
                damaged_ah += u64::from(is_ah(n));
            } else {
                authentic += 1;
            }
        } else {
            buf.extend_from_slice(bytes);
            if kind & 0xf8 == 0x38 {
                carrier = Carrier::Ip;
            }
        }
        let (remote, local) = path(kind & 0x81 == 0x81);
        let datagram = Datagram {
            offset: start as u32,
            len: (buf.len() - start) as u32,
            segment_size: if kind & 0x40 != 0 { u16::from(kind) } else { 0 },
            local,
            remote,
            carrier,
            tos: kind >> 2,
        };
        match carrier {
            Carrier::Udp => demux(&buf, &datagram, &mut datagrams, |_, _| ()),
            _ => datagrams.push(datagram),
        }
    }
    let mut rx = RxBatch::new();
    worker.begin(Duration::from_secs(1));
    worker.inbound(&mut buf, &datagrams, &mut rx);
    let counters = engine.counters();
    assert!(counters.balance(), "{counters:?}");
    // The ICV of AH leaves out bytes of the header in front, so damage there may go unnoticed.
    let delivered = counters.traffic.in_writes + counters.traffic.in_merged;
    assert!(delivered <= authentic + damaged_ah, "an unauthentic packet was delivered");
    assert!(rx.extra.len() <= RxBatch::MAX_EXTRA + 65_535 + 60);
    for write in &rx.writes {
        let bytes = rx.gather(&buf, write);
        assert_eq!(bytes.len(), write.total as usize);
        let info = ironswan_wire::ip::parse(&bytes).expect("an IP packet is delivered");
        assert_eq!(info.total_len, bytes.len());
        assert!(info.ipv6 || v4::checksum_ok(&bytes[..info.upper]), "with a right header checksum");
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
