//! A peer of our own making, that seals what it is told to: for what is behind the ICV and in front
//! of AH.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Carrier, Datagram, DropReason, Engine, RxBatch, Worker};
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Command, Direction, Mode, SaAdd, SaOptions};
use ironswan_wire::secret::Secret;

use crate::common::*;

pub const IPCOMP: u8 = 108;

/// What an SA is made of, beside the defaults of [`Options`].
#[derive(Clone)]
pub struct Make {
    pub options: Options,
    pub mode: Mode,
    /// AH with this algorithm and its key length.
    pub ah: Option<(IntegId, usize)>,
    pub sa: SaOptions,
    pub spi: u32,
}

impl Default for Make {
    fn default() -> Self {
        Self { options: Options::default(), mode: Mode::Tunnel, ah: None, sa: SaOptions::default(), spi: SPI }
    }
}

pub const SHA256: (IntegId, usize) = (IntegId::HMAC_SHA2_256_128, 32);
pub const AH_ALGORITHMS: [(IntegId, usize); 10] = [
    (IntegId::HMAC_MD5_96, 16),
    (IntegId::HMAC_SHA1_96, 20),
    (IntegId::AES_XCBC_96, 16),
    (IntegId::AES_CMAC_96, 16),
    SHA256,
    (IntegId::HMAC_SHA2_384_192, 48),
    (IntegId::HMAC_SHA2_512_256, 64),
    (IntegId::AES_128_GMAC, 20),
    (IntegId::AES_192_GMAC, 28),
    (IntegId::AES_256_GMAC, 36),
];

/// AH SAs.
pub fn ah() -> Make {
    Make { ah: Some(SHA256), ..Make::default() }
}

/// Between the two outer addresses.
pub fn transport() -> Make {
    Make { mode: Mode::Transport, ..Make::default() }.between_hosts()
}

impl Make {
    /// Selectors of the two hosts themselves.
    pub fn between_hosts(mut self) -> Self {
        let host = |addr: SocketAddr| ts(&format!("{}/{}", addr.ip(), if addr.is_ipv4() { 32 } else { 128 }));
        let (a, b) = self.options.outer();
        (self.options.left, self.options.right) = (vec![host(a)], vec![host(b)]);
        self
    }

    pub fn over_v6(mut self) -> Self {
        self.options.outer_v6 = true;
        if self.mode == Mode::Transport { self.between_hosts() } else { self }
    }

    pub fn with_ipcomp(mut self, cpi: u16) -> Self {
        self.sa.ipcomp = Some(cpi);
        self
    }

    /// B's inbound SA.
    pub fn sa(&self) -> SaAdd {
        let mut sa = self.options.sa(Direction::In, self.spi, REQID, 42);
        (sa.mode, sa.options) = (self.mode, self.sa);
        if let Some((integ, len)) = self.ah {
            sa.protocol = ProtocolId::AH;
            sa.udp_encap = false;
            sa.suite = EspSuite {
                encr: EncrId::NULL,
                key_bits: 0,
                integ: Some(integ),
                ke: None,
                esn: self.options.esn,
            };
            sa.encr_key = Secret::new(Vec::new());
            sa.integ_key = Secret::new(bytes(len, u64::from(self.spi)));
        }
        sa
    }
}

/// A packet on its way to B.
#[derive(Clone, Debug)]
pub struct Arriving {
    pub carrier: Carrier,
    pub tos: u8,
    pub bytes: Vec<u8>,
    pub remote: SocketAddr,
    pub local: SocketAddr,
}

/// B's engine, with one or more SAs.
pub struct Receiver {
    pub makes: Vec<Make>,
    pub engine: Arc<Engine>,
    pub worker: Worker,
    pub rx: RxBatch,
}

impl Receiver {
    pub fn new(make: Make) -> Self {
        Self::with(vec![make])
    }

    pub fn with(makes: Vec<Make>) -> Self {
        let engine = Engine::new(Box::new(Seeded::new(2)), config());
        for make in &makes {
            engine.apply(SECOND, &Command::SaAdd(Box::new(make.sa()))).unwrap();
        }
        let mut worker = Worker::new(engine.clone());
        worker.begin(SECOND);
        Self { makes, engine, worker, rx: RxBatch::new() }
    }

