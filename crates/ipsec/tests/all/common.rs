//! Packets, SAs and two engines facing each other, for tests and benches.
#![allow(dead_code, reason = "each test program uses a part")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{
    Carrier, Config, Datagram, DropReason, Engine, RxBatch, Send, TxBatch, TxConfig, Worker,
};
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::{tcp, v4};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, SaRef, SaStats,
    Spi, Up,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

pub const SECOND: Duration = Duration::from_secs(1);

/// An algorithm choice with the lengths of its keys.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    pub name: &'static str,
    pub suite: EspSuite,
    pub encr_len: usize,
    pub integ_len: usize,
}

const fn algorithm(
    name: &'static str,
    encr: EncrId,
    key_bits: u16,
    salt: usize,
    integ: Option<(IntegId, usize)>,
) -> Algorithm {
    let (integ, integ_len) = match integ {
        Some((id, len)) => (Some(id), len),
        None => (None, 0),
    };
    let suite = EspSuite { encr, key_bits, integ, ke: None, esn: false };
    Algorithm { name, suite, encr_len: key_bits as usize / 8 + salt, integ_len }
}

pub const AES128GCM: Algorithm = algorithm("aes128gcm16", EncrId::AES_GCM_16, 128, 4, None);
pub const AES256GCM: Algorithm = algorithm("aes256gcm16", EncrId::AES_GCM_16, 256, 4, None);
pub const CHACHA: Algorithm = algorithm("chacha20poly1305", EncrId::CHACHA20_POLY1305, 256, 4, None);
pub const CBC_SHA1: Algorithm =
    algorithm("aes128-sha1", EncrId::AES_CBC, 128, 0, Some((IntegId::HMAC_SHA1_96, 20)));
pub const CBC_SHA256: Algorithm =
    algorithm("aes128-sha256", EncrId::AES_CBC, 128, 0, Some((IntegId::HMAC_SHA2_256_128, 32)));
pub const CBC_SHA384: Algorithm =
    algorithm("aes192-sha384", EncrId::AES_CBC, 192, 0, Some((IntegId::HMAC_SHA2_384_192, 48)));
pub const CBC_SHA512: Algorithm =
    algorithm("aes256-sha512", EncrId::AES_CBC, 256, 0, Some((IntegId::HMAC_SHA2_512_256, 64)));

pub const ALGORITHMS: [Algorithm; 6] = [AES128GCM, AES256GCM, CHACHA, CBC_SHA256, CBC_SHA384, CBC_SHA512];

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The selector of a prefix, `10.1.0.0/16`.
pub fn ts(text: &str) -> TrafficSelector {
    let (addr, len) = text.split_once('/').unwrap();
    TrafficSelector::addresses(AddrRange::prefix(ip(addr), len.parse().unwrap()).unwrap())
}

/// What a test wants of its SA.
#[derive(Clone, Debug)]
pub struct Options {
    pub algorithm: Algorithm,
    pub esn: bool,
    pub window: u32,
    pub udp_encap: bool,
    pub outer_v6: bool,
    pub lifetime: Lifetime,
    pub notify_first_use: bool,
    /// Sides of A, IPv4 and IPv6.
    pub left: Vec<TrafficSelector>,
    /// Sides of B.
    pub right: Vec<TrafficSelector>,
    pub tx: TxConfig,
    /// Of both gateways.
    pub engines: Engines,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            algorithm: AES128GCM,
            esn: false,
            window: 4096,
            udp_encap: true,
            outer_v6: false,
            lifetime: Lifetime::default(),
            notify_first_use: false,
            left: vec![ts("10.1.0.0/16"), ts("fd01::/32")],
            right: vec![ts("10.2.0.0/16"), ts("fd02::/32")],
            tx: TxConfig::default(),
            engines: Engines::of_environment(),
        }
    }
}

impl Options {
    pub fn outer(&self) -> (SocketAddr, SocketAddr) {
        let (a, b) =
            if self.outer_v6 { ("[2001:db8::1]", "[2001:db8::2]") } else { ("192.0.2.1", "192.0.2.2") };
        (format!("{a}:4500").parse().unwrap(), format!("{b}:4500").parse().unwrap())
    }

