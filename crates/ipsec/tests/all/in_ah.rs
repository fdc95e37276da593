//! AH on its way in (RFC 4302 section 3.4; reliability checklist, item 35): what the ICV covers,
//! what may change on the way, lengths that are not the SA's, and that nothing moves before the ICV
//! was right.

use ironswan_ipsec::Carrier;
use ironswan_ipsec::DropReason::*;
use ironswan_wire::ip::v4;
use ironswan_wire::sadb::Mode;

use crate::common::*;
use crate::in_common::*;

fn modes() -> Vec<Make> {
    let transport = Make { mode: Mode::Transport, ..ah() }.between_hosts();
    vec![ah(), ah().over_v6(), transport.clone(), transport.over_v6()]
}

/// What the peer sends in this mode, its next header, and what must come out.
fn traffic(r: &Receiver, spec: Spec) -> (Vec<u8>, u8) {
    let make = &r.makes[0];
    if make.mode == Mode::Tunnel {
        return (spec.build(), 4);
    }
    let packet = host_packet(make, spec);
    let (protocol, payload) = upper(&packet);
    (payload.to_vec(), protocol)
}

#[test]
fn every_algorithm_in_both_modes_and_families() {
    for make in modes() {
        for ah in AH_ALGORITHMS {
            for esn in [false, true] {
                let mut make = Make { ah: Some(ah), ..make.clone() };
                make.options.esn = esn;
                let mut r = Receiver::new(make.clone());
                let (payload, next) = traffic(&r, Spec::tcp(100));
                let arriving = r.ah(1, &payload, next);
                let out = r.delivers(&arriving);
                match make.mode {
                    Mode::Tunnel => assert_eq!(out, payload),
                    Mode::Transport => {
                        let head = r.outer(&[], next, payload.len());
                        let mut want = [&head[..], &payload].concat();
                        if !make.options.outer_v6 {
                            want[9] = next;
                            v4::set_checksum(&mut want[..20]);
                        }
                        assert_eq!(out, want, "the header that it came under is kept");
                    }
                }
                assert_eq!(r.top(), 1);
                assert_eq!(r.engine.sas()[0].stats.packets, 1);
                r.refuses(&arriving, InStateSeqDuplicate);
            }
        }
    }
}

#[test]
fn what_routers_change_may_change_and_nothing_else() {
    for make in modes() {
        let mut r = Receiver::new(make.clone());
        let (payload, next) = traffic(&r, Spec::udp(30));
        let good = r.ah(1, &payload, next);
        let v6 = make.options.outer_v6;
        let head = if v6 { 40 } else { 20 };
        // TOS, flags without "more fragments", TTL, checksum; traffic class, flow label, hop limit.
        let mutable = |at: usize, bit: u8| match (v6, at) {
            (false, 1 | 8 | 10 | 11) => true,
            (false, 6) => bit >= 0x40,
            (true, 0) => bit < 0x10,
            (true, 1..=3 | 7) => true,
            _ => false,
        };
        let mut changed = 0;
        for at in 0..good.bytes.len() {
            for bit in (0..8).map(|b| 1u8 << b) {
                let mut a = good.clone();
                a.bytes[at] ^= bit;
                if at < head && mutable(at, bit) {
                    changed += 1;
                    continue;
                }
                assert!(r.each(&[a]).is_empty(), "byte {at} bit {bit:#x}");
                assert_eq!(r.top(), 0, "nothing moved");
            }
        }
        assert!(changed > 20);
        for at in 0..head {
            for bit in (0..8).map(|b| 1u8 << b).filter(|bit| mutable(at, *bit)) {
                let mut r = Receiver::new(make.clone());
                let mut a = good.clone();
                a.bytes[at] ^= bit;
                assert_eq!(r.each(&[a]).len(), 1, "byte {at} bit {bit:#x}");
            }
        }
        r.delivers(&good);
    }
}

