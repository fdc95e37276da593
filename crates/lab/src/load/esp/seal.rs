//! What the gateway is to open: the generator's packets in ESP, sealed as they are sent, in the generator's own thread.

use std::sync::Arc;

use ironswan_crypto::batch::{self, Job};
use ironswan_wire::esp;
use ironswan_wire::ip::{checksum, protocol, udp, v4};
use ironswan_wire::offload::{Offload, VNET_HDR_LEN};

use super::{Association, ETHERNET};
use crate::error::LabError;
use crate::load::frame::{Burst, Frames, Mix, Route, Shape};

/// Bytes from one frame to the next: the largest packet and all that is put around it.
const STRIDE: usize = 2048;

/// Frames with ESP. The UDP checksum is left to the kernel, as a local socket leaves it to the interface.
pub struct Sealed {
    sa: Arc<Association>,
    inner: Frames,
    /// By length of the inner packet: all before the SPI, and the length of the whole frame.
    heads: Vec<(usize, Vec<u8>, usize)>,
    buffer: Vec<u8>,
    jobs: Vec<Job>,
}

impl Sealed {
    /// Packets of `shape` along `route`, whose next hop is the gateway's outer side; `batch` of them at once.
    pub fn new(sa: Arc<Association>, shape: Shape, route: Route, batch: usize) -> Self {
        let inner = Frames::new(shape, route, batch);
        let mut lengths: Vec<usize> = (0..Mix::LEN as u32).map(|n| inner.frame_len(n) - ETHERNET).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let ethernet = &inner.bytes()[..ETHERNET];
        let heads = lengths.into_iter().map(|len| head(&sa, ethernet, len)).collect();
        Self { sa, inner, heads, buffer: vec![0; STRIDE * batch], jobs: Vec::with_capacity(batch) }
    }
}

/// All before the SPI of a packet with `inner` bytes inside, and the length of its frame.
fn head(sa: &Association, ethernet: &[u8], inner: usize) -> (usize, Vec<u8>, usize) {
    let (outer, key) = (&sa.outer, &sa.key);
    let text = inner + esp::pad_len(inner, key.block_len()) + esp::TRAILER;
    let esp = esp::HEADER + key.iv_len() + text + key.icv_len();
    let upper = esp + if outer.udp { udp::HEADER } else { 0 };
    let mut ip = [0u8; v4::MIN_HEADER];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((v4::MIN_HEADER + upper) as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&v4::DF.to_be_bytes());
    ip[8] = 64;
    ip[9] = if outer.udp { protocol::UDP } else { protocol::ESP };
    ip[12..16].copy_from_slice(&outer.local.ip().octets());
    ip[16..20].copy_from_slice(&outer.remote.ip().octets());
    v4::set_checksum(&mut ip);
    let at = (ETHERNET + v4::MIN_HEADER) as u16;
    // Here positions count from the Ethernet header.
    let csum = outer.udp.then_some((at, udp::CHECKSUM as u16));
    let mut bytes = Offload { csum, ..Offload::NONE }.emit().to_vec();
    bytes.extend_from_slice(ethernet);
    bytes.extend_from_slice(&ip);
    if outer.udp {
        let pseudo = checksum::pseudo(&ip[12..20], protocol::UDP) + checksum::be16(upper as u16);
        for word in [outer.local.port(), outer.remote.port(), upper as u16] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&checksum::fold(pseudo).to_ne_bytes());
    }
    let frame = bytes.len() + esp;
    bytes.extend_from_slice(&sa.spi.to_be_bytes());
    (inner, bytes, frame)
}

impl Burst for Sealed {
    fn make(&mut self, first: u32, count: usize, time: u64) -> Result<(), LabError> {
        self.inner.make(first, count, time)?;
        let seq = self.sa.reserve(count)?;
        let key = &self.sa.key;
        self.jobs.clear();
        for (slot, seq) in (0..count).zip(seq..) {
            let len = self.inner.frame_len(first.wrapping_add(slot as u32)) - ETHERNET;
            let inner = &self.inner.bytes()[slot * Frames::STRIDE + ETHERNET..][..len];
            let Some((_, head, frame)) = self.heads.iter().find(|(l, ..)| *l == len) else {
                return Err(LabError::Measurement(format!("the tester has no packets of {len} bytes")));
            };
            let packet = &mut self.buffer[slot * STRIDE..][..*frame];
            packet[..head.len()].copy_from_slice(head);
            let start = head.len() - 4;
            packet[start + 4..start + esp::HEADER].copy_from_slice(&(seq as u32).to_be_bytes());
            let text = start + esp::HEADER + key.iv_len();
            packet[text..text + len].copy_from_slice(inner);
            esp::emit_trailer(&mut packet[text + len..*frame - key.icv_len()], protocol::IPV4);
            let (start, len) = ((slot * STRIDE + start) as u32, (frame - start) as u32);
            self.jobs.push(Job { start, len, seq, key: 0, ok: false });
        }
        batch::seal(&mut self.buffer, &mut self.jobs, &[key]);
        if self.jobs.iter().all(|job| job.ok) {
            Ok(())
        } else {
            Err(LabError::Measurement("the tester could not seal a packet".into()))
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn stride(&self) -> usize {
        STRIDE
    }

    fn frame_len(&self, number: u32) -> usize {
        let inner = self.inner.frame_len(number) - ETHERNET;
        self.heads.iter().find(|(len, ..)| *len == inner).map_or(0, |(.., frame)| *frame)
    }

    fn offloads(&self) -> bool {
        true
    }
}

// The largest packet fits with everything around it: IPv4, UDP, ESP with a block of padding and the longest ICV.
const _: () = assert!(VNET_HDR_LEN + Frames::STRIDE + 200 <= STRIDE);
