//! A frame whose packets are numbered and not yet written.

/// A frame for which everything is decided and counted, and nothing written: the room and the
/// sequence numbers of its ESP packets. Writing them cannot fail.
#[derive(Clone, Copy)]
pub(crate) struct PlannedFrame {
    /// Offset and length of the frame in the buffer of its burst.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// Offset of the first packet in the send buffer.
    pub(crate) at: u32,
    /// Offset of the upper-layer header in the frame.
    pub(crate) upper: u32,
    pub(crate) sequence: u64,
    /// The checksum to complete: offset of the bytes that it covers, and from there the offset of
    /// its field.
    pub(crate) csum: Option<(u16, u16)>,
    /// Of a super-packet: bytes of its headers, and payload bytes of each segment; 0 for one
    /// packet.
    pub(crate) header: u16,
    pub(crate) size: u16,
    pub(crate) key: u16,
    pub(crate) fragmentable: u16,
    pub(crate) tos: u8,
    pub(crate) protocol: u8,
    pub(crate) ipv6: bool,
}