#[test]
fn extension_headers_stay_in_front_of_what_transport_mode_delivers() {
    // Hop-by-hop with an option that may change, destination options; next header of the last is
    // AH.
    let options = [[60, 0, 0x3e, 2, 7, 7, 1, 0].as_slice(), &[51, 0, 1, 4, 0, 0, 0, 0]].concat();
    let make = Make { mode: Mode::Transport, ..ah() }.over_v6();
    let mut r = Receiver::new(make.clone());
    let packet = host_packet(&make, Spec::udp(40));
    let (_, payload) = upper(&packet);
    let head = r.outer(&options, 0, 32 + payload.len());
    let mut covered = masked(&head);
    covered[40 + 4..40 + 6].fill(0);
    let a = r.ah_between(0, 1, (&head, &covered), payload, 17);
    let out = r.delivers(&a);
    let mut want = [&r.outer(&options, 0, payload.len())[..], payload].concat();
    want[48] = 17;
    assert_eq!(out, want);
    // And behind AH, as payload: destination options for the host itself.
    let behind = [&[17, 0, 1, 4, 0, 0, 0, 0][..], payload].concat();
    let a = r.ah(2, &behind, 60);
    assert_eq!(r.delivers(&a)[40..], behind);
}

#[test]
fn ipv4_options_stay_in_front_of_what_transport_mode_delivers() {
    let make = Make { mode: Mode::Transport, ..ah() }.between_hosts();
    let mut r = Receiver::new(make.clone());
    let packet = host_packet(&make, Spec::tcp(40));
    let (_, payload) = upper(&packet);
    // Router alert stays; record route is the routers'.
    let options = [148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0];
    let head = r.outer(&options, 0, 28 + payload.len());
    let mut covered = masked(&head);
    covered[24..31].fill(0);
    let a = r.ah_between(0, 1, (&head, &covered), payload, 6);
    let out = r.delivers(&a);
    let mut want = r.outer(&options, 0, payload.len());
    want[9] = 6;
    v4::set_checksum(&mut want);
    assert_eq!(out, [&want[..], payload].concat());
    // What a router wrote into record route may be anything; router alert may not.
    let mut a = r.ah_between(0, 2, (&head, &covered), payload, 6);
    a.bytes[27] = 8;
    assert_eq!(r.each(std::slice::from_ref(&a)).len(), 1);
    let mut a = r.ah_between(0, 3, (&head, &covered), payload, 6);
    a.bytes[22] = 1;
    r.refuses(&a, InStateProtoError);
}

#[test]
fn a_length_that_is_not_the_sas() {
    for make in modes() {
        for words in [0, 1, 2, 3, 4, 6, 7, 8, 9, 200, 255] {
            let mut r = Receiver::new(make.clone());
            let (payload, next) = traffic(&r, Spec::udp(1200));
            let mut a = r.ah(1, &payload, next);
            let head = if make.options.outer_v6 { 40 } else { 20 };
            let right = a.bytes[head + 1];
            a.bytes[head + 1] = words;
            // Linux pads AH in IPv4 to eight bytes, too, unless told otherwise.
            let padded = 6;
            if words != right && words != padded {
                r.refuses(&a, InHdrError);
                assert_eq!(r.top(), 0);
            }
        }
    }
}

#[test]
fn ah_that_linux_pads_to_eight_bytes_in_ipv4() {
    let mut r = Receiver::new(ah());
    let inner = Spec::udp(9).build();
    // 12 + 16 bytes are 28: four of padding, which the ICV covers.
    let head = r.outer(&[], 0, 32 + inner.len());
    let a = r.ah_between(0, 1, (&head, &masked(&head)), &[&[0; 4][..], &inner].concat(), 4);
    let mut padded = a.bytes.clone();
    padded[21] = 6;
    // Sign again over the other length.
    let sa = r.makes[0].sa();
    let key =
        ironswan_crypto::icv::IcvKey::new(sa.suite.integ.unwrap(), sa.integ_key.expose(), false).unwrap();
    let mut jobs = [ironswan_crypto::icv::IcvJob {
        head: 0,
        head_len: 20,
        start: 20,
        len: (padded.len() - 20) as u32,
        field: 32,
        seq: 1,
        key: 0,
        ok: false,
    }];
    ironswan_crypto::icv::sign(&masked(&head), &mut padded, &mut jobs, &[&key]);
    assert_eq!(r.delivers(&Arriving { bytes: padded, ..a }), inner);
}

#[test]
fn packets_cut_anywhere_and_with_bytes_behind() {
    for make in modes() {
        let mut r = Receiver::new(make);
        let (payload, next) = traffic(&r, Spec::udp(30));
        let good = r.ah(1, &payload, next);
        for len in 0..good.bytes.len() {
            r.refuses(&Arriving { bytes: good.bytes[..len].to_vec(), ..good.clone() }, InHdrError);
        }
        // What a link adds to reach its least length is not of the packet.
        let mut longer = good.clone();
        longer.bytes.extend_from_slice(&[0; 9]);
        let long = r.delivers(&longer);
        assert!(long.len() < good.bytes.len());
    }
}

