//! What the tests of the outbound half share: one sender for any SA, and an independent reader of
//! what it sends.
#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::Arc;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Carrier, Datagram, DropReason, Engine, RxBatch, Send, TxBatch, TxConfig, Worker};
use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, Mode, PolicyAdd, SaAdd, SaOptions, SaRef};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::common::*;

/// The ends of an SA, as [`Options::outer`] has them.
pub const ENDS: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

pub const IPV4: u8 = 4;
pub const UDP: u8 = 17;
pub const IPV6: u8 = 41;
pub const ESP: u8 = 50;
pub const AH: u8 = 51;
pub const DEST_OPTIONS: u8 = 60;
pub const IPCOMP: u8 = 108;

/// Inner packets of one family, small and large.
pub fn inner(v6: bool, len: usize) -> Vec<u8> {
    let spec = Spec { tos: 0xb9, ..Spec::udp(len) };
    if v6 { spec.over_v6() } else { spec }.build()
}

pub fn inner_protocol(v6: bool) -> u8 {
    if v6 { IPV6 } else { IPV4 }
}

pub const TUNNEL: Mode = Mode::Tunnel;
pub const TRANSPORT: Mode = Mode::Transport;

/// Every suite that the engine has: all encryption algorithms with all key lengths, each that needs
/// one with every integrity algorithm.
pub fn esp_suites() -> Vec<EspSuite> {
    let mut out = Vec::new();
    for encr in EncrId::ALL {
        for bits in algorithm::encr(*encr).unwrap().key_bits {
            for integ in std::iter::once(None).chain(IntegId::ALL.iter().copied().map(Some)) {
                let suite = EspSuite { encr: *encr, key_bits: *bits, integ, ke: None, esn: false };
                // NONE is the same as none at all.
                if integ != Some(IntegId::NONE) && batch::keymat_lens(&suite).is_some() {
                    out.push(suite);
                }
            }
        }
    }
    out
}

pub fn ah_suites() -> Vec<EspSuite> {
    let suite = |id| EspSuite { encr: EncrId::NULL, key_bits: 0, integ: Some(id), ke: None, esn: false };
    IntegId::ALL.iter().filter(|id| **id != IntegId::NONE).map(|id| suite(*id)).collect()
}

pub const GCM: EspSuite =
    EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false };
pub const SHA256: EspSuite = EspSuite {
    encr: EncrId::NULL,
    key_bits: 0,
    integ: Some(IntegId::HMAC_SHA2_256_128),
    ke: None,
    esn: false,
};

/// An outbound SA between [`ENDS`] for everything: tunnel mode ESP with raw packets. Fields are for
/// the tests to change before [`with_keys`].
pub fn outbound(outer_v6: bool) -> SaAdd {
    let options = Options { outer_v6, udp_encap: false, ..Options::default() };
    let any = |v6| TrafficSelector::addresses(AddrRange::any(v6));
    SaAdd {
        suite: GCM,
        local_ts: vec![any(false), any(true)],
        remote_ts: vec![any(false), any(true)],
        ..options.sa(Direction::Out, SPI, REQID, 42)
    }
}

/// The same of AH.
pub fn ah(outer_v6: bool) -> SaAdd {
    SaAdd { protocol: ProtocolId::AH, suite: SHA256, ..outbound(outer_v6) }
}

/// Gives an SA keys of the lengths that its protocol and suite want.
pub fn with_keys(sa: SaAdd) -> SaAdd {
    let (encr, integ) = if sa.protocol == ProtocolId::AH {
        (0, icv::key_len(sa.suite.integ.unwrap()).unwrap())
    } else {
        batch::keymat_lens(&sa.suite).unwrap()
    };
    let mut rng = Seeded::new(77);
    let mut key = |len| {
        let mut key = vec![0; len];
        rng.fill(&mut key);
        Secret::new(key)
    };
    SaAdd { encr_key: key(encr), integ_key: key(integ), ..sa }
}

