//! Tells the kinds of UDP payload on port 4500 apart (RFC 3948 section 2).
//!
//! ```text
//! | 0xff |                        NAT-keepalive
//! | 0 0 0 0 | IKE message |       non-ESP marker
//! | SPI | sequence | ...          ESP: the SPI is never 0
//! ```
//!
//! On port 500 there is no marker: what comes there is IKE, and a marker there is a malformed IKE
//! message.

/// Stands before an IKE message on port 4500, where an ESP packet has its SPI.
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// The whole payload of a NAT-keepalive.
pub const KEEPALIVE: [u8; 1] = [0xff];

/// SPI and sequence number: what every ESP packet has at least.
const ESP_HEADER: usize = 8;

/// A UDP payload, told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Natt<'a> {
    /// "The receiver SHOULD ignore a received NAT-keepalive packet."
    Keepalive,
    /// An IKE message, without the marker.
    Ike(&'a [u8]),
    /// An ESP packet from its SPI on.
    Esp(&'a [u8]),
    /// Too short to be any of these; to be dropped and counted.
    Runt,
}

/// Tells apart what arrived on port 4500.
pub fn classify(payload: &[u8]) -> Natt<'_> {
    match payload {
        [0xff] => Natt::Keepalive,
        [0, 0, 0, 0, ike @ ..] if !ike.is_empty() => Natt::Ike(ike),
        [0, 0, 0, 0] => Natt::Runt,
        _ if payload.len() < ESP_HEADER => Natt::Runt,
        _ => Natt::Esp(payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_ff_is_a_keepalive_and_other_single_bytes_are_runts() {
        assert_eq!(classify(&KEEPALIVE), Natt::Keepalive);
        assert_eq!(classify(&[0xfe]), Natt::Runt);
        assert_eq!(classify(&[0]), Natt::Runt);
        assert_eq!(classify(&[0xff, 0xff]), Natt::Runt);
    }

    #[test]
    fn the_marker_is_taken_off_and_is_nothing_alone() {
        assert_eq!(classify(&[0, 0, 0, 0, 7]), Natt::Ike(&[7]));
        assert_eq!(classify(&NON_ESP_MARKER), Natt::Runt);
        assert_eq!(classify(&[0, 0, 0]), Natt::Runt);
    }

    #[test]
    fn everything_else_with_an_esp_header_is_esp() {
        assert_eq!(classify(&[0, 0, 0, 1, 0, 0, 0, 1]), Natt::Esp(&[0, 0, 0, 1, 0, 0, 0, 1]));
        assert_eq!(classify(&[0xff; 8]), Natt::Esp(&[0xff; 8]));
        for n in 0..8 {
            if n != 1 {
                assert_eq!(classify(&[0xff; 8][..n]), Natt::Runt);
            }
        }
    }
}
