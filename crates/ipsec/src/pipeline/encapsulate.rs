//! Writes ESP or AH around a packet: the header in front, the packet itself, and its destination
//! (RFC 4303 section 3.1, RFC 4302 section 3.1).
//!
//! ```text
//!                  in the send buffer                                              Carrier
//! ESP, tunnel      | ESP | IV | inner packet | TFC padding | trailer | ICV         Udp, Esp
//! ESP, transport   | (kept IP header, raw) ESP | IV | payload | trailer | ICV      Udp, Ip
//! AH, tunnel       | new IP header  | AH | inner packet                            Ip
//! AH, transport    | kept IP header  | AH | payload                                 Ip
//! ```
//!
//! Not here: which packets (see [`super::general`]); the fast path's tunnel mode ESP
//! ([`super::split`]).

use std::net::SocketAddr;
use std::sync::Arc;

use ironswan_crypto::batch::Job;
use ironswan_crypto::icv::{IcvJob, IcvKey};
use ironswan_wire::esp;
use ironswan_wire::ip::{IpInfo, protocol, v4, v6};
use ironswan_wire::sadb::Mode;

use super::split::MAX_ESP;
use super::transport_headers::HeaderSplit;
use crate::ah;
use crate::batch::{Carrier, TxBatch};
use crate::counters::DropReason;
use crate::mtu::{MIN_MTU_V4, MIN_MTU_V6};
use crate::sa::{OutSa, SaKey};

/// The longest packet with its IP header: IPv4's, and a send's.
const MAX_IP: usize = 65_535;
/// TTL or hop limit of an outer header that we make (RFC 1700; RFC 4301 section 5.1.2.1:
/// "constructed").
const TTL: u8 = 64;

/// The header in front of ESP or AH in the send buffer.
#[derive(Clone, Copy)]
enum FrontHeader {
    /// Nothing: the kernel writes the IP header.
    None,
    /// The packet's own header.
    Own(HeaderSplit),
    /// A new one, between the ends of the path.
    Outer,
}

/// Encapsulates the packets of one frame: the choices that are the same for all of its segments.
pub(super) struct Encapsulator<'a> {
    sa: &'a Arc<OutSa>,
    front: FrontHeader,
    front_len: usize,
    carrier: Carrier,
    tos: u8,
    /// Packets of any length may leave in fragments.
    fragmentable: bool,
    /// Packets of up to this many bytes, before encapsulation, may leave in fragments too.
    fragmentable_len: usize,
    ipv6: bool,
    /// Offset of the payload in a packet, in bytes.
    pub(super) payload: usize,
    /// Protocol number of the payload.
    pub(super) next_header: u8,
}

/// One packet to encapsulate.
pub(super) struct PlainPacket<'a> {
    /// The packet before encapsulation.
    pub(super) whole: &'a [u8],
    /// The part that ESP or AH protects: the payload, or the compressed payload.
    pub(super) body: &'a [u8],
    /// Protocol number of `body`.
    pub(super) next_header: u8,
    /// Zeros follow `body` up to this length. Tunnel mode ESP only.
    pub(super) padded: usize,
    pub(super) sequence: u64,
    /// For an IPv4 header that needs an identification.
    pub(super) ident: u16,
}

impl<'a> Encapsulator<'a> {
    /// Chooses how a packet or super-packet with this header is carried. `reassembled`: the packet
    /// came in fragments, so its sender does not mind fragments.
    pub(super) fn plan(
        sa: &'a Arc<OutSa>,
        packet: &[u8],
        info: &IpInfo,
        reassembled: bool,
    ) -> Result<Self, DropReason> {
        let state = &*sa.state;
        let ah = state.key.ah().is_some();
        let inner = if info.ipv6 { protocol::IPV6 } else { protocol::IPV4 };
        let mut encapsulator = Self {
            sa,
            front: FrontHeader::None,
            front_len: 0,
            carrier: if sa.path.udp_encap { Carrier::Udp } else { Carrier::Esp },
            tos: state.outer_tos(info.tos),
            fragmentable: reassembled || !state.parameters.options.copy_df,
            fragmentable_len: if info.ipv6 { MIN_MTU_V6 } else { MIN_MTU_V4 },
            ipv6: info.ipv6,
            payload: 0,
            next_header: inner,
        };
        if state.parameters.mode == Mode::Transport {
            encapsulator.keep_headers(packet, info)?;
        } else if ah {
            encapsulator.front = FrontHeader::Outer;
            encapsulator.front_len = if sa.path.remote.is_ipv6() { v6::HEADER } else { v4::MIN_HEADER };
            encapsulator.carrier = Carrier::Ip;
        }
        Ok(encapsulator)
    }

