use ironswan_wire::iana::*;

use super::*;
use ironswan_keying::Diagnosis;

const GCM128: Transform = Transform::Encr(EncrId::AES_GCM_16, Some(128));
const GCM256: Transform = Transform::Encr(EncrId::AES_GCM_16, Some(256));
const CBC128: Transform = Transform::Encr(EncrId::AES_CBC, Some(128));
const SHA256: Transform = Transform::Integ(IntegId::HMAC_SHA2_256_128);
const PRF256: Transform = Transform::Prf(PrfId::HMAC_SHA2_256);
const X25519: Transform = Transform::Ke(KeId::CURVE_25519);
const ECP256: Transform = Transform::Ke(KeId::ECP_256);
const NO_ESN: Transform = Transform::Esn(EsnId::NO_ESN);
const ESN: Transform = Transform::Esn(EsnId::ESN);

fn select_esp(
    configured: &[Proposal],
    offered: &[Proposal],
    ke: KeRule,
) -> Result<Selected<ChildSuite>, KeyExchange> {
    select_child(configured, offered, carried(false), ke)
}

fn ike(number: u8, transforms: &[Transform]) -> Proposal {
    Proposal { number, protocol: ProtocolId::IKE, spi: Vec::new(), transforms: transforms.to_vec() }
}

fn esp(number: u8, transforms: &[Transform]) -> Proposal {
    Proposal { number, protocol: ProtocolId::ESP, spi: vec![0xc0, 0, 0, 1], transforms: transforms.to_vec() }
}

#[test]
fn our_order_decides_but_the_method_of_the_ke_payload_is_kept() {
    let ours = [ike(1, &[GCM256, GCM128, PRF256, X25519, ECP256])];
    let theirs = [ike(1, &[GCM128, GCM256, PRF256, ECP256, X25519])];
    let s = select_ike(&ours, &theirs, Some(KeId::ECP_256)).unwrap();
    assert_eq!((s.suite.key_bits, s.suite.ke), (256, KeId::ECP_256));
    assert_eq!(s.answer.transforms, [GCM256, PRF256, ECP256]);
    let s = select_ike(&ours, &theirs, Some(KeId::MODP_2048)).unwrap();
    assert_eq!(s.suite.ke, KeId::CURVE_25519);
}

#[test]
fn a_successor_keeps_the_prf_whatever_the_order_unless_one_end_is_without_it() {
    let prf512 = Transform::Prf(PrfId::HMAC_SHA2_512);
    let ours = [ike(1, &[GCM256, PRF256, prf512, X25519]), ike(2, &[GCM128, PRF256, ECP256])];
    let theirs = [ike(1, &[GCM128, PRF256, ECP256]), ike(2, &[GCM256, PRF256, prf512, X25519])];
    let prf = |offered: &[Proposal], standing| {
        let chosen = select_successor(&ours, offered, Some(KeId::ECP_256), standing).unwrap();
        (chosen.suite.prf, chosen.answer.number)
    };
    let (of_256, of_512) = (PrfId::HMAC_SHA2_256, PrfId::HMAC_SHA2_512);
    assert_eq!(prf(&theirs, Some(of_512)), (of_512, 2));
    assert_eq!(prf(&theirs, Some(of_256)), (of_256, 2));
    assert_eq!(prf(&theirs, None), (of_256, 2));
    // One end or the other does without it now.
    assert_eq!(prf(&theirs[..1], Some(of_512)), (of_256, 1));
    assert_eq!(prf(&theirs, Some(PrfId::HMAC_SHA2_384)), (of_256, 2));
    assert_eq!(keeping(&ours, of_512), [ike(1, &[GCM256, prf512, X25519])]);
    assert!(keeping(&ours, PrfId::HMAC_SHA2_384).is_empty());
}

