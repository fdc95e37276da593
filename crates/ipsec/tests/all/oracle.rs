//! scapy opens what we seal, and we open what scapy seals; zlib inflates what we deflate, and we
//! inflate what zlib deflates (`testkit/oracle/peer.py`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Carrier, Config, Datagram, Engine, RxBatch, Worker};
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::v4;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Command, Direction, Mode, SaAdd, SaOptions};
use serde_json::{Value, json};

use crate::common::*;
use crate::in_common::{IPCOMP, Make, Receiver};
use crate::out_common::{
    self, Sender, TRANSPORT, ah, ah_suites, esp_suites, is_whole, open_esp, outbound, udp_between,
};

struct Oracle {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Oracle {
    /// Debian's scapy belongs to Debian's Python, which need not be the first in the path.
    fn start() -> Self {
        let python = ["/usr/bin/python3", "python3"]
            .into_iter()
            .find(|p| {
                let found = Process::new(p).args(["-c", "import scapy.layers.ipsec, cryptography"]).output();
                found.is_ok_and(|o| o.status.success())
            })
            .expect("no Python with scapy and cryptography: install the package python3-scapy");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/oracle/peer.py");
        let mut child = Process::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn ask(&mut self, question: &Value) -> Result<Vec<u8>, String> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        match answer["data"].as_str() {
            Some(hex) => Ok(unhex(hex)),
            None => Err(answer["error"].to_string()),
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// scapy's name of an encryption algorithm, and bytes of its ICV.
fn crypt(id: EncrId) -> (&'static str, usize) {
    match id {
        EncrId::NULL => ("NULL", 0),
        EncrId::DES3 => ("3DES", 0),
        EncrId::AES_CBC => ("AES-CBC", 0),
        EncrId::AES_CTR => ("AES-CTR", 0),
        EncrId::AES_GCM_8 => ("AES-GCM", 8),
        EncrId::AES_GCM_12 => ("AES-GCM", 12),
        EncrId::AES_GCM_16 => ("AES-GCM", 16),
        EncrId::AES_CCM_8 => ("AES-CCM", 8),
        EncrId::AES_CCM_12 => ("AES-CCM", 12),
        EncrId::AES_CCM_16 => ("AES-CCM", 16),
        EncrId::CHACHA20_POLY1305 => ("CHACHA20-POLY1305", 16),
        EncrId::NULL_AES_GMAC => ("AES-GMAC", 16),
        EncrId::AES_CCM_8_IIV => ("AES-CCM-IIV", 8),
        EncrId::AES_GCM_16_IIV => ("AES-GCM-IIV", 16),
        EncrId::CHACHA20_POLY1305_IIV => ("CHACHA20-POLY1305-IIV", 16),
        other => panic!("{other}"),
    }
}

fn auth(id: IntegId) -> &'static str {
    match id {
        IntegId::HMAC_MD5_96 => "HMAC-MD5-96",
        IntegId::HMAC_SHA1_96 => "HMAC-SHA1-96",
        IntegId::HMAC_SHA2_256_128 => "SHA2-256-128",
        IntegId::HMAC_SHA2_384_192 => "SHA2-384-192",
        IntegId::HMAC_SHA2_512_256 => "SHA2-512-256",
        IntegId::AES_XCBC_96 => "AES-XCBC-96",
        IntegId::AES_CMAC_96 => "AES-CMAC-96",
        IntegId::AES_128_GMAC | IntegId::AES_192_GMAC | IntegId::AES_256_GMAC => "AES-GMAC",
        other => panic!("{other}"),
    }
}

/// What is asked about a packet of this SA.
fn question(op: &str, sa: &SaAdd, seq: u64, data: &[u8]) -> Value {
    let is_ah = sa.protocol == ProtocolId::AH;
    let (crypt, icv) = crypt(sa.suite.encr);
    json!({
        "op": op, "proto": if is_ah { "AH" } else { "ESP" }, "transport": sa.mode == Mode::Transport,
        "v6": sa.remote.is_ipv6(), "udp": sa.udp_encap, "crypt": (!is_ah).then_some(crypt),
        "key": hex(sa.encr_key.expose()), "icv": icv, "auth": sa.suite.integ.map(auth),
        "auth_key": hex(sa.integ_key.expose()), "spi": sa.spi.0, "seq": seq as u32,
        "esn": sa.suite.esn.then_some(seq >> 32), "data": hex(data),
    })
}

/// The other end of an SA.
struct Taker {
    sa: SaAdd,
    engine: Arc<Engine>,
    worker: Worker,
    rx: RxBatch,
}

impl Taker {
    fn new(sa: &SaAdd) -> Self {
        let sa = out_common::inbound(sa);
        let engine = Engine::new(Box::new(Seeded::new(2)), Config::default());
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa.clone()))).unwrap();
        let mut worker = Worker::new(engine.clone());
        worker.begin(SECOND);
        Self { sa, engine, worker, rx: RxBatch::new() }
    }