    /// B's and A's outer addresses.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let (a, b) = self.makes[0].options.outer();
        (b, a)
    }

    pub fn arriving(&self, carrier: Carrier, bytes: Vec<u8>) -> Arriving {
        let (local, remote) = self.addresses();
        Arriving { carrier, tos: 0, bytes, remote, local }
    }

    /// Seals a text (payload, padding, trailer) as the peer of the first SA does.
    pub fn esp_text(&self, seq: u64, text: &[u8]) -> Arriving {
        self.esp_of(0, seq, text)
    }

    pub fn esp_of(&self, which: usize, seq: u64, text: &[u8]) -> Arriving {
        let sa = self.makes[which].sa();
        let key =
            EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(9)).unwrap();
        let mut p = sa.spi.0.to_be_bytes().to_vec();
        p.extend_from_slice(&(seq as u32).to_be_bytes());
        p.resize(8 + key.iv_len(), 0);
        p.extend_from_slice(text);
        p.resize(p.len() + key.icv_len(), 0);
        let mut jobs = [Job { start: 0, len: p.len() as u32, seq, key: 0, ok: false }];
        batch::seal(&mut p, &mut jobs, &[&key]);
        assert!(jobs[0].ok);
        self.arriving(carrier(sa.udp_encap), p)
    }

    /// Seals a payload.
    pub fn esp(&self, seq: u64, payload: &[u8], next_header: u8) -> Arriving {
        self.esp_text(seq, &text(payload, next_header, 16))
    }

    /// The outer IP header that the peer puts in front of AH: `options` are IPv4 options, or IPv6
    /// extension headers whose last one says that AH follows.
    pub fn outer(&self, options: &[u8], first: u8, rest: usize) -> Vec<u8> {
        let (local, remote) = self.addresses();
        match (remote.ip(), local.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let total = (20 + options.len() + rest) as u16;
                let mut h = vec![0x45 + (options.len() / 4) as u8, 0x28];
                h.extend_from_slice(&total.to_be_bytes());
                h.extend_from_slice(&[0x12, 0x34, 0x40, 0, 57, 51, 0, 0]);
                h.extend_from_slice(&a.octets());
                h.extend_from_slice(&b.octets());
                h.extend_from_slice(options);
                v4::set_checksum(&mut h);
                h
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mut h = vec![0x62, 0x8a, 0xbc, 0xde];
                h.extend_from_slice(&((options.len() + rest) as u16).to_be_bytes());
                h.extend_from_slice(&[first, 57]);
                h.extend_from_slice(&a.octets());
                h.extend_from_slice(&b.octets());
                h.extend_from_slice(options);
                h
            }
            _ => panic!("families differ"),
        }
    }

    /// A whole packet with AH, as the peer of SA `which` sends it, from a header with its mutable
    /// fields as they are sent, and `masked` with these zeroed.
    pub fn ah_between(
        &self,
        which: usize,
        seq: u64,
        (head, masked): (&[u8], &[u8]),
        payload: &[u8],
        next_header: u8,
    ) -> Arriving {
        let sa = self.makes[which].sa();
        let key = IcvKey::new(sa.suite.integ.unwrap(), sa.integ_key.expose(), sa.suite.esn).unwrap();
        let len = ah_len(key.field_len(), head[0] >> 4 == 6);
        let mut p = head.to_vec();
        p.extend_from_slice(&[next_header, (len / 4 - 2) as u8, 0, 0]);
        p.extend_from_slice(&sa.spi.0.to_be_bytes());
        p.extend_from_slice(&(seq as u32).to_be_bytes());
        p.resize(head.len() + len, 0);
        p.extend_from_slice(payload);
        let mut jobs = [IcvJob {
            head: 0,
            head_len: masked.len() as u32,
            start: head.len() as u32,
            len: (p.len() - head.len()) as u32,
            field: head.len() as u32 + 12,
            seq,
            key: 0,
            ok: false,
        }];
        icv::sign(masked, &mut p, &mut jobs, &[&key]);
        assert!(jobs[0].ok);
        self.arriving(Carrier::Ip, p)
    }

    /// The same with an ordinary outer header.
    pub fn ah(&self, seq: u64, payload: &[u8], next_header: u8) -> Arriving {
        self.ah_of(0, seq, payload, next_header)
    }

    pub fn ah_of(&self, which: usize, seq: u64, payload: &[u8], next_header: u8) -> Arriving {
        let make = &self.makes[which];
        let (_, key_len) = make.ah.unwrap();
        let sa = make.sa();
        let key = IcvKey::new(sa.suite.integ.unwrap(), &bytes(key_len, 1), false).unwrap();
        let len = ah_len(key.field_len(), make.options.outer_v6);
        let head = self.outer(&[], 51, len + payload.len());
        self.ah_between(which, seq, (&head, &masked(&head)), payload, next_header)
    }

    /// Takes a batch, and returns the writes.
    pub fn take(&mut self, arriving: &[Arriving]) -> Vec<(Offload, Vec<u8>)> {
        let mut buf = Vec::new();
        let mut datagrams = Vec::new();
        for a in arriving {
            datagrams.push(Datagram {
                offset: buf.len() as u32,
                len: a.bytes.len() as u32,
                segment_size: 0,
                local: a.local,
                remote: a.remote,
                carrier: a.carrier,
                tos: a.tos,
            });
            buf.extend_from_slice(&a.bytes);
        }
        self.rx.clear();
        self.worker.inbound(&mut buf, &datagrams, &mut self.rx);
        assert!(self.engine.counters().balance(), "{:?}", self.engine.counters());
        self.rx
            .writes
            .iter()
            .map(|w| {
                let bytes = self.rx.gather(&buf, w);
                assert_eq!(bytes.len(), w.total as usize);
                (w.offload, bytes)
            })
            .collect()
    }

    /// Takes packets one after the other, and returns what is delivered.
    pub fn each(&mut self, arriving: &[Arriving]) -> Vec<Vec<u8>> {
        arriving.iter().flat_map(|a| self.take(std::slice::from_ref(a))).map(|(_, p)| p).collect()
    }

    /// The only packet is delivered so.
    pub fn delivers(&mut self, arriving: &Arriving) -> Vec<u8> {
        let mut out = self.each(std::slice::from_ref(arriving));
        assert_eq!(out.len(), 1, "{:?}", self.engine.counters());
        out.remove(0)
    }

    /// The only packet is dropped for this reason, and counted once.
    pub fn refuses(&mut self, arriving: &Arriving, reason: DropReason) {
        let before = self.engine.counters();
        assert_eq!(self.each(std::slice::from_ref(arriving)), Vec::<Vec<u8>>::new());
        let after = self.engine.counters();
        let all: Vec<_> = after.drops().filter(|(r, n)| *n != before.dropped(*r)).collect();
        assert_eq!(all, [(reason, before.dropped(reason) + 1)]);
    }

    /// The highest sequence number accepted by the first SA.
    pub fn top(&self) -> u64 {
        self.top_of(SPI)
    }

    pub fn top_of(&self, spi: u32) -> u64 {
        self.engine.sas().iter().find(|sa| sa.sa.spi.0 == spi).unwrap().sequence
    }
}

