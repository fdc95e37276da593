//! `struct virtio_net_hdr` as a TUN device with `IFF_VNET_HDR` speaks it (10 bytes, native byte
//! order, which is little-endian on every machine where the device does not say otherwise).
//!
//! ```text
//!  0 flags  1 gso_type  2-3 hdr_len  4-5 gso_size  6-7 csum_start  8-9 csum_offset
//! ```

/// Bytes of the header in front of every packet read from or written to the device.
pub const VNET_HDR_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Contents of one read or write: a packet, or a super-packet to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gso {
    /// One packet.
    #[default]
    None,
    /// TCP over IPv4, to be cut by `segment_size`.
    TcpV4,
    /// TCP over IPv6, to be cut by `segment_size`.
    TcpV6,
    /// UDP of either family, to be cut by `segment_size`.
    UdpL4,
}

/// The header's meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// Contents of the buffer.
    pub gso: Gso,
    /// The TCP super-packet carries CWR: only its first segment may.
    pub ecn: bool,
    /// Upper-layer payload bytes of each segment but the last; 0 without segmentation.
    pub segment_size: u16,
    /// Bytes of all headers; a hint of the sender's that is not to be trusted.
    pub hdr_len: u16,
    /// The checksum from `start` to the end is unfinished (its field, at `start + offset`, holds
    /// the sum of the pseudo-header). Relative to the IP header.
    pub csum: Option<(u16, u16)>,
    /// The checksum has been verified.
    pub data_valid: bool,
}

/// Why a header was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadError {
    /// Shorter than [`VNET_HDR_LEN`].
    Truncated,
    /// A `gso_type` that was never asked for (UFO, or one of the future).
    GsoType(u8),
    /// Segmentation with segments of no bytes.
    SegmentSize,
}

impl Offload {
    /// One packet, nothing left to do.
    pub const NONE: Self =
        Self { gso: Gso::None, ecn: false, segment_size: 0, hdr_len: 0, csum: None, data_valid: false };

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, OffloadError> {
        let h = bytes.first_chunk::<VNET_HDR_LEN>().ok_or(OffloadError::Truncated)?;
        let word = |at: usize| u16::from_ne_bytes([h[at], h[at + 1]]);
        let gso = match h[1] & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::TcpV4,
            GSO_TCPV6 => Gso::TcpV6,
            GSO_UDP_L4 => Gso::UdpL4,
            other => return Err(OffloadError::GsoType(other)),
        };
        let segment_size = word(4);
        if gso != Gso::None && segment_size == 0 {
            return Err(OffloadError::SegmentSize);
        }
        Ok(Self {
            gso,
            ecn: h[1] & GSO_ECN != 0,
            segment_size: if gso == Gso::None { 0 } else { segment_size },
            hdr_len: word(2),
            csum: (h[0] & F_NEEDS_CSUM != 0).then(|| (word(6), word(8))),
            data_valid: h[0] & F_DATA_VALID != 0,
        })
    }

    /// Writes the header.
    pub fn emit(&self) -> [u8; VNET_HDR_LEN] {
        let mut h = [0; VNET_HDR_LEN];
        if self.csum.is_some() {
            h[0] |= F_NEEDS_CSUM;
        }
        if self.data_valid {
            h[0] |= F_DATA_VALID;
        }
        h[1] = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::UdpL4 => GSO_UDP_L4,
        };
        if self.ecn && self.gso != Gso::None {
            h[1] |= GSO_ECN;
        }
        h[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        h[4..6].copy_from_slice(&self.segment_size.to_ne_bytes());
        if let Some((start, offset)) = self.csum {
            h[6..8].copy_from_slice(&start.to_ne_bytes());
            h[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        h
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed_again() {
        for gso in [Gso::None, Gso::TcpV4, Gso::TcpV6, Gso::UdpL4] {
            for csum in [None, Some((20, 16))] {
                let segment_size = if gso == Gso::None { 0 } else { 1348 };
                let o = Offload {
                    gso,
                    ecn: gso == Gso::TcpV4,
                    segment_size,
                    hdr_len: 52,
                    csum,
                    data_valid: csum.is_none(),
                };
                assert_eq!(Offload::parse(&o.emit()), Ok(o));
            }
        }
    }

    #[test]
    fn short_headers_and_unknown_segmentation_are_refused() {
        assert_eq!(Offload::parse(&[0; 9]), Err(OffloadError::Truncated));
        let mut h = [0u8; 10];
        h[1] = 3; // UFO
        assert_eq!(Offload::parse(&h), Err(OffloadError::GsoType(3)));
        h[1] = 0x81;
        assert_eq!(Offload::parse(&h), Err(OffloadError::SegmentSize));
    }
}
