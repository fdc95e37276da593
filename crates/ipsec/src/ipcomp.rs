//! IP payload compression (RFC 3173) with DEFLATE (RFC 2394), of one packet at a time and without
//! state between packets.
//!
//! ```text
//! 0 next header  1 flags, zero  2-3 CPI  4.. raw DEFLATE of the payload (RFC 1951)
//! ```
//!
//! The DEFLATE stream has no zlib header and no checksum. libdeflate does the work: whole buffers
//! are what it is made for. Nanoseconds to compress a payload (text / random; one core of an x86-64
//! server), and what text of 1,400 bytes becomes:
//!
//! | | 64 bytes | 512 bytes | 1,400 bytes | text, of 1 |
//! |---|---|---|---|---|
//! | libdeflate 1 | 2,800 / 2,900 | 3,900 / 3,700 | 6,900 / 4,900 | 0.58 |
//! | libdeflate 4 | 3,400 / 3,400 | 5,200 / 4,900 | 11,000 / 7,400 | 0.58 |
//! | miniz_oxide 1 | 3,700 / 3,900 | 6,300 / 6,900 | 11,800 / 8,900 | 0.61 |
//! | zlib-rs 1 | 1,400 / - | 2,800 / - | 5,500 / - | 0.80 |
//! | zlib-rs 2 | 3,700 / - | 9,100 / - | 15,900 / - | 0.58 |
//!
//! (zlib-rs 0.6.8 panics when there is too little room.) Most of the cost of a small packet is
//! clearing a hash table of 128 KiB. Inflating 1,400 bytes takes 3,300 (libdeflate), 3,900
//! (zlib-rs) or 5,600 (miniz_oxide).
//!
//! Compression takes longer than all the rest of the way out, so an SA whose packets do not
//! compress hardly tries ([`Adaptive`]). The whole way out with AES-128-GCM and IPComp, and of 1
//! without (`benches/ipcomp.rs`):
//!
//! | | 64 bytes | 512 bytes | 1,400 bytes |
//! |---|---|---|---|
//! | text | 151, 1.10 | 4,900, 27 | 8,400, 35 |
//! | random data | 149, 1.09 | 195, 1.09 | 255, 1.07 |
//!
//! (Packets of 64 bytes are not tried at all: what they pay is the path of SAs that want more than
//! plain tunnel mode.)
//!
//! Payloads over 2,048 bytes go without: Linux inflates with a window of that size ([`WINDOW`]).
//!
//! Not here: where the header goes in a packet, and who negotiates the CPI.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libdeflater::{CompressionLvl, Decompressor};

/// Next header, flags, CPI.
pub(crate) const HEADER: usize = 4;
/// Limits an expanded payload, in bytes: an IP packet holds no more.
const MAX_EXPANDED: usize = 65_535;
/// Payloads below this are not worth the attempt, in bytes: text of 64 loses 3 bytes and wins a
/// header of 4. Linux has the same.
const MIN_PAYLOAD: usize = 90;
/// Payloads above this are not compressed, in bytes. Linux calls zlib's inflate with `windowBits`
/// 11: what has been written stays within reach as long as it is in the same buffer, which was all
/// of the packet, but has been a page of it since 2025. A payload that fits into the window cannot
/// point beyond it; libdeflate has no smaller one.
const WINDOW: usize = 2048;
/// libdeflate's least level that compresses (at 0 it only stores).
const LEVEL: i32 = 1;

/// Decides for one SA which packets are worth an attempt: the adaptive algorithm that RFC 3173
/// section 2.2 asks for, since data that has been compressed or encrypted before does not get
/// shorter. Threads may share it, and may lose a count to each other, which harms nothing.
#[derive(Default)]
pub(crate) struct Adaptive {
    /// Attempts in a row that gained nothing.
    failed: AtomicU32,
    /// Packets that are not tried, from now on.
    skip: AtomicU32,
}

