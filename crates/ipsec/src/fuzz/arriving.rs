//! Everything that can arrive at an engine with SAs of every kind: well-sealed nonsense, damaged
//! packets, and anything else.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_crypto::rng::Seeded;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::{protocol, v4};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Command, Direction, Lifetime, Mode, OriginalAddresses, ReqId, SaAdd, SaOptions, Spi,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::{Carrier, Config, Datagram, Engine, RxBatch, Worker, ah, demux};

/// SAs of the engine. The SPI of the n-th is `0x100 + n`.
const SAS: usize = 12;
/// The CPI of those with IPComp.
const CPI: u16 = 0x4321;

/// What the n-th SA is.
fn sa(n: usize) -> SaAdd {
    let suite = |encr, key_bits, integ, esn| EspSuite { encr, key_bits, integ, ke: None, esn };
    let gcm = suite(EncrId::AES_GCM_16, 128, None, false);
    let cbc = suite(EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128), false);
    let sha = suite(EncrId::NULL, 0, Some(IntegId::HMAC_SHA2_256_128), false);
    let gmac = suite(EncrId::NULL, 0, Some(IntegId::AES_256_GMAC), true);
    let all = SaOptions { ipcomp: Some(CPI), copy_ecn: false, dscp_in: true, ..SaOptions::default() };
    let nat = SaOptions {
        original: Some(OriginalAddresses {
            local: IpAddr::from([10, 0, 0, 1]),
            remote: IpAddr::from([10, 9, 9, 9]),
        }),
        ..SaOptions::default()
    };
    let none = SaOptions::default();
    let (tunnel, transport) = (Mode::Tunnel, Mode::Transport);
    let (protocol, mode, suite, options) = match n {
        0 => (ProtocolId::ESP, tunnel, gcm, none),
        1 => (ProtocolId::ESP, tunnel, cbc, none),
        2 => (ProtocolId::ESP, tunnel, suite(EncrId::CHACHA20_POLY1305, 256, None, true), none),
        3 => (ProtocolId::ESP, tunnel, gcm, all),
        4 => (ProtocolId::ESP, transport, gcm, none),
        5 => (ProtocolId::ESP, transport, cbc, nat),
        6 => (ProtocolId::ESP, transport, gcm, SaOptions { ipcomp: Some(CPI), ..nat }),
        7 => (ProtocolId::AH, tunnel, sha, none),
        8 => (ProtocolId::AH, tunnel, gmac, all),
        9 => (ProtocolId::AH, transport, sha, none),
        10 => (ProtocolId::AH, transport, gmac, SaOptions { ipcomp: Some(CPI), ..none }),
        _ => {
            (ProtocolId::ESP, transport, suite(EncrId::AES_CTR, 256, Some(IntegId::HMAC_SHA1_96), true), all)
        }
    };
    let (encr_len, integ_len) = match protocol {
        ProtocolId::AH => (0, suite.integ.and_then(icv::key_len).unwrap_or(0)),
        _ => batch::keymat_lens(&suite).unwrap_or((0, 0)),
    };
    let any = |ipv6| TrafficSelector::addresses(AddrRange::any(ipv6));
    let addr = SocketAddr::from(([192, 0, 2, 1], 4500));
    SaAdd {
        direction: Direction::In,
        protocol,
        spi: Spi(0x100 + n as u32),
        reqid: ReqId(1),
        local: addr,
        remote: addr,
        udp_encap: protocol == ProtocolId::ESP,
        mode,
        suite,
        options,
        encr_key: Secret::new(vec![n as u8; encr_len]),
        integ_key: Secret::new(vec![0x55; integ_len]),
        replay_window: [0, 33, 4096][n % 3],
        local_ts: vec![any(false), any(true)],
        remote_ts: vec![any(false), any(true)],
        lifetime: Lifetime::default(),
        notify_first_use: true,
    }
}

enum Key {
    Esp(Box<EspKey>),
    Ah(Box<IcvKey>),
}

/// Keys that seal what the engine opens.
static SENDER: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let key = |sa: SaAdd| match (sa.protocol, sa.suite.integ) {
        (ProtocolId::AH, Some(integ)) => IcvKey::new(integ, sa.integ_key.expose(), sa.suite.esn).map(Key::Ah),
        _ => EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(1))
            .map(Key::Esp),
    };
    (0..SAS).map(|n| key(sa(n)).expect("the sender's own keys")).collect()
});

fn engine() -> Arc<Engine> {
    let engine = Engine::new(Box::new(Seeded::new(2)), Config::default());
    for n in 0..SAS {
        engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(sa(n)))).expect("the fuzzed engine's own SA");
    }
    engine
}

