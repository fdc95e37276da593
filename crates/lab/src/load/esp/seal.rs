//! Seals the generator's packets in ESP as they are sent, in the generator's own thread: the
//! gateway has to open them.
//!
//! ```text
//! a message:  header for the kernel | Ethernet | IPv4 | UDP | ESP | ...   (the kernel cuts them)
//! or raw:     header for the kernel | Ethernet | IPv4 | ESP
//! ```
//! In UDP the packets of a burst are given to the kernel together, as gateways give them: they
//! cross the link one by one, and a gateway that merges what it receives together finds them
//! together.

use std::sync::Arc;

use ironswan_crypto::batch::{self, Job};
use ironswan_wire::esp;
use ironswan_wire::ip::{checksum, protocol, udp, v4};
use ironswan_wire::offload::{Gso, Offload, VNET_HDR_LEN};

use super::{Association, ETHERNET};
use crate::error::LabError;
use crate::load::frame::{Burst, Frames, Route, Row, Shape};

/// Room for all that is put around a packet: the headers, ESP with a block of padding and the
/// longest ICV.
const AROUND: usize = 512;
/// Limits of one segmented send: packets, and bytes of UDP payload.
const SEGMENTS: usize = 64;
const PAYLOAD: usize = 65_507;

/// Frames with ESP. UDP checksums are left to the kernel, as a local socket leaves them to the
/// interface.
pub struct Sealed {
    sa: Arc<Association>,
    inner: Frames,
    buffer: Vec<u8>,
    jobs: Vec<Job>,
    /// First slot of each message that was made last.
    messages: Vec<(usize, Row)>,
}

impl Sealed {
    /// Packets of `shape` along `route`, whose next hop is the gateway's outer side; `batch` of
    /// them at once.
    pub fn new(sa: Arc<Association>, shape: Shape, route: Route, batch: usize) -> Self {
        let inner = Frames::new(shape, route, batch);
        let (jobs, messages) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
        let room = inner.stride() + AROUND;
        Self { sa, inner, buffer: vec![0; room * batch], jobs, messages }
    }
}

/// Writes all before the ESP of a message with `packets` of `esp` bytes; returns how much that is.
fn head(sa: &Association, ethernet: &[u8], esp: usize, packets: usize, at: &mut [u8]) -> usize {
    let outer = &sa.outer;
    let upper = esp * packets + if outer.udp { udp::HEADER } else { 0 };
    let mut ip = [0u8; v4::MIN_HEADER];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((v4::MIN_HEADER + upper) as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&v4::DF.to_be_bytes());
    ip[8] = 64;
    ip[9] = if outer.udp { protocol::UDP } else { protocol::ESP };
    ip[12..16].copy_from_slice(&outer.local.ip().octets());
    ip[16..20].copy_from_slice(&outer.remote.ip().octets());
    v4::set_checksum(&mut ip);
    let mut offload = Offload::NONE;
    if outer.udp {
        // Here positions count from the Ethernet header.
        offload.csum = Some(((ETHERNET + v4::MIN_HEADER) as u16, udp::CHECKSUM as u16));
    }
    if packets > 1 {
        offload.gso = Gso::UdpL4;
        offload.segment_size = esp as u16;
        offload.hdr_len = (ETHERNET + v4::MIN_HEADER + udp::HEADER) as u16;
    }
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        at[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    put(&offload.emit());
    put(ethernet);
    put(&ip);
    if outer.udp {
        for word in [outer.local.port(), outer.remote.port(), upper as u16] {
            put(&word.to_be_bytes());
        }
        let pseudo = checksum::pseudo(&ip[12..20], protocol::UDP) + checksum::be16(upper as u16);
        put(&checksum::fold(pseudo).to_ne_bytes());
    }
    end
}

impl Burst for Sealed {
    fn make(&mut self, first: u32, count: usize, time: u64) -> Result<(), LabError> {
        self.inner.make(first, count, time)?;
        let mut seq = self.sa.reserve(count)?;
        let (key, udp) = (&self.sa.key, self.sa.outer.udp);
        self.jobs.clear();
        self.messages.clear();
        let (mut slot, mut at) = (0, 0);
        while slot < count {
            let run = self.inner.row(first, count, slot);
            let inner = run.len - ETHERNET;
            let text = inner + esp::pad_len(inner, key.block_len()) + esp::TRAILER;
            let len = esp::HEADER + key.iv_len() + text + key.icv_len();
            let packets = if udp { run.messages.min(SEGMENTS).min(PAYLOAD / len).max(1) } else { 1 };
            let ethernet = &self.inner.bytes()[run.start..][..ETHERNET];
            let mut end = at + head(&self.sa, ethernet, len, packets, &mut self.buffer[at..]);
            for n in 0..packets {
                let plain = &self.inner.bytes()[(slot + n) * self.inner.stride() + ETHERNET..][..inner];
                let packet = &mut self.buffer[end..end + len];
                packet[..4].copy_from_slice(&self.sa.spi.to_be_bytes());
                packet[4..esp::HEADER].copy_from_slice(&(seq as u32).to_be_bytes());
                let (_, rest) = packet.split_at_mut(esp::HEADER + key.iv_len());
                rest[..inner].copy_from_slice(plain);
                esp::emit_trailer(&mut rest[inner..text], protocol::IPV4);
                self.jobs.push(Job { start: end as u32, len: len as u32, seq, key: 0, ok: false });
                seq += 1;
                end += len;
            }
            let row = Row { start: at, stride: end - at, len: end - at, messages: 1, packets };
            self.messages.push((slot, row));
            slot += packets;
            at = end;
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

    /// The message that begins with slot `at`, and those of its kind behind it.
    fn row(&self, _first: u32, _count: usize, at: usize) -> Row {
        let from = self.messages.iter().position(|(slot, _)| *slot == at).unwrap_or(self.messages.len());
        let Some((_, row)) = self.messages.get(from) else {
            return Row { start: 0, stride: 0, len: 0, messages: 0, packets: 1 };
        };
        let same = |(_, other): &&(usize, Row)| (other.len, other.packets) == (row.len, row.packets);
        Row { messages: self.messages[from..].iter().take_while(same).count(), ..*row }
    }

    fn offloads(&self) -> bool {
        true
    }
}

const _: () = assert!(VNET_HDR_LEN + 200 <= AROUND);