/// The other end's SA.
pub fn inbound(sa: &SaAdd) -> SaAdd {
    SaAdd {
        direction: Direction::In,
        local: sa.remote,
        remote: sa.local,
        local_ts: sa.remote_ts.clone(),
        remote_ts: sa.local_ts.clone(),
        replay_window: 64,
        options: SaOptions { dummies: None, ..sa.options },
        ..sa.clone()
    }
}

/// Policies that cover everything.
pub fn policies(reqid: ironswan_wire::sadb::ReqId) -> [Command; 2] {
    [false, true].map(|v6| {
        let any = TrafficSelector::addresses(AddrRange::any(v6));
        Command::PolicyAdd(PolicyAdd {
            name: "all".into(),
            action: Action::Protect(reqid),
            local: any,
            remote: any,
            priority: 0,
            entry: Entry::default(),
        })
    })
}

/// One packet as it goes to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub send: Send,
    pub bytes: Vec<u8>,
}

/// An engine with one outbound SA for everything.
pub struct Sender {
    pub sa: SaAdd,
    pub engine: Arc<Engine>,
    pub worker: Worker,
    pub tx: TxBatch,
}

impl Sender {
    pub fn new(sa: SaAdd) -> Self {
        let sa = with_keys(sa);
        let engine = Engine::new(Box::new(Seeded::new(1)), config());
        for policy in policies(sa.reqid) {
            engine.apply(SECOND, &policy).unwrap();
        }
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).unwrap();
        let mut worker = Worker::new(engine.clone());
        worker.begin(SECOND);
        Self { sa, engine, worker, tx: TxBatch::new(TxConfig::default()) }
    }

    pub fn name(&self) -> SaRef {
        let (spi, reqid, remote) = (self.sa.spi, self.sa.reqid, self.sa.remote.ip());
        SaRef { direction: Direction::Out, spi, reqid, remote }
    }

    pub fn path_mtu(&self, mtu: u32) {
        self.engine.apply(SECOND, &Command::SaPathMtu { sa: self.name(), mtu }).unwrap();
    }

    /// Sends frames as one batch.
    pub fn send(&mut self, frames: &[(Vec<u8>, Offload)]) -> Vec<Sent> {
        self.tx.clear();
        for (frame, offload) in frames {
            assert!(self.worker.outbound(&mut frame.clone(), offload, &mut self.tx), "it fits");
        }
        self.worker.seal(&mut self.tx);
        self.balance();
        self.sent()
    }

    /// What is in the batch.
    pub fn sent(&self) -> Vec<Sent> {
        let mut out = Vec::new();
        for send in &self.tx.sends {
            for bytes in self.tx.bytes(send).chunks(usize::from(send.segment_size)) {
                out.push(Sent { send: *send, bytes: bytes.to_vec() });
            }
        }
        out
    }

    /// Sends one packet.
    pub fn one(&mut self, packet: &[u8]) -> Sent {
        let mut sent = self.send(&[(packet.to_vec(), Offload::NONE)]);
        assert_eq!(sent.len(), 1, "{:?}", self.engine.counters());
        sent.remove(0)
    }

    /// Sends one packet as ESP without a header in front, and opens it.
    pub fn one_esp(&mut self, packet: &[u8], seq: u64) -> Inside {
        let sent = self.one(packet);
        open_esp(&self.sa, &sent.bytes, seq)
    }

    /// Sends one packet that is dropped, and returns why.
    pub fn refused(&mut self, packet: &[u8]) -> DropReason {
        let before = self.engine.counters();
        assert_eq!(self.send(&[(packet.to_vec(), Offload::NONE)]), []);
        let after = self.engine.counters();
        let mut reasons: Vec<_> = DropReason::ALL
            .iter()
            .filter(|r| after.dropped(**r) != before.dropped(**r))
            .map(|r| (*r, after.dropped(*r) - before.dropped(*r)))
            .collect();
        let (reason, count) = reasons.pop().expect("it was dropped");
        assert_eq!((reasons.len(), count), (0, 1), "{reason}: exactly one");
        reason
    }

    pub fn balance(&self) {
        let counters = self.engine.counters();
        assert!(counters.balance(), "{counters:?}");
    }
}

