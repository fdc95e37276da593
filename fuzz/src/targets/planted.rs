//! Defects on purpose, several steps away from any seed, to show that the fuzzer finds and reports
//! them.

use ironswan_wire::iana::ExchangeType;
use ironswan_wire::ike::Header;

use super::signature;

/// How many of the conditions hold that lead to the defect: an INFORMATIONAL response with the
/// highest message id and a responder SPI of a certain form.
fn steps(data: &[u8]) -> u64 {
    let Ok(header) = Header::read(data) else { return 0 };
    let mut steps = 1;
    for condition in [
        header.exchange == ExchangeType::INFORMATIONAL,
        header.is_response(),
        header.message_id == u32::MAX,
        header.responder_spi >> 56 == 0x2a,
    ] {
        if !condition {
            break;
        }
        steps += 1;
    }
    steps
}

/// Panics.
pub fn panic(data: &[u8]) -> u64 {
    let steps = steps(data);
    assert!(steps < 5, "the planted defect");
    signature(steps)
}

/// Does not return.
pub fn hang(data: &[u8]) -> u64 {
    let steps = steps(data);
    while std::hint::black_box(steps) >= 5 {
        std::thread::yield_now();
    }
    signature(steps)
}

/// Allocates what a length field says.
pub fn memory(data: &[u8]) -> u64 {
    let steps = steps(data);
    if steps >= 5 {
        drop(std::hint::black_box(vec![0u8; 64 << 20]));
    }
    signature(steps)
}