#[test]
fn the_transform_that_differs_is_named() {
    let ours = [ike(1, &[GCM256, PRF256, X25519])];
    let theirs = [ike(1, &[CBC128, SHA256, PRF256, ECP256]), ike(2, &[GCM256, PRF256, ECP256])];
    let no = select_ike(&ours, &theirs, None).unwrap_err();
    let KeyExchange::NoProposal { nearest: Some(nearest), .. } = &no else { panic!("{no:?}") };
    let differ = Difference { kind: TransformType::KE, received: vec![ECP256], configured: vec![X25519] };
    assert_eq!(nearest.differ, [differ]);
    assert_eq!(
        Diagnosis::from(no).sentence(),
        "no acceptable proposal found: received IKE:AES_GCM_16_256/PRF_HMAC_SHA2_256/ECP_256 and configured \
         IKE:AES_GCM_16_256/PRF_HMAC_SHA2_256/CURVE_25519 differ in KEY_EXCHANGE_METHOD: received ECP_256, \
         configured CURVE_25519"
    );
}

#[test]
fn an_unknown_transform_type_spoils_its_proposal_only() {
    let unknown = Transform::Unknown { kind: 6, id: 1 };
    let ours = [ike(1, &[GCM256, PRF256, X25519])];
    let theirs = [ike(1, &[GCM256, PRF256, X25519, unknown]), ike(2, &[GCM256, PRF256, X25519])];
    assert_eq!(select_ike(&ours, &theirs, None).unwrap().answer.number, 2);
    assert!(select_ike(&ours, &theirs[..1], None).is_err());
}

#[test]
fn an_aead_takes_no_integrity_and_a_block_cipher_must_have_it() {
    let ours = [ike(1, &[GCM256, PRF256, X25519]), ike(2, &[CBC128, SHA256, PRF256, X25519])];
    let none = Transform::Integ(IntegId::NONE);
    assert_eq!(
        select_ike(&ours, &[ike(1, &[GCM256, none, PRF256, X25519])], None).unwrap().suite.integ,
        None
    );
    assert!(select_ike(&ours, &[ike(1, &[GCM256, SHA256, PRF256, X25519])], None).is_err());
    assert!(select_ike(&ours, &[ike(1, &[CBC128, PRF256, X25519])], None).is_err());
    assert!(select_ike(&ours, &[ike(1, &[CBC128, none, PRF256, X25519])], None).is_err());
    let both = [ike(1, &[GCM256, CBC128, SHA256, PRF256, X25519])];
    assert_eq!(select_ike(&ours, &both, None).unwrap().answer.transforms, [GCM256, PRF256, X25519]);
}

#[test]
fn key_lengths_are_part_of_the_algorithm() {
    let ours = [ike(1, &[GCM256, PRF256, X25519])];
    let theirs = [ike(1, &[Transform::Encr(EncrId::AES_GCM_16, None), GCM128, PRF256, X25519])];
    assert!(select_ike(&ours, &theirs, None).is_err());
}

#[test]
fn the_first_child_ignores_key_exchange_and_later_ones_do_not() {
    let ours = [esp(1, &[GCM128, X25519, NO_ESN])];
    let without = [esp(1, &[GCM128, NO_ESN])];
    assert_eq!(select_esp(&ours, &without, KeRule::Ignore).unwrap().suite.esp.ke, None);
    assert!(select_esp(&ours, &without, KeRule::Prefer(None)).is_err());
    assert!(select_esp(&without, &ours, KeRule::Prefer(None)).is_err());
    let s =
        select_esp(&ours, &[esp(1, &[GCM128, ECP256, X25519, NO_ESN])], KeRule::Prefer(Some(KeId::ECP_256)));
    assert_eq!(s.unwrap().suite.esp.ke, Some(KeId::CURVE_25519));
}

#[test]
fn no_esn_is_meant_by_leaving_it_out() {
    assert!(
        !select_esp(&[esp(1, &[GCM128, ESN, NO_ESN])], &[esp(1, &[GCM128])], KeRule::Ignore)
            .unwrap()
            .suite
            .esp
            .esn
    );
    let both = [esp(1, &[GCM128, ESN, NO_ESN])];
    assert!(select_esp(&both, &both, KeRule::Ignore).unwrap().suite.esp.esn);
}

