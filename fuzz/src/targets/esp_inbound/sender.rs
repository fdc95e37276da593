//! The SAs of the fuzzed engine, and an authentic peer that seals any plaintext for them.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Carrier, ah};
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::ip::{protocol, v4};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Direction, Lifetime, Mode, OriginalAddresses, ReqId, SaAdd, SaOptions, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

/// Number of SAs that the engine has. The SPI of the n-th is `0x100 + n`.
pub(super) const SA_COUNT: usize = 12;
/// The CPI of the SAs with IPComp.
const CPI: u16 = 0x4321;

/// The n-th SA, inbound at the engine.
pub(super) fn sa(n: usize) -> SaAdd {
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

/// The peer's key of each SA.
static SENDER: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let key = |sa: SaAdd| match (sa.protocol, sa.suite.integ) {
        (ProtocolId::AH, Some(integ)) => IcvKey::new(integ, sa.integ_key.expose(), sa.suite.esn).map(Key::Ah),
        _ => EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(1))
            .map(Key::Esp),
    };
    (0..SA_COUNT).map(|n| key(sa(n)).expect("the sender's own keys")).collect()
});

/// True when the n-th SA is one of AH.
pub(super) fn is_ah(n: usize) -> bool {
    matches!(SENDER[n], Key::Ah(_))
}

/// The peer's address and the engine's, of one family.
pub(super) fn path(ipv6: bool) -> (SocketAddr, SocketAddr) {
    if ipv6 {
        let addr = |last| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 4500));
        (addr(1), addr(2))
    } else {
        (SocketAddr::from(([192, 0, 2, 1], 4500)), SocketAddr::from(([192, 0, 2, 2], 4500)))
    }
}

/// Appends a packet of the n-th SA with this plaintext, which is padded in front to whole blocks.
/// Returns how the packet travels.
pub(super) fn seal(buf: &mut Vec<u8>, n: usize, seq: u64, text: &[u8]) -> Carrier {
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
            outer_header(buf, *first, len + payload.len());
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

/// Appends an outer header for `rest` bytes of AH and payload. Bit 0 of `which` chooses IPv6, bit 1
/// adds options.
fn outer_header(buf: &mut Vec<u8>, which: u8, rest: usize) {
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