    /// The SA from A to B, as A's outbound or B's inbound one.
    pub fn sa(&self, direction: Direction, spi: u32, reqid: u32, keys: u64) -> SaAdd {
        let (a, b) = self.outer();
        let mut rng = Seeded::new(keys);
        let mut encr = vec![0; self.algorithm.encr_len];
        let mut integ = vec![0; self.algorithm.integ_len];
        rng.fill(&mut encr);
        rng.fill(&mut integ);
        let out = direction == Direction::Out;
        let (local, remote) = if out { (a, b) } else { (b, a) };
        let (left, right) = (self.left.clone(), self.right.clone());
        let (local_ts, remote_ts) = if out { (left, right) } else { (right, left) };
        SaAdd {
            direction,
            protocol: ProtocolId::ESP,
            spi: Spi(spi),
            reqid: ReqId(reqid),
            local,
            remote,
            udp_encap: self.udp_encap,
            mode: Mode::Tunnel,
            suite: EspSuite { esn: self.esn, ..self.algorithm.suite },
            options: SaOptions::default(),
            encr_key: Secret::new(encr),
            integ_key: Secret::new(integ),
            replay_window: self.window,
            local_ts,
            remote_ts,
            lifetime: self.lifetime,
            notify_first_use: self.notify_first_use,
        }
    }

    pub fn policies(&self, reqid: u32) -> Vec<PolicyAdd> {
        let mut out = Vec::new();
        for local in &self.left {
            for remote in self.right.iter().filter(|r| r.range.is_ipv6() == local.range.is_ipv6()) {
                out.push(PolicyAdd {
                    name: "net".into(),
                    action: Action::Protect(ReqId(reqid)),
                    local: *local,
                    remote: *remote,
                    priority: 0,
                    entry: Entry::default(),
                });
            }
        }
        out
    }
}

/// The settings of every engine of these tests.
pub fn config() -> Config {
    Config { engines: Engines::of_environment(), ..Config::default() }
}

/// All of these tests once more with each other engine that this machine has.
#[test]
#[cfg_attr(not(feature = "ipsec-mb"), ignore = "with the feature `ipsec-mb` all engines take part")]
fn every_engine_passes() {
    if std::env::var_os("IRONSWAN_ENGINE").is_some() {
        return;
    }
    use ironswan_crypto::engines::EngineId;
    for engine in EngineId::available().filter(|id| *id != EngineId::AwsLc) {
        let all = std::env::current_exe().expect("this program");
        let done =
            std::process::Command::new(all).env("IRONSWAN_ENGINE", engine.name()).output().expect("it runs");
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{engine}: {text}");
        println!("{engine}: {}", text.lines().rfind(|l| l.starts_with("test result")).unwrap_or_default());
    }
}

/// A sends to B.
pub struct Pair {
    pub options: Options,
    pub a: Arc<Engine>,
    pub b: Arc<Engine>,
    pub wa: Worker,
    pub wb: Worker,
    pub tx: TxBatch,
    pub rx: RxBatch,
}

pub const SPI: u32 = 0xc123_4567;
pub const REQID: u32 = 1;

impl Pair {
    pub fn new(options: Options) -> Self {
        let config = Config { engines: options.engines, ..Config::default() };
        let engine = |seed| Engine::new(Box::new(Seeded::new(seed)), config);
        let (a, b) = (engine(1), engine(2));
        for p in options.policies(REQID) {
            a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
        }
        let out = options.sa(Direction::Out, SPI, REQID, 42);
        a.apply(SECOND, &Command::SaAdd(Box::new(out))).unwrap();
        let inb = options.sa(Direction::In, SPI, REQID, 42);
        b.apply(SECOND, &Command::SaAdd(Box::new(inb))).unwrap();
        let (mut wa, mut wb) = (Worker::new(a.clone()), Worker::new(b.clone()));
        wa.begin(SECOND);
        wb.begin(SECOND);
        let tx = TxBatch::new(options.tx);
        Self { options, a, b, wa, wb, tx, rx: RxBatch::new() }
    }

    pub fn out_ref(&self) -> SaRef {
        let remote = self.options.outer().1.ip();
        SaRef { direction: Direction::Out, spi: Spi(SPI), reqid: ReqId(REQID), remote }
    }

    pub fn in_ref(&self) -> SaRef {
        let remote = self.options.outer().0.ip();
        SaRef { direction: Direction::In, spi: Spi(SPI), reqid: ReqId(REQID), remote }
    }