#[test]
fn an_answer_that_was_never_offered_is_refused() {
    let sent = offer(&[ike(9, &[GCM256, GCM128, PRF256, X25519, ECP256])], &[], KeRule::Prefer(None));
    assert!(check_ike(&sent, &[ike(1, &[GCM256, PRF256, ECP256])]).is_some());
    assert!(check_ike(&sent, &[ike(2, &[GCM256, PRF256, ECP256])]).is_none(), "another number");
    assert!(check_ike(&sent, &[ike(1, &[CBC128, PRF256, ECP256])]).is_none(), "another algorithm");
    assert!(check_ike(&sent, &[ike(1, &[GCM256, GCM128, PRF256, ECP256])]).is_none(), "two of a type");
    assert!(check_ike(&sent, &[ike(1, &[GCM256, PRF256])]).is_none(), "one type missing");
    assert!(check_ike(&sent, &[]).is_none());
    let sent = offer(&[esp(1, &[GCM128, NO_ESN])], &[0xc0, 0, 0, 2], KeRule::Ignore);
    assert_eq!(check_child(&sent, &[esp(1, &[GCM128, NO_ESN])], KeRule::Ignore).unwrap().2, 0xc000_0001);
    let reserved = Proposal { spi: vec![0, 0, 0, 255], ..esp(1, &[GCM128, NO_ESN]) };
    assert!(check_child(&sent, &[reserved], KeRule::Ignore).is_none());
}

#[test]
fn an_offer_is_led_by_the_method_in_use() {
    let configured = [ike(1, &[CBC128, SHA256, PRF256, X25519]), ike(2, &[GCM256, PRF256, X25519, ECP256])];
    let sent = offer(&configured, &[1; 8], KeRule::Prefer(Some(KeId::ECP_256)));
    assert_eq!(sent[0].transforms, [GCM256, PRF256, ECP256, X25519]);
    assert_eq!((sent[0].number, sent[1].number), (1, 2));
    assert_eq!(first_ke(&sent), Some(KeId::ECP_256));
    assert!(has_ke(&sent, KeId::CURVE_25519) && !has_ke(&sent, KeId::MODP_2048));
}

#[test]
fn what_is_meant_by_leaving_it_out_is_offered_in_words_and_not_answered() {
    let ours = [esp(1, &[GCM128, NO_ESN])];
    let s = select_esp(&ours, &[esp(1, &[GCM128])], KeRule::Ignore).unwrap();
    assert_eq!(s.answer.transforms, [GCM128], "nothing that was not offered");
    let sent = offer(&[esp(1, &[GCM128])], &[0xc0, 0, 0, 2], KeRule::Ignore);
    assert_eq!(sent[0].transforms, [GCM128, NO_ESN]);
    assert!(check_child(&sent, &[esp(1, &[GCM128, NO_ESN])], KeRule::Ignore).is_some());
    assert!(offer(&[ike(1, &[GCM128, PRF256, X25519])], &[], KeRule::Ignore)[0].transforms.len() == 2);
}

#[test]
fn what_is_not_supported_is_passed_over_for_what_is() {
    let gmac = Transform::Integ(IntegId::AES_128_GMAC);
    let null = Transform::Encr(EncrId::NULL, None);
    let list = [esp(1, &[null, gmac, NO_ESN]), esp(2, &[CBC128, SHA256, NO_ESN])];
    assert_eq!(select_esp(&list, &list, KeRule::Ignore).unwrap().suite.esp.encr, EncrId::AES_CBC);
    let no = select_esp(&list[..1], &list[..1], KeRule::Ignore).unwrap_err();
    assert!(matches!(&no, KeyExchange::NoProposal { nearest: None, unsupported: Some(_), .. }), "{no:?}");
    assert!(Diagnosis::from(no).sentence().ends_with("is configured but not supported here"));
}