/// What was inside of ESP or AH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    pub next_header: u8,
    /// Payload, with TFC padding.
    pub body: Vec<u8>,
}

/// Opens ESP that begins with its SPI.
pub fn open_esp(sa: &SaAdd, esp: &[u8], seq: u64) -> Inside {
    assert_eq!(esp[..4], sa.spi.0.to_be_bytes());
    assert_eq!(esp[4..8], (seq as u32).to_be_bytes());
    let key =
        EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(9)).unwrap();
    let mut buf = esp.to_vec();
    let mut jobs = [Job { start: 0, len: esp.len() as u32, seq, key: 0, ok: false }];
    batch::open(&mut buf, &mut jobs, &[&key]);
    assert!(jobs[0].ok, "authentic");
    let text = &buf[8 + key.iv_len()..buf.len() - key.icv_len()];
    assert!(text.len().is_multiple_of(4), "right aligned");
    let (pad, next_header) = (usize::from(text[text.len() - 2]), text[text.len() - 1]);
    let end = text.len() - 2 - pad;
    assert!(pad < 16, "no more padding than a block needs");
    assert!(text[end..end + pad].iter().enumerate().all(|(i, b)| usize::from(*b) == i + 1));
    Inside { next_header, body: text[..end].to_vec() }
}

/// Verifies AH at `at` in a packet without options that may change, by fields cleared here, and
/// reads it.
pub fn open_ah(sa: &SaAdd, packet: &[u8], at: usize, seq: u64) -> Inside {
    let header = &packet[at..];
    let shape = algorithm::integ(sa.suite.integ.unwrap()).unwrap();
    let field = shape.iv_len + shape.icv_len;
    let v6 = packet[0] >> 4 == 6;
    let len = (usize::from(header[1]) + 2) * 4;
    let unit = if v6 { 8 } else { 4 };
    assert!(len.is_multiple_of(unit) && len >= 12 + field && len < 12 + field + unit);
    assert_eq!(header[2..4], [0, 0]);
    assert_eq!(header[4..8], sa.spi.0.to_be_bytes());
    assert_eq!(header[8..12], (seq as u32).to_be_bytes());
    assert!(header[12 + field..len].iter().all(|b| *b == 0));
    let mut clear = packet.to_vec();
    if v6 {
        clear[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        clear[7] = 0;
    } else {
        assert!(ironswan_wire::ip::v4::checksum_ok(&packet[..usize::from(packet[0] & 15) * 4]));
        clear[1] = 0;
        clear[6..9].fill(0);
        clear[10..12].fill(0);
    }
    let key = IcvKey::new(sa.suite.integ.unwrap(), sa.integ_key.expose(), sa.suite.esn).unwrap();
    let mut jobs = [IcvJob {
        head: 0,
        head_len: 0,
        start: 0,
        len: clear.len() as u32,
        field: at as u32 + 12,
        seq,
        key: 0,
        ok: false,
    }];
    icv::verify(&[], &clear, &mut jobs, &[&key]);
    assert!(jobs[0].ok, "authentic");
    Inside { next_header: header[0], body: header[len..].to_vec() }
}

/// The addresses of a packet that begins with its IP header.
pub fn addresses(packet: &[u8]) -> &[u8] {
    if packet[0] >> 4 == 6 { &packet[8..40] } else { &packet[12..20] }
}

/// The length that a packet's IP header says.
pub fn said_len(packet: &[u8]) -> usize {
    let be = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 6 { 40 + be(4) } else { be(2) }
}

/// A packet between the ends of a transport mode SA.
pub fn between(spec: Spec) -> Spec {
    let (src, dst) = ENDS[usize::from(spec.v6)];
    Spec { src: ip(src), dst: ip(dst), ..spec }
}

/// `between`, of a UDP packet with this many bytes of data.
pub fn udp_between(v6: bool, len: usize) -> Spec {
    let spec = Spec::udp(len);
    between(if v6 { spec.over_v6() } else { spec })
}

/// What carries raw packets that begin with ESP or AH.
pub fn is_whole(sent: &Sent) -> bool {
    sent.send.carrier == Carrier::Ip
}

/// Cuts an IPv4 packet without options or an IPv6 packet without extensions into fragments with
/// `size` bytes of data.
pub fn fragments(packet: &[u8], size: usize, id: u32) -> Vec<Vec<u8>> {
    let v6 = packet[0] >> 4 == 6;
    let (head, data) = packet.split_at(if v6 { 40 } else { 20 });
    let count = data.len().div_ceil(size);
    data.chunks(size)
        .enumerate()
        .map(|(i, piece)| {
            let more = i + 1 != count;
            let mut p = head.to_vec();
            if v6 {
                let next = std::mem::replace(&mut p[6], 44);
                p[4..6].copy_from_slice(&(piece.len() as u16 + 8).to_be_bytes());
                p.extend_from_slice(&[next, 0]);
                p.extend_from_slice(&((i * size) as u16 | u16::from(more)).to_be_bytes());
                p.extend_from_slice(&id.to_be_bytes());
            } else {
                p[2..4].copy_from_slice(&(piece.len() as u16 + 20).to_be_bytes());
                p[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                p[6..8]
                    .copy_from_slice(&((i * size / 8) as u16 | if more { 0x2000 } else { 0 }).to_be_bytes());
                ironswan_wire::ip::v4::set_checksum(&mut p);
            }
            p.extend_from_slice(piece);
            p
        })
        .collect()
}

/// The engine at the other end, with one inbound SA.
pub struct Receiver {
    pub engine: Arc<Engine>,
    pub worker: Worker,
    pub rx: RxBatch,
    pub sa: SaAdd,
}

impl Receiver {
    /// Of what an outbound SA sends.
    pub fn of(outbound: &SaAdd, window: u32) -> Self {
        let sa = SaAdd { replay_window: window, ..inbound(outbound) };
        let engine = Engine::new(Box::new(Seeded::new(2)), config());
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).unwrap();
        let mut worker = Worker::new(engine.clone());
        worker.begin(SECOND);
        Self { engine, worker, rx: RxBatch::new(), sa }
    }

    pub fn name(&self) -> SaRef {
        let (spi, reqid, remote) = (self.sa.spi, self.sa.reqid, self.sa.remote.ip());
        SaRef { direction: Direction::In, spi, reqid, remote }
    }

    /// Opens packets as one batch, and returns what the device gets.
    pub fn open(&mut self, sent: &[Sent]) -> Vec<(Offload, Vec<u8>)> {
        let (mut buf, mut datagrams) = (Vec::new(), Vec::new());
        for Sent { send, bytes } in sent {
            datagrams.push(Datagram {
                offset: buf.len() as u32,
                len: bytes.len() as u32,
                segment_size: 0,
                local: send.remote,
                remote: send.local,
                carrier: send.carrier,
                tos: send.tos,
            });
            // A raw socket that receives ESP has no header in front.
            if send.carrier == Carrier::Ip && self.sa.protocol == ProtocolId::ESP {
                let info = ironswan_wire::ip::parse(bytes).unwrap();
                let d = datagrams.last_mut().unwrap();
                (d.carrier, d.len) = (Carrier::Esp, (bytes.len() - info.upper) as u32);
                buf.extend_from_slice(&bytes[info.upper..]);
            } else {
                buf.extend_from_slice(bytes);
            }
        }
        self.rx.clear();
        self.worker.inbound(&mut buf, &datagrams, &mut self.rx);
        let counters = self.engine.counters();
        assert!(counters.balance(), "{counters:?}");
        self.rx.writes.iter().map(|w| (w.offload, self.rx.gather(&buf, w))).collect()
    }

    /// Opens each packet in a batch of its own, so that nothing is merged.
    pub fn each(&mut self, sent: &[Sent]) -> Vec<Vec<u8>> {
        sent.iter().flat_map(|p| self.open(std::slice::from_ref(p))).map(|(_, p)| p).collect()
    }
}
