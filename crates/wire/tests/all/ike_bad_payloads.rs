//! Hostile and sloppy bodies of IKE payloads, one story a test: each is refused by name, or ignored
//! where the RFC says so.

use crate::common::*;
use ironswan_wire::iana::{EncrId, IntegId, KeId, NotifyType, PayloadType, PrfId, ProtocolId};
use ironswan_wire::ike::{Fault, Message, ParseError, Payload, emit_chain, payload};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::read::EmitError;

/// One ESP proposal with AES-GCM-16 (128) and NO_ESN: 1 proposal header, SPI, 12 + 8 bytes of
/// transforms.
fn proposal(last: u8, number: u8, protocol: u8, spi: &[u8], count: u8, transforms: &[u8]) -> Vec<u8> {
    let mut p = vec![last, 0, 0, 0, number, protocol, spi.len() as u8, count];
    p.extend(spi);
    p.extend(transforms);
    let len = p.len() as u16;
    p[2..4].copy_from_slice(&len.to_be_bytes());
    p
}

fn transform(last: u8, kind: u8, id: u16, attributes: &[u8]) -> Vec<u8> {
    let mut t = vec![last, 0];
    t.extend((attributes.len() as u16 + 8).to_be_bytes());
    t.extend([kind, 0]);
    t.extend(id.to_be_bytes());
    t.extend(attributes);
    t
}

fn sa(body: &[u8]) -> Vec<Proposal> {
    match one(PayloadType::SA, body) {
        Ok(Payload::Sa(proposals)) => proposals,
        other => panic!("{other:?}"),
    }
}

fn only_transform(kind: u8, id: u16, attributes: &[u8]) -> Transform {
    sa(&proposal(0, 1, 1, &[], 1, &transform(0, kind, id, attributes)))[0].transforms[0]
}

#[test]
fn proposal_numbers_must_grow_from_one() {
    let t = transform(0, 2, 5, &[]);
    let p = |last, number| proposal(last, number, 1, &[], 1, &t);
    refused(PayloadType::SA, &p(0, 0), "do not grow");
    refused(PayloadType::SA, &[p(2, 1), p(0, 1)].concat(), "do not grow");
    refused(PayloadType::SA, &[p(2, 2), p(0, 1)].concat(), "do not grow");
    let around: Vec<u8> = (250..=300).flat_map(|i: u16| p(2, i as u8)).collect();
    refused(PayloadType::SA, &around, "do not grow");
    // An answer carries the number that was chosen.
    assert_eq!(sa(&p(0, 2))[0].number, 2);
    assert_eq!(sa(&[p(2, 1), p(2, 2), p(0, 3)].concat()).len(), 3);
}

#[test]
fn proposals_and_transforms_are_counted_before_they_are_kept() {
    let t = transform(0, 2, 5, &[]);
    let list = |n: u8, protocol: u8, spi: &[u8]| -> Vec<u8> {
        (1..=n).flat_map(|i| proposal(if i == n { 0 } else { 2 }, i, protocol, spi, 1, &t)).collect()
    };
    assert_eq!(sa(&list(64, 1, &[])).len(), 64);
    refused(PayloadType::SA, &list(65, 1, &[]), "too many proposals");
    assert_eq!(
        sa(&list(255, 3, &[1, 2, 3, 4])).len(),
        255,
        "authenticated peers may propose all that they have"
    );
    let transforms = |n: u8| -> Vec<u8> {
        (1..=n).flat_map(|i| transform(if i == n { 0 } else { 3 }, 2, 5, &[])).collect()
    };
    let three = |last| {
        let full = |more, number, n| proposal(more, number, 1, &[], n, &transforms(n));
        [full(2, 1, 255), full(2, 2, 255), full(0, 3, last)].concat()
    };
    assert_eq!(sa(&three(2)).iter().map(|p| p.transforms.len()).sum::<usize>(), 512);
    refused(PayloadType::SA, &three(3), "too many transforms");
}

#[test]
fn last_substructure_fields_must_tell_the_truth() {
    let t = transform(0, 2, 5, &[]);
    refused(PayloadType::SA, &[], "proposal needs 1 bytes");
    refused(PayloadType::SA, &proposal(2, 1, 1, &[], 1, &t), "proposal needs 1 bytes, 0 left");
    refused(PayloadType::SA, &proposal(1, 1, 1, &[], 1, &t), "neither 0 nor 2");
    let two = [proposal(0, 1, 1, &[], 1, &t), proposal(0, 2, 1, &[], 1, &t)].concat();
    refused(PayloadType::SA, &two, "16 bytes too many");
    for last in [1, 2, 3, 255] {
        refused(PayloadType::SA, &proposal(0, 1, 1, &[], 1, &transform(last, 2, 5, &[])), "last-transform");
    }
    let none_last = [transform(0, 2, 5, &[]), transform(0, 2, 5, &[])].concat();
    refused(PayloadType::SA, &proposal(0, 1, 1, &[], 2, &none_last), "last-transform");
}

