//! What `inner_max` says is what the engine does, for every suite, outer family and encapsulation.

use ironswan_ipsec::mtu::{Encapsulation, MIN_MTU_V4, MIN_MTU_V6};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::Mode;
use proptest::prelude::*;

use crate::common::*;

/// Length of the outer packet around an inner one of `inner` bytes.
fn outer_len(pair: &mut Pair, inner: usize) -> usize {
    let esp = pair.seal_one(&Spec::udp(inner - 28).build());
    let options = &pair.options;
    esp.len() + if options.outer_v6 { 40 } else { 20 } + if options.udp_encap { 8 } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_largest_inner_packet_fits_and_one_byte_more_does_not(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        outer_v6: bool,
        udp_encap: bool,
        path in 200u32..9_100,
    ) {
        let mut pair = Pair::new(Options { algorithm, outer_v6, udp_encap, ..Options::default() });
        let inner = Encapsulation {
            protocol: ProtocolId::ESP,
            mode: Mode::Tunnel,
            suite: algorithm.suite,
            outer_ipv6: outer_v6,
            udp_encap,
        }
        .inner_max(path) as usize;
        prop_assert!(outer_len(&mut pair, inner) <= path as usize);
        prop_assert!(outer_len(&mut pair, inner + 1) > path as usize);
    }
}

#[test]
fn a_send_says_up_to_which_length_its_packets_may_be_fragmented() {
    for algorithm in ALGORITHMS {
        let mut pair = Pair::new(Options { algorithm, ..Options::default() });
        let v6 = |len: usize| Spec::udp(len - 48).over_v6().build();
        let v4 = |len: usize| Spec::udp(len - 28).build();
        for (least, longer, frame) in [
            (MIN_MTU_V4, MIN_MTU_V4 + 16, &v4 as &dyn Fn(usize) -> Vec<u8>),
            (MIN_MTU_V6, MIN_MTU_V6 + 16, &v6),
        ] {
            let esp = pair.seal_one(&frame(least));
            assert_eq!(esp.len(), usize::from(pair.tx.sends[0].fragmentable), "{}", algorithm.name);
            let esp = pair.seal_one(&frame(longer));
            assert!(esp.len() > usize::from(pair.tx.sends[0].fragmentable), "{}", algorithm.name);
        }
        // Both families are never in one send, since the limit is the send's.
        pair.seal(&[v4(1000), v6(1000), v4(1000)].map(|f| (f, Offload::NONE)));
        assert_eq!(pair.tx.sends.len(), 3);
        assert!(pair.tx.sends[0].fragmentable < pair.tx.sends[1].fragmentable);
    }
}