#[test]
fn through_a_nat_only_esp_is_agreed_on() {
    let ah = |n| Proposal { protocol: ProtocolId::AH, ..esp(n, &[SHA256, NO_ESN]) };
    let both = [ah(1), esp(2, &[GCM128, NO_ESN])];
    let of = |nat| select_child(&both, &both, carried(nat), KeRule::Ignore).unwrap();
    assert_eq!((of(false).answer.protocol, of(true).answer.protocol), (ProtocolId::AH, ProtocolId::ESP));
    assert_eq!(of(false).suite.esp.encr, EncrId::NULL);
    assert!(any_ah(&both) && !any_ah(&both[1..]));
    let encrypting = Proposal { protocol: ProtocolId::AH, ..esp(1, &[CBC128, SHA256, NO_ESN]) };
    assert!(select_child(&[ah(1)], &[encrypting], carried(false), KeRule::Ignore).is_err());
}

/// Every way to take some of these transforms for a proposal.
fn some_of(transforms: &[Transform], bits: u32) -> Vec<Transform> {
    (0..transforms.len()).filter(|i| bits >> i & 1 == 1).map(|i| transforms[i]).collect()
}

#[test]
fn what_fits_is_what_is_agreed_on_with_its_reason() {
    let unknown = Transform::Unknown { kind: 3, id: 1 };
    let none = [Transform::Integ(IntegId::NONE), Transform::Ke(KeId::NONE)];
    let all = [GCM128, CBC128, SHA256, PRF256, X25519, none[0], none[1], ESN];
    let mut fitted = 0;
    for protocol in [ProtocolId::IKE, ProtocolId::ESP, ProtocolId::AH] {
        let p = |bits: u32| {
            let mut transforms = some_of(&all, bits);
            transforms.extend((bits & 1 << 8 != 0).then_some(unknown));
            Proposal { number: 1, protocol, spi: Vec::new(), transforms }
        };
        // An odd step walks through all pairs of 2^9 in an order that has nothing to do with the
        // bits.
        for n in 0..40_000u32 {
            let n = n.wrapping_mul(2_654_435_761);
            let (ours, theirs) = (p(n >> 23), p(n >> 14 & 511));
            for ke in [KeRule::Ignore, KeRule::Prefer(None), KeRule::Prefer(Some(KeId::CURVE_25519))] {
                let fits = choose(&ours, &theirs, ke).map(|c| c.into_iter().flatten().collect::<Vec<_>>());
                assert_eq!(fits, agree(&ours, &theirs, ke).ok(), "{ours} {theirs} {ke:?}");
                fitted += u32::from(fits.is_some());
            }
        }
    }
    assert!(fitted > 1_000, "{fitted}");
}

#[test]
fn an_explanation_has_lines_of_bounded_length() {
    let many: Vec<_> = (0..200).map(|n| Transform::Unknown { kind: 200, id: n }).collect();
    let theirs: Vec<_> = (1..=20).map(|n| ike(n, &many)).collect();
    let no = why_not_ike(&[ike(1, &[GCM256, PRF256, X25519])], &theirs, None);
    let no = Diagnosis::from(no);
    let lines = [no.details(), vec![no.sentence()]].concat();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|l| l.len() <= 1_004), "{}", lines[0].len());
}

const ADD: [TransformType; 3] = [TransformType::ADDKE1, TransformType::ADDKE2, TransformType::ADDKE3];

fn add(n: u8, id: KeId) -> Transform {
    Transform::AddKe(n, id)
}

/// One transform of each of these types that both have, with methods that all differ, if there is
/// such a choice: found by trying all.
fn any_choice(ours: &Proposal, theirs: &Proposal, left: &[TransformType], used: &[KeId]) -> bool {
    let Some((&kind, left)) = left.split_first() else { return true };
    let both = alternatives(ours, kind).into_iter().filter(|t| alternatives(theirs, kind).contains(t));
    both.into_iter().any(|t| match method(&t) {
        Some(id) => !used.contains(&id) && any_choice(ours, theirs, left, &[used, &[id]].concat()),
        None => any_choice(ours, theirs, left, used),
    })
}