/// Where packets come from, and where they go, by family.
fn path(ipv6: bool) -> (SocketAddr, SocketAddr) {
    if ipv6 {
        let addr = |last| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 4500));
        (addr(1), addr(2))
    } else {
        (SocketAddr::from(([192, 0, 2, 1], 4500)), SocketAddr::from(([192, 0, 2, 2], 4500)))
    }
}

/// The engine's inbound half. The input is read as a list of packets, each
/// `kind, length (2 bytes), bytes`:
///
/// - kinds 0 to 2: the bytes are the plaintext (inner packet, padding, trailer) that an authentic
///   peer seals for SA 0 to 2, so that what is behind the ICV is fuzzed;
/// - 3 to 5: the same, and the sealed packet is damaged by its first plaintext byte;
/// - 0x10 to 0x2f: the same for SA `kind % 16`, damaged from 0x20 on; of an AH SA the first byte
///   chooses the headers in front of AH, and the last one is the next header;
/// - 0x30 to 0x3f: the bytes are what came under an IP header, or with it;
/// - else: the bytes are a datagram in UDP as they are.
///
/// All packets go through [`demux`] and one inbound call. Panics when the books do not balance,
/// when something unauthentic is delivered, or when a write is not what the device accepts. The
/// result tells how far the input came: which counters it moved.
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
        let (n, damaged) = match kind {
            0..6 => (Some(usize::from(*kind) % 3), *kind >= 3),
            0x10..0x30 => (Some(usize::from(*kind) % 16 % SAS), *kind >= 0x20),
            _ => (None, false),
        };
        let mut carrier = if kind & 0xf0 == 0x30 { Carrier::Esp } else { Carrier::Udp };
        if let Some(n) = n {
            seq += 1;
            carrier = seal(&mut buf, n, seq, bytes);
            if damaged {
                let at = usize::from(bytes.first().copied().unwrap_or(0)) % (buf.len() - start);
                buf[start + at] ^= 0x10;
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
            segment_size: if kind & 0x40 != 0 { u16::from(*kind) } else { 0 },
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
    // A header in front of AH has bytes that may be damaged without anyone noticing.
    let delivered = counters.traffic.in_writes + counters.traffic.in_merged;
    assert!(delivered <= authentic + damaged_ah(data), "something unauthentic was delivered");
    assert!(rx.extra.len() <= RxBatch::MAX_EXTRA + 65_535 + 60);
    for write in &rx.writes {
        let bytes = rx.gather(&buf, write);
        assert_eq!(bytes.len(), write.total as usize);
        let info = ironswan_wire::ip::parse(&bytes).expect("what is delivered is an IP packet");
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

/// How many packets of AH SAs were damaged.
fn damaged_ah(data: &[u8]) -> u64 {
    let (mut rest, mut count) = (data, 0);
    while let [kind, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let n = usize::from(*kind) % 16 % SAS;
        count += u64::from((0x20..0x30).contains(kind) && matches!(SENDER[n], Key::Ah(_)));
        rest = &after[len..];
    }
    count
}

/// Appends a packet with this plaintext, made whole blocks, and says what it is carried in.
fn seal(buf: &mut Vec<u8>, n: usize, seq: u64, text: &[u8]) -> Carrier {
    let start = buf.len();
    match &SENDER[n] {
        Key::Esp(key) => {
            buf.extend_from_slice(&(0x100 + n as u32).to_be_bytes());
            buf.extend_from_slice(&(seq as u32).to_be_bytes());
            buf.resize(buf.len() + key.iv_len(), 0);
            let missing = text.len().max(2).next_multiple_of(key.block_len()) - text.len();
            buf.resize(buf.len() + missing, 0);
            buf.extend_from_slice(text);
            buf.resize(buf.len() + key.icv_len(), 0);
            let mut jobs =
                [Job { start: start as u32, len: (buf.len() - start) as u32, seq, key: 0, ok: false }];
            batch::seal(buf, &mut jobs, &[key]);
            assert!(jobs[0].ok, "the sender's own packet");
            Carrier::Udp
        }
        Key::Ah(key) => {
            let (first, payload) = text.split_first().unwrap_or((&0, &[]));
            let (next_header, payload) = payload.split_last().unwrap_or((&protocol::NONE, &[]));
            let len = ah::header_len(key.field_len(), first & 1 != 0);
            head(buf, *first, len + payload.len());
            let at = buf.len();
            buf.resize(at + len, 0);
            ah::emit(&mut buf[at..], *next_header, 0x100 + n as u32, seq as u32);
            buf.extend_from_slice(payload);
            let mut heads = Vec::new();
            if ah::immutable(&buf[start..at], &mut heads).is_err() {
                return Carrier::Ip;
            }
            let mut jobs = [IcvJob {
                head: 0,
                head_len: heads.len() as u32,
                start: at as u32,
                len: (buf.len() - at) as u32,
                field: (at + ah::FIXED) as u32,
                seq,
                key: 0,
                ok: false,
            }];
            icv::sign(&heads, buf, &mut jobs, &[key]);
            assert!(jobs[0].ok, "the sender's own packet");
            Carrier::Ip
        }
    }
}

/// Appends an outer header in front of `rest` bytes of AH and payload, of the kind that `which`
/// says.
fn head(buf: &mut Vec<u8>, which: u8, rest: usize) {
    let (remote, local) = path(which & 1 != 0);
    match (remote.ip(), local.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let options: &[u8] =
                if which & 2 != 0 { &[148, 4, 0, 0, 131, 7, 4, 10, 0, 0, 1, 0] } else { &[] };
            let start = buf.len();
            let total = ((20 + options.len() + rest) as u16).to_be_bytes();
            buf.extend_from_slice(&[0x45 + (options.len() / 4) as u8, which, total[0], total[1]]);
            buf.extend_from_slice(&[0, which, 0x40, 0, which | 1, protocol::AH, 0, 0]);
            buf.extend_from_slice(&src.octets());
            buf.extend_from_slice(&dst.octets());
            buf.extend_from_slice(options);
            v4::set_checksum(&mut buf[start..]);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let options: &[u8] =
                if which & 2 != 0 { &[60, 0, 0x3e, 2, 7, 7, 1, 0, 51, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
            let first = if options.is_empty() { protocol::AH } else { 0 };
            let payload = ((options.len() + rest) as u16).to_be_bytes();
            buf.extend_from_slice(&[0x60, 0, 0, which, payload[0], payload[1], first, which | 1]);
            buf.extend_from_slice(&src.octets());
            buf.extend_from_slice(&dst.octets());
            buf.extend_from_slice(options);
        }
        _ => {}
    }
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
                    // Half of them look like the end of a packet, so that the steps behind the
                    // trailer are reached.
                    let mut bytes = bytes.clone();
                    if *valid && bytes.len() > 30 {
                        bytes[0] = 0x45;
                        let len = bytes.len() as u16 - 2;
                        bytes[2..4].copy_from_slice(&len.to_be_bytes());
                        v4::set_checksum(&mut bytes[..20]);
                        let n = bytes.len();
                        bytes[n - 2..].copy_from_slice(&[0, 4]);
                    }
                    record(if *valid { kind % 9 } else { kind % 0x48 }, &bytes)
                })
                .collect();
            esp_inbound(&data);
        }
    }

    #[test]
    fn every_kind_of_sa_delivers() {
        // Guards the guard: well-formed plaintext must come out of each, or the target tests
        // nothing.
        let mut packet =
            vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0];
        v4::set_checksum(&mut packet[..20]);
        for n in 0..SAS {
            let sa = sa(n);
            let is_ah = sa.protocol == ProtocolId::AH;
            let (payload, next) = match sa.mode {
                Mode::Tunnel => (&packet[..], 4),
                Mode::Transport => (&packet[20..], 17),
            };
            // Without compression, and stored in a block of DEFLATE.
            let mut stored = vec![next, 0, 0x43, 0x21, 1];
            stored.extend_from_slice(&(payload.len() as u16).to_le_bytes());
            stored.extend_from_slice(&(!(payload.len() as u16)).to_le_bytes());
            stored.extend_from_slice(payload);
            let mut texts = vec![(payload.to_vec(), next)];
            if sa.options.ipcomp.is_some() {
                texts.push((stored, protocol::IPCOMP));
            }
            for (payload, next) in texts {
                for first in if is_ah { 0..4 } else { 0..1 } {
                    let text = if is_ah {
                        [&[first], &payload[..], &[next]].concat()
                    } else {
                        let mut text = payload.clone();
                        let pad = (14usize.wrapping_sub(text.len()) % 16) as u8;
                        text.extend(1..=pad);
                        text.extend_from_slice(&[pad, next]);
                        text
                    };
                    let engine = engine();
                    let mut worker = Worker::new(engine.clone());
                    let mut buf = Vec::new();
                    let carrier = seal(&mut buf, n, 1, &text);
                    let (remote, local) = path(false);
                    let len = buf.len() as u32;
                    let d = Datagram { offset: 0, len, segment_size: 0, local, remote, carrier, tos: 0 };
                    let mut rx = RxBatch::new();
                    worker.inbound(&mut buf, &[d], &mut rx);
                    assert_eq!(rx.writes.len(), 1, "{n} {first}: {:?}", engine.counters());
                    esp_inbound(&record(0x10 + n as u8, &text));
                }
            }
        }
    }
}
