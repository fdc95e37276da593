use std::time::Instant;

use ironswan_crypto::sign::{Curve, Hash, KeyKind, Legacy, PrivateKey, Scheme};

use super::*;
use crate::der::{BIT_STRING, INTEGER, OID, SEQUENCE, emit, explicit};
use crate::rules::{Policies, Purpose};
use crate::testing::{Make, NOW, extension, key};
use crate::{CertificateFault, Oid};

/// Validates a chain: the peer's own certificate, others, and the CA.
fn judge(own: &Make, others: &[Make], root: &Make) -> Result<Vec<String>, ChainFault> {
    judge_by(own, others, root, &Rules::default())
}

fn judge_by(own: &Make, others: &[Make], root: &Make, rules: &Rules) -> Result<Vec<String>, ChainFault> {
    let others: Vec<_> = others.iter().map(Make::make).collect();
    let chain = validate(&own.make(), &others, &[root.make()], NOW, rules)?;
    Ok(chain.certificates().iter().map(|c| c.subject().to_string()).collect())
}

fn root() -> Make {
    Make::root("CN=Root", 1)
}

fn middle() -> Make {
    Make::ca("CN=Middle", 2, "CN=Root", 1)
}

fn own() -> Make {
    Make::own("CN=gw", 3, "CN=Middle", 2)
}

#[test]
fn a_chain_is_found_whatever_the_order_and_the_company() {
    let lower = Make::ca("CN=Lower", 4, "CN=Middle", 2);
    let own = Make::own("CN=gw", 3, "CN=Lower", 4);
    // Certificates of the same name with another key, and a loop.
    let others = [
        Make::ca("CN=Lower", 9, "CN=Middle", 2),
        Make::ca("CN=Middle", 8, "CN=Lower", 4),
        lower,
        middle(),
        own.clone(),
        Make::own("CN=x", 7, "CN=y", 6),
        middle(),
    ];
    let expected = ["CN=gw", "CN=Lower", "CN=Middle", "CN=Root"].map(String::from).to_vec();
    assert_eq!(judge(&own, &others, &root()), Ok(expected.clone()));
    let mut reversed = others.to_vec();
    reversed.reverse();
    assert_eq!(judge(&own, &reversed, &root()), Ok(expected));
}

#[test]
fn the_end_of_a_chain_is_the_end_of_its_first_certificate() {
    let mut middle = middle();
    middle.validity.1 = "220101000000Z";
    let chain = validate(&own().make(), &[middle.make()], &[root().make()], NOW, &Rules::default()).unwrap();
    assert_eq!(chain.not_after().to_string(), "2022-01-01 00:00:00 UTC");
    assert_eq!(chain.own(), &own().make());
}

