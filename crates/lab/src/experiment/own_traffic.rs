//! Somebody's own traffic, from a capture to what the generator sends: packets of the same sizes in
//! the same flows, as far apart in proportion; and what of the capture cannot be so.

use std::path::Path;
use std::time::Duration;

use super::throughput::{FRAMING, FrameSize, smallest};
use crate::error::LabError;
use crate::load::capture::{self, Capture, MOST, Pace};
use crate::load::frame::{Family, Mix};

/// Traffic to be sent.
#[derive(Debug, Clone)]
pub(super) struct OwnTraffic {
    pub size: FrameSize,
    pub pace: Pace,
    /// What it is made of, and what of the capture is not in it.
    pub said: String,
}

/// The header of IPv4 or IPv6 that every piece of a merged packet has.
const HEADER: u32 = 40;

/// Of the capture in a file, for packets of a version of IP and of at most `inner_mtu` bytes.
pub(super) fn read(path: &Path, family: Family, inner_mtu: u32) -> Result<OwnTraffic, LabError> {
    let capture = capture::read(path).map_err(|why| LabError::Usage(format!("--mix {why}")))?;
    Ok(of(&capture, family, inner_mtu))
}

fn of(capture: &Capture, family: Family, inner_mtu: u32) -> OwnTraffic {
    let (least, headers) = (smallest(family) - FRAMING, family.headers() as u32);
    let (mut packets, mut gaps) = (Vec::new(), Vec::new());
    let (mut small, mut merged) = (0u64, 0u64);
    for packet in &capture.packets {
        small += u64::from(packet.size < least);
        merged += u64::from(packet.size > inner_mtu);
        let (mut left, mut gap) = (packet.size, packet.gap);
        while packets.len() < MOST {
            let size = left.clamp(least, inner_mtu);
            packets.push(((size - headers) as u16, packet.flow));
            gaps.push(gap);
            if left <= inner_mtu {
                break;
            }
            // What a kernel had merged was as many packets on the wire, each with a header.
            (left, gap) = (left - inner_mtu + HEADER, Duration::ZERO);
        }
    }
    let version = match family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    let mut said = format!("{capture}; all are sent as UDP over IPv{version}");
    if small > 0 {
        said.push_str(&format!("; {small} packets of less than {least} bytes are sent with {least}"));
    }
    if merged > 0 {
        said.push_str(&format!(
            "; {merged} packets of more than {inner_mtu} bytes, merged or not yet cut by a kernel, are sent in pieces of that size"
        ));
    }
    let pace = Pace::captured(gaps.into_iter());
    // A capture without packets is an error when it is read.
    let size = Mix::captured(packets).map_or(FrameSize::Imix, FrameSize::Captured);
    OwnTraffic { size, pace, said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::capture::Packet;

    #[test]
    fn small_packets_have_room_for_the_marks_and_merged_ones_are_sent_as_they_were_on_the_wire() {
        let packet = |size, flow, millis| Packet { size, flow, gap: Duration::from_millis(millis) };
        let packets = vec![packet(40, 0, 0), packet(4380, 1, 3), packet(1500, 0, 1)];
        let capture = Capture { packets, flows: 2, ..Capture::default() };
        let own = of(&capture, Family::V4, 1500);
        let shape = own.size.shape_of(Family::V4, 1500, 64).expect("a shape");
        assert_eq!((shape.payload, shape.flows, own.size.to_string()), (1472, 2, "mix".into()));
        let sent: Vec<(usize, u32)> = (0..6).map(|n| (shape.len(n), shape.flow(n))).collect();
        assert_eq!(sent[..5], [(18, 0), (1472, 1), (1472, 1), (1432, 1), (1472, 0)]);
        assert_eq!(sent[5], sent[0]);
        // 4 ms pass from the first to the last; the pieces come together.
        let Pace::Captured(times) = own.pace else { panic!("{:?}", own.pace) };
        assert!((times[1] - 0.6).abs() < 1e-9 && times[1] == times[3] && (times[4] - 0.8).abs() < 1e-9);
        assert!(own.said.contains("; 1 packets of less than 46 bytes are sent with 46"), "{}", own.said);
        assert!(own.said.contains("; 1 packets of more than 1500 bytes, merged"), "{}", own.said);
        let own = of(&capture, Family::V6, 1500);
        let shape = own.size.shape_of(Family::V6, 1500, 64).expect("a shape");
        assert_eq!((shape.len(0), shape.payload), (18, 1452));
        assert!(own.said.contains("over IPv6") && own.said.contains("less than 66 bytes"), "{}", own.said);
    }
}
