//! The certificates of a peer: up to a hundred, in any order.

use ironswan_pki::{Certificate, Rules, validate};

use super::certificate::{CA, GATEWAY, MIDDLE, NOW};
use super::signature;

pub use super::certificate::DICTIONARY;

/// The certificate that leads to the CA through another one: the beginning of the seed.
const BELOW: &[u8] = include_bytes!("../../seeds/certificate/0003-below.der");

/// Splits the bytes into elements of DER, and validates the first one with the others beside it.
/// Elements that are no certificate are left out, as a daemon does.
pub fn run(data: &[u8]) -> u64 {
    let mut rest = data;
    let mut certificates = Vec::new();
    while rest.len() > 4 && certificates.len() < 100 {
        let len = match rest[1] {
            0x82 => 4 + usize::from(u16::from_be_bytes([rest[2], rest[3]])),
            0x81 => 3 + usize::from(rest[2]),
            short => 2 + usize::from(short),
        };
        let (der, after) = rest.split_at(len.min(rest.len()));
        certificates.extend(Certificate::from_der(der));
        rest = after;
    }
    let Some((own, others)) = certificates.split_first() else { return 0 };
    let result = validate(own, others, std::slice::from_ref(&CA), NOW, &Rules::default());
    if let Ok(chain) = &result {
        assert!(chain.certificates().len() >= 2 && chain.own() == own);
        assert!([GATEWAY, MIDDLE, BELOW].contains(&own.der()), "a certificate that nobody signed");
    }
    let rule =
        result.err().map(|fault| (std::mem::discriminant(&fault.rule), fault.at.map(|at| at.position)));
    signature((certificates.len(), rule))
}
