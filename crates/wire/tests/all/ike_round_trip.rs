//! Whatever is emitted parses to the same value, and no bytes make a parser panic.

use std::net::IpAddr;

use ironswan_wire::iana::*;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::payload::{
    Auth, Cert, CertReq, Config, ConfigAttribute, Delete, Eap, Id, Ke, Nonce, Notify,
};
use ironswan_wire::ike::payload::{Sk, Skf, VendorId};
use ironswan_wire::ike::{
    Flags, Fragment, Geometry, Header, Message, Payload, SealedDraft, Within, emit_chain, parse_chain, sealed,
};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::selector::{AddrRange, TrafficSelector};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..max)
}

fn transform() -> impl Strategy<Value = Transform> {
    prop_oneof![
        (any::<u16>(), any::<Option<u16>>()).prop_map(|(id, bits)| Transform::Encr(EncrId(id), bits)),
        any::<u16>().prop_map(|id| Transform::Prf(PrfId(id))),
        any::<u16>().prop_map(|id| Transform::Integ(IntegId(id))),
        any::<u16>().prop_map(|id| Transform::Ke(KeId(id))),
        any::<u16>().prop_map(|id| Transform::Esn(EsnId(id))),
        (1..=7u8, any::<u16>()).prop_map(|(n, id)| Transform::AddKe(n, KeId(id))),
        (13..=255u8, any::<u16>()).prop_map(|(kind, id)| Transform::Unknown { kind, id }),
    ]
}

fn proposals() -> impl Strategy<Value = Vec<Proposal>> {
    let spi = prop_oneof![
        Just((ProtocolId::IKE, 0)),
        Just((ProtocolId::IKE, 8)),
        Just((ProtocolId::AH, 4)),
        Just((ProtocolId::ESP, 4)),
        (4..=255u8, 0..=255usize).prop_map(|(p, n)| (ProtocolId(p), n)),
    ];
    let one = (spi, vec(transform(), 0..12)).prop_map(|((protocol, n), transforms)| Proposal {
        number: 0,
        protocol,
        spi: vec![0xa5; n],
        transforms,
    });
    vec(one, 1..6).prop_map(|mut all| {
        for (i, p) in all.iter_mut().enumerate() {
            p.number = i as u8 + 1;
        }
        all
    })
}

fn selectors() -> impl Strategy<Value = Vec<TrafficSelector>> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|a| a.map(IpAddr::from));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|a| a.map(IpAddr::from));
    let range = prop_oneof![v4, v6].prop_map(|[a, b]| AddrRange::new(a.min(b), a.max(b)).unwrap());
    let ports = prop_oneof![
        any::<[u16; 2]>().prop_map(|[a, b]| (a.min(b), a.max(b))),
        Just((65535, 0)),
        Just((0, 65535)),
    ];
    let one = (range, any::<u8>(), ports).prop_map(|(range, protocol, (start_port, end_port))| {
        TrafficSelector { range, protocol, start_port, end_port }
    });
    vec(one, 1..8)
}

fn id() -> impl Strategy<Value = Id> {
    let identity = prop_oneof![
        any::<IpAddr>().prop_map(Identity::from_addr),
        (prop_oneof![Just(2u8), Just(3), Just(9), Just(11), Just(200)], bytes(80))
            .prop_map(|(kind, data)| Identity { kind: IdType(kind), data }),
    ];
    (identity, any::<[u8; 3]>()).prop_map(|(identity, reserved)| Id { identity, reserved })
}

fn delete() -> impl Strategy<Value = Delete> {
    prop_oneof![
        Just(Delete::ike_sa()),
        (2..=3u8, vec(any::<[u8; 4]>(), 0..9)).prop_map(|(protocol, spis)| Delete {
            protocol: ProtocolId(protocol),
            spis: spis.into_iter().map(|s| s.to_vec()).collect()
        }),
    ]
}

/// Every payload type that may stand inside SK.
fn any_payload() -> impl Strategy<Value = Payload> {
    let config = (any::<u8>(), vec((0..0x8000u16, bytes(20)), 0..6)).prop_map(|(kind, attributes)| Config {
        kind,
        attributes: attributes.into_iter().map(|(kind, value)| ConfigAttribute { kind, value }).collect(),
    });
    let eap = (any::<[u8; 2]>(), bytes(40)).prop_map(|(head, data)| {
        let mut all = head.to_vec();
        all.extend((data.len() as u16 + 4).to_be_bytes());
        all.extend(data);
        Eap(all)
    });
    prop_oneof![
        proposals().prop_map(Payload::Sa),
        (any::<u16>(), bytes(300)).prop_map(|(g, data)| Payload::Ke(Ke { group: KeId(g), data })),
        id().prop_map(Payload::IdI),
        id().prop_map(Payload::IdR),
        (any::<u8>(), bytes(200)).prop_map(|(encoding, data)| Payload::Cert(Cert { encoding, data })),
        (any::<u8>(), bytes(60))
            .prop_map(|(encoding, authorities)| Payload::CertReq(CertReq { encoding, authorities })),
        (any::<u8>(), bytes(80)).prop_map(|(m, data)| Payload::Auth(Auth { method: AuthMethod(m), data })),
        vec(any::<u8>(), 16..=256).prop_map(|n| Payload::Nonce(Nonce(n))),
        (any::<u8>(), bytes(9), any::<u16>(), bytes(70)).prop_map(|(p, spi, kind, data)| {
            Payload::Notify(Notify { protocol: ProtocolId(p), spi, kind: NotifyType(kind), data })
        }),
        delete().prop_map(Payload::Delete),
        bytes(40).prop_map(|v| Payload::VendorId(VendorId(v))),
        selectors().prop_map(Payload::TsI),
        selectors().prop_map(Payload::TsR),
        config.prop_map(Payload::Config),
        eap.prop_map(Payload::Eap),
        (prop_oneof![Just(1u8), Just(32), Just(49), Just(255)], bytes(30))
            .prop_map(|(kind, body)| { Payload::Other { kind: PayloadType(kind), critical: false, body } }),
    ]
}