#[test]
fn the_number_of_transforms_must_match_what_is_there() {
    let t = transform(0, 2, 5, &[]);
    refused(PayloadType::SA, &proposal(0, 1, 1, &[], 0, &t), "8 bytes too many");
    refused(PayloadType::SA, &proposal(0, 1, 1, &[], 2, &t), "last-transform");
    refused(PayloadType::SA, &proposal(0, 1, 1, &[], 2, &transform(3, 2, 5, &[])), "transform needs 1 bytes");
    assert_eq!(sa(&proposal(0, 1, 1, &[], 0, &[]))[0].transforms, []);
    let mut many = transform(3, 2, 5, &[]).repeat(254);
    many.extend(&t);
    assert_eq!(sa(&proposal(0, 1, 1, &[], 255, &many))[0].transforms.len(), 255);
}

#[test]
fn lengths_inside_sa_must_stay_inside() {
    let good = sa_body();
    assert!(one(PayloadType::SA, &good).is_ok());
    for at in [2, 14, 26] {
        for bad in [0u16, 1, 3, 7, 33, 0x7fff, 0xffff] {
            let mut b = good.clone();
            b[at..at + 2].copy_from_slice(&bad.to_be_bytes());
            let e = one(PayloadType::SA, &b).unwrap_err();
            assert_eq!(e.notify(), NotifyType::INVALID_SYNTAX, "{bad} at {at}");
        }
    }
    for n in 0..good.len() {
        assert!(one(PayloadType::SA, &good[..n]).is_err(), "{n} bytes");
    }
}

#[test]
fn the_spi_size_must_be_the_protocols() {
    let t = transform(0, 2, 5, &[]);
    for (protocol, good) in [(1, &[0usize, 8][..]), (2, &[4]), (3, &[4])] {
        for n in [0, 1, 3, 4, 8, 255] {
            let body = proposal(0, 1, protocol, &vec![1; n], 1, &t);
            assert_eq!(
                one(PayloadType::SA, &body).is_ok(),
                good.contains(&n),
                "protocol {protocol}, {n} bytes"
            );
        }
    }
    // An SPI longer than the proposal.
    let mut body = proposal(0, 1, 3, &[1; 4], 0, &[]);
    body[3] = 10;
    body.truncate(10);
    refused(PayloadType::SA, &body, "SPI needs 4 bytes, 2 left");
    // Protocols of others are shown, not refused: their proposals are not acceptable, the rest may
    // be.
    assert_eq!(sa(&proposal(0, 1, 9, &[], 1, &t))[0].protocol, ProtocolId(9));
}

#[test]
fn a_key_length_is_kept_as_it_is_even_when_senseless() {
    for bits in [0u16, 1, 127, 128, 65535] {
        let [h, l] = bits.to_be_bytes();
        let t = only_transform(1, 12, &[0x80, 14, h, l]);
        assert_eq!(t, Transform::Encr(EncrId::AES_CBC, Some(bits)));
    }
    assert_eq!(only_transform(1, 12, &[]), Transform::Encr(EncrId::AES_CBC, None));
    // So that ChaCha20 with a key length differs from ChaCha20.
    let chacha = only_transform(1, 28, &[0x80, 14, 1, 0]);
    assert_eq!(chacha, Transform::Encr(EncrId::CHACHA20_POLY1305, Some(256)));
}

#[test]
fn an_attribute_that_is_not_understood_spoils_its_transform_only() {
    let key = [0x80, 14, 0, 128];
    let unknown = Transform::Unknown { kind: 1, id: 12 };
    assert_eq!(only_transform(1, 12, &[key, key].concat()), unknown, "twice");
    assert_eq!(only_transform(1, 12, &[0, 14, 0, 2, 0, 128]), unknown, "in the long form");
    assert_eq!(only_transform(1, 12, &[0x80, 15, 0, 128]), unknown, "another type");
    assert_eq!(only_transform(1, 12, &[0, 99, 0, 0]), unknown, "empty");
    assert_eq!(only_transform(2, 5, &key), Transform::Unknown { kind: 2, id: 5 }, "on a PRF");

    let mixed = [transform(3, 1, 12, &[0x80, 99, 0, 0]), transform(0, 1, 20, &key)].concat();
    let proposals = sa(&proposal(0, 1, 1, &[], 2, &mixed));
    assert_eq!(proposals[0].transforms, [unknown, Transform::Encr(EncrId::AES_GCM_16, Some(128))]);

    for bad in [&[0x80][..], &[0x80, 14], &[0x80, 14, 0], &[0, 99, 0, 1], &[0, 99, 0xff, 0xff, 1]] {
        refused(PayloadType::SA, &proposal(0, 1, 1, &[], 1, &transform(0, 1, 12, bad)), "attribute");
    }
}

