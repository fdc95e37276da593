//! The memory of an AES-GCM key: round keys and powers of H.

/// Length of nonce: salt and explicit IV.
pub(super) const NONCE_LEN: usize = 12;
/// A key ready for use: 512 bytes. Powers of H that short packets need lie next to the round keys.
/// In an [`EspKey`](crate::batch::EspKey) the powers begin a cache line, and what is in front of
/// them is in the line that each packet needs anyway.
#[repr(C, align(8))]
pub(crate) struct GcmKey {
    pub(super) rounds: u8,
    pub(super) tag_len: u8,
    pub(super) _unused: [u8; 14],
    /// H^16 to H^1, each times x, in the reflected order of [`ghash`](super::ghash).
    pub(super) powers: [[u8; 16]; 16],
    /// Of 10, 12 or 14 rounds and the one before them.
    pub(super) round_keys: [[u8; 16]; 15],
}
