//! A decrypted text: the type of the first payload in one byte, then the chain.

use ironswan_wire::iana::PayloadType;
use ironswan_wire::ike::{Within, emit_chain, parse_chain, sealed};

use super::ike_message::{of_error, of_kinds};

/// Runs the chain, and the padding's removal on the same bytes.
pub fn run(data: &[u8]) -> u64 {
    let Some((first, text)) = data.split_first() else { return 0 };
    if let Ok(plain) = sealed::unpad(text) {
        assert!(plain.len() < text.len());
    }
    let payloads = match parse_chain(PayloadType(*first), text, Within::Sk) {
        Ok(payloads) => payloads,
        Err(e) => return of_error(&e),
    };
    if let Ok((first, once)) = emit_chain(&payloads) {
        let again = parse_chain(first, &once, Within::Sk).expect("what was emitted parses");
        assert_eq!(emit_chain(&again), Ok((first, once)));
    }
    assert!(!format!("{payloads:?}").contains('\n'));
    of_kinds(&payloads)
}