#[test]
fn unknown_transform_types_and_ids_are_values() {
    assert_eq!(only_transform(13, 36, &[]), Transform::Unknown { kind: 13, id: 36 });
    assert_eq!(only_transform(6, 36, &[]), Transform::AddKe(1, KeId::ML_KEM_768));
    assert_eq!(only_transform(12, 999, &[]), Transform::AddKe(7, KeId(999)));
    assert_eq!(only_transform(0, 1, &[]), Transform::Unknown { kind: 0, id: 1 });
    assert_eq!(only_transform(2, 999, &[]), Transform::Prf(PrfId(999)));
    assert_eq!(only_transform(3, 0, &[]), Transform::Integ(IntegId::NONE));
    assert_eq!(only_transform(4, 1025, &[]), Transform::Ke(KeId(1025)));
}

// KE, nonce, identities, EAP

#[test]
fn bodies_shorter_than_their_fixed_part_are_refused() {
    for (kind, fixed) in [
        (PayloadType::KE, 4),
        (PayloadType::IDI, 4),
        (PayloadType::IDR, 4),
        (PayloadType::CERT, 1),
        (PayloadType::CERTREQ, 1),
        (PayloadType::AUTH, 4),
        (PayloadType::NOTIFY, 4),
        (PayloadType::DELETE, 4),
        (PayloadType::TSI, 4),
        (PayloadType::TSR, 4),
        (PayloadType::CP, 4),
        (PayloadType::EAP, 4),
    ] {
        for n in 0..fixed {
            refused(kind, &vec![0; n], "");
        }
    }
}

#[test]
fn a_nonce_is_16_to_256_bytes() {
    for n in [0, 1, 15, 257, 1000] {
        refused(PayloadType::NONCE, &vec![1; n], "16 to 256");
    }
    for n in [16, 256] {
        assert!(one(PayloadType::NONCE, &vec![1; n]).is_ok());
    }
}

#[test]
fn address_identities_have_their_lengths_and_others_any() {
    for n in [0, 3, 5, 16] {
        refused(PayloadType::IDI, &[vec![1, 0, 0, 0], vec![9; n]].concat(), "4 bytes");
    }
    for n in [0, 4, 15, 17] {
        refused(PayloadType::IDR, &[vec![5, 0, 0, 0], vec![9; n]].concat(), "16 bytes");
    }
    for kind in [0, 2, 3, 4, 6, 8, 11, 12, 13, 255] {
        for n in [0, 1, 65_527] {
            assert!(one(PayloadType::IDI, &[vec![kind, 0, 0, 0], vec![b'\n'; n]].concat()).is_ok());
        }
    }
}

#[test]
fn an_eap_length_that_is_not_the_payloads_is_refused() {
    assert!(one(PayloadType::EAP, &[3, 1, 0, 4]).is_ok());
    for body in [&[1, 1, 0, 0][..], &[1, 1, 0, 3], &[1, 1, 0, 5], &[1, 1, 0xff, 0xff], &[1, 1, 0, 4, 1]] {
        refused(PayloadType::EAP, body, "EAP length");
    }
}

// TS

fn changed(at: usize, with: &[u8]) -> [u8; 16] {
    let mut s = V4;
    s[at..at + with.len()].copy_from_slice(with);
    s
}

#[test]
fn the_number_of_selectors_must_match_what_is_there() {
    assert!(one(PayloadType::TSI, &ts(&[V4, V4])).is_ok());
    refused(PayloadType::TSI, &[0, 0, 0, 0], "no traffic selector");
    for count in [0, 1, 3, 255] {
        let mut b = ts(&[V4, V4]);
        b[0] = count;
        refused(PayloadType::TSI, &b, "");
        refused(PayloadType::TSR, &b, "");
    }
}

#[test]
fn selector_lengths_must_be_their_types() {
    for length in [0u16, 3, 4, 8, 15, 17, 40, 0xffff] {
        refused(PayloadType::TSI, &ts(&[changed(2, &length.to_be_bytes())]), "");
    }
    // IPv6 in 16 bytes.
    refused(PayloadType::TSI, &ts(&[changed(0, &[8])]), "not its type's");
}

#[test]
fn reversed_ranges_are_refused_but_opaque_ports_are_not() {
    refused(PayloadType::TSI, &ts(&[changed(8, &[10, 1, 1, 0])]), "start address behind end address");
    refused(PayloadType::TSI, &ts(&[changed(4, &[0, 81, 0, 80])]), "start port behind end port");
    refused(PayloadType::TSI, &ts(&[changed(4, &[0xff, 0xff, 0, 1])]), "start port behind end port");
    let Payload::TsI(s) = one(PayloadType::TSI, &ts(&[changed(4, &[0xff, 0xff, 0, 0])])).unwrap() else {
        panic!()
    };
    assert!(s[0].opaque_port());
    assert!(one(PayloadType::TSI, &ts(&[changed(1, &[255])])).is_ok(), "protocol 255");
}

