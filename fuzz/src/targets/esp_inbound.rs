//! What arrives as ESP: well-sealed nonsense, damaged packets, and anything else. The body is in
//! `ironswan_ipsec::fuzz`.

/// Record kinds with lengths, beginnings of inner packets, trailers.
pub const DICTIONARY: &[&[u8]] = &[
    &[0, 0, 40],
    &[1, 0, 32],
    &[2, 0, 64],
    &[3, 0, 40],
    &[0x46, 0, 60],
    &[0, 0, 1, 0, 0, 0, 0, 1],
    &[0x45, 0, 0, 40],
    &[0x60, 0, 0, 0],
    &[0, 4],
    &[0, 41],
    &[0, 59],
    &[1, 2, 2, 4],
    &[1, 1, 4],
    &[0xff],
];

/// Opens the packets that the bytes describe.
pub fn run(data: &[u8]) -> u64 {
    ironswan_ipsec::fuzz::esp_inbound(data)
}