/// Length of AH around a field of IV and ICV (RFC 4302 section 2.6).
pub fn ah_len(field: usize, ipv6: bool) -> usize {
    let unit = if ipv6 { 8 } else { 4 };
    (12 + field).div_ceil(unit) * unit
}

/// A header without options, its mutable fields zeroed, written the plain way (RFC 4302 section
/// 3.3.3.1).
pub fn masked(head: &[u8]) -> Vec<u8> {
    let mut m = head.to_vec();
    if m[0] >> 4 == 4 {
        for at in [1, 6, 7, 8, 10, 11] {
            m[at] = 0;
        }
    } else {
        m[0] = 0x60;
        for at in [1, 2, 3, 7] {
            m[at] = 0;
        }
    }
    m
}

/// A text with padding to a multiple of `block` and a next header.
pub fn text(inner: &[u8], next_header: u8, block: usize) -> Vec<u8> {
    let mut t = inner.to_vec();
    let mut pad = 0u8;
    while !(t.len() + 2).is_multiple_of(block) {
        pad += 1;
        t.push(pad);
    }
    t.extend_from_slice(&[pad, next_header]);
    t
}

/// The protocol of a packet, and what is behind its header without options.
pub fn upper(packet: &[u8]) -> (u8, &[u8]) {
    if packet[0] >> 4 == 4 { (packet[9], &packet[20..]) } else { (packet[6], &packet[40..]) }
}

/// A packet between the outer addresses of `make`: as the hosts themselves send it.
pub fn host_packet(make: &Make, spec: Spec) -> Vec<u8> {
    let (a, b) = make.options.outer();
    Spec { v6: a.is_ipv6(), src: a.ip(), dst: b.ip(), ..spec }.build()
}

/// IPComp around bytes that are stored, not compressed: a DEFLATE block of type 0 (RFC 1951 section
/// 3.2.4).
pub fn ipcomp(cpi: u16, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![next_header, 0];
    p.extend_from_slice(&cpi.to_be_bytes());
    p.push(1);
    p.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    p.extend_from_slice(&(!(payload.len() as u16)).to_le_bytes());
    p.extend_from_slice(payload);
    p
}

/// IPComp around `first` and then `runs` times 258 bytes that repeat the last: fixed Huffman codes
/// (RFC 1951 section 3.2.6).
pub fn bomb(cpi: u16, next_header: u8, first: &[u8], runs: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = vec![true, true, false];
    // Huffman codes go in from their highest bit.
    let mut code = |value: u16, len: u32| bits.extend((0..len).rev().map(|i| value >> i & 1 != 0));
    for byte in first {
        match byte {
            0..=143 => code(0x30 + u16::from(*byte), 8),
            144.. => code(0x190 + u16::from(*byte) - 144, 9),
        }
    }
    for _ in 0..runs {
        // Length 258 at distance 1.
        code(0xc5, 8);
        code(0, 5);
    }
    code(0, 7);
    let mut p = vec![next_header, 0];
    p.extend_from_slice(&cpi.to_be_bytes());
    for byte in bits.chunks(8) {
        p.push(byte.iter().enumerate().fold(0, |b, (i, bit)| b | u8::from(*bit) << i));
    }
    p
}
