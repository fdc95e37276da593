//! One revocation list.

use std::sync::LazyLock;

use ironswan_pki::revocation::{self, Evidence, Policy, Standing};
use ironswan_pki::status::NoStatus;
use ironswan_pki::{Certificate, Chain, ChainFault, Crl, Rule, Rules, validate};

use super::certificate::{CA, GATEWAY, NOW};
use super::signature;

/// The list that the CA has signed.
const LIST: &[u8] = include_bytes!("../../seeds/crl/0001-list.der");

/// A chain of the peer's certificate and its CA.
pub(super) static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let own = Certificate::from_der(GATEWAY).expect("a certificate");
    validate(&own, &[], std::slice::from_ref(&CA), NOW, &Rules::default()).expect("a chain")
});

/// Elements of DER, and object identifiers of extensions of lists.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x82\x01\x00",
    b"\x30\x80",
    b"\x02\x01\x03",
    b"\x17\x0d200101000000Z",
    b"\x18\x0f20200101000000Z",
    b"\xa0\x0e\x30\x0c",
    b"\x30\x0a\x06\x03\x55\x1d\x14\x04\x03\x02\x01\x01",
    b"\x30\x0d\x06\x03\x55\x1d\x1b\x01\x01\xff\x04\x03\x02\x01\x01",
    b"\x06\x03\x55\x1d\x1c\x01\x01\xff\x04\x05\x30\x03\x84\x01\xff",
    b"\x30\x0a\x06\x03\x55\x1d\x15\x04\x03\x0a\x01\x01",
    b"\x06\x03\x55\x1d\x1d\x01\x01\xff",
    b"\x06\x03\x55\x1d\x23",
    b"\x0a\x01\x08",
    b"\x81\x01\xff",
    b"\x83\x02\x07\x80",
];

/// Reads the bytes as a list, and asks it about a certificate. Only the seed says anything.
pub fn run(data: &[u8]) -> u64 {
    let list = match Crl::from_der(data) {
        Ok(list) => list,
        Err(fault) => return signature(fault),
    };
    assert_eq!(list.der(), data);
    let (delta, next) = (list.is_delta(), list.next_update().is_some());
    let shown = format!("{list:?}");
    assert!(shown.len() < 8192 && !shown.contains(char::is_control), "{shown}");
    let evidence = Evidence { lists: &[list], responses: &[], certificates: &[], anchors: &[] };
    let result = revocation::check(&CHAIN, &evidence, Policy::Strict, NOW, &Rules::default());
    assert!(result.is_err() || data == LIST, "a list that the CA did not sign");
    signature((delta, next, why(result)))
}

/// The kind of a refusal, without the times that its text names.
pub(super) fn why(result: Result<Standing, ChainFault>) -> Option<std::mem::Discriminant<NoStatus>> {
    match result.err()?.rule {
        Rule::NoStatus(why) => Some(std::mem::discriminant(&why)),
        _ => None,
    }
}