    /// Seals frames and returns each ESP packet.
    pub fn seal(&mut self, frames: &[(Vec<u8>, Offload)]) -> Vec<Vec<u8>> {
        self.tx.clear();
        for (frame, offload) in frames {
            assert!(self.wa.outbound(&mut frame.clone(), offload, &mut self.tx));
        }
        self.wa.seal(&mut self.tx);
        packets(&self.tx)
    }

    /// Seals one whole packet.
    pub fn seal_one(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut out = self.seal(&[(frame.to_vec(), Offload::NONE)]);
        assert_eq!(out.len(), 1, "{:?}", self.a.counters());
        out.remove(0)
    }

    /// Opens packets as one batch, each a datagram of its own, and returns the writes.
    pub fn open(&mut self, esp: &[Vec<u8>]) -> Vec<(Offload, Vec<u8>)> {
        self.open_tos(esp, 0)
    }

    pub fn open_tos(&mut self, esp: &[Vec<u8>], tos: u8) -> Vec<(Offload, Vec<u8>)> {
        let mut buf = Vec::new();
        let mut datagrams = Vec::new();
        let (remote, local) = self.options.outer();
        for p in esp {
            datagrams.push(Datagram {
                offset: buf.len() as u32,
                len: p.len() as u32,
                segment_size: 0,
                local,
                remote,
                carrier: carrier(self.options.udp_encap),
                tos,
            });
            buf.extend_from_slice(p);
        }
        self.rx.clear();
        self.wb.inbound(&mut buf, &datagrams, &mut self.rx);
        self.rx.writes.iter().map(|w| (w.offload, self.rx.gather(&buf, w))).collect()
    }

    /// Opens each packet in a batch of its own, so that nothing is merged.
    pub fn open_each(&mut self, esp: &[Vec<u8>]) -> Vec<Vec<u8>> {
        esp.iter().flat_map(|p| self.open(std::slice::from_ref(p))).map(|(_, p)| p).collect()
    }

    /// The only reason for which B has dropped something, and how often.
    pub fn dropped(&self) -> Option<(DropReason, u64)> {
        let c = self.b.counters();
        assert!(c.balance(), "{c:?}");
        let all: Vec<_> = c.drops().filter(|(_, n)| *n != 0).collect();
        assert!(all.len() <= 1, "{all:?}");
        all.first().copied()
    }

    pub fn in_stats(&self) -> SaStats {
        self.b.sa_stats(self.in_ref()).unwrap()
    }
}

/// Each ESP packet of a batch, in order.
pub fn packets(tx: &TxBatch) -> Vec<Vec<u8>> {
    tx.sends
        .iter()
        .flat_map(|s| {
            let all: Vec<_> = tx.bytes(s).chunks(usize::from(s.segment_size)).map(<[u8]>::to_vec).collect();
            assert_eq!(all.len(), usize::from(s.segments));
            all
        })
        .collect()
}

/// The sends of a batch as another gateway's GRO would hand them over.
pub fn datagrams(tx: &TxBatch) -> Vec<Datagram> {
    tx.sends.iter().map(datagram).collect()
}

/// What the engine has to tell that asks for something: all but audit events.
pub fn commands(engine: &Engine) -> Vec<Up> {
    let mut all = engine.take_up();
    all.retain(|up| !matches!(up, Up::Rejected(_)));
    all
}

/// What ESP is carried in.
pub fn carrier(udp_encap: bool) -> Carrier {
    if udp_encap { Carrier::Udp } else { Carrier::Esp }
}

pub fn datagram(s: &Send) -> Datagram {
    Datagram {
        offset: s.offset,
        len: s.len,
        segment_size: if s.segments > 1 { s.segment_size } else { 0 },
        local: s.remote,
        remote: s.local,
        carrier: s.carrier,
        tos: s.tos,
    }
}

/// Deterministic bytes that differ from place to place.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    Seeded::new(seed).fill(&mut out);
    out
}