#[test]
fn selectors_of_unknown_types_are_left_out() {
    for kind in [0, 6, 9, 10] {
        let Payload::TsI(s) = one(PayloadType::TSI, &ts(&[changed(0, &[kind]), V4])).unwrap() else {
            panic!()
        };
        assert_eq!(s.len(), 1);
        let Payload::TsI(s) = one(PayloadType::TSI, &ts(&[changed(0, &[kind])])).unwrap() else { panic!() };
        assert_eq!(s, []);
    }
    assert!(emit_chain(&[Payload::TsI(Vec::new())]).is_err());
}

// Delete, notify, configuration

#[test]
fn delete_must_hold_as_many_spis_as_it_says() {
    let d = |protocol, size, count: u16, n: usize| {
        let mut b = vec![protocol, size];
        b.extend(count.to_be_bytes());
        b.resize(4 + n, 7);
        b
    };
    assert!(one(PayloadType::DELETE, &d(3, 4, 2, 8)).is_ok());
    assert!(one(PayloadType::DELETE, &d(1, 0, 0, 0)).is_ok());
    for (count, n) in [(0, 4), (1, 0), (1, 3), (1, 5), (2, 4), (65535, 8)] {
        refused(PayloadType::DELETE, &d(3, 4, count, n), "do not match the length");
    }
    for size in [0, 3, 8] {
        refused(PayloadType::DELETE, &d(3, size, 1, size.into()), "not the protocol's");
    }
    refused(PayloadType::DELETE, &d(1, 4, 1, 4), "not the protocol's");
    // SPIs of no bytes, 65,535 of them, are no SPIs.
    let Payload::Delete(p) = one(PayloadType::DELETE, &d(1, 0, 65535, 0)).unwrap() else { panic!() };
    assert!(p.spis.is_empty());
}

#[test]
fn a_notify_spi_must_be_inside() {
    for size in [1u8, 4, 255] {
        refused(PayloadType::NOTIFY, &[3, size, 0x40, 9], "SPI needs");
    }
    let Payload::Notify(n) = one(PayloadType::NOTIFY, &[3, 3, 0x40, 9, 1, 2, 3]).unwrap() else { panic!() };
    assert_eq!((n.spi.len(), n.child_spi()), (3, None));
}

#[test]
fn configuration_attributes_must_be_inside() {
    refused(PayloadType::CP, &[1, 0, 0, 0, 0], "attribute type");
    refused(PayloadType::CP, &[1, 0, 0, 0, 0, 1], "attribute length");
    refused(PayloadType::CP, &[1, 0, 0, 0, 0, 1, 0, 4, 10, 0, 0], "attribute value needs 4 bytes, 3 left");
}

// Our own caller

#[test]
fn what_does_not_fit_the_wire_is_not_emitted() {
    let long = vec![0; 65_536];
    let what = |p: Payload| emit_chain(&[p]).unwrap_err();
    assert_eq!(what(Payload::VendorId(payload::VendorId(long.clone()))), EmitError { what: "payload" });
    let kind = NotifyType::COOKIE;
    let n = payload::Notify { protocol: ProtocolId::NONE, spi: vec![0; 256], kind, data: vec![] };
    assert_eq!(what(Payload::Notify(n)), EmitError { what: "SPI" });
    let uneven = payload::Delete { protocol: ProtocolId::ESP, spis: vec![vec![0; 4], vec![0; 5]] };
    assert_eq!(what(Payload::Delete(uneven)), EmitError { what: "SPI of another size" });
    let many = Proposal {
        number: 1,
        protocol: ProtocolId::IKE,
        spi: vec![],
        transforms: vec![Transform::Prf(PrfId::HMAC_SHA2_256); 256],
    };
    assert_eq!(what(Payload::Sa(vec![many])), EmitError { what: "number of transforms" });
    assert!(emit_chain(&[Payload::Sa(vec![])]).is_err());
}

#[test]
fn errors_name_the_payload_and_where_it_stands() {
    let mut m = SA_INIT.to_vec();
    let nonce = 28 + 40 + 40;
    assert_eq!(Message::parse(&m).unwrap().payloads[2].kind(), PayloadType::NONCE);
    m[nonce + 3] = 4 + 8;
    let e = Message::parse(&m).unwrap_err();
    let fault = Fault::Invalid("a nonce is 16 to 256 bytes");
    assert_eq!(e, ParseError::Syntax { payload: PayloadType::NONCE, offset: nonce, fault });
    assert_eq!(e.to_string(), "No payload at byte 108: a nonce is 16 to 256 bytes");
}
