//! Bytes to SAs, selectors and frames, all of them valid.

use std::net::{IpAddr, SocketAddr};

use ironswan_crypto::{batch, icv};
use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::{protocol, v4};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Direction, Dscp, Lifetime, Mode, ReqId, SaAdd, SaOptions, Spi, Tfc};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

/// Bytes that choose; zeros when they are used up.
pub(super) struct Choice<'a>(pub(super) &'a [u8]);

impl Choice<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub(super) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}

/// One of the ESP suites that the engine has.
fn esp_suite(choice: &mut Choice<'_>, esn: bool) -> EspSuite {
    let encr = choice.of(EncrId::ALL);
    let bits = algorithm::encr(encr).map_or(&[0][..], |shape| shape.key_bits);
    let (key_bits, integ) = (choice.of(bits), choice.of(IntegId::ALL));
    let with = |integ| EspSuite { encr, key_bits, integ, ke: None, esn };
    let candidates = [with(None), with(Some(integ)), with(Some(IntegId::HMAC_SHA2_256_128))];
    let gcm = EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn };
    candidates.into_iter().find(|suite| batch::keymat_lens(suite).is_some()).unwrap_or(gcm)
}

/// Hosts behind the engines (the first three), and the ends of the SAs.
const V4: [[u8; 4]; 5] = [[10, 1, 0, 1], [10, 1, 9, 9], [10, 2, 0, 1], [192, 0, 2, 1], [192, 0, 2, 2]];
/// Ports of the packets.
const PORTS: [u16; 4] = [80, 1_000, 1_500, 65_535];

fn v6(of: [u8; 4]) -> IpAddr {
    let [a, b, c, d] = of;
    IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
}

fn host(of: [u8; 4], ipv6: bool) -> IpAddr {
    if ipv6 { v6(of) } else { IpAddr::from(of) }
}

fn ends(ipv6: bool) -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(host(V4[3], ipv6), 4500), SocketAddr::new(host(V4[4], ipv6), 4500))
}

/// A selector: one or some of the addresses, a protocol, ports.
pub(super) fn selector(choice: &mut Choice<'_>, ipv6: bool) -> TrafficSelector {
    let which = choice.byte();
    let addr = host(V4[usize::from(which & 7) % V4.len()], ipv6);
    let bits = if ipv6 { 96 } else { 0 };
    let len = match which >> 3 & 3 {
        0 => 0,
        1 => bits + 16,
        2 => bits + 24,
        _ => bits + 32,
    };
    let range = AddrRange::prefix(addr, len).unwrap_or(AddrRange::any(ipv6));
    let protocol = if which & 0x20 != 0 { choice.of(&[6, 17, 1, 58, 253]) } else { 0 };
    let (start_port, end_port) = match which >> 6 {
        1 => (80, 80),
        2 => (1_000, 1_500),
        3 if protocol != 0 => (65_535, 0),
        _ => (0, 65_535),
    };
    TrafficSelector { range, protocol, start_port, end_port }
}

/// The SA of A to B for the `n`-th policy.
pub(super) fn sa(choice: &mut Choice<'_>, n: u32) -> SaAdd {
    let (bits, more) = (choice.byte(), choice.byte());
    let bit = |i: u8| bits >> i & 1 != 0;
    let ah = bit(0);
    let (mode, ipv6, esn) = (if bit(1) { Mode::Transport } else { Mode::Tunnel }, bit(2), bit(4));
    let suite = if ah {
        let integ = Some(choice.of(IntegId::ALL)).filter(|id| icv::key_len(*id).is_some());
        let integ = integ.or(Some(IntegId::HMAC_SHA2_256_128));
        EspSuite { encr: EncrId::NULL, key_bits: 0, integ, ke: None, esn }
    } else {
        esp_suite(choice, esn)
    };
    let (encr_len, integ_len) = if ah {
        (0, suite.integ.and_then(icv::key_len).unwrap_or(0))
    } else {
        batch::keymat_lens(&suite).unwrap_or((0, 0))
    };
    // Different in every byte: a 3DES key must not be a DES key.
    let key = |len: usize, seed: u8| {
        Secret::new((0..len).map(|i| (i as u8).wrapping_mul(37) ^ seed).collect::<Vec<_>>())
    };
    let padding = mode == Mode::Tunnel && !ah;
    let (local, remote) = ends(ipv6);
    let narrow = more & 1 != 0;
    let mut both = |other: bool| {
        if narrow { vec![selector(choice, other)] } else { vec![] }
    };
    let (mut local_ts, mut remote_ts) = (both(ipv6), both(ipv6));
    if !narrow {
        let any = |v6| TrafficSelector::addresses(AddrRange::any(v6));
        (local_ts, remote_ts) = (vec![any(false), any(true)], vec![any(false), any(true)]);
    }
    SaAdd {
        direction: Direction::Out,
        protocol: if ah { ProtocolId::AH } else { ProtocolId::ESP },
        spi: Spi(0x1000 + n),
        reqid: ReqId(n),
        local,
        remote,
        udp_encap: !ah && bit(3),
        mode,
        suite,
        options: SaOptions {
            ipcomp: bit(5).then_some(0x100 + n as u16),
            copy_df: bit(6),
            copy_ecn: bit(7),
            dscp_out: if more & 2 != 0 { Dscp::Set(more >> 2 & 63) } else { Dscp::Copy },
            dscp_in: more & 4 != 0,
            tfc: if padding && more & 8 != 0 { Tfc::To(u16::from(more) * 4) } else { Tfc::None },
            dummies: None,
            original: None,
        },
        encr_key: key(encr_len, 0x5a),
        integ_key: key(integ_len, 0xc3),
        replay_window: [0, 64, 1024, 65_536][usize::from(more >> 6)],
        local_ts,
        remote_ts,
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }
}

