//! The Internet checksum (RFC 1071), fast enough for the packet path, and incremental updates (RFC
//! 1624).
//!
//! Sums are taken over 16-bit words in the machine's own byte order, which RFC 1071 section 2 (B)
//! allows: a folded sum is stored with `to_ne_bytes`. A number that is not yet in a packet enters a
//! sum through [`be16`].

/// The sum of `data`; an odd last byte is padded with zero. Add such sums freely, then [`fold`].
#[inline]
pub fn sum(data: &[u8]) -> u64 {
    // Add with carry on 64-bit words. Lanes for vector registers are no faster here, and the
    // compiler was seen to shuffle them between register files in the middle of the loop.
    let mut lanes = [0u128; 4];
    let mut chunks = data.chunks_exact(32);
    for c in chunks.by_ref() {
        for (lane, word) in lanes.iter_mut().zip(c.as_chunks().0) {
            *lane += u128::from(u64::from_ne_bytes(*word));
        }
    }
    let total: u128 = lanes.iter().sum();
    // 2^32 and 2^64 are 1 modulo 65,535, so the parts may be added.
    let halves = |x: u64| (x & 0xffff_ffff) + (x >> 32);
    halves(total as u64) + halves((total >> 64) as u64) + sum_tail(chunks.remainder())
}

/// The sum of few bytes.
#[inline]
fn sum_tail(data: &[u8]) -> u64 {
    let mut total = 0u64;
    let mut words = data.chunks_exact(4);
    for w in words.by_ref() {
        total += u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
    }
    match *words.remainder() {
        [a] => total + u64::from(u16::from_ne_bytes([a, 0])),
        [a, b] => total + u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c] => total + u64::from(u16::from_ne_bytes([a, b])) + u64::from(u16::from_ne_bytes([c, 0])),
        _ => total,
    }
}

/// A big-endian number's contribution to a sum.
#[inline]
pub fn be16(value: u16) -> u64 {
    u64::from(value.to_be())
}

/// Folds a sum to 16 bits. The checksum to store is the complement of this.
#[inline]
pub fn fold(sum: u64) -> u16 {
    // Four additions with end-around carry: 64 -> 33 -> 32 -> 17 -> 16 bits.
    let s = (sum & 0xffff_ffff) + (sum >> 32);
    let s = (s & 0xffff_ffff) + (s >> 32);
    let s = (s & 0xffff) + (s >> 16);
    let s = (s & 0xffff) + (s >> 16);
    ((s & 0xffff) + (s >> 16)) as u16
}

/// The checksum field after one 16-bit word of what it covers changed (RFC 1624 equation 3).
#[inline]
pub fn update(checksum: [u8; 2], old: [u8; 2], new: [u8; 2]) -> [u8; 2] {
    let sum = u64::from(!u16::from_ne_bytes(checksum))
        + u64::from(!u16::from_ne_bytes(old))
        + u64::from(u16::from_ne_bytes(new));
    (!fold(sum)).to_ne_bytes()
}

/// The pseudo-header's sum without the length: `addresses` is source and destination, 8 or 32
/// bytes. Add [`be16`] of the upper-layer length (both families' length fields sum the same below
/// 65,536).
#[inline]
pub fn pseudo(addresses: &[u8], protocol: u8) -> u64 {
    sum_tail(addresses) + be16(u16::from(protocol))
}
