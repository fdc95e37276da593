//! One response of OCSP.

use ironswan_pki::Rules;
use ironswan_pki::ocsp::Response;
use ironswan_pki::revocation::{self, Evidence, Policy};

use super::certificate::NOW;
use super::crl::{CHAIN, why};
use super::signature;

/// Responses by the CA, and by its responder.
const SEEDS: [&[u8]; 2] = [
    include_bytes!("../../seeds/ocsp/0001-by-the-ca.der"),
    include_bytes!("../../seeds/ocsp/0002-by-a-responder.der"),
];

/// Elements of DER, and object identifiers of responses.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x82\x01\x00",
    b"\x30\x80",
    b"\x30\x03\x0a\x01\x00",
    b"\x30\x03\x0a\x01\x06",
    b"\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01",
    b"\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x02",
    b"\x06\x05\x2b\x0e\x03\x02\x1a",
    b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x09",
    b"\x80\x00",
    b"\x82\x00",
    b"\xa1\x11\x18\x0f20200101000000Z",
    b"\xa0\x11\x18\x0f20200101000000Z",
    b"\xa2\x16\x04\x14",
    b"\xa0\x03\x02\x01\x00",
    b"\x18\x0f20200101000000Z",
];

/// Reads the bytes as a response, and asks it about a certificate. Only the seeds say anything.
pub fn run(data: &[u8]) -> u64 {
    let response = match Response::from_der(data) {
        Ok(response) => response,
        Err(fault) => return signature(fault),
    };
    let responses = [(response, None)];
    let evidence = Evidence { lists: &[], responses: &responses, certificates: &[], anchors: &[] };
    let result = revocation::check(&CHAIN, &evidence, Policy::Strict, NOW, &Rules::default());
    // The certificates beside a response are not signed with it, so more bytes than the seeds may
    // be good. All of them have the signature of a seed.
    let signed = |seed: &[u8]| data.windows(64).any(|bytes| bytes == signature_of(seed));
    assert!(result.is_err() || SEEDS.iter().any(|seed| signed(seed)), "a response that nobody signed");
    signature(why(result))
}

/// The signature of a seed: the bits of its first BIT STRING of 64 bytes.
fn signature_of(seed: &[u8]) -> &[u8] {
    let at = seed.windows(3).position(|bytes| bytes == [0x03, 0x41, 0x00]).expect("the seed is signed");
    &seed[at + 3..at + 67]
}
