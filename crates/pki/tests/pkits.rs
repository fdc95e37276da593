//! NIST's Public Key Interoperability Test Suite (PKITS 1.0.1, 2011): chains that RFC 5280 accepts
//! or refuses. `docs/rfc/pkits.md` explains each disagreement.
//!
//! `pkits/cases.txt` has one case in a line: number, name, settings with the expected result,
//! certificates (the peer's own first), CRLs. A setting is `POLICIES FLAGS RESULT`: digits of the
//! acceptable policies or `-` for any; E explicit policy, M no mapping, A no anyPolicy; `+` or `-`.
//! `pkits/files.deflate` has the files: length of the name, name, DER. Works of NIST are in the
//! public domain.

use std::collections::HashMap;

use ironswan_pki::revocation::{self, Evidence, Policy};
use ironswan_pki::rules::Policies;
use ironswan_pki::{Certificate, Crl, Oid, Purpose, Rules, Time};

/// Length of `files.deflate` when it is unpacked, in bytes.
const UNPACKED: usize = 486590;
/// A time at which the files are valid: 2020-01-01.
const NOW: Time = Time(1_577_836_800);

/// Cases in which we disagree with the suite. `docs/rfc/pkits.md` says why.
const DISAGREE: [&str; 3] = ["4.1.4", "4.1.5", "4.14.30"];

/// The files by their names.
fn files() -> HashMap<String, Vec<u8>> {
    let mut bytes = vec![0; UNPACKED];
    libdeflater::Decompressor::new()
        .deflate_decompress(include_bytes!("pkits/files.deflate"), &mut bytes)
        .expect("the file is whole");
    let mut files = HashMap::new();
    let mut rest = &bytes[..];
    while let Some((&len, after)) = rest.split_first() {
        let (name, der) = after.split_at(usize::from(len));
        let (size, after) = der.split_at(2);
        let (der, after) = after.split_at(usize::from(u16::from_be_bytes([size[0], size[1]])));
        files.insert(String::from_utf8(name.to_vec()).expect("a name"), der.to_vec());
        rest = after;
    }
    files
}

fn policies(setting: &str) -> Policies {
    let digits = setting.chars().filter(char::is_ascii_digit);
    Policies {
        acceptable: digits.map(|d| Oid::parse(&format!("2.16.840.1.101.3.2.1.48.{d}")).unwrap()).collect(),
        required: setting.contains('E'),
        inhibit_mapping: setting.contains('M'),
        inhibit_any: setting.contains('A'),
    }
}

/// Validates the chain of a case, with the status of each certificate.
fn judge(
    files: &HashMap<String, Vec<u8>>,
    anchors: &[Certificate],
    certificates: &str,
    lists: &str,
    rules: &Rules,
) -> Result<(), String> {
    let mut read = Vec::new();
    for name in certificates.split(',') {
        read.push(Certificate::from_der(&files[name]).map_err(|fault| fault.to_string())?);
    }
    let chain = ironswan_pki::validate(&read[0], &read[1..], anchors, NOW, rules)
        .map_err(|fault| fault.to_string())?;
    // A list that cannot be read is as good as none.
    let lists: Vec<Crl> = lists.split(',').filter_map(|name| Crl::from_der(&files[name]).ok()).collect();
    let evidence = Evidence { lists: &lists, responses: &[], certificates: &read[1..], anchors };
    revocation::check(&chain, &evidence, Policy::Strict, NOW, rules)
        .map(drop)
        .map_err(|fault| fault.to_string())
}

#[test]
fn every_case_has_the_result_of_the_suite_or_a_known_disagreement() {
    let files = files();
    let anchors = [Certificate::from_der(&files["TrustAnchorRootCertificate"]).expect("a certificate")];
    let (mut cases, mut settings_tried, mut disagree) = (0, 0, Vec::new());
    for line in include_str!("pkits/cases.txt").lines() {
        let [number, name, settings, certificates, lists] =
            line.split(' ').collect::<Vec<_>>().try_into().expect("five fields");
        cases += 1;
        for setting in settings.split(',') {
            settings_tried += 1;
            let (setting, expected) = setting.split_at(setting.len() - 1);
            let rules = Rules { purpose: Purpose::Any, policies: policies(setting), ..Rules::default() };
            let result = judge(&files, &anchors, certificates, lists, &rules);
            if let Err(why) = &result {
                println!("{number} {name} {setting}: {why}");
            }
            if result.is_ok() != (expected == "+") {
                disagree.push(number);
            }
        }
    }
    println!("{cases} cases in {settings_tried} settings, {} disagreements", disagree.len());
    assert_eq!((cases, settings_tried), (224, 247));
    assert_eq!(disagree, DISAGREE);
}
