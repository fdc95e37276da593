//! Hostile and sloppy IKE messages, one story a test: each is refused by name, or ignored where the
//! RFC says so.

use crate::common::*;
use ironswan_wire::iana::{NotifyType, PayloadType};
use ironswan_wire::ike::{
    Geometry, Header, MAX_PAYLOADS, Message, ParseError, Payload, Within, emit_chain, parse_chain, sealed,
};

#[test]
fn a_datagram_shorter_than_the_header_is_refused() {
    for n in 0..28 {
        syntax(&SA_INIT[..n], "IKE header needs 28 bytes");
        assert!(Header::read(&SA_INIT[..n]).is_err());
    }
}

#[test]
fn a_header_alone_must_not_announce_a_payload() {
    assert_eq!(Message::parse(&message(0, &[])).unwrap().payloads, []);
    syntax(&message(33, &[]), "generic payload header needs 4 bytes, 0 left");
}

#[test]
fn the_length_field_must_be_the_datagrams_length() {
    let len = SA_INIT.len() as u32;
    for bad in [0, 27, 28, len - 1, len + 1, 1 << 31, u32::MAX] {
        let mut m = SA_INIT.to_vec();
        m[LENGTH..28].copy_from_slice(&bad.to_be_bytes());
        syntax(&m, "length field");
    }
    let mut trailing = SA_INIT.to_vec();
    trailing.push(0);
    syntax(&trailing, "length field");
}

#[test]
fn another_major_version_is_its_own_error_and_a_minor_version_is_ignored() {
    for major in [0, 1, 3, 15] {
        let mut m = SA_INIT.to_vec();
        m[17] = major << 4;
        let e = Message::parse(&m).unwrap_err();
        assert_eq!(e, ParseError::MajorVersion(major));
        assert_eq!((e.notify(), e.notify_data()), (NotifyType::INVALID_MAJOR_VERSION, vec![2]));
        // The SPIs for an answer can be read all the same.
        assert_ne!(Header::read(&m).unwrap().initiator_spi, 0);
    }
    for minor in 1..16 {
        let mut m = SA_INIT.to_vec();
        m[17] = 0x20 | minor;
        assert_eq!(Message::parse(&m).unwrap().header.version.minor(), minor);
    }
}

#[test]
fn unknown_flag_bits_and_the_version_bit_are_ignored() {
    let mut m = SA_INIT.to_vec();
    m[19] = !0x20;
    let header = Message::parse(&m).unwrap().header;
    assert!(header.flags.version() && header.is_request() && header.opens_ike_sa());
}

#[test]
fn an_initiator_spi_of_zero_is_refused() {
    let mut m = SA_INIT.to_vec();
    m[..8].fill(0);
    syntax(&m, "SPI is 0");
}

#[test]
fn only_a_first_request_opens_an_ike_sa() {
    let opens = |at: usize, v: u8| {
        let mut m = SA_INIT.to_vec();
        m[at] = v;
        Message::parse(&m).unwrap().header.opens_ike_sa()
    };
    assert!(opens(23, 0));
    assert!(!opens(23, 1), "message id 1");
    assert!(!opens(15, 1), "a responder SPI");
    assert!(!opens(18, 35), "another exchange");
    assert!(!opens(19, 0x28), "a response");
    assert!(!opens(19, 0), "not from an initiator");
}

// Payload chain

#[test]
fn a_payload_length_below_its_header_or_past_the_message_is_refused() {
    for length in 0..4u16 {
        let mut m = message(43, &payload(0, b"abc"));
        m[30..32].copy_from_slice(&length.to_be_bytes());
        syntax(&m, "payload length below 4");
    }
    for length in [8u16, 9, 0x8000, 0xffff] {
        let mut m = message(43, &payload(0, b"abc"));
        m[30..32].copy_from_slice(&length.to_be_bytes());
        syntax(&m, "payload body needs");
    }
}

#[test]
fn a_chain_that_ends_early_or_never_is_refused() {
    for n in 1..4 {
        syntax(&message(43, &payload(0, b"")[..n]), "generic payload header needs 4 bytes");
    }
    // "Next payload" says V again and again, but the bytes end.
    syntax(&message(43, &payload(43, b"loop")), "generic payload header needs 4 bytes, 0 left");
}

#[test]
fn every_truncation_of_a_real_chain_is_refused() {
    let first = PayloadType(SA_INIT[16]);
    for n in 0..SA_INIT.len() - 28 {
        assert!(parse_chain(first, &SA_INIT[28..28 + n], Within::Clear).is_err(), "{n} bytes");
    }
}

