//! The maximum segment size that a TCP SYN asks for is brought down to what fits the path of its
//! SA, whatever the SA is.

use ironswan_ipsec::mtu::Encapsulation;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{SaAdd, SaOptions};

use crate::common::*;
use crate::out_common::*;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn syn(v6: bool, flags: u8, mss: u16) -> Spec {
    let [high, low] = mss.to_be_bytes();
    // MSS, SACK permitted, window scale, as Linux sends them.
    let options = vec![2, 4, high, low, 4, 2, 1, 3, 3, 7, 0, 0];
    let spec = Spec { flags, options, payload: Vec::new(), ..Spec::tcp(0) };
    between(if v6 { spec.over_v6() } else { spec })
}

/// What comes out of the tunnel, as a whole packet.
fn carried(s: &mut Sender, frame: (Vec<u8>, Offload)) -> Vec<u8> {
    let original = frame.0.clone();
    let sent = s.send(&[frame]);
    let seq = s.engine.counters().traffic.out_sent;
    let kept = if s.sa.remote.is_ipv6() { 40 } else { 20 };
    let at = if is_whole(&sent[0]) { kept } else { 0 };
    let inside = match s.sa.protocol {
        ProtocolId::AH => open_ah(&s.sa, &sent[0].bytes, at, seq),
        _ => open_esp(&s.sa, &sent[0].bytes[at..], seq),
    };
    match s.sa.mode {
        TRANSPORT => [&original[..kept], &inside.body].concat(),
        _ => inside.body,
    }
}

#[test]
fn a_syn_asks_for_what_fits_every_kind_of_sa() {
    for v6 in [false, true] {
        let ip = if v6 { 40 } else { 20 };
        for sa in [
            // The fast path, raw and in UDP.
            outbound(v6),
            SaAdd { udp_encap: true, suite: CBC_SHA256.suite, ..outbound(v6) },
            SaAdd { options: SaOptions { ipcomp: Some(3), ..SaOptions::default() }, ..outbound(v6) },
            SaAdd { mode: TRANSPORT, ..outbound(v6) },
            SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(v6) },
            ah(v6),
            SaAdd { mode: TRANSPORT, ..ah(v6) },
        ] {
            let mut s = Sender::new(sa);
            // Nothing is known of the path.
            let whole = syn(v6, SYN, 1_460);
            assert_eq!(carried(&mut s, (whole.build(), Offload::NONE)), whole.build());
            s.path_mtu(1_400);
            let fits = Encapsulation::of(&s.sa).inner_max(1_400) as u16;
            let most = fits - ip - 20;
            for flags in [SYN, SYN | ACK] {
                for unfinished in [false, true] {
                    for asked in [most - 1, most, most + 1, 1_460, 65_535, 536] {
                        let spec = syn(v6, flags, asked);
                        let frame =
                            if unfinished { spec.superpacket(1_000) } else { (spec.build(), Offload::NONE) };
                        // Built anew: with a right checksum.
                        let want = syn(v6, flags, asked.min(most)).build();
                        assert_eq!(carried(&mut s, frame), want, "{asked} {unfinished}");
                    }
                }
            }
            // A segment of that size fits, and one byte more does not.
            let segment = |extra| {
                let spec = Spec { options: Vec::new(), ..Spec::tcp(usize::from(most) + extra) };
                between(if v6 { spec.over_v6() } else { spec }).build()
            };
            let mut outer = |packet: &[u8]| {
                let sent = s.one(packet);
                let extra =
                    if is_whole(&sent) { 0 } else { usize::from(ip) + if s.sa.udp_encap { 8 } else { 0 } };
                sent.bytes.len() + extra
            };
            assert!(outer(&segment(0)) <= 1_400);
            assert!(outer(&segment(1)) > 1_400);
        }
    }
}

#[test]
fn a_syn_through_a_tunnel_of_the_other_family() {
    let mut s = Sender::new(ah(true));
    s.path_mtu(1_280);
    // IPv6 40, AH 12 + 16 padded to 32; inner IPv4 20, TCP 20.
    let got = carried(&mut s, (syn(false, SYN, 1_460).build(), Offload::NONE));
    assert_eq!(got, syn(false, SYN, 1_280 - 40 - 32 - 40).build());
}

#[test]
fn all_but_syns_are_left_alone() {
    let mut s = Sender::new(outbound(false));
    s.path_mtu(600);
    for packet in [
        syn(false, ACK, 1_460).build(),
        // UDP whose 14th byte looks like SYN.
        Spec { payload: vec![0xff; 40], ..Spec::udp(0) }.build(),
    ] {
        assert_eq!(carried(&mut s, (packet.clone(), Offload::NONE)), packet);
    }
}