    /// Takes one packet.
    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let carrier = match self.sa.protocol {
            ProtocolId::AH => Carrier::Ip,
            _ => carrier(self.sa.udp_encap),
        };
        let (local, remote) = (self.sa.local, self.sa.remote);
        let len = bytes.len() as u32;
        let datagram = Datagram { offset: 0, len, segment_size: 0, local, remote, carrier, tos: 0 };
        let mut buf = bytes.to_vec();
        self.rx.clear();
        self.worker.inbound(&mut buf, &[datagram], &mut self.rx);
        assert!(self.engine.counters().balance());
        self.rx.writes.iter().map(|w| self.rx.gather(&buf, w)).collect()
    }
}

/// Both ends of an SA and a judge of each.
struct Judged<'a> {
    oracle: &'a mut Oracle,
    sender: Sender,
    taker: Taker,
    seq: u64,
}

impl<'a> Judged<'a> {
    fn new(oracle: &'a mut Oracle, sa: SaAdd) -> Self {
        let sender = Sender::new(sa);
        let taker = Taker::new(&sender.sa);
        // With extended numbers, begin beyond the first subspace.
        let seq = if sender.sa.suite.esn { 0x7_0000_0010 } else { 0 };
        sender.engine.advance_sequence(sender.name(), seq).unwrap();
        let name = ironswan_wire::sadb::SaRef {
            direction: Direction::In,
            remote: taker.sa.remote.ip(),
            ..sender.name()
        };
        taker.engine.advance_sequence(name, seq).unwrap();
        Self { oracle, sender, taker, seq }
    }

    /// We seal, `travel` happens to it, scapy opens. It must get `want`.
    fn out(&mut self, packet: &[u8], travel: impl FnOnce(&mut Vec<u8>), want: &[u8]) {
        self.seq += 1;
        let mut sent = self.sender.one(packet);
        let bare = self.sender.sa.mode == Mode::Tunnel || self.sender.sa.udp_encap;
        let is_ah = self.sender.sa.protocol == ProtocolId::AH;
        assert_eq!(is_whole(&sent), is_ah || !bare);
        travel(&mut sent.bytes);
        let got = self.oracle.ask(&question("open", &self.sender.sa, self.seq, &sent.bytes));
        let got = got.unwrap_or_else(|e| panic!("{}: {e}: {}", self.name(), hex(&sent.bytes)));
        if bare && !is_ah && self.sender.sa.mode == Mode::Transport {
            // The kernel writes the header around UDP: the oracle has made one up.
            let head = if packet[0] >> 4 == 6 { 40 } else { 20 };
            assert_eq!(got[head..], want[head..], "{}", self.name());
            assert_eq!(got[if head == 40 { 6 } else { 9 }], packet[if head == 40 { 6 } else { 9 }]);
        } else {
            assert_eq!(hex(&got), hex(want), "{}", self.name());
        }
    }

    /// scapy seals, `travel` happens to it, we open. We must get `want`.
    fn back(&mut self, packet: &[u8], travel: impl FnOnce(&mut Vec<u8>), want: &[u8]) {
        let sealed = self.oracle.ask(&question("seal", &self.sender.sa, self.seq, packet));
        let mut sealed = sealed.unwrap_or_else(|e| panic!("{}: {e}", self.name()));
        travel(&mut sealed);
        let got = self.taker.take(&sealed);
        assert_eq!(got.len(), 1, "{}: {:?} {}", self.name(), self.taker.engine.counters(), hex(&sealed));
        assert_eq!(hex(&got[0]), hex(want), "{}", self.name());
    }

    fn name(&self) -> String {
        let sa = &self.sender.sa;
        format!(
            "{} {} {:?} to {} udp {} number {}",
            sa.protocol, sa.suite, sa.mode, sa.remote, sa.udp_encap, self.seq
        )
    }
}