/// A packet to be: everything that splitting and merging must keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub v6: bool,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub ports: (u16, u16),
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    pub df: bool,
    pub flow_label: u32,
    pub tcp: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Spec {
    pub fn tcp(payload: usize) -> Self {
        Self {
            v6: false,
            src: ip("10.1.0.1"),
            dst: ip("10.2.0.1"),
            ports: (40_000, 5_201),
            tos: 0,
            ttl: 63,
            id: 0x1000,
            df: true,
            flow_label: 0,
            tcp: true,
            seq: 1_000_000,
            ack: 77,
            flags: tcp::ACK,
            window: 501,
            options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            payload: bytes(payload, 5),
        }
    }

    pub fn udp(payload: usize) -> Self {
        Self { tcp: false, options: Vec::new(), ..Self::tcp(payload) }
    }

    pub fn over_v6(self) -> Self {
        Self { v6: true, src: ip("fd01::1"), dst: ip("fd02::1"), ..self }
    }

    pub fn header_len(&self) -> usize {
        (if self.v6 { 40 } else { 20 }) + (if self.tcp { 20 + self.options.len() } else { 8 })
    }

    /// The finished packet, written the plain way.
    pub fn build(&self) -> Vec<u8> {
        let upper_len = self.header_len() - if self.v6 { 40 } else { 20 } + self.payload.len();
        let mut p = Vec::new();
        let protocol = if self.tcp { 6 } else { 17 };
        match (self.src, self.dst) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                p.extend_from_slice(&[0x45, self.tos]);
                p.extend_from_slice(&((20 + upper_len) as u16).to_be_bytes());
                p.extend_from_slice(&self.id.to_be_bytes());
                p.extend_from_slice(&(if self.df { v4::DF } else { 0 }).to_be_bytes());
                p.extend_from_slice(&[self.ttl, protocol, 0, 0]);
                p.extend_from_slice(&s.octets());
                p.extend_from_slice(&d.octets());
                v4::set_checksum(&mut p);
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                p.extend_from_slice(&(6 << 28 | u32::from(self.tos) << 20 | self.flow_label).to_be_bytes());
                p.extend_from_slice(&(upper_len as u16).to_be_bytes());
                p.extend_from_slice(&[protocol, self.ttl]);
                p.extend_from_slice(&s.octets());
                p.extend_from_slice(&d.octets());
            }
            _ => panic!("families differ"),
        }
        let upper = p.len();
        p.extend_from_slice(&self.ports.0.to_be_bytes());
        p.extend_from_slice(&self.ports.1.to_be_bytes());
        if self.tcp {
            p.extend_from_slice(&self.seq.to_be_bytes());
            p.extend_from_slice(&self.ack.to_be_bytes());
            p.extend_from_slice(&[(((20 + self.options.len()) / 4) << 4) as u8, self.flags]);
            p.extend_from_slice(&self.window.to_be_bytes());
            p.extend_from_slice(&[0, 0, 0, 0]);
            p.extend_from_slice(&self.options);
        } else {
            p.extend_from_slice(&(upper_len as u16).to_be_bytes());
            p.extend_from_slice(&[0, 0]);
        }
        p.extend_from_slice(&self.payload);
        let addresses = if self.v6 { p[8..40].to_vec() } else { p[12..20].to_vec() };
        let total = pseudo(&addresses, protocol) + be16(upper_len as u16) + sum(&p[upper..]);
        let mut check = !fold(total);
        if check == 0 && !self.tcp {
            check = 0xffff;
        }
        let at = upper + if self.tcp { 16 } else { 6 };
        p[at..at + 2].copy_from_slice(&check.to_ne_bytes());
        p
    }

    /// The packets that cutting into segments of `size` gives, by definition.
    pub fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let chunks: Vec<&[u8]> = self.payload.chunks(size).collect();
        let n = chunks.len();
        chunks
            .iter()
            .enumerate()
            .map(|(i, chunk)| {
                let mut flags = self.flags;
                if i + 1 != n {
                    flags &= !(tcp::FIN | tcp::PSH);
                }
                if i != 0 {
                    flags &= !tcp::CWR;
                }
                Self {
                    id: self.id.wrapping_add(i as u16),
                    seq: self.seq.wrapping_add((i * size) as u32),
                    flags,
                    payload: chunk.to_vec(),
                    ..self.clone()
                }
                .build()
            })
            .collect()
    }

    /// The super-packet that a TUN device would deliver, and its offload header.
    pub fn superpacket(&self, size: usize) -> (Vec<u8>, Offload) {
        let mut p = self.build();
        let upper = if self.v6 { 40 } else { 20 };
        let offset = if self.tcp { 16 } else { 6 };
        let addresses = if self.v6 { p[8..40].to_vec() } else { p[12..20].to_vec() };
        let partial =
            fold(pseudo(&addresses, if self.tcp { 6 } else { 17 }) + be16((p.len() - upper) as u16));
        p[upper + offset..upper + offset + 2].copy_from_slice(&partial.to_ne_bytes());
        let gso = match (self.tcp, self.v6) {
            _ if self.payload.len() <= size => Gso::None,
            (true, false) => Gso::TcpV4,
            (true, true) => Gso::TcpV6,
            (false, _) => Gso::UdpL4,
        };
        let offload = Offload {
            gso,
            ecn: self.flags & tcp::CWR != 0,
            segment_size: if gso == Gso::None { 0 } else { size as u16 },
            hdr_len: self.header_len() as u16,
            csum: Some((upper as u16, offset as u16)),
            data_valid: false,
        };
        (p, offload)
    }
}