    /// For a dummy packet of a tunnel mode ESP SA.
    pub(super) fn dummy(sa: &'a Arc<OutSa>) -> Self {
        let options = &sa.state.parameters.options;
        Self {
            sa,
            front: FrontHeader::None,
            front_len: 0,
            carrier: if sa.path.udp_encap { Carrier::Udp } else { Carrier::Esp },
            tos: sa.state.outer_tos(0),
            fragmentable: !options.copy_df,
            fragmentable_len: 0,
            ipv6: false,
            payload: 0,
            next_header: protocol::NONE,
        }
    }

    fn keep_headers(&mut self, packet: &[u8], info: &IpInfo) -> Result<(), DropReason> {
        let split = HeaderSplit::of(packet, info).ok_or(DropReason::OutTransport)?;
        (self.payload, self.next_header) = (split.payload, split.next_header);
        self.tos = info.tos;
        let df = !info.ipv6 && packet.get(6).is_some_and(|flags| flags & (v4::DF >> 8) as u8 != 0);
        if self.carrier == Carrier::Udp {
            // The kernel writes the header around UDP, and would write no other.
            return if split.is_bare() { Ok(()) } else { Err(DropReason::OutTransport) };
        }
        self.front = FrontHeader::Own(split);
        self.front_len = split.len;
        self.carrier = Carrier::Ip;
        if !info.ipv6 {
            // The header says it.
            (self.fragmentable, self.fragmentable_len) = (!df, 0);
        }
        Ok(())
    }

    /// Bytes in the send buffer of a packet of `whole` bytes whose payload is padded to `padded`;
    /// `None` when no packet can be so long.
    pub(super) fn len(&self, whole: usize, padded: usize) -> Option<usize> {
        let body = whole.saturating_sub(self.payload).max(padded);
        let len = self.front_len + self.protected_len(body);
        let most = if self.carrier == Carrier::Ip { MAX_IP } else { MAX_ESP };
        (len <= most).then_some(len)
    }

    /// Bytes from ESP or AH on.
    fn protected_len(&self, body: usize) -> usize {
        match &self.sa.state.key {
            SaKey::Esp(_) => self.sa.state.esp_len(body),
            SaKey::Ah(key) => self.ah_len(key) + body,
        }
    }

    fn ah_len(&self, key: &IcvKey) -> usize {
        ah::header_len(key.field_len(), self.sa.path.remote.is_ipv6())
    }