#[test]
fn different_methods_are_chosen_whenever_there_are_some() {
    let methods = [KeId::ML_KEM_768, KeId::ECP_256, KeId::CURVE_25519, KeId::NONE];
    let all: Vec<_> = (1..=3).flat_map(|n| methods.map(|id| add(n, id))).collect();
    let (mut fitted, mut refused) = (0, 0);
    for n in 0..20_000u32 {
        let (x, y) = (n.wrapping_mul(2_654_435_761), n.wrapping_mul(2_246_822_519));
        let first: &[_] = if n % 2 == 0 { &[X25519, ECP256] } else { &[X25519] };
        let p = |bits: u32| ike(1, &[&[GCM128, PRF256][..], first, &some_of(&all, bits)].concat());
        let (ours, theirs) = (p(x >> 20), p(y >> 20 | x >> 18 & 0xfff));
        let kinds = [&[TransformType::KE][..], &ADD].concat();
        let chosen = choose(&ours, &theirs, KeRule::Prefer(Some(KeId::ECP_256)));
        assert_eq!(chosen.is_some(), any_choice(&ours, &theirs, &kinds, &[]), "{ours} {theirs}");
        match chosen {
            Some(chosen) => {
                let used: Vec<_> = chosen.iter().flatten().filter_map(method).collect();
                assert!(used.iter().enumerate().all(|(at, id)| !used[..at].contains(id)), "{used:?}");
                fitted += 1;
            }
            None => refused += 1,
        }
    }
    assert!(fitted > 1_000 && refused > 1_000, "{fitted} {refused}");
}

#[test]
fn without_a_first_key_exchange_there_is_no_other_one() {
    let (none, ml_kem) = (Transform::Ke(KeId::NONE), add(1, KeId::ML_KEM_768));
    let ours = [esp(1, &[GCM128, NO_ESN, X25519, none, ml_kem, add(1, KeId::NONE)])];
    let theirs = [esp(1, &[GCM128, NO_ESN, none, ml_kem, add(1, KeId::NONE)])];
    let s = select_esp(&ours, &theirs, KeRule::Prefer(None)).unwrap();
    assert_eq!((s.suite.esp.ke, s.suite.additional), (None, Additional::NONE));
    assert_eq!(s.answer.transforms, [GCM128, NO_ESN, add(1, KeId::NONE)]);
    let only = [esp(1, &[GCM128, NO_ESN, none, ml_kem])];
    assert!(select_esp(&ours, &only, KeRule::Prefer(None)).is_err());
}

#[test]
fn an_answer_has_one_method_of_those_that_were_offered_for_each_number_and_none_twice() {
    let (a, b) = (KeId::ML_KEM_768, KeId::ML_KEM_512);
    let offered =
        [GCM128, PRF256, X25519, add(2, a), add(2, b), add(3, a), add(3, b), add(5, a), add(5, KeId::NONE)];
    let sent = offer(&[ike(1, &offered)], &[], KeRule::Prefer(None));
    let check = |add: &[Transform]| {
        check_ike(&sent, &[ike(1, &[&[GCM128, PRF256, X25519][..], add].concat())])
            .map(|(suite, _)| suite.additional)
    };
    let agreed = Some(Additional::of(&[add(2, b), add(3, a)]));
    assert_eq!(check(&[add(2, b), add(3, a), add(5, KeId::NONE)]), agreed);
    assert_eq!(check(&[add(2, b), add(3, a)]), agreed, "NONE that is left out");
    assert_eq!(check(&[add(2, a), add(3, a)]), None, "twice");
    assert_eq!(check(&[add(2, b), add(3, a), add(5, a)]), None, "twice");
    assert_eq!(check(&[add(2, a)]), None, "one is missing");
    assert_eq!(check(&[add(2, a), add(3, KeId::NONE)]), None, "NONE was not offered");
    assert_eq!(
        check(&[add(2, a), add(3, b), add(4, KeId::ECP_256)]),
        None,
        "of a number that was not offered"
    );
    assert_eq!(check(&[add(3, a), add(2, b)]), agreed, "the order on the wire does not count");
}