fn chain() -> impl Strategy<Value = Vec<Payload>> {
    vec(any_payload(), 0..8).prop_map(|mut all| {
        let mut seen = Vec::new();
        all.retain(|p| {
            let again = seen.contains(&p.kind());
            seen.push(p.kind());
            !again
        });
        all
    })
}

fn header() -> impl Strategy<Value = Header> {
    (1..=u64::MAX, any::<u64>(), any::<u8>(), any::<u8>(), any::<u32>())
        .prop_map(|(i, r, exchange, flags, id)| Header::new(i, r, ExchangeType(exchange), Flags(flags), id))
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (prop_oneof![Just(8usize), Just(16)], 8..33usize, prop_oneof![Just(1usize), Just(8), Just(16)])
        .prop_map(|(iv, icv, block)| Geometry { iv, icv, block })
}

proptest! {
    #[test]
    fn a_chain_parses_to_what_was_emitted(payloads in chain()) {
        let (first, bytes) = emit_chain(&payloads).unwrap();
        prop_assert_eq!(parse_chain(first, &bytes, Within::Sk).unwrap(), payloads);
    }

    #[test]
    fn a_clear_message_parses_to_what_was_emitted(header in header(), payloads in chain()) {
        let bytes = Message { header, payloads: payloads.clone() }.emit().unwrap();
        let message = Message::parse(&bytes).unwrap();
        prop_assert_eq!(&message.payloads, &payloads);
        prop_assert_eq!(message.header.length as usize, bytes.len());
        prop_assert_eq!(message.header.next_payload, payloads.first().map_or(PayloadType::NONE, Payload::kind));
        prop_assert_eq!(Header { length: 0, next_payload: PayloadType::NONE, ..message.header }, header);
        prop_assert_eq!(message.emit().unwrap(), bytes);
    }

    #[test]
    fn a_sealed_message_is_found_where_it_was_laid_out(
        header in header(), clear in chain(), inner in chain(), g in geometry(),
        fragment in proptest::option::of((1..9u16, 9..99u16)),
    ) {
        let (first, plain) = emit_chain(&inner).unwrap();
        let fragment = fragment.map(|(number, total)| Fragment { number, total });
        let draft = SealedDraft::emit_plain(&header, &clear, first, &plain, fragment, g).unwrap();
        let r = &draft.ranges;
        prop_assert_eq!((r.aad.start, r.aad.end, r.iv.end, r.text.end, r.icv.end),
                        (0, r.iv.start, r.text.start, r.icv.start, draft.bytes.len()));
        prop_assert_eq!((r.iv.len(), r.icv.len(), r.text.len() % g.block), (g.iv, g.icv, 0));
        prop_assert!(r.text.len() < plain.len() + 1 + g.block, "no more padding than the block needs");

        let message = Message::parse(&draft.bytes).unwrap();
        prop_assert!(message.is_sealed());
        prop_assert_eq!(&message.sealed(g).unwrap(), r);
        prop_assert_eq!(&message.payloads[..message.payloads.len() - 1], &clear[..]);
        let body = draft.bytes[r.iv.start..].to_vec();
        let expected = match fragment {
            Some(fragment) => Payload::Skf(Skf { inner: first, fragment, body }),
            None => Payload::Sk(Sk { inner: first, body }),
        };
        prop_assert_eq!(message.payloads.last(), Some(&expected));
        prop_assert_eq!(sealed::unpad(&draft.bytes[r.text.clone()]).unwrap(), &plain[..]);
    }

    #[test]
    fn fragments_fill_the_message_and_no_more(max in 0..2000usize, g in geometry()) {
        let header = Header::new(1, 2, ExchangeType::IKE_AUTH, Flags(0), 1);
        let fragment = Some(Fragment { number: 1, total: 2 });
        let len = |n| {
            SealedDraft::emit_plain(&header, &[], PayloadType::IDI, &vec![0; n], fragment, g).unwrap().bytes.len()
        };
        match g.fragment_capacity(max) {
            Some(n) => prop_assert!(len(n) <= max && len(n + 1) > max),
            None => prop_assert!(len(1) > max),
        }
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(first in any::<u8>(), data in bytes(200)) {
        let _ = Message::parse(&data);
        let _ = parse_chain(PayloadType(first), &data, Within::Clear);
        for kind in 33..=54 {
            let _ = parse_chain(PayloadType(kind), &data, Within::Sk);
        }
    }

    #[test]
    fn what_parses_after_damage_is_still_a_value(payloads in chain(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let (first, mut bytes) = emit_chain(&payloads).unwrap();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
        }
        if let Ok(payloads) = parse_chain(first, &bytes, Within::Sk) {
            // Emitting normalises what parsing ignores; after that nothing changes any more. Only a
            // TS payload whose selectors were all of unknown types cannot be said again.
            match emit_chain(&payloads) {
                Ok((first, once)) => {
                    let again = parse_chain(first, &once, Within::Sk).unwrap();
                    prop_assert_eq!(emit_chain(&again).unwrap(), (first, once));
                }
                Err(e) => prop_assert_eq!(e.what, "TS payload without a selector"),
            }
        }
    }
}
