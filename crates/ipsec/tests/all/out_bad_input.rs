//! Whatever a device hands over, for whatever SA: no panic, the books balance, and what leaves is
//! well-formed.

use std::time::Duration;

use ironswan_ipsec::Carrier;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip;
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::sadb::{SaAdd, SaOptions, Tfc};
use proptest::prelude::*;

use crate::common::*;
use crate::out_common::*;

fn kinds(v6: bool) -> Vec<SaAdd> {
    let compressed = SaOptions { ipcomp: Some(77), ..SaOptions::default() };
    let padded = SaOptions { tfc: Tfc::Mtu, dummies: Some(Duration::from_millis(1)), ..SaOptions::default() };
    vec![
        ah(v6),
        SaAdd { mode: TRANSPORT, ..ah(v6) },
        SaAdd { mode: TRANSPORT, ..outbound(v6) },
        SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(v6) },
        SaAdd { options: compressed, ..outbound(v6) },
        SaAdd { options: compressed, mode: TRANSPORT, ..ah(v6) },
        SaAdd { options: padded, ..outbound(v6) },
    ]
}

/// A packet that is nearly right: options, extension headers, fragments, a wrong byte, cut short or
/// with something behind.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop::collection::vec(
        (prop::sample::select(vec![0u8, 43, 44, 60, 59, 51, 50]), any::<[u8; 7]>()),
        0..4,
    );
    let options = prop::collection::vec(any::<u8>(), 0..41);
    let damage = prop::collection::vec((0usize..120, any::<u8>()), 0..3);
    (any::<bool>(), any::<bool>(), 0usize..1_600, headers, options, damage, any::<bool>(), any::<u16>())
        .prop_map(|(v6, tcp, len, headers, options, damage, syn, frag)| {
            let spec = if tcp { Spec::tcp(len) } else { Spec::udp(len) };
            let flags = if syn { 2 } else { spec.flags };
            let spec = Spec { flags, ..spec };
            let packet = between(if v6 { spec.over_v6() } else { spec }).build();
            let mut p = if v6 {
                let mut p = packet[..40].to_vec();
                let mut next_at = 6;
                for (kind, rest) in headers {
                    let upper = std::mem::replace(&mut p[next_at], kind);
                    next_at = p.len();
                    p.push(upper);
                    p.extend_from_slice(&rest);
                    // A length of nothing most of the time.
                    p[next_at + 1] &= if rest[1] < 200 { 0 } else { 3 };
                }
                p.extend_from_slice(&packet[40..]);
                let len = p.len() as u16 - 40;
                p[4..6].copy_from_slice(&len.to_be_bytes());
                p
            } else {
                let options = &options[..options.len() / 4 * 4];
                let mut p = [&packet[..20], options, &packet[20..]].concat();
                p[0] = 0x45 + (options.len() / 4) as u8;
                let len = p.len() as u16;
                p[2..4].copy_from_slice(&len.to_be_bytes());
                if frag.is_multiple_of(3) {
                    p[6..8].copy_from_slice(&(frag & 0x20ff).to_be_bytes());
                }
                p
            };
            for (at, value) in damage {
                let at = at % p.len();
                p[at] = value;
            }
            p
        })
}

fn offload() -> impl Strategy<Value = Offload> {
    let gso = prop::sample::select(vec![Gso::None, Gso::None, Gso::None, Gso::TcpV4, Gso::TcpV6, Gso::UdpL4]);
    let csum = prop::option::of(prop_oneof![Just((20u16, 16u16)), Just((40, 16)), any::<(u16, u16)>()]);
    (gso, 9u16..1_500, csum).prop_map(|(gso, size, csum)| Offload {
        gso,
        segment_size: if gso == Gso::None { 0 } else { size },
        csum,
        ..Offload::NONE
    })
}

fn judge(s: &Sender) {
    for sent in s.sent() {
        let Sent { send, bytes } = &sent;
        assert_eq!(send.local, s.sa.local);
        assert_eq!(send.remote, s.sa.remote);
        let at = match send.carrier {
            Carrier::Ip => {
                let info = ip::parse(bytes).expect("it begins with an IP header");
                assert_eq!((info.total_len, said_len(bytes)), (bytes.len(), bytes.len()));
                assert_eq!(info.protocol, number(s.sa.protocol));
                assert_eq!(info.ipv6, s.sa.remote.is_ipv6());
                assert!(info.ipv6 || ip::v4::checksum_ok(&bytes[..usize::from(bytes[0] & 15) * 4]));
                info.upper
            }
            _ => 0,
        };
        let spi = at + if s.sa.protocol == ProtocolId::AH { 4 } else { 0 };
        assert_eq!(bytes[spi..spi + 4], s.sa.spi.0.to_be_bytes());
        if s.sa.protocol == ProtocolId::ESP {
            let seq = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
            open_esp(&s.sa, &bytes[at..], u64::from(seq));
        }
    }
}

fn number(protocol: ProtocolId) -> u8 {
    if protocol == ProtocolId::AH { 51 } else { 50 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_frame_for_any_sa(
        v6: bool,
        frames in prop::collection::vec((nearly(), offload()), 1..12),
        garbage in prop::collection::vec(any::<u8>(), 0..200),
        mtu in prop::option::of(0u32..2_000),
    ) {
        for kind in kinds(v6) {
            let mut s = Sender::new(kind);
            if let Some(mtu) = mtu {
                s.path_mtu(mtu);
            }
            let mut count = 0;
            for (frame, offload) in frames.iter().chain([&(garbage.clone(), Offload::NONE)]) {
                let mut frame = frame.clone();
                if !s.worker.outbound(&mut frame, offload, &mut s.tx) {
                    s.worker.seal(&mut s.tx);
                    judge(&s);
                    s.tx.clear();
                    assert!(s.worker.outbound(&mut frame, offload, &mut s.tx), "an empty batch takes or drops");
                }
                count += 1;
            }
            s.worker.begin(SECOND * 2);
            s.worker.dummies(&mut s.tx);
            s.worker.seal(&mut s.tx);
            s.balance();
            prop_assert_eq!(s.engine.counters().traffic.out_frames, count);
            judge(&s);
            // What waits is given up in time.
            s.worker.begin(SECOND * 1_000);
            s.balance();
            prop_assert_eq!(s.engine.counters().held, 0);
        }
    }
}