impl Adaptive {
    /// Failures in a row before packets are skipped: text and random data may take turns.
    const FAILURES_ALLOWED: u32 = 4;
    /// Packets that are skipped the first time; the number doubles each time.
    const FIRST_SKIP: u32 = 8;
    /// Limits the packets that are skipped at a time. An attempt costs as much as the whole way of
    /// 20 to 40 packets, so with this pause it takes 1 to 2 % of the time. Text is compressed again
    /// after at most this number of packets.
    const MAX_SKIP: u32 = 2048;

    /// True when the next packet is worth an attempt; counts it as skipped when not.
    fn should_try(&self) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip != 0 {
            self.skip.store(skip - 1, Relaxed);
        }
        skip == 0
    }

    fn note(&self, gained: bool) {
        let failed = if gained { 0 } else { self.failed.load(Relaxed).saturating_add(1) };
        self.failed.store(failed, Relaxed);
        if let Some(beyond) = failed.checked_sub(Self::FAILURES_ALLOWED) {
            let doubled = Self::FIRST_SKIP.checked_shl(beyond.min(16)).unwrap_or(Self::MAX_SKIP);
            self.skip.store(doubled.min(Self::MAX_SKIP), Relaxed);
        }
    }
}

/// Scratch memory of one thread, allocated on first use: about 200 KiB to compress and 75 to
/// expand.
#[derive(Default)]
pub(crate) struct Compressor {
    deflate: Option<Deflate>,
    inflate: Option<Inflate>,
}

struct Deflate {
    library: libdeflater::Compressor,
    /// Header and data of the last packet.
    out: Box<[u8; HEADER + WINDOW]>,
}

struct Inflate {
    library: Decompressor,
    out: Box<[u8]>,
}

impl Compressor {
    /// The IPComp header and the compressed payload, when that is shorter than the payload; `None`:
    /// it goes without.
    pub(crate) fn compress(
        &mut self,
        adaptive: &Adaptive,
        cpi: u16,
        next_header: u8,
        payload: &[u8],
    ) -> Option<&[u8]> {
        if !(MIN_PAYLOAD..=WINDOW).contains(&payload.len()) || !adaptive.should_try() {
            return None;
        }
        let Deflate { library, out } = self.deflate.get_or_insert_with(|| Deflate {
            library: libdeflater::Compressor::new(CompressionLvl::new(LEVEL).unwrap_or_default()),
            out: Box::new([0; HEADER + WINDOW]),
        });
        // "If the total size of a compressed payload and the IPComp header is not smaller than the
        // size of the original payload, the IP datagram MUST be sent in the original non-compressed
        // form" (section 2.2): there is no room for more.
        let (header, room) = out[..payload.len() - 1].split_first_chunk_mut::<HEADER>()?;
        let [high, low] = cpi.to_be_bytes();
        *header = [next_header, 0, high, low];
        let written = library.deflate_compress(payload, room).ok();
        adaptive.note(written.is_some());
        out.get(..HEADER + written?)
    }

    /// Appends to `out` what a packet that begins with an IPComp header holds: its next header, and
    /// the range in `out`. `None`, and nothing appended, when it does not inflate, holds more than
    /// 65,535 bytes, or has another CPI. Bytes behind the end of the compressed data are passed
    /// over, as zlib and so Linux does.
    pub(crate) fn expand(
        &mut self,
        packet: &[u8],
        cpi: u16,
        out: &mut Vec<u8>,
    ) -> Option<(u8, Range<usize>)> {
        // "Flags: Reserved for future use. MUST be set to zero. MUST be ignored by the receiving
        // node" (section 3.3).
        let ([next_header, _, high, low], data) = packet.split_first_chunk::<HEADER>()?;
        (u16::from_be_bytes([*high, *low]) == cpi).then_some(())?;
        let inflate = self.inflate.get_or_insert_with(|| Inflate {
            library: Decompressor::new(),
            out: vec![0; MAX_EXPANDED].into(),
        });
        let written = inflate.library.deflate_decompress(data, &mut inflate.out).ok()?;
        let from = out.len();
        out.extend_from_slice(&inflate.out[..written]);
        Some((*next_header, from..out.len()))
    }
}

#[cfg(test)]
mod tests;