#[test]
fn bytes_behind_the_last_payload_are_refused() {
    let mut chain = payload(0, b"last");
    chain.extend(b"more");
    syntax(&message(43, &chain), "byte 36: 4 bytes too many");
    syntax(&message(0, b"x"), "byte 28: 1 bytes too many");
}

#[test]
fn a_thousand_payloads_are_refused_and_a_hundred_are_not() {
    let chain = |n: usize| {
        let mut all = payload(43, b"").repeat(n - 1);
        all.extend(payload(0, b""));
        message(43, &all)
    };
    assert_eq!(Message::parse(&chain(MAX_PAYLOADS)).unwrap().payloads.len(), MAX_PAYLOADS);
    syntax(&chain(MAX_PAYLOADS + 1), "too many payloads");
    syntax(&chain(1000), "too many payloads");
}

#[test]
fn unknown_payloads_are_ignored_unless_critical() {
    for kind in [1, 32, 49, 255] {
        let mut m = message(kind, &payload(0, b"what"));
        let expected = Payload::Other { kind: PayloadType(kind), critical: false, body: b"what".to_vec() };
        assert_eq!(Message::parse(&m).unwrap().payloads, [expected]);

        m[29] = 0x80;
        let e = Message::parse(&m).unwrap_err();
        assert_eq!(e, ParseError::UnsupportedCritical(PayloadType(kind)));
        assert_eq!((e.notify(), e.notify_data()), (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind]));
    }
}

#[test]
fn the_critical_bit_and_reserved_bits_of_known_payloads_are_ignored() {
    let plain = Message::parse(SA_INIT).unwrap();
    let mut m = SA_INIT.to_vec();
    let mut at = 28;
    while at < m.len() {
        m[at + 1] = 0xff;
        at += usize::from(u16::from_be_bytes([m[at + 2], m[at + 3]]));
    }
    assert_eq!(Message::parse(&m).unwrap(), plain);
}

#[test]
fn reserved_bytes_inside_payloads_are_ignored() {
    // KE, AUTH, TS and the substructures of SA: set each RESERVED byte, read the same value.
    let same = |kind, body: &[u8], reserved: &[usize]| {
        let clean = one(kind, body).unwrap();
        let mut dirty = body.to_vec();
        for &at in reserved {
            dirty[at] = 0xff;
        }
        assert_eq!(one(kind, &dirty).unwrap(), clean, "{kind}");
    };
    same(PayloadType::KE, &[0, 31, 0, 0, 1, 2, 3], &[2, 3]);
    same(PayloadType::AUTH, &[2, 0, 0, 0, 1, 2, 3], &[1, 2, 3]);
    same(PayloadType::TSI, &ts(&[V4]), &[1, 2, 3]);
    same(PayloadType::CP, &[1, 0, 0, 0, 0, 1, 0, 0], &[1, 2, 3]);
    same(PayloadType::SA, &sa_body(), &[1, 13, 17, 25, 29]);
    // The reserved bit of a configuration attribute.
    assert_eq!(
        one(PayloadType::CP, &[1, 0, 0, 0, 0x80, 1, 0, 0]).unwrap(),
        one(PayloadType::CP, &[1, 0, 0, 0, 0, 1, 0, 0]).unwrap()
    );
}

#[test]
fn reserved_bytes_of_an_identity_are_kept_for_auth() {
    let body = [2, 0xde, 0xad, 0xbf, b'g', b'1'];
    let Payload::IdI(id) = one(PayloadType::IDI, &body).unwrap() else { panic!() };
    assert_eq!((id.identity.to_string(), id.body()), ("g1".to_owned(), body.to_vec()));
}

#[test]
fn what_may_come_once_must_not_come_twice() {
    let nonce = vec![7; 16];
    let bodies: &[(u8, Vec<u8>)] = &[
        (33, sa_body()),
        (34, vec![0, 31, 0, 0, 1]),
        (35, vec![11, 0, 0, 0, 1]),
        (36, vec![11, 0, 0, 0, 1]),
        (39, vec![2, 0, 0, 0, 1]),
        (40, nonce),
        (44, ts(&[V4])),
        (45, ts(&[V4])),
        (47, vec![1, 0, 0, 0]),
        (48, vec![3, 1, 0, 4]),
    ];
    for (kind, body) in bodies {
        let kind = *kind;
        assert!(parse_chain(PayloadType(kind), &payload(0, body), Within::Sk).is_ok(), "{kind}");
        let twice = [payload(kind, body), payload(0, body)].concat();
        let e = parse_chain(PayloadType(kind), &twice, Within::Sk).unwrap_err();
        assert!(e.to_string().contains("a second payload of this type"), "{e}");
    }
    // Certificates, notifications, deletes, vendor ids may.
    for (kind, body) in [(37, vec![4]), (38, vec![4]), (41, vec![0; 4]), (42, vec![1, 0, 0, 0]), (43, vec![])]
    {
        let twice = [payload(kind, &body), payload(0, &body)].concat();
        assert_eq!(parse_chain(PayloadType(kind), &twice, Within::Sk).unwrap().len(), 2);
    }
}

