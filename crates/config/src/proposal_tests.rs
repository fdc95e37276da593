//! Tests of proposal strings: what they become, and what is said of those that are wrong.

use super::super::algorithms::{advice, is_readable, is_secret};
use super::*;

fn read(text: &str, protocol: ProtocolId) -> Result<String, Vec<Wrong>> {
    list(text.split(','), protocol).map(|l| l.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn default_list(protocol: ProtocolId) -> Vec<Proposal> {
    list(std::iter::once("default"), protocol).unwrap()
}

fn ike(text: &str) -> Result<String, Vec<Wrong>> {
    read(text, ProtocolId::IKE)
}

fn esp(text: &str) -> Result<String, Vec<Wrong>> {
    read(text, ProtocolId::ESP)
}

fn ah(text: &str) -> Result<String, Vec<Wrong>> {
    read(text, ProtocolId::AH)
}

#[test]
fn strings_become_what_charon_logs() {
    for (got, want) in [
        (ike("aes128gcm16-prfsha256-curve25519"), "IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519"),
        (ike("aes256-sha256-modp2048"), "IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048"),
        (ike("aes192-sha1-prfsha256-ecp256"), "IKE:AES_CBC_192/HMAC_SHA1_96/PRF_HMAC_SHA2_256/ECP_256"),
        (ike("3des-sha1-modp1024"), "IKE:3DES_CBC/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024"),
        (ike("aes256ctr-aesxcbc-modp1536"), "IKE:AES_CTR_256/AES_XCBC_96/PRF_AES128_XCBC/MODP_1536"),
        (
            ike("aes128-aescmac-prfaescmac-prfaesxcbc-prfsha1-modp2048s256"),
            "IKE:AES_CBC_128/AES_CMAC_96/PRF_AES128_CMAC/PRF_AES128_XCBC/PRF_HMAC_SHA1/MODP_2048_256",
        ),
        (ike("aes256ccm96-prfsha512-ecp384"), "IKE:AES_CCM_12_256/PRF_HMAC_SHA2_512/ECP_384"),
        (esp("AES128GCM16"), "ESP:AES_GCM_16_128/NO_EXT_SEQ"),
        (
            esp("chacha20poly1305-x25519-esn,aes256-sha512"),
            "ESP:CHACHA20_POLY1305/CURVE_25519/EXT_SEQ ESP:AES_CBC_256/HMAC_SHA2_512_256/NO_EXT_SEQ",
        ),
        (esp("aes192gcm8,aes192ccm128"), "ESP:AES_GCM_8_192/NO_EXT_SEQ ESP:AES_CCM_16_192/NO_EXT_SEQ"),
        (esp("aes128gcm-aes128ccm"), "ESP:AES_GCM_16_128/AES_CCM_16_128/NO_EXT_SEQ"),
        (esp("null-sha256"), "ESP:NULL/HMAC_SHA2_256_128/NO_EXT_SEQ"),
        (
            esp("3des-md5,3des-sha"),
            "ESP:3DES_CBC/HMAC_MD5_96/NO_EXT_SEQ ESP:3DES_CBC/HMAC_SHA1_96/NO_EXT_SEQ",
        ),
        (esp("aes256ctr-aesxcbc-aescmac"), "ESP:AES_CTR_256/AES_XCBC_96/AES_CMAC_96/NO_EXT_SEQ"),
        (
            esp("aes128gcm16-x25519-ke7_none-ke7_x25519-ke1_mlkem768,aes128gcm16-mlkem512"),
            "ESP:AES_GCM_16_128/CURVE_25519/KE1_ML_KEM_768/KE7_NONE/KE7_CURVE_25519/NO_EXT_SEQ \
             ESP:AES_GCM_16_128/ML_KEM_512/NO_EXT_SEQ",
        ),
        (ah("sha256-ecp256-ke2_mlkem1024"), "AH:HMAC_SHA2_256_128/ECP_256/KE2_ML_KEM_1024/NO_EXT_SEQ"),
        (esp("aes256gmac-esn"), "ESP:NULL_AES_GMAC_256/EXT_SEQ"),
        (ah("sha256-esn-noesn"), "AH:HMAC_SHA2_256_128/EXT_SEQ/NO_EXT_SEQ"),
        (ah("aes128gmac-aes192gmac-aes256gmac"), "AH:AES_128_GMAC/AES_192_GMAC/AES_256_GMAC/NO_EXT_SEQ"),
        (ah("sha1-x25519,md5"), "AH:HMAC_SHA1_96/CURVE_25519/NO_EXT_SEQ AH:HMAC_MD5_96/NO_EXT_SEQ"),
    ] {
        assert_eq!(got, Ok(want.to_owned()));
    }
}

#[test]
fn the_defaults_are_complete_numbered_and_without_anything_that_is_advised_against() {
    for (p, n) in [(ProtocolId::IKE, 4), (ProtocolId::ESP, 2), (ProtocolId::AH, 1)] {
        let d = default_list(p);
        assert_eq!(d.iter().map(|p| usize::from(p.number)).collect::<Vec<_>>(), (1..=n).collect::<Vec<_>>());
        assert!(advice(&d).is_empty() && d.iter().all(|d| d.protocol == p));
    }
    let both = join([default_list(ProtocolId::ESP), default_list(ProtocolId::AH)]).unwrap();
    assert_eq!(
        both.iter().map(|p| (p.number, p.protocol)).collect::<Vec<_>>(),
        [(1, ProtocolId::ESP), (2, ProtocolId::ESP), (3, ProtocolId::AH)]
    );
}

#[test]
fn the_default_of_the_ike_sa_has_ml_kem_first_and_every_peer_of_before_finds_its_proposal() {
    let all = default_list(ProtocolId::IKE);
    let ml_kem = Transform::AddKe(1, KeId::ML_KEM_768);
    assert_eq!(
        all.iter().map(|p| p.transforms.contains(&ml_kem)).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    for (with, without) in all[..2].iter().zip(&all[2..]) {
        let of_both = |p: &Proposal| -> Vec<Transform> {
            p.transforms
                .iter()
                .filter(|t| !matches!(t, Transform::Ke(_) | Transform::AddKe(..)))
                .copied()
                .collect()
        };
        assert_eq!(of_both(with), of_both(without));
        assert_eq!(with.of_type(TransformType::KE).next(), Some(&Transform::Ke(KeId::CURVE_25519)));
        assert!(with.of_type(TransformType::KE).all(|t| without.transforms.contains(t)));
    }
}

#[test]
fn what_is_wrong_is_named_with_the_remedy() {
    for (got, want) in [
        (
            ike("aes128gcm61-prfsha256-x25519"),
            "aes128gcm61 is not a known algorithm; did you mean `aes128gcm16`?",
        ),
        (ike("aes128gcm16-curve25519"), "a PRF is missing, which an AEAD does not imply; add prfsha256"),
        (ike("aes128-sha256"), "a key exchange is missing; add x25519, ecp256 or modp2048"),
        (
            ike("aes128-modp2048"),
            "an integrity algorithm is missing, without which encryption does not protect (RFC 8221 section 4); add sha256",
        ),
        (
            ike("aes128gcm16-aes128-sha256-ecp256"),
            "AES-GCM, AES-CCM, AES-GMAC and ChaCha20-Poly1305 cannot be in one proposal with other ciphers (RFC 7296 \
             section 3.3); write two proposals with a comma between them",
        ),
        (
            ike("aes128gcm16-prfsha256-mlkem768"),
            "mlkem768 as the first key exchange is not built; write x25519-ke1_mlkem768, which has both",
        ),
        (
            ike("aes128gcm16-prfsha256-x25519-ke1_x25519"),
            "x25519 is chosen before ke1_x25519, and no method is used twice (RFC 9370 section 2.2.1); write another \
             method behind ke1_, or leave it out",
        ),
        (
            esp("aes128gcm16-x25519-ke1_mlkem768-ke3_x25519-ke3_mlkem768"),
            "x25519 is chosen before ke3_x25519, and no method is used twice (RFC 9370 section 2.2.1); write another \
             method behind ke3_, or leave it out",
        ),
        (esp("aes128gcm16-ke1_mlkem768"), "a key exchange is missing; add x25519, ecp256 or modp2048"),
        (
            ike("null-sha256-x25519"),
            "null leaves IKE messages readable; it is for esp_proposals, write aes128gcm16 here",
        ),
        (
            ike("aes128gmac-prfsha256-x25519"),
            "aes128gmac leaves IKE messages readable; it is for esp_proposals, write aes128gcm16 here",
        ),
        (ike("aes128-md5-modp2048"), "the PRF that goes with md5 is not built; add prfsha256"),
        (ike("aes128-sha256-prfmd5-modp2048"), "prfmd5 is not built; write prfsha256"),
        (ike("aes128-sha256-x448"), "x448 is not built; write x25519, ecp256, ecp384, modp2048 or modp3072"),
        (
            ike("aes128-sha256-x25519-ke1_ecp256bp"),
            "ke1_ecp256bp is not built; write ke1_mlkem768, ke1_x25519, ke1_ecp256 or ke1_ecp384",
        ),
        (
            esp("aes128gcm16-x25519-ke2_x448"),
            "ke2_x448 is not built; write ke2_mlkem768, ke2_x25519, ke2_ecp256 or ke2_ecp384",
        ),
        (
            ike("aes128-sha256-x25519-ke3_mlkem786"),
            "ke3_mlkem786 is not a known algorithm; did you mean `ke3_mlkem768`?",
        ),
        (
            ike("aes128-sha256-ecp256bp"),
            "ecp256bp is not built; write x25519, ecp256, ecp384, modp2048 or modp3072",
        ),
        (
            ike("aes128-sha256-modp768"),
            "modp768 is not built; write x25519, ecp256, ecp384, modp2048 or modp3072",
        ),
        (ike("aes128-sha256-x25519-esn"), "esn and noesn are for esp_proposals and ah_proposals"),
        (
            esp("aes128gcm16-sha256"),
            "AES-GCM, AES-CCM, AES-GMAC and ChaCha20-Poly1305 take no integrity algorithm (RFC 5282 section 8); remove it",
        ),
        (
            esp("aes128gmac-sha256"),
            "AES-GCM, AES-CCM, AES-GMAC and ChaCha20-Poly1305 take no integrity algorithm (RFC 5282 section 8); remove it",
        ),
        (esp("aes128gcm16-prfsha256"), "a PRF is for proposals of the IKE_SA; remove it"),
        (
            esp("sha256"),
            "an encryption algorithm is missing; for example aes128gcm16. To authenticate only, add null",
        ),
        (esp("x25519"), "an encryption algorithm is missing; for example aes128gcm16"),
        (esp("null"), "null without an integrity algorithm protects nothing; add sha256"),
        (esp("aes128--sha256"), "an empty algorithm name; write names with one hyphen between them"),
        (esp("aes128gcm16iiv"), "implicit IVs (RFC 8750) cannot be negotiated yet; write aes128gcm16"),
        (
            esp("camellia128-sha256"),
            "camellia128 is not built; write aes128gcm16, aes256gcm16, chacha20poly1305, or aes128 or aes256 with sha256",
        ),
        (
            ike("des-sha256-x25519"),
            "des is not built; write aes128gcm16, aes256gcm16, chacha20poly1305, or aes128 or aes256 with sha256",
        ),
        (esp("aes128-sha256_96"), "sha256_96 is not built; write sha256, sha384 or sha512"),
        (
            ah("aes128-sha256"),
            "aes128 encrypts, which AH does not; name an integrity algorithm such as sha256, or write esp_proposals",
        ),
        (ah("esn"), "an integrity algorithm is missing; for example sha256"),
        (ah("sha265"), "sha265 is not a known algorithm; did you mean `sha256`?"),
        (ah("prfsha256"), "a PRF is for proposals of the IKE_SA; remove it"),
    ] {
        let errors = got.unwrap_err();
        assert_eq!(errors.len(), 1);
        let said = errors[0].to_string();
        let said = said.split_once("`: ").unwrap().1;
        assert_eq!(said, want);
    }
    assert!(ike(&vec!["aes128-sha256-ecp256"; 300].join(",")).is_err());
}

/// A list that a peer like us refuses as a syntax error is not offered, and nothing is left out
/// unsaid.
#[test]
fn what_does_not_go_into_one_payload_is_an_error() {
    let many = |text: &str, n: usize| vec![text; n].join(",");
    let errors = |text: &str, protocol| -> Vec<String> {
        let errors = list(text.split(','), protocol).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    };
    assert!(errors(&many("aes128-sha256-x25519", 64), ProtocolId::IKE).is_empty());
    assert_eq!(errors(&many("aes128-sha256-x25519", 65), ProtocolId::IKE), ["more than 64 proposals"]);
    assert!(errors(&many("aes128gcm16", 255), ProtocolId::ESP).is_empty());
    assert_eq!(errors(&many("aes128gcm16", 256), ProtocolId::ESP), ["more than 255 proposals"]);
    // With `noesn`, which is added, 3 transforms each.
    assert!(errors(&many("aes128-sha256", 170), ProtocolId::ESP).is_empty());
    let said = errors(&many("aes128-sha256", 171), ProtocolId::ESP);
    assert!(said.len() == 1 && said[0].starts_with("more than 512 algorithms"), "{said:?}");
    let lists = |esp: usize, ah: usize| {
        let esp = list(many("aes128gcm16", esp).split(','), ProtocolId::ESP).unwrap();
        join([esp, list(many("sha256", ah).split(','), ProtocolId::AH).unwrap()])
    };
    assert_eq!(lists(200, 55).unwrap().last().map(|p| p.number), Some(255));
    assert!(lists(200, 56).unwrap_err().to_string().starts_with("more than 255 proposals"));
}

#[test]
fn what_the_rfcs_advise_against_is_said_once_with_what_to_write_instead() {
    let of = |text: &str, protocol| -> Vec<String> {
        let doubts = advice(&list(text.split(','), protocol).unwrap());
        doubts.into_iter().map(|what| Configuration::Doubtful { what }.to_string()).collect()
    };
    assert_eq!(
        of("3des-md5,3des-md5-sha256", ProtocolId::ESP),
        [
            "3des is weak: SHOULD NOT (RFC 8221 section 5) for ESP; write aes128gcm16 instead",
            "md5 is broken or breakable: MUST NOT (RFC 8221 section 6) for ESP; write sha256 instead",
        ]
    );
    assert_eq!(
        of("md5", ProtocolId::AH),
        ["md5 is broken or breakable: MUST NOT (RFC 8221 section 6) for AH; write sha256 instead"]
    );
    assert_eq!(
        of("aes128-md5-prfsha256-modp2048", ProtocolId::IKE),
        ["md5 is broken or breakable: MUST NOT (RFC 8247 section 2.3) for IKE; write sha256 instead"]
    );
    assert_eq!(
        of(
            "3des-sha1-modp1024,aes128ctr-aesxcbc-modp1024s160,aes128ccm16-prfaescmac-modp2048",
            ProtocolId::IKE
        ),
        [
            "3des is for old peers that have nothing better: MAY (RFC 8247 section 2.1) for IKE; write aes128 instead",
            "sha1 is for old peers that have nothing better: MUST- (RFC 8247 section 2.3) for IKE; write sha256 instead",
            "prfsha1 is for old peers that have nothing better: MUST- (RFC 8247 section 2.2) for IKE; write prfsha256 \
             instead",
            "modp1024 is weak: SHOULD NOT (RFC 8247 section 2.4) for IKE; write x25519 instead",
            "aes128ctr is for old peers that have nothing better: MAY for IKE; write aes128 instead",
            "aesxcbc is for old peers that have nothing better: SHOULD for small devices (RFC 8247 section 2.3) for IKE; \
             write sha256 instead",
            "prfaesxcbc is for old peers that have nothing better: SHOULD for small devices (RFC 8247 section 2.2) for \
             IKE; write prfsha256 instead",
            "modp1024s160 is broken or breakable: MUST NOT (RFC 8247 section 2.4) for IKE; write x25519 instead",
            "prfaescmac is for old peers that have nothing better: MAY for IKE; write prfsha256 instead",
        ]
    );
    assert!(of("aes128ccm8-aes256gcm16-prfsha256-x25519-modp2048", ProtocolId::IKE).is_empty());
    assert!(of("aes128-sha1,null-sha256,aes192ctr-aescmac,aes128gcm8", ProtocolId::ESP).is_empty());
}

#[test]
fn what_can_be_read_on_the_way_is_known() {
    let one = |text: &str, protocol| list([text].into_iter(), protocol).unwrap().remove(0);
    for (text, protocol, readable, secret) in [
        ("aes128gcm16", ProtocolId::ESP, false, true),
        ("null-sha256", ProtocolId::ESP, true, false),
        ("aes128gmac", ProtocolId::ESP, true, false),
        ("aes128gmac-aes128gcm16", ProtocolId::ESP, true, true),
        ("aes128gmac", ProtocolId::AH, true, false),
        ("sha256", ProtocolId::AH, true, false),
    ] {
        let p = one(text, protocol);
        assert_eq!((is_readable(&p), is_secret(&p)), (readable, secret), "{text}");
    }
}

#[test]
fn additional_key_exchanges_are_read_in_the_order_of_their_numbers() {
    let read = ike("aes256gcm16-ke2_mlkem1024-prfsha384-ke1_ecp256-ke1_none-x25519-ke7_modp2048").unwrap();
    assert!(read.ends_with("/CURVE_25519/KE1_ECP_256/KE1_NONE/KE2_ML_KEM_1024/KE7_MODP_2048"), "{read}");
    for wrong in ["ke0_mlkem768", "ke8_mlkem768", "ke1_", "ke1_aes128", "ke1_mlkem769", "ke_mlkem768"] {
        let text = format!("aes256gcm16-prfsha384-x25519-{wrong}");
        assert!(ike(&text).is_err(), "{text}");
    }
    assert_eq!(
        esp("aes128gcm16-ke7_mlkem512-x25519-ke1_none"),
        Ok("ESP:AES_GCM_16_128/CURVE_25519/KE1_NONE/KE7_ML_KEM_512/NO_EXT_SEQ".to_owned())
    );
}