    /// Appends a packet to the batch, except what sealing writes.
    pub(super) fn emit(&self, tx: &mut TxBatch, packet: &PlainPacket<'_>) -> Result<(), DropReason> {
        let state = &*self.sa.state;
        let body = packet.body.len().max(packet.padded);
        let len = self.front_len + self.protected_len(body);
        let out = tx.buf.get_mut(tx.used..tx.used + len).ok_or(DropReason::OutTooBig)?;
        let (front, rest) = out.split_at_mut(self.front_len);
        let may = self.fragmentable || packet.whole.len() <= self.fragmentable_len;
        let number = if state.key.ah().is_some() { protocol::AH } else { protocol::ESP };
        match &self.front {
            FrontHeader::None => {}
            FrontHeader::Own(split) => {
                front.copy_from_slice(packet.whole.get(..split.len).ok_or(DropReason::OutTransport)?);
                split.emit(front, len, number, packet.ident);
            }
            FrontHeader::Outer => self.outer(front, len, packet.ident, may),
        }
        let start = (tx.used + self.front_len) as u32;
        match &state.key {
            SaKey::Esp(_) => {
                esp_packet(rest, state.spi.0, state.iv_len(), state.icv_len(), body, packet);
                let key = tx.key_of(self.sa);
                let esp_len = rest_len(len, self.front_len);
                tx.jobs.push(Job { start, len: esp_len, seq: packet.sequence, key, ok: false });
                self.send(tx, len, key, may);
            }
            SaKey::Ah(key) => {
                let (header, text) = rest.split_at_mut(self.ah_len(key));
                ah::emit(header, packet.next_header, state.spi.0, packet.sequence as u32);
                text.copy_from_slice(packet.body);
                let head = tx.heads.len() as u32;
                ah::immutable(front, &mut tx.heads).map_err(|_| DropReason::OutTransport)?;
                let head_len = tx.heads.len() as u32 - head;
                let key = tx.ah_key_of(self.sa);
                tx.ah_jobs.push(IcvJob {
                    head,
                    head_len,
                    start,
                    len: rest_len(len, self.front_len),
                    field: start + ah::FIXED as u32,
                    seq: packet.sequence,
                    key,
                    ok: false,
                });
                self.send(tx, len, key, may);
            }
        }
        tx.used += len;
        Ok(())
    }

    fn send(&self, tx: &mut TxBatch, len: usize, key: u16, may: bool) {
        if self.carrier == Carrier::Ip {
            tx.push_whole(len, self.sa, self.tos, if may { len as u16 } else { 0 });
        } else {
            let least = self.sa.state.fragmentable[usize::from(self.ipv6)];
            tx.push_send(
                (tx.used, len),
                key,
                self.sa,
                self.tos,
                if self.fragmentable { u16::MAX } else { least },
            );
        }
    }

    /// The outer header of a tunnel: "constructed" but for what the options copy (RFC 4301 section
    /// 5.1.2).
    fn outer(&self, front: &mut [u8], len: usize, ident: u16, may_fragment: bool) {
        let (tos, path) = (self.tos, &self.sa.path);
        match (path.local, path.remote) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
                let total = (len as u16).to_be_bytes();
                let [id0, id1] = ident.to_be_bytes();
                let [flags, _] = if may_fragment { [0; 2] } else { v4::DF.to_be_bytes() };
                front[..12].copy_from_slice(&[
                    0x45,
                    tos,
                    total[0],
                    total[1],
                    id0,
                    id1,
                    flags,
                    0,
                    TTL,
                    protocol::AH,
                    0,
                    0,
                ]);
                front[12..16].copy_from_slice(&local.ip().octets());
                front[16..20].copy_from_slice(&remote.ip().octets());
                v4::set_checksum(front);
            }
            (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
                // Flow label 0: "constructed or configured" (RFC 4301 section 5.1.2.2).
                front[..4].copy_from_slice(&(6 << 28 | u32::from(tos) << 20).to_be_bytes());
                front[4..6].copy_from_slice(&((len - v6::HEADER) as u16).to_be_bytes());
                front[6..8].copy_from_slice(&[protocol::AH, TTL]);
                front[8..24].copy_from_slice(&local.ip().octets());
                front[24..40].copy_from_slice(&remote.ip().octets());
            }
            // The engine accepts no SA between different families.
            _ => {}
        }
    }
}

fn rest_len(len: usize, front: usize) -> u32 {
    (len - front) as u32
}

/// Writes ESP around a body: all but IV and ICV.
fn esp_packet(
    out: &mut [u8],
    spi: u32,
    iv_len: usize,
    icv_len: usize,
    body_len: usize,
    packet: &PlainPacket<'_>,
) {
    out[..4].copy_from_slice(&spi.to_be_bytes());
    out[4..8].copy_from_slice(&(packet.sequence as u32).to_be_bytes());
    let end = out.len() - icv_len;
    let (body, tail) = out[esp::HEADER + iv_len..end].split_at_mut(body_len);
    let (text, padding) = body.split_at_mut(packet.body.len());
    text.copy_from_slice(packet.body);
    padding.fill(0);
    esp::emit_trailer(tail, packet.next_header);
}