#[test]
fn fragments_are_not_for_ah() {
    let mut r = Receiver::new(ah());
    for field in [v4::MF, 1, v4::MF | 100] {
        let mut a = r.ah(1, &Spec::udp(30).build(), 4);
        a.bytes[6..8].copy_from_slice(&field.to_be_bytes());
        r.refuses(&a, InFragment);
    }
    let mut r = Receiver::new(ah().over_v6());
    let whole = r.ah(1, &Spec::udp(30).build(), 4);
    for field in [1u16, 8, 0xfff9] {
        let mut a = whole.clone();
        let [high, low] = field.to_be_bytes();
        a.bytes.splice(40..40, [51, 0, high, low, 0, 0, 0, 1]);
        a.bytes[6] = 44;
        let len = (a.bytes.len() - 40) as u16;
        a.bytes[4..6].copy_from_slice(&len.to_be_bytes());
        r.refuses(&a, InFragment);
    }
    assert_eq!(r.top(), 0);
}

#[test]
fn what_is_not_ah_at_all() {
    let mut r = Receiver::new(ah());
    let good = r.ah(1, &Spec::udp(30).build(), 4);
    let with = |at: usize, value: u8| {
        let mut a = good.clone();
        a.bytes[at] = value;
        a
    };
    for protocol in [0, 4, 6, 50, 52, 255] {
        r.refuses(&with(9, protocol), InHdrError);
    }
    for first in [0x00, 0x44, 0x55, 0x65, 0xff] {
        r.refuses(&with(0, first), InHdrError);
    }
    for (spi, reason) in [(0u32, InReservedSpi), (255, InReservedSpi), (256, InNoStates)] {
        let mut a = good.clone();
        a.bytes[24..28].copy_from_slice(&spi.to_be_bytes());
        r.refuses(&a, reason);
    }
    r.refuses(&r.ah(0, &Spec::udp(30).build(), 4), InStateSeqOld);
    r.delivers(&good);
}

#[test]
fn headers_that_cannot_be_read_to_their_end() {
    // The ICV is right if nothing in front of AH counts: it must not come to that.
    let options = [[7, 1, 0, 0], [7, 9, 0, 0], [131, 3, 3, 0], [137, 4, 4, 0]];
    let v6 = [[60, 0, 9], [51, 0, 201], [51, 0, 5]].map(|[next, len, kind]| [next, len, kind, 9, 0, 0, 0, 0]);
    let cases = options.iter().map(|o| (ah(), &o[..])).chain(v6.iter().map(|o| (ah().over_v6(), &o[..])));
    for (make, options) in cases {
        let mut r = Receiver::new(make);
        let inner = Spec::udp(30).build();
        let len = ah_len(16, r.makes[0].options.outer_v6);
        let head = r.outer(options, 60, len + inner.len());
        r.refuses(&r.ah_between(0, 1, (&head, &[]), &inner, 4), InHdrError);
        assert_eq!(r.top(), 0);
    }
}

#[test]
fn esp_for_an_ah_sa_and_the_reverse() {
    let esp = Make { spi: SPI + 1, ..Make::default() };
    let mut r = Receiver::with(vec![ah(), esp]);
    let inner = Spec::udp(30).build();
    let mut a = r.esp_of(1, 1, &text(&inner, 4, 4));
    a.bytes[..4].copy_from_slice(&SPI.to_be_bytes());
    r.refuses(&a, InStateProtocol);
    r.refuses(&Arriving { carrier: Carrier::Esp, ..a }, InStateProtocol);
    let mut a = r.ah(1, &inner, 4);
    a.bytes[24..28].copy_from_slice(&(SPI + 1).to_be_bytes());
    r.refuses(&a, InStateProtocol);
    assert_eq!((r.top(), r.top_of(SPI + 1)), (0, 0));
}