/// A chain with one fault each, and the sentence that says so.
#[test]
fn each_fault_names_its_certificate_and_its_rule() {
    let gw = r#"the certificate of "CN=gw" (serial 03) "#;
    let ca = r#"the certificate of "CN=Middle" (serial 02, number 1 above the peer's) "#;
    let top = r#"the certificate of "CN=Root" (serial 01, number 2 above the peer's) "#;
    let with = |make: Make, validity| Make { validity, ..make };
    let usage = |make: Make, bits: u8| make.with(15, true, &emit(BIT_STRING, &[&[0, bits]]));
    let purposes = |last: u8| emit(SEQUENCE, &[&emit(OID, &[&[0x2b, 6, 1, 5, 5, 7, 3, last]])]);
    let dns = |n: &str| emit(0x82, &[n.as_bytes()]);
    let subtree = |n: &str| emit(SEQUENCE, &[&dns(n)]);
    let limits = |make: Make, which: u8| {
        make.with(30, true, &emit(SEQUENCE, &[&emit(explicit(which), &[&subtree("example")])]))
    };
    let path_length = |length: u8| {
        let ca = emit(SEQUENCE, &[&emit(1, &[&[0xff]]), &emit(INTEGER, &[&[length]])]);
        Make { extensions: vec![extension(&[0x55, 0x1d, 19], true, &ca)], ..root() }
    };
    let unnamed = |n: &str| own().alt_names(&[dns(n)]);
    let cases: Vec<(Make, Make, Make, String)> = vec![
        (
            with(own(), ("190101000000Z", "191231000000Z")),
            middle(),
            root(),
            format!("{gw}has expired: it was valid until 2019-12-31 00:00:00 UTC"),
        ),
        (
            own(),
            with(middle(), ("200102000000Z", "290101000000Z")),
            root(),
            format!("{ca}is not valid before 2020-01-02 00:00:00 UTC"),
        ),
        (
            own(),
            middle(),
            with(root(), ("190101000000Z", "191231000000Z")),
            format!("{top}has expired: it was valid until 2019-12-31 00:00:00 UTC"),
        ),
        (
            own(),
            Make { extensions: vec![], ..middle() },
            root(),
            format!("{ca}is not that of a CA, and issues another certificate"),
        ),
        (
            own(),
            middle(),
            Make { extensions: vec![], ..root() },
            format!("{top}is not that of a CA, and issues another certificate"),
        ),
        (
            own(),
            usage(middle(), 0x80),
            root(),
            format!("{ca}may not be used for signatures of certificates (keyUsage)"),
        ),
        (
            usage(own(), 0x04),
            middle(),
            root(),
            format!("{gw}may not be used for signatures of IKE (keyUsage)"),
        ),
        (
            own().with(37, false, &purposes(4)),
            middle(),
            root(),
            format!("{gw}may not be used for IKE (extKeyUsage)"),
        ),
        (
            own(),
            middle(),
            path_length(0),
            format!("{ca}has a CA above itself that allows 0 CAs below itself, and there are more"),
        ),
        (
            own().with(99, true, &[5, 0]),
            middle(),
            root(),
            format!("{gw}has a critical extension that is not known: 2.5.29.99"),
        ),
        (
            Make { keys: (3, 5), ..own() },
            middle(),
            root(),
            format!("{gw}has a signature that is not by its issuer's key"),
        ),
        (
            own(),
            Make { issuer: "CN=Nobody".into(), ..middle() },
            root(),
            format!(
                "{ca}was issued by \"CN=Nobody\", which is no CA of the configuration and sent no certificate"
            ),
        ),
        (
            unnamed("gw.example.org"),
            limits(middle(), 0),
            root(),
            format!(
                "{gw}has the name \"gw.example.org\", which a CA above does not permit (nameConstraints)"
            ),
        ),
        (
            unnamed("gw.example"),
            middle(),
            limits(root(), 1),
            format!("{gw}has the name \"gw.example\", which a CA above excludes (nameConstraints)"),
        ),
    ];
    for (own, middle, root, expected) in cases {
        assert_eq!(judge(&own, &[middle], &root).map_err(|f| f.to_string()), Err(expected));
    }
    // The same with nothing wrong.
    for own in [
        own(),
        usage(own(), 0x80),
        usage(own(), 0x40),
        own().with(37, true, &purposes(17)),
        own().with(37, true, &purposes(1)),
        own().with(99, false, &[5, 0]),
    ] {
        assert!(judge(&own, &[usage(middle(), 0x06)], &path_length(1)).is_ok());
    }
    assert!(judge(&unnamed("gw.example"), &[limits(middle(), 0)], &root()).is_ok());
    assert!(judge(&unnamed("gw.example.org"), &[middle()], &limits(root(), 1)).is_ok());
}

#[test]
fn a_required_policy_has_to_be_valid_up_to_the_ca() {
    let policy = |make: Make, last: u8| {
        make.with(32, false, &emit(SEQUENCE, &[&emit(SEQUENCE, &[&emit(OID, &[&[0x2a, 3, last]])])]))
    };
    let wanted =
        Policies { acceptable: vec![Oid::parse("1.2.3.4").unwrap()], required: true, ..Policies::default() };
    let rules = Rules { policies: wanted, ..Rules::default() };
    assert!(judge_by(&policy(own(), 4), &[policy(middle(), 4)], &root(), &rules).is_ok());
    for (own, middle) in
        [(policy(own(), 5), policy(middle(), 4)), (own(), policy(middle(), 4)), (policy(own(), 4), middle())]
    {
        assert_eq!(judge_by(&own, &[middle], &root(), &rules).unwrap_err().rule, Rule::NoPolicy);
    }
}

