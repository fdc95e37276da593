//! UDP packets over many tunnels, each for one that is chosen at random: the order is the trace for
//! the key cache, too.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ironswan_io::packet::PacketSocket;

use super::cache::{Random, Trace};
use super::config::inner;
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::load::frame::{Family, HEADERS, MIN_PAYLOAD, Mark, Shape};
use crate::topology::Netns;

/// The receiver's port.
pub(super) const PORT: u16 = 7007;
/// Bytes of UDP payload: the marks and no more.
pub(super) const PAYLOAD: usize = MIN_PAYLOAD;
/// Frames of one call.
const BATCH: usize = 32;
const FRAME: usize = HEADERS + PAYLOAD;
/// Bytes in flight.
const BUFFER: u32 = 16 << 20;
/// A packet that would be later than this is not sent.
const MAX_LATE: Duration = Duration::from_millis(10);

/// Load to send, and number of tunnels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Tunnels.
    pub tunnels: u32,
    /// Packets a second.
    pub rate: f64,
    /// For so long.
    pub duration: Duration,
    /// Distinguishes packets of this offer.
    pub tag: u32,
}

impl Offer {
    /// Shape of the packets that the receiver should expect.
    pub(super) fn shape(&self) -> Shape {
        Shape { payload: PAYLOAD, mix: None, flows: self.tunnels, family: Family::V4, tag: self.tag }
    }
}

/// Sends through `eth0` of a host to a next hop; the tunnels of the packets that left, in their
/// order.
pub(super) fn send(
    netns: &Netns,
    next_hop: [u8; 6],
    offer: Offer,
    epoch: Instant,
) -> Result<Trace, LabError> {
    netns.inside(|| {
        let mut socket = PacketSocket::open("eth0", BATCH, BUFFER)
            .map_err(|e| LabError::Measurement(format!("the generator: {e}")))?;
        let (shape, mut random) = (offer.shape(), Random::new(u64::from(offer.tag) + 1));
        let mut frames = vec![0; BATCH * FRAME];
        let mut trace = Trace::new();
        let start = clock::now();
        let (mut due, wanted) = (0.0, offer.rate * offer.duration.as_secs_f64());
        while due < wanted {
            interrupt::check()?;
            let elapsed = (clock::now() - start).as_secs_f64();
            let now_due = (elapsed * offer.rate).min(wanted);
            // A pause of this thread does not become a burst.
            due = due.max(now_due - offer.rate * MAX_LATE.as_secs_f64());
            let count = ((now_due - due) as usize).min(BATCH);
            if count == 0 {
                std::thread::sleep(Duration::from_secs_f64((BATCH as f64 / offer.rate).min(0.001)));
                if now_due >= wanted {
                    break;
                }
                continue;
            }
            due += count as f64;
            let time = clock::now().saturating_duration_since(epoch).as_nanos() as u64;
            let mut tunnels = [0; BATCH];
            for (slot, tunnel) in tunnels.iter_mut().enumerate().take(count) {
                *tunnel = random.below(offer.tunnels);
                let mark = Mark { number: (trace.len() + slot) as u32, time, flow: *tunnel };
                write(&mut frames[slot * FRAME..][..FRAME], next_hop, &shape, &mark);
            }
            // A packet that the kernel had no room for was not sent, and is not in the trace.
            let taken = socket.send(&frames, FRAME, FRAME, count).unwrap_or(0);
            trace.extend_from_slice(&tunnels[..taken]);
        }
        Ok(trace)
    })?
}

/// Ethernet, IPv4 and UDP headers from the host behind g1 to that behind g2, and the marks.
fn write(frame: &mut [u8], next_hop: [u8; 6], shape: &Shape, mark: &Mark) {
    frame[..6].copy_from_slice(&next_hop);
    // Locally administered; nobody answers to it.
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let (ip, payload) = frame[14..].split_at_mut(20);
    let (source, destination): (Ipv4Addr, Ipv4Addr) = (inner(0, mark.flow), inner(1, mark.flow));
    ip.copy_from_slice(&[0x45, 0, 0, (28 + PAYLOAD) as u8, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&destination.octets());
    let sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    // Port 7007 at both ends; a checksum of 0 is none.
    payload[..2].copy_from_slice(&PORT.to_be_bytes());
    payload[2..4].copy_from_slice(&PORT.to_be_bytes());
    payload[4..6].copy_from_slice(&((8 + PAYLOAD) as u16).to_be_bytes());
    payload[6..8].copy_from_slice(&[0, 0]);
    shape.write(mark, &mut payload[8..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_between_the_hosts_of_its_tunnel_and_carries_its_mark() {
        let offer = Offer { tunnels: 1000, rate: 1.0, duration: Duration::ZERO, tag: 3 };
        let mark = Mark { number: 9, time: 77, flow: 299 };
        let mut frame = [0; FRAME];
        write(&mut frame, [1, 2, 3, 4, 5, 6], &offer.shape(), &mark);
        assert_eq!(frame[26..34], [10, 128, 4, 174, 10, 192, 4, 174]);
        let sum: u32 = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
        assert_eq!(usize::from(frame[17]), FRAME - 14);
        assert_eq!(offer.shape().read(&frame[42..], &[]), Some(mark));
        frame[50] ^= 1;
        assert_eq!(offer.shape().read(&frame[42..], &[]), None);
    }
}