#[test]
fn payloads_may_come_in_any_order() {
    let mut payloads = Message::parse(SA_INIT).unwrap().payloads;
    payloads.reverse();
    let (first, bytes) = emit_chain(&payloads).unwrap();
    assert_eq!(parse_chain(first, &bytes, Within::Clear).unwrap(), payloads);
}

// SK and SKF

#[test]
fn nothing_may_follow_sk() {
    // The field says N, but that is the type inside; what follows in clear is refused.
    let mut chain = payload(41, &[0; 40]);
    chain.extend(payload(0, &[0, 0, 0, 4]));
    syntax(&message(46, &chain), "8 bytes too many");
    let mut chain = payload(41, &[0, 1, 0, 1, 0, 0, 0, 0]);
    chain.extend(payload(0, &[0; 40]));
    syntax(&message(53, &chain), "44 bytes too many");
}

#[test]
fn sk_inside_sk_is_refused() {
    for kind in [46, 53] {
        let e =
            parse_chain(PayloadType(kind), &payload(0, &[0, 1, 0, 1, 0, 0, 0, 0]), Within::Sk).unwrap_err();
        assert!(e.to_string().contains("inside an encrypted payload"), "{e}");
    }
}

#[test]
fn sk_too_short_for_its_cipher_or_not_whole_blocks_is_refused() {
    let gcm = Geometry { iv: 8, icv: 16, block: 1 };
    let cbc = Geometry { iv: 16, icv: 16, block: 16 };
    for n in 0..25 {
        let m = Message::parse(&message(46, &payload(41, &vec![0; n]))).unwrap();
        assert_eq!(m.sealed(gcm).unwrap_err().notify(), NotifyType::INVALID_SYNTAX, "{n} bytes");
    }
    let m = Message::parse(&message(46, &payload(0, &[0; 25]))).unwrap();
    assert_eq!(m.sealed(gcm).unwrap().text, 40..41);
    for n in 0..80 {
        let m = Message::parse(&message(46, &payload(41, &vec![0; n]))).unwrap();
        assert_eq!(m.sealed(cbc).is_ok(), n == 48 || n == 64, "{n} bytes");
    }
    assert!(Message::parse(SA_INIT).unwrap().sealed(gcm).is_err(), "there is no SK");
}

#[test]
fn a_pad_length_longer_than_the_text_is_refused_and_any_other_is_taken() {
    assert!(sealed::unpad(&[]).is_err());
    assert!(sealed::unpad(&[1]).is_err());
    assert!(sealed::unpad(&[9, 9, 9, 255]).is_err());
    assert_eq!(sealed::unpad(&[0]).unwrap(), [0u8; 0]);
    assert_eq!(sealed::unpad(&[9, 9, 9, 3]).unwrap(), [0u8; 0]);
    assert_eq!(sealed::unpad(&[1, 2, 77, 88, 2]).unwrap(), [1, 2]);
    let mut long = vec![5; 300];
    long[299] = 255;
    assert_eq!(sealed::unpad(&long).unwrap().len(), 44);
}

#[test]
fn fragment_numbers_must_be_within_the_total() {
    for (number, total) in [(0u16, 0u16), (0, 1), (1, 0), (2, 1), (65535, 65534)] {
        let body = [number.to_be_bytes(), total.to_be_bytes()].concat();
        let e = parse_chain(PayloadType::SKF, &payload(0, &body), Within::Clear).unwrap_err();
        assert!(e.to_string().contains("fragment number"), "{e}");
    }
    for (number, total) in [(1u16, 1u16), (65535, 65535)] {
        let body = [number.to_be_bytes(), total.to_be_bytes()].concat();
        assert!(parse_chain(PayloadType::SKF, &payload(0, &body), Within::Clear).is_ok());
    }
    for n in 0..4 {
        let e = parse_chain(PayloadType::SKF, &payload(0, &[0, 1, 0, 1][..n]), Within::Clear).unwrap_err();
        assert_eq!(e.notify(), NotifyType::INVALID_SYNTAX);
    }
}

#[test]
fn every_byte_of_a_sealed_message_may_be_damaged_without_harm() {
    for at in 0..AUTH.len() {
        for v in [0, 1, 0x7f, 0x80, 0xff] {
            let mut m = AUTH.to_vec();
            m[at] = v;
            if let Ok(m) = Message::parse(&m) {
                let _ = m.sealed(Geometry { iv: 8, icv: 16, block: 1 });
            }
        }
    }
}

// SA