#[test]
fn weak_algorithms_are_refused_unless_somebody_names_them() {
    let ca = PrivateKey::generate(KeyKind::Ecdsa(Curve::P256)).unwrap();
    let root = root().der_of(ca.public().spki(), &ca, Scheme::Ecdsa(Hash::Sha256));
    let root = [Certificate::from_der(&root).unwrap()];
    let own = Make::own("CN=gw", 3, "CN=Root", 1);
    let spki = key(3).public().spki().to_vec();
    let sha1 = Certificate::from_der(&own.der_of(&spki, &ca, Scheme::Ecdsa(Hash::Sha1))).unwrap();
    let legacy = Legacy { sha1: true, short_rsa: true };
    let judge = |own: &Certificate, legacy| {
        validate(own, &[], &root, NOW, &Rules { legacy, ..Rules::default() }).map(drop).map_err(|f| f.rule)
    };
    assert_eq!(judge(&sha1, Legacy::default()), Err(Rule::WeakDigest));
    assert_eq!(judge(&sha1, legacy), Ok(()));
    // An RSA key of 1,024 bits, whose modulus is an odd number of that length.
    let rsa = |bits: usize| {
        let mut modulus = vec![0xff; bits / 8];
        modulus.insert(0, 0);
        let rsa_key = emit(SEQUENCE, &[&emit(INTEGER, &[&modulus]), &emit(INTEGER, &[&[1, 0, 1]])]);
        let algorithm =
            emit(SEQUENCE, &[&emit(OID, &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]]), &[5, 0]]);
        emit(SEQUENCE, &[&algorithm, &emit(BIT_STRING, &[&[0], &rsa_key])])
    };
    let of =
        |spki: &[u8]| Certificate::from_der(&own.der_of(spki, &ca, Scheme::Ecdsa(Hash::Sha256))).unwrap();
    assert!(matches!(judge(&of(&rsa(1024)), Legacy::default()), Err(Rule::Key(_))));
    assert_eq!(judge(&of(&rsa(1024)), legacy), Ok(()));
    assert!(matches!(judge(&of(&rsa(512)), legacy), Err(Rule::Key(_))));
    assert!(matches!(judge(&of(&rsa(32_768)), legacy), Err(Rule::Key(_))));
    let ed448 = emit(
        SEQUENCE,
        &[&emit(SEQUENCE, &[&emit(OID, &[&[0x2b, 0x65, 0x71]])]), &emit(BIT_STRING, &[&[0], &[1; 57]])],
    );
    assert_eq!(
        judge(&of(&ed448), legacy).unwrap_err().to_string(),
        "has a key that cannot be used: the key is for Ed448, which is not supported"
    );
}

#[test]
fn no_bit_of_a_chain_can_be_changed() {
    let root = [root().make()];
    let (own, middle) = (own().der(), middle().der());
    let judge = |own: &[u8], middle: &[u8]| {
        let (Ok(own), Ok(middle)) = (Certificate::from_der(own), Certificate::from_der(middle)) else {
            return false;
        };
        validate(&own, &[middle], &root, NOW, &Rules::default()).is_ok()
    };
    assert!(judge(&own, &middle));
    for bit in 0..own.len() * 8 {
        let mut changed = own.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!judge(&changed, &middle), "bit {bit} of the peer's certificate");
    }
    for bit in 0..middle.len() * 8 {
        let mut changed = middle.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!judge(&own, &changed), "bit {bit} of the CA's certificate");
    }
}

/// The time on the clock: how long a refusal takes is measured.
#[allow(clippy::disallowed_methods, reason = "a test measures time")]
fn clock() -> Instant {
    Instant::now()
}

/// Time in which each of these attacks must be refused on a busy machine with a build for tests.
const REFUSAL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn a_hundred_cas_of_one_name_cost_a_bounded_number_of_steps_and_signatures() {
    let own = Make::own("CN=gw", 3, "CN=X", 100).make();
    let others: Vec<_> = (100..200).map(|key| Make::ca("CN=X", key, "CN=X", key - 1).make()).collect();
    let rules = Rules::default();
    for anchors in [vec![root().make()], vec![root().make(), Make::root("CN=X", 1).make()]] {
        let start = clock();
        let mut search = Search::new(&others, &anchors, NOW, &rules);
        assert!(search.above(&mut vec![&own]).is_none());
        let (steps, signatures) = (rules.limits.steps - search.steps, search.signatures.count());
        let fault = search.fault(&own);
        println!(
            "{} CAs: {steps} steps, {signatures} signatures, {:?}: {fault}",
            anchors.len(),
            clock() - start
        );
        assert!(matches!(fault.rule, Rule::Limit { .. }));
        assert!(steps <= rules.limits.steps && signatures <= rules.limits.signatures);
        assert!(clock() - start < REFUSAL_TIMEOUT);
    }
}

