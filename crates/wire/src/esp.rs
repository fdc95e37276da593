//! ESP on the wire (RFC 4303 section 2), around what the cipher does.
//!
//! ```text
//!  0-3 SPI  4-7 sequence number, low half  8.. IV | inner packet | trailer | ICV
//!                                                   \____ encrypted _____/
//!  trailer: padding 1,2,3..  pad length 1  next header 1
//! ```

/// SPI and sequence number.
pub const HEADER: usize = 8;
/// Pad length and next header.
pub const TRAILER: usize = 2;
/// SPIs below this are reserved (RFC 4303 section 2.1).
pub const MIN_SPI: u32 = 256;

/// The SPI of an ESP packet.
#[inline]
pub fn spi(packet: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*packet.first_chunk()?))
}

/// SPI and the low half of the sequence number.
#[inline]
pub fn header(packet: &[u8]) -> Option<(u32, u32)> {
    let h = packet.first_chunk::<HEADER>()?;
    Some((u32::from_be_bytes([h[0], h[1], h[2], h[3]]), u32::from_be_bytes([h[4], h[5], h[6], h[7]])))
}

/// Bytes of padding that bring `inner + padding + 2` to a multiple of `block` (a power of two, at
/// least 4: RFC 4303 section 2.4 wants the pad length and next header right-aligned in a 4-byte
/// word).
#[inline]
pub fn pad_len(inner: usize, block: usize) -> usize {
    (inner + TRAILER).wrapping_neg() & (block - 1)
}

/// Writes the default padding, "1, 2, 3, ..." (RFC 4303 section 2.4), pad length and next header
/// into `tail`, which is exactly as long as these.
#[inline]
pub fn emit_trailer(tail: &mut [u8], next_header: u8) {
    let pad = tail.len().saturating_sub(TRAILER).min(255);
    if tail.len() != pad + TRAILER {
        return;
    }
    for (byte, value) in tail[..pad].iter_mut().zip(1..=255) {
        *byte = value;
    }
    tail[pad] = pad as u8;
    tail[pad + 1] = next_header;
}

/// Why a trailer was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrailerError {
    /// The pad length reaches before the text.
    Length,
    /// The padding is not 1, 2, 3, ...
    Padding,
}

/// Reads the trailer at the end of decrypted `text`: the length of what is before the padding, and
/// the next header.
#[inline]
pub fn parse_trailer(text: &[u8]) -> Result<(usize, u8), TrailerError> {
    let [rest @ .., pad, next] = text else { return Err(TrailerError::Length) };
    let pad = usize::from(*pad);
    let inner = rest.len().checked_sub(pad).ok_or(TrailerError::Length)?;
    // "the receiver SHOULD inspect the Padding field" (RFC 4303 section 2.4).
    if rest[inner..].iter().zip(1..=255).all(|(byte, value)| *byte == value) {
        Ok((inner, *next))
    } else {
        Err(TrailerError::Padding)
    }
}

/// Kinds of UDP payload on the NAT traversal port (RFC 3948 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UdpKind {
    /// One byte 0xff, to be ignored.
    Keepalive,
    /// Four zero bytes, then an IKE message.
    Ike,
    /// An ESP packet.
    Esp,
}

/// Tells them apart. Anything shorter than the non-ESP marker that is not a keepalive counts as
/// ESP, where its length is refused and counted.
#[inline]
pub fn udp_kind(payload: &[u8]) -> UdpKind {
    match payload {
        [0xff] => UdpKind::Keepalive,
        [0, 0, 0, 0, ..] => UdpKind::Ike,
        _ => UdpKind::Esp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_found_again_for_every_length_and_block() {
        for block in [4, 16] {
            for inner in 0..80 {
                let pad = pad_len(inner, block);
                assert!(pad < block && (inner + pad + TRAILER).is_multiple_of(block));
                let mut text = vec![0xaa; inner + pad + TRAILER];
                emit_trailer(&mut text[inner..], 41);
                assert_eq!(parse_trailer(&text), Ok((inner, 41)));
            }
        }
    }

    #[test]
    fn pad_length_255_is_accepted_and_one_beyond_the_text_refused() {
        let mut text = vec![0; 255 + TRAILER];
        emit_trailer(&mut text, 4);
        assert_eq!(parse_trailer(&text), Ok((0, 4)));
        assert_eq!(parse_trailer(&text[1..]), Err(TrailerError::Length));
        assert_eq!(parse_trailer(&[4]), Err(TrailerError::Length));
        assert_eq!(parse_trailer(&[]), Err(TrailerError::Length));
        assert_eq!(parse_trailer(&[1, 4]), Err(TrailerError::Length));
    }

    #[test]
    fn any_other_padding_pattern_is_refused() {
        for wrong in 0..7 {
            let mut text = [9, 9, 1, 2, 3, 4, 5, 6, 7, 7, 4];
            text[2 + wrong] ^= 0x10;
            assert_eq!(parse_trailer(&text), Err(TrailerError::Padding));
        }
    }

    #[test]
    fn the_nat_traversal_port_carries_three_kinds() {
        assert_eq!(udp_kind(&[0xff]), UdpKind::Keepalive);
        assert_eq!(udp_kind(&[0, 0, 0, 0]), UdpKind::Ike);
        assert_eq!(udp_kind(&[0, 0, 1, 0, 5]), UdpKind::Esp);
        assert_eq!(udp_kind(&[0xff, 0xff]), UdpKind::Esp);
        assert_eq!(udp_kind(&[]), UdpKind::Esp);
    }
}
