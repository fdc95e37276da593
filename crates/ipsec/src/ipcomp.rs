//! IP payload compression (RFC 3173) with DEFLATE (RFC 2394), of one packet at a time and without state between packets.
//!
//! ```text
//! 0 next header  1 flags, zero  2-3 CPI  4.. raw DEFLATE of the payload (RFC 1951; no zlib header, no checksum)
//! ```
//!
//! Not here: where the header goes in a packet, and who negotiates the CPI.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// Next header, flags, CPI.
pub(crate) const HEADER: usize = 4;
/// Longest payload: what an IP packet holds at most.
const LONGEST: usize = 65_535;
/// Payloads below this are not worth the attempt, in bytes.
const SHORTEST: usize = 96;

/// When not to try: "an adaptive algorithm" (RFC 3173 section 2.2). Of an SA; threads may share it.
#[derive(Default)]
pub(crate) struct Adaptive {
    /// Packets to go without, from now.
    skip: AtomicU32,
}

impl Adaptive {
    fn tries(&self) -> bool {
        self.skip.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err()
    }
}

/// Scratch memory of one thread, allocated on first use.
#[derive(Default)]
pub(crate) struct Compressor {
    deflate: Option<Box<CompressorOxide>>,
    inflate: Option<Box<DecompressorOxide>>,
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The IPComp header and the compressed payload, when that is shorter than the payload; `None`: it goes without.
    pub(crate) fn compress(
        &mut self,
        adaptive: &Adaptive,
        cpi: u16,
        next_header: u8,
        payload: &[u8],
    ) -> Option<&[u8]> {
        if payload.len() < SHORTEST || payload.len() > LONGEST || !adaptive.tries() {
            return None;
        }
        let deflate = self.deflate.get_or_insert_with(Default::default);
        deflate.reset();
        self.out.resize(payload.len(), 0);
        let (header, room) = self.out.split_first_chunk_mut::<HEADER>()?;
        *header = [next_header, 0, (cpi >> 8) as u8, cpi as u8];
        // Less room than the payload has: what does not shorten does not fit (section 2.2).
        let (status, _, written) = compress(deflate, payload, room, TDEFLFlush::Finish);
        (status == TDEFLStatus::Done).then(|| &self.out[..HEADER + written])
    }

    /// Appends to `out` what a packet that begins with an IPComp header holds: its next header, and the range in `out`.
    pub(crate) fn expand(
        &mut self,
        packet: &[u8],
        cpi: u16,
        out: &mut Vec<u8>,
    ) -> Option<(u8, Range<usize>)> {
        let (header, data) = packet.split_first_chunk::<HEADER>()?;
        (u16::from_be_bytes([header[2], header[3]]) == cpi).then_some(())?;
        let inflate = self.inflate.get_or_insert_with(Default::default);
        inflate.init();
        let from = out.len();
        out.resize(from + LONGEST, 0);
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, read, written) = decompress(inflate, data, &mut out[from..], 0, flags);
        if status == TINFLStatus::Done && read == data.len() {
            out.truncate(from + written);
            Some((header[0], from..from + written))
        } else {
            out.truncate(from);
            None
        }
    }
}