/// What the kernel makes of a write: the finished packets. An independent reading of the virtio
/// rules.
pub fn device(offload: &Offload, packet: &[u8]) -> Vec<Vec<u8>> {
    if offload.gso == Gso::None {
        assert_eq!(offload.csum, None, "nothing unmerged needs a checksum");
        return vec![packet.to_vec()];
    }
    let spec = read(packet);
    let (start, offset) = offload.csum.expect("segmentation needs a partial checksum");
    assert_eq!(usize::from(start), if spec.v6 { 40 } else { 20 });
    assert_eq!(usize::from(offset), if spec.tcp { 16 } else { 6 });
    assert_eq!(usize::from(offload.hdr_len), spec.header_len());
    assert!(spec.payload.len() > usize::from(offload.segment_size), "a device refuses one segment");
    let want = match (spec.tcp, spec.v6) {
        (true, false) => Gso::TcpV4,
        (true, true) => Gso::TcpV6,
        (false, _) => Gso::UdpL4,
    };
    assert_eq!(offload.gso, want);
    if !spec.v6 {
        assert!(v4::checksum_ok(&packet[..20]));
    }
    let (again, same) = spec.superpacket(usize::from(offload.segment_size));
    assert_eq!(again, packet, "the partial checksum and all lengths are as the device wants them");
    assert_eq!(same.csum, offload.csum);
    spec.segments(usize::from(offload.segment_size))
}

/// The fields of a packet.
pub fn read(p: &[u8]) -> Spec {
    let v6 = p[0] >> 4 == 6;
    let upper = if v6 { 40 } else { 20 };
    let protocol = if v6 { p[6] } else { p[9] };
    let tcp = protocol == 6;
    let u = &p[upper..];
    let be = |at: usize| u16::from_be_bytes([u[at], u[at + 1]]);
    let be32 = |at: usize| u32::from_be_bytes([u[at], u[at + 1], u[at + 2], u[at + 3]]);
    let header = if tcp { usize::from(u[12] >> 4) * 4 } else { 8 };
    let addr = |at: usize| -> IpAddr {
        if v6 {
            IpAddr::from(<[u8; 16]>::try_from(&p[at..at + 16]).unwrap())
        } else {
            IpAddr::from(<[u8; 4]>::try_from(&p[at..at + 4]).unwrap())
        }
    };
    Spec {
        v6,
        src: addr(if v6 { 8 } else { 12 }),
        dst: addr(if v6 { 24 } else { 16 }),
        ports: (be(0), be(2)),
        tos: if v6 { p[0] << 4 | p[1] >> 4 } else { p[1] },
        ttl: if v6 { p[7] } else { p[8] },
        id: if v6 { 0 } else { u16::from_be_bytes([p[4], p[5]]) },
        df: !v6 && p[6] & 0x40 != 0,
        flow_label: if v6 { u32::from_be_bytes([0, p[1] & 0xf, p[2], p[3]]) } else { 0 },
        tcp,
        seq: if tcp { be32(4) } else { 0 },
        ack: if tcp { be32(8) } else { 0 },
        flags: if tcp { u[13] } else { 0 },
        window: if tcp { be(14) } else { 0 },
        options: if tcp { u[20..header].to_vec() } else { Vec::new() },
        payload: u[header..].to_vec(),
    }
}