/// A UDP packet of two hosts behind the ends of a tunnel, or of the ends themselves.
fn inner(mode: Mode, v6: bool, outer_v6: bool, len: usize) -> Spec {
    match mode {
        Mode::Transport => udp_between(outer_v6, len),
        Mode::Tunnel if v6 => Spec::udp(len).over_v6(),
        Mode::Tunnel => Spec::udp(len),
    }
}

/// As a packet that came in transport mode ESP is delivered: the header is new.
fn fresh(spec: Spec) -> Vec<u8> {
    Spec { df: true, id: 0, ttl: 64, tos: 0, ..spec }.build()
}

fn both_ways(oracle: &mut Oracle, sa: SaAdd, count: usize) {
    let (mode, outer_v6, is_ah) = (sa.mode, sa.remote.is_ipv6(), sa.protocol == ProtocolId::AH);
    let mut judged = Judged::new(oracle, sa);
    for i in 0..count {
        let spec = inner(mode, i % 2 == 1, outer_v6, 40 + 7 * i);
        let packet = spec.build();
        judged.out(&packet, |_| {}, &packet);
        let packet = if mode == Mode::Transport && !is_ah { fresh(spec) } else { packet };
        judged.back(&packet, |_| {}, &packet);
    }
}

#[test]
fn scapy_and_we_agree_on_esp_with_every_suite() {
    let mut oracle = Oracle::start();
    let mut suites = 0;
    for suite in esp_suites() {
        for bits in 0..16 {
            let (esn, outer_v6, udp_encap) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let mode = if bits & 8 != 0 { TRANSPORT } else { Mode::Tunnel };
            let suite = EspSuite { esn, ..suite };
            both_ways(&mut oracle, SaAdd { suite, udp_encap, mode, ..outbound(outer_v6) }, 2);
        }
        suites += 1;
    }
    assert!(suites > 60, "{suites}");
}

#[test]
fn scapy_and_we_agree_on_ah_with_every_algorithm() {
    let mut oracle = Oracle::start();
    let mut suites = 0;
    for suite in ah_suites() {
        for bits in 0..8 {
            let (esn, outer_v6) = (bits & 1 != 0, bits & 2 != 0);
            let mode = if bits & 4 != 0 { TRANSPORT } else { Mode::Tunnel };
            let suite = EspSuite { esn, ..suite };
            both_ways(&mut oracle, SaAdd { suite, mode, ..ah(outer_v6) }, 3);
        }
        suites += 1;
    }
    assert_eq!(suites, 10);
}

/// A UDP packet of the hosts with what goes between its header and UDP: IPv4 options, or IPv6
/// headers of which the first is `first`.
fn extended(v6: bool, first: u8, between: &[u8]) -> Vec<u8> {
    let packet = Spec { id: 0x77, ttl: 61, tos: 0x28, ..udp_between(v6, 50) }.build();
    let (head, upper) = packet.split_at(if v6 { 40 } else { 20 });
    let mut p = [head, between, upper].concat();
    let len = p.len() as u16;
    if v6 {
        p[4..6].copy_from_slice(&(len - 40).to_be_bytes());
        p[6] = first;
    } else {
        p[0] += (between.len() / 4) as u8;
        p[2..4].copy_from_slice(&len.to_be_bytes());
        v4::set_checksum(&mut p[..20 + between.len()]);
    }
    p
}

/// What routers do to a packet.
fn routed(p: &mut [u8]) {
    if p[0] >> 4 == 6 {
        p[7] -= 5;
        p[1] ^= 0x3c;
        p[3] ^= 0x11;
    } else {
        p[8] -= 5;
        p[1] ^= 0x03;
        p[6] ^= 0x40;
        let head = usize::from(p[0] & 15) * 4;
        v4::set_checksum(&mut p[..head]);
    }
}