#[test]
fn more_certificates_or_bytes_than_the_limits_are_not_looked_at() {
    let own = own().make();
    let limit = |others: &[Certificate]| {
        validate(&own, others, &[root().make()], NOW, &Rules::default()).unwrap_err().to_string()
    };
    assert_eq!(limit(&vec![middle().make(); 101]), "the peer's chain exceeds a limit: 100 certificates");
    let large = middle().with(99, false, &[0; 60_000]).make();
    assert_eq!(limit(&vec![large; 9]), "the peer's chain exceeds a limit: 524288 bytes of certificates");
    let mut long: Vec<Make> =
        (10..30).map(|n| Make::ca(&format!("CN={n}"), n, &format!("CN={}", n - 1), n - 1)).collect();
    long.reverse();
    let fault = judge(&Make::own("CN=gw", 3, "CN=29", 29), &long, &Make::root("CN=9", 9)).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "the peer's chain exceeds a limit: 10 certificates from the peer's to a CA's"
    );
}

#[test]
fn bytes_that_are_large_or_deep_are_no_certificate() {
    let read = |der: &[u8]| Certificate::from_der(der).unwrap_err();
    assert_eq!(read(&vec![0x30; 1 << 20]), CertificateFault::TooLong(1 << 20));
    // As many sequences one in the other as fit.
    let mut deep = Vec::new();
    while deep.len() < 60_000 {
        let len = (60_000 - deep.len()) as u16;
        deep.extend([0x30, 0x82]);
        deep.extend(len.to_be_bytes());
    }
    assert_eq!(read(&deep), CertificateFault::Malformed("outer structure"));
    let nested = (0..2000).fold(Vec::new(), |inner, _| emit(SEQUENCE, &[&inner]));
    let start = clock();
    assert!(matches!(read(&nested), CertificateFault::Malformed(_)));
    assert!(matches!(
        read(&own().with(30, true, &nested).der()),
        CertificateFault::Malformed("nameConstraints")
    ));
    assert!(clock() - start < REFUSAL_TIMEOUT);
}

#[test]
fn names_against_constraints_end_at_a_limit() {
    let dns = |n: usize| emit(0x82, &[format!("host{n}.example").as_bytes()]);
    let excluded: Vec<u8> = (0..2000).flat_map(|n| emit(SEQUENCE, &[&dns(n)])).collect();
    let middle = middle().with(30, true, &emit(SEQUENCE, &[&emit(explicit(1), &[&excluded])]));
    let names: Vec<_> = (5000..7000).map(dns).collect();
    let start = clock();
    let fault = judge(&own().alt_names(&names), &[middle], &root()).unwrap_err();
    println!("2,000 names against 2,000 constraints: {:?}", clock() - start);
    assert!(matches!(fault.rule, Rule::Limit { of: Limit::Comparisons, .. }), "{fault}");
    assert!(clock() - start < REFUSAL_TIMEOUT);
}

#[test]
fn policies_that_multiply_at_each_ca_take_little_time() {
    let id = |n: u8| emit(OID, &[&[0x2a, n]]);
    let list: Vec<u8> = (0..60).flat_map(|n| emit(SEQUENCE, &[&id(n)])).collect();
    // Each policy is mapped to eight others.
    let maps: Vec<u8> = (0..60).flat_map(|n: u8| emit(SEQUENCE, &[&id(n / 8), &id(n)])).collect();
    let cas: Vec<Make> = (10..18)
        .map(|n| {
            Make::ca(&format!("CN={n}"), n, &format!("CN={}", n - 1), n - 1)
                .with(32, false, &emit(SEQUENCE, &[&list]))
                .with(33, true, &emit(SEQUENCE, &[&maps]))
        })
        .collect();
    let own = Make::own("CN=gw", 3, "CN=17", 17).with(32, false, &emit(SEQUENCE, &[&list]));
    let start = clock();
    let result = judge(&own, &cas, &Make::root("CN=9", 9));
    println!("60 policies and 60 mappings at each of 8 CAs: {:?}", clock() - start);
    assert!(result.is_ok());
    assert!(clock() - start < REFUSAL_TIMEOUT);
}

#[test]
fn a_responder_or_a_signer_of_lists_has_rules_of_its_own() {
    let ocsp = Rules { purpose: Purpose::Ocsp, ..Rules::default() };
    assert!(matches!(judge_by(&own(), &[middle()], &root(), &ocsp).unwrap_err().rule, Rule::Purpose { .. }));
    let crl = Rules { purpose: Purpose::Crl, ..Rules::default() };
    let usage = own().with(15, true, &emit(BIT_STRING, &[&[0, 0x80]]));
    assert!(matches!(judge_by(&usage, &[middle()], &root(), &crl).unwrap_err().rule, Rule::KeyUsage { .. }));
}
