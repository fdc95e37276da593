//! How packets are carried between gateways, and the receives that they come in.

use std::net::SocketAddr;
use std::ops::Range;

use ironswan_wire::esp::{self, UdpKind};

/// The protocol around a packet of a batch: tells which header its bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carrier {
    /// A UDP datagram on the NAT traversal port (RFC 3948), whose payload this is: ESP.
    #[default]
    Udp,
    /// An IP packet of protocol 50, whose payload this is. The kernel has the IP header.
    Esp,
    /// Nothing: the packet begins with its outer IP header. For AH, which covers that header, and
    /// for packets that keep their own header.
    Ip,
}

/// One receive: an ESP packet, or several of equal length that GRO merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Offset in the buffer, in bytes.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Bytes of each packet but the last, which may be shorter; 0 for one packet.
    pub segment_size: u16,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// The address it came from.
    pub remote: SocketAddr,
    /// The protocol around the packets. ESP is accepted in either form for every SA (RFC 7296
    /// section 2.23). With [`Carrier::Ip`] it is AH, and begins with the outer IP header.
    pub carrier: Carrier,
    /// TOS or traffic class of the outer header, for ECN (RFC 6040).
    pub tos: u8,
}

/// Takes a receive on the NAT traversal port apart, since a buffer that GRO merged may mix IKE and
/// ESP (RFC 3948 section 2): runs of ESP are appended to `esp`, everything else goes to `other`
/// with its range in the buffer (an IKE range begins with the non-ESP marker).
pub fn demux(
    buf: &[u8],
    datagram: &Datagram,
    esp: &mut Vec<Datagram>,
    mut other: impl FnMut(UdpKind, Range<usize>),
) {
    let mut run: Option<Datagram> = None;
    for range in strides(datagram) {
        let kind = buf.get(range.clone()).map(esp::udp_kind);
        match (kind, &mut run) {
            (Some(UdpKind::Esp), Some(run)) => run.len += range.len() as u32,
            (Some(UdpKind::Esp), None) => {
                run = Some(Datagram { offset: range.start as u32, len: range.len() as u32, ..*datagram });
            }
            (kind, _) => {
                esp.extend(run.take());
                if let Some(kind) = kind {
                    other(kind, range);
                }
            }
        }
    }
    esp.extend(run);
}

/// The packets of a receive. An empty datagram is one empty packet.
pub(crate) fn strides(datagram: &Datagram) -> impl Iterator<Item = Range<usize>> + use<> {
    let start = datagram.offset as usize;
    let end = start + datagram.len as usize;
    let step = match datagram.segment_size {
        0 => datagram.len.max(1) as usize,
        n => usize::from(n),
    };
    let count = (datagram.len as usize).div_ceil(step).max(1);
    (0..count).map(move |i| {
        let at = start + i * step;
        at..(at + step).min(end)
    })
}