#[test]
fn scapy_and_we_agree_on_ah_over_ipv4_options() {
    let mut oracle = Oracle::start();
    for (esn, options) in [
        (false, &[148, 4, 0, 0][..]),
        // Record route with one entry made, then router alert, NOP, end.
        (true, &[7, 11, 8, 10, 0, 0, 1, 0, 0, 0, 0, 148, 4, 0, 0, 1, 1, 1, 1, 0]),
        // A time stamp, security.
        (false, &[68, 8, 5, 0, 1, 2, 3, 4, 130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let mut sa = SaAdd { mode: TRANSPORT, ..ah(false) };
        sa.suite.esn = esn;
        let mut judged = Judged::new(&mut oracle, sa);
        let packet = extended(false, 0, options);
        // As it is when it arrives: other hops have written into it.
        let travel = |p: &mut Vec<u8>| {
            if matches!(options[0], 7 | 68) {
                p[24..26].copy_from_slice(&[99, 98]);
            }
            routed(p);
        };
        let mut want = packet.clone();
        travel(&mut want);
        judged.out(&packet, travel, &want);
        judged.back(&packet, travel, &want);
    }
}

#[test]
fn scapy_and_we_agree_on_ah_behind_ipv6_extension_headers() {
    let mut oracle = Oracle::start();
    for (first, between, changed) in [
        // Hop-by-hop: router alert, PadN.
        (0, &[17, 0, 5, 2, 0, 0, 1, 0][..], None),
        // Hop-by-hop: an option whose data may change, then Pad1.
        (0, &[17, 0, 0x3e, 3, 1, 2, 3, 0], Some(44)),
        // Destination options: of which we put them behind AH, scapy in front of it.
        (60, &[17, 0, 0x1e, 4, 1, 2, 3, 4], None),
        // Hop-by-hop that may change, destination options.
        (0, &[60, 0, 0x3e, 3, 1, 2, 3, 0, 17, 0, 0x1e, 4, 1, 2, 3, 4], Some(46)),
    ] {
        for esn in [false, true] {
            let mut sa = SaAdd { mode: TRANSPORT, ..ah(true) };
            sa.suite.esn = esn;
            let mut judged = Judged::new(&mut oracle, sa);
            let packet = extended(true, first, between);
            let travel = |p: &mut Vec<u8>| {
                if let Some(at) = changed {
                    p[at] ^= 0xff;
                }
                routed(p);
            };
            let mut want = packet.clone();
            travel(&mut want);
            judged.out(&packet, travel, &want);
            judged.back(&packet, travel, &want);
        }
    }
}

#[test]
fn scapy_and_we_agree_on_ah_behind_a_routing_header() {
    let mut oracle = Oracle::start();
    // Type 0 by way of one node: the header's destination is that node, the last one stands in the
    // routing header.
    let between = |left: u8, addr: &str| {
        let std::net::IpAddr::V6(addr) = ip(addr) else { panic!() };
        [&[17, 2, 0, left, 0, 0, 0, 0][..], &addr.octets()].concat()
    };
    let sa = SaAdd { mode: TRANSPORT, ..ah(true) };
    let mut judged = Judged::new(&mut oracle, sa);
    let sent = extended(true, 43, &between(1, "2001:db8::99"));
    // The node on the way puts the next address into the header.
    let travel = |p: &mut Vec<u8>| {
        let (head, rest) = p.split_at_mut(40);
        rest[3] -= 1;
        head[24..].swap_with_slice(&mut rest[8..24]);
        routed(head);
    };
    let mut want = sent.clone();
    travel(&mut want);
    judged.out(&sent, travel, &want);

    // To us by way of another: scapy seals what leaves it, we see what arrives.
    let mut packet = extended(true, 43, &between(1, "2001:db8::2"));
    packet[24..40].copy_from_slice(&sent[24..40]);
    packet[39] = 0x99;
    let mut want = packet.clone();
    travel(&mut want);
    assert_eq!(want[24..40], sent[24..40]);
    judged.back(&packet, travel, &want);
}

/// Inner packets of both families, every padding length, and full size.
fn inner_packets() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for len in (0..17).chain([536, 1_372]) {
        out.push(Spec::udp(len).build());
        out.push(Spec::tcp(len).over_v6().build());
    }
    out
}

#[test]
fn scapy_opens_what_we_seal_and_seals_what_we_open() {
    let mut oracle = Oracle::start();
    let mut judged = 0;
    for algorithm in ALGORITHMS {
        for (esn, outer_v6, udp_encap) in
            [(false, false, true), (false, true, false), (true, false, true), (true, true, false)]
        {
            let suite = EspSuite { esn, ..algorithm.suite };
            let mut judge = Judged::new(&mut oracle, SaAdd { suite, udp_encap, ..outbound(outer_v6) });
            for packet in inner_packets() {
                judge.out(&packet, |_| {}, &packet);
                judge.back(&packet, |_| {}, &packet);
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 6 * 4 * 38);
}

#[test]
fn scapy_opens_each_segment_of_a_superpacket() {
    let mut oracle = Oracle::start();
    for spec in [Spec::tcp(20_000), Spec::udp(20_000).over_v6()] {
        let mut pair = Pair::new(Options::default());
        let sa = pair.options.sa(Direction::Out, SPI, REQID, 42);
        let esp = pair.seal(&[spec.superpacket(1_300)]);
        for (i, (esp, want)) in esp.iter().zip(spec.segments(1_300)).enumerate() {
            assert_eq!(oracle.ask(&question("open", &sa, i as u64 + 1, esp)), Ok(want));
        }
    }
}

#[test]
fn the_oracle_refuses_what_is_wrong() {
    let mut oracle = Oracle::start();
    let mut rng = Seeded::new(3);
    for suite in esp_suites() {
        for esn in [false, true] {
            let suite = EspSuite { esn, ..suite };
            let mut sender = Sender::new(SaAdd { suite, ..outbound(false) });
            let mut esp = sender.one(&Spec::udp(100).build()).bytes;
            let at = 8 + rng.u32() as usize % (esp.len() - 8);
            esp[at] ^= 4;
            assert!(oracle.ask(&question("open", &sender.sa, 1, &esp)).is_err(), "{suite}");
        }
    }
    for suite in ah_suites() {
        for esn in [false, true] {
            let suite = EspSuite { esn, ..suite };
            let mut sender = Sender::new(SaAdd { suite, ..ah(false) });
            let mut packet = sender.one(&Spec::udp(100).build()).bytes;
            // Source address, SPI's neighbour, ICV, payload.
            let at = [15, 31, 33, 120][rng.u32() as usize % 4];
            packet[at] ^= 4;
            assert!(oracle.ask(&question("open", &sender.sa, 1, &packet)).is_err(), "{suite} {at}");
        }
    }
}

/// Text that repeats itself like real text.
fn letter(len: usize, seed: usize) -> Vec<u8> {
    (seed..)
        .flat_map(|i| format!("On day {i} of {} they wrote again; ", i * i % 97).into_bytes())
        .take(len)
        .collect()
}

#[test]
fn zlib_inflates_what_we_deflate_with_a_window_of_2048_bytes() {
    let mut oracle = Oracle::start();
    let options = SaOptions { ipcomp: Some(0xbeef), ..SaOptions::default() };
    let mut sender = Sender::new(SaAdd { options, ..outbound(false) });
    for (i, len) in [100, 333, 576, 1_372, 2_012, 2_020].into_iter().enumerate() {
        let spec = Spec { payload: letter(len, i), ..Spec::udp(0) };
        let packet = spec.build();
        let sent = sender.one(&packet);
        let inside = open_esp(&sender.sa, &sent.bytes, i as u64 + 1);
        assert_eq!(inside.next_header, IPCOMP);
        assert_eq!(inside.body[..4], [4, 0, 0xbe, 0xef]);
        assert!(inside.body.len() < packet.len());
        for wbits in [11, 15] {
            let question = json!({"op": "inflate", "wbits": wbits, "data": hex(&inside.body[4..])});
            assert_eq!(oracle.ask(&question), Ok(packet.clone()), "{len} {wbits}");
        }
    }
}

#[test]
fn we_inflate_what_zlib_deflates() {
    let mut oracle = Oracle::start();
    let mut receiver = Receiver::new(Make::default().with_ipcomp(0xbeef));
    let mut seq = 0;
    for level in 0..10 {
        for wbits in [9, 11, 15] {
            for len in [10, 1_372, 9_000] {
                seq += 1;
                let packet = Spec { payload: letter(len, seq), ..Spec::udp(0) }.build();
                let question = json!({"op": "deflate", "level": level, "wbits": wbits, "data": hex(&packet)});
                let data = oracle.ask(&question).unwrap();
                let body = [&[4, 0, 0xbe, 0xef][..], &data].concat();
                let arriving = receiver.esp(seq as u64, &body, IPCOMP);
                assert_eq!(receiver.delivers(&arriving), packet, "{level} {wbits} {len}");
            }
        }
    }
}
