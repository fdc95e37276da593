//! Messages that strongSwan sent, read and written again byte for byte.

use std::fs;
use std::path::PathBuf;

use ironswan_wire::iana::{
    AuthMethod, EncrId, EsnId, ExchangeType, IdType, KeId, NotifyType, PayloadType, PrfId, ProtocolId,
};
use ironswan_wire::ike::{
    Fragment, Geometry, Message, Payload, SealedDraft, Within, emit_chain, parse_chain, payload, sealed,
};
use ironswan_wire::proposal::Transform;

const GCM: Geometry = Geometry { iv: 8, icv: 16, block: 1 };
const CBC: Geometry = Geometry { iv: 16, icv: 16, block: 16 };

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn names(session: &str) -> Vec<String> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok()?.strip_suffix(".bin").map(str::to_owned))
        .filter(|n| n.starts_with(session))
        .collect();
    names.sort();
    names
}

fn key(session: &str, name: &str) -> Vec<u8> {
    let text = String::from_utf8(data(&format!("{session}.keys"))).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{name} = "))).expect(name);
    (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn every_recorded_message_is_read_and_written_back_unchanged() {
    let mut seen = 0;
    for session in ["gcm", "cbc", "frag"] {
        for name in names(session) {
            let bytes = data(&format!("{name}.bin"));
            let message = Message::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(message.emit().unwrap(), bytes, "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 33);
}

#[test]
fn every_recorded_inner_chain_is_read_and_laid_out_again_unchanged() {
    for (session, geometry) in [("gcm", GCM), ("cbc", CBC)] {
        for name in names(session).iter().filter(|n| !n.contains("sa-init")) {
            let bytes = data(&format!("{name}.bin"));
            let plain = data(&format!("{name}.plain"));
            let message = Message::parse(&bytes).unwrap();
            let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("{name}: no SK") };
            let inner = parse_chain(sk.inner, &plain, Within::Sk).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(emit_chain(&inner).unwrap(), (sk.inner, plain.clone()), "{name}");

            // Everything around the ciphertext is where we would have put it.
            let draft = SealedDraft::emit(&message.header, &[], &inner, geometry).unwrap();
            assert_eq!(draft.bytes.len(), bytes.len(), "{name}");
            assert_eq!(draft.ranges, message.sealed(geometry).unwrap(), "{name}");
            assert_eq!(draft.bytes[draft.ranges.aad.clone()], bytes[draft.ranges.aad.clone()], "{name}");
            let text = &draft.bytes[draft.ranges.text.clone()];
            assert_eq!(sealed::unpad(text).unwrap(), plain, "{name}");
        }
    }
}

#[test]
fn the_first_request_says_what_the_daemon_was_configured_with() {
    let message = Message::parse(&data("gcm-01-sa-init-request.bin")).unwrap();
    let header = message.header;
    assert!(header.opens_ike_sa() && header.is_request());
    assert_eq!(header.exchange, ExchangeType::IKE_SA_INIT);
    let [Payload::Sa(proposals), Payload::Ke(ke), Payload::Nonce(nonce), rest @ ..] = &message.payloads[..]
    else {
        panic!("{:?}", message.payloads)
    };
    assert_eq!(proposals.len(), 1);
    assert_eq!((proposals[0].number, proposals[0].protocol), (1, ProtocolId::IKE));
    assert!(proposals[0].spi.is_empty());
    assert_eq!(
        proposals[0].transforms,
        [
            Transform::Encr(EncrId::AES_GCM_16, Some(128)),
            Transform::Prf(PrfId::HMAC_SHA2_256),
            Transform::Ke(KeId::CURVE_25519)
        ]
    );
    assert_eq!((ke.group, ke.data.len(), nonce.0.len()), (KeId::CURVE_25519, 32, 32));
    let kinds: Vec<_> = payload::notifies(rest).map(|n| n.kind).collect();
    assert!(
        kinds.starts_with(&[NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP])
    );
    assert!(kinds.contains(&NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
    assert_eq!(payload::find_notify(rest, NotifyType::NAT_DETECTION_SOURCE_IP).unwrap().data.len(), 20);
}

#[test]
fn the_answer_is_a_response_of_the_other_side() {
    let request = Message::parse(&data("gcm-01-sa-init-request.bin")).unwrap().header;
    let response = Message::parse(&data("gcm-02-sa-init-response.bin")).unwrap().header;
    assert!(response.is_response() && !response.flags.initiator() && !response.opens_ike_sa());
    assert_eq!(response.receiver_spi(), request.initiator_spi);
    assert_eq!((request.receiver_spi(), response.responder_spi != 0), (0, true));
}

#[test]
fn the_auth_request_carries_identity_auth_child_and_selectors() {
    let message = Message::parse(&data("gcm-03-auth-request.bin")).unwrap();
    assert!(message.is_sealed());
    let inner = parse_chain(PayloadType::IDI, &data("gcm-03-auth-request.plain"), Within::Sk).unwrap();
    let [
        Payload::IdI(id),
        Payload::Auth(auth),
        Payload::Sa(sa),
        Payload::TsI(tsi),
        Payload::TsR(tsr),
        rest @ ..,
    ] = &inner[..]
    else {
        panic!("{inner:?}")
    };
    assert_eq!((id.identity.kind, id.identity.to_string()), (IdType::FQDN, "g1.example".to_owned()));
    assert_eq!(id.body(), b"\x02\0\0\0g1.example");
    assert_eq!((auth.method, &auth.data), (AuthMethod::PSK, &key("gcm", "auth.1")));
    assert_eq!(sa[0].to_string(), "ESP:AES_GCM_16_128/NO_EXT_SEQ");
    assert_eq!(sa[0].transforms[1], Transform::Esn(EsnId::NO_ESN));
    assert_eq!(format!("{tsi:?} {tsr:?}"), "[10.1.0.0/24] [10.2.0.0/24]");
    assert!(payload::find_notify(rest, NotifyType::MOBIKE_SUPPORTED).is_some());
    assert!(payload::find_notify(rest, NotifyType::REKEY_SA).is_none());
}

#[test]
fn a_refused_child_and_a_rekeying_are_seen_as_such() {
    let inner = parse_chain(PayloadType::IDR, &data("cbc-04-auth-response.plain"), Within::Sk).unwrap();
    assert!(payload::find_notify(&inner, NotifyType::NO_PROPOSAL_CHOSEN).is_some());

    let message = Message::parse(&data("gcm-05-create-child-request.bin")).unwrap();
    let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!() };
    let inner = parse_chain(sk.inner, &data("gcm-05-create-child-request.plain"), Within::Sk).unwrap();
    let rekey = payload::find_notify(&inner, NotifyType::REKEY_SA).unwrap();
    assert_eq!(rekey.protocol, ProtocolId::ESP);

    // The SPI that is rekeyed is the one that is deleted afterwards.
    let message = Message::parse(&data("gcm-07-informational-request.bin")).unwrap();
    let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!() };
    let inner = parse_chain(sk.inner, &data("gcm-07-informational-request.plain"), Within::Sk).unwrap();
    let [Payload::Delete(delete)] = &inner[..] else { panic!("{inner:?}") };
    assert_eq!(delete.protocol, ProtocolId::ESP);
    assert_eq!(delete.child_spis().map(|s| s.0).collect::<Vec<_>>(), [rekey.child_spi().unwrap()]);

    let inner =
        parse_chain(PayloadType::DELETE, &data("gcm-11-informational-request.plain"), Within::Sk).unwrap();
    assert_eq!(inner, [Payload::Delete(payload::Delete::ike_sa())]);
}

#[test]
fn fragments_are_found_joined_and_cut_again_as_recorded() {
    let mut plain = Vec::new();
    let mut first = PayloadType::NONE;
    for (name, number) in [("frag-03", 1), ("frag-04", 2), ("frag-05", 3)] {
        let bytes = data(&format!("{name}-auth-request.bin"));
        let part = data(&format!("{name}-auth-request.plain"));
        let message = Message::parse(&bytes).unwrap();
        let Some(Payload::Skf(skf)) = message.payloads.last() else { panic!("{name}: no SKF") };
        assert_eq!(skf.fragment, Fragment { number, total: 3 });
        if number == 1 {
            first = skf.inner;
        }
        assert_eq!(skf.inner, if number == 1 { PayloadType::IDI } else { PayloadType::NONE });

        // The associated data that the daemon logged: header, SKF header and the fragment fields,
        // 36 bytes.
        let ranges = message.sealed(GCM).unwrap();
        assert_eq!((ranges.aad.clone(), ranges.text.len()), (0..36, part.len() + 1), "{name}");
        let draft =
            SealedDraft::emit_plain(&message.header, &[], skf.inner, &part, Some(skf.fragment), GCM).unwrap();
        assert_eq!(draft.ranges, ranges, "{name}");
        assert_eq!(draft.bytes[ranges.aad.clone()], bytes[ranges.aad], "{name}");
        if number < 3 {
            // The daemon fills its fragments just as far as we would.
            assert_eq!(GCM.fragment_capacity(bytes.len()), Some(part.len()));
        }
        plain.extend(part);
    }
    let inner = parse_chain(first, &plain, Within::Sk).unwrap();
    assert!(matches!(inner[..], [Payload::IdI(_), Payload::Auth(_), Payload::Sa(_), ..]));
    assert_eq!(emit_chain(&inner).unwrap(), (first, plain));
}
