//! NIST's Public Key Interoperability Test Suite (PKITS 1.0.1, 2011): chains that RFC 5280 accepts
//! or refuses. `docs/rfc/pkits.md` explains each disagreement.
//!
//! `pkits/cases.txt` has one case in a line: number, name, settings with the expected result,
//! certificates (the peer's own first), CRLs. A setting is `POLICIES FLAGS RESULT`: digits of the
//! acceptable policies or `-` for any; E explicit policy, M no mapping, A no anyPolicy; `+` or `-`.
//! `pkits/files.deflate` has the files: length of the name, name, DER. Works of NIST are in the
//! public domain.

use std::collections::HashMap;

use ironswan_pki::Oid;
use ironswan_pki::rules::Policies;

use crate::judges::{Question, Usage, here};

/// Length of `files.deflate` when it is unpacked, in bytes.
const UNPACKED: usize = 486590;
/// A time at which the files are valid: 2020-01-01.
const NOW: i64 = 1_577_836_800;

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

/// A setting of a case.
pub struct Setting {
    /// Number of the case, such as `4.1.1`.
    pub number: &'static str,
    /// Name of the case.
    pub name: &'static str,
    /// Setting of the policies, such as `12E`.
    pub setting: &'static str,
    pub question: Question,
    /// The suite accepts the chain.
    pub expected: bool,
}

/// All settings of all cases, in the order of the suite.
pub fn settings() -> Vec<Setting> {
    let files = files();
    let read = |names: &str| names.split(',').map(|name| files[name].clone()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for line in include_str!("pkits/cases.txt").lines() {
        let [number, name, settings, certificates, lists] =
            line.split(' ').collect::<Vec<_>>().try_into().expect("five fields");
        let mut sent = read(certificates);
        let own = sent.remove(0);
        let question = Question {
            own,
            sent,
            trusted: read("TrustAnchorRootCertificate"),
            lists: Some(read(lists)),
            now: NOW,
            policies: Policies::default(),
            usage: Usage::Any,
        };
        for setting in settings.split(',') {
            let (setting, expected) = setting.split_at(setting.len() - 1);
            let question = Question { policies: policies(setting), ..question.clone() };
            all.push(Setting { number, name, setting, question, expected: expected == "+" });
        }
    }
    all
}

#[test]
fn every_case_has_the_result_of_the_suite_or_a_known_disagreement() {
    let settings = settings();
    let (mut cases, mut disagree) = (Vec::new(), Vec::new());
    for Setting { number, name, setting, question, expected } in &settings {
        let result = here(question);
        if let Err(why) = &result {
            println!("{number} {name} {setting}: {why}");
        }
        if result.is_ok() != *expected {
            disagree.push(*number);
        }
        cases.push(*number);
    }
    cases.dedup();
    println!("{} cases in {} settings, {} disagreements", cases.len(), settings.len(), disagree.len());
    assert_eq!((cases.len(), settings.len()), (224, 247));
    assert_eq!(disagree, DISAGREE);
}
