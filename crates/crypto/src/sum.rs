//! The Internet checksum (RFC 1071) at the processor's speed. Here, and not in `wire`, because it
//! takes a processor feature that has to be asked for, and `unsafe` lives in `engine` only.

/// The sum of `data` over 16-bit words in the machine's byte order; an odd last byte is padded with
/// zero. Fold it with [`ironswan_wire::ip::checksum::fold`].
#[inline]
pub fn sum(data: &[u8]) -> u64 {
    crate::engine::sum::sum(data)
}