/// The inbound SA of B that opens what this outbound SA of A seals.
pub(super) fn mirrored(sa: &SaAdd) -> SaAdd {
    SaAdd {
        direction: Direction::In,
        local: sa.remote,
        remote: sa.local,
        local_ts: sa.remote_ts.clone(),
        remote_ts: sa.local_ts.clone(),
        options: SaOptions { tfc: Tfc::None, ..sa.options },
        ..sa.clone()
    }
}

/// A frame that a device may deliver, and its offload header. The checksums are right, or left to
/// the sender.
pub(super) fn frame(choice: &mut Choice<'_>) -> (Vec<u8>, Offload) {
    let (bits, which, kind) = (choice.byte(), choice.byte(), choice.byte());
    let ipv6 = bits & 1 != 0;
    let (src, dst) = match which & 3 {
        0 => (V4[3], V4[4]),
        _ => (V4[usize::from(which >> 2 & 3) % 3], V4[usize::from(which >> 4 & 3) % 3]),
    };
    let upper = match kind & 3 {
        0 | 1 => protocol::TCP,
        2 => protocol::UDP,
        _ if kind & 4 != 0 => 253,
        _ => protocol::UDP,
    };
    let ports = (PORTS[usize::from(which >> 6)], PORTS[usize::from(kind >> 6)]);
    let size = usize::from(choice.byte()) * 8;
    let count = if upper == 253 { 1 } else { usize::from(bits >> 4) };
    let body_len = size * count.max(1) + usize::from(bits >> 1 & 7);
    let seed = choice.byte();
    let body: Vec<u8> =
        (0..body_len).map(|i| if bits & 2 != 0 { seed } else { (i as u8).wrapping_mul(seed | 1) }).collect();
    let mut u = Vec::new();
    let field = match upper {
        protocol::TCP => {
            u.extend_from_slice(&ports.0.to_be_bytes());
            u.extend_from_slice(&ports.1.to_be_bytes());
            u.extend_from_slice(&[
                0,
                0,
                seed,
                0,
                0,
                0,
                0,
                7,
                0x50,
                0x10 | choice.byte() & 0xc9,
                9,
                9,
                0,
                0,
                0,
                0,
            ]);
            Some(16)
        }
        protocol::UDP => {
            u.extend_from_slice(&ports.0.to_be_bytes());
            u.extend_from_slice(&ports.1.to_be_bytes());
            u.extend_from_slice(&((8 + body.len()) as u16).to_be_bytes());
            u.extend_from_slice(&[0, 0]);
            Some(6)
        }
        _ => None,
    };
    let header = u.len();
    u.extend_from_slice(&body);
    let mut p = Vec::new();
    let total = u.len();
    match (host(src, ipv6), host(dst, ipv6)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            p.extend_from_slice(&[0x45, choice.byte(), ((20 + total) >> 8) as u8, (20 + total) as u8]);
            p.extend_from_slice(&[seed, which, if kind & 8 != 0 { 0x40 } else { 0 }, 0, 64, upper, 0, 0]);
            p.extend_from_slice(&src.octets());
            p.extend_from_slice(&dst.octets());
            v4::set_checksum(&mut p);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let class = choice.byte();
            p.extend_from_slice(&[0x60 | class >> 4, class << 4, 0, 9]);
            p.extend_from_slice(&[(total >> 8) as u8, total as u8, upper, 64]);
            p.extend_from_slice(&src.octets());
            p.extend_from_slice(&dst.octets());
        }
        _ => {}
    }
    let at = p.len();
    let addresses = if ipv6 { p[8..40].to_vec() } else { p[12..20].to_vec() };
    p.extend_from_slice(&u);
    let mut offload = Offload::NONE;
    if let Some(field) = field {
        let partial = fold(pseudo(&addresses, upper) + be16(total as u16));
        p[at + field..at + field + 2].copy_from_slice(&partial.to_ne_bytes());
        offload.csum = Some((at as u16, field as u16));
        offload.hdr_len = (at + header) as u16;
        if count > 1 && size > 0 {
            offload.segment_size = size as u16;
            offload.gso = match (upper, ipv6) {
                (protocol::UDP, _) => Gso::UdpL4,
                (_, true) => Gso::TcpV6,
                _ => Gso::TcpV4,
            };
        } else if kind & 0x10 != 0 {
            // Finished already.
            let value = match !fold(sum(&p[at..])) {
                0 => 0xffff,
                value => value,
            };
            p[at + field..at + field + 2].copy_from_slice(&value.to_ne_bytes());
            offload = Offload::NONE;
        }
    }
    (p, offload)
}
