//! Two engines that face each other, with a reference beside them. The body is in
//! `ironswan_ipsec::fuzz`.

use ironswan_ipsec::fuzz::{Defect, engine_pair, engine_pair_with};

/// Bytes that choose: SAs of AH and ESP, policies, frames of one and of many packets, any frames.
pub const DICTIONARY: &[&[u8]] = &[
    &[0],
    &[1, 0],
    &[2, 0],
    &[0x20, 0x40, 0, 0x42],
    &[0x80, 0, 0, 0x80],
    &[0xff, 0xf1, 0, 2, 0x40],
    &[0x21, 0, 1],
    &[0x03, 0xc0],
    &[0x10],
    &[5, 1, 0, 54, 0, 0x78, 5, 20, 0, 16, 0],
    &[0x45, 0, 0, 40],
    &[0x60, 0, 0, 0],
];

/// Runs both.
pub fn run(data: &[u8]) -> u64 {
    engine_pair(data)
}

/// With a packet lost on purpose.
pub fn lost(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::Lost)
}

/// With a packet of transport mode changed on purpose.
pub fn changed(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::Changed)
}

/// With two packets exchanged on purpose.
pub fn reordered(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::Reordered)
}

/// With a packet that is to be discarded let out on purpose.
pub fn leaked(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::Leaked)
}

/// With a packet delivered on purpose that another policy covers before that of its SA.
pub fn impersonated(data: &[u8]) -> u64 {
    engine_pair_with(data, Defect::Impersonated)
}