#[test]
fn ah_and_esp_in_one_batch_keep_their_order() {
    let cbc = Options { algorithm: CBC_SHA256, ..Options::default() };
    let mut transport_ah = Make { mode: Mode::Transport, spi: SPI + 2, ..ah() }.between_hosts();
    transport_ah.ah = Some(AH_ALGORITHMS[9]);
    let mut r = Receiver::with(vec![
        ah(),
        Make { spi: SPI + 1, options: cbc, ..Make::default() },
        transport_ah.clone(),
        Make { spi: SPI + 3, ..transport() },
    ]);
    let mut batch = Vec::new();
    let mut want = Vec::new();
    for i in 0..40u16 {
        let spec = Spec { id: i, ports: (i, 9), ..Spec::udp(30 + usize::from(i)) };
        let seq = u64::from(i / 4 + 1);
        let inner = spec.build();
        let hosts = host_packet(&transport_ah, spec);
        let (_, payload) = upper(&hosts);
        let which = usize::from(i) % 4;
        want.push(if which < 2 { inner.clone() } else { payload.to_vec() });
        batch.push(match which {
            0 => r.ah_of(0, seq, &inner, 4),
            1 => r.esp_of(1, seq, &text(&inner, 4, 16)),
            2 => r.ah_of(2, seq, payload, 17),
            _ => r.esp_of(3, seq, &text(payload, 17, 4)),
        });
        // Every fifth is damaged.
        if i % 5 == 4 {
            *batch.last_mut().unwrap().bytes.last_mut().unwrap() ^= 1;
            want.pop();
        }
    }
    let out = r.take(&batch);
    assert_eq!(out.len(), 32);
    for ((_, got), want) in out.iter().zip(&want) {
        assert!(got.ends_with(want));
    }
    assert_eq!(r.engine.counters().dropped(InStateProtoError), 8);
    for which in 0..4 {
        assert!(r.top_of(SPI + which) >= 9);
    }
}

#[test]
fn a_wrong_icv_never_moves_the_window() {
    for make in modes() {
        let mut r = Receiver::new(make);
        let (payload, next) = traffic(&r, Spec::udp(30));
        let mut far = r.ah(1_000_000, &payload, next);
        *far.bytes.last_mut().unwrap() ^= 1;
        r.refuses(&far, InStateProtoError);
        assert_eq!(r.top(), 0);
        for seq in 1..=3 {
            let a = r.ah(seq, &payload, next);
            r.delivers(&a);
        }
    }
}

#[test]
fn the_high_half_of_an_extended_number_is_in_the_icv() {
    let mut make = ah();
    make.options.esn = true;
    let mut r = Receiver::new(make);
    let inner = Spec::udp(30).build();
    let start = 0xffff_fff0u64;
    r.engine
        .advance_sequence(
            ironswan_wire::sadb::SaRef {
                direction: ironswan_wire::sadb::Direction::In,
                spi: ironswan_wire::sadb::Spi(SPI),
                reqid: ironswan_wire::sadb::ReqId(REQID),
                remote: r.addresses().1.ip(),
            },
            start,
        )
        .unwrap();
    for seq in start + 1..start + 40 {
        let a = r.ah(seq, &inner, 4);
        r.delivers(&a);
    }
    assert_eq!(r.top(), start + 39);
    // The same low half of the subspace before: the number that is inferred has another high half.
    let a = r.ah(u64::from((start + 41) as u32), &inner, 4);
    r.refuses(&a, InStateProtoError);
}

#[test]
fn in_tunnel_mode_only_ip_is_in_ah() {
    let mut r = Receiver::new(ah());
    let inner = Spec::udp(30).build();
    for (seq, next) in [0, 6, 17, 50, 51, 59, 255].into_iter().enumerate() {
        let a = r.ah(seq as u64 + 1, &inner, next);
        r.refuses(&a, InStateModeError);
    }
    let a = r.ah(100, &inner, 41);
    r.refuses(&a, InInnerVersion);
}

#[test]
fn ah_around_esp_and_esp_around_ah_are_payload_of_the_hosts() {
    // RFC 4301 section 4.4.2.1 leaves nesting to forwarding: each layer comes out as a packet of
    // its own.
    let make = Make { mode: Mode::Transport, ..ah() }.between_hosts();
    let esp = Make { spi: SPI + 1, ..transport() };
    let mut r = Receiver::with(vec![make.clone(), esp]);
    let inside = r.esp_of(1, 1, &text(&[7; 30], 17, 4)).bytes;
    let a = r.ah(1, &inside, 50);
    let out = r.delivers(&a);
    assert_eq!(upper(&out), (50, &inside[..]));
    let inside = r.ah(2, &[7; 30], 17).bytes[20..].to_vec();
    let a = r.esp_of(1, 2, &text(&inside, 51, 4));
    let out = r.delivers(&a);
    assert_eq!(upper(&out), (51, &inside[..]));
}
