//! A frame whose packets are numbered and not yet written.

/// A frame for which everything is decided and counted, and nothing written: where its ESP packets
/// go, and which numbers they have. Writing them cannot fail.
#[derive(Clone, Copy)]
pub(crate) struct PlannedFrame {
    /// The frame in the buffer of its burst.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// Where the first packet begins in the send buffer.
    pub(crate) at: u32,
    /// Where the upper-layer header begins.
    pub(crate) upper: u32,
    pub(crate) sequence: u64,
    /// What of the frame the checksum to complete covers, and where it is.
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
